"""Properties of the estimator `AnnealedBayesianGaussianMixture`."""

from __future__ import annotations

import pickle
import warnings
from functools import cache

import numpy as np
import pytest
from harness import finish_run, open_run
from scipy.special import betaln, digamma, gammaln, logsumexp, multigammaln
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.mixture import BayesianGaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.annealing import (
    ANNEALING,
    DeterministicAnnealing,
    LocalVariationalTempering,
    StochasticAnnealing,
)
from sklearn_anneal.inference.units import Rows

COVARIANCE_TYPES = ("full", "tied", "diag", "spherical")
WEIGHT_PRIORS = ("dirichlet_process", "dirichlet_distribution")
FACTORIZATIONS = ("joint", "independent")
STARTS = ("kmeans", "k-means++", "random", "random_from_data")
PEER_ATTRIBUTES = (
    "weights_",
    "means_",
    "covariances_",
    "precisions_",
    "precisions_cholesky_",
    "weight_concentration_",
    "mean_precision_",
    "degrees_of_freedom_",
)

all_covariance_types = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
all_weight_priors = pytest.mark.parametrize("weight_prior", WEIGHT_PRIORS)
all_factorizations = pytest.mark.parametrize("factorization", FACTORIZATIONS)
all_methods = pytest.mark.parametrize("annealing", ANNEALING)


@cache
def real_data(name):
    if name == "iris":
        return load_iris().data
    if name == "wine":
        return load_wine().data
    return PCA(8, random_state=0).fit_transform(load_digits().data)[::4]


def clusters(seed=0, n=40, centers=((0, 0), (6, 0), (0, 6)), scale=1.0):
    """Rows around well-separated centers, in random order, and their labels."""
    rng = np.random.default_rng(seed)
    centers = np.asarray(centers, dtype=float)
    labels = rng.permutation(np.repeat(np.arange(len(centers)), n))
    return centers[labels] + scale * rng.normal(size=(len(labels), centers.shape[1])), labels


def parameters_of(mixture):
    """All fitted parameters in one vector."""
    parts = []
    for name in PEER_ATTRIBUTES:
        value = getattr(mixture, name)
        parts += value if isinstance(value, tuple) else [value]
    return np.concatenate([np.ravel(part) for part in parts])


def assert_same_parameters(mixture, other, relative):
    for name in PEER_ATTRIBUTES:
        ours, theirs = np.asarray(getattr(mixture, name)), np.asarray(getattr(other, name))
        assert ours.shape == theirs.shape, name
        error = np.abs(ours - theirs).max() / np.abs(theirs).max()
        assert error <= relative, f"{name}: relative error {error:.1e}"


# What scikit-learn's class computes


@pytest.mark.parametrize("init_params", STARTS)
@all_weight_priors
@all_covariance_types
@pytest.mark.parametrize("name", ["iris", "wine", "digits"])
def test_parameters_are_those_of_scikit_learn(name, covariance_type, weight_prior, init_params):
    settings = {
        "n_components": 5,
        "covariance_type": covariance_type,
        "weight_concentration_prior_type": weight_prior,
        "init_params": init_params,
        "random_state": 3,
        "tol": 0,
    }
    for n_passes in (20, 100):
        peer = BayesianGaussianMixture(**settings, max_iter=n_passes).fit(real_data(name))
        ours = AnnealedBayesianGaussianMixture(**settings, max_iter=n_passes, annealing="none")
        ours.fit(real_data(name))
        assert ours.n_iter_ == len(ours.lower_bounds_) == n_passes
        assert_same_parameters(ours, peer, 1e-6)


@all_weight_priors
@all_covariance_types
def test_predictions_and_draws_are_those_of_scikit_learn(covariance_type, weight_prior):
    X = real_data("wine")
    settings = {
        "n_components": 4,
        "covariance_type": covariance_type,
        "weight_concentration_prior_type": weight_prior,
        "random_state": 1,
        "max_iter": 30,
        "tol": 0,
    }
    peer = BayesianGaussianMixture(**settings).fit(X[::2])
    ours = AnnealedBayesianGaussianMixture(**settings, annealing="none").fit(X[::2])
    np.testing.assert_array_equal(ours.predict(X), peer.predict(X))
    np.testing.assert_allclose(ours.predict_proba(X), peer.predict_proba(X), rtol=0, atol=1e-8)
    rows, labels = ours.sample(50)
    peer_rows, peer_labels = peer.sample(50)
    np.testing.assert_array_equal(labels, peer_labels)
    np.testing.assert_allclose(rows, peer_rows, rtol=1e-6)


@pytest.mark.parametrize("init_params", STARTS)
def test_max_iter_0_is_the_start_of_scikit_learn(init_params):
    settings = {"n_components": 3, "init_params": init_params, "random_state": 5, "max_iter": 0}
    peer = BayesianGaussianMixture(**settings).fit(real_data("iris"))
    ours = AnnealedBayesianGaussianMixture(**settings, annealing="none").fit(real_data("iris"))
    assert_same_parameters(ours, peer, 1e-9)


# The lower bound


def full_matrix(mixture, matrices):
    """Matrices of a covariance type as full ones, one per component where there are many."""
    n_features = mixture.n_features_in_
    matrices = np.asarray(matrices, dtype=float)
    if mixture.covariance_type == "diag":
        return matrices[..., None] * np.eye(n_features)
    if mixture.covariance_type == "spherical":
        return matrices[..., None, None] * np.eye(n_features)
    return matrices


