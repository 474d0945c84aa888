"""Variational tempering: the temperature is a latent variable that the fit infers too."""

from __future__ import annotations

from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax
from sklearn.utils._param_validation import Interval

from ..families import Tempering, UnitTemperatures
from ._base import AUTO, N_PASSES, Annealing, Context, State

if TYPE_CHECKING:
    from ..data.units import Units
    from ..models._base import LocalStep

_TEMPERATURES = [Interval(Integral, 2, None, closed="left"), AUTO]


class VariationalTempering(Annealing):
    """Variational tempering with one temperature for all the data.

    The temperature has a uniform prior on a grid T_1 = 1 < … < T_M. Its variational distribution
    is r_m ∝ exp{E log p(x, z | β)/T_m − log C(T_m)}, and its expected inverse temperature tempers
    the likelihood (Mandt et al. [1]_, Eq. 6–9). Where the paper estimates the log partition
    function log C by Monte Carlo, the model provides it here. A model whose gradients temper only
    the likelihood has E log p(x | z, β) in the place of E log p(x, z | β), and the log C of that.

    Parameters
    ----------
    max_temperature : float or "auto", default="auto"
        T_M, a number above 1. With a higher one the fit starts flatter and takes longer to cool
        down.
    n_temperatures : int or "auto", default="auto"
        M, the number of temperatures in the grid, which are spaced exponentially.
    damping : float or "auto", default="auto"
        δ in the update r ← (1 − δ) r + δ r*, in (0, 1]. With 1 the distribution is concentrated at
        T = 1 within a few updates, which is plain inference.
    n_passes : int or "auto", default="auto"
        Number of passes over the data before plain inference at T = 1 takes over.

    References
    ----------
    .. [1] Mandt, McInerney, Abrol, Ranganath, Blei (2016). Variational tempering. AISTATS.

    Examples
    --------
    >>> from sklearn_anneal.annealing import VariationalTempering
    >>> VariationalTempering(max_temperature=5)
    VariationalTempering(max_temperature=5)
    """

    _parameter_constraints: dict = {
        "max_temperature": [Interval(Real, 1, None, closed="neither"), AUTO],
        "n_temperatures": _TEMPERATURES,
        "damping": [Interval(Real, 0, 1, closed="right"), AUTO],
        "n_passes": N_PASSES,
    }
    _defaults = {"max_temperature": 10.0, "n_temperatures": 100, "damping": 0.05, "n_passes": 100}

    follows_gradients = True
    reads_energy = True
    moves_absent_alike = True

    def __init__(
        self, max_temperature="auto", n_temperatures="auto", damping="auto", n_passes="auto"
    ):
        self.max_temperature = max_temperature
        self.n_temperatures = n_temperatures
        self.damping = damping
        self.n_passes = n_passes

    @property
    def needs(self) -> tuple[str, ...]:
        return ("log_partition",)

    def grid(self) -> np.ndarray:
        """x_m = 1/T_m, shape (n_temperatures,)."""
        return 1.0 / np.geomspace(1.0, self.max_temperature, self.n_temperatures)

    def initial_state(self, ctx: Context) -> State:
        return {"temperature_probabilities": np.full(self.n_temperatures, 1 / self.n_temperatures)}

    def temper(self, ctx: Context, units: Units) -> Tempering:
        x = float(ctx.state["temperature_probabilities"] @ self.grid())
        return Tempering(local=x, statistics=x)

    def posterior_probabilities(self, ctx: Context, energy: float) -> np.ndarray:
        """r*, of shape (n_temperatures,), given the ℓ of all the data that is tempered, in nats."""
        x = self.grid()
        return softmax(x * energy - ctx.model.log_partition(x, ctx.summary, ctx.q))

    def advance(self, ctx: Context, report: LocalStep) -> State:
        tempered = report.energy if report.likelihood is None else report.likelihood
        target = self.posterior_probabilities(ctx, ctx.scale * tempered)
        old = ctx.state["temperature_probabilities"]
        return {
            **ctx.state,
            "temperature_probabilities": (1 - self.damping) * old + self.damping * target,
        }


class LocalVariationalTempering(Annealing):
    """Variational tempering with one temperature per data point.

    Data point n has the inverse temperature x_m = m/M, m = 1, …, M, with probability
    r_nm ∝ exp{x_m ℓ_n − log c(x_m)}, where ℓ_n = E log p(x_n, z_n | β). The expected inverse
    temperature tempers the local step of the point and multiplies its statistics, so that
    outliers influence the fit less (Mandt et al. [1]_, section 3.3). The second factor 1/T in
    Eq. 10 of the paper is left out, because it would temper twice. At the fitted parameters the
    expected inverse temperature is an outlier score, which the estimators return as
    ``inverse_temperatures(X)``.

    Parameters
    ----------
    n_temperatures : int or "auto", default="auto"
        M, the number of grid points of 1/T.
    n_rounds : int or "auto", default="auto"
        Number of rounds in each pass, in which the temperatures and the local variables of the
        data points are updated in turn.
    n_passes : int or "auto", default="auto"
        Number of passes over the data before plain inference at T = 1 takes over.

    References
    ----------
    .. [1] Mandt, McInerney, Abrol, Ranganath, Blei (2016). Variational tempering. AISTATS.

    Examples
    --------
    >>> from sklearn_anneal.annealing import LocalVariationalTempering
    >>> LocalVariationalTempering(n_passes=20)
    LocalVariationalTempering(n_passes=20)
    """

    _parameter_constraints: dict = {
        "n_temperatures": _TEMPERATURES,
        "n_rounds": [Interval(Integral, 1, None, closed="left"), AUTO],
        "n_passes": N_PASSES,
    }
    _defaults = {"n_temperatures": 100, "n_rounds": 2, "n_passes": 50}

    has_unit_temperatures = True
    holds_units = False

    def __init__(self, n_temperatures="auto", n_rounds="auto", n_passes="auto"):
        self.n_temperatures = n_temperatures
        self.n_rounds = n_rounds
        self.n_passes = n_passes

    @property
    def needs(self) -> tuple[str, ...]:
        return ("unit_log_partition", "locally_tempered_step")

    def visit_options(self, ctx: Context) -> dict[str, Any]:
        x = np.arange(1, self.n_temperatures + 1) / self.n_temperatures
        partition = ctx.model.unit_log_partition(x, ctx.summary, ctx.q)
        return {"unit_temperatures": UnitTemperatures(x, partition, self.n_rounds)}

    def inverse_temperatures(self, ctx: Context, units: Units) -> np.ndarray:
        """E_r[1/T] of every data point at the current q, shape (n_units,)."""
        visit = ctx.model.visit(ctx.q, units, **self.visit_options(ctx))
        start = visit.start(units, None, False, 0.0, ctx.rng)
        step: Any = visit.step(units, None, start)
        return step.inverse_temperatures
