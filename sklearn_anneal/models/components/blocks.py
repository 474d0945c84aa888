"""Components of rows whose columns are divided into blocks of different distributions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...data.units import Rows, cell_patterns
from ...families import Factor, Factors, Natural
from .._base import DataSummary, Expected, Known, merged, whole
from .._points import beside
from ._base import Components, Draws, Joint, Profile, RawStatistics
from ._linear import scaled


@dataclass(frozen=True)
class Summaries(DataSummary):
    """The summaries of blocks, by their names."""

    parts: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.parts[name]

    @property
    def center(self) -> dict[str, np.ndarray | None]:
        """The origin of each block's coordinates; None for a block without any."""
        return {name: getattr(part, "center", None) for name, part in self.parts.items()}

    def merge(self, other: Summaries) -> Summaries:
        """Return the summaries of both sets of rows together."""
        parts = self.parts.items()
        return Summaries({name: merged(part, other[name]) for name, part in parts})

    def whole(self) -> Summaries:
        return Summaries({name: whole(part) for name, part in self.parts.items()})


@dataclass(frozen=True)
class BlockSums(RawStatistics):
    """The raw statistics of blocks, by their names."""

    parts: Mapping[str, RawStatistics]

    def __add__(self, other: BlockSums) -> BlockSums:
        return BlockSums({name: part + other.parts[name] for name, part in self.parts.items()})

    def __rmul__(self, factor: float) -> BlockSums:
        return BlockSums({name: factor * part for name, part in self.parts.items()})


