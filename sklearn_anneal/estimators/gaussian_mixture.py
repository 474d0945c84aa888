"""The estimator that replaces scikit-learn's Bayesian Gaussian mixture."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from ..families import (
    COVARIANCE_TYPES,
)
from ..inference.units import Rows, Units
from ..models.gaussian_mixture import GaussianMixture
from ._base import BaseAnnealed, has_unit_temperatures
from ._priors import check_first_rows, check_shape, checked_covariance_prior
from ._validation import explains, finite, refuse_masked

if TYPE_CHECKING:
    from ..annealing import Context

_OVERFLOW = (
    "X has rows so far from the training data that their squared distances overflow. Check their "
    "units, or rescale X before fitting and predicting."
)


class AnnealedBayesianGaussianMixture(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityMixin, BaseAnnealed
):
    """Bayesian Gaussian mixture, fitted by annealed variational inference.

    It replaces :class:`sklearn.mixture.BayesianGaussianMixture` by a change of the class name:
    parameters, methods and attributes of that class have the same names, shapes and meaning, and
    ``annealing="none"`` runs the same algorithm from the same start. What differs on purpose:

    - ``tol`` is the rise of the lower bound per row and pass, not of the total: divide the
      tolerance of scikit-learn's class by the number of rows;
    - ``max_iter`` counts the passes at T = 1 only, after those of the annealing schedule;
    - ``lower_bound_`` is complete, so that fits with different ``n_components`` compare;
    - ``score_samples`` and ``score`` are the posterior predictive density (a mixture of
      Student-t densities), which integrates to 1.

    Parameters
    ----------
    n_components : int, default=1
        Number of mixture components. Components that the data do not support end with a weight
        near zero.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        Restriction of the scale matrices of the posterior over precisions.
    annealing : str or Annealing, default="deterministic"
        How the fit avoids the local optimum next to its start: ``"none"``,
        ``"deterministic"``, ``"stochastic"``, ``"tempering"``, ``"local_tempering"``,
        ``"svi_plus"``, ``"structured"``, ``"proximity"``, or an instance from
        :mod:`sklearn_anneal.annealing`. A name stands for the settings recommended for mixtures.
    tol : float, default=1e-6
        Rise of the lower bound per row in one pass, in nats, below which a fit has converged.
    reg_covar : float, default=1e-6
        Added to the diagonal of the covariances, in proportion to the rows of a component.
    max_iter : int, default=100
        Largest number of passes at T = 1. 0 stops after the schedule, or at the start.
    n_init : int, default=1
        Number of restarts; the one with the best lower bound is kept.
    init_params : {"kmeans", "k-means++", "random", "random_from_data"}, default="kmeans"
        How the responsibilities start: the labels of k-means; single rows, chosen by k-means++
        or at random, all others being of no component; or uniform random numbers. With
        ``batch_size``, those of a random subset. Where a stream begins with fewer rows than
        components, they are random.
    weight_concentration_prior_type : {"dirichlet_process", "dirichlet_distribution"}, \
            default="dirichlet_process"
        Prior of the weights: truncated stick-breaking or a finite Dirichlet distribution.
    weight_concentration_prior : float or None, default=None
        Concentration of that prior (γ and α₀ in the literature); None: 1 / ``n_components``.
    mean_precision_prior : float or None, default=None
        Precision of the prior of the means, in units of a component's precision (β₀); None: 1.
    mean_prior : array-like of shape (n_features,), default=None
        Mean of the prior of the means (m₀); None: the mean of the data.
    degrees_of_freedom_prior : float or None, default=None
        Degrees of freedom of the Wishart prior (ν₀), above n_features − 1; None: n_features.
    covariance_prior : float or array-like, default=None
        Inverse scale of the Wishart prior (W₀⁻¹); None: the covariance of the data. Shape
        (n_features, n_features) for "full" and "tied", (n_features,) for "diag", a number for
        "spherical".
    factorization : {"joint", "independent"}, default="joint"
        Posterior of mean and precision of a component: a Normal–Wishart distribution, or
        independent Gaussian and Wishart factors. The second has a lower bound and is here to
        reproduce results that were obtained with it.
    batch_size : int or None, default=None
        None: every update sees all rows. An integer: stochastic variational inference with that
        many rows per update; starts and automatic temperatures then see a random subset of
        max(20000, 10 ``batch_size``) rows.
    learning_offset : float, default=1.0
        τ of the step ρ_t = (τ + t)^(−κ) of updates that are damped. Larger slows the first steps.
    learning_decay : float, default=0.6
        κ of the same, in (0.5, 1] for convergence. Larger forgets less and settles sooner.
    total_samples : float or None, default=None
        Rows of the whole stream for ``partial_fit``, whose annealing runs within the first tenth
        of them. None: those seen so far, and no annealing.
    n_jobs : int or None, default=None
        Threads for restarts, or for parts of the data where there is one restart. The result
        does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of starts and of the randomness of annealing.
    warm_start : bool, default=False
        Whether another call of ``fit`` goes on from the fitted parameters, at T = 1.
    verbose : int, default=0
        1 prints the lower bound and the temperature every ``verbose_interval`` passes.
    verbose_interval : int, default=10
        Passes between two prints.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
        Weights of the components.
    means_ : ndarray of shape (n_components, n_features)
        Means of the components.
    covariances_ : ndarray
        Covariances, of shape (n_components, n_features, n_features) for "full", (n_features,
        n_features) for "tied", (n_components, n_features) for "diag", (n_components,) for
        "spherical".
    precisions_ : ndarray
        Their inverses, of the same shape.
    precisions_cholesky_ : ndarray
        Cholesky factors of the precisions, of the same shape.
    lower_bound_ : float
        Evidence lower bound at T = 1 of the fitted model, in nats, with every constant. In a
        stream, as the last batch estimated it, of the parameters before their update.
    lower_bounds_ : ndarray of shape (n_passes,)
        Its history, one value per pass (per call in a stream). With ``batch_size`` an estimate,
        except for the last one. While annealing, the bound is that of the tempered
        responsibilities, which is a little lower than the best for the same parameters.
    temperatures_ : ndarray of shape (n_passes,)
        Temperature of each pass; the mean over rows for local tempering.
    annealing_ : Annealing
        The method that ran, with all its settings. A stream without ``total_samples`` does
        not run it, and does not look for an initial temperature of ``"auto"``.
    converged_ : bool
        Whether the fit converged; for methods without a finish, whether it ran to its end.
    n_iter_ : int
        Number of passes, annealed ones included.
    restart_lower_bounds_ : ndarray of shape (n_init,)
        Lower bounds of the restarts; NaN for those that a callback kept from beginning. One
        value after ``partial_fit`` or a warm start.
    best_restart_ : int
        Which of them was kept.
    n_effective_components_ : int
        Number of components whose expected count of rows exceeds 1.
    weight_concentration_ : tuple of two ndarrays, or ndarray, of shape (n_components,)
        Parameters of the posterior of the weights: both of the Beta distributions for
        "dirichlet_process", the concentration for "dirichlet_distribution".
    mean_precision_ : ndarray of shape (n_components,)
        β_k. For "independent", the precision matrices of the means, shaped as the covariance
        type says (full matrices for "tied").
    degrees_of_freedom_ : ndarray of shape (n_components,), or float for "tied"
        ν_k.
    weight_concentration_prior_, mean_precision_prior_, degrees_of_freedom_prior_ : float
        The priors in use.
    mean_prior_ : ndarray of shape (n_features,)
        The prior mean in use.
    covariance_prior_ : float or ndarray
        The prior inverse scale in use.
    n_features_in_ : int
        Number of features seen during ``fit``.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during ``fit``, where X has string column names.

    See Also
    --------
    sklearn.mixture.BayesianGaussianMixture : The class that this one replaces.

    References
    ----------
    .. [1] Bishop (2006). Pattern Recognition and Machine Learning, section 10.2.
    .. [2] Blei, Jordan (2006). Variational inference for Dirichlet process mixtures. Bayesian
       Analysis 1.
    .. [3] Mandt, McInerney, Abrol, Ranganath, Blei (2016). Variational tempering. AISTATS.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal import AnnealedBayesianGaussianMixture
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [4, 2], [12, 4], [10, 7]])
    >>> mixture = AnnealedBayesianGaussianMixture(n_components=2, random_state=42).fit(X)
    >>> mixture.means_.round(1)
    array([[2.5, 2.3],
           [8.4, 4.5]])
    >>> mixture.predict([[0, 0], [9, 3]])
    array([0, 1])
    """

    _parameter_constraints: dict = {
        **BaseAnnealed._parameter_constraints,
        "covariance_type": [StrOptions(set(COVARIANCE_TYPES))],
        "reg_covar": [Interval(Real, 0.0, None, closed="left")],
        "init_params": [StrOptions({"kmeans", "k-means++", "random", "random_from_data"})],
        "weight_concentration_prior_type": [
            StrOptions({"dirichlet_process", "dirichlet_distribution"})
        ],
        "weight_concentration_prior": [None, Interval(Real, 0.0, None, closed="neither")],
        "mean_precision_prior": [None, Interval(Real, 0.0, None, closed="neither")],
        "mean_prior": [None, "array-like"],
        "degrees_of_freedom_prior": [None, Interval(Real, 0.0, None, closed="neither")],
        "covariance_prior": [None, "array-like", Interval(Real, 0.0, None, closed="neither")],
        "factorization": [StrOptions({"joint", "independent"})],
    }

    def __init__(
        self,
        *,
        n_components=1,
        covariance_type="full",
        annealing="deterministic",
        tol=1e-6,
        reg_covar=1e-6,
        max_iter=100,
        n_init=1,
        init_params="kmeans",
        weight_concentration_prior_type="dirichlet_process",
        weight_concentration_prior=None,
        mean_precision_prior=None,
        mean_prior=None,
        degrees_of_freedom_prior=None,
        covariance_prior=None,
        factorization="joint",
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
        self.covariance_type = covariance_type
        self.annealing = annealing
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weight_concentration_prior_type = weight_concentration_prior_type
        self.weight_concentration_prior = weight_concentration_prior
        self.mean_precision_prior = mean_precision_prior
        self.mean_prior = mean_prior
        self.degrees_of_freedom_prior = degrees_of_freedom_prior
        self.covariance_prior = covariance_prior
        self.factorization = factorization
        self.batch_size = batch_size
        self.learning_offset = learning_offset
        self.learning_decay = learning_decay
        self.total_samples = total_samples
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    _kernel_module = "gaussian_mixture"
    _advice = (
        "some components have ill-defined covariances (of too few rows, or of rows whose scales "
        "differ too much for floating-point numbers). Increase reg_covar, ask for fewer "
        "components, give a larger covariance_prior, or rescale X."
    )
    _advice_coinciding = (
        "Lower the initial temperature or give the annealing jitter, start from another "
        "init_params or random_state, or ask for fewer components."
    )
    _model_parameters = (
        "n_components",
        "covariance_type",
        "weight_concentration_prior_type",
        "weight_concentration_prior",
        "mean_precision_prior",
        "mean_prior",
        "degrees_of_freedom_prior",
        "covariance_prior",
        "factorization",
        "reg_covar",
    )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.means_.shape[0]

    # What the base class asks for

    def _validate_data(self, X: Any, *, reset: bool, ensure_min_samples: int = 2) -> np.ndarray:
        refuse_masked(X, "X")
        return validate_data(
            self,
            X,
            reset=reset,
            dtype=[np.float64, np.float32],
            ensure_min_samples=ensure_min_samples,
        )

    def _make_units(self, X: np.ndarray, sample_weight: np.ndarray | None) -> Rows:
        return Rows(X, sample_weight)

    def _check_training(self, units: Units) -> None:
        n_samples = units.n_units if units.weights is None else np.count_nonzero(units.weights)
        if n_samples < self.n_components:
            raise ValueError(
                "Expected n_samples >= n_components but got n_components = "
                f"{self.n_components}, n_samples = {n_samples}"
                + ("" if units.weights is None else " of positive weight")
            )

    def _check_first_batch(self, units: Rows, model: Any) -> None:  # type: ignore[override]
        if self.mean_prior is None or self.covariance_prior is None:
            X = units.X if units.weights is None else units.X[units.weights > 0]
            check_first_rows(X, self.n_components, "mean_prior and covariance_prior")

    def _make_model(self, X: np.ndarray, units: Units) -> GaussianMixture:
        n_features = X.shape[1]
        dof = self.degrees_of_freedom_prior
        if dof is not None and dof <= n_features - 1:
            raise ValueError(
                "The parameter 'degrees_of_freedom_prior' should be greater than "
                f"{n_features - 1}, but got {dof:.3f}."
            )
        mean = self.mean_prior
        if mean is not None:
            mean = check_array(mean, dtype=np.float64, ensure_2d=False, input_name="mean_prior")
            check_shape(mean, (n_features,), "mean_prior")
        return GaussianMixture(
            self.n_components,
            n_features,
            self.covariance_type,
            self.weight_concentration_prior_type,
            self.init_params,
            self.weight_concentration_prior,
            factorization=self.factorization,
            reg_covar=self.reg_covar,
            mean_precision_prior=self.mean_precision_prior,
            mean_prior=mean,
            degrees_of_freedom_prior=dof,
            covariance_prior=checked_covariance_prior(
                self.covariance_prior, self.covariance_type, n_features, "covariance_prior"
            ),
        )

    def _fitted_attributes(self, ctx: Context) -> dict[str, Any]:
        model, q = ctx.model, ctx.q
        components = model.components
        standard = components.standard(q)
        structure = components.structure
        dof = standard["dof"]
        covariances = components.covariances(standard["inverse_scale"], dof)
        if structure.event_ndim == 2:
            root = np.linalg.cholesky(covariances)
            precisions_cholesky = np.swapaxes(np.linalg.inv(root), -1, -2)
            precisions = precisions_cholesky @ np.swapaxes(precisions_cholesky, -1, -2)
        else:
            precisions_cholesky = 1.0 / np.sqrt(covariances)
            precisions = precisions_cholesky**2
        if self.weight_concentration_prior_type == "dirichlet_process":
            concentration: Any = (q["stick_a"], q["stick_b"])
        else:
            concentration = q["weight_concentration"]
        return {
            "weight_concentration_": concentration,
            "weights_": model.weights.mean(q),
            "mean_precision_": standard["mean_precision"],
            "means_": standard["mean"] + ctx.summary.center,
            "degrees_of_freedom_": dof if dof.ndim else float(dof),
            "covariances_": covariances,
            "precisions_cholesky_": precisions_cholesky,
            "precisions_": precisions,
            "n_effective_components_": int((model.weights.expected_counts(q, ctx.prior) > 1).sum()),
            "weight_concentration_prior_": model.weight_concentration_prior,
            "mean_precision_prior_": components.mean_precision_prior,
            "mean_prior_": components.mean_prior,
            "degrees_of_freedom_prior_": components.degrees_of_freedom_prior,
            "covariance_prior_": components.covariance_prior,
        }

    # What a user calls

    def fit_predict(self, X, y=None, sample_weight=None):
        """Fit the model and return the most probable component of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training data.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Component labels.
        """
        return self.fit(X, y, sample_weight=sample_weight).predict(X)

    def predict(self, X):
        """Most probable component of each row, by the variational responsibilities at T = 1.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Component labels.
        """
        _, joint = self._log_joint(X)
        return joint.argmax(axis=1)

    def predict_proba(self, X):
        """Variational responsibilities of the components for each row, at T = 1.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        responsibilities : ndarray of shape (n_samples, n_components)
            They sum to 1 over the components; of the dtype of X if that is a floating one.
        """
        X, joint = self._log_joint(X)
        joint -= joint.max(axis=1, keepdims=True)
        np.exp(joint, out=joint)
        joint /= joint.sum(axis=1, keepdims=True)
        return joint.astype(X.dtype, copy=False)

    def transform(self, X):
        """Responsibilities of the components for each row, as :meth:`predict_proba`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        responsibilities : ndarray of shape (n_samples, n_components)
            One column per component.
        """
        return self.predict_proba(X)

    @explains("Prediction")
    def score_samples(self, X):
        """Log of the posterior predictive density of each row.

        The density is a mixture of Student-t densities, with the expected weights; it integrates
        to 1. For ``factorization="independent"`` the components are approximated by Student-t
        densities whose scale adds the uncertainty of the mean.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            In nats.
        """
        ctx, X = self._context(), self._validate_again(X)
        units = Rows(X, None, ctx.summary.center)
        return finite(ctx.model.log_predictive(units, ctx.q), _OVERFLOW)

    def score(self, X, y=None, sample_weight=None):
        """Mean log predictive density per row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the mean.

        Returns
        -------
        log_density : float
            In nats per row; higher is better.
        """
        scores = self.score_samples(X)
        weights = self._check_weights(sample_weight, np.asarray(scores))
        return float(np.average(scores, weights=weights))

    @explains("Sampling")
    def sample(self, n_samples=1, *, predictive=False):
        """Draw rows from the fitted mixture.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        predictive : bool, default=False
            Whether to draw from the posterior predictive density, as :meth:`score_samples` has
            it, and not from Gaussians with the fitted means and covariances.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The rows, sorted by component.
        y : ndarray of shape (n_samples,)
            Their components.
        """
        ctx = self._context()
        if n_samples < 1:
            raise ValueError(
                f"Invalid value for 'n_samples': {n_samples} . The sampling requires at least "
                "one sample."
            )
        random_state = check_random_state(self.random_state)
        counts = random_state.multinomial(n_samples, self.weights_)
        n_features = self.means_.shape[1]
        labels = np.repeat(np.arange(len(counts)), counts)
        if predictive:
            dof, mean, scale = ctx.model.components.student_t(ctx.q)
            root = np.linalg.cholesky(scale)
            noise = random_state.standard_normal((n_samples, n_features))
            noise /= np.sqrt(random_state.chisquare(dof[labels]) / dof[labels])[:, None]
            rows = (root[labels] @ noise[..., None])[..., 0]
            return mean[labels] + ctx.summary.center + rows, labels
        parts = []
        for k, count in enumerate(counts):
            shared = ctx.model.components.structure.shared
            covariance = self.covariances_ if shared else self.covariances_[k]
            if np.ndim(covariance) == 2:
                part = random_state.multivariate_normal(self.means_[k], covariance, int(count))
            else:
                noise = random_state.standard_normal(size=(count, n_features))
                part = self.means_[k] + noise * np.sqrt(covariance)
            parts.append(part)
        return np.vstack(parts), labels

    @available_if(has_unit_temperatures)
    @explains("Prediction")
    def inverse_temperatures(self, X):
        """Expected inverse temperature of each row, low for outliers.

        Only for ``annealing="local_tempering"``: how much of a row's likelihood the fitted model
        would listen to.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        inverse_temperatures : ndarray of shape (n_samples,)
            E[1/T], in (0, 1].
        """
        ctx, X = self._context(), self._validate_again(X)
        units = Rows(X, None, ctx.summary.center)
        return self.annealing_.inverse_temperatures(ctx, units)

    def _validate_again(self, X: Any) -> np.ndarray:
        return self._validate_data(X, reset=False, ensure_min_samples=1)

    @explains("Prediction")
    def _log_joint(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        ctx, X = self._context(), self._validate_again(X)
        units = Rows(X, None, ctx.summary.center)
        joint = ctx.model.log_joint(units, ctx.model.expectations(ctx.q))
        return X, finite(joint, _OVERFLOW)
