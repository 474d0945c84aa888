"""Sigmoid belief nets: layers of binary units, with a recognition network, trained by gradients.

A net generates data from its top layer down, x = h_0 ← h_1 ← … ← h_L,

    h_L ~ Bernoulli(σ(b_L)),    h_{l−1} | h_l ~ Bernoulli(σ(h_l W_l + b_{l−1})),

and q(h | x) infers the layers from the data up, h_l | h_{l−1} ~ Bernoulli(σ(h_{l−1} V_lᵀ + a_l)).
The bound of a row is that of several samples (Burda et al., 2016),

    ℓ(x) = E log (1/S) Σ_s w_s,    w_s = p(x, h_s) / q(h_s | x),    h_s ~ q(h | x),

and its gradient is estimated as in VIMCO (Mnih and Rezende, 2016, Eq. 10 to 12).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.sparse import csr_array, issparse
from scipy.special import expit

from ..families import Natural, Tempering
from ._base import (
    Block,
    Constraint,
    DataSummary,
    Decay,
    GradientModel,
    LocalStep,
    Optimizer,
    Visit,
    compiled,
)
from ._binary_rows import BinaryRows, SparseBits
from ._componentwise import Componentwise, Given
from ._streamed import Streamed

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

kernels = partial(compiled, "sigmoid_belief_net")

# Samples of sparse rows whose probabilities of all columns are in memory at a time.
_SAMPLES_AT_A_TIME = 128
# Sparse rows of a chunk with at most so many cells are an array, which is faster: a tenth of the
# time of an epoch with 500 columns, nothing with 2,600, and a loss with 5,000.
_CELLS_OF_ARRAY = 1 << 18
# A visible unit that is never or always on gets the log odds of this many more rows of each kind.
_PSEUDO_ROWS = 0.5
# Steps have their full size where the layer below has at most so many units, and fall with this
# power of the number of units where it has more; those of the recognition network have a part of
# the size. Chosen on digits, splice junctions, words, mushrooms, films, votes and drawn tables.
_FEW_UNITS, _EXPONENT, _OF_RECOGNITION = 96.0, 0.7, 0.5
# The decay of the weights of the recognition network by default.
_DECAY = 0.16
# The precision of a unit's weights is learned from them and so many more of this mean square.
_PSEUDO_WEIGHTS, _PSEUDO_SQUARE = 20.0, 2.0
# A unit's weights have at least the information of a tenth of a row.
_LEAST_ROWS = 0.1
# A stream keeps so many rows for each unit of its largest hidden layer, and at least so many.
_ROWS_OF_UNIT, _ROWS_OF_STREAM = 32, 6400
# The seed of the factors that make a number of every row, for draws that depend on the row alone.
_HASH_SEED = 0x5B17
_STEP = np.uint64(0xD1342543DE82EF95)


@dataclass(frozen=True)
class Summary(DataSummary):
    """The summary of the training data, for the start."""

    weight: float  # total weight of the rows
    ones: np.ndarray  # weighted sum of the rows, (n_features,)
    # The weight of the rows in ``ones``; in a stream, ``weight`` is that of rows to come.
    rows: float

    def merge(self, other: Summary) -> Summary:
        return Summary(self.weight + other.weight, self.ones + other.ones, self.rows + other.rows)

    def continued(self, other: Summary) -> Summary:
        return other


class SigmoidBeliefNet(Componentwise[Summary], Streamed, GradientModel[BinaryRows, Summary]):
    """A sigmoid belief net with a recognition network.

    The parameters of layer l = 1, …, L are ``W{l}`` (n_l, n_{l−1}) and ``b{l−1}`` (n_{l−1},) of the
    net, ``V{l}`` (n_l, n_{l−1}) and ``a{l}`` (n_l,) of the recognition network, and ``b{L}`` (n_L,)
    of the top. n_0 is the number of columns of the data.

    Parameters
    ----------
    sizes : tuple of int
        n_0, …, n_L.
    n_samples : int
        S.
    optimizer : Optimizer
    weight_decay : float or None
        λ of all weights; None: it is learned for those of the net.
    binarize : float, "sample" or None
        How values of the data become 0 or 1: by a threshold, which ones exceed; by a draw with
        these probabilities at every visit; or not at all, because they are 0 or 1.
    init_params : {"random", "normal"}
    init_bias : float
    dtype : numpy.dtype
        float64 or float32, in which matrices are multiplied.
    """

    recommended = {
        "deterministic": {"initial_temperature": 2.0, "n_passes": 10},
        "proximity": {"strength": 1e8, "lag": 100, "n_passes": 100, "schedule": "exponential"},
        "svi_plus": {"n_passes": 20},
    }

    def __init__(
        self,
        sizes: tuple[int, ...],
        n_samples: int,
        optimizer: Optimizer,
        weight_decay: float | None = 0.0,
        binarize: Any = None,
        init_params: str = "random",
        init_bias: float = 0.0,
        dtype: DTypeLike = np.float64,
    ):
        self.sizes = sizes
        self.n_samples = n_samples
        self.optimizer = optimizer
        self.weight_decay = weight_decay
        self.binarize = binarize
        self.init_params = init_params
        self.init_bias = init_bias
        self.dtype = np.dtype(dtype)
        self.n_components = sizes[1]
        layers = range(1, len(sizes))
        self.keys = (
            *(f"W{l}" for l in layers),  # noqa: E741
            *(f"b{l}" for l in range(len(sizes))),  # noqa: E741
            *(f"V{l}" for l in layers),  # noqa: E741
            *(f"a{l}" for l in layers),  # noqa: E741
        )

    @property
    def depth(self) -> int:
        """L, the number of hidden layers."""
        return len(self.sizes) - 1

    def shape(self, key: str) -> tuple[int, ...]:
        """Return the shape of a parameter."""
        layer = int(key[1:])
        if key[0] in "WV":
            return self.sizes[layer], self.sizes[layer - 1]
        return (self.sizes[layer],)

    def capabilities(self) -> dict[str, str | None]:
        return {
            "assignments": None,
            "assignment_entropy": (
                "its units are no assignments to components; give a number as initial_temperature"
            ),
            "draws": "its parameters are points, which have no distribution to draw from",
            "log_partition": "the tempered model sums over all states of all units",
            "unit_log_partition": "the tempered model sums over all states of all units",
            "locally_tempered_step": "its rows have no temperatures of their own",
        }

    # Data, prior and starts

    def summary(self, units: BinaryRows) -> Summary:
        X, weights = units.X, units.weights
        if self.binarize not in (None, "sample"):
            X = X > self.binarize
        ones = X.sum(axis=0, dtype=np.float64) if weights is None else weights @ X
        return Summary(units.total_weight, np.asarray(ones, dtype=np.float64), units.total_weight)

    def prior(self, summary: Summary) -> Natural:
        """Nothing, because the parameters have no prior."""
        return {}

    def init(
        self,
        units: BinaryRows | None,
        summary: Summary,
        prior: Natural,
        random_state: np.random.RandomState,
    ) -> Natural:
        draws = {key: self._random(key, random_state) for key in self.keys}
        draws["b0"] = self._log_odds(summary)
        if self.init_params == "normal":
            draws |= {
                key: random_state.normal(self.init_bias, 0.01, self.shape(key))
                for key in self.keys
                if key[0] in "Wb"
            }
        return {key: value.astype(self.dtype) for key, value in draws.items()}

    def started_at(
        self, given: Given, usual: Callable[[], Natural], summary: Summary, prior: Natural
    ) -> Natural:
        """Return the usual start, in which the given parameters replace those of their names."""
        return usual() | {key: value.astype(self.dtype) for key, value in given.items()}

    def reordered(
        self, q: Natural, prior: Natural, order: np.ndarray
    ) -> tuple[Self, Natural, Natural]:
        """Return the model, its prior and q, or moments of its gradients, in another order.

        The order is that of the first hidden layer.
        """
        moved = dict(q)
        for key in ("W1", "V1", "b1", "a1"):
            moved[key] = np.ascontiguousarray(q[key][order])
        if self.depth > 1:
            for key in ("W2", "V2"):
                moved[key] = np.ascontiguousarray(q[key][:, order])
        return self, prior, moved

    def _random(self, key: str, random_state: np.random.RandomState) -> np.ndarray:
        """Draw weights as Glorot and Bengio (2010) do; biases are constant."""
        shape = self.shape(key)
        if len(shape) == 1:
            normal = self.init_params == "normal"
            return np.full(shape, 0.0 if normal else self.init_bias)
        bound = np.sqrt(6.0 / sum(shape))
        return random_state.uniform(-bound, bound, shape)

    def _log_odds(self, summary: Summary) -> np.ndarray:
        """Return the log odds of the columns, which the visible biases start from."""
        ones, rows = summary.ones, summary.rows
        return np.log(ones + _PSEUDO_ROWS) - np.log(rows - ones + _PSEUDO_ROWS)

    def random_natural(
        self, summary: Summary, prior: Natural, rng: np.random.Generator, block: Block | None = None
    ) -> Natural:
        seed = int(rng.integers(2**31))
        return self.init(None, summary, prior, np.random.RandomState(seed))

    # Inference

    def visit(
        self,
        q: Natural,
        units: BinaryRows,
        t: Tempering = Tempering(),  # noqa: B008
        *,
        separate_noise: bool = False,
        evaluation: bool = False,
        constraint: str | None = None,
        **how: Any,
    ) -> NetVisit:
        return NetVisit(
            *(self, q, t, None, separate_noise), constraint=constraint, evaluation=evaluation
        )

    # Steps

    def centered_gradient(self, q: Natural, gradient: Natural) -> Natural:
        """Return the gradient with respect to W_l and c_{l−1} = b_{l−1} + m_l W_l.

        In these, the log odds of a layer are (h_l − m_l) W_l + c_{l−1}, where m_l are about the
        means of h_l in the net. A step of W_l then leaves the mean log odds where they are, as in
        centered Boltzmann machines (Montavon and Müller, 2012).
        """
        centered = dict(gradient)
        for layer, means in self._means(q):
            weights, bias = f"W{layer}", f"b{layer - 1}"
            centered[weights] = gradient[weights] - np.outer(means, gradient[bias])
        return centered

    def after_step(self, before: Natural, after: Natural) -> Natural:
        """Return the parameters after a step of W and c."""
        moved = dict(after)
        for layer, means in self._means(before):
            weights, bias = f"W{layer}", f"b{layer - 1}"
            moved[bias] = after[bias] - means @ (after[weights] - before[weights])
        return moved

    def decay(self, q: Natural, summary: Summary, share: float) -> Decay:
        """Return λ of the weights, which is learned from those of the net if none was given.

        A given λ, and those of optimizers that divide gradients by their size, are multiplied by
        the root of the batch's share of the data (Loshchilov and Hutter, 2019).

        The weights of a unit have the prior N(0, 1/α). The data hold the weight from unit j to unit
        i of the layer below with the information I = n m_j (1 − m_j) m_i (1 − m_i), where m are
        means of the units and n is the weight of the rows. With the factor φ of the size of the
        step, weights rest at the mode of their posterior if λ = φ α/n, times the sum of the steps
        that follow a gradient if there is momentum; and if a step divides the gradient by its
        standard deviation for one row, √(I/n), with λ = φ α/√I. 1/α is the mean of w² + 1/(2 I)
        over a unit's weights and a few more: the square of the weight, and its variance if the
        prior is as strong as the data.
        """
        root, gain = np.sqrt(share), self.optimizer.gain
        if self.weight_decay == 0.0:
            return {}
        if self.weight_decay is not None:
            return {key: root * self.weight_decay for key in self.keys if key[0] in "WV"}
        found: dict[str, float | np.ndarray] = {}
        n, factors, means = summary.weight, step_factors(self.sizes), dict(self._means(q))
        means[0] = expit(self._log_odds(summary))
        for l in range(1, self.depth + 1):  # noqa: E741
            W, above, below = q[f"W{l}"], means[l], means[l - 1]
            rows = np.maximum(n * above * (1.0 - above), _LEAST_ROWS)
            of_row = np.maximum(below * (1.0 - below), 0.5 / (n + 2.0))
            squares = np.einsum("ij,ij->i", W, W) + 0.5 / rows * (1.0 / of_row).sum()
            squares += _PSEUDO_WEIGHTS * _PSEUDO_SQUARE
            precisions = (W.shape[1] + _PSEUDO_WEIGHTS) / squares
            precisions *= factors[f"W{l}"]
            if gain is None:
                found[f"W{l}"] = root * np.outer(precisions / np.sqrt(rows), of_row**-0.5)
                found[f"V{l}"] = root * _DECAY
            else:
                found[f"W{l}"] = np.broadcast_to((gain / n * precisions)[:, None], W.shape)
                found[f"V{l}"] = gain / n * _DECAY * np.sqrt(np.outer(rows, of_row))
        return found

    def _means(self, q: Natural) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each hidden layer, from the top, with the means of its units in the net.

        Those below the top are probabilities at the means of the layer above.
        """
        logits = q[f"b{self.depth}"]
        for l in range(self.depth, 0, -1):  # noqa: E741
            means = expit(logits)
            yield l, means
            logits = means @ q[f"W{l}"] + q[f"b{l - 1}"]

    def operations(self, units: BinaryRows) -> float:
        sizes = self.sizes
        weights = sum(m * n for m, n in zip(sizes, sizes[1:], strict=False))
        return 6.0 * self.n_samples * units.n_units * weights

    def rows_of_replays(self) -> int:
        """Return the number of random rows of a stream that are seen again.

        A single step for each batch is too few for a net, and forgets batches of other kinds.
        """
        return max(_ROWS_OF_UNIT * max(self.sizes[1:]), _ROWS_OF_STREAM)

    # Draws and rows, also for predictions

    def keys_of(self, X: np.ndarray | csr_array, seed: int | None) -> np.ndarray:
        """Return the numbers of the streams from which the rows draw, shape (n_rows,).

        With a seed, they follow from it and the position of the row. Without, they follow from
        the content of the row, whether it is dense or sparse.
        """
        if seed is not None:
            numbers = np.arange(1, X.shape[0] + 1, dtype=np.uint64)
            return _mixed(numbers * _STEP + np.uint64(seed)).view(np.int64)
        rng = np.random.default_rng(_HASH_SEED)
        factors: np.ndarray = 2 * rng.integers(1, 2**63, X.shape[1], np.uint64) + np.uint64(1)
        if not issparse(X):
            return _mixed((_mixed(_bits(X)) * factors).sum(axis=1)).view(np.int64)
        # A zero is mixed to 0, so that cells that are not stored add nothing. Sums of uint64 are
        # exact modulo 2^64, and so are their differences.
        stored: Any = X
        terms = _mixed(_bits(stored.data)) * factors[stored.indices]
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms)])[stored.indptr]
        return _mixed(np.diff(sums)).view(np.int64)

    def binary(self, X: np.ndarray | csr_array, keys: np.ndarray) -> np.ndarray | SparseBits:
        """Return rows as zeros and ones, in the floating-point type of the net."""
        if issparse(X):
            stored: Any = X
            ones = self._ones(stored, keys)
            if X.shape[0] * X.shape[1] > _CELLS_OF_ARRAY:
                return SparseBits(stored, ones, self.dtype)
            few = np.zeros(X.shape, self.dtype)
            few[np.repeat(np.arange(len(few)), np.diff(stored.indptr)), stored.indices] = ones
            return few
        X = np.ascontiguousarray(X, dtype=self.dtype)
        if self.binarize is None:
            return X
        if self.binarize != "sample":
            return (X > self.binarize).astype(self.dtype)
        drawn = np.empty_like(X)
        kernels().draw_values(X, keys, 0, drawn)
        return drawn

    def _ones(self, X: csr_array, keys: np.ndarray) -> np.ndarray:
        """Return whether each entry that a CSR array stores is a one."""
        data = np.ascontiguousarray(X.data, dtype=self.dtype)
        if self.binarize != "sample":
            ones: np.ndarray = data > (self.binarize or 0.0)
            return ones
        drawn = np.empty_like(data)
        of_entries = np.repeat(keys, np.diff(X.indptr))
        kernels().draw_entries(data, of_entries, X.indices.astype(np.int64), drawn)
        return drawn > 0

    def infer(
        self, q: Natural, X: np.ndarray | csr_array, seed: int | None, first: int, size: int
    ) -> Inferred:
        """Draw samples of all layers for some rows.

        Parameters
        ----------
        q : dict of ndarray
        X : ndarray or csr_array of shape (n_rows, n_features)
        seed : int or None
            None: draws depend on the content of the row alone.
        first, size : int
            The numbers of the samples: ``first`` to ``first + size``.
        """
        keys = self.keys_of(X, seed)
        x = self.binary(X, keys)
        n_rows, n_units = size * len(x), sum(self.sizes)
        log_q, entropy = np.zeros(n_rows), np.zeros(n_rows)
        values: list[Any] = [x]
        residuals, logits = [], []
        offset = self.sizes[0]
        for l in range(1, self.depth + 1):  # noqa: E741
            u = values[-1] @ q[f"V{l}"].T
            u += q[f"a{l}"]
            h, r = (np.empty((n_rows, self.sizes[l]), self.dtype) for _ in range(2))
            part = first * n_units + offset
            kernels().draw(u, keys, part, n_units, h, r, log_q, entropy)
            values.append(h)
            residuals.append(r)
            logits.append(u)
            offset += self.sizes[l]
        return Inferred(values, residuals, logits, log_q, entropy)

    def generated(self, q: Natural, values: list[np.ndarray]) -> tuple[np.ndarray, list]:
        """Return log p(x, h), of shape (n_rows,), and the residuals of each layer below the top.

        The residuals are value − probability, of layers 0 to L.
        """
        top = values[-1]
        bias = q[f"b{self.depth}"]
        log_p = (top @ bias).astype(np.float64) - np.logaddexp(0.0, bias.astype(np.float64)).sum()
        residuals = []
        for l in range(1, self.depth + 1):  # noqa: E741
            g = values[l] @ q[f"W{l}"]
            kernels().log_probabilities(values[l - 1], q[f"b{l - 1}"], g, log_p)
            residuals.append(g)
        residuals.append(top - expit(bias))
        return log_p, residuals


