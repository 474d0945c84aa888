"""Tests of the priors of Gaussian mixtures that are learned by empirical Bayes (``"auto"``)."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from cases_gaussian_mixture import (
    COVARIANCE_TYPES,
    FACTORIZATIONS,
    WEIGHT_PRIORS,
    all_covariance_types,
    all_factorizations,
    all_weight_priors,
    clusters,
    complete_bound,
    divergence_of_sizes,
    full_matrix,
)
from designs import in_turn
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import multigammaln, psi
from scipy.stats import gamma
from sklearn.base import clone
from sklearn.covariance import LedoitWolf
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.annealing import DeterministicAnnealing
from sklearn_anneal.families import Factors
from sklearn_anneal.families._empirical_bayes import LARGEST, SMALLEST
from sklearn_anneal.models._weights import StickBreakingWeights
from sklearn_anneal.models.components._learned_gaussians import Decay, Sizes

GAUSSIAN = ("mean_precision_prior", "mean_prior", "degrees_of_freedom_prior", "covariance_prior")
PRIORS = ("weight_concentration_prior", *GAUSSIAN)
AUTO = dict.fromkeys(PRIORS, "auto")
NONE = dict.fromkeys(PRIORS)


@cache
def rows(seed=0, n=40, k=6, d=2):
    """Rows of clusters whose covariances are different, but of one size."""
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(k):
        root = rng.normal(size=(d, d + 6)) / np.sqrt(d + 6)
        parts.append(rng.normal(scale=6, size=d) + rng.normal(size=(n, d + 6)) @ root.T)
    return rng.permutation(np.vstack(parts))


def fitted(X, **settings):
    settings = {"annealing": "none", "n_components": 6, "random_state": 0, **NONE, **settings}
    sample_weight = settings.pop("sample_weight", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return AnnealedBayesianGaussianMixture(**settings).fit(X, sample_weight=sample_weight)


@cache
def plain():
    """A fit that learns no prior."""
    return fitted(rows())


def values_of(mixture):
    """The priors that were used, in one vector."""
    return np.concatenate([np.ravel(getattr(mixture, name + "_")) for name in PRIORS])


# One step, given q


def numerical_best(components, q, prior):
    """The smallest divergence from the prior that scipy finds, over all of its parameters."""
    d = components.n_features
    rows_each = float(np.mean(q["dof"] - prior["dof"]))
    n_scale = {"full": 3, "tied": 3, "diag": 2, "spherical": 1}[components.covariance_type]
    factors = Factors(components.factors)

    def divergence(x):
        x = np.clip(x, -15, 15)
        trial = components.__class__.__new__(components.__class__)
        vars(trial).update(vars(components))
        trial.mean_precision_prior = np.exp(x[0])
        if "degrees_of_freedom_prior" in components.auto:
            trial.degrees_of_freedom_prior = d + rows_each / (1 + np.exp(-x[1]))
        if "covariance_prior" not in components.auto:
            pass
        elif n_scale == 3:
            root = np.array([[np.exp(x[4]), 0], [x[5], np.exp(x[6])]])
            trial.covariance_prior = root @ root.T
        else:
            trial.covariance_prior = np.exp(x[4:]).reshape(-1 if n_scale == 2 else ())
        try:
            return factors.kl(q, trial.natural_prior(x[2:4]))
        except np.linalg.LinAlgError:
            return 1e9

    size = 4 + n_scale
    return minimize(divergence, np.zeros(size), method="BFGS", options={"gtol": 1e-7}).fun


# The search of scipy also tries priors that are far too large.
@pytest.mark.filterwarnings("ignore:.*encountered in log1p:RuntimeWarning")
@in_turn(covariance_type=COVARIANCE_TYPES, factorization=FACTORIZATIONS[::-1])
def test_a_step_maximises_the_bound_over_the_prior(covariance_type, factorization):
    # After three passes priors have been learned already, but not to the end. Priors of means that
    # are learned without those of precisions, from the same factors, would be at their end.
    settings = {"covariance_type": covariance_type, "factorization": factorization, "max_iter": 3}
    if (covariance_type, factorization) == ("tied", "independent"):
        settings |= {"max_iter": 0, "init_params": "random"}  # a start that learns nothing
    ctx = fitted(rows(), **settings, **AUTO)._context()
    components = copy(ctx.model.components)
    q = {key: ctx.q[key] for key in components.keys}
    factors = Factors(components.factors)
    # Sizes of components have a test of their own.
    components.set_scale(components.common_scale, None)
    prior = components.natural_prior(components.prior_means(ctx.prior))
    wanted = numerical_best(components, q, prior)
    learned, new = components.learned(q, prior, 1.0, late=True)
    assert factors.kl(q, new) < factors.kl(q, prior)
    if factorization == "independent":
        # The means have the precision of the same matrix, and the step maximises in two parts.
        before = np.inf
        while before - factors.kl(q, new) > 1e-12:
            before = factors.kl(q, new)
            learned, new = learned.learned(q, new, 1.0, late=True)
    assert factors.kl(q, new) == pytest.approx(wanted, abs=1e-6 * abs(wanted))


def spread_rows():
    """Three groups whose standard deviations are 1, 10 and 100."""
    rng = np.random.default_rng(0)
    return np.vstack([m + s * rng.normal(size=(40, 2)) for m, s in [(0, 1), (60, 10), (900, 100)]])


@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
def test_steps_over_sizes_end_at_the_highest_bound(covariance_type):
    """No neighbour of the sizes, their prior, the common scale or its strength is better."""
    ctx = fitted(spread_rows(), covariance_type=covariance_type, max_iter=5, **AUTO)._context()
    components, prior = ctx.model.components, ctx.prior
    q = {key: ctx.q[key] for key in components.keys}
    for _ in range(400):
        components, prior = components.learned(q, prior, 1.0, late=True)
    center, d = components.prior_means(prior), components.n_features

    def lost(common, dof, **sizes):
        trial = copy(components)
        trial.degrees_of_freedom_prior = dof
        trial.set_scale(common, replace(components.sizes, **sizes))
        return Factors(trial.factors).kl(q, trial.natural_prior(center)) + trial.hyperparameter_kl()

    sizes, common = components.sizes, components.common_scale
    dof = components.degrees_of_freedom_prior
    assert sizes.mean.max() > 100 * sizes.mean.min()
    best = lost(common, dof)
    for k in range(len(sizes.rate)):
        for factor in (0.99, 1.01):
            each = np.where(np.arange(len(sizes.rate)) == k, factor, 1.0)
            assert lost(common, dof, rate=sizes.rate * each) > best - 1e-7
            assert lost(common, dof, shape=sizes.shape * each) > best - 1e-7
    for factor in (0.99, 1.01):
        assert lost(common * factor, dof) > best - 1e-7
        assert lost(common, dof, strength=max(sizes.strength * factor, 0.5)) > best - 1e-7
        if d < dof * factor < d + len(spread_rows()) / len(sizes.rate):
            assert lost(common, dof * factor) > best - 1e-7


def test_sizes_are_inferred_where_groups_differ_and_are_1_where_they_do_not():
    spread = fitted(spread_rows(), n_components=3, annealing="reheating", **AUTO)
    spread = spread.covariance_prior_sizes_
    assert np.sort(spread["mean"] / spread["mean"].min())[1:] == pytest.approx([100, 1e4], rel=0.5)
    equal = np.vstack([m + np.random.default_rng(m).normal(size=(40, 2)) for m in (0, 20, 40)])
    sizes = fitted(equal, n_components=3, **AUTO).covariance_prior_sizes_
    assert sizes["strength"] > 1000
    assert sizes["mean"] == pytest.approx(np.ones(3), abs=0.05)


def test_a_component_at_the_smallest_scale_leaves_the_sizes_of_others_free():
    """Its own size stops where its scale is a millionth of the data's covariance."""
    rng = np.random.default_rng(0)
    tight = rng.normal(size=(80, 3))
    others = [(40, 1.0, 80), (-60, 6.0, 80), (90, 0.3, 40)]
    rest = np.vstack([m + s * rng.normal(size=(n, 3)) for m, s, n in others])
    found = []
    for scale in (0.06, 0.001):
        mixture = fitted(np.vstack([scale * tight, rest]), n_components=4, max_iter=150, **AUTO)
        assert np.diff(mixture.lower_bounds_).min() > -1e-6
        found.append(np.sort(mixture.covariance_prior_sizes_["mean"]))
    assert found[1][0] < found[0][0] / 20
    assert found[1][1:] == pytest.approx(found[0][1:], rel=0.6)


