"""The beta distribution, also in units of counts, and stick-breaking weights, made of betas."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import betaln, psi

from ._base import ONE, Family, Natural
from ._divergence import digamma_rising, log_beta
from .dirichlet import Dirichlet, dirichlet_divergence
from .gamma import log_standard_gamma


def stick_breaking_log_weights(log_v: np.ndarray, log_1mv: np.ndarray) -> np.ndarray:
    """Return the log weights of a broken stick.

    Parameters
    ----------
    log_v : ndarray of shape (..., K)
        Logarithm (or expected logarithm) of the fraction broken off at each step.
    log_1mv : ndarray of shape (..., K)
        Logarithm (or expected logarithm) of the fraction that is left.

    Returns
    -------
    ndarray of shape (..., K)
        ``log_v[k] + sum(log_1mv[:k])``, in nats.

    References
    ----------
    Sethuraman (1994), A constructive definition of Dirichlet priors; Blei and Jordan (2006),
    Variational inference for Dirichlet process mixtures.
    """
    log_weights = np.array(log_v, dtype=float)
    log_weights[..., 1:] += np.cumsum(np.asarray(log_1mv)[..., :-1], axis=-1)
    return log_weights


class Beta(Family):
    """Beta distributions of values v in (0, 1).

    The natural parameters are the arrays ``a`` and ``b`` of any shape (...), with one distribution
    per entry. Their base is (1, 1), and t = (log v, log(1 - v)). The standard parameters are the
    natural ones, ``a`` and ``b``. A draw has the keys ``log_value`` and ``log_complement``, the
    logarithms of v and of 1 - v, and ``log_gamma`` of shape (..., 2), those of the gamma variables
    that v was made of.
    """

    keys: ClassVar[tuple[str, ...]] = ("a", "b")
    _sums = keys
    _exact_if_far = True

    def base(self, natural: Natural) -> Natural:
        """Return (1, 1), the flat density on the unit interval."""
        return {"a": ONE, "b": ONE}

    def expectations(self, natural: Natural) -> Natural:
        """Return (E log v, E log(1 - v)) under the keys ``a`` and ``b``."""
        a, b = natural["a"], natural["b"]
        total = psi(a + b)
        return {"a": psi(a) - total, "b": psi(b) - total}

    def log_normalizer(self, natural: Natural) -> np.ndarray:
        """Return the log of the beta function, of shape (...), in nats."""
        return betaln(natural["a"], natural["b"])

    def sample(self, natural: Natural, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw every entry once, in log space so that tiny parameters do not underflow."""
        log_a = log_standard_gamma(natural["a"], rng)
        log_b = log_standard_gamma(natural["b"], rng)
        total = np.logaddexp(log_a, log_b)
        return {
            "log_value": log_a - total,
            "log_complement": log_b - total,
            "log_gamma": np.stack([log_a, log_b], axis=-1),
        }

    def exact_gradient_statistics(
        self, draw: dict[str, np.ndarray], natural: Natural, prior: Natural, stats: Natural
    ) -> Natural:
        """Return statistics for the exact gradient of structured stochastic VI, kept in bounds.

        A beta distribution is a Dirichlet distribution of two probabilities, whose method
        (:meth:`Dirichlet.exact_gradient_statistics`) explains the arguments and the result.
        """

        def pair(arrays: Natural) -> Natural:
            a, b = np.broadcast_arrays(arrays["a"], arrays["b"])
            return {"concentration": np.stack([a, b], axis=-1)}

        logs = np.stack([draw["log_value"], draw["log_complement"]], axis=-1)
        both = {"log_gamma": draw["log_gamma"], "probabilities": np.exp(logs)}
        exact = Dirichlet().exact_gradient_statistics(
            both, pair(natural), pair(prior), pair(stats)
        )["concentration"]
        return {"a": exact[..., 0], "b": exact[..., 1]}

    def to_standard(self, natural: Natural) -> dict[str, np.ndarray]:
        """Return ``a`` and ``b``, of shape (...)."""
        return {"a": natural["a"], "b": natural["b"]}

    def from_standard(self, a: np.ndarray, b: np.ndarray) -> Natural:
        """Return the natural parameters of `a` and `b`, of shape (...)."""
        return {"a": np.asarray(a, dtype=float), "b": np.asarray(b, dtype=float)}

    def _inside(self, natural: Natural) -> np.ndarray:
        a, b = natural["a"], natural["b"]
        return (a > 0.0) & (b > 0.0) & np.isfinite(a) & np.isfinite(b)

    def _strength(self, natural: Natural) -> np.ndarray:
        return natural["a"] + natural["b"]

    def _divergence(self, q: Natural, p: Natural) -> np.ndarray:
        return dirichlet_divergence(*(np.stack([x["a"], x["b"]], axis=-1) for x in (q, p)))

    def _sizes(self, natural: Natural, reference: Natural) -> tuple[np.ndarray, ...]:
        return (np.minimum(natural["a"], natural["b"]),)


