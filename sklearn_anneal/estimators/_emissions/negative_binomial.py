"""Columns of counts whose variance exceeds their mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...families import Natural
from ...models._draws import drawn_counts
from ...models.components._base import Profile
from ...models.components._gamma_rates import GammaRates
from ...models.components.negative_binomial import NegativeBinomialComponents
from .._attributes import Attributes
from ._base import Wanted, profile_of_means
from ._rates import EmissionOfRates
from .poisson import PoissonEmission

# The shape of the counts of random data.
_SHAPE = 2.0


class NegativeBinomialEmission(PoissonEmission):
    """Columns of over-dispersed counts, each with a mean in every component and with one shape."""

    title = "Columns of counts"
    distributions = NegativeBinomialComponents
    fitted_attributes = (*EmissionOfRates.fitted_attributes, "count_shapes_")

    @classmethod
    def attributes(
        cls, components: GammaRates, q: Natural, prior: Natural, summary: object
    ) -> Attributes:
        assert isinstance(components, NegativeBinomialComponents)
        found = super().attributes(components, q, prior, summary)
        return found | {"count_shapes_": components.count_shapes}

    @classmethod
    def described(cls, components: GammaRates, fitted: Any) -> Profile:
        return super().described(components, fitted) | {"count_shapes": fitted.count_shapes_}

    @classmethod
    def draw(
        cls, own: Profile, labels: np.ndarray, random_state: np.random.RandomState
    ) -> np.ndarray:
        means = own["lambdas"][labels]
        shapes = np.broadcast_to(own["count_shapes"], means.shape)
        return drawn_counts(random_state, means * random_state.standard_gamma(shapes) / shapes)

    @classmethod
    def drawn_components(cls, wanted: Wanted, random_state: np.random.RandomState) -> Profile:
        drawn = super().drawn_components(wanted, random_state)
        return drawn | {"count_shapes": np.full(wanted.n_columns, _SHAPE)}

    @classmethod
    def profile(cls, own: Profile, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        means = own["lambdas"]
        return profile_of_means(means, means * (1.0 + means / own["count_shapes"]), weights)
