"""Tests of streams that all models share: the schedule, the parameters, and the warnings."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from cases_latent_dirichlet import draw_corpus
from harness import (
    alternating,
    combinations,
    context_of,
    forms,
    largest_difference,
    of_each_class_and_method,
    quick,
    taking_turns,
)
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from test_latent_dirichlet_fit import associated_press

from sklearn_anneal import (
    AnnealedFactorialMixture,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
    AnnealedSpikeSlabFactorAnalysis,
)
from sklearn_anneal.annealing import ANNEALING, DeterministicAnnealing

SCHEDULED = [name for name in ANNEALING if ANNEALING[name].finish]


# Variances that are learned


def sparse_factors(rng, n):
    factors = rng.standard_normal((n, 4)) * (rng.random((n, 4)) < 0.4)
    loadings = np.kron(4 * np.eye(4), np.ones(3))
    return AnnealedSpikeSlabFactorAnalysis(4, random_state=0), factors @ loadings


def parts(rng, n):
    codes = rng.random((n, 4)) < 0.4
    return AnnealedFactorialMixture(4, random_state=0), codes @ np.kron(4 * np.eye(4), np.ones(3))


def ratings(rng, n):
    X = rng.standard_normal((n, 2)) @ rng.standard_normal((2, 12))
    X[rng.random(X.shape) < 0.3] = np.nan
    return AnnealedPMF(2, random_state=0), X


@pytest.mark.parametrize("draw", [sparse_factors, parts, ratings])
def test_a_stream_learns_its_variances_after_ten_batches_and_a_hundred_rows(draw):
    """Before, noise has 0.4 times the variance of X, so that little is found in the rows."""
    rng = np.random.default_rng(0)
    stream, X = draw(rng, 1700)
    stream.set_params(max_iter=1)  # a stream of updates alone
    X = X + 0.3 * rng.standard_normal(X.shape)
    scores, changes = [], []
    for rows in np.split(X[:1500], 30):
        before = np.mean(getattr(stream, "noise_variance_", np.nan))
        stream.partial_fit(rows)
        changes.append(np.mean(stream.noise_variance_) - before)
        scores.append(stream.score(X[1500:]))
    assert not np.any(changes[1:10])
    assert np.all(changes[10:])
    assert scores[29] > scores[9] + 0.15
    few = clone(stream).partial_fit(X[:20])
    start = np.mean(few.noise_variance_)
    for i in range(20, 100):
        assert np.mean(few.noise_variance_) == start
        few.partial_fit(X[i : i + 1])
    assert np.mean(few.noise_variance_) != start


# The schedule


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("entry", "params", "name", "calls"),
    alternating(taking_turns(combinations(SCHEDULED, sampled=False)), (1, 7)),
)
def test_one_pass_over_a_stream_ends_at_temperature_one(entry, params, name, calls, rng):
    est = entry.make(annealing=quick(name, 50), total_samples=60 * calls, **params)
    est.set_params(max_iter=1)  # updates alone
    for _ in range(calls):
        est.partial_fit(entry.data(rng, 60))
    assert not est.annealing_.is_annealing(context_of(est).state)
    assert est.temperatures_[-1] == 1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("entry", "params", "name"),
    of_each_class_and_method(combinations(SCHEDULED, sampled=False)),
)
def test_a_stream_of_unknown_size_is_plain_inference(entry, params, name, rng):
    """It has the start of plain inference too, whatever start the method would take.

    Streams of updates alone show so, because fits with which others begin are annealed.
    """
    streams = [
        entry.make(annealing=method, **params).set_params(max_iter=1) for method in (name, "none")
    ]
    for _ in range(3):
        X = entry.data(rng, 40)
        one, plain = (est.partial_fit(X) for est in streams)
        assert largest_difference(context_of(one).q, context_of(plain).q) == 0
    np.testing.assert_array_equal(one.lower_bounds_, plain.lower_bounds_)
    assert (one.temperatures_ == 1).all()
    assert type(one.annealing_) is ANNEALING[name]


METHODS = ("predict", "transform", "score_samples", "score")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("entry", "params", "name"),
    of_each_class_and_method(combinations(["deterministic", "stochastic"], sampled=False)),
)
def test_a_stream_that_is_used_before_its_schedule_ends_says_so_once(entry, params, name, rng):
    """A thousand times as many data points are expected as come."""
    X = entry.data(rng, 60)
    how = {"initial_temperature": 1.5} if name == "deterministic" else {}
    est = entry.make(annealing=quick(name, 50, **how), total_samples=60_000, **params)
    est.set_params(max_iter=1)  # updates alone
    uses = [getattr(est, name) for name in METHODS if hasattr(est, name)]

    def said(call):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        return [one for one in caught if "annealing schedule has ended" in str(one.message)]

    assert not said(lambda: [est.partial_fit(X) for _ in range(3)])
    again = pickle.loads(pickle.dumps(est))
    (first,) = said(lambda: [use(X) for use in uses])
    assert f"{est._inference.seen:g} of total_samples=60000" in str(first.message)
    assert ("at a temperature of" in str(first.message)) == (est.temperatures_[-1] > 1)
    assert "sklearn_anneal" not in Path(first.filename).parts
    assert not said(lambda: est.partial_fit(X)) and not said(lambda: uses[0](X))
    assert len(said(lambda: getattr(again, uses[0].__name__)(X))) == 1
    # The end of the schedule, and a stream whose size was told, are no reason to say anything.
    est.set_params(total_samples=None).partial_fit(X)
    told = clone(est).set_params(total_samples=60)
    assert not said(lambda: told.partial_fit(X).score(X))


def top_words(lda, n=8):
    """Numbers of distinct words among the first of all topics."""
    return len({word for words in lda.top_words(n=n) for word in words})


def one_pass(lda, X, calls=20, seed=0):
    order = np.random.default_rng(seed).permutation(X.shape[0])
    lda.set_params(total_samples=X.shape[0], max_iter=1)
    for part in np.array_split(order, calls):
        lda.partial_fit(X[part])
    return lda


def no_worse_than_plain(X, test, n_components):
    lda = AnnealedLatentDirichletAllocation(n_components, random_state=0)
    plain = one_pass(clone(lda).set_params(annealing="none", max_iter=1), X)
    for annealing in (lda.annealing, "deterministic"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            annealed = one_pass(clone(lda).set_params(annealing=annealing), X)
        heated = annealed.temperatures_ > 1
        assert heated[0] == (annealing == "deterministic") and not heated[-1]
        assert annealed.n_effective_components_ == n_components
        assert top_words(annealed) > 0.8 * top_words(plain)
        # The scores of two seeds differ by some hundredths of a nat.
        assert annealed.score(test) > plain.score(test) - 0.05


def test_one_pass_over_topics_neither_collapses_nor_predicts_worse(rng):
    X = draw_corpus(rng, n_documents=2500, n_words=400, n_topics=10, length=100)
    no_worse_than_plain(X[:2000], X[2000:], 10)


def test_one_pass_over_news_neither_collapses_nor_predicts_worse():
    X = associated_press()
    X = X[np.random.default_rng(0).permutation(X.shape[0])]
    no_worse_than_plain(X[:2000], X[2000:], 15)


def test_documents_of_a_stream_get_the_iterations_that_a_single_look_needs(rng):
    X = draw_corpus(rng, n_documents=128)
    lda = AnnealedLatentDirichletAllocation(3, annealing="none", max_iter=1, random_state=0)
    found = {
        limit: clone(lda).set_params(max_doc_update_iter=limit).partial_fit(X).components_
        for limit in (None, 10, 100)
    }
    np.testing.assert_array_equal(found[None], found[100])
    assert not np.array_equal(found[None], found[10])


# Parameters


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("entry", "params"), forms(sampled=False))
def test_parameters_are_checked_at_every_call(entry, params, rng):
    X = entry.data(rng, 40)
    est = entry.make(**params).partial_fit(X)
    wrong = {"learning_decay": -3.0, "total_samples": 0, "tol": "small", "n_jobs": 0}
    for name, value in wrong.items():
        kept = est.get_params(deep=False)[name]
        before = pickle.dumps(vars(est.set_params(**{name: value})))
        with pytest.raises(ValueError, match=f"'{name}' parameter"):
            est.partial_fit(X)
        assert pickle.dumps(vars(est)) == before
        est.set_params(**{name: kept})


def test_what_only_the_making_of_a_model_checks_is_checked_at_every_call(rng):
    pmf = AnnealedPMF(2, random_state=0).partial_fit(rng.normal(size=(30, 8)))
    before = pickle.dumps(pmf.set_params(clip=(5, 1)))
    with pytest.raises(ValueError, match="is not a range"):
        pmf.partial_fit(rng.normal(size=(30, 8)))
    with pytest.raises(ValueError, match="is not a range"):
        pmf.partial_fit(rng.normal(size=(30, 8)), sample_weight=np.zeros(30))
    assert pickle.dumps(pmf) == before
    lda = AnnealedLatentDirichletAllocation(3, random_state=0).partial_fit(draw_corpus(rng))
    lda.set_params(components_init=np.ones((2, 2)))
    with pytest.raises(ValueError, match="components_init must have shape"):
        lda.partial_fit(draw_corpus(rng))


def test_a_later_batch_may_lack_symbols_that_the_first_data_had(rng):
    X = [rng.integers(4, size=(30, 1)) for _ in range(5)]
    hmm = AnnealedHMM(2, emission="categorical", emissionprob_prior=np.ones((2, 4)), max_iter=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        hmm.fit(X)
    assert np.isfinite(hmm.partial_fit([np.zeros((9, 1), dtype=int)]).lower_bound_)


# Warnings


def collapsed(**params):
    """A stream whose topics become equal at a high temperature."""
    hot = DeterministicAnnealing(initial_temperature=20.0, schedule="constant")
    return AnnealedLatentDirichletAllocation(
        5, annealing=hot, batch_size=20, total_samples=4000, max_iter=1, random_state=0, **params
    )


def test_a_stream_warns_of_coinciding_components_once_its_schedule_is_over(rng):
    X = draw_corpus(rng, n_documents=100, n_words=60)
    lda = collapsed(learning_decay=0.0)
    warned = []
    for call in range(1, 21):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            lda.partial_fit(X)
        for warning in caught:
            assert warning.category is ConvergenceWarning
            assert "Components coincide" in str(warning.message)
            assert warning.filename == __file__
            warned.append(call)
    # The fourth call ends the first tenth; the stream has doubled with the eighth and sixteenth.
    assert warned == [4, 8, 16]


def test_a_warning_that_is_an_error_leaves_the_stream_as_it_was(rng):
    X = draw_corpus(rng, n_documents=100, n_words=60)
    lda = collapsed(learning_decay=0.0)
    for _ in range(3):
        lda.partial_fit(X)
    before = pickle.dumps(lda)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning, match="Components coincide"):
            lda.partial_fit(X)
    assert pickle.dumps(lda) == before
