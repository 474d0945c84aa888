"""The local step of mixtures whose components give E log p(x, z = k) as an array.

It takes the place of kernels that compute densities, responsibilities and statistics in one loop,
for components that have no such kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..data.units import Rows
from ..families import Natural, Tempering, UnitTemperatures
from ._base import LocalStep, compiled

kernels = partial(compiled, "mixture_steps")

_NOTHING = np.empty(0)
_NO_MATRIX = np.empty((0, 0))
_EVERY_ROW_ALIKE = np.empty(0, dtype=np.int64)
# Largest number of entries of an array of rows and components (or features) in memory at a time.
_ENTRIES = 512 * 1024


class Assigned(NamedTuple):
    """The result of inferring the components of rows.

    Attributes
    ----------
    shares : ndarray of shape (n_rows, n_components)
        The weights with which each row enters the statistics of each component.
    noisy : ndarray of shape (n_rows, n_components) or None
        The same weights times random noise, if that was asked for separately.
    energy : float
        Σ w Σ_k R L, nats.
    entropy : float
        Σ w H[R], nats.
    inverse_temperatures : ndarray of shape (n_rows,) or None
        E[1/T] of each row, if every row has a temperature of its own.
    temperature : float or None
        Σ w T, if every row has a temperature of its own.
    """

    shares: np.ndarray
    noisy: np.ndarray | None
    energy: float
    entropy: float
    inverse_temperatures: np.ndarray | None = None
    temperature: float | None = None


def vector(values: np.ndarray | float | None) -> np.ndarray:
    """Return an array for kernels, which take an empty one as ones."""
    if values is None:
        return _NOTHING
    return np.ascontiguousarray(np.atleast_1d(values), dtype=np.float64)


def responsibilities_step(
    joint: np.ndarray,
    t: Tempering,
    weights: np.ndarray | None = None,
    noise: np.ndarray | None = None,
    separate_noise: bool = False,
) -> Assigned:
    """Infer R ∝ exp{t.local · L} and return the weights of rows in the statistics.

    Parameters
    ----------
    joint : ndarray of shape (n_rows, n_components)
        L, which is E log p(x_n, z_n = k) in nats.
    t : Tempering
        Its ``local`` tempers the responsibilities, and its ``statistics`` multiplies the shares.
    weights : ndarray of shape (n_rows,) or None, default=None
        Sample weights.
    noise : ndarray of shape (n_rows,) or None, default=None
        Random factors of the statistics.
    separate_noise : bool, default=False
        Whether ``shares`` leaves out the noise, which ``noisy`` then includes.

    Returns
    -------
    assigned : Assigned
    """
    shares = np.empty(joint.shape)
    noisy = np.empty(joint.shape) if separate_noise else None
    sums = np.zeros(2)
    kernels().shares_of(
        np.ascontiguousarray(joint, dtype=np.float64),
        vector(t.local),
        vector(t.statistics),
        vector(weights),
        vector(noise),
        shares,
        _NO_MATRIX if noisy is None else noisy,
        sums,
    )
    return Assigned(shares, noisy, float(sums[0]), float(sums[1]))


def locally_tempered_responsibilities_step(
    joint: np.ndarray,
    temperatures: UnitTemperatures,
    log_partition: np.ndarray,
    which: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    noise: np.ndarray | None = None,
) -> Assigned:
    """Infer responsibilities and one temperature per row, in turns.

    Parameters
    ----------
    joint : ndarray of shape (n_rows, n_components)
        L, which is E log p(x_n, z_n = k) in nats.
    temperatures : UnitTemperatures
        The grid of inverse temperatures, which is m/M, m = 1, …, M, and the number of rounds. Its
        ``log_partition`` is not read.
    log_partition : ndarray of shape (n_partitions, M) or (M,)
        log c(x) of a row. It can differ between rows, for example if other cells are missing.
    which : ndarray of int64, shape (n_rows,) or None, default=None
        The row of ``log_partition`` that belongs to each row of the data; None for the first one.
    weights, noise : ndarray of shape (n_rows,) or None, default=None
        Sample weights and random factors of the statistics.

    Returns
    -------
    assigned : Assigned
    """
    partition, reference = partition_polynomials(temperatures.inverse_temperatures, log_partition)
    n_rows = len(joint)
    shares, found, sums = np.empty(joint.shape), np.empty(n_rows), np.zeros(3)
    kernels().locally_tempered_shares_of(
        np.ascontiguousarray(joint, dtype=np.float64),
        partition,
        reference,
        _EVERY_ROW_ALIKE if which is None else np.ascontiguousarray(which, dtype=np.int64),
        temperatures.n_rounds,
        vector(weights),
        vector(noise),
        shares,
        found,
        sums,
    )
    return Assigned(shares, None, float(sums[0]), float(sums[1]), found, float(sums[2]))


def partition_polynomials(
    x: np.ndarray, log_partition: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return 1/c(x) up to a factor, and the energy to which it refers, for each log c(x).

    Kernels evaluate polynomials with these coefficients, whose terms could overflow or underflow.
    Energies are therefore measured from the one at which both ends of the grid have equal weights.

    Returns
    -------
    partition : ndarray of shape (n_partitions, M)
    reference : ndarray of shape (n_partitions,)
    """
    log_partition = np.atleast_2d(log_partition)
    reference = (log_partition[:, -1] - log_partition[:, 0]) / (x[-1] - x[0])
    exponents = x * reference[:, None] - log_partition
    exponents -= exponents.max(axis=1, keepdims=True)
    return np.exp(np.maximum(exponents, -700.0)), reference


