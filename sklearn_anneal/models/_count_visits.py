"""The visits of gamma-process factorisation, to rows of counts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import psi

from ..data.units import DenseCounts, SparseCounts
from ..families import Natural
from ._base import LocalStep, Visit, compiled
from ._count_bounds import exact_bound, has_large_rows

# Keys of the raw statistics, all multiplied by the factor of the statistics.
COUNTS = "counts"  # (n_columns, width): the counts of each component in each column
ASSIGNED = "assigned"  # (n_components,): the counts of each component
EXPOSURE = "exposure"  # (1 or n_columns, n_components): Σ w E h over the rows with the cell
EVIDENCE = "evidence"  # (2,): Σ w (E log h − E h), and the number of activations
SUMMED = "summed"  # (n_components,): Σ w E h over all rows
# The two blocks take these arrays from a draw.
RATE_OF_WEIGHTS, RATE_OF_COMPONENTS = "rate_of_weights", "rate_of_components"
_NOISELESS = "counts_without_noise"

_NOTHING = np.empty(0)
_NO_MATRIX = np.empty((0, 0))
# Tables are padded to a multiple of this many components, which kernels process at a time.
_LANES = 8
# Dense rows are processed in blocks of about this many cells, which stay in the caches.
_CELLS = 1 << 17
# Above so many products of rows, columns and components, steps that do not decide the result
# compute in single precision. Rows count by their weights, so that copies of rows are the same.
LARGE = 1 << 16
# Rows fill the lanes of vector instructions if the activations of one take no more bytes than this.
# For more components it takes less time to leave out cells without counts.
_MOST_TOGETHER = 96
# Logarithms are taken of numbers that are at least this large.
_SMALLEST = {np.dtype(kind): np.finfo(kind).tiny for kind in (np.float32, np.float64)}


kernels = partial(compiled, "gamma_process_nmf")
dense = partial(compiled, "dense_counts")
tables = partial(compiled, "counts")


@dataclass(frozen=True)
class Activations:
    """The gamma distributions of the activations of some rows.

    Attributes
    ----------
    shape : ndarray of shape (n_rows, n_components)
    rate : ndarray of shape (1, n_components) or (n_rows, n_components)
        One row serves all rows in which no cell is missing.
    powers : ndarray of shape (n_rows, n_components) or None, default=None
        exp{x ψ(shape)}, which the next visit needs if its x is the same; None if it was not
        computed.
    x : float, default=1.0
        The power x.
    evidence : float or None, default=None
        Σ w (E log h − E h), from which the prior is learned; None before the local step.
    summed : ndarray of shape (n_components,) or None, default=None
        Σ w E h, if no cell is missing and it was computed.
    """

    shape: np.ndarray
    rate: np.ndarray
    powers: np.ndarray | None = None
    x: float = 1.0
    evidence: float | None = None
    summed: np.ndarray | None = None

    @property
    def given(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, float]:
        """The distributions without the sums over rows."""
        return self.shape, self.rate, self.powers, self.x

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
    momentum : bool, default=False
        Whether sweeps have momentum, with which 16 of them come as close to the limit as 40 without
        it. Sweeps over counts with noise never have.
    """

    activations: Activations | None
    n_sweeps: int
    momentum: bool = False

    @property
    def rate_of_start(self) -> np.ndarray | None:
        return None if self.activations is None else self.activations.rate


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


def plain_table(q: Natural, dtype: np.dtype) -> Table:
    """Return the table at x = 1, by plain kernels."""
    shape, rate = q["components_shape"].T, q["components_rate"].T
    return table_of_logs(psi(shape) - np.log(rate), 1.0, dtype, shape / rate, plain=True)


def expected_table(
    shape: np.ndarray, rate: np.ndarray, x: float, dtype: np.dtype, with_means: bool
) -> Table:
    """Return the table of components of natural parameters (n_components, 1 or n_columns)."""
    rows = np.ascontiguousarray(shape.T)
    if rate.shape[1] > 1:
        means = rows / rate.T
        return table_of_logs(psi(rows) - np.log(rate.T), x, dtype, means)
    totals = rows.sum(axis=0) / rate[:, 0]
    table, largest = empty_table(rows.shape, dtype), np.empty(len(rows))
    columns = np.arange(len(rows), dtype=np.int32)
    logs = np.log(rate[:, 0])
    tables().expected_table.part(
        (table, rows, columns, 1.0, np.empty(0), columns, logs, x, largest), 0, len(rows)
    )
    return Table(table, largest, totals, rows / rate[:, 0] if with_means else None)


