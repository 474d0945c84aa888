"""The local step of mixtures whose components give E log p(x, z = k) as an array.

It takes the place of kernels that compute densities, responsibilities and statistics in one loop,
for components that have no such kernel.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..families import Tempering, UnitTemperatures
from ._base import compiled, vector

kernels = partial(compiled, "mixture_steps")

_NO_MATRIX = np.empty((0, 0))
_EVERY_ROW_ALIKE = np.empty(0, dtype=np.int64)


# Largest number of entries of an array of rows and components (or features) in memory at a time.
_ENTRIES = 512 * 1024


def rows_at_a_time(n_features: int, n_components: int) -> int:
    """Return the number of rows whose log joint densities are in memory at a time."""
    return max(_ENTRIES // max(n_features, n_components, 64), 1)


def values_at(values: Any, index: np.ndarray | slice) -> Any:
    """Return the values of some rows, or the value itself if it is one for all rows, or None."""
    return values if values is None or np.size(values) == 1 else values[index]


class Assigned(NamedTuple):
    """The result of inferring the components of rows."""

    # The weights with which each row enters the statistics of each component,
    # (n_rows, n_components).
    shares: np.ndarray
    # The same weights times random noise, if ``separate_noise`` keeps it apart,
    # (n_rows, n_components).
    noisy: np.ndarray | None
    energy: float  # Σ w Σ_k R L, nats
    entropy: float  # Σ w H[R], nats
    # E[1/T] of each row, if every row has a temperature of its own, (n_rows,).
    inverse_temperatures: np.ndarray | None = None
    temperature: float | None = None  # Σ w T, if every row has a temperature of its own


def responsibilities_step(
    joint: np.ndarray,
    t: Tempering,
    weights: np.ndarray | None = None,
    noise: np.ndarray | None = None,
    separate_noise: bool = False,
) -> Assigned:
    """Infer R ∝ exp{t.local · L} and return the weights of rows in the statistics.

    ``joint`` has L, E log p(x_n, z_n = k) in nats. ``t.statistics``, the sample ``weights`` and the
    ``noise``, random factors of the rows, multiply the shares, of which ``noisy`` alone has the
    noise with ``separate_noise``.
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

    The grid of inverse temperatures is m/M, m = 1, …, M, and ``log_partition``, (n_partitions, M)
    or (M,), has log c(x) of a row, not ``temperatures``: it can differ between rows, for example if
    other cells are missing. ``which`` (n_rows,) has the row of it that belongs to each row of the
    data; None stands for the first one. The other arguments are those of
    :func:`responsibilities_step`.
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
    The shapes are (n_partitions, M) and (n_partitions,).
    """
    log_partition = np.atleast_2d(log_partition)
    reference = (log_partition[:, -1] - log_partition[:, 0]) / (x[-1] - x[0])
    exponents = x * reference[:, None] - log_partition
    exponents -= exponents.max(axis=1, keepdims=True)
    return np.exp(np.maximum(exponents, -700.0)), reference
