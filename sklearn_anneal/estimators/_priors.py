"""Checks of the priors that users give."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_array

from .._stack import warn
from ..families import COVARIANCE_TYPES, get_structure
from ..models.components._moments import above_rounding

SCALED = "scaled"
"""The name of a prior of words that falls with the number of topics, and with many words."""
# From so many words on, it falls with the square root of their number.
_WORDS_OF_SCALED = 4_000
# It falls with the square root of the tokens per word that occurs, if they are fewer than this and
# topics are sampled, to a half at the least. Topics of mean-field steps predict best without it.
_TOKENS_PER_WORD = 100.0
_LEAST_OF_FEW_TOKENS = 0.5
# The largest share of a column's variance, in all rows, that reg_covar may have without a warning.
# Groups of rows vary less than all rows do.
_SHARE_OF_REGULARISATION = 0.01


def is_auto(value: object) -> bool:
    """Return whether the user chooses a prior that is learned."""
    return isinstance(value, str) and value == "auto"


def auto_as_none(value: object) -> Any:
    """Return the value from which a prior starts: None if it is learned, else the user's."""
    return None if is_auto(value) else value


def checked_prior(
    value: object, default: object, shape: tuple[int, ...], name: str, zeros: bool = False
) -> np.ndarray:
    """Check positive concentrations, or their default if they are None, and broadcast them.

    A prior that is learned starts at the default. With ``zeros``, entries may be 0.
    """
    value = auto_as_none(value)
    prior = numbers_of(default if value is None else value, name)
    try:
        prior = np.broadcast_to(prior, shape).copy()
    except ValueError:
        raise ValueError(
            f"The parameter '{name}' should be a number or an array of shape {shape}, but has "
            f"shape {prior.shape}."
        ) from None
    if not zeros:
        refuse_nonpositive(prior, name)
    elif (prior < 0).any():
        raise ValueError(
            f"The parameter '{name}' should be positive, or 0 where it forbids something, but got "
            f"{prior.min():g}."
        )
    return prior


def checked_shapes(value: Any, n_components: int) -> np.ndarray | None:
    """Check the parameter ``duration``, and return the shapes with which a fit begins, one each.

    The result is None for geometric durations.
    """
    if isinstance(value, str):
        return None if value == "geometric" else np.ones(n_components, dtype=np.int64)
    shapes = np.asarray(value)
    if shapes.dtype.kind not in "iu" or (shapes < 1).any() or shapes.size == 0:
        raise ValueError(
            f"duration={value!r}, but it is 'geometric', 'auto', or the shapes of the durations of "
            "states: integers of at least 1, one for all states or one for each."
        )
    if shapes.shape not in ((), (n_components,)):
        raise ValueError(
            f"duration has the shape {shapes.shape}, but there are {n_components} states: give one "
            "number for all of them, or one for each."
        )
    return np.array(np.broadcast_to(shapes, (n_components,)), dtype=np.int64)


def refuse_empty_rows(prior: np.ndarray, name: str, consequence: str) -> None:
    """Raise a ValueError if all entries of a distribution are 0, and with them all probabilities.

    ``consequence`` completes the sentence "Sequences could …" of the error message.
    """
    empty = np.flatnonzero(~np.atleast_2d(prior > 0).any(axis=1))
    if len(empty):
        row = f"row {empty[0]} of " if prior.ndim > 1 else ""
        raise ValueError(
            f"All entries of {row}the parameter '{name}' are 0, which forbids everything: "
            f"sequences could {consequence}. Give at least one positive entry."
        )


def chain_priors(asked: Any, n_states: int) -> tuple[np.ndarray, np.ndarray]:
    """Read the priors of the first state and of transitions, in which an array may have zeros.

    ``asked`` is the estimator with the parameters ``startprob_prior``, ``transmat_prior`` and
    ``sticky``. A probability whose prior is 0 is forbidden.
    """

    def checked(name: str, shape: tuple[int, ...]) -> np.ndarray:
        value = getattr(asked, name)
        return checked_prior(value, 1.0 / n_states, shape, name, zeros=np.ndim(value) > 0)

    start = checked("startprob_prior", (n_states,))
    transmat = checked("transmat_prior", (n_states, n_states)) + asked.sticky * np.eye(n_states)
    refuse_empty_rows(start, "startprob_prior", "start in no state at all")
    refuse_empty_rows(transmat, "transmat_prior", "go nowhere from this state, not even stay")
    return start, transmat


def numbers_of(value: object, name: str) -> np.ndarray:
    """Check that a parameter consists of finite numbers and return it as an array of any shape."""
    return check_array(
        _as_array(value, name),
        ensure_2d=False,
        allow_nd=True,
        ensure_min_samples=0,
        input_name=name,
    )


