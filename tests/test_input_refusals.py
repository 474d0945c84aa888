"""Input that would crash, or give numbers without a meaning, is refused with a sentence."""

from __future__ import annotations

import re
import warnings
from functools import cache, partial
from itertools import product
from numbers import Integral, Real

import designs
import harness
import numpy as np
import pytest
from fuzzing.properties import Findings, attempt
from numpy.testing import assert_array_equal
from scipy.sparse import bsr_matrix, coo_array, csc_matrix, csr_array, csr_matrix, lil_matrix
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedFactorialMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
    split_sequences,
)
from sklearn_anneal.annealing import ANNEALING, DeterministicAnnealing, SVIPlus
from sklearn_anneal.inspection import TopicsDisplay

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

ESTIMATORS = (
    AnnealedBayesianGaussianMixture,
    AnnealedFactorialMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
)
all_estimators = pytest.mark.parametrize("cls", ESTIMATORS)
FAST = {"n_components": 2, "annealing": "none", "max_iter": 3, "random_state": 0}
TEMPERED = {**FAST, "annealing": "local_tempering"}

mixture = partial(AnnealedBayesianGaussianMixture, **FAST)
factorial = partial(AnnealedFactorialMixture, **FAST)
nmf = partial(AnnealedGammaProcessNMF, **FAST)
hmm = partial(AnnealedHMM, **FAST)
topics = partial(AnnealedLatentDirichletAllocation, **FAST)
pmf = partial(AnnealedPMF, **FAST)


def rows():
    """Rows, frames, counts, or ratings."""
    return np.random.default_rng(0).poisson(3, size=(20, 4)).astype(float)


def refuses(message, calls):
    for call in calls:
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert not isinstance(caught.value, np.linalg.LinAlgError)


def methods(est, names):
    return [getattr(est, name) for name in names]


# Numbers that overflow


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_frames_too_far_away_to_predict(covariance_type):
    est = hmm(covariance_type=covariance_type).fit(rows())
    names = ("predict", "predict_proba", "transform", "decode", "score", "score_sequences")
    calls = methods(est, names)
    tempered = AnnealedHMM(**TEMPERED, covariance_type=covariance_type).fit(rows())
    for X in (np.full((3, 4), 1e200), np.eye(4) * 1e200):
        refuses("so far from the training data", [partial(call, X) for call in calls])
        refuses("so far from the training data", [partial(tempered.inverse_temperatures, X)])


def test_a_frame_that_only_one_state_cannot_weigh_is_refused():
    rng = np.random.default_rng(1)
    train = np.concatenate([0.01 * rng.normal(size=100), 1000 + 100 * rng.normal(size=100)])
    est = hmm(covariance_type="spherical", scale_prior=0.01, beta_prior=1e-9)
    est.fit(train[:, None])
    narrow, wide = np.sort(est.covars_)
    assert wide > 1e4 * narrow
    # Its square over the smaller variance overflows, and over the larger one does not.
    X = [[0.0], [np.sqrt(1e308) * (narrow * wide) ** 0.25], [1.0]]
    calls = methods(est, ("predict", "decode", "predict_proba", "score_sequences"))
    refuses("so far from the training data", [partial(call, X) for call in calls])


def test_counts_whose_log_density_overflows():
    est = hmm(emission="poisson", predictive=False).fit(rows())
    X = rows()
    X[2] = 1e307
    calls = methods(est, ("predict", "predict_proba", "decode", "score"))
    refuses("so far from the training data", [partial(call, X) for call in calls])


@pytest.mark.parametrize("size", [1e155, 1e200, 1e307])
def test_ratings_whose_squares_overflow(size):
    est, tempered = pmf().fit(rows()), AnnealedPMF(**TEMPERED).fit(rows())
    X = rows()
    for X[3, 2] in (size, -size):
        calls = methods(
            est, ("fit", "partial_fit", "transform", "predict_rows", "recommend", "score")
        )
        calls += [pmf().fit, pmf().partial_fit, tempered.inverse_temperatures]
        calls.append(partial(est.predict_rows, return_std=True))
        for Y in (X, csr_matrix(X)):
            refuses(re.escape(f"rating of the size {size:g}"), [partial(call, Y) for call in calls])
    pairs = pmf(input="pairs").fit([[0, 0], [1, 1], [2, 0]], [1.0, 2.0, 3.0])
    calls = methods(pairs, ("fit", "partial_fit", "score"))
    refuses(
        re.escape(f"size {size:g}"),
        [partial(call, [[0, 0], [1, 1]], [1.0, size]) for call in calls],
    )


