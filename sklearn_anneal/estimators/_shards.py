"""Data in parts as a user gives them: :class:`Shards`, and collections of Dask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy import sparse
from sklearn.utils.validation import _num_samples

from ..parallel.workers import owned


class Shards:
    """Data in parts, for data sets that do not fit in memory or that lie on a cluster.

    ``fit``, ``partial_fit``, ``score`` and predictions take it in the place of ``X``. One part
    after another is read. The result is a function of the data and of their division into parts:
    neither the number of workers nor failures of workers change a bit of it. With one part it is
    that of ``fit(X)``, with two differences: starts are computed from at most 20,000 rows, and
    parameters of single rows (the factors of users in :class:`~sklearn_anneal.AnnealedPMF`) are
    local variables. Predictions are Shards too, and are computed when their parts are read.
    :ref:`parts` in the user guide says more.

    Parameters
    ----------
    parts : sequence
        The parts. Each is an array, a sparse matrix, a data frame or, for sequences, a list of
        them; the path of a local file ``.npy`` (mapped, not read), ``.npz`` (a sparse matrix of
        ``scipy.sparse.save_npz``, or the only array of the file) or ``.parquet`` (by pandas and
        pyarrow); a function without arguments that returns one of the former; or an object of
        ``dask.delayed``. All must have the same columns and the same dtype. Functions and files are
        read at every pass, while arrays stay where they are. Every reading has to give the same
        rows; a part with another number of rows than at the first reading is refused.
    n_features : int or None, default=None
        Number of columns, to be checked. None takes that of the first part.
    dtype : dtype or None, default=None
        The type to which parts are converted when they are read; None leaves them as they are.
    client : distributed.Client or None, default=None
        The Dask cluster whose workers read the parts and work on them. None means the current
        client if the parts are objects of Dask and there is one, and else this process.

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
        parts: Sequence,
        n_features: int | None = None,
        dtype: DTypeLike | None = None,
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
        self._first: dict[int, FirstReading] = {}
        if not self.parts:
            raise ValueError("Shards needs at least one part, but parts is empty.")

    def __repr__(self) -> str:
        return f"Shards({len(self.parts)} parts)"

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator:
        """Yield the parts, which are read one after another."""
        for index in range(len(self)):
            yield self.read(index)

    def __array__(self, *args: object, **kwargs: object) -> np.ndarray:
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
        index = range(len(self))[index]
        name = described(index, self.parts[index])
        X = read(self.parts[index], self.dtype, name)
        self._first_reading(index).compare(X, name)
        return X

    def compute(self) -> list:
        """Return all parts as a list, in memory.

        Returns
        -------
        parts : list
        """
        return list(self)

    def _first_reading(self, index: int) -> FirstReading:
        return self._first.setdefault(index, FirstReading())


class FirstReading:
    """The size of a part when it was first read, with which later readings are compared.

    A function that gives its rows once, such as one that reads from a cursor, would otherwise be
    fitted to all rows in the first pass and to none in the others.
    """

    # The number of rows; of a list, those of sequences and of all their frames.
    size: tuple[int, ...] | None = None

    def compare(self, X: Any, name: str) -> None:
        """Refuse a part whose size is not that of its first reading."""
        with naming(name):
            size = size_of(X)
            if self.size is None:
                self.size = size
            elif size != self.size:
                raise ValueError(
                    f"it had {_in_words(self.size)} when it was first read, but has "
                    f"{_in_words(size)} now. A part is read several times, and must have the same "
                    "rows each time: a function has to begin anew at every call. If the data have "
                    "changed on purpose, make new Shards."
                )


def size_of(X: ArrayLike) -> tuple[int, ...]:
    """Return the number of rows of a part, or those of sequences and of all their frames."""
    if not isinstance(X, list | tuple):
        return (_num_samples(X),)
    return len(X), sum(_num_samples(one) for one in X if np.ndim(one))


def _in_words(size: tuple[int, ...]) -> str:
    if len(size) == 1:
        return f"{size[0]} rows"
    return f"{size[0]} sequences with {size[1]} frames"


def described(index: int, source: object) -> str:
    """A part in words, for error messages."""
    if isinstance(source, str | PathLike):
        return f"part {index} ({fspath(source)!r})"
    return f"part {index}"


def is_delayed(value: object) -> bool:
    """Whether a value is a lazy object or a future of Dask, found without importing it."""
    return type(value).__module__.partition(".")[0] in ("dask", "distributed")


def is_collection(X: ArrayLike) -> bool:
    """Whether X is an array or a data frame of Dask."""
    name = type(X).__module__
    return name.startswith(("dask.array", "dask.dataframe", "dask_expr"))


def in_parts(X: ArrayLike) -> bool:
    """Whether X is data in parts."""
    return isinstance(X, Shards) or is_collection(X)


def as_shards(X: Any) -> Shards:
    """Return Shards, or a collection of Dask, as Shards."""
    if isinstance(X, Shards):
        return X
    if getattr(X, "ndim", 1) == 2 and hasattr(X, "rechunk") and X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    return Shards(np.ravel(X.to_delayed()).tolist())


def read(source: Any, dtype: DTypeLike | None, name: str) -> Any:
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
    if is_delayed(source):
        lazy = hasattr(source, "compute")
        source = source.compute(scheduler="synchronous") if lazy else owned(source.result())
    elif callable(source):
        source = source()
    return _read_file(fspath(source)) if isinstance(source, str | PathLike) else source


def _read_file(path: str) -> Any:
    if "://" in path:
        raise ValueError(
            "it is an address, but only local files are read by their paths. Give a function that "
            f"opens it, such as lambda: pandas.read_parquet({path!r})"
        )
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
        import pandas as pd

        return pd.read_parquet(path)
    raise ValueError("a path should end with .npy, .npz or .parquet")
