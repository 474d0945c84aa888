"""Factors that are on in all rows, which are Gaussian given the loadings, and starts from them.

With π = 1 the model of spike-and-slab factor analysis is factor analysis with a prior of the
loadings. q(s) of a row is then a Gaussian over all factors, at its optimum in one step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..data.units import Rows
from . import _packed_gaussians
from ._base import LOG_2PI
from ._binary_codes import Inferred, RowBlock, centered_blocks, weighted_product

if TYPE_CHECKING:
    from collections.abc import Sequence

# A start makes at most so many rounds, begins with so many of subspace iteration, which has some
# vectors more than factors, and looks at no more rows.
_ROUNDS, _ITERATIONS, _VECTORS, _ROWS = 200, 4, 8, 10_000
# The rounds end after one in which the variances of the noise change by a smaller share on average.
_SETTLED = 3e-4
# Longer steps begin after so many rounds, and stand for no more rounds than the second number.
_ROUNDS_BEFORE_STEPS, _LONGEST_STEP = 4, 8.0
# The noise of a column is at first this share of its variance, and never a smaller one than that.
_FIRST_NOISE, _LEAST_FIRST_NOISE = 0.05, 0.01
# Rotations that make factors independent make so many steps, and end when no factor turns by more.
# Directions in which factors vary by less than this share of the largest variance are left alone.
_STEPS, _TURN, _LEAST_SHARE = 20, 1e-3, 1e-3


def always_on(activation_prior: np.ndarray) -> bool:
    """Return whether all factors are on in all rows."""
    return bool((activation_prior == 1.0).all())


def posterior(
    projections: np.ndarray, gram: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return q(s) ∝ p(x, s | W)^x = N(s; (I + G)⁻¹ p, (I + G)⁻¹ / x) of rows that share G.

    ``projections`` (K, n_rows) has p, the products of the loadings and the rows, in units of the
    noise, ``gram`` is G = E W Wᵀ, and ``x`` (n_rows,) or (1,) has inverse temperatures. The results
    are the means (n_rows, K), the covariances (n_rows or 1, K, K) and log |x (I + G)|.
    """
    k = len(projections)
    precision = gram + np.eye(k)
    root = np.linalg.cholesky(precision)
    covariance = np.linalg.inv(precision)
    log_det = 2.0 * np.log(np.diagonal(root)).sum()
    means = projections.T @ covariance
    return means, covariance / x[:, None, None], k * np.log(x) + log_det


def posterior_of_each(
    projections: np.ndarray, gram: np.ndarray, x: np.ndarray
) -> _packed_gaussians.Moments:
    """Return the moments of q(s) of rows whose G have the sums over their observed cells alone.

    ``gram`` has their lower triangles, (n_rows, K (K + 1) / 2). It is overwritten.
    """
    gram[:, _packed_gaussians.diagonal(len(projections))] += 1.0
    natural_mean = np.ascontiguousarray(projections.T)
    if (x != 1.0).any():
        gram *= x[:, None]
        natural_mean *= x[:, None]
    return _packed_gaussians.moments(gram, natural_mean)


