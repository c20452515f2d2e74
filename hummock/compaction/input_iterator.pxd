"""RunIterator: the entries of one run inside a range."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

from hummock.base.key cimport Slice
from hummock.compaction.read_ahead cimport ReadAhead, Window
from hummock.iterator.base cimport Columns, HummockIterator, Span


@cython.final
cdef class RunIterator(HummockIterator):
    cdef ReadAhead source
    cdef int run
    cdef Window* window                 # NULL before the first and after the last
    cdef Py_ssize_t index               # of the block at hand
    cdef void* block                    # Block, the window's, which names its file in errors; the memory that one
    # block after the other is decoded into goes with it from file to file. NULL before the first
    cdef Py_ssize_t row
    cdef Py_ssize_t end_row             # rows of the block that are inside the range
    cdef uint8_t* key                   # the current user key, put together; owned
    cdef Py_ssize_t key_capacity
    cdef Slice start
    cdef Slice stop
    cdef readonly int64_t rows_read     # entries inside the range in the blocks entered so far
    cdef readonly uint64_t hash_read    # their content hash

    cdef int enter(self) except -1 nogil            # goes to the next block that has rows inside the range
    cdef int load(self) except -1 nogil
    cdef int clip(self) except -1 nogil
    cdef uint64_t hash_here(self) noexcept nogil    # of the rows of the block that are inside the range
    cdef int show(self) noexcept nogil