def test_the_divergence_of_sizes_is_that_of_gamma_distributions():
    shape, rate, a, dof, d = np.array([3.5, 40.0]), np.array([2.0, 9.0]), 1.7, 5.0, 3
    found = Sizes(a, shape, rate).kl(dof, d)
    expected = 0.0
    for n, r in zip(shape, rate, strict=True):
        q, p = gamma(n, scale=1 / r), gamma(a, scale=1 / a)
        expected += q.expect(lambda s: q.logpdf(s) - p.logpdf(s))  # noqa: B023
        expected += dof * d / 2 * (np.log(q.mean()) - q.expect(np.log))
    assert found == pytest.approx(expected, rel=1e-7)
    sizes = {"shape": shape, "rate": rate, "strength": a}
    assert found == pytest.approx(divergence_of_sizes(sizes, dof, d), rel=1e-12)


@in_turn(least=(0.5, 0.9, 1.0), excess=(2.0, 30.0, 1e3), strength=(0.5, 20.0, 1e4))
def test_a_smallest_size_does_not_let_the_bound_fall(least, excess, strength):
    """The strength that is the best without it can be far from the best with it."""
    dof, d = 3.6, 2
    shape = np.full(4, strength + 0.5 * dof * d)
    before = Sizes(strength, shape, shape)
    traces = dof * d * excess * np.array([1.0, 1.1, 0.9, 1.0])

    def terms(sizes):
        own = 0.5 * dof * d * np.log(sizes.mean) - 0.5 * traces * sizes.mean
        return float(own.sum()) - sizes.kl(dof, d)

    after = before.learned(traces, Decay(*np.zeros((3, 4))), dof, d, 1.0, least)
    assert after.mean.min() >= least * (1 - 1e-12)
    assert terms(after) >= terms(before)


