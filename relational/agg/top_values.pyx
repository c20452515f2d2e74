"""TopValuesKernel: MIN and MAX of values of one word from which rows may be retracted.

A group's state has its most extreme values with their numbers of rows, MOST_VALUES at most. The rows of other values
are only counted here; they are in an overflow table, whose owner takes their changes with `overflow` before each flush.
The bound separates the two: every value here is more extreme than it, no value there is. A group whose own values are
used up while others remain is stale, until the owner has refilled it with the first values of the table.

The rank of a value is an unsigned 64-bit integer (`relational.agg.rank`), and the least one is that of the extreme: for
MAX all its bits are inverted.

A stored state is (values BYTEA, count BIGINT). `count`: arguments that are not NULL. `values`:

    bound       8 bytes     big-endian rank; 0 if nothing is in the overflow table
    for each value, the extreme first:
      rank      8 bytes     big-endian
      rows      LEB128

Example, MAX of the SMALLINTs 3, 3 and -2:
    0000000000000000  7ffffffffffffffc 02  8000000000000001 01
"""

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memmove, memset

import numpy as np

from hummock.base.key cimport Slice, head_of
from hummock.columnar.binary_column cimport BinaryColumnBuilder
from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.agg.kernels cimport ArenaKernel, check_picks, int64_at, new_column, put_int64, put_null
from relational.agg.rank cimport put_value, rank_of
from relational.chunk.column cimport Column, ColumnView, as_column, is_null
from relational.chunk.column_builder cimport ColumnBuilder

from relational.errors import ConsistencyError, EncodingError

cdef struct Value:
    uint64_t rank
    int64_t rows

cdef struct Change:     # of the rows in the overflow table
    int64_t group
    uint64_t rank
    int64_t rows

cdef struct TopState:
    int64_t count       # non-NULL arguments
    int64_t rest        # those of them that are in the overflow table
    uint64_t bound      # while there is a rest
    uint64_t first      # rank of the extreme, while there are values
    int64_t start       # of the values in `arena`
    int32_t values
    int32_t room        # for so many values
    int64_t changes     # number of the changes so far: equal ones of the same group mean an equal state

cdef enum:
    MOST = 32                   # values of a group
    LEAST_ROOM = 4
    LEAST_SLOTS = 1024
    VALUE_BYTES = 18            # of a stored value, at most
    WIDTH = 8

MOST_VALUES = MOST
REFILLED_VALUES = 3 * MOST // 4
"""As many values are moved from the overflow table into a stale group: then there is room for more extreme ones."""


