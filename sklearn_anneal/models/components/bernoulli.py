"""Components whose observations are rows of zeros and ones."""

from __future__ import annotations

from copy import copy

import numpy as np
from scipy.special import expit, gammaln, psi

from ...data.units import Rows
from ...families import Beta, Factor, Natural
from ...families._empirical_bayes import beta_pair, maxima, trigamma
from ._base import BOUNDS, Draws, Profile, least_mean, moved, multiplied
from ._linear import Coefficients, LinearComponents, LinearSums, points_of

# Newton's method for all columns stops at this relative precision, or after so many steps.
_PRECISION, _STEPS = 1e-10, 20
# A slope below this, relative to the parameter, counts as zero.
_FLAT = 1e-7


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

    def prior(self, summary: None) -> Natural:
        return {"a": self.a, "b": self.b}

    def _learned(
        self, q: Natural, prior: Natural, rho: float
    ) -> tuple[BernoulliComponents, Natural]:
        (factor,) = self.factors
        expected = factor.family.expectations(factor.pick(q))
        logs = np.array([expected["a"].mean(axis=0), expected["b"].mean(axis=0)])
        observed = sum((q[key] - prior[key]).sum(axis=0) for key in ("a", "b"))
        starts = np.array([self.a[0], self.b[0]])
        a, b = _best_pairs(logs, starts, least_mean(observed))
        learned = copy(self)
        learned.a, learned.b = moved(self.a, a, rho), moved(self.b, b, rho)
        return learned, learned.prior(None)

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

    def coefficients(self, draws: Draws) -> Coefficients:
        (draw,) = draws
        return self._coefficients(draw["log_value"], draw["log_complement"])

    def plug_in(self, q: Natural) -> Coefficients:
        total = np.log(q["a"] + q["b"])
        return self._coefficients(np.log(q["a"]) - total, np.log(q["b"]) - total)

    def imputed(
        self, rows: Rows, shares: np.ndarray, q: Natural
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


def _best_pairs(logs: np.ndarray, pairs: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Return the parameters of beta priors that maximise the bound, one pair for each column.

    Parameters
    ----------
    logs : ndarray of shape (2, n_features)
        The means of E log v and of E log(1 − v) over the components.
    pairs : ndarray of shape (2, n_features)
        The first guesses of both parameters.
    least : ndarray of shape (n_features,)
        The smallest means of v and of 1 − v under the prior.
    """
    result, active = pairs.copy(), np.arange(pairs.shape[1])
    elsewhere = np.zeros(pairs.shape[1], dtype=bool)
    # Newton's method for all columns at once takes far less time than a search for each of them.
    for _ in range(_STEPS):
        now = result[:, active]
        total = now.sum(axis=0)
        slope, curvature = psi(total) - psi(now) + logs[:, active], trigamma(now)
        shared, step = trigamma(total), slope / curvature
        # The Hessian is that of two separate numbers plus a constant, so that its inverse has a
        # closed form.
        common = shared * step.sum(axis=0) / (1.0 - (shared / curvature).sum(axis=0))
        new = np.clip(now + step + common / curvature, 0.25 * now, 4.0 * now)
        result[:, active] = new
        settled = (np.abs(new - now) <= _PRECISION * now).all(axis=0)
        left = ~((new > BOUNDS[0]) & (new < BOUNDS[1])).all(axis=0)
        elsewhere[active[left]] = True
        active = active[~settled & ~left]
        if not len(active):
            break
    elsewhere[active] = True
    rest = np.flatnonzero(elsewhere)
    if len(rest):
        result[:, rest], sure = _best_at_bounds(logs[:, rest], pairs[:, rest])
        for column in rest[~sure]:
            (log_v, log_rest), (a, b) = logs[:, column], pairs[:, column]
            result[:, column] = beta_pair(log_v, log_rest, (a, b), BOUNDS)
    # The bound is concave in the pair. If the best of all pairs has a mean that is too small, the
    # best of those that are permitted has the smallest mean.
    for rare in (0, 1):
        few = np.flatnonzero(result[rare] < least * result.sum(axis=0))
        if len(few):
            best = _best_with_mean(least[few], logs[rare, few], logs[1 - rare, few])
            result[rare, few], result[1 - rare, few] = best
    return result


def _best_with_mean(means: np.ndarray, log: np.ndarray, log_rest: np.ndarray) -> np.ndarray:
    """Return the best pairs whose priors have the given means of v, which are at most a half.

    ``log`` and ``log_rest`` are the means of E log v and of E log(1 − v) over the components.
    """
    shares = np.array([means, 1.0 - means])
    lower = BOUNDS[0] / means
    upper = np.maximum(BOUNDS[1] / shares[1], lower)
    target = shares[0] * log + shares[1] * log_rest

    def slope(total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        own = total * shares
        value = psi(total) - (shares * psi(own)).sum(axis=0) + target
        return value, trigamma(total) - (shares**2 * trigamma(own)).sum(axis=0)

    return shares * maxima(slope, np.sqrt(lower * upper), lower, upper)


def _best_at_bounds(logs: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the best pairs of which one parameter is at a bound, and whether they are the best.

    The bound is a concave function of the pair. If its maximum between the bounds is not inside, it
    is where one parameter is at a bound and the other is the best for it. The second result says
    where the slopes show that this is the maximum.
    """
    n = starts.shape[1]
    best, sure = starts.copy(), np.zeros(n, dtype=bool)
    highest = np.full(n, -np.inf)
    for fixed in (0, 1):
        for bound in BOUNDS:
            pair = np.empty((2, n))
            pair[fixed] = bound
            pair[1 - fixed] = _best_given(bound, logs[1 - fixed], starts[1 - fixed])
            total = pair.sum(axis=0)
            value = gammaln(total) - gammaln(pair).sum(axis=0) + (pair * logs).sum(axis=0)
            slope = psi(total) - psi(pair) + logs
            outward = slope * np.where(pair == BOUNDS[0], -1.0, 1.0) >= -_FLAT
            flat = np.abs(slope) * pair <= _FLAT
            at_bound = (pair == BOUNDS[0]) | (pair == BOUNDS[1])
            better = value > highest
            best = np.where(better, pair, best)
            sure = np.where(better, (flat | (at_bound & outward)).all(axis=0), sure)
            highest = np.maximum(value, highest)
    return best, sure


def _best_given(other: float, log_mean: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the best value of one parameter of each pair given the other, between the bounds."""

    def slope(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return psi(other + x) - psi(x) + log_mean, trigamma(other + x) - trigamma(x)

    return maxima(slope, starts, np.full(len(starts), BOUNDS[0]), np.full(len(starts), BOUNDS[1]))