def complete_bound(mixture, X, responsibilities=None):
    """F by Bishop's equations 10.71-10.77, from public attributes, in nats.

    At given responsibilities, or at the best ones. The model is a mixture with full precision
    matrices for all covariance types; the type restricts the scale of their Wishart factors.
    """
    k, d = mixture.means_.shape
    dof = np.broadcast_to(mixture.degrees_of_freedom_, k)
    shape = np.shape(mixture.degrees_of_freedom_) + (1, 1)
    inverse_scale = full_matrix(mixture, mixture.covariances_)
    inverse_scale = inverse_scale * np.reshape(mixture.degrees_of_freedom_, shape)
    inverse_scale = np.broadcast_to(inverse_scale, (k, d, d))
    prior_scale = full_matrix(mixture, mixture.covariance_prior_)
    prior_dof = mixture.degrees_of_freedom_prior_
    expected_precision = dof[:, None, None] * np.linalg.inv(inverse_scale)
    log_det = digamma((dof[:, None] - np.arange(d)) / 2).sum(axis=1) + d * np.log(2)
    log_det = log_det - np.linalg.slogdet(inverse_scale)[1]

    if mixture.weight_concentration_prior_type == "dirichlet_process":
        a, b = mixture.weight_concentration_
        a0, b0 = np.ones(k), np.full(k, mixture.weight_concentration_prior_)
        log_v, log_rest = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
        log_weights = log_v + np.append(0, np.cumsum(log_rest)[:-1])
        kl = ((a - a0) * log_v + (b - b0) * log_rest - betaln(a, b) + betaln(a0, b0)).sum()
    else:
        a = mixture.weight_concentration_
        a0 = np.full(k, mixture.weight_concentration_prior_)
        log_weights = digamma(a) - digamma(a.sum())
        kl = ((a - a0) * log_weights).sum() + gammaln(a.sum()) - gammaln(a0.sum())
        kl -= (gammaln(a) - gammaln(a0)).sum()

    def log_normalizer(scale, nu):
        log_scale = np.linalg.slogdet(scale)[1]
        return nu * d / 2 * np.log(2) - nu / 2 * log_scale + multigammaln(nu / 2, d)

    beta, beta0 = mixture.mean_precision_, mixture.mean_precision_prior_
    for j in range(k):
        kl += (dof[j] - prior_dof) / 2 * log_det[j]
        kl -= np.sum((inverse_scale[j] - prior_scale) * expected_precision[j]) / 2
        kl += log_normalizer(prior_scale, prior_dof) - log_normalizer(inverse_scale[j], dof[j])
        shift = mixture.means_[j] - mixture.mean_prior_
        kl += d / 2 * (beta0 / beta[j] - 1 - np.log(beta0 / beta[j]))
        kl += beta0 / 2 * shift @ expected_precision[j] @ shift

    difference = X[:, None, :] - mixture.means_
    distance = np.einsum("nki,kij,nkj->nk", difference, expected_precision, difference)
    joint = log_weights + (log_det - d * np.log(2 * np.pi) - d / beta - distance) / 2
    if responsibilities is None:
        return logsumexp(joint, axis=1).sum() - kl
    r = responsibilities
    log_r = np.log(np.where(r > 0, r, 1.0))
    return (r * (joint - log_r)).sum() - kl


def constant_of_scikit_learn(mixture, n_rows):
    """What the lower bound of scikit-learn's class leaves out, in nats."""
    k, d = mixture.means_.shape
    a0 = mixture.weight_concentration_prior_
    if mixture.weight_concentration_prior_type == "dirichlet_process":
        weights = -k * betaln(1, a0)
    else:
        weights = gammaln(k * a0) - k * gammaln(a0)
    nu = mixture.degrees_of_freedom_prior_
    log_scale = np.linalg.slogdet(full_matrix(mixture, mixture.covariance_prior_))[1]
    log_z = nu * d / 2 * np.log(2) - nu / 2 * log_scale + multigammaln(nu / 2, d)
    return (
        weights
        - k * (log_z - d * (d - 1) / 4 * np.log(np.pi))
        + k * d / 2 * np.log(mixture.mean_precision_prior_)
        - n_rows * d / 2 * np.log(2 * np.pi)
    )


@all_weight_priors
@all_covariance_types
@pytest.mark.parametrize("name", ["iris", "wine"])
def test_scikit_learns_bound_is_the_complete_one_but_for_a_constant(
    name, covariance_type, weight_prior
):
    X = real_data(name)
    settings = {
        "n_components": 4,
        "covariance_type": covariance_type,
        "weight_concentration_prior_type": weight_prior,
        "reg_covar": 0,
        "random_state": 2,
        "tol": 0,
    }
    # Its bound after n passes takes the responsibilities before the last M-step.
    before = BayesianGaussianMixture(**settings, max_iter=4).fit(X).predict_proba(X)
    peer = BayesianGaussianMixture(**settings, max_iter=5).fit(X)
    expected = peer.lower_bound_ + constant_of_scikit_learn(peer, len(X))
    assert complete_bound(peer, X, before) == pytest.approx(expected, rel=1e-10)
    ours = AnnealedBayesianGaussianMixture(**settings, max_iter=5, annealing="none").fit(X)
    assert ours.lower_bound_ == pytest.approx(complete_bound(peer, X), rel=1e-10)
    assert ours.lower_bound_ > expected, "the best responsibilities are no better than others"


