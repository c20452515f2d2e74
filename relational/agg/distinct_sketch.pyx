"""DistinctSketchKernel: APPROX_COUNT_DISTINCT, by HyperLogLog over rows that are never retracted.

A value is hashed by its key bytes, which are equal for values that are equal in SQL. The first bits of the hash are the
number of a register, which holds the greatest rank, the position of the first 1 among the other bits. The estimate
follows from the sum of 2**-rank of all registers and the number of those that are 0, which the state has; so it does
not depend on what a chunk or a process had. With 2048 registers its standard error is 2.3 %; small counts are linear,
and nearly exact.

A group with few registers has a sorted list of them, others have all, one byte each. A stored state is (registers
BYTEA):

    a list      0, then for each register, ascending:  number 2 bytes big-endian, rank 1 byte
    all         1, then 2048 ranks of 1 byte
"""

cimport cython
from libc.math cimport log
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove, memset

from hummock.base.checksum cimport hash64
from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from relational.agg.kernels cimport AggKernel, ArenaKernel, check_picks, new_column, put_int64
from relational.chunk.column cimport Column, as_column
from relational.chunk.column_builder cimport ColumnBuilder

from relational.encoding.key.encoder import KeyEncoder
from relational.errors import ConsistencyError, EncodingError

cdef extern from * nogil:
    int __builtin_clzll(unsigned long long) noexcept

cdef struct Sketch:
    uint64_t removed    # sum of 1 - 2**-rank, in units of 2**-MOST_RANK
    int64_t start       # of the registers in `arena`
    int32_t used        # registers that are not 0
    int32_t room        # of the list, in registers; ALL: every register has its byte

cdef enum:
    BITS = 11
    REGISTERS = 2048
    MOST_RANK = 50
    LEAST_ROOM = 4
    MOST_LISTED = 256   # 1 KiB; half of what all registers take
    ALL = -1

cdef double ALPHA = 0.7213 / (1.0 + 1.079 / REGISTERS)


cdef inline uint64_t removed_by(int rank) noexcept nogil:
    return (<uint64_t>1 << MOST_RANK) - (<uint64_t>1 << (MOST_RANK - rank))