def test_ratings_that_float32_cannot_square():
    est = pmf().fit(rows().astype(np.float32))
    X = rows()
    X[3, 2] = 1e50
    calls = methods(est, ("partial_fit", "transform", "predict_rows", "score"))
    refuses("model fitted to float32 can read is 1.8", [partial(call, X) for call in calls])
    # A fit decides about the precision anew.
    assert np.isfinite(est.fit(X).lower_bound_)


def test_large_ratings_have_finite_predictions():
    X = 1e140 * rows()
    est = pmf(clip=False).fit(X)
    for found in (*est.predict_rows(X, return_std=True), est.transform(X), est.score(X)):
        assert np.isfinite(found).all()


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_factors_too_large_to_multiply():
    est = pmf(clip=False).fit(1e140 * rows())
    refuses("predicted ratings overflow", [partial(est.inverse_transform, [[1e300, 1e300]])])


@pytest.mark.parametrize("size", [1e18, 1e200, 1e308])
def test_documents_with_more_tokens_than_numbers_tell_apart(size):
    est, tempered = topics().fit(rows()), AnnealedLatentDirichletAllocation(**TEMPERED)
    X = rows()
    X[3, 2] = size
    calls = methods(est, ("fit", "partial_fit", "transform", "perplexity", "score"))
    calls += [topics().fit, topics().partial_fit, tempered.fit(rows()).inverse_temperatures]
    for Y in (X, csr_matrix(X)):
        refuses(r"2\*\*53.* Divide X by a constant", [partial(call, Y) for call in calls])
    # Repetitions of a word that overflow together.
    X = csr_matrix((np.full(2, 3e38, np.float32), [0, 0], [0, 2]), shape=(1, 4))
    refuses(r"at most 2\*\*53", [partial(est.transform, X)])
    X = rows()
    X[3, 2] = 1e15
    assert np.isfinite(est.transform(X)).all()


def test_documents_that_overflow_in_float32():
    est = topics().fit(rows().astype(np.float32))
    X = rows().astype(np.float32)
    X[3, 2] = 1e15
    refuses("overflow in the precision", [partial(est.transform, X), partial(est.perplexity, X)])


# Lengths and indices


@pytest.mark.parametrize(
    "lengths",
    [
        np.array([2**64 - 20, 20, 20], dtype=np.uint64),
        np.array([2**63 - 1, 2**63 - 1, 22], dtype=np.int64),
        np.array([2**63, 2**63, 20], dtype=np.uint64),
    ],
)
def test_lengths_whose_sum_wraps_around(lengths):
    # The sum in the type of the array is the number of rows.
    with np.errstate(over="ignore"):
        assert lengths.sum() == 20
    X = rows()
    est = hmm().fit(X)
    names = ("fit", "partial_fit", "predict", "predict_proba", "decode", "score")
    refuses(
        "but X has 20 rows", [partial(call, X, lengths=lengths) for call in methods(est, names)]
    )
    refuses("but X has 20 rows", [partial(split_sequences, X, lengths)])


def test_unsigned_lengths_are_lengths():
    X = rows()
    expected = hmm().fit(X, lengths=[12, 8]).lower_bound_
    for kind in (np.uint8, np.uint64, np.int8):
        assert hmm().fit(X, lengths=np.array([12, 8], dtype=kind)).lower_bound_ == expected


def damaged():
    """Sparse matrices with arrays that were changed after they were made, by what is wrong."""
    X = csr_matrix(rows())
    assert X.nnz > X.shape[0]
    for make in (csr_matrix, csr_array):
        for index in (4, 10**6, -1):
            Y = make(X)
            Y.indices = Y.indices.copy()
            Y.indices[5] = index
            yield Y, f"column index {index}"
    for index in (20, 10**6, -1):
        Y = csc_matrix(X)
        Y.indices[5] = index
        yield Y, f"row index {index}"
        for attribute, name in (("row", "row"), ("col", "column")):
            Y = coo_array(X)
            ids = getattr(Y, attribute).copy()
            ids[5] = index
            setattr(Y, attribute, ids)
            yield Y, f"{name} index {index}"
        Y = bsr_matrix(X, blocksize=(2, 2))
        Y.indices[5] = index
        yield Y, f"column index {index}"
    Y = lil_matrix(X)
    Y.rows[3][-1] = 10**6
    yield Y, "column index 1000000"
    for position, value in ((3, 2 * X.nnz), (3, -7), (0, 2), (-1, X.nnz + 5)):
        Y = X.copy()
        Y.indptr[position] = value
        yield Y, "indptr does not rise"
    Y = X.copy()
    Y.indptr[3], Y.indptr[4] = Y.indptr[4], Y.indptr[3]
    yield Y, "indptr does not rise"
    Y = X.copy()
    Y.indptr = Y.indptr[:-2]
    yield Y, "indptr does not rise"
    Y = X.copy()
    Y.indices = Y.indices[:-2]
    yield Y, "without one integer index per entry"


