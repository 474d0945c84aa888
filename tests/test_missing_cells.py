"""Gaussian mixtures of rows with missing cells: integrals, the bound, every method, predictions."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pytest
import test_contract as contract
from cases_missing_cells import FORMS, GAPPED, MIXTURE, TYPES, filled, nodes
from designs import in_turn, pairwise
from harness import (
    assert_identical,
    fitted_state,
    one_update,
    open_run,
    quick,
)
from peer_priors import PEER_OF_MIXTURES
from scipy.special import softmax
from scipy.stats import multivariate_t, norm
from scipy.stats import t as student_t
from sklearn.base import clone

from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedBayesianMixture, Shards
from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.data.units import Rows, cell_patterns
from sklearn_anneal.families import Tempering
from sklearn_anneal.models.components._moments import moments

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

all_forms = pytest.mark.parametrize(("covariance_type", "factorization"), FORMS)
all_types = pytest.mark.parametrize("covariance_type", TYPES)


def settings(covariance_type, factorization="joint", **others):
    return {"covariance_type": covariance_type, "factorization": factorization, **others}


def problem(rng, covariance_type, factorization="joint", X=None, draw=False):
    """A model after two updates, its expectations (or a draw), and its units."""
    X = GAPPED.data(rng, 60) if X is None else X
    est = GAPPED.make(annealing="none", **settings(covariance_type, factorization))
    ctx, method, units = open_run(est, X)
    for _ in range(2):
        one_update(ctx, method, units)
    return ctx, ctx.model.expectations(ctx.q, rng if draw else None), units


# Patterns


def test_patterns_tell_which_cells_are_missing(rng):
    for n_features in (1, 3, 64, 65, 200):
        X = rng.normal(size=(50, n_features))
        assert cell_patterns(X) is None
        masks = rng.random((6, n_features)) < 0.4
        masks[:, 0] = [False, True, False, True, False, True]
        masks[0] = False
        which = rng.integers(6, size=50)
        X[masks[which]] = np.nan
        found = cell_patterns(X)
        same = (masks[which][:, None] == masks[which]).all(axis=2)
        np.testing.assert_array_equal(found[:, None] == found, same)
        np.testing.assert_array_equal(found == 0, ~masks[which].any(axis=1))
    assert cell_patterns(np.full((3, 2), 1e308)) is None
    with np.errstate(over="ignore"):
        assert cell_patterns(np.array([[1e308, -1e308], [1e308, -1e308]])) is None


# The local step


def integrals(ctx, expected, units, row, column):
    """∫ p dx, ∫ x p dx and ∫ x² p dx of p = exp E log p(x, z = k), over one cell of a row."""
    x, w = nodes(0.0, 25.0)
    rows = Rows(filled(row, column, x + units.center[column]), None, units.center)
    p = w[:, None] * np.exp(ctx.model.log_joint(rows, expected))
    return p.sum(axis=0), x @ p, x**2 @ p


def test_rows_are_completed_by_weighted_means_of_observed_cells():
    X = np.array([[1.0, np.nan], [3.0, 5.0], [np.nan, 9.0]])
    rows = Rows(X, np.array([1.0, 2.0, 1.0]), patterns=cell_patterns(X))
    expected = [[1.0, 19.0 / 3.0], [3.0, 5.0], [7.0 / 3.0, 9.0]]
    np.testing.assert_allclose(rows.completed(), expected)


@all_forms
@pytest.mark.parametrize("draw", [False, True])
def test_missing_cells_are_integrated_out(covariance_type, factorization, draw, rng):
    """Log densities and statistics, against integrals over the densities of whole rows."""
    ctx, expected, units = problem(rng, covariance_type, factorization, draw=draw)
    complete = np.flatnonzero(units.patterns == 0)[:6]
    X = units.X[complete].copy()
    for i, row in enumerate(X):
        column = i % 3
        total, first, second = integrals(ctx, expected, units, row, column)
        gap = row.copy()
        gap[column] = np.nan
        one = Rows(gap[None], None, units.center, cell_patterns(gap[None]))
        found = ctx.model.log_joint(one, expected)[0]
        np.testing.assert_allclose(found, np.log(total), rtol=1e-8, atol=1e-8)

        components = ctx.model.components
        raw = components.zeros(expected.own)
        shares = rng.random((1, 3))
        components.add(one, shares, raw, expected.own)
        moments = components.unpack(raw)
        mean = np.tile(row - units.center, (3, 1))
        mean[:, column] = first / total
        np.testing.assert_allclose(moments.first, shares.T * mean, rtol=1e-7, atol=1e-9)
        outer = np.einsum("ki,kj->kij", mean, mean)
        outer[:, column, column] = second / total
        outer = shares[0][:, None, None] * outer
        outer = {
            "full": outer,
            "tied": outer.mean(axis=0),
            "diag": np.diagonal(outer, axis1=1, axis2=2),
            "spherical": np.trace(outer, axis1=1, axis2=2) / 3,
        }[covariance_type]
        np.testing.assert_allclose(moments.second, outer, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(moments.counts, shares[0])


@all_types
def test_two_missing_cells_are_integrated_one_after_the_other(covariance_type, rng):
    ctx, expected, units = problem(rng, covariance_type)
    row = units.X[0].copy()
    x, w = nodes(0.0, 25.0)
    row[2] = np.nan
    inner = filled(row, 0, x + units.center[0])
    rows = Rows(inner, None, units.center, cell_patterns(inner))
    total = w @ np.exp(ctx.model.log_joint(rows, expected))
    row[0] = np.nan
    one = Rows(row[None], None, units.center, cell_patterns(row[None]))
    np.testing.assert_allclose(ctx.model.log_joint(one, expected)[0], np.log(total), rtol=1e-8)


@all_types
def test_step_is_the_sum_over_rows_in_any_order(covariance_type, rng):
    """With temperatures, weights and noise of rows; complete rows and others go separate ways."""
    ctx, expected, units = problem(rng, covariance_type)
    n = units.n_units
    w, noise, x, s = rng.random((4, n)) + 0.1
    order = rng.permutation(n)
    whole = None
    for index in (np.arange(n), order):
        rows = Rows(units.X[index], w[index], units.center, units.patterns[index])
        t = Tempering(local=x[index], statistics=s[index])
        step = ctx.model.components.local_step(rows, expected, t, noise[index], separate_noise=True)
        whole = step if whole is None else whole
        for a, b in ((step.statistics, whole.statistics), (step.deviation, whole.deviation)):
            np.testing.assert_allclose(a["rows"], b["rows"], rtol=1e-9)
            for key, value in vars(a["components"]).items():
                if key not in ("layout", "kept"):
                    other = getattr(b["components"], key)
                    np.testing.assert_allclose(value, other, rtol=1e-9, atol=1e-9)
        assert step.bound == pytest.approx(whole.bound, rel=1e-12)
    joint = ctx.model.log_joint(units, expected)
    r = softmax(x[:, None] * joint, axis=1)
    assert whole.energy == pytest.approx(w @ (r * joint).sum(axis=1))
    counts = whole.statistics["components"].own[:, -1] + whole.statistics["rows"]
    np.testing.assert_allclose(counts, (w * s) @ r)
    assert whole.statistics["rows"].sum() == pytest.approx((w * s)[n // 2])


@all_forms
def test_rows_without_cells_count_for_the_weights_only(covariance_type, factorization, rng):
    ctx, expected, units = problem(rng, covariance_type, factorization)
    blank = np.isnan(units.X).all(axis=1)
    assert 0 < blank.sum() < 10
    np.testing.assert_allclose(
        ctx.model.log_joint(units, expected)[blank],
        np.tile(ctx.model.weights.log_weights(ctx.q), (blank.sum(), 1)),
    )
    block = ctx.model.blocks[0]
    parts = [
        ctx.model.block_statistics(
            block, ctx.model.components.local_step(rows, expected, Tempering()).statistics, ctx.q
        )
        for rows in (units, units.take(np.flatnonzero(~blank)))
    ]
    weights = ctx.model.weights.statistics(np.zeros(3)).keys()
    for key in block.keys:
        same = np.allclose(parts[0][key], parts[1][key], rtol=1e-12)
        assert same == (key not in weights), key


# The bound


@all_forms
def test_bound_never_falls(covariance_type, factorization, rng):
    contract.test_bound_never_falls(GAPPED, settings(covariance_type, factorization), rng)


@pytest.mark.parametrize(
    "others",
    [
        {"weight_concentration_prior_type": "dirichlet_distribution"},
        MIXTURE.variants["learned"],
        {"init_params": "random"},
        {"init_params": "k-means++"},
        {"init_params": "random_from_data"},
    ],
    ids=lambda others: "-".join(map(str, others.values()))[:30],
)
def test_bound_never_falls_with_other_priors_and_starts(others, rng):
    contract.test_bound_never_falls(GAPPED, others, rng)


@pairwise(
    covariance_type=TYPES,
    factorization=("joint", "independent"),
    form=("likelihood", "posterior"),
)
def test_tempered_bound_never_falls(covariance_type, factorization, form, rng):
    params = settings(covariance_type, factorization)
    contract.test_tempered_bound_never_falls_at_fixed_temperature(GAPPED, params, form, rng)


@all_types
def test_weight_is_a_number_of_copies(covariance_type, rng):
    params = settings(covariance_type)
    for name in ("none", "local_tempering"):
        contract.test_weight_is_a_number_of_copies(GAPPED, params, name, rng)


def test_gradient_is_that_of_the_tempered_bound(rng):
    contract.test_natural_gradient_is_that_of_the_tempered_bound(
        GAPPED, settings("full"), "likelihood", rng
    )


# Every method, and every way in which data arrive


@pytest.mark.usefixtures("few_passes_of_searches")
@in_turn(name=ANNEALING, batch_size=(None, 20), covariance_type=TYPES)
def test_every_method_takes_missing_cells(name, batch_size, covariance_type, rng):
    X = GAPPED.data(rng, 40)
    params = settings(covariance_type, annealing=quick(name, 2), batch_size=batch_size, max_iter=4)
    est = GAPPED.make(**params).fit(X, sample_weight=rng.random(40) + 0.1)
    assert np.isfinite(est.lower_bound_) and np.isfinite(est.score(X))
    for value in fitted_state(est).values():
        if np.asarray(value).dtype.kind == "f" and np.size(value):
            assert not np.isnan(value).any() or batch_size or name == "structured"
    if name == "local_tempering":
        x = est.inverse_temperatures(X)
        assert (x > 0).all() and (x <= 1).all()


def test_streams_take_batches_with_columns_that_are_missing(rng):
    X = GAPPED.data(rng, 120)
    est = GAPPED.make(annealing="tempering", total_samples=1200)
    for start in range(0, 120, 30):
        batch = X[start : start + 30].copy()
        if start:
            batch[:, 1] = np.nan
        est.partial_fit(batch)
        assert np.isfinite(est.lower_bound_)
    est.partial_fit(np.full((1, 3), np.nan))
    assert np.isfinite(est.means_).all()
    again = pickle.loads(pickle.dumps(est))
    assert_identical(est.partial_fit(X), again.partial_fit(X))


def test_float32_is_near_float64(rng):
    X = GAPPED.data(rng, 60).astype(np.float32)
    one, other = (GAPPED.make(annealing="none").fit(x) for x in (X, X.astype(np.float64)))
    assert one.lower_bound_ == pytest.approx(other.lower_bound_, rel=1e-6)
    assert one.impute(X).dtype == np.float32


# Moments of the data


def test_moments_are_those_of_observed_cells(rng):
    X, w = GAPPED.data(rng, 200), rng.random(200) + 0.1
    rows = Rows(X, w, patterns=cell_patterns(X))
    found = moments(rows, True)
    observed = ~np.isnan(X)
    counts = w @ observed
    mean = np.nansum(w[:, None] * X, axis=0) / counts
    np.testing.assert_allclose(found.mean, mean)
    variance = np.nansum(w[:, None] * (X - mean) ** 2, axis=0) / (counts - 1)
    np.testing.assert_allclose(np.diagonal(found.covariance), variance)
    assert np.linalg.eigvalsh(found.covariance).min() > 0
    np.testing.assert_allclose(moments(rows, False).covariance, variance)
    assert found.cells.weights.sum() == pytest.approx(w.sum())

    parts = [moments(rows.take(part), True) for part in (slice(0, 70), slice(70, 200))]
    merged = parts[0].merge(parts[1])
    np.testing.assert_allclose(merged.mean, found.mean)
    np.testing.assert_allclose(np.diagonal(merged.covariance), variance)
    assert np.linalg.eigvalsh(merged.covariance).min() > 0
    whole = MIXTURE.data(rng, 50)
    with_whole = found.merge(moments(Rows(whole), True))
    both = np.vstack([X, whole])
    weights = np.append(w, np.ones(50))
    again = moments(Rows(both, weights, patterns=cell_patterns(both)), True)
    np.testing.assert_allclose(with_whole.mean, again.mean)
    np.testing.assert_allclose(np.diagonal(with_whole.covariance), np.diagonal(again.covariance))


@all_types
def test_log_partition_counts_observed_cells(covariance_type, rng):
    """Of all rows, it is the sum over rows; of one row, the integral over its observed cells."""
    ctx, _, units = problem(rng, covariance_type)
    x = np.array([0.2, 0.5, 1.0])
    partition = ctx.model.unit_log_partition(x, ctx.summary, ctx.q)
    each = partition.of(units)
    total = ctx.model.log_partition(x, ctx.summary, ctx.q)
    np.testing.assert_allclose(total, each.sum(axis=0), rtol=1e-12, atol=1e-9)
    covariance = np.asarray(ctx.summary.components.covariance)
    if covariance_type == "diag":
        covariance = np.diag(covariance)
    elif covariance_type == "spherical":
        covariance = covariance.mean() * np.eye(3)
    for row, found in zip(units.X[:15], each, strict=False):
        o = ~np.isnan(row)
        part = covariance[np.ix_(o, o)]
        log_det = np.linalg.slogdet(part)[1]
        expected = (1 - x) * (np.log(3) + 0.5 * o.sum() * np.log(2 * np.pi) + 0.5 * log_det)
        np.testing.assert_allclose(found, expected - 0.5 * o.sum() * np.log(x), atol=1e-9)


def equal_columns(rng, size):
    """Two equal columns, of mean 0 and of values ±size, and a third with missing cells."""
    column = np.repeat([size, -size], 20)
    X = np.c_[column, column, rng.normal(size=40)]
    X[rng.random(40) < 0.4, 2] = np.nan
    return X


@pytest.mark.parametrize("size", [1.0, 2.0**20])
def test_volumes_of_equal_columns_are_those_that_regularisation_leaves(size, rng):
    """Without it they would be 0. If it is lost in rounding, their determinant is 0 as well."""
    floor, X = 1e-6, equal_columns(rng, size)
    params = {"covariance_prior": size**2 * np.eye(3), "annealing": "none", "reg_covar": floor}
    ctx, _, _ = open_run(MIXTURE.make(**params), X)
    patterns = np.array([[True, True, False], [True, False, False], [False, False, False]])
    found = ctx.model.components.row_volume(ctx.summary.components).log_dets(patterns)
    variance, floor = Fraction(size) ** 2 * 40 / 39, Fraction(floor)
    determinants = [(variance + floor) ** 2 - variance**2, variance + floor, 1]
    np.testing.assert_allclose(found, np.log(np.array(determinants, dtype=float)), rtol=1e-9)


@pytest.mark.parametrize("name", ["tempering", "local_tempering"])
def test_methods_that_read_volumes_take_equal_columns(name, rng):
    X = equal_columns(rng, 1.0)
    params = {"covariance_prior": np.eye(3), "reg_covar": 0.0, "random_state": 0}
    est = MIXTURE.make(annealing=quick(name), **params).fit(X)
    plain = MIXTURE.make(annealing="none", **params).fit(X)
    assert np.isfinite(est.lower_bounds_).all()
    assert np.isfinite(est.temperatures_).all()
    # Columns without a volume of their own are no reason to end far below plain inference.
    assert est.lower_bound_ > plain.lower_bound_ - 0.2 * abs(plain.lower_bound_)


# Predictions


@all_forms
def test_score_is_the_marginal_density(covariance_type, factorization, rng):
    X = GAPPED.data(rng, 60)
    est = GAPPED.make(annealing="none", **settings(covariance_type, factorization)).fit(X)
    x, w = nodes(10.0, 200.0, 3000)
    for i, row in enumerate(MIXTURE.data(rng, 3)):
        total = w @ np.exp(est.score_samples(filled(row, i, x)))
        gap = filled(row, i, [np.nan])
        assert est.score_samples(gap)[0] == pytest.approx(np.log(total), abs=1e-4)
    assert est.score_samples(np.full((1, 3), np.nan)) == pytest.approx(0.0, abs=1e-12)
    proba = est.predict_proba(np.full((1, 3), np.nan))
    assert proba.sum() == pytest.approx(1)


@all_forms
def test_imputation_is_the_conditional_mean(covariance_type, factorization, rng):
    """And the standard deviation that of the conditional density, both by the density of rows."""
    X = GAPPED.data(rng, 90)
    est = GAPPED.make(annealing="none", **settings(covariance_type, factorization)).fit(X)
    ctx = est._inference.ctx
    dof, mean, scale = ctx.model.components.student_t(ctx.q)
    mean = mean + ctx.summary.center
    rows = MIXTURE.data(rng, 3)
    x, w = nodes(10.0, 300.0, 3000)
    for i, row in enumerate(rows):
        column = i % 3
        gap = filled(row, column, [np.nan])
        found, std = est.impute(gap, return_std=True)
        observed = np.arange(3) != column
        np.testing.assert_array_equal(found[0, observed], row[observed])
        assert not std[0, observed].any()
        p = sum(
            share * w * multivariate_t.pdf(filled(row, column, x), mean[k], scale[k], dof[k])
            for k, share in enumerate(est.weights_)
        )
        first, second = (p @ x) / p.sum(), (p @ x**2) / p.sum()
        assert found[0, column] == pytest.approx(first, abs=1e-4)
        assert std[0, column] == pytest.approx(np.sqrt(second - first**2), rel=0.02)
    np.testing.assert_array_equal(est.impute(rows), rows)


@in_turn(covariance_type=TYPES, factorization=("joint", "independent"))
@pytest.mark.filterwarnings("error")
def test_surplus_components_leave_standard_deviations_finite(covariance_type, factorization):
    """Components without rows have at most two degrees of freedom if few cells are observed."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(-4, 1, (30, 3)), rng.normal(4, 1, (30, 3))])
    X[rng.random(X.shape) < 0.2] = np.nan
    est = AnnealedBayesianGaussianMixture(
        n_components=10,
        covariance_type=covariance_type,
        factorization=factorization,
        degrees_of_freedom_prior=3.0,
        annealing="none",
        random_state=0,
    ).fit(X)
    components = est._context().model.components
    dof, mean, scale = components.student_t(est._context().q)
    dof, mean = np.broadcast_to(dof, 10), mean + est._context().summary.center
    rows = np.vstack([np.full((1, 3), np.nan), [[np.nan, np.nan, 4.2]], [[-3.0, -4.0, np.nan]], X])
    np.testing.assert_array_equal(est.impute(rows), est.impute(rows, return_std=True)[0])
    _, std = est.impute(rows, return_std=True)
    assert np.isfinite(std).all()
    # A row without any observed cell has the mixture of those that have a variance.
    shares = np.where(dof >= 2.1, est.weights_, 0.0)
    assert shares.sum() > 0.9
    shares /= shares.sum()
    variances = np.diagonal(scale, axis1=-2, axis2=-1)
    variances = variances * np.where(dof > 2, dof / np.where(dof > 2, dof - 2, 1), 0.0)[:, None]
    first = shares @ mean
    right = np.sqrt(shares @ (variances + (mean - first) ** 2))
    np.testing.assert_allclose(std[0], right, rtol=1e-6)


