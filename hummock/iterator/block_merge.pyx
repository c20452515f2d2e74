"""BlockMerge: merges spans in rounds, each of which sorts some hundreds of rows before any is returned.

A round covers, of each child, the rows up to the smallest of the windows' last known keys. How many are known of each
follows from what it had in the rounds before, so that all of them end at about the same key. Which rows are beyond the
smallest of the last keys is decided by 128 bits of them, then by their heads, and at last by the order that the merge
finds: a few rows that are merged in vain cost less than a search by whole keys in each window.

Runs are merged in pairs (Knuth, TAOCP 3, 5.2.4), from both ends at once and without a branch on the comparison, which
is unpredictable between runs of similar size. Rows are compared by their heads alone: 64 bits of their keys, from the
first bit in which keys of the round differ. Rows of equal heads are then adjacent, those of each window in order. Where
they are many, as behind a text that a thousand rows begin with, they are merged once more by the 64 bits behind all
that they have in common, and so on: each level reads a key once, where comparisons would read it each time. Few rows
are compared by whole keys.

Row positions are sorted, not entries; entries are then gathered from the spans independently of each other, so that
their cache misses overlap.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from hummock.base.key cimport Slice, copy_bytes
from hummock.base.prefetch cimport prefetch
from hummock.columnar.buffer_pool cimport pool_acquire, pool_capacity, pool_release
from hummock.iterator.base cimport Entry, HummockIterator, Span
from hummock.iterator.joined_key cimport (
    JoinedKey, compare_joined, joined_head, joined_key_of, joined_shared_size, size_of, suffix_head,
)
from hummock.iterator.key_prefix128 cimport (
    KEY_PREFIX_BYTES, KeyPrefix128, fill_key_prefixes, head_behind, is_equal, is_less, key_prefix_of, leading_zeros,
    put_key_prefix, suffix_of,
)

cdef Py_ssize_t ROUND_ROWS = 512        # about: rows that are known of all children together
cdef Py_ssize_t FEWEST_ROWS = 16        # the same per child, if there are many
cdef Py_ssize_t MOST_KNOWN = 256        # of a child
cdef Py_ssize_t LEAST_KNOWN = 4
cdef Py_ssize_t KNOWN_SHARE = 16        # a child has at most so many times as many as if all had the same
cdef Py_ssize_t SPARE_KNOWN = 4         # a cache line, since windows would begin in the same set of the cache
cdef Py_ssize_t COUNTED_ROWS = 1024     # returned before the shares of the children are set anew
cdef Py_ssize_t COUNTED_PER_CHILD = 64  # the same, if there are many
cdef Py_ssize_t LONE_ROUNDS = 8
cdef Py_ssize_t KEYS_BYTES = 64 << 10   # of user keys assembled at once, unless one of them is longer
cdef Py_ssize_t LINE_BYTES = 64
cdef Py_ssize_t FEW_ROWS = 8            # of equal heads, which are compared by their keys
cdef Py_ssize_t ROWS_PER_RUN = 2        # and window, from which on new heads cost less than such comparisons
cdef int MOST_LEVELS = 32               # of new heads


cdef class BlockMerge:
    """Invariant: `items[at : count]` are the next entries, in order; no other row of a window comes before them."""

    def __dealloc__(self):
        pool_release(self.memory, self.memory_bytes)
        pool_release(self.keys, self.keys_capacity)

    cdef bint add(self, void* child) noexcept nogil:
        cdef Window* window = &self.windows[self.live]
        if not (<HummockIterator>child).span(&window.span, False):
            return False
        window.child, window.key_prefixes = child, self.key_prefixes + self.live * self.stride
        window.known = window.passed = window.chosen = window.returned = 0
        window.wanted = self.wanted
        window.prefix = key_prefix_of(window.span.prefix)
        self.live += 1
        return True

    cdef int begin(self, Py_ssize_t count) except -1 nogil:
        cdef Py_ssize_t rows, size
        self.live = self.count = self.at = self.lone_rounds = self.returned = 0
        self.wanted = min(max(ROUND_ROWS // max(count, 1), FEWEST_ROWS), MOST_KNOWN)
        self.stride = min(max(KNOWN_SHARE * ROUND_ROWS // max(count, 1), FEWEST_ROWS), MOST_KNOWN) + SPARE_KNOWN
        rows = self.stride * count
        size = (<Py_ssize_t>sizeof(Window) * count + <Py_ssize_t>(sizeof(KeyPrefix128) + 2 * sizeof(Item)) * rows
                + <Py_ssize_t>sizeof(Py_ssize_t) * (count + 1))
        if size > self.memory_bytes:
            pool_release(self.memory, self.memory_bytes)
            self.memory_bytes = pool_capacity(size)
            self.memory = pool_acquire(self.memory_bytes)
            if self.memory == NULL:
                self.memory_bytes = 0
                with gil:
                    raise MemoryError(f"no memory to merge {count} children")
        self.windows = <Window*>self.memory
        self.key_prefixes = <KeyPrefix128*>(self.windows + count)
        self.items = <Item*>(self.key_prefixes + rows)
        self.others = self.items + rows
        self.bounds = <Py_ssize_t*>(self.others + rows)
        return 0

    cdef Py_ssize_t pull(self, Entry* out, Py_ssize_t most) except -1 nogil:
        cdef Py_ssize_t done = 0
        cdef const Window* window
        cdef const Span* span
        cdef const KeyPrefix128* key_prefix
        cdef Py_ssize_t row, size
        cdef uint64_t window_row
        if self.at == self.count:
            self.finish_round()
            self.plan()
        self.keys_bytes = 0
        while done < most and self.at < self.count:
            window_row = self.items[self.at].window_row
            window = &self.windows[window_row >> 32]
            span = &window.span
            row = span.row + <uint32_t>window_row
            key_prefix = window.key_prefixes + <uint32_t>window_row
            out.high, out.low = key_prefix.high, key_prefix.low
            out.user_key = suffix_of(span, row)
            if span.prefix.size > 0:
                size = span.prefix.size + out.user_key.size
                if self.keys_bytes + size + KEY_PREFIX_BYTES > self.keys_capacity:
                    if done > 0:
                        break
                    self.make_keys_room()
                join_key(span, key_prefix, self.keys + self.keys_bytes, &out.user_key)
                self.keys_bytes += size
            out.epoch = span.epochs[0 if span.one_epoch else row]
            set_value(span, row, &out.value)
            out += 1
            done += 1
            self.at += 1
        return done

    cdef int make_keys_room(self) except -1 nogil:
        """Allocates a new `keys` of KEYS_BYTES, or of the longest user key of any child."""
        cdef Py_ssize_t at, wanted = KEYS_BYTES
        for at in range(self.live):
            wanted = max(wanted, self.windows[at].span.longest_key + KEY_PREFIX_BYTES)
        pool_release(self.keys, self.keys_capacity)
        self.keys_capacity = pool_capacity(wanted)
        self.keys = pool_acquire(self.keys_capacity)
        if self.keys == NULL:
            self.keys_capacity = 0
            with gil:
                raise MemoryError(f"no memory for {wanted} bytes of keys")
        return 0

    cdef int finish_round(self) except -1 nogil:
        cdef Py_ssize_t at, left = 0, live = self.live
        cdef Window* window
        self.returned += self.count
        self.count = self.at = self.live = 0    # after an error there is no child left to move
        for at in range(live):
            window = &self.windows[at]
            window.span.row += window.chosen
            window.passed += window.chosen
            window.returned += window.chosen
            window.known -= window.chosen
            if window.known > 0 and window.chosen > 0:
                memmove(window.key_prefixes, window.key_prefixes + window.chosen,
                        sizeof(KeyPrefix128) * <size_t>window.known)
            window.chosen = 0
            if window.span.row == window.span.end:
                (<HummockIterator>window.child).skip(window.passed)
                window.passed = 0
                if not (<HummockIterator>window.child).valid:
                    continue
                (<HummockIterator>window.child).span(&window.span, False)
                window.prefix = key_prefix_of(window.span.prefix)
            if left < at:
                self.windows[left] = window[0]
            left += 1
        self.live = left
        if self.returned >= max(COUNTED_ROWS, COUNTED_PER_CHILD * self.live):
            self.set_shares()
        return 0

    cdef void set_shares(self) noexcept nogil:
        cdef Py_ssize_t at, share, rows = max(ROUND_ROWS, FEWEST_ROWS * self.live)
        cdef Window* window
        for at in range(self.live):
            window = &self.windows[at]
            share = window.returned * rows // self.returned
            window.wanted = min(max((window.wanted + share + 1) // 2, LEAST_KNOWN), self.stride - SPARE_KNOWN)
            window.returned = 0
        self.returned = 0

    cdef void plan(self) noexcept nogil:
        cdef Py_ssize_t at, known, common, offset = -8      # of the heads; -8: they are of the key prefixes
        cdef int level = 0
        cdef Window* window
        cdef KeyPrefix128 limit = KeyPrefix128(0, 0)
        cdef bint are_tied
        if self.live == 0:
            return
        for at in range(self.live):
            window = &self.windows[at]
            known = min(window.span.end - window.span.row, window.wanted)
            if window.known < known:
                fetch_ahead(&window.span, window.span.row + window.known, window.span.row + known)
                fill_key_prefixes(&window.span, window.prefix, window.known, known, window.key_prefixes)
                window.known = known
            if at == 0 or is_less(&window.key_prefixes[window.known - 1], &limit):
                limit = window.key_prefixes[window.known - 1]
        are_tied = self.choose(&limit)
        while are_tied and self.runs > 1 and level < MOST_LEVELS:
            common = self.common_bytes()
            if common < offset + 8:     # keys of which one goes on with zeros where the other ends
                break
            offset = common
            self.set_heads(offset)
            are_tied = self.drop_above()
            level += 1
        if self.runs > 1 and are_tied:
            self.order_range(0, self.count, offset, level)
        elif self.runs > 1:
            self.sort(0, self.count, False)
            self.order_ties(0, self.count, offset, level)
        self.cut()

    cdef bint prefers_spans(self) noexcept nogil:
        return self.at == self.count and self.lone_rounds >= LONE_ROUNDS

    cdef int leave(self) except -1 nogil:
        cdef Py_ssize_t at, live
        self.finish_round()
        live, self.live = self.live, 0
        for at in range(live):
            (<HummockIterator>self.windows[at].child).skip(self.windows[at].passed)
        return 0

    cdef bint choose(self, const KeyPrefix128* limit) noexcept nogil:
        cdef Py_ssize_t at, row, rows
        cdef KeyPrefix128 first, differ = KeyPrefix128(0, 0)
        cdef Window* window
        cdef int shift
        cdef Item* item = self.items
        self.runs = 0
        for at in range(self.live):
            window = &self.windows[at]
            rows = window.chosen = self.rows_up_to(window, limit)
            if rows == 0:
                continue
            if self.runs == 0:
                first = window.key_prefixes[0]
            self.runs += 1
            differ.high |= window.key_prefixes[0].high ^ first.high
            differ.low |= window.key_prefixes[0].low ^ first.low
            differ.high |= window.key_prefixes[rows - 1].high ^ first.high
            differ.low |= window.key_prefixes[rows - 1].low ^ first.low
        shift = leading_zeros(differ.high) if differ.high != 0 else 64
        self.count = self.runs = self.bounds[0] = 0
        for at in range(self.live):
            window = &self.windows[at]
            if window.chosen == 0:
                continue
            for row in range(window.chosen):
                item.head = head_behind(&window.key_prefixes[row], shift)
                item.window_row = <uint64_t>at << 32 | <uint64_t>row
                item += 1
            self.count += window.chosen
            window.chosen = 0
            self.runs += 1
            self.bounds[self.runs] = self.count
        return (differ.high | differ.low) == 0

    cdef Py_ssize_t rows_up_to(self, const Window* window, const KeyPrefix128* limit) noexcept nogil:
        cdef Py_ssize_t low = 0, high = window.known, middle
        while low < high:
            middle = (low + high) >> 1
            if is_less(limit, &window.key_prefixes[middle]):
                high = middle
            else:
                low = middle + 1
        return low

    cdef bint drop_above(self) noexcept nogil:
        cdef uint64_t limit = <uint64_t>-1, least = <uint64_t>-1
        cdef Py_ssize_t run, first = 0, end, rows, count = 0, runs = 0
        for run in range(self.runs):
            least = min(least, self.items[self.bounds[run]].head)
            if self.is_last_known(&self.items[self.bounds[run + 1] - 1]):
                limit = min(limit, self.items[self.bounds[run + 1] - 1].head)
        for run in range(self.runs):
            end = self.bounds[run + 1]
            rows = self.end_of_heads(first, end, limit) - first
            if rows > 0:
                memmove(self.items + count, self.items + first, sizeof(Item) * <size_t>rows)
                count += rows
                runs += 1
                self.bounds[runs] = count
            first = end
        self.count, self.runs = count, runs
        return least == limit

    cdef Py_ssize_t end_of_heads(self, Py_ssize_t first, Py_ssize_t end, uint64_t limit) noexcept nogil:
        cdef Py_ssize_t middle
        while first < end:
            middle = (first + end) >> 1
            if self.items[middle].head > limit:
                end = middle
            else:
                first = middle + 1
        return end

    cdef void cut(self) noexcept nogil:
        cdef Py_ssize_t at, windows = 0
        cdef Window* window
        for at in range(self.count):
            window = &self.windows[self.items[at].window_row >> 32]
            window.chosen = <uint32_t>self.items[at].window_row + 1
            if window.chosen == window.known:
                self.count = at + 1
                break
        for at in range(self.live):
            windows += self.windows[at].chosen > 0
        self.lone_rounds = self.lone_rounds + 1 if windows == 1 else 0

    cdef bint is_last_known(self, const Item* item) noexcept nogil:
        return <uint32_t>item.window_row == <uint64_t>self.windows[item.window_row >> 32].known - 1

    cdef void sort(self, Py_ssize_t first, Py_ssize_t end, bint by_key) noexcept nogil:
        """Merges the `runs`, which are items[first : end], until one is left."""
        cdef Py_ssize_t at, left
        cdef bint is_swapped = False
        while self.runs > 1:
            left = at = 0
            while at < self.runs:
                if at + 1 == self.runs:
                    memcpy(self.others + self.bounds[at], self.items + self.bounds[at],
                           sizeof(Item) * <size_t>(end - self.bounds[at]))
                elif by_key:
                    self.merge_by_key(self.bounds[at], self.bounds[at + 1], self.bounds[at + 2])
                else:
                    self.merge(self.bounds[at], self.bounds[at + 1], self.bounds[at + 2])
                self.bounds[left] = self.bounds[at]
                left += 1
                at += 2
            self.bounds[left] = end
            self.runs = left
            self.items, self.others = self.others, self.items
            is_swapped = not is_swapped
        if is_swapped and end - first < self.count:
            self.items, self.others = self.others, self.items
            memcpy(self.items + first, self.others + first, sizeof(Item) * <size_t>(end - first))

    cdef void merge(self, Py_ssize_t first, Py_ssize_t middle, Py_ssize_t end) noexcept nogil:
        """Merges the runs [first, middle) and [middle, end) of `items` into `others` by their heads; of equal ones
        those of the first run come first.
        """
        cdef const Item* a = self.items + first
        cdef const Item* b = self.items + middle
        cdef const Item* a_last = b - 1
        cdef const Item* b_last = self.items + end - 1
        cdef Item* out = self.others + first
        cdef Item* out_last = self.others + end - 1
        cdef Py_ssize_t steps = min(middle - first, end - middle), swap
        while steps > 0:        # neither run can be exhausted within so many steps
            swap = a.head > b.head
            out[0] = a[swap * (b - a)]
            out += 1
            b += swap
            a += 1 - swap
            swap = a_last.head > b_last.head
            out_last[0] = b_last[swap * (a_last - b_last)]
            out_last -= 1
            a_last -= swap
            b_last -= 1 - swap
            steps -= 1
        while a <= a_last and b <= b_last:
            swap = a.head > b.head
            out[0] = a[swap * (b - a)]
            out += 1
            b += swap
            a += 1 - swap
        if a <= a_last:
            memcpy(out, a, sizeof(Item) * <size_t>(a_last + 1 - a))
        elif b <= b_last:
            memcpy(out, b, sizeof(Item) * <size_t>(b_last + 1 - b))

    cdef void merge_by_key(self, Py_ssize_t first, Py_ssize_t middle, Py_ssize_t end) noexcept nogil:
        """As `merge`, by full keys."""
        cdef Py_ssize_t a = first, b = middle, at
        for at in range(first, end):
            if b == end or (a < middle and not self.is_after(&self.items[a], &self.items[b])):
                self.others[at] = self.items[a]
                a += 1
            else:
                self.others[at] = self.items[b]
                b += 1

    cdef void order_ties(self, Py_ssize_t first, Py_ssize_t end, Py_ssize_t offset, int level) noexcept nogil:
        """Orders rows of equal heads, bytes from `offset` on, within items[first : end], which is sorted by them."""
        cdef Py_ssize_t at = first, stop
        while at + 1 < end:
            stop = at + 1
            while stop < end and self.items[stop].head == self.items[at].head:
                stop += 1
            if self.items[at].window_row >> 32 != self.items[stop - 1].window_row >> 32:
                self.order_range(at, stop, offset, level)
            at = stop

    cdef void order_range(self, Py_ssize_t first, Py_ssize_t end, Py_ssize_t offset, int level) noexcept nogil:
        """Orders items[first : end], whose heads are equal: rows of more than one window, one after the other."""
        cdef Py_ssize_t common
        if end - first <= FEW_ROWS:
            self.insert(first, end)
            return
        self.find_runs(first, end)
        common = self.common_bytes() if end - first >= ROWS_PER_RUN * self.runs and level < MOST_LEVELS else 0
        if common < offset + 8:         # few rows, or keys of which one goes on with zeros where the other ends
            self.sort(first, end, True)
            return
        self.set_heads(common)
        self.sort(first, end, False)
        self.order_ties(first, end, common, level + 1)

    cdef void insert(self, Py_ssize_t first, Py_ssize_t end) noexcept nogil:
        """Orders few rows, which mostly are in order: versions of a key, the newest child's first."""
        cdef Item item
        cdef Py_ssize_t at, to
        for at in range(first + 1, end):
            to = at
            item = self.items[at]
            while (to > first and self.items[to - 1].window_row >> 32 != item.window_row >> 32
                   and self.is_after(&self.items[to - 1], &item)):
                self.items[to] = self.items[to - 1]
                to -= 1
            self.items[to] = item

    cdef void find_runs(self, Py_ssize_t first, Py_ssize_t end) noexcept nogil:
        """Sets `runs` and `bounds` to the rows of each window within items[first : end]."""
        cdef Py_ssize_t at
        self.runs, self.bounds[0] = 1, first
        for at in range(first + 1, end):
            if self.items[at].window_row >> 32 != self.items[at - 1].window_row >> 32:
                self.bounds[self.runs] = at
                self.runs += 1
        self.bounds[self.runs] = end

    cdef Py_ssize_t common_bytes(self) noexcept nogil:
        cdef JoinedKey first = self.key_of(&self.items[self.bounds[0]]), key
        cdef Py_ssize_t run, common = size_of(&first)
        for run in range(self.runs):
            key = self.key_of(&self.items[self.bounds[run]])
            common = min(common, joined_shared_size(&first, &key))
            key = self.key_of(&self.items[self.bounds[run + 1] - 1])
            common = min(common, joined_shared_size(&first, &key))
        return common

    cdef void set_heads(self, Py_ssize_t offset) noexcept nogil:
        cdef Py_ssize_t run, at, row, skip
        cdef const Span* span
        cdef JoinedKey key
        for run in range(self.runs):
            at = self.bounds[run]
            span = &self.windows[self.items[at].window_row >> 32].span
            row = span.row + <uint32_t>self.items[at].window_row
            skip, key.prefix = offset - span.prefix.size, span.prefix
            for at in range(self.bounds[run], self.bounds[run + 1]):
                key.suffix = suffix_of(span, row)
                self.items[at].head = joined_head(&key, offset) if skip < 0 else suffix_head(&key, skip)
                row += 1

    cdef JoinedKey key_of(self, const Item* item) noexcept nogil:
        cdef const Span* span = &self.windows[item.window_row >> 32].span
        return joined_key_of(span, span.row + <uint32_t>item.window_row)

    cdef bint is_after(self, const Item* a, const Item* b) noexcept nogil:
        """Whether `a` comes after `b`, with equal heads."""
        return self.precedes(b.window_row >> 32, <uint32_t>b.window_row, a.window_row >> 32, <uint32_t>a.window_row)

    cdef bint precedes(self, Py_ssize_t a, Py_ssize_t a_at, Py_ssize_t b, Py_ssize_t b_at) noexcept nogil:
        """Whether a row of window `a` comes before a row of window `b`."""
        cdef const KeyPrefix128* left = &self.windows[a].key_prefixes[a_at]
        cdef const KeyPrefix128* right = &self.windows[b].key_prefixes[b_at]
        cdef const Span* ours = &self.windows[a].span
        cdef const Span* theirs = &self.windows[b].span
        cdef JoinedKey our_key, their_key
        cdef uint64_t our_epoch, their_epoch
        cdef int order = 0
        if not is_equal(left, right):
            return is_less(left, right)
        our_key, their_key = joined_key_of(ours, ours.row + a_at), joined_key_of(theirs, theirs.row + b_at)
        our_epoch = ours.epochs[0 if ours.one_epoch else ours.row + a_at]
        their_epoch = theirs.epochs[0 if theirs.one_epoch else theirs.row + b_at]
        if size_of(&our_key) > KEY_PREFIX_BYTES or size_of(&our_key) != size_of(&their_key):
            order = compare_joined(&our_key, &their_key)
        if order != 0:
            return order < 0
        return our_epoch > their_epoch or (our_epoch == their_epoch and a < b)


