"""GroupStates: one record per group, in which the states of all aggregate calls lie side by side; and AggKernel,
what one call keeps there.
"""

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from hummock.byte_buffer cimport ByteBuffer
from relational.chunk.column cimport Column, ColumnView
from relational.state.record_buffer cimport RecordBuffer


cdef class AggKernel


@cython.final
cdef class GroupStates:
    cdef readonly tuple kernels         # AggKernel, each with its place in the record
    cdef readonly Py_ssize_t groups     # records
    cdef readonly Py_ssize_t width      # bytes of a record; an all-zero record is the state of no rows
    cdef readonly uint32_t epoch        # number of the present epoch, counted by `finish`
    cdef RecordBuffer records           # one of no group, which rows of no group may change by 0; then each group's
    cdef ByteBuffer saved               # records of the dirty groups before this epoch, in dirty order
    cdef ByteBuffer gathered            # records that the last `gather` copied, in its order
    cdef Py_ssize_t first_saved         # place in `saved` of the former state of gathered record 0
    cdef RecordBuffer marks              # a bit per group: it is dirty
    cdef ByteBuffer dirty               # int32: dirty groups in the order of their first touch in this epoch
    cdef ByteBuffer touched             # uint32 per group: number of the last epoch, before this, that touched it
    cdef ByteBuffer weights             # int8: of the block at hand, and of one call in it

    cdef int mark(self, const int32_t* ids, Py_ssize_t rows) except -1 nogil
    # makes ids dirty, saving each group's record at its first touch; asks for the memory of all of them
    cdef int save(self, const int32_t* ids, Py_ssize_t rows) except -1 nogil
    cdef int apply_rows(self, const int32_t* ids, const uint8_t* ops, Py_ssize_t rows, void** kernels,
                        int count) except -1 nogil
    cdef int copy_records(self, const int32_t* ids, Py_ssize_t rows, uint8_t* target) except -1 nogil

    cdef inline uint8_t* record(self, int64_t group) noexcept nogil:
        """The record of a group, -1: of none. Lives until groups are added."""
        return self.records.data + (group + 1) * self.width

    cdef inline uint8_t* picked(self, int64_t pick) noexcept nogil:
        """Gathered record `pick`; where negative, the former state of gathered record ~pick."""
        if pick >= 0:
            return self.gathered.data + pick * self.width
        return self.saved.data + (self.first_saved + ~pick) * self.width


cdef class AggKernel:
    cdef readonly object spec           # AggSpec
    cdef readonly bint strict           # a result that its type cannot hold is an error, not NULL
    cdef readonly Py_ssize_t overflows  # results given as NULL because their type cannot hold them
    cdef GroupStates states             # set by GroupStates, which holds this kernel: a cycle, and lives as long
    cdef Py_ssize_t offset              # of this call's state in a record
    cdef Py_ssize_t width               # bytes of it; all zero is the state of no rows
    cdef object held                    # what `view` and `mask` point into, between `begin` and `end`
    cdef const ColumnView* view         # the argument of the chunk at hand, or NULL
    cdef const uint8_t* mask            # its FILTER, or NULL

    cdef int begin(self, Py_ssize_t rows, Column argument, mask) except -1      # a chunk comes
    cdef void end(self) noexcept                                                # the chunk is over
    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil
    # row i adds argument `first + i` to group ids[i] (-1 with weight 0: none): weight 1 adds, -1 takes away, 0 nothing
    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1
    # fills the states of `ids` from rows of the state columns, where found
    cdef bint same_state(self, const void* a, const void* b) noexcept nogil
    cdef bint same_output(self, const void* a, const void* b) noexcept nogil
    cdef int end_epoch(self) except -1  # nothing is saved any more
    cdef int pack(self) except -1       # drops memory that no record points to; REQUIRES nothing saved

    cdef inline void* state(self, int64_t group) noexcept nogil:
        """This call's state of a group. Lives until groups are added."""
        return self.states.record(group) + self.offset

    cdef inline void* picked(self, int64_t pick) noexcept nogil:
        """This call's state in the picked record."""
        return self.states.picked(pick) + self.offset
