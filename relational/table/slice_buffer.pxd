"""SliceBuffer: the writes of one epoch on one table as slices, each key once a slice."""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from hummock.columnar.binary_column cimport BinaryColumn
from hummock.columnar.buffer_pool cimport ByteBuffer
from hummock.columnar.write_batch cimport KvBatch
from relational.table.batch_rows cimport BatchRows
from relational.table.batch_writer cimport BatchWriter
from relational.table.key_sort cimport KeyItem

cdef struct Run:            # rows of one slice and vnode with ascending keys, as long as possible
    int64_t first           # numbers of its rows in `rows`, consecutive
    int64_t last


@cython.final
cdef class SliceBuffer:
    cdef readonly object name           # of the table, for errors
    cdef object show_key                # user key -> its representation in errors
    cdef readonly bint is_insert_only
    cdef readonly Py_ssize_t held_bytes # of all slices
    cdef BatchRows rows                 # a batch for each slice; null values delete
    cdef ByteBuffer runs                # Run[]; only while `is_ordered`
    cdef bint is_ordered                # the slices consist of few runs

    cdef Py_ssize_t drain_bytes

    cdef object error(self, message, key)
    cdef KvBatch folded(self, BinaryColumn keys, BinaryColumn values, const uint8_t* ops)
    cdef int note_runs(self, BinaryColumn keys, int64_t number) except -1 nogil
    cdef int note_run(self, int64_t first, int64_t last) except -1 nogil
    cdef bint order_runs(self) except -1
    cdef list batches_of_runs(self)
    cdef list sorted_batches(self)
    cdef Py_ssize_t rows_at_once(self)
    cdef BatchWriter writer(self)
    cdef Py_ssize_t keep_newest(self, KeyItem* items, Py_ssize_t* count) noexcept nogil
