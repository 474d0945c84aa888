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


# Chains of states: rows of float64 with a multiple of ``DOUBLES`` columns. Indices of rows and of
# elements are those of the flat array.
DOUBLES = 4

_INDEX = ir.IntType(64)
_BIT = ir.IntType(1)
# Vectors of a row that are worked on together: with two sums of each, they fit the registers.
_WIDTH = 3
_BELOW_ALL = -1e308


class _Chain(_Emitter):
    """Instructions on padded rows of float64, and on rows that end within a vector."""

    def __init__(self, context, builder):
        super().__init__(context, builder, types.float64)
        self.lane = ir.Constant(ir.VectorType(_INDEX, self.lanes), list(range(self.lanes)))

    def index(self, value):
        return ir.Constant(_INDEX, value)

    def everywhere(self, value):
        """A vector of one number; all zeros are cheaper written as a constant."""
        empty = ir.Constant(ir.VectorType(value.type, self.lanes), ir.Undefined)
        return self.broadcast(self.builder.insert_element(empty, value, ir.Constant(_WORD, 0)), 0)

    def variable(self, value=0.0):
        """A vector in a register, set to a constant here."""
        address = cgutils.alloca_once(self.builder, self.vector)
        self.builder.store(self.constant(value), address)
        return address

    def element_at(self, data, offset):
        return self.builder.load(self.builder.gep(data, [offset]))

    def plus(self, offset, j):
        """The offset of the j-th vector from here."""
        return self.builder.add(offset, self.index(j * self.lanes))

    def add_to(self, address, value):
        self.builder.store(self.builder.fadd(self.builder.load(address), value), address)

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

    def tiles(self, n_columns, body):
        """Call ``body(first column, number of vectors)`` for all parts of a row."""
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

    def inside(self, column, n_columns):
        """Which lanes of the vector from a column on are within a row of ``n_columns``."""
        columns = self.builder.add(self.everywhere(column), self.lane)
        return self.builder.icmp_signed("<", columns, self.everywhere(n_columns))

    def load_part(self, data, offset, mask, other):
        """The vector from an offset on where the mask is set, without reading the rest."""
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
        """Masks of the vectors of a tile; only the last of them may leave the row."""
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
    """``out = factor * (values - maximum of each row)`` for ``n`` rows; the sum of the maxima.

    The flat ``out`` gets padded rows. Padding is far below all values.
    """

    def codegen(context, builder, signature, args):
        emit = _Chain(context, builder)
        values, (_, n_columns) = emit.array(signature.args[0], args[0])
        first, n, factor = args[1:4]
        out, _ = emit.array(signature.args[4], args[4])
        padded = builder.and_(
            builder.add(n_columns, emit.index(emit.lanes - 1)), emit.index(-emit.lanes)
        )
        factor = emit.everywhere(factor)
        below = emit.constant(_BELOW_ALL)
        sum_of_maxima = cgutils.alloca_once_value(builder, ir.Constant(emit.element, 0.0))
        with cgutils.for_range(builder, n) as loop:
            start = builder.mul(builder.add(first, loop.index), n_columns)
            target = builder.mul(loop.index, padded)
            largest = emit.variable(_BELOW_ALL)

            def parts(column, width):
                masks = emit.masks(column, width, n_columns)
                here = builder.add(start, column)
                return [
                    emit.load_part(values, emit.plus(here, j), masks[j], below)
                    for j in range(width)
                ]

            def search(column, width):
                for part in parts(column, width):
                    builder.store(emit.maximum(builder.load(largest), part), largest)

            emit.tiles(padded, search)
            maximum = emit.maximum_of_lanes(builder.load(largest))
            everywhere = emit.everywhere(maximum)

            def subtract(column, width):
                here = builder.add(target, column)
                for j, part in enumerate(parts(column, width)):
                    difference = builder.fmul(factor, builder.fsub(part, everywhere))
                    emit.store(difference, out, emit.plus(here, j))

            emit.tiles(padded, subtract)
            sum_ = builder.fadd(builder.load(sum_of_maxima), maximum)
            builder.store(sum_, sum_of_maxima)
        return builder.load(sum_of_maxima)

    return types.float64(values, first, n, factor, out), codegen


def _step(emit, weights, source, table, n_rows, factors, at, inverse, predicted, out, target):
    """``product = weights @ table * inverse`` and ``out = product * factors``; the sum of out."""
    builder = emit.builder
    table, (_, n_columns) = table
    inverse = emit.everywhere(inverse)
    result = emit.variable()

    def body(column, width):
        here = builder.add(at, column)
        factor = [
            builder.fmul(emit.load(factors, emit.plus(here, j)), inverse) for j in range(width)
        ]
        # Two sums of each vector, of the even and of the odd rows: half the latency.
        totals = [[emit.variable() for _ in range(width)] for _ in range(2)]
        with cgutils.for_range(builder, builder.lshr(n_rows, emit.index(1))) as loop:
            for parity in range(2):
                row = builder.add(builder.mul(loop.index, emit.index(2)), emit.index(parity))
                weight = emit.everywhere(emit.element_at(weights, builder.add(source, row)))
                start = builder.add(builder.mul(row, n_columns), column)
                for j, total in enumerate(totals[parity]):
                    part = emit.load(table, emit.plus(start, j))
                    old = builder.load(total)
                    builder.store(emit.multiply_add(weight, part, old), total)
        there = builder.add(target, column)
        for j in range(width):
            product = builder.fadd(builder.load(totals[0][j]), builder.load(totals[1][j]))
            if predicted is not None:
                emit.store(builder.fmul(product, inverse), predicted, emit.plus(here, j))
            product = builder.fmul(product, factor[j])
            emit.store(product, out, emit.plus(there, j))
            emit.add_to(result, product)

    emit.tiles(n_columns, body)
    return emit.sum_of_lanes(builder.load(result))