@cache
def fitted_to_rows(make):
    return make().fit(rows())


@designs.in_turn(damage=list(damaged()), make=[topics, pmf, nmf])
def test_sparse_matrices_that_point_outside_themselves(damage, make):
    (X, message), est = damage, fitted_to_rows(make)
    names = ["fit", "partial_fit", "transform", "score"]
    more = {topics: ["perplexity"], pmf: ["predict_rows", "recommend"], nmf: ["recommend"]}
    names += more.get(make, [])
    calls = [make().fit, make().partial_fit, *methods(est, names)]
    refuses(message, [partial(call, X) for call in calls])


@pytest.mark.parametrize("make", [topics, pmf, nmf])
def test_sparse_vectors_are_refused(make):
    vector = coo_array(rows()[0])
    if vector.ndim == 2:
        pytest.skip("this version of SciPy has no sparse vectors")
    refuses("2 dimensions, but X has 1", [partial(make().fit, vector)])


# Masked arrays


def hidden(X):
    X = np.ma.array(X, mask=False)
    X[3, ...] = np.ma.masked
    return X


@pytest.mark.parametrize("make", [mixture, factorial, topics])
def test_masked_rows_are_refused(make):
    est = make().fit(rows())
    names = ["fit", "partial_fit", "fit_transform", "transform", "score"]
    more = ("perplexity", "predict", "predict_proba", "score_samples", "inverse_transform")
    names += [name for name in more if hasattr(est, name)]
    for X in (hidden(rows()), list(hidden(rows()))):
        calls = [make().fit, make().partial_fit, *methods(est, names)]
        refuses("X is a masked array", [partial(call, X) for call in calls])
    cls = type(est)
    refuses(
        "X is a masked array",
        [partial(cls(**TEMPERED).fit(rows()).inverse_temperatures, hidden(rows()))],
    )


@pytest.mark.parametrize("make", [mixture, factorial, hmm, topics, pmf, nmf])
def test_masked_weights_are_refused(make):
    est = make().fit(rows())
    for name in ("fit", "partial_fit", "score"):
        call = partial(getattr(est, name), rows(), sample_weight=hidden(np.ones(20)))
        refuses("sample_weight is a masked array", [call])


def test_masked_ids_ratings_and_lengths_are_refused():
    X, y = np.array([[0, 0], [1, 1], [2, 0], [3, 1]]), np.arange(4.0)
    est = pmf(input="pairs").fit(X, y)
    for name in ("fit", "partial_fit", "score"):
        call = getattr(est, name)
        refuses("X is a masked array", [partial(call, hidden(X), y)])
        refuses("y is a masked array", [partial(call, X, hidden(y))])
    refuses("X is a masked array", [partial(est.predict, hidden(X))])
    users, items = X.T
    refuses("users is a masked array", [partial(est.predict_ratings, hidden(users), items)])
    refuses("items is a masked array", [partial(est.predict_ratings, users, hidden(items))])
    matrix = pmf().fit(rows())
    factors = matrix.transform(rows())
    refuses("X is a masked array", [partial(matrix.inverse_transform, hidden(factors))])
    biases = hidden(matrix.user_biases_)
    refuses("user_biases is a masked", [partial(matrix.inverse_transform, factors, biases)])
    refuses("groups is a masked", [partial(hmm().fit, rows(), groups=hidden(np.zeros(20)))])
    lengths = np.ma.array([5, 5, 5, 5], mask=[0, 0, 0, 1])
    refuses("lengths is a masked", [partial(hmm().fit, rows(), lengths=lengths)])


def test_masked_parameters_are_refused():
    prior = np.ma.array(np.zeros(4), mask=[0, 1, 0, 0])
    refuses("mean_prior is a masked", [partial(mixture(mean_prior=prior).fit, rows())])
    refuses("means_prior is a masked", [partial(hmm(means_prior=prior).fit, rows())])


# Parameters


@all_estimators
def test_a_bool_is_no_integer_parameter(cls):
    names = ["n_components", "n_init", "max_iter", "batch_size", "verbose_interval", "n_jobs"]
    names += [name for name in ("n_symbols", "n_items") if hasattr(cls(), name)]
    for name in names:
        for method in ("fit", "partial_fit"):
            est = cls(**{name: True})
            with pytest.raises(InvalidParameterError, match=f"'{name}'.* Got True instead"):
                getattr(est, method)(rows())
    # Parameters that are meant to be a bool accept one as before.
    cls(**{**FAST, "warm_start": True, "verbose": False}).fit(rows())


