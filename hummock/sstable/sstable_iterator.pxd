"""SstableIterator: the entries of one file."""

from libc.stdint cimport uint8_t, uint64_t

from hummock.base.key cimport Slice
from hummock.iterator.base cimport HummockIterator, Span
from hummock.object_store.fd_cache cimport CachedFd
from hummock.sstable.block cimport Block
from hummock.sstable.reader cimport OpenedSstable, SstableReader


cdef class SstableIterator(HummockIterator):
    cdef SstableReader reader
    cdef OpenedSstable meta               # None before the first move
    cdef bint fills_cache
    cdef bint reads_ahead               # from the first block on
    cdef uint64_t floor                 # blocks that hold nothing newer are passed over unread; 0: none are
    cdef Py_ssize_t prefetch_bytes      # the most stored bytes that are read ahead
    cdef Py_ssize_t ahead_bytes         # what the next read asks for; 0: one block. Doubles while blocks follow
    cdef Py_ssize_t ahead_blocks        # so many cached ones are taken at once; grows faster, since they cost nothing
    cdef bint follows_on                # the walk comes from a neighbouring file, and is as long as it was there
    cdef Py_ssize_t window_start        # blocks [window_start, window_end) are at hand
    cdef Py_ssize_t window_end
    cdef list cached                    # of each block of the window: the cached Block, or None
    cdef void** ready                   # the same as pointers, borrowed; owned array
    cdef Py_ssize_t ready_blocks        # that it has room for
    cdef bytes stored                   # stored bytes of the blocks that were not cached, or None
    cdef const uint8_t* stored_data
    cdef uint64_t stored_offset         # where `stored_data` begins in the file
    cdef CachedFd source                # from which those are read as the walk reaches them, or None; entered
    cdef uint8_t* bite                  # that was read last; pooled
    cdef Py_ssize_t bite_capacity
    cdef Py_ssize_t bite_start          # blocks [bite_start, bite_end) stand there
    cdef Py_ssize_t bite_end
    cdef Block scratch                  # the block that uncached ones are decoded into, one after the other
    cdef Py_ssize_t scratch_index       # which block stands there; -1: none
    cdef void* block                    # Block, borrowed: the current one; NULL: none
    cdef Py_ssize_t block_index
    cdef Py_ssize_t row
    cdef uint8_t* key                   # the current user key, put together; owned
    cdef Py_ssize_t key_capacity

    cdef int stand(self, Py_ssize_t index) except -1 nogil          # on the first entry of that block
    cdef int open(self) except -1 nogil                             # has the meta read before the first move
    cdef int enter(self, Py_ssize_t index) except -1 nogil          # makes block `index` the current one
    cdef int prepare(self) except -1                                # for a `rewind` that needs no GIL
    cdef int read_bite(self, Py_ssize_t index) except -1 nogil
    cdef int read_stored(self, Py_ssize_t first, Py_ssize_t last) except -1
    cdef bint enters_source(self) except -1
    cdef int leave_source(self) except -1
    cdef int fetch(self, Py_ssize_t index) except -1                # moves the window to block `index`
    cdef bint take_cached(self, Py_ssize_t index) except -1         # to cached blocks alone, if that one is
    cdef int read_window(self, Py_ssize_t index) except -1
    cdef int show_window(self, Py_ssize_t start, Py_ssize_t end) except -1
    cdef int read_missing(self, Py_ssize_t start, Py_ssize_t end) except -1
    cdef Py_ssize_t above_floor(self, Py_ssize_t index) noexcept nogil
    # `index`, or my way the first block behind it, of those that are read; beside all blocks where there is none
    cdef int enter_end(self, Py_ssize_t index) except -1 nogil
    cdef int settle(self) except -1 nogil                           # shows `row`, or of the next block, or the end
    cdef int show(self) noexcept nogil
    cdef bint stands_at(self, Slice user_key, uint64_t epoch) noexcept nogil
