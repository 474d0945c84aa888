"""Rotations of factors, which change neither predicted ratings nor the lower bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import orthogonal_procrustes

from ..families import Natural
from ..families._structure import lower_triangle
from ._rating_visits import blocks

if TYPE_CHECKING:
    from .matrix_factorization import MatrixFactorization


def turned_towards(
    model: MatrixFactorization, q: Natural, means: np.ndarray
) -> tuple[MatrixFactorization, Natural, Natural]:
    """Return the model, its prior and q, turned until items are as near to ``means`` as possible.

    A fit finds factors up to a rotation, since their prior is the same in all directions. Turned
    towards those of an earlier fit they keep their meaning, as far as this is still there.

    Parameters
    ----------
    model : MatrixFactorization
        Users are local variables in it.
    q : dict of ndarray
    means : ndarray of shape (n_items, D)
        Means of the factors of items, and of their biases as the last column, where there are any.
    """
    d, size = model.n_components, model.size
    found, rotation = model.expectations(q).mean, np.eye(size)
    rotation[:d, :d] = orthogonal_procrustes(found[:, :d], means[:, :d])[0]
    precision, (rows, columns) = q["items_precision"].copy(), lower_triangle(size)
    for some in blocks(len(precision), size**2):
        full = np.empty((len(precision[some]), size, size))
        full[:, rows, columns] = full[:, columns, rows] = precision[some]
        # x' = R x has the precision matrix R P Rᵀ, and its natural mean is R P m.
        precision[some] = (rotation.T @ full @ rotation)[:, rows, columns]
    turned = {
        "items_precision": precision,
        "items_natural_mean": q["items_natural_mean"] @ rotation,
    }
    model = model.turned(rotation.T)
    return model, model._prior(), q | turned
