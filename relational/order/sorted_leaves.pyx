"""SortedLeaves: an ordered multiset of encoded keys in memory, a two-level sorted array. One writer, no locks.

A directory of leaves, each with a run of neighbouring keys (a B+-tree of depth 2). An insert shifts keys within a leaf.
Ranks are prefix sums over the directory, computed at the first use after a change, so a batch of changes costs one pass
over the directory.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

from hummock.base.key cimport Slice, compare_bytes, head_of
from hummock.base.prefetch cimport prefetch
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.columnar.buffer_pool cimport ByteBuffer

cdef enum:
    LINE = 64
    HEAD_LINES = 8              # cache lines of a leaf's heads


cdef class SortedLeaves:
    """Keys ascend; all copies of a key have one value."""

    def __init__(self):
        self.directory, self.ranks, self.arena = ByteBuffer(), ByteBuffer(), ByteBuffer()
        self.tag = -1

    def __dealloc__(self):
        cdef Py_ssize_t at
        for at in range(self.leaves):
            free(self.leaf_at(at).leaf)

    def __len__(self):
        return self.copies

    @property
    def size_bytes(self):
        """Memory used."""
        return (self.directory.capacity + self.ranks.capacity + self.arena.capacity
                + self.leaves * <Py_ssize_t>sizeof(Leaf))

    cdef uint64_t head(self, Slice key) noexcept nogil:
        if key.size == 0 or key.data[0] < self.tag:
            return 0
        if key.data[0] > self.tag:
            return ~<uint64_t>0
        return head_of(key.data + 1, key.size - 1)

    cdef KeyPosition find(self, Slice key, uint64_t head) noexcept nogil:
        cdef KeyPosition position
        cdef Py_ssize_t low = 0, high = self.leaves, middle
        cdef int64_t first = 0, last, half
        cdef const Leaf* leaf
        position.leaf, position.slot, position.copy, position.is_there = 0, 0, 0, False
        if self.leaves == 0:
            return position
        while high - low > 1:                       # the last leaf whose first key is not after the key
            middle = (low + high) >> 1
            if self.leaf_at(middle).head < head or (self.leaf_at(middle).head == head and compare_bytes(
                    self.key_at(&self.leaf_at(middle).leaf.slots[0]), key) <= 0):
                low = middle
            else:
                high = middle
        leaf = self.leaf_at(low).leaf
        last = leaf.count
        while first < last:
            half = (first + last) >> 1
            if leaf.heads[half] < head or (leaf.heads[half] == head and compare_bytes(
                    self.key_at(&leaf.slots[half]), key) < 0):
                first = half + 1
            else:
                last = half
        position.leaf, position.slot = low, first
        position.is_there = (first < leaf.count and leaf.heads[first] == head
                         and compare_bytes(self.key_at(&leaf.slots[first]), key) == 0)
        return position

    cdef int add(self, Slice key, Slice value) except -1 nogil:
        cdef uint64_t head
        cdef KeyPosition position
        cdef Leaf* leaf
        cdef KeySlot* slot
        if self.tag < 0:
            self.tag = key.data[0] if key.size else 0
        head = self.head(key)
        position = self.find(key, head)
        if position.is_there:
            slot = &self.leaf_at(position.leaf).leaf.slots[position.slot]
            if compare_bytes(self.value_at(slot), value) != 0:
                return 1
            slot.copies += 1
        else:
            if self.leaves == 0 or self.leaf_at(position.leaf).leaf.count == LEAF_KEYS:
                self.split(&position)
            leaf = self.leaf_at(position.leaf).leaf
            memmove(leaf.heads + position.slot + 1, leaf.heads + position.slot,
                    (leaf.count - position.slot) * sizeof(uint64_t))
            memmove(leaf.slots + position.slot + 1, leaf.slots + position.slot,
                    (leaf.count - position.slot) * sizeof(KeySlot))
            slot = leaf.slots + position.slot
            slot.start, slot.copies = self.arena.size, 1
            slot.key_bytes, slot.value_bytes = <int32_t>key.size, <int32_t>value.size
            leaf.heads[position.slot] = head
            leaf.count += 1
            self.arena.append(key.data, key.size)
            self.arena.append(value.data, value.size)
            self.live_bytes += key.size + value.size
            self.keys += 1
            self.leaf_at(position.leaf).head = leaf.heads[0]
        self.leaf_at(position.leaf).copies += 1
        self.copies += 1
        return 0

    cdef int take(self, Slice key) except -1 nogil:
        cdef KeyPosition position = self.find(key, self.head(key))
        cdef Leaf* leaf
        cdef KeySlot* slot
        if not position.is_there:
            return 1
        leaf = self.leaf_at(position.leaf).leaf
        slot = leaf.slots + position.slot
        slot.copies -= 1
        self.copies -= 1
        self.leaf_at(position.leaf).copies -= 1
        if slot.copies == 0:
            self.live_bytes -= slot.key_bytes + slot.value_bytes
            self.keys -= 1
            leaf.count -= 1
            memmove(leaf.heads + position.slot, leaf.heads + position.slot + 1,
                    (leaf.count - position.slot) * sizeof(uint64_t))
            memmove(slot, slot + 1, (leaf.count - position.slot) * sizeof(KeySlot))
            if leaf.count == 0:
                self.drop_leaf(position.leaf)
            else:
                self.leaf_at(position.leaf).head = leaf.heads[0]
                join_next(self, position.leaf)
        return 0

    cdef int split(self, KeyPosition* position) except -1 nogil:
        cdef Leaf* made = <Leaf*>malloc(sizeof(Leaf))
        cdef Leaf* full
        cdef int64_t kept = LEAF_KEYS // 2, slot, copies = 0
        if made == NULL:
            with gil:
                raise MemoryError("no memory for a leaf of keys")
        made.count = 0
        if self.leaves == 0:
            return self.insert_leaf(0, made, 0)
        full = self.leaf_at(position.leaf).leaf
        if position.leaf == self.leaves - 1 and position.slot == LEAF_KEYS:
            kept = LEAF_KEYS                        # keys arrive in ascending order: keep leaves full
        made.count = LEAF_KEYS - kept
        memcpy(made.heads, full.heads + kept, made.count * sizeof(uint64_t))
        memcpy(made.slots, full.slots + kept, made.count * sizeof(KeySlot))
        for slot in range(made.count):
            copies += made.slots[slot].copies
        full.count = kept
        self.leaf_at(position.leaf).copies -= copies
        self.insert_leaf(position.leaf + 1, made, copies)
        if position.slot > kept or kept == LEAF_KEYS:
            position.leaf += 1
            position.slot -= kept
        return 0

    cdef int insert_leaf(self, Py_ssize_t at, Leaf* leaf, int64_t copies) except -1 nogil:
        self.directory.reserve(sizeof(DirectoryEntry))
        memmove(self.leaf_at(at + 1), self.leaf_at(at), (self.leaves - at) * sizeof(DirectoryEntry))
        self.leaf_at(at).leaf, self.leaf_at(at).copies = leaf, copies
        self.leaf_at(at).head = leaf.heads[0] if leaf.count else 0
        self.directory.size += sizeof(DirectoryEntry)
        self.leaves += 1
        return 0

    cdef void drop_leaf(self, Py_ssize_t at) noexcept nogil:
        free(self.leaf_at(at).leaf)
        memmove(self.leaf_at(at), self.leaf_at(at + 1), (self.leaves - at - 1) * sizeof(DirectoryEntry))
        self.directory.size -= sizeof(DirectoryEntry)
        self.leaves -= 1

    cdef void drop_keys(self, Py_ssize_t at, int64_t first) noexcept nogil:
        cdef Leaf* leaf = self.leaf_at(at).leaf
        cdef int64_t slot
        for slot in range(first, leaf.count):
            self.live_bytes -= leaf.slots[slot].key_bytes + leaf.slots[slot].value_bytes
            self.leaf_at(at).copies -= leaf.slots[slot].copies
            self.copies -= leaf.slots[slot].copies
        self.keys -= leaf.count - first
        leaf.count = first

    cdef int make_ranks(self) except -1 nogil:
        cdef Py_ssize_t at
        cdef int64_t before = 0
        if self.has_ranks:
            return 0
        self.ranks.size = 0
        self.ranks.reserve((self.leaves + 1) * sizeof(int64_t))
        for at in range(self.leaves):
            (<int64_t*>self.ranks.data)[at] = before
            before += self.leaf_at(at).copies
        self.has_ranks = True
        return 0

    cdef int64_t rank_of(self, Slice key) except -1 nogil:
        cdef KeyPosition position = self.find(key, self.head(key))
        cdef int64_t rank, slot
        if self.leaves == 0:
            return 0
        self.make_ranks()
        rank = (<int64_t*>self.ranks.data)[position.leaf]
        for slot in range(position.slot):
            rank += self.leaf_at(position.leaf).leaf.slots[slot].copies
        return rank

    cdef bint seek(self, int64_t rank, KeyPosition* position) except -1 nogil:
        cdef Py_ssize_t low = 0, high = self.leaves, middle
        cdef const Leaf* leaf
        if rank < 0 or rank >= self.copies:
            return False
        self.make_ranks()
        while high - low > 1:
            middle = (low + high) >> 1
            if (<int64_t*>self.ranks.data)[middle] <= rank:
                low = middle
            else:
                high = middle
        leaf = self.leaf_at(low).leaf
        position.leaf, position.slot, position.copy = low, 0, rank - (<int64_t*>self.ranks.data)[low]
        while position.copy >= leaf.slots[position.slot].copies:
            position.copy -= leaf.slots[position.slot].copies
            position.slot += 1
        return True

    cdef bint step(self, KeyPosition* position, bint reverse) noexcept nogil:
        cdef const Leaf* leaf = self.leaf_at(position.leaf).leaf
        position.copy += -1 if reverse else 1
        if 0 <= position.copy < leaf.slots[position.slot].copies:
            return True
        position.slot += -1 if reverse else 1
        if not 0 <= position.slot < leaf.count:
            position.leaf += -1 if reverse else 1
            if not 0 <= position.leaf < self.leaves:
                return False
            leaf = self.leaf_at(position.leaf).leaf
            position.slot = leaf.count - 1 if reverse else 0
        position.copy = leaf.slots[position.slot].copies - 1 if reverse else 0
        return True

    cdef int pack(self) except -1:
        cdef ByteBuffer packed = ByteBuffer(self.live_bytes)
        cdef Py_ssize_t at
        cdef int64_t slot, start
        cdef KeySlot* key
        with nogil:
            for at in range(self.leaves):
                for slot in range(self.leaf_at(at).leaf.count):
                    key = self.leaf_at(at).leaf.slots + slot
                    start = packed.size
                    packed.append(self.arena.data + key.start, key.key_bytes + key.value_bytes)
                    key.start = start
        self.arena = packed
        return 0

    cdef void prefetch(self, BinaryColumn keys, Py_ssize_t first) noexcept nogil:
        cdef Py_ssize_t row, low, high, middle
        cdef uint64_t head
        cdef int line
        if self.leaves == 0:
            return
        for row in range(first, min(first + PREFETCHED, keys.rows)):
            head, low, high = self.head(keys.at(row)), 0, self.leaves
            while high - low > 1:
                middle = (low + high) >> 1
                if self.leaf_at(middle).head <= head:
                    low = middle
                else:
                    high = middle
            for line in range(HEAD_LINES):
                prefetch(<const uint8_t*>self.leaf_at(low).leaf + line * LINE)


cdef void join_next(SortedLeaves index, Py_ssize_t at) noexcept nogil:
    """Merges the next leaf into this one if together they fill at most half a leaf."""
    cdef Leaf* leaf = index.leaf_at(at).leaf
    cdef Leaf* following
    if at + 1 >= index.leaves or leaf.count + index.leaf_at(at + 1).leaf.count > LEAF_KEYS // 2:
        return
    following = index.leaf_at(at + 1).leaf
    memcpy(leaf.heads + leaf.count, following.heads, following.count * sizeof(uint64_t))
    memcpy(leaf.slots + leaf.count, following.slots, following.count * sizeof(KeySlot))
    leaf.count += following.count
    index.leaf_at(at).copies += index.leaf_at(at + 1).copies
    index.drop_leaf(at + 1)
