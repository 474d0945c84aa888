"""Columns of tables: which emission each has, and the forms in which models read them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.utils import Bunch
from sklearn.utils._indexing import _get_column_indices

from ..data.tables import Blocks, Coded
from ..families import Natural
from ..models.components._base import Components, Profile
from ..models.components.blocks import BlockComponents
from ..models.components.categorical_columns import CategoricalColumns
from ._attributes import Attributes
from ._emissions import EMISSIONS, Emission, attributes_only_with, emission_named
from ._emissions._levels import CELLS_AT_A_TIME
from ._given_starts import given_profile
from ._priors import warn_of_regularisation
from ._tables import NUMBERS
from ._validation import did_you_mean, warn_of_minus_one, warn_of_zero

_CATEGORIES_OF_TEXT = (
    "categories are integers from 0. sklearn.preprocessing.OrdinalEncoder makes such integers of "
    "text and of pandas categories"
)


class Block(NamedTuple):
    """Some columns of a table, with the emission that they share."""

    name: str
    emission: str
    columns: np.ndarray  # their positions in the table


def blocks_of(emission: Any, X: Any, known: Collection[str]) -> list[Block] | None:
    """Return the blocks that the parameter ``emission`` lists; None if it is a single name.

    Every column of X has to be in exactly one block, by its name or its position. ``known`` are the
    emissions that there are.
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
        name = f" ({X.columns[column]!r})" if hasattr(X, "columns") else ""
        mend = "Add it to a block, or drop it from X" if uses[column] == 0 else "Leave it in one"
        raise ValueError(
            f"Column {column}{name} of X is in {uses[column]} blocks of emission, but every column "
            f"belongs to exactly one. {mend}."
        )
    return blocks


def _refuse_unknown(what: str, emission: object, known: Collection[str]) -> None:
    if not isinstance(emission, str) or emission not in known:
        raise ValueError(
            f"{what} {emission!r}, but emissions are {sorted(known)}."
            f"{did_you_mean(emission, known)}"
        )


def _refuse_absent(X: ArrayLike, columns: object) -> None:
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


def way_out_of_text(emission: Any) -> str:
    """Return what the error about a column of text advises, which depends on the emission."""
    return (
        NUMBERS if isinstance(emission, str) and emission != "categorical" else _CATEGORIES_OF_TEXT
    )


