"""Local steps of the models whose rows are sums of components that are active or not."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import softmax

from ..data.units import Rows
from ..families import Natural, Tempering, UnitTemperatures
from ._base import Block, ConjugateModel, Expected, Known, LocalStep, S, Visit
from ._streamed import Streamed, least_rows_of_fit

# Largest number of rows whose projections are in memory at a time, and the number that the kernels
# process at a time.
_BLOCK, _LANES = 1536, 64
# Default number of sweeps over a row: few at visits that start anew in order to explore, many at
# other visits.
FEW_SWEEPS, MANY_SWEEPS = 5, 100
# Inverse temperatures through which rows of predictions are cooled, with few sweeps at each. The
# bound of a row has to be higher by so many nats for it.
_COOLING = np.geomspace(0.005, 1.0, 9)[:-1]
_RISE = 0.01
# The inverse of a smaller variance, times what learned shares of it and sums over rows make of it,
# would overflow.
_LEAST_VARIANCE = 1e-300
# Values are equal if their standard deviation is at most this share of their mean: the rounding
# errors of a mean of many equal values are as large.
OF_EQUAL_VALUES = 1e-13


class RowBlock(NamedTuple):
    """Some rows of the data in float64, less the center."""

    rows: slice
    X: np.ndarray  # missing cells are 0, (n_rows, n_features)
    # 1 where a cell is observed and 0 where it is missing, (n_rows, n_features); None if none of
    # the data is missing.
    observed: np.ndarray | None


class LocalStart(NamedTuple):
    """The initial activations of some rows, and how to iterate from there."""

    # :attr:`Inferred.local` of each block of rows; None means that the activations are found by a
    # linear regression.
    local: list | None
    n_sweeps: int  # largest number of sweeps over a row
    cools: bool = False  # whether activations are found anew, from high temperatures too


class Inferred(NamedTuple):
    """q of the local variables of some rows."""

    activations: np.ndarray  # expected activations, (n_components, n_rows)
    moments: list[Natural]  # weighted sums over the rows, for each kind of weights
    # E log p(x, z | β) and H[q(z)] in nats, where z are all local variables, (n_rows,).
    energies: np.ndarray
    entropies: np.ndarray
    local: Any  # the values from which the next visit can start, or None if it starts anew
    # Expected factors, if ``local`` is None, (n_components, n_rows).
    factors: np.ndarray | None = None


def centered_blocks(units: Rows) -> Iterator[RowBlock]:
    """Yield the rows in blocks.

    The blocks have about the same size, because a small last one would take more time per row.
    """
    moved = bool(units.center.any())
    n = units.n_units
    n_blocks = max(1, -(-n // _BLOCK))
    size = max(_LANES, -(-n // (n_blocks * _LANES)) * _LANES)
    for begin in range(0, n, size):
        rows = slice(begin, min(begin + size, n))
        X = np.ascontiguousarray(units.X[rows], dtype=np.float64)
        if moved:
            X = X - units.center
        observed = None
        if units.patterns is not None:
            there = ~np.isnan(X)
            X, observed = np.where(there, X, 0.0), there.astype(np.float64)
        yield RowBlock(rows, X, observed)


def inferred_anew(likelihood: Any, block: RowBlock, n_sweeps: int, cools: bool) -> Inferred:
    """Return q(z) at T = 1 of rows that no visit has inferred before, without sums.

    Sweeps that start at a linear regression can switch off, one by one, components that explain a
    row together, and other rows end far below their optimum, too, above all where there is little
    noise. If it ``cools``, sweeps start from high temperatures as well, and the higher bound of
    each row decides. The likelihood is that of a visit, whose ``infer`` also takes the inverse
    temperatures of this ``cooling``; ``is_local`` says whether sweeps end in one of several optima.
    """
    how = block, 1.0, (), None, n_sweeps
    found: Inferred = likelihood.infer(*how)
    if not (cools and likelihood.is_local and n_sweeps):
        return found
    cooled: Inferred = likelihood.infer(*how, _COOLING)
    rise = cooled.energies + cooled.entropies - found.energies - found.entropies
    if not (rise > _RISE).any():
        return found

    def better(of_cooled: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.where(rise > _RISE, of_cooled, other)

    local = found.local
    if isinstance(local, tuple):
        local = tuple(map(better, cooled.local, local))
    return found._replace(
        activations=better(cooled.activations, found.activations),
        energies=better(cooled.energies, found.energies),
        entropies=better(cooled.entropies, found.entropies),
        local=local if isinstance(local, tuple) else better(cooled.local, local),
    )


def at_temperatures(
    cooling: Sequence[float] | np.ndarray, inverse_temperature: np.ndarray, n_sweeps: int
) -> list[tuple[np.ndarray, int]]:
    """Return inverse temperatures one after another, and the largest number of sweeps at each."""
    few = min(n_sweeps, FEW_SWEEPS)
    return [*((np.array([hot]), few) for hot in cooling), (inverse_temperature, n_sweeps)]


def check_variances(variances: float | np.ndarray) -> None:
    """Refuse data whose squares overflow or underflow; constant columns are no concern."""
    for wrong, size, event in (
        (~np.isfinite(variances), "large", "overflow"),
        ((variances > 0) & (variances < _LEAST_VARIANCE), "small", "underflow"),
    ):
        if np.any(wrong):
            raise ValueError(
                f"X has numbers so {size} that their squares {event}. Rescale X, for example with "
                "sklearn.preprocessing.StandardScaler."
            )


def weighted_total(weights: np.ndarray, values: np.ndarray) -> float:
    """Return Σ w v, given one weight for all values or one for each."""
    return float(weights[0] * values.sum() if len(weights) == 1 else weights @ values)


def weighted_product(activations: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return Σ w E[z] xᵀ; a weight that all rows have multiplies the sum and not its terms."""
    if len(weights) == 1:
        return np.asarray(weights[0] * (activations @ rows))
    return np.asarray((activations * weights) @ rows)


