"""Checkpoints: the progress of a fit on disk, from which the fit can be resumed."""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import joblib

from ..data.fingerprints import fingerprint

_FORMAT = 5
_FORMAT_NAME = "format of the checkpoint"


class Checkpoint:
    """A folder with the state of a fit: one file for all restarts, one for each, one for moves.

    Every file is first written under another name and then renamed. A program that is interrupted
    therefore leaves either the old file or the new one, and never an incomplete file.

    Parameters
    ----------
    folder : path-like
        The folder, which is created when a fit begins.

    Raises
    ------
    TypeError
        If ``folder`` is no path.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        try:
            self.folder = Path(folder)
        except TypeError as error:
            raise TypeError(
                f"checkpoint should be the path of a folder, but {folder!r} was given."
            ) from error
        # A hash of the fit to which all files of the folder belong.
        self._fit = ""

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
            cannot be read, or if it is a file itself.
        """
        identity = {_FORMAT_NAME: _FORMAT, **identity}
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(
                f"checkpoint should be a folder, but {str(self.folder)!r} is a file. Give the path "
                "of a folder, or of one that does not exist yet."
            )
        path = self.folder / "fit.joblib"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._fit = fingerprint(identity, shared)
            _write(path, {"identity": identity, "shared": shared})
            return shared
        stored = _read(path)
        known = stored.get("identity") if isinstance(stored, dict) else None
        if not isinstance(known, dict) or _FORMAT_NAME not in known or "shared" not in stored:
            raise ValueError(
                f"The file {str(path)!r} is no checkpoint of sklearn_anneal, but holds a value of "
                f"class {type(stored).__name__}. Remove it, or give checkpoint another folder."
            )
        for what, value in identity.items():
            before = known.get(what)
            # A file of another origin may hold an array, whose != has no truth value.
            if type(before) is not type(value) or before != value:
                values = "" if what == "data" else f" ({before!r} then, {value!r} now)"
                raise ValueError(
                    f"The fit cannot be resumed from the checkpoint in {str(self.folder)!r}, "
                    f"because that belongs to a fit that differs in the {what}{values}. Restore "
                    "what has changed, or give checkpoint another folder."
                )
        shared = stored["shared"]
        self._fit = fingerprint(identity, shared)
        return shared

    def load(self, name: str) -> Any:
        """Return the stored state of a part of the fit; None if nothing has been stored yet.

        Raises
        ------
        ValueError
            If the file cannot be read, or belongs to another fit or to another part.
        """
        path = self._path(name)
        if not path.exists():
            return None
        stored = _read(path)
        about = self._of(name)
        if not isinstance(stored, dict) or not all(
            isinstance(stored.get(k), str) and stored[k] == v for k, v in about.items()
        ):
            raise ValueError(
                f"The file {str(path)!r} does not belong to the fit whose checkpoint is in this "
                "folder. Remove the file, so that this part of the fit begins anew, or give "
                "checkpoint another folder."
            )
        return stored["state"]

    def save(self, name: str, state: object) -> None:
        """Store the state of a part of the fit."""
        _write(self._path(name), {**self._of(name), "state": state})

    def _of(self, name: str) -> dict[str, str]:
        """Return the description in a file of a part of the fit."""
        return {"fit": self._fit, "part": name}

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.joblib"


def _read(path: Path) -> Any:
    try:
        return joblib.load(path)
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise ValueError(
            f"The checkpoint {str(path)!r} cannot be read ({reason}). It is damaged, is no "
            "checkpoint, or was written with another version of this package or of one of its "
            "dependencies. Remove it, or give checkpoint another folder."
        ) from error


def _write(path: Path, value: object) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            # joblib would write by Python code, which takes longer than a pass over few data
            # points. It reads what pickle writes.
            pickle.dump(value, file, protocol=5)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
