"""The local step of spike-and-slab factor analysis: q of the factors of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import logit

from ..families import Natural
from . import _packed_gaussians
from ._base import LOG_2PI, compiled
from ._binary_codes import (
    Inferred,
    RowBlock,
    at_temperatures,
    second_moments,
    weighted_product,
)
from ._gaussian_factors import always_on, inferred
from ._loadings import Loadings

kernels = partial(compiled, "spike_slab")


class Moments(NamedTuple):
    """Moments of q(W), or of a draw of W, for the local step, in units of the noise."""

    means: np.ndarray  # E w, (n_components, n_features)
    # The lower triangle of E w_d w_dᵀ of every column, row after row, if cells are missing,
    # (n_features, n_components * (n_components + 1) / 2).
    squares: np.ndarray | None
    gram: np.ndarray  # their sum over the columns, (n_components, n_components)
    # Their source, if columns have covariances of their own and nothing is drawn.
    loadings: Loadings | None = None


class RowPartition(NamedTuple):
    """log c(x) of rows, in nats."""

    # The part of the factors, which is that of every row, at M inverse temperatures, (M,).
    of_factors: np.ndarray
    of_cells: np.ndarray  # the part of an observed cell in each column, (M, n_features)

    def of(self, block: RowBlock) -> np.ndarray:
        """Return log c(x) of each row, (n_rows, M), or of any row, (M,), if no cell is missing."""
        if block.observed is None:
            return np.asarray(self.of_factors + self.of_cells.sum(axis=-1))
        return np.asarray(self.of_factors + block.observed @ self.of_cells.T)


@dataclass(frozen=True)
class Likelihood:
    """E log p(x, z, s | W) as a function of z and s, for inference about the factors of rows.

    Parameters
    ----------
    moments : Moments
    noise_variance : ndarray of shape (n_features,)
        ψ.
    activation_prior : ndarray of shape (n_components,)
        π.
    tol : float
        The sweeps over a row end after one in which neither an activation nor a factor has changed
        by more.
    """

    moments: Moments
    noise_variance: np.ndarray
    activation_prior: np.ndarray
    tol: float

    @property
    def is_local(self) -> bool:
        """Whether sweeps end in one of several optima."""
        return not always_on(self.activation_prior)

    def infer(
        self,
        block: RowBlock,
        x: float | np.ndarray,
        weights: Sequence[np.ndarray],
        start: tuple[np.ndarray, np.ndarray] | None,
        n_sweeps: int,
        cooling: Sequence[float] | np.ndarray = (),
    ) -> Inferred:
        """Return q(z, s) of a block of rows.

        Parameters
        ----------
        block : RowBlock
        x : float or ndarray of shape (n_rows,)
            The inverse temperature of all rows, or that of each.
        weights : sequence of ndarray of shape (n_rows,) or (1,)
            Weights of the rows, or the one that all of them have; for each kind of weights. Without
            any, no sums over rows are made.
        start : tuple of ndarray of shape (n_components, n_rows), or None
            Logits of the activations and E[s | z = 1], from which the sweeps start; None for the
            factors of a linear regression.
        n_sweeps : int
            Largest number of sweeps.
        cooling : sequence of float
            Inverse temperatures at which a few sweeps are made first. Factors that can be off only.
        """
        prior = self.activation_prior
        scaled = self.moments.means / np.sqrt(self.noise_variance)
        projections = scaled @ block.X.T
        observed = block.observed
        gram = self.moments.gram
        if observed is not None:
            assert self.moments.squares is not None
            gram = _packed_gaussians.observed_sums(observed, self.moments.squares)
        inverse_temperature = np.atleast_1d(np.asarray(x, dtype=np.float64))
        log_noise = LOG_2PI + np.log(self.noise_variance)
        constants = log_noise.sum() if observed is None else observed @ log_noise
        squares = (block.X**2) @ (1.0 / self.noise_variance)
        if always_on(prior):
            y = block.X / np.sqrt(self.noise_variance)
            found = inferred(block, y, projections, gram, inverse_temperature, weights)
            found = found._replace(energies=found.energies - 0.5 * (constants + squares))
            return self._of_columns(found, block)
        run = kernels().mean_field if observed is None else kernels().mean_field_of_rows
        if start is None:
            logits, means = np.zeros(projections.shape), self._relaxed(projections, gram)
        else:
            # The kernel overwrites the start.
            logits, means = (np.array(part, order="C") for part in start)
        activations = np.empty(projections.shape)
        energies, entropies = np.empty(len(block.X)), np.empty(len(block.X))
        for i, (at, sweeps) in enumerate(at_temperatures(cooling, inverse_temperature, n_sweeps)):
            run(
                projections,
                gram,
                logit(prior),
                at,
                int(start is None and i == 0),
                sweeps,
                self.tol,
                logits,
                means,
                activations,
                energies,
                entropies,
            )
        energies += np.log1p(-prior).sum() - 0.5 * (constants + squares)
        moments = self._sums(block, weights, activations, means, gram, inverse_temperature)
        found = Inferred(activations, moments, energies, entropies, (logits, means))
        return self._of_columns(found, block)

    def _sums(
        self,
        block: RowBlock,
        weights: Sequence[np.ndarray],
        activations: np.ndarray,
        means: np.ndarray,
        gram: np.ndarray,
        x: np.ndarray,
    ) -> list[Natural]:
        """Return the sums over rows, for each kind of weights."""
        if not len(weights):
            return []
        observed, ones = block.observed, np.ones(len(block.X))
        factors, own = activations * means, self._diagonal(gram, observed).T
        of_squares = activations * (means**2 + 1.0 / (x * (1.0 + own)))
        sums = []
        for kind in weights:
            first = weighted_product(factors, block.X, kind) / np.sqrt(self.noise_variance)
            if observed is None:
                second = second_moments(factors, of_squares, kind)
            else:
                second = self._of_observed(factors, of_squares, kind, observed)
            active = weighted_product(activations, ones, kind)
            slabs = weighted_product(of_squares, ones, kind)
            sums.append({"first": first, "second": second, "active": active, "slabs": slabs})
        return sums

    def _of_columns(self, found: Inferred, block: RowBlock) -> Inferred:
        """Return the same with sums of second moments as triangles if columns have their own.

        Those of rows without missing cells are the same for every column.
        """
        if self.moments.squares is not None and block.observed is None:
            for sums in found.moments:
                sums["second"] = _packed_gaussians.packed(sums["second"])
        return found

    def _diagonal(self, gram: np.ndarray, observed: np.ndarray | None) -> np.ndarray:
        """G_kk of all rows, or of each, of shape (1 or n_rows, n_components)."""
        if observed is None:
            return np.diagonal(gram)[None]
        return gram[:, _packed_gaussians.diagonal(len(self.activation_prior))]

    def _relaxed(self, projections: np.ndarray, gram: np.ndarray) -> np.ndarray:
        """Return real factors from which sweeps can start, (n_components, n_rows).

        They are the most probable ones if factors are Gaussian with the variance of their prior.
        """
        k, ridge = len(projections), 1.0 / self.activation_prior
        if gram.shape == (k, k):
            return np.linalg.solve(gram + np.diag(ridge), projections)
        precision = gram.copy()
        precision[:, _packed_gaussians.diagonal(k)] += ridge
        found = _packed_gaussians.moments(precision, projections.T)
        return np.ascontiguousarray(found.means.T)

    @staticmethod
    def _of_observed(
        factors: np.ndarray, squares: np.ndarray, weights: np.ndarray, observed: np.ndarray
    ) -> np.ndarray:
        """Return Σ w E[u uᵀ] over the rows with a cell of each column, as lower triangles."""
        k, n = factors.shape
        products = np.empty((n, k * (k + 1) // 2))
        by_rows = np.ascontiguousarray(factors.T)
        for i in range(k):
            begin = i * (i + 1) // 2
            products[:, begin : begin + i] = by_rows[:, i : i + 1] * by_rows[:, :i]
            products[:, begin + i] = squares[i]
        return _packed_gaussians.column_sums(observed, products, weights)

    def of_visit(self) -> Natural:
        """Return nothing, because :meth:`SpikeSlabFactorAnalysis.learned` needs sums alone."""
        return {}

    def evidence(self, block: RowBlock, weights: np.ndarray, found: Inferred) -> Natural:
        """Return Σ w x² / ψ and Σ w over the rows with each cell, and Σ w of all rows."""
        total = weights[0] * len(block.X) if len(weights) == 1 else weights.sum()
        squares = weighted_product(block.X.T**2, np.ones(len(block.X)), weights)
        if block.observed is None:
            cells = np.full(block.X.shape[1], total)
        else:
            cells = weighted_product(block.observed.T, np.ones(len(block.X)), weights)
        return {
            "squares": squares / self.noise_variance,
            "cells": cells,
            "weight": np.array([total]),
        }
