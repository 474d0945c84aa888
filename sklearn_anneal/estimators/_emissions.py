"""The emissions of hidden Markov models, by name.

The distributions of a frame given its state are in ``models/components``. This module adds the
parts that the estimator needs: its parameters, the forms of its input, and its fitted attributes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from numbers import Integral
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from sklearn.utils import check_array

from ..families import Natural
from ..models._chain_moves import goes_one_way
from ..models.components._base import Components, log_means
from ..models.components.bernoulli import BernoulliComponents
from ..models.components.categorical import CategoricalComponents
from ..models.components.gaussian import GaussianComponents
from ..models.components.poisson import PoissonComponents
from ._counts import drawn_counts
from ._priors import (
    auto_as_none,
    check_first_rows,
    checked_covariance_prior,
    checked_prior,
    is_auto,
    numbers_of,
    refuse_nonpositive,
)
from ._validation import check_largest_id, hint_of_one

# The default prior concentration of a symbol is 1 / (number of symbols), but never below this.
LEAST_CONCENTRATION = 0.1

# The fitted attributes of emissions with probabilities.
PROBABILITIES = ("emissionprob_", "emissionprob_posterior_", "emissionprob_prior_")

C = TypeVar("C", bound=Components)


class Emission(ABC, Generic[C]):
    """One value of the parameter ``emission``; the class itself is used, without instances.

    Attributes
    ----------
    init_params : tuple of str
        The values of the parameter ``init_params`` that this emission supports. The first one is
        used for ``init_params="auto"``, unless states are visited in one order.
    prior_parameters : dict of bool
        The estimator's parameters for the priors of this emission, by name. The value says whether
        all entries must be positive.
    fitted_attributes : tuple of str
        The names of the attributes that :meth:`attributes` returns.
    """

    init_params: ClassVar[tuple[str, ...]] = ("kmeans", "random", "segments")
    prior_parameters: ClassVar[dict[str, bool]]
    fitted_attributes: ClassVar[tuple[str, ...]]

    @classmethod
    def checked_init_params(cls, estimator: Any, transmat_prior: np.ndarray) -> str:
        """Check the parameter ``init_params`` and return the start that it stands for.

        In ``transmat_prior``, of shape (n_components, n_components), zeros forbid transitions.

        Raises
        ------
        ValueError
            If the emission does not support this start.
        """
        asked = estimator.init_params
        if asked == "auto":
            return "segments" if goes_one_way(transmat_prior) else cls.init_params[0]
        if asked not in cls.init_params:
            raise ValueError(
                f"init_params={asked!r} is not for emission={estimator.emission!r}, whose frames "
                f"have no distances. Use {cls.init_params[0]!r}."
            )
        return asked

    @classmethod
    @abstractmethod
    def encode(cls, X: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Convert frames to the form that kernels read, and mark the missing ones.

        ``X`` has shape (n_frames, n_columns), and its entries are finite or NaN. The second result
        is None if no frame is missing. Frames that are missing in part keep their NaN. A ValueError
        is raised if ``X`` cannot be data of this emission.
        """

    @classmethod
    def check_first_batch(cls, estimator: Any, frames: np.ndarray) -> None:
        """Refuse a first batch of a stream that does not show what the parameters leave open."""

    @classmethod
    @abstractmethod
    def components(cls, estimator: Any, frames: np.ndarray) -> C:
        """Check the estimator's parameters and make the components from them.

        ``frames`` are the observed frames of the training data, as :meth:`encode` returns them.
        """

    @classmethod
    @abstractmethod
    def attributes(cls, components: C, q: Natural, prior: Natural, summary: Any) -> dict[str, Any]:
        """The fitted attributes of the estimator, by name."""

    @classmethod
    @abstractmethod
    def draw(
        cls, components: C, states: np.ndarray, fitted: Any, random_state: np.random.RandomState
    ) -> np.ndarray:
        """Draw one frame for each state from the fitted attributes.

        The result has shape (n_frames, n_columns).
        """


