"""The page for developers: its examples do what they say, and its packages are the real ones.

The new model is an entry of ``models``, so that all common tests run on it; the new annealing
method and the new emission go through those properties of the contract that every method and every
model has to have.
"""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import test_contract as contract
from cyclical import CyclicalAnnealing
from designs import each_once, in_turn
from exponential_emission import EMISSIONS, ExponentialComponents, ExponentialEmission
from geometric_mixture import AnnealedGeometricMixture, GeometricMixture
from harness import (
    Fixed,
    alternating,
    assert_identical,
    context_of,
    crossed,
    forms,
    make_threads_worthwhile,
    models,
    one_of_each_class,
    one_update,
    open_run,
    quick,
)
from models import geometric_mixture
from models._entry import Entry, has_auto
from scipy.integrate import quad
from scipy.sparse import csr_array
from scipy.special import gammaln, logsumexp
from scipy.stats import kstest, lomax

import sklearn_anneal
from sklearn_anneal import AnnealedBayesianMixture, AnnealedHMM
from sklearn_anneal.annealing import ANNEALING, Annealing, DeterministicAnnealing
from sklearn_anneal.datasets import make_mixture
from sklearn_anneal.estimators._emissions import Emission
from sklearn_anneal.families import Tempering
from sklearn_anneal.inspection import ComponentProfilesDisplay
from sklearn_anneal.models._base import ConjugateModel, Model, Visit

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

(GEOMETRIC,) = geometric_mixture.ENTRIES
# Most of what a method needs does not depend on the emission of a model.
ONE_OF_EACH_CLASS = [
    pytest.param(entry, entry.first, id=case.id, marks=case.marks)
    for case in one_of_each_class(models())
    for entry in case.values
]
PACKAGE = Path(sklearn_anneal.__file__).parent
DOC = Path(__file__).resolve().parents[1] / "doc"
# The map, and the pages that it leads to.
PAGES = [DOC / "developers.rst", *sorted((DOC / "developers").glob("*.rst"))]
# The file adds its emission to the table. Other tests are about those of the package.
del EMISSIONS["exponential"]


# The new model


def test_local_step_is_that_of_the_generative_model(rng):
    """Responsibilities, energy, entropy and statistics, from the formulas and one row at a time."""
    X, weights = GEOMETRIC.data(rng, 30), rng.uniform(0.5, 2.0, size=30)
    ctx, _, units = open_run(GEOMETRIC.make(annealing="none"), X, weights)
    # Expectations of which nothing cancels: those of one draw are the logarithms themselves.
    log_weights, log_v, log_complement = ctx.model.expectations(ctx.q, rng)
    np.testing.assert_allclose(np.exp(log_weights).sum(), 1.0)
    np.testing.assert_allclose(np.exp(log_v) + np.exp(log_complement), 1.0)
    x, share = 0.7, 0.4
    step = ctx.model.local_step(
        units, (log_weights, log_v, log_complement), Tempering(local=x, statistics=share)
    )
    energy = entropy = 0.0
    count, total = np.zeros(3), np.zeros((3, 3))
    for row, w in zip(X, weights, strict=True):
        p = np.exp(log_weights + (log_v + row * log_complement).sum(axis=1))
        r = p**x / (p**x).sum()
        energy += w * (r @ np.log(p))
        entropy -= w * (r @ np.log(r))
        count += share * w * r
        total += share * w * np.outer(r, row)
    assert step.energy == pytest.approx(energy, rel=1e-12)
    assert step.entropy == pytest.approx(entropy, rel=1e-12)
    np.testing.assert_allclose(step.statistics["count"], count, rtol=1e-12)
    np.testing.assert_allclose(step.statistics["total"], total, rtol=1e-12)


