"""CacheAdmission: which blocks enter a full cache, and hit and miss counters."""

from libc.stdint cimport uint32_t, uint64_t

from hummock.sstable.cache.block_cache cimport BlockCache


cdef class CacheAdmission:
    """All methods REQUIRE the GIL."""
    cdef readonly BlockCache cache
    cdef readonly uint64_t hits         # block hits of point reads, once per key; incremented by the readers
    cdef readonly uint64_t misses
    cdef readonly uint64_t admitted     # of the misses
    cdef readonly uint64_t meta_hits
    cdef readonly uint64_t meta_misses
    cdef uint32_t* votes                # owned; NULL until the cache is first full
    cdef uint64_t mask

    cdef bint admits(self, uint64_t slot, Py_ssize_t bytes_) except -1
    # whether to cache a missed object of about `bytes_` whose hash is `slot`; counts a vote for it