def inferred(
    block: RowBlock,
    y: np.ndarray,
    projections: np.ndarray,
    gram: np.ndarray,
    x: np.ndarray,
    weights: Sequence[np.ndarray],
) -> Inferred:
    """Return q(s) ∝ p(x, s | W)^x of a block of rows, their sums, and their bounds.

    The energies have no constants of the likelihood, as those of the kernels.

    Parameters
    ----------
    block : RowBlock
    y : ndarray of shape (n_rows, n_features)
        The rows in units of the noise.
    projections, gram : ndarray
        See :func:`posterior`, or :func:`posterior_of_each` if cells are missing.
    x : ndarray of shape (n_rows,) or (1,)
        Inverse temperatures.
    weights : sequence of ndarray of shape (n_rows,) or (1,)
    """
    k, n = projections.shape
    observed = block.observed
    spread = second = None
    if observed is None:
        means, spread, log_det = posterior(projections, gram, x)
    else:
        means, second, log_det = posterior_of_each(projections, gram, x)
    # E log N(s; 0, I) + E[s]ᵀ p − tr(G E s sᵀ) / 2, in which tr((I + G) E s sᵀ) = K / x + E[s]ᵀ p.
    explained = np.einsum("nk,kn->n", means, projections)
    energies = 0.5 * explained - 0.5 * k * (LOG_2PI + 1.0 / x)
    entropies = 0.5 * (k * (LOG_2PI + 1.0) - log_det) + np.zeros(n)
    moments = []
    for kind in weights:
        of_each = kind * np.ones(n)
        if spread is not None:
            of_spread = of_each if len(spread) > 1 else np.array([of_each.sum()])
            sums = weighted_product(means.T, means, kind)
            sums = whole = sums + np.tensordot(of_spread, spread, axes=1)
        else:
            assert observed is not None and second is not None
            sums = _packed_gaussians.column_sums(observed, second, kind)
            whole = _packed_gaussians.symmetric(of_each @ second, k)
        moments.append(
            {
                "first": weighted_product(means.T, y, kind),
                "second": sums,
                "active": np.full(k, of_each.sum()),
                "slabs": np.diagonal(whole).copy(),
                "whole": whole,
            }
        )
    return Inferred(np.ones((k, n)), moments, energies, entropies, None, means.T)


def low_rank(
    units: Rows,
    n_components: int,
    variances: np.ndarray,
    loading_variance: np.ndarray,
    learns_loading_variance: bool,
    random_state: np.random.RandomState,
) -> np.ndarray:
    """Return loadings of Gaussian factors, (n_components, n_features), in the units of the data.

    They begin at the principal components of the rows with their means in the missing cells. In
    each of some rounds of EM, missing cells are then latent variables like the factors, so that
    all columns have one covariance, and a round costs no more than one without missing cells. A
    fit that starts near the optimum of these rounds takes fewer passes, which cost far more.
    Factors have the covariance I after each round (parameter-expanded EM, Liu, Rubin and Wu, 1998),
    and two rounds are followed by a longer step in their direction (Varadhan and Roland, 2008).

    Parameters
    ----------
    units : Rows
    n_components : int
    variances : ndarray of shape (n_features,)
        Those of the columns, positive.
    loading_variance : ndarray of shape (n_components,)
    learns_loading_variance : bool
    random_state : numpy.random.RandomState
    """
    filled = _FilledRows(units.spread(_ROWS), variances, loading_variance, learns_loading_variance)
    W = _principal(filled.Y, filled.weights, n_components, random_state)
    at = _Rounds(W, np.full(len(variances), np.log(_FIRST_NOISE)), filled.cells)
    for n in range(0, _ROUNDS, 2):
        between = filled.after_round(at)
        found = filled.after_round(between)
        if found.settled_after(between):
            at = found
            break
        at = found.extended(at, between) if n >= _ROUNDS_BEFORE_STEPS else found
    return np.asarray(at.loadings * np.sqrt(variances))


class _Rounds(NamedTuple):
    """Values that a round of EM reads and changes, in units of the columns' deviations."""

    loadings: np.ndarray  # (n_components, n_features)
    log_noise: np.ndarray  # (n_features,)
    cells: np.ndarray  # the missing cells

    def settled_after(self, last: _Rounds) -> bool:
        return bool(np.abs(np.expm1(self.log_noise - last.log_noise)).mean() < _SETTLED)

    def extended(self, before: _Rounds, last: _Rounds) -> _Rounds:
        """Return where a longer step leads, given what was there before two rounds, and between.

        The changes r of a round shrink by v to the next one; r / |v| rounds are left.
        """
        changes = [b - a for a, b in zip(before, last, strict=True)]
        shrinks = [c - b - r for b, c, r in zip(last, self, changes, strict=True)]
        ratio = sum((r * r).sum() for r in changes) / max(
            sum((v * v).sum() for v in shrinks), 1e-300
        )
        n = min(np.sqrt(ratio), _LONGEST_STEP)
        if n <= 1.0:
            return self
        moved = (
            a + 2.0 * n * r + n * n * v for a, r, v in zip(before, changes, shrinks, strict=True)
        )
        loadings, log_noise, cells = moved
        return _Rounds(loadings, np.maximum(log_noise, np.log(_LEAST_FIRST_NOISE)), cells)


