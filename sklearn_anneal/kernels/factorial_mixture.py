"""Local step of factorial mixtures: mean-field sweeps, or all combinations of activations.

Arrays have one row per component and one column per data point. The rows of data are the columns
here, so that loops over data points are loops over neighbouring numbers, which the compiler turns
into vector instructions, while sums over components and states keep their order.
"""

from __future__ import annotations

import numpy as np

from ._compile import helper, kernel
from ._math import exp, log

# Number of data points that are processed at a time. Each of them stops when it has converged.
_LANES = 32
# Activations are kept this far from certainty, so that every component can be switched again.
_LARGEST_LOGIT = 30.0
# Factors of at most 2 whose product does not overflow.
_FACTORS = 512


@helper
def _input(projections, gram, k, start, m, activations, out):
    """Write ``projections``_k − Σ_l ``gram``_kl ν_l of some data points to ``out``."""
    n_components = gram.shape[0]
    for i in range(m):
        out[i] = projections[k, start + i]
    j = 0
    while j + 4 <= n_components:
        a, b, c, d = gram[k, j], gram[k, j + 1], gram[k, j + 2], gram[k, j + 3]
        for i in range(_LANES):
            out[i] -= (a * activations[j, i] + b * activations[j + 1, i]) + (
                c * activations[j + 2, i] + d * activations[j + 3, i]
            )
        j += 4
    while j < n_components:
        a = gram[k, j]
        for i in range(_LANES):
            out[i] -= a * activations[j, i]
        j += 1


@helper
def _entropies(logits, out):
    """The sum over components of the entropies of activations with the given logits."""
    product = np.ones(_LANES)
    out[:] = 0.0
    for k in range(logits.shape[0]):
        for i in range(_LANES):
            size = abs(logits[k, i])
            e = exp(-size)
            product[i] *= 1.0 + e
            out[i] += size * e / (1.0 + e)
        if k % _FACTORS == _FACTORS - 1:
            for i in range(_LANES):
                out[i] += log(product[i])
                product[i] = 1.0
    for i in range(_LANES):
        out[i] += log(product[i])


@kernel("rows matrix vector vector int float out2 out2 out1 out1", dtypes=("float64",))
def mean_field(
    projections,
    gram,
    offsets,
    inverse_temperature,
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
        E[μ_k·μ_l] / σ² with a zero diagonal.
    offsets : array of shape (n_components,)
        log(π / (1 − π)) − E[μ_k·μ_k] / (2 σ²).
    inverse_temperature : array of shape (n,) or (1,)
    n_sweeps : int
        Largest number of updates of each activation; with 0 the given logits are kept.
    tol : float
        The sweeps over a data point end after one in which no activation has changed by more.
    logits : array of shape (n_components, n)
        Input and output: the logits of the activations.
    activations : array of shape (n_components, n)
        Output: the probabilities ν of the activations.
    energies : array of shape (n,)
        Output: E[z]·``projections`` + E[z]·``offsets`` − Σ_{k<l} E[z_k z_l] ``gram``_kl.
    entropies : array of shape (n,)
        Output: the entropy of q(z) of every data point in nats.
    """
    n_components, n = projections.shape
    nu = np.zeros((n_components, _LANES))
    a = np.zeros((n_components, _LANES))
    found = np.zeros(_LANES)
    x = np.empty(_LANES)
    change = np.empty(_LANES)
    active = np.empty(_LANES)
    x[:] = inverse_temperature[0]
    for start in range(0, n, _LANES):
        m = min(start + _LANES, n) - start
        if inverse_temperature.shape[0] > 1:
            for i in range(m):
                x[i] = inverse_temperature[start + i]
        for k in range(n_components):
            for i in range(m):
                a[k, i] = logits[k, start + i]
        for k in range(n_components):
            for i in range(_LANES):
                nu[k, i] = 1.0 / (1.0 + exp(-a[k, i]))
        active[:] = 0.0
        active[:m] = 1.0
        for _ in range(n_sweeps):
            change[:] = 0.0
            for k in range(n_components):
                _input(projections, gram, k, start, m, nu, found)
                offset = offsets[k]
                for i in range(_LANES):
                    new = x[i] * (found[i] + offset)
                    new = min(max(new, -_LARGEST_LOGIT), _LARGEST_LOGIT)
                    probability = 1.0 / (1.0 + exp(-new))
                    old = nu[k, i]
                    move = active[i] > 0.0
                    difference = abs(probability - old) * active[i]
                    change[i] = max(change[i], difference)
                    a[k, i] = new if move else a[k, i]
                    nu[k, i] = probability if move else old
            left = 0.0
            for i in range(_LANES):
                active[i] = 1.0 if change[i] > tol else 0.0
                left += active[i]
            if left == 0.0:
                break
        change[:] = 0.0
        for k in range(n_components):
            _input(projections, gram, k, start, m, nu, found)
            offset = offsets[k]
            for i in range(m):
                energy = 0.5 * (found[i] + projections[k, start + i]) + offset
                change[i] += nu[k, i] * energy
        _entropies(a, found)
        for i in range(m):
            energies[start + i] = change[i]
            entropies[start + i] = found[i]
        for k in range(n_components):
            for i in range(m):
                logits[k, start + i] = a[k, i]
                activations[k, start + i] = nu[k, i]


@kernel("rows matrix matrix vector vector matrix out2 out2 out1 out1", dtypes=("float64",))
def all_states(
    projections,
    states,
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
    projections : array of shape (n_components, n)
        E[μ_k]·x / σ² of every data point x.
    states : array of shape (n_states, n_components)
    states_by_component : array of shape (n_components, n_states)
        The same states.
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
        Output: the expectation of ``projections``·z + ``constants``.
    entropies : array of shape (n,)
        Output: the entropy of q(z) in nats.
    """
    n_components, n = projections.shape
    n_states = states.shape[0]
    n_kinds = weights.shape[0]
    block = np.zeros((n_components, _LANES))
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
        for k in range(n_components):
            for i in range(m):
                block[k, i] = projections[k, start + i]
        np.dot(states, block, probabilities)
        largest[:] = -np.inf
        for s in range(n_states):
            constant = constants[s]
            for i in range(_LANES):
                value = probabilities[s, i] + constant
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
        np.dot(probabilities, shares, mass)
        for j in range(n_kinds):
            for s in range(n_states):
                masses[j, s] += mass[s, j]
