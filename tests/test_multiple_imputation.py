"""Multiple imputation: draws of missing cells against their exact distributions."""

from __future__ import annotations

import numpy as np
import pytest
from cases_missing_cells import FORMS, GAPPED, MIXTURE
from models.mixture import BLOCKS, table
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
from scipy.stats import betabinom, kstest, norm, t
from sklearn.base import clone

from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedBayesianMixture
from sklearn_anneal.data.units import Rows, cell_patterns
from sklearn_anneal.models._draws import drawn_labels
from sklearn_anneal.models.components import _conditional_gaussians

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

all_forms = pytest.mark.parametrize(("covariance_type", "factorization"), FORMS)
COUNTS = ("poisson", "negative_binomial", "zero_inflated_poisson")
EMISSIONS = ("bernoulli", "categorical", *COUNTS, "gaussian")
GAUSSIANS = AnnealedBayesianGaussianMixture(2, annealing="none", effort=0, random_state=0)
# Parameters that are drawn from so narrow a posterior hardly differ from its mean.
MANY = 1e7


def any_columns(emission, **params):
    known = {"annealing": "none", "effort": 0, "random_state": 0, "max_iter": 5}
    return AnnealedBayesianMixture(2, **known | {"emission": emission, **params})


def assert_near(found, expected, deviation, n):
    """Assert that a mean of n draws is within five standard errors of its expectation."""
    assert abs(found - expected) < 5.0 * deviation / np.sqrt(n) + 1e-9, (found, expected)


# Pieces


def test_components_are_drawn_with_their_probabilities(rng):
    logs = np.array([[-1e4, -1e4 + 1.0, -1e4 - 2.0], [0.0, -np.inf, 700.0]])
    found = drawn_labels(np.repeat(logs, 20_000, axis=0), rng).reshape(2, -1)
    for labels, p in zip(found, softmax(logs, axis=1), strict=True):
        for k in range(3):
            assert_near((labels == k).mean(), p[k], np.sqrt(p[k] * (1 - p[k])), 20_000)
    assert (drawn_labels(np.zeros((5, 1)), rng) == 0).all()


@all_forms
def test_gaussian_cells_have_their_conditional_moments(
    covariance_type, factorization, rng, monkeypatch
):
    """By covariances, while the draws are made by precisions; matrices are shared or not."""
    est = clone(GAUSSIANS).set_params(covariance_type=covariance_type, factorization=factorization)
    ctx = est.fit(GAPPED.data(rng, 90))._context()
    components = ctx.model.components
    mean = est.means_
    covariance = components.structure.to_full(est.covariances_, 3)
    covariance = np.broadcast_to(covariance, (2, 3, 3))
    rows = MIXTURE.data(rng, 4)
    rows[0, 1] = rows[1, [0, 2]] = rows[2] = np.nan
    n = 1000
    X = np.tile(rows, (n, 1))
    labels = np.tile([0, 1, 1, 0], n)
    monkeypatch.setattr(_conditional_gaussians, "_ENTRIES", 90)
    units = Rows(X, None, ctx.summary.center, cell_patterns(X))
    drawn = components.drawn_rows(units, labels, components.plug_in(ctx.q), rng)
    drawn = drawn.reshape(n, 4, 3)
    for i, k in enumerate([0, 1, 1, 0]):
        m = np.isnan(rows[i])
        o = ~m
        assert_array_equal(drawn[:, i, o], np.tile(rows[i, o], (n, 1)))
        if not m.any():
            continue
        cov = covariance[k]
        pull = cov[np.ix_(m, o)] @ np.linalg.inv(cov[np.ix_(o, o)])
        center = mean[k, m] + pull @ (rows[i, o] - mean[k, o])
        within = cov[np.ix_(m, m)] - pull @ cov[np.ix_(o, m)]
        deviations = np.sqrt(np.diagonal(within))
        for j, deviation in enumerate(deviations):
            assert_near(drawn[:, i, m][:, j].mean(), center[j], deviation, n)
        scaled = np.cov(drawn[:, i, m], rowvar=False) / np.outer(deviations, deviations)
        expected = within / np.outer(deviations, deviations)
        assert_allclose(scaled, expected.reshape(scaled.shape), atol=5 * np.sqrt(2 / n))


