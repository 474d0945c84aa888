"""A variational distribution as a product of families over named arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from ._base import Family, Natural


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
        """The family's view of a model's natural parameters."""
        return {key: natural[name] for key, name in self.names.items()}

    def rename(self, natural: Natural) -> Natural:
        """The model's view of a family's natural parameters."""
        return {self.names[key]: value for key, value in natural.items()}


class Factors(tuple[Factor, ...]):
    """The factors of q(β) in their order in the bound, and what follows from them alone.

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
        """Values of the natural parameters at the flat density, broadcastable to q."""
        result: Natural = {}
        for factor in self:
            result.update(factor.rename(factor.family.base(factor.pick(q))))
        return result

    def kl(self, q: Natural, prior: Natural) -> float:
        """KL(q(β) ‖ p(β)) in nats, complete."""
        return sum(f.family.kl(f.pick(q), f.pick(prior)) for f in self)

    def entropy(self, q: Natural) -> float:
        """H[q(β)] in nats."""
        return sum(f.family.entropy(f.pick(q)) for f in self)

    def valid(self, q: Natural) -> bool:
        """Whether all natural parameters lie in their domains."""
        return all(bool(np.all(f.family.valid(f.pick(q)))) for f in self)

    def backoff(
        self, clean: Natural, deviation: Natural, share: float, margin: float = 0.0
    ) -> Natural:
        """Per leading row, as much of ``share`` of a deviation as leaves it valid.

        The arrays of ``clean`` may be used for the result (:meth:`Family.backoff`).
        """
        result: Natural = {}
        for f in self._within(clean):
            moved = f.family.backoff(f.pick(clean), f.pick(deviation), share, margin)
            result.update(f.rename(moved))
        return result

    def replace_invalid(self, candidate: Natural, fallback: Natural) -> Natural:
        """``candidate`` where its rows are valid, ``fallback`` where they are not."""
        result: Natural = {}
        for f in self._within(candidate):
            new, old = f.pick(candidate), f.pick(fallback)
            ok = np.asarray(f.family.valid(new))
            for key, name in f.names.items():
                mask = ok.reshape(ok.shape + (1,) * (new[key].ndim - ok.ndim))
                result[name] = np.where(mask, new[key], old[key])
        return result

    def _within(self, natural: Natural) -> Iterator[Factor]:
        """The factors whose arrays are all in a (partial) set of natural parameters."""
        return (f for f in self if all(name in natural for name in f.names.values()))
