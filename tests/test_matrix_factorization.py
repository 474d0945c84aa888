"""Matrix factorisation: against the plain model, Monte Carlo and definitions; data; behaviour."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import plain_matrix_factorization as plain
import pytest
from harness import (
    FULL_STEPS,
    Fixed,
    assert_identical,
    context_of,
    fitted_state,
    largest_difference,
    lower_bound,
    one_update,
    open_run,
    quick,
    visiting,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.sparse import bsr_array, coo_array, csc_matrix, csr_array, csr_matrix, dia_array
from scipy.special import softmax
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OrdinalEncoder
from sklearn.utils.estimator_checks import estimator_checks_generator

from sklearn_anneal import AnnealedPMF
from sklearn_anneal.annealing import (
    ANNEALING,
    DeterministicAnnealing,
    LocalVariationalTempering,
    StochasticAnnealing,
    SVIPlus,
    VariationalTempering,
)
from sklearn_anneal.families import Gaussian, Tempering, backoff, fast_normal
from sklearn_anneal.inference.units import Ratings

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

NAN = np.nan
TRUTH = plain.Hyperparameters(3.0, 0.3, 0.6, 0.25)
VARIANTS = {
    "biases": {"n_components": 2},
    "plain": {"n_components": 3, "biases": False, "fit_intercept": False},
    "centred": {"n_components": 1, "biases": False},
    "fixed": {"n_components": 2, "fit_intercept": False, "noise_variance": 0.4},
}
all_variants = pytest.mark.parametrize("variant", VARIANTS)
all_inputs = pytest.mark.parametrize("input", ["matrix", "pairs"])


def draw(rng, n_users, n_items, d=2, hyper=TRUTH, observed=0.5, biases=True):
    """All ratings of all items, drawn from the model, and which of them are known."""
    u, v = (np.sqrt(hyper.factor) * rng.standard_normal((n, d)) for n in (n_users, n_items))
    Y = hyper.intercept + u @ v.T + np.sqrt(hyper.noise) * rng.standard_normal((n_users, n_items))
    if biases:
        b, c = (np.sqrt(hyper.bias) * rng.standard_normal(n) for n in (n_users, n_items))
        Y += b[:, None] + c
    return Y, rng.random(Y.shape) < observed


def ratings(rng, n_users=25, n_items=10, **params):
    """A matrix with NaN; its first user has rated nothing."""
    Y, known = draw(rng, n_users, n_items, **params)
    known[0] = False
    known[1, :3] = True
    return np.where(known, Y, NAN)


def pairs_of(Y):
    """The same ratings as pairs and values, user after user."""
    X = np.argwhere(~np.isnan(Y))
    return X, Y[tuple(X.T)]


def sparse_of(Y, make=csr_array):
    X, y = pairs_of(Y)
    return make((y, tuple(X.T)), shape=Y.shape)


GIVEN = {
    "noise_variance": TRUTH.noise,
    "factor_variance": TRUTH.factor,
    "bias_variance": TRUTH.bias,
}
DEFAULT = dict.fromkeys(GIVEN)
AUTO = dict.fromkeys(GIVEN, "auto")


def small(n_components=2, **params):
    settings = {"annealing": "none", "random_state": 0, "max_iter": 8, "tol": 0.0, **GIVEN}
    return AnnealedPMF(n_components, **(settings | params))


def full(packed):
    """Symmetric matrices from their lower triangles."""
    size = int(np.sqrt(2 * packed.shape[-1]))
    result = np.empty((*packed.shape[:-1], size, size))
    k = 0
    for i in range(size):
        for j in range(i + 1):
            result[..., i, j] = result[..., j, i] = packed[..., k]
            k += 1
    return result


def rows_of(natural, side):
    """One side of q as the plain model reads it."""
    return plain.Rows(full(natural[f"{side}_precision"]), natural[f"{side}_natural_mean"])


def hyper_of(model):
    bias = model.bias_variance if model.biases else None
    return plain.Hyperparameters(model.intercept, model.noise_variance, model.factor_variance, bias)


def assert_rows(natural, side, expected, rtol=1e-10):
    found = rows_of(natural, side)
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, rtol=rtol, atol=rtol * np.abs(other).max())


def items_of(est):
    """Mean and covariance of each item of a fitted estimator."""
    rows = rows_of(context_of(est).q, "items")
    return rows.mean, rows.cov


def users_of(est, Y):
    """Those of users with these ratings, by the plain model."""
    items = rows_of(context_of(est).q, "items")
    rows = plain.updated(Y, items, plain.hyperparameters(est))
    return rows.mean, rows.cov


# The plain model itself


@pytest.mark.parametrize("bias", [None, 0.3])
@pytest.mark.parametrize("d", [1, 2])
def test_plain_evidence_is_a_mean_over_draws_of_the_prior(d, bias, rng):
    hyper = plain.Hyperparameters(2.5, 1.5, 0.4, bias)
    Y = np.array([[3.5, 2.0], [NAN, 1.5], [NAN, NAN]])
    n = 200_000
    f = np.full((n, 3, 2), hyper.intercept)
    f += np.einsum("nid,njd->nij", *(0.4**0.5 * rng.standard_normal((n, m, d)) for m in (3, 2)))
    if bias is not None:
        f += bias**0.5 * rng.standard_normal((n, 3, 1)) + bias**0.5 * rng.standard_normal((n, 1, 2))
    density = np.exp(np.nansum(norm.logpdf(Y, f, 1.5**0.5), axis=(1, 2)))
    error = density.std() / np.sqrt(n)
    assert abs(np.exp(plain.log_evidence(Y, hyper, d)) - density.mean()) < 4 * error
    # Quadrature has converged.
    found = [plain.log_evidence(Y, hyper, d, n_nodes) for n_nodes in (20, 30)]
    assert found[0] == pytest.approx(found[1], rel=1e-6)


# Against the plain model


@pytest.mark.parametrize("t", [Tempering(), Tempering(0.4, 0.4, 1.0), Tempering(0.4, 0.4, 0.4)])
@pytest.mark.parametrize("weighted", ["", "users", "ratings"])
@all_variants
def test_passes_are_those_of_the_plain_model(variant, weighted, t, rng):
    """λ and the bound, pass by pass, with users as rows of q."""
    Y = ratings(rng)
    X, y = pairs_of(Y)
    W, w, sample_weight = np.ones(Y.shape), np.ones(len(Y)), None
    if weighted == "users":
        sample_weight = w = rng.uniform(0.2, 3.0, len(Y))
        W = np.repeat(w[:, None], Y.shape[1], axis=1)
    elif weighted == "ratings":
        sample_weight = rng.uniform(0.2, 3.0, len(y))
        W[tuple(X.T)] = sample_weight
    est = small(**VARIANTS[variant])
    data = Y
    if weighted == "ratings":
        est.set_params(input="pairs")
        data = est._data(X, y)
    ctx, _, units = open_run(est, data, sample_weight)
    assert ctx.model.held
    known = ~np.isnan(Y)
    if est.fit_intercept:
        assert ctx.model.intercept == pytest.approx(np.average(Y[known], weights=W[known]))
    hyper = hyper_of(ctx.model)
    users, items = rows_of(ctx.q, "users"), rows_of(ctx.q, "items")
    user_weights = None if weighted == "ratings" else w
    # A user's own weight is no part of its own Gaussian.
    own = W if weighted == "ratings" else None
    for _ in range(4):
        expected = plain.bound(Y, users, items, hyper, W, user_weights)
        before = ctx.q
        seen = one_update(ctx, Fixed(t), units)
        assert seen.step.bound - ctx.model.kl(before, ctx.prior) == pytest.approx(expected)
        users = plain.updated(Y, items, hyper, own, t.statistics, t.prior)
        items = plain.updated(Y.T, users, hyper, W.T, t.statistics, t.prior)
        assert_rows(ctx.q, "users", users)
        assert_rows(ctx.q, "items", items)


@all_variants
def test_local_users_are_those_of_the_plain_model(variant, rng):
    """A minibatch: users exactly, items with N/|S| and ρ; the bound of the visit."""
    Y = ratings(rng)
    est = small(batch_size=9, **VARIANTS[variant])
    ctx, method, units = open_run(est, Y)
    assert not ctx.model.held and set(ctx.q) == {"items_precision", "items_natural_mean"}
    hyper = hyper_of(ctx.model)
    settings = FULL_STEPS._replace(learning_decay=0.6)
    for batch in (np.arange(9), np.arange(9, 18), np.arange(18, 25)):
        items = rows_of(ctx.q, "items")
        users = plain.updated(Y[batch], items, hyper)
        ctx.scale = len(Y) / len(batch)
        rho = settings.learning_rate(ctx.state["updates"])
        q = ctx.q
        seen = one_update(ctx, method, units.take(batch), settings=settings, minibatch=True)
        expected = plain.bound(Y[batch], users, items, hyper)
        assert seen.step.bound - ctx.model.kl(q, ctx.prior) == pytest.approx(expected)
        target = plain.updated(Y[batch].T, users, hyper, np.full(Y[batch].T.shape, ctx.scale))
        mixed = plain.Rows(*(
            (1 - rho) * old + rho * new for old, new in zip(items, target, strict=True)
        ))  # fmt: skip
        assert_rows(ctx.q, "items", mixed)


@pytest.mark.parametrize("jitter", [0.0, 0.2])
@pytest.mark.parametrize("form", ["likelihood", "posterior"])
@all_variants
def test_users_as_rows_of_q_or_as_local_variables_are_the_same(variant, form, jitter, rng):
    Y = ratings(rng)
    method = DeterministicAnnealing(form, 3.0, "geometric", 4, jitter)
    held, resolved, units = open_run(small(annealing=method, **VARIANTS[variant]), Y)
    local = replace(held, model=held.model.holding(False), state=dict(held.state))
    local.rng = np.random.default_rng(0)
    local.q, local.prior = (
        {key: natural[key] for key in local.model.blocks[0].keys}
        for natural in (held.q, held.prior)
    )
    for _ in range(6):
        one_update(held, resolved, units)
        one_update(local, resolved, units)
        items = {key: held.q[key] for key in local.q}
        assert largest_difference(local.q, items) < 1e-12
        # The bound is that of users at their best, whoever finds them.
        found = [lower_bound(ctx, units) for ctx in (held, local)]
        assert found[0] == pytest.approx(found[1], rel=1e-12)


def test_start_does_not_depend_on_what_users_are(rng):
    Y = ratings(rng)
    one, _, _ = open_run(small(), Y)
    other, _, _ = open_run(small(batch_size=5), Y)
    for key, value in other.q.items():
        assert_array_equal(value, one.q[key])


@all_variants
def test_bound_is_a_mean_over_draws_of_q(variant, rng):
    """E_q[log p(y, u, v) − log q] of the fitted model, on a tiny problem."""
    Y = ratings(rng, 4, 3)
    est = small(clip=False, **VARIANTS[variant]).fit(Y)
    hyper, n = plain.hyperparameters(est), 40_000
    d, size = est.n_components, est.n_components + est.biases
    prior = np.sqrt(hyper.prior_variances(size))
    terms, drawn = np.zeros(n), []
    for mean, cov in (users_of(est, Y), items_of(est)):
        z = np.empty((n, *mean.shape))
        for i in range(len(mean)):
            root = np.linalg.cholesky(cov[i])
            white = rng.standard_normal((n, size))
            z[:, i] = mean[i] + white @ root.T
            terms -= norm.logpdf(white).sum(axis=1) - np.log(np.diag(root)).sum()
        terms += norm.logpdf(z, 0.0, prior).sum(axis=(1, 2))
        drawn.append(z)
    u, v = drawn
    f = hyper.intercept + np.einsum("nid,njd->nij", u[..., :d], v[..., :d])
    if est.biases:
        f += u[:, :, None, d] + v[:, None, :, d]
    terms += np.nansum(norm.logpdf(Y, f, np.sqrt(hyper.noise)), axis=(1, 2))
    error = terms.std() / np.sqrt(n)
    assert error < 0.05
    assert abs(est.lower_bound_ - terms.mean()) < 4 * error


def test_fitted_attributes_are_those_of_the_plain_model(rng):
    Y = ratings(rng)
    est = small().fit(Y)
    mean, cov = items_of(est)
    assert_allclose(est.components_, mean[:, :2].T, rtol=1e-10)
    assert_allclose(est.components_cov_, cov[:, :2, :2], rtol=1e-9, atol=1e-12)
    assert_allclose(est.item_biases_, mean[:, 2], rtol=1e-10)
    assert_allclose(est.item_biases_var_, cov[:, 2, 2], rtol=1e-9)
    mean, cov = users_of(est, Y)
    assert_allclose(est.user_factors_, mean[:, :2], rtol=1e-9, atol=1e-12)
    assert_allclose(est.user_factors_cov_, cov[:, :2, :2], rtol=1e-9, atol=1e-12)
    assert_allclose(est.user_biases_, mean[:, 2], rtol=1e-9, atol=1e-12)
    assert_allclose(est.user_biases_var_, cov[:, 2, 2], rtol=1e-9)
    known = Y[~np.isnan(Y)]
    assert est.intercept_ == pytest.approx(known.mean())
    assert est.rating_range_ == (known.min(), known.max())
    assert (est.n_users_, est.n_items_) == Y.shape
    items = rows_of(context_of(est).q, "items")
    users = plain.updated(Y, items, plain.hyperparameters(est))
    expected = plain.bound(Y, users, items, plain.hyperparameters(est))
    assert est.lower_bound_ == pytest.approx(expected, rel=1e-10)


def test_default_variances_scale_with_the_ratings(rng):
    Y = ratings(rng)
    est, other = small(**DEFAULT).fit(Y), small(**DEFAULT).fit(10.0 * Y)
    variance = np.nanvar(Y)
    assert est.noise_variance_ == pytest.approx(0.63 * variance)
    assert est.factor_variance_ == pytest.approx(0.089 * np.sqrt(variance))
    assert est.bias_variance_ == pytest.approx(0.237 * variance)
    # In other units of ratings the same fit.
    assert_allclose(other.transform(10.0 * Y), np.sqrt(10.0) * est.transform(Y), rtol=1e-8)
    users, items = np.nonzero(~np.isnan(Y))
    for one, ten in zip(
        est.predict_ratings(users, items, return_std=True),
        other.predict_ratings(users, items, return_std=True),
        strict=True,
    ):
        assert_allclose(ten, 10.0 * one, rtol=1e-8)


def test_equal_ratings_are_data():
    est = small(**DEFAULT).fit(np.full((4, 3), 2.0))
    assert np.isfinite(est.lower_bound_)
    mean, std = est.predict_ratings([0, 9], [0, 9], return_std=True)
    assert_allclose(mean, 2.0)
    assert np.isfinite(std).all()


# Forms of data


def same_fit(one, other, rtol=1e-12):
    """Equal fits, up to rounding."""
    a, b = fitted_state(one), fitted_state(other)
    for name in (
        "components_", "user_factors_", "lower_bounds_", "intercept_", "noise_variance_",
        "q: items_precision", "q: items_natural_mean",
    ):  # fmt: skip
        size = np.nanmax(np.abs(b[name]))
        assert_allclose(a[name], b[name], rtol=rtol, atol=rtol * size, err_msg=name)


@pytest.mark.parametrize(
    "make", [csr_array, csr_matrix, csc_matrix, coo_array], ids=lambda make: make.__name__
)
@pytest.mark.parametrize("name", ANNEALING)
def test_sparse_is_dense_with_nan(name, make, rng):
    """Bit for bit; the stored zero is a rating."""
    Y = ratings(rng).round()
    Y[1, 2] = 0.0
    X = sparse_of(Y, make)
    assert X.nnz == (~np.isnan(Y)).sum() > np.count_nonzero(X.data)
    params = {"annealing": quick(name), "max_iter": 3}
    dense, sparse = small(**params).fit(Y), small(**params).fit(X)
    assert_identical(dense, sparse)
    for method in ("transform", "predict_rows", "recommend"):
        assert_array_equal(getattr(dense, method)(X), getattr(dense, method)(Y))
    assert dense.score(X) == dense.score(Y)
    assert_identical(dense.partial_fit(Y), sparse.partial_fit(X))


def test_zero_is_a_rating(rng):
    Y = ratings(rng)
    Y[1, 2] = 0.0
    without = Y.copy()
    without[1, 2] = NAN
    assert not np.allclose(small().fit(Y).components_, small().fit(without).components_)


def test_other_sparse_formats(rng):
    Y = ratings(rng)
    expected = small().fit(Y)
    X = sparse_of(Y)
    for form in ("lil", "dok", "csc", "coo"):
        assert_identical(small().fit(X.asformat(form)), expected)
    # Unsorted columns are put in order, and the caller's matrix stays as it is.
    shuffled = csr_array((X.data.copy(), X.indices.copy(), X.indptr), shape=X.shape)
    for i in range(len(Y)):
        part = slice(shuffled.indptr[i], shuffled.indptr[i + 1])
        shuffled.indices[part] = shuffled.indices[part][::-1].copy()
        shuffled.data[part] = shuffled.data[part][::-1].copy()
    shuffled.has_sorted_indices = False
    indices = shuffled.indices.copy()
    assert_identical(small().fit(shuffled), expected)
    assert_array_equal(shuffled.indices, indices)


def test_formats_that_store_what_nobody_rated(rng):
    """Blocks are stored whole, zeros in them too; of diagonals zeros are left out."""
    dense = np.zeros((6, 6))
    dense[[0, 1, 3], [0, 1, 2]] = 4.0, 3.0, 5.0
    blocks = bsr_array(dense, blocksize=(2, 2))
    assert blocks.nnz == 8
    known = np.full(dense.shape, NAN)
    known[:2, :2], known[2:4, 2:4] = dense[:2, :2], dense[2:4, 2:4]
    assert_identical(small().fit(blocks), small().fit(known))
    diagonals = dia_array(dense)
    assert diagonals.nnz > 3
    assert_identical(small().fit(diagonals), small().fit(np.where(dense > 0, dense, NAN)))


def test_dense_without_nan_is_a_fully_observed_matrix(rng):
    Y, _ = draw(rng, 8, 6)
    assert_identical(small().fit(Y), small().fit(csr_array(Y)))
    assert small().fit(Y).rating_range_ == (Y.min(), Y.max())


def test_duplicates_in_a_sparse_matrix_are_refused():
    entries = (np.array([3.0, 4.0, 1.0]), (np.array([0, 0, 1]), np.array([1, 1, 0])))
    coo = coo_array(entries, shape=(2, 2))
    csr = csr_array(
        (entries[0], np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 2)
    )  # fmt: skip
    good = small().fit(np.array([[1.0, 2.0], [3.0, NAN]]))
    for X in (coo, csr, coo.asformat("coo").copy()):
        assert X.nnz == 3
        for method in (small().fit, small().partial_fit, good.transform, good.score):
            with pytest.raises(ValueError, match='several entries.*input="pairs"'):
                method(X)
    # As pairs they are two observations.
    X, y = np.array([[0, 1], [0, 1], [1, 0]]), entries[0]
    est = small(input="pairs").fit(X, y)
    same = clone(est).fit([[0, 1], [1, 0]], [3.5, 1.0], sample_weight=[2.0, 1.0])
    assert_allclose(same.components_, est.components_, rtol=1e-10)
    once = clone(est).fit([[0, 1], [1, 0]], [3.5, 1.0])
    assert est.predict([[0, 1]], return_std=True)[1] < once.predict([[0, 1]], return_std=True)[1]


def test_stored_nan_is_refused():
    X = csr_array(np.array([[1.0, NAN], [2.0, 3.0]]))
    with pytest.raises(ValueError, match="stored entries that are NaN"):
        small().fit(X)
    with pytest.raises(ValueError, match="infinity"):
        small().fit(np.array([[1.0, np.inf], [2.0, 3.0]]))


def test_y_of_a_matrix_is_ignored(rng):
    Y = ratings(rng)
    assert_identical(small().fit(Y), small().fit(Y, np.arange(3)))
    assert small().fit(Y).score(Y, "anything") == small().fit(Y).score(Y)


@pytest.mark.parametrize("name", ANNEALING)
def test_pairs_are_the_matrix(name, rng):
    """In the order of the matrix bit for bit, in any order up to rounding where all is exact."""
    Y = ratings(rng)
    X, y = pairs_of(Y)
    params = {"annealing": quick(name), "max_iter": 3}
    matrix = small(**params).fit(Y)
    sizes = {"n_users": len(Y), "n_items": Y.shape[1]}
    pairs = small(input="pairs", **sizes, **params).fit(X, y)
    same_fit(pairs, matrix, 1e-10)
    order = rng.permutation(len(y))
    if name != "svi_plus":
        shuffled = small(input="pairs", **sizes, **params).fit(X[order], y[order])
        same_fit(shuffled, matrix, 1e-8)
    users, items = X.T
    assert_allclose(pairs.predict(X), matrix.predict_ratings(users, items), rtol=1e-10)
    assert_allclose(
        pairs.predict(X, return_std=True)[1],
        matrix.predict_ratings(users, items, return_std=True)[1],
        rtol=1e-10,
    )


def test_pairs_without_sizes_end_at_the_largest_id(rng):
    X, y = np.array([[0, 2], [4, 1], [4, 2]]), np.array([1.0, 2.0, 4.0])
    est = small(input="pairs").fit(X, y)
    assert (est.n_users_, est.n_items_) == (5, 3)
    assert est.user_factors_.shape == (5, 2) and est.components_.shape == (2, 3)
    assert est.n_features_in_ == 2
    other = small(input="pairs", n_users=7, n_items=9).fit(X, y)
    assert (other.n_users_, other.n_items_) == (7, 9)
    assert small(n_items=9).fit(sparse_of(ratings(rng, 6, 4))).n_items_ == 9


@pytest.mark.parametrize(
    "X",
    [
        [[0, -1], [1, 0]],
        [[0.5, 1.0], [1.0, 0.0]],
        [["anna", "solaris"], ["bob", "stalker"]],
        np.array([["anna", 1], ["bob", 2]], dtype=object),
    ],
)
def test_ids_are_integers_from_zero(X):
    y = [1.0, 2.0]
    with pytest.raises(ValueError, match="integers from 0 to .*OrdinalEncoder"):
        small(input="pairs").fit(X, y)
    est = small(input="pairs").fit([[0, 0], [1, 1]], y)
    for call in (est.predict, lambda X: est.predict_ratings(np.array(X)[:, 0], [0, 0])):
        if np.array(X)[1, 0] != 1:
            with pytest.raises(ValueError, match="OrdinalEncoder"):
                call(X)
    # The way out.
    encoded = OrdinalEncoder().fit_transform(np.array(X, dtype=object).astype(str))
    assert np.isfinite(small(input="pairs").fit(encoded, y).lower_bound_)


def test_ids_may_be_whole_floats(rng):
    X, y = pairs_of(ratings(rng))
    one = small(input="pairs").fit(X, y)
    for kind in (float, np.float32, np.uint8, object):
        assert_identical(small(input="pairs").fit(X.astype(kind), y), one)
    assert_identical(small(input="pairs").fit(X.tolist(), y.tolist()), one)


def test_pairs_need_y_and_two_columns():
    for method in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match="requires y to be passed.*matrix"):
            getattr(small(input="pairs"), method)([[0, 1]])
    with pytest.raises(ValueError, match="two columns, user and item, but it has 3"):
        small(input="pairs").fit([[0, 1, 2]], [1.0])
    with pytest.raises(ValueError, match="y has 1 ratings, but X has 2 pairs"):
        small(input="pairs").fit([[0, 1], [1, 0]], [1.0])
    with pytest.raises(ValueError, match="NaN"):
        small(input="pairs").fit([[0, 1], [1, 0]], [1.0, NAN])


def test_declared_sizes():
    X, y = [[0, 1], [3, 0]], [1.0, 2.0]
    with pytest.raises(ValueError, match="X has the id 3.*n_users=3. Declare n_users=4"):
        small(input="pairs", n_users=3).fit(X, y)
    with pytest.raises(ValueError, match="X has the id 1.*n_items=1. Declare n_items=2"):
        small(input="pairs", n_items=1).fit(X, y)
    with pytest.raises(ValueError, match="X has 3 columns, but n_items=2.*n_items=3"):
        small(n_items=2).fit(np.ones((4, 3)))
    with pytest.raises(ValueError, match='n_users is for input="pairs"'):
        small(n_users=4).fit(np.ones((4, 3)))


def test_methods_of_the_other_form_do_not_exist():
    of_matrix = ("transform", "fit_transform", "inverse_transform", "recommend", "predict_rows")
    for name in of_matrix:
        assert hasattr(small(), name) and not hasattr(small(input="pairs"), name)
    assert hasattr(small(input="pairs"), "predict") and not hasattr(small(), "predict")
    for input in ("matrix", "pairs"):
        assert hasattr(small(input=input), "predict_ratings")
        tags = small(input=input).__sklearn_tags__()
        assert tags.input_tags.allow_nan == tags.input_tags.sparse == (input == "matrix")
        assert tags.input_tags.positive_only == tags.target_tags.required == (input == "pairs")


def test_input_is_not_guessed(rng):
    """A matrix of two columns is a matrix."""
    X = np.array([[0, 1], [1, 0], [2, 1]])
    est = small().fit(X, [1.0, 2.0, 3.0])
    assert (est.n_users_, est.n_items_) == (3, 2)
    assert_identical(est, small().fit(X.astype(float)))


@pytest.mark.parametrize("X", [np.full((3, 2), NAN), csr_array((3, 2)), csr_array((3, 2)).tocoo()])
def test_no_rating_at_all(X):
    for method in (small().fit, small().partial_fit):
        with pytest.raises(ValueError, match="no rating in X"):
            method(X)


# Checks of scikit-learn that bring no data of their own, or data that are refused in good words;
# all others feed rows of continuous features, which are no pairs of ids.
PAIRS_CHECKS = {
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_sparse_tag",
    "check_estimator_tags_renamed",
    "check_estimators_empty_data_messages",
    "check_estimators_unfitted",
    "check_fit1d",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_requires_y_none",
    "check_set_params",
    "check_valid_tag_types",
}


def test_common_checks_of_pairs():
    found = set()
    for estimator, check in estimator_checks_generator(small(input="pairs")):
        name = getattr(check, "func", check).__name__
        if name in PAIRS_CHECKS:
            check(estimator)
            found.add(name)
    assert found == PAIRS_CHECKS


# Fold-in and the prior


@all_variants
def test_transform_of_the_training_data_gives_the_fitted_users(variant, rng):
    Y = ratings(rng)
    for how in ({}, {"batch_size": 8}, {"annealing": quick("svi_plus")}):
        est = small(**how, **VARIANTS[variant]).fit(Y)
        assert_allclose(est.transform(Y), est.user_factors_, rtol=1e-10, atol=1e-13)
        # A user's factors depend on nobody else.
        assert_allclose(est.transform(Y[[7, 3]]), est.user_factors_[[7, 3]], rtol=1e-10)


@all_variants
def test_fold_in_is_the_update_of_batch_mode_at_fixed_items(variant, rng):
    Y = ratings(rng)
    ctx, method, units = open_run(small(**VARIANTS[variant]), Y)
    model = ctx.model.holding(False)
    across = model.expectations({k: v for k, v in ctx.q.items() if k.startswith("items")}).across
    _, _, folded = model.fold_in(units, across, np.ones(len(Y)), Tempering())
    one_update(ctx, method, units)
    for key, value in folded.items():
        assert_allclose(value, ctx.q[f"users_{key}"], rtol=1e-13)


def test_users_without_ratings_have_the_prior(rng):
    Y = ratings(rng)
    est = small().fit(Y)
    nobody = np.full((2, Y.shape[1]), NAN)
    assert_array_equal(est.transform(nobody), np.zeros((2, 2)))
    assert_array_equal(est.user_factors_[0], [0.0, 0.0])
    assert_allclose(est.user_factors_cov_[0], est.factor_variance_ * np.eye(2), rtol=1e-12)
    assert est.user_biases_[0] == 0 and est.user_biases_var_[0] == pytest.approx(est.bias_variance_)
    expected = est.predict_ratings(np.full(10, 99), np.arange(10), return_std=True)
    for found, other in zip(est.predict_rows(nobody, return_std=True), expected, strict=True):
        assert_allclose(found[0], other, rtol=1e-12)
    assert_allclose(est.predict_ratings([0], [3]), est.intercept_ + est.item_biases_[3])


@all_inputs
@pytest.mark.parametrize("biases", [True, False])
def test_ids_never_seen_have_the_prior(input, biases, rng):
    """The mean is μ, the variance that of the prior predictive distribution."""
    Y = ratings(rng)
    Y[:, 4] = NAN
    est = small(input=input, biases=biases)
    est.fit(*(pairs_of(Y) if input == "pairs" else (Y,)))
    c, s2 = est.factor_variance_, est.noise_variance_
    b2 = est.bias_variance_ if biases else 0.0
    mean, std = est.predict_ratings([1000, 1000, 0], [1000, 4, 4], return_std=True)
    assert_allclose(mean, est.intercept_, rtol=1e-12)
    assert_allclose(std**2, s2 + 2 * c**2 + 2 * b2, rtol=1e-12)
    # A known item and an unknown user.
    item_mean, item_cov = items_of(est)
    prior = np.diag(plain.hyperparameters(est).prior_variances(2 + biases))
    expected = plain.predictive(
        np.zeros(2 + biases), prior, item_mean[2], item_cov[2], plain.hyperparameters(est)
    )
    mean, std = est.predict_ratings([1000], [2], return_std=True)
    assert mean[0] == pytest.approx(expected[0]) and std[0] ** 2 == pytest.approx(expected[1])


# Predictions


@all_variants
def test_predictions_are_those_of_the_plain_model(variant, rng):
    Y = ratings(rng)
    est = small(clip=False, **VARIANTS[variant]).fit(Y)
    users, items = users_of(est, Y), items_of(est)
    hyper = plain.hyperparameters(est)
    expected = np.array([
        [plain.predictive(users[0][i], users[1][i], items[0][j], items[1][j], hyper)
         for j in range(Y.shape[1])] for i in range(len(Y))
    ])  # fmt: skip
    rows, columns = np.indices(Y.shape)
    mean, std = est.predict_ratings(rows.ravel(), columns.ravel(), return_std=True)
    assert_allclose(mean, expected[..., 0].ravel(), rtol=1e-9)
    assert_allclose(std**2, expected[..., 1].ravel(), rtol=1e-9)
    mean, std = est.predict_rows(Y, return_std=True)
    assert_allclose(mean, expected[..., 0], rtol=1e-9)
    assert_allclose(std**2, expected[..., 1], rtol=1e-9)
    assert_array_equal(est.predict_rows(Y), mean)
    biases = est.user_biases_ if est.biases else None
    assert_allclose(est.inverse_transform(est.user_factors_, biases), mean, rtol=1e-9)


def test_predictive_moments_are_those_of_draws(rng):
    Y = ratings(rng, 6, 4)
    est = small(clip=False).fit(Y)
    n, i, j = 200_000, 2, 1
    (um, uc), (vm, vc) = users_of(est, Y), items_of(est)
    u = rng.multivariate_normal(um[i], uc[i], size=n)
    v = rng.multivariate_normal(vm[j], vc[j], size=n)
    y = est.intercept_ + (u[:, :2] * v[:, :2]).sum(axis=1) + u[:, 2] + v[:, 2]
    y += np.sqrt(est.noise_variance_) * rng.standard_normal(n)
    mean, std = est.predict_ratings([i], [j], return_std=True)
    assert mean[0] == pytest.approx(y.mean(), abs=4 * std[0] / np.sqrt(n))
    assert std[0] == pytest.approx(y.std(), rel=0.01)


@pytest.mark.parametrize("biases", [True, False])
def test_ninety_percent_intervals_hold_ninety_percent(biases, rng):
    """Of held-out ratings drawn from the model itself."""
    hyper = TRUTH if biases else TRUTH._replace(bias=None)
    Y, known = draw(rng, 400, 80, hyper=hyper, observed=0.25, biases=biases)
    est = AnnealedPMF(
        2, biases=biases, noise_variance=hyper.noise, factor_variance=hyper.factor,
        bias_variance=hyper.bias, clip=False, random_state=0,
    )  # fmt: skip
    est.fit(np.where(known, Y, NAN))
    users, items = np.nonzero(~known)
    mean, std = est.predict_ratings(users, items, return_std=True)
    inside = np.abs(Y[users, items] - mean) < norm.ppf(0.95) * std
    assert 0.88 < inside.mean() < 0.92
    # What the factors add to the noise is not nothing: users with few ratings are less certain.
    assert (std**2).mean() > 1.1 * hyper.noise


def test_clip(rng):
    Y = ratings(rng)
    free = small(clip=False).fit(Y)
    low, high = free.rating_range_
    factors = np.array([[30.0, 0.0], [0.0, -30.0]])
    wide = free.inverse_transform(factors)
    assert wide.min() < low and wide.max() > high
    assert_array_equal(small().fit(Y).inverse_transform(factors), wide.clip(low, high))
    within = small(clip=(2.9, 3.1)).fit(Y)
    assert_array_equal(within.inverse_transform(factors), wide.clip(2.9, 3.1))
    users, items = np.nonzero(np.isnan(Y))
    expected = free.predict_ratings(users, items)
    assert_array_equal(within.predict_ratings(users, items), expected.clip(2.9, 3.1))
    assert_array_equal(within.predict_rows(Y), free.predict_rows(Y).clip(2.9, 3.1))
    # Of the standard deviation nothing is cut, and the fit is the same.
    assert_array_equal(
        within.predict_ratings(users, items, return_std=True)[1],
        free.predict_ratings(users, items, return_std=True)[1],
    )
    assert within.lower_bound_ == free.lower_bound_ and within.score(Y) == free.score(Y)
    for clip in ((3.0, 3.0), (5.0, 1.0), (NAN, 3.0)):
        with pytest.raises(ValueError, match="is not a range"):
            small(clip=clip).fit(Y)


def test_recommend(rng):
    Y = ratings(rng)
    est = small(clip=False).fit(Y)
    predicted = est.predict_rows(Y)
    found = est.recommend(Y, n=10)
    assert found.shape == (25, 10) and found.dtype.kind == "i"
    for i in range(len(Y)):
        unseen = np.flatnonzero(np.isnan(Y[i]))
        best = unseen[np.argsort(-predicted[i, unseen], kind="stable")]
        assert_array_equal(found[i], np.append(best, np.full(10 - len(best), -1)))
    assert_array_equal(est.recommend(Y, n=3), found[:, :3])
    everything = est.recommend(Y, n=10, exclude_seen=False)
    assert_array_equal(np.sort(everything), np.tile(np.arange(10), (25, 1)))
    assert_array_equal(everything, np.argsort(-predicted, axis=1, kind="stable"))
    more = est.recommend(Y, n=12, exclude_seen=False)
    assert_array_equal(more, np.append(everything, np.full((25, 2), -1), axis=1))
    # Ties go to the lowest column: two items that nobody has rated.
    Y[:, [3, 7]] = NAN
    nobody = np.full((1, 10), NAN)
    order = small().fit(Y).recommend(nobody, n=10)[0].tolist()
    assert order.index(7) == order.index(3) + 1
    with pytest.raises(ValueError, match="1 or more; got 0"):
        est.recommend(Y, n=0)


# Score


def halves_by_hand(Y):
    """Every other known item of each user, in the order of a fixed permutation."""
    keys = np.random.RandomState(0).permutation(Y.shape[1])
    known, predicted = Y.copy(), np.full(Y.shape, NAN)
    for i in range(len(Y)):
        items = np.flatnonzero(~np.isnan(Y[i]))
        chosen = items[np.argsort(keys[items])][::2]
        predicted[i, chosen] = Y[i, chosen]
        known[i, chosen] = NAN
    return known, predicted


@all_variants
def test_score_of_a_matrix_is_that_of_one_half_given_the_other(variant, rng):
    Y = ratings(rng)
    est = small(**VARIANTS[variant]).fit(Y)
    new = ratings(rng, 12)
    known, predicted = halves_by_hand(new)
    (um, uc), (vm, vc) = users_of(est, known), items_of(est)
    densities, of_user = [], []
    for i, j in np.argwhere(~np.isnan(predicted)):
        moments = plain.predictive(um[i], uc[i], vm[j], vc[j], plain.hyperparameters(est))
        densities.append(norm.logpdf(new[i, j], moments[0], np.sqrt(moments[1])))
        of_user.append(i)
    assert est.score(new) == pytest.approx(np.mean(densities), rel=1e-10)
    w = rng.uniform(0.5, 2.0, 12)
    expected = np.average(densities, weights=w[of_user])
    assert est.score(new, sample_weight=w) == pytest.approx(expected, rel=1e-10)
    order = rng.permutation(12)
    assert est.score(new[order]) == pytest.approx(est.score(new), rel=1e-12)


def test_score_of_pairs_is_the_density_of_their_ratings(rng):
    X, y = pairs_of(ratings(rng))
    est = small(input="pairs").fit(X[:90], y[:90])
    # Unknown ids have their priors; any order; twice the same pair.
    new = np.vstack([X[90:], X[90:92], [[500, 2], [3, 500]]])
    values = np.append(y[90:], [2.0, 3.0, 1.0, 4.0])
    order = rng.permutation(len(new))
    new, values, w = new[order], values[order], rng.uniform(0.1, 2.0, len(new))
    mean, std = clone(est).set_params(clip=False).fit(X[:90], y[:90]).predict(new, return_std=True)
    densities = norm.logpdf(values, mean, std)
    assert est.score(new, values) == pytest.approx(densities.mean(), rel=1e-12)
    expected = np.average(densities, weights=w)
    assert est.score(new, values, sample_weight=w) == pytest.approx(expected, rel=1e-12)


def test_score_without_anything_to_predict(rng):
    est = small().fit(ratings(rng))
    with pytest.raises(ValueError, match="no rating to predict"):
        est.score(np.full((2, 10), NAN))


# Weights


@all_inputs
def test_weights_are_copies_and_absences(input, rng):
    Y = ratings(rng)
    data = pairs_of(Y) if input == "pairs" else (Y,)
    counts = np.where(np.arange(len(data[0])) % 3, 1, 2)
    counts[5] = 0
    fixed = {"n_items": Y.shape[1], "input": input}
    if input == "pairs":
        fixed["n_users"] = len(Y)
    # Minibatches of everything: users are local, and no start is drawn for them.
    weighted = small(**fixed).fit(*data, sample_weight=counts)
    repeated = small(**fixed).fit(*(np.repeat(part, counts, axis=0) for part in data))
    assert weighted.lower_bound_ == pytest.approx(repeated.lower_bound_, rel=1e-10)
    assert_allclose(weighted.components_, repeated.components_, rtol=1e-8)
    assert weighted.intercept_ == pytest.approx(repeated.intercept_)
    with pytest.raises(ValueError, match="weights are zero"):
        small(**fixed).fit(*data, sample_weight=np.zeros(len(data[0])))


# Streams


def test_stream_of_new_users(rng):
    """Matrices: every call brings new users; items may get more columns, up to n_items."""
    Y = ratings(rng, 30, 12)
    est = small(n_items=14, learning_decay=0.6)
    est.partial_fit(Y[:10, :8])
    assert est.n_items_ == 14 and est.components_.shape == (2, 14) and est.n_users_ == 10
    # Nobody has rated the others.
    learned = np.abs(est.components_[:, :8]).min()
    rho = 2.0**-0.6
    assert_allclose(
        full(context_of(est).q["items_precision"])[8:],
        np.broadcast_to(np.diag(1 / TRUTH.prior_variances(3)), (6, 3, 3)), rtol=1e-12,
    )  # fmt: skip
    start = small(n_items=14, max_iter=0).fit(Y[:10, :8]).components_
    assert_allclose(est.components_[:, 8:], (1 - rho) * start[:, 8:], rtol=1e-9)
    assert learned > 0
    est.partial_fit(Y[10:20])
    assert est.n_users_ == 10
    assert_allclose(est.user_factors_, est.transform(Y[10:20]), rtol=1e-9, atol=1e-13)
    est.partial_fit(Y[20:, :5])
    assert est.n_iter_ == 3 and len(est.lower_bounds_) == 3
    before = fitted_state(est)
    with pytest.raises(ValueError, match="X has 15 columns, but n_items=14"):
        est.partial_fit(np.ones((2, 15)))
    for name, value in fitted_state(est).items():
        assert_array_equal(np.asarray(value), np.asarray(before[name]), err_msg=name)


def test_width_is_fixed_without_a_declaration(rng):
    Y = ratings(rng)
    est = small().partial_fit(Y)
    with pytest.raises(ValueError, match="9 features"):
        est.partial_fit(Y[:, :9])


def test_stream_of_new_ratings_of_known_users(rng):
    """Pairs: what a user said before is added to what the user says now."""
    Y = ratings(rng, 12, 8)
    X, y = pairs_of(Y)
    first = X[:, 1] < 4
    est = small(input="pairs", n_items=8).partial_fit(X[first], y[first])
    said = {key: value.copy() for key, value in est._user_statistics.items()}
    est.partial_fit(X[~first], y[~first])
    hyper, items = plain.hyperparameters(est), rows_of(context_of(est).q, "items")
    fresh = plain.updated(np.where(np.arange(8) < 4, NAN, Y), items, hyper)
    expected = plain.Rows(
        fresh.precision + full(said["precision"]) / est.noise_variance_,
        fresh.natural_mean + said["natural_mean"] / est.noise_variance_,
    )
    assert_allclose(est.user_factors_, expected.mean[:, :2], rtol=1e-9, atol=1e-12)
    assert_allclose(est.user_biases_, expected.mean[:, 2], rtol=1e-9, atol=1e-12)
    assert_allclose(est.user_factors_cov_, expected.cov[:, :2, :2], rtol=1e-9, atol=1e-12)
    # New users are appended, and those between without ratings have the prior.
    est.partial_fit([[20, 1]], [5.0])
    assert est.n_users_ == 21
    assert_array_equal(est.user_factors_[15], [0.0, 0.0])
    assert (est.user_factors_[20] != 0).all()
    old = est.user_factors_[3].copy()
    est.partial_fit([[20, 2]], [1.0])
    assert_array_equal(est.user_factors_[3], old)


def test_known_ratings_enter_the_locally_tempered_step(rng):
    """What a user said before is neither tempered nor forgotten."""
    Y = ratings(rng, 12, 8)
    X, y = pairs_of(Y)
    est = small(input="pairs", n_items=8, annealing="local_tempering").partial_fit(X, y)
    ctx, method = context_of(est), est.annealing_
    units = sparse_of(Y)
    units = Ratings(
        units.data, units.indices, units.indptr, 8, counts_ratings=True, known=est._user_statistics
    )
    grid, _ = method.expectations(ctx)
    step = method.local_step(ctx, units, grid, Tempering())
    x = step.inverse_temperatures
    solved = ctx.model.fold_in(units, grid.expected.across, x, Tempering())
    for key, value in ctx.model._items_step(units, solved, x).statistics.items():
        assert_array_equal(step.statistics[key], value)
    forgetful = Ratings(units.values, units.columns, units.indptr, 8)
    other = method.local_step(ctx, forgetful, grid, Tempering()).statistics
    assert largest_difference(other, step.statistics) > 1e-3


def test_ratings_of_weight_zero_have_no_part_in_the_range(rng):
    X, y = pairs_of(ratings(rng, 12, 8))
    more = small(input="pairs", n_items=8)
    more.fit(np.append(X, [[3, 4]], axis=0), np.append(y, 99.0), np.append(np.ones(len(y)), 0.0))
    less = small(input="pairs", n_items=8).fit(X, y)
    assert more.rating_range_ == less.rating_range_ == (y.min(), y.max())
    assert more.intercept_ == pytest.approx(less.intercept_, rel=1e-12)


def test_known_ratings_enter_the_local_step_of_a_stream(rng):
    """With the same ratings once more, a user is as certain as with two of each."""
    X, y = pairs_of(ratings(rng, 12, 8))
    est = small(input="pairs", learning_decay=1.0, learning_offset=1e9).partial_fit(X, y)
    est.partial_fit(X, y)
    # Steps so small that items stay where they are.
    twice = np.vstack([X, X]), np.tile(y, 2)
    once = small(input="pairs", learning_decay=1.0, learning_offset=1e9).partial_fit(*twice)
    assert_allclose(est.user_factors_cov_, once.user_factors_cov_, rtol=1e-5, atol=1e-9)


def test_unknown_items_of_a_stream(rng):
    est = small(input="pairs").partial_fit([[0, 0], [1, 2]], [1.0, 2.0])
    before = dict(vars(est))
    with pytest.raises(ValueError, match="X has the id 3.*n_items=3. Declare n_items=4"):
        est.partial_fit([[0, 3]], [1.0])
    assert vars(est) == before
    est = small(input="pairs", n_items=5, n_users=2).partial_fit([[0, 0], [1, 2]], [1.0, 2.0])
    est.partial_fit([[0, 4]], [1.0])
    assert est.n_items_ == 5 and est.n_users_ == 2
    with pytest.raises(ValueError, match="n_users=2. Declare n_users=3"):
        est.partial_fit([[2, 4]], [1.0])
    # Prediction asks for no declaration.
    assert np.isfinite(est.predict([[9, 9]])).all()


@all_inputs
def test_refused_batch_changes_nothing(input, rng):
    Y = ratings(rng)
    batches = [pairs_of(Y) if input == "pairs" else (Y,) for Y in (Y[:10], Y[10:])]
    est = small(input=input, n_items=10, n_users=25 if input == "pairs" else None)
    est.partial_fit(*batches[0])
    straight = pickle.loads(pickle.dumps(est)).partial_fit(*batches[1])
    bad = (batches[1][0], np.full(len(batches[1][0]), NAN)) if input == "pairs" else (
        np.full((2, 10), np.inf),
    )  # fmt: skip
    before = dict(vars(est))
    with pytest.raises(ValueError):
        est.partial_fit(*bad)
    with pytest.raises(ValueError, match="sample_weight"):
        est.partial_fit(*batches[1], sample_weight=np.ones(3))
    assert vars(est) == before
    assert_identical(est.partial_fit(*batches[1]), straight)


@pytest.mark.parametrize("name", ANNEALING)
def test_stream_of_pairs_goes_on_after_pickling(name, rng):
    Y = ratings(rng)
    X, y = pairs_of(Y)
    parts = np.array_split(rng.permutation(len(y)), 4)
    params = {"input": "pairs", "annealing": quick(name, 3), "n_items": 10}
    straight, resumed = small(**params), small(**params)
    for part in parts:
        straight.partial_fit(X[part], y[part])
        resumed = pickle.loads(pickle.dumps(resumed)).partial_fit(X[part], y[part])
        assert_identical(straight, resumed)
    assert straight.n_iter_ == 4 and np.isfinite(straight.score(X, y))


@all_inputs
def test_batch_without_ratings_changes_nothing(input, rng):
    Y = ratings(rng)
    est = small(input=input, n_items=10)
    data = pairs_of(Y) if input == "pairs" else (Y,)
    est.partial_fit(*data)
    before = fitted_state(est)
    est.partial_fit(*data, sample_weight=np.zeros(len(data[0])))
    if input == "matrix":
        est.partial_fit(np.full((3, 10), NAN))
    for name, value in fitted_state(est).items():
        assert_array_equal(np.asarray(value), np.asarray(before[name]), err_msg=name)


def test_a_stream_learns_what_a_fit_learns(rng):
    Y, known = draw(rng, 400, 20, observed=0.5)
    Y = np.where(known, Y, NAN)
    whole = small(max_iter=50).fit(Y)
    stream = small(total_samples=400)
    for _ in range(5):
        for rows in np.array_split(rng.permutation(400), 10):
            stream.partial_fit(Y[rows])
    batches = small(batch_size=40, max_iter=50).fit(Y)
    nothing = small(max_iter=0).fit(Y)
    for est in (stream, batches):
        gain = (est.score(Y) - nothing.score(Y)) / (whole.score(Y) - nothing.score(Y))
        assert gain > 0.9


# SVI+


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_of_next_to_nothing_leave_next_to_nothing(dtype, rng):
    """Dirichlet noise makes most weights tiny: their sums are no differences of large ones."""
    ctx, _, units = open_run(small(), ratings(rng, 60, 40).astype(dtype))
    weights = np.full(units.n_weight_units, 1e-12)
    for block in ctx.model.blocks:
        found = []
        for noise in (None, weights):
            model, batch = visiting(ctx, units, block)
            expected = model.prepared(model.expectations(ctx.q), Tempering())
            found.append(model.local_step(batch, expected, Tempering(), noise).statistics)
        plain, faint = found
        for key in block.keys:
            size = np.abs(plain[key]).max()
            assert_allclose(faint[key], 1e-12 * plain[key], rtol=0, atol=1e-18 * size, err_msg=key)


def test_effective_size_grows_to_all_ratings(rng):
    """From one rating (or 1e-4 of them) linearly; the noise ends where plain inference begins."""
    ctx, method, units = open_run(small(annealing="svi_plus"), ratings(rng, 60, 40))
    n = units.n_weight_units
    assert method.noise == "gaussian" and method.learning_rate == 0.85 and method.margin == 0.2
    n_passes = method.n_passes
    for t in range(n_passes + 1):
        ctx.state["passes"] = t
        expected = 1 + (n - 1) * t / n_passes
        assert method.effective_size(ctx, n) == pytest.approx(expected, rel=1e-9)
    assert method.weights(ctx, units) is None


@pytest.mark.parametrize("variant", ["biases", "plain"])
def test_noisy_updates_are_those_of_the_definition(variant, rng):
    """One ε per rating and visit of a block, centred; a share of every step; the rows' backoff."""
    Y = ratings(rng)
    X, _ = pairs_of(Y)
    method = SVIPlus(0.2, "gaussian", "linear", 10, 0.85, 0.2)
    ctx, method, units = open_run(small(annealing=method, **VARIANTS[variant]), Y)
    hyper, n = hyper_of(ctx.model), len(X)
    backed_off = 0
    for p in range(4):
        users, items = rows_of(ctx.q, "users"), rows_of(ctx.q, "items")
        source = np.random.default_rng()
        source.bit_generator.state = ctx.rng.bit_generator.state
        effective = n * (0.2 + 0.8 * p / 10)
        one_update(ctx, method, units)
        new = {}
        for side, old in (("users", users), ("items", items)):
            noise = fast_normal(n, source, float(np.sqrt(n / effective - 1)))
            noise -= noise.mean()
            assert noise.dtype == np.float32
            noise = 1 + noise.astype(float)
            W = np.full(Y.shape, NAN)
            # Ratings of users one after another, or of items one after another.
            order = np.argsort(X[:, 1], kind="stable") if side == "items" else slice(None)
            W[tuple(X[order].T)] = noise
            across, table = (items, Y) if side == "users" else (new["users"], Y.T)
            weights = W if side == "users" else W.T
            clean, noisy = (
                [0.15 * a + 0.85 * b
                 for a, b in zip(old, plain.updated(table, across, hyper, w), strict=True)]
                for w in (None, weights)
            )  # fmt: skip
            rows = [np.empty_like(part) for part in clean]
            for i in range(len(table)):
                least = np.linalg.eigvalsh(clean[0][i])[0]
                for share in (*2.0 ** -np.arange(13), 0.0):
                    for k in range(2):
                        rows[k][i] = clean[k][i] + share * (noisy[k][i] - clean[k][i])
                    if np.linalg.eigvalsh(rows[0][i])[0] >= 0.2 * least:
                        break
                backed_off += share < 1
            new[side] = plain.Rows(*rows)
            assert_rows(ctx.q, side, new[side], 1e-8)
    assert backed_off > 5


