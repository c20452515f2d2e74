"""BitAggKernel: BIT_AND, BIT_OR and BIT_XOR of whole numbers. BitCountsKernel: the first two where rows are retracted.

A bit of BIT_XOR is undone by the same value again. Those of the others follow from the number of arguments that have
it: a stored state is then (counts BYTEA, count BIGINT), where `counts` has for each bit, the lowest first, the number
of arguments with it as LEB128.
"""

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from relational.agg.kernels cimport (
    AggKernel,
    WordKernel,
    WordState,
    check_picks,
    int64_at,
    new_column,
    put_int64,
    put_null,
)
from relational.agg.rank cimport put_value, rank_of
from relational.chunk.column cimport Column, ColumnView, as_column, is_null
from relational.chunk.column_builder cimport ColumnBuilder

from relational.errors import ConsistencyError, EncodingError

cdef struct BitCounts:
    int64_t count
    int64_t counts[64]  # of the type's bits

cdef enum:
    VARINT_BYTES = 10   # of a stored number, at most


cdef uint64_t SIGN = <uint64_t>1 << 63


cdef inline int64_t whole_at(const ColumnView* view, Py_ssize_t row) noexcept nogil:
    return <int64_t>(rank_of(view, row) ^ SIGN)


cdef inline void put_whole(ColumnBuilder out, Py_ssize_t row, int64_t value) noexcept nogil:
    put_value(out, row, <uint64_t>value ^ SIGN)


