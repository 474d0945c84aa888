"""Log densities and statistics of rows of discrete columns, dense or sparse.

Several columns of a dense row are packed into one code. A table has an entry for every value of a
code, with the sums over its columns for all components. A row is thus processed with one sum of K
numbers per code instead of one per column.

Statistics are found in the opposite direction: the weights of the rows are added to the entries of
such a table, and its entries are then added to the levels of the columns that they stand for.
"""

from __future__ import annotations

import numpy as np

from ._compile import CODES, called, helper, kernel
from ._math import deviance, factorial_rest, log
from .mixture_steps import BLOCK, exponentials
from .simd.rows import add_to_rows, subtract_maxima, sum_rows, sums_and_products

# The log weight of the columns that are padding: their responsibilities are zero.
_NEVER = -1e300


@helper
def _locate(codes, i, begins, n_columns, starts):
    """Find the positions in the table at which the entries of a row's codes begin."""
    for g in range(codes.shape[1]):
        starts[g] = (begins[g] + np.int64(codes[i, g])) * n_columns


@kernel("rows pointer matrix out2", dtypes=CODES)
def log_density(codes, begins, table, out):
    """Sum the table's entries of each row.

    Parameters
    ----------
    codes : array of shape (n, n_codes)
    begins : array of shape (n_codes + 1,)
        Where the entries of each code begin in the table.
    table : array of shape (n_entries, n_padded)
        Columns beyond n_components are padding, up to a multiple of 4.
    out : array of shape (n, n_components)
    """
    n, n_codes = codes.shape
    n_components, n_padded = out.shape[1], table.shape[1]
    starts = np.empty(n_codes, dtype=np.int64)
    nothing, sums = np.zeros(n_padded), np.empty((1, n_padded))
    for i in range(n):
        _locate(codes, i, begins, n_padded, starts)
        sum_rows(nothing, table, starts, n_codes, sums, 0)
        row = out[i]
        for k in range(n_components):
            row[k] = sums[0, k]


@kernel("rows pointer matrix out2", dtypes=CODES)
def add_shares(codes, begins, shares, table):
    """Add the shares of each row, of shape (n, n_components), to the table's entries of its codes.

    The arguments are those of :func:`log_density`, but the table is the output.
    """
    n, n_codes = codes.shape
    n_components, n_padded = shares.shape[1], table.shape[1]
    starts = np.empty(n_codes, dtype=np.int64)
    padded = np.zeros((1, n_padded))
    for i in range(n):
        _locate(codes, i, begins, n_padded, starts)
        row = shares[i]
        for k in range(n_components):
            padded[0, k] = row[k]
        add_to_rows(padded, 0, 1.0, starts, n_codes, table)


@kernel("rows pointer pointer pointer pointer out2", dtypes=("float64",))
def fill_table(levels, first_level, radices, first_column, begins, table):
    """Fill a table with sums over the columns of each code.

    Parameters
    ----------
    levels : array of shape (n_levels, n_components)
        The numbers to be added up, for all levels of all columns.
    first_level : array of shape (n_columns + 1,)
        Where the levels of each column begin in ``levels``.
    radices : array of shape (n_columns,)
        The number of values of each column within its code: its levels, and one more for missing
        cells if it has any. Missing cells count as zero.
    first_column : array of shape (n_codes + 1,)
        The first column of each code. Columns that come first have the higher place values.
    begins : array of shape (n_codes + 1,)
    table : array of shape (n_entries, n_padded)
    """
    n_components = levels.shape[1]
    table[:, n_components:] = 0.0
    for g in range(begins.shape[0] - 1):
        part = table[begins[g] : begins[g + 1]]
        part[0] = 0.0
        size = 1
        for c in range(first_column[g], first_column[g + 1]):
            radix = radices[c]
            n_levels = first_level[c + 1] - first_level[c]
            # From the last entry to the first, so that no entry is overwritten before it is read.
            for e in range(size - 1, -1, -1):
                for v in range(radix - 1, -1, -1):
                    for k in range(n_components):
                        value = part[e, k]
                        if v < n_levels:
                            value += levels[first_level[c] + v, k]
                        part[e * radix + v, k] = value
            size *= radix