@all_methods
@all_weight_priors
@all_covariance_types
def test_anyone_can_recompute_the_bound(covariance_type, weight_prior, annealing):
    X = real_data("iris")
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3,
        covariance_type=covariance_type,
        weight_concentration_prior_type=weight_prior,
        annealing=annealing,
        mean_precision_prior=0.3,
        degrees_of_freedom_prior=7.5,
        weight_concentration_prior=0.8,
        max_iter=5,
        random_state=0,
    ).fit(X)
    assert mixture.lower_bound_ == mixture.lower_bounds_[-1]
    assert mixture.lower_bound_ == pytest.approx(complete_bound(mixture, X), rel=1e-10)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("true_number", [2, 4])
def test_bound_picks_the_number_of_components(true_number, seed):
    centers = [(0, 0), (10, 0), (0, 10), (10, 10)][:true_number]
    X, _ = clusters(seed, 60, centers)
    bounds = [
        AnnealedBayesianGaussianMixture(
            n_components=k,
            annealing="none",
            weight_concentration_prior_type="dirichlet_distribution",
            weight_concentration_prior=1.0,
            n_init=3,
            random_state=seed,
        )
        .fit(X)
        .lower_bound_
        for k in range(1, 8)
    ]
    assert 1 + int(np.argmax(bounds)) == true_number


@all_factorizations
@all_weight_priors
@all_covariance_types
def test_bound_never_falls_without_annealing(covariance_type, weight_prior, factorization):
    for seed, init_params in enumerate(("random", "kmeans")):
        mixture = AnnealedBayesianGaussianMixture(
            n_components=6,
            covariance_type=covariance_type,
            weight_concentration_prior_type=weight_prior,
            factorization=factorization,
            annealing="none",
            init_params=init_params,
            reg_covar=0,
            max_iter=60,
            tol=0,
            random_state=seed,
        ).fit(real_data("wine")[:, :5])
        bounds = mixture.lower_bounds_
        assert np.diff(bounds).min() >= -1e-12 * np.abs(bounds).max()
        assert bounds[-1] > bounds[0], "nothing happened"


@all_methods
@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_bound_keeps_its_digits_far_from_the_origin(annealing, scale):
    # Multiples of 2^-10 stay exact under the offset, so that both fits have the same data.
    rows, _ = clusters(3, 50, ((0, 0), (5, 1), (1, 6)))
    X = scale * np.round(rows * 1024) / 1024
    X -= np.round(X.mean(axis=0))
    far = X + np.round(1e6 * X.std(axis=0))
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, annealing=annealing, max_iter=20, random_state=0
    )
    centred = clone(mixture).fit(X)
    mixture.fit(far)
    assert mixture.lower_bound_ == pytest.approx(centred.lower_bound_, rel=1e-9)
    np.testing.assert_allclose(
        mixture.score_samples(far), centred.score_samples(X), rtol=0, atol=1e-6
    )


def test_bound_of_rescaled_data_is_shifted_by_the_change_of_density():
    X, _ = clusters(4)
    mixture = AnnealedBayesianGaussianMixture(n_components=3, reg_covar=0, random_state=0)
    bound = clone(mixture).fit(X).lower_bound_
    scaled = mixture.fit(2.0**20 * X).lower_bound_
    assert scaled == pytest.approx(bound - X.size * np.log(2.0**20), rel=1e-10)


@pytest.mark.parametrize("n_features", [2, 5])
@pytest.mark.parametrize("separation", [8, 12])
def test_default_finds_separated_clusters(separation, n_features):
    X, _ = clusters(0, 100, separation * np.eye(3, n_features))
    mixture = AnnealedBayesianGaussianMixture(n_components=3, random_state=0).fit(X)
    plain = clone(mixture).set_params(annealing="none").fit(X)
    assert mixture.lower_bound_ > plain.lower_bound_ - 0.01 * len(X)


# The predictive density


def few_rows(n_features):
    rng = np.random.default_rng(n_features)
    X = rng.normal(size=(24, n_features)) * rng.uniform(0.5, 2, n_features)
    X[::3] += 4
    return X


def small_fit(n_features, covariance_type, weight_prior, factorization):
    return AnnealedBayesianGaussianMixture(
        n_components=3,
        covariance_type=covariance_type,
        weight_concentration_prior_type=weight_prior,
        factorization=factorization,
        random_state=0,
    ).fit(few_rows(n_features))


def density_on_line(mixture, n=20_001):
    """Points of the whole line, widths of their cells, and the density at them."""
    angle = (np.arange(n) + 0.5) / n * np.pi - np.pi / 2
    x = mixture.means_.mean() + 2 * np.tan(angle)
    return x, 2 * np.pi / n / np.cos(angle) ** 2, np.exp(mixture.score_samples(x[:, None]))


def density_on_plane(mixture, n_radii=800, n_angles=256):
    """Points of the whole plane in polar coordinates, areas of their cells, and the density."""
    nodes, weights = np.polynomial.legendre.leggauss(n_radii)
    t = (nodes + 1) * np.pi / 4
    radius = 3 * np.tan(t)
    width = 3 / np.cos(t) ** 2 * np.pi / 4 * weights
    angle = 2 * np.pi * np.arange(n_angles) / n_angles
    direction = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    points = mixture.weights_ @ mixture.means_ + radius[:, None, None] * direction
    area = np.repeat(radius * width * 2 * np.pi / n_angles, n_angles)
    points = points.reshape(-1, 2)
    return points, area, np.exp(mixture.score_samples(points))


