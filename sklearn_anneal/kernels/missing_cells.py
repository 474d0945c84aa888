"""Gaussian components of rows with missing cells, when precision matrices are full.

Given its component, a row x has the observed cells x_o and the missing cells x_m. With the mean m
and the precision P of the component, the missing cells have the distribution
N(m_m − P_mm⁻¹ P_mo (x_o − m_o), P_mm⁻¹), and the observed ones have the squared distance
(x_o − m_o)ᵀ (P_oo − P_om P_mm⁻¹ P_mo) (x_o − m_o). With v = P (x_o − m_o, 0) and P_mm = L Lᵀ, this
distance is (x_o − m_o)ᵀ v_o − |L⁻¹ v_m|².

Rows are read in a given order. If rows with the same missing cells follow each other, P_mm is
factorised once for all of them (at least once in every block of rows).
"""

from __future__ import annotations

import numpy as np

from ._compile import helper, kernel


@helper
def _read(x, center, order, start, m, rows, missing, n_missing, fresh):
    """Read m rows relative to the center; missing cells are 0 and their columns are listed.

    ``fresh`` is set to 1 where a row has other missing cells than the row before it.
    """
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
        fresh[i] = 0 if same else 1


@helper
def _residuals(rows, mean, missing, n_missing, m, out):
    for i in range(m):
        for d in range(mean.shape[0]):
            out[i, d] = rows[i, d] - mean[d]
        for j in range(n_missing[i]):
            out[i, missing[i, j]] = 0.0


@helper
def _factorise(precision, columns, count, root):
    """Write the Cholesky factor of P_mm to ``root`` and return log|P_mm|.

    Above the diagonal is its transpose. In the inner loop, the numbers that change are neighbours
    and do not depend on each other, so that a processor changes several at once.
    """
    log_det = 0.0
    for a in range(count):
        for b in range(a + 1):
            root[a, b] = precision[columns[a], columns[b]]
    for b in range(count):
        log_det += np.log(root[b, b])
        root[b, b] = np.sqrt(root[b, b])
        for a in range(b + 1, count):
            root[a, b] /= root[b, b]
            root[b, a] = root[a, b]
        for a in range(b + 1, count):
            factor = root[a, b]
            for c in range(b + 1, a + 1):
                root[a, c] -= factor * root[b, c]
    return log_det


@helper
def _invert(root, count, work, out):
    """Write P_mm⁻¹, given its Cholesky factor, to the lower triangle of ``out``."""
    for a in range(count):
        for b in range(a):
            work[a, b] = 0.0
        for c in range(a):
            factor = root[a, c]
            for b in range(c + 1):
                work[a, b] -= factor * work[c, b]
        for b in range(a):
            work[a, b] /= root[a, a]
        work[a, a] = 1.0 / root[a, a]
    for a in range(count):
        for b in range(a + 1):
            out[a, b] = 0.0
        for c in range(a, count):
            factor = work[c, a]
            for b in range(a + 1):
                out[a, b] += factor * work[c, b]


@helper
def _half_solve(root, product, columns, count, y):
    """Solve L y = v_m and return |y|²."""
    square = 0.0
    for a in range(count):
        value = product[columns[a]]
        for c in range(a):
            value -= root[a, c] * y[c]
        y[a] = value / root[a, a]
        square += y[a] * y[a]
    return square


@helper
def _complete(root, columns, count, y, residual):
    """Write −P_mm⁻¹ v_m, the expected deviation of missing cells, to the residual of a row."""
    for a in range(count - 1, -1, -1):
        value = y[a]
        for c in range(a + 1, count):
            value -= root[a, c] * y[c]
        y[a] = value / root[a, a]
        residual[columns[a]] = -y[a]


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
    missing = np.empty((block, n_features), dtype=np.int64)
    n_missing = np.empty(block, dtype=np.int64)
    fresh = np.empty(block, dtype=np.int64)
    root = np.empty((n_features, n_features))
    y = np.empty(n_features)
    for start in range(0, order.shape[0], block):
        m = min(block, order.shape[0] - start)
        _read(x, center, order, start, m, rows, missing, n_missing, fresh)
        for k in range(n_components):
            matrix = precision[k * n_features : (k + 1) * n_features]
            _residuals(rows, mean[k], missing, n_missing, m, residual)
            np.dot(residual[:m], matrix, product[:m])
            log_det = 0.0
            for i in range(m):
                count = n_missing[i]
                if fresh[i] == 1:
                    log_det = _factorise(matrix, missing[i], count, root)
                distance = 0.0
                for d in range(n_features):
                    distance += residual[i, d] * product[i, d]
                distance -= _half_solve(root, product[i], missing[i], count, y)
                distances[start + i, k] = max(distance, 0.0)
                log_dets[start + i, k] = log_det


