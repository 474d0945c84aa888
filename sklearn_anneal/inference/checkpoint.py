"""Checkpoints: the progress of a fit on disk, from which it can go on."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from .engine import Progress
from .units import Units

_FORMAT = 1


def fingerprint(*values: Any) -> str:
    """A hash of arrays and other values, which tells whether data are the same."""
    return str(joblib.hash(values))


def fingerprint_of(units: Units) -> str:
    """A hash of the data points, from one pass over them."""
    arrays = {
        name: value
        for name, value in vars(units).items()
        if isinstance(value, np.ndarray) or value is None
    }
    return fingerprint(type(units).__name__, sorted(arrays.items()))


class Checkpoint:
    """A folder with the state of a fit: one file for all restarts, and one for each of them.

    Every file is written under another name first and then renamed, so that an interrupted
    program leaves the state before or the state after, and never a part of one.

    Parameters
    ----------
    folder : path-like
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)

    def open(self, identity: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
        """Begin a fit, or find the one that was begun.

        Parameters
        ----------
        identity : dict
            What must be the same for a fit to go on: a description → its value.
        shared : dict
            What all restarts begin with; it is kept if the fit begins here.

        Returns
        -------
        shared : dict
            That of the fit which was begun, or the given one.

        Raises
        ------
        ValueError
            If the folder holds the state of a fit that differs in ``identity``.
        """
        identity = {"format of the checkpoint": _FORMAT, **identity}
        path = self.folder / "fit.joblib"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            _write(path, {"identity": identity, "shared": shared})
            return shared
        kept = _read(path)
        for what, value in identity.items():
            before = kept["identity"].get(what)
            if before != value:
                said = "" if what == "data" else f" ({before!r} then, {value!r} now)"
                raise ValueError(
                    f"The checkpoint in {str(self.folder)!r} cannot be gone on with, because it "
                    f"is of a fit that differs in the {what}{said}. Restore what has changed, or "
                    "give checkpoint another folder."
                )
        return kept["shared"]

    def load(self, index: int) -> Progress | None:
        """The progress of a restart; None if it has not made any."""
        path = self._path(index)
        return _read(path) if path.exists() else None

    def save(self, index: int, progress: Progress) -> None:
        """Keep the progress of a restart."""
        _write(self._path(index), progress)

    def _path(self, index: int) -> Path:
        return self.folder / f"restart-{index}.joblib"


def _read(path: Path) -> Any:
    try:
        return joblib.load(path)
    except Exception as error:
        raise ValueError(
            f"The checkpoint {str(path)!r} cannot be read ({error}). It is damaged, or of another "
            "version of this package or of those that it uses; give checkpoint another folder."
        ) from error


def _write(path: Path, value: Any) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            joblib.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
