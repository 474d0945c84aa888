"""Unusual forms of input that have one meaning are read with it."""

from __future__ import annotations

import numpy as np
import pytest
from designs import in_turn
from numpy.testing import assert_allclose, assert_array_equal
from peer_priors import PEER_OF_RATINGS
from scipy.sparse import bsr_matrix, coo_array, coo_matrix, csc_array, csr_array, csr_matrix
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.preprocessing import OrdinalEncoder

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
    concat_sequences,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

FAST = {"annealing": "none", "max_iter": 3, "random_state": 0}
NAN = np.nan


def topics(**params):
    return AnnealedLatentDirichletAllocation(2, **{**FAST, **params})


def hmm(emission="gaussian", **params):
    return AnnealedHMM(2, emission=emission, **{**FAST, **params})


def pmf(**params):
    return AnnealedPMF(2, **{**FAST, **PEER_OF_RATINGS, **params})


# The order of cells in memory


@pytest.mark.parametrize("form", [np.asfortranarray, lambda X: np.repeat(X, 2, axis=1)[:, ::2]])
@pytest.mark.parametrize("estimator", [AnnealedBayesianGaussianMixture, AnnealedHMM])
def test_layouts_have_the_same_bits(estimator, form, rng):
    """Data frames have the layout of Fortran's order, in which sums differ by rounding errors."""
    X = rng.standard_normal((200, 5))
    X[::7, 1] = NAN
    est = estimator(2, **FAST)
    bounds = est.fit(X).lower_bounds_
    assert_array_equal(est.fit(form(X)).lower_bounds_, bounds)


# Entries of a sparse matrix of counts that are given several times


def repeated(container, dtype):
    """A corpus of whose first document three entries are one word, and what they add up to."""
    rows, columns = np.array([0, 0, 0, 0, 1, 2]), np.array([1, 1, 1, 0, 2, 0])
    counts = np.array([100, 100, 100, 2, 5, 7])
    shape, summed = (3, 4), np.zeros((3, 4))
    np.add.at(summed, (rows, columns), counts)
    counts = counts.astype(dtype)
    if container is coo_matrix or container is coo_array:
        return container((counts, (rows, columns)), shape=shape), summed
    if container is csc_array:
        order = np.argsort(columns, kind="stable")
        indptr = np.searchsorted(columns[order], np.arange(5))
        return container((counts[order], rows[order], indptr), shape=shape), summed
    indptr = np.searchsorted(rows, np.arange(4))
    if container is bsr_matrix:
        return container((counts.reshape(-1, 1, 1), columns, indptr), shape=shape), summed
    return container((counts, columns, indptr), shape=shape), summed


CONTAINERS = (csr_matrix, csr_array, csc_array, coo_matrix, coo_array, bsr_matrix)
containers = pytest.mark.parametrize("container", CONTAINERS)


@in_turn(container=CONTAINERS, dtype=(np.int8, np.uint8, np.int16, np.int64, np.float32, float))
def test_repeated_counts_add_up_whatever_their_type_is(container, dtype):
    X, summed = repeated(container, dtype)
    before = X.copy()
    plain_counts = summed.astype(np.float32 if dtype is np.float32 else float)
    plain = topics().fit(plain_counts)
    est = topics().fit(X)
    assert_array_equal(est.components_, plain.components_)
    assert_array_equal(est.transform(X), plain.transform(summed))
    assert est.perplexity(X) == plain.perplexity(summed)
    assert est.score(X) == plain.score(summed)
    streams = [topics().partial_fit(data).components_ for data in (X, plain_counts)]
    assert_array_equal(*streams)
    # The caller's matrix is not touched.
    assert_array_equal(X.data, before.data)
    assert X.dtype == dtype


@containers
def test_repeated_true_entries_are_counted(container):
    X, _ = repeated(container, bool)
    summed = np.array([[1.0, 3, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]])
    assert topics().fit(X).lower_bound_ == topics().fit(summed).lower_bound_


def test_counts_that_are_not_repeated_keep_their_type_and_place():
    X = csr_matrix(np.array([[1, 0, 3], [0, 2, 0]], dtype=np.int8))
    est = topics()
    assert np.shares_memory(est._validate_data(X, reset=True).data, X.data)
    for other in (coo_matrix(X), csc_array(X), bsr_matrix(X)):
        assert est._validate_data(other, reset=True).dtype == np.int8
    # Words that are out of order are put in order, which needs no wider type.
    shuffled = csr_matrix((np.array([3, 1, 2], np.int8), [2, 0, 1], [0, 2, 3]), shape=(2, 3))
    found = est._validate_data(shuffled, reset=True)
    assert found.dtype == np.int8
    assert_array_equal(found.toarray(), X.toarray())


# Masked arrays where missing has a meaning


