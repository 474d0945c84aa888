"""The loops that take most of the time, compiled with numba: functions on arrays, without state.

The modules of this package import numba. They are therefore imported only where a kernel
is needed, never at the import of :mod:`sklearn_anneal`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from time import perf_counter
from types import ModuleType

# Reading machine code from disk takes less time than this, and compiling most kernels more.
_LONGEST_READ = 0.8

MOST_PARTS = 255
"""The largest number of parts in which threads share the work of a kernel."""

LOADING = threading.RLock()
"""Held while kernels are imported or compiled, and while other modules are imported late.

A fork waits for it. A child of the process would otherwise inherit modules that are half imported,
or a compiler in the middle of its work, with locks that nobody is left to release.
"""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOADING.acquire, after_in_parent=LOADING.release, after_in_child=LOADING.release
    )


class Compilations:
    """How long this process has compiled kernels, and who is notified when it begins to.

    Attributes
    ----------
    seconds : float
        The time that was spent on kernels which were not on disk.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._listeners: list[Callable[[str], None]] = []

    @contextmanager
    def announced(self, say: Callable[[str], None]) -> Iterator[None]:
        """Call ``say`` with one sentence if a kernel is compiled in the context."""
        self._listeners.append(say)
        try:
            yield
        finally:
            if say in self._listeners:
                self._listeners.remove(say)

    @contextmanager
    def watched(self, is_new: Callable[[], bool]) -> Iterator[None]:
        """Measure a compilation; ``is_new()`` says afterwards that the kernel was not on disk."""
        start, timer = perf_counter(), None
        if self._listeners:
            timer = threading.Timer(_LONGEST_READ, self._announce)
            timer.daemon = True
            timer.start()
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
        if is_new():
            self.seconds += perf_counter() - start

    def _announce(self) -> None:
        while self._listeners:
            self._listeners.pop()(
                "compiling kernels, which are kept on disk for later fits and processes"
            )


COMPILATIONS = Compilations()
"""The compilations of this process, which ``verbose`` reports."""


def load(name: str) -> ModuleType:
    """Import one module of kernels, and numba if this is the first."""
    with LOADING:
        return import_module(f"{__name__}.{name}")
