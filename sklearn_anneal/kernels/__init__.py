"""The loops that take most of the time, compiled with numba: functions on arrays, without state.

The modules of this package import numba. They are therefore imported only where a kernel
is needed, never at the import of :mod:`sklearn_anneal`.
"""

from __future__ import annotations

import os
import threading
from importlib import import_module
from types import ModuleType

LOADING = threading.RLock()
"""Held while kernels are imported or compiled, and while other modules are imported late.

A fork waits for it. A child of the process would otherwise inherit modules that are half imported,
or a compiler in the middle of its work, with locks that nobody is left to release.
"""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOADING.acquire, after_in_parent=LOADING.release, after_in_child=LOADING.release
    )


def load(name: str) -> ModuleType:
    """Import one module of kernels, and numba if this is the first."""
    with LOADING:
        return import_module(f"{__name__}.{name}")
