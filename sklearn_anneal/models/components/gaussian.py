"""Gaussian components: K Gaussians with unknown means and precisions."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from ...data.units import Rows
from ...families import (
    COVARIANCE_TYPES,
    FORMS,
    Factor,
    Gaussian,
    Natural,
    NormalWishart,
    Structure,
    Wishart,
    followed,
    get_structure,
)
from ...families._structure import Triangle, in_shape
from ...families.wishart import Precisions, Roots
from .._base import LOG_2PI, Expected, Known
from . import _missing_cells as missing_cells
from . import _narrow_gaussians as narrow
from . import _predictive_gaussians as predictions
from . import _wide_gaussians as wide
from ._base import Components, Next, Profile
from ._compared_gaussians import coordinates, tied_merge_gains
from ._conditional_gaussians import drawn_rows
from ._correlated_scale import least_loss, log_correlation
from ._features import FEATURE_KINDS, NOTHING, Features, FeatureSums, Terms, kernels, rows_per_block
from ._joint_steps import joint_step
from ._learned_gaussians import OF_MEANS, OF_PRECISIONS, Sizes, learned_gaussians
from ._missing_cells import Moments
from ._moments import CHUNK, Summary, moments
from ._resolved_gaussians import resolved_gaussians

# Rows with missing cells whose densities are computed at a time.
_ROWS_OF_CELLS = 8 * CHUNK
# A plain kernel takes so many times as long if cells are missing.
_COST_OF_MISSING = 8
# Rounding may take at most this share of a prior's scale matrix.
_LARGEST_LOSS = 1e-5


class GaussianComponents(Components[Summary, FeatureSums]):
    """K Gaussians with unknown means and precisions; an object holds hyperparameters only.

    The natural parameters, with K = ``n_components`` and D = ``n_features``, refer to coordinates
    whose origin is the center of the data. They are

    - ``factorization="joint"``: ``mean_precision`` (K,), ``mean_natural`` (K, D), ``scatter``
      and ``dof`` of Normal–Wishart factors q(μ, Λ);
    - ``factorization="independent"``: ``mean_precision`` and ``mean_natural`` of Gaussian
      factors q(μ), ``scatter`` and ``dof`` of Wishart factors q(Λ).

    The covariance type restricts only the scale matrices of the Wishart factors. The precision
    matrices Λ of the K components are full matrices for every covariance type. Those of ``"tied"``
    are K matrices whose factors are equal, as in scikit-learn's class. Where their prior is
    learned, the components have one matrix in common instead: equal factors of K matrices would
    seem to be K observations of the prior, each of which has a share of the rows.

    Parameters
    ----------
    n_components, n_features : int
    covariance_type : {"full", "tied", "diag", "spherical"}
    factorization : {"joint", "independent"}
    reg_covar : float
    mean_precision_prior, degrees_of_freedom_prior : float or ndarray of shape (n_components,)
    mean_prior : ndarray of shape (n_features,) or (n_components, n_features)
    covariance_prior : ndarray or float
        One matrix for each component, or one for all. For this parameter and the priors before
        it, None stands for a value that :meth:`resolved` computes from the data, and ``"auto"``
        for one value for all components that begins there and is learned (:meth:`learned`), if
        there are components to learn it from.
    covariance_prior_name : str
        The name of this parameter in the estimator, for error messages.

    Attributes
    ----------
    auto : tuple of str
        Names of the priors that are learned: those that are ``"auto"``.
    learns, learns_all : bool
        Whether there are any, and whether all four are.
    form : str
        The covariance type, or ``"common"`` where components have one precision matrix.
    n_matrices : int
        The number of independent precision matrices.
    joint : bool
        Whether mean and precision of a component share a factor.
    noise_variance : float
        The variance of the noise that rows have in the bound: ``reg_covar`` if a prior is learned,
        and else 0. The scatter has ``reg_covar`` for each row in either case, as in scikit-learn's
        class, whose bound does not know of it. A prior that is learned maximises the bound, which
        would therefore fall where the covariances of components are not much larger.
    reference : ndarray or None
        The covariance prior from which learning begins, if the covariance prior is learned.
    sizes : Sizes or None
        Factors by which the scales of the components differ, if the covariance prior is learned.
    common_scale : ndarray or float
        The covariance prior of a component of size 1.
    learns_matrix : bool
        Whether the covariance prior is the matrix at which the bound is highest. It is so from many
        rows for each column on; fewer rows would be repeated by this matrix. If it is False, the
        covariance prior is a diagonal, or a matrix that has a prior of its own.
    correlates : bool
        Whether the diagonal may become such a matrix. It does where the bound is higher then,
        although the prior of the matrix lowers the bound.
    scale_loss, scale_prior_dof : float
        What the bound loses by the prior of the covariance prior, and the η of this prior
        (``_correlated_scale``). They are 0 and infinite for a diagonal.
    n_alike : int
        The number of steps since the covariance prior has changed between both forms.
    tried : tuple or None
        The value of the diagonal when a matrix was last tried in vain, by how much that was lower,
        and the value of the diagonal at the last step, in nats.
    n_rows, least_dof : float
        The number of rows of all data, if there are few, and the smallest ν₀ with them.
    """

    why_no_exact_gradient = (
        "the gradient of a draw with respect to the parameters of a Wishart distribution is not "
        "available"
    )

    profile_names = ("means", "covars")
    waits = False

    def __init__(
        self,
        n_components: int,
        n_features: int,
        covariance_type: str = "full",
        factorization: str = "joint",
        reg_covar: float = 1e-6,
        mean_precision_prior: Any = None,
        mean_prior: Any = None,
        degrees_of_freedom_prior: Any = None,
        covariance_prior: Any = None,
        covariance_prior_name: str = "covariance_prior",
    ):
        self.n_components = int(n_components)
        self.n_features = n_features
        self.covariance_type = covariance_type
        self.factorization = factorization
        self.joint = factorization == "joint"
        self.reg_covar = reg_covar
        self.mean_precision_prior = mean_precision_prior
        self.mean_prior = mean_prior
        self.degrees_of_freedom_prior = degrees_of_freedom_prior
        self.covariance_prior = covariance_prior
        self.covariance_prior_name = covariance_prior_name
        self.form, self.n_matrices = covariance_type, self.n_components
        self.learn(OF_MEANS + OF_PRECISIONS)
        self.reference: np.ndarray | None = None
        self.learns_matrix, self.n_rows, self.least_dof = True, 1.0, float(n_features)
        self.sizes: Sizes | None = None
        self.correlates, self.n_alike = False, 0
        self.tried: tuple[float, float, float] | None = None
        self.scale_loss, self.scale_prior_dof = 0.0, np.inf
        self.common_scale = covariance_prior

    def learn(self, names: tuple[str, ...]) -> None:
        """Let those of the named priors be learned that are ``"auto"``, and no others."""
        self.auto = tuple(name for name in names if isinstance(getattr(self, name), str))
        self.learns = bool(self.auto)
        self.learns_all = self.auto == OF_MEANS + OF_PRECISIONS
        self.noise_variance = self.reg_covar if self.learns else 0.0

    def with_one_matrix(self) -> Self:
        """Return components that have one precision matrix in common."""
        found = copy(self)
        found.form, found.n_matrices = "common", 1
        for name in ("structure", "_normal_wishart", "_wishart", "_gaussian", "factors"):
            vars(found).pop(name, None)
        return found

    @cached_property
    def structure(self) -> Structure:
        """The way in which matrices of the covariance type are stored."""
        return get_structure(self.form, FORMS, "covariance_type")

    @cached_property
    def _normal_wishart(self) -> NormalWishart:
        return NormalWishart(self.form, self.n_components, self.n_features)

    @cached_property
    def _wishart(self) -> Wishart:
        return Wishart(self.form, self.n_components, self.n_features)

    @cached_property
    def _gaussian(self) -> Gaussian:
        return Gaussian("full" if self.structure.event_ndim == 2 else self.covariance_type)

    @cached_property
    def factors(self) -> tuple[Factor, ...]:
        """q(μ, Λ), or q(μ) and q(Λ)."""
        if self.joint:
            return (Factor(self._normal_wishart, {key: key for key in NormalWishart.keys}),)
        names = {"precision": "mean_precision", "natural_mean": "mean_natural"}
        precisions = Factor(self._wishart, {key: key for key in Wishart.keys})
        return Factor(self._gaussian, names), precisions

    @property
    def shared_keys(self) -> tuple[str, ...]:
        return tuple(Wishart.keys) if self.structure.shared else ()

    @property
    def shares_means(self) -> bool:
        return self.form != "common"

    @property
    def updated_together(self) -> tuple[tuple[str, ...], ...]:
        """Means before precisions if the factors are independent, with one local step for both."""
        return tuple(tuple(factor.names.values()) for factor in self.factors)

    def merge_gains(self, q: Natural, prior: Natural, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        if self.structure.shared:
            return tied_merge_gains(self, q, prior, i, j)
        return super().merge_gains(q, prior, i, j)

    def summary(self, rows: Rows) -> Summary:
        """Return the moments of the rows, from one pass over them."""
        return moments(rows, self.structure.event_ndim == 2)

    @property
    def least_rows_alone(self) -> float:
        if not self.learns_matrix:
            return 2.0
        return max(super().least_rows_alone, 10.0 * self.n_features)

    resolved = resolved_gaussians

    def set_scale(self, common: np.ndarray, sizes: Sizes | None) -> None:
        """Set the covariance prior, of which each component has a multiple if there are sizes."""
        self.common_scale, self.sizes = common, sizes
        if self.correlates:
            how = self.n_matrices * self.mean_dof_prior, self.n_features, self.scale_prior_dof
            self.scale_loss, self.scale_prior_dof = least_loss(log_correlation(common), *how)
        self.covariance_prior = common
        if sizes is not None:
            self.covariance_prior = self.per_row(sizes.mean) * common

    @property
    def mean_dof_prior(self) -> float:
        """The mean of ν₀, which may be given for each component."""
        given = self.degrees_of_freedom_prior
        return given if isinstance(given, float) else float(np.mean(given))

    @property
    def shared_scale(self) -> tuple[np.ndarray, np.ndarray | float] | tuple[()]:
        """The matrix of which all covariance priors are multiples, with the factors.

        It is empty if each component was given a covariance prior of its own.
        """
        common = np.asarray(self.common_scale, dtype=np.float64)
        own = common.ndim > self.structure.event_ndim
        return () if own else (common, 1.0 if self.sizes is None else self.sizes.mean)

    @property
    def described_sizes(self) -> dict[str, np.ndarray]:
        """Return the attributes of estimators that report the sizes."""
        if self.sizes is None:
            return {"mean": np.ones(self.n_components)}
        return self.sizes.described

    def hyperparameter_kl(self) -> float:
        if self.sizes is None:
            return self.scale_loss
        return self.scale_loss + self.sizes.kl(self.degrees_of_freedom_prior, self.n_features)

    def carried(self, prior: Natural, order: np.ndarray) -> tuple[Components, Natural]:
        if self.sizes is None:
            return super().carried(prior, order)
        carried = copy(self)
        carried.set_scale(self.common_scale, self.sizes.reordered(order))
        return carried, carried.natural_prior(self.prior_means(prior))

    def with_priors_of(self, larger: Any, chosen: np.ndarray) -> Components:
        if self.n_components == 1:
            return self
        carried = copy(self)
        for name in self.auto:
            setattr(carried, name, getattr(larger, name))
        if "covariance_prior" in self.auto:
            sizes = None if larger.sizes is None else larger.sizes.reordered(chosen)
            carried.set_scale(larger.common_scale, sizes)
        return carried

    def shaped(self, covariance: np.ndarray) -> np.ndarray:
        """Return the covariance of the data in the shape of the covariance prior."""
        return np.asarray(covariance.mean()) if self.covariance_type == "spherical" else covariance

    def prior(self, summary: Summary) -> Natural:
        """Return λ₀ of all components; :meth:`resolved` must have set the priors."""
        prior = self.natural_prior(self.mean_prior - summary.center)
        if self.joint:
            self._check_scatter(self.factors[0].pick(prior))
        return prior

    def natural_prior(self, mean: np.ndarray) -> Natural:
        """Return λ₀ at the prior mean ``mean`` relative to the center, and at the other priors."""
        k, d = self.n_components, self.n_features
        rows = () if self.structure.shared else (k,)
        inverse_scale = np.asarray(self.covariance_prior, dtype=np.float64)
        event = inverse_scale.shape[inverse_scale.ndim - self.structure.event_ndim :]
        inverse_scale, mean = in_shape(inverse_scale, rows + event), in_shape(mean, (k, d))
        dof = np.full(rows, self.degrees_of_freedom_prior, dtype=float)
        strength = np.full(k, self.mean_precision_prior, dtype=float)
        if self.joint:
            joint = self._normal_wishart.from_standard(mean, strength, inverse_scale, dof)
            return self.factors[0].rename(joint)
        precision = self.structure.inverse(np.asarray(self.covariance_prior, dtype=np.float64))
        precision = np.broadcast_to(precision, (k, *event))
        precision = self.per_row(strength) * precision
        return {
            "mean_precision": precision,
            "mean_natural": self.structure.multiply(precision, mean),
            "scatter": inverse_scale.copy(),
            "dof": dof,
        }

    learned, joint_step, narrow_step = learned_gaussians, joint_step, narrow.learned
    is_narrow = property(narrow.is_narrow)

    def following(
        self, q: Natural, prior: Natural, new: Natural, known: Known | None = None
    ) -> Natural:
        """Return the parameters of q after the change of the prior to a new one.

        Learning that prior may have computed them. With independent factors, q(μ) was found before
        q(Λ). Changing both at once could lower the bound, and q(μ) is the next to be updated.
        """
        computed: Next | None = None if known is None else known.get("next")
        if computed is not None and computed.prior is new:
            return computed.q
        own = new if self.joint else self.factors[1].pick(new)
        return followed(q, prior, own)

    def _check_scatter(self, joint: Natural) -> None:
        """Refuse a prior whose scatter W⁻¹ + β m mᵀ has lost the digits of W⁻¹ to β m mᵀ."""
        inverse_scale = np.asarray(self.covariance_prior, dtype=np.float64)
        inverse_scale = np.broadcast_to(inverse_scale, joint["scatter"].shape)
        kept = self._normal_wishart.to_standard(joint)["inverse_scale"]
        lost = self.structure.relative(kept - inverse_scale, inverse_scale, self.n_features)
        if np.abs(lost).max() > _LARGEST_LOSS:
            raise ValueError(
                "The prior of the means is too strong for its distance from the data: the squared "
                f"distance, times {np.max(self.mean_precision_prior):g}, is so much larger than "
                f"{self.covariance_prior_name} that floating-point numbers cannot hold both. "
                "Lower the prior's precision of the means, move their prior mean towards the mean "
                f"of the data, or give a larger {self.covariance_prior_name}."
            )

    def random_natural(
        self, counts: np.ndarray, summary: Summary, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        return self.posterior_of(self.pseudo_data(counts, summary, rng), prior)

    def pseudo_data(
        self, counts: np.ndarray, summary: Summary, rng: np.random.Generator
    ) -> Moments:
        """Return the statistics of random components with the given numbers of rows.

        The center of each component is drawn from a Gaussian with the moments of the data. Around
        it, every component has the covariance of the data.
        """
        noise = rng.standard_normal((self.n_components, self.n_features))
        covariance = summary.covariance
        if covariance.ndim == 2:
            noise = noise @ summary.root.T
        else:
            noise = noise * np.sqrt(covariance)
            if self.covariance_type == "spherical":
                covariance = covariance.mean()
        return self._data_around(summary.mean - summary.center + noise, covariance, counts)

    def _data_around(
        self, centers: np.ndarray, covariances: np.ndarray, counts: np.ndarray
    ) -> Moments:
        """Return the statistics of rows with these means, covariances and numbers.

        Means are relative to the center, and covariances are stored as the covariance type
        requires.
        """
        second = self.structure.outer(centers) + covariances
        pooled = self.structure.pool(self.per_row(counts) * second)
        return Moments(counts, counts[:, None] * centers, pooled)

    def posterior_like(
        self,
        profile: Profile,
        counts: np.ndarray,
        q: Natural,
        summary: Summary,
        prior: Natural,
    ) -> Natural:
        now = self.standard(q) if q else {}
        centers = profile["means"] - summary.center if "means" in profile else now["mean"]
        covariances = profile.get("covars")
        if covariances is None:
            covariances = self.covariances(now["inverse_scale"], now["dof"])
        return self.posterior_of(self._data_around(centers, covariances, counts), prior)

    def per_row(self, values: np.ndarray) -> np.ndarray:
        """Reshape one value per component, so that it broadcasts to the components' matrices."""
        return values.reshape(-1, *(1,) * self.structure.event_ndim)

    def empty_statistics(self, layout: str) -> FeatureSums:
        """Return zeros in the layout in which kernels write statistics."""
        d = self.n_features
        pairs = d * (d + 1) // 2
        n_own = {"full": pairs, "tied": 0, "diag": d, "spherical": 1}[layout] + d + 1
        shared = np.zeros((1, pairs if layout == "tied" else 0))
        wide = layout == "full" and self.is_wide(layout)
        kept: list[Any] | None = [[] for _ in range(self.n_components)] if wide else None
        return FeatureSums(layout, np.zeros((self.n_components, n_own)), shared, kept)

    def unpack(self, raw: FeatureSums) -> Moments:
        """Return N_k = Σ R, Σ R x and Σ R x xᵀ from raw statistics, R being the responsibilities.

        The matrices are stored as the covariance type requires.
        """
        d, own = self.n_features, raw.own
        second = own[:, : -d - 1]
        if raw.layout == "tied":
            second = raw.shared[0].take(self._triangle.places)
            second = second / (self.n_components if self.structure.alike else 1)
        elif raw.layout == "spherical":
            second = second[:, 0] / d
        elif raw.layout == "full":
            second = second.take(self._triangle.places, axis=1)
            if self.covariance_type == "diag":
                second = np.diagonal(second, axis1=-2, axis2=-1)
            elif self.covariance_type == "spherical":
                second = np.trace(second, axis1=-2, axis2=-1) / d
            second = self.structure.pool(second)
        return Moments(own[:, -1], own[:, -d - 1 : -1], second)

    @cached_property
    def _triangle(self) -> Triangle:
        return Triangle.of(self.n_features)

    def zeros(self, expected: Features) -> FeatureSums:
        return self.empty_statistics(expected.layout)

    def add(self, rows: Rows, shares: np.ndarray, raw: FeatureSums, expected: Features) -> None:
        if rows.patterns is not None:
            self._add_cells(rows, shares, raw, expected)
            return
        if self.is_wide(raw.layout):
            for part in wide.parts(rows):
                wide.add(wide.centered(rows, part), shares[part], raw, self._triangle)
            return
        kernels().statistics_of(
            np.ascontiguousarray(rows.X),
            rows.center,
            FEATURE_KINDS[raw.layout],
            shares,
            rows_per_block(self.n_features, raw.layout),
            raw.own,
            raw.shared,
        )

    def statistics(
        self, raw: FeatureSums, keys: tuple[str, ...] | None = None, q: Natural | None = None
    ) -> Natural:
        if raw.derived:
            return raw.derived
        # Draws have full precision matrices for every covariance type.
        if self.is_narrow and raw.layout == self.form:
            return narrow.statistics(self, raw)
        s = self.unpack(raw)
        if self.joint:
            found = self._joint_statistics(s)
            if raw.derived is not None:
                raw.derived.update(found)
            return found
        # The statistics of an independent factor depend on the current q of the other factor.
        assert q is not None and keys is not None
        return self._precision_statistics(s, q) if "dof" in keys else self._mean_statistics(s, q)

    def _mean_statistics(self, s: Moments, q: Natural) -> Natural:
        # q(μ_k) has the natural parameters N_k E Λ_k and E Λ_k Σ R x.
        precision = self._wishart.expected_precision(self.factors[1].pick(q))
        return {
            "mean_precision": self.per_row(s.counts) * precision,
            "mean_natural": self.structure.multiply(precision, s.first),
        }

    def _precision_statistics(self, s: Moments, q: Natural) -> Natural:
        # q(Λ_k) has Σ R E (x − μ)(x − μ)ᵀ = Σ R x xᵀ − Σ R x mᵀ − m Σ R xᵀ + N (m mᵀ + Cov μ).
        standard = self._gaussian.to_standard(self.factors[0].pick(q))
        spread = self.structure.outer(standard["mean"]) + standard["covariance"]
        around = self.per_row(s.counts) * spread
        around = around - self.structure.cross(s.first, standard["mean"])
        return {
            "scatter": self._regularized(s.second + self.structure.pool(around), s.counts),
            "dof": np.asarray(self.structure.pool(s.counts)),
        }

    def _joint_statistics(self, s: Moments) -> Natural:
        """Return what rows add to the parameters of joint factors; matrices are overwritten."""
        # log p(x | μ, Λ) = ½ log|Λ| − ½ xᵀ Λ x + xᵀ Λ μ − ½ μᵀ Λ μ + const, whose factors 1, x xᵀ,
        # x and 1 are what a row adds to the natural parameters of q(μ, Λ).
        second = s.second if self.structure.event_ndim == 2 else np.array(s.second)
        return {
            "mean_precision": s.counts,
            "mean_natural": s.first,
            "scatter": self._regularized(second, s.counts),
            "dof": self.structure.pool(s.counts),
        }

    def _regularized(self, scatter: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return the scatter statistics plus N_k reg_covar I, in the memory of the scatter."""
        each = self.structure.pool(self.reg_covar * counts)
        if self.structure.event_ndim == 2:
            np.einsum("...ii->...i", scatter)[:] += each[..., None]
        else:
            scatter += each.reshape(each.shape + (1,) * self.structure.event_ndim)
        return scatter

    def posterior_given(self, raw: FeatureSums, prior: Natural) -> Natural:
        return self.posterior_of(self.unpack(raw), prior)

    def posterior_of(self, s: Moments, prior: Natural) -> Natural:
        """Return λ₀ + S for the statistics of given data, or of pseudo data.

        The statistics of independent factors would depend on q. Instead, the precisions follow
        from the scatter of the data around the components' centers, and the means from these
        precisions.
        """
        if self.joint:
            return {key: prior[key] + value for key, value in self._joint_statistics(s).items()}
        # W⁻¹ = W₀⁻¹ + Σ R x xᵀ − N m mᵀ with m = Σ R x / N; √N m is one vector for both factors.
        root = s.first / np.sqrt(np.maximum(s.counts, np.finfo(float).tiny))[:, None]
        around = s.second - self.structure.pool(self.structure.outer(root))
        q = {
            "scatter": self._regularized(prior["scatter"] + around, s.counts),
            "dof": prior["dof"] + self.structure.pool(s.counts),
        }
        means = self._mean_statistics(s, q)
        return q | {key: prior[key] + value for key, value in means.items()}

    def expectations(
        self,
        q: Natural,
        rng: np.random.Generator | None = None,
        log_weights: np.ndarray | None = None,
        moments: Any = None,
    ) -> Features:
        """Return the coefficients of E log p(x | z = k), or of E log p(x, z = k).

        They belong to the joint density if ``log_weights`` gives E log π, of shape
        (n_components,). With ``rng``, the means and precisions are one draw, and no expectation
        is taken over them. ``moments`` are those of q, if they have been computed.
        """
        if log_weights is None:
            log_weights = np.zeros(self.n_components)
        if rng is not None:
            return self._drawn_features(q, log_weights, rng)
        # E log p(x | z = k) = ½ E log|Λ| − D/2 log 2π − ½ (x − m)ᵀ E Λ (x − m) − ½ tr(E Λ Cov μ).
        # A joint factor has Cov(μ | Λ) = Λ⁻¹ / β, and the trace is D / β. The noise of rows adds
        # its variance times tr E Λ.
        mean, covariance, precision, log_det = self.moments(q) if moments is None else moments
        if covariance is None:
            spread = self.n_features / q["mean_precision"]
        else:
            product = (precision * covariance).reshape(self.n_components, -1)
            spread = self.structure.multiplicity(self.n_features) * product.sum(axis=1)
        if self.noise_variance and isinstance(precision, Precisions):
            spread = spread + self.noise_variance * precision.diagonals.sum(axis=-1)
        elif self.noise_variance and self.structure.event_ndim == 2:
            spread = spread + self.noise_variance * np.trace(precision, axis1=-2, axis2=-1)
        elif self.noise_variance:
            entries = precision.reshape(self.n_components, -1).sum(axis=1)
            traces = self.structure.multiplicity(self.n_features) * entries
            spread = spread + self.noise_variance * traces
        constant = log_weights + 0.5 * (log_det - spread)
        return self.features_of(self.covariance_type, precision, mean, constant, log_weights)

    def expectations_of_start(
        self, rows: Rows, prior: Natural, summary: Summary | None = None
    ) -> Features:
        """Return the log density of the data as one Gaussian, for all components alike."""
        if rows.patterns is None:
            return self.expectations(prior)
        return self.of_all_rows(replace(self.summary(rows), center=rows.center))

    def of_all_rows(self, summary: Summary) -> Features:
        """Return the coefficients of one Gaussian with the moments of the data, for all components.

        The first statistics of a fit need expected values of missing cells, but there are no
        components yet.
        """
        covariance = summary.covariance
        variances = np.diagonal(covariance) if covariance.ndim == 2 else covariance
        # A column without variance says nothing, but its precision must be finite.
        least = max(self.reg_covar, 1e-12 * variances.max(), np.finfo(float).tiny)
        extra = 1e-6 * variances + np.where(variances > 0, 0.0, least)
        covariance = self.shaped(covariance + (np.diag(extra) if covariance.ndim == 2 else extra))
        rows = () if self.structure.shared else (self.n_components,)
        precision = self.structure.inverse(covariance)
        precision = np.broadcast_to(precision, rows + precision.shape)
        mean = np.tile(summary.mean - summary.center, (self.n_components, 1))
        return self.features_of(self.covariance_type, precision, mean, np.zeros(self.n_components))

    def moments(self, q: Natural) -> tuple[np.ndarray, np.ndarray | None, Any, np.ndarray]:
        """Return E μ (relative to the center), Cov μ, E Λ and E log|Λ| of all components.

        The matrices are stored as the covariance type requires. With a joint factor, None stands
        for the covariance of μ, because it is Λ⁻¹ / β given Λ. Precision matrices E Λ of many
        columns are computed as far as they are read (:class:`Precisions`).
        """
        if self.joint:
            family = self._normal_wishart
            moments: Any = family.moments
            if self.is_wide(self.covariance_type):
                moments = family.factored_moments
            precision, log_det = moments(self.factors[0].pick(q))
            return q["mean_natural"] / q["mean_precision"][:, None], None, precision, log_det
        precision, log_det = self._wishart.moments(self.factors[1].pick(q))
        standard = self._gaussian.to_standard(self.factors[0].pick(q))
        return standard["mean"], standard["covariance"], precision, log_det

    def prior_means(self, prior: Natural) -> np.ndarray:
        """Return m₀ of all components, relative to the center.

        ``prior`` is λ₀ of these components (:meth:`natural_prior`). No matrix has to be inverted:
        the prior precision of the means is the inverse of a hyperparameter.
        """
        if self.joint:
            return prior["mean_natural"] / prior["mean_precision"][:, None]
        strength = np.asarray(self.mean_precision_prior, dtype=np.float64).reshape(-1, 1)
        covariance = np.asarray(self.covariance_prior, dtype=np.float64)
        return self.structure.multiply(covariance, prior["mean_natural"]) / strength

    def inverse_scales(self, q: Natural) -> np.ndarray:
        """Return W⁻¹ of joint factors q(μ, Λ), in new memory."""
        scatter: np.ndarray = self._normal_wishart._wishart_natural(q)["scatter"]
        return scatter

    def plug_in(self, q: Natural) -> Features:
        """Return the coefficients of log p(x | z = k) at posterior means and covariances."""
        standard = self.standard(q)
        covariances = self.covariances(standard["inverse_scale"], standard["dof"])
        constant = -0.5 * self.structure.log_det(covariances, self.n_features)
        constant = np.broadcast_to(constant, (self.n_components,))
        precision = self.structure.inverse(covariances)
        return self.features_of(self.covariance_type, precision, standard["mean"], constant)

    def _drawn_features(
        self, q: Natural, log_weights: np.ndarray, rng: np.random.Generator
    ) -> Features:
        if self.joint:
            draw = self._normal_wishart.sample(self.factors[0].pick(q), rng)
        else:
            draw = self._wishart.sample(self.factors[1].pick(q), rng)
            draw["mean"] = self._gaussian.sample(self.factors[0].pick(q), rng)["value"]
        traces = np.trace(draw["precision"], axis1=-2, axis2=-1)
        constant = log_weights + 0.5 * (draw["log_det_precision"] - self.noise_variance * traces)
        # The covariance type restricts the scale of the Wishart distribution, but a draw from it
        # is a full precision matrix.
        return self.features_of("full", draw["precision"], draw["mean"], constant, log_weights)

    def features_of(
        self,
        layout: str,
        precision: np.ndarray | Precisions,
        mean: np.ndarray,
        constant: np.ndarray,
        log_weights: np.ndarray | None = None,
    ) -> Features:
        """Return the coefficients of constant − D/2 log 2π − ½ (x − mean)ᵀ precision (x − mean)."""
        none = np.zeros(self.n_components)
        terms = Terms(mean, constant, none if log_weights is None else log_weights)
        if self.is_wide(layout):
            if isinstance(precision, Precisions):
                roots = precision.roots
            else:
                roots = Roots.of(precision)
            return Features(layout, NOTHING, NOTHING, terms, roots=roots)
        if isinstance(precision, Precisions):
            precision = precision.matrices
        structure = get_structure(layout, COVARIANCE_TYPES, "layout")
        # −½ (x − m)ᵀ Λ (x − m) = −½ Σ_ij Λ_ij x_i x_j + (Λ m)ᵀ x − ½ mᵀ Λ m. A pair of different
        # columns is in the sum twice and among the features once.
        linear = structure.multiply(precision, mean)
        constant = constant - 0.5 * (self.n_features * LOG_2PI + (mean * linear).sum(axis=1))
        if structure.event_ndim == 2:
            matrices = precision.reshape(-1, self.n_features**2)
            quadratic = self._triangle.factors * matrices.take(self._triangle.entries, axis=1)
        else:
            quadratic = -0.5 * precision.reshape(self.n_components, -1)
        own = [linear, constant[:, None]]
        if structure.shared:
            return Features(layout, np.concatenate(own, axis=1), quadratic, terms)
        return Features(layout, np.concatenate([quadratic, *own], axis=1), NOTHING, terms)

    def gaussians_of(self, features: Features) -> missing_cells.Gaussians:
        """Return the precision matrices and the other terms of log densities."""
        found: missing_cells.Gaussians | None = features.gaussians
        return missing_cells.gaussians_of(features, self._triangle) if found is None else found

    def for_rows(self, expected: Features, rows: Rows) -> Features:
        # All chunks of rows with missing cells read the same matrices.
        if rows.patterns is None:
            return expected
        return expected.for_other_rows()._replace(gaussians=self.gaussians_of(expected))

    def is_wide(self, layout: str) -> bool:
        """Return whether steps are products of matrices, and not kernels (``_wide_gaussians``).

        It does not depend on the rows.
        """
        of_tied = 1 if self.form == "common" else wide.MATRICES_OF_TIED
        n_matrices = {"full": self.n_components, "tied": of_tied}.get(layout)
        return n_matrices is not None and wide.takes(self.n_features, n_matrices)

    def n_terms(self, rows: Rows) -> float:
        # The products of columns take most of the time, whatever the number of components is.
        cost = 1 if rows.patterns is None else _COST_OF_MISSING
        return float(cost * rows.n_units * self.n_features**2)

    def operations(self, rows: Rows) -> float:
        d = self.n_features
        quadratic = {"full": d * (d + 1) / 2, "tied": d * (d + 1) / (2 * self.n_components)}
        own = quadratic.get(self.covariance_type, d) + d + 1
        return 4.0 * self.n_components * own * rows.n_units

    def log_density(self, rows: Rows, expected: Features) -> np.ndarray:
        """Return E log p(x_n | z_n = k), or E log p(x_n, z_n = k), in nats.

        The shape is (n_rows, n_components). Which of both it is depends on ``expected``
        (:meth:`expectations`). Missing cells are integrated out.
        """
        if rows.patterns is not None:
            return self._log_density_of_cells(rows, expected)
        n = rows.n_units
        out = np.empty((n, self.n_components))
        if self.is_wide(expected.layout):
            for part in wide.parts(rows):
                out[part] = wide.log_joint(wide.centered(rows, part), expected)
            return out
        # Rows that are not contiguous have to be copied; copying a part at a time saves memory.
        step = max(n, 1) if rows.X.flags.c_contiguous else CHUNK
        for start in range(0, n, step):
            chunk = rows.take(slice(start, start + step))
            kernels(rows.plain).log_joint(
                np.ascontiguousarray(chunk.X),
                chunk.center,
                FEATURE_KINDS[expected.layout],
                expected.own,
                expected.shared,
                rows_per_block(self.n_features, expected.layout),
                out[start : start + chunk.n_units],
            )
        return out

    def _log_density_of_cells(self, rows: Rows, expected: Features) -> np.ndarray:
        n = rows.n_units
        out = np.empty((n, self.n_components))
        if n > _ROWS_OF_CELLS:
            for start in range(0, n, _ROWS_OF_CELLS):
                part = slice(start, start + _ROWS_OF_CELLS)
                out[part] = self._log_density_of_cells(rows.take(part), expected)
            return out
        complete, some, blank = rows.by_completeness
        gaussians = self.gaussians_of(expected)
        if len(complete):
            out[complete] = self.log_density(rows.complete, expected)
        out[some] = missing_cells.log_density(rows, some, gaussians)
        out[blank] = gaussians.log_weights
        return out

    def _add_cells(
        self, rows: Rows, shares: np.ndarray, raw: FeatureSums, expected: Features
    ) -> None:
        """Add the statistics of rows with missing cells; those without any other add nothing."""
        complete, some, _ = rows.by_completeness
        if len(complete):
            whole = np.ascontiguousarray(shares[complete])
            self.add(rows.complete, whole, raw, expected)
        if len(some) == 0:
            return
        gaussians = self.gaussians_of(expected)
        found = missing_cells.completed_moments(rows, some, shares[some], gaussians)
        self._add_moments(found, raw)

    def _add_moments(self, found: Moments, raw: FeatureSums) -> None:
        """Add the statistics of completed rows, which are not kept as those of whole rows are."""
        if raw.kept is not None:
            raw.kept[:] = [None] * self.n_components
        second = found.second
        if second.ndim == 3:
            second = second.reshape(len(second), -1).take(self._triangle.entries, axis=1)
        elif raw.layout == "spherical":
            second = second.sum(axis=1, keepdims=True)
        if raw.layout == "tied":
            raw.shared[:] += second.sum(axis=0)
        else:
            raw.own[:, : second.shape[1]] += second
        raw.own[:, -self.n_features - 1 : -1] += found.first
        raw.own[:, -1] += found.counts

    def row_volume(self, summary: Summary) -> missing_cells.RowVolume:
        """Return log ∫ N(y | μ, Λ⁻¹)^x dy of rows with missing cells, at the data's covariance."""
        how = self.covariance_type, self.reg_covar
        return missing_cells.RowVolume.at_data(summary, *how)

    def tempered_log_volume(self, x: np.ndarray, summary: Summary) -> np.ndarray:
        """Return log ∫ N(y | μ, Λ⁻¹)^x dy in nats, at the covariance of the data.

        The result has the shape of ``x``. The covariance of the data is plugged in, because the
        expectation over the prior of Λ is infinite for most temperatures.
        """
        return self.row_volume(summary).whole(x)

    def log_volume(self, x: np.ndarray, summary: Summary, expected: Expected) -> np.ndarray:
        """Return log ∫ p(x_n | z_n = k)^x dx_n in nats, of shape (len(x), n_components)."""
        volume = self.tempered_log_volume(x, summary)
        return np.repeat(volume[:, None], self.n_components, axis=1)

    def log_volumes(self, x: np.ndarray, summary: Summary, expected: Expected) -> np.ndarray:
        """Return equal shares of :meth:`log_volume` for all columns."""
        each = self.tempered_log_volume(x, summary) / self.n_features
        return np.broadcast_to(each[:, None, None], (len(x), self.n_components, self.n_features))

    def jitter(self, q: Natural, size: float, rng: np.random.Generator, prior: Natural) -> Natural:
        """Displace the means at random by ``size`` prior standard deviations, and nothing else."""
        if "mean_natural" not in q:
            return q  # `q` has only the block of the precisions
        noise = rng.standard_normal((self.n_components, self.n_features))
        deviation = size * self._prior_deviation(prior) * noise
        if self.joint:
            standard = self._normal_wishart.to_standard(self.factors[0].pick(q))
            standard["mean"] = standard["mean"] + deviation
            return q | self.factors[0].rename(self._normal_wishart.from_standard(**standard))
        moved = self.structure.multiply(q["mean_precision"], deviation)
        return q | {"mean_natural": q["mean_natural"] + moved}

    def covariances(self, inverse_scale: np.ndarray, dof: np.ndarray) -> np.ndarray:
        """Return W⁻¹/ν, stored as the covariance type requires."""
        return inverse_scale / dof.reshape(dof.shape + (1,) * self.structure.event_ndim)

    def _prior_deviation(self, prior: Natural) -> np.ndarray:
        """Return the prior standard deviation of each mean, at the prior's expected precision.

        The shape is (n_components, n_features), or broadcasts to it.
        """
        if self.joint:
            standard = self._normal_wishart.to_standard(self.factors[0].pick(prior))
            scale, strength = standard["inverse_scale"], standard["mean_precision"]
            variance = self.covariances(scale, prior["dof"]) / self.per_row(strength)
        else:
            variance = self._gaussian.to_standard(self.factors[0].pick(prior))["covariance"]
        if self.structure.event_ndim == 2:
            variance = np.diagonal(variance, axis1=-2, axis2=-1)
        return np.sqrt(variance.reshape(self.n_components, -1))

    def log_predictive(self, rows: Rows, q: Natural) -> np.ndarray:
        """Return the log densities of Student-t distributions, (n_rows, n_components)."""
        return predictions.log_student_t(self, rows, q)

    student_t = predictions.student_t
    predictive_moments = predictions.cell_moments
    plug_in_moments = predictions.plug_in_moments

    def imputed(
        self, rows: Rows, shares: np.ndarray, q: Natural, predictive: bool = True
    ) -> tuple[np.ndarray, np.ndarray | None]:
        means, variances = predictions.impute(self, rows, q, shares, predictive)
        return means, np.sqrt(variances)

    def drawn_rows(
        self, rows: Rows, labels: np.ndarray, expected: Features, rng: np.random.Generator
    ) -> np.ndarray:
        return drawn_rows(rows, labels, self.gaussians_of(expected), rng)

    @property
    def n_parameters(self) -> int:
        k, d = self.n_components, self.n_features
        own = {"full": k * d * (d + 1) // 2, "tied": d * (d + 1) // 2, "diag": k * d}
        return k * d + own.get(self.covariance_type, k)

    def standard(self, q: Natural) -> dict[str, np.ndarray]:
        """Return means (relative to the center), inverse scales and degrees of freedom."""
        if self.joint:
            return self._normal_wishart.to_standard(self.factors[0].pick(q))
        mean = self._gaussian.to_standard(self.factors[0].pick(q))["mean"]
        precisions = self._wishart.to_standard(self.factors[1].pick(q))
        return {"mean": mean, "mean_precision": q["mean_precision"], **precisions}

    def coordinates(self, q: Natural, summary: Summary) -> np.ndarray:
        return coordinates(self, q, summary)
