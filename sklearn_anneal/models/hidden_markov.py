"""The model of Bayesian hidden Markov models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import softmax

from ..data.units import Sequences
from ..families import (
    Dirichlet,
    Factor,
    Factors,
    Natural,
    PartialDirichlet,
    Tempering,
    UnitTemperatures,
)
from ..parallel.workers import SEQUENTIAL, Workers
from ._base import (
    Block,
    ConjugateModel,
    DataSummary,
    Known,
    LocalStep,
    Recommended,
    Visit,
    coinciding,
    compiled,
    merged,
    shallow,
    vector,
    whole,
)
from ._chain_moves import ExchangeableStates
from ._componentwise import Given, aligned
from ._dirichlet_rows import divergence_of_rows, free_chain, learned_rows, logs_of_rows
from ._durations import divided
from ._known_classes import IMPOSSIBLE, exclude_others
from ._known_states import add_known_moves, start_with_known_states
from ._streamed import Streamed, least_rows_of_fit
from ._tempered_chains import (
    Gaps,
    LocallyTemperedVisit,
    Partition,
    holes_of,
    numbers_with_gaps,
)
from .components._base import (
    SHARE_THAT_MOVES,
    Components,
    Next,
    column_sums,
    log_means,
    multiplied,
)
from .components._missing_cells import tempered_volume

_NOTHING, _ONE = np.empty(0), np.ones(1)

kernels = partial(compiled, "hidden_markov")

# The key of what is known about the chain, beside what is known about the emission.
_OF_CHAIN = "chain"

# Largest number of entries of the arrays (log densities, posteriors, features) that are in memory
# at a time, unless a single sequence has more. Arrays of this size are small, yet large enough
# that the time of the interpreter between two calls of a kernel does not matter.
_ENTRIES = 320 * 1024
# Every further frame adds to log C. Once that growth changes by less than this share from one
# frame to the next, it is taken as the growth of all frames that follow.
_SETTLED = 1e-12
# A step that learns priors leaves each parameter of q at least this share of its distance from the
# edge of its domain. Steps of coordinate ascent never come so near.
_MARGIN = 1e-6
# States whose coordinates all differ by less than this are practically the same.
_SAME = 0.01


@dataclass(frozen=True)
class Summary(DataSummary):
    """The moments of the training data that the model needs."""

    # Σ w of all sequences; in a stream, this includes sequences that have not arrived yet.
    weight: float
    seen: float  # Σ w of the sequences that the other attributes describe
    lengths: np.ndarray  # the different lengths of the sequences, in frames, (n_lengths,)
    # Σ w of the sequences of each length that have no missing frames, (n_lengths,).
    numbers: np.ndarray
    frames: float  # weighted number of frames, including missing ones
    n_sequences: int  # number of sequences, including those of weight zero
    emission: Any  # the summary of the emission; None if it needs none, or if no frame is observed
    gaps: Gaps | None = None  # the sequences with missing frames; None if there are none
    # The weight of the missing cells of each column, in frames that are missing in part,
    # (n_columns,).
    holes: np.ndarray | float = 0.0

    @property
    def center(self) -> np.ndarray | None:
        """The origin of the emission's coordinates; None if the emission has none."""
        return getattr(self.emission, "center", None)

    @property
    def n_frames(self) -> float:
        """Weighted number of frames of all data, including data that have not arrived yet."""
        return self.frames * self.weight / self.seen

    def merge(self, other: Summary) -> Summary:
        """Return the summary of both data sets together."""
        lengths = np.concatenate([self.lengths, other.lengths])
        lengths, where = np.unique(lengths, return_inverse=True)
        numbers = np.bincount(where, np.concatenate([self.numbers, other.numbers]))
        seen = self.seen + other.seen
        return Summary(
            seen,
            seen,
            lengths,
            numbers,
            self.frames + other.frames,
            self.n_sequences + other.n_sequences,
            merged(self.emission, other.emission),
            merged(self.gaps, other.gaps),
            self.holes + other.holes,
        )

    def whole(self) -> Summary:
        return replace(self, emission=whole(self.emission))

    def continued(self, other: Summary) -> Summary:
        """Return the summary of other data, but with this summary of the emission.

        The priors and the coordinates of the emission were computed from it, and both stay when
        a fit goes on with other data.
        """
        return replace(other, emission=self.emission)


