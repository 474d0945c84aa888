"""An emitter of explicit vector instructions, and the sizes that the functions on it share."""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, config

LANES = 8
ROWS = 8
DOUBLES = 4
# Number of vectors that `ratio_update_together` takes at a time.
TOGETHER = 16

WORD = ir.IntType(32)
INDEX = ir.IntType(64)
CONTRACT = ("contract",)
# Bytes of a vector. With twice as many, eight sums and eight factors would not fit into the
# registers.
VECTOR = 32
# Bytes of a cache line.
LINE = 64
# Number of vectors of sums that are kept in registers at a time; a power of two, at least four.
SUMS = 8
# A number that is below all others.
BELOW_ALL = -1e308
# Whether the places that instructions read and write are compared with the sizes of their arrays.
# numba compares those of its own instructions in this mode, which NUMBA_BOUNDSCHECK=1 switches on.
CHECKED = bool(config.BOUNDSCHECK)


class Emitter:
    """Emits instructions on vectors that hold ``VECTOR`` bytes of elements of one dtype.

    Vectors have another number of elements if ``lanes`` is given.

    If ``NUMBA_BOUNDSCHECK`` is set, numba checks the bounds of arrays in compiled code, but not in
    instructions that are written out. Here every access to an array is then checked as well;
    without the variable nothing is emitted.
    """

    def __init__(self, context, builder, dtype, lanes=None):
        self.context = context
        self.builder = builder
        self.dtype = dtype
        self.element = context.get_data_type(dtype)
        self.alignment = dtype.bitwidth // 8
        self.lanes = lanes or VECTOR // self.alignment
        self.vector = ir.VectorType(self.element, self.lanes)
        # Number of elements of every array, by the address of its first one.
        self._sizes = {}

    def array(self, kind, value):
        """Address of the first element, and shape."""
        struct = self.context.make_array(kind)(self.context, self.builder, value)
        data = struct.data
        if CHECKED:
            self._sizes[data] = struct.nitems
        return data, cgutils.unpack_tuple(self.builder, struct.shape)

    def constant(self, value):
        return ir.Constant(self.vector, [ir.Constant(self.element, value)] * self.lanes)

    def address(self, data, offset, n=1):
        """Address of the first of ``n`` elements that are read or written; n can be a constant."""
        if CHECKED:
            self._check(self._sizes[data], offset, ir.Constant(INDEX, n) if type(n) is int else n)
        return self.builder.gep(data, [offset])

    def _check(self, size, offset, n):
        """Raise an error unless ``n`` elements from ``offset`` on are within an array."""
        b = self.builder
        offset = b.sext(offset, INDEX) if offset.type.width < INDEX.width else offset
        after = b.add(offset, n)
        negative = b.icmp_signed("<", offset, ir.Constant(INDEX, 0))
        with b.if_then(b.or_(negative, b.icmp_signed(">", after, size)), likely=False):
            message = "explicit vector code is out of the bounds of an array"
            self.context.call_conv.return_user_exc(b, IndexError, (message,))

    def element_at(self, data, offset):
        """One element of an array, of any dtype."""
        return self.builder.load(self.address(data, offset))

    def _address(self, data, offset, n=None):
        pointer = self.address(data, offset, self.lanes if n is None else n)
        return self.builder.bitcast(pointer, self.vector.as_pointer())

    def load(self, data, offset):
        value = self.builder.load(self._address(data, offset))
        value.align = self.alignment
        return value

    def store(self, value, data, offset):
        self.builder.store(value, self._address(data, offset)).align = self.alignment

    def multiply_add(self, a, b, c):
        product = self.builder.fmul(a, b, flags=CONTRACT)
        return self.builder.fadd(product, c, flags=CONTRACT)

    def shuffle(self, a, b, lanes):
        mask = ir.Constant(ir.VectorType(WORD, len(lanes)), lanes)
        return self.builder.shuffle_vector(a, b, mask)

    def broadcast(self, vector, lane):
        return self.shuffle(vector, vector, [lane] * self.lanes)

    def everywhere(self, value):
        """A vector that repeats one number; a vector of zeros is cheaper as a constant."""
        empty = ir.Constant(ir.VectorType(value.type, self.lanes), ir.Undefined)
        return self.broadcast(self.builder.insert_element(empty, value, ir.Constant(WORD, 0)), 0)

    def shifted(self, vector, distance):
        """The vector whose lanes are ``distance`` lanes further, after zeros."""
        lanes = [i - distance if i >= distance else self.lanes for i in range(self.lanes)]
        return self.shuffle(vector, self.constant(0.0), lanes)

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
        return self.builder.extract_element(vector, ir.Constant(WORD, 0))

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
        """Prefetch the cache line of an element, which will be read soon, into a level of cache.

        The place is not checked, because a place outside of the array does no harm here.
        """
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, WORD, WORD, WORD])
        function = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0i8")
        place = self.builder.bitcast(self.builder.gep(data, [offset]), byte)
        read, keep, data_cache = (ir.Constant(WORD, value) for value in (0, 4 - level, 1))
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
            place = self.address(out, place, DOUBLES)
            place = self.builder.bitcast(place, doubles.as_pointer())
            old = self.builder.load(place)
            old.align = 8
            new = self.builder.fadd(self.builder.fpext(part, doubles), old)
            self.builder.store(new, place).align = 8
