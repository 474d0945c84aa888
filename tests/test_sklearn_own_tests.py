"""scikit-learn's own tests of its `BayesianGaussianMixture`, with our class in its place."""

from __future__ import annotations

import importlib
import inspect
import itertools

import pytest
from sklearn.base import clone
from sklearn.mixture import BayesianGaussianMixture

from sklearn_anneal import AnnealedBayesianGaussianMixture

NAME = BayesianGaussianMixture.__name__
MODULES = ("test_bayesian_mixture", "test_mixture", "test_gaussian_mixture")

MUST_FAIL = {
    "test_compare_covar_type": (
        "compares the covariance types through the private methods _check_parameters and "
        "_initialize_parameters"
    ),
}
"""Tests of scikit-learn that our class cannot pass, and why not."""


class Replacement(AnnealedBayesianGaussianMixture):
    """Our class under the name of scikit-learn's, which its tests look for in messages."""


Replacement.__name__ = Replacement.__qualname__ = NAME


def replacement(**parameters):
    return Replacement(annealing="none", **parameters)


def parameter_sets(function):
    """The keyword arguments of all calls that the parametrisation of a test asks for."""
    axes = []
    for mark in getattr(function, "pytestmark", []):
        if mark.name != "parametrize":
            continue
        names, values = mark.args
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        rows = [getattr(value, "values", value) for value in values]
        rows = [row if isinstance(row, tuple) else (row,) for row in rows]
        axes.append([dict(zip(names, row, strict=True)) for row in rows])
    for parts in itertools.product(*axes):
        yield {name: value for part in parts for name, value in part.items()}


def cases():
    """Module, name and keyword arguments of every test that makes or is given the class."""
    for module_name in MODULES:
        try:
            module = importlib.import_module(f"sklearn.mixture.tests.{module_name}")
        except ImportError:
            continue
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if not name.startswith("test_") or function.__module__ != module.__name__:
                continue
            for arguments in parameter_sets(function):
                given = any(isinstance(v, BayesianGaussianMixture) for v in arguments.values())
                if given or NAME in function.__code__.co_names:
                    yield module, name, arguments


CASES = list(cases())


def test_tests_were_found():
    if not CASES:
        pytest.skip("this scikit-learn was installed without its tests")
    names = {name for _, name, _ in CASES}
    assert {"test_monotonic_likelihood", "test_gaussian_mixture_n_iter"} <= names
    assert names >= set(MUST_FAIL), "a test that must fail is no longer there"


@pytest.mark.parametrize(
    ("module", "name", "arguments"),
    CASES,
    ids=[f"{name}-{i}" for i, (_, name, _) in enumerate(CASES)],
)
def test_passes_with_our_class(module, name, arguments, monkeypatch):
    monkeypatch.setattr(module, NAME, replacement, raising=False)
    arguments = {
        key: replacement(**clone(value).get_params())
        if isinstance(value, BayesianGaussianMixture)
        else value
        for key, value in arguments.items()
    }
    function = getattr(module, name)
    if name not in MUST_FAIL:
        function(**arguments)
        return
    try:
        function(**arguments)
    except (Exception, pytest.fail.Exception):
        return
    pytest.fail(f"{name} passes; take it off the list of tests that must fail")
