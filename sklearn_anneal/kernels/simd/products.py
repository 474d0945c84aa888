"""Products of a vector with a few rows of a table, as explicit vector instructions.

Compilers do badly with loops over short rows: they unroll them for lengths that never occur, and
they cannot vectorise a sum whose order is fixed. The functions here therefore write out
instructions on vectors of 32 bytes, and work on eight rows at a time where that helps. As the order
of every sum is written out too, it is the same on every machine. Rows have a multiple of ``LANES``
entries. Tables that are processed eight rows at a time have a multiple of ``ROWS`` rows.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from .emitter import (
    CONTRACT,
    DOUBLES,
    INDEX,
    LANES,
    LINE,
    ROWS,
    SUMS,
    TOGETHER,
    VECTOR,
    WORD,
    Emitter,
)


@intrinsic
def total(typingctx, x):
    """The sum of the entries of a vector."""

    def codegen(context, builder, signature, args):
        emit = Emitter(context, builder, signature.args[0].dtype)
        x, (n,) = emit.array(signature.args[0], args[0])
        lanes = cgutils.alloca_once(builder, emit.vector)
        builder.store(emit.constant(0.0), lanes)
        with emit.steps(n) as loop:
            part = emit.load(x, emit.offset(loop))
            builder.store(builder.fadd(part, builder.load(lanes)), lanes)
        return emit.sum_of_lanes(builder.load(lanes))

    return x.dtype(x), codegen


@intrinsic
def beginning_as_rows(typingctx, memory, n_rows, n_columns):
    """The beginning of a vector as a matrix; numpy's functions for it take longer to compile."""
    kind = types.Array(memory.dtype, 2, "C")

    def codegen(context, builder, signature, args):
        emit = Emitter(context, builder, signature.args[0].dtype)
        data, _ = emit.array(signature.args[0], args[0])
        data = emit.address(data, ir.Constant(INDEX, 0), builder.mul(args[1], args[2]))
        given = context.make_array(signature.args[0])(context, builder, args[0])
        rows = context.make_array(kind)(context, builder)
        strides = [builder.mul(args[2], given.itemsize), given.itemsize]
        populate_array(
            rows, data, list(args[1:]), strides, given.itemsize, given.meminfo, given.parent
        )
        return impl_ret_borrowed(context, builder, kind, rows._getvalue())

    return kind(memory, types.int64, types.int64), codegen


