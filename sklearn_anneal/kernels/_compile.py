"""The one decorator through which every kernel is compiled."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numba

_warned = False


def kernel(signatures: Any = None, *, inline: bool = False) -> Callable:
    """Compile a function to machine code that runs without the interpreter's lock.

    Code is cached on disk. Where no cache directory is writable the kernel is compiled anew
    in every process, and one warning says so.

    Parameters
    ----------
    signatures : list of str or None, default=None
        The explicit numba signatures, at most two (float64 and float32 data). ``None``
        compiles for the types of the first call: only for helpers that other kernels call.
    inline : bool, default=False
        Whether the function is a helper that is merged into the kernels that call it.

    Returns
    -------
    decorator : callable
    """
    options = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}

    def decorate(function: Callable) -> Callable:
        arguments = () if signatures is None else (signatures,)
        if inline:
            return numba.njit(*arguments, **options)(function)
        try:
            return numba.njit(*arguments, cache=True, **options)(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            _warn_once(error)
            return numba.njit(*arguments, **options)(function)

    return decorate


def _warn_once(error: Exception) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"Compiled kernels cannot be kept on disk ({error}); every new process compiles them "
            "again. Set the environment variable NUMBA_CACHE_DIR to a writable directory.",
            RuntimeWarning,
            stacklevel=4,
        )
