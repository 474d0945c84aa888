"""Fits that begin at given parameters: where they begin, what they reach, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from designs import pairwise
from sklearn.base import clone
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedFactorialMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
    AnnealedSigmoidBeliefNet,
    AnnealedSpikeSlabFactorAnalysis,
    Shards,
)

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


@pairwise(
    covariance_type=("full", "tied", "diag", "spherical"),
    factorization=("joint", "independent"),
    init_params=("kmeans", "random"),
)
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
            "'spherical precisions_init' should be positive",
        ),
        (
            {"n_components": "auto", "means_init": CENTERS},
            "means_init says something of each component",
        ),
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


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_fit_that_goes_on_refuses_a_start_that_a_new_fit_refuses(method):
    X = groups()
    est = plain(warm_start=True).fit(X)
    before = est.means_
    with pytest.raises(ValueError, match=r"'means_init' should have the shape of \(4, 2\)"):
        getattr(est.set_params(means_init=CENTERS[:3]), method)(X)
    with pytest.raises(ValueError, match="'weights_init' should be normalized"):
        getattr(est.set_params(means_init=None, weights_init=[1.0] * 4), method)(X)
    with pytest.raises(ValueError, match="weights_init says something of each component"):
        getattr(est.set_params(n_components="auto", weights_init=[0.25] * 4), method)(X)
    assert est.means_ is before
    getattr(est.set_params(n_components=4), method)(X)


# Other models


def labelled(k=3, n=240, seed=0):
    """Labels of rows, and the profiles of three components over five columns."""
    rng = np.random.default_rng(seed)
    profiles = np.array([[9, 1, 1, 9, 1], [1, 9, 1, 1, 9], [1, 1, 9, 9, 9]]) / 10.0
    return np.sort(rng.choice(k, size=n, p=[0.5, 0.3, 0.2])), profiles, rng


def columns_of(emission):
    """Rows of an emission, and the profile of their components as ``emission_init`` has it."""
    labels, p, rng = labelled()
    if emission == "bernoulli":
        return (rng.random((240, 5)) < p[labels]).astype(int), {"emissionprob": p}
    if emission == "poisson":
        return rng.poisson(10 * p[labels]), {"lambdas": 10 * p}
    if emission == "gaussian":
        return rng.normal(10 * p[labels], 1.0), {"means": 10 * p, "covars": np.ones((3, 5))}
    table = np.full((3, 3), 0.1) + 0.7 * np.eye(3)
    levels = [[rng.choice(3, p=table[label]) for _ in range(5)] for label in labels]
    return np.array(levels), {"emissionprob": [table] * 5}


def in_order(profile, order):
    """A profile whose components have another order."""
    return {
        key: [one[order] for one in value] if isinstance(value, list) else value[order]
        for key, value in profile.items()
    }


def described(est, name):
    value = getattr(est, f"{name}_")
    return np.hstack(value) if isinstance(value, list) else np.asarray(value)


@pytest.mark.parametrize("emission", ["bernoulli", "categorical", "poisson", "gaussian"])
def test_the_order_of_given_components_of_columns_is_kept(emission):
    X, profile = columns_of(emission)
    order = [2, 0, 1]
    name, *_ = given = in_order(profile, order)
    est = AnnealedBayesianMixture(
        3, emission=emission, annealing="none", random_state=0, init_params="kmeans"
    ).set_params(emission_init=given)
    begun = clone(est).set_params(max_iter=0, weights_init=[0.2, 0.5, 0.3]).fit(X)
    est.fit(X)
    wanted = np.hstack(given[name]) if isinstance(given[name], list) else given[name]
    scale = wanted.max()
    # As many rows as there are have these moments, beside which priors weigh one row or so.
    np.testing.assert_allclose(described(begun, name) / scale, wanted / scale, atol=0.05)
    np.testing.assert_allclose(begun.weights_, [0.2, 0.5, 0.3], atol=0.03)
    np.testing.assert_allclose(described(est, name) / scale, wanted / scale, atol=0.2)
    np.testing.assert_allclose(est.weights_, [0.2, 0.5, 0.3], atol=0.1)


def test_blocks_of_columns_begin_at_given_parameters_one_by_one():
    binary, of_binary = columns_of("bernoulli")
    real, of_real = columns_of("gaussian")
    X = np.hstack([binary, real])
    blocks = [("yes", "bernoulli", slice(0, 5)), ("size", "gaussian", slice(5, 10))]
    order = [1, 2, 0]
    whole = {"yes": in_order(of_binary, order), "size": in_order(of_real, order)}
    for given in (whole, {"size": whole["size"]}, {"size": {"means": whole["size"]["means"]}}):
        est = AnnealedBayesianMixture(3, emission=blocks, annealing="none", random_state=0)
        est.set_params(init_params="kmeans", emission_init=given).fit(X)
        np.testing.assert_allclose(est.blocks_["size"].means_, of_real["means"][order], atol=1.0)
        np.testing.assert_allclose(
            est.blocks_["yes"].emissionprob_, of_binary["emissionprob"][order], atol=0.15
        )


@pytest.mark.parametrize("emission", ["bernoulli", "poisson", "gaussian"])
def test_the_order_of_given_states_is_kept(emission):
    X, profile = columns_of(emission)
    if emission == "gaussian":
        profile["covars"] = np.array([np.eye(5)] * 3)
    order = [2, 0, 1]
    given = in_order(profile, order)
    est = AnnealedHMM(3, emission=emission, annealing="none", random_state=0)
    est.set_params(emission_init=given).fit(X)
    name = next(iter(given))
    scale = given[name].max()
    np.testing.assert_allclose(described(est, name) / scale, given[name] / scale, atol=0.15)
    # The frames are sorted by their states, 0, 1, 2, which have the numbers 1, 2, 0.
    assert est.predict(X)[0] == 1
    assert est.predict(X)[-1] == 0


def test_chains_begin_at_given_probabilities():
    """By conjugacy: N sequences start as given, and each state is left N/K times."""
    X, profile = columns_of("bernoulli")
    start = np.array([0.2, 0.3, 0.5])
    transmat = np.array([[0.8, 0.1, 0.1], [0.3, 0.4, 0.3], [0.0, 0.5, 0.5]])
    priors = {"startprob_prior": 0.5, "transmat_prior": 0.5, "emissionprob_prior": 1.0}
    est = AnnealedHMM(3, emission="bernoulli", annealing="none", max_iter=0, **priors)
    est.set_params(startprob_init=start, transmat_init=transmat, emission_init=profile)
    est.fit(X, lengths=[80, 80, 80])
    np.testing.assert_allclose(est.startprob_posterior_, 0.5 + 3 * start)
    np.testing.assert_allclose(est.transmat_posterior_, 0.5 + 80 * transmat)
    p = profile["emissionprob"]
    expected = np.stack([1.0 + 80 * p, 1.0 + 80 * (1.0 - p)], axis=-1)
    np.testing.assert_allclose(est.emissionprob_posterior_, expected)
    # Another fit goes on from the parameters of this one.
    est.set_params(max_iter=100).fit(X)
    again = clone(est).set_params(
        startprob_init=est.startprob_,
        transmat_init=est.transmat_,
        emission_init={"emissionprob": est.emissionprob_},
    )
    again.fit(X)
    assert again.n_iter_ < est.n_iter_
    assert again.lower_bound_ == pytest.approx(est.lower_bound_, rel=1e-4)


def test_forbidden_transitions_stay_forbidden():
    X, profile = columns_of("gaussian")
    forward = np.triu(np.ones((3, 3)))
    est = AnnealedHMM(3, transmat_prior=forward, annealing="none", random_state=0)
    with pytest.raises(ValueError, match="transmat_init has a probability above 0 where transmat"):
        est.set_params(transmat_init=np.full((3, 3), 1 / 3)).fit(X)
    allowed = forward / forward.sum(axis=1, keepdims=True)
    est.set_params(transmat_init=allowed, emission_init={"means": profile["means"]}).fit(X)
    assert (est.transmat_[forward == 0] == 0).all()
    np.testing.assert_allclose(est.means_, profile["means"], atol=0.5)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"emission_init": {"mean": 1}}, "has the key 'mean', but the emission has"),
        ({"emission_init": {"means": np.ones((3, 4))}}, r"emission_init\['means'\]' should have"),
        ({"emission_init": [1]}, "emission_init"),
        ({"emission_init": {"covars": -np.ones((3, 5))}}, "should be positive"),
        ({"weights_init": [1.0, 1.0, 1.0]}, "should be normalized"),
    ],
)
def test_wrong_starts_of_columns_are_refused(given, text):
    X, _ = columns_of("gaussian")
    est = AnnealedBayesianMixture(3, emission="gaussian").set_params(**given)
    with pytest.raises(ValueError, match=text):
        est.fit(X)
    with pytest.raises(ValueError, match=text):
        est.partial_fit(X)


@pytest.mark.parametrize(
    ("emission", "profile", "text"),
    [
        ("bernoulli", {"emissionprob": np.full((3, 5), 1.5)}, r"in the range \[0, 1\]"),
        ("poisson", {"lambdas": np.full((3, 5), -1.0)}, r"in the range \[0, inf\)"),
        ("categorical", {"emissionprob": np.ones((3, 3))}, "a list of one array for each of the 5"),
        ("categorical", {"emissionprob": [np.ones((3, 3))] * 5}, "should be normalized"),
    ],
)
def test_profiles_that_are_none_of_their_emission_are_refused(emission, profile, text):
    X, _ = columns_of(emission)
    with pytest.raises(ValueError, match=text):
        AnnealedBayesianMixture(3, emission=emission, emission_init=profile).fit(X)


def test_a_start_for_an_unknown_number_of_states_is_refused():
    X, profile = columns_of("gaussian")
    with pytest.raises(ValueError, match="emission_init says something of each component"):
        AnnealedHMM("auto", emission_init={"means": profile["means"]}).fit(X)


def counts(seed=0):
    """Counts of three groups of columns, which rows mix, and the three profiles."""
    rng = np.random.default_rng(seed)
    profiles = np.kron(np.eye(3), np.ones(4)) + 0.05
    shares = rng.dirichlet([0.3, 0.3, 0.3], size=80)
    return rng.poisson(10.0 * shares @ profiles), profiles


def sums(seed=0, sizes=False):
    """Rows that are sums of three components, of which each row has some, and the components.

    With ``sizes``, each row has a component with a size drawn from N(0, 1).
    """
    rng = np.random.default_rng(seed)
    parts = 3.0 * np.kron(np.eye(3), np.ones(4))
    shares = (rng.random((120, 3)) < 0.4) * (rng.standard_normal((120, 3)) if sizes else 1.0)
    return shares @ parts + 0.3 * rng.standard_normal((120, 12)), parts


def ratings(seed=0):
    """Ratings of 40 users by two factors of 15 items, and the factors."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((2, 15))
    return rng.standard_normal((40, 2)) @ factors + 0.1 * rng.standard_normal((40, 15)), factors


