"""The normal-Wishart distribution with a restricted scale matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ._base import Family, Natural
from ._divergence import log1p_excess
from ._structure import Structure, get_structure, symmetrize
from .wishart import FORMS, Precisions, Wishart

# Kernels are slower than LAPACK from so many columns on.
MOST_COLUMNS = 64
# The natural parameters, in the order in which kernels take them.
ORDER = ("dof", "mean_precision", "mean_natural", "scatter")


def stacked(matrices: np.ndarray, width: int) -> np.ndarray:
    """Return matrices, or the diagonals of some, one below the other, as kernels take them.

    The width is 1 for spherical matrices, and else the number of features.
    """
    return np.ascontiguousarray(matrices).reshape(-1, width)


def in_order(natural: Natural) -> list[np.ndarray]:
    """Return natural parameters as kernels take them."""
    dof, strength, mean, scatter = (np.ascontiguousarray(natural[key]) for key in ORDER)
    return [dof, strength, mean, stacked(scatter, scatter.shape[-1] if scatter.ndim > 1 else 1)]


@dataclass(frozen=True)
class NormalWishart(Family):
    """Distributions of means mu and precision matrices Lambda.

    The mean is mu | Lambda ~ N(m, (beta Lambda)^{-1}), and Lambda ~ W(W, nu).

    The density of one row is proportional to exp{-beta mu^T Lambda mu / 2 + h^T Lambda mu
    - tr(S Lambda) / 2 + (nu - D) / 2 log|Lambda|} with S = W^{-1} + beta m m^T. The covariance
    type restricts W alone. Only a projection of S is stored: its diagonal (diag), trace / D
    (spherical), or mean over the rows (tied). Rows with one Lambda in common have the sum of S, and
    the exponents of their means' |Lambda|^{1/2} add up. The natural parameters, with K =
    `n_components`, are

    - ``mean_precision`` beta, (K,), base 0
    - ``mean_natural`` h = beta m, (K, D), base 0
    - ``scatter`` S, (K, D, D) full, (D, D) tied and common, (K, D) diag, (K,) spherical, base 0
    - ``dof`` nu, (K,), () for tied and common, base D, and D + 1 - K for common

    The standard parameters are ``mean`` m (K, D), ``mean_precision``, ``inverse_scale`` W^{-1},
    stored like the scatter, and ``dof``. A draw has the keys ``mean`` (K, D), ``precision``
    (K, D, D), full matrices for every covariance type, and ``log_det_precision`` (K,).

    Parameters
    ----------
    covariance_type : {"full", "tied", "common", "diag", "spherical"}
        The restriction of the scale matrix W.
    n_components : int
        Number of rows K.
    n_features : int
        D.

    Raises
    ------
    ValueError
        If the covariance type does not exist.
    numpy.linalg.LinAlgError
        Raised by the methods, except ``valid``, if a W^{-1} is not positive definite.

    References
    ----------
    Bishop (2006), Pattern Recognition and Machine Learning, Eq. 2.157.
    """

    covariance_type: str
    n_components: int
    n_features: int

    keys: ClassVar[tuple[str, ...]] = ("mean_precision", "mean_natural", "scatter", "dof")
    _sums = ("mean_precision",)

    def __post_init__(self) -> None:
        get_structure(self.covariance_type, FORMS, "covariance_type")

    @cached_property
    def _wishart(self) -> Wishart:
        return Wishart(self.covariance_type, self.n_components, self.n_features)

    @cached_property
    def _structure(self) -> Structure:
        return self._wishart._structure

    def _wishart_natural(self, natural: Natural) -> Natural:
        """Return the natural parameters of the marginal q(Lambda)."""
        # sqrt(beta) m, whose outer product is beta m m^T
        root = natural["mean_natural"] / np.sqrt(natural["mean_precision"])[:, None]
        return {
            "scatter": self._structure.plus_outer(natural["scatter"], root, -1.0),
            "dof": natural["dof"],
        }

    def base(self, natural: Natural) -> Natural:
        """Return 0 for all arrays but dof."""
        zero = np.zeros(())
        # Each mean has the factor |Lambda|^{1/2}, and Lambda itself |Lambda|^{(nu - D - 1) / 2}.
        in_common = self._structure.shared and not self._structure.alike
        means_each = self.n_components if in_common else 1
        dof = np.asarray(self.n_features + 1.0 - means_each)
        return {"mean_precision": zero, "mean_natural": zero, "scatter": zero, "dof": dof}

    def log_det_expectation(self, natural: Natural) -> np.ndarray:
        """Return E log|Lambda| in nats, of shape (K,)."""
        return self._wishart.log_det_expectation(self._wishart_natural(natural))

    def expected_precision(self, natural: Natural) -> np.ndarray:
        """Return E[Lambda] = nu W, stored like the scatter."""
        return self._wishart.expected_precision(self._wishart_natural(natural))

    def moments(self, natural: Natural) -> tuple[np.ndarray, np.ndarray]:
        """Return :meth:`expected_precision` and :meth:`log_det_expectation`.

        The matrices are factorised once for both.
        """
        return self._wishart.moments(self._wishart_natural(natural))

    def factored_moments(self, natural: Natural) -> tuple[Precisions, np.ndarray]:
        """Return :meth:`moments` of matrices, which are computed as far as they are read."""
        return self._wishart.factored_moments(self._wishart_natural(natural))

    def moments_inside(
        self,
        natural: Natural,
        precisions: Callable[[], Precisions | None] = lambda: None,
    ) -> tuple[Any, np.ndarray] | None:
        """Return the moments, those of matrices factored, or None if a row is not :meth:`valid`.

        The factorisation shows that as well. ``precisions`` can return them in a quicker way.
        """
        if not self._inside_but_for_scatter(natural).all():
            return None
        matrices = self._structure.event_ndim == 2
        moments: Any = self.factored_moments if matrices else self.moments
        try:
            known = precisions()
            if known is None:
                found: tuple[Any, np.ndarray] = moments(natural)
            else:
                found = known, self._wishart._log_det_of(natural, known.log_dets)
        except np.linalg.LinAlgError:
            return None
        # LAPACK may factorise matrices that are not finite.
        return found if np.isfinite(found[1]).all() else None

    def expectations(self, natural: Natural) -> Natural:
        """Return the expectations of (-mu^T Lambda mu, 2 Lambda mu, -Lambda, log|Lambda|) / 2.

        The third is restricted like the scatter. For tied, the last two are summed over the rows.
        """
        return self._expectations_given(
            natural, *self._wishart._moments(self._wishart_natural(natural))
        )

    def _expectations_given(
        self, natural: Natural, precision: np.ndarray, log_det: np.ndarray
    ) -> Natural:
        """Return the expectations, given E[Lambda] and E log|Lambda| of the marginal."""
        beta = natural["mean_precision"]
        mean = natural["mean_natural"] / beta[:, None]
        weighted = self._structure.multiply(precision, mean)
        quadratic = self.n_features / beta + (mean * weighted).sum(-1)
        return {
            "mean_precision": -0.5 * quadratic,
            "mean_natural": weighted,
            **self._wishart._expectations(precision, log_det, self.n_features),
        }

    def log_normalizer(self, natural: Natural) -> np.ndarray:
        """Return D/2 log(2 pi / beta) plus the Wishart's log-normaliser, (K,), in nats."""
        marginal = self._wishart_natural(natural)
        return self._log_normalizer_of_mean(natural) + self._wishart.log_normalizer(marginal)

    def strength_and_log_normalizer(
        self,
        natural: Natural,
        scale: np.ndarray | None = None,
        factors: np.ndarray | float = 1.0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what :meth:`is_strong` compares and :meth:`log_normalizer`.

        The matrices are factorised once for both. If the W^{-1} of all rows are multiples of one
        matrix by ``factors``, it can be given as ``scale``, and is factorised once for all rows.
        """
        beta, dof = natural["mean_precision"], natural["dof"]
        if scale is None:
            scale = self._wishart_natural(natural)["scatter"]
        quadratic, log_det = self._structure.quadratic_and_log_det(
            scale, natural["mean_natural"] / np.sqrt(beta)[:, None], self.n_features
        )
        strength = np.maximum(dof, dof * quadratic / factors)
        log_det = log_det + self.n_features * np.log(factors)
        log_normalizer = self._wishart._log_normalizer(natural, log_det)
        return strength, self._log_normalizer_of_mean(natural) + log_normalizer

    def _log_normalizer_of_mean(self, natural: Natural) -> np.ndarray:
        return 0.5 * self.n_features * np.log(2.0 * np.pi / natural["mean_precision"])

    def kl_given(
        self,
        q: Natural,
        p: Natural,
        precision: Precisions,
        log_det: np.ndarray,
        log_normalizer_of_p: np.ndarray,
        traces: np.ndarray,
        distances: np.ndarray | None = None,
    ) -> float:
        """Return :meth:`kl` of matrices without a factorisation, given what others have computed.

        Parameters
        ----------
        q, p : dict of ndarray
            Natural parameters; p is no stronger than :data:`STRONG`.
        precision, log_det : Precisions and ndarray
            E[Lambda] and E log|Lambda| under q, without repetition for tied.
        log_normalizer_of_p : ndarray of shape (K,)
            Those of p, in nats.
        traces : ndarray
            tr(W^{-1} E[Lambda]) with the W of p, of the shape of ``log_det``.
        distances : ndarray of shape (K,) or None, default=None
            Those of :meth:`distances`; None computes them.
        """
        wishart, beta, strength = self._wishart, q["mean_precision"], p["mean_precision"]
        if distances is None:
            distances = self.distances(q, p, precision)
        of_means = distances - self.n_features * (beta - strength) / beta
        # E tr(S Lambda) of q is nu D.
        of_scale = (q["dof"] - p["dof"]) * log_det - (q["dof"] * self.n_features - traces)
        linear = 0.5 * (of_means.sum() + wishart._copies * of_scale.sum())
        log_normalizer = wishart._log_normalizer(q, precision.log_dets)
        log_normalizer = self._log_normalizer_of_mean(q) + log_normalizer
        return float(linear - log_normalizer.sum() + log_normalizer_of_p.sum())

    def distances(self, q: Natural, p: Natural, precision: Precisions) -> np.ndarray:
        """Return beta (m - m_q)^T E[Lambda] (m - m_q) with the beta and m of p, (K,)."""
        beta, strength = q["mean_precision"], p["mean_precision"]
        shift = q["mean_natural"] / beta[:, None] - p["mean_natural"] / strength[:, None]
        distances: np.ndarray = (shift * precision.multiply(shift[..., None])[..., 0]).sum(-1)
        return strength * distances

    def _expectations_and_log_normalizer(self, natural: Natural) -> tuple[Natural, np.ndarray]:
        marginal, wishart = self._wishart_natural(natural), self._wishart
        inverse, log_det = self._structure.inverse_and_log_det(marginal["scatter"], self.n_features)
        moments = wishart._moments_given(marginal, inverse, log_det)
        of_wishart = wishart._log_normalizer(marginal, log_det)
        log_normalizer = self._log_normalizer_of_mean(natural) + of_wishart
        return self._expectations_given(natural, *moments), log_normalizer

    def extended(self, q: Natural, change: Natural, prior: Natural) -> Natural:
        """Return :meth:`Family.extended`, of few columns by one kernel."""
        few = self.n_features <= MOST_COLUMNS and self.covariance_type != "common"
        strength = prior["mean_precision"]
        if not (few and strength.shape == q["mean_precision"].shape):
            return super().extended(q, change, prior)
        from ..kernels import normal_wishart

        found = {key: np.empty(q[key].shape) for key in ORDER}
        arrays, outputs = (*in_order(q), *in_order(change)), in_order(found)
        scatter = outputs[-1]
        work = np.empty((len(scatter) // q["dof"].size, scatter.shape[1]))
        normal_wishart.extended(*arrays, np.ascontiguousarray(strength), *outputs, work)
        return found

    def sample(self, natural: Natural, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw every row once. The rows are independent, even if they share parameters (tied)."""
        beta = natural["mean_precision"][:, None]
        draw, scatter_root, root = self._wishart._draw(self._wishart_natural(natural), rng)
        noise = rng.standard_normal((self.n_components, self.n_features, 1))
        # Lambda = F F^T with F = C^{-T} A, so F^{-T} = C A^{-T} gives unit noise the covariance
        # Lambda^{-1}.
        deviation = scatter_root @ np.linalg.solve(np.swapaxes(root, -1, -2), noise)
        mean = natural["mean_natural"] / beta + deviation[..., 0] / np.sqrt(beta)
        return {"mean": mean, **draw}

    def to_standard(self, natural: Natural) -> dict[str, np.ndarray]:
        """Return ``mean`` (K, D), ``mean_precision`` (K,), ``inverse_scale`` and ``dof``."""
        inverse_scale = self._wishart_natural(natural)["scatter"]
        if self._structure.event_ndim == 2:
            inverse_scale = symmetrize(inverse_scale)
        return {
            "mean": natural["mean_natural"] / natural["mean_precision"][:, None],
            "mean_precision": natural["mean_precision"],
            "inverse_scale": inverse_scale,
            "dof": natural["dof"],
        }

    def from_standard(
        self,
        mean: np.ndarray,
        mean_precision: np.ndarray,
        inverse_scale: np.ndarray,
        dof: np.ndarray,
    ) -> Natural:
        """Return the natural parameters of the standard ones.

        Parameters
        ----------
        mean : ndarray of shape (K, D)
            Means m.
        mean_precision : ndarray of shape (K,)
            Their precisions beta, in units of Lambda.
        inverse_scale : ndarray
            W^{-1}, of the shape of the scatter.
        dof : ndarray of shape (K,), () for tied
            Degrees of freedom nu.

        Returns
        -------
        dict of ndarray
            The natural parameters.
        """
        beta = np.asarray(mean_precision, dtype=float)
        natural_mean = beta[:, None] * np.asarray(mean, dtype=float)
        root = natural_mean / np.sqrt(beta)[:, None]
        return {
            "mean_precision": beta,
            "mean_natural": natural_mean,
            "scatter": self._structure.plus_outer(inverse_scale, root),
            "dof": np.asarray(dof, dtype=float),
        }

    def _inside_but_for_scatter(self, natural: Natural) -> np.ndarray:
        """Return, per row, whether all parameters but the scatter are inside the domain."""
        beta, natural_mean, dof = (
            natural[key] for key in ("mean_precision", "mean_natural", "dof")
        )
        inside = (beta > 0.0) & np.isfinite(beta) & np.isfinite(natural_mean).all(-1)
        if self._structure.shared:
            inside = np.asarray(inside.all())
        return inside & (dof > self.n_features - 1) & np.isfinite(dof)

    def _inside(self, natural: Natural) -> np.ndarray:
        inside = self._inside_but_for_scatter(natural)
        if not inside.all():
            usable = np.broadcast_to(inside, natural["mean_precision"].shape)
            natural = self._with_usable_means(natural, usable)
        return inside & self._structure.positive(self._wishart_natural(natural)["scatter"])

    def _strength(self, natural: Natural) -> np.ndarray:
        if not natural["mean_natural"].any():
            # The usual prior is centered at the origin, and needs no matrices here.
            return natural["dof"]
        marginal = self._wishart_natural(natural)
        mean = natural["mean_natural"] / natural["mean_precision"][:, None]
        scaled = self._structure.solve(marginal["scatter"], mean)
        quadratic = natural["dof"] * (natural["mean_natural"] * scaled).sum(-1)
        return np.maximum(self._wishart._strength(marginal), quadratic)

    def _divergence(self, q: Natural, p: Natural) -> np.ndarray:
        of_q, of_p = self._wishart_natural(q), self._wishart_natural(p)
        beta_q, beta_p = q["mean_precision"], p["mean_precision"]
        shift = q["mean_natural"] / beta_q[:, None] - p["mean_natural"] / beta_p[:, None]
        precision = self._wishart.expected_precision(of_q)
        distance = (shift * self._structure.multiply(precision, shift)).sum(-1)
        excess = self.n_features * log1p_excess((beta_p - beta_q) / beta_q)
        return 0.5 * (excess + beta_p * distance) + self._wishart._divergence(of_q, of_p)

    def _sizes(self, natural: Natural, reference: Natural) -> tuple[np.ndarray, ...]:
        beta = natural["mean_precision"]
        usable = (beta > 0.0) & np.isfinite(natural["mean_natural"]).all(-1)
        marginal = self._wishart_natural(self._with_usable_means(natural, usable))
        return (beta, *self._wishart._sizes(marginal, self._wishart_natural(reference)))

    @staticmethod
    def _with_usable_means(natural: Natural, usable: np.ndarray) -> Natural:
        if usable.all():
            return natural
        # Rows that are not usable are invalid anyway. Harmless values replace theirs, so that
        # their square roots raise no warnings.
        return {
            **natural,
            "mean_precision": np.where(usable, natural["mean_precision"], 1.0),
            "mean_natural": np.where(usable[:, None], natural["mean_natural"], 0.0),
        }
