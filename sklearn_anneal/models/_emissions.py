"""Emissions of hidden Markov models: what a frame looks like, given its state.

One class per emission, found by its name in ``EMISSIONS``. A frame that is missing has no say:
the model sets its log density to 0 and its share of the statistics too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import gammaln
from sklearn.cluster import KMeans
from sklearn.utils import check_array

from ..families import Beta, Dirichlet, Factor, Gamma, Natural
from ..inference.units import Rows, Sequences
from ._base import compiled
from ._gaussian import (
    ROWS_PER_BLOCK,
    Features,
    GaussianComponents,
    checked_covariance_prior,
    feature_kind,
)
from ._gaussian import kernels as gaussian_kernels

_FRAMES_FOR_KMEANS = 20_000
# The smallest concentration of symbols that is taken without being asked for.
_LEAST_CONCENTRATION = 0.1


kernels = partial(compiled, "hidden_markov")


def checked_prior(value: Any, default: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Positive concentrations, broadcast to ``shape``.

    Raises
    ------
    ValueError
        If they do not fit the shape, or are not positive and finite.
    """
    prior = _numbers(default if value is None else value, name)
    try:
        prior = np.broadcast_to(prior, shape).copy()
    except ValueError:
        raise ValueError(
            f"The parameter '{name}' should be a number or an array of shape {shape}, but has "
            f"shape {prior.shape}."
        ) from None
    _refuse_nonpositive(prior, name)
    return prior


def _numbers(value: Any, name: str) -> np.ndarray:
    """A parameter as finite numbers of any shape."""
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"The parameter '{name}' should be numbers: {error}") from None
    return check_array(
        numbers, ensure_2d=False, allow_nd=True, ensure_min_samples=0, input_name=name
    )


def _refuse_nonpositive(prior: np.ndarray, name: str) -> None:
    if not (prior > 0).all():
        raise ValueError(f"The parameter '{name}' should be positive everywhere.")


def check_priors_of_others(estimator: Any) -> None:
    """Refuse prior parameters that an estimator's emission does not read and no other would take.

    What they are multiplied with is not known, so that their shapes are not looked at.

    Raises
    ------
    ValueError
        If one is not finite, or is not positive where it has to be.
    """
    own = EMISSIONS[estimator.emission].prior_parameters
    for emission in EMISSIONS.values():
        for name, positive in emission.prior_parameters.items():
            value = getattr(estimator, name)
            if name in own or value is None:
                continue
            prior = _numbers(value, name)
            # Of an array that may be a matrix, the entries beside the diagonal are free.
            if positive or prior.ndim == 0:
                _refuse_nonpositive(prior, name)


