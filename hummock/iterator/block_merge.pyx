"""BlockMerge: merges spans in rounds, each of which sorts some hundreds of rows before any is returned.

A round covers, of each child, the rows up to the smallest of the windows' last known keys. Runs are merged in pairs
(Knuth, TAOCP 3, 5.2.4), from both ends at once and without a branch on the comparison, which is unpredictable between
runs of similar size. Rows are compared by their heads alone: 64 bits of their keys, from the first bit in which keys of
the round differ. Rows of equal heads are then adjacent, those of each window in order. Where they are many, as behind a
text that a thousand rows begin with, they are merged once more by the 64 bits behind all that they have in common, and
so on: each level reads a key once, where comparisons would read it each time. Few rows are compared by whole keys.

Row positions are sorted, not entries; entries are then gathered from the spans independently of each other, so that
their cache misses overlap.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from hummock.base.key cimport Slice, copy_bytes, head_of, shared_size
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

cdef Py_ssize_t ROUND_ROWS = 512        # about, whatever the number of children
cdef Py_ssize_t MOST_KNOWN = 256        # rows per window in a round
cdef Py_ssize_t FEWEST_KNOWN = 16
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
        window.known = window.passed = window.chosen = 0
        window.prefix = key_prefix_of(window.span.prefix)
        self.live += 1
        return True

    cdef int begin(self, Py_ssize_t count) except -1 nogil:
        cdef Py_ssize_t rows, wanted
        self.live = self.count = self.at = self.lone_rounds = 0
        self.stride = min(max(ROUND_ROWS // max(count, 1), FEWEST_KNOWN), MOST_KNOWN)
        rows = self.stride * count
        wanted = (<Py_ssize_t>sizeof(Window) * count + <Py_ssize_t>(sizeof(KeyPrefix128) + 2 * sizeof(Item)) * rows
                  + <Py_ssize_t>sizeof(Py_ssize_t) * (count + 1))
        if wanted > self.memory_bytes:
            pool_release(self.memory, self.memory_bytes)
            self.memory_bytes = pool_capacity(wanted)
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
        cdef Py_ssize_t at, left = 0
        cdef Window* window
        self.count = self.at = 0
        for at in range(self.live):
            window = &self.windows[at]
            window.span.row += window.chosen
            window.passed += window.chosen
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
        return 0

    cdef int plan(self) except -1 nogil:
        cdef Py_ssize_t at, bound = 0, last, best = 0
        cdef Window* window
        cdef bint are_tied
        if self.live == 0:
            return 0
        for at in range(self.live):
            window = &self.windows[at]
            last = min(window.span.end - window.span.row, self.stride)
            if window.known < last:
                fetch_ahead(&window.span, window.span.row + window.known, window.span.row + last)
                fill_key_prefixes(&window.span, window.prefix, window.known, last, window.key_prefixes)
                window.known = last
            last -= 1
            if at > 0 and self.precedes(at, last, bound, best):
                bound, best = at, last
            elif at == 0:
                best = last
        are_tied = self.choose(bound)
        self.lone_rounds = self.lone_rounds + 1 if self.runs == 1 else 0
        if self.runs > 1 and are_tied:
            self.order_range(0, self.count, -8, 0)
        elif self.runs > 1:
            self.sort(0, self.count, False)
            self.order_ties(0, self.count, -8, 0)
        return 0

    cdef bint prefers_spans(self) noexcept nogil:
        return self.at == self.count and self.lone_rounds >= LONE_ROUNDS

    cdef int leave(self) except -1 nogil:
        cdef Py_ssize_t at
        self.finish_round()
        for at in range(self.live):
            (<HummockIterator>self.windows[at].child).skip(self.windows[at].passed)
        self.live = 0
        return 0

    cdef bint choose(self, Py_ssize_t bound) except -1 nogil:
        cdef Py_ssize_t at, row, last = self.windows[bound].known - 1, low
        cdef KeyPrefix128 limit = self.windows[bound].key_prefixes[last]
        cdef Window* window
        cdef KeyPrefix128 first = self.windows[bound].key_prefixes[0], differ = KeyPrefix128(0, 0)
        cdef int shift
        cdef Item* item = self.items
        cdef Slice key = Slice(NULL, 0)     # of the last row
        for at in range(self.live):
            window = &self.windows[at]
            low = window.known if at == bound else self.rows_below(window, &limit)
            if low < window.known and is_equal(&window.key_prefixes[low], &limit):
                if key.data == NULL:
                    self.assemble(&self.windows[bound], last, &key)
                low += self.rows_before(at, low, key, bound, last)
            window.chosen = low
            if low > 0:
                differ.high |= window.key_prefixes[0].high ^ first.high
                differ.low |= window.key_prefixes[0].low ^ first.low
                differ.high |= window.key_prefixes[low - 1].high ^ first.high
                differ.low |= window.key_prefixes[low - 1].low ^ first.low
        shift = leading_zeros(differ.high) if differ.high != 0 else 64
        self.count, self.bounds[0] = 0, 0
        last = 0
        for at in range(self.live):
            window = &self.windows[at]
            if window.chosen == 0:
                continue
            for row in range(window.chosen):
                item.head = head_behind(&window.key_prefixes[row], shift)
                item.window_row = <uint64_t>at << 32 | <uint64_t>row
                item += 1
            self.count += window.chosen
            last += 1
            self.bounds[last] = self.count
        self.runs = last
        return (differ.high | differ.low) == 0

    cdef Py_ssize_t rows_below(self, const Window* window, const KeyPrefix128* limit) noexcept nogil:
        cdef Py_ssize_t low = 0, high = window.known, middle
        while low < high:
            middle = (low + high) >> 1
            if is_less(&window.key_prefixes[middle], limit):
                low = middle + 1
            else:
                high = middle
        return low

    cdef int assemble(self, const Window* window, Py_ssize_t at, Slice* key) except -1 nogil:
        cdef const Span* span = &window.span
        key[0] = suffix_of(span, span.row + at)
        if span.prefix.size > 0:
            if span.prefix.size + key.size + KEY_PREFIX_BYTES > self.keys_capacity:
                self.make_keys_room()
            join_key(span, &window.key_prefixes[at], self.keys, key)
        return 0

    cdef Py_ssize_t rows_before(
        self, Py_ssize_t at, Py_ssize_t first, Slice limit, Py_ssize_t bound, Py_ssize_t last
    ) noexcept nogil:
        """What the rows of a window have in common is compared once, and of most rows the 8 bytes behind that."""
        cdef const Span* span = &self.windows[at].span
        cdef Py_ssize_t size = span.prefix.size, low = first, high = self.windows[at].known, middle
        cdef Py_ssize_t shared = shared_size(limit.data, span.prefix.data, min(size, limit.size))
        cdef uint64_t head, limit_head
        cdef JoinedKey key
        if shared < size:
            return 0 if shared == limit.size or limit.data[shared] < span.prefix.data[shared] else high - first
        limit_head = head_of(limit.data + size, limit.size - size)
        while low < high:
            middle = (low + high) >> 1
            key = joined_key_of(span, span.row + middle)
            head = suffix_head(&key, 0)
            if head < limit_head or (head == limit_head and self.precedes(at, middle, bound, last)):
                low = middle + 1
            else:
                high = middle
        return low - first

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
        cdef Py_ssize_t run, at, row, skip, begin
        cdef const Span* span
        cdef JoinedKey key
        for run in range(self.runs):
            at = self.bounds[run]
            span = &self.windows[self.items[at].window_row >> 32].span
            row = span.row + <uint32_t>self.items[at].window_row
            skip = offset - span.prefix.size
            for at in range(self.bounds[run], self.bounds[run + 1]):
                if skip >= 0:
                    begin = span.key_offsets[row] + skip
                    self.items[at].head = head_of(span.key_data + begin, span.key_offsets[row + 1] - begin)
                else:
                    key = joined_key_of(span, row)
                    self.items[at].head = joined_head(&key, offset)
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
