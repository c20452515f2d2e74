"""MinMaxKernel: MIN and MAX of any type, as encoded key bytes.

Keys order as their values do, so one kernel serves every type, and a result is SQL-equal to an added value (1 month may
be returned as 30 days). Without retractions the extreme alone is the state. With them, retracting the extreme makes the
group stale until a value at least as extreme arrives, or until its owner looks up the next extreme in the materialized
input and refills it, which must happen before results are read.
"""

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t

import numpy as np

from hummock.base.key cimport Slice, compare_bytes, head_of
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from relational.agg.kernels cimport AggKernel, ArenaKernel, check_picks, counts_of, int64_at
from relational.chunk.column cimport Column, as_column, is_null

from relational.encoding.key.encoder import KeyEncoder
from relational.errors import ConsistencyError
from relational.types import OrderType

cdef enum MinMaxStatus:
    NONE = 0            # no arguments: the result is NULL
    KNOWN = 1
    STALE = 2           # the extreme was retracted: the remaining arguments are equal to it or less extreme

cdef struct MinMaxState:
    int64_t count       # non-NULL arguments
    uint64_t head       # first 8 bytes of the encoded extreme after its null tag
    int64_t start       # of the encoded extreme in `arena`
    int32_t size
    int32_t status      # MinMaxStatus

cdef uint8_t NULL_TAG = 1       # the whole key of NULL in an ascending column


