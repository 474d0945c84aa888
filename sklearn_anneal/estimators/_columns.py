"""Columns of tables: which emission each has, and the forms in which models read them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.utils import Bunch
from sklearn.utils._indexing import _get_column_indices
from sklearn.utils._missing import is_pandas_na

from ..data.tables import Blocks, Coded
from ..families import Natural
from ..models.components._base import Components
from ..models.components.blocks import BlockComponents
from ..models.components.categorical_columns import CategoricalColumns
from ..models.components.gaussian_columns import GaussianColumns
from ._emissions import (
    EMISSIONS,
    PROBABILITIES,
    BernoulliEmission,
    Emission,
    GaussianEmission,
    PoissonEmission,
)
from ._priors import (
    auto_as_none,
    checked_prior,
    is_auto,
    numbers_of,
    refuse_nonpositive,
    warn_of_regularisation,
)
from ._tables import refuse_foreign_cells
from ._validation import check_largest_id, did_you_mean, hint_of_one, warn_of_zero

# Number of cells that are checked at a time, so that this takes little memory.
_CELLS = 1 << 19
CATEGORIES_OF_TEXT = (
    "categories are integers from 0. sklearn.preprocessing.OrdinalEncoder makes such integers of "
    "text and of pandas categories"
)


class Block(NamedTuple):
    """Some columns of a table, with the emission that they share.

    Attributes
    ----------
    name : str
    emission : str
    columns : ndarray of int
        Their positions in the table.
    """

    name: str
    emission: str
    columns: np.ndarray


def blocks_of(emission: Any, X: Any, known: Collection[str]) -> list[Block] | None:
    """Return the blocks that the parameter ``emission`` lists; None if it is a single name.

    Parameters
    ----------
    emission : str or list of tuples (name, emission, columns)
    X : array, DataFrame or array with ``shape``
        The table, whose column names ``columns`` may refer to.
    known : collection of str
        The emissions that there are.

    Raises
    ------
    ValueError
        If the list is not well formed, if an emission is not known, or if a column is in no block
        or in more than one.
    """
    if isinstance(emission, str):
        _refuse_unknown("The parameter emission is", emission, known)
        return None
    blocks: list[Block] = []
    for entry in emission:
        if not isinstance(entry, tuple | list) or len(entry) != 3:
            raise ValueError(
                f"emission should be a list of (name, emission, columns), but has {entry!r}."
            )
        name, kind, columns = entry
        if not isinstance(name, str) or not name or name in {block.name for block in blocks}:
            raise ValueError(f"Blocks need different names that are strings; got {name!r}.")
        _refuse_unknown(f"Block {name!r} has the emission", kind, known)
        with _named_block(name):
            _refuse_absent(X, columns)
            indices = _get_column_indices(X, columns)
        found = np.atleast_1d(np.array(indices, dtype=np.intp))
        if len(found) == 0:
            raise ValueError(f"Block {name!r} has no columns.")
        blocks.append(Block(name, kind, found))
    if not blocks:
        raise ValueError("emission is an empty list. Give at least one block of columns.")
    uses = np.bincount(np.concatenate([b.columns for b in blocks]), minlength=X.shape[1])
    if (uses != 1).any():
        column = int(np.flatnonzero(uses != 1)[0])
        raise ValueError(
            f"Column {column} of X is in {uses[column]} blocks of emission, but every column "
            "belongs to exactly one. Add it to a block, or drop it from X."
        )
    return blocks


def _refuse_unknown(what: str, emission: Any, known: Collection[str]) -> None:
    if not isinstance(emission, str) or emission not in known:
        raise ValueError(
            f"{what} {emission!r}, but emissions are {sorted(known)}."
            f"{did_you_mean(emission, known)}"
        )


def _refuse_absent(X: Any, columns: Any) -> None:
    """Refuse names that no column of a data frame has."""
    given = columns if isinstance(columns, list) else [columns]
    known = [*getattr(X, "columns", ())]
    absent = [name for name in given if isinstance(name, str) and name not in known]
    if known and absent:
        raise ValueError(f"these are not columns of X: {absent}.")


@contextmanager
def _named_block(name: str) -> Iterator[None]:
    """Begin the text of an error with the name of the block that it is about."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"In the block {name!r}: {error}") from None


