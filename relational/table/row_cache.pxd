"""RowCache: the newest rows of one table under a byte budget."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder

cdef struct Record:         # in the ring, 8-aligned; key and value follow
    uint32_t tag            # of its key's hash
    uint32_t span           # bytes, header included
    int32_t key_size
    int32_t value_size      # -1: there is no such row
    uint8_t is_live         # a place points here
    uint8_t is_asked        # since it came, or was last spared

cdef struct Place:          # where a record may be
    uint32_t tag            # its home is tag & mask
    uint32_t at             # offset in the ring / 8 + 1; 0: no record


@cython.final
cdef class RowCache:
    cdef readonly Py_ssize_t budget_bytes
    cdef readonly Py_ssize_t count      # rows held, known absences included
    cdef readonly int64_t hits
    cdef readonly int64_t misses
    cdef readonly int64_t evictions
    cdef Place* places                  # pooled; mask + 1 of them
    cdef uint32_t mask
    cdef int64_t most_places
    cdef uint8_t* ring                  # pooled; ring_bytes; touched as it fills
    cdef int64_t ring_bytes
    cdef int64_t head                   # where the next record goes
    cdef int64_t tail                   # the oldest record
    cdef int64_t end                    # where the records behind `tail` end, while the head has wrapped
    cdef bint is_wrapped
    cdef int64_t records                # in the ring, dead ones included
    cdef int32_t passed_over            # of 2**this keys one is kept when it is missed
    cdef int64_t seen_hits              # those of the three counts when that was last thought over
    cdef int64_t seen_misses
    cdef int64_t seen_evictions
    cdef bytes mark                     # of a watermark; None: there is none
    cdef Slice passed                   # its bytes
    cdef bint is_descending

    cdef Record* find(self, Slice key, uint32_t tag) noexcept nogil
    cdef int find_block(self, BinaryColumn keys, Py_ssize_t first, Py_ssize_t rows, int64_t* out) except -1 nogil
    # out[rows]: offset of each key's record, -1 where none is
    cdef bint is_passed(self, Slice key) noexcept nogil     # by the watermark
    cdef int put(self, Slice key, uint32_t tag, Slice value, bint is_absent) except -1 nogil
    cdef int64_t room(self, int64_t span) noexcept nogil    # offset of so many free bytes, after what must go for them
    cdef void evict(self, bint is_sparing) noexcept nogil   # the oldest record, unless it is spared
    cdef uint32_t place_at(self, const Record* record) noexcept nogil   # the place that points to a living record
    cdef void forget(self, Record* record) noexcept nogil   # no place points to it any more
    cdef int find_all(self, BinaryColumn keys, int64_t* out, BinaryColumnBuilder asked) except -1 nogil
    # out[rows]: offset of each key's record; keys without one go to `asked`, and get -1
    cdef int put_all(self, BinaryColumn keys, BinaryColumn values) except -1 nogil
    cdef void think_over(self) noexcept nogil
    cdef int make_place(self) except -1 nogil               # for one row more
    cdef int resize(self, int64_t places) except -1 nogil
