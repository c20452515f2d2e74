"""CacheAdmission: which blocks enter the cache.

A block that is read once costs cold memory and a whole block decoded for one row. So a cache with room admits a block
at its second miss: a small table remembers, by slot, the block that missed last. In a full cache, replacing a block by
one that is read as rarely gains nothing either: it admits a missed block only if, among the blocks that hash to the
same slot, most recent misses were its own (Boyer-Moore majority vote per slot). With about as many slots as the cache
has blocks, a block with fewer misses than half the average slot never enters, and a frequently read one enters after a
few misses.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free

cdef enum:
    SLOT_BYTES = 64 << 10       # of cache capacity per slot
    FEWEST_SLOTS = 64
    MOST_SLOTS = 1 << 20
    COUNT = 7                   # mask of a vote's counter bits
    ENOUGH = 4                  # votes to enter; with 3, one in 40 misses of a uniform load admitted a useless block
    MOST = 5                    # the counter saturates here, so that a block no longer read is soon displaced


cdef class CacheAdmission:

    def __cinit__(self, BlockCache cache not None):
        self.cache = cache

    def __dealloc__(self):
        free(self.votes)

    cdef bint admits(self, uint64_t slot, Py_ssize_t bytes_) except -1:
        cdef uint32_t* vote
        cdef uint32_t name = <uint32_t>slot & ~<uint32_t>COUNT
        cdef uint64_t slots = FEWEST_SLOTS
        cdef bint has_room = self.cache.used_bytes + bytes_ <= self.cache.limit_bytes()
        if self.cache.used_bytes > self.cache.limit_bytes():
            self.cache.shrink()         # callers may have released blocks since
        if self.votes == NULL:
            while slots < MOST_SLOTS and slots * SLOT_BYTES < <uint64_t>self.cache.capacity_bytes:
                slots <<= 1
            self.votes = <uint32_t*>calloc(slots, sizeof(uint32_t))
            if self.votes == NULL:
                raise MemoryError
            self.mask = slots - 1
        vote = &self.votes[(slot >> 32) & self.mask]
        if has_room:
            if vote[0] & ~<uint32_t>COUNT != name:
                vote[0] = name | 1
                return False
            self.admitted += 1
            return True
        if vote[0] & ~<uint32_t>COUNT != name or vote[0] & COUNT == 0:
            vote[0] = vote[0] - 1 if vote[0] & COUNT > 1 else name | 1
            return False
        if vote[0] & COUNT < MOST:
            vote[0] += 1
        if vote[0] & COUNT < ENOUGH:
            return False
        self.admitted += 1
        return True

    def vote_for(self, uint64_t slot, Py_ssize_t bytes_) -> bool:
        """`admits`, for tests."""
        return self.admits(slot, bytes_)
