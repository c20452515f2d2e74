"""ExtremeKernel: MIN and MAX of any type, as encoded key bytes.

Keys compare as their values do, so one kernel serves every type, and a result is SQL-equal to a value that
was added (1 month may come back as 30 days). Without retractions the extreme alone is the state. With them,
taking the extreme away makes the group stale; it stays so until something at least as extreme arrives or its
owner looks up the next extreme in the materialized input and refills it, before results are read.
"""

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t

import numpy as np

from hummock.base.key cimport compare_bytes, head_of
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.agg.kernels cimport check_picks, int64_at, new_column, put_int64
from relational.chunk.column cimport Column, is_null
from relational.chunk.column_builder cimport ColumnBuilder

from relational.encoding.key.encoder import KeyEncoder
from relational.errors import ConsistencyError
from relational.types import OrderType

cdef enum:
    WASTE_BYTES = 1 << 20       # left behind in the arena before packing is worth it

cdef uint8_t NULL_TAG = 1       # the whole key of NULL in an ascending column


@cython.final
cdef class ExtremeKernel(AggKernel):
    """State: Extreme."""

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.width = sizeof(Extreme)
        self.direction = 1 if spec.kind == "min" else -1
        self.is_retractable = spec.is_retractable
        self.encoder = KeyEncoder([spec.input_type], [OrderType()])
        self.arena = ByteBuffer()

    @property
    def size_bytes(self):
        """Memory held by the encoded extremes."""
        return self.arena.capacity

    def stale(self, const int32_t[::1] ids):
        """Those of `ids` whose extreme has to be looked up, as int32[n]."""
        cdef Py_ssize_t row, count = 0
        out = np.empty(ids.shape[0], np.int32)
        cdef int32_t[::1] found = out
        for row in range(ids.shape[0]):
            if (<Extreme*>self.state(ids[row])).status == STALE:
                found[count] = ids[row]
                count += 1
        return out[:count]

    def refill(self, const int32_t[::1] ids, Column values not None):
        """Sets the extremes of the stale groups `ids` to `values`. ConsistencyError where a value is NULL
        although the group has arguments left: its materialized input has lost rows.
        """
        cdef BinaryColumn keys = self.encoder.encode([values])
        cdef Extreme* state
        cdef Py_ssize_t row
        if keys.rows != ids.shape[0]:
            raise ValueError(f"{keys.rows} extremes for {ids.shape[0]} groups")
        for row in range(keys.rows):
            state = <Extreme*>self.state(ids[row])
            if state.status != STALE:
                continue
            if is_null(&values.view, row):
                raise ConsistencyError(f"{self.spec.kind}: no input left for {state.count} arguments")
            self.put_key(state, keys.at(row), head_of(keys.at(row).data + 1, keys.at(row).size - 1))

    def outputs(self, const int32_t[::1] picks):
        """The extremes; NULL for no rows. ConsistencyError where one is stale."""
        cdef Py_ssize_t row, rows = picks.shape[0], stale = 0
        cdef BinaryColumnBuilder keys = BinaryColumnBuilder()
        cdef Extreme* state
        cdef Slice null_key
        null_key.data, null_key.size = &NULL_TAG, 1
        check_picks(self, picks)
        with nogil:
            keys.reserve(rows, 0)
            for row in range(rows):
                state = <Extreme*>self.picked(picks[row])
                stale += state.status == STALE
                keys.append(null_key if state.status == NONE else self.key(state))
        if stale:
            raise ConsistencyError(f"{self.spec.kind} of {stale} groups is read before it is refilled")
        return self.encoder.decode(keys.finish())[0]

    def state_columns(self, const int32_t[::1] picks):
        """Extreme and count."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef ColumnBuilder counts = new_column(self.spec.state_types[1], rows)
        extremes = self.outputs(picks)
        for row in range(rows):
            put_int64(counts, row, (<Extreme*>self.picked(picks[row])).count)
        return [extremes, counts.finish()]

    cdef Slice key(self, const Extreme* state) noexcept nogil:
        cdef Slice out
        out.data = self.arena.data + state.start
        out.size = state.size
        return out

    cdef int order(self, const Extreme* state, Slice key, uint64_t head) noexcept nogil:
        cdef int order
        if head != state.head:
            order = -1 if head < state.head else 1
        else:
            order = compare_bytes(key, self.key(state))
        return order * self.direction

    cdef int put_key(self, Extreme* state, Slice key, uint64_t head) except -1 nogil:
        state.start, state.size = self.arena.size, <int32_t>key.size
        state.head, state.status = head, KNOWN
        self.arena.append(key.data, key.size)
        return 0

    cdef int add_key(self, Extreme* state, Slice key) except -1 nogil:
        cdef uint64_t head = head_of(key.data + 1, key.size - 1)
        state.count += 1
        if state.status == NONE:
            return self.put_key(state, key, head)
        if self.order(state, key, head) < (1 if state.status == STALE else 0):
            return self.put_key(state, key, head)
        return 0

    cdef int retract_key(self, Extreme* state, Slice key) noexcept nogil:
        state.count -= 1
        if state.count == 0:
            state.status = NONE
        elif state.status == KNOWN and self.order(state, key, head_of(key.data + 1, key.size - 1)) == 0:
            state.status = STALE
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
        for row in range(rows):
            if weights[row] > 0:
                self.add_key(<Extreme*>self.state(ids[row]), self.keys.at(first + row))
            elif weights[row] < 0:
                if not self.is_retractable:
                    with gil:
                        raise ConsistencyError(
                            f"retraction from an append-only {self.spec.kind} in row {first + row}")
                self.retract_key(<Extreme*>self.state(ids[row]), self.keys.at(first + row))
        return 0

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        cdef Column extremes = columns[0], counts = columns[1]
        cdef BinaryColumn keys = self.encoder.encode([extremes])
        cdef Extreme* state
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                if (found == NULL or found[row]) and not is_null(&extremes.view, row):
                    state = <Extreme*>self.state(ids[row])
                    state.count = int64_at(counts, row)
                    self.put_key(state, keys.at(row), head_of(keys.at(row).data + 1, keys.at(row).size - 1))
        return 0

    cdef bint same_output(self, const void* a, const void* b) noexcept nogil:
        cdef const Extreme* x = <const Extreme*>a
        cdef const Extreme* y = <const Extreme*>b
        if x.status == NONE or y.status == NONE:
            return x.status == y.status
        return x.head == y.head and compare_bytes(self.key(x), self.key(y)) == 0

    cdef bint same_state(self, const void* a, const void* b) noexcept nogil:
        return (<const Extreme*>a).count == (<const Extreme*>b).count and self.same_output(a, b)

    cdef int end_epoch(self) except -1:
        if self.arena.size > 2 * self.live_bytes + WASTE_BYTES:
            self.pack()
        return 0

    cdef int pack(self) except -1:
        cdef ByteBuffer packed = ByteBuffer()
        cdef Extreme* state
        cdef Py_ssize_t row
        cdef int64_t start
        with nogil:
            for row in range(self.states.groups):
                state = <Extreme*>self.state(row)
                if state.status != NONE:
                    start = packed.size
                    packed.append(self.arena.data + state.start, state.size)
                    state.start = start
        self.arena = packed
        self.live_bytes = packed.size
        return 0
