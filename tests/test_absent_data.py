"""A row, sequence, user or rating of weight zero is absent, whatever its values are."""

from __future__ import annotations

from inspect import signature
from itertools import product

import numpy as np
import pytest
from cases_parts import assert_same_fit, cut
from harness import alternating, combinations, forms, models, one_of_each_class, quick, taking_turns
from models.hidden_markov import SequenceList
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix, issparse, vstack

from sklearn_anneal import AnnealedBayesianMixture, AnnealedHMM, AnnealedPMF, Shards
from sklearn_anneal.estimators import _part_fits

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

N = 40
# Where data points of weight zero are put.
FIRST, MIDDLE, LAST = 0, N // 2, N


def wild(X):
    """Data points whose values are far beyond those of X: categories, counts and real numbers."""
    if isinstance(X, list):
        return SequenceList([wild(frames) for frames in X])
    if issparse(X):
        return csr_matrix(wild(X.toarray()))
    columns = []
    for column in X.T:
        seen = column[~np.isnan(column)]
        if np.isin(seen, [-1.0, 0.0, 1.0]).all():
            beyond = 1.0
        elif (seen == np.floor(seen)).all():
            beyond = 2.0**40
        else:
            beyond = 1e100
        columns.append(np.full(len(column), beyond))
    return np.column_stack(columns).astype(X.dtype)


def with_absent(X):
    """X with wild data points among its own, and the mask of its own."""
    present = np.insert(np.ones(N, dtype=bool), [FIRST, MIDDLE, LAST], False)
    # The whole of X shows what kind of column each is.
    absent = wild(X[:3]) if isinstance(X, list) else wild(X)[:3]
    places = np.empty(N + 3, dtype=int)
    places[present], places[~present] = np.arange(N), N + np.arange(3)
    if isinstance(X, list):
        both = X + absent
        return SequenceList([both[i] for i in places]), present
    both = vstack([X, absent], format="csr") if issparse(X) else np.concatenate([X, absent])
    return both[places], present


def weights_of(present, rng):
    own = rng.integers(1, 3, size=N).astype(float)
    weights = np.zeros(len(present))
    weights[present] = own
    return own, weights


@pytest.mark.parametrize(("entry", "params", "name"), taking_turns(combinations()))
def test_a_fit_does_not_see_data_points_of_weight_zero(entry, params, name, rng):
    """All attributes are those of a fit without them, bit for bit."""
    X = entry.data(rng, N)
    more, present = with_absent(X)
    own, weights = weights_of(present, rng)
    settings = {"annealing": quick(name, 2), "max_iter": 2, **params}
    one = entry.make(**settings).fit(X, sample_weight=entry.row_weights(X, own))
    other = entry.make(**settings).fit(more, sample_weight=entry.row_weights(more, weights))
    assert_same_fit(other, one)
    if hasattr(one, "user_factors_"):
        # Users of weight zero have factors, like all rows of the matrix.
        assert_array_equal(other.user_factors_[present], one.user_factors_)
        assert len(other.user_factors_) == len(present)
    if hasattr(one, "activations_"):
        assert_allclose(other.activations_[present], one.activations_, rtol=1e-10)
        assert len(other.activations_) == len(present)


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_minibatches_do_not_see_data_points_of_weight_zero(entry, rng):
    X = entry.data(rng, N)
    more, present = with_absent(X)
    own, weights = weights_of(present, rng)
    settings = {"annealing": "none", **entry.first, **entry.in_batches(16)}
    one = entry.make(**settings).fit(X, sample_weight=entry.row_weights(X, own))
    other = entry.make(**settings).fit(more, sample_weight=entry.row_weights(more, weights))
    assert_same_fit(other, one)


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_a_stream_does_not_see_data_points_of_weight_zero(entry, rng):
    settings = {"annealing": "none", **entry.first}
    one, other = entry.make(**settings), entry.make(**settings)
    for _ in range(2):
        X = entry.data(rng, N)
        more, present = with_absent(X)
        own, weights = weights_of(present, rng)
        one.partial_fit(X, sample_weight=entry.row_weights(X, own))
        other.partial_fit(more, sample_weight=entry.row_weights(more, weights))
    assert_same_fit(other, one)


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_data_in_parts_do_not_see_data_points_of_weight_zero(entry, rng, monkeypatch):
    """Starts are computed from a sample, in which they have no place either."""
    monkeypatch.setattr(_part_fits, "ROWS_FOR_STARTS", 30)
    X = entry.data(rng, N)
    more, present = with_absent(X)
    own, weights = weights_of(present, rng)
    settings = {"annealing": "none", **entry.first}
    found = []
    # The first part has weight zero, which makes it a part without data points.
    for data, each, ends in ((X, own, [0, 10, 30]), (more, weights, [1, 11, 32])):
        est = entry.make(**settings)
        found.append(est.fit(Shards(cut(data, ends)), sample_weight=cut(each, ends)))
    assert_same_fit(found[1], found[0])


