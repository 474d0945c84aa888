"""Sizes of Gaussian components: the factors by which the scales of their priors differ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, psi

from ...families._empirical_bayes import damped, maximizer, trigamma

# Bounds of the strength a of sizes. With a smaller one the prior would hardly have a mean. At the
# largest one, sizes are 1 up to a hundredth, as if there were none.
_STRENGTHS = (0.5, 1e4)
# a is searched near the best of these values, up to this relative precision.
_GRID_OF_STRENGTHS = np.geomspace(*_STRENGTHS, 21)
_OWN_OF_STRENGTHS = _GRID_OF_STRENGTHS * np.log(_GRID_OF_STRENGTHS) - gammaln(_GRID_OF_STRENGTHS)
_PRECISION_OF_STRENGTH = 1e-7


@dataclass(frozen=True)
class Sizes:
    """The distributions of the sizes of all components, and their prior.

    The prior of the precision of component k is a Wishart distribution with the inverse scale
    s_k V. All components share V, and their sizes s_k ~ Gamma(a, a), whose mean is 1, are inferred
    with q(s_k) = Gamma(A_k, B_k). Where all components have the same scale, the learned a is large,
    and V alone is their prior. Where scales differ by orders of magnitude, components still share
    the shape of V, which a single scale could not express.
    """

    strength: float  # a
    # A_k and B_k, (n_components,).
    shape: np.ndarray
    rate: np.ndarray

    @classmethod
    def equal(cls, n_components: int) -> Sizes:
        """Return sizes of 1, with which learning begins."""
        most = np.full(n_components, _STRENGTHS[1])
        return cls(_STRENGTHS[1], most, most)

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

    def reordered(self, order: np.ndarray) -> Sizes:
        """Return the sizes of the components in another order, given their numbers."""
        return replace(self, shape=self.shape[order], rate=self.rate[order])

    def learned(
        self,
        traces: np.ndarray,
        decay: Decay,
        dof: np.ndarray | float,
        n_features: int,
        rho: float,
        least: float = 0.0,
    ) -> Sizes:
        """Return the sizes and their strength that maximise the bound together, after a step ρ.

        ``traces`` has tr(V E Λ_k) of the components, and ``decay`` says how they change with the
        sizes. No expected size is below ``least``, which those of this object are not.
        """
        counts = 0.5 * n_features * np.broadcast_to(dof, traces.shape)
        terms = _OfSizes(counts, 0.5 * traces, decay, self.mean)
        strengths = np.array([terms.best_strength(), self.strength])
        means, shapes = terms.means(strengths)[0], np.add.outer(strengths, counts)
        rates = shapes / np.maximum(means, max(least, 1e-300))
        best, same = map(Sizes, strengths.tolist(), shapes, rates)
        if (means[0] < least).any():
            # The strength that is the best without limits may not be the best with them.
            best = max((best, same, self), key=terms.gain)
        return Sizes(
            damped(self.strength, best.strength, rho),
            (1.0 - rho) * self.shape + rho * best.shape,
            (1.0 - rho) * self.rate + rho * best.rate,
        )


class Decay(NamedTuple):
    """How the slopes of the terms −t(s) of the bound change with the sizes s of components.

    dt/ds is m / s plus a rest that falls as 1 / (1 + (s − now) e), where m is 0 for smaller sizes.
    """

    certain: np.ndarray  # m of larger sizes
    above: np.ndarray  # e of larger sizes, not above 1 / now
    below: np.ndarray  # e of smaller ones


class _OfSizes(NamedTuple):
    """The terms n log s − t(s) of the bound that depend on the sizes of components."""

    counts: np.ndarray  # n
    slopes: np.ndarray  # dt/ds at the sizes now
    decay: Decay
    now: np.ndarray

    def means(self, a: np.ndarray | float) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Return the best expected sizes for strengths of shape (...), and the terms for these.

        All of them have the shape (..., n_components).
        """
        a = np.asarray(a)[..., None]
        larger = a + self.counts > (a + self.slopes) * self.now
        certain, slopes, decay = self._terms(larger)
        # (n + a − m) / s = a + t / (1 + (s − now) e) is a quadratic equation.
        total, rest = a + self.counts - certain, 1.0 - self.now * decay
        linear = a * rest + slopes - total * decay
        root = np.sqrt(linear**2 + 4.0 * a * decay * total * rest)
        with np.errstate(divide="ignore", invalid="ignore"):
            falling = 0.5 * (root - linear) / (a * decay)
        s = np.where(linear > 0.0, 2.0 * total * rest / (linear + root), falling)
        return s, (certain, slopes, decay)

    def _terms(self, larger: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return m, the other part of the slopes now, and e, of larger sizes or smaller ones."""
        certain = np.where(larger, self.decay.certain, 0.0)
        rest = np.maximum(self.slopes - certain / self.now, 0.0)
        return certain, rest, np.where(larger, self.decay.above, self.decay.below)

    def gain(self, sizes: Sizes) -> float:
        """Return the terms of these sizes, less their divergence from the prior, in nats."""
        terms = self.counts * sizes.mean_log - self._losses(sizes.mean)
        return float(np.sum(terms - sizes._divergences()))

    def _losses(self, sizes: np.ndarray, terms: tuple[np.ndarray, ...] | None = None) -> np.ndarray:
        certain, slopes, decay = self._terms(sizes > self.now) if terms is None else terms
        change = (sizes - self.now) * decay
        # log(1 + x) / x, which is 1 at 0.
        some = np.where(change == 0.0, 1.0, change)
        ratio = np.where(change == 0.0, 1.0, np.log1p(change) / some)
        return certain * np.log(sizes / self.now) + slopes * (sizes - self.now) * ratio

    def best_strength(self) -> float:
        """Return the strength that maximises the terms at the best sizes for it.

        Alternating steps over the strength and the sizes would take hundreds of passes where sizes
        are equal.
        """
        grid = _GRID_OF_STRENGTHS
        total, (s, terms) = np.add.outer(grid, self.counts), self.means(grid)
        own = gammaln(total) - total * (np.log(total / s) - 1.0) - grid[:, None] * s
        best = int(np.argmax(_OWN_OF_STRENGTHS + (own - self._losses(s, terms)).mean(axis=-1)))
        ends = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, len(grid) - 1)])

        def slope(a: float) -> tuple[float, float]:
            total, (s, (certain, slopes, decay)) = a + self.counts, self.means(a)
            decline = slopes * decay / (1.0 + (s - self.now) * decay) ** 2
            change = (1.0 / s - 1.0) ** 2 / ((total - certain) / s**2 - decline)
            first = np.log(a) + 1.0 - psi(a) + (psi(total) - np.log(total / s) - s).mean()
            second = (trigamma(total) - 1.0 / total + change).mean()
            return float(first), float(1.0 / a - trigamma(a) + second)

        return maximizer(slope, *ends, float(grid[best]), _PRECISION_OF_STRENGTH)
