"""Tables that a mixture of any columns reads, and those that it refuses with a sentence."""

from __future__ import annotations

import re
import tracemalloc
from functools import partial

import numpy as np
import pytest
from designs import in_turn
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix
from sklearn import config_context
from sklearn.base import clone
from sklearn.preprocessing import OrdinalEncoder
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_anneal import AnnealedBayesianMixture, AnnealedHMM
from sklearn_anneal.datasets import delete_cells, make_mixture
from sklearn_anneal.estimators import _emissions
from sklearn_anneal.inspection import ComponentProfilesDisplay
from sklearn_anneal.models.components import categorical_columns

pd = pytest.importorskip("pandas")

mixture = partial(
    AnnealedBayesianMixture, n_components=2, annealing="none", max_iter=3, random_state=0
)
EMISSIONS = ("bernoulli", "categorical", "poisson", "gaussian")
DISCRETE = EMISSIONS[:3]
SPARSE = ("bernoulli", "poisson")
BLOCKS = [
    ("sizes", "gaussian", [3]),
    ("answers", "categorical", [1, 4]),
    ("visits", "poisson", [2]),
    ("owns", "bernoulli", [0]),
]
NAMES = list("abcde")
NAMED = [(name, kind, [NAMES[c] for c in columns]) for name, kind, columns in BLOCKS]
READERS = ("predict", "predict_proba", "score_samples", "score", "impute", "partial_fit", "bic")

every_emission = pytest.mark.parametrize("emission", EMISSIONS)
every_reader = pytest.mark.parametrize("method", READERS)


def table(emission):
    """Rows of five columns, of which those of counts and categories have small integers."""
    return make_mixture(40, 5, emission=emission, random_state=0)[0]


def fitted(emission, **parameters):
    return mixture(emission=emission, **parameters).fit(table(emission))


def with_cell(X, value, row=3, column=1):
    X = np.array(X, dtype=float)
    X[row, column] = value
    return X


def same(a, b):
    """Two fits have the same bound and the same components."""
    assert_allclose(a.lower_bound_, b.lower_bound_, rtol=1e-12)
    assert_allclose(a.weights_, b.weights_, rtol=1e-10)


# Values


@pytest.mark.parametrize(
    ("emission", "value", "words"),
    [
        ("bernoulli", 2, "Binary columns are of 0 and 1.* but X contains 2"),
        (
            "bernoulli",
            0.5,
            "Binary columns are of 0 and 1.* but X contains 0.5. The parameter emission",
        ),
        ("bernoulli", -2, "Binary columns are of 0 and 1.* but X contains -2"),
        ("bernoulli", 1e300, r"Binary columns are of 0 and 1.* but X contains 1e\+300"),
        ("categorical", 0.5, "Categories are integers 0, 1, … .* but X contains 0.5"),
        ("categorical", -2, "Categories are integers 0, 1, … .* but X contains -2"),
        ("categorical", 1e300, r"Levels are numbers below 2 \*\* 31, but X contains 1e\+300"),
        ("poisson", -1, "Counts are integers 0, 1, …, but X contains -1"),
        ("poisson", 0.5, "Counts are integers 0, 1, …, but X contains 0.5"),
        *[(name, v, "infinity") for name in EMISSIONS for v in (np.inf, -np.inf)],
    ],
)
@pytest.mark.parametrize("where", ["table", "block"])
def test_values_that_a_cell_cannot_have(emission, value, words, where):
    X = table(emission)
    how = [("rest", emission, [0, 2, 3, 4]), ("one", emission, [1])]
    emission = how if where == "block" else emission
    est = mixture(emission=emission, n_categories=3 if "categ" in str(emission) else None).fit(X)
    if where == "block" and "infinity" not in words:
        words = "In the block 'one': " + words
    X = with_cell(X, value)
    for method in ("fit", *READERS):
        with pytest.raises(ValueError, match=words):
            getattr(est, method)(X)
    with pytest.raises(ValueError, match=words):
        mixture(emission=emission).fit(X)