@all_estimators
def test_integers_that_no_array_could_have(cls):
    names = ["n_components", "n_init", "max_iter", "batch_size", "verbose_interval", "n_jobs"]
    names += [
        name
        for name in ("n_symbols", "n_items", "n_users", "max_doc_update_iter", "evaluate_every")
        if hasattr(cls(), name)
    ]
    for name in names:
        for value in (10**30, -(10**30)):
            with pytest.raises(InvalidParameterError, match=f"'{name}'.* Got {value} instead"):
                cls(**{name: value}).fit(rows())
    refuses(
        "'n_components'.* at most 10000000. Got 2147483648",
        [partial(cls(n_components=2**31).fit, rows())],
    )
    # A number of passes may be larger, because no array has this size.
    cls(**{**FAST, "max_iter": 2**62, "tol": 1e9}).fit(rows())


@pytest.mark.parametrize("name", ANNEALING)
def test_integers_of_methods_that_no_array_could_have(name):
    X = rows()
    numbers = [
        setting
        for setting, constraints in ANNEALING[name]._parameter_constraints.items()
        if any(getattr(c, "type", None) in (Integral, Real) for c in constraints)
    ]
    assert numbers or name in ("none", "reheating")
    for setting in numbers:
        method = ANNEALING[name](**{setting: 2**64})
        with pytest.raises(InvalidParameterError, match=f"'{setting}' .* Got {2**64} instead"):
            AnnealedBayesianGaussianMixture(2, annealing=method).fit(X)


@all_estimators
@pytest.mark.parametrize(
    ("given", "nearest"),
    [("determinstic", "deterministic"), ("Stochastic", "stochastic"), ("svi-plus", "svi_plus")],
)
def test_names_of_methods_are_answered_with_the_nearest_one(cls, given, nearest):
    for method in ("fit", "partial_fit"):
        with pytest.raises(InvalidParameterError, match=f"Did you mean '{nearest}'"):
            getattr(cls(annealing=given), method)(rows())
    with pytest.raises(ValueError, match=f"Did you mean '{nearest}'"):
        cls(annealing=given).set_params(annealing__n_passes=3)


@all_estimators
def test_a_class_in_the_place_of_a_method_is_answered_with_an_instance(cls):
    est = cls(annealing=DeterministicAnnealing)
    for method in ("fit", "partial_fit"):
        with pytest.raises(InvalidParameterError, match=r"such as DeterministicAnnealing\(\)"):
            getattr(est, method)(rows())
    with pytest.raises(ValueError, match=r"set annealing=DeterministicAnnealing\(\) first"):
        est.set_params(annealing__jitter=0.0)


def test_names_of_other_choices_are_answered_with_the_nearest_one():
    for est, nearest in (
        (mixture(init_params="kmean++"), "k-means\\+\\+"),
        (hmm(emission="gausian"), "gaussian"),
        (topics(learning_method="on-line"), "online"),
        (pmf(input="pair"), "pairs"),
        (factorial(local_step="mean-field"), "mean_field"),
        (nmf(init_params="random-from-data"), "random_from_data"),
    ):
        with pytest.raises(InvalidParameterError, match=f"Did you mean '{nearest}'"):
            est.fit(rows())
    # Other tools have other names.
    for est, name in (
        (hmm(emission="normal"), "gaussian"),
        (hmm(emission="Multinomial"), "categorical"),
        (AnnealedBayesianMixture(emission="binary"), "bernoulli"),
        (AnnealedBayesianMixture(emission="counts"), "poisson"),
    ):
        with pytest.raises(InvalidParameterError, match=f"Did you mean '{name}'"):
            est.fit(rows())
    # Nothing is near to this one.
    with pytest.raises(InvalidParameterError, match="Got 'xyz' instead.$"):
        mixture(annealing="xyz").fit(rows())


OWN_PRIORS = {
    "gaussian": {"means_prior", "beta_prior", "dof_prior", "scale_prior"},
    "categorical": {"emissionprob_prior"},
    "poisson": {"lambdas_prior", "lambdas_weight"},
    "negative_binomial": {"lambdas_prior", "lambdas_weight"},
    "zero_inflated_poisson": {"lambdas_prior", "lambdas_weight", "emissionprob_prior"},
    "bernoulli": {"emissionprob_prior"},
}
BAD_PRIORS = [
    ("emissionprob_prior", [-1.0], "positive"),
    ("emissionprob_prior", [np.nan], "contains NaN"),
    ("emissionprob_prior", [[1.0, 0.0]], "positive"),
    ("lambdas_prior", [0.0], "positive"),
    ("lambdas_prior", ["a"], "lambdas_prior.* should be numbers"),
    ("lambdas_weight", [np.inf], "contains infinity"),
    ("means_prior", [np.nan], "contains NaN"),
    ("beta_prior", [-1.0], "positive"),
    ("dof_prior", [-1.0], "positive"),
    ("scale_prior", [[np.nan]], "contains NaN"),
    ("scale_prior", np.array(-1.0), "positive"),
]


