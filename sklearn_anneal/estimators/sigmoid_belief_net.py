"""The estimator of sigmoid belief nets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, issparse
from scipy.special import expit, logsumexp
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from ..annealing import Context, ProximityVI
from ..data.units import Units
from ..inference.gradient import OPTIMIZERS
from ..inference.progress import Settings
from ..inference.stopping import NoImprovement, RiseOfBound, RiseOfEstimates
from ..models._binary_rows import BinaryRows
from ..models._componentwise import Given
from ..models.sigmoid_belief_net import SigmoidBeliefNet, of_rows, step_factors
from ._attributes import Attributes
from ._base import BaseAnnealed
from ._given_starts import given_array
from ._part_predictions import by_parts
from ._row_predictions import ScoresRows
from ._tables import validated_table
from ._validation import as_csr, check_n_samples, check_sparse, explains, finite, refuse_masked

# γ of the mean over steps that a fit returns: about the last tenth of them.
_AVERAGING = 10.0
# Sizes of the first steps by default.
_RATES = {"adam": 0.15, "rmsprop": 0.1, "sgd": 0.15}
# Factor of the sizes of steps with proximity, whose constraint makes the gradients of the
# recognition network noise.
_CONSTRAINED = 0.2
# Entries that are checked at a time.
_ENTRIES = 1 << 17
_OVERFLOW = "The weights of the net are so large that log probabilities overflow. Fit it again."


# Parameters that give a start → the letter of the model's parameters, and their first layer.
_STARTS = {
    "coefs_init": ("W", 1),
    "intercepts_init": ("b", 0),
    "recognition_coefs_init": ("V", 1),
    "recognition_intercepts_init": ("a", 1),
}


class AnnealedSigmoidBeliefNet(ScoresRows[np.ndarray | csr_array, BinaryRows, SigmoidBeliefNet]):
    """Sigmoid belief net for binary data, fitted by annealed variational inference.

    A net of binary units generates each row from its top layer down, x = h_0 ← h_1 ← … ← h_L: the
    top units are independent, and each unit below is on with the probability σ(h_l W_l + b_{l−1})
    (Neal [1]_). A recognition network of the same layers infers h_1, …, h_L from x, with one affine
    map per layer. Both are trained together by the multi-sample bound and the gradients of VIMCO
    (Mnih and Rezende [2]_).

    Unlike the other models of this package, this one has no conjugate update: an optimizer follows
    noisy gradients, and parameters are points without priors.

    X can be a sparse matrix, in which cells that are not stored are zeros. No array of all its
    cells is made. The net has a probability for each column, so that time and memory still grow
    with the number of columns; results are those of an array up to rounding.

    A single step for each batch of a stream is far too few. ``partial_fit`` therefore repeats steps
    with random rows of the stream so far, and takes about as long as a fit to the rows. Steps are
    fewer once there are 6,400 rows, and 32 for each unit of the largest hidden layer. No more than
    half as many again are kept. Loops of epochs over the same rows should give their number as
    ``total_samples``: later epochs then take up to twice as long as single steps, and otherwise
    much longer. ``max_iter=1`` makes one step for each batch, and keeps no rows.

    Read more in the :ref:`user guide <nets>`.

    Parameters
    ----------
    hidden_layer_sizes : int or array-like of int, default=(200,)
        Number of units in each hidden layer, from the first above the data to the top.
    annealing : str or Annealing, default="none"
        How the fit avoids the local optimum next to its start: ``"none"``, ``"deterministic"``,
        ``"svi_plus"``, ``"proximity"``, or an instance from :mod:`sklearn_anneal.annealing`. A name
        selects the method with the settings recommended for sigmoid belief nets. From a usual start
        no method predicted held-out rows better than ``"none"`` on all data in as many passes;
        ``"deterministic"`` gained on digits with three layers and lost with one. ``"proximity"``
        leaves bad starts, at which ``"none"`` with ``weight_decay=0`` switches all hidden units
        off, but from a usual start it costs much of the bound and of the prediction.
        ``"reheating"``, ``"stochastic"`` and ``"structured"`` change natural parameters, which this
        model does not have; ``"tempering"`` and ``"local_tempering"`` need a normaliser that would
        be a sum over all states of all units. These five are refused.
    n_samples : int, default=5
        S, the number of draws of the hidden units per row and update. More draws make the bound
        tighter and the gradients less noisy, in proportionally more time.
    optimizer : {"adam", "rmsprop", "sgd"}, default="adam"
        How gradients become steps. ``"sgd"`` has a momentum of 0.9.
    learning_rate_init : float or "auto", default="auto"
        Size of the first step of the net's weights and biases. ``"auto"``: 0.15, and 0.1 with
        ``optimizer="rmsprop"``, whose steps vary more. The gradient is that of the bound per row.
        Steps of the weights between two layers, and of the biases, are smaller by the factor
        (96 / n)^0.7 where the layer below has n > 96 units, because its log probability changes by
        all of them, and those of the recognition network are half as large. The net's biases also
        move so that a step of its weights leaves the mean log odds where they are (Montavon and
        Müller [6]_). A pass has one step per batch, so that a table of a few rows needs larger
        steps, smaller batches or more passes.
    learning_rate_decay : float, default=0.0005
        δ. Step t has the size ``learning_rate_init`` / (1 + δ (t − 1)), because the large first
        steps find a better net, and smaller ones then come nearer to it. With 0 all have the same
        size, as suits a stream whose rows change for good.
    weight_decay : float or "auto", default="auto"
        λ. A step of size ρ also shrinks all weights, but no biases, by the share ρ λ √(b / n) of
        themselves, where n is the weight of all rows, or of those of a stream, and b that of the
        batch (Loshchilov and Hutter [5]_). Weights that the data do not hold up return to zero, so
        that large steps, which find a better net in as many passes, do not lead to one that knows
        its rows by heart. ``"auto"`` learns λ for each weight of the net: the weights of each
        hidden unit have a normal prior, whose variance is learned from them and from what the rows
        tell about them (as in MacKay's evidence framework [7]_), so that a unit that explains few
        of many sparse columns decays fast, and one that explains most columns hardly. The
        recognition network then has 0.16, or what is as strong with ``optimizer="sgd"``, whose
        steps do not divide gradients by their size. Few rows of tens of columns with much structure
        lose by it what sparse columns without structure gain. Nets still learn a part of the noise
        where columns are many more than rows: ``early_stopping=True`` loses less there, and
        predicts rows with much structure worse (:doc:`/results/sigmoid_belief_net_speed`). With
        ``annealing="proximity"`` nothing decays, and a number above 0 is refused, because the data
        do not hold up weights while a constraint moves them. The bound has no term for the decay.
    average : bool, default=True
        Whether the fit returns a mean of the parameters over its steps and not those after the last
        one, which the noise of the gradients keeps away from the optimum. Step t enters the mean
        with the share 11 / (t + 10), so that it is about one over the last tenth of the steps
        (Shamir and Zhang [4]_).
    binarize : float, "sample" or None, default=None
        How the entries of X become binary. None: they must be 0 or 1. A number: entries above it
        are 1; a sparse X needs one of at least 0. ``"sample"``: entries in [0, 1] are
        probabilities, and are drawn anew in every pass.
    init_params : {"random", "normal"}, default="random"
        The start. ``"random"`` draws weights as Glorot and Bengio do, takes the log odds of the
        columns as biases of the data, and ``init_bias`` as the others. ``"normal"`` draws all
        weights and biases of the net from N(``init_bias``, 0.01²), and starts the recognition
        network as ``"random"`` does with biases of 0. With an ``init_bias`` of −10 this is a bad
        start as in the paper on proximity [3]_: units that are on explain nothing, and are soon
        switched off.
    init_bias : float, default=0.0
        See ``init_params``.
    coefs_init, intercepts_init : list of array-like or None, default=None
        ``coefs_`` and ``intercepts_`` at the start, for example those of another fit.
        ``annealing="none"`` goes to the optimum next to this start. Every restart of ``n_init``
        begins there too, and differs in the draws of hidden units. A high temperature can leave it.
        A warm start, and later batches of a stream, go on from the fitted parameters instead. None:
        ``init_params`` decides.
    recognition_coefs_init, recognition_intercepts_init : list of array-like or None, default=None
        The same for ``recognition_coefs_`` and ``recognition_intercepts_``.
    n_score_samples : int, default=100
        Number of draws of the hidden units per row in predictions.
    transform_temperature : float, default=1.0
        T of ``transform``, whose activations are σ(u / T) for log odds u of the units. With 1 they
        are the means of the units given the row, most of which are near 0 or 1, and say little of
        how far a row is from turning a unit. With 2 they are graded, and mostly of more use to a
        classifier (:doc:`/results/sigmoid_belief_net_speed`). Nothing but ``transform`` depends on
        it.
    early_stopping : bool, default=False
        Whether to keep some rows from training, and to stop when their bound no longer rises. The
        fit then ends at the parameters with the highest such bound since the end of the schedule.
        The other rows are copied.
    validation_fraction : float, default=0.1
        The share of the rows that is kept from training with ``early_stopping``. It is the same
        share in all fits to as many rows.
    n_iter_no_change : int, default=10
        Number of passes in a row, with ``early_stopping``, in which the bound of the rows that are
        kept from training has not risen by more than ``tol``, after which the fit ends.
    tol : float, default=1e-6
        The fit has converged when one pass raises the lower bound by less than this, in nats per
        row. The bound of a net is an estimate, so that its mean in the last twenty passes is
        compared with that in the twenty before. With 0 a fit makes all passes.
    max_iter : int, default=100
        Largest number of passes at T = 1, which follow the annealing schedule. With 0 the fit stops
        at the end of the schedule, or at its start where there is no schedule.
    n_init : int, default=1
        Number of restarts. The one with the highest lower bound is kept. The first one is that of
        ``n_init=1``.
    batch_size : int or None, default=100
        Number of rows per update; None means all. The memory of a fit is proportional to it.
    total_samples : float or None, default=None
        The total weight of a stream, for ``partial_fit``. None: that of the batches so far.
    n_jobs : int or None, default=None
        Number of threads, as in scikit-learn. They share out the restarts, or the parts of the data
        if there is only one restart. The result does not depend on their number.
    random_state : int, RandomState instance or None, default=None
        Seed of the starts and of the random numbers that annealing uses.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the last fit, with the moments of the optimizer, at T = 1. With
        ``average`` it goes on from the parameters after the last step, as later batches of a stream
        do.
    verbose : int, default=0
        With 1, a fit says how it begins, where it is (passes, temperature, lower bound, seconds)
        and why it ends. With 2, every pass has a line, with the rise of the bound.
    verbose_interval : int, default=10
        Number of passes, or of calls of ``partial_fit``, from one line to the next with
        ``verbose=1``. A pass after five silent seconds has a line too.

    Attributes
    ----------
    coefs_ : list of ndarray of shape (n_l, n_{l-1})
        W_l of the net, for l = 1, …, L; n_0 is the number of columns.
    intercepts_ : list of ndarray of shape (n_l,)
        b_l of the net, for l = 0, …, L.
    recognition_coefs_ : list of ndarray of shape (n_l, n_{l-1})
        V_l of the recognition network, for l = 1, …, L.
    recognition_intercepts_ : list of ndarray of shape (n_l,)
        a_l of the recognition network, for l = 1, …, L.
    annealing_ : Annealing
        The annealing method, with all its settings.
    lower_bound_ : float
        The multi-sample lower bound on the log-likelihood of the training data at the end, nats,
        estimated in one pass over all rows; an estimate of a row above 0 becomes 0.
    lower_bounds_ : ndarray of shape (n_passes,)
        The learning curve: the estimate of the bound after each pass. In minibatches it is the sum
        over the batches of a pass. It is that of the parameters of the steps, also if the fit
        returns their mean; only the last value is the bound of what it returns.
    standard_errors_ : ndarray of shape (n_passes,)
        The standard error of each of these: √(n Var ℓ), where ℓ are the bounds of the n rows. NaN
        for calls of ``partial_fit``. Equal rows share the draws of the last bound, so that its
        standard error is too small if there are few distinct rows.
    validation_scores_ : ndarray of shape (n_passes,)
        The bound of the rows that ``early_stopping`` keeps from training, nats per row; empty
        without it.
    temperatures_ : ndarray of shape (n_passes,)
        The temperature of each pass.
    n_iter_ : int
        Number of passes.
    converged_ : bool
        Whether the fit has ended before ``max_iter``.
    restart_lower_bounds_ : ndarray of shape (n_init,)
        The lower bound that each restart reached, nats.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if they are strings.

    See Also
    --------
    sklearn.neural_network.BernoulliRBM : An undirected net with one hidden layer.
    AnnealedBayesianMixture : Mixtures of independent binary columns, among others.

    References
    ----------
    .. [1] Neal (1992). Connectionist learning of belief networks. Artificial Intelligence 56.
    .. [2] Mnih, Rezende (2016). Variational inference for Monte Carlo objectives. ICML.
    .. [3] Altosaar, Ranganath, Blei (2018). Proximity variational inference. AISTATS.
    .. [4] Shamir, Zhang (2013). Stochastic gradient descent for non-smooth optimization:
       Convergence results and optimal averaging schemes. ICML.
    .. [5] Loshchilov, Hutter (2019). Decoupled weight decay regularization. ICLR.
    .. [6] Montavon, Müller (2012). Deep Boltzmann machines and the centering trick. Neural
       Networks: Tricks of the Trade.
    .. [7] MacKay (1992). Bayesian interpolation. Neural Computation 4.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal import AnnealedSigmoidBeliefNet
    >>> bars = np.kron(np.eye(2), np.ones((1, 4)))
    >>> X = bars[np.arange(400) % 2]
    >>> net = AnnealedSigmoidBeliefNet(
    ...     (4,), tol=0.01, max_iter=300, random_state=0
    ... ).fit(X)
    >>> net.transform(X).shape
    (400, 4)
    >>> bool(net.score(X) > -2.0)  # at most log 0.5; columns on their own have 8 log 0.5 = -5.5
    True
    """

    _parameter_constraints: dict = {
        **BaseAnnealed._parameter_constraints,
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "optimizer": [StrOptions(set(OPTIMIZERS))],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "learning_rate_decay": [Interval(Real, 0, None, closed="left")],
        "weight_decay": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "average": ["boolean"],
        "binarize": [Real, StrOptions({"sample"}), None],
        "init_params": [StrOptions({"random", "normal"})],
        "init_bias": [Interval(Real, None, None, closed="neither")],
        **dict.fromkeys(_STARTS, [list, tuple, None]),
        "n_score_samples": [Interval(Integral, 1, None, closed="left")],
        "transform_temperature": [Interval(Real, 0, None, closed="neither")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        hidden_layer_sizes=(200,),
        *,
        annealing="none",
        n_samples=5,
        optimizer="adam",
        learning_rate_init="auto",
        learning_rate_decay=0.0005,
        weight_decay="auto",
        average=True,
        binarize=None,
        init_params="random",
        init_bias=0.0,
        coefs_init=None,
        intercepts_init=None,
        recognition_coefs_init=None,
        recognition_intercepts_init=None,
        n_score_samples=100,
        transform_temperature=1.0,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-6,
        max_iter=100,
        n_init=1,
        batch_size=100,
        total_samples=None,
        n_jobs=None,
        random_state=None,
        warm_start=False,
        verbose=0,
        verbose_interval=10,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.annealing = annealing
        self.n_samples = n_samples
        self.optimizer = optimizer
        self.learning_rate_init = learning_rate_init
        self.learning_rate_decay = learning_rate_decay
        self.weight_decay = weight_decay
        self.average = average
        self.binarize = binarize
        self.init_params = init_params
        self.init_bias = init_bias
        self.coefs_init = coefs_init
        self.intercepts_init = intercepts_init
        self.recognition_coefs_init = recognition_coefs_init
        self.recognition_intercepts_init = recognition_intercepts_init
        self.n_score_samples = n_score_samples
        self.transform_temperature = transform_temperature
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.batch_size = batch_size
        self.total_samples = total_samples
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    _kernel_modules = ("sigmoid_belief_net", "optimizers")
    _advice = (
        "the steps of the optimizer led to weights that are not finite. Lower learning_rate_init, "
        "or the strength of the annealing method."
    )
    _advice_converging = (
        "Increase max_iter or learning_rate_init, or decrease batch_size, so that a pass has more "
        "steps; early_stopping=True ends fits that no longer predict other rows better."
    )
    _start_parameters = tuple(_STARTS)
    _model_parameters = (
        "hidden_layer_sizes",
        "n_samples",
        "optimizer",
        "learning_rate_init",
        "learning_rate_decay",
        "weight_decay",
        "average",
        "binarize",
        "init_params",
        "init_bias",
    )
    # All restarts run to their ends, and no moves follow, most of which need statistics.
    restarts = "full"
    effort = 0.0
    _held_out: Units | None = None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.coefs_[0].shape[0]

    # Methods that the base class calls

    def _validate_data(
        self, X: Any, *, reset: bool, ensure_min_samples: int = 2
    ) -> np.ndarray | csr_array:
        refuse_masked(X, "X")
        check_sparse(X)
        X = validated_table(
            self,
            X,
            reset=reset,
            dtype=[np.float64, np.float32],
            accept_sparse="csr",
            ensure_min_samples=ensure_min_samples,
        )
        if issparse(X):
            X = as_csr(X)
            self._check_stored(X)
        else:
            self._check_entries(X)
        return X

    def _check_entries(self, X: np.ndarray) -> None:
        """Refuse entries that are neither 0 nor 1, or that are no probabilities."""
        size = max(1, _ENTRIES // max(1, X.shape[1]))
        for start in range(0, len(X), size):
            good = self._may_be(X[start : start + size])
            if not good.all():
                row, column = np.argwhere(~good)[0]
                self._refuse(X[start + row, column], start + row, column)

    def _check_stored(self, X: csr_array) -> None:
        """Do the same with the entries that a CSR array stores."""
        if isinstance(self.binarize, Real) and self.binarize < 0:
            raise ValueError(
                f"binarize={self.binarize} makes ones of the zeros that a sparse X does not store. "
                "Give a threshold of at least 0, or a dense array, X.toarray()."
            )
        good = self._may_be(X.data[: X.indptr[-1]])
        if not good.all():
            entry = np.argmin(good)
            row = int(np.searchsorted(X.indptr, entry, side="right")) - 1
            self._refuse(X.data[entry], row, X.indices[entry])

    def _may_be(self, entries: np.ndarray) -> np.ndarray:
        """Return whether each entry is possible."""
        if self.binarize is None:
            return (entries == 0) | (entries == 1)
        if self.binarize == "sample":
            return (entries >= 0) & (entries <= 1)
        return np.ones(entries.shape, dtype=bool)

    def _refuse(self, entry: float, row: int, column: int) -> NoReturn:
        allowed = "0 and 1 (binarize=None)" if self.binarize is None else "between 0 and 1"
        raise ValueError(
            f"X has the entry {entry:g} in row {row} and column {column}, but its entries have to "
            f"be {allowed}. Give binarize=a threshold that ones exceed, or scale X to [0, 1] and "
            "give binarize='sample' to draw its entries."
        )

    def _make_units(
        self, X: np.ndarray | csr_array, sample_weight: np.ndarray | None
    ) -> BinaryRows:
        return BinaryRows(X, sample_weight)

    def _sizes(self) -> tuple[int, ...]:
        """The numbers of hidden units, checked."""
        sizes = np.atleast_1d(np.asarray(self.hidden_layer_sizes))
        if sizes.ndim != 1 or not len(sizes):
            raise ValueError(
                "hidden_layer_sizes should have one number per hidden layer, such as (200,) for a "
                f"single one, but got {self.hidden_layer_sizes!r}."
            )
        if sizes.dtype.kind not in "iu" or (sizes < 1).any():
            raise ValueError(
                "hidden_layer_sizes should have positive integers, but got "
                f"{self.hidden_layer_sizes!r}."
            )
        return tuple(int(size) for size in sizes)

    def _decay(self) -> float | None:
        """The decay of weights, checked; None if it is learned."""
        if self.weight_decay == "auto":
            return None
        if self.weight_decay > 0.0 and (
            self.annealing == "proximity" or isinstance(self.annealing, ProximityVI)
        ):
            raise ValueError(
                f"weight_decay={self.weight_decay} cannot be combined with proximity, in whose "
                "fits no weight decays. Give 0 or 'auto'."
            )
        return float(self.weight_decay)

    def _make_model(self, X: np.ndarray | csr_array, units: BinaryRows) -> SigmoidBeliefNet:
        sizes, rate = (X.shape[1], *self._sizes()), self.learning_rate_init
        return SigmoidBeliefNet(
            sizes,
            self.n_samples,
            OPTIMIZERS[self.optimizer](
                _RATES[self.optimizer] if rate == "auto" else rate,
                self.learning_rate_decay,
                averaging=_AVERAGING if self.average else None,
                factors=step_factors(sizes),
                constrained=_CONSTRAINED,
            ),
            self._decay(),
            binarize=self.binarize,
            init_params=self.init_params,
            init_bias=self.init_bias,
            dtype=X.dtype,
        )

    def _stopping_rule(self) -> RiseOfBound:
        if self.early_stopping:
            return NoImprovement(self.tol, self.n_iter_no_change)
        return RiseOfEstimates(self.tol)

    def _settings(self, units: Units) -> Settings:
        return Settings(
            max_iter=self.max_iter,
            stop=self._stopping_rule(),
            batch_size=self.batch_size,
            # The optimizer has the sizes of the steps.
            learning_offset=1.0,
            learning_decay=0.0,
            validation=self._held_out,
        )

    @contextmanager
    def _training(self, units: Units) -> Iterator[Units]:
        """The rows to train with, while those for validation are kept for the settings."""
        if not self.early_stopping:
            yield units
            return
        held_out, training = units.divided(self.validation_fraction)
        for part, name in ((held_out, "for validation"), (training, "to train with")):
            if part.total_weight == 0:
                raise ValueError(
                    f"validation_fraction={self.validation_fraction} of {units.n_units} rows "
                    f"leaves none of positive weight {name}. Change it, or give "
                    "early_stopping=False."
                )
        self._held_out = held_out
        try:
            yield training
        finally:
            del self._held_out

    def _start_anew(self, model, strategy, plan, units, *how):
        with self._training(units) as rows:
            return super()._start_anew(model, strategy, plan, rows, *how)

    def _continue_fit(self, units, monitor, checkpoint):
        with self._training(units) as rows:
            progress = super()._continue_fit(rows, monitor, checkpoint)
        progress.trace.standard_errors[:0] = list(self.standard_errors_)
        progress.trace.validation[:0] = list(self.validation_scores_)
        return progress

    def _keep(self, inference, method, trace, found=None):
        super()._keep(inference, method, trace, found)
        if found is None:
            trace.standard_errors = [np.nan] * len(trace.lower_bounds)
        self.standard_errors_ = np.array(trace.standard_errors)
        self.validation_scores_ = np.array(trace.validation)

    def _given_start(self, model: SigmoidBeliefNet) -> Given:
        given = {}
        for name, (letter, first) in _STARTS.items():
            arrays = getattr(self, name)
            if arrays is None:
                continue
            keys = [f"{letter}{i}" for i in range(first, model.depth + 1)]
            if len(arrays) != len(keys):
                raise ValueError(
                    f"The parameter '{name}' should have {len(keys)} arrays, one for each layer, "
                    f"but has {len(arrays)}."
                )
            for i, (key, array) in enumerate(zip(keys, arrays, strict=True)):
                shape = model.shape(key)
                if array is None:
                    raise ValueError(
                        f"The parameter '{name}' should have an array for each layer, but "
                        f"{name}[{i}] is None. Give an array of shape {shape} there, or leave "
                        f"{name} out, so that init_params decides on all layers."
                    )
                given[key] = given_array(array, shape, f"{name}[{i}]")
        return given

    def _weights_for_order(self, ctx: Context) -> np.ndarray:
        return np.square(ctx.q["W1"]).sum(axis=1)

    def _fitted_attributes(self, ctx: Context) -> Attributes:
        q, depth = ctx.q, ctx.model.depth
        layers = range(1, depth + 1)
        return {
            "coefs_": [q[f"W{i}"] for i in layers],
            "intercepts_": [q[f"b{i}"] for i in range(depth + 1)],
            "recognition_coefs_": [q[f"V{i}"] for i in layers],
            "recognition_intercepts_": [q[f"a{i}"] for i in layers],
        }

    # Public methods

    @by_parts
    @explains("Prediction")
    def transform(self, X, *, layer=1):
        """Activations of a hidden layer given each row, which are means of its units.

        Units that a fit did not need are on in nearly all rows, or in nearly none, and their
        activations hardly vary. Scale the activations, for example by
        :class:`sklearn.preprocessing.StandardScaler`, before a classifier whose penalty depends on
        their scale: those small differences are often of use to it. Give
        ``transform_temperature=2`` as well, with which activations are graded.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), or data in parts
            Rows.
        layer : int, default=1
            The hidden layer, from 1 to L. The means of the first layer are exact under q(h | x),
            and cost one product of matrices. Those of the layers above are averages over
            ``n_score_samples`` draws of the layers below, which depend on nothing but the row.

        Returns
        -------
        activations : ndarray of shape (n_samples, n_l)
            E_q[h_l | x], in [0, 1], with ``transform_temperature=1``; otherwise the log odds of the
            layer's units are divided by the temperature first. The dtype is that of X if X has
            floating-point numbers, else float64.
        """
        ctx, X = self._rows(X)
        depth = ctx.model.depth
        if not isinstance(layer, (int, np.integer)) or not 1 <= layer <= depth:
            raise ValueError(f"layer should be an integer from 1 to {depth}, but got {layer!r}.")
        found = np.zeros((X.shape[0], ctx.model.sizes[layer]), dtype=X.dtype)
        if layer == 1:
            for rows in BinaryRows(X).chunks():
                x = ctx.model.binary(X[rows], ctx.model.keys_of(X[rows], None))
                found[rows] = self._activations(x @ ctx.q["V1"].T + ctx.q["a1"])
            return found
        for rows, drawn, share in self._draws(ctx, X):
            of_draws = self._activations(drawn.logits[layer - 1])
            found[rows] += share * of_draws.reshape(-1, *found[rows].shape).mean(axis=0)
        return found

    def _activations(self, log_odds: np.ndarray) -> np.ndarray:
        """Return the activations of units with these log odds at the temperature of transform."""
        activations: np.ndarray = expit(log_odds / self.transform_temperature)
        return activations

    @by_parts
    @explains("Prediction")
    def reconstruct(self, X):
        """Probabilities of ones in each row, given its inferred hidden units.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), or data in parts
            Rows.

        Returns
        -------
        X_reconstructed : ndarray of shape (n_samples, n_features)
            E_q[p(x′ = 1 | h_1) | x], the average over ``n_score_samples`` draws of the first hidden
            layer, which depend on nothing but the row. It is an array, also if X is sparse.
        """
        ctx, X = self._rows(X)
        q = ctx.q
        found = np.zeros(X.shape, dtype=X.dtype)
        for rows, drawn, share in self._draws(ctx, X):
            for few, values in drawn.parts():
                of_few = found[rows][few]
                p = expit(values[1] @ q["W1"] + q["b0"])
                of_few += share * p.reshape(-1, *of_few.shape).mean(axis=0)
        return found

    @by_parts
    @explains("Prediction")
    def score_samples(self, X):
        """Lower bounds on the log probabilities of rows, by importance weights.

        The bound of a row is log (1/K) Σ_k p(x, h_k) / q(h_k | x) with K = ``n_score_samples``
        draws h_k of the recognition network. Its expectation is below log p(x), and approaches it
        as K grows. The draws depend on nothing but the row, so that results can be repeated. With
        ``binarize="sample"``, the row itself is one draw with its probabilities.

        The bound is an estimate, which can be too large by chance. As a row of zeros and ones has a
        log probability of 0 at most, an estimate above 0 becomes 0.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), or data in parts
            Rows.

        Returns
        -------
        log_probability : ndarray of shape (n_samples,)
            Lower bounds in nats, at most 0.
        """
        ctx, X = self._rows(X)
        found = np.full(X.shape[0], -np.inf)
        for rows, drawn, _ in self._draws(ctx, X):
            log_q = of_rows(drawn.log_q, rows.stop - rows.start)
            for few, values in drawn.parts():
                log_p = ctx.model.generated(ctx.q, values)[0]
                log_w = of_rows(log_p, few.stop - few.start) - log_q[:, few]
                found[rows][few] = np.logaddexp(found[rows][few], logsumexp(log_w, axis=0))
        return np.minimum(finite(found - np.log(self.n_score_samples), _OVERFLOW), 0.0)

    @explains("Prediction")
    def sample(self, n_samples=1):
        """Draw rows and their hidden units from the net, from the top down.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The rows, 0 or 1.
        hidden : list of ndarray of shape (n_samples, n_l)
            The units of the hidden layers l = 1, …, L, 0 or 1.
        """
        ctx = self._context()
        check_n_samples(n_samples)
        rng, dtype = check_random_state(self.random_state), ctx.model.dtype
        logits = np.broadcast_to(self.intercepts_[-1], (n_samples, ctx.model.sizes[-1]))
        layers = [(rng.uniform(size=logits.shape) < expit(logits)).astype(dtype)]
        for weights, bias in zip(self.coefs_[::-1], self.intercepts_[-2::-1], strict=True):
            p = expit(layers[0] @ weights + bias)
            layers.insert(0, (rng.uniform(size=p.shape) < p).astype(dtype))
        return layers[0], layers[1:]

    def _rows(self, X: ArrayLike) -> tuple[Context, np.ndarray | csr_array]:
        ctx = self._context()
        X = self._validate_data(X, reset=False, ensure_min_samples=1)
        self._load_kernels()
        return ctx, X

    def _draws(self, ctx: Context, X: np.ndarray | csr_array) -> Iterator[tuple[slice, Any, float]]:
        """Draws of hidden units, a few at a time, with the share that they are of all draws."""
        model, total = ctx.model, self.n_score_samples
        for rows in BinaryRows(X).chunks():
            for first in range(0, total, model.n_samples):
                size = min(model.n_samples, total - first)
                yield rows, model.infer(ctx.q, X[rows], None, first, size), size / total
