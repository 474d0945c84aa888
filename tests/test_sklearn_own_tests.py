"""scikit-learn's own tests of the classes that ours replace, with our classes in their place."""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
from peer_priors import PEER_OF_MIXTURES, PEER_OF_TOPICS
from sklearn.base import clone
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.mixture import BayesianGaussianMixture

from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedLatentDirichletAllocation


class MustFail(NamedTuple):
    """Why a test of scikit-learn cannot pass, and with which arguments."""

    reason: str
    concerns: Callable[[dict[str, Any]], bool] = lambda arguments: True


class Peer(NamedTuple):
    """A class of scikit-learn, ours that replaces it, and where its tests are.

    ``priors`` selects the priors of scikit-learn where ours are others. ``known`` are names of
    tests that have to be found, so that a new layout of scikit-learn's tests is not taken for
    success.
    """

    original: type
    ours: type
    priors: dict[str, None]
    modules: tuple[str, ...]
    known: set[str]
    must_fail: dict[str, MustFail]

    @property
    def name(self) -> str:
        return self.original.__name__

    def replacement(self, *args: Any, **parameters: Any) -> Any:
        """Ours under the name of scikit-learn's, which its tests look for in messages."""
        cls = type(self.name, (self.ours,), {"__module__": __name__})
        return cls(*args, annealing="none", **self.priors | parameters)


PEERS = (
    Peer(
        BayesianGaussianMixture,
        AnnealedBayesianGaussianMixture,
        PEER_OF_MIXTURES,
        tuple(
            f"sklearn.mixture.tests.{name}"
            for name in ("test_bayesian_mixture", "test_mixture", "test_gaussian_mixture")
        ),
        {"test_monotonic_likelihood", "test_gaussian_mixture_n_iter"},
        {
            "test_compare_covar_type": MustFail(
                "compares the covariance types through the private methods _check_parameters and "
                "_initialize_parameters"
            ),
        },
    ),
    Peer(
        LatentDirichletAllocation,
        AnnealedLatentDirichletAllocation,
        PEER_OF_TOPICS,
        ("sklearn.decomposition.tests.test_online_lda",),
        {"test_lda_fit_batch", "test_lda_multi_jobs", "test_verbosity"},
        {
            "test_lda_preplexity_mismatch": MustFail(
                "calls the private method _perplexity_precomp_distr with topic proportions of its "
                "own; ours infers them and has no such method"
            ),
            "test_lda_score_perplexity": MustFail(
                "asks for perplexity = exp(-score / tokens), but our score is the log-likelihood "
                "of held-out halves per token, and our perplexity leaves the topics' divergence out"
            ),
            "test_lda_empty_docs": MustFail(
                "fits a corpus without a single word, which ours refuses: nothing can be learned"
            ),
            "test_verbosity": MustFail(
                "counts lines and the word 'perplexity' in what is printed; ours prints the lower "
                "bound after every pass, and says how the fit begins and why it ends",
                lambda arguments: arguments["expected_lines"] > 0,
            ),
        },
    ),
)
"""Classes, and the tests of scikit-learn that ours cannot pass."""

FIXTURES = {"global_dtype": (np.float32, np.float64), "global_random_seed": (0, 1, 2)}
"""What stands in for the fixtures of scikit-learn's own configuration of pytest."""


def parameter_sets(function):
    """The keyword arguments of all calls that the parametrisation of a test asks for."""
    axes, given = [], set()
    for mark in getattr(function, "pytestmark", []):
        if mark.name != "parametrize":
            continue
        names, values = mark.args
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        rows = [getattr(value, "values", value) for value in values]
        rows = [row if isinstance(row, tuple) else (row,) for row in rows]
        given.update(names)
        axes.append([dict(zip(names, row, strict=True)) for row in rows])
    for name in inspect.signature(function).parameters:
        if name in FIXTURES and name not in given:
            axes.append([{name: value} for value in FIXTURES[name]])
    for parts in itertools.product(*axes):
        yield {name: value for part in parts for name, value in part.items()}


def imported(module_name):
    """A module of scikit-learn's tests, or None where they are not installed."""
    # Its own configuration of pytest declares marks that ours refuses as unknown.
    lenient = type(pytest.mark)(_ispytest=True)
    with mock.patch.object(pytest, "mark", lenient):
        try:
            return importlib.import_module(module_name)
        except ImportError:
            return None


def mentions(function, name, module):
    """Whether a function names the class, or calls a helper of its module that does."""
    pending, seen = [function], set()
    while pending:
        names = set(inspect.unwrap(pending.pop()).__code__.co_names) - seen
        if name in names:
            return True
        seen |= names
        helpers = (getattr(module, other, None) for other in names)
        pending += [
            helper
            for helper in helpers
            if inspect.isfunction(helper) and helper.__module__ == module.__name__
        ]
    return False


def cases():
    """Peer, module, name and arguments of every test that makes or is given a class."""
    for peer in PEERS:
        for module_name in peer.modules:
            module = imported(module_name)
            if module is None:
                continue
            for name, function in inspect.getmembers(module, inspect.isfunction):
                if not name.startswith("test_") or function.__module__ != module.__name__:
                    continue
                for arguments in parameter_sets(function):
                    given = any(isinstance(v, peer.original) for v in arguments.values())
                    if given or mentions(function, peer.name, module):
                        yield peer, module, name, arguments


CASES = list(cases())


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_tests_were_found(peer):
    found = [(name, arguments) for other, _, name, arguments in CASES if other is peer]
    if not found:
        pytest.skip("this scikit-learn was installed without its tests")
    assert peer.known <= {name for name, _ in found}
    for name, why in peer.must_fail.items():
        assert any(name == other and why.concerns(arguments) for other, arguments in found), (
            f"{name}, which must fail, is no longer among scikit-learn's tests"
        )


@pytest.mark.parametrize(
    ("peer", "module", "name", "arguments"),
    CASES,
    ids=[f"{name}-{i}" for i, (_, _, name, _) in enumerate(CASES)],
)
def test_passes_with_our_class(peer, module, name, arguments, monkeypatch):
    monkeypatch.setattr(module, peer.name, peer.replacement, raising=False)
    arguments = {
        key: peer.replacement(**clone(value).get_params())
        if isinstance(value, peer.original)
        else value
        for key, value in arguments.items()
    }
    function = getattr(module, name)
    why = peer.must_fail.get(name)
    if why is None or not why.concerns(arguments):
        function(**arguments)
        return
    try:
        function(**arguments)
    except (Exception, pytest.fail.Exception):
        return
    pytest.fail(f"{name} passes; take it off the list of tests that must fail: {why.reason}")
