"""Compilation of kernels, just before the first call and for the dtype of the call's data."""

from __future__ import annotations

import gc
import hashlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba import types

from .._compat import is_tried_numba
from .._stack import warn
from . import COMPILATIONS, LOADING
from .simd.emitter import CHECKED

# Reassociation is not allowed: sums keep their order, whatever the compiler would prefer.
_OPTIONS = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}
_KERNEL: dict[str, Any] = dict(_OPTIONS)
_INLINED: dict[str, Any] = {"forceinline": True, **_OPTIONS}
# Our compilers change what numba does inside, where its versions differ. Versions that have not
# been tried with them compile kernels in their own way, which takes longer.
if is_tried_numba(numba):
    from ._compiler import InlinedCompiler, KernelCompiler

    _KERNEL |= {"pipeline_class": KernelCompiler, "no_cfunc_wrapper": True}
    _INLINED |= {"pipeline_class": InlinedCompiler, "no_cfunc_wrapper": True}
    _INLINED["no_cpython_wrapper"] = True

_ARGUMENTS = {
    "index": types.Array(types.int32, 1, "C", readonly=True),
    "pointer": types.Array(types.int64, 1, "C", readonly=True),
    "words": types.Array(types.uint32, 1, "C", readonly=True),
    "vector": types.Array(types.float64, 1, "C", readonly=True),
    "singles": types.Array(types.float32, 2, "C", readonly=True),
    "matrix": types.Array(types.float64, 2, "C", readonly=True),
    "out1": types.float64[::1],
    "out2": types.float64[:, ::1],
    "out_int": types.int64[::1],
    "out_index": types.int32[::1],
    "board": types.int64[::1],
    "int": types.int64,
    "float": types.float64,
}
_DTYPES = {
    "float64": types.float64,
    "float32": types.float32,
    "uint8": types.uint8,
    "uint16": types.uint16,
    "uint32": types.uint32,
}
FLOATS = ("float64", "float32")
CODES = ("uint8", "uint16", "uint32")

_NO_BOARD = np.empty(0, np.int64)
_warned = False


@cache
def shared_code(folder: Path) -> str:
    """Return a digest of the modules that kernels share.

    Their names begin with an underscore, or they are in the package ``simd``. The digest says too
    whether places are checked.
    """
    found = hashlib.blake2b(digest_size=4)
    for path in sorted([*folder.glob("_*.py"), *folder.glob("simd/*.py")]):
        found.update(path.read_bytes())
    return found.hexdigest() + "_checked" * CHECKED


class Kernel:
    """A function on arrays as machine code that runs without the interpreter's lock.

    It is compiled for each dtype of data when it is first needed, and the machine code is kept on
    disk. If keeping or reading it fails, because the disk is full, no cache
    directory is writable or a file there is damaged, every process compiles for itself, and one
    warning says so. Inputs are C-contiguous and may be read-only.

    Parameters
    ----------
    function : callable
    arguments : str
        The kinds of the arguments, separated by spaces. The following arrays have the dtype of the
        data: ``rows`` and ``values`` are read and have 2 dimensions and 1; ``out_rows`` and
        ``out_values`` are written and have 2 and 1. The first argument must be one of these. The
        following are float64: ``matrix`` (2 dimensions) and ``vector`` (1) are read, ``out2`` and
        ``out1`` are written. ``singles`` (float32) has 2 dimensions and is read. ``index`` (int32),
        ``pointer`` (int64) and ``words`` (uint32) have one dimension and are read; ``out_int``
        (int64) and ``out_index`` (int32) have one and are written. ``int`` and ``float`` are
        numbers, and ``board`` is that of :mod:`_team`.
    dtypes : tuple of str
        The dtypes of data that the kernel can be compiled for.
    """

    def __init__(self, function: Callable, arguments: str, dtypes: tuple[str, ...]):
        self._function = function
        self.dtypes = dtypes
        self._arguments = arguments.split()
        self._variants: dict[np.dtype, Callable] = {}
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        # numba compiles a function anew if its own file has changed. What kernels share is compiled
        # into them, and threads that share work must agree on it, so that it is in the name too.
        suffix = f"_{shared_code(Path(__file__).parent)}"
        function.__qualname__ = function.__qualname__.removesuffix(suffix) + suffix

    def __call__(self, x: np.ndarray, *arguments: object) -> None:
        """Run the kernel on data ``x``, of one of the kernel's dtypes."""
        variant = self._variants.get(x.dtype) or self.compile(x.dtype.name)
        variant(x, *arguments)

    def compile(self, dtype: str) -> Callable:
        """Compile for data of a dtype, or load the machine code from disk.

        Raises
        ------
        TypeError
            If the kernel cannot be compiled for data of this dtype.
        """
        if dtype not in self.dtypes:
            known = " or ".join(self.dtypes)
            raise TypeError(f"{self.__name__} takes {known} data, not {dtype}.")
        element = _DTYPES[dtype]
        kinds = {
            "rows": types.Array(element, 2, "C", readonly=True),
            "values": types.Array(element, 1, "C", readonly=True),
            "out_rows": element[:, ::1],
            "out_values": element[::1],
            **_ARGUMENTS,
        }
        signature = numba.void(*(kinds[kind] for kind in self._arguments))
        with LOADING, _without_collection():
            self._variants[np.dtype(dtype)] = variant = _cached(self._function, signature)
        return variant


