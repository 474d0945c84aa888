"""Precision matrices of Gaussian components whose rows are few for their columns.

With a diagonal covariance prior the inverse scale of a component is W⁻¹ = A + BᵀB. Here A is
diagonal, and B has the rows of the component relative to their mean, multiplied by the square roots
of their weights, and the distance of this mean from the prior mean. With the n rows Z of B A^(−1/2)
and the Cholesky factor L of I + Z Zᵀ, C = L⁻¹ Z gives

    W = A^(−1/2) (I − CᵀC) A^(−1/2),  log|W⁻¹| = log|A| + log|I + Z Zᵀ|.

So n² D operations take the place of D³ (the formulas of Woodbury and Sylvester).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dtrmm

from ...families import Natural
from ...families._structure import (
    diagonals_alone,
    inverse_of_lower,
    log_det_of_root,
    lower_root,
)
from ...families.wishart import Precisions
from ._features import FeatureSums

if TYPE_CHECKING:
    from .gaussian import GaussianComponents

# Differences 1 − Σ C² lose so many digits at most. Products of matrices lose fewer where the rows
# are so much wider than the prior.
_LARGEST_ROOT = 1e4
# Sums of squares in another order agree up to this relative difference.
_ROUNDING = 1e-9


class FewRows(NamedTuple):
    """The rows of all components."""

    counts: np.ndarray  # N, (n_components,)
    means: np.ndarray  # relative to the center of the data, (n_components, n_features)
    # The rows less these means, times the roots of their weights: (n_rows, n_features) each.
    rows: Sequence[np.ndarray]
    reg_covar: float

    @classmethod
    def of(cls, components: GaussianComponents, raw: FeatureSums) -> FewRows:
        """Return the rows of the statistics ``raw``, which :func:`are_few`."""
        assert raw.kept is not None
        counts, first = raw.own[:, -1], raw.own[:, -components.n_features - 1 : -1]
        d, rows = components.n_features, []
        means = first / np.maximum(counts, np.finfo(float).tiny)[:, None]
        for blocks, mean in zip(raw.kept, means, strict=True):
            weighted = np.concatenate([np.empty((0, d)), *(block.rows for block in blocks)])
            roots = np.concatenate([np.empty(0), *(block.roots for block in blocks)])
            weighted -= roots[:, None] * mean
            rows.append(weighted)
        return cls(counts, means, rows, components.reg_covar)

    @property
    def noise(self) -> np.ndarray:
        """N_k ``reg_covar``, which the diagonals of scatter statistics have besides the rows."""
        return self.counts * self.reg_covar

    def precisions(
        self,
        scales: np.ndarray,
        strength: np.ndarray,
        center: np.ndarray,
        dof: np.ndarray,
    ) -> Precisions | None:
        """Return E Λ, given the diagonals of the prior's inverse scales, β₀ and m₀.

        The result is None if it would have lost digits.

        Raises
        ------
        numpy.linalg.LinAlgError
            If a matrix is not positive definite.
        """
        factors = strength * self.counts / (strength + self.counts)
        distances = np.sqrt(factors)[:, None] * (self.means - center)
        rows = [np.vstack(both) for both in zip(self.rows, distances, strict=True)]
        found = RowPrecisions(scales + self.noise[:, None], rows, dof)
        return found if found.widest <= _LARGEST_ROOT else None


def are_few(raw: FeatureSums) -> bool:
    """Return whether no component has too many rows."""
    return raw.kept is not None and all(of_one is not None for of_one in raw.kept)


def is_posterior(
    components: GaussianComponents, q: Natural, prior: Natural, raw: FeatureSums
) -> bool:
    """Return whether q differs from its prior by statistics, and by nothing else.

    Of their matrices, the diagonals are compared.
    """
    if raw.layout != "full":
        return False
    d, counts = components.n_features, raw.own[:, -1]
    own = ("mean_precision", counts), ("mean_natural", raw.own[:, -d - 1 : -1]), ("dof", counts)
    if not all((q[key] == prior[key] + value).all() for key, value in own):
        return False
    # The upper triangle is stored row after row.
    i = np.arange(d)
    entries = i * (2 * d + 1 - i) // 2
    before, after = (natural["scatter"].diagonal(axis1=1, axis2=2) for natural in (prior, q))
    added = before + raw.own[:, entries] + components.reg_covar * counts[:, None]
    return bool((np.abs(after - added) <= _ROUNDING * np.abs(added)).all())


def moments_inside(
    components: GaussianComponents, q: Natural, prior: Natural, rows: FewRows | None
) -> tuple[Any, ...] | None:
    """Return the moments of joint factors, or None if q is outside of its domain.

    ``prior`` is that of the components, from which q differs by the ``rows``, if they are known.
    """

    def by_rows() -> Precisions | None:
        own = None if rows is None else diagonals_alone(np.asarray(components.common_scale))
        if rows is None or own is None:
            return None
        factors = 1.0 if components.sizes is None else components.sizes.mean
        scales = np.broadcast_to(factors, len(rows.counts))[:, None] * own
        center = components.prior_means(prior)
        return rows.precisions(scales, prior["mean_precision"], center, q["dof"])

    (factor,) = components.factors
    found = components._normal_wishart.moments_inside(factor.pick(q), by_rows)
    if found is None:
        return None
    return q["mean_natural"] / q["mean_precision"][:, None], None, *found


class RowPrecisions(Precisions):
    """E Λ = ν W with W⁻¹ = A + BᵀB, given the diagonals of A, the rows B and ν.

    The rows are overwritten.
    """

    def __init__(self, diagonals: np.ndarray, rows: Sequence[np.ndarray], dof: np.ndarray):
        if not (diagonals > 0.0).all():
            raise np.linalg.LinAlgError("Matrix is not positive definite")
        self.dof, self._spread = dof, 1.0 / np.sqrt(diagonals)
        self._rows, log_dets = list(rows), []
        self._roots: list[np.ndarray] = []
        # An upper limit of the entries of all L, whose rows are as long as the roots of the
        # diagonals of the matrices that are factorised.
        self.widest = 0.0
        for z, spread in zip(self._rows, self._spread, strict=True):
            z *= spread
            gram = z @ z.T
            squares = np.einsum("ii->i", gram)
            squares += 1.0
            self.widest = max(self.widest, float(np.sqrt(squares.max(initial=0.0))))
            root = lower_root(gram, overwrite=True)
            self._roots.append(root)
            log_dets.append(log_det_of_root(root))
        self.log_dets = np.log(diagonals).sum(axis=1) + np.array(log_dets)

    @cached_property
    def _turned(self) -> list[np.ndarray]:
        """C of all components, (n_rows, n_features) each."""
        roots, rows = vars(self).pop("_roots"), vars(self).pop("_rows")
        for root, z in zip(roots, rows, strict=True):
            inverse = inverse_of_lower(root, overwrite=True)
            # C = L⁻¹ Z, by their transposes in Fortran's order.
            dtrmm(1.0, inverse.T, z.T, side=True, overwrite_b=True)
        return rows

    @property
    def roots(self) -> RowPrecisions:
        """These factors themselves."""
        return self

    def distances(self, k: int, rows: np.ndarray) -> np.ndarray:
        """Return xᵀ E Λ_k x of rows x, which are overwritten."""
        rows *= self._spread[k]
        inside = rows @ self._turned[k].T
        found = np.einsum("nd,nd->n", rows, rows) - np.einsum("nd,nd->n", inside, inside)
        return self.dof[k] * np.maximum(found, 0.0)

    @cached_property
    def matrices(self) -> np.ndarray:
        n_components, d = self._spread.shape
        found = np.empty((n_components, d, d))
        for matrix, c, spread, dof in zip(found, self._turned, self._spread, self.dof, strict=True):
            scaled = np.sqrt(dof) * spread * c
            # A product with its own transpose takes half of the operations.
            np.negative(scaled.T @ scaled, out=matrix)
            np.einsum("ii->i", matrix)[:] += dof * spread**2
        return found

    @property
    def products(self) -> np.ndarray:
        """E Λ."""
        return self.matrices

    @cached_property
    def diagonals(self) -> np.ndarray:
        inside = np.stack([np.einsum("ij,ij->j", c, c) for c in self._turned])
        return self.dof[:, None] * self._spread**2 * (1.0 - inside)

    def multiply(self, vectors: np.ndarray) -> np.ndarray:
        scaled = self._spread[:, :, None] * vectors
        pairs = zip(self._turned, scaled, strict=True)
        inside = np.stack([c.T @ (c @ columns) for c, columns in pairs])
        return self.dof[:, None, None] * self._spread[:, :, None] * (scaled - inside)

    def squares(self, scales: np.ndarray) -> np.ndarray:
        factors = scales * self._spread**2
        found = (factors**2).sum(axis=1)
        for k, (c, t) in enumerate(zip(self._turned, factors, strict=True)):
            found[k] -= 2.0 * (np.einsum("ij,ij->j", c, c) @ t**2)
            scaled = np.sqrt(t) * c
            found[k] += np.square(scaled @ scaled.T).sum()
        return found * self.dof**2