@pytest.mark.parametrize("margin", [0.0, 0.2])
@pytest.mark.parametrize("d", [1, 3, 6])
def test_backoff_is_that_of_the_family(d, margin, rng):
    est = small(d)
    ctx, _, _ = open_run(est, ratings(rng, 200, 50))
    family = Gaussian("packed")
    size = d + 1
    for scale in (0.5, 3.0, 50.0):
        a = rng.standard_normal((200, size, size + 2))
        rows, columns = np.tril_indices(size)
        clean = {
            "precision": np.ascontiguousarray((a @ a.swapaxes(1, 2))[:, rows, columns]),
            "natural_mean": rng.standard_normal((200, size)),
        }
        deviation = {k: scale * rng.standard_normal(v.shape) for k, v in clean.items()}
        deviation["natural_mean"][3, 0] = NAN
        deviation["precision"][4, 0] = np.inf
        named = [{f"users_{k}": v.copy() for k, v in one.items()} for one in (clean, deviation)]
        found = ctx.model.backoff(*named, 0.85, margin)
        valid = partial(family.valid, reference=clean, margin=margin)
        with np.errstate(invalid="ignore"):
            expected = backoff(clean, deviation, valid, 0.85)
        for key, value in expected.items():
            error, name = min(1e-14 * scale, 1e-13), f"{scale} {key}"
            assert_allclose(found[f"users_{key}"], value, rtol=1e-14, atol=error, err_msg=name)
        shares = (expected["natural_mean"] == clean["natural_mean"]).all(axis=1)
        assert shares[3] and shares[4]
        if scale > 1:
            moved = clean["precision"] + 0.85 * deviation["precision"]
            assert not np.allclose(expected["precision"], moved)