def binaries(seed=0):
    rng = np.random.default_rng(seed)
    X, _ = sums(seed)
    return (X + rng.normal(size=X.shape) > 1.5).astype(int)


def factorisations():
    """An estimator, its data, the name of what gives its start, and the attribute that has it."""
    X, profiles = counts()
    yield AnnealedLatentDirichletAllocation(3, local_step="mean_field"), X, 200 * profiles
    yield AnnealedGammaProcessNMF(3), X, profiles
    X, parts = sums()
    yield AnnealedFactorialMixture(3), X, parts
    X, parts = sums(sizes=True)
    yield AnnealedSpikeSlabFactorAnalysis(3), X, parts
    yield AnnealedSpikeSlabFactorAnalysis(3, solver="gradient"), X, parts
    X, factors = ratings()
    yield AnnealedPMF(2, factor_variance=1.0), X, factors


@pytest.mark.parametrize(("est", "X", "given"), factorisations())
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_factorisations_keep_the_order_of_given_components(est, X, given):
    name = "means" if isinstance(est, AnnealedFactorialMixture) else "components"
    order = np.roll(np.arange(len(given)), 1)
    est = clone(est).set_params(annealing="none", random_state=0, **{f"{name}_init": given[order]})
    begun = clone(est).set_params(max_iter=0).fit(X)
    found = getattr(begun, f"{name}_")
    scale = np.abs(given).max()
    np.testing.assert_allclose(found / scale, given[order] / scale, atol=0.03)
    after = getattr(clone(est).fit(X), f"{name}_")
    similar = np.corrcoef(after, given[order])[: len(given), len(given) :]
    assert (np.abs(similar).argmax(axis=1) == np.arange(len(given))).all()
    assert (np.diagonal(similar) > 0.6).all()
    streamed = getattr(clone(est).partial_fit(X), f"{name}_")
    similar = np.corrcoef(streamed, given[order])[: len(given), len(given) :]
    assert (np.abs(similar).argmax(axis=1) == np.arange(len(given))).all()
    for wrong in (given[:1], given * np.nan):
        with pytest.raises(ValueError, match=f"{name}_init"):
            clone(est).set_params(**{f"{name}_init": wrong}).fit(X)


