"""BlockCache: objects kept up to a budget of bytes, found by pointer."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from hummock.base.key cimport Slice
from hummock.sstable.index cimport EvenKeys, SstableIndex, even_place
from hummock.sstable.interpolation_search cimport row_at
from hummock.sstable.prefetch cimport Lines, prefetch_line, want, want_value


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


cdef enum:
    LAG_UNITS = 1 << 16                 # of a block
    NEIGHBOURS = 4                      # blocks that a guess is put right by


cdef struct BlockSpot:                  # of one block: what leads from a key to the lines of its row
    uint32_t heads                      # in 8 bytes from the shelf's `base`, even if the block has gone; 0: not known
    int32_t lag                         # how much later than among evenly growing keys it begins


cdef struct LikelyRow:                  # where a key's row is, if it is there and blocks are alike
    Py_ssize_t block
    double share                        # of the block that stands before it


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
    cdef EvenKeys even                  # of the index, as are the lags
    cdef BlockSpot* spots               # of each block, and the end of the last; owned
    cdef const uint8_t* base
    cdef Py_ssize_t rows                # of the largest block that came, as are the next two
    cdef Py_ssize_t values_before
    cdef float value_bytes

    cdef inline PyObject* peek(self, Py_ssize_t index) noexcept:
        return used(&self.places[index])

    cdef inline void prefetch(self, Py_ssize_t index) noexcept:     # of what `peek` reads
        prefetch_line(&self.places[index])

    cdef inline const void* spot_of(self, Slice key) noexcept nogil:        # that `likely_row` begins with
        return &self.spots[<Py_ssize_t>even_place(&self.even, key)]

    cdef inline LikelyRow likely_row(self, Slice key) noexcept nogil:
        cdef LikelyRow out
        cdef double even = even_place(&self.even, key), begin, end
        cdef int steps
        out.block = <Py_ssize_t>even
        for steps in range(NEIGHBOURS):
            begin = <double>out.block + self.spots[out.block].lag * (1.0 / LAG_UNITS)
            end = <double>(out.block + 1) + self.spots[out.block + 1].lag * (1.0 / LAG_UNITS)
            if even < begin and out.block > 0:
                out.block -= 1
            elif even >= end and out.block < self.even.last_block:
                out.block += 1
            else:
                break
        out.share = (even - begin) / (end - begin) if begin < even < end else <double>(even >= end)
        return out

    cdef inline void want_likely(self, Lines* lines, LikelyRow likely) noexcept nogil:
        """The lines of the row, and of the place of its block."""
        cdef BlockSpot* spot = &self.spots[likely.block]
        cdef const uint8_t* heads = self.base + 8 * <Py_ssize_t>spot.heads
        cdef Py_ssize_t row = row_at(likely.share, self.rows)
        if spot.heads > 0:
            want(lines, heads + 8 * row)
            want_value(lines, heads - self.values_before + <Py_ssize_t>(self.value_bytes * row), self.value_bytes)
        want(lines, &self.places[likely.block])

    cdef void learn(self, SstableIndex index) noexcept      # where its keys stand among evenly growing ones
    cdef put(self, Py_ssize_t index, object value, Py_ssize_t bytes_, const CachePlace* shown)
    # `shown` says what stands in the value; it may be NULL

    cdef void note(self, Py_ssize_t index, const CachePlace* shown) noexcept
