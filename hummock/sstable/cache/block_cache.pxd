"""BlockCache: objects kept up to a budget of bytes, found by pointer."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from hummock.base.key cimport Slice
from hummock.sstable.hash_index cimport bucket_of
from hummock.sstable.index cimport EvenKeys, SstableIndex, even_position
from hummock.sstable.interpolation_search cimport row_at
from hummock.sstable.prefetch cimport PrefetchList, prefetch_line, enqueue, enqueue_value


cdef enum:
    NEAR_BYTES = 16
    SEARCHED_BYTES = 192        # of a Block: what a search reads of the object, which begins anywhere in a cache line


cdef struct CacheSlot:                  # one cached object, in one cache line: all that a lookup reads
    PyObject* value                     # owned reference; NULL: not cached, and all other fields are undefined
    const uint64_t* heads               # of a block: key prefixes of its rows, or the buckets of its hash index
    uint32_t values_before              # bytes from the first value to `heads`
    uint32_t rows                       # or the number of buckets
    float value_bytes                   # per row, on average
    uint8_t was_used                    # since it last reached the old end of the queue
    uint8_t is_fixed_width              # one key length, one value length, one epoch, no tombstones
    uint8_t is_hashed                   # the block has a hash index
    uint8_t prefix_size
    uint32_t each_suffix                # bytes; this and the fields below are set for fixed-width blocks only
    uint32_t each_value
    uint64_t epoch
    uint8_t prefix[NEAR_BYTES]          # common to all keys


cdef enum:
    ERROR_UNITS = 1 << 16               # per block
    NEIGHBOURS = 4                      # most blocks by which a prediction is corrected


cdef struct BlockHint:                  # per block: locates the cache lines of a predicted row
    uint32_t heads                      # offset from FileSlots.base in 8 bytes, kept after eviction; 0: unknown
    int32_t lag                         # interpolation error: how much later the block begins than predicted


cdef struct PredictedRow:               # where the row of a key is if it exists and all blocks are alike
    Py_ssize_t block
    double share                        # fraction of the block before the row


cdef struct CacheNode:                  # queue node of a cached object
    CacheSlot* slot
    Py_ssize_t bytes                    # charged to the budget
    CacheNode* newer                    # neighbours in the cache's queue while the slot is in use
    CacheNode* older


cdef inline PyObject* used(CacheSlot* slot) noexcept:
    """Borrowed, valid until the GIL is released; NULL: not cached. Counts as a use."""
    if not slot.was_used:               # a line that is only read stays in every core's cache
        slot.was_used = True
    return slot.value


cdef inline void enqueue_block(PrefetchList* lines, const void* block) noexcept nogil:
    """Enqueues what a search reads of the Block itself."""
    cdef Py_ssize_t at
    for at in range(0, SEARCHED_BYTES, 64):
        enqueue(lines, <const uint8_t*>block + at)
    enqueue(lines, <const uint8_t*>block + SEARCHED_BYTES - 1)


cdef inline void enqueue_rows(PrefetchList* lines, CacheSlot* slot, double share, uint64_t hash) noexcept nogil:
    """Enqueues the block, and the bucket of the hash, or the row at fraction `share`."""
    cdef Py_ssize_t row
    if slot.value == NULL:
        return
    if slot.is_hashed:
        enqueue(lines, bucket_of(slot.heads, slot.rows, hash))
    else:
        row = row_at(share, slot.rows)
        enqueue(lines, slot.heads + row)
        enqueue_value(lines, <const uint8_t*>slot.heads - slot.values_before + <Py_ssize_t>(slot.value_bytes * row),
                      slot.value_bytes)
    if not slot.is_fixed_width:
        enqueue_block(lines, slot.value)


cdef class BlockCache:
    cdef readonly Py_ssize_t capacity_bytes
    cdef readonly Py_ssize_t used_bytes
    cdef readonly Py_ssize_t objects
    cdef readonly Py_ssize_t evictions
    cdef readonly BlockCache lender     # up to half of its budget may be borrowed; None: no borrowing
    cdef readonly Py_ssize_t lent_bytes     # part of `capacity_bytes` in use by the borrower
    cdef CacheNode queue                # sentinel: queue.older is the newest node, queue.newer the oldest

    cdef void link(self, CacheNode* node) noexcept
    cdef void unlink(self, CacheNode* node) noexcept
    cdef void remove(self, CacheNode* node)
    cdef Py_ssize_t limit_bytes(self) noexcept              # current budget: less what is lent, plus what is borrowed
    cdef void borrow(self) noexcept
    cdef void shrink(self)


cdef class FileSlots:
    """The cache slots of one file, by block index. All methods REQUIRE the GIL."""
    cdef readonly BlockCache cache
    cdef readonly Py_ssize_t size
    cdef CacheSlot* entries             # `size` slots, allocated from a slab
    cdef CacheNode* nodes               # one per slot; owned
    cdef EvenKeys even                  # from the index, as are the lags
    cdef BlockHint* hints               # one per block, and one for the end of the last; owned
    cdef const uint8_t* base
    cdef bint is_predictable            # the last block was fixed width, so it pays to predict rows
    cdef bint are_hashed                # it has a hash index
    cdef Py_ssize_t rows                # of the largest fixed-width block cached so far, as are the next two
    cdef Py_ssize_t values_before
    cdef float value_bytes

    cdef inline PyObject* peek(self, Py_ssize_t index) noexcept:
        return used(&self.entries[index])

    cdef inline void prefetch(self, Py_ssize_t index) noexcept:     # what `peek` reads
        prefetch_line(&self.entries[index])

    cdef inline const void* hint_of(self, Slice key) noexcept nogil:        # the first hint `predicted_row` reads
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
        """Enqueues the cache lines of the row and of its block's slot."""
        cdef BlockHint* hint = &self.hints[predicted.block]
        cdef const uint8_t* heads = self.base + 8 * <Py_ssize_t>hint.heads
        cdef Py_ssize_t row = row_at(predicted.share, self.rows)
        if hint.heads > 0:
            enqueue(lines, heads + 8 * row)
            enqueue_value(lines, heads - self.values_before + <Py_ssize_t>(self.value_bytes * row), self.value_bytes)
        enqueue(lines, &self.entries[predicted.block])

    cdef void learn(self, SstableIndex index) noexcept      # computes the interpolation error of each block
    cdef put(self, Py_ssize_t index, object value, Py_ssize_t bytes_, const CacheSlot* shown)
    # `shown`: the slot's description of `value`; may be NULL

    cdef void note(self, Py_ssize_t index, const CacheSlot* shown) noexcept
