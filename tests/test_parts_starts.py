"""Rows of data in parts from which starts are computed."""

from __future__ import annotations

import tracemalloc

import numpy as np

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.data.parts import Here
from sklearn_anneal.estimators._part_fits import _gathered
from sklearn_anneal.estimators._part_sources import Source
from sklearn_anneal.search.problem import ROWS_FOR_STARTS


def _many_rows():
    """A thousand million rows that take no memory."""
    return np.broadcast_to(np.float64(1.0), (10**9, 2))


def test_rows_for_starts_take_no_memory_for_each_row_of_the_data():
    place = Here([False, False])
    estimator = AnnealedBayesianGaussianMixture()
    sources = [Source(i, estimator, _many_rows) for i in range(2)]
    place.put(list(sources))
    tracemalloc.start()
    try:
        found, all_rows = _gathered(place, sources, estimator)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        place.close()
    assert sum(len(X) for _, (X, *_) in found) == ROWS_FOR_STARTS
    assert not all_rows
    assert peak < 20e6