class _FilledRows:
    """Rows in units of the columns' deviations, whose missing cells are filled in by rounds of EM.

    Single precision is enough for a start, and takes half the time.
    """

    def __init__(self, rows: Any, variances: np.ndarray, v: np.ndarray, learns_v: bool):
        self.Y = Y = np.empty((rows.n_units, len(variances)), np.float32)
        gone = np.zeros(Y.shape, dtype=bool)
        for block in centered_blocks(rows):
            Y[block.rows] = block.X / np.sqrt(variances)
            if block.observed is not None:
                gone[block.rows] = block.observed == 0
        w = np.ones(len(Y)) if rows.weights is None else np.asarray(rows.weights, dtype=np.float64)
        # These rows stand for all, whatever the weights of the others are.
        self.weights = w * (len(w) / w.sum())
        self.v, self.learns_v = v, learns_v
        self.squares, self.missing = self.weights @ Y**2, self.weights @ gone
        self.places = np.flatnonzero(gone)
        rows_of, self.columns = np.divmod(self.places, Y.shape[1])
        self.weights_of_cells = self.weights[rows_of]
        self.heavy = self.weights.astype(np.float32)[:, None]

    @property
    def cells(self) -> np.ndarray:
        return self.Y.ravel()[self.places]

    def after_round(self, at: _Rounds) -> _Rounds:
        """Return the loadings, the noise and the missing cells after a round of EM."""
        W, cells, Y = at.loadings, at.cells, self.Y
        (k, d), total, noise = W.shape, self.weights.sum(), np.exp(at.log_noise)
        Y.ravel()[self.places] = cells
        variances = 1.0 / (total + 1.0 / self.v)
        scaled = W / noise
        spread = np.linalg.inv(np.eye(k) + scaled @ W.T + d * np.diag(variances))
        means = Y @ (spread @ scaled).T.astype(np.float32)
        squares = self.squares
        if len(cells):
            cells = (means @ W.astype(np.float32)).ravel()[self.places]
            Y.ravel()[self.places] = cells
            squares = squares + np.bincount(self.columns, self.weights_of_cells * cells**2, d)
        weighted = means * self.heavy
        second = weighted.T @ means + total * spread
        root = np.linalg.cholesky(second / total)
        first = np.linalg.solve(root, weighted.T @ Y)
        W = variances[:, None] * first
        errors = squares - 2.0 * (W * first).sum(axis=0) + total * (W**2).sum(axis=0)
        errors += (total * variances.sum() + self.missing) * noise
        noise = np.maximum(errors / total, _LEAST_FIRST_NOISE)
        if self.learns_v:
            self.v = np.mean(W**2 / noise, axis=1) + variances
        return _Rounds(W, np.log(noise), cells)


def _principal(
    Y: np.ndarray, w: np.ndarray, k: int, random_state: np.random.RandomState
) -> np.ndarray:
    """Return loadings by principal components of rows (Halko, Martinsson and Tropp, 2011).

    If there are fewer, the other loadings are small random numbers.
    """
    n, d = Y.shape
    W = 0.1 * random_state.standard_normal((k, d))
    vectors = random_state.standard_normal((d, min(k + _VECTORS, d)))
    for _ in range(_ITERATIONS):
        vectors = np.linalg.qr((Y.T * w) @ (Y @ vectors))[0]
    inner = Y @ vectors
    values, turned = np.linalg.eigh((inner.T * w) @ inner / w.sum())
    order = np.argsort(-values, kind="stable")[:k]
    lengths = np.sqrt(np.maximum(values[order] - _FIRST_NOISE, _LEAST_FIRST_NOISE))
    W[: len(order)] = (vectors @ turned[:, order] * lengths).T
    return W