def masked(X, where):
    """The values with nonsense behind the mask."""
    return np.ma.array(np.where(where, 77, X), mask=where)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_masked_ratings_are_unobserved(method):
    rng = np.random.default_rng(1)
    for stars in (rng.integers(1, 6, (12, 7)), rng.normal(size=(12, 7)).astype(np.float32)):
        where = rng.random(stars.shape) < 0.3
        kind = np.float32 if stars.dtype == np.float32 else float
        plain, X = np.where(where, NAN, stars).astype(kind), masked(stars, where)
        one, other = (getattr(pmf(), method)(Y) for Y in (plain, X))
        assert_array_equal(one.components_, other.components_)
        assert one.components_.dtype == other.components_.dtype
        assert_array_equal(one.transform(plain), other.transform(X))
        assert_array_equal(one.predict_rows(plain), other.predict_rows(X))
        assert_array_equal(one.recommend(plain, n=3), other.recommend(X, n=3))
        assert one.score(plain) == other.score(X)


def frames(emission):
    rng = np.random.default_rng(2)
    return {
        "gaussian": rng.normal(size=(20, 2)),
        "poisson": rng.poisson(3, size=(20, 2)),
        "bernoulli": rng.integers(0, 2, size=(20, 2)),
        "categorical": rng.integers(0, 4, size=(20, 1)),
    }[emission]


all_emissions = pytest.mark.parametrize(
    "emission", ["gaussian", "poisson", "bernoulli", "categorical"]
)


@all_emissions
def test_masked_frames_are_missing(emission):
    X, where = frames(emission), np.zeros(20, dtype=bool)
    where[[3, 11]] = True
    plain = np.where(where[:, None], NAN, X)
    broken = masked(X, np.repeat(where[:, None], X.shape[1], axis=1))
    one, other = hmm(emission).fit(plain), hmm(emission).fit(broken)
    assert one.lower_bound_ == other.lower_bound_
    assert_array_equal(one.predict_proba(plain), other.predict_proba(broken))
    assert one.decode(plain)[0] == other.decode(broken)[0]
    # A list of masked sequences, and what joins them.
    parts = [broken[:8], broken[8:]]
    listed = hmm(emission).fit(parts)
    assert listed.lower_bound_ == hmm(emission).fit(plain, lengths=[8, 12]).lower_bound_
    assert_array_equal(concat_sequences(parts)[0], plain)
    stream, plain_stream = hmm(emission, n_symbols=4), hmm(emission, n_symbols=4)
    assert stream.partial_fit(parts).lower_bound_ == (
        plain_stream.partial_fit(plain, lengths=[8, 12]).lower_bound_
    )


@pytest.mark.parametrize("emission", ["gaussian", "poisson"])
def test_masked_cells_of_frames_are_missing(emission):
    X = np.ma.array(frames(emission), mask=False)
    X[4, 1] = np.ma.masked
    filled = X.astype(float).filled(np.nan)
    est, other = hmm(emission).fit(X), hmm(emission).fit(filled)
    assert est.lower_bound_ == other.lower_bound_
    assert_array_equal(est.transform(X), other.transform(filled))


def test_a_mask_that_covers_nothing_is_nothing():
    X = np.abs(frames("gaussian"))
    same = np.ma.array(X, mask=False)
    for est in (topics(), hmm(), pmf()):
        assert est.fit(same, sample_weight=np.ma.ones(20)).lower_bound_ == est.fit(X).lower_bound_


# −1 is an id that was not seen


@pytest.fixture
def pairs():
    rng = np.random.default_rng(3)
    X = np.unique(rng.integers(0, 8, size=(40, 2)), axis=0)
    return X, rng.normal(size=len(X))


def test_minus_one_has_the_prior_in_predictions(pairs):
    X, y = pairs
    est = pmf(input="pairs").fit(X, y)
    unseen = np.array([[-1, 2], [3, -1], [-1, -1], [3, 2]])
    beyond = np.array([[900, 2], [3, 900], [900, 900], [3, 2]])
    one, other = (est.predict(ids, return_std=True) for ids in (unseen, beyond))
    assert_array_equal(one, other)
    assert len(np.unique(one[0])) == 4
    assert_allclose(one[0][2], est.intercept_)
    ratings = np.arange(4.0)
    assert est.score(unseen, ratings) == est.score(beyond, ratings)
    weights = np.array([1.0, 2, 3, 4])
    assert est.score(unseen, ratings, weights) == est.score(beyond, ratings, weights)
    assert_array_equal(est.predict_ratings(*unseen.T), other[0])
    assert_array_equal(est.predict(unseen.astype(float)), other[0])
    matrix = pmf().fit(np.arange(12.0).reshape(4, 3) % 5)
    assert_array_equal(
        matrix.predict_ratings([-1, 1], [2, -1]), matrix.predict_ratings([900, 1], [2, 900])
    )


def test_minus_one_as_an_encoder_gives_it(pairs):
    X, y = pairs
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    names = X.astype(str)
    est = pmf(input="pairs").fit(encoder.fit_transform(names), y)
    found = est.predict(encoder.transform([["nobody", "nothing"], names[0]]))
    assert_allclose(found[0], est.intercept_)