class SharedKernel(Kernel):
    """A kernel whose work several threads can share (:func:`shared_kernel`)."""

    def part(self, arguments: tuple, first: int, last: int) -> None:
        """Do the parts ``first``, …, ``last`` − 1 of the work in this thread."""
        self(*arguments, first, last, 1, _NO_BOARD)


def kernel(arguments: str, dtypes: tuple[str, ...] = FLOATS) -> Callable[[Callable], Kernel]:
    """Decorate a function to make it a :class:`Kernel`."""
    return lambda function: Kernel(function, arguments, dtypes)


def shared_kernel(
    arguments: str, dtypes: tuple[str, ...] = FLOATS
) -> Callable[[Callable], SharedKernel]:
    """Decorate a function to make it a kernel whose work several threads can share.

    The last two arguments of the function are the numbers ``first`` and ``last``, which are not
    among the kinds of ``arguments``: the function does the parts ``first``, …, ``last`` − 1 of the
    work. The kernel has two arguments more: the number of pieces into which the parts are cut, and
    the board on which threads find them (:mod:`_team`).
    """

    def decorated(function: Callable) -> SharedKernel:
        from ._team import share

        *given, _, _ = names = list(inspect.signature(function).parameters)
        name, code = function.__name__, function.__code__
        # Machine code is kept on disk only for functions without a closure.
        scope = {"__name__": function.__module__, "share": share, "body": helper(function)}
        source = (
            f"def {name}({', '.join(names)}, n_parts, board):\n"
            f"    share(body, ({', '.join(given)},), first, last, n_parts, board)\n"
        )
        exec(compile(source, code.co_filename, "exec"), scope)
        shared: Any = scope[name]
        shared.__code__ = shared.__code__.replace(co_firstlineno=code.co_firstlineno)
        shared.__doc__ = function.__doc__
        return SharedKernel(shared, f"{arguments} int int int board", dtypes)

    return decorated


def with_names(function: Callable, suffix: str, **names: object) -> Callable:
    """Return a copy of a function in which some global names have other, constant values.

    Code that the values rule out is not compiled.
    """
    copy = FunctionType(function.__code__, function.__globals__ | names)
    copy.__name__ = copy.__qualname__ = f"{function.__name__}_{suffix}"
    copy.__doc__ = function.__doc__
    return copy


def copied(function: Callable) -> Callable:
    """Decorate a function whose statements are copied to where kernels call it.

    It is not compiled by itself, which takes long if it calls a large function.
    """
    return numba.njit(inline="always", **_OPTIONS)(function)


def helper(function: Callable) -> Callable:
    """Decorate a function so that kernels can call it; it is compiled into them."""
    # The function is inlined, because a call would keep the compiler from turning the loop around
    # it into vector instructions.
    return numba.njit(**_INLINED)(function)


def borrower(function: Callable) -> Callable:
    """Decorate a :func:`helper` that only borrows arrays: it neither makes nor returns any.

    References to arrays are not counted in it, which takes longer than a short function itself.
    """
    return numba.njit(_nrt=False, **_INLINED)(function)


def called(function: Callable) -> Callable:
    """Decorate a function that a kernel calls in several places; its code is there once.

    Like a :func:`helper`, it is only a part of kernels. It should do much at each call.
    """
    options = {key: value for key, value in _INLINED.items() if key != "forceinline"}
    return numba.njit(**options)(function)


def compile_all(module: ModuleType) -> None:
    """Compile all kernels of a module for all their dtypes."""
    for value in vars(module).values():
        for found in value.values() if isinstance(value, dict) else [value]:
            if isinstance(found, Kernel):
                for dtype in found.dtypes:
                    found.compile(dtype)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Keep Python from searching for unused objects, of which a compilation leaves few behind.

    It makes so many that are used that the searches take a tenth of its time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _cached(function: Callable, signature: Any) -> Callable:
    """Read a function compiled for one signature from disk, or compile it and keep it there."""
    variant: Any = None
    try:
        variant = numba.njit(cache=True, **_KERNEL)(function)
        with COMPILATIONS.watched(lambda: bool(variant.stats.cache_misses)):
            variant.compile(signature)
    except Exception as error:
        # A damaged file can raise any exception. If the function itself is the reason, the
        # compilation below raises the exception again.
        if variant is None or signature.args not in variant.overloads:
            with COMPILATIONS.watched(lambda: True):
                variant = numba.njit([signature], **_KERNEL)(function)
        _warn_once(error)
    variant.disable_compile()
    return variant


def _warn_once(error: Exception) -> None:
    global _warned
    if not _warned:
        _warned = True
        warn(
            f"Compiled kernels cannot be kept on disk or read from there ({type(error).__name__}: "
            f"{error}); every new process compiles them again. Make room on the disk, delete the "
            "damaged files of the cache (*.nbi and *.nbc), or set the environment variable "
            "NUMBA_CACHE_DIR to another directory, which must be writable.",
            RuntimeWarning,
        )
