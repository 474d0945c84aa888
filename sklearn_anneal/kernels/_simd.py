"""Products of a vector with a few rows of a table, as explicit vector instructions.

Loops over short rows are what compilers vectorise worst: they unroll for lengths that never come,
and a sum in fixed order stays scalar. Here vectors of 32 bytes and eight rows are spelled out, so
that sums have one order on every machine. Rows have a multiple of ``LANES`` entries, and tables a
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
# Bytes of a vector: with twice as many, eight sums and eight factors do not fit the registers.
_VECTOR = 32


class _Emitter:
    """Instructions on vectors of as many elements of one dtype as ``_VECTOR`` bytes hold."""

    def __init__(self, context, builder, dtype):
        self.context = context
        self.builder = builder
        self.element = context.get_data_type(dtype)
        self.alignment = dtype.bitwidth // 8
        self.lanes = _VECTOR // self.alignment
        self.vector = ir.VectorType(self.element, self.lanes)

    def array(self, kind, value):
        """Address of the first element, and shape."""
        struct = self.context.make_array(kind)(self.context, self.builder, value)
        return struct.data, cgutils.unpack_tuple(self.builder, struct.shape)

    def constant(self, value):
        return ir.Constant(self.vector, [ir.Constant(self.element, value)] * self.lanes)

    def _address(self, data, offset):
        pointer = self.builder.gep(data, [offset])
        return self.builder.bitcast(pointer, self.vector.as_pointer())

    def load(self, data, offset):
        value = self.builder.load(self._address(data, offset))
        value.align = self.alignment
        return value

    def store(self, value, data, offset):
        self.builder.store(value, self._address(data, offset)).align = self.alignment

    def multiply_add(self, a, b, c):
        product = self.builder.fmul(a, b, flags=_CONTRACT)
        return self.builder.fadd(product, c, flags=_CONTRACT)

    def shuffle(self, a, b, lanes):
        mask = ir.Constant(ir.VectorType(_WORD, len(lanes)), lanes)
        return self.builder.shuffle_vector(a, b, mask)

    def broadcast(self, vector, lane):
        return self.shuffle(vector, vector, [lane] * self.lanes)

    def sums(self, vectors):
        """The vector of the sums over the lanes of as many vectors, by pairwise addition."""
        n = self.lanes
        distance = 1
        while len(vectors) > 1:
            from_a = [i if i & distance == 0 else n + (i ^ distance) for i in range(n)]
            from_b = [i ^ distance if i & distance == 0 else n + i for i in range(n)]
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
        n = self.builder.udiv(n_columns, ir.Constant(n_columns.type, self.lanes))
        return cgutils.for_range(self.builder, n)

    def offset(self, loop):
        return self.builder.mul(loop.index, ir.Constant(loop.index.type, self.lanes))

    def fill(self, totals, value):
        for total in totals:
            self.builder.store(value, total)

    def add_products(self, left, table, starts, offset, totals):
        """Add the products of a part of x and the same part of ``ROWS`` rows."""
        for total, start in zip(totals, starts, strict=True):
            right = self.load(table, self.builder.add(start, offset))
            old = self.builder.load(total)
            self.builder.store(self.multiply_add(left, right, old), total)

    def combine(self, weights, table, starts, offset, out):
        """Add a part of the weighted sum of ``ROWS`` rows to the same part of ``out``."""
        rows = [self.load(table, self.builder.add(start, offset)) for start in starts]
        terms = [
            self.multiply_add(weights[j], rows[j], self.builder.fmul(weights[j + 1], rows[j + 1]))
            for j in range(0, ROWS, 2)
        ]
        while len(terms) > 1:
            terms = [self.builder.fadd(a, b) for a, b in zip(terms[::2], terms[1::2], strict=True)]
        value = self.builder.fadd(terms[0], self.load(out, offset))
        self.store(value, out, offset)


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
        distance = emit.lanes // 2
        while distance > 0:
            other = emit.shuffle(value, value, [i ^ distance for i in range(emit.lanes)])
            value = builder.fadd(value, other)
            distance //= 2
        return builder.extract_element(value, ir.Constant(_WORD, 0))

    return x.dtype(x), codegen


@intrinsic
def ratio_update(typingctx, x, counts, tiny, table, n_rows, norms, out):
    """One step of a multiplicative update over the first ``n_rows`` rows of a table.

    ``norms = rows @ x + s tiny`` with s lanes, and ``out += (counts / norms) @ rows``. Each row is
    read from memory once: while ``ROWS`` rows are added up, the products of the next ones are made,
    so that neither memory nor the division is waited for. Sums begin at ``tiny``, because sums of
    small products alone are subnormal, which costs a hundred times as much.
    """

    def codegen(context, builder, signature, args):
        emit = _Emitter(context, builder, signature.args[0].dtype)
        x, _ = emit.array(signature.args[0], args[0])
        counts, _ = emit.array(signature.args[1], args[1])
        table, (_, n_columns) = emit.array(signature.args[3], args[3])
        norms, _ = emit.array(signature.args[5], args[5])
        out, _ = emit.array(signature.args[6], args[6])
        n_rows = args[4]
        block = ir.Constant(n_rows.type, ROWS)
        floor = builder.insert_element(emit.constant(0.0), args[2], ir.Constant(_WORD, 0))
        floor = emit.broadcast(floor, 0)
        totals = [cgutils.alloca_once(builder, emit.vector) for _ in range(ROWS)]
        emit.fill(totals, floor)
        starts = emit.starts(ir.Constant(n_rows.type, 0), n_columns)
        with builder.if_then(builder.icmp_signed(">", n_rows, ir.Constant(n_rows.type, 0))):
            with emit.steps(n_columns) as loop:
                offset = emit.offset(loop)
                emit.add_products(emit.load(x, offset), table, starts, offset, totals)
        with cgutils.for_range(builder, builder.sdiv(n_rows, block)) as rows:
            first = builder.mul(rows.index, block)
            ratios = []
            for group in range(0, ROWS, emit.lanes):
                norm = emit.sums([builder.load(totals[group + j]) for j in range(emit.lanes)])
                here = builder.add(first, ir.Constant(first.type, group))
                emit.store(norm, norms, here)
                ratio = builder.fdiv(emit.load(counts, here), norm)
                ratios += [emit.broadcast(ratio, j) for j in range(emit.lanes)]
            starts = emit.starts(first, n_columns)
            following = builder.add(first, block)
            emit.fill(totals, floor)
            with builder.if_else(builder.icmp_signed("<", following, n_rows)) as (more, last):
                with more:
                    next_starts = emit.starts(following, n_columns)
                    with emit.steps(n_columns) as loop:
                        offset = emit.offset(loop)
                        emit.add_products(emit.load(x, offset), table, next_starts, offset, totals)
                        emit.combine(ratios, table, starts, offset, out)
                with last, emit.steps(n_columns) as loop:
                    emit.combine(ratios, table, starts, emit.offset(loop), out)
        return context.get_dummy_value()

    return types.void(x, counts, tiny, table, n_rows, norms, out), codegen