def test_noise_that_is_kept_apart_is_the_deviation(rng):
    """Of the statistics at the same temperature, which are those of no noise."""
    ctx, _, units = open_run(GEOMETRIC.make(annealing="none"), GEOMETRIC.data(rng, 30))
    expected, t = ctx.model.expectations(ctx.q), Tempering(local=0.7, statistics=0.4)
    noise = rng.standard_normal(30)
    apart = ctx.model.local_step(units, expected, t, noise, separate_noise=True)
    plain = ctx.model.local_step(units, expected, t)
    noisy = ctx.model.local_step(units, expected, t, noise)
    assert plain.deviation is None and noisy.deviation is None
    for key in ("count", "total"):
        np.testing.assert_array_equal(apart.statistics[key], plain.statistics[key])
        np.testing.assert_array_equal(apart.deviation[key], noisy.statistics[key])
    shifted = ctx.model.local_step(units, expected, t, 1.0 + noise)
    np.testing.assert_allclose(
        shifted.statistics["total"] - plain.statistics["total"], apart.deviation["total"]
    )


def test_summary_counts_weights_and_is_that_of_all_parts(rng):
    X, weights = GEOMETRIC.data(rng, 30), rng.integers(1, 4, size=30)
    est = GEOMETRIC.make(annealing="none")
    ctx, _, weighted = open_run(est, X, weights.astype(float))
    copies = open_run(est, np.repeat(X, weights, axis=0))[2]
    halves = [ctx.model.summary(weighted.take(part)) for part in (slice(12), slice(12, 30))]
    merged = halves[0].merge(halves[1])
    for found in (merged, ctx.model.summary(weighted)):
        expected = ctx.model.summary(copies)
        assert found.weight == found.seen == expected.weight == weights.sum()
        np.testing.assert_allclose(found.total, expected.total, rtol=1e-13)
    assert halves[0].continued(halves[1]) is halves[0]


def test_log_partition_is_a_sum_over_all_rows(rng):
    """log C(x) = N log c(x), c(x) = Σ_rows Σ_z p(row, z)^x / (Σ_rows Σ_z p(row, z))^x."""
    X = rng.geometric(0.4, size=(20, 2)) - 1.0
    est = AnnealedGeometricMixture(n_components=2, annealing="none", random_state=0).fit(X)
    ctx = context_of(est)
    log_weights, log_v, log_complement = ctx.model.expectations(ctx.q)
    rows = np.stack(np.meshgrid(*[np.arange(400.0)] * 2), axis=-1).reshape(-1, 2)
    joint = log_weights + log_v.sum(axis=1) + rows @ log_complement.T
    x = np.array([1.0, 0.8, 0.5])
    expected = [20 * (logsumexp(y * joint) - y * logsumexp(joint)) for y in x]
    np.testing.assert_allclose(ctx.model.log_partition(x, ctx.summary, ctx.q), expected, atol=1e-9)
    assert expected[-1] > 1


def test_components_are_found(rng):
    """The fitted success probabilities are those that the counts were drawn with."""
    weights, means = np.array([0.5, 0.3, 0.2]), 0.5 + 8.0 * np.eye(3)
    est = GEOMETRIC.make(annealing="deterministic", max_iter=200).fit(GEOMETRIC.data(rng, 4000))
    order = est.success_probabilities_.argmin(axis=1)
    assert sorted(order) == [0, 1, 2]
    np.testing.assert_allclose(est.weights_, weights[order], atol=0.05)
    np.testing.assert_allclose(est.success_probabilities_, 1 / (1 + means[order]), atol=0.05)
    X, labels = np.repeat(8.0 * np.eye(3), 5, axis=0), np.repeat(np.argsort(order), 5)
    np.testing.assert_array_equal(est.predict(X), labels)


def test_equal_components_are_reported(rng):
    X = GEOMETRIC.data(rng, 60)
    est = GEOMETRIC.make(annealing="none", max_iter=50)
    ctx, _, _ = open_run(est, X)
    assert ctx.model.coinciding(ctx.q, ctx.summary, ctx.prior) == []
    ctx.q = {key: value.copy() for key, value in ctx.q.items()}
    ctx.q["a"][2], ctx.q["b"][2] = ctx.q["a"][0], ctx.q["b"][0]
    assert ctx.model.coinciding(ctx.q, ctx.summary, ctx.prior) == [(0, 2)]