class Densities(NamedTuple):
    """The functions of rows that a local step of a mixture consists of.

    Attributes
    ----------
    log_joint : callable
        Maps rows to E log p(x_n, z_n = k), of shape (n_rows, n_components).
    zeros : callable
        Returns raw statistics of zero rows.
    add : callable
        Adds the statistics of rows, given their shares, to raw statistics.
    log_partition : callable or None
        Maps rows to log c(x) of each on the grid of inverse temperatures, (n_rows, M).
    n_components : int
        The number of components, which limits how many rows are in memory at a time.
    """

    log_joint: Callable[[Rows], np.ndarray]
    zeros: Callable[[], Natural]
    add: Callable[[Rows, np.ndarray, Natural], None]
    log_partition: Callable[[Rows], np.ndarray] | None = None
    n_components: int = 1


def mixture_step(
    units: Rows,
    densities: Densities,
    t: Tempering,
    noise: np.ndarray | None = None,
    separate_noise: bool = False,
    temperatures: UnitTemperatures | None = None,
) -> LocalStep:
    """Return the local step of rows, a limited number of which is in memory at a time.

    With ``temperatures``, every row has a temperature of its own, and ``t`` is not read. The other
    arguments are those of :meth:`ConjugateModel.local_step`.
    """
    raw = densities.zeros()
    noisy = densities.zeros() if separate_noise else None
    energy = entropy = total = 0.0
    found = np.empty(units.n_units)
    size = max(_ENTRIES // max(*units.X.shape[1:], densities.n_components, 64), 1)
    for start in range(0, units.n_units, size):
        part = slice(start, min(start + size, units.n_units))
        rows = units.take(part)
        joint = densities.log_joint(rows)
        own = None if noise is None else noise[part]
        if temperatures is None:
            tempering = Tempering(chosen(t.local, part), chosen(t.statistics, part))
            assigned = responsibilities_step(joint, tempering, rows.weights, own, separate_noise)
        else:
            assert densities.log_partition is not None
            partition, each = densities.log_partition(rows), np.arange(len(joint))
            assigned = locally_tempered_responsibilities_step(
                joint, temperatures, partition, each, rows.weights, own
            )
            found[part] = assigned.inverse_temperatures
            total += assigned.temperature or 0.0
        densities.add(rows, assigned.shares, raw)
        if noisy is not None and assigned.noisy is not None:
            densities.add(rows, assigned.noisy, noisy)
        energy += assigned.energy
        entropy += assigned.entropy
    step = LocalStep(raw, energy, entropy, deviation=noisy)
    if temperatures is not None:
        step.temperature, step.inverse_temperatures = total, found
    return step


def chosen(values: Any, index: Any) -> Any:
    """Return the values of some rows, or the value itself if it is one for all rows, or None."""
    return values if values is None or np.size(values) == 1 else values[index]
