"""Gaussian components of rows with missing cells, when precision matrices are full.

Given its component, a row x has the observed cells x_o and the missing cells x_m. With the mean m
and the precision P of the component, the missing cells have the distribution
N(m_m − P_mm⁻¹ P_mo (x_o − m_o), P_mm⁻¹), and the observed ones have the squared distance
(x_o − m_o)ᵀ (P_oo − P_om P_mm⁻¹ P_mo) (x_o − m_o). With v = P (x_o − m_o, 0) and P_mm = L Lᵀ, this
distance is (x_o − m_o)ᵀ v_o − |L⁻¹ v_m|².

Rows are read in a given order. If rows with the same missing cells follow each other, P_mm is
factorised once for all of them (at least once in every block of rows). ``LANES`` matrices P_mm are
factorised together, as the lanes of vectors (``simd/tiles.py``). They are padded with the identity
to the size of the largest one, so that rows should be in the order of their numbers of missing
cells.
"""

from __future__ import annotations

import numpy as np

from ._compile import called, helper, kernel
from ._math import log
from .simd.emitter import DOUBLES as LANES
from .simd.tiles import TILE, factorise_tile, set_tile, set_vector, subtract_tile, subtract_vector

# One product of vectors takes as long as so many of a product of matrices.
_COST_OF_VECTORS = 8
# Numbers of a tile, of one of its rows, and of the corners of a row of tiles.
_ROW = TILE * LANES
_SQUARE = TILE * _ROW


@helper
def _lists(block, n_features):
    """Return arrays for the rows of a block.

    They are the missing columns of each row, their number, the number of the row's pattern, the
    numbers of the rows that are chosen, and the places among these with which a pattern begins.
    """
    missing = np.empty((block, n_features), dtype=np.uint64)
    n_missing, pattern = np.empty(block, dtype=np.int64), np.empty(block, dtype=np.int64)
    return missing, n_missing, pattern, np.arange(block), np.empty(block + 1, dtype=np.int64)


@helper
def _space(n_features):
    """Return space for L, its inverse, the inverses of its tiles on the diagonal, and two vectors.

    The operating system gives no memory for those parts that are not used.
    """
    size = (n_features + TILE - 1) // TILE * TILE
    root, inverse_root = np.empty(size * size * LANES), np.empty(size * size * LANES)
    return root, inverse_root, np.empty(size * _ROW), np.empty(size * LANES), np.empty(size * LANES)


@helper
def _read(x, center, order, start, m, rows, listed):
    """Read m rows relative to the center, in which missing cells are 0, and list these."""
    missing, n_missing, pattern, _, _ = listed
    n_features = center.shape[0]
    for i in range(m):
        row = order[start + i]
        count = 0
        for d in range(n_features):
            value = np.float64(x[row, d])
            if np.isnan(value):
                missing[i, count] = d
                count += 1
                rows[i, d] = 0.0
            else:
                rows[i, d] = value - center[d]
        n_missing[i] = count
        same = i > 0 and n_missing[i - 1] == count
        j = 0
        while same and j < count:
            same = missing[i - 1, j] == missing[i, j]
            j += 1
        pattern[i] = (pattern[i - 1] if i > 0 else 0) + (0 if same else 1)


@helper
def _patterns(listed, m):
    """List where the patterns of m chosen rows begin, with m at the end, and return their number.

    Patterns of many rows are cut, so that all lanes have about as many.
    """
    _, _, pattern, chosen, first = listed
    n = 1
    for i in range(1, m):
        n += pattern[chosen[i]] != pattern[chosen[i - 1]]
    most = (m + max(n, LANES) - 1) // max(n, LANES)
    n = 0
    for i in range(m):
        new = i == 0 or pattern[chosen[i]] != pattern[chosen[i - 1]]
        if new or i - first[n - 1] == most:
            first[n] = i
            n += 1
    first[n] = m
    return n


@helper
def _residuals(rows, mean, listed, m, out):
    missing, n_missing, _, chosen, _ = listed
    for i in range(m):
        row = chosen[i]
        for d in range(mean.shape[0]):
            out[i, d] = rows[row, d] - mean[d]
        for j in range(n_missing[row]):
            out[i, missing[row, j]] = 0.0


@helper
def _gather(precision, columns, count, size, row, lane, root):
    """Write P_mm, padded with the identity, to the lower triangle of one lane."""
    for a in range(count):
        entries = precision[columns[a]]
        place = a * row + lane
        for b in range(a + 1):
            root[place + b * LANES] = entries[columns[b]]
    for a in range(count, size):
        place = a * row + lane
        for b in range(a):
            root[place + b * LANES] = 0.0
        root[place + a * LANES] = 1.0


