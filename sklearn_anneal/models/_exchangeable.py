"""Swaps of components that are exchangeable: one is given up, and another one is divided.

A swap repairs an optimum in which two components share a group of rows while another component has
two groups, which small random displacements seldom leave [1]_ [2]_.

References
----------
.. [1] Ueda, Nakano, Ghahramani, Hinton (2000). SMEM algorithm for mixture models. Neural
   Computation 12.
.. [2] Zhao, Hautamäki, Kärkkäinen, Fränti (2012). Random swap EM algorithm for Gaussian mixture
   models. Pattern Recognition Letters 33.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from scipy.special import expit, softmax

from ..data.units import U
from ..families import Natural
from ._base import S
from ._merges import disjoint_pairs, merge_gains, shared_rows
from ._searchable import Rearranged, Searchable
from .components._base import Components

# Rows from which a swap is computed; those of larger data are a sample.
ROWS_FOR_SWAPS = 20_000
# A component that is given up at random is any one with this probability, and else a small one.
_UNIFORM = 0.3
# Rounds in which the halves of all components exchange rows before their gains are compared.
_ROUNDS = 2
# Power iterations that find where components are widest.
_POWER_ITERATIONS = 4
# Differences of gains below this share of the largest gain, or below one nat, are left to chance.
_CHANCE = 0.1
# Components are many more than needed if this many, and this share of them, have less than one row
# or gain as one with another.
_LEAST_SURPLUS, _SHARE_OF_SURPLUS, _LEAST_ROWS = 3, 0.2, 1.0
# Components that share this part of the rows of the smaller one are merged if they are few, too.
_SHARED = 0.25
# Gains of merges whose difference is smaller, in nats, are left to chance.
_NOISE_OF_MERGES = 1.0
# A coordinate has few values if there are at most so many in about this number of rows.
_FEW_VALUES, _ROWS_OF_VALUES = 10, 200
# So many of these coordinates are tried for each component. One value has to have this share of the
# rows of a component, at least, and all others, too.
_TRIED, _LEAST_SHARE = 5, 0.01
# A row that the given-up component explains to all but this share goes where its density is
# highest, and not where the rest of its responsibilities is.
_REST = 1e-6
_TINY = 1e-300


class Assigned(NamedTuple):
    """How rows are assigned to components at the current parameters."""

    responsibilities: np.ndarray  # (n_rows, n_components)
    log_densities: np.ndarray  # E log p(x | z = k), nats, (n_rows, n_components)
    weights: np.ndarray  # (n_rows,)


class Exchangeable(Searchable[U, S]):
    """Mixin of models that assign rows to components which can exchange their numbers."""

    @abstractmethod
    def assigned(self, units: U, q: Natural) -> Assigned:
        """Return how the rows of some data are assigned to the components."""

    @abstractmethod
    def log_densities(self, units: U, q: Natural) -> np.ndarray:
        """Return E log p(x | z = k) of all rows in nats, (n_rows, n_components)."""

    @property
    @abstractmethod
    def distributions(self) -> Components:
        """The distributions of rows given their components."""

    @property
    def groups(self) -> np.ndarray | None:
        """The group of each component, (n_components,); None if there is one group.

        Moves exchange rows between components of a group alone.
        """
        return None

    def _together(self) -> np.ndarray | None:
        """Return which pairs of components are in one group; None if all are."""
        return None if self.groups is None else np.equal.outer(self.groups, self.groups)

    @abstractmethod
    def statistics_of(self, q: Natural, prior: Natural, chosen: np.ndarray) -> Natural: ...

    @abstractmethod
    def n_rows(self, summary: S) -> float:
        """Return the weight of all rows."""

    @abstractmethod
    def posterior_given(
        self, responsibilities: np.ndarray, units: U, summary: S, prior: Natural
    ) -> Natural:
        """Return the posterior given rows with these responsibilities, for the weight of all data.

        ``responsibilities`` has shape (n_rows, n_components).
        """

    @abstractmethod
    def points(self, units: U) -> Any:
        """Return rows as points between which distances can be measured, float64.

        They are a sparse array where the rows are sparse or symbols.
        """

    def swapped(
        self,
        units: U,
        q: Natural,
        summary: S,
        prior: Natural,
        rng: np.random.Generator,
        guided: bool,
    ) -> Rearranged | None:
        """Return the parameters after one component has been given up and another one divided.

        Without guidance, the component that is given up is a small one, the one that is divided is
        drawn by its size, and its halves are drawn too.
        """
        units = self.sampled(units)
        found = self.assigned(units, q)
        if len(found.weights) < 2:
            return None
        r, w, together = found.responsibilities, found.weights, self._together()
        if guided:
            halves, gains = self.halves(found, units, summary, prior, rng, by_value=True)
            pair = _best_pair(gains, found, rng, together)
            if pair is None:
                return None
            given_up, divided = pair
            share = halves[:, divided]
        else:
            sizes = w @ r
            odds = np.ones(len(sizes)) if rng.random() < _UNIFORM else 1.0 / (sizes + 1.0)
            if together is not None:
                odds = odds * (together.sum(axis=1) > 1)
                if not odds.any():
                    return None
            given_up = int(rng.choice(len(sizes), p=odds / odds.sum()))
        without = _without(given_up, found)
        if not guided:
            sizes = w @ without
            if together is not None:
                sizes = sizes * together[given_up]
                if not sizes.any():
                    return None
            divided = int(rng.choice(len(sizes), p=sizes / sizes.sum()))
            share = self.division(without[:, divided] * w, self._centered(units), units, rng)
        rows = without[:, divided].copy()
        without[:, given_up] = rows * share
        without[:, divided] = rows * (1.0 - share)
        return self, prior, self.posterior_given(without, units, summary, prior)

    def start_from(
        self,
        fewer: Rearranged,
        units: U,
        summary: S,
        prior: Natural,
        rng: np.random.Generator,
    ) -> Natural:
        """Return a start at fewer components, of which those are divided that gain most by it."""
        model, prior_of_fewer, q = fewer
        units = self.sampled(units)
        found = model.assigned(units, q)
        halves, gains = model.halves(found, units, summary, prior_of_fewer, rng)
        chosen = np.argsort(-gains, kind="stable")[: self.n_components - model.n_components]
        r = found.responsibilities
        second = r[:, chosen] * halves[:, chosen]
        first = r.copy()
        first[:, chosen] -= second
        return self.posterior_given(np.hstack([first, second]), units, summary, prior)

    def merged(
        self,
        units: U,
        q: Natural,
        summary: S,
        prior: Natural,
        rng: np.random.Generator,
    ) -> Rearranged | None:
        """Return the parameters after pairs of components have become one.

        All disjoint pairs whose merge would raise the bound are merged if components are many more
        than needed, and else those of them that share rows: two components that share none may both
        be needed by a better optimum, which swaps find.
        """
        units = self.sampled(units)
        found = self.assigned(units, q)
        if len(found.weights) < 2:
            return None
        weights = found.weights * (self.n_rows(summary) / max(found.weights.sum(), _TINY))
        shares, together = found.responsibilities, self._together()
        gains = merge_gains(self.distributions, q, prior, shares, weights, together)
        gains += _NOISE_OF_MERGES * rng.gumbel(size=gains.shape)
        pairs = disjoint_pairs(gains, 0.0)
        r = found.responsibilities
        too_many = len(pairs) + int(np.sum(weights @ r < _LEAST_ROWS))
        if too_many < max(_LEAST_SURPLUS, _SHARE_OF_SURPLUS * self.n_components):
            pairs = [(i, j) for i, j in pairs if shared_rows(r[:, i], r[:, j], weights) > _SHARED]
        if not pairs:
            return None
        r = r.copy()
        for first, second in pairs:
            r[:, first] += r[:, second]
            r[:, second] = 0.0
        return self, prior, self.posterior_given(r, units, summary, prior)

    @property
    def has_one_optimum(self) -> bool:
        return self.n_components == 1

    def sampled(self, units: U) -> Any:
        """Return the data from which a swap is computed."""
        return units.spread(ROWS_FOR_SWAPS)

    def division(
        self, weights: np.ndarray, points: Any, units: U, rng: np.random.Generator
    ) -> np.ndarray:
        """Return which rows of a component are its second half, as numbers 0 and 1 per row.

        They are those nearer to the second of two of its rows, which are drawn at random.
        ``weights`` has the share of the component in every row, of shape (n_rows,).
        """
        return nearer_to_second(weights, points, rng)

    def _centered(self, units: U) -> Any:
        """Return rows as points about their mean, unless they are sparse.

        Squares of such points keep their digits wherever the origin of the data is.
        """
        points = self.points(units)
        return points if issparse(points) else points - points.mean(axis=0)

    def halves(
        self,
        found: Assigned,
        units: U,
        summary: S,
        prior: Natural,
        rng: np.random.Generator,
        by_value: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the second halves of all components, and the gain of each division, in nats.

        A half is the share of the component's part of each row, of shape (n_rows, n_components).
        With ``by_value`` components are divided by one value of a coordinate if that gains more.
        """
        weights, points = found.responsibilities * found.weights[:, None], self._centered(units)
        start = across_widest(weights, points, rng)
        halves, gains = self._improved(start, found, units, summary, prior)
        of_values = of_one_value(weights, points, rng) if by_value else None
        if of_values is None:
            return halves, gains
        others, own = self._improved(of_values, found, units, summary, prior)
        return np.where(own > gains, others, halves), np.maximum(own, gains)

    def _improved(
        self, halves: np.ndarray, found: Assigned, units: U, summary: S, prior: Natural
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the halves of all components after some rounds of EM, and the gain of each.

        Every component is divided within its own rows, so that the K divisions are independent of
        each other and two models of K components hold all halves. The gain is that of the
        expected log density of the component's rows, in nats.
        """
        r, density, w = found
        for _ in range(_ROUNDS):
            parts = (r * (1.0 - halves), r * halves)
            first, second = (
                self.log_densities(units, self.posterior_given(part, units, summary, prior))
                for part in parts
            )
            sizes = np.array([w @ part for part in parts])
            shares = sizes / np.maximum(sizes.sum(axis=0), _TINY)
            first = first + np.log(np.maximum(shares[0], _TINY))
            second = second + np.log(np.maximum(shares[1], _TINY))
            halves = expit(second - first)
        # Σ_n w_n R_nk {log Σ_h s_h exp E log p(x_n | half h) − E log p(x_n | k)}
        gains = w @ (r * (np.logaddexp(first, second) - density))
        return halves, np.where(np.isfinite(gains), gains, -np.inf)


def across_widest(weights: np.ndarray, points: Any, rng: np.random.Generator) -> np.ndarray:
    """Return which points are on one side of the mean of each component, as numbers 0 and 1.

    The sides are those of a direction, in units of the standard deviations of the component: of
    the one in which it is widest, as some power iterations find it, or of one between two random
    points, as chance decides. ``weights`` and the result have the shape (n_points, n_components).
    """
    mean, scale = _moments(weights, points)
    first, second = (_drawn(weights, points, rng) for _ in range(2))
    direction = drawn = scale * (first - second)
    for _ in range(_POWER_ITERATIONS):
        pulls = weights * (points @ direction.T - (mean * direction).sum(axis=1))
        direction = scale * ((points.T @ pulls).T - pulls.sum(axis=0)[:, None] * mean)
        length = np.sqrt((direction**2 / np.maximum(scale, _TINY)).sum(axis=1, keepdims=True))
        direction /= np.maximum(length, _TINY)
    direction = np.where(rng.random((len(mean), 1)) < 0.5, direction, drawn)
    return (points @ direction.T > (mean * direction).sum(axis=1)).astype(float)


def of_one_value(weights: np.ndarray, points: Any, rng: np.random.Generator) -> np.ndarray | None:
    """Return which points of each component have one value of a coordinate, as numbers 0 and 1.

    The coordinate, which has few values, and the value are random ones. A component may be widest
    in other directions, and all of its rows together have a far lower density than those with one
    value by themselves. There is no such point in components within which values do not differ.
    None stands for points whose coordinates have many values. ``weights`` and the result have the
    shape (n_points, n_components).
    """
    if issparse(points):
        return None
    present = np.flatnonzero(weights.any(axis=1))
    some = np.sort(points[present[:: max(1, len(present) // _ROWS_OF_VALUES)]], axis=0)
    n_values = 1 + (np.diff(some, axis=0) > 0.0).sum(axis=0)
    few = np.flatnonzero(n_values <= min(_FEW_VALUES, len(some) // 2))
    if not len(few):
        return None
    drawn, found = _drawn(weights, points, rng), np.zeros(weights.shape)
    for k in range(weights.shape[1]):
        tried = rng.permutation(few)[:_TRIED]
        equal = points[:, tried] == drawn[k, tried]
        shares = weights[:, k] @ equal / max(weights[:, k].sum(), _TINY)
        dividing = np.flatnonzero(np.minimum(shares, 1.0 - shares) > _LEAST_SHARE)
        if len(dividing):
            found[:, k] = equal[:, dividing[0]]
    return found


def _moments(weights: np.ndarray, points: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the means of components and their inverse variances, (n_components, n_coordinates).

    The inverse variance is 0 where a component has no width.
    """
    totals = np.maximum(weights.sum(axis=0), _TINY)[:, None]
    mean = (points.T @ weights).T / totals
    squares = points.multiply(points) if issparse(points) else points**2
    variance = np.maximum((squares.T @ weights).T / totals - mean**2, 0.0)
    least = np.maximum(1e-12 * variance.max(axis=1, keepdims=True), _TINY)
    return mean, 1.0 / np.where(variance > least, variance, np.inf)


def _drawn(weights: np.ndarray, points: Any, rng: np.random.Generator) -> np.ndarray:
    """Return one point of each component, drawn by its weights, (n_components, n_coordinates)."""
    totals = np.cumsum(weights, axis=0)
    limits = rng.random(weights.shape[1]) * totals[-1]
    chosen = [
        min(int(np.searchsorted(total, limit, side="right")), len(total) - 1)
        for total, limit in zip(totals.T, limits, strict=True)
    ]
    found = points[chosen]
    return found.toarray() if issparse(found) else found


def nearer_to_second(weights: np.ndarray, points: Any, rng: np.random.Generator) -> np.ndarray:
    """Return 1 for points nearer to the second of two points drawn by ``weights``, 0 for others.

    Coordinates are measured in standard deviations of the weighted points.
    """
    total = weights.sum()
    drawable = np.flatnonzero(weights)
    if total <= 0 or len(drawable) < 2:
        return rng.integers(0, 2, len(weights)).astype(float)
    odds = np.log(weights[drawable]) + rng.gumbel(size=len(drawable))
    chosen = drawable[np.argsort(-odds)[:2]]
    _, (scale,) = _moments(weights[:, None], points)
    centers = points[chosen]
    # The squares of the points themselves are common to both distances.
    first, second = (
        center**2 @ scale - 2.0 * (points @ (center * scale))
        for center in (centers.toarray() if issparse(centers) else centers)
    )
    if np.array_equal(first, second):
        return rng.integers(0, 2, len(weights)).astype(float)
    return (second < first).astype(float)


def _without(given_up: int, found: Assigned) -> np.ndarray:
    """Return responsibilities in which the other components share the rows of one."""
    r = found.responsibilities.copy()
    r[:, given_up] = 0.0
    rest = r.sum(axis=1)
    alone = rest < _REST
    r /= np.where(alone, 1.0, rest)[:, None]
    if alone.any():
        density = found.log_densities[alone].copy()
        density[:, given_up] = -np.inf
        r[alone] = softmax(density, axis=1)
    return r


def _best_pair(
    gains: np.ndarray,
    found: Assigned,
    rng: np.random.Generator,
    together: np.ndarray | None = None,
) -> tuple[int, int] | None:
    """Return the component to give up and the one to divide; None if no division can be judged."""
    # The rows that a component gives up lose log Σ_{j ≠ k} R_nj = log(1 − R_nk) each.
    r, _, w = found
    losses = -(w @ np.log1p(-np.minimum(r, 1.0 - 1e-12)))
    net = gains - losses[:, None]
    np.fill_diagonal(net, -np.inf)
    if together is not None:
        net[~together] = -np.inf
    if not np.isfinite(net).any():
        return None
    net = net / max(_CHANCE * net.max(), 1.0) + rng.gumbel(size=net.shape)
    given_up, divided = np.unravel_index(np.argmax(net), net.shape)
    return int(given_up), int(divided)
