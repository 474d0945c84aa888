"""Mixtures of any columns: packed and sparse rows, missing cells, predictions, learned priors."""

from __future__ import annotations

import numpy as np
import plain_empirical_bayes
import pytest
from harness import context_of
from models.mixture import BLOCKS, table
from numpy.testing import assert_allclose, assert_array_equal
from pairs_of_betas import beta_pairs
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array
from scipy.special import gammaln, logsumexp, psi
from scipy.stats import beta, nbinom, norm, t
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedBayesianMixture
from sklearn_anneal.annealing import StructuredVI
from sklearn_anneal.data.tables import Blocks, Coded, Packing, merged_rows, missing_cells
from sklearn_anneal.data.units import Rows
from sklearn_anneal.families import Beta, Tempering
from sklearn_anneal.models.components._base import BOUNDS, Joint, n_distinct
from sklearn_anneal.models.components.bernoulli import BernoulliComponents
from sklearn_anneal.models.components.categorical_columns import CategoricalColumns

EMISSIONS = ("bernoulli", "categorical", "poisson", "gaussian")


def mixture(emission, k=3, **params):
    settings = {"emission": emission, "effort": 0, "random_state": 0}
    return AnnealedBayesianMixture(k, **settings | params)


def codes_of(levels, n_levels, n_components=3):
    missing = (levels < 0).any(axis=0)
    return Coded.of_chunks([levels[:7], levels[7:]], n_levels, missing, n_components)


# Packed rows


@pytest.mark.parametrize("n_levels", [[2] * 19, [3, 1, 5, 2, 2, 7, 2], [300, 2, 2], [70_000, 3]])
@pytest.mark.parametrize("holes", [0.0, 0.2])
def test_packing_is_lossless(n_levels, holes, rng):
    levels = rng.integers(n_levels, size=(40, len(n_levels)))
    levels[rng.random(levels.shape) < holes] = -1
    coded = codes_of(levels, n_levels)
    assert_array_equal(coded.levels(), levels)
    assert_array_equal(coded[3:20].levels(), levels[3:20])
    assert coded.shape == levels.shape
    mask = missing_cells(coded)
    assert_array_equal(np.zeros(levels.shape, dtype=bool) if mask is None else mask, levels < 0)


def test_codes_take_a_byte_for_eight_binary_columns():
    packing = Packing.of([2] * 100, [False] * 100, 20)
    assert packing.n_codes == 13
    assert packing.dtype == np.uint8
    assert Packing.of([2] * 100, [True] * 100, 20).n_codes == 20


def test_codes_share_out_their_values():
    """Tables have an entry for each of them, and four codes of 243 values hold no more columns."""
    assert_array_equal(np.diff(Packing.of([3] * 16, [False] * 16, 5).begins), [81] * 4)
    assert_array_equal(np.diff(Packing.of([2] * 20, [False] * 20, 5).begins), [128, 128, 64])
    assert_array_equal(np.diff(Packing.of([9], [False], 5).begins), [9])


