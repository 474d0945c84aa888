"""The estimator that replaces scikit-learn's latent Dirichlet allocation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix, issparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_non_negative, validate_data

from ..families import Dirichlet
from ..inference.engine import Trace
from ..inference.parallel import Workers, one_thread
from ..inference.stopping import History, RiseOfBound
from ..inference.units import Documents, Units
from ..metrics import document_completion_log_likelihood, split_documents
from ..models.latent_dirichlet import TOPICS, LatentDirichlet
from ._base import _WORTH_THREADS, BaseAnnealed, has_unit_temperatures
from ._validation import check_sparse, finite, refuse_masked

if TYPE_CHECKING:
    from ..annealing import Annealing, Context

# float64 tells every number of tokens up to here from the next one.
_MOST_TOKENS = 2.0**53
# The strongest prior of topics beside which float32 tells the words of a document.
_LARGEST_SINGLE = 1e10
_OVERFLOW = (
    "X has documents with so many tokens that the Dirichlet parameters of their topics overflow in "
    "the precision that the model was fitted with. Divide X by a constant, or fit to float64."
)


class AnnealedLatentDirichletAllocation(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseAnnealed
):
    """Latent Dirichlet allocation (topic model), fitted by annealed variational inference.

    It replaces :class:`sklearn.decomposition.LatentDirichletAllocation` by a change of the class
    name: parameters, methods and attributes of that class have the same names and shapes. What
    differs on purpose:

    - ``score`` is the log-likelihood of held-out halves of documents per token, so that models
      with different numbers of topics or ways of fitting compare; scikit-learn's is a bound on
      the whole of X, in total;
    - ``perplexity`` leaves out the divergence of the topics from their prior, which scikit-learn
      adds whole to any test set, so that the result depended on the number of test documents;
    - ``max_iter`` is 100 instead of 10, and counts the passes at T = 1 only, after those of the
      annealing schedule; the fit stops earlier by ``tol``;
    - ``total_samples`` defaults to the documents seen so far, not to a million, and streams of a
      size that is not given are not annealed: a million in its place would keep a smaller stream
      hot to its end;
    - documents start anew at every pass until the bound no longer rises, and are continued from
      the last pass from then on, which makes the bound monotone (``learning_method="batch"``);
    - there is no attribute ``random_state_``.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics.
    doc_topic_prior : float, array-like of shape (n_components,), "auto" or None, default=None
        Dirichlet parameter α of the topic proportions of documents; None: 1 / ``n_components``.
        ``"auto"`` starts there and maximises the lower bound over it (empirical Bayes), topic by
        topic, once topics have settled: in batch mode when documents no longer start anew, with
        ``annealing="structured"`` in the second half of its passes (or of a stream), elsewhere at
        T = 1 after 100 updates. Smaller values make documents of fewer topics.
    topic_word_prior : float, array-like of shape (n_features,), "auto" or None, default=None
        Dirichlet parameter η of the words of topics; None: 1 / ``n_components``; ``"auto"`` as
        above, with one value for all words. Smaller values make topics of fewer words.
    annealing : str or Annealing, default="deterministic"
        How the fit avoids the local optimum next to its start: ``"none"``,
        ``"deterministic"``, ``"stochastic"``, ``"tempering"``, ``"local_tempering"``,
        ``"svi_plus"``, ``"structured"``, ``"proximity"``, or an instance from
        :mod:`sklearn_anneal.annealing`. A name stands for the settings recommended for topics:
        ``"deterministic"`` tempers priors and counts (``form="posterior"``) from T = 1.35 on, which
        raised bound and held-out likelihood on three corpora. Hotter starts switch topics off.
        ``"structured"`` often predicts held-out words best.
    local_step : {"mean_field", "cvb0", "gibbs"}, default="mean_field"
        How the topics of words are inferred in training: by mean-field updates, by collapsed
        variational Bayes of order zero, or by collapsed Gibbs sampling (10 sweeps of burn-in, the
        mean of 20 more; a fraction of a count is a token of that weight). The last two take
        several times, and many times, as long. Bounds and predictions are those of mean-field
        steps in any case.
    learning_method : {"batch", "online"}, default="batch"
        Coordinate ascent over all documents, or stochastic variational inference over batches.
    learning_decay : float, default=0.7
        κ of the same, in (0.5, 1] for convergence. Larger forgets less and settles sooner.
    learning_offset : float, default=10.0
        τ of the step ρ_t = (τ + t)^(−κ) of updates that are damped. Larger slows the first steps.
    max_iter : int, default=100
        Largest number of passes at T = 1. 0 stops after the schedule, or at the start.
    tol : float, default=1e-6
        Rise of the lower bound per token in one pass, in nats, below which a fit has converged.
    batch_size : int, default=128
        Documents per update of ``learning_method="online"`` and of ``partial_fit``.
    evaluate_every : int, default=-1
        Passes at T = 1 between two evaluations of the perplexity of the training set, which stop
        the fit when it changes by less than ``perp_tol``. 0 or less: no evaluation.
    total_samples : float or None, default=None
        Number of documents in the whole stream of ``partial_fit``, whose annealing runs within the
        first tenth of them. None: those seen so far, and no annealing.
    perp_tol : float, default=0.1
        Tolerance of the perplexity.
    mean_change_tol : float, default=1e-3
        Mean change of the Dirichlet parameters γ of a document below which its local step ends.
    max_doc_update_iter : int or None, default=None
        Largest number of iterations of the local step. None: 10 in passes of ``fit`` that start
        documents anew, 100 elsewhere: in ``partial_fit``, which sees a document once, too. A
        number holds everywhere.
    init_components : array-like of shape (n_components, n_features) or None, default=None
        Dirichlet parameters λ of the topics to start from: ``components_`` of another fit, edited
        as wanted. They are pseudo-counts: multiply a row of probabilities by the number of tokens
        that it should weigh. Best with ``annealing="none"``, which stays next to them. None:
        random, as in scikit-learn.
    n_init : int, default=1
        Number of restarts; the one with the best lower bound is kept.
    n_jobs : int or None, default=None
        Threads for restarts, or for parts of the data where there is one restart. The result does
        not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of starts and of the randomness of annealing.
    warm_start : bool, default=False
        Whether another call of ``fit`` goes on from the fitted parameters, at T = 1.
    verbose : int, default=0
        1 prints the lower bound and the temperature every ``verbose_interval`` passes.
    verbose_interval : int, default=1
        Passes between two prints.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        λ, pseudo-counts of words in topics. Divided by the row sums, the expected topics.
    exp_dirichlet_component_ : ndarray of shape (n_components, n_features)
        exp(E log β), computed when asked for.
    bound_ : float
        Perplexity of the training set, after ``fit``.
    lower_bound_ : float
        The complete evidence lower bound at T = 1, nats.
    lower_bounds_ : ndarray of shape (n_iter,)
        Its history, one value per pass (per batch of ``partial_fit``).
    temperatures_ : ndarray of shape (n_iter,)
        Temperature of each pass; the mean over documents for local tempering.
    annealing_ : Annealing
        The method that ran, with all its settings resolved. A stream without ``total_samples`` does
        not run it, and does not look for an initial temperature of ``"auto"``.
    doc_topic_prior_ : float or ndarray of shape (n_components,)
        α; an array if it was given or learned as one.
    topic_word_prior_ : float or ndarray of shape (n_features,)
        η; an array if it was given as one.
    n_effective_components_ : int
        Topics with more than one expected token.
    n_batch_iter_ : int
        Number of updates so far, plus one.
    n_iter_ : int
        Number of passes, those of the schedule included.
    converged_ : bool
        Whether the kept fit converged.
    restart_lower_bounds_ : ndarray of shape (n_init,)
        Final lower bound of each restart.
    best_restart_ : int
        The one that was kept.
    n_features_in_ : int
        Number of words.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the words, where X had names.

    See Also
    --------
    sklearn.decomposition.LatentDirichletAllocation : The class that this one replaces.
    sklearn_anneal.metrics.topic_coherence : How well the words of topics go together.
    sklearn_anneal.inspection.TopicsDisplay : The words of topics as a picture.

    References
    ----------
    .. [1] Hoffman, Blei, Bach (2010). Online learning for latent Dirichlet allocation. NIPS.
    .. [2] Gultekin, Zhang, Paisley (2018). Stochastic annealing for variational inference,
       section 4.1.
    .. [3] Mandt, McInerney, Abrol, Ranganath, Blei (2016). Variational tempering. AISTATS.
    .. [4] Hoffman, Blei (2015). Structured stochastic variational inference. AISTATS.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from sklearn_anneal import AnnealedLatentDirichletAllocation
    >>> texts = ["cat dog cat", "dog cat pet", "stock bond stock", "bond market stock"] * 5
    >>> vectorizer = CountVectorizer()
    >>> X = vectorizer.fit_transform(texts)
    >>> lda = AnnealedLatentDirichletAllocation(n_components=2, random_state=0).fit(X)
    >>> sorted(sorted(words) for words in lda.top_words(vectorizer.get_feature_names_out(), 2))
    [['bond', 'stock'], ['cat', 'dog']]
    >>> lda.transform(X).shape
    (20, 2)
    """

    _parameter_constraints: dict = {
        **BaseAnnealed._parameter_constraints,
        "doc_topic_prior": [
            Interval(Real, 0, None, closed="neither"),
            "array-like",
            StrOptions({"auto"}),
            None,
        ],
        "topic_word_prior": [
            Interval(Real, 0, None, closed="neither"),
            "array-like",
            StrOptions({"auto"}),
            None,
        ],
        "local_step": [StrOptions({"mean_field", "cvb0", "gibbs"})],
        "learning_method": [StrOptions({"batch", "online"})],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "evaluate_every": [Interval(Integral, None, None, closed="neither")],
        "perp_tol": [Interval(Real, 0, None, closed="left")],
        "mean_change_tol": [Interval(Real, 0, None, closed="left")],
        "max_doc_update_iter": [Interval(Integral, 0, None, closed="left"), None],
        "init_components": ["array-like", None],
    }

    _kernel_module = "latent_dirichlet"
    _advice = (
        "the Dirichlet parameters of some topics are not positive numbers: counts or priors are "
        "too large or too small for floating-point numbers. Give doc_topic_prior and "
        "topic_word_prior closer to 1, or divide X by a constant."
    )
    _advice_coinciding = (
        "Lower the initial temperature or give the annealing jitter, start from another "
        "init_components or random_state, or ask for fewer components."
    )
    _model_parameters = ("n_components", "doc_topic_prior", "topic_word_prior", "local_step")

    def __init__(
        self,
        n_components=10,
        *,
        doc_topic_prior=None,
        topic_word_prior=None,
        annealing="deterministic",
        local_step="mean_field",
        learning_method="batch",
        learning_decay=0.7,
        learning_offset=10.0,
        max_iter=100,
        tol=1e-6,
        batch_size=128,
        evaluate_every=-1,
        total_samples=None,
        perp_tol=1e-1,
        mean_change_tol=1e-3,
        max_doc_update_iter=None,
        init_components=None,
        n_init=1,
        n_jobs=None,
        random_state=None,
        warm_start=False,
        verbose=0,
        verbose_interval=1,
    ):
        self.n_components = n_components
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.annealing = annealing
        self.local_step = local_step
        self.learning_method = learning_method
        self.learning_decay = learning_decay
        self.learning_offset = learning_offset
        self.max_iter = max_iter
        self.tol = tol
        self.batch_size = batch_size
        self.evaluate_every = evaluate_every
        self.total_samples = total_samples
        self.perp_tol = perp_tol
        self.mean_change_tol = mean_change_tol
        self.max_doc_update_iter = max_doc_update_iter
        self.init_components = init_components
        self.n_init = n_init
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return self._context().model.n_components

    # What the base class asks for

    @property
    def _batch_size(self) -> int | None:
        return self.batch_size if self.learning_method == "online" else None

    def _stopping_rule(self) -> RiseOfBound:
        return ChangeOfPerplexity(self.tol, max(0, self.evaluate_every), self.perp_tol)

    def _validate_data(self, X: Any, *, reset: bool, ensure_min_samples: int = 1) -> csr_matrix:
        refuse_masked(X, "X")
        check_sparse(X)
        given = X
        try:
            X = validate_data(
                self, X, reset=reset, accept_sparse="csr", dtype="numeric", ensure_min_samples=1
            )
        except ValueError:
            _refuse_texts(X, type(self).__name__)
            raise
        if not issparse(X):
            check_non_negative(X, type(self).__name__)
            return csr_matrix(X)
        if issparse(given) and given.format in ("coo", "bsr") and X.nnz < given.nnz:
            # SciPy summed entries that are given several times, and did so in their own type.
            X = _wide(given).tocsr()
        check_sparse(X)
        check_non_negative(X, type(self).__name__)
        return _canonical(X)

    def _make_units(self, X: csr_matrix, sample_weight: np.ndarray | None) -> Documents:
        units = Documents(X.data, X.indices, X.indptr, sample_weight)
        most = units.lengths.max(initial=0.0)
        if most > _MOST_TOKENS:
            raise ValueError(
                f"X has a document of {most:g} tokens, but a document may have at most 2**53: "
                "beyond, float64 does not tell a number of tokens from the next. Divide X by a "
                "constant."
            )
        return units

    def _check_training(self, units: Documents) -> None:  # type: ignore[override]
        if units.n_observations == 0:
            raise ValueError(
                "The documents of X have no words (all counts, or their weights, are zero), so "
                "there is nothing to learn topics from. Check the vocabulary of the vectorizer."
            )

    def _check_first_batch(self, units: Documents, model: Any) -> None:  # type: ignore[override]
        self._check_training(units)

    def _strategy(self, model: Any) -> Annealing:
        strategy = super()._strategy(model)
        if self.init_components is not None and not strategy.needs_start:
            raise ValueError(
                f"annealing={self.annealing!r} starts from random topics, which leaves "
                "init_components without a use. Give the method start='init_params', or leave "
                "init_components out."
            )
        return strategy

    def _make_model(self, X: csr_matrix, units: Units) -> LatentDirichlet:
        k, n_words = self.n_components, X.shape[1]
        start = self.init_components
        if start is not None:
            start = check_array(start, dtype=np.float64, input_name="init_components")
            if start.shape != (k, n_words) or not (start > 0).all():
                raise ValueError(
                    f"init_components must have shape (n_components, n_features) = {(k, n_words)} "
                    f"and positive entries, but has shape {start.shape} and a smallest entry of "
                    f"{start.min():g}. The components_ of a fit of this shape would do."
                )
        dtype = np.float32 if X.dtype == np.float32 else np.float64
        alpha = _prior_vector(self.doc_topic_prior, k, 1 / k, "doc_topic_prior", "n_components")
        if dtype == np.float32 and alpha.max() > _LARGEST_SINGLE:
            raise ValueError(
                f"doc_topic_prior={alpha.max():g} is too strong for single precision, in which "
                f"documents are read here: give at most {_LARGEST_SINGLE:g}, or X of dtype float64."
            )
        return LatentDirichlet(
            k,
            n_words,
            alpha,
            _prior_vector(self.topic_word_prior, n_words, 1 / k, "topic_word_prior", "n_features"),
            learn_doc_topic_prior=_is_auto(self.doc_topic_prior),
            learn_topic_word_prior=_is_auto(self.topic_word_prior),
            local_step=self.local_step,
            max_doc_update_iter=self.max_doc_update_iter,
            mean_change_tol=self.mean_change_tol,
            init_components=start,
            dtype=dtype,
        )

    def _stream_batches(self, units: Documents) -> Iterable[Units]:  # type: ignore[override]
        if not hasattr(self, "_inference"):
            self._check_training(units)
        for begin in range(0, units.n_units, self.batch_size):
            batch = units.take(slice(begin, begin + self.batch_size))
            if batch.n_observations > 0:
                yield batch

    def _fitted_attributes(self, ctx: Context) -> dict[str, Any]:
        model = ctx.model
        alpha, eta = model.doc_topic_prior, model.topic_word_prior
        doc_prior: Any = alpha.copy()
        if np.ndim(self.doc_topic_prior) == 0 and not model.learn_doc_topic_prior:
            doc_prior = float(alpha[0])
        return {
            "doc_topic_prior_": doc_prior,
            "topic_word_prior_": (
                float(eta[0]) if np.ndim(self.topic_word_prior) == 0 else eta.copy()
            ),
            "n_effective_components_": int((model.expected_counts(ctx.q, ctx.prior) > 1).sum()),
            "n_batch_iter_": ctx.state["updates"] + 1,
        }

    def _complete_fit(  # type: ignore[override]
        self, ctx: Context, units: Documents, trace: Trace
    ) -> None:
        if trace.evaluated:
            bound = trace.final + ctx.model.kl(ctx.q, ctx.prior)
        else:
            bound = self._document_bound(ctx, units)
        self.bound_ = _perplexity(bound, units)

    # Predictions

    @property
    def components_(self) -> np.ndarray:
        """λ, pseudo-counts of words in topics, of shape (n_components, n_features)."""
        ctx = self._context()
        return ctx.q[TOPICS].astype(ctx.model.dtype, copy=False)

    @property
    def exp_dirichlet_component_(self) -> np.ndarray:
        """exp(E log β), of shape (n_components, n_features)."""
        ctx = self._context()
        expected = Dirichlet().expectations({"concentration": ctx.q[TOPICS]})["concentration"]
        return np.exp(expected).astype(ctx.model.dtype, copy=False)

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
            As :meth:`transform` gives them.
        """
        fitted = self.fit(X, y, sample_weight=sample_weight)
        return fitted.transform(X, normalize=normalize)

    def transform(self, X, *, normalize=True):
        """Topic proportions of documents, by mean-field inference at the fitted topics.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts of words in documents.
        normalize : bool, default=True
            Whether to return expected proportions, which sum to 1, or the Dirichlet parameters γ
            of the documents.

        Returns
        -------
        proportions : ndarray of shape (n_samples, n_components)
            Of the dtype of the data that the model was fitted to.
        """
        ctx, units = self._documents(X)
        gamma = self._infer(ctx, units)
        if normalize:
            gamma /= gamma.sum(axis=1, keepdims=True)
        return gamma.astype(ctx.model.dtype, copy=False)

    def perplexity(self, X, sub_sampling=False):
        """Perplexity of documents, exp(−bound per token).

        The bound is on the log-likelihood of the documents at the fitted topics, without the
        divergence of the topics from their prior, so that it does not depend on how many
        documents X has.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts of words in documents.
        sub_sampling : bool, default=False
            Present for compatibility: a bound per token is the same for a sample of documents.

        Returns
        -------
        perplexity : float
            Lower is better.
        """
        ctx, units = self._documents(X)
        self._check_training(units)
        bound = self._document_bound(ctx, units)
        finite(np.asarray(bound), _OVERFLOW)
        return _perplexity(bound, units)

    def score(self, X, y=None, sample_weight=None):
        """Log-likelihood of one half of each document given the other, per token.

        Each document is split in two by a rule that depends on its own counts only, so that
        all models meet the same split (:func:`sklearn_anneal.metrics.split_documents`). The topic
        proportions come from one half, and the words of the other are predicted with the expected
        topics. Documents of fewer than two tokens do not count.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts of words in documents.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the documents.

        Returns
        -------
        log_likelihood : float
            In nats per token; higher is better.
        """
        ctx, X = self._context(), self._validate_data(X, reset=False)
        weights = self._check_weights(sample_weight, X)
        observed, held_out = split_documents(X)
        units = self._make_units(observed, None)
        proportions = self._infer(ctx, units)
        proportions /= proportions.sum(axis=1, keepdims=True)
        topics = ctx.q[TOPICS] / ctx.q[TOPICS].sum(axis=1, keepdims=True)
        log_likelihood, n_tokens = document_completion_log_likelihood(held_out, proportions, topics)
        counted = units.lengths + n_tokens >= 2
        weights = counted.astype(float) if weights is None else weights * counted
        total = float(weights @ n_tokens)
        if total == 0:
            raise ValueError(
                "No document of X has two tokens or more (and a positive weight), so that one half "
                "of it could be predicted from the other."
            )
        return float(weights @ log_likelihood) / total

    def top_words(self, feature_names=None, n=10):
        """The most probable words of each topic.

        Parameters
        ----------
        feature_names : array-like of shape (n_features,) or None, default=None
            Names of the words, as ``get_feature_names_out`` of the vectorizer gives them; None:
            ``feature_names_in_`` where X had names, else their columns.
        n : int, default=10
            Number of words per topic.

        Returns
        -------
        words : list of ndarray of shape (n,)
            One array per topic, the most probable word first.
        """
        topics = self._context().q[TOPICS]
        n_words = topics.shape[1]
        if not 1 <= n <= n_words:
            raise ValueError(f"n must be between 1 and the number of words, {n_words}, got {n!r}.")
        if feature_names is None:
            feature_names = getattr(self, "feature_names_in_", np.arange(n_words))
        names = np.asarray(feature_names)
        if names.shape != (n_words,):
            raise ValueError(
                f"feature_names must have one name for each of the {n_words} words, "
                f"got an array of shape {names.shape}."
            )
        return [names[np.argsort(-row, kind="stable")[:n]] for row in topics]

    @available_if(has_unit_temperatures)
    def inverse_temperatures(self, X):
        """Expected inverse temperature of each document, low for outliers.

        Only for ``annealing="local_tempering"``: how much of a document's likelihood the fitted
        model would listen to.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts of words in documents.

        Returns
        -------
        inverse_temperatures : ndarray of shape (n_samples,)
            E[1/T], in (0, 1].
        """
        ctx, units = self._documents(X)
        self._load_kernels()
        return finite(self.annealing_.inverse_temperatures(ctx, units), _OVERFLOW)

    def _documents(self, X: Any) -> tuple[Context, Documents]:
        ctx = self._context()
        return ctx, self._make_units(self._validate_data(X, reset=False), None)

    def _infer(self, ctx: Context, units: Documents) -> np.ndarray:
        """γ of documents, of shape (n_documents, n_components)."""
        gamma = np.empty((units.n_units, ctx.model.n_components))
        self._document_bound(ctx, units, gamma)
        return finite(gamma, _OVERFLOW)

    def _document_bound(
        self, ctx: Context, units: Documents, gamma: np.ndarray | None = None
    ) -> float:
        self._load_kernels()
        worth = ctx.model.operations(units) >= _WORTH_THREADS[True]
        with one_thread(), Workers(self.n_jobs if worth else 1) as workers:
            return ctx.model.infer(units, ctx.q, workers, gamma)


