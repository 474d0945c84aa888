"""Probabilistic matrix factorisation: the model and the estimator."""

from __future__ import annotations

import threading
import warnings
import weakref
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import softmax
from scipy.stats import norm
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.callback import with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from ..base import BaseAnnealed, has_unit_temperatures
from ..families import (
    N_HALVINGS,
    Gaussian,
    Natural,
    Tempering,
    fast_normal,
    get_structure,
    posterior,
)
from ..inference.parallel import SEQUENTIAL, SharedRows, one_thread
from ..inference.units import Ratings
from ._base import Block, ConjugateModel, Factor, LocalStep, compiled
from ._ratings import Pairs, RatingData, halves, read_ids, read_matrix, read_pairs, some_ratings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..annealing import Context

LOG_2PI = float(np.log(2.0 * np.pi))
_NOTHING = np.empty(0)
_SIDES = ("users", "items")
_PACKED = get_structure("packed", ("packed",), "structure")
# The fewest rows whose moments are one task.
_ROWS = 512
# Predictions that are made together.
_PAIRS = 8192
# Variances of the model as multiples of powers of that of the ratings; with the variance of stars
# from 1 to 5 (1.27) they are 0.8, 0.1 and 0.3. Factors are multiplied with each other.
_SHARES = {
    "noise_variance": (1.0, 0.63),
    "factor_variance": (0.5, 0.089),
    "bias_variance": (1.0, 0.237),
}
# Factors of items whose mean square is a smaller share of their prior variance are off.
_OFF = 1e-6
# Key of what ratings and users say about variances that are learned.
_EVIDENCE = "evidence"
# The least share of a variance that one update leaves of it.
_LEAST = 1e-3


kernels = partial(compiled, "matrix_factorization")


@dataclass(frozen=True)
class Summary:
    """Moments of the training ratings.

    Attributes
    ----------
    weight : float
        Σ w of all data, in a stream of those yet to come too: of users, or of ratings where
        these are what data are measured by.
    seen : float
        Σ w of the data that all else is of.
    ratings : float
        Σ w of the ratings.
    n_users : int
    mean, variance : float
        Of the ratings.
    low, high : float
        The smallest and the largest rating.
    """

    weight: float
    seen: float
    ratings: float
    n_users: int
    mean: float
    variance: float
    low: float
    high: float

    @property
    def n_ratings(self) -> float:
        """Weighted number of ratings of all data."""
        return self.ratings * self.weight / self.seen

    def merge(self, other: Summary) -> Summary:
        """The summary of both data sets together."""
        ratings = self.ratings + other.ratings
        share = other.ratings / ratings
        difference = other.mean - self.mean
        variance = (1 - share) * self.variance + share * other.variance
        return Summary(
            self.seen + other.seen,
            self.seen + other.seen,
            ratings,
            self.n_users + other.n_users,
            self.mean + share * difference,
            variance + share * (1 - share) * difference**2,
            min(self.low, other.low),
            max(self.high, other.high),
        )


class Moments(NamedTuple):
    """What one side's rows are to the other's.

    Attributes
    ----------
    mean : ndarray of shape (n_rows, D)
        D = ``n_components``, and one more with biases.
    table : ndarray of shape (n_rows, n_columns)
        Second moments of (v, 1) or, with biases, of (v, 1, c), as kernels read them.
    log_det : ndarray of shape (n_rows,)
        log |P|.
    squares : ndarray of shape (n_rows, 2)
        E‖v‖² and E[c²].
    """

    mean: np.ndarray
    table: np.ndarray
    log_det: np.ndarray
    squares: np.ndarray


class Expected(NamedTuple):
    """What a visit reads.

    Attributes
    ----------
    across : Moments
        Of what the visited units meet: of items, where users are visited.
    own : Moments or None
        Of all units, where q has them.
    natural : dict of ndarray
        λ, where the moments are still to be found.
    """

    across: Moments | None
    own: Moments | None
    natural: Natural


class _Sums(NamedTuple):
    """Sums over the ratings of each row, as the kernel adds them up."""

    second: np.ndarray
    linear: np.ndarray
    squares: np.ndarray


def _factors(values: np.ndarray | None, dtype: Any = np.float64) -> np.ndarray:
    """Factors of ratings as kernels read them: nothing where there are none."""
    return np.ascontiguousarray(_NOTHING if values is None else values, dtype=dtype)


def _side(keys: Iterable[str]) -> str:
    """Whose parameters these are."""
    return next(iter(keys)).split("_")[0]


def _absorbed(step: LocalStep) -> LocalStep:
    """With the statistics with noise in the place of those without."""
    for key, value in (step.deviation or {}).items():
        step.statistics[key][...] = value
    step.deviation = None
    return step


class _Memory:
    """The moments of the last parameters of each side, which two visits of a pass ask for."""

    # Restarts in threads share their model: each of them remembers its own.
    def __init__(self) -> None:
        self._local = threading.local()

    def get(self, side: str, precision: np.ndarray, natural_mean: np.ndarray) -> Moments | None:
        if side not in vars(self._local):
            return None
        of_precision, of_mean, found = getattr(self._local, side)
        same = of_precision() is precision and of_mean() is natural_mean
        return found if same else None

    def forget(self, side: str) -> None:
        vars(self._local).pop(side, None)

    def put(
        self, side: str, precision: np.ndarray, natural_mean: np.ndarray, found: Moments
    ) -> None:
        known = weakref.ref(precision), weakref.ref(natural_mean), found
        setattr(self._local, side, known)

    def __reduce__(self) -> Any:
        return _Memory, ()


