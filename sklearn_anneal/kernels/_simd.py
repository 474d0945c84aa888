"""Products of a vector with a few rows of a table, as explicit vector instructions.

Compilers do badly with loops over short rows: they unroll them for lengths that never occur, and
they cannot vectorise a sum whose order is fixed. The functions here therefore write out
instructions on vectors of 32 bytes, and work on eight rows at a time where that helps. As the order
of every sum is written out too, it is the same on every machine. Rows have a multiple of ``LANES``
entries. Tables that are processed eight rows at a time have a multiple of ``ROWS`` rows.
"""

from __future__ import annotations

from contextlib import contextmanager

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8
ROWS = 8
DOUBLES = 4
# Number of parts that `lane_products` sums over.
QUARTERS = 4

_WORD = ir.IntType(32)
_INDEX = ir.IntType(64)
_CONTRACT = ("contract",)
# Bytes of a vector. With twice as many, eight sums and eight factors would not fit into the
# registers.
_VECTOR = 32
# Bytes of a cache line.
_LINE = 64
# Number of vectors of sums that are kept in registers at a time; a power of two, at least four.
_SUMS = 8


class _Emitter:
    """Emits instructions on vectors that hold ``_VECTOR`` bytes of elements of one dtype."""

    def __init__(self, context, builder, dtype):
        self.context = context
        self.builder = builder
        self.dtype = dtype
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

    def everywhere(self, value):
        """A vector that repeats one number; a vector of zeros is cheaper as a constant."""
        empty = ir.Constant(ir.VectorType(value.type, self.lanes), ir.Undefined)
        return self.broadcast(self.builder.insert_element(empty, value, ir.Constant(_WORD, 0)), 0)

    def sum_of_lanes(self, vector):
        return self._fold(vector, self.builder.fadd)

    def maximum(self, a, b):
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

    def maximum_of_lanes(self, vector):
        return self._fold(vector, self.maximum)

    def _fold(self, vector, operation):
        distance = self.lanes // 2
        while distance > 0:
            other = self.shuffle(vector, vector, [i ^ distance for i in range(self.lanes)])
            vector = operation(vector, other)
            distance //= 2
        return self.builder.extract_element(vector, ir.Constant(_WORD, 0))

    def sums(self, vectors):
        """Sum each of several vectors over its lanes, by pairwise addition.

        There are as many vectors as a vector has lanes, and the result is the vector of their sums.
        """
        return self.across(vectors, self.builder.fadd)

    def across(self, vectors, operation):
        """Combine the lanes of each of several vectors pairwise by an operation, as in ``sums``."""
        n = self.lanes
        distance = 1
        while len(vectors) > 1:
            from_a = [i if i & distance == 0 else n + (i ^ distance) for i in range(n)]
            from_b = [i ^ distance if i & distance == 0 else n + i for i in range(n)]
            vectors = [
                operation(self.shuffle(a, b, from_a), self.shuffle(a, b, from_b))
                for a, b in zip(vectors[::2], vectors[1::2], strict=True)
            ]
            distance *= 2
        return vectors[0]

    def starts(self, first, n_columns):
        """The offsets of ``ROWS`` consecutive rows, given that of the first."""
        b = self.builder
        rows = [b.add(first, ir.Constant(first.type, j)) for j in range(ROWS)]
        return [b.mul(row, n_columns) for row in rows]

    def steps(self, n_columns):
        """A loop over the vectors of a row; its index is the number of the vector."""
        n = self.builder.udiv(n_columns, ir.Constant(n_columns.type, self.lanes))
        return cgutils.for_range(self.builder, n)

    def offset(self, loop):
        return self.builder.mul(loop.index, ir.Constant(loop.index.type, self.lanes))

    def fill(self, totals, value):
        for total in totals:
            self.builder.store(value, total)

    def add_products(self, left, table, starts, offset, totals):
        """Multiply a part of x with the same part of each of ``ROWS`` rows, and add to the sums."""
        for total, start in zip(totals, starts, strict=True):
            right = self.load(table, self.builder.add(start, offset))
            old = self.builder.load(total)
            self.builder.store(self.multiply_add(left, right, old), total)

    def combine(self, weights, table, starts, offset, out):
        """Add the weighted sum of ``ROWS`` rows to ``out``, for one part of the columns."""
        rows = [self.load(table, self.builder.add(start, offset)) for start in starts]
        value = self.weighted_sum(weights, rows, self.load(out, offset))
        self.store(value, out, offset)

    def weighted_sum(self, weights, vectors, start):
        """The weighted sum of ``ROWS`` vectors, added to a start.

        Two separate sums, each over every other vector, take few instructions, and none of these
        waits long for the one before it.
        """
        even = self.multiply_add(weights[0], vectors[0], start)
        odd = self.builder.fmul(weights[1], vectors[1])
        for j in range(2, ROWS, 2):
            even = self.multiply_add(weights[j], vectors[j], even)
            odd = self.multiply_add(weights[j + 1], vectors[j + 1], odd)
        return self.builder.fadd(even, odd)

    def fetch(self, data, offset, level=1):
        """Prefetch the cache line of an element, which will be read soon, into a level of cache."""
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _WORD, _WORD, _WORD])
        function = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0i8")
        place = self.builder.bitcast(self.builder.gep(data, [offset]), byte)
        read, keep, data_cache = (ir.Constant(_WORD, value) for value in (0, 4 - level, 1))
        self.builder.call(function, [place, read, keep, data_cache])

    def plus(self, offset, j):
        """The offset of the j-th vector after ``offset``."""
        return self.builder.add(offset, ir.Constant(offset.type, j * self.lanes))

    def add_to_part(self, value, out, dtype, offset):
        """Add a vector to a part of an array, which has the dtype of the vector or float64."""
        if dtype == self.dtype:
            self.store(self.builder.fadd(self.load(out, offset), value), out, offset)
            return
        doubles = ir.VectorType(ir.DoubleType(), DOUBLES)
        for first in range(0, self.lanes, DOUBLES):
            part = self.shuffle(value, value, list(range(first, first + DOUBLES)))
            place = self.builder.add(offset, ir.Constant(offset.type, first))
            place = self.builder.bitcast(self.builder.gep(out, [place]), doubles.as_pointer())
            old = self.builder.load(place)
            old.align = 8
            new = self.builder.fadd(self.builder.fpext(part, doubles), old)
            self.builder.store(new, place).align = 8


