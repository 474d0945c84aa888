"""The estimator of mixtures of any columns: binary, categorical, counts, real numbers."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy.sparse import issparse
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if

from ..annealing import ANNEALING, Context
from ..data.tables import Blocks, merged_rows, missing_cells
from ..data.units import Rows, cell_patterns
from ..families import COVARIANCE_TYPES
from ..metrics import floors_of_used
from ..models._componentwise import Given
from ..models.mixture import Mixture
from ._attributes import Attributes
from ._base import BaseAnnealed
from ._columns import TablesOfColumns, cells_of, way_out_of_text
from ._conditionals import conditional_sample
from ._covariates import NO_SAMPLES
from ._draws import drawn_tables, wants_draws
from ._emissions import EMISSIONS
from ._given_starts import given_probabilities
from ._interface import DECAY_OR_AUTO
from ._known_classes import KnownClasses
from ._mixture_predictions import POSITIVE, MixturePredictions
from ._part_predictions import by_parts
from ._tables import in_frames, validated_table
from ._validation import (
    as_csr,
    check_n_samples,
    check_sparse,
    explains,
    refuse_masked,
    refuse_unobserved_columns,
)
from ._words import listed_words

_PRIOR = [*POSITIVE, "array-like"]


def _counts(estimator: BaseAnnealed) -> bool:
    return estimator._kind is not None and estimator._kind.counts_words


class AnnealedBayesianMixture(TablesOfColumns, MixturePredictions[Any]):
    """Bayesian mixture of columns of any kind, fitted by annealed variational inference.

    Given its component, the columns of a row are independent: Bernoulli, categorical, Gaussian or
    Poisson variables, other counts, or blocks of these for tables of mixed columns. With categories
    this is latent class analysis. Any cell can be missing.

    Read more in the :ref:`user guide <any-columns>`.

    Parameters
    ----------
    n_components : int or "auto", default=1
        Number of mixture components. Components that the data do not support end up with a weight
        near zero. ``"auto"``: fits with several numbers are compared by their lower bounds and
        by the densities of rows given the other rows, beginning with 1, 2, 4, …, until a third of
        the components stay unused; the best fit then goes on (:ref:`how-many`). It takes several
        times as long as one fit, and needs all data at once, so that ``partial_fit`` has to follow
        a fit.
    emission : {"bernoulli", "categorical", "poisson", "gaussian", "negative_binomial", \
            "zero_inflated_poisson"} or list of tuples, default="bernoulli"
        The distribution of the columns. It is never guessed from the values. A list of (name,
        emission, columns) divides the columns into blocks, where ``columns`` is anything that
        :class:`sklearn.compose.ColumnTransformer` takes: a position, a column name of a data frame,
        a list of them, a slice or a mask. Every column belongs to one block.

        - ``"bernoulli"``: 0 and 1. X may be a sparse matrix, whose zeros are zeros.
        - ``"categorical"``: integers from 0, with any number of categories per column.
        - ``"poisson"``: counts. X may be a sparse matrix.
        - ``"gaussian"``: real numbers, with ``covariance_type``.
        - ``"negative_binomial"``: counts whose variance m + m² / r exceeds their mean m. Each
          column has a shape r, which is learned. X may be sparse.
        - ``"zero_inflated_poisson"``: counts of which some are zero for a reason of their own, with
          a probability for each column of a component. X may be sparse.
    annealing : str or Annealing, default="reheating"
        How the fit avoids the local optimum next to its start: ``"none"``, ``"reheating"``,
        ``"deterministic"``, ``"stochastic"``, ``"tempering"``, ``"local_tempering"``,
        ``"svi_plus"``, ``"structured"``, ``"proximity"``, or an instance from
        :mod:`sklearn_anneal.annealing`. A name selects the method with the settings recommended for
        mixtures. The default goes to the first optimum and then tries to leave it by moves
        (``effort``). ``"deterministic"`` raises the temperature of the assignments alone, to 3, for
        30 passes, which can merge groups that are apart. Stochastic annealing often deletes
        components.
        ``"structured"`` makes 300 passes, and predicts new rows best where many components have few
        rows each; a ``learning_decay`` near 0.5 suits it. ``"tempering"`` and ``"local_tempering"``
        are refused for counts of any kind, and the exact gradient of ``"structured"`` needs columns
        of categories or binary columns.
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
        end. A race takes fewer passes, and can miss a restart that rises late. Four or
        more in a race mostly raise the bound further than a single fit does. With
        ``annealing="structured"``, all of whose passes belong to the schedule, a race is refused.
    effort : float or "auto", default="auto"
        How long the fit searches for an optimum that is better than its first one, as a multiple of
        the passes that led to the first one (at least 48, or 500,000 divided by the number of rows
        if that is less). Merges of components, swaps, in which one is given up and another one
        divided, short reheats with noise, and starts of other kinds take turns. The result of a
        move is kept only if its lower bound is higher, and a move is given up after a few passes if
        a higher bound is out of reach. The search ends early when every move has failed three times
        in a row. ``"auto"``: 4 if ``annealing`` is ``"reheating"`` or finds no initial temperature
        above 1, and 0 with other methods and in minibatches. More effort raises the bound further.
        ``annealing="none"``, which is plain inference, and ``"structured"`` do not search, and
        refuse a number above 0. With ``n_components_per_class``, ``"auto"`` is 0: labels lead to
        the optimum in which components are the classes, and one of a higher bound may cross them.
    init_params : {"random", "kmeans", "k-means++", "random_from_data"}, \
            default="random_from_data"
        How the responsibilities are initialised: drawn from a uniform distribution over all
        probabilities, labels of k-means among at most 20,000 rows, or single rows as components,
        chosen by k-means++ or at random. k-means measures distances between standardised columns,
        with one indicator for each category, and the mean of the column in missing cells. Rows as
        components keep more components in use than ``"random"``, which suits two or three better.
        All starts respect known classes; ``"kmeans"`` is then constrained k-means, whose means
        begin at rows with labels, and suits ``n_components_per_class`` best.
    weights_init : array-like of shape (n_components,) or None, default=None
        Weights of the components at the start, which sum to 1. None: those of ``init_params``.
    emission_init : dict or None, default=None
        Parameters of the components at the start: arrays by the names of fitted attributes, without
        their underscores and in their shapes. These are ``"emissionprob"`` for binary columns and
        categories, ``"lambdas"`` for counts, with ``"zeroprob"`` if they are zero-inflated, and
        ``"means"`` and ``"covars"`` for real numbers; for blocks, a dictionary of such dictionaries
        by the names of blocks. The start is the posterior
        given as many rows as there are, with the given weights and moments. Parameters that are not
        given are taken from the start that ``init_params`` makes, after its components have been
        matched with the given ones. ``annealing="none"`` goes to the optimum next to this start.
        Every restart of ``n_init`` begins there too, and differs in the noise of annealing, and in
        the parts that are not given. A high temperature forgets the start, and the moves of
        ``effort`` may leave it and change the order of the components: with ``effort=0`` there are
        none. A warm start, and later batches of a stream, go on from the fitted parameters instead.
        None: that of ``init_params``.
    weight_concentration_prior_type : {"dirichlet_process", "dirichlet_distribution"}, \
            default="dirichlet_process"
        Prior of the weights: a truncated stick-breaking process, or a finite Dirichlet
        distribution.
    weight_concentration_prior : float, "auto" or None, default="auto"
        Concentration of the prior of the weights (γ or α₀ in the literature). ``"auto"``: learned,
        between 1e-4 and 1e4. It is large if components have similar weights, so that fewer of them
        are switched off. With "dirichlet_process", the last component then takes all of the
        remaining weight (Ishwaran and James, 2001), so that the bounds of different
        ``n_components`` compare. None: 1 / ``n_components``, as in scikit-learn, which switches off
        more; the process goes on beyond the last component.
    emissionprob_prior : float, array-like, "auto" or None, default="auto"
        Concentration of the Dirichlet priors of the probabilities of categories, and both
        parameters of the beta priors of binary columns and of ``zeroprob_``. ``"auto"``: learned
        for each column, which costs passes, and predicts new rows better than None where columns
        have very different frequencies, as pixels do. None: 1, the uniform distribution. An array
        must broadcast to (n_components, n_features) for binary columns, and to (n_components,
        n_categories) of every column of categories.
    lambdas_prior, lambdas_weight : float, array-like, "auto" or None, default="auto"
        Shape and rate of the gamma priors of the rates of counts, broadcastable to (n_components,
        n_features). ``"auto"``: learned for each column. None: shape 1, and the rate with which the
        prior mean is the mean of the column. They count like as many rows of that total: for
        negative binomial columns, the prior of p is Beta(r ``lambdas_weight``, ``lambdas_prior``).
    covariance_type : {"independent", "full", "tied", "diag", "spherical"}, default="independent"
        How Gaussian columns depend on each other within a component. With ``"independent"`` every
        column of a component has a mean and a precision with a posterior of their own; the other
        values are those of :class:`AnnealedBayesianGaussianMixture`.
    means_prior, beta_prior, dof_prior, scale_prior : float, array-like, "auto" or None, \
            default="auto"
        Priors of Gaussian columns, as in :class:`AnnealedHMM`: the prior means and their precision
        in units of the precision of a component, the degrees of freedom and the inverse scale of
        the precisions. ``"auto"``: learned. None: the means of the columns, 1, the number of
        columns (1 for ``"independent"``), and the covariance (or the variances) of the columns.
    reg_covar : float, default=1e-6
        Regularisation that is added to the variances of Gaussian columns. If a prior of their means
        or covariances is learned, the lower bound has its share, as the variance of noise of the
        cells; if not, the bound is exact only for 0, and may fall by a little where components are
        about as small.
    n_categories : int, array-like of int, dict or None, default=None
        Numbers of categories: one for all columns of categories, or one for each. For blocks a
        dictionary maps the name of a block to one of these. It declares categories that the
        training data do not have, and ``partial_fit`` needs it. None: one more than the largest
        category of the column.
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
    emissionprob_ : ndarray of shape (n_components, n_features), or list of ndarray
        Probabilities of ones for binary columns; for categories one array of shape (n_components,
        n_categories) for each column. ``emissionprob_posterior_`` and ``emissionprob_prior_`` have
        the parameters of their beta or Dirichlet distributions; those of binary columns have shape
        (n_components, n_features, 2).
    n_categories_ : ndarray of shape (n_features,)
        Numbers of categories of the columns, for categories.
    lambdas_ : ndarray of shape (n_components, n_features)
        Rates, for counts. ``lambdas_posterior_`` and ``lambdas_weight_posterior_`` have the shapes
        and rates of their gamma distributions, and ``lambdas_prior_`` and ``lambdas_weight_prior_``
        those of the prior. For negative binomial columns they are the means r (1 − p) / p at the
        posterior means of p, which has the posterior Beta(``count_shapes_`` ×
        ``lambdas_weight_posterior_``, ``lambdas_posterior_``).
    count_shapes_ : ndarray of shape (n_features,)
        The shapes r of negative binomial columns, which maximise the lower bound: below 1 most
        cells are small and few are large, and from 10,000 on counts vary as Poisson counts do. In
        minibatches they follow from how often each count occurs in all data, and in a stream in its
        first batch.
    zeroprob_ : ndarray of shape (n_components, n_features)
        Probabilities of zeros that are none of the Poisson counts, for zero-inflated columns.
        ``zeroprob_posterior_`` and ``zeroprob_prior_`` have the two parameters of their beta
        distributions along the last axis.
    means_, covars_ : ndarray
        Means and covariances, for Gaussian columns. ``covars_`` has the variances for
        ``"independent"``. ``means_posterior_``, ``beta_posterior_``, ``dof_posterior_`` and
        ``scale_posterior_`` have the parameters of the posterior, and ``means_prior_``,
        ``beta_prior_``, ``dof_prior_`` and ``scale_prior_`` those of the prior.
        ``scale_prior_sizes_`` has the sizes of components as in :class:`AnnealedHMM`; all are
        1 for ``"independent"``.
    blocks_ : dict of Bunch
        For blocks, the attributes above by the name of the block, and the positions of its columns
        as ``columns``.
    weight_concentration_prior_ : float
        The concentration that was used, or that was learned.
    weight_concentration_ : tuple of two ndarrays, or ndarray, of shape (n_components,)
        Parameters of the posterior of the weights: for "dirichlet_process" the two parameters of
        the Beta distributions, for "dirichlet_distribution" the concentration.
    n_components_ : int
        Number of components: that of the parameter, or the one that ``"auto"`` has found, without
        those that explain at most one row at the end. It need not be one that was tried.
    component_results_ : dict of ndarrays of shape (n_numbers,)
        Only with ``n_components="auto"``: the numbers that were tried (``n_components``), the
        ``lower_bound`` of a fit with each, the log density of all rows given other rows, in nats
        (``log_density_left_out``; not for fewer rows than columns), and how many of its components
        explain more than one row (``n_effective_components``). If the number was in doubt, there is
        also the log density of rows in cross-validation (``log_density_of_folds``), which is NaN
        for numbers that were not in question.
    n_effective_components_ : int
        Number of components whose expected number of rows exceeds 1.
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
    AnnealedBayesianGaussianMixture : Mixtures of Gaussians, in place of scikit-learn's class.
    AnnealedHMM : The same emissions for sequences.

    Notes
    -----
    A missing cell is NaN, or −1 in binary columns and categories; in a sparse matrix it is a stored
    NaN. Missing cells are left out of the density of their row and of the counts of their column,
    which integrates them out. The posterior is right if cells are missing at random: whether a cell
    is missing may depend on cells that are observed, but not on its own value. A row without any
    observed cell is allowed, and gets the weights of the components.

    None is a missing cell too, and so is ``pandas.NA`` in data frames. Text is refused, in pandas
    categories as well: :class:`sklearn.preprocessing.OrdinalEncoder` makes integers of it, and
    leaves missing cells as they are. Pandas categories that are numbers are read as these.

    Rows of categories or binary columns that are equal are processed once, with the sum of their
    weights, if this at least halves the number of rows. ``init_params="random"`` then draws one
    start for all of them. SVI+ draws a random weight for each row, and minibatches consist of
    single rows, so that neither merges rows.

    References
    ----------
    .. [1] Hoffman, Blei (2015). Structured stochastic variational inference. AISTATS. (Mixtures of
       Bernoullis with a Dirichlet process.)
    .. [2] Bishop (2006). Pattern Recognition and Machine Learning, sections 9.3.3 and 10.2.
    .. [3] Linzer, Lewis (2011). poLCA: An R package for polytomous variable latent class analysis.
       Journal of Statistical Software 42.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal import AnnealedBayesianMixture
    >>> X = np.array([[0, 0, 1, 2], [0, 0, 1, 2], [0, 1, 1, 2], [1, 1, 0, 0], [1, 1, 0, 1]] * 20)
    >>> mixture = AnnealedBayesianMixture(2, emission="categorical", random_state=0).fit(X)
    >>> labels = mixture.predict(X[:5])
    >>> (labels == labels[0]).tolist()
    [True, True, True, False, False]
    >>> mixture.impute([[0, 0, -1, np.nan], [1, -1, 0, -1]])
    array([[0., 0., 1., 2.],
           [1., 1., 0., 0.]])
    """

    _parameter_constraints: dict = {
        **MixturePredictions._parameter_constraints,
        "emission": [StrOptions(EMISSIONS.keys()), list],
        "emission_init": [dict, None],
        "learning_decay": DECAY_OR_AUTO,
        "emissionprob_prior": _PRIOR,
        "lambdas_prior": _PRIOR,
        "lambdas_weight": _PRIOR,
        "covariance_type": [StrOptions({"independent", *COVARIANCE_TYPES})],
        "means_prior": ["array-like", None, StrOptions({"auto"})],
        "beta_prior": _PRIOR,
        "dof_prior": _PRIOR,
        "scale_prior": _PRIOR,
        "n_categories": [Interval(Integral, 1, None, closed="left"), "array-like", dict, None],
    }

    def __init__(
        self,
        n_components=1,
        *,
        emission="bernoulli",
        annealing="reheating",
        tol=1e-6,
        max_iter=100,
        n_init=1,
        restarts="full",
        effort="auto",
        init_params="random_from_data",
        weights_init=None,
        emission_init=None,
        weight_concentration_prior_type="dirichlet_process",
        weight_concentration_prior="auto",
        emissionprob_prior="auto",
        lambdas_prior="auto",
        lambdas_weight="auto",
        covariance_type="independent",
        means_prior="auto",
        beta_prior="auto",
        dof_prior="auto",
        scale_prior="auto",
        reg_covar=1e-6,
        n_categories=None,
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
        self.emission = emission
        self.annealing = annealing
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.restarts = restarts
        self.effort = effort
        self.init_params = init_params
        self.weights_init = weights_init
        self.emission_init = emission_init
        self.weight_concentration_prior_type = weight_concentration_prior_type
        self.weight_concentration_prior = weight_concentration_prior
        self.emissionprob_prior = emissionprob_prior
        self.lambdas_prior = lambdas_prior
        self.lambdas_weight = lambdas_weight
        self.covariance_type = covariance_type
        self.means_prior = means_prior
        self.beta_prior = beta_prior
        self.dof_prior = dof_prior
        self.scale_prior = scale_prior
        self.reg_covar = reg_covar
        self.n_categories = n_categories
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
        *("discrete", "mixture_steps", "gaussian_mixture", "missing_cells", "gamma"),
        *("divergence", "empirical_bayes"),
    )
    _levels_parameter = "n_categories"
    _start_parameters = ("weights_init", "emission_init")
    _model_parameters = (
        "n_components",
        "emission",
        "weight_concentration_prior_type",
        "weight_concentration_prior",
        "emissionprob_prior",
        "lambdas_prior",
        "lambdas_weight",
        "covariance_type",
        "means_prior",
        "beta_prior",
        "dof_prior",
        "scale_prior",
        "reg_covar",
        "n_categories",
        *KnownClasses._class_parameters,
    )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if (kind := self._kind) is not None:
            tags.input_tags.sparse = kind.sparse
            tags.input_tags.positive_only = kind.positive_only
            tags.input_tags.categorical = kind.has_levels
        return tags

    # Methods that the base class calls

    def _validated_rows(self, X: Any, reset: bool, ensure_min_samples: int) -> Any:
        """X as a table of numbers, whose categories :meth:`_rows_with` counts."""
        given = X
        X = self._table(X, reset, ensure_min_samples)
        if reset:
            # The names of columns are those of a data frame, of whatever package.
            self._find_blocks(given if hasattr(given, "columns") else X)
            self._known = self._declared()
            self._warn_of_minus_one(X)
        else:
            self._known = self._known_levels(self._quiet_context().model.components)
        return X

    def _table(self, X: Any, reset: bool, ensure_min_samples: int) -> Any:
        """X as an array or a sparse matrix of numbers."""
        refuse_masked(X, "X", nan_is_missing=True)
        check_sparse(X)
        X = validated_table(
            self,
            X,
            text=way_out_of_text(self.emission),
            reset=reset,
            dtype="numeric",
            accept_sparse="csr",
            ensure_all_finite=False,
            ensure_min_samples=ensure_min_samples,
        )
        if issparse(X):
            X = as_csr(X)
        _refuse_infinite(X.data if issparse(X) else X)
        return X

    def _encoded(self, X: Any, declared: dict[str, object]) -> Any:
        """A table in the form that the model reads, with declared numbers of categories."""
        return cells_of(X, self.emission, self._blocks, self._number, declared, "n_categories")

    def _rows_with(
        self,
        X: Any,
        weights: np.ndarray | None,
        classes: np.ndarray | None,
        covariates: np.ndarray | None,
    ) -> Rows:
        X = self._encoded(X, self._known)
        method = ANNEALING[self.annealing] if isinstance(self.annealing, str) else self.annealing
        minibatches = self.batch_size is not None and self.batch_size < X.shape[0]
        alone = classes is None and covariates is None
        if alone and not (minibatches or method.draws_weights):
            merged = merged_rows(X, weights)
            if merged is not None:
                return Rows(*merged, n_merged=X.shape[0])
        return _rows_of(X, weights, classes, covariates)

    def _check_training(self, units: Rows) -> None:
        # A row with a weight of 2 counts twice. Rows that were merged count as they were given.
        n_rows = max(units.n_units, units.total_weight, units.n_merged)
        if n_rows < self._least_number:
            raise ValueError(
                "Expected n_samples >= n_components but got n_components = "
                f"{self._least_number}, n_samples = {n_rows:g}"
            )
        refuse_unobserved_columns(units, self._order())
        self._warn_of_categories(units.X)

    def _check_first_batch(self, units: Rows, model: Mixture) -> None:
        self._check_all_declared()
        kinds = self._kinds
        if any(kind.priors_of_data for kind in kinds.values()):
            refuse_unobserved_columns(units, self._order())
        table: Any = units.X
        parts = table.parts if isinstance(table, Blocks) else {"": table}
        for name, kind in kinds.items():
            kind.check_first_batch(self, parts[name])

    def _check_parts(self) -> None:
        self._check_all_declared()

    def _make_model(self, X: ArrayLike, units: Rows) -> Mixture:
        return self._mixture_of(self._components(units.X))

    def _given_start(self, model: Mixture) -> Given:
        given: Given = {}
        if self.weights_init is not None:
            shape = (model.n_components,)
            given["weights"] = given_probabilities(self.weights_init, shape, "weights_init")
        if self._asked_start()["emission_init"] is not None:
            given["profile"] = self._given_profile(model.components)
        return given

    def _fitted_attributes(self, ctx: Context) -> Attributes:
        own = ctx.model.components, ctx.q, ctx.prior, ctx.summary.components
        return self._attributes_of_mixture(ctx) | self._attributes_of_components(*own)

    @staticmethod
    def _summary_of_components(summary: Any) -> Any:
        return summary.components

    @staticmethod
    def _usual_concentration(n_levels: int) -> float:
        """The prior concentration of each of so many categories that None stands for."""
        return 1.0

    # Public methods

    @explains("Prediction")
    def relative_entropy(self, X, sample_weight=None, *, covariates=None):
        """How certain the assignment of rows to components is (entropy R²).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        covariates : array-like of shape (n_samples, n_covariates), default=None
            Covariates of the rows, if the fit had covariates, and only then.

        Returns
        -------
        relative_entropy : float
            1 − Σ_n H[q(z_n)] / (N log K), from 0 (the components of rows are unknown) to 1; 1 for a
            single component.
        """
        X, weights, covariates = self._counted_beside(X, sample_weight, covariates)
        shares = self._responsibilities(self._again(X, covariates)[0])
        if shares.shape[1] == 1:
            return 1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            entropies = -np.nansum(shares * np.log(shares), axis=1)
        return float(1.0 - np.average(entropies, weights=weights) / np.log(shares.shape[1]))

    @available_if(_counts)
    def top_words(self, feature_names=None, n=10):
        """The columns with the largest rates in each component.

        The method is available with ``emission="poisson"`` and the other emissions of counts.

        Parameters
        ----------
        feature_names : array-like of shape (n_features,) or None, default=None
            Names of the columns. None: ``feature_names_in_`` if X had names of columns, else the
            indices of the columns.
        n : int, default=10
            Largest number of columns per component.

        Returns
        -------
        words : list of ndarray of shape (n,) or shorter
            One array per component, the largest of its ``lambdas_`` first. The arrays of components
            that are not in use are empty, and a warning says how many these are. In use is a
            component with more than one expected row, or more than a thousandth of the mean where
            weights are tiny.
        """
        ctx = self._context()
        floors = floors_of_used(ctx.model.weights.expected_counts(ctx.q, ctx.prior), 0.0)
        unused = "components are not in use"
        return listed_words(self, self.lambdas_, floors, feature_names, n, unused)

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
        """Fill missing cells with their posterior means, or their most probable categories.

        With ``n_draws`` they are filled with draws instead, in several tables: statistics of each,
        pooled by Rubin's rules, have standard errors that know what is missing.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, in which NaN stands for missing cells, or −1 in binary columns and categories.
        return_std : bool, default=False
            Whether to return standard deviations too. Only for means.
        n_draws : int, default=None
            The number of tables to draw (multiple imputation). None: one table of means
            and categories.
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
        X : ndarray or frame of shape (n_samples, n_features)
            The rows, with the posterior mean of each missing cell, or its most probable category,
            given the observed cells of its row. After ``set_output(transform="pandas")``, or
            "polars", it is a frame with the columns, the index and the dtypes of X, where they can
            hold the means.
            With ``n_draws``, it is an ndarray of shape (n_draws, n_samples, n_features), or a list
            of frames. For each table, the parameters are drawn from the variational posterior once;
            given them, the component of each row is drawn given its observed cells, and then its
            missing cells given both.
        std : ndarray or frame of shape (n_samples, n_features)
            Only with ``return_std``: standard deviations of the posterior predictive distributions
            of missing counts and real numbers, 0 for observed cells, and NaN for missing
            categories. A component with at most two degrees of freedom (``dof_posterior_``) in a
            column has no variance there, and one that says little with fewer than 2.1. It is left
            out, and the shares of the others normalised, where the others have half of the
            probability of the row or more. Where they have less, half the width of its central
            68 % interval takes the place of its standard deviation, as both are equal for a
            Gaussian.
        """
        draws = wants_draws(n_draws, n_rounds, return_std)
        rows, _ = self._again(X, covariates)
        if issparse(rows.X):
            raise ValueError("impute returns a dense array. Give dense rows, a few at a time.")
        ctx = self._context()
        mask = missing_cells(rows.X)
        mask = np.zeros(rows.X.shape, dtype=bool) if mask is None else mask
        order = self._order()
        back = slice(None) if order is None else np.argsort(order)
        mask, given = mask[:, back], self._table(X, False, 1)
        if draws:
            return drawn_tables(
                self,
                rows,
                lambda cells: np.where(mask, cells[:, back], given),
                n_draws,
                n_rounds,
                random_state,
            )
        values, std = ctx.model.components.imputed(rows, self._predictive_shares(rows), ctx.q)
        filled = np.where(mask, values[:, back], given)
        if not return_std:
            return filled
        std = np.full(values.shape, np.nan) if std is None else std
        return filled, np.where(mask, std[:, back], 0.0)

    @explains("Sampling")
    def sample(self, n_samples=1, *, given=None):
        """Draw rows from the fitted mixture, at the posterior means of its parameters.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
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
        if given is not None:
            X, labels = conditional_sample(self, n_samples, given, self._order())
            # Counts and categories are integers, as they are where nothing is given.
            one = self._draw(ctx.model.components, labels[:1], np.random.RandomState(0))
            return X.astype(one.dtype, copy=False), labels
        random_state = check_random_state(self.random_state)
        counts = random_state.multinomial(n_samples, self.weights_)
        labels = np.repeat(np.arange(len(counts)), counts)
        return self._draw(ctx.model.components, labels, random_state), labels

    # Parts of the public methods

    def _again(self, X: ArrayLike, covariates: ArrayLike | None = None) -> tuple[Rows, DTypeLike]:
        ctx = self._context()
        table = self._table(X, False, 1)
        encoded = self._encoded(table, self._known_levels(ctx.model.components))
        dtype = np.float32 if table.dtype == np.float32 else np.float64
        rows = _rows_of(encoded, None).centered(ctx.summary)
        return self._plain_if_few(self._accompanied(rows, covariates)), dtype


def _rows_of(
    X: Any,
    weights: np.ndarray | None,
    classes: np.ndarray | None = None,
    covariates: np.ndarray | None = None,
) -> Rows:
    patterns = cell_patterns(X) if isinstance(X, np.ndarray) else None
    return Rows(X, weights, patterns=patterns, classes=classes, covariates=covariates)


def _refuse_infinite(values: np.ndarray) -> None:
    if values.dtype.kind == "f" and np.isinf(values).any():
        raise ValueError(
            "Input X contains infinity or a value too large for its dtype. Only NaN stands for a "
            "missing cell."
        )
