"""The weights of mixtures: Dirichlet, or stick-breaking for the truncated Dirichlet process.

Weights that depend on covariates of the rows are in ``_covariates.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.special import gammaln, logsumexp

from ..data.units import Rows
from ..families import Beta, Dirichlet, Factor, Natural, stick_breaking_log_weights
from ..families._divergence import STRONG
from ..families._empirical_bayes import (
    LARGEST,
    SMALLEST,
    damped,
)
from ._base import Known, compiled, shallow

kernels = partial(compiled, "mixture_steps")

# The second parameter of a stick of which nothing is left.
_NOTHING = 1e-6


class Weights(ABC):
    """The distribution of the weights of K components; it holds hyperparameters only.

    Attributes
    ----------
    n_components : int
        K.
    learns : bool
        Whether :meth:`learned` changes the prior.
    """

    factor: Factor
    n_components: int
    learns: bool

    @abstractmethod
    def prior(self) -> Natural:
        """Return λ₀, the natural parameters of the prior."""

    @abstractmethod
    def learned(
        self, q: Natural, prior: Natural, rho: float, late: bool
    ) -> tuple[Weights, Natural]:
        """Return the weights and their λ₀ after a step of empirical Bayes.

        A hyperparameter that is learned moves by the share ρ, on the scale of its logarithm,
        towards the value that maximises the bound given q. It stays until the fit has settled
        (``late``).
        """

    def best_order(self, counts: np.ndarray) -> np.ndarray:
        """Return the order of the components at which the bound is highest, as their numbers.

        ``counts`` has the number of rows of each component, of shape (n_components,).
        """
        return np.arange(self.n_components)

    def gain_of_order(self, q: Natural, reordered: Natural) -> float:
        """Return the gain of the bound of the same assignments by another order, in nats."""
        return 0.0

    @abstractmethod
    def statistics(self, counts: np.ndarray, gated: Any = None) -> Natural:
        """Return the sufficient statistics, given the number of rows of each component.

        ``counts`` has shape (n_components,). ``gated`` is what the local step has found for weights
        that differ between rows (:meth:`gate`); None if there has been no step.
        """

    def statistics_of_rows(
        self, counts: np.ndarray, rows: Rows, shares: np.ndarray, scale: float
    ) -> Natural:
        """Return the same, given also the rows, with their shares (n_rows, n_components).

        ``scale`` is the number of rows that each of them represents.
        """
        return self.statistics(counts)

    def chosen(self, q: Natural, prior: Natural, chosen: np.ndarray) -> Natural:
        """Return what q adds to the prior for some components, whose numbers are ``chosen``."""
        return self.statistics(self.expected_counts(q, prior)[chosen])

    def known(self, q: Natural) -> Known | None:
        """Return values that :meth:`log_weights` and :meth:`kl` share, or None."""
        return None

    @abstractmethod
    def log_weights(
        self, q: Natural, rng: np.random.Generator | None = None, known: Known | None = None
    ) -> np.ndarray:
        """Return E log π, or with ``rng`` log π of one draw, of shape (n_components,).

        ``known`` is the result of :meth:`known` at q.
        """

    def kl(self, q: Natural, prior: Natural, known: Known | None = None) -> float:
        """Return KL(q(π) ‖ p(π)) in nats."""
        return self.factor.family.kl(self.factor.pick(q), self.factor.pick(prior))

    @abstractmethod
    def drawn_log_weights(self, draw: dict[str, np.ndarray]) -> np.ndarray:
        """Return log π of one draw from the factor."""

    @abstractmethod
    def mean(self, q: Natural) -> np.ndarray:
        """Return the mean weights, of shape (n_components,).

        Weights of a truncated process are renormalised, so that they sum to 1.
        """

    @abstractmethod
    def expected_counts(self, q: Natural, prior: Natural) -> np.ndarray:
        """Return N_k, the expected number of rows of each component."""

    # Weights that differ between rows

    @property
    def differ(self) -> bool:
        """Whether rows have weights of their own, which :meth:`gate` computes."""
        return False

    @property
    def n_parameters(self) -> int:
        """The number of free parameters, for information criteria."""
        return self.n_components - 1

    def summary(self, rows: Rows) -> Any:
        """Return the moments of what the weights depend on; None if they depend on nothing."""
        return None

    def resolved(self, summary: Any) -> Self:
        """Return weights whose hyperparameters that depend on data have their values."""
        return self

    def gate(self, q: Natural, rng: np.random.Generator | None = None) -> Any:
        """Return what adds E log π_n of single rows to :meth:`log_weights`; None for nothing."""
        return None

    def log_weights_of(self, rows: Rows, q: Natural) -> np.ndarray:
        """Return E log π of rows, (n_rows, n_components), or (n_components,) if all are alike."""
        return self.log_weights(q)

    def log_means_of(self, rows: Rows, q: Natural) -> np.ndarray:
        """Return the logarithms of the mean weights of rows, in the shapes of the former."""
        return np.log(self.mean(q))


class WeightsOfAll(Weights):
    """Weights that all rows share, with a prior concentration.

    Parameters
    ----------
    n_components : int
        K.
    concentration : float, "auto" or None
        Concentration of the prior. None stands for 1 / ``n_components``. With ``"auto"`` it is
        learned, beginning at that value; it keeps it if there is only one component, whose weight
        is 1 whatever the concentration.
    """

    def __init__(self, n_components: int, concentration: float | str | None):
        self.n_components = int(n_components)
        self.auto = isinstance(concentration, str)
        self.learns = self.auto and n_components > 1
        # The value is kept as it is given, an integer for example, because it is shown to users.
        self.concentration: Any = 1.0 / n_components
        if not (self.auto or concentration is None):
            self.concentration = concentration

    def learned(
        self, q: Natural, prior: Natural, rho: float, late: bool
    ) -> tuple[Weights, Natural]:
        # A small concentration would empty components that have not found their rows yet.
        if not (self.learns and late):
            return self, {name: prior[name] for name in self.factor.names.values()}
        weights = shallow(self)
        weights.concentration = damped(self.concentration, self._best_concentration(q), rho)
        return weights, weights.prior()

    @abstractmethod
    def _best_concentration(self, q: Natural) -> float:
        """Return the concentration that maximises the bound given q."""

    def log_weights(
        self, q: Natural, rng: np.random.Generator | None = None, known: Known | None = None
    ) -> np.ndarray:
        if rng is None:
            return self._expected_log_weights(q, known)
        return self.drawn_log_weights(self.factor.family.sample(self.factor.pick(q), rng))

    @abstractmethod
    def _expected_log_weights(self, q: Natural, known: Known | None) -> np.ndarray:
        """Return E log π."""


class DirichletWeights(WeightsOfAll):
    """π ~ Dir(α, …, α), with the natural parameters ``weight_concentration`` (K,)."""

    factor = Factor(Dirichlet(), {"concentration": "weight_concentration"})

    def prior(self) -> Natural:
        return {"weight_concentration": np.full(self.n_components, float(self.concentration))}

    def _best_concentration(self, q: Natural) -> float:
        best, first_level = np.array([float(self.concentration)]), np.array([0, self.n_components])
        logs, bounds = self.log_weights(q)[:, None], (SMALLEST, LARGEST)
        compiled("empirical_bayes").dirichlet_concentrations(logs, first_level, *bounds, best)
        return float(best[0])

    def statistics(self, counts: np.ndarray, gated: Any = None) -> Natural:
        return {"weight_concentration": counts}

    def _expected_log_weights(self, q: Natural, known: Known | None) -> np.ndarray:
        return self.factor.family.expectations(self.factor.pick(q))["concentration"]

    def drawn_log_weights(self, draw: dict[str, np.ndarray]) -> np.ndarray:
        return draw["log_probabilities"]

    def mean(self, q: Natural) -> np.ndarray:
        return q["weight_concentration"] / q["weight_concentration"].sum()

    def expected_counts(self, q: Natural, prior: Natural) -> np.ndarray:
        return q["weight_concentration"] - prior["weight_concentration"]


class StickBreakingWeights(WeightsOfAll):
    """π_k = v_k Π_{j<k} (1 − v_j) with v_k ~ Beta(1, α): ``stick_a`` and ``stick_b`` (K,).

    With a given α, π belongs to a process without end, of which the K first components are there:
    the bound lacks what the others would explain. With a learned one, the last component takes all
    that is left, v_K = 1 (Ishwaran and James, 2001), so that bounds of different K compare: that
    of a single component is exact, and a component that nothing needs lowers the bound.
    """

    factor = Factor(Beta(), {"a": "stick_a", "b": "stick_b"})

    def prior(self) -> Natural:
        # They are filled in place, which takes less time than functions that make such arrays.
        ones, rest = np.empty(self.n_components), np.empty(self.n_components)
        ones.fill(1.0)
        rest.fill(float(self.concentration))
        if self.auto:
            rest[-1] = _NOTHING
        return {"stick_a": ones, "stick_b": rest}

    def _best_concentration(self, q: Natural) -> float:
        found = np.empty(1)
        alpha = float(self.concentration)
        kernels().stick_concentration(*self._sticks(q), alpha, SMALLEST, LARGEST, found)
        return float(found[0])

    def _sticks(self, natural: Natural) -> tuple[np.ndarray, np.ndarray]:
        """Return both parameters of the sticks as kernels read them."""
        a, b = natural["stick_a"], natural["stick_b"]
        return np.ascontiguousarray(a), np.ascontiguousarray(b)

    def best_order(self, counts: np.ndarray) -> np.ndarray:
        largest_first = np.argsort(-counts, kind="stable")
        if not self.auto:
            return largest_first
        # All but the last are in the order of their size. With r_k rows after the first k
        # components, log p(z) = Σ_{k<K} log Γ(1 + n_k) + log Γ(α + n_K) − Σ_{k<K−1} log(α + r_k).
        n, alpha = counts[largest_first], float(self.concentration)
        before = n.sum() - np.cumsum(n)
        found = np.empty(len(n))
        for last in range(len(n)):
            # The component moves from its place to the end, so that more rows follow the others.
            rest = np.concatenate([before[:last], before[last + 1 :] + n[last]])[:-1]
            found[last] = gammaln(alpha + n[last]) - gammaln(1.0 + n[last])
            found[last] -= np.log(alpha + rest).sum()
        last = int(np.argmax(found))
        return np.append(np.delete(largest_first, last), largest_first[last])

    def gain_of_order(self, q: Natural, reordered: Natural) -> float:
        # Given the assignments, the bound has the log normaliser of the posterior of the sticks.
        normalizer = self.factor.family.log_normalizer
        new, old = (normalizer(self.factor.pick(each)) for each in (reordered, q))
        return float(new.sum() - old.sum())

    def statistics(self, counts: np.ndarray, gated: Any = None) -> Natural:
        beyond = np.zeros(len(counts))
        beyond[:-1] = counts[:0:-1].cumsum()[::-1]
        return {"stick_a": counts, "stick_b": beyond}

    def known(self, q: Natural) -> Known | None:
        logs = np.empty((3, self.n_components))
        kernels().stick_logs(*self._sticks(q), logs)
        return {"logs": logs}

    def _expected_log_weights(self, q: Natural, known: Known | None) -> np.ndarray:
        if known is None:
            expected = self.factor.family.expectations(self.factor.pick(q))
            return stick_breaking_log_weights(expected["a"], expected["b"])
        found: np.ndarray = known["logs"][2]
        return found

    def kl(self, q: Natural, prior: Natural, known: Known | None = None) -> float:
        if known is None:
            return super().kl(q, prior)
        found = np.empty(2)
        kernels().stick_divergence(*self._sticks(q), *self._sticks(prior), known["logs"], found)
        return float(found[0]) if found[1] <= STRONG else super().kl(q, prior)

    def drawn_log_weights(self, draw: dict[str, np.ndarray]) -> np.ndarray:
        return stick_breaking_log_weights(draw["log_value"], draw["log_complement"])

    def mean(self, q: Natural) -> np.ndarray:
        total = q["stick_a"] + q["stick_b"]
        log_weights = stick_breaking_log_weights(
            np.log(q["stick_a"] / total), np.log(q["stick_b"] / total)
        )
        return np.exp(log_weights - logsumexp(log_weights))

    def expected_counts(self, q: Natural, prior: Natural) -> np.ndarray:
        return q["stick_a"] - prior["stick_a"]


WEIGHTS: dict[str, type[WeightsOfAll]] = {
    "dirichlet_process": StickBreakingWeights,
    "dirichlet_distribution": DirichletWeights,
}
"""The classes of weights, by the values of ``weight_concentration_prior_type``."""