@all_factorizations
@all_weight_priors
@all_covariance_types
def test_density_integrates_to_1_on_a_line(covariance_type, weight_prior, factorization):
    _, width, density = density_on_line(small_fit(1, covariance_type, weight_prior, factorization))
    assert (width * density).sum() == pytest.approx(1, abs=1e-7)


@all_factorizations
@all_covariance_types
def test_density_integrates_to_1_on_a_plane(covariance_type, factorization):
    _, area, density = density_on_plane(
        small_fit(2, covariance_type, "dirichlet_process", factorization)
    )
    assert (area * density).sum() == pytest.approx(1, abs=1e-6)


def test_score_is_the_weighted_mean_of_score_samples():
    X = few_rows(2)
    mixture = small_fit(2, "full", "dirichlet_process", "joint")
    weight = np.arange(len(X)) % 3
    each = mixture.score_samples(X)
    assert mixture.score(X) == pytest.approx(each.mean())
    assert mixture.score(X, sample_weight=weight) == pytest.approx(
        (weight * each).sum() / weight.sum()
    )


def distance_of_distributions(mixture, rows):
    """Kolmogorov-Smirnov statistic of rows on a line against the predictive density."""
    x, width, density = density_on_line(mixture)
    inside = np.cumsum(width * density) - 0.5 * width * density
    rows = np.sort(rows[:, 0])
    return np.abs(np.interp(rows, x, inside) - (np.arange(len(rows)) + 0.5) / len(rows)).max()


@all_factorizations
@all_covariance_types
def test_predictive_draws_have_the_predictive_density(covariance_type, factorization):
    mixture = small_fit(1, covariance_type, "dirichlet_process", factorization)
    n = 20_000
    # 1.95 is the 0.1 % quantile of Kolmogorov's distribution; the seed is fixed.
    limit = 1.95 / np.sqrt(n)
    rows, labels = mixture.sample(n, predictive=True)
    assert rows.shape == (n, 1)
    assert labels.shape == (n,)
    assert distance_of_distributions(mixture, rows) < limit
    assert distance_of_distributions(mixture, mixture.sample(n)[0]) > limit


@all_covariance_types
def test_predictive_draws_have_the_predictive_moments(covariance_type):
    X, _ = clusters(1, 30)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, covariance_type=covariance_type, annealing="none", random_state=3
    ).fit(X)
    points, area, density = density_on_plane(mixture)
    mass = area * density
    mean = mass @ points
    covariance = (mass[:, None] * (points - mean)).T @ (points - mean)
    n = 40_000
    rows, _ = mixture.sample(n, predictive=True)
    error = np.sqrt(np.diag(covariance) / n)
    assert np.all(np.abs(rows.mean(axis=0) - mean) < 5 * error)
    np.testing.assert_allclose(np.cov(rows.T), covariance, atol=0.05 * covariance.max())


# A transformer among scikit-learn's


def test_transform_gives_named_responsibilities():
    X = real_data("iris")
    mixture = AnnealedBayesianGaussianMixture(n_components=3, random_state=0).fit(X)
    np.testing.assert_array_equal(mixture.transform(X), mixture.predict_proba(X))
    names = [f"annealedbayesiangaussianmixture{k}" for k in range(3)]
    assert list(mixture.get_feature_names_out()) == names


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_in_and_out(library):
    frames = pytest.importorskip(library)
    X = real_data("iris")
    frame = frames.DataFrame({f"c{i}": X[:, i] for i in range(X.shape[1])})
    mixture = AnnealedBayesianGaussianMixture(n_components=3, random_state=0)
    mixture.set_output(transform=library).fit(frame)
    out = mixture.transform(frame)
    assert isinstance(out, frames.DataFrame)
    assert list(out.columns) == list(mixture.get_feature_names_out())
    assert list(mixture.feature_names_in_) == ["c0", "c1", "c2", "c3"]
    np.testing.assert_array_equal(out.to_numpy(), mixture.predict_proba(frame))


@all_methods
def test_fit_transform_is_fit_then_transform(annealing):
    X, _ = clusters()
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, annealing=annealing, max_iter=5, random_state=0
    )
    both = clone(mixture).fit_transform(X)
    np.testing.assert_array_equal(both, clone(mixture).fit(X).transform(X))
    np.testing.assert_array_equal(clone(mixture).fit_predict(X), both.argmax(axis=1))


# Weights of rows


def run_engine(mixture, X, sample_weight, X_of_start):
    """The result of a fit whose start does not look at single rows."""

    def start(ctx):
        summary = ctx.model.summary(Rows(X_of_start))
        return ctx.model.random_natural(summary, ctx.prior, ctx.rng)

    ctx, method, units = open_run(mixture, X, sample_weight, q=start)
    return ctx, finish_run(ctx, method, units, mixture)