def test_components_without_a_variance_have_an_interval():
    """If no component has a variance, half of the central 68 % interval takes its place."""
    X = np.array([[0.3, 1.0, -2.0], [1.2, 0.4, 0.9]])
    est = AnnealedBayesianGaussianMixture(
        n_components=1,
        degrees_of_freedom_prior=2.05,
        covariance_prior=np.diag([1.0, 4.0, 9.0]),
        mean_precision_prior=1e-3,
        annealing="none",
        max_iter=0,
        random_state=0,
    )
    est.fit(X, sample_weight=[1e-9, 1e-9])
    dof, mean, scale = est._context().model.components.student_t(est._context().q)
    assert dof[0] < 2
    filled, std = est.impute(np.full((1, 3), np.nan), return_std=True)
    inside = norm.cdf(1.0) - norm.cdf(-1.0)
    for d in range(3):
        density = student_t(dof[0], filled[0, d], np.sqrt(scale[0, d, d]))
        share = density.cdf(filled[0, d] + std[0, d]) - density.cdf(filled[0, d] - std[0, d])
        assert share == pytest.approx(inside, rel=1e-6)


def test_imputation_uses_what_components_and_columns_tell():
    """Two clusters on two lines: the observed cell tells the component, and it the other cell."""
    rng = np.random.default_rng(3)
    z, x = rng.integers(2, size=400), rng.normal(size=400)
    X = np.column_stack([x + 10 * z, np.where(z == 0, 2 * x, -3 * x) + 0.1 * rng.normal(size=400)])
    gapped = X.copy()
    gapped[::4, 1] = np.nan
    est = AnnealedBayesianGaussianMixture(n_components=2, effort=0, random_state=0).fit(gapped)
    error = est.impute(gapped)[::4, 1] - X[::4, 1]
    assert np.sqrt(np.mean(error**2)) < 0.15
    _, std = est.impute(np.full((1, 2), np.nan), return_std=True)
    np.testing.assert_allclose(std[0], X.std(axis=0), rtol=0.1)


