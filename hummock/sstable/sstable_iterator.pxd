"""SstableIterator: iterates over the entries of one file."""

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
    cdef uint64_t floor                 # blocks without newer epochs are skipped unread; 0: none
    cdef Py_ssize_t prefetch_bytes      # most stored bytes read ahead
    cdef Py_ssize_t ahead_bytes         # size of the next read; 0: one block. Doubles while reads are sequential
    cdef Py_ssize_t ahead_blocks        # most cached blocks in the next window; grows faster, since they need no I/O
    cdef bint follows_on                # the scan continues from a neighbouring file: keep its readahead
    cdef Py_ssize_t window_start        # the window is blocks [window_start, window_end)
    cdef Py_ssize_t window_end
    cdef list cached                    # per block of the window: the cached Block, or None
    cdef void** ready                   # the same as borrowed pointers; owned array
    cdef Py_ssize_t ready_blocks        # capacity of `ready`
    cdef bytes stored                   # stored bytes of the blocks that were not cached, or None
    cdef const uint8_t* stored_data
    cdef uint64_t stored_offset         # of `stored_data` in the file
    cdef CachedFd source                # entered; uncached blocks are read from it when reached; or None
    cdef uint8_t* bite                  # buffer of the last read from `source`; pooled
    cdef Py_ssize_t bite_capacity
    cdef Py_ssize_t bite_start          # it holds blocks [bite_start, bite_end)
    cdef Py_ssize_t bite_end
    cdef Block scratch                  # into which each uncached block is decoded in turn
    cdef Py_ssize_t scratch_index       # the block it holds; -1: none
    cdef void* block                    # Block, borrowed: the current one; NULL: none
    cdef Py_ssize_t block_index
    cdef Py_ssize_t row
    cdef uint8_t* key                   # the current user key, assembled; owned
    cdef Py_ssize_t key_capacity

    cdef int move_to_block(self, Py_ssize_t index) except -1 nogil  # moves to the first entry of that block
    cdef int open(self) except -1 nogil                             # reads the meta on first use
    cdef int enter(self, Py_ssize_t index) except -1 nogil          # makes block `index` the current one
    cdef int prepare(self) except -1                                # so that `rewind` needs no GIL
    cdef int read_bite(self, Py_ssize_t index) except -1 nogil
    cdef int read_stored(self, Py_ssize_t first, Py_ssize_t last) except -1
    cdef bint enters_source(self) except -1
    cdef int leave_source(self) except -1
    cdef int fetch(self, Py_ssize_t index) except -1                # moves the window to block `index`
    cdef bint fetch_cached(self, Py_ssize_t index) except -1        # `fetch` of cached blocks only; False: not cached
    cdef int read_window(self, Py_ssize_t index) except -1
    cdef int show_window(self, Py_ssize_t start, Py_ssize_t end) except -1
    cdef int read_missing(self, Py_ssize_t start, Py_ssize_t end) except -1
    cdef Py_ssize_t above_floor(self, Py_ssize_t index) noexcept nogil
    # the first block from `index` on, in this direction, that `floor` does not skip; out of range if there is none
    cdef int enter_end(self, Py_ssize_t index) except -1 nogil
    cdef int settle(self) except -1 nogil                           # moves on to the next block if `row` is outside
    cdef int show(self) noexcept nogil
    cdef bint is_at(self, Slice user_key, uint64_t epoch) noexcept nogil
