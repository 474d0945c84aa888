"""The users who rated an item as evidence about it, in matrix factorisation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple, Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

from ..data.units import Ratings
from ._base import compiled
from ._rating_hierarchy import Rows

# Effects begin with this share of the covariance matrix of items in that of their prior means, on
# average, and do not fall below the second one in any direction. On films, directions without
# effects would need a hundred passes more to fall to 0.001, for the same predictions.
_FIRST_SHARE, _LEAST_SHARE = 0.1, 0.01
# An update of effects reads who rated what in all data. In minibatches, one follows whenever this
# share of the data has been visited.
_SHARE_OF_DATA = 0.1
# Up to so many users or items, all eigenvalues of their joint effects are found, but for those that
# are zero up to rounding. Beyond, this many of the largest are, at a small part of a fit's time.
_DENSE, _DIRECTIONS, _ROUNDING = 1000, 100, 1e-10
# The variance of the effect that all raters share, as a share of that of one rater. A free slope
# for items with many ratings overfits small tables, and none is worse with many ratings.
_SHARED = 0.01

kernels = partial(compiled, "matrix_factorization")


class Pattern(NamedTuple):
    """Who rated which item, as kernels read it."""

    # √n_j and 1 / √n_j of each item, where n_j is the weighted number of its ratings.
    roots: np.ndarray
    shares: np.ndarray
    # The ratings of user i are those from ``indptr[i]`` on.
    indptr: np.ndarray
    items: np.ndarray
    # The weights of ratings; empty if they are ones.
    entries: np.ndarray
    # The number of users alike that a row stands for; 0 without ratings.
    users: np.ndarray
    # g_k, how much items tell about the effects along a direction, and the number of directions of
    # which each of them is the mean.
    evidence: np.ndarray
    numbers: np.ndarray
    # The mean variance of what raters add to an item, beside what they share, if V is 1; it is 1
    # without weights.
    variance: float

    @classmethod
    def of(cls, units: Ratings) -> Self:
        entries, weights = units.rating_weights, units.entry_weights()
        roots = np.sqrt(np.bincount(units.columns, weights, minlength=units.n_columns))
        shares = np.divide(1.0, roots, out=np.zeros(units.n_columns), where=roots > 0)
        users = np.ones(units.n_units) if units.weights is None else units.weights
        users = np.where(np.diff(units.indptr) > 0, users, 0.0)
        items, indptr, shape = units.columns, units.narrow_indptr, (units.n_units, units.n_columns)
        each = np.ones(len(items)) if entries is None else entries
        table = csr_array((each, items, indptr), shape)
        del each
        if not table.has_canonical_format:
            # If a pair of user and item occurs twice, the effect of the user counts twice.
            table = table.copy()
            table.sum_duplicates()
            if table.nnz < len(items):
                items, indptr, entries = table.indices, table.indptr, table.data
        design, nnz = _design(table, shares, roots, users), table.nnz
        # The spectrum of the design needs memory as well, and both are as large as the ratings.
        del table
        own = design.data[:nnz]
        variance = float(own @ own) / np.count_nonzero(shares)
        found = _spectrum(design)
        indptr, items = np.asarray(indptr, np.int64), np.asarray(items, np.int32)
        weights = np.empty(0) if entries is None else np.asarray(entries, float)
        return cls(roots, shares, indptr, items, weights, users, *found, variance)

    def steps(self, gamma: np.ndarray, residual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return steps of sources and of sums towards the optimum of each coordinate, (n_items, D).

        They are the steepest ascent of the bound of the a_i, whose optimum is (Γ + Aᵀ A) a = Aᵀ t,
        with the best length; ``residual`` is t − A a − Γ y. One step in each pass takes no more
        passes than several. The order of users does not matter.
        """
        along = self._shared(residual)
        curvature = gamma * np.einsum("jd,jd->d", residual, along)
        curvature += np.einsum("jd,jd->d", along, along)
        rise = np.einsum("jd,jd->d", residual, along)
        length = np.divide(rise, curvature, out=np.zeros_like(rise), where=curvature > 0.0)
        return length * residual, length * along

    def _shared(self, x: np.ndarray) -> np.ndarray:
        """Return A Aᵀ x, where a row of A has the shares of effects in an item."""
        found = np.empty(x.shape)
        matrix = np.ascontiguousarray(x)
        kernels().share_raters(
            self.shares, self.indptr, self.items, self.entries, self.users, matrix, found
        )
        return found + _SHARED * np.outer(self.roots, self.roots @ matrix)


