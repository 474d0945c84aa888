"""Document completion and coherence mean what they say, however the counts are stored."""

from __future__ import annotations

import math
import warnings
from itertools import combinations

import numpy as np
import pytest
from scipy.sparse import coo_matrix, csc_matrix, csr_array, csr_matrix

from sklearn_anneal import metrics
from sklearn_anneal.metrics import (
    can_be_split,
    document_completion_log_likelihood,
    split_documents,
    topic_coherence,
)


def corpus(n_documents=40, n_words=30, mean=1.5, seed=0):
    """Whole counts, float64, dense; the second document is empty."""
    X = np.random.default_rng(seed).poisson(mean, size=(n_documents, n_words)).astype(float)
    X[1] = 0
    return X


def fractional(seed=0):
    """Counts of which a third are not whole."""
    X = corpus(seed=seed)
    return np.where(np.random.default_rng(seed + 1).random(X.shape) < 1 / 3, X * 0.3, X)


def mixed():
    """Documents with whole and documents with fractional counts."""
    X = corpus()
    X[::2] = fractional()[::2]
    return X


def halves(X):
    return [half.toarray() for half in split_documents(X)]


def shuffled(X, seed=0):
    """The same matrix with the words of each row out of order."""
    X = csr_matrix(X)
    rng = np.random.default_rng(seed)
    for start, stop in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        order = start + rng.permutation(stop - start)
        X.indices[start:stop], X.data[start:stop] = X.indices[order], X.data[order]
    return csr_matrix((X.data, X.indices, X.indptr), shape=X.shape)


def with_duplicates(X):
    """The same matrix, each count in two entries that float64 adds up without rounding."""
    X = csr_matrix(X)
    data = np.column_stack([X.data / 2, X.data / 2]).ravel()
    return csr_matrix((data, np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape)


def with_cancelling_entries(X):
    """The same matrix with a stored entry below zero that its duplicate makes up for."""
    X = csr_matrix(X)
    data = np.column_stack([2 * X.data, -X.data]).ravel()
    return csr_matrix((data, np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape)


def with_explicit_zeros(X):
    n_documents, n_words = X.shape
    indices = np.tile(np.arange(n_words), n_documents)
    return csr_matrix((X.ravel(), indices, n_words * np.arange(n_documents + 1)), shape=X.shape)


def with_wide_indices(X):
    X = csr_matrix(X)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def read_only(X):
    X = shuffled(X)
    for part in (X.data, X.indices, X.indptr):
        part.flags.writeable = False
    return X


def with_spare_room(X):
    """CSR arrays that are longer than what they hold."""
    X, result = csr_matrix(X), csr_matrix(X.shape)
    result.indptr = X.indptr
    result.indices = np.append(X.indices, [0, 0]).astype(X.indices.dtype)
    result.data = np.append(X.data, [7.0, -7.0])
    return result


def out_of_date(X):
    """Unsorted words in a container that remembers them sorted."""
    X, other = csr_matrix(X), shuffled(X)
    assert X.has_canonical_format
    X.indices[:], X.data[:] = other.indices, other.data
    return X


STORAGES = [
    csr_matrix,
    csr_array,
    csc_matrix,
    coo_matrix,
    np.asfortranarray,
    np.ndarray.tolist,
    shuffled,
    with_duplicates,
    with_cancelling_entries,
    with_explicit_zeros,
    with_wide_indices,
    with_spare_room,
    read_only,
    out_of_date,
]
all_storages = pytest.mark.parametrize("store", STORAGES, ids=lambda f: f.__name__)
all_counts = pytest.mark.parametrize("counts", [corpus, fractional, mixed])


# split_documents


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.float32])
def test_duplicates_of_small_integers_are_summed_without_wrapping_around(dtype):
    value = 1 if dtype is bool else 100
    data = np.array([value, value, 1], dtype=dtype)
    X = csr_matrix((data, np.array([2, 2, 0]), np.array([0, 2, 3])), shape=(2, 3))
    observed, held_out = split_documents(X)
    assert (observed + held_out).toarray().tolist() == [[0, 0, 2 * value], [1, 0, 0]]
    assert observed.dtype == (np.float32 if dtype is np.float32 else np.int64)