@kernel("rows vector pointer matrix matrix matrix int out2 out2 out1")
def add_moments(x, center, order, precision, mean, shares, block, second, first, count):
    """Add the moments of completed rows about the means of their components.

    The first arguments are those of :func:`marginals`.

    Parameters
    ----------
    shares : array of shape (n_read, n_components)
        The weight R of each row for each component.
    second : array of shape (n_components * n_features, n_features)
        Receives Σ R E (x − m)(x − m)ᵀ.
    first : array of shape (n_components, n_features)
        Receives Σ R E (x − m).
    count : array of shape (n_components,)
        Receives Σ R.
    """
    n_components, n_features = mean.shape
    rows = np.empty((block, n_features))
    residual = np.empty((block, n_features))
    product = np.empty((block, n_features))
    square = np.empty((n_features, n_features))
    missing = np.empty((block, n_features), dtype=np.int64)
    n_missing = np.empty(block, dtype=np.int64)
    fresh = np.empty(block, dtype=np.int64)
    root = np.empty((n_features, n_features))
    work = np.empty((n_features, n_features))
    inverse = np.empty((n_features, n_features))
    y = np.empty(n_features)
    for start in range(0, order.shape[0], block):
        m = min(block, order.shape[0] - start)
        _read(x, center, order, start, m, rows, missing, n_missing, fresh)
        for k in range(n_components):
            matrix = precision[k * n_features : (k + 1) * n_features]
            target = second[k * n_features : (k + 1) * n_features]
            _residuals(rows, mean[k], missing, n_missing, m, residual)
            np.dot(residual[:m], matrix, product[:m])
            share, factorised = 0.0, False
            for i in range(m):
                columns, number = missing[i], n_missing[i]
                if fresh[i] == 1:
                    share, factorised = 0.0, False
                r = shares[start + i, k]
                if r != 0.0:
                    if not factorised:
                        _factorise(matrix, columns, number, root)
                        factorised = True
                    _half_solve(root, product[i], columns, number, y)
                    _complete(root, columns, number, y, residual[i])
                share += r
                count[k] += r
                for d in range(n_features):
                    first[k, d] += r * residual[i, d]
                    product[i, d] = r * residual[i, d]
                if (i + 1 == m or fresh[i + 1] == 1) and share != 0.0:
                    _invert(root, number, work, inverse)
                    for a in range(number):
                        for b in range(a):
                            target[columns[a], columns[b]] += share * inverse[a, b]
                            target[columns[b], columns[a]] += share * inverse[a, b]
                        target[columns[a], columns[a]] += share * inverse[a, a]
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
    missing = np.empty((block, n_features), dtype=np.int64)
    n_missing = np.empty(block, dtype=np.int64)
    fresh = np.empty(block, dtype=np.int64)
    root = np.empty((n_features, n_features))
    work = np.empty((n_features, n_features))
    inverse = np.empty((n_features, n_features))
    y = np.empty(n_features)
    for start in range(0, order.shape[0], block):
        m = min(block, order.shape[0] - start)
        _read(x, center, order, start, m, rows, missing, n_missing, fresh)
        for k in range(n_components):
            matrix = precision[k * n_features : (k + 1) * n_features]
            _residuals(rows, mean[k], missing, n_missing, m, residual)
            np.dot(residual[:m], matrix, product[:m])
            for i in range(m):
                columns, number = missing[i], n_missing[i]
                if fresh[i] == 1:
                    _factorise(matrix, columns, number, root)
                    _invert(root, number, work, inverse)
                _half_solve(root, product[i], columns, number, y)
                _complete(root, columns, number, y, residual[i])
                r = shares[start + i, k]
                for d in range(n_features):
                    value = residual[i, d] + mean[k, d]
                    deviation = value - reference[start + i, d]
                    means[start + i, d] += r * value
                    squares[start + i, d] += r * deviation * deviation
                if r > 0.0:
                    for a in range(number):
                        variance = factors[start + i, k] * inverse[a, a]
                        squares[start + i, columns[a]] += r * variance