def test_svi_plus_stays_valid_and_gets_where_plain_inference_gets(rng):
    Y = ratings(rng, 150, 30)
    params = {"max_iter": 200, "tol": 1e-7}
    plain_fit = small(**params).fit(Y)
    est = small(annealing="svi_plus", **params).fit(Y)
    assert np.isfinite(est.lower_bounds_).all()
    assert est.lower_bound_ > plain_fit.lower_bound_ - 1e-3 * abs(plain_fit.lower_bound_)


# Other methods


@pytest.mark.parametrize("seed", range(3))
def test_annealing_keeps_the_factors(seed):
    """Hot posteriors are symmetric; cooling has to find the factors again."""
    rng = np.random.default_rng(seed)
    Y, known = draw(rng, 200, 50, observed=0.3, hyper=TRUTH._replace(factor=0.5, noise=0.36))
    Y = np.where(known, Y, NAN)
    params = {"max_iter": 300, "tol": 1e-7, **DEFAULT}
    reference = small(3, **params).fit(Y).lower_bound_
    for name in ("deterministic", "stochastic", "tempering", "svi_plus"):
        bound = small(3, annealing=name, **params).fit(Y).lower_bound_
        assert bound > reference - 1e-3 * abs(reference), name


def test_jitter_displaces_the_means_of_items(rng):
    """By N(0, size²) prior standard deviations; precisions and users stay."""
    ctx, _, _ = open_run(small(), ratings(rng, 10, 4000))
    moved = ctx.model.jitter(ctx.q, 0.2, rng, ctx.prior)
    assert moved.keys() == ctx.q.keys()
    for key in moved.keys() - {"items_natural_mean"}:
        assert_array_equal(moved[key], ctx.q[key])
    shift = rows_of(moved, "items").mean - rows_of(ctx.q, "items").mean
    deviations = np.sqrt(TRUTH.prior_variances(3))
    assert_allclose(shift.std(axis=0), 0.2 * deviations, rtol=0.06)
    assert (np.abs(shift.mean(axis=0)) < 4 * 0.2 * deviations / np.sqrt(4000)).all()