@intrinsic
def total(typingctx, x):
    """The sum of the entries of a vector."""

    def codegen(context, builder, signature, args):
        emit = _Emitter(context, builder, signature.args[0].dtype)
        x, (n,) = emit.array(signature.args[0], args[0])
        lanes = cgutils.alloca_once(builder, emit.vector)
        builder.store(emit.constant(0.0), lanes)
        with emit.steps(n) as loop:
            part = emit.load(x, emit.offset(loop))
            builder.store(builder.fadd(part, builder.load(lanes)), lanes)
        return emit.sum_of_lanes(builder.load(lanes))

    return x.dtype(x), codegen


@intrinsic
def lane_products(typingctx, x, y, out):
    """Sums of the products of two vectors, over parts of them that are equally long.

    The vectors are cut into ``QUARTERS`` parts, whose lengths are a multiple of the number of
    lanes. Entry ``q * lanes + j`` of ``out`` is the sum over the entries of part q whose index
    there is j modulo the number of lanes. The last ``QUARTERS`` entries of ``out`` are the sums
    over whole parts.
    """

    def codegen(context, builder, signature, args):
        emit = _Emitter(context, builder, signature.args[0].dtype)
        x, (n,) = emit.array(signature.args[0], args[0])
        y, _ = emit.array(signature.args[1], args[1])
        out, _ = emit.array(signature.args[2], args[2])
        length = builder.udiv(n, ir.Constant(n.type, QUARTERS))
        begins = [builder.mul(length, ir.Constant(n.type, q)) for q in range(QUARTERS)]
        sums = [cgutils.alloca_once(builder, emit.vector) for _ in range(QUARTERS)]
        emit.fill(sums, emit.constant(0.0))
        with emit.steps(length) as loop:
            offset = emit.offset(loop)
            for begin, sum_ in zip(begins, sums, strict=True):
                here = builder.add(begin, offset)
                product = emit.multiply_add(
                    emit.load(x, here), emit.load(y, here), builder.load(sum_)
                )
                builder.store(product, sum_)
        for q, sum_ in enumerate(sums):
            lanes = builder.load(sum_)
            emit.store(lanes, out, ir.Constant(_INDEX, q * emit.lanes))
            place = builder.gep(out, [ir.Constant(_INDEX, QUARTERS * emit.lanes + q)])
            builder.store(emit.sum_of_lanes(lanes), place)
        return context.get_dummy_value()

    return types.void(x, y, out), codegen


