"""Components whose observations are rows of zeros and ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import polygamma, psi

from ...families import Beta, Factor, Natural
from ...families._empirical_bayes import beta_pair
from ...inference.units import Rows
from ._base import moved, multiplied
from ._linear import Coefficients, LinearComponents, points_of

# Bounds of the two parameters of a beta prior that is learned. If a column is constant, or is the
# same in all states, the bound would be highest at zero or at infinity.
_BOUNDS = (0.01, 1e4)
# Newton's method for all columns stops at this relative precision, or after so many steps.
_PRECISION, _STEPS = 1e-10, 20


class BernoulliComponents(LinearComponents):
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

    @property
    def factors(self) -> tuple[Factor, ...]:
        return (Factor(Beta(), {"a": "a", "b": "b"}),)

    def prior(self, summary: Any) -> Natural:
        return {"a": self.a, "b": self.b}

    def learned(
        self, q: Natural, prior: Natural, rho: float
    ) -> tuple[BernoulliComponents, Natural]:
        if not self.learns:
            return self, self.prior(None)
        (factor,) = self.factors
        expected = factor.family.expectations(factor.pick(q))
        logs = np.array([expected["a"].mean(axis=0), expected["b"].mean(axis=0)])
        a, b = _best_pairs(logs, np.array([self.a[0], self.b[0]]))
        sizes = self.n_components, self.n_features
        learned = BernoulliComponents(*sizes, moved(self.a, a, rho), moved(self.b, b, rho), True)
        return learned, learned.prior(None)

    def random_natural(
        self, counts: np.ndarray, summary: Any, prior: Natural, rng: np.random.Generator
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

    def coefficients(self, draws: Any) -> Coefficients:
        (draw,) = draws
        return self._coefficients(draw["log_value"], draw["log_complement"])

    def plug_in(self, q: Natural) -> Coefficients:
        total = np.log(q["a"] + q["b"])
        return self._coefficients(np.log(q["a"]) - total, np.log(q["b"]) - total)

    def predictive_moments(self, q: Natural) -> tuple[np.ndarray, np.ndarray | None]:
        return q["a"] / (q["a"] + q["b"]), None

    def imputed(
        self, rows: Rows, shares: np.ndarray, q: Natural
    ) -> tuple[np.ndarray, np.ndarray | None]:
        probabilities, _ = super().imputed(rows, shares, q)
        return (probabilities > 0.5).astype(np.float64), None

    def embedding(self, rows: Rows) -> np.ndarray:
        return points_of(rows)

    @property
    def n_parameters(self) -> int:
        return self.n_components * self.n_features

    def multiplied_counts(self, q: Natural, size: float, rng: np.random.Generator) -> Natural:
        return {key: multiplied(q[key], size, rng) for key in ("a", "b")}

    def coordinates(self, q: Natural, summary: Any) -> np.ndarray:
        return q["a"] / (q["a"] + q["b"])

    def statistics(
        self, raw: Natural, keys: tuple[str, ...] | None = None, q: Natural | None = None
    ) -> Natural:
        return {"a": raw["sum"], "b": self._observed(raw) - raw["sum"]}

    def log_volumes(self, x: np.ndarray, summary: Any, expected: Coefficients) -> np.ndarray:
        powers = np.asarray(x)[:, None, None]
        return np.logaddexp(0.0, powers * expected.slopes) + powers * expected.cells


def _best_pairs(logs: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return the parameters of beta priors that maximise the bound, one pair for each column.

    Parameters
    ----------
    logs : ndarray of shape (2, n_features)
        The means of E log v and of E log(1 − v) over the components.
    pairs : ndarray of shape (2, n_features)
        The first guesses of both parameters.
    """
    starts, settled = pairs, np.zeros(pairs.shape[1], dtype=bool)
    # Newton's method for all columns at once takes far less time than a search for each of them.
    for _ in range(_STEPS):
        total = pairs.sum(axis=0)
        slope, curvature = psi(total) - psi(pairs) + logs, polygamma(1, pairs)
        shared, step = polygamma(1, total), slope / curvature
        # The Hessian is that of two separate numbers plus a constant, so that its inverse is known.
        common = shared * step.sum(axis=0) / (1.0 - (shared / curvature).sum(axis=0))
        new = np.clip(pairs + step + common / curvature, 0.25 * pairs, 4.0 * pairs)
        settled = (np.abs(new - pairs) <= _PRECISION * pairs).all(axis=0)
        pairs = new
        if settled.all():
            break
    inside = ((pairs > _BOUNDS[0]) & (pairs < _BOUNDS[1])).all(axis=0)
    for column in np.flatnonzero(~(settled & inside)):
        (log_v, log_rest), (a, b) = logs[:, column], starts[:, column]
        pairs[:, column] = beta_pair(log_v, log_rest, (a, b), _BOUNDS)
    return pairs
