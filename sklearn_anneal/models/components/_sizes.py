"""Factors by which the scales of components differ, and their terms in the bound.

The prior of the precision of component k is a Wishart distribution with the inverse scale s_k V.
All components share V, and their sizes s_k ~ Gamma(a, a), whose mean is 1, are inferred with
q(s_k) = Gamma(A_k, B_k). Where all components have the same scale, the learned a is large, and V
alone is their prior. Where scales differ by orders of magnitude, components still share the shape
of V, which a single scale could not express.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln, psi, zeta

from ...families._empirical_bayes import damped, maximizer

# Bounds of a. With a smaller one the prior would hardly have a mean. At the largest one, sizes are
# 1 up to a hundredth, as if there were none.
_BOUNDS = (0.5, 1e4)
# a is searched near the best of these values, up to this relative precision.
_GRID = np.geomspace(*_BOUNDS, 21)
_OWN_OF_GRID = _GRID * np.log(_GRID) - gammaln(_GRID)
_PRECISION = 1e-7


@dataclass(frozen=True)
class Sizes:
    """The distributions of the sizes of all components, and their prior.

    Attributes
    ----------
    strength : float
        a.
    shape, rate : ndarray of shape (n_components,)
        A_k and B_k.
    """

    strength: float
    shape: np.ndarray
    rate: np.ndarray

    @classmethod
    def equal(cls, n_components: int) -> Sizes:
        """Return sizes of 1, with which learning begins."""
        most = np.full(n_components, _BOUNDS[1])
        return cls(_BOUNDS[1], most, most)

    @property
    def mean(self) -> np.ndarray:
        """E s_k, of shape (n_components,)."""
        return self.shape / self.rate

    @property
    def described(self) -> dict[str, np.ndarray]:
        """The means and parameters of the distributions, and a, by their names."""
        strength = np.array(self.strength)
        own = {"shape": self.shape.copy(), "rate": self.rate.copy(), "strength": strength}
        return {"mean": self.mean, **own}

    @property
    def mean_log(self) -> np.ndarray:
        """E log s_k, of shape (n_components,)."""
        return psi(self.shape) - np.log(self.rate)

    def kl(self, dof: np.ndarray | float, n_features: int) -> float:
        """Return the term that the bound lacks with the prior of the precisions at E s_k, in nats.

        These are the divergences of the sizes from their prior, and ν D / 2 times the difference of
        log E s_k and E log s_k, because log p(Λ_k | s_k) has the term ν D log(s_k) / 2.
        """
        gap = np.log(self.shape) - psi(self.shape)
        return float(np.sum(self._divergences() + 0.5 * n_features * dof * gap))

    def _divergences(self) -> np.ndarray:
        """Return KL(q(s_k) ‖ p(s_k)) of all components in nats, of shape (n_components,)."""
        a, shape, rate = self.strength, self.shape, self.rate
        return (
            (shape - a) * psi(shape)
            - gammaln(shape)
            + gammaln(a)
            + a * (np.log(rate) - np.log(a))
            + shape * (a - rate) / rate
        )

    def normalised(self) -> tuple[Sizes, float]:
        """Return the sizes in units of their mean, and the mean.

        The bound is highest if V has the mean, because the prior expects sizes of 1.
        """
        mean = float(np.mean(self.mean))
        return replace(self, rate=self.rate * mean), mean

    def reordered(self, order: np.ndarray) -> Sizes:
        """Return the sizes of the components in another order, given their numbers."""
        return replace(self, shape=self.shape[order], rate=self.rate[order])

    def learned(
        self,
        traces: np.ndarray,
        dof: np.ndarray | float,
        n_features: int,
        rho: float,
        least: float = 0.0,
    ) -> Sizes:
        """Return the sizes and their strength that maximise the bound together, after a step ρ.

        ``traces`` has tr(V E Λ_k) of the components. No expected size is below ``least``, which
        those of this object are not.
        """
        counts, traces = 0.5 * n_features * np.broadcast_to(dof, traces.shape), 0.5 * traces
        best = self._best_given(_best_strength(counts, traces), counts, traces, least)
        if (best.rate < best.strength + traces).any():
            # The strength that is the best without limits may not be the best with them.

            def gain(sizes: Sizes) -> float:
                terms = counts * sizes.mean_log - traces * sizes.mean
                return float(np.sum(terms - sizes._divergences()))

            given = self._best_given(self.strength, counts, traces, least)
            best = max((best, given, self), key=gain)
        return Sizes(
            damped(self.strength, best.strength, rho),
            (1.0 - rho) * self.shape + rho * best.shape,
            (1.0 - rho) * self.rate + rho * best.rate,
        )

    @staticmethod
    def _best_given(strength: float, counts: np.ndarray, traces: np.ndarray, least: float) -> Sizes:
        shape, rate = strength + counts, strength + traces
        return Sizes(strength, shape, np.minimum(rate, shape / max(least, 1e-300)))


def _best_strength(counts: np.ndarray, traces: np.ndarray) -> float:
    """Return the a that maximises the mean of log ∫ Gamma(s | a, a) s^n exp(−s t) ds.

    ``counts`` and ``traces`` have n and t of the components. Alternating steps over a and the sizes
    would take hundreds of passes where sizes are equal.
    """
    total = np.add.outer(_GRID, counts)
    own = gammaln(total) - total * np.log(np.add.outer(_GRID, traces))
    best = int(np.argmax(_OWN_OF_GRID + own.mean(axis=-1)))
    ends = float(_GRID[max(best - 1, 0)]), float(_GRID[min(best + 1, len(_GRID) - 1)])

    def slope(a: float) -> tuple[float, float]:
        total, rates = a + counts, a + traces
        share = total / rates
        first = np.log(a) + 1.0 - psi(a) + np.mean(psi(total) - np.log(rates) - share)
        second = 1.0 / a - zeta(2.0, a) + np.mean(zeta(2.0, total) + (share - 2.0) / rates)
        return float(first), float(second)

    return maximizer(slope, *ends, float(_GRID[best]), _PRECISION)