class BlockComponents(Components[Summaries, BlockSums]):
    """Distributions of rows whose blocks of columns are independent given the component.

    The natural parameters of a block have its name and a dot before their own names.

    Parameters
    ----------
    parts : dict of Components
        The components of each block.
    """

    def __init__(self, parts: Mapping[str, Components]):
        self.parts = dict(parts)
        self.n_components = next(iter(self.parts.values())).n_components
        self.learns = any(part.learns for part in self.parts.values())
        self.least_rows = max(part.least_rows for part in self.parts.values())

    @property
    def learns_early(self) -> bool:
        return any(part.learns_early for part in self.parts.values())

    @property
    def learns_late(self) -> bool:
        return any(part.learns_late for part in self.parts.values())

    @cached_property
    def _names(self) -> dict[str, dict[str, str]]:
        parts = self.parts.items()
        return {name: {key: f"{name}.{key}" for key in part.keys} for name, part in parts}

    def _prefixed(self, name: str, arrays: Natural) -> Natural:
        names = self._names[name]
        return {names[key]: value for key, value in arrays.items()}

    def own(self, name: str, arrays: Natural) -> Natural:
        """Return the arrays of one block, without its name before theirs."""
        return {key: arrays[full] for key, full in self._names[name].items()}

    def rows_of(self, name: str, rows: Rows) -> Rows:
        """Return the columns of one block, which are found once for the same rows."""
        found = rows.of_blocks.get(name)
        # Weights, and who reads the rows, can have been changed since.
        if found is not None and found.weights is rows.weights and found.plain == rows.plain:
            return found
        blocks: Any = rows.X
        center = rows.center.get(name) if isinstance(rows.center, dict) else None
        X = blocks.parts[name]
        patterns = cell_patterns(X) if isinstance(X, np.ndarray) else None
        rows.of_blocks[name] = Rows(X, rows.weights, center, patterns, plain=rows.plain)
        return rows.of_blocks[name]

    def _joined(self, each: Iterator[tuple[str, Natural]]) -> Natural:
        joined: Natural = {}
        for name, arrays in each:
            joined |= self._prefixed(name, arrays)
        return joined

    # Data and parameters

    @property
    def why_no_log_volume(self) -> str | None:
        reasons = (part.why_no_log_volume for part in self.parts.values())
        return next((reason for reason in reasons if reason), None)

    @property
    def why_no_exact_gradient(self) -> str | None:
        reasons = (part.why_no_exact_gradient for part in self.parts.values())
        return next((reason for reason in reasons if reason), None)

    def summary(self, rows: Rows) -> Summaries:
        parts = self.parts.items()
        return Summaries({name: part.summary(self.rows_of(name, rows)) for name, part in parts})

    def resolved(self, summary: Summaries) -> BlockComponents:
        parts = self.parts.items()
        return BlockComponents({name: part.resolved(summary[name]) for name, part in parts})

    @cached_property
    def factors(self) -> tuple[Factor, ...]:
        return tuple(
            Factor(f.family, {key: f"{name}.{own}" for key, own in f.names.items()})
            for name, part in self.parts.items()
            for f in part.factors
        )

    @property
    def least_rows_alone(self) -> float:
        return max(part.least_rows_alone for part in self.parts.values())

    @property
    def learns_alone(self) -> bool:  # type: ignore[override]
        return all(part.learns_alone for part in self.parts.values())

    def compared(self) -> BlockComponents:
        return BlockComponents({name: part.compared() for name, part in self.parts.items()})

    def hyperparameter_kl(self) -> float:
        return sum(part.hyperparameter_kl() for part in self.parts.values())

    def carried(self, prior: Natural, order: np.ndarray) -> tuple[BlockComponents, Natural]:
        found = {n: part.carried(self.own(n, prior), order) for n, part in self.parts.items()}
        priors = self._joined((n, own) for n, (_, own) in found.items())
        return BlockComponents({n: part for n, (part, _) in found.items()}), priors

    def with_priors_of(self, larger: Any, chosen: np.ndarray) -> BlockComponents:
        others = larger.parts
        parts = {n: part.with_priors_of(others[n], chosen) for n, part in self.parts.items()}
        return BlockComponents(parts)

    def prior(self, summary: Summaries) -> Natural:
        return self._joined((n, part.prior(summary[n])) for n, part in self.parts.items())

    def learned(
        self,
        q: Natural,
        prior: Natural,
        rho: float,
        late: bool,
        rows_stay: bool = False,
        known: Known | None = None,
    ) -> tuple[BlockComponents, Natural]:
        model, of_parts = copy(self), {} if known is None else known["blocks"]
        new: Natural = {}
        model.parts = {}
        for name, part in self.parts.items():
            how = rho, late, rows_stay, of_parts.get(name)
            found = part.learned(self.own(name, q), self.own(name, prior), *how)
            model.parts[name] = found[0]
            new |= self._prefixed(name, found[1])
        return model, new

    @property
    def completes(self) -> bool:  # type: ignore[override]
        return any(part.completes for part in self.parts.values())

    def for_start(
        self, rows: Rows, prior: Natural, summary: Summaries | None = None
    ) -> dict[str, Expected]:
        found: dict[str, Expected] = dict.fromkeys(self.parts)
        for name, part in self.parts.items():
            if part.completes:
                expected = part.expectations(self.own(name, prior))
                found[name] = part.for_rows(expected, self.rows_of(name, rows))
        return found

    def is_whole(self, profile: Profile) -> bool:
        return all(part.is_whole(profile.get(name, {})) for name, part in self.parts.items())

    def posterior_like(
        self,
        profile: Profile,
        counts: np.ndarray,
        q: Natural,
        summary: Summaries,
        prior: Natural,
    ) -> Natural:
        """Return the posterior given rows like a profile, which has that of each block.

        Blocks that are not in the profile keep their parameters of ``q``.
        """
        return q | self._joined(
            (n, part.posterior_like(given, counts, self.own(n, q), summary[n], self.own(n, prior)))
            for n, part in self.parts.items()
            if (given := profile.get(n))
        )

    def random_natural(
        self, counts: np.ndarray, summary: Summaries, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        return self._joined(
            (n, part.random_natural(counts, summary[n], self.own(n, prior), rng))
            for n, part in self.parts.items()
        )

    def expectations(
        self, q: Natural, rng: np.random.Generator | None = None
    ) -> dict[str, Expected]:
        return {n: part.expectations(self.own(n, q), rng) for n, part in self.parts.items()}

    def compiled_expectations(self, q: Natural) -> dict[str, Expected]:
        return {n: part.compiled_expectations(self.own(n, q)) for n, part in self.parts.items()}

    def known(self, q: Natural, before: Known | None) -> Known | None:
        # Blocks have any names, so that their values are by themselves.
        return {"blocks": {n: part.known(self.own(n, q), None) for n, part in self.parts.items()}}

    def joint_expectations(
        self,
        q: Natural,
        log_weights: np.ndarray,
        rng: np.random.Generator | None = None,
        known: Known | None = None,
    ) -> Joint:
        # E log π counts once, and some parts would have it in their own values.
        none = np.zeros(self.n_components)
        own = {
            n: part.joint_expectations(
                self.own(n, q), none, rng, None if known is None else known["blocks"][n]
            ).own
            for n, part in self.parts.items()
        }
        return Joint(own, log_weights)

    def kl_given(self, q: Natural, prior: Natural, known: Known) -> float | None:
        total = 0.0
        for name, part in self.parts.items():
            own, other, given = self.own(name, q), self.own(name, prior), known["blocks"][name]
            found = None if given is None else part.kl_given(own, other, given)
            total += Factors(part.factors).kl(own, other) if found is None else found
        return total

    def draw(self, q: Natural, rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
        return [d for n, part in self.parts.items() for d in part.draw(self.own(n, q), rng)]

    def coefficients(self, draws: Draws) -> dict[str, Expected]:
        draws, found = list(draws), {}
        for name, part in self.parts.items():
            n = len(part.factors)
            found[name] = part.coefficients(draws[:n])
            draws = draws[n:]
        return found

    def reordered(self, q: Natural, order: np.ndarray) -> Natural:
        parts = self.parts.items()
        return self._joined((n, part.reordered(self.own(n, q), order)) for n, part in parts)

    def merge_gains(self, q: Natural, prior: Natural, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        parts = self.parts.items()
        own = [part.merge_gains(self.own(n, q), self.own(n, prior), i, j) for n, part in parts]
        return np.sum(own, axis=0)

    def plug_in(self, q: Natural) -> dict[str, Expected]:
        return {n: part.plug_in(self.own(n, q)) for n, part in self.parts.items()}

    def multiplied_counts(self, q: Natural, size: float, rng: np.random.Generator) -> Natural:
        parts = self.parts.items()
        return self._joined(
            (n, part.multiplied_counts(self.own(n, q), size, rng)) for n, part in parts
        )

    def jitter(self, q: Natural, size: float, rng: np.random.Generator, prior: Natural) -> Natural:
        parts = self.parts.items()
        return q | self._joined(
            (n, part.jitter(self.own(n, q), size, rng, self.own(n, prior))) for n, part in parts
        )

    def coordinates(self, q: Natural, summary: Summaries) -> np.ndarray:
        found = [part.coordinates(self.own(n, q), summary[n]) for n, part in self.parts.items()]
        return np.hstack([each.reshape(self.n_components, -1) for each in found])

    # Rows

    def for_rows(self, expected: dict[str, Expected], rows: Rows) -> dict[str, Expected]:
        parts = self.parts.items()
        return {n: part.for_rows(expected[n], self.rows_of(n, rows)) for n, part in parts}

    def n_terms(self, rows: Rows) -> float:
        return sum(part.n_terms(self.rows_of(n, rows)) for n, part in self.parts.items())

    def log_density(self, rows: Rows, expected: dict[str, Expected]) -> np.ndarray:
        (name, first), *others = self.parts.items()
        total = first.log_density(self.rows_of(name, rows), expected[name])
        for name, part in others:
            total += part.log_density(self.rows_of(name, rows), expected[name])
        return total

    def log_predictive(self, rows: Rows, q: Natural) -> np.ndarray:
        parts = self.parts.items()
        return sum(part.log_predictive(self.rows_of(n, rows), self.own(n, q)) for n, part in parts)  # type: ignore[return-value]

    def zeros(self, expected: dict[str, Expected]) -> BlockSums:
        return BlockSums({n: part.zeros(expected[n]) for n, part in self.parts.items()})

    def sums(self, rows: Rows, shares: np.ndarray, expected: dict[str, Expected]) -> BlockSums:
        parts = self.parts.items()
        each = {n: part.sums(self.rows_of(n, rows), shares, expected[n]) for n, part in parts}
        return BlockSums(each)

    def add(
        self, rows: Rows, shares: np.ndarray, raw: BlockSums, expected: dict[str, Expected]
    ) -> None:
        for name, part in self.parts.items():
            part.add(self.rows_of(name, rows), shares, raw.parts[name], expected[name])

    def statistics(
        self, raw: BlockSums, keys: tuple[str, ...] | None = None, q: Natural | None = None
    ) -> Natural:
        parts = self.parts.items()
        return self._joined((n, part.statistics(raw.parts[n])) for n, part in parts)

    def with_drawn_latents(self, raw: BlockSums, rng: np.random.Generator) -> BlockSums:
        parts = self.parts.items()
        return BlockSums({n: part.with_drawn_latents(raw.parts[n], rng) for n, part in parts})

    def imputed(
        self, rows: Rows, shares: np.ndarray, q: Natural, predictive: bool = True
    ) -> tuple[np.ndarray, np.ndarray | None]:
        values, deviations = [], []
        for name, part in self.parts.items():
            own = self.rows_of(name, rows), shares, self.own(name, q)
            value, std = part.imputed(*own, predictive)
            values.append(value)
            deviations.append(np.full(value.shape, np.nan) if std is None else std)
        return np.hstack(values), np.hstack(deviations)

    def drawn_rows(
        self,
        rows: Rows,
        labels: np.ndarray,
        expected: dict[str, Expected],
        rng: np.random.Generator,
    ) -> np.ndarray:
        parts = self.parts.items()
        return np.hstack(
            [p.drawn_rows(self.rows_of(n, rows), labels, expected[n], rng) for n, p in parts]
        )

    def embedding(self, rows: Rows) -> Any:
        parts = self.parts.items()
        # Columns of different kinds have no common unit.
        return scaled(beside([part.embedding(self.rows_of(n, rows)) for n, part in parts]))

    @property
    def n_parameters(self) -> int:
        return sum(part.n_parameters for part in self.parts.values())

    # Operations that only some annealing methods need

    def log_volumes(
        self, x: np.ndarray, summary: Summaries, expected: dict[str, Expected]
    ) -> np.ndarray:
        parts = self.parts.items()
        each = [part.log_volumes(x, summary[n], expected[n]) for n, part in parts]
        return np.concatenate(each, axis=-1)

    def log_volume(
        self, x: np.ndarray, summary: Summaries, expected: dict[str, Expected]
    ) -> np.ndarray:
        parts = self.parts.items()
        return sum(part.log_volume(x, summary[n], expected[n]) for n, part in parts)  # type: ignore[return-value]
