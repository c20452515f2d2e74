"""BlockIterator: one block, one direction."""

cimport cython
from libc.stdint cimport uint8_t

from hummock.iterator.base cimport HummockIterator
from hummock.sstable.block cimport Block


@cython.final
cdef class BlockIterator(HummockIterator):
    cdef readonly Block block
    cdef Py_ssize_t row                 # of the current entry
    cdef uint8_t* key                   # the current user key, put together; owned
    cdef Py_ssize_t key_capacity

    cdef int stand(self, Py_ssize_t row) noexcept nogil     # on that row, or on none when there is no such row
