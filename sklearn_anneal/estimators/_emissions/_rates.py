"""Base class of the emissions whose columns have rates with gamma priors."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from ...families import Natural
from ...models.components._gamma_rates import GammaRates
from .._attributes import Attributes
from .._given_starts import given_in_range
from .._priors import auto_as_none, checked_prior, is_auto
from ._base import Emission


class EmissionOfRates(Emission[GammaRates]):
    """Columns that each have a rate in every component."""

    distributions: ClassVar[type[GammaRates]]  # the class of the components
    prior_parameters: ClassVar[dict[str, bool]] = {"lambdas_prior": True, "lambdas_weight": True}
    fitted_attributes: ClassVar[tuple[str, ...]] = (
        "lambdas_",
        "lambdas_posterior_",
        "lambdas_weight_posterior_",
        "lambdas_prior_",
        "lambdas_weight_prior_",
    )
    priors_of_data = True

    @classmethod
    def components(cls, estimator: BaseEstimator, rows: Any) -> GammaRates:
        return cls.of_rates(estimator, rows)

    @classmethod
    def of_rates(cls, estimator: BaseEstimator, rows: Any, **others: Any) -> GammaRates:
        """Check the priors of rates, and make components that have ``others`` besides."""
        k, d = estimator._number, rows.shape[1]
        shape = checked_prior(estimator.lambdas_prior, 1.0, (k, d), "lambdas_prior")
        rate = auto_as_none(estimator.lambdas_weight)
        if rate is not None:
            rate = checked_prior(rate, None, (k, d), "lambdas_weight")
        asked = {"shape": estimator.lambdas_prior, "rate": estimator.lambdas_weight}
        learned = tuple(name for name, value in asked.items() if is_auto(value))
        return cls.distributions(k, d, shape, rate, learned, **others)

    @classmethod
    def given(cls, components: GammaRates, key: str, value: object, name: str) -> np.ndarray:
        return given_in_range(value, (components.n_components, components.n_features), name)

    @classmethod
    def attributes(
        cls, components: GammaRates, q: Natural, prior: Natural, summary: object
    ) -> Attributes:
        return {
            "lambdas_": q["shape"] / q["rate"],
            "lambdas_posterior_": q["shape"],
            "lambdas_weight_posterior_": q["rate"],
            "lambdas_prior_": prior["shape"],
            "lambdas_weight_prior_": prior["rate"],
        }
