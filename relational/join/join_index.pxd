"""JoinIndex: the rows of one input of a join, looked up by join key, removed by stream key.

    join key  --KeyInterner-->  key id  --JoinRows-->  rows

A cache: the authoritative copy is the executor's state table. `locate` reports keys seen for the first time, and `load`
supplies their rows; a key without rows is cached as such. Above the budget `end_epoch` evicts keys with all their rows,
least recently touched first. Only that changes the number of a key or a row.
"""

cimport cython
from libc.stdint cimport int32_t, uint32_t

from relational.hash.key_ids cimport KeyInterner
from relational.join.join_rows cimport JoinRows


@cython.final
cdef class JoinIndex(JoinRows):
    cdef readonly tuple types           # DataTypes of a row
    cdef readonly tuple key_columns     # indices in a row of this input
    cdef readonly tuple null_safe       # per key column: NULL equals NULL (else NULL equals nothing)
    cdef readonly tuple stream_key      # indices; empty: the input is append-only
    cdef readonly object memory_share   # MemoryShare; None: no budget
    cdef readonly bint is_complete      # nothing was ever evicted
    cdef readonly uint32_t epoch        # number of the current epoch
    cdef readonly Py_ssize_t generation # incremented when ids change
    cdef Py_ssize_t forget_at           # keys and rows by which a watermark is compared with all keys
    cdef KeyInterner key_numbers
    cdef object form                    # StoredForm
    cdef object evicted                 # EvictedKeys

    cdef int evict(self, Py_ssize_t kept_bytes) except -1   # keys beyond so many bytes, touched longest ago
    cdef int repack(self, const int32_t[::1] keys) except -1    # keeps only `keys` and their rows
