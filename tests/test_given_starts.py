"""Fits that begin at given parameters: where they begin, what they reach, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_anneal import AnnealedBayesianGaussianMixture, Shards

CENTERS = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [20.0, 20.0]])
SIZES = np.array([40, 80, 60, 20])
SHUFFLED = np.array([3, 1, 0, 2])
OF_SCIKIT_LEARN = {
    "weight_concentration_prior": None,
    "mean_precision_prior": None,
    "mean_prior": None,
    "degrees_of_freedom_prior": None,
    "covariance_prior": None,
}


def groups(seed=0, spread=1.0):
    """Rows of four groups, which are far apart for a spread of 1."""
    rng = np.random.default_rng(seed)
    each = zip(CENTERS, SIZES, strict=True)
    return np.vstack([rng.normal(c, spread, size=(n, 2)) for c, n in each])


def plain(**params):
    settings = {"n_components": 4, "annealing": "none", "random_state": 0, "max_iter": 300}
    return AnnealedBayesianGaussianMixture(**(settings | params))


# Gaussian mixtures


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("factorization", ["joint", "independent"])
@pytest.mark.parametrize("init_params", ["kmeans", "random"])
def test_the_order_of_given_means_is_kept(covariance_type, factorization, init_params):
    est = plain(
        covariance_type=covariance_type, factorization=factorization, init_params=init_params
    )
    est.set_params(means_init=CENTERS[SHUFFLED]).fit(groups())
    np.testing.assert_allclose(est.means_, CENTERS[SHUFFLED], atol=0.7)
    np.testing.assert_allclose(est.weights_, SIZES[SHUFFLED] / SIZES.sum(), atol=0.02)


def test_a_start_that_is_given_as_a_whole_is_the_posterior_of_such_rows():
    """By conjugacy, with priors β₀, m₀, ν₀, W₀⁻¹ and N_k rows of mean m and covariance S."""
    X, weights = groups(), np.array([0.1, 0.2, 0.3, 0.4])
    rng = np.random.default_rng(1)
    roots = rng.normal(size=(4, 2, 2)) + 2.0 * np.eye(2)
    covariances = roots @ np.swapaxes(roots, 1, 2)
    est = plain(max_iter=0, reg_covar=0.0, **OF_SCIKIT_LEARN).set_params(
        weights_init=weights, means_init=CENTERS, precisions_init=np.linalg.inv(covariances)
    )
    est.fit(X)
    counts, m0 = len(X) * weights, X.mean(axis=0)
    shares = (counts / (counts + 1.0))[:, None]
    np.testing.assert_allclose(est.means_, shares * CENTERS + (1.0 - shares) * m0, rtol=1e-9)
    np.testing.assert_allclose(est.degrees_of_freedom_, 2.0 + counts)
    between = np.einsum("kd,ke->kde", CENTERS - m0, CENTERS - m0) * shares[:, :, None]
    scatter = np.cov(X.T) + counts[:, None, None] * covariances + between
    np.testing.assert_allclose(est.covariances_, scatter / (2.0 + counts)[:, None, None])
    rest = np.cumsum(counts[::-1])[::-1]
    a, b = est.weight_concentration_
    np.testing.assert_allclose(a, 1.0 + counts)
    np.testing.assert_allclose(b, 0.25 + np.append(rest[1:], 0.0))


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_from_the_start_of_scikit_learn_the_optimum_is_that_of_scikit_learn(covariance_type):
    X = groups(spread=2.5)
    start = CENTERS + 1.0
    theirs = GaussianMixture(4, covariance_type=covariance_type, means_init=start, random_state=0)
    theirs.fit(X)
    ours = plain(covariance_type=covariance_type, max_iter=1000, tol=1e-9, **OF_SCIKIT_LEARN)
    ours.set_params(
        weights_init=theirs.weights_,
        means_init=theirs.means_,
        precisions_init=theirs.precisions_,
        weight_concentration_prior_type="dirichlet_distribution",
    ).fit(X)
    # The same means, but for priors of one row or so.
    np.testing.assert_allclose(ours.means_, theirs.means_, atol=1.0)
    bayes = BayesianGaussianMixture(
        n_components=4,
        covariance_type=covariance_type,
        weight_concentration_prior_type="dirichlet_distribution",
        max_iter=1000,
        tol=1e-7,
        random_state=0,
    ).fit(X)
    order = np.argmin(np.linalg.norm(bayes.means_ - theirs.means_[:, None], axis=2), axis=1)
    np.testing.assert_allclose(ours.means_, bayes.means_[order], rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(
    "names", [["weights_init"], ["means_init"], ["precisions_init"], ["weights_init", "means_init"]]
)
def test_each_part_of_a_start_can_be_given_alone(names):
    X = groups()
    fitted = plain().fit(X)
    parts = {
        "weights_init": fitted.weights_,
        "means_init": fitted.means_,
        "precisions_init": fitted.precisions_,
    }
    est = plain(max_iter=0, init_params="random", **{name: parts[name] for name in names}).fit(X)
    found = {"weights_init": est.weights_, "means_init": est.means_}
    for name in names:
        if name in found:
            np.testing.assert_allclose(found[name], parts[name], rtol=0.2, atol=0.2)
    again = plain(**{name: parts[name] for name in names}).fit(X)
    assert again.lower_bound_ == pytest.approx(fitted.lower_bound_, rel=1e-2)


def test_parts_that_are_not_given_are_those_of_the_components_that_resemble_the_given_ones():
    """Groups of different sizes and widths, which k-means finds in an order of its own."""
    rng = np.random.default_rng(0)
    widths, sizes = np.array([0.1, 1.0, 2.0]), np.array([20, 100, 60])
    centers = 20.0 * np.eye(3)
    X = np.vstack([rng.normal(centers[k], widths[k], size=(sizes[k], 3)) for k in range(3)])
    for order in ([0, 1, 2], [1, 2, 0], [2, 1, 0]):
        est = AnnealedBayesianGaussianMixture(
            3, covariance_type="diag", annealing="none", max_iter=0, random_state=1,
            means_init=centers[order], covariance_prior=np.full(3, 1e-3), mean_precision_prior=1e-6,
        )  # fmt: skip
        est.fit(X)
        np.testing.assert_allclose(est.weights_, sizes[order] / 180, atol=0.01)
        assert (np.argsort(est.covariances_[:, 0]) == np.argsort(widths[order])).all()


def test_every_restart_begins_at_the_given_start():
    X = groups()
    how = {"means_init": CENTERS, "weights_init": SIZES / 200, "precisions_init": [np.eye(2)] * 4}
    est = plain(n_init=3, **how).fit(X)
    assert len(set(est.restart_lower_bounds_)) == 1
    np.testing.assert_array_equal(est.means_, plain(**how).fit(X).means_)


@pytest.mark.parametrize("annealing", ["reheating", "deterministic", "local_tempering", "svi_plus"])
def test_annealing_begins_at_the_given_start(annealing):
    X = groups(spread=4.0)
    given = {"weights_init": SIZES / 200, "means_init": CENTERS, "precisions_init": [np.eye(2)] * 4}
    how = {"annealing": annealing, "effort": 0, "max_iter": 2}
    first, second = (
        plain(**how, **given, init_params=init_params, random_state=1).fit(X)
        for init_params in ("kmeans", "random")
    )
    moved = plain(**how, **(given | {"means_init": CENTERS + 1.0})).fit(X)
    if annealing == "reheating":
        # Its first pass is that of plain inference.
        assert first.lower_bounds_[0] == plain(**given, max_iter=2).fit(X).lower_bounds_[0]
    if annealing != "svi_plus":  # which draws random weights after other random numbers
        assert second.lower_bounds_[0] == pytest.approx(first.lower_bounds_[0], rel=1e-3)
    assert moved.lower_bounds_[0] != first.lower_bounds_[0]


def test_annealing_that_draws_its_own_start_refuses_a_given_one():
    with pytest.raises(ValueError, match="leaves means_init without a use"):
        plain(annealing="stochastic", means_init=CENTERS).fit(groups())


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"means_init": CENTERS[:3]}, r"'means_init' should have the shape of \(4, 2\)"),
        ({"means_init": CENTERS * np.nan}, "means_init contains NaN"),
        ({"weights_init": [0.5, 0.5, 0.5, 0.5]}, r"normalized, but got sum\(weights_init\) = 2"),
        ({"weights_init": [1.5, -0.5, 0.0, 0.0]}, r"in the range \[0, 1\]"),
        ({"weights_init": [1.0]}, r"'weights_init' should have the shape of \(4,\)"),
        ({"precisions_init": [np.eye(2)] * 3}, "'full precisions_init' should have the shape"),
        ({"precisions_init": [-np.eye(2)] * 4}, "should be symmetric, positive-definite"),
        ({"precisions_init": [[[1.0, 2.0], [0.0, 1.0]]] * 4}, "symmetric, positive-definite"),
        (
            {"covariance_type": "spherical", "precisions_init": [1.0, 2.0, 0.0, 1.0]},
            "'spherical precisions_init' should be symmetric, positive-definite",
        ),
        ({"n_components": "auto", "means_init": CENTERS}, "means_init has numbers of components"),
        ({"means_init": "kmeans"}, "means_init"),
    ],
)
def test_wrong_starts_are_refused_in_fits_and_streams(params, text):
    with pytest.raises(ValueError, match=text):
        plain(**params).fit(groups())
    if "n_components" not in params:
        with pytest.raises(ValueError, match=text):
            plain(**params).partial_fit(groups())


def test_a_stream_begins_at_the_given_start():
    X = groups()[np.random.default_rng(0).permutation(200)]
    est = plain(means_init=CENTERS[SHUFFLED])
    for batch in np.array_split(X, 4):
        est.partial_fit(batch)
    np.testing.assert_allclose(est.means_, CENTERS[SHUFFLED], atol=1.5)
    # Later batches are checked as the first one is.
    with pytest.raises(ValueError, match="means_init"):
        est.set_params(means_init=CENTERS[:1]).partial_fit(X)


def test_minibatches_and_parts_begin_at_the_given_start():
    X = groups()[np.random.default_rng(0).permutation(200)]
    small = plain(means_init=CENTERS[SHUFFLED], batch_size=50, max_iter=20).fit(X)
    parted = plain(means_init=CENTERS[SHUFFLED]).fit(Shards([X[:90], X[90:]]))
    for est in (small, parted):
        np.testing.assert_allclose(est.means_, CENTERS[SHUFFLED], atol=1.5)


def test_a_given_start_works_with_weights_clones_pipelines_grids_and_checkpoints(tmp_path):
    X = groups()
    est = plain(means_init=CENTERS)
    weighted = clone(est).fit(X, sample_weight=np.full(200, 2.0))
    repeated = clone(est).fit(np.vstack([X, X]))
    np.testing.assert_allclose(weighted.means_, repeated.means_, rtol=1e-6, atol=1e-6)
    scaled = StandardScaler().fit(X)
    pipeline = make_pipeline(StandardScaler(), clone(est)).set_params(
        annealedbayesiangaussianmixture__means_init=scaled.transform(CENTERS)
    )
    assert (pipeline.fit(X).predict(X) == np.repeat(np.arange(4), SIZES)).mean() > 0.99
    grid = GridSearchCV(plain(max_iter=5), {"means_init": [None, CENTERS]}, cv=2).fit(X)
    assert np.isfinite(grid.cv_results_["mean_test_score"]).all()
    first = clone(est).fit(X, checkpoint=tmp_path)
    again = clone(est).fit(X, checkpoint=tmp_path)
    np.testing.assert_array_equal(first.means_, again.means_)
    with pytest.raises(ValueError, match="means_init"):
        clone(est).set_params(means_init=CENTERS + 1.0).fit(X, checkpoint=tmp_path)


def test_a_warm_start_goes_on_from_the_fitted_parameters():
    X = groups()
    est = plain(means_init=CENTERS, warm_start=True).fit(X)
    est.set_params(means_init=CENTERS[SHUFFLED]).fit(X)
    np.testing.assert_allclose(est.means_, CENTERS, atol=0.7)
