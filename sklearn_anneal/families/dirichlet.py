"""The Dirichlet distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.special import gammaln, logsumexp, psi

from ._base import ONE, Family, Natural
from ._divergence import gammaln_divergence, gammaln_divergence_from_far, is_far
from ._implicit import controlled_statistics, inverse_trigamma, log_gamma_derivative
from .gamma import log_standard_gamma


def dirichlet_divergence(q: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Return KL(q || p) of Dirichlet distributions of concentrations (..., K), of shape (...)."""
    return _divergence(p, q, p.sum(-1), q.sum(-1))


def _divergence(
    p: np.ndarray,
    q: np.ndarray,
    total_p: np.ndarray,
    total_q: np.ndarray,
    support: np.ndarray | bool = True,
    copies: np.ndarray | float = 1.0,
) -> np.ndarray:
    """Return KL(q || p), given the sums of concentrations in the support; p and q are 1 outside.

    An entry counts as so many equal ones as it has ``copies``.
    """
    difference = p - q
    entries = (copies * gammaln_divergence(p, q, difference)).sum(-1)
    near = entries - gammaln_divergence(total_p, total_q, (copies * difference).sum(-1))
    far = is_far(total_p, total_q)
    if not far.any():
        return near
    apart = np.where(support, copies * gammaln_divergence_from_far(p, q), 0.0).sum(-1)
    return np.where(far, apart - gammaln_divergence_from_far(total_p, total_q), near)


