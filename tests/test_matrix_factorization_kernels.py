"""The kernels of matrix factorisation against numpy; what layouts of data they are given."""

from __future__ import annotations

import numpy as np
import pytest
from designs import in_turn, pairwise
from harness import context_of
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from sklearn_anneal import AnnealedPMF
from sklearn_anneal.families import Gaussian, backoff
from sklearn_anneal.kernels import matrix_factorization as kernels
from sklearn_anneal.kernels.simd.emitter import LANES

NOTHING = np.empty(0)
# Around the sizes of blocks and tiles, and rows without ratings in all places.
LENGTHS = [0, 1, 7, 8, 9, 0, 0, 63, 64, 65, 130, 200, 3, 0]
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}
all_dtypes = pytest.mark.parametrize("dtype", TOLERANCE)
all_biases = pytest.mark.parametrize("biases", [False, True])
SIZES = range(1, 21)
all_sizes = pytest.mark.parametrize("d", SIZES)
any_table = pairwise(d=SIZES, biases=(False, True), dtype=TOLERANCE)


def lower(matrices):
    """Lower triangles, row after row."""
    size = matrices.shape[-1]
    return np.stack(
        [matrices[..., i, j] for i in range(size) for j in range(i + 1)], axis=-1
    )  # fmt: skip


def gaussians(rng, n, d, biases):
    """Precisions (n, D, D) and natural means (n, D)."""
    size = d + biases
    a = rng.standard_normal((n, size, size + 3))
    precision = a @ a.swapaxes(1, 2) / (size + 3) + 0.3 * np.eye(size)
    return precision, rng.standard_normal((n, size))


def second_moments(mean, cov, biases):
    """E[g gᵀ] of g = (v, 1) or (v, 1, c), from the moments of (v) or (v, c)."""
    n, size = mean.shape
    d = size - biases
    place = [*range(d), *([d + 1] if biases else [])]
    second = np.zeros((n, d + 1 + biases, d + 1 + biases))
    inner = cov + mean[:, :, None] * mean[:, None, :]
    for a, i in enumerate(place):
        second[:, i, d] = second[:, d, i] = mean[:, a]
        for b, j in enumerate(place):
            second[:, i, j] = inner[:, a, b]
    second[:, d, d] = 1.0
    return second


def table_of(rng, n, d, biases, dtype):
    precision, natural_mean = gaussians(rng, n, d, biases)
    cov = np.linalg.inv(precision)
    mean = np.einsum("nij,nj->ni", cov, natural_mean)
    entries = lower(second_moments(mean, cov, biases))
    table = np.zeros((n, kernels.n_columns(d, biases)), dtype=dtype)
    table[:, : entries.shape[1]] = entries
    return table


def some_ratings(rng, n_columns, dtype, lengths=LENGTHS):
    """Columns, indptr, values; each row has its columns in order."""
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    columns = np.concatenate([np.sort(rng.choice(n_columns, n, replace=False)) for n in lengths])
    return columns.astype(np.int32), indptr, rng.normal(3.0, 1.0, indptr[-1]).astype(dtype)


def add_up(table, columns, indptr, values, weights, noise, center, d):
    n, width = len(indptr) - 1, table.shape[1]
    first = kernels.first_linear(d)
    n_noisy = 0 if len(noise) == 0 else n
    # The kernel must not depend on the former contents of the arrays.
    sums, linear, squares = (
        np.full(shape, np.nan) for shape in ((n, width), (n, width - first), n)
    )
    more, others = (
        np.full(shape, np.nan, table.dtype)
        for shape in ((n_noisy, width), (n_noisy, width - first))
    )
    kernels.add_ratings(
        table, columns, indptr, values, weights, noise.astype(table.dtype), center, first,
        sums, linear, squares, more, others,
    )  # fmt: skip
    return sums, linear, squares, more, others


def assert_close(found, expected, dtype, size=None):
    size = np.abs(expected).max() if size is None else size
    assert_allclose(found, expected, rtol=0, atol=TOLERANCE[dtype] * max(size, 1e-300))


@all_biases
@all_sizes
def test_sizes_of_tables(d, biases):
    size = d + 1 + biases
    width = kernels.n_columns(d, biases)
    assert width % LANES == 0 and 0 <= width - size * (size + 1) // 2 < LANES
    first = kernels.first_linear(d)
    # From here on the sums with ratings are read: at (1, v), after the d-th triangle.
    assert first % LANES == 0 and 0 <= d * (d + 1) // 2 - first < LANES