class MatrixFactorization(ConjugateModel):
    """y_ij ~ N(μ + b_i + c_j + u_iᵀ v_j, σ²), u, v ~ N(0, c I); hyperparameters only.

    Every row of a side has one Gaussian over (u, b), or over u without biases, with natural
    parameters ``users_precision`` (n_users, D (D + 1) / 2), lower triangles, and
    ``users_natural_mean`` (n_users, D); so have items. Users are rows of q in batch mode
    (``held``), or local variables whose Gaussians are found anew at every visit.

    Parameters
    ----------
    n_components : int
    n_items : int
    biases, fit_intercept : bool
    noise_variance, factor_variance, bias_variance : float, "auto" or None
        σ², c and the variance of biases; None: in proportion to the spread of the ratings,
        "auto": learned (empirical Bayes) from there.
    dtype : dtype
        Of tables of moments, float64 or float32.

    References
    ----------
    Lim, Teh (2007), Variational Bayesian approach to movie rating prediction; Salakhutdinov, Mnih
    (2008), Probabilistic matrix factorization; Paisley et al., SVI+, section IV-A.
    """

    weight_unit: ClassVar[str] = "rating"
    kernel_module: ClassVar[str] = "matrix_factorization"
    recommended: ClassVar[dict[str, dict[str, Any]]] = {
        "deterministic": {
            "form": "likelihood",
            "initial_temperature": 10.0,
            "schedule": "geometric",
            "n_passes": 20,
            "jitter": 0.1,
        },
        "stochastic": {
            "initial_noise": 0.1,
            "schedule": "linear",
            "n_passes": 50,
            "start": "init_params",
        },
        "tempering": {"max_temperature": 10.0, "n_temperatures": 100, "damping": 0.05},
        "local_tempering": {"n_temperatures": 100, "n_rounds": 2},
        "svi_plus": {
            "effective_batch_size": 1e-4,
            "noise": "gaussian",
            "schedule": "linear",
            "n_passes": 20,
            "learning_rate": 0.85,
            "margin": 0.2,
        },
        "structured": {"gradient": "approximate"},
        "proximity": {"strength": 1e-6, "lag": 5, "learning_rate": 0.5},
    }

    def __init__(
        self,
        n_components: int,
        n_items: int,
        biases: bool,
        fit_intercept: bool,
        noise_variance: float | str | None,
        factor_variance: float | str | None,
        bias_variance: float | str | None,
        dtype: Any,
    ):
        self.n_components = n_components
        self.n_items = n_items
        self.biases = biases
        self.fit_intercept = fit_intercept
        self._asked = {"noise_variance": noise_variance, "factor_variance": factor_variance}
        if biases:
            self._asked["bias_variance"] = bias_variance
        self.learns = tuple(name for name, value in self._asked.items() if value == "auto")
        self.noise_variance = self.factor_variance = self.bias_variance = 1.0
        self.dtype = np.dtype(dtype)
        self.intercept = 0.0
        self.held = False
        self.side = ""
        self._rooms: tuple[SharedRows, ...] = ()
        self._weights: np.ndarray | None = None
        self._memory = _Memory()

    # Forms of the model

    @property
    def size(self) -> int:
        """D, the number of parameters of a row."""
        return self.n_components + self.biases

    def factors(self) -> tuple[Factor, ...]:
        return tuple(
            Factor(Gaussian("packed"), {key: f"{side}_{key}" for key in Gaussian.keys})
            for side in (_SIDES if self.held else _SIDES[1:])
        )

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(Block(tuple(factor.names.values())) for factor in self.factors())

    def holding(self, units: bool) -> MatrixFactorization:
        if units == self.held:
            return self
        model = copy(self)
        model.held = units
        return model

    def evaluator(self) -> MatrixFactorization:
        return self.holding(False)

    def visiting(self, block: Block, units: Ratings) -> tuple[MatrixFactorization, Ratings]:
        if not self.held:
            return self, units
        model = copy(self)
        model.side = _side(block.keys)
        model._weights = units.weights
        visited = units if model.side == "users" else units.by_column
        columns = self._columns(model.side)
        model._rooms = (
            SharedRows(visited.n_units, columns, np.dtype(float)),
            SharedRows(visited.n_units, columns, self.dtype),
        )
        return model, visited

    def operations(self, units: Ratings) -> float:
        return 6.0 * len(units.values) * self.size**2

    # Data, prior and starts

    def summary(self, units: Ratings) -> Summary:
        weights = units.entry_weights()
        total = units.n_observations
        if total == 0:
            return Summary(units.total_weight, units.total_weight, 0.0, 0, *[0.0] * 4)
        values = units.values
        if weights is not None:
            # A weight of zero is absence, from the range of ratings too.
            values, weights = values[weights > 0], weights[weights > 0]
        shares = np.ones(1) if weights is None else weights
        mean = float(np.sum(values * shares, dtype=np.float64) / total)
        deviations = values - values.dtype.type(mean)
        variance = float(np.sum(deviations**2 * shares, dtype=np.float64) / total)
        return Summary(
            units.total_weight,
            units.total_weight,
            total,
            units.n_units,
            mean,
            variance,
            float(values.min()),
            float(values.max()),
        )

    def resolved(self, summary: Summary) -> MatrixFactorization:
        model = copy(self)
        model.intercept = summary.mean if self.fit_intercept else 0.0
        # Equal ratings leave nothing to explain: any variance will do.
        scale = 1.0 if self.equal_ratings(summary) else summary.variance
        for name, value in self._asked.items():
            power, share = _SHARES[name]
            setattr(model, name, value if isinstance(value, float) else share * scale**power)
        return model

    def equal_ratings(self, summary: Summary) -> bool:
        """Whether ratings differ by no more than their rounding."""
        rounding = 8 * np.finfo(self.dtype).eps * max(abs(summary.low), abs(summary.high))
        return summary.variance <= rounding**2

    @property
    def given_variances(self) -> bool:
        """Whether no variance depends on the ratings."""
        return all(isinstance(value, float) for value in self._asked.values())

    @property
    def variances(self) -> np.ndarray:
        """Prior variances of the parameters of a row, of shape (D,)."""
        last = [self.bias_variance] if self.biases else []
        return np.array([self.factor_variance] * self.n_components + last, dtype=float)

    def row_prior(self) -> Natural:
        """λ₀ of one row."""
        precision = np.diag(1.0 / self.variances)
        return {
            "precision": precision[np.tril_indices(self.size)],
            "natural_mean": np.zeros(self.size),
        }

    def resumed(self, summary: Summary, units: Ratings) -> Summary:
        data = self.summary(units)
        low, high = min(summary.low, data.low), max(summary.high, data.high)
        return replace(data, low=low, high=high, mean=summary.mean, variance=summary.variance)

    def prior(self, summary: Summary) -> Natural:
        return self._prior()

    def _prior(self) -> Natural:
        result: Natural = {}
        for factor in self.factors():
            result |= factor.rename(self.row_prior())
        return result

    def _n_rows(self, factor: Factor, summary: Summary) -> int:
        return summary.n_users if _side(factor.names.values()) == "users" else self.n_items

    def init(
        self, units: Ratings, summary: Summary, prior: Natural, random_state: np.random.RandomState
    ) -> Natural:
        """Means at a tenth of the prior's standard deviation, precisions of the prior."""
        result: Natural = {}
        # Items first, and of users one number: what is drawn does not depend on who they are.
        for factor in reversed(self.factors()):
            n = self._n_rows(factor, summary)
            start = self._around(0.1 * random_state.standard_normal((n, self.size)), 0.0)
            result |= factor.rename(start)
            random_state = np.random.RandomState(random_state.randint(2**31 - 1))
        return result

    def random_natural(self, summary: Summary, prior: Natural, rng: np.random.Generator) -> Natural:
        """Posteriors of random factors, as sharp as an average row's; of a visited side alone."""
        result: Natural = {}
        for factor in self.factors():
            if self.side in ("", _side(factor.names.values())):
                n = self._n_rows(factor, summary)
                start = rng.standard_normal((n, self.size))
                result |= factor.rename(self._around(start, summary.n_ratings / n))
        return result

    def _around(self, standardized: np.ndarray, n_ratings: float) -> Natural:
        """Gaussians around prior means and deviations, after ``n_ratings`` typical ratings."""
        variances = self.variances
        met = variances.copy()
        if self.biases:
            met[-1] = 1.0
        diagonal = 1.0 / variances + n_ratings / self.noise_variance * met
        precision = np.diag(diagonal)[np.tril_indices(self.size)]
        return {
            "precision": np.tile(precision, (len(standardized), 1)),
            "natural_mean": standardized * np.sqrt(variances) * diagonal,
        }

    # The local step

    def expectations(self, q: Natural) -> Expected:
        """Nothing yet for rows of q, whose moments :meth:`prepared` finds with its workers."""
        if self.held:
            return Expected(None, None, q)
        return Expected(self._moments("items", q), None, {})

    def prepared(self, expected: Expected, t: Tempering, workers: Any = None) -> Expected:
        if expected.across is not None:
            return expected
        q = expected.natural
        found = {side: self._moments(side, q, workers) for side in _SIDES}
        own = found.pop(self.side)
        (across,) = found.values()
        return Expected(across, own, {})

    def sample_expectations(
        self, q: Natural, rng: np.random.Generator
    ) -> tuple[Expected, dict[str, np.ndarray]]:
        """What the local step sees of one draw of all items, and the draw."""
        factor = self.factors()[-1]
        draw = factor.family.sample(factor.pick(q), rng)
        value = draw["value"]
        nothing = np.zeros((len(value), 0))
        table = self._table(value)
        return Expected(Moments(value, table, nothing, nothing), None, {}), draw

    def _table(self, value: np.ndarray) -> np.ndarray:
        """Second moments of rows that are known exactly."""
        d = self.n_components
        parts = [value[:, :d], np.ones((len(value), 1)), value[:, d:]]
        g = np.concatenate(parts, axis=1)
        rows, columns = np.tril_indices(g.shape[1])
        table = np.zeros((len(g), kernels().n_columns(d, self.biases)), dtype=self.dtype)
        table[:, : len(rows)] = g[:, rows] * g[:, columns]
        return table

    def _moments(self, side: str, q: Natural, workers: Any = None) -> Moments:
        precision, natural_mean = q[f"{side}_precision"], q[f"{side}_natural_mean"]
        found = self._memory.get(side, precision, natural_mean)
        if found is None:
            self._memory.forget(side)
            found = self.moments_of(precision, natural_mean, workers)
            self._memory.put(side, precision, natural_mean, found)
        return found

    def moments_of(
        self, precision: np.ndarray, natural_mean: np.ndarray, workers: Any = None
    ) -> Moments:
        """Means and second moments of Gaussian rows.

        Raises
        ------
        numpy.linalg.LinAlgError
            If a precision is not positive definite.
        """
        n = len(precision)
        shape = (n, kernels().n_columns(self.n_components, self.biases))
        found = Moments(
            np.empty((n, self.size)),
            np.empty(shape, dtype=self.dtype),
            np.empty(n),
            np.empty((n, 2)),
        )

        def solve(rows: slice) -> None:
            kernels().moments(
                found.table[rows],
                precision[rows],
                natural_mean[rows],
                self.n_components,
                int(self.biases),
                found.mean[rows],
                found.log_det[rows],
                found.squares[rows],
            )

        (workers or SEQUENTIAL).share(solve, n, _ROWS)
        if np.isnan(found.log_det).any():
            raise np.linalg.LinAlgError("Matrix is not positive definite")
        return found

    def _add_up(
        self,
        units: Ratings,
        across: Moments,
        weights: np.ndarray | None,
        noise: np.ndarray | None = None,
    ) -> tuple[_Sums, _Sums | None]:
        """Sums over the ratings of each unit, of shape (n_units, …), without and with noise.

        Those with noise are in the precision of the table.
        """
        width = across.table.shape[1]
        first = kernels().first_linear(self.n_components)

        def empty(n: int, dtype: Any = float) -> tuple[np.ndarray, np.ndarray]:
            return np.empty((n, width), dtype), np.empty((n, width - first), dtype)

        sums = _Sums(*empty(units.n_units), np.empty(units.n_units))
        noisy = empty(0 if noise is None else units.n_units, self.dtype)
        kernels().add_ratings(
            across.table,
            np.ascontiguousarray(units.columns, dtype=np.int32),
            np.ascontiguousarray(units.indptr, dtype=np.int64),
            np.ascontiguousarray(units.values, dtype=self.dtype),
            _factors(weights),
            _factors(noise, self.dtype),
            self.intercept,
            first,
            *sums,
            *noisy,
        )
        return sums, None if noise is None else _Sums(*noisy, sums.squares)

    def _statistics(self, sums: _Sums, factor: float | np.ndarray, out: Natural) -> Natural:
        """Expected sufficient statistics of the rows, times a factor; ``out`` with them."""
        kernels().statistics(
            sums.second,
            sums.linear,
            np.full(len(sums.second), factor / self.noise_variance),
            self.n_components,
            int(self.biases),
            kernels().first_linear(self.n_components),
            *out.values(),
        )
        return out

    def _empty(self, sums: _Sums, side: str = "") -> Natural:
        """Arrays for the statistics of the rows, in the precision of their sums."""
        n, dtype = len(sums.second), sums.second.dtype
        return {key: np.empty((n, m), dtype) for key, m in self._columns(side).items()}

    def _columns(self, side: str = "") -> dict[str, int]:
        """Numbers of columns of the natural parameters of the rows of a side."""
        size = self.size
        prefix = f"{side}_" if side else ""
        return {f"{prefix}precision": size * (size + 1) // 2, f"{prefix}natural_mean": size}

    def _energies(self, sums: _Sums, own: np.ndarray) -> np.ndarray:
        """E log p of the ratings of each row, whose own table is given, nats; (n_rows,)."""
        d = self.n_components
        errors = np.empty(len(own))
        first = kernels().first_linear(d)
        kernels().squared_errors(own, *sums, d, int(self.biases), first, errors)
        count = sums.second[:, d * (d + 1) // 2 + d]
        return -0.5 * (
            count * (LOG_2PI + np.log(self.noise_variance)) + errors / self.noise_variance
        )

    def _log_priors(self, squares: np.ndarray) -> np.ndarray:
        """E log p of the parameters of each row, nats; (n_rows,)."""
        variances = self.variances
        squared = squares[:, 0] / self.factor_variance
        if self.biases:
            squared = squared + squares[:, 1] / self.bias_variance
        return -0.5 * (self.size * LOG_2PI + np.log(variances).sum() + squared)

    def _entropies(self, log_det: np.ndarray) -> np.ndarray:
        """H of each row, nats; (n_rows,)."""
        return 0.5 * (self.size * (1.0 + LOG_2PI) - log_det)

    def local_step(
        self,
        units: Ratings,
        expected: Expected,
        t: Tempering,
        noise: np.ndarray | None = None,
        local: Any = None,
        apart: bool = False,
    ) -> LocalStep:
        if not self.held:
            factor = np.broadcast_to(np.asarray(t.statistics, dtype=float), units.n_units)
            solved = self.fold_in(units, expected.across, factor, t)
            step = self._items_step(units, solved, factor, noise)
        else:
            step = self._rows_step(units, expected, t, noise)
        return step if apart else _absorbed(step)

    def _rows_step(
        self, units: Ratings, expected: Expected, t: Tempering, noise: np.ndarray | None
    ) -> LocalStep:
        """Statistics of rows of one side, given the Gaussians of the other side."""
        assert expected.across is not None and expected.own is not None
        sums, noisy = self._add_up(units, expected.across, units.rating_weights, noise)
        energies = self._energies(sums, expected.own.table[units.rows])
        energy = float(energies.sum() if units.weights is None else units.weights @ energies)
        clean, loud = self._rooms
        statistics = self._statistics(sums, t.statistics, clean.of(units.rows))
        if self.learns:
            statistics[_EVIDENCE] = self._counts(units, energy)
        deviation = None
        if noisy is not None:
            deviation = self._statistics(noisy, t.statistics, loud.of(units.rows))
        return LocalStep(statistics, energy, 0.0, deviation=deviation)

    def fold_in(
        self, units: Ratings, across: Moments | None, factor: np.ndarray, t: Tempering
    ) -> tuple[Moments, np.ndarray, Natural]:
        """The Gaussians of users given items: moments, E log p of their ratings, and λ."""
        assert across is not None
        sums, _ = self._add_up(units, across, units.rating_weights)
        return self._solve(units, sums, factor, t)

    def _solve(
        self, units: Ratings, sums: _Sums, factor: np.ndarray, t: Tempering
    ) -> tuple[Moments, np.ndarray, Natural]:
        """The same, given the sums over their ratings."""
        statistics = self._statistics(sums, factor, self._empty(sums))
        if units.known is not None:
            known = self.per_noise(units.known)
            statistics = {key: value + known[key] for key, value in statistics.items()}
        natural = self.solution(statistics, t)
        own = self.moments_of(natural["precision"], natural["natural_mean"])
        return own, self._energies(sums, own.table), natural

    def per_noise(self, sums: Natural) -> Natural:
        """Statistics from sums over ratings that are kept without the factor 1/σ²."""
        return {key: value / self.noise_variance for key, value in sums.items()}

    def solution(self, statistics: Natural, t: Tempering = Tempering()) -> Natural:  # noqa: B008
        """λ of rows with these statistics."""
        return posterior(self.row_prior(), statistics, Gaussian("packed").base({}), t)

    def _items_step(
        self,
        units: Ratings,
        solved: tuple[Moments, np.ndarray, Natural],
        factor: np.ndarray,
        noise: np.ndarray | None = None,
    ) -> LocalStep:
        """Statistics of items, given the Gaussians of users."""
        own, energies, _ = solved
        weights = np.ones(units.n_units) if units.weights is None else units.weights
        order, users, indptr = units.transposed()
        each = (weights * factor)[users]
        if units.rating_weights is not None:
            each = each * units.rating_weights[order]
        turned = Ratings(units.values[order], users, indptr, units.n_units)

        sums, noisy = self._add_up(turned, own, each, None if noise is None else noise[order])
        statistics = self._statistics(sums, 1.0, self._empty(sums, "items"))
        deviation = None
        if noisy is not None:
            deviation = self._statistics(noisy, 1.0, self._empty(noisy, "items"))
        if self.learns:
            counts = self._counts(units, float(weights @ energies))
            statistics[_EVIDENCE] = counts + self._evidence_of_users(own, weights)
        return LocalStep(
            statistics,
            float(weights @ energies),
            float(weights @ self._entropies(own.log_det)),
            float(weights @ self._log_priors(own.squares)),
            deviation=deviation,
        )

    def total(self, parts: Iterable[LocalStep]) -> LocalStep:
        """Statistics of rows follow each other; those of items, users being local, add up."""
        if not self.held:
            return super().total(parts)
        clean, loud = self._rooms
        whole, start = LocalStep({}, 0.0, 0.0), 0
        for part in parts:
            rows = slice(start, start + len(part.statistics[f"{self.side}_natural_mean"]))
            evidence = whole.statistics.get(_EVIDENCE, 0.0)
            whole.statistics |= clean.filled(rows, part.statistics)
            if _EVIDENCE in part.statistics:
                whole.statistics[_EVIDENCE] = evidence + part.statistics[_EVIDENCE]
            if part.deviation is not None:
                whole.deviation = loud.filled(rows, part.deviation)
            whole.energy += part.energy
            start = rows.stop
        return whole

    def completed(self, step: LocalStep, expected: Expected, t: Tempering) -> LocalStep:
        """With what users, as rows of q, add to the bound."""
        if not self.held:
            return step
        users = expected.own if self.side == "users" else expected.across
        assert users is not None
        weights = np.ones(len(users.mean)) if self._weights is None else self._weights
        step.entropy = float(weights @ self._entropies(users.log_det))
        step.log_prior = float(weights @ self._log_priors(users.squares))
        if self.learns:
            step.statistics[_EVIDENCE] = step.statistics[_EVIDENCE] + self._evidence_of_users(
                users, weights
            )
        return step

    def _counts(self, units: Ratings, energy: float) -> np.ndarray:
        """What the ratings of some units say about variances: their number and their error."""
        count = units.n_observations
        error = -2.0 * self.noise_variance * energy
        error -= self.noise_variance * count * (LOG_2PI + np.log(self.noise_variance))
        return np.array([0.0, 0.0, 0.0, count, error])

    def _evidence_of_users(self, users: Moments, weights: np.ndarray) -> np.ndarray:
        """What users say about variances: their squares and their number."""
        return np.array([*(weights @ users.squares), weights.sum(), 0.0, 0.0])

    def jitter(self, q: Natural, size: float, rng: np.random.Generator, prior: Natural) -> Natural:
        """Add N(0, size² σ_μ²) to items' means, σ_μ being their prior's standard deviation.

        Users follow items: of users, a weight of 2 would not get the noise of two.
        """
        precision, name = "items_precision", "items_natural_mean"
        if name not in q:
            return q
        shift = (
            size * np.sqrt(self.variances) * fast_normal(q[name].size, rng).reshape(q[name].shape)
        )
        moved = q[name].copy()
        kernels().add_matrix_products(q[precision], shift, moved)
        return {**q, name: moved}

    def backoff(
        self, clean: Natural, deviation: Natural, share: float, margin: float = 0.0
    ) -> Natural:
        for factor in self._within(clean):
            precision, natural_mean = factor.names.values()
            kernels().back_off(
                deviation[precision],
                deviation[natural_mean],
                share,
                margin,
                self.size,
                N_HALVINGS,
                clean[precision],
                clean[natural_mean],
            )
        return clean

    # Bounds

    def kl(self, q: Natural, prior: Natural) -> float:
        """Of items; a visit tells what users add."""
        items = self._moments("items", q)
        return float(-(self._log_priors(items.squares) + self._entropies(items.log_det)).sum())

    def entropy(self, q: Natural) -> float:
        """Of items; a visit tells what users add."""
        return float(self._entropies(self._moments("items", q).log_det).sum())

    def learned(
        self, q: Natural, prior: Natural, step: LocalStep, rho: float, scale: float
    ) -> tuple[ConjugateModel, Natural, Natural]:
        """Empirical Bayes: a step towards the variances at the maximum of the bound given q."""
        if not self.learns:
            return self, prior, q
        of_users, of_biases, n_users, count, error = scale * step.statistics[_EVIDENCE]
        items = self._moments("items", q).squares.sum(axis=0)
        n_rows = n_users + self.n_items
        best = {
            "noise_variance": error / count,
            "factor_variance": (of_users + items[0]) / (n_rows * self.n_components),
            "bias_variance": (of_biases + items[1]) / n_rows,
        }
        model = copy(self)
        for name in self.learns:
            old = getattr(self, name)
            setattr(model, name, old + rho * (max(best[name], _LEAST * old) - old))
        return model, model._prior(), q

    # What annealing methods ask for

    def log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> np.ndarray:
        """log C(x) of all ratings, exact: the volume of N(y; f, σ²)^x does not depend on f."""
        return summary.n_ratings * self._log_volume(x)

    def unit_log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> np.ndarray:
        """log C(x) of one rating, of the shape of ``x``; a user has as many times that."""
        return self._log_volume(x)

    def _log_volume(self, x: np.ndarray) -> np.ndarray:
        return 0.5 * ((1.0 - x) * (LOG_2PI + np.log(self.noise_variance)) - np.log(x))

    def locally_tempered_step(
        self,
        units: Ratings,
        expected: Expected,
        inverse_temperatures: np.ndarray,
        log_partition: np.ndarray,
        n_rounds: int,
        noise: np.ndarray | None = None,
        local: Any = None,
    ) -> LocalStep:
        """The local step with one temperature per user, which acts on the user's ratings.

        Rounds of q(u) given the expected inverse temperatures, and of their distribution given
        E log p of the ratings; another q(u) follows the last.
        """
        assert expected.across is not None
        sums, _ = self._add_up(units, expected.across, units.rating_weights)
        d = self.n_components
        count = sums.second[:, d * (d + 1) // 2 + d]
        x, plain = np.full(units.n_units, inverse_temperatures.mean()), Tempering()
        for _ in range(n_rounds):
            energies = self._solve(units, sums, x, plain)[1]
            exponents = inverse_temperatures * energies[:, None] - np.outer(count, log_partition)
            x = softmax(exponents, axis=1) @ inverse_temperatures
        step = _absorbed(self._items_step(units, self._solve(units, sums, x, plain), x, noise))
        if units.counts_ratings:
            weights = count
        else:
            weights = np.ones(units.n_units) if units.weights is None else units.weights
        step.temperature = float(np.sum(weights / x))
        step.inverse_temperatures = x
        return step

    # What the fitted parameters say

    def rows_of(self, sums: Natural) -> Moments:
        """The moments of rows with these statistics, kept without the factor 1/σ²."""
        natural = self.solution(self.per_noise(sums))
        return self.moments_of(natural["precision"], natural["natural_mean"])

    def mean_ratings(self, users: Moments, items: Moments) -> np.ndarray:
        """Expected ratings of all items by all users, of shape (n_users, n_items)."""
        d = self.n_components
        ratings = users.mean[:, :d] @ items.mean[:, :d].T + self.intercept
        if self.biases:
            ratings += users.mean[:, d:] + items.mean[:, d]
        return ratings

    def mean_of_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Expected ratings of pairs of rows, whose means are given; of shape (n_pairs,)."""
        d = self.n_components
        factors = np.einsum("nk,nk->n", users[:, :d], items[:, :d])
        return self.intercept + factors + (users[:, d:] + items[:, d:]).sum(axis=1)

    def coefficients(self, own: Moments) -> np.ndarray:
        """What the inner product of a user's row with an item's table must be for E[f²].

        f = u·v + b + c is linear in g = (v, 1, c), with coefficients (u, b, 1).
        """
        d = self.n_components
        # Where (u, b, 1) lies in (u, 1, b); without biases u alone matters.
        place = np.array([*range(d), d + 1, d] if self.biases else [*range(d), d])
        rows, columns = np.tril_indices(len(place))
        high = np.maximum(place[rows], place[columns])
        low = np.minimum(place[rows], place[columns])
        factor = np.where(rows == columns, 1.0, 2.0)
        if not self.biases:
            factor[rows == d] = 0.0
        result = np.zeros(own.table.shape)
        result[:, : len(rows)] = own.table[:, high * (high + 1) // 2 + low] * factor
        return result


def _of_matrix(estimator: AnnealedPMF) -> bool:
    return bool(estimator.input == "matrix")


def _of_pairs(estimator: AnnealedPMF) -> bool:
    return bool(estimator.input == "pairs")


_VARIANCE = [Interval(Real, 0.0, None, closed="neither"), StrOptions({"auto"}), None]


def _variance(value: Any) -> Any:
    return float(value) if isinstance(value, Real) else value


def _exact(ctx: Context) -> MatrixFactorization:
    """The model with tables of float64, whatever it was trained with."""
    model = copy(ctx.model)
    model.dtype = np.dtype(np.float64)
    return model


def _of_items(ctx: Context) -> Context:
    """A context in which users are local variables: of training data, or of others."""
    model = copy(ctx.model.holding(False))
    # Nothing of the size of the training data stays.
    model._memory = _Memory()
    (items,) = model.blocks
    q, prior = ({key: natural[key] for key in items.keys} for natural in (ctx.q, ctx.prior))
    return replace(ctx, model=model, q=q, prior=prior)


class AnnealedPMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseAnnealed):
    """Bayesian matrix factorisation of ratings, fitted by annealed variational inference.

    A rating of item j by user i is y ~ N(μ + b_i + c_j + u_iᵀ v_j, σ²) with u_i, v_j ~ N(0, c I).
    The posterior is approximated by one Gaussian with full covariance for each user, over
    (u_i, b_i), and one for each item, so that predictions come with standard deviations.

    Ratings come in one of two forms, as ``input`` says:

    - ``"matrix"``: X is users × items. Of a sparse matrix the stored entries are ratings,
      explicit zeros too, and all others are unobserved; of a dense one NaN is unobserved. y is
      ignored. A row is a data point: ``transform`` finds the factors of new users.
    - ``"pairs"``: X has one row per rating, the ids (user, item), and y the ratings, so that
      ``cross_val_score(est, X, y)`` holds out ratings. A pair that is repeated is two ratings.

    Parameters
    ----------
    n_components : int, default=10
        Number of factors.
    input : {"matrix", "pairs"}, default="matrix"
        Form of the ratings. It is never guessed from X.
    annealing : str or Annealing, default="deterministic"
        How the fit avoids slow convergence and the local optimum next to its start: ``"none"``,
        ``"deterministic"``, ``"stochastic"``, ``"tempering"``, ``"local_tempering"``,
        ``"svi_plus"``, ``"structured"``, ``"proximity"``, or an instance from
        :mod:`sklearn_anneal.annealing`. A name stands for the settings recommended for ratings.
        ``form="local"`` is refused: it tempers assignments, of which there are none.
    n_users, n_items : int or None, default=None
        Numbers of users and items; None: the largest id plus 1, or the columns of the matrix. An
        item beyond those seen has its prior. ``n_users`` is for ``"pairs"`` alone.
    fit_intercept : bool, default=True
        Whether μ is the mean of the training ratings, or 0.
    biases : bool, default=True
        Whether users and items have biases b_i and c_j.
    noise_variance : float, "auto" or None, default=None
        σ², in squared units of ratings. None: 0.63 times the variance of the ratings, which is
        0.8 for stars from 1 to 5. ``"auto"`` learns it by empirical Bayes, at T = 1: predictive
        densities are better with few factors, and worse with many, which it overfits.
    factor_variance : float, "auto" or None, default=None
        c, the prior variance of factors: smaller shrinks more. None: 0.089 times the standard
        deviation of the ratings, which is 0.1 for stars from 1 to 5. ``"auto"`` learns it; with
        20 factors for 100,000 ratings it ended near 0, where all factors are switched off.
    bias_variance : float, "auto" or None, default=None
        Prior variance of biases. None: 0.237 times the variance of the ratings, which is 0.3 for
        stars from 1 to 5. ``"auto"`` learns it.
    clip : bool or tuple of two floats, default=True
        Whether predicted means are kept within the range of the training ratings, or within
        (low, high).
    tol : float, default=1e-6
        Rise of the lower bound per rating in one pass, in nats, below which a fit has converged.
    max_iter : int, default=100
        Largest number of passes at T = 1. 0 stops after the schedule, or at the start.
    n_init : int, default=1
        Number of restarts; the one with the best lower bound is kept.
    batch_size : int or None, default=None
        None: every update sees all users. An integer: stochastic variational inference with that
        many users per update.
    learning_offset : float, default=1.0
        τ of the step ρ_t = (τ + t)^(−κ) of updates that are damped. Larger slows the first steps.
    learning_decay : float, default=0.6
        κ of the same, in (0.5, 1] for convergence. Larger forgets less and settles sooner.
    total_samples : float or None, default=None
        Size of the whole stream for ``partial_fit``, users of matrices or ratings of pairs; None:
        what has been seen so far.
    n_jobs : int or None, default=None
        Threads for restarts, or for parts of the data where there is one restart. The result
        does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of starts and of the randomness of annealing.
    warm_start : bool, default=False
        Whether another call of ``fit`` goes on from the fitted items, at T = 1.
    verbose : int, default=0
        1 prints the lower bound and the temperature every ``verbose_interval`` passes.
    verbose_interval : int, default=10
        Passes between two prints.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_items)
        Posterior means of the factors of items.
    components_cov_ : ndarray of shape (n_items, n_components, n_components)
        Their posterior covariances.
    item_biases_ : ndarray of shape (n_items,)
        Posterior means of the biases of items, where there are biases.
    item_biases_var_ : ndarray of shape (n_items,)
        Their posterior variances.
    user_factors_ : ndarray of shape (n_users, n_components)
        Posterior means of the factors of users, given the fitted items: of the training data;
        after ``partial_fit``, of the last matrix, or of all users of pairs so far.
    user_factors_cov_ : ndarray of shape (n_users, n_components, n_components)
        Their posterior covariances.
    user_biases_, user_biases_var_ : ndarray of shape (n_users,)
        Posterior means and variances of the biases of users, where there are biases.
    intercept_ : float
        μ.
    noise_variance_, factor_variance_, bias_variance_ : float
        The variances in use, learned ones too.
    n_users_, n_items_ : int
        Numbers of users and items.
    rating_range_ : tuple of two floats
        The smallest and the largest rating seen, also before a warm start.
    lower_bound_ : float
        Evidence lower bound at T = 1 of the fitted model, in nats, with every constant. In a
        stream, as the last batch estimated it, of the parameters before their update.
    lower_bounds_ : ndarray of shape (n_passes,)
        Its history, one value per pass (per call in a stream). With ``batch_size`` an estimate,
        except for the last one.
    temperatures_ : ndarray of shape (n_passes,)
        Temperature of each pass; for local tempering the mean over users, or, of pairs, over
        ratings.
    annealing_ : Annealing
        The method that ran, with all its settings.
    converged_ : bool
        Whether the fit converged; for methods without a finish, whether it ran to its end.
    n_iter_ : int
        Number of passes, annealed ones included.
    restart_lower_bounds_ : ndarray of shape (n_init,)
        Lower bounds of the restarts; NaN for those that a callback kept from beginning.
    best_restart_ : int
        Which of them was kept.
    n_features_in_ : int
        Number of columns seen during ``fit``.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of columns seen during ``fit``, where X has string column names.

    Notes
    -----
    Ratings of a stream are taken for new ones. In ``partial_fit`` with ``"pairs"``, what a later
    batch says of a user is added to what earlier ones said; a rating that is given twice counts
    twice. Factors of users whom a batch leaves out stay as they were given the items of their
    time, and the lower bounds have what q(u) of a user adds in every batch with a rating of the
    user, so that they compare among batches of a size alone.

    The default variances suit ratings with weak factors, as those of films are. Where factors
    explain most of the ratings, a smaller ``noise_variance`` and a larger ``factor_variance``, or
    ``noise_variance="auto"``, predict better; a warning tells if all factors were switched off.

    References
    ----------
    .. [1] Lim, Teh (2007). Variational Bayesian approach to movie rating prediction. KDD Cup.
    .. [2] Salakhutdinov, Mnih (2008). Probabilistic matrix factorization. NIPS.
    .. [3] Paisley, Gultekin et al. SVI+: stochastic variational inference with tuneable
       stochastic annealing, section IV-A.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal import AnnealedPMF
    >>> X = np.array([[5, 4, np.nan, 1], [4, 5, 1, 1], [1, np.nan, 5, 4], [1, 2, 4, 5]])
    >>> pmf = AnnealedPMF(1, noise_variance=0.3, factor_variance=1.0, random_state=0).fit(X)
    >>> mean, std = pmf.predict_ratings(users=[0, 2], items=[2, 1], return_std=True)
    >>> mean.round(1)
    array([1.3, 2.2])
    """

    _parameter_constraints: dict = {
        **BaseAnnealed._parameter_constraints,
        "input": [StrOptions({"matrix", "pairs"})],
        "n_users": [Interval(Integral, 1, None, closed="left"), None],
        "n_items": [Interval(Integral, 1, None, closed="left"), None],
        "fit_intercept": ["boolean"],
        "biases": ["boolean"],
        "noise_variance": _VARIANCE,
        "factor_variance": _VARIANCE,
        "bias_variance": _VARIANCE,
        "clip": ["boolean", tuple],
    }

    def __init__(
        self,
        n_components=10,
        *,
        input="matrix",
        annealing="deterministic",
        n_users=None,
        n_items=None,
        fit_intercept=True,
        biases=True,
        noise_variance=None,
        factor_variance=None,
        bias_variance=None,
        clip=True,
        tol=1e-6,
        max_iter=100,
        n_init=1,
        batch_size=None,
        learning_offset=1.0,
        learning_decay=0.6,
        total_samples=None,
        n_jobs=None,
        random_state=None,
        warm_start=False,
        verbose=0,
        verbose_interval=10,
    ):
        self.n_components = n_components
        self.input = input
        self.annealing = annealing
        self.n_users = n_users
        self.n_items = n_items
        self.fit_intercept = fit_intercept
        self.biases = biases
        self.noise_variance = noise_variance
        self.factor_variance = factor_variance
        self.bias_variance = bias_variance
        self.clip = clip
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.batch_size = batch_size
        self.learning_offset = learning_offset
        self.learning_decay = learning_decay
        self.total_samples = total_samples
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    _advice = (
        "the precision of a user or an item is not positive definite: the noise of the annealing "
        "or the scale of the ratings is too large for floating-point numbers. Give SVI+ a margin "
        'or noise="dirichlet", a smaller factor_variance or a larger noise_variance, or rescale '
        "the ratings."
    )
    _model_parameters = (
        "n_components",
        "input",
        "n_items",
        "fit_intercept",
        "biases",
        "noise_variance",
        "factor_variance",
        "bias_variance",
    )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        matrix = _of_matrix(self)
        # Ids count from 0.
        tags.input_tags.positive_only = not matrix
        tags.input_tags.allow_nan = matrix
        tags.input_tags.sparse = matrix
        tags.target_tags.required = not matrix
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    # What the base class asks for

    def _data(self, X: Any, y: Any, stream: bool = False) -> Any:
        """X on its way to validation, with the ratings where they are in y."""
        return Pairs(X, y, stream) if _of_pairs(self) else X

    def _validate_data(self, X: Any, *, reset: bool, ensure_min_samples: int = 1) -> RatingData:
        # Whatever is asked for: a single user, and a single rating, are data.
        if not isinstance(X, Pairs):
            if self.n_users is not None:
                raise ValueError(
                    'n_users is for input="pairs"; the users of a matrix are its rows.'
                )
            n_items = self.n_items if reset or self.n_items is None else self.n_items_
            return read_matrix(self, X, reset=reset, n_items=n_items)
        n_items = self.n_items if reset else self.n_items_
        return read_pairs(
            self, X, reset=reset, n_users=self.n_users, n_items=n_items, dense=not X.stream
        )

    def _make_units(self, X: RatingData, sample_weight: np.ndarray | None) -> Ratings:  # type: ignore[override]
        pairs = X.order is not None
        weights = sample_weight
        if pairs and weights is not None:
            weights = weights[X.order]
        return Ratings(
            X.values,
            X.columns,
            X.indptr,
            X.n_columns,
            weights=None if pairs else weights,
            rating_weights=weights if pairs else None,
            counts_ratings=pairs,
            known=self._known(X.users) if X.stream else None,
        )

    def _check_weights(
        self, sample_weight: Any, X: Any, allow_nothing: bool = False
    ) -> np.ndarray | None:
        return super()._check_weights(sample_weight, np.empty((X.shape[0], 1)), allow_nothing)

    def _check_training(self, units: Ratings) -> None:  # type: ignore[override]
        if units.n_observations == 0:
            raise ValueError(
                "There is no rating in X (or all of them have weight zero), so there is nothing "
                "to learn from."
            )

    def _check_first_batch(self, units: Ratings, model: Any) -> None:  # type: ignore[override]
        self._check_training(units)
        if not model.given_variances and model.equal_ratings(model.summary(units)):
            raise ValueError(
                "The first batch fixes the variances of the model, but its ratings are all equal. "
                "Begin with a larger batch, or give noise_variance, factor_variance and "
                "bias_variance as numbers."
            )

    def _make_model(self, X: RatingData, units: Ratings) -> MatrixFactorization:  # type: ignore[override]
        if isinstance(self.clip, tuple):
            numbers = [value for value in self.clip if isinstance(value, Real)]
            if not (len(self.clip) == len(numbers) == 2 and numbers[0] < numbers[1]):
                raise ValueError(
                    f"clip={self.clip!r} is not a range: give numbers (low, high) with low < high."
                )
        return MatrixFactorization(
            self.n_components,
            self.n_items or units.n_columns,
            bool(self.biases),
            bool(self.fit_intercept),
            _variance(self.noise_variance),
            _variance(self.factor_variance),
            _variance(self.bias_variance),
            units.values.dtype,
        )

    def _fitted_attributes(self, ctx: Context) -> dict[str, Any]:
        model, d = ctx.model, self.n_components
        mean = model.moments_of(ctx.q["items_precision"], ctx.q["items_natural_mean"]).mean
        attributes = {
            "components_": mean[:, :d].T.copy(),
            "intercept_": float(model.intercept),
            "noise_variance_": float(model.noise_variance),
            "factor_variance_": float(model.factor_variance),
            "n_items_": model.n_items,
            "rating_range_": (ctx.summary.low, ctx.summary.high),
        }
        if self.biases:
            attributes["item_biases_"] = mean[:, d].copy()
            attributes["bias_variance_"] = float(model.bias_variance)
        return attributes

    def _shown(self, given: Any, X: Any) -> Any:
        return given.X if isinstance(given, Pairs) else given

    def _complete_fit(self, ctx: Context, units: Ratings, trace: Any) -> None:  # type: ignore[override]
        vars(ctx).update(vars(_of_items(ctx)))
        if not ctx.model.biases:
            for name in ("item_biases_", "user_biases_", "bias_variance_"):
                self.__dict__.pop(name, None)
        self._set_users(self._solved(ctx, units))

    def _start_anew(self, X: RatingData, units: Ratings, watch: Any) -> list[Any]:  # type: ignore[override]
        self._training = units
        try:
            return super()._start_anew(X, units, watch)
        finally:
            del self._training

    def _go_on(self, units: Ratings, watch: Any) -> list[Any]:  # type: ignore[override]
        self._training = units
        try:
            return super()._go_on(units, watch)
        finally:
            del self._training

    def _warn(self, ctx: Context, trace: Any) -> None:
        super()._warn(ctx, trace)
        squares = np.square(self.components_).mean(axis=1)
        if trace.converged and squares.max() < _OFF * ctx.model.factor_variance:
            warnings.warn(
                "All factors are switched off: ratings are predicted by the mean and the biases "
                "alone. If there is more to find, give a smaller noise_variance or a larger "
                "factor_variance, fewer components, or more jitter to the annealing.",
                ConvergenceWarning,
                stacklevel=6,
            )

    def _snapshot(self, ctx: Context) -> dict[str, Any]:
        kept = _of_items(ctx)
        # After a fit its users are known.
        running = hasattr(self, "_training")
        found = self._solved(kept, self._training) if running else self._user_statistics
        return super()._snapshot(kept) | self._user_attributes(kept, found)

    def _update(self, X: RatingData, units: Ratings) -> None:  # type: ignore[override]
        super()._update(X, units)
        if units.n_observations == 0:
            return
        found = self._solved(self._inference.ctx, units)
        if X.order is not None:
            known = self._known(np.arange(self._n_known(X.users.max() + 1)))
            for key, value in found.items():
                known[key][X.users] = value
            found = known
        self._set_users(found)

    def _n_known(self, at_least: int) -> int:
        kept = getattr(self, "_user_statistics", None)
        return max(at_least, self.n_users or 0, 0 if kept is None else len(kept["natural_mean"]))

    def _known(self, users: np.ndarray) -> Natural:
        """Statistics of the ratings that users of pairs have given before; 0 for new users."""
        model = self._inference.ctx.model if hasattr(self, "_inference") else None
        size = self.n_components + bool(self.biases) if model is None else model.size
        kept = getattr(self, "_user_statistics", None)
        known = {
            "precision": np.zeros((len(users), size * (size + 1) // 2)),
            "natural_mean": np.zeros((len(users), size)),
        }
        if kept is not None:
            old = users < len(kept["natural_mean"])
            for key, value in known.items():
                value[old] = kept[key][users[old]]
        return known

    def _solved(self, ctx: Context, units: Ratings) -> Natural:
        """The statistics of users given the fitted items, without the factor 1/σ²."""
        ones = np.ones(units.n_units)
        with one_thread():
            across = ctx.model.expectations(ctx.q).across
            natural = ctx.model.fold_in(units, across, ones, Tempering())[2]
        prior = ctx.model.row_prior()
        noise_variance = ctx.model.noise_variance
        return {key: noise_variance * (value - prior[key]) for key, value in natural.items()}

    def _user_attributes(self, ctx: Context, statistics: Natural) -> dict[str, Any]:
        mean, d = _exact(ctx).rows_of(statistics).mean, ctx.model.n_components
        attributes = {
            "_user_statistics": statistics,
            "n_users_": len(mean),
            "user_factors_": mean[:, :d].copy(),
        }
        return attributes | ({"user_biases_": mean[:, d].copy()} if ctx.model.biases else {})

    def _set_users(self, statistics: Natural) -> None:
        for name, value in self._user_attributes(self._inference.ctx, statistics).items():
            setattr(self, name, value)

    # What a user calls

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None):
        """Fit the model: anneal, then plain variational inference to convergence.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items), or array-like of shape \
                (n_ratings, 2)
            Ratings as a matrix, or the ids (user, item) of each.
        y : array-like of shape (n_ratings,), default=None
            The ratings of pairs; ignored for a matrix.
        sample_weight : array-like of shape (n_users,) or (n_ratings,), default=None
            Weights of the rows of X: of users, or of ratings. A weight of 2 counts a row twice.

        Returns
        -------
        self : estimator instance
            The fitted estimator.
        """
        with one_thread():
            return self._fit(self._data(X, y), y, sample_weight)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y=None, sample_weight=None):
        """Update the model with one batch of a stream of new ratings.

        A schedule's clock moves on by the batch's share of ``total_samples``, or by one pass per
        call where that is not given.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items), or array-like of shape \
                (n_ratings, 2)
            New users as rows of a matrix, or the ids (user, item) of ratings of any users.
        y : array-like of shape (n_ratings,), default=None
            The ratings of pairs; ignored for a matrix.
        sample_weight : array-like of shape (n_users,) or (n_ratings,), default=None
            Weights of the rows of X. A batch of weight zero changes nothing.

        Returns
        -------
        self : estimator instance
            The updated estimator.

        Raises
        ------
        ValueError
            If the batch is refused; the estimator is then as it was before.
        """
        return self._update_or_restore(self._data(X, y, stream=True), sample_weight)

    @available_if(_of_matrix)
    def transform(self, X):
        """Posterior means of the factors of users, given the fitted items.

        One exact step, whether or not the users are those of the training data. A user without
        ratings has the prior's mean, 0.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items)
            Ratings.

        Returns
        -------
        factors : ndarray of shape (n_users, n_components)
            Without biases; of the dtype of X if that is a floating one.
        """
        ctx, data = self._read(X)
        statistics = self._solved(ctx, self._make_units(data, None))
        mean = _exact(ctx).rows_of(statistics).mean
        return mean[:, : ctx.model.n_components].astype(data.values.dtype)

    @available_if(_of_matrix)
    def inverse_transform(self, X, user_biases=None):
        """Mean ratings of all items, given the factors of users.

        Parameters
        ----------
        X : array-like of shape (n_users, n_components)
            Factors, for example those of :meth:`transform`.
        user_biases : array-like of shape (n_users,), default=None
            Biases of the users; None: 0, their prior mean.

        Returns
        -------
        ratings : ndarray of shape (n_users, n_items)
            μ + b_i + c_j + u_iᵀ v_j, kept within the range that ``clip`` says.
        """
        model = self._context().model
        X = check_array(X, dtype=[np.float64, np.float32])
        if X.shape[1] != model.n_components:
            raise ValueError(
                f"X has {X.shape[1]} columns, but there are n_components={model.n_components} "
                "factors."
            )
        ratings = X @ self.components_.astype(X.dtype) + X.dtype.type(self.intercept_)
        if model.biases:
            ratings += self.item_biases_.astype(X.dtype)
        if user_biases is not None:
            if not model.biases:
                raise ValueError("user_biases is given, but the model has no biases.")
            user_biases = check_array(user_biases, ensure_2d=False, input_name="user_biases")
            if user_biases.shape != (len(X),):
                raise ValueError(
                    f"user_biases has the shape {user_biases.shape}, but X has {len(X)} rows."
                )
            ratings += user_biases.astype(X.dtype)[:, None]
        return self._clipped(ratings)

    @available_if(_of_matrix)
    def predict_rows(self, X, return_std=False):
        """Predicted ratings of all items by the users of X, new ones or not.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items)
            What is known of their ratings.
        return_std : bool, default=False
            Whether to return standard deviations too.

        Returns
        -------
        mean : ndarray of shape (n_users, n_items)
            Posterior means, kept within the range that ``clip`` says.
        std : ndarray of shape (n_users, n_items)
            Standard deviations of the predictive distribution of a rating, its noise included.
            Only where ``return_std``.
        """
        ctx, data = self._read(X)
        natural = self._solved(ctx, self._make_units(data, None))
        model = _exact(ctx)
        users, items = model.rows_of(natural), self._items(ctx)
        mean = model.mean_ratings(users, items)
        if not return_std:
            return self._clipped(mean)
        second = model.coefficients(users) @ items.table.T
        return self._clipped(mean), self._deviations(ctx, mean, second)

    @available_if(_of_matrix)
    def recommend(self, X, n=10, exclude_seen=True):
        """The items that each user of X would rate best.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items)
            What is known of their ratings.
        n : int, default=10
            Number of items for each user.
        exclude_seen : bool, default=True
            Whether to leave out the items that the user has rated.

        Returns
        -------
        items : ndarray of int, shape (n_users, n)
            Columns of X, the best first, by predicted mean; ties go to the lowest column. −1
            where a user has fewer than n unseen items.
        """
        ctx, data = self._read(X)
        if not isinstance(n, Integral) or n < 1:
            raise ValueError(f"n is the number of items for each user, 1 or more; got {n!r}.")
        natural = self._solved(ctx, self._make_units(data, None))
        model = _exact(ctx)
        ratings = model.mean_ratings(model.rows_of(natural), self._items(ctx))
        if exclude_seen:
            rows = np.repeat(np.arange(len(data.users)), np.diff(data.indptr))
            ratings[rows, data.columns] = -np.inf
        order = np.argsort(-ratings, axis=1, kind="stable")[:, :n]
        best = np.full((len(ratings), n), -1)
        seen = np.isneginf(np.take_along_axis(ratings, order, axis=1))
        best[:, : order.shape[1]] = np.where(seen, -1, order)
        return best

    @available_if(_of_pairs)
    def predict(self, X, return_std=False):
        """Predicted ratings of pairs.

        Parameters
        ----------
        X : array-like of shape (n_ratings, 2)
            Ids (user, item); those never seen have their priors.
        return_std : bool, default=False
            Whether to return standard deviations too.

        Returns
        -------
        mean : ndarray of shape (n_ratings,)
            Posterior means, kept within the range that ``clip`` says.
        std : ndarray of shape (n_ratings,)
            Standard deviations of the predictive distribution of a rating, its noise included.
            Only where ``return_std``.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=None)
        users, items = read_ids(X, "The ids of users and items").T
        return self.predict_ratings(users, items, return_std)

    def predict_ratings(self, users, items, return_std=False):
        """Predicted ratings of items by users of the training data, or of the last batch.

        Parameters
        ----------
        users, items : array-like of int, shape (n_ratings,)
            Ids; those never seen have their priors. Of a matrix, columns, and rows of what
            ``fit`` or the last call of ``partial_fit`` was given.
        return_std : bool, default=False
            Whether to return standard deviations too.

        Returns
        -------
        mean : ndarray of shape (n_ratings,)
            Posterior means, kept within the range that ``clip`` says.
        std : ndarray of shape (n_ratings,)
            Standard deviations of the predictive distribution of a rating, its noise included.
            Only where ``return_std``.
        """
        check_is_fitted(self)
        users, items = read_ids(users, "users"), read_ids(items, "items")
        if users.shape != items.shape or users.ndim != 1:
            raise ValueError(
                f"users and items are ids of the same ratings, but have shapes {users.shape} and "
                f"{items.shape}."
            )
        mean, std = self._predictions(users, items)
        return (self._clipped(mean), std) if return_std else self._clipped(mean)

    def score(self, X, y=None, sample_weight=None):
        """Predictive log density per rating.

        Of pairs, that of their ratings. Of a matrix: every other rating of each user, in an order
        of the items that is always the same, is predicted from the rest of them.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items), or array-like of shape \
                (n_ratings, 2)
            Ratings as a matrix, or the ids (user, item) of each.
        y : array-like of shape (n_ratings,), default=None
            The ratings of pairs; ignored for a matrix.
        sample_weight : array-like of shape (n_users,) or (n_ratings,), default=None
            Weights of the rows of X.

        Returns
        -------
        log_density : float
            In nats per rating; higher is better.
        """
        ctx = self._context()
        if _of_pairs(self):
            # Ids that were not seen in training are no errors here.
            sizes: dict[str, Any] = {"n_users": None, "n_items": None}
            data = read_pairs(self, Pairs(X, y), reset=False, dense=False, **sizes)
            weights = self._check_weights(sample_weight, data)
            users = np.repeat(data.users, np.diff(data.indptr))
            densities = norm.logpdf(data.values, *self._predictions(users, data.columns))
            if weights is not None:
                weights = weights[data.order]
            return float(np.average(densities, weights=weights))
        ctx, data = self._read(X)
        weights = self._check_weights(sample_weight, data)
        known, predicted = halves(data)
        if not predicted.any():
            raise ValueError("X has no rating to predict.")
        natural = self._solved(ctx, self._make_units(some_ratings(data, known), None))
        rows = np.repeat(np.arange(len(data.users)), np.diff(data.indptr))[predicted]
        mean, std = self._predictions(rows, data.columns[predicted], natural)
        densities = norm.logpdf(data.values[predicted], mean, std)
        each = np.ones(len(rows)) if weights is None else weights[rows]
        if not each.any():
            raise ValueError("X has no rating of positive weight to predict.")
        return float(np.average(densities, weights=each))

    @available_if(has_unit_temperatures)
    def inverse_temperatures(self, X, y=None):
        """Expected inverse temperature of each user, low for outliers.

        Only for ``annealing="local_tempering"``: how much of a user's ratings the fitted model
        would listen to.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items), or array-like of shape \
                (n_ratings, 2)
            Ratings as a matrix, or the ids (user, item) of each.
        y : array-like of shape (n_ratings,), default=None
            The ratings of pairs; ignored for a matrix.

        Returns
        -------
        inverse_temperatures : ndarray of shape (n_users,)
            E[1/T], in (0, 1]. Of pairs, for the ids from 0 to the largest.
        """
        ctx, data = self._read(X, y)
        return self.annealing_.inverse_temperatures(ctx, self._make_units(data, None))

    @property
    def components_cov_(self):
        """Posterior covariances of the factors of items, (n_items, n_components, n_components)."""
        ctx = self._context()
        natural = {key: ctx.q[f"items_{key}"] for key in Gaussian.keys}
        d = ctx.model.n_components
        return self._covariances(natural)[:, :d, :d]

    @property
    def user_factors_cov_(self):
        """Posterior covariances of the factors of users, (n_users, n_components, n_components)."""
        d = self._context().model.n_components
        return self._covariances(self._natural_of_users())[:, :d, :d]

    @property
    def item_biases_var_(self):
        """Posterior variances of the biases of items, of shape (n_items,)."""
        q = self._context().q
        return self._bias_variances({key: q[f"items_{key}"] for key in Gaussian.keys})

    @property
    def user_biases_var_(self):
        """Posterior variances of the biases of users, of shape (n_users,)."""
        return self._bias_variances(self._natural_of_users())

    def _natural_of_users(self) -> Natural:
        model = self._context().model
        return model.solution(model.per_noise(self._user_statistics))

    def _covariances(self, natural: Natural) -> np.ndarray:
        family = Gaussian("packed")
        size = natural["natural_mean"].shape[1]
        return _PACKED.to_full(family.to_standard(natural)["covariance"], size)

    def _bias_variances(self, natural: Natural) -> np.ndarray:
        if not self._context().model.biases:
            raise AttributeError("The model has no biases: it was fitted with biases=False.")
        return self._covariances(natural)[:, -1, -1]

    def _read(self, X: Any, y: Any = None) -> tuple[Context, RatingData]:
        ctx = self._context()
        return ctx, self._validate_data(self._data(X, y), reset=False)

    def _items(self, ctx: Context) -> Any:
        q = ctx.q
        return _exact(ctx).moments_of(q["items_precision"], q["items_natural_mean"])

    def _predictions(
        self, users: np.ndarray, items: np.ndarray, statistics: Natural | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of ratings; of the fitted users unless others are given."""
        ctx = self._context()
        if statistics is None:
            statistics = self._user_statistics
        model = _exact(ctx)
        # One row more than there are: the prior, for ids that were never seen.
        nobody = {key: np.zeros((1, value.shape[1])) for key, value in statistics.items()}
        across = self._items(ctx)
        prior = model.rows_of(nobody)
        n_users, n_items = len(statistics["natural_mean"]), len(across.mean)
        of_users, of_items = np.unique(users[users < n_users]), items < n_items
        own = model.rows_of({key: value[of_users] for key, value in statistics.items()})
        places = np.searchsorted(of_users, users)
        places[users >= n_users] = len(of_users)
        tables = np.concatenate([model.coefficients(own), model.coefficients(prior)])
        means = np.concatenate([own.mean, prior.mean])
        columns = np.where(of_items, items, n_items)
        other = np.concatenate([across.table, prior.table])
        other_means = np.concatenate([across.mean, prior.mean])
        mean, second = np.empty(len(users)), np.empty(len(users))
        for start in range(0, len(users), _PAIRS):
            some = slice(start, start + _PAIRS)
            i, j = places[some], columns[some]
            second[some] = np.einsum("nk,nk->n", tables[i], other[j])
            mean[some] = model.mean_of_pairs(means[i], other_means[j])
        return mean, self._deviations(ctx, mean, second)

    def _deviations(self, ctx: Context, mean: np.ndarray, second: np.ndarray) -> np.ndarray:
        f = mean - ctx.model.intercept
        return np.sqrt(ctx.model.noise_variance + np.maximum(second - f**2, 0.0))

    def _clipped(self, ratings: np.ndarray) -> np.ndarray:
        if not self.clip:
            return ratings
        low, high = self.clip if isinstance(self.clip, tuple) else self.rating_range_
        return np.clip(ratings, low, high)


# What wraps ``transform`` for ``set_output`` makes it available whatever it was before.
for _name in ("transform", "fit_transform"):
    setattr(AnnealedPMF, _name, available_if(_of_matrix)(getattr(AnnealedPMF, _name)))
