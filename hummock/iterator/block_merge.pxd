"""BlockMerge: the entries of many children in one order, found for some hundreds of them at a time."""

cimport cython
from libc.stdint cimport uint8_t, uint64_t

from hummock.iterator.base cimport Columns, Entry
from hummock.iterator.key_prefix128 cimport KeyPrefix128


cdef struct Window:                     # what a child has at hand
    void* child                         # HummockIterator, borrowed
    Columns columns                     # `row`: the first one that no finished round has handed out
    Py_ssize_t passed                   # rows before that, which the child stands in front of
    KeyPrefix128 prefix                 # of the columns' prefix
    KeyPrefix128* key_prefixes          # of `known` rows from `row` on
    Py_ssize_t known
    Py_ssize_t chosen                   # rows in the current round


cdef struct Item:                       # a row of the current round
    uint64_t head                       # of its key prefix, the 64 bits from the first one on which rows here differ
    uint64_t window_row                      # its window, its row from the window's `row` on: 32 bits each


@cython.final
cdef class BlockMerge:
    cdef Window* windows                # of the children that are not exhausted, newest first; owned
    cdef Py_ssize_t live                # how many
    cdef Py_ssize_t stride              # most rows of a window whose key prefixes are known
    cdef KeyPrefix128* key_prefixes     # `stride` of them by window; owned, like all below
    cdef Item* items                    # of the round: sorted by window, or where merging them has brought them
    cdef Item* others                   # the other half of that work
    cdef Py_ssize_t* bounds             # of the runs within `items`
    cdef Py_ssize_t runs
    cdef uint8_t* memory                # that the four above lie in
    cdef Py_ssize_t memory_bytes
    cdef Py_ssize_t count               # items of the round
    cdef Py_ssize_t at                  # of them handed out
    cdef uint8_t* keys                  # where user keys with a prefix are put together
    cdef Py_ssize_t keys_bytes
    cdef Py_ssize_t keys_capacity

    cdef int begin(self, Py_ssize_t count) except -1 nogil      # for so many children at most
    cdef bint add(self, void* child) noexcept nogil
    # a child from where it stands; of equal full keys the one added first comes first. REQUIRES that it is valid,
    # and stays alive. False: it has no columns
    cdef Py_ssize_t pull(self, Entry* out, Py_ssize_t most) except -1 nogil
    # as HummockIterator.pull

    cdef int make_keys_room(self) except -1 nogil
    cdef int plan(self) except -1 nogil                     # the next round
    cdef int finish_round(self) except -1 nogil             # moves windows and children past what was handed out
    cdef void choose(self, Py_ssize_t bound) noexcept nogil     # rows up to the last known one of that window
    cdef void sort(self) noexcept nogil
    cdef void merge(self, Py_ssize_t first, Py_ssize_t middle, Py_ssize_t end) noexcept nogil
    cdef bint is_after(self, const Item* a, const Item* b) noexcept nogil
    cdef bint precedes(self, Py_ssize_t a, Py_ssize_t a_at, Py_ssize_t b, Py_ssize_t b_at) noexcept nogil