def test_components_of_counts_that_are_empty_or_negative_are_refused():
    X, profiles = counts()
    for bad, text in ((-profiles, r"in the range \[0, inf\)"), (0 * profiles, "Row 0 of")):
        with pytest.raises(ValueError, match=text):
            AnnealedGammaProcessNMF(3, components_init=bad).fit(X)
    # Zeros within rows are no end.
    zeros = np.where(profiles > 0.5, profiles, 0.0)
    est = AnnealedGammaProcessNMF(3, components_init=zeros, annealing="none").fit(X)
    assert np.isfinite(est.components_).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_nets_begin_at_the_parameters_of_another_net():
    X = binaries()
    how = {"max_iter": 30, "random_state": 0, "learning_rate_init": 0.02}
    first = AnnealedSigmoidBeliefNet((4, 3), **how).fit(X)
    given = {
        f"{name}_init": getattr(first, f"{name}_")
        for name in ("coefs", "intercepts", "recognition_coefs", "recognition_intercepts")
    }
    begun = AnnealedSigmoidBeliefNet((4, 3), **(how | {"max_iter": 0}), **given).fit(X)
    for name, arrays in given.items():
        for one, other in zip(getattr(begun, f"{name[:-5]}_"), arrays, strict=True):
            np.testing.assert_array_equal(one, other)
    assert begun.lower_bound_ == pytest.approx(first.lower_bound_, abs=0.1 * len(X))
    alone = AnnealedSigmoidBeliefNet((4, 3), **(how | {"max_iter": 0}))
    alone.set_params(coefs_init=first.coefs_).fit(X)
    np.testing.assert_array_equal(alone.coefs_[1], first.coefs_[1])
    assert not np.array_equal(alone.recognition_coefs_[0], first.recognition_coefs_[0])
    with pytest.raises(ValueError, match="should have 2 arrays, one for each layer, but has 1"):
        alone.set_params(coefs_init=first.coefs_[:1]).fit(X)
    with pytest.raises(ValueError, match=r"coefs_init\[1\]' should have the shape of \(3, 4\)"):
        alone.set_params(coefs_init=[first.coefs_[0], first.coefs_[0]]).fit(X)
    with pytest.raises(ValueError, match=r"coefs_init\[1\] is None. Give an array of shape .3, 4"):
        alone.set_params(coefs_init=[first.coefs_[0], None]).fit(X)


