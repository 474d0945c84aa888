"""Components whose observations are rows of zeros and ones."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from ...data.tables import Coded
from ...data.units import Rows
from ...families import Beta, Factor, Natural
from ...families._divergence import STRONG
from .._base import Known, compiled, shallow
from ._base import BOUNDS, Draws, Profile, multiplied
from ._linear import Coefficients, LinearComponents, LinearSums, points_of, table_of


class LogsOfBits(NamedTuple):
    """E log(1 − p) and E log p of each column, one after the other, as packed rows read them."""

    levels: np.ndarray  # (2 n_features, n_components)

    @property
    def coefficients(self) -> Coefficients:
        """The same numbers as coefficients, which other rows read."""
        zeros, ones = self.levels[::2].T, self.levels[1::2].T
        return Coefficients(ones - zeros, np.ascontiguousarray(zeros))


class BernoulliComponents(LinearComponents[None]):
    """Distributions of binary vectors, with beta priors of the probabilities of ones.

    The entries of a vector are independent given its component. The natural parameters are ``a``
    and ``b``, of shape (n_components, n_features).

    Parameters
    ----------
    n_components, n_features : int
    a, b : ndarray of shape (n_components, n_features)
        The two parameters of each beta prior.
    learns : bool
        Whether both parameters are learned, for each column as one value for all components. They
        must then begin as one value for all components.
    """

    profile_names = ("emissionprob",)
    carrier_is_fixed = True

    def __init__(
        self,
        n_components: int,
        n_features: int,
        a: np.ndarray,
        b: np.ndarray,
        learns: bool = False,
    ):
        super().__init__(n_components, n_features)
        self.a = a
        self.b = b
        self.learns = learns

    @cached_property
    def factors(self) -> tuple[Factor, ...]:
        return (Factor(Beta(), {"a": "a", "b": "b"}),)

    def prior(self, summary: None) -> Natural:
        return {"a": self.a, "b": self.b}

    def _learned(
        self, q: Natural, prior: Natural, rho: float
    ) -> tuple[BernoulliComponents, Natural]:
        old = np.ascontiguousarray(prior["a"]), np.ascontiguousarray(prior["b"])
        new = np.empty(old[0].shape), np.empty(old[0].shape)
        of_q = np.ascontiguousarray(q["a"]), np.ascontiguousarray(q["b"])
        compiled("empirical_bayes").learned_betas(*of_q, *old, rho, *BOUNDS, *new)
        learned = shallow(self)
        learned.a, learned.b = new
        return learned, {"a": new[0], "b": new[1]}

    def posterior_like(
        self,
        profile: Profile,
        counts: np.ndarray,
        q: Natural,
        summary: None,
        prior: Natural,
    ) -> Natural:
        ones, n = profile["emissionprob"], counts[:, None]
        return {"a": prior["a"] + n * ones, "b": prior["b"] + n * (1.0 - ones)}

    def random_natural(
        self, counts: np.ndarray, summary: None, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        p = rng.random((self.n_components, self.n_features))
        counts = counts[:, None]
        return {"a": prior["a"] + counts * p, "b": prior["b"] + counts * (1.0 - p)}

    def _coefficients(self, log_p: np.ndarray, log_complement: np.ndarray) -> Coefficients:
        return Coefficients(log_p - log_complement, log_complement)

    def expected_coefficients(self, q: Natural) -> Coefficients:
        (factor,) = self.factors
        expected = factor.family.expectations(factor.pick(q))
        return self._coefficients(expected["a"], expected["b"])

    def known(self, q: Natural, before: Known | None) -> Known | None:
        logs = np.empty((2 * self.n_features, self.n_components))
        of_q = np.ascontiguousarray(q["a"]), np.ascontiguousarray(q["b"])
        compiled("divergence").beta_logs(*of_q, logs)
        return {"logs": logs}

    def expectations_given(self, q: Natural, known: Known) -> LogsOfBits:
        return LogsOfBits(known["logs"])

    def for_rows(self, expected: Any, rows: Rows) -> Any:
        if not isinstance(expected, LogsOfBits):
            return super().for_rows(expected, rows)
        if isinstance(rows.X, Coded) and not rows.plain:
            return table_of(expected.levels, rows)
        return super().for_rows(expected.coefficients, rows)

    def kl_given(self, q: Natural, prior: Natural, known: Known) -> float | None:
        found = np.empty(2)
        of_q = np.ascontiguousarray(q["a"]), np.ascontiguousarray(q["b"])
        of_prior = np.ascontiguousarray(prior["a"]), np.ascontiguousarray(prior["b"])
        compiled("divergence").beta_divergence(*of_q, *of_prior, known["logs"], found)
        return float(found[0]) if found[1] <= STRONG else None

    def coefficients(self, draws: Draws) -> Coefficients:
        (draw,) = draws
        return self._coefficients(draw["log_value"], draw["log_complement"])

    def plug_in(self, q: Natural) -> Coefficients:
        total = np.log(q["a"] + q["b"])
        return self._coefficients(np.log(q["a"]) - total, np.log(q["b"]) - total)

    def imputed(
        self, rows: Rows, shares: np.ndarray, q: Natural, predictive: bool = True
    ) -> tuple[np.ndarray, np.ndarray | None]:
        return (shares @ self.probabilities(q) > 0.5).astype(np.float64), None

    def probabilities(self, q: Natural) -> np.ndarray:
        return q["a"] / (q["a"] + q["b"])

    def drawn_cells(
        self,
        labels: np.ndarray,
        columns: np.ndarray,
        expected: Coefficients,
        rng: np.random.Generator,
    ) -> np.ndarray:
        probabilities = expit(expected.slopes[labels, columns])
        return (rng.random(len(labels)) < probabilities).astype(np.float64)

    def embedding(self, rows: Rows) -> np.ndarray:
        return points_of(rows)

    @property
    def n_parameters(self) -> int:
        return self.n_components * self.n_features

    def multiplied_counts(self, q: Natural, size: float, rng: np.random.Generator) -> Natural:
        return {key: multiplied(q[key], size, rng) for key in ("a", "b")}

    def coordinates(self, q: Natural, summary: None) -> np.ndarray:
        return self.probabilities(q)

    def statistics(
        self, raw: LinearSums, keys: tuple[str, ...] | None = None, q: Natural | None = None
    ) -> Natural:
        return {"a": raw.sum, "b": raw.observed - raw.sum}

    def log_volumes(self, x: np.ndarray, summary: None, expected: Coefficients) -> np.ndarray:
        powers = np.asarray(x)[:, None, None]
        return np.logaddexp(0.0, powers * expected.slopes) + powers * expected.cells
