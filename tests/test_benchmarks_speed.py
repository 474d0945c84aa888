"""The scripts on speed: quick runs have all sections, and what is compared is the same.

Those of topic models are in ``test_benchmarks_latent_dirichlet.py``, those of data in parts in
``test_benchmarks_parts.py``.
"""

from __future__ import annotations

import re
from importlib import import_module

import numpy as np
import pytest
from numpy.testing import assert_allclose
from peer_priors import PEER_OF_MIXTURES

from sklearn_anneal.annealing import ANNEALING

pytestmark = pytest.mark.usefixtures("benchmarks_importable")

# Words in the titles of the sections that quick runs have on their pages.
SECTIONS = {
    "gaussian_mixture": (
        *("Time per pass", "annealing costs", "ten restarts", "Two jobs", "Where the time"),
        *("learning the priors", "gaussian_mixture.speed --write"),
    ),
    "mixture": ("Time per pass", "Memory", "annealing costs"),
    "hidden_markov": (
        *("over symbols", "over vectors", "Where the time", "annealing costs", "Two jobs"),
        "## Memory",
    ),
    "matrix_factorization": (
        *("alternating least squares", "annealing costs", "Single precision", "Two jobs"),
        *("| nothing: ", "| 1.25: "),
    ),
    "factorial_mixture": ("its matrix products", "over all states", "Linear in", "annealing costs"),
    "gamma_process_nmf": (
        *("of scikit-learn", "arithmetic", "explore", "annealing costs", "Memory", "Two jobs"),
    ),
    "spike_slab_factor_analysis": (
        *("an iteration of mofapy2", "Linear in", "annealing costs", "dense pictures"),
    ),
    "sigmoid_belief_net": ("against its matrix products", "Linear in", "annealing costs"),
}
PEERS = {"hidden_markov": "hmmlearn", "mixture": "stepmix"}
# Lines of two jobs that find what one finds.
SAME = {"hidden_markov": 2, "matrix_factorization": 4}


@pytest.mark.parametrize("model", SECTIONS)
def test_a_quick_run_has_every_section_and_needs_no_file(
    model, no_data, quick_speed, in_this_process
):
    if model in PEERS:
        pytest.importorskip(PEERS[model])
    text = quick_speed(model)
    for part in ("A quick run", *SECTIONS[model]):
        assert part in text
    assert not re.search(r"\bnan\b", text)
    if model in SAME:
        assert text.count("| yes |") == SAME[model]
    if model in PEERS:
        assert "Left out" not in text


@pytest.mark.parametrize("model", SECTIONS)
def test_a_quick_run_does_not_replace_the_full_page(model, capsys):
    script = import_module(f"benchmarks.{model}.speed")
    with pytest.raises(SystemExit):
        script.main(["--quick", "--write"])
    assert "--output" in capsys.readouterr().err


def test_a_section_that_is_measured_alone_replaces_its_own(quick_speed):
    first = quick_speed("mixture", "passes", "memory")
    second = quick_speed("mixture", "memory", "methods")
    head, passes, memory, methods = re.split(r"^(?=## )", second, flags=re.MULTILINE)
    old = re.split(r"^(?=## )", first, flags=re.MULTILINE)
    assert [head, passes] == old[:2]
    assert memory.splitlines()[0] == old[2].splitlines()[0]
    for section in (memory, methods):
        assert "Measured apart from the other sections." in section
        assert "Written by" not in section
    assert "Measured apart" not in first + head + passes


@pytest.mark.slow
def test_memory_is_measured_in_another_interpreter(no_data, quick_speed):
    text = quick_speed("gamma_process_nmf", "memory")
    assert "a fresh interpreter" in text
    assert not re.search(r"\bnan\b", text)


# Gaussian mixtures


