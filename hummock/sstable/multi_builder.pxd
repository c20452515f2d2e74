"""MultiSstableBuilder: builds a sorted run of files from entries in full key order, split by size and at borders."""

cimport cython
from libc.stdint cimport uint64_t

from hummock.base.posix cimport pthread_cond_t, pthread_mutex_t
from hummock.iterator.base cimport Entry


@cython.final
cdef class MultiSstableBuilder:
    cdef object options                 # StorageOptions or OutputOptions
    cdef object policy                  # FilterPolicy
    cdef object name_source             # () -> a new name of 32 hex digits
    cdef dict prefix_rules              # as in SstableBuilder
    cdef Py_ssize_t sstable_bytes       # a file of this size ends after all versions of its current user key
    cdef Py_ssize_t data_bytes          # allocated up front for each file
    cdef object sink_of                 # name -> PartSink of that file, or None
    cdef list begun                     # SstableBuilders; owner of the next three pointers
    cdef void* current                  # NULL between files
    cdef void* spare                    # the next file, begun ahead
    cdef void* built                    # a full file, waiting to be finished
    cdef bint is_open                   # whether `current` is set
    cdef bint is_served                 # a thread calls `serve`
    cdef bint is_ending                 # the serving thread is finishing a file
    cdef bint is_over                   # `stop` was called
    cdef object error                   # of the serving thread
    cdef bint has_failed                # whether `error` is set, readable without the GIL
    cdef pthread_mutex_t lock           # guards `spare`, `built`, `is_ending`, `is_over`, `has_failed`
    cdef pthread_cond_t changed
    cdef list outputs                   # finished files not yet taken, in key order
    cdef object taker                   # called with finished files instead, or None
    cdef uint64_t* borders              # table id and vnode, 48 bits, at which a file ends; ascending; owned
    cdef Py_ssize_t border_count
    cdef uint64_t next_border           # the first one not reached yet; all ones: none

    cdef int add(self, const Entry* entry) except -1 nogil
    # like SstableBuilder.add; acquires the GIL to begin or finish a file, unless a thread serves
    cdef bint is_cut_before(self, const Entry* entry) noexcept nogil
    cdef void pass_border(self, uint64_t boundary) noexcept nogil
    cdef int roll(self, bint open_next) except -1 nogil     # ends the current file, begins the next
    cdef int hand_on(self, void* built) except -1 nogil     # passes a full file to the serving thread
    cdef int next_builder(self) except -1 nogil
    cdef int check_served(self) except -1 nogil     # raises the serving thread's error, if any
    cdef bint wait_for_work(self) noexcept nogil    # False: stopped
    cdef int begin_spare(self) except -1
    cdef int end_file(self, void* built) except -1
    cdef int end_all(self) except -1 nogil          # ends all files and resets to the first border
    cdef void* pop_built(self) noexcept nogil
    cdef void note_ended(self) noexcept nogil
    cdef void wait_until_ended(self) noexcept nogil
    cdef fail(self, error)
