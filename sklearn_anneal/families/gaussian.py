"""The Gaussian distribution."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from ._base import N_HALVINGS, Family, Natural
from ._divergence import STRONG, log1p_excess
from ._structure import Structure, get_structure

_STRUCTURES = ("full", "packed", "diag", "spherical")
# Number of draws that are made at a time. It is a multiple of four, and small enough that the
# random bits stay in the caches.
_DRAWS = 65_536


def fast_normal(size: int, rng: np.random.Generator, scale: float = 1.0) -> np.ndarray:
    """Draw many normal variables of mean 0, in single precision.

    Box and Muller's transform is applied to whole arrays of the generator's bits, which is faster
    than numpy's loop over draws. Each pair of draws uses 32 bits. So few bits do not resolve the
    tails: no draw lies beyond ±5.4 standard deviations, where one in 10^7 should.

    Parameters
    ----------
    size : int
        Number of draws.
    rng : numpy.random.Generator
        Source of randomness; it is advanced.
    scale : float, default=1.0
        Standard deviation.

    Returns
    -------
    ndarray of float32, shape (size,)
    """
    from ..kernels.normal import normal

    draws = np.empty(-(-size // 4) * 4, dtype=np.float32)
    for start in range(0, len(draws), _DRAWS):
        part = draws[start : start + _DRAWS]
        bits = rng.integers(0, 2**64 - 1, len(part) // 4, dtype=np.uint64, endpoint=True)
        normal(part, bits.view(np.uint32), scale)
    return draws[:size]


@dataclass(frozen=True)
class Gaussian(Family):
    """Gaussian distributions of vectors x of length D, with mean m and precision P.

    The natural parameters are ``precision``, P, and ``natural_mean``, h = P m. The latter has shape
    (..., D); the former has shape (..., D, D), (..., D (D + 1) / 2), (..., D) or (...,), depending
    on `structure`. Their base is 0, and t = (-x x^T / 2, x), with the first one restricted to its
    diagonal (diag) or to its trace (spherical). The standard parameters are ``mean`` (..., D) and
    ``covariance`` (stored like the precision). A draw has the key ``value`` (..., D).

    Parameters
    ----------
    structure : {"full", "packed", "diag", "spherical"}, default="full"
        The restriction of the precision. ``"packed"`` is a full matrix of which only the lower
        triangle is stored.

    Raises
    ------
    ValueError
        If `structure` does not exist.
    numpy.linalg.LinAlgError
        Raised by the methods, except ``valid``, if a precision is not positive definite.
    """

    structure: str = "full"

    keys: ClassVar[tuple[str, ...]] = ("precision", "natural_mean")

    def __post_init__(self) -> None:
        get_structure(self.structure, _STRUCTURES, "structure")

    @cached_property
    def _structure(self) -> Structure:
        return get_structure(self.structure, _STRUCTURES, "structure")

    def base(self, natural: Natural) -> Natural:
        """Return 0 for both arrays."""
        return {"precision": np.zeros(()), "natural_mean": np.zeros(())}

    def expectations(self, natural: Natural) -> Natural:
        """Return (-E[x x^T] / 2, restricted, and E[x]) under the keys of the natural arrays."""
        return self._expectations_given(self.to_standard(natural))

    def log_normalizer(self, natural: Natural) -> np.ndarray:
        """Return (h^T P^{-1} h - log|P| + D log 2 pi) / 2, of shape (...), in nats."""
        standard, log_det = self._standard_and_log_det(natural)
        return self._log_normalizer_given(natural, standard["mean"], log_det)

    def sample(self, natural: Natural, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw every row once."""
        mean = self.to_standard(natural)["mean"]
        noise = rng.standard_normal(mean.shape)
        return {"value": mean + self._structure.solve_root(natural["precision"], noise)}

    def to_standard(self, natural: Natural) -> dict[str, np.ndarray]:
        """Return ``mean`` (..., D) and ``covariance``, stored like the precision."""
        covariance = self._structure.inverse(natural["precision"])
        mean = self._structure.multiply(covariance, natural["natural_mean"])
        return {"mean": mean, "covariance": covariance}

    def from_standard(self, mean: np.ndarray, covariance: np.ndarray) -> Natural:
        """Return the natural parameters of `mean` (..., D) and `covariance`, stored likewise."""
        precision = self._structure.inverse(np.asarray(covariance, dtype=float))
        natural_mean = self._structure.multiply(precision, np.asarray(mean, dtype=float))
        return {"precision": precision, "natural_mean": natural_mean}

    def backoff(
        self, clean: Natural, deviation: Natural, share: float, margin: float = 0.0
    ) -> Natural:
        if self.structure != "packed":
            return super().backoff(clean, deviation, share, margin)
        # There are as many packed rows as users, possibly millions, so that a kernel moves them
        # in place.
        from ..kernels.matrix_factorization import back_off

        back_off(
            *(deviation[key] for key in self.keys),
            share,
            margin,
            clean["natural_mean"].shape[-1],
            N_HALVINGS,
            *(clean[key] for key in self.keys),
        )
        return clean

    def kl(self, q: Natural, p: Natural) -> float:
        """Return KL(q || p) summed over rows, in nats.

        Where q is so precise that its log-normaliser, which has squares of means in units of its
        variance, would lose its digits, the divergence is computed from differences of means.
        """
        # Packed precisions are those of factors, whose means are of the size of their prior.
        if self.structure == "packed" or self.is_strong(p):
            return super().kl(q, p)
        of_q, log_det = self._standard_and_log_det(q)
        if not ((q["natural_mean"] * of_q["mean"]).sum(-1) > STRONG).any():
            expected = self._expectations_given(of_q)
            linear = sum(np.sum((q[key] - p[key]) * expected[key]) for key in self.keys)
            of_normalizers = np.sum(self._log_normalizer_given(q, of_q["mean"], log_det))
            return float(linear - of_normalizers + np.sum(self.log_normalizer(p)))
        of_p = self.to_standard(p)
        shift, d = of_q["mean"] - of_p["mean"], of_q["mean"].shape[-1]
        trace = np.sum(self._structure.multiplicity(d) * p["precision"] * of_q["covariance"])
        log_dets = [np.sum(self._structure.log_det(x["precision"], d)) for x in (q, p)]
        distance = np.sum(shift * self._structure.multiply(p["precision"], shift))
        return float(0.5 * (trace - shift.size + log_dets[0] - log_dets[1] + distance))

    def _standard_and_log_det(self, natural: Natural) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return :meth:`to_standard` and log|P|, from one factorisation of P."""
        precision, natural_mean = natural["precision"], natural["natural_mean"]
        n_features = natural_mean.shape[-1]
        covariance, log_det = self._structure.inverse_and_log_det(precision, n_features)
        mean = self._structure.multiply(covariance, natural_mean)
        return {"mean": mean, "covariance": covariance}, log_det

    def _expectations_given(self, standard: dict[str, np.ndarray]) -> Natural:
        mean = standard["mean"]
        second = standard["covariance"] + self._structure.outer(mean)
        weight = -0.5 * self._structure.multiplicity(mean.shape[-1])
        return {"precision": weight * second, "natural_mean": mean}

    @staticmethod
    def _log_normalizer_given(
        natural: Natural, mean: np.ndarray, log_det: np.ndarray
    ) -> np.ndarray:
        quadratic = (natural["natural_mean"] * mean).sum(-1)
        return 0.5 * (quadratic - log_det + mean.shape[-1] * np.log(2.0 * np.pi))

    def _inside(self, natural: Natural) -> np.ndarray:
        finite = np.isfinite(natural["natural_mean"]).all(-1)
        return self._structure.positive(natural["precision"]) & finite

    def _strength(self, natural: Natural) -> np.ndarray:
        return (natural["natural_mean"] * self.to_standard(natural)["mean"]).sum(-1)

    def _divergence(self, q: Natural, p: Natural) -> np.ndarray:
        precision = q["precision"]
        shift = self.to_standard(q)["mean"] - self.to_standard(p)["mean"]
        difference = p["precision"] - precision
        r = self._structure.relative(difference, precision, shift.shape[-1])
        distance = (shift * self._structure.multiply(p["precision"], shift)).sum(-1)
        return 0.5 * (log1p_excess(r).sum(-1) + distance)

    def _sizes(self, natural: Natural, reference: Natural) -> tuple[np.ndarray, ...]:
        return (self._structure.smallest(natural["precision"], reference["precision"]),)
