"""``activation_prior="auto"``: whether Gaussian factors predict missing cells better.

The lower bound does not say so: it is the probability of the observed cells, and prefers factors
that are mostly off in pictures whose missing cells they predict worse. A share of the observed
cells is therefore held out of two short fits, of which one learns the probabilities of activations
and the other one has all factors on. Gaussian factors are taken if their errors in these cells are
smaller by more than a standard error. Otherwise the data may well have sparse factors, whose
loadings they determine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..data.units import Rows, cell_patterns

if TYPE_CHECKING:
    from .spike_slab_factor_analysis import AnnealedSpikeSlabFactorAnalysis

# The share of the observed cells that is held out at a time, and the least number of cells that can
# decide.
_SHARE, _LEAST = 0.1, 100
# Shares are held out one after another, up to this number, until one kind is ahead by the second
# number of standard errors. Gaussian factors are taken if they are ahead by the third one.
_SHARES, _CLEAR, _ENOUGH = 3, 3.0, 2.0
# The largest number of rows that are compared, and the passes and tolerance of a short fit.
_ROWS, _PASSES, _TOL = 2000, 30, 1e-2


class Errors(NamedTuple):
    """Errors of held-out cells after two short fits, in standard deviations of the columns.

    Attributes
    ----------
    learned, gaussian : float
        The root of the mean squared error with learned probabilities, and with Gaussian factors.
    advantage : float
        The mean squared error of the first less that of the second, in standard errors.
    """

    learned: float
    gaussian: float
    advantage: float

    @property
    def prefer_gaussian(self) -> bool:
        """Whether Gaussian factors predict better, beyond what can be chance."""
        return self.advantage > _ENOUGH

    def in_words(self) -> str:
        """Return the errors, and the decision, for ``verbose``."""
        kind = "Gaussian factors" if self.prefer_gaussian else "learned probabilities"
        return (
            f"held-out cells: error {self.learned:.4f} with learned probabilities, "
            f"{self.gaussian:.4f} with Gaussian factors; the fit takes {kind}"
        )


def compared(
    estimator: AnnealedSpikeSlabFactorAnalysis, units: Rows, random_state: np.random.RandomState
) -> Errors | None:
    """Return the errors of cells that are held out of rows with missing cells.

    Parameters
    ----------
    estimator : AnnealedSpikeSlabFactorAnalysis
        Its priors, sweeps and number of factors are those of both fits.
    units : Rows
        Rows in memory, of which at most 2,000 are drawn.
    random_state : numpy.random.RandomState

    Returns
    -------
    errors : Errors or None
        None if there are too few cells for a comparison.
    """
    rows = units.subset(_ROWS, random_state)
    assert isinstance(rows, Rows)
    observed, drawn = ~np.isnan(rows.X), random_state.random_sample(rows.X.shape)
    seed = random_state.randint(2**31 - 1)
    n_cells, squares, of_rows = 0.0, np.zeros(2), np.zeros(rows.n_units)
    weights = np.ones(rows.n_units) if rows.weights is None else rows.weights
    advantage = 0.0
    for i in range(_SHARES):
        held = observed & (drawn >= i * _SHARE) & (drawn < (i + 1) * _SHARE)
        # Every column keeps some of its cells.
        held &= (observed & ~held).sum(axis=0) > 1
        if held.sum() < _LEAST:
            break
        n_cells += weights @ held.sum(axis=1)
        each = weights * _squared_errors(estimator, rows, held, seed)
        squares += each.sum(axis=1)
        of_rows += each[0] - each[1]
        error = np.sqrt(np.sum(of_rows**2))
        advantage = float(of_rows.sum() / error) if error > 0 else 0.0
        if abs(advantage) > _CLEAR:
            break
    if n_cells == 0.0:
        return None
    learned, gaussian = np.sqrt(squares / n_cells)
    return Errors(float(learned), float(gaussian), advantage)


def _squared_errors(
    estimator: AnnealedSpikeSlabFactorAnalysis, rows: Rows, held: np.ndarray, seed: int
) -> np.ndarray:
    """Return the sums of squared errors of held-out cells in each row, for both kinds, (2, n)."""
    gaps = np.where(held, np.nan, rows.X).astype(rows.X.dtype)
    train = Rows(gaps, rows.weights, patterns=cell_patterns(gaps))
    found = []
    for prior in ("learned", 1.0):
        short = estimator._reader().set_params(
            activation_prior=prior,
            annealing="none",
            effort="auto",
            n_init=1,
            batch_size=None,
            max_iter=min(estimator.max_iter, _PASSES),
            tol=max(estimator.tol, _TOL),
        )
        cells, variances = short._cells_after_fit(train, np.random.RandomState(seed))
        squares = np.where(held, cells - rows.X, 0.0) ** 2
        found.append(squares @ np.divide(1.0, variances, where=variances > 0, out=0.0 * variances))
    return np.array(found)
