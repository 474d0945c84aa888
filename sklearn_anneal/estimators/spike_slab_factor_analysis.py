"""The estimator of spike-and-slab factor analysis."""

from __future__ import annotations

from copy import copy, deepcopy
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if

from ..annealing import Annealing, Context
from ..data.units import Rows, Units, cell_patterns
from ..inference.callbacks import FitMonitor
from ..inference.checkpoint import Checkpoint
from ..inference.gradient import OPTIMIZERS
from ..inference.progress import Progress, Trace
from ..models._componentwise import Given
from ..models._factor_cells import Cells, drawn_cells, imputed, log_predictive
from ..models._gaussian_factors import always_on
from ..models.spike_slab_factor_analysis import SpikeSlabFactorAnalysis
from ..models.spike_slab_gradient import (
    SpikeSlabByGradients,
    WholeRows,
    coordinate,
    without_rows,
)
from ..search.search import Found
from ._attributes import Attributes
from ._base import BaseAnnealed
from ._conditionals import given_row
from ._draws import check_rounds, stacked, wants_draws, without_names
from ._fitting import Data, Outcome
from ._given_starts import given_array
from ._interface import DECAY_OR_AUTO, has_unit_temperatures
from ._kinds_of_factors import compared, n_explained
from ._part_predictions import by_parts
from ._priors import check_first_rows, checked_prior, is_auto
from ._row_predictions import ScoresRows
from ._state import Inference
from ._tables import in_frames, validated_table
from ._validation import (
    OVERFLOW,
    check_activations,
    check_n_samples,
    explains,
    finite,
    refuse_masked,
    refuse_unobserved_columns,
)

_Model = SpikeSlabFactorAnalysis | SpikeSlabByGradients

_VARIANCE = [Interval(Real, 0.0, None, closed="neither"), "array-like"]


