"""Checkpoints: the progress of a fit on disk, from which the fit can be resumed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import joblib

from .units import Units

_FORMAT = 4


def fingerprint(*values: Any) -> str:
    """Return a hash of arrays and other values, which is equal for equal values."""
    return str(joblib.hash(values))


def fingerprint_of(units: Units) -> str:
    """Return a hash of the data points, computed in one pass over them."""
    return fingerprint(*units.identity())


class Checkpoint:
    """A folder with the state of a fit: one file for all restarts, one for each, one for reheats.

    Every file is first written under another name and then renamed. A program that is interrupted
    therefore leaves either the old file or the new one, and never an incomplete file.

    Parameters
    ----------
    folder : path-like
        The folder, which is created when a fit begins.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)

    def open(self, identity: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
        """Begin a fit, or resume the one whose state is in the folder.

        Parameters
        ----------
        identity : dict
            Values that must be the same for a fit to be resumed, by their descriptions, which
            error messages quote.
        shared : dict
            The state with which all restarts begin. It is stored if a fit begins.

        Returns
        -------
        shared : dict
            The given state if a fit begins, and the stored one if a fit is resumed.

        Raises
        ------
        ValueError
            If the folder holds the state of a fit that differs in ``identity``, or a file that
            cannot be read.
        """
        identity = {"format of the checkpoint": _FORMAT, **identity}
        path = self.folder / "fit.joblib"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            _write(path, {"identity": identity, "shared": shared})
            return shared
        stored = _read(path)
        for what, value in identity.items():
            before = stored["identity"].get(what)
            if before != value:
                values = "" if what == "data" else f" ({before!r} then, {value!r} now)"
                raise ValueError(
                    f"The fit cannot be resumed from the checkpoint in {str(self.folder)!r}, "
                    f"because that belongs to a fit that differs in the {what}{values}. Restore "
                    "what has changed, or give checkpoint another folder."
                )
        return stored["shared"]

    def load(self, name: str) -> Any:
        """Return the stored state of a part of the fit; None if nothing has been stored yet."""
        path = self._path(name)
        return _read(path) if path.exists() else None

    def save(self, name: str, state: Any) -> None:
        """Store the state of a part of the fit."""
        _write(self._path(name), state)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.joblib"


def _read(path: Path) -> Any:
    try:
        return joblib.load(path)
    except Exception as error:
        raise ValueError(
            f"The checkpoint {str(path)!r} cannot be read ({error}). It is damaged, or was written "
            "with another version of this package or of one of its dependencies; give checkpoint "
            "another folder."
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
