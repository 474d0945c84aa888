"""Data in parts as a user gives them: :class:`Shards`, and collections of Dask."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from os import PathLike, fspath
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import _safe_indexing
from sklearn.utils.random import sample_without_replacement
from sklearn.utils.validation import _get_feature_names, _num_samples

from ..inference.parallel import Workers
from ..inference.parted_units import NoUnits, PartedUnits
from ..inference.parts import Errand, Here, Part, Place
from ..inference.restarts import ROWS_FOR_STARTS
from ..inference.tables import Blocks, Coded, Packing
from ..inference.units import Units


class Shards:
    """Data in parts, for data sets that do not fit in memory or that lie on a cluster.

    ``fit``, ``partial_fit``, ``score`` and predictions take it in the place of ``X``. One part
    after another is read. The result is a function of the data and of their division into parts:
    neither the number of workers nor failures of workers change a bit of it. With one part it is
    that of ``fit(X)``, but for two differences: starts are computed from at most 20,000 rows, and
    parameters of single rows (the factors of users in :class:`~sklearn_anneal.AnnealedPMF`) are
    local variables. Predictions are Shards too, and are computed when their parts are read.
    :ref:`parts` in the user guide says more.

    Parameters
    ----------
    parts : sequence
        The parts. Each is an array, a sparse matrix, a data frame or, for sequences, a list of
        them; the path of a file ``.npy`` (mapped, not read), ``.npz`` (a sparse matrix of
        ``scipy.sparse.save_npz``, or the only array of the file) or ``.parquet`` (by pandas and
        pyarrow); a function without arguments that returns one of the former; or an object of
        ``dask.delayed``. All must have the same columns and the same dtype. Functions and files are
        read at every pass, while arrays stay where they are.
    n_features : int or None, default=None
        Number of columns, to be checked. None takes that of the first part.
    dtype : dtype or None, default=None
        What parts are converted to when they are read; None leaves them as they are.
    client : distributed.Client or None, default=None
        The Dask cluster whose workers read and visit the parts. None means the current client if
        the parts are objects of Dask and there is one, and else this process.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal import AnnealedBayesianGaussianMixture, Shards
    >>> rng = np.random.RandomState(0)
    >>> parts = [np.concatenate([rng.normal(c, 1, (100, 2)) for c in (-5, 5)]) for _ in range(4)]
    >>> model = AnnealedBayesianGaussianMixture(n_components=2, random_state=0)
    >>> sorted(model.fit(Shards(parts)).means_.round().tolist())
    [[-5.0, -5.0], [5.0, 5.0]]
    """

    def __init__(
        self,
        parts: Sequence[Any],
        n_features: int | None = None,
        dtype: Any = None,
        client: Any = None,
    ):
        if isinstance(parts, str | PathLike) or len(getattr(parts, "shape", ())) > 1:
            raise TypeError(
                f"parts should be a list of parts, but is of the type {type(parts).__name__}. Put "
                "a single part into a list."
            )
        self.parts = list(parts)
        self.n_features = n_features
        self.dtype = None if dtype is None else np.dtype(dtype)
        self.client = client
        if not self.parts:
            raise ValueError("Shards needs at least one part, but parts is empty.")

    def __repr__(self) -> str:
        return f"Shards({len(self.parts)} parts)"

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[Any]:
        """Yield the parts, which are read one after another."""
        for index in range(len(self)):
            yield self.read(index)

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TypeError(
            "Shards are data in parts, which this method does not take. Call it for one part after "
            "another (for X in shards: ...), or for some rows in memory."
        )

    def read(self, index: int) -> Any:
        """Return one part.

        Parameters
        ----------
        index : int

        Returns
        -------
        X : array-like
        """
        return read(self.parts[index], self.dtype, described(index, self.parts[index]))

    def compute(self) -> list[Any]:
        """Return all parts as a list, in memory.

        Returns
        -------
        parts : list
        """
        return list(self)


def described(index: int, source: Any) -> str:
    """A part in words, for error messages."""
    if isinstance(source, str | PathLike):
        return f"part {index} ({fspath(source)!r})"
    return f"part {index}"


def is_delayed(value: Any) -> bool:
    """Whether a value is a lazy object or a future of Dask, found without importing it."""
    return type(value).__module__.partition(".")[0] in ("dask", "distributed")


def is_collection(X: Any) -> bool:
    """Whether X is an array or a data frame of Dask."""
    name = type(X).__module__
    return name.startswith(("dask.array", "dask.dataframe", "dask_expr"))


def in_parts(X: Any) -> bool:
    """Whether X is data in parts."""
    return isinstance(X, Shards) or is_collection(X)


def as_shards(X: Any, like: Shards | None = None) -> Shards:
    """Return Shards, or a collection of Dask, as Shards."""
    if isinstance(X, Shards):
        return X
    if is_collection(X):
        if getattr(X, "ndim", 1) == 2 and hasattr(X, "rechunk") and X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
        return Shards(np.ravel(X.to_delayed()).tolist())
    if like is None:
        raise TypeError(f"{type(X).__name__} is not data in parts.")
    return Shards(X)


def read(source: Any, dtype: Any, name: str) -> Any:
    """Read a part from its source; errors name the part."""
    with naming(f"{name} cannot be read"):
        X = _read(source)
    if dtype is None:
        return X
    if isinstance(X, list):
        return [np.asarray(one, dtype=dtype) for one in X]
    return X.astype(dtype) if hasattr(X, "astype") else np.asarray(X, dtype=dtype)


# The classes in which an error is raised again with the name of a part; ValueError for all others.
_KINDS = (FileNotFoundError, PermissionError, OSError, TypeError, ImportError, MemoryError)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Begin the text of an error with the name of the part that it is about."""
    try:
        yield
    except Exception as error:
        kind = next((kind for kind in _KINDS if isinstance(error, kind)), ValueError)
        raise kind(f"{name[:1].upper()}{name[1:]}: {error}") from error


