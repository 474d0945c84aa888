"""A weight of zero is absence: what such a data point holds has no part in a fit."""

from __future__ import annotations

import numpy as np
import pytest
from harness import assert_identical, crossed, quick, variants
from scipy.sparse import csr_matrix, issparse

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedHMM,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
METHODS = ("none", "reheating", "svi_plus", "local_tempering")


def first_variants():
    return [pair for pair in variants() if pair.values[1] is pair.values[0].first]


def extreme(values, categories):
    """Other values of the same kind, column by column; larger ones if there can be any."""
    values = np.array(values, copy=True)
    for column in values.T if values.ndim > 1 else [values]:
        known = ~np.isnan(column.astype(float)) & (column != -1)
        if np.isin(column[known], (0, 1)).all():
            column[known] = 1 - column[known]
        elif (column[known] == np.floor(column[known])).all():
            # Categories that are not declared would be refused.
            column[known] = column[known].max() - column[known] if categories else column[known] + 3
        else:
            column[known] *= 1e3
    return values


def with_extremes(entry, X, absent):
    """The same data, in which the absent units have extreme values."""
    counts = np.ones(len(absent), dtype=int)
    categories = "categorical" in entry.name or "blocks" in entry.name
    if isinstance(X, list):
        return [extreme(x, categories) if gone else x for x, gone in zip(X, absent, strict=True)]
    if issparse(X):
        rows = np.repeat(absent, np.diff(X.indptr))
        data = X.data.copy()
        data[rows] = extreme(data[rows], categories)
        return csr_matrix((data, X.indices, X.indptr), shape=X.shape)
    changed = np.array(entry.repeat(X, counts), copy=True)
    changed[absent] = extreme(changed[absent], categories)
    return changed


@pytest.mark.parametrize(("entry", "params", "name"), crossed(first_variants(), METHODS))
def test_a_fit_is_that_without_the_data_points_of_weight_zero(entry, params, name, rng):
    X = entry.data(rng, 60)
    present = (np.arange(60) % 4 > 0).astype(int)
    settings = {**params, "annealing": quick(name), "max_iter": 6, "n_jobs": 1}
    kept = entry.repeat(X, present)
    ones = entry.row_weights(kept, np.ones(present.sum()))
    without = entry.make(**settings).fit(kept, sample_weight=ones)
    ratings = "matrix_factorization" in entry.name
    if not ratings:
        X = with_extremes(entry, X, present == 0)
    weights = entry.row_weights(X, present.astype(float))
    weighted = entry.make(**settings).fit(X, sample_weight=weights)
    if ratings:
        # Users of weight zero have factors, for which random numbers are drawn in some methods.
        if name == "none":
            np.testing.assert_allclose(weighted.lower_bounds_, without.lower_bounds_, rtol=1e-9)
        return
    np.testing.assert_array_equal(weighted.lower_bounds_, without.lower_bounds_)
    assert_identical(weighted, without)


def test_rows_of_weight_zero_do_not_declare_categories(rng):
    X = rng.integers(0, 3, size=(40, 2))
    blocks = [("answers", "categorical", [0, 1]), ("sizes", "gaussian", [2])]
    weights = np.repeat([1.0, 0.0], [40, 5])
    odd = np.vstack([X, np.full((5, 2), 9)])
    est = AnnealedBayesianMixture(2, emission="categorical", random_state=0)
    fitted = est.fit(odd, sample_weight=weights)
    np.testing.assert_array_equal(fitted.n_categories_, [3, 3])
    assert fitted.bic(X) == pytest.approx(est.fit(X).bic(X), rel=1e-9)
    sizes = rng.standard_normal((45, 1))
    est = AnnealedBayesianMixture(2, emission=blocks, random_state=0)
    fitted = est.fit(np.hstack([odd, sizes]), sample_weight=weights)
    np.testing.assert_array_equal(fitted.blocks_["answers"].n_categories_, [3, 3])
    est.set_params(n_categories=12)
    fitted = est.fit(np.hstack([odd, sizes]), sample_weight=weights)
    np.testing.assert_array_equal(fitted.blocks_["answers"].n_categories_, [12, 12])


def test_rows_of_weight_zero_have_no_part_in_the_start(rng):
    """k-means measures distances in units of all rows that it is given."""
    X = np.repeat(10 * np.eye(3), 30, axis=0) + rng.normal(size=(90, 3))
    far = np.vstack([X, np.full((4, 3), 1e9)])
    est = AnnealedBayesianGaussianMixture(n_components=3, random_state=0)
    weighted = est.fit(far, sample_weight=np.repeat([1.0, 0.0], [90, 4]))
    bounds, means = weighted.lower_bounds_, weighted.means_
    est.fit(X, sample_weight=np.ones(90))
    np.testing.assert_array_equal(bounds, est.lower_bounds_)
    np.testing.assert_array_equal(means, est.means_)


def test_sequences_of_weight_zero_do_not_reach_the_tables(rng):
    """Their symbols are beyond the tables, so that a kernel must not read them."""
    symbols = np.append(rng.integers(0, 3, 60), np.full(40, 2_000))[:, None]
    weights = np.repeat([1.0, 0.0], [60, 40])
    est = AnnealedHMM(2, emission="categorical", random_state=0)
    fitted = est.fit(symbols, lengths=[30, 30, 40], sample_weight=weights)
    assert fitted.n_symbols_ == 3
    bounds = fitted.lower_bounds_
    est.fit(symbols[:60], lengths=[30, 30], sample_weight=np.ones(60))
    np.testing.assert_array_equal(bounds, est.lower_bounds_)
