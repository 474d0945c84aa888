"""Helpers of test_missing_cells.py: data with missing cells, and integrals over cells."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
from models import gaussian_mixture

(MIXTURE,) = gaussian_mixture.ENTRIES
TYPES = ("full", "tied", "diag", "spherical")
FORMS = tuple(product(TYPES, ("joint", "independent")))


def with_gaps(data, share=0.25):
    """A function that draws rows as ``data`` does and deletes cells, and all cells of some rows."""

    def draw(rng, n):
        X = data(rng, n)
        X[rng.random(X.shape) < share] = np.nan
        X[n // 2] = np.nan
        X[0] = data(rng, 1)[0]
        return X

    return draw


# The mixtures of the common tests, with data that have missing cells.
GAPPED = replace(MIXTURE, data=with_gaps(MIXTURE.data))


def nodes(center, reach, n=400):
    """Points and weights of an integral over center ± reach, of a smooth density inside it."""
    step = 2 * reach / n
    return center - reach + step * (np.arange(n) + 0.5), np.full(n, step)


def filled(row, column, values):
    """Copies of a row with each of the values in one column."""
    rows = np.tile(row, (len(values), 1))
    rows[:, column] = values
    return rows
