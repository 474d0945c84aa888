"""Measurements of hidden Markov models: what is compared is the same, and verdicts follow."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


def test_a_quick_run_of_the_speed_of_sequences_needs_no_file(no_data, quick_speed):
    pytest.importorskip("hmmlearn")
    text = quick_speed("hidden_markov", "symbols", "vectors", "where", "methods", "jobs")
    for part in ("over symbols", "over vectors", "Where the time", "annealing costs", "Two jobs"):
        assert part in text
    assert "A quick run" in text
    assert not re.search(r"\bnan\b", text)
    assert "Left out" not in text
    assert text.count("| yes |") == 2  # two jobs find what one finds


@pytest.mark.slow
def test_the_memory_of_sequences_is_measured(no_data, quick_speed):
    text = quick_speed("hidden_markov", "memory")
    assert "## Memory" in text
    assert not re.search(r"\bnan\b", text)


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


def test_a_page_on_sequences_is_of_the_seeds_that_all_fits_have(quick_fits):
    from benchmarks.common import reproduction
    from benchmarks.hidden_markov import fits, plan

    cells = plan.letter_cells(plan.QUICK)
    cache = reproduction.Cache(quick_fits("hidden_markov"), fits.Spec)
    assert cache.n_seeds(cells.values(), 9) == plan.QUICK.some
    del cache._found[next(iter(cells.values())).seeded(2)[1].key]
    assert cache.n_seeds(cells.values(), 9) == 1
    assert cache.n_seeds([], 9) == 0


def test_a_third_of_the_sequences_is_held_out():
    from benchmarks.hidden_markov import data

    sequences = [np.full((2 + i, 1), i) for i in range(10)]
    found = data._third_held_out(sequences, "categorical", 10)
    assert (len(found.training), len(found.held_out)) == (7, 3)
    both = np.concatenate([found.training.X, found.held_out.X])[:, 0]
    np.testing.assert_array_equal(np.bincount(both), [len(s) for s in sequences])
    for part in (found.training, found.held_out):
        assert len(np.unique(part.X)) == len(part)  # no sequence is in both, none is cut


def test_the_classifier_of_sequences_counts_what_is_right():
    from benchmarks.hidden_markov.claims import VI, accuracy

    # There are two seeds and three held-out sequences, the first of which is the first letter.
    scores = {"a": [[-1.0, -5.0, -5.0], [-1.0, -5.0, -1.0]], "b": [[-2.0, -1.0, -1.5]] * 2}
    records = {
        (name, 5, VI): {
            "scores": np.array(values),
            "sequences": np.array([2, 2]),
            "held_out_sequences": np.full(2, 1 if name == "a" else 2),
        }
        for name, values in scores.items()
    }
    np.testing.assert_allclose(accuracy(records, VI, 5), [1.0, 2 / 3])
    # Many more training sequences of the second letter outweigh a nat.
    records["b", 5, VI]["sequences"] = np.array([20, 20])
    np.testing.assert_allclose(accuracy(records, VI, 5), [2 / 3, 2 / 3])


def test_verdicts_on_sequences_follow_from_the_medians_of_the_letters():
    from benchmarks.hidden_markov.claims import BEST, STOCH, VI, _over_letters, texts, with_best

    def record(bound):
        return {"bound": np.asarray(bound), "seconds": np.array([1.0, 2.0, 3.0])}

    plain = {(f"letter {i}", 5, VI): record([i - 2.0, i, i + 9.0]) for i in range(8)}
    better = {(f"letter {i}", 5, STOCH): record([i + 4.0] * 3) for i in range(8)}
    records = with_best(plain | better, plain)
    np.testing.assert_array_equal(records["letter 3", 5, BEST]["bound"], [12.0])
    np.testing.assert_array_equal(records["letter 3", 5, BEST]["seconds"], [6.0])
    above = _over_letters("", "", records, STOCH, VI)
    below = _over_letters("", "", records, STOCH, BEST)
    assert (above.verdict, below.verdict) == ("reproduced", "not reproduced")
    assert "K = 5: +4 " in above.figures
    assert "Letters: 8 of 8." in above.figures
    assert "0 won, 1 lost of 1" in below.figures
    assert texts({}) == []


def test_settings_of_sequences_are_compared_over_data_sets_and_seeds():
    from benchmarks.hidden_markov.claims import VI
    from benchmarks.hidden_markov.reproduce import gains, not_told_apart

    better = {"good": [0.5, 0.7], "also good": [0.7, 0.4], "worse": [0.1, 0.31], VI: [0.0, 0.0]}
    records = {
        ("poisson", name, 2, label): {
            "bound": 100 * (np.arange(2.0) + gain),
            "frames": np.full(2, 100.0),
        }
        for label, gain in better.items()
        for name in ("x", "y")
    }
    records["gaussian", "x", 2, VI] = records["poisson", "x", 2, VI]
    ordered = gains(records, "poisson", "bound")
    assert list(ordered) == ["good", "also good", "worse", VI]
    np.testing.assert_allclose(ordered["good"], [0.5, 0.7, 0.5, 0.7])
    assert not_told_apart(ordered) == ["also good"]


def test_settings_are_told_apart_by_the_cache_and_accepted_by_the_estimator():
    from benchmarks.hidden_markov.fits import Spec
    from benchmarks.hidden_markov.plan import QUICK, grid, methods

    both = grid(QUICK) | methods()
    specs = [Spec("drawn 0", "categorical", 2, *method) for method in both.values()]
    assert len({spec.key for spec in specs}) == len(set(both.values()))
    for spec in specs:
        again = Spec(**json.loads(spec.key))
        assert again.key == spec.key
        annealing = again.estimator().annealing
        found = {} if annealing == "none" else annealing.get_params()
        assert found == dict(spec.settings)
