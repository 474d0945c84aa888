"""``activation_prior="auto"``: whether Gaussian factors predict missing cells better.

The lower bound does not say so: it is the probability of the observed cells, and prefers factors
that are mostly off in pictures whose missing cells they predict worse. A share of the observed
cells is therefore held out of two short fits, of which one learns the probabilities of activations
and the other one has all factors on. Gaussian factors are taken if these cells have a log density
that is higher by some standard errors. Otherwise the data may well have sparse factors, whose
loadings they determine. Densities decide sooner than squared errors, which few outliers dominate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.stats import norm

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


class Scores(NamedTuple):
    """Mean log densities of held-out cells after two short fits, in nats.

    Attributes
    ----------
    learned, gaussian : float
        With learned probabilities, and with Gaussian factors.
    advantage : float
        The second less the first, in standard errors.
    """

    learned: float
    gaussian: float
    advantage: float

    @property
    def prefer_gaussian(self) -> bool:
        """Whether Gaussian factors predict better, beyond what can be chance."""
        return self.advantage > _ENOUGH

    def in_words(self) -> str:
        """Return the scores, and the decision, for ``verbose``."""
        kind = "Gaussian factors" if self.prefer_gaussian else "learned probabilities"
        return (
            f"held-out cells: {self.learned:.4f} nats with learned probabilities, "
            f"{self.gaussian:.4f} with Gaussian factors; the fit takes {kind}"
        )


def compared(
    estimator: AnnealedSpikeSlabFactorAnalysis, units: Rows, random_state: np.random.RandomState
) -> Scores | None:
    """Return the scores of cells that are held out of rows with missing cells.

    Parameters
    ----------
    estimator : AnnealedSpikeSlabFactorAnalysis
        Its priors, sweeps and number of factors are those of both fits.
    units : Rows
        Rows in memory, of which at most 2,000 are drawn.
    random_state : numpy.random.RandomState

    Returns
    -------
    scores : Scores or None
        None if there are too few cells for a comparison.
    """
    rows = units.subset(_ROWS, random_state)
    assert isinstance(rows, Rows)
    observed, drawn = ~np.isnan(rows.X), random_state.random_sample(rows.X.shape)
    seed = random_state.randint(2**31 - 1)
    n_cells, totals, of_rows = 0.0, np.zeros(2), np.zeros(rows.n_units)
    weights = np.ones(rows.n_units) if rows.weights is None else rows.weights
    advantage = 0.0
    for i in range(_SHARES):
        held = observed & (drawn >= i * _SHARE) & (drawn < (i + 1) * _SHARE)
        # Every column keeps some of its cells.
        held &= (observed & ~held).sum(axis=0) > 1
        if held.sum() < _LEAST:
            break
        n_cells += weights @ held.sum(axis=1)
        each = weights * _log_densities(estimator, rows, held, seed)
        totals += each.sum(axis=1)
        of_rows += each[1] - each[0]
        error = np.sqrt(np.sum(of_rows**2))
        advantage = float(of_rows.sum() / error) if error > 0 else 0.0
        if abs(advantage) > _CLEAR:
            break
    if n_cells == 0.0:
        return None
    learned, gaussian = totals / n_cells
    return Scores(float(learned), float(gaussian), advantage)


def _log_densities(
    estimator: AnnealedSpikeSlabFactorAnalysis, rows: Rows, held: np.ndarray, seed: int
) -> np.ndarray:
    """Return the log density of the held-out cells of each row, for both kinds, (2, n)."""
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
        means, std = short._cells_after_fit(train, np.random.RandomState(seed))
        found.append(np.where(held, norm.logpdf(rows.X, means, std), 0.0).sum(axis=1))
    return np.array(found)
