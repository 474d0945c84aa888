"""Fitted estimators in files of skops, whose reader decides which classes to trust."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

import numpy as np
import pytest
import skops.io
from designs import each_value_of_each_class
from harness import (
    alternating,
    assert_identical,
    combinations,
    models,
    one_of_each_class,
    quick,
    taking_turns,
    variants,
)
from models import ENTRIES, TRAINED_BY_GRADIENTS
from scipy.sparse import csr_array

import sklearn_anneal
from sklearn_anneal import (
    TRUSTED_TYPES,
    AnnealedBayesianMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
    AnnealedSigmoidBeliefNet,
)
from sklearn_anneal.annealing import ANNEALING, DeterministicAnnealing, NoAnnealing
from sklearn_anneal.estimators._persistence import _CLASSES, read, written


def class_name(value):
    return f"{type(value).__module__}.{type(value).__qualname__}"


def loaded(estimator, path, trusted):
    """The estimator from a file that asks for ``trusted`` classes of this package alone."""
    skops.io.dump(estimator, path)
    types = skops.io.get_untrusted_types(file=path)
    # An entry whose model is not part of the package is written by names of its own.
    own = [name for name in types if name.startswith("sklearn_anneal.")]
    assert own == sorted(name for name in trusted if name.startswith("sklearn_anneal."))
    assert set(trusted) <= set(types)
    if set(types) <= {*trusted, *TRUSTED_TYPES}:
        # Other names are those of the worked example of the page for developers.
        return skops.io.load(path, trusted=sorted({*trusted, *TRUSTED_TYPES}))
    assert not all(name.startswith(("sklearn", "numpy")) for name in types)
    return skops.io.load(path, trusted=types)


def assert_same_after_round_trip(estimator, X, path):
    """The file names public classes alone; what it holds predicts bit for bit."""
    trusted = {class_name(estimator), class_name(estimator.annealing_)}
    other = loaded(estimator, path, trusted)
    assert_identical(estimator, other)
    for method in ("score", "transform"):
        expected = getattr(estimator, method)(X)
        np.testing.assert_array_equal(expected, getattr(other, method)(X))
    return other


def assert_round_trip(estimator, X, path):
    """What the file holds also goes on bit for bit."""
    other = assert_same_after_round_trip(estimator, X, path)
    assert_identical(estimator.partial_fit(X), other.partial_fit(X))


@pytest.mark.usefixtures("few_passes_of_searches")
@pytest.mark.parametrize(
    ("entry", "params", "name", "method"),
    alternating(taking_turns(combinations()), ("fit", "partial_fit")),
)
def test_round_trip(entry, params, name, method, rng, tmp_path):
    X = entry.data(rng, 40)
    estimator = entry.make(annealing=quick(name), **params)
    assert_round_trip(getattr(estimator, method)(X), X, tmp_path / "estimator.skops")


@pytest.mark.parametrize(
    ("entry", "params"),
    [
        pair
        for pair in each_value_of_each_class(variants())
        if pair.values[1] is not pair.values[0].first
    ],
)
def test_round_trip_of_every_form_of_the_model(entry, params, rng, tmp_path):
    X = entry.data(rng, 40)
    estimator = entry.make(annealing="none", **{**params, "max_iter": 1}).fit(X)
    assert_same_after_round_trip(estimator, X, tmp_path / "estimator.skops")


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_estimator_that_is_not_fitted(entry, rng, tmp_path):
    estimator = entry.make(**{**entry.first, "max_iter": 3})
    if "effort" in estimator.get_params():
        estimator.set_params(effort=0)
    other = loaded(estimator, tmp_path / "estimator.skops", {class_name(estimator)})
    X = entry.data(rng, 40)
    assert_identical(estimator.fit(X), other.fit(X))


def test_a_file_loads_with_the_published_list(rng, tmp_path):
    entry = ENTRIES[0]
    estimator = entry.make(annealing="tempering", **entry.first).fit(entry.data(rng, 40))
    skops.io.dump(estimator, tmp_path / "estimator.skops")
    other = skops.io.load(tmp_path / "estimator.skops", trusted=TRUSTED_TYPES)
    assert_identical(estimator, other)


def test_a_file_with_blocks_of_columns_loads_with_the_published_list(rng, tmp_path):
    X = np.column_stack([rng.normal(size=40), rng.random(40) > 0.5])
    emission = [("a", "gaussian", [0]), ("b", "bernoulli", [1])]
    for cls in (sklearn_anneal.AnnealedBayesianMixture, sklearn_anneal.AnnealedHMM):
        estimator = cls(2, emission=emission, max_iter=3, effort=0, random_state=0).fit(X)
        skops.io.dump(estimator, tmp_path / "estimator.skops")
        other = skops.io.load(tmp_path / "estimator.skops", trusted=TRUSTED_TYPES)
        np.testing.assert_array_equal(other.predict(X), estimator.predict(X))


def test_the_published_list_has_all_public_estimators_and_methods():
    estimators = {name for name in sklearn_anneal.__all__ if name.startswith("Annealed")}
    estimators.add("MixtureRegressor")
    names = {name.rpartition(".")[2] for name in TRUSTED_TYPES}
    assert names - {"Bunch"} == estimators | {cls.__name__ for cls in ANNEALING.values()}


class Halved(NoAnnealing):
    """A method of a user's own."""