@pytest.mark.parametrize("weighting", ["weight 2", "weight 0"])
@all_factorizations
@all_covariance_types
@pytest.mark.parametrize("annealing", ["none", "deterministic", "tempering", "local_tempering"])
def test_weights_count_rows(annealing, covariance_type, factorization, weighting):
    X, _ = clusters(2, 30)
    rng = np.random.default_rng(0)
    weights = rng.integers(1, 4, len(X)) if weighting == "weight 2" else rng.integers(0, 2, len(X))
    weights = weights.astype(float)
    repeated = np.repeat(X, weights.astype(int), axis=0)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3,
        covariance_type=covariance_type,
        factorization=factorization,
        annealing=annealing,
        max_iter=10,
        tol=0,
    )
    ctx, trace = run_engine(mixture, X, weights, X_of_start=repeated)
    expected, expected_trace = run_engine(mixture, repeated, None, X_of_start=repeated)
    np.testing.assert_allclose(trace.lower_bounds, expected_trace.lower_bounds, rtol=1e-10)
    for key, value in expected.q.items():
        np.testing.assert_allclose(ctx.q[key], value, rtol=1e-9, atol=1e-9)


@all_methods
def test_weights_count_rows_of_one_component(annealing):
    if annealing in ("stochastic", "svi_plus", "structured"):
        pytest.skip("random at every update")
    X, _ = clusters(2, 30)
    weights = np.arange(len(X)) % 3.0
    mixture = AnnealedBayesianGaussianMixture(annealing=annealing, random_state=0)
    weighted = clone(mixture).fit(X, sample_weight=weights)
    mixture.fit(np.repeat(X, weights.astype(int), axis=0))
    assert weighted.lower_bound_ == pytest.approx(mixture.lower_bound_, rel=1e-10)
    np.testing.assert_allclose(parameters_of(weighted), parameters_of(mixture), rtol=1e-10)


def test_weights_reach_the_k_means_start():
    X, labels = clusters(5, 60, ((0, 0), (6, 0), (0, 6), (6, 6)))
    weights = np.where(labels == 3, 0.0, 1.0)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, annealing="none", max_iter=0, random_state=0
    ).fit(X, sample_weight=weights)
    distance = np.linalg.norm(mixture.means_ - (6, 6), axis=1)
    assert distance.min() > 4


def test_score_and_fit_take_weights_through_a_pipeline():
    X, _ = clusters(5)
    weights = np.arange(len(X)) % 4.0
    with config_context(enable_metadata_routing=True):
        mixture = AnnealedBayesianGaussianMixture(n_components=3, random_state=0)
        mixture.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, mixture).fit(X, sample_weight=weights)
        score = pipeline.score(X, sample_weight=weights)
    scaled = StandardScaler().fit_transform(X)
    alone = clone(mixture).fit(scaled, sample_weight=weights)
    assert pipeline[-1].lower_bound_ == alone.lower_bound_
    assert score == alone.score(scaled, sample_weight=weights)
    assert score != alone.score(scaled)


# Restarts, warm starts, the end of a fit


@pytest.mark.parametrize("annealing", ["none", "deterministic", "stochastic"])
def test_best_restart_is_kept(annealing):
    X = real_data("wine")[:, :4]
    mixture = AnnealedBayesianGaussianMixture(
        n_components=4, annealing=annealing, init_params="random", n_init=4, random_state=0
    ).fit(X)
    bounds = mixture.restart_lower_bounds_
    assert bounds.shape == (4,)
    assert len(np.unique(bounds)) > 1, "all restarts are alike"
    assert mixture.best_restart_ == np.argmax(bounds)
    assert mixture.lower_bound_ == bounds.max() == mixture.lower_bounds_[-1]
    single = clone(mixture).set_params(n_init=1).fit(X)
    assert single.lower_bound_ == bounds[0]


def test_warm_start_goes_on_at_temperature_1():
    X = real_data("wine")[:, :4]
    mixture = AnnealedBayesianGaussianMixture(
        n_components=4,
        annealing=DeterministicAnnealing(initial_temperature=3, n_passes=5),
        max_iter=7,
        tol=0,
        reg_covar=0,
        random_state=0,
        warm_start=True,
    ).fit(X)
    bounds, temperatures = mixture.lower_bounds_, mixture.temperatures_
    parameters = parameters_of(mixture)
    mixture.fit(X)
    assert mixture.n_iter_ == 12 + 7
    np.testing.assert_array_equal(mixture.lower_bounds_[:12], bounds)
    np.testing.assert_array_equal(mixture.temperatures_, [*temperatures, *np.ones(7)])
    assert np.all(np.diff(mixture.lower_bounds_[11:]) >= -1e-9)
    assert not np.array_equal(parameters_of(mixture), parameters)
    straight = clone(mixture).set_params(max_iter=14).fit(X)
    np.testing.assert_allclose(parameters_of(mixture), parameters_of(straight), rtol=1e-10)


def test_warm_start_refuses_another_shape():
    X = real_data("iris")
    mixture = AnnealedBayesianGaussianMixture(n_components=3, warm_start=True, random_state=0)
    mixture.fit(X)
    before = mixture.lower_bound_
    with pytest.raises(ValueError, match="n_components=3, but n_components=4 now"):
        mixture.set_params(n_components=4).fit(X)
    with pytest.raises(ValueError, match="X has 3 features, but .* is expecting 4"):
        mixture.set_params(n_components=3).fit(X[:, :3])
    assert mixture.lower_bound_ == before