@intrinsic
def fetch_rows(typingctx, table, rows, first, last):
    """Prefetch the rows ``rows[first:last]`` of a table, which will be read soon."""

    def codegen(context, builder, signature, args):
        emit = Emitter(context, builder, signature.args[0].dtype)
        table, (_, n_columns) = emit.array(signature.args[0], args[0])
        rows, _ = emit.array(signature.args[1], args[1])
        line = ir.Constant(INDEX, LINE // emit.alignment)
        n_lines = builder.udiv(builder.add(n_columns, builder.sub(line, line.type(1))), line)
        with cgutils.for_range(builder, args[3], start=args[2]) as loop:
            row = builder.sext(emit.element_at(rows, loop.index), INDEX)
            start = builder.mul(row, n_columns)
            with cgutils.for_range(builder, n_lines) as lines:
                emit.fetch(table, builder.add(start, builder.mul(lines.index, line)), level=2)
        return context.get_dummy_value()

    return types.void(table, rows, first, last), codegen


@intrinsic
def fetch_entries(typingctx, values, first, last):
    """Prefetch ``values[first:last]``, which will be read soon."""

    def codegen(context, builder, signature, args):
        emit = Emitter(context, builder, signature.args[0].dtype)
        values, _ = emit.array(signature.args[0], args[0])
        line = ir.Constant(INDEX, LINE // emit.alignment)
        with cgutils.for_range_slice(builder, args[1], args[2], line) as (index, _):
            emit.fetch(values, index, level=2)
        return context.get_dummy_value()

    return types.void(values, first, last), codegen


@intrinsic
def fetch_entry(typingctx, x, i, k):
    """Prefetch entry k of row i, which will be changed soon."""

    def codegen(context, builder, signature, args):
        emit = Emitter(context, builder, signature.args[0].dtype)
        x, (_, n) = emit.array(signature.args[0], args[0])
        row = builder.mul(builder.sext(args[1], INDEX), n)
        emit.fetch(x, builder.add(row, builder.sext(args[2], INDEX)), level=1)
        return context.get_dummy_value()

    return types.void(x, i, k), codegen


@intrinsic
def multiplicative_step(typingctx, base, factor, e, acc, x, n):
    """``acc *= e`` and ``x = base + factor * acc``; returns the sum of |change of x|.

    Only the first n entries change, a multiple of ``LANES``.
    """

    def codegen(context, builder, signature, args):
        emit = Emitter(context, builder, signature.args[0].dtype)
        base, _ = emit.array(signature.args[0], args[0])
        e, _ = emit.array(signature.args[2], args[2])
        acc, _ = emit.array(signature.args[3], args[3])
        x, _ = emit.array(signature.args[4], args[4])
        factor = emit.everywhere(args[1])
        changes = cgutils.alloca_once(builder, emit.vector)
        builder.store(emit.constant(0.0), changes)
        with emit.steps(args[5]) as loop:
            here = emit.offset(loop)
            share = builder.fmul(emit.load(acc, here), emit.load(e, here))
            emit.store(share, acc, here)
            old = emit.load(x, here)
            new = emit.multiply_add(factor, share, emit.load(base, here))
            emit.store(new, x, here)
            change = emit.maximum(builder.fsub(new, old), builder.fsub(old, new))
            builder.store(builder.fadd(change, builder.load(changes)), changes)
        return emit.sum_of_lanes(builder.load(changes))

    return base.dtype(base, factor, e, acc, x, types.int64), codegen


def _emit_ratio_update(context, builder, signature, args, gathered):
    """Emit :func:`ratio_update`, for the first rows of a table or for ``gathered`` rows."""
    emit = Emitter(context, builder, signature.args[0].dtype)
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
        return [emit.element_at(rows, place) for place in places]

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


def _emit_update_together(context, builder, signature, args, keeps):
    """Emit :func:`ratio_update_together`, which stores the norms if it ``keeps`` them."""
    emit = Emitter(context, builder, signature.args[0].dtype)
    x, (n_elements, _) = emit.array(signature.args[0], args[0])
    counts, (_, n_counts) = emit.array(signature.args[1], args[1])
    table, (n_rows, width) = emit.array(signature.args[4], args[4])
    out, _ = emit.array(signature.args[5], args[5])
    norms = emit.array(signature.args[6], args[6])[0] if keeps else None
    floor, vectors = emit.everywhere(args[3]), range(0, TOGETHER, emit.lanes)
    # Eight sums are computed at a time, which do not wait for each other.
    block = ROWS // len(vectors)
    sums = [[cgutils.alloca_once(builder, emit.vector) for _ in vectors] for _ in range(block)]

    def number(value):
        return ir.Constant(INDEX, value)

    def parts_from(begin):
        return [builder.add(begin, number(i)) for i in vectors]

    def places(k):
        return parts_from(builder.mul(k, number(TOGETHER)))

    def places_of_counts(row):
        return parts_from(builder.add(builder.mul(row, n_counts), args[2]))

    def factors(starts, k):
        for start in starts:
            yield emit.everywhere(emit.element_at(table, builder.add(start, k)))

    last, infinite = builder.sub(n_rows, number(1)), emit.constant(np.inf)
    n_blocks = builder.sdiv(builder.add(n_rows, number(block - 1)), number(block))
    with cgutils.for_range(builder, n_blocks) as blocks:
        begin = builder.mul(blocks.index, number(block))
        own = rows = [builder.add(begin, number(j)) for j in range(block)]
        exist = [builder.icmp_signed("<", row, n_rows) for row in rows]
        # Rows beyond the last one get no counts, because their sums are infinite.
        rows = [builder.select(exists, row, last) for row, exists in zip(rows, exist, strict=True)]
        starts = [builder.mul(row, width) for row in rows]
        for some, exists in zip(sums, exist, strict=True):
            emit.fill(some, builder.select(exists, floor, infinite))
        with cgutils.for_range(builder, n_elements) as loop:
            parts = [emit.load(x, place) for place in places(loop.index)]
            for factor, some in zip(factors(starts, loop.index), sums, strict=True):
                for part, each in zip(parts, some, strict=True):
                    value = emit.multiply_add(part, factor, builder.load(each))
                    builder.store(value, each)
        for row, some in zip(own if keeps else (), sums, strict=False):
            for place, each in zip(places(row), some, strict=True):
                emit.store(builder.load(each), norms, place)
        ratios = [
            [
                builder.fdiv(emit.load(counts, place), builder.load(each))
                for place, each in zip(places_of_counts(row), some, strict=True)
            ]
            for row, some in zip(rows, sums, strict=True)
        ]
        with cgutils.for_range(builder, n_elements) as loop:
            here = places(loop.index)
            found = [emit.load(out, place) for place in here]
            for factor, some in zip(factors(starts, loop.index), ratios, strict=True):
                found = [
                    emit.multiply_add(ratio, factor, value)
                    for ratio, value in zip(some, found, strict=True)
                ]
            for value, place in zip(found, here, strict=True):
                emit.store(value, out, place)
    return context.get_dummy_value()


@intrinsic
def ratio_update_together(typingctx, x, counts, first, tiny, table, out):
    """Make one step of a multiplicative update with ``TOGETHER`` vectors at a time.

    Vector i is ``x[:, i]``, and its counts are ``counts[:, first + i]``: for each of them,
    ``out += (counts / norms) @ rows`` with ``norms = rows @ x + tiny``, over all rows of the table.
    Elements of rows that ``x`` does not have are left out. As vectors fill the lanes, no sum over
    lanes is needed, and rows need not have a multiple of ``LANES`` elements.
    """

    def codegen(context, builder, signature, args):
        return _emit_update_together(context, builder, signature, args, keeps=False)

    return types.void(x, counts, types.int64, tiny, table, out), codegen


@intrinsic
def ratio_update_together_with_norms(typingctx, x, counts, first, tiny, table, out, norms):
    """Do the same, and store the norms in as many rows as the table has, up to whole ``ROWS``."""

    def codegen(context, builder, signature, args):
        return _emit_update_together(context, builder, signature, args, keeps=True)

    return types.void(x, counts, types.int64, tiny, table, out, norms), codegen


@intrinsic
def add_shares_of_rows(typingctx, x, counts, starts, n, tiny, weight, table, out):
    """Divide counts in proportion to products of a vector with rows, and add up the shares.

    ``out[j] += weight (counts[j] / (row_j @ x + s tiny)) x``, where s is the number of lanes. Rows
    of the table and of ``out``, which has its shape and its dtype or float64, are given by the
    positions of their first elements, ``starts[:n]``, and n is a multiple of ``ROWS``. A row that
    is given twice among ``ROWS`` rows gets both shares.
    """

    def codegen(context, builder, signature, args):
        emit = Emitter(context, builder, signature.args[0].dtype)
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
            rows = [emit.element_at(starts, place) for place in places]
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
        emit = Emitter(context, builder, signature.args[0].dtype)
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
            return builder.bitcast(emit.address(out, offset, DOUBLES), doubles.as_pointer())

        with cgutils.for_range(builder, builder.sdiv(args[4], block)) as blocks:
            first = builder.mul(blocks.index, block)
            places = [builder.add(first, ir.Constant(first.type, j)) for j in range(ROWS)]
            rows = [emit.element_at(starts, place) for place in places]
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
    emit = Emitter(context, builder, signature.args[0].dtype)
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
            start = emit.element_at(starts, loop.index)
            later = emit.element_at(starts, builder.add(loop.index, n))
            later = builder.add(later, offset)
            for byte in range(0, width * VECTOR, LINE):
                column = ir.Constant(INDEX, byte // emit.alignment)
                emit.fetch(table, builder.add(later, column))
            vectors = [
                emit.load(table, emit.plus(builder.add(start, offset), k)) for k in range(width)
            ]
            for (factors, _, _, _), total in zip(targets, totals, strict=True):
                factor = emit.everywhere(emit.element_at(factors, loop.index))
                for vector, address in zip(vectors, total, strict=True):
                    value = emit.multiply_add(factor, vector, builder.load(address))
                    builder.store(value, address)
        for (_, out, dtype, shift), total in zip(targets, totals, strict=True):
            for k, address in enumerate(total):
                place = emit.plus(builder.sub(offset, shift), k)
                emit.add_to_part(builder.load(address), out, dtype, place)

    def add_columns(begin, end, targets):
        width = SUMS // len(targets)
        while width > 0:
            step = ir.Constant(INDEX, width * emit.lanes)
            count = builder.udiv(builder.sub(end, begin), step)
            with cgutils.for_range(builder, count) as loop:
                add(builder.add(begin, builder.mul(loop.index, step)), width, targets)
            begin = builder.add(begin, builder.mul(count, step))
            width //= 2

    zero = ir.Constant(INDEX, 0)
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
            emit = Emitter(context, builder, types.float64)
            (left, _), (right, _), (out, _) = (
                emit.array(signature.args[i], args[i]) for i in (0, 2, 5)
            )
            group = ir.Constant(INDEX, LANES)
            parts = [ir.Constant(INDEX, j) for j in range(0, LANES, emit.lanes)]
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
                    product = builder.fmul(x, y, flags=CONTRACT)
                    change = getattr(builder, operation)
                    builder.store(change(builder.load(total), product, flags=CONTRACT), total)
            for total, place in zip(totals, places, strict=True):
                emit.store(builder.load(total), out, place)
            return context.get_dummy_value()

        return types.void(left, left_at, right, right_at, n, out, at), codegen

    return products


add_products = _make_products("fadd")
subtract_products = _make_products("fsub")


def _emit_sums_of_lanes(emit, whole):
    """Return the sums over the lanes before each one, by doubling, and the sum of all."""
    distance = 1
    while distance < LANES:
        whole = emit.builder.fadd(whole, emit.shifted(whole, distance))
        distance *= 2
    total = emit.builder.extract_element(whole, ir.Constant(WORD, LANES - 1))
    return emit.shifted(whole, 1), total


def _emit_sums_of_products(emit, x, of_x, y, of_y, n, sums):
    """Store the sums of products of two rows over each lane.

    Returns the vector of sums of all lanes before each one, and the sum of all.
    """
    builder = emit.builder
    lanes = cgutils.alloca_once(builder, emit.vector)
    builder.store(emit.constant(0.0), lanes)
    with emit.steps(n) as loop:
        here = emit.offset(loop)
        a, b = emit.load(x, builder.add(of_x, here)), emit.load(y, builder.add(of_y, here))
        sum_ = emit.multiply_add(a, b, builder.load(lanes))
        builder.store(sum_, lanes)
        emit.store(sum_, sums, here)
    return _emit_sums_of_lanes(emit, builder.load(lanes))


def _emit_entry_beyond(emit, sums, n, before, least, order):
    """Return the index of the first sum above a number, given what is to be added to sums."""
    builder = emit.builder
    rank = cgutils.alloca_once(builder, INDEX)
    builder.store(ir.Constant(INDEX, 0), rank)
    least = emit.everywhere(least)
    with emit.steps(n) as loop:
        sum_ = builder.fadd(before, emit.load(sums, emit.offset(loop)))
        behind = builder.bitcast(builder.fcmp_ordered("<=", sum_, least), ir.IntType(LANES))
        behind = builder.zext(builder.ctpop(behind), INDEX)
        builder.store(builder.add(builder.load(rank), behind), rank)
    rank, last = builder.load(rank), builder.sub(n, ir.Constant(INDEX, 1))
    rank = builder.select(builder.icmp_unsigned(">", rank, last), last, rank)
    return emit.element_at(order, rank)


@intrinsic
def drawn_entry(typingctx, x, i, y, j, u, order, sums):
    """Draw an index in proportion to the products of rows i of x and j of y, none of them negative.

    ``order`` has the indices of entries, sorted by their remainders modulo ``LANES`` and then by
    size. The result is the first one such that the products up to there have more than the share
    ``u`` of the sum of all, with u in [0, 1), up to rounding; it is −1 if no product is positive.
    ``sums`` has the length of the rows, and is overwritten. There is no branch that depends on
    the numbers, because processors guess wrong where random numbers decide.
    """

    def codegen(context, builder, signature, args):
        emit = Emitter(context, builder, signature.args[0].dtype, LANES)
        x, (_, n) = emit.array(signature.args[0], args[0])
        (y, _), (order, _), (sums, _) = (emit.array(signature.args[i], args[i]) for i in (2, 5, 6))
        of_x, of_y = builder.mul(args[1], n), builder.mul(builder.sext(args[3], INDEX), n)
        before, total = _emit_sums_of_products(emit, x, of_x, y, of_y, n, sums)
        found = _emit_entry_beyond(emit, sums, n, before, builder.fmul(args[4], total), order)
        positive = builder.fcmp_ordered(">", total, ir.Constant(emit.element, 0.0))
        return builder.select(positive, found, ir.Constant(INDEX, -1))

    return types.int64(x, types.int64, y, j, u, order, sums), codegen


@intrinsic
def multiply_rows(typingctx, x, i, y, j, out):
    """Multiply row i of x and row j of y, entry by entry."""

    def codegen(context, builder, signature, args):
        emit = Emitter(context, builder, signature.args[0].dtype, LANES)
        x, (_, n) = emit.array(signature.args[0], args[0])
        (y, _), (out, _) = (emit.array(signature.args[i], args[i]) for i in (2, 4))
        of_x, of_y = builder.mul(args[1], n), builder.mul(builder.sext(args[3], INDEX), n)
        with emit.steps(n) as loop:
            here = emit.offset(loop)
            a, b = emit.load(x, builder.add(of_x, here)), emit.load(y, builder.add(of_y, here))
            emit.store(builder.fmul(a, b), out, here)
        return context.get_dummy_value()

    return types.void(x, types.int64, y, j, out), codegen


@intrinsic
def add_up(typingctx, x, sums, before):
    """Prepare draws by :func:`entry_beyond` in proportion to x, of which no entry is negative.

    ``sums`` receives sums of entries of x, to which ``before``, with ``LANES`` entries, is to be
    added. The sum of all is returned.
    """

    def codegen(context, builder, signature, args):
        emit = Emitter(context, builder, signature.args[0].dtype, LANES)
        (x, (n,)), (sums, _), (before, _) = (
            emit.array(signature.args[i], args[i]) for i in range(3)
        )
        lanes = cgutils.alloca_once(builder, emit.vector)
        builder.store(emit.constant(0.0), lanes)
        with emit.steps(n) as loop:
            here = emit.offset(loop)
            sum_ = builder.fadd(emit.load(x, here), builder.load(lanes))
            builder.store(sum_, lanes)
            emit.store(sum_, sums, here)
        of_lanes, total = _emit_sums_of_lanes(emit, builder.load(lanes))
        emit.store(of_lanes, before, ir.Constant(INDEX, 0))
        return total

    return x.dtype(x, sums, before), codegen


@intrinsic
def entry_beyond(typingctx, sums, before, least, order):
    """Return the index that belongs to the first of the ``sums`` above a number.

    ``order`` is that of :func:`drawn_entry`. If no sum is above it, the last index is returned.
    """

    def codegen(context, builder, signature, args):
        emit = Emitter(context, builder, signature.args[0].dtype, LANES)
        sums, (n,) = emit.array(signature.args[0], args[0])
        (before, _), (order, _) = (emit.array(signature.args[i], args[i]) for i in (1, 3))
        before = emit.load(before, ir.Constant(INDEX, 0))
        return _emit_entry_beyond(emit, sums, n, before, args[2], order)

    return types.int64(sums, before, sums.dtype, order), codegen


@intrinsic
def replace_entry(typingctx, x, i, k, value):
    """Set entry k of row i by storing the ``LANES`` entries around it.

    A load of these entries soon after takes them from the store, while it would have to wait until
    a store of a single entry has reached the cache.
    """

    def codegen(context, builder, signature, args):
        emit = Emitter(context, builder, signature.args[0].dtype, LANES)
        x, (_, n) = emit.array(signature.args[0], args[0])
        _, i, k, value = args
        first = builder.and_(k, ir.Constant(INDEX, -LANES))
        lane = emit.everywhere(builder.trunc(builder.sub(k, first), WORD))
        here = builder.icmp_signed("==", lane, ir.Constant(lane.type, list(range(LANES))))
        row = builder.mul(builder.sext(i, INDEX), n)
        first = builder.add(row, first)
        changed = builder.select(here, emit.everywhere(value), emit.load(x, first))
        # Without this store the compiler makes the next one a store of a single entry.
        builder.store(value, emit.address(x, builder.add(row, k)))
        emit.store(changed, x, first)
        return context.get_dummy_value()

    return types.void(x, i, types.int64, value), codegen
