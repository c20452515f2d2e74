"""JoinIndex: the rows of one input of a join, found by join key, taken back by stream key.

    join key    --KeyNumbers-->  key number  --RowLists-->  row numbers
    stream key  --KeyNumbers-->  row number  --RowRecords-->  RowHeader, values      (append-only: in order of arrival)

A deleted row leaves a gap in the numbers. Gaps are closed when they are many; no number changes but in `end_epoch`.

Truth is elsewhere (the executor's state table). A key met for the first time is told by `locate`, and its rows come
by `load`; a key without rows is remembered as such. Above the budget `end_epoch` forgets keys, with all their rows,
those not touched for the longest time first.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from relational.chunk.column cimport ColumnView
from relational.state.key_numbers cimport KeyNumbers
from relational.state.row_lists cimport RowLists
from relational.state.row_records cimport RowRecords

cdef struct RowHeader:
    int32_t key             # key number + 1 of the row; 0: there is no such row now
    int32_t place           # of the row among those of its key
    int32_t degree          # rows of the other input that it matches, as the owner counts


@cython.final
cdef class JoinIndex:
    cdef readonly tuple key_columns     # positions in a row of this input
    cdef readonly tuple null_safe       # per key column: NULL equals NULL (else NULL equals nothing)
    cdef readonly tuple stream_key      # positions; empty: the input only appends
    cdef readonly object capacity_bytes # None: no budget
    cdef readonly bint is_complete      # nothing was ever forgotten
    cdef readonly uint32_t epoch        # number of the present epoch
    cdef readonly Py_ssize_t generation # how often numbers have changed
    cdef KeyNumbers key_numbers
    cdef KeyNumbers row_numbers
    cdef RowLists lists
    cdef RowRecords records

    cdef Py_ssize_t change_rows(self, const ColumnView** views, const int32_t* ids, const int32_t* numbers,
                                const uint8_t* ops, const int32_t* degrees, Py_ssize_t rows) except -2 nogil
    # inserts and deletes the rows whose number is not negative; the first row at fault, or -1
    cdef Py_ssize_t link_block(self, const int32_t* ids, const int32_t* numbers, const uint8_t* ops,
                               const int32_t* degrees, Py_ssize_t rows, int32_t* written) except -2 nogil
    # the same without values; written[i]: the record to write, or -1
    cdef int repack(self, const int32_t[::1] keys) except -1    # only `keys`, and their rows, stay

    cdef inline RowHeader* header(self, int64_t row) noexcept nogil:
        return <RowHeader*>self.records.record(row)