@every_reader
def test_levels_that_were_not_declared(method):
    est = fitted("categorical")
    X = with_cell(table("categorical"), 3)
    words = "Column 1 of the categories has the category 3.*n_categories of at least 4"
    with pytest.raises(ValueError, match=words):
        getattr(est, method)(X)
    declared = fitted("categorical", n_categories=4)
    getattr(declared, method)(X)
    assert [p.shape for p in declared.emissionprob_] == 5 * [(2, 4)]
    blocks = mixture(emission=BLOCKS).fit(table(BLOCKS))
    X = with_cell(table(BLOCKS), 7, column=4)
    with pytest.raises(ValueError, match=f"In the block 'answers': {words.replace('3', '7')[:40]}"):
        getattr(blocks, method)(X)


@pytest.mark.parametrize("marker", [-1, np.nan])
@pytest.mark.parametrize("emission", ["bernoulli", "categorical"])
def test_minus_one_and_nan_are_missing(emission, marker):
    X = delete_cells(table(emission), 0.2, random_state=0)
    X[5] = np.nan
    est = mixture(emission=emission).fit(X)
    marked = np.where(np.isnan(X), marker, X)
    same(mixture(emission=emission).fit(marked), est)
    if marker == -1:
        same(mixture(emission=emission).fit(marked.astype(np.int8)), est)
    for method in ("predict_proba", "score_samples", "impute"):
        assert_array_equal(getattr(est, method)(marked), getattr(est, method)(X))
    assert not np.isnan(est.impute(marked)).any() and (est.impute(marked) >= 0).all()
    assert_allclose(est.predict_proba(marked)[5], est.weights_, atol=0.02)


@every_emission
def test_columns_without_an_observed_cell(emission):
    X = table(emission)
    X[:, 2] = np.nan
    with pytest.raises(ValueError, match="Column 2 of X has no observed value"):
        mixture(emission=emission).fit(X)
    stream = mixture(emission=emission, n_categories=3)
    if emission in ("poisson", "gaussian"):
        with pytest.raises(ValueError, match="Column 2 of X has no observed value"):
            stream.partial_fit(X)
    else:
        # The priors of levels do not depend on the first batch.
        assert np.isfinite(stream.partial_fit(X).score(table(emission)))
    # Later batches of a stream, and rows to predict, need not have one.
    stream = mixture(emission=emission, n_categories=3).partial_fit(table(emission))
    assert np.isfinite(stream.partial_fit(X).score(X))


@pytest.mark.parametrize("column", range(5))
def test_columns_of_blocks_without_an_observed_cell_are_named_by_their_place_in_the_table(column):
    X = table(BLOCKS)
    X[:, column] = np.nan
    with pytest.raises(ValueError, match=f"Column {column} of X has no observed value"):
        mixture(emission=BLOCKS).fit(X)


@every_emission
def test_masked_arrays(emission):
    X = table(emission)
    masked = np.ma.masked_array(X, mask=np.arange(X.size).reshape(X.shape) == 7)
    for call in (mixture(emission=emission).fit, fitted(emission).predict):
        with pytest.raises(ValueError, match=r"masked.*X\.filled\(numpy\.nan\)"):
            call(masked)
    same(
        mixture(emission=emission).fit(masked.filled(np.nan)),
        mixture(emission=emission).fit(with_cell(X, np.nan, 1, 2)),
    )
    # A mask that hides nothing does not matter.
    same(mixture(emission=emission).fit(np.ma.masked_array(X)), fitted(emission))


# Types


@in_turn(
    dtype=(bool, np.int8, np.uint8, np.int64, np.uint64, np.float16, np.float32, object),
    emission=DISCRETE,
)
def test_the_type_of_integers_does_not_matter(emission, dtype):
    X = table(emission)
    if dtype is bool:
        X = (X > 0).astype(float)
    a, b = mixture(emission=emission).fit(X), mixture(emission=emission).fit(X.astype(dtype))
    rows = X[:7].astype(dtype)
    assert_allclose(b.lower_bound_, a.lower_bound_, rtol=1e-6)
    assert_allclose(b.predict_proba(rows), a.predict_proba(X[:7]), rtol=1e-5, atol=1e-6)
    assert b.predict_proba(rows).dtype == (np.float32 if dtype is np.float32 else np.float64)
    assert_array_equal(b.impute(rows), X[:7])