@called
def _collect(table, first_level, radices, first_column, begins, levels):
    """Add the entries of a table to the levels that they stand for; the table is overwritten."""
    width = table.shape[1]
    flat = table.reshape(table.size)
    out = levels.reshape(levels.size)
    for g in range(begins.shape[0] - 1):
        part = flat[begins[g] * width : begins[g + 1] * width]
        size = begins[g + 1] - begins[g]
        for c in range(first_column[g + 1] - 1, first_column[g] - 1, -1):
            radix = radices[c]
            size //= radix
            own = out[first_level[c] * width : first_level[c + 1] * width]
            # The entries of one value of the columns before this one lie next to each other.
            for e in range(size):
                entries = part[e * radix * width : (e + 1) * radix * width]
                for j in range(own.shape[0]):
                    own[j] += entries[j]
                target = part[e * width : (e + 1) * width]
                for k in range(width):
                    target[k] = entries[k]
                for v in range(1, radix):
                    other = entries[v * width : (v + 1) * width]
                    for k in range(width):
                        target[k] += other[k]


@kernel("out_rows pointer pointer pointer pointer out2", dtypes=("float64",))
def collect_levels(table, first_level, radices, first_column, begins, levels):
    """Add the entries of a table to the levels that they stand for; the table is overwritten.

    The arguments are those of :func:`fill_table`, but ``levels``, of shape (n_levels, n_padded), is
    the output.
    """
    _collect(table, first_level, radices, first_column, begins, levels)


@kernel(
    "rows pointer pointer pointer pointer matrix vector vector vector vector vector "
    "out2 out2 out1 out1",
    dtypes=CODES,
)
def local_step(
    codes,
    first_level,
    radices,
    first_column,
    begins,
    table,
    log_weights,
    inverse_temperature,
    factor,
    weights,
    noise,
    out,
    levels,
    count,
    sums,
):
    """Make the whole local step of a mixture: densities, responsibilities and shares.

    It does in one loop what :func:`log_density`, ``mixture_steps.shares_of``, :func:`add_shares`
    and :func:`collect_levels` do one after the other, so that no array of all rows is needed.

    Parameters
    ----------
    codes : array of shape (n, n_codes)
    first_level, radices, first_column, begins : arrays
        As in :func:`fill_table`.
    table : array of shape (n_entries, n_padded)
    log_weights : array of shape (n_components,)
        E log π.
    inverse_temperature, factor, weights, noise : arrays
        As in ``mixture_steps.shares_of``.
    out : array of shape (n_entries, n_padded)
        Memory for the shares of the rows with each entry.
    levels : array of shape (n_levels, n_padded)
        Receives those of the rows that have each level of each column.
    count : array of shape (n_padded,)
        Receives those of all rows.
    sums : array of shape (2,)
        Receives Σ w Σ_k R L and Σ w H[R].
    """
    n, n_codes = codes.shape
    n_components, n_padded = log_weights.shape[0], table.shape[1]
    prior = np.full(n_padded, _NEVER)
    for k in range(n_components):
        prior[k] = log_weights[k]
    out[:] = 0.0
    levels[:] = 0.0
    starts = np.empty((BLOCK, n_codes), dtype=np.int64)
    differences, work = np.zeros((BLOCK, n_padded)), np.zeros((BLOCK, n_padded))
    maximum, total, energy = np.empty(BLOCK), np.ones(BLOCK), np.empty(BLOCK)
    temperature, logs = np.empty(BLOCK), np.empty(BLOCK)
    sum_of_energies = sum_of_entropies = 0.0
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        for i in range(m):
            _locate(codes, start + i, begins, n_padded, starts[i])
            sum_rows(prior, table, starts[i], n_codes, differences, i)
            x = inverse_temperature
            temperature[i] = x[start + i] if x.shape[0] > 1 else x[0]
        subtract_maxima(differences, m, maximum)
        exponentials(differences, temperature, m, work)
        sums_and_products(work, differences, m, total, energy)
        for i in range(m):
            logs[i] = log(total[i])
            energy[i] /= total[i]
        for i in range(m):
            w = weights[start + i] if weights.shape[0] > 0 else 1.0
            sum_of_energies += w * (maximum[i] + energy[i])
            sum_of_entropies += w * (logs[i] - temperature[i] * energy[i])
            f = factor[start + i] if factor.shape[0] > 1 else factor[0]
            e = noise[start + i] if noise.shape[0] > 0 else 1.0
            add_to_rows(work, i, w * f * e / total[i], starts[i], n_codes, out)
    sums[0] += sum_of_energies
    sums[1] += sum_of_entropies
    _collect(out, first_level, radices, first_column, begins, levels)
    # Every row has one of the entries of the first code, whose sum is the first of them now.
    for k in range(n_padded):
        count[k] = out[0, k]


