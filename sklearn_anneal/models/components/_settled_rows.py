"""Local steps of rows each of which certainly stays with its component.

With many columns, rows soon belong to one component each, while their priors are still learned.
That they stay is then shown by how little the parameters have changed since all densities were
computed. Let q be a prior plus the statistics of the rows. With the inverse scale s V of the prior,
the distance e of the mean of N rows from the prior mean, and h = β₀ N / (β₀ + N), it has

    W⁻¹ = s V + S + h e eᵀ

where S does not change. With a diagonal V, a change of the prior is at most a multiple of s V, and
this is at most as much of s V + S. A shift f of the prior mean changes e eᵀ by at most the shares
±q of e eᵀ and of s V + S with q² = h fᵀ (s V)⁻¹ f, and by q² of the latter. So the old W⁻¹ times
two numbers are limits of the new one, and the distances of all rows have limits as well. If these
leave no share to any other component, the statistics are those of the last visit, and the energy
follows from them, because tr(W⁻¹ E Λ) = ν D. Such a visit does not read the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...data.units import Rows
from ...families import Natural, Tempering
from ...families.wishart import Precisions
from .._base import LOG_2PI, LocalStep
from ._features import Features, FeatureSums, LastSums, Terms
from ._few_rows import RowPrecisions

if TYPE_CHECKING:
    from .fused_gaussian import FusedGaussian

# Another component has no share of a row if its log density is lower by so many nats.
_MARGIN = 60.0
# The largest product of diagonal entries of W⁻¹ + β m mᵀ and W. With a larger one, the factors of
# W⁻¹ have lost so many digits that tr(W⁻¹ E Λ) differs from ν D in the digits of the bound.
_LARGEST_PRODUCT = 1e4


class Origin(NamedTuple):
    """The prior and the statistics of rows of which q is the sum, and what follows from them.

    All arrays have one row or one number for each component.
    """

    last: LastSums | None
    raw: FeatureSums
    counts: np.ndarray  # N
    scales: np.ndarray  # the diagonals of s V, (n_components, n_features)
    strength: np.ndarray  # β₀
    centers: np.ndarray  # m₀, (n_components, n_features)
    dof: np.ndarray  # ν
    # Σ w (x − m)ᵀ E Λ (x − m)
    within: np.ndarray
    q: Natural
    precisions: Precisions | None

    @classmethod
    def of(
        cls,
        components: FusedGaussian,
        last: LastSums,
        raw: FeatureSums,
        prior: Natural,
        q: Natural,
        precisions: Precisions,
        traces: np.ndarray,
        distances: np.ndarray,
    ) -> Origin:
        """Return that of a q with these precisions.

        ``traces`` and ``distances`` are tr(W₀⁻¹ E Λ) and β₀ (m − m₀)ᵀ E Λ (m − m₀).
        """
        sizes, counts = components.sizes, components.counted(raw)
        factors = np.ones(len(counts)) if sizes is None else sizes.mean
        scales = np.multiply.outer(factors, np.asarray(components.common_scale).diagonal())
        within = precisions.dof * scales.shape[1] - traces - distances
        if components.reg_covar:
            # The scatter has this variance for each row besides the rows.
            within -= components.reg_covar * counts * precisions.diagonals.sum(axis=1)
        strength, centers = prior["mean_precision"], components.prior_means(prior)
        how = scales, strength, centers, precisions.dof, within
        return cls(last, raw, counts, *how, q, precisions)

    @property
    def keeps_digits(self) -> bool:
        """Whether W has about as many digits as numbers have."""
        if self.precisions is None or isinstance(self.precisions, RowPrecisions):
            return True
        own = self.q["scatter"].diagonal(axis1=1, axis2=2)
        return bool((own * self.precisions.diagonals <= _LARGEST_PRODUCT * self.dof[:, None]).all())

    def noted(self, terms: Terms, log_joint: np.ndarray, is_own: np.ndarray) -> Noted | None:
        """Return this with the distances of rows, given their densities and their components."""
        if not self.keeps_digits:
            return None
        squares = 2.0 * (terms.constant - log_joint) - self.of_columns
        distances, k = np.sqrt(np.maximum(squares, 0.0)), len(self.counts)
        most, least = np.zeros(k), np.full((k, k), np.inf)
        for j, own in enumerate(is_own.T):
            some = distances[own]
            most[j] = some[:, j].max(initial=0.0)
            least[j] = some.min(axis=0, initial=np.inf)
        np.fill_diagonal(least, np.inf)
        rest = self._replace(last=None, q={}, precisions=None)
        return Noted(rest, terms.mean, 1.0 / self.scales, most, least)

    @property
    def of_columns(self) -> float:
        """D log 2π."""
        return self.scales.shape[1] * LOG_2PI

    @property
    def pull(self) -> np.ndarray:
        """h, which is 0 without rows."""
        return self.strength * self.counts / (self.strength + self.counts)


class Noted(NamedTuple):
    """A visit that has computed all densities."""

    origin: Origin
    mean: np.ndarray
    inverses: np.ndarray  # those of its diagonals of s V
    # The longest distance of a row from the mean of its component, (n_components,), and the
    # shortest one of the rows of each component from every other mean, (n_components,
    # n_components), as roots of (x − m)ᵀ E Λ (x − m).
    most: np.ndarray
    least: np.ndarray

    def stays(self, now: Origin, terms: Terms) -> bool:
        """Return whether all rows certainly stay with their components."""
        found = self.limits(now, terms)
        return found is not None and bool((found[0][:, None] - found[1] >= _MARGIN).all())

    def limits(self, now: Origin, terms: Terms) -> tuple[np.ndarray, np.ndarray] | None:
        """Return limits of the log densities of the rows of each component; None without any.

        The first ones are not above their densities of this component, (n_components,), and the
        second ones not below those of the others, (n_components, n_components).
        """
        before, pull = self.origin, now.pull
        ratios = now.scales * self.inverses
        q = np.sqrt(pull * self._squares(before.centers - now.centers))
        # That of e eᵀ, which components without rows do not have.
        none = pull == 0.0
        ratio = (pull + none) / (before.pull + none)
        shrunk = np.minimum(np.minimum(ratios.min(axis=1), ratio), 1.0) - q
        grown = np.maximum(np.maximum(ratios.max(axis=1), ratio), 1.0) * (1.0 + q) + q**2
        if not (shrunk > 0.0).all():
            return None
        moved = np.sqrt(before.dof * self._squares(terms.mean - self.mean))
        of_dof, constant = 0.5 * now.dof / before.dof, terms.constant - 0.5 * before.of_columns
        own = constant - of_dof / shrunk * (self.most + moved) ** 2
        return own, constant - of_dof / grown * np.maximum(self.least - moved, 0.0) ** 2

    def _squares(self, shift: np.ndarray) -> np.ndarray:
        """Return vᵀ (s V)⁻¹ v of vectors v."""
        found: np.ndarray = np.einsum("kd,kd,kd->k", shift, shift, self.inverses)
        return found


def settled_step(
    components: FusedGaussian, rows: Rows, features: Features, t: Tempering
) -> LocalStep | None:
    """Return the local step of rows that certainly stay with their components; None for others."""
    origin: Origin | None = features.origin
    if origin is None or np.ndim(t.local) or t.local != 1.0:
        return None
    if np.ndim(t.statistics) or t.statistics != 1.0:
        return None
    assert origin.last is not None
    noted: Noted | None = origin.last.noted(rows, origin.raw)
    if noted is None or not noted.stays(origin, features.terms):
        return None
    constant = features.terms.constant - 0.5 * origin.of_columns
    energy = origin.counts @ constant - 0.5 * origin.within.sum()
    return LocalStep(components._all_counted(origin.raw), float(energy), 0.0)
