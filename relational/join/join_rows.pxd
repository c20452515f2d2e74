"""JoinRows: the rows of one input of a join under the ids of their join keys.

    key id  --RowLists-->  row ids, and the tags of their stream keys  --RowRecords-->  values

Row ids are assigned in order of arrival, those of deleted rows first: the new half of an update gets the id of the old
one.

There is no index from a stream key to its row: a change includes the join key too, and among the rows of one key a row
is found by a tag, the hash of its stream key, which is stored next to its id.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from relational.chunk.column cimport ColumnView
from relational.join.row_lists cimport RowLists
from relational.join.row_records cimport RowRecords

cdef struct Changes:        # of a chunk
    const int32_t* ids      # key id per row, -1: skipped
    const uint8_t* visible  # NULL: all are
    const uint8_t* ops      # NULL: all are inserts
    const int32_t* degrees  # NULL: all are 0
    const ColumnView** views    # stored columns
    const ColumnView** named    # columns of the stream key, as received


cdef enum:
    GAPS = 16               # a record in so many may be free: fewer are not worth new rows out of the order of records


cdef class JoinRows:
    cdef RowLists lists
    cdef RowRecords records
    cdef int* name                      # owned: stored columns of the stream key
    cdef int name_count                 # 0: the input is append-only
    cdef Py_ssize_t degree_at           # offset in a record of the number of matching rows of the other input, which
                                        # the owner maintains; -1: records have none
    cdef int32_t free_row               # id of the row that was deleted last, -1: no id is free
    cdef bint is_contradicted           # by the row at which `link_rows` stopped

    cdef Py_ssize_t change_rows(self, const Changes* job, Py_ssize_t rows) except -2 nogil
    # inserts and deletes; returns the first invalid row, or -1
    cdef Py_ssize_t link_rows(self, const Changes* job, Py_ssize_t first, Py_ssize_t rows, const uint32_t* tags,
                              int32_t* written) except -1 nogil
    # the same without values, up to a row that contradicts or needs values; returns the count. written[i]: a record, or
    # -1
    cdef void mark_written(self, Py_ssize_t rows, const int32_t* written) noexcept nogil
    # their records, except where it is -1
    cdef void prefetch_rows(self, const Changes* job, Py_ssize_t first, Py_ssize_t rows,
                            const uint32_t* tags) noexcept nogil
    cdef int32_t find_row(self, const Changes* job, Py_ssize_t row, uint32_t tag) noexcept nogil
    # the position, in the list of its key, of the row with the join key and stream key of a row of the chunk; -1: none,
    # UNWRITTEN: not known yet
    cdef bint is_named(self, const Changes* job, Py_ssize_t row, int32_t meant) noexcept nogil

    cdef inline bint has_gaps(self) noexcept nogil:
        """Whether there are so many free records that new rows take them."""
        return (self.records.rows - self.lists.rows) * GAPS > self.records.rows

    cdef inline int32_t* degree(self, int64_t row) noexcept nogil:
        """REQUIRES that records have one."""
        return <int32_t*>(self.records.record(row) + self.degree_at)
