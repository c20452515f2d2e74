"""SortedLeaves: encoded keys in order, each with a value and a number of copies.

    directory   DirectoryEntry per leaf, in key order: the head of its first key, its copies
    leaf        up to LEAF_KEYS keys in order: their heads in one array, so a search compares integers; then KeySlots
    arena       bytes: key, then value; those of removed keys are reclaimed by `pack`

The head of a key is its 8 bytes after the first one (the NULL tag) as a big-endian integer; unequal heads order as
their keys do.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.columnar.buffer_pool cimport ByteBuffer

cdef enum:
    LEAF_KEYS = 64
    PREFETCHED = 16                  # rows whose leaves are prefetched together

cdef struct KeySlot:
    int64_t start           # of the key in `arena`; its value follows
    int32_t key_bytes
    int32_t value_bytes
    int64_t copies          # at least 1

cdef struct Leaf:
    int64_t count           # keys, at least 1
    uint64_t heads[LEAF_KEYS]
    KeySlot slots[LEAF_KEYS]

cdef struct DirectoryEntry:
    uint64_t head           # of its first key
    int64_t copies          # of all its keys
    Leaf* leaf              # owned

cdef struct KeyPosition:    # of a key, or its insertion point
    Py_ssize_t leaf         # index in the directory
    int64_t slot            # index in the leaf; may be its count
    int64_t copy            # of the key, if the position is that of a rank
    bint is_there


cdef class SortedLeaves:
    cdef readonly int64_t copies        # of all keys
    cdef readonly Py_ssize_t keys       # distinct
    cdef ByteBuffer directory           # DirectoryEntry[leaves]
    cdef Py_ssize_t leaves
    cdef ByteBuffer ranks               # int64[leaves]: copies before each leaf, valid if `has_ranks`
    cdef bint has_ranks                 # cleared by every change of copies
    cdef ByteBuffer arena
    cdef Py_ssize_t live_bytes          # of `arena`, in use
    cdef int tag                        # first byte, before the heads; -1: no key yet

    cdef uint64_t head(self, Slice key) noexcept nogil
    cdef KeyPosition find(self, Slice key, uint64_t head) noexcept nogil    # the first key >= key
    cdef int add(self, Slice key, Slice value) except -1 nogil              # 1: present with another value
    cdef int take(self, Slice key) except -1 nogil                          # removes a copy; 1: not present
    cdef int split(self, KeyPosition* position) except -1 nogil             # frees a slot at a position in a full leaf
    cdef int insert_leaf(self, Py_ssize_t at, Leaf* leaf, int64_t copies) except -1 nogil
    cdef void drop_leaf(self, Py_ssize_t at) noexcept nogil
    cdef void drop_keys(self, Py_ssize_t at, int64_t first) noexcept nogil  # removes those of a leaf from `first` on
    cdef int make_ranks(self) except -1 nogil
    cdef int64_t rank_of(self, Slice key) except -1 nogil                   # copies before the key
    cdef bint seek(self, int64_t rank, KeyPosition* position) except -1 nogil       # False: beyond the last
    cdef bint step(self, KeyPosition* position, bint reverse) noexcept nogil        # to the next copy; False: none left
    cdef int pack(self) except -1                                           # closes gaps in the arena
    cdef void prefetch(self, BinaryColumn keys, Py_ssize_t first) noexcept nogil
    # prefetches the heads of the leaves for the next PREFETCHED rows' keys, located by heads alone

    cdef inline DirectoryEntry* leaf_at(self, Py_ssize_t at) noexcept nogil:
        return <DirectoryEntry*>self.directory.data + at

    cdef inline Slice key_at(self, const KeySlot* slot) noexcept nogil:
        """Valid until the next insert, as is the value."""
        cdef Slice out
        out.data, out.size = self.arena.data + slot.start, slot.key_bytes
        return out

    cdef inline Slice value_at(self, const KeySlot* slot) noexcept nogil:
        cdef Slice out
        out.data, out.size = self.arena.data + slot.start + slot.key_bytes, slot.value_bytes
        return out
