"""Rows and frames whose class or state is known, and starts of mixtures that respect it.

A mixture has one or more components for each class. A row whose class is known belongs to one of
the components of its class, so that the joint density is zero for all others:

    p(x, c, z = k | π, β) = π_k p(x | β_k) if component k belongs to class c, and 0 otherwise.

Starts by k-means are those of constrained k-means [1]_.

References
----------
.. [1] Basu, Banerjee, Mooney (2002). Semi-supervised clustering by seeding. ICML.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

# The log probability of what cannot be, such as a forbidden transition. Its exponential is 0 at
# every inverse temperature, and unlike −∞ it can be multiplied by 0 and subtracted from itself.
IMPOSSIBLE = -1e200
# Largest number of rounds of k-means.
_ROUNDS = 100
_TINY = 1e-300


def exclude_others(density: np.ndarray, classes: np.ndarray, of_components: np.ndarray) -> None:
    """Make all components impossible that do not belong to the known class of a row.

    ``density`` (n_rows, n_components) has log densities, which are changed in place. ``classes``
    (n_rows,) has the class of each row where it is known, and −1 elsewhere.
    """
    known = np.flatnonzero(classes >= 0)
    others = np.not_equal.outer(classes[known], of_components)
    density[known] = np.where(others, IMPOSSIBLE, density[known])


class KnownClasses(NamedTuple):
    """The classes of rows and of components."""

    rows: np.ndarray  # the class of each row where it is known, and −1 elsewhere, (n_rows,)
    # The class of each component, (n_components,); −1 for components of classes that no label
    # names.
    components: np.ndarray

    def allowed(self, part: slice) -> np.ndarray:
        """Return which rows of a slice can belong to which components, as a mask."""
        classes = self.rows[part, None]
        mask: np.ndarray = (classes < 0) | (classes == self.components)
        return mask

    def restricted(self, shares: Callable[[slice], np.ndarray]) -> Callable[[slice], np.ndarray]:
        """Return responsibilities that are zero outside the class of a row and sum to 1."""

        def of_classes(part: slice) -> np.ndarray:
            own = shares(part) * self.allowed(part)
            posteriors: np.ndarray = own / np.maximum(own.sum(axis=1, keepdims=True), _TINY)
            return posteriors

        return of_classes

    def seeds(
        self, weights: np.ndarray, random_state: np.random.RandomState, points: Any = None
    ) -> np.ndarray:
        """Return the number of a row for each component, drawn at random.

        It is a row of the class of the component while there are any, and else one of unknown
        class. With ``points`` (n_rows, n_coordinates), rows far from those that were drawn before
        are more probable, as by k-means++. ``weights`` has one number for each row.
        """
        chosen = np.empty(len(self.components), dtype=np.intp)
        free, nearest = weights.astype(np.float64), None
        # Components without a label come last, so that they begin far from all classes.
        for k in np.argsort(self.components < 0, kind="stable"):
            named = self.components[k] >= 0
            odds = free * (named & (self.rows == self.components[k]))
            if not odds.any():
                odds = free * (self.rows < 0)
            if not odds.any():
                odds = free
            if nearest is not None and (odds * nearest).any():
                odds = odds * nearest
            chosen[k] = row = random_state.choice(len(odds), p=odds / odds.sum())
            free[row] = 0.0
            if points is not None:
                distance = _distances(points, _dense(points[[row]]))[:, 0]
                nearest = distance if nearest is None else np.minimum(nearest, distance)
        return chosen

    def clusters(
        self, points: Any, weights: np.ndarray, random_state: np.random.RandomState
    ) -> np.ndarray:
        """Return a component for each row, by k-means in which known classes are kept.

        Means begin at those of the rows of known class alone.
        """
        means = _dense(points[self.seeds(weights, random_state, points)])
        every = np.arange(len(self.components))
        allowed = self.allowed(slice(None))
        for counted in (weights * (self.rows >= 0), weights):
            labels = np.full(len(weights), -1)
            for _ in range(_ROUNDS):
                before = labels
                labels = np.where(allowed, _distances(points, means), np.inf).argmin(axis=1)
                if (labels == before).all():
                    break
                shares = np.equal.outer(labels, every) * counted[:, None]
                totals = shares.sum(axis=0)
                found = (points.T @ shares).T / np.maximum(totals, _TINY)[:, None]
                means = np.where((totals > 0)[:, None], found, means)
        return labels


def _dense(points: Any) -> np.ndarray:
    return points.toarray() if issparse(points) else np.asarray(points)


def _distances(points: Any, means: np.ndarray) -> np.ndarray:
    """Return the squared distances of points from means, (n_points, n_means)."""
    squares = points.multiply(points) if issparse(points) else points**2
    lengths = np.asarray(squares.sum(axis=1)).reshape(-1, 1)
    distances = lengths - 2.0 * (points @ means.T) + (means**2).sum(axis=1)
    return np.maximum(distances, 0.0)