@dataclass
class Inferred:
    """Samples of the hidden layers; row s B + n has sample s of row n, of B rows."""

    # The values of layers 0 to L; layer 0 has B rows and the others have S B. Layer 0 can be
    # :class:`SparseBits`.
    values: list[Any]
    residuals: list[np.ndarray]  # value − probability under q, of layers 1 to L
    logits: list[np.ndarray]  # logits under q of layers 1 to L; those of layer 1 have B rows
    log_q: np.ndarray  # log q(h | x), (S B,)
    # The entropies of the conditional distributions, summed over layers and units, nats, (S B,).
    entropy: np.ndarray

    def parts(self) -> Iterator[tuple[slice, list[np.ndarray]]]:
        """Yield some rows and the values of their layers as arrays: all, or a few sparse rows.

        The net has a probability for every column and every sample, whatever the row has, so that
        these few rows as an array are the S-th part of what it needs anyway.
        """
        x, *hidden = self.values
        n_rows = len(x)
        if not isinstance(x, SparseBits):
            yield slice(0, n_rows), self.values
            return
        size = len(self.log_q) // n_rows
        step = max(1, _SAMPLES_AT_A_TIME // size)
        for start in range(0, n_rows, step):
            rows = slice(start, min(start + step, n_rows))
            some = [of_rows(h, n_rows)[:, rows].reshape(-1, h.shape[1]) for h in hidden]
            yield rows, [x.dense(rows), *map(np.ascontiguousarray, some)]


@dataclass(frozen=True)
class NetVisit(Visit[BinaryRows]):
    """A visit at parameters ``expected``.

    Parameters
    ----------
    constraint : str or None
        The statistic of q that local steps return with its gradient.
    evaluation : bool
        Whether only the bound is computed, with draws that depend on nothing but the row.
    """

    constraint: str | None = None
    evaluation: bool = False

    # Draws of the next visit differ, so that the bound of a fit comes from a visit of its own.
    gives_bound = False

    def start(
        self, units: BinaryRows, local: Any, exploring: bool, noise: float, rng: np.random.Generator
    ) -> int | None:
        """Return the seed of the chunk's draws; None for draws that depend on the row alone."""
        return None if self.evaluation else int(rng.integers(2**63))

    def step(
        self, units: BinaryRows, noise: np.ndarray | None = None, local: Any = None
    ) -> LocalStep:
        model, q = self.model, self.expected
        size, n_rows = model.n_samples, units.n_units
        weights = np.ones(n_rows) if units.weights is None else units.weights
        with_noise = weights
        if noise is not None:
            with_noise = weights * (1.0 + noise if self.separate_noise else noise)
        drawn = model.infer(q, units.X, local, 0, size)
        # L_n = log (1/S) Σ_s w_s with w_s = p(x_n, h_s) / q(h_s | x_n), whose mean is at most
        # log p(x_n). The entropy is −(1/S) Σ_s E log q, and the energy is the rest of the bound.
        log_p, residuals, gradient = self._generated(drawn, with_noise)
        log_q = of_rows(drawn.log_q, n_rows)
        bounds = log_mean_exp(log_p - log_q)
        if self.evaluation:
            # The mean of a few samples can be above 0, where no log probability is.
            bounds = np.minimum(bounds, 0.0)
        entropy = float(weights @ of_rows(drawn.entropy, n_rows).mean(axis=0))
        energy = float(weights @ bounds) - entropy
        with np.errstate(over="ignore"):
            squares = float(weights @ bounds**2)
        if self.evaluation:
            return LocalStep({}, energy, entropy, squares=squares)
        _, of_q = coefficients(float(self.t.local) * log_p - log_q)
        statistics = gradient | recognition(drawn, with_noise * of_q)
        constraints: tuple[Constraint, ...] = ()
        if self.constraint is not None:
            constraints = Statistics(drawn, residuals, weights / size).of(self.constraint)
        return LocalStep(statistics, energy, entropy, squares=squares, constraints=constraints)

    def _generated(
        self, drawn: Inferred, weights: np.ndarray
    ) -> tuple[np.ndarray, list[np.ndarray], Natural]:
        """Return log p(x, h), residuals, and the gradient with respect to W and b.

        Returns
        -------
        log_p : ndarray of shape (S, B)
        residuals : list of ndarray
            Value − probability, of layers 1 to L; empty without constraint.
        gradient : dict of ndarray
            Empty in an evaluation.
        """
        n_rows = len(weights)
        log_q = of_rows(drawn.log_q, n_rows)
        log_p, residuals = np.empty(log_q.shape), []
        gradient: Natural = {}
        for rows, values in drawn.parts():
            found, own = self.model.generated(self.expected, values)
            log_p[:, rows] = of_rows(found, rows.stop - rows.start)
            if not self.evaluation:
                share = shares(float(self.t.local) * log_p[:, rows] - log_q[:, rows])
                factors = float(self.t.statistics) * weights[rows] * share
                for key, value in generative(values, own, factors).items():
                    if key in gradient:
                        gradient[key] += value
                    else:
                        gradient[key] = value
            if self.constraint is not None:
                residuals.append([of_rows(r, rows.stop - rows.start) for r in own[1:]])
            # The residuals of the columns are large. Those of the next part take their place.
            del own
        layers = zip(*residuals, strict=True)
        joined = [np.concatenate(r, axis=1).reshape(-1, r[0].shape[2]) for r in layers]
        return log_p, joined, gradient

    def finish(self, step: LocalStep) -> LocalStep:
        """Turn two moments into the variances of units, where the constraint is on these."""
        if self.constraint == "active_units":
            step.constraints = (variances(*step.constraints),)
        return step


def step_factors(sizes: tuple[int, ...]) -> dict[str, float]:
    """Return the factors of the sizes of steps of all parameters.

    A step of the net changes the log odds of all units of the layer below. The log probability of
    that layer is their sum, so that steps are smaller where it has more than 96 units. The
    recognition network takes smaller steps than the net, because its draws are what the net learns
    from, and its gradients are noisier.
    """
    found = {}
    for l in range(1, len(sizes)):  # noqa: E741
        of_net = min(1.0, (_FEW_UNITS / sizes[l - 1]) ** _EXPONENT)
        found[f"W{l}"] = found[f"b{l - 1}"] = found[f"b{l}"] = of_net
        found[f"V{l}"] = found[f"a{l}"] = _OF_RECOGNITION * of_net
    return found


def _bits(values: np.ndarray) -> np.ndarray:
    """Return the bits of values in double precision, as numbers."""
    return np.ascontiguousarray(values, dtype=np.float64).view(np.uint64)


def _mixed(z: np.ndarray) -> np.ndarray:
    """Return numbers of 64 bits in which every bit depends on all bits of the given ones."""
    z = (z ^ (z >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    z = (z ^ (z >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return z ^ (z >> np.uint64(33))


def of_rows(values: np.ndarray, n_rows: int) -> np.ndarray:
    """Return values of samples, sample s of row n at s B + n, in the shape (S, B, …)."""
    return values.reshape(-1, n_rows, *values.shape[1:])


def log_sum_exp(log_w: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return log Σ w along an axis, from finite log w."""
    largest = log_w.max(axis=axis, keepdims=True)
    total: np.ndarray = np.log(np.exp(log_w - largest).sum(axis=axis)) + largest.squeeze(axis)
    return total


def log_mean_exp(log_w: np.ndarray) -> np.ndarray:
    """Return log (1/S) Σ_s w_s, from log w of shape (S, n_rows)."""
    return log_sum_exp(log_w) - np.log(len(log_w))


def shares(log_w: np.ndarray) -> np.ndarray:
    """Return the normalised weights w̃_s, from log w of shape (S, n_rows)."""
    share: np.ndarray = np.exp(log_w - log_sum_exp(log_w))
    return share


def coefficients(log_w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors of ∇ log p(x, h_s) and of ∇ log q(h_s | x), of shape (S, n_rows).

    The first are the normalised weights w̃_s. The second are the learning signals minus these. The
    signal of a sample is the bound minus what it would be if the log weight of the sample were the
    mean of those of the others. A single sample is compared with the other rows, which are
    independent of it too.
    """
    # ∇ L = Σ_s w̃_s ∇ log p(x, h_s) + Σ_s (L − L_{−s} − w̃_s) ∇ log q(h_s | x)
    size, n_rows = log_w.shape
    total = log_sum_exp(log_w)
    share = np.exp(log_w - total)
    if size == 1:
        others = (log_w.sum() - log_w) / (n_rows - 1) if n_rows > 1 else np.zeros((1, 1))
        return share, log_w - others - share
    bound = total - np.log(size)
    replaced = np.broadcast_to(log_w, (size, size, n_rows)).copy()
    s = np.arange(size)
    replaced[s, s] = (log_w.sum(axis=0) - log_w) / (size - 1)
    without = log_sum_exp(replaced, axis=1) - np.log(size)
    return share, bound - without - share


def generative(
    values: list[np.ndarray], residuals: list[np.ndarray], factors: np.ndarray
) -> Natural:
    """Return the gradient with respect to W and b.

    Parameters
    ----------
    values, residuals : list of ndarray
        The values of layers 0 to L, and value − probability of the net.
    factors : ndarray of shape (S, B)
        The factors of ∇ log p(x, h_s).
    """
    # Layer l − 1 has the logits h_l W_l + b_{l−1}, and ∂ log p / ∂ logit is value − probability.
    c = factors.astype(values[0].dtype).reshape(-1, 1)
    found: Natural = {}
    for l in range(1, len(values)):  # noqa: E741
        found[f"W{l}"] = (c * values[l]).T @ residuals[l - 1]
        found[f"b{l - 1}"] = (c.T @ residuals[l - 1])[0]
    found[f"b{len(values) - 1}"] = (c.T @ residuals[-1])[0]
    return found


def recognition(drawn: Inferred, factors: np.ndarray) -> Natural:
    """Return the gradient with respect to V and a, given the factors of ∇ log q(h_s | x)."""
    values = drawn.values
    c = factors.astype(values[0].dtype).reshape(-1, 1)
    found: Natural = {}
    for l in range(1, len(values)):  # noqa: E741
        found |= through_logits(l, c * drawn.residuals[l - 1], values[l - 1])
    return found


def through_logits(layer: int, slopes: np.ndarray, below: np.ndarray | SparseBits) -> Natural:
    """Return the gradient with respect to V and a of a layer, from that to its logits.

    ``slopes`` has one row per sample. The data below layer 1 have only one row per data point, so
    that samples are added first.
    """
    n_rows, n_units = len(below), slopes.shape[1]
    if len(slopes) != n_rows:
        slopes = slopes.reshape(-1, n_rows, n_units).sum(axis=0)
    return {f"V{layer}": slopes.T @ below, f"a{layer}": slopes.sum(axis=0)}


@dataclass
class Statistics:
    """Statistics of q that proximity can hold, with their gradients through the logits of q.

    The gradient of a layer's term is that through the layer's own logits. That layers above depend
    on the draws of the layer is left out.
    """

    drawn: Inferred
    residuals: list[np.ndarray]  # value − probability of the net, of layers 1 to L
    weights: np.ndarray  # weights of the rows, divided by the number of samples, (B,)

    @cached_property
    def column(self) -> np.ndarray:
        """The weights as a column with one row per sample, in float64."""
        n_samples = len(self.drawn.log_q) // len(self.weights)
        return np.tile(self.weights, n_samples)[:, None]

    @cached_property
    def probabilities(self) -> list[np.ndarray]:
        """q(h = 1) of layers 1 to L, with one row per sample."""
        pairs = zip(self.drawn.values[1:], self.drawn.residuals, strict=True)
        return [h - r for h, r in pairs]

    def of(self, name: str | None) -> tuple[Constraint, ...]:
        """Return the statistics of a constraint by its name."""
        statistics: tuple[Constraint, ...] = getattr(self, f"_{name}")()
        return statistics

    def _entropy(self) -> tuple[Constraint, ...]:
        # H = Σ {−p log p − (1 − p) log(1 − p)} with p = σ(u), so that dH/du = −u p (1 − p).
        value = float(self.column[:, 0] @ self.drawn.entropy)
        slopes = [-u * p * (1 - p) for u, p in zip(self._logits(), self.probabilities, strict=True)]
        return (self._number(value, slopes),)

    def _kl(self) -> tuple[Constraint, ...]:
        # KL = −H − Σ {p g − log(1 + exp g)} with the net's logits g, so that
        # dKL/du = (u − g) p (1 − p).
        value, slopes = -float(self.column[:, 0] @ self.drawn.entropy), []
        for u, p, h, r in zip(
            self._logits(),
            self.probabilities,
            self.drawn.values[1:],
            self.residuals,
            strict=True,
        ):
            prior = np.clip(h - r, 1e-30, 1 - 1e-7 if p.dtype == np.float32 else 1 - 1e-16)
            g = np.log(prior) - np.log1p(-prior)
            cross = (p * g - np.logaddexp(0, g)).sum(axis=1, dtype=np.float64)
            value -= float(self.column[:, 0] @ cross)
            slopes.append((u - g) * p * (1 - p))
        return (self._number(value, slopes),)

    def _mean_variance(self) -> tuple[Constraint, ...]:
        p = self.probabilities
        means = self._parts(p, [a * (1 - a) for a in p])
        of_units = self._parts([a * (1 - a) for a in p], [a * (1 - a) * (1 - 2 * a) for a in p])
        return means, of_units

    def _active_units(self) -> tuple[Constraint, ...]:
        """The first two moments of probabilities, from which :func:`variances` follow."""
        p = self.probabilities
        first = self._parts(p, [a * (1 - a) for a in p])
        second = self._parts([a * a for a in p], [2 * a * a * (1 - a) for a in p])
        n_samples = len(self.column) // len(self.weights)
        weight = np.asarray(n_samples * self.weights.sum())
        ones = dict.fromkeys(first.value, weight)
        return first, second, Constraint(ones, {})

    def _logits(self) -> list[np.ndarray]:
        """The logits of q, with one row per sample."""
        n = len(self.column)
        return [u if len(u) == n else np.tile(u, (n // len(u), 1)) for u in self.drawn.logits]

    def _gradient(self, slopes: list[np.ndarray]) -> Natural:
        found: Natural = {}
        for i, slope in enumerate(slopes):
            c = (self.column * slope).astype(slope.dtype)
            found |= through_logits(i + 1, c, self.drawn.values[i])
        return found

    def _number(self, value: float, slopes: list[np.ndarray]) -> Constraint:
        gradient = self._gradient(slopes)
        return Constraint(dict.fromkeys(gradient, np.asarray(value)), gradient)

    def _parts(self, values: list[np.ndarray], slopes: list[np.ndarray]) -> Constraint:
        """A statistic with one part per unit: Σ w of a value, which has this slope."""
        sums = [self.column[:, 0] @ value for value in values]
        layers = range(1, len(values) + 1)
        value = {f"{kind}{i}": sums[i - 1] for i in layers for kind in "Va"}
        return Constraint(value, self._gradient(slopes))


def variances(first: Constraint, second: Constraint, ones: Constraint) -> Constraint:
    """Return W (E p² − (E p)²), where W is the weight of the rows, from sums of moments."""
    value: Natural = {}
    gradient: Natural = {}
    for key, sums in first.value.items():
        weight = float(ones.value[key])
        # W (E p² − m²) with m = E p = Σ w p / W has the differential d Σ w p² − 2 m d Σ w p.
        mean = sums / weight
        value[key] = second.value[key] - weight * mean**2
        column = mean.reshape(mean.shape + (1,) * (first.gradient[key].ndim - 1))
        gradient[key] = second.gradient[key] - 2.0 * column * first.gradient[key]
    return Constraint(value, gradient)
