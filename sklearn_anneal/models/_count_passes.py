"""Passes of gamma-process factorisation over full tables that compute no bound."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import psi

from ..data.units import DenseCounts, SparseCounts
from ..families import STRONG, Natural
from ._count_visits import LARGE, Activations, empty_table, kernels, tables

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

# Blocks of rows have about this many cells, which stay in the caches.
_CELLS = 1 << 15
_NOTHING = np.empty(0)
# A pass of the loop is followed by so many.
_FURTHER_PASSES = 20
# exp ψ(s) of a small shape s is about exp(−1/s). Products of two such numbers are not subnormal in
# single precision if the sum of 1/s is below this.
_LARGEST_INVERSE = 80.0
# After so many updates half of a change is added.
_DELAY = 2


def further_passes(
    units: Any,
    n_columns: int,
    activation_prior: float,
    q: Natural,
    prior: Natural,
    local: list[Activations],
    momentum: ShapeMomentum | None,
) -> tuple[Natural, list[Activations], int, ShapeMomentum] | None:
    """Return what ``Model.further`` does for rows in memory; None if some cells are missing."""
    if isinstance(units, SparseCounts):
        stop = units.indptr[-1]
        arrays = units.counts[:stop], units.words[:stop], units.indptr
        X = csr_array(arrays, shape=(units.n_units, n_columns)).toarray()
    elif isinstance(units, DenseCounts) and (units.patterns is None or not units.patterns.any()):
        X = units.X
    else:
        return None
    own = Activations(np.concatenate([each.shape for each in local]), local[0].rate)
    how, begun = (X, units.weights, prior, activation_prior, q, own), momentum or ShapeMomentum()
    # Quotients of huge counts can overflow in single precision.
    for may_be_single in (True, False):
        momentum = replace(begun)
        found = PlainPasses(*how, momentum, may_be_single).run(_FURTHER_PASSES)
        if found is not None:
            q, own = found
            return q, [own[rows] for rows in units.chunks()], _FURTHER_PASSES, momentum
    return None


class Moving(NamedTuple):
    """Shapes that move, and those of their past from which momentum follows."""

    shapes: np.ndarray
    floor: float  # that of the prior, below which no shape is
    roots: np.ndarray  # √(shape − floor), after the last update
    earlier: np.ndarray  # the roots after the update before
    ahead: np.ndarray  # the roots from which the last update came


@dataclass
class ShapeMomentum:
    """Momentum of shapes, which goes on where passes with a bound come between.

    Updates go further in the direction of their last change (Nesterov, 1983), and in that of their
    own step (Kim and Fessler, 2016). Momentum begins anew where an update turns back (O'Donoghue
    and Candès, 2015). It acts on the roots of expected counts, whose errors are about equal.

    Parameters
    ----------
    count : int
        The number of updates since momentum began anew.
    changes : list of ndarray
        The changes of roots in the last update before a pause; empty at first.
    """

    count: int = 0
    changes: list[np.ndarray] = field(default_factory=list)
    moving: list[Moving] = field(default_factory=list)

    def begin(self, moving: tuple[np.ndarray, ...], floors: tuple[float, ...]) -> None:
        """Go on with shapes that an update without momentum has led to, or from a start."""
        self.moving = []
        for i, (shapes, floor) in enumerate(zip(moving, floors, strict=True)):
            roots = np.sqrt(np.maximum(shapes - floor, 0.0))
            earlier = roots - self.changes[i] if self.changes else roots.copy()
            self.moving.append(Moving(shapes, floor, roots, earlier, roots.copy()))
        self._go()

    def go_ahead(self) -> None:
        """Move shapes further than an update has moved them."""
        self._look_back()
        self._go()

    def pause(self) -> None:
        """Leave shapes where an update has moved them."""
        self._look_back()
        self.count += 1
        self.changes = [each.roots - each.earlier for each in self.moving]
        self.moving = []

    @property
    def _free(self) -> list[Moving]:
        """The shapes that momentum moves: those of strong priors hardly move but by rounding."""
        return [each for each in self.moving if each.floor <= STRONG]

    def _look_back(self) -> None:
        """Begin anew if the last update turned back."""
        turn = np.zeros(1)
        for shapes, floor, *roots in self._free:
            kernels().add_turn(shapes, *roots, floor, turn)
        if turn[0] < 0.0:
            self.count = 0

    def _go(self) -> None:
        share = self.count / (self.count + _DELAY)
        for shapes, floor, *roots in self._free:
            kernels().go_ahead(shapes, *roots, floor, share)
        self.count += 1


@dataclass
class PlainPasses:
    """Coordinate ascent at fixed priors, as visits and updates make it, by matrix products.

    Where parts overlap, the bound rises by a little in each of hundreds of passes. These cost less
    than the loop's, because they compute no bound, and have momentum. They compute in single
    precision where X has it or the table is large. The last one has no momentum, and double
    precision, so that the parts together have all counts.

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

    def __post_init__(self) -> None:
        n, n_columns = self.X.shape
        self._parts = np.array(self.q["components_shape"].T, order="C")
        self._rate_of_parts = self.q["components_rate"][:, 0]
        self._of_weights, self._rate_of_weights = self.q["weights_shape"], self.q["weights_rate"]
        self._shape = np.array(self.activations.shape)
        self._total = float(n if self.weights is None else self.weights.sum())
        length = max(_CELLS // n_columns, 8)
        self._blocks = [slice(begin, min(begin + length, n)) for begin in range(0, n, length)]
        self._columns, self._largest = np.arange(n_columns, dtype=np.int32), np.empty(n_columns)
        self._allocate(np.float32 if self._single else np.float64)

    @property
    def _single(self) -> bool:
        """Whether passes but the last one compute in single precision."""
        if self.X.dtype == np.float32 or not self.may_be_single:
            return self.may_be_single
        inverse = 1.0 / self.activation_prior + 1.0 / self._component_prior
        return self.X.size * len(self._rate_of_parts) > LARGE and inverse < _LARGEST_INVERSE

    def _allocate(self, kind: DTypeLike) -> None:
        """Make the arrays in which passes of a precision compute."""
        (n, n_columns), k = self.X.shape, len(self._rate_of_parts)
        self._counts = np.ascontiguousarray(self.X, dtype=kind)
        self._powers, self._divided = np.empty((n, k), kind), np.empty((n, k), kind)
        self._quotients = np.empty((self._blocks[0].stop, n_columns), kind)
        self._padded = empty_table((n_columns, k), np.dtype(kind))
        self._table = np.empty((n_columns, k), kind)

    def run(self, n_passes: int) -> tuple[Natural, Activations] | None:
        """Return q and the activations; None if the precision cannot express them."""
        moving = self._shape, self._parts
        self.momentum.begin(moving, (self.activation_prior, self._component_prior))
        self._set_powers()
        for _ in range(n_passes - 1):
            self._pass()
            self.momentum.go_ahead()
            self._set_powers()
        if self._counts.dtype != np.float64:
            self._allocate(np.float64)
            self._set_powers()
        self._pass()
        self.momentum.pause()
        found = {
            "weights_shape": self._of_weights,
            "weights_rate": self._rate_of_weights,
            "components_shape": np.asfortranarray(self._parts.T),
            "components_rate": self._rate_of_parts[:, None],
        }
        if not all(np.isfinite(value).all() for value in (self._shape, *found.values())):
            return None
        return found, Activations(self._shape, self._rate[None])

    def _set_powers(self) -> None:
        """Compute exp ψ of the shapes of activations."""
        kernels().activation_powers(self._powers, self._shape, 1.0)

    @property
    def _component_prior(self) -> float:
        """a"""
        return float(self.prior["components_shape"][0, 0])

    def _pass(self) -> None:
        """Update the activations and the weights, and then the parts."""
        b, weights, sums = self.activation_prior, self.weights, np.empty(len(self._of_weights))
        logs, arrays = np.log(self._rate_of_parts), (self._padded, self._parts, self._columns, 1.0)
        tables().expected_table.part(
            (*arrays, _NOTHING, self._columns, logs, 1.0, self._largest), 0, len(self._parts)
        )
        totals = self._parts.sum(axis=0) / self._rate_of_parts
        self._rate = b + self._of_weights / self._rate_of_weights * totals
        self._set_factors()
        for rows in self._blocks:
            np.matmul(self._quotients_of(rows), self._table, out=self._divided[rows])
        own = _NOTHING if weights is None else weights
        kernels().divided_activations(self._divided, b, own, sums, self._shape, self._powers)
        exposure = (self._total * b + sums) / self._rate
        self._of_weights = self.prior["weights_shape"] + sums
        self._rate_of_weights = self.prior["weights_rate"] + exposure * totals
        self._set_factors()
        sums_of_parts = np.zeros_like(self._table)
        for rows in self._blocks:
            quotients, own = self._quotients_of(rows), self._powers[rows]
            if weights is not None:
                own = own * weights[rows, None].astype(own.dtype)
            sums_of_parts += quotients.T @ own
        sums_of_parts *= self._table
        np.add(sums_of_parts, self._component_prior, out=self._parts)
        means = self._of_weights / self._rate_of_weights
        self._rate_of_parts = self.prior["components_rate"][0, 0] + means * exposure

    def _set_factors(self) -> None:
        """Multiply the table by exp(E log θ − log rate), up to a number."""
        logs = psi(self._of_weights) - np.log(self._rate_of_weights * self._rate)
        k = len(logs)
        np.multiply(
            self._padded[:, :k], np.exp(logs - logs.max()), out=self._table, casting="same_kind"
        )

    def _quotients_of(self, rows: slice) -> np.ndarray:
        """Return the counts of rows over their expectations."""
        own = self._powers[rows]
        quotients = np.matmul(own, self._table.T, out=self._quotients[: len(own)])
        kernels().ratios(quotients, self._counts[rows])
        return quotients
