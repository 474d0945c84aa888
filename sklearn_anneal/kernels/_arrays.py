"""Arrays that kernels make for themselves.

numpy's functions for it take longer to compile: each of them becomes a function of its own for each
form of its arguments. Here the instructions are written out.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core.imputils import impl_ret_new_ref
from numba.core.typing.npydecl import parse_dtype
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from .simd.emitter import INDEX, LINE


def _uninitialised(context, builder, kind, shape):
    """An array of contiguous rows, each of which begins with the next element in memory."""
    array = context.make_array(kind)(context, builder)
    element = context.get_data_type(kind.dtype)
    strides = [ir.Constant(INDEX, context.get_abi_sizeof(element))]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    size = builder.mul(strides[0], shape[0])
    memory = context.nrt.meminfo_alloc_aligned(builder, size, LINE)
    data = builder.bitcast(context.nrt.meminfo_data(builder, memory), element.as_pointer())
    populate_array(array, data, shape, strides, strides[-1], memory)
    return impl_ret_new_ref(context, builder, kind, array._getvalue())


@intrinsic
def vector(typingctx, n, dtype):
    """An uninitialised array of n elements."""
    kind = types.Array(parse_dtype(dtype), 1, "C")

    def codegen(context, builder, signature, args):
        return _uninitialised(context, builder, kind, [args[0]])

    return kind(types.int64, dtype), codegen


@intrinsic
def matrix(typingctx, n_rows, n_columns, dtype):
    """An uninitialised array of shape (n_rows, n_columns)."""
    kind = types.Array(parse_dtype(dtype), 2, "C")

    def codegen(context, builder, signature, args):
        return _uninitialised(context, builder, kind, list(args[:2]))

    return kind(types.int64, types.int64, dtype), codegen