@called
def _factorise(precision, listed, pattern, n_patterns, root, corners, inverse_root):
    """Write the Cholesky factors L of the P_mm of ``LANES`` patterns, and return their size.

    Parameters
    ----------
    precision : array of shape (n_features, n_features)
    listed : tuple of arrays
        Those of :func:`_lists`.
    pattern, n_patterns : int
        The first of the patterns, and the number of all patterns.
    root : array
        Receives the factors, row after row; their entries above the diagonal have no meaning.
    corners : array
        Receives the inverses of their tiles on the diagonal.
    inverse_root : array
        Receives the transposes of these inverses in the same places.
    """
    missing, n_missing, _, chosen, first = listed
    size = 0
    for p in range(pattern, min(pattern + LANES, n_patterns)):
        size = max(size, n_missing[chosen[first[p]]])
    size = (size + TILE - 1) // TILE * TILE
    row = size * LANES
    for lane in range(LANES):
        p = pattern + lane
        i = chosen[first[p]] if p < n_patterns else 0
        _gather(precision, missing[i], n_missing[i] if p < n_patterns else 0, size, row, lane, root)
    for a in range(0, size, TILE):
        for b in range(0, a, TILE):
            place = a * row + b * LANES
            if b > 0:
                subtract_tile(root, a * row, row, root, b * row, row, b, root, place, row)
            set_tile(root, place, row, corners, b * _ROW, _ROW, TILE, root, place, row)
        place = a * (row + LANES)
        if a > 0:
            subtract_tile(root, a * row, row, root, a * row, row, a, root, place, row)
        factorise_tile(root, corners, inverse_root, place, row, a * _ROW)
    return size


@called
def _invert(root, corners, size, out):
    """Complete the transposes of the inverses L⁻¹, which have their tiles on the diagonal."""
    row = size * LANES
    for a in range(0, size, TILE):
        begin = a * (row + LANES)
        for b in range(a + TILE, size, TILE):
            place = a * row + b * LANES
            for c in range(TILE):
                for i in range(_ROW):
                    out[place + c * row + i] = 0.0
            before = b * row + a * LANES
            subtract_tile(out, begin, row, root, before, row, b - a, out, place, row)
            set_tile(out, place, row, corners, b * _ROW, _ROW, TILE, out, place, row)


@helper
def _add_inverses(inverse_root, size, listed, pattern, n_patterns, weights, tile, out):
    """Add the weighted sum of P_mm⁻¹ to the lower triangle of ``out``."""
    row = size * LANES
    missing, n_missing, _, chosen, first = listed
    for a in range(0, size, TILE):
        begin = a * (row + LANES)
        for b in range(0, a + 1, TILE):
            other = b * row + a * LANES
            set_tile(inverse_root, begin, row, inverse_root, other, row, size - a, tile, 0, _ROW)
            for lane in range(min(LANES, n_patterns - pattern)):
                i = chosen[first[pattern + lane]]
                columns, weight = missing[i], weights[lane]
                # The compiler unrolls loops of fixed lengths.
                if b < a and a + TILE <= n_missing[i]:
                    for c in range(TILE):
                        target = out[columns[a + c]]
                        for d in range(TILE):
                            target[columns[b + d]] += weight * tile[c * _ROW + d * LANES + lane]
                    continue
                for c in range(min(TILE, n_missing[i] - a)):
                    target = out[columns[a + c]]
                    for d in range(min(TILE, a + c - b + 1)):
                        target[columns[b + d]] += weight * tile[c * _ROW + d * LANES + lane]


@helper
def _half_solve(root, corners, size, product, listed, pattern, n_patterns, step, y):
    """Solve L y = v_m for one row of each pattern, the one after ``step`` others.

    Where a pattern has no such row, y is 0.
    """
    row = size * LANES
    missing, n_missing, _, chosen, first = listed
    for lane in range(LANES):
        p, count = pattern + lane, 0
        if p < n_patterns and first[p] + step < first[p + 1]:
            i = chosen[first[p]]
            count = n_missing[i]
            for a in range(count):
                y[a * LANES + lane] = product[first[p] + step, missing[i, a]]
        for a in range(count, size):
            y[a * LANES + lane] = 0.0
    for a in range(0, size, TILE):
        place = a * LANES
        if a > 0:
            subtract_vector(root, a * row, row, y, 0, 0, a, y, place, LANES)
        set_vector(corners, a * _ROW, _ROW, y, place, 0, TILE, y, place, LANES)