@in_turn(dtype=(bool, np.uint8, np.int64, np.float32, np.longdouble), emission=SPARSE)
def test_the_type_of_sparse_integers_does_not_matter(emission, dtype):
    X = np.minimum(table(emission), 1)
    dense = mixture(emission=emission).fit(X)
    # The starts of merged rows are others, so that bounds of the same parameters are compared.
    for kind in (csr_array, csr_matrix, csc_array, coo_array):
        S = kind(X.astype(dtype))
        fit = mixture(emission=emission, init_params="kmeans").fit(S)
        stream = mixture(emission=emission).partial_fit(S)
        assert np.isfinite([fit.lower_bound_, stream.lower_bound_]).all()
        assert_allclose(dense.predict_proba(S), dense.predict_proba(X), rtol=1e-5, atol=1e-6)
        assert_allclose(dense.score_samples(S), dense.score_samples(X), rtol=1e-5)


@pytest.mark.parametrize("init_params", ["kmeans", "k-means++", "random_from_data", "random"])
@pytest.mark.parametrize("emission", SPARSE)
def test_long_indices_of_sparse_tables_are_read_like_short_ones(emission, init_params):
    """Searches try starts from k-means, and that of scikit-learn refuses long indices."""
    S = csr_array(np.minimum(table(emission), 1).astype(float))
    parts = S.data, S.indices.astype(np.int64), S.indptr.astype(np.int64)
    long = csr_array(parts, shape=S.shape)
    # scipy shortens them where the array is made.
    long.indices, long.indptr = parts[1:]
    one, other = (
        AnnealedBayesianMixture(2, emission=emission, init_params=init_params, random_state=0)
        for _ in range(2)
    )
    assert other.fit(long).lower_bound_ == one.fit(S).lower_bound_
    assert_array_equal(other.predict_proba(long), one.predict_proba(S))


@pytest.mark.parametrize(
    ("emission", "words"),
    [
        ("categorical", "Categories cannot be sparse"),
        ("gaussian", "Gaussian columns cannot be sparse"),
        (BLOCKS, "sparse X cannot be divided into blocks"),
    ],
)
def test_tables_that_cannot_be_sparse(emission, words):
    X = table(emission)
    est = mixture(emission=emission).fit(X)
    for call in (est.predict, est.impute, mixture(emission=emission).fit):
        with pytest.raises(TypeError, match=words):
            call(csr_array(X))


@pytest.mark.parametrize("emission", SPARSE)
def test_sparse_tables(emission):
    X = table(emission)
    est = fitted(emission)
    with pytest.raises(ValueError, match="impute returns a dense array"):
        est.impute(csr_array(X))
    for value in (-1, 0.5):
        with pytest.raises(ValueError, match=f"but X contains {value}"):
            est.predict(csr_array(with_cell(X, value)))
    holes = with_cell(X, np.nan)
    assert_allclose(est.predict_proba(csr_array(holes)), est.predict_proba(holes))


def words():
    return np.where(table("bernoulli") > 0, "yes", "no")


def test_the_way_out_keeps_missing_cells():
    frame = pd.DataFrame(words()).astype("category")
    frame.iloc[3, 2] = np.nan
    codes = OrdinalEncoder().fit_transform(frame)
    est = mixture(emission="categorical").fit(codes)
    assert list(est.n_categories_) == 5 * [2]
    assert np.isnan(codes[3, 2]) and est.impute(codes)[3, 2] in (0, 1)


def test_polars_text_is_refused_with_a_way_out():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(words(), schema=NAMES)
    for X in (frame, frame.cast(polars.Categorical)):
        with pytest.raises(ValueError, match="OrdinalEncoder"):
            mixture(emission="categorical").fit(X)


@pytest.mark.parametrize("dtype", ["complex128", "datetime64[s]"])
def test_numbers_that_are_not_real(dtype):
    with pytest.raises(ValueError, match="real numbers|Complex data|times"):
        mixture().fit(table("bernoulli").astype(dtype))


@every_emission
def test_pandas_types_with_missing_cells(emission):
    X = np.round(np.abs(table(emission)))
    holes = with_cell(X, np.nan)
    frame = pd.DataFrame(X.astype(int), columns=NAMES).astype("Int64")
    frame.iloc[3, 1] = pd.NA
    est = mixture(emission=emission).fit(frame)
    plain = mixture(emission=emission).fit(holes)
    same(est, plain)
    assert_allclose(est.impute(frame), plain.impute(holes), rtol=1e-8)
    objects = holes.astype(object)
    objects[3, 1] = None
    for given in (objects, objects.tolist(), frame.astype(object)):
        same(mixture(emission=emission).fit(given), plain)