# Refusals


@pytest.mark.parametrize("call", ["fit", "partial_fit"])
def test_a_column_without_values_is_refused(call, rng):
    X = GAPPED.data(rng, 30)
    X[:, 1] = np.nan
    with pytest.raises(ValueError, match="Column 1 of X has no observed value"):
        getattr(GAPPED.make(), call)(X)
    X[4, 1] = 1.0
    with pytest.raises(ValueError, match="Column 1 of X has no observed value"):
        getattr(GAPPED.make(), call)(X, sample_weight=np.arange(30) != 4)


def test_masked_arrays_are_refused_with_the_way_out(rng):
    X = np.ma.masked_invalid(GAPPED.data(rng, 30))
    with pytest.raises(ValueError, match=r"X\.filled\(numpy\.nan\)"):
        GAPPED.make().fit(X)
    GAPPED.make().fit(X.filled(np.nan))


def test_priors_of_scikit_learn_come_from_observed_cells(rng):
    X = GAPPED.data(rng, 80)
    est = GAPPED.make(**PEER_OF_MIXTURES).fit(X)
    np.testing.assert_allclose(est.mean_prior_, np.nanmean(X, axis=0))
    np.testing.assert_allclose(np.diagonal(est.covariance_prior_), np.nanvar(X, axis=0, ddof=1))