def _design(
    table: csr_array, shares: np.ndarray, roots: np.ndarray, users: np.ndarray
) -> csr_array:
    """Return Aᵀ, whose rows are users with ratings of these weights, and what they share."""
    # Squares of tiny weights alone would vanish.
    nnz, shared = table.nnz, np.flatnonzero(roots)
    values = np.empty(nnz + len(shared))
    np.take(shares, table.indices, out=values[:nnz])
    values[:nnz] *= table.data
    values[:nnz] *= np.repeat(np.sqrt(users), np.diff(table.indptr))
    values[nnz:] = np.sqrt(_SHARED) * roots[shared]
    columns = np.concatenate([table.indices, shared.astype(table.indices.dtype)])
    indptr = np.append(table.indptr, len(values)).astype(table.indptr.dtype)
    return csr_array((values, columns, indptr), (len(indptr) - 1, table.shape[1]))


def _spectrum(table: csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenvalues of A Aᵀ other than zero, and how many directions have each of them.

    Of a large matrix they are Rayleigh quotients of directions that a random range finder found
    (Halko, Martinsson and Tropp, 2011), and the mean of all others.
    """
    other = table.T
    if table.shape[0] > table.shape[1]:
        table, other = other.tocsr(), table
    used, total = np.flatnonzero(np.diff(table.indptr)), float(table.data @ table.data)
    n = len(used)
    if n <= _DENSE:
        found = np.linalg.eigvalsh((table @ other.tocsr())[used][:, used].toarray())
        found = found[found > _ROUNDING * found.max(initial=0.0)]
        return found, np.ones(len(found))
    basis = np.random.default_rng(0).standard_normal((table.shape[0], _DIRECTIONS))
    for _ in range(2):
        basis = np.linalg.qr(table @ (other @ basis))[0]
    across = other @ basis
    found, rest = np.linalg.eigvalsh(across.T @ across), n - _DIRECTIONS
    mean = max(total - float(found.sum()), 0.0) / rest
    return np.append(found, mean), np.append(np.ones(_DIRECTIONS), rest)


def _at_least(share: float, covariance: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Return the matrix that maximises the bound among those which are large enough.

    They are at least this share of the inverse of ``precision`` in every direction.
    """
    root = np.linalg.cholesky(precision)
    shares, turned = np.linalg.eigh(root.T @ covariance @ root)
    basis = np.linalg.solve(root.T, turned)
    found: np.ndarray = basis * np.maximum(shares, share) @ basis.T
    return found


@dataclass(frozen=True)
class Raters:
    """Effects of the users who rated an item on the mean of its prior.

    An item is x_j ~ N(μ + o_j, Λ⁻¹), where o_j = Σ_i (z_i + z) / √n_j. The sum is over its n_j
    raters, z_i ~ N(0, V) is the effect of a user, and z ~ N(0, s V) one that all users share, so
    that items with many ratings differ from others; s is small. V is learned.

    The effects have one Gaussian q, with means a_i. Raters of the same items depend on each other
    in it: with Gaussians of their own V would be learned too small. Let A have the entries 1 / √n_j
    of raters and, of what they share, √(s n_j). Along the eigenvectors of Aᵀ A effects are
    independent, and have the covariance matrices S_k, where S_k⁻¹ = V⁻¹ + g_k E[Λ] with the
    eigenvalue g_k. Directions with an eigenvalue of zero keep their prior, and need not be known.

    With weights, n_j sums them, a rating of weight w adds w z_i, and a user of weight w is as many
    users, each with an effect of its own.

    The a_i are held as a_i = Σ_j y_j / √n_j over the items that the user rated, which all optima
    are, because there are fewer items than users as a rule.

    Parameters
    ----------
    covariance : ndarray of shape (D, D)
        V, with the bias as the last entry where there are biases.
    sources, offsets : ndarray of shape (n_items, D)
        y_j and E[o_j].
    spread : ndarray of shape (D, D)
        Σ_j Cov[o_j].
    number, logs : float
        Σ_k 1 and Σ_k log|S_k|.
    within : ndarray of shape (D, D)
        Σ_k S_k.
    pattern : Pattern or None
        None after a fit, whose items keep their priors.
    waiting : float, default=0.0
        The share of the data that has been visited since the last update.

    References
    ----------
    Salakhutdinov and Mnih (2008), Probabilistic matrix factorization, section 4, has such effects
    of items on users; here they are those of users on items.
    """

    covariance: np.ndarray
    sources: np.ndarray
    offsets: np.ndarray
    spread: np.ndarray
    number: float
    logs: float
    within: np.ndarray
    pattern: Pattern | None
    waiting: float = 0.0

    @classmethod
    def of(cls, units: Ratings, variances: np.ndarray) -> Self:
        """Return effects of the prior, given the variances of items' parameters, (D,)."""
        pattern = Pattern.of(units)
        # The inverse of that of the least weights that a float can hold would overflow.
        covariance = _FIRST_SHARE / max(pattern.variance, 1e-303) * np.diag(variances)
        number, d = float(pattern.numbers.sum()), len(variances)
        return cls(
            covariance,
            np.zeros((units.n_columns, d)),
            np.zeros((units.n_columns, d)),
            covariance * float(pattern.numbers @ pattern.evidence),
            number,
            number * float(np.log(np.diag(covariance)).sum()),
            number * covariance,
            pattern,
        )

    @cached_property
    def second(self) -> np.ndarray:
        """E Σ_k z_k z_kᵀ of effects along the directions k, (D, D)."""
        # Σ_i a_i a_iᵀ = Σ_j y_j E[o_j]ᵀ
        between = self.sources.T @ self.offsets
        return self.within + 0.5 * (between + between.T)

    def kl(self, precision: np.ndarray) -> float:
        """Return what effects take off the bound, in nats, given E[Λ], beside :meth:`log_priors`.

        It is KL(q(z) ‖ p(z)) of all effects, and half of the trace of E[Λ] Σ_j Cov[o_j].
        """
        root = cho_factor(self.covariance)
        log_det = 2.0 * float(np.log(np.diag(root[0])).sum())
        squares = float(np.trace(cho_solve(root, self.second)))
        kl = squares + self.number * (log_det - len(self.covariance)) - self.logs
        return 0.5 * (kl + float(np.sum(precision * self.spread)))

    def log_priors(
        self, means: np.ndarray, common: np.ndarray, precision: np.ndarray
    ) -> np.ndarray:
        """Return what expected effects add to E log p of each item in nats, (n_items,).

        They are given the means of items, E[μ] and E[Λ].
        """
        # ½ (x − μ)ᵀ Λ (x − μ) − ½ (x − μ − o)ᵀ Λ (x − μ − o)
        left = means - common - 0.5 * self.offsets
        found: np.ndarray = np.einsum("nk,nk->n", self.offsets @ precision, left)
        return found

    def without_effects(self, items: Rows, means: np.ndarray) -> Rows:
        """Return the moments of x_j − o_j, from which μ and Λ are learned, given those of items."""
        cross = means.T @ self.offsets
        second = items.second - cross - cross.T + self.offsets.T @ self.offsets + self.spread
        return items._replace(first=items.first - self.offsets.sum(axis=0), second=second)

    def updated(
        self,
        means: np.ndarray,
        common: np.ndarray,
        precision: np.ndarray,
        rho: float,
        share: float = 1.0,
    ) -> Self:
        """Move q(z) and V towards their optima given the means of items, E[μ] and E[Λ].

        The step ``rho`` is that of the expectations; all S_k are optimal at once. If a batch has a
        small ``share`` of the data, the steps of several batches are made together.
        """
        pattern, waiting = self.pattern, self.waiting + share
        if pattern is None:
            return self
        if waiting < _SHARE_OF_DATA:
            return replace(self, waiting=waiting)
        rho = 1.0 - (1.0 - rho) ** (waiting / share)
        # In a basis U with Uᵀ E[Λ] U = I and Uᵀ V⁻¹ U = diag(γ), the coordinates of effects are
        # independent of each other, and S_k = U diag(1 / (γ + g_k)) Uᵀ.
        root = np.linalg.cholesky(self.covariance)
        shares, turned = np.linalg.eigh(root.T @ precision @ root)
        gamma = 1.0 / shares
        basis = root @ turned * np.sqrt(gamma)
        into = precision @ basis
        left = (means - common - self.offsets) @ into
        moved = pattern.steps(gamma, left - gamma * (self.sources @ into))
        sources, offsets = (rho * step @ basis.T for step in moved)
        variances = 1.0 / (gamma + pattern.evidence[:, None])
        log_det = 2.0 * np.linalg.slogdet(basis)[1]
        found = replace(
            self,
            sources=self.sources + sources,
            offsets=self.offsets + offsets,
            spread=basis * ((pattern.numbers * pattern.evidence) @ variances) @ basis.T,
            logs=float(pattern.numbers @ (np.log(variances).sum(axis=1) + log_det)),
            within=basis * (pattern.numbers @ variances) @ basis.T,
            waiting=0.0,
        )
        least = _LEAST_SHARE / pattern.variance
        best = _at_least(least, found.second / self.number, precision)
        return replace(found, covariance=self.covariance + rho * (best - self.covariance))

    def turned(self, rotation: np.ndarray) -> Self:
        """Return the effects on rows whose factors are turned by a matrix, (D, D)."""
        return replace(
            self,
            covariance=rotation @ self.covariance @ rotation.T,
            sources=self.sources @ rotation.T,
            offsets=self.offsets @ rotation.T,
            spread=rotation @ self.spread @ rotation.T,
            within=rotation @ self.within @ rotation.T,
        )

    def fixed(self) -> Self:
        """Return what items keep after a fit: nothing of the size of the training data."""
        return replace(self, pattern=None)
