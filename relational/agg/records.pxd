"""GroupRecords: one record per group with the states of all aggregate calls side by side, the groups touched in an
epoch, and their records before that epoch.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.hash.record_arena cimport RecordArena


cdef Py_ssize_t padded(Py_ssize_t width) noexcept       # size of a record with states of so many bytes


cdef class GroupRecords:
    cdef readonly Py_ssize_t groups     # records
    cdef readonly Py_ssize_t width      # of a record, in bytes; an all-zero record is the state of no rows
    cdef readonly uint32_t epoch        # number of the current epoch, incremented by `finish`
    cdef RecordArena records            # record -1, which rows of no group may change by 0; then each group's
    cdef RecordArena saved              # records of the dirty groups before this epoch, in dirty order
    cdef Py_ssize_t expected            # bytes of `saved` in the epoch before, if its memory was returned to the pool
    cdef ByteBuffer gathered            # records that the last `gather` copied, in its order
    cdef Py_ssize_t first_saved         # index in `saved` of the former state of gathered record 0
    cdef RecordArena marks              # a bit per group: whether it is dirty
    cdef ByteBuffer dirty               # int32: dirty groups in the order of their first touch in this epoch
    cdef ByteBuffer touched             # uint32 per group: number of the last epoch that finished it, 0: of none

    cdef int grow_to(self, Py_ssize_t groups) except -1 nogil
    cdef void finish_first(self, Py_ssize_t count) noexcept nogil
    cdef int mark(self, const int32_t* ids, Py_ssize_t rows) except -1 nogil
    # makes ids dirty, saving each group's record at its first touch; prefetches all of them
    cdef int save(self, const int32_t* ids, Py_ssize_t rows) except -1 nogil
    cdef int copy_records(self, const int32_t* ids, Py_ssize_t rows, uint8_t* target) except -1 nogil

    cdef inline uint8_t* record(self, int64_t group) noexcept nogil:
        """The record of a group, -1: of none. Valid until groups are added."""
        return self.records.data + (group + 1) * self.width

    cdef inline uint8_t* picked(self, int64_t pick) noexcept nogil:
        """Gathered record `pick`; if negative, the former state of gathered record ~pick."""
        if pick >= 0:
            return self.gathered.data + pick * self.width
        return self.saved.data + (self.first_saved + ~pick) * self.width
