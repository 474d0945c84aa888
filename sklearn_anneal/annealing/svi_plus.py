"""SVI+: stochastic variational inference with a tuneable amount of noise."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ..families import Natural, fast_normal, fast_standard_gamma, mix, settled
from ._base import AUTO, LEARNING_RATE, N_PASSES, Annealing, Context, DampedMixin, RandomWeights
from .schedules import SCHEDULES


class SVIPlus(DampedMixin, Annealing):
    """SVI+: random weights give a batch the noise of a smaller effective batch.

    In a batch of B data points, the statistics of point n are multiplied by a random weight w_n
    (Paisley et al. [1]_, Definition 1). The weights have mean 1, sum B and variance B/M − 1,
    where M is the effective batch size. The update then has the noise of a batch of M points,
    although it uses all B points. If M ≥ B, no noise is added.

    Parameters
    ----------
    effective_batch_size : int, float or "auto", default="auto"
        M at the first pass. An integer is a number of data points. A float in (0, 1] is a share of
        the batch, of which at least one data point is taken. With a smaller M the updates are
        noisier: the fit leaves poor optima more easily, and settles more slowly.
    noise : {"auto", "dirichlet", "gaussian"}, default="auto"
        ``"dirichlet"`` draws w = B Dir(a, …, a), which has the mean and covariance of the
        definition. No weight is negative, so that every update is valid. ``"gaussian"`` draws the
        weights of the definition itself. Where these would make the parameters of a row invalid or
        too small, the deviation of the row from the noiseless step is halved until they are
        neither.
    schedule : {"auto", "constant", "linear", "geometric"}, default="auto"
        How M grows to B over ``n_passes``. ``"constant"`` keeps it until their end.
    n_passes : int or "auto", default="auto"
        Number of passes over the data before plain inference takes over.
    learning_rate : float, "decay" or "auto", default="auto"
        The step size ρ in batch mode: a number in (0, 1], or ``"decay"`` for the step size of
        minibatches, (τ + t)^(−κ), with the estimator's ``learning_offset`` τ and ``learning_decay``
        κ.
    margin : float or "auto", default="auto"
        The threshold of ``"gaussian"`` noise: a parameter is too small if its size (its smallest
        eigenvalue or entry) is below this share, in [0, 1), of its size in the noiseless step. With
        0 the parameters must only be valid.

    References
    ----------
    .. [1] Paisley, Fazelnia, Barr (2025). Stochastic variational inference with tuneable
       stochastic annealing. arXiv:2504.03902, Definition 1 and Eq. 13.

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
    draws_weights = True
    moves_absent_alike = True
    follows_gradients = True
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

    def visit_options(self, ctx: Context) -> dict[str, Any]:
        return {"separate_noise": self.noise == "gaussian"}

    def effective_size(self, ctx: Context, size: int) -> float:
        """M for a batch of ``size`` weight units."""
        start = self.effective_batch_size
        if not isinstance(start, Integral):
            # The moments of the definition exist only for M > n / (n + 1).
            start = max(1.0, float(start) * size)
        return SCHEDULES[self.schedule](
            min(float(start), float(size)), float(size), self.progress(ctx.state)
        )

    def weights(self, ctx: Context, size: int) -> RandomWeights | None:
        effective = self.effective_size(ctx, size)
        if size <= effective:
            return None
        if self.noise == "gaussian":
            return Deviations(float(np.sqrt(size / effective - 1.0)), size)
        return DirichletWeights(effective / (size - effective) - 1.0 / size, size)

    def update(self, ctx: Context, q: Natural, target: Natural, rho: float) -> Natural:
        # The result overwrites the target, which nothing else uses and which can be as large as
        # the data.
        mixed = mix(q, target, rho, overwrite=True)
        if ctx.deviation is None:
            return mixed
        mixed, deviation = settled(mixed), settled(ctx.deviation)
        return ctx.model.factors().backoff(mixed, deviation, rho, float(self.margin))


class Deviations(NamedTuple):
    """Gaussian deviations from 1 that add up to 0.

    Attributes
    ----------
    scale : float
        The standard deviation of independent deviations, before their mean is subtracted.
    size : int
        The number of weight units of all parts.
    """

    scale: float
    size: int

    def draw(self, size: int, rng: np.random.Generator) -> tuple[np.ndarray, float]:
        drawn = fast_normal(size, rng, self.scale)
        return drawn, float(drawn.sum())

    def merge(self, a: float, b: float) -> float:
        return a + b

    def scaled(self, drawn: np.ndarray, own: float, totals: float) -> np.ndarray:
        drawn -= totals / self.size
        return drawn


class DirichletWeights(NamedTuple):
    """Weights n Dir(a, …, a) of n weight units.

    Attributes
    ----------
    concentration : float
        a.
    size : int
        n, of all parts together.
    """

    concentration: float
    size: int

    def draw(self, size: int, rng: np.random.Generator) -> tuple[np.ndarray, tuple[float, float]]:
        """Draw gamma variates relative to a factor; the totals are its logarithm and their sum.

        A gamma variate of shape a is made as G(a + 1) U^{1/a}, which is fast for shapes below 1.
        """
        drawn = rng.standard_exponential(size)
        if size == 0:
            return drawn, (-np.inf, 0.0)
        drawn *= -1.0 / self.concentration
        # All powers could underflow if the shape is tiny, so that the largest is scaled to 1.
        largest = float(drawn.max())
        drawn -= largest
        np.exp(drawn, out=drawn)
        drawn *= fast_standard_gamma(self.concentration + 1.0, size, rng)
        return drawn, (largest, float(drawn.sum()))

    def merge(self, a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
        # A part without any weight unit has a total of 0.
        if a[1] == 0 or b[1] == 0:
            return a if b[1] == 0 else b
        largest = max(a[0], b[0])
        return largest, sum(total * np.exp(log - largest) for log, total in (a, b))

    def scaled(
        self, drawn: np.ndarray, own: tuple[float, float], totals: tuple[float, float]
    ) -> np.ndarray:
        drawn *= np.exp(own[0] - totals[0]) * (self.size / totals[1]) if len(drawn) else 1.0
        return drawn
