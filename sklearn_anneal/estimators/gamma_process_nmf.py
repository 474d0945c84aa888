"""The estimator of gamma-process non-negative matrix factorisation."""

from __future__ import annotations

from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix, issparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_non_negative

from ..data.units import DenseCounts, SparseCounts, cell_patterns
from ..families import deviance, log_poisson
from ..metrics import LARGEST_COUNT, floors_of_used, split_documents
from ..models._componentwise import Given
from ..models._count_cells import drawn_cells, imputed
from ..models._draws import drawn_counts
from ..models.gamma_process_nmf import GammaProcessNMF
from ..parallel.thread_limits import one_thread
from ..parallel.workers import Workers
from ._attributes import Attributes, read_only
from ._base import BaseAnnealed
from ._counts import checked_counts
from ._draws import check_rounds, stacked, wants_draws
from ._given_starts import given_in_range
from ._number import NUMBER_OR_AUTO
from ._part_predictions import NothingToScore, by_parts
from ._priors import is_auto
from ._streaming import WORTH_THREADS
from ._tables import in_frames, validated_table
from ._validation import (
    check_activations,
    check_n_samples,
    check_sparse,
    explains,
    finite,
    refuse_masked,
    refuse_unobserved_columns,
)
from ._words import listed_words

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..annealing import Annealing, Context
    from ..data.units import Units
    from ..inference.progress import Trace
    from ..search.search import Found
    from ._state import Inference

_PRIOR = [Interval(Real, 0.0, None, closed="neither"), StrOptions({"auto"})]
_PRIORS = ("activation_prior", "component_prior", "concentration")
# Initial values of learned priors.
_STARTS = {"activation_prior": 0.1, "component_prior": 0.1, "concentration": 1.0}
# The largest shape of the prior of activations. The lower bound adds up as many numbers of about
# this size as there are activations.
_STRONGEST = 1e8
# Entries of X that are compared with their expectations at a time.
_ENTRIES = 1 << 15
# Counts divided by rates that are at least as large as this do not overflow.
_SMALLEST_RATE = 1e-280
# In rows whose expected counts have a larger sum than this, cells of small rates are added up
# apart from the others.
_LARGE_TOTAL = 1e5
_OVERFLOW = (
    "X has numbers so large that their sums overflow. Check their units, or divide X by a "
    "constant before fitting and predicting."
)


# Plain kernels predict for rows with at most so many products of a row, a column and a component.
# Up to here they take hardly longer than compiled ones. A sparse row has as many columns as the
# longest one, and each of them takes so many times as long.
_MOST_PLAIN, _COST_OF_SPARSE = 2**15, 4