def second_moments(factors: np.ndarray, squares: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return Σ w E[u uᵀ] of independent factors, given E u and E u², (n_components, n_rows)."""
    second = weighted_product(factors, factors.T, weights)
    np.fill_diagonal(second, weighted_product(squares, np.ones(factors.shape[1]), weights))
    return second


def _add(sums: Natural, terms: Natural) -> None:
    for key, term in terms.items():
        sums[key] = sums[key] + term if key in sums else term


@dataclass(frozen=True)
class BinaryCodesVisit(Visit[Rows]):
    """A visit to rows.

    Its ``expected`` is E log p(x, z | β) as a function of the local variables z. It has a method
    ``infer(block, x, weights, start, n_sweeps)``, which returns :class:`Inferred`. Two others serve
    to learn hyperparameters: ``evidence(block, weights, found)`` returns further sums over rows,
    and ``of_visit()`` what is the same for all of them.
    """

    def start(
        self, units: Rows, local: Any, exploring: bool, noise: float, rng: np.random.Generator
    ) -> LocalStart:
        # Activations are assignments, which have no parameters that noise could be mixed with.
        local = None if exploring else local
        return LocalStart(local, self.model.n_sweeps(exploring), self.model.cools)

    def forgets(self, exploring: bool, noise: float) -> bool:
        return exploring

    def step(
        self, units: Rows, noise: np.ndarray | None = None, local: LocalStart | None = None
    ) -> LocalStep:
        likelihood, model = self.expected, self.model
        local = LocalStart(None, model.n_sweeps(False)) if local is None else local
        tempered = self.unit_temperatures is not None
        found_x = np.empty(units.n_units if tempered else 0)
        separate = self.separate_noise and noise is not None
        sums: list[Natural] = [{} for _ in range(1 + separate)]
        energy, entropy = 0.0, 0.0
        evidence: Natural = {}
        kept: list = []
        for i, block in enumerate(centered_blocks(units)):
            rows = block.rows
            weights = np.ones(1) if units.weights is None else units.weights[rows]
            start = None if local.local is None else local.local[i]
            x: Any = self.t.local
            factor: Any = self.t.statistics
            if tempered:
                x, start = self._inverse_temperatures(block, start, local.n_sweeps)
                found_x[rows] = factor = x
            elif local.cools:
                start = inferred_anew(likelihood, block, local.n_sweeps, cools=True).local
            # Weights without noise are needed where noise is a deviation, and where there is none.
            kinds = [weights * factor]
            if noise is not None:
                noisy = kinds[0] * noise[rows]
                kinds = [kinds[0], noisy] if separate else [noisy]
            found = likelihood.infer(block, x, kinds, start, local.n_sweeps)
            for one, moments in zip(sums, found.moments, strict=True):
                _add(one, moments)
            _add(evidence, likelihood.evidence(block, weights, found))
            energy += weighted_total(weights, found.energies)
            entropy += weighted_total(weights, found.entropies)
            kept.append(found.local)
        goes_on = bool(kept) and kept[0] is not None
        step = LocalStep(sums[0] | evidence, energy, entropy, local=kept if goes_on else None)
        if separate:
            step.deviation = sums[1]
        if tempered:
            every = np.ones(units.n_units) if units.weights is None else units.weights
            step.temperature = float(np.sum(every / found_x))
            step.inverse_temperatures = found_x
        return step

    def finish(self, step: LocalStep) -> LocalStep:
        step.statistics = step.statistics | self.expected.of_visit()
        return step

    def _inverse_temperatures(
        self, block: RowBlock, start: Any, n_sweeps: int
    ) -> tuple[np.ndarray, Any]:
        """Return E[1/T] of rows, and the local variables of the last round.

        Each round infers q(z) given the expected inverse temperatures, and then the distribution
        of the temperatures given E log p(x, z).
        """
        assert self.unit_temperatures is not None
        grid, partition, n_rounds = self.unit_temperatures
        # Rows have partition functions of their own if cells can be missing.
        log_partition = partition if isinstance(partition, np.ndarray) else partition.of(block)
        x = np.full(len(block.X), grid.mean())
        for _ in range(n_rounds):
            found = self.expected.infer(block, x, (), start, n_sweeps)
            start = found.local
            x = softmax(np.outer(found.energies, grid) - log_partition, axis=1) @ grid
        return x, start


class BinaryCodes(Streamed, ConjugateModel[Rows, S]):
    """A model whose rows are sums of components that are active or not, plus Gaussian noise.

    Attributes
    ----------
    max_sweeps : int or None
        Largest number of sweeps over a row at a visit; None: 5 at visits that start anew in order
        to explore, and 100 at others.
    learns : tuple of str
        Names of the hyperparameters that are learned.
    cools : bool
        Whether visits at T = 1 find activations anew, from high temperatures too.
    """

    learns_soon = True
    cools: bool = False

    max_sweeps: int | None
    learns: tuple[str, ...]

    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> Expected:
        """Return moments of q of the components, or of a draw."""
        raise NotImplementedError

    def known(self, moments: Expected) -> Known | None:
        """Return what :meth:`kl` can reuse of the moments of q, if there is anything."""
        return None

    def likelihood(self, moments: Expected, x: float = 1.0) -> Any:
        """Return the ``expected`` of a visit, which sweeps over rows at the power ``x``."""
        raise NotImplementedError

    @abstractmethod
    def contributions(self, units: Rows, q: Natural) -> np.ndarray:
        """Return the squared norms of the components in rows, (n_rows, n_components)."""

    def least_weight_of_fit(self, summary: S) -> float:
        return least_rows_of_fit(self.n_components, 0.0)

    def shares_of_components(self, units: Rows, q: Natural) -> np.ndarray:
        found = self.contributions(units, q)
        shares: np.ndarray = found / np.maximum(found.sum(axis=1, keepdims=True), _LEAST_VARIANCE)
        return shares

    def capabilities(self) -> dict[str, str | None]:
        can = dict.fromkeys(
            ("draws", "log_partition", "unit_log_partition", "locally_tempered_step", "assignments")
        )
        return can | {
            "assignment_entropy": (
                "its activations do not exclude each other, so that the rule for mixtures does not "
                "apply; initial_temperature needs a number"
            )
        }

    @abstractmethod
    def _drawn(self, rng: np.random.RandomState | np.random.Generator) -> np.ndarray:
        """Return components that are drawn from their prior, (n_components, n_features)."""

    @abstractmethod
    def _around(self, means: np.ndarray, summary: S) -> Natural:
        """Return a Gaussian around components, as narrow as the data will make it.

        That is if activations are drawn from their prior.
        """

    def random_natural(
        self, summary: S, prior: Natural, rng: np.random.Generator, block: Block | None = None
    ) -> Natural:
        """Return a Gaussian around components that are drawn from their prior."""
        return self._around(self._drawn(rng), summary)

    @property
    def learns_late(self) -> bool:
        """Whether hyperparameters are learned once the bound hardly rises."""
        return bool(self.learns)

    def with_cooling(self) -> Self:
        """Return a copy whose visits cool activations."""
        model = copy(self)
        model.cools = True
        return model

    def n_sweeps(self, exploring: bool) -> int:
        """Return the largest number of sweeps over a row.

        While ``exploring``, every visit starts anew, and few sweeps per visit suffice.
        """
        if self.max_sweeps is not None:
            return self.max_sweeps
        return FEW_SWEEPS if exploring else MANY_SWEEPS

    def visit(
        self,
        q: Natural,
        units: Rows,
        t: Tempering = Tempering(),  # noqa: B008
        *,
        rng: np.random.Generator | None = None,
        unit_temperatures: UnitTemperatures | None = None,
        separate_noise: bool = False,
        **how: Any,
    ) -> BinaryCodesVisit:
        # The start of a row must not depend on a temperature of its own.
        x = 1.0 if unit_temperatures is not None else float(t.local)
        expected = self.expectations(q, rng)
        likelihood = self.likelihood(expected, x)
        return BinaryCodesVisit(
            self,
            likelihood,
            t,
            unit_temperatures,
            separate_noise,
            learns_late=self.learns_late,
            known=self.known(expected),
        )
