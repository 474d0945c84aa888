"""Measurements of ratings: what is compared is the same, and verdicts follow."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


def test_a_quick_run_of_the_speed_of_ratings_needs_no_file(no_data, quick_speed):
    text = quick_speed("matrix_factorization", "passes", "methods", "costs", "precision", "jobs")
    for part in ("alternating least squares", "annealing costs", "Single precision", "Two jobs"):
        assert part in text
    # Annealed passes in both precisions, and whole fits.
    assert text.count("| nothing: ") == text.count("| 1.25: ") == 3
    assert "A quick run" in text
    assert not re.search(r"\bnan\b", text)
    assert text.count("| yes |") == 4  # two jobs find what one finds


@pytest.mark.slow
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


def test_fits_that_are_timed_make_the_passes_asked_for():
    from benchmarks.matrix_factorization import data, workload
    from sklearn_anneal.annealing import ANNEALING

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


def test_a_tenth_of_the_ratings_is_held_out():
    from benchmarks.matrix_factorization import data

    every = data.ratings("drawn")
    pairs = {tuple(pair) for pair in every.X}
    training, held_out = data.split("drawn", 1)
    assert len(held_out) == round(0.1 * len(every))
    assert {tuple(p) for part in (training, held_out) for p in part.X} == pairs
    smaller, validation = data.split("drawn", 1, True)
    assert len(validation) == round(0.1 * len(training))
    assert {tuple(p) for part in (smaller, validation) for p in part.X} == {
        tuple(p) for p in training.X
    }
    other = data.split("drawn", 2)[1]
    assert not np.array_equal(other.X, held_out.X)


def test_fits_of_so_many_passes_stop_there_whatever_their_schedule():
    from benchmarks.matrix_factorization import fits
    from benchmarks.matrix_factorization.plan import QUICK, methods

    for passes in (2, 6, 70):
        for label, how in methods(QUICK).items():
            record = fits.Spec("drawn", 2, *how, passes=passes).run()
            assert record["passes"] == len(record["bounds"]) == passes, label


def test_m_grows_by_fifty_ratings_in_every_pass():
    from types import SimpleNamespace

    from benchmarks.matrix_factorization.plan import papers_svi_plus
    from sklearn_anneal.annealing import SVIPlus

    n_ratings = 90_000
    method = SVIPlus(**dict(papers_svi_plus(n_ratings, 0.0)))
    for t in (1, 2, 10, 500):
        ctx = SimpleNamespace(state={"passes": float(t - 1)})
        assert method.effective_size(ctx, n_ratings) == pytest.approx(50 * t)


def test_passes_that_are_needed_are_counted_to_the_median_of_vi():
    from benchmarks.matrix_factorization.claims import PAPER, VI, _sooner, bound_after, needed

    plain = np.array([[-9.0, -5.0, -4.0], [-9.0, -5.0, -3.0], [-9.0, -6.0, -2.0]])
    fast = np.array([[-9.0, -3.0, -1.0], [-2.5, -2.0, -1.0], [-9.0, -8.0, -7.0]])
    records = {(PAPER, 5, VI): {"bounds": plain}, (PAPER, 5, "fast"): {"bounds": fast}}
    np.testing.assert_array_equal(bound_after(records[PAPER, 5, VI], 2), [-5, -5, -6])
    np.testing.assert_array_equal(bound_after(records[PAPER, 5, VI], 99), [-4, -3, -2])
    np.testing.assert_array_equal(needed(records, PAPER, 5, "fast"), [2, 1, np.inf])
    np.testing.assert_array_equal(needed(records, PAPER, 5, VI), [np.inf, 3, 3])
    np.testing.assert_array_equal(needed(records, PAPER, 5, "fast", slack=5.5), [2, 1, 2])
    assert "d = 5: +2 " in _sooner("", records, "fast", (PAPER,)).figures


def test_libraries_are_compared_at_the_settings_of_the_least_error(tmp_path):
    from benchmarks.common import reproduction
    from benchmarks.matrix_factorization import fits
    from benchmarks.matrix_factorization.plan import QUICK, tuned_cells, tuning_cells

    cells = tuning_cells(QUICK)
    cache = reproduction.Cache(tmp_path / "x.jsonl", fits.Spec)
    assert tuned_cells(QUICK, cache) == {}
    own = [spec for (library, _), spec in cells.items() if library == "ours"]
    cache.add(own[0], {"rmse": 0.9, "seconds": 1.0})
    assert tuned_cells(QUICK, cache) == {}  # not all were tried
    cache.add(own[1], {"rmse": 0.8, "seconds": 1.0})
    best = tuned_cells(QUICK, cache)
    assert set(best) == {"ours", "ours, VI", "ours, defaults"}
    assert best["ours"].model == own[1].model
    assert best["ours"].own_split
    assert not best["ours"].validation
    assert best["ours, VI"].method == "none"
    first, second = best["ours"].seeded(2)
    assert not np.array_equal(first.split()[1].X, second.split()[1].X)


@pytest.mark.parametrize("library", ["cmfrec", "surprise"])
def test_other_libraries_predict_better_than_the_mean(library):
    pytest.importorskip(library)
    from benchmarks.matrix_factorization import data, fits

    settings = {
        "cmfrec": {"ridge": 8.0, "bias_ridge": 2.0, "n_iterations": 5},
        "surprise": {"n_epochs": 30, "lr_all": 0.01, "reg_all": 0.05},
    }[library]
    spec = fits.Spec(data.WEAK, 6, library, fits.settings_of(**settings))
    training, held_out = spec.split()
    assert spec.run()["rmse"] < np.std(held_out.y - training.y.mean())
