"""Steps along chains of states, as explicit vector instructions.

Rows are float64 and have a multiple of ``DOUBLES`` columns. Rows and elements are indexed by their
position in the flat array.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .emitter import BELOW_ALL, CHECKED, INDEX, WORD, Emitter

_BIT = ir.IntType(1)
# This many vectors of a row are processed together; with two sums for each of them, they still fit
# into the registers.
_WIDTH = 3


class _Chain(Emitter):
    """Emits instructions on padded rows of float64, and on rows that end within a vector.

    If the width of padded rows is a constant, no code for others is emitted.
    """

    def __init__(self, context, builder, width=None):
        super().__init__(context, builder, types.float64)
        self.width = width
        self.lane = ir.Constant(ir.VectorType(INDEX, self.lanes), list(range(self.lanes)))

    def index(self, value):
        return ir.Constant(INDEX, value)

    def variable(self, value=0.0):
        """A variable that holds a vector, set to a constant."""
        address = cgutils.alloca_once(self.builder, self.vector)
        self.builder.store(self.constant(value), address)
        return address

    def add_to(self, address, value):
        self.builder.store(self.builder.fadd(self.builder.load(address), value), address)

    def tiles(self, n_columns, body):
        """Cover a row with tiles: ``body(first column, number of vectors)`` is called for each."""
        if self.width is not None:
            body(self.index(0), self.width // self.lanes)
            return
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
        if self.width is not None:
            narrow(self.width // self.lanes)
            return
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
        address = self._address(data, offset, self._selected(mask))
        return self.builder.call(function, [address, self._align(), mask, other])

    def store_part(self, value, data, offset, mask):
        if mask is None:
            self.store(value, data, offset)
            return
        function = self._masked("store", ir.VoidType(), [self._mask_type()], [self.vector])
        address = self._address(data, offset, self._selected(mask))
        self.builder.call(function, [value, address, self._align(), mask])

    def _selected(self, mask):
        """The number of lanes that a mask selects, which are the first ones."""
        if not CHECKED:
            return None
        bits = self.builder.bitcast(mask, ir.IntType(self.lanes))
        return self.builder.ctpop(self.builder.zext(bits, INDEX))

    def masks(self, column, width, n_columns):
        """Masks of the vectors of a tile; only the last vector may reach beyond the row."""
        last = self.inside(self.plus(column, width - 1), n_columns)
        return [None] * (width - 1) + [last]

    def _masked(self, name, result, last, first=()):
        pointer = self.vector.as_pointer()
        kind = ir.FunctionType(result, [*first, pointer, WORD, *last])
        name = f"llvm.masked.{name}.v{self.lanes}f64.p0v{self.lanes}f64"
        return cgutils.get_or_insert_function(self.builder.module, kind, name)

    def _mask_type(self):
        return ir.VectorType(_BIT, self.lanes)

    def _align(self):
        return ir.Constant(WORD, self.alignment)


def make_center_rows(width=None):
    """``out = factor * (values - maximum of each row)`` for ``n`` rows.

    Returns the sum of the maxima. The rows of the flat ``out`` have no padding, but the last store
    may write up to a vector beyond the last row, for which there must be space.
    """

    @intrinsic
    def center_rows(typingctx, values, first, n, factor, out):
        def codegen(context, builder, signature, args):
            emit = _Chain(context, builder, width)
            values, (_, n_columns) = emit.array(signature.args[0], args[0])
            first, n, factor = args[1:4]
            out, _ = emit.array(signature.args[4], args[4])
            padded = emit.padded(n_columns)
            factor = emit.everywhere(factor)
            below = emit.constant(BELOW_ALL)
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
                    largest = emit.variable(BELOW_ALL)

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

    return center_rows


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


def make_finish_rows(width=None):
    """Compute the posteriors of ``n`` rows, and the factors from which those of pairs are made.

    ``overlaps = Σ alpha beta``, ``posteriors = scale alpha beta / overlaps`` and
    ``beta *= b * ratios / overlaps``. Returns Σ alpha beta / overlaps * values. The first row is
    ``start`` in flat arrays, and ``first`` in ``values`` and ``posteriors``. These two and ``b``
    have no padding.
    """

    @intrinsic
    def finish_rows(
        typingctx, alpha, beta, b, start, n, ratios, overlaps, values, posteriors, first, scale
    ):
        def codegen(context, builder, signature, args):
            emit = _Chain(context, builder, width)
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
                    builder.store(overlap, emit.address(overlaps, row))
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

    return finish_rows


def make_add_outer_products(width=None):
    """``out += left[t].T @ right[t + 1]`` for ``n`` rows t of flat arrays, from ``start`` on."""

    @intrinsic
    def add_outer_products(typingctx, left, right, start, n, out):
        def codegen(context, builder, signature, args):
            emit = _Chain(context, builder, width)
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

    return add_outer_products


center_rows = make_center_rows()
finish_rows = make_finish_rows()
add_outer_products = make_add_outer_products()
