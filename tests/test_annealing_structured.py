"""Tests of structured variational inference."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from cases_annealing import MIXTURE, VARIANTS, mixture, run
from harness import (
    FULL_STEPS,
    context_of,
    lower_bound,
    one_update,
    recorded_visits,
    units_of,
    visit_of,
)
from scipy.special import softmax

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.annealing import DeterministicAnnealing, ProximityVI, StructuredVI
from sklearn_anneal.families import Dirichlet
from sklearn_anneal.inference.progress import Progress

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize("params", VARIANTS)
def test_draws_average_to_the_expectations(params, rng):
    """The local step of a draw is linear in t(β), so its mean is that of plain inference."""
    X = MIXTURE.data(rng, 40)
    ctx, method, units = run("structured", X, **params)
    some = units.take(slice(5))
    expected = ctx.model.log_joint(some, ctx.model.expectations(ctx.q))
    draws = np.array([
        ctx.model.log_joint(some, visit_of(ctx, method, some).expected) for _ in range(200)
    ])  # fmt: skip
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (error > 0).all()
    assert (np.abs(draws.mean(axis=0) - expected) <= 5 * error).all()


@pytest.mark.parametrize("params", VARIANTS)
def test_structured_update_is_conjugate_given_the_draw(params, rng):
    """Counts are responsibilities at the drawn parameters; ρ = (1 + t)^−κ in batch mode."""
    X = MIXTURE.data(rng, 40)
    ctx, method, units = run("structured", X, **params)
    settings = FULL_STEPS._replace(learning_decay=0.7)
    for t in (1, 2, 3):
        q, state = ctx.q, ctx.rng.bit_generator.state
        one_update(ctx, method, units, settings=settings)
        again = np.random.default_rng()
        again.bit_generator.state = state
        features = ctx.model.expectations(q, again)
        counts = softmax(ctx.model.log_joint(units, features), axis=1).sum(axis=0)
        rho = (1.0 + t) ** -0.7
        key = "weight_concentration" if "weight_concentration" in q else "stick_a"
        expected = (1 - rho) * q[key] + rho * (ctx.prior[key] + counts)
        np.testing.assert_allclose(ctx.q[key], expected, rtol=1e-10)


def test_exact_statistics_take_the_place_of_those_of_the_draw():
    """The target is λ₀ + V S, not λ₀ + S + V S."""
    prior, stats = {"a": np.array([1.0, 2.0])}, {"a": np.array([3.0, 5.0])}
    visit = SimpleNamespace(
        exact_gradient_statistics=lambda q, prior, stats: {"a": 2.0 * stats["a"] - 1.0}
    )
    method, ctx = StructuredVI(gradient="exact"), SimpleNamespace(q=prior, prior=prior)
    target = {"a": prior["a"] + stats["a"]}
    found = method.target(ctx, target, stats, SimpleNamespace(visit=visit))
    np.testing.assert_allclose(found["a"], [6.0, 11.0])


def step_sizes(monkeypatch, X, learning_rate, batch_size):
    """The step sizes ρ of all updates of a fit, in their order."""
    found, original = [], StructuredVI.update
    method = StructuredVI(n_passes=30, learning_rate=learning_rate)

    def spy(self, ctx, q, target, rho):
        found.append(rho)
        return original(self, ctx, q, target, rho)

    with monkeypatch.context() as patch:
        patch.setattr(StructuredVI, "update", spy)
        rates = {"learning_offset": 10.0, "learning_decay": 0.7}
        mixture(method, batch_size=batch_size, **rates).fit(X)
    return np.array(found)


def test_step_sizes_of_minibatches_decay_to_that_of_a_share_of_the_data(rng, monkeypatch):
    X = MIXTURE.data(rng, 40)
    decaying = (11.0 + np.arange(120)) ** -0.7
    batch = step_sizes(monkeypatch, X, 0.6, None)
    np.testing.assert_array_equal(batch, np.full(30, 0.6))
    ten_of_forty = step_sizes(monkeypatch, X, 0.6, 10)
    # In an update from all data, what is new weighs 1.5 times as much as what is kept.
    lowest = (1.5 / 4) / (1 + 1.5 / 4)
    np.testing.assert_allclose(ten_of_forty, np.maximum(decaying, lowest), rtol=1e-12)
    assert (step_sizes(monkeypatch, X, 0.05, 10) == decaying).sum() > 60
    np.testing.assert_allclose(step_sizes(monkeypatch, X, "decay", 10), decaying, rtol=1e-12)


class Averaged(DeterministicAnnealing):
    """A method that returns a mean, although its visits tell the bound."""

    returns_mean = True


class AveragedWithoutFinish(Averaged):
    finish = False


@pytest.mark.parametrize("method", [Averaged, AveragedWithoutFinish])
def test_the_bound_of_a_mean_is_evaluated(method, rng):
    X = MIXTURE.data(rng, 40)
    est = mixture(method(n_passes=14), max_iter=20, tol=0.0).fit(X)
    ctx = context_of(est)
    evaluated = lower_bound(ctx, units_of(est, X).centered(ctx.summary))
    assert est.lower_bound_ == pytest.approx(evaluated, rel=1e-12)
    plain = mixture(DeterministicAnnealing(n_passes=14), max_iter=20, tol=0.0).fit(X)
    assert (est.means_ != plain.means_).any()


@pytest.mark.parametrize("options", [{}, {"batch_size": 20, "learning_method": "online"}])
def test_topics_compute_the_bound_only_where_it_is_read(options, rng, monkeypatch):
    """Every second pass of four is followed by a visit that evaluates the bound."""
    visits = recorded_visits(monkeypatch)
    structured = StructuredVI(n_passes=4, evaluate_every=2)
    X = rng.poisson(1.0, size=(60, 9))
    lda = AnnealedLatentDirichletAllocation(
        3, annealing=structured, local_step="mean_field", random_state=0, **options
    ).fit(X)
    told = [bool(np.isfinite(seen.step.bound)) for seen in visits]
    of_pass = [False] * (3 if options else 1)
    assert told == [*of_pass, *of_pass, True, *of_pass, *of_pass, True]
    assert np.isfinite(lda.lower_bounds_[[1, 3]]).all()


def test_only_structured_inference_returns_means():
    """Proximity has a parameter of the same name, the memory of a statistic."""
    assert StructuredVI(average=True).returns_mean
    assert not StructuredVI(average=False).returns_mean
    assert not ProximityVI(average=0.9).returns_mean


def test_structured_has_no_finish_and_few_bounds(rng):
    X = MIXTURE.data(rng, 40)
    for how in ({}, {"batch_size": 15}):
        method = StructuredVI(n_passes=9, evaluate_every=4)
        est = mixture(method, max_iter=50, **how).fit(X)
        assert est.n_iter_ == 9
        known = ~np.isnan(est.lower_bounds_)
        assert list(np.flatnonzero(known) + 1) == [4, 8, 9]
        assert est.lower_bounds_[-1] == est.lower_bound_
        assert (est.temperatures_ == 1).all()
        assert est.converged_


def sampled_topics(X, **method):
    """A fit of 60 passes at most, whose priors are learned from the fifteenth on."""
    annealing = StructuredVI(**{"n_passes": 60, "learn_priors_after": 0.25} | method)
    how = {"annealing": annealing, "local_step": "collapsed_gibbs", "random_state": 0}
    return AnnealedLatentDirichletAllocation(3, **how).fit(X)


def table_of_topics(rng, n_documents=60, n_tokens=200):
    topics = rng.dirichlet(np.full(30, 0.1), 3)
    rates = n_tokens * rng.dirichlet(np.full(3, 0.2), n_documents) @ topics
    return rng.poisson(rates).astype(float)


def test_a_mean_that_hardly_changes_ends_a_fit(rng, monkeypatch):
    """It is compared with that after three quarters of the passes, once priors are learned."""
    X, means, ends = table_of_topics(rng), {}, Progress.mean_is_settled

    def recorded(progress, n_observations):
        means[progress.passes] = {"concentration": progress.mean["topic_word"].copy()}
        return ends(progress, n_observations)

    monkeypatch.setattr(Progress, "mean_is_settled", recorded)
    monkeypatch.setattr("sklearn_anneal.inference.progress._FIRST_OF_MEAN", 0)
    assert sampled_topics(X, tol=1e-12).n_iter_ == 60
    changes, earlier = {}, 15
    while (now := -(-4 * earlier // 3)) <= 60:
        changes[now] = Dirichlet().kl(means[now], means[earlier]) / X.sum()
        earlier = now
    assert list(changes) == [20, 27, 36, 48]
    tol = 1.001 * sorted(changes.values())[1]
    first = next(n for n, change in changes.items() if change < tol)
    ended = sampled_topics(X, tol=tol)
    assert ended.n_iter_ == ended.n_passes_ == len(ended.lower_bounds_) == first < 60
    assert ended.converged_
    assert ended.lower_bounds_[-1] == ended.lower_bound_


def test_default_fits_end_early_only_where_means_settle(rng):
    """Many tokens for each word and topic settle; few leave noise in a mean over sixty passes."""
    easy, test = np.split(table_of_topics(rng, n_documents=120, n_tokens=1000), 2)
    short, whole = sampled_topics(easy), sampled_topics(easy, tol=0)
    assert 20 <= short.n_iter_ < whole.n_iter_ == 60
    assert abs(short.score(test) - whole.score(test)) < 1e-3
    assert sampled_topics(rng.poisson(0.1, (100, 400)).astype(float)).n_iter_ == 60
    X = MIXTURE.data(rng, 40)
    assert mixture(StructuredVI(n_passes=40, average=True)).fit(X).n_iter_ == 40
    assert sampled_topics(easy, average=False).n_iter_ == 60