@all_counts
def test_halves_add_up(counts):
    X = counts()
    observed, held_out = split_documents(X)
    for half in (observed, held_out):
        assert half.format == "csr"
        assert half.shape == X.shape
        assert half.dtype == X.dtype
        assert half.has_canonical_format
        assert half.nnz == np.count_nonzero(half.data)
        assert half.data.min() > 0
        assert half.nnz > 0
    np.testing.assert_array_equal((observed + held_out).toarray(), X)


@all_storages
def test_no_result_depends_on_the_storage(store, rng):
    """The halves of documents, the likelihood of one of them, and the coherence of words."""
    for counts in (corpus, fractional, mixed):
        X = counts()
        theta, beta = topics(*X.shape)
        components = rng.random((3, X.shape[1]))
        found, expected = (
            [
                *halves(given),
                *document_completion_log_likelihood(given, theta, beta),
                topic_coherence(components, given),
            ]
            for given in (store(X), X)
        )
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


@all_storages
def test_input_is_not_modified(store):
    def parts(stored):
        if hasattr(stored, "indptr"):
            return stored.data, stored.indices, stored.indptr
        return (stored.data, stored.row, stored.col) if hasattr(stored, "row") else (stored,)

    stored = store(corpus())
    before = [np.copy(part) for part in parts(stored)]
    for half in split_documents(stored):
        half.data[:] = 99
        half.indices[:] = 0
    for part, old in zip(parts(stored), before, strict=True):
        np.testing.assert_array_equal(part, old)


@pytest.mark.parametrize(
    "dtype",
    [np.int8, np.uint8, np.int32, np.int64, np.uint64, np.float16, np.float32, ">f8", ">i4"],
)
def test_split_does_not_depend_on_the_data_type(dtype):
    X = corpus()
    for half, other in zip(halves(X.astype(dtype)), halves(X), strict=True):
        np.testing.assert_array_equal(half, other)


def test_presence_is_a_count_of_one():
    X = corpus() > 0
    observed, held_out = split_documents(csr_matrix(X))
    assert observed.dtype == held_out.dtype == np.int64
    np.testing.assert_array_equal((observed + held_out).toarray(), X)
    np.testing.assert_array_equal(observed.toarray(), halves(X.astype(float))[0])


def test_float32_fractions_add_up_exactly():
    X = fractional().astype(np.float32)
    observed, held_out = split_documents(X)
    assert observed.dtype == np.float32
    np.testing.assert_array_equal((observed + held_out).toarray(), X)


@pytest.mark.parametrize("container", [csr_matrix, csr_array])
def test_halves_are_matrices_or_arrays_like_the_input(container):
    for half in split_documents(container(corpus())):
        assert type(half) is container


@all_counts
def test_split_does_not_depend_on_the_other_documents(counts, rng):
    X = counts()
    whole = halves(X)
    order = rng.permutation(len(X))
    for half, other in zip(halves(X[order]), whole, strict=True):
        np.testing.assert_array_equal(half, other[order])
    for d in range(len(X)):
        for half, other in zip(halves(X[[d]]), whole, strict=True):
            np.testing.assert_array_equal(half[0], other[d])


def test_words_without_counts_change_nothing():
    X = corpus()
    wider = np.hstack([X, np.zeros((len(X), 5))])
    for half, other in zip(halves(wider), halves(X), strict=True):
        np.testing.assert_array_equal(half[:, : X.shape[1]], other)


def test_split_depends_on_words_and_on_counts():
    counts = np.full((1, 60), 3.0)
    more, moved = np.array(counts), np.hstack([np.zeros((1, 1)), counts])
    more[0, 0] += 1
    first = halves(counts)[0]
    assert np.any(halves(more)[0][0, 1:] != first[0, 1:])
    assert np.any(halves(moved)[0][0, 1:] != first[0])


def test_global_random_state_is_neither_read_nor_moved():
    X = corpus()
    np.random.seed(1)  # noqa: NPY002
    first = halves(X)
    drawn = np.random.random()  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    assert np.random.random() == drawn  # noqa: NPY002
    for half, other in zip(halves(X), first, strict=True):
        np.testing.assert_array_equal(half, other)


def test_every_token_goes_to_either_half_with_probability_one_half():
    X = corpus(n_documents=2000, n_words=20, mean=3)
    observed = halves(X)[0]
    assert np.all(observed == np.round(observed))
    # (k - n/2) / sqrt(n/4) is standard normal in the limit: its mean square is 1, also within words
    # of many tokens, which would be 'n' if they moved together.
    n = X.sum(axis=0)
    assert np.all(np.abs(observed.sum(axis=0) - n / 2) < 4.5 * np.sqrt(n / 4))
    assert abs(observed.sum() - X.sum() / 2) < 4.5 * math.sqrt(X.sum() / 4)
    several = X >= 2
    squares = (observed[several] - X[several] / 2) ** 2 / (X[several] / 4)
    assert squares.mean() == pytest.approx(1, abs=0.05)


