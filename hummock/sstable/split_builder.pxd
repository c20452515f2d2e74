"""SplitSstableBuilder: full keys in order in, as many files out as their size asks for."""

cimport cython
from libc.stdint cimport uint64_t

from hummock.key cimport Slice
from hummock.sstable.builder cimport SstableBuilder


@cython.final
cdef class SplitSstableBuilder:
    cdef object options                 # StorageOptions
    cdef object policy                  # FilterPolicy
    cdef object name_source             # () -> 32 hex digits, a new one each time
    cdef dict prefix_rules              # as in SstableBuilder
    cdef Py_ssize_t sstable_bytes       # a file that has reached this ends with the user key it is in
    cdef SstableBuilder current         # None between files
    cdef bint is_open                   # whether `current` is there, readable without the GIL
    cdef list outputs                   # finished files, in key order

    cdef int add(self, Slice user_key, uint64_t epoch, Slice value) except -1 nogil
    # like SstableBuilder.add; takes the GIL only to begin or to finish a file
    cdef int roll(self, bint open_next) except -1 with gil
