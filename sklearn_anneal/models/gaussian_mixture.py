"""Bayesian Gaussian mixtures: the model, and the estimator that replaces scikit-learn's."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import logsumexp
from sklearn.base import ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from ..base import BaseAnnealed, has_unit_temperatures
from ..families import (
    COVARIANCE_TYPES,
    Beta,
    Dirichlet,
    Natural,
    Tempering,
    stick_breaking_log_weights,
)
from ..inference.units import Rows, Units
from ._base import Block, ConjugateModel, Factor, LocalStep, coinciding
from ._gaussian import (
    CHUNK,
    ROWS_PER_BLOCK,
    Features,
    GaussianComponents,
    Summary,
    check_first_rows,
    check_shape,
    checked_covariance_prior,
    checked_finite,
    feature_kind,
    kernels,
)

if TYPE_CHECKING:
    from ..annealing import Context

_NOTHING = np.empty(0)
_NO_MATRIX = np.empty((0, 0))


class GaussianMixture(ConjugateModel):
    """Mixture of Gaussians with Dirichlet or stick-breaking weights.

    Hyperparameters only. The natural parameters are those of :class:`GaussianComponents`, and
    ``weight_concentration`` (K,), or ``stick_a`` and ``stick_b`` (K,) for the truncated
    Dirichlet process.

    Parameters
    ----------
    n_components, n_features : int
    covariance_type : {"full", "tied", "diag", "spherical"}
    weight_prior : {"dirichlet_process", "dirichlet_distribution"}
    init_params : {"kmeans", "k-means++", "random", "random_from_data"}
    weight_concentration_prior : float or None
        None: 1 / ``n_components``.
    **components : dict
        Further parameters of :class:`GaussianComponents`.

    References
    ----------
    Bishop (2006), Pattern Recognition and Machine Learning, section 10.2; Blei and Jordan (2006)
    for the stick-breaking weights.
    """

    weight_unit: ClassVar[str] = "row"
    kernel_module: ClassVar[str] = "gaussian_mixture"
    assignments: ClassVar[bool] = True
    recommended: ClassVar[dict[str, dict[str, Any]]] = {
        "deterministic": {
            "form": "likelihood",
            "initial_temperature": "auto",
            "schedule": "geometric",
            "n_passes": 50,
            "jitter": 0.0,
        },
        "stochastic": {
            "initial_noise": 0.9,
            "schedule": "linear",
            "n_passes": 50,
            "start": "random",
        },
        "tempering": {"max_temperature": 10.0, "n_temperatures": 100, "damping": 0.05},
        "local_tempering": {"n_temperatures": 100, "n_rounds": 2},
        "svi_plus": {"effective_batch_size": 0.25, "noise": "dirichlet", "schedule": "linear"},
        "structured": {"gradient": "approximate"},
        "proximity": {"strength": 0.003, "lag": 5, "learning_rate": 0.5},
    }

    def __init__(
        self,
        n_components: int,
        n_features: int,
        covariance_type: str = "full",
        weight_prior: str = "dirichlet_process",
        init_params: str = "kmeans",
        weight_concentration_prior: float | None = None,
        **components: Any,
    ):
        self.components = GaussianComponents(
            n_components, n_features, covariance_type, **components
        )
        self.n_components = n_components
        self.weight_prior = weight_prior
        self.init_params = init_params
        self.weight_concentration_prior = (
            1.0 / n_components if weight_concentration_prior is None else weight_concentration_prior
        )

    @cached_property
    def _weights(self) -> Factor:
        if self.weight_prior == "dirichlet_process":
            return Factor(Beta(), {"a": "stick_a", "b": "stick_b"})
        return Factor(Dirichlet(), {"concentration": "weight_concentration"})

    def factors(self) -> tuple[Factor, ...]:
        return self._weights, *self.components.factors

    @property
    def blocks(self) -> tuple[Block, ...]:
        # Independent factors take turns: means, then precisions from the same local step.
        weights, *components = (tuple(f.names.values()) for f in self.factors())
        first, *others = components
        return Block(weights + first), *(Block(keys, refresh=False) for keys in others)

    def operations(self, units: Rows) -> float:
        d = self.components.n_features
        quadratic = {"full": d * (d + 1) / 2, "tied": d * (d + 1) / (2 * self.n_components)}
        own = quadratic.get(self.components.covariance_type, d) + d + 1
        return 4.0 * self.n_components * own * units.n_units

    # Data, prior and starts

    def summary(self, units: Rows) -> Summary:
        return self.components.summary(units)

    def resolved(self, summary: Summary) -> GaussianMixture:
        model = copy(self)
        model.components = self.components.resolved(summary)
        return model

    def prior(self, summary: Summary) -> Natural:
        k = self.n_components
        concentration = np.full(k, float(self.weight_concentration_prior))
        if self.weight_prior == "dirichlet_process":
            weights = {"stick_a": np.ones(k), "stick_b": concentration}
        else:
            weights = {"weight_concentration": concentration}
        return weights | self.components.prior(summary)

    def init(
        self,
        units: Rows,
        summary: Summary,
        prior: Natural,
        random_state: np.random.RandomState,
    ) -> Natural:
        responsibilities = self._initial_responsibilities(units, random_state)
        layout = self.components.covariance_type
        out = self.components.empty_statistics(layout)
        for begin in range(0, units.n_units, CHUNK):
            chunk = units.take(slice(begin, begin + CHUNK))
            r = responsibilities(slice(begin, begin + chunk.n_units))
            if chunk.weights is not None:
                r = r * chunk.weights[:, None]
            kernels().statistics_of(
                chunk.contiguous(),
                chunk.center,
                feature_kind(layout),
                np.ascontiguousarray(r, dtype=np.float64),
                ROWS_PER_BLOCK,
                out.own,
                out.shared,
            )
        scale = summary.weight / units.total_weight
        start = self.components.unpack({key: scale * value for key, value in out.pack().items()})
        if layout == "tied" and self.init_params not in ("kmeans", "random"):
            start["second"] = start["second"] + self._unassigned(start, summary)
        return self._posterior_of(start, prior)

    def _unassigned(self, start: dict[str, np.ndarray], summary: Summary) -> np.ndarray:
        """Σ x xᵀ / K of the rows without a component, about the origin of the data.

        Starts from single rows leave all other rows without a component. In the shared
        covariance of scikit-learn's class they count all the same, and to start where it does
        so must they here.
        """
        c = summary.center
        shift = np.outer(start["first"].sum(axis=0), c)
        assigned = self.n_components * start["second"] + shift + shift.T
        assigned += start["count"].sum() * np.outer(c, c)
        every = summary.scatter / summary.seen + np.outer(summary.mean, summary.mean)
        every = summary.weight * every
        return (every - assigned) / self.n_components

    def _initial_responsibilities(
        self, units: Rows, random_state: np.random.RandomState
    ) -> Callable[[slice], np.ndarray]:
        """Responsibilities of a part of the rows, with scikit-learn's order of draws."""
        n, k, weights = units.n_units, self.n_components, units.weights
        # A stream whose priors are given may begin with fewer rows than components.
        n_weighted = n if weights is None else np.count_nonzero(weights)
        if self.init_params == "random" or n_weighted < k:

            def uniform(rows: slice) -> np.ndarray:
                r = random_state.uniform(size=(rows.stop - rows.start, k))
                return r / r.sum(axis=1, keepdims=True)

            return uniform
        if self.init_params == "kmeans":
            means = KMeans(n_clusters=k, n_init=1, random_state=random_state)
            labels = means.fit(units.X, sample_weight=weights).labels_
            return lambda rows: np.equal.outer(labels[rows], np.arange(k)).astype(float)
        if self.init_params == "k-means++":
            _, chosen = kmeans_plusplus(
                units.X, k, sample_weight=weights, random_state=random_state
            )
        else:
            share = None if weights is None else weights / weights.sum()
            chosen = random_state.choice(n, size=k, replace=False, p=share)
        return lambda rows: np.equal.outer(np.arange(rows.start, rows.stop), chosen).astype(float)

    def random_natural(self, summary: Summary, prior: Natural, rng: np.random.Generator) -> Natural:
        """The posterior of a pseudo data set, with counts N Dir(1): η of stochastic annealing."""
        counts = summary.weight * rng.dirichlet(np.ones(self.n_components))
        return self._posterior_of(self.components.pseudo_data(counts, summary, rng), prior)

    def _posterior_of(self, s: Natural, prior: Natural) -> Natural:
        weights = self._weight_statistics(s["count"])
        q = {key: prior[key] + value for key, value in weights.items()}
        return q | self.components.posterior_of(s, prior)

    def block_statistics(self, block: Block, raw: Natural, q: Natural) -> Natural:
        s = self.components.unpack(raw)
        stats = self.components.statistics(block.keys, s, q)
        return stats if block.refresh is False else stats | self._weight_statistics(s["count"])

    def _weight_statistics(self, count: np.ndarray) -> Natural:
        if self.weight_prior == "dirichlet_process":
            beyond = np.append(np.cumsum(count[:0:-1])[::-1], 0.0)
            return {"stick_a": count, "stick_b": beyond}
        return {"weight_concentration": count}

    # The local step

    def log_weights(self, q: Natural) -> np.ndarray:
        """E log π, of shape (n_components,)."""
        expected = self._weights.family.expectations(self._weights.pick(q))
        if self.weight_prior == "dirichlet_process":
            return stick_breaking_log_weights(expected["a"], expected["b"])
        return expected["concentration"]

    def expectations(self, q: Natural) -> Features:
        return self.components.expectations(q, self.log_weights(q))

    def sample_expectations(
        self, q: Natural, rng: np.random.Generator
    ) -> tuple[Features, dict[str, np.ndarray]]:
        """Coefficients for one draw of all global parameters, and the draw."""
        weights = self._weights.family.sample(self._weights.pick(q), rng)
        if self.weight_prior == "dirichlet_process":
            log_weights = stick_breaking_log_weights(
                weights["log_value"], weights["log_complement"]
            )
        else:
            log_weights = weights["log_probabilities"]
        features, draw = self.components.sample_expectations(q, log_weights, rng)
        return features, draw | {"log_weights": log_weights}

    def local_step(
        self,
        units: Rows,
        expected: Features,
        t: Tempering,
        noise: np.ndarray | None = None,
        local: Any = None,
        apart: bool = False,
    ) -> LocalStep:
        out = self.components.empty_statistics(expected.layout)
        quiet = self.components.empty_statistics(expected.layout) if apart else None
        sums = np.zeros(2)
        kernels().local_step(
            units.contiguous(),
            units.center,
            feature_kind(expected.layout),
            expected.own,
            expected.shared,
            np.atleast_1d(np.asarray(t.local, dtype=np.float64)),
            np.atleast_1d(np.asarray(t.statistics, dtype=np.float64)),
            _NOTHING if units.weights is None else units.weights,
            _NOTHING if noise is None else np.asarray(noise, dtype=np.float64),
            ROWS_PER_BLOCK,
            out.own,
            out.shared,
            _NO_MATRIX if quiet is None else quiet.own,
            _NO_MATRIX if quiet is None else quiet.shared,
            sums,
        )
        step = LocalStep(out.pack(), float(sums[0]), float(sums[1]))
        if quiet is not None:
            step.statistics, step.deviation = quiet.pack(), step.statistics
        return step

    def locally_tempered_step(
        self,
        units: Rows,
        expected: Features,
        inverse_temperatures: np.ndarray,
        log_partition: np.ndarray,
        n_rounds: int,
        noise: np.ndarray | None = None,
        local: Any = None,
    ) -> LocalStep:
        """The local step with one temperature per row, its grid being m/M, m = 1, …, M."""
        # Energies are measured from where both ends of the grid weigh the same, so that the
        # terms a_m of the kernel's polynomial stay within the range of floating-point numbers.
        x = inverse_temperatures
        span = x[-1] - x[0]
        reference = float((log_partition[-1] - log_partition[0]) / span)
        exponents = x * reference - log_partition
        partition = np.exp(np.maximum(exponents - exponents.max(), -700.0))
        out = self.components.empty_statistics(expected.layout)
        found = np.empty(units.n_units)
        sums = np.zeros(3)
        kernels().locally_tempered_step(
            units.contiguous(),
            units.center,
            feature_kind(expected.layout),
            expected.own,
            expected.shared,
            partition,
            reference,
            n_rounds,
            _NOTHING if units.weights is None else units.weights,
            _NOTHING if noise is None else np.asarray(noise, dtype=np.float64),
            ROWS_PER_BLOCK,
            out.own,
            out.shared,
            found,
            sums,
        )
        return LocalStep(
            out.pack(),
            float(sums[0]),
            float(sums[1]),
            temperature=float(sums[2]),
            inverse_temperatures=found,
        )

    def log_joint(self, units: Rows, expected: Features) -> np.ndarray:
        """E log p(x_n, z_n = k) in nats, of shape (n_rows, n_components)."""
        return self.components.evaluate(units, expected)

    # What annealing methods ask for

    def assignment_entropy(self, units: Rows, q: Natural) -> float:
        """The mean entropy of the responsibilities as a share of log K.

        1 for one component, of which annealing has nothing to gain.
        """
        if self.n_components == 1:
            return 1.0
        step = self.local_step(units, self.expectations(q), Tempering())
        return step.entropy / units.total_weight / float(np.log(self.n_components))

    def unit_log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> np.ndarray:
        """log c(x) of one row, with equal weights and determinants of all components plugged in.

        Of the shape of ``x``, in nats.
        """
        mixing = (1 - x) * np.log(self.n_components)
        return self.components.tempered_log_volume(x, summary) + mixing

    def log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> np.ndarray:
        """log C(x) = N log c(x) of all rows."""
        return summary.weight * self.unit_log_partition(x, summary, q)

    def jitter(self, q: Natural, size: float, rng: np.random.Generator, prior: Natural) -> Natural:
        """Displace the means by ``size`` prior standard deviations, keeping all else."""
        return self.components.jitter(q, size, rng, prior)

    # What the fitted parameters say

    def expected_counts(self, q: Natural, prior: Natural) -> np.ndarray:
        """N_k, the expected number of rows of each component."""
        key = "stick_a" if self.weight_prior == "dirichlet_process" else "weight_concentration"
        return q[key] - prior[key]

    def mean_weights(self, q: Natural) -> np.ndarray:
        """E[π], renormalised over the truncation, of shape (n_components,)."""
        if self.weight_prior == "dirichlet_process":
            total = q["stick_a"] + q["stick_b"]
            log_weights = stick_breaking_log_weights(
                np.log(q["stick_a"] / total), np.log(q["stick_b"] / total)
            )
            return np.exp(log_weights - logsumexp(log_weights))
        return q["weight_concentration"] / q["weight_concentration"].sum()

    def log_predictive(self, units: Rows, q: Natural) -> np.ndarray:
        """Log posterior predictive density of each row in nats, shape (n_rows,)."""
        log_weights = np.log(self.mean_weights(q))
        return logsumexp(self.components.log_student_t(units, q) + log_weights, axis=1)

    def coinciding(self, q: Natural, summary: Summary, prior: Natural) -> list[tuple[int, int]]:
        used = np.flatnonzero(self.expected_counts(q, prior) >= 1)
        return coinciding(self.components.coordinates(q, summary), used)


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
        Rows of the whole stream for ``partial_fit``; None: those seen so far.
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
        The method that ran, with all its settings.
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
        if model.weight_prior == "dirichlet_process":
            concentration: Any = (q["stick_a"], q["stick_b"])
        else:
            concentration = q["weight_concentration"]
        return {
            "weight_concentration_": concentration,
            "weights_": model.mean_weights(q),
            "mean_precision_": standard["mean_precision"],
            "means_": standard["mean"] + ctx.summary.center,
            "degrees_of_freedom_": dof if dof.ndim else float(dof),
            "covariances_": covariances,
            "precisions_cholesky_": precisions_cholesky,
            "precisions_": precisions,
            "n_effective_components_": int((model.expected_counts(q, ctx.prior) > 1).sum()),
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
        return checked_finite(ctx.model.log_predictive(units, ctx.q))

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
        return validate_data(self, X, reset=False, dtype=[np.float64, np.float32])

    def _log_joint(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        ctx, X = self._context(), self._validate_again(X)
        units = Rows(X, None, ctx.summary.center)
        return X, checked_finite(ctx.model.log_joint(units, ctx.model.expectations(ctx.q)))