def test_words_of_a_fractional_document_stay_whole():
    X = corpus(n_documents=500, mean=3)
    X[:, 0] = 0.5
    X[1] = 0
    observed, held_out = halves(X)
    assert np.all((observed == 0) | (observed == X))
    assert np.all((observed == 0) | (held_out == 0))
    n = np.count_nonzero(X, axis=0)
    share = np.count_nonzero(observed, axis=0)
    assert np.all(np.abs(share - n / 2) < 4.5 * np.sqrt(n / 4))


def test_documents_are_decided_one_by_one():
    X = np.full((2, 20), 9.0)
    X[0, 3] = 8.5
    observed, held_out = halves(X)
    assert not np.any((observed[0] > 0) & (held_out[0] > 0))
    assert np.any((observed[1] > 0) & (held_out[1] > 0))


def test_documents_of_one_token_are_in_either_half():
    observed, held_out = halves(np.eye(400))
    assert np.all(observed + held_out == np.eye(400))
    assert 150 < observed.sum() < 250


def test_empty_documents_and_corpora():
    for X in (np.zeros((3, 4)), csr_matrix((3, 4), dtype=np.int32)):
        observed, held_out = split_documents(X)
        assert observed.shape == held_out.shape == (3, 4)
        assert observed.nnz == held_out.nnz == 0


# document_completion_log_likelihood


def topics(n_documents, n_words, n_topics=4, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.dirichlet(np.ones(n_topics), size=n_documents),
        rng.dirichlet(np.ones(n_words), size=n_topics),
    )


def plain_log_likelihood(held_out, doc_topic, topic_word):
    result = []
    for counts, theta in zip(held_out, doc_topic, strict=True):
        total = 0.0
        for w, count in enumerate(counts):
            if count:
                p = sum(t * topic_word[k][w] for k, t in enumerate(theta))
                total += count * (math.log(p) if p else -math.inf)
        result.append(total)
    return result


@pytest.mark.parametrize("chunk", [1, 13, 4 * 30, 10**6])
@all_counts
def test_log_likelihood_is_the_plain_sum(counts, chunk, monkeypatch):
    monkeypatch.setattr(metrics, "_CHUNK", chunk)
    X = counts()
    X[-1] = 0
    theta, beta = topics(*X.shape)
    log_likelihood, n_tokens = document_completion_log_likelihood(X, theta, beta)
    assert log_likelihood.shape == n_tokens.shape == (len(X),)
    np.testing.assert_allclose(log_likelihood, plain_log_likelihood(X, theta, beta), rtol=1e-12)
    np.testing.assert_allclose(n_tokens, X.sum(axis=1), rtol=1e-12)


def test_log_likelihood_of_small_integers_and_float32_probabilities():
    X = corpus()
    X[0, 0] = 100
    theta, beta = (p.astype(np.float32) for p in topics(*X.shape))
    result = document_completion_log_likelihood(X.astype(np.int8), theta, beta)
    assert all(value.dtype == np.float64 for value in result)
    # Products and logarithms are float64: only the rounding of the probabilities is left.
    expected = plain_log_likelihood(X, theta.astype(float), beta.astype(float))
    np.testing.assert_allclose(result[0], expected, rtol=1e-12)