@pytest.mark.parametrize(
    ("emission", "name", "value", "message"),
    [
        (emission, *bad)
        for emission, own in OWN_PRIORS.items()
        for bad in BAD_PRIORS
        if bad[0] not in own
    ],
)
def test_priors_of_another_emission_are_checked_too(emission, name, value, message):
    X = np.arange(20).reshape(-1, 1) % 2
    est = hmm(emission=emission, **{name: value}, n_symbols=2)
    refuses(message, [partial(est.fit, X), partial(est.partial_fit, X)])


def test_priors_of_another_emission_may_have_any_shape():
    X = np.arange(20).reshape(-1, 1) % 2
    others = {
        "means_prior": [0.0, -1.0],
        "scale_prior": [[1.0, -0.5], [-0.5, 1.0]],
        "lambdas_prior": np.ones((3, 7)),
    }
    one, other = hmm(emission="bernoulli", **others), hmm(emission="bernoulli")
    assert one.fit(X).lower_bound_ == other.fit(X).lower_bound_


# Advice


def parameters_named(text):
    """The parameters of any estimator that a text names."""
    known = {name for cls in ESTIMATORS for name in cls().get_params(deep=False)}
    words = {word.strip(".,:;()'\"") for word in text.replace("=", " ").split()}
    return {word for word in words & known if "_" in word}


@all_estimators
def test_advice_names_parameters_of_the_estimator_alone(cls):
    own = set(cls().get_params(deep=False))
    for text in (cls._advice, cls._advice_coinciding):
        assert parameters_named(text) <= own
        assert text.endswith(".")