@pytest.mark.parametrize("entry", one_of_each_class(models()))
def test_scores_do_not_see_data_points_of_weight_zero(entry, rng):
    X = entry.data(rng, N)
    more, present = with_absent(X)
    own, weights = weights_of(present, rng)
    est = entry.make(annealing="none", **entry.first).fit(X)
    for name in ("score", "aic", "bic", "relative_entropy"):
        method = getattr(est, name, None)
        if method is not None and "sample_weight" in signature(method).parameters:
            expected = method(X, sample_weight=entry.row_weights(X, own))
            assert method(more, sample_weight=entry.row_weights(more, weights)) == expected


def filled(X, value):
    """The first data points of X with one value in all cells."""
    if isinstance(X, list):
        return SequenceList([np.full(frames.shape, value) for frames in X[:2]])
    if issparse(X):
        return csr_matrix(np.full(X[:2].shape, value))
    return np.full(X[:2].shape, value)


@pytest.mark.parametrize(
    ("entry", "params", "values"),
    alternating(forms(sampled=False), ((np.nan, 2.0**40), (-7.0, 0.5))),
)
def test_scores_take_all_that_fits_take_with_weight_zero(entry, params, values, rng):
    """Values that are refused with a weight too, such as categories beyond the tables."""
    X = entry.data(rng, N)
    settings = {"annealing": "none", "max_iter": 1, **params}
    est = entry.make(**settings).fit(X)
    scores = [
        method
        for name in ("score", "aic", "bic", "relative_entropy")
        if (method := getattr(est, name, None)) is not None
        and "sample_weight" in signature(method).parameters
    ]
    expected = [method(X) for method in scores]
    for value in values:
        add = filled(X, value)
        more = SequenceList(X + add) if isinstance(X, list) else None
        if more is None:
            more = vstack([X, add], format="csr") if issparse(X) else np.concatenate([X, add])
        weights = entry.row_weights(more, np.repeat([1.0, 0.0], [N, 2]))
        try:
            entry.make(**settings).fit(more, sample_weight=weights)
        except ValueError:
            # No weight makes these values readable.
            with pytest.raises(ValueError):
                entry.make(**settings).fit(more)
            continue
        found = [method(more, sample_weight=weights) for method in scores]
        assert found == pytest.approx(expected, rel=1e-12), value


# What the largest value declares


@pytest.mark.parametrize("declared", [None, 3, 12])
def test_categories_of_weight_zero_do_not_exist(declared, rng):
    """Neither do they make a fit too large, or break the number that is declared."""
    X = np.concatenate([rng.integers(3, size=(60, 2)), [[1, 10**7], [2**40, 0]]])
    X[:3, 0] = X[:3, 1] = [0, 1, 2]
    weights = np.repeat([1.0, 0.0], [60, 2])
    settings = {"n_categories": declared, "annealing": "none", "random_state": 0, "max_iter": 5}
    est = AnnealedBayesianMixture(2, emission="categorical", **settings)
    bounds = []
    for n in (62, 60):
        est.fit(X[:n], sample_weight=weights[:n])
        assert_array_equal(est.n_categories_, [declared or 3] * 2)
        bounds.append(est.lower_bound_)
    assert bounds[0] == bounds[1]
    est = AnnealedBayesianMixture(2, emission=[("all", "categorical", [0, 1])], **settings)
    fitted = est.fit(X, sample_weight=weights).blocks_["all"]
    assert_array_equal(fitted.n_categories_, [declared or 3] * 2)


