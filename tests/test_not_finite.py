"""A fit whose result is not finite ends with the advice of its estimator, and changes nothing."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from harness import alternating, assert_identical, change_models, models, one_of_each_class, quick
from sklearn.base import clone

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedFactorialMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
    AnnealedSigmoidBeliefNet,
    AnnealedSpikeSlabFactorAnalysis,
    MixtureRegressor,
)


def without_bound(value):
    def change(model):
        model.kl = lambda *args: value
        return model

    return change


def with_statistics(value):
    def change(model):
        original = type(model).block_statistics
        model.block_statistics = lambda block, raw, q: {
            key: x + value for key, x in original(model, block, raw, q).items()
        }
        return model

    return change


CHANGES = {
    "bound-nan": without_bound(np.nan),
    "bound-infinite": without_bound(np.inf),
    "parameters-nan": with_statistics(np.nan),
    "parameters-infinite": with_statistics(np.inf),
}


def assert_refused(method, estimator, X):
    with pytest.raises(ValueError, match="Fitting failed because") as caught:
        with np.errstate(all="ignore"):
            method(X)
    assert not isinstance(caught.value, np.linalg.LinAlgError)
    assert estimator._advice in str(caught.value)


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("entry", "change", "how"),
    alternating(
        [
            pytest.param(*case.values, change, marks=case.marks, id=f"{case.id}-{change}")
            for case in one_of_each_class(models())
            for change in CHANGES
        ],
        ("batch", "minibatches", "partial_fit"),
    ),
)
def test_result_that_is_not_finite_is_refused(entry, how, change, rng, monkeypatch):
    X = entry.data(rng, 40)
    batches = entry.in_batches(10) if how == "minibatches" else {}
    estimator = entry.make(annealing="none", max_iter=3, **batches, **entry.first)
    change_models(monkeypatch, type(estimator), CHANGES[change])

    # A stream's first bound is that of the start; the parameters are those after the step.
    assert_refused(estimator.partial_fit if how == "partial_fit" else estimator.fit, estimator, X)
    assert not hasattr(estimator, "lower_bound_")


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_stream_stays_as_it_was_before_a_bound_that_is_not_finite(entry, rng, monkeypatch):
    X = entry.data(rng, 40)
    estimator, other = (entry.make(annealing="none", **entry.first) for _ in range(2))
    estimator.partial_fit(X), other.partial_fit(X)
    with monkeypatch.context() as patch:
        patch.setattr(type(estimator._inference.ctx.model), "kl", lambda *args: np.nan)
        assert_refused(estimator.partial_fit, estimator, X)
    assert_identical(estimator, other)
    assert_identical(estimator.partial_fit(X), other.partial_fit(X))


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_bound_that_a_method_does_not_evaluate_is_no_failure(entry, rng):
    """It is NaN in the history of a stream, where ``lower_bound_`` is the last that was found."""
    method = quick("structured", 30, evaluate_every=2)
    estimator = entry.make(annealing=method, **entry.first).set_params(max_iter=1)
    X = entry.data(rng, 40)
    for _ in range(4):
        estimator.partial_fit(X)
    np.testing.assert_array_equal(np.isfinite(estimator.lower_bounds_), [True, False] * 2)
    assert estimator.lower_bound_ == estimator.lower_bounds_[2]


def far_apart(rng, k=2):
    """Rows of groups that are far apart, in real numbers and in counts."""
    group = np.arange(90) % k
    return rng.normal(60.0 * group[:, None], 1.0, (90, 3)), rng.poisson(
        1.0 + 90.0 * group[:, None], (90, 3)
    )


@pytest.mark.parametrize("seed", range(3))
def test_probabilities_that_underflow_are_no_errors(seed):
    """scikit-learn's mixtures can be fitted after ``np.seterr(all="raise")``, too."""
    real, counts = far_apart(np.random.default_rng(seed))
    holes = np.where(np.random.default_rng(seed).random(real.shape) < 0.2, np.nan, real)
    fits = [
        (AnnealedBayesianGaussianMixture(4, random_state=0), holes),
        (AnnealedBayesianMixture(4, emission="poisson", random_state=0), counts),
        (AnnealedBayesianMixture(4, emission="negative_binomial", random_state=0), counts),
        (AnnealedHMM(3, duration="auto", random_state=0), real),
    ]
    for est, X in fits:
        with np.errstate(all="raise"):
            est.fit(X).predict(X)
            found = est.impute(X, n_draws=2, random_state=0)
        usual = clone(est).fit(X)
        assert usual.lower_bound_ == est.lower_bound_
        np.testing.assert_array_equal(usual.impute(X, n_draws=2, random_state=0), found)


REAL = (
    (AnnealedBayesianGaussianMixture, {}),
    (AnnealedBayesianMixture, {"emission": "gaussian"}),
    (AnnealedHMM, {}),
    (AnnealedHMM, {"duration": 3}),
    (AnnealedSpikeSlabFactorAnalysis, {}),
    (AnnealedFactorialMixture, {}),
    (AnnealedPMF, {}),
)
COUNTS = (
    (AnnealedBayesianMixture, {"emission": "poisson"}),
    (AnnealedHMM, {"emission": "poisson"}),
    (AnnealedLatentDirichletAllocation, {"topic_word_prior": 1e-3}),
    (AnnealedGammaProcessNMF, {}),
    (AnnealedBayesianMixture, {"emission": "bernoulli"}),
    (AnnealedSigmoidBeliefNet, {}),
)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("cls", "params"), REAL + COUNTS)
def test_predictions_in_single_precision_ignore_underflows(cls, params, rng):
    """Probabilities of 1e-60 are 0 in float32, to which results are cast at the end."""
    real, counts = far_apart(rng, 3)
    X = (real if (cls, params) in REAL else counts).astype(np.float32)
    if cls is AnnealedSigmoidBeliefNet or params.get("emission") == "bernoulli":
        X = np.repeat(X > 100, 4, axis=1).astype(np.float32)
    size, quickly = 3, {"effort": 0}
    if cls is AnnealedSigmoidBeliefNet:
        size, quickly = (3,), {}
    est = cls(size, max_iter=5, random_state=0, **quickly, **params).fit(X)
    n_called = 0
    for name in dir(est):
        if name.startswith(("_", "set_", "get_", "fit", "partial")) or not hasattr(est, name):
            continue
        with np.errstate(all="raise"):
            method = getattr(est, name)
        first = next(iter(inspect.signature(method).parameters), "") if callable(method) else ""
        if first != "X" or name in ("distal_outcome", "class_covariates"):
            continue
        given = est.transform(X) if name == "inverse_transform" else X
        tiny = given * np.float32(1e-30) if name == "inverse_transform" else given
        with np.errstate(all="raise"):
            for data in (given, tiny):
                method(data)
        n_called += 1
    assert n_called >= 3


def test_regressions_in_single_precision_ignore_underflows(rng):
    X = far_apart(rng)[0].astype(np.float32)
    mixture = AnnealedBayesianGaussianMixture(2, random_state=0)
    with np.errstate(all="raise"):
        MixtureRegressor(mixture).fit(X[:, :2], X[:, 2]).predict(X[:, :2], return_std=True)
