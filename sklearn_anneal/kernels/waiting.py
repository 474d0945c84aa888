"""Waiting for another thread without sleeping, which would take longer than what it does."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ._compile import kernel
from ._team import help_with
from .simd.emitter import Emitter

# A round takes about ten nanoseconds.
_STEPS_OF_ROUND = 8


@intrinsic
def _read(typingctx, number):
    """Read a number that another thread writes."""

    def codegen(context, builder, signature, args):
        emit = Emitter(context, builder, signature.args[0].dtype)
        place, _ = emit.array(signature.args[0], args[0])
        # Without "acquire", the compiler would read the number once, before the loop.
        return builder.zext(builder.load_atomic(place, "acquire", 4), ir.IntType(64))

    return types.int64(number), codegen


@kernel("out_values int int int board out1", dtypes=("uint32",))
def wait(number, value, n_rounds, n_more, board, unused):
    """Wait until a number is no longer the given value, at most ``n_rounds`` rounds.

    If it has changed, wait ``n_more`` rounds more. Work on the board, if there is one, is done
    meanwhile, and the rounds are counted anew after it. ``unused[0]`` gives them something to do.
    """
    x = unused[0]
    left = n_rounds
    helps = board.shape[0] > 0
    while left > 0 and _read(number) == value:
        if helps and help_with(board):
            left = n_rounds
        for _ in range(_STEPS_OF_ROUND):
            x = x * 1.0000001 + 1e-9
        left -= 1
    if left > 0:
        for _ in range(_STEPS_OF_ROUND * n_more):
            x = x * 1.0000001 + 1e-9
    unused[0] = min(x, 1.0)