@dataclass(frozen=True)
class ChangeOfPerplexity(RiseOfBound):
    """A fit has converged, too, when its perplexity hardly changes between two evaluations.

    Parameters
    ----------
    tol : float
        As of :class:`RiseOfBound`.
    evaluate_every : int, default=0
        Passes between two evaluations; 0 for none.
    perp_tol : float, default=0.0
        Change of the perplexity below which a fit has converged.
    """

    evaluate_every: int = 0
    perp_tol: float = 0.0

    def converged(self, history: History) -> bool:
        bounds, every = history.bounds, self.evaluate_every
        if every == 0 or len(bounds) % every or len(bounds) <= every:
            return False
        pair = np.array([bounds[-1 - every], bounds[-1]])
        with np.errstate(over="ignore"):
            old, new = np.exp(-pair / history.n_observations)
        return bool(abs(new - old) < self.perp_tol)

    def asks_for_bound(self, n_passes: int) -> bool:
        return self.evaluate_every > 0 and n_passes % self.evaluate_every == 0


def _perplexity(bound: float, units: Documents) -> float:
    with np.errstate(over="ignore"):
        return float(np.exp(-bound / units.n_observations))


def _wide(X: Any) -> Any:
    """Counts in a type in which sums of them do not wrap around."""
    return X.astype(np.float64) if X.dtype.kind in "iub" else X


