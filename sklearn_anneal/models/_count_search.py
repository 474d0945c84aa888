"""The search of gamma-process factorisation: moves of its parts, and starts of other kinds."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from scipy.special import psi

from ..data.units import DenseCounts, SparseCounts
from ..families import Natural
from ..parallel.workers import SEQUENTIAL
from ._count_allocations import positive_counts
from ._count_moves import (
    CANDIDATES,
    Explained,
    best_division,
    excesses,
    given_up,
    most_alike,
    sought,
)
from ._count_summary import Summary
from ._exchangeable import ROWS_FOR_SWAPS
from ._searchable import Rearranged, Searchable, SearchOptions

Counts = DenseCounts | SparseCounts

# The effort of a search that has kept an allocation.
_EFFORT_AFTER_SAMPLING = 1.0
# First fits explore, so that few passes lead far, and more moves hardly raise the bound.
# Observations are counts, of which a cell can hold many.
_SEARCH = SearchOptions(least_passes=12, least_visits=float("inf"))
# The search of dense tables, whose fits explore for a short time. Reheats raise the bound most of
# all moves, by more with this noise than with the usual one, and in fewer passes. New starts take
# long, and are hardly ever better, and so are random swaps. Swaps that are made again leave no time
# for reheats. The last passes of a move take much of its time, and hardly change its rank.
_SEARCH_IF_DENSE = replace(
    _SEARCH,
    noises=(0.2,),
    passes_of_reheat=3,
    swaps=(True,),
    repeats_swaps=False,
    starts_anew=False,
    patience=3,
    pause_factor=20.0,
)
# The effort of this search.
_EFFORT_IF_DENSE = 2.25
# The other parts take over most of what a part explains, so that a swap can pay where its gain is
# below the loss. Of swaps with a smaller gain than this share of the loss, one in sixty paid.
_LEAST_GAIN_IF_DENSE = 0.03
# The dispersion of the other start of a search that learns it.
_STRONG_NOISE = 10.0
# The mean count from which moves come before this start.
_LARGE_COUNTS = 30.0
# Moves read no more entries of X than this, and fewer cells of dense rows, whose passes are short.
_ENTRIES_FOR_MOVES, _CELLS_FOR_MOVES, _CELLS_IF_SMALL = 1 << 19, 1 << 15, 1 << 13


class SearchableCounts(Searchable[Counts, Summary]):
    """Mixin of the model, which says how a search looks for better parts."""

    n_columns: int
    activation_prior: float
    component_prior: float
    learns: tuple[str, ...]
    init_params: str
    dispersion: float | None
    proposed: float | None
    strong_noise: bool
    scale: float
    allocates: bool
    exploring_factor: float
    effort_if_dense: float | None = None
    cells_for_moves: int | None = None
    # The share of the loss without a part that the division of another one promises at least, in
    # guided swaps.
    least_gain: float = 0.0
    search_options = _SEARCH

    def search_dense_table(self, small: bool = True) -> None:
        """Search as it is worthwhile for dense tables."""
        self.effort_if_dense = _EFFORT_IF_DENSE
        self.cells_for_moves = _CELLS_IF_SMALL if small else _CELLS_FOR_MOVES
        self.least_gain = _LEAST_GAIN_IF_DENSE
        self.search_options = _SEARCH_IF_DENSE

    @property
    def usual_effort(self) -> float:
        # Sampling has looked for an optimum for as long as the passes that follow take.
        if self.effort_if_dense is not None:
            return self.effort_if_dense
        return _EFFORT_AFTER_SAMPLING if self.init_params == "collapsed_gibbs" else np.inf

    @property
    def tries_other_start_first(self) -> bool:
        # Strong noise joins parts of large counts, and moves from there hardly find them again.
        few = self.scale * _LARGE_COUNTS > 1.0
        return self.allocates or (few and "dispersion" in self.learns)

    def other_starts(self) -> tuple[Self, ...]:
        other = copy(self)
        other.init_params = "random_from_data" if self.init_params == "random" else "random"
        if self.allocates:
            other.init_params = "collapsed_gibbs"
        if "dispersion" not in self.learns:
            return (other,)
        # Strong noise at the start keeps bursts of small counts from becoming components.
        noisy = copy(self)
        noisy.strong_noise, noisy.dispersion, noisy.proposed = True, _STRONG_NOISE, _STRONG_NOISE
        return (noisy, other)

    def swapped(
        self,
        units: Counts,
        q: Natural,
        summary: Summary,
        prior: Natural,
        rng: np.random.Generator,
        guided: bool,
    ) -> Rearranged | None:
        """Return q after one part has been given up.

        A guided swap divides another part, and a random one looks for a part in the counts that the
        others do not explain.
        """
        if self.n_components < 2:
            return None
        explained = self._explained(units, q)
        # A random swap does not look at the losses.
        losses = explained.losses() if guided else np.zeros(self.n_components)
        number = given_up(losses, rng, guided)
        if guided:
            division = best_division(explained, number, rng)
            if division is None:
                return None
            other, halves, gain = division
            if gain < self.least_gain * losses[number]:
                return None
            return self._with_counts([other, number], halves, explained, q, summary, prior)
        rest = explained.without([number])
        found = [
            sought(explained, rest, start, self.activation_prior)
            for start in excesses(explained, rest, CANDIDATES, rng)
        ]
        if not found:
            return None
        counts, _ = max(found, key=lambda part: part[1])
        return self._with_counts([number], counts[None], explained, q, summary, prior)

    def merged(
        self,
        units: Counts,
        q: Natural,
        summary: Summary,
        prior: Natural,
        rng: np.random.Generator,
    ) -> Rearranged | None:
        """Return q after one part has taken over the counts of the part with the nearest profile.

        The other one explains nothing any more, so that swaps find a better use of it.
        """
        model: Any = self
        used = np.flatnonzero(model.expected_counts(q, prior) > 1.0)
        pair = most_alike(model.means(q), used)
        if pair is None:
            return None
        explained = self._explained(units, q)
        first, second = (explained.counts_of(k).T @ explained.weights for k in pair)
        halves = np.stack([first + second, 0.0 * second])
        return self._with_counts(list(pair), halves, explained, q, summary, prior)

    def _with_counts(
        self,
        numbers: list[int],
        counts: np.ndarray,
        explained: Explained,
        q: Natural,
        summary: Summary,
        prior: Natural,
    ) -> Rearranged:
        """Return the model, its prior and q after some parts have got other counts.

        They are those of a sample, of shape (n, n_columns). The activations of the parts are taken
        to have the mean 1, as the prior has it.
        """
        q = {key: value.copy(order="A") for key, value in q.items()}
        a, scale = self.component_prior, summary.weight / explained.weights.sum()
        cells = scale * explained.cells
        for k, own in zip(numbers, scale * counts, strict=True):
            weight = float(np.mean(own / np.maximum(cells, 1e-300)))
            shape, rate = a + own, prior["components_rate"][0] + weight * cells
            q["components_shape"][k] = shape
            q["components_rate"][k] = rate
            q["weights_shape"][k] = prior["weights_shape"][k] + own.sum()
            exposure = float((cells * (shape / rate)).sum())
            q["weights_rate"][k] = prior["weights_rate"][k] + exposure
        return self, prior, q

    def _explained(self, units: Counts, q: Natural) -> Explained:
        """Return a sample of the rows, with the counts that the parts expect."""
        n_entries = units.indptr[-1] if isinstance(units, SparseCounts) else units.X.size
        most = _ENTRIES_FOR_MOVES if self.cells_for_moves is None else self.cells_for_moves
        most = units.n_units * most // max(int(n_entries), 1)
        rows: Any = units.spread(max(min(most, ROWS_FOR_SWAPS), 1))
        model: Any = self
        means = model.infer(rows, q, SEQUENTIAL, exploring=self.exploring_factor > 1.0)
        visit = model.visit(q, rows, evaluation=True)
        rates = visit.rates_given(rows, means)
        shape, rate = q["weights_shape"], q["weights_rate"]
        log_parts = psi(q["components_shape"]) - np.log(q["components_rate"])
        observed = None if rows.patterns is None else (~np.isnan(rows.X)).astype(np.float64)
        return Explained(
            positive_counts(rows, self.n_columns),
            observed,
            np.ones(rows.n_units) if rows.weights is None else rows.weights,
            np.exp(psi(means * rates)) / rates,
            np.exp(log_parts + (psi(shape) - np.log(rate))[:, None]),
        )