def test_pandas_booleans():
    X = table("bernoulli")
    frame = pd.DataFrame(X.astype(bool), columns=NAMES).astype("boolean")
    frame.iloc[3, 1] = pd.NA
    est = mixture().fit(frame)
    same(est, mixture().fit(with_cell(X, np.nan)))
    assert est.impute(frame)[3, 1] in (0.0, 1.0)


def test_pandas_categories_that_are_integers_are_read_as_these():
    X = table("categorical")
    frame = pd.DataFrame(X.astype(int), columns=NAMES).astype("category")
    same(mixture(emission="categorical").fit(frame), fitted("categorical"))


# Shapes


@pytest.mark.parametrize("emission", [*EMISSIONS, BLOCKS], ids=[*EMISSIONS, "blocks"])
def test_more_components_than_rows(emission):
    X = table(emission)
    with pytest.raises(ValueError, match="n_components = 6, n_samples = 4"):
        mixture(emission=emission, n_components=6).fit(X[:4])
    # Distinct rows can be fewer, as in surveys.
    few = mixture(emission=emission, n_components=6).fit(np.repeat(X[:3], 20, axis=0))
    assert np.isfinite(few.lower_bound_) and few.weights_.sum() == pytest.approx(1)


@in_turn(start=("random", "kmeans", "k-means++", "random_from_data"), emission=EMISSIONS)
def test_fewer_rows_than_components_that_say_anything(emission, start):
    """Rows of weight zero, rows without cells, and equal rows are not refused."""
    X, few = table(emission), np.isin(np.arange(40), [1, 5, 9])
    make = partial(mixture, emission=emission, n_components=6, init_params=start, n_categories=3)
    for fit in (
        make().fit(X, sample_weight=10.0 * few),
        make().fit(np.where(few[:, None], X, np.nan)),
        make().fit(np.repeat(X[few], 10, axis=0)),
    ):
        assert np.isfinite(fit.lower_bound_) and fit.weights_.sum() == pytest.approx(1)
        assert np.isfinite(fit.score_samples(X)).all()


# Blocks


@pytest.mark.parametrize(
    ("emission", "words"),
    [
        ([], "empty list"),
        (["bernoulli"], r"list of \(name, emission, columns\), but has 'bernoulli'"),
        ([("a", "bernoulli")], r"list of \(name, emission, columns\)"),
        ([("a", "bernouli", [0])], "Block 'a' has the emission 'bernouli'.*mean 'bernoulli'"),
        ([("a", ["bernoulli"], [0])], r"Block 'a' has the emission \['bernoulli'\]"),
        ([("a", "gaussian", [0]), ("a", "poisson", [1])], "different names.*got 'a'"),
        ([("", "gaussian", [0])], "different names"),
        ([(0, "gaussian", [0])], "different names.*got 0"),
        ([("a", "bernoulli", [])], "Block 'a' has no columns"),
        ([("a", "bernoulli", [0, 1]), ("b", "poisson", [1, 2, 3, 4])], "Column 1 of X is in 2"),
        ([("a", "bernoulli", [0, 0])], "Column 0 of X is in 2"),
        ([("a", "bernoulli", slice(0, 3))], "Column 3 of X is in 0 blocks.*drop it from X"),
        ([("a", "bernoulli", [0, 9])], "In the block 'a'.*features must be in"),
        ([("a", "bernoulli", ["x"])], "In the block 'a'.*strings.*only supported for dataframes"),
        ([("a", "bernoulli", [0.5])], "In the block 'a'.*specification of the columns"),
    ],
)
def test_blocks_that_divide_nothing(emission, words):
    with pytest.raises(ValueError, match=words):
        mixture(emission=emission).fit(table("bernoulli"))


def test_columns_in_several_blocks_are_named():
    """No advice to add them to a block, as for columns in none."""
    X = pd.DataFrame({"owns": [0, 1, 0, 1], "age": [1.0, 2.0, 3.0, 4.0]})
    blocks = [("a", "bernoulli", ["owns"]), ("b", "gaussian", ["age", "owns"])]
    with pytest.raises(ValueError, match=r"Column 0 \('owns'\).*in 2 blocks.*Leave it in one\.$"):
        mixture(emission=blocks).fit(X)


