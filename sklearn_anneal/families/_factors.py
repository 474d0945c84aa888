"""A variational distribution as a product of families over named arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from ._base import Family, Natural, extended_sums


class Factor(NamedTuple):
    """One factor of q(β): a family and the arrays of the model that hold its parameters.

    Attributes
    ----------
    family : Family
    names : dict
        The family's key → the model's key.
    """

    family: Family
    names: Mapping[str, str]

    def pick(self, natural: Natural) -> Natural:
        """Return the arrays of this factor, with the family's keys instead of the model's."""
        return {key: natural[name] for key, name in self.names.items()}

    def rename(self, natural: Natural) -> Natural:
        """Return the arrays of this factor, with the model's keys instead of the family's."""
        return {self.names[key]: value for key, value in natural.items()}


class Factors(tuple[Factor, ...]):
    """The factors of q(β), with the functions of q(β) that need nothing else of the model.

    The order of the factors is that in which the bound adds their terms.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal.families import Dirichlet, Factor, Factors
    >>> factors = Factors([Factor(Dirichlet(), {"concentration": "weights"})])
    >>> q, prior = {"weights": np.array([2.0, 3.0])}, {"weights": np.ones(2)}
    >>> factors.keys
    ('weights',)
    >>> round(factors.kl(q, prior), 3)
    0.235
    """

    __slots__ = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The model's keys of all natural parameters."""
        return tuple(name for factor in self for name in factor.names.values())

    def base(self, q: Natural) -> Natural:
        """Return the natural parameters of the flat density, broadcastable to those of q."""
        result: Natural = {}
        for factor in self:
            result.update(factor.rename(factor.family.base(factor.pick(q))))
        return result

    def kl(self, q: Natural, prior: Natural) -> float:
        """Return KL(q(β) ‖ p(β)) in nats, with every constant."""
        return sum(f.family.kl(f.pick(q), f.pick(prior)) for f in self)

    def entropy(self, q: Natural) -> float:
        """Return the entropy H[q(β)] in nats."""
        return sum(f.family.entropy(f.pick(q)) for f in self)

    def valid(self, q: Natural) -> bool:
        """Return whether all natural parameters lie in their domains."""
        return all(bool(np.all(f.family.valid(f.pick(q)))) for f in self)

    def of_mean(self, mean: Natural, prior_of_mean: Natural, prior: Natural) -> Natural:
        """Return the parameters that a fit returns for a mean (:meth:`Family.of_mean`)."""
        result: Natural = {}
        for f in self:
            picked = (f.pick(natural) for natural in (mean, prior_of_mean, prior))
            result.update(f.rename(f.family.of_mean(*picked)))
        return result

    def backoff(
        self, clean: Natural, deviation: Natural, share: float, margin: float = 0.0
    ) -> Natural:
        """Move parameters by ``share`` of a deviation, or by less where rows would be invalid.

        The arrays of ``clean`` may be used for the result. :meth:`Family.backoff` has details.
        """
        result: Natural = {}
        for f in self._within(clean):
            moved = f.family.backoff(f.pick(clean), f.pick(deviation), share, margin)
            result.update(f.rename(moved))
        return result

    def replace_invalid(self, candidate: Natural, fallback: Natural) -> Natural:
        """Return ``candidate`` with its invalid rows replaced by those of ``fallback``."""
        result: Natural = {}
        for f in self._within(candidate):
            new, old = f.pick(candidate), f.pick(fallback)
            ok = np.asarray(f.family.valid(new))
            for key, name in f.names.items():
                mask = ok.reshape(ok.shape + (1,) * (new[key].ndim - ok.ndim))
                result[name] = np.where(mask, new[key], old[key])
        return result

    def extended(self, q: Natural, last: Natural, prior: Natural, share: float) -> Natural:
        """Return parameters that go beyond their change, in so far as their domains allow.

        Parameters
        ----------
        q, last, prior : dict of ndarray
            Natural parameters now, before the change, and of the prior.
        share : float
            How far the result goes on, as a share of the change from ``last`` to ``q``.
        """
        result: Natural = {}
        for f in self:
            if f.family.are_sums:
                for name in f.names.values():
                    result[name] = extended_sums(q[name], last[name], prior[name], share)
                continue
            change = {key: share * (q[name] - last[name]) for key, name in f.names.items()}
            result |= f.rename(f.family.extended(f.pick(q), change, f.pick(prior)))
        return result

    def _within(self, natural: Natural) -> Iterator[Factor]:
        """Yield the factors whose arrays are all in ``natural``, which may be incomplete."""
        return (f for f in self if all(name in natural for name in f.names.values()))
