"""Tests of Gaussians of few columns, whose steps are kernels, against the plain forms."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris, load_wine

from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedHMM
from sklearn_anneal.data.units import Rows
from sklearn_anneal.families import NormalWishart
from sklearn_anneal.models.components import _narrow_gaussians as narrow
from sklearn_anneal.models.components._features import FeatureSums
from sklearn_anneal.models.components.fused_gaussian import FusedGaussian
from sklearn_anneal.models.components.gaussian_columns import GaussianColumns

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SIZES = [(1, 1), (1, 3), (3, 1), (2, 4), (5, 7)]
KEYS = ("dof", "mean_precision", "mean_natural", "scatter")


def components_of(k, d, rng, n_rows=400, covariance_type="full", **priors):
    """Components whose priors are learned, and the center of their data."""
    X = 3.0 * rng.standard_normal((n_rows, d)) @ rng.standard_normal((d, d)) + 50.0
    if not priors:
        names = "mean_precision_prior", "mean_prior", "degrees_of_freedom_prior", "covariance_prior"
        priors = dict.fromkeys(names, "auto")
    components = FusedGaussian(k, d, covariance_type, **priors)
    rows = Rows(X, None)
    summary = components.summary(rows)
    return components.resolved(summary), summary


def state_of(k, d, rng, **how):
    """Components, a prior, and parameters after statistics of rows that belong to several."""
    components, summary = components_of(k, d, rng, **how)
    prior = components.prior(summary)
    shares = rng.dirichlet(np.full(k, 0.2), int(summary.seen))
    X = rng.standard_normal((len(shares), d)) @ rng.standard_normal((d, d)) + shares @ (
        4.0 * rng.standard_normal((k, d))
    )
    second = np.einsum("nk,ni,nj->kij", shares, X, X)
    form, shared = components.form, np.zeros((1, 0))
    places = np.triu_indices(d) if form in ("full", "tied") else (np.arange(d), np.arange(d))
    products = second[:, places[0], places[1]]
    if form == "tied":
        products, shared = np.zeros((k, 0)), products.sum(axis=0, keepdims=True)
    elif form == "spherical":
        products = products.sum(axis=1, keepdims=True)
    own = [products, shares.T @ X, shares.sum(axis=0)[:, None]]
    raw = FeatureSums(form, np.concatenate(own, axis=1), shared)
    q = {key: prior[key] + value for key, value in components.statistics(raw).items()}
    return components, prior, q, raw


def plainly(monkeypatch, make):
    """What the plain forms lead to."""
    with monkeypatch.context() as patched:
        patched.setattr(narrow, "MOST_COLUMNS", 0)
        return make()


all_forms = pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])


@all_forms
@pytest.mark.parametrize(("k", "d"), SIZES)
def test_statistics_moments_features_and_divergence(k, d, covariance_type, rng, monkeypatch):
    components, prior, q, raw = state_of(k, d, rng, covariance_type=covariance_type)
    assert components.is_narrow
    plain = plainly(monkeypatch, lambda: components.statistics(raw))
    for key, value in components.statistics(raw).items():
        assert_allclose(value, plain[key], rtol=1e-13)
    same_densities_and_divergence(components, prior, q, np.log(rng.dirichlet(np.ones(k))))


def same_densities_and_divergence(components, prior, q, log_weights):
    """The kernels agree with the plain forms about these natural parameters."""
    found = narrow.moments(components, q)
    for one, other in zip(found, components.moments(q), strict=True):
        if one is not None:
            assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    own = narrow.features(components, q, found, log_weights)
    plain = components.expectations(q, None, log_weights)
    assert_allclose(own.own, plain.own, rtol=1e-9, atol=1e-9)
    assert_allclose(own.shared, plain.shared, rtol=1e-9, atol=1e-9)
    assert_allclose(own.terms.constant, plain.terms.constant, rtol=1e-9)
    divergence = narrow.divergence(components, q, prior, found)
    family, pick = components._normal_wishart, components.factors[0].pick
    assert_allclose(divergence, family.kl(pick(q), pick(prior)), rtol=1e-10)


@all_forms
@pytest.mark.parametrize("share", [0.0, 1e-9, 0.3])
def test_components_of_few_rows(share, covariance_type, rng, monkeypatch):
    """One component has no row, or hardly any, or a high temperature leaves a share of all rows."""
    components, prior, _, raw = state_of(3, 4, rng, covariance_type=covariance_type)
    if share == 0.3:
        raw = FeatureSums(raw.layout, share * raw.own, share * raw.shared)
    else:
        raw.own[0] *= share
    q = {key: prior[key] + value for key, value in components.statistics(raw).items()}
    same_densities_and_divergence(components, prior, q, np.log(rng.dirichlet(np.ones(3))))
    found, new = narrow.learned(components, q, prior, None)
    plain, expected = plainly(monkeypatch, lambda: components.learned(q, prior, 1.0, True))
    for key in KEYS:
        assert_allclose(new[key], expected[key], rtol=1e-7, atol=1e-9)
    assert_allclose(found.mean_prior, plain.mean_prior, rtol=1e-9)


@all_forms
@pytest.mark.parametrize(("k", "d"), SIZES)
@pytest.mark.parametrize("n_rows", [14, 400])
def test_steps_of_empirical_bayes(k, d, n_rows, covariance_type, rng, monkeypatch):
    """With few rows, the covariance prior is a diagonal, or has a prior of its own."""
    how = {"n_rows": n_rows, "covariance_type": covariance_type}
    components, prior, q, _ = state_of(k, d, rng, **how)
    # The second of two steps has sizes that differ, and a mean that is not that of the data.
    for _ in range(2):
        known = {}
        found, new = narrow.learned(components, q, prior, known)
        plain, expected = plainly(monkeypatch, partial(components.learned, q, prior, 1.0, True))
        for key in KEYS:
            assert_allclose(new[key], expected[key], rtol=1e-7, atol=1e-9)
        for name in ("mean_precision_prior", "degrees_of_freedom_prior", "scale_loss"):
            assert_allclose(getattr(found, name), getattr(plain, name), rtol=1e-7, atol=1e-12)
        assert_allclose(found.mean_prior, plain.mean_prior, rtol=1e-9)
        assert_allclose(found.common_scale, plain.common_scale, rtol=1e-7, atol=1e-9)
        assert type(found.mean_precision_prior) is type(plain.mean_precision_prior)
        if found.sizes is None:
            assert plain.sizes is None
        else:
            assert_allclose(found.sizes.mean, plain.sizes.mean, rtol=1e-7)
            assert found.sizes.kl_at is not None
            anew = replace(found.sizes).kl(found.degrees_of_freedom_prior, d)
            assert_allclose(found.hyperparameter_kl() - found.scale_loss, anew, atol=1e-8)
            assert_allclose(found.hyperparameter_kl(), plain.hyperparameter_kl(), atol=1e-6)
            # The divergence of some of the components is not that of all of them.
            first, dof = found.sizes.reordered(np.arange(1)), found.degrees_of_freedom_prior
            assert_allclose(first.kl(dof, d), replace(first).kl(dof, d), rtol=1e-12)
            changed = found.sizes.kl(2.0 * dof, d)
            assert_allclose(changed, replace(found.sizes).kl(2.0 * dof, d), rtol=1e-12)
        moved = {key: q[key] + new[key] - prior[key] for key in KEYS}
        next_one = known["next"]
        for key in KEYS:
            assert_allclose(next_one.q[key], moved[key], rtol=1e-13, atol=1e-13)
        for one, other in zip(next_one.moments, found.moments(moved), strict=True):
            if one is not None:
                assert_allclose(one, other, rtol=1e-9, atol=1e-12)
        components, prior, q = found, new, next_one.q


def test_a_matrix_with_a_prior_of_its_own(rng, monkeypatch):
    components, prior, q, _ = state_of(3, 4, rng, n_rows=12)
    mixed = rng.standard_normal((4, 4))
    components.set_scale(components.common_scale + 0.3 * mixed @ mixed.T, components.sizes)
    assert components.scale_prior_dof < np.inf
    change = components.natural_prior(components.prior_means(prior))
    q = {key: q[key] + change[key] - prior[key] for key in KEYS}
    found, new = narrow.learned(components, q, change, None)
    plain, expected = plainly(monkeypatch, lambda: components.learned(q, change, 1.0, True))
    assert_allclose(found.scale_loss, plain.scale_loss, rtol=1e-6)
    for key in KEYS:
        assert_allclose(new[key], expected[key], rtol=1e-7, atol=1e-9)


@all_forms
def test_what_needs_care_is_left_to_the_plain_forms(covariance_type, rng):
    components, prior, q, _ = state_of(2, 3, rng, covariance_type=covariance_type)
    bad = q | {"scatter": q["scatter"] * -1.0}
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        narrow.moments(components, bad)
    assert narrow.learned(components, bad, prior, None) is None
    if covariance_type != "tied":
        # The prior would become narrower than is permitted.
        tight = copy(components)
        tight.reference = 1e12 * tight.reference
        assert narrow.learned(tight, q, prior, None) is None
    # A divergence from a prior that counts as many rows would lose its digits.
    found, strong = narrow.moments(components, q), prior | {"dof": prior["dof"] + 1e9}
    assert narrow.divergence(components, q, strong, found) is None
    # A prior that is given is not learned.
    given, _ = components_of(2, 3, rng, mean_prior="auto")
    assert narrow.learned(given, q, prior, None) is None


@all_forms
@pytest.mark.parametrize(
    "what",
    [
        *("iris", "wine", "equal rows", "weights", "two rows", "float32"),
        *("temperatures", "momentum", "chains"),
    ],
)
def test_fits_are_those_of_the_plain_forms(what, covariance_type, rng, monkeypatch):
    X, weights, estimator = load_iris().data, None, AnnealedBayesianGaussianMixture
    settings = {"annealing": "none", "random_state": 0, "max_iter": 30}
    if what == "wine":
        X = load_wine().data
    elif what == "equal rows":
        X = np.repeat(X[::10], 10, axis=0)
    elif what == "two rows":
        X = X[[0, 100]]
    elif what == "float32":
        X = X.astype(np.float32)
    elif what == "weights":
        weights = rng.integers(1, 4, len(X)).astype(float)
        weights[:20] = 0.0
    elif what == "temperatures":
        settings |= {"annealing": "deterministic", "max_iter": 80}
    elif what == "momentum":
        settings |= {"tol": 1e-9, "max_iter": 300}
    elif what == "chains":
        estimator = AnnealedHMM

    def make():
        how = {} if weights is None else {"sample_weight": weights}
        return estimator(2, covariance_type=covariance_type, **settings).fit(X, **how)

    found, plain = make(), plainly(monkeypatch, make)
    n = min(len(found.lower_bounds_), len(plain.lower_bounds_), 12)
    assert_allclose(found.lower_bounds_[:n], plain.lower_bounds_[:n], rtol=1e-7)
    assert_allclose(found.lower_bound_, plain.lower_bound_, rtol=1e-6)
    assert_allclose(found.means_, plain.means_, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("k", "d"), SIZES)
def test_columns_of_independent_gaussians(k, d, rng):
    """Each of them is a Gaussian of one column."""
    X = 3.0 * rng.standard_normal((40, d)) + 50.0
    components = GaussianColumns(k, d)
    summary = components.summary(Rows(X, None))
    components = components.resolved(summary)
    prior = components.prior(summary)
    q = components.random_natural(rng.gamma(2.0, 5.0, k), summary, prior, rng)
    components, prior = components._learned(q, prior, 0.5)
    known, log_weights = components.known(q, None), np.log(rng.dirichlet(np.ones(k)))
    joint = components.joint_expectations(q, log_weights, known=known)
    plain = components.joint_expectations(q, log_weights)
    for one, other in zip(joint.own, plain.own, strict=True):
        assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    family, pick = components.factors[0].family, components.factors[0].pick
    expected = family.kl(pick(q), pick(prior))
    assert_allclose(components.kl_given(q, prior, known), expected, rtol=1e-10)
    strong = prior | {"dof": prior["dof"] + 1e9}
    assert components.kl_given(q, strong, known) is None


@all_forms
@pytest.mark.parametrize(("k", "d"), SIZES)
def test_changes_stay_inside_the_domain(k, d, covariance_type, rng, monkeypatch):
    """Components that would leave it stay as they are, and so do those that would lose half."""
    components, prior, q, _ = state_of(k, d, rng, covariance_type=covariance_type)
    (factor,) = components.factors
    family = factor.family
    shared = components.shared_keys
    for size in (0.1, 1.0, 30.0):
        change = {}
        for key, value in q.items():
            rows = () if key in shared else (k, *(1,) * (value.ndim - 1))
            change[key] = size * (value - prior[key]) * rng.normal(size=rows)
        found = family.extended(q, change, prior)
        plain = super(NormalWishart, family).extended(q, change, prior)
        for key in KEYS:
            assert_allclose(found[key], plain[key], rtol=1e-13, atol=1e-13)
        kept = (found["dof"] == q["dof"]).sum()
        assert kept > 0 or size < 30.0
