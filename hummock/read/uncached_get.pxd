"""UncachedGets: the keys of a call whose blocks are read and not kept."""

from libc.stdint cimport uint64_t

from hummock.base.key cimport Slice
from hummock.read.probe cimport Probe
from hummock.sstable.partial_block cimport PartialBlock


cdef struct Page:                       # of answers; the next one is asked for when a value does not fit
    Page* older
    Py_ssize_t used
    Py_ssize_t size                     # bytes behind this struct


cdef class UncachedGets:
    """Owns the answers that it gives. Used by one thread."""
    cdef Probe** probes                 # of blocks to be read, in the files' order; owned array
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef Page* page                     # owned, with those before it

    cdef int take(self, Probe* probe) except -1             # it waits for `run`
    cdef int run(self, uint64_t newest) except -1
    # looks into the blocks of all that wait: each is DONE, or goes on, or still NEEDS_BLOCK where its block is to be
    # cached, or is in no file here, or was no good
    cdef Py_ssize_t part(self, Py_ssize_t first, Py_ssize_t end) except -1
    cdef int run_file(self, Py_ssize_t first, Py_ssize_t end, uint64_t newest, PartialBlock scratch) except -1
    cdef int answer(self, PartialBlock scratch, Py_ssize_t first, Py_ssize_t end, uint64_t newest) except -1 nogil
    cdef int keep(self, Slice* value) except -1 nogil
