"""PartialBlock: an uncached block, read for a few rows and decoded as far as needed into reused memory."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

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
    cdef Block block                    # all keys; values as far as `show` has read or decoded them
    cdef uint8_t* stored                # pooled
    cdef Py_ssize_t capacity
    cdef Lz4Cursor cursor
    cdef Py_ssize_t keys_end            # offset in the payload, where the values begin
    cdef bint is_partial                # `show` decodes the values
    cdef const uint32_t* checksums      # of the block's pieces, some of which `show` reads; NULL: all is read
    cdef void* file                     # CachedFd of that block, its position in the file and its size
    cdef uint64_t offset
    cdef Py_ssize_t size
    cdef Py_ssize_t checked             # bytes at its front that are read and checked
    cdef Py_ssize_t front               # bytes before the values of the latest such block: a guess for the next one
    cdef bint may_wait                  # for the disk

    cdef Py_ssize_t read(
        self, CachedFd file, SstableIndex index, Py_ssize_t number, bint may_wait, bint is_for_one
    ) except -1 nogil
    # reads and checks block `number`, or if it `is_for_one` row, at least its keys; its number of rows, or NOT_READ.
    # Corruption if the checksum matches and the contents are invalid. REQUIRES that the caller has entered `file` until
    # `show` has returned, or keeps the GIL throughout
    cdef bint read_whole(
        self, CachedFd file, SstableIndex index, Py_ssize_t number, bint may_wait) except -1 nogil
    cdef bint read_front(self, CachedFd file, SstableIndex index, Py_ssize_t number) except -1 nogil
    cdef bint read_pieces(self, Py_ssize_t start, Py_ssize_t end) noexcept nogil
    cdef bint unpack(self, SstableIndex index, Py_ssize_t number, Py_ssize_t size) except -1 nogil
    cdef int make_room(self, Py_ssize_t size) except -1 nogil
    cdef bint show(self, Slice value) noexcept nogil
    # reads or decodes `value`, and maybe more; False on failure. Overwrites the offsets of the block's columns, so it
    # REQUIRES that no row is accessed afterwards. Once, with the last value in the payload, unless the block was read
    # for one row
