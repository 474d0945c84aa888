"""Sums over ratings and solutions of small systems, for matrix factorisation.

The update of a row of one side (a user) depends on the rows of the other side (the rated items)
only through their second moments. Let g = (v, 1) or, with biases, g = (v, 1, c). The row
``table[j]`` holds the lower triangle of E[g gᵀ] row after row, (0, 0), (1, 0), (1, 1), (2, 0), …,
and zeros up to a multiple of ``LANES`` columns. A weighted sum of such rows is all that the
conjugate update of a user needs; with the user's own moments it also gives the expected squared
error of the user's ratings.
"""

from __future__ import annotations

import numpy as np

from ._arrays import matrix, vector
from ._compile import helper, kernel
from ._math import log
from .simd.emitter import LANES
from .simd.products import add_products, add_rows, add_rows_twice, subtract_products

# Ratings are added up in tiles, in the precision of the table. A tile has at most the first number
# of ratings, a multiple of ``LANES``, and its rows have at most the second number of bytes, unless
# this would leave fewer than ``LANES`` ratings. The rows of the next tile are prefetched meanwhile;
# these limits are chosen so that both tiles stay in the first-level cache.
_TILE = 32
_BYTES = 12_288


def n_columns(n_factors: int, biases: bool) -> int:
    """Number of columns of a table of second moments."""
    size = n_factors + 1 + biases
    return -(-(size * (size + 1) // 2) // LANES) * LANES


def first_linear(n_factors: int) -> int:
    """The first column, a multiple of ``LANES``, for which sums weighted by ratings are needed."""
    return n_factors * (n_factors + 1) // 2 // LANES * LANES


@kernel("rows index pointer values vector values float int out2 out2 out1 out_rows out_rows")
def add_ratings(
    table,
    columns,
    indptr,
    values,
    weights,
    noise,
    center,
    first,
    sums,
    linear,
    squares,
    more,
    others,
):
    """Sum moments, ratings times moments, and squared ratings over the ratings of each row.

    The results are ``sums``, ``linear`` and ``squares``. ``weights`` has one factor per rating; if
    it is empty, all are 1. ``noise`` has a further factor per rating or is empty. It does not
    change these results; ``more`` and ``others`` receive ``sums`` and ``linear`` with the noise, in
    the precision of the table.
    """
    # The first half has the positions of the rows of a tile, the second half those of the next.
    starts = vector(2 * _TILE, np.int64)
    factors = vector(_TILE, table.dtype)
    for j in range(_TILE):
        factors[j] = 1.0
    products = vector(_TILE, table.dtype)
    noisy_factors = vector(_TILE, table.dtype)
    noisy_products = vector(_TILE, table.dtype)
    lanes = vector(LANES, np.float64)
    width = table.shape[1]
    largest = max(LANES, min(_TILE, _BYTES // (width * table.itemsize)))
    middle = table.dtype.type(center)
    weighted = weights.shape[0] > 0
    # ``more`` decides and not ``noise``, which is empty too if there are no ratings. The noisy
    # sums, which are 0 then, have to be written all the same.
    noisy = more.shape[0] > 0
    for i in range(indptr.shape[0] - 1):
        total = sums[i]
        total_linear = linear[i]
        total[:] = 0.0
        total_linear[:] = 0.0
        lanes[:] = 0.0
        if noisy:
            more[i, :] = table.dtype.type(0.0)
            others[i, :] = table.dtype.type(0.0)
        start = indptr[i]
        stop = indptr[i + 1]
        while start < stop:
            m = min(largest, stop - start)
            # Views are used, because numba lets an index like start + j wrap around if it is
            # negative, and this check keeps the compiler from vectorising the loop.
            near = columns[start : min(start + 2 * m, columns.shape[0])]
            for j in range(near.shape[0]):
                starts[j] = near[j] * width
            for j in range(near.shape[0], 2 * m):
                starts[j] = starts[0]
            ratings = values[start : start + m]
            for j in range(ratings.shape[0]):
                products[j] = ratings[j] - middle
            products[m:] = table.dtype.type(0.0)
            if weighted:
                own = weights[start : start + m]
                for j in range(own.shape[0]):
                    factors[j] = own[j]
            for j in range(0, m, LANES):
                for s in range(LANES):
                    rating = np.float64(products[j + s])
                    lanes[s] += np.float64(factors[j + s]) * rating * rating
            if weighted:
                for j in range(m):
                    products[j] *= factors[j]
            if noisy:
                group_noise = noise[start : start + m]
                for j in range(group_noise.shape[0]):
                    noisy_factors[j] = group_noise[j] * factors[j]
                    noisy_products[j] = group_noise[j] * products[j]
                add_rows_twice(
                    table, starts, m, first, factors, products, total, total_linear,
                    noisy_factors, noisy_products, more[i], others[i],
                )  # fmt: skip
            else:
                add_rows(table, starts, m, first, factors, products, total, total_linear)
            start += m
        square = 0.0
        for s in range(LANES):
            square += lanes[s]
        squares[i] = square


@kernel("rows rows vector int int int out_rows out_rows")
def statistics(sums, linear, factors, n_factors, biases, first, precision, natural_mean):
    """Turn the sums over the ratings of each row into additions to its natural parameters.

    They are multiplied by the row's factor.
    """
    size = n_factors + biases
    n_packed = size * (size + 1) // 2
    at_one = n_factors * (n_factors + 1) // 2
    for i in range(sums.shape[0]):
        factor = sums.dtype.type(factors[i])
        # Views are used for the same reason as above.
        total, out = sums[i, :n_packed], precision[i]
        for k in range(out.shape[0]):
            out[k] = factor * total[k]
        product, out = linear[i, at_one - first : at_one - first + size], natural_mean[i]
        if biases:
            met = sums[i, at_one + size : at_one + 2 * size]
            for k in range(out.shape[0]):
                out[k] = factor * (product[k] - met[k])
        else:
            for k in range(out.shape[0]):
                out[k] = factor * product[k]


@kernel("rows matrix matrix vector int int int out1")
def squared_errors(own, sums, linear, squares, n_factors, biases, first, errors):
    """Σ w E[(y − μ − f)²] over the ratings of each row, given the row's own moments.

    f = u·v + b + c is linear in g = (v, 1, c), with coefficients (u, b, 1). If the moments are
    those of the row times a precision, so are the errors.
    """
    d = n_factors
    at_one = d * (d + 1) // 2
    at_bias = at_one + d + 1
    for i in range(own.shape[0]):
        mine = own[i]
        one = np.float64(mine[at_one + d])
        total = sums[i]
        second = 0.0
        product = 0.0
        k = 0
        for r in range(d):
            for _ in range(r):
                second += 2.0 * np.float64(mine[k]) * total[k]
                k += 1
            second += np.float64(mine[k]) * total[k]
            k += 1
            product += np.float64(mine[at_one + r]) * linear[i, at_one + r - first]
        if biases:
            for c in range(d):
                second += 2.0 * np.float64(mine[at_bias + c]) * total[at_one + c]
                second += 2.0 * np.float64(mine[at_one + c]) * total[at_bias + c]
            bias = np.float64(mine[at_bias + d])
            second += np.float64(mine[at_bias + d + 1]) * total[at_one + d]
            second += 2.0 * bias * total[at_bias + d] + one * total[at_bias + d + 1]
            product += bias * linear[i, at_one + d - first] + one * linear[i, at_bias + d - first]
        errors[i] = one * squares[i] - 2.0 * product + second


@helper
def _factorize(a, size, roots):
    """Overwrite matrices with the lower triangles of their Cholesky factors.

    The reciprocals of the diagonals are returned in ``roots``.
    """
    # The order is column after column, because the products of the rows of one column do not wait
    # for each other.
    for j in range(size):
        other = j * (j + 1) // 2
        for i in range(j, size):
            row = i * (i + 1) // 2
            subtract_products(a, row, a, other, j, a, row + j)
            here = (row + j) * LANES
            for s in range(LANES):
                if i == j:
                    a[here + s] = np.sqrt(a[here + s])
                    roots[j * LANES + s] = 1.0 / a[here + s]
                else:
                    a[here + s] *= roots[j * LANES + s]


@helper
def _invert_factor(a, size, roots, inverse):
    """Invert lower triangles; the result has ``size`` groups for each column."""
    inverse[:] = 0.0
    for i in range(size):
        row = i * (i + 1) // 2
        for s in range(LANES):
            inverse[(i * size + i) * LANES + s] = roots[i * LANES + s]
        for j in range(i):
            column = j * size
            subtract_products(a, row + j, inverse, column + j, i - j, inverse, column + i)
            here = (column + i) * LANES
            for s in range(LANES):
                inverse[here + s] *= roots[i * LANES + s]


@helper
def _invert(a, size, roots, inverse):
    """Overwrite matrices with the lower triangles of their inverses.

    The inverse of a matrix is MᵀM, where M is the inverse of its Cholesky factor.
    """
    _factorize(a, size, roots)
    _invert_factor(a, size, roots, inverse)
    a[: size * (size + 1) // 2 * LANES] = 0.0
    for r in range(size):
        row = r * (r + 1) // 2
        for c in range(r + 1):
            add_products(inverse, r * size + r, inverse, c * size + r, size - r, a, row + c)


@helper
def _gather(source, start, m, out):
    """Copy up to ``LANES`` rows of an array into the lanes; the first row fills missing ones."""
    for k in range(source.shape[1]):
        for s in range(LANES):
            out[k * LANES + s] = source[start + (s if s < m else 0), k]


@kernel("out_rows matrix matrix int int out2 out1 out2")
def moments(table, precision, natural_mean, n_factors, biases, mean, log_det, squares):
    """Means, log-determinants of precisions, and tables of second moments of Gaussian rows.

    ``squares`` receives E‖v‖² and E[c²] of each row. If a precision is not positive definite, its
    ``log_det`` is NaN.
    """
    d = n_factors
    size = d + biases
    n_packed = size * (size + 1) // 2
    a = vector(n_packed * LANES, np.float64)
    h = vector(size * LANES, np.float64)
    roots = vector(size * LANES, np.float64)
    inverse = vector(size * size * LANES, np.float64)
    m = vector(size * LANES, np.float64)
    logs = vector(LANES, np.float64)
    at_one = d * (d + 1) // 2
    at_bias = at_one + d + 1
    n = precision.shape[0]
    for start in range(0, n, LANES):
        count = min(LANES, n - start)
        _gather(precision, start, count, a)
        _gather(natural_mean, start, count, h)
        _invert(a, size, roots, inverse)
        logs[:] = 0.0
        for i in range(size):
            for s in range(LANES):
                logs[s] -= log(roots[i * LANES + s])
        last = roots[(size - 1) * LANES :]
        for s in range(count):
            # If a pivot was not positive, the last root is not finite; adding 0 times this root
            # then makes the result NaN.
            log_det[start + s] = 2.0 * logs[s] + 0.0 * last[s]
        for i in range(size):
            for s in range(LANES):
                m[i * LANES + s] = 0.0
        for r in range(size):
            for c in range(r + 1):
                here = (r * (r + 1) // 2 + c) * LANES
                for s in range(LANES):
                    m[r * LANES + s] += a[here + s] * h[c * LANES + s]
                if c < r:
                    for s in range(LANES):
                        m[c * LANES + s] += a[here + s] * h[r * LANES + s]
        for r in range(size):
            for c in range(r + 1):
                here = (r * (r + 1) // 2 + c) * LANES
                for s in range(LANES):
                    a[here + s] += m[r * LANES + s] * m[c * LANES + s]
        for s in range(count):
            i = start + s
            row = table[i]
            for r in range(size):
                mean[i, r] = m[r * LANES + s]
            for k in range(at_one):
                row[k] = a[k * LANES + s]
            square = 0.0
            for r in range(d):
                square += a[(r * (r + 1) // 2 + r) * LANES + s]
                row[at_one + r] = m[r * LANES + s]
            row[at_one + d] = 1.0
            squares[i, 0] = square
            squares[i, 1] = 0.0
            k = at_one + d + 1
            if biases:
                for c in range(d):
                    row[at_bias + c] = a[(at_one + c) * LANES + s]
                row[at_bias + d] = m[d * LANES + s]
                square = a[(at_one + d) * LANES + s]
                row[at_bias + d + 1] = square
                squares[i, 1] = square
                k = at_bias + d + 2
            for j in range(k, row.shape[0]):
                row[j] = 0.0


@kernel("matrix matrix matrix out2 out2", dtypes=("float64",))
def draws(precision, natural_mean, noise, mean, deviation):
    """Means of Gaussian rows, and deviations from them that are drawn with standard normal noise.

    With a precision matrix L Lᵀ they are L⁻ᵀ L⁻¹ h and L⁻ᵀ ε. They are NaN, or infinite, if a
    precision is not positive definite.
    """
    n, n_packed = precision.shape
    size = natural_mean.shape[1]
    a = vector(n_packed * LANES, np.float64)
    h = vector(size * LANES, np.float64)
    e = vector(size * LANES, np.float64)
    roots = vector(size * LANES, np.float64)
    for start in range(0, n, LANES):
        count = min(LANES, n - start)
        _gather(precision, start, count, a)
        _gather(natural_mean, start, count, h)
        _gather(noise, start, count, e)
        _factorize(a, size, roots)
        for i in range(size):
            subtract_products(a, i * (i + 1) // 2, h, 0, i, h, i)
            for s in range(LANES):
                h[i * LANES + s] *= roots[i * LANES + s]
        for i in range(size - 1, -1, -1):
            for s in range(LANES):
                h[i * LANES + s] *= roots[i * LANES + s]
                e[i * LANES + s] *= roots[i * LANES + s]
            for c in range(i):
                here = (i * (i + 1) // 2 + c) * LANES
                for s in range(LANES):
                    h[c * LANES + s] -= a[here + s] * h[i * LANES + s]
                    e[c * LANES + s] -= a[here + s] * e[i * LANES + s]
        for s in range(count):
            for i in range(size):
                mean[start + s, i] = h[i * LANES + s]
                deviation[start + s, i] = e[i * LANES + s]


@kernel("matrix matrix out2", dtypes=("float64",))
def add_matrix_products(matrices, vectors, out):
    """``out[i] += matrices[i] @ vectors[i]`` for symmetric matrices, given as lower triangles."""
    size = vectors.shape[1]
    for i in range(matrices.shape[0]):
        k = 0
        for r in range(size):
            value = 0.0
            for c in range(r):
                value += matrices[i, k] * vectors[i, c]
                out[i, c] += matrices[i, k] * vectors[i, r]
                k += 1
            out[i, r] += value + matrices[i, k] * vectors[i, r]
            k += 1


@kernel("vector pointer index vector vector matrix out2", dtypes=("float64",))
def share_raters(shares, indptr, columns, entries, users, x, out):
    """Write ``A W Aᵀ x``, where A has the share of each user in each item, and W users' weights.

    The share is that of the item, times the weight of the rating if ``entries`` are not empty.
    """
    size = x.shape[1]
    weighted = entries.shape[0] > 0
    total = vector(size, np.float64)
    out[:] = 0.0
    for i in range(users.shape[0]):
        total[:] = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            factor = shares[columns[e]]
            if weighted:
                factor *= entries[e]
            row = x[columns[e]]
            for d in range(size):
                total[d] += factor * row[d]
        for e in range(indptr[i], indptr[i + 1]):
            factor = users[i] * shares[columns[e]]
            if weighted:
                factor *= entries[e]
            row = out[columns[e]]
            for d in range(size):
                row[d] += factor * total[d]


@helper
def _copy(group, out):
    for s in range(LANES):
        out[s] = group[s]


@helper
def _tridiagonalize(a, size, diagonal, squares, v, left, right):
    """Reduce full symmetric matrices to tridiagonal ones by Householder's method.

    The results are the diagonals, and the squares of the entries beside them. Rows of all arrays
    are groups of ``LANES``; ``left`` and ``right`` have two rows for each row of ``v``.
    """
    norm = vector(LANES, np.float64)
    factor = vector(LANES, np.float64)
    overlap = vector(LANES, np.float64)
    for k in range(size - 1):
        norm[:] = 0.0
        for i in range(k + 1, size):
            entry, copy = a[i * size + k], v[i]
            for s in range(LANES):
                copy[s] = entry[s]
                norm[s] += entry[s] * entry[s]
        first, square = v[k + 1], squares[k]
        for s in range(LANES):
            root = np.sqrt(norm[s])
            alpha = -root if first[s] > 0.0 else root
            h = norm[s] - first[s] * alpha
            first[s] -= alpha
            square[s] = norm[s]
            # A column that is zero, or almost zero, is left as it is.
            factor[s] = 1.0 / h if h > 1e-290 else 0.0
            overlap[s] = 0.0
        for i in range(k + 1, size):
            product, mine = right[2 * i], v[i]
            product[:] = 0.0
            add_products(a, i * size + k + 1, v, k + 1, size - k - 1, right, 2 * i)
            for s in range(LANES):
                product[s] *= factor[s]
                overlap[s] += product[s] * mine[s]
        for s in range(LANES):
            overlap[s] *= 0.5 * factor[s]
        # v pᵀ + p vᵀ is subtracted from a; each entry of it is a product of two pairs.
        for i in range(k + 1, size):
            product, mine = right[2 * i], v[i]
            for s in range(LANES):
                product[s] -= overlap[s] * mine[s]
            _copy(mine, right[2 * i + 1])
            _copy(mine, left[2 * i])
            _copy(product, left[2 * i + 1])
        for i in range(k + 1, size):
            for j in range(k + 1, size):
                subtract_products(left, 2 * i, right, 2 * j, 2, a, i * size + j)
    for i in range(size):
        _copy(a[i * size + i], diagonal[i])


@helper
def _smallest_eigenvalues(packed, size, a, diagonal, squares, v, left, right, least):
    """The smallest eigenvalues of positive definite matrices; 0 if a matrix is not."""
    for i in range(size):
        for j in range(i + 1):
            entry = packed[i * (i + 1) // 2 + j]
            _copy(entry, a[i * size + j])
            _copy(entry, a[j * size + i])
    _tridiagonalize(a, size, diagonal, squares, v, left, right)
    # Laguerre's method from below never steps beyond the smallest eigenvalue. With λ the
    # eigenvalues of the matrix and x the current value, it needs Σ 1 / (λ - x) and Σ 1 / (λ - x)²,
    # which follow from the pivots q of the matrix minus x I and their derivatives.
    pivot = vector(LANES, np.float64)
    slope = vector(LANES, np.float64)
    curvature = vector(LANES, np.float64)
    first = vector(LANES, np.float64)
    second = vector(LANES, np.float64)
    lowest = vector(LANES, np.float64)
    least[:] = 0.0
    for _ in range(100):
        lowest[:] = np.inf
        first[:] = 0.0
        second[:] = 0.0
        for i in range(size):
            entry, square = diagonal[i], squares[max(i - 1, 0)]
            for s in range(LANES):
                pull = 0.0
                bend = 0.0
                q = entry[s] - least[s]
                if i > 0:
                    pull = square[s] / pivot[s]
                    q -= pull
                    bend = pull * (curvature[s] - 2.0 * slope[s] * slope[s])
                    pull *= slope[s]
                inverse = 1.0 / q
                pivot[s] = q
                slope[s] = (pull - 1.0) * inverse
                curvature[s] = bend * inverse
                lowest[s] = min(lowest[s], q)
                first[s] -= slope[s]
                second[s] += slope[s] * slope[s] - curvature[s]
        going = False
        for s in range(LANES):
            spread = (size - 1.0) * (size * second[s] - first[s] * first[s])
            step = size / (first[s] + np.sqrt(max(spread, 0.0)))
            step = step if lowest[s] > 0.0 else 0.0
            least[s] += step
            going = going or step > 1e-12 * least[s]
        if not going:
            break


@helper
def _subtract_and_factorize(matrices, size, margin, least, roots):
    """Subtract ``margin * least`` from the diagonals of matrices and factorise the results."""
    for i in range(size):
        diagonal = (i * (i + 1) // 2 + i) * LANES
        for s in range(LANES):
            matrices[diagonal + s] -= margin * least[s]
    _factorize(matrices, size, roots)


@helper
def _all_positive(roots, size, out):
    """Mark the matrices that are positive definite.

    In others the roots are NaN or infinite from the first pivot on that is not positive.
    """
    out[:] = True
    for i in range(size):
        for s in range(LANES):
            out[s] = out[s] and 0.0 < roots[i * LANES + s] < np.inf


@helper
def _is_any_below(x, y):
    found = False
    for s in range(LANES):
        found = found or x[s] < y[s]
    return found


@helper
def _move(deviation, share, out):
    for k in range(out.shape[0]):
        out[k] += share * np.float64(deviation[k])


@kernel("rows rows float float int int out2 out2")
def back_off(deviation, deviation_mean, largest, margin, size, n_halvings, precision, mean):
    """Move rows by the largest share of a deviation that leaves them in their domain.

    The shares that are tried are ``largest`` times 1, 1/2, 1/4, … and, after ``n_halvings``, 0.
    The new precision must be positive definite, and its smallest eigenvalue must be at least
    ``margin`` times the old one. The natural parameters ``precision`` and ``mean`` are changed in
    place.
    """
    n, n_packed = precision.shape
    matrices = vector(n_packed * LANES, np.float64)
    roots = vector(size * LANES, np.float64)
    least = vector(LANES, np.float64)
    inside = vector(LANES, np.bool_)
    rest = vector(n, np.int64)
    n_rest = 0
    for start in range(0, n, LANES):
        count = min(LANES, n - start)
        for s in range(LANES):
            row = start + (s if s < count else 0)
            here, change = precision[row], deviation[row]
            for k in range(n_packed):
                matrices[k * LANES + s] = here[k] + largest * np.float64(change[k])
            # The smallest entry of the diagonal is an upper limit of the smallest eigenvalue and
            # needs no iteration. A row that passes the test with it would also pass with the
            # eigenvalue; only the others are examined further below.
            least[s] = np.inf
            for i in range(size):
                least[s] = min(least[s], here[i * (i + 1) // 2 + i])
        _subtract_and_factorize(matrices, size, margin, least, roots)
        _all_positive(roots, size, inside)
        for s in range(count):
            row = start + s
            finite = True
            for i in range(size):
                finite = finite and np.isfinite(deviation_mean[row, i])
            if finite and inside[s]:
                _move(deviation[row], largest, precision[row])
                _move(deviation_mean[row], largest, mean[row])
            elif finite:
                rest[n_rest] = row
                n_rest += 1
    clean = matrix(n_packed, LANES, np.float64)
    changes = matrix(n_packed, LANES, np.float64)
    a = matrix(size * size, LANES, np.float64)
    diagonal = matrix(size, LANES, np.float64)
    squares = matrix(size, LANES, np.float64)
    v = matrix(size, LANES, np.float64)
    pairs = matrix(2 * size, LANES, np.float64), matrix(2 * size, LANES, np.float64)
    share = vector(LANES, np.float64)
    fewest = vector(LANES, np.int64)
    most = vector(LANES, np.int64)
    for start in range(0, n_rest, LANES):
        count = min(LANES, n_rest - start)
        for s in range(LANES):
            row = rest[start + (s if s < count else 0)]
            here, change = precision[row], deviation[row]
            for k in range(n_packed):
                clean[k, s] = here[k]
                changes[k, s] = np.float64(change[k])
        least[:] = 0.0
        if margin > 0.0:
            _smallest_eigenvalues(clean, size, a, diagonal, squares, v, *pairs, least)
        # Domains are convex, so that half of a step that stays inside stays inside too, and the
        # number of halvings can be found by bisection. ``n_halvings + 1`` stands for no move.
        fewest[:] = 0
        most[:] = n_halvings + 1
        while _is_any_below(fewest, most):
            for s in range(LANES):
                share[s] = largest * 0.5 ** ((fewest[s] + most[s]) // 2)
            for k in range(n_packed):
                entry, change = clean[k], changes[k]
                for s in range(LANES):
                    matrices[k * LANES + s] = entry[s] + share[s] * change[s]
            _subtract_and_factorize(matrices, size, margin, least, roots)
            _all_positive(roots, size, inside)
            for s in range(LANES):
                middle = (fewest[s] + most[s]) // 2
                if fewest[s] == most[s]:
                    continue
                if inside[s]:
                    most[s] = middle
                else:
                    fewest[s] = middle + 1
        for s in range(count):
            row = rest[start + s]
            if most[s] <= n_halvings:
                _move(deviation[row], largest * 0.5 ** most[s], precision[row])
                _move(deviation_mean[row], largest * 0.5 ** most[s], mean[row])