@pytest.mark.parametrize("name", GAUSSIAN)
@all_factorizations
@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
def test_no_neighbour_of_a_learned_value_is_better(covariance_type, factorization, name):
    settings = {"covariance_type": covariance_type, "factorization": factorization, "max_iter": 3}
    ctx = fitted(rows(), **settings, **{name: "auto"})._context()
    q = {key: ctx.q[key] for key in ctx.model.components.keys}
    prior = {key: ctx.prior[key] for key in q}
    learned, new = ctx.model.components.learned(q, prior, 1.0, late=True)
    factors = Factors(learned.factors)
    center = learned.prior_means(new)
    best = factors.kl(q, new)
    for factor in (0.99, 1.01):
        if name == "mean_prior":
            trial = learned.natural_prior(center * factor)
        else:
            value = getattr(learned, name)
            setattr(learned, name, value * factor)
            trial = learned.natural_prior(center)
            setattr(learned, name, value)
            at_floor = name == "degrees_of_freedom_prior" and value == 2 and factor < 1
            at_ceiling = name == "degrees_of_freedom_prior" and value > 41.9 and factor > 1
            if at_floor or at_ceiling:
                continue
        assert factors.kl(q, trial) >= best - 1e-9


# Fits


@in_turn(covariance_type=COVARIANCE_TYPES, factorization=FACTORIZATIONS, weight_prior=WEIGHT_PRIORS)
def test_the_bound_never_falls(covariance_type, factorization, weight_prior):
    settings = {
        "covariance_type": covariance_type,
        "factorization": factorization,
        "weight_concentration_prior_type": weight_prior,
        "max_iter": 40,
        "tol": 0,
        "reg_covar": 0,
    }
    mixture = fitted(rows(1), **settings, **AUTO)
    bounds = mixture.lower_bounds_
    assert np.diff(bounds).min() >= -1e-10 * abs(bounds[-1])
    assert mixture.lower_bound_ > fitted(rows(1), **settings).lower_bound_ + 1
    if factorization == "joint":
        assert mixture.lower_bound_ == pytest.approx(complete_bound(mixture, rows(1)), rel=1e-9)


@all_factorizations
def test_a_single_column_has_the_same_priors_in_a_matrix_and_on_a_diagonal(factorization):
    full, diag = (
        fitted(
            rows(d=1, k=3),
            n_components=3,
            covariance_type=kind,
            factorization=factorization,
            **AUTO,
        )
        for kind in ("full", "diag")
    )
    assert full.lower_bound_ == pytest.approx(diag.lower_bound_, abs=1e-6)
    np.testing.assert_allclose(values_of(full), values_of(diag), rtol=1e-5)


@all_covariance_types
def test_learned_priors_solve_their_equations_in_public_attributes(covariance_type):
    mixture = fitted(
        rows(), covariance_type=covariance_type, tol=1e-13, max_iter=4000, reg_covar=0, **AUTO
    )
    k, d = mixture.means_.shape
    nu0, beta0 = mixture.degrees_of_freedom_prior_, mixture.mean_precision_prior_
    precision = np.broadcast_to(full_matrix(mixture, mixture.precisions_), (k, d, d))
    sizes = mixture.covariance_prior_sizes_
    mean = (sizes["mean"][:, None, None] * precision).mean(axis=0)
    scale = full_matrix(mixture, mixture.covariance_prior_)
    if covariance_type != "tied":
        assert np.allclose(np.linalg.inv(scale) * nu0, mean, rtol=1e-3)
    weighted = np.einsum("kij,kj->i", precision, mixture.means_)
    assert np.allclose(mixture.mean_prior_, np.linalg.solve(precision.sum(axis=0), weighted))
    shift = mixture.means_ - mixture.mean_prior_
    distance = np.einsum("ki,kij,kj->k", shift, precision, shift)
    assert beta0 == pytest.approx(k * d / (d / mixture.mean_precision_ + distance).sum(), rel=1e-3)
    a, b = mixture.weight_concentration_
    log_rest = (psi(b) - psi(a + b))[:-1]
    best = (k - 1) / -log_rest.sum()
    assert mixture.weight_concentration_prior_ == pytest.approx(best, rel=1e-3)
    most = d + len(rows()) / k
    assert d <= nu0 <= most * (1 + 1e-9)
    if d < nu0 < most * (1 - 1e-9):
        dof = np.broadcast_to(mixture.degrees_of_freedom_, k)
        log_det = psi((dof[:, None] - np.arange(d)) / 2).sum(axis=1)
        log_det -= np.linalg.slogdet(np.linalg.inv(precision) * dof[:, None, None])[1]
        log_size = np.mean(psi(sizes["shape"]) - np.log(sizes["rate"]))
        prior = psi((nu0 - np.arange(d)) / 2).sum() - np.linalg.slogdet(scale)[1] - d * log_size
        assert prior == pytest.approx(log_det.mean(), abs=1e-3)


