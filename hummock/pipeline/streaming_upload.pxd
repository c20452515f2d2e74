"""Departure: files that leave for the object store in pieces, while the rest of them is built."""

cimport cython
from libc.stdint cimport uint8_t

from hummock.base.pthread cimport pthread_cond_t, pthread_mutex_t
from hummock.object_store.file_writer cimport FileWriter
from hummock.sstable.builder cimport PieceSink

cdef struct Piece:
    uint8_t* data                       # pooled
    Py_ssize_t size
    Py_ssize_t capacity
    Piece* following


@cython.final
cdef class LeavingFile(PieceSink):
    """Guarded by the departure's lock, except for what is the serving thread's."""
    cdef Departure departure
    cdef readonly str name
    cdef object output                  # SstableOutput less its data, once the file is built
    cdef object writer                  # ObjectWriter; the serving thread's
    cdef FileWriter file                # of `writer`, or None; the serving thread's
    cdef bint has_file                  # the same, readable without the GIL
    cdef bint has_refused               # it did not take the first of what waits; the serving thread's
    cdef Piece* first                   # waiting, oldest first
    cdef Piece* last
    cdef void* following                # LeavingFile, begun after this one
    cdef bint is_begun                  # it is among those that leave
    cdef bint is_served
    cdef bint is_whole                  # no more pieces will come
    cdef bint is_synced                 # by the serving thread, before it is built
    cdef bint is_built                  # nor anything else: `output` is there
    cdef bint is_done                   # both objects are durable, or it was given up


@cython.final
cdef class Departure:
    cdef object store                   # ObjectStore
    cdef dict files                     # by name, in the order of their beginning
    cdef void* first                    # LeavingFile, the oldest that is not done; borrowed from `files`
    cdef void* last                     # and the newest that was begun
    cdef Py_ssize_t room                # bytes that may be on their way
    cdef Py_ssize_t leaving             # bytes that are
    cdef bint has_ended                 # no more files will begin
    cdef bint has_failed
    cdef object error                   # what failed first
    cdef pthread_mutex_t lock
    cdef pthread_cond_t changed

    cdef void begin(self, LeavingFile file) noexcept nogil
    cdef void end_data(self, LeavingFile file) noexcept nogil
    cdef int push(self, LeavingFile file, uint8_t* data, Py_ssize_t size, Py_ssize_t capacity) except -1 nogil
    cdef void* claim(self) noexcept nogil           # a file whose serving thread the caller is then; NULL: all is done
    cdef void* find(self) noexcept nogil            # a file that has something to do, REQUIRES the lock
    cdef bint is_over(self) noexcept nogil          # REQUIRES the lock
    cdef bint is_at_end(self, LeavingFile file) noexcept nogil
    cdef bint is_to_sync(self, LeavingFile file) noexcept nogil         # once
    cdef Piece* shift(self, LeavingFile file) noexcept nogil            # its oldest piece, or NULL
    cdef bint append_pieces(self, LeavingFile file) noexcept nogil
    cdef void let_go(self, Piece* piece) noexcept nogil
    cdef void release(self, LeavingFile file) noexcept nogil
    cdef int write_pieces(self, LeavingFile file) except -1
    cdef int end(self, LeavingFile file) except -1