class ScaledBeta(Family):
    """Beta distributions Beta(r rate, shape) of the probabilities p of negative binomial counts.

    The natural parameters are the arrays ``shape`` and ``rate`` of any shape (...), with one
    distribution per entry. A count x with the density p^r (1 - p)^x adds x to ``shape`` and 1 to
    ``rate``, as a Poisson count does to a gamma distribution. That distribution is the limit of
    r (1 - p) / p for large r. The base is (1, 1 / r), and t = (log(1 - p), r log p). A draw has the
    keys that a draw of :class:`Beta` has, for v = p.

    Parameters
    ----------
    scale : ndarray
        r, positive and broadcastable to (...).
    """

    keys: ClassVar[tuple[str, ...]] = ("shape", "rate")
    _sums = keys
    _exact_if_far = True

    def __init__(self, scale: np.ndarray):
        self.scale = scale
        self._beta = Beta()

    def _standard(self, natural: Natural) -> Natural:
        return {"a": self.scale * natural["rate"], "b": natural["shape"]}

    def base(self, natural: Natural) -> Natural:
        """Return (1, 1 / r), the flat density on the unit interval."""
        return {"shape": np.ones(()), "rate": 1.0 / self.scale}

    def expectations(self, natural: Natural) -> Natural:
        """Return (E log(1 - p), r E log p) under the keys ``shape`` and ``rate``."""
        a, b = self._standard(natural).values()
        # Counts, which can be huge, multiply the first one.
        return {"shape": -digamma_rising(b, a), "rate": -self.scale * digamma_rising(a, b)}

    def log_normalizer(self, natural: Natural) -> np.ndarray:
        """Return the log of the beta function, of shape (...), in nats."""
        return log_beta(*self._standard(natural).values())

    def sample(self, natural: Natural, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw every entry once, in log space so that tiny parameters do not underflow."""
        return self._beta.sample(self._standard(natural), rng)

    def to_standard(self, natural: Natural) -> dict[str, np.ndarray]:
        """Return the parameters ``a`` and ``b`` of the beta distributions, of shape (...)."""
        return self._standard(natural)

    def from_standard(self, a: np.ndarray, b: np.ndarray) -> Natural:
        """Return the natural parameters of Beta(`a`, `b`), of shape (...)."""
        return {"shape": np.asarray(b, dtype=float), "rate": np.asarray(a / self.scale)}

    def _inside(self, natural: Natural) -> np.ndarray:
        return self._beta._inside(self._standard(natural))

    def _strength(self, natural: Natural) -> np.ndarray:
        return self._beta._strength(self._standard(natural))

    def _divergence(self, q: Natural, p: Natural) -> np.ndarray:
        return self._beta._divergence(self._standard(q), self._standard(p))

    def _sizes(self, natural: Natural, reference: Natural) -> tuple[np.ndarray, ...]:
        return (np.minimum(natural["shape"], natural["rate"]),)