@cython.final
cdef class BitAggKernel(WordKernel):
    """The word has the bits of the result, of BIT_AND inverted. A stored state is (word, count)."""

    cdef bint is_xor

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.is_xor = spec.kind == "bit_xor"
        self.flip = ~SIGN if spec.kind == "bit_and" else SIGN

    def state_columns(self, const int32_t[::1] picks):
        """The bits and the number of arguments."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef ColumnBuilder bits = new_column(self.state_types[0], rows), counts = new_column(self.state_types[1], rows)
        cdef const WordState* state
        check_picks(self, picks)
        with nogil:
            for row in range(rows):
                state = <const WordState*>self.picked(picks[row])
                put_int64(bits, row, <int64_t>state.word)
                put_int64(counts, row, state.count)
        return [bits.finish_column(), counts.finish_column()]

    cdef inline void add_word(self, WordState* state, uint64_t word) noexcept nogil:
        state.word = state.word ^ word if self.is_xor else state.word | word

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil:
        cdef WordState* state
        cdef Py_ssize_t row
        for row in range(rows):
            if weights[row] == 0:
                continue
            if weights[row] < 0 and not self.is_xor:
                with gil:
                    raise ConsistencyError(f"a retraction from an append-only {self.spec.kind}")
            state = <WordState*>self.state(ids[row])
            state.count += weights[row]
            self.add_word(state, rank_of(self.view, first + row) ^ self.flip)
        return 0

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        cdef Column bits = columns[0], counts = columns[1]
        cdef WordState* state
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                if found == NULL or found[row]:
                    state = <WordState*>self.state(ids[row])
                    state.word, state.count = <uint64_t>int64_at(bits, row), int64_at(counts, row)
        return 0

    cdef int merge_states(self, const int32_t* ids, Py_ssize_t rows, list columns) except -1:
        cdef Column bits = columns[0], counts = columns[1]
        cdef WordState* state
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                state = <WordState*>self.state(ids[row])
                state.count += int64_at(counts, row)
                self.add_word(state, <uint64_t>int64_at(bits, row))
        return 0


@cython.final
cdef class BitCountsKernel(AggKernel):
    """State: BitCounts, as many of its counts as the type has bits."""

    cdef int width_in_bits
    cdef bint is_and

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.width_in_bits = {"SMALLINT": 16, "INT": 32, "BIGINT": 64}[str(spec.input_type)]
        self.width = sizeof(int64_t) * (1 + self.width_in_bits)
        self.is_and = spec.kind == "bit_and"

    cdef inline int64_t bits(self, const BitCounts* state) noexcept nogil:
        cdef int64_t wanted = state.count if self.is_and else 1
        cdef uint64_t found = 0
        cdef int bit
        for bit in range(self.width_in_bits):
            found |= <uint64_t>(state.counts[bit] >= wanted) << bit
        if self.width_in_bits == 64:
            return <int64_t>found
        return <int32_t>found if self.width_in_bits == 32 else <int16_t>found

    def outputs(self, const int32_t[::1] picks):
        """The combined bits; NULL for no arguments."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef ColumnBuilder out = new_column(self.spec.output_type, rows)
        cdef const BitCounts* state
        check_picks(self, picks)
        with nogil:
            for row in range(rows):
                state = <const BitCounts*>self.picked(picks[row])
                if state.count:
                    put_whole(out, row, self.bits(state))
                else:
                    put_null(out, row)
        return out.finish_column()

    def state_columns(self, const int32_t[::1] picks):
        """The counts of the bits, and of the arguments."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef ColumnBuilder counts = new_column(self.state_types[1], rows)
        cdef BinaryColumnBuilder written = BinaryColumnBuilder()
        cdef uint8_t text[64 * VARINT_BYTES]
        cdef const BitCounts* state
        cdef Slice out
        cdef uint64_t left
        cdef int bit
        check_picks(self, picks)
        with nogil:
            written.reserve(rows, rows * self.width_in_bits)
            for row in range(rows):
                state = <const BitCounts*>self.picked(picks[row])
                put_int64(counts, row, state.count)
                out.data, out.size = text, 0
                for bit in range(self.width_in_bits):
                    left = <uint64_t>state.counts[bit]
                    while left >= 0x80:
                        text[out.size] = <uint8_t>(left & 0x7F | 0x80)
                        left >>= 7
                        out.size += 1
                    text[out.size] = <uint8_t>left
                    out.size += 1
                written.append(out)
        return [as_column(written.finish().to_arrow()), counts.finish_column()]

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil:
        cdef BitCounts* state
        cdef uint64_t value
        cdef Py_ssize_t row
        cdef int bit
        for row in range(rows):
            if weights[row] == 0:
                continue
            state = <BitCounts*>self.state(ids[row])
            state.count += weights[row]
            value = <uint64_t>whole_at(self.view, first + row)
            for bit in range(self.width_in_bits):
                state.counts[bit] += weights[row] * <int64_t>(value >> bit & 1)
        return 0

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        return self.add_states(ids, found, rows, columns)

    cdef int merge_states(self, const int32_t* ids, Py_ssize_t rows, list columns) except -1:
        return self.add_states(ids, NULL, rows, columns)

    cdef int add_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows, list columns) except -1:
        """EncodingError for counts that are cut off."""
        cdef BinaryColumn texts = BinaryColumn.from_arrow((<Column>columns[0]).array)
        cdef Column counts = columns[1]
        cdef BitCounts* state
        cdef Py_ssize_t row, wrong = -1
        with nogil:
            for row in range(rows):
                if (found == NULL or found[row]) and not is_null(&counts.view, row):
                    state = <BitCounts*>self.state(ids[row])
                    state.count += int64_at(counts, row)
                    if not self.add_counts(state, texts.at(row)):
                        wrong = row
        if wrong >= 0:
            raise EncodingError(f"the counts of {self.spec.kind} are cut off", row=wrong)
        return 0

    cdef bint add_counts(self, BitCounts* state, Slice text) noexcept nogil:
        cdef uint64_t value
        cdef int bit, shift
        cdef Py_ssize_t at = 0
        for bit in range(self.width_in_bits):
            value, shift = 0, 0
            while True:
                if at == text.size or shift > 63:
                    return False
                value |= <uint64_t>(text.data[at] & 0x7F) << shift
                shift += 7
                at += 1
                if text.data[at - 1] < 0x80:
                    break
            state.counts[bit] += <int64_t>value
        return at == text.size

    cdef bint same_output(self, const void* a, const void* b) noexcept nogil:
        cdef const BitCounts* x = <const BitCounts*>a
        cdef const BitCounts* y = <const BitCounts*>b
        if x.count == 0 or y.count == 0:
            return x.count == y.count
        return self.bits(x) == self.bits(y)
