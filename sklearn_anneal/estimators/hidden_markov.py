"""The estimator of hidden Markov models."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from .._compat import with_callbacks
from ..annealing import Annealing, Context
from ..data.tables import missing_cells
from ..data.units import Sequences, cell_patterns
from ..families import COVARIANCE_TYPES
from ..models._componentwise import Given
from ..models.hidden_markov import HiddenMarkov, log_probabilities
from ..models.hidden_semi_markov import HiddenSemiMarkov
from ..search.search import Plan
from ._attributes import Attributes
from ._base import BaseAnnealed
from ._columns import cells_of, way_out_of_text
from ._emissions import EMISSIONS, Emission, check_priors_of_others
from ._emissions.categorical import LEAST_CONCENTRATION, SymbolEmission
from ._given_starts import given_chain
from ._interface import DECAY_OR_AUTO
from ._number import NUMBER_OR_AUTO
from ._part_fits import stream
from ._part_sources import Inputs
from ._priors import chain_priors, checked_shapes, is_auto
from ._sequences import (
    SequenceData,
    any_known_state,
    check_targets,
    read_sequences,
    read_states,
    refuse_all_missing,
    refuse_beside_parts,
    refuse_impossible,
    refuse_late_names,
    refuse_one_weight_each,
    refuse_part,
    weights_of_frames,
    weights_of_sequences,
)
from ._shards import in_parts
from ._state import Inference
from ._state_predictions import StatePredictions
from ._tables import validated_table
from ._validation import checks_parameters, refuse_unobserved_columns, warn_of_zero

_PRIOR = [None, "array-like", Interval(Real, 0.0, None, closed="neither"), StrOptions({"auto"})]


class AnnealedHMM(StatePredictions):
    """Bayesian hidden Markov model, fitted by annealed variational inference.

    Every method that takes sequences accepts them in two forms:

    - An array with one row per frame (for ``"categorical"`` also a 1-D array of symbols). Either
      ``groups`` gives the id of the sequence of every row, or ``lengths`` gives the number of
      rows of each sequence. With neither, the array is one sequence.
    - A list, a tuple or a 1-D array of objects whose elements are sequences: 2-D arrays, data
      frames, lists of rows, or 1-D arrays and series, which are sequences of one feature; or an
      array of shape (n_sequences, n_frames, n_features). A list of lists of numbers such as
      ``[[1.0, 2.0], [3.0, 4.0]]`` is a table of two frames. With a list of sequences, the ignored
      y may have one entry per sequence, for stratified folds of sequences.

    Results have one row per frame, in the order of X; :func:`split_sequences` cuts them into
    sequences. Where metadata routing is enabled, ``groups`` is requested by default, so that
    ``GridSearchCV(est, …, cv=GroupKFold()).fit(X, groups=ids)`` splits between sequences; without
    routing, use lists. An unobserved frame is a row of NaN, a row that a mask covers completely,
    or the symbol −1. Such frames are marginalised, and so are single cells that are NaN or masked.

    Read more in the :ref:`user guide <hidden-markov-models>`.

    Parameters
    ----------
    n_components : int or "auto", default=1
        Number of states. States that the data do not support end up without frames. ``"auto"``
        compares fits of several numbers by the densities of sequences given the others, and by
        five-fold cross-validation where lower bounds prefer fewer states, or hardly exceed that of
        one. Fewer than ten different sequences, or five if real ones were repeated, have only the
        bounds (:ref:`number-of-states`).
    emission : {"gaussian", "categorical", "poisson", "bernoulli", "negative_binomial", \
            "zero_inflated_poisson"} or list of tuples, default="gaussian"
        Distribution of a frame given its state, for frames that are real vectors, symbols 0, 1, …
        in one column, vectors of counts, binary vectors, or counts with a larger variance or more
        zeros. It is never guessed from X. A list of (name, emission, columns) divides frames of
        mixed columns into blocks that are independent given the state, as in
        :class:`AnnealedBayesianMixture`; a block of categories can have several columns.
    covariance_type : {"full", "tied", "diag", "spherical", "independent"}, default="full"
        For ``"gaussian"``: how the scale matrices of the posterior over precisions are restricted.
        With ``"independent"`` every column of a state has a mean and a precision of its own.
    n_symbols : int, array-like of int, dict or None, default=None
        For ``"categorical"``: the number of symbols, which ``partial_fit`` needs. For blocks: one
        number for each column, or a dictionary from the name of a block to its numbers. None: the
        largest symbol seen in ``fit``, plus 1. It must then be below 100,000, or below ten times
        the number of frames if that is more, because tables have one column per symbol.
    annealing : str or Annealing, default="reheating"
        How the fit avoids the local optimum next to its start: ``"none"``, ``"reheating"``,
        ``"deterministic"``, ``"stochastic"``, ``"tempering"``, ``"local_tempering"``,
        ``"svi_plus"``, ``"structured"``, ``"proximity"``, or an instance from
        :mod:`sklearn_anneal.annealing`. A name selects the method with the recommended settings.
        ``"tempering"`` and ``"local_tempering"`` are refused for counts, because the normalising
        constant of their tempered density has no closed form.
    tol : float, default=1e-6
        The fit has converged when one pass raises the lower bound by less than this, in nats per
        frame.
    max_iter : int, default=100
        Largest number of passes at T = 1, which follow the annealing schedule. With 0 the fit stops
        at the end of the schedule, or at its start where there is no schedule. If the best fit of a
        search has not converged, up to five times as many follow.
    n_init : int, default=1
        Number of restarts. The one with the highest lower bound is kept. The first one is that of
        ``n_init=1``. Moves set out from the best restart and from this one, so that more restarts
        end no lower than one, unless they race or choose another number of components.
    restarts : {"full", "race"}, default="full"
        Whether all restarts run to convergence, or only the best one. In a race, which is
        successive halving (Jamieson and Talwalkar, 2016), all restarts make ten passes after their
        schedules, the better half twenty, and so on, until the best of the last three runs to its
        end. A race takes fewer passes, and can miss a restart that rises late.
        ``annealing="structured"``, all of whose passes belong to the schedule, refuses it.
    effort : float or "auto", default="auto"
        How long the fit searches for an optimum that is better than its first one, as a multiple of
        the passes that led to the first one (at least 48, or 500,000 divided by the number of
        frames if that is less). Merges, swaps, reheats and starts of other kinds take turns, and
        the result of each is kept only if its lower bound is higher (:ref:`reheats`). The search
        ends early when every move has failed three times in a row. ``"auto"``: 4 if ``annealing``
        is ``"reheating"``, and 0 with other methods and in minibatches. ``annealing="none"`` and
        ``"structured"`` refuse a number.
    init_params : {"auto", "kmeans", "random", "segments"}, default="auto"
        The start of the fit. ``"kmeans"`` takes the emissions from clusters of at most 20,000
        frames, ``"random"`` from random numbers, and both take starts and transitions from random
        counts. ``"segments"`` cuts sequences into one segment per state, in their order. ``"auto"``
        is ``"segments"`` where zeros in ``transmat_prior`` forbid all ways back, else ``"random"``
        for ``"categorical"`` and ``"kmeans"`` for others.
    startprob_init : array-like of shape (n_components,) or None, default=None
        Start probabilities at the start of the fit, which sum to 1, and are 0 where
        ``startprob_prior`` is. None: those of ``init_params``.
    transmat_init : array-like of shape (n_components, n_components) or None, default=None
        Transition probabilities at the start of the fit, of which each row sums to 1. They are 0
        where ``transmat_prior`` is. None: those of ``init_params``.
    emission_init : dict or None, default=None
        Parameters of the states at the start of the fit: arrays by the names of fitted attributes,
        without their underscores and in their shapes. These are ``"emissionprob"`` for symbols and
        binary columns, ``"lambdas"``, ``"zeroprob"`` for counts, ``"means"`` and ``"covars"`` else;
        for blocks, a dictionary of such dictionaries by the names of blocks. The start is the
        posterior given as many frames as there are, of which each state has the same number, with
        the given moments. Parameters that are not given are taken from the start that
        ``init_params`` makes, after its states have been matched with the given ones.
        ``annealing="none"`` goes to the optimum next to this start. Every restart of ``n_init``
        begins there too, and differs in the noise of annealing, and in the parts that are not
        given. A high temperature forgets the start, and the moves of ``effort`` may leave it and
        change the order of the states: with ``effort=0`` there are none. A warm start, and later
        batches of a stream, go on from the fitted parameters instead. None: that of
        ``init_params``.
    startprob_prior : float, array-like of shape (n_components,), "auto" or None, default="auto"
        Concentration of the Dirichlet prior of the start probabilities. ``"auto"`` learns one
        number for all states (see Notes), at least 0.1 / ``n_components``. Each sequence starts
        only once, so that it matters little unless there are many. None: 1 / ``n_components``. A
        zero in an array forbids sequences to start in that state.
    transmat_prior : float, array-like, "auto" or None, default="auto"
        Concentration of the Dirichlet prior of the transition probabilities, a number or an array
        of shape (n_components, n_components), with one row for each state that is left. ``"auto"``
        learns one number for all (see Notes), at least 0.1 / ``n_components``. A smaller number
        lets each state be followed by fewer others. None: 1 / ``n_components``. A zero in an array
        forbids the transition: its probability is 0 throughout the fit and ever after, for example
        in a left-to-right model, whose array is ``np.triu(np.ones((k, k)))``.
    sticky : float, default=0.0
        Number that is added to the diagonal of ``transmat_prior``. It acts like so many observed
        transitions from each state to itself, so that a larger number makes segments longer. With
        ``transmat_prior="auto"`` it stays as given, and the best number to add it to is learned.
        A zero on the diagonal of ``transmat_prior`` forbids nothing if a number is added to it.
    duration : "geometric", "auto", int or array-like of int, default="geometric"
        Distribution of the number of frames for which a state lasts. ``"geometric"`` is that of
        every Markov chain: most segments are shorter than their mean. A number r, for all states or
        one for each, is the shape of a negative binomial distribution: the state has r sub-states
        with one emission, which follow each other, and each is left with the same probability in
        every frame. No segment but the last one of a sequence is shorter than r, and durations vary
        the less the larger it is; with 1 it is geometric. ``"auto"`` compares fits of several
        shapes, of at most 100, by their lower bounds. A sequence begins with the first frame of a
        segment. The Notes say what the other parameters then mean.
    emissionprob_prior : float, array-like or "auto", default=None
        For ``"categorical"``: concentration of the Dirichlet prior of the symbols, a number or an
        array of shape (n_symbols,) or (n_components, n_symbols). None: 1 / ``n_symbols``, but at
        least 0.1, because with a smaller one a state practically excludes every symbol that it
        has not emitted so far, and annealing no longer moves symbols between states. ``"auto"``
        learns one number for all symbols, at least 0.1. For ``"bernoulli"``, and for ``zeroprob_``:
        both parameters of the beta prior. None: 1. ``"auto"`` learns both for each column, between
        0.1 and 10,000, and expects of each value no less than half an occurrence in all frames.
    means_prior : array-like, "auto" or None, default="auto"
        Means of the prior of the means, of shape (n_features,) or (n_components, n_features).
        ``"auto"`` learns one mean for all states (see Notes). None: the mean of the data.
    beta_prior : float, array-like of shape (n_components,), "auto" or None, default="auto"
        Precision of the prior of the means, in units of the precision of the state. ``"auto"``
        learns one number for all states, at most the number of frames. None: 1.
    dof_prior : float, array-like of shape (n_components,), "auto" or None, default="auto"
        Degrees of freedom of the Wishart prior, above n_features − 1. None: n_features. ``"auto"``
        learns one number for all states, from n_features up to n_features plus the frames of a
        state on average. :class:`AnnealedBayesianGaussianMixture` has those of diagonal priors.
    scale_prior : float, array-like, "auto" or None, default="auto"
        Inverse scale of the Wishart prior, in the shape of one covariance of the given type, or
        with one for each state. None: the covariance of the data. ``"auto"`` learns one for all
        states, and the size s_k ~ Gamma(a, a) of each state, by which it is multiplied: states of
        real data often differ in size by orders of magnitude. No product is below 1e-6 times the
        covariance of the data. Few frames are treated as rows of Gaussian mixtures are. For
        "tied", ``"auto"`` for this parameter and ``dof_prior`` is None from 2 n_features frames on;
        with fewer of them, the states have one matrix in common, whose prior is learned.
    reg_covar : float, default=1e-6
        Regularisation that is added to the diagonal of the covariances, in proportion to the number
        of frames of the state. The lower bound has its share, as the variance of noise of frames,
        if a prior of means or covariances is learned; if not, it is exact only for 0.
    lambdas_prior, lambdas_weight : float, array-like or "auto", default=None
        For counts: shape and rate of the gamma prior of the rates, which must broadcast to
        (n_components, n_features). None: a shape of 1, and the rate with which the mean of the
        prior is that of the data. ``"auto"`` learns one value for each column, with the shape
        between 0.1 and 10,000 and the prior's mean between 0.001 and 1,000 times that of the data,
        but no less than half an event in all frames.
    predictive : bool, default=True
        Whether predictions and scores integrate over the parameters of the frames, given the state
        (Student-t and negative binomial densities), because few frames leave them uncertain; each
        counts 1 / ``design_effect_``. False: densities at posterior means, as hmmlearn's. Both are
        the same for symbols and binary vectors. Starts and transitions are always posterior means.
    batch_size : int or None, default=None
        None: every update uses all sequences. An integer: stochastic variational inference runs
        with that many sequences per update.
    learning_offset : float, default=1.0
        The offset τ in the step size ρ_t = (τ + t)^(−κ) of damped updates, which move only a part
        of the way to their target. A larger τ makes the first steps smaller.
    learning_decay : float or "auto", default="auto"
        The exponent κ in the step size ρ_t = (τ + t)^(−κ) of damped updates. Convergence needs a
        value in (0.5, 1]. With a larger κ the parameters settle sooner, and each of the later
        batches changes them less. ``"auto"`` is 0.8 in updates of a stream that follow a fit, which
        has settled already, and 0.6 in others.
    total_samples : float or None, default=None
        Number of sequences in the whole stream that ``partial_fit`` will see. The parameters
        describe so much data from the beginning. With None the size is taken to be the number of
        sequences so far. If sequences have weights, it is the sum of these. Updates alone
        (``max_iter=1``) are annealed within the first tenth of it, and plain with None.
    n_jobs : int or None, default=None
        Number of threads, as in scikit-learn. They share out the restarts, or the parts of the data
        if there is only one restart. The result does not depend on their number.
    random_state : int, RandomState instance or None, default=None
        Seed of the starts and of the random numbers that annealing uses.
    warm_start : bool, default=False
        Whether another call of ``fit`` continues from the fitted parameters, at T = 1, instead of
        starting anew.
    verbose : int, default=0
        With 1, a fit says how it begins, where it is (passes, temperature, lower bound, seconds)
        and why it ends. With 2, every pass has a line, with the rise of the bound.
    verbose_interval : int, default=10
        Number of passes, or of calls of ``partial_fit``, from one line to the next with
        ``verbose=1``. A pass after five silent seconds has a line too.

    Attributes
    ----------
    startprob_ : ndarray of shape (n_components,)
        Posterior means of the start probabilities.
    transmat_ : ndarray of shape (n_components, n_components)
        Posterior means of the transition probabilities, one row for each state that is left. Unless
        ``duration`` is ``"geometric"``, they are those of the next state once a state ends, with 0
        on the diagonal.
    duration_shapes_ : ndarray of int, shape (n_components,)
        Shapes of the distributions of durations, 1 for geometric ones.
    leaveprob_ : ndarray of shape (n_components,)
        Posterior means of the probabilities that a frame is the last one of its (sub-)state.
    leaveprob_posterior_, leaveprob_prior_ : ndarray of shape (n_components, 2)
        Parameters of their beta posteriors and priors.
    stationary_distribution_ : ndarray of shape (n_components,)
        Shares of its time that an endless sequence spends in each state. Where ``transmat_prior``
        forbids so many transitions that they depend on the start, they are those expected from
        ``startprob_``.
    expected_durations_ : ndarray of shape (n_components,)
        Mean number of frames for which each state lasts, ``duration_shapes_ / leaveprob_``,
        infinite for a state that cannot be left.
    startprob_posterior_, transmat_posterior_ : ndarray
        Concentrations of their Dirichlet posteriors.
    startprob_prior_, transmat_prior_ : ndarray
        Concentrations of the Dirichlet priors that were used or learned, including ``sticky``.
    blocks_ : dict of Bunch
        For blocks of columns, the attributes of their emissions by the name of the block (for
        categories, one array per column), and the positions of its columns as ``columns``.
    emissionprob_ : ndarray of shape (n_components, n_symbols) or (n_components, n_features)
        For ``"categorical"`` and ``"bernoulli"``: posterior means of the probabilities.
    emissionprob_posterior_, emissionprob_prior_ : ndarray
        Parameters of their posteriors and priors: concentrations, or for ``"bernoulli"`` the two
        parameters of the beta distributions along the last axis.
    n_symbols_ : int
        For ``"categorical"``: the number of symbols.
    means_ : ndarray of shape (n_components, n_features)
        For ``"gaussian"``: posterior means of the means.
    covars_ : ndarray
        For ``"gaussian"``: covariances, of shape (n_components, n_features, n_features) for "full",
        (n_features, n_features) for "tied", (n_components, n_features) for "diag", else (K,).
    means_posterior_, beta_posterior_, dof_posterior_, scale_posterior_, means_prior_, \
            beta_prior_, dof_prior_, scale_prior_ : ndarray
        For ``"gaussian"``: parameters of the Normal–Wishart posteriors and priors.
    scale_prior_sizes_ : dict of ndarray
        For ``"gaussian"``: the sizes s_k by which ``scale_prior_`` differs between states: their
        expectations (``mean``, of shape (n_components,)). If they are inferred, also the ``shape``
        and the ``rate`` of their gamma distributions, and a of their prior (``strength``).
    lambdas_ : ndarray of shape (n_components, n_features)
        For counts: posterior means of the rates; for ``"negative_binomial"`` the expected counts.
    lambdas_posterior_, lambdas_weight_posterior_, lambdas_prior_, lambdas_weight_prior_ : ndarray
        For counts: shapes and rates of the gamma posteriors and priors, as ``lambdas_``.
    count_shapes_, zeroprob_, zeroprob_posterior_, zeroprob_prior_ : ndarray
        Shapes of negative binomial columns, and probabilities of the zeros of zero-inflated ones,
        as in :class:`AnnealedBayesianMixture`.
    design_effect_ : float
        Number of frames that say as much about a state in new sequences as one independent frame
        (:ref:`levels-of-sequences`). It is 1 unless ``fit``, or a fit of a stream, estimates it
        from Gaussian sequences.
    n_sequences_ : int
        Number of sequences of the training data, or of the stream so far.
    lower_bound_ : float
        Evidence lower bound of the fitted model at T = 1, in nats, with all constants. In a stream,
        it is the estimate that the last batch gave for the parameters before their update.
    lower_bounds_ : ndarray of shape (n_passes,)
        The lower bound after each pass (in a stream, at each call). With ``batch_size`` all values
        but the last are estimates.
    temperatures_ : ndarray of shape (n_passes,)
        Temperature of each pass. For local tempering, the mean over sequences.
    annealing_ : Annealing
        The method that ran (in a stream: in its last fit), with the value of every setting that was
        ``"auto"``.
    converged_ : bool
        Whether the fit converged. For a method without a finish, such as ``"structured"``, whether
        it ran to the end of its passes.
    n_iter_ : int
        Number of passes that led to the fitted parameters, including those of the annealing
        schedule and of the moves that were kept.
    restart_lower_bounds_ : ndarray of shape (n_init,)
        Final lower bound of each restart, or the last one that it reached before it lost a race.
        It is NaN for a restart that a callback prevented from beginning.
    best_restart_ : int
        Index of the restart that was kept.
    search_results_ : dict of ndarrays of shape (n_moves,)
        The moves of the search, in their order: the name (``move``), the number of passes of the
        fit before it (``n_before``), the number of its own passes (``n_passes``), the
        ``lower_bound`` that was reached, and whether the result was ``kept``.
    n_passes_ : int
        Number of passes of all restarts and moves. One that undoes an update counts twice.
    n_components_ : int
        Number of states: that of the parameter, or the one that ``"auto"`` has found, without
        those that explain at most one frame at the end. It need not be one that was tried.
    component_results_ : dict of ndarrays of shape (n_numbers,)
        Only with ``n_components="auto"``: the numbers that were tried (``n_components``), the
        ``lower_bound`` of a fit with each, and how many of its states explain more than one frame
        (``n_effective_components``). Ten or more sequences also have the log density of all
        sequences given other sequences, in nats (``log_density_left_out``), and for numbers that
        were compared by cross-validation, the one in it (``log_density_of_folds``).
    n_effective_components_ : int
        Number of states whose expected number of frames exceeds 1. States whose transition
        probabilities and emissions (in units of the data) differ by less than 0.01 count once.
    n_features_in_ : int
        Number of columns seen during ``fit``.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of columns seen during ``fit``, where X has string column names.

    See Also
    --------
    concat_sequences : Join a list of sequences to ``X`` and ``groups``.
    split_sequences : Cut rows into a list of sequences.

    Notes
    -----
    ``"auto"`` for the parameter of a prior means empirical Bayes: at every pass the prior is
    replaced by the one that maximises the lower bound given the posteriors, so that the bound
    cannot fall. Priors of Gaussian and Poisson frames are learned from the start on, but stay while
    the fit is annealed. Those of starts, transitions, symbols and binary columns begin at the value
    of None, because priors that are learned from unsettled states keep these states as they are.
    They are learned when plain inference has settled or has made half of ``max_iter`` passes, and
    in minibatches and streams after annealing and 100 updates. ``…_prior_`` has the learned values.

    A model of a single state learns its priors only from 50 frames on, and with full covariances
    from ten frames per column on. Such priors repeat the data of the state, so that predictions
    from fewer frames would be too certain.

    With another ``duration`` than ``"geometric"``, ``transmat_prior`` and ``sticky`` mean the same:
    off the diagonal are the concentrations of jumps, and the probability of leaving a sub-state has
    the prior Beta(a, b), with a their sum and b the entry of the diagonal. With a zero there, every
    segment has r frames, and with zeros elsewhere a state lasts to the end. The diagonal of
    ``transmat_init`` says how long states last [5]_ [6]_.

    References
    ----------
    .. [1] MacKay (1997). Ensemble learning for hidden Markov models.
    .. [2] Beal (2003). Variational algorithms for approximate Bayesian inference, chapter 3.
    .. [3] Gultekin, Zhang, Paisley (2015). Stochastic annealing for variational inference,
       section 4.2.
    .. [4] Minka (2000). Estimating a Dirichlet distribution, for the step that learns one.
    .. [5] Johnson (2005). Capacity and complexity of HMM duration modeling techniques. IEEE Signal
       Processing Letters 12.
    .. [6] Johnson, Willsky (2013). Bayesian nonparametric hidden semi-Markov models. JMLR 14.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal import AnnealedHMM
    >>> rng = np.random.default_rng(0)
    >>> states = np.repeat([0, 1, 0, 1], 25)
    >>> X = 5.0 * states[:, None] + rng.standard_normal((100, 1))
    >>> hmm = AnnealedHMM(2, random_state=0).fit(X, lengths=[50, 50])
    >>> np.sort(hmm.means_.ravel()).round(1)
    array([0. , 5.1])
    >>> len(np.unique(hmm.predict(X[:25])))
    1
    """

    __metadata_request__fit = {"groups": True}
    __metadata_request__partial_fit = {"groups": True}

    _parameter_constraints: dict = {
        **BaseAnnealed._parameter_constraints,
        "n_components": NUMBER_OR_AUTO,
        "learning_decay": DECAY_OR_AUTO,
        "emission": [StrOptions(EMISSIONS.keys()), list],
        "covariance_type": [StrOptions({"independent", *COVARIANCE_TYPES})],
        "n_symbols": [Interval(Integral, 1, None, closed="left"), "array-like", dict, None],
        "init_params": [StrOptions({"auto", "kmeans", "random", "segments"})],
        "startprob_init": ["array-like", None],
        "transmat_init": ["array-like", None],
        "emission_init": [dict, None],
        "startprob_prior": _PRIOR,
        "transmat_prior": _PRIOR,
        "sticky": [Interval(Real, 0.0, None, closed="left")],
        "duration": [
            StrOptions({"geometric", "auto"}),
            Interval(Integral, 1, None, closed="left"),
            "array-like",
        ],
        "emissionprob_prior": _PRIOR,
        "means_prior": [None, "array-like", StrOptions({"auto"})],
        "beta_prior": _PRIOR,
        "dof_prior": _PRIOR,
        "scale_prior": _PRIOR,
        "reg_covar": [Interval(Real, 0.0, None, closed="left")],
        "lambdas_prior": _PRIOR,
        "lambdas_weight": _PRIOR,
        "predictive": ["boolean"],
    }

    def __init__(
        self,
        n_components=1,
        *,
        emission="gaussian",
        covariance_type="full",
        n_symbols=None,
        annealing="reheating",
        tol=1e-6,
        max_iter=100,
        n_init=1,
        restarts="full",
        effort="auto",
        init_params="auto",
        startprob_init=None,
        transmat_init=None,
        emission_init=None,
        startprob_prior="auto",
        transmat_prior="auto",
        sticky=0.0,
        duration="geometric",
        emissionprob_prior=None,
        means_prior="auto",
        beta_prior="auto",
        dof_prior="auto",
        scale_prior="auto",
        reg_covar=1e-6,
        lambdas_prior=None,
        lambdas_weight=None,
        predictive=True,
        batch_size=None,
        learning_offset=1.0,
        learning_decay="auto",
        total_samples=None,
        n_jobs=None,
        random_state=None,
        warm_start=False,
        verbose=0,
        verbose_interval=10,
    ):
        self.n_components = n_components
        self.emission = emission
        self.covariance_type = covariance_type
        self.n_symbols = n_symbols
        self.annealing = annealing
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.restarts = restarts
        self.effort = effort
        self.init_params = init_params
        self.startprob_init = startprob_init
        self.transmat_init = transmat_init
        self.emission_init = emission_init
        self.startprob_prior = startprob_prior
        self.transmat_prior = transmat_prior
        self.sticky = sticky
        self.duration = duration
        self.emissionprob_prior = emissionprob_prior
        self.means_prior = means_prior
        self.beta_prior = beta_prior
        self.dof_prior = dof_prior
        self.scale_prior = scale_prior
        self.reg_covar = reg_covar
        self.lambdas_prior = lambdas_prior
        self.lambdas_weight = lambdas_weight
        self.predictive = predictive
        self.batch_size = batch_size
        self.learning_offset = learning_offset
        self.learning_decay = learning_decay
        self.total_samples = total_samples
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    _kernel_modules = (
        *("hidden_markov", "hidden_semi_markov", "gaussian_mixture", "discrete"),
        *("missing_cells", "gamma", "empirical_bayes"),
    )
    _data_in_words = "{units} sequences with {observations} frames of {columns} columns"
    _levels_parameter = "n_symbols"
    _of_frames = True
    # Whether the numbers of states are those of known states.
    _names_states = False
    _advice = (
        "some states have emissions whose parameters left their domain (of too few frames, or of "
        "frames whose scales differ too much for floating-point numbers). Ask for fewer states, "
        'give stronger priors, rescale X, or, with emission="gaussian", increase reg_covar.'
    )
    _advice_coinciding = (
        "Ask for fewer states, start from another init_params or random_state, or, if the "
        "method anneals, lower its initial temperature or give it jitter."
    )
    _start_parameters = ("startprob_init", "transmat_init", "emission_init")
    _model_parameters = (
        "n_components",
        "emission",
        "covariance_type",
        "n_symbols",
        "startprob_prior",
        "transmat_prior",
        "sticky",
        "duration",
        "emissionprob_prior",
        "means_prior",
        "beta_prior",
        "dof_prior",
        "scale_prior",
        "reg_covar",
        "lambdas_prior",
        "lambdas_weight",
    )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.positive_only = self._kind is not None and self._kind.positive_only
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.startprob_)

    @property
    def _of_symbols(self) -> bool:
        """Whether every frame is a symbol, and not a row of columns."""
        return self._kind is SymbolEmission

    # Methods that the base class calls

    def _data(
        self,
        X: ArrayLike,
        groups: object,
        lengths: object,
        y: ArrayLike | None = None,
        states: object = None,
    ) -> SequenceData:
        data = read_sequences(X, groups, lengths, self._of_symbols)
        check_targets(y, X, data)
        return replace(data, states=read_states(states, data, self._number))

    def _validate_data(self, X: Any, *, reset: bool, ensure_min_samples: int = 2) -> SequenceData:
        data = read_sequences(X, None, None, self._of_symbols)
        frames = validated_table(
            self,
            data.X,
            text=way_out_of_text(self.emission),
            reset=reset,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
            ensure_min_samples=ensure_min_samples,
        )
        if reset:
            self._find_blocks(data.X if hasattr(data.X, "columns") else frames)
        if self._blocks is not None:
            fitted = None if reset else self._quiet_context().model.emission
            levels = self._declared() if fitted is None else self._known_levels(fitted)
            data = replace(data, levels=levels)
        if self._of_symbols:
            data = replace(data, n_symbols=self.n_symbols if reset else self.n_symbols_)
        return replace(data, X=frames)

    def _chosen(self, X: SequenceData, chosen: np.ndarray) -> SequenceData:
        return X.take(chosen)

    def _make_units(self, X: SequenceData, sample_weight: np.ndarray | None) -> Sequences:
        if self._blocks is not None:
            how = self._blocks, self._number, X.levels, self._levels_parameter
            cells = cells_of(X.X, self.emission, *how)
            mask = missing_cells(cells)
            gaps = None if mask is None or not mask.all(axis=1).any() else mask.all(axis=1)
            return Sequences(cells, X.indptr, sample_weight, gaps, states=X.states)
        if self._of_symbols:
            SymbolEmission.check_symbols(X.X, X.n_symbols)
        frames, missing = self._kinds[""].encode(X.X)
        cells = {"patterns": cell_patterns(frames), "states": X.states}
        return Sequences(frames, X.indptr, sample_weight, missing, **cells)

    def _check_weights(
        self, sample_weight: ArrayLike | None, X: Any, allow_nothing: bool = False
    ) -> np.ndarray | None:
        """Return one weight per sequence; the user gives one per row."""
        refuse_one_weight_each(sample_weight, X)
        weights = super()._check_weights(sample_weight, X.X, allow_nothing)
        return None if weights is None else weights_of_sequences(weights, X)

    def _check_training(self, units: Sequences) -> None:
        refuse_all_missing(units)
        self._refuse_impossible(units)
        if self._blocks is not None:
            refuse_unobserved_columns(units.observed(), self._order())
            self._warn_of_categories(units.frames)
        elif self._of_symbols and self.n_symbols is None:
            if units.frames.max(initial=0) > 0 and not (units.frames == 0).any():
                warn_of_zero("symbol", "symbols", None, "n_symbols")

    def _check_first_batch(self, units: Sequences, model: HiddenMarkov) -> None:
        if is_auto(self.duration):
            raise ValueError(
                "partial_fit does not choose shapes, because they are compared by fits to all "
                "data: give duration as numbers, or go on from a fit."
            )
        self._check_training(units)
        if self._blocks is not None:
            self._check_all_declared()
        else:
            self._kinds[""].check_first_batch(self, units.observed().X)

    def _make_model(self, X: SequenceData, units: Sequences) -> HiddenMarkov:
        # Blocks of any emissions have distances, so that all starts are possible.
        kind = Emission if self._blocks is not None else self._kinds[""]
        check_priors_of_others(self)
        start, transmat = chain_priors(self, self._number)
        chain = {"startprob": self.startprob_prior, "transmat": self.transmat_prior}
        parts = (
            self._components(units.present()),
            start,
            transmat,
            kind.checked_init_params(self, transmat),
            tuple(name for name, value in chain.items() if self._number > 1 and is_auto(value)),
        )
        if (shapes := self._shapes) is None:
            return HiddenMarkov(*parts)
        return HiddenSemiMarkov(*parts, shapes=shapes, learns_shapes=is_auto(self.duration))

    @property
    def _shapes(self) -> np.ndarray | None:
        """The shapes of durations at the start of a fit; None for geometric durations."""
        return checked_shapes(self.duration, self._number)

    def _plan(self, strategy: Annealing, units: Any) -> Plan:
        if is_auto(self.duration) and (self.max_iter == 0 or not strategy.finish):
            what = "max_iter=0" if strategy.finish else f"annealing={self.annealing!r}"
            raise ValueError(
                f"duration='auto' cannot be combined with {what}: shapes are compared by the lower "
                "bounds that plain inference reaches with them. Give the shapes, as numbers."
            )
        return super()._plan(strategy, units)

    def _given_start(self, model: HiddenMarkov) -> Given:
        priors = {"startprob": model.startprob_prior, "transmat": model.transmat_prior}
        given = given_chain(self, priors)
        if self._asked_start()["emission_init"] is not None:
            given["profile"] = self._given_profile(model.emission)
        return given

    def _check_exchangeable(self, kept: Inference, order: np.ndarray) -> None:
        if self._names_states:
            raise ValueError(
                "The states have the numbers of the known ones in states, so that another order "
                "would rename them. Change the numbers in states, and fit again."
            )
        super()._check_exchangeable(kept, order)

    def _refuse_impossible(self, units: Sequences) -> None:
        if units.states is not None:
            refuse_impossible(units, *chain_priors(self, self._number), self._shapes)

    def _check_parameters(self, X: SequenceData, units: Sequences) -> None:
        self._refuse_impossible(units)
        asked = self
        if self._of_symbols and self.n_symbols is None:
            # A later batch may lack symbols of the first one, so that the model gives the number.
            asked = copy(self)
            asked.n_symbols = self._quiet_context().model.emission.n_symbols
        super(AnnealedHMM, asked)._check_parameters(X, units)

    def _fitted_attributes(self, ctx: Context) -> Attributes:
        model, q, prior = ctx.model, ctx.q, ctx.prior
        return {
            "startprob_": np.exp(log_probabilities(q["startprob"])),
            "transmat_": np.exp(log_probabilities(q["transmat"])),
            "startprob_posterior_": q["startprob"],
            "transmat_posterior_": q["transmat"],
            "startprob_prior_": prior["startprob"],
            "transmat_prior_": prior["transmat"],
            "n_components_": model.n_components,
            "n_effective_components_": model.n_effective_states(q, ctx.summary, prior),
            "n_sequences_": ctx.summary.n_sequences,
            "design_effect_": getattr(self, "design_effect_", 1.0),
            **self._attributes_of_components(model.emission, q, prior, ctx.summary.emission),
        }

    @staticmethod
    def _summary_of_components(summary: Any) -> Any:
        return summary.emission

    @staticmethod
    def _usual_concentration(n_levels: int) -> float:
        """The prior concentration of each of so many symbols that None stands for."""
        return max(1.0 / n_levels, LEAST_CONCENTRATION)

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X,
        y=None,
        *,
        groups=None,
        lengths=None,
        sample_weight=None,
        states=None,
        checkpoint=None,
    ):
        """Fit the model: anneal, then plain variational inference to convergence.

        If the fit is refused or interrupted, the estimator remains as it was before.

        Parameters
        ----------
        X : array-like of shape (n_frames, n_features), list of such, or data in parts
            Training sequences. Rows of NaN are missing, and so are single cells of Gaussian frames.
            Parts are :class:`~sklearn_anneal.Shards` or a collection of Dask.
        y : Ignored
            Not used, present for API consistency by convention.
        groups : array-like of shape (n_frames,), default=None
            The id of the sequence of every row. The rows of a sequence must follow each other.
        lengths : array-like of int, shape (n_sequences,), default=None
            Number of rows of each sequence, instead of ``groups``.
        sample_weight : array-like of shape (n_frames,), default=None
            Weights, constant within a sequence. A sequence with a weight of 2 counts twice. With
            data in parts, one array for each part, with one weight per sequence.
        states : array-like of int, shape (n_frames,), or list of such, default=None
            The known states of frames, and −1, NaN or NA where it is unknown, in the form of X: one
            array, or one array for each sequence of a list (None: no state is known). Known states
            are data. The states of the model get the numbers that they have here, and
            ``lower_bound_`` is that of frames and known states together.
        checkpoint : path-like, default=None
            A folder in which the state of the fit is saved after every pass. If it contains the
            state of an interrupted fit to the same data with the same parameters, the fit continues
            from there, and its result is bit for bit that of a fit without interruption.

        Returns
        -------
        self : estimator instance
            The fitted estimator.

        Raises
        ------
        ValueError
            If the data or the parameters are refused, if the result is not finite, or if
            ``checkpoint`` belongs to a fit with other data, parameters or versions.
        """
        with self._all_or_nothing():
            if in_parts(X):
                refuse_beside_parts(groups=groups, lengths=lengths, states=states)
                self._names_states = False
                return self._fit(X, y, sample_weight, checkpoint)
            self._refuse_number_with(states=states)
            data = self._data(X, groups, lengths, y, states)
            self._name_states(data, sample_weight, self.warm_start)
            return self._fit(data, y, sample_weight, checkpoint)

    @checks_parameters
    def partial_fit(self, X, y=None, *, groups=None, lengths=None, sample_weight=None, states=None):
        """Update the model with one batch of sequences of a stream.

        The model is fitted to all frames so far, as by :meth:`fit` with its annealing, whenever
        these have grown by a half: from 25 frames for each state on, and one for each state and
        column with full covariances, up to eight times as many, or twelve sequences if these are
        longer. Batches that come before the first fit and between fits update the model by plain
        inference. Each fit determines its priors anew, and states keep the numbers of those that
        they resemble. Afterwards a random sample of that size is kept. The fit is repeated with it
        where later frames, or earlier ones, are predicted worse than expected, by 0.5 nats each or
        more, because other groups have come. A repeated fit that fails changes nothing, and the
        update with the batch remains.

        ``max_iter=1`` makes a stream of updates alone, which keeps no frames and fixes with the
        first batch the priors that depend on data. The annealing schedule runs within the first
        tenth of ``total_samples``, whatever its number of passes in ``fit`` is, and plain inference
        follows, so that one pass over the stream ends at T = 1. Without ``total_samples`` all
        updates are plain. If states coincide after fits or after the schedule, a warning says so;
        the check is repeated whenever the stream has doubled.

        Parameters
        ----------
        X : array-like of shape (n_frames, n_features), list of such, or data in parts
            The sequences of the batch. Parts, which are batches one after another, are
            :class:`~sklearn_anneal.Shards` or a collection of Dask.
        y : Ignored
            Not used, present for API consistency by convention.
        groups : array-like of shape (n_frames,), default=None
            The id of the sequence of every row. Ids of different batches are unrelated.
        lengths : array-like of int, shape (n_sequences,), default=None
            Number of rows of each sequence, instead of ``groups``.
        sample_weight : array-like of shape (n_frames,), default=None
            Weights, constant within a sequence. A batch of weight zero changes nothing. With data
            in parts, one array for each part, with one weight per sequence.
        states : array-like of int, shape (n_frames,), or list of such, default=None
            The known states of frames, and −1, NaN or NA where it is unknown, in the form of X: one
            array, or one array for each sequence of a list (None: no state is known). Known states
            are data. The states of the model get the numbers that they have here, and
            ``lower_bound_`` is that of frames and known states together. A stream with known states
            must have some in its first batch.

        Returns
        -------
        self : estimator instance
            The updated estimator.

        Raises
        ------
        ValueError
            If the batch or a parameter is refused. Both are checked at every call, and the
            estimator remains as it was before the call.
        """
        with self._all_or_nothing():
            if in_parts(X):
                refuse_beside_parts(groups=groups, lengths=lengths, states=states)
                stream(self, X, y, sample_weight)
                return self
            data = self._data(X, groups, lengths, y, states)
            self._name_states(data, sample_weight, True)
            return self._partial_fit(data, sample_weight)

    def _part(self, inputs: Inputs) -> SequenceData:
        refuse_part(inputs.X)
        return self._data(inputs.X, None, None)

    def _weights_of_part(self, weights: ArrayLike | None, X: ArrayLike) -> np.ndarray:
        return weights_of_frames(weights, X)

    def _check_parts(self) -> None:
        if self._blocks is not None:
            self._check_all_declared()
        elif self._of_symbols and self.n_symbols is None:
            raise ValueError(
                "Data in parts need n_symbols: one part does not tell which symbols others have."
            )

    def _name_states(
        self, data: SequenceData, sample_weight: ArrayLike | None, goes_on: bool
    ) -> None:
        """Note whether states have the numbers of known ones, and refuse to name them too late."""
        known = False
        if data.states is not None:
            weights = self._check_weights(sample_weight, data, allow_nothing=True)
            known = any_known_state(data, weights)
        goes_on = goes_on and hasattr(self, "_inference")
        if known and goes_on and not self._names_states:
            refuse_late_names()
        self._names_states = known or (goes_on and self._names_states)