def _read(source: Any) -> Any:
    if isinstance(source, str | PathLike):
        return _read_file(fspath(source))
    if is_delayed(source):
        return (
            source.compute(scheduler="synchronous")
            if hasattr(source, "compute")
            else (source.result())
        )
    return source() if callable(source) else source


def _read_file(path: str) -> Any:
    if path.endswith(".npy"):
        return np.load(path, mmap_mode="r")
    if path.endswith(".npz"):
        with np.load(path) as found:
            names = found.files
            if "format" not in names:
                if len(names) != 1:
                    raise ValueError(f"it has {len(names)} arrays, not one")
                return found[names[0]]
        return sparse.load_npz(path)
    if path.endswith((".parquet", ".pq")):
        import pandas as pd  # type: ignore[import-untyped]

        return pd.read_parquet(path)
    raise ValueError("a path should end with .npy, .npz or .parquet")


@dataclass(frozen=True)
class Source:
    """A part on the way to its data points: what it is read from, and who validates it.

    Attributes
    ----------
    index : int
    estimator : BaseAnnealed
        An estimator with the parameters of the fit, and without anything fitted.
    X, y, weights : object
        What the part, its targets and its sample weights are read from; None for none.
    dtype : dtype or None
    columns : tuple or None
        Number and names of the columns that the part should have, and what kind of data; None if
        they are not known yet.
    missing : dict or None
        Which columns of categories have missing cells in any part (:func:`missing_in`); None if
        it is not known yet.
    """

    index: int
    estimator: Any
    X: Any
    y: Any = None
    weights: Any = None
    dtype: Any = None
    columns: Any = None
    missing: Any = None

    @property
    def name(self) -> str:
        return described(self.index, self.X)

    @property
    def stays(self) -> bool:
        """Whether the data are in memory, so that they are read once."""
        return not (isinstance(self.X, str | PathLike) or callable(self.X) or is_delayed(self.X))

    @property
    def lazy(self) -> tuple[Any, Any, Any]:
        """What Dask is to compute before the part is read."""
        return tuple(v if is_delayed(v) else None for v in (self.X, self.y, self.weights))  # type: ignore[return-value]

    @property
    def inputs(self) -> tuple[Any, Any, Any]:
        """What the part is read from."""
        return self.X, self.y, self.weights

    def without_data(self) -> Source:
        """Return the source with what errors name the part by, and without data."""
        return replace(
            self, X=self.X if isinstance(self.X, str | PathLike) else None, y=None, weights=None
        )

    def computed(self, X: Any, y: Any, weights: Any) -> Source:
        """Return the source with the values of its lazy objects."""
        found = {"X": X, "y": y, "weights": weights}
        return replace(self, **{name: v for name, v in found.items() if v is not None})

    def raw(self) -> tuple[Any, Any, Any]:
        """Return the part, its targets and its weights, before any validation."""
        kinds = (self.dtype, None, None)
        of = (self.X, self.y, self.weights)
        X, y, weights = (
            None if v is None else read(v, kind, self.name)
            for v, kind in zip(of, kinds, strict=True)
        )
        return X, y, weights

    def __call__(self) -> Units:
        """Return the data points."""
        X, y, weights = self.raw()
        with naming(self.name):
            return self._units(X, y, weights)

    def _units(self, X: Any, y: Any, weights: Any) -> Units:
        if _num_samples(X) == 0:
            return NoUnits()
        estimator = copy.copy(self.estimator)
        units: Units = validated(estimator, X, y, weights, ensure_min_samples=1)[1]
        if self.columns is not None:
            _compare(columns_of(estimator, X, units), self.columns)
        return repacked(units, self.missing, estimator.n_components) if self.missing else units


