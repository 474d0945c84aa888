"""Moments of Dirichlet, beta and gamma distributions, and their divergences given the moments.

    KL(q || p) = Σ_v (q_v - p_v) E log x_v - log B(q) + log B(p),
    log B(q) = Σ_v log Γ(q_v) - log Γ(Σ_v q_v).

Where a parameter is the same in q and p, nothing is added, so that the divergence of a distribution
from itself is exactly 0. All columns of a table are one call, because the interpreter needs more
time for an operation on each column than a table of few rows takes. The plain forms are in
``families/dirichlet.py``, ``families/beta.py`` and ``families/gamma.py``.
"""

from __future__ import annotations

from ._compile import called, kernel
from ._math import digamma, log, log_gamma


@called
def _term(q, p, of_p, log):
    """(q - p) E log x - log Γ(q) + log Γ(p), given log Γ(p)."""
    return (q - p) * log - (log_gamma(q) - of_p) if q != p else 0.0


@called
def _growth(q, p):
    """log Γ(q) - log Γ(p)."""
    return log_gamma(q) - log_gamma(p) if q != p else 0.0


@kernel("rows pointer out2", dtypes=("float64",))
def dirichlet_logs(concentrations, first_level, logs):
    """Compute E log x of Dirichlet distributions, one for each row and column.

    Parameters
    ----------
    concentrations : array of shape (n_rows, n_levels)
        Those of all levels of all columns.
    first_level : array of shape (n_columns + 1,)
        Where the levels of each column begin.
    logs : array of shape (n_levels, n_rows)
    """
    for row in range(concentrations.shape[0]):
        own = concentrations[row]
        for column in range(first_level.shape[0] - 1):
            first, end = first_level[column], first_level[column + 1]
            total = 0.0
            for level in range(first, end):
                total += own[level]
            of_total = digamma(total)
            for level in range(first, end):
                logs[level, row] = digamma(own[level]) - of_total


@kernel("rows matrix matrix pointer out1", dtypes=("float64",))
def dirichlet_divergence(q, p, logs, first_level, found):
    """Compute KL(q || p) of Dirichlet distributions, one for each row and column.

    Parameters
    ----------
    q, p : arrays of shape (n_rows, n_levels)
        Concentrations of all levels of all columns.
    logs : array of shape (n_levels, n_rows)
        E log x under q.
    first_level : array of shape (n_columns + 1,)
        Where the levels of each column begin.
    found : array of shape (2,)
        Receives the sum of the divergences, and the largest sum of the concentrations of one of the
        distributions.
    """
    result = strongest = 0.0
    # Priors have few different numbers.
    last, of_last = 1.0, 0.0
    last_total, of_last_total = 1.0, 0.0
    for row in range(q.shape[0]):
        for column in range(first_level.shape[0] - 1):
            total_q = total_p = own = 0.0
            for level in range(first_level[column], first_level[column + 1]):
                if p[row, level] != last:
                    last = p[row, level]
                    of_last = log_gamma(last)
                total_q += q[row, level]
                total_p += last
                own += _term(q[row, level], last, of_last, logs[level, row])
            if total_q != total_p:
                if total_p != last_total:
                    last_total = total_p
                    of_last_total = log_gamma(last_total)
                own += log_gamma(total_q) - of_last_total
            result += own
            strongest = max(strongest, total_q, total_p)
    found[0] = result
    found[1] = strongest


@kernel("rows matrix out2", dtypes=("float64",))
def beta_logs(a, b, logs):
    """Compute E log(1 - v) and E log v of numbers v ~ Beta(a, b).

    Parameters
    ----------
    a, b : arrays of shape (n_rows, n_columns)
    logs : array of shape (2 * n_columns, n_rows)
        Receives both logarithms of each column, one after the other.
    """
    for row in range(a.shape[0]):
        for column in range(a.shape[1]):
            of_total = digamma(a[row, column] + b[row, column])
            logs[2 * column, row] = digamma(b[row, column]) - of_total
            logs[2 * column + 1, row] = digamma(a[row, column]) - of_total


@kernel("rows matrix matrix matrix matrix out1", dtypes=("float64",))
def beta_divergence(a, b, prior_a, prior_b, logs, found):
    """Compute KL(q || p) of beta distributions of numbers v, one for each row and column.

    Parameters
    ----------
    a, b, prior_a, prior_b : arrays of shape (n_rows, n_columns)
        The parameters of q and of p.
    logs : array of shape (2 * n_columns, n_rows)
        The result of :func:`beta_logs` for q.
    found : array of shape (2,)
        Receives the sum over entries, and the largest sum of both parameters.
    """
    result = strongest = 0.0
    for j in range(a.shape[1]):
        # Priors are the same for many rows.
        last_a = last_b = 1.0
        of_last_a = of_last_b = of_last_total = 0.0
        for i in range(a.shape[0]):
            if prior_a[i, j] != last_a or prior_b[i, j] != last_b:
                last_a, last_b = prior_a[i, j], prior_b[i, j]
                of_last_a, of_last_b = log_gamma(last_a), log_gamma(last_b)
                of_last_total = log_gamma(last_a + last_b)
            total_q, total_p = a[i, j] + b[i, j], last_a + last_b
            result += _term(a[i, j], last_a, of_last_a, logs[2 * j + 1, i])
            result += _term(b[i, j], last_b, of_last_b, logs[2 * j, i])
            if total_q != total_p:
                result += log_gamma(total_q) - of_last_total
            strongest = max(strongest, total_q, total_p)
    found[0] = result
    found[1] = strongest


@kernel("rows matrix out2 out2 out1", dtypes=("float64",))
def gamma_moments(shape, rate, logs, negatives, largest):
    """Compute E log x and -E x of gamma distributions.

    Parameters
    ----------
    shape, rate : arrays of shape (n_rows, n_columns)
    logs, negatives : arrays of shape (n_rows, n_columns)
        Receive E log x and -E x.
    largest : array of shape (1,)
        Receives the largest E x.
    """
    most = 0.0
    for i in range(shape.shape[0]):
        for j in range(shape.shape[1]):
            mean = shape[i, j] / rate[i, j]
            most = max(most, mean)
            negatives[i, j] = -mean
            logs[i, j] = digamma(shape[i, j]) - log(rate[i, j])
    largest[0] = most


@kernel("rows matrix matrix matrix matrix out1", dtypes=("float64",))
def gamma_divergence(shape, rate, prior_shape, prior_rate, logs, found):
    """Compute KL(q || p) of gamma distributions, one for each row and column.

    Parameters
    ----------
    shape, rate, prior_shape, prior_rate : arrays of shape (n_rows, n_columns)
        The parameters of q and of p.
    logs : array of shape (n_rows, n_columns)
        E log x under q.
    found : array of shape (2,)
        Receives the sum over entries, and the largest shape.
    """
    result = strongest = 0.0
    for j in range(shape.shape[1]):
        # Priors are the same for many rows.
        last_a = last_b = 1.0
        of_last_a = of_last_b = 0.0
        for i in range(shape.shape[0]):
            if prior_shape[i, j] != last_a:
                last_a = prior_shape[i, j]
                of_last_a = log_gamma(last_a)
            if prior_rate[i, j] != last_b:
                last_b = prior_rate[i, j]
                of_last_b = log(last_b)
            a, b = shape[i, j], rate[i, j]
            result += _term(a, last_a, of_last_a, logs[i, j])
            if a != last_a or b != last_b:
                result += a * log(b) - last_a * of_last_b + (last_b - b) * (a / b)
            strongest = max(strongest, a, last_a)
    found[0] = result
    found[1] = strongest
