"""Popularities of the columns of factorised counts, as rates of the priors of components.

Hierarchical Poisson factorisation (Gopalan, Hofman, Blei, 2015, section 2) gives each item a rate:

    η_v ~ Gamma(s, s),    w_kv ~ Gamma(a, a η_v),

so that 1 / η_v, the prior mean of the entries of column v, is how popular the column is. With one
rate for all columns, the prior adds as many counts of each component to rare columns as to popular
ones, which moves the former away from their data. A factor p_v of the rates, with w_kv ~ Gamma(a,
a), has nearly the same prior for the products p_v w_kv. But q(p) q(w) would have both determined by
the same counts, and the bound would pay for each.

Counts depend on η through w alone. Given q(w), the best factor is

    q(η_v) = Gamma(s + K a, s + a Σ_k E w_kv),

and given E η_v, the update of w is that of a prior Gamma(a, a E η_v). The shape of q(η_v) is known,
so that E η determines it, and the prior that a fit carries along has all there is. E η follows q(w)
after every update at T = 1, and stays as it is at other temperatures, as learned priors do. In the
lower bound, KL(q(w) ‖ Gamma(a, a E η)) has log E η in the place of E log η, and KL(q(η) ‖ p(η)) is
a further term.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import polygamma, psi

from ..families import Gamma, digamma_excess
from ..families._empirical_bayes import LARGEST, SMALLEST, damped, maximizer


@dataclass(frozen=True)
class Popularity:
    """The prior of the rates η of columns, and q(η).

    Attributes
    ----------
    prior : float
        s
    means : ndarray of shape (n_columns,)
        E η
    """

    prior: float
    means: np.ndarray

    def following(self, totals: np.ndarray, a: float, k: int, rho: float) -> Self:
        """Return the best q(η), or a step of the size ρ towards it, given Σ_k E w_kv."""
        best = (self.prior + k * a) / (self.prior + a * totals)
        if rho != 1.0:
            best = self.means * (best / self.means) ** rho
        return replace(self, means=best)

    def logs(self, a: float, k: int) -> np.ndarray:
        """Return E log η, of shape (n_columns,), for components of the shape a."""
        shape = self.prior + k * a
        return np.asarray(psi(shape) - np.log(shape / self.means))

    def learned(self, totals: np.ndarray, a: float, k: int, rho: float) -> Self:
        """Move s towards the maximum of the bound, given Σ_k E w_kv.

        With the best q(η) for every s, the bound has, up to a constant, the sum over columns of
        s log s − log Γ(s) + log Γ(s + K a) − (s + K a) log(s + a Σ_k E w_kv).
        """
        n, exposed = len(totals), a * totals

        def slope(s: float) -> tuple[float, float]:
            rate = s + exposed
            value = n * (np.log(s) + 1.0 - psi(s) + psi(s + k * a))
            value -= np.sum(np.log(rate) + (s + k * a) / rate)
            curvature = n * (1.0 / s - polygamma(1, s) + polygamma(1, s + k * a))
            curvature += np.sum((k * a - exposed) / rate**2 - 1.0 / rate)
            return float(value), float(curvature)

        best = maximizer(slope, SMALLEST, LARGEST, self.prior)
        return replace(self, prior=damped(self.prior, best, rho))

    def kl(self, a: float, k: int) -> float:
        """Return KL(q(η) ‖ p(η)) + Σ_kv a (log E η_v − E log η_v), in nats."""
        shape = np.full(len(self.means), self.prior + k * a)
        prior = np.full(len(self.means), self.prior)
        own = Gamma().kl(
            {"shape": shape, "rate": shape / self.means}, {"shape": prior, "rate": prior}
        )
        return own - k * a * float(digamma_excess(shape).sum())
