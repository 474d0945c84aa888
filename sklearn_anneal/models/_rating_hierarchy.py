"""The priors of users and of items in matrix factorisation, which the ratings determine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple, Self

import numpy as np

from ..families import Natural, NormalWishart
from ..families._structure import lower_triangle
from ..families.wishart import Precisions

SIDES = ("users", "items")
# The prior of the mean of a side counts as this many rows at zero.
_ROWS_OF_MEAN = 2.0
# The Wishart prior has this many degrees of freedom more than a row has parameters. It is the
# smallest whole number with which the expected covariance matrix is finite. The bound would have
# more of them on jokes, where predictions are worse with more.
_MORE_DOF = 2.0


class Rows(NamedTuple):
    """Sums over rows x of one side, of D parameters, with weights w and precisions τ.

    They are Σ w, Σ w E[τ], Σ w E[τ x] and Σ w E[τ x xᵀ]. τ is 1 for items, and for users without
    scales.
    """

    number: float
    weight: float
    first: np.ndarray
    second: np.ndarray


class GaussianPrior(NamedTuple):
    """The moments of the prior N(x | μ, Λ⁻¹) of a row that updates and bounds read.

    Attributes
    ----------
    precision : ndarray of shape (D, D)
        E[Λ].
    natural_mean : ndarray of shape (D,)
        E[Λ μ].
    log_det : float
        E log|Λ|.
    quadratic : float
        E[μᵀ Λ μ].
    """

    precision: np.ndarray
    natural_mean: np.ndarray
    log_det: float
    quadratic: float


@cache
def columns_of_moments(n_components: int, biases: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns of a table of moments that have E[x], (D,), and E[x xᵀ], (D, D)."""
    # The table has the lower triangle of E[g gᵀ], where g = (v, 1, c) and x = (v, c).
    d = n_components
    place = np.array([*range(d), *([d + 1] if biases else [])])

    def column(a: np.ndarray, b: np.ndarray | int) -> np.ndarray:
        high, low = np.maximum(a, b), np.minimum(a, b)
        found: np.ndarray = high * (high + 1) // 2 + low
        return found

    return column(place, d), column(place[:, None], place)


@cache
def _family(n_parameters: int) -> NormalWishart:
    return NormalWishart("full", len(SIDES), n_parameters)


