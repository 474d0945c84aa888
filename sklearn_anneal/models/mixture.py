"""The model of mixtures: weights times components, of rows that may have missing cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import issparse
from scipy.special import logsumexp, softmax

from ..data.parted_units import PartedUnits
from ..data.tables import missing_cells
from ..data.units import Rows
from ..families import Factor, Factors, Natural, Tempering, UnitTemperatures, followed
from ..parallel.workers import SEQUENTIAL, Workers
from ._base import (
    Block,
    ConjugateModel,
    DataSummary,
    Expected,
    Known,
    LocalStep,
    Recommended,
    Visit,
    coinciding,
    merged,
    shallow,
    whole,
)
from ._componentwise import Componentwise, Given, aligned
from ._exchangeable import Assigned, Exchangeable
from ._known_classes import KnownClasses, exclude_others
from ._left_out import LeftOut, left_out
from ._mixture_steps import rows_at_a_time, values_at
from ._points import n_distinct
from ._streamed import Streamed, least_rows_of_fit
from ._weights import WEIGHTS, Weights
from .components._base import (
    ROWS_FOR_KMEANS,
    SHARE_THAT_MOVES,
    Components,
    Joint,
    clusterings,
)
from .components._linear import scaled

# The key of what is known about the weights, beside what is known about the components.
_OF_WEIGHTS = "log weights"
# Number of rows that starts convert and assign at a time.
_CHUNK = 8192
_NO_VOLUME = (
    "the weights of rows depend on covariates, so that every row has a log c(T) of its own, which "
    "sums over all rows that it could have been"
)
_NO_GRADIENT = "the weights of rows depend on covariates, by coefficients whose bound is quadratic"
# In tables without groups, several components raised the bound by up to so many nats per column,
# and 3 nats: priors of each column are learned, and follow differences of components by chance.
_CHANCE_PER_COLUMN = 0.2
# Densities of rows left out of a fit that is over tell groups from none in tables of fewer columns,
# and do so for smaller groups than fits to a part of the rows do.
_MANY_COLUMNS = 10
# The starts that are worth trying.
_KINDS_OF_STARTS = ("kmeans", "random_from_data")


@dataclass(frozen=True)
class Summary(DataSummary):
    """The summary of the training data, for priors, starts and temperatures."""

    weight: float  # N = Σ w of all data; in a stream, this includes data that have not arrived yet
    seen: float  # Σ w of the rows that the other attributes describe
    missing: np.ndarray  # the weight of the missing cells of each column, (n_features,)
    components: Any  # the summary of the components
    # The moments of what the weights depend on; None if they depend on nothing.
    covariates: Any = None

    @property
    def center(self) -> Any:
        """The origin of the components' coordinates; None if they have none."""
        return getattr(self.components, "center", None)

    def merge(self, other: Summary) -> Summary:
        """Return the summary of both data sets together."""
        seen, components = self.seen + other.seen, merged(self.components, other.components)
        covariates = merged(self.covariates, other.covariates)
        return Summary(seen, seen, self.missing + other.missing, components, covariates)

    def whole(self) -> Summary:
        return replace(self, components=whole(self.components))

    def continued(self, other: Summary) -> Summary:
        """Return this summary, as priors and coordinates stay when a fit goes on with new data."""
        return self


class Partition(NamedTuple):
    """log c(x) of rows at M inverse temperatures."""

    complete: np.ndarray  # log c(x) of a row without missing cells, (M,)
    columns: np.ndarray  # the numbers that are subtracted for each missing cell, (M, n_features)

    def of(self, rows: Rows) -> np.ndarray:
        """Return log c(x) of rows, (n_rows, M), or (M,) if no cell is missing."""
        mask = missing_cells(rows.X)
        return self.complete if mask is None else self.complete - mask @ self.columns.T

    def mean(self, summary: Summary) -> np.ndarray:
        """Return the mean of log c(x) over the rows of a summary, (M,)."""
        return self.complete - self.columns @ (summary.missing / summary.seen)