class AnnealedSpikeSlabFactorAnalysis(ScoresRows[np.ndarray, Rows, _Model]):
    """Factor analysis with factors that are mostly switched off, by annealed variational inference.

    Every row is the mean plus a few of K loadings, each with a weight of its own, plus noise:
    x = m + Σ_k z_k s_k w_k + ε. Factors are on or off, z_k ∈ {0, 1} with the probabilities π_k;
    those that are on have the weights s_k ~ N(0, 1), and every column has its own noise,
    ε_d ~ N(0, ψ_d). Loadings have the prior w_kd ~ N(0, ψ_d v_k) (Altosaar et al. [1]_, section 4).
    Because factors are not Gaussian, the data determine the loadings up to their order and signs,
    while those of :class:`sklearn.decomposition.FactorAnalysis` can be rotated at will.

    The posterior of the loadings of a column is one Gaussian over all factors; z_k and s_k of a row
    have a common posterior, the spike and slab of Titsias and Lázaro-Gredilla [2]_. Cells of X that
    are NaN are missing: they are left out, and the lower bound is that of the others.

    Read more in the :ref:`user guide <spike-and-slab>`.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of factors K; None: as many as X has distinct rows or columns, whichever are fewer,
        and as many as columns in streams, whose rows are not known. There can be more factors than
        columns. Those that the data do not need are off in all rows, or lose their loadings.
    annealing : str or Annealing, default="reheating"
        How the fit avoids the local optimum next to its start: ``"none"``, ``"reheating"``,
        ``"deterministic"``, ``"stochastic"``, ``"tempering"``, ``"local_tempering"``,
        ``"svi_plus"``, ``"structured"``, ``"proximity"``, or an instance from
        :mod:`sklearn_anneal.annealing`. A name selects the method with the settings recommended for
        this model. ``"reheating"`` takes more passes than the others, and had the best bounds on
        most of the data that were tried, and the best held-out scores on images of digits.
    noise_variance : float, array-like of shape (n_features,) or "auto", default="auto"
        The variances ψ of the noise, one number or one per column. ``"auto"`` learns one per column
        by empirical Bayes at T = 1, at least 1e-4 times the variance of the column.
    loading_variance : float, array-like of shape (n_components,), "learned" or "auto", \
            default="auto"
        The prior variances v of the loadings in units of ψ, one number or one per factor.
        ``"learned"`` learns one per factor by empirical Bayes, which raises the bound, mostly the
        scores of held-out rows too, and by nats where there is little noise. Weak factors are
        shrunk by it, and where columns are nearly constant or nearly discrete, as pixels are, the
        noise of some can go to its lower limit, so that outliers have low scores. Where cells are
        missing, ``solver="coordinate"`` lets loadings explain the mean variance of a column and no
        more, because outliers would be filled in with huge numbers. ``"auto"`` is
        ``"learned"``, or 1 for Gaussian factors, which then fill in missing cells with smaller
        errors.
    activation_prior : float, array-like of shape (n_components,), "learned" or "auto", \
            default="auto"
        The prior probability π that a factor is on, one number or one per factor, between 0 and 1.
        ``"learned"`` learns one per factor by empirical Bayes. With 1, for all factors, they are
        Gaussian, as in :class:`sklearn.decomposition.FactorAnalysis`: the model for tables whose
        factors are on in all rows, such as pictures, whose missing cells it fills in with smaller
        errors and in less time than spikes and slabs. It needs ``solver="coordinate"``. ``"auto"``
        is ``"learned"``, or 1 where cells of X are missing and Gaussian factors predict
        observed cells that are held out better (``held_out_scores_``). Streams, warm starts,
        ``solver="gradient"``, and starts at ``components_init`` are not compared, and learn.
    solver : {"coordinate", "gradient"}, default="coordinate"
        ``"coordinate"`` updates one distribution after the other to its optimum, which is faster
        and works with every ``annealing``. ``"gradient"`` moves all parameters at once along the
        gradient of the lower bound, as in [1]_, with independent posteriors of all loadings; it
        works with ``annealing="none"``, ``"deterministic"``, ``"tempering"``, ``"svi_plus"`` and
        ``"proximity"``, and needs hundreds of passes.
    optimizer : {"adam", "rmsprop", "sgd"}, default="rmsprop"
        The rule that turns gradients into steps; not used by ``"coordinate"``, like the next two.
    learning_rate_init : float, default=0.05
        Size of the first step, positive.
    learning_rate_decay : float, default=0.0
        δ. Step t has the size ``learning_rate_init`` / (1 + δ (t − 1)).
    components_init : array-like of shape (n_components, n_features) or None, default=None
        ``components_`` at the start, for example those of another fit. ``annealing="none"`` goes to
        the optimum next to this start. Every restart of ``n_init`` begins there too, and differs in
        the noise of annealing. A high temperature forgets the start, and the moves of ``effort``
        may leave it. A warm start, and later batches of a stream, go on from the fitted parameters
        instead. None: loadings are drawn from their prior, or with ``activation_prior=1`` begin at
        principal components, which rounds of EM refine.
    max_sweeps : int or None, default=None
        Largest number of times that the activations of a row are updated in a pass. None: 5 in
        passes of ``fit`` in which rows start anew, and 100 in all other cases. Predictions begin
        with up to 5 updates at each of eight temperatures from 200 on, and without them, and the
        higher bound of a row decides.
    sweep_tol : float, default=1e-3
        The updates of a row end after a round that has changed no probability, and no factor, by
        more than this.
    tol : float, default=1e-4
        The fit has converged when one pass raises the lower bound by less than this, in nats per
        row. A smaller one makes many more passes, which hardly raise the bound.
    max_iter : int, default=300
        Largest number of passes at T = 1, which follow the annealing schedule. With 0 the fit stops
        at the end of the schedule, or at its start where there is no schedule. If the best fit of a
        search has not converged, up to five times as many follow. The bound of factors rises
        slowly, so that many fits do not converge in 100 passes.
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
        the passes that led to the first one (at least 48, or 500,000 divided by the number of rows
        if that is less). Refits of two or three factors to what the others leave, merges of factors
        with the same loadings, swaps, in which one factor is given up and another one is sought in
        the residuals, short reheats with noise, and other starts take turns. With
        ``solver="gradient"`` there are reheats alone. The result of a move is kept only if its
        lower bound is higher, and a move is given up after a few passes if a higher bound is out of
        reach. The search ends early when every move has failed three times in a row. ``"auto"``: 4
        if ``annealing`` is ``"reheating"``, and 0 with other methods and in minibatches. More
        effort raises the bound further. ``annealing="none"``, which is plain inference, and
        ``"structured"`` do not search, and refuse a number above 0.
    batch_size : int or None, default=None
        None: every update uses all rows. An integer: stochastic variational inference runs with
        that many rows per update.
    learning_offset : float, default=1.0
        The offset τ in the step size ρ_t = (τ + t)^(−κ) of damped updates, which move only a part
        of the way to their target. A larger τ makes the first steps smaller.
    learning_decay : float or "auto", default="auto"
        The exponent κ in the step size ρ_t = (τ + t)^(−κ) of damped updates. Convergence needs a
        value in (0.5, 1]. With a larger κ the parameters settle sooner, and each of the later
        batches changes them less. ``"auto"`` is 0.8 in updates of a stream that follow a fit, which
        has settled already, and 0.6 in others.
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
        Posterior means of the loadings w, in the units of X.
    noise_variance_ : ndarray of shape (n_features,)
        The variances ψ of the noise that were used, or that were learned.
    mean_ : ndarray of shape (n_features,)
        The means m of the observed cells of each column, which are subtracted from all rows. In a
        stream they are those of the first batch.
    activation_probabilities_ : ndarray of shape (n_components,)
        Prior probabilities π of the activations that were used, or that were learned: the share of
        the rows in which a factor is on.
    loading_variance_ : ndarray of shape (n_components,)
        The prior variances v of the loadings that were used, or that were learned.
    explained_variance_ : ndarray of shape (n_components,)
        The variance π_k Σ_d w_kd² that each factor adds to the columns together.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        The same as a share of the variance of the model, the trace of :meth:`get_covariance`.
    held_out_scores_ : dict
        What ``activation_prior="auto"`` has decided by, where cells are missing: the errors of
        held-out cells in standard deviations of the columns (``learned_error``,
        ``gaussian_error``), their mean log densities in nats (``learned_log_density``,
        ``gaussian_log_density``), and how many standard errors Gaussian factors are ahead
        (``advantage``). Above 2, factors are Gaussian, and ``activation_probabilities_`` are 1.
        Scores of a kind whose short fit has failed are NaN, and the advantage is then infinite. Not
        set where nothing was compared.
    n_effective_components_ : int
        Number of factors that are on in more than one row, as far as is expected, and whose
        loadings are longer than their uncertainty.
    lower_bound_ : float
        Evidence lower bound of the fitted model at T = 1, in nats, with all constants. In a stream,
        it is the estimate that the last batch gave for the parameters before their update.
    lower_bounds_ : ndarray of shape (n_passes,)
        The lower bound after each pass (in a stream, at each call). With ``batch_size`` all values
        but the last are estimates.
    temperatures_ : ndarray of shape (n_passes,)
        Temperature of each pass. For local tempering, the mean over rows.
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
    sklearn.decomposition.FactorAnalysis : Gaussian factors, which can be rotated at will.
    sklearn.decomposition.SparsePCA : Sparse loadings without noise or probabilities.
    AnnealedFactorialMixture : Factors that are on or off, without a weight.

    Notes
    -----
    A parameter that is ``"auto"`` or ``"learned"`` is learned by empirical Bayes. Learning begins
    when the bound hardly rises any more, or after half of ``max_iter`` passes; each pass then also
    maximises the bound over the parameter, for the posterior that it has found. Until then the
    noise has 0.4 times the variance of its column, loadings are expected to explain the rest, and
    the activation prior is 1/2. With ``batch_size`` learning begins after 100 updates, and in
    streams after ten and a hundred rows. If all rows are equal nothing is learned. With
    ``solver="coordinate"``, a pass that learns also multiplies each factor, and divides its
    loadings, by the number for which the bound is highest [3]_: updates of factors and of loadings
    in turn approach it slowly.

    With ``activation_prior=1`` the posterior of the factors of a row is one Gaussian over all of
    them. Learning begins with the first pass, which also rotates the factors so that the bound is
    highest [4]_, unless values of ``loading_variance`` are given that differ. The loadings can be
    rotated as those of Gaussian factors always can, and ``inclusion_probabilities`` are 1. There is
    one optimum as a rule, and no sweep: the search has no moves, whatever ``effort`` is, ``n_init``
    finds the same fit again, and ``max_sweeps`` and ``sweep_tol`` are not read.

    The bound is the probability of the observed cells, and can prefer factors that predict missing
    ones worse. With ``activation_prior="auto"``, a tenth of the observed cells is therefore held
    out of short fits of both kinds if cells of X are missing. Sparse factors at first start at the
    Gaussian ones, rotated until they are as independent as they can be [5]_, and make six passes.
    If Gaussian factors are then ahead by 3.5 standard errors, in up to three tenths, they are
    taken. Otherwise sparse factors start as they do in a fit, and up to two further tenths, or five
    if Gaussian factors are ahead, are held out while the difference is below three standard errors;
    of more than 2,000 rows, as many are drawn, in proportion to their weights. Fewer than 100
    held-out cells decide nothing. If one of the short fits fails, the other kind is taken, with a
    warning. The fit that follows is the same as with the value that was chosen. Gaussian factors
    are only taken if the errors of rows, on a log scale, or their log densities are better by two
    standard errors, and neither is worse, or if the errors are better by three. The data do not
    determine the rotation of their loadings. They can be taken although sparse factors have drawn
    the data, where there is hardly any noise: give ``"learned"`` if it is the loadings that matter.

    Prior variances of loadings are measured in the noise of their column, so that a column in other
    units gives the same factors.

    References
    ----------
    .. [1] Altosaar, Ranganath, Blei (2018). Proximity variational inference. AISTATS.
    .. [2] Titsias, Lázaro-Gredilla (2011). Spike and slab variational inference for multi-task and
       multiple kernel learning. NIPS.
    .. [3] Qi, Jaakkola (2006). Parameter expanded variational Bayesian methods. NIPS.
    .. [4] Luttinen, Ilin (2010). Transformations in variational Bayesian factor analysis to speed
       up learning. Neurocomputing.
    .. [5] Hyvärinen (1999). Fast and robust fixed-point algorithms for independent component
       analysis. IEEE Transactions on Neural Networks.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal import AnnealedSpikeSlabFactorAnalysis
    >>> rng = np.random.default_rng(0)
    >>> loadings = np.array([[3, 3, 0, 0, 0], [0, 0, 2, 2, 2]])
    >>> factors = rng.standard_normal((300, 2)) * (rng.random((300, 2)) < 0.4)
    >>> X = factors @ loadings + 0.3 * rng.standard_normal((300, 5))
    >>> model = AnnealedSpikeSlabFactorAnalysis(n_components=4, random_state=0).fit(X)
    >>> model.n_effective_components_
    2
    >>> X[0, 1] = np.nan  # a missing cell
    >>> model.transform(X[:1]).shape
    (1, 4)
    """

    _parameter_constraints: dict = {
        **BaseAnnealed._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "noise_variance": [*_VARIANCE, StrOptions({"auto"})],
        "learning_decay": DECAY_OR_AUTO,
        "loading_variance": [*_VARIANCE, StrOptions({"auto", "learned"})],
        "activation_prior": [
            Interval(Real, 0.0, 1.0, closed="right"),
            "array-like",
            StrOptions({"auto", "learned"}),
        ],
        "solver": [StrOptions({"coordinate", "gradient"})],
        "optimizer": [StrOptions(set(OPTIMIZERS))],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither")],
        "learning_rate_decay": [Interval(Real, 0, None, closed="left")],
        "components_init": ["array-like", None],
        "max_sweeps": [Interval(Integral, 1, None, closed="left"), None],
        "sweep_tol": [Interval(Real, 0.0, None, closed="left")],
    }

    def __init__(
        self,
        n_components=None,
        *,
        annealing="reheating",
        noise_variance="auto",
        loading_variance="auto",
        activation_prior="auto",
        solver="coordinate",
        optimizer="rmsprop",
        learning_rate_init=0.05,
        learning_rate_decay=0.0,
        components_init=None,
        max_sweeps=None,
        sweep_tol=1e-3,
        tol=1e-4,
        max_iter=300,
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
        self.noise_variance = noise_variance
        self.loading_variance = loading_variance
        self.activation_prior = activation_prior
        self.solver = solver
        self.optimizer = optimizer
        self.learning_rate_init = learning_rate_init
        self.learning_rate_decay = learning_rate_decay
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

    _kernel_modules = ("spike_slab", "optimizers", "matrix_factorization")
    _advice = (
        "the posterior precision of the loadings is not positive definite: the priors differ too "
        "much for floating-point numbers. Give a larger noise_variance, or a smaller "
        "loading_variance; or, with solver='gradient', lower learning_rate_init."
    )
    _advice_coinciding = (
        "Ask for fewer components, start from another random_state, or give the annealing a jitter."
    )
    _start_parameters = ("components_init",)
    # Whether a fit has decided for Gaussian factors.
    _gaussian = False
    # The number of factors that the rows of a fit, or of the last one of a stream, can explain.
    _most_factors = np.inf
    _model_parameters = (
        "n_components",
        "noise_variance",
        "loading_variance",
        "activation_prior",
        "solver",
        "optimizer",
        "learning_rate_init",
        "learning_rate_decay",
    )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    # Methods that the base class calls

    def _validate_data(self, X: Any, *, reset: bool, ensure_min_samples: int = 2) -> np.ndarray:
        refuse_masked(X, "X")
        return validated_table(
            self,
            X,
            reset=reset,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
            ensure_min_samples=ensure_min_samples,
        )

    def _make_units(self, X: np.ndarray, sample_weight: np.ndarray | None) -> Rows:
        kind = Rows if self.solver == "coordinate" else WholeRows
        return kind(X, sample_weight, patterns=cell_patterns(X))

    def _check_training(self, units: Rows) -> None:
        refuse_unobserved_columns(units)

    def _check_parameters(self, X: np.ndarray, units: Rows) -> None:
        asked = copy(self)
        asked._most_factors = coordinate(self._inference.ctx)[0].n_components
        super(AnnealedSpikeSlabFactorAnalysis, asked)._check_parameters(X, units)
        self._admit_missing_cells(units)

    def _continue_fit(
        self,
        units: Units,
        monitor: FitMonitor | None,
        checkpoint: Checkpoint | None,
    ) -> Progress:
        self._admit_missing_cells(units)
        return super()._continue_fit(units, monitor, checkpoint)

    def _admit_missing_cells(self, units: Units) -> None:
        """Give every column a posterior covariance of its own at the first missing cells."""
        inference = self._inference
        model = inference.ctx.model
        if (
            isinstance(model, SpikeSlabFactorAnalysis)
            and getattr(units, "patterns", None) is not None
            and not model.missing
        ):
            model, prior, q = model.for_missing_cells(inference.ctx.q)
            self._inference = copy(inference)
            self._inference.ctx = replace(inference.ctx, model=model, prior=prior, q=q)

    def _check_first_batch(self, units: Rows, model: _Model) -> None:
        self._check_training(units)
        check_first_rows(units.X, 1, "the mean of X, and the variances of the columns")

    def _searched(self, data: Data[np.ndarray, Rows], store: Checkpoint | None) -> Outcome:
        """Fit, after a decision between sparse and Gaussian factors if it is open."""
        self.__dict__.pop("held_out_scores_", None)
        # Copies that callbacks keep have it.
        self.__dict__.pop("_gaussian", None)
        self._most_factors = n_explained(data.units) if self.n_components is None else np.inf
        if self._compares_factors(data.example):
            # Refusals come before any work, and before there is a checkpoint.
            self._plan(self._strategy(self._make_model(data.X, data.example)), data.units)
            random_state = check_random_state(self.random_state)
            if store is not None:
                random_state = self._reopened(store, data.units, random_state)
            # The fit itself draws the same random numbers, whatever is decided.
            scores = compared(self, data.example, deepcopy(random_state))
            if scores is not None:
                self._gaussian = scores.prefer_gaussian
                self.held_out_scores_ = scores._asdict()
                if self.verbose:
                    print(scores.in_words(), flush=True)
        try:
            return super()._searched(data, store)
        finally:
            self.__dict__.pop("_gaussian", None)
            self.__dict__.pop("_most_factors", None)

    def _compares_factors(self, units: Rows) -> bool:
        """Whether held-out cells decide between sparse and Gaussian factors."""
        is_open = isinstance(self.activation_prior, str) and self.activation_prior == "auto"
        # Gradients have no Gaussian factors, and given loadings are those of a kind.
        usual = self.solver == "coordinate" and self.components_init is None
        return is_open and usual and self.max_iter > 0 and units.patterns is not None

    def _cells_after_fit(
        self, units: Rows, random_state: np.random.RandomState, near: np.ndarray | None = None
    ) -> tuple[Cells, np.ndarray]:
        """Return the cells of rows after a fit to them, and the loadings in units of the data.

        The fit starts at the loadings ``near``, (n_components, n_features), if they are given, and
        at the noise that these leave.
        """
        self.components_init = near
        model = self._make_model(units.X, units)
        assert isinstance(model, SpikeSlabFactorAnalysis)
        if near is not None:
            model.init_params = "gaussian"
        strategy = self._strategy(model)
        plan = self._plan(strategy, units)
        ctx = self._start_anew(model, strategy, plan, units, None, None, random_state).kept.ctx
        model, centered = ctx.model, units.centered(ctx.summary)
        loadings = model.loadings(ctx.q).means * np.sqrt(model.noise_variance)
        return imputed(model, ctx.q, centered, return_std=True), loadings

    def _make_model(self, X: np.ndarray, units: Rows) -> _Model:
        d = X.shape[1]
        k = min(d, self._most_factors) if self.n_components is None else self.n_components

        def checked(name: str, size: int) -> Any:
            value = getattr(self, name)
            return value if is_auto(value) else checked_prior(value, None, (size,), name)

        activation_prior = self._checked_activation_prior(k)
        model = SpikeSlabFactorAnalysis(
            k,
            d,
            noise_variance=checked("noise_variance", d),
            loading_variance=self._checked_loading_variance(k, activation_prior),
            activation_prior=activation_prior,
            missing=units.patterns is not None,
            max_sweeps=self.max_sweeps,
            sweep_tol=self.sweep_tol,
        )
        if self.solver == "coordinate":
            return model
        steps = self.learning_rate_init, self.learning_rate_decay
        return SpikeSlabByGradients(model, OPTIMIZERS[self.optimizer](*steps))

    def _checked_loading_variance(self, k: int, activation_prior: Any) -> Any:
        """Return v, or "auto" if it is learned."""
        value = self.loading_variance
        if not isinstance(value, str):
            return checked_prior(value, None, (k,), "loading_variance")
        gaussian = not isinstance(activation_prior, str) and always_on(activation_prior)
        return 1.0 if gaussian and value == "auto" else "auto"

    def _checked_activation_prior(self, k: int) -> Any:
        """Return π, or "auto" if it is learned; refuse one that is on for some factors alone."""
        if isinstance(self.activation_prior, str):
            return np.ones(k) if self._gaussian else "auto"
        prior = checked_prior(self.activation_prior, None, (k,), "activation_prior")
        gaussian = always_on(prior)
        if not (gaussian or (prior < 1).all()):
            raise ValueError(
                "The parameter 'activation_prior' should be below 1 everywhere, or 1 for all "
                "factors, which are then Gaussian: it has probabilities, but its largest entry is "
                f"{prior.max():g}."
            )
        if gaussian and self.solver == "gradient":
            raise ValueError(
                "activation_prior=1 needs solver='coordinate', which infers Gaussian factors in "
                "one step. Gradients are those of activations between 0 and 1."
            )
        return prior

    def _keep(
        self,
        inference: Inference,
        method: Annealing,
        trace: Trace,
        found: Found | None = None,
    ) -> None:
        """Keep no parameters of single rows, which new rows do not need."""
        if isinstance(inference.ctx.model, SpikeSlabByGradients):
            inference.ctx = without_rows(inference.ctx)
        super()._keep(inference, method, trace, found)

    def _given_start(self, model: _Model) -> Given:
        base = model.base if isinstance(model, SpikeSlabByGradients) else model
        shape, name = (base.n_components, base.n_features), "components_init"
        components = given_array(self.components_init, shape, name)
        empty = np.flatnonzero(~components.any(axis=1))
        # A fit without passes is the estimator with these components, which may be switched off.
        if len(empty) and self.max_iter > 0:
            raise ValueError(
                f"Row {empty[0]} of {name} has zeros alone, from which no pass would ever move "
                "it. Give it small random numbers, or leave it out of n_components."
            )
        return {"components": components}

    def _weights_for_order(self, ctx: Context) -> np.ndarray:
        model, prior, q = coordinate(ctx)
        return model.expected_counts(q, prior)

    def _fitted_attributes(self, ctx: Context) -> Attributes:
        model, prior, q = coordinate(ctx)
        found = model.loadings(q)
        loadings = found.means * np.sqrt(model.noise_variance)
        explained = model.activation_prior * (loadings**2).sum(axis=1)
        return {
            "components_": loadings,
            "noise_variance_": model.noise_variance.copy(),
            "mean_": ctx.summary.center.copy(),
            "activation_probabilities_": model.activation_prior.copy(),
            "loading_variance_": model.loading_variance.copy(),
            "explained_variance_": explained,
            "explained_variance_ratio_": explained / (explained.sum() + model.noise_variance.sum()),
            "n_effective_components_": len(model.in_use(found, q, prior)),
        }

    # Public methods

    @by_parts
    @explains("Prediction")
    def transform(self, X):
        """Expected factors of each row, at T = 1.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or data in parts
            Rows; NaN where a cell is missing.

        Returns
        -------
        factors : ndarray of shape (n_samples, n_components)
            E z s. The dtype is that of X if X has floating-point numbers, else float64.
        """
        X, factors, _, _ = self._infer(X)
        return factors.astype(X.dtype, copy=False)

    @by_parts
    @explains("Prediction")
    def inclusion_probabilities(self, X):
        """Probability that each factor is on in each row, at T = 1.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or data in parts
            Rows; NaN where a cell is missing.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_components)
            E z, in [0, 1].
        """
        X, _, activations, _ = self._infer(X)
        return activations.astype(X.dtype, copy=False)

    @explains("Prediction")
    def inverse_transform(self, X):
        """Rows that are expected for given factors.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Factors, as :meth:`transform` returns them.

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
            The factors times ``components_``, plus ``mean_``.
        """
        ctx = self._context()
        X = check_activations(X, ctx.model.n_components, "factors")
        return (X @ self.components_ + self.mean_).astype(X.dtype, copy=False)

    @in_frames
    @by_parts
    @explains("Prediction")
    def impute(self, X, return_std=False, *, n_draws=None, n_rounds=0, random_state=None):
        """Replace missing cells by their posterior means, given the observed cells of their rows.

        With ``n_draws`` they are replaced by draws instead, in several tables: statistics of each,
        pooled by Rubin's rules, have standard errors that know what is missing.

        Cells are taken to be missing at random: whether a cell is missing may depend on the
        observed cells of its row, but not on its own value. ``mean_`` has the means of the observed
        cells of each column. They are biased where cells are missing for the values of others; only
        rounds draw them anew.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, in which missing cells are NaN.
        return_std : bool, default=False
            Whether to return the standard deviations as well. Only for means.
        n_draws : int, default=None
            The number of tables to draw (multiple imputation). None: one table of means.
        n_rounds : int, default=0
            Only with ``n_draws``, and for the table of the fit: rounds in which the loadings and
            the means of the columns are drawn again from their posterior given the factors and the
            observed cells, and then the factors (Gibbs sampling). The variances stay as they are. 0
            is for other rows.
        random_state : int, RandomState instance or None, default=None
            Determines the draws. None: the ``random_state`` of the estimator.

        Returns
        -------
        X_imputed : ndarray or frame of shape (n_samples, n_features)
            The rows, with their means in the place of missing cells. Observed cells are unchanged.
            The dtype is that of X if X has floating-point numbers, else float64. After
            ``set_output(transform="pandas")``, or "polars", it is a frame with the columns, the
            index and the dtypes of X, where they can hold the means.
            With ``n_draws``, it is an ndarray of shape (n_draws, n_samples, n_features), or a list
            of frames. For each table, the loadings are drawn from the variational posterior once;
            given them, the activations and the factors of each row are drawn given its observed
            cells, by twenty Gibbs sweeps from a draw of their variational posterior, and then its
            missing cells.
        std : ndarray or frame of shape (n_samples, n_features)
            Standard deviations of the predictive distribution, its noise included, where factors
            and loadings are independent as in the variational posterior; 0 for observed cells.
            Only returned if ``return_std`` is True.
        """
        draws = wants_draws(n_draws, n_rounds, return_std)
        ctx, units = self._rows(X)
        self._load_kernels()
        model, _, q = coordinate(ctx)
        holes = np.isnan(units.X)

        def filled(cells: np.ndarray) -> np.ndarray:
            return np.where(holes, finite(cells, OVERFLOW), units.X).astype(units.X.dtype)

        if draws:
            check_rounds(ctx.summary.weight, units.n_units, n_rounds)
            # Without rounds, rows that lack nothing have no use for draws.
            rows = np.flatnonzero(holes.any(axis=1)) if n_rounds == 0 else np.arange(len(holes))
            some = units.take(rows)

            def table(rng: np.random.Generator) -> np.ndarray:
                cells = np.zeros(units.X.shape)
                cells[rows] = drawn_cells(model, q, some, n_rounds, rng)[0]
                return filled(cells)

            return stacked(self, table, n_draws, random_state)
        means, std, _ = imputed(model, q, units, return_std)
        return (filled(means), np.where(holes, std, 0.0)) if return_std else filled(means)

    @by_parts
    @explains("Prediction")
    def score_samples(self, X):
        """Lower bound on the log predictive density of each row.

        The density is p(x) = E_q(W) Σ_z ∫ p(x, z, s | W) ds. Its bound is
        E log p(x, z, s | W) + H[q(z, s)] with expectations under the posterior of the fit and the
        q(z, s) of the row, and what this gains where the loadings of a column answer to the row,
        which leaves only the uncertainty of the factors and not that of the loadings behind. Rows
        with missing cells have the bound of their observed cells.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or data in parts
            Rows; NaN where a cell is missing.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            Lower bounds in nats.
        """
        ctx, units = self._rows(X)
        self._load_kernels()
        model, _, q = coordinate(ctx)
        return finite(log_predictive(model, q, units), OVERFLOW)

    def get_covariance(self):
        """Covariance of the rows under the model: Σ_k π_k w_k w_kᵀ + diag(ψ).

        Returns
        -------
        covariance : ndarray of shape (n_features, n_features)
        """
        self._context()
        weighted = self.components_.T * self.activation_probabilities_
        return weighted @ self.components_ + np.diag(self.noise_variance_)

    def get_precision(self):
        """Inverse of :meth:`get_covariance`.

        Returns
        -------
        precision : ndarray of shape (n_features, n_features)
        """
        return np.linalg.inv(self.get_covariance())

    @explains("Sampling")
    def sample(self, n_samples=1, *, given=None):
        """Draw rows and their factors from the model, with the posterior means of its loadings.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        given : mapping, array-like of shape (n_features,) or None, default=None
            Values of some columns, which all rows have: a mapping from the names or the numbers of
            columns to values, a pandas Series with these as its index, or a row in which NaN stands
            for columns that are drawn. The rows are then draws from the conditional distribution,
            by twenty Gibbs sweeps over the factors.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The rows.
        factors : ndarray of shape (n_samples, n_components)
            Their factors z s.
        """
        if given is not None:
            return self._conditional_sample(n_samples, given)
        self._context()
        check_n_samples(n_samples)
        rng = check_random_state(self.random_state)
        shape = (n_samples, len(self.components_))
        factors = rng.standard_normal(shape) * (
            rng.uniform(size=shape) < self.activation_probabilities_
        )
        noise = np.sqrt(self.noise_variance_) * rng.standard_normal(
            (n_samples, self.n_features_in_)
        )
        return factors @ self.components_ + self.mean_ + noise, factors

    @available_if(has_unit_temperatures)
    @by_parts
    @explains("Prediction")
    def inverse_temperatures(self, X):
        """Expected inverse temperature of each row, low for outliers.

        The method is available with ``annealing="local_tempering"``. The inverse temperature is
        the factor by which the fitted model would multiply the log-likelihood of the row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or data in parts
            Rows; NaN where a cell is missing.

        Returns
        -------
        inverse_temperatures : ndarray of shape (n_samples,)
            E[1/T], in (0, 1].
        """
        ctx, units = self._rows(X)
        if units.patterns is not None and not ctx.model.missing:
            model, prior, q = ctx.model.for_missing_cells(ctx.q)
            ctx = replace(ctx, model=model, prior=prior, q=q)
        self._load_kernels()
        return finite(self.annealing_.inverse_temperatures(ctx, units), OVERFLOW)

    def _conditional_sample(self, n_samples: int, given: Any) -> tuple[np.ndarray, np.ndarray]:
        self._context()
        check_n_samples(n_samples)
        row = given_row(self, given)
        ctx, units = without_names(self)._rows(np.tile(row, (n_samples, 1)))
        self._load_kernels()
        model, _, q = coordinate(ctx)
        seed = check_random_state(self.random_state).randint(0, 2**31 - 1, size=4)
        rng = np.random.default_rng(seed)
        cells, factors = drawn_cells(model, q, units, 0, rng, at_means=True)
        return np.where(np.isnan(row), finite(cells, OVERFLOW), row), factors

    def _rows(self, X: ArrayLike) -> tuple[Context, Rows]:
        ctx = self._context()
        X = self._validate_data(X, reset=False, ensure_min_samples=1)
        return ctx, Rows(X, None, ctx.summary.center, cell_patterns(X))

    @explains("Prediction")
    def _infer(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The rows, E z s and E z, of shape (n_samples, n_components), and bounds of the rows."""
        ctx, units = self._rows(X)
        self._load_kernels()
        model, _, q = coordinate(ctx)
        factors, activations, bounds = model.infer(units, q)
        finite(bounds, OVERFLOW)
        return units.X, factors, activations, bounds
