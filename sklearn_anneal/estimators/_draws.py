"""Multiple imputation: several tables whose missing cells are draws."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from ..annealing import Context
from ..data.units import Rows
from ..models._draws import drawn_labels
from ..models.mixture import Mixture
from ._mixture_predictions import OVERFLOW
from ._validation import finite

if TYPE_CHECKING:
    from ._mixture_predictions import MixturePredictions


def without_names(estimator: MixturePredictions) -> MixturePredictions:
    """Return a copy of a fitted mixture that reads arrays without a warning of missing names."""
    found = copy.copy(estimator)
    vars(found).pop("feature_names_in_", None)
    return found


def check_n_draws(n_draws: Any, return_std: bool) -> None:
    """Refuse a number of tables that is below 1 or no integer, and deviations beside draws."""
    if isinstance(n_draws, bool) or not isinstance(n_draws, Integral) or n_draws < 1:
        raise ValueError(
            f"n_draws is the number of tables, an integer of at least 1, or None; got {n_draws!r}."
        )
    if return_std:
        raise ValueError(
            "return_std=True is for means (n_draws=None): draws have no standard deviations of "
            "their own, but differ from each other by them."
        )


def generators(n_draws: int, random_state: Any) -> Iterator[np.random.Generator]:
    """Yield a generator for each table; the first ones are the same for more tables."""
    seed = check_random_state(random_state).randint(0, 2**31 - 1, size=4)
    for i in range(n_draws):
        yield np.random.default_rng([*seed, i])


def check_rounds(ctx: Context, rows: Rows, n_rounds: Any) -> None:
    """Refuse a number of rounds below 0, and rounds for a table that is not that of the fit."""
    if isinstance(n_rounds, bool) or not isinstance(n_rounds, Integral) or int(n_rounds) < 0:
        raise ValueError(f"n_rounds is an integer of at least 0; got {n_rounds!r}.")
    fitted = float(ctx.model.expected_counts(ctx.q, ctx.prior).sum())
    if int(n_rounds) > 0 and ctx.model.weights.differ:
        raise ValueError(
            "n_rounds draws all parameters from their posterior given complete rows, which the "
            "coefficients of covariates do not have in closed form. Give n_rounds=0."
        )
    if int(n_rounds) > 0 and abs(fitted - rows.n_units) > 1e-3 * fitted:
        raise ValueError(
            "n_rounds is for the table of the fit, from which the parameters are drawn again: that "
            f"had {fitted:g} rows (the sum of their weights), but X has {rows.n_units}. Give "
            "n_rounds=0 for other rows."
        )


def drawn_tables(
    estimator: MixturePredictions,
    rows: Rows,
    complete: Callable[[np.ndarray], np.ndarray],
    n_draws: int,
    n_rounds: int,
    random_state: Any,
) -> np.ndarray:
    """Return tables whose missing cells are draws from their posterior predictive distribution.

    For each table, the parameters are drawn from q once. Given them, the component of each row is
    drawn from p(z | x_o), and then its missing cells from p(x_m | x_o, z). A round of data
    augmentation (Tanner and Wong, 1987) draws the parameters from their posterior given all that
    has been drawn, and then components and cells again.

    Parameters
    ----------
    estimator : MixturePredictions
        A fitted mixture.
    rows : Rows
    complete : callable
        Makes a table as the user has it from cells as the model has them.
    n_draws, n_rounds : int
    random_state : int, RandomState instance or None
        None stands for that of the estimator.

    Returns
    -------
    tables : ndarray of shape (n_draws, n_samples, n_features)
    """
    ctx = estimator._context()
    check_rounds(ctx, rows, n_rounds)
    model: Mixture = ctx.model
    nameless, tables = without_names(estimator), []
    seed = estimator.random_state if random_state is None else random_state
    for rng in generators(n_draws, seed):
        q = ctx.q
        for left in range(n_rounds, -1, -1):
            expected = model.expectations(q, rng)
            of_rows = expected._replace(own=model.components.for_rows(expected.own, rows))
            log_joint = finite(model.log_joint(rows, of_rows), OVERFLOW)
            labels = drawn_labels(log_joint, rng)
            table = complete(model.components.drawn_rows(rows, labels, expected.own, rng))
            if left:
                q = model.posterior_given_components(nameless._again(table)[0], labels, ctx.prior)
        tables.append(table)
    return np.stack(tables)
