"""AggKernel: the part of a group's record that belongs to one aggregate call; CountKernel; helpers for all kernels.

ArenaKernel and WordKernel are bases of several kernels: of states with bytes outside the records, and of one word.
"""

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.agg.records cimport GroupRecords
from relational.chunk.column cimport Column, ColumnView
from relational.chunk.column_builder cimport ColumnBuilder


cdef class AggKernel:
    cdef readonly object spec           # AggSpec
    cdef readonly tuple state_types     # DataType of each state column: those of `spec`, then its wide ones
    cdef readonly bint strict           # a result that does not fit its type is an error, not NULL
    cdef readonly bint is_rounded       # a retraction leaves a rounding error in the state
    cdef readonly Py_ssize_t overflows  # groups whose last emitted result is NULL because it does not fit its type
    cdef GroupRecords states            # set by GroupStates, which references this kernel: a cycle of equal lifetime
    cdef Py_ssize_t offset              # of this call's state in a record
    cdef Py_ssize_t width               # its size in bytes; all zero is the state of no rows
    cdef Py_ssize_t wanted              # required size: more than `width` after `begin` or `expect`
    cdef object held                    # owner of `view` and `mask`, between `begin` and `end`
    cdef const ColumnView* view         # the argument of the current chunk, or NULL
    cdef const uint8_t* mask            # its FILTER, or NULL

    cdef int begin(self, Py_ssize_t rows, Column argument, mask) except -1      # before a chunk
    cdef void end(self) noexcept                                                # after a chunk
    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil
    # row i adds argument `first + i` to group ids[i] (-1 with weight 0: none): weight 1 adds, -1 retracts, 0 is a no-op
    cdef int expect(self, Py_ssize_t rows, list columns) except -1              # before rows of the state columns
    cdef void widen(self, uint8_t* state) noexcept nogil
    # widens a state from `width` bytes, which zeros follow, to `wanted` bytes
    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1
    # fills the states of `ids` from rows of the state columns, where found
    cdef int merge_states(self, const int32_t* ids, Py_ssize_t rows, list columns) except -1
    # adds rows of the state columns to the states of `ids`: as if their rows had been added here
    cdef void combine(self, void* into, const void* other, int sign) noexcept nogil
    # adds the rows of another state, or, with sign -1, which `is_rounded` forbids, takes them away
    cdef bint same_state(self, const void* a, const void* b) noexcept nogil
    cdef bint same_output(self, const void* a, const void* b) noexcept nogil
    cdef int end_epoch(self) except -1  # nothing remains saved
    cdef int pack(self) except -1       # releases memory that no record references; REQUIRES nothing saved

    cdef inline void* state(self, int64_t group) noexcept nogil:
        """This call's state of a group. Valid until groups are added."""
        return self.states.record(group) + self.offset

    cdef inline void* picked(self, int64_t pick) noexcept nogil:
        """This call's state in the picked record."""
        return self.states.picked(pick) + self.offset


@cython.final
cdef class CountKernel(AggKernel):
    """Rows, or non-NULL arguments. State: int64."""


cdef class ArenaKernel(AggKernel):
    """Base: a state refers to bytes in `arena`. Replaced ones remain until `pack`: saved records may refer to them."""

    cdef ByteBuffer arena
    cdef Py_ssize_t live_bytes  # of `arena` when it was last packed

    cdef int64_t* referenced(self, void* state, Py_ssize_t* size) noexcept nogil
    # for `pack`: the field of a state with the start of its bytes in `arena`, and how many are kept, 0 for none;
    # afterwards the state has no room beyond them

    cdef inline int64_t move(self, int64_t start, Py_ssize_t size, Py_ssize_t room) except -1 nogil:
        """Copies `size` bytes of the arena to its end, where `room` bytes are added; returns their new start."""
        cdef int64_t moved = self.arena.size
        self.arena.reserve(room)
        memcpy(self.arena.data + moved, self.arena.data + start, <size_t>size)
        self.arena.size += room
        return moved


cdef struct WordState:
    int64_t count       # non-NULL arguments
    uint64_t word       # 0 while there are none


cdef class WordKernel(AggKernel):
    """Base: one word is combined from the ranks (`relational.agg.rank`) of the arguments. State: WordState."""

    cdef uint64_t flip  # bits by which the word of a state, or of an argument, differs from the rank of the value


cdef ColumnBuilder new_column(data_type, Py_ssize_t rows)               # capacity for `rows`, to be filled by put
cdef int check_picks(AggKernel kernel, const int32_t[::1] picks) except -1   # IndexError
cdef Column counts_of(AggKernel kernel, const int32_t[::1] picks)
# BIGINT; REQUIRES states that begin with an int64, the number of arguments. IndexError as check_picks
cdef int64_t int64_at(Column column, Py_ssize_t row) noexcept nogil     # REQUIRES BIGINT; NULL is 0

cdef inline void put_null(ColumnBuilder column, Py_ssize_t row) noexcept nogil:
    cdef int byte
    column.present[row] = 0
    column.nulls += 1
    for byte in range(column.width):
        column.values[row * column.width + byte] = 0

cdef inline void put_int64(ColumnBuilder column, Py_ssize_t row, int64_t value) noexcept nogil:
    column.present[row] = 1
    (<int64_t*>column.values)[row] = value

cdef inline void put_wide(ColumnBuilder column, Py_ssize_t row, const void* value) noexcept nogil:
    """16 bytes."""
    column.present[row] = 1
    memcpy(column.values + 16 * row, value, 16)

cdef inline void put_double(ColumnBuilder column, Py_ssize_t row, double value) noexcept nogil:
    column.present[row] = 1
    (<double*>column.values)[row] = value