@pytest.mark.parametrize("k", [1, 3, 8, 21])
@pytest.mark.parametrize("holes", [0.0, 0.15])
def test_densities_and_statistics_of_codes_are_those_of_plain_sums(k, holes, rng):
    n_levels = [2, 3, 2, 5, 2, 2, 2, 2, 2, 4, 2, 2]
    levels = rng.integers(n_levels, size=(300, len(n_levels)))
    levels[rng.random(levels.shape) < holes] = -1
    components = CategoricalColumns(k, n_levels, [np.ones((k, n)) for n in n_levels])
    q = components.gathered([rng.gamma(2.0, size=(k, n)) for n in n_levels])
    rows = Rows(codes_of(levels, n_levels, k))
    expected = components.expectations(q)
    prepared = components.for_rows(expected, rows)
    columns = np.split(expected, np.cumsum(n_levels)[:-1])
    observed = levels >= 0
    plain = sum(
        np.where(observed[:, d, None], column[levels[:, d]], 0.0)
        for d, column in enumerate(columns)
    )
    assert_allclose(components.log_density(rows, prepared), plain, rtol=1e-12, atol=1e-12)
    shares = rng.random((300, k))
    raw = components.zeros(prepared)
    components.add(rows, shares, raw, prepared)
    found = components.columns(components.statistics(raw))
    for d, n in enumerate(n_levels):
        one_hot = np.equal.outer(np.arange(n), levels[:, d]).astype(float)
        assert_allclose(found[d].T, one_hot @ shares, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("holes", [0.0, 0.15])
def test_binary_rows_mean_the_same_packed_dense_and_sparse(holes, rng):
    X = (rng.random((200, 21)) < 0.3).astype(float)
    X[rng.random(X.shape) < holes] = np.nan
    k = 4
    components = BernoulliComponents(k, 21, np.ones((k, 21)), np.ones((k, 21)))
    q = {key: rng.gamma(2.0, size=(k, 21)) for key in ("a", "b")}
    shares, results = rng.random((200, k)), []
    levels = np.where(np.isnan(X), -1, X).astype(int)
    for form in (X, csr_array(X), codes_of(levels, [2] * 21, k)):
        rows = Rows(form)
        expected = components.for_rows(components.expectations(q), rows)
        raw = components.zeros(expected)
        components.add(rows, shares, raw, expected)
        results.append((components.log_density(rows, expected), components.statistics(raw)))
    for density, statistics in results[1:]:
        assert_allclose(density, results[0][0], rtol=1e-12)
        for key, value in statistics.items():
            assert_allclose(value, results[0][1][key], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("k", [1, 2, 4, 20, 31, 32, 45, 70])
def test_the_local_step_of_codes_is_that_of_plain_sums(k, rng):
    """Rows of every width, of several blocks of rows, with weights, noise and a temperature."""
    levels = rng.integers(2, size=(259, 21))
    levels[rng.random(levels.shape) < 0.1] = -1
    components = BernoulliComponents(k, 21, np.ones((k, 21)), np.ones((k, 21)))
    q = {key: rng.gamma(0.5, size=(k, 21)) for key in ("a", "b")}
    weights, noise = rng.random((2, 259))
    log_weights, t = np.log(rng.dirichlet(np.ones(k))), Tempering(local=0.7, statistics=0.3)
    rows = Rows(codes_of(levels, [2] * 21, k), weights)
    prepared = components.for_rows(components.expectations(q), rows)
    step = components.local_step(rows, Joint(prepared, log_weights), t, noise)
    joint = components.log_density(rows, prepared) + log_weights
    log_r = 0.7 * joint - logsumexp(0.7 * joint, axis=1, keepdims=True)
    r = np.exp(log_r)
    assert step.energy == pytest.approx(weights @ (r * joint).sum(axis=1), rel=1e-12)
    assert step.entropy == pytest.approx(-weights @ (r * log_r).sum(axis=1), rel=1e-10, abs=1e-9)
    shares = 0.3 * (weights * noise)[:, None] * r
    assert_allclose(step.statistics["rows"], shares.sum(axis=0), rtol=1e-11)
    raw = step.statistics["components"]
    assert_allclose(raw.count, shares.sum(axis=0), rtol=1e-11)
    assert_allclose(raw.sum, shares.T @ (levels == 1), rtol=1e-10, atol=1e-300)
    assert_allclose(raw.missing, shares.T @ (levels < 0), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("emission", ["bernoulli", "poisson"])
def test_a_sparse_fit_is_the_dense_one(emission, rng):
    X = table(emission, 0.0, 4)(rng, 150)
    dense = mixture(emission).fit(X)
    sparse = mixture(emission).fit(csr_array(X))
    assert sparse.lower_bound_ == pytest.approx(dense.lower_bound_, rel=1e-9)
    assert_allclose(sparse.transform(csr_array(X)), dense.transform(X), atol=1e-6)
    assert_allclose(sparse.score_samples(csr_array(X)), sparse.score_samples(X), rtol=1e-10)


def test_sparse_rows_of_a_fit_are_never_made_dense(rng, monkeypatch):
    X = csr_array((rng.random((200, 20)) < 0.1).astype(float))
    original = csr_array.toarray

    def refuse(matrix, *args, **kwargs):
        # scikit-learn copies single rows, which become centers of clusters.
        assert matrix.shape[0] < 20, "a sparse matrix was made dense"
        return original(matrix, *args, **kwargs)

    monkeypatch.setattr(csr_array, "toarray", refuse)
    monkeypatch.setattr(csr_array, "todense", refuse)
    for init_params in ("random", "kmeans", "k-means++", "random_from_data"):
        # One search is enough to see that moves do not either.
        effort = 1 if init_params == "random" else 0
        model = mixture("bernoulli", init_params=init_params, effort=effort).fit(X)
        model.predict(X)
        model.score(X)


# Equal rows


def test_equal_rows_are_merged_into_weights(rng):
    X = table("categorical", 0.1)(rng, 400)
    estimator = mixture("categorical", n_categories=3, annealing="svi_plus")
    coded = estimator._make_units(estimator._validate_data(X, reset=True), None).X
    rows, weights = merged_rows(coded, None)
    assert len(rows) == len(np.unique(np.where(np.isnan(X), -1, X), axis=0))
    assert weights.sum() == 400
    assert merged_rows(coded[:5], None) is None
    given = rng.random(400)
    assert merged_rows(coded, given)[1].sum() == pytest.approx(given.sum())
    both = Blocks({"a": coded, "b": coded})
    assert len(merged_rows(both, None)[0]) == len(rows)
    assert merged_rows(Blocks({"a": coded, "b": X}), None) is None


def test_merged_rows_have_the_bound_of_all_rows(rng):
    X = table("bernoulli", 0.1)(rng, 300)
    model = mixture("bernoulli", annealing="none").fit(X)
    ctx = context_of(model)
    coded = model._encoded(model._validate_data(X, reset=False), model._known)
    bounds = []
    for units in (Rows(coded), Rows(*merged_rows(coded, None))):
        visit = ctx.model.visit(ctx.q, units)
        bounds.append(visit.step(units).bound)
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-12)


# Missing cells


@pytest.mark.parametrize("emission", EMISSIONS)
def test_a_row_without_observed_cells_has_the_weights_of_the_components(emission, rng):
    X = table(emission, 0.1)(rng, 120)
    model = mixture(emission, weight_concentration_prior_type="dirichlet_distribution").fit(X)
    nothing = np.full((1, X.shape[1]), np.nan)
    ctx = context_of(model)
    log_weights = ctx.model.weights.log_weights(ctx.q)
    expected = np.exp(log_weights - logsumexp(log_weights))
    assert_allclose(model.transform(nothing)[0], expected, atol=1e-12)
    assert model.score_samples(nothing)[0] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("start", ["k-means++", "random_from_data"])
def test_components_start_from_rows_with_cells(start, rng):
    """A component that started from a row of holes would be the prior, and so would a second."""
    X = np.full((60, 4), np.nan)
    X[:6] = rng.integers(2, size=(6, 4))
    model = mixture("bernoulli", init_params=start, annealing="none", max_iter=0)
    model.set_params(emissionprob_prior=1.0).fit(X)
    assert not np.isclose(model.emissionprob_, 0.5).all(axis=1).any()


def test_minus_one_is_a_missing_category(rng):
    X = table("categorical", 0.2)(rng, 100)
    minus = np.where(np.isnan(X), -1, X)
    one, other = mixture("categorical").fit(X), mixture("categorical").fit(minus.astype(np.int8))
    assert one.lower_bound_ == other.lower_bound_
    assert_array_equal(one.transform(X), other.transform(minus))


@pytest.mark.parametrize("emission", ["bernoulli", "categorical"])
def test_the_probability_of_observed_cells_is_a_sum_over_the_missing_one(emission, rng):
    X = table(emission, 0.0)(rng, 80)
    model = mixture(emission).fit(X)
    row = X[:1].copy()
    row[0, 1] = np.nan
    n = 2 if emission == "bernoulli" else len(model.emissionprob_[1][0])
    filled = np.repeat(row, n, axis=0)
    filled[:, 1] = np.arange(n)
    total = logsumexp(model.score_samples(filled))
    assert model.score_samples(row)[0] == pytest.approx(total, rel=1e-10)


@pytest.mark.parametrize("emission", [*EMISSIONS, BLOCKS])
def test_imputed_cells_are_predictive_means_or_modes(emission, rng):
    X = table(emission, 0.2)(rng, 150)
    model = mixture(emission).fit(X)
    filled, std = model.impute(X, return_std=True)
    hole = np.isnan(X)
    assert_array_equal(filled[~hole], X[~hole])
    assert not np.isnan(filled).any()
    assert (std[~hole] == 0).all()
    shares = model._predictive_shares(model._again(X)[0])
    if emission == "poisson":
        assert_allclose(filled[hole], (shares @ model.lambdas_)[hole])
        mean, rate = model.lambdas_, model.lambdas_weight_posterior_
        second = shares @ (mean + mean / rate + mean**2)
        assert_allclose(std[hole], np.sqrt(second - (shares @ mean) ** 2)[hole])
    elif emission == "gaussian":
        assert_allclose(filled[hole], (shares @ model.means_)[hole])
    elif emission == "bernoulli":
        assert_array_equal(filled[hole], ((shares @ model.emissionprob_) > 0.5)[hole])
    elif emission == "categorical":
        for d, p in enumerate(model.emissionprob_):
            assert_array_equal(filled[hole[:, d], d], (shares @ p).argmax(axis=1)[hole[:, d]])
    else:
        assert np.isnan(std[hole[:, 0], 0]).all()
        assert (std[hole[:, 3], 3] > 0).all()


@pytest.mark.parametrize("emission", ["poisson", "gaussian"])
def test_imputed_cells_have_the_moments_of_the_density_of_rows(emission, rng):
    """The density of a cell given the others is that of the row over that of the others."""
    X = np.vstack([rng.poisson(rate, (9, 3)) for rate in (2, 4, 9)]).astype(float)
    model = mixture(emission).fit(X)
    levels = np.arange(200.0) if emission == "poisson" else np.linspace(-200, 200, 40_001)
    given = np.array([4.0, 7.0])
    table = np.column_stack([levels, np.tile(given, (len(levels), 1))])
    hole = np.array([[np.nan, *given]])
    share = np.exp(model.score_samples(table) - model.score_samples(hole))
    share *= levels[1] - levels[0]
    assert share.sum() == pytest.approx(1.0, abs=1e-6)
    mean, std = (each[0, 0] for each in model.impute(hole, return_std=True))
    assert mean == pytest.approx(share @ levels, rel=1e-6)
    assert std == pytest.approx(np.sqrt(share @ (levels - mean) ** 2), rel=1e-3)


@pytest.mark.filterwarnings("error")
def test_surplus_components_leave_standard_deviations_finite(rng):
    """Their columns have one degree of freedom, that of the prior, and no variance."""
    X = np.vstack([rng.normal(-4, 1, (60, 3)), rng.normal(4, 1, (60, 3))])
    X[rng.random(X.shape) < 0.2] = np.nan
    est = AnnealedBayesianMixture(
        10, emission="gaussian", dof_prior=None, scale_prior=None, random_state=0
    ).fit(X)
    dof = est.dof_posterior_
    assert dof.min() < 2.1 < dof.max()
    rows = np.vstack([np.full((1, 3), np.nan), X])
    filled, std = est.impute(rows, return_std=True)
    assert_array_equal(est.impute(rows), filled)
    shares = est._predictive_shares(est._again(rows)[0])
    dof, mean, scale = est._context().model.components.student_t(est._context().q)
    for (n, d), found in np.ndenumerate(std):
        if not np.isnan(rows[n, d]):
            assert found == 0
            continue
        kept = dof[:, d] >= 2.1
        p = shares[n, kept] / shares[n, kept].sum()
        center = p @ mean[kept, d]
        variance = scale[kept, d] * dof[kept, d] / (dof[kept, d] - 2)
        right = np.sqrt(p @ (variance + (mean[kept, d] - center) ** 2))
        assert found == pytest.approx(right, rel=1e-9)


def test_components_without_a_variance_have_an_interval(rng):
    est = AnnealedBayesianMixture(
        1, emission="gaussian", dof_prior=0.5, annealing="none", max_iter=0, random_state=0
    ).fit(rng.normal(size=(2, 2)), sample_weight=[0.5, 0.5])
    dof, _, scale = est._context().model.components.student_t(est._context().q)
    assert (dof < 2).all()
    filled, std = est.impute(np.full((1, 2), np.nan), return_std=True)
    for d in range(2):
        density = t(dof[0, d], filled[0, d], np.sqrt(scale[0, d]))
        share = density.cdf(filled[0, d] + std[0, d]) - density.cdf(filled[0, d] - std[0, d])
        assert share == pytest.approx(norm.cdf(1.0) - norm.cdf(-1.0), rel=1e-6)


def test_deviations_of_large_counts_have_their_digits(rng):
    X = rng.poisson([[1e15, 3.0]], size=(40, 2)).astype(float)
    est = AnnealedBayesianMixture(1, emission="poisson", random_state=0).fit(X)
    _, std = est.impute(np.full((1, 2), np.nan), return_std=True)
    right = np.sqrt(est.lambdas_ * (1.0 + 1.0 / est.lambdas_weight_posterior_))
    assert_allclose(std, right, rtol=1e-12)


def test_missing_cells_are_imputed_better_than_by_the_column(rng):
    X = table("bernoulli", 0.0, 8)(rng, 600)
    holes = rng.random(X.shape) < 0.2
    filled = mixture("bernoulli").fit(np.where(holes, np.nan, X)).impute(np.where(holes, np.nan, X))
    modes = np.broadcast_to(X.mean(axis=0) > 0.5, X.shape)
    assert (filled != X)[holes].mean() < 0.85 * (modes != X)[holes].mean()


# Predictions


def test_counts_have_negative_binomial_predictive_probabilities(rng):
    X = table("poisson", 0.0)(rng, 60)
    model = mixture("poisson", 1).fit(X)
    a, b = model.lambdas_posterior_[0], model.lambdas_weight_posterior_[0]
    expected = nbinom.logpmf(X, a, b / (b + 1.0)).sum(axis=1)
    assert_allclose(model.score_samples(X), expected, rtol=1e-10)


def test_independent_gaussian_columns_have_student_t_predictive_densities(rng):
    X = table("gaussian", 0.0)(rng, 60)
    model = mixture("gaussian", 1).fit(X)
    dof, strength = model.dof_posterior_[0], model.beta_posterior_[0]
    scale = np.sqrt(model.scale_posterior_[0] / dof * (strength + 1) / strength)
    expected = t.logpdf(X, dof, model.means_[0], scale).sum(axis=1)
    assert_allclose(model.score_samples(X), expected, rtol=1e-10)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_gaussian_blocks_are_the_gaussian_mixture(covariance_type, rng):
    X = table("gaussian", 0.1)(rng, 150)
    own = {"annealing": "none", "init_params": "random_from_data", "reg_covar": 1e-6}
    weights = {"weight_concentration_prior": 0.5, "covariance_type": covariance_type}
    columns = mixture("gaussian", 2, **own, **weights).fit(X)
    rows = AnnealedBayesianGaussianMixture(n_components=2, random_state=0, **own, **weights).fit(X)
    ctx, other = context_of(columns), context_of(rows)
    q = {key: ctx.q[key] for key in other.q}
    prior = {key: ctx.prior[key] for key in other.prior}
    units = rows._make_units(rows._validate_data(X, reset=False), None).centered(other.summary)
    step = other.model.visit(q, units).step(units)
    bound = step.bound - other.model.kl(q, prior)
    assert columns.lower_bound_ == pytest.approx(bound, rel=1e-6)
    assert_allclose(
        columns.score_samples(X), other.model.log_predictive(units, q), rtol=1e-8, atol=1e-10
    )


def test_information_criteria_count_parameters_and_rows(rng):
    X = table("categorical", 0.0)(rng, 90)
    model = mixture("categorical", 2).fit(X)
    p = 1 + 2 * sum(len(q[0]) - 1 for q in model.emissionprob_)
    logs = [np.log(q)[:, X[:, d].astype(int)] for d, q in enumerate(model.emissionprob_)]
    log_likelihood = logsumexp(np.log(model.weights_)[:, None] + sum(logs), axis=0).sum()
    assert model.aic(X) == pytest.approx(2 * p - 2 * log_likelihood)
    assert model.bic(X) == pytest.approx(p * np.log(90) - 2 * log_likelihood)
    weights = np.repeat([2.0, 0.0], 45)
    half = np.repeat(X[:45], 2, axis=0)
    assert model.bic(X, sample_weight=weights) == pytest.approx(model.bic(half))


def test_relative_entropy_is_one_for_sure_components(rng):
    X = np.repeat([[0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]], 50, axis=0)
    model = mixture("bernoulli", 2).fit(X)
    assert model.relative_entropy(X) > 0.99
    assert model.relative_entropy(np.full((1, 6), np.nan)) < 0.1
    assert mixture("bernoulli", 1).fit(X).relative_entropy(X) == 1.0


def test_samples_have_the_means_of_the_components(rng):
    X = table(BLOCKS, 0.1)(rng, 200)
    model = mixture(BLOCKS, 3).fit(X)
    rows, labels = model.sample(5000)
    for name, attribute in (("binary", "emissionprob_"), ("counts", "lambdas_")):
        block = model.blocks_[name]
        for k in np.flatnonzero(model.weights_ > 0.1):
            found = rows[labels == k][:, block.columns].mean(axis=0)
            assert_allclose(found, block[attribute][k], atol=0.35)
    assert_allclose(np.bincount(labels, minlength=3) / 5000, model.weights_, atol=0.02)


def test_blocks_may_be_named_by_the_columns_of_a_data_frame(rng):
    pandas = pytest.importorskip("pandas")
    X = table(BLOCKS, 0.1)(rng, 100)
    frame = pandas.DataFrame(X, columns=list("abcde"))
    named = [("binary", "bernoulli", ["b"]), ("categories", "categorical", ["a", "e"])]
    named += [("counts", "poisson", ["c"]), ("sizes", "gaussian", ["d"])]
    one, other = mixture(named).fit(frame), mixture(BLOCKS).fit(X)
    assert one.lower_bound_ == other.lower_bound_
    assert_array_equal(one.transform(frame), other.transform(X))


def test_text_goes_through_an_encoder():
    X = np.array([["a", "x"], ["b", "y"], ["a", "x"], ["b", "y"]] * 5, dtype=object)
    model = make_pipeline(OrdinalEncoder(), mixture("categorical", 2)).fit(X)
    labels = model.predict(X)
    assert labels[0] == labels[2] != labels[1]


# Learned priors of Gaussian columns


@pytest.mark.parametrize("name", ["beta_prior", "dof_prior", "scale_prior", "means_prior"])
def test_a_learned_prior_of_columns_maximises_the_bound(name, rng):
    X = table("gaussian", 0.1)(rng, 60)
    learned = dict.fromkeys(("means_prior", "beta_prior", "dof_prior", "scale_prior"))
    model = mixture("gaussian", annealing="none", max_iter=200, tol=0.0, **learned | {name: "auto"})
    with pytest.warns(Warning, match="did not converge"):
        model.fit(X)
    ctx = context_of(model)
    components = ctx.model.components
    (factor,) = components.factors
    q = factor.pick(ctx.q)
    key = {"beta_prior": "mean_precision_prior", "dof_prior": "degrees_of_freedom_prior"}
    key |= {"scale_prior": "scale_prior", "means_prior": "mean_prior"}
    own = key[name]
    before = components.priors[own].copy()

    def divergence(value, column):
        components.priors[own] = before.copy()
        components.priors[own][:, column] = value
        prior = components.prior(ctx.summary.components)
        components.priors[own] = before
        return factor.family.kl(q, factor.pick(prior))

    for column in range(3):
        found = before[0, column]
        bracket = (0.5 * found, found, 1.5 * found)
        best = minimize_scalar(divergence, bracket=bracket, args=(column,), tol=1e-10)
        assert divergence(found, column) <= best.fun + 1e-6


def test_learned_priors_stay_finite_for_equal_rows():
    X = np.repeat([[1.0, 2.0], [3.0, 2.0]], 20, axis=0)
    model = mixture("gaussian", 4).fit(X)
    assert np.isfinite(model.scale_prior_).all()
    assert np.isfinite(model.lower_bound_)


@pytest.mark.parametrize("start", [1.0, 0.01, 300.0])
def test_beta_priors_of_many_columns_are_those_of_one_at_a_time(start, rng):
    """Among them are columns whose best prior is at a bound, or in a corner."""
    a = rng.gamma(0.5, 2.0, size=(6, 60)) + 0.001
    b = rng.gamma(0.5, 50.0, size=(6, 60)) + 0.001
    a[:, :20], b[:, 10:30] = 1e-3, 1e-3
    a[:, 30:40], b[:, 30:40] = 9e4, 2e5
    total = psi(a + b)
    logs = np.array([(psi(a) - total).mean(axis=0), (psi(b) - total).mean(axis=0)])
    found = np.full((2, 60), start)
    beta_pairs(logs, np.zeros(60), *BOUNDS, found)
    expected = [plain_empirical_bayes.pair(*log, (1.0, 1.0), BOUNDS) for log in logs.T]
    assert_allclose(found, np.transpose(expected), rtol=1e-6)
    assert (found == BOUNDS[0]).any()
    assert (found == BOUNDS[1]).any()


@pytest.mark.parametrize("rare", [0, 1])
def test_the_mean_of_a_beta_prior_has_a_limit(rare, rng):
    """The best of all pairs whose means are large enough, as a search over a grid finds it."""
    least, logs = 0.02, np.array([[-7.0], [-0.002]])
    order = [rare, 1 - rare]
    found = np.ones((2, 1))
    beta_pairs(logs[order], np.array([least]), *BOUNDS, found)
    few, most = found[order, 0]
    assert_allclose(few / (few + most), least)

    def gain(a, b):
        return gammaln(a + b) - gammaln(a) - gammaln(b) + a * logs[0, 0] + b * logs[1, 0]

    b = np.geomspace(BOUNDS[0], BOUNDS[1], 4001)[:, None]
    share = np.geomspace(least, 0.5, 201)
    a = b * share / (1.0 - share)
    assert gain(few, most) >= gain(a, b)[a >= BOUNDS[0]].max()


@pytest.mark.parametrize(
    ("emission", "params", "value"),
    [
        ("bernoulli", {}, 1),
        ("poisson", {}, 1),
        ("categorical", {"n_categories": 3}, 2),
    ],
)
@pytest.mark.parametrize("n_components", [1, 2])
def test_values_that_never_occurred_are_not_excluded(emission, params, value, n_components):
    """With half a pseudo-observation, 60 rows without a value give it 0.5 / 61, or −4.8 nats.

    Learned priors are allowed to expect five times less.
    """
    X = np.zeros((60, 4), dtype=int)
    fitted = mixture(emission, n_components, **params).fit(X)
    unseen = X[:1].copy()
    unseen[0, 0] = value
    assert -6.8 < fitted.score(unseen) - fitted.score(X[:1]) < -4.8


@pytest.mark.parametrize("emission", ["bernoulli", "poisson"])
def test_streams_of_one_component_learn_priors_however_they_begin(emission, rng):
    X = rng.poisson(0.4, size=(600, 3)).clip(max=1)
    short, long = mixture(emission, 1), mixture(emission, 1)
    for rows in np.split(X, 30):
        short.partial_fit(rows)
    for rows in np.split(X, 5):
        long.partial_fit(rows)
    assert_allclose(short.score(X), long.score(X), atol=2e-3)


# Draws


def test_exact_gradients_have_the_expectation_of_the_statistics(rng):
    """V S averages to S over draws, as a Dirichlet distribution of two probabilities does."""
    q = {"a": np.array([3.0, 40.0]), "b": np.array([5.0, 2.0])}
    prior = {"a": np.ones(2), "b": np.ones(2)}
    stats = {"a": np.array([2.5, 36.0]), "b": np.array([4.5, 1.5])}
    family = Beta()
    draws = [family.sample(q, rng) for _ in range(1500)]
    found = [family.exact_gradient_statistics(draw, q, prior, stats) for draw in draws]
    for key, value in stats.items():
        assert_allclose(np.mean([each[key] for each in found], axis=0), value, rtol=0.03)
    assert np.std([each["a"][0] for each in found]) > 0.01


@pytest.mark.parametrize("emission", ["bernoulli", "categorical"])
def test_both_gradients_of_structured_inference_find_the_components(emission, rng):
    X = table(emission, 0.1, 4)(rng, 400)
    plain = mixture(emission, annealing="none", n_init=5).fit(X)
    for gradient in ("approximate", "exact"):
        method = StructuredVI(gradient=gradient, n_passes=60)
        model = mixture(emission, annealing=method).fit(X)
        assert model.annealing_.gradient == gradient
        assert model.score(X) > plain.score(X) - 0.1


def test_drawn_parameters_have_the_distribution_of_q(rng):
    """Structured inference reads draws of beta and gamma variables."""
    a, b = np.array([[0.3, 5.0]]), np.array([[2.0, 0.6]])
    components = BernoulliComponents(1, 2, a, b)
    q = {"a": a, "b": b}
    draws = np.array([components.draw(q, rng)[0]["log_value"] for _ in range(4000)])
    for d in range(2):
        u = beta.cdf(np.exp(draws[:, 0, d]), a[0, d], b[0, d])
        assert abs(u.mean() - 0.5) < 0.03


def test_words_of_groups_of_counts(rng):
    X = rng.poisson(np.repeat([[9.0, 1, 1, 5], [1, 9, 5, 1]], 40, axis=0))
    counts = AnnealedBayesianMixture(2, emission="poisson", effort=0, random_state=0).fit(X)
    words = counts.top_words(list("abcd"), n=2)
    assert sorted(map(list, words)) == [["a", "d"], ["b", "c"]]
    assert list(words[0]) == [list("abcd")[v] for v in np.argsort(-counts.lambdas_[0])[:2]]
    assert not hasattr(AnnealedBayesianMixture(2, emission="gaussian"), "top_words")
    # Weights that sum to one are proportions, and components are in use all the same.
    light = clone(counts).fit(X, sample_weight=np.full(80, 1 / 80))
    assert any(len(row) == 4 for row in light.top_words())


@pytest.mark.parametrize("largest", [3.0, 1023.0, 1024.0, 1e7])
def test_log_factorials_of_poisson_counts(largest, rng):
    """Those of small whole numbers come from a table, and those of all others do not."""
    components = mixture("poisson").fit(np.arange(60.0).reshape(20, 3))
    part = context_of(components).model.components
    X = rng.integers(0, 4, size=(50, 3)).astype(float)
    X[7, 1] = largest
    assert_array_equal(part._carrier(X), -gammaln(X + 1.0).sum(axis=1))
    X[3, 2] += 0.5
    assert_array_equal(part._carrier(X), -gammaln(X + 1.0).sum(axis=1))
    assert part._carrier(X[:0]).shape == (0,)


@pytest.mark.parametrize("distinct", [1, 3, 4, 5, 40])
def test_number_of_distinct_points(distinct, rng):
    """It is known from few points where those are different, and from all of them elsewhere."""
    points = np.sort(np.append(np.arange(distinct), np.zeros(60)))[:, None] + np.zeros(2)
    assert n_distinct(points, 4) == min(distinct, 4)
    assert n_distinct(rng.permutation(points), 4) == min(distinct, 4)