def validated(
    estimator: Any, X: Any, y: Any, weights: Any, reset: bool = True, **how: Any
) -> tuple[Any, Units]:
    """Return a part, or rows of several, as the estimator validates them, and the data points."""
    data = estimator._validate_data(estimator._part(X, y), reset=reset, **how)
    if weights is not None:
        weights = estimator._weights_of_part(weights, X)
    weights = estimator._check_weights(weights, data, allow_nothing=True)
    return data, estimator._make_units(data, weights)


def columns_of(estimator: Any, X: Any, units: Any) -> tuple[Any, ...]:
    """Number and names of the columns of X, and the kind and dtype of its data points."""
    _, values = _table_of(units)
    dtype = getattr(values, "dtype", None)
    n = getattr(units, "n_columns", None) or getattr(estimator, "n_features_in_", None)
    stored = "sparse" if sparse.issparse(values) else "dense"
    if type(units).__name__.startswith("Sparse"):
        stored = "sparse"
    return n, _names_of(X), stored, None if dtype is None else dtype.name


def _names_of(X: Any) -> tuple[str, ...] | None:
    first = X[0] if isinstance(X, list | tuple) else X
    names = _get_feature_names(first)
    return None if names is None else tuple(names)


def _table_of(units: Any) -> tuple[str, Any]:
    """Return the name of the attribute with the table of data points, and the table."""
    name = next((name for name in ("X", "frames", "values") if hasattr(units, name)), "")
    return name, getattr(units, name, None)


