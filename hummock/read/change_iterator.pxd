"""ChangeWalk: the user keys that readers at two epochs may see different things under."""

from libc.stdint cimport uint64_t

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.iterator.base cimport HummockIterator, Span
from hummock.iterator.owned_bytes cimport Saved
from hummock.iterator.row_filter cimport RowRules, RuleHold
from hummock.iterator.user cimport UserIterator


cdef class ChangeWalk:
    cdef HummockIterator source         # forward, over every entry of (since, until] at least
    cdef uint64_t since                 # the newest entry that the earlier reader may see
    cdef uint64_t until                 # and the later one
    cdef Slice start
    cdef Slice end                      # data NULL: no end. Owner of both: `bounds`
    cdef object bounds
    cdef RowRules rules
    cdef bint has_rules
    cdef RuleHold before                # of readers at `since`
    cdef RuleHold after                 # of readers at `until`
    cdef BinaryColumnBuilder keys
    cdef BinaryColumnBuilder values     # what the later reader sees
    cdef Saved key
    cdef bint is_started

    cdef int fill(self, Py_ssize_t max_rows, Py_ssize_t max_bytes) except -1 nogil
    cdef bint is_at_end(self) noexcept nogil
    cdef Py_ssize_t pass_span(self, Py_ssize_t max_rows, Py_ssize_t max_bytes) except -1 nogil
    # rows passed or taken; 0: walk
    cdef bint is_unchanged(self, Span* span) noexcept nogil
    cdef bint is_shown(self, Span* span) noexcept nogil
    cdef int take_key(self) except -1 nogil


cdef BinaryColumn merged_values(UserIterator rows, BinaryColumn keys)
# what `rows` shows under each of ascending `keys`, null where nothing is