def test_the_warning_of_topics_that_coincide_names_what_topics_have():
    start = np.ones((3, 4))
    est = topics(max_iter=20).set_params(n_components=3, components_init=start)
    with pytest.warns(ConvergenceWarning, match="Components coincide") as caught:
        est.fit(rows())
    (text,) = (str(w.message) for w in caught if "coincide" in str(w.message))
    assert "components_init" in text
    assert parameters_named(text) <= set(est.get_params())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_failures_of_linear_algebra_are_explained():
    """Fits and predictions at scales that no floating-point number bridges: known sentences."""
    rng = np.random.default_rng(5)
    explained = 0
    for case in range(8):
        X = rng.normal(size=(12, 3)) * 10.0 ** rng.choice([0, -150, -8, 8, 100], size=3)
        X[:, 0] = X[:, 1]
        method = ("none", "stochastic", "tempering", "local_tempering")[case % 4]
        kind = ("full", "tied", "diag", "spherical")[(case + case // 4) % 4]
        params = {**FAST, "annealing": method, "covariance_type": kind, "reg_covar": 1e-30}
        for cls in (AnnealedBayesianGaussianMixture, AnnealedHMM):
            est = cls(**params, effort=0)
            try:
                (est.partial_fit if case % 3 == 0 else est.fit)(X)
                est.predict_proba(X)
                est.score(X)
                est.sample(2)
            except ValueError as error:
                assert not isinstance(error, np.linalg.LinAlgError)
                explained += "failed because" in str(error)
    assert explained


def test_a_noise_too_small_for_the_factors_of_users_is_explained():
    X = rows()
    X[np.random.default_rng(0).random(X.shape) < 0.3] = np.nan
    est = pmf(noise_variance=1e-300)
    refuses("is too small beside the variance", [partial(est.fit, X), partial(est.partial_fit, X)])


# Ids


@pytest.mark.parametrize("name", ["n_users", "n_items"])
@pytest.mark.parametrize("largest", [100_000, 10**9])
def test_ids_far_beyond_the_number_of_ratings_are_refused(name, largest):
    column = ("n_users", "n_items").index(name)
    X, y = np.array([[0, 0], [1, 1], [2, 2]]), np.arange(3.0)
    X[1, column] = largest
    message = f"id {largest}, but only 3 ratings.*OrdinalEncoder.*declare {name}={largest + 1}"
    for method in ("fit", "partial_fit"):
        refuses(message, [partial(getattr(pmf(input="pairs"), method), X, y)])
    # An id that is only predicted takes no memory and is accepted.
    est = pmf(input="pairs").fit([[0, 0], [1, 1], [2, 2]], y)
    assert np.isfinite(est.predict(X)).all()
    assert np.isfinite(est.score(X, y))


def test_users_of_a_later_batch_are_refused_too():
    X, y = np.array([[0, 0], [1, 1], [2, 2]]), np.arange(3.0)
    est = pmf(input="pairs", n_items=3).partial_fit(X, y)
    before = est.user_factors_.copy()
    X[1, 0] = 10**8
    refuses("id 100000000, but only 3 ratings", [partial(est.partial_fit, X, y)])
    assert_array_equal(est.user_factors_, before)
    tempered = AnnealedPMF(**TEMPERED, input="pairs").fit([[0, 0], [1, 1], [2, 2]], y)
    refuses("id 100000000, but", [partial(tempered.inverse_temperatures, X, y)])


def test_ids_up_to_the_stated_size_or_declared_are_accepted():
    X, y = np.array([[0, 0], [1, 99_999], [2, 2]]), np.arange(3.0)
    short = partial(pmf, input="pairs", n_components=1, max_iter=1, effort=0, gibbs_sweeps=0)
    one = short().fit(X, y)
    assert one.n_items_ == 100_000
    X[1, 1] = 100_000
    declared = short(n_items=100_001).fit(X, y)
    assert declared.n_items_ == 100_001
    # Ten ids for each of many ratings.
    many = np.column_stack([np.zeros(10_100, int), np.arange(10_100)])
    many[-1, 1] = 100_999
    fitted = short().fit(many, many[:, 1] % 5.0)
    assert fitted.n_items_ == 101_000
    many[-1, 1] = 101_000
    refuses("id 101000, but only 10100 ratings", [partial(fitted.fit, many, many[:, 1] % 5.0)])


@pytest.mark.parametrize("largest", [100_000, 10**7])
def test_symbols_far_beyond_the_number_of_frames_are_refused(largest):
    X = np.array([[0], [largest], [1], [-1]])
    message = f"symbol {largest}, but only 3 frames.*OrdinalEncoder.*n_symbols={largest + 1}"
    refuses(message, [partial(hmm(emission="categorical").fit, X)])
    X[1] = 99_999
    assert hmm(emission="categorical").fit(X).n_symbols_ == 100_000
    X[1] = 100_000
    assert hmm(emission="categorical", n_symbols=100_001).fit(X).n_symbols_ == 100_001


# Suggestions in error messages


@pytest.mark.parametrize("kind", [np.int64, np.uint8, list])
def test_pairs_in_the_place_of_a_matrix_are_asked_about(kind):
    X = np.array([[0, 1], [1, 0], [2, 1], [3, 0]])
    X, y = (X.tolist() if kind is list else X.astype(kind)), [1.0, 2.0, 3.0, 5.0]
    for method in ("fit", "partial_fit"):
        with pytest.warns(UserWarning, match='input="pairs" was probably meant') as caught:
            getattr(pmf(), method)(X, y)
        assert [w.filename for w in caught if "meant" in str(w.message)] == [__file__]


def table_of_ratings(rng, n_users, n_items, share):
    """Rows of a user, an item and a rating from 1 to 5, of a share of all pairs."""
    users, items = np.nonzero(rng.random((n_users, n_items)) < share)
    return np.column_stack([users, items, rng.integers(1, 6, size=len(users))])


@pytest.mark.parametrize("sizes", [(5, 5, 1.0), (40, 30, 0.5), (300, 400, 0.02)])
def test_tables_in_the_place_of_a_matrix_are_asked_about(sizes, rng):
    pd = pytest.importorskip("pandas")
    X = table_of_ratings(rng, *sizes)
    for form in (X, X.astype(float), pd.DataFrame(X, columns=["user", "item", "rating"])):
        for method in ("fit", "partial_fit"):
            with pytest.warns(UserWarning, match="If a row is a user, an item and a rating"):
                getattr(pmf(), method)(form)


@designs.in_turn(largest=[1, 5, 10, 100], n=[3, 25, 400])
def test_ratings_of_three_items_are_not_asked_about(n, largest, rng):
    """They are whole numbers, and none is missing; ids that are known are no ids either."""
    X = rng.integers(1, largest + 1, size=(n, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        pmf().fit(X)
        pmf().fit(X * [100, 100, 1])
        pmf().fit(np.column_stack([np.arange(n), X[:, 0], X[:, 1]]))
        pmf().fit(X + rng.random(size=X.shape))
        pmf().fit(np.where(rng.random(X.shape) < 0.2, np.nan, X))


def test_matrices_are_not_asked_about():
    pairs, y = np.array([[0, 1], [1, 0], [2, 1]]), [1.0, 2.0, 3.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        pmf().fit(pairs)
        pmf().fit(pairs.astype(float), y)
        pmf().fit(csr_matrix(pairs), y)
        pmf().fit(rows().astype(int), np.arange(20))
        pmf(input="pairs").fit(pairs, y)


@pytest.mark.parametrize(
    "texts",
    [
        ["a cat", "a dog"],
        np.array(["a cat", "a dog"]),
        np.array(["a cat", "a dog"], dtype=object),
        [["a cat"], ["a dog"]],
        [["a", "cat"], ["dog"]],
        [b"a cat", b"a dog"],
    ],
)
def test_texts_are_answered_with_the_vectorizer(texts):
    est = topics().fit(rows())
    names = ("fit", "partial_fit", "transform", "perplexity", "score")
    calls = [topics().fit, *methods(est, names)]
    refuses("CountVectorizer", [partial(call, texts) for call in calls])


def test_columns_of_texts_are_answered_with_the_vectorizer():
    pandas = pytest.importorskip("pandas")
    for texts in (pandas.Series(["a cat", "a dog"]), pandas.DataFrame({"text": ["a cat", "b"]})):
        refuses("CountVectorizer", [partial(topics().fit, texts)])
    # Other mistakes keep the words that they had.
    refuses("Expected 2D array, got 1D array", [partial(topics().fit, [1.0, 2.0])])
    refuses("contains NaN", [partial(topics().fit, [[1.0, np.nan]])])


# Weights


@pytest.mark.parametrize("weights", [1j, np.complex64(1.0), np.ones(20, dtype=complex)])
def test_complex_weights(weights):
    """The real part of a single number was taken, with a warning of numpy."""
    est = mixture().fit(rows())
    calls = [partial(call, rows(), sample_weight=weights) for call in (est.fit, est.score, est.bic)]
    refuses("[Cc]omplex|sample_weight should be real", calls)


# Parameters and arguments


@pytest.mark.parametrize("entry", harness.one_of_each_class(harness.models()))
def test_lists_that_are_no_arrays(entry, rng):
    X, est = entry.data(rng, 20), entry.make(annealing="none", **entry.first)
    names = [n for n, c in est._parameter_constraints.items() if "array-like" in c]
    for name, ragged in product(names, ([[1.0, 2.0], [3.0]], ([1, 2, 3], [[1, 2]]))):
        bad = entry.make(annealing="none", **entry.first).set_params(**{name: ragged})
        refuses(f"{name!r} parameter of .* rows have one length", [partial(bad.fit, X)])
        refuses(f"{name!r} parameter of .* rows have one length", [partial(bad.partial_fit, X)])


@pytest.mark.parametrize("entry", harness.one_of_each_class(harness.models()))
def test_arrays_that_are_no_numbers(entry, rng):
    """Dictionaries have a length, and are array-like to scikit-learn's constraints."""
    X, est = entry.data(rng, 20), entry.make(annealing="none", **entry.first)
    values = ({"a": 1}, ["a", "b"], [["a"], ["b"]], [None, {}])
    for (name, constraints), value in product(est._parameter_constraints.items(), values):
        if "array-like" in constraints and dict not in constraints:
            settings = {**entry.first, "max_iter": 1}
            bad = entry.make(annealing="none", **settings).set_params(**{name: value})
            found = Findings()
            attempt(found, name, partial(bad.fit, X), may_refuse=True)
            assert found.found == []


@pytest.mark.parametrize("n", [1.5, "2", None, 0, True, [1], np.array([1, 2])])
def test_numbers_of_words_that_are_none(n):
    refuses("n must be a number of words, 1 or more, got", [
        partial(topics().fit(rows()).top_words, n=n),
    ])  # fmt: skip


@pytest.mark.parametrize("value", [np.array([1.0, 2.0]), np.ma.array([1.0, 2.0], mask=[0, 1]), [1]])
def test_settings_of_a_stream_that_become_arrays(value):
    """Those of the method are compared as those of the estimator are."""
    method = DeterministicAnnealing(initial_temperature=2.0)
    est = mixture().set_params(annealing=method).partial_fit(rows())
    est.set_params(annealing__initial_temperature=value)
    refuses("partial_fit goes on with a stream, which had annealing=", [
        partial(est.partial_fit, rows()),
    ])  # fmt: skip


@pytest.mark.parametrize("weight", [np.nan, np.inf, -np.inf])
def test_one_weight_for_all_rows_is_finite(weight):
    with pytest.raises(ValueError, match="weights are finite numbers"):
        AnnealedBayesianMixture(2).fit((rows() > 0).astype(float), sample_weight=weight)


@pytest.mark.parametrize("entry", harness.one_of_each_class(harness.models()))
def test_numbers_of_samples_that_are_none(entry, rng):
    est = entry.make(annealing="none", **{**entry.first, "max_iter": 1}).fit(entry.data(rng, 20))
    if hasattr(est, "sample"):
        refuses("n_samples", [partial(est.sample, n) for n in (True, 0, 1.5, 2**64, 2**62)])


def test_what_a_stream_was_begun_with_is_checked_before_a_batch_is_read():
    X = np.array([[0.0], [1.0], [2.0], [1.0]])
    est = AnnealedHMM(2, emission="categorical", n_symbols=3).partial_fit(X)
    for other in ([("a", "gaussian", [0])], [-1.0, 2.0], "poisson"):
        with pytest.raises(ValueError, match="had emission='categorical', but emission="):
            est.set_params(emission=other).partial_fit(X)


def test_several_numbers_of_symbols_are_for_blocks():
    with pytest.raises(ValueError, match="n_symbols is the number of symbols"):
        AnnealedHMM(2, emission="categorical", n_symbols=[2, 3]).fit(np.zeros((4, 1)))


def test_ragged_numbers_of_tokens_are_refused():
    est = AnnealedLatentDirichletAllocation(2, random_state=0).fit(np.ones((5, 4), dtype=int))
    with pytest.raises(ValueError, match="n_tokens must be integers"):
        est.sample(2, n_tokens=[[1, 2], [3]])


def test_arguments_whose_rows_have_several_lengths():
    ragged = [[1.0, 2.0], [3.0]]
    X = rows()
    chain, lda, ratings = hmm().fit(X), topics().fit(X), pmf().fit(X)
    refuses(
        "have several lengths",
        [
            partial(chain.predict, X, lengths=ragged),
            partial(split_sequences, X, ragged),
            partial(lda.top_words, ragged, 2),
            partial(ratings.recommend_for, ragged),
            partial(TopicsDisplay.from_estimator, lda, topics=ragged),
            partial(TopicsDisplay.from_estimator, lda, feature_names=ragged),
        ],
    )


def test_recommendations_that_no_array_could_have():
    refuses("at most 2147483646", [partial(pmf().fit(rows()).recommend, rows(), n=2**64)])


@pytest.mark.parametrize("total", [5e-324, 19.0])
def test_a_batch_that_is_more_than_the_stream(total):
    """Its statistics would be scaled down."""
    est = mixture(total_samples=total)
    refuses("this batch alone has 20", [partial(est.partial_fit, rows())])
    est.set_params(total_samples=40.0).partial_fit(rows())
    refuses("this batch alone has 60", [partial(est.partial_fit, np.tile(rows(), (3, 1)))])


@pytest.mark.parametrize("make", [mixture, factorial, nmf, hmm, topics, pmf])
def test_a_small_type_of_integer_is_a_number_of_components(make):
    found, expected = (make(n_components=n).fit(rows()) for n in (np.int8(2), 2))
    assert found.lower_bound_ == expected.lower_bound_
    assert found.score(rows()) == expected.score(rows())


@pytest.mark.parametrize("value", [2**64, csr_matrix(np.eye(2)), np.array(None)])
def test_parameters_that_are_no_array_are_compared_between_batches(value):
    """Those of a method that has served a batch, in a stream that goes on."""
    est = mixture(annealing=SVIPlus()).partial_fit(rows())
    est.set_params(annealing__n_passes=value)
    refuses("annealing", [partial(est.partial_fit, rows())])


def test_factors_that_carry_a_large_level_without_an_intercept():
    """The noise would be 10⁻¹⁸ of the mean square, of which solutions of equations lose all."""
    level = 6e8 + np.random.default_rng(0).normal(size=(16, 1))
    how = {"noise_variance": 0.4, "biases": False}
    refuses("mean square of the ratings", [partial(pmf(fit_intercept=False, **how).fit, level)])
    assert np.isfinite(pmf(**how).fit(level).lower_bound_)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("noise", [None, "auto"])
def test_levels_without_an_intercept_have_a_noise_of_their_own(noise, dtype):
    """Years, and ratings that are all equal, by noise that is not given."""
    rng = np.random.default_rng(0)
    for level in (np.full((20, 6), 300.0), rng.integers(2015, 2025, size=(20, 6))):
        est = pmf(fit_intercept=False, noise_variance=noise, max_iter=20).fit(level.astype(dtype))
        assert np.isfinite(est.lower_bound_)
        assert np.abs(est.predict_rows(level.astype(dtype)) - level).max() < 0.1 * level.mean()


@pytest.mark.filterwarnings("error")
def test_scores_whose_sum_alone_overflows():
    est = hmm(emission="poisson").fit(rows())
    sequences = [np.full((1, 4), 1e305)] * 2000
    assert np.isfinite(est.score(sequences[:1]))
    refuses("log densities overflow", [partial(est.score, sequences)])