@cython.final
cdef class DistinctSketchKernel(ArenaKernel):
    """State: Sketch; a listed register is a uint32, its number and then its rank in the lowest byte."""

    cdef object encoder         # KeyEncoder of the argument
    cdef BinaryColumn keys      # encoded arguments of the current chunk, or None

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.width = sizeof(Sketch)
        self.encoder = KeyEncoder([spec.input_type])

    def outputs(self, const int32_t[::1] picks):
        """The estimates, BIGINT."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef ColumnBuilder out = new_column(self.spec.output_type, rows)
        check_picks(self, picks)
        with nogil:
            for row in range(rows):
                put_int64(out, row, self.estimate(<const Sketch*>self.picked(picks[row])))
        return out.finish_column()

    cdef int64_t estimate(self, const Sketch* state) noexcept nogil:
        cdef double unit = <double>(<uint64_t>1 << MOST_RANK)
        cdef double harmonic = <double>((<uint64_t>REGISTERS << MOST_RANK) - state.removed) / unit
        cdef double found = ALPHA * REGISTERS * REGISTERS / harmonic
        if found <= 2.5 * REGISTERS and state.used < REGISTERS:
            found = REGISTERS * log(<double>REGISTERS / (REGISTERS - state.used))
        return <int64_t>(found + 0.5)

    def state_columns(self, const int32_t[::1] picks):
        """The registers. Those of a record from before this epoch are undefined."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef BinaryColumnBuilder out = BinaryColumnBuilder()
        cdef uint8_t text[1 + REGISTERS]
        cdef const Sketch* state
        cdef const uint32_t* listed
        cdef Slice written
        cdef int32_t at
        check_picks(self, picks)
        with nogil:
            written.data = text
            for row in range(rows):
                state = <const Sketch*>self.picked(picks[row])
                if state.room == ALL:
                    text[0] = 1
                    memcpy(text + 1, self.arena.data + state.start, REGISTERS)
                    written.size = 1 + REGISTERS
                else:
                    listed = <const uint32_t*>(self.arena.data + state.start)
                    text[0] = 0
                    for at in range(state.used):
                        text[3 * at + 1] = <uint8_t>(listed[at] >> 16)
                        text[3 * at + 2] = <uint8_t>(listed[at] >> 8)
                        text[3 * at + 3] = <uint8_t>listed[at]
                    written.size = 1 + 3 * state.used
                out.append(written)
        return [as_column(out.finish().to_arrow())]

    cdef int raise_register(self, Sketch* state, uint32_t number, int rank) except -1 nogil:
        cdef uint32_t* listed
        cdef uint8_t* registers
        cdef int32_t low = 0, high, middle
        if state.room == ALL:
            registers = self.arena.data + state.start
            self.account(state, registers[number], rank)
            registers[number] = <uint8_t>max(<int>registers[number], rank)
            return 0
        listed = <uint32_t*>(self.arena.data + state.start)
        high = state.used
        while low < high:
            middle = (low + high) // 2
            if listed[middle] >> 8 < number:
                low = middle + 1
            else:
                high = middle
        if low < state.used and listed[low] >> 8 == number:
            if <int>(listed[low] & 0xFF) < rank:
                self.account(state, listed[low] & 0xFF, rank)
                listed[low] = number << 8 | <uint32_t>rank
            return 0
        if state.used == MOST_LISTED:
            self.spread(state)
            return self.raise_register(state, number, rank)
        if state.used == state.room:
            self.make_room(state)
            listed = <uint32_t*>(self.arena.data + state.start)
        memmove(listed + low + 1, listed + low, (state.used - low) * sizeof(uint32_t))
        listed[low] = number << 8 | <uint32_t>rank
        self.account(state, 0, rank)
        return 0

    cdef inline void account(self, Sketch* state, int before, int rank) noexcept nogil:
        if rank > before:
            state.removed += removed_by(rank) - removed_by(before)
            state.used += before == 0

    cdef int make_room(self, Sketch* state) except -1 nogil:
        """Moves the list to where twice as many fit."""
        cdef int32_t room = max(2 * state.room, <int32_t>LEAST_ROOM)
        state.start = self.move(state.start, state.used * sizeof(uint32_t), room * sizeof(uint32_t))
        state.room = room
        return 0

    cdef int spread(self, Sketch* state) except -1 nogil:
        """Gives every register its byte."""
        cdef Py_ssize_t start = self.arena.size
        cdef const uint32_t* listed
        cdef int32_t at
        self.arena.reserve(REGISTERS)
        memset(self.arena.data + start, 0, REGISTERS)
        self.arena.size += REGISTERS
        listed = <const uint32_t*>(self.arena.data + state.start)
        for at in range(state.used):
            self.arena.data[start + (listed[at] >> 8)] = <uint8_t>listed[at]
        state.start, state.room = start, ALL
        return 0

    cdef int begin(self, Py_ssize_t rows, Column argument, mask) except -1:
        AggKernel.begin(self, rows, argument, mask)
        self.keys = self.encoder.encode([argument])
        return 0

    cdef void end(self) noexcept:
        AggKernel.end(self)
        self.keys = None

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil:
        cdef Py_ssize_t row
        cdef Slice key
        cdef uint64_t hashed
        for row in range(rows):
            if weights[row] == 0:
                continue
            if weights[row] < 0:
                with gil:
                    raise ConsistencyError(f"a retraction from an append-only {self.spec.kind}")
            key = self.keys.at(first + row)
            hashed = hash64(key.data, key.size)
            self.raise_register(<Sketch*>self.state(ids[row]), <uint32_t>(hashed >> (64 - BITS)),
                                min(1 + __builtin_clzll(hashed << BITS | 1), <int>MOST_RANK))
        return 0

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        return self.add_states(ids, found, rows, columns)

    cdef int merge_states(self, const int32_t* ids, Py_ssize_t rows, list columns) except -1:
        return self.add_states(ids, NULL, rows, columns)

    cdef int add_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows, list columns) except -1:
        """EncodingError for registers that no kernel wrote."""
        cdef BinaryColumn texts = BinaryColumn.from_arrow((<Column>columns[0]).array)
        cdef Py_ssize_t row, wrong = -1
        with nogil:
            for row in range(rows):
                if (found == NULL or found[row]) and not texts.is_null(row):
                    if not self.add_registers(<Sketch*>self.state(ids[row]), texts.at(row)):
                        wrong = row
        if wrong >= 0:
            raise EncodingError(f"these are no registers of {self.spec.kind}", row=wrong)
        return 0

    cdef int add_registers(self, Sketch* state, Slice text) except -1 nogil:
        """Whether the text is one of registers."""
        cdef Py_ssize_t at
        cdef uint32_t number
        if text.size == 1 + REGISTERS and text.data[0] == 1:
            for number in range(REGISTERS):
                if text.data[1 + number] > MOST_RANK:
                    return 0
                if text.data[1 + number]:
                    self.raise_register(state, number, text.data[1 + number])
            return 1
        if text.size % 3 != 1 or text.data[0] != 0:
            return 0
        for at in range(1, text.size, 3):
            number = <uint32_t>text.data[at] << 8 | text.data[at + 1]
            if number >= REGISTERS or text.data[at + 2] == 0 or text.data[at + 2] > MOST_RANK:
                return 0
            self.raise_register(state, number, text.data[at + 2])
        return 1

    cdef bint same_state(self, const void* a, const void* b) noexcept nogil:
        return (<const Sketch*>a).removed == (<const Sketch*>b).removed

    cdef bint same_output(self, const void* a, const void* b) noexcept nogil:
        return self.estimate(<const Sketch*>a) == self.estimate(<const Sketch*>b)

    cdef int64_t* referenced(self, void* state, Py_ssize_t* size) noexcept nogil:
        cdef Sketch* sketch = <Sketch*>state
        size[0] = REGISTERS if sketch.room == ALL else sketch.room * <Py_ssize_t>sizeof(uint32_t)
        return &sketch.start
