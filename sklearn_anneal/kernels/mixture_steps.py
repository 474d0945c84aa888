"""Responsibilities of mixtures, given the expected log joint density of rows and components.

The exponentials of a block of rows lie next to each other, so that they become vector instructions
whatever the number of components is.
"""

from __future__ import annotations

import numpy as np

from ._compile import helper, kernel
from ._math import digamma, exp
from .divergence import _growth

# Rows per block: a block and its exponentials stay in the fastest caches.
BLOCK = 128


@helper
def differences_from_maximum(joint, start, stop, maximum, out):
    """For each row, the largest entry, and the difference of each entry from it."""
    for i in range(start, stop):
        row = joint[i]
        most = row[0]
        for k in range(1, row.shape[0]):
            most = max(most, row[k])
        maximum[i - start] = most
        target = out[i - start]
        for k in range(row.shape[0]):
            target[k] = row[k] - most


@helper
def exponentials(differences, x, m, out):
    """exp{x d} of the first m rows; x has one entry per row."""
    n_components = differences.shape[1]
    for i in range(m):
        row = differences[i]
        target = out[i]
        factor = x[i]
        for k in range(n_components):
            target[k] = factor * row[k]
    flat = out.reshape(out.size)
    for i in range(m * n_components):
        flat[i] = exp(flat[i])


@helper
def sums_of_rows(exponentials, differences, m, total, energy):
    """For each row, the sum of the exponentials, and of the differences weighted by them."""
    for i in range(m):
        row = exponentials[i]
        other = differences[i]
        sum_of_row = 0.0
        sum_of_energy = 0.0
        for k in range(row.shape[0]):
            sum_of_row += row[k]
            sum_of_energy += row[k] * other[k]
        total[i] = sum_of_row
        energy[i] = sum_of_energy / sum_of_row


@helper
def _scaled(row, factor, out):
    for k in range(row.shape[0]):
        out[k] = row[k] * factor


@kernel("rows vector vector vector vector out2 out2 out1", dtypes=("float64",))
def shares_of(joint, inverse_temperature, factor, weights, noise, shares, noisy, sums):
    """Compute tempered responsibilities and the weights with which rows enter the statistics.

    Parameters
    ----------
    joint : array of shape (n, n_components)
        L, the expected log joint density.
    inverse_temperature : array of shape (n,) or (1,)
    factor : array of shape (n,) or (1,)
        Factor of the statistics.
    weights : array of shape (n,) or (0,)
        Weights of the rows in statistics and sums; if empty, all are 1.
    noise : array of shape (n,) or (0,)
        A further factor of the statistics, not of the sums; if empty, all are 1.
    shares : array of shape (n, n_components)
        Output: the responsibilities times all factors. If ``noisy`` is not empty, the noise is
        left out.
    noisy : array of shape (n, n_components) or (0, 0)
        Output: ``shares`` times the noise.
    sums : array of shape (2,)
        Receives Σ w Σ_k R L and Σ w H[R].
    """
    n, n_components = joint.shape
    differences = np.empty((BLOCK, n_components))
    work = np.empty((BLOCK, n_components))
    maximum = np.empty(BLOCK)
    total = np.empty(BLOCK)
    energy = np.empty(BLOCK)
    temperature = np.empty(BLOCK)
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        m = stop - start
        for i in range(m):
            x = inverse_temperature
            temperature[i] = x[start + i] if x.shape[0] > 1 else x[0]
        differences_from_maximum(joint, start, stop, maximum, differences)
        exponentials(differences, temperature, m, work)
        sums_of_rows(work, differences, m, total, energy)
        for i in range(m):
            w = weights[start + i] if weights.shape[0] > 0 else 1.0
            sums[0] += w * (maximum[i] + energy[i])
            sums[1] += w * (np.log(total[i]) - temperature[i] * energy[i])
            f = factor[start + i] if factor.shape[0] > 1 else factor[0]
            e = noise[start + i] if noise.shape[0] > 0 else 1.0
            scale = w * f / total[i]
            if noisy.shape[0] > 0:
                _scaled(work[i], scale, shares[start + i])
                _scaled(work[i], scale * e, noisy[start + i])
            else:
                _scaled(work[i], scale * e, shares[start + i])


@helper
def _expected_inverse_temperature(energy, reference, coefficients, slope):
    """E_r[x] with r_m ∝ a_m z^m and z = exp{(energy - reference)/M}, by two Horner recursions."""
    n = coefficients.shape[0]
    z = exp(min(slope * (energy - reference), 600.0 * slope))
    norm = coefficients[n - 1]
    mean = coefficients[n - 1] * n
    for j in range(n - 2, -1, -1):
        a = coefficients[j]
        norm = norm * z + a
        mean = mean * z + a * (j + 1)
    return mean / (norm * n)