@cython.final
cdef class TopValuesKernel(ArenaKernel):
    """State: TopState."""

    cdef uint64_t flip          # of the bits of a rank: all for MAX
    cdef ByteBuffer changes     # Changes since the last `overflow`
    cdef ByteBuffer slots       # uint32, a power of two: 1 + the number of a change, by its hash; 0: none

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.width = sizeof(TopState)
        self.flip = 0 if spec.kind == "min" else ~<uint64_t>0
        self.changes, self.slots = ByteBuffer(), ByteBuffer()

    @property
    def size_bytes(self):
        """Memory used by the values and by the changes of the overflow table."""
        return self.arena.capacity + self.changes.capacity + self.slots.capacity

    def overflow(self):
        """The changes of the overflow table since the last call: (int32[n]: groups, pa.Array: values, int64[n]: the
        change of their number of rows, not 0). Each value once a group."""
        cdef const Change* changes = <const Change*>self.changes.data
        cdef Py_ssize_t row, count = self.changes.size // sizeof(Change), found = 0
        ids, rows = np.empty(count, np.int32), np.empty(count, np.int64)
        cdef int32_t[::1] groups = ids
        cdef int64_t[::1] changed = rows
        cdef ColumnBuilder values = new_column(self.spec.input_type, count)
        with nogil:
            for row in range(count):
                if changes[row].rows:
                    groups[found], changed[found] = <int32_t>changes[row].group, changes[row].rows
                    put_value(values, found, changes[row].rank ^ self.flip)
                    found += 1
        values.rows = found
        self.changes, self.slots = ByteBuffer(), ByteBuffer()
        return ids[:found], values.finish(), rows[:found]

    def stale(self, const int32_t[::1] ids):
        """Those of `ids` that must be refilled, as int32[n]."""
        cdef Py_ssize_t row, count = 0
        cdef const TopState* state
        out = np.empty(ids.shape[0], np.int32)
        cdef int32_t[::1] found = out
        for row in range(ids.shape[0]):
            state = <const TopState*>self.state(ids[row])
            if state.count and not state.values:
                found[count] = ids[row]
                count += 1
        return out[:count]

    def refill(self, const int32_t[::1] ids, const int32_t[::1] owners, Column values not None, Column rows not None):
        """Moves values out of the overflow table: row r gives `rows[r]` rows of `values[r]` to the stale group
        ids[owners[r]]. The rows of a group are adjacent, its extreme first. ConsistencyError if a group gets none, or
        more than it has in the table: the table has lost rows."""
        cdef Py_ssize_t row, count = owners.shape[0]
        cdef TopState* state
        if values.data_type != self.spec.input_type or not values.view.rows == count == rows.view.rows:
            raise ValueError(f"{values!r}, {rows!r} for {count} owners")
        for row in range(count):
            if owners[row] < 0 or owners[row] >= ids.shape[0]:
                raise IndexError(f"row {row} belongs to group {owners[row]} of {ids.shape[0]}")
        with nogil:
            for row in range(count):
                state = <TopState*>self.state(ids[owners[row]])
                self.put_last(state, self.rank(&values.view, row), int64_at(rows, row))
        for row in range(ids.shape[0]):
            state = <TopState*>self.state(ids[row])
            if not state.values or state.rest < 0:
                raise ConsistencyError(f"{self.spec.kind}: {state.values} values left for {state.count} arguments, "
                                       f"and {state.rest} rows beyond them")

    def outputs(self, const int32_t[::1] picks):
        """The extremes; NULL for no rows. ConsistencyError for a stale group, and for changes of the overflow table
        that were not taken."""
        cdef Py_ssize_t row, rows = picks.shape[0], stale = 0
        cdef ColumnBuilder out = new_column(self.spec.output_type, rows)
        cdef const TopState* state
        check_picks(self, picks)
        if self.changes.size:
            raise ConsistencyError(f"{self.spec.kind}: the changes of the overflow table were not taken")
        with nogil:
            for row in range(rows):
                state = <const TopState*>self.picked(picks[row])
                stale += state.count != 0 and not state.values
                if state.values:
                    put_value(out, row, state.first ^ self.flip)
                else:
                    put_null(out, row)
        if stale:
            raise ConsistencyError(f"{self.spec.kind} of {stale} groups is read before it is refilled")
        return out.finish_column()

    def state_columns(self, const int32_t[::1] picks):
        """The values and the count. The values of a record from before this epoch are undefined."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef ColumnBuilder counts = new_column(self.state_types[1], rows)
        cdef BinaryColumnBuilder values = BinaryColumnBuilder()
        cdef uint8_t written[WIDTH + MOST * VALUE_BYTES]
        cdef const TopState* state
        check_picks(self, picks)
        with nogil:
            values.reserve(rows, 4 * WIDTH * rows)
            for row in range(rows):
                state = <const TopState*>self.picked(picks[row])
                put_int64(counts, row, state.count)
                values.append(write_values(state, self.block(state), written))
        return [as_column(values.finish().to_arrow()), counts.finish_column()]

    cdef Value* block(self, const TopState* state) noexcept nogil:
        """Valid until the arena grows."""
        return <Value*>(self.arena.data + state.start)

    cdef uint64_t rank(self, const ColumnView* view, Py_ssize_t row) noexcept nogil:
        return rank_of(view, row) ^ self.flip

    cdef int spill(self, int32_t group, uint64_t rank, int64_t rows) except -1 nogil:
        """Notes a change of the overflow table; those of one value are added up."""
        cdef Change* changes = <Change*>self.changes.data
        cdef Change change
        cdef uint64_t slot
        cdef uint32_t number
        if 2 * (self.changes.size // <Py_ssize_t>sizeof(Change)) >= self.slots.size // <Py_ssize_t>sizeof(uint32_t):
            self.rehash()
            changes = <Change*>self.changes.data
        slot = self.slot_of(group, rank)
        number = (<uint32_t*>self.slots.data)[slot]
        if number:
            changes[number - 1].rows += rows
            return 0
        change.group, change.rank, change.rows = group, rank, rows
        self.changes.append(<const uint8_t*>&change, sizeof(Change))
        (<uint32_t*>self.slots.data)[slot] = <uint32_t>(self.changes.size // sizeof(Change))
        return 0

    cdef uint64_t slot_of(self, int64_t group, uint64_t rank) noexcept nogil:
        """The slot that has the number of this value's change, else the empty one where it goes."""
        cdef const Change* changes = <const Change*>self.changes.data
        cdef const uint32_t* slots = <const uint32_t*>self.slots.data
        cdef uint64_t mask = self.slots.size // sizeof(uint32_t) - 1
        cdef uint64_t slot = rank * <uint64_t>0x9E3779B97F4A7C15 ^ <uint64_t>group * <uint64_t>0xC2B2AE3D27D4EB4F
        slot = (slot ^ slot >> 32) & mask
        while slots[slot] and (changes[slots[slot] - 1].rank != rank or changes[slots[slot] - 1].group != group):
            slot = (slot + 1) & mask
        return slot

    cdef int rehash(self) except -1 nogil:
        """Drops changes that cancelled out; makes at least four slots for each of the others."""
        cdef Change* changes = <Change*>self.changes.data
        cdef Py_ssize_t row, left = 0, slots = LEAST_SLOTS
        for row in range(self.changes.size // <Py_ssize_t>sizeof(Change)):
            if changes[row].rows:
                changes[left] = changes[row]
                left += 1
        while slots < 4 * left:
            slots *= 2
        self.changes.size = left * sizeof(Change)
        self.slots.size = 0
        self.slots.reserve(slots * sizeof(uint32_t))
        self.slots.size = slots * sizeof(uint32_t)
        memset(self.slots.data, 0, self.slots.size)
        for row in range(left):
            (<uint32_t*>self.slots.data)[self.slot_of(changes[row].group, changes[row].rank)] = <uint32_t>(row + 1)
        return 0

    cdef int make_room(self, TopState* state) except -1 nogil:
        """Moves the values to where twice as many fit."""
        cdef int32_t room = min(max(2 * state.room, <int32_t>LEAST_ROOM), <int32_t>MOST)
        state.start = self.move(state.start, state.values * sizeof(Value), room * sizeof(Value))
        state.room = room
        return 0

    cdef int put_last(self, TopState* state, uint64_t rank, int64_t rows) except -1 nogil:
        """Moves a value from the overflow table to behind the others."""
        if state.values == state.room:
            self.make_room(state)
        self.block(state)[state.values].rank = rank
        self.block(state)[state.values].rows = rows
        state.values += 1
        state.first = self.block(state)[0].rank
        state.rest -= rows
        state.bound = rank + 1          # the next rank: this value has no rows in the table any more
        state.changes += 1
        return 0

    cdef int add_value(self, TopState* state, int32_t group, uint64_t rank) except -1 nogil:
        cdef Value* block = self.block(state)
        cdef Value* last
        cdef int32_t at
        state.count += 1
        state.changes += 1
        if state.rest and rank >= state.bound:
            state.rest += 1
            return self.spill(group, rank, 1)
        at = position(block, state.values, rank)
        if at < state.values and block[at].rank == rank:
            block[at].rows += 1
            return 0
        if at == MOST:
            state.bound = rank
            state.rest += 1
            return self.spill(group, rank, 1)
        if state.values == MOST:
            last = block + MOST - 1
            self.spill(group, last.rank, last.rows)
            state.bound = last.rank
            state.rest += last.rows
            state.values -= 1
        elif state.values == state.room:
            self.make_room(state)
            block = self.block(state)
        memmove(block + at + 1, block + at, (state.values - at) * sizeof(Value))
        block[at].rank, block[at].rows = rank, 1
        state.values += 1
        state.first = block[0].rank
        return 0

    cdef int retract_value(self, TopState* state, int32_t group, uint64_t rank) except -1 nogil:
        cdef Value* block = self.block(state)
        cdef int32_t at
        state.count -= 1
        state.changes += 1
        if state.rest and rank >= state.bound:
            state.rest -= 1
            return self.spill(group, rank, -1)
        at = position(block, state.values, rank)
        if at == state.values or block[at].rank != rank:
            with gil:
                raise ConsistencyError(f"a value is retracted from {self.spec.kind} that its group does not have")
        block[at].rows -= 1
        if block[at].rows == 0:
            state.values -= 1
            memmove(block + at, block + at + 1, (state.values - at) * sizeof(Value))
            state.first = block[0].rank
        return 0

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil:
        cdef Py_ssize_t row
        for row in range(rows):
            if weights[row] > 0:
                self.add_value(<TopState*>self.state(ids[row]), ids[row], self.rank(self.view, first + row))
            elif weights[row] < 0:
                self.retract_value(<TopState*>self.state(ids[row]), ids[row], self.rank(self.view, first + row))
        return 0

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        cdef Column values = columns[0], counts = columns[1]
        cdef Py_ssize_t row
        cdef bint is_damaged = False
        with nogil:
            for row in range(rows):
                if (found == NULL or found[row]) and not is_null(&values.view, row):
                    is_damaged |= not self.read_values(
                        <TopState*>self.state(ids[row]), bytes_at(&values.view, row), int64_at(counts, row))
        if is_damaged:
            raise EncodingError(f"the stored values of a {self.spec.kind} are damaged")
        return 0

    cdef bint read_values(self, TopState* state, Slice stored, int64_t count) except -1 nogil:
        """Sets the state; False if the bytes are not those of one."""
        cdef const uint8_t* at = stored.data + WIDTH
        cdef const uint8_t* end = stored.data + stored.size
        cdef Value value
        if stored.size < WIDTH:
            return False
        state.count = state.rest = count
        while at < end:
            at = read_value(at, end, &value)
            if at == NULL or state.values == MOST or (state.values and value.rank < state.bound):
                return False
            self.put_last(state, value.rank, value.rows)
        state.bound = head_of(stored.data, WIDTH)
        state.changes = 0
        return state.rest >= 0

    cdef bint same_output(self, const void* a, const void* b) noexcept nogil:
        cdef const TopState* x = <const TopState*>a
        cdef const TopState* y = <const TopState*>b
        if not x.values or not y.values:
            return x.values == y.values
        return x.first == y.first

    cdef bint same_state(self, const void* a, const void* b) noexcept nogil:
        return (<const TopState*>a).changes == (<const TopState*>b).changes

    cdef int64_t* referenced(self, void* state, Py_ssize_t* size) noexcept nogil:
        cdef TopState* top = <TopState*>state
        top.room = top.values
        size[0] = top.values * <Py_ssize_t>sizeof(Value)
        return &top.start


cdef int32_t position(const Value* values, int32_t count, uint64_t rank) noexcept nogil:
    """The number of values of a lower rank."""
    cdef int32_t low = 0, middle
    while low < count:
        middle = (low + count) >> 1
        if values[middle].rank < rank:
            low = middle + 1
        else:
            count = middle
    return low


cdef Slice bytes_at(const ColumnView* view, Py_ssize_t row) noexcept nogil:
    """A value of BYTEA."""
    cdef Slice out
    out.data, out.size = view.data + view.offsets[row], view.offsets[row + 1] - view.offsets[row]
    return out


cdef void put_big_endian(uint8_t* to, uint64_t value) noexcept nogil:
    cdef int byte
    for byte in range(WIDTH):
        to[byte] = <uint8_t>(value >> (8 * (WIDTH - 1 - byte)))


cdef Slice write_values(const TopState* state, const Value* values, uint8_t* to) noexcept nogil:
    """The stored form, written to `to`."""
    cdef uint8_t* at = to + WIDTH
    cdef Slice out
    cdef int32_t number
    cdef uint64_t rows
    put_big_endian(to, state.bound if state.rest else 0)
    for number in range(state.values):
        put_big_endian(at, values[number].rank)
        at += WIDTH
        rows = <uint64_t>values[number].rows
        while rows >= 0x80:
            at[0] = <uint8_t>(rows | 0x80)
            at += 1
            rows >>= 7
        at[0] = <uint8_t>rows
        at += 1
    out.data, out.size = to, at - to
    return out


cdef const uint8_t* read_value(const uint8_t* at, const uint8_t* end, Value* value) noexcept nogil:
    """Reads a stored value; returns what follows it, NULL if it is not one."""
    cdef uint64_t rows = 0
    cdef int shift = 0
    if end - at <= WIDTH:
        return NULL
    value.rank = head_of(at, WIDTH)
    at += WIDTH
    while at < end and shift < 63:
        rows |= <uint64_t>(at[0] & 0x7F) << shift
        if at[0] < 0x80:
            value.rows = <int64_t>rows
            return at + 1 if rows else NULL
        at += 1
        shift += 7
    return NULL