def test_a_learned_concentration_is_that_of_a_dirichlet_distribution():
    mixture = fitted(
        rows(),
        weight_concentration_prior="auto",
        weight_concentration_prior_type="dirichlet_distribution",
        n_components=9,
        tol=1e-12,
        max_iter=1000,
    )
    alpha = mixture.weight_concentration_prior_
    posterior = mixture.weight_concentration_
    logs = psi(posterior) - psi(posterior.sum())
    assert psi(9 * alpha) - psi(alpha) == pytest.approx(-logs.mean(), rel=1e-4)


@pytest.mark.parametrize("name", PRIORS)
def test_priors_are_learned_one_by_one(name):
    mixture = fitted(rows(), **{name: "auto"})
    for other in PRIORS:
        same = np.array_equal(getattr(mixture, other + "_"), getattr(plain(), other + "_"))
        assert same == (other != name)
        assert np.shape(getattr(mixture, other + "_")) == np.shape(getattr(plain(), other + "_"))
    assert mixture.lower_bound_ > plain().lower_bound_


def test_the_concentration_waits_for_the_fit_without_it():
    """Until the bound hardly rises, a fit is the same as one with the concentration of None."""
    others = {name: value for name, value in AUTO.items() if name != "weight_concentration_prior"}
    weights = {"weight_concentration_prior_type": "dirichlet_distribution"}
    plain, mixture = fitted(rows(), **others, **weights), fitted(rows(), **AUTO, **weights)
    n = len(plain.lower_bounds_)
    assert np.array_equal(mixture.lower_bounds_[:n], plain.lower_bounds_)
    assert mixture.n_iter_ > n


def test_priors_of_gaussians_are_learned_from_the_assignment_of_the_start():
    """The prior expects components as wide as the groups, and not as wide as all rows."""
    X, _ = clusters(0, 60, ((0, 0), (40, 0), (0, 40)))
    start = {"n_components": 3, "init_params": "kmeans", "max_iter": 1, "tol": 0}
    mixture = fitted(X, **start, **AUTO)
    expected = mixture.covariance_prior_ / mixture.degrees_of_freedom_prior_
    assert np.allclose(expected, np.eye(2), atol=0.5)
    usual = fitted(X, **start)
    assert np.diag(usual.covariance_prior_).min() > 100


def test_priors_stay_while_a_fit_is_annealed():
    """Priors that are learned from merged components would keep them merged."""
    method = DeterministicAnnealing(initial_temperature=50.0, n_passes=30)
    short = {"annealing": method, "max_iter": 0, "effort": 0, **AUTO}
    annealed, start = fitted(rows(), **short), fitted(rows(), max_iter=0, **AUTO)
    assert np.array_equal(values_of(annealed), values_of(start))


# Weights, batches, restarts, storage


@in_turn(covariance_type=COVARIANCE_TYPES, factorization=FACTORIZATIONS)
def test_minibatches_learn(covariance_type, factorization):
    settings = {
        "batch_size": 40,
        "max_iter": 30,
        "covariance_type": covariance_type,
        "factorization": factorization,
    }
    mixture = fitted(rows(), **settings, **AUTO)
    assert np.isfinite(values_of(mixture)).all()
    assert mixture.lower_bound_ > fitted(rows(), **settings).lower_bound_


def test_minibatches_end_near_priors_that_all_rows_confirm():
    X = rows(n=100)
    parts = fitted(X, batch_size=100, max_iter=200, **AUTO)
    found = values_of(parts)
    parts.set_params(batch_size=None, warm_start=True, max_iter=500, tol=1e-8).fit(X)
    assert np.allclose(values_of(parts), found, rtol=0.25, atol=0.25)


def test_streams_learn_concentrations_after_a_hundred_batches():
    X = rows(n=40)
    # With more passes the stream would begin anew, with a fit, which learns concentrations.
    mixture = AnnealedBayesianGaussianMixture(n_components=6, max_iter=1, random_state=0, **AUTO)
    mixture.partial_fit(X)
    concentration, first = mixture.weight_concentration_prior_, values_of(mixture)
    for part in np.array_split(X, 10):
        mixture.partial_fit(part)
    assert mixture.weight_concentration_prior_ == concentration
    before = values_of(mixture)
    assert not np.allclose(first, before)
    for _ in range(10):
        for part in np.array_split(X, 10):
            mixture.partial_fit(part)
    assert np.isfinite(values_of(mixture)).all()
    assert mixture.weight_concentration_prior_ != concentration


# Edges


