"""UncachedGets: lookups whose blocks are read but not cached."""

from libc.stdint cimport uint64_t

from hummock.base.key cimport Slice
from hummock.read.probe cimport Probe
from hummock.sstable.partial_block cimport PartialBlock


cdef struct Page:                       # memory of answers; another page is allocated when a value does not fit
    Page* older
    Py_ssize_t used
    Py_ssize_t size                     # bytes behind this struct


cdef class UncachedGets:
    """Owns the values that it returns. Used by one thread."""
    cdef Probe** probes                 # waiting for their blocks, in file order; owned array
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef Page* page                     # owned, as are the older ones

    cdef int add(self, Probe* probe) except -1             # queues it for `run`
    cdef int run(self, uint64_t newest) except -1
    # Searches the blocks of all queued probes: each becomes DONE, or advances, or stays NEEDS_BLOCK where its block is
    # to be cached, is not in a local file, or is corrupt.
    cdef Py_ssize_t part(self, Py_ssize_t first, Py_ssize_t end) except -1
    cdef int run_file(self, Py_ssize_t first, Py_ssize_t end, uint64_t newest, PartialBlock scratch) except -1
    cdef int answer(self, PartialBlock scratch, Py_ssize_t first, Py_ssize_t end, uint64_t newest) except -1 nogil
    cdef int keep(self, Slice* value) except -1 nogil
