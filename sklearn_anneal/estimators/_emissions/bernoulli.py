"""Columns of zeros and ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator

from ...families import Natural
from ...models.components._base import Profile
from ...models.components.bernoulli import BernoulliComponents
from .._attributes import Attributes
from .._given_starts import given_in_range
from .._priors import checked_prior, is_auto
from ._base import Emission, Wanted, as_floats, filled, refuse_cells
from ._levels import PROBABILITIES, coded, levels_of

# The way out for those who leave the parameter at its default, which is "bernoulli".
_OTHER_EMISSIONS = (
    'The parameter emission says how columns are distributed: "categorical", "poisson" or '
    '"gaussian", for example, or a list of (name, emission, columns) if they are of several kinds.'
)


class BernoulliEmission(Emission[BernoulliComponents]):
    """Columns of zeros and ones, each with a probability of ones in every component."""

    title = "Binary columns"
    prior_parameters = {"emissionprob_prior": True}
    fitted_attributes = PROBABILITIES
    sparse = True
    positive_only = True

    @classmethod
    def cells(cls, X: Any, n_components: int, declared: Any, parameter: str) -> Any:
        try:
            if issparse(X):
                known = X.data[~np.isnan(X.data)]
                refuse_cells((known != 0) & (known != 1), known, "Binary columns are of 0 and 1")
                return as_floats(X)
            text = "Binary columns are of 0 and 1 (−1 or NaN where a cell is missing)"
            chunks = levels_of(X, text, largest=1)
        except ValueError as error:
            raise ValueError(f"{error} {_OTHER_EMISSIONS}") from None
        return coded(chunks, [2] * X.shape[1], n_components, X.shape[1])

    @classmethod
    def encode(cls, X: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        frames, missing = filled(X)
        bad = (frames != 0) & (frames != 1) & ~np.isnan(frames)
        refuse_cells(bad, frames, "Binary vectors are of 0 and 1")
        return frames, missing

    @classmethod
    def components(cls, estimator: BaseEstimator, rows: Any) -> BernoulliComponents:
        k, d = estimator._number, rows.shape[1]
        prior = checked_prior(estimator.emissionprob_prior, 1.0, (k, d), "emissionprob_prior")
        learns = is_auto(estimator.emissionprob_prior)
        return BernoulliComponents(k, d, prior, prior, learns)

    @classmethod
    def given(
        cls, components: BernoulliComponents, key: str, value: object, name: str
    ) -> np.ndarray:
        shape = components.n_components, components.n_features
        return given_in_range(value, shape, name, 0.0, 1.0)

    @classmethod
    def attributes(
        cls, components: BernoulliComponents, q: Natural, prior: Natural, summary: object
    ) -> Attributes:
        return {
            "emissionprob_": q["a"] / (q["a"] + q["b"]),
            "emissionprob_posterior_": np.stack([q["a"], q["b"]], axis=-1),
            "emissionprob_prior_": np.stack([prior["a"], prior["b"]], axis=-1),
        }

    @classmethod
    def draw(
        cls, own: Profile, labels: np.ndarray, random_state: np.random.RandomState
    ) -> np.ndarray:
        p = own["emissionprob"][labels]
        return (random_state.random_sample(p.shape) < p).astype(np.int64)

    @classmethod
    def drawn_components(cls, wanted: Wanted, random_state: np.random.RandomState) -> Profile:
        concentration = 1.0 / wanted.separation
        return {"emissionprob": random_state.beta(concentration, concentration, wanted.size)}

    @classmethod
    def profile(cls, own: Profile, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return np.asarray(own["emissionprob"]).T, None
