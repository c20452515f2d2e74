"""BlockMerge: merges the spans of many children, some hundreds of entries per round."""

cimport cython
from libc.stdint cimport uint8_t, uint64_t

from hummock.base.key cimport Slice
from hummock.iterator.base cimport Entry, Span
from hummock.iterator.joined_key cimport JoinedKey
from hummock.iterator.key_prefix128 cimport KeyPrefix128


cdef struct Window:                     # the current span of a child
    void* child                         # HummockIterator, borrowed
    Span span                           # `row`: the first one not returned by a finished round
    Py_ssize_t passed                   # rows before that which the child has not moved past yet
    KeyPrefix128 prefix                 # of the span's prefix
    KeyPrefix128* key_prefixes          # of `known` rows from `row` on
    Py_ssize_t known
    Py_ssize_t wanted                   # rows to know in a round
    Py_ssize_t chosen                   # rows in the current round
    Py_ssize_t returned                 # by finished rounds since `wanted` was set


cdef struct Item:                       # a row of the current round
    uint64_t head                       # 64 bits of its user key behind what the rows merged with it have in common
    uint64_t window_row                 # its window, and its row relative to the window's `row`: 32 bits each


@cython.final
cdef class BlockMerge:
    cdef Window* windows                # of the children that are not exhausted, newest first; owned
    cdef Py_ssize_t live                # number of those
    cdef Py_ssize_t wanted              # rows of a window in its first rounds
    cdef Py_ssize_t returned            # rows of all windows since their `wanted` was set
    cdef Py_ssize_t stride              # room for key prefixes per window, SPARE_KNOWN included
    cdef KeyPrefix128* key_prefixes     # `stride` per window; owned, like all below
    cdef Item* items                    # of the round: sorted runs while merging, then in order
    cdef Item* others                   # merge target, swapped with `items`
    cdef Py_ssize_t* bounds             # of the runs within `items`
    cdef Py_ssize_t runs
    cdef uint8_t* memory                # holds the five arrays above
    cdef Py_ssize_t memory_bytes
    cdef Py_ssize_t count               # items of the round
    cdef Py_ssize_t at                  # items returned
    cdef Py_ssize_t lone_rounds         # consecutive rounds whose rows are all of one child
    cdef uint8_t* keys                  # in which user keys with a prefix are assembled
    cdef Py_ssize_t keys_bytes
    cdef Py_ssize_t keys_capacity

    cdef int begin(self, Py_ssize_t count) except -1 nogil      # for at most `count` children
    cdef bint add(self, void* child) noexcept nogil
    # adds a child from its current entry on; of equal full keys the child added first comes first. REQUIRES that it is
    # valid and stays alive. False: it returns no spans
    cdef Py_ssize_t pull(self, Entry* out, Py_ssize_t most) except -1 nogil
    # as HummockIterator.pull
    cdef bint prefers_spans(self) noexcept nogil            # one child has led for long, and no row is pending
    cdef int leave(self) except -1 nogil                    # moves the children past all rows that were returned

    cdef int make_keys_room(self) except -1 nogil
    cdef void plan(self) noexcept nogil                     # the next round
    cdef int finish_round(self) except -1 nogil             # moves windows and children past the returned entries
    cdef void set_shares(self) noexcept nogil       # rows to know of each window, in proportion to those that it has
    # returned since this was last set, half of it at a time
    cdef bint choose(self, const KeyPrefix128* limit) noexcept nogil    # known rows of key prefixes up to `limit`;
    # whether all of these are equal
    cdef Py_ssize_t rows_up_to(self, const Window* window, const KeyPrefix128* limit) noexcept nogil
    cdef bint drop_above(self) noexcept nogil       # rows of heads above the least one of a last known row; whether
    # all heads of the others are equal
    cdef bint is_last_known(self, const Item* item) noexcept nogil      # row of its window
    cdef Py_ssize_t end_of_heads(self, Py_ssize_t first, Py_ssize_t end, uint64_t limit) noexcept nogil
    # the first of items[first : end], which are sorted, whose head is above `limit`
    cdef void cut(self) noexcept nogil      # ends the round behind the first row that is the last known one of its
    # window; sets the rows of each window in it
    cdef void sort(self, Py_ssize_t first, Py_ssize_t end, bint by_key) noexcept nogil
    cdef void merge(self, Py_ssize_t first, Py_ssize_t middle, Py_ssize_t end) noexcept nogil
    cdef void merge_by_key(self, Py_ssize_t first, Py_ssize_t middle, Py_ssize_t end) noexcept nogil
    cdef void order_ties(self, Py_ssize_t first, Py_ssize_t end, Py_ssize_t offset, int level) noexcept nogil
    cdef void order_range(self, Py_ssize_t first, Py_ssize_t end, Py_ssize_t offset, int level) noexcept nogil
    cdef void insert(self, Py_ssize_t first, Py_ssize_t end) noexcept nogil
    cdef void find_runs(self, Py_ssize_t first, Py_ssize_t end) noexcept nogil
    cdef Py_ssize_t common_bytes(self) noexcept nogil           # with which the keys of all `runs` begin
    cdef void set_heads(self, Py_ssize_t offset) noexcept nogil     # of `runs`: bytes from `offset` on
    cdef JoinedKey key_of(self, const Item* item) noexcept nogil
    cdef bint is_after(self, const Item* a, const Item* b) noexcept nogil
    cdef bint precedes(self, Py_ssize_t a, Py_ssize_t a_at, Py_ssize_t b, Py_ssize_t b_at) noexcept nogil
