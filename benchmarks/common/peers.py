"""Other libraries that ours is compared with, if they are installed.

A module that compares with a library imports it under ``try``, and keeps None in its place if it is
not installed. The functions here take these values by the name of the distribution.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from .data import left_out


def is_there(name: str, found: Any) -> bool:
    """Whether a library is installed; if it is not, a message says how to install it."""
    if found is None:
        left_out(f"{name}, which is not installed (pip install {name}).")
    return found is not None


def versions(peers: Mapping[str, Any]) -> str:
    """The versions of the installed libraries and the names of the missing ones, in words."""
    return ", ".join(
        f"{name} left out" if found is None else f"{name} {version(name)}"
        for name, found in peers.items()
    )