@pytest.mark.parametrize("x", [0.1, 0.5, 1.0])
def test_log_partition_is_the_volume_of_a_tempered_rating(x, rng):
    """∫ N(y; f, σ²)^x dy, whatever f is."""
    Y = ratings(rng)
    ctx, _, units = open_run(small(noise_variance=0.37), Y)
    width = 20.0 * np.sqrt(0.37 / x)
    for f in (0.0, 2.5):
        volume = quad(lambda y, f=f: norm.pdf(y, f, 0.37**0.5) ** x, f - width, f + width)[0]
        found = ctx.model.unit_log_partition(np.array([x]), ctx.summary, ctx.q)
        assert found[0] == pytest.approx(np.log(volume), abs=1e-8)
    whole = ctx.model.log_partition(np.array([x]), ctx.summary, ctx.q)
    assert whole[0] == pytest.approx((~np.isnan(Y)).sum() * found[0])


def test_tempering_comes_to_temperature_one(rng):
    Y, known = draw(rng, 150, 40, observed=0.4)
    est = small(annealing="tempering", max_iter=0, **DEFAULT).fit(np.where(known, Y, NAN))
    x = 1 / est.temperatures_
    assert x[0] == pytest.approx((1 / np.geomspace(1, 10, 100)).mean())
    assert np.diff(x).min() > -1e-3
    assert x[-1] > 0.98


