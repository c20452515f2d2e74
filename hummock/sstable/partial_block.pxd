"""PartialBlock: an uncached block, read for a few rows and decoded as far as needed into reused memory."""

cimport cython
from libc.stdint cimport uint8_t

from hummock.base.key cimport Slice
from hummock.base.lz4_incremental cimport Lz4Cursor
from hummock.object_store.fd_cache cimport CachedFd
from hummock.sstable.block cimport Block
from hummock.sstable.index cimport SstableIndex

cdef enum:
    NOT_READ = -2           # from `read`: fall back to reading through the store


@cython.final
cdef class PartialBlock:
    """Used by one thread at a time. Its contents are valid until the next `read`."""
    cdef Block block                    # all keys; values as far as `show` has decoded them
    cdef uint8_t* stored                # pooled
    cdef Py_ssize_t capacity
    cdef Lz4Cursor cursor
    cdef Py_ssize_t keys_end            # offset in the payload, where the values begin
    cdef bint is_partial                # `show` decodes the values

    cdef Py_ssize_t read(self, CachedFd file, SstableIndex index, Py_ssize_t number, bint may_wait) except -1 nogil
    # reads and checks block `number`; its number of rows, or NOT_READ. Corruption if the checksum matches and the
    # contents are invalid. REQUIRES that the caller has entered `file`, or keeps the GIL throughout
    cdef bint unpack(self, SstableIndex index, Py_ssize_t number, Py_ssize_t size) except -1 nogil
    cdef int make_room(self, Py_ssize_t size) except -1 nogil
    cdef bint show(self, Slice value) noexcept nogil
    # decodes up to the end of `value`; False on failure. Overwrites the offsets of the block's columns, so it REQUIRES
    # that no row is accessed afterwards