@pytest.mark.parametrize("declared", [None, 3])
@pytest.mark.parametrize("symbol", [3, 9, 2**40])
def test_symbols_of_weight_zero_do_not_exist(symbol, declared):
    symbols = np.repeat([[0], [1], [2], [symbol]], 10, axis=0)
    weights = np.repeat([1.0, 0.0], [30, 10])
    for emission in ("categorical", [("all", "categorical", [0])]):
        est = AnnealedHMM(
            2,
            emission=emission,
            n_symbols=declared,
            annealing="none",
            max_iter=5,
            random_state=0,
        )
        est.fit(symbols, lengths=[30, 10], sample_weight=weights)
        if emission == "categorical":
            assert est.n_symbols_ == 3
        else:
            assert est.blocks_["all"].n_categories_ == 3
        bound = est.lower_bound_
        assert est.fit(symbols[:30], sample_weight=weights[:30]).lower_bound_ == bound
        score = est.score(symbols, lengths=[30, 10], sample_weight=weights)
        assert score == est.score(symbols[:30])


def test_known_states_of_weight_zero_name_no_state(rng):
    X = rng.standard_normal((40, 1))
    states, weights = np.repeat([-1, 1], 20), np.repeat([1.0, 0.0], 20)
    est = AnnealedHMM(2, annealing="none", random_state=0)
    est.partial_fit(X, lengths=[20, 20], states=states, sample_weight=weights)
    with pytest.raises(ValueError, match="numbered without"):
        est.partial_fit(X, lengths=[20, 20], states=states)


@pytest.mark.parametrize("declared", [None, 6])
def test_ratings_of_weight_zero_declare_neither_users_nor_items(declared, rng):
    """Nor do they widen the range of ratings."""
    pairs = np.array(list(product(range(6), range(6))))
    y = rng.normal(3.0, 1.0, size=len(pairs))
    more = np.concatenate([[[900_000, 2]], pairs, [[1, 900_000]]])
    ratings, weights = np.concatenate([[1e50], y, [-1e50]]), np.ones(len(more))
    weights[[0, -1]] = 0.0
    sizes = {"n_users": declared, "n_items": declared}
    how = {"annealing": "none", "max_iter": 5, "random_state": 0}
    est = AnnealedPMF(2, input="pairs", **how, **sizes)
    one = est.fit(pairs, y, sample_weight=weights[1:-1])
    expected = one.lower_bound_, one.user_factors_, one.components_, one.rating_range_
    score = one.score(pairs, y)
    est.fit(more, ratings, sample_weight=weights)
    assert (est.n_users_, est.n_items_) == (6, 6)
    for value, other in zip(
        (est.lower_bound_, est.user_factors_, est.components_, est.rating_range_),
        expected,
        strict=True,
    ):
        assert_array_equal(value, other)
    assert est.score(more, ratings, sample_weight=weights) == score


@pytest.mark.parametrize(
    "entry", [entry for entry in models() if "sparse" in entry.id or "dirichlet" in entry.id]
)
def test_a_column_of_weight_zero_is_one_without_entries(entry, rng):
    """Words that occur only in documents of weight zero change nothing."""
    X = entry.data(rng, N).tolil()
    X[:, 0] = 0
    X = X.tocsr()
    more, present = with_absent(X)
    own, weights = weights_of(present, rng)
    settings = {"annealing": "none", **entry.first}
    one = entry.make(**settings).fit(X, sample_weight=own)
    assert_same_fit(entry.make(**settings).fit(more, sample_weight=weights), one)