@all_sizes
def test_products_of_packed_matrices(d):
    rng = np.random.default_rng(d)
    matrices = rng.standard_normal((5, d, d))
    matrices += matrices.transpose(0, 2, 1)
    vectors, start = rng.standard_normal((2, 5, d))
    out = start.copy()
    kernels.add_matrix_products(lower(matrices), vectors, out)
    assert_allclose(out, start + np.einsum("nij,nj->ni", matrices, vectors), rtol=0, atol=1e-12)


def test_sums_of_rows_without_ratings_are_zeros():
    table = table_of(np.random.default_rng(0), 10, 2, True, np.float64)
    columns, values = np.zeros(0, np.int32), np.zeros(0)
    n, first = 3, kernels.first_linear(2)
    outputs = [np.full((n, table.shape[1]), np.nan), np.full((n, table.shape[1] - first), np.nan)]
    outputs += [np.full(n, np.nan), outputs[0].copy(), outputs[1].copy()]
    kernels.add_ratings(
        table, columns, np.zeros(n + 1, np.int64), values, values, values, 0.0, first, *outputs
    )
    for output in outputs:
        assert_array_equal(output, np.zeros_like(output))


@any_table
def test_sums_over_ratings(d, biases, dtype):
    """Of moments, and of ratings times moments; with weights, noise, both or none."""
    rng = np.random.default_rng(d)
    table = table_of(rng, 250, d, biases, dtype)
    columns, indptr, values = some_ratings(rng, 250, dtype)
    first, center = kernels.first_linear(d), 2.7
    y = values.astype(float) - center
    n = len(values)
    weights, noise = rng.uniform(0.1, 3.0, n), rng.normal(0.0, 2.0, n)
    for given_weights, given_noise in (
        (NOTHING, NOTHING), (weights, NOTHING), (NOTHING, noise), (weights, noise),
    ):  # fmt: skip
        found = add_up(table, columns, indptr, values, given_weights, given_noise, center, d)
        w = given_weights if len(given_weights) else np.ones(n)
        noisy = w * given_noise if len(given_noise) else None
        rows = table[columns].astype(float)
        for i in range(len(LENGTHS)):
            part = slice(indptr[i], indptr[i + 1])
            for factors, sums, linear in (
                (w, found[0], found[1]), *([] if noisy is None else [(noisy, found[3], found[4])]),
            ):  # fmt: skip
                # The terms of a sum cancel, so that its error is compared with their size.
                size = np.abs(factors[part]) @ np.abs(rows[part]).max(axis=1)
                assert_close(sums[i], factors[part] @ rows[part], dtype, size)
                size = np.abs(factors[part] * y[part]) @ np.abs(rows[part]).max(axis=1)
                expected = (factors[part] * y[part]) @ rows[part, first:]
                assert_close(linear[i], expected, dtype, size)
            assert found[2][i] == pytest.approx(w[part] @ y[part] ** 2, rel=TOLERANCE[dtype])
            if LENGTHS[i] == 0:
                assert not found[0][i].any() and not found[1][i].any() and found[2][i] == 0


@pytest.mark.parametrize("n_ratings", [0, 1, 8, 64, 65])
@all_dtypes
def test_nothing_behind_the_ratings_is_read(n_ratings, dtype, rng):
    """The last row of all, whose block is short, and no rows at all."""
    table = table_of(rng, 100, 3, True, dtype)
    columns, indptr, values = some_ratings(rng, 100, dtype, [n_ratings])
    found = add_up(table, columns, indptr, values, NOTHING, NOTHING, 0.0, 3)
    assert_close(found[0][0], table[columns].astype(float).sum(axis=0), dtype, n_ratings * 10.0)
    empty = add_up(table, columns[:0], indptr[:1], values[:0], NOTHING, NOTHING, 0.0, 3)
    assert all(len(part) == 0 for part in empty)


