"""What all mixtures have in common, whatever their components are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax

from ..data.units import Rows
from ..families import Factors, Natural
from ..parallel.workers import SEQUENTIAL, Workers
from ._base import ConjugateModel, coinciding
from ._componentwise import Componentwise, aligned
from ._exchangeable import Assigned, Exchangeable
from ._left_out import LeftOut, left_out
from ._weights import WEIGHTS
from .components._base import Components, clusterings

# The starts that are worth trying.
_KINDS_OF_STARTS = ("kmeans", "random_from_data")


class BaseMixture(Exchangeable, Componentwise, ConjugateModel):
    """Weights times components; an object holds hyperparameters only.

    Parameters
    ----------
    components : Components
    weight_prior : {"dirichlet_process", "dirichlet_distribution"}
    init_params : str
        How the responsibilities are initialised.
    weight_concentration_prior : float, "auto" or None
        None stands for 1 / ``n_components``, and ``"auto"`` for a value that is learned.
    """

    components: Any

    def __init__(
        self,
        components: Components,
        weight_prior: str,
        init_params: str,
        weight_concentration_prior: float | str | None,
    ):
        self.components = components
        self.n_components = components.n_components
        self.weights = WEIGHTS[weight_prior](self.n_components, weight_concentration_prior)
        self.init_params = init_params

    @abstractmethod
    def of_components(self, summary: Any) -> Any:
        """Return the part of a summary that the components read."""

    @property
    def learns_late(self) -> bool:
        """Whether a prior is learned that waits until the bound hardly rises any more."""
        return self.weights.learns or self.components.learns_late

    def factors(self) -> Factors:
        return Factors([self.weights.factor, *self.components.factors])

    def resolved(self, summary: Any, hold_units: bool = False) -> BaseMixture:
        model = copy(self)
        model.components = self.components.resolved(self.of_components(summary))
        return model

    def prior(self, summary: Any) -> Natural:
        return self.weights.prior() | self.components.prior(self.of_components(summary))

    def kl(
        self, q: Natural, prior: Natural, known: Any = None, workers: Workers = SEQUENTIAL
    ) -> float:
        return super().kl(q, prior, known, workers) + self.components.hyperparameter_kl()

    def learned(
        self,
        q: Natural,
        prior: Natural,
        step: Any,
        rho: float,
        scale: float,
        late: bool = True,
    ) -> tuple[ConjugateModel, Natural, Natural]:
        """Maximise the bound over the priors that are learned, for fixed q, and then over q.

        As q is the prior plus statistics, it is best for the new prior after the same change as
        that of the prior.
        """
        if not (self.components.learns_early or (late and self.learns_late)):
            return self, prior, q
        model = copy(self)
        model.weights, of_weights = self.weights.learned(q, prior, rho, late)
        of_components = {key: prior[key] for key in self.components.keys}
        if self.components.learns_from(float(self.expected_counts(q, prior).sum())):
            model.components, of_components = self.components.learned(q, prior, rho, late)
        new = of_weights | of_components
        fixed = self.components.fixed_while_learning
        moved = {key: q[key] + (new[key] - prior[key]) for key in new if key not in fixed}
        return model, new, q | moved

    @property
    def starts_assigned(self) -> bool:
        return self.init_params == "kmeans"

    def other_starts(self) -> tuple[BaseMixture, ...]:
        others = []
        for kind in _KINDS_OF_STARTS:
            if kind != self.init_params:
                other = copy(self)
                other.init_params = kind
                others.append(other)
        return tuple(others)

    def preferred_order(self, q: Natural, prior: Natural) -> np.ndarray | None:
        order = self.weights.best_order(self.weights.expected_counts(q, prior))
        return None if (order == np.arange(self.n_components)).all() else order

    def reordered(
        self, q: Natural, prior: Natural, order: np.ndarray
    ) -> tuple[BaseMixture, Natural, Natural]:
        added = self.statistics_of(q, prior, order)
        model = copy(self)
        model.components, own = self.components.carried(prior, order)
        prior = prior | own
        return model, prior, {key: prior[key] + value for key, value in added.items()}

    def exchangeable(self, prior: Natural, order: np.ndarray) -> bool:
        return self.components.exchangeable(prior, order)

    def gain_of_order(self, q: Natural, reordered: Natural) -> float:
        return self.weights.gain_of_order(q, reordered)

    def started_at(
        self, given: dict[str, Any], usual: Callable[[], Natural], summary: Any, prior: Natural
    ) -> Natural:
        """Return the posterior given as many rows as there are, with these moments.

        ``given`` has the ``weights`` and the ``profile`` of the components
        (:meth:`Components.posterior_like`). What it lacks is that of those components of the usual
        start that resemble the given ones.
        """
        c, own = self.components, self.of_components(summary)
        profile, weights = given.get("profile", {}), given.get("weights")
        q = {} if weights is not None and c.is_whole(profile) else usual()

        def begun(q: Natural) -> Natural:
            counts = summary.weight * (self.weights.mean(q) if weights is None else weights)
            of_weights = self.weights.statistics(counts)
            found = q | {key: prior[key] + value for key, value in of_weights.items()}
            return found | c.posterior_like(profile, counts, q, own, prior) if profile else found

        return begun(aligned(self, c, begun, q, own, prior) if q and profile else q)

    def statistics_of(self, q: Natural, prior: Natural, chosen: np.ndarray) -> Natural:
        counts = self.weights.expected_counts(q, prior)
        added = {key: q[key] - prior[key] for key in self.components.keys}
        return self.weights.statistics(counts[chosen]) | self.components.reordered(added, chosen)

    def assigned(self, units: Rows, q: Natural) -> Assigned:
        density = self.log_densities(units, q)
        weights = np.ones(units.n_units) if units.weights is None else units.weights
        return Assigned(softmax(density + self.weights.log_weights(q), axis=1), density, weights)

    @property
    def distributions(self) -> Components:
        return self.components  # type: ignore[no-any-return]

    def n_rows(self, summary: Any) -> float:
        return float(summary.weight)

    def jitter(self, q: Natural, size: float, rng: np.random.Generator, prior: Natural) -> Natural:
        """Displace the components at random, and leave the weights as they are."""
        return self.components.jitter(q, size, rng, prior)

    def log_predictive(self, units: Rows, q: Natural) -> np.ndarray:
        """Return the log posterior predictive density of each row in nats, shape (n_rows,)."""
        log_weights = np.log(self.weights.mean(q))
        return logsumexp(self.components.log_predictive(units, q) + log_weights, axis=1)

    def log_likelihood(self, units: Rows, q: Natural) -> np.ndarray:
        """Return the log density of each row at the posterior means in nats, shape (n_rows,)."""
        plug_in = self.components.for_rows(self.components.plug_in(q), units)
        log_weights = np.log(self.weights.mean(q))
        return logsumexp(self.components.log_density(units, plug_in) + log_weights, axis=1)

    def left_out(self, units: Any, q: Natural, summary: Any, prior: Natural) -> LeftOut:
        return left_out(self, self.sampled(units), q, summary, prior)

    @property
    def n_parameters(self) -> int:
        """The number of free parameters of weights and components."""
        return self.n_components - 1 + self.components.n_parameters

    def expected_counts(self, q: Natural, prior: Natural) -> np.ndarray:
        """Return the expected number of rows of each component."""
        return self.weights.expected_counts(q, prior)

    def coinciding(self, q: Natural, summary: Any, prior: Natural) -> list[tuple[int, int]]:
        used = np.flatnonzero(self.weights.expected_counts(q, prior) >= 1)
        return coinciding(self.components.coordinates(q, self.of_components(summary)), used)


def assigned_rows(
    init_params: str,
    points: Callable[[], Any],
    n_rows: int,
    n_components: int,
    weights: np.ndarray | None,
    random_state: np.random.RandomState,
    n_clusters: int | None = None,
) -> Callable[[slice], np.ndarray]:
    """Return a function that maps a slice of rows to initial responsibilities of 0 and 1.

    Random numbers are drawn in the same order as in scikit-learn's mixtures.

    Parameters
    ----------
    init_params : {"kmeans", "k-means++", "random_from_data"}
        With the last two a component has one row, and most rows have no component.
    points : callable
        Returns the rows as points among which k-means measures distances.
    n_rows, n_components : int
    weights : ndarray of shape (n_rows,) or None
        Rows of weight zero are not chosen.
    random_state : numpy.random.RandomState
    n_clusters : int or None, default=None
        Number of clusters; None for ``n_components``.
    """
    if init_params == "kmeans":
        k = n_components if n_clusters is None else n_clusters
        means = clusterings().KMeans(n_clusters=k, n_init=1, random_state=random_state)
        labels = means.fit(points(), sample_weight=weights).labels_
        return lambda rows: np.equal.outer(labels[rows], np.arange(n_components)).astype(float)
    if init_params == "k-means++":
        _, chosen = clusterings().kmeans_plusplus(
            points(), n_components, sample_weight=weights, random_state=random_state
        )
    else:
        share = None if weights is None else weights / weights.sum()
        chosen = random_state.choice(n_rows, size=n_components, replace=False, p=share)
    return lambda rows: np.equal.outer(np.arange(rows.start, rows.stop), chosen).astype(float)
