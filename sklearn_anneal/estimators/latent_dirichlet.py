"""The estimator of topic models, which can replace the one of scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_non_negative

from ..annealing import Annealing, Context
from ..annealing.structured import StructuredVI
from ..data.parted_units import PartedUnits
from ..data.units import Documents, Units
from ..inference.kept import most_rows_of_fits
from ..inference.stopping import ChangeOfPerplexity, RiseOfBound
from ..models._componentwise import Given
from ..models.topics import LOCAL_STEPS, LatentDirichlet, SampledLatentDirichlet, with_local_step
from ._attributes import Attributes
from ._base import BaseAnnealed
from ._counts import as_native, checked_counts, refuse_texts
from ._interface import DECAY_OR_AUTO, EQUAL_RATES
from ._priors import SCALED, is_auto, prior_of_words, prior_vector
from ._tables import validated_table
from ._topic_predictions import TopicPredictions, perplexity_of
from ._topic_training import (
    TopicTraining,
    has_many_counts,
    tokens_per_word,
    with_more_passes,
)
from ._validation import check_sparse, refuse_masked

# The largest number up to which float64 can represent every integer.
_MOST_TOKENS = 2.0**53
# If documents have fewer words than this, their bounds are smaller than the rounding errors of the
# divergence of topics from their prior.
_FEWEST_WORDS = 1e-8
# A larger prior of the topic proportions would make float32 round away the words of a document.
_LARGEST_SINGLE = 1e10


class AnnealedLatentDirichletAllocation(TopicPredictions):
    """Latent Dirichlet allocation (topic model), fitted by annealed variational inference.

    To use it in place of :class:`sklearn.decomposition.LatentDirichletAllocation`, change the name
    of the class. The parameters, methods and attributes of that class exist here with the same
    names and shapes. There are nine intended differences:

    - ``score`` is the log-likelihood per token of one half of each document, given the other
      half. Models with different numbers of topics, or fitted in different ways, can be compared
      by it. In scikit-learn it is a bound on the log-likelihood of the whole of X.
    - ``perplexity`` is that of the documents at the expected topics. scikit-learn's is computed
      with exp(E log β), which punishes rare words, and contains the divergence of the topics from
      their prior, so that it depends on the number of test documents.
    - By default α is learned, η is 2 / ``n_components ** 0.75``, or less for more than 4,000 words,
      and structured inference makes up to 300 passes that draw topics of tokens; ``max_iter``
      and ``tol`` are for other methods. The model and the algorithm of scikit-learn are
      ``annealing="none"`` with both priors None.
    - ``max_iter`` is 100 instead of 10, and counts only the passes at T = 1, which follow those
      of the annealing schedule. The fit stops earlier if ``tol`` is reached.
    - ``total_samples`` defaults to the number of documents seen so far instead of a million, and
      a stream whose size is not given has no schedule: structured inference runs in it, other
      methods do not. If a million were assumed, a smaller stream would still be at a high
      temperature when it ends.
    - ``partial_fit`` fits the model to all documents so far whenever these have grown by a half, up
      to 200 documents for each topic. ``max_iter=1`` makes it a single update, as in scikit-learn.
      ``learning_decay="auto"`` is 0.7 in such updates, and 1, with an offset of 0, in those that
      follow a fit.
    - With ``learning_method="batch"``, the local step of a document starts anew at every pass
      until the bound no longer rises. From then on it starts from the result of the last pass,
      so that the bound can no longer fall.
    - Topics start from random documents (``init_params``), not from random numbers alone.
    - There is no attribute ``random_state_``.

    Read more in the :ref:`user guide <topic-models>`.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics.
    doc_topic_prior : float, array-like of shape (n_components,), "auto" or None, default="auto"
        Dirichlet parameter α of the topic proportions of documents. Smaller values give documents
        with fewer topics. None: 1 / ``n_components``.

        ``"auto"`` maximises the lower bound over α, separately for each topic (empirical Bayes),
        once the topics have settled. That is when documents no longer start anew in batch mode, and
        after 100 updates at T = 1 elsewhere; with ``annealing="structured"``, after a tenth of its
        passes or of a stream, or a quarter where topics are sampled (``local_step``). Before, each
        α is 0.1 where topics are sampled, or less, so that Σ α is at most 0.3 of the mean length of
        a document. Elsewhere it is 5 / ``n_components``, and at most 0.1 in streams.

        Fractions of counts, such as tf-idf, do not determine α, so that it is not learned from
        them. Nor is it learned from documents of fewer than 10 tokens on average, unless topics are
        sampled. Σ α is then at most 0.1 of their length, and a warning says so.
    topic_word_prior : float, array-like of shape (n_features,) or (n_components, n_features), \
            "auto", "scaled" or None, default="scaled"
        Dirichlet parameter η of the word probabilities of topics. Smaller values give topics with
        fewer words. ``"scaled"``: 2 / ``n_components ** 0.75``, which is 0.11 for 50 topics, 0.02
        for 500, because many topics predict best with few words each; with more than 4,000 words it
        falls with the square root of their number, for example to a half with 16,000. Where topics
        are sampled (``local_step``) and a word that occurs does so fewer than 100 times on average,
        it falls with the square root of this mean, to a half at 25 times or fewer, because small
        corpora predict best so. None: 1 / ``n_components``. ``"auto"`` maximises the lower bound
        over η as it does for α, with one value for all words. An array with one row per topic seeds
        topics: a larger entry for a word of a topic acts like so many tokens of that word which
        belong to the topic, and is added to its start.
    annealing : str or Annealing, default="structured"
        How the fit avoids the local optimum next to its start: ``"none"``, ``"reheating"``,
        ``"deterministic"``, ``"stochastic"``, ``"tempering"``, ``"local_tempering"``,
        ``"svi_plus"``, ``"structured"``, ``"proximity"``, or an instance from
        :mod:`sklearn_anneal.annealing`. A name selects the method with the settings recommended for
        topics. ``"structured"`` draws the topic of each token in 300 passes, which predict held-out
        words best, also at equal time. It ends earlier, after 100 at the soonest, where a mean over
        passes settles, as in tables of many counts (``StructuredVI(tol=…)``), and not on corpora of
        usual size: an end after 179 passes would have lost up to 0.014 nats per token in 20 fits.
        ``StructuredVI(n_passes=150)`` takes half of the time; its predictions were worse by 0.006
        nats per token in the median of ten comparisons, and by 0.010 at most. 100 passes take a
        third of the time, and were worse by 0.011 and by 0.026; 60 a fifth, by 0.019 and 0.043.
        With many counts the method makes 300 passes with draws of the topics alone
        (``local_step``), and with other minibatches 100. ``"deterministic"`` reaches higher lower
        bounds, and converges: it tempers the prior and the counts (``form="posterior"``), beginning
        at T = 1.35, because higher temperatures switch topics off.
    local_step : {"auto", "mean_field", "cvb0", "gibbs", "collapsed_gibbs"}, default="auto"
        How the topics of words are inferred in training. ``"mean_field"``: by mean-field updates.
        ``"cvb0"``: by collapsed variational Bayes of order zero, which takes several times as long.
        ``"gibbs"``: by Gibbs sampling within a document at given topics (10 sweeps of burn-in, then
        the mean of 20 sweeps), which takes many times as long. ``"collapsed_gibbs"``: by one draw
        of the topic of each token per pass, given the topics of all other tokens, or by a
        Metropolis-Hastings step of each token of a word that a document repeats; tokens keep their
        topics from pass to pass [5]_ [6]_. It needs ``annealing="structured"`` and
        ``learning_method="batch"``. Both samplers treat a fraction of a count as one token of that
        weight, and a count above 1024 as 1024 equal tokens. ``"auto"``: ``"collapsed_gibbs"`` in
        ``fit`` where it is possible, and ``"mean_field"`` elsewhere. The updates of ``partial_fit``
        have mean-field steps, because a document comes to them only once, and its tokens have no
        topics to go on from. So have fits to documents with many counts, such as tables of genes or
        of few columns: with at least 8 tokens per entry of X that is not zero and 100 per topic and
        document, or with 40 and 25 if documents have at most 20 such entries on average, mean-field
        steps in minibatches predict about as well, in a time that does not depend on the size of
        counts. Give ``"collapsed_gibbs"``, or ``learning_method="batch"``, to draw each token there
        too.
        ``lower_bound_`` always uses mean-field updates; ``transform`` and ``score`` use them if
        ``fit`` has such steps, and CVB0, which predicts better, in all other cases.
    learning_method : {"auto", "batch", "online"}, default="auto"
        ``"batch"`` reads all documents before each update, ``"online"`` is stochastic variational
        inference over batches of documents. ``"auto"``: ``"online"`` for structured inference with
        a ``local_step`` of ``"mean_field"``, ``"cvb0"`` or ``"gibbs"``, given or chosen by
        ``"auto"``, because it gets further in the same time, and ``"batch"`` in all other cases.
    learning_decay : float or "auto", default="auto"
        The exponent κ in the step size ρ_t = (τ + t)^(−κ) of damped updates. Convergence needs a
        value in (0.5, 1]. With a larger κ the parameters settle sooner, and each of the later
        batches changes them less. ``"auto"`` is 0.7. In updates of a stream that follow a fit it is
        1, with τ = 0, so that the step of a batch is its share of all documents so far.
    learning_offset : float, default=10.0
        The offset τ in the step size ρ_t = (τ + t)^(−κ) of damped updates, which move only a part
        of the way to their target. A larger τ makes the first steps smaller.
    max_iter : int, default=100
        Largest number of passes at T = 1, which follow the annealing schedule. With 0 the fit stops
        at the end of the schedule, or at its start where there is no schedule. If the best fit of a
        search has not converged, up to five times as many follow. Structured inference, the
        default, has no such passes: ``annealing`` says how to ask for fewer of its own, and what
        they cost.
    tol : float, default=1e-6
        The fit has converged when one pass raises the lower bound by less than this, in nats per
        token.
    batch_size : int or "auto", default="auto"
        Number of documents per update in minibatches, and in ``partial_fit``. ``"auto"``: a quarter
        of the documents (of ``total_samples``, if it is given), but at least 128 and at most 1024.
        Documents to which a stream can be fitted at once are not divided by ``"auto"``.
        Large batches take less time per pass, above all with many topics; small ones gain more in
        the first passes.
    evaluate_every : int, default=-1
        Number of passes between two evaluations of the perplexity of the training set, which
        contains the divergence of the topics here, as in scikit-learn. A fit at T = 1 stops when it
        changes by less than ``perp_tol`` between two of them. With 0 or less it is not evaluated.
        Structured inference always makes all of its passes.
    total_samples : float or None, default=None
        Number of documents in the whole stream that ``partial_fit`` will see. The parameters
        describe so much data from the beginning. With None the size is taken to be the number of
        documents so far. If documents have weights, it is the sum of these. Updates alone
        (``max_iter=1``) are annealed within the first tenth of it, and plain with None, but for
        structured inference, which needs no schedule.
    perp_tol : float, default=0.1
        Change of the perplexity below which ``evaluate_every`` stops the fit.
    mean_change_tol : float, default=1e-3
        The local step of a document ends when its Dirichlet parameters γ change by less than this,
        on average, in one iteration.
    max_doc_update_iter : int or None, default=None
        Largest number of iterations of the local step of a document. None: 10 in passes of ``fit``
        in which documents start anew, and 100 in all other cases, such as ``partial_fit``, which
        sees a document only once. An integer applies in all cases.
    components_init : array-like of shape (n_components, n_features) or None, default=None
        Dirichlet parameters λ of the topics with which the fit starts, for example the edited
        ``components_`` of another fit. They are pseudo-counts: to start from probabilities,
        multiply each row by the number of tokens that it should weigh. ``annealing="none"`` suits
        them best, because it stays close to them. All fits of a stream begin there. None:
        ``init_params`` decides.
    init_params : {"documents", "random"}, default="documents"
        How the topics start. ``"documents"``: one fifth of the tokens of each topic are those of a
        random document, and the others are tokens of the whole corpus, times random factors of the
        words that occur unless topics are sampled (``local_step``). The topics differ from the
        first pass on.
        ``"random"``: random factors alone, as in scikit-learn; the topics are almost equal at
        first, and a fit needs some passes until they differ. Topics that ``topic_word_prior`` seeds
        always start at random.
    n_init : int, default=1
        Number of restarts. The one with the highest lower bound is kept. The first one is that of
        ``n_init=1``. Moves set out from the best restart and from this one, so that more restarts
        end no lower than one, unless they race.
    restarts : {"full", "race"}, default="full"
        Whether all restarts run to convergence, or only the best one. In a race, which is
        successive halving (Jamieson and Talwalkar, 2016), all restarts make ten passes after their
        schedules, the better half twenty, and so on, until the best of the last three runs to its
        end. A race takes fewer passes, and can miss a restart that rises late. With
        ``annealing="structured"``, all of whose passes belong to the schedule, a race is refused.
    effort : float or "auto", default="auto"
        How long the fit searches for an optimum that is better than its first one, as a multiple of
        the passes that led to the first one (at least 48, or 500,000 divided by the number of
        tokens if that is less). Short reheats, whose noise begins at 0.1 or 0.5 and falls to 0 in
        ten passes, take turns. The result of a move is kept only if its lower bound is higher, and
        a move is given up after a few passes if a higher bound is out of reach. The search ends
        early when every move has failed three times in a row. ``"auto"``: 1 if ``annealing`` is
        ``"deterministic"`` or ``"reheating"``, and 0 with other methods and in minibatches. More
        effort raises the bound further. ``annealing="none"``, which is plain inference, and
        ``"structured"`` do not search, and refuse a number above 0. Moves of whole topics, which
        are a part of the sampler of ``"structured"``, do not depend on it.
    n_jobs : int or None, default=None
        Number of threads, as in scikit-learn. They share out the restarts, or the parts of the data
        if there is only one restart. The result does not depend on their number.
    random_state : int, RandomState instance or None, default=None
        Seed of the starts and of the random numbers that annealing uses.
    warm_start : bool, default=False
        Whether another call of ``fit`` continues from the fitted parameters by plain inference at T
        = 1 instead of starting anew. After structured inference this raises the bound, and loses a
        part of the gain in predictions.
    verbose : int, default=0
        With 1, a fit says how it begins, where it is (passes, temperature, lower bound, seconds)
        and why it ends. With 2, every pass has a line, with the rise of the bound.
    verbose_interval : int, default=1
        Number of passes, or of calls of ``partial_fit``, from one line to the next with
        ``verbose=1``. A pass after five silent seconds has a line too.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Dirichlet parameters λ of the topics, which are pseudo-counts of words. Divided by the sums
        of their rows they are the expected topics. The array is read-only; change a copy.
    exp_dirichlet_component_ : ndarray of shape (n_components, n_features)
        exp(E log β) for the word probabilities β of the topics. It is computed when it is read.
    bound_ : float
        Perplexity of the training set, as :meth:`perplexity` computes it. It is set by ``fit``.
    lower_bound_ : float
        Evidence lower bound of the fitted model at T = 1, in nats, with all constants. In a stream,
        it is an estimate from the last batch, before the update with it, or the bound of a fit that
        was made at the last call.
    lower_bounds_ : ndarray of shape (n_iter,)
        The lower bound after each pass (in a stream, an estimate before the update with each
        batch). NaN: it was not evaluated. With ``"cvb0"`` and ``"gibbs"`` steps all values but the
        last are those of the local steps, which is why the last can be lower.
    temperatures_ : ndarray of shape (n_iter,)
        Temperature of each pass. For local tempering, the mean over documents.
    annealing_ : Annealing
        The method that ran, with the value of every setting that was ``"auto"``. In a stream it is
        that of the last fit. Before the first one, and where plain updates are all, an initial
        temperature of ``"auto"`` is not determined.
    doc_topic_prior_ : float or ndarray of shape (n_components,)
        The value of α that was used. It is an array if α was given as an array or learned.
    topic_word_prior_ : float or ndarray, of shape (n_features,) or (n_components, n_features)
        The value of η that was used. It is an array if η was given as an array.
    n_effective_components_ : int
        Number of topics whose expected number of tokens exceeds 1.
    n_batch_iter_ : int
        Number of updates so far, plus one. In a stream, those since its last fit are counted.
    n_iter_ : int
        Number of passes that led to the fitted parameters, including those of the annealing
        schedule and of the moves that were kept.
    converged_ : bool
        Whether the fit converged. For a method without a finish, such as ``"structured"``, whether
        it ran to the end of its passes.
    restart_lower_bounds_ : ndarray of shape (n_init,)
        Final lower bound of each restart, or the last one that it reached before it lost a race.
        It is NaN for a restart that a callback prevented from beginning.
    best_restart_ : int
        Index of the restart that was kept.
    search_results_ : dict of ndarrays of shape (n_moves,)
        The moves of the search, in their order: the name (``move``), the number of passes of the
        fit before it (``n_before``), the number of its own passes (``n_passes``), the
        ``lower_bound`` that was reached, and whether the result was ``kept``. A data frame can be
        made of it.
    n_passes_ : int
        Number of passes over the data in all restarts and moves together, kept or not.
    n_features_in_ : int
        Number of words.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the words, if X had names of columns.

    See Also
    --------
    sklearn.decomposition.LatentDirichletAllocation : The class that this one can replace.
    sklearn_anneal.metrics.topic_coherence : How well the words of topics go together.
    sklearn_anneal.inspection.TopicsDisplay : A plot of the words of topics.

    References
    ----------
    .. [1] Hoffman, Blei, Bach (2010). Online learning for latent Dirichlet allocation. NIPS.
    .. [2] Gultekin, Zhang, Paisley (2015). Stochastic annealing for variational inference.
       arXiv preprint, section 4.1.
    .. [3] Mandt, McInerney, Abrol, Ranganath, Blei (2016). Variational tempering. AISTATS.
    .. [4] Hoffman, Blei (2015). Structured stochastic variational inference. AISTATS.
    .. [5] Griffiths, Steyvers (2004). Finding scientific topics. PNAS 101.
    .. [6] Newman, Asuncion, Smyth, Welling (2009). Distributed algorithms for topic models.
       JMLR 10.

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
            StrOptions({"auto", SCALED}),
            None,
        ],
        "local_step": [StrOptions({"auto", *LOCAL_STEPS})],
        "learning_method": [StrOptions({"auto", "batch", "online"})],
        "learning_decay": DECAY_OR_AUTO,
        "batch_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "evaluate_every": [Interval(Integral, None, None, closed="neither")],
        "perp_tol": [Interval(Real, 0, None, closed="left")],
        "mean_change_tol": [Interval(Real, 0, None, closed="left")],
        "max_doc_update_iter": [Interval(Integral, 0, None, closed="left"), None],
        "components_init": ["array-like", None],
        "init_params": [StrOptions({"documents", "random"})],
    }

    _usual_decay = 0.7
    _rates_after_fit = EQUAL_RATES
    _efforts = {"deterministic": 1.0, "reheating": 1.0}
    _kernel_modules = (
        *("latent_dirichlet", "assigned_tokens", "tempered_documents", "topic_sampler"),
        *("counts", "gamma", "gamma_draws", "lazy_columns", "ragged"),
    )
    _data_in_words = "{units} documents with {observations} tokens of {columns} words"
    _advice = (
        "the Dirichlet parameters of some topics are not positive numbers: counts or priors are "
        "too large or too small for floating-point numbers. Give doc_topic_prior and "
        "topic_word_prior closer to 1, or divide X by a constant."
    )
    _advice_coinciding = (
        "Ask for fewer components, start from another components_init or random_state, or, if the "
        "method anneals, lower its initial temperature or give it jitter."
    )
    _start_parameters = ("components_init",)
    _model_parameters = ("n_components", "doc_topic_prior", "topic_word_prior", "local_step")

    def __init__(
        self,
        n_components=10,
        *,
        doc_topic_prior="auto",
        topic_word_prior="scaled",
        annealing="structured",
        local_step="auto",
        learning_method="auto",
        learning_decay="auto",
        learning_offset=10.0,
        max_iter=100,
        tol=1e-6,
        batch_size="auto",
        evaluate_every=-1,
        total_samples=None,
        perp_tol=1e-1,
        mean_change_tol=1e-3,
        max_doc_update_iter=None,
        components_init=None,
        init_params="documents",
        n_init=1,
        restarts="full",
        effort="auto",
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
        self.components_init = components_init
        self.init_params = init_params
        self.n_init = n_init
        self.restarts = restarts
        self.effort = effort
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        return tags

    def _training(self, units: Units | None = None) -> TopicTraining:
        """How topics are trained, of which the documents of a fit decide a part."""
        how = self.annealing, self.local_step, self.learning_method, self.batch_size
        documents: Any = None if units is None else units.example
        many = documents is not None and has_many_counts(documents, self.n_components)
        return TopicTraining(*how, many)

    # Methods that the base class calls

    def _batch_size_of(self, units: Units) -> int | None:
        training = self._training(units)
        return training.documents_per_batch(units.n_units) if training.is_online else None

    def _stopping_rule(self) -> RiseOfBound:
        return ChangeOfPerplexity(self.tol, max(0, self.evaluate_every), self.perp_tol)

    def _validate_data(self, X: Any, *, reset: bool, ensure_min_samples: int = 1) -> csr_matrix:
        refuse_masked(X, "X")
        check_sparse(X)
        given = X
        try:
            X = validated_table(
                self,
                X,
                text="counts of words are needed here, which sklearn.feature_extraction.text."
                "CountVectorizer makes of texts; leave other columns of text out",
                missing="give 0 for words that a document lacks, and leave out documents whose "
                "counts are not known",
                reset=reset,
                accept_sparse="csr",
                dtype="numeric",
                ensure_min_samples=1,
            )
        except ValueError:
            refuse_texts(X, type(self).__name__)
            raise
        if not issparse(X):
            check_non_negative(X, type(self).__name__)
            return csr_matrix(as_native(X))
        return checked_counts(X, given, type(self).__name__)

    def _make_units(self, X: csr_matrix, sample_weight: np.ndarray | None) -> Documents:
        units = Documents(X.data, X.indices, X.indptr, sample_weight)
        most = units.lengths.max(initial=0.0)
        if most > _MOST_TOKENS:
            raise ValueError(
                f"X has a document of {most:g} tokens, but a document may have at most 2**53: "
                "float64 cannot represent every larger number of tokens. Divide X by a constant."
            )
        return units

    def _check_training(self, units: Documents) -> None:
        if units.n_observations == 0:
            raise ValueError(
                "The documents of X have no words (all counts, or their weights, are zero), so "
                "there is nothing to learn topics from. Check the vocabulary of the vectorizer."
            )
        if units.n_observations < _FEWEST_WORDS * units.n_units:
            raise ValueError(
                f"The {units.n_units} documents of X have {units.n_observations:g} words in all "
                "(counts times weights), so few that the lower bound would be a rounding error. "
                "Multiply X, or sample_weight, by a constant."
            )

    def _check_first_batch(self, units: Documents, model: LatentDirichlet) -> None:
        self._check_training(units)

    def _strategy(self, model: LatentDirichlet) -> Annealing:
        strategy, training = super()._strategy(model), self._training()
        samples = isinstance(model, SampledLatentDirichlet)
        if not samples and training.samples and isinstance(strategy, StructuredVI):
            # The rate of 1 with which topics are sampled would forget all that a stream has seen.
            strategy.learning_rate = model.recommended["structured"]["learning_rate"]
        if samples:
            training.check(strategy)
        return strategy

    def _make_model(self, X: csr_matrix, units: Documents) -> LatentDirichlet:
        training = self._training(units)
        first = training.first_prior(self.n_components)
        per_word = tokens_per_word(units, X.shape[1]) if training.samples else np.inf
        model = self._model_with(training, training.local_step, first, X, units, per_word)
        if training.needs_more_passes:
            model.recommended = with_more_passes(model.recommended)
        return model

    def _make_model_of_stream(self, X: csr_matrix, units: Documents) -> LatentDirichlet:
        training = self._training()
        training.check_stream()
        first = training.first_prior_of_stream(self.n_components)
        return self._model_with(training, training.local_step_of_stream, first, X, units)

    def _model_with(
        self,
        training: TopicTraining,
        local_step: str,
        first_alpha: float,
        X: csr_matrix,
        units: Documents,
        per_word: float = np.inf,
    ) -> LatentDirichlet:
        k, n_words = self.n_components, X.shape[1]
        # Documents of a stream can have come in another dtype than the last of them.
        dtype = np.float32 if units.counts.dtype == np.float32 else np.float64
        first, eta = 1 / k, self.topic_word_prior
        if is_auto(self.doc_topic_prior):
            first = first_alpha
        if is_auto(eta) and LOCAL_STEPS[local_step] is SampledLatentDirichlet:
            eta = SCALED
        alpha = prior_vector(self.doc_topic_prior, k, first, "doc_topic_prior", "n_components")
        if dtype == np.float32 and alpha.max() > _LARGEST_SINGLE:
            raise ValueError(
                f"doc_topic_prior={alpha.max():g} is too strong for single precision, in which "
                f"X of dtype float32 is processed: give at most {_LARGEST_SINGLE:g}, or X of dtype "
                "float64."
            )
        return LOCAL_STEPS[local_step](
            k,
            n_words,
            alpha,
            prior_of_words(eta, k, n_words, per_word),
            learn_doc_topic_prior=is_auto(self.doc_topic_prior),
            learn_topic_word_prior=is_auto(self.topic_word_prior),
            collapsed_predictions=training.collapsed_predictions,
            max_doc_update_iter=self.max_doc_update_iter,
            mean_change_tol=self.mean_change_tol,
            init_params=self.init_params,
            dtype=dtype,
        )

    def _given_start(self, model: LatentDirichlet) -> Given:
        k, n_words = model.n_components, model.n_words
        start = check_array(self.components_init, dtype=np.float64, input_name="components_init")
        if start.shape != (k, n_words) or not (start > 0).all():
            raise ValueError(
                f"components_init must have shape (n_components, n_features) = {(k, n_words)} "
                f"and positive entries, but has shape {start.shape} and a smallest entry of "
                f"{start.min():g}. The components_ of a fit of this shape would do."
            )
        return {"components": start}

    def _model_of_stream(self, model: LatentDirichlet) -> LatentDirichlet:
        return with_local_step(model, self._training().local_step_of_stream)

    def _stream_batches(self, X: csr_matrix, units: Documents) -> Iterable[Documents]:
        if not hasattr(self, "_inference"):
            self._check_training(units)
        size = self._training().documents_per_batch(self.total_samples or units.n_units)
        begin = 0
        while begin < units.n_units:
            # Documents to which the stream can be fitted at once are not cut.
            room = self._room_for_fits(X, units) if is_auto(self.batch_size) else 0.0
            end = begin + int(max(size, min(room, units.n_units)))
            batch = units.take(slice(begin, end))
            if batch.n_observations > 0:
                yield batch
            begin = end

    def _room_for_fits(self, X: csr_matrix, units: Documents) -> float:
        """The number of documents that can still come to a stream before its last fit."""
        n_seen = 0
        if hasattr(self, "_inference"):
            kept = self._inference.kept
            if kept is None or self._inference.fitted:
                return 0.0 if kept is None else kept.room
            n_seen = kept.n_seen
        model = self._make_model_of_stream(X, units)
        least = self._least_weight_of_fit(model, units)
        return most_rows_of_fits(least) - n_seen if least < np.inf else 0.0

    def _fitted_attributes(self, ctx: Context) -> Attributes:
        model = ctx.model
        alpha, eta = model.doc_topic_prior, model.topic_word_prior
        doc_prior: np.ndarray | float = alpha.copy()
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

    def _complete_fit(
        self, ctx: Context, units: Documents | PartedUnits[Documents], given: Any
    ) -> None:
        bound = units.total(partial(self._document_bound, ctx))
        self.bound_ = perplexity_of(bound, units)