@dataclass(frozen=True)
class Hierarchy:
    """Normal-Wishart distributions of the mean μ and the precision Λ of users' and items' rows.

    A row of a side is x ~ N(μ, Λ⁻¹), with one μ and one Λ for all users and one for all items. The
    prior is μ | Λ ~ N(0, (β₀ Λ)⁻¹) and Λ ~ W(C⁻¹ / ν₀, ν₀), so that E[Λ] = C⁻¹, where C is the
    diagonal matrix of the model's variances.

    Parameters
    ----------
    variances : ndarray of shape (D,)
        The diagonal of C.
    added : dict of ndarray
        Statistics of users and of items, which are added to the natural parameters of the prior.

    References
    ----------
    Salakhutdinov and Mnih (2008), Bayesian probabilistic matrix factorization using Markov chain
    Monte Carlo, Eqs. 5 to 7 and 14.
    """

    variances: np.ndarray
    added: Natural

    @classmethod
    def of(cls, variances: np.ndarray) -> Self:
        """Return the prior, before any row is known."""
        n, d = len(SIDES), len(variances)
        shapes = {"mean_precision": (n,), "mean_natural": (n, d), "scatter": (n, d, d), "dof": (n,)}
        return cls(variances, {key: np.zeros(shape) for key, shape in shapes.items()})

    @property
    def family(self) -> NormalWishart:
        return _family(len(self.variances))

    @cached_property
    def prior(self) -> Natural:
        n, d = len(SIDES), len(self.variances)
        return {
            "mean_precision": np.full(n, _ROWS_OF_MEAN),
            "mean_natural": np.zeros((n, d)),
            "scatter": np.stack([(_MORE_DOF + d) * np.diag(self.variances)] * n),
            "dof": np.full(n, _MORE_DOF + d),
        }

    @cached_property
    def natural(self) -> Natural:
        """The natural parameters of q(μ, Λ) of both sides."""
        return {key: value + self.added[key] for key, value in self.prior.items()}

    @cached_property
    def _moments(self) -> tuple[Precisions, np.ndarray]:
        """E[Λ], (2, D, D), and E log|Λ|, (2,), of both sides."""
        return self.family.factored_moments(self.natural)

    @cached_property
    def _priors(self) -> dict[str, GaussianPrior]:
        (precisions, log_det), natural, d = self._moments, self.natural, len(self.variances)
        precision = precisions.matrices
        # E[Λ μ] = E[Λ] m and E[μᵀ Λ μ] = D / β + mᵀ E[Λ] m, where h = β m.
        mean = natural["mean_natural"] / natural["mean_precision"][:, None]
        weighted = np.einsum("sij,sj->si", precision, mean)
        quadratic = d / natural["mean_precision"] + np.einsum("si,si->s", mean, weighted)
        rows = zip(SIDES, precision, weighted, log_det, quadratic, strict=True)
        return {side: GaussianPrior(*expected) for side, *expected in rows}

    def of_side(self, side: str) -> GaussianPrior:
        """Return the expectations of the prior of one side's rows."""
        return self._priors[side]

    def expected(self, side: str) -> tuple[np.ndarray, np.ndarray]:
        """Return E[μ], (D,), and E[Λ], (D, D), of one side."""
        i, natural = SIDES.index(side), self.natural
        mean = natural["mean_natural"][i] / natural["mean_precision"][i]
        return mean, self._moments[0].matrices[i]

    @cached_property
    def kl(self) -> float:
        """KL(q(μ, Λ) ‖ p(μ, Λ)) of both sides, in nats."""
        of_prior = self.family.log_normalizer(self.prior)
        traces = self._moments[0].traces(self.family.to_standard(self.prior)["inverse_scale"])
        return self.family.kl_given(self.natural, self.prior, *self._moments, of_prior, traces)

    def updated(self, users: Rows, items: Rows, rho: float) -> Self:
        """Move q(μ, Λ) towards its optimum given the rows, by the share ``rho``."""
        both = users, items
        target = {
            "mean_precision": np.array([rows.weight for rows in both]),
            "mean_natural": np.array([rows.first for rows in both]),
            "scatter": np.array([rows.second for rows in both]),
            "dof": np.array([rows.number for rows in both]),
        }
        if rho == 1.0:
            return replace(self, added=target)
        added = {key: old + rho * (target[key] - old) for key, old in self.added.items()}
        return replace(self, added=added)

    def best_variance(self, parameters: slice) -> float:
        """Return the variance, common to some parameters, that maximises the bound given q."""
        # E log W(Λ | C⁻¹/ν₀, ν₀) = ½ ν₀ (log|C| − tr C E[Λ]) + …, of two sides.
        precisions = np.diagonal(self._moments[0].matrices, axis1=1, axis2=2)
        return float(1.0 / np.mean(precisions[:, parameters]))

    def turned(self, rotation: np.ndarray) -> Self:
        """Return the distributions of rows whose factors are turned by a matrix, (D, D).

        All factors have the same variance.
        """
        moved = {
            "mean_natural": self.added["mean_natural"] @ rotation.T,
            "scatter": rotation @ self.added["scatter"] @ rotation.T,
        }
        return replace(self, added={**self.added, **moved})


def packed(prior: GaussianPrior) -> Natural:
    """Return the natural parameters of a row that has no ratings."""
    lower = prior.precision[lower_triangle(len(prior.natural_mean))]
    return {"precision": lower, "natural_mean": prior.natural_mean}


def coefficients(n_components: int, biases: bool, table: np.ndarray) -> np.ndarray:
    """Return coefficients whose inner product with an item's table is E[f²], given users' table.

    f = u·v + b + c is linear in g = (v, 1, c), with coefficients (u, b, 1), so that f² is
    linear in the second moments of g, which the table holds.
    """
    d = n_components
    # The positions of (u, b, 1) in (u, 1, b). Without biases, only those of u matter.
    place = np.array([*range(d), d + 1, d] if biases else [*range(d), d])
    rows, columns = lower_triangle(len(place))
    high = np.maximum(place[rows], place[columns])
    low = np.minimum(place[rows], place[columns])
    factor = np.where(rows == columns, 1.0, 2.0)
    if not biases:
        factor[rows == d] = 0.0
    result = np.zeros(table.shape)
    result[:, : len(rows)] = table[:, high * (high + 1) // 2 + low] * factor
    return result
