"""Columns of counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...families import Natural
from ...models.components.poisson import PoissonComponents
from .._counts import drawn_counts
from .._given_starts import given_in_range
from .._priors import auto_as_none, checked_prior, is_auto
from ._base import Emission, profile_of_means, refuse_cells

# The mean of all rates that are drawn for data of known truth.
_MEAN_COUNT = 5.0


class PoissonEmission(Emission[PoissonComponents]):
    """Columns of counts, each with a rate in every component."""

    title = "Columns of counts"
    prior_parameters = {"lambdas_prior": True, "lambdas_weight": True}
    fitted_attributes = (
        "lambdas_",
        "lambdas_posterior_",
        "lambdas_weight_posterior_",
        "lambdas_prior_",
        "lambdas_weight_prior_",
    )
    sparse = True
    positive_only = True
    counts_words = True
    priors_of_data = True

    @classmethod
    def check(cls, values: np.ndarray) -> None:
        if values.dtype.kind == "b":
            return
        with np.errstate(invalid="ignore"):
            bad = (values < 0) | (values != np.floor(values))
        if bad.any():
            refuse_cells(bad & ~np.isnan(values), values, "Counts are integers 0, 1, …")

    @classmethod
    def components(cls, estimator: Any, rows: Any) -> PoissonComponents:
        k, d = estimator._number, rows.shape[1]
        shape = checked_prior(estimator.lambdas_prior, 1.0, (k, d), "lambdas_prior")
        rate = auto_as_none(estimator.lambdas_weight)
        if rate is not None:
            rate = checked_prior(rate, None, (k, d), "lambdas_weight")
        asked = {"shape": estimator.lambdas_prior, "rate": estimator.lambdas_weight}
        learned = tuple(name for name, value in asked.items() if is_auto(value))
        return PoissonComponents(k, d, shape, rate, learned)

    @classmethod
    def given(cls, components: PoissonComponents, key: str, value: Any, name: str) -> np.ndarray:
        return given_in_range(value, (components.n_components, components.n_features), name)

    @classmethod
    def attributes(
        cls, components: PoissonComponents, q: Natural, prior: Natural, summary: Any
    ) -> dict[str, Any]:
        return {
            "lambdas_": q["shape"] / q["rate"],
            "lambdas_posterior_": q["shape"],
            "lambdas_weight_posterior_": q["rate"],
            "lambdas_prior_": prior["shape"],
            "lambdas_weight_prior_": prior["rate"],
        }

    @classmethod
    def draw(
        cls, own: Mapping[str, Any], labels: np.ndarray, random_state: np.random.RandomState
    ) -> np.ndarray:
        return drawn_counts(random_state, own["lambdas"][labels])

    @classmethod
    def drawn_components(
        cls,
        n_components: int,
        n_columns: int,
        n_categories: int,
        separation: float,
        random_state: np.random.RandomState,
    ) -> dict[str, Any]:
        size = n_components, n_columns
        return {"lambdas": random_state.gamma(1.0 / separation, _MEAN_COUNT * separation, size)}

    @classmethod
    def profile(
        cls, own: Mapping[str, Any], weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        return profile_of_means(own["lambdas"], own["lambdas"], weights)
