"""The estimator that factorises matrices of ratings."""

from __future__ import annotations

from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if

from .._compat import with_callbacks
from .._stack import warn
from ..data.parted_units import PartedUnits
from ..data.units import Ratings
from ..families import Natural
from ..models._componentwise import Given
from ..models._rating_visits import blocks
from ..models.matrix_factorization import MatrixFactorization
from ._attributes import Attributes
from ._base import BaseAnnealed
from ._given_starts import given_array
from ._interface import DECAY_OR_AUTO, EQUAL_RATES
from ._part_fits import stream
from ._part_predictions import by_parts
from ._part_sources import Inputs
from ._rating_predictions import exact, of_matrix, of_pairs
from ._rating_streams import RatingStreams, of_items, users_of
from ._ratings import (
    Pairs,
    RatingData,
    check_range,
    check_size_of_ratings,
    look_like_pairs,
    read_ids,
    read_matrix,
    read_pairs,
    some_users,
)
from ._shards import in_parts
from ._validation import checks_parameters, explains

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..annealing import Context
    from ..inference.progress import Trace


# A factor counts as switched off if its mean square over the items, as a share of the prior
# variance, is below this.
_OFF = 1e-6
_VARIANCE = [Interval(Real, 0.0, None, closed="neither"), StrOptions({"auto"}), None]


def _variance(value: object) -> Any:
    return float(value) if isinstance(value, Real) else value


def _priors_of_rows(model: MatrixFactorization) -> Attributes:
    """The fitted means and covariance matrices of the factors and biases of users and items."""
    users, items = model.prior_of_rows("users"), model.prior_of_rows("items")
    return {
        "user_prior_mean_": users[0],
        "user_prior_cov_": users[1],
        "item_prior_mean_": items[0],
        "item_prior_cov_": items[1],
    }


