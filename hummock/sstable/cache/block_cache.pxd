"""BlockCache: objects kept up to a budget of bytes, found by pointer."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from hummock.base.key cimport Slice
from hummock.sstable.index cimport EvenKeys, SstableIndex, even_position
from hummock.sstable.interpolation_search cimport row_at
from hummock.sstable.prefetch cimport PrefetchList, prefetch_line, enqueue, enqueue_value


cdef enum:
    NEAR_BYTES = 16


cdef struct CacheSlot:                 # of one object, in one cache line: all that a look-up reads
    PyObject* value                     # owned reference; NULL: not cached, and the rest says nothing
    const uint64_t* heads               # of the rows if the object is a block
    uint32_t values_before              # bytes from the first value to `heads`
    uint32_t rows
    float value_bytes                   # of a row, on average
    uint8_t was_used                    # since it last stood at the old end of the queue
    uint8_t is_fixed_width                    # keys and values are of one length, under one epoch, none a tombstone
    uint8_t prefix_size
    uint32_t each_suffix                # from here on only of plain blocks
    uint32_t each_value
    uint64_t epoch
    uint8_t prefix[NEAR_BYTES]          # that all keys begin with


cdef enum:
    ERROR_UNITS = 1 << 16                 # of a block
    NEIGHBOURS = 4                      # blocks that a guess is put right by


cdef struct BlockHint:                  # of one block: what leads from a key to the lines of its row
    uint32_t heads                      # in 8 bytes from the slots's `base`, even if the block has gone; 0: not known
    int32_t lag                         # how much later than among evenly growing keys it begins


cdef struct PredictedRow:                  # where a key's row is, if it is there and blocks are alike
    Py_ssize_t block
    double share                        # of the block that stands before it


cdef struct CacheNode:                  # what the queue knows of the object
    CacheSlot* slot
    Py_ssize_t bytes                    # what it counts in the budget
    CacheNode* newer                    # neighbours in the cache's queue while the slot is taken
    CacheNode* older


cdef inline PyObject* used(CacheSlot* slot) noexcept:
    """Borrowed, valid until the GIL is released; NULL: not cached. Counts as a use."""
    if not slot.was_used:              # a line that is only read stays with every reader
        slot.was_used = True
    return slot.value


cdef inline void enqueue_rows(PrefetchList* lines, CacheSlot* slot, double share) noexcept nogil:
    """The block, and the row before which `share` of it stands."""
    cdef Py_ssize_t row = row_at(share, slot.rows)
    if slot.value != NULL:
        enqueue(lines, slot.heads + row)
        enqueue_value(lines, <const uint8_t*>slot.heads - slot.values_before + <Py_ssize_t>(slot.value_bytes * row),
                   slot.value_bytes)
        if not slot.is_fixed_width:
            enqueue(lines, slot.value)
            enqueue(lines, <const uint8_t*>slot.value + 64)
            enqueue(lines, <const uint8_t*>slot.value + 128)


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


cdef class FileSlots:
    """The entries of one file, by index. All methods under the GIL."""
    cdef readonly BlockCache cache
    cdef readonly Py_ssize_t size
    cdef CacheSlot* entries             # `size` of them, of a slab
    cdef CacheNode* nodes               # of each; owned
    cdef EvenKeys even                  # of the index, as are the lags
    cdef BlockHint* hints               # of each block, and the end of the last; owned
    cdef const uint8_t* base
    cdef Py_ssize_t rows                # of the largest block that came, as are the next two
    cdef Py_ssize_t values_before
    cdef float value_bytes

    cdef inline PyObject* peek(self, Py_ssize_t index) noexcept:
        return used(&self.entries[index])

    cdef inline void prefetch(self, Py_ssize_t index) noexcept:     # of what `peek` reads
        prefetch_line(&self.entries[index])

    cdef inline const void* hint_of(self, Slice key) noexcept nogil:        # that `predicted_row` begins with
        return &self.hints[<Py_ssize_t>even_position(&self.even, key)]

    cdef inline PredictedRow predicted_row(self, Slice key) noexcept nogil:
        cdef PredictedRow out
        cdef double even = even_position(&self.even, key), begin, end
        cdef int steps
        out.block = <Py_ssize_t>even
        for steps in range(NEIGHBOURS):
            begin = <double>out.block + self.hints[out.block].lag * (1.0 / ERROR_UNITS)
            end = <double>(out.block + 1) + self.hints[out.block + 1].lag * (1.0 / ERROR_UNITS)
            if even < begin and out.block > 0:
                out.block -= 1
            elif even >= end and out.block < self.even.last_block:
                out.block += 1
            else:
                break
        out.share = (even - begin) / (end - begin) if begin < even < end else <double>(even >= end)
        return out

    cdef inline void enqueue_predicted(self, PrefetchList* lines, PredictedRow predicted) noexcept nogil:
        """The lines of the row, and of the slot of its block."""
        cdef BlockHint* hint = &self.hints[predicted.block]
        cdef const uint8_t* heads = self.base + 8 * <Py_ssize_t>hint.heads
        cdef Py_ssize_t row = row_at(predicted.share, self.rows)
        if hint.heads > 0:
            enqueue(lines, heads + 8 * row)
            enqueue_value(lines, heads - self.values_before + <Py_ssize_t>(self.value_bytes * row), self.value_bytes)
        enqueue(lines, &self.entries[predicted.block])

    cdef void learn(self, SstableIndex index) noexcept      # where its keys stand among evenly growing ones
    cdef put(self, Py_ssize_t index, object value, Py_ssize_t bytes_, const CacheSlot* shown)
    # `shown` says what stands in the value; it may be NULL

    cdef void note(self, Py_ssize_t index, const CacheSlot* shown) noexcept
