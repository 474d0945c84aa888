"""Columns of counts with more zeros than Poisson counts have."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from ...families import Natural
from ...models.components._base import Profile
from ...models.components._gamma_rates import GammaRates
from ...models.components.zero_inflated_poisson import ZeroInflatedPoissonComponents
from .._attributes import Attributes
from .._given_starts import given_in_range
from ._base import Wanted, profile_of_means
from ._rates import EmissionOfRates
from .bernoulli import BernoulliEmission
from .poisson import PoissonEmission


class ZeroInflatedPoissonEmission(PoissonEmission):
    """Columns of counts, each with a rate and a probability of other zeros in every component."""

    title = "Columns of counts"
    distributions = ZeroInflatedPoissonComponents
    prior_parameters = EmissionOfRates.prior_parameters | BernoulliEmission.prior_parameters
    fitted_attributes = (
        *EmissionOfRates.fitted_attributes,
        "zeroprob_",
        "zeroprob_posterior_",
        "zeroprob_prior_",
    )

    @classmethod
    def components(cls, estimator: BaseEstimator, rows: Any) -> GammaRates:
        inflation = BernoulliEmission.components(estimator, rows)
        return cls.of_rates(estimator, rows, inflation=inflation)

    @classmethod
    def given(cls, components: GammaRates, key: str, value: object, name: str) -> np.ndarray:
        if key == "lambdas":
            return super().given(components, key, value, name)
        shape = components.n_components, components.n_features
        return given_in_range(value, shape, name, 0.0, 1.0)

    @classmethod
    def attributes(
        cls, components: GammaRates, q: Natural, prior: Natural, summary: object
    ) -> Attributes:
        return super().attributes(components, q, prior, summary) | {
            "zeroprob_": q["a"] / (q["a"] + q["b"]),
            "zeroprob_posterior_": np.stack([q["a"], q["b"]], axis=-1),
            "zeroprob_prior_": np.stack([prior["a"], prior["b"]], axis=-1),
        }

    @classmethod
    def draw(
        cls, own: Profile, labels: np.ndarray, random_state: np.random.RandomState
    ) -> np.ndarray:
        counts = super().draw(own, labels, random_state)
        return counts * (random_state.random_sample(counts.shape) >= own["zeroprob"][labels])

    @classmethod
    def drawn_components(cls, wanted: Wanted, random_state: np.random.RandomState) -> Profile:
        drawn = super().drawn_components(wanted, random_state)
        a, b = 2.0 / wanted.separation, 4.0 / wanted.separation
        return drawn | {"zeroprob": random_state.beta(a, b, wanted.size)}

    @classmethod
    def profile(cls, own: Profile, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        rest, rates = 1.0 - own["zeroprob"], own["lambdas"]
        return profile_of_means(
            rest * rates, rest * rates * (1.0 + own["zeroprob"] * rates), weights
        )