def test_stationary_inverse_temperature(rng):
    """x ℓ − log C(x) is largest where x = σ² / E(y − f)², if that is below 1."""
    Y = ratings(rng, 150, 40)
    method = VariationalTempering(n_temperatures=2000, damping=0.5, n_passes=300)
    est = small(annealing=method, max_iter=0, noise_variance=0.5 * TRUTH.noise).fit(Y)
    x = 1 / est.temperatures_[-1]
    items, hyper = rows_of(context_of(est).q, "items"), plain.hyperparameters(est)
    users = plain.updated(Y, items, hyper, x=x)
    error = np.nanmean(plain.squared_errors(Y, users, items, hyper))
    assert x < 0.8
    assert x == pytest.approx(hyper.noise / error, rel=1e-3)


@pytest.mark.parametrize("n_rounds", [1, 3])
@all_variants
def test_local_temperatures_are_those_of_the_definition(variant, n_rounds, rng):
    """Rounds of q(u) at E[1/T] and of r ∝ exp{x ℓ − n log c(x)}, n the user's ratings."""
    Y = ratings(rng)
    method = LocalVariationalTempering(40, n_rounds, 3)
    est = small(annealing=method, **VARIANTS[variant]).fit(Y)
    hyper, items = plain.hyperparameters(est), rows_of(context_of(est).q, "items")
    grid = np.arange(1, 41) / 40
    log_c = 0.5 * ((1 - grid) * np.log(2 * np.pi * hyper.noise) - np.log(grid))
    x = np.full(len(Y), grid.mean())
    for _ in range(n_rounds):
        users = plain.updated(Y, items, hyper, x=x)
        energies = np.nansum(plain.log_densities(Y, users, items, hyper), axis=1)
        n = (~np.isnan(Y)).sum(axis=1)
        x = softmax(np.outer(energies, grid) - np.outer(n, log_c), axis=1) @ grid
    found = est.inverse_temperatures(Y)
    assert_allclose(found, x, rtol=1e-9)
    # Without ratings nothing is known of a temperature.
    assert found[0] == pytest.approx(grid.mean())


