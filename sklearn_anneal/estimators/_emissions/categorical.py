"""Columns of categories, and frames that are single symbols."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator

from ...data.tables import Coded
from ...families import Natural
from ...models.components._base import Profile, log_means
from ...models.components.categorical import CategoricalComponents
from ...models.components.categorical_columns import CategoricalColumns
from .._attributes import Attributes
from .._given_starts import given_probabilities
from .._priors import auto_as_none, checked_prior, is_auto, numbers_of, refuse_nonpositive
from .._validation import check_largest_id, hint_of_one
from ._base import Emission, Wanted, refuse_cells
from ._levels import PROBABILITIES, coded, drawn_levels, levels_of

# The default prior concentration of a symbol is 1 / (number of symbols), but never below this.
LEAST_CONCENTRATION = 0.1


class CategoricalEmission(Emission[CategoricalColumns]):
    """Columns of categories, each with its own number of them."""

    title = "Columns of categories"
    prior_parameters = {"emissionprob_prior": True}
    fitted_attributes = (*PROBABILITIES, "n_categories_")
    positive_only = True
    has_levels = True

    @classmethod
    def of_frames(cls) -> type[Emission]:
        return SymbolEmission

    @classmethod
    def cells(cls, X: Any, n_components: int, declared: Any, parameter: str) -> Coded:
        if issparse(X):
            raise TypeError(
                "Categories cannot be sparse, because a zero is a category like the others. Give "
                "a dense array."
            )
        chunks = levels_of(X, "Categories are integers 0, 1, … (−1 or NaN where one is missing)")
        n = X.shape[1]
        most = np.max([c.max(axis=0, initial=-1) for c in chunks], axis=0).astype(int)
        if declared is None:
            column = int(most.argmax())
            check_largest_id(int(most[column]), len(X), "category", "rows", parameter)
            n_levels = np.maximum(most + 1, 1)
        else:
            if np.shape(declared) not in ((), (1,), (n,)):
                raise ValueError(
                    "The declared numbers of categories should be one number or one for each of "
                    f"the {n} columns of categories, but have the shape {np.shape(declared)}."
                )
            n_levels = np.broadcast_to(declared, (n,))
            beyond = np.flatnonzero(most >= n_levels)
            if len(beyond):
                c = int(beyond[0])
                raise ValueError(
                    f"Column {c} of the categories has the category {most[c]}, which was not "
                    f"declared: it has {n_levels[c]} categories, from 0 to {n_levels[c] - 1}. Fit "
                    f"with {parameter} of at least {most[c] + 1} to allow for categories that the "
                    "training data do not have."
                    + hint_of_one(
                        np.concatenate([chunk[:, c] for chunk in chunks]), n_levels[c], "X"
                    )
                )
        return coded(chunks, n_levels, n_components, n)

    @classmethod
    def components(cls, estimator: BaseEstimator, rows: Any) -> CategoricalColumns:
        k, n_levels = estimator._number, rows.packing.n_levels
        value = estimator.emissionprob_prior
        if auto_as_none(value) is not None:
            refuse_nonpositive(numbers_of(value, "emissionprob_prior"), "emissionprob_prior")
        priors = [
            checked_prior(value, estimator._usual_concentration(n), (k, n), "emissionprob_prior")
            for n in n_levels
        ]
        return CategoricalColumns(k, n_levels, priors, is_auto(value))

    @classmethod
    def attributes(
        cls, components: CategoricalColumns, q: Natural, prior: Natural, summary: object
    ) -> Attributes:
        return {
            "emissionprob_": components.probabilities(q),
            "emissionprob_posterior_": components.columns(q),
            "emissionprob_prior_": components.columns(prior),
            "n_categories_": np.array(components.n_levels),
        }

    @classmethod
    def given(
        cls, components: CategoricalColumns, key: str, value: object, name: str
    ) -> list[np.ndarray]:
        k, n_features = components.n_components, components.n_features
        if not isinstance(value, list | tuple) or len(value) != n_features:
            raise ValueError(
                f"The parameter '{name}' should be a list of one array for each of the "
                f"{n_features} columns of categories."
            )
        return [
            given_probabilities(one, (k, n), f"{name}[{i}]")
            for i, (one, n) in enumerate(zip(value, components.n_levels, strict=True))
        ]

    @classmethod
    def draw(
        cls, own: Profile, labels: np.ndarray, random_state: np.random.RandomState
    ) -> np.ndarray:
        columns = [drawn_levels(p, labels, random_state) for p in own["emissionprob"]]
        return np.column_stack(columns)

    @classmethod
    def drawn_components(cls, wanted: Wanted, random_state: np.random.RandomState) -> Profile:
        (k, d), n = wanted.size, wanted.n_categories
        concentration = np.full(n, 1.0 / wanted.separation)
        drawn = [random_state.dirichlet(concentration, k) for _ in range(d)]
        return {"emissionprob": drawn, "n_categories": np.full(d, n)}

    @classmethod
    def profile(cls, own: Profile, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return np.hstack(own["emissionprob"]).T, None


class SymbolEmission(Emission[CategoricalComponents]):
    """Frames that each hold one symbol out of a fixed set."""

    title = "Symbols"
    init_params = ("random", "segments")
    prior_parameters = CategoricalEmission.prior_parameters
    fitted_attributes = (*PROBABILITIES, "n_symbols_")
    has_levels = True

    @classmethod
    def encode(cls, X: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        if X.shape[1] != 1:
            raise ValueError(
                "With emission='categorical', X has one column, the symbol of each frame, but it "
                f"has {X.shape[1]}. Use emission='bernoulli' or 'poisson' for vectors."
            )
        column = X[:, 0]
        missing = np.isnan(column) | (column == -1)
        seen = column[~missing]
        refuse_cells(
            (seen != np.floor(seen)) | (seen < 0),
            seen,
            "Symbols are integers 0, 1, … (−1 or NaN where a frame is missing)",
        )
        refuse_cells(seen > np.iinfo(np.int32).max, seen, "Symbols are numbers below 2 ** 31")
        symbols = np.where(missing, -1, column).astype(np.int32)
        return symbols, missing if missing.any() else None

    @classmethod
    def check_first_batch(cls, estimator: BaseEstimator, rows: Any) -> None:
        if estimator.n_symbols is None:
            raise ValueError(
                "partial_fit needs n_symbols: the first batch does not tell which symbols the "
                "others will have."
            )

    @classmethod
    def check_symbols(cls, column: np.ndarray, declared: object) -> None:
        """Check that there are as many symbols as declared, or not too many if none are.

        Raises
        ------
        ValueError
            If a symbol is too large, or several numbers are declared for one column.
        """
        if declared is not None:
            if not isinstance(declared, Integral):
                raise ValueError(
                    "With emission='categorical', n_symbols is the number of symbols; several "
                    f"numbers are for blocks of columns. It is {declared!r}."
                )
            with np.errstate(invalid="ignore"):
                unknown = column[column >= declared]
            if len(unknown):
                raise ValueError(
                    f"Symbol {unknown[0]:g} was not declared: there are {declared} symbols, from 0 "
                    f"to {declared - 1}. Fit with n_symbols={int(unknown.max()) + 1} (or more) to "
                    "allow for symbols that the training data do not have."
                    + hint_of_one(column, int(declared), "X")
                )
            return
        symbols = column[column >= 0]
        largest = symbols.max(initial=0)
        # Numbers that are no symbols at all are refused later, where symbols are encoded.
        if largest == np.floor(largest) and largest < 2**31:
            check_largest_id(int(largest), len(symbols), "symbol", "frames", "n_symbols")

    @classmethod
    def components(cls, estimator: BaseEstimator, rows: Any) -> CategoricalComponents:
        n_symbols = estimator.n_symbols
        if n_symbols is None:
            n_symbols = max(int(rows.max(initial=-1)) + 1, 1)
        k = estimator._number
        default = max(1.0 / n_symbols, LEAST_CONCENTRATION)
        prior = checked_prior(
            estimator.emissionprob_prior, default, (k, n_symbols), "emissionprob_prior"
        )
        return CategoricalComponents(k, prior, is_auto(estimator.emissionprob_prior))

    @classmethod
    def attributes(
        cls, components: CategoricalComponents, q: Natural, prior: Natural, summary: object
    ) -> Attributes:
        return {
            "emissionprob_": np.exp(log_means(q["emissionprob"])),
            "emissionprob_posterior_": q["emissionprob"],
            "emissionprob_prior_": prior["emissionprob"],
            "n_symbols_": components.n_symbols,
        }

    @classmethod
    def given(
        cls, components: CategoricalComponents, key: str, value: object, name: str
    ) -> np.ndarray:
        return given_probabilities(value, (components.n_components, components.n_symbols), name)

    @classmethod
    def draw(
        cls, own: Profile, labels: np.ndarray, random_state: np.random.RandomState
    ) -> np.ndarray:
        return drawn_levels(own["emissionprob"], labels, random_state)[:, None]

    @classmethod
    def drawn_components(cls, wanted: Wanted, random_state: np.random.RandomState) -> Profile:
        concentration = np.full(wanted.n_categories, 1.0 / wanted.separation)
        return {"emissionprob": random_state.dirichlet(concentration, wanted.n_components)}

    @classmethod
    def profile(cls, own: Profile, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return np.asarray(own["emissionprob"]).T, None
