"""RowLists: the row ids of each key id, each with an optional tag.

    one row: its id is in the entry              several: contiguous in a block of `numbers`, followed by their tags
    sizes of blocks: 2, 4, 8, 12, 16, 24, 32 … row ids

So a probe finds all rows of a key without touching any of them, and a search for a row among those of its key reads
contiguous tags; rows of keys that had more than SCANNED are found by a TagTable. Within a key rows are unordered.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t

from relational.hash.record_arena cimport RecordArena
from relational.join.tag_table cimport TagTable

cdef enum:
    SIZES = 60              # of blocks
    SCANNED_CLASS = 8       # of blocks of 64 row ids, the longest ones that are searched linearly

cdef struct KeyEntry:
    int32_t rows            # of this key
    int32_t start           # the id of the only row; negative: the complement of the position of its block in `numbers`
    uint32_t touched        # set by the owner; 0 for a new key
    uint32_t tag            # of the only row; or the size class of its block


cdef inline bint has_block(const KeyEntry* entry) noexcept nogil:
    return entry.start < 0


cdef inline int64_t block_rows(uint32_t size_class) noexcept nogil:
    """The row ids in a block of a class."""
    if size_class < 2:
        return <int64_t>2 << size_class
    return <int64_t>(2 + (size_class & 1)) << ((size_class >> 1) + 1)


@cython.final
cdef class RowLists:
    cdef readonly Py_ssize_t keys
    cdef readonly Py_ssize_t empty_keys # keys without rows
    cdef readonly Py_ssize_t rows       # of all keys
    cdef readonly bint has_tags
    cdef RecordArena entries            # KeyEntry per key id
    cdef RecordArena numbers            # int32, in blocks
    cdef TagTable tagged                # rows of longer blocks
    cdef int32_t free_blocks[SIZES]     # first free block of each class, -1: none; linked through their first words
    cdef Py_ssize_t free_bytes          # of these blocks

    cdef int grow(self, Py_ssize_t keys) except -1                          # adds keys without rows, up to `keys`
    cdef int32_t add_further(self, KeyEntry* entry, int32_t row, uint32_t tag) except -1 nogil
    cdef int widen(self, KeyEntry* entry) except -1 nogil                   # allocates a block, or the next longer one
    cdef int32_t remove(self, int32_t key, int32_t position) noexcept nogil
    # returns the row that is now at `position`, or -1; REQUIRES that there was one
    cdef int32_t candidate(self, const KeyEntry* entry, uint32_t tag, uint32_t* after) noexcept nogil
    # a row with that tag, of the key or, where it has many, of another one; -1: none is left. `after`: 0, then as it is
    cdef void prefetch_block(self, const KeyEntry* entry, uint32_t tag) noexcept nogil
    # prefetches the memory of `candidate` and `add`; REQUIRES that it has a block
    cdef int32_t allocate_block(self, uint32_t size_class) except -1 nogil
    cdef void free_block(self, const KeyEntry* entry) noexcept nogil        # frees its block; REQUIRES that it has one
    cdef int pack(self) except -1                                           # removes free blocks; changes no id
    cdef int keep(self, const int32_t[::1] keys, int32_t* order) except -1
    # renumbers `keys` to 0, 1, 2 … and drops the others; order[r]: the row that becomes row r, in key order

    cdef inline Py_ssize_t block_bytes(self, uint32_t size_class) noexcept nogil:
        """The bytes of a block of a class, with its tags."""
        return (4 * block_rows(size_class)) << self.has_tags

    cdef inline void clear_free(self) noexcept nogil:
        """No block is free."""
        cdef int size_class
        for size_class in range(SIZES):
            self.free_blocks[size_class] = -1
        self.free_bytes = 0

    cdef inline KeyEntry* entry(self, int64_t key) noexcept nogil:
        """Valid until `grow` or `keep`."""
        return <KeyEntry*>self.entries.data + key

    cdef inline int32_t* block(self, const KeyEntry* entry) noexcept nogil:
        """The row ids of a key that has a block. Valid until a row is added."""
        return <int32_t*>self.numbers.data + ~entry.start

    cdef inline uint32_t* tags(self, const KeyEntry* entry) noexcept nogil:
        """Their tags, if any."""
        return <uint32_t*>self.block(entry) + block_rows(entry.tag)

    cdef inline int32_t add(self, int32_t key, int32_t row, uint32_t tag) except -1 nogil:
        """Adds a row; returns its position among those of its key."""
        cdef KeyEntry* entry = self.entry(key)
        if entry.rows:
            return self.add_further(entry, row, tag)
        entry.start, entry.tag, entry.rows = row, tag, 1
        self.empty_keys -= 1
        self.rows += 1
        return 0