@kernel("values index pointer matrix matrix out2", dtypes=("float64", "float32"))
def add_sparse_log_density(values, columns, indptr, slopes, cells, out):
    """Add x · slope of all entries of each sparse row to ``out``.

    An entry that is NaN is a missing cell, whose constant is subtracted instead.

    Parameters
    ----------
    values, columns, indptr : arrays
        The arrays of a matrix in the format CSR.
    slopes, cells : arrays of shape (n_columns, n_components)
        The coefficients of E log p(x | z) = x · slope + cell of each column.
    out : array of shape (n, n_components)
    """
    n_components = slopes.shape[1]
    for i in range(indptr.shape[0] - 1):
        row = out[i]
        for j in range(indptr[i], indptr[i + 1]):
            x = np.float64(values[j])
            if np.isnan(x):
                constant = cells[columns[j]]
                for k in range(n_components):
                    row[k] -= constant[k]
            else:
                slope = slopes[columns[j]]
                for k in range(n_components):
                    row[k] += x * slope[k]


@kernel("values index pointer matrix out2 out2", dtypes=("float64", "float32"))
def add_sparse_shares(values, columns, indptr, shares, sums, missing):
    """Add up x · share over the entries of sparse rows, and shares over those that are NaN.

    Parameters
    ----------
    values, columns, indptr : arrays
        The arrays of a matrix in the format CSR.
    shares : array of shape (n, n_components)
    sums, missing : arrays of shape (n_columns, n_components)
    """
    n_components = shares.shape[1]
    for i in range(indptr.shape[0] - 1):
        row = shares[i]
        for j in range(indptr[i], indptr[i + 1]):
            x = np.float64(values[j])
            if np.isnan(x):
                entry = missing[columns[j]]
                for k in range(n_components):
                    entry[k] += row[k]
            else:
                entry = sums[columns[j]]
                for k in range(n_components):
                    entry[k] += x * row[k]


@kernel("rows matrix matrix out2", dtypes=("float64",))
def add_large_counts(X, means, excess, out):
    """Add log densities of counts whose rates are so large that differences would lose digits.

    Parameters
    ----------
    X : array of shape (n, n_columns)
        Counts; NaN is a missing cell.
    means, excess : arrays of shape (n_columns, n_components)
        E λ, at least 1e-280, and E log λ - log E λ.
    out : array of shape (n, n_components)
        Receives Σ_d [log Poisson(x; E λ) + x excess].
    """
    n_components = out.shape[1]
    for i in range(X.shape[0]):
        row = out[i]
        for c in range(X.shape[1]):
            x = X[i, c]
            if x != x:
                continue
            rest = factorial_rest(x)
            mean = means[c]
            own = excess[c]
            for k in range(n_components):
                row[k] += x * own[k] - deviance(x, mean[k]) - rest


@kernel("rows vector matrix matrix matrix out2", dtypes=("float64",))
def add_large_clustered_counts(X, shapes, odds, per_count, constants, out):
    """Add log densities of negative binomial counts whose means and shapes r are large.

    Parameters
    ----------
    X : array of shape (n, n_columns)
        Counts; NaN is a missing cell.
    shapes : array of shape (n_columns,)
        r, above 1e5.
    odds, per_count, constants : arrays of shape (n_columns, n_components)
        The odds o of p, and what is added to the log density for each count, and for each cell.
    out : array of shape (n, n_components)
        Receives Σ_d [log NegativeBinomial(x; r, o / (1 + o)) + x per_count + constant].
    """
    n_components = out.shape[1]
    for i in range(X.shape[0]):
        row = out[i]
        for c in range(X.shape[1]):
            x = X[i, c]
            if x != x:
                continue
            r = shapes[c]
            total = x + r
            # Stirling's formula for both log Γ; what depends on p becomes two deviances.
            rest = 0.5 * log(r / total) + (1.0 / total - 1.0 / r) / 12.0 - factorial_rest(x)
            for k in range(n_components):
                o = odds[c, k]
                mean = total / (1.0 + o)
                value = rest - deviance(x, mean) - deviance(r, o * mean)
                row[k] += value + x * per_count[c, k] + constants[c, k]