@pytest.mark.parametrize("value", [-1.0, np.nan])
def test_what_is_no_count_is_refused(value, rng):
    X = GEOMETRIC.data(rng, 30)
    est = GEOMETRIC.make().fit(X)
    X[3, 1] = value
    for method in (est.fit, est.partial_fit, est.transform, est.score_samples):
        with pytest.raises(ValueError, match=r"(?i)negative|nan"):
            method(X)


# The new annealing method


def test_one_cycle_is_deterministic_annealing(rng):
    """Bit for bit, the displacements included, in batches, in minibatches and in a stream."""
    X = GEOMETRIC.data(rng, 60)
    one = CyclicalAnnealing(initial_temperature=2.5, n_cycles=1, n_passes=6, jitter=0.1)
    other = DeterministicAnnealing("likelihood", 2.5, "linear", 6, 0.1)
    for how in ({}, {"batch_size": 20}):
        fits = [GEOMETRIC.make(annealing=m, effort=0, **how).fit(X) for m in (one, other)]
        _assert_same_fit(*fits)
        assert 2 < fits[0].temperatures_[0] <= 2.5
    streams = [GEOMETRIC.make(annealing=m, total_samples=120) for m in (one, other)]
    for batch in np.split(X, 3):
        for stream in streams:
            stream.partial_fit(batch)
    _assert_same_fit(*streams)


def _assert_same_fit(a, b):
    """All but the methods' own parameters."""
    a.annealing_ = b.annealing_
    assert_identical(a, b)


@pytest.mark.parametrize("how", [{}, {"batch_size": 20}])
@pytest.mark.parametrize("n_cycles", [1, 3, 4])
def test_temperatures_fall_once_per_cycle_and_each_cycle_begins_lower(n_cycles, how, rng):
    method = CyclicalAnnealing(3.0, n_cycles, 5 * n_cycles, 0.0)
    est = GEOMETRIC.make(annealing=method, tol=0.0, effort=0, **how).fit(GEOMETRIC.data(rng, 60))
    assert est.n_iter_ == 5 * n_cycles + 5
    assert (est.temperatures_[-5:] == 1).all()
    cycles = est.temperatures_[:-5].reshape(n_cycles, 5)
    assert (np.diff(cycles, axis=1) < 0).all() and (cycles > 1).all()
    assert (np.diff(cycles[:, 0]) < 0).all()
    if not how:
        tops = 3 - 2 * np.arange(n_cycles) / n_cycles
        expected = 1 + np.outer(tops - 1, 1 - np.arange(5) / 5)
        np.testing.assert_allclose(cycles, expected, rtol=1e-12)