def test_minus_one_is_refused_in_training(pairs):
    X, y = pairs
    est = pmf(input="pairs").fit(X, y)
    X[3, 1] = -1
    for method in ("fit", "partial_fit"):
        for estimator in (est, pmf(input="pairs")):
            with pytest.raises(ValueError, match="integers from 0 to .*OrdinalEncoder"):
                getattr(estimator, method)(X, y)
    for ids in ([[-2, 0]], [[0, -2]]):
        with pytest.raises(ValueError, match="or −1 for those that were not seen"):
            est.predict(ids)


# Sequences


def test_one_y_per_sequence_of_a_list_is_ignored():
    rng = np.random.default_rng(4)
    sequences = [rng.normal(size=(n, 2)) for n in (6, 7, 8, 9, 6, 7)]
    y = np.array(list("ababab"))
    one = hmm().fit(sequences, y)
    assert one.lower_bound_ == hmm().fit(sequences).lower_bound_
    assert hmm().partial_fit(sequences, y).lower_bound_ == (
        hmm().partial_fit(sequences).lower_bound_
    )
    assert_array_equal(hmm().fit_transform(sequences, y), one.transform(sequences))
    cv = StratifiedKFold(3)
    by_hand = [
        hmm().fit([sequences[i] for i in train]).score([sequences[i] for i in test])
        for train, test in cv.split(sequences, y)
    ]
    assert_array_equal(cross_val_score(hmm(), sequences, y, cv=cv), by_hand)
    search = GridSearchCV(hmm(), {"n_components": [1, 2]}, cv=cv).fit(sequences, y)
    assert_allclose(search.cv_results_["mean_test_score"][1], np.mean(by_hand))


@pytest.mark.parametrize("method", ["fit", "partial_fit", "score"])
def test_y_of_another_length_is_refused(method):
    X = np.random.default_rng(4).normal(size=(20, 2))
    est = hmm().fit(X)
    with pytest.raises(ValueError, match="3 entries, but X has 20 rows of 2 sequences"):
        getattr(est, method)([X[:8], X[8:]], [0, 1, 2])
    # Where an array is cut by lengths, folds are made of rows.
    with pytest.raises(ValueError, match="did you mean lengths="):
        getattr(est, method)(X, [0, 1], lengths=[8, 12])
    # There is nothing to compare with the number of targets.
    with pytest.raises(ValueError, match="got scalar array"):
        getattr(est, method)(None, [0, 1])


def test_callbacks_may_score_with_one_y_per_sequence():
    callbacks = pytest.importorskip("sklearn.callback")
    X = np.random.default_rng(4).normal(size=(20, 2))
    monitor = callbacks.ScoringMonitor(scoring=lambda est, X, y: {"score": est.score(X, y)})
    est = hmm().set_callbacks(monitor).fit([X[:8], X[8:]], [0, 1])
    (whole,) = (row for row in monitor.get_logs().data if row["task_name"] == "fit")
    assert whole["score"] == pytest.approx(est.score([X[:8], X[8:]]))


@pytest.mark.parametrize("kind", [np.int64, np.uint8, float, list])
def test_symbols_may_have_one_dimension(kind):
    symbols = np.array([0, 1, 2, 1, 0, 0, 2, 2, 1, 0, 1, 1])
    flat = symbols.tolist() if kind is list else symbols.astype(kind)
    columns = symbols.astype(float)[:, None]
    one, other = hmm("categorical"), hmm("categorical").fit(columns, lengths=[5, 7])
    assert one.fit(flat, lengths=[5, 7]).lower_bound_ == other.lower_bound_
    how = {"groups": [0] * 5 + [1] * 7}
    for method in ("predict", "predict_proba", "score", "score_sequences"):
        call = getattr(other, method)
        assert_array_equal(call(flat, **how), call(columns, **how))
    assert other.decode(flat, **how)[0] == other.decode(columns, **how)[0]
    assert_array_equal(one.transform(flat), other.transform(columns))
    if kind in (np.int64, np.uint8):
        listed = hmm("categorical").fit([flat[:5], flat[5:]])
        assert listed.lower_bound_ == other.lower_bound_


def test_missing_symbols_of_one_dimension():
    columns = np.array([[0.0], [1], [NAN], [1], [0], [2], [0]])
    expected = hmm("categorical").fit(columns).lower_bound_
    flat = columns.ravel()
    integers = np.where(np.isnan(flat), -1, flat).astype(int)
    hidden = np.ma.masked_equal(integers, -1)
    pandas = pytest.importorskip("pandas")
    for X in (flat, integers, hidden, pandas.Series(flat, name="symbol")):
        assert hmm("categorical").fit(X).lower_bound_ == expected
    # Vectors have two dimensions, as everywhere.
    with pytest.raises(ValueError, match="Expected 2D array"):
        hmm().fit(flat)
