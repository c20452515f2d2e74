"""UserIterator: the rows of a range that a reader at one epoch sees."""

from libc.stdint cimport uint8_t, uint64_t

from hummock.base.key cimport Slice
from hummock.iterator.base cimport Entry, HummockIterator, Span
from hummock.iterator.owned_bytes cimport OwnedBytes
from hummock.iterator.row_filter cimport RowRules, RuleHold


cdef class UserIterator(HummockIterator):
    cdef HummockIterator child
    cdef uint64_t newest                # entries with a greater epoch are hidden
    cdef uint64_t oldest                # and those with a smaller one
    cdef Slice start                    # first user key of the range; owner: `bounds`
    cdef Slice end                      # first user key past the range; data NULL: no end
    cdef object bounds
    cdef RowRules rules                 # None: only tombstones hide rows
    cdef bint is_merge                  # `child` is a MergeIterator
    cdef bint is_ended                  # `pull` has returned the last entry of the range
    cdef bint has_rules                 # whether `rules` is set, readable without the GIL
    cdef RuleHold held                  # of the vnode of the last key checked
    cdef const uint8_t* among           # flags: which children of a MergeIterator to seek; NULL: all. Borrowed
    cdef OwnedBytes key                 # forward: the last key yielded or hidden; reverse: the current key
    cdef OwnedBytes payload             # reverse: the current value

    cdef bint begin_pull(self) except -1 nogil
    # from the current entry on: `pull` returns what a reader sees, `valid` until it returns 0. False: use `next`
    cdef bint prefers_spans(self) noexcept nogil    # all entries pulled so far are used, and one child leads
    cdef int end_pull(self) except -1 nogil         # to the entry behind those that were pulled
    cdef Py_ssize_t keep_visible(self, Entry* entries, Py_ssize_t count) except -1 nogil
    # moves the visible ones to the front; returns how many
    cdef bint clip_by_rule(self, Span* out) noexcept nogil          # to rows that no rule hides; False: use `next`
    cdef int seek_child(self, Slice user_key, uint64_t epoch) except -1 nogil
    cdef int find(self) except -1 nogil             # forward: moves to the first visible entry from the child's on
    cdef int pass_key(self) except -1 nogil         # forward: skips all versions of the saved key
    cdef int collect(self) except -1 nogil          # reverse: the newest visible version of the child's key
    cdef void narrow(self, Slice start, Slice end, object bounds) noexcept   # sets another range; then seek or rewind