@pytest.mark.parametrize("n_calls", [6, 7, 10, 49])
def test_cycles_of_a_stream_begin_although_fractions_do_not_add_up(n_calls, rng):
    """One pass of ``n_calls`` batches is two cycles, the second of which is heated on time."""
    n_calls *= 2
    ctx, method, units = open_run(
        GEOMETRIC.make(annealing=CyclicalAnnealing(3.0, 2, 1, 0.0)), GEOMETRIC.data(rng, 60)
    )
    found = []
    for _ in range(n_calls):
        found.append(method.temperature(ctx))
        ctx.state["passes"] += 1 / n_calls
    assert np.argmax(np.diff(found)) + 1 == n_calls // 2
    assert found[n_calls // 2] == pytest.approx(2.0, abs=1e-6)
    assert method.temperature(ctx) == 1


@pytest.mark.parametrize(("entry", "params"), ONE_OF_EACH_CLASS)
def test_updates_are_those_of_the_likelihood_at_the_temperature(entry, params, rng):
    X = entry.data(rng, 50)
    method = CyclicalAnnealing(initial_temperature=2.0, n_cycles=2, n_passes=4, jitter=0.0)
    ctx, method, units = open_run(entry.make(annealing=method, **params), X)
    for temperature in (2.0, 1.5, 1.5, 1.25):
        plain, _, _ = open_run(entry.make(annealing="none", **params), X, q=ctx.q)
        plain.state = dict(ctx.state)
        plain.model, plain.prior = ctx.model, ctx.prior
        t = Tempering(local=1 / temperature, statistics=1 / temperature)
        one_update(plain, Fixed(t), units)
        assert one_update(ctx, method, units).temperature == pytest.approx(temperature)
        assert contract.largest_difference(ctx.q, plain.q) == 0


def test_displacements_separate_what_a_cycle_has_merged(rng):
    """Equal components stay equal without them, however often the fit is heated."""
    X, apart = GEOMETRIC.data(rng, 200), {}
    for jitter in (0.0, 0.1):
        method = CyclicalAnnealing(2.0, 3, 30, jitter)
        est = GEOMETRIC.make(n_components=2, annealing=method, max_iter=0)
        ctx, method, units = open_run(est, X)
        # The second component is a copy of the first.
        ctx.q = {key: np.repeat(value[:1], 2, axis=0) for key, value in ctx.q.items()}
        for _ in range(30):
            one_update(ctx, method, units)
        apart[jitter] = np.abs(ctx.q["b"][0] / ctx.q["b"][1] - 1).max()
    assert apart[0.0] < 1e-12
    assert apart[0.1] > 0.1


@pytest.mark.parametrize(
    ("entry", "params", "minibatch"), alternating(ONE_OF_EACH_CLASS, (False, True))
)
def test_cycles_without_heat_are_plain_inference(entry, params, minibatch, rng):
    for n_cycles in (1, 3):
        contract.test_method_without_temperature_or_noise_is_plain_inference(
            entry, params, CyclicalAnnealing(1, n_cycles, 10, 0.5), minibatch, rng
        )


PROPERTIES = (
    contract.test_minibatch_of_all_units_with_full_steps_is_batch,
    contract.test_weight_is_a_number_of_copies,
    contract.test_repeated_and_pickled_fits_predict_and_go_on_the_same,
)
EVERY_FORM = each_once(
    crossed(forms(sampled=False), [CyclicalAnnealing]), lambda entry, *_: type(entry.make())
)


@pytest.mark.parametrize(
    ("entry", "params", "name", "check"),
    [
        pytest.param(
            *form.values,
            check,
            marks=form.marks if (i - turn) % len(PROPERTIES) == 0 else pytest.mark.exhaustive,
            id=f"{form.id}-{check.__name__[5:]}",
        )
        for turn, form in enumerate(EVERY_FORM)
        for i, check in enumerate(PROPERTIES)
    ],
)
def test_new_method_has_the_properties_of_all(entry, params, name, check, rng):
    """One of them is tried with each class."""
    check(entry, params, name, rng)


@pytest.mark.parametrize(
    ("entry", "how"),
    [
        *alternating(one_of_each_class(models()), ("batch", "minibatches")),
        # Restarts are sent to workers whole, with any model alike.
        pytest.param(GEOMETRIC, "restarts", id=f"{GEOMETRIC.name}-restarts"),
    ],
)
def test_new_method_does_not_depend_on_workers(entry, how, rng, monkeypatch):
    make_threads_worthwhile(monkeypatch)
    contract.test_result_does_not_depend_on_workers(
        entry, entry.first, CyclicalAnnealing, how, rng, monkeypatch
    )


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"initial_temperature": 0.5}, "initial_temperature"),
        ({"n_cycles": 0}, "n_cycles"),
        ({"n_passes": -1}, "n_passes"),
        ({"jitter": -0.1}, "jitter"),
    ],
)
def test_wrong_parameters_of_the_new_method_are_refused(params, name, rng):
    est = GEOMETRIC.make(annealing=CyclicalAnnealing(**params))
    with pytest.raises(ValueError, match=f"'{name}' parameter of CyclicalAnnealing"):
        est.fit(GEOMETRIC.data(rng, 30))


