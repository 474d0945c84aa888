"""The Wishart distribution with a restricted scale matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg.blas import dtrmm
from scipy.special import gammaln, psi

from ._base import Family, Natural
from ._divergence import gammaln_divergence, log1p_excess
from ._structure import (
    Structure,
    diagonals_alone,
    get_structure,
    inverse_of_lower,
    log_det_of_root,
    lower_root,
    product_of_lower,
    symmetrize,
)
from .gamma import log_standard_gamma

COVARIANCE_TYPES = ("full", "tied", "diag", "spherical")
# Rows of ``"tied"`` can also have one matrix in common.
FORMS = (*COVARIANCE_TYPES, "common")

# Logarithms of chi-square variables are not allowed below this value, since the square root of the
# variable would underflow and the drawn matrix would be singular.
_LOG_TINY = np.log(np.finfo(float).tiny)


class Roots(NamedTuple):
    """Lower triangular matrices G and numbers c of precision matrices Λ = c GᵀG.

    With them the squared length of G x is xᵀ Λ x / c, for many x by one product of matrices.
    """

    matrices: np.ndarray  # (..., D, D)
    factors: np.ndarray  # (...)

    @classmethod
    def of(cls, precisions: np.ndarray) -> Roots:
        """Return those of precision matrices of shape (..., D, D)."""
        # A Cholesky factor is on the left of its transpose. In the other order of the columns it
        # is on the right.
        turned = lower_root(precisions[..., ::-1, ::-1])
        matrices = np.ascontiguousarray(turned.swapaxes(-1, -2)[..., ::-1, ::-1])
        return cls(matrices, np.ones(precisions.shape[:-2]))

    @property
    def products(self) -> np.ndarray:
        """The precision matrices Λ."""
        return self.factors[..., None, None] * product_of_lower(self.matrices)

    def turn(self, k: int, rows: np.ndarray) -> None:
        """Replace rows x by G_k x. The other triangle of G_k is not read."""
        # In Fortran's order, which transposes have, the products replace the rows.
        dtrmm(1.0, self.matrices[k].T, rows.T, trans_a=True, overwrite_b=True)

    def distances(self, k: int, rows: np.ndarray) -> np.ndarray:
        """Return xᵀ Λ_k x of rows x, which are overwritten."""
        self.turn(k, rows)
        return self.factors[k] * np.einsum("nd,nd->n", rows, rows)


class Precisions:
    """E Λ = ν W of Wishart distributions, given the matrices W⁻¹ and the degrees of freedom ν.

    A Cholesky factorisation of W⁻¹ is made at once, and shows whether it is positive definite. Its
    factor is inverted, and the inverse multiplied by its transpose, when a result first needs it.
    Each of the three takes as many operations as the others.

    Parameters
    ----------
    inverse_scales : ndarray of shape (..., D, D)
        W⁻¹, whose memory is overwritten.
    dof : ndarray of shape (...)

    Attributes
    ----------
    log_dets : ndarray of shape (...)
        log|W⁻¹|.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not positive definite.
    """

    def __init__(self, inverse_scales: np.ndarray, dof: np.ndarray):
        self.dof = np.asarray(dof)
        self._root = lower_root(inverse_scales, overwrite=True)
        self.log_dets = log_det_of_root(self._root)

    @cached_property
    def _inverse_root(self) -> np.ndarray:
        return inverse_of_lower(self.__dict__.pop("_root"), overwrite=True)

    @property
    def roots(self) -> Any:
        """Λ = ν GᵀG with G = L⁻¹, where W⁻¹ = L Lᵀ."""
        return Roots(self._inverse_root, self.dof)

    @cached_property
    def matrices(self) -> np.ndarray:
        """E Λ, of shape (..., D, D)."""
        found = product_of_lower(self._inverse_root)
        found *= self.dof[..., None, None]
        return found

    @cached_property
    def diagonals(self) -> np.ndarray:
        """The diagonals of E Λ, of shape (..., D)."""
        squares = np.einsum("...ij,...ij->...j", self._inverse_root, self._inverse_root)
        return self.dof[..., None] * squares

    def multiply(self, vectors: np.ndarray) -> np.ndarray:
        """Return the products with columns of shape (..., D, n)."""
        if "matrices" in vars(self):
            return self.matrices @ vectors
        root = self._inverse_root
        return self.dof[..., None, None] * (root.swapaxes(-1, -2) @ (root @ vectors))

    def squares(self, scales: np.ndarray) -> np.ndarray:
        """Return tr(V E Λ V E Λ) of diagonal matrices V, whose diagonals are ``scales``."""
        found = np.empty(len(scales))
        for k, (matrix, own) in enumerate(zip(self.matrices, np.sqrt(scales), strict=True)):
            # The squares of the entries could overflow without the units of the columns.
            product = own * matrix
            product *= own[:, None]
            found[k] = np.vdot(product, product)
        return found

    def traces(self, matrices: np.ndarray) -> np.ndarray:
        """Return the traces of their products with symmetric matrices, of shape (...)."""
        own = diagonals_alone(matrices)
        if own is not None:
            return (own * self.diagonals).sum(axis=-1)
        return np.einsum("...ij,...ij->...", matrices, self.matrices)


@dataclass(frozen=True)
class Wishart(Family):
    """Wishart distributions of precision matrices Lambda.

    The density is proportional to exp{-tr(W^{-1} Lambda) / 2 + (nu - D - 1) / 2 log|Lambda|} over
    all positive definite D x D matrices; the covariance type restricts W alone. The natural
    parameters are ``scatter`` = W^{-1} and ``dof`` = nu, with base (0, D + 1). For rows of shape
    (...), their shapes are

    - full: ``scatter`` (..., D, D), ``dof`` (...)
    - diag: ``scatter`` (..., D), ``dof`` (...)
    - spherical: ``scatter`` (...), ``dof`` (...)
    - tied: ``scatter`` (D, D), ``dof`` (), shared by `n_rows` independent matrices
    - common: ``scatter`` (D, D), ``dof`` () of one matrix, which `n_rows` rows have in common

    Further, t = (-Lambda / 2, log|Lambda| / 2). The first one is restricted to its diagonal (diag)
    or its trace (spherical); for tied, both are summed over the rows. What belongs to the matrix in
    common is divided equally among the rows where each row has a value. The standard parameters are
    ``inverse_scale``, stored like the scatter, and ``dof``. A draw has the keys ``precision``
    (..., D, D), full matrices for every covariance type, and ``log_det_precision`` (...).

    Parameters
    ----------
    covariance_type : {"full", "tied", "common", "diag", "spherical"}, default="full"
        The restriction of the scale matrix W.
    n_rows : int or None, default=None
        Number of rows that share the parameters; needed for tied and common, unused otherwise.
    n_features : int or None, default=None
        D; needed for spherical, otherwise read from the scatter.

    Raises
    ------
    ValueError
        If the covariance type does not exist or lacks `n_rows` or `n_features`.
    numpy.linalg.LinAlgError
        Raised by the methods, except ``valid``, if a scatter is not positive definite.

    References
    ----------
    Bishop (2006), Pattern Recognition and Machine Learning, Eqs. B.78 to B.82.
    """

    covariance_type: str = "full"
    n_rows: int | None = None
    n_features: int | None = None

    keys: ClassVar[tuple[str, ...]] = ("scatter", "dof")

    def __post_init__(self) -> None:
        structure = get_structure(self.covariance_type, FORMS, "covariance_type")
        if structure.shared and self.n_rows is None:
            raise ValueError(
                f"n_rows=None, but covariance_type={self.covariance_type!r} shares its parameters "
                "between rows; give n_rows, the number of rows that share them."
            )
        if structure.event_ndim == 0 and self.n_features is None:
            raise ValueError(
                "n_features=None, but the scatter of covariance_type='spherical' does not show "
                "the size of the matrices; give n_features."
            )

    @cached_property
    def _structure(self) -> Structure:
        return get_structure(self.covariance_type, FORMS, "covariance_type")

    def _size(self, natural: Natural) -> int:
        return natural["scatter"].shape[-1] if self.n_features is None else self.n_features

    def _rows(self, per_parameter: np.ndarray, divided: bool = False) -> np.ndarray:
        """Repeat a shared value for every row; values that are not shared are returned as given.

        If they are ``divided``, rows with one matrix in common have equal shares of its value.
        """
        if not self._structure.shared:
            return per_parameter
        n_rows = self.n_rows or 1
        return np.full(n_rows, per_parameter * (self._copies / n_rows if divided else 1.0))

    @property
    def _copies(self) -> int:
        """The number of independent matrices that share the parameters."""
        return self.n_rows if self._structure.alike and self.n_rows is not None else 1

    def base(self, natural: Natural) -> Natural:
        """Return scatter 0 and dof D + 1."""
        return {"scatter": np.zeros(()), "dof": np.asarray(self._size(natural) + 1.0)}

    def log_det_expectation(self, natural: Natural) -> np.ndarray:
        """Return E log|Lambda| in nats, of shape (...), (n_rows,) for tied (Bishop, Eq. B.81)."""
        log_det = self._structure.log_det(natural["scatter"], self._size(natural))
        return self._rows(self._log_det_of(natural, log_det))

    def expected_precision(self, natural: Natural) -> np.ndarray:
        """Return E[Lambda] = nu W, stored like the scatter (Bishop, Eq. B.80)."""
        return self._times_dof(natural, self._structure.inverse(natural["scatter"]))

    def moments(self, natural: Natural) -> tuple[np.ndarray, np.ndarray]:
        """Return :meth:`expected_precision` and :meth:`log_det_expectation`.

        The matrices are factorised once for both.
        """
        precision, log_det = self._moments(natural)
        return precision, self._rows(log_det)

    def factored_moments(self, natural: Natural) -> tuple[Precisions, np.ndarray]:
        """Return :meth:`moments` of matrices, whose factors replace the scatter in memory."""
        precisions = Precisions(natural["scatter"], natural["dof"])
        return precisions, self._rows(self._log_det_of(natural, precisions.log_dets))

    def _moments(self, natural: Natural) -> tuple[np.ndarray, np.ndarray]:
        size = self._size(natural)
        inverse, log_det = self._structure.inverse_and_log_det(natural["scatter"], size)
        return self._moments_given(natural, inverse, log_det)

    def _moments_given(
        self, natural: Natural, inverse: np.ndarray, log_det: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return E[Lambda] and E log|Lambda|, given the inverse and the log |scatter|."""
        return self._times_dof(natural, inverse), self._log_det_of(natural, log_det)

    def _times_dof(self, natural: Natural, matrices: np.ndarray) -> np.ndarray:
        """Return nu times matrices, in whose memory the products can be."""
        dof = natural["dof"]
        factors = dof.reshape(dof.shape + (1,) * self._structure.event_ndim)
        return np.multiply(factors, matrices, out=matrices if np.ndim(matrices) else None)

    def _log_det_of(self, natural: Natural, log_det_scatter: np.ndarray | float) -> np.ndarray:
        n_features = self._size(natural)
        halves = 0.5 * (natural["dof"][..., None] - np.arange(n_features))
        return psi(halves).sum(-1) + n_features * np.log(2.0) - log_det_scatter

    def expectations(self, natural: Natural) -> Natural:
        """Return (-E[Lambda] / 2, E log|Lambda| / 2), restricted and summed as the arrays are."""
        return self._expectations(*self._moments(natural), self._size(natural))

    def _expectations(
        self, expected_precision: np.ndarray, log_det: np.ndarray, n_features: int
    ) -> Natural:
        weight = 0.5 * self._copies
        multiplicity = self._structure.multiplicity(n_features)
        return {
            "scatter": -weight * multiplicity * expected_precision,
            "dof": np.asarray(weight * log_det),
        }

    def log_normalizer(self, natural: Natural) -> np.ndarray:
        """Return A in nats, of shape (...), (n_rows,) for shared parameters (Bishop, Eq. B.79)."""
        log_det = self._structure.log_det(natural["scatter"], self._size(natural))
        return self._log_normalizer(natural, log_det)

    def _expectations_and_log_normalizer(self, natural: Natural) -> tuple[Natural, np.ndarray]:
        size = self._size(natural)
        inverse, log_det = self._structure.inverse_and_log_det(natural["scatter"], size)
        precision, of_precision = self._moments_given(natural, inverse, log_det)
        expected = self._expectations(precision, of_precision, size)
        return expected, self._log_normalizer(natural, log_det)

    def _log_normalizer(self, natural: Natural, log_det: np.ndarray) -> np.ndarray:
        """Return the log-normaliser, given the log-determinant of the scatter."""
        n_features, dof = self._size(natural), natural["dof"]
        halves = 0.5 * (dof[..., None] - np.arange(n_features))
        return self._rows(
            0.5 * dof * (n_features * np.log(2.0) - log_det)
            + gammaln(halves).sum(-1)
            + 0.25 * n_features * (n_features - 1) * np.log(np.pi),
            divided=True,
        )

    def sample(self, natural: Natural, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw every row once, by Bartlett's decomposition.

        The rows are independent, even if they share parameters (tied), unless they have one matrix
        in common.

        References
        ----------
        Bartlett (1933), On the theory of statistical regression.
        """
        return self._draw(natural, rng)[0]

    def _draw(
        self, natural: Natural, rng: np.random.Generator
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Return the draw, the Cholesky factor C of W^{-1}, and Bartlett's A of each matrix."""
        n_features, dof = self._size(natural), natural["dof"]
        if self._structure.shared:
            dof = np.full(self._copies, dof)
        scatter = natural["scatter"]
        scatter_root = np.linalg.cholesky(self._structure.to_full(scatter, n_features))
        halves = 0.5 * (dof[..., None] - np.arange(n_features))
        log_chi_square = np.log(2.0) + log_standard_gamma(halves, rng)
        log_chi_square = np.maximum(log_chi_square, _LOG_TINY)
        root = np.tril(rng.standard_normal(dof.shape + (n_features, n_features)), -1)
        root[..., np.arange(n_features), np.arange(n_features)] = np.exp(0.5 * log_chi_square)
        # The draw is Lambda = C^{-T} A A^T C^{-1}, where W^{-1} = C C^T.
        factor = np.linalg.solve(np.swapaxes(scatter_root, -1, -2), root)
        draw = {
            "precision": symmetrize(factor @ np.swapaxes(factor, -1, -2)),
            "log_det_precision": log_chi_square.sum(-1)
            - self._structure.log_det(scatter, n_features),
        }
        if self._structure.shared:
            each = (self.n_rows or 1) // self._copies
            draw = {key: np.repeat(value, each, axis=0) for key, value in draw.items()}
        return draw, scatter_root, root

    def to_standard(self, natural: Natural) -> dict[str, np.ndarray]:
        """Return ``inverse_scale``, stored like the scatter, and ``dof``."""
        return {"inverse_scale": natural["scatter"], "dof": natural["dof"]}

    def from_standard(self, inverse_scale: np.ndarray, dof: np.ndarray) -> Natural:
        """Return the natural parameters of W^{-1}, stored like the scatter, and `dof`."""
        return {
            "scatter": np.asarray(inverse_scale, dtype=float),
            "dof": np.asarray(dof, dtype=float),
        }

    def _inside(self, natural: Natural) -> np.ndarray:
        dof = natural["dof"]
        enough = (dof > self._size(natural) - 1) & np.isfinite(dof)
        return self._structure.positive(natural["scatter"]) & enough

    def _strength(self, natural: Natural) -> np.ndarray:
        return natural["dof"]

    def _divergence(self, q: Natural, p: Natural) -> np.ndarray:
        n_features = self._size(q)
        scatter = q["scatter"]
        # Eigenvalues of W_q W_p^{-1} - 1.
        r = self._structure.relative(p["scatter"] - scatter, scatter, n_features)
        half_p, half_q = (0.5 * (x["dof"][..., None] - np.arange(n_features)) for x in (p, q))
        added = q["dof"] - p["dof"]
        of_dof = gammaln_divergence(half_p, half_q, -0.5 * added[..., None])
        of_scale = p["dof"] * log1p_excess(r).sum(-1) + added * r.sum(-1)
        return self._rows(0.5 * of_scale + of_dof.sum(-1), divided=True)

    def _sizes(self, natural: Natural, reference: Natural) -> tuple[np.ndarray, ...]:
        above = natural["dof"] - (self._size(natural) - 1)
        return (self._structure.smallest(natural["scatter"], reference["scatter"]), above)
