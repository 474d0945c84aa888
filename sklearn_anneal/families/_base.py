"""What every exponential family offers, and the three operations on natural parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ._divergence import STRONG

Natural = dict[str, np.ndarray]

# Halvings of a deviation before `backoff` gives up.
N_HALVINGS = 12
# Entries of arrays that are worked on at a time.
_ENTRIES = 32_768


class Tempering(NamedTuple):
    """The three factors by which an annealing method bends a conjugate update.

    With inverse temperature ``x = 1 / T``, the forms in use are, as ``(local, statistics,
    prior)``: likelihood ``(x, x, 1)``, posterior ``(x, x, x)``, local ``(x, 1, 1)``, and
    variational tempering as the likelihood form with the expected ``x`` (one per unit in its
    local version). All ones is no annealing.

    Parameters
    ----------
    local : float or ndarray of shape (n_units,), default=1.0
        Factor of the expected log joint in the local step, q(z) proportional to
        exp{local * E[log p(x, z | beta)]}.
    statistics : float or ndarray of shape (n_units,), default=1.0
        Factor of the expected sufficient statistics, in conjugate local updates as in the global
        ones. The local step applies it.
    prior : float, default=1.0
        Factor of the prior's distance from the flat density, ``prior - base``.
    """

    local: float | np.ndarray = 1.0
    statistics: float | np.ndarray = 1.0
    prior: float = 1.0


class UnitTemperatures(NamedTuple):
    """What a local step needs that infers a temperature for every data point.

    Attributes
    ----------
    inverse_temperatures : ndarray of shape (n_temperatures,)
        The grid of x = 1/T.
    log_partition : object
        log c(x) of one data point, as the model's ``unit_log_partition`` returns it.
    n_rounds : int
        Rounds of q(z) given the temperatures, and of the temperatures given q(z).
    """

    inverse_temperatures: np.ndarray
    log_partition: Any
    n_rounds: int


def posterior(prior: Natural, stats: Natural, base: Natural, t: Tempering) -> Natural:
    """Return the natural parameters of a (tempered) conjugate posterior.

    Parameters
    ----------
    prior : dict of ndarray
        Natural parameters of the prior; its keys are the keys of the result.
    stats : dict of ndarray
        Expected sufficient statistics, of the shapes of `prior`, already multiplied by
        ``t.statistics`` in the local step.
    base : dict of ndarray
        Base point of the family, broadcastable to `prior` (:meth:`Family.base`).
    t : Tempering
        Only ``t.prior`` is used.

    Returns
    -------
    dict of ndarray
        ``base + t.prior * (prior - base) + stats``; exactly ``prior + stats`` at ``t.prior`` 1.

    References
    ----------
    Katahira, Watanabe and Okada (2008), Deterministic annealing variant of variational Bayes
    method (the posterior form, here with the base measure kept out of the power).
    """
    if t.prior == 1.0:
        return {key: np.asarray(prior[key] + stats[key]) for key in prior}
    return {
        key: np.asarray(base[key] + t.prior * (prior[key] - base[key]) + stats[key])
        for key in prior
    }


def mix(a: Natural, b: Natural, rho: float, overwrite: bool = False) -> Natural:
    """Return ``(1 - rho) * a + rho * b``, key by key; the arrays of `b` themselves at `rho` 1.

    With `overwrite`, the arrays of `b` become the result, which needs no others of their size.
    """
    if rho == 1.0:
        return {key: b[key] for key in a}
    if not overwrite:
        return {key: np.asarray((1.0 - rho) * a[key] + rho * b[key]) for key in a}
    for key, start in a.items():
        end = b[key]
        if not end.flags.c_contiguous:
            # Parts follow the order in memory, such as that of topics in columns.
            start, end = start.T, end.T
        for part, goal in zip(_parts(start), _parts(end), strict=True):
            goal *= rho
            goal += (1.0 - rho) * part
    return {key: b[key] for key in a}


def _parts(x: np.ndarray) -> list[np.ndarray]:
    """Views of some rows of an array of any shape, which fit the caches where a row does."""
    if x.size <= _ENTRIES:
        return [x]
    step = max(1, _ENTRIES * len(x) // x.size)
    return [x[i : i + step] for i in range(0, len(x), step)]


def backoff(
    clean: Natural,
    deviation: Natural,
    valid: Callable[[Natural], np.ndarray],
    share: float = 1.0,
) -> Natural:
    """Move natural parameters by as much of a deviation as their domain allows, row by row.

    Parameters
    ----------
    clean : dict of ndarray
        Natural parameters inside the domain.
    deviation : dict of ndarray
        Of the same shapes; it may lead outside.
    valid : callable
        Maps natural parameters to a boolean array of the shape of their leading rows, or of
        shape () when all arrays stand or fall together.
    share : float, default=1.0
        The share of the deviation that is wanted.

    Returns
    -------
    dict of ndarray
        Per leading row ``clean + s * deviation`` with the first s of `share` times 1, 1/2, ...,
        2**-12 that is valid, and `clean` itself where none is.
    """
    candidate = _moved(clean, deviation, np.asarray(share))
    accepted = np.asarray(valid(candidate))
    shares = np.full(accepted.shape, share)
    for _ in range(N_HALVINGS):
        if accepted.all():
            return candidate
        shares = np.where(accepted, shares, 0.5 * shares)
        candidate = _moved(clean, deviation, shares)
        accepted = accepted | np.asarray(valid(candidate))
    return _moved(clean, deviation, np.where(accepted, shares, 0.0))


def _moved(clean: Natural, deviation: Natural, shares: np.ndarray) -> Natural:
    result = {}
    # A deviation may be infinite; where it is not used it must not leave a NaN behind.
    with np.errstate(invalid="ignore", over="ignore"):
        for key, start in clean.items():
            s = shares.reshape(shares.shape + (1,) * (start.ndim - shares.ndim))
            result[key] = np.where(s == 0.0, start, start + s * deviation[key])
    return result


class Family(ABC):
    """One exponential family, for any number of independent rows.

    The density of a row with respect to Lebesgue measure is

        q(x) = exp{(natural - base) . t(x) - A(natural)},

    where `natural` are the coordinates in which a conjugate update adds sufficient statistics to
    the prior, and `base` is their value at the flat density. So the expectations of t are the
    gradient of the log-normaliser A, and tempering q to the power x moves `natural` to
    ``base + x * (natural - base)``.

    Instances hold hyperparameters only; natural parameters are passed in and returned.

    References
    ----------
    Wainwright and Jordan (2008), Graphical Models, Exponential Families, and Variational
    Inference, section 3.
    """

    keys: ClassVar[tuple[str, ...]]

    @abstractmethod
    def base(self, natural: Natural) -> Natural:
        """Return the natural parameters of the flat density, broadcastable to `natural`."""

    @abstractmethod
    def expectations(self, natural: Natural) -> Natural:
        """Return E_q[t(x)], the gradient of the sum of :meth:`log_normalizer` over rows.

        Parameters
        ----------
        natural : dict of ndarray
            Natural parameters.

        Returns
        -------
        dict of ndarray
            Same keys and shapes as `natural`. The gradient with respect to a symmetric matrix is
            the matrix G with dA = sum_ij G_ij dS_ij for symmetric changes dS.
        """

    @abstractmethod
    def log_normalizer(self, natural: Natural) -> np.ndarray:
        """Return A(natural) per leading row in nats, with every constant."""

    @abstractmethod
    def sample(self, natural: Natural, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw every row once.

        Parameters
        ----------
        natural : dict of ndarray
            Natural parameters.
        rng : numpy.random.Generator
            Source of randomness; it is advanced.

        Returns
        -------
        dict of ndarray
            The draw; the keys are those that the family's docstring names.
        """

    @abstractmethod
    def to_standard(self, natural: Natural) -> dict[str, np.ndarray]:
        """Return the usual parameters; the keys are those that the family's docstring names."""

    @abstractmethod
    def from_standard(self, *args: Any, **standard: Any) -> Natural:
        """Return the natural parameters of the usual ones, the inverse of :meth:`to_standard`."""

    @abstractmethod
    def _inside(self, natural: Natural) -> np.ndarray:
        """Per leading row: finite and inside the open domain."""

    @abstractmethod
    def _sizes(self, natural: Natural) -> tuple[np.ndarray, ...]:
        """Per leading row, how far each constrained part lies from the edge of the domain."""

    @abstractmethod
    def _strength(self, natural: Natural) -> np.ndarray:
        """Per leading row, the size of what cancels in a difference of log-normalisers."""

    @abstractmethod
    def _divergence(self, q: Natural, p: Natural) -> np.ndarray:
        """KL(q || p) per leading row, from differences of parameters, in nats."""

    def entropy(self, natural: Natural) -> float:
        """Return the differential entropy summed over rows, in nats."""
        base = self.base(natural)
        expected = self.expectations(natural)
        linear = sum(np.sum((natural[key] - base[key]) * expected[key]) for key in self.keys)
        return float(np.sum(self.log_normalizer(natural)) - linear)

    def kl(self, q: Natural, p: Natural) -> float:
        """Return KL(q || p) summed over rows, in nats.

        Parameters
        ----------
        q, p : dict of ndarray
            Natural parameters of equal shapes.

        Returns
        -------
        float
            The Kullback-Leibler divergence, complete.

        Notes
        -----
        Where `p` is stronger than :data:`STRONG` observations, the log-normalisers are so large
        that their difference would lose its digits. Then the divergence is evaluated without them.
        """
        if np.any(self._strength(p) > STRONG):
            return float(np.sum(self._divergence(q, p)))
        expected = self.expectations(q)
        linear = sum(np.sum((q[key] - p[key]) * expected[key]) for key in self.keys)
        return float(linear - np.sum(self.log_normalizer(q)) + np.sum(self.log_normalizer(p)))

    def backoff(
        self, clean: Natural, deviation: Natural, share: float, margin: float = 0.0
    ) -> Natural:
        """Move natural parameters by as much of a deviation as :meth:`valid` allows, row by row.

        Parameters
        ----------
        clean : dict of ndarray
            Natural parameters inside the domain; its arrays may be used for the result.
        deviation : dict of ndarray
            Of the same shapes; it may lead outside.
        share : float
            The share of the deviation that is wanted; it is halved until the row is valid.
        margin : float, default=0.0
            As of :meth:`valid`, with `clean` as the reference.

        Returns
        -------
        dict of ndarray
            As :func:`backoff` returns it.
        """

        def valid(natural: Natural) -> np.ndarray:
            return self.valid(natural, clean, margin)

        return backoff(clean, deviation, valid, share)

    def valid(
        self, natural: Natural, reference: Natural | None = None, margin: float = 0.0
    ) -> np.ndarray:
        """Say which rows lie in the open domain, with a distance from its edge if asked.

        Parameters
        ----------
        natural : dict of ndarray
            Natural parameters, finite or not.
        reference : dict of ndarray or None, default=None
            Natural parameters inside the domain to compare with.
        margin : float, default=0.0
            With a reference, each part of a row that has an edge (the smallest entry of a
            positive vector, the smallest eigenvalue of a matrix, the degrees of freedom above
            their bound) must keep at least this fraction of its size in the reference.

        Returns
        -------
        ndarray of bool
            One per leading row, or of shape () when all rows stand or fall together.
        """
        inside = self._inside(natural)
        if reference is None or margin == 0.0:
            return inside
        for size, required in zip(self._sizes(natural), self._sizes(reference), strict=True):
            kept = size >= margin * required
            # Rows that stand or fall together have one verdict for all their parts.
            inside = inside & (kept if kept.shape == inside.shape else kept.all())
        return inside
