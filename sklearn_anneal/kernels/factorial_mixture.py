"""Local step of factorial mixtures: mean-field sweeps, or all combinations of activations.

Arrays have one row per component and one column per data point. The rows of data are the columns
here, so that loops over data points are loops over neighbouring numbers, which the compiler turns
into vector instructions, while sums over components and states keep their order.
"""

from __future__ import annotations

import numpy as np

from ._compile import helper, kernel
from ._math import exp, log
from .simd.rows import squared_distances, subtract_rows

# Number of data points that are processed at a time.
_LANES = 64
# Sweeps over data points until those that have converged are set aside for the first time.
_SWEEPS = 3
# Activations are kept this far from certainty, so that every component can be switched again.
_LARGEST_LOGIT = 30.0
# Factors of at most 2 whose product does not overflow.
_FACTORS = 512


@helper
def _sweep(inputs, gram, x, active, activations, logits, change, drive):
    """Update the activations of all components in turn.

    Where a data point is not active, its activations stay as they are.
    """
    n_components = gram.shape[0]
    change[:] = 0.0
    for k in range(n_components):
        own = gram[k, k]
        for i in range(_LANES):
            drive[i] = inputs[k, i] + own * activations[k, i]
        subtract_rows(gram, k, n_components, activations, drive)
        for i in range(_LANES):
            new = min(max(x[i] * drive[i], -_LARGEST_LOGIT), _LARGEST_LOGIT)
            probability = 1.0 / (1.0 + exp(-new))
            old = activations[k, i]
            move = active[i] > 0.0
            logits[k, i] = new if move else logits[k, i]
            probability = probability if move else old
            change[i] = max(change[i], abs(probability - old))
            activations[k, i] = probability


@helper
def _energies(log_odds, gram, root, activations, out, drive):
    """Σ_k (ν_k ``log_odds``_k − ν_k (1 − ν_k) ``gram``_kk / 2) − ‖``root`` ν‖² / 2."""
    out[:] = 0.0
    for k in range(gram.shape[0]):
        odds, half = log_odds[k], 0.5 * gram[k, k]
        drive[:] = 0.0
        subtract_rows(root, k, k + 1, activations, drive)
        for i in range(_LANES):
            nu = activations[k, i]
            out[i] += nu * (odds - (1.0 - nu) * half) - 0.5 * drive[i] * drive[i]


@helper
def _entropies(logits, activations, out):
    """The sum over components of the entropies of activations, −log max(ν, 1 − ν) + |a| min(…)."""
    product = np.ones(_LANES)
    out[:] = 0.0
    for k in range(logits.shape[0]):
        for i in range(_LANES):
            nu = activations[k, i]
            likely = max(nu, 1.0 - nu)
            product[i] *= likely
            out[i] += abs(logits[k, i]) * (1.0 - likely)
        if k % _FACTORS == _FACTORS - 1:
            for i in range(_LANES):
                out[i] -= log(product[i])
                product[i] = 1.0
    for i in range(_LANES):
        out[i] -= log(product[i])


@kernel("rows matrix matrix vector vector int int float out2 out2 out1 out1", dtypes=("float64",))
def mean_field(
    projections,
    gram,
    root,
    log_odds,
    inverse_temperature,
    relaxed,
    n_sweeps,
    tol,
    logits,
    activations,
    energies,
    entropies,
):
    """Update q(z) of all components in turn, for every data point until it has converged.

    Parameters
    ----------
    projections : array of shape (n_components, n)
        E[μ_k]·x / σ² of every data point x.
    gram : array of shape (n_components, n_components)
        E[μ_k·μ_l] / σ².
    root : array of shape (n_components, n_components)
        A lower triangular matrix R, for which RᵀR is the covariance of the components, summed over
        the columns of the data, divided by σ².
    log_odds : array of shape (n_components,)
        log(π / (1 − π)).
    inverse_temperature : array of shape (n,) or (1,)
    relaxed : int
        1 if ``logits`` has activations at the beginning, which may be any real numbers, instead of
        logits. There must be a sweep then.
    n_sweeps : int
        Largest number of updates of each activation; with 0 the given logits are kept.
    tol : float
        The sweeps over a data point end after one in which no activation has changed by more.
    logits : array of shape (n_components, n)
        Input and output: the logits of the activations.
    activations : array of shape (n_components, n)
        Output: the probabilities ν of the activations.
    energies : array of shape (n,)
        Output: E log p(x, z) without −‖x − Σ_k ν_k E[μ_k]‖² / (2 σ²), and without its constants.
        All terms are sums of squares, which do not cancel.
    entropies : array of shape (n,)
        Output: the entropy of q(z) of every data point in nats.
    """
    n_components, n = projections.shape
    inputs = np.zeros((n_components, _LANES))
    nu = np.zeros((n_components, _LANES))
    a = np.zeros((n_components, _LANES))
    work = np.zeros(_LANES)
    x = np.empty(_LANES)
    change = np.empty(_LANES)
    active = np.empty(_LANES)
    x[:] = inverse_temperature[0]
    for k in range(n_components):
        for i in range(n):
            value = logits[k, i]
            activations[k, i] = value if relaxed else 1.0 / (1.0 + exp(-value))
    # Data points that have not converged are gathered anew after some sweeps, so that one of them
    # does not hold up the others that are processed with it. In the first round they are all there.
    pending = np.arange(n)
    left, done, first = n, 0, True
    while left > 0 and (first or done < n_sweeps):
        sweeps = max(_SWEEPS, done)
        # A last round of few sweeps would not be worth the gathering.
        if done + sweeps + _SWEEPS > n_sweeps:
            sweeps = n_sweeps - done
        found = 0
        for start in range(0, left, _LANES):
            m = min(start + _LANES, left) - start
            if inverse_temperature.shape[0] > 1:
                for i in range(m):
                    x[i] = inverse_temperature[pending[start + i]]
            for k in range(n_components):
                offset = log_odds[k] - 0.5 * gram[k, k]
                if first:
                    for i in range(m):
                        inputs[k, i] = projections[k, start + i] + offset
                        a[k, i] = logits[k, start + i]
                        nu[k, i] = activations[k, start + i]
                else:
                    for i in range(m):
                        j = pending[start + i]
                        inputs[k, i] = projections[k, j] + offset
                        a[k, i] = logits[k, j]
                        nu[k, i] = activations[k, j]
            active[:] = 0.0
            active[:m] = 1.0
            for _ in range(sweeps):
                _sweep(inputs, gram, x, active, nu, a, change, work)
                moving = 0.0
                for i in range(_LANES):
                    active[i] = 1.0 if change[i] > tol else 0.0
                    moving += active[i]
                if moving == 0.0:
                    break
            for k in range(n_components):
                if first:
                    for i in range(m):
                        logits[k, start + i] = a[k, i]
                        activations[k, start + i] = nu[k, i]
                else:
                    for i in range(m):
                        j = pending[start + i]
                        logits[k, j] = a[k, i]
                        activations[k, j] = nu[k, i]
            _energies(log_odds, gram, root, nu, change, work)
            for i in range(m):
                energies[pending[start + i]] = change[i]
            _entropies(a, nu, work)
            for i in range(m):
                entropies[pending[start + i]] = work[i]
            for i in range(m):
                if active[i] > 0.0:
                    pending[found] = pending[start + i]
                    found += 1
        left, first = found, False
        done += sweeps