@dataclass(frozen=True)
class MixtureVisit(Visit[Rows]):
    """A visit to rows, whose local steps the components make.

    Parameters
    ----------
    model : Components
    expected : Joint
    draws : sequence of tuple
        The factors of q(β), each with the draw from it; empty if expectations are taken.
    known : dict or None
        Results of the components about q(β) that the divergence needs as well.
    """

    draws: Sequence[tuple[Factor, dict[str, np.ndarray]]] = ()

    def finish(self, step: LocalStep) -> LocalStep:
        """Add what is known about q to the step, as learning priors can use it."""
        step.known = self.known
        return step

    def exact_gradient_statistics(self, q: Natural, prior: Natural, stats: Natural) -> Natural:
        result: Natural = {}
        for factor, draw in self.draws:
            family: Any = factor.family
            given = (factor.pick(arrays) for arrays in (q, prior, stats))
            result |= factor.rename(family.exact_gradient_statistics(draw, *given))
        return result


class LocallyTemperedVisit(MixtureVisit):
    """A visit whose local steps infer a temperature for each row."""

    def step(self, units: Rows, noise: np.ndarray | None = None, local: None = None) -> LocalStep:
        components: Components = self.model
        assert self.unit_temperatures is not None
        return components.locally_tempered_step(units, self.expected, self.unit_temperatures, noise)


@dataclass(frozen=True)
class LabelledVisit(MixtureVisit):
    """A visit to rows some of whose classes are known, or whose weights depend on covariates."""

    def step(self, units: Rows, noise: np.ndarray | None = None, local: Any = None) -> LocalStep:
        """Make the local steps of rows that kernels can read, and of the others.

        The kernels of components read rows of unknown class that all have the same weights. Of the
        others, a limited number is in memory at a time, and their steps read the log joint
        densities of all components as an array.
        """
        size, rows = rows_at_a_time(units.X.shape[1], self.model.n_components), units.n_units
        parts: list[Any] = [slice(start, start + size) for start in range(0, rows, size)]
        alike, steps = np.arange(0), []
        if self.expected.gate is None:
            assert units.classes is not None
            alike, known = np.flatnonzero(units.classes < 0), np.flatnonzero(units.classes >= 0)
            parts = [known[i : i + size] for i in range(0, len(known), size)]
        if len(alike):
            unlabelled, own = units.unlabelled(alike), self._for(alike)
            kind = MixtureVisit if self.unit_temperatures is None else LocallyTemperedVisit
            made = kind.step(own, unlabelled, values_at(noise, alike))  # type: ignore[arg-type]
            steps.append(made)
        for part in parts:
            steps.append(self._for(part)._plain_step(units.take(part), values_at(noise, part)))
        total = sum(steps[1:], start=steps[0])
        if steps[0].inverse_temperatures is not None:
            found = np.empty(rows)
            for index, step in zip([alike, *parts] if len(alike) else parts, steps, strict=True):
                found[index] = step.inverse_temperatures
            total.inverse_temperatures = found
        return total

    def _for(self, index: np.ndarray | slice) -> LabelledVisit:
        """Return the visit as rows of an index have it, which can have factors of their own."""
        t = self.t
        own = t._replace(local=values_at(t.local, index), statistics=values_at(t.statistics, index))
        return replace(self, t=own)

    def _plain_step(self, units: Rows, noise: np.ndarray | None) -> LocalStep:
        """Make a local step without the kernels that some components have for it."""
        components, temperatures = self.model, self.unit_temperatures
        if temperatures is not None:
            how = units, self.expected, temperatures, noise
            return Components.locally_tempered_step(components, *how)
        separate = self.separate_noise and noise is not None
        return Components.local_step(components, units, self.expected, self.t, noise, separate)


