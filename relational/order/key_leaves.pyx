"""KeyLeaves: an ordered multiset of encoded keys in memory, two levels deep. One writer, no locks.

Leaves of neighbouring keys and a directory of leaves. An insert moves keys within a leaf; ranks are sums over the
directory, made when they are first asked for after a change, so a batch of changes costs one pass over it.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

from hummock.base.key cimport Slice, compare_bytes, head_of
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.columnar.buffer_pool cimport ByteBuffer

cdef extern from * nogil:
    void __builtin_prefetch(const void*, ...) noexcept

cdef enum:
    LINE = 64
    HEAD_LINES = 8              # a leaf's heads


cdef class KeyLeaves:
    """Keys ascend; a key has one value, whatever its number of copies."""

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
        """Memory held."""
        return (self.directory.capacity + self.ranks.capacity + self.arena.capacity
                + self.leaves * <Py_ssize_t>sizeof(Leaf))

    cdef uint64_t head(self, Slice key) noexcept nogil:
        if key.size == 0 or key.data[0] < self.tag:
            return 0
        if key.data[0] > self.tag:
            return ~<uint64_t>0
        return head_of(key.data + 1, key.size - 1)

    cdef Spot find(self, Slice key, uint64_t head) noexcept nogil:
        cdef Spot spot
        cdef Py_ssize_t low = 0, high = self.leaves, middle
        cdef int64_t first = 0, last, half
        cdef const Leaf* leaf
        spot.leaf, spot.place, spot.copy, spot.is_there = 0, 0, 0, False
        if self.leaves == 0:
            return spot
        while high - low > 1:                       # the last leaf that does not begin behind the key
            middle = (low + high) >> 1
            if self.leaf_at(middle).head < head or (self.leaf_at(middle).head == head and compare_bytes(
                    self.key_at(&self.leaf_at(middle).leaf.places[0]), key) <= 0):
                low = middle
            else:
                high = middle
        leaf = self.leaf_at(low).leaf
        last = leaf.count
        while first < last:
            half = (first + last) >> 1
            if leaf.heads[half] < head or (leaf.heads[half] == head and compare_bytes(
                    self.key_at(&leaf.places[half]), key) < 0):
                first = half + 1
            else:
                last = half
        spot.leaf, spot.place = low, first
        spot.is_there = (first < leaf.count and leaf.heads[first] == head
                         and compare_bytes(self.key_at(&leaf.places[first]), key) == 0)
        return spot

    cdef int add(self, Slice key, Slice value) except -1 nogil:
        cdef uint64_t head
        cdef Spot spot
        cdef Leaf* leaf
        cdef KeyPlace* place
        if self.tag < 0:
            self.tag = key.data[0] if key.size else 0
        head = self.head(key)
        spot = self.find(key, head)
        if spot.is_there:
            place = &self.leaf_at(spot.leaf).leaf.places[spot.place]
            if compare_bytes(self.value_at(place), value) != 0:
                return 1
            place.copies += 1
        else:
            if self.leaves == 0 or self.leaf_at(spot.leaf).leaf.count == LEAF_KEYS:
                self.split(&spot)
            leaf = self.leaf_at(spot.leaf).leaf
            memmove(leaf.heads + spot.place + 1, leaf.heads + spot.place, (leaf.count - spot.place) * sizeof(uint64_t))
            memmove(leaf.places + spot.place + 1, leaf.places + spot.place,
                    (leaf.count - spot.place) * sizeof(KeyPlace))
            place = leaf.places + spot.place
            place.position, place.copies = self.arena.size, 1
            place.key_bytes, place.value_bytes = <int32_t>key.size, <int32_t>value.size
            leaf.heads[spot.place] = head
            leaf.count += 1
            self.arena.append(key.data, key.size)
            self.arena.append(value.data, value.size)
            self.live_bytes += key.size + value.size
            self.keys += 1
            self.leaf_at(spot.leaf).head = leaf.heads[0]
        self.leaf_at(spot.leaf).copies += 1
        self.copies += 1
        return 0

    cdef int take(self, Slice key) except -1 nogil:
        cdef Spot spot = self.find(key, self.head(key))
        cdef Leaf* leaf
        cdef KeyPlace* place
        if not spot.is_there:
            return 1
        leaf = self.leaf_at(spot.leaf).leaf
        place = leaf.places + spot.place
        place.copies -= 1
        self.copies -= 1
        self.leaf_at(spot.leaf).copies -= 1
        if place.copies == 0:
            self.live_bytes -= place.key_bytes + place.value_bytes
            self.keys -= 1
            leaf.count -= 1
            memmove(leaf.heads + spot.place, leaf.heads + spot.place + 1, (leaf.count - spot.place) * sizeof(uint64_t))
            memmove(place, place + 1, (leaf.count - spot.place) * sizeof(KeyPlace))
            if leaf.count == 0:
                self.drop_leaf(spot.leaf)
            else:
                self.leaf_at(spot.leaf).head = leaf.heads[0]
                join_next(self, spot.leaf)
        return 0

    cdef int split(self, Spot* spot) except -1 nogil:
        cdef Leaf* made = <Leaf*>malloc(sizeof(Leaf))
        cdef Leaf* full
        cdef int64_t kept = LEAF_KEYS // 2, place, copies = 0
        if made == NULL:
            with gil:
                raise MemoryError("no memory for a leaf of keys")
        made.count = 0
        if self.leaves == 0:
            return self.place_leaf(0, made, 0)
        full = self.leaf_at(spot.leaf).leaf
        if spot.leaf == self.leaves - 1 and spot.place == LEAF_KEYS:
            kept = LEAF_KEYS                        # keys come in ascending order: leaves stay full
        made.count = LEAF_KEYS - kept
        memcpy(made.heads, full.heads + kept, made.count * sizeof(uint64_t))
        memcpy(made.places, full.places + kept, made.count * sizeof(KeyPlace))
        for place in range(made.count):
            copies += made.places[place].copies
        full.count = kept
        self.leaf_at(spot.leaf).copies -= copies
        self.place_leaf(spot.leaf + 1, made, copies)
        if spot.place > kept or kept == LEAF_KEYS:
            spot.leaf += 1
            spot.place -= kept
        return 0

    cdef int place_leaf(self, Py_ssize_t at, Leaf* leaf, int64_t copies) except -1 nogil:
        self.directory.reserve(sizeof(LeafPlace))
        memmove(self.leaf_at(at + 1), self.leaf_at(at), (self.leaves - at) * sizeof(LeafPlace))
        self.leaf_at(at).leaf, self.leaf_at(at).copies = leaf, copies
        self.leaf_at(at).head = leaf.heads[0] if leaf.count else 0
        self.directory.size += sizeof(LeafPlace)
        self.leaves += 1
        return 0

    cdef void drop_leaf(self, Py_ssize_t at) noexcept nogil:
        free(self.leaf_at(at).leaf)
        memmove(self.leaf_at(at), self.leaf_at(at + 1), (self.leaves - at - 1) * sizeof(LeafPlace))
        self.directory.size -= sizeof(LeafPlace)
        self.leaves -= 1

    cdef void drop_keys(self, Py_ssize_t at, int64_t first) noexcept nogil:
        cdef Leaf* leaf = self.leaf_at(at).leaf
        cdef int64_t place
        for place in range(first, leaf.count):
            self.live_bytes -= leaf.places[place].key_bytes + leaf.places[place].value_bytes
            self.leaf_at(at).copies -= leaf.places[place].copies
            self.copies -= leaf.places[place].copies
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
        cdef Spot spot = self.find(key, self.head(key))
        cdef int64_t rank, place
        if self.leaves == 0:
            return 0
        self.make_ranks()
        rank = (<int64_t*>self.ranks.data)[spot.leaf]
        for place in range(spot.place):
            rank += self.leaf_at(spot.leaf).leaf.places[place].copies
        return rank

    cdef bint seek(self, int64_t rank, Spot* spot) except -1 nogil:
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
        spot.leaf, spot.place, spot.copy = low, 0, rank - (<int64_t*>self.ranks.data)[low]
        while spot.copy >= leaf.places[spot.place].copies:
            spot.copy -= leaf.places[spot.place].copies
            spot.place += 1
        return True

    cdef bint step(self, Spot* spot, bint reverse) noexcept nogil:
        cdef const Leaf* leaf = self.leaf_at(spot.leaf).leaf
        spot.copy += -1 if reverse else 1
        if 0 <= spot.copy < leaf.places[spot.place].copies:
            return True
        spot.place += -1 if reverse else 1
        if not 0 <= spot.place < leaf.count:
            spot.leaf += -1 if reverse else 1
            if not 0 <= spot.leaf < self.leaves:
                return False
            leaf = self.leaf_at(spot.leaf).leaf
            spot.place = leaf.count - 1 if reverse else 0
        spot.copy = leaf.places[spot.place].copies - 1 if reverse else 0
        return True

    cdef int pack(self) except -1:
        cdef ByteBuffer packed = ByteBuffer(self.live_bytes)
        cdef Py_ssize_t at
        cdef int64_t place, position
        cdef KeyPlace* key
        with nogil:
            for at in range(self.leaves):
                for place in range(self.leaf_at(at).leaf.count):
                    key = self.leaf_at(at).leaf.places + place
                    position = packed.size
                    packed.append(self.arena.data + key.position, key.key_bytes + key.value_bytes)
                    key.position = position
        self.arena = packed
        return 0

    cdef void ask(self, BinaryColumn keys, Py_ssize_t first) noexcept nogil:
        cdef Py_ssize_t row, low, high, middle
        cdef uint64_t head
        cdef int line
        if self.leaves == 0:
            return
        for row in range(first, min(first + ASKED, keys.rows)):
            head, low, high = self.head(keys.at(row)), 0, self.leaves
            while high - low > 1:
                middle = (low + high) >> 1
                if self.leaf_at(middle).head <= head:
                    low = middle
                else:
                    high = middle
            for line in range(HEAD_LINES):
                __builtin_prefetch(<const uint8_t*>self.leaf_at(low).leaf + line * LINE)


cdef void join_next(KeyLeaves index, Py_ssize_t at) noexcept nogil:
    """Takes the keys of the next leaf in where both together are half a leaf."""
    cdef Leaf* leaf = index.leaf_at(at).leaf
    cdef Leaf* following
    if at + 1 >= index.leaves or leaf.count + index.leaf_at(at + 1).leaf.count > LEAF_KEYS // 2:
        return
    following = index.leaf_at(at + 1).leaf
    memcpy(leaf.heads + leaf.count, following.heads, following.count * sizeof(uint64_t))
    memcpy(leaf.places + leaf.count, following.places, following.count * sizeof(KeyPlace))
    leaf.count += following.count
    index.leaf_at(at).copies += index.leaf_at(at + 1).copies
    index.drop_leaf(at + 1)