# Draws of whole tables


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_cells_of_blank_rows_have_the_posterior_predictive_density(covariance_type, rng):
    """A Student-t density, which only draws of the parameters give."""
    X = rng.multivariate_normal([5.0, -3.0], [[1.0, 0.6], [0.6, 2.0]], size=5)
    est = AnnealedBayesianGaussianMixture(
        1, covariance_type=covariance_type, annealing="none", covariance_prior=None,
        mean_prior=None, mean_precision_prior=1.0, degrees_of_freedom_prior=2.0, random_state=0,
    ).fit(X)  # fmt: skip
    ctx = est._context()
    dof, mean, scale = ctx.model.components.student_t(ctx.q)
    drawn = est.impute(np.full((1, 2), np.nan), n_draws=500)[:, 0]
    for d in range(2):
        own = t(dof[0], mean[0, d] + ctx.summary.center[d], np.sqrt(scale[0, d, d]))
        assert kstest(drawn[:, d], own.cdf).pvalue > 1e-3
        # Gaussian draws at the posterior means would not pass.
        fitted = norm(own.mean(), np.sqrt(np.broadcast_to(est.covariances_[0], (2, 2))[d, d]))
        assert kstest(drawn[:, d], fitted.cdf).pvalue < 0.05


@pytest.mark.parametrize("emission", EMISSIONS)
def test_cells_have_the_mixture_of_their_components(emission, rng):
    """Enumeration of the components of a row, whose parameters are known nearly exactly."""
    X = table(emission, 0.2)(rng, 40)
    est = any_columns(emission).fit(X, sample_weight=np.full(40, MANY))
    row = X[~np.isnan(X).any(axis=1)][0].copy()
    row[1] = np.nan
    n = 4000
    rows = np.tile(row, (n, 1))
    (drawn,) = est.impute(rows, n_draws=1)
    assert_array_equal(drawn[:, [0, 2]], rows[:, [0, 2]])
    r = est.predict_proba(row[None])[0]
    found = drawn[:, 1]
    if emission in ("bernoulli", "categorical"):
        p = est.emissionprob_[1] if emission == "categorical" else est.emissionprob_[:, 1]
        p = r @ (p if emission == "categorical" else np.column_stack([1 - p, p]))
        for level, share in enumerate(p):
            assert_near((found == level).mean(), share, np.sqrt(share * (1 - share)), n)
        return
    mean = est.lambdas_[:, 1] if emission in COUNTS else est.means_[:, 1]
    within = mean if emission in COUNTS else est.covars_[:, 1]
    if emission == "negative_binomial":
        within = mean + mean**2 / est.count_shapes_[1]
    elif emission == "zero_inflated_poisson":
        zero = est.zeroprob_[:, 1]
        within, mean = (1 - zero) * (mean + zero * mean**2), (1 - zero) * mean
    variance = r @ (within + mean**2) - (r @ mean) ** 2
    assert_near(found.mean(), r @ mean, np.sqrt(variance), n)
    assert_allclose(found.var(), variance, rtol=0.15)
    assert emission == "gaussian" or (found == np.floor(found)).all()


def test_tables_differ_by_what_is_not_known_of_the_parameters():
    """Numbers of ones among the missing cells of a table are beta-binomial, not binomial."""
    X = np.array([[0.0], [1.0], [1.0], [0.0], [1.0]])
    est = AnnealedBayesianMixture(
        1, emission="bernoulli", emissionprob_prior=1.0, random_state=0
    ).fit(X)
    n_rows, n_tables = 40, 400
    ones = est.impute(np.full((n_rows, 1), np.nan), n_draws=n_tables).sum(axis=(1, 2))
    (a, b) = est.emissionprob_posterior_[0, 0]
    own = betabinom(n_rows, a, b)
    assert_near(ones.mean(), own.mean(), own.std(), n_tables)
    assert ones.var() == pytest.approx(own.var(), rel=0.3)
    p = a / (a + b)
    assert own.var() > 4 * n_rows * p * (1 - p)