@all_factorizations
@all_covariance_types
def test_a_single_component_with_few_rows_keeps_the_priors_of_none(covariance_type, factorization):
    """A prior that is learned from few rows would repeat them with too much certainty."""
    settings = {
        "n_components": 1,
        "covariance_type": covariance_type,
        "factorization": factorization,
    }
    few, enough = rows()[:49], rows()[:50]
    mixture, plain = fitted(few, **settings, **AUTO), fitted(few, **settings)
    for name in GAUSSIAN:
        np.testing.assert_array_equal(
            getattr(mixture, name + "_"), getattr(plain, name + "_"), strict=True
        )
    learned = fitted(enough, **settings, **AUTO)
    assert learned.mean_precision_prior_ > plain.mean_precision_prior_
    assert learned.lower_bound_ > fitted(enough, **settings).lower_bound_ + 3


@all_weight_priors
def test_the_weight_of_a_single_component_costs_nothing(weight_prior):
    """With a learned concentration the bound is the evidence, as with Dirichlet weights."""
    settings = {"n_components": 1, "reg_covar": 0, "weight_concentration_prior_type": weight_prior}
    one = fitted(rows(), **settings, weight_concentration_prior="auto")
    d, n = 2, len(rows())
    evidence = _log_evidence(rows(), one.mean_prior_, one.covariance_prior_, n, d)
    assert one.lower_bound_ == pytest.approx(evidence, abs=1e-4)
    if weight_prior == "dirichlet_process":
        without_end = fitted(rows(), **settings)
        assert without_end.lower_bound_ == pytest.approx(evidence - np.log(n + 1), abs=1e-4)


def _log_evidence(X, mean, scale, n, d):
    """The log evidence of a Normal-Wishart model with β₀ = 1 and ν₀ = d."""
    center = X.mean(axis=0)
    scatter = (X - center).T @ (X - center)
    shift = center - mean
    posterior = scale + scatter + n / (1 + n) * np.outer(shift, shift)
    log_det, log_det_0 = (np.linalg.slogdet(each)[1] for each in (posterior, scale))
    found = multigammaln((d + n) / 2, d) - multigammaln(d / 2, d)
    found += d / 2 * log_det_0 - (d + n) / 2 * log_det
    return found - d / 2 * np.log(1 + n) - n * d / 2 * np.log(np.pi)


def test_the_bound_chooses_as_many_components_as_there_are_groups():
    X, _ = clusters(0, 60, ((0, 0), (12, 0), (0, 12)))
    bounds = {}
    for k in (2, 3, 5):
        mixture = AnnealedBayesianGaussianMixture(n_components=k, random_state=0).fit(X)
        bounds[k] = mixture.lower_bound_
        assert mixture.n_effective_components_ == min(k, 3)
    assert max(bounds, key=bounds.get) == 3


@all_factorizations
def test_components_that_share_a_covariance_do_not_learn_its_prior(factorization):
    settings = {"covariance_type": "tied", "factorization": factorization, "max_iter": 200}
    both = dict.fromkeys(("covariance_prior", "degrees_of_freedom_prior"), "auto")
    mixture, plain = fitted(rows(), **settings, **both), fitted(rows(), **settings)
    assert np.array_equal(values_of(mixture), values_of(plain))
    assert np.array_equal(mixture.lower_bounds_, plain.lower_bounds_)
    everything = fitted(rows(), **settings, **AUTO)
    for name in PRIORS:
        same = np.array_equal(getattr(everything, name + "_"), getattr(plain, name + "_"))
        assert same == (name in both)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_priors_are_learned_by_default():
    short = {"annealing": "none", "max_iter": 8, "random_state": 0}
    default = AnnealedBayesianGaussianMixture(6, **short).fit(rows())
    assert np.array_equal(values_of(default), values_of(fitted(rows(), **short, **AUTO)))


@pytest.mark.parametrize("X", [np.ones((9, 2)), np.ones((1, 2)), np.full((9, 2), 1e200)])
def test_data_without_a_covariance_are_refused_as_without_learning(X):
    """The prior begins at the value of None, which such data do not have."""
    messages = []
    for priors in (NONE, AUTO):
        with pytest.raises(ValueError) as caught:
            fitted(X, n_components=2, reg_covar=0, **priors)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("name", PRIORS)
def test_other_words_are_refused(name):
    with pytest.raises(ValueError, match=f"The '{name}' parameter"):
        fitted(rows(), **{name: "learned"})


@all_factorizations
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("reg_covar", [0.0, pytest.param(1e-6, marks=pytest.mark.exhaustive)])
def test_components_of_equal_rows_leave_priors_finite(covariance_type, factorization, reg_covar):
    X = np.repeat(clusters(0, 10)[0], 8, axis=0)
    X = np.vstack([X, np.repeat([[20.0, 20.0], [-20.0, 3.0]], 300, axis=0)])
    mixture = fitted(
        X,
        n_components=5,
        covariance_type=covariance_type,
        factorization=factorization,
        reg_covar=reg_covar,
        max_iter=200,
        **AUTO,
    )
    assert np.isfinite(values_of(mixture)).all()
    bounds = mixture.lower_bounds_
    assert np.isfinite(bounds).all()
    if not reg_covar:
        # Covariances of equal rows are nearly singular. Rounding changes the bound by some 1e-4
        # nats of 5,000, as data that differ in their last digits show. With independent factors a
        # component has two clumps of 300 rows on a line here, and a covariance with the condition
        # 1e10, of which six digits of the smaller eigenvalue are left.
        one_line = (covariance_type, factorization) == ("full", "independent")
        assert np.diff(bounds).min() >= (-0.1 if one_line else -1e-7 * abs(bounds[-1]))