class Emission(ABC):
    """The distributions of frames given each of K states; hyperparameters only."""

    init_params: ClassVar[tuple[str, ...]] = ("kmeans", "random")
    """The starts that it has; the first one is ``init_params="auto"``."""

    prior_parameters: ClassVar[dict[str, bool]]
    """The estimator's parameters of its priors, and whether all entries must be positive."""

    n_components: int

    # Data

    @classmethod
    @abstractmethod
    def encode(cls, X: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Frames as the kernels read them, and which are missing, None where none is.

        ``X`` has shape (n_frames, n_columns), finite or NaN. ValueError where it cannot be data.
        """

    @classmethod
    @abstractmethod
    def of(cls, estimator: Any, frames: np.ndarray) -> Emission:
        """The emission of an estimator's parameters, checked, for observed frames like these."""

    @abstractmethod
    def summary(self, units: Sequences) -> Any:
        """What priors and starts need to know of the data; None without any observed frame."""

    def resolved(self, summary: Any) -> Emission:
        """The emission with the priors that depend on data filled in."""
        return self

    # Parameters

    @property
    @abstractmethod
    def factor(self) -> Factor:
        """The factor of q(β)."""

    @abstractmethod
    def prior(self, summary: Any) -> Natural:
        """λ₀ of all states."""

    def start(
        self,
        units: Sequences,
        n_frames: float,
        prior: Natural,
        random_state: np.random.RandomState,
    ) -> Natural:
        """The start by k-means: the posterior of the frames with the labels of their clusters."""
        labels, sample = self._labels(units, random_state)
        responsibilities = np.equal.outer(labels, np.arange(self.n_components)).astype(float)
        if sample.weights is not None:
            responsibilities *= sample.per_frame(sample.weights)[:, None]
        responsibilities *= n_frames / max(responsibilities.sum(), 1e-300)
        raw = self.zeros(self.expectations(prior))
        self.add(sample, responsibilities, raw)
        statistics = self.statistics(raw)
        return {key: prior[key] + value for key, value in statistics.items()}

    def _labels(
        self, units: Sequences, random_state: np.random.RandomState
    ) -> tuple[np.ndarray, Sequences]:
        """Clusters of some observed frames, and these frames, each as a sequence."""
        rows = units.observed()
        rows = Rows(rows.X, rows.weights)
        sample: Any = rows.subset(_FRAMES_FOR_KMEANS, random_state)
        n_clusters = min(self.n_components, len(np.unique(sample.X, axis=0)))
        means = KMeans(n_clusters=n_clusters, n_init=1, random_state=random_state)
        # Rows may tie, of binary vectors most do: rounding must not choose between them.
        rows64 = np.asarray(sample.X, dtype=np.float64)
        labels = means.fit(rows64, sample_weight=sample.weights).labels_
        indptr = np.arange(sample.n_units + 1)
        return labels, Sequences(sample.X, indptr, sample.weights, None, units.center)

    @abstractmethod
    def random_natural(
        self, n_frames: float, summary: Any, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        """A random initialisation that does not look at single frames."""

    @abstractmethod
    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> Any:
        """E log p(x | z = k) in the form that :meth:`log_density` reads.

        With ``rng``, log p(x | z = k) at one draw of the parameters.
        """

    @abstractmethod
    def plug_in(self, q: Natural) -> Any:
        """The same of the posterior mean parameters."""

    def jitter(self, q: Natural, size: float, rng: np.random.Generator) -> Natural:
        """The counts of q times exp(size · N(0, 1)); nothing where they alone cannot move."""
        return {}

    @abstractmethod
    def coordinates(self, q: Natural, summary: Any) -> np.ndarray:
        """Where the states lie, of shape (n_components, …), to tell those that coincide."""

    # Frames

    @abstractmethod
    def log_density(self, units: Sequences, expected: Any) -> np.ndarray:
        """E log p(x_t | z_t = k) in nats, of shape (n_frames, n_components)."""

    @abstractmethod
    def zeros(self, expected: Any) -> Natural:
        """Raw statistics of no frame."""

    @abstractmethod
    def add(self, units: Sequences, posteriors: np.ndarray, raw: Natural) -> None:
        """Add the statistics of frames with the given shares of the states."""

    @abstractmethod
    def statistics(self, raw: Natural) -> Natural:
        """Raw statistics in the shapes of the natural parameters."""

    # What only some annealing methods ask for

    why_no_log_volume: ClassVar[str | None] = None
    """Why there is no :meth:`log_volume`; None where there is one."""

    def log_volume(self, x: np.ndarray, summary: Any, expected: Any) -> np.ndarray:
        """log of the sum (or integral) of p(x_t | z_t = k)^x over all frames, in nats.

        Its shape is (len(x), n_components), for the inverse temperatures ``x``.
        """
        raise NotImplementedError

    # What a user sees

    @abstractmethod
    def attributes(self, q: Natural, prior: Natural, summary: Any) -> dict[str, Any]:
        """Fitted attributes by name."""

    @abstractmethod
    def draw(
        self, states: np.ndarray, fitted: Any, random_state: np.random.RandomState
    ) -> np.ndarray:
        """One frame for each state, from the fitted attributes; (n_frames, n_columns)."""


def _missing_rows(X: np.ndarray) -> np.ndarray | None:
    """Which rows are missing: those of NaN alone."""
    unknown = np.isnan(X)
    if not unknown.any():
        return None
    missing = unknown.all(axis=1)
    partly = np.flatnonzero(unknown.any(axis=1) & ~missing)
    if len(partly):
        raise ValueError(
            f"Row {partly[0]} of X is partly NaN (or masked). A frame is missing as a whole (a row "
            "of NaN) or not at all: impute single values, or set the whole row to NaN."
        )
    return missing


def _filled(X: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Rows of numbers, 0 where they are missing."""
    missing = _missing_rows(X)
    if missing is None:
        return X, None
    return np.where(missing[:, None], X.dtype.type(0), X), missing


def _refuse(bad: np.ndarray, X: np.ndarray, what: str) -> None:
    """ValueError with the first value of ``X`` that is bad."""
    if bad.any():
        raise ValueError(f"{what}, but X contains {X[bad].flat[0]:g}.")


class GaussianEmission(Emission):
    """Gaussian frames with Normal–Wishart priors of mean and precision."""

    prior_parameters = {
        "means_prior": False,
        "beta_prior": True,
        "dof_prior": True,
        "scale_prior": False,
    }

    def __init__(self, components: GaussianComponents):
        self.components = components
        self.n_components = components.n_components

    @classmethod
    def encode(cls, X: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return _filled(X)

    @classmethod
    def of(cls, estimator: Any, frames: np.ndarray) -> GaussianEmission:
        d, k = frames.shape[1], estimator.n_components
        tied = estimator.covariance_type == "tied"
        mean = estimator.means_prior
        if mean is not None:
            mean = check_array(mean, dtype=np.float64, ensure_2d=False, input_name="means_prior")
            if mean.shape not in ((d,), (k, d)):
                raise ValueError(
                    f"The parameter 'means_prior' should have shape {(d,)} or {(k, d)}, but has "
                    f"shape {mean.shape}."
                )
        beta = checked_prior(estimator.beta_prior, 1.0, (k,), "beta_prior")
        dof = checked_prior(estimator.dof_prior, d, () if tied else (k,), "dof_prior")
        if not (dof > d - 1).all():
            raise ValueError(
                f"The parameter 'dof_prior' should be greater than {d - 1}, but got {dof.min():g}."
            )
        components = GaussianComponents(
            k,
            d,
            estimator.covariance_type,
            reg_covar=estimator.reg_covar,
            mean_precision_prior=beta,
            mean_prior=mean,
            degrees_of_freedom_prior=dof,
            covariance_prior=checked_covariance_prior(
                estimator.scale_prior, estimator.covariance_type, d, "scale_prior", k
            ),
            covariance_prior_name="scale_prior",
        )
        return cls(components)

    def summary(self, units: Sequences) -> Any:
        rows = units.observed()
        return self.components.summary(rows) if rows.total_weight > 0 else None

    def resolved(self, summary: Any) -> GaussianEmission:
        return GaussianEmission(self.components.resolved(summary))

    @property
    def factor(self) -> Factor:
        return self.components.factors[0]

    def prior(self, summary: Any) -> Natural:
        return self.components.prior(summary)

    def random_natural(
        self, n_frames: float, summary: Any, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        counts = np.full(self.n_components, n_frames / self.n_components)
        return self.components.posterior_of(
            self.components.pseudo_data(counts, summary, rng), prior
        )

    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> Features:
        return self.components.expectations(q, np.zeros(self.n_components), rng)

    def plug_in(self, q: Natural) -> Features:
        return self.components.plug_in(q)

    def coordinates(self, q: Natural, summary: Any) -> np.ndarray:
        return self.components.coordinates(q, summary)

    def log_density(self, units: Sequences, expected: Features) -> np.ndarray:
        return self.components.evaluate(Rows(units.frames, None, units.center), expected)

    def zeros(self, expected: Features) -> Natural:
        return self.components.empty_statistics(expected.layout).pack()

    def add(self, units: Sequences, posteriors: np.ndarray, raw: Natural) -> None:
        layout = next(key for key in raw if key != "shared")
        rows = Rows(units.frames, None, units.center)
        gaussian_kernels().statistics_of(
            rows.contiguous(),
            rows.center,
            feature_kind(layout),
            posteriors,
            ROWS_PER_BLOCK,
            raw[layout],
            raw.get("shared", _NO_SHARED),
        )

    def statistics(self, raw: Natural) -> Natural:
        keys = tuple(self.factor.names.values())
        own = {key: value for key, value in raw.items() if key in (*_LAYOUTS, "shared")}
        return self.components.statistics(keys, self.components.unpack(own), {})

    def log_volume(self, x: np.ndarray, summary: Any, expected: Any) -> np.ndarray:
        """log ∫ p(x_t | z_t = k)^x dx_t of shape (len(x), K), at the covariance of the data."""
        volume = self.components.tempered_log_volume(x, summary)
        return np.repeat(volume[:, None], self.n_components, axis=1)

    def attributes(self, q: Natural, prior: Natural, summary: Any) -> dict[str, Any]:
        c = self.components
        now, before = c.standard(q), c.standard(prior)
        return {
            "means_": now["mean"] + summary.center,
            "covars_": c.covariances(now["inverse_scale"], now["dof"]),
            "means_posterior_": now["mean"] + summary.center,
            "beta_posterior_": now["mean_precision"],
            "dof_posterior_": now["dof"],
            "scale_posterior_": now["inverse_scale"],
            "means_prior_": before["mean"] + summary.center,
            "beta_prior_": before["mean_precision"],
            "dof_prior_": before["dof"],
            "scale_prior_": before["inverse_scale"],
        }

    def draw(
        self, states: np.ndarray, fitted: Any, random_state: np.random.RandomState
    ) -> np.ndarray:
        d = self.components.n_features
        covariances = self.components.structure.to_full(fitted.covars_, d)
        roots = np.linalg.cholesky(np.broadcast_to(covariances, (self.n_components, d, d)))
        noise = random_state.standard_normal((len(states), d))
        return fitted.means_[states] + (roots[states] @ noise[..., None])[..., 0]


_LAYOUTS = ("full", "tied", "diag", "spherical")
_NO_SHARED = np.zeros((1, 0))


class CategoricalEmission(Emission):
    """Frames of one symbol out of V, with Dirichlet priors of its probabilities."""

    init_params = ("random",)
    prior_parameters = {"emissionprob_prior": True}

    def __init__(self, n_components: int, concentration: np.ndarray):
        self.n_components = n_components
        self.concentration = concentration

    @classmethod
    def encode(cls, X: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        if X.shape[1] != 1:
            raise ValueError(
                "With emission='categorical', X has one column, the symbol of each frame, but it "
                f"has {X.shape[1]}. Use emission='bernoulli' or 'poisson' for vectors."
            )
        column = X[:, 0]
        missing = np.isnan(column) | (column == -1)
        seen = column[~missing]
        _refuse(
            (seen != np.floor(seen)) | (seen < 0),
            seen,
            "Symbols are integers 0, 1, … (−1 or NaN where a frame is missing)",
        )
        _refuse(seen > np.iinfo(np.int32).max, seen, "Symbols are numbers below 2 ** 31")
        symbols = np.where(missing, -1, column).astype(np.int32)
        return symbols, missing if missing.any() else None

    @classmethod
    def of(cls, estimator: Any, frames: np.ndarray) -> CategoricalEmission:
        n_symbols = estimator.n_symbols
        if n_symbols is None:
            n_symbols = max(int(frames.max(initial=-1)) + 1, 1)
        k = estimator.n_components
        default = max(1.0 / n_symbols, _LEAST_CONCENTRATION)
        prior = checked_prior(
            estimator.emissionprob_prior, default, (k, n_symbols), "emissionprob_prior"
        )
        return cls(k, prior)

    @property
    def n_symbols(self) -> int:
        """V."""
        return self.concentration.shape[1]

    def summary(self, units: Sequences) -> None:
        return None

    @property
    def factor(self) -> Factor:
        return Factor(Dirichlet(), {"concentration": "emissionprob"})

    def prior(self, summary: Any) -> Natural:
        return {"emissionprob": self.concentration}

    def random_natural(
        self, n_frames: float, summary: Any, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        counts = rng.dirichlet(np.ones(self.n_symbols), size=self.n_components)
        return {"emissionprob": prior["emissionprob"] + n_frames / self.n_components * counts}

    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> np.ndarray:
        family, natural = self.factor.family, self.factor.pick(q)
        if rng is None:
            log_probabilities = family.expectations(natural)["concentration"]
        else:
            log_probabilities = family.sample(natural, rng)["log_probabilities"]
        return np.ascontiguousarray(log_probabilities.T)

    def plug_in(self, q: Natural) -> np.ndarray:
        return np.ascontiguousarray(log_means(q["emissionprob"]).T)

    def jitter(self, q: Natural, size: float, rng: np.random.Generator) -> Natural:
        return {"emissionprob": multiplied(q["emissionprob"], size, rng)}

    def coordinates(self, q: Natural, summary: Any) -> np.ndarray:
        return np.exp(log_means(q["emissionprob"]))

    def log_density(self, units: Sequences, expected: np.ndarray) -> np.ndarray:
        out = np.empty((len(units.frames), self.n_components))
        kernels().categorical_log_density(expected, units.frames, out)
        return out

    def zeros(self, expected: np.ndarray) -> Natural:
        return {"emissionprob": np.zeros(expected.shape)}

    def add(self, units: Sequences, posteriors: np.ndarray, raw: Natural) -> None:
        kernels().categorical_statistics(posteriors, units.frames, raw["emissionprob"])

    def statistics(self, raw: Natural) -> Natural:
        return {"emissionprob": raw["emissionprob"].T}

    def log_volume(self, x: np.ndarray, summary: Any, expected: np.ndarray) -> np.ndarray:
        """log Σ_v p(v | z_t = k)^x of shape (len(x), K)."""
        exponents = np.asarray(x)[:, None, None] * expected
        top = exponents.max(axis=1)
        return top + np.log(np.exp(exponents - top[:, None]).sum(axis=1))

    def attributes(self, q: Natural, prior: Natural, summary: Any) -> dict[str, Any]:
        return {
            "emissionprob_": np.exp(log_means(q["emissionprob"])),
            "emissionprob_posterior_": q["emissionprob"],
            "emissionprob_prior_": prior["emissionprob"],
            "n_symbols_": self.n_symbols,
        }

    def draw(
        self, states: np.ndarray, fitted: Any, random_state: np.random.RandomState
    ) -> np.ndarray:
        limits = np.cumsum(fitted.emissionprob_, axis=1)
        uniform = random_state.random_sample(len(states))
        symbols = (uniform[:, None] > limits[states]).sum(axis=1)
        return np.minimum(symbols, self.n_symbols - 1)[:, None]


class _Coefficients(NamedTuple):
    """E log p(x | z = k) = x · slopes_k + constants_k + what all states share."""

    slopes: np.ndarray
    constants: np.ndarray


class _LinearEmission(Emission):
    """Emissions of independent columns whose log density is linear in them."""

    def __init__(self, n_components: int, n_features: int):
        self.n_components = n_components
        self.n_features = n_features

    def _carrier(self, frames: np.ndarray) -> Any:
        """What the log density of each frame has whatever the state is, (n_frames,) or 0."""
        return 0.0

    def log_density(self, units: Sequences, expected: _Coefficients) -> np.ndarray:
        frames = np.asarray(units.frames, dtype=np.float64)
        carrier = np.asarray(self._carrier(frames))
        return frames @ expected.slopes.T + expected.constants + carrier.reshape(-1, 1)

    def zeros(self, expected: _Coefficients) -> Natural:
        return {"count": np.zeros(self.n_components), "sum": np.zeros(expected.slopes.shape)}

    def add(self, units: Sequences, posteriors: np.ndarray, raw: Natural) -> None:
        raw["count"] += posteriors.sum(axis=0)
        raw["sum"] += posteriors.T @ np.asarray(units.frames, dtype=np.float64)


class _Moments(NamedTuple):
    """Weight and mean of the observed frames."""

    seen: float
    mean: np.ndarray

    def merge(self, other: _Moments) -> _Moments:
        seen = self.seen + other.seen
        return _Moments(seen, self.mean + other.seen / seen * (other.mean - self.mean))


class PoissonEmission(_LinearEmission):
    """Vectors of counts, independent given the state, with gamma priors of their rates."""

    prior_parameters = {"lambdas_prior": True, "lambdas_weight": True}
    why_no_log_volume = (
        "log C(T) sums the tempered density of a frame over all frames, and of the vectors of "
        "counts of emission='poisson' no such sum is known"
    )

    def __init__(self, n_components: int, n_features: int, shape: Any, rate: Any):
        super().__init__(n_components, n_features)
        self.shape = shape
        self.rate = rate

    @classmethod
    def encode(cls, X: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        frames, missing = _filled(X)
        bad = (frames < 0) | (frames != np.floor(frames))
        _refuse(bad, frames, "Counts are integers 0, 1, …")
        return frames, missing

    @classmethod
    def of(cls, estimator: Any, frames: np.ndarray) -> PoissonEmission:
        k, d = estimator.n_components, frames.shape[1]
        shape = checked_prior(estimator.lambdas_prior, 1.0, (k, d), "lambdas_prior")
        rate = estimator.lambdas_weight
        if rate is not None:
            rate = checked_prior(rate, None, (k, d), "lambdas_weight")
        return cls(k, d, shape, rate)

    def summary(self, units: Sequences) -> _Moments | None:
        rows = units.observed()
        if rows.total_weight == 0:
            return None
        mean = np.average(np.asarray(rows.X, dtype=np.float64), axis=0, weights=rows.weights)
        return _Moments(rows.total_weight, mean)

    def resolved(self, summary: _Moments) -> PoissonEmission:
        rate = self.rate
        if rate is None:
            # The prior's mean is that of the data; a column of zeros has a rate well below one.
            rate = self.shape / np.maximum(summary.mean, 1.0 / (summary.seen + 1.0))
        return PoissonEmission(self.n_components, self.n_features, self.shape, rate)

    @property
    def factor(self) -> Factor:
        return Factor(Gamma(), {"shape": "shape", "rate": "rate"})

    def prior(self, summary: Any) -> Natural:
        return {"shape": self.shape, "rate": self.rate}

    def random_natural(
        self, n_frames: float, summary: _Moments, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        share = n_frames / self.n_components
        rates = summary.mean * rng.standard_exponential((self.n_components, self.n_features))
        return {"shape": prior["shape"] + share * rates, "rate": prior["rate"] + share}

    def _coefficients(self, log_rates: np.ndarray, rates: np.ndarray) -> _Coefficients:
        return _Coefficients(log_rates, -rates.sum(axis=1))

    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> _Coefficients:
        family, natural = self.factor.family, self.factor.pick(q)
        if rng is None:
            expected = family.expectations(natural)
            return self._coefficients(expected["shape"], -expected["rate"])
        draw = family.sample(natural, rng)
        return self._coefficients(draw["log_value"], draw["value"])

    def plug_in(self, q: Natural) -> _Coefficients:
        rates = q["shape"] / q["rate"]
        return self._coefficients(np.log(rates), rates)

    def coordinates(self, q: Natural, summary: _Moments) -> np.ndarray:
        return q["shape"] / q["rate"] / np.maximum(summary.mean, 1e-300)

    def _carrier(self, frames: np.ndarray) -> np.ndarray:
        return -gammaln(frames + 1.0).sum(axis=1)

    def statistics(self, raw: Natural) -> Natural:
        return {"shape": raw["sum"], "rate": np.repeat(raw["count"][:, None], self.n_features, 1)}

    def attributes(self, q: Natural, prior: Natural, summary: Any) -> dict[str, Any]:
        return {
            "lambdas_": q["shape"] / q["rate"],
            "lambdas_posterior_": q["shape"],
            "lambdas_weight_posterior_": q["rate"],
            "lambdas_prior_": prior["shape"],
            "lambdas_weight_prior_": prior["rate"],
        }

    def draw(
        self, states: np.ndarray, fitted: Any, random_state: np.random.RandomState
    ) -> np.ndarray:
        return random_state.poisson(fitted.lambdas_[states])


class BernoulliEmission(_LinearEmission):
    """Binary vectors, independent given the state, with beta priors of their probabilities."""

    prior_parameters = {"emissionprob_prior": True}

    def __init__(self, n_components: int, n_features: int, concentration: np.ndarray):
        super().__init__(n_components, n_features)
        self.concentration = concentration

    @classmethod
    def encode(cls, X: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        frames, missing = _filled(X)
        _refuse((frames != 0) & (frames != 1), frames, "Binary vectors are of 0 and 1")
        return frames, missing

    @classmethod
    def of(cls, estimator: Any, frames: np.ndarray) -> BernoulliEmission:
        k, d = estimator.n_components, frames.shape[1]
        prior = checked_prior(estimator.emissionprob_prior, 1.0, (k, d), "emissionprob_prior")
        return cls(k, d, prior)

    def summary(self, units: Sequences) -> None:
        return None

    @property
    def factor(self) -> Factor:
        return Factor(Beta(), {"a": "a", "b": "b"})

    def prior(self, summary: Any) -> Natural:
        return {"a": self.concentration, "b": self.concentration}

    def random_natural(
        self, n_frames: float, summary: Any, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        share = n_frames / self.n_components
        p = rng.random((self.n_components, self.n_features))
        return {"a": prior["a"] + share * p, "b": prior["b"] + share * (1.0 - p)}

    def _coefficients(self, log_p: np.ndarray, log_complement: np.ndarray) -> _Coefficients:
        return _Coefficients(log_p - log_complement, log_complement.sum(axis=1))

    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> _Coefficients:
        family, natural = self.factor.family, self.factor.pick(q)
        if rng is None:
            expected = family.expectations(natural)
            return self._coefficients(expected["a"], expected["b"])
        draw = family.sample(natural, rng)
        return self._coefficients(draw["log_value"], draw["log_complement"])

    def plug_in(self, q: Natural) -> _Coefficients:
        total = np.log(q["a"] + q["b"])
        return self._coefficients(np.log(q["a"]) - total, np.log(q["b"]) - total)

    def jitter(self, q: Natural, size: float, rng: np.random.Generator) -> Natural:
        return {key: multiplied(q[key], size, rng) for key in ("a", "b")}

    def coordinates(self, q: Natural, summary: Any) -> np.ndarray:
        return q["a"] / (q["a"] + q["b"])

    def statistics(self, raw: Natural) -> Natural:
        return {"a": raw["sum"], "b": raw["count"][:, None] - raw["sum"]}

    def log_volume(self, x: np.ndarray, summary: Any, expected: _Coefficients) -> np.ndarray:
        """log of the sum over all vectors of p(· | z_t = k)^x, of shape (len(x), K)."""
        powers = np.asarray(x)[:, None]
        each = np.logaddexp(0.0, powers[..., None] * expected.slopes).sum(axis=-1)
        return each + powers * expected.constants

    def attributes(self, q: Natural, prior: Natural, summary: Any) -> dict[str, Any]:
        return {
            "emissionprob_": q["a"] / (q["a"] + q["b"]),
            "emissionprob_posterior_": np.stack([q["a"], q["b"]], axis=-1),
            "emissionprob_prior_": np.stack([prior["a"], prior["b"]], axis=-1),
        }

    def draw(
        self, states: np.ndarray, fitted: Any, random_state: np.random.RandomState
    ) -> np.ndarray:
        p = fitted.emissionprob_[states]
        return (random_state.random_sample(p.shape) < p).astype(np.int64)


EMISSIONS: dict[str, type[Emission]] = {
    "gaussian": GaussianEmission,
    "categorical": CategoricalEmission,
    "poisson": PoissonEmission,
    "bernoulli": BernoulliEmission,
}


def log_means(concentration: np.ndarray) -> np.ndarray:
    """The logarithms of the means of Dirichlet distributions, one per row."""
    return np.log(concentration) - np.log(concentration.sum(axis=-1, keepdims=True))


def multiplied(counts: np.ndarray, size: float, rng: np.random.Generator) -> np.ndarray:
    """Counts times exp(size · N(0, 1))."""
    return counts * np.exp(size * rng.standard_normal(counts.shape))
