"""Checks of parameters and of input that all estimators share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import wraps
from numbers import Integral, Number, Real
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn import config_context, get_config
from sklearn.utils import check_array
from sklearn.utils._missing import is_pandas_na
from sklearn.utils._param_validation import (
    InvalidParameterError,
    Options,
    validate_parameter_constraints,
)

from .._compat import check_sample_weight
from .._stack import warn
from ..data.tables import missing_cells
from ..data.units import Rows
from ..parallel.overflow import judged_by_results

WITHOUT_WEIGHT = (
    "All sample weights are zero, so nothing is left of the data. Give a positive weight to at "
    "least one row, or leave sample_weight out."
)

OVERFLOW = (
    "X has rows so far from the training data that their squared distances overflow. Check their "
    "units, or rescale X before fitting and predicting."
)

# The largest values of integer parameters. Those named here determine the sizes of arrays; all
# others are limited by compiled code, which reads them as 64-bit integers.
_MOST = {"n_components": 10**7, "n_init": 10**7, "n_temperatures": 10**7}
_MOST |= dict.fromkeys(("n_symbols", "n_users", "n_items"), 2**31 - 1)
_LARGEST = 2**63 - 1
# Ids are positions in arrays. They may go up to the first number in any case, and beyond it up to
# the second number times the number of entries that hold ids.
_FEW_IDS = 100_000
_IDS_PER_ENTRY = 10
# The largest number of samples that are drawn at a time.
_MOST_SAMPLES = 10**12
# The largest sum of weights, and of a stream. Parameters of larger data overflow in some models.
MOST_WEIGHT = 1e30
# Names that other tools have for distributions.
_SYNONYMS = {
    "normal": "gaussian",
    "multivariate_normal": "gaussian",
    "multinomial": "categorical",
    "multinoulli": "categorical",
    "discrete": "categorical",
    "binary": "bernoulli",
    "binomial": "bernoulli",
    "count": "poisson",
    "counts": "poisson",
}


# Parameters


def check_parameters(owner: Any) -> None:
    """Validate the parameters of an estimator or a method more strictly than scikit-learn does.

    In addition to ``_parameter_constraints``, a bool is not accepted as an integer, an integer must
    have a size that arrays and compiled code can hold, and an array must not have masked entries.
    The error about an unknown name suggests the nearest valid name.
    """
    title = type(owner).__name__
    for name, value in owner.get_params(deep=False).items():
        constraints = owner._parameter_constraints.get(name, "no_validation")
        if constraints == "no_validation":
            continue
        _check_integer(name, value, constraints, title)
        refuse_masked(value, name)
        if "array-like" in constraints:
            _check_rows(name, value, title)
        try:
            validate_parameter_constraints({name: constraints}, {name: value}, title)
        except InvalidParameterError as error:
            known = [option for c in constraints for option in _names(c)]
            way_out = _instead_of_class(value) or did_you_mean(value, known)
            raise InvalidParameterError(f"{error}{way_out}") from None


def _check_integer(name: str, value: object, constraints: list, owner: str) -> None:
    types = {getattr(constraint, "type", None) for constraint in constraints}
    if isinstance(value, bool):
        if Integral in types:
            raise InvalidParameterError(
                f"The {name!r} parameter of {owner} must be a number, and a bool is none. Got "
                f"{value!r} instead."
            )
    elif isinstance(value, Integral) and types & {Integral, Real} and name != "random_state":
        most = _MOST.get(name, _LARGEST)
        if abs(int(value)) > most:
            raise InvalidParameterError(
                f"The {name!r} parameter of {owner} must be at most {most}. Got {value!r} instead."
            )


def _check_rows(name: str, value: object, owner: str) -> None:
    """Refuse a list of lists that is no array, because these have different lengths."""
    if not isinstance(value, list | tuple):
        return
    try:
        np.shape(value)
    except ValueError:
        raise InvalidParameterError(
            f"The {name!r} parameter of {owner} must be an array, or a list whose rows have one "
            f"length. Got {value!r} instead."
        ) from None


def _names(constraint: object) -> Iterable[str]:
    """The strings that a constraint accepts."""
    return constraint.options if isinstance(constraint, Options) and constraint.type is str else ()


def _instead_of_class(value: object) -> str:
    """A sentence for a class in the place of one of its instances; empty for other values."""
    if not isinstance(value, type):
        return ""
    return f" This is a class; give an instance of it, such as {value.__name__}()."


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A sentence that suggests the known name nearest to ``name``; empty if none is near."""
    if not isinstance(name, str):
        return ""
    known = sorted(known)
    synonym = _SYNONYMS.get(name.lower())
    nearest = [synonym] if synonym in known else get_close_matches(name.lower(), known, n=1)
    return f" Did you mean {nearest[0]!r}?" if nearest else ""


