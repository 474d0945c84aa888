"""Data files that are not shipped: finding them, and messages about missing ones.

The files are looked for in the directory that the environment variable ``SKLEARN_ANNEAL_DATA``
names, or in ``../shared/data`` relative to the repository if the variable is not set. They are
archives of arrays as ``numpy.savez`` writes them. The docstrings of ``suite/data.py`` and of the
``data.py`` of a model list the arrays that their files must contain.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np

from . import ROOT

C, T = TypeVar("C"), TypeVar("T")
VARIABLE = "SKLEARN_ANNEAL_DATA"
_DEFAULT = ROOT.parent / "shared" / "data"


class DataNotFoundError(FileNotFoundError):
    """A data file is not in the directory where it is looked for."""


def directory() -> Path:
    """The directory where the data files are looked for."""
    return Path(os.environ.get(VARIABLE, _DEFAULT))


def load(file: str) -> dict[str, np.ndarray]:
    """All arrays of a data file.

    Raises
    ------
    DataNotFoundError
        If the file is missing.
    """
    path = directory() / file
    if not path.is_file():
        raise DataNotFoundError(
            f"The data file {file} was not found in {directory()}. Put it there, or set the "
            f"environment variable {VARIABLE} to the directory that holds it; suite/data.py or the "
            "data.py of a model in `benchmarks/` says which arrays it has to contain."
        )
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def available(*files: str) -> bool:
    """Whether all the named data files are there."""
    return all((directory() / file).is_file() for file in files)


def present(names: Iterable[str], file_of: Callable[[str], str | None]) -> list[str]:
    """The data sets whose files are there; a message is printed for each missing file.

    Parameters
    ----------
    names : iterable of str
    file_of : callable
        Returns the file of a data set, or None for one that needs no file.
    """
    there, missing = [], set()
    for name in names:
        file = file_of(name)
        if file is None or available(file):
            there.append(name)
        elif file not in missing:
            missing.add(file)
            left_out(f"{file} is not in {directory()}.")
    return there


def read_each(cases: Iterable[C], read: Callable[[C], T]) -> Iterator[tuple[C, T]]:
    """Yield each case with what is read for it; a message is printed where its file is missing."""
    for case in cases:
        try:
            found = read(case)
        except DataNotFoundError as error:
            left_out(error)
        else:
            yield case, found


def left_out(why: object) -> None:
    """Print on the standard error which part a run leaves out, and why."""
    print(f"Left out: {why}", file=sys.stderr)
