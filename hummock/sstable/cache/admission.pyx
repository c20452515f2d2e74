"""CacheAdmission: which blocks enter a full cache.

A cache that is full gains nothing by changing one block for another that is as rarely wanted, and loses the price of
the change: memory that is cold, and a whole block decoded for one row. So a missed block enters a full cache only when
of late, among the blocks that share its slot of a small table, most misses were its own (the majority vote of Boyer
and Moore, a slot at a time). With about as many slots as the cache has blocks, a block that is missed less often than
half of the average slot never enters, and one that is wanted often enters after a few misses.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free

cdef enum:
    SLOT_BYTES = 64 << 10       # of the cache for each slot
    FEWEST_SLOTS = 64
    MOST_SLOTS = 1 << 20
    COUNT = 7                   # the bits of a vote that count
    ENOUGH = 4                  # votes to enter: with 3, one uniform miss in 40 paid for an entry that gained nothing
    MOST = 5                    # no block is further ahead, so that it is forgotten when it is wanted no more


cdef class CacheAdmission:

    def __cinit__(self, BlockCache cache not None):
        self.cache = cache

    def __dealloc__(self):
        free(self.votes)

    cdef bint admits(self, uint64_t slot, Py_ssize_t bytes_) except -1:
        cdef uint32_t* vote
        cdef uint32_t name = <uint32_t>slot & ~<uint32_t>COUNT
        cdef uint64_t slots = FEWEST_SLOTS
        if self.cache.used_bytes + bytes_ <= self.cache.limit_bytes():
            self.admitted += 1
            return True
        if self.cache.used_bytes > self.cache.limit_bytes():
            self.cache.shrink()         # what callers held when it came has been let go since
        if self.votes == NULL:
            while slots < MOST_SLOTS and slots * SLOT_BYTES < <uint64_t>self.cache.capacity_bytes:
                slots <<= 1
            self.votes = <uint32_t*>calloc(slots, sizeof(uint32_t))
            if self.votes == NULL:
                raise MemoryError
            self.mask = slots - 1
        vote = &self.votes[(slot >> 32) & self.mask]
        if vote[0] & ~<uint32_t>COUNT != name or vote[0] & COUNT == 0:
            vote[0] = vote[0] - 1 if vote[0] & COUNT > 1 else name | 1
            return False
        if vote[0] & COUNT < MOST:
            vote[0] += 1
        if vote[0] & COUNT < ENOUGH:
            return False
        self.admitted += 1
        return True

    def asks(self, uint64_t slot, Py_ssize_t bytes_) -> bool:
        """`admits`, for tests."""
        return self.admits(slot, bytes_)
