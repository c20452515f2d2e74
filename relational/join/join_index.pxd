"""JoinIndex: the rows of one input of a join, found by join key, taken back by stream key.

    join key  --KeyNumbers-->  key number  --JoinRows-->  rows

Truth is elsewhere (the executor's state table). A key met for the first time is told by `locate`, and its rows come
by `load`; a key without rows is remembered as such. Above the budget `end_epoch` forgets keys, with all their rows,
those not touched for the longest time first. No number of a key or a row changes but there.
"""

cimport cython
from libc.stdint cimport int32_t, uint32_t

from relational.hash.key_ids cimport KeyNumbers
from relational.join.join_rows cimport JoinRows


@cython.final
cdef class JoinIndex(JoinRows):
    cdef readonly tuple types           # DataTypes of a row
    cdef readonly tuple key_columns     # positions in a row of this input
    cdef readonly tuple null_safe       # per key column: NULL equals NULL (else NULL equals nothing)
    cdef readonly tuple stream_key      # positions; empty: the input only appends
    cdef readonly object capacity_bytes # None: no budget
    cdef readonly bint is_complete      # nothing was ever forgotten
    cdef readonly uint32_t epoch        # number of the present epoch
    cdef readonly Py_ssize_t generation # how often numbers have changed
    cdef KeyNumbers key_numbers
    cdef object form                    # StoredForm

    cdef int repack(self, const int32_t[::1] keys) except -1    # only `keys`, and their rows, stay