def table_of_logs(
    logs: np.ndarray, x: float, dtype: np.dtype, means: np.ndarray, plain: bool = False
) -> Table:
    """Return the table of given log w and w, both of shape (n_columns, n_components)."""
    largest = logs.max(axis=1)
    table = empty_table(logs.shape, dtype)
    filled = np.full(table.shape, -np.inf)
    np.subtract(logs, largest[:, None], out=filled[:, : logs.shape[1]])
    tables(plain).exponentiate(table, filled, x)
    return Table(table, largest, means.sum(axis=0), means)


def empty_table(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array for a table, whose rows are padded."""
    n_columns, k = shape
    return np.empty((n_columns, -(-k // _LANES) * _LANES), dtype)


@dataclass(frozen=True)
class CountsVisit(Visit):
    """A visit to rows of counts; ``expected`` is the :class:`Table` of the components.

    Parameters
    ----------
    plain : bool
        Whether plain kernels work on the rows (:meth:`activations`).
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
    q : dict or None
        The natural parameters, which the bound of large counts needs; None with a draw.
    bound : bool, default=True
        Whether local steps compute the terms of the lower bound.
    """

    log_weights: np.ndarray = field(kw_only=True)
    mean_weights: np.ndarray = field(kw_only=True)
    counts_components: bool = field(kw_only=True)
    sweeps: bool = field(kw_only=True)
    draw: dict[str, Any] | None = field(kw_only=True, default=None)
    q: Natural | None = field(kw_only=True, default=None)
    bound: bool = field(kw_only=True, default=True)
    plain: bool = field(kw_only=True, default=False)

    def without_bound(self) -> CountsVisit:
        if self.sweeps or not self.counts_components:
            return self
        found = object.__new__(type(self))
        # Attributes that are computed once are the same without the bound.
        vars(found).update(vars(self), bound=False)
        return found

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
        n_sweeps = model.n_sweeps(not anew, exploring, local is not None and noise > 0)
        # A number of sweeps that the user gives is one of plain sweeps.
        momentum = exploring and model.max_sweeps is None
        if noise == 0 and (n_sweeps > 0 or not anew):
            return Start(None if anew else self._at_rates(units, local), n_sweeps, momentum)
        # The start is (1 − r) shape + r (b + x_n s), where r is the share of noise, x_n the sum of
        # the row, and s random shares of the components.
        each = units.lengths[:, None] / model.n_components
        if local is None:
            rate = np.asarray(self.rates_of(units))
            local = Activations(model.activation_prior + each, rate)
        random = rng.standard_exponential((units.n_units, model.n_components))
        shape = (1.0 - noise) * local.shape + noise * (model.activation_prior + each * random)
        return Start(Activations(shape, local.rate), n_sweeps, momentum)

    def forgets(self, exploring: bool, noise: float) -> bool:
        return self.sweeps and exploring and noise == 0

    @cached_property
    def _tempered_prior(self) -> Natural:
        """The shape and the rate of activations without any data."""
        model, nothing = self.model, np.zeros(1)
        prior = dict.fromkeys(("shape", "rate"), np.array([model.activation_prior]))
        if self.t.prior == 1.0:
            return prior
        return model.activations.fold_in({"shape": nothing, "rate": nothing}, prior, self.t)

    @cached_property
    def _rates_of_full_rows(self) -> np.ndarray:
        """The rates of the activations of rows without missing cells, (1, n_components)."""
        return self._rates(self.expected.totals[None])

    def rates_of(self, units: DenseCounts | SparseCounts) -> np.ndarray:
        """Return the rates of the activations of rows, of shape (1 or n_rows, n_components)."""
        if units.patterns is None or not units.patterns.any():
            return self._rates_of_full_rows
        observed = ~np.isnan(units.X)
        return self._rates(observed.astype(np.float64) @ self.expected.means)

    def rates_given(self, units: DenseCounts | SparseCounts, means: np.ndarray) -> np.ndarray:
        """Return the rates of activations whose means are known."""
        return self.rates_of(units)

    def _at_rates(self, units: DenseCounts | SparseCounts, local: Any) -> Activations:
        """Return activations of the last visit at the rates that weights and components imply now.

        They are the best ones given how that visit has divided the counts, and follow where the
        scales of weights and components have changed.
        """
        if self.q is None or not self.model.finds_scales:
            return local
        return Activations(local.shape, self.rates_of(units), local.powers, local.x)

    def _rates(self, exposures: np.ndarray) -> np.ndarray:
        rate = self._tempered_prior["rate"]
        return rate + float(self.t.statistics) * self.mean_weights * exposures

    def _factors(self, rate: np.ndarray | None) -> np.ndarray:
        """exp{x (E log θ − log rate) − top}, per row of the rates; None means rate 1.

        ``top`` makes the largest factor of a row 1, and does not change how counts are divided.
        """
        logs = self.log_weights[None] if rate is None else self.log_weights - np.log(rate)
        logs = float(self.t.local) * logs
        return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))

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
        start: Any = local.activations
        n_sweeps, x = local.n_sweeps, float(self.t.local)
        sums, known = _Sums.of(self, units, noise), self._knows_powers(start)
        if not self.bound and start.evidence is not None:
            found = start if known else replace(start, powers=self._powers(start.shape), x=x)
            if isinstance(units, SparseCounts):
                self._count_sparse(units, found, sums)
            else:
                self._count_dense(units, found, sums)
            return self._as_counts(units, found, sums)
        n, k = units.n_units, self.model.n_components
        rate = start.rate if n_sweeps == 0 else self.rates_of(units)
        shape = np.empty((n, k)) if start is None else np.array(start.shape)
        powers = np.array(start.powers) if known else np.empty((n, k), self.model.dtype)
        found = Activations(shape, rate, powers, x)
        if isinstance(units, SparseCounts):
            self._sparse_step(units, local, known, found, sums)
            return self._as_local_step(units, found, sums)
        # The last sweep divides the counts as the statistics and the bound have them.
        together = self._together(self.model.dtype.itemsize)
        last: Any = self._last_sweep_together if together else self._last_sweep
        for block in self._swept_blocks(units, local, known, found):
            if len(sums.dividing):
                sums.dividing[block.rows] = block.e
            last(block, sums)
        return self._as_local_step(units, found, sums)

    def _knows_powers(self, activations: Activations | None) -> bool:
        if activations is None or activations.powers is None:
            return False
        return activations.x == float(self.t.local)

    def _powers(self, shape: np.ndarray) -> np.ndarray:
        """exp{x ψ(shape)}."""
        powers = np.empty(shape.shape, self.model.dtype)
        kernels().activation_powers(powers, shape, float(self.t.local))
        return powers

    def _sparse_step(
        self, units: SparseCounts, start: Start, known: bool, found: Activations, sums: _Sums
    ) -> None:
        model, rate, given = self.model, found.rate, start.activations is not None
        kernels().sparse_step(
            *units.arrays(model.dtype),
            self.expected.table,
            self.expected.largest,
            self._factors(start.rate_of_start)[0],
            self._factors(rate)[0],
            np.log(rate[0]),
            float(self.t.local),
            float(self._tempered_prior["shape"][0]),
            float(self.t.statistics),
            given,
            known,
            start.n_sweeps,
            start.momentum,
            model.sweep_tol,
            sums.weights,
            sums.noise,
            found.shape,
            found.powers,
            sums.dividing,
            sums.out,
            sums.clean_out,
            sums.of_components,
            sums.divisions,
        )

    def _count_sparse(self, units: SparseCounts, found: Activations, sums: _Sums) -> None:
        dtype, k, table = self.model.dtype, self.model.n_components, self.expected.table
        e = np.zeros((units.n_units, table.shape[1]), dtype)
        factor = self._factors(found.rate)
        np.multiply(np.asarray(found.powers), factor, out=e[:, :k], casting="same_kind")
        own, noisy = sums.of_rows(slice(None))
        for out, weights in ((sums.out, noisy), (sums.clean_out, own)):
            if len(out):
                w = np.empty(0, dtype) if weights is None else weights.astype(dtype)
                kernels().sparse_counts(*units.by_column(len(table), dtype), table, e, w, out)

    def _swept_blocks(
        self, units: DenseCounts, start: Start, known: bool, found: Activations
    ) -> Iterator[_Block]:
        """Yield blocks of dense rows after all sweeps but the last one."""
        model, k, n_sweeps = self.model, self.model.n_components, start.n_sweeps
        given, rate, powers = start.activations is not None, found.rate, np.asarray(found.powers)
        first = factor = self._factors(rate)
        if start.rate_of_start is not rate:
            first = self._factors(start.rate_of_start)
        x, dtype = float(self.t.local), model.dtype
        largest, log_rate = x * self.expected.largest, np.log(rate)
        buffer = None
        for rows in self._blocks(units):
            counts = np.ascontiguousarray(units.X[rows], dtype=dtype)
            current, m = found.shape[rows], len(counts)
            if buffer is None and not self._together(dtype.itemsize):
                buffer = np.empty_like(counts)
            e, weights = np.empty((m, k), dtype), _of_rows(first, rows)
            if not given:
                current[:], e[:] = 1.0, weights
            else:
                if not known:
                    kernels().activation_powers(powers[rows], current, x)
                np.multiply(powers[rows], weights, out=e, casting="same_kind")
            if n_sweeps > 1:
                weights = _of_rows(factor, rows)
                how = start, units.total_weight * model.n_columns * k > LARGE
                self._sweep(counts, e, weights, *how, current, powers[rows])
                np.multiply(powers[rows], weights, out=e, casting="same_kind")
            of_rates, updates = (largest, _of_rows(log_rate, rows)), n_sweeps > 0
            yield _Block(rows, counts, e, *of_rates, updates, current, powers[rows], buffer)

    def _together(self, itemsize: int) -> bool:
        """Whether rows fill the lanes of vector instructions, given the bytes of a number."""
        model = self.model
        return bool(model.is_dense and model.n_components * itemsize <= _MOST_TOGETHER)

    def _last_sweep_together(self, block: _Block, sums: _Sums) -> None:
        """Make the last sweep of a block in one kernel."""
        base, step = float(self._tempered_prior["shape"][0]), float(self.t.statistics)
        dense().dense_step_together(
            block.counts,
            self.expected.table,
            block.e,
            block.powers,
            block.largest,
            block.log_rate,
            float(self.t.local),
            base,
            step,
            block.updates,
            sums.weights[block.rows] if len(sums.weights) else _NOTHING,
            sums.noise[block.rows] if len(sums.noise) else _NOTHING,
            block.shape,
            sums.of_components,
            sums.divisions,
        )
        for out, weights in sums.of_counts(block.rows):
            dense().dense_counts_together(block.counts, self.expected.table, block.e, weights, out)

    def _last_sweep(self, block: _Block, sums: _Sums) -> None:
        """Make the last sweep of a block by products of matrices."""
        dtype, table = self.model.dtype, self.expected.table[:, : self.model.n_components]
        rows, counts, e = block.rows, block.counts, block.e
        assert block.buffer is not None
        predicted, divisions = block.buffer[: len(counts)], np.empty(len(counts))
        np.matmul(e, table.T, out=predicted)
        kernels().log_ratios(predicted, counts, block.largest, divisions)
        assigned = np.multiply(e, predicted @ table, dtype=np.float64)
        divisions -= np.einsum("nk,nk->n", assigned, np.log(np.maximum(e, _SMALLEST[dtype])))
        if block.updates:
            base, step = self._tempered_prior["shape"], float(self.t.statistics)
            np.add(base, step * assigned, out=block.shape)
            kernels().activation_powers(block.powers, block.shape, float(self.t.local))
        own, noisy = sums.of_rows(rows)
        sums.divisions[0] += divisions.sum() if own is None else own @ divisions
        kernels().activation_sums(
            *(block.shape, block.log_rate, assigned),
            _NOTHING if own is None else own,
            sums.noise[rows] if len(sums.noise) else _NOTHING,
            sums.of_components,
        )
        _add_counts(predicted, e, noisy, sums.out)
        _add_counts(predicted, e, own, sums.clean_out)

    def _sweep(
        self,
        counts: np.ndarray,
        e: np.ndarray,
        factor: np.ndarray,
        start: Start,
        large: bool,
        shape: np.ndarray,
        powers: np.ndarray,
    ) -> None:
        """Make the sweeps over dense rows before the last one.

        Visits that explore make those over large tables in single precision: the last sweep, from
        which statistics and bound come, has the precision of the model.
        """
        x, base = float(self.t.local), float(self._tempered_prior["shape"][0])
        arrays, step = (counts, self.expected.table, e), float(self.t.statistics)
        how = factor, x, base, step, start.n_sweeps - 1, start.momentum, self.model.sweep_tol
        single = large and start.momentum and powers.dtype != np.float32
        together = self._together(4 if single else powers.itemsize)
        update = dense().dense_updates_together if together else kernels().dense_updates
        if single:
            rounded, found = (each.astype(np.float32) for each in arrays), shape.copy()
            update(*rounded, np.empty(powers.shape, np.float32), *how, found)
            # A large count over a sum of factors that underflow is infinite in single precision.
            if np.isfinite(found).all():
                shape[:] = found
                kernels().activation_powers(powers, shape, x)
                return
        update(*arrays, powers, *how, shape)

    def _count_dense(self, units: DenseCounts, found: Activations, sums: _Sums) -> None:
        dtype, table = self.model.dtype, self.expected.table[:, : self.model.n_components]
        factor, powers = self._factors(found.rate), np.asarray(found.powers)
        buffer, together = None, self._together(dtype.itemsize)
        for rows in self._blocks(units):
            counts = np.ascontiguousarray(units.X[rows], dtype=dtype)
            e = (powers[rows] * _of_rows(factor, rows)).astype(dtype, copy=False)
            if together:
                for out, weights in sums.of_counts(rows):
                    dense().dense_counts_together(counts, self.expected.table, e, weights, out)
                continue
            buffer = np.empty_like(counts) if buffer is None else buffer
            quotients = np.matmul(e, table.T, out=buffer[: len(counts)])
            kernels().ratios(quotients, counts)
            own, noisy = sums.of_rows(rows)
            _add_counts(quotients, e, noisy, sums.out)
            _add_counts(quotients, e, own, sums.clean_out)

    def _blocks(self, units: DenseCounts | SparseCounts) -> list[slice]:
        """Blocks of rows that stay in the cache while they are worked on."""
        n = units.n_units
        length = max(_CELLS // max(self.model.n_columns, 1), 8)
        return [slice(begin, min(begin + length, n)) for begin in range(0, n, length)]

    def _as_counts(
        self, units: DenseCounts | SparseCounts, activations: Activations, sums: _Sums
    ) -> LocalStep:
        """Return the counts of components as a local step whose terms of the bound are NaN."""
        summed = activations.summed
        exposures = self._summed_activations(units, activations, sums, summed)
        statistics, deviation = self._statistics(sums, exposures)
        number = units.total_weight * self.model.n_components
        statistics[EVIDENCE] = np.array([activations.evidence, number])
        statistics[SUMMED] = _summed(activations, units.weights) if summed is None else summed
        nothing = np.nan
        return LocalStep(
            statistics, nothing, nothing, nothing, deviation=deviation, local=activations
        )

    def _as_local_step(
        self, units: DenseCounts | SparseCounts, activations: Activations, sums: _Sums
    ) -> LocalStep:
        """Return the sums of some rows as a local step, with the required statistics."""
        model, k = self.model, self.model.n_components
        summed = None
        if len(activations.rate) == 1:
            summed = sums.of_components[5] / activations.rate[0]
        means = _summed(activations, units.weights) if summed is None else summed
        exposures = self._summed_activations(units, activations, sums, summed)
        statistics, deviation = self._statistics(sums, exposures)
        total = units.total_weight
        _, _, assigned_logs, logs, entropies, _, _ = sums.of_components.sum(axis=1).tolist()
        b, mean = model.activation_prior, float(means.sum())
        evidence = logs - mean
        statistics[EVIDENCE], statistics[SUMMED] = np.array([evidence, total * k]), means
        log_prior = (b - 1.0) * logs - b * mean
        # `finish` adds the term of the components to the energy, and to the entropy of the
        # division of the counts.
        energy = float(assigned_logs + sums.of_components[0] @ self.log_weights)
        if len(exposures[0]) == 1:
            of_rates = float((exposures[0][0] * self.expected.totals) @ self.mean_weights)
        else:
            of_rates = float((exposures[0] * self.expected.means).sum(axis=0) @ self.mean_weights)
        factorials = units.log_factorials
        known = float(factorials.sum() if units.weights is None else units.weights @ factorials)
        large = len(sums.dividing) > 0
        exact = exact_bound(self, units, activations, sums.dividing) if large else None
        return LocalStep(
            statistics,
            energy=energy - of_rates - known,
            entropy=float(entropies + sums.divisions[0]),
            log_prior=log_prior + total * k * (b * math.log(b) - math.lgamma(b)),
            deviation=deviation,
            local=Activations(*activations.given, evidence, summed),
            exact_bound=exact,
        )

    def _statistics(
        self, sums: _Sums, exposures: tuple[np.ndarray, np.ndarray]
    ) -> tuple[Natural, Natural | None]:
        """Return the statistics, and their deviation by random weights if it is kept apart."""
        noisy, factor = len(sums.noise) > 0, float(self.t.statistics)
        exposure, noisy_exposure = exposures
        statistics: Natural = {
            ASSIGNED: factor * sums.of_components[0],
            EXPOSURE: factor * exposure,
        }
        if self.counts_components:
            statistics[COUNTS] = sums.clean_out if noisy else sums.out
        if not noisy:
            return statistics, None
        with_noise = {ASSIGNED: factor * sums.of_components[1], EXPOSURE: factor * noisy_exposure}
        if self.counts_components:
            with_noise[COUNTS] = sums.out
        if self.separate_noise:
            return statistics, with_noise
        if self.counts_components:
            with_noise[_NOISELESS] = statistics[COUNTS]
        return with_noise, None

    def _summed_activations(
        self,
        units: DenseCounts | SparseCounts,
        activations: Activations,
        sums: _Sums,
        known: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Σ w E h over the rows in which a cell is observed, without noise and with noise.

        ``known`` has the sum over all rows without noise, if it is known.
        """
        weights, noise = sums.of_rows(slice(None))
        if sums.exposures is not None:
            return sums.exposures[0], sums.exposures[-1]
        if units.patterns is None or not units.patterns.any():
            exposure = (_summed(activations, weights) if known is None else known)[None]
            return exposure, _summed(activations, noise)[None] if len(sums.noise) else exposure
        observed = (~np.isnan(units.X)).astype(np.float64).T
        means = activations.shape / activations.rate
        exposure = observed @ (means if weights is None else means * weights[:, None])
        return exposure, exposure if noise is None else observed @ (means * noise[:, None])

    def finish(self, step: LocalStep) -> LocalStep:
        """Multiply the counts of components by the table, and add Σ S E log w to the energy."""
        if self.draw is not None:
            self._take_rates_from_draw(step.statistics)
        if not self.counts_components:
            return step
        x, factor = float(self.t.local), float(self.t.statistics)
        energy, unused = np.zeros(1), np.zeros(1)

        if not self.bound:
            for statistics in (step.statistics, step.deviation or {}):
                for key in {COUNTS, _NOISELESS} & statistics.keys():
                    statistics[key] *= self.expected.table
                    if factor != 1.0:
                        statistics[key] *= factor
            step.statistics.pop(_NOISELESS, None)
            return step

        def complete(counts: np.ndarray, energy: np.ndarray) -> None:
            table, largest = self.expected.table, self.expected.largest
            tables().expected_statistics(
                table, largest, x, factor, 1, _NO_MATRIX, counts, len(table), energy
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


class _Block(NamedTuple):
    """Some dense rows before their last sweep, and the arrays that receive its result.

    Attributes
    ----------
    rows : slice
    counts : ndarray of shape (n_rows, n_columns)
    e : ndarray of shape (n_rows, n_components)
        The factors that divide the counts.
    largest : ndarray of shape (n_columns,)
        x m_v.
    log_rate : ndarray of shape (1 or n_rows, n_components)
    updates : bool
        Whether the sweep changes the activations.
    shape, powers : ndarray of shape (n_rows, n_components)
        The activations, and their exp{x ψ(shape)}.
    buffer : ndarray or None
        Memory for as many cells, which products of matrices need.
    """

    rows: slice
    counts: np.ndarray
    e: np.ndarray
    largest: np.ndarray
    log_rate: np.ndarray
    updates: bool
    shape: np.ndarray
    powers: np.ndarray
    buffer: np.ndarray | None


class _Sums(NamedTuple):
    """The arrays into which the local step of some rows adds its results.

    Attributes
    ----------
    weights, noise : ndarray of shape (n_rows,) or (0,)
        Sample weights and random weights; empty arrays stand for ones.
    out, clean_out : ndarray of shape (n_columns, width) or (0, 0)
        Counts of components with noise, and without noise if there is any.
    of_components : ndarray of shape (7, n_components)
        The sums of the kernels' ``_activation_sums``.
    divisions : ndarray of shape (1,)
        The entropy of the division of the counts, without the term of the components.
    dividing : ndarray of shape (n_rows, n_components) or (0, 0)
        The factors that divided the counts, if some rows are so large that their bound needs them.
    exposures : ndarray of shape (1 or 2, n_columns, n_components) or None, default=None
        Σ w R E h where cells have noise, without random weights and with them.
    """

    weights: np.ndarray
    noise: np.ndarray
    out: np.ndarray
    clean_out: np.ndarray
    of_components: np.ndarray
    divisions: np.ndarray
    dividing: np.ndarray
    exposures: np.ndarray | None = None

    @classmethod
    def of(cls, visit: CountsVisit, units: Any, noise: np.ndarray | None) -> _Sums:
        """Return arrays of zeros for the statistics that a visit needs."""
        size, k = visit.expected.table.shape, visit.model.n_components
        counts, noisy = visit.counts_components, noise is not None
        return cls(
            _NOTHING if units.weights is None else units.weights,
            _NOTHING if noise is None else np.asarray(noise, dtype=np.float64),
            np.zeros(size) if counts else _NO_MATRIX,
            np.zeros(size) if counts and noisy else _NO_MATRIX,
            np.zeros((7, k)),
            np.zeros(1),
            np.empty((units.n_units, k) if has_large_rows(units) else (0, 0), visit.model.dtype),
        )

    def of_counts(self, rows: slice) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the arrays for counts of components, and the weights of some rows in each."""
        weights, noisy = self.of_rows(rows)
        each = (self.out, noisy), (self.clean_out, weights)
        return [(out, _NOTHING if w is None else w) for out, w in each if len(out)]

    def of_rows(self, rows: slice) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the weights of some rows without and with noise; None if all of them are 1."""
        own = self.weights[rows] if len(self.weights) else None
        if len(self.noise) == 0:
            return own, own
        noise: np.ndarray = self.noise[rows]
        return own, noise if own is None else own * noise


def _of_rows(values: np.ndarray, rows: slice) -> np.ndarray:
    """Return the values of some rows, of an array with one row for each or one for all."""
    return values if len(values) == 1 else values[rows]


def _summed(activations: Activations, weights: np.ndarray | None) -> np.ndarray:
    """Return Σ_n w_n E h_nk over all rows."""
    shape, rate = activations.shape, activations.rate
    if len(rate) > 1:
        shape, rate = shape / rate, np.ones(1)
    return np.asarray(shape.sum(axis=0) if weights is None else weights @ shape) / rate[0]


def _add_counts(
    quotients: np.ndarray, e: np.ndarray, weights: np.ndarray | None, out: np.ndarray
) -> None:
    """Add Σ_n w_n (x_nv / n_v) e_nk to ``out``, unless that has no rows."""
    if len(out):
        weighted = e if weights is None else (e * weights[:, None]).astype(e.dtype, copy=False)
        out[:, : e.shape[1]] += quotients.T @ weighted
