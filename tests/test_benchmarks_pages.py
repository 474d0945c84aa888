"""Pages of single scripts: their sections, what they draw, and that they compare like with like."""

from __future__ import annotations

import re
from importlib import import_module

import numpy as np
import pytest
from numba.core.extending import _Intrinsic
from scipy.sparse import csr_matrix

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


@pytest.mark.parametrize(
    "module",
    [
        "missing_cells",
        "known_classes",
        "over_dispersed_counts",
        "covariates",
        "numbers",
        "package.simd",
        "gamma_process_nmf.clicks",
        "gamma_process_nmf.held_out",
        "hidden_markov.durations",
        "peers.compare",
    ],
)
def test_a_quick_run_does_not_replace_the_page(module, capsys):
    script = import_module(f"benchmarks.{module}")
    with pytest.raises(SystemExit):
        script.main(["--quick", "--write"])
    assert "--output" in capsys.readouterr().err


# Missing cells


def test_a_quick_run_on_missing_cells_writes_every_section(no_data, tmp_path):
    from benchmarks import missing_cells

    page = tmp_path / "page.md"
    missing_cells.main(["--quick", "--write", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    for part in ("Errors of imputed cells", "Standard deviations", "Time of a pass", "A quick run"):
        assert part in text
    assert not re.search(r"\bnan\b", text)


def test_every_method_keeps_what_is_observed(rng):
    from benchmarks import missing_cells

    X = rng.normal(size=(40, 3))
    Y = missing_cells.deleted(X, 0.3, seed=1)
    missing = np.isnan(Y)
    assert 0.2 < missing.mean() < 0.4
    for impute in missing_cells.imputers(quick=True).values():
        found = impute(Y)
        np.testing.assert_array_equal(found[~missing], X[~missing])
        assert 0.3 < missing_cells.error(found, X, missing) < 2.0


# Partly labelled data


def test_a_quick_run_on_partly_labelled_data_writes_every_section(tmp_path):
    from benchmarks import known_classes

    page = tmp_path / "page.md"
    known_classes.main(["--quick", "--write", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    for part in ("## Accuracy", "Why moves are left out", "Time of a pass", "A quick run"):
        assert part in text
    assert not re.search(r"\bnan\b", text)


def test_a_share_of_labels_stays_and_one_of_each_class(rng):
    from benchmarks import known_classes

    y = rng.integers(3, size=200)
    for share, n in ((0.01, 3), (0.2, 40)):
        found = known_classes.hidden(y, share, 0)
        kept = found >= 0
        assert kept.sum() == n
        np.testing.assert_array_equal(found[kept], y[kept])
        assert set(found[kept]) == {0, 1, 2}


# Covariates


def test_a_quick_run_on_covariates_writes_every_section(tmp_path):
    from benchmarks import covariates

    page = tmp_path / "page.md"
    covariates.main(["--quick", "--write", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    for part in ("coefficients −1 and 1", "means −1, 1 and 0", "What bounds lose", "A quick run"):
        assert part in text
    assert not re.search(r"\bnan\b", text)


def test_drawn_classes_depend_on_the_covariate(rng):
    from benchmarks import covariates

    X, z, other, y = covariates.drawn(rng, 0.999, 3000)
    for table in (X, other):
        order = covariates.order_of(np.unique(table, axis=0)[[0, 4, 7]], 0.999)
        assert sorted(order) == [0, 1, 2]
    # A class with all items has the mean −1 of the outcome; that without any is common at z = 5.
    assert y[other.sum(axis=1) == 6].mean() == pytest.approx(-1.0, abs=0.15)
    none = X.sum(axis=1) == 0
    assert none[z[:, 0] == 5].mean() > 0.5 > 0.1 > none[z[:, 0] == 1].mean()


# Multiple imputation


def test_a_quick_run_on_counts_of_more_variance_writes_a_table(no_data, tmp_path):
    from benchmarks import over_dispersed_counts

    page = tmp_path / "page.md"
    over_dispersed_counts.main(["--quick", "--write", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    for part in ("A quick run", "drawn, negative binomial", "zero_inflated_poisson"):
        assert part in text
    assert not re.search(r"\bnan\b", text)


def test_a_quick_run_on_multiple_imputation_writes_a_table(tmp_path, monkeypatch):
    from benchmarks import multiple_imputation

    own = [(multiple_imputation.ours, 1.0), (multiple_imputation.iterative, 1.0)]
    monkeypatch.setattr(multiple_imputation, "imputers", lambda case: own)
    page = tmp_path / "page.md"
    multiple_imputation.main(["--quick", "--write", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    for part in ("Three groups", "complete rows only", "n_draws=20", "sample_posterior", "A quick"):
        assert part in text
    assert not re.search(r"\bnan\b", text)


def test_rubins_rules_add_what_differs_between_tables(rng):
    """A single table has the interval of least squares; several have more than their mean."""
    from benchmarks import multiple_imputation

    tables = [multiple_imputation.drawn(multiple_imputation.CASES[0], s)[0] for s in range(5)]
    each = [multiple_imputation.pooled([table]) for table in tables]
    found, wide = multiple_imputation.pooled(tables)
    np.testing.assert_allclose(found, np.mean([coefficients for coefficients, _ in each], axis=0))
    assert (wide > np.max([half for _, half in each], axis=0)).all()
    same, width = multiple_imputation.pooled([tables[0]] * 3)
    np.testing.assert_allclose(same, each[0][0])
    np.testing.assert_allclose(width, each[0][1], rtol=0.02)


# Numbers of components


def test_a_quick_run_on_numbers_of_components_writes_every_section(tmp_path, monkeypatch):
    from benchmarks import numbers

    every = numbers.cases()
    few = {name: every[name] for name in ("mixture, poisson", "chain, categorical")}
    monkeypatch.setattr(numbers, "cases", lambda: few)
    page = tmp_path / "page.md"
    numbers.main(["--quick", "--write", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    sizes = ("| iris | 150 × 4 |", "sequences of rows | 183 × 8 × 8 |", "counts | 300 × 64 |")
    for part in ("Drawn tables and chains", "Real data", *sizes, "A quick run"):
        assert part in text


def test_a_difference_counts_beyond_two_of_its_standard_errors():
    from benchmarks.numbers import Split, summary_of

    # The mean of the differences is 1 in all splits, and its standard errors are 1.15, 0.12 and 0.
    swings = [np.array([3.0, -1.0, 3.0, -1.0]), np.array([1.2, 0.8, 1.2, 0.8]), np.ones(4)]
    splits = [
        {
            "auto": Split(k, d, 1.0),
            "folds": Split(5, np.zeros(4), 4.0),
            "20 components": Split(2, 2 * d, 0.5),
        }
        for k, d in zip((3, 4, 8), swings, strict=True)
    ]
    found = "4 (3 to 8)"
    assert summary_of(splits) == {
        "folds": [found, "5 (5 to 5)", "+1.000", "+1.000 ± 0.000", "0", "2", "0.25"],
        "20 components": [found, "2 (2 to 2)", "-1.000", "-1.000 ± 0.000", "2", "0", "2"],
    }


@pytest.mark.parametrize("emission", ["gaussian", "categorical", "bernoulli", "poisson"])
def test_drawn_groups_are_apart(emission, rng):
    from benchmarks import numbers

    rows = [numbers.drawn(emission, np.full(50, k), rng) for k in range(3)]
    means = np.array([r.mean(axis=0) for r in rows])
    spread = np.mean([r.std(axis=0) for r in rows], axis=0)
    for i in range(3):
        for j in range(i):
            assert (np.abs(means[i] - means[j]) > 1.5 * spread).any()


def test_drawn_states_last_some_frames(rng):
    from benchmarks import numbers

    states = numbers.lasting(3000, 3, rng)
    assert 0.9 < np.mean(states[1:] == states[:-1]) < 0.97


# Explicit vector code


def test_every_function_of_explicit_vector_code_is_compared_with_a_loop():
    """Except those that only prefetch, or make a view."""
    from benchmarks.package import simd

    functions = {
        name
        for module in (simd.products, simd.rows, simd.chains)
        for name, value in vars(module).items()
        if isinstance(value, _Intrinsic)
    }
    others = {"fetch_rows", "fetch_entries", "beginning_as_rows"}
    names = [case.plain.__name__ for case in simd.CASES]
    assert len(set(names)) == len(names)
    assert set(names) == functions - others | {"forward", "backward"}


def test_a_quick_run_on_explicit_vector_code_writes_the_table(tmp_path, monkeypatch):
    from benchmarks.package import simd

    monkeypatch.setattr(simd, "CASES", [c for c in simd.CASES if c.plain is simd.sum_rows])
    page = tmp_path / "page.md"
    simd.main(["--quick", "--write", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    assert re.search(r"\| `sum_rows` \| .* \| \d+\.\d\d \|\n", text)
    assert "A quick run" in text


@pytest.mark.exhaustive
@pytest.mark.parametrize("k", [8, 16, 32])
def test_explicit_vector_code_and_its_loop_find_the_same(k):
    from benchmarks.package import simd

    for case in simd.CASES:
        simd.compared(case, k)


def test_a_loop_that_finds_something_else_is_not_timed(monkeypatch):
    from benchmarks.package import simd

    (case,) = (c for c in simd.CASES if c.plain is simd.sum_rows)

    def sum_rows(start, table, numbers, n, out, at):
        out[at, 0] = 0.0

    with pytest.raises(AssertionError):
        simd.compared(case._replace(plain=sum_rows), 8)


# Held-out counts


def test_a_quick_run_on_held_out_counts_writes_every_section(tmp_path):
    from benchmarks.gamma_process_nmf import held_out

    page = tmp_path / "page.md"
    held_out.main(["--quick", "--write", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    for part in ("In short", "few counts, K = 3", "many counts, K = 3", "topics", "A quick run"):
        assert part in text
    assert not re.search(r"\bnan\b", text)


def test_held_out_counts_are_scored_as_by_the_estimator():
    from benchmarks.gamma_process_nmf import held_out
    from sklearn_anneal import AnnealedGammaProcessNMF

    table = next(held_out.tables(quick=True))
    held = held_out.Held.of(table)
    fitted = AnnealedGammaProcessNMF(3, annealing="none", max_iter=5, random_state=0)
    (found,) = held_out.scores(fitted.fit(table.train), table, held)
    # The expected rates of half of each row.
    ctx, units = fitted._rows(held.given)
    activations = fitted._infer(ctx, units, exposure=0.5)
    assert held.per_token(activations, 0.5 * fitted.components_, 0.0) == pytest.approx(found)
    # The margins alone are what a smoothing of 1 leaves.
    rates = np.outer(held.totals, held.margins)
    assert held.per_token(activations, fitted.components_, 1.0) == pytest.approx(
        held.per_token(np.eye(len(rates)), rates, 0.0)
    )


# Recommendations


def test_a_quick_run_on_clicks_writes_every_section(tmp_path):
    from benchmarks.gamma_process_nmf import clicks

    page = tmp_path / "page.md"
    clicks.main(["--quick", "--write", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    for part in ("## drawn", clicks.POPULARITY, clicks.DEFAULT, clicks.SAMPLED, "A quick run"):
        assert part in text
    assert not re.search(r"\bnan\b", text)


def test_recommendations_are_scored_as_by_hand():
    from benchmarks.gamma_process_nmf import clicks

    test = csr_matrix([[1, 0, 2, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
    found = clicks.scores(np.array([[0, 1], [3, -1], [0, 1]]), test)
    # The first user finds one of two items at the first rank, the second one the only item; the
    # third has none.
    ndcg = (1.0 / (1.0 + 1.0 / np.log2(3)) + 1.0) / 2
    assert found == pytest.approx([0.75, ndcg] * 2)


def test_a_fifth_of_the_clicks_of_each_user_is_held_out(rng):
    from benchmarks.gamma_process_nmf import clicks

    X = csr_matrix(rng.poisson(0.7, (30, 40)))
    train, test = clicks.divided(X, 0)
    assert (train + test != X).nnz == 0 and train.multiply(test).nnz == 0
    np.testing.assert_array_equal(np.diff(test.indptr), np.diff(X.indptr) // 5)


# Durations


def test_a_quick_run_on_durations_writes_every_section(no_data, tmp_path):
    pytest.importorskip("hmmlearn")
    from benchmarks.hidden_markov import durations

    page = tmp_path / "page.md"
    durations.main(["--quick", "--write", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    for part in ("Drawn chains", "Real sequences", "chosen shapes", "hmmlearn", "A quick run"):
        assert part in text
    assert not re.search(r"\bnan\b", text)


def test_drawn_states_last_as_the_page_says(rng):
    from benchmarks.hidden_markov import durations

    states = durations.drawn_states((1, 12), 40_000, rng)
    at = np.flatnonzero(np.diff(states, prepend=-1))
    lengths, which = np.diff(at), states[at[:-1]]
    for k, shape in enumerate((1, 12)):
        own = lengths[which == k]
        assert own.min() >= shape
        assert own.mean() == pytest.approx(durations.MEAN_DURATION, rel=0.1)


def test_states_are_compared_in_the_order_that_fits_best(rng):
    from benchmarks.hidden_markov import durations

    true = rng.integers(3, size=500)
    share, order = durations.accuracy(np.array([2, 0, 1])[true], true)
    assert share == 1.0
    np.testing.assert_array_equal(order, [2, 0, 1])


def test_sections_that_are_not_measured_stay_as_they_are(tmp_path, monkeypatch):
    from benchmarks.hidden_markov import durations

    before, page = durations.PAGE.read_text(encoding="utf-8"), tmp_path / "page.md"
    monkeypatch.setitem(durations.SECTIONS, "Drawn chains", lambda page, quick: page.section("New"))
    durations.main(["--write", "--only", "Drawn chains", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    begin = before.index("## Real sequences")
    assert text.endswith("## New\n\n" + before[begin:])
    with pytest.raises(ValueError, match="no section 'Nothing' to keep"):
        durations.kept(durations.PAGE, "Nothing")


# Other libraries


def test_a_quick_run_against_other_libraries_names_losses_first(no_data, tmp_path, monkeypatch):
    from benchmarks.peers import compare
    from benchmarks.peers.contests import OURS, Contest, Contestant

    def contestant(score, package):
        return Contestant(lambda seed: lambda: score + 1e-4 * seed, "usual", package)

    def errors():
        return {
            OURS: contestant(1.0, "sklearn_anneal"),
            "ahead": contestant(0.8, "sklearn"),
            "behind": contestant(1.2, "sklearn"),
            "absent": contestant(0.1, "no_such_package"),
        }

    made = {"errors": Contest("Errors", "Some data.", "error", errors, sign=-1)}
    monkeypatch.setattr(compare, "quick_contests", lambda: made)
    monkeypatch.setattr(compare, "_MADE", {})
    page = tmp_path / "page.md"
    compare.main(["--quick", "--write", "--output", str(page)])
    lines = page.read_text(encoding="utf-8").splitlines()
    assert "A quick run" in lines[4]
    first = lines.index("## Where a peer is ahead")
    rows = [line for line in lines[first : lines.index("## Errors")] if line.startswith("| Err")]
    (row,) = rows
    assert row.startswith("| Errors | ahead | better") and "| 0.8000 | 1.0000 |" in row
    assert "- no-such-package: not installed" in lines
    assert not any("absent" in line for line in lines)
    # An equal score counts only with less time.
    made["errors"] = Contest("Errors", "", "error", errors, margin=0.5, sign=-1)
    found = {
        name: compare.Found(how, np.array([1.0]), np.array([seconds]))
        for (name, how), seconds in zip(errors().items(), (2.0, 1.0, 3.0, 2.0), strict=True)
    }
    assert [row[1:3] for row in compare.losses(made["errors"], found)] == [
        ["ahead", "as good, in less time"]
    ]


def test_a_contest_of_mixtures_scores_held_out_rows():
    """scikit-learn's classes and ours, with the density of the same rows."""
    from benchmarks.peers.contests import quick_contests

    contestants = quick_contests()["iris"].make()
    scores = {name: contestant.fit(0)() for name, contestant in contestants.items()}
    assert len(scores) == 5
    assert all(-4.0 < score < -1.0 for score in scores.values())


def test_shares_of_clusters_are_probabilities():
    from benchmarks.peers.libraries import density_of_clusters

    train = np.array([[0, 1], [0, 2], [1, 0], [1, -1]])
    every = np.array([[a, b] for a in range(2) for b in range(3)])
    logs = density_of_clusters(np.array([0, 0, 1, 1]), 2, train, every)
    assert np.exp(logs).sum() == pytest.approx(1.0)
    # A missing cell leaves the share of the other: clusters have (2 + 1) / 4 and (0 + 1) / 4.
    (one,) = density_of_clusters(np.array([0, 0, 1, 1]), 2, train, np.array([[0, -1]]))
    assert np.exp(one) == pytest.approx(0.5)
