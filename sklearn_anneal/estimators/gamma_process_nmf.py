"""The estimator of gamma-process non-negative matrix factorisation."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix, issparse
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_non_negative

from ..data.parted_units import PartedUnits
from ..data.units import DenseCounts, SparseCounts, cell_patterns
from ..inference.stopping import RiseOfBound
from ..metrics import LARGEST_COUNT
from ..models._componentwise import Given
from ..models.gamma_process_nmf import GammaProcessNMF
from ._attributes import Attributes
from ._base import BaseAnnealed
from ._count_predictions import CountPredictions
from ._counts import checked_counts
from ._given_starts import given_in_range
from ._interface import DECAY_OR_AUTO, EQUAL_RATES
from ._number import NUMBER_OR_AUTO
from ._priors import is_auto
from ._tables import validated_table
from ._validation import (
    check_sparse,
    refuse_masked,
    refuse_unobserved_columns,
)

if TYPE_CHECKING:
    from ..annealing import Context
    from ..data.units import Units
    from ..inference.progress import Settings

_PRIOR = [Interval(Real, 0.0, None, closed="neither"), StrOptions({"auto"})]
_PRIORS = ("activation_prior", "component_prior", "concentration")
# Initial values of learned priors.
_STARTS = {
    "activation_prior": 0.1,
    "component_prior": 0.1,
    "concentration": 1.0,
    "dispersion": 1.0,
    "popularity_prior": 1.0,
}
# The largest shape of the prior of activations. The lower bound adds up as many numbers of about
# this size as there are activations.
_STRONGEST = 1e8


class AnnealedGammaProcessNMF(CountPredictions):
    """Non-negative matrix factorisation of counts with a gamma process over components.

    Every row of counts is a sum of parts: x_nv ~ Poisson(Σ_k h_nk θ_k w_kv), with components w,
    activations h of the rows, and one weight θ_k per component, all of which have gamma priors
    (Hoffman, Blei, Cook [1]_). The divergence that :class:`sklearn.decomposition.NMF` minimises
    with ``beta_loss="kullback-leibler"`` is, up to a constant, the negative log-likelihood of
    this model. The prior of the weights approximates a gamma process: the weights of components
    that the data do not need fall to zero, so that one fit says how many there are
    (``n_effective_components_``).

    ``transform`` returns expected activations, which are 0 for components that are not in use, and
    ``inverse_transform`` multiplies them by ``components_``. The equations hold for all
    non-negative numbers up to 2**53, such as the magnitudes of a spectrogram, though only counts
    can follow the model. The larger such numbers are, the more they are trusted, and the more
    components are used. Counts that vary more than Poisson counts do have a ``dispersion`` [3]_.
    A zero is a count of zero, in sparse matrices too. NaN marks missing cells
    of dense arrays, which are assumed to be missing at random.

    Read more in the :ref:`user guide <counts>`.

    Parameters
    ----------
    n_components : int or "auto", default=50
        Largest number of components K. It should be larger than the number that is expected to be
        used; time grows in proportion to it. ``"auto"``: fits with several numbers are compared by
        their lower bounds, beginning with 1, 2, 4, …, until a third of the components stay unused.
    annealing : str or Annealing, default="reheating"
        How the fit avoids the local optimum next to its start: ``"none"``, ``"reheating"``,
        ``"deterministic"``, ``"stochastic"``, ``"svi_plus"``, ``"structured"``, ``"proximity"``, or
        an instance from :mod:`sklearn_anneal.annealing`. A name selects the method with the
        settings recommended for this model. The default, ``"reheating"``, takes about six times as
        many passes as ``"none"``, and ended at a higher bound on all data that it was tried on.
        ``"structured"`` is the method of [2]_. ``"tempering"`` and ``"local_tempering"`` are
        refused, because the normaliser of a tempered Poisson distribution has no closed form.
    activation_prior : float or "auto", default="auto"
        The shape b of the prior Gamma(b, b) of activations, whose mean is 1; at most 1e8. The
        smaller it is, the fewer components a row has. ``"auto"`` starts from 0.1 and learns it by
        empirical Bayes at T = 1, like the next two. With learned priors the bound was higher on
        most data that were tried, and held-out counts were predicted about as well as with 0.1, 0.1
        and 1, and better on digits, where reheating with these left too few components. Priors are
        not learned from fractions that add up to fewer than 10 in a row or a column on average, and
        a warning says so.
    component_prior : float or "auto", default="auto"
        The shape a of the prior Gamma(a, a) of the entries of components, whose mean is 1. The
        smaller it is, the fewer columns a component has. ``"auto"`` starts from 0.1.
    concentration : float or "auto", default="auto"
        The concentration α of the gamma process: θ_k ~ Gamma(α / K, α / m), m being the mean of X.
        A small one expects few components, which matters little where each component has many
        counts. ``"auto"`` starts from 1.
    dispersion : float, "auto" or None, default=None
        The variance of gamma noise by which the rate of each cell is multiplied, so that counts
        are negative binomial, with the variance m + ``dispersion`` m² around their rate m. Counts
        of words, mutations or purchases come in bursts, which Poisson counts explain by further
        components. None: no noise. ``"auto"`` learns it by the lower bound, from 1e-4 to 1000,
        like the priors. First it is 1.4 times the best one for the components that a pass has
        found. A search also starts from 10, which keeps bursts of small counts from becoming
        components, but joins those of large counts: from a mean of 30 on, other moves come first.
        Minibatches and streams learn it after 100 updates, and have 1 until then.
        With noise a pass takes time for every cell, also of sparse matrices, because cells without
        counts differ. Rows need no noise: it would multiply activations, which vary anyway.
    popularity_prior : float, "auto" or None, default=None
        The shape s of the prior Gamma(s, s) of a rate η_v for each column, with which the entries
        of components have the prior Gamma(a, a η_v): rare columns have small entries in all
        components, and popular ones large entries, as items have in hierarchical Poisson
        factorisation [4]_. None: all columns have the rate 1. This matters where
        ``component_prior`` is given and about 1 or larger. Where it is learned, it is mostly so
        small that columns may differ anyway; predictions then hardly change. ``"auto"`` starts from
        1 and learns s like the other priors; it goes to 1e4, which is as good as None, where all
        rates are alike. The rates (``popularities_``) follow the components in every pass at T = 1,
        also where s is a number, unless other priors are ``"auto"`` and the counts are fractions
        from which these are not learned. Rows have no such rate: an activity of a row would be a
        factor of its activations, which vary by more than that where ``activation_prior`` is small.
    init_params : {"auto", "random", "random_from_data", "collapsed_gibbs"}, default="auto"
        The start of the components: random numbers that differ by 10 percent, means of a few random
        rows, or counts that 200 sweeps of collapsed Gibbs sampling (Griffiths and Steyvers, 2004,
        Eq. 5) have allocated to components, as in a topic model. The sampler takes time for every
        count, up to 1024 of a cell, and runs in one thread. From an allocation, fits of tens of
        components to texts have a higher bound and predict better than from random numbers, from
        which a fit switches off components that would raise the bound. Where far fewer components
        are needed, random numbers are better. ``"auto"`` therefore starts at random numbers. If the
        cells that are not zero hold fewer than 3 counts on average, and the counts are no fractions
        such as tf-idf, the search of ``effort`` begins with a fit from an allocation, which is kept
        if its bound is higher. Where cells hold more counts, single draws change little and the
        sampler hardly moves. For data in parts, a sample of the rows is allocated. Without a
        search, as with ``annealing="none"``, in minibatches and in streams, nothing is allocated.
        In memory, ``"auto"`` starts with all counts in one component if a table of up to a million
        cells shows no other part (the likelihood ratio of independent rows and columns), because
        components at random numbers would learn the noise of some rows each.
    components_init : array-like of shape (n_components, n_features) or None, default=None
        ``components_`` at the start, for example those of another fit: expected counts of the
        columns, at least 0, with a positive sum in every row. ``annealing="none"`` goes to the
        optimum next to this start. Every restart of ``n_init`` begins there too, and differs in
        the noise of annealing. A high temperature forgets the start, and reheats may leave it. A
        warm start, and updates of a stream, go on from the fitted parameters instead, and all fits
        of a stream begin there. None: ``init_params`` decides.
    max_sweeps : int or None, default=None
        Largest number of times that the activations of a row are updated in a pass or a prediction.
        None: in passes of ``fit`` in which rows start anew 16, with momentum (Nesterov, 1983), or 8
        without it if counts have a ``dispersion``; 5 in those that go on from the last one with
        noise of the annealing; 1 in others that go on; and 100 in predictions. Passes with a number
        that is given have no momentum, and no further passes follow (see Notes).
    sweep_tol : float, default=1e-3
        The updates of a row end after one that has changed its shape parameters by less than this
        on average.
    tol : float, default=1e-5
        The fit has converged when one pass raises the lower bound by less than this, in nats per
        unit of the sum of X. With 1e-6 the bounds of real and drawn counts were higher by at most
        0.0007 nats per cell, their held-out scores differed by at most 0.0004, and many fits needed
        more passes than ``max_iter`` permits. With ``dispersion`` it is divided by 1 plus the mean
        of X, because the bound of a large count with noise grows by its logarithm alone.
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
        end. A race takes fewer passes, and can miss a restart that rises late. With
        ``annealing="structured"``, all of whose passes belong to the schedule, a race is refused.
    effort : float or "auto", default="auto"
        How long the fit searches for an optimum that is better than its first one, as a multiple of
        the passes that led to the first one (at least 12). Merges of components with the same
        profile, swaps, in which one component is given up and another one divided, or sought in the
        counts that the others do not explain, short reheats with noise, and other starts take
        turns. The result of a move is kept only if its lower bound is higher, and a move is given
        up after a few passes if a higher bound is out of reach. The search ends early when every
        move has failed three times in a row. ``"auto"``: 4 if ``annealing`` is ``"reheating"``, but
        1 once a start by collapsed Gibbs sampling is the best, because the sampler has searched
        already, 2.25 for dense tables (see Notes), and 0 with other methods and in
        minibatches. More effort raises the bound further. ``annealing="none"``, which is plain
        inference, and ``"structured"`` do not search, and refuse a number above 0.
    batch_size : int or None, default=None
        None: every update uses all rows. An integer: stochastic variational inference runs with
        that many rows per update.
    learning_offset : float, default=1.0
        The offset τ in the step size ρ_t = (τ + t)^(−κ) of damped updates, which move only a part
        of the way to their target. A larger τ makes the first steps smaller.
    learning_decay : float or "auto", default="auto"
        The exponent κ in the step size ρ_t = (τ + t)^(−κ) of damped updates. Convergence needs a
        value in (0.5, 1]. With a larger κ the parameters settle sooner, and each of the later
        batches changes them less. ``"auto"`` is 0.6. In updates of a stream that follow a fit it is
        1, with τ = 0, so that the step of a batch is its share of all rows so far.
    total_samples : float or None, default=None
        Number of rows in the whole stream that ``partial_fit`` will see. The parameters describe so
        much data from the beginning. With None the size is taken to be the number of rows so far.
        If rows have weights, it is the sum of these. Updates alone (``max_iter=1``) are annealed
        within the first tenth of it, and plain with None.
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
    components_ : ndarray of shape (n_components, n_features)
        Posterior means of θ_k w_kv, so that ``transform(X) @ components_`` is the expected X. Rows
        of components that are not in use are nearly 0. If the search has kept an allocation, they
        are means over 50 further sweeps of collapsed Gibbs sampling, which begin at the optimum and
        have the learned priors. All predictions use them, because they predict better than means of
        the variational posterior, to which ``lower_bound_``, ``component_weights_`` and
        ``n_effective_components_`` belong. With missing cells, ``dispersion`` or
        ``popularity_prior``, after ``partial_fit`` and for data in parts, the means are those of
        the variational posterior.
    component_weights_ : ndarray of shape (n_components,)
        Posterior means of the weights θ. They fall to 0 for components that are not needed. The
        priors determine the scales of θ, h and w only loosely: shares of the counts are those of
        ``transform(X).sum(axis=0) * components_.sum(axis=1)``.
    component_weights_std_ : ndarray of shape (n_components,)
        Posterior standard deviations of the weights.
    n_components_ : int
        Number of components: that of the parameter, or the one that ``"auto"`` has found. It is
        the largest number, of which ``n_effective_components_`` are in use.
    component_results_ : dict of ndarrays of shape (n_numbers,)
        Only with ``n_components="auto"``: the numbers that were tried (``n_components``), the
        ``lower_bound`` of a fit with each, and how many of its components explain more than one
        count (``n_effective_components``).
    n_effective_components_ : int
        Number of components with an expected count of more than 1.
    activations_ : ndarray of shape (n_samples, n_components)
        Activations of the rows that ``fit`` was given, as :meth:`transform` infers them, from which
        :meth:`recommend_for` predicts. Data in parts leave them with the parts, and ``partial_fit``
        removes them.
    reconstruction_err_ : float
        √(2 D), where D is the generalised Kullback-Leibler divergence between the observed cells of
        X and ``inverse_transform(transform(X))``, as :class:`sklearn.decomposition.NMF` defines it.
        ``fit`` computes it, and ``partial_fit`` removes it.
    activation_prior_, component_prior_, concentration_ : float
        The priors that were used, or that were learned.
    dispersion_ : float or None
        The dispersion that was used, or that was learned. 1 / ``dispersion_`` is what
        ``count_shapes_`` of mixtures is. As activations are more certain in the variational
        posterior than given the noise, a learned one is somewhat too small, the more so the fewer
        columns a component has.
    popularity_prior_ : float
        Only with ``popularity_prior``: the shape of the prior of the rates of columns that was
        used, or that was learned.
    popularities_ : ndarray of shape (n_features,)
        Only with ``popularity_prior``: 1 / E η_v, the prior mean of the entries of each column of
        components.
    lower_bound_ : float
        Evidence lower bound of the fitted model at T = 1, in nats, with all constants. In a stream,
        it is the estimate that the last batch gave for the parameters before their update, or the
        bound of a fit that was made at the last call.
    lower_bounds_ : ndarray of shape (n_passes,)
        The lower bound after each pass (in a stream, at each call). With ``batch_size`` all values
        but the last are estimates.
    temperatures_ : ndarray of shape (n_passes,)
        Temperature of each pass.
    annealing_ : Annealing
        The method that ran, with the value of every setting that was ``"auto"``.
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
        ``lower_bound`` that was reached, and whether the result was ``kept``. A data frame can be
        made of it.
    n_passes_ : int
        Number of passes over the data in all restarts and moves together, kept or not.
    n_features_in_ : int
        Number of features seen during ``fit``.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during ``fit``, where X has string column names.

    See Also
    --------
    sklearn.decomposition.NMF : The class that this one can replace.
    AnnealedLatentDirichletAllocation : Rows as mixtures of topics, given their sums.

    Notes
    -----
    A parameter that is ``"auto"`` is learned by empirical Bayes. Learning begins when the bound
    hardly rises any more, or after half of ``max_iter`` passes; each pass then also maximises the
    bound over the parameter, for the posterior that it has found. Where the parameter moves as it
    did in the pass before, it goes 1.8 times as far, unless the bound would fall. Each of these
    passes also finds the best scales of activations, weights and components, which counts do not
    determine, at once; not with ``dispersion``, ``popularity_prior`` or ``max_sweeps``. With
    ``batch_size`` and in streams, learning begins after 100 updates.

    Activations belong to rows. They start anew at every pass until the bound hardly rises any more,
    because this leads to better optima with fewer components. From then on they start from the
    result of the last pass, so that the bound can no longer fall. Where at least a quarter of the
    cells hold counts, of 3 on average, and there is no ``dispersion``, a rise of 40 times ``tol``
    is small enough, because starting anew takes most of the time there. In the search of such
    tables reheats begin with more noise, which falls in 3 passes, swaps divide another component,
    and are not tried where that promises less than 3% of what giving one up costs, there are no
    other starts, and a swap that has paid is not made again at once; three moves in vain end it.
    Moves explore until the bound rises by less than 20 times as much, and pause when
    it rises by less than 20 times what ends a fit; only the best goes on, after the last move.

    Where at least a quarter of the cells hold counts and none is missing, each pass that goes on,
    and the last one that starts anew if the bound hardly rises, is followed by 20 that compute no
    bound and learn no prior. They have momentum, which goes on after the next bound, and are taken
    back if the bound falls. ``tol`` is then compared with a sixth of
    the rise between two bounds. There are none of these passes over data in parts. If the product
    of rows, columns and components is at most 1,048,576, they are 12, ``tol`` is compared with a
    quarter of the rise, and each pass in which activations start anew is followed by 5 others of
    its kind, over data in parts too, or by 2 in moves over data in memory; limits for the rise
    between two bounds are multiplied by 6 or 3. ``max_iter`` and ``n_iter_`` count none of these
    passes, which ``dispersion``, ``popularity_prior`` and ``max_sweeps`` rule out.

    Single precision serves where it does not decide the result, if the product of rows, columns and
    components is above 65,536: in these passes but the last, unless priors are very sparse, and in
    sweeps of dense tables whose activations start anew. Fits to such tables with weights and with
    repeated rows, or as sparse and as dense arrays, agree to about five digits of the components.

    References
    ----------
    .. [1] Hoffman, Blei, Cook (2010). Bayesian nonparametric matrix factorization for recorded
       music. ICML.
    .. [2] Hoffman, Blei (2015). Structured stochastic variational inference. AISTATS, section 4.3.
    .. [3] Gouvert, Oberlin, Févotte (2018). Negative binomial matrix factorization for recommender
       systems. arXiv:1801.01708.
    .. [4] Gopalan, Hofman, Blei (2015). Scalable recommendation with hierarchical Poisson
       factorization. UAI.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal import AnnealedGammaProcessNMF
    >>> rng = np.random.default_rng(0)
    >>> parts = np.array([[8, 8, 0, 0, 1], [0, 0, 9, 5, 0]])
    >>> X = rng.poisson(rng.gamma(1.0, size=(200, 2)) @ parts)
    >>> nmf = AnnealedGammaProcessNMF(n_components=10, random_state=0).fit(X)
    >>> nmf.n_effective_components_
    2
    >>> nmf.transform(X).shape
    (200, 10)
    """

    _parameter_constraints: dict = {
        **BaseAnnealed._parameter_constraints,
        "n_components": NUMBER_OR_AUTO,
        **dict.fromkeys(_PRIORS, _PRIOR),
        "dispersion": [*_PRIOR, None],
        "popularity_prior": [*_PRIOR, None],
        "learning_decay": DECAY_OR_AUTO,
        "init_params": [StrOptions({"auto", "random", "random_from_data", "collapsed_gibbs"})],
        "components_init": ["array-like", None],
        "max_sweeps": [Interval(Integral, 1, None, closed="left"), None],
        "sweep_tol": [Interval(Real, 0.0, None, closed="left")],
    }

    _rates_after_fit = EQUAL_RATES
    _kernel_modules = ("gamma_process_nmf", "dense_counts", "count_noise", "counts", "gamma")
    _data_in_words = "{units} rows with {observations} counts of {columns} columns"
    _advice = (
        "the gamma distributions of some components have no positive finite parameters: X or the "
        "priors are too large or too small for floating-point numbers. Divide X by a constant, or "
        "give priors closer to 1."
    )
    _start_parameters = ("components_init",)
    _model_parameters = ("n_components", *_PRIORS, "dispersion", "popularity_prior")
    _attributes_of_fits = ("reconstruction_err_", "activations_", "_averaged")
    _only_with = {
        "popularity_prior": dict.fromkeys(("popularity_prior_", "popularities_"), ("auto", float))
    }

    def __init__(
        self,
        n_components=50,
        *,
        annealing="reheating",
        activation_prior="auto",
        component_prior="auto",
        concentration="auto",
        dispersion=None,
        popularity_prior=None,
        init_params="auto",
        components_init=None,
        max_sweeps=None,
        sweep_tol=1e-3,
        tol=1e-5,
        max_iter=100,
        n_init=1,
        restarts="full",
        effort="auto",
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
        self.annealing = annealing
        self.activation_prior = activation_prior
        self.component_prior = component_prior
        self.concentration = concentration
        self.dispersion = dispersion
        self.popularity_prior = popularity_prior
        self.init_params = init_params
        self.components_init = components_init
        self.max_sweeps = max_sweeps
        self.sweep_tol = sweep_tol
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.restarts = restarts
        self.effort = effort
        self.batch_size = batch_size
        self.learning_offset = learning_offset
        self.learning_decay = learning_decay
        self.total_samples = total_samples
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    # Methods that the base class calls

    def _validate_data(
        self, X: Any, *, reset: bool, ensure_min_samples: int = 1
    ) -> np.ndarray | csr_matrix:
        refuse_masked(X, "X", nan_is_missing=True)
        check_sparse(X)
        given = X
        X = validated_table(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype="numeric",
            ensure_all_finite="allow-nan",
            ensure_min_samples=1,
        )
        if not issparse(X):
            # Integers, half precision, long doubles, and floats of a foreign byte order.
            if X.dtype not in (np.float64, np.float32):
                single = X.dtype.kind == "f" and X.dtype.itemsize <= 4
                X = X.astype(np.float32 if single else np.float64)
            # NaN is passed over without a copy of X, which can be memory-mapped.
            extremes = np.array([[np.fmin.reduce(X, axis=None), np.fmax.reduce(X, axis=None)]])
            check_non_negative(np.nan_to_num(extremes), type(self).__name__)
            self._check_size(extremes[0, 1])
            return X
        X = checked_counts(X, given, type(self).__name__)
        if X.dtype.kind == "f" and np.isnan(X.data).any():
            raise ValueError(
                "X is a sparse matrix with NaN. Missing cells can be marked in dense arrays alone, "
                "because every cell that a sparse matrix leaves out is a count of zero. Give "
                "X.toarray(), or leave the rows with NaN out."
            )
        self._check_size(X.data.max(initial=0.0))
        return X

    def _check_size(self, largest: float) -> None:
        if largest > LARGEST_COUNT:
            raise ValueError(
                f"The largest number of X is {largest:g}, but {type(self).__name__} takes numbers "
                "up to 2**53: beyond, float64 does not tell a count from the next one. Divide X by "
                "a constant before fitting and predicting."
            )

    def _make_units(
        self, X: np.ndarray | csr_matrix, sample_weight: np.ndarray | None
    ) -> DenseCounts | SparseCounts:
        if issparse(X):
            rows: csr_matrix = X
            return SparseCounts(rows.data, rows.indices, rows.indptr, sample_weight)
        return DenseCounts(X, sample_weight, cell_patterns(X))

    def _settings(self, units: Units) -> Settings:
        settings = super()._settings(units)
        if self.dispersion is None:
            return settings
        # The bound of a large count with noise grows by its logarithm, and not by the count.
        cells = units.total_weight * self.n_features_in_
        mean = units.n_observations / max(cells, 1e-300)
        return settings._replace(stop=RiseOfBound(self.tol / (1.0 + mean)))

    def _check_training(self, units: DenseCounts | SparseCounts) -> None:
        if units.n_observations == 0:
            raise ValueError(
                "All counts of X (or their weights) are zero, so that there is nothing to learn "
                "components from."
            )
        if isinstance(units, DenseCounts):
            refuse_unobserved_columns(units)

    def _check_first_batch(self, units: DenseCounts | SparseCounts, model: GammaProcessNMF) -> None:
        self._check_training(units)

    def _make_model(
        self, X: np.ndarray | csr_matrix, units: DenseCounts | SparseCounts
    ) -> GammaProcessNMF:
        given = {name: getattr(self, name) for name in _STARTS}
        learns = tuple(name for name, value in given.items() if is_auto(value))
        starts: dict[str, Any] = {
            name: _STARTS[name] if name in learns else None if value is None else float(value)
            for name, value in given.items()
        }
        b = self.activation_prior
        if not is_auto(b) and b > _STRONGEST:
            raise ValueError(
                f"activation_prior={b:g} is too large: beyond {_STRONGEST:g} the lower bound loses "
                f"its digits, while all activations are 1 anyway. Give at most {_STRONGEST:g}."
            )
        # Rows of a stream can have come in another dtype than the last of them.
        counts = units.X if isinstance(units, DenseCounts) else units.counts
        return GammaProcessNMF(
            self._number,
            X.shape[1],
            **starts,
            learns=learns,
            init_params=self.init_params,
            max_sweeps=self.max_sweeps,
            sweep_tol=self.sweep_tol,
            dtype=np.float32 if counts.dtype == np.float32 else np.float64,
        )

    def _given_start(self, model: GammaProcessNMF) -> Given:
        shape, name = (model.n_components, model.n_columns), "components_init"
        components = given_in_range(self.components_init, shape, name)
        empty = np.flatnonzero(components.sum(axis=1) <= 0)
        if len(empty):
            raise ValueError(
                f"Row {empty[0]} of {name} has zeros alone, which no counts would ever be "
                "explained by. Give it a positive sum, or leave it out of n_components."
            )
        return {"components": components}

    def _fitted_attributes(self, ctx: Context) -> Attributes:
        model, shape, rate = ctx.model, ctx.q["weights_shape"], ctx.q["weights_rate"]
        of_columns: Attributes = {}
        if model.popularity is not None:
            of_columns["popularity_prior_"] = model.popularity.prior
            of_columns["popularities_"] = 1.0 / model.popularity.means
        return {
            **of_columns,
            **{f"{name}_": float(getattr(model, name)) for name in _PRIORS},
            "dispersion_": model.dispersion,
            "component_weights_": shape / rate,
            "component_weights_std_": np.sqrt(shape) / rate,
            "n_components_": model.n_components,
            "n_effective_components_": int((model.expected_counts(ctx.q, ctx.prior) > 1).sum()),
        }

    def _complete_reorder(self, order: np.ndarray) -> None:
        super()._complete_reorder(order)
        activations: np.ndarray | None = getattr(self, "activations_", None)
        if activations is not None:
            self.activations_ = activations[:, order]
        averaged: np.ndarray | None = getattr(self, "_averaged", None)
        if averaged is not None:
            self._averaged = averaged[order]

    def _complete_fit(
        self, ctx: Context, units: DenseCounts | SparseCounts | PartedUnits, given: Any
    ) -> None:
        if isinstance(units, PartedUnits):
            # The rows of data in parts stay with them.
            total = units.total(partial(self._divergence, ctx))
        else:
            # The generator of the context goes on with a stream.
            seed = int(deepcopy(ctx.rng).integers(2**31 - 1))
            averaged = ctx.model.averaged(units, ctx.q, ctx.prior, seed)
            if averaged is not None:
                self._averaged = averaged
            found = self._activations(ctx, units)
            total = self._divergence(ctx, units, found)
            if given.shape[0] > units.n_units:
                found = self._activations(ctx, self._make_units(given, None))
            self.activations_ = found.astype(ctx.model.dtype, copy=False)
        self.reconstruction_err_ = np.sqrt(2.0 * total)
