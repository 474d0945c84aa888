"""Gaussian components of rows with missing cells, when precision matrices are full.

Given its component, a row x has the observed cells x_o and the missing cells x_m. With the mean m
and the precision P of the component, the missing cells have the distribution
N(m_m − P_mm⁻¹ P_mo (x_o − m_o), P_mm⁻¹), and the observed ones have the squared distance
(x_o − m_o)ᵀ (P_oo − P_om P_mm⁻¹ P_mo) (x_o − m_o). With v = P (x_o − m_o, 0) and P_mm = L Lᵀ, this
distance is (x_o − m_o)ᵀ v_o − |L⁻¹ v_m|².

The statistics of a row need L⁻¹ v_m as well, and can take it from the computation of its density.
A step of a mixture, which knows the responsibilities of a row as soon as it has its densities, does
both while L is in the cache (:func:`local_step`).

Rows are read in a given order. If rows with the same missing cells follow each other, P_mm is
factorised once for all of them (at least once in every block of rows). ``LANES`` matrices P_mm are
factorised together, as the lanes of vectors (``simd/tiles.py``). They are padded with the identity
to the size of the largest one, so that rows should be in the order of their numbers of missing
cells.
"""

from __future__ import annotations

import numpy as np

from ._compile import called, helper, kernel
from ._math import exp, log
from .simd.tiles import (
    LANES,
    TILE,
    factorise_tile,
    set_tile,
    set_vector,
    subtract_tile,
    subtract_vector,
)

# One product of vectors takes as long as so many of a product of matrices.
_COST_OF_VECTORS = 8
_LOG_2PI = np.log(2.0 * np.pi)
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

    The last array is for the missing columns of all lanes. The operating system gives no memory for
    those parts that are not used.
    """
    size = (n_features + TILE - 1) // TILE * TILE
    root, inverse_root = np.empty(size * size * LANES), np.empty(size * size * LANES)
    vectors = np.empty(size * LANES), np.empty(size * LANES)
    columns = np.empty(size * LANES, dtype=np.uint64)
    return root, inverse_root, np.empty(size * _ROW), *vectors, columns


@helper
def _read(x, center, order, start, m, rows, listed):
    """Read m rows relative to the center, in which missing cells are 0, and list these."""
    missing, n_missing, pattern, _, _ = listed
    n_features = center.shape[0]
    for i in range(m):
        row = order[start + i]
        count = 0
        # No branch depends on the cells, because the processor would often guess it wrong.
        for d in range(n_features):
            value = np.float64(x[row, d])
            absent = np.isnan(value)
            missing[i, count] = d
            count += absent
            rows[i, d] = 0.0 if absent else value - center[d]
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
def _size(listed, pattern, n_patterns):
    """Return the size to which the P_mm of ``LANES`` patterns are padded."""
    _, n_missing, _, chosen, first = listed
    size = 0
    for p in range(pattern, min(pattern + LANES, n_patterns)):
        size = max(size, n_missing[chosen[first[p]]])
    return (size + TILE - 1) // TILE * TILE


@helper
def _columns_of(listed, pattern, n_patterns, size, columns):
    """List the missing columns of ``LANES`` patterns, the lanes of each next to each other."""
    missing, n_missing, _, chosen, first = listed
    for lane in range(LANES):
        p, count = pattern + lane, 0
        if p < n_patterns:
            i = chosen[first[p]]
            count = n_missing[i]
            for a in range(count):
                columns[a * LANES + lane] = missing[i, a]
        for a in range(count, size):
            columns[a * LANES + lane] = 0


@helper
def _gather(precision, listed, pattern, n_patterns, size, columns, root):
    """Write the P_mm of ``LANES`` patterns, padded with the identity, to the lower triangle."""
    _, n_missing, _, chosen, first = listed
    row, most = size * LANES, 0
    _columns_of(listed, pattern, n_patterns, size, columns)
    for p in range(pattern, min(pattern + LANES, n_patterns)):
        most = max(most, n_missing[chosen[first[p]]])
    for a in range(most):
        place = a * row
        for b in range(a + 1):
            for lane in range(LANES):
                entry = precision[columns[a * LANES + lane], columns[b * LANES + lane]]
                root[place + b * LANES + lane] = entry
    for lane in range(LANES):
        p = pattern + lane
        for a in range(n_missing[chosen[first[p]]] if p < n_patterns else 0, size):
            place = a * row + lane
            for b in range(a):
                root[place + b * LANES] = 0.0
            root[place + a * LANES] = 1.0


@called
def _factorise(precision, listed, pattern, n_patterns, root, corners, inverse_root, columns):
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
    columns : array
        Receives the missing columns.
    """
    size = _size(listed, pattern, n_patterns)
    row = size * LANES
    _gather(precision, listed, pattern, n_patterns, size, columns, root)
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
def _inner(left, right):
    """The product of two vectors, by four sums that do not wait for each other."""
    n = left.shape[0] // 4 * 4
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for i in range(0, n, 4):
        a += left[i] * right[i]
        b += left[i + 1] * right[i + 1]
        c += left[i + 2] * right[i + 2]
        d += left[i + 3] * right[i + 3]
    for i in range(n, left.shape[0]):
        a += left[i] * right[i]
    return (a + b) + (c + d)