@pytest.mark.parametrize("start", ["k-means++", "random_from_data"])
def test_components_start_from_rows_with_cells(start, rng):
    X = np.full((60, 3), np.nan)
    X[::10] = MIXTURE.data(rng, 6)
    ctx, _, _ = open_run(GAPPED.make(init_params=start, n_components=5), X)
    means = ctx.model.components.standard(ctx.q)["mean"]
    assert len(np.unique(means.round(6), axis=0)) == 5


# Frames


def test_imputed_data_frames_are_those_of_the_user(rng):
    """Columns, index and dtypes are those of X, where these can hold what is filled in."""
    pd = pytest.importorskip("pandas")
    X = {"real": rng.normal(size=60), "whole": rng.integers(0, 3, 60), "mean": np.arange(60)}
    frame = pd.DataFrame(X, index=np.arange(60) + 7)
    frame = frame.astype({"real": "Float32", "whole": "Int64", "mean": "Int64"})
    frame.loc[9, ["real", "mean"]] = pd.NA
    est = AnnealedBayesianGaussianMixture(2, annealing="none", random_state=0).fit(frame)
    plain, plain_std = est.impute(frame, return_std=True)
    assert isinstance(plain, np.ndarray) and isinstance(plain_std, np.ndarray)
    filled, std = est.set_output(transform="pandas").impute(frame, return_std=True)
    for found, expected in ((filled, plain), (std, plain_std)):
        assert found.columns.equals(frame.columns) and found.index.equals(frame.index)
        np.testing.assert_allclose(found.to_numpy(dtype=float), expected, rtol=1e-7)
    # A mean of integers is no integer.
    assert filled["whole"].dtype == "Int64" and filled["mean"].dtype == plain.dtype


