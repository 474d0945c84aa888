"""Missing cells of factors, sequences, ratings and counts: draws against their exact laws."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from scipy.special import softmax
from scipy.stats import kstest, norm, poisson, t
from sklearn.base import clone

from sklearn_anneal import (
    AnnealedGammaProcessNMF,
    AnnealedHMM,
    AnnealedPMF,
    AnnealedSpikeSlabFactorAnalysis,
    Shards,
)
from sklearn_anneal.data.units import Rows, cell_patterns
from sklearn_anneal.models import _count_cells, _factor_cells, _path_draws

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

QUICK = {"annealing": "none", "random_state": 0}
FACTORS = AnnealedSpikeSlabFactorAnalysis(2, max_iter=30, **QUICK)
LOADINGS = np.array([[2.0, 1.0, 0.0, 0.5], [0.0, 1.5, -2.0, 0.5]])


def factor_rows(rng, n):
    factors = rng.standard_normal((n, 2)) * (rng.random((n, 2)) < 0.5)
    return 3.0 + factors @ LOADINGS + 0.5 * rng.standard_normal((n, 4))


def with_holes(X, rng, share=0.2):
    return np.where(rng.random(X.shape) < share, np.nan, X)


def near(found, expected, deviation, n):
    """Whether a mean of n draws is within five standard errors of its expectation."""
    return abs(found - expected) < 5.0 * deviation / np.sqrt(n) + 1e-9


# Factors


def mixture_of_activations(est, row):
    """Weights, means and covariances of p(x | z, x_o) for all z, at the fitted values."""
    observed = ~np.isnan(row)
    pi, w = est.activation_probabilities_, est.components_
    logs, means, covariances = [], [], []
    for z in map(np.array, product([0, 1], repeat=len(w))):
        cov = (w.T * z) @ w + np.diag(est.noise_variance_)
        own = cov[np.ix_(observed, observed)]
        away = (row - est.mean_)[observed]
        solved = np.linalg.solve(own, away)
        logs.append(np.log(np.where(z, pi, 1 - pi)).sum())
        logs[-1] -= 0.5 * (np.linalg.slogdet(own)[1] + away @ solved)
        pull = cov[:, observed]
        means.append(est.mean_ + pull @ solved)
        covariances.append(cov - pull @ np.linalg.solve(own, pull.T))
    return softmax(logs), np.array(means), np.array(covariances)


@pytest.mark.parametrize("given", [{0: 5.0}, {1: 1.0, 3: 4.0}])
def test_rows_given_columns_are_those_of_all_activations(given, rng):
    """Also that factors are on as often as enumeration says."""
    est = clone(FACTORS).fit(factor_rows(rng, 200))
    row = np.full(4, np.nan)
    row[list(given)] = list(given.values())
    p, means, covariances = mixture_of_activations(est, row)
    n = 2000
    X, factors = est.sample(n, given=given)
    assert_array_equal(X[:, list(given)], np.tile(row[list(given)], (n, 1)))
    for i, z in enumerate(product([False, True], repeat=2)):
        share = ((factors != 0) == z).all(axis=1).mean()
        assert near(share, p[i], np.sqrt(p[i] * (1 - p[i])), n)
    for d in np.flatnonzero(np.isnan(row)):
        mean = p @ means[:, d]
        variance = p @ (covariances[:, d, d] + means[:, d] ** 2) - mean**2
        assert near(X[:, d].mean(), mean, np.sqrt(variance), n)
        assert_allclose(X[:, d].var(), variance, rtol=0.2)


@pytest.mark.parametrize("solver", ["coordinate", "gradient"])
def test_draws_of_rows_without_cells_have_their_moments(solver, rng):
    """Few rows leave the loadings uncertain, which ``return_std`` and draws include alike."""
    X = factor_rows(rng, 12)
    X[0, 0] = np.nan
    est = clone(FACTORS).set_params(solver=solver, noise_variance=1.0).fit(X)
    n = 60
    blank = np.full((20, 4), np.nan)
    mean, std = est.impute(blank, return_std=True)
    assert_allclose(mean, np.tile(est.mean_, (20, 1)))
    spread = est.components_.T**2 @ est.activation_probabilities_
    assert (std**2 > 1.0 + spread).all()
    drawn = est.impute(blank, n_draws=n).reshape(-1, 4)
    for d in range(4):
        assert near(drawn[:, d].mean(), est.mean_[d], std[0, d], n)
        assert_allclose(drawn[:, d].var(), std[0, d] ** 2, rtol=0.25)


def test_means_and_deviations_are_those_of_draws(rng):
    X = factor_rows(rng, 400)
    est = clone(FACTORS).fit(X)
    rows = with_holes(X[:6], rng, 0.4)
    hole = np.isnan(rows)
    mean, std = est.impute(rows, return_std=True)
    assert_array_equal(std[~hole], 0.0)
    assert_array_equal(mean[~hole], rows[~hole])
    drawn = np.concatenate(est.impute(np.tile(rows, (100, 1)), n_draws=2).reshape(2, 100, 6, 4))
    # The mean-field posterior of the factors of a row is not exact.
    assert_allclose(drawn.mean(axis=0)[hole], mean[hole], atol=0.5)
    assert_allclose(drawn.std(axis=0)[hole], std[hole], rtol=0.4)


def test_loadings_and_means_are_drawn_from_a_regression(rng):
    X = factor_rows(rng, 60)
    est = clone(FACTORS).fit(X)
    model, factors = est._context().model, rng.standard_normal((60, 2))
    holes = with_holes(X, rng)
    units = Rows(holes, None, est.mean_, cell_patterns(holes))
    drawn = [_factor_cells.loadings_given(model, units, factors, rng) for _ in range(600)]
    noise = np.sqrt(model.noise_variance)
    found = np.array([np.vstack([w * noise, m]) for w, m in drawn])
    for d in range(4):
        seen = ~np.isnan(holes[:, d])
        design = np.column_stack([factors, np.ones(60)])[seen]
        ridge = np.diag([*(1.0 / model.loading_variance), 0.0])
        inverse = np.linalg.inv(design.T @ design + ridge)
        mean = inverse @ design.T @ (X[seen, d] - est.mean_[d])
        deviations = noise[d] * np.sqrt(np.diagonal(inverse))
        assert_allclose(found[:, :, d].mean(axis=0), mean, atol=5 * deviations.max() / 600**0.5)
        assert_allclose(found[:, :, d].std(axis=0), deviations, rtol=0.15)


def test_rounds_correct_means_of_columns_that_lack_high_cells(rng):
    """The second column lacks cells where the first is high, so that its observed mean is low."""
    u = rng.standard_normal((400, 1))
    X = u * [1.0, 1.0, 1.0] + 0.2 * rng.standard_normal((400, 3))
    holes = X.copy()
    holes[X[:, 0] > 0, 1] = np.nan
    est = AnnealedSpikeSlabFactorAnalysis(1, max_iter=50, **QUICK).fit(holes)
    plain = est.impute(holes, n_draws=4)[:, :, 1].mean()
    rounds = est.impute(holes, n_draws=4, n_rounds=20)[:, :, 1].mean()
    assert est.mean_[1] < -0.6
    assert abs(rounds - X[:, 1].mean()) < 0.5 * abs(plain - X[:, 1].mean())


# Sequences


def paths(k, length):
    return np.array(list(product(range(k), repeat=length)))


@pytest.mark.parametrize("forbidden", [False, True])
def test_paths_are_drawn_with_their_probabilities(forbidden, rng):
    """All paths of two sequences of four and of two frames, of which one frame is missing."""
    start, transitions = np.array([0.5, 0.3, 0.2]), rng.dirichlet(np.ones(3), size=3)
    if forbidden:
        transitions = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    # Densities may underflow.
    density = np.array([-2000.0, 0, 0, 0, -2000, -2000])[:, None] + rng.normal(size=(6, 3))
    density[1] = 0.0
    n = 4000
    indptr = np.concatenate([[0], np.cumsum(np.tile([4, 2], n))])
    drawn = _path_draws.drawn_paths(np.tile(density, (n, 1)), indptr, start, transitions, rng)
    drawn = drawn.reshape(n, 6)
    for columns in (slice(0, 4), slice(4, 6)):
        each = paths(3, columns.stop - columns.start)
        with np.errstate(divide="ignore"):
            logs = np.log(start)[each[:, 0]] + np.log(transitions)[each[:, :-1], each[:, 1:]].sum(1)
        logs += density[columns][np.arange(each.shape[1]), each].sum(axis=1)
        codes = 3 ** np.arange(each.shape[1])
        counts = dict(zip(*np.unique(drawn[:, columns] @ codes, return_counts=True), strict=True))
        for path, p in zip(each, softmax(logs), strict=True):
            share = counts.get(path @ codes, 0) / n
            assert p > 0 or share == 0
            assert near(share, p, np.sqrt(p * (1 - p)), n)


def two_states(rng, n=240, d=2):
    states = np.cumsum(rng.random(n) < 0.1) % 2
    return 3.0 * states[:, None] * [1, -1][:d] + rng.standard_normal((n, d)), states


def sequences(emission, rng, n=90):
    """Frames of three columns, of symbols or of blocks, with missing cells and frames."""
    states = np.cumsum(rng.random(n) < 0.15) % 2
    if emission == "categorical":
        X = (rng.random((n, 1)) < 0.2 + 0.6 * states[:, None]) + rng.integers(2, size=(n, 1))
    elif emission == "bernoulli":
        X = rng.random((n, 3)) < 0.2 + 0.6 * states[:, None]
    elif emission == "poisson":
        X = rng.poisson(1.0 + 5.0 * states[:, None], size=(n, 3))
    else:
        X = 4.0 * states[:, None] + rng.standard_normal((n, 3))
    if isinstance(emission, list):
        X[:, 1] = (X[:, 1] > 2) + rng.integers(2, size=n)
    X = with_holes(X.astype(float), rng)
    X[20:24] = np.nan
    return X


BLOCKS = [("two", "gaussian", [2, 0]), ("one", "categorical", [1])]
HMM = AnnealedHMM(2, max_iter=20, **QUICK)
KINDS = {
    "gaussian": {},
    "durations": {"duration": 3},
    "independent": {"covariance_type": "independent"},
    "poisson": {"emission": "poisson"},
    "bernoulli": {"emission": "bernoulli"},
    "symbols": {"emission": "categorical"},
    "blocks": {"emission": BLOCKS, "covariance_type": "diag"},
}


def chain(kind, rng):
    est = clone(HMM).set_params(**KINDS[kind])
    return est, sequences(est.emission, rng)


@pytest.mark.parametrize("duration", ["geometric", 2])
def test_cells_of_frames_have_the_mixture_of_their_states(duration, rng):
    """Parameters are known nearly exactly; the states of the frames follow from all frames."""
    X, _ = two_states(rng)
    est = clone(HMM).set_params(duration=duration, predictive=False)
    est.fit(X, sample_weight=np.full(len(X), 1e7))
    X = X[:8].copy()
    X[3, 0] = X[5] = np.nan
    n = 3000
    drawn = est.impute(np.tile(X, (n, 1)), lengths=[8] * n, n_draws=1).reshape(n, 8, 2)
    shares = est.predict_proba(X)
    means, covariances = est.means_, est.covars_
    # The first column of frame 3 is Gaussian given its second one.
    pull = covariances[:, 0, 1] / covariances[:, 1, 1]
    of_states = means[:, 0] + pull * (X[3, 1] - means[:, 1])
    within = covariances[:, 0, 0] - pull * covariances[:, 0, 1]
    cells = [(3, 0, of_states, within)]
    cells += [(5, d, means[:, d], covariances[:, d, d]) for d in range(2)]
    for frame, d, center, variance in cells:
        p = shares[frame]
        mean = p @ center
        variance = p @ (variance + center**2) - mean**2
        assert near(drawn[:, frame, d].mean(), mean, np.sqrt(variance), n)
        assert_allclose(drawn[:, frame, d].var(), variance, rtol=0.15)
    filled, std = est.impute(X, return_std=True)
    assert_allclose(filled[5], shares[5] @ means, rtol=1e-4)
    assert (std[np.isnan(X)] > 0).all() and (std[~np.isnan(X)] == 0).all()


def test_tables_of_frames_differ_by_what_is_not_known_of_the_parameters(rng):
    """One state is a Gaussian with independent frames, of which a new one is Student-t."""
    X = rng.normal(5.0, 2.0, size=(6, 1))
    priors = {"means_prior": [0.0], "beta_prior": 1.0, "dof_prior": 2.0, "scale_prior": [[1.0]]}
    est = AnnealedHMM(1, **priors, **QUICK).fit(X)
    drawn = est.impute([[np.nan]], n_draws=300).ravel()
    n, mean = 6, X.sum() / 7.0
    scale = 1.0 + (X**2).sum() - 7.0 * mean**2
    own = t(2.0 + n, mean, np.sqrt(scale / (2.0 + n) * (1 + 1 / 7)))
    assert kstest(drawn, own.cdf).pvalue > 1e-3


@pytest.mark.parametrize("duration", ["geometric", 1, 3])
def test_the_chain_given_paths_counts_starts_moves_and_durations(duration):
    est = clone(HMM).set_params(duration=duration, startprob_prior=1.0, transmat_prior=1.0)
    X = np.repeat([0.0, 9.0, 0.0, 9.0], 5)[:, None] + np.linspace(-1, 1, 20)[:, None]
    model = est.fit(X)._context().model
    # Sub-states 0, 1, 2 of the first state and 3, 4, 5 of the second; two sequences.
    path = {
        3: [0, 0, 1, 2, 3, 4, 4, 5, 0, 1, 3, 4, 5],
    }.get(duration, [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1])
    found = _path_draws.chain_given(model, np.array(path), np.array([0, 10, 13]))
    prior = model.chain_prior()
    added = {key: value - prior[key] for key, value in found.items()}
    assert_array_equal(added["startprob"], [1, 1])
    if duration == "geometric":
        assert_array_equal(added["transmat"], [[4, 1], [1, 5]])
        return
    assert_array_equal(added["transmat"], [[0, 1], [1, 0]])
    expected = [[4, 1], [5, 1]] if duration == 3 else [[1, 4], [1, 5]]
    assert_array_equal(added["durations"], expected)


@pytest.mark.parametrize("duration", ["geometric", 2])
def test_forbidden_moves_are_never_drawn(duration, rng):
    """From left to right, the last state being left for none; also the draws of rounds."""
    X = np.repeat([0.0, 8.0, 16.0], 8)[:, None] + rng.standard_normal((24, 1))
    X[[3, 12, 23]] = np.nan
    est = clone(HMM).set_params(
        n_components=3, startprob_prior=[1.0, 0.0, 0.0], transmat_prior=np.triu(np.ones((3, 3))),
        duration=duration, init_params="segments",
    ).fit(X)  # fmt: skip
    ctx, _, units = est._units(X, None, None)
    for _ in range(20):
        path = _path_draws.paths_given(ctx.model, units, ctx.model.expectations(ctx.q, rng), rng)
        states = ctx.model.states_of_sub_states[path]
        assert states[0] == 0 and (np.diff(states) >= 0).all()
        chain = _path_draws.chain_given(ctx.model, path, units.indptr)
        assert all(
            (chain[key][prior == 0] == 0).all() for key, prior in ctx.prior.items() if key in chain
        )
    drawn = est.impute(X, n_draws=3, n_rounds=2)
    assert np.abs(drawn[:, [3, 12, 23], 0] - [0.0, 8.0, 16.0]).max() < 8.0


@pytest.mark.parametrize("kind", KINDS)
def test_observed_cells_of_frames_stay_and_draws_repeat(kind, rng):
    est, X = chain(kind, rng)
    how = {"lengths": [40, 30, 20]}
    est.fit(X, **how)
    hole = np.isnan(X)
    drawn, rounds = (est.impute(X, n_draws=2, n_rounds=n, **how) for n in (0, 1))
    for found in (drawn, rounds):
        assert found.shape == (2, *X.shape) and not np.isnan(found).any()
        assert_array_equal(found[:, ~hole], np.tile(X[~hole], (2, 1)))
        assert (found[0] != found[1]).any()
    assert (drawn != rounds).any()
    assert_array_equal(est.impute(X, n_draws=3, random_state=0, **how)[:2], drawn)
    assert_array_equal(
        clone(est).set_params(n_jobs=2).fit(X, **how).impute(X, n_draws=2, **how), drawn
    )
    listed = np.split(X, [40, 70])
    assert_array_equal(est.impute(listed, n_draws=2), drawn)
    means, std = est.impute(X, return_std=True, **how)
    assert_array_equal(means[~hole], X[~hole])
    assert_array_equal(std[~hole], 0.0)
    if kind in ("poisson", "bernoulli", "symbols"):
        assert_array_equal(drawn, np.floor(drawn))
    if kind in ("bernoulli", "symbols"):
        assert np.isnan(std[hole]).all()
    if kind == "symbols":
        assert est.n_symbols_ == 3 and drawn.max() <= 2
        assert_array_equal(est.impute(np.where(hole, -1, X), n_draws=2, **how), drawn)
    elif kind != "bernoulli":
        assert np.isfinite(std[hole & [True, kind != "blocks", True]]).all()
    if kind == "blocks":
        assert np.isin(drawn[..., 1], [0, 1, 2]).all()


# Ratings

PMF = AnnealedPMF(2, clip=False, max_iter=20, **QUICK)


def ratings(rng, shape=(60, 12), share=0.4):
    X = 3.0 + rng.standard_normal((shape[0], 2)) @ rng.standard_normal((2, shape[1]))
    return with_holes(X + 0.5 * rng.standard_normal(shape), rng, share)


def test_rounds_of_ratings_draw_from_the_exact_posterior(rng):
    """Two users and two items, of which three cells are rated, by weighted draws of the prior."""
    X = np.array([[2.0, 1.0], [-2.0, np.nan]])
    est = AnnealedPMF(
        1, biases=False, fit_intercept=False, hierarchical=False, noise_variance=1.0,
        factor_variance=2.0, clip=False,
        **QUICK,
    ).fit(X)  # fmt: skip
    u, v = np.sqrt(2.0) * rng.standard_normal((2, 200_000, 2))
    weights = norm.pdf(2.0, u[:, 0] * v[:, 0]) * norm.pdf(1.0, u[:, 0] * v[:, 1])
    weights *= norm.pdf(-2.0, u[:, 1] * v[:, 0])
    cell = u[:, 1] * v[:, 1]
    mean = np.average(cell, weights=weights)
    deviation = np.sqrt(1.0 + np.average((cell - mean) ** 2, weights=weights))
    drawn = est.impute(X, n_draws=120, n_rounds=6)[:, 1, 1]
    assert near(drawn.mean(), mean, deviation, 120)
    assert_allclose(drawn.std(), deviation, rtol=0.35)


def test_ratings_are_kept_and_others_predicted(rng):
    X = ratings(rng)
    hole = np.isnan(X)
    est = clone(PMF).fit(X)
    mean, std = est.impute(X, return_std=True)
    rows = est.predict_rows(X, return_std=True)
    for found, predicted, given in zip((mean, std), rows, (X, np.zeros(X.shape)), strict=True):
        assert_allclose(found[hole], predicted[hole])
        assert_array_equal(found[~hole], given[~hole])
    drawn = est.impute(X, n_draws=60)
    assert abs((drawn.mean(axis=0) - mean)[hole]).mean() < 0.25 * std[hole].mean()
    assert_allclose(drawn.std(axis=0)[hole].mean(), std[hole].mean(), rtol=0.1)
    sparse = csr_matrix(np.nan_to_num(X))
    assert_array_equal(est.impute(sparse, n_draws=2), drawn[:2])
    clipped = clone(est).set_params(clip=(2.0, 4.0)).fit(X).impute(X, n_draws=2)
    assert clipped[:, hole].min() == 2.0 and clipped[:, hole].max() == 4.0
    assert not hasattr(AnnealedPMF(input="pairs"), "impute")


# Counts

NMF = AnnealedGammaProcessNMF(2, max_iter=20, **QUICK)


def counts(rng, shape=(30, 8), share=0.2):
    rates = rng.gamma(0.5, 2.0, (shape[0], 2)) @ rng.gamma(0.5, 4.0, (2, shape[1]))
    return with_holes(rng.poisson(rates).astype(float), rng, share)


def test_counts_given_components_are_those_of_weighted_draws(rng):
    """Activations of two components given four observed cells, at drawn components."""
    X = counts(rng, share=0.0)
    est = clone(NMF).set_params(activation_prior=0.8).fit(X)
    ctx = est._context()
    # As if so many rows had been seen that components are known.
    q = {
        key: value * (1e8 if "shape" in key or "rate" in key else 1.0)
        for key, value in ctx.q.items()
    }
    row = np.array([3.0, 0.0, 7.0, 2.0, *[np.nan] * 4])
    n = 1000
    units = est._rows(np.tile(row, (n, 1)))[1]
    activations = est._infer(ctx, units)
    drawn = _count_cells.drawn_cells(ctx.model, q, ctx.prior, units, activations, 0, rng)
    h = rng.gamma(0.8, 1.0 / 0.8, size=(200_000, 2))
    rates = h @ est.components_
    weights = poisson.pmf(row[:4], rates[:, :4]).prod(axis=1)
    for v in range(4, 8):
        mean = np.average(rates[:, v], weights=weights)
        variance = mean + np.average((rates[:, v] - mean) ** 2, weights=weights)
        assert near(drawn[:, v].mean(), mean, np.sqrt(variance), n / 2)
        # The variance of a Poisson variance.
        atol = 5.0 * variance * np.sqrt((1.0 / variance + 2.0) / n)
        assert_allclose(drawn[:, v].var(), variance, atol=atol)


def test_rounds_of_counts_draw_from_the_exact_posterior(rng):
    """A new row, of which nothing is known, given two counts of one other row."""
    X = np.array([[3.0, 8.0], [np.nan, np.nan]])
    est = AnnealedGammaProcessNMF(
        1, activation_prior=3.0, component_prior=3.0, concentration=3.0, **QUICK
    ).fit(X)
    h = rng.gamma(3.0, 1.0 / 3.0, size=(200_000, 2))
    w = rng.gamma(3.0, 1.0 / 3.0, size=(200_000, 2))
    w *= rng.gamma(3.0, 5.5 / 3.0, size=(200_000, 1))
    weights = poisson.pmf(X[0], h[:, :1] * w).prod(axis=1)
    drawn = est.impute(X, n_draws=100, n_rounds=5)[:, 1]
    for v in range(2):
        rate = h[:, 1] * w[:, v]
        mean = np.average(rate, weights=weights)
        deviation = np.sqrt(mean + np.average((rate - mean) ** 2, weights=weights))
        assert near(drawn[:, v].mean(), mean, deviation, 100)
        assert_allclose(drawn[:, v].std(), deviation, rtol=0.5)


def test_means_and_deviations_of_counts(rng):
    X = counts(rng)
    hole = np.isnan(X)
    est = clone(NMF).fit(X)
    mean, std = est.impute(X, return_std=True)
    ctx, units = est._rows(X)
    assert_allclose(mean[hole], (est._infer(ctx, units) @ est.components_)[hole])
    assert (std[hole] ** 2 > mean[hole]).all() and (std[~hole] == 0).all()
    # A row without observed cells has the moments of the prior, and of q of the components.
    blank = np.full((1, 8), np.nan)
    _, std = est.impute(blank, return_std=True)
    q, b, n = ctx.q, ctx.model.activation_prior, 100_000
    h = rng.gamma(b, 1.0 / b, size=(n, 2))
    theta = rng.gamma(q["weights_shape"], 1.0 / q["weights_rate"], size=(n, 2))
    rate = np.broadcast_to(q["components_rate"], q["components_shape"].shape)[:, 0]
    w = rng.gamma(q["components_shape"][:, 0], 1.0 / rate, size=(n, 2))
    assert_allclose(std[0, 0], rng.poisson((h * theta * w).sum(axis=1)).std(), rtol=0.1)


def test_tables_without_missing_counts_or_with_fractions(rng):
    X = counts(rng)
    est = clone(NMF).fit(X)
    with pytest.raises(ValueError, match="a sparse matrix has none"):
        est.impute(csr_matrix(np.nan_to_num(X)))
    assert np.isfinite(est.impute(X + 0.5)).all()
    with pytest.raises(ValueError, match="X has fractions"):
        est.impute(X + 0.5, n_draws=2)


# All models


def of_factors(rng):
    X = with_holes(factor_rows(rng, 40), rng)
    return clone(FACTORS).fit(X), X


def of_frames(rng):
    X, _ = two_states(rng, 40)
    X = with_holes(X, rng)
    return clone(HMM).fit(X), X


def of_ratings(rng):
    X = ratings(rng, (20, 6))
    return clone(PMF).fit(X), X


def of_counts(rng):
    X = counts(rng)
    return clone(NMF).fit(X), X


MODELS = [of_factors, of_frames, of_ratings, of_counts]


@pytest.mark.parametrize("model", MODELS)
def test_tables_have_the_container_of_x(model, rng):
    pd = pytest.importorskip("pandas")
    est, X = model(rng)
    assert est.impute(X.astype(np.float32), n_draws=1).dtype == np.float32
    assert est.impute(X.astype(np.float32)).dtype == np.float32
    frame = pd.DataFrame(
        X, columns=[f"c{i}" for i in range(X.shape[1])], index=np.arange(len(X)) + 3
    )
    arrays, means = est.impute(X, n_draws=2), est.impute(X)
    est.fit(frame).set_output(transform="pandas")
    tables = est.impute(frame, n_draws=2)
    assert isinstance(tables, list)
    for found, expected in zip(tables, arrays, strict=True):
        assert found.index.equals(frame.index) and list(found.columns) == list(frame.columns)
        assert_array_equal(found.to_numpy(), expected)
    assert_array_equal(est.impute(frame).to_numpy(), means)


@pytest.mark.parametrize("model", MODELS)
def test_draws_that_make_no_sense_are_refused(model, rng):
    est, X = model(rng)
    for bad in (0, -1, 1.5, True, "two"):
        with pytest.raises(ValueError, match="n_draws is the number of tables"):
            est.impute(X, n_draws=bad)
    with pytest.raises(ValueError, match="return_std=True is for means"):
        est.impute(X, return_std=True, n_draws=2)
    with pytest.raises(ValueError, match="n_rounds is an integer"):
        est.impute(X, n_draws=2, n_rounds=-1)
    with pytest.raises(ValueError, match="n_rounds=2 is for draws"):
        est.impute(X, n_rounds=2)
    with pytest.raises(ValueError, match="for the table of the fit"):
        est.impute(X[:9], n_draws=2, n_rounds=2)
    with pytest.raises(TypeError, match="share one draw of the parameters"):
        est.impute(Shards([X[:9], X[9:]]), n_draws=2)
    assert est.impute(X[:9], n_draws=2).shape == (2, 9, X.shape[1])


@pytest.mark.parametrize("model", MODELS)
def test_draws_of_the_same_rows_alone(model, rng):
    """Observed cells stay, tables repeat, and rounds draw other cells."""
    est, X = model(rng)
    hole = np.isnan(X)
    drawn = est.impute(X, n_draws=2)
    assert_array_equal(drawn[:, ~hole], np.tile(X[~hole], (2, 1)))
    assert not np.isnan(drawn).any() and (drawn[0] != drawn[1]).any()
    assert_array_equal(est.impute(X, n_draws=3, random_state=0)[:2], drawn)
    assert (est.impute(X, n_draws=2, random_state=1) != drawn).any()
    rounds = est.impute(X, n_draws=2, n_rounds=2)
    assert_array_equal(rounds[:, ~hole], np.tile(X[~hole], (2, 1)))
    assert (rounds != drawn).any()
    whole = np.where(hole, 1.0, X)
    assert_array_equal(est.impute(whole, n_draws=2), np.stack([whole, whole]))