@pytest.mark.parametrize("emission", ["normal", 3, None, tuple(BLOCKS)])
def test_emissions_that_do_not_exist(emission):
    with pytest.raises(InvalidParameterError, match="'emission' parameter of AnnealedBayesianMix"):
        mixture(emission=emission).fit(table("bernoulli"))


NAMES_OF_COUNTS = ("events", "poisson")
OTHER_BLOCKS = [("a", "events", [0]), ("b", "poisson", [1])]


@pytest.fixture
def counts(monkeypatch):
    """A table of counts, while these have a second name."""
    monkeypatch.setitem(_emissions.EMISSIONS, "events", _emissions.PoissonEmission)
    drawn = [make_mixture(40, 2, emission=name, random_state=0)[0] for name in NAMES_OF_COUNTS]
    assert_array_equal(*drawn)
    return drawn[0]


@pytest.mark.parametrize("cls", [AnnealedBayesianMixture, AnnealedHMM])
@pytest.mark.parametrize("listed", [False, True])
def test_an_emission_of_the_table_is_known_everywhere(cls, listed, counts):
    """Every fit and every draw is that of counts."""
    fits = []
    for name in NAMES_OF_COUNTS:
        emission = [("a", name, [0]), ("b", "poisson", [1])] if listed else name
        est = cls(2, emission=emission, max_iter=2, effort=0, random_state=0)
        fits.append(est.fit(counts))
    assert_array_equal(*[est.sample(5)[0] for est in fits])
    found = [est.blocks_["a"] if listed else est for est in fits]
    assert_array_equal(*[own.lambdas_ for own in found])
    if not listed:
        with pytest.raises(AttributeError, match="was fitted with emission='events'"):
            _ = fits[0].means_


def test_an_emission_that_left_the_table_is_refused_everywhere(counts, monkeypatch):
    assert hasattr(AnnealedBayesianMixture(emission="events"), "top_words")
    monkeypatch.delitem(_emissions.EMISSIONS, "events")
    for cls in (AnnealedBayesianMixture, AnnealedHMM):
        with pytest.raises(InvalidParameterError, match="'emission' parameter of Annealed"):
            cls(2, emission="events").fit(counts)
    known = re.escape(str(sorted(_emissions.EMISSIONS)))
    message = f"Block 'a' has the emission 'events', but emissions are {known}"
    for call in (
        AnnealedHMM(2, emission=OTHER_BLOCKS).fit,
        AnnealedHMM(2, emission=OTHER_BLOCKS).partial_fit,
        AnnealedBayesianMixture(2, emission=OTHER_BLOCKS).fit,
        lambda X: make_mixture(10, 2, emission=OTHER_BLOCKS),
    ):
        with pytest.raises(ValueError, match=message):
            call(counts)


def test_profiles_of_an_emission_that_is_not_in_the_table():
    pytest.importorskip("matplotlib")
    fitted = mixture(emission="poisson").fit(table("poisson"))
    fitted.set_params(emission="geometric")
    with pytest.raises(ValueError, match="Profiles are drawn of .* these have 'geometric'"):
        ComponentProfilesDisplay.from_estimator(fitted)


def test_unknown_emissions_are_refused_where_scikit_learn_does_not_check(rng):
    X = rng.normal(size=(30, 2))
    message = "emission is 'normal', but emissions are .* Did you mean 'gaussian'"
    with config_context(skip_parameter_validation=True):
        for call in (
            AnnealedHMM(2, emission="normal").fit,
            AnnealedBayesianMixture(2, emission="normal").fit,
            lambda X: make_mixture(10, 2, emission="normal"),
        ):
            with pytest.raises(ValueError, match=message):
                call(X)


