"""ReadAhead: windows of stored blocks of several runs, fetched by threads and consumed without the GIL."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

from hummock.iterator.base cimport Columns, HummockIterator, Span
from hummock.key cimport Slice
from hummock.pthread cimport pthread_cond_t, pthread_mutex_t
from hummock.sstable.block cimport Block
from hummock.sstable.index cimport SstableIndex

cdef enum:
    SLOTS = 4                           # of a run: one consumed, the others ready or being fetched

cdef struct Window:                     # stored bytes of adjacent blocks of one file
    uint8_t* data                       # pooled
    Py_ssize_t capacity
    void* index                         # SstableIndex, borrowed from `RunFiles.opened`
    Py_ssize_t file                     # which of the run's files
    Py_ssize_t block                    # the first one here
    Py_ssize_t end                      # one past the last one here
    bint is_first                       # `block` is the file's first one inside the range
    bint is_last                        # the block before `end` is its last one
    bint is_ready                       # it was fetched

cdef struct Ring:                       # guarded by ReadAhead.lock, except for what a claimed or used slot holds
    Window slots[SLOTS]
    int head                            # the oldest slot in use
    int used                            # slots from `head` on that hold windows, whether fetched yet or not
    bint is_held                        # `head` is being consumed
    bint is_claimed                     # a reader decides what the slot after the used ones will hold
    bint is_done                        # no window is left to decide on


cdef class RunFiles:
    """What is left to fetch of one run. Touched by the reader that has claimed the run only."""
    cdef readonly list infos            # of the files that overlap the range, ascending
    cdef list opened                    # SstableIndex of the newest files that windows may still point to
    cdef SstableIndex index             # of the file at hand, or None
    cdef Py_ssize_t file
    cdef Py_ssize_t block               # the next one to fetch
    cdef Py_ssize_t start_block         # of the file at hand: its first block inside the range
    cdef Py_ssize_t end_block


cdef class ReadAhead:
    cdef object store                   # ObjectStore
    cdef list runs                      # RunFiles
    cdef bytes start
    cdef bytes end                      # None: to the last key
    cdef Ring* rings
    cdef int run_count
    cdef Py_ssize_t window_bytes
    cdef pthread_mutex_t lock
    cdef pthread_cond_t changed         # of any ring, or `is_stopped`
    cdef bint is_stopped
    cdef object error                   # why, where a reader failed
    cdef readonly int64_t rows          # entries in the blocks that were entered so far
    cdef int64_t fetched_bytes
    cdef readonly int fetches           # windows handed over: so often a reader held the GIL

    cdef Window* pop(self, int run) except? NULL nogil
    # the run's next window, which lives until the next call for that run; NULL at the end. Waits for a reader
    cdef int claim(self) noexcept nogil
    cdef Window* plan(self, int run) except NULL    # decides on the next window of a claimed run, which is free then
    cdef int fetch(self, int run, Window* window) except -1
    cdef int open_file(self, RunFiles files) except -1


@cython.final
cdef class RunIterator(HummockIterator):
    cdef ReadAhead source
    cdef int run
    cdef Window* window                 # NULL before the first and after the last
    cdef Py_ssize_t file                # that `block` names in errors
    cdef Py_ssize_t index               # of the block at hand
    cdef Block block                    # every block of the run is decoded into it, one after the other
    cdef Py_ssize_t row
    cdef Py_ssize_t end_row             # rows of the block that are inside the range
    cdef uint8_t* key                   # the current user key, put together; owned
    cdef Py_ssize_t key_capacity
    cdef Slice start
    cdef Slice stop
    cdef readonly int64_t rows_read     # entries inside the range in the blocks entered so far

    cdef int enter(self) except -1 nogil            # goes to the next block that has rows inside the range
    cdef int load(self) except -1 nogil
    cdef int clip(self) except -1 nogil
    cdef int show(self) noexcept nogil