def _compare(found: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    if found[0] != expected[0]:
        raise ValueError(f"it has {found[0]} columns, but others have {expected[0]}.")
    if found[1] != expected[1]:
        raise ValueError(_named(found[1], expected[1]))
    if found[2] != expected[2]:
        raise ValueError(
            f"its data are {found[2]}, but those of others {expected[2]}. All parts are either "
            "dense or sparse."
        )
    if found[3] != expected[3]:
        raise ValueError(
            f"its dtype is {found[3]}, but that of others {expected[3]}. Give Shards a dtype."
        )


def _named(found: Any, expected: Any) -> str:
    named = [
        "without names" if names is None else f"named {', '.join(names)}"
        for names in (found, expected)
    ]
    return f"its columns are {named[0]}, but those of others are {named[1]}."


# Columns of categories are packed into codes, in which only columns with missing cells have a
# digit for these. All parts have to be packed alike, whichever part a cell is missing in.


def missing_in(units: Any) -> dict[str, np.ndarray]:
    """Return the name of each block of categories, and which of its columns have missing cells."""
    _, table = _table_of(units)
    parts = table.parts if isinstance(table, Blocks) else {"": table}
    return {n: np.array(p.packing.missing) for n, p in parts.items() if isinstance(p, Coded)}


def repacked(units: Any, missing: dict[str, np.ndarray], n_components: int) -> Any:
    """Return data points whose columns of categories are packed for these missing cells."""

    def packed(name: str, part: Any) -> Any:
        if name not in missing or tuple(missing[name]) == part.packing.missing:
            return part
        packing = Packing.of(part.packing.n_levels, missing[name], n_components)
        return Coded(packing.pack(part.levels()), packing)

    name, table = _table_of(units)
    units = copy.copy(units)
    if isinstance(table, Blocks):
        setattr(units, name, Blocks({n: packed(n, part) for n, part in table.parts.items()}))
    else:
        setattr(units, name, packed("", table))
    return units


@dataclass(frozen=True)
class _Missing(Errand):
    """The columns of categories with missing cells, of each part."""

    def at(self, part: Part, workers: Workers) -> dict[str, np.ndarray]:
        return missing_in(part.units)

    def merge(self, a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {**a, **b, **{name: a[name] | b[name] for name in a.keys() & b.keys()}}


@dataclass(frozen=True)
class _Measure(Errand):
    """The number of rows of each part, before any validation, and its smallest and largest key."""

    estimator: Any
    reads = False

    def at(self, part: Part, workers: Workers) -> list[tuple[int, Any]]:
        X, _, _ = part.load.raw()
        n = _num_samples(X)
        with naming(part.load.name):
            keys = self.estimator._keys_of_part(X) if n else None
        return [(n, None if keys is None else (keys.min(), keys.max()))]


@dataclass(frozen=True)
class _Keys(Errand):
    """The distinct keys of some parts."""

    estimator: Any
    indices: set[int]
    reads = False

    def at(self, part: Part, workers: Workers) -> dict[int, np.ndarray]:
        if part.index not in self.indices:
            return {}
        return {part.index: np.unique(self.estimator._keys_of_part(part.load.raw()[0]))}

    def merge(self, a: dict[int, np.ndarray], b: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        return {**a, **b}


@dataclass(frozen=True)
class _Gather(Errand):
    """Some rows of each part with its index, and with their targets and weights."""

    chosen: list[np.ndarray]
    reads = False

    def at(self, part: Part, workers: Workers) -> list[tuple[int, Any]]:
        rows = self.chosen[part.index]
        if len(rows) == 0:
            return []
        given = part.load.raw()
        with naming(part.load.name):
            if len(rows) < _num_samples(given[0]):
                given = tuple(None if v is None else _safe_indexing(v, rows) for v in given)
        return [(part.index, given)]


def place_of(shards: Shards, sources: list[Source]) -> Place:
    """Return where the parts are to be visited: on a cluster, or in this process."""
    client = shards.client
    if client is None and any(any(v is not None for v in s.lazy) for s in sources):
        client = _current_client()
    if client is None:
        return Here([source.stays for source in sources])
    from ..inference.cluster import OnDask

    return OnDask(client)


def _current_client() -> Any:
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None


@contextmanager
def opened(
    estimator: Any, X: Any, y: Any, sample_weight: Any, reset: bool
) -> Iterator[tuple[Any, PartedUnits]]:
    """Read data in parts for the time of a fit.

    Yields
    ------
    X : object
        Some rows, or all if they are few, as the estimator validates them.
    units : PartedUnits
        All data points. Its ``gathered`` are those of ``X``.
    """
    place, sources = _placed(estimator, X, y, sample_weight)
    try:
        place.put(list(sources))
        pieces, all_rows = _gathered(place, sources)
        some, targets, own_weights = _together(pieces, sources, as_shards(X).n_features)
        try:
            data, units = validated(estimator, some, targets, own_weights, reset=reset)
        except Exception:
            _refuse_alone(pieces, sources)
            raise
        estimator._check_parts()
        columns = columns_of(estimator, some, units)
        missing = missing_in(units)
        sources = [replace(source, columns=columns) for source in sources]
        if missing and not all_rows:
            place.put(list(sources))
            missing = place.sum(_Missing())
            units = repacked(units, missing, estimator.n_components)
        place.put([replace(source, missing=missing) for source in sources])
        yield data, PartedUnits(place, units, columns[0])
    finally:
        place.close()


def _placed(estimator: Any, X: Any, y: Any, sample_weight: Any) -> tuple[Place, list[Source]]:
    """Return the place of parts, which are not put there yet, and where they are read from."""
    shards = as_shards(X)
    template = type(estimator)(**estimator.get_params(deep=False))
    targets: list[Any] = [None] * len(shards)
    if y is not None and estimator._reads_targets:
        targets = _beside(y, shards, "y")
    weights = sample_weight
    weights = [None] * len(shards) if weights is None else _beside(weights, shards, "sample_weight")
    of_parts = zip(shards.parts, targets, weights, strict=True)
    sources = [
        Source(i, template, *of_part, dtype=shards.dtype) for i, of_part in enumerate(of_parts)
    ]
    return place_of(shards, sources), sources


def _gathered(place: Place, sources: list[Source]) -> tuple[list[tuple[int, Any]], bool]:
    """Return rows from which starts are computed, by part, and whether these are all rows."""
    found = place.sum(_Measure(sources[0].estimator))
    sizes = np.array([size for size, _ in found])
    if not sizes.any():
        raise ValueError("All parts are empty: there is no row to learn from.")
    _refuse_keys_of_two_parts(place, sources, [ends for _, ends in found])
    # Nothing here may be as long as the data.
    n_rows = int(sizes.sum())
    if n_rows > ROWS_FOR_STARTS:
        chosen = np.sort(sample_without_replacement(n_rows, ROWS_FOR_STARTS, random_state=0))
    else:
        chosen = np.arange(n_rows)
    ends = np.cumsum(sizes)
    by_part = [c - start for c, start in zip(_split(chosen, ends), ends - sizes, strict=True)]
    return place.sum(_Gather(by_part)), len(chosen) == sizes.sum()


def _refuse_keys_of_two_parts(place: Place, sources: list[Source], ends: list[Any]) -> None:
    """Refuse users whose ratings are in two parts.

    Most divisions of ratings give every part a range of users. The users themselves are compared
    only where ranges overlap.
    """
    groups: list[list[int]] = []
    largest = None
    for first, last, i in sorted((*pair, i) for i, pair in enumerate(ends) if pair is not None):
        if largest is not None and first <= largest:
            groups[-1].append(i)
            largest = max(largest, last)
        else:
            groups.append([i])
            largest = last
    groups = [group for group in groups if len(group) > 1]
    if not groups:
        return
    keys = place.sum(_Keys(sources[0].estimator, {i for group in groups for i in group}))
    for group in groups:
        joined = np.concatenate([keys[i] for i in group])
        owners = np.repeat(group, [len(keys[i]) for i in group])
        order = np.argsort(joined, kind="stable")
        again = np.flatnonzero(np.diff(joined[order]) == 0)
        if len(again):
            i, j = sorted(owners[order[again[0] : again[0] + 2]].tolist())
            raise ValueError(
                f"User {joined[order[again[0]]]} has ratings in {sources[i].name} and in "
                f"{sources[j].name}, but all ratings of a user have to be in one part."
            )


def _together(pieces: list[tuple[int, Any]], sources: list[Source], n_features: Any) -> Any:
    """Join rows of several parts, which have to have the same columns."""
    first, (X, _, _) = pieces[0]
    width, names = _width_of(X), _names_of(X)
    if n_features is not None and width not in (None, n_features):
        raise ValueError(f"n_features={n_features}, but {sources[first].name} has {width} columns.")
    for index, (X, _, _) in pieces[1:]:
        with naming(sources[index].name):
            if _width_of(X) != width:
                raise ValueError(f"it has {_width_of(X)} columns, but others have {width}.")
            if _names_of(X) != names:
                raise ValueError(_named(_names_of(X), names))
    return tuple(_joined([rows[i] for _, rows in pieces]) for i in range(3))


def _width_of(X: Any) -> int | None:
    first = X[0] if isinstance(X, list | tuple) else X
    shape: tuple[int, ...] = getattr(first, "shape", ())
    return shape[1] if len(shape) == 2 else None


def _refuse_alone(pieces: list[tuple[int, Any]], sources: list[Source]) -> None:
    """Raise the error of the first part that is refused alone, with its name."""
    for index, rows in pieces:
        source = sources[index]
        with naming(source.name):
            X, y, weights = rows
            validated(copy.copy(source.estimator), X, y, weights, ensure_min_samples=1)


@dataclass(frozen=True)
class _Stream(Errand):
    """A call of ``partial_fit`` with a part."""

    estimator: Any
    reads = False

    def at(self, part: Part, workers: Workers) -> list[Any]:
        X, y, weights = part.load.raw()
        with naming(part.load.name):
            if _num_samples(X) > 0:
                if weights is not None:
                    weights = self.estimator._weights_of_part(weights, X)
                self.estimator.partial_fit(X, y, sample_weight=weights)
        return [self.estimator]


def stream(estimator: Any, X: Any, y: Any, sample_weight: Any) -> None:
    """Update an estimator with one part after another, each where it is."""
    place, sources = _placed(estimator, X, y, sample_weight)
    try:
        place.put(list(sources))
        for index in range(len(sources)):
            updated = place.at(index, _Stream(estimator))
            if updated is not estimator:
                vars(estimator).update(vars(updated))
    finally:
        place.close()


def _split(chosen: np.ndarray, ends: np.ndarray) -> list[np.ndarray]:
    return np.split(chosen, np.searchsorted(chosen, ends[:-1]))


def _beside(values: Any, shards: Shards, name: str) -> list[Any]:
    """Targets or weights of the parts: one source for each part."""
    if in_parts(values):
        values = as_shards(values).parts
    if not isinstance(values, list | tuple) or len(values) != len(shards):
        raise ValueError(
            f"{name} should have one entry for each of the {len(shards)} parts: a list of arrays, "
            "or Shards, or a collection of Dask with the same division."
        )
    for i, value in enumerate(values):
        if value is None:
            raise ValueError(f"{name} has no entry for part {i}, but one is needed for each part.")
    return list(values)


def _joined(values: list[Any]) -> Any:
    """Join rows of several parts."""
    if len(values) == 1 or values[0] is None:
        return values[0]
    if isinstance(values[0], list):
        return [one for part in values for one in part]
    if len({np.shape(value)[1:] for value in values}) > 1:
        # The parts themselves will say which of them it is.
        return values[0]
    if hasattr(values[0], "iloc"):
        import pandas as pd

        return pd.concat(values)
    if any(map(sparse.issparse, values)):
        return sparse.vstack(values, format="csr")
    return np.concatenate([np.asarray(value) for value in values])


# Predictions


@dataclass(frozen=True)
class _Prediction:
    """The prediction of one part: a function that a new collection has in the place of a part."""

    estimator: Any
    method: str
    source: Any
    dtype: Any
    name: str
    how: dict[str, Any]

    def __call__(self) -> Any:
        X = read(self.source, self.dtype, self.name)
        with naming(self.name):
            return _prediction(getattr(self.estimator, self.method), X, self.how)


def _prediction(method: Callable[..., Any], X: Any, how: dict[str, Any]) -> Any:
    """Return a prediction, which has no rows for an array without rows."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) == 2 and shape[0] == 0 and not hasattr(X, "iloc"):
        row = np.zeros((1, shape[1]), X.dtype)
        found = method(sparse.csr_matrix(row) if sparse.issparse(X) else row, **how)
        return tuple(one[:0] for one in found) if isinstance(found, tuple) else found[:0]
    return method(X, **how)


def predicted(estimator: Any, method: str, X: Any, how: dict[str, Any]) -> Any:
    """Return the predictions of data in parts, lazily: Shards of Shards, Dask of Dask."""
    if isinstance(X, Shards):
        return Shards(
            [
                _Prediction(estimator, method, source, X.dtype, described(i, source), how)
                for i, source in enumerate(X.parts)
            ],
            client=X.client,
        )
    import dask
    import dask.array as da

    call = dask.delayed(_of_block, pure=True)
    sketch = _of_block(estimator, method, _sketch(X), how)
    model = dask.delayed(estimator)
    blocks = []
    for block, length in zip(as_shards(X).parts, _lengths(X), strict=True):
        shape = (length, *sketch.shape[1:])
        blocks.append(da.from_delayed(call(model, method, block, how), shape, sketch.dtype))
    return da.concatenate(blocks, axis=0, allow_unknown_chunksizes=True)


def _of_block(estimator: Any, method: str, block: Any, how: dict[str, Any]) -> Any:
    found = getattr(estimator, method)(block, **how)
    if isinstance(found, tuple):
        raise TypeError(
            f"{method} returns several arrays here, but a collection of Dask is one array. Give "
            "Shards of its blocks, Shards(X.to_delayed().ravel()), whose parts can be tuples."
        )
    return np.asarray(found)


def _sketch(X: Any) -> Any:
    """One row that looks like the rows of a collection of Dask."""
    meta = X._meta
    if hasattr(meta, "iloc"):
        columns = {name: np.zeros(1, kind) for name, kind in meta.dtypes.items()}
        return type(meta)(columns)
    row = np.zeros((1, X.shape[1]), X.dtype)
    return sparse.csr_matrix(row) if sparse.issparse(meta) else row


def _lengths(X: Any) -> tuple[float, ...]:
    return tuple(X.chunks[0]) if hasattr(X, "chunks") else (np.nan,) * X.npartitions


class NothingToScore(ValueError):
    """The error of data in which there is nothing to predict; other parts may have something."""


def score_of(estimator: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """Return the score of data in parts: the mean of those of the parts, by their weights."""
    place, sources = _placed(estimator, X, y, sample_weight)
    try:
        place.put(list(sources))
        total, weight = place.sum(_Score(estimator))
    finally:
        place.close()
    if weight == 0:
        raise ValueError("The parts have nothing of positive weight to score.")
    return float(total / weight)


@dataclass(frozen=True)
class _Score(Errand):
    estimator: Any
    reads = False

    def at(self, part: Part, workers: Workers) -> np.ndarray:
        X, y, weights = part.load.raw()
        with naming(part.load.name):
            nothing = weights is not None and not np.any(weights)
            if _num_samples(X) == 0 or (nothing and len(weights) == _num_samples(X)):
                return np.zeros(2)
            try:
                mean, weight = self.estimator._scored(X, y, weights)
            except NothingToScore:
                return np.zeros(2)
        return np.array([mean * weight, weight])


def by_parts(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a prediction so that it also takes data in parts, and is then lazy."""

    @wraps(method)
    def call(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        if in_parts(X):
            if args:
                raise TypeError(f"With data in parts, {method.__name__} takes keywords after X.")
            self._context()
            return predicted(self, method.__name__, X, kwargs)
        return method(self, X, *args, **kwargs)

    return call