def test_methods_from_elsewhere_are_named_too(rng, tmp_path):
    entry = ENTRIES[0]
    X = entry.data(rng, 40)
    estimator = entry.make(annealing=Halved(), **entry.first).fit(X)
    other = loaded(
        estimator, tmp_path / "estimator.skops", {class_name(estimator), class_name(Halved())}
    )
    assert type(other.annealing_) is Halved
    assert_identical(estimator, other)


def test_objects_from_elsewhere_stay_as_they_are():
    method = DeterministicAnnealing()
    assert written(method) is method
    assert written({"a": [method]})["a"][0] is method
    assert read(written(np.dtype("f4"))) == np.dtype("f4")
    sparse = csr_array(np.eye(3, 4, 1))
    assert (read(written(sparse)) != sparse).nnz == 0


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "builtins.object",
        "sklearn_anneal.families.Dirichlet",
        "sklearn_anneal.models.latent_dirichlet.np",
        "sklearn_anneal.models.latent_dirichlet.partial",
        "sklearn_anneal.models.nowhere.Summary",
        "sklearn_anneal.models._base.Nowhere",
        "sklearn_anneal",
        "sklearn_anneal.estimators._part_sources.Source",
        "sklearn_anneal.estimators._part_predictions._Prediction",
        "sklearn_anneal.estimators._shards.Shards",
        "sklearn_anneal.data.part_visits.Aside",
    ],
)
def test_no_other_class_is_made(name):
    """Who trusts an estimator trusts the private classes that it needs, and no others."""
    file = written(np.dtype(float)) | {"class of sklearn_anneal": name, "attributes": {}}
    with pytest.raises(ValueError, match="no part of a fitted estimator of this version"):
        read(file)


def test_no_listed_class_does_anything_when_its_objects_are_called_or_dropped():
    """Whoever writes a file chooses the attributes of such objects, and where they are put."""
    for module, names in _CLASSES.items():
        for name in names:
            cls = getattr(import_module(f"sklearn_anneal.{module}"), name)
            assert isinstance(cls, type)
            assert not {"__call__", "__del__"} & set(dir(cls)), cls


@pytest.mark.usefixtures("few_passes_of_searches")
def test_every_listed_class_is_needed(rng):
    """The files of round trips name no private class, so that none is missing in the list."""

    def names_in(value):
        if isinstance(value, dict):
            yield from [value[name] for name in ("class of sklearn_anneal",) if name in value]
            value = value.values()
        if not isinstance(value, str | np.ndarray):
            for one in value if isinstance(value, Iterable) else ():
                yield from names_in(one)

    found = set()
    for entry in (*ENTRIES, *TRAINED_BY_GRADIENTS):
        for params in (*entry.variants.values(), *entry.heuristics.values()):
            annealing = "deterministic" if params is entry.first else "none"
            how = {**params, "max_iter": 1, "annealing": quick(annealing, 1)}
            estimator = entry.make(**how).fit(entry.data(rng, 30))
            found.update(names_in(estimator.__getstate__()["_inference"]))
    with_covariates = AnnealedBayesianMixture(2, effort=0, max_iter=1)
    with_covariates.fit(rng.integers(0, 2, (20, 3)), covariates=rng.normal(size=(20, 1)))
    found.update(names_in(with_covariates.__getstate__()["_inference"]))
    # Streams keep their first batches.
    counts = rng.poisson(2.0, size=(20, 5))
    for cls, X in (
        (AnnealedLatentDirichletAllocation, counts),
        (AnnealedGammaProcessNMF, counts),
        (AnnealedGammaProcessNMF, csr_array(counts)),
        (AnnealedPMF, counts),
        (AnnealedSigmoidBeliefNet, counts > 1),
    ):
        stream = cls(2, annealing="none").partial_fit(X)
        found.update(names_in(stream.__getstate__()["_inference"]))
    emission = [("size", "gaussian", [0]), ("answer", "categorical", [1])]
    for cls, name in ((AnnealedBayesianMixture, "n_categories"), (AnnealedHMM, "n_symbols")):
        stream = cls(2, emission=emission, **{name: {"answer": [2]}})
        stream.partial_fit(np.column_stack([rng.normal(size=20), rng.integers(0, 2, 20)]))
        found.update(names_in(stream.__getstate__()["_inference"]))
    listed = {f"sklearn_anneal.{m}.{name}" for m, names in _CLASSES.items() for name in names}
    assert found - {"numpy.dtype"} == listed


def test_state_of_another_version_warns(rng):
    import pickle
    import warnings

    from sklearn_anneal.estimators._persistence import VERSION

    X = ENTRIES[0].data(rng, 40)
    estimator = ENTRIES[0].make(annealing="none", **ENTRIES[0].first).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_identical(estimator, pickle.loads(pickle.dumps(estimator)))
    for version, said in (("0.0.1", "version 0.0.1"), (None, "an early version")):
        state = {**estimator.__getstate__(), VERSION: version}
        other = object.__new__(type(estimator))
        with pytest.warns(UserWarning, match=f"saved by {said} of sklearn_anneal"):
            other.__setstate__(state)
        assert_identical(estimator, other)
        assert VERSION not in vars(other)
