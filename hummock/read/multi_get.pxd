"""MultiGet: the values of many keys at one epoch, compiled from filter to value."""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from hummock.base.key cimport Slice
from hummock.read.probe cimport Probe
from hummock.read.uncached_get cimport UncachedGets
from hummock.read.view cimport ReadView
from hummock.sstable.block_search cimport HeadSearch
from hummock.sstable.reader cimport OpenedSstable


cdef enum:
    LANES = 32                          # searches whose memory accesses overlap


cdef struct Lane:                       # one search inside a block
    Probe* probe
    Py_ssize_t row                      # by the hash index
    HeadSearch search


cdef class PointReader:
    """The lookups of one call on one view. Owns, or keeps alive, the memory that values point into."""
    cdef ReadView view
    cdef Probe* probes                  # borrowed from the caller
    cdef Py_ssize_t count               # started so far
    cdef uint64_t newest                # entries with a greater epoch are not seen
    cdef UncachedGets uncached          # probes whose blocks are not to be cached; None before the first
    cdef list pins                      # opened files and fetched blocks that probes point into
    cdef PyObject** held                # cached blocks that probes point into; owned references in an owned array
    cdef Py_ssize_t held_count
    cdef Py_ssize_t held_capacity
    cdef bint is_borrowing              # some blocks are borrowed from the cache: `hold` before releasing the GIL

    cdef void begin(self, Probe* probes) noexcept nogil                     # which the caller keeps until the last call
    cdef int start(self, Slice key) noexcept nogil                          # starts the next of them
    cdef int run(self, Probe* probes, Py_ssize_t count) except -1           # until all are DONE
    cdef bint run_in_memory(self, Probe* probes, Py_ssize_t count) except -1
    cdef void hide(self, Probe* probes, Py_ssize_t count) noexcept nogil    # drops answers that a table's rules hide
    cdef int advance(self, Probe* probes, Py_ssize_t count) except -1
    cdef int advance_in_batch(self, void* batch, int number, Probe* probes, Py_ssize_t count) except -1
    cdef int advance_in_run(self, void* run, int number, Probe* probes, Py_ssize_t count) except -1
    cdef bint may_hold(self, OpenedSstable opened, uint64_t hash) except -1
    cdef int enter_next(self, Probe* probe, OpenedSstable opened) except -1
    cdef void find_blocks(self, Probe* probes, Py_ssize_t count) noexcept
    cdef int open_files(self, Probe* probes, Py_ssize_t count) except -1
    cdef int hold(self, Probe* probe) except -1         # from here on its block is valid without the GIL
    cdef int hold_found(self) except -1
    cdef Py_ssize_t pin_cached(self, Probe* probes, Py_ssize_t count) noexcept
    cdef int pin_blocks(self, Probe* probes, Py_ssize_t count) except -1
    cdef int load_missing(self, Probe* probes, Py_ssize_t count, dict missing) except -1
    cdef void search(self, Probe* probes, Py_ssize_t count) noexcept nogil
    cdef void search_lanes(self, Lane* lanes, Py_ssize_t width) noexcept nogil
    cdef void settle(self, Probe* probe, Py_ssize_t row) noexcept nogil     # takes the result of a search
    cdef void search_slot(self, Probe* probe) noexcept nogil

