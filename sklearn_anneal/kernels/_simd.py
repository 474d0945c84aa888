"""Products of a vector with a few rows of a table, as explicit vector instructions.

Loops over short rows are what compilers vectorise worst: they unroll for lengths that never come,
and a sum in fixed order stays scalar. Here eight lanes and eight rows are spelled out, so that
sums have one order on every machine. Rows have a multiple of ``LANES`` entries, and tables a
multiple of ``ROWS`` rows.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8
ROWS = 8

_WORD = ir.IntType(32)
_CONTRACT = ("contract",)
_LINE = 64  # bytes of a line of the cache


class _Emitter:
    """Instructions on vectors of ``LANES`` elements of one dtype."""

    def __init__(self, context, builder, dtype):
        self.context = context
        self.builder = builder
        self.element = context.get_data_type(dtype)
        self.vector = ir.VectorType(self.element, LANES)
        self.alignment = dtype.bitwidth // 8

    def array(self, kind, value):
        """Address of the first element, and shape."""
        struct = self.context.make_array(kind)(self.context, self.builder, value)
        return struct.data, cgutils.unpack_tuple(self.builder, struct.shape)

    def constant(self, value):
        return ir.Constant(self.vector, [ir.Constant(self.element, value)] * LANES)

    def _address(self, data, offset):
        pointer = self.builder.gep(data, [offset])
        return self.builder.bitcast(pointer, self.vector.as_pointer())

    def load(self, data, offset):
        value = self.builder.load(self._address(data, offset))
        value.align = self.alignment
        return value

    def store(self, value, data, offset):
        self.builder.store(value, self._address(data, offset)).align = self.alignment

    def prefetch(self, data, offset, size):
        """Ask for ``size`` elements that are going to be read, line by line."""
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _WORD, _WORD, _WORD])
        ask = self.builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        hints = [ir.Constant(_WORD, value) for value in (0, 3, 1)]
        for first in range(0, size, _LINE // self.alignment):
            here = self.builder.add(offset, ir.Constant(offset.type, first))
            pointer = self.builder.bitcast(self.builder.gep(data, [here]), byte)
            self.builder.call(ask, [pointer, *hints])

    def multiply_add(self, a, b, c):
        product = self.builder.fmul(a, b, flags=_CONTRACT)
        return self.builder.fadd(product, c, flags=_CONTRACT)

    def shuffle(self, a, b, lanes):
        mask = ir.Constant(ir.VectorType(_WORD, len(lanes)), lanes)
        return self.builder.shuffle_vector(a, b, mask)

    def broadcast(self, vector, lane):
        return self.shuffle(vector, vector, [lane] * LANES)

    def sums(self, vectors):
        """The vector of the sums over the lanes of ``ROWS`` vectors, by pairwise addition."""
        distance = 1
        while len(vectors) > 1:
            from_a = [i if i & distance == 0 else LANES + (i ^ distance) for i in range(LANES)]
            from_b = [i ^ distance if i & distance == 0 else LANES + i for i in range(LANES)]
            vectors = [
                self.builder.fadd(self.shuffle(a, b, from_a), self.shuffle(a, b, from_b))
                for a, b in zip(vectors[::2], vectors[1::2], strict=True)
            ]
            distance *= 2
        return vectors[0]

    def starts(self, first, n_columns):
        """Offsets of ``ROWS`` rows from the first of them on."""
        b = self.builder
        rows = [b.add(first, ir.Constant(first.type, j)) for j in range(ROWS)]
        return [b.mul(row, n_columns) for row in rows]

    def steps(self, n_columns):
        """A loop over a row; its index counts vectors."""
        n = self.builder.udiv(n_columns, ir.Constant(n_columns.type, LANES))
        return cgutils.for_range(self.builder, n)

    def offset(self, loop):
        return self.builder.mul(loop.index, ir.Constant(loop.index.type, LANES))

    def products(self, x, table, starts, n_columns):
        """Inner products of x and ``ROWS`` rows, as one vector."""
        zero = self.constant(0.0)
        totals = [cgutils.alloca_once(self.builder, self.vector) for _ in starts]
        for total in totals:
            self.builder.store(zero, total)
        with self.steps(n_columns) as loop:
            offset = self.offset(loop)
            left = self.load(x, offset)
            for total, start in zip(totals, starts, strict=True):
                right = self.load(table, self.builder.add(start, offset))
                old = self.builder.load(total)
                self.builder.store(self.multiply_add(left, right, old), total)
        return self.sums([self.builder.load(total) for total in totals])


@intrinsic
def total(typingctx, x):
    """The sum of a vector."""

    def codegen(context, builder, signature, args):
        emit = _Emitter(context, builder, signature.args[0].dtype)
        x, (n,) = emit.array(signature.args[0], args[0])
        lanes = cgutils.alloca_once(builder, emit.vector)
        builder.store(emit.constant(0.0), lanes)
        with emit.steps(n) as loop:
            part = emit.load(x, emit.offset(loop))
            builder.store(builder.fadd(part, builder.load(lanes)), lanes)
        value = builder.load(lanes)
        distance = LANES // 2
        while distance > 0:
            other = emit.shuffle(value, value, [i ^ distance for i in range(LANES)])
            value = builder.fadd(value, other)
            distance //= 2
        return builder.extract_element(value, ir.Constant(_WORD, 0))

    return x.dtype(x), codegen


@intrinsic
def ratio_update(typingctx, x, counts, tiny, table, first, norms, out):
    """One step of a multiplicative update, over ``ROWS`` rows of a table from ``first`` on.

    ``norms = rows @ x + tiny`` and ``out += (counts / norms) @ rows``; each row is read from
    memory once.
    """

    def codegen(context, builder, signature, args):
        emit = _Emitter(context, builder, signature.args[0].dtype)
        x, _ = emit.array(signature.args[0], args[0])
        counts, _ = emit.array(signature.args[1], args[1])
        table, (_, n_columns) = emit.array(signature.args[3], args[3])
        norms, _ = emit.array(signature.args[5], args[5])
        out, _ = emit.array(signature.args[6], args[6])
        first = args[4]
        starts = emit.starts(first, n_columns)
        floor = builder.insert_element(emit.constant(0.0), args[2], ir.Constant(_WORD, 0))
        norm = builder.fadd(emit.products(x, table, starts, n_columns), emit.broadcast(floor, 0))
        emit.store(norm, norms, first)
        ratio = builder.fdiv(emit.load(counts, first), norm)
        ratios = [emit.broadcast(ratio, j) for j in range(ROWS)]
        beyond = builder.add(starts[0], builder.mul(n_columns, ir.Constant(n_columns.type, ROWS)))
        with emit.steps(n_columns) as loop:
            offset = emit.offset(loop)
            # The rows after these, while those of this block come from the nearest cache.
            ahead = builder.mul(offset, ir.Constant(offset.type, ROWS))
            emit.prefetch(table, builder.add(beyond, ahead), ROWS * LANES)
            rows = [emit.load(table, builder.add(start, offset)) for start in starts]
            terms = [
                emit.multiply_add(ratios[j], rows[j], builder.fmul(ratios[j + 1], rows[j + 1]))
                for j in range(0, ROWS, 2)
            ]
            while len(terms) > 1:
                terms = [builder.fadd(a, b) for a, b in zip(terms[::2], terms[1::2], strict=True)]
            emit.store(builder.fadd(terms[0], emit.load(out, offset)), out, offset)
        return context.get_dummy_value()

    return types.void(x, counts, tiny, table, first, norms, out), codegen