@pytest.mark.parametrize("factorization", ["joint", "independent"])
def test_passes_with_and_without_learning_have_the_same_bound(factorization):
    from benchmarks.gaussian_mixture import speed, workload

    X = workload.blobs(500, 3)
    contexts = speed.learning(X, 3, factorization)
    ends = {name: speed.single_pass(ctx, X)() for name, ctx in contexts.items()}
    before, fixed = ends["learned"].trace.initial, ends["fixed"].trace.initial
    assert before == pytest.approx(fixed, rel=1e-10)
    # One of them learns in its pass, the other does not, and neither changes where both began.
    q, moved = contexts["learned"].q, ends["learned"].ctx.prior
    assert contexts["fixed"].q is q
    assert any(not np.array_equal(moved[key], contexts["learned"].prior[key]) for key in moved)
    assert ends["fixed"].ctx.prior is contexts["fixed"].prior


def test_without_its_file_a_section_on_restarts_is_left_out(no_data, capsys):
    from benchmarks.gaussian_mixture import speed, workload

    lines = speed.measure_restarts(workload.FULL)
    assert any("Left out: mnist.npz" in line for line in lines)
    assert "mnist.npz" in capsys.readouterr().err


def test_bounds_of_both_libraries_are_complete():
    from sklearn.mixture import BayesianGaussianMixture

    from benchmarks.gaussian_mixture import speed
    from sklearn_anneal import AnnealedBayesianGaussianMixture

    X = np.random.default_rng(0).standard_normal((200, 3))
    params = {
        "n_components": 2,
        "weight_concentration_prior_type": "dirichlet_distribution",
        "max_iter": 2000,
        "random_state": 0,
    }
    theirs = BayesianGaussianMixture(**params, tol=1e-9).fit(X)
    ours = AnnealedBayesianGaussianMixture(
        **PEER_OF_MIXTURES, **params, annealing="none", tol=1e-12
    ).fit(X)
    np.testing.assert_allclose(speed.complete_bound(theirs, X), ours.lower_bound_, rtol=1e-4)


# Mixtures of binary columns and categories


def test_without_stepmix_ours_is_still_measured(no_data, quick_speed, monkeypatch, capsys):
    from benchmarks.mixture import speed

    monkeypatch.setattr(speed, "StepMix", None)
    text = quick_speed("mixture", "passes")
    assert "four categories" in text
    assert not re.search(r"\bnan\b", text)
    assert "pip install stepmix" in capsys.readouterr().err


def test_drawn_surveys_have_as_many_distinct_rows_as_they_say():
    from benchmarks.mixture import workload

    (case,) = [case for case in workload.FULL.cases if case.n_distinct]
    X = workload.draw(case, 2000)
    assert len(np.unique(X, axis=0)) == case.n_distinct
    (case,) = [case for case in workload.FULL.cases if case.missing]
    assert np.isnan(workload.draw(case, 2000)).mean() == pytest.approx(case.missing, abs=0.01)


# Hidden Markov models


def test_without_hmmlearn_the_speed_of_sequences_is_still_measured(
    no_data, quick_speed, monkeypatch, capsys
):
    from benchmarks.hidden_markov import speed, workload

    monkeypatch.setattr(workload, "vhmm", None)
    monkeypatch.setattr(speed, "vhmm", None)
    text = quick_speed("hidden_markov", "symbols", "vectors", "where")
    assert "hmmlearn left out" in text
    assert text.count("Left out: hmmlearn is not installed.") == 2
    assert "forward–backward" in text
    assert "pip install hmmlearn" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["symbols", "vectors", "windows"])
def test_passes_over_sequences_that_are_compared_agree(kind):
    pytest.importorskip("hmmlearn")
    from benchmarks.hidden_markov import workload

    data = getattr(workload, kind)(workload.QUICK)
    ours = workload.Ours(data, 3)
    ours()
    for implementation in ("log", "scaling"):
        peer = workload.Peer(data, 3, ours.attributes, implementation)
        bounds = [(ours(), peer()) for _ in range(3)]
        assert bounds[2][0] > bounds[0][0]
        np.testing.assert_allclose(*np.transpose(bounds), rtol=1e-8)


def test_passes_over_sequences_are_those_of_a_fit():
    from benchmarks.hidden_markov import workload

    data = workload.vectors(workload.QUICK)
    ours = workload.Ours(data, 3)
    bounds = [ours() for _ in range(4)]
    fitted = workload.estimator(data, 3, max_iter=3).fit(data.X, lengths=data.lengths)
    np.testing.assert_allclose(fitted.lower_bounds_, bounds[1:], rtol=1e-12)


