"""OrderedIndex: an ordered multiset of encoded keys in memory, by key and by rank. One writer, no locks.

    index.update(keys, values, ops)                 # BinaryColumns; each row inserts or deletes a copy
    index.rank(keys)                                # the number of copies before each key
    index.slice(start, stop, reverse=False)         # (keys, values) by rank: the first, the last, a page
    index.slice(*index.span(b"from", b"to"))        # ... or between two keys
    index.end_epoch()                               # enforces the budget
"""

import numpy as np

cimport cython
from libc.stdint cimport int64_t, uint8_t

from hummock.base.key cimport Slice, compare_bytes, slice_of
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.order.sorted_leaves cimport PREFETCHED, KeyPosition, KeySlot, Leaf, SortedLeaves

from relational.errors import ConsistencyError

cdef enum:
    WASTE_BYTES = 1 << 16       # garbage in the arena that makes packing worthwhile

cdef double EVICTION_SHARE = 0.75   # of the capacity remains filled after an eviction of the far end


@cython.final
cdef class OrderedIndex(SortedLeaves):
    """Keys ascend up to the bound."""

    def __init__(self, *, capacity_bytes=None):
        super().__init__()
        self.capacity_bytes = capacity_bytes

    @property
    def is_complete(self):
        """Whether nothing was evicted, or all of it was loaded again."""
        return self.bound is None

    def update(self, BinaryColumn keys not None, BinaryColumn values=None, const uint8_t[::1] ops=None):
        """Inserts a copy of each key, or deletes one if bit 0 of its op (uint8[rows]) is set. Rows at or after the
        bound are skipped. `values` of deletes are not read.

        ConsistencyError for a delete of an absent copy, or an insert with another value than the existing copies; the
        rows before it have taken effect.
        """
        self.apply(keys, values, ops)
        self.settle()

    cdef int apply(self, BinaryColumn keys, BinaryColumn values, const uint8_t[::1] ops) except -1:
        cdef Py_ssize_t rows = keys.rows, wrong = -1
        cdef const uint8_t* given = NULL
        if (values is not None and values.rows != rows) or (ops is not None and ops.shape[0] != rows):
            raise ValueError(f"values and ops do not all have {rows} rows")
        if rows == 0:
            return 0
        if ops is not None:
            given = &ops[0]
        self.has_ranks = False
        with nogil:
            wrong = self.change(keys, values, given)
        if wrong >= 0:
            fault = "goes that is not there" if ops is not None and ops[wrong] & 1 else "comes with another value"
            raise ConsistencyError(f"a key {fault}", key=keys[wrong])
        return 0

    cdef int settle(self) except -1:
        if self.arena.size > 2 * self.live_bytes + WASTE_BYTES:
            self.pack()
        return 0

    def rank(self, BinaryColumn keys not None):
        """The number of copies before each key: int64[rows]. For a key after the bound: all copies in memory."""
        out = np.empty(keys.rows, np.int64)
        cdef int64_t[::1] ranks = out
        cdef Py_ssize_t row
        with nogil:
            for row in range(keys.rows):
                if row % PREFETCHED == 0:
                    self.prefetch(keys, row)
                ranks[row] = self.rank_of(keys.at(row))
        return out

    def span(self, start=None, end=None):
        """(first, one past the last) rank of the keys in [start, end); None: unbounded on that side."""
        ranks = self.rank(BinaryColumn.from_pylist([start or b"", end or b""]))
        last = self.copies if end is None else int(ranks[1])
        return min(int(ranks[0]), last), last

    def slice(self, int64_t start, int64_t stop, *, bint reverse=False):
        """(keys, values) of ranks [start, stop), as far as they exist; descending if `reverse`."""
        cdef BinaryColumnBuilder keys = BinaryColumnBuilder(), values = BinaryColumnBuilder()
        cdef KeyPosition position
        start, stop = max(<int64_t>0, start), min(stop, self.copies)
        if start < stop:
            with nogil:
                self.seek(stop - 1 if reverse else start, &position)
                append_from(self, &position, stop - start, reverse, keys, values)
        return keys.finish(), values.finish()

    def load(self, BinaryColumn keys not None, BinaryColumn values not None, bytes bound=None):
        """Inserts the entries from the current bound up to `bound` (None: to the end), ascending, which becomes the new
        bound. ValueError for a key outside.
        """
        cdef bytes before = self.bound
        if before is None or (bound is not None and bound < before):
            raise ValueError(f"nothing is missing up to {bound!r}; the bound is {before!r}")
        if keys.rows and not (before <= keys[0] and (bound is None or keys[keys.rows - 1] < bound)):
            raise ValueError(f"keys {keys[0]!r} to {keys[keys.rows - 1]!r} for {before!r} to {bound!r}")
        self.set_bound(bound)
        self.update(keys, values)

    def end_epoch(self) -> int:
        """At a barrier: evicts the far end if above the budget. Returns the number of evicted copies."""
        cdef int64_t before = self.copies
        share = EVICTION_SHARE
        while self.capacity_bytes is not None and self.size_bytes > self.capacity_bytes and self.copies:
            self.drop_behind(int(self.copies * (self.capacity_bytes * share / self.size_bytes)))
            share /= 2
        return before - self.copies

    def set_bound(self, bytes bound):
        """Excludes keys from `bound` on from memory; None: no key is excluded."""
        self.bound, self.bound_slice.data = bound, NULL
        if bound is not None:
            self.bound_slice = slice_of(self.bound)

    cdef Py_ssize_t change(self, BinaryColumn keys, BinaryColumn values, const uint8_t* ops) except -2 nogil:
        cdef Py_ssize_t row
        cdef Slice value
        cdef int failed
        value.data, value.size = keys.data, 0
        for row in range(keys.rows):
            if row % PREFETCHED == 0:
                self.prefetch(keys, row)
            if self.bound_slice.data != NULL and compare_bytes(keys.at(row), self.bound_slice) >= 0:
                continue
            if ops != NULL and ops[row] & 1:
                failed = self.take(keys.at(row))
            else:
                if values is not None:
                    value = values.at(row)
                failed = self.add(keys.at(row), value)
            if failed:
                return row
        return -1

    cdef int drop_behind(self, int64_t rank) except -1:
        cdef KeyPosition position
        cdef Slice first
        cdef Leaf* leaf
        if not self.seek(rank, &position):
            return 0
        leaf = self.leaf_at(position.leaf).leaf
        first = self.key_at(&leaf.slots[position.slot])
        self.set_bound((<const char*>first.data)[:first.size])
        while self.leaves > position.leaf + 1:
            self.drop_keys(self.leaves - 1, 0)
            self.drop_leaf(self.leaves - 1)
        self.drop_keys(position.leaf, position.slot)
        if leaf.count == 0:
            self.drop_leaf(position.leaf)
        self.has_ranks = False
        self.directory, self.ranks = shrunk(self.directory), ByteBuffer()
        return self.pack()


cdef ByteBuffer shrunk(ByteBuffer buffer):
    """The same bytes in no more memory than they need."""
    cdef ByteBuffer out = ByteBuffer(buffer.size)
    out.append(buffer.data, buffer.size)
    return out


cdef int append_from(OrderedIndex index, KeyPosition* position, int64_t copies, bint reverse, BinaryColumnBuilder keys,
              BinaryColumnBuilder values) except -1 nogil:
    """Appends that many copies from a position on, in either direction; REQUIRES that they exist."""
    cdef const KeySlot* slot
    cdef int64_t copy
    keys.reserve(copies, 0)
    values.reserve(copies, 0)
    for copy in range(copies):
        slot = &index.leaf_at(position.leaf).leaf.slots[position.slot]
        keys.append(index.key_at(slot))
        values.append(index.value_at(slot))
        index.step(position, reverse)
    return 0