@pytest.mark.parametrize(
    "columns",
    [
        [[3], [1, 4], [2], [0]],
        [3, [-1, 1], 2, 0],
        [slice(3, 4), [1, 4], slice(2, 3), slice(0, 1)],
        [np.arange(5) == 3, np.isin(np.arange(5), [1, 4]), np.array([2]), (0,)],
        [["d"], ["b", "e"], ["c"], ["a"]],
        ["d", ["b", "e"], "c", "a"],
        [slice("d", "d"), ["b", "e"], pd.Index(["c"]), "a"],
    ],
)
def test_columns_are_given_as_to_a_column_transformer(columns):
    X = table(BLOCKS)
    frame = pd.DataFrame(X, columns=NAMES)
    emission = [(n, kind, c) for (n, kind, _), c in zip(BLOCKS, columns, strict=True)]
    est, plain = mixture(emission=emission).fit(frame), mixture(emission=BLOCKS).fit(X)
    assert_allclose(est.predict_proba(frame), plain.predict_proba(X), atol=1e-8)
    assert {n: sorted(b.columns) for n, b in est.blocks_.items()} == {n: c for n, _, c in BLOCKS}


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_names_of_columns(package):
    frames = pytest.importorskip(package)
    X = delete_cells(table(BLOCKS), 0.1, random_state=1)
    frame = frames.DataFrame(dict(zip(NAMES, X.T, strict=True)))
    est = mixture(emission=NAMED).fit(frame)
    plain = mixture(emission=BLOCKS).fit(X)
    same(est, plain)
    assert list(est.feature_names_in_) == NAMES
    assert_array_equal(est.impute(frame), plain.impute(X))
    with pytest.raises(ValueError, match="feature names should match"):
        est.predict(frame[NAMES[::-1]])
    with pytest.raises(ValueError, match="In the block 'answers'.*not columns.*'e'"):
        mixture(emission=NAMED).fit(frame[NAMES[:4]])


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_names_of_columns_of_frames_of_markov_models(package):
    frames = pytest.importorskip(package)
    X = table(BLOCKS)
    frame = frames.DataFrame(dict(zip(NAMES, X.T, strict=True)))
    make = partial(AnnealedHMM, 2, annealing="none", max_iter=3, random_state=0)
    named, plain = make(emission=NAMED).fit(frame), make(emission=BLOCKS).fit(X)
    assert named.score(frame) == plain.score(X)


def test_columns_of_different_types():
    X = table(BLOCKS)
    frame = pd.DataFrame(
        {
            "a": X[:, 0].astype(bool),
            "b": X[:, 1].astype(np.int8),
            "c": pd.array(X[:, 2].astype(int), dtype="Int64"),
            "d": X[:, 3],
            "e": pd.array(X[:, 4].astype(int), dtype="UInt8"),
        }
    )
    same(mixture(emission=NAMED).fit(frame), mixture(emission=BLOCKS).fit(X))
    frame.loc[3, "c"] = pd.NA
    frame.loc[4, "e"] = pd.NA
    holes = with_cell(with_cell(X, np.nan, 3, 2), np.nan, 4, 4)
    est = mixture(emission=NAMED).fit(frame)
    same(est, mixture(emission=BLOCKS).fit(holes))
    filled, std = est.impute(frame, return_std=True)
    known = ~np.isnan(holes)
    assert_array_equal(filled[known], X[known])
    assert (std[known] == 0).all() and std[3, 2] > 0 and np.isnan(std[4, 4])


# Numbers of categories


@pytest.mark.parametrize(
    ("emission", "given"),
    [
        ("categorical", None),
        (BLOCKS, None),
        (BLOCKS, {}),
    ],
)
def test_streams_of_categories_need_their_numbers(emission, given):
    with pytest.raises(ValueError, match="partial_fit needs n_categories"):
        mixture(emission=emission, n_categories=given).partial_fit(table(emission))


@pytest.mark.parametrize("given", [3, [3, 4], {"answers": 3}, {"answers": [3, 4]}])
def test_declared_numbers_of_blocks(given):
    est = mixture(emission=BLOCKS, n_categories=given).partial_fit(table(BLOCKS))
    numbers = given["answers"] if isinstance(given, dict) else given
    assert_array_equal(est.blocks_["answers"].n_categories_, np.broadcast_to(numbers, 2))