# Cells


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
    """
    if blocks is None:
        return EMISSIONS[emission].cells(X, n_components, declared.get(""), parameter)
    if issparse(X):
        raise TypeError(
            "A sparse X cannot be divided into blocks. Give a dense array, or emission='bernoulli' "
            "or one of counts for all columns."
        )
    parts = {}
    for block in blocks:
        part = X[:, block.columns]
        cls = EMISSIONS[block.emission]
        with _named_block(block.name):
            known = declared.get(block.name)
            parts[block.name] = cls.cells(part, n_components, known, parameter)
    return Blocks(parts)


class TablesOfColumns:
    """Mixin of estimators with a parameter ``emission`` that can be a list of blocks."""

    _levels_parameter: ClassVar[str]  # the parameter that declares numbers of categories
    _of_frames: ClassVar[bool] = False  # whether rows are the frames of Markov chains
    _summary_of_components: Callable[[Any], Any]
    _columns: list[tuple[str, str, np.ndarray]] | None
    emission: Any
    emission_init: Any
    covariance_type: str
    reg_covar: float
    blocks_: dict[str, Any]

    @classmethod
    def _conditional_attributes(cls) -> dict[str, dict[str, tuple[object, ...]]]:
        return {"emission": attributes_only_with(cls._of_frames)}

    @property
    def _kind(self) -> type[Emission] | None:
        """The emission of all columns; None for blocks, and for names that do not exist."""
        return emission_named(self.emission, self._of_frames)

    @property
    def _kinds(self) -> dict[str, type[Emission]]:
        """The emission of each block; that of all columns has no name."""
        if self._blocks is None:
            kind = self._kind
            assert kind is not None
            return {"": kind}
        return {block.name: EMISSIONS[block.emission] for block in self._blocks}

    @property
    def _blocks(self) -> list[Block] | None:
        """The blocks of columns of the training data; None if ``emission`` is a single name."""
        if self._columns is None:
            return None
        return [Block(name, emission, columns) for name, emission, columns in self._columns]

    def _find_blocks(self, X: ArrayLike) -> None:
        """Find the columns of the blocks in training data."""
        blocks = blocks_of(self.emission, X, EMISSIONS)
        # Plain tuples, because files of fitted estimators name all other classes.
        self._columns = None if blocks is None else [(*block,) for block in blocks]

    def _warn_of_categories(self, cells: Any) -> None:
        """Warn of columns of training data in which no cell has the category 0.

        Columns whose numbers of categories are declared are left out.
        """
        declared, order, kinds = self._declared(), self._order(), self._kinds
        parts = cells.parts if isinstance(cells, Blocks) else {"": cells}
        order = np.arange(cells.shape[1]) if order is None else order
        empty: list[int] = []
        start = 0
        for name, part in parts.items():
            columns = order[start : start + part.shape[1]]
            start += part.shape[1]
            if isinstance(part, Coded) and kinds[name].has_levels and name not in declared:
                empty += columns[without_zero(part)].tolist()
        warn_of_zero("category", "categories", empty, self._levels_parameter)

    def _warn_of_minus_one(self, X: Any) -> None:
        """Warn of binary columns and categories in training data whose cells go from −1 to 1.

        Answers are often coded −1, 0, 1, and the −1 of such a column would be lost as missing.
        """
        if issparse(X) or X.dtype.kind not in "if":
            return
        # Minima come first, since few tables go on to the maxima. Both pass over NaN.
        below = np.fmin.reduce(X, axis=0) == -1.0
        if not below.any():
            return
        signed = below & (np.fmax.reduce(X, axis=0) == 1.0)
        every = self._blocks or [Block("", self.emission, np.arange(X.shape[1]))]
        levels = [
            block.columns for block in every if block.emission in ("bernoulli", "categorical")
        ]
        warn_of_minus_one([c for columns in levels for c in columns.tolist() if signed[c]])

    def _order(self) -> np.ndarray | None:
        """The positions in X of the columns of all blocks; None if there are no blocks."""
        if self._blocks is None:
            return None
        return np.concatenate([block.columns for block in self._blocks])

    def _declared(self) -> dict[str, object]:
        """The declared numbers of categories, by the name of the block."""
        name, blocks = self._levels_parameter, self._blocks
        value = getattr(self, name)
        if value is None:
            return {}
        if blocks is None:
            if isinstance(value, dict):
                raise ValueError(f"{name} is a dictionary only if emission is a list.")
            return {"": _levels(value, name)} if self._kinds[""].has_levels else {}
        named = [block for block, kind in self._kinds.items() if kind.has_levels]
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
        names = {name for name, kind in self._kinds.items() if kind.has_levels}
        if not names <= set(self._declared()):
            raise ValueError(
                f"partial_fit needs {self._levels_parameter}, and so does fit with data in parts: "
                "the first batch does not tell which categories the others will have."
            )

    @staticmethod
    def _known_levels(components: Components) -> dict[str, object]:
        """The numbers of categories of fitted components, by the name of the block."""
        parts = components.parts if isinstance(components, BlockComponents) else {"": components}
        return {
            name: np.array(part.n_levels)
            for name, part in parts.items()
            if isinstance(part, CategoricalColumns)
        }

    def _components(self, X: Any) -> Components:
        """Check the priors and make the components from them; X is in the form they read."""
        kinds = self._kinds
        if self._blocks is None:
            return kinds[""].components(self, X)
        return BlockComponents(
            {name: kind.components(self, X.parts[name]) for name, kind in kinds.items()}
        )

    def _given_profile(self, components: Any) -> Profile:
        """Check the parameters of the components at the start of a fit."""
        kinds = self._kinds if self._blocks is not None else self._kinds[""]
        return given_profile(components, kinds, self.emission_init, "emission_init")

    def _attributes_of_components(
        self, components: Any, q: Natural, prior: Natural, summary: Any
    ) -> Attributes:
        """The fitted attributes of the components, by name."""
        kinds = self._kinds
        if self._blocks is None:
            return kinds[""].attributes(components, q, prior, summary)
        found = {}
        for block in self._blocks:
            own = components.own(block.name, q), components.own(block.name, prior)
            part = components.parts[block.name]
            attributes = kinds[block.name].attributes(part, *own, summary[block.name])
            found[block.name] = Bunch(columns=block.columns, **attributes)
        return {"blocks_": found}

    def _warn_of_scales(self, summary: Any) -> None:
        """Warn if ``reg_covar`` is not small beside a variance to which it is added."""
        own, kinds = self._summary_of_components(summary), self._kinds
        if self._blocks is not None:
            of_blocks = [block for block in self._blocks if kinds[block.name].regularised]
            moments = [(own[block.name], block.columns) for block in of_blocks]
        else:
            moments = [(own, np.arange(len(own.mean)))] if kinds[""].regularised else []
        spherical = self.covariance_type == "spherical"
        warn_of_regularisation(self.reg_covar, moments, spherical)

    def _draw(
        self, components: Any, labels: np.ndarray, random_state: np.random.RandomState
    ) -> np.ndarray:
        """Draw one row for each component or state, at the posterior means."""
        kinds = self._kinds
        if self._blocks is None:
            return kinds[""].draw(kinds[""].described(components, self), labels, random_state)
        parts = []
        for name, kind in kinds.items():
            own = kind.described(components.parts[name], self.blocks_[name])
            parts.append(kind.draw(own, labels, random_state))
        order = self._order()
        assert order is not None
        return np.hstack(parts)[:, np.argsort(order)]


def without_zero(part: Coded) -> np.ndarray:
    """Return which columns have observed cells, but none of the category 0."""
    found = np.zeros((2, part.shape[1]), dtype=bool)
    n_rows = max(CELLS_AT_A_TIME // max(part.shape[1], 1), 1)
    for start in range(0, len(part), n_rows):
        levels = part[start : start + n_rows].levels()
        found |= np.stack([(levels == 0).any(axis=0), (levels > 0).any(axis=0)])
    return found[1] & ~found[0]


def _levels(value: object, name: str) -> np.ndarray:
    """Check numbers of categories and return them as an array."""
    levels = np.asarray(value)
    if levels.dtype.kind not in "iu" or levels.size == 0 or (levels < 1).any():
        raise ValueError(f"{name} should have positive integers, but is {value!r}.")
    if (levels > np.iinfo(np.int32).max).any():
        raise ValueError(f"{name} should have numbers below 2 ** 31, but is {value!r}.")
    return levels
