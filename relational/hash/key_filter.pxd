"""KeyFilter: which keys were certainly never added."""

from libc.stdint cimport uint32_t, uint64_t


cdef enum:
    MOST_LAYERS = 24


cdef struct FilterLayer:
    uint32_t* words                     # owned
    uint64_t blocks                     # of BLOCK_WORDS words, a power of two
    Py_ssize_t keys                     # added
    Py_ssize_t capacity                 # keys


cdef class KeyFilter:
    cdef FilterLayer layers[MOST_LAYERS]        # each twice as large as the one before
    cdef int count
    cdef readonly Py_ssize_t keys

    cdef int grow(self) except -1
    cdef void add_hashes(self, const uint64_t* hashes, Py_ssize_t rows) noexcept nogil
    cdef void probe(self, const uint64_t* hashes, Py_ssize_t rows, unsigned char* out) noexcept nogil