def test_local_tempering_listens_less_to_random_ratings(rng):
    Y, known = draw(rng, 200, 60, observed=0.5)
    Y[:20] = rng.uniform(-4.0, 10.0, (20, 60))
    Y = np.where(known, Y, NAN)
    est = small(annealing="local_tempering").fit(Y)
    x = est.inverse_temperatures(Y)
    assert x.shape == (200,) and ((x > 0) & (x <= 1)).all()
    assert x[:20].max() < x[20:].min()
    X, y = pairs_of(Y)
    pairs = clone(est).set_params(input="pairs").fit(X, y)
    assert_allclose(pairs.inverse_temperatures(X, y), x, rtol=1e-6)


def test_local_form_is_refused(rng):
    Y = ratings(rng)
    method = DeterministicAnnealing(form="local", initial_temperature=2.0)
    with pytest.raises(ValueError, match='which are all that form="local" tempers.*"likelihood"'):
        small(annealing=method).fit(Y)
    # At T = 1 from the start there is nothing to temper.
    cold = DeterministicAnnealing(form="local", initial_temperature=1.0)
    assert_array_equal(small(annealing=cold).fit(Y).lower_bounds_, small().fit(Y).lower_bounds_)


def test_random_initialisations_are_valid(rng):
    Y = ratings(rng)
    for how in ({}, {"batch_size": 5}):
        ctx, _, units = open_run(small(**how), Y)
        for _ in range(20):
            eta = ctx.model.random_natural(ctx.summary, ctx.prior, rng)
            assert {k: v.shape for k, v in eta.items()} == {k: v.shape for k, v in ctx.q.items()}
            assert ctx.model.valid(eta)
        for block in ctx.model.blocks:
            visitor, _ = visiting(ctx, units, block)
            eta = visitor.random_natural(ctx.summary, ctx.prior, rng)
            assert eta.keys() == set(block.keys)


