"""Tests of the schedules of annealing methods, and of the clocks that they follow."""

from __future__ import annotations

import numpy as np
import pytest
from cases_annealing import MIXTURE, mixture, run
from harness import FULL_STEPS, context_of, one_update, quick

from sklearn_anneal.annealing import ANNEALING, DeterministicAnnealing, NoAnnealing
from sklearn_anneal.annealing.schedules import END, SCHEDULES

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


# Schedules


@pytest.mark.parametrize(("start", "end"), [(7.0, 1.0), (0.9, 0.3), (2.0, 90.0), (3.0, 3.0)])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_is_monotone_between_its_exact_ends(name, start, end):
    schedule = SCHEDULES[name]
    values = np.array([schedule(start, end, u) for u in np.linspace(0, 1.5, 301)])
    assert values[0] == pytest.approx(start, rel=1e-15)
    assert (values[200:] == end).all()
    assert (np.sign(end - start) * np.diff(values) >= 0).all()
    assert values.min() >= min(start, end) and values.max() <= max(start, end)


@pytest.mark.parametrize("n", [3, 7, 10, 49])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_ends_although_fractions_do_not_add_up_to_one(name, n):
    clock = 0.0
    for _ in range(n):
        clock += 1 / n
    assert clock >= END
    assert SCHEDULES[name](5.0, 1.0, clock) == 1.0
    assert clock - 0.5 / n < END


@pytest.mark.parametrize("how", [{}, {"batch_size": 7}])
@pytest.mark.parametrize("schedule", ["geometric", "linear", "constant"])
def test_temperatures_of_a_fit(schedule, how, rng):
    method = DeterministicAnnealing(initial_temperature=4.0, schedule=schedule, n_passes=6)
    est = mixture(method, max_iter=3, tol=0.0, **how).fit(MIXTURE.data(rng, 40))
    found = est.temperatures_
    assert len(found) == 6 + 3
    assert (np.diff(found[:6]) <= 1e-12).all()
    assert (found[:6] > 1).all() and (found[6:] == 1).all()
    u = np.arange(6) / 6
    if not how:
        expected = {"geometric": 4 ** (1 - u), "linear": 4 - 3 * u, "constant": 4 + 0 * u}
        np.testing.assert_allclose(found[:6], expected[schedule], rtol=1e-12)


@pytest.mark.parametrize("name", ANNEALING)
def test_every_fit_with_a_finish_ends_at_temperature_one(name, rng):
    est = mixture(quick(name), max_iter=3, tol=0.0).fit(MIXTURE.data(rng, 40))
    assert (est.temperatures_ >= 1).all()
    if est.annealing_.finish:
        assert (est.temperatures_[-3:] == 1).all()
    assert not np.isnan(est.lower_bound_)


# Clocks


def test_stream_whose_size_is_withdrawn_has_no_schedule_any_more(rng):
    est = mixture(DeterministicAnnealing(initial_temperature=4.0), total_samples=1000, max_iter=1)
    assert est.partial_fit(MIXTURE.data(rng, 40)).temperatures_[-1] > 1
    est.set_params(total_samples=None).partial_fit(MIXTURE.data(rng, 20))
    assert est.temperatures_[-1] == 1
    est.set_params(total_samples=1000).partial_fit(MIXTURE.data(rng, 20))
    assert est.temperatures_[-1] == 1


@pytest.mark.parametrize("n_passes", [1, 7, 50])
def test_stream_with_a_size_runs_the_whole_schedule_in_its_first_tenth(n_passes, rng):
    method = DeterministicAnnealing(initial_temperature=3.0, schedule="linear", n_passes=n_passes)
    est = mixture(method, total_samples=1000, max_iter=1)
    for n in (30, 20, 40, 10, 5):
        est.partial_fit(MIXTURE.data(rng, n))
    # The temperature of a batch is that of its end.
    expected = 3 - 2 * np.array([0.3, 0.5, 0.9, 1.0, 1.0])
    np.testing.assert_allclose(est.temperatures_, expected, rtol=1e-12)
    assert (est.temperatures_[3:] == 1).all()


def test_stream_counts_weights(rng):
    method = DeterministicAnnealing(initial_temperature=3.0, schedule="linear")
    est = mixture(method, total_samples=1000, max_iter=1)
    est.partial_fit(MIXTURE.data(rng, 40), sample_weight=np.full(40, 0.5))
    est.partial_fit(MIXTURE.data(rng, 10))
    np.testing.assert_allclose(est.temperatures_, [3 - 2 * 0.2, 3 - 2 * 0.3], rtol=1e-12)


@pytest.mark.parametrize("batch_size", [7, 10, 25])
def test_fit_in_minibatches_counts_passes(batch_size, rng):
    X = MIXTURE.data(rng, 40)
    method = DeterministicAnnealing(initial_temperature=4.0, schedule="linear", n_passes=3)
    est = mixture(method, batch_size=batch_size, max_iter=2, tol=0.0).fit(X)
    state = context_of(est).state
    assert state["passes"] == pytest.approx(5.0)
    assert state["updates"] == 5 * -(-40 // batch_size)
    # Within a pass the temperature falls with every batch; its mean over the rows is recorded.
    sizes = [min(batch_size, 40 - start) for start in range(0, 40, batch_size)]
    begins = np.cumsum([0, *sizes[:-1]]) / 40
    first = np.average(4 - begins, weights=sizes)
    np.testing.assert_allclose(est.temperatures_[:3], first - np.arange(3), rtol=1e-12)
    assert (est.temperatures_[3:] == 1).all()


def test_learning_rate_counts_updates(rng):
    """ρ_t = (τ + t)^−κ with t = 1 at the first step, over the batches of a fit."""
    seen = []

    class Watcher(NoAnnealing):
        def update(self, ctx, q, target, rho):
            seen.append(rho)
            return super().update(ctx, q, target, rho)

    ctx, _, units = run("none", MIXTURE.data(rng, 40))
    settings = FULL_STEPS._replace(learning_offset=3.0, learning_decay=0.8)
    for _ in range(4):
        one_update(ctx, Watcher(), units, settings=settings, minibatch=True)
    np.testing.assert_allclose(seen, (3.0 + np.arange(1, 5)) ** -0.8)
    one_update(ctx, Watcher(), units, settings=settings)
    assert seen[-1] == 1.0
