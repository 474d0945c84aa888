"""The base class of exponential families, and three operations on natural parameters.

The operations are :func:`posterior`, :func:`mix` and :func:`backoff`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cache, partial
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ._divergence import STRONG

Natural = dict[str, np.ndarray]
Share = Callable[[Callable[[slice], None], int, int], None]

# The numbers 1 and 0 as arrays, which natural parameters of flat densities share.
ONE, ZERO = np.ones(()), np.zeros(())
for _number in (ONE, ZERO):
    _number.flags.writeable = False
# `backoff` halves a deviation at most this many times before it gives the deviation up.
N_HALVINGS = 12
# Large arrays are processed in parts of at most this many entries, which fit into the caches.
_ENTRIES = 32_768


def settled(natural: Mapping[str, object]) -> Natural:
    """Return natural parameters as arrays; arrays themselves are returned as they are."""
    return {key: np.asarray(value) for key, value in natural.items()}


def alone(function: Callable[[slice], None], n: int, at_least: int) -> None:
    """Call a function that writes into arrays, for 0, …, n − 1."""
    function(slice(0, n))


class Tempering(NamedTuple):
    """The three factors by which an annealing method changes a conjugate update.

    The inverse temperature is ``x = 1 / T``. Annealing methods set ``(local, statistics, prior)``
    to ``(x, x, 1)`` in the likelihood form, to ``(x, x, x)`` in the posterior form, and to
    ``(x, 1, 1)`` in the local form. Variational tempering uses the likelihood form with the
    expected ``x``, of which its local version has one per unit. If all factors are one, there is
    no annealing.

    Parameters
    ----------
    local : float or ndarray of shape (n_units,), default=1.0
        Factor of the expected log joint in the local step, q(z) proportional to
        exp{local * E[log p(x, z | beta)]}.
    statistics : float or ndarray of shape (n_units,), default=1.0
        Factor of the expected sufficient statistics, both in the global update and in conjugate
        updates of local parameters. The local step applies it.
    prior : float, default=1.0
        Factor of the prior's distance from the flat density, ``prior - base``.
    """

    local: float | np.ndarray = 1.0
    statistics: float | np.ndarray = 1.0
    prior: float = 1.0

    @property
    def temperature(self) -> float:
        """The temperature T = 1 / ``local``, or its mean over the units."""
        x = self.local
        return float((1.0 / x).mean() if isinstance(x, np.ndarray) else 1.0 / x)


class UnitTemperatures(NamedTuple):
    """The input of local steps that infer a temperature for every data point.

    Attributes
    ----------
    inverse_temperatures : ndarray of shape (n_temperatures,)
        The grid of x = 1/T, over which the temperature of a data point is distributed.
    log_partition : object
        log c(x) of one data point, as the model's ``unit_log_partition`` returns it.
    n_rounds : int
        Number of rounds. In each, q(z) is inferred given the temperatures, and then the
        temperatures are inferred given q(z).
    """

    inverse_temperatures: np.ndarray
    log_partition: Any
    n_rounds: int


def posterior(
    prior: Natural, stats: Natural, base: Natural, t: Tempering, overwrite: bool = False
) -> Natural:
    """Return the natural parameters of a (tempered) conjugate posterior.

    Parameters
    ----------
    prior : dict of ndarray
        Natural parameters of the prior; its keys are the keys of the result.
    stats : dict of ndarray
        Expected sufficient statistics, of the shapes of `prior`, already multiplied by
        ``t.statistics`` in the local step.
    base : dict of ndarray
        Base point of the family, broadcastable to `prior` (:meth:`Family.base`). At ``t.prior`` 1,
        only statistics that are no arrays read it.
    t : Tempering
        Only ``t.prior`` is used.
    overwrite : bool, default=False
        Whether the result may be written into the arrays of `stats`, so that no other arrays of
        their size are needed.

    Returns
    -------
    dict of ndarray
        ``base + t.prior * (prior - base) + stats``; exactly ``prior + stats`` at ``t.prior`` 1.
        Statistics that are no arrays return it by their method ``posterior``.

    References
    ----------
    Katahira, Watanabe and Okada (2008), Deterministic annealing variant of variational Bayes
    method. This is the posterior form; here, the base measure is not raised to the power 1/T.
    """
    result: Natural = {}
    for key, start in prior.items():
        counted: Any = stats[key]
        if not isinstance(counted, np.ndarray) and hasattr(counted, "posterior"):
            result[key] = counted.posterior(start, base[key], t.prior)
            continue
        if t.prior != 1.0:
            start = base[key] + t.prior * (start - base[key])
        fits = overwrite and counted.flags.writeable
        if fits and np.result_type(start, counted) == counted.dtype:
            result[key] = np.add(start, counted, out=counted)
        else:
            result[key] = np.asarray(start + counted)
    return result


def followed(q: Natural, prior: Natural, new: Natural) -> Natural:
    """Return q after the change of its prior to a new one, for the keys of the new prior."""
    result: Natural = {}
    for key, value in new.items():
        change = value - prior[key]
        change += q[key]
        result[key] = change
    return result


@cache
def _steps() -> ModuleType:
    """Return the kernels of steps, which are imported when they are first needed."""
    from ..kernels import optimizers

    return optimizers


def _lie_alike(*arrays: np.ndarray) -> bool:
    """Return whether arrays have their entries in the order of C, as kernels read them."""
    return all(array.flags.c_contiguous for array in arrays)


def _displaced(value: np.ndarray, change: np.ndarray, margin: float) -> np.ndarray | None:
    """Return positive numbers after a change; None if some would leave their domain.

    They stay above a share of what they are, the ``margin``.
    """
    if not (change.shape == value.shape and _lie_alike(value, change)):
        return None
    found, inside = np.empty(value.shape), np.empty(1)
    _steps().displaced(value.reshape(-1), change.reshape(-1), margin, found.reshape(-1), inside)
    return found if inside[0] else None


def extended_sums(
    value: np.ndarray, last: np.ndarray, prior: np.ndarray, share: float
) -> np.ndarray:
    """Return sums that go beyond a change, of which half of what they add to the prior remains.

    ``share`` says how far they go on, as a share of the change from ``last`` to ``value``.
    """
    if not (prior.shape == value.shape and _lie_alike(value, last, prior)):
        moved = value + share * (value - last)
        limited: np.ndarray = np.maximum(moved, 0.5 * (prior + value))
        return limited
    found = np.empty(value.shape)
    arrays = value.reshape(-1), last.reshape(-1), prior.reshape(-1)
    _steps().extended(*arrays, share, found.reshape(-1))
    return found


def mix(
    a: Natural, b: Natural, rho: float, overwrite: bool = False, share: Share = alone
) -> Natural:
    """Return ``(1 - rho) * a + rho * b``, key by key.

    If `rho` is 1, the result has the arrays of `b` themselves, not copies. With `overwrite`, the
    result is written into the arrays of `b`, so that no other arrays of their size are needed.
    Where `b` is no array, its method ``mixed_into`` returns the result, which may take over the
    memory of `a`. With `overwrite`, threads can share the work on arrays.
    """
    targets: dict[str, Any] = {key: b[key] for key in a}
    others = {
        key: target.mixed_into(a[key], rho)
        for key, target in targets.items()
        if not isinstance(target, np.ndarray) and hasattr(target, "mixed_into")
    }
    if rho == 1.0:
        return targets | others
    if not overwrite:
        arrays = a.keys() - others.keys()
        mixed = {key: np.asarray((1.0 - rho) * a[key] + rho * b[key]) for key in arrays}
        return {key: (mixed | others)[key] for key in a}
    for key, start in a.items():
        end = b[key]
        if key in others:
            continue
        if not end.flags.c_contiguous:
            # Transposed views make every part contiguous in memory. Topics, for example, are
            # stored in columns.
            start, end = start.T, end.T
        parts = list(zip(_parts(start), _parts(end), strict=True))
        share(partial(_mix_into, parts, rho), len(parts), 1)
    return {key: b[key] for key in a} | others


def _mix_into(parts: list[tuple[np.ndarray, np.ndarray]], rho: float, which: slice) -> None:
    """Mix the first arrays of some pairs into the second ones."""
    for part, goal in parts[which]:
        goal *= rho
        goal += (1.0 - rho) * part


def _parts(x: np.ndarray) -> list[np.ndarray]:
    """Return consecutive rows of an array as views, which are small enough for the caches.

    A part has at least one row, however large that is.
    """
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
        The deviation, with arrays of the same shapes. ``clean + deviation`` may lie outside the
        domain.
    valid : callable
        Maps natural parameters to a boolean array with one entry per leading row. The array has
        shape () if all rows share parameters, so that they are valid or invalid together.
    share : float, default=1.0
        The share of the deviation that is wanted.

    Returns
    -------
    dict of ndarray
        ``clean + s * deviation``, where s is chosen for each leading row as the first of `share`
        times 1, 1/2, ..., 2**-12 for which the row is valid. Rows for which none is valid are
        those of `clean`.
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
    # A deviation may be infinite, and its product with a share of 0 would be NaN.
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
    # The parameters that are those of the prior plus positive statistics.
    _sums: ClassVar[tuple[str, ...]] = ()
    # Whether `_divergence` keeps its digits where q is far stronger than p.
    _exact_if_far: ClassVar[bool] = False

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
        """Return, per leading row, whether it is finite and inside the open domain."""

    @abstractmethod
    def _sizes(self, natural: Natural, reference: Natural) -> tuple[np.ndarray, ...]:
        """Return, per leading row, the distance of each part from the edge of its domain.

        Parts without an edge, such as means, are left out. Matrices are measured in the units of
        the diagonals of ``reference``, so that the units of columns do not matter.
        """

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
        Where `p` is stronger than :data:`STRONG` observations, or where `q` is in families of
        counts, the log-normalisers are so large that their difference would lose its digits. Then
        the divergence is evaluated without them.
        """
        if self.is_strong(p) or (self._exact_if_far and (self._strength(q) > STRONG).any()):
            return float(np.sum(self._divergence(q, p)))
        expected, log_normalizer = self._expectations_and_log_normalizer(q)
        linear = sum(((q[key] - p[key]) * expected[key]).sum() for key in self.keys)
        return float(linear - log_normalizer.sum() + self.log_normalizer(p).sum())

    def is_strong(self, natural: Natural) -> bool:
        """Return whether any row is stronger than :data:`STRONG` observations."""
        return bool((self._strength(natural) > STRONG).any())

    def _expectations_and_log_normalizer(self, natural: Natural) -> tuple[Natural, np.ndarray]:
        """Return :meth:`expectations` and :meth:`log_normalizer`, which can share their work."""
        return self.expectations(natural), self.log_normalizer(natural)

    def of_mean(self, mean: Natural, prior_of_mean: Natural, prior: Natural) -> Natural:
        """Return, in new arrays, the parameters that a fit returns for a mean over its passes.

        Parameters
        ----------
        mean : dict of ndarray
            The mean of the natural parameters after the passes.
        prior_of_mean : dict of ndarray
            The same mean of the natural parameters of the prior, which may have been learned,
            broadcastable to those of `mean`.
        prior : dict of ndarray
            Those of the prior after the last pass.

        Returns
        -------
        dict of ndarray
            A copy of the mean, unless a family says otherwise.
        """
        return {key: value.copy(order="K") for key, value in mean.items()}

    def backoff(
        self, clean: Natural, deviation: Natural, share: float, margin: float = 0.0
    ) -> Natural:
        """Move natural parameters by as much of a deviation as :meth:`valid` allows, row by row.

        Parameters
        ----------
        clean : dict of ndarray
            Natural parameters inside the domain; its arrays may be used for the result.
        deviation : dict of ndarray
            The deviation, with arrays of the same shapes.
        share : float
            The share of the deviation that is wanted; it is halved until the row is valid.
        margin : float, default=0.0
            The `margin` of :meth:`valid`, for which `clean` is the reference.

        Returns
        -------
        dict of ndarray
            The result of :func:`backoff`.
        """
        if share == 1.0 and self.are_sums:
            # Nearly always, all of the deviation is allowed, and no row has to be looked at alone.
            moved: Natural = {}
            for key, value in clean.items():
                found = _displaced(value, deviation[key], margin)
                if found is None:
                    break
                moved[key] = found
            if len(moved) == len(clean):
                return moved

        def valid(natural: Natural) -> np.ndarray:
            return self.valid(natural, clean, margin)

        return backoff(clean, deviation, valid, share)

    @property
    def are_sums(self) -> bool:
        """Whether all parameters are those of the prior plus positive statistics."""
        return self._sums == self.keys

    def extended(self, q: Natural, change: Natural, prior: Natural) -> Natural:
        """Return q plus a change, in so far as the domain allows.

        What q adds to the prior are sums of statistics. Where these are positive, half of each sum
        remains, so that q stays a posterior of the prior, also of one that is learned next.

        Parameters
        ----------
        q : dict of ndarray
            Natural parameters inside the domain.
        change : dict of ndarray
            The change, with arrays of the same shapes.
        prior : dict of ndarray
            Natural parameters of the prior, broadcastable to q.

        Returns
        -------
        dict of ndarray
            New arrays. If all parameters are such sums, each of them is limited. In other families,
            rows with a sum that would be too small, or outside the domain, are those of q.
        """
        if self.are_sums:
            return {key: extended_sums(x, x - change[key], prior[key], 1.0) for key, x in q.items()}
        moved = {key: value + change[key] for key, value in q.items()}
        least = {key: 0.5 * (prior[key] + q[key]) for key in self._sums}
        valid = np.asarray(self._inside(moved))
        for key, value in least.items():
            kept = moved[key] >= value
            # If rows share some parameters, they all stay as soon as one of them has to.
            valid = valid & (kept if kept.shape == valid.shape else kept.all())
        if valid.all():
            return moved
        shapes = {key: valid.shape + (1,) * (value.ndim - valid.ndim) for key, value in q.items()}
        return {key: np.where(valid.reshape(shapes[key]), moved[key], q[key]) for key in q}

    def valid(
        self, natural: Natural, reference: Natural | None = None, margin: float = 0.0
    ) -> np.ndarray:
        """Return which rows lie in the open domain and, if asked, far enough from its edge.

        Parameters
        ----------
        natural : dict of ndarray
            Natural parameters, finite or not.
        reference : dict of ndarray or None, default=None
            Natural parameters inside the domain, with whose distances from the edge those of
            `natural` are compared.
        margin : float, default=0.0
            The required distance from the edge, as a fraction of the distance in the reference. The
            distance is the smallest entry of a positive vector, the smallest eigenvalue of a
            matrix, or the degrees of freedom minus their lower bound.

        Returns
        -------
        ndarray of bool
            One entry per leading row. The shape is () if the rows share parameters, so that they
            are valid or invalid together.
        """
        inside = self._inside(natural)
        if reference is None or margin == 0.0:
            return inside
        distances = (self._sizes(one, reference) for one in (natural, reference))
        for size, required in zip(*distances, strict=True):
            kept = size >= margin * required
            # If rows share some parameters, they are all refused as soon as one of them is.
            inside = inside & (kept if kept.shape == inside.shape else kept.all())
        return inside
