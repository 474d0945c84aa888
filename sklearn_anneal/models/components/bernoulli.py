"""Components whose observations are rows of zeros and ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...families import Beta, Factor, Natural
from ._base import Coefficients, LinearComponents, multiplied


class BernoulliComponents(LinearComponents):
    """Distributions of binary vectors, with beta priors of the probabilities of ones.

    The entries of a vector are independent given its component. The natural parameters are ``a``
    and ``b``, of shape (n_components, n_features).

    Parameters
    ----------
    n_components, n_features : int
    concentration : ndarray of shape (n_components, n_features)
        The value of both parameters of each beta prior.
    """

    def __init__(self, n_components: int, n_features: int, concentration: np.ndarray):
        super().__init__(n_components, n_features)
        self.concentration = concentration

    @property
    def factors(self) -> tuple[Factor, ...]:
        return (Factor(Beta(), {"a": "a", "b": "b"}),)

    def prior(self, summary: Any) -> Natural:
        return {"a": self.concentration, "b": self.concentration}

    def random_natural(
        self, counts: np.ndarray, summary: Any, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        p = rng.random((self.n_components, self.n_features))
        counts = counts[:, None]
        return {"a": prior["a"] + counts * p, "b": prior["b"] + counts * (1.0 - p)}

    def _coefficients(self, log_p: np.ndarray, log_complement: np.ndarray) -> Coefficients:
        return Coefficients(log_p - log_complement, log_complement.sum(axis=1))

    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> Coefficients:
        (factor,) = self.factors
        if rng is None:
            expected = factor.family.expectations(factor.pick(q))
            return self._coefficients(expected["a"], expected["b"])
        draw = factor.family.sample(factor.pick(q), rng)
        return self._coefficients(draw["log_value"], draw["log_complement"])

    def plug_in(self, q: Natural) -> Coefficients:
        total = np.log(q["a"] + q["b"])
        return self._coefficients(np.log(q["a"]) - total, np.log(q["b"]) - total)

    def multiplied_counts(self, q: Natural, size: float, rng: np.random.Generator) -> Natural:
        return {key: multiplied(q[key], size, rng) for key in ("a", "b")}

    def coordinates(self, q: Natural, summary: Any) -> np.ndarray:
        return q["a"] / (q["a"] + q["b"])

    def statistics(
        self, raw: Natural, keys: tuple[str, ...] | None = None, q: Natural | None = None
    ) -> Natural:
        return {"a": raw["sum"], "b": raw["count"][:, None] - raw["sum"]}

    def log_volume(self, x: np.ndarray, summary: Any, expected: Coefficients) -> np.ndarray:
        """Return the log of the sum of p(v | z_n = k)^x over all binary vectors v, in nats.

        The shape is (len(x), n_components).
        """
        powers = np.asarray(x)[:, None]
        each = np.logaddexp(0.0, powers[..., None] * expected.slopes).sum(axis=-1)
        return each + powers * expected.constants
