"""Kullback-Leibler divergences of Dirichlet and beta distributions, given their expectations.

    KL(q || p) = Σ_v (q_v - p_v) E log x_v - log B(q) + log B(p),
    log B(q) = Σ_v log Γ(q_v) - log Γ(Σ_v q_v).

Where a parameter is the same in q and p, nothing is added, so that the divergence of a distribution
from itself is exactly 0.
"""

from __future__ import annotations

from ._compile import called, kernel
from ._math import digamma, log_gamma


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
    """Compute E log x of Dirichlet distributions, one for each column and component.

    Parameters
    ----------
    concentrations : array of shape (n_levels, n_components)
        Those of all levels of all columns.
    first_level : array of shape (n_columns + 1,)
        Where the levels of each column begin.
    logs : array of shape (n_levels, n_components)
    """
    for column in range(first_level.shape[0] - 1):
        first, end = first_level[column], first_level[column + 1]
        for k in range(concentrations.shape[1]):
            total = 0.0
            for level in range(first, end):
                total += concentrations[level, k]
            of_total = digamma(total)
            for level in range(first, end):
                logs[level, k] = digamma(concentrations[level, k]) - of_total


@kernel("rows matrix matrix pointer out1", dtypes=("float64",))
def dirichlet_divergence(q, p, logs, first_level, found):
    """Compute KL(q || p) of Dirichlet distributions, one for each column and component.

    Parameters
    ----------
    q, p : arrays of shape (n_levels, n_components)
        Concentrations of all levels of all columns.
    logs : array of shape (n_levels, n_components)
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
    for column in range(first_level.shape[0] - 1):
        for k in range(q.shape[1]):
            total_q = total_p = own = 0.0
            for level in range(first_level[column], first_level[column + 1]):
                if p[level, k] != last:
                    last = p[level, k]
                    of_last = log_gamma(last)
                total_q += q[level, k]
                total_p += last
                own += _term(q[level, k], last, of_last, logs[level, k])
            result += own + _growth(total_q, total_p)
            strongest = max(strongest, total_q, total_p)
    found[0] = result
    found[1] = strongest


@kernel("rows matrix matrix matrix matrix matrix out1", dtypes=("float64",))
def beta_divergence(a, b, prior_a, prior_b, logs, logs_of_rest, found):
    """Compute KL(q || p) of beta distributions of numbers v, one per entry.

    Parameters
    ----------
    a, b, prior_a, prior_b : arrays of shape (n, m)
        The parameters of q and of p.
    logs, logs_of_rest : arrays of shape (n, m)
        E log v and E log(1 - v) under q.
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
            result += _term(a[i, j], last_a, of_last_a, logs[i, j])
            result += _term(b[i, j], last_b, of_last_b, logs_of_rest[i, j])
            if total_q != total_p:
                result += log_gamma(total_q) - of_last_total
            strongest = max(strongest, total_q, total_p)
    found[0] = result
    found[1] = strongest