def test_imputed_frames_of_polars_are_those_of_the_user(rng):
    pl = pytest.importorskip("polars")
    X = {"real": [None, *rng.normal(size=59)], "whole": rng.integers(0, 3, 60)}
    frame = pl.DataFrame(X).cast({"whole": pl.Int8})
    est = AnnealedBayesianGaussianMixture(2, annealing="none", random_state=0).fit(frame)
    filled = est.set_output(transform="polars").impute(frame)
    assert filled.schema == frame.schema
    assert filled["real"].null_count() == 0 and filled[1:].equals(frame[1:])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_imputed_arrays_become_frames_if_asked(library, rng):
    pytest.importorskip(library)
    X = rng.normal(size=(40, 2))
    X[0, 0] = np.nan
    for est in (
        AnnealedBayesianGaussianMixture(2, annealing="none", random_state=0),
        AnnealedBayesianMixture(2, emission="gaussian", annealing="none", random_state=0),
    ):
        expected = est.fit(X).impute(X)
        found = est.set_output(transform=library).impute(X)
        assert list(found.columns) == ["x0", "x1"]
        np.testing.assert_array_equal(found.to_numpy(), expected)
        parts = est.impute(Shards([X[:9], X[9:]]))
        np.testing.assert_allclose(np.concatenate(list(parts)), expected)


