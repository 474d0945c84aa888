"""The gamma distribution, and draws from it in log space."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import gammaln, psi

from ._base import ONE, ZERO, Family, Natural
from ._divergence import FAR, gamma_divergence, gammaln_divergence, log1p_excess
from ._implicit import controlled_statistics, inverse_trigamma, log_gamma_derivative


def log_standard_gamma(shape: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw the logarithms of gamma variables of rate 1, which are finite for the smallest shapes.

    Parameters
    ----------
    shape : ndarray of any shape (...)
        Shape parameters, positive.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray of shape (...)
        log G(a) = log G(a + 1) + log(U) / a, with G gamma and U uniform.

    References
    ----------
    Marsaglia and Tsang (2000), A simple method for generating gamma variables, section 6 (the
    boost of small shapes, here applied to the logarithm).
    """
    # A standard exponential is -log(U) and, unlike log(rng.random()), never infinite.
    log_boosted = np.log(rng.standard_gamma(shape + 1.0))
    return log_boosted - rng.standard_exponential(np.shape(shape)) / shape


class Gamma(Family):
    """Gamma distributions of positive values x.

    The natural parameters are the arrays ``shape`` and ``rate`` of any shape (...), with one
    distribution per entry. Their base is (1, 0), and t = (log x, -x). The standard parameters are
    the natural ones, ``shape`` and ``rate``. A draw has the keys ``log_value`` and ``value``, the
    logarithm of x and x itself.

    References
    ----------
    Bishop (2006), Pattern Recognition and Machine Learning, Eqs. B.26 to B.31.
    """

    keys: ClassVar[tuple[str, ...]] = ("shape", "rate")
    _sums = keys
    _exact_if_far = True

    def base(self, natural: Natural) -> Natural:
        """Return shape 1 and rate 0, the flat density on the positive numbers."""
        return {"shape": ONE, "rate": ZERO}

    def expectations(self, natural: Natural) -> Natural:
        """Return (E log x, -E x) under the keys ``shape`` and ``rate``."""
        shape, rate = natural["shape"], natural["rate"]
        return {"shape": psi(shape) - np.log(rate), "rate": -shape / rate}

    def log_normalizer(self, natural: Natural) -> np.ndarray:
        """Return log Gamma(shape) - shape log rate, of shape (...), in nats."""
        shape, rate = natural["shape"], natural["rate"]
        return gammaln(shape) - shape * np.log(rate)

    def sample(self, natural: Natural, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw every entry once; ``value`` may underflow to 0 where ``log_value`` is finite."""
        log_value = log_standard_gamma(natural["shape"], rng) - np.log(natural["rate"])
        return {"log_value": log_value, "value": np.exp(log_value)}

    def implicit_statistics(
        self, draw: dict[str, np.ndarray], natural: Natural, stats: Natural
    ) -> Natural:
        """Multiply statistics by the matrix V of structured stochastic VI.

        V is the inverse Hessian of A times the transposed Jacobian of (log x, -x) with respect to
        the parameters, at a fixed quantile of x. Its expectation over draws is the identity.

        Parameters
        ----------
        draw : dict of ndarray
            From :meth:`sample` at `natural`.
        natural : dict of ndarray
            Natural parameters, which are broadcast to the shape of the draw.
        stats : dict of ndarray
            Sufficient statistics that local steps with the draw have found, broadcast as well.

        Returns
        -------
        dict of ndarray
            V times the statistics, of any sign and of the shape of the draw.

        References
        ----------
        Hoffman and Blei (2015), Structured stochastic variational inference, Eqs. 8 and 23.
        """
        log_value = draw["log_value"]
        shape = np.broadcast_to(natural["shape"], log_value.shape)
        rate = natural["rate"]
        derivative = log_gamma_derivative(log_value + np.log(rate), shape)
        inverse, deficit = inverse_trigamma(shape)
        # The determinant of the Hessian is (shape ψ'(shape) − 1) / rate², and the first factor is
        # deficit / inverse without loss of digits. All of V follows from the slope of
        # (log x, −x) · S with respect to log x.
        slope = stats["shape"] - draw["value"] * stats["rate"]
        slope = slope * inverse / deficit
        return {
            "shape": slope * (shape * derivative - 1.0),
            "rate": slope * rate * (derivative - 1.0 / inverse),
        }

    def exact_gradient_statistics(
        self, draw: dict[str, np.ndarray], natural: Natural, prior: Natural, stats: Natural
    ) -> Natural:
        """Return statistics for the exact gradient of structured stochastic VI, kept in bounds.

        :meth:`Dirichlet.exact_gradient_statistics` explains the arguments and the result.
        """
        size = draw["log_value"].shape

        def both(values: Natural) -> np.ndarray:
            return np.stack([np.broadcast_to(values[key], size) for key in self.keys])

        def multiply(pair: np.ndarray) -> np.ndarray:
            given = dict(zip(self.keys, pair, strict=True))
            return both(self.implicit_statistics(draw, natural, given))

        current = np.maximum(both(natural) - both(prior), 0.0)
        controlled = controlled_statistics(multiply, both(stats), current)
        return dict(zip(self.keys, controlled, strict=True))

    def to_standard(self, natural: Natural) -> dict[str, np.ndarray]:
        """Return ``shape`` and ``rate``, of shape (...)."""
        return {"shape": natural["shape"], "rate": natural["rate"]}

    def from_standard(self, shape: np.ndarray, rate: np.ndarray) -> Natural:
        """Return the natural parameters of `shape` and `rate`, of shape (...)."""
        return {"shape": np.asarray(shape, dtype=float), "rate": np.asarray(rate, dtype=float)}

    def _inside(self, natural: Natural) -> np.ndarray:
        shape, rate = natural["shape"], natural["rate"]
        return (shape > 0.0) & (rate > 0.0) & np.isfinite(shape) & np.isfinite(rate)

    def _strength(self, natural: Natural) -> np.ndarray:
        return natural["shape"]

    def _divergence(self, q: Natural, p: Natural) -> np.ndarray:
        far = np.maximum(p["shape"], q["shape"]) > FAR * np.minimum(p["shape"], q["shape"])
        added = q["shape"] - p["shape"]
        r = (p["rate"] - q["rate"]) / q["rate"]
        of_shapes = gammaln_divergence(p["shape"], q["shape"], -added)
        near = of_shapes + p["shape"] * log1p_excess(r) + added * r
        if not far.any():
            return near
        parameters = (natural[key] for natural in (q, p) for key in self.keys)
        return np.where(far, gamma_divergence(*parameters), near)

    def _sizes(self, natural: Natural, reference: Natural) -> tuple[np.ndarray, ...]:
        # Shape and rate have different units, so each is compared with its own reference.
        return (natural["shape"], natural["rate"])


def fast_standard_gamma(shape: float, size: int, rng: np.random.Generator) -> np.ndarray:
    """Draw many gamma variables of one shape of at least 1, in single precision.

    All steps work on whole arrays, which takes half the time of numpy's loop over draws. Box and
    Muller's transform gives pairs of normal variables, from which Marsaglia and Tsang's rejection
    method makes gamma variables. The few that are rejected are drawn anew by numpy.

    Parameters
    ----------
    shape : float
        Shape parameter, at least 1.
    size : int
        Number of draws.
    rng : numpy.random.Generator
        Source of randomness; it is advanced.

    Returns
    -------
    ndarray of float32, shape (size,)

    References
    ----------
    Marsaglia and Tsang (2000), A simple method for generating gamma variables.
    """
    single = np.float32
    d = shape - 1.0 / 3.0
    half = -(-size // 2)
    radius = np.sqrt(single(-2.0) * np.log(single(1.0) - rng.random(half, dtype=single)))
    angle = single(2.0 * np.pi) * rng.random(half, dtype=single)
    normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]
    uniform = rng.random(size, dtype=single)
    v = single(1.0) + single(1.0 / np.sqrt(9.0 * d)) * normal
    square = normal * normal
    doubtful = np.flatnonzero(uniform >= single(1.0) - single(0.0331) * square * square)
    draws = single(d) * (v * v * v)
    u, w, z2 = (array[doubtful].astype(float) for array in (uniform, v, square))
    with np.errstate(divide="ignore", invalid="ignore"):
        accepted = np.log(u) < 0.5 * z2 + d * (1.0 - w**3 + 3.0 * np.log(w))
    rejected = doubtful[~accepted]
    draws[rejected] = rng.standard_gamma(shape, len(rejected), dtype=single)
    return draws
