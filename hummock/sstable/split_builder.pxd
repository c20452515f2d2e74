"""SplitSstableBuilder: full keys in order in, as many files out as size and borders ask for."""

cimport cython
from libc.stdint cimport uint64_t

from hummock.iterator.base cimport Entry
from hummock.sstable.builder cimport SstableBuilder


@cython.final
cdef class SplitSstableBuilder:
    cdef object options                 # StorageOptions or OutputOptions
    cdef object policy                  # FilterPolicy
    cdef object name_source             # () -> 32 hex digits, a new one each time
    cdef dict prefix_rules              # as in SstableBuilder
    cdef Py_ssize_t sstable_bytes       # a file that has reached this ends with the user key it is in
    cdef Py_ssize_t data_bytes          # of a file, for which room is taken at once
    cdef object sink_of                 # name -> PieceSink of that file, or None
    cdef SstableBuilder current         # None between files
    cdef bint is_open                   # whether `current` is there, readable without the GIL
    cdef list outputs                   # finished files that were not taken, in key order
    cdef object taker                   # gets them instead, or None
    cdef uint64_t* borders              # table id and vnode, 48 bits, where a file ends; ascending; owned
    cdef Py_ssize_t border_count
    cdef uint64_t next_border           # the first one that is not reached; all ones: none

    cdef int add(self, const Entry* entry) except -1 nogil
    # like SstableBuilder.add; takes the GIL only to begin or to finish a file
    cdef bint is_cut_before(self, const Entry* entry) noexcept nogil
    cdef void pass_border(self, uint64_t place) noexcept nogil
    cdef int roll(self, bint open_next) except -1 with gil