def checks_parameters(partial_fit: Callable) -> Callable:
    """A decorator of ``partial_fit``: parameters are validated at every call.

    scikit-learn's own decorator validates those of the first call alone, so that a stream would
    take whatever is set between two calls.
    """

    @wraps(partial_fit)
    def call(self, *args: object, **kwargs: object) -> object:
        if not get_config()["skip_parameter_validation"]:
            self._validate_params()
        with config_context(skip_parameter_validation=True):
            return partial_fit(self, *args, **kwargs)

    return call


# Failures of linear algebra


@contextmanager
def explained(advice: str, what: str = "Fitting") -> Iterator[None]:
    """Turn a failure of linear algebra into a ValueError with advice to the user.

    Such a failure means that parameters left their domain, for example that a covariance matrix
    is not positive definite any more. Numpy does not warn of the numbers that lead to it.
    """
    try:
        with judged_by_results():
            yield
    except np.linalg.LinAlgError as error:
        raise ValueError(f"{what} failed because {advice}") from error


def explains(what: str) -> Callable[[Callable], Callable]:
    """Decorate a method so that it runs within :func:`explained`, with its estimator's advice."""

    def decorate(method: Callable) -> Callable:
        @wraps(method)
        def call(self, *args: object, **kwargs: object) -> object:
            with explained(self._advice, what):
                return method(self, *args, **kwargs)

        return call

    return decorate


def finite(values: np.ndarray, sentence: str) -> np.ndarray:
    """Return the values of a prediction; raise a ValueError if they are not all finite.

    ``sentence`` is the text of the error.
    """
    if not np.isfinite(values).all():
        raise ValueError(sentence)
    return values


# Labels


def without_value(labels: np.ndarray) -> np.ndarray:
    """Return a mask of the labels that are NaN, NaT, None or pandas' NA, (n_labels,)."""
    if labels.dtype.kind in "fcmM":
        return np.isnan(labels)
    if labels.dtype.kind != "O":
        return np.zeros(len(labels), dtype=bool)
    # NaN and NaT, of numpy as of pandas, differ from themselves. A comparison with NA has no value.
    return np.array([v is None or is_pandas_na(v) or bool(v != v) for v in labels.tolist()])


# Masked arrays


def _is_masked(values: object) -> bool:
    """Whether an array, or one of the arrays of a list, has masked entries."""
    parts = values if isinstance(values, list | tuple) else (values,)
    # Arrays of pandas have masks too, but numpy reads them as it reads lists.
    return any(isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part) for part in parts)


def refuse_masked(values: object, name: str, nan_is_missing: bool = False) -> None:
    """Refuse masked entries, because code that ignores the mask would use the values behind it.

    With ``nan_is_missing`` the error says how to mark the entries as missing.
    """
    if not _is_masked(values):
        return
    if nan_is_missing:
        raise ValueError(
            f"{name} is a masked array with masked entries. Missing cells are marked by NaN here: "
            f"give {name}.filled(numpy.nan), which needs a dtype of floating-point numbers."
        )
    raise ValueError(
        f"{name} is a masked array with masked entries, which have no meaning here. Leave "
        "these entries out, or fill them in with filled() or an imputer."
    )


def read_array(values: object, name: str) -> np.ndarray:
    """An argument as an array; masked entries and rows of several lengths are refused."""
    refuse_masked(values, name)
    try:
        return np.asarray(values)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ValueError(f"{name} is no array, because its rows have several lengths.") from None


def masked_as_nan(values: Any) -> Any:
    """Replace masked entries by NaN, which makes the values floats; others are left alone."""
    if not _is_masked(values):
        return values
    if isinstance(values, list | tuple):
        return [masked_as_nan(part) for part in values]
    return values.astype(np.result_type(values.dtype, np.float32)).filled(np.nan)


# Latent values of rows


def check_activations(X: Any, n_components: int, components: str = "components") -> np.ndarray:
    """Read the argument of inverse_transform: an array with one column per component."""
    refuse_masked(X, "X")
    X = check_array(X, dtype=[np.float64, np.float32], input_name="X")
    if X.shape[1] != n_components:
        raise ValueError(
            f"X has {X.shape[1]} columns, but inverse_transform needs one for each of the "
            f"{n_components} {components}, as transform returns them."
        )
    return X


