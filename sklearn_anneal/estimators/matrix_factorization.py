"""The estimator that factorises ratings."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.callback import with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if

from ..families import (
    Natural,
    Tempering,
)
from ..inference.parallel import one_thread
from ..inference.units import Ratings
from ..models.matrix_factorization import MatrixFactorization
from ._base import BaseAnnealed
from ._rating_predictions import RatingPredictions, exact, of_matrix, of_pairs
from ._ratings import (
    Pairs,
    RatingData,
    check_size_of_ratings,
    look_like_pairs,
    read_matrix,
    read_pairs,
)
from ._validation import checks_parameters, explains

if TYPE_CHECKING:
    from ..annealing import Context


# Factors of items whose mean square is a smaller share of their prior variance are off.
_OFF = 1e-6
_VARIANCE = [Interval(Real, 0.0, None, closed="neither"), StrOptions({"auto"}), None]


def _variance(value: Any) -> Any:
    return float(value) if isinstance(value, Real) else value


def _of_items(ctx: Context) -> Context:
    """A context in which users are local variables: of training data, or of others."""
    model = copy(ctx.model)
    # Nothing of the size of the training data stays.
    model.holds_users = False
    (items,) = model.blocks
    q, prior = ({key: natural[key] for key in items.keys} for natural in (ctx.q, ctx.prior))
    return replace(ctx, model=model, q=q, prior=prior)


class AnnealedPMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, RatingPredictions):
    """Bayesian matrix factorisation of ratings, fitted by annealed variational inference.

    A rating of item j by user i is y ~ N(μ + b_i + c_j + u_iᵀ v_j, σ²) with u_i, v_j ~ N(0, c I).
    The posterior is approximated by one Gaussian with full covariance for each user, over
    (u_i, b_i), and one for each item, so that predictions come with standard deviations.

    Ratings come in one of two forms, as ``input`` says:

    - ``"matrix"``: X is users × items. Of a sparse matrix the stored entries are ratings,
      explicit zeros too, and all others are unobserved; of a dense one NaN is unobserved, and so
      is what a mask covers. y is ignored. A row is a data point: ``transform`` finds the factors
      of new users.
    - ``"pairs"``: X has one row per rating, the ids (user, item), and y the ratings, so that
      ``cross_val_score(est, X, y)`` holds out ratings. A pair that is repeated is two ratings.

    Parameters
    ----------
    n_components : int, default=10
        Number of factors.
    input : {"matrix", "pairs"}, default="matrix"
        Form of the ratings. It is never guessed from X.
    annealing : str or Annealing, default="deterministic"
        How the fit avoids slow convergence and the local optimum next to its start: ``"none"``,
        ``"deterministic"``, ``"stochastic"``, ``"tempering"``, ``"local_tempering"``,
        ``"svi_plus"``, ``"structured"``, ``"proximity"``, or an instance from
        :mod:`sklearn_anneal.annealing`. A name stands for the settings recommended for ratings.
        ``form="local"`` is refused: it tempers assignments, of which there are none.
    n_users, n_items : int or None, default=None
        Numbers of users and items; None: the largest id plus 1, or the columns of the matrix. An
        item beyond those seen has its prior. ``n_users`` is for ``"pairs"`` alone. Ids are
        positions in arrays. Where no number is declared, ids of training data must therefore be
        below 100,000, or below ten times the number of ratings if that is more.
    fit_intercept : bool, default=True
        Whether μ is the mean of the training ratings, or 0.
    biases : bool, default=True
        Whether users and items have biases b_i and c_j.
    noise_variance : float, "auto" or None, default=None
        σ², in squared units of ratings. None: 0.63 times the variance of the ratings, which is
        0.8 for stars from 1 to 5. ``"auto"`` learns it by empirical Bayes, at T = 1: predictive
        densities are better with few factors, and worse with many, which it overfits.
    factor_variance : float, "auto" or None, default=None
        c, the prior variance of factors: smaller shrinks more. None: 0.089 times the standard
        deviation of the ratings, which is 0.1 for stars from 1 to 5. ``"auto"`` learns it; with
        20 factors for 100,000 ratings it ended near 0, where all factors are switched off.
    bias_variance : float, "auto" or None, default=None
        Prior variance of biases. None: 0.237 times the variance of the ratings, which is 0.3 for
        stars from 1 to 5. ``"auto"`` learns it.
    clip : bool or tuple of two floats, default=True
        Whether predicted means are kept within the range of the training ratings, or within
        (low, high).
    tol : float, default=1e-6
        Rise of the lower bound per rating in one pass, in nats, below which a fit has converged.
    max_iter : int, default=100
        Largest number of passes at T = 1. 0 stops after the schedule, or at the start.
    n_init : int, default=1
        Number of restarts; the one with the best lower bound is kept.
    batch_size : int or None, default=None
        None: every update sees all users. An integer: stochastic variational inference with that
        many users per update.
    learning_offset : float, default=1.0
        τ of the step ρ_t = (τ + t)^(−κ) of updates that are damped. Larger slows the first steps.
    learning_decay : float, default=0.6
        κ of the same, in (0.5, 1] for convergence. Larger forgets less and settles sooner.
    total_samples : float or None, default=None
        Size of the whole stream for ``partial_fit``, users of matrices or ratings of pairs, whose
        annealing runs within the first tenth of it. None: what has been seen so far, and no
        annealing.
    n_jobs : int or None, default=None
        Threads for restarts, or for parts of the data where there is one restart. The result
        does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of starts and of the randomness of annealing.
    warm_start : bool, default=False
        Whether another call of ``fit`` goes on from the fitted items, at T = 1.
    verbose : int, default=0
        1 prints the lower bound and the temperature every ``verbose_interval`` passes.
    verbose_interval : int, default=10
        Passes between two prints.

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
        Posterior means of the factors of users, given the fitted items: of the training data;
        after ``partial_fit``, of the last matrix, or of all users of pairs so far.
    user_factors_cov_ : ndarray of shape (n_users, n_components, n_components)
        Their posterior covariances.
    user_biases_, user_biases_var_ : ndarray of shape (n_users,)
        Posterior means and variances of the biases of users, where there are biases.
    intercept_ : float
        μ.
    noise_variance_, factor_variance_, bias_variance_ : float
        The variances in use, learned ones too.
    n_users_, n_items_ : int
        Numbers of users and items.
    rating_range_ : tuple of two floats
        The smallest and the largest rating seen, also before a warm start.
    lower_bound_ : float
        Evidence lower bound at T = 1 of the fitted model, in nats, with every constant. In a
        stream, as the last batch estimated it, of the parameters before their update.
    lower_bounds_ : ndarray of shape (n_passes,)
        Its history, one value per pass (per call in a stream). With ``batch_size`` an estimate,
        except for the last one.
    temperatures_ : ndarray of shape (n_passes,)
        Temperature of each pass; for local tempering the mean over users, or, of pairs, over
        ratings.
    annealing_ : Annealing
        The method that ran, with all its settings. A stream without ``total_samples`` does
        not run it, and does not look for an initial temperature of ``"auto"``.
    converged_ : bool
        Whether the fit converged; for methods without a finish, whether it ran to its end.
    n_iter_ : int
        Number of passes, annealed ones included.
    restart_lower_bounds_ : ndarray of shape (n_init,)
        Lower bounds of the restarts; NaN for those that a callback kept from beginning.
    best_restart_ : int
        Which of them was kept.
    n_features_in_ : int
        Number of columns seen during ``fit``.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of columns seen during ``fit``, where X has string column names.

    Notes
    -----
    Ratings of a stream are taken for new ones. In ``partial_fit`` with ``"pairs"``, what a later
    batch says of a user is added to what earlier ones said; a rating that is given twice counts
    twice. Factors of users whom a batch leaves out stay as they were given the items of their
    time, and the lower bounds have what q(u) of a user adds in every batch with a rating of the
    user, so that they compare among batches of a size alone.

    The default variances suit ratings with weak factors, as those of films are. Where factors
    explain most of the ratings, a smaller ``noise_variance`` and a larger ``factor_variance``, or
    ``noise_variance="auto"``, predict better; a warning tells if all factors were switched off.

    References
    ----------
    .. [1] Lim, Teh (2007). Variational Bayesian approach to movie rating prediction. KDD Cup.
    .. [2] Salakhutdinov, Mnih (2008). Probabilistic matrix factorization. NIPS.
    .. [3] Paisley, Gultekin et al. SVI+: stochastic variational inference with tuneable
       stochastic annealing, section IV-A.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal import AnnealedPMF
    >>> X = np.array([[5, 4, np.nan, 1], [4, 5, 1, 1], [1, np.nan, 5, 4], [1, 2, 4, 5]])
    >>> pmf = AnnealedPMF(1, noise_variance=0.3, factor_variance=1.0, random_state=0).fit(X)
    >>> mean, std = pmf.predict_ratings(users=[0, 2], items=[2, 1], return_std=True)
    >>> mean.round(1)
    array([1.3, 2.2])
    """

    _parameter_constraints: dict = {
        **BaseAnnealed._parameter_constraints,
        "input": [StrOptions({"matrix", "pairs"})],
        "n_users": [Interval(Integral, 1, None, closed="left"), None],
        "n_items": [Interval(Integral, 1, None, closed="left"), None],
        "fit_intercept": ["boolean"],
        "biases": ["boolean"],
        "noise_variance": _VARIANCE,
        "factor_variance": _VARIANCE,
        "bias_variance": _VARIANCE,
        "clip": ["boolean", tuple],
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
        noise_variance=None,
        factor_variance=None,
        bias_variance=None,
        clip=True,
        tol=1e-6,
        max_iter=100,
        n_init=1,
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
        self.input = input
        self.annealing = annealing
        self.n_users = n_users
        self.n_items = n_items
        self.fit_intercept = fit_intercept
        self.biases = biases
        self.noise_variance = noise_variance
        self.factor_variance = factor_variance
        self.bias_variance = bias_variance
        self.clip = clip
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
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
    _kernel_module = "matrix_factorization"
    _advice_coinciding = (
        "Lower the initial temperature or give the annealing jitter, start from another "
        "random_state, or ask for fewer factors."
    )
    _model_parameters = (
        "n_components",
        "input",
        "n_items",
        "fit_intercept",
        "biases",
        "noise_variance",
        "factor_variance",
        "bias_variance",
    )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        matrix = of_matrix(self)
        # Ids count from 0.
        tags.input_tags.positive_only = not matrix
        tags.input_tags.allow_nan = matrix
        tags.input_tags.sparse = matrix
        tags.target_tags.required = not matrix
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    # What the base class asks for

    def _data(self, X: Any, y: Any, stream: bool = False) -> Any:
        """X on its way to validation, with the ratings where they are in y."""
        if of_pairs(self):
            return Pairs(X, y, stream)
        if look_like_pairs(X, y):
            warnings.warn(
                "X has two columns of integers, and y as many entries as X has rows. They are "
                "read as the ratings of two items, and y is ignored, because of "
                'input="matrix". If the columns are the ids of users and items, and y the '
                'ratings, input="pairs" was probably meant.',
                UserWarning,
                stacklevel=4 if stream else 5,
            )
        return X

    def _validate_data(self, X: Any, *, reset: bool, ensure_min_samples: int = 1) -> RatingData:
        # Whatever is asked for: a single user, and a single rating, are data.
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
        """Refuse ratings that are too large for the model that they train, or that reads them."""
        dtype = data.values.dtype if reset else self._context().model.dtype
        check_size_of_ratings(data.values, dtype)

    def _make_units(self, X: RatingData, sample_weight: np.ndarray | None) -> Ratings:  # type: ignore[override]
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
        )

    def _check_weights(
        self, sample_weight: Any, X: Any, allow_nothing: bool = False
    ) -> np.ndarray | None:
        return super()._check_weights(sample_weight, np.empty((X.shape[0], 1)), allow_nothing)

    def _check_training(self, units: Ratings) -> None:  # type: ignore[override]
        if units.n_observations == 0:
            raise ValueError(
                "There is no rating in X (or all of them have weight zero), so there is nothing "
                "to learn from."
            )

    def _check_first_batch(self, units: Ratings, model: Any) -> None:  # type: ignore[override]
        self._check_training(units)
        if not model.given_variances and model.equal_ratings(model.summary(units)):
            raise ValueError(
                "The first batch fixes the variances of the model, but its ratings are all equal. "
                "Begin with a larger batch, or give noise_variance, factor_variance and "
                "bias_variance as numbers."
            )

    def _make_model(self, X: RatingData, units: Ratings) -> MatrixFactorization:  # type: ignore[override]
        if isinstance(self.clip, tuple):
            numbers = [value for value in self.clip if isinstance(value, Real)]
            if not (len(self.clip) == len(numbers) == 2 and numbers[0] < numbers[1]):
                raise ValueError(
                    f"clip={self.clip!r} is not a range: give numbers (low, high) with low < high."
                )
        return MatrixFactorization(
            self.n_components,
            self.n_items or units.n_columns,
            bool(self.biases),
            bool(self.fit_intercept),
            _variance(self.noise_variance),
            _variance(self.factor_variance),
            _variance(self.bias_variance),
            units.values.dtype,
        )

    def _fitted_attributes(self, ctx: Context) -> dict[str, Any]:
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
        if self.biases:
            attributes["item_biases_"] = mean[:, d].copy()
            attributes["bias_variance_"] = float(model.bias_variance)
        return attributes

    def _callback_data(self, given: Any, X: Any) -> Any:
        return given.X if isinstance(given, Pairs) else given

    def _complete_fit(self, ctx: Context, units: Ratings, trace: Any) -> None:  # type: ignore[override]
        vars(ctx).update(vars(_of_items(ctx)))
        if not ctx.model.biases:
            for name in ("item_biases_", "user_biases_", "bias_variance_"):
                self.__dict__.pop(name, None)
        self._set_users(self._solved(ctx, units))

    def _warn(self, ctx: Context, trace: Any) -> None:
        super()._warn(ctx, trace)
        squares = np.square(self.components_).mean(axis=1)
        if trace.converged and squares.max() < _OFF * ctx.model.factor_variance:
            warnings.warn(
                "All factors are switched off: ratings are predicted by the mean and the biases "
                "alone. If there is more to find, give a smaller noise_variance or a larger "
                "factor_variance, fewer components, or more jitter to the annealing.",
                ConvergenceWarning,
                stacklevel=6,
            )

    def _snapshot(self, ctx: Context, units: Ratings) -> dict[str, Any]:  # type: ignore[override]
        kept = _of_items(ctx)
        return super()._snapshot(kept, units) | self._user_attributes(
            kept, self._solved(kept, units)
        )

    def _update(self, X: RatingData, units: Ratings) -> None:  # type: ignore[override]
        super()._update(X, units)
        if units.n_observations == 0:
            return
        found = self._solved(self._inference.ctx, units)
        if X.order is not None:
            known = self._known(np.arange(self._n_known(X.users.max() + 1)))
            for key, value in found.items():
                known[key][X.users] = value
            found = known
        self._set_users(found)

    def _n_known(self, at_least: int) -> int:
        kept = getattr(self, "_user_statistics", None)
        return max(at_least, self.n_users or 0, 0 if kept is None else len(kept["natural_mean"]))

    def _known(self, users: np.ndarray) -> Natural:
        """Statistics of the ratings that users of pairs have given before; 0 for new users."""
        model = self._inference.ctx.model if hasattr(self, "_inference") else None
        size = self.n_components + bool(self.biases) if model is None else model.size
        kept = getattr(self, "_user_statistics", None)
        known = {
            "precision": np.zeros((len(users), size * (size + 1) // 2)),
            "natural_mean": np.zeros((len(users), size)),
        }
        if kept is not None:
            old = users < len(kept["natural_mean"])
            for key, value in known.items():
                value[old] = kept[key][users[old]]
        return known

    def _solved(self, ctx: Context, units: Ratings) -> Natural:
        """The statistics of users given the fitted items, without the factor 1/σ²."""
        ones = np.ones(units.n_units)
        with one_thread():
            across = ctx.model.expectations(ctx.q)
            natural = ctx.model.fold_in(units, across, ones, Tempering())[2]
        prior = ctx.model.row_prior()
        noise_variance = ctx.model.noise_variance
        return {key: noise_variance * (value - prior[key]) for key, value in natural.items()}

    def _user_attributes(self, ctx: Context, statistics: Natural) -> dict[str, Any]:
        mean, d = exact(ctx).rows_of(statistics).mean, ctx.model.n_components
        attributes = {
            "_user_statistics": statistics,
            "n_users_": len(mean),
            "user_factors_": mean[:, :d].copy(),
        }
        return attributes | ({"user_biases_": mean[:, d].copy()} if ctx.model.biases else {})

    def _set_users(self, statistics: Natural) -> None:
        for name, value in self._user_attributes(self._inference.ctx, statistics).items():
            setattr(self, name, value)

    # What a user calls

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None, *, checkpoint=None):
        """Fit the model: anneal, then plain variational inference to convergence.

        A fit that is refused or interrupted leaves the estimator as it was.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items), or array-like of shape \
                (n_ratings, 2)
            Ratings as a matrix, or the ids (user, item) of each.
        y : array-like of shape (n_ratings,), default=None
            The ratings of pairs; ignored for a matrix.
        sample_weight : array-like of shape (n_users,) or (n_ratings,), default=None
            Weights of the rows of X: of users, or of ratings. A weight of 2 counts a row twice.
        checkpoint : path-like, default=None
            A folder in which the state of the fit is kept after every pass. Where it holds the
            state of an interrupted fit to the same data with the same parameters, the fit goes on
            from there, and ends as it would have ended without the interruption, bit for bit.

        Returns
        -------
        self : estimator instance
            The fitted estimator.

        Raises
        ------
        ValueError
            If data or parameters are refused, if the result is not finite, or if ``checkpoint``
            is of a fit with other data, parameters or versions.
        """
        with self._all_or_nothing():
            return self._fit(self._data(X, y), y, sample_weight, checkpoint)

    @checks_parameters
    def partial_fit(self, X, y=None, sample_weight=None):
        """Update the model with one batch of a stream of new ratings.

        The annealing schedule, however many passes it has in ``fit``, is run within the first tenth
        of ``total_samples``, and plain inference follows: one pass over the stream ends at T = 1,
        and further passes are plain. Without ``total_samples`` the end of the stream is not
        known, so that all of it is plain inference, as with ``annealing="none"``
        (``"structured"``, which has no schedule, runs throughout).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items), or array-like of shape \
                (n_ratings, 2)
            New users as rows of a matrix, or the ids (user, item) of ratings of any users.
        y : array-like of shape (n_ratings,), default=None
            The ratings of pairs; ignored for a matrix.
        sample_weight : array-like of shape (n_users,) or (n_ratings,), default=None
            Weights of the rows of X. A batch of weight zero changes nothing.

        Returns
        -------
        self : estimator instance
            The updated estimator.

        Raises
        ------
        ValueError
            If the batch or a parameter, which are checked at every call, is refused; the
            estimator is then as it was before.
        """
        with self._all_or_nothing():
            return self._partial_fit(self._data(X, y, stream=True), sample_weight)

    @available_if(of_matrix)
    @explains("Prediction")
    def transform(self, X):
        """Posterior means of the factors of users, given the fitted items.

        One exact step, whether or not the users are those of the training data. A user without
        ratings has the prior's mean, 0.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items)
            Ratings.

        Returns
        -------
        factors : ndarray of shape (n_users, n_components)
            Without biases; of the dtype of X if that is a floating one.
        """
        ctx, data = self._read(X)
        mean = self._rows(ctx, data).mean
        return mean[:, : ctx.model.n_components].astype(data.values.dtype)


# What wraps ``transform`` for ``set_output`` makes it available whatever it was before.
for _name in ("transform", "fit_transform"):
    setattr(AnnealedPMF, _name, available_if(of_matrix)(getattr(AnnealedPMF, _name)))
