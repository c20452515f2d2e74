"""BlockCache: decoded blocks and metas, kept up to a budget of bytes.

There is no hash table: each open file has a FileSlots with one slot per block, so a reader finds a block by index,
and dropping the FileSlots evicts everything the file had cached. Eviction is second chance (CLOCK): an object at
the old end of the queue is evicted only if it was not used since it was inserted or last reached that end; a hit
sets a flag and moves nothing. An object with other references stays, and counts, since dropping it would free
nothing. While slabs hold idle memory in size classes that are not in demand, each insertion evicts a few objects
more, so that those slabs empty.

Everything here runs under the GIL and never releases it midway.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from hummock.columnar.slab_allocator cimport slab_release, slab_idle, slab_acquire

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject*)


cdef Py_ssize_t NEARBY_BYTES = (<Py_ssize_t>1) << 35         # address range that `hints` can express

cdef enum:
    IDLE_BYTES = 64 << 20       # tolerated idle slab memory, besides an eighth of the budget
    MORE = 8                    # extra evictions per insertion while slabs are idle, at most a 64th of the budget


cdef inline int32_t error_of(double blocks) noexcept nogil:
    cdef double most = 32_000
    return <int32_t>(ERROR_UNITS * (-most if blocks < -most else (most if blocks > most else blocks)))


cdef class BlockCache:
    """Invariant: `used_bytes` is the sum over the queue; it exceeds `limit_bytes` only by objects that others hold.

    A cache with a `lender` exceeds its own capacity by up to half of the lender's, whose limit shrinks by as much:
    rereading a filter for a key costs many times what rereading a block does.
    """

    def __cinit__(self, Py_ssize_t capacity_bytes, BlockCache lender=None):
        if capacity_bytes < 0:
            raise ValueError(f"a cache of {capacity_bytes} bytes")
        self.capacity_bytes, self.lender = capacity_bytes, lender
        self.queue.older = self.queue.newer = &self.queue

    cdef void link(self, CacheNode* node) noexcept:
        node.newer, node.older = &self.queue, self.queue.older
        node.older.newer = node
        self.queue.older = node

    cdef void unlink(self, CacheNode* node) noexcept:
        node.newer.older, node.older.newer = node.older, node.newer

    cdef void remove(self, CacheNode* node):
        cdef PyObject* value = node.slot.value
        self.unlink(node)
        node.slot.value = NULL
        self.used_bytes -= node.bytes
        self.objects -= 1
        self.borrow()
        Py_DECREF(<object>value)

    cdef Py_ssize_t limit_bytes(self) noexcept:
        return self.capacity_bytes - self.lent_bytes + (0 if self.lender is None else self.lender.lent_bytes)

    cdef void borrow(self) noexcept:
        if self.lender is not None:
            self.lender.lent_bytes = min(
                max(self.used_bytes - self.capacity_bytes, 0), self.lender.capacity_bytes >> 1)

    cdef void shrink(self):
        cdef Py_ssize_t chances = 2 * self.objects, wanted = self.limit_bytes()
        cdef CacheNode* oldest
        if self.used_bytes > wanted and slab_idle() > (wanted >> 3) + IDLE_BYTES:
            wanted -= min(MORE * (self.used_bytes // self.objects), wanted >> 6)
        while self.used_bytes > wanted and chances > 0:
            oldest = self.queue.newer
            chances -= 1
            if oldest.slot.was_used or Py_REFCNT(oldest.slot.value) > 1:
                oldest.slot.was_used = False
                self.unlink(oldest)
                self.link(oldest)
            else:
                self.remove(oldest)
                self.evictions += 1


@cython.no_gc_clear     # __dealloc__ uses the cache
cdef class FileSlots:
    """`size` slots of `cache`, all empty at first."""

    def __cinit__(self, BlockCache cache not None, Py_ssize_t size):
        cdef size_t entries = <size_t>(size if size > 0 else 1)
        cdef Py_ssize_t index
        self.cache = cache
        self.entries = <CacheSlot*>slab_acquire(entries * sizeof(CacheSlot))
        self.nodes = <CacheNode*>calloc(entries, sizeof(CacheNode))
        self.hints = <BlockHint*>calloc(entries + 1, sizeof(BlockHint))
        if self.entries == NULL or self.nodes == NULL or self.hints == NULL:
            raise MemoryError
        self.size = size
        memset(self.entries, 0, entries * sizeof(CacheSlot))
        for index in range(size):
            self.nodes[index].slot = &self.entries[index]

    def __dealloc__(self):
        cdef Py_ssize_t index
        for index in range(self.size):
            if self.entries[index].value != NULL:
                self.cache.remove(&self.nodes[index])
        slab_release(<uint8_t*>self.entries, max(self.size, 1) * sizeof(CacheSlot))
        free(self.nodes)
        free(self.hints)

    cdef put(self, Py_ssize_t index, object value, Py_ssize_t bytes_, const CacheSlot* shown):
        cdef CacheSlot* slot = &self.entries[index]
        cdef CacheNode* node = &self.nodes[index]
        if slot.value != NULL:
            self.cache.remove(node)
        Py_INCREF(value)
        memset(slot, 0, sizeof(CacheSlot))
        if shown != NULL:
            slot[0] = shown[0]
            self.note(index, shown)
        slot.value, slot.was_used, node.bytes = <PyObject*>value, False, bytes_
        self.cache.link(node)
        self.cache.used_bytes += bytes_
        self.cache.objects += 1
        self.cache.borrow()
        if self.cache.lender is not None:
            self.cache.lender.shrink()
        self.cache.shrink()

    cdef void note(self, Py_ssize_t index, const CacheSlot* shown) noexcept:
        cdef const uint8_t* heads = <const uint8_t*>shown.heads
        self.is_predictable, self.are_hashed = shown.is_fixed_width, shown.is_hashed
        if not shown.is_fixed_width:
            return
        if self.base == NULL:
            self.base = heads - NEARBY_BYTES // 2
        self.hints[index].heads = <uint32_t>((heads - self.base) >> 3) if (
            heads > self.base and heads - self.base < NEARBY_BYTES) else 0
        if shown.rows > self.rows:          # the last block of a file is short
            self.rows, self.values_before, self.value_bytes = shown.rows, shown.values_before, shown.value_bytes

    cdef void learn(self, SstableIndex index) noexcept:
        cdef double late = 0
        cdef uint32_t most = 1
        cdef Py_ssize_t block
        self.even = index.even
        for block in range(index.blocks):
            late = <double>(index.heads[block] - index.heads[0]) * index.even.blocks_per_head - <double>block
            self.hints[block].lag = error_of(late)
            most = max(most, index.rows[block])
        late += <double>index.rows[index.blocks - 1] / <double>most - 1
        self.hints[index.blocks].lag = error_of(late)

    def __setitem__(self, Py_ssize_t index, sized):
        """Caches `sized = (object, bytes)` at `index`, replacing the object there."""
        if not 0 <= index < self.size:
            raise IndexError(index)
        self.put(index, sized[0], sized[1], NULL)

    def __getitem__(self, Py_ssize_t index):
        """The object at `index`, or None. Counts as a use."""
        if not 0 <= index < self.size:
            raise IndexError(index)
        cdef PyObject* found = self.peek(index)
        return None if found == NULL else <object>found

    def __len__(self) -> int:
        return self.size
