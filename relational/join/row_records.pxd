"""RowRecords: rows of a chunk as fixed-size records, one after the other in memory.

    record   header, if any | a bit per column: the value is there; a bit: written | values, side by side
    value    as in Arrow; BOOLEAN a byte; VARCHAR, BYTEA, JSONB its position (int64) and size (int32) in `arena`

A row is one or two cache lines, however many columns it has. The header belongs to the owner of the records, and so
does the bit behind those of the columns. An all-zero record is a row of NULLs, and represents row -1. A record that is
not used holds the number of another such one, if it is released.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from relational.chunk.column cimport ColumnView
from relational.hash.record_arena cimport RecordArena

cdef struct FieldSlot:
    int kind            # of a column
    int width           # bytes of its value in a record
    Py_ssize_t offset   # of its value in a record


@cython.final
cdef class RowRecords:
    cdef readonly tuple types
    cdef readonly Py_ssize_t rows       # records, used or not
    cdef readonly Py_ssize_t width      # bytes of a record
    cdef FieldSlot* slots               # owned; one per column
    cdef int count                      # columns
    cdef Py_ssize_t bits                # offset of the presence bits: the size of the header
    cdef RecordArena records            # record -1, then each row's
    cdef RecordArena arena              # bytes of strings; those of replaced rows remain until `keep`
    cdef Py_ssize_t dead_bytes          # of `arena`: strings of released records
    cdef Py_ssize_t value_bytes         # of the columns of a row as Arrow holds them, without the bytes of strings
    cdef bint has_strings

    cdef int grow(self, Py_ssize_t rows) except -1          # adds zero records up to `rows`
    cdef int make_room(self, Py_ssize_t more) except -1 nogil   # memory for `more` records
    cdef int write(self, const ColumnView** views, Py_ssize_t first, Py_ssize_t rows, const int32_t* ids,
                   ) except -1 nogil
    # writes the values of row `first + i` to record ids[i]; negative: skipped. REQUIRES ids below `rows`
    cdef bint equals(self, int32_t row, int column, const ColumnView* view, Py_ssize_t at) noexcept nogil
    # whether a value of a record equals, in SQL's sense, that of a row of a view of the same type; NULL equals NULL
    cdef Py_ssize_t string_bytes(self, int64_t row) noexcept nogil      # of `arena` that a record refers to
    cdef list gather(self, const int32_t* ids, Py_ssize_t rows, tuple columns)
    # one pa.Array per requested column; NULL for id -1
    cdef int keep(self, const uint8_t* marks, int32_t* numbers) except -1
    # renumbers the marked records, headers included, to 0, 1, 2 … in their order, and drops the others; REQUIRES that
    # they are written. numbers[row]: the new number of a marked one

    cdef inline uint8_t* record(self, int64_t row) noexcept nogil:
        """Valid until `grow` or `keep`."""
        return self.records.data + (row + 1) * self.width

    cdef inline bint is_written(self, int64_t row) noexcept nogil:
        return (self.record(row)[self.bits + (self.count >> 3)] >> (self.count & 7)) & 1

    cdef inline void mark_written(self, int64_t row) noexcept nogil:
        self.record(row)[self.bits + (self.count >> 3)] |= <uint8_t>(1 << (self.count & 7))

    cdef inline void release(self, int64_t row, int32_t next_free) noexcept nogil:
        """Its values are not needed any more; it holds `next_free` from now on."""
        if self.has_strings:
            self.dead_bytes += self.string_bytes(row)
        memcpy(self.record(row), &next_free, sizeof(int32_t))

    cdef inline int32_t next_free(self, int64_t row) noexcept nogil:
        """REQUIRES that it is released."""
        cdef int32_t number
        memcpy(&number, self.record(row), sizeof(int32_t))
        return number

    cdef inline void clear_next(self, Py_ssize_t rows) noexcept nogil:
        """Zeroes the next `rows` records for later use; REQUIRES capacity."""
        memset(self.record(self.rows), 0, <size_t>(rows * self.width))

    cdef inline int32_t next_row(self, int32_t again) noexcept nogil:
        """Returns the next record, which is zero; or `again`, if not negative, which is zeroed."""
        if again >= 0:
            memset(self.record(again), 0, <size_t>self.width)
            return again
        self.rows += 1
        self.records.size += self.width
        return <int32_t>(self.rows - 1)
