"""CacheAdmission: which blocks enter a full cache, and what was asked of it."""

from libc.stdint cimport uint32_t, uint64_t

from hummock.sstable.cache.block_cache cimport BlockCache


cdef class CacheAdmission:
    """All methods under the GIL."""
    cdef readonly BlockCache cache
    cdef readonly uint64_t hits         # of blocks, by point reads; the readers count, each key once
    cdef readonly uint64_t misses
    cdef readonly uint64_t admitted     # of the misses
    cdef readonly uint64_t meta_hits
    cdef readonly uint64_t meta_misses
    cdef uint32_t* votes                # owned; NULL before the cache was first full
    cdef uint64_t mask

    cdef bint admits(self, uint64_t slot, Py_ssize_t bytes_) except -1
    # whether an object of about so many bytes, of a slot whose hash this is, is to be cached; a missed one asks
