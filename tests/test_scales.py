"""Data of any scale are fitted with finite results, or refused with a sentence, and no warning."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from designs import in_turn
from models import ENTRIES, TRAINED_BY_GRADIENTS
from scipy.sparse import issparse

from sklearn_anneal import (
    AnnealedBayesianMixture,
    AnnealedFactorialMixture,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
)
from sklearn_anneal.search.search import Found

# From the smallest numbers to the largest; float64 squares numbers from 1e-154 to 1e154.
SCALES = [
    10.0**p for p in (-320, -200, -162, -155, -148, -122, -60, -22, 16, 60, 152, 154, 200, 300)
]
# What some estimators say of numbers that have no meaning for them: they have to be integers, for
# example, or the noise that was given is none of these data.
REFUSALS = (
    "Fitting failed because",
    "Prediction failed because",
    "not positive definite",
    "overflow",
    "underflow",
    "integers",
    "have to be 0 and 1",
    "of 0 and 1",
    "numbers below",
    "not declared",
    "too small beside",
    "takes numbers up to",
    "may have at most",
    "so few that the lower bound",
    "samples are drawn as int64",
    "No document of X",
)
PREDICTIONS = ("predict", "transform", "score_samples", "score", "sample")
# NaN where a bound was not evaluated.
HISTORY = {"lower_bounds_", "restart_lower_bounds_", "search_results_"}


def scaled(X, scale):
    if isinstance(X, list):
        return [scaled(one, scale) for one in X]
    return scale * X.astype(float) if issparse(X) else scale * np.asarray(X, dtype=float)


def numbers(value):
    if isinstance(value, list | tuple):
        return np.concatenate([numbers(one) for one in value]) if value else np.zeros(0)
    value = np.asarray(value.toarray() if issparse(value) else value)
    return value.ravel() if value.dtype.kind in "fiu" else np.zeros(0)


def assert_finite_or_refused(method, *args):
    """Return the result, or None after a refusal."""
    try:
        return method(*args)
    except ValueError as error:
        assert any(words in str(error) for words in REFUSALS), error
        return None


def entries():
    """Every entry × all scales, which its priors share: given ones and learned ones."""
    for entry in [*ENTRIES, *TRAINED_BY_GRADIENTS]:
        chosen = {
            name: params
            for name, params in entry.variants.items()
            if params is entry.first or name in ("auto", "learned")
        }
        # Mixtures and Markov models with the same emission share their code, and so the scales.
        first = 0 if entry.name.startswith("hidden_markov") else 1
        shared = entry.name.startswith(("hidden_markov", "mixture"))
        for i, (name, params) in enumerate(chosen.items()):
            for j in range(len(chosen)):
                scales, name_of_case = SCALES[j :: len(chosen)], f"{entry.name}-{name}-{j}"
                for k in (0, 1) if shared else (0,):
                    # Other combinations are exhaustive.
                    marks = () if i == j and (not shared or k == first) else pytest.mark.exhaustive
                    part = scales[k::2] if shared else scales
                    yield pytest.param(entry, params, part, marks=marks, id=f"{name_of_case}-{k}")


@pytest.mark.parametrize(("entry", "params", "scales"), list(entries()))
def test_fits_of_any_scale_are_finite_or_refused(
    entry, params, scales, rng, few_passes_of_searches
):
    """With the priors that the tests give, which have another scale, and with learned ones."""
    X = entry.data(rng, 25)
    reheats = {} if entry in TRAINED_BY_GRADIENTS else {"effort": 1, "annealing": "reheating"}
    for scale in scales:
        Y = scaled(X, scale)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            fit = assert_finite_or_refused(entry.make(**(params | reheats)).fit, Y)
            if fit is None:
                continue
            for name, value in vars(fit).items():
                if name.endswith("_") and name not in HISTORY:
                    assert np.isfinite(numbers(value)).all(), (scale, name)
            for name in PREDICTIONS:
                if hasattr(fit, name):
                    given = () if name == "sample" else (Y,)
                    found = assert_finite_or_refused(getattr(fit, name), *given)
                    assert found is None or np.isfinite(numbers(found)).all(), (scale, name)


@in_turn(scale=[1e-155, 1e160], n_jobs=[1, 2])
def test_threads_of_a_fit_do_not_warn(scale, n_jobs, rng):
    """Numpy's settings belong to a thread, so that each of them needs those of the fit."""
    X = scale * rng.normal(size=(60, 3))
    for make in (
        lambda: AnnealedHMM(2, n_init=3, max_iter=5, n_jobs=n_jobs, random_state=0),
        lambda: AnnealedFactorialMixture(2, n_init=3, max_iter=5, n_jobs=n_jobs, random_state=0),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            assert_finite_or_refused(make().fit, X)


def test_settings_of_numpy_are_restored(rng):
    before = np.geterr()
    AnnealedHMM(2, max_iter=2, effort=1, random_state=0).fit(rng.normal(size=(30, 2)))
    assert np.geterr() == before


# Words


def test_documents_of_next_to_no_words_are_refused(rng):
    """Their bound would be a rounding error, and the perplexity any number or infinite."""
    X = rng.poisson(1.0, size=(40, 30)).astype(float)

    def topics():
        return AnnealedLatentDirichletAllocation(
            3, annealing="none", doc_topic_prior=0.5, topic_word_prior=0.5, random_state=0
        )

    # In the limit of few words, they are those of the prior: perplexity only depends on how.
    small = [topics().fit(scale * X).bound_ for scale in (1e-7, 1e-8)]
    assert small[0] == pytest.approx(small[1], rel=1e-4)
    for method, given in (("fit", {}), ("partial_fit", {}), ("fit", {"sample_weight": 1e-22})):
        weights = {key: np.full(40, value) for key, value in given.items()}
        with pytest.raises(ValueError, match="so few that the lower bound") as caught:
            getattr(topics(), method)(X if given else 1e-22 * X, **weights)
        assert f"{1e-22 * X.sum():g} words" in str(caught.value)


# Samples


@pytest.mark.parametrize(
    "fit",
    [
        lambda X: AnnealedBayesianMixture(1, emission="poisson", random_state=0).fit(X),
        lambda X: AnnealedHMM(1, emission="poisson", random_state=0).fit(X),
    ],
)
def test_samples_of_huge_counts_are_refused(fit):
    with pytest.raises(ValueError, match=r"Counts of the size 1e\+20 .* Divide X by a constant"):
        fit(np.full((10, 1), 1e20)).sample(3)
    assert (fit(np.full((10, 1), 1e18)).sample(3)[0] > 9e17).all()


# Moves


@pytest.mark.parametrize("final", [np.inf, np.nan])
def test_a_move_whose_bound_is_not_finite_is_thrown_away(
    final, rng, monkeypatch, few_passes_of_searches
):
    original = Found.judge

    def judge(self, move, stop, n_observations):
        if self.trial is not None:
            self.trial.trace.final = final
        original(self, move, stop, n_observations)

    monkeypatch.setattr(Found, "judge", judge)
    fit = AnnealedHMM(2, random_state=0, annealing="reheating", effort=1, max_iter=9)
    fit.fit(rng.normal(size=(30, 2)))
    assert np.isfinite(fit.lower_bound_)
