"""The place in the code of users at which a warning points."""

from __future__ import annotations

import sys

# The modules through which a call goes on its way from the user to a warning.
_ON_THE_WAY = (__name__.partition(".")[0], "sklearn", "joblib", "contextlib", "pickle")


def outer_level() -> int:
    """Return the ``stacklevel`` with which a warning of the caller points at the user's code."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _ON_THE_WAY:
            break
        frame, level = frame.f_back, level + 1
    return level