@kernel("rows matrix matrix vector vector matrix out2 out2 out1 out1", dtypes=("float64",))
def all_states(
    coordinates,
    centers,
    states_by_component,
    constants,
    inverse_temperature,
    weights,
    activations,
    masses,
    energies,
    entropies,
):
    """Compute q(z) of every data point exactly, over all states z in {0, 1}^K.

    Parameters
    ----------
    coordinates : array of shape (r, n)
        Every data point as a point in a space of r dimensions, in units of σ.
    centers : array of shape (n_states, r)
        z·E[μ] of every state z, as a point in the same space.
    states_by_component : array of shape (n_components, n_states)
        All states.
    constants : array of shape (n_states,)
        The part of E log p(x, z) that does not depend on x.
    inverse_temperature : array of shape (n,) or (1,)
    weights : array of shape (n_kinds, n)
        Weights of the data points in ``masses``, of one or several kinds.
    activations : array of shape (n_components, n)
        Output: the probabilities of the activations.
    masses : array of shape (n_kinds, n_states)
        Weighted sums of the probabilities of the states are added to it.
    energies : array of shape (n,)
        Output: the expectation of ``constants`` − ‖``coordinates`` − ``centers``‖² / 2.
    entropies : array of shape (n,)
        Output: the entropy of q(z) in nats.
    """
    n_dimensions, n = coordinates.shape
    n_components, n_states = states_by_component.shape
    n_kinds = weights.shape[0]
    block = np.zeros((n_dimensions, _LANES))
    distance = np.empty(_LANES)
    probabilities = np.empty((n_states, _LANES))
    means = np.empty((n_components, _LANES))
    shares = np.zeros((_LANES, n_kinds))
    mass = np.empty((n_states, n_kinds))
    largest = np.empty(_LANES)
    total = np.empty(_LANES)
    energy = np.empty(_LANES)
    x = np.empty(_LANES)
    x[:] = inverse_temperature[0]
    for start in range(0, n, _LANES):
        m = min(start + _LANES, n) - start
        shares[:] = 0.0
        if inverse_temperature.shape[0] > 1:
            for i in range(m):
                x[i] = inverse_temperature[start + i]
        for j in range(n_dimensions):
            for i in range(m):
                block[j, i] = coordinates[j, start + i]
        largest[:] = -np.inf
        for s in range(n_states):
            # Products would cancel where the components are far larger than the noise.
            squared_distances(centers, s, n_dimensions, block, distance)
            constant = constants[s]
            for i in range(_LANES):
                value = constant - 0.5 * distance[i]
                probabilities[s, i] = value
                largest[i] = max(largest[i], value)
        total[:] = 0.0
        energy[:] = 0.0
        for s in range(n_states):
            for i in range(_LANES):
                difference = probabilities[s, i] - largest[i]
                value = exp(x[i] * difference)
                probabilities[s, i] = value
                total[i] += value
                energy[i] += value * difference
        np.dot(states_by_component, probabilities, means)
        for i in range(m):
            mean_energy = energy[i] / total[i]
            energies[start + i] = largest[i] + mean_energy
            entropies[start + i] = np.log(total[i]) - x[i] * mean_energy
            for j in range(n_kinds):
                shares[i, j] = weights[j, start + i] / total[i]
        for k in range(n_components):
            for i in range(m):
                activations[k, start + i] = means[k, i] / total[i]
        if n_kinds > 0:
            np.dot(probabilities, shares, mass)
        for j in range(n_kinds):
            for s in range(n_states):
                masses[j, s] += mass[s, j]
