"""The model of hidden semi-Markov models, whose states last negative binomial times."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.special import betaln, gammaln

from ..data.units import Sequences
from ..families import Dirichlet, Natural
from ._base import Block, compiled
from ._dirichlet_rows import learned_rows
from ._durations import divided, without_diagonal
from ._exchangeable import ROWS_FOR_SWAPS
from ._known_states import add_known_moves
from ._searchable import Rearranged
from .components._base import Components
from .hidden_markov import Expected, HiddenMarkov, Summary, random_rows

kernels = partial(compiled, "hidden_semi_markov")

_NO_ENDS = np.empty((0, 0))
# Shapes that are chosen are at most this.
LARGEST_SHAPE = 100
# A random change multiplies shapes by one of these numbers: that of one state
# with this probability, and else those of all states.
_FACTORS, _ONE_STATE = (0.5, 0.75, 1.5, 2.0), 0.6
# A state with fewer segments keeps its shape.
_LEAST_SEGMENTS = 3
# Shapes are chosen from the segments that are not among one of these shares of the shortest ones.
# Short segments can be errors of the path, and a single one would keep the shape below its length.
_SHORTEST = (0.02, 0.1, 0.25)


class HiddenSemiMarkov(HiddenMarkov):
    """Hidden Markov model whose states last a negative binomial number of frames.

    State k is a chain of r_k sub-states with one emission. In every frame the chain leaves its
    sub-state with probability p_k, for the next one or, from the last one, for another state. The
    natural parameters of the chain are ``startprob`` (K,), ``transmat`` (K, K), the jumps to other
    states, and ``durations`` (K, 2), the concentrations of leaving and of staying. A sequence
    begins with the first sub-state of a state.

    A row of a Dirichlet distribution is a beta distribution of its first probability and an
    independent Dirichlet distribution of the shares of the others. With r_k = 1 the model is
    therefore :class:`HiddenMarkov` with the same priors.

    Parameters
    ----------
    emission, startprob_prior, init_params, learned_names
        As those of :class:`HiddenMarkov`.
    transmat_prior : ndarray of shape (n_components, n_components)
        Off the diagonal, the concentrations of jumps. Their sum is the concentration of leaving,
        and the diagonal has that of staying. A state of which all jumps are forbidden is not left;
        its jump to itself has probability 1, and does not happen.
    shapes : ndarray of int64, shape (n_components,)
        r_k.
    learns_shapes : bool, default=False
        Whether :meth:`reshaped` changes them.

    References
    ----------
    Johnson (2005), Capacity and complexity of HMM duration modeling techniques, IEEE Signal
    Processing Letters 12; Johnson and Willsky (2013), Bayesian nonparametric hidden semi-Markov
    models, JMLR 14, for the sub-states.
    """

    def __init__(
        self,
        emission: Components,
        startprob_prior: np.ndarray,
        transmat_prior: np.ndarray,
        init_params: str,
        learned_names: tuple[str, ...] = (),
        *,
        shapes: np.ndarray,
        learns_shapes: bool = False,
    ):
        self.shapes = np.ascontiguousarray(shapes, dtype=np.int64)
        self.learns_shapes = learns_shapes
        super().__init__(emission, startprob_prior, transmat_prior, init_params, learned_names)

    # The chain

    def chain_prior(self) -> Natural:
        return {"startprob": self.startprob_prior} | divided(self.transmat_prior)

    @property
    def states_of_sub_states(self) -> np.ndarray:
        return np.repeat(np.arange(self.n_components), self.shapes)

    def operations(self, units: Sequences) -> float:
        return super().operations(units) + 12.0 * float(units.indptr[-1] * self.shapes.sum())

    def chain_statistics(self, counts: Natural) -> Natural:
        found = {key: value for key, value in counts.items() if key != "transmat"}
        if "transmat" not in counts:
            return found
        stays = np.diagonal(counts["transmat"])
        jumps = counts["transmat"] - np.diag(stays)
        return found | {"transmat": jumps, "durations": self._durations(jumps.sum(axis=1), stays)}

    def _durations(self, ended: np.ndarray, stayed: np.ndarray) -> np.ndarray:
        """Return the numbers of frames after which sub-states are left and kept, (K, 2).

        ``ended`` has the numbers of segments that end, and ``stayed`` those of frames after which
        the state goes on. A segment leaves every sub-state once.
        """
        frames = ended + stayed
        left = np.minimum(self.shapes * ended, frames)
        return np.column_stack([left, frames - left])

    def with_known_moves(self, q: Natural, units: Sequences, weights: np.ndarray) -> Natural:
        k = self.n_components
        counts = {"startprob": np.zeros(k), "transmat": np.zeros((k, k))}
        add_known_moves(units, weights, counts["startprob"], counts["transmat"])
        prior, added = self.chain_prior(), self.chain_statistics(counts)
        return {key: q[key] + np.where(prior[key] > 0, added[key], 0.0) for key in added}

    def random_chain(self, summary: Summary, prior: Natural, rng: np.random.Generator) -> Natural:
        chain = super().random_chain(summary, prior, rng)
        share = summary.n_frames / self.n_components
        durations = prior["durations"] + share * random_rows(prior["durations"], rng)
        return chain | {"durations": durations}

    def durations(self, natural: Natural) -> np.ndarray:
        return natural["durations"]

    def chain_of(self, expected: Expected) -> tuple[np.ndarray, np.ndarray]:
        assert expected.durations is not None
        leave, stay = np.exp(expected.durations.T)
        start = np.zeros(self.shapes.sum())
        start[self._first] = np.exp(expected.startprob)
        exits = leave[:, None] * np.exp(expected.transmat)
        return start, self._expanded(stay, leave, exits)

    @property
    def _first(self) -> np.ndarray:
        """The first sub-state of each state."""
        return np.cumsum(self.shapes) - self.shapes

    def _expanded(self, stay: np.ndarray, leave: np.ndarray, exits: np.ndarray) -> np.ndarray:
        """Return the transitions between sub-states, (…, n_sub_states, n_sub_states).

        ``stay`` and ``leave`` have shape (…, K), and ``exits`` (…, K, K).
        """
        states = self.states_of_sub_states
        n = len(states)
        table = np.zeros((*stay.shape[:-1], n, n))
        each, last = np.arange(n), self._first + self.shapes - 1
        table[..., each, each] = stay[..., states]
        inner = np.setdiff1d(each, last)
        table[..., inner, inner + 1] = leave[..., states[inner]]
        table[..., last[:, None], self._first] += exits
        return table

    def zero_counts(self) -> Natural:
        # Kernels add to rows.
        return super().zero_counts() | {"durations": np.zeros((2, self.n_components))}

    def block_statistics(self, block: Block, raw: Natural, q: Natural) -> Natural:
        return super().block_statistics(block, raw | {"durations": raw["durations"].T}, q)

    def _terms(self, expected: Expected) -> tuple[np.ndarray, ...]:
        assert expected.durations is not None
        leave, stay = (np.ascontiguousarray(logs) for logs in expected.durations.T)
        return expected.startprob, expected.transmat, stay, leave, self.shapes

    def recursions(
        self, expected: Expected, raw: Natural, ends: np.ndarray | None = None
    ) -> tuple[Callable[..., None], tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        leaves, stays = raw["durations"]
        sums = raw["startprob"], raw["transmat"], stays, leaves
        run = kernels().forward_backward
        return run, self._terms(expected), (*sums, _NO_ENDS if ends is None else ends)

    def best_paths(
        self,
        density: np.ndarray,
        indptr: np.ndarray,
        expected: Expected,
        states: np.ndarray,
        log_probabilities: np.ndarray,
    ) -> None:
        kernels().viterbi(density, indptr, *self._terms(expected), states, log_probabilities)

    def _learned_transmat(self, prior: Natural, q: Natural, rho: float) -> np.ndarray:
        # The density of a whole row has the log probabilities of staying and of leaving for each
        # other state, whose terms add up in the same way.
        n = self.n_components
        leave, stay = Dirichlet().expectations({"concentration": q["durations"]})["concentration"].T
        family: Any = self._rows()["transmat"]
        jumps = family.expectations({"concentration": q["transmat"]})["concentration"].sum()
        return learned_rows(self.transmat_prior, stay.sum() + (n - 1) * leave.sum() + jumps, rho)

    def _tempered_chain(
        self, x: np.ndarray, expected: Expected, volume: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        assert expected.durations is not None
        leave, stay = np.exp(x[:, None, None] * expected.durations.T).swapaxes(0, 1)
        exits = leave[:, :, None] * np.exp(x[:, None, None] * expected.transmat)
        start = np.zeros((len(x), self.shapes.sum()))
        start[:, self._first] = np.exp(x[:, None] * expected.startprob)
        return start, self._expanded(stay, leave, exits), volume[:, self.states_of_sub_states]

    # Functions of the fitted parameters

    def expected_counts(self, q: Natural, prior: Natural) -> np.ndarray:
        jumps = without_diagonal(q["transmat"] - prior["transmat"])
        # Every frame but the last one of a sequence stays in its sub-state or leaves it, and only
        # jumps change the state.
        followed = (q["durations"] - prior["durations"]).sum(axis=1)
        into = jumps.sum(axis=0) - jumps.sum(axis=1)
        return q["startprob"] - prior["startprob"] + followed + into

    def frame_transitions(self, q: Natural) -> np.ndarray:
        """Return the transitions from frame to frame of states with the same mean durations."""
        means = self.chain_at_means(q)
        assert means.durations is not None
        leave = np.exp(means.durations[:, 0]) / self.shapes
        return leave[:, None] * np.exp(means.transmat) + np.diag(1.0 - leave)

    # Moves of a search

    def statistics_of(self, q: Natural, prior: Natural, chosen: np.ndarray) -> Natural:
        found = super().statistics_of(q, prior, chosen)
        durations = (q["durations"] - prior["durations"])[chosen]
        if len(chosen) == 1:  # a state alone is not left
            durations = np.column_stack([np.zeros(1), durations.sum(axis=1)])
        return found | {"durations": durations}

    def exchangeable(self, prior: Natural, order: np.ndarray) -> bool:
        durations = prior["durations"], prior["durations"][order]
        same = np.allclose(*durations, atol=0.0) and super().exchangeable(prior, order)
        return same and (self.learns_shapes or bool((self.shapes == self.shapes[order]).all()))

    def with_priors_of(self, larger: Self, chosen: np.ndarray) -> Self:
        model = super().with_priors_of(larger, chosen)
        model.shapes = larger.shapes[chosen]
        return model

    def reordered(
        self, q: Natural, prior: Natural, order: np.ndarray
    ) -> tuple[Self, Natural, Natural]:
        model, prior, q = super().reordered(q, prior, order)
        model.shapes = self.shapes[order]
        return model, prior, q

    def reshaped(
        self,
        units: Sequences,
        q: Natural,
        summary: Summary,
        prior: Natural,
        rng: np.random.Generator,
        guided: bool,
    ) -> Rearranged | None:
        if not self.learns_shapes:
            return None
        some: Any = units.spread(max(ROWS_FOR_SWAPS * units.n_units // max(units.n_rows, 1), 1))
        segments = self._segments(some, q)
        left_out = rng.choice(_SHORTEST)
        each = zip(segments, self.shapes, prior["durations"], strict=True)
        shapes = np.array([_best_shape(*own, left_out, r, given) for own, r, given in each])
        if not guided:
            factor, own = rng.choice(_FACTORS), np.ones(self.n_components, dtype=bool)
            if rng.random() < _ONE_STATE:
                own = np.arange(self.n_components) == rng.integers(self.n_components)
            wanted = np.round(factor * self.shapes).astype(np.int64)
            # Small shapes change by one at least.
            wanted += wanted == self.shapes
            shapes = np.where(own, np.clip(wanted, 1, LARGEST_SHAPE), self.shapes)
        if (shapes == self.shapes).all():
            return None
        model = copy(self)
        model.shapes = shapes
        ended = without_diagonal(q["transmat"] - prior["transmat"]).sum(axis=1)
        frames = (q["durations"] - prior["durations"]).sum(axis=1)
        durations = prior["durations"] + model._durations(ended, np.maximum(frames - ended, 0.0))
        changed = shapes != self.shapes
        return (
            model,
            prior,
            q | {"durations": np.where(changed[:, None], durations, q["durations"])},
        )

    def _segments(self, units: Sequences, q: Natural) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the lengths and the weights of the segments of each state, by the best paths.

        Last segments of sequences, whose ends are not seen, are left out.
        """
        expected = self.for_units(self.expectations(q), units)
        states = np.empty(len(units.frames), dtype=np.int64)
        for part in self.parts(units):
            some = units.take(part)
            frames = slice(units.indptr[part.start], units.indptr[part.stop])
            density = np.ascontiguousarray(self.log_density(some, expected))
            unused = np.empty(some.n_units)
            self.best_paths(density, some.indptr, expected, states[frames], unused)
        weights = np.ones(units.n_units) if units.weights is None else units.weights
        begins = np.append(True, states[1:] != states[:-1])
        begins[units.indptr[:-1][units.lengths > 0]] = True
        at = np.flatnonzero(begins)
        lengths = np.diff(np.append(at, len(states)))
        ended = ~np.isin(at + lengths, units.indptr)
        of_segments = units.per_frame(np.asarray(weights, dtype=float))[at]
        found = []
        for k in range(self.n_components):
            own = ended & (states[at] == k) & (of_segments > 0)
            found.append((lengths[own], of_segments[own]))
        return found


def _best_shape(
    lengths: np.ndarray, weights: np.ndarray, left_out: float, before: int, prior: np.ndarray
) -> int:
    """Return the shape with the highest marginal likelihood of the lengths of segments.

    The probability of leaving is integrated out. A share of the shortest segments is left out, and
    the shape is at most the length of any other. ``prior`` has the concentrations of leaving and
    staying.
    """
    if weights.sum() < _LEAST_SEGMENTS or (prior == 0).any():
        return int(before)
    order = np.argsort(lengths, kind="stable")
    kept = order[np.cumsum(weights[order]) > left_out * weights.sum()]
    d, w = lengths[kept][:, None], weights[kept]
    r = np.arange(1, min(int(d.min()), LARGEST_SHAPE) + 1)
    # Segments of d frames have gone through their sub-states in so many ways.
    ways = gammaln(d) - gammaln(r) - gammaln(d - r + 1)
    n, total = w.sum(), w @ d[:, 0]
    evidence = w @ ways + betaln(prior[0] + r * n, prior[1] + total - r * n)
    return int(r[np.argmax(evidence)])