cdef inline void fetch_ahead(const Span* span, Py_ssize_t row, Py_ssize_t end) noexcept nogil:
    """Prefetches the sources of these rows' entries, and as many keys from `end` on: too many rows of other windows
    come in between for the hardware prefetcher.
    """
    cdef const uint8_t* at = <const uint8_t*>(span.value_offsets + row)
    cdef const uint8_t* stop = <const uint8_t*>(span.value_offsets + end)
    while at <= stop:
        prefetch(at)
        at += LINE_BYTES
    at = <const uint8_t*>(span.key_offsets + end)
    stop = at + sizeof(uint32_t) * <size_t>(end - row)
    while at <= stop:
        prefetch(at)
        at += LINE_BYTES
    at = span.key_data + span.key_offsets[end]
    stop = at + (span.key_offsets[end] - span.key_offsets[row])
    while at <= stop:
        prefetch(at)
        at += LINE_BYTES


cdef inline void join_key(
    const Span* span, const KeyPrefix128* key_prefix, uint8_t* target, Slice* key
) noexcept nogil:
    """Writes the whole key to `target`, and up to 16 bytes behind it."""
    cdef Py_ssize_t size = span.prefix.size + key.size
    if size <= KEY_PREFIX_BYTES:
        put_key_prefix(target, key_prefix[0])
    else:
        copy_bytes(target, span.prefix.data, span.prefix.size)
        copy_bytes(target + span.prefix.size, key.data, key.size)
    key.data, key.size = target, size


cdef inline void set_value(const Span* span, Py_ssize_t row, Slice* value) noexcept nogil:
    cdef Py_ssize_t bit
    cdef bint is_marked
    value.data = span.value_data + span.value_offsets[row]
    value.size = span.value_offsets[row + 1] - span.value_offsets[row]
    prefetch(value.data)
    prefetch(value.data + LINE_BYTES)
    if span.marks != NULL:
        bit = span.marks_at + row
        is_marked = (span.marks[bit >> 3] >> (bit & 7)) & 1
        if is_marked != span.marks_puts:
            value.data, value.size = NULL, 0