# The new emission

PRIORS = {"lambdas_prior": 1.4, "lambdas_weight": 0.3}
COMPONENTS = {"n_components": 3, "emission": "exponential", "max_iter": 5, "random_state": 0}
of_durations = pytest.mark.parametrize("cls", [AnnealedBayesianMixture, AnnealedHMM])


@pytest.fixture
def exponential(monkeypatch):
    """The table of emissions with the new one, as it is for users who import the file."""
    monkeypatch.setitem(EMISSIONS, "exponential", ExponentialEmission)


def durations(rng, n):
    """Durations of three components, of which some are missing."""
    means = np.array([[0.2, 5.0, 1.0], [3.0, 0.5, 1.0], [1.0, 1.0, 30.0]])
    X = means[rng.choice(3, size=n, p=[0.5, 0.3, 0.2])] * rng.standard_exponential((n, 3))
    X[rng.random(X.shape) < 0.1] = np.nan
    return X


def total_over_durations(est):
    """∫ exp(score_samples) over the durations of one column, on a scale of logarithms."""
    u, step = np.linspace(-40.0, 60.0, 20_001, retstep=True)
    return float(np.exp(est.score_samples(np.exp(u)[:, None]) + u).sum() * step)


EXPONENTIAL = Entry(
    "mixture_exponential",
    make=lambda **params: AnnealedBayesianMixture(**(COMPONENTS | params)).set_params(
        weight_concentration_prior=0.7
    ),
    data=durations,
    variants={"default": PRIORS, "learned": dict.fromkeys(PRIORS, "auto")},
    learns=has_auto,
    total_probability=total_over_durations,
    spaces={"one column": lambda rng, n: durations(rng, n)[:, :1]},
)
PROPERTIES_OF_MODELS = (
    contract.test_bound_never_falls,
    contract.test_density_integrates_to_one,
    contract.test_one_call_of_partial_fit_is_one_pass,
    contract.test_targets_of_minibatches_average_to_that_of_the_batch,
)
PROPERTIES_OF_FITS = (
    *PROPERTIES,
    contract.test_recorded_bounds_are_those_of_the_parameters,
    contract.test_float32_is_near_float64,
)
every_prior = pytest.mark.parametrize(
    "params", EXPONENTIAL.variants.values(), ids=("given", "auto")
)


def named(checks):
    return pytest.mark.parametrize("check", checks, ids=lambda check: check.__name__[5:])


@named(PROPERTIES_OF_MODELS)
@every_prior
def test_new_emission_makes_a_model_like_the_others(params, check, exponential, rng):
    check(EXPONENTIAL, params, rng)


@pytest.mark.parametrize("form", EXPONENTIAL.forms)
def test_new_emission_has_the_natural_gradient(form, exponential, rng):
    check = contract.test_natural_gradient_is_that_of_the_tempered_bound
    check(EXPONENTIAL, PRIORS, form, rng)


@named(PROPERTIES_OF_FITS)
@pytest.mark.parametrize("name", ["none", "deterministic"])
def test_new_emission_has_the_properties_of_all(name, check, exponential, rng, monkeypatch):
    how = {}
    if "recorded" in check.__name__:
        how = {"max_iter": 3, "monkeypatch": monkeypatch}
    check(EXPONENTIAL, PRIORS, name, rng=rng, **how)


@in_turn(name=ANNEALING, params=EXPONENTIAL.variants.values(), how=("batch", "minibatches"))
def test_new_emission_works_with_every_method(name, params, how, exponential, rng):
    contract.test_every_pair_that_is_not_refused_works(EXPONENTIAL, params, name, how, rng)
    X = durations(rng, 40)
    hmm = AnnealedHMM(**COMPONENTS | {"annealing": quick(name)}).fit(X)
    assert np.isfinite(hmm.score(X)) and (hmm.sample(5)[0] >= 0).all()
    assert context_of(hmm).model.factors().valid(context_of(hmm).q)


