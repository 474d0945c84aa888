"""Sums over rows of tables that are picked by their numbers, as explicit vector instructions."""

from __future__ import annotations

from contextlib import contextmanager

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .emitter import BELOW_ALL, INDEX, SUMS, Emitter


def _in_blocks(emit, n_columns, emit_block):
    """Divide the columns of a row into blocks of up to ``SUMS`` vectors.

    ``emit_block(offset, width)`` emits the instructions for ``width`` vectors from a column on.
    """
    builder = emit.builder
    step = ir.Constant(INDEX, SUMS * emit.lanes)
    count = builder.udiv(n_columns, step)
    with cgutils.for_range(builder, count) as loop:
        emit_block(builder.mul(loop.index, step), SUMS)
    begin = builder.mul(count, step)
    rest = builder.sub(n_columns, begin)
    for width in range(1, SUMS):
        size = ir.Constant(INDEX, width * emit.lanes)
        with builder.if_then(builder.icmp_unsigned("==", rest, size)):
            emit_block(begin, width)


@intrinsic
def subtract_rows(typingctx, factors, at, n, table, out):
    """``out -= Σ_{j<n} factors[at, j] table[j]``, for rows that :func:`sum_rows` describes.

    The sums stay in registers, so that every entry of the table is read once and ``out`` too.
    """

    def codegen(context, builder, signature, args):
        emit = Emitter(context, builder, signature.args[3].dtype)
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
                factor = emit.element_at(factors, builder.add(first, loop.index))
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
def squared_distances(typingctx, points, at, n, table, out):
    """``out = Σ_{j<n} (table[j] − points[at, j])²``, for rows that :func:`sum_rows` describes.

    The sums stay in registers, as those of :func:`subtract_rows`.
    """

    def codegen(context, builder, signature, args):
        emit = Emitter(context, builder, signature.args[3].dtype)
        points, (_, n_coordinates) = emit.array(signature.args[0], args[0])
        table, (_, n_columns) = emit.array(signature.args[3], args[3])
        out, _ = emit.array(signature.args[4], args[4])
        first = builder.mul(args[1], n_coordinates)

        def emit_block(offset, width):
            totals = [cgutils.alloca_once(builder, emit.vector) for _ in range(width)]
            places = [emit.plus(offset, k) for k in range(width)]
            emit.fill(totals, emit.constant(0.0))
            with cgutils.for_range(builder, args[2]) as loop:
                point = emit.element_at(points, builder.add(first, loop.index))
                point = emit.everywhere(point)
                row = builder.mul(loop.index, n_columns)
                for total, place in zip(totals, places, strict=True):
                    step = builder.fsub(emit.load(table, builder.add(row, place)), point)
                    builder.store(emit.multiply_add(step, step, builder.load(total)), total)
            for total, place in zip(totals, places, strict=True):
                emit.store(builder.load(total), out, place)

        _in_blocks(emit, n_columns, emit_block)
        return context.get_dummy_value()

    return types.void(points, at, n, table, out), codegen


@intrinsic
def sum_rows(typingctx, start, table, starts, n, out, at):
    """Write the sum of ``start`` and of ``n`` rows of a table to the row ``at`` of ``out``.

    Rows of the table are given by the positions of their first elements, ``starts[:n]``. All rows
    are float64 and have a multiple of ``DOUBLES`` elements.
    """

    def codegen(context, builder, signature, args):
        emit = Emitter(context, builder, signature.args[1].dtype)
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
                place = builder.add(emit.element_at(starts, loop.index), offset)
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
        emit = Emitter(context, builder, signature.args[5].dtype)
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
                start = builder.add(emit.element_at(starts, loop.index), offset)
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
    lanes = ir.Constant(INDEX, emit.lanes)
    up = builder.add(n, ir.Constant(INDEX, emit.lanes - 1))

    @contextmanager
    def loop():
        with cgutils.for_range(builder, builder.udiv(up, lanes)) as group:
            first = builder.mul(group.index, lanes)
            rows = [builder.add(first, ir.Constant(INDEX, i)) for i in range(emit.lanes)]
            yield first, [builder.mul(row, n_columns) for row in rows]

    return loop()


@intrinsic
def subtract_maxima(typingctx, rows, n, maxima):
    """Subtract from each of the first ``n`` rows its largest element, and write that to ``maxima``.

    Rows are float64 and have a multiple of ``DOUBLES`` elements. ``DOUBLES`` rows are processed at
    a time; there must be space for the last ones, which may be more than ``n``.
    """

    def codegen(context, builder, signature, args):
        emit = Emitter(context, builder, signature.args[0].dtype)
        rows, (_, n_columns) = emit.array(signature.args[0], args[0])
        maxima, _ = emit.array(signature.args[2], args[2])
        largest = [cgutils.alloca_once(builder, emit.vector) for _ in range(emit.lanes)]
        with _groups_of_rows(emit, args[1], n_columns) as (first, starts):
            emit.fill(largest, emit.constant(BELOW_ALL))
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
        emit = Emitter(context, builder, signature.args[0].dtype)
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
