"""Measures of the quality of topics: held-out likelihood by document completion, and coherence.

All functions take a matrix of word counts, documents by words, and never make it dense.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csc_matrix, csr_array, csr_matrix, issparse, sparray
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, validate_params

from ._stack import warn

__all__ = ["document_completion_log_likelihood", "split_documents", "topic_coherence"]

# float64 represents every whole number up to this one exactly.
LARGEST_COUNT = 2.0**53
# These are the types that SciPy's sparse matrices store. All others, such as half precision or a
# foreign byte order, are converted to float64.
_COUNT_TYPES: list = [np.float64, np.float32, bool]
_COUNT_TYPES += [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
# An array of shape (words, topics) has at most this many numbers. That is 1 MB, which stays in the
# cache of a core.
_CHUNK = 131_072
_ROW_SUM_TOLERANCE = 1e-3
# A word whose weight is above a floor by no more than this share of it has the weight of the floor.
_SAME_WEIGHT = 1e-6
# A topic is not in use if it has at most one token, or, where tokens are light, this share of those
# that topics have on average.
_SHARE_OF_UNUSED = 1e-3


@validate_params({"X": ["array-like", "sparse matrix"]}, prefer_skip_nested_validation=True)
def split_documents(X: ArrayLike) -> tuple[Any, Any]:
    """Split every document in two halves, one to be observed and one to be predicted.

    Whole counts are thinned: each token goes to one half or the other with probability 1/2. In a
    document with any fractional count whole words go to one half or the other with probability
    1/2.

    The split of a document is random but fixed: the generator that decides it is seeded from the
    document's own words and counts. The other documents, the order of the rows, the data type and
    the way the matrix is stored change nothing, so that all candidates of a model search are scored
    on the same split. Documents with equal counts are split equally. Another version of NumPy may
    draw another split.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_documents, n_words)
        Word counts, not negative. It is not modified.

    Returns
    -------
    observed : sparse matrix of shape (n_documents, n_words)
        The half from which the topics of each document are to be inferred. It is in CSR format,
        has no explicit zeros, and keeps the data type of `X` (int64 for booleans, float64 for
        other types than integers, float32 and float64). It is a sparse array if `X` is one.
    held_out : sparse matrix of shape (n_documents, n_words)
        The half to predict, so that ``observed + held_out`` equals `X`.

    Raises
    ------
    ValueError
        If a count is negative, NaN, infinite or above 2**53.

    See Also
    --------
    document_completion_log_likelihood : How well the held-out half is predicted.

    Notes
    -----
    A document of one token has an empty half whatever is drawn, and so has one with a fractional
    count of a single word: leave both out of an average. A half can be empty by chance in other
    short documents too.

    References
    ----------
    Wallach, Murray, Salakhutdinov and Mimno (2009), Evaluation methods for topic models, ICML
    (document completion).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal.metrics import split_documents
    >>> X = np.array([[4, 0, 2, 6], [0, 3, 1, 0]])
    >>> observed, held_out = split_documents(X)
    >>> (observed + held_out).toarray()
    array([[4, 0, 2, 6],
           [0, 3, 1, 0]])
    """
    counts = _check_counts(X, "X")
    largest = counts.data.max(initial=0)
    if largest > LARGEST_COUNT:
        raise ValueError(
            f"The counts of X should be at most 2**53, but the largest is {largest}; beyond, "
            "float64 does not tell a whole number from the next. Divide X by a constant."
        )
    half = np.zeros_like(counts.data)
    for start, stop in pairwise(counts.indptr):
        if start < stop:
            half[start:stop] = _observed_half(counts.indices[start:stop], counts.data[start:stop])
    # Both halves are computed before a matrix is built, because building one removes the zeros from
    # its array in place.
    observed, held_out = half, counts.data - half
    return _with_counts(counts, observed), _with_counts(counts, held_out)


@validate_params(
    {
        "held_out": ["array-like", "sparse matrix"],
        "doc_topic": ["array-like"],
        "topic_word": ["array-like"],
    },
    prefer_skip_nested_validation=True,
)
def document_completion_log_likelihood(
    held_out: Any, doc_topic: Any, topic_word: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihood of the held-out words of each document, given its topics.

    It is the sum of ``count * log(sum over topics of doc_topic * topic_word)`` over the words of
    each document. The multinomial coefficient is left out, because it is the same for all models.
    The result is thus the likelihood of the single tokens and not of their counts.

    Parameters
    ----------
    held_out : {array-like, sparse matrix} of shape (n_documents, n_words)
        Word counts, not negative, usually the second half of :func:`split_documents`.
    doc_topic : array-like of shape (n_documents, n_topics)
        Probabilities of the topics in each document, inferred from the other half. Every row has
        to sum to 1 (within 1e-3); it is not normalised here.
    topic_word : array-like of shape (n_topics, n_words)
        Probabilities of the words in each topic. Every row has to sum to 1 (within 1e-3); it is
        not normalised here.

    Returns
    -------
    log_likelihood : ndarray of shape (n_documents,)
        In nats; 0 for a document without held-out tokens, ``-inf`` for one with a word of
        probability 0.
    n_tokens : ndarray of shape (n_documents,)
        Number of held-out tokens, float64 since counts may be fractional. The sum of
        `log_likelihood` divided by the sum of `n_tokens` is in nats per token.

    Raises
    ------
    ValueError
        If shapes do not fit together, a value is negative, NaN or infinite, or a row of
        `doc_topic` or `topic_word` does not sum to 1.

    See Also
    --------
    split_documents : The two halves of each document.

    References
    ----------
    Wallach, Murray, Salakhutdinov and Mimno (2009), Evaluation methods for topic models, ICML
    (document completion, with point estimates of the topics).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.decomposition import LatentDirichletAllocation
    >>> from sklearn_anneal.metrics import document_completion_log_likelihood, split_documents
    >>> X = np.random.default_rng(0).poisson(2.0, size=(20, 8))
    >>> lda = LatentDirichletAllocation(n_components=2, random_state=0).fit(X[:15])
    >>> observed, held_out = split_documents(X[15:])
    >>> topic_word = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
    >>> log_likelihood, n_tokens = document_completion_log_likelihood(
    ...     held_out, lda.transform(observed), topic_word
    ... )
    >>> log_likelihood.shape
    (5,)
    >>> bool(-3 < log_likelihood.sum() / n_tokens.sum() < -1)  # log(1/8) is about -2.1
    True
    """
    counts = _check_counts(held_out, "held_out")
    doc_topic = _check_probabilities(doc_topic, "doc_topic")
    topic_word = _check_probabilities(topic_word, "topic_word")
    _check_same(doc_topic.shape[0], counts.shape[0], "doc_topic", "held_out", "rows (documents)")
    _check_same(topic_word.shape[1], counts.shape[1], "topic_word", "held_out", "columns (words)")
    if doc_topic.shape[1] != topic_word.shape[0]:
        raise ValueError(
            f"doc_topic has {doc_topic.shape[1]} columns, but topic_word has "
            f"{topic_word.shape[0]} rows; both should be the number of topics of one model."
        )

    log_likelihood = np.zeros(counts.shape[0])
    n_tokens = np.zeros(counts.shape[0])
    size = max(1, _CHUNK // topic_word.shape[0])
    for start in range(0, counts.nnz, size):
        entries = np.arange(start, min(start + size, counts.nnz))
        documents = np.searchsorted(counts.indptr, entries, side="right") - 1
        chunk = slice(start, start + size)
        words = np.take(topic_word, counts.indices[chunk], axis=1)
        probability = np.einsum("wk,kw->w", doc_topic[documents], words, dtype=np.float64)
        tokens = counts.data[chunk].astype(np.float64)
        with np.errstate(divide="ignore"):
            values = tokens * np.log(probability)
        first, last = documents[0], documents[-1]
        log_likelihood[first : last + 1] += np.bincount(documents - first, values)
        n_tokens[first : last + 1] += np.bincount(documents - first, tokens)
    return log_likelihood, n_tokens


@validate_params(
    {
        "components": ["array-like"],
        "X": ["array-like", "sparse matrix"],
        "n_top_words": [Interval(Integral, 2, None, closed="left")],
    },
    prefer_skip_nested_validation=True,
)
def topic_coherence(components: Any, X: ArrayLike, *, n_top_words: int = 10) -> np.ndarray:
    """Coherence of each topic: how often its top words appear together in documents.

    It is the mean, over all pairs of the topic's top words, of the normalised pointwise mutual
    information ::

        NPMI(v, w) = log(p(v, w) / (p(v) p(w))) / -log p(v, w)

    where p(w) is the share of documents that hold the word and p(v, w) the share of those that hold
    both. It is 1 for words that only appear together, 0 for independent ones, and -1 for a pair
    that never appears together; a pair in every document counts as 1, the limit.

    A topic without tokens gives all words the same weight, so that none of them are its top words.
    Words that share the smallest weight of a topic are therefore left out unless all of them fit
    into the list. The mean is over the words that remain. It is NaN if they are fewer than two, and
    a warning says how many topics this concerns.

    Parameters
    ----------
    components : array-like of shape (n_topics, n_words)
        Weights of the words in each topic; only their order within a topic matters. Among words
        with equal weights above the smallest, those in earlier columns are taken.
    X : {array-like, sparse matrix} of shape (n_documents, n_words)
        Word counts, not negative, of which only presence and absence are used. Empty documents
        are documents too.
    n_top_words : int, default=10
        Largest number of words per topic, from 2 to `n_words`.

    Returns
    -------
    coherence : ndarray of shape (n_topics,)
        From -1 to 1, a ratio without unit; higher is better. NaN for topics that do not have two
        words of their own.

    Raises
    ------
    ValueError
        If `components` and `X` have different numbers of columns, `n_top_words` is out of range,
        a count is negative, or a value is NaN or infinite.

    References
    ----------
    Bouma (2009), Normalized (pointwise) mutual information in collocation extraction, GSCL.
    Aletras and Stevenson (2013), Evaluating topic coherence using distributional semantics, IWCS.
    Lau, Newman and Baldwin (2014), Machine reading tea leaves: automatically evaluating topic
    coherence and topic model quality, EACL.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal.metrics import topic_coherence
    >>> X = np.array([[2, 1, 0, 0], [1, 1, 0, 0], [0, 0, 3, 1], [0, 0, 1, 1]])
    >>> components = np.array([[0.5, 0.4, 0.1, 0.0], [0.5, 0.0, 0.4, 0.1]])
    >>> topic_coherence(components, X, n_top_words=2)
    array([ 1., -1.])
    """
    components = check_array(components, dtype=[np.float64, np.float32], input_name="components")
    counts = _check_counts(X, "X")
    n_documents, n_words = counts.shape
    _check_same(components.shape[1], n_words, "components", "X", "columns (words)")
    if n_top_words > n_words:
        raise ValueError(
            f"n_top_words should be from 2 to the number of words, but n_top_words={n_top_words} "
            f"and X has {n_words} columns. Ask for fewer top words."
        )

    floors = -np.inf
    if n_top_words < n_words:
        floors = components.min(axis=1, keepdims=True)
    top = top_words(components, n_top_words, floors)
    words, position = np.unique(np.concatenate(top), return_inverse=True)
    columns = csc_matrix(counts[:, words].astype(bool))
    coherence = np.full(len(components), np.nan)
    ends = np.cumsum([len(row) for row in top])
    for k, chosen in enumerate(np.split(position, ends[:-1])):
        if len(chosen) < 2:
            continue
        # The products need int64, because small integers would overflow and products of booleans
        # are booleans.
        presence = columns[:, chosen].astype(np.int64)
        together = (presence.T @ presence).toarray()
        alone, pairs = together.diagonal(), np.triu_indices(len(chosen), 1)
        coherence[k] = _npmi(together[pairs], alone[pairs[0]], alone[pairs[1]], n_documents).mean()
    without = int(np.isnan(coherence).sum())
    if without:
        warn(
            f"{without} of {len(components)} topics do not have two words with more than their "
            "smallest weight, as topics without tokens do, so that their coherence is NaN. "
            "numpy.nanmean leaves them out.",
        )
    return coherence


def top_words(weights: np.ndarray, n: int, floors: Any) -> list[np.ndarray]:
    """The columns of at most n words with the largest weights in each topic, the largest first.

    Among words with equal weights, those in earlier columns are taken. ``floors``, which broadcasts
    to the shape of ``weights``, has the weight of a word that does not belong to a topic: words
    with at most this weight, up to rounding, are left out.
    """
    order = np.argsort(-weights, axis=1, kind="stable")[:, :n]
    floors = np.asarray(floors, dtype=np.float64)
    own = weights > floors + _SAME_WEIGHT * np.where(np.isfinite(floors), np.abs(floors), 0.0)
    return [row[mask[row]] for row, mask in zip(order, own, strict=True)]


def floors_of_words(topics: np.ndarray, prior: object) -> np.ndarray:
    """The weights of words of which topics have no tokens, for :func:`top_words`.

    They are η, the Dirichlet parameters of the prior, and infinity for topics that are not in use.
    ``topics`` has the Dirichlet parameters λ, and λ − η are expected numbers of tokens.
    """
    return floors_of_used(np.maximum(topics - prior, 0.0).sum(axis=1), prior)


def floors_of_used(counts: np.ndarray, floor: Any) -> np.ndarray:
    """Return the floor for components that are in use, and infinity for others.

    ``counts`` has the expected number of tokens or rows of each. A component is in use if it has
    more than one, or, where weights or scales are tiny, a thousandth of the mean.
    """
    used = counts > min(1.0, _SHARE_OF_UNUSED * float(counts.mean()))
    return np.where(used[:, None], floor, np.inf)


def can_be_split(X: ArrayLike) -> np.ndarray:
    """Whether :func:`split_documents` can leave something in both halves of each document.

    That takes two tokens, or, with fractional counts, two distinct words.
    """
    counts = _check_counts(X, "X")
    documents = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    fractional = np.zeros(counts.shape[0], dtype=bool)
    fractional[documents[counts.data % 1 != 0]] = True
    tokens = np.bincount(documents, counts.data, counts.shape[0])
    return np.where(fractional, np.diff(counts.indptr), tokens) >= 2


def _npmi(both: np.ndarray, first: np.ndarray, second: np.ndarray, n: int) -> np.ndarray:
    """NPMI of pairs of words.

    ``both``, ``first`` and ``second`` are the numbers of documents that hold both words, the first
    and the second word of each pair; ``n`` is the number of all documents.
    """
    npmi = np.where(both == n, 1.0, -1.0)
    inside = (0 < both) & (both < n)
    # The logarithms of the counts are added, because a product of two counts could overflow.
    log_n, log_both = np.log(n), np.log(both[inside])
    mutual = log_both + log_n - np.log(first[inside]) - np.log(second[inside])
    npmi[inside] = mutual / (log_n - log_both)
    # Rounding can lift words that only appear together above 1.
    return np.clip(npmi, -1.0, 1.0)


def _observed_half(words: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The observed counts of one document, given its words in order, without repetitions."""
    # The bytes have a fixed width and order, so that a document has the same seed on every machine.
    numbers = counts.astype("<f8")
    digest = blake2b(words.astype("<i8").tobytes() + numbers.tobytes(), digest_size=8).digest()
    rng = np.random.default_rng(int.from_bytes(digest, "little"))
    tokens = numbers.astype(np.int64)
    if (tokens == numbers).all():
        return rng.binomial(tokens, 0.5)
    return np.where(rng.random(len(counts)) < 0.5, counts, 0)


def _check_counts(X: Any, name: str) -> Any:
    """Check counts and return them in CSR format.

    The words of each document are in order, without duplicates and without explicit zeros. The
    result may share memory with ``X``.
    """
    X = check_array(X, accept_sparse="csr", dtype=_COUNT_TYPES, input_name=name)
    container = csr_array if isinstance(X, sparray) else csr_matrix
    # We wrap the arrays in a container of our own. SciPy notes in a matrix whether its indices are
    # in order. That note may be out of date in the user's matrix if its arrays were edited, and
    # finding out anew would write into the user's matrix.
    counts = (
        container((X.data, X.indices, X.indptr), shape=X.shape) if issparse(X) else csr_matrix(X)
    )
    if not counts.has_canonical_format or np.count_nonzero(counts.data) < counts.nnz:
        # Duplicates are summed in a type in which sums of small integers do not wrap around.
        small = counts.dtype.kind in "biu" and counts.dtype != np.uint64
        counts = counts.astype(np.int64) if small else counts.copy()
        counts.sum_duplicates()
        counts.eliminate_zeros()
    if counts.dtype == bool:
        counts = counts.astype(np.int64)
    smallest = counts.data.min(initial=0)
    if smallest < 0:
        raise ValueError(
            f"Negative values in data passed as {name}: the smallest is {smallest}. Counts of "
            "words are zero or positive; subtract nothing from them, nor standardise them."
        )
    return counts


def _check_probabilities(values: Any, name: str) -> np.ndarray:
    """Check that rows are probabilities and return them as float64 or float32."""
    values = check_array(values, dtype=[np.float64, np.float32], input_name=name)
    if values.min() < 0:
        raise ValueError(
            f"Negative values in data passed as {name}: the smallest is {values.min()}. "
            "Probabilities are zero or positive."
        )
    sums = values.sum(axis=1, dtype=np.float64)
    worst = np.argmax(np.abs(sums - 1))
    if abs(sums[worst] - 1) > _ROW_SUM_TOLERANCE:
        raise ValueError(
            f"The rows of {name} should be probabilities that sum to 1 (within "
            f"{_ROW_SUM_TOLERANCE}), but row {worst} sums to {sums[worst]:.6g}. Give "
            f"{name} / {name}.sum(axis=1, keepdims=True)."
        )
    return values


def _check_same(given: int, expected: int, name: str, other: str, what: str) -> None:
    """Refuse two matrices that differ in the number of documents or words that they share."""
    if given != expected:
        raise ValueError(
            f"{name} has {given} {what}, but {other} has {expected}; both should have the same, "
            "in the same order."
        )


def _with_counts(template: Any, data: np.ndarray) -> Any:
    """Make a CSR matrix with the words of the template and other counts, without explicit zeros.

    The matrix uses the array ``data`` itself and changes it.
    """
    arrays = (data, template.indices.copy(), template.indptr.copy())
    result = type(template)(arrays, shape=template.shape)
    result.eliminate_zeros()
    return result
