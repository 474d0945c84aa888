"""Attributes that exist only with some values of a parameter, and those that cannot be set."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from cases_hidden_markov import ONE_OF_EACH, draw, small
from harness import models, one_of_each_class
from sklearn.base import clone
from sklearn.utils import Bunch

from sklearn_anneal import AnnealedBayesianMixture, AnnealedHMM, AnnealedPMF

COUNTS = ("poisson", "negative_binomial", "zero_inflated_poisson")
EMISSIONS = ("bernoulli", "categorical", "gaussian", *COUNTS)
BLOCKS = [("first", "bernoulli", [0]), ("second", "categorical", [1])]


def binary(rng):
    return rng.integers(2, size=(40, 2)).astype(float)


def fitted_mixture(emission, rng):
    how = {"annealing": "none", "max_iter": 3, "random_state": 0, "tol": 1.0}
    return AnnealedBayesianMixture(2, emission=emission, **how).fit(binary(rng))


def fitted_hmm(emission, rng):
    if isinstance(emission, list):
        return small(max_iter=3, tol=1.0, emission=emission).fit(binary(rng))
    kind, given = ("poisson", {"emission": emission}) if emission in COUNTS else (emission, {})
    return small(kind, max_iter=3, tol=1.0, **given).fit(draw(kind, rng, [12]))


def fitted_pmf(rng, **params):
    how = {"annealing": "none", "max_iter": 3, "random_state": 0, "tol": 10.0} | params
    pairs = np.column_stack([np.repeat(np.arange(8), 5), np.tile(np.arange(5), 8)])
    ratings = rng.standard_normal(40)
    if how.get("input") == "matrix":
        return AnnealedPMF(2, **how).fit(ratings.reshape(8, 5))
    return AnnealedPMF(2, **how).fit(pairs, ratings)


def assert_lacks(est, name, message=None):
    with pytest.raises(AttributeError, match=message):
        getattr(est, name)


def all_forms(rng):
    for emission in (*EMISSIONS, BLOCKS):
        yield fitted_mixture(emission, rng), {"emission": emission}
    for variant in (*ONE_OF_EACH, *COUNTS[1:], BLOCKS):
        kind = variant if isinstance(variant, list) else variant.split("-")[0]
        yield fitted_hmm(variant, rng), {"emission": kind}
    for form in ("matrix", "pairs"):
        for flag in (True, False):
            hierarchical = flag == (form == "pairs")
            values = {"input": form, "biases": flag, "hierarchical": hierarchical}
            values["user_scales"] = flag
            yield fitted_pmf(rng, **values), values


def test_tables_say_which_attributes_there_are(rng):
    """What a table declares exists with these values, and with no others."""
    for est, values in all_forms(rng):
        found = {name for name in dir(est) if not name.startswith("_")}
        for parameter, attributes in est._conditional_attributes().items():
            value = values[parameter]
            value = list if isinstance(value, list) else value
            for name, with_values in attributes.items():
                assert hasattr(est, name) == (value in with_values), (est, name)
                found.discard(name)
        # Whatever else an estimator has, it has in all forms.
        missing = [n for n in found if not hasattr(est, n)]
        allowed = {"feature_names_in_", "inverse_temperatures", "item_biases_var_"}
        # Before scikit-learn 1.8, dir names methods that an estimator has in other forms alone.
        assert set(missing) <= allowed | {"user_biases_var_", "top_words", "impute"}


def test_attributes_of_one_emission_alone_are_declared(rng):
    """Else their absence with other emissions would not be explained."""
    for make, emissions in (
        (fitted_mixture, (*EMISSIONS, BLOCKS)),
        (fitted_hmm, (*ONE_OF_EACH, *COUNTS[1:], BLOCKS)),
    ):
        fits = [make(emission, rng) for emission in emissions]
        names = [{n for n in vars(est) if n.endswith("_")} for est in fits]
        differing = set.union(*names) - set.intersection(*names)
        assert differing == set(fits[0]._conditional_attributes()["emission"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("means_", "it exists with emission='gaussian', and this one was fitted with emission="),
        ("emissionprob_", "with emission='categorical' or 'bernoulli', and this one was fitted"),
        ("blocks_", "with a list for emission, and this one was fitted with emission='poisson'"),
    ],
)
def test_error_says_what_would_have_the_attribute(name, message, rng):
    est = fitted_hmm("poisson", rng)
    with pytest.raises(AttributeError, match="'AnnealedHMM' object has no attribute") as error:
        getattr(est, name)
    assert message in str(error.value)
    assert not hasattr(est, name)
    assert getattr(est, name, None) is None


def test_error_of_blocks_and_of_ratings(rng):
    assert_lacks(
        fitted_mixture(BLOCKS, rng), "emissionprob_", "this one was fitted with a list for emission"
    )
    assert_lacks(
        fitted_pmf(rng, input="pairs", biases=False),
        "item_biases_",
        "exists with biases=True, and this one was fitted",
    )
    assert_lacks(
        fitted_pmf(rng, input="matrix"),
        "predict",
        "with input='pairs', and this one was fitted with",
    )
    assert_lacks(
        AnnealedPMF(input="pairs"),
        "transform",
        "with input='matrix', and this one has input='pairs'",
    )


def test_other_attributes_have_the_usual_error(rng):
    for est in (AnnealedHMM(), fitted_hmm("poisson", rng)):
        assert_lacks(est, "nothing_", "object has no attribute 'nothing_'$")
    assert_lacks(AnnealedHMM(), "means_", "object has no attribute 'means_'$")
    assert_lacks(
        AnnealedHMM(annealing="none"), "inverse_temperatures", "no attribute 'inverse_temperatures'"
    )


def test_parameters_that_change_after_a_fit_do_not_change_what_it_has(rng):
    est = fitted_hmm("poisson", rng).set_params(emission="gaussian")
    assert_lacks(est, "means_", "was fitted with emission='poisson'")
    assert est.lambdas_.shape == (2, 2)


def test_attributes_of_an_earlier_fit_are_forgotten(rng):
    est = small("gaussian-full", max_iter=3).fit(draw("gaussian-full", rng, [12]))
    est.set_params(emission="poisson").fit(draw("poisson", rng, [12]))
    assert not hasattr(est, "means_")
    pmf = fitted_pmf(rng, input="matrix").set_params(biases=False)
    pmf.fit(rng.standard_normal((8, 5)))
    assert not hasattr(pmf, "user_biases_")


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_copies_have_the_same_attributes(again, rng):
    est = again(fitted_hmm("poisson", rng))
    assert_lacks(est, "means_", "was fitted with emission='poisson'")
    assert est.lambdas_.shape == (2, 2)
    again(AnnealedHMM())


def test_objects_without_any_attribute_do_not_recur(rng):
    for empty in (AnnealedHMM.__new__(AnnealedHMM), clone(AnnealedHMM())):
        assert_lacks(empty, "means_")
        assert_lacks(empty, "__nothing__")


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_results_cannot_be_set(entry, rng):
    """Predictions read the posterior distribution, and would not notice."""
    X = entry.data(rng, 40)
    est = entry.make(annealing="none", **entry.first).fit(X)
    results = est._fitted_attributes(est._inference.context())
    for other in (est, pickle.loads(pickle.dumps(est)), copy.deepcopy(est)):
        for name in results:
            before = getattr(other, name)
            with pytest.raises(AttributeError, match=f"{name} describes the fitted posterior"):
                setattr(other, name, before)
    # Fits and streams replace them, and other attributes are free.
    est.fit(X).partial_fit(X)
    est.note_ = "of a user"
    # What is no longer there is free as well.
    name = next(iter(results))
    del est.__dict__[name]
    setattr(est, name, 1)
    assert not hasattr(clone(est), "note_")


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_results_cannot_be_set_before_a_fit_either(entry):
    """Users of hmmlearn begin a fit so, and the fit would not notice."""
    est = entry.make()
    starts = [name for name in est.get_params() if name.endswith("_init")]
    names = {start.removesuffix("init"): start for start in starts}
    names |= {"means_": "emission_init"} if names.pop("emission_", None) else {}
    names.pop("learning_rate_", None)
    assert names
    for name, start in names.items():
        with pytest.raises(
            AttributeError, match=f"{name} is a result of fit.*{start} in its place"
        ):
            setattr(est, name, 1.0)
        assert name not in vars(est)


def arrays_in(value):
    """All arrays of an attribute, also those in lists, tuples and dictionaries."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [a for one in value for a in arrays_in(one)] if isinstance(value, list | tuple) else []


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_arrays_of_results_cannot_be_written(entry, rng):
    """Predictions would not notice a change in place, or some would and others not."""
    X = entry.data(rng, 40)
    est = entry.make(annealing="none", **entry.first).fit(X)
    described = set(est._fitted_attributes(est._inference.context()))
    derived = {name for name in dir(type(est)) if name.endswith("_") and name[0] != "_"}
    for other in (est, pickle.loads(pickle.dumps(est)), copy.deepcopy(est), copy.copy(est)):
        found = 0
        for name in described | derived:
            for array in arrays_in(getattr(other, name, None)):
                found += 1
                with pytest.raises(ValueError, match="read-only"):
                    array[...] = 0
        assert found > 1
    # The parameters behind them change in passes that follow.
    other.partial_fit(X)


