"""Which settings are the same, when a fitted estimator goes on with them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.annealing import NoAnnealing
from sklearn_anneal.estimators._state import same


@dataclass
class Table:
    values: np.ndarray


class Told:
    def __init__(self, values):
        self.values = values

    def __call__(self, t):
        return self.values[t]


def shifted(values, t):
    return values[t]


def held(values):
    """Values of a parameter that hold an array, in ways in which ``==`` does not compare them."""
    several = np.empty(2, dtype=object)
    several[:] = [values, values[:1]]
    return {
        "array": values,
        "dict": {"a": {"b": values}},
        "dicts in a list": [{"a": values}, None],
        "dicts in a tuple": ({"a": values}, None),
        "array of arrays": several,
        "dataclass": Table(values),
        "object": Told(values),
        "dict of objects": {"a": Table(values)},
        "partial": partial(shifted, values),
        "partial of a lambda": partial(LAMBDA, values),
        "method": Told(values).__call__,
        "estimator": OneSetting(Table(values)),
    }


LAMBDA = lambda values, t: values[t]  # noqa: E731


class OneSetting(NoAnnealing):
    def __init__(self, setting=None):
        self.setting = setting


@pytest.mark.parametrize("name", held(np.zeros(2)))
def test_settings_that_hold_arrays_are_compared_by_what_they_hold(name, rng):
    """A stream goes on with an equal setting, and a different one is named."""
    X = rng.normal(size=(30, 2))

    def method(last):
        return OneSetting(held(np.array([1.0, last]))[name])

    est = AnnealedBayesianGaussianMixture(annealing=method(2.0)).partial_fit(X)
    est.set_params(annealing=method(2.0)).partial_fit(X)
    with pytest.raises(ValueError, match="Restore annealing"):
        est.set_params(annealing=method(3.0)).partial_fit(X)


def test_lists_and_arrays_of_equal_settings_are_the_same():
    for one, other in (([1, 2], np.array([1.0, 2.0])), ([{"a": np.ones(2)}], ({"a": [1, 1]},))):
        assert same(one, other) and same(other, one)
    for one, other in (([5], 5), ([{"a": 1}], {"a": 1}), ([1, 2], np.ones((2, 2))), (None, 0)):
        assert not same(one, other) and not same(other, one)
    assert same([np.nan, 1.0], np.array([np.nan, 1.0]))