@pytest.mark.parametrize("name", ["stochastic", "svi_plus", "deterministic", "structured"])
def test_annealed_fits_are_repeatable_and_depend_on_the_seed(name, rng):
    Y = ratings(rng)
    one, again, other = (
        small(annealing=quick(name), random_state=seed).fit(Y) for seed in (1, 1, 2)
    )
    assert_identical(one, again)
    assert not np.array_equal(one.components_, other.components_)


def test_restarts_keep_the_best_bound(rng):
    est = small(4, n_init=5, max_iter=30).fit(ratings(rng))
    assert est.lower_bound_ == est.restart_lower_bounds_.max()
    assert est.best_restart_ == est.restart_lower_bounds_.argmax()
    assert len(set(est.restart_lower_bounds_)) == 5


# Empirical Bayes


@pytest.mark.parametrize("how", [{}, {"batch_size": 100, "learning_decay": 0.7}])
@pytest.mark.parametrize("name", ["none", "deterministic"])
def test_noise_variance_is_recovered(name, how, rng):
    Y, known = draw(rng, 400, 80, observed=0.4)
    est = small(2, annealing=name, max_iter=60, **AUTO, **how).fit(np.where(known, Y, NAN))
    assert est.noise_variance_ == pytest.approx(TRUTH.noise, rel=0.1)
    if not how:
        # Minibatches come near the others slowly.
        assert est.factor_variance_ == pytest.approx(TRUTH.factor, rel=0.3)
        assert est.bias_variance_ == pytest.approx(TRUTH.bias, rel=0.3)


@pytest.mark.parametrize("learned", ["noise_variance", "factor_variance", "bias_variance"])
def test_learned_variances_are_at_the_maximum_of_the_bound(learned, rng):
    Y = ratings(rng, 60, 20)
    est = small(max_iter=3000, tol=1e-11, **{learned: "auto"}).fit(Y)
    best = getattr(est, f"{learned}_")
    assert best != GIVEN[learned]
    for factor in (0.95, 1.05):
        near = small(max_iter=3000, tol=1e-11, **{learned: factor * best}).fit(Y)
        assert near.lower_bound_ < est.lower_bound_


@pytest.mark.parametrize("batch_size", [None, 20])
def test_given_variances_stay(batch_size, rng):
    est = small(batch_size=batch_size, max_iter=20).fit(ratings(rng))
    for name, value in GIVEN.items():
        assert getattr(est, f"{name}_") == value


# scikit-learn's tools


def test_grid_search_over_methods_and_schedules(rng):
    Y = ratings(rng, 40)
    grids = [
        {"annealing": ["none", quick("stochastic", 3), quick("svi_plus", 3)]},
        {"annealing": ["deterministic"], "annealing__initial_temperature": [2.0, 6.0],
         "annealing__schedule": ["linear", "geometric"], "annealing__n_passes": [3]},
        {"noise_variance": [0.3, 1.0], "n_components": [1, 3]},
    ]  # fmt: skip
    for X in (Y, sparse_of(Y)):
        for grid in grids:
            search = GridSearchCV(small(), grid, cv=2, error_score="raise").fit(X)
            scores = search.cv_results_["mean_test_score"]
            assert np.isfinite(scores).all() and len(set(scores)) == len(scores)
            assert np.isfinite(search.score(X))


def test_cross_validation_over_ratings(rng):
    Y, known = draw(rng, 80, 30)
    X, y = pairs_of(np.where(known, Y, NAN))
    folds = KFold(3, shuffle=True, random_state=0)
    est = small(input="pairs", max_iter=30)
    scores = cross_val_score(est, X, y, cv=folds, error_score="raise")
    # Better than the ratings' own normal distribution.
    assert scores.min() > norm.logpdf(y, y.mean(), y.std()).mean() + 0.1
    errors = cross_val_score(est, X, y, cv=folds, scoring="neg_root_mean_squared_error")
    assert -errors.max() < 0.85 * y.std()
    by_method = GridSearchCV(est, {"annealing": ["none", quick("svi_plus")]}, cv=folds).fit(X, y)
    assert by_method.predict(X).shape == y.shape


def test_pipeline_and_names_of_columns(rng):
    Y = ratings(rng)
    pipe = Pipeline([("factors", small()), ("again", small(1))]).fit(Y)
    assert pipe.transform(Y).shape == (25, 1)
    assert small().fit(Y).get_feature_names_out().tolist() == ["annealedpmf0", "annealedpmf1"]
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(Y, columns=[f"film {j}" for j in range(10)])
    est = small().set_output(transform="pandas").fit(frame)
    assert list(est.transform(frame).columns) == ["annealedpmf0", "annealedpmf1"]
    assert list(est.feature_names_in_) == list(frame.columns)


def test_pairs_of_a_table_of_data(rng):
    pandas = pytest.importorskip("pandas")
    X, y = pairs_of(ratings(rng))
    frame = pandas.DataFrame(X, columns=["user", "item"])
    est = small(input="pairs").fit(frame, pandas.Series(y))
    assert_array_equal(est.predict(frame), small(input="pairs").fit(X, y).predict(X))


def test_warm_start_goes_on_from_the_items(rng):
    Y = ratings(rng)
    est = small(max_iter=4).fit(Y)
    going_on = small(max_iter=4, warm_start=True).fit(Y).fit(Y)
    longer = small(max_iter=8).fit(Y)
    assert est.lower_bound_ < going_on.lower_bound_
    assert going_on.lower_bound_ == pytest.approx(longer.lower_bound_, rel=1e-9)
    assert going_on.n_iter_ == 8
    assert_allclose(going_on.components_, longer.components_, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@all_inputs
def test_dtypes(input, dtype, rng):
    """Predictions are float64; factors of new users have the dtype of their ratings."""
    Y = ratings(rng).astype(dtype)
    if input == "matrix":
        est = small().fit(Y)
        assert est.transform(Y).dtype == dtype
        assert est.inverse_transform(est.transform(Y)).dtype == dtype
        assert est.predict_rows(Y).dtype == np.float64
    else:
        X, y = pairs_of(Y)
        est = small(input="pairs").fit(X, y)
        assert est.predict(X).dtype == np.float64
    assert est.components_.dtype == est.user_factors_.dtype == np.float64


@pytest.mark.parametrize("kind", [int, np.int8, np.uint8, bool])
def test_whole_ratings_of_any_dtype(kind, rng):
    Y = rng.integers(0, 2, (8, 5))
    assert_identical(small().fit(Y.astype(kind)), small().fit(Y.astype(float)))
    X, y = pairs_of(Y.astype(float))
    one = small(input="pairs").fit(X, y.astype(kind))
    assert_identical(one, small(input="pairs").fit(X, y))


# Errors


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("input", "triples"), ("n_components", 0), ("n_users", 0), ("n_items", 0),
        ("noise_variance", 0.0), ("noise_variance", "learn"), ("factor_variance", -1.0),
        ("bias_variance", 0.0), ("biases", "yes"), ("fit_intercept", None), ("clip", "range"),
        ("batch_size", 0),
    ],
)  # fmt: skip
def test_parameters_are_validated(parameter, value, rng):
    with pytest.raises(ValueError, match=f"'{parameter}' parameter of AnnealedPMF"):
        small(**{parameter: value}).fit(ratings(rng))