@pytest.mark.parametrize(
    ("emission", "given", "words"),
    [
        ("categorical", [3, 3], r"one for each of the 5 columns.*shape \(2,\)"),
        ("categorical", [[3] * 5], r"one for each of the 5 columns.*shape \(1, 5\)"),
        ("categorical", [0] * 5, "positive integers"),
        ("categorical", [3.0] * 5, "positive integers"),
        ("categorical", [True] * 5, "positive integers"),
        ("categorical", ["a"] * 5, "positive integers"),
        ("categorical", 0, "'n_categories' parameter"),
        ("categorical", "3", "'n_categories' parameter"),
        ("categorical", 10**13, r"n_categories should have numbers below 2 \*\* 31"),
        ("categorical", {"": 3}, "dictionary only if emission is a list"),
        (BLOCKS, {"owns": 2}, r"names 'owns', but the blocks of categories are \['answers'\]"),
        (BLOCKS, {"answers": [3, 3, 3]}, r"In the block 'answers'.*each of the 2 columns"),
        (BLOCKS, {"answers": 2}, "In the block 'answers'.*category 2.*at least 3"),
    ],
)
def test_numbers_of_categories_that_do_not_fit(emission, given, words):
    with pytest.raises(ValueError, match=words):
        mixture(emission=emission, n_categories=given).fit(table(emission))


def test_a_stream_of_real_numbers_begins_with_enough_distinct_rows(rng):
    model = AnnealedBayesianMixture(3, emission="gaussian", random_state=0)
    with pytest.raises(ValueError, match="3 distinct rows are needed; it has 2"):
        model.partial_fit([[0.0], [1.0], [0.0], [1.0]])
    given = {"means_prior": [0.0], "scale_prior": 1.0}
    model.set_params(**given).partial_fit([[0.0], [1.0], [0.0], [1.0]])


def test_equal_rows_of_small_weight_are_as_many_as_were_given():
    """Rows that are merged into one still suffice for as many components as there are rows."""
    X = np.zeros((12, 3))
    few = np.full(12, 0.1)
    fitted = mixture(n_components=4, emission="bernoulli").fit(X, sample_weight=few)
    assert np.isfinite(fitted.lower_bound_)
    with pytest.raises(ValueError, match="n_components = 13, n_samples = 12"):
        mixture(n_components=13, emission="bernoulli").fit(X, sample_weight=few)


def _few_answers(rng):
    group = rng.integers(0, 3, 300)
    X = (group[:, None] + rng.integers(0, 3, (300, 5))) % 5
    return np.where(rng.random(X.shape) < 0.05, -1, X)


@pytest.mark.parametrize("init_params", ["random_from_data", "kmeans", "k-means++"])
def test_starts_and_moves_are_the_same_where_categories_are_many(init_params, rng, monkeypatch):
    """Points are sparse then, and the mean of a missing cell is left out."""
    X = _few_answers(rng)
    emissions = "categorical", [("a", "categorical", [0, 1, 4]), ("b", "poisson", [2, 3])]
    for emission, table in zip(emissions, (X, np.abs(X)), strict=True):
        given = {"emission": emission, "init_params": init_params, "random_state": 0}
        dense = AnnealedBayesianMixture(3, **given).fit(table)
        with monkeypatch.context() as patch:
            patch.setattr(categorical_columns, "_MANY_LEVELS", 0)
            sparse = AnnealedBayesianMixture(3, **given).fit(table)
        assert sparse.lower_bound_ == pytest.approx(dense.lower_bound_, abs=0.01)


def test_many_categories_take_no_table_of_all_rows_and_categories(rng):
    X = rng.integers(0, 4000, (4000, 2))
    tracemalloc.start()
    try:
        AnnealedBayesianMixture(3, emission="categorical", random_state=0).fit(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * X.max() * len(X)  # a table of one column


@pytest.mark.parametrize("emission", ["poisson", "negative_binomial", "zero_inflated_poisson"])
def test_scores_of_sparse_counts_take_no_dense_table(emission, rng):
    small = rng.poisson(0.3, (60, 30)).astype(float)
    small[:5, 0] = np.nan
    est = AnnealedBayesianMixture(2, emission=emission, annealing="none", random_state=0)
    est.fit(csr_array(small))
    assert_allclose(est.score_samples(csr_array(small)), est.score_samples(small), rtol=1e-12)
    rows, columns = rng.integers(0, 1500, 20_000), rng.integers(0, 1000, 20_000)
    X = csr_array((np.ones(20_000), (rows, columns)), shape=(1500, 1000))
    est = clone(est).set_params(max_iter=1).fit(X)
    tracemalloc.start()
    try:
        est.score_samples(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < X.shape[0] * X.shape[1]  # a dense table has eight times as many bytes
