"""Momentum of plain passes: bounds never fall, failures leave no trace, optima stay the same."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from harness import open_run
from sklearn.datasets import load_iris

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedHMM,
)
from sklearn_anneal.families import Dirichlet, NormalWishart
from sklearn_anneal.inference import loop, progress, visits
from sklearn_anneal.inference.loop import PLAIN as PLAIN_METHOD
from sklearn_anneal.inference.stopping import History, RiseOfBound
from sklearn_anneal.parallel.workers import SEQUENTIAL


def overlapping(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((120, 2)) + rng.choice([-1.2, 0.0, 1.2], (120, 1))


PLAIN = {"annealing": "none", "effort": 0, "random_state": 0}
LETTERS = np.random.default_rng(0).integers(0, 3, (150, 4))
MADE = {
    "gaussian mixture": (AnnealedBayesianGaussianMixture, {}, overlapping()),
    "tied covariances": (
        AnnealedBayesianGaussianMixture,
        {"covariance_type": "tied"},
        overlapping(),
    ),
    "categories": (AnnealedBayesianMixture, {"emission": "categorical"}, LETTERS),
    "columns": (AnnealedBayesianMixture, {"emission": "gaussian"}, overlapping()),
    "chain": (AnnealedHMM, {}, overlapping()),
    "durations": (AnnealedHMM, {"duration": 2}, overlapping()),
}


def begun(name: str, **params):
    """The progress of a fit before its first pass, its data, and how the loop runs."""
    cls, own, X = MADE[name]
    X = [X] if cls is AnnealedHMM else X
    est = cls(3, **PLAIN | own | params)
    ctx, method, units = open_run(est, X)
    return loop.Progress(ctx, method), units, est._settings(units)._replace(momentum=True)


def ran(begun, until=None, save=None):
    fit, units, settings = begun
    return loop.fit(fit, units, settings, SEQUENTIAL, save=save, until=until)


def without_momentum(begun):
    fit, *_ = begun
    fit.ctx.model = copy.copy(fit.ctx.model)
    fit.ctx.model.accelerates = False
    return begun


@pytest.mark.parametrize("name", MADE)
def test_the_bound_never_falls_and_plain_passes_find_nothing_more(name):
    tol = 1e-5
    fit = begun(name, tol=tol, max_iter=1500)
    _, units, settings = fit
    fast = ran(fit)
    assert fast.trace.converged
    bounds = np.array([fast.trace.initial, *fast.trace.lower_bounds])
    assert (np.diff(bounds) >= -1e-10 * np.abs(bounds[1:])).all()
    assert fast.passes < ran(without_momentum(begun(name, tol=tol, max_iter=1500))).passes
    # Where plain steps converge, each of them rises by less than the one before.
    n, after = 20, loop.Progress(copy.copy(fast.ctx), PLAIN_METHOD)
    after.ctx.exploring = False
    more = settings._replace(stop=RiseOfBound(0.0), max_iter=n)
    rest = ran(without_momentum((after, units, more)))
    assert rest.trace.final - fast.trace.final < n * tol * units.n_observations


@pytest.mark.parametrize("name", ["gaussian mixture", "categories", "chain"])
def test_an_update_that_is_undone_leaves_the_plain_one_bit_for_bit(name):
    fit = begun(name, tol=0.0, max_iter=50)
    ran(fit, until=6)
    while True:
        plain = copy.deepcopy(fit[0])
        ran(fit, until=fit[0].passes + 1)
        if fit[0].momentum.plain is not None:
            break
    # The same pass, in which momentum waits.
    plain.momentum.remaining = 1
    ran((plain, *fit[1:]), until=plain.passes + 1)
    ctx = fit[0].ctx
    assert any((ctx.q[key] != value).any() for key, value in plain.ctx.q.items())
    fit[0].momentum.undo(ctx)
    for key, value in plain.ctx.q.items():
        np.testing.assert_array_equal(ctx.q[key], value)
        np.testing.assert_array_equal(ctx.prior[key], plain.ctx.prior[key])


def test_steps_that_are_far_too_long_are_undone(monkeypatch):
    """Even then, the bound does not fall, and a fit ends where plain inference has converged."""
    monkeypatch.setattr(progress, "_LARGEST_SHARE", 40.0)
    monkeypatch.setattr(progress, "_DELAY", -0.99)
    undone, undo = [], progress.Momentum.undo
    monkeypatch.setattr(
        progress.Momentum, "undo", lambda self, ctx: (undone.append(1), undo(self, ctx))
    )
    fit = ran(begun("gaussian mixture", tol=1e-6, max_iter=1000))
    bounds = np.array([fit.trace.initial, *fit.trace.lower_bounds])
    assert len(undone) > 3
    assert (np.diff(bounds) >= -1e-10 * np.abs(bounds[1:])).all()
    assert fit.trace.converged
    assert fit.momentum == progress.Momentum()


@pytest.mark.parametrize("name", ["gaussian mixture", "chain"])
def test_a_longer_step_from_which_no_priors_can_be_learned_is_undone(name, monkeypatch):
    """A fit in which that is the case for all of them is one without momentum, bit for bit."""
    plain = ran(without_momentum(begun(name, tol=1e-4)))
    fit = begun(name, tol=1e-4)
    failed, learned = [], type(fit[0].ctx.model).learned

    def learned_from_plain_updates(self, q, *args):
        if q is not fit[0].momentum.target:
            failed.append(q)
            raise np.linalg.LinAlgError
        return learned(self, q, *args)

    monkeypatch.setattr(type(fit[0].ctx.model), "learned", learned_from_plain_updates)
    found = ran(fit)
    assert len(failed) > 3
    assert found.trace == plain.trace
    for key, value in plain.ctx.q.items():
        np.testing.assert_array_equal(found.ctx.q[key], value)


def test_visits_after_updates_that_are_undone_count_as_passes(monkeypatch):
    """The last visits of the first fit and of each move only evaluate the bound."""
    counted, undone, undo = [], [], progress.Momentum.undo

    def visit(*args, **kwargs):
        counted.append(args)
        return visits.visit(*args, **kwargs)

    monkeypatch.setattr(loop, "visits", SimpleNamespace(visit=visit))
    monkeypatch.setattr(
        progress.Momentum, "undo", lambda self, ctx: (undone.append(1), undo(self, ctx))
    )
    est = AnnealedBayesianGaussianMixture(6, max_iter=500, random_state=0).fit(load_iris().data)
    moves = est.search_results_["n_passes"]
    assert est.n_passes_ == len(counted) - 1 - len(moves)
    first = est.n_passes_ - moves.sum() - len(undone)
    assert len(undone) > 0
    assert (
        first
        == AnnealedBayesianGaussianMixture(6, max_iter=500, effort=0, random_state=0)
        .fit(load_iris().data)
        .n_passes_
    )


def test_a_pass_goes_on_from_a_pickle():
    straight, saved = begun("gaussian mixture", max_iter=12), []
    ran(straight, save=lambda fit: saved.append(pickle.dumps(fit)))
    *_, units, settings = straight
    for state in saved[:-1]:
        again = loop.fit(pickle.loads(state), units, settings, SEQUENTIAL)
        assert again.trace.lower_bounds == straight[0].trace.lower_bounds


def test_a_small_rise_of_a_longer_step_does_not_end_a_fit():
    history = History([0.0, 1e-9], -np.inf, 0, 10.0, False)
    assert RiseOfBound(1e-3).settled(history)
    assert not RiseOfBound(1e-3).settled(history._replace(further=True))


def test_the_last_update_is_plain():
    for max_iter in range(5, 12):
        last = []
        fit = begun("gaussian mixture", tol=0.0, max_iter=max_iter)
        ran(fit, save=lambda fit, last=last: last.append(fit.momentum.plain))
        assert last[-2] is None


def test_sums_keep_half_of_what_they_add_to_the_prior():
    q, prior = {"concentration": np.array([3.0, 1.5])}, {"concentration": np.ones(2)}
    moved = Dirichlet().extended(q, {"concentration": np.array([-5.0, 2.0])}, prior)
    np.testing.assert_array_equal(moved["concentration"], [2.0, 3.5])


def test_rows_that_would_leave_their_domain_stay():
    family = NormalWishart("full", 2, 2)
    q = family.from_standard(
        np.zeros((2, 2)), np.ones(2) * 9, np.stack([np.eye(2)] * 2), [5.0, 5.0]
    )
    change = {key: np.zeros_like(value) for key, value in q.items()}
    change["scatter"][0] = -2.0 * np.eye(2)
    change["dof"][1] = 1.0
    prior = {key: np.zeros_like(value) for key, value in q.items()}
    moved = family.extended(q, change, prior)
    np.testing.assert_array_equal(moved["scatter"], q["scatter"])
    np.testing.assert_array_equal(moved["dof"], [5.0, 6.0])
    assert family.valid(moved).all()