@helper
def _most_rows(listed, pattern, n_patterns):
    """Return the largest number of rows of ``LANES`` patterns."""
    first, most = listed[4], 0
    for p in range(pattern, min(pattern + LANES, n_patterns)):
        most = max(most, first[p + 1] - first[p])
    return most


@helper
def _keep(y, listed, pattern, n_patterns, step, row, place, halves):
    """Write L⁻¹ v_m of one row of each pattern from a place of ``halves`` on.

    ``row`` is the number of the first row of the block.
    """
    _, n_missing, _, chosen, first = listed
    for lane in range(min(LANES, n_patterns - pattern)):
        i = first[pattern + lane] + step
        if i < first[pattern + lane + 1]:
            target = halves[row + chosen[i]]
            for a in range(n_missing[chosen[i]]):
                target[place + a] = y[a * LANES + lane]


@helper
def _kept(halves, size, listed, pattern, n_patterns, step, row, place, y):
    """Read what :func:`_keep` has written."""
    _, n_missing, _, chosen, first = listed
    for lane in range(LANES):
        p, count = pattern + lane, 0
        if p < n_patterns and first[p] + step < first[p + 1]:
            i = chosen[first[p] + step]
            count = n_missing[i]
            source = halves[row + i]
            for a in range(count):
                y[a * LANES + lane] = source[place + a]
        for a in range(count, size):
            y[a * LANES + lane] = 0.0


@called
def _distances(factors, of_rows, listed, p, n_patterns, start, k, out):
    """Write the squared distances, log|P_mm| and L⁻¹ v_m of the rows of ``LANES`` patterns.

    ``factors`` has those of :func:`_factorise` with their size, and space for a vector. ``start``
    is the number of the first row of the block, and ``k`` that of the component.
    """
    (root, corners, size, y), (residual, product) = factors, of_rows
    distances, log_dets, halves = out
    first, log_det, square = listed[4], np.zeros(LANES), np.empty(LANES)
    for a in range(size):
        for i in range(LANES):
            log_det[i] += 2.0 * log(root[a * (size + 1) * LANES + i])
    for step in range(_most_rows(listed, p, n_patterns)):
        _half_solve(root, corners, size, product, listed, p, n_patterns, step, y)
        if halves.shape[1] > 0:
            _keep(y, listed, p, n_patterns, step, start, 0, halves)
        square[:] = 0.0
        for a in range(size):
            for i in range(LANES):
                square[i] += y[a * LANES + i] ** 2
        for lane in range(min(LANES, n_patterns - p)):
            i = first[p + lane] + step
            if i < first[p + lane + 1]:
                distance = _inner(residual[i], product[i])
                distances[start + i, k] = max(distance - square[lane], 0.0)
                log_dets[start + i, k] = log_det[lane]


