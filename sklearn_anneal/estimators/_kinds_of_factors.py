"""``activation_prior="auto"``: whether Gaussian factors predict missing cells better.

The lower bound does not say so: it is the probability of the observed cells, and prefers factors
that are mostly off in pictures whose missing cells they predict worse. A share of the observed
cells is therefore held out of two short fits, of which one learns the probabilities of activations
and the other one has all factors on. Gaussian factors are taken if they predict these cells with
smaller errors of rows, or a higher log density, by some standard errors, and are not behind in the
other. Otherwise the data may well have sparse factors, whose loadings they determine. Errors of
rows are compared on a log scale: sums of squares depend on the few rows that have outliers, and
vary so much that they leave the question open. Columns with hardly any noise dominate the densities
of some tables. Sparse factors can have far higher densities there and predict cells hundreds of
deviations off, as in pixels that are hardly ever lit. If errors and densities contradict each other
at last, errors therefore decide, if Gaussian factors are ahead by one standard error more.

Most pictures need no such pair of fits. Sparse factors that start at the rotated loadings of the
Gaussian fit are within a few passes near the best that they can be, and if they are clearly behind
then, that decides. Otherwise they can end at another optimum, which predicts far worse.

Sparse factors can predict worse although they have drawn the data, where there is hardly any noise:
local steps then stop early. Neither the rise of the bound nor the probabilities that short fits
learn tell such tables from pictures.

A kind whose short fit fails is not compared: the other one is taken, and a warning says why.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import norm

from .._stack import warn
from ..data.parted_units import PartedUnits
from ..data.units import Rows, cell_patterns
from ..models._gaussian_factors import independent
from ..models._points import n_distinct

if TYPE_CHECKING:
    from .spike_slab_factor_analysis import AnnealedSpikeSlabFactorAnalysis

# The share of the observed cells that is held out at a time, and the least number of cells that can
# decide.
_SHARE, _LEAST = 0.1, 100
# Shares are held out one after another, up to the first number, or up to the second one while
# Gaussian factors are ahead, until one kind is ahead by the third number of standard errors.
# Gaussian factors are taken if they are ahead by the fourth one.
_SHARES, _MORE_SHARES, _CLEAR, _ENOUGH = 3, 6, 3.0, 2.0
# The largest number of rows that are compared, and the passes and tolerance of a short fit.
_ROWS, _PASSES, _TOL = 2000, 20, 1e-2
# The passes of sparse factors that start at Gaussian ones. A further share is held out of these
# fits if Gaussian factors are ahead by the second number of standard errors, and they are taken if
# it is the third one.
_EARLY_PASSES, _PROMISING, _EARLY_CLEAR = 6, 1.0, 3.5


class Scores(NamedTuple):
    """Scores of held-out cells after two short fits, one with learned probabilities.

    Those of a short fit that has failed are NaN.
    """

    # Roots of the mean squared errors, in standard deviations of the columns.
    learned_error: float
    gaussian_error: float
    # Mean log densities, in nats.
    learned_log_density: float
    gaussian_log_density: float
    # By how much Gaussian factors are better, in standard errors: in errors of rows or in their log
    # densities, whichever is clearer. If these contradict each other, it is one less than in
    # errors, but at least 0. It is 0 if both short fits have failed, and infinite if one has.
    advantage: float

    @property
    def prefer_gaussian(self) -> bool:
        """Whether Gaussian factors predict better, beyond what can be chance."""
        return self.advantage > _ENOUGH

    def in_words(self) -> str:
        """Return the scores, and the decision, for ``verbose``."""
        kind = "Gaussian factors" if self.prefer_gaussian else "learned probabilities"
        if np.isinf(self.advantage):
            return f"held-out cells: a short fit failed; the fit takes {kind}"
        return (
            f"held-out cells: error {self.learned_error:.4f} with learned probabilities, "
            f"{self.gaussian_error:.4f} with Gaussian factors; the fit takes {kind}"
        )


def compared(
    estimator: AnnealedSpikeSlabFactorAnalysis, units: Rows, random_state: np.random.RandomState
) -> Scores | None:
    """Return the scores of cells that are held out of rows with missing cells.

    Priors, sweeps and the number of factors are those of the estimator in both fits. At most 2,000
    rows are drawn, in proportion to their weights. None is returned if there are too few cells for
    a comparison.
    """
    rows = _drawn(units, random_state)
    # Sums do not depend on the order in memory, and squares of float32 have room.
    rows = Rows(np.ascontiguousarray(rows.X, np.float64), rows.weights, patterns=rows.patterns)
    observed, drawn = ~np.isnan(rows.X), random_state.random_sample(rows.X.shape)
    seed = random_state.randint(2**31 - 1)
    weights = np.ones(rows.n_units) if rows.weights is None else rows.weights

    @cache
    def trial(i: int) -> _Trial | None:
        """Hold out a share of the cells; return None if they are too few."""
        held = observed & (drawn >= i * _SHARE) & (drawn < (i + 1) * _SHARE)
        # Every column keeps some of its cells.
        held &= (observed & ~held).sum(axis=0) > 1
        return _Trial(estimator, rows, held, seed) if held.sum() >= _LEAST else None

    def summed(
        scores: Callable[[_Trial], np.ndarray], goes_on: Callable[[int, float], bool], last: bool
    ) -> Any:
        """Return scores of all cells that were held out, their weight, and the advantage."""
        # Squared errors and log densities of both kinds in each row, so far.
        sums, n_cells, advantage, n = np.zeros((2, 2, rows.n_units)), 0.0, 0.0, 0
        while n == 0 or (goes_on(n, advantage) and not np.isnan(sums).any()):
            one = trial(n)
            if one is None:
                break
            sums += scores(one)
            advantage = _advantage(sums, weights, last)
            n_cells += weights @ one.held.sum(axis=1)
            n += 1
        return sums, n_cells, advantage

    sums, n_cells, advantage = summed(_Trial.early_scores, _undecided_early, last=False)
    if not _EARLY_CLEAR < advantage < np.inf:
        sums, n_cells, advantage = summed(_Trial.scores, _undecided, last=True)
    if n_cells == 0.0:
        return None
    _warn_of_failures(estimator, _failed(sums))
    squares, log_densities = sums @ weights / n_cells
    learned_error, gaussian_error = (float(np.sqrt(x)) for x in squares)
    learned, gaussian = (float(x) for x in log_densities)
    return Scores(learned_error, gaussian_error, learned, gaussian, advantage)


def n_explained(units: Rows | PartedUnits[Rows]) -> int:
    """Return the number of factors that rows can explain: that of distinct ones, or of columns.

    A row of weight 2 is two equal rows. Those of data in parts are not compared.
    """
    if isinstance(units, PartedUnits):
        return units.n_rows
    X: Any = units.X
    return n_distinct(np.where(np.isnan(X), np.inf, X), X.shape[1])


def _undecided_early(n: int, advantage: float) -> bool:
    """Return whether a further share is held out of fits that start alike, after ``n`` of them."""
    return n < _SHARES and _PROMISING < advantage <= _EARLY_CLEAR


def _undecided(n: int, advantage: float) -> bool:
    """Return whether a further share is held out of usual fits, after ``n`` of them."""
    more = n < _SHARES or (advantage > 0.0 and n < _MORE_SHARES)
    return more and abs(advantage) <= _CLEAR


def _drawn(units: Rows, random_state: np.random.RandomState) -> Rows:
    """Return at most 2,000 rows, drawn in proportion to their weights.

    Rows without weight are left out. A heavy row can be drawn several times, and then has that
    multiple of the mean weight.
    """
    weights = units.weights
    n = units.n_units if weights is None else np.count_nonzero(weights)
    if weights is None or n <= _ROWS or np.ptp(weights[weights > 0]) == 0:
        rows = units.subset(_ROWS, random_state)
        assert isinstance(rows, Rows)
        # A column may have cells in rows without weight alone.
        own = rows.weights
        return rows if own is None or own.all() else rows.take(np.flatnonzero(own))
    # Points at equal distances along the weights of the rows in a random order.
    order = random_state.permutation(np.flatnonzero(weights))
    ends = np.cumsum(weights[order] / weights.max())
    points = (random_state.random_sample() + np.arange(_ROWS)) * (ends[-1] / _ROWS)
    numbers = np.zeros(units.n_units)
    places = np.minimum(np.searchsorted(ends, points, side="right"), n - 1)
    np.add.at(numbers, order[places], 1.0)
    rows = units.take(np.flatnonzero(numbers))
    rows.weights = numbers[numbers > 0] * (weights.sum() / n)
    return rows


def _warn_of_failures(estimator: AnnealedSpikeSlabFactorAnalysis, failed: np.ndarray) -> None:
    """Warn if short fits have failed; ``failed`` has one number for each kind."""
    if not failed.any():
        return
    kinds = "learned probabilities", "Gaussian factors"
    which = " and with ".join(kinds[i] for i in np.flatnonzero(failed))
    taken = kinds[int(failed[0] and not failed[1])]
    warn(
        f"activation_prior='auto' takes {taken} without a comparison, because short fits with "
        f"{which} failed: {estimator._advice}",
    )


def _failed(sums: np.ndarray) -> np.ndarray:
    """Return which kinds have scores that are NaN, (2,), given scores of rows, (2, 2, n_rows)."""
    return np.asarray(np.isnan(sums).any(axis=(0, 2)))


def _advantage(sums: np.ndarray, weights: np.ndarray, last: bool) -> float:
    """Return by how much Gaussian factors are better, given scores of rows, (2, 2, n_rows).

    The scores of a kind whose fit has failed are NaN. ``weights`` are those of the rows. Scores
    that contradict each other decide nothing unless no others follow.
    """
    failed = _failed(sums)
    if failed.any():
        return 0.0 if failed.all() else np.inf if failed[0] else -np.inf
    squares, (learned_log_density, log_density) = sums
    usual = np.median(squares[squares > 0]) if squares.any() else 1.0
    learned_error, error = np.log1p(squares / usual)
    differences = np.array([learned_error - error, log_density - learned_log_density]) * weights
    errors = np.sqrt((differences**2).sum(axis=1))
    if not (errors > 0).all():
        return 0.0
    found = differences.sum(axis=1) / errors
    if found[0] * found[1] <= 0:
        return max(float(found[0]) - 1.0, 0.0) if last else 0.0
    return float(found[np.argmax(np.abs(found))])


class _Trial:
    """Short fits to rows without some of their cells, and scores of these cells.

    Scores are squared errors, in variances of the columns, and log densities of each row, of
    learned probabilities and of Gaussian factors, (2, 2, n_rows); NaN if the fit of a kind fails.
    """

    def __init__(
        self, estimator: AnnealedSpikeSlabFactorAnalysis, rows: Rows, held: np.ndarray, seed: int
    ):
        self.estimator, self.rows, self.held, self.seed = estimator, rows, held, seed
        asked = estimator.n_components
        self.n_components = n_explained(rows) if asked is None else asked
        gaps = np.where(held, np.nan, rows.X)
        self.train = Rows(gaps, rows.weights, patterns=cell_patterns(gaps))
        self.spread = _spread(rows)

    def early_scores(self) -> np.ndarray:
        """Return the scores if sparse factors start at the Gaussian ones, and make few passes."""
        gaussian, near = self._of_gaussian
        if near is None:
            learned = np.full(gaussian.shape, np.nan)
        else:
            learned = self._fitted("learned", _EARLY_PASSES, near)[0]
        return np.stack([learned, gaussian], axis=1)

    def scores(self) -> np.ndarray:
        """Return the scores if sparse factors start as they do in a fit."""
        return np.stack([self._fitted("learned", _PASSES)[0], self._of_gaussian[0]], axis=1)

    @cached_property
    def _of_gaussian(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Scores of Gaussian factors, and loadings at which sparse factors can start."""
        scores, factors, loadings = self._fitted(1.0, _PASSES)
        if np.isnan(scores).any():
            return scores, None
        near = independent(factors, loadings, self.rows.weights)
        # Factors without loadings would never move.
        return scores, near if near.any(axis=1).all() else None

    def _fitted(
        self, prior: float | str, n_passes: int, near: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the scores of a kind, (2, n_rows), with the factors and the loadings."""
        short = self.estimator._reader().set_params(
            n_components=self.n_components,
            activation_prior=prior,
            annealing="none",
            effort="auto",
            n_init=1,
            batch_size=None,
            max_iter=n_passes,
            tol=max(self.estimator.tol, _TOL),
        )
        try:
            cells, loadings = short._cells_after_fit(
                self.train, np.random.RandomState(self.seed), near
            )
        except np.linalg.LinAlgError:
            nothing = np.full((2, self.rows.n_units), np.nan)
            return nothing, np.empty((0, 0)), np.empty((0, 0))
        X = self.rows.X
        each = ((cells.means - X) / self.spread) ** 2, norm.logpdf(X, cells.means, cells.std)
        scores = np.array([np.where(self.held, of_cells, 0.0).sum(axis=1) for of_cells in each])
        return scores, cells.factors, loadings


def _spread(rows: Rows) -> np.ndarray:
    """Return the standard deviations of the columns, (n_features,).

    They are infinite where all cells are equal, or missing, so that none is held out.
    """
    seen = ~np.isnan(rows.X).all(axis=0)
    X, spread = rows.X[:, seen], np.full(rows.X.shape[1], np.inf)
    if rows.weights is None:
        spread[seen] = np.nanstd(X, axis=0)
    else:
        weights = np.where(np.isnan(X), 0.0, rows.weights[:, None])
        weights /= weights.sum(axis=0)
        deviations = np.nan_to_num(X - np.nansum(weights * X, axis=0))
        spread[seen] = np.sqrt((weights * deviations**2).sum(axis=0))
    spread[spread == 0] = np.inf
    return spread