@helper
def _of_missing(residual, precision, listed, m, product):
    """Write v_m of m rows, cell by cell if they are few, and else all of v."""
    missing, n_missing, _, chosen, _ = listed
    count = 0
    for i in range(m):
        count += n_missing[chosen[i]]
    if _COST_OF_VECTORS * count >= m * precision.shape[0]:
        np.dot(residual[:m], precision, product[:m])
        return
    for i in range(m):
        columns = missing[chosen[i]]
        for a in range(n_missing[chosen[i]]):
            product[i, columns[a]] = np.dot(residual[i], precision[columns[a]])


@helper
def _most_rows(listed, pattern, n_patterns):
    """Return the largest number of rows of ``LANES`` patterns."""
    first, most = listed[4], 0
    for p in range(pattern, min(pattern + LANES, n_patterns)):
        most = max(most, first[p + 1] - first[p])
    return most


@kernel("rows vector pointer matrix matrix int out2 out2")
def marginals(x, center, order, precision, mean, block, distances, log_dets):
    """Squared distances of the observed cells from the means, and log|P_mm|.

    Parameters
    ----------
    x : array of shape (n, n_features)
        Rows, in which missing cells are NaN.
    center : array of shape (n_features,)
        Subtracted from every row.
    order : array of shape (n_read,)
        Numbers of the rows that are read, in this order.
    precision : array of shape (n_components * n_features, n_features)
        P of all components.
    mean : array of shape (n_components, n_features)
    block : int
        Rows per block.
    distances, log_dets : arrays of shape (n_read, n_components)
        Outputs.
    """
    n_components, n_features = mean.shape
    rows = np.empty((block, n_features))
    residual = np.empty((block, n_features))
    product = np.empty((block, n_features))
    listed = _lists(block, n_features)
    first = listed[4]
    root, inverse_root, corners, y, _ = _space(n_features)
    log_det = np.empty(LANES)
    square = np.empty(LANES)
    for start in range(0, order.shape[0], block):
        m = min(block, order.shape[0] - start)
        _read(x, center, order, start, m, rows, listed)
        n_patterns = _patterns(listed, m)
        for k in range(n_components):
            matrix = precision[k * n_features : (k + 1) * n_features]
            _residuals(rows, mean[k], listed, m, residual)
            np.dot(residual[:m], matrix, product[:m])
            for p in range(0, n_patterns, LANES):
                size = _factorise(matrix, listed, p, n_patterns, root, corners, inverse_root)
                log_det[:] = 0.0
                for a in range(size):
                    for i in range(LANES):
                        log_det[i] += 2.0 * log(root[a * (size + 1) * LANES + i])
                for step in range(_most_rows(listed, p, n_patterns)):
                    _half_solve(root, corners, size, product, listed, p, n_patterns, step, y)
                    square[:] = 0.0
                    for a in range(size):
                        for i in range(LANES):
                            square[i] += y[a * LANES + i] ** 2
                    for lane in range(min(LANES, n_patterns - p)):
                        i = first[p + lane] + step
                        if i < first[p + lane + 1]:
                            distance = 0.0
                            for d in range(n_features):
                                distance += residual[i, d] * product[i, d]
                            distances[start + i, k] = max(distance - square[lane], 0.0)
                            log_dets[start + i, k] = log_det[lane]


@helper
def _complete(inverse_root, size, listed, p, n_patterns, step, y, out, residual):
    """Write E x_m − m_m = −P_mm⁻¹ v_m of one row of each pattern to its residual."""
    missing, n_missing, _, chosen, first = listed
    row = size * LANES
    for a in range(0, size, TILE):
        place, n = a * LANES, size - a
        set_vector(inverse_root, a * (row + LANES), row, y, place, 0, n, out, place, LANES)
    for lane in range(min(LANES, n_patterns - p)):
        i, columns = first[p + lane] + step, missing[chosen[first[p + lane]]]
        if i < first[p + lane + 1]:
            for a in range(n_missing[chosen[i]]):
                residual[i, columns[a]] = -out[a * LANES + lane]


@helper
def _complete_all(matrix, listed, p, n_patterns, product, space, residual):
    """Complete all rows of some patterns, and return the size of their factors.

    The inverses of the factors are in the space.
    """
    root, inverse_root, corners, y, solution = space
    size = _factorise(matrix, listed, p, n_patterns, root, corners, inverse_root)
    _invert(root, corners, size, inverse_root)
    for step in range(_most_rows(listed, p, n_patterns)):
        _half_solve(root, corners, size, product, listed, p, n_patterns, step, y)
        _complete(inverse_root, size, listed, p, n_patterns, step, y, solution, residual)
    return size


