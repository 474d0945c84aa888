"""Passes of gamma-process factorisation over full tables that compute no bound."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ..data.units import DenseCounts, SparseCounts
from ..families import STRONG, Natural
from ._count_visits import LARGE, Activations, dense

# A pass of the loop is followed by so many, and by fewer over small tables, whose fits pause sooner
# then and end about as high.
_FURTHER_PASSES, _FURTHER_IF_SMALL = 20, 12
# exp ψ(s) of a small shape s is about exp(−1/s). Products of two such numbers are not subnormal in
# single precision if the sum of 1/s is below this.
_LARGEST_INVERSE = 80.0


def full_table(units: Any, n_columns: int) -> np.ndarray | None:
    """Return the counts of rows in memory as a dense array; None if some cells are missing."""
    if isinstance(units, SparseCounts):
        stop = units.indptr[-1]
        arrays = units.counts[:stop], units.words[:stop], units.indptr
        return np.asarray(csr_array(arrays, shape=(units.n_units, n_columns)).toarray())
    if isinstance(units, DenseCounts) and (units.patterns is None or not units.patterns.any()):
        return np.asarray(units.X)
    return None


def further_passes(
    units: Any,
    n_columns: int,
    activation_prior: float,
    q: Natural,
    prior: Natural,
    local: list[Activations],
    momentum: ShapeMomentum | None,
    small: bool = False,
) -> tuple[Natural, list[Activations], int, ShapeMomentum] | None:
    """Return what ``Model.further`` does for rows in memory; None if some cells are missing."""
    n_passes = _FURTHER_IF_SMALL if small else _FURTHER_PASSES
    X = full_table(units, n_columns)
    if X is None:
        return None
    shapes = [each.shape for each in local]
    own = Activations(shapes[0] if len(shapes) == 1 else np.concatenate(shapes), local[0].rate)
    how, begun = (X, units.weights, prior, activation_prior, q, own), momentum or ShapeMomentum()
    # Quotients of huge counts can overflow in single precision.
    for may_be_single in (True, False):
        momentum = replace(begun)
        found = PlainPasses(*how, momentum, may_be_single).run(n_passes)
        if found is not None:
            q, own = found
            chunks = [own] if len(local) == 1 else [own[rows] for rows in units.chunks()]
            return q, chunks, n_passes, momentum
    return None


def exploring_passes(
    units: Any, model: Any, q: Natural, prior: Natural, n_passes: int, n_updates: int
) -> Natural | None:
    """Return q after passes in which activations start anew.

    Rows make ``n_updates`` at most before their last one. None stands for data in parts.
    """
    X, k = full_table(units, model.n_columns), model.n_components
    if X is None:
        return None
    for may_be_single in (True, False):
        own = Activations(np.empty((len(X), k)), np.empty((1, k)))
        how = X, units.weights, prior, model.activation_prior, q, own, ShapeMomentum()
        passes = PlainPasses(*how, may_be_single)
        found = passes.explore(n_passes, n_updates, model.sweep_tol)
        if found is not None:
            return found
    return None


@dataclass
class ShapeMomentum:
    """Momentum of shapes, which goes on where passes with a bound come between.

    Updates go further in the direction of their last change (Nesterov, 1983), and in that of their
    own step (Kim and Fessler, 2016). Momentum begins anew where an update turns back (O'Donoghue
    and Candès, 2015). It acts on the roots of expected counts, whose errors are about equal. Shapes
    of strong priors, which hardly move but by rounding, have none.

    Parameters
    ----------
    count : int
        The number of updates since momentum began anew.
    changes : list of ndarray
        The changes of roots in the last update before a pause; empty at first.
    """

    count: int = 0
    changes: list[np.ndarray] = field(default_factory=list)


@dataclass
class PlainPasses:
    """Coordinate ascent at fixed priors, as visits and updates make it, in one compiled kernel.

    Where parts overlap, the bound rises by a little in each of hundreds of passes. These cost less
    than the loop's, because they compute no bound, and have momentum. They compute in single
    precision where X has it or the table is large. The last one has double precision, so that the
    parts together have all counts.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_columns)
        Counts, none of which is missing.
    weights : ndarray of shape (n_rows,) or None
    prior : dict of ndarray
        The prior of weights and parts; its rate does not depend on the column.
    activation_prior : float
        b
    q : dict of ndarray
    activations : Activations
    momentum : ShapeMomentum
    may_be_single : bool, default=True
        Whether passes but the last one may compute in single precision.
    """

    X: np.ndarray
    weights: np.ndarray | None
    prior: Natural
    activation_prior: float
    q: Natural
    activations: Activations
    momentum: ShapeMomentum = field(default_factory=ShapeMomentum)
    may_be_single: bool = True

    @property
    def _single(self) -> bool:
        """Whether passes but the last one compute in single precision."""
        if self.X.dtype == np.float32 or not self.may_be_single:
            return self.may_be_single
        inverse = 1.0 / self.activation_prior + 1.0 / self._component_prior
        # Rows count by their weights, so that copies of rows are the same.
        rows = len(self.X) if self.weights is None else float(self.weights.sum())
        size = rows * self.X.shape[1] * self.activations.shape.shape[1]
        return bool(size > LARGE and inverse < _LARGEST_INVERSE)

    @property
    def _component_prior(self) -> float:
        """a"""
        return float(self.prior["components_shape"][0, 0])

    def explore(self, n_passes: int, n_updates: int, tol: float) -> Natural | None:
        """Return q after passes that explore; None if the precision cannot express it."""
        of_weights, rate_of_weights, rate_of_parts, parts = self._copies()
        kind = np.float32 if self._single else np.float64
        dense().exploring_passes(
            np.ascontiguousarray(self.X, dtype=kind),
            *self._arguments,
            *(n_passes, n_updates, tol, of_weights, rate_of_weights, rate_of_parts, parts),
        )
        found = self._q(of_weights, rate_of_weights, rate_of_parts, parts)
        return found if all(np.isfinite(value).all() for value in found.values()) else None

    def _copies(self) -> tuple[np.ndarray, ...]:
        """Copies of q for kernels to change."""
        q = self.q
        of_weights, rate_of_weights = q["weights_shape"].copy(), q["weights_rate"].copy()
        parts = np.array(q["components_shape"].T, order="C")
        return of_weights, rate_of_weights, q["components_rate"][:, 0].copy(), parts

    @property
    def _arguments(self) -> tuple[Any, ...]:
        """Weights of rows, and priors, as kernels take them."""
        prior = self.prior
        return (
            np.empty(0) if self.weights is None else self.weights,
            *(prior["weights_shape"], prior["weights_rate"]),
            *(self.activation_prior, self._component_prior, float(prior["components_rate"][0, 0])),
        )

    @staticmethod
    def _q(
        of_weights: np.ndarray,
        rate_of_weights: np.ndarray,
        rate_of_parts: np.ndarray,
        parts: np.ndarray,
    ) -> Natural:
        """Return q of its arrays."""
        return {
            "weights_shape": of_weights,
            "weights_rate": rate_of_weights,
            "components_shape": parts.T,
            "components_rate": rate_of_parts[:, None],
        }

    def run(self, n_passes: int) -> tuple[Natural, Activations] | None:
        """Return q and the activations; None if the precision cannot express them."""
        momentum = self.momentum
        of_weights, rate_of_weights, rate_of_parts, parts = self._copies()
        shapes, rate = (np.array(self.activations.shape), parts), np.empty_like(of_weights)
        changes = [each.copy() for each in momentum.changes or map(np.zeros_like, shapes)]
        state = np.array([float(momentum.count), 0.0])
        how, moving = (*self._arguments, STRONG), (shapes[0], changes[0], parts, changes[1])
        arrays = state, of_weights, rate_of_weights, rate_of_parts, rate, *moving
        n_single = n_passes - 1 if self._single else 0
        for kind, n in ((np.float32, n_single), (np.float64, n_passes - n_single)):
            if n > 0:
                X = np.ascontiguousarray(self.X, dtype=kind)
                dense().coordinate_passes(X, *how, n, kind == np.float32, *arrays)
        count, rest = state.tolist()
        if rest != 0.0:
            return None
        # An update without momentum follows.
        momentum.count = int(count) + 1
        momentum.changes = changes
        found = self._q(of_weights, rate_of_weights, rate_of_parts, parts)
        return found, Activations(shapes[0], rate[None])