def test_without_warm_start_a_second_fit_is_the_first():
    X = real_data("iris")
    mixture = AnnealedBayesianGaussianMixture(n_components=3, random_state=0)
    first = parameters_of(mixture.fit(X))
    np.testing.assert_array_equal(parameters_of(mixture.fit(X)), first)


def test_max_iter_0_only_starts_or_anneals():
    X = real_data("iris")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        start = AnnealedBayesianGaussianMixture(
            n_components=3, annealing="none", max_iter=0, random_state=0
        ).fit(X)
        annealed = AnnealedBayesianGaussianMixture(
            n_components=3, annealing=StochasticAnnealing(n_passes=6), max_iter=0, random_state=0
        ).fit(X)
    assert start.n_iter_ == len(start.lower_bounds_) == len(start.temperatures_) == 0
    assert start.lower_bound_ == pytest.approx(complete_bound(start, X), rel=1e-10)
    assert annealed.n_iter_ == len(annealed.lower_bounds_) == 6
    assert annealed.lower_bound_ == pytest.approx(complete_bound(annealed, X), rel=1e-10)
    assert not start.converged_
    assert not annealed.converged_


def test_max_iter_counts_the_finish_alone():
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3,
        annealing=DeterministicAnnealing(initial_temperature=2, n_passes=30),
        max_iter=4,
        random_state=0,
    )
    with pytest.warns(ConvergenceWarning, match="did not converge in max_iter=4"):
        mixture.fit(real_data("iris"))
    assert mixture.n_iter_ == 34
    assert mixture.temperatures_[0] == 2
    assert np.all(np.diff(mixture.temperatures_[:30]) < 0)
    assert np.all(mixture.temperatures_[30:] == 1)


def test_tol_is_the_rise_per_row():
    X = real_data("wine")[:, :4]
    mixture = AnnealedBayesianGaussianMixture(
        n_components=4, annealing="none", tol=1e-4, max_iter=500, random_state=0
    ).fit(X)
    rises = np.abs(np.diff(mixture.lower_bounds_)) / len(X)
    assert mixture.converged_
    assert rises[-1] < 1e-4
    assert rises[:-1].min() >= 1e-4


def test_coinciding_components_warn_and_say_what_to_change():
    # At a temperature where all components are equal; without jitter nothing parts them again.
    hot = DeterministicAnnealing(initial_temperature=50, n_passes=200, jitter=0)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3,
        annealing=hot,
        weight_concentration_prior_type="dirichlet_distribution",
        random_state=0,
    )
    X, _ = clusters(0, 100, ((0, 0), (3, 0), (0, 3)))
    with pytest.warns(ConvergenceWarning, match="Components coincide") as caught:
        mixture.fit(X)
    message = next(str(w.message) for w in caught if "coincide" in str(w.message))
    for way_out in ("temperature", "jitter", "init_params", "random_state", "fewer components"):
        assert way_out in message
    assert np.ptp(mixture.means_, axis=0).max() < 1e-6
    for way_out in ({"annealing": "none"}, {"annealing__jitter": 1.0}):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "Components coincide")
            free = clone(mixture).set_params(**way_out).fit(X)
        assert free.lower_bound_ > mixture.lower_bound_ + 10


@all_methods
@all_weight_priors
@all_covariance_types
def test_one_component(covariance_type, weight_prior, annealing):
    X = real_data("iris")
    mixture = AnnealedBayesianGaussianMixture(
        covariance_type=covariance_type,
        weight_concentration_prior_type=weight_prior,
        annealing=annealing,
        random_state=0,
    ).fit(X)
    assert mixture.weights_ == pytest.approx([1])
    np.testing.assert_array_equal(mixture.transform(X), np.ones((len(X), 1)))
    if annealing != "structured":  # which ends without plain inference
        expected = BayesianGaussianMixture(
            covariance_type=covariance_type,
            weight_concentration_prior_type=weight_prior,
            random_state=0,
        ).fit(X)
        np.testing.assert_allclose(mixture.means_, expected.means_, rtol=1e-6)
        np.testing.assert_allclose(mixture.covariances_, expected.covariances_, rtol=1e-6)


# Local tempering as an outlier score


@pytest.mark.parametrize("seed", range(5))
def test_inverse_temperatures_rank_outliers_first(seed):
    rng = np.random.default_rng(seed)

    def draw(n):
        n_outliers = n // 50
        X, _ = clusters(rng.integers(1000), n // 3, ((0, 0, 0), (5, 0, 1), (0, 5, -1)))
        outliers = rng.uniform(-20, 25, size=(n_outliers, 3))
        X = np.vstack([X, outliers])
        return X, np.arange(len(X)) >= len(X) - n_outliers

    X, is_outlier = draw(600)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, annealing="local_tempering", random_state=seed
    ).fit(X)
    for rows, truth in ((X, is_outlier), draw(600)):
        x = mixture.inverse_temperatures(rows)
        assert x.shape == (len(rows),)
        assert np.all((x > 0) & (x <= 1))
        assert roc_auc_score(truth, -x) >= 0.95


def test_inverse_temperatures_of_the_last_annealed_pass_are_those_of_the_fit():
    X, _ = clusters(0, 60)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3,
        annealing=LocalVariationalTempering(n_passes=3),
        max_iter=0,
        random_state=0,
    )
    temperatures = mixture.fit(X).temperatures_
    # T of pass p is that at the parameters which pass p - 1 left behind.
    mixture.set_params(annealing__n_passes=2).fit(X)
    expected = (1 / mixture.inverse_temperatures(X)).mean()
    assert temperatures[2] == pytest.approx(expected, rel=1e-10)


