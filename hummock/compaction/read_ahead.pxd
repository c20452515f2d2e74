"""ReadAhead: stored blocks of several runs, at hand before the merge wants them, without the GIL."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from hummock.base.posix cimport pthread_cond_t, pthread_mutex_t

cdef enum:
    SLOTS = 4                           # of a run: one consumed, the others ready or being fetched

cdef struct Window:                     # adjacent blocks of one file; of one that is open here all inside the range
    uint8_t* data                       # pooled
    Py_ssize_t capacity
    Py_ssize_t held                     # blocks [held, held_end) stand in `data` as they are stored
    Py_ssize_t held_end
    uint64_t expected                   # bytes of the file before that the disk was told of
    void* index                         # SstableIndex, borrowed from `RunFiles.opened`, as are the next two
    void* source                        # CachedFd that the merge reads for itself, or NULL
    void* decoder                       # Block that names the file
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
    cdef list opened                    # (index, source, decoder) of the newest files, which windows may point to
    cdef Py_ssize_t file
    cdef Py_ssize_t block               # the next one to fetch
    cdef Py_ssize_t start_block         # of the file at hand: its first block inside the range
    cdef Py_ssize_t end_block


cdef class ReadAhead:
    cdef object store                   # ObjectStore
    cdef object indexes                 # IndexCache
    cdef list runs                      # RunFiles
    cdef bytes start
    cdef bytes end                      # None: to the last key
    cdef Ring* rings
    cdef int run_count
    cdef Py_ssize_t window_bytes        # that the store is asked for
    cdef Py_ssize_t bite_bytes          # that the merge reads from a file
    cdef pthread_mutex_t lock
    cdef pthread_cond_t changed         # of any ring, or `is_stopped`
    cdef bint is_stopped
    cdef object error                   # why, where a reader failed
    cdef readonly int64_t rows          # entries in the blocks that were entered so far
    cdef int64_t fetched_bytes
    cdef int64_t untold_bytes           # that the merge read from files since the last tick

    cdef int pop(self, int run, Window** window) except -1 nogil
    # gives the run's next window, which lives until the next call for that run; NULL at the end. Waits for a reader
    cdef int hold(self, int run, Window* window, Py_ssize_t block) except -1 nogil
    # REQUIRES a window that was popped: block `block` and some that follow stand in its `data` afterwards
    cdef int claim(self, bint may_wait) noexcept nogil
    cdef Window* plan(self, int run) except NULL    # decides on the next window of a claimed run, which is free then
    cdef int make_room(self, Window* window, Py_ssize_t wanted, Py_ssize_t usual) noexcept nogil    # -1: no memory
    cdef int fetch(self, int run, Window* window, Py_ssize_t start, Py_ssize_t end) except -1
    # asks the store for the stored bytes of blocks [start, end)
    cdef void hand_over(self, Window* window) noexcept nogil
    cdef int open_file(self, RunFiles files) except -1
    cdef int raise_stopped(self) except -1 with gil
