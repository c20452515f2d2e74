"""RowLists: the row ids of each key id, each with an optional tag.

    one row: its id is in the entry of the key      several: in a block of `lists`: a head, row ids, then their tags
    sizes of blocks: 2, 4, 8, 12, 16, 24, 32 … row ids

So a probe finds all rows of a key without touching any of them, and a search for a row among those of its key reads
contiguous tags; rows of keys that had more than SCANNED are found by a TagTable. Within a key rows are unordered.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from relational.hash.record_arena cimport RecordArena
from relational.join.tag_table cimport TagTable

cdef enum:
    SIZES = 60              # of blocks
    SCANNED_CLASS = 8       # of blocks of 64 row ids, the longest ones that are searched linearly
    NO_ROW = -0x80000000    # start of a key without rows: no block has that position

cdef struct KeyEntry:
    int32_t start           # the id of the only row; negative: the complement of the position of its block in `lists`
    uint32_t touched        # set by the owner; 0 for a new key

cdef struct BlockHead:
    int32_t rows
    uint32_t size_class


cdef inline bint is_empty(const KeyEntry* entry) noexcept nogil:
    return entry.start == NO_ROW


cdef inline bint has_block(const KeyEntry* entry) noexcept nogil:
    return entry.start < 0 and entry.start != NO_ROW


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
    cdef RecordArena only_tags          # if rows have tags: uint32 per key id, that of the only row
    cdef RecordArena lists              # blocks of words of 4 bytes
    cdef TagTable tagged                # rows of longer blocks
    cdef int32_t free_blocks[SIZES]     # first free block of each class, -1: none; linked through their first words
    cdef Py_ssize_t free_bytes          # of these blocks

    cdef int grow(self, Py_ssize_t keys) except -1                          # adds keys without rows, up to `keys`
    cdef int add_further(self, int32_t key, int32_t row, uint32_t tag) except -1 nogil
    cdef int widen(self, int32_t key) except -1 nogil                       # allocates a block, or the next longer one
    cdef int remove(self, int32_t key, int32_t position) noexcept nogil
    # the last row of the key is at `position` then; REQUIRES that there was one
    cdef int32_t candidate(self, int32_t key, uint32_t tag, uint32_t* after) noexcept nogil
    # the position of a row of the key with that tag; -1: none is left. `after`: 0, then as it is
    cdef void prefetch_block(self, const KeyEntry* entry, uint32_t tag) noexcept nogil
    # prefetches the memory of `candidate` and `add` behind its head; REQUIRES that it has a block
    cdef int32_t allocate_block(self, uint32_t size_class) except -1 nogil
    cdef void free_block(self, const KeyEntry* entry) noexcept nogil        # frees its block; REQUIRES that it has one
    cdef int pack(self) except -1                                           # removes free blocks; changes no id
    cdef void mark(self, const int32_t[::1] keys, uint8_t* marks) noexcept nogil    # sets 1 at each row of `keys`
    cdef int keep(self, const int32_t[::1] keys, const int32_t* numbers) except -1
    # renumbers `keys` to 0, 1, 2 … and drops the others; numbers[row]: the new number of a row of theirs

    cdef inline Py_ssize_t block_bytes(self, uint32_t size_class) noexcept nogil:
        """The bytes of a block of a class."""
        return <Py_ssize_t>sizeof(BlockHead) + ((4 * block_rows(size_class)) << self.has_tags)

    cdef inline void clear_free(self) noexcept nogil:
        """No block is free."""
        cdef int size_class
        for size_class in range(SIZES):
            self.free_blocks[size_class] = -1
        self.free_bytes = 0

    cdef inline KeyEntry* entry(self, int64_t key) noexcept nogil:
        """Valid until `grow` or `keep`."""
        return <KeyEntry*>self.entries.data + key

    cdef inline uint32_t* only_tag(self, int64_t key) noexcept nogil:
        """REQUIRES that rows have tags. Likewise."""
        return <uint32_t*>self.only_tags.data + key

    cdef inline BlockHead* head(self, const KeyEntry* entry) noexcept nogil:
        """The block of a key that has one. Valid until a row is added."""
        return <BlockHead*>(<int32_t*>self.lists.data + ~entry.start)

    cdef inline int32_t* row_ids(self, const KeyEntry* entry) noexcept nogil:
        """Those in its block; likewise."""
        return <int32_t*>(self.head(entry) + 1)

    cdef inline uint32_t* tags(self, const KeyEntry* entry) noexcept nogil:
        """Their tags, if any."""
        return <uint32_t*>self.row_ids(entry) + block_rows(self.head(entry).size_class)

    cdef inline int32_t count(self, const KeyEntry* entry) noexcept nogil:
        """The rows of a key."""
        if entry.start >= 0:
            return 1
        return 0 if is_empty(entry) else self.head(entry).rows

    cdef inline int32_t row_at(self, const KeyEntry* entry, int32_t position) noexcept nogil:
        """REQUIRES a row at that position."""
        return self.row_ids(entry)[position] if entry.start < 0 else entry.start

    cdef inline int add(self, int32_t key, int32_t row, uint32_t tag) except -1 nogil:
        cdef KeyEntry* entry = self.entry(key)
        if not is_empty(entry):
            return self.add_further(key, row, tag)
        entry.start = row
        if self.has_tags:
            self.only_tag(key)[0] = tag
        self.empty_keys -= 1
        self.rows += 1
        return 0
