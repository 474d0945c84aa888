"""Warnings that point at the code of users."""

from __future__ import annotations

import sys
import warnings

# The modules through which a call goes on its way from the user to a warning.
_ON_THE_WAY = (__name__.partition(".")[0], "sklearn", "joblib", "contextlib", "pickle")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, with the line of the user's code from which the call came."""
    frame, level = sys._getframe(0), 1
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _ON_THE_WAY:
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