@of_durations
def test_posterior_and_evidence_of_one_component(cls, exponential, rng):
    """Of n durations with the sum s, the posterior is Gamma(a + n, b + s)."""
    X = durations(rng, 30)
    est = cls(**COMPONENTS | PRIORS | {"n_components": 1})
    if cls is AnnealedBayesianMixture:
        # A stick-breaking process would go on beyond its only component.
        est.set_params(weight_concentration_prior_type="dirichlet_distribution")
    est.fit(X)
    n, total = (~np.isnan(X)).sum(axis=0), np.nansum(X, axis=0)
    a, b, c, d = 1.4, 0.3, 1.4 + n, 0.3 + total
    np.testing.assert_allclose(est.lambdas_posterior_, [c], rtol=1e-12)
    np.testing.assert_allclose(est.lambdas_weight_posterior_, [d], rtol=1e-12)
    np.testing.assert_allclose(est.lambdas_, [c / d], rtol=1e-12)
    evidence = a * np.log(b) - gammaln(a) + gammaln(c) - c * np.log(d)
    assert est.lower_bound_ == pytest.approx(evidence.sum(), rel=1e-10)


@of_durations
def test_scores_are_those_of_lomax_distributions(cls, exponential, rng):
    """The predictive density integrates over the rates; a cell that is missing has no factor."""
    X = durations(rng, 30)
    est = cls(**COMPONENTS | PRIORS).fit(X)
    shape, scale = est.lambdas_posterior_, est.lambdas_weight_posterior_
    each = np.nan_to_num(lomax.logpdf(X[:, None], shape, scale=scale)).sum(axis=2)
    if cls is AnnealedBayesianMixture:
        expected = logsumexp(each + np.log(est.weights_), axis=1)
        np.testing.assert_allclose(est.score_samples(X), expected, rtol=1e-10)
        return
    # Sequences of one frame do not depend on the transitions.
    found = [est.score(X[i : i + 1]) for i in range(5)]
    expected = logsumexp(each + np.log(est.startprob_), axis=1)
    np.testing.assert_allclose(found, expected[:5], rtol=1e-10)


def test_missing_durations_are_imputed_by_moments_of_lomax_distributions(exponential, rng):
    X = durations(rng, 30)
    est = AnnealedBayesianMixture(**COMPONENTS | PRIORS | {"n_components": 1}).fit(X)
    values, std = est.impute(np.full((1, 3), np.nan), return_std=True)
    own = lomax(est.lambdas_posterior_[0], scale=est.lambdas_weight_posterior_[0])
    np.testing.assert_allclose(values[0], own.mean(), rtol=1e-12)
    np.testing.assert_allclose(std[0], own.std(), rtol=1e-12)
    # Draws of the rates, and then of the durations, are draws from the same distributions.
    drawn = est.impute(np.full((1, 3), np.nan), n_draws=300)[:, 0]
    for d in range(3):
        cdf = lomax(est.lambdas_posterior_[0, d], scale=est.lambdas_weight_posterior_[0, d]).cdf
        assert kstest(drawn[:, d], cdf).pvalue > 1e-3


def test_moments_that_do_not_exist_are_quantiles():
    components = ExponentialComponents(3, 1, np.ones((3, 1)), np.ones((3, 1)))
    shape, rate = np.array([[0.5], [1.5], [3.0]]), np.full((3, 1), 2.0)
    moments = components.predictive_moments({"shape": shape, "rate": rate})
    own = lomax(shape, scale=rate)
    np.testing.assert_array_equal(moments.exists.ravel(), [False, False, True])
    np.testing.assert_allclose(moments.mean[0], own.median()[0])
    np.testing.assert_allclose(moments.mean[1:], own.mean()[1:])
    half_widths = (own.ppf(0.84) - own.ppf(0.16)) / 2
    np.testing.assert_allclose(moments.variance[:2], half_widths[:2] ** 2)
    np.testing.assert_allclose(moments.variance[2], own.var()[2])


