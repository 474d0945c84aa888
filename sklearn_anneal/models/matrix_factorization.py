"""The model of probabilistic matrix factorisation."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np

from ..data.units import Ratings
from ..families import (
    Factors,
    Gaussian,
    Natural,
    Tempering,
    UnitTemperatures,
    fast_normal,
)
from ..families._structure import lower_triangle
from ..parallel.workers import SEQUENTIAL, Workers
from ._base import LOG_2PI, Block, ConjugateModel, LocalStep, Recommended, compiled
from ._componentwise import Componentwise, Given
from ._extensible import Extensible
from ._rating_hierarchy import GaussianPrior, Hierarchy, Rows, columns_of_moments, packed
from ._rating_raters import Raters
from ._rating_scales import FIRST_SHAPE, GAINS, SHAPES, Scales, best_shape, scales_of
from ._rating_summary import Summary
from ._rating_visits import EVIDENCE, FoldingVisit, Known, Moments, RowsVisit, blocks
from ._streamed import Streamed, least_weight_of_growing_fit
from ._unit_block import RowsOfSteps, UnitBlock
from ._whole_data import ReadsWholeData

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

# Smallest number of rows for which a task of the workers computes the moments.
_ROWS = 512
# Default variances of the model: (power, share) stands for share · variance of ratings ** power.
# Two factors are multiplied with each other, hence their power 1/2. For stars from 1 to 5, with
# their variance 1.27, the defaults are 0.8, 0.1 and 0.3.
_SHARES = {
    "noise_variance": (1.0, 0.63),
    "factor_variance": (0.5, 0.089),
    "bias_variance": (1.0, 0.237),
}
# A learned variance of factors begins at this share, because from a small one the factors are
# switched off before they have found anything. It does not fall below the share above: with many
# factors of film ratings the bound would have it vanish, and predictions are worse without factors.
_START_OF_FACTORS = 0.5
# Rows can be solved for without losing all digits if the noise variance is at least this share of
# the variance of the ratings, which depends on the bytes of a number in the tables of moments, and
# if the variance of biases is at most this multiple of the noise variance.
_LEAST_NOISE = {4: 1e-5, 8: 1e-10}
_LARGEST_BIASES = 1e12
# One update of a learned variance shrinks it at most by this factor.
_SMALLEST_FACTOR = 1e-3


kernels = partial(compiled, "matrix_factorization")


class _Sums(NamedTuple):
    """Sums over the ratings of each row, in the layout of the kernel that computes them."""

    second: np.ndarray
    linear: np.ndarray
    squares: np.ndarray


def _factors(values: np.ndarray | None, dtype: DTypeLike = np.float64) -> np.ndarray:
    """Return factors of ratings as kernels read them; an empty array stands for None."""
    return np.ascontiguousarray(np.empty(0) if values is None else values, dtype=dtype)


@cache
def _side(name: str, size: int, held: bool = True) -> UnitBlock:
    """Return the block of users or of items, with ``size`` parameters in a row."""
    columns = {"precision": size * (size + 1) // 2, "natural_mean": size}
    return UnitBlock(name, Gaussian("packed"), columns, held)


class MatrixFactorization(
    ReadsWholeData, Extensible, Streamed, Componentwise[Summary], ConjugateModel[Ratings, Summary]
):
    """The model y_ij ~ N(μ + b_i + c_j + u_iᵀ v_j, σ²), u, v ~ N(0, c I).

    If it is hierarchical, (u, b) and (v, c) have a mean and a full covariance matrix each, of which
    the object holds a normal-Wishart distribution. If users have scales, τ_i ~ Gamma(a, a) divides
    the variance of user i's noise and the covariance matrix of (u_i, b_i). Given τ_i, q has a
    Gaussian with τ_i times the precision matrix below. It holds hyperparameters only. Every user
    has one Gaussian over (u, b), or over u without biases. Its natural parameters are rows of
    ``users_precision`` (n_users, D (D + 1) / 2), which holds lower triangles, and of
    ``users_natural_mean`` (n_users, D). The arrays of items are called ``items_precision`` and
    ``items_natural_mean``. Items are always rows of q. Users are rows of q in batch mode
    (``holds_users``) unless they have scales, and otherwise local variables, whose distributions
    every visit infers anew.

    Parameters
    ----------
    n_components : int
    n_items : int
    biases, fit_intercept, hierarchical, effects_of_raters : bool
    user_scales : bool or "auto"
        "auto": a fit adds them at its end, if the bound is higher with them.
    noise_variance, factor_variance, bias_variance : float, "auto" or None
        σ², c and the variance of biases. None derives a value from the variance of the ratings;
        "auto" learns a better one by empirical Bayes, unless all ratings are equal: from this value
        on, or for factors from a larger one on, and not below this one. In a hierarchical model the
        last two are the expected variances of the prior of the covariance matrices.
    dtype : dtype
        Precision of the tables of moments, float64 or float32.

    References
    ----------
    Lim, Teh (2007), Variational Bayesian approach to movie rating prediction; Salakhutdinov, Mnih
    (2008), Probabilistic matrix factorization, and Bayesian probabilistic matrix factorization
    using Markov chain Monte Carlo; Paisley et al., SVI+, section IV-A.
    """

    learns_soon = True
    keeps_sample = False
    recommended: ClassVar[Recommended] = {
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
        hierarchical: bool,
        user_scales: bool | str,
        effects_of_raters: bool,
        noise_variance: float | str | None,
        factor_variance: float | str | None,
        bias_variance: float | str | None,
        dtype: DTypeLike,
    ):
        self.n_components = int(n_components)
        self.n_items = n_items
        self.biases = biases
        self.fit_intercept = fit_intercept
        self.hierarchical = hierarchical
        self.waiting, self.user_scales = user_scales == "auto", user_scales is True
        # a, the shape of the prior of users' precisions τ. Without scales, τ is 1.
        self.shape = FIRST_SHAPE if self.user_scales else np.inf
        # The distributions of the means and the precisions of rows, which :meth:`resolved` sets,
        # and the effects of users on items, which :meth:`with_whole_data` sets.
        self.hierarchy: Hierarchy | None = None
        self.effects_of_raters = effects_of_raters
        self.raters: Raters | None = None
        self._asked = {"noise_variance": noise_variance, "factor_variance": factor_variance}
        if biases:
            self._asked["bias_variance"] = bias_variance
        self.learns = tuple(name for name, value in self._asked.items() if value == "auto")
        self.noise_variance = self.factor_variance = self.bias_variance = 1.0
        # Smallest permitted variances of the noise, and of factors where it is learned;
        # :meth:`resolved` computes them from the ratings.
        self.least_noise = self.least_factors = 0.0
        self.dtype = np.dtype(dtype)
        self.intercept = 0.0
        self.holds_users = False

    # Forms of the model

    @property
    def size(self) -> int:
        """D, the number of parameters of a row."""
        return self.n_components + self.biases

    @property
    def users(self) -> UnitBlock:
        """The parameters of users, which are rows of q or local variables."""
        return _side("users", self.size, self.holds_users)

    @property
    def items(self) -> UnitBlock:
        """The parameters of items, which are always rows of q."""
        return _side("items", self.size)

    def _held(self) -> tuple[UnitBlock, ...]:
        """Return the sides whose rows are in q."""
        return tuple(side for side in (self.users, self.items) if side.held)

    def capabilities(self) -> dict[str, str | None]:
        can = ("draws", "log_partition", "unit_log_partition", "locally_tempered_step")
        return dict.fromkeys(can)

    def factors(self) -> Factors:
        return Factors([side.factor for side in self._held()])

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(Block(tuple(f.names.values()), overwrites=True) for f in self.factors())

    def operations(self, units: Ratings) -> float:
        return 6.0 * len(units.values) * self.size**2

    # Data, prior and starts

    def summary(self, units: Ratings) -> Summary:
        return Summary.of(units)

    def resolved(self, summary: Summary, hold_units: bool = False) -> Self:
        model = copy(self)
        model.intercept = summary.mean if self.fit_intercept else 0.0
        # If all ratings are equal there is nothing to explain, and any positive variance serves.
        # There is also nothing to learn from: the variances would fall towards zero. Given ones
        # stay, however, and a stream that begins with equal ratings may go on with others.
        scale = summary.variance
        if self.equal_ratings(summary) and not self.given_variances:
            scale, model.learns, model.hierarchical = 1.0, (), False
            model.waiting, model.user_scales, model.shape = False, False, np.inf
        model.holds_users = hold_units and not model.user_scales
        # Without an intercept, products of factors are as large as the ratings themselves.
        square = scale if self.fit_intercept else scale + summary.mean**2
        model.least_noise = _LEAST_NOISE[self.dtype.itemsize] * square
        for name, value in self._asked.items():
            power, share = _SHARES[name]
            setattr(model, name, value if isinstance(value, float) else share * scale**power)
        model.least_factors = model.factor_variance
        if "factor_variance" in model.learns:
            model.factor_variance *= _START_OF_FACTORS / _SHARES["factor_variance"][1]
        if not isinstance(self._asked["noise_variance"], float):
            model.noise_variance = max(model.noise_variance, model.least_noise)
        model._check_precision(square)
        model.hierarchy = Hierarchy.of(model.variances) if model.hierarchical else None
        return model

    def least_weight_of_fit(self, summary: Summary) -> float:
        # Data are counted in users or in ratings.
        return least_weight_of_growing_fit(self.n_components, summary.seen / summary.ratings)

    def with_whole_data(self, units: Ratings) -> Self:
        if self.hierarchy is None or not self.effects_of_raters or units.in_parts:
            return self
        model = copy(self)
        model.raters = Raters.of(units, self.variances)
        return model

    def _check_precision(self, scale: float) -> None:
        """Refuse variances at which the bound would be rounding.

        ``scale`` is the variance of the ratings around the intercept, or around zero without one.
        """
        least = self.least_noise
        if self.noise_variance < least:
            single = ", or ratings of dtype float64" if self.dtype.itemsize == 4 else ""
            what = "variance" if self.fit_intercept else "mean square"
            raise ValueError(
                f"noise_variance={self.noise_variance:g} is too small beside the {what} of the "
                f"ratings, {scale:g}: floating-point numbers would keep no digit of the lower "
                f"bound. Give at least {least:g}{single}."
            )
        if self.biases and self.bias_variance > _LARGEST_BIASES * self.noise_variance:
            raise ValueError(
                f"bias_variance={self.bias_variance:g} is too large beside the variance of the "
                f"noise, {self.noise_variance:g}: floating-point numbers could not tell biases of "
                f"users from those of items. Give at most {_LARGEST_BIASES:g} times that of the "
                "noise."
            )

    def equal_ratings(self, summary: Summary) -> bool:
        """Return whether the ratings differ by no more than rounding errors."""
        rounding = 8 * np.finfo(self.dtype).eps * max(abs(summary.low), abs(summary.high))
        return summary.variance <= rounding**2

    @property
    def given_variances(self) -> bool:
        """Whether no variance depends on the ratings."""
        return all(isinstance(value, float) for value in self._asked.values())

    @property
    def variances(self) -> np.ndarray:
        """Prior variances of the parameters of a row, of shape (D,).

        Those of a hierarchical model are expected, before any row is known.
        """
        last = [self.bias_variance] if self.biases else []
        return np.array([self.factor_variance] * self.n_components + last, dtype=float)

    def row_prior(self, side: str) -> Natural:
        """Return λ₀ of one row of a side that has no ratings."""
        if self.hierarchy is not None:
            return packed(self.hierarchy.of_side(side))
        precision = np.diag(1.0 / self.variances)
        return {
            "precision": precision[lower_triangle(self.size)],
            "natural_mean": np.zeros(self.size),
        }

    def prior(self, summary: Summary) -> Natural:
        return self._prior()

    def _prior(self) -> Natural:
        result: Natural = {}
        for side in self._held():
            result |= side.factor.rename(self.row_prior(side.name))
        if (shifts := self.shifts_of_items()) is not None:
            result["items_natural_mean"] = result["items_natural_mean"] + shifts
        return result

    def shifts_of_items(self) -> np.ndarray | None:
        """Return what raters add to the natural means of items' priors, (n_items, D), if any."""
        if self.raters is None or self.hierarchy is None:
            return None
        found: np.ndarray = self.raters.offsets @ self.hierarchy.of_side("items").precision
        return found

    def prior_of_rows(self, side: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean, (D,), and the covariance matrix, (D, D), of rows without ratings."""
        if self.hierarchy is None:
            return np.zeros(self.size), np.diag(self.variances)
        found = self.hierarchy.of_side(side)
        covariance = np.linalg.inv(found.precision)
        return covariance @ found.natural_mean, covariance

    def _n_rows(self, side: UnitBlock, summary: Summary) -> int:
        return summary.n_users if side.name == "users" else self.n_items

    def init(
        self, units: Ratings, summary: Summary, prior: Natural, random_state: np.random.RandomState
    ) -> Natural:
        """Draw means with a tenth of the prior's standard deviation; precisions are the prior's."""
        result: Natural = {}
        # Items are drawn first, so that their start does not depend on the users. Users take only
        # one number from `random_state`, so that later draws do not depend on how many they are.
        for side in reversed(self._held()):
            n = self._n_rows(side, summary)
            start = self._natural_around(0.1 * random_state.standard_normal((n, self.size)), 0.0)
            result |= side.factor.rename(start)
            random_state = np.random.RandomState(random_state.randint(2**31 - 1))
        return result

    def started_at(
        self, given: Given, usual: Callable[[], Natural], summary: Summary, prior: Natural
    ) -> Natural:
        """Return items with the ``components`` as the means of their factors.

        They are as narrow as the posterior of an average item. Users start as usual, and are the
        first to be updated.
        """
        means = np.zeros((self.n_items, self.size))
        means[:, : self.n_components] = given["components"].T
        standardized = means / np.sqrt(self.variances)
        start = self._natural_around(standardized, summary.n_ratings / self.n_items)
        return usual() | self.items.factor.rename(start)

    def reordered(
        self, q: Natural, prior: Natural, order: np.ndarray
    ) -> tuple[Self, Natural, Natural]:
        moved: Natural = {}
        for side in self._held():
            moved |= side.factor.rename(self.reordered_rows(side.factor.pick(q), order))
        model = self.turned(np.eye(self.size)[self._order_of_parameters(order)])
        return model, prior if self.hierarchy is None else model._prior(), moved

    def turned(self, rotation: np.ndarray) -> Self:
        """Return the model after its factors, but not biases, were turned by a matrix, (D, D)."""
        model = copy(self)
        model.hierarchy = None if self.hierarchy is None else self.hierarchy.turned(rotation)
        model.raters = None if self.raters is None else self.raters.turned(rotation)
        return model

    def _order_of_parameters(self, order: np.ndarray) -> np.ndarray:
        """Return the order of the parameters of a row, given that of the factors."""
        return np.append(order, self.n_components) if self.biases else order

    def reordered_rows(self, natural: Natural, order: np.ndarray) -> Natural:
        """Return natural parameters, or statistics, of rows whose factors have another order."""
        order = self._order_of_parameters(order)
        rows, columns = lower_triangle(self.size)
        high = np.maximum(order[rows], order[columns])
        places = high * (high + 1) // 2 + np.minimum(order[rows], order[columns])
        return {
            "precision": np.ascontiguousarray(natural["precision"][:, places]),
            "natural_mean": np.ascontiguousarray(natural["natural_mean"][:, order]),
        }

    def random_natural(
        self,
        summary: Summary,
        prior: Natural,
        rng: np.random.Generator,
        block: Block | None = None,
    ) -> Natural:
        """Return Gaussians with random means, as narrow as the posterior of an average row."""
        result: Natural = {}
        for side in self._held():
            if block is None or side.owns(block.keys):
                n = self._n_rows(side, summary)
                start = rng.standard_normal((n, self.size))
                result |= side.factor.rename(self._natural_around(start, summary.n_ratings / n))
        return result

    def _natural_around(self, standardized: np.ndarray, n_ratings: float) -> Natural:
        """Return Gaussians with given means and the precision that ``n_ratings`` would lead to.

        Means are in units of the prior's standard deviation. The precision is that of the
        posterior after ``n_ratings`` ratings, if rows of the other side have the squares that the
        prior expects.
        """
        variances = self.variances
        squares = variances.copy()
        if self.biases:
            squares[-1] = 1.0
        diagonal = 1.0 / variances + n_ratings / self.noise_variance * squares
        precision = np.diag(diagonal)[lower_triangle(self.size)]
        return {
            "precision": np.tile(precision, (len(standardized), 1)),
            "natural_mean": standardized * np.sqrt(variances) * diagonal,
        }

    # Visits

    def visit(
        self,
        q: Natural,
        units: Ratings,
        t: Tempering = Tempering(),  # noqa: B008
        *,
        block: Block | None = None,
        rng: np.random.Generator | None = None,
        unit_temperatures: UnitTemperatures | None = None,
        separate_noise: bool = False,
        evaluation: bool = False,
        known: Known | None = None,
        workers: Workers = SEQUENTIAL,
    ) -> FoldingVisit | RowsVisit:
        settings = (t, unit_temperatures, separate_noise)
        if rng is not None:
            return FoldingVisit(self, self.expectations(q, rng), *settings)
        held = self.holds_users and not evaluation
        sides = ("users", "items") if held else ("items",)
        found = self._moments_of_sides(sides, q, known, workers)
        moments = {side: entry[-1] for side, entry in found.items()}
        if not held:
            return FoldingVisit(self, moments["items"], *settings, found, statistics=not evaluation)
        visited, other = self.users, "items"
        n_rows = units.n_units
        if block is not None and not visited.owns(block.keys):
            visited, other, n_rows = self.items, "users", units.n_columns
        row_statistics = RowsOfSteps.of(visited, n_rows, self.dtype)
        own, across = moments[visited.name], moments[other]
        return RowsVisit(
            self, across, *settings, found, visited.name, own, units.weights, row_statistics
        )

    def _moments_of_sides(
        self, sides: tuple[str, ...], q: Natural, known: Known | None, workers: Workers = SEQUENTIAL
    ) -> Known:
        """Return the moments of some sides.

        Moments in ``known`` are reused if they were computed from the same arrays of q.
        """
        known = {} if known is None else known
        arrays = {side: (q[f"{side}_precision"], q[f"{side}_natural_mean"]) for side in sides}
        found: Known = {}
        for side, (precision, natural_mean) in arrays.items():
            entry = known.get(side)
            if entry is not None and entry[0] is precision and entry[1] is natural_mean:
                found[side] = entry
        # Moments that are not reused are released first, to free memory for new ones.
        known.clear()
        for side, natural in arrays.items():
            if side not in found:
                n_rows = len(natural[0])
                moments = self.empty_moments(n_rows)
                workers.share(partial(self.moments_of, *natural, moments), n_rows, _ROWS)
                found[side] = (*natural, moments)
        return found

    def _moments_of_items(self, q: Natural, known: Known | None) -> Moments:
        return self._moments_of_sides(("items",), q, dict(known or {}))["items"][-1]

    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> Moments:
        """Return the moments of items, or those of one draw of the items if ``rng`` is given."""
        if rng is None:
            return self.moments_of(q["items_precision"], q["items_natural_mean"])
        factor = self.items.factor
        return self.moments_of_values(factor.family.sample(factor.pick(q), rng)["value"])

    def moments_of_values(self, value: np.ndarray) -> Moments:
        """Return the moments of rows with exact values, (n_rows, D)."""
        nothing = np.zeros((len(value), 0))
        return Moments(value, self.table_of(value), nothing, nothing)

    def table_of(self, value: np.ndarray) -> np.ndarray:
        """Return the table of second moments of rows with exact values."""
        d = self.n_components
        parts = [value[:, :d], np.ones((len(value), 1)), value[:, d:]]
        g = np.concatenate(parts, axis=1)
        rows, columns = lower_triangle(g.shape[1])
        table = np.zeros((len(g), kernels().n_columns(d, self.biases)), dtype=self.dtype)
        for part in blocks(len(g), len(rows)):
            table[part, : len(rows)] = g[part, rows] * g[part, columns]
        return table

    def moments_of(
        self,
        precision: np.ndarray,
        natural_mean: np.ndarray,
        found: Moments | None = None,
        rows: slice = slice(None),
    ) -> Moments:
        """Return means and second moments of Gaussian rows.

        If arrays are given as ``found``, those of some of the rows are written into them.

        Raises
        ------
        numpy.linalg.LinAlgError
            If a precision is not positive definite.
        """
        if found is None:
            found = self.empty_moments(len(precision))
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
        if np.isnan(found.log_det[rows]).any():
            raise np.linalg.LinAlgError("Matrix is not positive definite")
        return found

    def empty_moments(self, n_rows: int) -> Moments:
        shape = (n_rows, kernels().n_columns(self.n_components, self.biases))
        table = np.empty(shape, dtype=self.dtype)
        return Moments(
            np.empty((n_rows, self.size)), table, np.empty(n_rows), np.empty((n_rows, 2))
        )

    def add_up(
        self,
        units: Ratings,
        across: Moments,
        weights: np.ndarray | None,
        noise: np.ndarray | None = None,
    ) -> tuple[_Sums, _Sums | None]:
        """Return sums over the ratings of each unit, first without and then with noise.

        The arrays have shape (n_units, …). Sums with noise have the precision of the table.
        """
        width = across.table.shape[1]
        first = kernels().first_linear(self.n_components)

        def empty(n: int, dtype: DTypeLike = float) -> tuple[np.ndarray, np.ndarray]:
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

    def statistics(self, sums: _Sums, factor: float | np.ndarray, out: Natural) -> Natural:
        """Write the expected sufficient statistics of the rows, times a factor, into ``out``."""
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

    def empty_statistics(self, sums: _Sums, prefix: str = "") -> Natural:
        """Return empty arrays for the statistics of the rows, in the precision of their sums."""
        n, dtype = len(sums.second), sums.second.dtype
        return {prefix + key: np.empty((n, m), dtype) for key, m in self.items.columns.items()}

    @property
    def _column_of_one(self) -> int:
        """The column of a table that has the square of 1, or E[τ] of users with scales."""
        d = self.n_components
        return d * (d + 1) // 2 + d

    def n_ratings(self, sums: _Sums) -> np.ndarray:
        """Return the weighted number of ratings of each row, (n_rows,)."""
        return sums.second[:, self._column_of_one]

    def squared_errors(self, sums: _Sums, own: np.ndarray) -> np.ndarray:
        """Return E Σ (r − u v)² over the ratings of each row, given the table of its moments."""
        errors, d = np.empty(len(own)), self.n_components
        first = kernels().first_linear(d)
        kernels().squared_errors(own, *sums, d, int(self.biases), first, errors)
        return errors

    def energies(self, sums: _Sums, errors: np.ndarray, scales: Scales | None = None) -> np.ndarray:
        """Return E log p of the ratings of each row in nats, given squared errors, (n_rows,)."""
        # E log N(r | u v, σ²) = −½ log 2πσ² − E (r − u v)² / 2σ², and E (r − u v)² is
        # r² − 2 r m_u m_v + Σ_ij E u_i u_j E v_i v_j, as users and items are independent in q.
        log_variances: float | np.ndarray = np.log(self.noise_variance)
        if scales is not None:
            log_variances = log_variances - scales.log_mean
        each = errors / self.noise_variance
        return -0.5 * (self.n_ratings(sums) * (LOG_2PI + log_variances) + each)

    def log_priors(self, side: str, rows: Moments, scales: Scales | None = None) -> np.ndarray:
        """Return E log p of the parameters of each row of a side in nats, (n_rows,)."""
        of_scales = 0.0 if scales is None else 0.5 * self.size * scales.log_mean
        if self.hierarchy is not None:
            found = of_scales + self._expected_log_priors(self.hierarchy.of_side(side), rows)
            if side == "items" and self.raters is not None:
                found = found + self.raters.log_priors(rows.mean, *self.hierarchy.expected(side))
            return found
        # E log N(u | 0, V) = −½ Σ_i {log 2πV_i + E u_i² / V_i}
        variances = self.variances
        squared = rows.squares[:, 0] / self.factor_variance
        if self.biases:
            squared = squared + rows.squares[:, 1] / self.bias_variance
        return of_scales - 0.5 * (self.size * LOG_2PI + np.log(variances).sum() + squared)

    def _expected_log_priors(self, prior: GaussianPrior, rows: Moments) -> np.ndarray:
        """Return E log p of the parameters of each row under a learned prior."""
        # E log N(x | μ, Λ⁻¹) = xᵀ E[Λ μ] − ½ tr E[Λ] x xᵀ − ½ E[μᵀ Λ μ] + constant, in the columns
        # of the table. All but the constant are multiplied by the precisions τ of users.
        first, second = columns_of_moments(self.n_components, self.biases)
        weights = np.zeros(rows.table.shape[1])
        weights[first] = prior.natural_mean
        np.add.at(weights, second, -0.5 * prior.precision)
        weights[self._column_of_one] = -0.5 * prior.quadratic
        # Unlike a product, `einsum` makes no copy of a table of float32 in double precision.
        found: np.ndarray = np.einsum("nk,k->n", rows.table, weights)
        return found + 0.5 * (prior.log_det - self.size * LOG_2PI)

    def entropies(self, log_det: np.ndarray) -> np.ndarray:
        """Return the entropy of the Gaussian of each row in nats, (n_rows,)."""
        # H[N(m, Λ⁻¹)] = ½ {D (1 + log 2π) − log|Λ|}
        return 0.5 * (self.size * (1.0 + LOG_2PI) - log_det)

    def sums_of_users(self, units: Ratings, across: Moments) -> Natural:
        """Return sums over the ratings of each user, given items, without the factor 1/σ².

        They are the statistics of the users' Gaussians and, as ``"ratings"``, the number of ratings
        and their expected squares about the intercept and the items' biases, (n_users, 2).
        """
        columns = {**self.users.columns, "ratings": 2}
        found = {key: np.empty((units.n_units, n)) for key, n in columns.items()}
        # Sums of all users together would be several times as large as these statistics.
        for rows in blocks(units.n_units, across.table.shape[1]):
            some = units.take(rows)
            sums, _ = self.add_up(some, across, some.rating_weights)
            own = {key: found[key][rows] for key in self.users.columns}
            self.statistics(sums, self.noise_variance, own)
            for key, value in (some.known or {}).items():
                if key in own:
                    own[key] += value
            found["ratings"][rows] = self.about_items(sums, some.known)
        return found

    def about_items(self, sums: _Sums, known: Natural | None) -> np.ndarray:
        """Return the number of each user's ratings and their squares about items, (n_users, 2)."""
        nobody = np.zeros(sums.second.shape, dtype=self.dtype)
        nobody[:, self._column_of_one] = 1.0
        found = np.column_stack([self.n_ratings(sums), self.squared_errors(sums, nobody)])
        return found if known is None else found + known["ratings"]

    def per_noise(self, sums: Natural) -> Natural:
        """Return statistics, given sums over ratings that lack the factor 1/σ²."""
        return {key: sums[key] / self.noise_variance for key in self.users.columns}

    def solution(
        self,
        statistics: Natural,
        t: Tempering = Tempering(),  # noqa: B008
        known: Natural | None = None,
    ) -> Natural:
        """Return the natural parameters of users' rows, given their statistics.

        ``known`` has sums over earlier ratings of the users, without the factor 1/σ².
        """
        if known is not None:
            earlier = self.per_noise(known)
            statistics = {key: value + earlier[key] for key, value in statistics.items()}
        return self.users.fold_in(statistics, self.row_prior("users"), t)

    @property
    def reads_evidence(self) -> bool:
        """Whether hyperparameters are learned, for which steps collect :data:`EVIDENCE`."""
        return bool(self.learns) or self.hierarchy is not None or self.user_scales

    def _columns_of_evidence(self) -> int:
        """The number of columns of the table whose sums over users are evidence."""
        return 0 if self.hierarchy is None else kernels().n_columns(self.n_components, self.biases)

    def evidence_of_ratings(self, units: Ratings, energy: float) -> np.ndarray:
        """Return the part of the evidence about variances that ratings give.

        It consists of the number of the ratings and of their expected squared error.
        """
        count = units.n_observations
        error = -2.0 * self.noise_variance * energy
        error -= self.noise_variance * count * (LOG_2PI + np.log(self.noise_variance))
        evidence = np.zeros(6 + self._columns_of_evidence())
        evidence[3:5] = count, error
        return evidence

    def evidence_of_users(
        self, users: Moments, weights: np.ndarray, scales: Scales | None = None
    ) -> np.ndarray:
        """Return the part of the evidence about variances that users give.

        They are sums of expected squares, the number of users, the spread of their scales and, in
        a hierarchical model, sums of moments.
        """
        spread = 0.0 if scales is None else weights @ scales.spread
        sums = () if self.hierarchy is None else np.einsum("n,nk->k", weights, users.table)
        return np.array([*(weights @ users.squares), weights.sum(), 0.0, 0.0, spread, *sums])

    def jitter(self, q: Natural, size: float, rng: np.random.Generator, prior: Natural) -> Natural:
        """Add N(0, size² σ_μ²) to items' means, σ_μ being their prior's standard deviation.

        Users are not displaced, because their next update follows the items anyway, and because a
        user of weight 2 would get one draw where two equal users get two.
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

    # Bounds

    def kl(
        self,
        q: Natural,
        prior: Natural,
        known: Known | None = None,
        workers: Workers = SEQUENTIAL,
    ) -> float:
        items = self._moments_of_items(q, known)
        kl = float(-(self.log_priors("items", items) + self.entropies(items.log_det)).sum())
        if self.hierarchy is None:
            return kl
        if self.raters is not None:
            kl += self.raters.kl(self.hierarchy.of_side("items").precision)
        return kl + self.hierarchy.kl

    def entropy(self, q: Natural, known: Known | None = None) -> float:
        return float(self.entropies(self._moments_of_items(q, known).log_det).sum())

    def learned(
        self,
        q: Natural,
        prior: Natural,
        step: LocalStep | None,
        rho: float,
        scale: float,
        late: bool = True,
    ) -> tuple[Self, Natural, Natural]:
        """Move the learned hyperparameters towards those that maximise the bound given q."""
        if step is None or not (late and self.reads_evidence):
            return self, prior, q
        evidence = scale * step.statistics[EVIDENCE]
        of_users, of_biases, n_users, count, error, spread, *sums = evidence
        items = self.expectations(q)
        squares = items.squares.sum(axis=0)
        n_rows = n_users + self.n_items
        best = {
            "noise_variance": error / count,
            "factor_variance": (of_users + squares[0]) / (n_rows * self.n_components),
            "bias_variance": (of_biases + squares[1]) / n_rows,
        }
        model, hierarchy = copy(self), self.hierarchy
        # Visits at other temperatures have no scales, and a spread of zero.
        if self.user_scales and spread < 0.0:
            model.shape += rho * (best_shape(spread / n_users, self.shape) - self.shape)
        if hierarchy is not None:
            of_items = np.einsum("n,nk->k", np.ones(self.n_items), items.table)
            of_rows = self._rows(self.n_items, of_items)
            if self.raters is not None:
                of_rows = self.raters.without_effects(of_rows, items.mean)
            hierarchy = hierarchy.updated(self._rows(n_users, np.array(sums)), of_rows, rho)
            if self.raters is not None:
                expected = hierarchy.expected("items")
                model.raters = self.raters.updated(items.mean, *expected, rho, 1.0 / scale)
            d = self.n_components
            best["factor_variance"] = hierarchy.best_variance(slice(d))
            if self.biases:
                best["bias_variance"] = hierarchy.best_variance(slice(d, None))
        for name in self.learns:
            old = getattr(self, name)
            setattr(model, name, old + rho * (max(best[name], _SMALLEST_FACTOR * old) - old))
        if "noise_variance" in self.learns:
            model.noise_variance = max(model.noise_variance, self.least_noise)
        if "factor_variance" in self.learns:
            model.factor_variance = max(model.factor_variance, self.least_factors)
        if hierarchy is not None:
            model.hierarchy = replace(hierarchy, variances=model.variances)
        return model, model._prior(), q

    def extended(
        self, q: Natural, prior: Natural, step: LocalStep
    ) -> tuple[Self, Natural, Natural] | None:
        gains = step.statistics[GAINS]
        best = int(np.argmax(gains))
        if not gains[best] > 0.0:
            return None
        model = copy(self)
        model.waiting, model.user_scales, model.shape = False, True, float(SHAPES[best])
        # Users with scales are local variables.
        model.holds_users = False
        return model, model._prior(), {key: q[key] for key in model.factors().keys}

    def _rows(self, number: float, sums: np.ndarray) -> Rows:
        """Return the moments of rows, given their number and the sums of their tables."""
        first, second = columns_of_moments(self.n_components, self.biases)
        return Rows(number, sums[self._column_of_one], sums[first], sums[second])

    # Operations that only some annealing methods need

    def log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> np.ndarray:
        """Return log C(x) of all ratings in nats, of the shape of ``x``.

        It is exact, because the integral of N(y; f, σ²)^x over y does not depend on f.
        """
        return summary.n_ratings * self._log_volume(x)

    def unit_log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> np.ndarray:
        """Return log C(x) of one rating in nats, of the shape of ``x``.

        The value for a user is this value times the number of the user's ratings.
        """
        return self._log_volume(x)

    def _log_volume(self, x: np.ndarray) -> np.ndarray:
        return 0.5 * ((1.0 - x) * (LOG_2PI + np.log(self.noise_variance)) - np.log(x))

    # Functions of the fitted parameters

    def users_of(self, sums: Natural) -> tuple[Moments, Scales | None]:
        """Return the moments of users, and q(τ) if they have scales, given sums over ratings."""
        natural = self.solution(self.per_noise(sums))
        found = self.moments_of(natural["precision"], natural["natural_mean"])
        if not self.user_scales:
            return found, None
        scales = scales_of(self, sums["ratings"], natural, found.mean)
        # E[x xᵀ] = m mᵀ + E[1/τ] P⁻¹
        fixed, wider = self.table_of(found.mean), scales.inverse_mean.astype(self.dtype)[:, None]
        return found._replace(table=fixed + wider * (found.table - fixed)), scales

    def mean_of_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Return the expected ratings of pairs of rows, given their means, of shape (n_pairs,)."""
        d = self.n_components
        factors = np.einsum("nk,nk->n", users[:, :d], items[:, :d])
        return self.intercept + factors + (users[:, d:] + items[:, d:]).sum(axis=1)
