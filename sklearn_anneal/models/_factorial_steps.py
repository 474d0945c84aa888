"""The local step of factorial mixtures: q(z) of rows, given moments of the components."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import logit

from ..families import Natural
from ._base import LOG_2PI, compiled
from ._binary_codes import (
    Inferred,
    RowBlock,
    at_temperatures,
    second_moments,
    weighted_product,
    weighted_total,
)

kernels = partial(compiled, "factorial_mixture")


class Moments(NamedTuple):
    """Moments of q(μ), or of a draw of μ, for the local step."""

    means: np.ndarray  # E μ, (n_components, n_features)
    # R, lower triangular, with Rᵀ R = S, the covariance of the components in every column,
    # (n_components, n_components). It is 0 for a draw.
    root: np.ndarray
    # Whether an offset comes first, which is a component that is active in every row. It is one
    # more than ``n_components``.
    has_offset: bool = False

    @property
    def switched(self) -> Moments:
        """The moments of the components that are active or not."""
        return Moments(self.means[1:], self.root[1:, 1:]) if self.has_offset else self

    @property
    def covariance(self) -> np.ndarray:
        """S."""
        return np.asarray(self.root.T @ self.root)

    @property
    def gram(self) -> np.ndarray:
        """E μ μᵀ, summed over the columns of the data, (n_components, n_components)."""
        return np.asarray(self.means @ self.means.T + self.means.shape[1] * self.covariance)


class States(NamedTuple):
    """All states z as points in the span of the components, in units of the noise.

    Distances from rows are sums of squared differences there, with no terms that cancel.
    """

    all: np.ndarray  # the states, (n_states, n_components)
    # Zᵀ E μ / σ, where r is the smaller of n_components and n_features, (n_states, r).
    centers: np.ndarray
    constants: np.ndarray  # the part of E log p(x, z) that depends on z alone, (n_states,)
    basis: np.ndarray  # orthonormal rows, divided by σ, (r, n_features)
    noise_variance: float  # σ²

    @classmethod
    def of(
        cls, states: np.ndarray, means: np.ndarray, constants: np.ndarray, noise_variance: float
    ) -> States:
        """Return some states as points in the span of the components."""
        basis, triangle = np.linalg.qr(means.T)
        scale = 1.0 / np.sqrt(noise_variance)
        centers = states @ (scale * triangle.T)
        return cls(states, centers, constants, scale * basis.T, noise_variance)

    def span(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the coordinates of rows, (r, n_rows), and their squared distances from the span.

        Both are in units of the noise.
        """
        coordinates = self.basis @ X.T
        r, n_features = self.basis.shape
        if r == n_features:
            return coordinates, np.zeros(len(X))
        outside = coordinates.T @ (self.noise_variance * self.basis)
        outside -= X
        return coordinates, np.einsum("nd,nd->n", outside, outside) / self.noise_variance


