"""The model of gamma-process non-negative matrix factorisation."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from scipy.special import psi

from ..data.units import DenseCounts, SparseCounts
from ..families import (
    STRONG,
    Factor,
    Factors,
    Gamma,
    Natural,
    Tempering,
    UnitTemperatures,
)
from ..families._empirical_bayes import LARGEST, SMALLEST, damped, over_relaxed
from ..parallel.workers import SEQUENTIAL, Workers
from ._base import Block, ConjugateModel, Known, LocalStep, Recommended, coinciding, compiled
from ._componentwise import Componentwise, Given
from ._count_activations import collapsed_means
from ._count_allocations import allocated, mean_parts, means_of_rows, positive_counts
from ._count_margins import sums_without_parts
from ._count_noise import (
    NOISE,
    PROPOSED_EXPOSURE,
    NoisyCountsVisit,
    better_dispersion,
    exploring_dispersion,
)
from ._count_passes import ShapeMomentum, exploring_passes, further_passes
from ._count_popularity import Popularity
from ._count_scales import with_best_scales
from ._count_search import Counts, SearchableCounts
from ._count_summary import Summary
from ._count_visits import (
    ASSIGNED,
    COUNTS,
    EVIDENCE,
    EXPOSURE,
    RATE_OF_COMPONENTS,
    RATE_OF_WEIGHTS,
    SUMMED,
    Activations,
    CountsVisit,
    Start,
    expected_table,
    kernels,
    plain_table,
    table_of_logs,
)
from ._light_counts import are_fractions
from ._streamed import Streamed, least_rows_of_growing_fit
from ._unit_block import UnitBlock
from ._whole_data import ReadsWholeData

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

COMPONENTS = ("components_shape", "components_rate")
WEIGHTS = ("weights_shape", "weights_rate")
_FACTORS = Factors(
    Factor(Gamma(), dict(zip(("shape", "rate"), keys, strict=True)))
    for keys in (WEIGHTS, COMPONENTS)
)
# Shape of the gamma distributions from which fits start: they are narrow, so that the first pass
# divides the counts by components that differ by 10 percent.
_SHAPE_OF_START = 100.0
# Components of zero that are given have this shape at the start.
_LEAST_SHAPE_OF_START = 1e-8
# A component without counts is not in use if its total rate is below this share of the mean of all
# components.
_SMALLEST_SHARE = 0.05
# Searches allocate counts if those that are not zero are smaller than this, on average. Where cells
# hold many counts, single draws hardly change what a component is.
_FEW_PER_CELL = 3.0
# Fits to tables with at least this share of cells that are not zero explore until the bound rises
# by less than so many times the rise at which a fit has converged, unless cells hold few counts or
# have noise. An exploring pass takes up to 16 sweeps, and a later one only one.
_DENSE, _EXPLORING_FACTOR = 0.25, 40.0
# A pass that explores is followed by others if the product of rows, columns and components is not
# above this. Passes over larger tables take far longer than the calls around them, and threads
# share those of the loop. Rows count by their weights, wherever they are.
SMALL = 1 << 20
# Sweeps over the activations of rows: at visits that start anew in order to explore, which have
# momentum, at other visits that start anew, and at visits that go on from the last one.
_EXPLORING_SWEEPS, _MANY_SWEEPS, _FURTHER_SWEEPS = 16, 100, 1
# The same for exploring visits that go on from the last one with noise, by which activations move
# further than by more sweeps.
_SWEEPS_WITH_NOISE = 5
# The same for visits that start anew in order to explore counts with noise. More of them would let
# single components explain rows before the components differ.
_NOISY_EXPLORING_SWEEPS = 8


class GammaProcessNMF(
    ReadsWholeData,
    SearchableCounts,
    Componentwise[Summary],
    Streamed,
    ConjugateModel[Counts, Summary],
):
    """Poisson factorisation with a gamma process over components.

    x_nv ~ Poisson(Σ_k h_nk θ_k w_kv), w_kv ~ Gamma(a, a), h_nk ~ Gamma(b, b) and θ_k ~ Gamma(α/K, α
    c), in terms of shape and rate, so that activations and components have the prior mean 1 and c
    is the inverse of the mean of X. All factors of q are gamma distributions. Their natural
    parameters are ``components_shape`` (n_components, n_columns), laid out column by column in
    memory, ``components_rate`` (n_components, 1) or of the shape of the former, ``weights_shape``
    and ``weights_rate`` (n_components,). Rates of components differ between columns only if cells
    are missing or if the exact gradient of draws needs it. Activations are local variables.

    An update divides the counts anew before each block: activations and weights θ get theirs, and
    then the components. If two blocks shared one division, each would repeat the change of the
    other, and components that are not needed would hardly lose their weight.

    Parameters
    ----------
    n_components, n_columns : int
    activation_prior, component_prior, concentration : float
        b, a and α; the start of those that are learned.
    learns : tuple of str
        Names of the priors that are learned by empirical Bayes.
    init_params : {"auto", "random", "random_from_data", "collapsed_gibbs"}, default="random"
        ``"auto"`` is ``"random"``, and a search tries ``"collapsed_gibbs"`` first where cells hold
        few counts.
    max_sweeps : int or None, default=None
    sweep_tol : float, default=1e-3
    dtype : numpy.dtype, default=float64
        Precision of the local step.
    dispersion : float or None, default=None
        1 / a, where Gamma(a, a) is the noise of each cell; None means that there is none. The start
        of one that is learned.
    popularity_prior : float or None, default=None
        s of the prior Gamma(s, s) of a rate η_v for each column, with which w_kv ~ Gamma(a, a η_v);
        None means that there is none.

    References
    ----------
    Hoffman, Blei and Cook (2010), Bayesian nonparametric matrix factorization for recorded music;
    Hoffman and Blei (2015), Structured stochastic variational inference, section 4.3; Gopalan,
    Hofman and Blei (2015), Scalable recommendation with hierarchical Poisson factorization.
    """

    keeps_sample, adds_counts = False, True
    # The start of activations anew at every pass does much of what annealing is for. Temperatures
    # above 1 help with texts, and leave too many components in use for dense counts.
    recommended: ClassVar[Recommended] = {
        "deterministic": {
            "form": "posterior",
            "initial_temperature": 1.2,
            "schedule": "geometric",
            "n_passes": 50,
            "jitter": 0.0,
        },
        "stochastic": {
            "initial_noise": 0.05,
            "schedule": "linear",
            "n_passes": 50,
            "start": "init_params",
        },
        "svi_plus": {"learning_rate": 1.0},
        "structured": {"gradient": "approximate", "n_passes": 300},
        "proximity": {"strength": 1e-4, "learning_rate": 1.0},
    }

    def __init__(
        self,
        n_components: int,
        n_columns: int,
        activation_prior: float = 0.1,
        component_prior: float = 0.1,
        concentration: float = 1.0,
        learns: tuple[str, ...] = (),
        init_params: str = "random",
        max_sweeps: int | None = None,
        sweep_tol: float = 1e-3,
        dtype: DTypeLike = np.float64,
        dispersion: float | None = None,
        popularity_prior: float | None = None,
    ):
        self.n_components = int(n_components)
        self.n_columns = n_columns
        self.activation_prior = activation_prior
        self.component_prior = component_prior
        self.concentration = concentration
        self.learns = learns
        self.init_params = init_params
        self.max_sweeps = max_sweeps
        self.sweep_tol = sweep_tol
        self.dtype = np.dtype(dtype)
        self.dispersion = dispersion
        # The dispersion to which a step of learning may go next; :meth:`learned` sets it.
        self.proposed = dispersion
        # Whether exploring passes keep the dispersion that a learned one starts from.
        self.strong_noise = False
        self.popularity: Popularity | None = None
        if popularity_prior is not None:
            self.popularity = Popularity(popularity_prior, np.ones(n_columns))
        # c, the inverse of the mean of X; :meth:`resolved` computes it.
        self.scale = 1.0
        # Whether a search tries an allocation of all counts.
        self.allocates = False
        # The last change of each prior that is learned, while learning goes on from pass to pass.
        self.changes: dict[str, float] = {}
        # Whether many cells hold counts.
        self.is_dense = False
        # Whether plain passes that explore are followed by others.
        self.explores_further = False
        # Whether a start depends on what parts the counts have, and their sums over rows, of shape
        # (n_columns,), if they have one part; None if they have more.
        self.looks_for_parts = False
        self.alone: np.ndarray | None = None

    def capabilities(self) -> dict[str, str | None]:
        can: dict[str, str | None] = dict.fromkeys(
            ("draws", "exact_gradient_statistics", "assignments")
        )
        reason = "a sum of powers of Poisson probabilities over all counts has no closed form"
        return can | dict.fromkeys(
            ("log_partition", "unit_log_partition", "locally_tempered_step"), reason
        )

    @property
    def activations(self) -> UnitBlock:
        """The activations, which are local variables."""
        columns = dict.fromkeys(("shape", "rate"), self.n_components)
        return UnitBlock("activations", Gamma(), columns, held=False)

    def factors(self) -> Factors:
        return _FACTORS

    @property
    def blocks(self) -> tuple[Block, ...]:
        return Block(WEIGHTS), Block(COMPONENTS)

    @property
    def precision(self) -> np.dtype:
        """The dtype of local steps, whose results are rounded to that of the data.

        With noise, steps are differences of sums that are nearly equal where counts are large.
        """
        return self.dtype if self.dispersion is None else np.dtype(np.float64)

    @property
    def finds_scales(self) -> bool:
        """Whether all scales of q are found at once. A number of sweeps is one of plain updates."""
        return self.popularity is None and self.dispersion is None and self.max_sweeps is None

    def operations(self, units: Counts) -> float:
        if self.dispersion is not None:
            return 24.0 * self.n_components * float(units.n_units * self.n_columns)
        if isinstance(units, SparseCounts):
            return 12.0 * self.n_components * float(units.indptr[-1])
        return 12.0 * self.n_components * units.X.size

    def least_weight_of_fit(self, summary: Summary) -> float:
        return least_rows_of_growing_fit(self.n_components)

    def shares_of_components(self, units: Counts, q: Natural) -> np.ndarray:
        found = self.infer(units, q, SEQUENTIAL) * self.means(q).sum(axis=1)
        shares: np.ndarray = found / found.sum(axis=1, keepdims=True)
        return shares

    # Data, prior and starts

    def summary(self, units: Counts) -> Summary:
        weight = units.total_weight
        cells = weight * self.n_columns
        if isinstance(units, DenseCounts) and units.patterns is not None:
            for index in units.chunks():
                chunk = units.take(index)
                missing = np.isnan(chunk.X).sum(axis=1)
                cells -= float(missing.sum() if chunk.weights is None else missing @ chunk.weights)
        whole, filled = (
            float(each.sum() if units.weights is None else each @ units.weights)
            for each in (units.whole_lengths, units.n_filled)
        )
        return Summary(weight, weight, units.n_observations, cells, whole, filled)

    def resolved(self, summary: Summary, hold_units: bool = False) -> Self:
        model = copy(self)
        model.scale = 1.0 / summary.mean
        few = summary.total < _FEW_PER_CELL * summary.filled
        if self.init_params == "auto":
            # Draws of small fractions hardly distinguish components.
            model.allocates = few and not are_fractions(summary.total, summary.whole_total)
            model.init_params = "random"
            model.looks_for_parts = not are_fractions(summary.total, summary.whole_total)
        model.is_dense = summary.filled >= _DENSE * summary.cells
        sooner = (
            model.is_dense
            and not few
            and self.dispersion is None
            and self.init_params != "collapsed_gibbs"
        )
        small = bool(summary.cells * self.n_components <= SMALL)
        model.exploring_factor = _EXPLORING_FACTOR if sooner else 1.0
        if sooner:
            # Sums of weights are rounded.
            full = summary.cells > (1.0 - 1e-12) * summary.rows * self.n_columns
            model.explores_further = bool(small and full)
            model.search_dense_table(small)
        return model

    def with_whole_data(self, units: Counts) -> Self:
        if not self.looks_for_parts or self.n_components == 1:
            return self
        rows = units.example if units.in_parts else units
        sums = sums_without_parts(rows, self.n_columns)
        if sums is None:
            return self
        model = copy(self)
        model.alone = sums * (units.total_weight / rows.total_weight)
        return model

    def prior(self, summary: Summary) -> Natural:
        return self._prior()

    def _prior(self) -> Natural:
        a, alpha, k = self.component_prior, self.concentration, self.n_components
        rate = np.array([[a]])
        if self.popularity is not None:
            rate = a * self.popularity.means[None]
        return {
            "weights_shape": np.full(k, alpha / k),
            "weights_rate": np.full(k, alpha * self.scale),
            "components_shape": np.array([[a]]),
            "components_rate": rate,
        }

    def init(
        self,
        units: Counts,
        summary: Summary,
        prior: Natural,
        random_state: np.random.RandomState,
    ) -> Natural:
        """Start with equal weights, and with components that are random or means of random rows.

        Random components have the mean 1 and differ by 10 percent. With ``"collapsed_gibbs"`` the
        start is q given an allocation of all counts. With ``"auto"``, one component has all counts
        if these show no other part: each of several components would learn the noise of some rows.
        """
        if self.init_params == "collapsed_gibbs":
            return self._allocated(units, summary, prior, random_state)
        if self.alone is not None:
            own = np.zeros((self.n_components, self.n_columns))
            own[0] = self.alone
            return self._given_counts(own, summary, prior)
        k, shape = self.n_components, _SHAPE_OF_START
        noise = random_state.gamma(shape, 1.0 / shape, (k, self.n_columns))
        weights = random_state.gamma(shape, 1.0 / shape, k)
        if self.init_params == "random_from_data":
            noise *= means_of_rows(units, k, self.n_columns, random_state)
        return {
            "weights_shape": shape * weights,
            "weights_rate": np.full(k, shape * k * self.scale),
            "components_shape": np.asfortranarray(shape * noise),
            "components_rate": np.full((k, 1), shape),
        }

    def _allocated(
        self,
        units: Counts,
        summary: Summary,
        prior: Natural,
        random_state: np.random.RandomState,
    ) -> Natural:
        """Return q of components and weights given the counts that were allocated to each.

        Activations are taken to have the mean 1, as the prior has it.
        """
        own = allocated(
            positive_counts(units, self.n_columns),
            units.weights,
            self.n_components,
            (self.activation_prior, self.component_prior),
            int(random_state.randint(2**31 - 1)),
        )
        return self._given_counts(own * (summary.weight / units.total_weight), summary, prior)

    def _given_counts(self, own: np.ndarray, summary: Summary, prior: Natural) -> Natural:
        """Return q given the counts of each component, (n_components, n_columns)."""
        sums, cells = own.sum(axis=1), summary.weight * self.n_columns
        weights = np.maximum(sums, 1.0) / cells
        return {
            "weights_shape": prior["weights_shape"] + sums,
            "weights_rate": prior["weights_rate"] + cells,
            "components_shape": np.asfortranarray(prior["components_shape"] + own),
            "components_rate": prior["components_rate"] + (summary.weight * weights)[:, None],
        }

    def started_at(
        self, given: Given, usual: Callable[[], Natural], summary: Summary, prior: Natural
    ) -> Natural:
        """Return gamma distributions around the ``components``, as narrow as those of other starts.

        The components are E θ_k E w_kv, of which the θ_k are the means over columns.
        """
        shape, components = _SHAPE_OF_START, given["components"]
        weights, rate = components.mean(axis=1), shape + float(np.mean(prior["components_rate"]))
        return {
            "weights_shape": np.full(self.n_components, shape),
            "weights_rate": shape / weights,
            "components_shape": np.asfortranarray(
                np.maximum(rate * components / weights[:, None], _LEAST_SHAPE_OF_START)
            ),
            "components_rate": np.full((self.n_components, 1), rate),
        }

    def reordered(
        self, q: Natural, prior: Natural, order: np.ndarray
    ) -> tuple[Self, Natural, Natural]:
        moved = {key: value[order] for key, value in q.items()}
        moved["components_shape"] = np.asfortranarray(moved["components_shape"])
        return self, prior, moved

    def random_natural(
        self,
        summary: Summary,
        prior: Natural,
        rng: np.random.Generator,
        block: Block | None = None,
    ) -> Natural:
        """Return the posterior of counts that are spread at random over columns and components.

        It is the random parameter η of stochastic annealing.
        """
        k, each = self.n_components, summary.expected_total / self.n_components
        result: Natural = {}
        if block is None or block.keys == WEIGHTS:
            shares = rng.standard_exponential(k)
            result["weights_shape"] = prior["weights_shape"] + each * shares
            rate = prior["weights_rate"] + summary.expected_total / summary.mean
            result["weights_rate"] = rate
        if block is None or block.keys == COMPONENTS:
            shares = rng.standard_exponential((self.n_columns, k))
            shares *= each / shares.sum(axis=0)
            result["components_shape"] = prior["components_shape"] + shares.T
            rate = prior["components_rate"] + each / self.n_columns
            result["components_rate"] = np.broadcast_to(rate, (k, rate.shape[1])).copy()
        return result

    # Visits

    def visit(
        self,
        q: Natural,
        units: Counts,
        t: Tempering = Tempering(),  # noqa: B008
        *,
        block: Block | None = None,
        rng: np.random.Generator | None = None,
        unit_temperatures: UnitTemperatures | None = None,
        separate_noise: bool = False,
        evaluation: bool = False,
        known: Known | None = None,
        workers: Workers = SEQUENTIAL,
    ) -> CountsVisit:
        x = float(t.local)
        counts_components = block is not None and block.keys == COMPONENTS
        kept: Known = {}
        draw = None
        if rng is not None:
            # One draw serves the visits for all blocks of an update.
            if counts_components and known and "draw" in known:
                kept = known
            else:
                draw = {f.names["shape"]: f.family.sample(f.pick(q), rng) for f in self.factors()}
                of_components = draw["components_shape"]
                logs, values = (
                    np.ascontiguousarray(of_components[key].T) for key in ("log_value", "value")
                )
                kept = {"draw": draw, "table": table_of_logs(logs, x, self.precision, values)}
            draw, table = kept["draw"], kept["table"]
            log_weights = draw["weights_shape"]["log_value"]
            mean_weights = draw["weights_shape"]["value"]
        else:
            of_weights, rate = q["weights_shape"], q["weights_rate"]
            log_weights, mean_weights = psi(of_weights) - np.log(rate), of_weights / rate
            shape, rate = q["components_shape"], q["components_rate"]
            with_means = units.patterns is not None or self.dispersion is not None
            if known and known.get("of") is shape and known["how"] == (x, with_means):
                kept = known
            else:
                table = expected_table(shape, rate, x, self.precision, with_means)
                kept = {"of": shape, "how": (x, with_means), "table": table}
            table = kept["table"]
        return self._visit(
            table,
            t,
            None,
            separate_noise,
            log_weights=log_weights,
            mean_weights=mean_weights,
            # The bound at T = 1 does not need the counts of components, and no more does the
            # update of their weights.
            counts_components=(counts_components or x != 1.0) and not evaluation,
            sweeps=not counts_components,
            draw=draw,
            known=kept or None,
            q=q if draw is None else None,
            learns_late=bool(self.learns),
        )

    @property
    def _visit(self) -> Callable[..., CountsVisit]:
        """The class of visits, which have this model."""
        return partial(CountsVisit if self.dispersion is None else NoisyCountsVisit, self)

    def n_sweeps(self, further: bool, exploring: bool, noisy: bool = False) -> int:
        """Return the largest number of sweeps over the activations of a row.

        ``further`` says whether they go on from the last visit, and ``noisy`` whether they do so
        with noise.
        """
        if self.max_sweeps is not None:
            return self.max_sweeps
        if further:
            return _FURTHER_SWEEPS
        if not exploring:
            return _MANY_SWEEPS
        if self.dispersion is not None:
            return _NOISY_EXPLORING_SWEEPS
        return _SWEEPS_WITH_NOISE if noisy else _EXPLORING_SWEEPS

    def further(
        self,
        q: Natural,
        prior: Natural,
        units: Counts,
        local: list[Activations],
        momentum: ShapeMomentum | None,
        exploring: int = 0,
    ) -> tuple[Natural, list[Activations], int, ShapeMomentum | None] | None:
        alike = self.popularity is None and q["components_rate"].shape[1] == 1
        if not (self.is_dense and alike and self.dispersion is None and self.max_sweeps is None):
            return None
        if not exploring:
            how = q, prior, local, momentum, self.explores_further
            return further_passes(units, self.n_columns, self.activation_prior, *how)
        if not self.explores_further:
            return None
        n_updates = self.n_sweeps(further=False, exploring=True) - 1
        found = exploring_passes(units, self, q, prior, exploring, n_updates)
        return (q, local, 0, momentum) if found is None else (found, local, exploring, momentum)

    def block_statistics(self, block: Block, raw: Natural, q: Natural) -> Natural:
        """Return the statistics of one block.

        The rates depend on the other block, of which the newest expectations are taken, or, after
        a visit with a draw, the draw.
        """
        exposure = raw[EXPOSURE]
        if block.keys == WEIGHTS:
            rate = raw.get(RATE_OF_WEIGHTS)
            if rate is None:
                rate = self._weighted_totals(exposure, q)
            return {"weights_shape": raw[ASSIGNED], "weights_rate": rate}
        rate = raw.get(RATE_OF_COMPONENTS)
        if rate is None:
            rate = (exposure * (q["weights_shape"] / q["weights_rate"])).T
        if q["components_rate"].shape[1] > 1:
            rate = np.broadcast_to(rate, q["components_shape"].shape)
        return {
            "components_shape": raw[COUNTS][:, : self.n_components].T,
            "components_rate": rate,
        }

    def _weighted_totals(self, exposure: np.ndarray, q: Natural) -> np.ndarray:
        """Return Σ_v A_vk E w_kv, where A are the sums of activations over observed cells."""
        shape, rate = q["components_shape"], q["components_rate"]
        if len(exposure) == 1 and rate.shape[1] == 1:
            return exposure[0] * shape.sum(axis=1) / rate[:, 0]
        return (exposure * (shape / rate).T).sum(axis=0)

    # Hyperparameters

    def learned(
        self,
        q: Natural,
        prior: Natural,
        step: LocalStep | None,
        rho: float,
        scale: float,
        late: bool = True,
    ) -> tuple[Self, Natural, Natural]:
        """Move the learned priors towards those that maximise the bound given q.

        A prior Gamma(a, a) of numbers λ is best where log a − ψ(a) = E λ − E log λ − 1. That of the
        weights has the same form for α/K, with θ_k K c in the place of λ. As q follows the priors
        in turn, they go beyond these values where they have moved in the same direction before.
        The scales of q follow at once (:mod:`._count_scales`).

        Weights that are equal, as the only one is to itself, have no best α: it would follow q
        without end, and q would follow it. Counts leave an error of √(K / N) of a mean weight, and
        the prior allows weights to differ by √(K / α), so that an α above the number N of counts
        would claim a difference that counts cannot show. It ends there. The weights of q move with
        α, as otherwise the prior would be taken for the counts that q has.
        """
        if step is None:
            return self, prior, q
        if not (late and self.learns):
            model = self._afresh()._exploring(step, rho == scale == 1.0)._with_popularity(q, rho)
            return model, prior if model.popularity is None else model._prior(), q
        # Scales that are not the best ones would say nothing of the priors that they follow from.
        q, evidence = self._scaled(q, prior, step.statistics, scale)
        k, before, gaps = self.n_components, prior, self._gaps(q, evidence)
        model = copy(self)
        each = np.array([k if name == "concentration" else 1 for name in gaps])
        found = np.array([getattr(self, name) for name in gaps]) / each
        targets = np.maximum(np.array([*gaps.values()]), 0.0)
        compiled("empirical_bayes").gamma_shapes(targets, 1, SMALLEST, LARGEST, found)
        model.changes = {}
        for (name, gap), best, n in zip(gaps.items(), found.tolist(), each.tolist(), strict=True):
            old = getattr(self, name) / n
            if rho == 1.0 and self.popularity is None:
                new = over_relaxed(old, best, gap, self.changes.get(name, 0.0))
                model.changes[name] = new - old
            else:
                new = damped(old, best, rho)
            setattr(model, name, n * new)
        model = model._with_popularity(q, rho, "popularity_prior" in self.learns)
        if "concentration" in self.learns:
            most = max(float(q["weights_shape"].sum()) - self.concentration, k * SMALLEST)
            model.concentration = min(model.concentration, most)
        prior, old = model._prior(), self._prior()
        if "concentration" in self.learns:
            q = {**q, **{key: q[key] + (prior[key] - old[key]) for key in WEIGHTS}}
        if "dispersion" in self.learns:
            model._learn_dispersion(q, step.statistics, rho)
        return model, prior, model._scaled(q, before, step.statistics, scale)[0]

    def _gaps(self, q: Natural, evidence: np.ndarray) -> dict[str, float]:
        """Return E λ − E log λ − 1 of the numbers λ of each prior that is learned."""
        k = self.n_components
        gaps: dict[str, float] = {}
        if "activation_prior" in self.learns:
            difference, number = evidence
            gaps["activation_prior"] = float(-difference / number) - 1.0
        if "component_prior" in self.learns:
            shape, rate = q["components_shape"], q["components_rate"]
            sums = np.zeros((2, k))
            kernels().log_sums(np.ascontiguousarray(shape.T), sums)
            logs = sums[0].sum() / shape.size - np.log(rate).sum() / rate.size
            one_rate = rate.shape[1] == 1
            mean = (sums[1] / rate[:, 0]).sum() / shape.size if one_rate else (shape / rate).mean()
            if self.popularity is not None:
                mean = (shape / rate * self.popularity.means).mean()
                logs += self.popularity.logs(self.component_prior, k).mean()
            gaps["component_prior"] = float(mean - logs) - 1.0
        if "concentration" in self.learns:
            shape, rate = q["weights_shape"], q["weights_rate"] / (k * self.scale)
            gaps["concentration"] = (
                float((shape / rate - psi(shape) + np.log(rate)).sum()) / k - 1.0
            )
        return gaps

    def _scaled(
        self, q: Natural, prior: Natural, statistics: Natural, scale: float
    ) -> tuple[Natural, np.ndarray]:
        """Return q with the best scales, and the evidence of activations with these.

        ``prior`` is the one that the shapes of q have besides counts. With draws, scales stay as
        they are.
        """
        evidence = statistics[EVIDENCE]
        if not self.finds_scales or RATE_OF_WEIGHTS in statistics:
            return q, evidence
        exposure, summed = statistics[EXPOSURE], statistics[SUMMED]
        n_rows, observed = float(evidence[1]) / self.n_components, np.ones(self.n_components)
        if len(exposure) > 1:
            totals = (q["components_shape"] / q["components_rate"]).sum(axis=1)
            observed = self._weighted_totals(exposure, q) / (summed * totals)
        q, totals = with_best_scales(self, q, prior, scale * n_rows, observed)
        if totals is None:
            return q, evidence
        totals = totals / scale
        moved = n_rows * np.log(totals / summed).sum() - (totals - summed).sum()
        return q, evidence + np.array([moved, 0.0])

    def _afresh(self) -> Self:
        """Return the model as one whose priors have not moved yet."""
        if not self.changes:
            return self
        model = copy(self)
        model.changes = {}
        return model

    def _with_popularity(self, q: Natural, rho: float, learns: bool = False) -> Self:
        """Return the model after the rates of columns have followed the components."""
        if self.popularity is None:
            return self
        model, popularity = copy(self), self.popularity
        totals = (q["components_shape"] / q["components_rate"]).sum(axis=0)
        how = totals, self.component_prior, self.n_components, rho
        if learns:
            popularity = popularity.learned(*how)
        model.popularity = popularity.following(*how)
        return model

    def _exploring(self, step: LocalStep, all_data: bool) -> Self:
        """Return the model with the dispersion of the next pass that explores."""
        keeps = self.strong_noise or not all_data or "dispersion" not in self.learns
        if keeps or NOISE not in step.statistics or self.dispersion is None:
            return self
        model, found = copy(self), exploring_dispersion(self.dispersion, step.statistics[NOISE])
        model.dispersion = model.proposed = found
        return model

    def _learn_dispersion(self, q: Natural, statistics: Natural, rho: float) -> None:
        """Move the dispersion of this model, and propose the next one."""
        rates = [
            float(self._weighted_totals(exposure, q) @ (q["weights_shape"] / q["weights_rate"]))
            for exposure in (statistics[EXPOSURE], statistics[PROPOSED_EXPOSURE])
        ]
        assert self.dispersion is not None and self.proposed is not None
        evidence = statistics[NOISE]
        self.dispersion, self.proposed = better_dispersion(
            self.dispersion, self.proposed, evidence, rates, rho
        )

    def kl(
        self, q: Natural, prior: Natural, known: Known | None = None, workers: Workers = SEQUENTIAL
    ) -> float:
        shape, rate, a = q["components_shape"], q["components_rate"], self.component_prior
        if rate.shape[1] == 1 and self.popularity is None:
            arrays = np.array([each[key] for each in (q, prior) for key in WEIGHTS])
            found = np.empty(2)
            kernels().divergence(np.ascontiguousarray(shape.T), rate[:, 0], a, arrays, found)
            total, largest = found.tolist()
            if largest <= STRONG:
                return float(total)
        weights, components = self.factors()
        of_weights = weights.family.kl(weights.pick(q), weights.pick(prior))
        if self.popularity is not None:
            of_weights += self.popularity.kl(a, self.n_components)
        q, prior = components.pick(q), components.pick(prior)
        prior = {key: np.broadcast_to(value, shape.shape) for key, value in prior.items()}
        q["rate"] = np.broadcast_to(q["rate"], shape.shape)
        return of_weights + components.family.kl(q, prior)

    def entropy(self, q: Natural, known: Known | None = None) -> float:
        shape = q["components_shape"]
        q = {**q, "components_rate": np.broadcast_to(q["components_rate"], shape.shape)}
        return super().entropy(q)

    def jitter(self, q: Natural, size: float, rng: np.random.Generator, prior: Natural) -> Natural:
        """Multiply the expected counts of components by exp(``size`` · N(0, 1))."""
        if "components_shape" not in q:
            return q
        shape, floor = q["components_shape"], prior["components_shape"]
        factor = np.exp(size * rng.standard_normal((self.n_columns, self.n_components))).T
        return {**q, "components_shape": floor + np.maximum(shape - floor, 0.0) * factor}

    # Functions of the fitted parameters

    def expected_counts(self, q: Natural, prior: Natural) -> np.ndarray:
        """Return the expected count of each component, of shape (n_components,)."""
        return q["weights_shape"] - prior["weights_shape"]

    def in_use(self, q: Natural, prior: Natural, means: np.ndarray) -> np.ndarray:
        """Return which components explain counts, a boolean array of shape (n_components,).

        They have an expected count above 1, or a total rate that is not far below the mean of all
        components, given the means of θ_k w_kv. The latter are in use where there are few counts,
        where a prior was learned that says as much as the data, or where allocations that were
        drawn from q on have moved counts to components that q left empty.
        """
        rates = means.sum(axis=1)
        return (self.expected_counts(q, prior) > 1.0) | (rates >= _SMALLEST_SHARE * rates.mean())

    def means(self, q: Natural) -> np.ndarray:
        """Return E θ_k E w_kv, of shape (n_components, n_columns)."""
        weights = q["weights_shape"] / q["weights_rate"]
        return weights[:, None] * (q["components_shape"] / q["components_rate"])

    def averaged(self, units: Counts, q: Natural, prior: Natural, seed: int) -> np.ndarray | None:
        """Return the means of θ_k w_kv over allocations that are drawn from q on, or None.

        They are for predictions if a search has kept an allocation. Allocations know neither of
        noise, nor of rates of columns, nor of missing cells.
        """
        kept = self.allocates and self.init_params == "collapsed_gibbs" and units.patterns is None
        if not kept or self.dispersion is not None or self.popularity is not None:
            return None
        counts = positive_counts(units, self.n_columns)
        priors = self.activation_prior, self.component_prior
        begun = q["components_shape"] - prior["components_shape"]
        own = allocated(counts, units.weights, self.n_components, priors, seed, begun)
        return mean_parts(own, self.component_prior, units.total_weight)

    def coinciding(self, q: Natural, summary: Summary, prior: Natural) -> list[tuple[int, int]]:
        used = np.flatnonzero(self.expected_counts(q, prior) >= 1)
        profiles = q["components_shape"] / q["components_rate"]
        profiles /= profiles.mean(axis=1, keepdims=True)
        return coinciding(profiles, used)

    def predicted(
        self,
        units: Counts,
        q: Natural,
        parts: np.ndarray,
        workers: Workers | None,
        exposure: float = 1.0,
    ) -> np.ndarray:
        """Return E h of rows given the means of all θ_k w_kv, from which counts are predicted.

        Activations are integrated out (:mod:`._count_activations`), except with noise, which counts
        of a component do not determine: they are then those of :meth:`infer`. Rows were counted for
        the share ``exposure`` of the time. Without ``workers``, plain kernels take the rows.
        """
        if self.dispersion is not None:
            q = {**q, "weights_rate": q["weights_rate"] / exposure}
            if workers is None:
                return self._few_with_noise(units, q)
            return self.infer(units, q, workers)
        n_sweeps = self.n_sweeps(further=False, exploring=False)
        own = exposure * parts.T, self.activation_prior, (n_sweeps, self.sweep_tol), workers is None

        def means_of(index: slice) -> np.ndarray:
            rows: Any = units.take(index)
            observed = None if rows.patterns is None else ~np.isnan(rows.X)
            return collapsed_means(positive_counts(rows, self.n_columns), observed, *own)

        tasks = ((index,) for index in units.chunks())
        found = (workers or SEQUENTIAL).imap(means_of, tasks)
        return np.concatenate(list(found))

    def _few_with_noise(self, units: Counts, q: Natural) -> np.ndarray:
        """Return E h of a few rows as :meth:`infer` does, without compiled kernels."""
        shape, rate = q["weights_shape"], q["weights_rate"]
        visit = NoisyCountsVisit(
            self,
            plain_table(q, self.precision),
            Tempering(),
            None,
            log_weights=psi(shape) - np.log(rate),
            mean_weights=shape / rate,
            counts_components=False,
            sweeps=True,
            plain=True,
        )
        found = visit.activations(units, self.n_sweeps(further=False, exploring=False))
        return found.shape / found.rate

    def infer(
        self, units: Counts, q: Natural, workers: Workers, exploring: bool = False
    ) -> np.ndarray:
        """Return E h of rows by their mean-field steps, given q(w) and q(θ) at T = 1.

        Those of ``exploring`` passes are fewer and less exact.
        """
        visit = self.visit(q, units, evaluation=True, workers=workers)
        chunks = units.chunks()
        start = Start(None, self.n_sweeps(False, exploring), exploring and self.max_sweeps is None)
        tasks = ((units.take(index), None, start) for index in chunks)
        means = np.empty((units.n_units, self.n_components))
        for index, step in zip(chunks, workers.imap(visit.step, tasks), strict=True):
            means[index] = step.local.shape / step.local.rate
        return means