@in_turn(covariance_type=COVARIANCE_TYPES, weight_prior=WEIGHT_PRIORS)
def test_empty_components_leave_priors_finite(covariance_type, weight_prior):
    X = clusters(2, 30)[0]
    mixture = fitted(
        X,
        n_components=25,
        covariance_type=covariance_type,
        weight_concentration_prior_type=weight_prior,
        init_params="random",
        max_iter=150,
        **AUTO,
    )
    assert np.isfinite(values_of(mixture)).all()
    assert (np.diff(mixture.lower_bounds_) >= -1e-6).all()


def test_few_rows_in_many_dimensions_teach_the_diagonal_alone():
    X = np.random.default_rng(0).normal(size=(15, 10))
    mixture = fitted(X, n_components=2, covariance_prior="auto", max_iter=300)
    learned = np.diagonal(mixture.covariance_prior_)
    assert np.array_equal(mixture.covariance_prior_, np.diag(learned))
    ratio = learned / X.var(axis=0)
    assert ratio.max() > 1.1 * ratio.min()


def few_rows(seed, loading):
    """Rows of two groups in more columns than rows, which depend on each other if asked for."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(24, 40)) + loading * rng.normal(size=(24, 1)) * rng.normal(size=40)
    X[:9] += rng.normal(size=40)
    return X


@in_turn(k=(2, 3, 4), loading=(0.0, 1.0), others=("all", "dof given", "means given"))
def test_priors_of_few_rows_take_a_fifth_of_the_steps_once_rows_stay(k, loading, others):
    """Steps raise the bound given the statistics, to where steps for fixed q get after hundreds."""
    given = {"dof given": PRIORS[2:3], "means given": PRIORS[:2], "all": ()}[others]
    settings = {**AUTO, **dict.fromkeys(given), "n_components": k, "max_iter": 1}
    ctx = fitted(few_rows(k, loading), **settings)._context()
    first = ctx.model.components
    prior, q = ({key: each[key] for key in first.keys} for each in (ctx.prior, ctx.q))
    statistics = {key: q[key] - prior[key] for key in q}

    def bounds(n_steps, rows_stay):
        components, before, found = first, prior, []
        for _ in range(n_steps):
            after = {key: before[key] + value for key, value in statistics.items()}
            family, own = components.factors[0].family, components.factors[0].pick
            gain = family.log_normalizer(own(after)) - family.log_normalizer(own(before))
            found.append(float(np.sum(gain)) - components.hyperparameter_kl())
            components, before = components.learned(after, before, 1.0, True, rows_stay)
        return np.array(found)

    together, alone = bounds(100, True), bounds(300, False)
    # Precisions are up to a million, so that terms of the bound lose six more digits.
    assert min(np.diff(together).min(), np.diff(alone).min()) > -1e-5
    assert together[-1] > alone[-1] - 1e-3
    assert together[5] > alone[20]
    assert together[20] > alone[100]
    assert together[25] > together[-1] - 1e-2


@in_turn(k=(1, 2, 3), n=(8, 20, 40), loading=(0.0, 2.0))
def test_steps_end_where_no_other_prior_is_better(k, n, loading):
    """Given the statistics, a search over V, ν₀, β₀ and m₀ together finds nothing above."""
    rng, d = np.random.default_rng(k), 5
    X = rng.normal(size=(n, d)) + loading * rng.normal(size=(n, 1)) * rng.normal(size=d)
    X[: n // 2] += 3.0 * rng.normal(size=d)
    ctx = fitted(X, **AUTO, n_components=k, max_iter=3)._context()
    components = ctx.model.components
    before, q = ({key: each[key] for key in components.keys} for each in (ctx.prior, ctx.q))
    statistics = {key: q[key] - before[key] for key in q}

    def bound(components, prior):
        after = {key: prior[key] + value for key, value in statistics.items()}
        family, own = components.factors[0].family, components.factors[0].pick
        gain = family.log_normalizer(own(after)) - family.log_normalizer(own(prior))
        return float(np.sum(gain)) - components.hyperparameter_kl()

    for _ in range(300):
        after = {key: before[key] + value for key, value in statistics.items()}
        components, before = components.learned(after, before, 1.0, True, True)
    root = np.linalg.cholesky(components.common_scale)
    center, least = components.prior_means(before)[0], components.least_dof
    most = d + 10.0 * max(components.n_rows, 1.0)
    diagonal = np.count_nonzero(components.common_scale) == d
    lower = np.diag_indices(d) if diagonal else np.tril_indices(d)

    def moved(x):
        new, change = copy(components), np.zeros((d, d))
        change[lower] = x[: len(lower[0])]
        dof, strength, *shift = x[len(lower[0]) :]
        new.degrees_of_freedom_prior = np.clip(
            components.degrees_of_freedom_prior * np.exp(dof), least, most
        )
        strength = components.mean_precision_prior * np.exp(strength)
        new.mean_precision_prior = np.clip(strength, 1e-8, max(n, 1.0))
        factor = root @ (np.eye(d) + change)
        new.set_scale(factor @ factor.T, new.sizes)
        return -bound(new, new.natural_prior(center + np.array(shift)))

    found = minimize(moved, np.zeros(len(lower[0]) + 2 + d), method="BFGS", options={"gtol": 1e-4})
    assert -found.fun < bound(components, before) + 1e-3


def groups(seed, n, d, k):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 3.0 * rng.normal(size=(k, d))[np.arange(n) % k]


@pytest.mark.parametrize(("n", "d", "k"), [(60, 20, 3), (150, 20, 2), (20, 40, 3), (90, 30, 4)])
@pytest.mark.parametrize("seed", range(3))
def test_priors_of_components_that_are_alike_take_few_passes(n, d, k, seed):
    """ν₀ rises far above the columns, and V with it, for which small steps take 50 passes or so."""
    settings = {"annealing": "none", "random_state": 0, "max_iter": 200}
    mixture = AnnealedBayesianGaussianMixture(k, **settings).fit(groups(seed, n, d, k))
    assert mixture.degrees_of_freedom_prior_ > 100.0
    assert len(mixture.lower_bounds_) < 20
    assert np.diff(mixture.lower_bounds_).min() > -1e-6


def wide(seed, kind):
    """Rows for a fit and as many others, in twice as many columns as rows."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 2, 60)
    X = rng.normal(size=(60, 60))
    if kind == "groups":
        X += 1.6 * groups[:, None] * rng.normal(size=60)
    elif kind == "factor":
        X += 2.0 * rng.normal(size=(60, 1)) * rng.normal(size=60)
    return X[:30], X[30:]