@any_table
def test_squared_errors(d, biases, dtype):
    """Σ w E[(y − μ − u·v − b − c)²] from sums, against the sum over ratings."""
    rng = np.random.default_rng(100 + d)
    table = table_of(rng, 250, d, biases, dtype)
    own = table_of(rng, len(LENGTHS), d, biases, dtype)
    columns, indptr, values = some_ratings(rng, 250, dtype)
    weights = rng.uniform(0.1, 3.0, len(values))
    sums = add_up(table, columns, indptr, values, weights, NOTHING, 2.7, d)[:3]
    found = np.full(len(LENGTHS), np.nan)
    first = kernels.first_linear(d)
    kernels.squared_errors(own, *sums, d, int(biases), first, found)

    def matrices(rows):
        size = d + 1 + biases
        i, j = np.tril_indices(size)
        second = np.zeros((len(rows), size, size))
        second[:, i, j] = second[:, j, i] = rows[:, : len(i)]
        return second

    # The coefficients of (v, 1, c) are (u, b, 1); (u, 1, b) is stored.
    order = [*range(d), d + 1, d] if biases else list(range(d))
    mine = matrices(own)[:, order][:, :, order]
    met = matrices(table)[:, : len(order), : len(order)]
    of_one = [*range(d), d + 1, d] if biases else list(range(d))
    mean = matrices(own)[:, d][:, of_one]
    theirs = matrices(table)[:, d][:, : len(order)]
    for i in range(len(LENGTHS)):
        part = slice(indptr[i], indptr[i + 1])
        j = columns[part]
        y = values[part].astype(float) - 2.7
        f = theirs[j] @ mean[i]
        f_squared = np.einsum("ab,nab->n", mine[i], met[j])
        terms = y**2 - 2 * y * f + f_squared
        size = weights[part] @ (y**2 + np.abs(2 * y * f) + np.abs(mine[i]).sum() * 50.0)
        assert abs(found[i] - weights[part] @ terms) <= TOLERANCE[dtype] * size
        assert (terms > -1e-3).all()


@any_table
def test_moments(d, biases, dtype):
    rng = np.random.default_rng(200 + d)
    for n in (0, 1, 7, 8, 9, 30):
        precision, natural_mean = gaussians(rng, n, d, biases)
        size = d + biases
        table = np.full((n, kernels.n_columns(d, biases)), np.nan, dtype=dtype)
        mean, log_det = np.full((n, size), np.nan), np.full(n, np.nan)
        squares, packed = np.full((n, 2), np.nan), np.ascontiguousarray(lower(precision))
        kernels.moments(table, packed, natural_mean, d, int(biases), mean, log_det, squares)
        if n == 0:
            continue
        cov = np.linalg.inv(precision)
        expected = np.einsum("nij,nj->ni", cov, natural_mean)
        assert_close(mean, expected, "float64")
        assert_close(log_det, np.linalg.slogdet(precision)[1], "float64", 10.0 * size)
        second = second_moments(expected, cov, biases)
        entries = lower(second)
        assert_close(table[:, : entries.shape[1]], entries, dtype)
        assert not table[:, entries.shape[1] :].any()
        assert_close(squares[:, 0], np.trace(second[:, :d, :d], axis1=1, axis2=2), "float64")
        if biases:
            assert_close(squares[:, 1], second[:, d + 1, d + 1], "float64")
        else:
            assert not squares[:, 1].any()


@pytest.mark.parametrize("bad", [0, 3, 8, 12])
def test_indefinite_precision_leaves_nan(bad, rng):
    precision, natural_mean = gaussians(rng, 13, 3, False)
    precision[bad] -= 10.0 * np.eye(3)
    log_det = np.zeros(13)
    kernels.moments(
        np.empty((13, kernels.n_columns(3, False))), np.ascontiguousarray(lower(precision)),
        natural_mean, 3, 0, np.empty((13, 3)), log_det, np.empty((13, 2)),
    )  # fmt: skip
    assert_array_equal(np.isnan(log_det), np.arange(13) == bad)


@in_turn(d=SIZES, margin=(0.0, 0.2, 0.9), dtype=TOLERANCE)
def test_back_off(d, margin, dtype):
    """Of each row the largest share 1, ½, … , 2⁻¹², 0 of a share that the family calls valid."""
    rng = np.random.default_rng(300 + d)
    family, n = Gaussian("packed"), 70
    clean = {"precision": np.ascontiguousarray(lower(gaussians(rng, n, d, False)[0]))}
    clean["natural_mean"] = rng.standard_normal((n, d))
    scale = 10.0 ** rng.uniform(-2, 3, (n, 1))
    deviation = {key: scale * rng.standard_normal(value.shape) for key, value in clean.items()}
    deviation["precision"][0] = np.nan
    deviation["precision"][1, -1] = np.inf
    deviation["natural_mean"][2, 0] = -np.inf
    deviation["precision"][3] = 0.0
    deviation = {key: value.astype(dtype) for key, value in deviation.items()}
    found = {key: value.copy() for key, value in clean.items()}
    kernels.back_off(
        deviation["precision"], deviation["natural_mean"], 0.7, margin, d, 12,
        found["precision"], found["natural_mean"],
    )  # fmt: skip

    def valid(natural):
        return family.valid(natural, clean, margin)

    expected = backoff(clean, deviation, valid, 0.7)
    for key in clean:
        assert_allclose(found[key], expected[key], rtol=1e-14, atol=1e-14)
        assert_array_equal(found[key][:3], clean[key][:3])
    whole = clean["natural_mean"] + 0.7 * deviation["natural_mean"].astype(np.float64)
    whole = np.isclose(found["natural_mean"], whole, rtol=1e-12, atol=0).all(axis=1)
    assert whole[3] and 4 < whole.sum() < n - 10


