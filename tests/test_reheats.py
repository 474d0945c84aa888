"""Reheats and the race of restarts: what they keep, what they cost, and when they end."""

from __future__ import annotations

import re

import numpy as np
import pytest
from harness import (
    assert_identical,
    context_of,
    crossed,
    make_threads_worthwhile,
    models,
    open_run,
    quick,
    units_of,
    variants,
)
from joblib import parallel_config
from sklearn.exceptions import ConvergenceWarning
from test_callbacks import Recorder

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.inference import engine, restarts
from sklearn_anneal.inference.parallel import SEQUENTIAL

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.usefixtures("few_passes_of_searches"),
]
WITH_FINISH = [name for name in ANNEALING if name not in ("none", "structured")]


def rows(n=200, d=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 1.5 * rng.normal(size=(5, d))[rng.integers(5, size=n)]


def mixture(**params):
    settings = {"n_components": 6, "annealing": quick("svi_plus", 3), "random_state": 0}
    return AnnealedBayesianGaussianMixture(**settings | {"n_jobs": 1} | params)


def first_variants():
    return [pair for pair in variants() if pair.values[1] is pair.values[0].first]


def assert_own_bound(est, X):
    """Check that the bound is that of the fitted parameters."""
    ctx = context_of(est)
    units = units_of(est, X).centered(ctx.summary)
    bound = engine.lower_bound(ctx, units, SEQUENTIAL)
    assert est.lower_bound_ == pytest.approx(bound, rel=1e-6)
    assert est.lower_bounds_[-1] == est.lower_bound_
    assert len(est.lower_bounds_) == len(est.temperatures_) == est.n_iter_


# Reheats


@pytest.mark.parametrize(("entry", "params", "name"), crossed(first_variants(), WITH_FINISH))
def test_a_fit_keeps_the_best_of_its_first_optimum_and_its_reheats(entry, params, name, rng):
    X = entry.data(rng, 60)
    settings = {**params, "annealing": quick(name), "max_iter": 8, "n_jobs": 1}
    first = entry.make(**settings, n_reheats=0).fit(X)
    reheated = entry.make(**settings, n_reheats=3).fit(X)
    reached = reheated.reheat_lower_bounds_
    assert reached.shape == (3,)
    assert first.reheat_lower_bounds_.shape == (0,)
    assert reheated.lower_bound_ == max(first.lower_bound_, *reached)
    np.testing.assert_array_equal(
        reheated.restart_lower_bounds_, first.restart_lower_bounds_, strict=True
    )
    np.testing.assert_array_equal(
        reheated.lower_bounds_[: first.n_iter_ - 1], first.lower_bounds_[:-1]
    )
    assert reheated.annealing_.get_params() == first.annealing_.get_params()
    assert first.n_passes_ == first.n_iter_
    assert reheated.n_passes_ >= max(reheated.n_iter_, first.n_iter_ + 3 * 2)


@pytest.mark.parametrize("entry", models())
def test_the_bound_of_a_reheated_fit_is_that_of_its_parameters(entry, rng):
    X = entry.data(rng, 60)
    est = entry.make(**entry.first, annealing=quick("svi_plus"), max_iter=200, n_reheats=4).fit(X)
    assert_own_bound(est, X)


def easy_rows():
    """Three clusters that no start misses."""
    return np.repeat(50 * np.eye(3), 40, axis=0) + np.random.default_rng(0).normal(size=(120, 3))


def test_a_rejected_reheat_leaves_the_fit_as_it_was():
    params = {"n_components": 3, "tol": 0, "max_iter": 100}
    first = mixture(**params).fit(easy_rows())
    est = mixture(**params, n_reheats=3).fit(easy_rows())
    assert (est.reheat_lower_bounds_ <= first.lower_bound_).all()
    for name in ("means_", "covariances_", "weights_", "lower_bounds_", "temperatures_"):
        np.testing.assert_array_equal(getattr(est, name), getattr(first, name))


def test_auto_ends_after_three_reheats_in_vain_or_at_the_limit(monkeypatch):
    monkeypatch.setattr(AnnealedBayesianGaussianMixture, "_most_reheats", {"reheating": 8})
    est = mixture(n_components=3, annealing="reheating").fit(easy_rows())
    assert len(est.reheat_lower_bounds_) == 3
    est = mixture(n_components=12, annealing="reheating").fit(rows(400, 12))
    assert 3 < len(est.reheat_lower_bounds_) <= 8


def test_a_fit_without_an_annealed_phase_is_reheated_and_says_so(capsys):
    """The automatic initial temperature is 1 where the start leaves assignments in doubt."""
    est = mixture(annealing="deterministic", verbose=1).fit(rows())
    assert est.annealing_.initial_temperature == 1
    assert len(est.reheat_lower_bounds_) == 2
    assert "\nthe initial temperature is 1: there is no" in capsys.readouterr().out
    est = mixture(annealing="deterministic", verbose=1, n_components=3).fit(easy_rows())
    assert est.annealing_.initial_temperature > 1
    assert len(est.reheat_lower_bounds_) == 0
    assert "\nannealing begins at temperature" in capsys.readouterr().out


def test_auto_is_the_number_that_suits_model_and_method():
    assert len(mixture(annealing="reheating").fit(rows()).reheat_lower_bounds_) == 2
    assert len(mixture(annealing="svi_plus").fit(rows()).reheat_lower_bounds_) == 0
    assert (
        len(
            mixture(batch_size=200)
            .set_params(annealing="reheating")
            .fit(rows())
            .reheat_lower_bounds_
        )
        == 2
    )


@pytest.mark.parametrize("name", ["none", "structured"])
def test_methods_without_a_finish_have_no_reheats(name):
    assert len(mixture(annealing=name, n_reheats="auto").fit(rows()).reheat_lower_bounds_) == 0
    with pytest.raises(ValueError, match=r"n_reheats=2 cannot be combined with annealing="):
        mixture(annealing=name, n_reheats=2).fit(rows())


def test_minibatches_are_reheated_only_if_asked():
    params = {"batch_size": 50, "max_iter": 10, "annealing": "reheating"}
    assert len(mixture(**params).fit(rows()).reheat_lower_bounds_) == 0
    est = mixture(**params, n_reheats=2).fit(rows())
    assert len(est.reheat_lower_bounds_) == 2
    assert_own_bound(est, rows())


def test_streams_and_warm_starts_have_no_reheats():
    est = mixture(n_reheats=2).partial_fit(rows())
    assert est.reheat_lower_bounds_.shape == (0,)
    est = mixture(n_reheats=2, warm_start=True).fit(rows())
    n_passes, n_iter = est.n_passes_, est.n_iter_
    est.fit(rows())
    assert est.reheat_lower_bounds_.shape == (0,)
    assert est.n_passes_ - n_passes == est.n_iter_ - n_iter > 0


def test_reheating_starts_as_plain_inference():
    plain = mixture(annealing="none").fit(rows())
    unheated = mixture(annealing="reheating", n_reheats=0).fit(rows())
    np.testing.assert_array_equal(unheated.lower_bounds_, plain.lower_bounds_)
    assert mixture(annealing="reheating", n_reheats=4).fit(rows()).lower_bound_ > plain.lower_bound_


# The race


def test_the_winner_of_a_race_is_the_full_restart_of_the_same_start():
    X = rows()
    params = {"annealing": "none", "init_params": "random", "n_init": 8}
    full = mixture(**params).fit(X)
    race = mixture(**params, restarts="race").fit(X)
    best = race.best_restart_
    assert race.lower_bound_ == full.restart_lower_bounds_[best]
    assert race.n_passes_ < full.n_passes_
    assert race.restart_lower_bounds_.shape == (8,)
    assert (race.restart_lower_bounds_ <= full.restart_lower_bounds_).all()
    assert race.restart_lower_bounds_[best] == race.lower_bound_
    assert_own_bound(race, X)


def test_a_race_of_one_is_a_fit():
    assert_identical(mixture(restarts="race").fit(rows()), mixture().fit(rows()))


@pytest.mark.parametrize(("entry", "params", "name"), crossed(first_variants()))
def test_races_of_every_method(entry, params, name, rng):
    X = entry.data(rng, 60)
    settings = {**params, "annealing": quick(name), "max_iter": 8, "n_jobs": 1, "n_init": 5}
    settings |= {"n_reheats": 0}
    full = entry.make(**settings).fit(X)
    race = entry.make(**settings, restarts="race")
    if not settings["annealing"].finish:
        with pytest.raises(ValueError, match="restarts='race' cannot be combined with annealing="):
            race.fit(X)
        return
    race.fit(X)
    assert race.lower_bound_ == full.restart_lower_bounds_[race.best_restart_]
    assert race.lower_bound_ <= full.lower_bound_
    assert race.n_passes_ <= full.n_passes_


@pytest.mark.parametrize("how", ["batch", "minibatches"])
@pytest.mark.parametrize(("entry", "params", "name"), crossed(first_variants(), WITH_FINISH))
def test_a_restart_that_is_further_on_keeps_the_standing_of_a_round(entry, params, name, how, rng):
    """As one from a checkpoint is, when a race that was interrupted begins again."""
    settings = {**params, "annealing": quick(name, 2), "max_iter": 8, "tol": 0.0}
    if how == "minibatches":
        settings |= entry.in_batches(13)
    est = entry.make(**settings)
    ctx, method, units = open_run(est, entry.data(rng, 40))
    progress, standings = engine.Progress(ctx, method), {}
    n_annealed = method.schedule_length()
    for n_passes in (2, 4, 6):
        until = n_annealed + n_passes
        engine.fit(progress, units, est._settings(units), SEQUENTIAL, until=until)
        assert progress.passes == until
        standings[n_passes] = restarts._standing(progress, n_passes)
    assert len(set(standings.values())) == 3
    engine.fit(progress, units, est._settings(units), SEQUENTIAL)
    for n_passes, standing in standings.items():
        assert restarts._standing(progress, n_passes) == standing


# Workers, callbacks and messages


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_workers_do_not_change_the_result(backend, monkeypatch):
    make_threads_worthwhile(monkeypatch)
    params = {"n_init": 4, "restarts": "race", "n_reheats": 2, "init_params": "random"}
    alone = mixture(**params).fit(rows())
    with parallel_config(backend=backend):
        shared = mixture(**params, n_jobs=2).fit(rows())
    assert_identical(shared, alone)


def test_callbacks_see_reheats_and_each_restart_once():
    recorder = Recorder()
    params = {"n_init": 4, "restarts": "race", "n_reheats": 2}
    est = mixture(**params).set_callbacks(recorder).fit(rows())
    assert recorder.begun("restart") == recorder.ended("restart") == 4
    assert recorder.begun("reheat") == recorder.ended("reheat") == 2
    assert recorder.ended("pass") == recorder.begun("pass")
    # The bound of the last update of a paused restart is not known before its next pass.
    assert recorder.ended("pass") == est.n_passes_ - 3
    assert {call[2] for call in recorder.calls if call[1] == "reheat"} == {4, 5}
    assert_identical(est, mixture(**params).fit(rows()))


@pytest.mark.parametrize("phase", ["restart", "reheat"])
def test_a_callback_that_stops_ends_the_search(phase):
    stopper = Recorder(stop_at=(phase, 1))
    params = {"n_init": 3, "n_reheats": 5}
    est = mixture(**params).set_callbacks(stopper).fit(rows())
    assert stopper.begun("reheat") == (1 if phase == "reheat" else 0)
    assert len(est.reheat_lower_bounds_) == stopper.begun("reheat")


def test_a_callback_that_stops_in_a_reheat_keeps_the_best():
    first = mixture().fit(rows())
    stopper = Recorder(stop_at=("pass", first.n_iter_ + 2))
    est = mixture(n_reheats=5).set_callbacks(stopper).fit(rows())
    assert len(est.reheat_lower_bounds_) == 1
    assert est.lower_bound_ >= first.lower_bound_


def test_a_callback_that_stops_a_race_keeps_what_had_been_reached():
    stopper = Recorder(stop_at=("pass", 7))
    est = mixture(n_init=3, restarts="race", n_reheats=2).set_callbacks(stopper).fit(rows())
    assert stopper.ended("pass") == 7
    assert stopper.begun("restart") == stopper.ended("restart") == 2
    assert np.isfinite(est.restart_lower_bounds_).tolist() == [True, True, False]
    assert_own_bound(est, rows())


def test_verbose_tells_of_the_rounds_of_a_race(capsys):
    mixture(n_init=8, restarts="race", verbose=1, verbose_interval=100).fit(rows())
    found = re.findall(
        r"race: pass (\d+) after the schedule for restarts (.*)", capsys.readouterr().out
    )
    assert [int(n) for n, _ in found] == [2, 4, 8]
    assert [len(names.split(", ")) for _, names in found] == [8, 4, 2]


def test_a_search_that_ends_early_warns_as_a_fit_does():
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        mixture(max_iter=2, tol=0, n_reheats=1).fit(rows())
