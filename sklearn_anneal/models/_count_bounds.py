"""The lower bound of gamma-process factorisation for rows of large counts.

The terms of such rows are small differences of large numbers: the logarithm of a factorial is
subtracted from x times the logarithm of an expected count, and the entropy of activations from
their prior. Here each pair is evaluated as one term.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.units import DenseCounts, SparseCounts
from ..families import Natural, digamma_excess, gamma_divergence
from ._base import compiled

if TYPE_CHECKING:
    from ._count_visits import Activations, CountsVisit

kernels = partial(compiled, "gamma_process_nmf")

# The bound of a row with a larger sum than this would be wrong by more than about 1e-8 nats.
_LARGE_ROW = 1e6
# Rows are processed in blocks of about this many cells.
_CELLS = 1 << 17


def has_large_rows(units: DenseCounts | SparseCounts) -> bool:
    """Return whether a row of positive weight has so large a sum that its bound needs this."""
    if units.lengths.max(initial=0.0) <= _LARGE_ROW:
        return False
    return bool(units.weights is None or units.weights[units.lengths > _LARGE_ROW].max() > 0)


def exact_bound(
    visit: CountsVisit,
    units: DenseCounts | SparseCounts,
    activations: Activations,
    dividing: np.ndarray,
) -> float:
    """Return the terms of some rows in the lower bound at T = 1, in nats.

    Parameters
    ----------
    visit : CountsVisit
    units : DenseCounts or SparseCounts
    activations : Activations
        q(h) after the local step.
    dividing : ndarray of shape (n_rows, n_components)
        The factors of the activations by which the local step has divided the counts.
    """
    model = visit.model
    k, b = model.n_components, np.asarray(model.activation_prior)
    bounds = -gamma_divergence(activations.shape, activations.rate, b, b).sum(axis=1)
    rates = activations.shape / activations.rate * visit.mean_weights
    excess, means, excess_of_means = _excess(visit, activations.shape)
    table, means, excess_of_means = (
        np.ascontiguousarray(array, dtype=np.float64)
        for array in (visit.expected.table[:, :k], means, excess_of_means)
    )
    size = max(_CELLS // max(model.n_columns, 1), 1)
    for start in range(0, units.n_units, size):
        rows = slice(start, min(start + size, units.n_units))
        factors, own_rates, own_excess = (
            np.ascontiguousarray(array[rows], dtype=np.float64)
            for array in (dividing, rates, excess)
        )
        counts, found = units.take(rows).dense(model.n_columns), np.empty(rows.stop - start)
        kernels().bounds_of_counts(
            counts, factors, table, own_rates, own_excess, means, excess_of_means, found
        )
        bounds[rows] += found
    return float(bounds.sum() if units.weights is None else units.weights @ bounds)


def _excess(visit: CountsVisit, shape: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return E log h + E log θ − log E h − log E θ, and E w with E log w − log E w.

    Their shapes are those of the activations, and (n_columns, n_components). A draw of θ and w is
    its own expectation.
    """
    if visit.draw is not None:
        means: Any = visit.expected.means
        return digamma_excess(shape), means, np.zeros(means.shape)
    q: Natural = visit.q or {}
    of_columns = q["components_shape"].T
    excess = digamma_excess(shape) + digamma_excess(q["weights_shape"])
    return excess, of_columns / q["components_rate"].T, digamma_excess(of_columns)
