"""SVI+: stochastic variational inference with a tuneable amount of noise."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ..families import Natural, fast_normal, fast_standard_gamma, mix
from ._base import AUTO, LEARNING_RATE, N_PASSES, Annealing, Context, DampedMixin
from .schedules import SCHEDULES


class SVIPlus(DampedMixin, Annealing):
    """SVI+: random weights give a batch the noise of a smaller effective batch.

    The statistics of data point n of a batch of B are multiplied by w_n, of mean 1, sum B and
    variance B/M − 1, M being the effective batch size (Paisley et al. [1]_, Definition 1). The
    noise is as if M points had been drawn instead of B, at the accuracy of B. Nothing is random
    where M ≥ B.

    Parameters
    ----------
    effective_batch_size : int, float or "auto", default="auto"
        M at the first pass: an integer is a number of data points, a float in (0, 1] a share of
        the batch, at least one data point. Smaller is noisier: better at leaving poor optima,
        slower to settle.
    noise : {"auto", "dirichlet", "gaussian"}, default="auto"
        ``"dirichlet"``: w = B Dir(a, …, a) with the mean and covariance of the definition and
        no negative weight, so that every target is valid. ``"gaussian"``: the definition itself;
        where the parameters of a row would be invalid or too small, their deviation from the
        noiseless step is halved until they are not.
    schedule : {"auto", "constant", "linear", "geometric"}, default="auto"
        How M grows to B over ``n_passes``; ``"constant"`` keeps it until their end.
    n_passes : int or "auto", default="auto"
        Passes over the data before plain inference takes over.
    learning_rate : float, "decay" or "auto", default="auto"
        The step ρ of batch mode: a number in (0, 1], or ``"decay"`` for that of minibatches,
        (τ + t)^(−κ) with the estimator's ``learning_offset`` τ and ``learning_decay`` κ.
    margin : float or "auto", default="auto"
        With ``"gaussian"`` noise: the share of its noiseless size (smallest eigenvalue or entry)
        below which a parameter counts as too small, in [0, 1). 0 asks for validity alone.

    References
    ----------
    .. [1] Paisley, Gultekin et al. SVI+: stochastic variational inference with tuneable
       stochastic annealing, Definition 1 and Eq. 13.

    Examples
    --------
    >>> from sklearn_anneal.annealing import SVIPlus
    >>> SVIPlus(effective_batch_size=0.5)
    SVIPlus(effective_batch_size=0.5)
    """

    _parameter_constraints: dict = {
        "effective_batch_size": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="right"),
            AUTO,
        ],
        "noise": [StrOptions({"auto", "dirichlet", "gaussian"})],
        "schedule": [StrOptions({*SCHEDULES, "auto"})],
        "n_passes": N_PASSES,
        "learning_rate": LEARNING_RATE,
        "margin": [Interval(Real, 0, 1, closed="left"), AUTO],
    }
    _defaults = {
        "effective_batch_size": 0.25,
        "noise": "dirichlet",
        "schedule": "linear",
        "n_passes": 50,
        "learning_rate": 0.85,
        "margin": 0.0,
    }

    def __init__(
        self,
        effective_batch_size="auto",
        noise="auto",
        schedule="auto",
        n_passes="auto",
        learning_rate="auto",
        margin="auto",
    ):
        self.effective_batch_size = effective_batch_size
        self.noise = noise
        self.schedule = schedule
        self.n_passes = n_passes
        self.learning_rate = learning_rate
        self.margin = margin

    @property
    def separate_noise(self) -> bool:
        return self.noise == "gaussian"

    def effective_size(self, ctx: Context, size: int) -> float:
        """M for a batch of ``size`` weight units."""
        start = self.effective_batch_size
        if not isinstance(start, Integral):
            # The moments of the definition exist for M > n / (n + 1) alone.
            start = max(1.0, float(start) * size)
        return SCHEDULES[self.schedule](
            min(float(start), float(size)), float(size), self.progress(ctx.state)
        )

    def weights(self, ctx: Context, units: Any) -> np.ndarray | None:
        size = units.n_weight_units
        effective = self.effective_size(ctx, size)
        if size <= effective:
            return None
        if self.noise == "gaussian":
            deviations = fast_normal(size, ctx.rng, float(np.sqrt(size / effective - 1.0)))
            deviations -= deviations.mean()
            return deviations
        return _symmetric_dirichlet(effective / (size - effective) - 1.0 / size, size, ctx.rng)

    def update(self, ctx: Context, q: Natural, target: Natural, rho: float) -> Natural:
        # Targets are the update's own, and may be as large as the data.
        mixed = mix(q, target, rho, overwrite=True)
        if ctx.deviation is None:
            return mixed
        return ctx.model.factors().backoff(mixed, ctx.deviation, rho, float(self.margin))


def _symmetric_dirichlet(concentration: float, size: int, rng: np.random.Generator) -> np.ndarray:
    """size · Dir(a, …, a), with G(a) = G(a + 1) U^{1/a}, which is fast for shapes below 1."""
    weights = rng.standard_exponential(size)
    weights *= -1.0 / concentration
    # Tiny shapes would underflow all at once; the largest power is set to 1.
    weights -= weights.max()
    np.exp(weights, out=weights)
    weights *= fast_standard_gamma(concentration + 1.0, size, rng)
    weights *= size / weights.sum()
    return weights