def _as_array(value: object, name: str) -> np.ndarray:
    """Return a parameter as an array of numbers, which may be infinite or NaN."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"The parameter '{name}' should be numbers: {error}") from None


def refuse_nonpositive(prior: np.ndarray, name: str) -> None:
    """Raise a ValueError if an entry is not positive."""
    if not (prior > 0).all():
        raise ValueError(f"The parameter '{name}' should be positive everywhere.")


def checked_covariance_prior(
    value: Any, covariance_type: str, n_features: int, name: str, n_components: int | None = None
) -> np.ndarray | str | None:
    """Check the inverse scale of a Wishart prior and return it as an array.

    None and ``"auto"`` are returned as they are; they mean that the prior is derived from the data,
    or learned. If ``n_components`` is given, an array with one prior for each component is accepted
    as well.
    """
    if value is None or is_auto(value):
        return value
    shape = {
        "full": (n_features, n_features),
        "tied": (n_features, n_features),
        "diag": (n_features,),
        "spherical": (),
    }[covariance_type]
    prior = _as_array(value, name)
    if n_components is not None and prior.ndim > len(shape) and covariance_type != "tied":
        shape = (n_components, *shape)
    check_shape(prior, shape, f"{covariance_type} {name}")
    refuse_indefinite(prior, covariance_type, name)
    return prior


def refuse_indefinite(
    matrices: np.ndarray, covariance_type: str, name: str, called: str | None = None
) -> None:
    """Raise a ValueError if a matrix is not positive definite, or a variance not positive.

    The matrices are stored as the covariance type requires; ``called`` is how the message calls
    the type if not by its name.
    """
    structure = get_structure(covariance_type, COVARIANCE_TYPES, "covariance_type")
    symmetric = structure.event_ndim < 2 or np.allclose(matrices, np.swapaxes(matrices, -1, -2))
    if not symmetric or not np.all(structure.positive(matrices)):
        called = covariance_type if called is None else called
        needed = "positive" if structure.event_ndim < 2 else "symmetric, positive-definite"
        raise ValueError(f"'{called} {name}' should be {needed}")


def check_first_rows(X: np.ndarray, n_components: int, priors: str) -> None:
    """Refuse a first batch of a stream with too few distinct rows to derive the priors from it.

    As many as components are needed, and at least 2. ``priors`` names the parameters that the user
    can give in place of a larger batch. Rows without any observed cell do not count, and missing
    cells make no difference between others.
    """
    needed = max(2, n_components)
    if X.dtype.kind == "f" and X.ndim == 2:
        missing = np.isnan(X)
        X = np.where(missing, X.dtype.type(0), X)[~missing.all(axis=1)] if missing.any() else X
    distinct = len(np.unique(X[: 10 * needed], axis=0))
    if distinct < needed:
        distinct = len(np.unique(X, axis=0))
    if distinct < needed:
        raise ValueError(
            f"The first batch of a stream fixes the priors and the start, for which {needed} "
            f"distinct rows are needed; it has {distinct}. Begin with a larger batch, or give "
            f"{priors}."
        )


def check_shape(parameter: np.ndarray, shape: tuple[int, ...], name: str) -> None:
    """Raise a ValueError if a parameter has another shape."""
    if parameter.shape != shape:
        raise ValueError(
            f"The parameter '{name}' should have the shape of {shape}, but got {parameter.shape}"
        )


# Topics


def prior_of_words(
    prior: Any, n_topics: int, n_words: int, tokens_per_word: float = np.inf
) -> np.ndarray:
    """Read η of shape (n_words,) or, with one row per topic, (n_topics, n_words).

    ``tokens_per_word`` is the mean number of tokens of the words that occur, if topics are sampled.
    """
    if isinstance(prior, str) and prior == SCALED:
        prior = 2 * n_topics**-0.75 * min(1.0, (_WORDS_OF_SCALED / n_words) ** 0.5)
        of_few_tokens = (tokens_per_word / _TOKENS_PER_WORD) ** 0.5
        prior *= min(1.0, max(_LEAST_OF_FEW_TOKENS, of_few_tokens))
    if prior is None or np.ndim(prior) < 2:
        return prior_vector(prior, n_words, 1 / n_topics, "topic_word_prior", "n_features")
    seeds = np.array(_as_array(prior, "topic_word_prior"), order="F")
    if seeds.shape != (n_topics, n_words) or not (np.isfinite(seeds) & (seeds > 0)).all():
        raise ValueError(
            "topic_word_prior with one row per topic must have the shape (n_components, "
            f"n_features) = {(n_topics, n_words)} and finite, positive entries; got an array of "
            f"shape {seeds.shape}."
        )
    return seeds


def prior_vector(prior: object, size: int, default: float, name: str, axis: str) -> np.ndarray:
    """Read a positive number, or one for each of ``size`` entries along ``axis``."""
    if prior is None or is_auto(prior):
        return np.full(size, default)
    vector = _as_array(prior, name)
    if vector.ndim == 0:
        return np.full(size, float(vector))
    if vector.shape != (size,) or not (np.isfinite(vector) & (vector > 0)).all():
        raise ValueError(
            f"{name} must be a positive number, or an array of {axis} = {size} positive numbers; "
            f"got an array of shape {vector.shape}"
            + (f" with a smallest entry of {vector.min():g}." if vector.size else ".")
        )
    return vector.copy()


def warn_of_regularisation(
    reg_covar: float, parts: list[tuple[Any, np.ndarray]], spherical: bool
) -> None:
    """Warn if ``reg_covar`` is no longer small beside the smallest variance of a column.

    ``parts`` has the moments of Gaussian columns, and the positions of these columns in X. If they
    are ``spherical``, all columns of a part have one variance, their mean.
    """
    smallest, column = np.inf, 0
    for summary, columns in parts:
        variance, varies = summary.variance, above_rounding(summary.variance, summary.mean)
        if spherical and varies.any():
            variance = np.full_like(variance, variance.mean())
        least = np.where(varies, variance, np.inf)
        if least.min() < smallest:
            smallest, column = float(least.min()), int(columns[least.argmin()])
    if reg_covar <= _SHARE_OF_REGULARISATION * smallest:
        return
    what = "columns have the mean" if spherical else f"column {column} has the"
    warn(
        f"reg_covar={reg_covar:g} is added to the variances of all components, but {what} variance "
        f"{smallest:.2g} in all of X, so that groups of rows may merge. Set reg_covar to "
        f"{1e-6 * smallest:.0e} or less, or rescale X, for example with "
        "sklearn.preprocessing.StandardScaler.",
    )
