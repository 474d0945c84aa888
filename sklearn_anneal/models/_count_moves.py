"""Moves of the parts of factorised counts.

A guided swap gives up a part that explains little, and divides another one whose counts come from
two groups of rows. A random swap gives any part up, and looks for another one in the counts that
the others do not explain. A merge lets one part explain the counts of two with the same profile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit, psi

# How many divisions of each part are compared in a guided swap, and how many new parts in a random
# one.
_DIVISIONS, CANDIDATES = 2, 4
# Matrices with at least this share of entries that are not zero are dense.
_DENSE = 0.25
# Parts are divided together as long as arrays of rows or columns have no more entries.
_ENTRIES_AT_A_TIME = 1 << 22
# Rounds of EM by which divisions and new parts are refined.
_ROUNDS = 6
# Parts are merged if the cosine of their profiles is larger.
_ALIKE = 0.95
# Differences of losses and of gains below these shares are left to chance.
_CHANCE_OF_LOSS, _CHANCE_OF_GAIN = 0.5, 0.3
# The least share of an entry's expectation that other parts take over when a part is given up.
_LEAST_REST = 1e-3
# Expectations are at least this large, so that no count divided by one overflows.
_TINY = 1e-250


@dataclass(frozen=True)
class Explained:
    """The counts of some rows, and those that the parts expect.

    Attributes
    ----------
    counts : csr_array of shape (n_rows, n_columns)
        The positive counts of observed cells.
    observed : ndarray of shape (n_rows, n_columns) or None
        1 where a cell is observed and 0 where it is missing; None if none of the data is missing.
    weights : ndarray of shape (n_rows,)
    activations : ndarray of shape (n_rows, n_components)
        exp E log h.
    parts : ndarray of shape (n_components, n_columns)
        exp E log(θ w).
    """

    counts: csr_array
    observed: np.ndarray | None
    weights: np.ndarray
    activations: np.ndarray
    parts: np.ndarray

    @cached_property
    def rows(self) -> np.ndarray:
        """The row of each entry."""
        return np.repeat(np.arange(self.counts.shape[0]), np.diff(self.counts.indptr))

    @cached_property
    def _by_part(self) -> np.ndarray:
        """The activations with the rows of each part next to each other."""
        return np.ascontiguousarray(self.activations.T)

    @cached_property
    def expected(self) -> np.ndarray:
        """The sum over all parts of the expected counts of each entry."""
        if self.counts.nnz > _DENSE * self.counts.shape[0] * self.counts.shape[1]:
            rates = (self.activations @ self.parts).reshape(-1).take(self._places)
            return np.maximum(rates, _TINY, out=rates)
        return np.maximum(sum(self.of_part(k) for k in range(len(self.parts))), _TINY)

    @cached_property
    def quotients(self) -> csr_array | np.ndarray:
        """Counts over expected counts, as a dense array if many are not zero."""
        return self.matrix(self.counts.data / self.expected)

    @property
    def totals(self) -> np.ndarray:
        """Σ w of the counts that each part explains, of shape (n_components,)."""
        found: np.ndarray = (self.weights[:, None] * self.activations) * (
            self.quotients @ self.parts.T
        )
        return found.sum(axis=0)

    @property
    def cells(self) -> np.ndarray:
        """Σ w of the observed cells of each column, or of all columns, (n_columns,) or (1,)."""
        if self.observed is None:
            return np.array([self.weights.sum()])
        return self.weights @ self.observed

    def of_part(self, k: int) -> np.ndarray:
        """Return the counts of each entry that a part expects."""
        found: np.ndarray = self._by_part[k].take(self.rows)
        found *= self.parts[k].take(self.counts.indices)
        return found

    def without(self, numbers: list[int]) -> np.ndarray:
        """Return the expected counts of all other parts, which can take over those of these."""
        rest = self.expected - sum(self.of_part(k) for k in numbers)
        return np.maximum(rest, _LEAST_REST * self.expected)

    def with_entries(self, values: np.ndarray) -> csr_array:
        """Return a matrix with other values in the places of the counts."""
        arrays = values, self.counts.indices, self.counts.indptr
        return csr_array(arrays, shape=self.counts.shape)

    @cached_property
    def _places(self) -> np.ndarray:
        """The place of each entry in a dense matrix, row by row."""
        return self.rows * self.counts.shape[1] + self.counts.indices

    def matrix(self, values: np.ndarray) -> csr_array | np.ndarray:
        """Return the same for products, as a dense array if many counts are not zero."""
        n_rows, n_columns = self.counts.shape
        if self.counts.nnz <= _DENSE * n_rows * n_columns:
            return self.with_entries(values)
        found = np.zeros(n_rows * n_columns)
        found[self._places] = values
        return found.reshape(n_rows, n_columns)

    def counts_of(self, k: int) -> csr_array:
        """Return the counts that a part explains."""
        return self.with_entries(self.counts.data * self.of_part(k) / self.expected)

    def losses(self) -> np.ndarray:
        """Return Σ w x (−log(1 − s) − s) for each part, s being its share of an expected count.

        It is the loss of log-likelihood without the part if no other changes, nats. The expected
        counts of the part, which are no longer expected then, are those that it explains.
        """
        found = np.empty(len(self.parts))
        weighted, inverse = self.counts.data * self.weights[self.rows], 1.0 / self.expected
        total = weighted.sum()
        for k in range(len(self.parts)):
            rest = self.of_part(k)
            rest *= inverse
            np.subtract(1.0, rest, out=rest)
            np.maximum(rest, _LEAST_REST, out=rest)
            found[k] = weighted @ rest - total
            found[k] -= weighted @ np.log(rest, out=rest)
        return found


def given_up(losses: np.ndarray, rng: np.random.Generator, guided: bool) -> int:
    """Return the part to give up: the one of the smallest loss, up to chance, or any one.

    Parameters
    ----------
    losses : ndarray of shape (n_components,)
        The loss without each part, nats.
    rng : numpy.random.Generator
    guided : bool
    """
    if not guided:
        return int(rng.integers(len(losses)))
    # The share that others will take over is unknown, so that the loss has an error of this size.
    logs = np.log(np.maximum(losses, 1.0))
    return int(np.argmin(logs - _CHANCE_OF_LOSS * rng.gumbel(size=len(logs))))


def divided(
    explained: Explained, numbers: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Divide the counts of parts, each between two groups of rows of different profiles.

    Each row belongs to the one or the other with some probability, as EM for a mixture of two
    multinomial distributions finds it from two random rows. The parts share the quotients of counts
    and their expectations, so that one product of matrices serves all of them.

    Parameters
    ----------
    explained : Explained
    numbers : ndarray of shape (n,)
        The parts. Each of them explains counts.
    rng : numpy.random.Generator

    Returns
    -------
    halves : ndarray of shape (n, 2, n_columns)
        The counts of both groups.
    gains : ndarray of shape (n,)
        How much higher the log-likelihood of the mixture is than that of one distribution, nats.
    """
    weights, quotients = explained.weights, explained.quotients
    activations, parts = explained.activations[:, numbers], explained.parts[numbers].T

    def of_rows(values: np.ndarray) -> np.ndarray:
        """Return products of the counts of parts and ``values`` (n_columns, n, n_divisions)."""
        product = quotients @ (parts[:, :, None] * values).reshape(len(parts), -1)
        return activations[:, :, None] * product.reshape(len(weights), *values.shape[1:])

    def of_columns(values: np.ndarray) -> np.ndarray:
        """Return those of their transposes and ``values`` (n_rows, n, n_divisions)."""
        product = quotients.T @ (activations[:, :, None] * values).reshape(len(weights), -1)
        return parts[:, :, None] * product.reshape(len(parts), *values.shape[1:])

    sums = of_columns(np.broadcast_to(weights[:, None, None], (*activations.shape, 1)))
    base = sums / sums.sum(axis=0)
    energies = weights[:, None] * of_rows(np.ones((*parts.shape, 1)))[:, :, 0]
    shares = np.cumsum(energies, axis=0)
    shares /= shares[-1]
    numbers_in_turn = rng.random((len(numbers), 2 * _DIVISIONS))
    chosen = [
        each.searchsorted(own, side="right")
        for each, own in zip(shares.T, numbers_in_turn, strict=True)
    ]
    drawn = quotients[np.concatenate(chosen)]
    drawn = drawn if isinstance(drawn, np.ndarray) else drawn.toarray()
    profiles = parts[:, :, None] * drawn.T.reshape(*parts.shape, -1)
    profiles = 0.5 * profiles / profiles.sum(axis=0) + 0.5 * base
    first, second = profiles[..., :_DIVISIONS], profiles[..., _DIVISIONS:]
    odds = np.zeros(first.shape[1:])
    for _ in range(_ROUNDS):
        ratios = np.log(np.maximum(second, _TINY)) - np.log(np.maximum(first, _TINY))
        share = expit(of_rows(ratios) + odds) * weights[:, None, None]
        mass = share.sum(axis=0) / weights.sum()
        odds = np.log(np.maximum(mass, _TINY)) - np.log(np.maximum(1.0 - mass, _TINY))
        half = of_columns(share)
        first, second = (_smoothed(each, base) for each in (sums - half, half))
    logs = [
        of_rows(np.log(np.maximum(each, _TINY) / np.maximum(base, _TINY))) + log
        for each, log in ((first, -np.logaddexp(0.0, odds)), (second, -np.logaddexp(0.0, -odds)))
    ]
    gains = np.einsum("n,nkd->kd", weights, np.logaddexp(*logs))
    best = np.argmax(gains, axis=1)
    half = np.clip(np.take_along_axis(half, best[None, :, None], axis=2), 0.0, sums)
    return np.concatenate([sums - half, half], axis=2).transpose(1, 2, 0), gains.max(axis=1)


