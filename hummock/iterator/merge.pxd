"""MergeIterator: merges many iterators by a loser tree over borrowed children."""

cimport cython
from libc.stdint cimport uint8_t, uint64_t

from hummock.base.key cimport Slice
from hummock.iterator.base cimport Entry, HummockIterator, Span
from hummock.iterator.block_merge cimport BlockMerge


cdef struct Contender:                  # a copy of a child's current entry, for comparisons in the tree
    uint64_t high                       # bytes 0..8 of the user key, big endian; complemented in reverse
    uint64_t low                        # bytes 8..16; both all ones once the child is exhausted
    Slice user_key                      # the child's
    uint64_t epoch
    bint excluded                       # from the last seek
    bint live                           # the child is valid, and not excluded
    void* child                         # HummockIterator, borrowed from `children`


@cython.final
cdef class MergeIterator(HummockIterator):
    cdef list children                  # children[i] is newer than children[i + 1]
    cdef Py_ssize_t width               # leaves of the tree: the number of children, rounded up to a power of two
    cdef Contender* contenders          # `width` of them; owned
    cdef int* losers                    # losers[1 .. width): the leaf that lost at that node; owned
    cdef int winner                     # leaf
    cdef int streak                     # consecutive moves with the same winner
    cdef bint is_pulled                 # `pull` returns the entries now
    cdef bint has_spans                 # then: `rounds` returns the entries
    cdef BlockMerge rounds

    cdef int seek_among(self, Slice user_key, uint64_t epoch, const uint8_t* wanted) except -1 nogil
    # `seek` in the children i for which wanted[i] is set; the others count as empty
    cdef void load(self, Contender* contender) noexcept nogil
    cdef bint beats(self, int a, int b) noexcept nogil
    cdef void build(self) noexcept nogil
    cdef void play(self) noexcept nogil
    cdef void publish(self) noexcept nogil
    cdef int replay(self) noexcept nogil
    cdef int runner_up(self) noexcept nogil
    cdef bint begin_pull(self) except -1 nogil      # from the current entry on; False: not worth it, use `next`
    cdef int end_pull(self) except -1 nogil         # to the entry behind those that were pulled; then `next` and spans
    cdef bint begin_rounds(self) except -1 nogil
