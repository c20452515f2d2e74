"""BlockCache: objects kept up to a budget of bytes, found by pointer."""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from hummock.sstable.early_lines cimport Lines, prefetch_line, want, want_value
from hummock.sstable.head_search cimport row_at


cdef enum:
    NEAR_BYTES = 16


cdef struct CachePlace:                 # of one object, in one cache line: all that a look-up reads
    PyObject* value                     # owned reference; NULL: not cached, and the rest says nothing
    const uint64_t* heads               # of the rows if the object is a block
    uint32_t values_before              # bytes from the first value to `heads`
    uint32_t rows
    float value_bytes                   # of a row, on average
    uint8_t was_used                    # since it last stood at the old end of the queue
    uint8_t is_plain                    # keys and values are of one length, under one epoch, none a tombstone
    uint8_t prefix_size
    uint32_t each_suffix                # from here on only of plain blocks
    uint32_t each_value
    uint64_t epoch
    uint8_t prefix[NEAR_BYTES]          # that all keys begin with


cdef struct CacheNode:                  # what the queue knows of the object
    CachePlace* place
    Py_ssize_t bytes                    # what it counts in the budget
    CacheNode* newer                    # neighbours in the cache's queue while the place is taken
    CacheNode* older


cdef inline PyObject* used(CachePlace* place) noexcept:
    """Borrowed, valid until the GIL is released; NULL: not cached. Counts as a use."""
    if not place.was_used:              # a line that is only read stays with every reader
        place.was_used = True
    return place.value


cdef inline void want_rows(Lines* lines, CachePlace* place, double share) noexcept nogil:
    """The block, and the row before which `share` of it stands."""
    cdef Py_ssize_t row = row_at(share, place.rows)
    if place.value != NULL:
        want(lines, place.heads + row)
        want_value(lines, <const uint8_t*>place.heads - place.values_before + <Py_ssize_t>(place.value_bytes * row),
                   place.value_bytes)
        if not place.is_plain:
            want(lines, place.value)
            want(lines, <const uint8_t*>place.value + 64)
            want(lines, <const uint8_t*>place.value + 128)


cdef class BlockCache:
    cdef readonly Py_ssize_t capacity_bytes
    cdef readonly Py_ssize_t used_bytes
    cdef readonly Py_ssize_t objects
    cdef readonly Py_ssize_t evictions
    cdef readonly BlockCache lender     # whose budget this one may use half of; None: its own is all
    cdef readonly Py_ssize_t lent_bytes     # of `capacity_bytes`, used by the borrower
    cdef CacheNode queue                # sentinel: queue.older is the newest node, queue.newer the oldest

    cdef void link(self, CacheNode* node) noexcept
    cdef void unlink(self, CacheNode* node) noexcept
    cdef void remove(self, CacheNode* node)
    cdef Py_ssize_t limit_bytes(self) noexcept              # that it may use at this moment
    cdef void borrow(self) noexcept
    cdef void shrink(self)


cdef class CacheShelf:
    """The places of one file, by index. All methods under the GIL."""
    cdef readonly BlockCache cache
    cdef readonly Py_ssize_t size
    cdef CachePlace* places             # `size` of them, of a slab
    cdef CacheNode* nodes               # of each; owned
    cdef uint32_t* nearby               # of each block's heads, in 8 bytes from `base`, even if it has gone; 0: not known
    cdef const uint8_t* base
    cdef Py_ssize_t rows                # of the largest block that came, as are the next two
    cdef Py_ssize_t values_before
    cdef float value_bytes

    cdef inline PyObject* peek(self, Py_ssize_t index) noexcept:
        return used(&self.places[index])

    cdef inline void prefetch(self, Py_ssize_t index) noexcept:     # of what `peek` reads
        prefetch_line(&self.places[index])

    cdef inline void want_near(self, Lines* lines, Py_ssize_t index, double share) noexcept nogil:
        """The row before which `share` of the block stands, if blocks are much alike."""
        cdef const uint8_t* heads = self.base + 8 * <Py_ssize_t>self.nearby[index]
        cdef Py_ssize_t row = row_at(share, self.rows)
        if self.nearby[index] > 0:
            want(lines, heads + 8 * row)
            want_value(lines, heads - self.values_before + <Py_ssize_t>(self.value_bytes * row), self.value_bytes)

    cdef put(self, Py_ssize_t index, object value, Py_ssize_t bytes_, const CachePlace* shown)
    # `shown` says what stands in the value; it may be NULL

    cdef void note(self, Py_ssize_t index, const CachePlace* shown) noexcept