def test_volumes_are_integrals(rng):
    shape, rate = rng.uniform(1.0, 3.0, (2, 2, 1))
    components = ExponentialComponents(2, 1, shape, rate)
    expected = components.expectations({"shape": shape, "rate": rate})
    for x in (0.5, 1.0):
        for k in range(2):
            slope, cell = expected.slopes[k, 0], expected.cells[k, 0]
            volume = quad(lambda t: np.exp(x * (cell + slope * t)), 0, np.inf)[0]  # noqa: B023
            found = components.log_volume(np.array([x]), None, expected)[0, k]
            assert found == pytest.approx(np.log(volume), rel=1e-8)


def test_durations_are_drawn_fitted_and_shown(exponential):
    """From known components back to them, in a block beside real numbers too."""
    X, labels, truth = make_mixture(600, 3, emission="exponential", random_state=0)
    scaled = X * truth.lambdas[labels]
    assert kstest(scaled.ravel(), "expon").pvalue > 0.01
    est = AnnealedBayesianMixture(**COMPONENTS | {"max_iter": 30, "effort": 0}).fit(X)
    drawn, which = est.sample(600)
    assert kstest((drawn * est.lambdas_[which]).ravel(), "expon").pvalue > 0.01
    blocks = [("times", "exponential", [0, 2]), ("sizes", "gaussian", [1])]
    X, labels, truth = make_mixture(
        600, 3, emission=blocks, n_components=2, separation=2.0, random_state=0
    )
    for cls in (AnnealedBayesianMixture, AnnealedHMM):
        est = cls(**COMPONENTS | {"n_components": 2, "emission": blocks, "max_iter": 20}).fit(X)
        assert est.sample(4)[0].shape == (4, 3)
        order = np.argsort(est.blocks_["sizes"].means_[:, 0])
        known = np.argsort(truth.blocks["sizes"].means[:, 0])
        found, expected = est.blocks_["times"].lambdas_[order], truth.blocks["times"].lambdas[known]
        np.testing.assert_allclose(found, expected, rtol=0.25)


def test_profiles_of_durations_are_means(exponential, rng):
    pytest.importorskip("matplotlib").use("Agg")
    est = AnnealedBayesianMixture(**COMPONENTS | PRIORS).fit(durations(rng, 60))
    display = ComponentProfilesDisplay.from_estimator(est, components=[0, 1, 2])
    means = 1 / est.lambdas_
    np.testing.assert_allclose(display.values, means.T)
    # The moments of an exponential distribution: E x² = 2 / λ².
    center = est.weights_ @ means
    spread = np.sqrt(est.weights_ @ (2 * means**2) - center**2)
    np.testing.assert_allclose(display.deviations, ((means - center) / spread).T)


@of_durations
def test_durations_begin_at_given_rates(cls, exponential, rng):
    X, rates = durations(rng, 40), np.array([[5.0, 0.2, 1.0], [0.3, 2.0, 1.0], [1.0, 1.0, 0.03]])
    est = cls(**COMPONENTS | PRIORS | {"annealing": "none", "max_iter": 0})
    if cls is AnnealedBayesianMixture:
        est.set_params(weights_init=np.full(3, 1 / 3))
    found = est.set_params(emission_init={"lambdas": rates}).fit(X).lambdas_
    # Counts of 40 / 3 rows are added to the prior Gamma(1.4, 0.3).
    np.testing.assert_allclose(found, (1.4 + 40 / 3) / (0.3 + 40 / 3 / rates), rtol=1e-12)
    for wrong in (np.zeros((3, 3)), rates[:2]):
        with pytest.raises(ValueError, match="emission_init.*lambdas"):
            est.set_params(emission_init={"lambdas": wrong}).fit(X)