@pytest.mark.parametrize("kind", ["noise", "groups", "factor"])
@pytest.mark.parametrize("n_components", [1, 2])
def test_rows_in_directions_without_data_are_expected(kind, n_components):
    """Held-out rows of wide tables are predicted better than by shrinkage to a common variance.

    Noise has a common variance, which a diagonal has to learn for each column.
    """
    for seed in range(3):
        X, others = wide(seed, kind)
        mixture = AnnealedBayesianGaussianMixture(n_components, effort=0, random_state=0).fit(X)
        lost = 1.5 if kind == "noise" else 0.0
        assert mixture.score(others) > LedoitWolf().fit(X).score(others) - lost


@pytest.mark.parametrize("n_components", [1, 2])
def test_the_prior_of_very_few_rows_does_not_shrink(n_components):
    """The bound would be highest where variances vanish in all directions without rows."""
    X = np.random.default_rng(0).normal(size=(8, 60))
    mixture = AnnealedBayesianGaussianMixture(n_components, random_state=0).fit(X)
    learned = np.diagonal(mixture.covariance_prior_) / mixture.degrees_of_freedom_prior_
    assert np.median(learned / X.var(axis=0)) > 0.04
    one = AnnealedBayesianGaussianMixture(1, random_state=0).fit(X)
    assert mixture.lower_bound_ < one.lower_bound_ + 1.0


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_a_diagonal_needs_no_regularisation(covariance_type):
    X = np.random.default_rng(0).normal(size=(15, 20))
    settings = {"covariance_type": covariance_type, "random_state": 0}
    mixture = AnnealedBayesianGaussianMixture(2, reg_covar=0.0, **settings).fit(X)
    other = AnnealedBayesianGaussianMixture(2, reg_covar=0.0, **settings).fit(1e-3 * X)
    assert other.score(1e-3 * X) == pytest.approx(mixture.score(X) - 20 * np.log(1e-3), abs=1e-4)
    X[:, 3] = 1.0
    with pytest.raises(ValueError, match="not positive definite"):
        AnnealedBayesianGaussianMixture(2, reg_covar=0.0, **settings).fit(X)


@pytest.mark.parametrize(("kind", "n_groups"), [("noise", 1), ("factor", 1), ("groups", 2)])
def test_the_bound_of_wide_tables_is_highest_at_the_number_of_groups(kind, n_groups):
    X = wide(0, kind)[0]
    bounds = [
        AnnealedBayesianGaussianMixture(k, random_state=0).fit(X).lower_bound_ for k in (1, 2)
    ]
    assert np.argmax(bounds) + 1 == n_groups