@intrinsic
def fetch_rows(typingctx, table, rows, first, last):
    """Prefetch the rows ``rows[first:last]`` of a table, which will be read soon."""

    def codegen(context, builder, signature, args):
        emit = _Emitter(context, builder, signature.args[0].dtype)
        table, (_, n_columns) = emit.array(signature.args[0], args[0])
        rows, _ = emit.array(signature.args[1], args[1])
        line = ir.Constant(_INDEX, _LINE // emit.alignment)
        n_lines = builder.udiv(builder.add(n_columns, builder.sub(line, line.type(1))), line)
        with cgutils.for_range(builder, args[3], start=args[2]) as loop:
            row = builder.sext(builder.load(builder.gep(rows, [loop.index])), _INDEX)
            start = builder.mul(row, n_columns)
            with cgutils.for_range(builder, n_lines) as lines:
                emit.fetch(table, builder.add(start, builder.mul(lines.index, line)), level=2)
        return context.get_dummy_value()

    return types.void(table, rows, first, last), codegen


@intrinsic
def fetch_entries(typingctx, values, first, last):
    """Prefetch ``values[first:last]``, which will be read soon."""

    def codegen(context, builder, signature, args):
        emit = _Emitter(context, builder, signature.args[0].dtype)
        values, _ = emit.array(signature.args[0], args[0])
        line = ir.Constant(_INDEX, _LINE // emit.alignment)
        with cgutils.for_range_slice(builder, args[1], args[2], line) as (index, _):
            emit.fetch(values, index, level=2)
        return context.get_dummy_value()

    return types.void(values, first, last), codegen


@intrinsic
def multiplicative_step(typingctx, base, factor, e, acc, x):
    """``acc *= e`` and ``x = base + factor * acc``; returns the sum of |change of x|."""

    def codegen(context, builder, signature, args):
        emit = _Emitter(context, builder, signature.args[0].dtype)
        base, _ = emit.array(signature.args[0], args[0])
        e, _ = emit.array(signature.args[2], args[2])
        acc, _ = emit.array(signature.args[3], args[3])
        x, (n,) = emit.array(signature.args[4], args[4])
        factor = emit.everywhere(args[1])
        changes = cgutils.alloca_once(builder, emit.vector)
        builder.store(emit.constant(0.0), changes)
        with emit.steps(n) as loop:
            here = emit.offset(loop)
            share = builder.fmul(emit.load(acc, here), emit.load(e, here))
            emit.store(share, acc, here)
            old = emit.load(x, here)
            new = emit.multiply_add(factor, share, emit.load(base, here))
            emit.store(new, x, here)
            change = emit.maximum(builder.fsub(new, old), builder.fsub(old, new))
            builder.store(builder.fadd(change, builder.load(changes)), changes)
        return emit.sum_of_lanes(builder.load(changes))

    return base.dtype(base, factor, e, acc, x), codegen


def _emit_ratio_update(context, builder, signature, args, gathered):
    """Emit :func:`ratio_update`, for the first rows of a table or for ``gathered`` rows."""
    emit = _Emitter(context, builder, signature.args[0].dtype)
    x, _ = emit.array(signature.args[0], args[0])
    counts, _ = emit.array(signature.args[1], args[1])
    table, (_, n_columns) = emit.array(signature.args[3], args[3])
    rows = emit.array(signature.args[4], args[4])[0] if gathered else None
    norms, _ = emit.array(signature.args[-2], args[-2])
    out, _ = emit.array(signature.args[-1], args[-1])
    zero, block = (ir.Constant(args[-3].type, value) for value in (0, ROWS))
    n_blocks = builder.sdiv(args[-3], block)
    floor = emit.everywhere(args[2])
    totals = [cgutils.alloca_once(builder, emit.vector) for _ in range(ROWS)]
    shares = [cgutils.alloca_once(builder, emit.vector) for _ in range(ROWS // emit.lanes)]

    def exists(index):
        return builder.if_then(builder.icmp_signed("<", index, n_blocks))

    def starts_of(index):
        first = builder.mul(index, block)
        if not gathered:
            return emit.starts(first, n_columns)
        places = [builder.add(first, ir.Constant(first.type, j)) for j in range(ROWS)]
        return [builder.load(builder.gep(rows, [place])) for place in places]

    def multiply(index):
        emit.fill(totals, floor)
        starts = starts_of(index)
        with emit.steps(n_columns) as loop:
            offset = emit.offset(loop)
            emit.add_products(emit.load(x, offset), table, starts, offset, totals)

    def divide(index):
        for group, share in enumerate(shares):
            part = range(group * emit.lanes, (group + 1) * emit.lanes)
            norm = emit.sums([builder.load(totals[j]) for j in part])
            first = builder.mul(index, block)
            here = builder.add(first, ir.Constant(first.type, group * emit.lanes))
            emit.store(norm, norms, here)
            builder.store(builder.fdiv(emit.load(counts, here), norm), share)

    with exists(zero):
        multiply(zero)
        divide(zero)
    one = ir.Constant(zero.type, 1)
    with exists(one):
        multiply(one)
    with cgutils.for_range(builder, n_blocks) as blocks:
        current = blocks.index
        following = builder.add(current, one)
        beyond = builder.add(following, one)
        loaded = [builder.load(share) for share in shares]
        ratios = [emit.broadcast(share, lane) for share in loaded for lane in range(emit.lanes)]
        with exists(following):
            divide(following)
        starts = starts_of(current)
        with builder.if_else(builder.icmp_signed("<", beyond, n_blocks)) as (more, last):
            with more:
                emit.fill(totals, floor)
                next_starts = starts_of(beyond)
                with emit.steps(n_columns) as loop:
                    offset = emit.offset(loop)
                    emit.add_products(emit.load(x, offset), table, next_starts, offset, totals)
                    emit.combine(ratios, table, starts, offset, out)
            with last, emit.steps(n_columns) as loop:
                emit.combine(ratios, table, starts, emit.offset(loop), out)
    return context.get_dummy_value()


@intrinsic
def ratio_update(typingctx, x, counts, tiny, table, n_rows, norms, out):
    """One step of a multiplicative update over the first ``n_rows`` rows of a table.

    ``norms = rows @ x + s tiny``, where s is the number of lanes, and
    ``out += (counts / norms) @ rows``. Each row is read from memory once. While ``ROWS`` rows are
    added to ``out``, the quotients of the next ``ROWS`` rows and the products of those after them
    are computed, so that the processor waits neither for memory nor for a division. Sums begin at
    ``tiny``, because sums of small products could be subnormal numbers, with which the processor
    takes a hundred times as long.
    """

    def codegen(context, builder, signature, args):
        return _emit_ratio_update(context, builder, signature, args, False)

    return types.void(x, counts, tiny, table, n_rows, norms, out), codegen


@intrinsic
def ratio_update_of_rows(typingctx, x, counts, tiny, table, starts, n_rows, norms, out):
    """Do the same as :func:`ratio_update` for rows anywhere in the table.

    They are given by the positions of their first elements, ``starts[:n_rows]``.
    """

    def codegen(context, builder, signature, args):
        return _emit_ratio_update(context, builder, signature, args, True)

    return types.void(x, counts, tiny, table, starts, n_rows, norms, out), codegen


@intrinsic
def add_shares_of_rows(typingctx, x, counts, starts, n, tiny, weight, table, out):
    """Divide counts in proportion to products of a vector with rows, and add up the shares.

    ``out[j] += weight (counts[j] / (row_j @ x + s tiny)) x``, where s is the number of lanes. Rows
    of the table and of ``out``, which has its shape and its dtype or float64, are given by the
    positions of their first elements, ``starts[:n]``, and n is a multiple of ``ROWS``. A row that
    is given twice among ``ROWS`` rows gets both shares.
    """

    def codegen(context, builder, signature, args):
        emit = _Emitter(context, builder, signature.args[0].dtype)
        x, (n_columns,) = emit.array(signature.args[0], args[0])
        counts, _ = emit.array(signature.args[1], args[1])
        starts, _ = emit.array(signature.args[2], args[2])
        table, _ = emit.array(signature.args[6], args[6])
        out, _ = emit.array(signature.args[7], args[7])
        kind = signature.args[7].dtype
        floor, weight = emit.everywhere(args[4]), emit.everywhere(args[5])
        totals = [cgutils.alloca_once(builder, emit.vector) for _ in range(ROWS)]
        block = ir.Constant(args[3].type, ROWS)
        with cgutils.for_range(builder, builder.sdiv(args[3], block)) as blocks:
            first = builder.mul(blocks.index, block)
            places = [builder.add(first, ir.Constant(first.type, j)) for j in range(ROWS)]
            rows = [builder.load(builder.gep(starts, [place])) for place in places]
            emit.fill(totals, floor)
            with emit.steps(n_columns) as loop:
                offset = emit.offset(loop)
                emit.add_products(emit.load(x, offset), table, rows, offset, totals)
            shares = []
            for begin in range(0, ROWS, emit.lanes):
                norm = emit.sums([builder.load(total) for total in totals[begin:][: emit.lanes]])
                quotient = builder.fdiv(emit.load(counts, places[begin]), norm)
                share = builder.fmul(weight, quotient)
                shares += [emit.broadcast(share, lane) for lane in range(emit.lanes)]
            with emit.steps(n_columns) as loop:
                offset = emit.offset(loop)
                part = emit.load(x, offset)
                for row, share in zip(rows, shares, strict=True):
                    value = builder.fmul(share, part)
                    emit.add_to_part(value, out, kind, builder.add(row, offset))
        return context.get_dummy_value()

    return types.void(x, counts, starts, n, tiny, weight, table, out), codegen


@intrinsic
def add_shares_to_row(typingctx, x, counts, weights, starts, n, tiny, table, out):
    """Divide counts in proportion to products of a vector with rows, and add up what they share.

    ``out += Σ_j weights[j] (counts[j] / (row_j @ x + s tiny)) row_j``, where s is the number of
    lanes. Rows of the table are given as for :func:`add_shares_of_rows`, and each result is the
    same as there, bit for bit, if the shares of a row are added in the same order. ``out`` has the
    dtype of the table or float64.
    """

    def codegen(context, builder, signature, args):
        emit = _Emitter(context, builder, signature.args[0].dtype)
        x, (n_columns,) = emit.array(signature.args[0], args[0])
        counts, weights, starts, table, out = (
            emit.array(signature.args[i], args[i])[0] for i in (1, 2, 3, 6, 7)
        )
        wide = signature.args[7].dtype != emit.dtype
        doubles = ir.VectorType(ir.DoubleType(), DOUBLES)
        floor = emit.everywhere(args[5])
        totals = [cgutils.alloca_once(builder, emit.vector) for _ in range(ROWS)]
        block = ir.Constant(args[4].type, ROWS)

        def address(offset):
            return builder.bitcast(builder.gep(out, [offset]), doubles.as_pointer())

        with cgutils.for_range(builder, builder.sdiv(args[4], block)) as blocks:
            first = builder.mul(blocks.index, block)
            places = [builder.add(first, ir.Constant(first.type, j)) for j in range(ROWS)]
            rows = [builder.load(builder.gep(starts, [place])) for place in places]
            emit.fill(totals, floor)
            with emit.steps(n_columns) as loop:
                offset = emit.offset(loop)
                emit.add_products(emit.load(x, offset), table, rows, offset, totals)
            shares = []
            for begin in range(0, ROWS, emit.lanes):
                norm = emit.sums([builder.load(total) for total in totals[begin:][: emit.lanes]])
                quotient = builder.fdiv(emit.load(counts, places[begin]), norm)
                share = builder.fmul(emit.load(weights, places[begin]), quotient)
                shares += [emit.broadcast(share, lane) for lane in range(emit.lanes)]
            with emit.steps(n_columns) as loop:
                offset = emit.offset(loop)
                parts = [
                    builder.fmul(share, emit.load(table, builder.add(row, offset)))
                    for row, share in zip(rows, shares, strict=True)
                ]
                for begin in range(0, emit.lanes, DOUBLES if wide else emit.lanes):
                    if not wide:
                        value = emit.load(out, offset)
                        for part in parts:
                            value = builder.fadd(value, part)
                        emit.store(value, out, offset)
                        continue
                    place = address(builder.add(offset, ir.Constant(offset.type, begin)))
                    value = builder.load(place)
                    value.align = 8
                    lanes = list(range(begin, begin + DOUBLES))
                    for part in parts:
                        double = builder.fpext(emit.shuffle(part, part, lanes), doubles)
                        value = builder.fadd(double, value)
                    builder.store(value, place).align = 8
        return context.get_dummy_value()

    return types.void(x, counts, weights, starts, n, tiny, table, out), codegen


def _emit_add_rows(context, builder, signature, args, n_sums):
    """Emit one or more weighted sums of the same rows.

    Each sum has weights, products, and the two arrays to which it is added.
    """
    emit = _Emitter(context, builder, signature.args[0].dtype)
    table, (_, n_columns) = emit.array(signature.args[0], args[0])
    starts, _ = emit.array(signature.args[1], args[1])
    n, first = args[2], args[3]
    sums = []
    for i in range(4, 4 + 4 * n_sums, 4):
        arrays = [emit.array(signature.args[j], args[j])[0] for j in range(i, i + 4)]
        sums.append((*arrays, signature.args[i + 2].dtype))

    def add(offset, width, targets):
        """Each target has the factors of the rows, the address of the sums, and their dtype."""
        totals = [
            [cgutils.alloca_once(builder, emit.vector) for _ in range(width)] for _ in targets
        ]
        for total in totals:
            emit.fill(total, emit.constant(0.0))
        with cgutils.for_range(builder, n) as loop:
            start = builder.load(builder.gep(starts, [loop.index]))
            later = builder.load(builder.gep(starts, [builder.add(loop.index, n)]))
            later = builder.add(later, offset)
            for byte in range(0, width * _VECTOR, _LINE):
                column = ir.Constant(_INDEX, byte // emit.alignment)
                emit.fetch(table, builder.add(later, column))
            vectors = [
                emit.load(table, emit.plus(builder.add(start, offset), k)) for k in range(width)
            ]
            for (factors, _, _, _), total in zip(targets, totals, strict=True):
                factor = emit.everywhere(builder.load(builder.gep(factors, [loop.index])))
                for vector, address in zip(vectors, total, strict=True):
                    value = emit.multiply_add(factor, vector, builder.load(address))
                    builder.store(value, address)
        for (_, out, dtype, shift), total in zip(targets, totals, strict=True):
            for k, address in enumerate(total):
                place = emit.plus(builder.sub(offset, shift), k)
                emit.add_to_part(builder.load(address), out, dtype, place)

    def add_columns(begin, end, targets):
        width = _SUMS // len(targets)
        while width > 0:
            step = ir.Constant(_INDEX, width * emit.lanes)
            count = builder.udiv(builder.sub(end, begin), step)
            with cgutils.for_range(builder, count) as loop:
                add(builder.add(begin, builder.mul(loop.index, step)), width, targets)
            begin = builder.add(begin, builder.mul(count, step))
            width //= 2

    zero = ir.Constant(_INDEX, 0)
    plain = [(weights, total, dtype, zero) for weights, _, total, _, dtype in sums]
    more = [(products, linear, dtype, first) for _, products, _, linear, dtype in sums]
    add_columns(zero, first, plain)
    add_columns(first, n_columns, plain + more)
    return context.get_dummy_value()


@intrinsic
def add_rows(typingctx, table, starts, n, first, weights, products, sums, linear):
    """Add the weighted sum of rows of a table to arrays of float64, or of the table's dtype.

    ``sums += Σ_j weights[j] row_j`` and ``linear += Σ_j products[j] row_j[first:]``, where the
    column ``first`` is a multiple of ``LANES``. Rows are given by the positions of their first
    elements, ``starts[:n]``. Meanwhile the rows at ``starts[n : 2 n]``, which come next, are
    prefetched. The sum over the rows is computed in the precision of the table.
    """

    def codegen(context, builder, signature, args):
        return _emit_add_rows(context, builder, signature, args, 1)

    return types.void(table, starts, n, first, weights, products, sums, linear), codegen


@intrinsic
def add_rows_twice(typingctx, table, starts, n, first, w, p, sums, linear, v, q, more, others):
    """Do the same as :func:`add_rows` for two sets of factors, reading each row only once."""

    def codegen(context, builder, signature, args):
        return _emit_add_rows(context, builder, signature, args, 2)

    kinds = (table, starts, n, first, w, p, sums, linear, v, q, more, others)
    return types.void(*kinds), codegen


def _make_products(operation):
    """Make the function ``out[at] (operation)= Σ_k left[left_at + k] right[right_at + k]``.

    The elements are groups of ``LANES`` float64 numbers, which are multiplied lane by lane. All
    positions count groups.
    """

    @intrinsic
    def products(typingctx, left, left_at, right, right_at, n, out, at):
        def codegen(context, builder, signature, args):
            emit = _Emitter(context, builder, types.float64)
            (left, _), (right, _), (out, _) = (
                emit.array(signature.args[i], args[i]) for i in (0, 2, 5)
            )
            group = ir.Constant(_INDEX, LANES)
            parts = [ir.Constant(_INDEX, j) for j in range(0, LANES, emit.lanes)]
            left_at, right_at, at = (builder.mul(args[i], group) for i in (1, 3, 6))
            places = [builder.add(at, part) for part in parts]
            totals = [cgutils.alloca_once(builder, emit.vector) for _ in parts]
            for total, place in zip(totals, places, strict=True):
                builder.store(emit.load(out, place), total)
            with cgutils.for_range(builder, args[4]) as loop:
                here = builder.mul(loop.index, group)
                a, b = builder.add(left_at, here), builder.add(right_at, here)
                for total, part in zip(totals, parts, strict=True):
                    x = emit.load(left, builder.add(a, part))
                    y = emit.load(right, builder.add(b, part))
                    product = builder.fmul(x, y, flags=_CONTRACT)
                    change = getattr(builder, operation)
                    builder.store(change(builder.load(total), product, flags=_CONTRACT), total)
            for total, place in zip(totals, places, strict=True):
                emit.store(builder.load(total), out, place)
            return context.get_dummy_value()

        return types.void(left, left_at, right, right_at, n, out, at), codegen

    return products


add_products = _make_products("fadd")
subtract_products = _make_products("fsub")


# The functions below are for chains of states. Rows are float64 and have a multiple of ``DOUBLES``
# columns. Rows and elements are indexed by their position in the flat array.
_BIT = ir.IntType(1)
# This many vectors of a row are processed together; with two sums for each of them, they still fit
# into the registers.
_WIDTH = 3
_BELOW_ALL = -1e308


class _Chain(_Emitter):
    """Emits instructions on padded rows of float64, and on rows that end within a vector."""

    def __init__(self, context, builder):
        super().__init__(context, builder, types.float64)
        self.lane = ir.Constant(ir.VectorType(_INDEX, self.lanes), list(range(self.lanes)))

    def index(self, value):
        return ir.Constant(_INDEX, value)

    def variable(self, value=0.0):
        """A variable that holds a vector, set to a constant."""
        address = cgutils.alloca_once(self.builder, self.vector)
        self.builder.store(self.constant(value), address)
        return address

    def element_at(self, data, offset):
        return self.builder.load(self.builder.gep(data, [offset]))

    def add_to(self, address, value):
        self.builder.store(self.builder.fadd(self.builder.load(address), value), address)

    def tiles(self, n_columns, body):
        """Cover a row with tiles: ``body(first column, number of vectors)`` is called for each."""
        b = self.builder
        step = self.index(_WIDTH * self.lanes)
        n = b.udiv(n_columns, step)
        with cgutils.for_range(b, n) as loop:
            body(b.mul(loop.index, step), _WIDTH)
        done = b.mul(n, step)
        rest = b.sub(n_columns, done)
        for width in range(1, _WIDTH):
            with b.if_then(b.icmp_unsigned("==", rest, self.index(width * self.lanes))):
                body(done, width)

    def narrow_or_wide(self, n_columns, narrow, wide):
        """Call ``narrow(number of vectors)`` if a row is a single tile, and ``wide()`` if not."""
        b = self.builder
        for width in range(1, _WIDTH + 1):
            with b.if_then(b.icmp_unsigned("==", n_columns, self.index(width * self.lanes))):
                narrow(width)
        with b.if_then(b.icmp_unsigned(">", n_columns, self.index(_WIDTH * self.lanes))):
            wide()

    def padded(self, n_columns):
        """The number of columns, rounded up to whole vectors."""
        up = self.builder.add(n_columns, self.index(self.lanes - 1))
        return self.builder.and_(up, self.index(-self.lanes))

    def inside(self, column, n_columns):
        """A mask of the lanes, of the vector that begins at a column, that are within the row."""
        columns = self.builder.add(self.everywhere(column), self.lane)
        return self.builder.icmp_signed("<", columns, self.everywhere(n_columns))

    def load_part(self, data, offset, mask, other):
        """Load those lanes of a vector that the mask selects; memory of the rest is not read."""
        if mask is None:
            return self.load(data, offset)
        function = self._masked("load", self.vector, [self._mask_type(), self.vector])
        address = self._address(data, offset)
        return self.builder.call(function, [address, self._align(), mask, other])

    def store_part(self, value, data, offset, mask):
        if mask is None:
            self.store(value, data, offset)
            return
        function = self._masked("store", ir.VoidType(), [self._mask_type()], [self.vector])
        self.builder.call(function, [value, self._address(data, offset), self._align(), mask])

    def masks(self, column, width, n_columns):
        """Masks of the vectors of a tile; only the last vector may reach beyond the row."""
        last = self.inside(self.plus(column, width - 1), n_columns)
        return [None] * (width - 1) + [last]

    def _masked(self, name, result, last, first=()):
        pointer = self.vector.as_pointer()
        kind = ir.FunctionType(result, [*first, pointer, _WORD, *last])
        name = f"llvm.masked.{name}.v{self.lanes}f64.p0v{self.lanes}f64"
        return cgutils.get_or_insert_function(self.builder.module, kind, name)

    def _mask_type(self):
        return ir.VectorType(_BIT, self.lanes)

    def _align(self):
        return ir.Constant(_WORD, self.alignment)


@intrinsic
def center_rows(typingctx, values, first, n, factor, out):
    """``out = factor * (values - maximum of each row)`` for ``n`` rows.

    Returns the sum of the maxima. The rows of the flat ``out`` have no padding, but the last store
    may write up to a vector beyond the last row, for which there must be room.
    """

    def codegen(context, builder, signature, args):
        emit = _Chain(context, builder)
        values, (_, n_columns) = emit.array(signature.args[0], args[0])
        first, n, factor = args[1:4]
        out, _ = emit.array(signature.args[4], args[4])
        padded = emit.padded(n_columns)
        factor = emit.everywhere(factor)
        below = emit.constant(_BELOW_ALL)
        sum_of_maxima = cgutils.alloca_once_value(builder, ir.Constant(emit.element, 0.0))
        with cgutils.for_range(builder, n) as loop:
            start = builder.mul(builder.add(first, loop.index), n_columns)
            target = builder.mul(loop.index, n_columns)

            def load(column, width):
                masks = emit.masks(column, width, n_columns)
                here = builder.add(start, column)
                return [
                    emit.load_part(values, emit.plus(here, j), masks[j], below)
                    for j in range(width)
                ]

            def finish(maximum):
                sum_ = builder.fadd(builder.load(sum_of_maxima), maximum)
                builder.store(sum_, sum_of_maxima)
                return emit.everywhere(maximum)

            def subtract(parts, maximum, column):
                here = builder.add(target, column)
                for j, part in enumerate(parts):
                    difference = builder.fmul(factor, builder.fsub(part, maximum))
                    emit.store(difference, out, emit.plus(here, j))

            def narrow(width):
                parts = load(emit.index(0), width)
                largest = parts[0]
                for part in parts[1:]:
                    largest = emit.maximum(largest, part)
                subtract(parts, finish(emit.maximum_of_lanes(largest)), emit.index(0))

            def wide():
                largest = emit.variable(_BELOW_ALL)

                def search(column, width):
                    for part in load(column, width):
                        builder.store(emit.maximum(builder.load(largest), part), largest)

                emit.tiles(padded, search)
                maximum = finish(emit.maximum_of_lanes(builder.load(largest)))
                emit.tiles(
                    padded,
                    lambda column, width: subtract(load(column, width), maximum, column),
                )

            emit.narrow_or_wide(padded, narrow, wide)
        return builder.load(sum_of_maxima)

    return types.float64(values, first, n, factor, out), codegen


def _step(emit, n_rows, weights, source, table, factors, at, inverse, message, out, target):
    """Emit ``out = weights @ table * inverse * factors`` and return the sum of ``out``.

    ``message = (address, offset)``, if given, receives the product without the factors. ``n_rows``
    is either a Python integer, for which code without loops is emitted, or a value that is known
    only when the code runs.
    """
    builder = emit.builder
    table, (_, n_columns) = table
    result = emit.variable()
    inverse = emit.everywhere(inverse)

    def add_row(totals, row, start, width):
        weight = emit.everywhere(emit.element_at(weights, builder.add(source, row)))
        for j, total in enumerate(totals):
            part = emit.load(table, emit.plus(start, j))
            builder.store(emit.multiply_add(weight, part, builder.load(total)), total)

    def body(column, width, stride):
        here = builder.add(at, column)
        factor = [
            builder.fmul(emit.load(factors, emit.plus(here, j)), inverse) for j in range(width)
        ]
        # Each vector has two sums, one over the even and one over the odd rows. They do not wait
        # for each other, which halves the latency.
        totals = [[emit.variable() for _ in range(width)] for _ in range(2)]
        if isinstance(n_rows, int):
            for row in range(n_rows):
                add_row(totals[row % 2], emit.index(row), emit.index(row * stride), width)
        else:
            half = builder.lshr(builder.add(n_rows, emit.index(1)), emit.index(1))
            with cgutils.for_range(builder, half) as loop:
                for parity in range(2):
                    row = builder.add(builder.mul(loop.index, emit.index(2)), emit.index(parity))
                    start = builder.add(builder.mul(row, n_columns), column)
                    add_row(totals[parity], row, start, width)
        for j in range(width):
            product = builder.fadd(builder.load(totals[0][j]), builder.load(totals[1][j]))
            if message is not None:
                address, offset = message
                there = emit.plus(builder.add(offset, column), j)
                emit.store(builder.fmul(product, inverse), address, there)
            product = builder.fmul(product, factor[j])
            emit.store(product, out, emit.plus(builder.add(target, column), j))
            emit.add_to(result, product)

    if isinstance(n_rows, int):
        n_vectors = -(-n_rows // emit.lanes)
        body(emit.index(0), n_vectors, n_vectors * emit.lanes)
    else:
        emit.tiles(n_columns, lambda column, width: body(column, width, None))
    return emit.sum_of_lanes(builder.load(result))


def make_steps(n_states=None):
    """Make the two steps of the recursions, for this number of states or, if None, for any number.

    ``forward(alpha, at, table, n_states, factors, factors_at, inverse)``:
    ``alpha[at] = alpha[at - 1 row] @ table * inverse * factors``; it returns the sum of the row.

    ``backward(v, source, target, table, n_states, factors, factors_at, inverse, beta, at)``:
    ``beta[at] = v[source] @ table * inverse`` and ``v[target] = beta[at] * factors``; it returns
    the sum of the new ``v``.

    All arrays but the tables are flat.
    """

    @intrinsic
    def forward(typingctx, alpha, at, table, n, factors, factors_at, inverse):
        def codegen(context, builder, signature, args):
            emit = _Chain(context, builder)
            alpha, _ = emit.array(signature.args[0], args[0])
            table = emit.array(signature.args[2], args[2])
            factors, _ = emit.array(signature.args[4], args[4])
            at, factors_at, inverse = args[1], args[5], args[6]
            n = args[3] if n_states is None else n_states
            source = builder.sub(at, table[1][1])
            return _step(
                emit, n, alpha, source, table, factors, factors_at, inverse, None, alpha, at
            )

        return types.float64(alpha, at, table, n, factors, factors_at, inverse), codegen

    @intrinsic
    def backward(typingctx, v, source, target, table, n, factors, factors_at, inverse, beta, at):
        def codegen(context, builder, signature, args):
            emit = _Chain(context, builder)
            v, _ = emit.array(signature.args[0], args[0])
            source, target, factors_at, inverse = (args[i] for i in (1, 2, 6, 7))
            table = emit.array(signature.args[3], args[3])
            factors, _ = emit.array(signature.args[5], args[5])
            beta, _ = emit.array(signature.args[8], args[8])
            n = args[4] if n_states is None else n_states
            message = (beta, args[9])
            return _step(
                emit, n, v, source, table, factors, factors_at, inverse, message, v, target
            )

        signature = types.float64(
            v, source, target, table, n, factors, factors_at, inverse, beta, at
        )
        return signature, codegen

    return forward, backward


@intrinsic
def finish_rows(
    typingctx, alpha, beta, b, start, n, ratios, overlaps, values, posteriors, first, scale
):
    """Compute the posteriors of ``n`` rows, and the factors from which those of pairs are made.

    ``overlaps = Σ alpha beta``, ``posteriors = scale alpha beta / overlaps`` and
    ``beta *= b * ratios / overlaps``. Returns Σ alpha beta / overlaps * values. The first row is
    ``start`` in flat arrays, and ``first`` in ``values`` and ``posteriors``. These two and ``b``
    have no padding.
    """

    def codegen(context, builder, signature, args):
        emit = _Chain(context, builder)
        alpha, beta, b, ratios, overlaps = (
            emit.array(signature.args[i], args[i])[0] for i in (0, 1, 2, 5, 6)
        )
        start, n, first, scale = args[3], args[4], args[9], args[10]
        values, _ = emit.array(signature.args[7], args[7])
        posteriors, (_, n_columns) = emit.array(signature.args[8], args[8])
        padded = emit.padded(n_columns)
        one = ir.Constant(emit.element, 1.0)
        scale = emit.everywhere(scale)
        energy = emit.variable()
        with cgutils.for_range(builder, n) as loop:
            row = builder.add(start, loop.index)
            at = builder.mul(row, padded)
            b_at = builder.mul(row, n_columns)
            there = builder.mul(builder.add(first, loop.index), n_columns)

            def load(data, offset, width):
                return [emit.load(data, emit.plus(offset, j)) for j in range(width)]

            def load_both(column, width):
                here = builder.add(at, column)
                return load(alpha, here, width), load(beta, here, width)

            def add_products(left, right, total):
                for a, c in zip(left, right, strict=True):
                    total = emit.multiply_add(a, c, total)
                return total

            def normalize(overlap):
                overlap = emit.sum_of_lanes(overlap)
                builder.store(overlap, builder.gep(overlaps, [row]))
                inverse = builder.fdiv(one, overlap)
                factor = builder.fmul(inverse, emit.element_at(ratios, row))
                return emit.everywhere(inverse), emit.everywhere(factor)

            def complete(left, right, inverse, factor, column):
                width = len(left)
                masks = emit.masks(column, width, n_columns)
                emissions = load(b, builder.add(b_at, column), width)
                for j in range(width):
                    gamma = builder.fmul(builder.fmul(left[j], right[j]), inverse)
                    target = emit.plus(builder.add(there, column), j)
                    value = emit.load_part(values, target, masks[j], emit.constant(0.0))
                    old = builder.load(energy)
                    builder.store(emit.multiply_add(gamma, value, old), energy)
                    emit.store_part(builder.fmul(gamma, scale), posteriors, target, masks[j])
                    v = builder.fmul(right[j], builder.fmul(emissions[j], factor))
                    emit.store(v, beta, emit.plus(builder.add(at, column), j))

            def narrow(width):
                left, right = load_both(emit.index(0), width)
                inverse, factor = normalize(add_products(left, right, emit.constant(0.0)))
                complete(left, right, inverse, factor, emit.index(0))

            def wide():
                total = emit.variable()

                def multiply(column, width):
                    left, right = load_both(column, width)
                    builder.store(add_products(left, right, builder.load(total)), total)

                emit.tiles(padded, multiply)
                inverse, factor = normalize(builder.load(total))

                def complete_part(column, width):
                    left, right = load_both(column, width)
                    complete(left, right, inverse, factor, column)

                emit.tiles(padded, complete_part)

            emit.narrow_or_wide(padded, narrow, wide)
        return emit.sum_of_lanes(builder.load(energy))

    signature = types.float64(
        alpha, beta, b, start, n, ratios, overlaps, values, posteriors, first, scale
    )
    return signature, codegen


@intrinsic
def add_outer_products(typingctx, left, right, start, n, out):
    """``out += left[t].T @ right[t + 1]`` for ``n`` rows t of flat arrays, from ``start`` on."""

    def codegen(context, builder, signature, args):
        emit = _Chain(context, builder)
        left, _ = emit.array(signature.args[0], args[0])
        right, _ = emit.array(signature.args[1], args[1])
        start, n = args[2:4]
        out, (_, n_columns) = emit.array(signature.args[4], args[4])
        n_blocks = builder.udiv(n_columns, emit.index(emit.lanes))
        with cgutils.for_range(builder, n_blocks) as blocks:
            row = builder.mul(blocks.index, emit.index(emit.lanes))

            def body(column, width):
                totals = [[emit.variable() for _ in range(width)] for _ in range(emit.lanes)]
                with cgutils.for_range(builder, n) as loop:
                    at = builder.mul(builder.add(start, loop.index), n_columns)
                    from_left = builder.add(at, row)
                    from_right = builder.add(builder.add(at, n_columns), column)
                    parts = [emit.load(right, emit.plus(from_right, j)) for j in range(width)]
                    for i in range(emit.lanes):
                        here = builder.add(from_left, emit.index(i))
                        weight = emit.everywhere(emit.element_at(left, here))
                        for total, part in zip(totals[i], parts, strict=True):
                            old = builder.load(total)
                            builder.store(emit.multiply_add(weight, part, old), total)
                for i in range(emit.lanes):
                    target = builder.mul(builder.add(row, emit.index(i)), n_columns)
                    target = builder.add(target, column)
                    for j, total in enumerate(totals[i]):
                        here = emit.plus(target, j)
                        new = builder.fadd(builder.load(total), emit.load(out, here))
                        emit.store(new, out, here)

            emit.tiles(n_columns, body)
        return context.get_dummy_value()

    return types.void(left, right, start, n, out), codegen


def _in_blocks(emit, n_columns, emit_block):
    """Divide the columns of a row into blocks of up to ``_SUMS`` vectors.

    ``emit_block(offset, width)`` emits the instructions for ``width`` vectors from a column on.
    """
    builder = emit.builder
    step = ir.Constant(_INDEX, _SUMS * emit.lanes)
    count = builder.udiv(n_columns, step)
    with cgutils.for_range(builder, count) as loop:
        emit_block(builder.mul(loop.index, step), _SUMS)
    begin = builder.mul(count, step)
    rest = builder.sub(n_columns, begin)
    for width in range(1, _SUMS):
        size = ir.Constant(_INDEX, width * emit.lanes)
        with builder.if_then(builder.icmp_unsigned("==", rest, size)):
            emit_block(begin, width)


@intrinsic
def subtract_rows(typingctx, factors, at, n, table, out):
    """``out -= Σ_{j<n} factors[at, j] table[j]``, for rows that :func:`sum_rows` describes.

    The sums stay in registers, so that every entry of the table is read once and ``out`` too.
    """

    def codegen(context, builder, signature, args):
        emit = _Emitter(context, builder, signature.args[3].dtype)
        factors, (_, n_factors) = emit.array(signature.args[0], args[0])
        table, (_, n_columns) = emit.array(signature.args[3], args[3])
        out, _ = emit.array(signature.args[4], args[4])
        first = builder.mul(args[1], n_factors)

        def emit_block(offset, width):
            totals = [cgutils.alloca_once(builder, emit.vector) for _ in range(width)]
            places = [emit.plus(offset, k) for k in range(width)]
            for total, place in zip(totals, places, strict=True):
                builder.store(emit.load(out, place), total)
            with cgutils.for_range(builder, args[2]) as loop:
                factor = builder.load(builder.gep(factors, [builder.add(first, loop.index)]))
                factor = emit.everywhere(builder.fneg(factor))
                row = builder.mul(loop.index, n_columns)
                for total, place in zip(totals, places, strict=True):
                    vector = emit.load(table, builder.add(row, place))
                    builder.store(emit.multiply_add(factor, vector, builder.load(total)), total)
            for total, place in zip(totals, places, strict=True):
                emit.store(builder.load(total), out, place)

        _in_blocks(emit, n_columns, emit_block)
        return context.get_dummy_value()

    return types.void(factors, at, n, table, out), codegen


@intrinsic
def sum_rows(typingctx, start, table, starts, n, out, at):
    """Write the sum of ``start`` and of ``n`` rows of a table to the row ``at`` of ``out``.

    Rows of the table are given by the positions of their first elements, ``starts[:n]``. All rows
    are float64 and have a multiple of ``DOUBLES`` elements.
    """

    def codegen(context, builder, signature, args):
        emit = _Emitter(context, builder, signature.args[1].dtype)
        start, _ = emit.array(signature.args[0], args[0])
        table, (_, n_columns) = emit.array(signature.args[1], args[1])
        starts, _ = emit.array(signature.args[2], args[2])
        out, _ = emit.array(signature.args[4], args[4])
        target = builder.mul(args[5], n_columns)

        def emit_block(offset, width):
            totals = [cgutils.alloca_once(builder, emit.vector) for _ in range(width)]
            for k, total in enumerate(totals):
                builder.store(emit.load(start, emit.plus(offset, k)), total)
            with cgutils.for_range(builder, args[3]) as loop:
                place = builder.add(builder.load(builder.gep(starts, [loop.index])), offset)
                for k, total in enumerate(totals):
                    vector = emit.load(table, emit.plus(place, k))
                    builder.store(builder.fadd(builder.load(total), vector), total)
            for k, total in enumerate(totals):
                emit.store(builder.load(total), out, emit.plus(builder.add(target, offset), k))

        _in_blocks(emit, n_columns, emit_block)
        return context.get_dummy_value()

    return types.void(start, table, starts, n, out, at), codegen


@intrinsic
def add_to_rows(typingctx, rows, at, factor, starts, n, table):
    """Add the row ``at`` of ``rows``, times a factor, to ``n`` rows of a table.

    The rows are those that :func:`sum_rows` describes.
    """

    def codegen(context, builder, signature, args):
        emit = _Emitter(context, builder, signature.args[5].dtype)
        rows, (_, n_columns) = emit.array(signature.args[0], args[0])
        starts, _ = emit.array(signature.args[3], args[3])
        table, _ = emit.array(signature.args[5], args[5])
        source = builder.mul(args[1], n_columns)
        factor = emit.everywhere(args[2])

        def emit_block(offset, width):
            first = builder.add(source, offset)
            vectors = [
                builder.fmul(emit.load(rows, emit.plus(first, k)), factor) for k in range(width)
            ]
            with cgutils.for_range(builder, args[4]) as loop:
                start = builder.add(builder.load(builder.gep(starts, [loop.index])), offset)
                for k, vector in enumerate(vectors):
                    place = emit.plus(start, k)
                    emit.store(builder.fadd(emit.load(table, place), vector), table, place)

        _in_blocks(emit, n_columns, emit_block)
        return context.get_dummy_value()

    return types.void(rows, at, factor, starts, n, table), codegen


def _groups_of_rows(emit, n, n_columns):
    """A loop over groups of as many rows as a vector has lanes.

    It yields the number of the first row of a group, and where its rows begin.
    """
    builder = emit.builder
    lanes = ir.Constant(_INDEX, emit.lanes)
    up = builder.add(n, ir.Constant(_INDEX, emit.lanes - 1))

    @contextmanager
    def loop():
        with cgutils.for_range(builder, builder.udiv(up, lanes)) as group:
            first = builder.mul(group.index, lanes)
            rows = [builder.add(first, ir.Constant(_INDEX, i)) for i in range(emit.lanes)]
            yield first, [builder.mul(row, n_columns) for row in rows]

    return loop()


@intrinsic
def subtract_maxima(typingctx, rows, n, maxima):
    """Subtract from each of the first ``n`` rows its largest element, and write that to ``maxima``.

    Rows are float64 and have a multiple of ``DOUBLES`` elements. ``DOUBLES`` rows are processed at
    a time; there must be room for the last ones, which may be more than ``n``.
    """

    def codegen(context, builder, signature, args):
        emit = _Emitter(context, builder, signature.args[0].dtype)
        rows, (_, n_columns) = emit.array(signature.args[0], args[0])
        maxima, _ = emit.array(signature.args[2], args[2])
        largest = [cgutils.alloca_once(builder, emit.vector) for _ in range(emit.lanes)]
        with _groups_of_rows(emit, args[1], n_columns) as (first, starts):
            emit.fill(largest, emit.constant(_BELOW_ALL))
            with emit.steps(n_columns) as loop:
                offset = emit.offset(loop)
                for most, start in zip(largest, starts, strict=True):
                    vector = emit.load(rows, builder.add(start, offset))
                    builder.store(emit.maximum(vector, builder.load(most)), most)
            found = emit.across([builder.load(most) for most in largest], emit.maximum)
            emit.store(found, maxima, first)
            most_of_row = [emit.broadcast(found, lane) for lane in range(emit.lanes)]
            with emit.steps(n_columns) as loop:
                offset = emit.offset(loop)
                for most, start in zip(most_of_row, starts, strict=True):
                    place = builder.add(start, offset)
                    emit.store(builder.fsub(emit.load(rows, place), most), rows, place)
        return context.get_dummy_value()

    return types.void(rows, n, maxima), codegen


@intrinsic
def sums_and_products(typingctx, rows, others, n, sums, products):
    """Σ_k rows[i, k] and Σ_k rows[i, k] others[i, k] of the first ``n`` rows.

    The rows are those that :func:`subtract_maxima` describes.
    """

    def codegen(context, builder, signature, args):
        emit = _Emitter(context, builder, signature.args[0].dtype)
        rows, (_, n_columns) = emit.array(signature.args[0], args[0])
        others, _ = emit.array(signature.args[1], args[1])
        sums, _ = emit.array(signature.args[3], args[3])
        products, _ = emit.array(signature.args[4], args[4])
        totals, weighted = (
            [cgutils.alloca_once(builder, emit.vector) for _ in range(emit.lanes)] for _ in range(2)
        )
        with _groups_of_rows(emit, args[2], n_columns) as (first, starts):
            emit.fill(totals, emit.constant(0.0))
            emit.fill(weighted, emit.constant(0.0))
            with emit.steps(n_columns) as loop:
                offset = emit.offset(loop)
                for total, product, start in zip(totals, weighted, starts, strict=True):
                    place = builder.add(start, offset)
                    vector = emit.load(rows, place)
                    builder.store(builder.fadd(builder.load(total), vector), total)
                    other = emit.load(others, place)
                    new = emit.multiply_add(vector, other, builder.load(product))
                    builder.store(new, product)
            emit.store(emit.sums([builder.load(total) for total in totals]), sums, first)
            emit.store(emit.sums([builder.load(total) for total in weighted]), products, first)
        return context.get_dummy_value()

    return types.void(rows, others, n, sums, products), codegen
