"""The estimator of Gaussian mixtures, which can replace the one of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import StrOptions

from ..annealing import Context
from ..data.units import Rows, cell_patterns
from ..families import (
    COVARIANCE_TYPES,
)
from ..models._componentwise import Given
from ..models.components.fused_gaussian import FusedGaussian
from ..models.mixture import Mixture
from ._attributes import Attributes
from ._conditionals import conditional_sample
from ._covariates import NO_SAMPLES
from ._draws import drawn_tables, wants_draws
from ._given_starts import given_array, given_precisions, given_probabilities
from ._interface import DECAY_OR_AUTO
from ._known_classes import KnownClasses
from ._mixture_predictions import POSITIVE, MixturePredictions
from ._part_predictions import by_parts
from ._priors import (
    check_first_rows,
    check_shape,
    checked_covariance_prior,
    is_auto,
    warn_of_regularisation,
)
from ._tables import in_frames, validated_table
from ._validation import (
    check_n_samples,
    explains,
    refuse_masked,
    refuse_unobserved_columns,
)


class AnnealedBayesianGaussianMixture(MixturePredictions[np.ndarray]):
    """Bayesian Gaussian mixture, fitted by annealed variational inference.

    To use it in place of :class:`sklearn.mixture.BayesianGaussianMixture`, change the name of the
    class. The parameters, methods and attributes of that class exist here with the same names,
    shapes and meaning, and ``annealing="none"`` runs the same algorithm from the same start.
    There are five intended differences:

    - ``tol`` is a rise of the lower bound per row, not of the total bound. To keep a tolerance
      of scikit-learn's class, divide it by the number of rows.
    - ``max_iter`` counts only the passes at T = 1, which follow those of the annealing schedule.
    - ``lower_bound_`` includes all constants, so that fits with different ``n_components`` can
      be compared by it.
    - ``score_samples`` and ``score`` evaluate the posterior predictive density (a mixture of
      Student-t densities), which integrates to 1.
    - Priors that are not given are learned (see Notes), which fits most data better, in the lower
      bound and in the density of new rows. None for each of them selects those of scikit-learn.

    Read more in the :ref:`user guide <gaussian-mixtures>`.

    Parameters
    ----------
    n_components : int or "auto", default=1
        Number of mixture components. Components that the data do not support end up with a weight
        near zero. ``"auto"``: fits with several numbers are compared by their lower bounds and
        by the densities of rows given the other rows, beginning with 1, 2, 4, …, until a third of
        the components stay unused. With ten columns or more, cross-validation decides between the
        numbers that these two prefer, and one component. The best fit then goes on
        (:ref:`how-many`). It takes several times as long as one fit, and needs all data at once, so
        that ``partial_fit`` has to follow a fit.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        How the scale matrices of the posterior over precisions are restricted: one unrestricted
        matrix per component, one matrix that all components share, one diagonal matrix per
        component, or one number per component. ``"tied"`` is the model of scikit-learn, one matrix
        per component with the same posterior for all. From fewer than two rows per column, with
        ``covariance_prior="auto"``, components have one matrix in common, whose prior is learned.
    annealing : str or Annealing, default="reheating"
        How the fit avoids the local optimum next to its start: ``"none"``, ``"reheating"``,
        ``"deterministic"``, ``"stochastic"``, ``"tempering"``, ``"local_tempering"``,
        ``"svi_plus"``, ``"structured"``, ``"proximity"``, or an instance from
        :mod:`sklearn_anneal.annealing`. A name selects the method with the settings recommended for
        mixtures. ``"reheating"`` had a better bound and a better held-out density than ten usual
        restarts on most real data.
    tol : float, default=1e-6
        The fit has converged when one pass raises the lower bound by less than this, in nats per
        row.
    reg_covar : float, default=1e-6
        Regularisation that is added to the diagonal of the covariances, in proportion to the number
        of rows of the component. If a prior of means or covariances is learned, rows have noise of
        this variance, whose share of the lower bound is -reg_covar / 2 times the trace of the
        expected precision matrix for each row. The bound then falls by rounding errors alone.
        Otherwise it has no such term, as that of scikit-learn's class, and may fall where
        components are about as small.
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
        if that is less). Merges of components, swaps, in which one is given up and another one
        divided, short reheats with noise, and starts of other kinds take turns. The result of a
        move is kept only if its lower bound is higher, and a move is given up after a few passes if
        a higher bound is out of reach. The search ends early when every move has failed three times
        in a row. ``"auto"``: 4 if ``annealing`` is ``"reheating"`` or finds no initial temperature
        above 1, but 1 for full covariances of 750 columns and more from fewer than two rows per
        column, whose passes take about a second, and 0 with other methods and in minibatches. More
        effort raises the bound further. ``annealing="none"``, which is plain inference, and
        ``"structured"`` do not search, and refuse a number above 0. With
        ``n_components_per_class``, ``"auto"`` is 0: labels lead to the optimum in which components
        are the classes, and one of a higher bound may cross them.
    init_params : {"kmeans", "k-means++", "random", "random_from_data"}, default="kmeans"
        How the responsibilities are initialised. ``"kmeans"`` takes the labels of k-means. With
        known classes, it is constrained k-means of standardised columns, whose means begin at rows
        with labels; the other starts respect classes as well.
        ``"k-means++"`` and ``"random_from_data"`` assign a single row to each component, chosen by
        k-means++ or at random, and leave all other rows without a component. ``"random"`` draws
        uniform random numbers. With ``batch_size`` this is done for a random subset of the rows. A
        stream that begins with fewer rows than components starts with random responsibilities.
    weights_init : array-like of shape (n_components,) or None, default=None
        Weights of the components at the start, which sum to 1. None: those of ``init_params``.
    means_init : array-like of shape (n_components, n_features) or None, default=None
        Means of the components at the start. The start is the posterior given as many rows as there
        are, with the given weights, means and precisions. Parameters that are not given are taken
        from the start that ``init_params`` makes, after its components have been matched with the
        given ones. ``annealing="none"`` goes to the optimum next to this start. Every restart of
        ``n_init`` begins there too, and differs in the noise of annealing, and in the parts that
        are not given. A high temperature forgets the start, and the moves of ``effort`` may leave
        it and change the order of the components: with ``effort=0`` there are none. A warm start,
        and later batches of a stream, go on from the fitted parameters instead. None: those of
        ``init_params``.
    precisions_init : array-like or None, default=None
        Precisions of the components at the start, the inverses of their covariances, in the shape
        of ``precisions_``. None: those of ``init_params``.
    weight_concentration_prior_type : {"dirichlet_process", "dirichlet_distribution"}, \
            default="dirichlet_process"
        Prior of the weights: a truncated stick-breaking process, or a finite Dirichlet
        distribution.
    weight_concentration_prior : float, "auto" or None, default="auto"
        Concentration of the prior of the weights (γ or α₀ in the literature). ``"auto"``: learned,
        between 1e-4 and 1e4. It is large if components have similar weights, so that fewer of them
        are switched off. With "dirichlet_process", the last component then takes all of the
        remaining weight (Ishwaran and James, 2001), so that the bounds of different
        ``n_components`` compare, and a component that the data do not need lowers the bound. None:
        1 / ``n_components``, as in scikit-learn, which switches off more; the process goes on
        beyond the last component.
    mean_precision_prior : float, "auto" or None, default="auto"
        Precision of the prior of the means (β₀), in units of the precision of the component.
        ``"auto"``: learned, and not larger than the number of rows, so that it fits how far the
        components lie apart. None: 1, as in scikit-learn.
    mean_prior : array-like of shape (n_features,), "auto" or None, default="auto"
        Mean of the prior of the means (m₀). ``"auto"``: learned, as a mean of the components' means
        in which all components count, whatever their weights. None: the mean of the data, as in
        scikit-learn.
    degrees_of_freedom_prior : float, "auto" or None, default="auto"
        Degrees of freedom of the Wishart prior (ν₀), a number above n_features − 1. ``"auto"``:
        learned, between n_features and n_features plus the number of rows per component. With a
        diagonal ``covariance_prior`` the limits are n_features · n_rows / (n_rows − n_components)
        and n_features plus ten times all rows, or the first one if it is larger, also where the
        diagonal has become a matrix. It is large if the components have similar covariances, and
        then small components borrow their covariance from the others. If ``covariance_prior`` is
        not learned as well, it seldom leaves its lower limit. For "tied" it is learned where
        ``covariance_prior`` is. None: n_features, as in scikit-learn.
    covariance_prior : float, array-like, "auto" or None, default="auto"
        Inverse scale of the Wishart prior (W₀⁻¹). Its shape is (n_features, n_features) for "full"
        and "tied" and (n_features,) for "diag"; it is a number for "spherical". ``"auto"``:
        learned, which fits real data better than None in the bound and in the density of new rows.
        None: the covariance of the data, as in scikit-learn. This prior expects clusters that are
        ``degrees_of_freedom_prior`` times tighter than all data together. With ``"auto"`` each
        component has a multiple of one inverse scale: W₀⁻¹ = s_k V, with sizes s_k ~ Gamma(a, a)
        that are inferred and a and V that are learned, because components of real data often differ
        in size and agree in shape (``factorization="joint"`` only). From 10 n_features rows on (for
        "diag", any number) V is the matrix at which the bound is highest. With fewer rows this
        matrix would repeat the data. V then has a Wishart prior of its own, whose diagonal mean and
        strength are learned. A diagonal V, which is the limit of an infinite strength, makes
        columns independent a priori, so that variances in directions without data come from the
        columns. V becomes a matrix where the bound is higher, but not in minibatches and streams,
        nor if the covariance of the data is not positive definite. A stream takes the number of
        rows of its first batch. With ``factorization="independent"`` V is diagonal with fewer than
        2 n_features rows, and the best matrix with more. For "tied" the prior is learned from fewer
        than 2 n_features rows, and ``"auto"`` is None with more: with a learned prior, tied
        covariances predict new rows of most real data worse then. With independent factors the
        inverse of this matrix, times ``mean_precision_prior``, is also the precision of the prior
        of the means. It is then learned from the means too.
    factorization : {"joint", "independent"}, default="joint"
        Form of the posterior of the mean and the precision of a component: a joint Normal–Wishart
        distribution, or a Gaussian and a Wishart distribution that are independent. Independent
        factors give a lower bound that is further below the evidence; they are available to
        reproduce results that were obtained with them.
    n_components_per_class : int, dict or None, default=None
        None: ``y`` is ignored, as by mixtures of scikit-learn. A number makes the estimator a
        classifier, whose components belong to classes: it is the number of components of each
        class, or a dictionary has one for each class. ``fit`` then reads the classes of rows from
        ``y``, in which −1, None or NaN stand for an unknown class. Rows whose class is known belong
        to components of this class alone, at every temperature and in every move of the search, and
        others to any (:ref:`known-classes`). ``predict`` returns classes, ``predict_proba`` their
        probabilities, and ``score`` the accuracy. ``n_components`` is left out then, since it is
        the sum over classes; parameters that have a value for each component have those of the
        first class first, in the order of ``classes_``; those of −1, new classes, are last.
    n_unlabelled_components : int, default=0
        Number of further components, which belong to classes that no label names. Rows of known
        class keep away from them. ``predict`` returns −1 for rows of these components, and −1 is
        the first of ``classes_``. It needs ``n_components_per_class``.
    coefficients_prior : float or "auto", default=2.5
        Prior standard deviation of the coefficients of covariates, in units of the inverse
        standard deviation of each; it is read only if :meth:`fit` has ``covariates``. The
        coefficients of each component have it, and the intercepts 5. ``"auto"``: learned, one
        for all covariates, which shrinks coefficients that the data do not need.
    batch_size : int or None, default=None
        None: every update uses all rows. An integer: stochastic variational inference runs with
        that many rows per update. The starts and the automatic temperatures are then determined
        from a random subset of max(20000, 10 ``batch_size``) rows.
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
    weights_ : ndarray of shape (n_components,)
        Weights of the components.
    means_ : ndarray of shape (n_components, n_features)
        Means of the components.
    covariances_ : ndarray
        Covariances, of shape (n_components, n_features, n_features) for "full", (n_features,
        n_features) for "tied", (n_components, n_features) for "diag", (n_components,) for
        "spherical".
    precisions_ : ndarray
        The inverses of the covariances, of the same shape.
    precisions_cholesky_ : ndarray
        Cholesky factors of the precisions, of the same shape.
    lower_bound_ : float
        Evidence lower bound of the fitted model at T = 1, in nats, with all constants. In a stream,
        it is the estimate that the last batch gave for the parameters before their update.
    lower_bounds_ : ndarray of shape (n_passes,)
        The lower bound after each pass (in a stream, at each call). With ``batch_size`` all values
        but the last are estimates. During annealing the bound is evaluated with the tempered
        responsibilities, and is therefore a little lower than the best bound for the same
        parameters.
    temperatures_ : ndarray of shape (n_passes,)
        Temperature of each pass. For local tempering, the mean over rows.
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
        It is NaN for a restart that a callback prevented from beginning. After ``partial_fit`` or a
        warm start there is one value.
    best_restart_ : int
        Index of the restart that was kept.
    search_results_ : dict of ndarrays of shape (n_moves,)
        The moves of the search, in their order: the name (``move``), the number of passes of the
        fit before it (``n_before``), the number of its own passes (``n_passes``), the
        ``lower_bound`` that was reached, and whether the result was ``kept``. A data frame can be
        made of it.
    n_passes_ : int
        Number of passes over the data in all restarts and moves together, kept or not. One that
        undoes an update with momentum visits the data again and counts as two, but as one in
        ``search_results_`` and for ``effort``, ``max_iter``, callbacks and ``verbose``.
    n_components_ : int
        Number of components: that of the parameter, or the one that ``"auto"`` has found, without
        those that explain at most one row at the end. It need not be one that was tried.
    component_results_ : dict of ndarrays of shape (n_numbers,)
        Only with ``n_components="auto"``: the numbers that were tried (``n_components``), the
        ``lower_bound`` of a fit with each, the log density of all rows given other rows, in nats
        (``log_density_left_out``; not for fewer rows than columns), and how many of its components
        explain more than one row (``n_effective_components``). If the number was in doubt, there is
        also the log density of rows in cross-validation (``log_density_of_folds``), which is NaN
        for numbers that were not in question. A single component has learned
        priors there, also where few rows leave ``lower_bound_`` to the usual ones.
    n_effective_components_ : int
        Number of components whose expected number of rows exceeds 1.
    weight_concentration_ : tuple of two ndarrays, or ndarray, of shape (n_components,)
        Parameters of the posterior of the weights: for "dirichlet_process" the two parameters of
        the Beta distributions, for "dirichlet_distribution" the concentration.
    mean_precision_ : ndarray of shape (n_components,)
        Precisions of the posteriors of the means (β_k), in units of the precision of the component.
        With ``factorization="independent"`` they are the precision matrices of the means instead,
        in the shape that the covariance type has (full matrices for "tied").
    degrees_of_freedom_ : ndarray of shape (n_components,), or float for "tied"
        Degrees of freedom of the Wishart posteriors (ν_k).
    weight_concentration_prior_, mean_precision_prior_, degrees_of_freedom_prior_ : float
        The values of these priors that were used, or that were learned.
    mean_prior_ : ndarray of shape (n_features,)
        The mean of the prior of the means that was used, or that was learned.
    covariance_prior_ : float or ndarray
        The inverse scale of the Wishart prior that was used, or that was learned (V).
    covariance_prior_sizes_ : dict of ndarray
        The sizes s_k by which V is multiplied: their expectations (``mean``, of shape
        (n_components,)). If they are inferred, also the ``shape`` and the ``rate`` of their gamma
        distributions, and the parameter of their prior Gamma(a, a) (``strength``).
    classes_ : ndarray of shape (n_classes,)
        Only with ``n_components_per_class``: the classes of the labels, preceded by −1 if there are
        ``n_unlabelled_components``.
    component_classes_ : ndarray of shape (n_components,)
        Only with ``n_components_per_class``: the class of each component, an element of
        ``classes_``.
    intercepts_, coefficients_ : ndarray
        Only with covariates: the posterior means of the coefficients, of shape (n_components,) and
        (n_components, n_covariates), in the units of the covariates. The logarithm of the weight of
        a component in a row is, up to a number that all components share, its intercept plus the
        product of coefficients and covariates. They sum to zero over the components.
    intercepts_std_, coefficients_std_ : ndarray
        Only with covariates: their standard deviations, in the same shapes, by linear response
        (:ref:`covariates`); infinite for a covariate that is constant. A stream has none.
        ``coefficients_covariance_`` has the covariances, of shape (n_components, 1 + n_covariates,
        n_components, 1 + n_covariates), with the intercepts first, and
        :meth:`coefficient_intervals` has intervals.
    coefficients_prior_ : float
        Only with covariates: the prior standard deviation that was used, or that was learned.
    n_features_in_ : int
        Number of features seen during ``fit``.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during ``fit``, where X has string column names.

    See Also
    --------
    sklearn.mixture.BayesianGaussianMixture : The class of scikit-learn that this one can replace.

    Notes
    -----
    A prior that is ``"auto"`` is learned by empirical Bayes ([1]_, section 3.5, and [4]_). It
    begins at the value of None. When the bound hardly rises any more, or after half of ``max_iter``
    passes, each pass also maximises the bound over the prior, for the posteriors that it has found,
    so that the bound still never falls. All components count, empty ones too. With ``batch_size``
    and in streams, learning begins after 100 updates, and priors move by the step size of each
    update. Learned priors raise the bound, and mostly the density of new rows, above all with many
    features and few rows per component. In exchange a fit takes more passes, the bound no longer
    compares models that were given the same prior, and a prior that few components determine can
    fit them too closely. A mixture of one component learns its priors only from 50 rows on,
    because they repeat the data of the component, and predictions from fewer rows would be too
    certain. Full covariances of fewer than ten rows per column have priors that do not repeat the
    data, and that are always learned. With learned priors, the bound of one component compares with
    those of more.

    Cells of X that are NaN are missing ([5]_). They are integrated out, so that the lower bound and
    all predictions are those of the observed cells, and :meth:`impute` gives their posterior means.
    They are taken to be missing at random: whether a cell is missing may depend on the observed
    cells of its row, but not on its own value. A row without any observed cell counts for the
    weights only. The mean and the variance of a column, from which priors of None and starts
    follow, are those of its observed cells. Infinite values are refused, and so is a column without
    any observed cell in the training data.

    References
    ----------
    .. [1] Bishop (2006). Pattern Recognition and Machine Learning, section 10.2.
    .. [2] Blei, Jordan (2006). Variational inference for Dirichlet process mixtures. Bayesian
       Analysis 1.
    .. [3] Mandt, McInerney, Abrol, Ranganath, Blei (2016). Variational tempering. AISTATS.
    .. [4] Minka (2000). Estimating a Dirichlet distribution. Technical report, MIT.
    .. [5] Ghahramani, Jordan (1994). Supervised learning from incomplete data via an EM approach.
       NIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal import AnnealedBayesianGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(c, size=(n, 2)) for c, n in ((0.0, 70), (5.0, 30))])
    >>> mixture = AnnealedBayesianGaussianMixture(n_components=2, random_state=1).fit(X)
    >>> mixture.means_.round(1) + 0.0
    array([[0. , 0.2],
           [4.9, 4.9]])
    >>> mixture.predict([[0, 0], [9, 3]])
    array([0, 1])
    """

    _parameter_constraints: dict = {
        **MixturePredictions._parameter_constraints,
        "covariance_type": [StrOptions(set(COVARIANCE_TYPES))],
        "learning_decay": DECAY_OR_AUTO,
        "means_init": ["array-like", None],
        "precisions_init": ["array-like", None],
        "mean_precision_prior": POSITIVE,
        "mean_prior": [None, "array-like", StrOptions({"auto"})],
        "degrees_of_freedom_prior": POSITIVE,
        "covariance_prior": [*POSITIVE, "array-like"],
        "factorization": [StrOptions({"joint", "independent"})],
    }

    def __init__(
        self,
        n_components=1,
        *,
        covariance_type="full",
        annealing="reheating",
        tol=1e-6,
        reg_covar=1e-6,
        max_iter=100,
        n_init=1,
        restarts="full",
        effort="auto",
        init_params="kmeans",
        weights_init=None,
        means_init=None,
        precisions_init=None,
        weight_concentration_prior_type="dirichlet_process",
        weight_concentration_prior="auto",
        mean_precision_prior="auto",
        mean_prior="auto",
        degrees_of_freedom_prior="auto",
        covariance_prior="auto",
        factorization="joint",
        n_components_per_class=None,
        n_unlabelled_components=0,
        coefficients_prior=2.5,
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
        self.covariance_type = covariance_type
        self.annealing = annealing
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.restarts = restarts
        self.effort = effort
        self.init_params = init_params
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.weight_concentration_prior_type = weight_concentration_prior_type
        self.weight_concentration_prior = weight_concentration_prior
        self.mean_precision_prior = mean_precision_prior
        self.mean_prior = mean_prior
        self.degrees_of_freedom_prior = degrees_of_freedom_prior
        self.covariance_prior = covariance_prior
        self.factorization = factorization
        self.n_components_per_class = n_components_per_class
        self.n_unlabelled_components = n_unlabelled_components
        self.coefficients_prior = coefficients_prior
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
        *("gaussian_mixture", "mixture_steps", "missing_cells", "gamma"),
        "empirical_bayes",
    )
    _advice = (
        "some components have ill-defined covariances (of too few rows, of columns of which one is "
        "a sum of others, or of scales that differ too much for floating-point numbers). Rescale "
        "X, for example with StandardScaler, increase reg_covar, leave out columns that others "
        "determine, ask for fewer components, or give a larger covariance_prior."
    )
    _start_parameters = ("weights_init", "means_init", "precisions_init")
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
        *KnownClasses._class_parameters,
    )

    # Methods that the base class calls

    def _validated_rows(self, X: Any, reset: bool, ensure_min_samples: int) -> np.ndarray:
        refuse_masked(X, "X", nan_is_missing=True)
        return validated_table(
            self,
            X,
            reset=reset,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
            ensure_min_samples=ensure_min_samples,
        )

    def _rows_with(
        self,
        X: np.ndarray,
        weights: np.ndarray | None,
        classes: np.ndarray | None,
        covariates: np.ndarray | None,
    ) -> Rows:
        patterns = cell_patterns(X)
        return Rows(X, weights, patterns=patterns, classes=classes, covariates=covariates)

    def _check_training(self, units: Rows) -> None:
        refuse_unobserved_columns(units)
        if units.n_units < self._least_number:
            raise ValueError(
                "Expected n_samples >= n_components but got n_components = "
                f"{self._least_number}, n_samples = {units.n_units}"
                + ("" if units.weights is None else " of positive weight")
            )

    def _check_first_batch(self, units: Rows, model: Mixture) -> None:
        refuse_unobserved_columns(units)
        priors = self.mean_prior, self.covariance_prior
        if any(prior is None or is_auto(prior) for prior in priors):
            check_first_rows(units.X, self._number, "mean_prior and covariance_prior")

    def _make_model(self, X: np.ndarray, units: Rows) -> Mixture:
        n_features = X.shape[1]
        dof = self.degrees_of_freedom_prior
        if not (dof is None or is_auto(dof)) and dof <= n_features - 1:
            raise ValueError(
                "The parameter 'degrees_of_freedom_prior' should be greater than "
                f"{n_features - 1}, but got {dof:.3f}."
            )
        mean = self.mean_prior
        if not (mean is None or is_auto(mean)):
            mean = check_array(mean, dtype=np.float64, ensure_2d=False, input_name="mean_prior")
            check_shape(mean, (n_features,), "mean_prior")
        components = FusedGaussian(
            self._number,
            n_features,
            self.covariance_type,
            self.factorization,
            self.reg_covar,
            self.mean_precision_prior,
            mean,
            dof,
            checked_covariance_prior(
                self.covariance_prior, self.covariance_type, n_features, "covariance_prior"
            ),
        )
        return self._mixture_of(components)

    def _given_start(self, model: Mixture) -> Given:
        k, d, own = model.n_components, self.n_features_in_, self.covariance_type
        profile, given = {}, {}
        if self.weights_init is not None:
            given["weights"] = given_probabilities(self.weights_init, (k,), "weights_init")
        if self.means_init is not None:
            profile["means"] = given_array(self.means_init, (k, d), "means_init")
        if self.precisions_init is not None:
            name = "precisions_init"
            profile["covars"] = given_precisions(self.precisions_init, own, k, d, name)
        return given | {"profile": profile}

    def _fitted_attributes(self, ctx: Context) -> Attributes:
        components = ctx.model.components
        standard = components.standard(ctx.q)
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
        return {
            **self._attributes_of_mixture(ctx),
            "mean_precision_": standard["mean_precision"],
            "means_": standard["mean"] + ctx.summary.center,
            "degrees_of_freedom_": dof if dof.ndim else float(dof),
            "covariances_": covariances,
            "precisions_cholesky_": precisions_cholesky,
            "precisions_": precisions,
            "mean_precision_prior_": components.mean_precision_prior,
            "mean_prior_": components.mean_prior,
            "degrees_of_freedom_prior_": components.degrees_of_freedom_prior,
            "covariance_prior_": components.common_scale,
            "covariance_prior_sizes_": components.described_sizes,
        }

    def _warn_of_scales(self, summary: Any) -> None:
        own = summary.components
        moments = [(own, np.arange(len(own.mean)))]
        spherical = self.covariance_type == "spherical"
        warn_of_regularisation(self.reg_covar, moments, spherical)

    # Public methods

    @in_frames
    @by_parts
    @explains("Prediction")
    def impute(
        self,
        X,
        return_std=False,
        *,
        n_draws=None,
        n_rounds=0,
        random_state=None,
        covariates=None,
    ):
        """Replace missing cells by their posterior means, given the observed cells of their rows.

        With ``n_draws`` they are replaced by draws instead, in several tables: statistics of each,
        pooled by Rubin's rules, have standard errors that know what is missing.

        A missing cell has the posterior predictive density given the observed cells, a mixture of
        the conditional Student-t densities of the components: the joint density of the row by the
        one of its observed cells, as :meth:`score_samples` has them. Cells are taken to be missing
        at random: whether a cell is missing may depend on the observed cells of its row, but not on
        its own value.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, in which missing cells are NaN.
        return_std : bool, default=False
            Whether to return the standard deviations as well. Only for means.
        n_draws : int, default=None
            The number of tables to draw (multiple imputation). None: one table of means.
        n_rounds : int, default=0
            Only with ``n_draws``, and for the table of the fit: rounds in which the parameters are
            drawn again from their posterior given the completed table, and then the missing cells
            (data augmentation). The variational posterior is as narrow as if the missing cells had
            been seen; five rounds widened it enough on drawn tables. 0 is for other rows.
        random_state : int, RandomState instance or None, default=None
            Determines the draws. None: the ``random_state`` of the estimator.
        covariates : array-like of shape (n_samples, n_covariates), default=None
            Covariates of the rows, if the fit had covariates, and only then. ``n_rounds`` is 0
            with them.

        Returns
        -------
        X_imputed : ndarray or frame of shape (n_samples, n_features)
            The rows, with their means in the place of missing cells. Observed cells are unchanged.
            The dtype is that of X if X has floating-point numbers, else float64. After
            ``set_output(transform="pandas")``, or "polars", it is a frame with the columns, the
            index and the dtypes of X, where they can hold the means.
            With ``n_draws``, it is an ndarray of shape (n_draws, n_samples, n_features), or a list
            of frames. For each table, the parameters are drawn from the variational posterior once;
            given them, the component of each row is drawn given its observed cells, and then its
            missing cells given both.
        std : ndarray or frame of shape (n_samples, n_features)
            Standard deviations of the mixture, which include the differences between components; 0
            for observed cells. A Student-t density has no variance if its degrees of freedom (ν_k +
            1 − n_features) and the number of observed cells of the row sum to 2 or less, and an
            uninformative one if they sum to less than 2.1. Such components are left out, and the
            shares of the others are normalised, if the others have at least half of the
            probability of the row. If they have less, half the width of the central 68 %
            interval of such a component replaces its standard deviation; both are equal for a
            Gaussian. Only returned if ``return_std`` is True.
        """
        draws = wants_draws(n_draws, n_rounds, return_std)
        rows, dtype = self._again(X, covariates)
        if draws:
            observed = np.array(rows.X, dtype=dtype)
            return drawn_tables(
                self,
                rows,
                lambda cells: np.where(np.isnan(observed), cells, observed).astype(dtype),
                n_draws,
                n_rounds,
                random_state,
            )
        ctx, shares = self._context(), self._predictive_shares(rows)
        means, std = ctx.model.components.imputed(rows, shares, ctx.q)
        imputed = means.astype(dtype, copy=False)
        return (imputed, std) if return_std else imputed

    @explains("Sampling")
    def sample(self, n_samples=1, *, predictive=False, given=None):
        """Draw rows from the fitted mixture.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        predictive : bool, default=False
            Whether to draw from the posterior predictive density, which :meth:`score_samples`
            evaluates, instead of from Gaussians with the fitted means and covariances.
        given : mapping, array-like of shape (n_features,) or None, default=None
            Values of some columns, which all rows have: a mapping from the names or the numbers of
            columns to values, a pandas Series with these as its index, or a row in which NaN stands
            for columns that are drawn. The rows are then draws from the conditional distribution.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The rows, sorted by component.
        y : ndarray of shape (n_samples,)
            Their components.
        """
        ctx = self._context()
        check_n_samples(n_samples)
        self._refuse_covariates(NO_SAMPLES)
        if given is not None and predictive:
            raise ValueError(
                "predictive=True is for rows of which nothing is given. Draws from the posterior "
                "predictive density given some cells are those of impute(row, n_draws=n_samples)."
            )
        if given is not None:
            return conditional_sample(self, n_samples, given)
        random_state = check_random_state(self.random_state)
        counts = random_state.multinomial(n_samples, self.weights_)
        n_features = self.means_.shape[1]
        labels = np.repeat(np.arange(len(counts)), counts)
        if predictive:
            dof, mean, scale = ctx.model.components.student_t(ctx.q)
            root = np.linalg.cholesky(scale)
            noise = random_state.standard_normal((n_samples, n_features))
            # Draws underflow to 0 if the degrees of freedom are few.
            squares = np.maximum(random_state.chisquare(dof[labels]), np.finfo(np.float64).tiny)
            noise /= np.sqrt(squares / dof[labels])[:, None]
            rows = (root[labels] @ noise[..., None])[..., 0]
            return mean[labels] + ctx.summary.center + rows, labels
        parts = []
        for k, count in enumerate(counts):
            shared = ctx.model.components.structure.shared
            covariance = self.covariances_ if shared else self.covariances_[k]
            if np.ndim(covariance) == 2:
                # Rounding can make a covariance indefinite by its last digits.
                part = random_state.multivariate_normal(
                    self.means_[k], covariance, int(count), check_valid="ignore"
                )
            else:
                noise = random_state.standard_normal(size=(count, n_features))
                part = self.means_[k] + noise * np.sqrt(covariance)
            parts.append(part)
        return np.vstack(parts), labels

    def _again(self, X: ArrayLike, covariates: ArrayLike | None = None) -> tuple[Rows, DTypeLike]:
        ctx = self._context()
        table = self._validate_data(X, reset=False, ensure_min_samples=1)
        rows = self._make_units(table, None).centered(ctx.summary)
        return self._plain_if_few(self._accompanied(rows, covariates)), table.dtype
