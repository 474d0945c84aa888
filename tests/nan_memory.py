"""Arrays that numpy makes without initialising them hold NaN, and NaN follows the end of each.

The option ``--nan-memory`` of pytest switches this on, for runs that look for code which reads
memory that nobody has written. All bytes of such memory are 0xff: the floating-point number is
NaN, and the integer −1.
"""

from __future__ import annotations

import atexit
import ctypes

import numpy as np

from sklearn_anneal.parallel import kept_memory

# Number of bytes after the end of each array.
AFTER = 4096
# Larger arrays are not filled, since some of them are never used as a whole, bytes.
_LARGEST = 2**26
_BYTE = 0xFF

_MALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_CALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_REALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
# The position in numpy's table of functions (numpy/__multiarray_api.h) of a pointer to the capsule
# with the handler of memory that all threads use.
_DEFAULT_HANDLER = 306


class _Handler(ctypes.Structure):
    """``PyDataMem_Handler`` of NEP 49, up to the functions that give memory."""

    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
    ]


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    for function in (library.malloc, library.calloc, library.realloc):
        function.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    library.calloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    library.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


def _default_handler() -> _Handler:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # The module has had a new name since NumPy 2.
    core = np._core if hasattr(np, "_core") else np.core
    table = pointer(core.multiarray._ARRAY_API, None)
    capsule = ctypes.cast(table, ctypes.POINTER(ctypes.POINTER(ctypes.py_object)))[_DEFAULT_HANDLER]
    handler = ctypes.cast(pointer(capsule[0], b"mem_handler"), ctypes.POINTER(_Handler))[0]
    if handler.name != b"default_allocator" or handler.version != 1:
        raise RuntimeError(f"numpy {np.__version__} does not have the handler of memory expected.")
    return handler


def fill_with_nan() -> None:
    """Fill all memory that numpy and :mod:`kept_memory` give from now on, until Python ends."""
    library, handler = _library(), _default_handler()

    # numpy frees the memory as that of its own functions, which take it from malloc as well.
    @_MALLOC
    def malloc(context, size):
        address = library.malloc(size + AFTER)
        if address:
            begin = 0 if size <= _LARGEST else size
            ctypes.memset(address + begin, _BYTE, size + AFTER - begin)
        return address

    @_CALLOC
    def calloc(context, n, size):
        address = library.calloc(n * size + AFTER, 1)
        if address:
            ctypes.memset(address + n * size, _BYTE, AFTER)
        return address

    @_REALLOC
    def realloc(context, address, size):
        address = library.realloc(address, size + AFTER)
        if address:
            ctypes.memset(address + size, _BYTE, AFTER)
        return address

    names = {"malloc": malloc, "calloc": calloc, "realloc": realloc}
    before = {name: getattr(handler, name) for name in names}
    for name, function in names.items():
        setattr(handler, name, ctypes.cast(function, ctypes.c_void_p).value)

    @atexit.register
    def restore() -> None:
        # Python cannot be called any more when the last arrays are made.
        for name in names:
            setattr(handler, name, before[name])

    from_blocks = kept_memory._from_blocks

    def filled_from_blocks(shape, dtype):
        array = from_blocks(shape, dtype)
        if array is not None:
            ctypes.memset(array.ctypes.data, _BYTE, array.nbytes)
        return array

    kept_memory._from_blocks = filled_from_blocks