def log_probabilities(concentration: np.ndarray) -> np.ndarray:
    """Return the logarithms of the means of Dirichlet rows, in which a concentration may be 0."""
    with np.errstate(divide="ignore"):
        return np.where(concentration > 0, log_means(concentration), IMPOSSIBLE)


class Expected(NamedTuple):
    """The terms of E log p(x, z | β), or of log p(x, z | β) at one value of β.

    Forbidden starts and transitions have the value ``IMPOSSIBLE``.
    """

    startprob: np.ndarray  # log probabilities of the first state, (n_components,)
    # Log probabilities of transitions, from the row's state to the column's state,
    # (n_components, n_components).
    transmat: np.ndarray
    emission: Any  # the log densities of frames, in the form that the emission reads
    # For states with sub-states: log probabilities of leaving a sub-state, and of staying in it,
    # (n_components, 2). Transitions are then jumps from the last sub-state.
    durations: np.ndarray | None = None


def _restrict(density: np.ndarray, units: Sequences) -> None:
    """Set the log densities of frames that are missing, or whose state is known, in place."""
    if units.missing is not None:
        density[units.missing] = 0.0
    if units.states is not None:
        exclude_others(density, units.states, np.arange(density.shape[1]))


class MarkovVisit(Visit):
    """A visit to sequences, whose local steps the model makes."""

    def finish(self, step: LocalStep) -> LocalStep:
        """Add what is known about q to the step, as learning priors can use it."""
        step.known = self.known
        return step