@pytest.mark.parametrize(("est", "X", "given"), factorisations())
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_parts_minibatches_and_restarts_of_factorisations_begin_there_too(est, X, given):
    name = "means" if isinstance(est, AnnealedFactorialMixture) else "components"
    est = clone(est).set_params(annealing="none", random_state=0, max_iter=0)
    est.set_params(**{f"{name}_init": given})
    forms = [{}, {"n_init": 2, "n_jobs": 2}]
    if "learning_method" not in est.get_params():
        forms.append({"batch_size": 20})
    scale = np.abs(given).max()
    for form in forms:
        for data in (X, Shards([X[:30], X[30:]])):
            found = getattr(clone(est).set_params(**form).fit(data), f"{name}_")
            np.testing.assert_allclose(found / scale, given / scale, atol=0.05)


def test_parts_and_minibatches_of_columns_and_states_begin_at_given_parameters():
    X, profile = columns_of("bernoulli")
    given = in_order(profile, [2, 0, 1])
    how = {"emission": "bernoulli", "annealing": "none", "random_state": 0, "emission_init": given}
    for data, form in ((Shards([X[:100], X[100:]]), {}), (X, {"batch_size": 60, "max_iter": 20})):
        est = AnnealedBayesianMixture(3, n_init=2, n_jobs=2, **how, **form).fit(data)
        np.testing.assert_allclose(est.emissionprob_, given["emissionprob"], atol=0.2)
    sequences = np.split(X, 8)
    for data, form in (
        (Shards([sequences[:4], sequences[4:]]), {}),
        (sequences, {"batch_size": 4}),
    ):
        est = AnnealedHMM(3, n_init=2, max_iter=0, **how, **form).fit(data)
        np.testing.assert_allclose(est.emissionprob_, given["emissionprob"], atol=0.05)


# What leads nowhere


@pytest.mark.parametrize("solver", ["coordinate", "gradient"])
def test_a_row_of_zeros_is_refused_because_no_pass_would_move_it(rng, solver):
    X, start = rng.standard_normal((40, 5)), np.vstack([np.ones(5), np.zeros(5)])
    params = {"solver": solver, "annealing": "none", "components_init": start}
    est = AnnealedSpikeSlabFactorAnalysis(2, **params)
    with pytest.raises(ValueError, match="Row 1 of components_init has zeros alone"):
        est.fit(X)


def test_a_start_whose_distances_overflow_is_refused(rng):
    X = rng.standard_normal((30, 2))
    with pytest.raises(ValueError, match="so far from the data"):
        AnnealedBayesianGaussianMixture(2, means_init=[[1e160, 0.0], [0.0, 0.0]]).fit(X)


def test_a_profile_without_values_is_no_start(rng):
    X = rng.standard_normal((60, 2))

    def fit(given):
        est = AnnealedBayesianMixture(3, emission="gaussian", max_iter=3, emission_init=given)
        return est.set_params(random_state=0, annealing="none").fit(X)

    usual = fit(None)
    for given in ({}, {"means": None}):
        np.testing.assert_array_equal(fit(given).means_, usual.means_)


def test_counts_keep_given_components_exactly(rng):
    X = rng.poisson(2.0, size=(20, 4))
    start = np.array([[1e-4, 1.0, 2.0, 5.0], [3.0, 0.5, 1e-3, 1.0]])
    est = AnnealedGammaProcessNMF(2, components_init=start, annealing="none", max_iter=0).fit(X)
    np.testing.assert_allclose(est.components_, start, rtol=1e-12)