class AnnealedPMF(RatingStreams):
    """Bayesian matrix factorisation of ratings, fitted by annealed variational inference.

    A rating of item j by user i is y ~ N(μ + b_i + c_j + u_iᵀ v_j, σ²). The factors and the bias of
    a user, (u_i, b_i), are drawn from a Gaussian whose mean and covariance matrix all users share,
    and those of an item, (v_j, c_j), from another one. Both Gaussians are learned. With
    ``user_scales`` users also differ in how widely they rate.
    The posterior is approximated by one Gaussian with full covariance for each user, over
    (u_i, b_i), and one for each item, so that predictions come with standard deviations.

    The ratings have one of two forms, which ``input`` names:

    - ``"matrix"``: the rows of X are users and its columns are items. In a sparse matrix the
      stored entries are ratings, including explicit zeros, and all other entries are unobserved.
      In a dense matrix the unobserved entries are NaN or masked. y is ignored. The data points
      are users, and ``transform`` finds the factors of new users.
    - ``"pairs"``: each row of X has the ids (user, item) of one rating, and y has the ratings.
      ``cross_val_score(est, X, y)`` then holds out ratings. If a pair occurs twice, both ratings
      count.

    Read more in the :ref:`user guide <ratings>`.

    Parameters
    ----------
    n_components : int, default=10
        Number of factors.
    input : {"matrix", "pairs"}, default="matrix"
        Form in which the ratings are given. It is never guessed from X.
    annealing : str or Annealing, default="deterministic"
        How the fit avoids slow convergence and the local optimum next to its start: ``"none"``,
        ``"reheating"``, ``"deterministic"``, ``"stochastic"``, ``"tempering"``,
        ``"local_tempering"``, ``"svi_plus"``, ``"structured"``, ``"proximity"``, or an instance
        from :mod:`sklearn_anneal.annealing`. A name selects the method with the settings
        recommended for ratings. ``form="local"`` is refused, because it tempers assignments, which
        this model does not have.
    n_users, n_items : int or None, default=None
        Numbers of users and items. None: the largest id plus 1, or the number of columns of the
        matrix. ``n_users`` is used with ``"pairs"`` only. Items without ratings keep their prior.
        Since ids are positions in arrays, an id in the training data for which no number is given
        must be below 100,000, or below ten times the number of ratings if that is more.
    fit_intercept : bool, default=True
        If True, μ is the mean of the training ratings; otherwise it is 0.
    biases : bool, default=True
        Whether users and items have biases b_i and c_j.
    hierarchical : bool, default=True
        If True, the means and the covariance matrices of the users' and the items' parameters
        have normal-Wishart distributions (Salakhutdinov and Mnih, Bayesian probabilistic matrix
        factorization), which are learned at T = 1. Until then, and with False throughout, factors
        are drawn from N(0, c I) and biases from N(0, d), where c is ``factor_variance`` and d is
        ``bias_variance``. A hierarchical model predicts better where users or items differ in
        more than one way at once: well-liked items, for example, are rated higher by everybody,
        and most of all by some users. Its fits take two to four times the time. Where the
        variances are known, False states them exactly, and is the simpler model of small tables.
    user_scales : bool or "auto", default="auto"
        Whether users differ in how widely they rate. If so, user i has a precision τ_i, drawn
        from a gamma distribution with mean 1, whose shape is learned: the variance of the noise
        is σ² / τ_i, and the covariance matrix of the user's factors and bias is divided by τ_i.
        Ratings of users who are predicted well then count more, and predictions for others have
        larger standard deviations.
        With ``"auto"`` a fit is searched for without scales, and goes on with them if its lower
        bound is then higher: for up to ``max_iter`` passes, with any ``effort``. Scales that are
        there from the beginning can take the place of factors. Densities of held-out ratings rose
        by 0.020 to 0.029 nats on films and 0.075 on jokes, errors fell by 0.002 to 0.005 stars and
        0.003 to 0.016 of ratings from −10 to 10, on average, and fits took up to 1.5 times as long.
        Fits to data in parts and in minibatches go on in the same way, and so do those of streams.
        There are no scales with ``"structured"``, which does not end with plain inference, and in
        updates of ``partial_fit`` alone; what follows a fit keeps what the fit has decided.
        With True, scales are there as soon as the temperature is 1, also in streams, and annealing
        methods that put noise into users and items put it into items alone. All τ_i are 1 if all
        ratings are equal, unless every variance is a number.
    implicit_feedback : bool or "auto", default="auto"
        Whether the users who rated an item tell about it, whatever their ratings are. If so, the
        mean of the prior of an item is that of all items, plus an effect of each of its raters,
        divided by the square root of their number. A hundredth of the variance of effects is that
        of one which all raters share, for items that many have rated. Effects and their covariance
        matrix are learned with the prior. Items with few ratings gain most.
        Held-out films have errors lower by 0.012 to 0.013 stars on average, and jokes by 0.004 to
        0.009 of ratings from −10 to 10; a fit takes 1.3 to 2.0 times as long. ``"auto"`` is True
        for ratings in memory in a hierarchical model, also for those that a stream keeps for its
        fits. Data in parts and updates of streams are fitted without it, so that True is refused.
        Items keep the priors of a fit when a stream goes on.
    noise_variance : float, "auto" or None, default="auto"
        The variance σ² of a rating about its mean, in squared units of the ratings. ``"auto"``
        learns it by empirical Bayes at T = 1, which fits most ratings better, in bound and
        predictive density, but may overfit to many factors. None: 0.63 times the variance of the
        ratings, which is 0.8 for stars from 1 to 5.
    factor_variance : float, "auto" or None, default="auto"
        The prior variance c of the factors. A smaller one shrinks them more. In a hierarchical
        model it is the variance that the prior of the covariance matrices expects, so that it
        matters less the more users and items there are. ``"auto"`` learns it, beginning at 0.5
        times the standard deviation of the ratings, and never goes below the value of None. Factors
        that explain most of the ratings are found with ``"auto"`` alone. On films and jokes, the
        held-out densities of ``"auto"`` and None differed by at most 0.005 nats per rating, if the
        model was not hierarchical. None: 0.089 times the standard deviation of the ratings, which
        is 0.1 for stars from 1 to 5. A stream begins to learn after ten batches and a hundred users
        or pairs, and until then has the value from which learning begins.
    bias_variance : float, "auto" or None, default="auto"
        The prior variance of the biases, or the expected one of a hierarchical model. ``"auto"``
        learns it, which fits most ratings better, as above. None: 0.237 times the variance of the
        ratings, which is 0.3 for stars from 1 to 5.
    clip : bool or array-like of two floats, default=True
        If True, predicted means are clipped to the range of the training ratings. Two numbers
        (low, high) give another range.
    gibbs_sweeps : int or "auto", default="auto"
        Number of sweeps of Gibbs sampling after a fit. The bound keeps users and items apart, which
        makes their Gaussians too narrow and moves their means. Sampling begins at the optimum, with
        the learned variances and priors, and predictions and attributes then have the means and the
        covariances of the items over the sweeps. Held-out errors fall by 0.001 to 0.007 on jokes,
        of ratings from −10 to 10, on average, and by less than 0.001 stars on films. 100 sweeps
        make fits 1.1 to 1.2 times as long. ``lower_bound_`` is that of the optimum. ``"auto"`` is
        100 for ratings in memory in a hierarchical model. It is 0 in others, whose variances suit
        the optimum, with ``"local_tempering"``, in data in parts, which never have all ratings
        together, and in streams, whose updates begin at the optimum; they refuse another number
        than that of the fit they go on from. A start without a pass stays, and so does a fit to
        equal ratings.
    components_init : array-like of shape (n_components, n_items) or None, default=None
        ``components_`` at the start, the factors of the items, for example those of another fit.
        Users are updated first, given these; biases start at 0. ``annealing="none"`` goes to the
        optimum next to this start. Every restart of ``n_init`` begins there too, and differs in the
        noise of annealing. A high temperature forgets the start, and the moves of ``effort`` may
        leave it. All fits of a stream begin there. A warm start, and updates of a stream, go on
        from the fitted items instead. None: random numbers of a tenth of the prior's standard
        deviation.
    tol : float, default=1e-6
        The fit has converged when one pass raises the lower bound by less than this, in nats per
        rating.
    max_iter : int, default=100
        Largest number of passes at T = 1, which follow the annealing schedule. With 0 the fit stops
        at the end of the schedule, or at its start where there is no schedule. If the best fit of a
        search has not converged, up to five times as many follow.
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
        ratings if that is less). Short reheats, whose noise begins at 0.1 or 0.5 and falls to 0 in
        ten passes, take turns. The result of a move is kept only if its lower bound is higher, and
        a move is given up after a few passes if a higher bound is out of reach. The search ends
        early when every move has failed three times in a row. ``"auto"``: 4 if ``annealing`` is
        ``"reheating"``, and 0 with other methods and in minibatches. More effort raises the bound
        further. ``annealing="none"``, which is plain inference, and ``"structured"`` do not search,
        and refuse a number above 0.
    batch_size : int or None, default=None
        None: every update uses all users. An integer: stochastic variational inference runs with
        that many users per update.
    learning_offset : float, default=1.0
        The offset τ in the step size ρ_t = (τ + t)^(−κ) of damped updates, which move only a part
        of the way to their target. A larger τ makes the first steps smaller.
    learning_decay : float or "auto", default="auto"
        The exponent κ in the step size ρ_t = (τ + t)^(−κ) of damped updates. Convergence needs a
        value in (0.5, 1]. With a larger κ the parameters settle sooner, and each of the later
        batches changes them less. ``"auto"`` is 0.6. In updates of a stream that follow a fit it is
        1, with τ = 0, so that the step of a batch is its share of all ratings so far.
    total_samples : float or None, default=None
        Size of the whole stream that ``partial_fit`` will see: the number of users for matrices, or
        of ratings for pairs. The parameters describe so much data from the beginning. With None the
        size is taken to be that of the stream so far. If there are weights, it is the sum of these.
        Updates alone (``max_iter=1``) are annealed within the first tenth of it, and plain with
        None.
    n_jobs : int or None, default=None
        Number of threads, as in scikit-learn. They share out the restarts, or the parts of the data
        if there is only one restart. The result does not depend on their number.
    random_state : int, RandomState instance or None, default=None
        Seed of the starts and of the random numbers that annealing uses.
    warm_start : bool, default=False
        Whether another call of ``fit`` continues from the fitted items, at T = 1, instead of
        starting anew.
    verbose : int, default=0
        With 1, a fit says how it begins, where it is (passes, temperature, lower bound, seconds)
        and why it ends. With 2, every pass has a line, with the rise of the bound.
    verbose_interval : int, default=10
        Number of passes, or of calls of ``partial_fit``, from one line to the next with
        ``verbose=1``. A pass after five silent seconds has a line too.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_items)
        Posterior means of the factors of items.
    components_cov_ : ndarray of shape (n_items, n_components, n_components)
        Their posterior covariances.
    item_biases_ : ndarray of shape (n_items,)
        Posterior means of the biases of items, where there are biases.
    item_biases_var_ : ndarray of shape (n_items,)
        Their posterior variances.
    user_factors_ : ndarray of shape (n_users, n_components)
        Posterior means of the factors of users, given the fitted items. The users are those of the
        training data. After ``partial_fit``, they are those of the last matrix, or all users of the
        pairs so far.
    user_factors_cov_ : ndarray of shape (n_users, n_components, n_components)
        Their posterior covariances.
    user_biases_, user_biases_var_ : ndarray of shape (n_users,)
        Posterior means and variances of the biases of users, where there are biases.
    intercept_ : float
        The intercept μ.
    noise_variance_, factor_variance_, bias_variance_ : float
        The variances that were used, whether given or learned.
    user_precisions_ : ndarray of shape (n_users,)
        Posterior means of the precisions τ of users, which are ones if there are no scales. Not
        with ``user_scales=False``.
    user_precision_shape_ : float
        Shape of their gamma prior: the larger it is, the less users differ. It is at least 1.5, and
        infinite if all τ are 1. Not with ``user_scales=False``.
    user_prior_mean_, item_prior_mean_ : ndarray of shape (n_components,) or (n_components + 1,)
        Mean of the factors of all users, or of all items, and of their biases, where there are
        biases, as the last entry. Users and items without ratings have it. Only of a hierarchical
        model. With implicit feedback, raters move the means of other items.
    user_prior_cov_, item_prior_cov_ : ndarray of shape (n_components, n_components) or \
            (n_components + 1, n_components + 1)
        Covariance matrices of the same, the inverses of the expected precision matrices. That of
        users is for τ = 1.
    n_users_, n_items_ : int
        Numbers of users and items.
    rating_range_ : tuple of two floats
        The smallest and the largest rating seen so far, including fits before a warm start.
    lower_bound_ : float
        Evidence lower bound of the fitted model at T = 1, in nats, with all constants. In a stream,
        it is the estimate that the last batch gave for the parameters before their update, or the
        bound of a fit that was made at the last call.
    lower_bounds_ : ndarray of shape (n_passes,)
        The lower bound after each pass (in a stream, at each call). With ``batch_size`` all values
        but the last are estimates.
    temperatures_ : ndarray of shape (n_passes,)
        Temperature of each pass. For local tempering, the mean over users, or over ratings if they
        are given as pairs.
    annealing_ : Annealing
        The method that ran, with the value of every setting that was ``"auto"``. In a stream it is
        that of the last fit. Before the first one, and where plain updates are all, an initial
        temperature of ``"auto"`` is not determined.
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
        Number of columns seen during ``fit``.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of columns seen during ``fit``, where X has string column names.

    Notes
    -----
    The ratings of a stream are assumed to be new: a rating that is given twice counts twice. In
    ``partial_fit`` with ``"pairs"``, the ratings of a user in a batch are added to those of
    earlier batches. In an update, users without a rating in the batch keep the sums over ratings
    that were computed for them earlier, with the items as they were then; a fit of the stream
    computes those of all users. Every batch with a rating of a user adds the terms of q(u) for that
    user to its lower bound, so that only the lower bounds of batches of equal size can be compared.

    Variances of noise and biases that are learned begin at the values of None. A warning is given
    if all factors were switched off.

    References
    ----------
    .. [1] Lim, Teh (2007). Variational Bayesian approach to movie rating prediction. KDD Cup.
    .. [2] Salakhutdinov, Mnih (2008). Probabilistic matrix factorization. NIPS.
    .. [3] Salakhutdinov, Mnih (2008). Bayesian probabilistic matrix factorization using Markov
       chain Monte Carlo. ICML.
    .. [4] Paisley, Fazelnia, Barr (2025). Stochastic variational inference with tuneable
       stochastic annealing. arXiv:2504.03902, section IV-A.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal import AnnealedPMF
    >>> X = np.array([[5, 4, np.nan, 1], [4, 5, 1, 1], [1, np.nan, 5, 4], [1, 2, 4, 5]])
    >>> pmf = AnnealedPMF(1, noise_variance=0.3, factor_variance=1.0, random_state=0).fit(X)
    >>> mean, std = pmf.predict_ratings(users=[0, 2], items=[2, 1], return_std=True)
    >>> mean.round(1)
    array([1.4, 1.9])
    """

    _parameter_constraints: dict = {
        **BaseAnnealed._parameter_constraints,
        "input": [StrOptions({"matrix", "pairs"})],
        "n_users": [Interval(Integral, 1, None, closed="left"), None],
        "n_items": [Interval(Integral, 1, None, closed="left"), None],
        "fit_intercept": ["boolean"],
        "biases": ["boolean"],
        "hierarchical": ["boolean"],
        "user_scales": ["boolean", StrOptions({"auto"})],
        "implicit_feedback": ["boolean", StrOptions({"auto"})],
        "noise_variance": _VARIANCE,
        "factor_variance": _VARIANCE,
        "bias_variance": _VARIANCE,
        "gibbs_sweeps": [Interval(Integral, 0, None, closed="left"), StrOptions({"auto"})],
        "components_init": ["array-like", None],
        "clip": ["boolean", "array-like"],
        "learning_decay": DECAY_OR_AUTO,
    }

    def __init__(
        self,
        n_components=10,
        *,
        input="matrix",
        annealing="deterministic",
        n_users=None,
        n_items=None,
        fit_intercept=True,
        biases=True,
        hierarchical=True,
        user_scales="auto",
        implicit_feedback="auto",
        noise_variance="auto",
        factor_variance="auto",
        bias_variance="auto",
        clip=True,
        gibbs_sweeps="auto",
        components_init=None,
        tol=1e-6,
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
        self.input = input
        self.annealing = annealing
        self.n_users = n_users
        self.n_items = n_items
        self.fit_intercept = fit_intercept
        self.biases = biases
        self.hierarchical = hierarchical
        self.user_scales = user_scales
        self.implicit_feedback = implicit_feedback
        self.noise_variance = noise_variance
        self.factor_variance = factor_variance
        self.bias_variance = bias_variance
        self.clip = clip
        self.gibbs_sweeps = gibbs_sweeps
        self.components_init = components_init
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

    _advice = (
        "the precision of a user or an item is not positive definite: the noise of the annealing "
        "or the scale of the ratings is too large for floating-point numbers. Give SVI+ a margin "
        'or noise="dirichlet", a smaller factor_variance or a larger noise_variance, or rescale '
        "the ratings."
    )
    _only_with = {
        "user_scales": dict.fromkeys(("user_precisions_", "user_precision_shape_"), (True, "auto")),
        "biases": dict.fromkeys(("item_biases_", "user_biases_", "bias_variance_"), (True,)),
        "hierarchical": dict.fromkeys(
            ("user_prior_mean_", "user_prior_cov_", "item_prior_mean_", "item_prior_cov_"), (True,)
        ),
        "input": {
            **dict.fromkeys(("transform", "fit_transform", "inverse_transform"), ("matrix",)),
            **dict.fromkeys(("predict_rows", "recommend", "sample"), ("matrix",)),
            "predict": ("pairs",),
        },
    }
    _rates_after_fit = EQUAL_RATES
    _kernel_modules = ("matrix_factorization", "normal")
    _data_in_words = "{units} users with {observations} ratings"
    _advice_coinciding = (
        "Lower the initial temperature or give the annealing jitter, start from another "
        "random_state, or ask for fewer factors."
    )
    _start_parameters = ("components_init",)
    _stream_parameters = ("annealing", "gibbs_sweeps")
    _model_parameters = (
        "n_components",
        "input",
        "n_items",
        "fit_intercept",
        "biases",
        "hierarchical",
        "user_scales",
        "implicit_feedback",
        "noise_variance",
        "factor_variance",
        "bias_variance",
    )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        matrix = of_matrix(self)
        # Ids count from 0.
        tags.input_tags.positive_only = not matrix
        tags.input_tags.allow_nan = matrix
        tags.input_tags.sparse = matrix
        tags.target_tags.required = not matrix
        return tags

    # Methods that the base class calls

    def _data(
        self,
        X: ArrayLike,
        y: ArrayLike | None,
        weights: ArrayLike | None = None,
        stream: bool = False,
    ) -> Any:
        """X as validation takes it; ratings y of pairs, and weights, are packed together with X."""
        if of_pairs(self):
            return Pairs(X, y, weights, stream)
        if look_like_pairs(X, y):
            warn(
                "X has two columns of integers, and y as many entries as X has rows. They are "
                "read as the ratings of two items, and y is ignored, because of "
                'input="matrix". If the columns are the ids of users and items, and y the '
                'ratings, input="pairs" was probably meant.',
            )
        return X

    def _validate_data(self, X: Any, *, reset: bool, ensure_min_samples: int = 1) -> RatingData:
        # ``ensure_min_samples`` is not used, because a single user or rating is enough data.
        if isinstance(X, Pairs):
            data = read_pairs(
                self,
                X,
                reset=reset,
                n_users=self.n_users,
                n_items=self.n_items if reset else self.n_items_,
                dense=not X.stream,
                n_known=0 if reset else self.n_users_,
            )
        else:
            if self.n_users is not None:
                raise ValueError(
                    'n_users is for input="pairs"; the users of a matrix are its rows.'
                )
            n_items = self.n_items if reset or self.n_items is None else self.n_items_
            data = read_matrix(self, X, reset=reset, n_items=n_items)
        self._check_size(data, reset)
        return data

    def _check_size(self, data: RatingData, reset: bool) -> None:
        """Refuse ratings that are too large or small for the model's floating-point numbers."""
        dtype = data.values.dtype if reset else self._quiet_context().model.dtype
        check_size_of_ratings(data.values, dtype, reset)

    def _make_units(self, X: RatingData, sample_weight: np.ndarray | None) -> Ratings:
        pairs = X.order is not None
        weights = sample_weight
        if pairs and weights is not None:
            weights = weights[X.order]
        return Ratings(
            X.values,
            X.columns,
            X.indptr,
            X.n_columns,
            weights=None if pairs else weights,
            rating_weights=weights if pairs else None,
            counts_ratings=pairs,
            known=self._known(X.users) if X.stream else None,
            everyone=None if X.everyone is None else self._make_units(X.everyone, None),
            ids=X.users if X.stream else None,
        )

    def _present(
        self, X: RatingData, weights: np.ndarray | None
    ) -> tuple[RatingData, np.ndarray | None]:
        # Ratings of weight zero that are given as pairs have been left out when they were read.
        return (X, weights) if X.order is not None else super()._present(X, weights)

    def _chosen(self, X: RatingData, chosen: np.ndarray) -> RatingData:
        return some_users(X, chosen)

    def _check_weights(
        self, sample_weight: Any, X: Any, allow_nothing: bool = False
    ) -> np.ndarray | None:
        return super()._check_weights(sample_weight, np.empty((X.shape[0], 1)), allow_nothing)

    def _check_training(self, units: Ratings) -> None:
        if units.n_observations == 0:
            raise ValueError(
                "There is no rating in X (or all of them have weight zero), so there is nothing "
                "to learn from."
            )

    def _check_first_batch(self, units: Ratings, model: MatrixFactorization) -> None:
        if not hasattr(self, "_inference"):
            self._refuse_refinements("Updates of streams")
        self._check_training(units)
        if not model.given_variances and model.equal_ratings(model.summary(units)):
            raise ValueError(
                "The first batch fixes the variances of the model, but its ratings are all equal. "
                "Begin with a larger batch, or give noise_variance, factor_variance and "
                "bias_variance as numbers."
            )

    def _make_model(self, X: RatingData, units: Ratings) -> MatrixFactorization:
        if not isinstance(self.clip, bool | np.bool_):
            check_range(self.clip, "clip")
        self._sweeps_in_memory()
        return MatrixFactorization(
            self.n_components,
            self.n_items or units.n_columns,
            bool(self.biases),
            bool(self.fit_intercept),
            bool(self.hierarchical),
            "auto" if self.user_scales == "auto" else bool(self.user_scales),
            self._learns_from_raters(),
            _variance(self.noise_variance),
            _variance(self.factor_variance),
            _variance(self.bias_variance),
            units.values.dtype,
        )

    def _given_start(self, model: MatrixFactorization) -> Given:
        shape, name = (model.n_components, model.n_items), "components_init"
        return {"components": given_array(self.components_init, shape, name)}

    def _weights_for_order(self, ctx: Context) -> np.ndarray:
        return np.square(self.components_).sum(axis=1)

    def _complete_reorder(self, order: np.ndarray) -> None:
        model: MatrixFactorization = self._inference.ctx.model
        found = self._user_statistics
        self._reorder_averages(order)
        self._set_users(found | model.reordered_rows(found, order))

    def _fitted_attributes(self, ctx: Context) -> Attributes:
        model, d = ctx.model, self.n_components
        mean = model.moments_of(ctx.q["items_precision"], ctx.q["items_natural_mean"]).mean
        attributes = {
            "components_": mean[:, :d].T.copy(),
            "intercept_": float(model.intercept),
            "noise_variance_": float(model.noise_variance),
            "factor_variance_": float(model.factor_variance),
            "n_items_": model.n_items,
            "rating_range_": (ctx.summary.low, ctx.summary.high),
        }
        if self.hierarchical:
            attributes |= _priors_of_rows(model)
        if self.user_scales:
            attributes["user_precision_shape_"] = float(model.shape)
        if self.biases:
            attributes["item_biases_"] = mean[:, d].copy()
            attributes["bias_variance_"] = float(model.bias_variance)
        return attributes

    def _callback_data(self, given: object, X: Any) -> Any:
        return given.X if isinstance(given, Pairs) else given

    def _complete_fit(
        self, ctx: Context, units: Ratings | PartedUnits[Ratings], given: Any
    ) -> None:
        vars(ctx).update(vars(of_items(ctx)))
        if isinstance(units, Ratings):
            self._average(ctx, units)
        self._set_users(self._solved(self._quiet_context(), users_of(units)))

    def _part(self, inputs: Inputs) -> Any:
        X, y, weights, _ = inputs
        return Pairs(X, y, weights, stream=True) if of_pairs(self) else X

    @property
    def _reads_targets(self) -> bool:
        return of_pairs(self)

    def _keys_of_part(self, X: ArrayLike) -> np.ndarray | None:
        pairs = np.asarray(X) if of_pairs(self) else np.empty(0)
        return read_ids(pairs[:, 0].copy(), "The ids of users") if pairs.ndim == 2 else None

    def _check_parts(self) -> None:
        self._refuse_refinements("Data in parts")
        if of_pairs(self) and self.n_items is None:
            raise ValueError("Pairs in parts need n_items: no part tells which items others have.")

    def _warn(self, ctx: Context, trace: Trace) -> None:
        super()._warn(ctx, trace)
        # Draws of factors that are off differ from zero.
        means = ctx.model.expectations(ctx.q).mean[:, : self.n_components]
        squares = np.square(means).mean(axis=0)
        if trace.converged and squares.max() < _OFF * ctx.model.factor_variance:
            warn(
                "All factors are switched off: hardly more than the mean and the biases predicts "
                "ratings. If there is more to find, give a smaller noise_variance or a larger "
                "factor_variance, fewer components, or more jitter to the annealing.",
                ConvergenceWarning,
            )

    def _snapshot(self, ctx: Context, units: Ratings | PartedUnits[Ratings]) -> Attributes:
        kept = of_items(ctx)
        statistics = self._solved(kept, users_of(units))
        return super()._snapshot(kept, units) | self._user_attributes(kept, statistics)

    def _user_attributes(self, ctx: Context, statistics: Natural) -> Attributes:
        model, n = exact(ctx), len(statistics["precision"])
        mean, precisions, d = np.empty((n, model.size)), np.ones(n), model.n_components
        for rows in blocks(n, statistics["precision"].shape[1]):
            users, scales = model.users_of({key: value[rows] for key, value in statistics.items()})
            mean[rows] = users.mean
            # If they stayed out, or all ratings are equal, the model has no scales.
            if scales is not None:
                precisions[rows] = scales.mean
        attributes = {
            "_user_statistics": statistics,
            "n_users_": n,
            "user_factors_": mean[:, :d].copy(),
        }
        if self.user_scales:
            attributes["user_precisions_"] = precisions
        return attributes | ({"user_biases_": mean[:, d].copy()} if model.biases else {})

    def _set_users(self, statistics: Natural) -> None:
        self._describe(self._user_attributes(self._inference.ctx, statistics))

    # Public methods

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None, *, checkpoint=None):
        """Fit the model: anneal, then plain variational inference to convergence.

        If the fit is refused or interrupted, the estimator remains as it was before.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items), array-like of shape \
                (n_ratings, 2), or data in parts
            Ratings as a matrix, or the ids (user, item) of each rating. Parts are
            :class:`~sklearn_anneal.Shards` or a collection of Dask.
        y : array-like of shape (n_ratings,), default=None
            The ratings of pairs; ignored for a matrix. With data in parts, one array for each part.
        sample_weight : array-like of shape (n_users,) or (n_ratings,), default=None
            Weights of the rows of X: of users, or of ratings. A weight of 2 counts a row twice.
            With data in parts, one array for each part.
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
            data = X if in_parts(X) else self._data(X, y, sample_weight)
            return self._fit(data, y, sample_weight, checkpoint)

    @checks_parameters
    def partial_fit(self, X, y=None, sample_weight=None):
        """Update the model with one batch of a stream of new ratings.

        The stream is fitted, as by ``fit`` with its annealing, to all ratings so far whenever these
        have grown by a half: from 200 ratings for each factor on, up to about 20,000, or to the end
        of the batch that goes beyond. Until then the ratings are kept, and nothing is kept later.
        Factors are turned until items are as near as possible to those before. A fit that fails
        changes nothing, and the update with the batch remains. All other calls are plain updates,
        or those of ``"structured"``, which has no schedule.

        With ``max_iter=1`` all calls are updates. The schedule runs within the first tenth of
        ``total_samples`` then, whatever its number of passes in ``fit`` is. Plain inference
        follows, so that one pass over the stream ends at T = 1, and further passes are plain.
        Without ``total_samples`` all updates are plain.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items), array-like of shape \
                (n_ratings, 2), or data in parts
            A matrix whose rows are new users, or the ids (user, item) of new ratings of any users.
            Parts, which are batches one after another, are :class:`~sklearn_anneal.Shards` or a
            collection of Dask.
        y : array-like of shape (n_ratings,), default=None
            The ratings of pairs; ignored for a matrix. With data in parts, one array for each part.
        sample_weight : array-like of shape (n_users,) or (n_ratings,), default=None
            Weights of the rows of X. A batch of weight zero changes nothing. With data in parts,
            one array for each part.

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
                stream(self, X, y, sample_weight)
                return self
            data = self._data(X, y, sample_weight, stream=True)
            return self._partial_fit(data, sample_weight)

    @available_if(of_matrix)
    @by_parts
    @explains("Prediction")
    def transform(self, X):
        """Posterior means of the factors of users, given the fitted items.

        One exact step computes them, for users of the training data and for other users alike.
        The factors of a user without ratings are the mean of the prior.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items), or data in parts
            Ratings.

        Returns
        -------
        factors : ndarray of shape (n_users, n_components)
            The factors, without the biases. Their dtype is that of X if X has floating-point
            numbers, else float64.
        """
        ctx, data = self._read(X)
        mean = self._rows(ctx, data).mean
        return mean[:, : ctx.model.n_components].astype(data.values.dtype)


# scikit-learn wraps both methods for ``set_output``, and the wrapper ignores ``available_if``. So
# the condition is set again on the wrapped methods.
for _name in ("transform", "fit_transform"):
    setattr(AnnealedPMF, _name, available_if(of_matrix)(getattr(AnnealedPMF, _name)))
