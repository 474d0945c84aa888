"""How the states of hidden Markov models are divided and put together, for starts and swaps."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..data.units import Sequences
from ..families import Natural, Tempering
from ._componentwise import Componentwise
from ._exchangeable import ROWS_FOR_SWAPS, Assigned, Exchangeable, nearer_to_second
from ._left_out import LeftOut, left_out
from ._points import n_distinct
from .components._base import Components, clusterings

if TYPE_CHECKING:
    from .hidden_markov import Summary

# Segments of a start are as long as shares drawn from a Dirichlet distribution with this
# concentration say, so that restarts differ and all states have frames.
_CONCENTRATION_OF_SHARES = 10.0
# Fewer sequences do not say by how much their densities differ by chance.
_LEAST_SEQUENCES = 10
# So many are enough where sequences were repeated: the bound takes each copy for new data, and
# rises with states for single frames.
_LEAST_REPEATED = 5
# So many frames say whether they recur.
_LOOKED_AT = 1_000
# Several states of fewer sequences hardly raise the bound by chance, if there are fewer columns
# than the first number, or so many frames for each column as the second.
_MANY_COLUMNS, _FRAMES_PER_COLUMN = 10, 20
# Elsewhere they raised it by up to so many nats per column, and 3 nats: priors of each column are
# learned, and follow differences of states by chance.
_CHANCE_PER_COLUMN = 0.15
# The ways in which the frames of a state are divided, with their probabilities.
_WAYS = {"points": 0.5, "time": 0.25, "sequence": 0.25}


class ExchangeableStates(Exchangeable[Sequences, "Summary"], Componentwise["Summary"]):
    """Mixin of hidden Markov models, whose rows are frames."""

    emission: Components
    startprob_prior: np.ndarray
    transmat_prior: np.ndarray

    @property
    def distributions(self) -> Components:
        return self.emission

    def n_rows(self, summary: Summary) -> float:
        return float(summary.n_frames)

    def statistics_of(self, q: Natural, prior: Natural, chosen: np.ndarray) -> Natural:
        added = {key: q[key] - prior[key] for key in q}
        return self.emission.reordered(added, chosen) | {
            "startprob": added["startprob"][chosen],
            "transmat": added["transmat"][np.ix_(chosen, chosen)],
        }

    def exchangeable(self, prior: Natural, order: np.ndarray) -> bool:
        chain = prior["startprob"], prior["startprob"][order]
        moves = prior["transmat"], prior["transmat"][np.ix_(order, order)]
        same = all(np.allclose(*pair, atol=0.0) for pair in (chain, moves))
        return same and bool(self.emission.exchangeable(prior, order))

    def reordered(
        self, q: Natural, prior: Natural, order: np.ndarray
    ) -> tuple[Self, Natural, Natural]:
        added = self.statistics_of(q, prior, order)
        model = copy(self)
        model.emission, own = self.emission.carried(prior, order)
        prior = prior | own
        return model, prior, {key: prior[key] + value for key, value in added.items()}

    def with_priors_of(self, larger: Self, chosen: np.ndarray) -> Self:
        model = copy(self)
        model.emission = self.emission.with_priors_of(larger.emission, chosen)
        return model

    def sampled(self, units: Sequences) -> Sequences:
        if goes_one_way(self.transmat_prior):
            # The times of frames say in which state they are, so that sequences remain whole.
            n_frames = max(units.n_entries, 1)
            return units.spread(max(ROWS_FOR_SWAPS * units.n_units // n_frames, 1))  # type: ignore[return-value]
        return units.windows(ROWS_FOR_SWAPS)

    def compared(self) -> Self:
        model = copy(self)
        model.emission = self.emission.compared()
        return model

    def left_out(self, units: Any, q: Natural, summary: Summary, prior: Natural) -> LeftOut | None:
        """Return the log densities of sequences, each given others; None if they are too few."""
        some = self.rows_of_folds(units)
        return None if some is None else left_out(self, some, q, summary, prior)

    def gain_by_chance(self, units: Any, summary: Summary) -> float | None:
        frames = units.spread(1).frames
        n_columns = 1 if frames.ndim == 1 else frames.shape[1]
        many = n_columns >= _MANY_COLUMNS and self.n_rows(summary) < _FRAMES_PER_COLUMN * n_columns
        if not many and self.rows_of_folds(units) is None:
            return None
        return _CHANCE_PER_COLUMN * n_columns

    def rows_of_folds(self, units: Any) -> Any:
        n_sampled = ROWS_FOR_SWAPS * units.n_units // max(units.n_rows, 1)
        # A copy of a sequence would tell what is left out with the other one.
        some = units.example.distinct(max(n_sampled, _LEAST_SEQUENCES))
        enough = some.n_units >= _LEAST_SEQUENCES
        return some if enough or some.n_units >= _LEAST_REPEATED and _repeated(some) else None

    def assigned(self, units: Sequences, q: Natural) -> Assigned:
        model: Any = self
        expected = model.for_units(model.expectations(q), units)
        posteriors = np.empty((len(units.frames), self.n_components))
        equal = copy(units)
        equal.weights = None  # they would multiply the probabilities
        model.local_step(equal, expected, Tempering(), posteriors=posteriors)
        weights = np.ones(units.n_units) if units.weights is None else units.weights
        return Assigned(posteriors, model.log_density(units, expected), units.per_frame(weights))

    def log_densities(self, units: Sequences, q: Natural) -> np.ndarray:
        model: Any = self
        return model.log_density(units, model.for_units(model.expectations(q), units))

    def posterior_given(
        self, responsibilities: np.ndarray, units: Sequences, summary: Summary, prior: Natural
    ) -> Natural:
        """Return the posterior given the probabilities of the states of all frames.

        Consecutive frames count as independent given these probabilities. In a chain whose states
        are visited in one order, they are put into the order of their mean times.
        """
        model: Any = self
        r = np.array(responsibilities)
        if units.states is not None:
            known = units.states >= 0
            r[known] = np.equal.outer(units.states[known], np.arange(self.n_components))
        elif goes_one_way(self.transmat_prior):
            r = r[:, _by_time(r, units)]
        weights = np.ones(units.n_units) if units.weights is None else units.weights
        weights = weights * (summary.n_frames / max(units.n_observations, 1e-300))
        weighted = r * units.per_frame(weights)[:, None]
        firsts = units.indptr[:-1][units.lengths > 0]
        follows = np.ones(len(r), dtype=bool)
        follows[firsts] = False
        later = np.flatnonzero(follows)
        counts = {
            "startprob": weighted[firsts].sum(axis=0) * (summary.weight / weights.sum()),
            "transmat": r[later - 1].T @ weighted[later],
        }
        counts = model.chain_statistics(counts)
        # Transitions that the prior forbids have no counts either.
        chain = {k: prior[k] + np.where(prior[k] > 0, counts[k], 0.0) for k in counts}
        if units.missing is not None:
            weighted[units.missing] = 0.0
        rows = units.rows()
        own = {key: prior[key] for key in self.emission.keys}
        expected = self.emission.for_rows(self.emission.expectations_of_start(rows, own), rows)
        raw = self.emission.zeros(expected)
        self.emission.add(rows, np.ascontiguousarray(weighted), raw, expected)
        return chain | self.emission.posterior_given(raw, own)

    def points(self, units: Sequences) -> Any:
        return self.emission.points(units.rows())

    def start_states(
        self, units: Sequences, segments: bool, random_state: np.random.RandomState
    ) -> np.ndarray:
        """Return states of all frames with which a fit can start.

        They are the clusters of the frames. Unlike a start of the emissions alone, this one begins
        with the transitions between clusters too. Symbols are clusters of their own, or groups of
        rare ones. With ``segments`` every sequence passes through all states in their order, whose
        shares are drawn once for all sequences.
        """
        k = self.n_components
        if segments:
            ends = np.cumsum(random_state.dirichlet(np.full(k, _CONCENTRATION_OF_SHARES)))
            passed = (_times(units) + 0.5) / units.per_frame(units.lengths)
            return np.minimum(np.searchsorted(ends, passed), k - 1)
        points = self.points(units)
        weights = None if units.weights is None else units.per_frame(units.weights)
        k = n_distinct(points, k)
        clusters = clusterings().KMeans(k, n_init=1, random_state=random_state)
        labels: np.ndarray = clusters.fit(points, sample_weight=weights).labels_
        return labels

    def division(
        self, weights: np.ndarray, points: Any, units: Any, rng: np.random.Generator
    ) -> np.ndarray:
        """Return which frames of a state are its second half, as numbers 0 and 1 per frame.

        They are those nearer to the second of two frames, the later ones in their sequences, or
        those of some sequences.
        """
        way = rng.choice(list(_WAYS), p=list(_WAYS.values()))
        if way == "time":
            times = _times(units)
            return (times >= rng.choice(times, p=weights / weights.sum())).astype(float)
        if way == "sequence":
            return units.per_frame(rng.integers(0, 2, units.n_units)).astype(float)
        return nearer_to_second(weights, points, rng)


def goes_one_way(transmat: np.ndarray) -> bool:
    """Return whether states can be visited in the order of their numbers alone.

    ``transmat``, of shape (n_components, n_components), is zero where a transition is forbidden.
    """
    return len(transmat) > 1 and not np.tril(transmat, -1).any()


def _repeated(distinct: Sequences) -> bool:
    """Return whether sequences have copies, and frames that hardly recur, as real numbers do not.

    Short sequences of few symbols are equal by chance.
    """
    if distinct.weights is None or not isinstance(distinct.frames, np.ndarray):
        return False
    frames = distinct.present()[:_LOOKED_AT]
    return distinct.weights.max() > 1.0 and 2 * len(np.unique(frames, axis=0)) > len(frames)


def _times(units: Sequences) -> np.ndarray:
    """Return the number of each frame within its sequence."""
    return np.arange(len(units.frames)) - units.per_frame(units.indptr[:-1])


def _by_time(responsibilities: np.ndarray, units: Sequences) -> np.ndarray:
    """Return the states in the order of the mean times of their frames."""
    totals = responsibilities.sum(axis=0)
    mean = _times(units) @ responsibilities / np.maximum(totals, 1e-300)
    return np.argsort(np.where(totals > 0, mean, np.inf), kind="stable")
