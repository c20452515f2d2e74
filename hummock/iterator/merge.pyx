"""MergeIterator: the entries of many iterators in one order.

Where two children hold the same full key, the one with the lower index is newer: it comes first going
forward, and last in reverse, which walks exactly backwards. A loser tree (Knuth, TAOCP 3, 5.4.1) finds the
next entry in log2(children) comparisons; each compares the first 16 bytes of two user keys as numbers, since
the first six, table and vnode, are nearly always equal, and looks at the keys themselves only on a tie.

`pull` merges columns: contenders run ahead of their children over the columns that those hold at hand, so that
an entry costs no call, and the children catch up once for each batch.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from hummock.byte_buffer cimport pool_capacity, pool_give, pool_take
from hummock.iterator.base cimport (
    FORWARD, Columns, Direction, Entry, HummockIterator, Span, clip_span, copy_key, low_of,
)
from hummock.key cimport Slice, compare_full_key, head_of

cdef extern from * nogil:
    """
    #define hummock_prefetch_entry(address) __builtin_prefetch(address)
    """
    void prefetch_entry "hummock_prefetch_entry"(const void* address) noexcept

CHILDREN_LIMIT = 1 << 20
cdef int SPAN_STREAK = 4                # a child that won that often in a row is asked for a span
cdef Py_ssize_t KEYS_BYTES = 64 << 10   # of user keys put together at once, unless one of each child needs more
cdef Py_ssize_t LINE_BYTES = 64
cdef int SPAN_ROWS = 4                  # a shorter span is not worth its search: wait for a new streak


cdef class MergeIterator(HummockIterator):
    """Invariant: `valid` says that the winner is live, and then this entry is the winner's."""

    def __cinit__(self, list children not None, int direction=FORWARD):
        cdef Py_ssize_t leaf
        cdef HummockIterator child
        if len(children) > CHILDREN_LIMIT:
            raise ValueError(f"{len(children)} children to merge: at most {CHILDREN_LIMIT}")
        self.direction = <Direction>direction
        self.children = list(children)
        self.width = 1
        while self.width < len(children):
            self.width *= 2
        self.contenders = <Contender*>calloc(<size_t>self.width, sizeof(Contender))
        self.losers = <int*>calloc(<size_t>self.width, sizeof(int))
        if self.contenders == NULL or self.losers == NULL:
            raise MemoryError
        for leaf, child in enumerate(self.children):
            if child.direction != self.direction:
                raise ValueError(f"child {leaf} walks the other way")
            self.contenders[leaf].child = <void*>child

    def __dealloc__(self):
        free(self.contenders)
        free(self.losers)
        pool_give(self.keys, self.keys_capacity)

    cdef int rewind(self) except -1 nogil:
        cdef Py_ssize_t leaf
        for leaf in range(self.width):
            if self.contenders[leaf].child != NULL:
                (<HummockIterator>self.contenders[leaf].child).rewind()
        self.build()
        return 0

    cdef int seek(self, Slice user_key, uint64_t epoch) except -1 nogil:
        cdef Py_ssize_t leaf
        for leaf in range(self.width):
            if self.contenders[leaf].child != NULL:
                (<HummockIterator>self.contenders[leaf].child).seek(user_key, epoch)
        self.build()
        return 0

    cdef int seek_among(self, Slice user_key, uint64_t epoch, const uint8_t* wanted) except -1 nogil:
        cdef Py_ssize_t leaf, live = 0
        for leaf in range(self.width):
            if self.contenders[leaf].child != NULL and wanted[leaf]:
                (<HummockIterator>self.contenders[leaf].child).seek(user_key, epoch)
                self.load(&self.contenders[leaf])
                live += self.contenders[leaf].live
            else:
                self.contenders[leaf].live = False
                self.contenders[leaf].high = self.contenders[leaf].low = 0xFFFFFFFFFFFFFFFF
        self.play()
        self.streak = SPAN_STREAK if live == 1 else 0       # nobody is there to end it
        return 0

    cdef int next(self) except -1 nogil:
        cdef Contender* contender = &self.contenders[self.winner]
        (<HummockIterator>contender.child).next()
        self.load(contender)
        return self.replay()

    cdef bint span(self, Span* out) noexcept nogil:
        cdef int rival
        if self.streak < SPAN_STREAK and self.width > 1:
            return False
        if not (<HummockIterator>self.contenders[self.winner].child).span(out):
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
        (<HummockIterator>contender.child).skip(rows)
        self.load(contender)
        return self.replay()

    cdef void load(self, Contender* contender) noexcept nogil:
        cdef const uint8_t* data
        cdef Py_ssize_t size
        if contender.child == NULL or not (<HummockIterator>contender.child).valid:
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
        """Whether leaf `a` comes before leaf `b`, my way."""
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
        """Plays all matches; the winners on the way up stand where their losers go."""
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
        self.is_pulled = self.is_held_up = False
        self.publish()

    cdef int replay(self) noexcept nogil:
        """Plays the winner's path again after its entry has changed."""
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
        """The live leaf that follows the winner, or -1: the best of those who lost to it."""
        cdef Py_ssize_t node = (self.width + self.winner) >> 1
        cdef int best = -1
        while node >= 1:
            if self.contenders[self.losers[node]].live and (best < 0 or self.beats(self.losers[node], best)):
                best = self.losers[node]
            node >>= 1
        return best

    cdef Py_ssize_t pull(self, Entry* out, Py_ssize_t most) except -1 nogil:
        cdef Contender* contender
        cdef Py_ssize_t done = 0, node
        cdef int champion, other, swap, wins
        cdef uint64_t high, low
        self.resume()
        while done < most:
            contender = &self.contenders[self.winner]
            if not contender.live:
                break
            write_entry(contender, out)
            out += 1
            done += 1
            contender.taken += 1
            contender.columns.row += 1
            if contender.columns.row == contender.columns.end or not self.show(contender):
                self.is_held_up = True
                break
            # as `replay`, but without a branch on who wins: between runs of like size it cannot be foretold
            champion = self.winner
            high, low = contender.high, contender.low
            node = (self.width + champion) >> 1
            while node >= 1:
                other = self.losers[node]
                contender = &self.contenders[other]
                if contender.high == high and contender.low == low:
                    wins = self.beats(other, champion)
                else:
                    wins = (contender.high < high) | ((contender.high == high) & (contender.low < low))
                swap = -<int>wins & (champion ^ other)
                self.losers[node] = other ^ swap
                champion ^= swap
                high ^= -<uint64_t>wins & (high ^ contender.high)
                low ^= -<uint64_t>wins & (low ^ contender.low)
                node >>= 1
            self.winner = champion
        return done

    cdef int resume(self) except -1 nogil:
        """Has the children catch up, and every contender stand on columns with its key in the memory of this pull."""
        cdef Py_ssize_t leaf
        cdef Contender* contender
        for leaf in range(self.width):
            contender = &self.contenders[leaf]
            if contender.live and (contender.taken > 0 or not self.is_pulled):
                self.refill(contender)
        self.is_pulled = True
        self.make_room()
        self.keys_bytes = 0
        for leaf in range(self.width):
            if self.contenders[leaf].live:
                self.show(&self.contenders[leaf])
        if self.is_held_up:
            self.is_held_up = False
            self.replay()
        return 0

    cdef int refill(self, Contender* contender) except -1 nogil:
        """Moves the child past what was handed out, to the columns that follow."""
        cdef Py_ssize_t taken = contender.taken
        contender.taken = 0
        if taken > 0:
            (<HummockIterator>contender.child).skip(taken)
        contender.live = (<HummockIterator>contender.child).valid
        if not contender.live:
            contender.high = contender.low = 0xFFFFFFFFFFFFFFFF
            return 0
        contender.has_columns = (<HummockIterator>contender.child).columns(&contender.columns)
        if not contender.has_columns:
            memset(&contender.columns, 0, sizeof(Columns))
            contender.columns.end = 1
        return 0

    cdef int make_room(self) except -1 nogil:
        """Room for KEYS_BYTES of user keys, or for the longest one of each child."""
        cdef Py_ssize_t leaf, wanted = 0
        for leaf in range(self.width):
            if self.contenders[leaf].live and self.contenders[leaf].columns.prefix.size > 0:
                wanted += self.contenders[leaf].columns.longest_key
        wanted = 0 if wanted == 0 else (wanted if wanted > KEYS_BYTES else KEYS_BYTES)
        if wanted > self.keys_capacity:
            pool_give(self.keys, self.keys_capacity)
            self.keys_capacity = pool_capacity(wanted)
            self.keys = pool_take(self.keys_capacity)
            if self.keys == NULL:
                self.keys_capacity = 0
                with gil:
                    raise MemoryError(f"no memory for {wanted} bytes of keys")
        return 0

    cdef bint show(self, Contender* contender) noexcept nogil:
        """Makes the contender's entry that of its row; False where there is no room for the key."""
        cdef const Columns* columns = &contender.columns
        cdef Slice key
        cdef Py_ssize_t prefix, size
        cdef uint8_t* target
        if not contender.has_columns:
            key, contender.epoch = (<HummockIterator>contender.child).user_key, (<HummockIterator>contender.child).epoch
        else:
            key.data = columns.key_data + columns.key_offsets[columns.row]
            key.size = columns.key_offsets[columns.row + 1] - columns.key_offsets[columns.row]
            prefix = columns.prefix.size
            if prefix > 0:
                size = prefix + key.size
                if self.keys_bytes + size > self.keys_capacity:
                    return False
                target = self.keys + self.keys_bytes
                self.keys_bytes += size
                copy_key(target, columns.prefix.data, prefix)
                copy_key(target + prefix, key.data, key.size)
                key.data, key.size = target, size
            else:
                prefetch_entry(key.data + key.size + LINE_BYTES)
            contender.epoch = columns.epochs[0 if columns.one_epoch else columns.row]
        contender.user_key = key
        contender.high, contender.low = head_of(key.data, key.size), low_of(key.data, key.size)
        return True


cdef inline void write_entry(const Contender* contender, Entry* out) noexcept nogil:
    """The contender's entry, with the value where its child has it."""
    cdef const Columns* columns = &contender.columns
    cdef Py_ssize_t row = columns.row, bit
    cdef bint is_marked
    out.high, out.low = contender.high, contender.low
    out.user_key, out.epoch = contender.user_key, contender.epoch
    if not contender.has_columns:
        out.value = (<HummockIterator>contender.child).value
        return
    out.value.data = columns.value_data + columns.value_offsets[row]
    out.value.size = columns.value_offsets[row + 1] - columns.value_offsets[row]
    # a merge of many comes back here after many rows of others: too late for the hardware
    prefetch_entry(out.value.data + out.value.size + LINE_BYTES)
    prefetch_entry(out.value.data + out.value.size + 2 * LINE_BYTES)
    if columns.marks != NULL:
        bit = columns.marks_at + row
        is_marked = (columns.marks[bit >> 3] >> (bit & 7)) & 1
        if is_marked != columns.marks_puts:
            out.value.data, out.value.size = NULL, 0