@kernel("rows matrix vector pointer int vector vector out2 out1 out1", dtypes=("float64",))
def locally_tempered_shares_of(
    joint,
    partition,
    reference,
    which,
    n_rounds,
    weights,
    noise,
    shares,
    inverse_temperatures,
    sums,
):
    """:func:`shares_of` where every row has a temperature of its own.

    Parameters
    ----------
    partition : array of shape (n_partitions, n_temperatures)
        π_m exp{x_m reference − log c(x_m)} for x_m = m / n_temperatures, m = 1, 2, …
    reference : array of shape (n_partitions,)
        Energies (nats) to which the rows of ``partition`` refer.
    which : array of shape (n,) or (0,)
        The row of ``partition`` that belongs to each row; if empty, it is the first one.
    n_rounds : int
        Number of rounds in which q(z) and r are updated in turns, from a uniform r.
    inverse_temperatures : array of shape (n,)
        Output: E_r[x] of every row.
    sums : array of shape (3,)
        Receives Σ w Σ_k R L, Σ w H[R] and Σ w / E_r[x].
    """
    n, n_components = joint.shape
    n_temperatures = partition.shape[1]
    slope = 1.0 / n_temperatures
    differences = np.empty((BLOCK, n_components))
    work = np.empty((BLOCK, n_components))
    maximum = np.empty(BLOCK)
    total = np.empty(BLOCK)
    energy = np.empty(BLOCK)
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        m = stop - start
        temperature = np.full(BLOCK, 0.5 * (1.0 + slope))
        differences_from_maximum(joint, start, stop, maximum, differences)
        for _ in range(n_rounds):
            exponentials(differences, temperature, m, work)
            sums_of_rows(work, differences, m, total, energy)
            for i in range(m):
                c = which[start + i] if which.shape[0] > 0 else 0
                temperature[i] = _expected_inverse_temperature(
                    maximum[i] + energy[i], reference[c], partition[c], slope
                )
        exponentials(differences, temperature, m, work)
        sums_of_rows(work, differences, m, total, energy)
        for i in range(m):
            inverse_temperatures[start + i] = temperature[i]
            w = weights[start + i] if weights.shape[0] > 0 else 1.0
            sums[0] += w * (maximum[i] + energy[i])
            sums[1] += w * (np.log(total[i]) - temperature[i] * energy[i])
            sums[2] += w / temperature[i]
            e = noise[start + i] if noise.shape[0] > 0 else 1.0
            _scaled(work[i], w * e * temperature[i] / total[i], shares[start + i])


@kernel("values vector out_rows", dtypes=("float64",))
def stick_logs(a, b, logs):
    """Compute the expected logarithms of sticks v ~ Beta(a, b), and of the weights they make.

    Parameters
    ----------
    a, b : arrays of shape (n_components,)
    logs : array of shape (3, n_components)
        Receives E log v_k, E log(1 - v_k), and E log π_k = E log v_k + Σ_{j<k} E log(1 - v_j).
    """
    rest = 0.0
    for k in range(a.shape[0]):
        total = digamma(a[k] + b[k])
        logs[0, k] = digamma(a[k]) - total
        logs[1, k] = digamma(b[k]) - total
        logs[2, k] = logs[0, k] + rest
        rest += logs[1, k]


@kernel("values vector vector vector matrix out1", dtypes=("float64",))
def stick_divergence(a, b, prior_a, prior_b, logs, found):
    """Compute KL(q || p) of sticks.

    Parameters
    ----------
    a, b, prior_a, prior_b : arrays of shape (n_components,)
        The parameters of q and of p.
    logs : array of shape (3, n_components)
        The result of :func:`stick_logs` for q.
    found : array of shape (2,)
        Receives the sum of the divergences, and the largest sum of both parameters.
    """
    result = strongest = 0.0
    for k in range(a.shape[0]):
        total, total_of_prior = a[k] + b[k], prior_a[k] + prior_b[k]
        result += (a[k] - prior_a[k]) * logs[0, k] - _growth(a[k], prior_a[k])
        if b[k] != prior_b[k]:
            result += (b[k] - prior_b[k]) * logs[1, k] - _growth(b[k], prior_b[k])
        result += _growth(total, total_of_prior)
        strongest = max(strongest, total, total_of_prior)
    found[0] = result
    found[1] = strongest


@kernel("values vector float float float out1", dtypes=("float64",))
def stick_concentration(a, b, concentration, least, most, found):
    """Find the concentration of a Dirichlet process for which the bound of its sticks is highest.

    Given the rows n_k of the components and r_k of those after them, the bound has the terms
    log α + log Γ(α + r_k) - log Γ(α + r_k + 1 + n_k), which are concave in log α. If their sum is
    highest at a limit of α, steps for fixed q would be ever shorter on the way there. Else the step
    goes to K / -Σ_k E log(1 - v_k), which is best for fixed q.

    Parameters
    ----------
    a, b : arrays of shape (n_components,)
        The parameters of the sticks, the last of which takes all that is left and does not count.
    concentration : float
        α now.
    least, most : float
        The limits of α.
    found : array of shape (1,)
        Receives α.
    """
    n, at_least, at_most, logs = a.shape[0] - 1, 0.0, 0.0, 0.0
    for k in range(n):
        rest = b[k] - concentration
        at_least += 1.0 / least + digamma(least + rest) - digamma(least + rest + a[k])
        at_most += 1.0 / most + digamma(most + rest) - digamma(most + rest + a[k])
        logs += digamma(b[k]) - digamma(a[k] + b[k])
    if at_least <= 0.0:
        found[0] = least
    elif at_most >= 0.0 or -logs * most <= n:
        found[0] = most
    else:
        found[0] = max(n / -logs, least)
