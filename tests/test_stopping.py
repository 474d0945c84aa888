"""When fits end by themselves: the rule alone, and fits that it must end."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from harness import alternating, models, one_of_each_class, quick, units_of
from sklearn.exceptions import ConvergenceWarning

from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedBayesianMixture
from sklearn_anneal.inference.stopping import (
    FewCountAsMany,
    History,
    OutOfReach,
    RiseOfBound,
    RiseOfEstimates,
)


def history(bounds, *, n_annealed=0, n_observations=10.0, minibatches=True, initial=-np.inf):
    return History(list(bounds), initial, n_annealed, n_observations, minibatches)


def test_minibatches_compare_the_best_of_ten_passes_with_the_best_of_ten_before():
    rule = RiseOfBound(0.1)
    before = [0.0] * 9 + [5.0]
    # A rise of tol per observation is 1 here.
    assert rule.settled(history(before + [5.9] + [0.0] * 9))
    assert rule.settled(history(before + [0.0] * 9 + [5.9]))
    assert rule.settled(history(before + [-3.0] * 10))
    assert rule.settled(history(before[::-1] + [0.0] * 9 + [5.9]))
    assert not rule.settled(history(before + [6.1] + [0.0] * 9))
    assert not rule.settled(history(before + [0.0] * 9 + [6.1]))
    # What was before the twenty passes does not count.
    assert not rule.settled(history([100.0, *before, *[0.0] * 9, 6.1]))
    assert not rule.settled(history([100.0] + [0.0] * 10 + [1.1] * 10))
    assert not rule.settled(history([0.0] * 10 + [1.0] * 10))


def test_minibatches_need_twenty_passes_after_the_schedule():
    rule = RiseOfBound(0.1)
    assert not rule.settled(history([1.0] * 19))
    assert rule.settled(history([1.0] * 20))
    assert not rule.settled(history([1.0] * 24, n_annealed=5))
    assert rule.settled(history([1.0] * 25, n_annealed=5))


def test_a_factor_makes_larger_rises_small():
    rule, bounds = RiseOfBound(0.1), history([0.0, 3.0], minibatches=False)
    assert not rule.settled(bounds)
    assert rule.settled(bounds._replace(factor=4.0))
    assert not rule.settled(bounds._replace(factor=2.0))


@pytest.mark.parametrize("minibatches", [False, True])
def test_estimates_compare_means_of_twenty_passes(minibatches, rng):
    """Noise neither ends a fit that rises nor keeps one going that does not."""
    rule = RiseOfEstimates(1e-6)
    rising = np.arange(200.0) + 5.0 * rng.normal(size=200)
    flat = 5.0 * rng.normal(size=200)
    ends = {
        name: [rule.settled(history(bounds[:n], minibatches=minibatches)) for n in range(200)]
        for name, bounds in {"rising": rising, "flat": flat}.items()
    }
    assert not any(ends["rising"])
    assert not any(ends["flat"][:40]) and any(ends["flat"][40:100])
    assert not RiseOfEstimates(0.0).settled(history([1.0] * 40, minibatches=minibatches))
    late = history([9.0] * 30 + [1.0] * 40, n_annealed=30, minibatches=minibatches)
    assert rule.settled(late) and not rule.settled(late._replace(n_annealed=31))


def test_tolerance_of_zero_asks_for_all_passes():
    assert not RiseOfBound(0.0).settled(history([1.0] * 20))
    assert not RiseOfBound(0.0).settled(history([2.0] * 10 + [1.0] * 10))
    assert not RiseOfBound(0.0).settled(history([1.0] * 20, minibatches=False))


def test_batches_compare_the_last_two_passes():
    rule = RiseOfBound(0.1)
    assert rule.settled(history([0.0, 5.0, 5.9], minibatches=False))
    assert rule.settled(history([0.0, 5.0, 4.1], minibatches=False))
    assert not rule.settled(history([5.0, 5.0, 6.1], minibatches=False))
    assert not rule.settled(history([5.0, 5.0, 3.9], minibatches=False))
    assert not rule.settled(history([5.0, 6.0], minibatches=False))


def test_first_pass_of_a_batch_fit_is_compared_with_the_start():
    rule = RiseOfBound(0.1)
    assert rule.settled(history([5.0], minibatches=False, initial=4.5))
    assert not rule.settled(history([5.0], minibatches=False, initial=3.5))


@pytest.mark.parametrize(("target", "ends"), [(30.9, False), (31.1, True)])
def test_a_bound_that_thirty_more_rises_do_not_lift_to_the_target_ends_a_fit(target, ends):
    assert OutOfReach(RiseOfBound(1e-9), target).settled(history([0, 1], minibatches=False)) == ends


def test_a_fit_ends_where_it_is_behind_another_after_two_four_and_eight_passes():
    rule = OutOfReach(RiseOfBound(1e-9), 5.0, after=2, pace=(0.0, 1.0, 2.0, 2.5))
    for bounds, ends in (([0, 1.1], False), ([0, 0.9], True), ([0, 0.5, 0.9], False)):
        assert rule.settled(history(bounds, minibatches=False)) == ends
    # Once the other has ended, its last bound counts.
    assert rule.settled(history(np.linspace(0, 2.4, 8), minibatches=False))


def test_few_observations_can_count_as_a_hundred():
    rule, crawl = FewCountAsMany(RiseOfBound(0.1)), [0.0, 5.0, 14.0]
    assert rule.settled(history(crawl, minibatches=False))
    assert not RiseOfBound(0.1).settled(history(crawl, minibatches=False))
    assert not rule.settled(history([0.0, 5.0, 16.0], minibatches=False))
    many = history([0.0, 5.0, 25.0], n_observations=300.0, minibatches=False)
    assert rule.settled(many) == RiseOfBound(0.1).settled(many)
    assert not rule.worthwhile(9.0, 10.0)
    assert rule.worthwhile(11.0, 10.0)


@pytest.mark.parametrize(("entry", "n_annealed"), alternating(one_of_each_class(models()), (0, 5)))
def test_fit_in_minibatches_ends_by_its_rule(entry, n_annealed, rng):
    """It ends after the first pass at which the best of ten has hardly risen, and not before."""
    tol, X = 0.01, entry.data(rng, 60)
    hot = quick("deterministic", n_annealed, initial_temperature=2.0)
    annealing = hot if n_annealed else "none"
    estimator = entry.make(
        annealing=annealing, max_iter=300, tol=tol, **entry.in_batches(20), **entry.first
    ).fit(X)
    assert estimator.converged_
    n = estimator.n_iter_
    assert n_annealed + 20 <= n < n_annealed + 300
    rule = RiseOfBound(tol)
    size = units_of(estimator, X).n_observations
    bounds = list(estimator.lower_bounds_)
    for p in range(1, n):
        so_far = history(bounds[:p], n_annealed=n_annealed, n_observations=size)
        assert not rule.settled(so_far) or p < n_annealed + 20


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_fit_in_minibatches_makes_all_passes_at_tolerance_zero(entry, rng):
    estimator = entry.make(
        annealing="none", max_iter=25, tol=0.0, **entry.in_batches(20), **entry.first
    ).fit(entry.data(rng, 60))
    assert estimator.n_iter_ == 25
    assert not estimator.converged_


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_finish_of_a_schedule_is_tested_after_twenty_passes(entry, rng):
    """Just after a schedule the bound can stand still and rise again."""
    X = entry.data(rng, 60)
    settings = {"max_iter": 100, "tol": 1e6, **entry.first}
    hot = quick("deterministic", 5, initial_temperature=2.0)
    annealed = entry.make(annealing=hot, **settings).fit(X)
    plain = entry.make(annealing="none", **settings).fit(X)
    assert annealed.converged_ and plain.converged_
    assert annealed.n_iter_ >= 5 + 20
    assert plain.n_iter_ < 20


def tiny_table(**params):
    """A default fit to twelve rows without structure, whose bound rises by little for long."""
    est = AnnealedBayesianMixture(3, emission="categorical", random_state=0, **params)
    return est, np.random.default_rng(0).integers(0, 3, (12, 4))


def test_the_first_test_is_after_one_pass_or_after_twenty_at_temperature_one():
    given = {"emissionprob_prior": 1.0, "weight_concentration_prior": 1.0}
    hot = quick("deterministic", 5, initial_temperature=2.0)
    for annealing, n_passes in (("none", 1), (hot, 5 + 20)):
        est, X = tiny_table(annealing=annealing, tol=1e6, effort=0, **given)
        assert est.fit(X).n_iter_ == n_passes


def test_a_result_that_has_not_converged_goes_on():
    est, X = tiny_table(max_iter=40)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        est.fit(X)
    results = est.search_results_
    assert list(results["move"]).count("continuation") == 1
    assert results["move"][-1] == "continuation"
    assert results["kept"][-1]
    assert est.converged_
    # The fit before it used all its passes, and its history goes on.
    last = results["n_passes"][-1]
    assert est.n_iter_ == results["n_before"][-1] + last
    assert (np.diff(est.lower_bounds_[-last:]) > -1e-9).all()


@pytest.mark.parametrize("annealing", ["reheating", "svi_plus"])
def test_a_single_component_goes_on_until_its_bound_can_be_compared(annealing):
    """Else two components, of which one is empty, have a higher bound after more passes."""
    X = np.random.default_rng(0).integers(0, 3, (100, 4))
    settings = {"max_iter": 10, "annealing": annealing, "random_state": 0}
    one = AnnealedBayesianMixture(1, emission="categorical", **settings).fit(X)
    assert list(one.search_results_["move"]) == ["continuation"]
    assert one.converged_
    assert 10 < one.n_iter_


def test_a_continuation_is_limited_and_the_warning_counts_it():
    est, X = tiny_table(max_iter=4, tol=1e-15)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=4 passes at T = 1, nor in 20 more"):
        est.fit(X)
    assert not est.converged_
    # A tolerance of 0 asks for a number of passes.
    every = tiny_table(max_iter=4, tol=0.0)[0].fit(X)
    assert "continuation" not in every.search_results_["move"]


def test_plain_inference_and_fits_that_converge_have_no_continuation(rng):
    est, X = tiny_table(annealing="none", max_iter=4)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=4 passes at T = 1\. Increase"):
        est.fit(X)
    assert est.n_iter_ == 4
    blobs = np.repeat([[0.0], [9.0]], 50, axis=0) + rng.normal(size=(100, 1))
    converged = AnnealedBayesianGaussianMixture(2, random_state=0).fit(blobs)
    assert "continuation" not in converged.search_results_["move"]