@pytest.mark.parametrize(
    ("counts", "best"), [((50, 0, 0), SMALLEST), ((0, 50, 0), None), ((0, 0, 50), LARGEST)]
)
def test_a_concentration_that_is_best_at_a_limit_is_there_at_once(counts, best):
    weights = StickBreakingWeights(3, "auto")
    statistics = weights.statistics(np.array(counts, dtype=float))
    bounds = []
    for _ in range(50):
        prior = weights.prior()
        q = {key: prior[key] + value for key, value in statistics.items()}
        normalizer, own = weights.factor.family.log_normalizer, weights.factor.pick
        bounds.append(float(np.sum(normalizer(own(q)) - normalizer(own(prior)))))
        weights, _ = weights.learned(q, prior, 1.0, True)
        assert best is None or weights.concentration == best
    assert np.diff(bounds).min() > -1e-9
    assert (weights.concentration in (SMALLEST, LARGEST)) == (best is not None)


def with_more_columns(X, kind):
    """X with a column that says nothing new, or noise with more columns than rows."""
    if kind == "constant":
        return np.column_stack([X, np.full(len(X), 2.0)])
    if kind == "repeated":
        return np.column_stack([X, X[:, 0]])
    if kind == "sum":
        return np.column_stack([X, X[:, 0] + X[:, 1]])
    return np.random.default_rng(1).normal(size=(30, 35))


@in_turn(
    covariance_type=COVARIANCE_TYPES, kind=("constant", "repeated", "sum", "wide"), seed=range(2)
)
def test_the_bound_never_falls_where_columns_depend_on_each_other(covariance_type, kind, seed):
    X = with_more_columns(rows(seed), kind)
    settings = {"n_components": 3, "covariance_type": covariance_type, **AUTO}
    mixture = fitted(X, **settings, tol=0.0, max_iter=40)
    rises = np.diff(mixture.lower_bounds_)
    # Precisions are up to a million, so that terms of the bound lose six more digits.
    assert rises.min() >= -1e-5
    assert mixture.lower_bound_ == pytest.approx(complete_bound(mixture, X), abs=1e-5)


@in_turn(kind=("constant", "repeated", "sum"), seed=range(3))
def test_columns_that_say_nothing_new_leave_groups_as_they_are(kind, seed):
    rng = np.random.default_rng(seed)
    labels = np.repeat([0, 1], 60)
    X = rng.normal(size=(120, 4)) + 5.0 * labels[:, None] * [1, 1, 0, 0]
    mixture = AnnealedBayesianGaussianMixture(n_components=3, random_state=0)
    found = mixture.fit_predict(with_more_columns(X, kind))
    assert adjusted_rand_score(labels, found) == 1.0


@pytest.mark.filterwarnings("ignore:reg_covar=")
@pytest.mark.parametrize("name", PRIORS)
@all_covariance_types
def test_rows_have_noise_only_where_a_prior_of_the_components_is_learned(covariance_type, name):
    X = 1e-3 * rows(0)
    settings = {"n_components": 3, "covariance_type": covariance_type, "tol": 0.0}
    mixture = fitted(X, **settings, **(NONE | {name: "auto"}))
    # Components with a tied covariance learn priors of means alone.
    if covariance_type == "tied" and name in ("degrees_of_freedom_prior", "covariance_prior"):
        assert mixture.lower_bound_ == fitted(X, **settings).lower_bound_
        return
    assert mixture.lower_bound_ == pytest.approx(complete_bound(mixture, X), rel=1e-9)
    if name != "weight_concentration_prior":
        assert np.diff(mixture.lower_bounds_).min() >= -1e-8 * abs(mixture.lower_bound_)


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_weights_of_few_rows_are_repeated_rows(covariance_type):
    """Groups that every start finds have the same result, also where a diagonal is the prior."""
    rng = np.random.default_rng(1)
    X, weights = rng.normal(size=(12, 30)), rng.integers(1, 4, size=12)
    X[6:] += 20.0
    mixture = AnnealedBayesianGaussianMixture(
        2, covariance_type=covariance_type, annealing="none", random_state=0
    )
    weighted = clone(mixture).fit(X, sample_weight=weights).reorder("weight")
    repeated = clone(mixture).fit(X.repeat(weights, axis=0)).reorder("weight")
    assert weighted.lower_bound_ == pytest.approx(repeated.lower_bound_, rel=1e-6)
    assert_allclose(weighted.means_, repeated.means_, atol=1e-4)
    assert_allclose(weighted.covariance_prior_, repeated.covariance_prior_, rtol=1e-4)


@in_turn(unit=(1e-90, 1e90), n=(12, 40), k=(1, 3))
def test_units_do_not_matter_to_priors_of_few_rows(unit, n, k):
    """Products of two variances leave the range of numbers."""
    X = groups(0, n, 6, 3) + np.random.default_rng(1).normal(size=(n, 1)) * np.arange(1.0, 7.0)
    mixture = AnnealedBayesianGaussianMixture(k, reg_covar=0.0, annealing="none", random_state=0)
    usual, other = clone(mixture).fit(X), clone(mixture).fit(unit * X)
    expected = usual.lower_bound_ - X.size * np.log(unit)
    assert other.lower_bound_ == pytest.approx(expected, abs=1e-3)
    assert_allclose(other.degrees_of_freedom_prior_, usual.degrees_of_freedom_prior_, rtol=1e-2)
    assert_allclose(other.means_ / unit, usual.means_, atol=1e-2)