class AnnealedGammaProcessNMF(
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    BaseAnnealed[np.ndarray | csr_matrix, DenseCounts | SparseCounts, GammaProcessNMF],
):
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
    components are used. A zero is a count of zero, in sparse matrices too. NaN marks missing cells
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
    components_init : array-like of shape (n_components, n_features) or None, default=None
        ``components_`` at the start, for example those of another fit: expected counts of the
        columns, at least 0, with a positive sum in every row. ``annealing="none"`` goes to the
        optimum next to this start. Every restart of ``n_init`` begins there too, and differs in
        the noise of annealing. A high temperature forgets the start, and reheats may leave it. A
        warm start, and later batches of a stream, go on from the fitted parameters instead. None:
        ``init_params`` decides.
    max_sweeps : int or None, default=None
        Largest number of times that the activations of a row are updated in a pass. None: 40 in
        passes of ``fit`` in which rows start anew, 1 in passes that go on from the last one, and
        100 in predictions.
    sweep_tol : float, default=1e-3
        The updates of a row end after one that has changed its shape parameters by less than this
        on average.
    tol : float, default=1e-5
        The fit has converged when one pass raises the lower bound by less than this, in nats per
        unit of the sum of X. With 1e-6 the bounds of real and drawn counts were higher by at most
        0.0007 nats per cell, their held-out scores differed by at most 0.0004, and many fits needed
        more passes than ``max_iter`` permits.
    max_iter : int, default=100
        Largest number of passes at T = 1, which follow the annealing schedule. With 0 the fit stops
        at the end of the schedule, or at its start where there is no schedule. If the best fit of a
        search has not converged, up to five times as many follow.
    n_init : int, default=1
        Number of restarts. The one with the highest lower bound is kept.
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
        already, and 0 with other methods and in minibatches. More effort raises the bound further.
        ``annealing="none"``, which is plain inference, and ``"structured"`` do not search, and
        refuse a number above 0.
    batch_size : int or None, default=None
        None: every update uses all rows. An integer: stochastic variational inference runs with
        that many rows per update.
    learning_offset : float, default=1.0
        The offset τ in the step size ρ_t = (τ + t)^(−κ) of damped updates, which move only a part
        of the way to their target. A larger τ makes the first steps smaller.
    learning_decay : float, default=0.6
        The exponent κ in the step size ρ_t = (τ + t)^(−κ) of damped updates. Convergence needs a
        value in (0.5, 1]. With a larger κ the parameters settle sooner, and each of the later
        batches changes them less.
    total_samples : float or None, default=None
        Number of rows in the whole stream that ``partial_fit`` will see. The annealing schedule
        runs within the first tenth of them. With None the size is taken to be the number of rows so
        far, and the stream is not annealed. If rows have weights, it is the sum of these.
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
        of components that are not in use are nearly 0.
    component_weights_ : ndarray of shape (n_components,)
        Posterior means of the weights θ. They fall to 0 for components that are not needed. The
        priors determine the scales of θ, h and w only loosely: shares of the counts are those of
        ``transform(X).sum(axis=0) * components_.sum(axis=1)``.
    component_weights_std_ : ndarray of shape (n_components,)
        Posterior standard deviations of the weights.
    n_components_ : int
        Number of components: that of the parameter, or the one that ``"auto"`` has found.
    component_results_ : dict of ndarrays of shape (n_numbers,)
        Only with ``n_components="auto"``: the numbers that were tried (``n_components``), the
        ``lower_bound`` of a fit with each, and how many of its components explain more than one
        count (``n_effective_components``).
    n_effective_components_ : int
        Number of components with an expected count of more than 1.
    reconstruction_err_ : float
        √(2 D), where D is the generalised Kullback-Leibler divergence between the observed cells of
        X and ``inverse_transform(transform(X))``, as :class:`sklearn.decomposition.NMF` defines it.
        ``fit`` computes it, and ``partial_fit`` removes it.
    activation_prior_, component_prior_, concentration_ : float
        The priors that were used, or that were learned.
    lower_bound_ : float
        Evidence lower bound of the fitted model at T = 1, in nats, with all constants. In a stream,
        it is the estimate that the last batch gave for the parameters before their update.
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
    bound over the parameter, for the posterior that it has found. With ``batch_size`` and in
    streams, learning begins after 100 updates.

    Activations belong to rows. They start anew at every pass until the bound no longer rises,
    because this leads to better optima with fewer components. From then on they start from the
    result of the last pass, so that the bound can no longer fall.

    References
    ----------
    .. [1] Hoffman, Blei, Cook (2010). Bayesian nonparametric matrix factorization for recorded
       music. ICML.
    .. [2] Hoffman, Blei (2015). Structured stochastic variational inference. AISTATS, section 4.3.

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
        "init_params": [StrOptions({"auto", "random", "random_from_data", "collapsed_gibbs"})],
        "components_init": ["array-like", None],
        "max_sweeps": [Interval(Integral, 1, None, closed="left"), None],
        "sweep_tol": [Interval(Real, 0.0, None, closed="left")],
    }

    _kernel_modules = ("gamma_process_nmf", "counts", "gamma")
    _data_in_words = "{units} rows with {observations} counts of {columns} columns"
    _advice = (
        "the gamma distributions of some components have no positive finite parameters: X or the "
        "priors are too large or too small for floating-point numbers. Divide X by a constant, or "
        "give priors closer to 1."
    )
    _start_parameters = ("components_init",)
    _model_parameters = ("n_components", *_PRIORS)

    def __init__(
        self,
        n_components=50,
        *,
        annealing="reheating",
        activation_prior="auto",
        component_prior="auto",
        concentration="auto",
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
        learning_decay=0.6,
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
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return self._quiet_context().model.n_components

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
        priors = {name: getattr(self, name) for name in _PRIORS}
        learns = tuple(name for name, value in priors.items() if is_auto(value))
        b = self.activation_prior
        if not is_auto(b) and b > _STRONGEST:
            raise ValueError(
                f"activation_prior={b:g} is too large: beyond {_STRONGEST:g} the lower bound loses "
                f"its digits, while all activations are 1 anyway. Give at most {_STRONGEST:g}."
            )
        return GammaProcessNMF(
            self._number,
            X.shape[1],
            **{name: _STARTS[name] if name in learns else float(priors[name]) for name in priors},
            learns=learns,
            init_params=self.init_params,
            max_sweeps=self.max_sweeps,
            sweep_tol=self.sweep_tol,
            dtype=np.float32 if X.dtype == np.float32 else np.float64,
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
        return {
            **{f"{name}_": float(getattr(model, name)) for name in _PRIORS},
            "component_weights_": shape / rate,
            "component_weights_std_": np.sqrt(shape) / rate,
            "n_components_": model.n_components,
            "n_effective_components_": int((model.expected_counts(ctx.q, ctx.prior) > 1).sum()),
        }

    def _keep(
        self,
        inference: Inference,
        method: Annealing,
        trace: Trace,
        found: Found | None = None,
    ) -> None:
        super()._keep(inference, method, trace, found)
        # After a batch of a stream, the error of an earlier fit would belong to other parameters.
        self.__dict__.pop("reconstruction_err_", None)

    def _complete_fit(self, ctx: Context, units: Units) -> None:
        self.reconstruction_err_ = np.sqrt(2.0 * units.total(partial(self._divergence, ctx)))

    # Public methods

    @property
    def components_(self) -> np.ndarray:
        """E θ_k E w_kv, of shape (n_components, n_features)."""
        ctx = self._context()
        return read_only(ctx.model.means(ctx.q).astype(ctx.model.dtype, copy=False))

    def top_words(self, feature_names=None, n=10):
        """The columns with the largest expected counts in each component.

        Parameters
        ----------
        feature_names : array-like of shape (n_features,) or None, default=None
            Names of the columns, such as words, genes or pixels. None: ``feature_names_in_`` if X
            had names of columns, else the indices of the columns.
        n : int, default=10
            Largest number of columns per component.

        Returns
        -------
        words : list of ndarray of shape (n,) or shorter
            One array per component, the largest expected count (``components_``) first. The arrays
            of components that are not in use are empty, and a warning says how many these are. In
            use is a component with an expected count in the training data above 1, or above a
            thousandth of the mean where scales are tiny.
        """
        ctx = self._context()
        floors = floors_of_used(ctx.model.expected_counts(ctx.q, ctx.prior), 0.0)
        means = ctx.model.means(ctx.q)
        return listed_words(self, means, floors, feature_names, n, "components are not in use")

    @by_parts
    @explains("Prediction")
    def transform(self, X):
        """Expected activations of rows, inferred at the fitted components.

        They are 0 for components that are not in use, so that ``transform(X) @ components_`` has
        the expected counts of the components in use. The data do not determine the activations of
        the others, whose posterior mean is therefore that of the prior, 1. A component is in use if
        its expected count in the training data is above 1, as for ``n_effective_components_``, or
        if the sum of its row of ``components_`` is at least 5 percent of the mean of all such sums.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or data in parts
            Counts. NaN marks missing cells of a dense array.

        Returns
        -------
        activations : ndarray of shape (n_samples, n_components)
            E h, or 0. The dtype is that of the data to which the model was fitted.
        """
        ctx, units = self._rows(X)
        found = self._activations(ctx, units, _are_few(ctx, units))
        return found.astype(ctx.model.dtype, copy=False)

    @in_frames
    @by_parts
    @explains("Prediction")
    def impute(self, X, return_std=False, *, n_draws=None, n_rounds=0, random_state=None):
        """Fill missing cells with their expected counts, given the observed cells of their rows.

        With ``n_draws`` they are filled with drawn counts instead, in several tables: statistics of
        each, pooled by Rubin's rules, have standard errors that know what is missing. Cells are
        taken to be missing at random: whether a cell is missing may depend on the observed cells of
        its row, but not on its own value.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or data in parts
            Counts, in which NaN marks missing cells. A sparse matrix has none.
        return_std : bool, default=False
            Whether to return standard deviations too. Only for means.
        n_draws : int, default=None
            The number of tables to draw (multiple imputation). None: one table of means.
        n_rounds : int, default=0
            Only with ``n_draws``, and for the table of the fit: rounds in which the components and
            their weights are drawn again from their posterior given the division of the observed
            counts among components, and then the activations (Gibbs sampling). The priors stay as
            they are. 0 is for other rows.
        random_state : int, RandomState instance or None, default=None
            Determines the draws. None: the ``random_state`` of the estimator.

        Returns
        -------
        X_imputed : ndarray or frame of shape (n_samples, n_features)
            The counts, with the expected count of each missing cell. Observed cells are unchanged.
            The dtype is that of X if X has floating-point numbers, else float64. After
            ``set_output(transform="pandas")``, or "polars", it is a frame with the columns, the
            index and the dtypes of X, where they can hold the means.
            With ``n_draws``, it is an ndarray of shape (n_draws, n_samples, n_features), or a list
            of frames. For each table, the components and their weights are drawn from the
            variational posterior once; given them, the activations of each row are drawn given its
            observed counts, by twenty Gibbs sweeps from their posterior means, and then Poisson
            counts.
        std : ndarray or frame of shape (n_samples, n_features)
            Standard deviations of the predictive distribution of a count, with activations and
            components that are independent as in the variational posterior; 0 for observed cells.
            Only returned if ``return_std`` is True.

        Raises
        ------
        ValueError
            If X is sparse, or if draws are asked for and X has fractions, which no distribution of
            counts could have given.
        """
        draws = wants_draws(n_draws, n_rounds, return_std)
        ctx, units = self._rows(X)
        if isinstance(units, SparseCounts):
            raise ValueError(
                "impute fills missing cells, but a sparse matrix has none: every cell that it "
                "leaves out is a count of zero. Give a dense array with NaN in missing cells."
            )
        holes = np.isnan(units.X)
        if draws and (np.floor(units.X[~holes]) != units.X[~holes]).any():
            raise ValueError(
                "n_draws is for counts, which are drawn from Poisson distributions, but X has "
                "fractions. Round them, or give n_draws=None for the means."
            )
        # Without rounds, rows that lack nothing have no use for draws.
        rows = np.arange(len(holes)) if n_rounds > 0 else np.flatnonzero(holes.any(axis=1))
        some, cells = units.take(rows), np.zeros(holes.shape)
        activations = self._infer(ctx, some, _are_few(ctx, some)) if len(rows) else cells[rows]

        def filled(found: np.ndarray) -> np.ndarray:
            cells[rows] = finite(found, _OVERFLOW)
            return np.where(holes, cells, units.X).astype(units.X.dtype)

        if draws:
            check_rounds(ctx.summary.weight, len(holes), n_rounds)

            def table(rng: np.random.Generator) -> np.ndarray:
                own = ctx.model, ctx.q, ctx.prior, some, activations, n_rounds
                return filled(drawn_cells(*own, rng)) if len(rows) else units.X

            return stacked(self, table, n_draws, random_state)
        if len(rows) == 0:
            return (units.X, cells) if return_std else units.X
        means, std = imputed(ctx.model, ctx.q, some, activations)
        deviations = np.zeros(holes.shape)
        deviations[rows] = np.where(holes[rows], std, 0.0)
        return (filled(means), deviations) if return_std else filled(means)

    def inverse_transform(self, X):
        """Expected counts of rows whose activations are given.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Activations, as :meth:`transform` returns them.

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
            The product of the activations and ``components_``.
        """
        ctx = self._context()
        X = check_activations(X, ctx.model.n_components)
        return (X @ self.components_).astype(X.dtype, copy=False)

    @explains("Prediction")
    def score(self, X, y=None, sample_weight=None):
        """Log-likelihood of one half of each row of counts given the other, per cell.

        Each row is split in two by a rule that depends only on its own counts, so that the split is
        the same for all models (:func:`sklearn_anneal.metrics.split_documents`): every unit of a
        count goes to one half or the other with probability 1/2. The activations are inferred from
        one half, and the other is predicted by Poisson distributions with the expected rates. In
        rows with fractional numbers whole cells go to one half or the other, which is no more than
        a rule by which candidates can be compared.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or data in parts
            Counts. NaN marks missing cells of a dense array, which do not count.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. With data in parts, one array for each part.

        Returns
        -------
        log_likelihood : float
            The log-likelihood in nats per cell; higher is better.
        """
        return self._score(X, y, sample_weight)

    def _scored(
        self, X: ArrayLike, y: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> tuple[float, float]:
        ctx = self._context()
        X = self._validate_data(X, reset=False)
        X, weights = self._present(X, self._check_weights(sample_weight, X))
        weights = np.ones(X.shape[0]) if weights is None else weights
        missing = None if issparse(X) else np.isnan(X)
        counts = csr_matrix(X if missing is None else np.where(missing, 0, X))
        observed: Any
        observed, held_out = split_documents(counts)
        if missing is not None:
            observed = observed.toarray()
            observed[missing] = np.nan
        units = self._make_units(observed, None)
        activations = self._infer(ctx, units, _are_few(ctx, units), exposure=0.5)
        components = 0.5 * ctx.model.means(ctx.q)
        rates = _rates(held_out, activations, components)
        terms = log_poisson(held_out.data.astype(np.float64), rates)
        zeros = _rates_of_zeros(held_out, rates, activations, components, missing)
        each = _sums_of_rows(held_out, terms) - zeros
        cells = np.full(X.shape[0], float(X.shape[1]))
        if missing is not None:
            cells -= missing.sum(axis=1)
        total = float(weights @ cells)
        if total == 0:
            raise NothingToScore(
                "X has no observed cell in rows of positive weight to be predicted."
            )
        return float(finite(weights @ each, _OVERFLOW)) / total, total

    def sample(self, n_samples=1):
        """Draw rows and their activations, at the posterior means of the components.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.

        Returns
        -------
        X : ndarray of int64, shape (n_samples, n_features)
            The rows.
        activations : ndarray of shape (n_samples, n_components)
            Their activations, drawn from the prior.
        """
        self._context()
        check_n_samples(n_samples)
        rng = check_random_state(self.random_state)
        b = self.activation_prior_
        activations = rng.gamma(b, 1.0 / b, size=(n_samples, len(self.component_weights_)))
        return drawn_counts(rng, activations @ self.components_), activations

    def _rows(self, X: ArrayLike) -> tuple[Context, DenseCounts | SparseCounts]:
        ctx = self._context()
        return ctx, self._make_units(self._validate_data(X, reset=False), None)

    def _activations(
        self, ctx: Context, units: DenseCounts | SparseCounts, plain: bool = False
    ) -> np.ndarray:
        """E h of rows for the components in use, and 0 for the others."""
        return np.where(ctx.model.in_use(ctx.q, ctx.prior), self._infer(ctx, units, plain), 0.0)

    def _infer(
        self,
        ctx: Context,
        units: DenseCounts | SparseCounts,
        plain: bool = False,
        exposure: float = 1.0,
    ) -> np.ndarray:
        """E h of rows, of shape (n_rows, n_components), by plain kernels or compiled ones."""
        if plain:
            return finite(ctx.model.means_of_few(units, ctx.q, exposure), _OVERFLOW)
        self._load_kernels()
        worth = ctx.model.operations(units) >= WORTH_THREADS[True]
        with one_thread(), Workers(self.n_jobs if worth else 1) as workers:
            return finite(ctx.model.infer(units, ctx.q, workers, exposure)[0], _OVERFLOW)

    def _divergence(self, ctx: Context, units: DenseCounts | SparseCounts) -> float:
        """The generalised Kullback-Leibler divergence between rows and their expectations."""
        activations, components = self._activations(ctx, units), ctx.model.means(ctx.q)
        total = 0.0
        for index in units.chunks():
            chunk: Any = units.take(index)
            missing = None
            if isinstance(units, SparseCounts):
                shape = (chunk.n_units, components.shape[1])
                counts: Any = csr_array((chunk.counts, chunk.words, chunk.indptr), shape=shape)
            else:
                missing = np.isnan(chunk.X)
                counts = csr_array(np.where(missing, 0, chunk.X))
            rates = _rates(counts, activations[index], components)
            each = _sums_of_rows(counts, deviance(rates, counts.data - rates))
            each += _rates_of_zeros(counts, rates, activations[index], components, missing)
            total += float(each.sum() if chunk.weights is None else chunk.weights @ each)
        return max(total, 0.0)


def _are_few(ctx: Context, units: DenseCounts | SparseCounts) -> bool:
    """Whether plain kernels predict for rows, so that none has to be compiled."""
    if isinstance(units, SparseCounts):
        n_columns = _COST_OF_SPARSE * int(np.diff(units.indptr).max(initial=0))
    else:
        n_columns = ctx.model.n_columns
    return units.n_units * n_columns * ctx.model.n_components <= _MOST_PLAIN


def _sums_of_rows(counts: Any, terms: np.ndarray) -> np.ndarray:
    """The sum over each row of one term per entry that a CSR matrix stores."""
    n = counts.shape[0]
    rows = np.repeat(np.arange(n), np.diff(counts.indptr))
    # Without any entry, the result would have integers.
    return np.bincount(rows, terms, n).astype(np.float64, copy=False)


def _rates(counts: Any, activations: np.ndarray, components: np.ndarray) -> np.ndarray:
    """Σ_k h_nk w_kv of the entries that a CSR matrix stores, a part of them at a time."""
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    by_column = np.ascontiguousarray(components.T)
    result = np.empty(len(rows))
    for start in range(0, len(rows), _ENTRIES):
        part = slice(start, start + _ENTRIES)
        left, right = activations[rows[part]], by_column[counts.indices[part]]
        result[part] = np.einsum("ik,ik->i", left, right)
    return np.maximum(result, _SMALLEST_RATE)


def _rates_of_zeros(
    counts: Any,
    rates: np.ndarray,
    activations: np.ndarray,
    components: np.ndarray,
    missing: np.ndarray | None,
) -> np.ndarray:
    """The sum of Σ_k h_nk w_kv over the observed cells of each row that a CSR matrix leaves out.

    ``rates`` are those of the cells that it stores.
    """
    total = _total_rates(activations, components, missing)
    result = np.maximum(total - _sums_of_rows(counts, rates), 0.0)
    # The difference of two huge sums would lose the rates of the few cells without counts.
    large = np.flatnonzero(total > _LARGE_TOTAL)
    size = max(_ENTRIES // components.shape[1], 1)
    for start in range(0, len(large), size):
        rows = large[start : start + size]
        left_out = np.ones((len(rows), components.shape[1]))
        stored = counts[rows]
        left_out[np.repeat(np.arange(len(rows)), np.diff(stored.indptr)), stored.indices] = 0.0
        if missing is not None:
            left_out[missing[rows]] = 0.0
        result[rows] = ((activations[rows] @ components) * left_out).sum(axis=1)
    return result


def _total_rates(
    activations: np.ndarray, components: np.ndarray, missing: np.ndarray | None
) -> np.ndarray:
    """Σ_v Σ_k h_nk w_kv over the observed cells of each row."""
    if missing is None or not missing.any():
        return activations @ components.sum(axis=1)
    return (((~missing).astype(np.float64) @ components.T) * activations).sum(axis=1)