@intrinsic
def forward_step(typingctx, alpha, source, table, n_rows, factors, at, inverse):
    """``alpha[at] = alpha[source] @ table * inverse * factors[at]``, rows of flat arrays.

    ``n_rows`` is even. Returns the sum.
    """

    def codegen(context, builder, signature, args):
        emit = _Chain(context, builder)
        alpha, _ = emit.array(signature.args[0], args[0])
        table = emit.array(signature.args[2], args[2])
        factors, _ = emit.array(signature.args[4], args[4])
        source, n_rows, at, inverse = args[1], args[3], args[5], args[6]
        return _step(emit, alpha, source, table, n_rows, factors, at, inverse, None, alpha, at)

    return types.float64(alpha, source, table, n_rows, factors, at, inverse), codegen


@intrinsic
def backward_step(typingctx, v, source, table, n_rows, factors, at, inverse, beta, target):
    """``beta[at] = v[source] @ table * inverse`` and ``v[target] = beta[at] * factors[at]``.

    ``n_rows`` is even. Returns the sum of the new ``v``.
    """

    def codegen(context, builder, signature, args):
        emit = _Chain(context, builder)
        v, _ = emit.array(signature.args[0], args[0])
        table = emit.array(signature.args[2], args[2])
        factors, _ = emit.array(signature.args[4], args[4])
        beta, _ = emit.array(signature.args[7], args[7])
        source, n_rows, at, inverse, target = args[1], args[3], args[5], args[6], args[8]
        return _step(emit, v, source, table, n_rows, factors, at, inverse, beta, v, target)

    signature = types.float64(v, source, table, n_rows, factors, at, inverse, beta, target)
    return signature, codegen


@intrinsic
def finish_rows(typingctx, alpha, beta, b, start, n, c, g, values, posteriors, first, scale):
    """Posteriors of ``n`` rows, and the factors of the pairs of states.

    ``g = Σ alpha beta``, ``posteriors = scale alpha beta / g`` and ``b *= beta / (g c)`` with the c
    of the row before. Returns the sum of ``alpha beta / g * values``. ``start`` is the first row
    in the padded arrays and in g, ``first`` in ``values`` and ``posteriors``.
    """

    def codegen(context, builder, signature, args):
        emit = _Chain(context, builder)
        alpha, beta, b, c, g = (emit.array(signature.args[i], args[i])[0] for i in (0, 1, 2, 5, 6))
        start, n, first, scale = args[3], args[4], args[9], args[10]
        values, _ = emit.array(signature.args[7], args[7])
        posteriors, (_, n_columns) = emit.array(signature.args[8], args[8])
        padded = builder.and_(
            builder.add(n_columns, emit.index(emit.lanes - 1)), emit.index(-emit.lanes)
        )
        one = ir.Constant(emit.element, 1.0)
        scale = emit.everywhere(scale)
        energy = emit.variable()
        with cgutils.for_range(builder, n) as loop:
            row = builder.add(start, loop.index)
            at = builder.mul(row, padded)
            there = builder.mul(builder.add(first, loop.index), n_columns)
            overlap = emit.variable()

            def load(data, column, j):
                return emit.load(data, emit.plus(builder.add(at, column), j))

            def multiply(column, width):
                for j in range(width):
                    left, right = load(alpha, column, j), load(beta, column, j)
                    old = builder.load(overlap)
                    builder.store(emit.multiply_add(left, right, old), overlap)

            emit.tiles(padded, multiply)
            total = emit.sum_of_lanes(builder.load(overlap))
            builder.store(total, builder.gep(g, [row]))
            inverse = builder.fdiv(one, total)
            before = builder.fdiv(inverse, emit.element_at(c, row))
            inverse, before = emit.everywhere(inverse), emit.everywhere(before)

            def complete(column, width):
                masks = emit.masks(column, width, n_columns)
                for j in range(width):
                    right = load(beta, column, j)
                    gamma = builder.fmul(builder.fmul(load(alpha, column, j), right), inverse)
                    target = emit.plus(builder.add(there, column), j)
                    value = emit.load_part(values, target, masks[j], emit.constant(0.0))
                    old = builder.load(energy)
                    builder.store(emit.multiply_add(gamma, value, old), energy)
                    emit.store_part(builder.fmul(gamma, scale), posteriors, target, masks[j])
                    v = builder.fmul(builder.fmul(load(b, column, j), right), before)
                    emit.store(v, b, emit.plus(builder.add(at, column), j))

            emit.tiles(padded, complete)
        return emit.sum_of_lanes(builder.load(energy))

    signature = types.float64(alpha, beta, b, start, n, c, g, values, posteriors, first, scale)
    return signature, codegen


@intrinsic
def add_outer_products(typingctx, left, right, start, n, out):
    """``out += left[t].T @ right[t + 1]`` over ``n`` rows t from ``start`` on, of flat arrays."""

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
