"""ConcatIterator: iterates over the entries of one sorted run."""

from libc.stdint cimport uint64_t

from hummock.base.key cimport Slice
from hummock.iterator.base cimport HummockIterator, Span
from hummock.sstable.sstable_iterator cimport SstableIterator


cdef class ConcatIterator(HummockIterator):
    cdef object store                   # SstableStore
    cdef object options                 # ReadOptions
    cdef uint64_t floor                 # of the files' iterators
    cdef tuple infos                    # disjoint, ascending; owner of the slices in `largest`
    cdef Py_ssize_t files
    cdef Slice* largest                 # last user key of each file; owned array
    cdef SstableIterator current        # of file `position`; None before the first move
    cdef Py_ssize_t position

    cdef int move_to_block(self, Py_ssize_t position, Py_ssize_t index) except -1 nogil
    # moves to the first entry of block `index` of file `position`
    cdef int enter(self, Py_ssize_t position) except -1 nogil       # opens that file unless it is the current one
    cdef int follow(self, Py_ssize_t position) except -1            # `enter` in a sequential scan
    cdef int settle(self) except -1 nogil                           # moves on to the next file at a file's end
    cdef Py_ssize_t file_of(self, Slice user_key) noexcept nogil    # the first file that ends at or after the key