def test_back_off_of_badly_scaled_rows():
    """The smallest eigenvalue of a matrix whose diagonal spans eight decades."""
    units = np.array([1e-2, 1.0, 1e2])
    matrix = units[:, None] * (np.eye(3) + 0.4) * units
    least = np.linalg.eigvalsh(matrix)[0]
    clean = lower(matrix[None])
    for share, kept in ((0.25, True), (0.15, False)):
        deviation = lower(-(1 - share) * least * np.eye(3)[None])
        precision, zero = clean.copy(), np.zeros((1, 3))
        kernels.back_off(deviation, zero, 1.0, 0.2, 3, 12, precision, zero.copy())
        assert (precision == clean + deviation).all() == kept


# Layouts, through the estimator


def fitted(X, y=None, n_components=2, **params):
    settings = {"annealing": "none", "max_iter": 3, "random_state": 0, "tol": 0.0}
    return AnnealedPMF(n_components, **(settings | params)).fit(X, y)


def small_matrix(rng):
    Y = rng.normal(3.0, 1.0, (20, 9))
    Y[rng.random(Y.shape) < 0.5] = np.nan
    Y[0], Y[7], Y[19], Y[:, 4] = np.nan, np.nan, np.nan, np.nan
    return Y


def layouts(Y, path):
    strided = np.full((40, 18), 9.0)[::2, ::2]
    strided[:] = Y
    read_only = Y.copy()
    read_only.flags.writeable = False
    np.save(path, Y)
    yield from (np.asfortranarray(Y), strided, Y[::-1][::-1], read_only)
    yield np.load(path, mmap_mode="r")


@pytest.mark.parametrize("name", ["none", "svi_plus", "local_tempering"])
def test_layouts_of_matrices(name, rng, tmp_path):
    Y = small_matrix(rng)
    expected = fitted(Y, annealing=name)
    assert np.isfinite(expected.lower_bounds_).all()
    for X in layouts(Y, tmp_path / "ratings.npy"):
        est = fitted(X, annealing=name)
        assert_array_equal(est.components_, expected.components_)
        assert_array_equal(est.transform(X), expected.transform(Y))
        assert_array_equal(est.recommend(X, n=3), expected.recommend(Y, n=3))


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_layouts_of_sparse_matrices(dtype, index, rng):
    Y = small_matrix(rng).astype(dtype)
    rows, columns = np.nonzero(~np.isnan(Y))
    expected = fitted(Y)
    X = csr_array((Y[rows, columns], (rows, columns)), shape=Y.shape)
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    for array in (X.data, X.indices, X.indptr):
        array.flags.writeable = False
    assert_array_equal(fitted(X).components_, expected.components_)
    assert context_of(fitted(X)).model.dtype == dtype


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint16])
def test_layouts_of_pairs(kind, rng, tmp_path):
    Y = small_matrix(rng)
    X = np.argwhere(~np.isnan(Y))
    y = Y[tuple(X.T)]
    expected = fitted(X, y, input="pairs")
    np.save(tmp_path / "y.npy", y)
    np.save(tmp_path / "X.npy", X.astype(kind))
    mapped_X, mapped_y = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "Xy")
    for ids in (np.asfortranarray(mapped_X), np.repeat(mapped_X, 3, axis=0)[::3], mapped_X):
        for ratings in (mapped_y, np.repeat(y, 2)[::2], y):
            assert ids.dtype == kind
            found = fitted(ids, ratings, input="pairs")
            assert_array_equal(found.components_, expected.components_)
            assert_array_equal(found.predict(ids), expected.predict(X))