def _smoothed(counts: np.ndarray, base: np.ndarray) -> np.ndarray:
    """Return profiles of counts with one count that is distributed as all of them."""
    found: np.ndarray = (np.maximum(counts, 0.0) + base) / (counts.sum(axis=0) + 1.0)
    return found


def best_division(
    explained: Explained, without: int, rng: np.random.Generator
) -> tuple[int, np.ndarray, float] | None:
    """Return the part whose division promises the highest gain, up to chance, and its halves.

    The gain of log-likelihood comes with them, nats. None stands for parts of which none explains
    counts. ``without`` has the number of the part that is given up.
    """
    totals = explained.totals
    numbers = np.flatnonzero(np.isfinite(totals) & (totals > 1.0))
    numbers = numbers[numbers != without]
    size = max(_ENTRIES_AT_A_TIME // (_DIVISIONS * sum(explained.counts.shape)), 1)
    best, highest = None, -np.inf
    for group in np.split(numbers, range(size, len(numbers), size)) if len(numbers) else []:
        halves, gains = divided(explained, group, rng)
        promised = np.log(np.maximum(gains, 1.0)) + _CHANCE_OF_GAIN * rng.gumbel(size=len(gains))
        if promised.max() > highest:
            i = int(np.argmax(promised))
            best, highest = (int(group[i]), halves[i], float(gains[i])), promised[i]
    return best


def sought(
    explained: Explained, rest: np.ndarray, start: np.ndarray, shape: float
) -> tuple[np.ndarray, float]:
    """Return the part to which EM for a single part leads beside others that stay as they are.

    Parameters
    ----------
    explained : Explained
    rest : ndarray of shape (n_entries,)
        The counts of each entry that the others expect.
    start : ndarray of shape (n_columns,)
        Counts of columns, whose profile the part has at first.
    shape : float
        b of the prior Gamma(b, b) of its activations.

    Returns
    -------
    counts : ndarray of shape (n_columns,)
        The counts that it explains.
    gain : float
        How much it raises the log-likelihood at the expected activations, nats.
    """
    counts, weights, columns = explained.counts, explained.weights, explained.counts.indices
    x, rows = counts.data, explained.rows
    cells, observed = explained.cells, explained.observed
    own = start + 0.02 * start.mean()
    part = own / own.sum() * (weights[rows] @ x / weights.sum()) / len(explained.parts)
    activations = np.ones(len(weights))
    for n in range(_ROUNDS + 1):
        rate = activations[rows] * part[columns]
        quotients = explained.matrix(x / (rest + rate))
        if n == _ROUNDS:
            break
        exposure = part.sum() if observed is None else observed @ part
        shapes = shape + activations * (quotients @ part)
        means = shapes / (shape + exposure)
        own = part * (quotients.T @ (weights * activations))
        scale = weights @ means if observed is None else (weights * means) @ observed
        part = own / np.maximum(scale, _TINY)
        # exp E log h divides the counts, as in the visits of the model.
        activations = np.exp(psi(shapes)) / (shape + exposure)
    expected = weights @ (means * (part.sum() if observed is None else observed @ part))
    gain = (weights[rows] * x) @ np.log1p(rate / rest) - expected
    return own if observed is None else own * (cells > 0), float(gain)


def excesses(
    explained: Explained, rest: np.ndarray, number: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return what exceeds the expected counts in some rows, drawn by how badly these explain them.

    Rows are drawn in proportion to Σ x log(x/λ) − x + λ over the counts x above their expectations
    λ. There are none if counts nowhere exceed them.
    """
    counts, n_rows = explained.counts, len(explained.weights)
    x = counts.data
    above = np.maximum(x - rest, 0.0)
    worse = np.where(above > 0, x * (np.log(x) - np.log(rest)) - above, 0.0)
    # Rounding errors of large counts can exceed a small difference.
    worse = np.maximum(worse, 0.0)
    energies = explained.weights * np.bincount(explained.rows, worse, n_rows)
    total = energies.sum()
    if not (np.isfinite(total) and total > 0):
        return []
    found = np.zeros((number, counts.shape[1]))
    for each, row in zip(found, rng.choice(n_rows, number, p=energies / total), strict=True):
        entries = slice(counts.indptr[row], counts.indptr[row + 1])
        each[counts.indices[entries]] = above[entries]
    return list(found)


def most_alike(parts: np.ndarray, used: np.ndarray) -> tuple[int, int] | None:
    """Return the two parts whose profiles are most alike, the larger one first.

    ``parts`` has shape (n_components, n_columns), and ``used`` the numbers of those compared. None
    stands for profiles of which no two are alike.
    """
    if len(used) < 2:
        return None
    lengths = np.linalg.norm(parts[used], axis=1)
    cosines = parts[used] @ parts[used].T / np.maximum(np.outer(lengths, lengths), _TINY)
    first, second = np.triu_indices(len(used), 1)
    best = int(np.argmax(cosines[first, second]))
    if cosines[first[best], second[best]] < _ALIKE:
        return None
    pair = sorted((first[best], second[best]), key=lambda i: -float(lengths[i]))
    return int(used[pair[0]]), int(used[pair[1]])