@all_methods
def test_only_local_tempering_has_inverse_temperatures(annealing):
    X, _ = clusters()
    mixture = AnnealedBayesianGaussianMixture(n_components=3, annealing=annealing, max_iter=1)
    expected = annealing == "local_tempering"
    assert hasattr(mixture, "inverse_temperatures") == expected
    mixture.fit(X)
    assert hasattr(mixture, "inverse_temperatures") == expected
    if not expected:
        with pytest.raises(AttributeError, match="inverse_temperatures"):
            mixture.inverse_temperatures(X)


# Precision of the data


@all_methods
@all_covariance_types
def test_float32_is_kept_and_near_float64(covariance_type, annealing):
    X, _ = clusters(7, 60)
    X = X.astype(np.float32)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3,
        covariance_type=covariance_type,
        annealing=annealing,
        init_params="random",
        max_iter=20,
        random_state=0,
    )
    narrow = clone(mixture).fit(X)
    wide = clone(mixture).fit(X.astype(np.float64))
    assert narrow.transform(X).dtype == np.float32
    assert wide.transform(X.astype(np.float64)).dtype == np.float64
    # Products and sums are float64: the same numbers give the same fit.
    assert narrow.lower_bound_ == pytest.approx(wide.lower_bound_, rel=1e-10)
    np.testing.assert_allclose(narrow.transform(X), wide.transform(X), atol=1e-5)
    assert narrow.means_.dtype == np.float64


# Streams and minibatches


@all_methods
def test_each_call_of_partial_fit_adds_one_pass(annealing):
    X, _ = clusters(0, 100)
    mixture = AnnealedBayesianGaussianMixture(n_components=3, annealing=annealing, random_state=0)
    for i, batch in enumerate(np.array_split(X, 6)):
        assert mixture.partial_fit(batch) is mixture
        assert mixture.n_iter_ == i + 1
        assert mixture.lower_bounds_.shape == mixture.temperatures_.shape == (i + 1,)
        assert mixture.transform(X).shape == (len(X), 3)
        # Some methods evaluate the bound only now and then; the last value known stands.
        known = mixture.lower_bounds_[np.isfinite(mixture.lower_bounds_)]
        assert mixture.lower_bound_ == known[-1]


def test_batch_of_weight_zero_changes_nothing():
    X, _ = clusters(0, 100)
    mixture = AnnealedBayesianGaussianMixture(n_components=3, annealing="svi_plus", random_state=0)
    mixture.partial_fit(X[:100])
    before = pickle.dumps(mixture)
    mixture.partial_fit(X[100:200], sample_weight=np.zeros(100))
    assert pickle.dumps(mixture) == before


@pytest.mark.parametrize(
    ("batch", "weight"),
    [
        ([[1.0, np.nan]], None),
        ([[1.0, 2.0, 3.0]], None),
        ([[1.0, 2.0]], [-1.0]),
        ([[1.0, 2.0]], [1.0, 1.0]),
        (np.empty((0, 2)), None),
    ],
)
@pytest.mark.parametrize("fitted", [False, True])
def test_refused_batch_leaves_the_estimator_as_it_was(batch, weight, fitted):
    X, _ = clusters(0, 100)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, annealing="stochastic", random_state=np.random.RandomState(0)
    )
    if fitted:
        mixture.partial_fit(X)
    before = pickle.dumps(mixture)
    with pytest.raises(ValueError):
        mixture.partial_fit(batch, sample_weight=weight)
    assert pickle.dumps(mixture) == before


def test_fit_after_partial_fit_starts_anew():
    X, _ = clusters(0, 100)
    mixture = AnnealedBayesianGaussianMixture(n_components=3, random_state=0)
    streamed = clone(mixture).partial_fit(X[:50] + 100).fit(X)
    mixture.fit(X)
    np.testing.assert_array_equal(streamed.lower_bounds_, mixture.lower_bounds_)
    np.testing.assert_array_equal(parameters_of(streamed), parameters_of(mixture))


@all_methods
def test_partial_fit_after_fit_goes_on_without_annealing(annealing):
    if annealing == "structured":
        pytest.skip("has no end of a schedule")
    X, _ = clusters(0, 100)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, annealing=annealing, max_iter=10, random_state=0
    ).fit(X)
    history, parameters = mixture.lower_bounds_, parameters_of(mixture)
    mixture.partial_fit(X[:50])
    assert mixture.temperatures_[-1] == 1
    np.testing.assert_array_equal(mixture.lower_bounds_[:-1], history)
    np.testing.assert_allclose(parameters_of(mixture), parameters, rtol=0.3, atol=0.5)
    assert not np.array_equal(parameters_of(mixture), parameters)


def test_first_batch_has_to_fix_the_priors():
    X, _ = clusters()
    mixture = AnnealedBayesianGaussianMixture(n_components=4, random_state=0)
    with pytest.raises(ValueError, match="4 distinct rows are needed; it has 3"):
        mixture.partial_fit(np.repeat(X[:3], 5, axis=0))
    mixture.partial_fit(X[:4])
    with pytest.raises(ValueError, match="2 distinct rows are needed; it has 1"):
        clone(mixture).set_params(n_components=1).partial_fit(X[:1])


