"""The scripts on speed: quick runs have all sections, and what is compared is the same."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklearn_anneal.annealing import ANNEALING

pytestmark = pytest.mark.usefixtures("benchmarks_importable")

# Words in the titles of the sections that quick runs have on their pages.
SECTIONS = {
    "gaussian_mixture": ("Time per pass", "annealing costs", "gaussian_mixture.speed --write"),
    "mixture": ("Time per pass", "annealing costs"),
    "hidden_markov": ("over symbols", "over vectors", "annealing costs"),
    "matrix_factorization": ("alternating least squares", "annealing costs"),
    "factorial_mixture": ("its matrix products", "annealing costs"),
    "gamma_process_nmf": ("of scikit-learn", "annealing costs"),
    "spike_slab_factor_analysis": (
        *("iteration of mofapy2", "annealing costs", "dense pictures", "held-out cells choose"),
        "Gaussian factors where",
    ),
    "sigmoid_belief_net": ("against its matrix products", "annealing costs"),
    "latent_dirichlet": ("local step",),
}
PEERS = {"hidden_markov": "hmmlearn", "mixture": "stepmix"}
# Models whose passes are made one by one, and not by fits of so many.
OTHER_PASSES = ("hidden_markov", "latent_dirichlet")


@pytest.mark.parametrize("model", SECTIONS)
def test_a_quick_run_has_every_section_and_needs_no_file(model, no_data, quick_speed):
    if model in PEERS:
        pytest.importorskip(PEERS[model])
    text = quick_speed(model)
    for part in ("A quick run", *SECTIONS[model]):
        assert part in text
    assert not re.search(r"\bnan\b", text)
    if model in PEERS:
        assert "Left out" not in text


@pytest.mark.parametrize("model", SECTIONS)
def test_a_quick_run_does_not_replace_the_full_page(model, capsys):
    script = import_module(f"benchmarks.{model}.speed")
    with pytest.raises(SystemExit):
        script.main(["--quick", "--write"])
    assert "--output" in capsys.readouterr().err


def test_a_section_that_is_measured_alone_replaces_its_own(tmp_path):
    from benchmarks.common.speed import Size, Speed

    def section(title):
        return lambda page, size: page.section(title, f"{size.rounds} rounds.")

    sections = {name: section(name) for name in ("passes", "memory", "methods")}
    speed = Speed("About.", "some", "Speed", "some.md", sections, Size(2), Size(1, quick=True))
    page = tmp_path / "page.md"
    texts = []
    for names in (["passes", "memory"], ["memory", "methods", "--rounds", "3"]):
        speed.main([*names, "--write", "--output", str(page)])
        texts.append(page.read_text(encoding="utf-8"))
    old, new = (re.split(r"^(?=## )", text, flags=re.MULTILINE) for text in texts)
    assert new[:2] == old[:2]
    assert "2 rounds." in old[1] and "Measured apart" not in texts[0] + new[1]
    for part in new[2:]:
        assert "3 rounds.\n\nMeasured apart from the other sections." in part
        assert "Written by" not in part


def test_sections_that_name_a_commit_stay_when_all_others_are_measured_again():
    from benchmarks.common.report import retired

    page = ["# Page", "", "## New", "", "1", "", "## Old", "", "As of commit", "as of commit `a`."]
    assert retired(page) == [*page[6:], ""]
    assert retired(page[:6]) == []


def _timed(model, method):
    """The fits of a model that are timed with a method, on small data."""
    speed = import_module(f"benchmarks.{model}.speed")
    size = speed.QUICK
    if model == "gaussian_mixture":
        return speed.our_fit(speed.blobs(100, 3), 3, method)
    if model == "mixture":
        return speed.our_fit(size.cases[0], speed.draw(size.cases[0], 100), method)
    if model == "matrix_factorization":
        return speed.our_fit(speed.draw(size.shape), 2, method)
    if model == "factorial_mixture":
        return speed.our_fit(size.methods, method)
    if model == "gamma_process_nmf":
        return speed.our_fit(speed.counts(speed.DENSE, size), 3, method)
    if model == "spike_slab_factor_analysis":
        return speed.our_fit(speed.rows(size.methods), 4, method)
    return speed.our_fit(size.methods, 2, method)


@pytest.mark.parametrize("model", [m for m in SECTIONS if m not in OTHER_PASSES])
def test_fits_that_are_timed_make_the_passes_asked_for(model):
    speed = import_module(f"benchmarks.{model}.speed")
    methods = {"sigmoid_belief_net": ("none", "deterministic", "svi_plus", "proximity")}
    for method in methods.get(model, getattr(speed, "METHODS", ANNEALING)):
        fitted = _timed(model, method)(4)
        assert getattr(fitted, "n_passes_", fitted.n_iter_) == 4


def test_the_time_of_a_pass_leaves_out_what_a_fit_does_once():
    from benchmarks.common.speed import Size, pass_times

    now = [0.0]

    def fit(n):
        now[0] += 100.0 + 3.0 * n

    def clock(run):
        before = now[0]
        run()
        return now[0] - before

    fits, others = {"a": fit, "b": fit}, {"c": lambda: fit(1)}
    found = pass_times(fits, others, Size(4, (2, 12)), clock, passes={"b": (1, 3)})
    for name, seconds in (("a", 3.0), ("b", 3.0), ("c", 103.0)):
        np.testing.assert_allclose(found[name], np.full(4, seconds))


# Without the libraries that ours are compared with

# Names in a script → sections, and what the page and the message to the user say.
LEFT_OUT = {
    "mixture": ({"stepmix": "StepMix"}, ["passes"], ["stepmix left out", "four categories"]),
    "hidden_markov": (
        {"hmmlearn": "vhmm"},
        ["symbols", "vectors"],
        ["hmmlearn left out", "Left out: hmmlearn is not installed."],
    ),
    "matrix_factorization": (
        {"cmfrec": "CMF", "implicit": "AlternatingLeastSquares"},
        ["passes"],
        ["cmfrec left out, implicit left out", "cmfrec is not installed"],
    ),
}


@pytest.mark.parametrize("model", LEFT_OUT)
def test_without_peers_ours_is_still_measured(model, no_data, quick_speed, monkeypatch, capsys):
    peers, sections, said = LEFT_OUT[model]
    speed = import_module(f"benchmarks.{model}.speed")
    for name in peers.values():
        monkeypatch.setattr(speed, name, None)
    monkeypatch.setattr(speed, "main", replace(speed.SPEED, peers=dict.fromkeys(peers)).main)
    text = quick_speed(model, *sections)
    for part in said:
        assert part in text
    assert not re.search(r"\bnan\b", text)
    errors = capsys.readouterr().err
    assert all(f"pip install {name}" in errors for name in peers)


# Mixtures of binary columns and categories


def test_drawn_surveys_have_as_many_distinct_rows_as_they_say():
    from benchmarks.mixture import speed

    (case,) = [case for case in speed.FULL.cases if case.n_distinct]
    X = speed.draw(case, 2000)
    assert len(np.unique(X, axis=0)) == case.n_distinct
    (case,) = [case for case in speed.FULL.cases if case.missing]
    assert np.isnan(speed.draw(case, 2000)).mean() == pytest.approx(case.missing, abs=0.01)


# Hidden Markov models


@pytest.mark.parametrize("kind", ["symbols", "vectors", "windows"])
def test_passes_over_sequences_that_are_compared_agree(kind):
    pytest.importorskip("hmmlearn")
    from benchmarks.hidden_markov import speed

    data = getattr(speed, kind)(speed.QUICK)
    ours = speed.Ours.trained(data, 3, 1)
    for implementation in ("log", "scaling"):
        peer = speed.Peer(data, 3, ours.attributes, implementation)
        for _ in range(3):
            ours()
            peer()
        assert ours.bounds[-1] > ours.bounds[-3]
        np.testing.assert_allclose(ours.bounds[-3:], peer.bounds, rtol=1e-8)


def test_passes_over_sequences_are_those_of_a_fit():
    from benchmarks.hidden_markov import speed

    data = speed.vectors(speed.QUICK)
    bounds = speed.Ours.trained(data, 3, 4).bounds
    fitted = speed.estimator(data, 3, max_iter=3).fit(data.X, lengths=data.lengths)
    np.testing.assert_allclose(fitted.lower_bounds_, bounds[1:], rtol=1e-12)


def test_windows_hold_consecutive_frames_of_one_sequence():
    from benchmarks.hidden_markov import speed

    frames, windows = speed.vectors(speed.QUICK), speed.windows(speed.QUICK)
    assert (frames.lengths % 4 > 0).any()
    assert windows.X.shape == (windows.lengths.sum(), 12)
    np.testing.assert_array_equal(windows.lengths, frames.lengths // 4)
    second = frames.X[frames.lengths[0] :]
    np.testing.assert_array_equal(windows.X[windows.lengths[0]], second[:4].ravel())


# Ratings


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


@pytest.mark.parametrize("peer", ["cmfrec", "implicit"])
def test_peers_of_ratings_make_the_sweeps_asked_for(peer):
    pytest.importorskip(peer)
    from benchmarks.matrix_factorization import speed

    X = speed.draw(speed.QUICK.shape).astype(np.float32)
    first, last = (speed.PEERS[peer](X, 2)(n) for n in (1, 3))
    factors = {"cmfrec": "B_", "implicit": "item_factors"}[peer]
    assert getattr(last, factors).dtype == np.float32
    assert len(getattr(last, factors)) == X.shape[1]
    assert not np.allclose(getattr(first, factors), getattr(last, factors))


# Counts


def test_passes_that_go_on_raise_the_bound():
    from benchmarks.gamma_process_nmf import speed

    passes = speed.Passes(speed.counts(speed.DENSE, speed.QUICK), 4)
    bounds = [(passes(), passes.bound)[1] for _ in range(5)]
    assert (np.diff(bounds) > -1e-9 * abs(bounds[0])).all()
    assert bounds[-1] > bounds[0]


def test_iterations_are_those_of_scikit_learn():
    from sklearn.decomposition import NMF

    from benchmarks.gamma_process_nmf import speed

    X = speed.counts(speed.DENSE, speed.QUICK)
    iterations = speed.Iterations(X, 4)
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


# Sigmoid belief nets


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


# Topics


def test_local_steps_that_are_compared_agree():
    from benchmarks.latent_dirichlet import speed

    X = speed.corpus("drawn").astype(np.float64)
    topics = speed.topics_of("drawn", 4, "trained")
    gamma, statistics = speed.peer_step(X, topics, 300)()
    ours = speed.our_step(X, topics, 300)()
    assert_allclose(ours.local, gamma, rtol=1e-5)
    found = ours.statistics["topic_word"][:4]
    assert_allclose(found, statistics, rtol=1e-5, atol=1e-6)