def check_n_steps(n_steps: Any) -> None:
    """Refuse a number of steps ahead that is below 1, or is not an integer."""
    if isinstance(n_steps, bool) or not isinstance(n_steps, Integral) or n_steps < 1:
        raise ValueError(
            f"n_steps is {n_steps!r}, but it is the number of frames to forecast, an integer of at "
            "least 1."
        )


def check_n_samples(n_samples: Any) -> None:
    """Refuse a number of samples to draw that is below 1, or is not an integer."""
    # A truth value is an Integral to Python, and no number of samples to NumPy.
    if isinstance(n_samples, bool) or not isinstance(n_samples, Integral) or n_samples < 1:
        raise ValueError(
            f"Invalid value for 'n_samples': {n_samples}. The sampling requires at least one "
            "sample, and a whole number of them."
        )
    if int(n_samples) > _MOST_SAMPLES:
        raise ValueError(
            f"n_samples is {n_samples}, and at most {_MOST_SAMPLES} samples are drawn at a time: "
            "they have to fit into memory."
        )


# Weights


def checked_weights(sample_weight: Any, X: Any, allow_nothing: bool) -> np.ndarray | None:
    """Return the weights of rows as float64; None if there are none.

    Weights that are all 0 are refused unless ``allow_nothing``, and so are those whose sum is so
    large that its square overflows.
    """
    if sample_weight is None:
        return None
    refuse_masked(sample_weight, "sample_weight")
    if isinstance(sample_weight, Number) and not isinstance(sample_weight, Real):
        # scikit-learn refuses arrays of complex numbers, and would take the real part of one.
        raise ValueError(f"sample_weight should be real, but is {sample_weight!r}.")
    if isinstance(sample_weight, Real) and not math.isfinite(float(sample_weight)):
        raise ValueError(f"sample_weight is {sample_weight}, but weights are finite numbers.")
    weights = check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not allow_nothing and not weights.any():
        raise ValueError(WITHOUT_WEIGHT)
    with np.errstate(over="ignore"):
        total = weights.sum()
    if total > MOST_WEIGHT:
        raise ValueError(
            f"sample_weight sums to {total:.3g}, but at most {MOST_WEIGHT:g} is read: a "
            "weight of 2 counts a row twice, so that weights are numbers of rows. If only "
            "their proportions matter, give sample_weight * len(sample_weight) / "
            "sum(sample_weight)."
        )
    return weights


# Missing cells


def refuse_unobserved_columns(rows: Rows, positions: np.ndarray | None = None) -> None:
    """Refuse training data with a column in which no cell is observed.

    Such a column says nothing, so that neither a prior nor a start follows from it. ``positions``
    has the positions of the columns in the table that the user gave, if they are others.
    """
    X: Any = rows.X
    if isinstance(X, np.ndarray) and rows.patterns is None:
        return
    mask = missing_cells(X)
    if mask is None:
        return
    unobserved = np.flatnonzero(np.asarray(mask.sum(axis=0)) == X.shape[0])
    if len(unobserved):
        column = unobserved[0] if positions is None else positions[unobserved[0]]
        raise ValueError(
            f"Column {column} of X has no observed value: all of its cells are missing (in rows of "
            "positive weight). Leave this column out, or add rows that have a value in it."
        )


# Categories


def warn_of_zero(what: str, plural: str, columns: list[int] | None, declare: str) -> None:
    """Warn of columns without the category 0, as those are that begin to count with 1.

    ``columns`` are their positions in X; None for symbols, which have one column.
    """
    if columns is not None and not columns:
        return
    where = "" if columns is None else f" in the {_columns_of_x(columns)}"
    warn(
        f"The {what} 0 does not occur{where}, but {plural} are numbered from 0, so that it has "
        f"parameters, which bic counts. If {plural} were coded from 1, subtract 1, or let "
        "sklearn.preprocessing.OrdinalEncoder number them. If these data merely lack it, declare "
        f"{declare}.",
    )


def warn_of_minus_one(columns: list[int]) -> None:
    """Warn of columns, by their positions in X, in which −1 may be an answer."""
    if not columns:
        return
    warn(
        f"There are cells of −1 and of 1 in the {_columns_of_x(columns)}, where −1 is read as a "
        "missing cell. If −1 is an answer, number the answers from 0, as "
        "sklearn.preprocessing.OrdinalEncoder does. If cells are missing, NaN in their place says "
        "so."
    )