@pytest.mark.parametrize("emission", [*EMISSIONS, BLOCKS, "mixture of Gaussians"])
def test_observed_cells_stay_and_draws_repeat(emission, rng):
    if emission == "mixture of Gaussians":
        X, est = GAPPED.data(rng, 60), clone(GAUSSIANS)
    else:
        X, est = table(emission, 0.2)(rng, 60), any_columns(emission)
    est.fit(X)
    hole = np.isnan(X)
    drawn = est.impute(X, n_draws=3)
    assert drawn.shape == (3, *X.shape) and not np.isnan(drawn).any()
    assert_array_equal(drawn[:, ~hole], np.tile(X[~hole], (3, 1)))
    assert (drawn[0] != drawn[1]).any() and (drawn[1] != drawn[2]).any()
    # The seed is that of the estimator, if none is given; more tables begin with the same ones.
    assert_array_equal(est.impute(X, n_draws=4, random_state=0)[:3], drawn)
    assert (est.impute(X, n_draws=3, random_state=1) != drawn).any()
    assert_array_equal(clone(est).set_params(n_jobs=2).fit(X).impute(X, n_draws=3), drawn)
    if emission is BLOCKS:
        assert np.isin(drawn[..., [0, 1, 2, 4]] % 1, 0).all()
        assert np.abs(drawn[..., 3] - np.nanmean(X[:, 3])).max() < 30


def test_draws_have_the_dtype_of_means(rng):
    X = GAPPED.data(rng, 40)
    est, X = clone(GAUSSIANS).fit(X), X.astype(np.float32)
    assert est.impute(X, n_draws=2).dtype == est.impute(X).dtype == np.float32


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_drawn_frames_are_those_of_the_user(library, rng):
    pytest.importorskip(library)
    X = table("categorical", 0.2)(rng, 40)
    frame = pytest.importorskip("pandas").DataFrame(X, columns=list("abc")).astype("Int8")
    frame.index += 7
    if library == "polars":
        pl = pytest.importorskip("polars")
        cells = {c: [None if np.isnan(x) else int(x) for x in X[:, i]] for i, c in enumerate("abc")}
        frame = pl.DataFrame(cells).cast(pl.Int8)
    est = any_columns("categorical").fit(X)
    arrays = est.impute(X, n_draws=2)
    est.fit(frame).set_output(transform=library)
    tables = est.impute(frame, n_draws=2)
    assert isinstance(tables, list) and len(tables) == 2
    for found, expected in zip(tables, arrays, strict=True):
        assert type(found) is type(frame) and list(found.columns) == list("abc")
        assert list(found.dtypes) == list(frame.dtypes)
        assert_array_equal(found.to_numpy().astype(float), expected)
        assert library == "polars" or found.index.equals(frame.index)


def test_rounds_draw_from_the_posterior_of_observed_cells():
    """Half of a column is missing, and the variational posterior counts all of its cells."""
    X = np.array([[0.0], [1.0]] * 5 + [[np.nan]] * 10)
    est = AnnealedBayesianMixture(
        1, emission="gaussian", means_prior=[0.5], beta_prior=1e-3, dof_prior=2.0, scale_prior=0.5,
        random_state=0,
    ).fit(X)  # fmt: skip
    tables = est.impute(X, n_draws=150, n_rounds=3)[:, :, 0]
    means = tables[:, 10:].mean(axis=1)
    # Student-t: ν = 12, and the mean of 10 new cells varies by 1/10 + 1/10.001 of the variance.
    own = t(12.0, 0.5, np.sqrt((0.5 + 2.5) / 12.0 * (1 / 10 + 1 / 10.001)))
    assert kstest(means, own.cdf).pvalue > 1e-3


@pytest.mark.parametrize("emission", [*EMISSIONS, BLOCKS, "mixture of Gaussians"])
def test_rounds_are_for_the_table_of_the_fit(emission, rng):
    if emission == "mixture of Gaussians":
        X, est = GAPPED.data(rng, 60), clone(GAUSSIANS)
    else:
        X, est = table(emission, 0.2)(rng, 60), any_columns(emission)
    drawn = est.fit(X).impute(X, n_draws=2, n_rounds=2)
    hole = np.isnan(X)
    assert not np.isnan(drawn).any()
    assert_array_equal(drawn[:, ~hole], np.tile(X[~hole], (2, 1)))
    assert (drawn != est.impute(X, n_draws=2)).any()
    with pytest.raises(ValueError, match="for the table of the fit"):
        est.impute(X[:9], n_draws=2, n_rounds=2)
    with pytest.raises(ValueError, match="n_rounds is an integer"):
        est.impute(X, n_draws=2, n_rounds=-1)
