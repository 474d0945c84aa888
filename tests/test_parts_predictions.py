"""Predictions, scores and streams of data in parts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from cases_parts import Counted, cut
from harness import alternating, assert_identical, one_of_each_class, quick
from models import ENTRIES, TRAINED_BY_GRADIENTS
from scipy.sparse import issparse
from scipy.sparse import vstack as vstack_sparse

from sklearn_anneal import AnnealedPMF, Shards

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# The estimator of the page for developers has no predictions of parts. Tests of labels and
# covariates have some of their own.
NINE = [
    pytest.param(entry, id=entry.name)
    for entry in (*ENTRIES, *TRAINED_BY_GRADIENTS)
    if entry.name not in ("geometric_mixture", "mixture_labels", "mixture_covariates")
]
METHODS = (
    "predict",
    "predict_proba",
    "transform",
    "score_samples",
    "inclusion_probabilities",
    "reconstruct",
    "impute",
    "recommend",
    "predict_rows",
    "inverse_temperatures",
)


def fitted(entry, X, **params):
    settings = {**entry.first, "annealing": "none", "max_iter": 2, **params}
    return entry.make(**settings).fit(X)


def joined(found):
    """Put the predictions of parts together; a pair has a number and an array."""
    if isinstance(found[0], tuple):
        return sum(one for one, _ in found), joined([other for _, other in found])
    return vstack_sparse(found) if issparse(found[0]) else np.concatenate(found)


def pairs_of(X):
    """The known ratings of a matrix as pairs, and the ratings."""
    users, items = np.nonzero(~np.isnan(X))
    return np.column_stack([users, items]), X[users, items]


@pytest.mark.parametrize("entry", NINE)
def test_score_is_that_of_the_rows(entry, rng):
    """A mean over rows, sequences, tokens, cells or ratings, some parts of weight zero or empty."""
    X = entry.data(rng, 40)
    est, ends = fitted(entry, X), [11, 11, 14]
    weights = rng.integers(1, 4, size=40).astype(float)
    weights[11:14] = 0.0
    found = est.score(Shards(cut(X, ends)))
    assert found == pytest.approx(est.score(X), rel=1e-10)
    found = est.score(Shards(cut(X, ends)), sample_weight=cut(weights, ends))
    expected = est.score(X, sample_weight=entry.row_weights(X, weights))
    assert found == pytest.approx(expected, rel=1e-10)


def test_score_of_pairs_is_that_of_all_pairs(rng):
    X, y = pairs_of(rng.standard_normal((20, 5)))
    est = AnnealedPMF(2, input="pairs", max_iter=2, random_state=0).fit(X, y)
    weights = rng.random(len(y))
    parts = [cut(one, [31, 70]) for one in (X, y, weights)]
    found = est.score(Shards(parts[0]), parts[1], sample_weight=parts[2])
    assert found == pytest.approx(est.score(X, y, sample_weight=weights), rel=1e-10)
    predicted = est.predict(Shards(parts[0]))
    np.testing.assert_allclose(np.concatenate(predicted.compute()), est.predict(X), rtol=1e-12)


def test_users_of_parts_are_not_known_by_their_ids(rng):
    X = rng.normal(size=(20, 4))
    matrix = AnnealedPMF(2, random_state=0, max_iter=3).fit(Shards([X[:9], X[9:]]))
    ids, ratings = pairs_of(X)
    parts = Shards([ids[:36], ids[36:]]), [ratings[:36], ratings[36:]]
    pairs = AnnealedPMF(2, input="pairs", n_items=4, random_state=0, max_iter=3).fit(*parts)
    for call, way in (
        (lambda: matrix.recommend_for([0]), "Call recommend .* in parts"),
        (lambda: matrix.predict_ratings([0], [0]), "Call recommend"),
        (lambda: pairs.recommend_for([3]), "input='matrix'"),
        (lambda: pairs.predict(ids), "input='matrix'"),
        (lambda: pairs.score(*parts), "input='matrix'"),
    ):
        with pytest.raises(ValueError, match=f"stay with the parts.*{way}"):
            call()
    # Nothing is known of the user −1.
    items, scores = matrix.recommend_for([-1], n=1, return_scores=True)
    assert matrix.predict_ratings([-1], items[0]) == pytest.approx(scores[0])


@pytest.mark.parametrize("name", ["latent_dirichlet", "gamma_process_nmf", "matrix_factorization"])
def test_parts_in_which_nothing_can_be_predicted_do_not_count(name, rng):
    entry = next(entry for entry in ENTRIES if entry.name == name)
    X = entry.data(rng, 40)
    est = fitted(entry, X)
    nothing = X[:3] * 0 if name == "latent_dirichlet" else np.full_like(X[:3], np.nan)
    found = est.score(Shards([X[:15], nothing, X[15:]]))
    assert found == pytest.approx(est.score(X), rel=1e-10)
    with pytest.raises(ValueError, match="nothing of positive weight to score"):
        est.score(Shards([nothing, nothing]))


@pytest.mark.parametrize("entry", one_of_each_class(NINE))
def test_predictions_are_shards_that_compute_nothing_before_they_are_read(entry, rng):
    X = entry.data(rng, 30)
    methods = {"none": METHODS}
    if "local_tempering" not in entry.refused(entry.first):
        methods["local_tempering"] = ("inverse_temperatures",)
    for annealing, names in methods.items():
        est = fitted(entry, X, annealing=quick(annealing, 2))
        counted = [Counted(part) for part in cut(X, [4, 17])]
        for name in names:
            if not hasattr(est, name) or (name == "impute" and issparse(X)):
                continue
            expected = getattr(est, name)(X)
            before = [part.n_calls for part in counted]
            found = getattr(est, name)(Shards(counted))
            assert isinstance(found, Shards)
            assert len(found) == 3
            assert [part.n_calls for part in counted] == before
            together = joined(found.compute())
            assert [part.n_calls for part in counted] == [n + 1 for n in before]
            if isinstance(expected, tuple):
                assert together[0] == pytest.approx(expected[0], rel=1e-10)
                together, expected = together[1], expected[1]
            if issparse(expected):
                together, expected = together.toarray(), expected.toarray()
            assert together.dtype == expected.dtype
            np.testing.assert_allclose(together, expected, rtol=1e-7, atol=1e-10)


def moved(X, offset):
    """A copy of data whose arrays begin so many bytes after a multiple of 64."""
    if isinstance(X, list):
        return [moved(sequence, offset) for sequence in X]
    if issparse(X):
        parts = (moved(part, offset) for part in (X.data, X.indices, X.indptr))
        return type(X)(tuple(parts), shape=X.shape, copy=False)
    room = np.empty(X.nbytes + 128, dtype=np.uint8)
    start = -room.ctypes.data % 64 + offset
    found = room[start : start + X.nbytes].view(X.dtype).reshape(X.shape)
    found[...] = X
    return found


def pieces(found):
    """The arrays that a prediction consists of; numbers are sums over all rows."""
    found = found if isinstance(found, tuple) else (found,)
    return [one.toarray() if issparse(one) else np.asarray(one) for one in found]


@pytest.mark.parametrize(("entry", "offset"), alternating(NINE, (3, 24, 0)))
def test_predictions_depend_on_other_rows_by_rounding_alone(entry, offset, rng):
    """Where arrays begin changes no bit, and other blocks of rows change the last digits.

    Products of matrices round differently for another number of rows, on some processors in a few
    rows and on others in none.
    """
    X = entry.data(rng, 141)
    annealing = "none" if "local_tempering" in entry.refused(entry.first) else "local_tempering"
    est = entry.make(**{**entry.first, "annealing": quick(annealing, 2), "max_iter": 3}).fit(X)
    elsewhere, shards = moved(X, offset), Shards(cut(X, [1, 2, 51, 77]))
    for name in METHODS:
        if hasattr(est, name) and not (name == "impute" and issparse(X)):
            method = getattr(est, name)
            expected = pieces(method(X))
            for one, other in zip(pieces(method(elsewhere)), expected, strict=True):
                np.testing.assert_array_equal(one, other)
            for one, other in zip(pieces(joined(method(shards).compute())), expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


# Models that make products of different shapes: factors, topics, distances, sequences and ratings.
PRODUCTS = "spike_slab_f or dirichlet or gaussian_mixture or markov_gaussian or factorization"


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "Haswell",
        *(
            pytest.param(kind, marks=pytest.mark.exhaustive)
            for kind in ("Prescott", "Nehalem", "SkylakeX")
        ),
    ],
)
def test_predictions_on_other_processors(kind):
    """The products that OpenBLAS has for some kinds of processor; other libraries ignore it."""
    name = test_predictions_depend_on_other_rows_by_rounding_alone.__name__
    found = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-n",
                "0",
                __file__,
                "-k",
                f"{name} and ({PRODUCTS})",
            )
        ],
        env={**os.environ, "OPENBLAS_CORETYPE": kind},
        capture_output=True,
        text=True,
    )
    if found.returncode == -signal.SIGILL:
        pytest.skip(f"this processor lacks instructions of {kind}")
    assert found.returncode == 0, found.stdout


def framed(X):
    """Data as frames with names, rows in single precision; an empty list tells no dtype."""
    pd = pytest.importorskip("pandas")
    if isinstance(X, list):
        return [pd.DataFrame(sequence).add_prefix("c") for sequence in X]
    if issparse(X):
        return pd.DataFrame.sparse.from_spmatrix(X).add_prefix("c")
    return pd.DataFrame(X).add_prefix("c").astype(np.float32)


def rowless(X):
    """Parts without rows beside others that are as X: alike in form, a bare list, a bare array."""
    return [X.iloc[:0] if hasattr(X, "iloc") else X[:0], [], np.empty(0), np.empty((0, 0))]


def assert_without_rows(nothing, found):
    """Check that a prediction has no rows, and that it is otherwise like another one."""
    if isinstance(found, tuple):
        assert nothing[0] == 0
        nothing, found = nothing[1], found[1]
    assert type(nothing) is type(found)
    assert nothing.shape == (0, *found.shape[1:])
    assert nothing.dtype == found.dtype


@pytest.mark.parametrize(
    ("entry", "form"), alternating(one_of_each_class(NINE), ("arrays", "frames"))
)
def test_an_empty_part_has_predictions_without_rows(entry, form, rng, recwarn):
    """In whichever form, as fits and scores take it."""
    X = entry.data(rng, 30)
    # A sparse matrix has no missing cells.
    names = [name for name in METHODS if name != "impute" or not issparse(X)]
    if form == "frames":
        X = framed(X)
    annealing = "none" if entry.refused(entry.first).get("local_tempering") else "local_tempering"
    est = fitted(entry, X, annealing=quick(annealing, 2))
    recwarn.clear()
    parts = [X, *rowless(X)]
    for name in names:
        if hasattr(est, name):
            expected, *empty = getattr(est, name)(Shards(parts)).compute()
            for nothing in empty[: 1 if form == "frames" else None]:
                assert_without_rows(nothing, expected)
    assert est.score(Shards(parts)) == pytest.approx(est.score(X), rel=1e-10)
    assert [str(one.message) for one in recwarn] == []


def test_an_empty_part_has_the_dtype_of_the_others(rng):
    entry = ENTRIES[0]
    X = entry.data(rng, 30).astype(np.float32)
    est = fitted(entry, X)
    for parts in ([X, X[:0]], [X, []]):
        found = est.predict_proba(Shards(parts, dtype=np.float32)).compute()
        assert [one.dtype for one in found] == [np.float32, np.float32]
    with pytest.raises(ValueError, match="Part 0: X has 2 features, but"):
        est.predict(Shards([X[:0, :2]])).compute()


def test_an_empty_part_of_pairs(rng):
    X, y = pairs_of(rng.standard_normal((20, 5)))
    est = AnnealedPMF(2, input="pairs", max_iter=2, random_state=0).fit(X, y)
    for nothing in (X[:0], [], np.empty((0, 2))):
        found = est.predict(Shards([X, nothing])).compute()
        assert_without_rows(found[1], found[0])
        pair = est.predict(Shards([X, nothing]), return_std=True).compute()
        assert [one.shape for one in pair[1]] == [(0,), (0,)]


def test_an_empty_part_of_another_library(rng):
    polars = pytest.importorskip("polars")
    entry = ENTRIES[0]
    X = polars.DataFrame({name: rng.random(30) for name in "ab"})
    est = fitted(entry, X)
    found = est.predict_proba(Shards([X, X[:0]])).compute()
    assert_without_rows(found[1], found[0])
    with pytest.raises(ValueError, match="Part 0: The feature names should match"):
        est.predict_proba(Shards([X[:0].rename({"a": "c"})])).compute()


def test_predictions_need_a_fit_and_keywords(rng):
    entry = ENTRIES[0]
    X = entry.data(rng, 20)
    with pytest.raises(ValueError, match="not fitted"):
        entry.make().predict(Shards([X]))
    topics = next(entry for entry in ENTRIES if entry.name == "latent_dirichlet")
    counts = topics.data(rng, 20)
    est = fitted(topics, counts)
    found = est.transform(Shards([counts]), normalize=False).read(0)
    np.testing.assert_array_equal(found, est.transform(counts, normalize=False))


def test_an_error_of_a_prediction_names_the_part(rng):
    entry = ENTRIES[0]
    X = entry.data(rng, 20)
    found = fitted(entry, X).predict(Shards([X, X[:, :2]]))
    assert len(found.read(0)) == 20
    with pytest.raises(ValueError, match="Part 1: X has 2 features"):
        found.read(1)


@pytest.mark.parametrize("entry", one_of_each_class(NINE))
def test_a_stream_of_parts_is_a_stream_of_batches(entry, rng):
    """Bit for bit, with weights, and with an empty part that is left out."""
    X, weights = entry.data(rng, 40), rng.integers(1, 3, size=40).astype(float)
    ends = [15, 15, 27]
    settings = {**entry.first, "annealing": quick("deterministic", 2), "total_samples": 40}
    in_parts, batches = entry.make(**settings), entry.make(**settings)
    in_parts.partial_fit(Shards(cut(X, ends)), sample_weight=cut(weights, ends))
    for part, own in zip(cut(X, ends), cut(weights, ends), strict=True):
        if own.size:
            batches.partial_fit(part, sample_weight=entry.row_weights(part, own))
    assert_identical(in_parts, batches)


def test_a_stream_of_pairs_may_come_back_to_a_user(rng):
    X, y = pairs_of(rng.standard_normal((20, 5)))
    order = rng.permutation(len(y))
    X, y = X[order], y[order]
    settings = {"n_components": 2, "input": "pairs", "n_items": 5, "random_state": 0}
    in_parts = AnnealedPMF(**settings).partial_fit(Shards(cut(X, [40])), cut(y, [40]))
    batches = AnnealedPMF(**settings).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    assert_identical(in_parts, batches)


def test_a_stream_that_fails_leaves_the_estimator_as_it_was(rng):
    entry = ENTRIES[0]
    X = entry.data(rng, 20)
    est = entry.make().partial_fit(X)
    before = entry.make().partial_fit(X)
    with pytest.raises(ValueError, match="Part 1: "):
        est.partial_fit(Shards([X, X[:, :2]]))
    assert_identical(est, before)


@pytest.mark.parametrize("entry", one_of_each_class(NINE))
def test_fit_and_prediction_in_one_call(entry, rng):
    X = entry.data(rng, 30)
    shards = Shards(cut(X, [13]))
    settings = {**entry.first, "annealing": "none", "max_iter": 2}
    for both, alone in (("fit_transform", "transform"), ("fit_predict", "predict")):
        est = entry.make(**settings)
        if hasattr(est, both):
            found = getattr(est, both)(shards)
            assert isinstance(found, Shards)
            expected = getattr(entry.make(**settings).fit(shards), alone)(shards)
            for one, other in zip(found, expected, strict=True):
                one, other = (a.toarray() if issparse(a) else a for a in (one, other))
                np.testing.assert_array_equal(one, other)
