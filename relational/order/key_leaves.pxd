"""KeyLeaves: encoded keys in their order, each with a value and a number of copies.

    directory   LeafPlace per leaf, in key order: the head of its first key, its copies
    leaf        up to LEAF_KEYS keys in order: their heads side by side, so that a search compares numbers; KeyPlaces
    arena       bytes: key, then value; those of keys that are gone stay behind until `pack`

A head is what follows the first byte of a key (its NULL tag), as a number; unequal heads order as their keys do.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.columnar.buffer_pool cimport ByteBuffer

cdef enum:
    LEAF_KEYS = 64
    ASKED = 16                  # rows whose leaves are asked for together

cdef struct KeyPlace:
    int64_t position        # of the key in `arena`, its value follows
    int32_t key_bytes
    int32_t value_bytes
    int64_t copies          # at least 1

cdef struct Leaf:
    int64_t count           # keys, at least 1
    uint64_t heads[LEAF_KEYS]
    KeyPlace places[LEAF_KEYS]

cdef struct LeafPlace:
    uint64_t head           # of its first key
    int64_t copies          # of all its keys
    Leaf* leaf              # owned

cdef struct Spot:           # of a key, or where it would be inserted
    Py_ssize_t leaf         # in the directory
    int64_t place           # in the leaf; may be its count
    int64_t copy            # of the key, where a rank is meant
    bint is_there


cdef class KeyLeaves:
    cdef readonly int64_t copies        # of all keys
    cdef readonly Py_ssize_t keys       # distinct
    cdef ByteBuffer directory           # LeafPlace[leaves]
    cdef Py_ssize_t leaves
    cdef ByteBuffer ranks               # int64[leaves]: copies before each leaf, once asked for
    cdef bint has_ranks                 # whoever changes copies clears it
    cdef ByteBuffer arena
    cdef Py_ssize_t live_bytes          # of `arena`, in use
    cdef int tag                        # first byte that heads follow; -1: no key was seen

    cdef uint64_t head(self, Slice key) noexcept nogil
    cdef Spot find(self, Slice key, uint64_t head) noexcept nogil           # the first key that is not before
    cdef int add(self, Slice key, Slice value) except -1 nogil              # 1: there with another value
    cdef int take(self, Slice key) except -1 nogil                          # 1: not there
    cdef int split(self, Spot* spot) except -1 nogil                        # makes room at a spot in a full leaf
    cdef int place_leaf(self, Py_ssize_t at, Leaf* leaf, int64_t copies) except -1 nogil
    cdef void drop_leaf(self, Py_ssize_t at) noexcept nogil
    cdef void drop_keys(self, Py_ssize_t at, int64_t first) noexcept nogil  # takes those from a place on out of a leaf
    cdef int make_ranks(self) except -1 nogil
    cdef int64_t rank_of(self, Slice key) except -1 nogil                   # copies before the key
    cdef bint seek(self, int64_t rank, Spot* spot) except -1 nogil          # False: beyond the last
    cdef bint step(self, Spot* spot, bint reverse) noexcept nogil           # to the next copy; False: that was the last
    cdef int pack(self) except -1                                           # closes gaps in the arena
    cdef void ask(self, BinaryColumn keys, Py_ssize_t first) noexcept nogil
    # asks for the heads of the leaves in which the next ASKED rows' keys are, going by heads alone

    cdef inline LeafPlace* leaf_at(self, Py_ssize_t at) noexcept nogil:
        return <LeafPlace*>self.directory.data + at

    cdef inline Slice key_at(self, const KeyPlace* place) noexcept nogil:
        """Lives until the next insert, as the value does."""
        cdef Slice out
        out.data, out.size = self.arena.data + place.position, place.key_bytes
        return out

    cdef inline Slice value_at(self, const KeyPlace* place) noexcept nogil:
        cdef Slice out
        out.data, out.size = self.arena.data + place.position + place.key_bytes, place.value_bytes
        return out
