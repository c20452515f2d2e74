"""MultiSstableBuilder: full keys in order in, as many files out as size and borders ask for."""

cimport cython
from libc.stdint cimport uint64_t

from hummock.base.posix cimport pthread_cond_t, pthread_mutex_t
from hummock.iterator.base cimport Entry


@cython.final
cdef class MultiSstableBuilder:
    cdef object options                 # StorageOptions or OutputOptions
    cdef object policy                  # FilterPolicy
    cdef object name_source             # () -> 32 hex digits, a new one each time
    cdef dict prefix_rules              # as in SstableBuilder
    cdef Py_ssize_t sstable_bytes       # a file that has reached this ends with the user key it is in
    cdef Py_ssize_t data_bytes          # of a file, for which room is taken at once
    cdef object sink_of                 # name -> PartSink of that file, or None
    cdef list begun                     # SstableBuilder, which the next three point to
    cdef void* current                  # NULL between files
    cdef void* spare                    # the next one, before it is wanted
    cdef void* built                    # one that waits for its end
    cdef bint is_open                   # whether `current` is there
    cdef bint is_served                 # somebody calls `serve`
    cdef bint is_ending                 # a built one is taken
    cdef bint is_over                   # no more work for who serves
    cdef object error                   # what who serves met with
    cdef bint has_failed                # the same, readable without the GIL
    cdef pthread_mutex_t lock           # of `spare`, `built` and what follows
    cdef pthread_cond_t changed
    cdef list outputs                   # finished files that were not taken, in key order
    cdef object taker                   # gets them instead, or None
    cdef uint64_t* borders              # table id and vnode, 48 bits, where a file ends; ascending; owned
    cdef Py_ssize_t border_count
    cdef uint64_t next_border           # the first one that is not reached; all ones: none

    cdef int add(self, const Entry* entry) except -1 nogil
    # like SstableBuilder.add; takes the GIL to begin or to finish a file, unless somebody serves
    cdef bint is_cut_before(self, const Entry* entry) noexcept nogil
    cdef void pass_border(self, uint64_t boundary) noexcept nogil
    cdef int roll(self, bint open_next) except -1 nogil     # ends the file in the making, begins the next
    cdef int hand_on(self, void* built) except -1 nogil          # what is built goes to who serves
    cdef int take_spare(self) except -1 nogil
    cdef int check_served(self) except -1 nogil     # raises what who serves met with
    cdef bint wait_for_work(self) noexcept nogil    # False: there will be none
    cdef int begin_spare(self) except -1
    cdef int end_file(self, void* built) except -1
    cdef int end_all(self) except -1 nogil          # no entry follows: all files end, and the next one begins anew
    cdef void* take_built(self) noexcept nogil
    cdef void note_ended(self) noexcept nogil
    cdef void wait_until_ended(self) noexcept nogil
    cdef fail(self, error)
