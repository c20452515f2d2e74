"""ReadAhead: prefetches stored blocks of several runs, so that the merge gets them without the GIL."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from hummock.base.posix cimport pthread_cond_t, pthread_mutex_t

cdef enum:
    SLOTS = 4                           # per run: one consumed, the others ready or being fetched

cdef struct Window:                     # adjacent blocks of one file; of a local file all inside the range
    uint8_t* data                       # pooled
    Py_ssize_t capacity
    Py_ssize_t held                     # stored bytes of blocks [held, held_end) are in `data`
    Py_ssize_t held_end
    uint64_t expected                   # end of the part of the file for which readahead was requested
    void* index                         # SstableIndex, borrowed from `RunFiles.opened`, as are the next two
    void* source                        # CachedFd that the merge itself reads, or NULL
    void* decoder                       # Block that names the file
    Py_ssize_t file                     # index among the run's files
    Py_ssize_t block                    # the first one here
    Py_ssize_t end                      # one past the last one here
    bint is_first                       # `block` is the file's first one inside the range
    bint is_last                        # block `end` - 1 is its last one
    bint is_ready

cdef struct Ring:                       # guarded by ReadAhead.lock, except for the contents of claimed or used slots
    Window slots[SLOTS]
    int head                            # the oldest slot in use
    int used                            # slots from `head` on with windows, fetched or not
    bint is_held                        # `head` is being consumed
    bint is_claimed                     # a reader is planning the slot after the used ones
    bint is_done                        # no window is left to plan


cdef class RunFiles:
    """What remains to be fetched of one run. Accessed only by the reader that has claimed the run."""
    cdef readonly list infos            # of the files that overlap the range, ascending
    cdef list opened                    # (index, source, decoder) of the newest files, which windows may point to
    cdef Py_ssize_t file
    cdef Py_ssize_t block               # the next one to fetch
    cdef Py_ssize_t start_block         # the current file's first block inside the range
    cdef Py_ssize_t end_block


cdef class ReadAhead:
    cdef object store                   # ObjectStore
    cdef object indexes                 # IndexCache
    cdef list runs                      # RunFiles
    cdef bytes start
    cdef bytes end                      # None: to the last key
    cdef Ring* rings
    cdef int run_count
    cdef Py_ssize_t window_bytes        # per read of the store
    cdef Py_ssize_t bite_bytes          # per read of a local file by the merge
    cdef pthread_mutex_t lock
    cdef pthread_cond_t changed         # of any ring, or `is_stopped`
    cdef bint is_stopped
    cdef object error                   # why a reader failed
    cdef readonly int64_t rows          # entries in the blocks entered so far
    cdef int64_t fetched_bytes
    cdef int64_t uncounted_bytes        # read by the merge from local files since the last tick

    cdef int pop(self, int run, Window** window) except -1 nogil
    # Returns the run's next window, valid until the next call for that run; NULL at the end. Waits for a reader.
    cdef int hold(self, int run, Window* window, Py_ssize_t block) except -1 nogil
    # REQUIRES a window that was popped: reads block `block` and some that follow into its `data`.
    cdef int claim(self, bint may_wait) noexcept nogil
    cdef Window* plan(self, int run) except NULL    # plans the next window of a claimed run; ends the claim
    cdef int make_room(self, Window* window, Py_ssize_t wanted, Py_ssize_t usual) noexcept nogil    # -1: no memory
    cdef int fetch(self, int run, Window* window, Py_ssize_t start, Py_ssize_t end) except -1
    # reads the stored bytes of blocks [start, end) from the store
    cdef void publish(self, Window* window) noexcept nogil
    cdef int open_file(self, RunFiles files) except -1
    cdef int raise_stopped(self) except -1 with gil
