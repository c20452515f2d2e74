"""SharedBufferBatch: one ingested batch, and its iterators."""

from libc.stdint cimport uint64_t

from hummock.base.key cimport Slice
from hummock.columnar.write_batch cimport WriteBatch
from hummock.iterator.base cimport HummockIterator, Span
from hummock.sstable.filter.bloom cimport BloomFilter


cdef class SharedBufferBatch:
    cdef readonly WriteBatch rows
    cdef readonly uint64_t epoch        # of all rows; spill offset included
    cdef readonly bint is_local         # never uploaded
    cdef bint has_deletes
    cdef Slice smallest                 # first and last user key; owner: `rows`
    cdef Slice largest
    cdef Py_ssize_t shared              # length of the common prefix of all user keys
    cdef readonly Py_ssize_t probes     # keys looked up so far, as far as they are counted
    cdef readonly BloomFilter filter    # of all user keys; None until there were enough lookups to pay for it

    cdef Py_ssize_t lower_bound(self, Slice user_key) noexcept nogil   # first row at or after the key; rows if none
    cdef Py_ssize_t find(self, Slice user_key) noexcept nogil          # row of exactly this key; -1 if none
    cdef Slice value_at(self, Py_ssize_t row) noexcept nogil           # data is NULL for a delete
    cdef uint64_t head_at(self, Py_ssize_t row) noexcept nogil         # prefix of a user key, behind what all share
    cdef Py_ssize_t row_near(self, uint64_t head) noexcept nogil       # first row whose key prefix is not below `head`
    cdef count_probes(self, Py_ssize_t count)                          # builds the filter when it pays off


cdef class SharedBufferBatchIterator(HummockIterator):
    cdef SharedBufferBatch batch
    cdef Py_ssize_t row                 # of the current entry while `valid`

    cdef int settle(self) noexcept nogil        # moves to the entry of `row`; invalid outside the batch


cdef class SharedBufferChainIterator(HummockIterator):
    cdef tuple batches                  # ascending, with disjoint key ranges
    cdef void** links                   # of `batches`, borrowed; owned array
    cdef Py_ssize_t count
    cdef Py_ssize_t link                # of the current batch; `count` behind the last
    cdef Py_ssize_t row                 # in that batch

    cdef int settle(self) noexcept nogil        # moves to the entry of `row`, or the first one after it
