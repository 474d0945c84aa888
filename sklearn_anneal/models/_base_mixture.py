"""What all mixtures have in common, whatever their components are."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from typing import Any

import numpy as np
from scipy.special import logsumexp

from ..families import Factors, Natural
from ..inference.units import Rows
from ._base import ConjugateModel, LocalStep, coinciding
from ._weights import WEIGHTS
from .components._base import Components


class BaseMixture(ConjugateModel):
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
    def learns(self) -> bool:
        """Whether any prior is learned."""
        return self.weights.learns or self.components.learns

    def factors(self) -> Factors:
        return Factors([self.weights.factor, *self.components.factors])

    def resolved(self, summary: Any, hold_units: bool = False) -> BaseMixture:
        model = copy(self)
        model.components = self.components.resolved(self.of_components(summary))
        return model

    def prior(self, summary: Any) -> Natural:
        return self.weights.prior() | self.components.prior(self.of_components(summary))

    def learned(
        self, q: Natural, prior: Natural, step: LocalStep, rho: float, scale: float
    ) -> tuple[ConjugateModel, Natural, Natural]:
        """Maximise the bound over the priors that are learned, for fixed q, and then over q.

        As q is the prior plus statistics, it is best for the new prior after the same change as
        that of the prior.
        """
        if not self.learns:
            return self, prior, q
        model = copy(self)
        model.weights, of_weights = self.weights.learned(q, prior, rho)
        model.components, of_components = self.components.learned(q, prior, rho)
        new = of_weights | of_components
        fixed = self.components.fixed_while_learning
        moved = {key: q[key] + (new[key] - prior[key]) for key in new if key not in fixed}
        return model, new, q | moved

    def jitter(self, q: Natural, size: float, rng: np.random.Generator, prior: Natural) -> Natural:
        """Displace the components at random, and leave the weights as they are."""
        return self.components.jitter(q, size, rng, prior)

    def log_predictive(self, units: Rows, q: Natural) -> np.ndarray:
        """Return the log posterior predictive density of each row in nats, shape (n_rows,)."""
        log_weights = np.log(self.weights.mean(q))
        return logsumexp(self.components.log_predictive(units, q) + log_weights, axis=1)

    def coinciding(self, q: Natural, summary: Any, prior: Natural) -> list[tuple[int, int]]:
        used = np.flatnonzero(self.weights.expected_counts(q, prior) >= 1)
        return coinciding(self.components.coordinates(q, self.of_components(summary)), used)
