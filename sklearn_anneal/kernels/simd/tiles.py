"""Products of tiles of matrices, of which each lane of a vector has its own.

Matrices that differ from row to row, as those of missing cells do, are too small for a library of
linear algebra. Here ``LANES`` of them are worked on at once: entry (i, j) of all of them is one
vector. The sums of a tile of ``TILE`` × ``TILE`` entries stay in registers, so that each vector
that is read serves as often as a tile has rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

from .emitter import CONTRACT, DOUBLES, INDEX, Emitter

TILE = 4
"""Number of rows and columns of a tile."""


def _n_lanes() -> int:
    """Return how many numbers a vector of the processor has, up to eight.

    A tile and what is read for it fill the registers of a processor with vectors of eight, which
    has twice as many registers as others.
    """
    features = config.CPU_FEATURES
    if features is None:
        features = get_host_cpu_features()
    return 2 * DOUBLES if "+avx512f" in features.split(",") else DOUBLES


LANES = _n_lanes()
"""Number of matrices that are worked on at once."""


@intrinsic
def factorise_tile(typingctx, root, inverses, transposed, start, row, inverse):
    """Replace the lower triangle of a tile on the diagonal by its Cholesky factor.

    The tile is at ``start``, and ``row`` is the distance of its rows. The inverse of the factor is
    written to ``inverses``, where the tile ``inverse`` has no others between its rows, and its
    transpose to the place of the tile in ``transposed``.
    """

    def codegen(context, builder, signature, args):
        emit = Emitter(context, builder, signature.args[0].dtype, LANES)
        root, inverses, transposed = (
            emit.array(kind, value)[0]
            for kind, value in zip(signature.args[:3], args, strict=False)
        )
        start, row, inverse = args[3:]
        one, zero = emit.constant(1.0), emit.constant(0.0)
        kind = ir.FunctionType(emit.vector, [emit.vector])
        name = f"llvm.sqrt.v{emit.lanes}f64"
        sqrt = cgutils.get_or_insert_function(builder.module, kind, name)
        rows = [builder.add(start, builder.mul(row, ir.Constant(INDEX, i))) for i in range(TILE)]

        def minus(value, left, right):
            for a, b in zip(left, right, strict=True):
                value = builder.fsub(value, builder.fmul(a, b, flags=CONTRACT), flags=CONTRACT)
            return value

        factor = [
            [emit.load(root, emit.plus(rows[i], j)) for j in range(i + 1)] for i in range(TILE)
        ]
        inverted = [[zero] * TILE for _ in range(TILE)]
        for j in range(TILE):
            own = factor[j][:j]
            factor[j][j] = builder.call(sqrt, [minus(factor[j][j], own, own)])
            inverted[j][j] = builder.fdiv(one, factor[j][j])
            for i in range(j + 1, TILE):
                rest = minus(factor[i][j], factor[i][:j], own)
                factor[i][j] = builder.fmul(rest, inverted[j][j])
        for i in range(TILE):
            for j in range(i):
                above = [inverted[k][j] for k in range(j, i)]
                inverted[i][j] = builder.fmul(minus(zero, factor[i][j:i], above), inverted[i][i])
        for i in range(TILE):
            for j in range(TILE):
                place = emit.plus(inverse, i * TILE + j)
                emit.store(inverted[i][j], inverses, place)
                emit.store(inverted[j][i], transposed, emit.plus(rows[i], j))
                if j <= i:
                    emit.store(factor[i][j], root, emit.plus(rows[i], j))
        return context.get_dummy_value()

    place = types.int64
    return types.void(root, inverses, transposed, place, place, place), codegen


def _products(n_columns: int, subtracted: bool) -> Callable[..., Any]:
    """Return a function that computes X Yᵀ of ``TILE`` rows of X and ``n_columns`` rows of Y.

    Its arguments are X, the place of its first entry and the distance of its rows, the same of Y,
    the number of columns of both, and the same of the output, which receives the products or from
    which they are subtracted. Arrays have one dimension, and places and distances count numbers.
    The output may replace X or Y if these have no other columns.
    """

    def codegen(context, builder, signature, args):
        emit = Emitter(context, builder, signature.args[0].dtype, LANES)
        x, y, out = (emit.array(signature.args[i], args[i])[0] for i in (0, 3, 7))
        n = args[6]

        def plus(place, distance, times):
            return builder.add(place, builder.mul(distance, ir.Constant(INDEX, times)))

        left = [plus(args[1], args[2], i) for i in range(TILE)]
        right = [plus(args[4], args[5], j) for j in range(n_columns)]
        sums = [cgutils.alloca_once(builder, emit.vector) for _ in range(TILE * n_columns)]
        emit.fill(sums, emit.constant(0.0))
        with cgutils.for_range(builder, n) as loop:
            offset = emit.offset(loop)
            of_x = [emit.load(x, builder.add(place, offset)) for place in left]
            of_y = [emit.load(y, builder.add(place, offset)) for place in right]
            for i, a in enumerate(of_x):
                for b, total in zip(of_y, sums[i * n_columns :], strict=False):
                    builder.store(emit.multiply_add(a, b, builder.load(total)), total)
        for i in range(TILE):
            start = plus(args[8], args[9], i)
            for j in range(n_columns):
                place = emit.plus(start, j)
                value = builder.load(sums[i * n_columns + j])
                if subtracted:
                    value = builder.fsub(emit.load(out, place), value)
                emit.store(value, out, place)
        return context.get_dummy_value()

    def products(typingctx, x, x_start, x_row, y, y_start, y_row, n, out, out_start, out_row):
        place = types.int64
        kinds = x, place, place, y, place, place, place, out, place, place
        return types.void(*kinds), codegen

    return intrinsic(products)


set_tile = _products(TILE, subtracted=False)
"""X Yᵀ of ``TILE`` rows of each matrix."""
subtract_tile = _products(TILE, subtracted=True)
"""The same, subtracted from the output."""
set_vector = _products(1, subtracted=False)
"""X y of ``TILE`` rows of a matrix and a vector."""
subtract_vector = _products(1, subtracted=True)
"""The same, subtracted from the output."""