def test_unfitted_and_misshapen(rng):
    Y = ratings(rng)
    for call in (
        lambda est: est.transform(Y),
        lambda est: est.recommend(Y),
        lambda est: est.predict_ratings([0], [0]),
        lambda est: est.score(Y),
        lambda est: est.inverse_transform(np.ones((1, 2))),
    ):
        with pytest.raises(NotFittedError):
            call(small())
    with pytest.raises(NotFittedError):
        small(input="pairs").predict([[0, 0]])
    est = small().fit(Y)
    with pytest.raises(ValueError, match="X has 3 columns, but there are n_components=2"):
        est.inverse_transform(np.ones((1, 3)))
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(1,\)"):
        est.predict_ratings([0, 1], [0])
    with pytest.raises(ValueError, match="9 features"):
        est.transform(Y[:, :9])
    without = small(biases=False).fit(Y)
    assert not hasattr(without, "item_biases_") and not hasattr(without, "bias_variance_")
    for name in ("item_biases_var_", "user_biases_var_"):
        with pytest.raises(AttributeError, match="biases=False"):
            getattr(without, name)


def test_model_cannot_change_in_a_stream(rng):
    Y = ratings(rng)
    for name, value in (("n_components", 3), ("biases", False), ("noise_variance", 0.1)):
        est = small().partial_fit(Y).set_params(**{name: value})
        with pytest.raises(ValueError, match=f"which had {name}="):
            est.partial_fit(Y)


def test_one_rating_is_data():
    est = small().fit([[NAN, 4.0]])
    assert np.isfinite(est.lower_bound_) and est.intercept_ == 4.0
    pairs = small(input="pairs").fit([[0, 1]], [4.0])
    same_fit(pairs, est, 1e-10)


def test_stochastic_annealing_draws_anew_for_every_update(rng):
    """One η for both blocks of an update; the target is mixed with it."""
    Y = ratings(rng)
    method = StochasticAnnealing(0.6, "linear", 4, "init_params")
    ctx, method, units = open_run(small(annealing=method), Y)
    hyper = hyper_of(ctx.model)
    for p in range(3):
        items = rows_of(ctx.q, "items")
        one_update(ctx, method, units)
        share = 0.6 * (1 - p / 4)
        # What is left without the share of the target is a diagonal, typical precision.
        target = plain.updated(Y, items, hyper)
        eta = (full(ctx.q["users_precision"]) - (1 - share) * target.precision) / share
        typical = units.n_observations / len(Y) / hyper.noise
        expected = np.array([
            1 / hyper.factor + typical * hyper.factor, 1 / hyper.factor + typical * hyper.factor,
            1 / hyper.bias + typical,
        ])  # fmt: skip
        assert_allclose(eta, np.broadcast_to(np.diag(expected), eta.shape), rtol=1e-8, atol=1e-8)


# Edges


def test_temperature_of_pairs_is_a_mean(rng):
    Y = ratings(rng, 30, 12)
    X, y = pairs_of(Y)
    for params in ({}, {"input": "pairs"}, {"batch_size": 7}, {"input": "pairs", "batch_size": 7}):
        est = small(annealing="local_tempering", **params)
        est.fit(*((X, y) if "input" in params else (Y,)))
        assert (est.temperatures_ >= 1 - 1e-12).all()
        assert est.temperatures_[0] > 1


@pytest.mark.parametrize("value", [3.5, 3.3, 0.1, 1000000.1])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_equal_ratings_leave_nothing_to_explain(value, dtype):
    est = AnnealedPMF(1, random_state=0).fit(np.full((4, 5), value, dtype=dtype))
    assert est.noise_variance_ == pytest.approx(0.63)
    assert est.predict_ratings([0], [0]) == pytest.approx(value, rel=1e-5)


def test_first_batch_must_fix_the_variances(rng):
    X, y = pairs_of(ratings(rng))
    with pytest.raises(ValueError, match="its ratings are all equal"):
        AnnealedPMF(2, input="pairs", n_items=20).partial_fit(X[:1], y[:1])
    given = {"noise_variance": 0.5, "factor_variance": 0.1, "bias_variance": 0.3}
    assert AnnealedPMF(2, input="pairs", n_items=20, **given).partial_fit(X[:1], y[:1]).n_users_


def test_earlier_ratings_of_a_stream_follow_the_noise_variance(rng):
    X, y = pairs_of(ratings(rng, 12, 8))
    est = small(input="pairs", n_items=8, noise_variance="auto").partial_fit(X, y)
    precise = np.linalg.inv(est.user_factors_cov_) * est.noise_variance_
    est.partial_fit([[30, 0], [30, 1]], [2.0, 5.0])
    for _ in range(20):
        est.partial_fit([[30, 0], [30, 1]], [3.0, 3.0])
    now = np.linalg.inv(est.user_factors_cov_[:12]) * est.noise_variance_
    prior = est.noise_variance_ / est.factor_variance_
    assert np.linalg.eigvalsh(now)[:, 0].min() > 0.99 * prior
    # Sums over ratings stay; the prior's part has another factor now.
    apart = now - precise
    assert_allclose(apart - apart[:1], 0.0, atol=1e-8 * np.abs(now).max())


def test_warm_start_with_other_ratings_has_their_range(rng):
    Y = ratings(rng)
    est = small(warm_start=True).fit(Y)
    other = Y.copy()
    place = tuple(np.argwhere(~np.isnan(Y))[0])
    other[place] = 50.0
    low = est.rating_range_[0]
    assert est.fit(other).rating_range_ == (min(low, np.nanmin(other)), 50.0)


def test_batches_of_users_without_ratings_are_parts_of_a_pass(rng):
    Y = np.vstack([ratings(rng, 10, 8), np.full((10, 8), NAN)])
    est = small(batch_size=1, max_iter=2).fit(Y)
    assert_array_equal(est.temperatures_, 1.0)
    annealed = small(batch_size=1, max_iter=1, annealing=quick("deterministic")).fit(Y)
    assert context_of(annealed).state["passes"] == pytest.approx(5)


def test_factors_that_are_off_are_reported(rng):
    noise = 3.0 + rng.standard_normal((40, 15))
    with pytest.warns(ConvergenceWarning, match="All factors are switched off"):
        AnnealedPMF(2, noise_variance=2.0, factor_variance=0.05, random_state=0).fit(noise)


@pytest.mark.parametrize("clip", [(1, 2, 3), (None, 5), ("a", "b"), (5, 1), (), (2, 2)])
def test_ranges_that_are_none_are_refused(clip, rng):
    with pytest.raises(ValueError, match="is not a range"):
        small(clip=clip).fit(ratings(rng))


def test_numpy_booleans_switch_clipping_off(rng):
    Y = ratings(rng)
    far = [[9.0, 9.0]]
    one, other = (small(clip=no).fit(Y).inverse_transform(far) for no in (False, np.False_))
    assert_array_equal(one, other)
    assert one.max() > np.nanmax(Y)


@pytest.mark.parametrize(
    "bad", [[[10**12, 1]], [[1e300, 1]], [[2**31, 0]], np.array([[2**63 + 5, 1]], dtype=np.uint64)]
)
def test_ids_that_are_no_small_numbers_are_refused(bad, rng):
    X, y = pairs_of(ratings(rng))
    est = small(input="pairs").fit(X, y)
    for call in (lambda: est.fit(bad, [3.0]), lambda: est.score(bad, [3.0])):
        with pytest.raises(ValueError, match="OrdinalEncoder"):
            call()
    with pytest.raises(ValueError, match="OrdinalEncoder"):
        est.predict_ratings([np.inf], [0])


def test_whole_numbers_among_objects_are_ids(rng):
    X, y = pairs_of(ratings(rng))
    mixed = X.astype(object)
    mixed[:, 1] = mixed[:, 1].astype(float)
    one, other = (small(input="pairs").fit(ids, y) for ids in (X, mixed))
    assert_array_equal(one.components_, other.components_)


def test_fitted_model_decides_and_not_later_parameters(rng):
    Y = ratings(rng)
    est = small(2).fit(Y)
    factors, mean = est.transform(Y), est.inverse_transform(est.transform(Y))
    est.set_params(n_components=3, biases=False)
    assert_array_equal(est.transform(Y), factors)
    assert_array_equal(est.inverse_transform(factors), mean)
    assert est.components_cov_.shape[1:] == (2, 2)
    assert est.item_biases_var_.shape == (Y.shape[1],)


def test_attributes_of_biases_go_with_them(rng):
    Y = ratings(rng)
    est = small(biases=True).fit(Y)
    est.set_params(biases=False).fit(Y)
    for name in ("item_biases_", "user_biases_", "bias_variance_"):
        assert not hasattr(est, name)


def test_names_of_columns_of_narrower_matrices_are_checked():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame([[1.0, 2, 3], [3, 2, 1]], columns=list("abc"))
    est = AnnealedPMF(1, n_items=4).fit(frame)
    assert est.transform(frame[["a", "b"]]).shape == (2, 1)
    with pytest.raises(ValueError, match="column 'c' where the fit had the item 'a'"):
        est.transform(frame[["c", "b"]])


def test_score_needs_ratings_of_positive_weight(rng):
    Y = np.vstack([ratings(rng), np.full((1, ratings(rng).shape[1]), NAN)])
    weights = np.zeros(len(Y))
    weights[-1] = 1.0
    with pytest.raises(ValueError, match="no rating of positive weight"):
        small().fit(Y).score(Y, sample_weight=weights)


@pytest.mark.parametrize("n", [0, 2.5, None, "a"])
def test_number_of_recommendations_is_a_positive_integer(n, rng):
    Y = ratings(rng)
    with pytest.raises(ValueError, match="1 or more"):
        small().fit(Y).recommend(Y, n)


def test_biases_of_users_have_one_value_per_row(rng):
    Y = ratings(rng)
    est = small().fit(Y)
    for wrong in (np.zeros(1), np.zeros((len(Y), 1)), np.zeros(len(Y) + 1)):
        with pytest.raises(ValueError, match="user_biases has the shape"):
            est.inverse_transform(est.transform(Y), wrong)
    without = small(biases=False).fit(Y)
    with pytest.raises(ValueError, match="the model has no biases"):
        without.inverse_transform(without.transform(Y), np.zeros(len(Y)))