@of_durations
def test_what_is_no_duration_is_refused(cls, exponential, rng):
    X = durations(rng, 30)
    est = cls(**COMPONENTS).fit(X)
    assert est.__sklearn_tags__().input_tags.positive_only
    X[3, 1] = -0.5
    for method in (est.fit, est.partial_fit, est.predict):
        with pytest.raises(ValueError, match=r"Durations are numbers from 0, but X contains -0\.5"):
            method(X)
    with pytest.raises(TypeError, match="(?i)sparse"):
        est.fit(csr_array(np.ones((30, 3))))
    with pytest.raises(AttributeError, match="emission='poisson', .* or 'exponential'"):
        _ = cls(n_components=1, emission="bernoulli").fit(np.eye(4)).lambdas_


# The page


def test_packages_of_the_page_are_those_of_the_imports():
    """Every import within the package goes where the table of the page allows it."""
    allowed = packages()
    directories = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert allowed.keys() == directories | modules
    used = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts == ("__init__",):
            continue
        for target in imported(path, parts[:-1]):
            if target.split(".")[0] == parts[0]:
                continue
            found = {room for room in allowed[parts[0]] if f"{target}.".startswith(f"{room}.")}
            assert found, f"{'/'.join(parts)}.py imports {target}"
            used |= {(parts[0], room) for room in found}
    # Kernels are imported by their names, when they are first needed.
    listed = {(room, other) for room in allowed for other in allowed[room] if other != "kernels"}
    assert listed == {pair for pair in used if pair[1] != "kernels"}


def test_twelve_words_are_names_of_the_code():
    text = pages()
    section = text[text.index("Twelve words\n") : text.index("Where to read on")]
    found = re.findall(r"``([\w/]+\.py): (\w+)``", section)
    assert len(found) == 12 == section.count("\n   * - ") - 1
    for file, name in found:
        tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
        assert name in {
            target.id if isinstance(target, ast.Name) else getattr(node, "name", None)
            for node in tree.body
            for target in getattr(node, "targets", [node])
        }, file


def pages():
    """The text of all pages for developers."""
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def packages():
    """Package → what it may import, as the page's table has it."""
    text = pages()
    pattern = r"^\.\. list-table:: Packages\n(.*?)\n(?=\S)"
    table = re.search(pattern, text, re.DOTALL | re.MULTILINE)[1]
    rows = re.split(r"\n   \* - ", table)[2:]
    cells = [re.split(r"\n     - ", row) for row in rows]
    assert all(len(row) == 3 for row in cells)
    return {
        re.fullmatch(r"``(\w+)``", name.strip())[1]: re.findall(r"``([\w.]+)``", others)
        for name, _, others in cells
    }


def imported(path, package):
    """The modules of this package that a file imports, other than for annotations."""
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    annotations = {
        id(node)
        for branch in nodes
        if isinstance(branch, ast.If) and getattr(branch.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(branch)
    }
    for node in nodes:
        if not isinstance(node, ast.ImportFrom) or not node.level or id(node) in annotations:
            continue
        base = [*package[: len(package) - node.level + 1]]
        if node.module:
            base += node.module.split(".")
        # A name that is imported from a package can be a module of it.
        for alias in node.names:
            file = PACKAGE.joinpath(*base, alias.name)
            is_module = file.is_dir() or file.with_suffix(".py").exists()
            if is_module or not base:
                yield ".".join([*base, alias.name])
            else:
                yield ".".join(base)


def test_page_names_hooks_of_annealing_and_methods_of_models_and_emissions():
    """What can be overridden is explained, so that the page is not silent about a new hook."""
    text = pages()
    parameters = {field.name for field in fields(Visit)}
    for cls in (Annealing, Model, ConjugateModel, Visit, Emission):
        for name in vars(cls).keys() - parameters:
            if not name.startswith("_"):
                assert f"``{name}``" in text, f"{cls.__name__}.{name}"


def test_page_includes_the_files_that_are_tested():
    text = pages()
    included = set(re.findall(r"\.\. literalinclude:: (\w+)\.py", text))
    examples = GeometricMixture, CyclicalAnnealing, ExponentialEmission
    assert included == {example.__module__ for example in examples}
    assert {path.stem for path in (DOC / "developers").glob("*.py")} == included