def test_windows_hold_consecutive_frames_of_one_sequence():
    from benchmarks.hidden_markov import workload

    frames, windows = workload.vectors(workload.QUICK), workload.windows(workload.QUICK)
    assert (frames.lengths % 4 > 0).any()
    assert windows.X.shape == (windows.lengths.sum(), 12)
    np.testing.assert_array_equal(windows.lengths, frames.lengths // 4)
    second = frames.X[frames.lengths[0] :]
    np.testing.assert_array_equal(windows.X[windows.lengths[0]], second[:4].ravel())


def test_parts_of_a_pass_over_sequences_add_up():
    from benchmarks.hidden_markov import speed, workload

    kernel = speed.Kernel.__call__
    total, spent = speed.shares(workload.vectors(workload.QUICK), 3, workload.QUICK)
    assert sum(spent.values()) == pytest.approx(total)
    for part in ("log density", "forward–backward", "statistics", "update"):
        assert 0 < spent[part] < total
    assert speed.Kernel.__call__ is kernel


# Ratings


@pytest.mark.exhaustive
def test_many_ratings_are_measured_in_other_interpreters(no_data, quick_speed):
    text = quick_speed("matrix_factorization", "large")
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| svi_plus")]
    assert len(rows) == 2
    # The memory is that of an interpreter with these libraries, and little more.
    assert all(100 < float(row[-2]) < 1000 for row in rows)


def test_without_peers_the_speed_of_ratings_is_still_measured(
    no_data, quick_speed, monkeypatch, capsys
):
    from benchmarks.matrix_factorization import workload

    monkeypatch.setattr(workload, "CMF", None)
    monkeypatch.setattr(workload, "AlternatingLeastSquares", None)
    text = quick_speed("matrix_factorization", "passes")
    assert "cmfrec left out, implicit left out" in text
    assert "cmfrec is not installed" in text
    assert "pip install implicit" in capsys.readouterr().err


def test_drawn_ratings_have_their_shape_and_its_skew():
    from benchmarks.matrix_factorization import data

    shape = data.Shape("", 900, 500, 60_000, 1.05, 1.25)
    X = data.draw(shape)
    assert X.shape == (900, 500)
    assert X.nnz == 60_000
    assert X.has_canonical_format  # no pair twice
    assert set(X.data) == {1.0, 2.0, 3.0, 4.0, 5.0}
    for axis, spread in ((1, shape.user_spread), (0, shape.item_spread)):
        counts = np.diff(X.indptr if axis == 1 else X.tocsc().indptr)
        # No user can rate more than all items, so that the skew is a little less.
        skew = np.sqrt(2 * np.log(counts.mean() / np.median(counts)))
        assert 0.6 * spread < skew < 1.1 * spread
    again = data.draw.__wrapped__(shape)
    np.testing.assert_array_equal(again.data, X.data)
    np.testing.assert_array_equal(again.indices, X.indices)


def test_the_time_of_a_pass_leaves_out_what_a_fit_does_once():
    from benchmarks.matrix_factorization import workload

    now = [0.0]

    def fit(n):
        now[0] += 100.0 + 3.0 * n

    def clock(run):
        before = now[0]
        run()
        return now[0] - before

    each, others = workload.pass_times({"a": fit}, (2, 12), 4, clock, {"b": lambda: fit(1)})
    np.testing.assert_allclose(each["a"], np.full(4, 3.0))
    np.testing.assert_allclose(others["b"], np.full(4, 103.0))


def test_fits_of_ratings_that_are_timed_make_the_passes_asked_for():
    from benchmarks.matrix_factorization import data, workload

    X = data.draw(workload.QUICK.shape)
    for name in ANNEALING:
        assert workload.our_fit(X, 2, name)(4).n_iter_ == 4


@pytest.mark.parametrize("peer", ["cmfrec", "implicit"])
def test_peers_of_ratings_make_the_sweeps_asked_for(peer):
    pytest.importorskip(peer)
    from benchmarks.matrix_factorization import data, workload

    X = data.draw(workload.QUICK.shape).astype(np.float32)
    first, last = (workload.PEERS[peer](X, 2)(n) for n in (1, 3))
    factors = {"cmfrec": "B_", "implicit": "item_factors"}[peer]
    assert getattr(last, factors).dtype == np.float32
    assert len(getattr(last, factors)) == X.shape[1]
    assert not np.allclose(getattr(first, factors), getattr(last, factors))


# Factorial mixtures


def test_fits_of_factorial_mixtures_that_are_timed_make_the_passes_asked_for():
    from benchmarks.factorial_mixture import workload

    (shape,) = workload.QUICK.shapes
    for name in ANNEALING:
        assert workload.our_fit(shape, name)(4).n_iter_ == 4


# Counts


def test_fits_of_gamma_process_nmf_make_the_passes_asked_for():
    from benchmarks.gamma_process_nmf import workload

    X = workload.counts(workload.DENSE, workload.QUICK)
    for name in ANNEALING:
        if "tempering" not in name:
            assert workload.estimator(3, 4, name).fit(X).n_iter_ == 4


def test_passes_that_go_on_raise_the_bound():
    from benchmarks.gamma_process_nmf import workload

    passes = workload.Passes(workload.counts(workload.DENSE, workload.QUICK), 4)
    bounds = [(passes(), passes.bound)[1] for _ in range(5)]
    assert (np.diff(bounds) > -1e-9 * abs(bounds[0])).all()
    assert bounds[-1] > bounds[0]


def test_iterations_are_those_of_scikit_learn():
    from sklearn.decomposition import NMF

    from benchmarks.gamma_process_nmf import workload

    X = workload.counts(workload.DENSE, workload.QUICK)
    iterations = workload.Iterations(X, 4)
    for _ in range(3):
        iterations()
    nmf = NMF(
        4,
        solver="mu",
        beta_loss="kullback-leibler",
        init="random",
        random_state=0,
        max_iter=5,
        tol=0,
    )
    assert_allclose(iterations.activations, nmf.fit_transform(X), rtol=1e-10)
    assert_allclose(iterations.components, nmf.components_, rtol=1e-10)


def test_drawn_sparse_counts_have_the_entries_asked_for():
    from benchmarks.gamma_process_nmf import workload

    X = workload.many_counts(20_000)
    assert X.nnz == 20_000
    assert X.has_canonical_format
    assert (X.data > 0).all()


# Spike-and-slab factor analysis


def test_fits_of_factors_that_are_timed_make_the_passes_asked_for():
    from benchmarks.spike_slab_factor_analysis import speed

    X = speed.rows(speed.QUICK.peer)
    for name in ANNEALING:
        assert speed.our_fit(X, 4, name)(4).n_iter_ == 4


# Sigmoid belief nets


@pytest.mark.parametrize("method", ["none", "deterministic", "svi_plus", "proximity"])
def test_fits_of_nets_that_are_timed_make_the_passes_asked_for(method):
    from benchmarks.sigmoid_belief_net import speed

    fit = speed.our_fit(speed.QUICK.images, 2, method)(4)
    assert fit.n_iter_ == 4
    assert not fit.early_stopping


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_multiply_what_the_net_multiplies(dtype, monkeypatch):
    """As many multiplications as weights are used: forward once, and once for the gradient."""
    from benchmarks.sigmoid_belief_net import speed

    counted = []

    class Counted(np.ndarray):
        def __matmul__(self, other):
            assert self.dtype == other.dtype == dtype
            counted.append(self.shape[0] * self.shape[1] * other.shape[1])
            return np.asarray(self) @ np.asarray(other)

    class Counting:
        def random(self, size, dtype):
            return np.zeros(size, dtype).view(Counted)

    shape = speed.Shape(200, 16, (6, 5))
    monkeypatch.setattr(speed.np.random, "default_rng", lambda seed: Counting())
    run = speed.products(shape, 3, dtype)
    monkeypatch.undo()
    run()
    first, second = 16 * 6, 6 * 5
    assert sum(counted) == 2 * (200 * (first + 3 * second) + 3 * 200 * (first + second))
