"""Work that several threads share without the interpreter: the parts of one call of a kernel.

The thread that calls the kernel posts the work on a board, which other threads watch, and all of
them take parts until none is left. None of them needs the interpreter's lock for it. A thread that
waits for this lock sleeps, and to wake up takes as long as a part of a small minibatch does.

The board is an array of int64 whose entries are changed by atomic instructions alone. ``JOB`` is
one number that says which work is there and how much of it is taken: the lowest bits are the number
of parts that were taken from the end, then follow those of parts that were taken from the front and
of all parts, and the highest bits are the number of the job. A part is taken by replacing this
number, which fails if it has changed meanwhile. When a thread has taken a part, the rest of the
board therefore still belongs to this job: it changes only when all parts are done.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import MOST_PARTS
from ._compile import copied, helper
from .simd.emitter import CHECKED, INDEX

# The entries of a board. Each one that threads change has a cache line of its own, and processors
# fetch lines in pairs.
JOB, _DONE, _FUNCTION, _FIRST, _LAST, _FAILED, _ARGUMENTS = 16, 32, 48, 49, 50, 51, 64
_ENTRIES = 512
# The bits of a number of parts.
_BITS, _MASK = 8, MOST_PARTS


def new_board() -> np.ndarray:
    """Return a board without work."""
    return np.zeros(_ENTRIES, np.int64)


def _place(context, builder, board_type, board, index):
    data = context.make_array(board_type)(context, builder, board).data
    return builder.gep(data, [index])


@intrinsic
def load(typingctx, board, index):
    """Read an entry."""

    def codegen(context, builder, signature, args):
        place = _place(context, builder, signature.args[0], *args)
        return builder.load_atomic(place, "seq_cst", 8)

    return types.int64(board, types.int64), codegen


@intrinsic
def store(typingctx, board, index, value):
    """Write an entry."""

    def codegen(context, builder, signature, args):
        place = _place(context, builder, signature.args[0], *args[:2])
        builder.store_atomic(args[2], place, "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(board, types.int64, types.int64), codegen


@intrinsic
def add(typingctx, board, index, value):
    """Add to an entry."""

    def codegen(context, builder, signature, args):
        place = _place(context, builder, signature.args[0], *args[:2])
        builder.atomic_rmw("add", place, args[2], "seq_cst")
        return context.get_dummy_value()

    return types.void(board, types.int64, types.int64), codegen


@intrinsic
def _replace(typingctx, board, index, old, new):
    """Replace an entry if it has the value ``old``; returns whether it had."""

    def codegen(context, builder, signature, args):
        place = _place(context, builder, signature.args[0], *args[:2])
        found = builder.cmpxchg(place, args[2], args[3], "seq_cst", "seq_cst")
        return builder.extract_value(found, 1)

    return types.boolean(board, types.int64, types.int64, types.int64), codegen


@intrinsic
def _call_posted(typingctx, board, function, first, last):
    """Call the function at an address for some of the work, with the arguments on the board."""

    def codegen(context, builder, signature, args):
        board, function, first, last = args
        arguments = _place(
            context, builder, signature.args[0], board, ir.Constant(INDEX, _ARGUMENTS)
        )
        kind = ir.FunctionType(ir.VoidType(), [INDEX.as_pointer(), INDEX, INDEX])
        builder.call(builder.inttoptr(function, kind.as_pointer()), [arguments, first, last])
        return context.get_dummy_value()

    return types.void(board, types.int64, types.int64, types.int64), codegen


def _borrowed(context, builder, kind, value):
    """An array without its owner, so that no reference to it is counted.

    Threads would otherwise change the same counters for every part of an array that they look at,
    and take their cache lines from each other.
    """
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        value = array._getvalue()
    return value


@intrinsic
def _post_arguments(typingctx, function, arguments, board):
    """Write arguments on the board; returns the address of a function that reads them there."""
    kinds = (*arguments.types, types.int64, types.int64)
    inner = function.get_call_type(typingctx, kinds, {})

    def codegen(context, builder, signature, args):
        compiled = signature.args[0].dispatcher.get_compile_result(inner)
        context.add_linking_libs([compiled.library])
        tuple_type = signature.args[1]
        struct = context.get_value_type(tuple_type)
        size = context.get_abi_sizeof(struct)
        if _ARGUMENTS + -(-size // 8) > _ENTRIES:
            raise ValueError(f"The board has no room for {size} bytes of arguments.")
        place = _place(context, builder, signature.args[2], args[2], ir.Constant(INDEX, _ARGUMENTS))
        values = [
            _borrowed(context, builder, kind, value)
            for kind, value in zip(
                tuple_type.types, cgutils.unpack_tuple(builder, args[1]), strict=True
            )
        ]
        posted = context.make_tuple(builder, tuple_type, values)
        builder.store(posted, builder.bitcast(place, struct.as_pointer()))
        kind = ir.FunctionType(ir.VoidType(), [INDEX.as_pointer(), INDEX, INDEX])
        name = builder.module.get_unique_name("posted")
        entry = ir.Function(builder.module, kind, name)
        entry.linkage = "internal"
        body = ir.IRBuilder(entry.append_basic_block())
        given = body.load(body.bitcast(entry.args[0], struct.as_pointer()))
        values = cgutils.unpack_tuple(body, given, len(tuple_type.types))
        status, _ = context.call_internal_no_propagate(
            body, compiled.fndesc, inner, (*values, entry.args[1], entry.args[2])
        )
        if CHECKED:
            with body.if_then(status.is_error, likely=False):
                failed = body.gep(entry.args[0], [ir.Constant(INDEX, _FAILED - _ARGUMENTS)])
                body.store_atomic(ir.Constant(INDEX, 1), failed, "seq_cst", 8)
        body.ret_void()
        return builder.ptrtoint(entry, INDEX)

    return types.int64(function, arguments, board), codegen


@helper
def _take(board, job, end):
    """Take a part of the job with the given number, from one end; −1 if none is left."""
    while True:
        now = load(board, JOB)
        of_end, of_front, n = now & _MASK, (now >> _BITS) & _MASK, (now >> 2 * _BITS) & _MASK
        if (now >> 3 * _BITS) != job or of_end + of_front >= n:
            return -1
        if _replace(board, JOB, now, now + (1 if end else 1 << _BITS)):
            return n - 1 - of_end if end else of_front


@helper
def _call_part(board, function, first, last, part, n_parts):
    n = last - first
    begin, end = first + n * part // n_parts, first + n * (part + 1) // n_parts
    _call_posted(board, function, begin, end)


@helper
def _refuse_failed(board):
    if CHECKED and load(board, _FAILED) != 0:
        raise IndexError("a part of a kernel reads or writes outside of an array")


@copied
def share(function, arguments, first, last, n_parts, board):
    """Call ``function(*arguments, begin, end)`` for parts of ``first``, …, ``last`` − 1.

    Threads that watch the board take parts too. Without a board, the function is called once. It
    must not raise, and its results must not depend on the parts. Only where places are checked can
    it raise, and this function then raises too, in the thread that called the kernel.
    """
    alone = board.shape[0] == 0
    # The code of the function is large, and should be in the kernel only once.
    place = np.empty(_ENTRIES, np.int64) if alone else board
    address = _post_arguments(function, arguments, place)
    if CHECKED:
        store(place, _FAILED, 0)
    if alone:
        _call_posted(place, address, first, last)
        _refuse_failed(place)
        return
    job = (load(board, JOB) >> 3 * _BITS) + 1
    store(board, _FUNCTION, address)
    store(board, _FIRST, first)
    store(board, _LAST, last)
    store(board, _DONE, 0)
    store(board, JOB, (job << 3 * _BITS) | (n_parts << 2 * _BITS))
    while True:
        part = _take(board, job, False)
        if part < 0:
            break
        _call_part(board, address, first, last, part, n_parts)
        add(board, _DONE, 1)
    while load(board, _DONE) < n_parts:
        pass
    _refuse_failed(board)


@helper
def help_with(board):
    """Take a part of the work on a board and do it; returns whether there was one."""
    now = load(board, JOB)
    job, n_parts = now >> 3 * _BITS, (now >> 2 * _BITS) & _MASK
    if (now & _MASK) + ((now >> _BITS) & _MASK) >= n_parts:
        return False
    function, first, last = load(board, _FUNCTION), load(board, _FIRST), load(board, _LAST)
    part = _take(board, job, True)
    if part < 0:
        return False
    _call_part(board, function, first, last, part, n_parts)
    add(board, _DONE, 1)
    return True
