"""Tables that every estimator reads, or refuses with the sentence that helps."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from designs import in_turn
from numpy.testing import assert_array_equal

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
)

pd = pytest.importorskip("pandas")
FAST = {"n_components": 2, "annealing": "none", "max_iter": 2, "random_state": 0}
ESTIMATORS = {
    "gaussian mixture": partial(AnnealedBayesianGaussianMixture, **FAST),
    "mixture of counts": partial(AnnealedBayesianMixture, emission="poisson", **FAST),
    "mixture of categories": partial(AnnealedBayesianMixture, emission="categorical", **FAST),
    "chain": partial(AnnealedHMM, **FAST),
    "chain of counts": partial(AnnealedHMM, emission="poisson", **FAST),
    "factorial mixture": partial(AnnealedFactorialMixture, **FAST),
    "nmf": partial(AnnealedGammaProcessNMF, **FAST),
    "topics": partial(AnnealedLatentDirichletAllocation, **FAST),
    "ratings": partial(AnnealedPMF, **FAST),
    "net": partial(AnnealedSigmoidBeliefNet, max_iter=2, random_state=0),
    "factors": partial(AnnealedSpikeSlabFactorAnalysis, **FAST),
}
all_estimators = pytest.mark.parametrize("name", ESTIMATORS)
METHODS = ("fit", "partial_fit", "predict", "transform", "score")
WITHOUT_MISSING = ("factorial mixture", "topics", "net")


def binary():
    """Zeros and ones, which all estimators read."""
    return np.random.default_rng(0).integers(0, 2, (30, 4)).astype(float)


def methods(est):
    return [getattr(est, method) for method in METHODS if hasattr(est, method)]


@all_estimators
def test_times_are_refused_with_a_unit(name):
    X = binary()
    est = ESTIMATORS[name]().fit(X)
    days = np.datetime64("2024-01-01") + np.arange(30).astype("timedelta64[D]")
    for column in (days, days - days[0], pd.Series(days).dt.tz_localize("UTC")):
        frame = pd.DataFrame(X, columns=list("abcd")).assign(b=column)
        for method in methods(est):
            with pytest.raises(ValueError, match="column 'b' of X has times .*timedelta64"):
                method(frame)
    for method in methods(est):
        with pytest.raises(ValueError, match="X has times .*time since a start"):
            method(np.column_stack([days, days]))


@all_estimators
def test_times_among_objects_are_refused_with_a_unit(name):
    X = binary()
    est = ESTIMATORS[name]().fit(X)
    day = pd.Timestamp("2024-01-01")
    of_numpy = day.to_numpy(), np.timedelta64(3, "s")
    for time in (day, day.to_pydatetime(), day.date(), day - day, *of_numpy):
        table = X.astype(object)
        table[5, 2] = time
        frame = pd.DataFrame(table, columns=list("abcd"), dtype=object)
        for method in methods(est):
            with pytest.raises(ValueError, match="column 2 of X has times .*time since a start"):
                method(table)
        with pytest.raises(ValueError, match="column 'c' of X has times .*time since a start"):
            ESTIMATORS[name]().fit(frame)


@all_estimators
def test_queries_of_polars_are_refused_with_the_way_out(name):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(binary(), schema=list("abcd"))
    est = ESTIMATORS[name]().fit(frame)
    for method in (*methods(est), ESTIMATORS[name]().fit):
        with pytest.raises(TypeError, match=r"X is a LazyFrame, .*X\.collect\(\)"):
            method(frame.lazy())


@all_estimators
def test_text_in_arrays_is_named_by_its_position(name):
    X = binary()
    est = ESTIMATORS[name]().fit(X)
    table = X.astype(object)
    table[5, 2] = "high"
    for method in methods(est):
        for given in (table, table.tolist(), table.astype(str)):
            message = "X has text in the column 2, but .*OrdinalEncoder"
            if name == "topics":
                message = f"CountVectorizer|{message}"
            with pytest.raises(ValueError, match=message) as caught:
                method(given)
            assert str(caught.value).count("X has text") <= 1


@all_estimators
def test_text_beside_nullable_columns_is_named(name):
    frame = pd.DataFrame(binary(), columns=list("abcd"))
    est = ESTIMATORS[name]().fit(frame)
    other = frame.assign(
        b=pd.Categorical(["low", "high"] * 15), c=pd.array(frame["c"].astype(int), dtype="Int64")
    )
    if name == "topics":
        message = "CountVectorizer|X has text in the column 'b'"
    else:
        message = "X has text in the column 'b', but .*OrdinalEncoder"
    for method in methods(est):
        with pytest.raises(ValueError, match=message):
            method(other)


@pytest.mark.parametrize("make", [AnnealedBayesianMixture, AnnealedHMM])
def test_the_way_out_of_text_is_that_of_the_emission(make):
    """Symbols and categories are numbered; one-hot columns are for numbers and binary columns."""
    words = np.array([["low"], ["high"]] * 5, dtype=object)
    for emission, advised in (("categorical", "categories are integers"), ("gaussian", "OneHot")):
        with pytest.raises(ValueError, match=f"X has text in the column 0, but .*{advised}"):
            make(2, emission=emission).fit(words)


@all_estimators
@pytest.mark.parametrize("dtype", [object, "string", None])
def test_text_in_any_dtype_of_pandas_is_named(name, dtype):
    words = pd.Series(["low", "high"] * 15, dtype=dtype)
    frame = pd.DataFrame(binary(), columns=list("abcd")).assign(b=words)
    with pytest.raises(ValueError, match="CountVectorizer|X has text in the column 'b'"):
        ESTIMATORS[name]().fit(frame)


@in_turn(name=ESTIMATORS, dtype=("f2", ">f4", ">f8", ">i2", ">i4"))
def test_half_precision_and_foreign_bytes_are_read(name, dtype):
    X = binary()
    X[0, 0] = X[1, 0] = 1
    exact = "f4" if dtype in ("f2", ">f4") else dtype.lstrip(">")
    est = ESTIMATORS[name]()
    found = est.fit(X.astype(dtype)).lower_bound_
    assert np.isfinite(found)
    expected = ESTIMATORS[name]().fit(X.astype(exact)).lower_bound_
    # Some estimators read other floats as float64.
    other = ESTIMATORS[name]().fit(X).lower_bound_
    assert found in (expected, other)
    if name != "ratings":
        assert np.isfinite(est.score(X.astype(dtype)))


@pytest.mark.parametrize("name", WITHOUT_MISSING)
def test_missing_cells_are_refused_without_talk_of_classifiers(name):
    X = binary()
    est = ESTIMATORS[name]().fit(X)
    X[3, 1] = np.nan
    for method in methods(est):
        with pytest.raises(ValueError, match="contains NaN, but Annealed.*: ") as caught:
            method(X)
        assert "HistGradientBoosting" not in str(caught.value)


@all_estimators
def test_weights_whose_squares_overflow_are_refused(name):
    X = binary()
    for weight in (1e31, 1e200, 1e308):
        with pytest.raises(ValueError, match=r"sample_weight sums to .* but at most 1e\+30"):
            ESTIMATORS[name]().fit(X, sample_weight=np.full(30, weight))
        with pytest.raises(ValueError, match=r"'total_samples' .* in the range \(0.0, 1e\+30\]"):
            ESTIMATORS[name](total_samples=weight).partial_fit(X)


@all_estimators
def test_the_largest_weights_that_are_read_have_a_finite_bound(name):
    X = binary()
    weights = np.full(30, 1e30 / 31)
    assert np.isfinite(
        ESTIMATORS[name](annealing="none").fit(X, sample_weight=weights).lower_bound_
    )


@all_estimators
def test_frames_that_store_what_is_not_missing(name):
    X = binary()
    X[::7, 1] = np.nan
    frame = pd.DataFrame(X, columns=list("abcd"))
    sparse = frame.astype(pd.SparseDtype(float, np.nan))
    est = ESTIMATORS[name]()
    if name in WITHOUT_MISSING:
        with pytest.raises(ValueError, match="contains NaN, but Annealed"):
            est.fit(sparse)
        return
    expected = ESTIMATORS[name]().fit(frame)
    est.fit(sparse)
    assert est.lower_bound_ == pytest.approx(expected.lower_bound_, rel=1e-12)
    assert_array_equal(est.feature_names_in_, list("abcd"))
    if hasattr(est, "transform"):
        np.testing.assert_allclose(est.transform(sparse), expected.transform(frame), rtol=1e-9)


def test_frames_of_ratings_keep_ratings_of_zero():
    X = np.full((12, 4), np.nan)
    rng = np.random.default_rng(0)
    rated = rng.random(X.shape) < 0.6
    X[rated] = rng.integers(0, 3, rated.sum())
    frame = pd.DataFrame(X).astype(pd.SparseDtype(float, np.nan))
    est = partial(AnnealedPMF, **FAST)
    assert est().fit(frame).lower_bound_ == est().fit(X).lower_bound_


def test_triples_in_the_place_of_pairs():
    X = np.random.default_rng(0).integers(0, 5, (30, 3))
    with pytest.raises(ValueError, match=r"two columns.*it has 3.*fit\(X\[:, :2\], X\[:, 2\]\)"):
        AnnealedPMF(2, input="pairs").fit(X, np.ones(30))


@all_estimators
def test_inverse_temperatures_after_another_method(name):
    est = ESTIMATORS[name](annealing="none")
    if not hasattr(type(est), "inverse_temperatures"):
        return
    message = "exists with annealing='local_tempering', and this one was fitted with .*'none'"
    with pytest.raises(AttributeError, match=message):
        est.fit(binary()).inverse_temperatures(binary())
    assert not hasattr(est, "inverse_temperatures")


@all_estimators
def test_collections_of_dask_are_not_gathered_silently(name):
    da = pytest.importorskip("dask.array")
    X = binary()
    est = ESTIMATORS[name]().fit(X)
    chunks = da.from_array(X, chunks=(10, 4))
    with pytest.raises(TypeError, match=r"collection of Dask, .*X.compute\(\)"):
        est._validate_data(chunks, reset=False)
    for method in ("perplexity", "bic", "aic", "decode", "score_sequences"):
        if hasattr(est, method):
            with pytest.raises(TypeError, match="collection of Dask"):
                getattr(est, method)(chunks)