@cython.final
cdef class MinMaxKernel(ArenaKernel):
    """State: MinMaxState."""

    cdef int direction          # 1: the least key is the extreme, -1: the greatest
    cdef bint is_retractable
    cdef object encoder         # KeyEncoder of the argument, ascending
    cdef BinaryColumn keys      # encoded arguments of the current chunk, or None

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.width = sizeof(MinMaxState)
        self.direction = 1 if spec.kind == "min" else -1
        self.is_retractable = spec.is_retractable
        self.encoder = KeyEncoder([spec.input_type], [OrderType()])

    def stale(self, const int32_t[::1] ids):
        """Those of `ids` whose extreme must be looked up, as int32[n]."""
        cdef Py_ssize_t row, count = 0
        out = np.empty(ids.shape[0], np.int32)
        cdef int32_t[::1] found = out
        for row in range(ids.shape[0]):
            if (<MinMaxState*>self.state(ids[row])).status == STALE:
                found[count] = ids[row]
                count += 1
        return out[:count]

    def refill(self, const int32_t[::1] ids, Column values not None):
        """Sets the extremes of the stale groups `ids` to `values`. ConsistencyError if a value is NULL although the
        group has arguments left: its materialized input has lost rows.
        """
        cdef BinaryColumn keys = self.encoder.encode([values])
        cdef MinMaxState* state
        cdef Py_ssize_t row
        if keys.rows != ids.shape[0]:
            raise ValueError(f"{keys.rows} extremes for {ids.shape[0]} groups")
        for row in range(keys.rows):
            state = <MinMaxState*>self.state(ids[row])
            if state.status != STALE:
                continue
            if is_null(&values.view, row):
                raise ConsistencyError(f"{self.spec.kind}: no input left for {state.count} arguments")
            self.put_key(state, keys.at(row), head_of(keys.at(row).data + 1, keys.at(row).size - 1))

    def outputs(self, const int32_t[::1] picks):
        """The extremes; NULL for no rows. ConsistencyError for a stale one."""
        cdef Py_ssize_t row, rows = picks.shape[0], stale = 0
        cdef BinaryColumnBuilder keys = BinaryColumnBuilder()
        cdef MinMaxState* state
        cdef Slice null_key
        null_key.data, null_key.size = &NULL_TAG, 1
        check_picks(self, picks)
        with nogil:
            keys.reserve(rows, 0)
            for row in range(rows):
                state = <MinMaxState*>self.picked(picks[row])
                stale += state.status == STALE
                keys.append(null_key if state.status == NONE else self.key(state))
        if stale:
            raise ConsistencyError(f"{self.spec.kind} of {stale} groups is read before it is refilled")
        return as_column(self.encoder.decode(keys.finish())[0])

    def state_columns(self, const int32_t[::1] picks):
        """The minimum or maximum, and the count."""
        return [self.outputs(picks), counts_of(self, picks)]

    cdef Slice key(self, const MinMaxState* state) noexcept nogil:
        """Valid until the arena grows."""
        cdef Slice out
        out.data = self.arena.data + state.start
        out.size = state.size
        return out

    cdef int order(self, const MinMaxState* state, Slice key, uint64_t head) noexcept nogil:
        """Negative: `key` is more extreme than the state's; 0: equal."""
        cdef int order
        if head != state.head:
            order = -1 if head < state.head else 1
        else:
            order = compare_bytes(key, self.key(state))
        return order * self.direction

    cdef int put_key(self, MinMaxState* state, Slice key, uint64_t head) except -1 nogil:
        state.start, state.size = self.arena.size, <int32_t>key.size
        state.head, state.status = head, KNOWN
        self.arena.append(key.data, key.size)
        return 0

    cdef int add_key(self, MinMaxState* state, Slice key) except -1 nogil:
        cdef uint64_t head = head_of(key.data + 1, key.size - 1)
        state.count += 1
        if state.status == NONE:
            return self.put_key(state, key, head)
        if self.order(state, key, head) < (1 if state.status == STALE else 0):
            return self.put_key(state, key, head)
        return 0

    cdef int retract_key(self, MinMaxState* state, Slice key) noexcept nogil:
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
                self.add_key(<MinMaxState*>self.state(ids[row]), self.keys.at(first + row))
            elif weights[row] < 0:
                if not self.is_retractable:
                    with gil:
                        raise ConsistencyError(
                            f"retraction from an append-only {self.spec.kind} in row {first + row}")
                self.retract_key(<MinMaxState*>self.state(ids[row]), self.keys.at(first + row))
        return 0

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        cdef Column extremes = columns[0], counts = columns[1]
        cdef BinaryColumn keys = self.encoder.encode([extremes])
        cdef MinMaxState* state
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                if (found == NULL or found[row]) and not is_null(&extremes.view, row):
                    state = <MinMaxState*>self.state(ids[row])
                    state.count = int64_at(counts, row)
                    self.put_key(state, keys.at(row), head_of(keys.at(row).data + 1, keys.at(row).size - 1))
        return 0

    cdef int merge_states(self, const int32_t* ids, Py_ssize_t rows, list columns) except -1:
        cdef Column extremes = columns[0], counts = columns[1]
        cdef BinaryColumn keys = self.encoder.encode([extremes])
        cdef MinMaxState* state
        cdef Py_ssize_t row
        if self.is_retractable:
            raise TypeError(f"states of {self.spec.kind} that a retraction can change cannot be merged")
        with nogil:
            for row in range(rows):
                if not is_null(&extremes.view, row):
                    state = <MinMaxState*>self.state(ids[row])
                    self.add_key(state, keys.at(row))
                    state.count += int64_at(counts, row) - 1
        return 0

    cdef bint same_output(self, const void* a, const void* b) noexcept nogil:
        cdef const MinMaxState* x = <const MinMaxState*>a
        cdef const MinMaxState* y = <const MinMaxState*>b
        if x.status == NONE or y.status == NONE:
            return x.status == y.status
        return x.head == y.head and compare_bytes(self.key(x), self.key(y)) == 0

    cdef bint same_state(self, const void* a, const void* b) noexcept nogil:
        return (<const MinMaxState*>a).count == (<const MinMaxState*>b).count and self.same_output(a, b)

    cdef int64_t* referenced(self, void* state, Py_ssize_t* size) noexcept nogil:
        size[0] = 0 if (<MinMaxState*>state).status == NONE else (<MinMaxState*>state).size
        return &(<MinMaxState*>state).start