def scales(active: np.ndarray, slabs: np.ndarray, lengths: np.ndarray | None, d: int) -> np.ndarray:
    """Return the numbers c² by which the bound is highest if factors are multiplied by c.

    Loadings are divided by c, so that the rows are explained equally well. Updates of the factors
    and of the loadings in turn find the best c in many small steps (parameter-expanded variational
    Bayes, Qi and Jaakkola, 2006). With S = Σ E u², a = Σ E z and Q = Σ_d E w² / v, c maximises
    a log c − c² S / 2 − D log c − Q / (2 c²); a learned v follows the loadings, so that the last
    two terms do not depend on c.

    ``active``, ``slabs`` and ``lengths`` (n_components,) are a, S and Q, which is None for a
    learned v. Factors that are on in less than one row stay as they are then, because c would be
    that of their prior.
    """
    if lengths is None:
        return np.divide(active, slabs, out=np.ones(len(slabs)), where=active >= 1)
    rest = active - d
    root = np.sqrt(rest**2 + 4.0 * slabs * lengths)
    # The root of S c⁴ − (a − D) c² − Q, in the form that loses no digits.
    more = rest > 0
    above = np.where(more, rest + root, 2.0 * lengths)
    return np.asarray(above / np.where(more, 2.0 * slabs, root - rest))


def transformation(
    active: np.ndarray, second: np.ndarray, squares: np.ndarray, d: int, learned: bool = False
) -> np.ndarray:
    """Return the matrix A for which the bound is highest if factors become A u.

    Loadings become A⁻ᵀ w (Luttinen and Ilin, 2010). Among all A the best one makes Σ E u uᵀ and
    Σ E w wᵀ diagonal; :func:`scales` has the lengths. Without it, EM turns and stretches the
    factors in many small steps. If v is learned for each factor, it follows the loadings, and the
    same holds by Hadamard's inequality.

    ``second`` is Σ E u uᵀ over rows, and ``squares`` Σ E w wᵀ / v over the d columns, in which v is
    left out if it is ``learned``. Factors with the longest loadings come first.
    """
    root = np.linalg.cholesky(second)
    lengths, turned = np.linalg.eigh(root.T @ squares @ root)
    # The order of starts: a learned v stays with its factor.
    lengths, turned = np.maximum(lengths[::-1], 0.0), turned[:, ::-1]
    c = np.sqrt(scales(active, np.ones(len(active)), None if learned else lengths, d))
    return np.asarray(c[:, None] * np.linalg.solve(root.T, turned).T)


def noise_left(loadings: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Return the variances that loadings, (n_components, n_features), leave of the columns."""
    return np.maximum(variances - (loadings**2).sum(axis=0), _LEAST_FIRST_NOISE * variances)


def independent(
    factors: np.ndarray, loadings: np.ndarray, weights: np.ndarray | None
) -> np.ndarray:
    """Return the loadings of factors that are as far from Gaussian as rotations can make them.

    Factors that are mostly off have heavy tails, and others only mixtures of these. The fixed-point
    iteration for the kurtosis finds them (FastICA, Hyvärinen, 1999), so that sparse factors can
    start at a fit of Gaussian ones.

    Parameters
    ----------
    factors : ndarray of shape (n_rows, n_components)
    loadings : ndarray of shape (n_components, n_features)
    weights : ndarray of shape (n_rows,) or None
        Those of the rows.
    """
    n, k = factors.shape
    w = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
    away = factors - w @ factors
    variances, axes = np.linalg.eigh((away.T * w) @ away)
    lengths = np.sqrt(np.maximum(variances, _LEAST_SHARE * max(variances[-1], 0.0)))
    white = away @ axes / np.where(lengths > 0.0, lengths, 1.0)
    turned = np.eye(k)
    for _ in range(_STEPS):
        found = white @ turned
        left, _, right = np.linalg.svd((white.T * w) @ (found * found * found) - 3.0 * turned)
        last, turned = turned, left @ right
        if (1.0 - np.abs((last * turned).sum(axis=0))).max() < _TURN:
            break
    return np.asarray(turned.T @ (lengths[:, None] * (axes.T @ loadings)))
