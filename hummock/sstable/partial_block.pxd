"""PartialBlock: a block that is read for a few rows and not cached, in memory that is reused for each."""

cimport cython
from libc.stdint cimport uint8_t, uint64_t

from hummock.base.key cimport Slice
from hummock.base.lz4_incremental cimport Lz4Cursor
from hummock.object_store.fd_cache cimport CachedFd
from hummock.sstable.block cimport Block
from hummock.sstable.index cimport SstableIndex

cdef enum:
    NOT_READ = -2           # from `read`: ask the store by the ordinary way


@cython.final
cdef class PartialBlock:
    """Used by one thread at a time. What it shows is valid until the next `read`."""
    cdef Block block                    # its keys; of the values what `show` has decoded
    cdef uint8_t* stored                # pooled
    cdef Py_ssize_t capacity
    cdef Lz4Cursor cursor
    cdef Py_ssize_t keys_end            # in the payload, and so where the values begin
    cdef bint is_partial                # values are decoded by `show`

    cdef Py_ssize_t read(self, CachedFd file, SstableIndex index, Py_ssize_t number, bint may_wait) except -1 nogil
    # rows of block `number`, checked; or NOT_READ. Corruption where its checksum is right and its parts are not.
    # REQUIRES that the caller is inside `file`, or keeps the GIL throughout
    cdef bint unpack(self, SstableIndex index, Py_ssize_t number, Py_ssize_t size) except -1 nogil
    cdef int make_room(self, Py_ssize_t size) except -1 nogil
    cdef Py_ssize_t row_of(self, Slice key, uint64_t newest) noexcept nogil
    # the row that readers at `newest` see of the key; -1: none, `rows`: it may begin the next block
    cdef bint show(self, Slice value) noexcept nogil
    # whether a value of the block can be looked at from here on; decodes over the offsets of the block's columns, so
    # REQUIRES that nothing is asked for by row afterwards
