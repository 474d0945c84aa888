"""Sigmoid belief nets of sparse rows, which are fitted and predicted as the same rows in arrays."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from cases_parts import assert_same_fit
from harness import assert_identical
from models.sigmoid_belief_net import small_sigmoid_belief_net as net
from models.sigmoid_belief_net import stripes
from scipy import sparse
from test_checkpoints import interrupted

from sklearn_anneal import AnnealedSigmoidBeliefNet, Shards
from sklearn_anneal.annealing import ProximityVI
from sklearn_anneal.models import sigmoid_belief_net as models
from sklearn_anneal.models._binary_rows import SparseBits

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(autouse=True)
def several_parts(monkeypatch):
    """Let the rows of a chunk be sparse, and read in several parts, also where there are few."""
    monkeypatch.setattr(models, "_SAMPLES_AT_A_TIME", 16)
    monkeypatch.setattr(models, "_CELLS_OF_ARRAY", 0)


def thin(rng, n=60, d=14):
    """Binary rows with few ones, an empty row, and columns without any."""
    X = stripes(rng, n, d) * (rng.random((n, d)) < 0.4)
    X[3], X[:, [0, 5]] = 0.0, 0.0
    return X


def assert_close(one, other, rtol):
    for name in ("coefs_", "intercepts_", "recognition_coefs_", "recognition_intercepts_"):
        for a, b in zip(getattr(one, name), getattr(other, name), strict=True):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(one.lower_bounds_, other.lower_bounds_, rtol=rtol)


# Products


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products_are_those_of_arrays(dtype, rng):
    dense = thin(rng).astype(dtype)
    X = sparse.csr_array(dense)
    X.data[::3] = 0.5
    x, expected = SparseBits(X, X.data == 1, dtype), (X.toarray() == 1).astype(dtype)
    assert len(x) == len(expected) and x.shape == expected.shape and x.dtype == dtype
    V, slopes = rng.normal(size=(5, 14)).astype(dtype), rng.normal(size=(60, 5)).astype(dtype)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == np.float32 else {"atol": 1e-13}
    np.testing.assert_allclose(x @ V.T, expected @ V.T, **tolerance)
    np.testing.assert_allclose(slopes.T @ x, slopes.T @ expected, **tolerance)
    assert (x @ V.T).dtype == (slopes.T @ x).dtype == dtype
    np.testing.assert_array_equal(x.dense(slice(2, 9)), expected[2:9])


def test_draws_follow_from_the_content_as_those_of_arrays(rng):
    X = thin(rng) * rng.random((60, 14))
    stored = sparse.csr_array(X)
    stored.data[4] = 0.0
    X = stored.toarray()
    model = models.SigmoidBeliefNet((14, 3), 2, None, binarize="sample")
    for seed in (None, 5):
        keys = model.keys_of(X, seed)
        np.testing.assert_array_equal(model.keys_of(stored, seed), keys)
        sparse_bits = model.binary(stored, keys)
        np.testing.assert_array_equal(sparse_bits.dense(slice(0, 60)), model.binary(X, keys))


# Fits


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"batch_size": 17},
        {"batch_size": 17, "n_samples": 1, "hidden_layer_sizes": 3, "optimizer": "sgd"},
        {"binarize": 0.5},
        {"binarize": "sample"},
        {"annealing": "deterministic"},
        {"annealing": "svi_plus"},
        {"annealing": ProximityVI(constraint="kl", n_passes=4)},
        {"annealing": ProximityVI(constraint="active_units", n_passes=3), "batch_size": 17},
        {"early_stopping": True},
    ],
    ids=str,
)
def test_fits_are_those_of_arrays(params, rng):
    X, weights = thin(rng), rng.integers(0, 3, 60).astype(float)
    if params.get("binarize") is not None:
        X *= rng.random(X.shape)
    stored = sparse.csr_matrix(X)
    assert_close(net(**params).fit(stored), net(**params).fit(X), 1e-9)
    one = net(**params).fit(stored, sample_weight=weights)
    assert_close(one, net(**params).fit(X, sample_weight=weights), 1e-9)


@pytest.mark.parametrize("binarize", [None, 0.5, "sample"])
def test_narrow_chunks_are_arrays(binarize, rng, monkeypatch):
    """Results are then those of arrays bit for bit."""
    monkeypatch.undo()
    X = thin(rng) if binarize is None else thin(rng) * rng.random((60, 14))
    settings = {"binarize": binarize, "batch_size": 17}
    assert_same_fit(net(**settings).fit(sparse.csr_array(X)), net(**settings).fit(X))


def test_fits_of_single_precision_are_those_of_arrays(rng):
    """Draws differ where a rounding error changes a probability, so that bounds differ a little."""
    X = thin(rng, n=400).astype(np.float32)
    one, other = (net(max_iter=20).fit(x) for x in (sparse.csr_array(X), X))
    assert one.coefs_[0].dtype == one.transform(sparse.csr_array(X)).dtype == np.float32
    np.testing.assert_allclose(one.lower_bounds_, other.lower_bounds_, rtol=0.01)


def test_forms_of_sparse_rows_are_the_same(rng):
    X = sparse.csr_array(thin(rng))
    given = X.copy()
    expected = net().fit(X)
    unsorted, explicit, twice = X.copy(), X.copy(), X.tocoo()
    for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        unsorted.indices[a:b] = unsorted.indices[a:b][::-1]
    unsorted.has_sorted_indices = False
    rows, columns = (np.append(c, [0, 7]) for c in (twice.row, [*twice.col]))
    columns[-2:] = 0, 5
    explicit = sparse.csr_array((np.append(twice.data, [0.0, 0.0]), (rows, columns)), X.shape)
    assert explicit.nnz == X.nnz + 2
    wide = sparse.csr_array(X)
    wide.indices, wide.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    others = [unsorted, explicit, wide, X.astype(np.int8), X.astype(bool), sparse.csr_matrix(X)]
    for other in (*others, X.tocsc(), X.tocoo(), X.tolil()):
        assert_same_fit(net().fit(other), expected)
    for array in (X.data, X.indices, X.indptr):
        array.flags.writeable = False
    assert_same_fit(net().fit(X), expected)
    assert (X != given).nnz == 0


@pytest.mark.parametrize("value", [0.5, 2.0, -1.0, np.nan])
def test_stored_entries_have_to_be_binary(value, rng):
    X = sparse.csr_array(thin(rng))
    fitted = net().fit(X)
    place = np.flatnonzero(X.indices[X.indptr[7] : X.indptr[8]] > 0)[0]
    column = X.indices[X.indptr[7] + place]
    X.data[X.indptr[7] + place] = value
    words = "NaN" if np.isnan(value) else rf"entry {value:g} in row 7 and column {column}, .*0 and"
    for call in (net().fit, net().partial_fit, fitted.partial_fit, fitted.transform, fitted.score):
        with pytest.raises(ValueError, match=words):
            call(X)
    if value != 0.5:
        with pytest.raises(ValueError, match="NaN|between 0 and 1"):
            net(binarize="sample").fit(X)


def test_entries_that_are_stored_twice_are_added(rng):
    X = sparse.csr_array((np.array([0.5, 0.5, 1.0]), [0, 0, 1], [0, 2, 3]), shape=(2, 3))
    assert_same_fit(net().fit(X), net().fit(X.toarray()))
    X.data[:] = 1.0
    with pytest.raises(ValueError, match="entry 2 in row 0 and column 0"):
        net().fit(X)


def test_sparse_rows_have_no_threshold_below_zero(rng):
    with pytest.raises(ValueError, match="zeros that a sparse X does not store"):
        net(binarize=-0.5).fit(sparse.csr_array(thin(rng)))


def test_streams_parts_and_checkpoints(rng, tmp_path, monkeypatch):
    X = thin(rng)
    stored = sparse.csr_matrix(X)
    one, other = net(total_samples=60), net(total_samples=60)
    for rows in (slice(0, 25), slice(25, 60)):
        one.partial_fit(stored[rows])
        other.partial_fit(X[rows])
    assert_close(one, other, 1e-9)

    paths = [tmp_path / "a.npz", tmp_path / "b.npz"]
    for path, rows in zip(paths, (slice(0, 25), slice(25, 60)), strict=True):
        sparse.save_npz(path, stored[rows])
    parts = Shards([str(path) for path in paths])
    of_parts = net().fit(parts)
    assert_close(of_parts, net().fit(Shards([X[:25], X[25:]])), 1e-9)
    found = of_parts.transform(parts).compute()
    np.testing.assert_array_equal(np.concatenate(found), of_parts.transform(stored))
    assert of_parts.score(parts) == pytest.approx(of_parts.score(X), rel=1e-12)

    whole = net(batch_size=15).fit(stored)
    assert interrupted(monkeypatch, net(batch_size=15), stored, tmp_path / "kept", 2)
    assert_identical(net(batch_size=15).fit(stored, checkpoint=tmp_path / "kept"), whole)


def test_workers_change_nothing(rng):
    X = sparse.csr_array(thin(rng, n=700))
    settings = {"max_iter": 2, "batch_size": None}
    assert_same_fit(net(**settings, n_jobs=2).fit(X), net(**settings).fit(X))


# Predictions


def test_predictions_are_those_of_arrays(rng):
    X = thin(rng, n=300)
    fitted, stored = net(n_score_samples=7).fit(X[:60]), sparse.csr_array(X)
    for predict in (
        fitted.transform,
        lambda rows: fitted.transform(rows, layer=2),
        fitted.reconstruct,
        fitted.score_samples,
        lambda rows: fitted.score(rows, sample_weight=np.arange(300)),
    ):
        np.testing.assert_allclose(predict(stored), predict(X), rtol=1e-11)


def test_wide_rows_are_never_an_array(monkeypatch):
    """A fit needs as much as some samples of its parameters, and not as much as the table."""
    monkeypatch.undo()
    n, d = 400, 10_000
    columns = np.random.default_rng(0).integers(d, size=20 * n)
    X = sparse.csr_array((np.ones(20 * n), columns, 20 * np.arange(n + 1)), shape=(n, d))
    X.sum_duplicates()
    X.data[:] = 1.0
    est = AnnealedSigmoidBeliefNet((2,), n_samples=4, max_iter=1, batch_size=None, random_state=0)
    est.set_params(n_score_samples=4).fit(X[:20])
    for call in (est.fit, est.score_samples, est.transform):
        tracemalloc.start()
        call(X)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # The probabilities of all samples of a chunk of 256 rows would be 2.56 tables.
        assert peak < 0.6 * 8 * n * d