def test_the_error_of_setting_names_the_way_to_given_parameters(rng):
    est = fitted_hmm("poisson", rng)
    with pytest.raises(AttributeError, match=r"end in _init, annealing='none' and max_iter=0"):
        est.lambdas_ = est.lambdas_


@pytest.mark.parametrize("make", [fitted_mixture, fitted_hmm])
def test_results_of_blocks_cannot_be_set(make, rng):
    """They were read by nothing, and stayed silent; files and copies of a Bunch are plain."""
    est = make(BLOCKS, rng)
    for other in (est, pickle.loads(pickle.dumps(est)), copy.deepcopy(est), copy.copy(est)):
        block = other.blocks_["first"]
        before = block.emissionprob_
        with pytest.raises(AttributeError, match="emissionprob_ describes the fitted posterior"):
            block.emissionprob_ = before
        for change in (
            lambda block=block: block.update(emissionprob_=0),
            lambda block=block: block.__setitem__("emissionprob_", 0),
            lambda block=block: block.pop("emissionprob_"),
            lambda block=block: delattr(block, "emissionprob_"),
            lambda other=other: other.blocks_.__setitem__("first", 0),
            lambda other=other: other.blocks_.clear(),
        ):
            with pytest.raises(TypeError, match="describes the fitted posterior"):
                change()
        assert other.blocks_["first"].emissionprob_ is before and "emissionprob_" in dir(block)
    for again in (copy.copy, copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))):
        plain = again(est.blocks_["first"])
        assert type(plain) is Bunch and plain.keys() == est.blocks_["first"].keys()
        plain.emissionprob_ = 0
        assert type(again(est.blocks_)) is dict
