"""Multiple imputation: several tables whose missing cells are draws."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn.utils import check_random_state

from ..data.units import Rows
from ..models._draws import drawn_labels
from ..models.mixture import Mixture
from ._validation import OVERFLOW, finite

if TYPE_CHECKING:
    from ._mixture_predictions import MixturePredictions

E = TypeVar("E")


def without_names(estimator: E) -> E:
    """Return a copy of a fitted estimator that reads arrays without a warning of missing names."""
    found = copy.copy(estimator)
    vars(found).pop("feature_names_in_", None)
    return found


def wants_draws(n_draws: Any, n_rounds: Any, return_std: bool) -> bool:
    """Return whether tables are to be drawn, and refuse parameters of draws that make no sense."""
    if isinstance(n_rounds, bool) or not isinstance(n_rounds, Integral) or int(n_rounds) < 0:
        raise ValueError(f"n_rounds is an integer of at least 0; got {n_rounds!r}.")
    if n_draws is None:
        if int(n_rounds) > 0:
            raise ValueError(
                f"n_rounds={n_rounds} is for draws, whose parameters it draws again, and means "
                "(n_draws=None) have none. Give n_draws, or n_rounds=0."
            )
        return False
    if isinstance(n_draws, bool) or not isinstance(n_draws, Integral) or n_draws < 1:
        raise ValueError(
            f"n_draws is the number of tables, an integer of at least 1, or None; got {n_draws!r}."
        )
    if return_std:
        raise ValueError(
            "return_std=True is for means (n_draws=None): draws have no standard deviations of "
            "their own, but differ from each other by them."
        )
    return True


def generators(
    n_draws: int, random_state: int | np.random.RandomState | None
) -> Iterator[np.random.Generator]:
    """Yield a generator for each table; the first ones are the same for more tables."""
    seed = check_random_state(random_state).randint(0, 2**31 - 1, size=4)
    for i in range(n_draws):
        yield np.random.default_rng([*seed, i])


def check_rounds(fitted: float, n_rows: int, n_rounds: int) -> None:
    """Refuse rounds for a table that is not that of the fit, of which ``fitted`` is Σ w."""
    if n_rounds > 0 and abs(fitted - n_rows) > 1e-3 * fitted:
        raise ValueError(
            "n_rounds is for the table of the fit, from which the parameters are drawn again: that "
            f"had {fitted:g} rows (the sum of their weights), but X has {n_rows}. Give n_rounds=0 "
            "for other rows."
        )


def stacked(
    estimator: Any, table: Callable[[np.random.Generator], np.ndarray], n_draws: int, seed: Any
) -> np.ndarray:
    """Return tables that a function draws, each with a generator of its own.

    ``seed`` is the ``random_state`` of the call; None stands for that of the estimator.
    """
    seed = estimator.random_state if seed is None else seed
    return np.stack([table(rng) for rng in generators(n_draws, seed)])


def drawn_tables(
    estimator: MixturePredictions,
    rows: Rows,
    complete: Callable[[np.ndarray], np.ndarray],
    n_draws: int,
    n_rounds: int,
    random_state: int | np.random.RandomState | None,
) -> np.ndarray:
    """Return tables whose missing cells are draws from their posterior predictive distribution.

    For each table, the parameters are drawn from q once. Given them, the component of each row is
    drawn from p(z | x_o), and then its missing cells from p(x_m | x_o, z). A round of data
    augmentation (Tanner and Wong, 1987) draws the parameters from their posterior given all that
    has been drawn, and then components and cells again.

    ``complete`` makes a table as the user has it from cells as the model has them. The result has
    the shape (n_draws, n_samples, n_features).
    """
    ctx = estimator._context()
    model: Mixture = ctx.model
    if n_rounds > 0 and model.weights.differ:
        raise ValueError(
            "n_rounds draws all parameters from their posterior given complete rows, which the "
            "coefficients of covariates do not have in closed form. Give n_rounds=0."
        )
    check_rounds(float(model.expected_counts(ctx.q, ctx.prior).sum()), rows.n_units, n_rounds)
    nameless = without_names(estimator)

    def table(rng: np.random.Generator) -> np.ndarray:
        q = ctx.q
        for left in range(n_rounds, -1, -1):
            expected = model.expectations(q, rng)
            of_rows = expected._replace(own=model.components.for_rows(expected.own, rows))
            log_joint = finite(model.log_joint(rows, of_rows), OVERFLOW)
            labels = drawn_labels(log_joint, rng)
            found = complete(model.components.drawn_rows(rows, labels, expected.own, rng))
            if left:
                again = nameless._again(found)[0]
                how = ctx.prior, expected.own, rng
                q = model.posterior_given_components(again, labels, *how)
        return found

    return stacked(estimator, table, n_draws, random_state)
