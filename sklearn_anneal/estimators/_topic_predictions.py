"""Predictions of a fitted topic model."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix, vstack
from scipy.special import softmax
from sklearn.utils import check_random_state

from ..annealing import Context
from ..data.units import Documents, Units
from ..families import Dirichlet
from ..metrics import (
    can_be_split,
    document_completion_log_likelihood,
    floors_of_words,
    split_documents,
)
from ..models.topics import TOPICS, LatentDirichlet, predictions
from ._attributes import read_only
from ._part_predictions import NothingToScore, by_parts
from ._row_predictions import UnitTemperatures
from ._validation import check_activations, check_n_samples, explains, finite
from ._words import listed_words, names_of_words

_OVERFLOW = (
    "X has documents with so many tokens that the Dirichlet parameters of their topics overflow in "
    "the precision that the model was fitted with. Divide X by a constant, or fit to float64."
)


class TopicPredictions(UnitTemperatures[csr_matrix, Documents, LatentDirichlet]):
    """Methods of topic models that need no training."""

    _overflow = _OVERFLOW

    @property
    @explains("Prediction")
    def components_(self) -> np.ndarray:
        """λ, the pseudo-counts of words in topics, of shape (n_components, n_features).

        The array is read-only, because predictions read the same memory.
        """
        ctx = self._context()
        return read_only(ctx.q[TOPICS].astype(ctx.model.dtype, copy=False))

    @property
    @explains("Prediction")
    def exp_dirichlet_component_(self) -> np.ndarray:
        """exp(E log β), of shape (n_components, n_features)."""
        ctx = self._context()
        expected = Dirichlet().expectations({"concentration": ctx.q[TOPICS]})["concentration"]
        return read_only(np.exp(expected).astype(ctx.model.dtype, copy=False))

    def fit_transform(self, X, y=None, *, normalize=True, sample_weight=None):
        """Fit the model and return the topic proportions of the documents.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts of words in documents.
        y : Ignored
            Not used, present for API consistency by convention.
        normalize : bool, default=True
            Whether the proportions of a document sum to 1.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the documents.

        Returns
        -------
        proportions : ndarray of shape (n_samples, n_components)
            The result of :meth:`transform`.
        """
        fitted = self.fit(X, y, sample_weight=sample_weight)
        return fitted.transform(X, normalize=normalize)

    @by_parts
    @explains("Prediction")
    def transform(self, X, *, normalize=True):
        """Topic proportions of documents, at the fitted topics.

        They are inferred by mean-field updates if the fit used these, and else by collapsed
        variational Bayes of order zero (``local_step``).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or data in parts
            Counts of words in documents.
        normalize : bool, default=True
            Whether to return expected proportions, which sum to 1, or the Dirichlet parameters γ
            of the documents, which are α and the expected tokens of each topic.

        Returns
        -------
        proportions : ndarray of shape (n_samples, n_components)
            Their dtype is that of the data to which the model was fitted.
        """
        ctx, units = self._rows(X)
        gamma = self._infer(ctx, units)
        if normalize:
            gamma /= gamma.sum(axis=1, keepdims=True)
        return gamma.astype(ctx.model.dtype, copy=False)

    @explains("Prediction")
    def inverse_transform(self, X):
        """Probabilities of words that are expected for given topic proportions.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Proportions of topics, as :meth:`transform` returns them. Rows need not sum to 1: counts
            of tokens by topic give expected counts of words.

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
            The proportions times the expected topics. The dtype is that of X if X has
            floating-point numbers, else float64.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn_anneal import AnnealedLatentDirichletAllocation
        >>> X = np.array([[4, 2, 0, 0], [0, 0, 3, 3]])
        >>> model = AnnealedLatentDirichletAllocation(2, random_state=0).fit(X)
        >>> model.inverse_transform(model.transform(X)).sum(axis=1).round(6)
        array([1., 1.])
        """
        self._context()
        X = check_activations(X, len(self.components_), "topics")
        topics = self.components_ / self.components_.sum(axis=1, keepdims=True)
        return (X @ topics).astype(X.dtype, copy=False)

    @explains("Prediction")
    def sample(self, n_samples=1, n_tokens=100):
        """Draw documents from the model, with the expected words of its topics.

        Parameters
        ----------
        n_samples : int, default=1
            Number of documents.
        n_tokens : int or array-like of int, shape (n_samples,), default=100
            Number of tokens of each document, which is no part of the model.

        Returns
        -------
        X : sparse matrix of int64 in CSR format, of shape (n_samples, n_features)
            Counts of words.
        doc_topic : ndarray of shape (n_samples, n_components)
            The proportions of topics from which the words were drawn.

        Raises
        ------
        ValueError
            If ``n_samples`` is below 1, or a number of tokens is negative or not an integer.
        """
        ctx = self._context()
        check_n_samples(n_samples)
        try:
            lengths = np.asarray(n_tokens)
        except ValueError:  # a ragged list
            lengths = np.empty(0)
        if lengths.dtype.kind not in "iu" or lengths.min(initial=0) < 0:
            raise ValueError(f"n_tokens must be integers of 0 or more; got {n_tokens!r}.")
        if lengths.shape not in ((), (n_samples,)):
            raise ValueError(
                f"n_tokens must be one number or one for each of the {n_samples} documents, but "
                f"has shape {lengths.shape}."
            )
        lengths = np.broadcast_to(lengths, (n_samples,))
        rng = check_random_state(self.random_state)
        # Gamma variables in logarithms: those of small parameters are too small for numbers.
        alpha = np.broadcast_to(ctx.model.doc_topic_prior, (n_samples, len(self.components_)))
        log_gamma = (
            np.log(rng.standard_gamma(alpha + 1.0)) - rng.exponential(size=alpha.shape) / alpha
        )
        shares = softmax(log_gamma, axis=1)
        topics = self.components_ / self.components_.sum(axis=1, keepdims=True, dtype=np.float64)
        rows = []
        for length, share in zip(lengths, shares, strict=True):
            of_words = share @ topics
            rows.append(csr_matrix(rng.multinomial(length, of_words / of_words.sum())))
        return vstack(rows, format="csr", dtype=np.int64), shares

    @explains("Prediction")
    def perplexity(self, X, sub_sampling=False):
        """Perplexity of documents, exp(−bound per token).

        The bound is a lower bound on log p(X | α, β) at the expected topics β, which are the rows
        of ``components_`` divided by their sums; ``score`` predicts with the same topics. The
        proportions of topics of each document are integrated out by mean-field inference.
        scikit-learn computes with exp(E log β) instead, which makes words with few tokens in a
        topic far less probable than expected; the more topics there are, the more words are rare in
        each. It also adds the divergence of the topics from their prior, so that its result depends
        on the number of documents in X. The perplexity of training documents falls with the number
        of topics; held-out documents, or ``score``, compare models.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts of words in documents.
        sub_sampling : bool, default=False
            This parameter has no effect and exists for compatibility with scikit-learn. The bound
            is divided by the number of tokens of X, so that a sample needs no correction.

        Returns
        -------
        perplexity : float
            The perplexity; lower is better.
        """
        ctx, units = self._rows(X)
        self._check_training(units)
        if predictions.are_few(ctx.model, units, ctx.q):
            bound = predictions.lower_bound_of_few(ctx.model, units, ctx.q)
        else:
            bound = self._document_bound(ctx, units)
        finite(np.asarray(bound), _OVERFLOW)
        return perplexity_of(bound, units)

    @explains("Prediction")
    def score(self, X, y=None, sample_weight=None):
        """Log-likelihood of one half of each document given the other, per token.

        Each document is split in two by a rule that depends only on its own counts, so that the
        split is the same for all models (:func:`sklearn_anneal.metrics.split_documents`). The topic
        proportions are inferred from one half. With them and the expected topics, the words of the
        other half are predicted. Documents that cannot be split, because they have fewer than two
        tokens, or a fractional count of a single word, are left out.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or data in parts
            Counts of words in documents.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the documents. With data in parts, one array for each part.

        Returns
        -------
        log_likelihood : float
            The log-likelihood in nats per token; higher is better.
        """
        return self._score(X, y, sample_weight)

    def _scored(
        self, X: ArrayLike, y: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> tuple[float, float]:
        ctx, X = self._context(), self._validate_data(X, reset=False)
        X, weights = self._present(X, self._check_weights(sample_weight, X))
        observed, held_out = split_documents(X)
        units = self._make_units(observed, None)
        proportions = self._infer(ctx, units)
        proportions /= proportions.sum(axis=1, keepdims=True)
        topics = ctx.q[TOPICS] / ctx.q[TOPICS].sum(axis=1, keepdims=True)
        log_likelihood, n_tokens = document_completion_log_likelihood(held_out, proportions, topics)
        counted = can_be_split(X)
        weights = counted.astype(float) if weights is None else weights * counted
        total = float(weights @ n_tokens)
        if total == 0:
            raise NothingToScore(
                "No document of X has two tokens or more, or two distinct words with fractional "
                "counts, (and a positive weight), so that one half of it could be predicted from "
                "the other."
            )
        return float(weights @ log_likelihood) / total, total

    def top_words(self, feature_names=None, n=10):
        """The most probable words of each topic.

        A word is listed only if the topic has tokens of it: all others are equally probable, so
        that their order means nothing. Lists of topics with few words are therefore shorter, and
        those of topics without tokens are empty; a warning says how many these are.

        Parameters
        ----------
        feature_names : array-like of shape (n_features,) or None, default=None
            Names of the words, as ``get_feature_names_out`` of the vectorizer returns them. None:
            ``feature_names_in_`` if X had names of columns, else the indices of the columns.
        n : int, default=10
            Largest number of words per topic.

        Returns
        -------
        words : list of ndarray of shape (n,) or shorter
            One array per topic, the most probable word first.
        """
        ctx = self._context()
        topics = ctx.q[TOPICS]
        floors = floors_of_words(topics, ctx.prior[TOPICS])
        return listed_words(self, topics, floors, feature_names, n, "topics have no tokens")

    def to_pyldavis(self, X, feature_names=None):
        """Return the arguments of ``pyLDAvis.prepare``, for an interactive map of the topics.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Documents, such as those of the fit.
        feature_names : array-like of shape (n_features,) or None, default=None
            Names of the words, as for :meth:`top_words`.

        Returns
        -------
        prepared : dict
            ``topic_term_dists`` of shape (n_components, n_words), ``doc_topic_dists`` of shape
            (n_samples, n_components), ``doc_lengths``, ``vocab`` and ``term_frequency``. Words that
            do not occur in X are left out, because pyLDAvis divides by the frequencies of words.

        Examples
        --------
        The map is made by ``pyLDAvis.prepare(**lda.to_pyldavis(X))``.

        >>> from sklearn_anneal import AnnealedLatentDirichletAllocation
        >>> X = [[3, 0, 0], [0, 2, 0], [4, 1, 0]]
        >>> lda = AnnealedLatentDirichletAllocation(2, max_iter=5, random_state=0).fit(X)
        >>> prepared = lda.to_pyldavis(X, ["cat", "dog", "eel"])
        >>> prepared["vocab"], prepared["term_frequency"]
        (['cat', 'dog'], array([7., 3.]))
        """
        ctx = self._context()
        # Sums of many counts in single precision would be wrong in the fifth digit.
        counts = self._validate_data(X, reset=False).astype(np.float64)
        frequency = np.asarray(counts.sum(axis=0)).ravel()
        names = names_of_words(self, feature_names, len(frequency))
        occur = frequency > 0
        if not occur.any():
            raise ValueError("X has no token, so that there are no topics to draw.")
        topics = ctx.q[TOPICS][:, occur]
        return {
            "topic_term_dists": topics / topics.sum(axis=1, keepdims=True),
            "doc_topic_dists": np.asarray(self.transform(X), dtype=np.float64),
            "doc_lengths": np.asarray(counts.sum(axis=1)).ravel(),
            "vocab": names[occur].tolist(),
            "term_frequency": frequency[occur],
        }

    def _infer(self, ctx: Context, units: Documents) -> np.ndarray:
        """γ of documents, of shape (n_documents, n_components)."""
        if predictions.are_few(ctx.model, units, ctx.q, ctx.model.collapsed_predictions):
            return finite(predictions.proportions_of_few(ctx.model, units, ctx.q), _OVERFLOW)
        with self._workers_for(ctx, units) as workers:
            return finite(predictions.proportions(ctx.model, units, ctx.q, workers), _OVERFLOW)

    def _document_bound(self, ctx: Context, units: Documents) -> float:
        with self._workers_for(ctx, units) as workers:
            return predictions.lower_bound(ctx.model, units, ctx.q, workers)


def perplexity_of(bound: float, units: Units) -> float:
    """Perplexity of documents, given a lower bound on their log-likelihood."""
    with np.errstate(over="ignore"):
        return float(np.exp(-bound / units.n_observations))