def _canonical(X: Any) -> Any:
    """A CSR matrix with the words of each document in order, each of them once."""
    if X.has_canonical_format:
        return X
    X = X.copy()
    X.sort_indices()
    if not X.has_canonical_format:
        X = _wide(X)
        X.sum_duplicates()
    return X


def _refuse_texts(X: Any, owner: str) -> None:
    """ValueError where X holds strings, in the place of counts of words."""
    first = X.to_numpy() if hasattr(X, "to_numpy") else X
    # A column of texts, or a list of tokenised ones, is two levels deep.
    for _ in range(2):
        if isinstance(first, np.ndarray):
            first = first.ravel()[:1].tolist()
        if isinstance(first, list | tuple) and first:
            first = first[0]
    if isinstance(first, str | bytes):
        raise ValueError(
            f"X holds texts, but {owner} reads counts of words, documents by words. "
            "sklearn.feature_extraction.text.CountVectorizer makes them of texts: put it before "
            "the estimator with sklearn.pipeline.make_pipeline."
        ) from None


def _is_auto(prior: Any) -> bool:
    return isinstance(prior, str) and prior == "auto"


def _prior_vector(prior: Any, size: int, default: float, name: str, axis: str) -> np.ndarray:
    if prior is None or _is_auto(prior):
        return np.full(size, default)
    vector = np.asarray(prior, dtype=np.float64)
    if vector.ndim == 0:
        return np.full(size, float(vector))
    if vector.shape != (size,) or not (np.isfinite(vector) & (vector > 0)).all():
        raise ValueError(
            f"{name} must be a positive number, or an array of {axis} = {size} positive numbers; "
            f"got an array of shape {vector.shape}"
            + (f" with a smallest entry of {vector.min():g}." if vector.size else ".")
        )
    return vector.copy()