# Cells


def as_numbers(X: np.ndarray, given: Any) -> np.ndarray:
    """Return an array of objects as floating-point numbers, with NaN for None and pandas.NA.

    ``given`` is the table from which the array was made, for error messages.

    Raises
    ------
    ValueError
        If an object is no number.
    """
    missing = np.array([cell is None or is_pandas_na(cell) for cell in X.flat], dtype=bool)
    try:
        return np.where(missing.reshape(X.shape), np.nan, X).astype(np.float64)
    except (TypeError, ValueError) as error:
        refuse_foreign_cells(given, CATEGORIES_OF_TEXT, error)
        raise ValueError(f"X has cells that are no numbers: {error}") from None


def levels_of(X: Any, what: str, largest: int | None = None) -> list[np.ndarray]:
    """Return levels as small integers, with −1 for missing cells, in chunks of rows.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_columns)
    what : str
        What the values are, for the error message.
    largest : int, default=None
        The largest level. None: as large as the integers in which levels are counted.

    Raises
    ------
    ValueError
        If a value is not a level.
    """
    chunks = []
    n_rows = max(_CELLS // max(X.shape[1], 1), 1)
    for start in range(0, len(X), n_rows):
        part = X[start : start + n_rows]
        if part.dtype.kind == "f":
            missing = np.isnan(part)
            bad = part != np.floor(part)
            bad &= ~missing
        else:
            missing = np.zeros(part.shape, dtype=bool)
            bad = missing
        if part.dtype.kind != "b":
            bad = bad | (part < -1)
        if bad.any():
            raise ValueError(f"{what}, but X contains {part[bad].flat[0]:g}.")
        most = float(np.max(part, initial=0, where=~missing))
        if largest is not None and most > largest:
            raise ValueError(f"{what}, but X contains {most:g}.")
        if most > np.iinfo(np.int32).max - 1:
            raise ValueError(f"Levels are numbers below 2 ** 31, but X contains {most:g}.")
        dtype = np.min_scalar_type(-int(most) - 1)
        levels = np.where(missing, -1, part) if missing.any() else part
        chunks.append(levels.astype(dtype))
    return chunks


def _coded(chunks: list[np.ndarray], n_levels: Any, n_components: int, n_columns: int) -> Coded:
    missing = np.zeros(n_columns, dtype=bool)
    for chunk in chunks:
        missing |= (chunk < 0).any(axis=0)
    return Coded.of_chunks(chunks, n_levels, missing, n_components)


def _as_floats(X: Any) -> Any:
    """Return an array or a sparse matrix with a dtype that compiled code reads."""
    return X if X.dtype in (np.float64, np.float32) else X.astype(np.float64)


class BinaryColumns(BernoulliEmission):
    """Columns of zeros and ones."""

    @classmethod
    def cells(cls, X: Any, n_components: int, declared: Any, parameter: str) -> Any:
        """Return the columns in the form that the components read."""
        if issparse(X):
            known = X.data[~np.isnan(X.data)]
            if ((known != 0) & (known != 1)).any():
                bad = known[(known != 0) & (known != 1)][0]
                raise ValueError(f"Binary columns are of 0 and 1, but X contains {bad:g}.")
            return _as_floats(X)
        text = "Binary columns are of 0 and 1 (−1 or NaN where a cell is missing)"
        chunks = levels_of(X, text, largest=1)
        return _coded(chunks, [2] * X.shape[1], n_components, X.shape[1])


class CategoricalColumnsEmission(Emission[CategoricalColumns]):
    """Columns of categories."""

    prior_parameters: ClassVar[dict[str, bool]] = {"emissionprob_prior": True}
    fitted_attributes = (*PROBABILITIES, "n_categories_")

    @classmethod
    def encode(cls, X: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        raise NotImplementedError

    @classmethod
    def cells(cls, X: Any, n_components: int, declared: Any, parameter: str) -> Coded:
        """Return the columns in the form that the components read.

        ``declared`` has the number of levels of each column, or is None where the data show it, and
        ``parameter`` is the name of the parameter that declares it.
        """
        if issparse(X):
            raise TypeError(
                "Categories cannot be sparse, because a zero is a category like the others. Give "
                "a dense array."
            )
        chunks = levels_of(X, "Categories are integers 0, 1, … (−1 or NaN where one is missing)")
        n = X.shape[1]
        most = np.max([c.max(axis=0, initial=-1) for c in chunks], axis=0).astype(int)
        if declared is None:
            column = int(most.argmax())
            check_largest_id(int(most[column]), len(X), "category", "rows", parameter)
            n_levels = np.maximum(most + 1, 1)
        else:
            if np.shape(declared) not in ((), (1,), (n,)):
                raise ValueError(
                    "The declared numbers of categories should be one number or one for each of "
                    f"the {n} columns of categories, but have the shape {np.shape(declared)}."
                )
            n_levels = np.broadcast_to(declared, (n,))
            beyond = np.flatnonzero(most >= n_levels)
            if len(beyond):
                c = int(beyond[0])
                raise ValueError(
                    f"Column {c} of the categories has the category {most[c]}, which was not "
                    f"declared: it has {n_levels[c]} categories, from 0 to {n_levels[c] - 1}. Fit "
                    f"with {parameter} of at least {most[c] + 1} to allow for categories that the "
                    "training data do not have."
                    + hint_of_one(
                        np.concatenate([chunk[:, c] for chunk in chunks]), n_levels[c], "X"
                    )
                )
        return _coded(chunks, n_levels, n_components, n)

    @classmethod
    def components(cls, estimator: Any, frames: Any) -> CategoricalColumns:
        k, n_levels = estimator._number, frames.packing.n_levels
        value = estimator.emissionprob_prior
        if auto_as_none(value) is not None:
            refuse_nonpositive(numbers_of(value, "emissionprob_prior"), "emissionprob_prior")
        priors = [
            checked_prior(value, estimator._usual_concentration(n), (k, n), "emissionprob_prior")
            for n in n_levels
        ]
        return CategoricalColumns(k, n_levels, priors, is_auto(value))

    @classmethod
    def attributes(
        cls, components: CategoricalColumns, q: Natural, prior: Natural, summary: Any
    ) -> dict[str, Any]:
        return {
            "emissionprob_": components.probabilities(q),
            "emissionprob_posterior_": components.columns(q),
            "emissionprob_prior_": components.columns(prior),
            "n_categories_": np.array(components.n_levels),
        }

    @classmethod
    def draw(
        cls,
        components: CategoricalColumns,
        states: np.ndarray,
        fitted: Any,
        random_state: np.random.RandomState,
    ) -> np.ndarray:
        columns = []
        for p in fitted.emissionprob_:
            limits = np.cumsum(p, axis=1)[states]
            uniform = random_state.random_sample(len(states))
            level = (uniform[:, None] > limits).sum(axis=1)
            columns.append(np.minimum(level, p.shape[1] - 1))
        return np.column_stack(columns)


class CountColumns(PoissonEmission):
    """Columns of counts."""

    @classmethod
    def cells(cls, X: Any, n_components: int, declared: Any, parameter: str) -> Any:
        """Return the columns in the form that the components read."""
        values = X.data if issparse(X) else X
        with np.errstate(invalid="ignore"):
            bad = (values < 0) | (values != np.floor(values)) if values.dtype.kind != "b" else None
        if bad is not None and bad.any():
            bad &= ~np.isnan(values) if values.dtype.kind == "f" else True
            if bad.any():
                raise ValueError(
                    f"Counts are integers 0, 1, …, but X contains {values[bad].flat[0]:g}."
                )
        return _as_floats(X)


class RealColumns(GaussianEmission):
    """Columns of real numbers, independent or with a covariance."""

    @classmethod
    def cells(cls, X: Any, n_components: int, declared: Any, parameter: str) -> Any:
        """Return the columns in the form that the components read."""
        if issparse(X):
            raise TypeError("Gaussian columns cannot be sparse. Give a dense array.")
        return _as_floats(X)

    @classmethod
    def components(cls, estimator: Any, frames: Any) -> Any:
        if estimator.covariance_type != "independent":
            return super().components(estimator, frames)
        k, d = estimator._number, frames.shape[1]
        given = {}
        for name, default in (("beta_prior", 1.0), ("dof_prior", 1.0), ("scale_prior", 1.0)):
            value = getattr(estimator, name)
            if value is None or is_auto(value):
                given[name] = value
            else:
                given[name] = checked_prior(value, default, (k, d), name)
        mean = estimator.means_prior
        if not (mean is None or is_auto(mean)):
            mean = numbers_of(mean, "means_prior")
            try:
                mean = np.broadcast_to(mean, (k, d))
            except ValueError:
                raise ValueError(
                    f"The parameter 'means_prior' should have shape {(d,)} or {(k, d)}, but has "
                    f"shape {mean.shape}."
                ) from None
        return GaussianColumns(
            k,
            d,
            given["beta_prior"],
            mean,
            given["dof_prior"],
            given["scale_prior"],
            estimator.reg_covar,
        )

    @classmethod
    def attributes(
        cls, components: Any, q: Natural, prior: Natural, summary: Any
    ) -> dict[str, Any]:
        if not isinstance(components, GaussianColumns):
            return super().attributes(components, q, prior, summary)
        now, before = components.standard(q), components.standard(prior)
        return {
            "means_": now["mean"] + summary.center,
            "covars_": components.covariances(q),
            "means_posterior_": now["mean"] + summary.center,
            "beta_posterior_": now["mean_precision"],
            "dof_posterior_": now["dof"],
            "scale_posterior_": now["inverse_scale"],
            "means_prior_": before["mean"] + summary.center,
            "beta_prior_": before["mean_precision"],
            "dof_prior_": before["dof"],
            "scale_prior_": before["inverse_scale"],
            "scale_prior_sizes_": {"mean": np.ones(components.n_components)},
        }

    @classmethod
    def draw(
        cls, components: Any, states: np.ndarray, fitted: Any, random_state: np.random.RandomState
    ) -> np.ndarray:
        if not isinstance(components, GaussianColumns):
            return super().draw(components, states, fitted, random_state)
        noise = random_state.standard_normal((len(states), components.n_features))
        return fitted.means_[states] + noise * np.sqrt(fitted.covars_[states])


COLUMN_EMISSIONS: dict[str, Any] = {
    "bernoulli": BinaryColumns,
    "categorical": CategoricalColumnsEmission,
    "poisson": CountColumns,
    "gaussian": RealColumns,
}
"""The emissions of columns, by the values of the parameter ``emission``."""


FRAME_EMISSIONS: dict[str, Any] = EMISSIONS | {"gaussian": RealColumns}
"""The emissions of frames of a single kind, by the values of the parameter ``emission``."""


def cells_of(
    X: Any,
    emission: Any,
    blocks: list[Block] | None,
    n_components: int,
    declared: Any,
    parameter: str,
) -> Any:
    """Return a table in the form that the components read.

    ``declared`` maps the name of each block of categories to the number of levels of its columns;
    it has the key ``""`` if there are no blocks. Names that are missing are not declared.
    ``parameter`` is the name of the parameter that declares them.

    Raises
    ------
    ValueError
        If a value cannot be one of its emission.
    """
    if blocks is None:
        return COLUMN_EMISSIONS[emission].cells(X, n_components, declared.get(""), parameter)
    if issparse(X):
        raise TypeError(
            "A sparse X cannot be divided into blocks. Give a dense array, or emission='bernoulli' "
            "or 'poisson' for all columns."
        )
    parts = {}
    for block in blocks:
        part = X[:, block.columns]
        cls = COLUMN_EMISSIONS[block.emission]
        with _named_block(block.name):
            known = declared.get(block.name)
            parts[block.name] = cls.cells(part, n_components, known, parameter)
    return Blocks(parts)


def as_csr(X: Any) -> csr_array:
    """Return a sparse matrix in the format CSR, with one entry for each cell."""
    X = csr_array(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


class TablesOfColumns:
    """Mixin of estimators with a parameter ``emission`` that can be a list of blocks.

    Attributes
    ----------
    _levels_parameter : str
        The name of the parameter that declares numbers of categories.
    _emissions : dict
        The emissions that all columns together may have, by their names.
    """

    _levels_parameter: ClassVar[str]
    _emissions: ClassVar[dict[str, Any]] = COLUMN_EMISSIONS
    _summary_of_components: Callable[[Any], Any]
    _columns: list[tuple[str, str, np.ndarray]] | None
    emission: Any
    covariance_type: str
    reg_covar: float
    blocks_: dict[str, Any]

    @property
    def _blocks(self) -> list[Block] | None:
        """The blocks of columns of the training data; None if ``emission`` is a single name."""
        if self._columns is None:
            return None
        return [Block(name, emission, columns) for name, emission, columns in self._columns]

    def _find_blocks(self, X: Any) -> None:
        """Find the columns of the blocks in training data."""
        known = self._emissions
        if not isinstance(self.emission, str):
            known = {name: known[name] for name in known if name in COLUMN_EMISSIONS}
        blocks = blocks_of(self.emission, X, known)
        # Plain tuples, because files of fitted estimators name all other classes.
        self._columns = None if blocks is None else [(*block,) for block in blocks]

    def _warn_of_categories(self, cells: Any) -> None:
        """Warn of columns of training data in which no cell has the category 0.

        Columns whose numbers of categories are declared are left out.
        """
        declared, order = self._declared(), self._order()
        parts = cells.parts if isinstance(cells, Blocks) else {"": cells}
        order = np.arange(cells.shape[1]) if order is None else order
        empty: list[int] = []
        start = 0
        for name, part in parts.items():
            columns = order[start : start + part.shape[1]]
            start += part.shape[1]
            if isinstance(part, Coded) and self._counts_levels(name) and name not in declared:
                empty += columns[without_zero(part)].tolist()
        warn_of_zero("category", "categories", empty, self._levels_parameter)

    def _counts_levels(self, name: str) -> bool:
        """Return whether a block (or all columns, if it has no name) is of categories."""
        kinds = {block.name: block.emission for block in self._blocks or ()}
        return kinds.get(name, self.emission) == "categorical"

    def _order(self) -> np.ndarray | None:
        """The positions in X of the columns of all blocks; None if there are no blocks."""
        if self._blocks is None:
            return None
        return np.concatenate([block.columns for block in self._blocks])

    def _declared(self) -> dict[str, Any]:
        """The declared numbers of categories, by the name of the block."""
        name, blocks = self._levels_parameter, self._blocks
        value = getattr(self, name)
        if value is None:
            return {}
        if blocks is None:
            if isinstance(value, dict):
                raise ValueError(f"{name} is a dictionary only if emission is a list.")
            return {"": _levels(value, name)} if self.emission == "categorical" else {}
        named = [block.name for block in blocks if block.emission == "categorical"]
        if not isinstance(value, dict):
            return {block: _levels(value, name) for block in named}
        unknown = sorted(set(value) - set(named))
        if unknown:
            raise ValueError(
                f"{name} names {unknown[0]!r}, but the blocks of categories are {named}."
            )
        return {block: _levels(number, name) for block, number in value.items()}

    def _check_all_declared(self) -> None:
        """Refuse a batch of a stream, or a part, without declared numbers of categories."""
        blocks = self._blocks or [Block("", self.emission, np.empty(0))]
        names = {block.name for block in blocks if block.emission == "categorical"}
        if not names <= set(self._declared()):
            raise ValueError(
                f"partial_fit needs {self._levels_parameter}, and so does fit with data in parts: "
                "the first batch does not tell which categories the others will have."
            )

    @staticmethod
    def _known_levels(components: Components) -> dict[str, Any]:
        """The numbers of categories of fitted components, by the name of the block."""
        parts = components.parts if isinstance(components, BlockComponents) else {"": components}
        return {
            name: np.array(part.n_levels)
            for name, part in parts.items()
            if isinstance(part, CategoricalColumns)
        }

    def _components(self, X: Any) -> Components:
        """Check the priors and make the components from them; X is in the form they read."""
        if self._blocks is None:
            return COLUMN_EMISSIONS[self.emission].components(self, X)
        return BlockComponents(
            {
                block.name: COLUMN_EMISSIONS[block.emission].components(self, X.parts[block.name])
                for block in self._blocks
            }
        )

    def _attributes_of_components(
        self, components: Any, q: Natural, prior: Natural, summary: Any
    ) -> dict[str, Any]:
        """The fitted attributes of the components, by name."""
        if self._blocks is None:
            return COLUMN_EMISSIONS[self.emission].attributes(components, q, prior, summary)
        found = {}
        for block in self._blocks:
            own = components.own(block.name, q), components.own(block.name, prior)
            part = components.parts[block.name]
            emission = COLUMN_EMISSIONS[block.emission]
            attributes = emission.attributes(part, *own, summary[block.name])
            found[block.name] = Bunch(columns=block.columns, **attributes)
        return {"blocks_": found}

    def _warn_of_scales(self, summary: Any) -> None:
        """Warn if ``reg_covar`` is not small beside the variance of a Gaussian column."""
        own = self._summary_of_components(summary)
        if self._blocks is not None:
            of_blocks = [b for b in self._blocks if b.emission == "gaussian"]
            moments = [(own[block.name], block.columns) for block in of_blocks]
        else:
            moments = [(own, np.arange(len(own.mean)))] if self.emission == "gaussian" else []
        spherical = self.covariance_type == "spherical"
        warn_of_regularisation(self.reg_covar, moments, spherical)

    def _draw(
        self, components: Any, labels: np.ndarray, random_state: np.random.RandomState
    ) -> np.ndarray:
        """Draw one row for each component or state, at the posterior means."""
        if self._blocks is None:
            return COLUMN_EMISSIONS[self.emission].draw(components, labels, self, random_state)
        fitted = self.blocks_
        parts = [
            COLUMN_EMISSIONS[b.emission].draw(
                components.parts[b.name], labels, fitted[b.name], random_state
            )
            for b in self._blocks
        ]
        order = self._order()
        assert order is not None
        return np.hstack(parts)[:, np.argsort(order)]


def without_zero(part: Coded) -> np.ndarray:
    """Return which columns have observed cells, but none of the category 0."""
    found = np.zeros((2, part.shape[1]), dtype=bool)
    n_rows = max(_CELLS // max(part.shape[1], 1), 1)
    for start in range(0, len(part), n_rows):
        levels = part[start : start + n_rows].levels()
        found |= np.stack([(levels == 0).any(axis=0), (levels > 0).any(axis=0)])
    return found[1] & ~found[0]


def _levels(value: Any, name: str) -> np.ndarray:
    """Check numbers of categories and return them as an array."""
    levels = np.asarray(value)
    if levels.dtype.kind not in "iu" or levels.size == 0 or (levels < 1).any():
        raise ValueError(f"{name} should have positive integers, but is {value!r}.")
    if (levels > np.iinfo(np.int32).max).any():
        raise ValueError(f"{name} should have numbers below 2 ** 31, but is {value!r}.")
    return levels
