"""SharedBufferBatch: one ingested batch, and the walk over it."""

from libc.stdint cimport uint64_t

from hummock.base.key cimport Slice
from hummock.columnar.write_batch cimport WriteBatch
from hummock.iterator.base cimport Columns, HummockIterator, Span
from hummock.sstable.filter.bloom cimport BloomFilter


cdef class SharedBufferBatch:
    cdef readonly WriteBatch rows
    cdef readonly uint64_t epoch        # of all rows; pure epoch and spill offset
    cdef readonly bint is_local         # never uploaded
    cdef bint has_deletes
    cdef Slice smallest                 # first and last user key; owner: `rows`
    cdef Slice largest
    cdef Py_ssize_t shared              # bytes that all user keys begin with
    cdef readonly Py_ssize_t probes     # keys looked for so far, as far as somebody counts them
    cdef readonly BloomFilter filter    # of all user keys; None until so many were looked for that it pays

    cdef Py_ssize_t lower_bound(self, Slice user_key) noexcept nogil   # first row at or after the key; rows if none
    cdef Py_ssize_t find(self, Slice user_key) noexcept nogil          # row of that very key; -1 if none
    cdef Slice value_at(self, Py_ssize_t row) noexcept nogil           # data is NULL for a delete
    cdef uint64_t head_at(self, Py_ssize_t row) noexcept nogil         # of a user key, behind what all share
    cdef Py_ssize_t row_near(self, uint64_t head) noexcept nogil       # the first row whose head is not below
    cdef count_probes(self, Py_ssize_t count)                          # makes the filter when it pays


cdef class SharedBufferBatchIterator(HummockIterator):
    cdef SharedBufferBatch batch
    cdef Py_ssize_t row                 # of the current entry while `valid`

    cdef int settle(self) noexcept nogil        # shows the entry of `row`, or none outside the batch


cdef class SharedBufferChainIterator(HummockIterator):
    cdef tuple batches                  # ascending, no two with a key range in common
    cdef void** links                   # of `batches`, borrowed; owned array
    cdef Py_ssize_t count
    cdef Py_ssize_t link                # of the batch at hand; `count` behind the last
    cdef Py_ssize_t row                 # in that batch

    cdef int settle(self) noexcept nogil        # shows the entry of `row`, or the first one after it