def _columns_of_x(columns: list[int]) -> str:
    """Return words that name some columns of X by their positions."""
    some = ", ".join(map(str, columns[:5])) + (", …" if len(columns) > 5 else "")
    return f"column{'s' * (len(columns) > 1)} {some} of X"


def hint_of_one(codes: np.ndarray, n: int, name: str) -> str:
    """Return a sentence for codes that go from 1 to ``n``, where they are counted from 0.

    It is empty for others. Missing codes are −1 or NaN, and ``name`` is what the user gave.
    """
    with np.errstate(invalid="ignore"):
        known = codes[codes >= 0]
    if len(known) == 0 or known.max() != n or known.min() == 0:
        return ""
    return f" They are counted from 0, and no 0 occurs: if yours begin with 1, give {name} - 1."


# Sparse matrices


def check_sparse(X: Any) -> None:
    """Refuse a sparse matrix whose arrays point outside it, since compiled code would follow them.

    SciPy checks these arrays when a matrix is made, but checks all of them only for some formats,
    and does not notice when they are changed afterwards. Input that is not sparse is accepted.
    """
    if not issparse(X):
        return
    if X.ndim != 2:
        raise ValueError(f"Expected a sparse matrix with 2 dimensions, but X has {X.ndim}.")
    if X.format == "coo":
        for ids, size, name in zip((X.row, X.col), X.shape, ("row", "column"), strict=True):
            _check_entries(ids, X.data)
            _check_indices(ids, size, name)
    elif X.format in ("csr", "csc", "bsr"):
        block = X.blocksize if X.format == "bsr" else (1, 1)
        shape = [size // length for size, length in zip(X.shape, block, strict=True)]
        names = ["row", "column"]
        if X.format == "csc":
            shape.reverse()
            names.reverse()
        _check_entries(X.indices, X.data)
        _check_pointers(X.indptr, shape[0], len(X.indices))
        _check_indices(X.indices[: X.indptr[-1]], shape[1], names[1])


def as_csr(X: Any) -> csr_array:
    """Return a sparse matrix in the format CSR, with one entry for each cell."""
    X = csr_array(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


_DAMAGED = "The matrix was damaged after it was made: make it anew from its entries."


def _check_entries(ids: np.ndarray, data: np.ndarray) -> None:
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or len(ids) != len(data):
        raise ValueError(f"X is a sparse matrix without one integer index per entry. {_DAMAGED}")


def _check_pointers(indptr: np.ndarray, n: int, n_entries: int) -> None:
    right = indptr.shape == (n + 1,) and indptr.dtype.kind in "iu"
    if not right or indptr[0] != 0 or indptr[-1] > n_entries or (indptr[1:] < indptr[:-1]).any():
        raise ValueError(
            "X is a sparse matrix whose indptr does not rise from 0 to at most the number of its "
            f"entries, {n_entries}. {_DAMAGED}"
        )


def _check_indices(ids: np.ndarray, size: int, name: str) -> None:
    if len(ids) == 0:
        return
    for index in (ids.min(), ids.max()):
        if not 0 <= index < size:
            raise ValueError(
                f"X is a sparse matrix with the {name} index {index}, but indices of {name}s go "
                f"from 0 to {size - 1}. {_DAMAGED}"
            )


# Ids


def check_largest_id(largest: int, n_entries: int, what: str, entries: str, declare: str) -> None:
    """Refuse ids far beyond the number of entries that hold them.

    Ids are positions in arrays, so that every number up to the largest id takes memory and time.
    Ids may go up to 100,000 whatever the data are, and up to ten times the number of entries if
    that is more. This is enough for the gaps between ids that arise when rows of a table are
    selected, and it prevents arrays that are orders of magnitude larger than the data.
    """
    most = max(_FEW_IDS, _IDS_PER_ENTRY * n_entries)
    if largest >= most:
        raise ValueError(
            f"X has the {what} {largest}, but only {n_entries} {entries}. Numbers of this kind are "
            f"positions in arrays, with room for all from 0 to the largest, so that {most} and "
            "more are refused here. sklearn.preprocessing.OrdinalEncoder makes consecutive numbers "
            f"of them; or declare {declare}={largest + 1}, if there are as many."
        )