@kernel("rows vector pointer matrix matrix matrix float int out2 out2 out1")
def add_moments(x, center, order, precision, mean, shares, no_share, block, second, total, count):
    """Add the moments of completed rows about the means of their components.

    The first arguments are those of :func:`marginals`.

    Parameters
    ----------
    shares : array of shape (n_read, n_components)
        The weight R of each row for each component.
    no_share : float
        Rows whose weights are at most this multiple of the largest one are left out.
    second : array of shape (n_components * n_features, n_features)
        Receives Σ R E (x − m)(x − m)ᵀ.
    total : array of shape (n_components, n_features)
        Receives Σ R E (x − m).
    count : array of shape (n_components,)
        Receives Σ R.
    """
    n_components, n_features = mean.shape
    rows = np.empty((block, n_features))
    residual = np.empty((block, n_features))
    product = np.empty((block, n_features))
    square = np.empty((n_features, n_features))
    listed = _lists(block, n_features)
    chosen, first = listed[3:]
    space = _space(n_features)
    inverse_root, tile = space[1], np.empty(_SQUARE)
    weights = np.empty(LANES)
    least = np.zeros(n_components)
    for i in range(order.shape[0]):
        for k in range(n_components):
            count[k] += shares[i, k]
            least[k] = max(least[k], no_share * abs(shares[i, k]))
    for start in range(0, order.shape[0], block):
        size_of_block = min(block, order.shape[0] - start)
        _read(x, center, order, start, size_of_block, rows, listed)
        for k in range(n_components):
            matrix = precision[k * n_features : (k + 1) * n_features]
            target = second[k * n_features : (k + 1) * n_features]
            m = 0
            for i in range(size_of_block):
                if abs(shares[start + i, k]) > least[k]:
                    chosen[m] = i
                    m += 1
            if m == 0:
                continue
            n_patterns = _patterns(listed, m)
            _residuals(rows, mean[k], listed, m, residual)
            _of_missing(residual, matrix, listed, m, product)
            for p in range(0, n_patterns, LANES):
                size = _complete_all(matrix, listed, p, n_patterns, product, space, residual)
                weights[:] = 0.0
                for lane in range(min(LANES, n_patterns - p)):
                    for i in range(first[p + lane], first[p + lane + 1]):
                        weights[lane] += shares[start + chosen[i], k]
                _add_inverses(inverse_root, size, listed, p, n_patterns, weights, tile, target)
            for i in range(m):
                r = shares[start + chosen[i], k]
                for d in range(n_features):
                    first_moment = r * residual[i, d]
                    total[k, d] += first_moment
                    product[i, d] = first_moment
            np.dot(product[:m].T, residual[:m], square)
            target += square


@kernel("rows vector pointer matrix matrix matrix matrix matrix int out2 out2")
def impute(x, center, order, precision, mean, shares, factors, reference, block, means, squares):
    """Add the moments of the cells of each row, as a mixture over components has them.

    The first arguments are those of :func:`marginals`.

    Parameters
    ----------
    shares : array of shape (n_read, n_components)
        The probabilities R of the components.
    factors : array of shape (n_read, n_components)
        The covariance of missing cells is this factor f times P_mm⁻¹.
    reference : array of shape (n_read, n_features)
        The values c from which squared deviations are measured, relative to the center.
    means : array of shape (n_read, n_features)
        Receives Σ_k R E x relative to the center.
    squares : array of shape (n_read, n_features)
        Receives Σ_k R E (x − c)².
    """
    n_components, n_features = mean.shape
    rows = np.empty((block, n_features))
    residual = np.empty((block, n_features))
    product = np.empty((block, n_features))
    listed = _lists(block, n_features)
    missing, n_missing, _, _, first = listed
    space = _space(n_features)
    inverse_root = space[1]
    for start in range(0, order.shape[0], block):
        m = min(block, order.shape[0] - start)
        _read(x, center, order, start, m, rows, listed)
        n_patterns = _patterns(listed, m)
        for k in range(n_components):
            matrix = precision[k * n_features : (k + 1) * n_features]
            _residuals(rows, mean[k], listed, m, residual)
            np.dot(residual[:m], matrix, product[:m])
            for p in range(0, n_patterns, LANES):
                size = _complete_all(matrix, listed, p, n_patterns, product, space, residual)
                for lane in range(min(LANES, n_patterns - p)):
                    for a in range(n_missing[first[p + lane]]):
                        variance = 0.0
                        for b in range(a, size):
                            variance += inverse_root[(a * size + b) * LANES + lane] ** 2
                        for i in range(first[p + lane], first[p + lane + 1]):
                            r = shares[start + i, k]
                            if r > 0.0:
                                variance_of_row = factors[start + i, k] * variance
                                squares[start + i, missing[i, a]] += r * variance_of_row
            for i in range(m):
                r = shares[start + i, k]
                for d in range(n_features):
                    value = residual[i, d] + mean[k, d]
                    deviation = value - reference[start + i, d]
                    means[start + i, d] += r * value
                    squares[start + i, d] += r * deviation * deviation
