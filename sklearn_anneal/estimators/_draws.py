"""Multiple imputation: several tables whose missing cells are draws."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ..annealing import Context
from ..data.units import Rows
from ..models._draws import drawn_labels
from ..models.mixture import Mixture
from ._mixture_predictions import OVERFLOW
from ._validation import finite


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


def drawn_tables(ctx: Context, rows: Rows, n_draws: int, random_state: Any) -> Iterator[np.ndarray]:
    """Yield draws of the missing cells of all rows from their posterior predictive distribution.

    For each table, the parameters are drawn from q once. Given them, the component of each row is
    drawn from p(z | x_o), and then its missing cells from p(x_m | x_o, z).

    Parameters
    ----------
    ctx : Context
        The fitted mixture.
    rows : Rows
    n_draws : int
    random_state : int, RandomState instance or None

    Yields
    ------
    table : ndarray of shape (n_rows, n_features)
        Float64. Only cells that are missing have a use for their values.
    """
    model: Mixture = ctx.model
    for rng in generators(n_draws, random_state):
        expected = model.expectations(ctx.q, rng)
        log_joint = finite(model.log_joint(rows, model.for_rows(expected, rows)), OVERFLOW)
        labels = drawn_labels(log_joint, rng)
        yield model.components.drawn_rows(rows, labels, expected.own, rng)
