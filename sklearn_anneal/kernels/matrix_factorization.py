"""Sums over ratings and solutions of small systems, for matrix factorisation.

A row of one side (a user) meets a rating's column on the other side (an item) through second
moments: with g = (v, 1) or, with biases, g = (v, 1, c), the row ``table[j]`` has the lower triangle
of E[g gᵀ] row after row, (0, 0), (1, 0), (1, 1), (2, 0), …, and zeros up to a multiple of ``LANES``
columns. A weighted sum of such rows has all that the conjugate update of a row needs, and, with the
row's own moments, the expected squared error of its ratings.
"""

from __future__ import annotations

import numpy as np

from ._compile import helper, kernel
from ._simd import LANES, ROWS, add_products, add_rows, add_rows_twice, subtract_products

# Ratings whose factors are found together, a multiple of ``ROWS``.
_TILE = 64


def n_columns(n_factors: int, biases: bool) -> int:
    """Columns of a table of second moments."""
    size = n_factors + 1 + biases
    return -(-(size * (size + 1) // 2) // LANES) * LANES


def first_linear(n_factors: int) -> int:
    """The column, a multiple of ``LANES``, from which on sums weighted by ratings are needed."""
    return n_factors * (n_factors + 1) // 2 // LANES * LANES


@kernel("rows index pointer values vector vector float int out2 out2 out1 out_rows out_rows")
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
    """Sums over the ratings of each row: of moments, of ratings times moments, of squares.

    ``weights`` and ``noise`` have one factor per rating, or nothing for ones. Where there is
    noise, ``more`` and ``others`` get what ``sums`` and ``linear`` would be with it, in the
    precision of the table: rounding is far below noise, but for the faintest noise of rows with
    very many ratings.
    """
    # A tile of ratings, and the rows of the next block after them.
    numbers = np.empty(_TILE + ROWS, dtype=np.int64)
    factors = np.ones(_TILE, dtype=table.dtype)
    products = np.empty(_TILE, dtype=table.dtype)
    loud_factors = np.empty(_TILE, dtype=table.dtype)
    loud_products = np.empty(_TILE, dtype=table.dtype)
    lanes = np.empty(LANES)
    weighted = weights.shape[0] > 0
    # Without ratings there are no factors, but sums all the same.
    noisy = more.shape[0] > 0
    n_ratings = columns.shape[0]
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
            m = min(_TILE, stop - start)
            n = (m + ROWS - 1) // ROWS * ROWS
            known = min(n + ROWS, n_ratings - start)
            for j in range(known):
                numbers[j] = columns[start + j]
            for j in range(known, n + ROWS):
                numbers[j] = numbers[0]
            for j in range(m):
                products[j] = values[start + j] - table.dtype.type(center)
            for j in range(m, n):
                products[j] = 0.0
                factors[j] = 0.0
            if weighted:
                for j in range(m):
                    factors[j] = weights[start + j]
            for j in range(0, n, LANES):
                for s in range(LANES):
                    rating = np.float64(products[j + s])
                    lanes[s] += np.float64(factors[j + s]) * rating * rating
            if weighted:
                for j in range(n):
                    products[j] *= factors[j]
            if noisy:
                for j in range(m):
                    loud = table.dtype.type(noise[start + j])
                    loud_factors[j] = loud * factors[j]
                    loud_products[j] = loud * products[j]
                for j in range(m, n):
                    loud_factors[j] = 0.0
                    loud_products[j] = 0.0
            for j in range(0, n, ROWS):
                if noisy:
                    add_rows_twice(
                        table,
                        numbers,
                        factors,
                        products,
                        total,
                        total_linear,
                        loud_factors,
                        loud_products,
                        more[i],
                        others[i],
                        j,
                        first,
                    )
                else:
                    add_rows(table, numbers, factors, products, total, total_linear, j, first)
            if not weighted:
                for j in range(m, n):
                    factors[j] = 1.0
            start += m
        squares[i] = lanes.sum()


@kernel("rows matrix matrix vector int int int out1")
def squared_errors(own, sums, linear, squares, n_factors, biases, first, errors):
    """Σ w E[(y − μ − f)²] over the ratings of each row, whose own moments are given.

    f = u·v + b + c is linear in g = (v, 1, c), with coefficients (u, b, 1).
    """
    d = n_factors
    at_one = d * (d + 1) // 2
    at_bias = at_one + d + 1
    for i in range(own.shape[0]):
        mine = own[i]
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
            second += 2.0 * bias * total[at_bias + d] + total[at_bias + d + 1]
            product += bias * linear[i, at_one + d - first] + linear[i, at_bias + d - first]
        errors[i] = squares[i] - 2.0 * product + second


@helper
def _factorize(a, size, roots):
    """Lower triangles of Cholesky factors in the place of matrices, and 1 over their diagonals."""
    for i in range(size):
        row = i * (i + 1) // 2
        for j in range(i + 1):
            other = j * (j + 1) // 2
            subtract_products(a, row, a, other, j, a, row + j)
            here = (row + j) * LANES
            for s in range(LANES):
                if i == j:
                    a[here + s] = np.sqrt(a[here + s])
                    roots[i * LANES + s] = 1.0 / a[here + s]
                else:
                    a[here + s] *= roots[j * LANES + s]


@helper
def _invert_factor(a, size, roots, inverse):
    """The columns of the inverses of lower triangles, ``size`` groups for each column."""
    inverse[:] = 0.0
    for j in range(size):
        column = j * size
        for s in range(LANES):
            inverse[(column + j) * LANES + s] = roots[j * LANES + s]
        for i in range(j + 1, size):
            row = i * (i + 1) // 2
            subtract_products(a, row + j, inverse, column + j, i - j, inverse, column + i)
            here = (column + i) * LANES
            for s in range(LANES):
                inverse[here + s] *= roots[i * LANES + s]


@helper
def _invert(a, size, roots, inverse):
    """The lower triangles of inverses in the place of matrices: MᵀM, M the factors' inverses."""
    _factorize(a, size, roots)
    _invert_factor(a, size, roots, inverse)
    a[: size * (size + 1) // 2 * LANES] = 0.0
    for r in range(size):
        row = r * (r + 1) // 2
        for c in range(r + 1):
            add_products(inverse, r * size + r, inverse, c * size + r, size - r, a, row + c)


@helper
def _gather(source, start, m, out):
    """Rows of an array next to each other; the first one in the place of those that are missing."""
    for k in range(source.shape[1]):
        for s in range(LANES):
            out[k * LANES + s] = source[start + (s if s < m else 0), k]


@kernel("out_rows matrix matrix int int out2 out1 out2")
def moments(table, precision, natural_mean, n_factors, biases, mean, log_det, squares):
    """Means, log-determinants of precisions, and tables of second moments of Gaussian rows.

    ``squares`` gets E‖v‖² and E[c²] of each row. A precision that is not positive definite leaves
    NaN in ``log_det``.
    """
    d = n_factors
    size = d + biases
    n_packed = size * (size + 1) // 2
    a = np.empty(n_packed * LANES)
    h = np.empty(size * LANES)
    roots = np.empty(size * LANES)
    inverse = np.empty(size * size * LANES)
    m = np.empty(size * LANES)
    at_one = d * (d + 1) // 2
    at_bias = at_one + d + 1
    n = precision.shape[0]
    for start in range(0, n, LANES):
        count = min(LANES, n - start)
        _gather(precision, start, count, a)
        _gather(natural_mean, start, count, h)
        _invert(a, size, roots, inverse)
        for s in range(count):
            total = 0.0
            for i in range(size):
                total -= np.log(roots[i * LANES + s])
            log_det[start + s] = 2.0 * total
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
        for s in range(count):
            i = start + s
            for r in range(size):
                mean[i, r] = m[r * LANES + s]
            row = table[i]
            k = 0
            square = 0.0
            for r in range(d):
                for c in range(r + 1):
                    row[k] = a[k * LANES + s] + mean[i, r] * mean[i, c]
                    k += 1
                square += a[(k - 1) * LANES + s] + mean[i, r] * mean[i, r]
                row[at_one + r] = mean[i, r]
            row[at_one + d] = 1.0
            squares[i, 0] = square
            squares[i, 1] = 0.0
            k = at_one + d + 1
            if biases:
                for c in range(d):
                    value = a[(at_one + c) * LANES + s] + mean[i, d] * mean[i, c]
                    row[at_bias + c] = value
                row[at_bias + d] = mean[i, d]
                square = a[(at_one + d) * LANES + s] + mean[i, d] * mean[i, d]
                row[at_bias + d + 1] = square
                squares[i, 1] = square
                k = at_bias + d + 2
            for j in range(k, row.shape[0]):
                row[j] = 0.0


@kernel("matrix matrix out2", dtypes=("float64",))
def add_matrix_products(matrices, vectors, out):
    """``out[i] += matrices[i] @ vectors[i]``, of symmetric matrices as their lower triangles."""
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


@helper
def _positive(a, size, shift, work):
    """Whether a packed matrix less ``shift`` times the identity is positive definite."""
    for i in range(size):
        row = i * (i + 1) // 2
        for j in range(i + 1):
            other = j * (j + 1) // 2
            value = a[row + j]
            if i == j:
                value -= shift
            for k in range(j):
                value -= work[row + k] * work[other + k]
            if i == j:
                # A NaN is not above 0 either.
                if not value > 0.0 or value == np.inf:
                    return False
                work[row + i] = np.sqrt(value)
            else:
                work[row + j] = value / work[other + j]
    return True


@helper
def _tridiagonalize(a, size, diagonal, squares, v, p):
    """Householder's reduction of a full symmetric matrix: diagonal, and squares beside it."""
    for k in range(size - 2):
        norm = 0.0
        for i in range(k + 1, size):
            norm += a[i, k] * a[i, k]
        squares[k] = norm
        alpha = -np.sqrt(norm) if a[k + 1, k] > 0.0 else np.sqrt(norm)
        h = norm - a[k + 1, k] * alpha
        if h > 0.0:
            v[k + 1] = a[k + 1, k] - alpha
            for i in range(k + 2, size):
                v[i] = a[i, k]
            overlap = 0.0
            for i in range(k + 1, size):
                value = 0.0
                for j in range(k + 1, size):
                    value += a[i, j] * v[j]
                p[i] = value / h
                overlap += p[i] * v[i]
            for i in range(k + 1, size):
                p[i] -= overlap / (2.0 * h) * v[i]
            for i in range(k + 1, size):
                for j in range(k + 1, size):
                    a[i, j] -= v[i] * p[j] + p[i] * v[j]
    for i in range(size):
        diagonal[i] = a[i, i]
    if size > 1:
        squares[size - 2] = a[size - 1, size - 2] ** 2


@helper
def _smallest_eigenvalue(packed, size, a, diagonal, squares, v, p):
    """The smallest eigenvalue of a packed matrix, by bisection on its tridiagonal form."""
    for i in range(size):
        for j in range(i + 1):
            a[i, j] = packed[i * (i + 1) // 2 + j]
            a[j, i] = a[i, j]
    _tridiagonalize(a, size, diagonal, squares, v, p)
    # Gershgorin's bound below, the smallest entry of the diagonal above.
    low = np.inf
    high = np.inf
    scale = 0.0
    for i in range(size):
        radius = 0.0
        if i > 0:
            radius += np.sqrt(squares[i - 1])
        if i < size - 1:
            radius += np.sqrt(squares[i])
        low = min(low, diagonal[i] - radius)
        high = min(high, diagonal[i])
        scale = max(scale, abs(diagonal[i]) + radius)
    tiny = 1e-300 + 1e-32 * scale
    for _ in range(100):
        middle = 0.5 * (low + high)
        if high - low <= 1e-14 * scale or middle <= low or middle >= high:
            break
        # A negative pivot of the matrix less the middle means an eigenvalue below it.
        pivot = diagonal[0] - middle
        below = pivot < 0.0
        for i in range(1, size):
            if below:
                break
            if pivot < tiny:
                pivot = tiny
            pivot = diagonal[i] - middle - squares[i - 1] / pivot
            below = pivot < 0.0
        if below:
            high = middle
        else:
            low = middle
    return 0.5 * (low + high)


@helper
def _between(start, end, share, out):
    """start + share (end − start), and what is given at the ends."""
    for k in range(out.shape[0]):
        if share == 1.0:
            out[k] = end[k]
        elif share == 0.0:
            out[k] = start[k]
        else:
            out[k] = start[k] + share * (end[k] - start[k])


@helper
def _largest_share(clean, noisy, margin, least, size, n_halvings, candidate, work, scratch):
    """The largest of 1, 1/2, … that leaves a precision inside, or 0.

    ``least`` is a bound above the smallest eigenvalue of the clean precision.
    """
    known = False
    share = 1.0
    for _ in range(n_halvings + 1):
        _between(clean, noisy, share, candidate)
        if _positive(candidate, size, margin * least, work):
            return share
        # The eigenvalue itself is needed only between the bound and 0.
        if not known and margin > 0.0 and _positive(candidate, size, 0.0, work):
            known = True
            least = _smallest_eigenvalue(clean, size, *scratch)
            if _positive(candidate, size, margin * least, work):
                return share
        share *= 0.5
    return 0.0


@kernel("matrix matrix float int int out2 out2", dtypes=("float64",))
def back_off(clean, clean_mean, margin, size, n_halvings, noisy, noisy_mean):
    """As much of noisy rows as leaves them inside: clean + s (noisy − clean), s = 1, 1/2, …, 0.

    The smallest eigenvalue of a precision must keep the share ``margin`` of that of the clean one,
    and be positive. Noisy rows are replaced.
    """
    n, n_packed = clean.shape
    group = np.empty(n_packed * LANES)
    roots = np.empty(size * LANES)
    least = np.empty(LANES)
    scratch = np.empty((size, size)), np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    candidate = np.empty(n_packed)
    work = np.empty(n_packed)
    for start in range(0, n, LANES):
        count = min(LANES, n - start)
        # The diagonal is above the smallest eigenvalue: what keeps its share is well inside.
        least[:] = np.inf
        for i in range(size):
            diagonal = i * (i + 1) // 2 + i
            for s in range(count):
                least[s] = min(least[s], clean[start + s, diagonal])
        _gather(noisy, start, count, group)
        for i in range(size):
            for s in range(LANES):
                group[(i * (i + 1) // 2 + i) * LANES + s] -= margin * least[s]
        _factorize(group, size, roots)
        for s in range(count):
            row = start + s
            inside = True
            finite = True
            for i in range(size):
                # A root is not a number from the first pivot below 0 on.
                inside = inside and 0.0 < roots[i * LANES + s] < np.inf
                finite = finite and np.isfinite(noisy_mean[row, i])
            if inside and finite:
                continue
            share = 0.0
            if finite:
                share = _largest_share(
                    clean[row], noisy[row], margin, least[s], size, n_halvings, candidate, work,
                    scratch,
                )  # fmt: skip
            _between(clean[row], noisy[row], share, noisy[row])
            _between(clean_mean[row], noisy_mean[row], share, noisy_mean[row])