class Mixture(
    Exchangeable[Rows, Summary], Streamed, Componentwise[Summary], ConjugateModel[Rows, Summary]
):
    """The model p(x, z = k | π, β) = π_k p(x | β_k) of weights π times components β.

    q(π) is a Dirichlet distribution or that of a truncated Dirichlet process. The model holds
    hyperparameters only. Its natural parameters are those of the components and those of the
    weights: ``weight_concentration`` (K,), or ``stick_a`` and ``stick_b`` (K,).

    Missing cells are integrated out: the log density of a row given its component is that of its
    observed cells. This is right if cells are missing at random, that is, if whether a cell is
    missing depends on observed cells only.

    Parameters
    ----------
    components : Components
    weight_prior : {"dirichlet_process", "dirichlet_distribution"}
    init_params : {"random", "kmeans", "k-means++", "random_from_data"}
        How the responsibilities are initialised.
    weight_concentration_prior : float, "auto" or None
        None stands for 1 / ``n_components``, and ``"auto"`` for a value that is learned.
    component_classes : ndarray of intp, shape (n_components,) or None, default=None
        The number of the class of each component, and −1 for classes that no label names. Rows
        whose class is known belong to components of this class. None if there are no classes.
    weights : Weights or None, default=None
        Weights of another kind, such as those that depend on covariates. The two parameters of
        weights are not read then.

    References
    ----------
    Bishop (2006), Pattern Recognition and Machine Learning, section 10.2; Blei and Jordan (2006)
    for the stick-breaking weights; Hoffman and Blei (2015) for mixtures of Bernoullis.
    """

    components: Components
    component_classes: np.ndarray | None = None
    keeps_known = True

    def __init__(
        self,
        components: Components,
        weight_prior: str = "dirichlet_process",
        init_params: str = "random_from_data",
        weight_concentration_prior: float | str | None = None,
        component_classes: np.ndarray | None = None,
        weights: Weights | None = None,
    ):
        self.component_classes = component_classes
        self.components = components
        self.n_components = components.n_components
        self.weights: Weights = weights or WEIGHTS[weight_prior](
            self.n_components, weight_concentration_prior
        )
        # Coefficients of covariates are found by steps that are no conjugate updates.
        self.accelerates = not self.weights.differ
        self.init_params = init_params
        # The rows of each component when priors were last learned after a pass.
        self.counts: np.ndarray | None = None

    @property
    def recommended(self) -> Recommended:
        """The settings of annealing methods, which depend on the components."""
        return self.components.recommended

    def capabilities(self) -> dict[str, str | None]:
        can: dict[str, str | None] = dict.fromkeys(("draws", "assignments", "assignment_entropy"))
        volume = ("log_partition", "unit_log_partition", "locally_tempered_step")
        reason = _NO_VOLUME if self.weights.differ else self.components.why_no_log_volume
        can |= dict.fromkeys(volume, reason)
        return can | {"exact_gradient_statistics": self._why_no_exact_gradient}

    @property
    def _why_no_exact_gradient(self) -> str | None:
        return _NO_GRADIENT if self.weights.differ else self.components.why_no_exact_gradient

    @property
    def usual_effort(self) -> float:
        return self.components.usual_effort

    def operations(self, units: Rows) -> float:
        return float(self.components.operations(units))

    # Data and prior

    def summary(self, units: Rows) -> Summary:
        missing = np.zeros(units.X.shape[1])
        for start in range(0, units.n_units, _CHUNK):
            chunk = units.take(slice(start, start + _CHUNK))
            mask = _missing(chunk)
            if mask is not None:
                missing += mask.sum(axis=0) if chunk.weights is None else chunk.weights @ mask
        total = units.total_weight
        own, beside = self.components.summary(units), self.weights.summary(units)
        return Summary(total, total, missing, own, beside)

    def resolved(self, summary: Summary, hold_units: bool = False) -> Self:
        model = copy(self)
        model.components = self.components.resolved(summary.components)
        model.weights = self.weights.resolved(summary.covariates)
        vars(model).pop("blocks", None)
        return model

    def least_weight(self, summary: Summary) -> float:
        return self.components.least_rows

    def least_weight_of_fit(self, summary: Summary) -> float:
        return least_rows_of_fit(self.n_components, self.components.least_rows)

    def shares_of_components(self, units: Rows, q: Natural) -> np.ndarray:
        shares: np.ndarray = softmax(self.log_joint_predictive(units, q), axis=1)
        return shares

    def prior(self, summary: Summary) -> Natural:
        return self.weights.prior() | self.components.prior(summary.components)

    def factors(self) -> Factors:
        return Factors([self.weights.factor, *self.components.factors])

    # The local step: q(z_n = k) ∝ exp E log p(x_n, z_n = k | π, β)

    def expectations(
        self, q: Natural, rng: np.random.Generator | None = None, known: Known | None = None
    ) -> Joint:
        """Return E log p(x, z = k) = E log π_k + E log p(x | β_k), or that of one draw."""
        of_weights = None if known is None else known.get(_OF_WEIGHTS)
        log_weights = self.weights.log_weights(q, rng, of_weights)
        joint = self.components.joint_expectations(q, log_weights, rng, known)
        gate = self.weights.gate(q, rng)
        return Joint(joint.own, joint.log_weights, self.component_classes, gate)

    def log_joint(self, units: Rows, expected: Joint) -> np.ndarray:
        """Return E log p(x_n, z_n = k) of the observed cells in nats, (n_rows, n_components)."""
        return self.components.log_joint(units, expected)

    def visit(
        self,
        q: Natural,
        units: Rows | PartedUnits[Rows],
        t: Tempering = Tempering(),  # noqa: B008
        *,
        rng: np.random.Generator | None = None,
        unit_temperatures: UnitTemperatures | None = None,
        separate_noise: bool = False,
        **how: Any,
    ) -> MixtureVisit:
        components, known = self.components, None
        draws: Sequence[tuple[Factor, dict[str, np.ndarray]]] = ()
        if rng is None or self._why_no_exact_gradient is not None:
            if rng is None:
                known = components.known(q, how.get("known"))
                if known is not None:
                    known[_OF_WEIGHTS] = self.weights.known(q)
            expected = self.expectations(q, rng, known)
        else:
            factor = self.weights.factor
            of_weights = factor.family.sample(factor.pick(q), rng)
            drawn = components.draw(q, rng)
            draws = list(zip(self.factors(), [of_weights, *drawn], strict=True))
            log_weights = self.weights.drawn_log_weights(of_weights)
            own_classes = self.component_classes
            expected = Joint(components.coefficients(drawn), log_weights, own_classes)
        example = units.example
        own = components.for_rows(expected.own, example)
        if known is not None and not units.are_one_chunk:
            own = components.for_several_chunks(own)
        kind = MixtureVisit if unit_temperatures is None else LocallyTemperedVisit
        if example.classes is not None or expected.gate is not None:
            kind = LabelledVisit
        return kind(
            *(components, Joint(own, *expected[1:]), t, unit_temperatures, separate_noise),
            draws=draws,
            known=known,
            learns_late=self.learns_late,
        )

    # The update: λ = λ₀ + S

    @cached_property
    def blocks(self) -> tuple[Block, ...]:  # type: ignore[override]
        # All are updated with the statistics of the same local step.
        weights, (first, *others) = self.weights.factor.names, self.components.updated_together
        return Block((*weights.values(), *first)), *(Block(keys, refresh=False) for keys in others)

    def block_statistics(self, block: Block, raw: Any, q: Natural) -> Natural:
        own = raw["components"]
        stats: Natural = self.components.statistics(own, block.keys, q)
        if block.refresh:
            counts = raw["rows"] + self.components.counted(own)
            stats = stats | self.weights.statistics(counts, raw.get("gate"))
        return stats

    def kl(
        self, q: Natural, prior: Natural, known: Known | None = None, workers: Workers = SEQUENTIAL
    ) -> float:
        own = None if known is None else self.components.kl_given(q, prior, known)
        if own is None:
            return self.factors().kl(q, prior) + self.components.hyperparameter_kl()
        assert known is not None
        of_weights = self.weights.kl(q, prior, known.get(_OF_WEIGHTS))
        return of_weights + own + self.components.hyperparameter_kl()

    # Hyperparameters

    @property
    def learns_late(self) -> bool:
        """Whether a prior is learned that waits until the bound hardly rises any more."""
        return self.weights.learns or self.components.learns_late

    def learned(
        self,
        q: Natural,
        prior: Natural,
        step: LocalStep | None,
        rho: float,
        scale: float,
        late: bool = True,
    ) -> tuple[Self, Natural, Natural]:
        """Maximise the bound over the priors that are learned, for fixed q, and then over q.

        As q is the prior plus statistics, it is best for the new prior after the same change as
        that of the prior.
        """
        if not (self.components.learns_early or (late and self.learns_late)):
            return self, prior, q
        model = shallow(self)
        counts, changed = self.weights.expected_counts(q, prior), np.inf
        # Sums of few numbers take less time than calls of NumPy.
        if self.counts is not None:
            changed = sum(map(abs, (counts - self.counts).tolist()))
        model.counts, n_rows = counts, sum(counts.tolist())
        model.weights, of_weights = self.weights.learned(q, prior, rho, late)
        known = None if step is None else step.known
        if step is not None and known is not None:
            known["raw"] = step.statistics["components"]
        if self.components.learns_from(n_rows):
            # There is no step without a pass over the data, as for a start, whose rows will move.
            stay = step is not None and changed <= SHARE_THAT_MOVES * n_rows
            how = rho, late, stay, known
            model.components, of_components = self.components.learned(q, prior, *how)
        else:
            of_components = {key: prior[key] for key in self.components.keys}
        moved = followed(q, prior, of_weights)
        moved |= self.components.following(q, prior, of_components, known)
        return model, of_weights | of_components, q | moved

    # Starts

    @property
    def starts_assigned(self) -> bool:
        return self.init_params == "kmeans"

    def other_starts(self) -> tuple[Self, ...]:
        others = []
        for kind in _KINDS_OF_STARTS:
            if kind != self.init_params:
                other = copy(self)
                other.init_params = kind
                others.append(other)
        return tuple(others)

    def init(
        self, units: Rows, summary: Summary, prior: Natural, random_state: np.random.RandomState
    ) -> Natural:
        rows, shares = self._start(units.centered(summary), random_state)
        return self._posterior_of(rows, shares, summary, prior, starts=True)

    def _start(
        self, units: Rows, random_state: np.random.RandomState
    ) -> tuple[Rows, Callable[[slice], np.ndarray]]:
        """Return some rows, and a function that maps a slice of them to their responsibilities."""
        k, known = self.n_components, self._known(units)
        as_theirs = self.components.starts_like_scikit_learn and known is None
        rows: Any = units if as_theirs else units.subset(ROWS_FOR_KMEANS, random_state)
        weights, blank = rows.weights, _blank(rows)
        if blank is not None and blank.any():
            # A component that started from a row without cells would be the prior.
            weights = np.ones(rows.n_units) if weights is None else weights.copy()
            weights[blank] = 0.0
        # The first batch of a stream may have fewer rows than there are components, if the
        # priors are given. Rows then cannot serve as starts, so that they are assigned at random.
        n_weighted = rows.n_units if weights is None else np.count_nonzero(weights)
        if self.init_params == "random" or n_weighted < k:
            draw = random_state.uniform if as_theirs else random_state.standard_exponential

            def random(rows: slice) -> np.ndarray:
                shares = draw(size=(rows.stop - rows.start, k))
                posteriors: np.ndarray = shares / shares.sum(axis=1, keepdims=True)
                return posteriors

            return units, random if known is None else known.restricted(random)
        if known is not None:
            return rows, self._start_with_classes(rows, weights, random_state)
        if self.init_params == "random_from_data":
            # Equal weights lead to the start without weights.
            equal = weights is None or np.ptp(weights) == 0
            share = None if equal else weights / weights.sum()
            chosen = random_state.choice(rows.n_units, size=k, replace=False, p=share)
            return rows, _one_row_each(chosen)
        points = rows.completed() if as_theirs else scaled(self.components.points(rows))
        if self.init_params == "k-means++":
            _, chosen = clusterings().kmeans_plusplus(
                points, k, sample_weight=weights, random_state=random_state
            )
            return rows, _one_row_each(chosen)
        if not (as_theirs or issparse(points)):
            k = n_distinct(points, k)
        means = clusterings().KMeans(n_clusters=k, n_init=1, random_state=random_state)
        labels = means.fit(points, sample_weight=weights).labels_
        return rows, self._one_component_each(labels)

    def _one_component_each(self, labels: np.ndarray) -> Callable[[slice], np.ndarray]:
        """Return responsibilities of rows each of which has one component."""
        every = np.arange(self.n_components)
        return lambda part: np.equal.outer(labels[part], every).astype(float)

    def _known(self, rows: Rows) -> KnownClasses | None:
        """Return which rows can belong to which components; None if all can belong to all."""
        if rows.classes is None or self.component_classes is None:
            return None
        return KnownClasses(rows.classes, self.component_classes)

    def _start_with_classes(
        self, rows: Rows, weights: np.ndarray | None, random_state: np.random.RandomState
    ) -> Callable[[slice], np.ndarray]:
        """Return the responsibilities of a start in which components have rows of their classes."""
        known = self._known(rows)
        assert known is not None
        weights = np.ones(rows.n_units) if weights is None else weights
        if self.init_params == "random_from_data":
            return _one_row_each(known.seeds(weights, random_state))
        points = scaled(self.components.points(rows))
        if self.init_params == "k-means++":
            return _one_row_each(known.seeds(weights, random_state, points))
        return self._one_component_each(known.clusters(points, weights, random_state))

    def posterior_given(
        self, responsibilities: np.ndarray, units: Rows, summary: Summary, prior: Natural
    ) -> Natural:
        return self._posterior_of(units, lambda part: responsibilities[part], summary, prior)

    def _posterior_of(
        self,
        rows: Rows,
        shares: Callable[[slice], np.ndarray],
        summary: Summary,
        prior: Natural,
        starts: bool = False,
    ) -> Natural:
        """Return the posterior given responsibilities of rows, for the weight of all data.

        ``starts`` says whether they are those of ``init_params``.
        """
        c = self.components
        expected = c.for_start(rows, prior, summary.components)
        raw, number = None, np.zeros(self.n_components)
        # Responsibilities that are random, or those of single rows, say nothing about covariates.
        gated = self.weights.differ and (not starts or self.init_params == "kmeans")
        gathered = []
        for start in range(0, rows.n_units, _CHUNK):
            chunk = rows.part(slice(start, start + _CHUNK))
            share = shares(slice(start, start + chunk.n_units))
            if chunk.weights is not None:
                share = share * chunk.weights[:, None]
            others = c.uncounted(chunk)
            number += (share if others is None else share[others]).sum(axis=0)
            share = np.ascontiguousarray(share, dtype=np.float64)
            found = c.sums(chunk, share, expected)
            raw = found if raw is None else raw + found
            if gated:
                gathered.append(share)
        scale = summary.weight / rows.total_weight
        raw = scale * (c.zeros(expected) if raw is None else raw)
        counts = scale * number + c.counted(raw)
        if gated:
            every = np.concatenate(gathered)
            of_weights = self.weights.statistics_of_rows(counts, rows, every, scale)
        else:
            of_weights = self.weights.statistics(counts)
        q = {key: prior[key] + value for key, value in of_weights.items()}
        if starts and self.init_params in ("k-means++", "random_from_data"):
            own = c.posterior_of_single_rows(raw, prior, summary.components, summary.weight)
        else:
            own = c.posterior_given(raw, prior)
        return q | own

    def random_natural(
        self,
        summary: Summary,
        prior: Natural,
        rng: np.random.Generator,
        block: Block | None = None,
    ) -> Natural:
        """Return the posterior of random components with N Dir(1) rows each."""
        counts = summary.weight * rng.dirichlet(np.ones(self.n_components))
        own = {key: prior[key] for key in self.components.keys}
        weights = self.weights.statistics(counts)
        return {key: prior[key] + value for key, value in weights.items()} | (
            self.components.random_natural(counts, summary.components, own, rng)
        )

    def started_at(
        self, given: Given, usual: Callable[[], Natural], summary: Summary, prior: Natural
    ) -> Natural:
        """Return the posterior given as many rows as there are, with these moments.

        ``given`` has the ``weights`` and the ``profile`` of the components
        (:meth:`Components.posterior_like`). Parameters that it lacks are those of the components of
        the usual start that resemble the given ones.
        """
        c, own = self.components, summary.components
        profile, weights = given.get("profile", {}), given.get("weights")
        q = {} if weights is not None and c.is_whole(profile) else usual()

        def begun(q: Natural) -> Natural:
            counts = summary.weight * (self.weights.mean(q) if weights is None else weights)
            of_weights = self.weights.statistics(counts)
            found = q | {key: prior[key] + value for key, value in of_weights.items()}
            return found | c.posterior_like(profile, counts, q, own, prior) if profile else found

        return begun(aligned(self, c, begun, q, own, prior) if q and profile else q)

    def jitter(self, q: Natural, size: float, rng: np.random.Generator, prior: Natural) -> Natural:
        """Displace the components at random, and leave the weights as they are."""
        return self.components.jitter(q, size, rng, prior)

    # Exchanges of components

    @property
    def groups(self) -> np.ndarray | None:
        return self.component_classes

    def preferred_order(self, q: Natural, prior: Natural) -> np.ndarray | None:
        order = self.weights.best_order(self.weights.expected_counts(q, prior))
        return None if (order == np.arange(self.n_components)).all() else order

    def reordered(
        self, q: Natural, prior: Natural, order: np.ndarray
    ) -> tuple[Self, Natural, Natural]:
        added = self.statistics_of(q, prior, order)
        model = copy(self)
        model.components, own = self.components.carried(prior, order)
        if self.component_classes is not None:
            model.component_classes = self.component_classes[order]
        prior = prior | own
        return model, prior, {key: prior[key] + value for key, value in added.items()}

    def with_priors_of(self, larger: Self, chosen: np.ndarray) -> Self:
        model = copy(self)
        model.components = self.components.with_priors_of(larger.components, chosen)
        return model

    def exchangeable(self, prior: Natural, order: np.ndarray) -> bool:
        return self.components.exchangeable(prior, order)

    def gain_of_order(self, q: Natural, reordered: Natural) -> float:
        return self.weights.gain_of_order(q, reordered)

    def statistics_of(self, q: Natural, prior: Natural, chosen: np.ndarray) -> Natural:
        added = {key: q[key] - prior[key] for key in self.components.keys}
        return self.weights.chosen(q, prior, chosen) | self.components.reordered(added, chosen)

    def assigned(self, units: Rows, q: Natural) -> Assigned:
        density = self.log_densities(units, q)
        if units.classes is not None and self.component_classes is not None:
            exclude_others(density, units.classes, self.component_classes)
        weights = np.ones(units.n_units) if units.weights is None else units.weights
        log_weights = self.weights.log_weights_of(units, q)
        return Assigned(softmax(density + log_weights, axis=1), density, weights)

    def log_densities(self, units: Rows, q: Natural) -> np.ndarray:
        own = self.components.compiled_expectations(q)
        return self.components.log_density(units, self.components.for_rows(own, units.example))

    def points(self, units: Rows) -> Any:
        return self.components.points(units)

    @property
    def distributions(self) -> Components:
        return self.components

    def n_rows(self, summary: Summary) -> float:
        return float(summary.weight)

    def coinciding(self, q: Natural, summary: Summary, prior: Natural) -> list[tuple[int, int]]:
        used = np.flatnonzero(self.weights.expected_counts(q, prior) >= 1)
        return coinciding(self.components.coordinates(q, summary.components), used)

    # Temperatures that are learned: log c(x) = log Σ_k ∫ p(row, z = k)^x d row

    def unit_log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> Any:
        """Return log c(x) of a row, at the moments of the data or at the current expectations.

        The exponentials of E log β do not sum to 1, so that log c(1) would not be 0; therefore
        x log c(1) is subtracted.
        """
        own = summary.components
        found = self.components.partition(x, own)
        if found is not None:
            return found
        # log c(x) = log Σ_k exp{x E log π_k} ∫ exp{x E log p(row | β_k)} d row
        powers = np.append(x, 1.0)
        log_weights, components = self.weights.log_weights(q), self.components.expectations(q)
        volume = self.components.log_volume(powers, own, components)
        complete = logsumexp(powers[:, None] * log_weights + volume, axis=1)
        columns = self.components.log_volumes(powers, own, components)
        columns = np.einsum("mkd,k->md", columns, self.weights.mean(q))
        return Partition(complete[:-1] - x * complete[-1], columns[:-1] - np.outer(x, columns[-1]))

    def log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> np.ndarray:
        """Return log C(x), the sum of log c(x) over all rows, in nats, of the shape of ``x``."""
        # log C(x) = Σ_n log c(x), in which rows differ by their missing cells alone.
        partition = self.unit_log_partition(x, summary, q)
        of_all: np.ndarray = summary.weight * partition.mean(summary)
        return of_all

    # Predictions

    def log_predictive(self, units: Rows, q: Natural) -> np.ndarray:
        """Return the log posterior predictive density of each row in nats, shape (n_rows,)."""
        return logsumexp(self.log_joint_predictive(units, q), axis=1)

    def log_joint_predictive(self, units: Rows, q: Natural) -> np.ndarray:
        """Return log p(x_n, z_n = k) in nats, with q integrated out, (n_rows, n_components).

        New rows are classified by it. The responsibilities of the fit are at expected log densities
        instead, in which a component of few rows is punished for not knowing its parameters.
        """
        return self.components.log_predictive(units, q) + self.weights.log_means_of(units, q)

    def log_likelihood(self, units: Rows, q: Natural) -> np.ndarray:
        """Return the log density of each row at the posterior means in nats, shape (n_rows,)."""
        return logsumexp(self.log_joint_at_means(units, q), axis=1)

    def log_joint_at_means(self, units: Rows, q: Natural) -> np.ndarray:
        """Return log p(x_n, z_n = k) at the posterior means in nats, (n_rows, n_components)."""
        plug_in = self.components.for_rows(self.components.plug_in(q), units)
        return self.components.log_density(units, plug_in) + self.weights.log_means_of(units, q)

    def posterior_given_components(
        self,
        rows: Rows,
        labels: np.ndarray,
        prior: Natural,
        expected: Expected,
        rng: np.random.Generator,
    ) -> Natural:
        """Return λ₀ + S, the posterior given complete rows and their components ``labels``.

        The last two arguments are those of :meth:`Components.posterior_given_labels`.
        """
        shares = np.equal.outer(labels, np.arange(self.n_components)).astype(np.float64)
        weights = self.weights.statistics_of_rows(shares.sum(axis=0), rows, shares, 1.0)
        of_weights = {key: prior[key] + value for key, value in weights.items()}
        own = self.components.posterior_given_labels(rows, labels, prior, expected, rng)
        return of_weights | own

    def compared(self) -> Self:
        model = copy(self)
        model.components = self.components.compared()
        return model

    def left_out(self, units: Rows, q: Natural, summary: Summary, prior: Natural) -> LeftOut | None:
        if self.weights.differ:
            # Coefficients follow other rows in several passes, and not by leaving statistics out.
            return None
        rows: Any = self.sampled(units)
        if summary.weight < rows.X.shape[1]:
            # Assignments and priors were learned with the rows that are left out. If columns
            # outnumber rows, both fit each row so closely that its density rises with every
            # component that divides noise.
            return None
        return left_out(self, rows, q, summary, prior)

    def gain_by_chance(self, units: Rows, summary: Summary) -> float | None:
        rows = self.rows_of_folds(units)
        return None if rows is None else _CHANCE_PER_COLUMN * rows.X.shape[1]

    def rows_of_folds(self, units: Rows) -> Any:
        rows: Any = self.sampled(units)
        n_columns = 1 if rows.X.ndim == 1 else rows.X.shape[1]
        return rows if n_columns >= _MANY_COLUMNS else None

    @property
    def n_parameters(self) -> int:
        """The number of free parameters of weights and components."""
        return self.weights.n_parameters + self.components.n_parameters

    def expected_counts(self, q: Natural, prior: Natural) -> np.ndarray:
        """Return the expected number of rows of each component."""
        return self.weights.expected_counts(q, prior)


def _missing(rows: Rows) -> Any:
    """Return the mask of missing cells; None if there are none, as dense rows themselves say."""
    X: Any = rows.X
    return None if isinstance(X, np.ndarray) and rows.patterns is None else missing_cells(X)


def _blank(rows: Rows) -> np.ndarray | None:
    """Return which rows have no observed cell, which rows keep; None if no cell is missing."""
    kept = vars(rows)
    if "_blank" not in kept:
        mask = _missing(rows)
        kept["_blank"] = None if mask is None else np.asarray(mask.sum(axis=1)) == rows.X.shape[1]
    found: np.ndarray | None = kept["_blank"]
    return found


def _one_row_each(chosen: np.ndarray) -> Callable[[slice], np.ndarray]:
    """Return responsibilities with one row for each component, and none for most rows."""
    return lambda rows: np.equal.outer(np.arange(rows.start, rows.stop), chosen).astype(float)