def test_impossible_words_are_minus_infinity_without_warning():
    X = np.array([[1, 2, 0], [1, 0, 3], [0, 0, 0]])
    theta, beta = np.ones((3, 1)), np.array([[0.5, 0.5, 0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log_likelihood, _ = document_completion_log_likelihood(X, theta, beta)
    assert log_likelihood[0] == pytest.approx(3 * math.log(0.5))
    assert log_likelihood[1] == -math.inf
    assert log_likelihood[2] == 0


def test_explicit_zeros_of_impossible_words_do_not_matter():
    X = with_explicit_zeros(np.array([[1.0, 0.0]]))
    log_likelihood, _ = document_completion_log_likelihood(X, [[1.0]], [[1.0, 0.0]])
    assert log_likelihood[0] == 0


@all_storages
def test_documents_that_can_be_split(store):
    """In other columns a document is split in another way; some can never have two halves."""
    X = np.array([[0, 0, 0], [1, 0, 0], [2, 0, 0], [1, 1, 0], [1.5, 0, 0], [0.1, 0.2, 0]])
    shifted = [np.roll(np.pad(X, ((0, 0), (0, 40))), shift, axis=1) for shift in range(40)]
    halves = [split_documents(each) for each in shifted]
    both = [(a.sum(axis=1) > 0) & (b.sum(axis=1) > 0) for a, b in halves]
    possible = np.any([np.asarray(each).ravel() for each in both], axis=0)
    assert can_be_split(store(X)).tolist() == possible.tolist()
    assert 0 < possible.sum() < len(X)


# topic_coherence


def plain_coherence(components, X, n_top_words):
    documents = [{w for w, count in enumerate(row) if count} for row in X]
    n = len(documents)

    def share(*words):
        return sum(all(w in document for w in words) for document in documents) / n

    result = []
    for weights in components:
        top = sorted(range(len(weights)), key=lambda w: -weights[w])[:n_top_words]
        values = []
        for v, w in combinations(top, 2):
            both = share(v, w)
            if both == 0:
                values.append(-1.0)
            elif both == 1:
                values.append(1.0)
            else:
                values.append(math.log(both / (share(v) * share(w))) / -math.log(both))
        result.append(sum(values) / len(values))
    return result


@pytest.mark.parametrize("n_top_words", [2, 3, 12])
def test_coherence_is_the_plain_mean(n_top_words, rng):
    X = rng.poisson(np.linspace(0.02, 3, 12), size=(25, 12))
    X[:, 5] = 0
    X[:, 6] += 1
    X[:, 7] += 1
    components = np.round(rng.random((6, 12)), 1)
    components[0, 6:8] = 5
    expected = plain_coherence(components, X, n_top_words)
    result = topic_coherence(components, X, n_top_words=n_top_words)
    assert result.shape == (6,)
    assert len(set(expected)) > 1
    np.testing.assert_allclose(result, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("X", "expected"),
    [
        # p(0) = 3/4, p(1) = 1/2, p(0, 1) = 1/4: log(2/3) / log(4).
        ([[1, 0], [5, 0], [1, 2], [0, 1]], math.log(2 / 3) / math.log(4)),
        ([[0, 0], [0, 1], [1, 0], [1, 1]], 0.0),  # independent words
        # More documents than small integers can count.
        (np.array([[1, 1]] * 300 + [[0, 0]] * 300, dtype=np.int8), 1.0),
    ],
)
def test_coherence_by_hand(X, expected):
    assert topic_coherence([[2, 1]], X, n_top_words=2) == pytest.approx([expected], abs=1e-12)


def test_limits_of_coherence():
    X = np.array([[1, 2, 1, 0, 0], [1, 1, 1, 0, 0], [1, 1, 0, 1, 0]])
    never, everywhere, absent = [0, 0, 1, 1, 0], [1, 1, 0, 0, 0], [1, 0, 0, 0, 1]
    only_together = [[1, 1, 0], [0, 0, 1]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = topic_coherence([never, everywhere, absent], X, n_top_words=2)
        together = topic_coherence([[1, 1, 0]], only_together, n_top_words=2)
        empty = topic_coherence([[1, 1, 0]], np.zeros((4, 3)), n_top_words=2)
    assert result.tolist() == [-1, 1, -1]
    assert together == pytest.approx([1])
    assert empty.tolist() == [-1]
    # Rounding lifts no coherence above 1.
    for n in range(3, 40):
        some = np.array([[1, 1]] * (n // 2) + [[0, 0]] * (n - n // 2))
        assert topic_coherence([[1, 1]], some, n_top_words=2) <= 1


def test_coherence_knows_presence_only(rng):
    X = corpus(mean=0.5)
    components = rng.random((3, X.shape[1]))
    expected = topic_coherence(components, X)
    np.testing.assert_array_equal(topic_coherence(components, 0.25 * X), expected)
    np.testing.assert_array_equal(topic_coherence(components, X > 0), expected)
    np.testing.assert_array_equal(topic_coherence(np.exp(components), X), expected)


def test_coherence_of_topics_without_words_of_their_own():
    """A row of equal weights has no top words; one with three has the mean over three pairs."""
    X = np.array([[1, 2, 1, 0, 3], [1, 1, 0, 0, 0], [0, 1, 1, 1, 0]])
    without, three, one = [0.1] * 5, [0.1, 2.0, 1.0, 3.0, 0.1 * (1 + 1e-9)], [0.1, 9, 0.1, 0.1, 0.1]
    with pytest.warns(UserWarning, match="2 of 3 topics") as caught:
        found = topic_coherence([without, three, one], X, n_top_words=4)
    assert caught[0].filename == __file__
    assert np.isnan(found[[0, 2]]).all()
    assert found[1] == pytest.approx(plain_coherence([three], X, 3)[0])


# Bad input


def split(X):
    return split_documents(X)


def complete(X):
    return document_completion_log_likelihood(X, np.ones((2, 1)), np.full((1, 3), 1 / 3))


def cohere(X):
    return topic_coherence(np.eye(3), X, n_top_words=2)


@pytest.mark.parametrize("container", [np.array, csr_matrix, csr_array])
@pytest.mark.parametrize(
    ("value", "word"), [(-1.0, "Negative values"), (np.nan, "NaN"), (np.inf, "infinity")]
)
@pytest.mark.parametrize("function", [split, complete, cohere])
def test_counts_that_are_none(function, value, word, container):
    X = np.ones((2, 3))
    X[1, 1] = value
    with pytest.raises(ValueError, match=word) as error:
        function(container(X))
    assert ("held_out" if function is complete else "X") in str(error.value)


@pytest.mark.parametrize("function", [split, complete, cohere])
def test_counts_of_no_matrix(function):
    for X in ("words", 3, None, [1, 2, 3], np.ones((2, 3), dtype=complex)):
        with pytest.raises(ValueError):
            function(X)


def test_counts_too_large_to_count():
    with pytest.raises(ValueError, match=r"2\*\*53.*1e\+300.*Divide"):
        split_documents([[1.0, 1e300]])
    observed, held_out = split_documents([[2.0**53]])
    assert (observed + held_out).toarray().item() == 2.0**53


@pytest.mark.parametrize("name", ["doc_topic", "topic_word"])
@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda p: p * 1.01, "row 0 sums to 1.01"),
        (lambda p: p * 0, "row 0 sums to 0"),
        (lambda p: p - np.array([[1], [0]]) * (p - [2, -1]), "Negative values"),
        (lambda p: p * np.nan, "NaN"),
    ],
)
def test_probabilities_that_are_none(name, change, word):
    arguments = {"doc_topic": np.full((2, 2), 0.5), "topic_word": np.full((2, 2), 0.5)}
    arguments[name] = change(arguments[name])
    with pytest.raises(ValueError, match=word) as error:
        document_completion_log_likelihood(np.ones((2, 2)), **arguments)
    assert name in str(error.value)


def test_rounded_probabilities_are_accepted():
    theta, beta = topics(3, 6)
    document_completion_log_likelihood(np.ones((3, 6)), theta.round(4), beta.astype(np.float32))


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (((4, 3), (5, 2), (2, 3)), ["doc_topic has 5 rows", "held_out has 4"]),
        (((4, 3), (4, 2), (2, 7)), ["topic_word has 7 columns", "held_out has 3"]),
        (((4, 3), (4, 2), (5, 3)), ["doc_topic has 2 columns", "topic_word has 5 rows"]),
    ],
)
def test_shapes_that_do_not_fit(shapes, words):
    held_out, theta, beta = (np.ones(shape) / shape[1] for shape in shapes)
    with pytest.raises(ValueError) as error:
        document_completion_log_likelihood(held_out, theta, beta)
    for word in words:
        assert word in str(error.value)


def test_coherence_with_other_words():
    with pytest.raises(ValueError, match="components has 4 columns.*X has 3"):
        topic_coherence(np.ones((2, 4)), np.ones((5, 3)), n_top_words=2)


@pytest.mark.parametrize("n_top_words", [-1, 0, 1, 4, 2.0, "all", None])
def test_number_of_top_words(n_top_words):
    with pytest.raises(ValueError, match=f"n_top_words.*{n_top_words}"):
        topic_coherence(np.ones((2, 3)), np.ones((5, 3)), n_top_words=n_top_words)
    with pytest.raises(ValueError, match="n_top_words=10 and X has 3 columns"):
        topic_coherence(np.ones((2, 3)), np.ones((5, 3)))


def test_components_have_to_be_finite():
    with pytest.raises(ValueError, match="components contains NaN"):
        topic_coherence([[1, np.nan]], [[1, 1]], n_top_words=2)