@dataclass(frozen=True)
class Likelihood:
    """E log p(x, z | μ) as a function of z, for inference about the activations of rows.

    E‖x − zᵀμ‖² is summed from squares, and never from products that cancel: the residual of every
    row, and what the variances of z and of μ add to it. However large the components are, no row
    is more probable than its noise allows.

    Parameters
    ----------
    moments : Moments
        Those of the components, and of the offset if there is one. All other parameters are about
        the components alone.
    scaled : ndarray of shape (n_components, n_features)
        E μ / σ².
    gram : ndarray of shape (n_components, n_components)
        E μ μᵀ / σ².
    noise_variance : float
        σ².
    activation_prior : ndarray of shape (n_components,)
        π.
    inverse : ndarray of shape (n_components, n_components)
        The inverse of the matrix of :meth:`_relaxed`.
    shift : ndarray of shape (n_components,)
        The term of its prior in the relaxed activations of every row.
    root : ndarray of shape (n_components, n_components)
        A lower triangular matrix R, where Rᵀ R is the part of ``gram`` from the covariance of μ.
    states : States or None
        All states z if they are enumerated; None for mean-field inference.
    tol : float
        The sweeps over a row end after one in which no activation has changed by more.
    """

    moments: Moments
    scaled: np.ndarray
    gram: np.ndarray
    noise_variance: float
    activation_prior: np.ndarray
    inverse: np.ndarray
    shift: np.ndarray
    root: np.ndarray
    states: States | None
    tol: float

    @property
    def is_local(self) -> bool:
        """Whether sweeps end in one of several optima."""
        return self.states is None

    def infer(
        self,
        block: RowBlock,
        x: float | np.ndarray,
        weights: Sequence[np.ndarray],
        start: np.ndarray | None,
        n_sweeps: int,
        cooling: Sequence[float] | np.ndarray = (),
    ) -> Inferred:
        """Return q(z) of a block of rows.

        Parameters
        ----------
        block : RowBlock
        x : float or ndarray of shape (n_rows,)
            The inverse temperature of all rows, or that of each.
        weights : sequence of ndarray of shape (n_rows,) or (1,)
            Weights of the rows, or the one that all of them have; for each kind of weights. Without
            any, no sums over rows are made.
        start : ndarray of shape (n_components, n_rows) or None
            Logits from which the sweeps start; None for those of :meth:`_relaxed`.
        n_sweeps : int
            Largest number of sweeps.
        cooling : sequence of float
            Inverse temperatures at which a few sweeps are made first, but if states are enumerated.
        """
        inverse_temperature = np.ascontiguousarray(x, dtype=np.float64)
        if self.states is not None:
            return self._enumerated(block.X, inverse_temperature, weights)
        X = self._less_offset(block.X)
        projections = self.scaled @ X.T
        activations = np.empty(projections.shape)
        energies, entropies = np.empty(len(X)), np.empty(len(X))
        # The kernel overwrites the start.
        logits = self._relaxed(projections) if start is None else np.array(start, order="C")
        for i, (at, sweeps) in enumerate(at_temperatures(cooling, inverse_temperature, n_sweeps)):
            kernels().mean_field(
                projections,
                self.gram,
                self.root,
                self._log_odds(),
                at,
                int(start is None and i == 0),
                sweeps,
                self.tol,
                logits,
                activations,
                energies,
                entropies,
            )
        residuals = activations.T @ self.moments.switched.means
        residuals -= X
        energies -= 0.5 / self.noise_variance * np.einsum("nd,nd->n", residuals, residuals)
        second = [second_moments(activations, activations, kind) for kind in weights]
        energies -= self._loss_of_offset()
        return self._inferred(block.X, weights, activations, second, energies, entropies, logits)

    def _enumerated(
        self, X: np.ndarray, inverse_temperature: np.ndarray, weights: Sequence[np.ndarray]
    ) -> Inferred:
        """Return q(z) of some rows, by a sum over all states."""
        states = self.states
        assert states is not None
        masses, every = np.zeros((len(weights), len(states.all))), np.empty((len(weights), len(X)))
        for of_kind, kind in zip(every, weights, strict=True):
            of_kind[:] = kind
        activations = np.empty((states.all.shape[1], len(X)))
        energies, entropies = np.empty(len(X)), np.empty(len(X))
        coordinates, rest = states.span(self._less_offset(X))
        kernels().all_states(
            coordinates,
            states.centers,
            np.ascontiguousarray(states.all.T),
            states.constants,
            inverse_temperature,
            every,
            activations,
            masses,
            energies,
            entropies,
        )
        energies -= 0.5 * rest
        second = [(states.all.T * mass) @ states.all for mass in masses]
        return self._inferred(X, weights, activations, second, energies, entropies, None)

    def _inferred(
        self,
        X: np.ndarray,
        weights: Sequence[np.ndarray],
        activations: np.ndarray,
        second: list[np.ndarray],
        energies: np.ndarray,
        entropies: np.ndarray,
        logits: np.ndarray | None,
    ) -> Inferred:
        """Return q(z), given the part of the energies that depends on z."""
        first = [weighted_product(activations, X, kind) for kind in weights]
        if self.moments.has_offset:
            every = np.ones((1, len(X)))
            of_offset = [weighted_product(every, X, kind) for kind in weights]
            totals = [weighted_total(kind, every[0]) for kind in weights]
            first = [np.vstack(pair) for pair in zip(of_offset, first, strict=True)]
            second = [_with_offset(*pair) for pair in zip(second, totals, strict=True)]
        moments = [{"first": a, "second": b} for a, b in zip(first, second, strict=True)]
        energies = energies + self._constant(X.shape[1])
        return Inferred(activations, moments, energies, entropies, logits)

    def _constant(self, n_features: int) -> float:
        """Return the part of E log p(x, z | μ) that depends neither on x nor on z."""
        noise = 0.5 * n_features * (LOG_2PI + np.log(self.noise_variance))
        return float(np.log1p(-self.activation_prior).sum() - noise)

    def _less_offset(self, X: np.ndarray) -> np.ndarray:
        """Return rows less E b."""
        return X - self.moments.means[0] if self.moments.has_offset else X

    def _log_odds(self) -> np.ndarray:
        """Return the log odds of activations, with what the covariance of b and μ adds to them."""
        log_odds = np.asarray(logit(self.activation_prior))
        if not self.moments.has_offset:
            return log_odds
        return log_odds - self.moments.means.shape[1] * self._scaled_covariances()[1:]

    def _loss_of_offset(self) -> float:
        """Return the loss of E log p(x, z | μ) of every row by the variance of b."""
        if not self.moments.has_offset:
            return 0.0
        return float(0.5 * self.moments.means.shape[1] * self._scaled_covariances()[0])

    def _scaled_covariances(self) -> np.ndarray:
        """Return the covariances of b with b and all μ_k in a column, over σ²."""
        root = self.moments.root
        return np.asarray(root[:, 0] @ root) / self.noise_variance

    def evidence(self, block: RowBlock, weights: np.ndarray, found: Inferred) -> Natural:
        """Return Σ w E‖x − zᵀμ‖² and Σ w of a block of rows."""
        total = weights[0] * len(block.X) if len(weights) == 1 else weights.sum()
        log_odds = logit(self.activation_prior) @ found.activations
        losses = self._constant(block.X.shape[1]) + log_odds - found.energies
        errors = 2.0 * self.noise_variance * weighted_total(weights, losses)
        return {"evidence": np.array([errors, total])}

    def of_visit(self) -> Natural:
        """Return what :meth:`FactorialMixture.learned` reads of the μ that the rows have seen."""
        return {"means": self.moments.means, "covariance": self.moments.covariance}

    def _relaxed(self, projections: np.ndarray) -> np.ndarray:
        """Return real activations from which sweeps can start, (n_components, n_rows).

        They are the most probable z if z is Gaussian with the mean and the variance of its prior,
        which is a linear regression on the components. Sweeps that start from the prior would
        explain most of a row by the first components, and end in poor optima.
        """
        solution = self.inverse @ projections
        solution += self.shift[:, None]
        return solution


def _with_offset(second: np.ndarray, total: float) -> np.ndarray:
    """Return Σ w E[z zᵀ] after a component that is active in every row came first."""
    active = np.diagonal(second)
    return np.block([[np.array([[total]]), active[None]], [active[:, None], second]])