CATEGORIES = AnnealedBayesianMixture(2, emission="categorical", annealing="none", random_state=0)


@pytest.mark.filterwarnings("error::DeprecationWarning", "error::FutureWarning")
@pytest.mark.parametrize("dtype", ["Int8", "text", "numbers", object])
def test_imputed_categories_keep_their_dtype(dtype, rng):
    """Categories by numbers or by the texts of numbers; observed cells are the user's own."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"answer": rng.integers(0, 3, 50), "yes": rng.integers(0, 2, 50)})
    if dtype in ("text", "numbers"):
        named = list("012") if dtype == "text" else [0, 1, 2]
        kind = pd.CategoricalDtype(named)
        frame["answer"] = pd.Categorical.from_codes(frame["answer"], dtype=kind)
    else:
        frame = frame.astype(dtype)
    if dtype is not object:
        frame.loc[4, "answer"] = pd.NA
    est = clone(CATEGORIES).fit(frame).set_output(transform="pandas")
    filled = est.impute(frame)
    assert (filled.dtypes == frame.dtypes).all()
    assert not filled.isna().any(axis=None)
    assert filled.drop(4).equals(frame.drop(4))


def test_imputed_columns_of_polars_that_cannot_hold_means_are_real(rng):
    pl = pytest.importorskip("polars")
    whole = pl.Series([None, *np.arange(39)], dtype=pl.UInt8)
    answers = pl.Series([None, *list("012") * 13], dtype=pl.Enum(list("012")))
    frame = pl.DataFrame({"real": rng.normal(size=40), "whole": whole})
    est = AnnealedBayesianGaussianMixture(1, annealing="none", random_state=0).fit(frame)
    filled = est.set_output(transform="polars").impute(frame)
    assert filled["whole"].dtype == pl.Float64 and filled["real"].equals(frame["real"])
    assert filled["whole"][1:].to_list() == frame["whole"][1:].to_list()
    texts = pl.DataFrame({"answer": answers, "other": answers.reverse()})
    found = clone(CATEGORIES).fit(texts).set_output(transform="polars").impute(texts[1:-1])
    assert found.equals(texts[1:-1])
    found = clone(CATEGORIES).fit(texts).set_output(transform="polars").impute(texts)
    assert found["answer"].null_count() == 0


def test_imputed_frames_have_the_names_and_the_cells_that_were_given(rng):
    """Names that are no strings, integers beyond 2⁵³, and parts, of which one has no rows."""
    pd = pytest.importorskip("pandas")
    est = AnnealedBayesianGaussianMixture(1, annealing="none", random_state=0)
    years = pd.DataFrame(rng.normal(size=(30, 2)), columns=[2019, 2020])
    filled = est.set_output(transform="pandas").fit(years).impute(years)
    assert filled.equals(years)
    large = pd.DataFrame({"a": rng.normal(size=30), "b": 2**60 + np.arange(30)})
    assert est.fit(large).impute(large).equals(large)
    parts = list(est.impute(Shards([large[:9], large[9:9], large[9:]])))
    assert all(part.columns.equals(large.columns) for part in parts)
    assert pd.concat(part for part in parts if len(part)).equals(large)


def test_incomplete_rows_know_their_order(rng):
    """Parts of them need not find it again."""
    X = rng.standard_normal((40, 3))
    X[rng.random(X.shape) < 0.4] = np.nan
    rows = Rows(X, patterns=cell_patterns(X))
    complete, some, blank = rows.by_completeness
    assert len(blank)
    found = list(rows.incomplete(7))
    np.testing.assert_array_equal(
        np.concatenate([index for index, _ in found]), np.append(some, blank)
    )
    for index, part in found:
        np.testing.assert_array_equal(part.X, X[index])
        for known, sought in zip(
            part.by_completeness, rows.take(index).by_completeness, strict=True
        ):
            np.testing.assert_array_equal(known, sought)


def test_small_chunks_keep_copies_of_their_rows_until_these_change(rng, monkeypatch):
    """Each visit reads the same copies, unless weights or the center have changed since."""
    X = rng.standard_normal((60, 3))
    X[rng.random(X.shape) < 0.3] = np.nan
    rows = Rows(X, rng.random(60), patterns=cell_patterns(X))
    first, kept = rows.complete, list(rows.incomplete(16))
    assert rows.complete is first and rows.incomplete(16) is rows.incomplete(16)
    again = pickle.loads(pickle.dumps(rows))
    assert "_copies" not in vars(again)
    index, part = kept[0]
    np.testing.assert_allclose(part.X, X[index])
    codes = rows.patterns[rows.by_completeness[1]]
    starts, sizes = rows.runs
    np.testing.assert_array_equal(np.repeat(codes[starts], sizes), codes)
    assert (codes[starts][1:] != codes[starts][:-1]).all()
    rows.weights = rng.random(60)
    np.testing.assert_allclose(rows.complete.weights, rows.weights[rows.by_completeness[0]])
    np.testing.assert_allclose(rows.incomplete(16)[0][1].weights, rows.weights[index])
    monkeypatch.setattr("sklearn_anneal.data.units._rows._MOST_KEPT", 10)
    assert rows.complete is not rows.complete
    for (one, part), (other, same) in zip(kept, rows.incomplete(16), strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(part.X, same.X)