@pytest.mark.parametrize("init_params", STARTS)
@all_methods
def test_first_batch_may_be_one_row_where_the_priors_are_given(annealing, init_params):
    X, _ = clusters()
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3,
        annealing=annealing,
        init_params=init_params,
        mean_prior=[2.0, 2.0],
        covariance_prior=np.eye(2),
        random_state=0,
    )
    for row in X[:10]:
        mixture.partial_fit(row[None])
    assert np.all(np.isfinite(parameters_of(mixture)))
    assert mixture.n_iter_ == 10


@all_methods
@all_factorizations
@all_covariance_types
def test_later_batches_may_be_one_row(covariance_type, factorization, annealing):
    X, _ = clusters()
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3,
        covariance_type=covariance_type,
        factorization=factorization,
        annealing=annealing,
        random_state=0,
    ).partial_fit(X[:30])
    for row in X[30:50]:
        mixture.partial_fit(row[None])
    assert np.all(np.isfinite(parameters_of(mixture)))
    assert mixture.n_iter_ == 21


def test_total_samples_is_the_clock_of_the_schedule():
    X, _ = clusters(0, 200)
    schedule = DeterministicAnnealing(initial_temperature=8, n_passes=2)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, annealing=schedule, total_samples=len(X), random_state=0
    )
    for batch in [*np.array_split(X, 4)] * 3:
        mixture.partial_fit(batch)
    # One quarter of a pass per call: T falls over two passes, that is eight calls.
    expected = 8 ** np.maximum(1 - np.arange(12) / 8, 0)
    np.testing.assert_allclose(mixture.temperatures_, expected, rtol=1e-12)


def test_total_samples_is_the_size_that_statistics_are_scaled_to():
    X, _ = clusters(0, 100)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, annealing="none", learning_decay=0, random_state=0
    )
    counts = []
    for total in (None, 3000):
        fitted = clone(mixture).set_params(total_samples=total).partial_fit(X)
        counts.append(fitted.mean_precision_.sum() - 3 * fitted.mean_precision_prior_)
    np.testing.assert_allclose(counts, [300, 3000], rtol=1e-12)


@pytest.mark.parametrize("total_samples", [None, 6000])
def test_stream_reaches_nearly_the_quality_of_batches(total_samples):
    X, _ = clusters(0, 1000, [(0, 0), (8, 0), (0, 8), (8, 8), (4, 14), (14, 4)])
    rng = np.random.default_rng(0)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=6, annealing="none", total_samples=total_samples, random_state=0
    )
    plain = clone(mixture).fit(X)
    for _ in range(3):
        for batch in np.array_split(rng.permutation(X), 30):
            mixture.partial_fit(batch)
    assert mixture.score(X) > plain.score(X) - 0.01


@all_methods
@all_factorizations
def test_minibatches_reach_nearly_the_bound_of_batches(factorization, annealing):
    X, _ = clusters(0, 300, ((0, 0), (6, 0), (0, 6)))
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3,
        factorization=factorization,
        annealing=annealing,
        init_params="kmeans",
        max_iter=20,
        random_state=0,
    )
    # Milder than the defaults, whose optimum is another one than that next to the start.
    if annealing == "stochastic":
        mixture.set_params(annealing=StochasticAnnealing(start="init_params", initial_noise=0.1))
    if annealing == "deterministic":
        mixture.set_params(annealing=DeterministicAnnealing(initial_temperature=1.5))
    plain = clone(mixture).set_params(annealing="none").fit(X)
    mixture.set_params(batch_size=100).fit(X)
    assert mixture.lower_bound_ > plain.lower_bound_ - 0.01 * len(X)
    assert mixture.lower_bound_ == mixture.lower_bounds_[-1]
    assert len(mixture.lower_bounds_) == len(mixture.temperatures_) == mixture.n_iter_


@all_factorizations
def test_batch_size_of_all_rows_is_batch_mode(factorization):
    X, _ = clusters()
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, factorization=factorization, random_state=0
    )
    batch = clone(mixture).fit(X)
    mixture.set_params(batch_size=len(X)).fit(X)
    np.testing.assert_array_equal(mixture.lower_bounds_, batch.lower_bounds_)
    np.testing.assert_array_equal(parameters_of(mixture), parameters_of(batch))


# Copies


@all_methods
def test_pickle_and_clone(annealing):
    X, _ = clusters()
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, annealing=ANNEALING[annealing](), max_iter=5, random_state=0
    ).fit(X)
    other = pickle.loads(pickle.dumps(mixture))
    np.testing.assert_array_equal(other.score_samples(X), mixture.score_samples(X))
    other.partial_fit(X[:20])
    mixture.partial_fit(X[:20])
    np.testing.assert_array_equal(parameters_of(other), parameters_of(mixture))
    copy = clone(mixture)
    assert not hasattr(copy, "lower_bound_")
    assert repr(copy.get_params()) == repr(mixture.get_params())


def test_nothing_of_the_size_of_the_rows_stays():
    X, _ = clusters(0, 3000)
    for annealing in ("none", "local_tempering", "svi_plus"):
        mixture = AnnealedBayesianGaussianMixture(
            n_components=3, annealing=annealing, max_iter=2, random_state=0
        ).fit(X)
        assert len(pickle.dumps(mixture)) < len(X), annealing