@kernel("rows vector pointer matrix matrix int out2 out2 out2")
def marginals(x, center, order, precision, mean, block, distances, log_dets, halves):
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
    halves : array of shape (n_read, n_components * n_most)
        Receives L⁻¹ v_m of all components, for at most ``n_most`` missing cells. It may be empty.
    """
    n_components, n_features = mean.shape
    rows = np.empty((block, n_features))
    residual = np.empty((block, n_features))
    product = np.empty((block, n_features))
    listed = _lists(block, n_features)
    most = halves.shape[1] // n_components
    root, inverse_root, corners, y, _, columns = _space(n_features)
    for start in range(0, order.shape[0], block):
        m = min(block, order.shape[0] - start)
        _read(x, center, order, start, m, rows, listed)
        n_patterns = _patterns(listed, m)
        for k in range(n_components):
            matrix = precision[k * n_features : (k + 1) * n_features]
            _residuals(rows, mean[k], listed, m, residual)
            np.dot(residual[:m], matrix, product[:m])
            for p in range(0, n_patterns, LANES):
                size = _factorise(
                    matrix, listed, p, n_patterns, root, corners, inverse_root, columns
                )
                factors, of_rows = (root, corners, size, y), (residual, product)
                out = distances, log_dets, halves[:, k * most : (k + 1) * most]
                _distances(factors, of_rows, listed, p, n_patterns, start, k, out)


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
def _inverses(matrix, listed, p, n_patterns, space):
    """Write the transposes of L⁻¹ of some patterns to the space, and return their size."""
    root, inverse_root, corners, _, _, columns = space
    size = _factorise(matrix, listed, p, n_patterns, root, corners, inverse_root, columns)
    _invert(root, corners, size, inverse_root)
    return size


@called
def _add_group(space, size, product, of_rows, listed, p, n_patterns, tile, target):
    """Complete the rows of ``LANES`` patterns, and add the covariances of their missing cells.

    Parameters
    ----------
    space : tuple of arrays
        Those of :func:`_space`, with the transposes of L⁻¹.
    size : int
    product : array of shape (n_chosen, n_features)
        v of the chosen rows, which is read if there are no halves.
    of_rows : tuple
        The residuals of the chosen rows, which are completed; the halves L⁻¹ v_m of all rows, or
        nothing; the weights of all rows; and the number of the first row of the block.
    listed : tuple of arrays
    p, n_patterns : int
    tile : array
    target : array of shape (n_features, n_features)
        Receives Σ R P_mm⁻¹ in its lower triangle.
    """
    root, inverse_root, corners, y, solution, _ = space
    residual, halves, shares, start = of_rows
    chosen, first = listed[3:]
    for step in range(_most_rows(listed, p, n_patterns)):
        if halves.shape[1] > 0:
            _kept(halves, size, listed, p, n_patterns, step, start, 0, y)
        else:
            _half_solve(root, corners, size, product, listed, p, n_patterns, step, y)
        _complete(inverse_root, size, listed, p, n_patterns, step, y, solution, residual)
    weights = np.zeros(LANES)
    for lane in range(min(LANES, n_patterns - p)):
        for i in range(first[p + lane], first[p + lane + 1]):
            weights[lane] += shares[start + chosen[i]]
    _add_inverses(inverse_root, size, listed, p, n_patterns, weights, tile, target)


@helper
def _add_row(r, residual, total, completed):
    """Add a completed row to the sum Σ R E (x − m), and write √|R| times this row."""
    root = np.sqrt(abs(r))
    for d in range(residual.shape[0]):
        total[d] += r * residual[d]
        completed[d] = root * residual[d]


@helper
def _add_chosen(rows, of_component, listed, m, of_rows, space, tile, target, total, residual):
    """Add the moments of the m chosen rows of a block for one component.

    ``of_component`` has its precision and its mean, and ``of_rows`` the halves, the shares and the
    number of the first row. The residuals of the chosen rows receive √|R| E (x − m).
    """
    (matrix, mean), (halves, shares, start) = of_component, of_rows
    chosen, n_patterns = listed[3], _patterns(listed, m)
    _residuals(rows, mean, listed, m, residual)
    product = np.empty((m if halves.shape[1] == 0 else 0, mean.shape[0]))
    if halves.shape[1] == 0:
        _of_missing(residual, matrix, listed, m, product)
    for p in range(0, n_patterns, LANES):
        size = _inverses(matrix, listed, p, n_patterns, space)
        of_chosen = residual, halves, shares, start
        _add_group(space, size, product, of_chosen, listed, p, n_patterns, tile, target)
    for i in range(m):
        _add_row(shares[start + chosen[i]], residual[i], total, residual[i])


@kernel(
    "rows vector pointer matrix matrix matrix matrix vector float int out2 out2 out2 out_int",
)
def add_moments(
    x,
    center,
    order,
    precision,
    mean,
    shares,
    halves,
    least,
    sign,
    block,
    covariances,
    total,
    completed,
    n_completed,
):
    """Complete rows relative to the means of their components, and add moments of what is missing.

    The first arguments are those of :func:`marginals`.

    Parameters
    ----------
    shares : array of shape (n_read, n_components)
        The weight R of each row for each component.
    halves : array of shape (n_read, n_components * n_most)
        What :func:`marginals` has written, or nothing.
    least : array of shape (n_components,)
        Rows whose weights are at most as large are left out.
    sign : float
        1 for rows of positive weights, and −1 for those of negative ones; others are left out.
    block : int
    covariances : array of shape (n_components * n_features, n_features)
        Receives Σ R P_mm⁻¹ in its lower triangles.
    total : array of shape (n_components, n_features)
        Receives Σ R E (x − m).
    completed : array of shape (n_components * n_read, n_features)
        Receives √|R| E (x − m) of the rows that are not left out, one after the other.
    n_completed : array of shape (n_components,)
        Receives the number of these rows.
    """
    n_components, n_features = mean.shape
    rows = np.empty((block, n_features))
    listed = _lists(block, n_features)
    chosen, space, tile = listed[3], _space(n_features), np.empty(_SQUARE)
    most = halves.shape[1] // n_components
    n_completed[:] = 0
    for start in range(0, order.shape[0], block):
        size_of_block = min(block, order.shape[0] - start)
        _read(x, center, order, start, size_of_block, rows, listed)
        for k in range(n_components):
            m = 0
            for i in range(size_of_block):
                if sign * shares[start + i, k] > least[k]:
                    chosen[m] = i
                    m += 1
            if m == 0:
                continue
            begin, part = k * order.shape[0] + n_completed[k], slice(k * most, (k + 1) * most)
            n_completed[k] += m
            of_component = precision[k * n_features : (k + 1) * n_features], mean[k]
            of_rows = halves[:, part], shares[:, k], start
            target = covariances[k * n_features : (k + 1) * n_features]
            how = space, tile, target, total[k], completed[begin : begin + m]
            _add_chosen(rows, of_component, listed, m, of_rows, *how)


@helper
def _set_shares(i, row, joint, settings, shares, sums):
    """Write the weights of a row in the statistics, from its log densities, and add its sums.

    ``settings`` has the inverse temperature, the factor of the statistics and the weights of all
    rows, as those of ``mixture_steps.shares_of``.
    """
    inverse_temperature, factor, weights = settings
    x = inverse_temperature[row if inverse_temperature.shape[0] > 1 else 0]
    w = weights[row] if weights.shape[0] > 0 else 1.0
    f = factor[row if factor.shape[0] > 1 else 0]
    maximum, total, energy = joint[i, 0], 0.0, 0.0
    for k in range(1, joint.shape[1]):
        maximum = max(maximum, joint[i, k])
    for k in range(joint.shape[1]):
        difference = joint[i, k] - maximum
        value = exp(x * difference)
        shares[i, k] = value
        total += value
        energy += value * difference
    energy /= total
    sums[0] += w * (maximum + energy)
    sums[1] += w * (log(total) - x * energy)
    for k in range(joint.shape[1]):
        shares[i, k] *= w * f / total


@helper
def _density_of_group(work, model, n_features, p, n_patterns):
    """Write the log densities of the rows of ``LANES`` patterns, and return the size of the P_mm.

    Factors stay for the moments. ``work`` and ``model`` are those of :func:`local_step`.
    """
    listed, residuals, products, roots, corners, inverse_roots, space, halves, joint = work[1:10]
    precision, _, constant = model
    _, n_missing, _, _, first = listed
    size, most = 0, halves.shape[1] // constant.shape[0]
    log_dets = np.empty(joint.shape)
    for k in range(constant.shape[0]):
        j = k % roots.shape[0]
        root, own = roots[j], corners[j]
        if j == k:
            matrix = precision[j * n_features : (j + 1) * n_features]
            size = _factorise(matrix, listed, p, n_patterns, root, own, inverse_roots[j], space[5])
        out = joint, log_dets, halves[:, k * most : (k + 1) * most]
        factors, of_rows = (root, own, size, space[3]), (residuals[k], products[k])
        _distances(factors, of_rows, listed, p, n_patterns, 0, k, out)
    for i in range(first[p], first[min(p + LANES, n_patterns)]):
        own_part = 0.5 * _LOG_2PI * (n_features - n_missing[i])
        for k in range(constant.shape[0]):
            joint[i, k] = constant[k] - 0.5 * (joint[i, k] + log_dets[i, k]) - own_part
    return size


@helper
def _is_dense(shares, k, least, first, p, n_patterns):
    """Whether at least half of ``LANES`` patterns have rows of a component."""
    n, most = 0, min(LANES, n_patterns - p)
    for lane in range(most):
        some = False
        for i in range(first[p + lane], first[p + lane + 1]):
            some = some or shares[i, k] > least
        n += some
    return 2 * n >= most


@helper
def _add_dense(work, out, size, p, n_patterns, n_read):
    """Add the moments of the rows of ``LANES`` patterns for the components of most of them."""
    listed, residuals, _, roots, corners, inverse_roots, space, halves, _, shares, done = work[1:]
    least, covariances, total, completed, n_completed = out
    n_components, n_features = total.shape
    first, most, tile = listed[4], halves.shape[1] // n_components, np.empty(_SQUARE)
    inverted = -1
    # The last factor is still in the nearest cache.
    for k in range(n_components - 1, -1, -1):
        if not _is_dense(shares, k, least[k], first, p, n_patterns):
            continue
        j = k % roots.shape[0]
        if j != inverted:
            _invert(roots[j], corners[j], size, inverse_roots[j])
            inverted = j
        own = roots[j], inverse_roots[j], corners[j], space[3], space[4], space[5]
        target = covariances[k * n_features : (k + 1) * n_features]
        half = halves[:, k * most : (k + 1) * most]
        of_rows = residuals[k], half, shares[:, k], 0
        _add_group(own, size, residuals[k], of_rows, listed, p, n_patterns, tile, target)
        for i in range(first[p], first[min(p + LANES, n_patterns)]):
            done[k, i] = True
            if shares[i, k] > least[k]:
                place = k * n_read + n_completed[k]
                n_completed[k] += 1
                _add_row(shares[i, k], residuals[k, i], total[k], completed[place])


@helper
def _add_others(work, model, out, m, n_read):
    """Add the moments of those of m rows that :func:`_add_dense` has left out."""
    rows, listed, _, _, _, _, _, space, halves, _, shares, done = work
    precision, mean, _ = model
    least, covariances, total, completed, n_completed = out
    n_components, n_features = mean.shape
    chosen, most, tile = listed[3], halves.shape[1] // n_components, np.empty(_SQUARE)
    for k in range(n_components):
        n = 0
        for i in range(m):
            if not done[k, i] and shares[i, k] > least[k]:
                chosen[n] = i
                n += 1
        if n > 0:
            begin = k * n_read + n_completed[k]
            n_completed[k] += n
            j = k % (precision.shape[0] // n_features)
            of_component = precision[j * n_features : (j + 1) * n_features], mean[k]
            of_rows = halves[:, k * most : (k + 1) * most], shares[:, k], 0
            target, own = covariances[k * n_features : (k + 1) * n_features], total[k]
            some = completed[begin : begin + n]
            _add_chosen(rows, of_component, listed, n, of_rows, space, tile, target, own, some)


@kernel(
    "rows vector pointer matrix matrix vector vector vector vector int int float "
    "out1 out2 out2 out2 out_int out1 out1",
)
def local_step(
    x,
    center,
    order,
    precision,
    mean,
    constant,
    inverse_temperature,
    factor,
    weights,
    most,
    block,
    no_share,
    largest,
    covariances,
    total,
    completed,
    n_completed,
    counts,
    sums,
):
    """Infer the responsibilities of rows and add the moments that follow.

    Each P_mm is factorised once for both, while its factor is in the cache. Where most of
    ``LANES`` rows do not belong to a component, others take their places, and the matrices are
    factorised again. The first arguments are those of :func:`marginals`, but ``precision`` may have
    one matrix for all components, which is factorised once for all of them.

    Parameters
    ----------
    constant : array of shape (n_components,)
        c of the log density c − D/2 log 2π − ½ (x − m)ᵀ P (x − m), with the weights of components.
    inverse_temperature, factor, weights : arrays
        Those of ``mixture_steps.shares_of``; no factor may be negative.
    most : int
        No row lacks more cells.
    block : int
    no_share : float
        Rows whose shares are at most this multiple of the largest so far are left out.
    largest : array of shape (n_components,)
        The largest shares so far.
    covariances, total, completed, n_completed : arrays
        Those of :func:`add_moments`.
    counts : array of shape (n_components,)
        Receives Σ R.
    sums : array of shape (2,)
        Receives Σ w Σ_k R L and Σ w H[R].
    """
    (n_components, n_features), n_read = mean.shape, order.shape[0]
    rows, listed, space = np.empty((block, n_features)), _lists(block, n_features), _space(most)
    residuals = np.empty((n_components, block, n_features))
    products, joint = np.empty(residuals.shape), np.empty((block, n_components))
    n_matrices = precision.shape[0] // n_features
    roots = np.empty((n_matrices, space[0].shape[0]))
    inverse_roots, corners = np.empty(roots.shape), np.empty((n_matrices, space[2].shape[0]))
    halves, shares = np.empty((block, n_components * most)), np.empty((block, n_components))
    done, least = np.empty((n_components, block), dtype=np.bool_), np.empty(n_components)
    work = (
        rows,
        listed,
        residuals,
        products,
        roots,
        corners,
        inverse_roots,
        space,
        halves,
        joint,
        shares,
        done,
    )
    model, settings = (precision, mean, constant), (inverse_temperature, factor, weights)
    out = least, covariances, total, completed, n_completed
    n_completed[:] = 0
    for start in range(0, n_read, block):
        m = min(block, n_read - start)
        _read(x, center, order, start, m, rows, listed)
        for i in range(m):
            listed[3][i] = i
        n_patterns, first = _patterns(listed, m), listed[4]
        for k in range(n_components):
            _residuals(rows, mean[k], listed, m, residuals[k])
            j = k % n_matrices
            matrix = precision[j * n_features : (j + 1) * n_features]
            np.dot(residuals[k, :m], matrix, products[k, :m])
        done[:] = False
        for p in range(0, n_patterns, LANES):
            size = _density_of_group(work, model, n_features, p, n_patterns)
            for i in range(first[p], first[min(p + LANES, n_patterns)]):
                _set_shares(i, start + i, joint, settings, shares, sums)
                for k in range(n_components):
                    counts[k] += shares[i, k]
                    largest[k] = max(largest[k], shares[i, k])
                    least[k] = no_share * largest[k]
            _add_dense(work, out, size, p, n_patterns, n_read)
        _add_others(work, model, out, m, n_read)


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
    root, inverse_root, corners, y, solution, _ = space
    for start in range(0, order.shape[0], block):
        m = min(block, order.shape[0] - start)
        _read(x, center, order, start, m, rows, listed)
        n_patterns = _patterns(listed, m)
        for k in range(n_components):
            matrix = precision[k * n_features : (k + 1) * n_features]
            _residuals(rows, mean[k], listed, m, residual)
            np.dot(residual[:m], matrix, product[:m])
            for p in range(0, n_patterns, LANES):
                size = _inverses(matrix, listed, p, n_patterns, space)
                for step in range(_most_rows(listed, p, n_patterns)):
                    _half_solve(root, corners, size, product, listed, p, n_patterns, step, y)
                    _complete(
                        inverse_root, size, listed, p, n_patterns, step, y, solution, residual
                    )
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
