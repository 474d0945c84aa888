"""The estimator of factorial mixtures."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from ..annealing import Context
from ..data.units import Rows
from ..models._componentwise import Given
from ..models.factorial_mixture import FactorialMixture
from ._attributes import Attributes
from ._base import BaseAnnealed
from ._given_starts import given_array
from ._interface import DECAY_OR_AUTO
from ._part_predictions import by_parts
from ._priors import check_first_rows, checked_prior, is_auto
from ._row_predictions import ScoresRows, UnitTemperatures
from ._tables import validated_table
from ._validation import (
    OVERFLOW,
    check_activations,
    check_n_samples,
    explains,
    finite,
    refuse_masked,
)

_VARIANCE = [Interval(Real, 0.0, None, closed="neither"), StrOptions({"auto"})]
# There are 2^K states of K components, all of which are enumerated for every row.
_MOST_ENUMERATED = 10


class AnnealedFactorialMixture(
    ScoresRows[np.ndarray, Rows, FactorialMixture],
    UnitTemperatures[np.ndarray, Rows, FactorialMixture],
):
    """Factorial mixture (sums of binary parts), fitted by annealed variational inference.

    Every row is a sum of parts that are either present or absent: x = Σ_k z_k μ_k + ε (Mandt et
    al. [1]_, Eq. 12; Ghahramani [2]_). The activations z_k ∈ {0, 1} are independent with the
    probabilities π_k, the components μ_k ~ N(0, s I) are the parts, and ε ~ N(0, σ² I) is noise.
    A mixture gives each row to one component; here any number of components can be active, so that
    K components describe 2^K kinds of rows.

    The posterior of the components is one Gaussian over all of them. ``transform`` returns the
    probabilities of the activations, and ``inverse_transform`` adds up the parts.

    Read more in the :ref:`user guide <factorial-mixtures>`.

    Parameters
    ----------
    n_components : int, default=8
        Number of components K.
    annealing : str or Annealing, default="deterministic"
        How the fit avoids the local optimum next to its start: ``"none"``, ``"reheating"``,
        ``"deterministic"``, ``"stochastic"``, ``"tempering"``, ``"local_tempering"``,
        ``"svi_plus"``, ``"structured"``, ``"proximity"``, or an instance from
        :mod:`sklearn_anneal.annealing`. A name selects the method with the settings recommended for
        factorial mixtures. ``"deterministic"`` cools from T = 100 in 70 passes. It found all parts
        of drawn data in most fits, where plain inference and reheats found them in few.
    local_step : {"mean_field", "enumerate"}, default="mean_field"
        How the activations of a row are inferred: as independent ones, which are updated in turn
        until they have converged, or exactly, over all 2^K combinations, for at most 10 components.
    noise_variance : float or "auto", default="auto"
        The variance σ² of the noise. ``"auto"`` learns it by empirical Bayes at T = 1.
    mean_variance : float or "auto", default="auto"
        The prior variance s of the entries of the components, which are expected around 0.
        ``"auto"`` learns it.
    activation_prior : float, array-like of shape (n_components,) or "auto", default="auto"
        The prior probability π of an activation, one number or one per component, between 0 and 1.
        ``"auto"`` learns one per component.
    center : bool, default=False
        Whether rows have an offset, to which components are added. It is inferred together with
        them, beginning at the mean of the data, and ``inverse_transform`` and ``sample`` add it.
        The model of the papers has no offset, so that a background that all rows share becomes one
        or more components of its own. A component that is added in some rows is one that is
        subtracted in all others; where probabilities of activations are learned, a fit returns the
        form in which no component is active more often than not.
    init_params : {"random", "random_from_data"}, default="random"
        The start of the components: random numbers from their prior, or random rows.
    means_init : array-like of shape (n_components, n_features) or None, default=None
        ``means_`` at the start, for example those of another fit. ``annealing="none"`` goes to the
        optimum next to this start. Every restart of ``n_init`` begins there too, and differs in
        the noise of annealing. A high temperature forgets the start, and the moves of ``effort``
        may leave it. A warm start, and later batches of a stream, go on from the fitted parameters
        instead. None: ``init_params`` decides.
    max_sweeps : int or None, default=None
        Largest number of times that the activations of a row are updated in a pass. None: 5 in
        passes of ``fit`` in which rows start anew, and 100 in all other cases. Predictions begin
        with up to 5 updates at each of eight temperatures from 200 on, and without them, and the
        higher bound of a row decides. ``"enumerate"`` does not use it.
    sweep_tol : float, default=1e-3
        The updates of a row end after one round that has changed no probability by more than this.
    tol : float, default=1e-6
        The fit has converged when one pass raises the lower bound by less than this, in nats per
        row.
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
        the passes that led to the first one (at least 48, or 500,000 divided by the number of rows
        if that is less). Refits of some parts to what the others leave, merges, which leave a part
        out that costs more than it brings, swaps, in which one part is given up and another one is
        sought in the residuals, short reheats with noise, and new starts take turns. The result of
        a move is kept only if its lower bound is higher, and a move is given up after a few passes
        if a higher bound is out of reach. The search ends early when every move has failed three
        times in a row. ``"auto"``: 2 if ``annealing`` is ``"deterministic"``, whose passes count
        too, 4 if it is ``"reheating"``, and 0 with other methods and in minibatches. More effort
        raises the bound further, and is worth a trial with more than 20 parts.
        ``annealing="none"``, which is plain inference, and ``"structured"`` do not search, and
        refuse a number above 0.
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
    means_ : ndarray of shape (n_components, n_features)
        Posterior means of the components μ.
    means_cov_ : ndarray of shape (n_components, n_components)
        Posterior covariance of the K entries of the components in one column of X. It is the same
        in all columns, and entries in different columns are independent.
    activation_probabilities_ : ndarray of shape (n_components,)
        Prior probabilities π of the activations that were used, or that were learned.
    noise_variance_ : float
        The variance σ² of the noise that was used, or that was learned.
    mean_variance_ : float
        The prior variance s of the components that was used, or that was learned.
    offset_ : ndarray of shape (n_features,)
        The expected row without any active component: zeros unless ``center=True``.
    n_effective_components_ : int
        Number of components that are active in more than one row, as far as is expected, and
        whose mean is longer than its uncertainty.
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
    AnnealedBayesianGaussianMixture : A mixture, in which each row belongs to one component.
    sklearn.decomposition.DictionaryLearning : Sums of parts with real weights.
    sklearn.neural_network.BernoulliRBM : Binary codes of binary data.

    Notes
    -----
    A parameter that is ``"auto"`` is learned by empirical Bayes. Learning begins when the bound
    hardly rises any more, or after half of ``max_iter`` passes; each pass then also maximises the
    bound over the parameter, for the posterior that it has found. Until then the noise variance is
    0.4 times the variance of X, the activation prior is 1/2, and the mean variance is the variance
    of X divided by the expected number of activations. With ``batch_size`` learning begins after
    100 updates, and in streams after ten and a hundred rows. If all rows are equal nothing is
    learned.

    Some solutions describe the same rows in different ways: a component that is taken away from a
    background is as good as one that is added to it, if the background is a component too.

    With ``"mean_field"``, each row starts anew at every pass until the bound no longer rises. From
    then on it starts from the result of the last pass, so that the bound can no longer fall.

    References
    ----------
    .. [1] Mandt, McInerney, Abrol, Ranganath, Blei (2016). Variational tempering. AISTATS,
       section 4.
    .. [2] Ghahramani (1995). Factorial learning and the EM algorithm. NIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal import AnnealedFactorialMixture
    >>> rng = np.random.default_rng(0)
    >>> parts = np.array([[3, 3, 0, 0], [0, 0, 2, 0]])
    >>> X = (rng.random((100, 2)) < 0.5) @ parts + 0.1 * rng.standard_normal((100, 4))
    >>> mixture = AnnealedFactorialMixture(n_components=2, random_state=0).fit(X)
    >>> codes = mixture.transform([[3, 3, 2, 0], [0, 0, 0, 0]])
    >>> codes.round(2)
    array([[1., 1.],
           [0., 0.]])
    >>> mixture.inverse_transform(codes).round(1) + 0.0
    array([[3., 3., 2., 0.],
           [0., 0., 0., 0.]])
    """

    _parameter_constraints: dict = {
        **BaseAnnealed._parameter_constraints,
        "local_step": [StrOptions({"mean_field", "enumerate"})],
        "learning_decay": DECAY_OR_AUTO,
        "noise_variance": _VARIANCE,
        "mean_variance": _VARIANCE,
        "activation_prior": [
            Interval(Real, 0.0, 1.0, closed="neither"),
            "array-like",
            StrOptions({"auto"}),
        ],
        "center": ["boolean"],
        "init_params": [StrOptions({"random", "random_from_data"})],
        "means_init": ["array-like", None],
        "max_sweeps": [Interval(Integral, 1, None, closed="left"), None],
        "sweep_tol": [Interval(Real, 0.0, None, closed="left")],
    }

    def __init__(
        self,
        n_components=8,
        *,
        annealing="deterministic",
        local_step="mean_field",
        noise_variance="auto",
        mean_variance="auto",
        activation_prior="auto",
        center=False,
        init_params="random",
        means_init=None,
        max_sweeps=None,
        sweep_tol=1e-3,
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
        self.annealing = annealing
        self.local_step = local_step
        self.noise_variance = noise_variance
        self.mean_variance = mean_variance
        self.activation_prior = activation_prior
        self.center = center
        self.init_params = init_params
        self.means_init = means_init
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

    _efforts = {"deterministic": 2.0, "reheating": 4.0}
    _kernel_modules = ("factorial_mixture",)
    _advice = (
        "the posterior precision of the components is not positive definite: the scales of the "
        "data and of the priors differ too much for floating-point numbers. Use center=True if the "
        "rows are far from zero, or rescale X, or give a larger noise_variance or a smaller "
        "mean_variance."
    )
    _advice_coinciding = (
        "Give the annealing a jitter, start from another random_state, or ask for fewer components."
    )
    _start_parameters = ("means_init",)
    _model_parameters = (
        "n_components",
        "local_step",
        "noise_variance",
        "mean_variance",
        "activation_prior",
        "center",
    )

    # Methods that the base class calls

    def _validate_data(self, X: Any, *, reset: bool, ensure_min_samples: int = 2) -> np.ndarray:
        refuse_masked(X, "X")
        return validated_table(
            self,
            X,
            reset=reset,
            dtype=[np.float64, np.float32],
            ensure_min_samples=ensure_min_samples,
        )

    def _make_units(self, X: np.ndarray, sample_weight: np.ndarray | None) -> Rows:
        return Rows(X, sample_weight)

    def _check_training(self, units: Rows) -> None:
        if units.n_units < self.n_components:
            raise ValueError(
                "Expected n_samples >= n_components but got n_components = "
                f"{self.n_components}, n_samples = {units.n_units}"
                + ("" if units.weights is None else " of positive weight")
            )

    def _check_first_batch(self, units: Rows, model: FactorialMixture) -> None:
        if model.learns or self.center:
            given = "noise_variance, mean_variance and activation_prior"
            check_first_rows(
                units.X, self.n_components, f"{given}, with center=False" if self.center else given
            )

    def _make_model(self, X: np.ndarray, units: Rows) -> FactorialMixture:
        k = self.n_components
        if self.local_step == "enumerate" and k > _MOST_ENUMERATED:
            raise ValueError(
                f"local_step='enumerate' visits all 2^{k} states of n_components={k} components "
                f"for every row, which is feasible up to n_components={_MOST_ENUMERATED}. Ask for "
                "fewer components, or use local_step='mean_field'."
            )
        activation_prior = self.activation_prior
        if not is_auto(activation_prior):
            activation_prior = checked_prior(activation_prior, None, (k,), "activation_prior")
            if not (activation_prior < 1).all():
                raise ValueError(
                    "The parameter 'activation_prior' should be below 1 everywhere: it has "
                    f"probabilities, but its largest entry is {activation_prior.max():g}."
                )
        return FactorialMixture(
            k,
            X.shape[1],
            local_step=self.local_step,
            noise_variance=self.noise_variance,
            mean_variance=self.mean_variance,
            activation_prior=activation_prior,
            center=self.center,
            init_params=self.init_params,
            max_sweeps=self.max_sweeps,
            sweep_tol=self.sweep_tol,
        )

    def _given_start(self, model: FactorialMixture) -> Given:
        shape = model.n_components, model.n_features
        return {"means": given_array(self.means_init, shape, "means_init")}

    def _fitted_attributes(self, ctx: Context) -> Attributes:
        model = ctx.model
        standard, own = model.standard(ctx.q), model.switched
        return {
            "means_": standard["mean"][own],
            "means_cov_": standard["covariance"][own, own],
            "activation_probabilities_": model.activation_prior.copy(),
            "noise_variance_": model.noise_variance,
            "mean_variance_": model.mean_variance,
            "offset_": ctx.summary.center + standard["mean"][: own.start].sum(axis=0),
            "n_effective_components_": len(model.in_use(ctx.q, ctx.prior)),
        }

    # Public methods

    @by_parts
    @explains("Prediction")
    def transform(self, X):
        """Probabilities of the activations of each row, at T = 1.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or data in parts
            Rows.

        Returns
        -------
        activations : ndarray of shape (n_samples, n_components)
            E z, in [0, 1]. The dtype is that of X if X has floating-point numbers, else float64.
        """
        X, activations, _ = self._infer(X)
        return activations.astype(X.dtype, copy=False)

    @explains("Prediction")
    def inverse_transform(self, X):
        """Add up the components of rows whose activations are given.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Activations: probabilities as :meth:`transform` returns them, or zeros and ones.

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
            E z · ``means_`` + ``offset_``, the expected rows.
        """
        ctx = self._context()
        X = check_activations(X, ctx.model.n_components)
        return (X @ self.means_ + self.offset_).astype(X.dtype, copy=False)

    @by_parts
    @explains("Prediction")
    def score_samples(self, X):
        """Log predictive density of each row, or a lower bound on it.

        The density is p(x) = Σ_z p(z) ∫ N(x; zᵀμ, σ² I) q(μ) dμ. With ``local_step="enumerate"``
        the result is its logarithm, exactly, and the density integrates to 1. With
        ``"mean_field"`` it is a lower bound on the logarithm: E log p(x, z | μ) + H[q(z)], and what
        this gains where the components answer to the row, which leaves only the uncertainty of the
        activations behind.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or data in parts
            Rows.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            Log densities, or their lower bounds, in nats.
        """
        ctx, units = self._rows(X)
        self._load_kernels()
        return finite(ctx.model.log_predictive(units, ctx.q), OVERFLOW)

    @explains("Prediction")
    def sample(self, n_samples=1):
        """Draw rows and their activations from the predictive density of the fitted model.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The rows.
        Z : ndarray of shape (n_samples, n_components)
            Their activations, 0 or 1.
        """
        ctx = self._context()
        check_n_samples(n_samples)
        rng = check_random_state(self.random_state)
        Z = (rng.uniform(size=(n_samples, len(self.means_))) < self.activation_probabilities_) * 1.0
        every, covariance = ctx.model.coefficients(Z), ctx.model.standard(ctx.q)["covariance"]
        variances = self.noise_variance_ + ((every @ covariance) * every).sum(axis=1)
        noise = np.sqrt(variances)[:, None] * rng.standard_normal((n_samples, self.n_features_in_))
        return Z @ self.means_ + self.offset_ + noise, Z

    @explains("Prediction")
    def _infer(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows, E z of shape (n_samples, n_components), and the bounds of the rows."""
        ctx, units = self._rows(X)
        self._load_kernels()
        activations, bounds = ctx.model.infer(units, ctx.q)
        finite(bounds, OVERFLOW)
        return units.X, activations, bounds
