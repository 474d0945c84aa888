"""Bad parts are refused with their numbers, and leave the estimator as it was."""

from __future__ import annotations

import tempfile
from itertools import product

import numpy as np
import pytest
from cases_parts import Counted, cut, folders
from harness import alternating, one_of_each_class
from models import ENTRIES, TRAINED_BY_GRADIENTS
from scipy.sparse import csr_matrix
from sklearn.base import clone

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedFactorialMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
    Shards,
)
from sklearn_anneal.data.parts import Here
from sklearn_anneal.estimators import _part_fits


@pytest.fixture(autouse=True)
def own_temporary_files(monkeypatch, tmp_path):
    """Files of tests that run at the same time are elsewhere."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(params=["all rows", "few rows"], autouse=True)
def rows_for_starts(request, monkeypatch):
    """Errors are the same whether starts see all rows, so that parts are read together, or few."""
    if request.param == "few rows":
        monkeypatch.setattr(_part_fits, "ROWS_FOR_STARTS", 12)


@pytest.fixture
def closed(monkeypatch):
    """The number of places that were opened and not closed."""
    opened = [0]
    put, close = Here.put, Here.close

    def count_put(self, loads):
        opened[0] += not hasattr(self, "counted")
        self.counted = True
        put(self, loads)

    def count_close(self):
        opened[0] -= hasattr(self, "counted")
        close(self)

    monkeypatch.setattr(Here, "put", count_put)
    monkeypatch.setattr(Here, "close", count_close)
    return opened


# The estimator of the page for developers has no predictions of parts.
IN_PARTS = [e for e in (*ENTRIES, *TRAINED_BY_GRADIENTS) if e.name != "geometric_mixture"]
MIXTURE = AnnealedBayesianGaussianMixture(n_components=2, annealing="none", random_state=0)
X = np.random.default_rng(0).standard_normal((40, 3))
COUNTS = np.random.default_rng(0).poisson(1.0, (40, 6))


def refused(est, parts, match, *rest, error=ValueError, **how):
    """Check that a fit is refused, and that it leaves nothing behind."""
    state, before = dict(vars(est)), folders()
    with pytest.raises(error, match=match) as caught:
        est.fit(parts if isinstance(parts, Shards) else Shards(parts), *rest, **how)
    assert vars(est) == state
    assert folders() == before
    return str(caught.value)


def changed(array, index, value):
    array = np.array(array, dtype=float)
    array[index] = value
    return array


def test_columns_that_differ(closed):
    refused(MIXTURE, [X, X, X[:, :2]], r"Part 2: it has 2 columns, but others have 3")
    refused(MIXTURE, [X[:0], X[:9], X[:, :2]], r"Part 2: it has 2 columns, but others have 3")
    refused(MIXTURE, Shards([X], n_features=4), r"n_features=4, but part 0 has 3 columns")
    assert closed == [0]


@pytest.mark.parametrize("wraps", [lambda frame: frame, lambda frame: lambda: frame])
def test_frames_of_polars_are_parts_with_names(wraps, rng):
    polars = pytest.importorskip("polars")
    X = rng.standard_normal((30, 2))
    frame = polars.DataFrame(X, schema=["a", "b"])
    est = AnnealedBayesianGaussianMixture(2, max_iter=5, random_state=0)
    lower_bound = clone(est).fit(Shards([X[:20], X[20:]])).lower_bound_
    est.fit(Shards([wraps(frame[:20]), wraps(frame[20:])]))
    assert est.lower_bound_ == lower_bound
    assert list(est.feature_names_in_) == ["a", "b"]
    with pytest.raises(ValueError, match="Part 1: its columns are named a, c, but .* named a, b"):
        est.fit(Shards([wraps(frame[:20]), wraps(frame[20:].rename({"b": "c"}))]))


def test_names_that_differ():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=["a", "b", "c"])
    other = table.rename(columns={"b": "d"})
    text = r"Part 1: its columns are named a, d, c, but those of others are named a, b, c"
    refused(MIXTURE, [table, other], text)
    refused(MIXTURE, [table, table[["b", "a", "c"]]], "Part 1: its columns are named b, a, c")
    refused(MIXTURE, [table, X], "Part 1: its columns are without names, but those of others")
    refused(MIXTURE, [X, table], "Part 1: its columns are named a, b, c, but .* without names")
    names = MIXTURE.fit(Shards([table[:20], table[20:]])).feature_names_in_
    assert names.tolist() == ["a", "b", "c"]


def test_dtypes_that_differ():
    parts = [X, X.astype(np.float32)]
    text = refused(MIXTURE, parts, r"Part \d: its dtype is float32, but that of others float64")
    assert "Give Shards a dtype" in text
    MIXTURE.fit(Shards(parts, dtype=np.float64))


@pytest.mark.parametrize(
    "est",
    [AnnealedGammaProcessNMF(2), AnnealedBayesianMixture(2, emission="poisson")],
    ids=["factorization", "mixture"],
)
def test_dense_parts_among_sparse_ones(est):
    sparse = csr_matrix(COUNTS.astype(float))
    refused(est, [sparse, COUNTS.astype(float)], r"Part \d: its data are (dense|sparse), but")


def test_sparse_parts_of_any_format_may_have_rows_of_weight_zero():
    weights = np.ones(len(COUNTS))
    weights[3] = 0.0
    fits = [
        AnnealedGammaProcessNMF(2, random_state=0, max_iter=2).fit(
            Shards([csr_matrix(COUNTS).asformat(form)]), sample_weight=[weights]
        )
        for form in ("csr", "csc", "coo")
    ]
    assert len({est.lower_bound_ for est in fits}) == 1


def test_files(tmp_path):
    missing = tmp_path / "nobody.npy"
    refused(MIXTURE, [X, missing], r"Part 1 \('.*nobody.npy'\) cannot be read", error=OSError)
    refused(MIXTURE, [X, "rows.csv"], r"Part 1 \('rows.csv'\).*\.npy, \.npz or \.parquet")
    np.savez(tmp_path / "two.npz", a=X, b=X)
    refused(MIXTURE, [tmp_path / "two.npz"], r"Part 0 .*two.npz.*it has 2 arrays, not one")
    for address in (
        "https://example.org/x.parquet",
        "s3://bucket/x.npy",
        "simplecache::s3://b/x.npz",
    ):
        text = f"Part 1 .*{address}.* it is an address, but only local files .* pandas.read_parquet"
        refused(MIXTURE, [X, address], text)
        refused(MIXTURE, [X, lambda address=address: address], "Part 1 .* it is an address")
    (tmp_path / "damaged.npy").write_bytes(b"nothing of the kind")
    refused(MIXTURE, [X, tmp_path / "damaged.npy"], r"Part 1 \('.*damaged.npy'\) cannot be read")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_allowed(value):
    bad = changed(X[30:], (3, 1), value)
    refused(AnnealedFactorialMixture(2), [X[:30], bad], "Part 1: Input X contains")
    if np.isinf(value):
        refused(MIXTURE, [X[:30], bad], "Part 1: Input X contains infinity")


@pytest.mark.parametrize("cls", [AnnealedLatentDirichletAllocation, AnnealedGammaProcessNMF])
def test_negative_counts(cls):
    bad = changed(COUNTS[30:], (3, 1), -1)
    refused(cls(2), [COUNTS[:30].astype(float), bad], "Part 1: Negative values")


def test_categories_that_were_not_declared():
    Z = COUNTS.clip(max=2)
    est = AnnealedBayesianMixture(2, emission="categorical", n_categories=3)
    refused(est, [Z[:20], changed(Z[20:], (0, 0), 3)], "Part 1: Column 0 .* category 3")
    est = AnnealedBayesianMixture(2, emission="categorical")
    refused(est, [Z[:20], Z[20:]], "n_categories, and so does fit with data in parts")


@pytest.mark.parametrize("kind", [RuntimeError, KeyError, OSError, TypeError])
@pytest.mark.parametrize("fails_at", [1, 2, 4])
def test_functions_that_fail(kind, fails_at):
    part = Counted(X[20:], fails_at, kind("no such luck"))
    error = kind if kind in (OSError, TypeError) else ValueError
    refused(MIXTURE, [X[:20], part], "Part 1 cannot be read: .*no such luck", error=error)


def test_weights_beside_other_parts():
    parts = cut(X, [10, 25])
    for weights in (np.ones(40), [np.ones(10), np.ones(30)]):
        text = "sample_weight should have one entry for each of the 3 parts"
        refused(MIXTURE, parts, text, sample_weight=weights)
    none = [np.ones(10), None, np.ones(15)]
    refused(MIXTURE, parts, "sample_weight has no entry for part 1", sample_weight=none)
    refused(
        MIXTURE,
        parts,
        "Part 1: .*(14|15)",
        sample_weight=[np.ones(10), np.ones(14), np.ones(15)],
    )
    negative = [np.ones(10), changed(np.ones(15), 3, -1.0), np.ones(15)]
    refused(MIXTURE, parts, "Part 1: .*[Nn]egative", sample_weight=negative)
    nothing = [np.zeros(10), np.zeros(15), np.zeros(15)]
    refused(MIXTURE, parts, "All sample weights are zero", sample_weight=nothing)


def test_no_data(closed):
    with pytest.raises(ValueError, match="parts is empty"):
        Shards([])
    refused(MIXTURE, [X[:0], X[:0]], "All parts are empty")
    for one in (X, "rows.npy", csr_matrix(X)):
        with pytest.raises(TypeError, match="parts should be a list of parts"):
            Shards(one)
    assert closed == [0]


def test_users_in_two_parts():
    """Compared one by one only where the ranges of parts overlap."""
    est = AnnealedPMF(2, input="pairs", n_items=4, max_iter=2, random_state=0)
    users, items = np.repeat(np.arange(12), 3), np.tile(np.arange(3), 12)
    pairs, y = np.column_stack([users, items]), np.linspace(1, 5, 36)
    ranges = [pairs[:18], pairs[17:]]
    text = "User 5 has ratings in part 0 and in part 1, but all ratings of a user"
    refused(est, ranges, text, [y[:18], y[17:]])
    even = users % 2 == 0
    est.fit(Shards([pairs[even], pairs[~even]]), [y[even], y[~even]])
    parts = [pairs[users < 2], pairs[even & (users > 1)], pairs[~even & (users > 1)], pairs[4:5]]
    of_parts = [np.ones(len(part)) for part in parts]
    refused(est, parts, "User 1 has ratings in part 0 and in part 3", of_parts)


def test_pairs_need_a_number_of_items_and_ratings_of_all_parts():
    pairs, y = np.column_stack([np.arange(12), np.arange(12) % 3]), np.linspace(1, 5, 12)
    settings = {"n_components": 2, "input": "pairs"}
    refused(AnnealedPMF(**settings), [pairs], "n_items", [y])
    est = AnnealedPMF(**settings, n_items=3)
    refused(est, cut(pairs, [5]), "y should have one entry for each of the 2 parts", y)
    refused(est, cut(pairs, [5]), "requires y")
    refused(est, cut(pairs, [5]), "Part 1: .*6", [y[:5], y[:6]])
    strings = [pairs[:5], np.array([["a", "b"]] * 7)]
    refused(est, strings, "Part 1: The ids of users", cut(y, [5]))


def test_sequences():
    chains = [[X[:4], X[4:9]], [X[9:12], X[12:20]]]
    est = AnnealedHMM(2, random_state=0, max_iter=2)
    refused(est, [chains[0], X[20:]], "Part 1: With data in parts, every part is a list of whole")
    refused(est, [chains[0], [X[:3], X[:4, :2]]], "Part 1: Sequence 1 has 2 columns")
    refused(est, [chains[0], [X[:4, :2]]], "Part 1: it has 2 columns, but others have 3")
    weights = [np.ones(2), np.ones(11)]
    refused(est, chains, "Part 1: .* one weight per sequence", sample_weight=weights)
    for name in ("groups", "lengths", "states"):
        refused(est, chains, f"{name} cannot be given with data in parts", **{name: [1, 2]})
    symbols = [[COUNTS[:5, :1].clip(max=2)], [COUNTS[5:, :1].clip(max=2)]]
    refused(AnnealedHMM(2, emission="categorical"), symbols, "need n_symbols")


def test_parts_of_another_width_than_that_of_the_last_fit():
    est = AnnealedBayesianGaussianMixture(n_components=2, annealing="none", warm_start=True).fit(X)
    refused(est, [X[:20, :2], X[20:, :2]], "X has 2 features")


def test_what_is_ignored_beside_rows_is_ignored_beside_parts():
    MIXTURE.fit(Shards(cut(X, [10])), np.zeros(40))


@pytest.mark.parametrize("method", ["aic", "bic", "relative_entropy"])
def test_methods_without_parts_refuse_those_with_weights_too(method):
    est = AnnealedBayesianMixture(2, emission="gaussian", random_state=0, max_iter=5).fit(X)
    parts = cut(X, [10])
    for weights in (None, [np.ones(10), np.ones(30)]):
        with pytest.raises(TypeError, match="data in parts, which this method does not take"):
            getattr(est, method)(Shards(parts), sample_weight=weights)


class Cursor:
    """A part that gives its rows at the first readings, and fewer of them at later ones."""

    def __init__(self, X, n_readings, left=0):
        self.X, self.n_readings, self.left = X, n_readings, left

    def __call__(self):
        self.n_readings -= 1
        return self.X if self.n_readings >= 0 else self.X[: self.left]


def shrinking(X, n_readings, left):
    """Two parts, of which the second shrinks, and what is said of it."""
    sort = "12 sequences with" if isinstance(X, list) else "12 rows when"
    text = f"Part 1: it had {sort}.* but has {left} (rows|sequences).* the same rows each time"
    return Shards([X[:18], Cursor(X[18:], n_readings, left)]), text


@pytest.mark.parametrize(
    ("entry", "n_readings", "left", "rows_for_starts"),
    [
        pytest.param(
            *case,
            marks=() if i % 4 == i // 4 % 12 % 4 else pytest.mark.exhaustive,
            id="-".join([case[0].name, *map(str, case[1:])]),
        )
        for i, case in enumerate(product(IN_PARTS, (1, 2, 3), (0, 7), ("all rows", "few rows")))
    ],
    indirect=["rows_for_starts"],
)
def test_parts_that_shrink_between_two_readings(entry, n_readings, left, rng):
    """A fit to all rows in the first pass and to others later would be a fit to nothing real."""
    X = entry.data(rng, 30)
    est = entry.make(**{**entry.first, "max_iter": 4, "tol": 0.0})
    refused(est, *shrinking(X, n_readings, left))


@pytest.mark.parametrize("rows_for_starts", ["all rows"], indirect=True)
@pytest.mark.parametrize(
    ("entry", "left"),
    alternating(
        one_of_each_class([pytest.param(entry, id=entry.name) for entry in IN_PARTS]), (0, 7)
    ),
)
def test_predictions_of_parts_that_shrink_between_two_readings(entry, left, rng):
    X = entry.data(rng, 30)
    whole = entry.make(**{**entry.first, "max_iter": 1}).fit(X)
    data, text = shrinking(X, 1, left)
    found = whole.transform(data)
    assert len(list(found)) == 2
    for again in (lambda: found.read(1), lambda: whole.transform(data).read(1)):
        with pytest.raises(ValueError, match=text):
            again()
    with pytest.raises(ValueError, match=text):
        whole.score(data)
    data, _ = shrinking(X, 1, left)
    whole.score(data)
    with pytest.raises(ValueError, match=text):
        whole.transform(data).compute()


def test_frames_that_are_missing_at_the_second_reading():
    """The number of sequences is the same, and that of their frames is not."""
    chains = [[X[:4], X[4:9]], [X[9:12], X[12:20]]]
    shorter = [chains[1][0][:2], chains[1][1]]
    readings = iter([chains[1], shorter])
    text = "Part 1: it had 2 sequences with 11 frames when .* but has 2 sequences with 10 frames"
    refused(AnnealedHMM(2, max_iter=2), [chains[0], lambda: next(readings)], text)


def test_a_stream_may_read_other_rows_at_every_call():
    stream = AnnealedBayesianGaussianMixture(n_components=2, random_state=0)
    batches = iter([X[:10], X[10:40], X[:0], X[5:15]])
    data = Shards([lambda: next(batches)])
    for _ in range(4):
        stream.partial_fit(data)
    plain = AnnealedBayesianGaussianMixture(n_components=2, random_state=0)
    for batch in (X[:10], X[10:40], X[5:15]):
        plain.partial_fit(batch)
    np.testing.assert_array_equal(stream.lower_bounds_, plain.lower_bounds_)


def test_nothing_in_the_place_of_a_part():
    refused(MIXTURE, [X, lambda: None], "Part 1: Expected sequence or array-like", error=TypeError)


def test_predictions_that_cannot_be_read():
    found = MIXTURE.fit(X).predict(Shards([X, "nobody.npy"]))
    with pytest.raises(FileNotFoundError, match=r"Part 1 \('nobody.npy'\) cannot be read"):
        found.read(1)