class HiddenMarkov(ExchangeableStates, Streamed, ConjugateModel[Sequences, Summary]):
    """Hidden Markov model with Dirichlet priors of start and transition probabilities.

    The model holds hyperparameters only. Its natural parameters are ``startprob`` (K,),
    ``transmat`` (K, K) with one distribution per row, and those of the emission.

    Parameters
    ----------
    emission : Components
        The distribution of a frame given its state.
    startprob_prior : ndarray of shape (n_components,)
    transmat_prior : ndarray of shape (n_components, n_components)
        A start or transition whose concentration is 0 is forbidden: its probability is 0, and the
        Dirichlet distribution of its row is that of the others. Each row allows at least one.
    init_params : {"kmeans", "random", "segments", "labels"}
    learned_names : tuple of str
        Which of ``"startprob"`` and ``"transmat"`` have a prior with a concentration that is
        learned, as one number for all entries. Constants that are added to single entries, such as
        the diagonal of ``transmat_prior``, stay as they are.

    References
    ----------
    MacKay (1997), Ensemble learning for hidden Markov models; Beal (2003), Variational algorithms
    for approximate Bayesian inference, chapter 3; Rabiner (1989) for the scaled recursions.
    """

    accelerates = True
    keeps_known = True
    recommended: ClassVar[Recommended] = {
        "deterministic": {
            "form": "likelihood",
            "initial_temperature": 1.5,
            "schedule": "geometric",
            "n_passes": 200,
            "jitter": 1.0,
        },
        "stochastic": {
            "initial_noise": 0.1,
            "schedule": "linear",
            "n_passes": 50,
            "start": "init_params",
        },
        "tempering": {"max_temperature": 10.0, "n_temperatures": 100, "damping": 0.05},
        "local_tempering": {"n_temperatures": 100, "n_rounds": 2},
        "svi_plus": {"effective_batch_size": 0.25, "noise": "dirichlet", "schedule": "linear"},
        "structured": {"gradient": "approximate"},
        "proximity": {"strength": 0.003, "lag": 5, "learning_rate": 0.5},
    }

    def __init__(
        self,
        emission: Components,
        startprob_prior: np.ndarray,
        transmat_prior: np.ndarray,
        init_params: str,
        learned_names: tuple[str, ...] = (),
    ):
        self.emission = emission
        self.n_components = emission.n_components
        self.startprob_prior = startprob_prior
        self.transmat_prior = transmat_prior
        self.init_params = init_params
        self.learned_names = learned_names
        # The frames of each state when priors were last learned.
        self.counts: np.ndarray | None = None
        # None if nothing is forbidden. Priors that are learned have no zeros, before and after.
        self._supports = {k: None if p.all() else p > 0 for k, p in self.chain_prior().items()}

    # The chain, which other distributions of durations change

    def chain_prior(self) -> Natural:
        """Return λ₀ of the chain."""
        return {"startprob": self.startprob_prior, "transmat": self.transmat_prior}

    @property
    def states_of_sub_states(self) -> np.ndarray:
        """The state of each state of the Markov chain, of which several can be one state."""
        return np.arange(self.n_components)

    def durations(self, natural: Natural) -> np.ndarray:
        """Return the concentrations of leaving a state and of staying in it, (n_components, 2)."""
        return divided(natural["transmat"])["durations"]

    def chain_statistics(self, counts: Natural) -> Natural:
        """Return what numbers of starts and of transitions from frame to frame add to λ₀.

        ``counts`` has one or both of them by the keys ``startprob`` and ``transmat``, in which the
        diagonal counts the frames whose state goes on.
        """
        return counts

    def with_known_moves(self, q: Natural, units: Sequences, weights: np.ndarray) -> Natural:
        """Return the parameters of the chain, plus the weights of known starts and transitions."""
        start, transmat = q["startprob"].copy(), q["transmat"].copy()
        add_known_moves(units, weights, start, transmat)
        return {"startprob": start, "transmat": transmat}

    def random_chain(self, summary: Summary, prior: Natural, rng: np.random.Generator) -> Natural:
        """Return the parameters of the chain given random counts, for N/K frames in a state."""
        share = summary.n_frames / self.n_components
        return {
            "startprob": prior["startprob"] + summary.weight * random_rows(prior["startprob"], rng),
            "transmat": prior["transmat"] + share * random_rows(prior["transmat"], rng),
        }

    def chain_at_means(self, q: Natural) -> Expected:
        """Return the logarithms of the posterior means of the chain, without an emission."""
        start, transitions, *durations = (log_probabilities(q[key]) for key in self._supports)
        return Expected(start, transitions, None, *durations)

    def markov_chain(self, q: Natural) -> tuple[np.ndarray, np.ndarray]:
        """Return the start and the transitions of the Markov chain at the posterior means.

        Their shapes are (n_sub_states,) and (n_sub_states, n_sub_states).
        """
        return self.chain_of(self.chain_at_means(q))

    def chain_of(self, expected: Expected) -> tuple[np.ndarray, np.ndarray]:
        """Return the start and the transitions of the Markov chain, given their logarithms."""
        return np.exp(expected.startprob), np.exp(expected.transmat)

    def frame_transitions(self, q: Natural) -> np.ndarray:
        """Return the posterior means of the transitions of states from frame to frame."""
        return np.exp(self.chain_at_means(q).transmat)

    def zero_counts(self) -> Natural:
        """Return raw statistics of the chain of no sequence."""
        k = self.n_components
        return {"startprob": np.zeros(k), "transmat": np.zeros((k, k))}

    def recursions(
        self, expected: Expected, raw: Natural, ends: np.ndarray | None = None
    ) -> tuple[Callable[..., None], tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        """Return the kernel of forward–backward, its terms of the chain, and its sums.

        The sums, ``raw``, are added to. ``ends`` is as in :meth:`log_likelihoods`; a kernel without
        sub-states does not need it.
        """
        terms = expected.startprob, expected.transmat
        return kernels().forward_backward, terms, (raw["startprob"], raw["transmat"])

    def best_paths(
        self,
        density: np.ndarray,
        indptr: np.ndarray,
        expected: Expected,
        states: np.ndarray,
        log_probabilities: np.ndarray,
    ) -> None:
        """Fill the most probable states of frames, and the log probabilities of these paths."""
        chain = expected.startprob, expected.transmat
        kernels().viterbi(density, indptr, *chain, states, log_probabilities)

    def _learned_transmat(self, prior: Natural, q: Natural, rho: float) -> np.ndarray:
        """Return ``transmat_prior`` after a step that learns its concentration."""
        return learned_rows(prior["transmat"], logs_of_rows(q["transmat"]).sum(), rho)

    def _tempered_chain(
        self, x: np.ndarray, expected: Expected, volume: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return π^x, A^x and the log volumes of the Markov chain at inverse temperatures.

        Their shapes are (M, n_sub_states), (M, n_sub_states, n_sub_states) and (M, n_sub_states).
        """
        transfer = np.exp(x[:, None, None] * expected.transmat)
        return np.exp(x[:, None] * expected.startprob), transfer, volume

    def capabilities(self) -> dict[str, str | None]:
        can: dict[str, str | None] = dict.fromkeys(("draws", "assignments"))
        volume = ("log_partition", "unit_log_partition", "locally_tempered_step")
        return can | dict.fromkeys(volume, self.emission.why_no_log_volume)

    def factors(self) -> Factors:
        return Factors([*self._factors_of_chain, *self.emission.factors])

    @property
    def _factors_of_chain(self) -> Factors:
        if all(support is None for support in self._supports.values()):
            return free_chain(tuple(self._supports))
        rows = self._rows().items()
        return Factors([Factor(family, {"concentration": key}) for key, family in rows])

    def _rows(self) -> dict[str, Dirichlet]:
        """Return the families of starts and transitions."""
        return {
            key: Dirichlet() if support is None else PartialDirichlet(support)
            for key, support in self._supports.items()
        }

    def operations(self, units: Sequences) -> float:
        return float(units.indptr[-1]) * self.n_components * (6.0 * self.n_components + 20.0)

    # Data, prior and starts

    def summary(self, units: Sequences) -> Summary:
        # The weights of the sequences without gaps: those of the others are set to zero below.
        without_gaps = np.ones(units.n_units) if units.weights is None else units.weights.copy()
        with_gaps = numbers_with_gaps(units)
        # Sequences of weight zero contribute nothing, so that their gaps need not be kept.
        with_gaps = with_gaps[without_gaps[with_gaps] > 0]
        without_gaps[with_gaps] = 0.0
        lengths, where = np.unique(units.lengths, return_inverse=True)
        observed, holes = units.observed(), holes_of(units)
        if holes is not None:
            weights = np.ones(units.n_units) if units.weights is None else units.weights
            holes = units.per_frame(weights) @ holes
        return Summary(
            units.total_weight,
            units.total_weight,
            lengths,
            np.bincount(where, without_gaps),
            units.n_observations,
            units.n_units,
            self.emission.summary(observed) if observed.total_weight > 0 else None,
            Gaps.of(units, with_gaps),
            0.0 if holes is None else holes,
        )

    def resolved(self, summary: Summary, hold_units: bool = False) -> Self:
        model = copy(self)
        model.emission = self.emission.resolved(summary.emission)
        return model

    def least_weight(self, summary: Summary) -> float:
        return self.emission.least_rows * summary.seen / summary.frames

    def shares_of_components(self, units: Sequences, q: Natural) -> np.ndarray:
        shares: np.ndarray = softmax(self.emission.log_predictive(units.rows(), q), axis=1)
        if units.missing is not None:
            shares[units.missing] = 0.0
        return shares

    def least_weight_of_fit(self, summary: Summary) -> float:
        frames = least_rows_of_fit(self.n_components, self.emission.least_rows)
        return frames * summary.seen / summary.frames

    def prior(self, summary: Summary) -> Natural:
        return self.chain_prior() | self.emission.prior(summary.emission)

    def init(
        self,
        units: Sequences,
        summary: Summary,
        prior: Natural,
        random_state: np.random.RandomState,
    ) -> Natural:
        if self.init_params in ("labels", "segments"):
            some = self.sampled(units)
            states = self.start_states(some, self.init_params == "segments", random_state)
            one_hot = np.equal.outer(states, np.arange(self.n_components)).astype(float)
            return self.posterior_given(one_hot, some, summary, prior)
        rng = np.random.default_rng(random_state.randint(0, 2**31 - 1, size=4))
        q = self.random_natural(summary, prior, rng)
        if self.init_params != "random":
            own = {key: prior[key] for key in self.emission.keys}
            rows = units.observed()
            q = q | self.emission.start(rows, summary.n_frames, own, random_state)
        if units.states is not None and (units.states >= 0).any():
            return start_with_known_states(self, q, units, summary, prior)
        return q

    def started_at(
        self,
        given: Given,
        usual: Callable[[], Natural],
        summary: Summary,
        prior: Natural,
    ) -> Natural:
        """Return the posterior given as many frames as there are, N/K of them in every state.

        ``given`` has the probabilities ``startprob`` and ``transmat``, and the ``profile`` of the
        states (:meth:`Components.posterior_like`). Parameters that it lacks are those of the states
        of the usual start that resemble the given ones.
        """
        emission, own = self.emission, summary.emission
        each = summary.n_frames / self.n_components
        counts = {"startprob": summary.weight, "transmat": each}
        counted = {key: n * given[key] for key, n in counts.items() if key in given}
        chain = {key: prior[key] + n for key, n in self.chain_statistics(counted).items()}
        profile = given.get("profile", {})
        q = {} if len(counted) == len(counts) and emission.is_whole(profile) else usual()
        frames = np.full(self.n_components, each)

        def begun(q: Natural) -> Natural:
            return q | emission.posterior_like(profile, frames, q, own, prior) if profile else q

        if q and profile and not self._in_order:
            q = aligned(self, emission, begun, q, own, prior)
        return begun(q) | chain

    @property
    def _in_order(self) -> bool:
        """Whether the states of a start have an order, or may not exchange their transitions."""
        forbids = any(support is not None for support in self._supports.values())
        return self.init_params == "segments" or forbids

    @property
    def starts_assigned(self) -> bool:
        return self.init_params != "random"

    def other_starts(self) -> tuple[Self, ...]:
        other = copy(self)
        other.init_params = "labels"
        return (other,)

    def random_natural(
        self,
        summary: Summary,
        prior: Natural,
        rng: np.random.Generator,
        block: Block | None = None,
    ) -> Natural:
        """Return the posterior given random counts, with N/K frames in every state."""
        chain = self.random_chain(summary, prior, rng)
        own = {key: prior[key] for key in self.emission.keys}
        counts = np.full(self.n_components, summary.n_frames / self.n_components)
        return chain | self.emission.random_natural(counts, summary.emission, own, rng)

    # The local step

    def expectations(
        self, q: Natural, rng: np.random.Generator | None = None, known: Known | None = None
    ) -> Expected:
        of_chain = {} if known is None else known[_OF_CHAIN]

        def logarithms(key: str, family: Dirichlet) -> np.ndarray:
            if key in of_chain:
                return np.ascontiguousarray(of_chain[key].T).reshape(q[key].shape)
            natural = {"concentration": q[key]}
            if rng is None:
                logs = family.expectations(natural)["concentration"]
            else:
                logs = family.sample(natural, rng)["log_probabilities"]
            if isinstance(family, PartialDirichlet):
                logs = np.where(family.support, logs, IMPOSSIBLE)
            return logs

        rows = self._rows().items()
        start, transitions, *durations = [logarithms(key, family) for key, family in rows]
        if known is None:
            emission = self.emission.expectations(q, rng)
        else:
            none = np.zeros(self.n_components)
            emission = self.emission.joint_expectations(q, none, rng, known).own
        return Expected(start, transitions, emission, *durations)

    def visit(
        self,
        q: Natural,
        units: Any,
        t: Tempering = Tempering(),  # noqa: B008
        *,
        rng: np.random.Generator | None = None,
        unit_temperatures: UnitTemperatures | None = None,
        separate_noise: bool = False,
        **how: Any,
    ) -> Visit:
        # Priors that are learned while states still exchange symbols and frames would keep them
        # from doing so: a small concentration practically excludes what a state does not have yet.
        late = bool(self.learned_names) or self.emission.learns_late
        known = self.emission.known(q, how.get("known")) if rng is None else None
        if known is not None:
            allowed = [key for key, support in self._supports.items() if support is None]
            known[_OF_CHAIN] = {key: logs_of_rows(q[key]) for key in allowed}
        expected = self.for_units(self.expectations(q, rng, known), units)
        if known is not None and not units.are_one_chunk:
            own = self.emission.for_several_chunks(expected.emission)
            expected = expected._replace(emission=own)
        kind = MarkovVisit if unit_temperatures is None else LocallyTemperedVisit
        how = {"unit_temperatures": unit_temperatures, "separate_noise": separate_noise}
        return kind(self, expected, t, learns_late=late, known=known, **how)

    def for_units(self, expected: Expected, units: Sequences) -> Expected:
        """Return expectations in the form that suits the way in which frames are stored."""
        return expected._replace(emission=self.emission.for_rows(expected.emission, units.rows()))

    def plug_in(self, q: Natural) -> Expected:
        """Return the terms of log p(x, z | β) at the posterior means of β."""
        return self.chain_at_means(q)._replace(emission=self.emission.plug_in(q))

    def log_density(self, units: Sequences, expected: Expected) -> np.ndarray:
        """Return E log p(x | z = k) of all frames in nats, (n_frames, n_components).

        It is zero for missing frames, which say nothing about their states. Where the state of a
        frame is known, it is ``IMPOSSIBLE`` in all others.
        """
        density = self.emission.log_density(units.rows(), expected.emission)
        _restrict(density, units)
        return density

    def densities(
        self, units: Sequences, q: Natural, predictive: bool
    ) -> Iterator[tuple[slice, Sequences, np.ndarray]]:
        """Yield parts of the sequences, and the log densities of their frames given the states.

        They are posterior predictive densities, or those at the posterior means, in nats, of shape
        (n_frames, n_components).
        """
        plug_in = None if predictive else self.for_units(self.plug_in(q), units)
        for part in self.parts(units):
            some = units.take(part)
            if plug_in is not None:
                yield part, some, self.log_density(some, plug_in)
                continue
            density = np.ascontiguousarray(self.emission.log_predictive(some.rows(), q))
            if some.missing is not None:
                density[some.missing] = 0.0
            yield part, some, density

    def log_likelihoods(
        self,
        units: Sequences,
        q: Natural,
        predictive: bool,
        posteriors: np.ndarray | None = None,
        ends: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the log-likelihood and the energy of each sequence, both (n_sequences,).

        Start and transition probabilities are posterior means. ``posteriors`` of shape
        (n_frames, n_components) is filled with the probabilities of the states if it is given, and
        ``ends`` (n_sequences, n_sub_states) with those of the Markov chain's states in last frames.
        """
        chain, unused = self.chain_at_means(q), self.zero_counts()
        found = np.empty(units.n_units), np.empty(units.n_units)
        for part, some, density in self.densities(units, q, predictive):
            frames = slice(units.indptr[part.start], units.indptr[part.stop])
            shares = np.empty(density.shape) if posteriors is None else posteriors[frames]
            own = None if ends is None else ends[part]
            run, terms, sums = self.recursions(chain, unused, own)
            run(
                density,
                some.indptr,
                *terms,
                _ONE,
                _NOTHING,
                shares,
                *sums,
                *(each[part] for each in found),
            )
            if own is not None and own.shape[1] == self.n_components:
                # Without sub-states these are the states of last frames.
                own[:] = shares[some.indptr[1:] - 1]
        return found

    def log_predictive(self, units: Sequences, q: Natural) -> np.ndarray:
        """Return the log-likelihood of each sequence in nats, (n_sequences,)."""
        return self.log_likelihoods(units, q, predictive=True)[0]

    def parts(self, units: Sequences) -> Iterator[slice]:
        """Yield the parts of the sequences whose densities are in memory at the same time."""
        n_features = units.frames.shape[1] if units.frames.ndim == 2 else 1
        return units.parts(_ENTRIES // max(self.n_components, n_features))

    def local_step(
        self,
        units: Sequences,
        expected: Expected,
        t: Tempering,
        noise: np.ndarray | None = None,
        separate_noise: bool = False,
        posteriors: np.ndarray | None = None,
        energies: np.ndarray | None = None,
    ) -> LocalStep:
        """Run forward–backward over all sequences, with a part of them in memory at a time.

        Two arrays are filled if they are given: ``posteriors`` (n_frames, n_components) with the
        probabilities of the states of all frames, times the factors of the statistics, and
        ``energies`` (n_sequences,) with E log p(x, z | β) of each sequence.
        """
        inverse_temperatures = vector(t.local)
        scales = [self._scale(units, t.statistics if noise is None else t.statistics * noise)]
        if separate_noise:
            scales.insert(0, self._scale(units, t.statistics))
        raw: list[Natural] = [self.zero_counts() for _ in scales]
        own = [self.emission.zeros(expected.emission) for _ in scales]
        log_norms = np.empty(units.n_units)
        energies = np.empty(units.n_units) if energies is None else energies
        parts = list(self.parts(units))
        alone = len(parts) == len(scales) == 1
        last = self.emission.last_sums(expected.emission) if alone else None
        for part in parts:
            some = units if part == slice(0, units.n_units) else units.take(part)
            rows = some.rows()
            density = self.emission.log_density(rows, expected.emission)
            _restrict(density, some)
            x = inverse_temperatures
            x = x if len(x) == 1 else x[part]
            shares = np.empty(density.shape)
            for i, scale in enumerate(scales):
                run, terms, sums = self.recursions(expected, raw[i])
                run(
                    density,
                    some.indptr,
                    *terms,
                    x,
                    scale[part] if len(scale) else scale,
                    shares,
                    *sums,
                    log_norms[part],
                    energies[part],
                )
                if posteriors is not None:
                    posteriors[units.indptr[part.start] : units.indptr[part.stop]] = shares
                if some.missing is not None:
                    shares[some.missing] = 0.0
                found = None if last is None else last.of(rows, shares)
                if found is not None:
                    own[i] = found
                    continue
                self.emission.add(rows, shares, own[i], expected.emission)
                if last is not None:
                    last.keep(rows, shares, own[i])
        raw = [a | {"emission": b} for a, b in zip(raw, own, strict=True)]
        # log Z = x E log p(x, z | β) + H[q(z)].
        entropies = log_norms - inverse_temperatures * energies
        weights = np.ones(units.n_units) if units.weights is None else units.weights
        totals = float(weights @ energies), float(weights @ entropies)
        return LocalStep(raw[0], *totals, deviation=raw[1] if separate_noise else None)

    def _scale(self, units: Sequences, factor: np.ndarray | float) -> np.ndarray:
        """Return the factor of the statistics of each sequence; empty if all factors are 1."""
        if np.ndim(factor) == 0 and factor == 1.0 and units.weights is None:
            return _NOTHING
        weights = 1.0 if units.weights is None else units.weights
        return np.ascontiguousarray(np.broadcast_to(weights * factor, units.n_units), dtype=float)

    def block_statistics(self, block: Block, raw: Natural, q: Natural) -> Natural:
        chain = {key: raw[key] for key in self._supports}
        return chain | self.emission.statistics(raw["emission"])

    def jitter(self, q: Natural, size: float, rng: np.random.Generator, prior: Natural) -> Natural:
        """Multiply every count by exp(size · N(0, 1))."""
        moved = {key: multiplied(q[key], size, rng) for key in self._supports}
        return q | moved | self.emission.multiplied_counts(q, size, rng)

    # Hyperparameters

    def kl(
        self, q: Natural, prior: Natural, known: Known | None = None, workers: Workers = SEQUENTIAL
    ) -> float:
        own = None if known is None else self.emission.kl_given(q, prior, known)
        if known is None or own is None:
            return super().kl(q, prior, known, workers) + self.emission.hyperparameter_kl()
        of_chain = known[_OF_CHAIN]
        each = [divergence_of_rows(q[key], prior[key], logs) for key, logs in of_chain.items()]
        if None in each or len(each) < len(self._supports):
            each = [self._factors_of_chain.kl(q, prior)]
        return sum(each) + own + self.emission.hyperparameter_kl()  # type: ignore[arg-type]

    def learned(
        self,
        q: Natural,
        prior: Natural,
        step: LocalStep | None,
        rho: float,
        scale: float,
        late: bool = True,
    ) -> tuple[Self, Natural, Natural]:
        """Maximise the bound over the learned priors given q, then over q given the statistics.

        The second step adds the change of the prior to q, because q is the sum of the prior and
        the statistics.
        """
        names = self.learned_names if late else ()
        if not (names or self.emission.learns_early or (late and self.emission.learns_late)):
            return self, prior, q
        model, new = shallow(self), {key: prior[key] for key in self.emission.keys}
        counts = self.expected_counts(q, prior)
        changed, n_frames = np.inf, sum(counts.tolist())
        # Sums of few numbers take less time than calls of NumPy.
        if self.counts is not None:
            changed = sum(map(abs, (counts - self.counts).tolist()))
        model.counts = counts
        known = None if step is None else step.known
        if step is not None and known is not None:
            known["raw"] = step.statistics["emission"]
        if self.emission.learns_from(n_frames):
            stay = step is not None and changed <= SHARE_THAT_MOVES * n_frames
            model.emission, new = self.emission.learned(q, new, rho, late, stay, known)
        of_emission = new
        if "startprob" in names:
            logs = logs_of_rows(q["startprob"]).sum()
            model.startprob_prior = learned_rows(prior["startprob"], logs, rho)
        if "transmat" in names:
            model.transmat_prior = self._learned_transmat(prior, q, rho)
        new = model.chain_prior() | new
        # Learning the prior of emissions may have computed their next q.
        computed: Next | None = None if known is None else known.get("next")
        found = computed.q if computed is not None and computed.prior is of_emission else {}
        change = {key: new[key] - prior[key] for key in q.keys() - found.keys()}
        rest = {key: q[key] for key in change}
        return model, new, self.factors().backoff(rest, change, 1.0, _MARGIN) | found

    # Operations that only some annealing methods need

    def unit_log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> Partition:
        """Return log C(x) of sequences of any length.

        It is computed with the transfer matrix of the tempered chain, in which E log β replaces
        log β. The exponentials of E log β do not sum to 1, so that log C(1) would not be 0;
        therefore x log C(1) is subtracted. C sums over all states whether they are known or not,
        because it sums over all values of data too.
        """
        x = np.append(x, 1.0)
        expected = self.expectations(q)
        volume = self.emission.log_volume(x, summary.emission, expected.emission)
        # C(x) = (πˣ)ᵀ V (Aˣ V)ⁿ⁻¹ 1 for n frames, with the diagonal matrix V of exp(volume), and
        # powers of entries. ``growth`` is the logarithm by which one more frame multiplies it.
        start, transfer, volume = self._tempered_chain(x, expected, volume)
        state = start
        longest = max(int(summary.lengths.max()), 2)
        rows, growth = [np.zeros(len(x))], np.full(len(x), np.inf)
        shares = np.zeros_like(state)
        for _ in range(longest):
            with np.errstate(divide="ignore"):
                log_state = np.log(state) + volume
            # A state that cannot be reached may have a volume larger than that of all others.
            top = log_state.max(axis=1, keepdims=True)
            state = np.exp(log_state - top)
            total = state.sum(axis=1, keepdims=True)
            before, growth = growth, (np.log(total) + top)[:, 0]
            last, shares = shares, state / total
            rows.append(rows[-1] + growth)
            settled = np.abs(growth - before).max() <= _SETTLED * np.abs(growth).max()
            if len(rows) > 3 and settled and np.abs(shares - last).max() <= _SETTLED:
                break
            state = np.einsum("mi,mij->mj", shares, transfer)
        table = np.array(rows)
        table = table[:, :-1] - x[:-1] * table[:, -1:]
        cells, columns = self.emission.row_volume(summary.emission), None
        if cells is None and np.ndim(summary.holes):
            columns = self.emission.log_volumes(x, summary.emission, expected.emission).mean(axis=1)
            columns = columns[:-1] - np.outer(x[:-1], columns[-1])
        return Partition(table, x, start, volume, transfer, cells, columns)

    def log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> np.ndarray:
        """Return log C(x) of all sequences in nats, of the shape of ``x``."""
        partition = self.unit_log_partition(x, summary, q)
        total = summary.numbers @ partition.of_lengths(summary.lengths)
        if summary.gaps is not None:
            total = total + summary.gaps.weights @ partition.of_gaps(summary.gaps)
        if getattr(summary.emission, "cells", None) is not None:
            assert partition.cells is not None
            n_cells, log_det = partition.cells.mean(summary.emission)
            n_cells -= len(summary.emission.mean)
            change = tempered_volume(x, n_cells, log_det - partition.cells.log_det)
            total = total + summary.emission.seen * change
        if partition.columns is not None:
            total = total - partition.columns @ summary.holes
        return summary.weight / summary.seen * total

    # Functions of the fitted parameters

    @property
    def n_parameters(self) -> int:
        """The number of free parameters of starts, transitions and emissions."""
        allowed = [(np.atleast_2d(prior) > 0).sum(axis=1) for prior in self.chain_prior().values()]
        return int((np.concatenate(allowed) - 1).sum()) + self.emission.n_parameters

    def expected_counts(self, q: Natural, prior: Natural) -> np.ndarray:
        """Return the expected number of frames of each state."""
        # A frame is the first of its sequence, or a transition leads to it.
        into = column_sums(q["transmat"] - prior["transmat"])
        return q["startprob"] - prior["startprob"] + into

    def coinciding(self, q: Natural, summary: Summary, prior: Natural) -> list[tuple[int, int]]:
        used = np.flatnonzero(self.expected_counts(q, prior) >= 1)
        return coinciding(self._coordinates(q, summary), used)

    def n_effective_states(self, q: Natural, summary: Summary, prior: Natural) -> int:
        """Return the number of states that explain more than one frame.

        States that are practically the same count once. Where the data have fewer states, such
        states can stay apart, because learned priors that fit both let the second cost nothing.
        """
        used = np.flatnonzero(self.expected_counts(q, prior) > 1)
        pairs = coinciding(self._coordinates(q, summary), used, _SAME)
        # Each state that is the same as an earlier one has a pair in which it is the second.
        return len(used) - len({second for _, second in pairs})

    def _coordinates(self, q: Natural, summary: Summary) -> np.ndarray:
        """Return transition probabilities and coordinates of emissions, a row for each state."""
        own = self.emission.coordinates(q, summary.emission)
        return np.hstack([self.frame_transitions(q), own])


def random_rows(prior: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return random probabilities in the shape of a prior, 0 where the prior forbids them."""
    drawn = rng.dirichlet(np.ones(prior.shape[-1]), size=prior.shape[:-1] or None)
    if (prior > 0).all():
        return drawn
    drawn = np.where(prior > 0, drawn, 0.0)
    return drawn / drawn.sum(axis=-1, keepdims=True)