def _filled(X: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Replace missing rows by zeros; also return which rows these are, or None.

    Rows that are missing in part keep their NaN.
    """
    missing = np.isnan(X).all(axis=1)
    if not missing.any():
        return X, None
    return np.where(missing[:, None], X.dtype.type(0), X), missing


def _refuse(bad: np.ndarray, X: np.ndarray, what: str) -> None:
    """Raise a ValueError that shows the first bad value of ``X``, if there is one."""
    if bad.any():
        raise ValueError(f"{what}, but X contains {X[bad].flat[0]:g}.")


class GaussianEmission(Emission[GaussianComponents]):
    """Frames with a Gaussian distribution."""

    prior_parameters = {
        "means_prior": False,
        "beta_prior": True,
        "dof_prior": True,
        "scale_prior": False,
    }
    fitted_attributes = (
        "means_",
        "covars_",
        *(f"{name}_posterior_" for name in ("means", "beta", "dof", "scale")),
        *(f"{name}_prior_" for name in ("means", "beta", "dof", "scale")),
        "scale_prior_sizes_",
    )

    @classmethod
    def encode(cls, X: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return _filled(X)

    @classmethod
    def components(cls, estimator: Any, frames: np.ndarray) -> GaussianComponents:
        d, k = frames.shape[1], estimator._number
        tied = estimator.covariance_type == "tied"
        mean = estimator.means_prior
        if not (mean is None or is_auto(mean)):
            mean = check_array(mean, dtype=np.float64, ensure_2d=False, input_name="means_prior")
            if mean.shape not in ((d,), (k, d)):
                raise ValueError(
                    f"The parameter 'means_prior' should have shape {(d,)} or {(k, d)}, but has "
                    f"shape {mean.shape}."
                )
        beta: Any = estimator.beta_prior
        if not is_auto(beta):
            beta = checked_prior(beta, 1.0, (k,), "beta_prior")
        dof: Any = estimator.dof_prior
        if not is_auto(dof):
            dof = checked_prior(dof, d, () if tied else (k,), "dof_prior")
        if not is_auto(dof) and not (dof > d - 1).all():
            raise ValueError(
                f"The parameter 'dof_prior' should be greater than {d - 1}, but got {dof.min():g}."
            )
        return GaussianComponents(
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

    @classmethod
    def check_first_batch(cls, estimator: Any, frames: np.ndarray) -> None:
        if any(auto_as_none(p) is None for p in (estimator.means_prior, estimator.scale_prior)):
            check_first_rows(frames, estimator._number, "means_prior and scale_prior")

    @classmethod
    def attributes(
        cls, components: GaussianComponents, q: Natural, prior: Natural, summary: Any
    ) -> dict[str, Any]:
        c = components
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
            "scale_prior_sizes_": c.described_sizes,
            "scale_prior_": before["inverse_scale"],
        }

    @classmethod
    def draw(
        cls,
        components: GaussianComponents,
        states: np.ndarray,
        fitted: Any,
        random_state: np.random.RandomState,
    ) -> np.ndarray:
        d = components.n_features
        covariances = components.structure.to_full(fitted.covars_, d)
        roots = np.linalg.cholesky(np.broadcast_to(covariances, (components.n_components, d, d)))
        noise = random_state.standard_normal((len(states), d))
        return fitted.means_[states] + (roots[states] @ noise[..., None])[..., 0]


class CategoricalEmission(Emission[CategoricalComponents]):
    """Frames that each hold one symbol out of a fixed set."""

    init_params = ("random", "segments")
    prior_parameters = {"emissionprob_prior": True}
    fitted_attributes = (*PROBABILITIES, "n_symbols_")

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
    def check_first_batch(cls, estimator: Any, frames: np.ndarray) -> None:
        if estimator.n_symbols is None:
            raise ValueError(
                "partial_fit needs n_symbols: the first batch does not tell which symbols the "
                "others will have."
            )

    @classmethod
    def check_symbols(cls, column: np.ndarray, declared: Any) -> None:
        """Check that there are as many symbols as declared, or not too many if none are.

        Raises
        ------
        ValueError
            If a symbol is too large, or several numbers are declared for one column.
        """
        if declared is not None:
            if not isinstance(declared, Integral):
                raise ValueError(
                    "With emission='categorical', n_symbols is the number of symbols; several "
                    f"numbers are for blocks of columns. It is {declared!r}."
                )
            with np.errstate(invalid="ignore"):
                unknown = column[column >= declared]
            if len(unknown):
                raise ValueError(
                    f"Symbol {unknown[0]:g} was not declared: there are {declared} symbols, from 0 "
                    f"to {declared - 1}. Fit with n_symbols={int(unknown.max()) + 1} (or more) to "
                    "allow for symbols that the training data do not have."
                    + hint_of_one(column, int(declared), "X")
                )
            return
        symbols = column[column >= 0]
        largest = symbols.max(initial=0)
        # Numbers that are no symbols at all are refused later, where symbols are encoded.
        if largest == np.floor(largest) and largest < 2**31:
            check_largest_id(int(largest), len(symbols), "symbol", "frames", "n_symbols")

    @classmethod
    def components(cls, estimator: Any, frames: np.ndarray) -> CategoricalComponents:
        n_symbols = estimator.n_symbols
        if n_symbols is None:
            n_symbols = max(int(frames.max(initial=-1)) + 1, 1)
        k = estimator._number
        default = max(1.0 / n_symbols, LEAST_CONCENTRATION)
        prior = checked_prior(
            estimator.emissionprob_prior, default, (k, n_symbols), "emissionprob_prior"
        )
        return CategoricalComponents(k, prior, is_auto(estimator.emissionprob_prior))

    @classmethod
    def attributes(
        cls, components: CategoricalComponents, q: Natural, prior: Natural, summary: Any
    ) -> dict[str, Any]:
        return {
            "emissionprob_": np.exp(log_means(q["emissionprob"])),
            "emissionprob_posterior_": q["emissionprob"],
            "emissionprob_prior_": prior["emissionprob"],
            "n_symbols_": components.n_symbols,
        }

    @classmethod
    def draw(
        cls,
        components: CategoricalComponents,
        states: np.ndarray,
        fitted: Any,
        random_state: np.random.RandomState,
    ) -> np.ndarray:
        limits = np.cumsum(fitted.emissionprob_, axis=1)
        uniform = random_state.random_sample(len(states))
        symbols = (uniform[:, None] > limits[states]).sum(axis=1)
        return np.minimum(symbols, components.n_symbols - 1)[:, None]


class PoissonEmission(Emission[PoissonComponents]):
    """Frames that are vectors of counts."""

    prior_parameters = {"lambdas_prior": True, "lambdas_weight": True}
    fitted_attributes = (
        "lambdas_",
        "lambdas_posterior_",
        "lambdas_weight_posterior_",
        "lambdas_prior_",
        "lambdas_weight_prior_",
    )

    @classmethod
    def encode(cls, X: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        frames, missing = _filled(X)
        bad = (frames < 0) | (frames != np.floor(frames))
        _refuse(bad & ~np.isnan(frames), frames, "Counts are integers 0, 1, …")
        return frames, missing

    @classmethod
    def components(cls, estimator: Any, frames: np.ndarray) -> PoissonComponents:
        k, d = estimator._number, frames.shape[1]
        shape = checked_prior(estimator.lambdas_prior, 1.0, (k, d), "lambdas_prior")
        rate = auto_as_none(estimator.lambdas_weight)
        if rate is not None:
            rate = checked_prior(rate, None, (k, d), "lambdas_weight")
        asked = {"shape": estimator.lambdas_prior, "rate": estimator.lambdas_weight}
        learned = tuple(name for name, value in asked.items() if is_auto(value))
        return PoissonComponents(k, d, shape, rate, learned)

    @classmethod
    def attributes(
        cls, components: PoissonComponents, q: Natural, prior: Natural, summary: Any
    ) -> dict[str, Any]:
        return {
            "lambdas_": q["shape"] / q["rate"],
            "lambdas_posterior_": q["shape"],
            "lambdas_weight_posterior_": q["rate"],
            "lambdas_prior_": prior["shape"],
            "lambdas_weight_prior_": prior["rate"],
        }

    @classmethod
    def draw(
        cls,
        components: PoissonComponents,
        states: np.ndarray,
        fitted: Any,
        random_state: np.random.RandomState,
    ) -> np.ndarray:
        return drawn_counts(random_state, fitted.lambdas_[states])


class BernoulliEmission(Emission[BernoulliComponents]):
    """Frames that are vectors of zeros and ones."""

    prior_parameters = {"emissionprob_prior": True}
    fitted_attributes = PROBABILITIES

    @classmethod
    def encode(cls, X: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        frames, missing = _filled(X)
        bad = (frames != 0) & (frames != 1) & ~np.isnan(frames)
        _refuse(bad, frames, "Binary vectors are of 0 and 1")
        return frames, missing

    @classmethod
    def components(cls, estimator: Any, frames: np.ndarray) -> BernoulliComponents:
        k, d = estimator._number, frames.shape[1]
        prior = checked_prior(estimator.emissionprob_prior, 1.0, (k, d), "emissionprob_prior")
        learns = is_auto(estimator.emissionprob_prior)
        return BernoulliComponents(k, d, prior, prior, learns)

    @classmethod
    def attributes(
        cls, components: BernoulliComponents, q: Natural, prior: Natural, summary: Any
    ) -> dict[str, Any]:
        return {
            "emissionprob_": q["a"] / (q["a"] + q["b"]),
            "emissionprob_posterior_": np.stack([q["a"], q["b"]], axis=-1),
            "emissionprob_prior_": np.stack([prior["a"], prior["b"]], axis=-1),
        }

    @classmethod
    def draw(
        cls,
        components: BernoulliComponents,
        states: np.ndarray,
        fitted: Any,
        random_state: np.random.RandomState,
    ) -> np.ndarray:
        p = fitted.emissionprob_[states]
        return (random_state.random_sample(p.shape) < p).astype(np.int64)


EMISSIONS: dict[str, type[Emission]] = {
    "gaussian": GaussianEmission,
    "categorical": CategoricalEmission,
    "poisson": PoissonEmission,
    "bernoulli": BernoulliEmission,
}


def attributes_only_with(emissions: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return the emissions with which each fitted attribute exists; ``blocks_`` needs a list."""
    found: dict[str, tuple[Any, ...]] = {"blocks_": (list,)}
    for name, emission in emissions.items():
        for attribute in emission.fitted_attributes:
            found[attribute] = (*found.get(attribute, ()), name)
    return found


def check_priors_of_others(estimator: Any) -> None:
    """Check the prior parameters that belong to other emissions than the estimator's.

    The fit does not use them, but a value that no emission would accept is refused all the same.
    Their shapes are not checked, because the data do not say which shapes they should have.

    Raises
    ------
    ValueError
        If one is not finite, or is not positive where it has to be.
    """
    if isinstance(estimator.emission, str):
        used = [estimator.emission]
    else:
        used = [emission for _, emission, _ in estimator.emission]
    own = {name for emission in used for name in EMISSIONS[emission].prior_parameters}
    for emission in EMISSIONS.values():
        for name, positive in emission.prior_parameters.items():
            value = getattr(estimator, name)
            if name in own or value is None or is_auto(value):
                continue
            prior = numbers_of(value, name)
            # An array of means, or the entries of a matrix off its diagonal, may have any sign.
            if positive or prior.ndim == 0:
                refuse_nonpositive(prior, name)
