"""The visits of gamma-process factorisation, to rows of counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, psi

from ..families import Natural
from ..inference.units import DenseCounts, SparseCounts
from ._base import compiled
from ._visit import LocalStep, Visit

# Keys of the raw statistics, all multiplied by the factor of the statistics.
COUNTS = "counts"  # (n_columns, width): the counts of each component in each column
ASSIGNED = "assigned"  # (n_components,): the counts of each component
EXPOSURE = "exposure"  # (1 or n_columns, n_components): Σ w E h over the rows with the cell
EVIDENCE = "evidence"  # (2,): Σ w (E log h − E h), and the number of activations
# With a draw, what the two blocks take from it.
RATE_OF_WEIGHTS, RATE_OF_COMPONENTS = "rate_of_weights", "rate_of_components"
_NOISELESS = "counts_without_noise"

_NOTHING = np.empty(0)
_NO_MATRIX = np.empty((0, 0))
# Tables are padded to a multiple of this many components, which kernels process at a time.
_LANES = 8
# Dense rows are processed in blocks of about this many cells, which stay in the caches.
_CELLS = 1 << 16


kernels = partial(compiled, "gamma_process_nmf")
tables = partial(compiled, "counts")


@dataclass(frozen=True)
class Activations:
    """The gamma distributions of the activations of some rows.

    Attributes
    ----------
    shape : ndarray of shape (n_rows, n_components)
    rate : ndarray of shape (1, n_components) or (n_rows, n_components)
        One row serves all rows in which no cell is missing.
    """

    shape: np.ndarray
    rate: np.ndarray

    def __getitem__(self, rows: slice) -> Activations:
        """Return the activations of some of the rows."""
        return Activations(self.shape[rows], self.rate if len(self.rate) == 1 else self.rate[rows])


class Start(NamedTuple):
    """The initial activations of some rows, and how many sweeps to make from there.

    Attributes
    ----------
    activations : Activations or None
        None means that the activations of a row are all equal.
    n_sweeps : int
    """

    activations: Activations | None
    n_sweeps: int


class Table(NamedTuple):
    """E log w, or a draw of log w, in the layout of the kernels, and E w.

    Attributes
    ----------
    table : ndarray of shape (n_columns, width)
        exp{x (log w_kv − m_v)}; the number of components is padded to a multiple of 8.
    largest : ndarray of shape (n_columns,)
        m_v, the largest log w_kv of each column of X.
    totals : ndarray of shape (n_components,)
        Σ_v E w_kv.
    means : ndarray of shape (n_columns, n_components) or None
        E w_kv, where rates differ between columns or cells are missing.
    """

    table: np.ndarray
    largest: np.ndarray
    totals: np.ndarray
    means: np.ndarray | None


def expected_table(
    shape: np.ndarray, rate: np.ndarray, x: float, dtype: np.dtype, with_means: bool
) -> Table:
    """Return the table of components of natural parameters (n_components, 1 or n_columns)."""
    rows = np.ascontiguousarray(shape.T)
    if rate.shape[1] > 1:
        means = rows / rate.T
        return table_of_logs(psi(rows) - np.log(rate.T), x, dtype, means)
    totals = rows.sum(axis=0) / rate[:, 0]
    table, largest = _empty(rows.shape, dtype), np.empty(len(rows))
    columns = np.arange(len(rows), dtype=np.int32)
    tables().expected_table(table, rows, columns, np.log(rate[:, 0]), x, largest)
    return Table(table, largest, totals, rows / rate[:, 0] if with_means else None)


def table_of_logs(logs: np.ndarray, x: float, dtype: np.dtype, means: np.ndarray) -> Table:
    """Return the table of given log w and w, both of shape (n_columns, n_components)."""
    largest = logs.max(axis=1)
    table = _empty(logs.shape, dtype)
    filled = np.full(table.shape, -np.inf)
    np.subtract(logs, largest[:, None], out=filled[:, : logs.shape[1]])
    tables().exponentiate(table, filled, x)
    return Table(table, largest, means.sum(axis=0), means)


def _empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array for a table, whose rows are padded."""
    n_columns, k = shape
    return np.empty((n_columns, -(-k // _LANES) * _LANES), dtype)


@dataclass(frozen=True)
class CountsVisit(Visit):
    """A visit to rows of counts; ``expected`` is the :class:`Table` of the components.

    Parameters
    ----------
    log_weights, mean_weights : ndarray of shape (n_components,)
        E log θ and E θ, or log θ and θ of a draw.
    counts_components : bool
        Whether local steps add up the counts of each component in each column.
    sweeps : bool
        Whether activations are updated before the statistics are taken.
    draw : dict or None
        The draws of the two blocks, by their first keys.
    known : dict or None
        The table, which the next visit can reuse.
    """

    log_weights: np.ndarray = field(kw_only=True)
    mean_weights: np.ndarray = field(kw_only=True)
    counts_components: bool = field(kw_only=True)
    sweeps: bool = field(kw_only=True)
    draw: dict[str, Any] | None = field(kw_only=True, default=None)
    known: Any = field(kw_only=True, default=None)  # type: ignore[misc]

    def start(
        self,
        units: DenseCounts | SparseCounts,
        local: Activations | None,
        exploring: bool,
        noise: float,
        rng: np.random.Generator,
    ) -> Start:
        model = self.model
        if local is not None and not self.sweeps:
            return Start(local, 0)
        anew = local is None or exploring
        n_sweeps = model.n_sweeps(not anew, exploring)
        if noise == 0 and (n_sweeps > 0 or not anew):
            return Start(None if anew else local, n_sweeps)
        # The start is (1 − r) shape + r (b + x_n s), where r is the share of noise, x_n the sum of
        # the row, and s random shares of the components.
        each = units.lengths[:, None] / model.n_components
        if local is None:
            rate = np.asarray(self._rates(self._exposures(units)))
            local = Activations(model.activation_prior + each, rate)
        random = rng.standard_exponential((units.n_units, model.n_components))
        shape = (1.0 - noise) * local.shape + noise * (model.activation_prior + each * random)
        return Start(Activations(shape, local.rate), n_sweeps)

    def _exposures(self, units: DenseCounts | SparseCounts) -> np.ndarray:
        """Σ_v E w_kv over the observed cells, of shape (1 or n_rows, n_components)."""
        if units.patterns is None or not units.patterns.any():
            return self.expected.totals[None]
        observed = ~np.isnan(units.X)
        return observed.astype(np.float64) @ self.expected.means

    def _tempered_prior(self) -> Natural:
        """The shape and the rate of activations without any data."""
        model, nothing = self.model, np.zeros(1)
        prior = dict.fromkeys(("shape", "rate"), np.array([model.activation_prior]))
        return model.activations.fold_in({"shape": nothing, "rate": nothing}, prior, self.t)

    def _rates(self, exposures: np.ndarray) -> np.ndarray:
        rate = self._tempered_prior()["rate"]
        return rate + float(self.t.statistics) * self.mean_weights * exposures

    def _factors(self, rate: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """exp{x (E log θ − log rate) − top} and top, per row of the rates; None means rate 1."""
        logs = self.log_weights[None] if rate is None else self.log_weights - np.log(rate)
        logs = float(self.t.local) * logs
        top = logs.max(axis=1)
        return np.exp(logs - top[:, None]), top

    def step(
        self,
        units: DenseCounts | SparseCounts,
        noise: np.ndarray | None = None,
        local: Any = None,
    ) -> LocalStep:
        """Make the local step of some rows.

        The counts of components lack a factor, and the energy a term. Both depend on a column and
        a component alone, so that :meth:`finish` adds them once, to the sum over all rows.
        """
        model, start, n_sweeps = self.model, local.activations, local.n_sweeps
        k, n, given = model.n_components, units.n_units, start is not None
        rate = self._rates(self._exposures(units))
        if given and n_sweeps == 0 and start.shape.flags.writeable:
            shape = start.shape
        else:
            shape = np.array(start.shape) if given else np.empty((n, k))
        first, factor = self._factors(start.rate if given else None), self._factors(rate)
        if n_sweeps == 0:
            rate, factor = start.rate, first
        sums = _Sums.of(self, units, noise)
        run: Any = self._sparse_step if isinstance(units, SparseCounts) else self._dense_step
        run(units, n_sweeps, given, first, factor, rate, shape, sums)
        return self._as_local_step(units, Activations(shape, rate), sums)

    def _sparse_step(
        self,
        units: SparseCounts,
        n_sweeps: int,
        given: bool,
        first: tuple[np.ndarray, np.ndarray],
        factor: tuple[np.ndarray, np.ndarray],
        rate: np.ndarray,
        shape: np.ndarray,
        sums: _Sums,
    ) -> None:
        model = self.model
        kernels().sparse_step(
            *units.arrays(model.dtype),
            self.expected.table,
            self.expected.largest,
            first[0][0],
            factor[0][0],
            rate[0],
            np.log(rate[0]),
            float(first[1][0]),
            float(factor[1][0]),
            float(self.t.local),
            float(self._tempered_prior()["shape"][0]),
            float(model.activation_prior),
            float(self.t.statistics),
            given,
            n_sweeps,
            model.sweep_tol,
            sums.weights,
            sums.noise,
            shape,
            sums.out,
            sums.clean_out,
            sums.clean,
            sums.noisy,
            sums.scalars,
        )

    def _dense_step(
        self,
        units: DenseCounts,
        n_sweeps: int,
        given: bool,
        first: tuple[np.ndarray, np.ndarray],
        factor: tuple[np.ndarray, np.ndarray],
        rate: np.ndarray,
        shape: np.ndarray,
        sums: _Sums,
    ) -> None:
        """Do with matrix products, a block of rows at a time, what a kernel does for sparse rows.

        The sweeps over a block end when all of its rows have converged.
        """
        model, k, n = self.model, self.model.n_components, units.n_units
        x, dtype = float(self.t.local), model.dtype
        table = self.expected.table[:, :k]
        largest = x * self.expected.largest
        base, step = self._tempered_prior()["shape"], float(self.t.statistics)
        length = max(_CELLS // max(model.n_columns, 1), 8)
        log_rate = np.log(rate)
        for begin in range(0, n, length):
            rows = slice(begin, min(begin + length, n))

            def of_rows(values: np.ndarray, rows: slice = rows) -> np.ndarray:
                return values if len(values) == 1 else values[rows]

            counts = np.ascontiguousarray(units.X[rows], dtype=dtype)
            current, m = shape[rows], len(counts)
            e, predicted = np.empty((m, k), dtype), np.empty(counts.shape, dtype)
            weights, top = of_rows(first[0]), of_rows(first[1])
            if given:
                kernels().activation_weights(e, current, weights, x)
            else:
                current[:], e[:] = 1.0, weights
            # Rows that have converged are left out of later sweeps, whatever other rows do.
            active, of_active, weights_of_active = slice(None), counts, e
            for _ in range(n_sweeps):
                quotients = predicted[: len(of_active)]
                np.matmul(weights_of_active, table.T, out=quotients)
                kernels().ratios(quotients, of_active)
                new = weights_of_active * (quotients @ table)
                new = base + step * new.astype(np.float64, copy=False)
                going_on = np.abs(new - current[active]).sum(axis=1) >= model.sweep_tol * k
                current[active] = new
                if not going_on.all():
                    active = np.arange(m)[active][going_on]
                    of_active, new = of_active[going_on], new[going_on]
                if len(new) == 0:
                    break
                factors = factor[0] if len(factor[0]) == 1 else factor[0][rows][active]
                weights_of_active = np.empty((len(new), k), dtype)
                kernels().activation_weights(weights_of_active, new, factors, x)
            if n_sweeps > 0:
                weights, top = of_rows(factor[0]), of_rows(factor[1])
                kernels().activation_weights(e, current, weights, x)
            np.matmul(e, table.T, out=predicted)
            log_norms = np.empty(m)
            kernels().log_ratios(predicted, counts, largest, log_norms)
            log_norms += top * units.lengths[rows]
            assigned = np.multiply(e, predicted @ table, dtype=np.float64)
            own = sums.weights[rows] if len(sums.weights) else np.ones(m)
            sums.scalars[0] += own @ log_norms
            noise = sums.noise[rows] if len(sums.noise) else sums.noise
            kernels().activation_sums(
                current, of_rows(rate), of_rows(log_rate), assigned,
                float(model.activation_prior), own, noise, sums.clean, sums.noisy, sums.scalars,
            )  # fmt: skip
            for out, factors in (
                (sums.out, (own * noise) if len(noise) else own),
                (sums.clean_out, own),
            ):
                if len(out):
                    weighted = (e * factors[:, None]).astype(dtype, copy=False)
                    out[:, :k] += predicted.T @ weighted

    def _as_local_step(
        self, units: DenseCounts | SparseCounts, activations: Activations, sums: _Sums
    ) -> LocalStep:
        """Return the sums of some rows as a local step, with the statistics that are asked for."""
        model, k, noisy = self.model, self.model.n_components, len(sums.noise) > 0
        factor = float(self.t.statistics)
        exposure, noisy_exposure = self._summed_activations(units, activations, sums)
        statistics = {ASSIGNED: factor * sums.clean[0], EXPOSURE: factor * exposure}
        with_noise = {ASSIGNED: factor * sums.noisy[0], EXPOSURE: factor * noisy_exposure}
        if self.counts_components:
            statistics[COUNTS] = sums.clean_out if noisy else sums.out
            with_noise[COUNTS] = sums.out
        deviation = with_noise if noisy and self.separate_noise else None
        if noisy and not self.separate_noise:
            if self.counts_components:
                with_noise[_NOISELESS] = statistics[COUNTS]
            statistics = with_noise
        total = units.total_weight
        if "activation_prior" in model.learns:
            statistics[EVIDENCE] = np.array([sums.scalars[4], total * k])
        b = model.activation_prior
        log_norm, energy, log_prior, entropy, _ = map(float, sums.scalars)
        # `finish` adds the part of the counts of components to the energy of the division of the
        # counts. Its entropy is the log of its normaliser minus x times its energy.
        energy += float(sums.clean[0] @ self.log_weights)
        means = self.expected.totals[None] if len(exposure) == 1 else self.expected.means
        of_rates = float((exposure * means).sum(axis=0) @ self.mean_weights)
        factorials = units.log_factorials
        known = float(factorials.sum() if units.weights is None else units.weights @ factorials)
        return LocalStep(
            statistics,
            energy=energy - of_rates - known,
            entropy=entropy + log_norm - float(self.t.local) * energy,
            log_prior=log_prior + total * k * (b * np.log(b) - float(gammaln(b))),
            deviation=deviation,
            local=activations,
        )

    def _summed_activations(
        self, units: DenseCounts | SparseCounts, activations: Activations, sums: _Sums
    ) -> tuple[np.ndarray, np.ndarray]:
        """Σ w E h over the rows in which a cell is observed, without noise and with noise."""
        if units.patterns is None or not units.patterns.any():
            return sums.clean[1][None], sums.noisy[1][None]
        observed = (~np.isnan(units.X)).astype(np.float64).T
        means = activations.shape / activations.rate
        if units.weights is not None:
            means *= units.weights[:, None]
        exposure = observed @ means
        return exposure, observed @ (means * sums.noise[:, None]) if len(sums.noise) else exposure

    def finish(self, step: LocalStep) -> LocalStep:
        """Multiply the counts of components by the table, and add Σ S E log w to the energy."""
        if self.draw is not None:
            self._take_rates_from_draw(step.statistics)
        if not self.counts_components:
            return step
        x, factor = float(self.t.local), float(self.t.statistics)
        energy, unused = np.zeros(1), np.zeros(1)

        def complete(counts: np.ndarray, energy: np.ndarray) -> None:
            tables().expected_statistics(
                self.expected.table, self.expected.largest, x, factor, 1, counts, energy
            )

        noiseless = step.statistics.pop(_NOISELESS, None)
        complete(step.statistics[COUNTS] if noiseless is None else noiseless, energy)
        if noiseless is not None:
            complete(step.statistics[COUNTS], unused)
        if step.deviation is not None:
            complete(step.deviation[COUNTS], unused)
        step.energy += float(energy[0])
        step.entropy -= x * float(energy[0])
        return step

    def _take_rates_from_draw(self, statistics: Natural) -> None:
        """Add the rates that the blocks get where the other block has the values of the draw."""
        exposure = statistics[EXPOSURE]
        means = self.expected.means
        statistics[RATE_OF_WEIGHTS] = (exposure * means).sum(axis=0)
        if len(exposure) == 1:
            statistics[RATE_OF_WEIGHTS] = exposure[0] * self.expected.totals
        statistics[RATE_OF_COMPONENTS] = (exposure * self.mean_weights).T

    def exact_gradient_statistics(self, q: Natural, prior: Natural, stats: Natural) -> Natural:
        """Return V S for the exact gradient of structured stochastic VI, kept in bounds."""
        assert self.draw is not None
        result: Natural = {}
        for factor in self.model.factors():
            shape = factor.names["shape"]
            if shape in stats:
                family: Any = factor.family
                found = family.exact_gradient_statistics(
                    self.draw[shape], factor.pick(q), factor.pick(prior), factor.pick(stats)
                )
                result |= factor.rename(found)
        return result


class _Sums(NamedTuple):
    """The arrays into which the local step of some rows adds its results.

    Attributes
    ----------
    weights, noise : ndarray of shape (n_rows,) or (0,)
        Sample weights and random weights; empty arrays stand for ones.
    out, clean_out : ndarray of shape (n_columns, width) or (0, 0)
        Counts of components with noise, and without noise if there is any.
    clean, noisy : ndarray of shape (2, n_components)
        Counts and E h of each component, without and with noise.
    scalars : ndarray of shape (5,)
        The log normaliser of the division of the counts, and the sums of ``_activation_sums``.
    """

    weights: np.ndarray
    noise: np.ndarray
    out: np.ndarray
    clean_out: np.ndarray
    clean: np.ndarray
    noisy: np.ndarray
    scalars: np.ndarray

    @classmethod
    def of(cls, visit: CountsVisit, units: Any, noise: np.ndarray | None) -> _Sums:
        """Return arrays of zeros for the statistics that a visit needs."""
        size, k = visit.expected.table.shape, visit.model.n_components
        counts = visit.counts_components
        return cls(
            _NOTHING if units.weights is None else units.weights,
            _NOTHING if noise is None else np.asarray(noise, dtype=np.float64),
            np.zeros(size) if counts else _NO_MATRIX,
            np.zeros(size) if counts and noise is not None else _NO_MATRIX,
            np.zeros((2, k)),
            np.zeros((2, k)),
            np.zeros(5),
        )