class Dirichlet(Family):
    """Dirichlet distributions of rows of K probabilities.

    The natural parameter is ``concentration``, of shape (..., K). Its base is 1, and t has the
    logarithms of the probabilities. The standard parameters are the natural ones,
    ``concentration``. A draw has the keys ``log_probabilities``, ``probabilities`` and
    ``log_gamma``, each of shape (..., K). A draw is made by dividing independent gamma variables by
    their sum; ``log_gamma`` has the logarithms of these variables.

    References
    ----------
    Bishop (2006), Pattern Recognition and Machine Learning, Eqs. B.16 to B.22.
    """

    keys: ClassVar[tuple[str, ...]] = ("concentration",)
    _sums = keys
    _exact_if_far = True

    def base(self, natural: Natural) -> Natural:
        """Return 1, the flat density on the simplex."""
        return {"concentration": ONE}

    def expectations(self, natural: Natural) -> Natural:
        """Return E[log probabilities], of shape (..., K)."""
        concentration = natural["concentration"]
        return {"concentration": psi(concentration) - psi(concentration.sum(-1, keepdims=True))}

    def log_normalizer(self, natural: Natural) -> np.ndarray:
        """Return the log of the multivariate beta function, of shape (...), in nats."""
        concentration = natural["concentration"]
        return gammaln(concentration).sum(-1) - gammaln(concentration.sum(-1))

    def sample(self, natural: Natural, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw every row once, in log space so that concentrations of 1e-3 do not underflow."""
        log_gamma = self._log_gamma(natural, rng)
        log_probabilities = log_gamma - logsumexp(log_gamma, axis=-1, keepdims=True)
        return {
            "log_probabilities": log_probabilities,
            "probabilities": np.exp(log_probabilities),
            "log_gamma": log_gamma,
        }

    def _log_gamma(self, natural: Natural, rng: np.random.Generator) -> np.ndarray:
        """Draw the logarithms of the gamma variables, of shape (..., K)."""
        return log_standard_gamma(natural["concentration"], rng)

    def implicit_statistics(
        self, draw: dict[str, np.ndarray], natural: Natural, stats: Natural
    ) -> Natural:
        """Multiply statistics by the matrix V of structured stochastic VI, in O(K) per row.

        V is the inverse Hessian of A times the transposed Jacobian of the draw's log
        probabilities with respect to the concentrations, where the quantiles of the gamma
        variables are fixed. Its expectation over draws is the identity.

        Parameters
        ----------
        draw : dict of ndarray
            From :meth:`sample` at `natural`.
        natural : dict of ndarray
            Natural parameters.
        stats : dict of ndarray
            Sufficient statistics that local steps with the draw have found.

        Returns
        -------
        dict of ndarray
            V times the statistics, of any sign. If rows have only one entry, whose probability is
            always 1, the statistics are returned as they are.

        References
        ----------
        Hoffman and Blei (2015), Structured stochastic variational inference, Eqs. 8 and 28.
        """
        concentration, statistics = natural["concentration"], stats["concentration"]
        if concentration.shape[-1] == 1:
            return dict(stats)
        total = concentration.sum(-1, keepdims=True)
        derivative = log_gamma_derivative(draw["log_gamma"], concentration)
        centred = statistics - draw["probabilities"] * statistics.sum(-1, keepdims=True)
        # The Hessian is diag(1 / r) - 1 1^T / r(total) with r = 1 / psi'. Its inverse, by the
        # matrix inversion lemma, contains r(total) - sum r(a), a small difference of large
        # numbers. With the deficits e(a) = a - r(a) it equals sum e(a) - e(total), which is
        # positive and loses no digits.
        inverse, deficit = self._inverse_metric(concentration)
        gap = deficit.sum(-1, keepdims=True) - inverse_trigamma(total)[1]
        # The numerator is sum r * derivative * centred. For large concentrations, r * derivative
        # is near 1, and the sum would lose digits. As centred sums to 0, subtracting 1 from the
        # factors leaves the sum as it is and avoids this.
        common = ((inverse * derivative - 1.0) * centred).sum(-1, keepdims=True) / gap
        return {"concentration": inverse * (derivative * centred + common)}

    def _inverse_metric(self, concentration: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return r = 1 / psi' of each entry, and the deficit e = a - r."""
        return inverse_trigamma(concentration)

    def exact_gradient_statistics(
        self, draw: dict[str, np.ndarray], natural: Natural, prior: Natural, stats: Natural
    ) -> Natural:
        """Return statistics for the exact gradient of structured stochastic VI, kept in bounds.

        Parameters
        ----------
        draw : dict of ndarray
            From :meth:`sample` at `natural`.
        natural, prior : dict of ndarray
            Natural parameters of q and of the prior.
        stats : dict of ndarray
            Sufficient statistics S that local steps with the draw have found, not negative.

        Returns
        -------
        dict of ndarray
            The estimate of V S for the update ``prior + V S``, from :func:`controlled_statistics`.
            Its control variate C has the statistics that q contains now, (natural - prior)_+.

        References
        ----------
        Hoffman and Blei (2015), Structured stochastic variational inference, Eqs. 7 and 8; the
        control variate and the bounds are additions.
        """
        current = np.maximum(natural["concentration"] - prior["concentration"], 0.0)

        def multiply(statistics: np.ndarray) -> np.ndarray:
            return self.implicit_statistics(draw, natural, {"concentration": statistics})[
                "concentration"
            ]

        controlled = controlled_statistics(multiply, stats["concentration"], current)
        return {"concentration": controlled}

    def to_standard(self, natural: Natural) -> dict[str, np.ndarray]:
        """Return ``concentration`` of shape (..., K)."""
        return {"concentration": natural["concentration"]}

    def from_standard(self, concentration: np.ndarray) -> Natural:
        """Return the natural parameters of `concentration`, of shape (..., K)."""
        return {"concentration": np.asarray(concentration, dtype=float)}

    def _inside(self, natural: Natural) -> np.ndarray:
        concentration = natural["concentration"]
        return np.asarray(((concentration > 0.0) & np.isfinite(concentration)).all(-1))

    def _strength(self, natural: Natural) -> np.ndarray:
        return np.asarray(natural["concentration"].sum(-1))

    def _divergence(self, q: Natural, p: Natural) -> np.ndarray:
        return dirichlet_divergence(q["concentration"], p["concentration"])

    def _sizes(self, natural: Natural, reference: Natural) -> tuple[np.ndarray, ...]:
        return (natural["concentration"].min(-1),)


class DirichletColumns(Dirichlet):
    """Dirichlet distributions of several columns of probabilities, side by side in each row.

    Columns can have different numbers of probabilities, which here are called levels. The natural
    parameter ``concentration`` has the shape (..., n_levels), with the levels of all columns; the
    other functions are those of each column.

    Parameters
    ----------
    n_levels : sequence of int
        The number of levels of each column.
    """

    def __init__(self, n_levels: Sequence[int]):
        self.n_levels = tuple(n_levels)

    @cached_property
    def first_level(self) -> np.ndarray:
        """The place of the first level of each column among those of all, (n_columns + 1,)."""
        return np.concatenate([[0], np.cumsum(self.n_levels, dtype=np.int64)])

    @cached_property
    def _alike(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The columns of each number of levels, and the places of their levels."""
        found: dict[int, list[int]] = {}
        for column, n in enumerate(self.n_levels):
            found.setdefault(n, []).append(column)
        columns = [np.array(each) for each in found.values()]
        first = self.first_level
        return [(own, first[own][:, None] + np.arange(self.n_levels[own[0]])) for own in columns]

    def parts(self, values: np.ndarray) -> list[np.ndarray]:
        """Return values of all levels as arrays (..., n_columns, n), one for each number n."""
        return [values[..., places] for _, places in self._alike]

    def joined(self, parts: list[np.ndarray]) -> np.ndarray:
        """Return values of all levels, (..., n_levels), of which :meth:`parts` are given."""
        found = np.empty((*parts[0].shape[:-2], sum(self.n_levels)))
        for (_, places), part in zip(self._alike, parts, strict=True):
            found[..., places] = part
        return found

    def totals(self, values: np.ndarray) -> np.ndarray:
        """Return the sums of values over the levels of each column, (..., n_columns)."""
        return np.add.reduceat(values, self.first_level[:-1], axis=-1)

    def of_levels(self, values: np.ndarray) -> np.ndarray:
        """Return values of columns, (..., n_columns), for each of their levels."""
        return np.repeat(values, self.n_levels, axis=-1)

    def expectations(self, natural: Natural) -> Natural:
        """Return E[log probabilities], of shape (..., n_levels)."""
        concentration = natural["concentration"]
        of_totals = psi(self.totals(concentration))
        return {"concentration": psi(concentration) - self.of_levels(of_totals)}

    def log_normalizer(self, natural: Natural) -> np.ndarray:
        """Return the log of the multivariate beta function of each column, (..., n_columns)."""
        concentration = natural["concentration"]
        return self.totals(gammaln(concentration)) - gammaln(self.totals(concentration))

    def sample(self, natural: Natural, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw every column of every row once."""
        parts = self.parts(natural["concentration"])
        drawn = [Dirichlet().sample({"concentration": part}, rng) for part in parts]
        return {key: self.joined([each[key] for each in drawn]) for key in drawn[0]}

    def implicit_statistics(
        self, draw: dict[str, np.ndarray], natural: Natural, stats: Natural
    ) -> Natural:
        """Multiply the statistics of each column by its own matrix V."""
        return self._of_parts(Dirichlet().implicit_statistics, draw, natural, stats)

    def exact_gradient_statistics(
        self, draw: dict[str, np.ndarray], natural: Natural, prior: Natural, stats: Natural
    ) -> Natural:
        """Return the statistics of each column for the exact gradient of structured stochastic VI.

        :meth:`Dirichlet.exact_gradient_statistics` explains the arguments and the result.
        """
        return self._of_parts(Dirichlet().exact_gradient_statistics, draw, natural, prior, stats)

    def _of_parts(self, function: Callable[..., Natural], *arguments: Natural) -> Natural:
        """Return the results of a function for columns with equal numbers of levels."""
        split = [{key: self.parts(x) for key, x in each.items()} for each in arguments]
        found = [
            function(*({key: x[i] for key, x in each.items()} for each in split))
            for i in range(len(self._alike))
        ]
        return {"concentration": self.joined([each["concentration"] for each in found])}

    def _inside(self, natural: Natural) -> np.ndarray:
        concentration = natural["concentration"]
        inside = (concentration > 0.0) & np.isfinite(concentration)
        return self.of_levels(np.logical_and.reduceat(inside, self.first_level[:-1], axis=-1))

    def _strength(self, natural: Natural) -> np.ndarray:
        return self.totals(natural["concentration"])

    def _divergence(self, q: Natural, p: Natural) -> np.ndarray:
        pairs = zip(*(self.parts(x["concentration"]) for x in (q, p)), strict=True)
        return np.concatenate([dirichlet_divergence(*pair) for pair in pairs], axis=-1)

    def _sizes(self, natural: Natural, reference: Natural) -> tuple[np.ndarray, ...]:
        sizes = np.minimum.reduceat(natural["concentration"], self.first_level[:-1], axis=-1)
        return (self.of_levels(sizes),)


class PooledDirichlet(Dirichlet):
    """Dirichlet distributions of which only some probabilities are distinguished.

    The last entry of a row pools all other probabilities: its probability is their sum, and its
    concentration the sum of theirs. Such a row is a Dirichlet distribution, too (the aggregation
    property), so that draws of the probabilities that matter need no draws of the others. The
    natural gradient of structured stochastic VI remains that of the whole distribution: the last
    entry of V S is the sum of those of the pooled probabilities.

    Parameters
    ----------
    inverse, deficit : ndarray of shape (...)
        Σ 1 / ψ'(a) and Σ (a − 1 / ψ'(a)) over the concentrations a of the pooled probabilities.
    """

    def __init__(self, inverse: np.ndarray, deficit: np.ndarray):
        self.inverse = inverse
        self.deficit = deficit

    def _inverse_metric(self, concentration: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inverse, deficit = super()._inverse_metric(concentration)
        inverse[..., -1], deficit[..., -1] = self.inverse, self.deficit
        return inverse, deficit


class RepeatedDirichlet(Dirichlet):
    """Dirichlet distributions in which several probabilities have equal concentrations.

    The last entry of a row stands for n of them and is the sum of their concentrations, so that a
    row takes the memory of those that differ. All functions are those of the whole distribution,
    if its n entries are equal; in E[log probabilities] the last entry is that of each.

    Parameters
    ----------
    n_last : int, default=1
        n.
    """

    def __init__(self, n_last: int = 1):
        self.n_last = n_last

    def base(self, natural: Natural) -> Natural:
        """Return 1 for every entry, and so n for the last one."""
        if self.n_last == 1:
            return super().base(natural)
        return {"concentration": self._copies(natural)}

    def expectations(self, natural: Natural) -> Natural:
        each, total = self._each(natural), natural["concentration"].sum(-1, keepdims=True)
        return {"concentration": psi(each) - psi(total)}

    def log_normalizer(self, natural: Natural) -> np.ndarray:
        entries = (self._copies(natural) * gammaln(self._each(natural))).sum(-1)
        return entries - gammaln(natural["concentration"].sum(-1))

    def _copies(self, natural: Natural) -> np.ndarray:
        """Return how many entries of the whole distribution each entry is."""
        copies = np.ones(natural["concentration"].shape[-1])
        copies[-1] = self.n_last
        return copies

    def _each(self, natural: Natural) -> np.ndarray:
        """Return the concentrations of single entries."""
        return natural["concentration"] / self._copies(natural)

    def _divergence(self, q: Natural, p: Natural) -> np.ndarray:
        totals = p["concentration"].sum(-1), q["concentration"].sum(-1)
        return _divergence(self._each(p), self._each(q), *totals, copies=self._copies(q))

    def _sizes(self, natural: Natural, reference: Natural) -> tuple[np.ndarray, ...]:
        return (self._each(natural).min(-1),)


class PartialDirichlet(Dirichlet):
    """Dirichlet distributions of rows in which some probabilities are 0 for certain.

    A row is a Dirichlet distribution of the probabilities in its support. All others have no
    density and no term in any function; their concentration is 0 in every natural parameter, and
    so it is in the base. Their entry of the expectations is 0, the derivative of the
    log-normaliser, on which they have no effect. A draw has the log probability −∞ for them.

    Parameters
    ----------
    support : ndarray of bool, shape (..., K)
        Which probabilities can be positive; at least one in every row.
    """

    def __init__(self, support: np.ndarray):
        self.support = support

    def base(self, natural: Natural) -> Natural:
        """Return 1 in the support, the flat density on its simplex, and 0 elsewhere."""
        return {"concentration": self.support.astype(float)}

    def expectations(self, natural: Natural) -> Natural:
        """Return E[log probabilities] in the support and 0 elsewhere, of shape (..., K)."""
        inside, total = self._filled(natural), natural["concentration"].sum(-1, keepdims=True)
        return {"concentration": np.where(self.support, psi(inside) - psi(total), 0.0)}

    def log_normalizer(self, natural: Natural) -> np.ndarray:
        inside, total = self._filled(natural), natural["concentration"].sum(-1)
        return gammaln(inside).sum(-1) - gammaln(total)

    def _log_gamma(self, natural: Natural, rng: np.random.Generator) -> np.ndarray:
        drawn = log_standard_gamma(self._filled(natural), rng)
        return np.where(self.support, drawn, -np.inf)

    def implicit_statistics(
        self, draw: dict[str, np.ndarray], natural: Natural, stats: Natural
    ) -> Natural:
        """Multiply the statistics of each support by its own matrix V."""
        found = np.zeros(natural["concentration"].shape)
        for row in np.ndindex(found.shape[:-1]):
            at = (*row, np.flatnonzero(self.support[row]))
            own = {key: value[at] for key, value in draw.items()}
            arguments = (
                {"concentration": values["concentration"][at]} for values in (natural, stats)
            )
            found[at] = super().implicit_statistics(own, *arguments)["concentration"]
        return {"concentration": found}

    def _filled(self, natural: Natural) -> np.ndarray:
        """Concentrations with 1 outside of the support, where log Γ is 0."""
        return np.where(self.support, natural["concentration"], 1.0)

    def _inside(self, natural: Natural) -> np.ndarray:
        concentration = natural["concentration"]
        inside = (concentration > 0.0) & np.isfinite(concentration)
        return np.asarray(np.where(self.support, inside, concentration == 0.0).all(-1))

    def _divergence(self, q: Natural, p: Natural) -> np.ndarray:
        inside_p, inside_q = self._filled(p), self._filled(q)
        total_p, total_q = p["concentration"].sum(-1), q["concentration"].sum(-1)
        return _divergence(inside_p, inside_q, total_p, total_q, self.support)

    def _sizes(self, natural: Natural, reference: Natural) -> tuple[np.ndarray, ...]:
        return (np.where(self.support, natural["concentration"], np.inf).min(-1),)
