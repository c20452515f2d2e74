"""MergeIterator: merges the entries of many iterators.

If two children hold the same full key, the one with the lower index is newer: it comes first in forward direction and
last in reverse, which is exactly the opposite order. A loser tree (Knuth, TAOCP 3, 5.4.1) finds the next entry in
log2(children) comparisons; each compares the first 16 bytes of two user keys as integers, since the first six, table
and vnode, are nearly always equal, and reads the keys themselves only on a tie.

`pull` merges the current spans of the children in rounds, without the tree. That pays where winners alternate; where
one child leads for long, its spans are returned.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free

from hummock.base.key cimport Slice, compare_full_key, head_of
from hummock.iterator.base cimport FORWARD, Direction, Entry, HummockIterator, Span, clip_span, low_of
from hummock.iterator.block_merge cimport BlockMerge

CHILDREN_LIMIT = 1 << 20
cdef int SPAN_STREAK = 4                # consecutive wins of a child before its span is requested
cdef int SPAN_ROWS = 4                  # a shorter span is not worth the search: wait for a new streak


cdef class MergeIterator(HummockIterator):
    """Invariant: `valid` if and only if the winner is live; the current entry is then the winner's."""

    def __cinit__(self, list children not None, int direction=FORWARD):
        cdef Py_ssize_t leaf
        cdef HummockIterator child
        if len(children) > CHILDREN_LIMIT:
            raise ValueError(f"{len(children)} children to merge: at most {CHILDREN_LIMIT}")
        self.direction = <Direction>direction
        self.children, self.rounds = list(children), BlockMerge()
        self.width = 1
        while self.width < len(children):
            self.width *= 2
        self.contenders = <Contender*>calloc(<size_t>self.width, sizeof(Contender))
        self.losers = <int*>calloc(<size_t>self.width, sizeof(int))
        if self.contenders == NULL or self.losers == NULL:
            raise MemoryError
        for leaf, child in enumerate(self.children):
            if child.direction != self.direction:
                raise ValueError(f"child {leaf} has the other direction")
            self.contenders[leaf].child = <void*>child

    def __dealloc__(self):
        free(self.contenders)
        free(self.losers)

    cdef int rewind(self) except -1 nogil:
        cdef Py_ssize_t leaf
        self.valid = False
        for leaf in range(self.width):
            self.contenders[leaf].excluded = False
            if self.contenders[leaf].child != NULL:
                (<HummockIterator>self.contenders[leaf].child).rewind()
        self.build()
        return 0

    cdef int seek(self, Slice user_key, uint64_t epoch) except -1 nogil:
        cdef Py_ssize_t leaf
        self.valid = False
        for leaf in range(self.width):
            self.contenders[leaf].excluded = False
            if self.contenders[leaf].child != NULL:
                (<HummockIterator>self.contenders[leaf].child).seek(user_key, epoch)
        self.build()
        return 0

    cdef int seek_among(self, Slice user_key, uint64_t epoch, const uint8_t* wanted) except -1 nogil:
        cdef Py_ssize_t leaf, live = 0
        self.valid = False
        for leaf in range(self.width):
            self.contenders[leaf].excluded = not wanted[leaf]
            if self.contenders[leaf].child != NULL and wanted[leaf]:
                (<HummockIterator>self.contenders[leaf].child).seek(user_key, epoch)
            self.load(&self.contenders[leaf])
            live += self.contenders[leaf].live
        self.play()
        self.streak = SPAN_STREAK if live == 1 else 0       # a single live child always wins
        return 0

    cdef int next(self) except -1 nogil:
        cdef Contender* contender = &self.contenders[self.winner]
        self.valid = False
        (<HummockIterator>contender.child).next()
        self.load(contender)
        return self.replay()

    cdef bint span(self, Span* out, bint as_rows) noexcept nogil:
        cdef int rival
        if not as_rows or (self.streak < SPAN_STREAK and self.width > 1):
            return False
        if not (<HummockIterator>self.contenders[self.winner].child).span(out, as_rows):
            self.streak = 0
            return False
        rival = self.runner_up()
        if rival >= 0:
            clip_span(out, self.contenders[rival].user_key)
            if out.end - out.row < SPAN_ROWS:
                self.streak = 0
                return False
        return True

    cdef int skip(self, Py_ssize_t rows) except -1 nogil:
        cdef Contender* contender = &self.contenders[self.winner]
        self.valid = False
        (<HummockIterator>contender.child).skip(rows)
        self.load(contender)
        return self.replay()

    cdef void load(self, Contender* contender) noexcept nogil:
        cdef const uint8_t* data
        cdef Py_ssize_t size
        if contender.child == NULL or contender.excluded or not (<HummockIterator>contender.child).valid:
            contender.live = False
            contender.high = contender.low = 0xFFFFFFFFFFFFFFFF
            return
        contender.live = True
        contender.user_key = (<HummockIterator>contender.child).user_key
        contender.epoch = (<HummockIterator>contender.child).epoch
        data, size = contender.user_key.data, contender.user_key.size
        contender.high, contender.low = head_of(data, size), low_of(data, size)
        if self.direction != FORWARD:
            contender.high, contender.low = ~contender.high, ~contender.low

    cdef bint beats(self, int a, int b) noexcept nogil:
        """Whether leaf `a` comes before leaf `b` in this direction."""
        cdef Contender* left = &self.contenders[a]
        cdef Contender* right = &self.contenders[b]
        cdef int order
        if left.high != right.high:
            return left.high < right.high
        if left.low != right.low:
            return left.low < right.low
        if not left.live or not right.live:
            return left.live
        if left.user_key.size <= 16 and left.user_key.size == right.user_key.size:      # the numbers said it all
            order = -1 if left.epoch > right.epoch else (1 if left.epoch < right.epoch else 0)
        else:
            order = compare_full_key(left.user_key, left.epoch, right.user_key, right.epoch)
        if order == 0:
            order = -1 if a < b else 1
        return order < 0 if self.direction == FORWARD else order > 0

    cdef void build(self) noexcept nogil:
        cdef Py_ssize_t leaf
        for leaf in range(self.width):
            self.load(&self.contenders[leaf])
        self.play()

    cdef void play(self) noexcept nogil:
        """Plays all matches; nodes hold intermediate winners until replaced by their losers."""
        cdef Py_ssize_t node = self.width - 1
        cdef int left, right
        # losers[node] holds the winner of its subtree until its parent has been played
        while node >= 1:
            left = <int>(2 * node - self.width) if 2 * node >= self.width else self.losers[2 * node]
            right = <int>(2 * node + 1 - self.width) if 2 * node + 1 >= self.width else self.losers[2 * node + 1]
            self.losers[node] = left if self.beats(left, right) else right
            node -= 1
        self.winner = self.losers[1] if self.width > 1 else 0
        node = 1
        while node < self.width:
            left = <int>(2 * node - self.width) if 2 * node >= self.width else self.losers[2 * node]
            right = <int>(2 * node + 1 - self.width) if 2 * node + 1 >= self.width else self.losers[2 * node + 1]
            self.losers[node] = right if self.losers[node] == left else left
            node += 1
        self.streak = 0
        self.is_pulled = False
        self.publish()

    cdef int replay(self) noexcept nogil:
        """Replays the winner's path after its entry has changed."""
        cdef int champion = self.winner, other
        cdef Py_ssize_t node = (self.width + champion) >> 1
        while node >= 1:
            other = self.losers[node]
            if self.beats(other, champion):
                self.losers[node] = champion
                champion = other
            node >>= 1
        self.streak = self.streak + 1 if champion == self.winner else 0
        self.winner = champion
        self.publish()
        return 0

    cdef void publish(self) noexcept nogil:
        cdef Contender* contender = &self.contenders[self.winner]
        self.valid = contender.live
        if contender.live:
            self.user_key = contender.user_key
            self.epoch = contender.epoch
            self.value = (<HummockIterator>contender.child).value

    cdef int runner_up(self) noexcept nogil:
        """The live leaf next after the winner, i.e. the best of those that lost to it; -1: none."""
        cdef Py_ssize_t node = (self.width + self.winner) >> 1
        cdef int best = -1
        while node >= 1:
            if self.contenders[self.losers[node]].live and (best < 0 or self.beats(self.losers[node], best)):
                best = self.losers[node]
            node >>= 1
        return best

    cdef Py_ssize_t pull(self, Entry* out, Py_ssize_t most) except -1 nogil:
        if not self.is_pulled:
            self.is_pulled, self.has_spans = True, self.begin_rounds()
        if not self.has_spans:
            return HummockIterator.pull(self, out, most)
        self.valid = False
        return self.rounds.pull(out, most)

    cdef bint begin_pull(self) except -1 nogil:
        self.is_pulled = self.has_spans = self.begin_rounds()
        return self.is_pulled

    cdef int end_pull(self) except -1 nogil:
        self.valid = False
        self.rounds.leave()
        self.build()
        return 0

    cdef bint begin_rounds(self) except -1 nogil:
        """Starts rounds from the current entries of the children; False if one of them returns no spans."""
        cdef Py_ssize_t leaf
        self.rounds.begin(self.width)
        for leaf in range(self.width):
            if self.contenders[leaf].live and not self.rounds.add(self.contenders[leaf].child):
                return False
        return True
