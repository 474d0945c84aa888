"""Columns of counts."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ...models._draws import drawn_counts
from ...models.components._base import Profile
from ...models.components._gamma_rates import GammaRates
from ...models.components.poisson import PoissonComponents
from ._base import Wanted, profile_of_means, refuse_cells
from ._levels import CELLS_AT_A_TIME
from ._rates import EmissionOfRates

# The mean of all rates that are drawn for random data.
_MEAN_COUNT = 5.0


class PoissonEmission(EmissionOfRates):
    """Columns of counts, each with a rate in every component."""

    title = "Columns of counts"
    distributions: ClassVar[type[GammaRates]] = PoissonComponents
    sparse = True
    positive_only = True
    counts_words = True

    @classmethod
    def check(cls, values: np.ndarray) -> None:
        if values.dtype.kind == "b":
            return
        n = max(CELLS_AT_A_TIME // max(values[:1].size, 1), 1)
        for start in range(0, len(values), n):
            part = values[start : start + n]
            with np.errstate(invalid="ignore"):
                bad = (part < 0) | (part != np.floor(part))
            if bad.any():
                refuse_cells(bad & ~np.isnan(part), part, "Counts are integers 0, 1, …")

    @classmethod
    def draw(
        cls, own: Profile, labels: np.ndarray, random_state: np.random.RandomState
    ) -> np.ndarray:
        return drawn_counts(random_state, own["lambdas"][labels])

    @classmethod
    def drawn_components(cls, wanted: Wanted, random_state: np.random.RandomState) -> Profile:
        scale = _MEAN_COUNT * wanted.separation
        return {"lambdas": random_state.gamma(1.0 / wanted.separation, scale, wanted.size)}

    @classmethod
    def profile(cls, own: Profile, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return profile_of_means(own["lambdas"], own["lambdas"], weights)
