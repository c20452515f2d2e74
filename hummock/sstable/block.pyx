"""Reading blocks: decoded, checked, immutable, searched by full key.

The format is specified at the top of block_format.pxd and, with an example, in FORMAT.md.
"""


from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport realloc
from libc.string cimport memcmp, memcpy, memset

from hummock.base.checksum cimport crc32c, hash64
from hummock.base.codec cimport can_hold, decompress
from hummock.base.coding cimport get_u16, get_u32
from hummock.base.key cimport Slice, compare_bytes, copy_bytes, head_of, same_bytes, slice_of
from hummock.base.row_digest cimport row_hash
from hummock.columnar.buffer_pool cimport ByteBuffer
from hummock.columnar.slab_allocator cimport slab_capacity, slab_release, slab_share, slab_acquire
from hummock.iterator.base cimport Span
from hummock.sstable.block_format cimport (
    HAS_TOMBSTONES, HEADER_BYTES, KNOWN_FLAGS, MAX_RAW_BYTES, ONE_EPOCH, UNIQUE_KEYS,
)
from hummock.sstable.cache.block_cache cimport CacheSlot
from hummock.sstable.hash_index cimport (
    BUCKET_BYTES, MAX_INDEXED_KEY, MAX_INDEXED_ROWS, MAX_INDEXED_SUFFIXES, MAX_INDEXED_VALUES, buckets_for, index_room,
    put_entry,
)
from hummock.sstable.prefetch cimport PrefetchList, enqueue, enqueue_value, issue

from hummock.errors import Corruption

cdef extern from * nogil:
    uint64_t* __atomic_load_n(uint64_t** target, int order) noexcept
    void __atomic_store_n(uint64_t** target, uint64_t* value, int order) noexcept
    int __ATOMIC_ACQUIRE
    int __ATOMIC_RELEASE

cdef enum:
    PADDING = 8         # readable bytes after the payload, for 8-byte reads of short suffixes


cdef int expand_lengths(
    const uint8_t* lengths, int width, Py_ssize_t rows, uint32_t length, uint32_t total,
    uint32_t* offsets, uint32_t* longest,
) noexcept nogil:
    """Converts lengths to rows + 1 offsets; 0 when the lengths do not add up to `total`."""
    cdef Py_ssize_t row
    cdef uint64_t at = 0
    cdef uint32_t one, most = 0
    offsets[0] = 0
    if width == 0:
        if <uint64_t>length * <uint64_t>rows != total:
            return 0
        for row in range(rows):
            offsets[row + 1] = <uint32_t>(row + 1) * length
        longest[0] = length
        return 1
    for row in range(rows):
        if width == 1:
            one = lengths[row]
        elif width == 2:
            one = get_u16(lengths + 2 * row)
        else:
            one = get_u32(lengths + 4 * row)
        most = one if one > most else most
        at += one
        offsets[row + 1] = <uint32_t>at     # wraps only if `at` exceeds `total`, which is rejected below
    longest[0] = most
    return at == total


cdef inline bint are_equal(int width, Py_ssize_t rows, uint32_t length, uint32_t total) noexcept nogil:
    """Whether all entries of a column have one nonzero length, so that they need no offsets."""
    return width == 0 and length > 0 and <uint64_t>length * <uint64_t>rows == total


cdef class Block:
    """A decoded block: immutable once decoded, safe to search from several threads.

    Every length is checked against the payload before use, and the stored bytes against the checksum.
    """

    def __cinit__(self, str object_name=""):
        self.object_name = object_name

    def __dealloc__(self):
        self.drop()

    @staticmethod
    def decode(
        const uint8_t[::1] data, int codec, Py_ssize_t raw_size, uint32_t checksum, str object_name,
        Py_ssize_t index,
    ) -> Block:
        """The block in the stored bytes `data`. Corruption names the object, the block and what differs."""
        cdef Block block = Block(object_name)
        if data.shape[0] == 0:
            raise Corruption(object_name, f"block {index}", f"{raw_size} bytes by codec {codec}", "no bytes")
        with nogil:
            block.load(&data[0], data.shape[0], codec, raw_size, checksum, index)
        return block

    cdef int begin_key(self, uint8_t** key, Py_ssize_t* capacity) except -1 nogil:
        cdef Py_ssize_t wanted = self.prefix.size + self.longest_suffix
        cdef uint8_t* grown
        if wanted > capacity[0]:
            grown = <uint8_t*>realloc(key[0], <size_t>(2 * wanted))
            if grown == NULL:
                with gil:
                    raise MemoryError
            key[0], capacity[0] = grown, 2 * wanted
        if self.prefix.size > 0:
            memcpy(key[0], self.prefix.data, <size_t>self.prefix.size)
        return 0

    cdef void drop(self) noexcept nogil:
        slab_release(self.memory, self.memory_bytes)
        self.heads, self.buckets, self.memory = NULL, NULL, NULL
        self.rows = self.size_bytes = self.memory_bytes = 0

    cdef void adopt_memory(self, Block other) noexcept nogil:
        self.memory, self.memory_bytes, self.rows = other.memory, other.memory_bytes, other.rows
        other.memory, other.memory_bytes, other.rows, other.heads = NULL, 0, 0, NULL

    cdef int load(
        self, const uint8_t* data, Py_ssize_t size, int codec, Py_ssize_t raw_size, uint32_t checksum,
        Py_ssize_t index,
    ) except -1 nogil:
        cdef Py_ssize_t rows = self.rows if self.rows < raw_size >> 3 else raw_size >> 3
        self.rows, self.heads, self.buckets, self.bucket_count = 0, NULL, NULL, 0
        self.check_stored(data, size, codec, raw_size, checksum, index)
        self.make_room(                                 # `parse` grows it where more is needed
            room_of(raw_size, rows) + (index_room(rows) if self.will_be_indexed else 0), 0)
        if not decompress(codec, data, size, self.memory, raw_size):
            self.corrupt(index, "payload", raw_size, -1)
        return self.parse(raw_size, index, True)

    cdef int override_epochs(self, uint64_t epoch, Py_ssize_t index) except -1 nogil:
        if not self.unique_keys:
            self.rows = 0
            self.corrupt(index, "versions of a key under one epoch", 1, 2)
        self.epoch_under = self.max_epoch = self.min_epoch = epoch
        self.epochs, self.one_epoch = &self.epoch_under, True
        return 0

    cdef int check_stored(
        self, const uint8_t* data, Py_ssize_t size, int codec, Py_ssize_t raw_size, uint32_t checksum,
        Py_ssize_t index,
    ) except -1 nogil:
        cdef uint32_t got = crc32c(data, size)
        if got != checksum:
            self.corrupt(index, "crc32c", checksum, got)
        if raw_size < HEADER_BYTES or raw_size > MAX_RAW_BYTES or not can_hold(codec, data, size, raw_size):
            self.corrupt(index, "size", raw_size, size)
        return 0

    cdef int make_room(self, Py_ssize_t wanted, Py_ssize_t used) except -1 nogil:
        cdef uint8_t* grown
        if wanted <= self.memory_bytes:
            return 0
        wanted = slab_capacity(wanted)
        grown = slab_acquire(wanted)
        if grown == NULL:
            raise_no_memory(wanted)
        if used > 0:
            memcpy(grown, self.memory, <size_t>used)
        slab_release(self.memory, self.memory_bytes)
        self.memory, self.memory_bytes = grown, wanted
        return 0

    cdef int parse(self, Py_ssize_t raw_size, Py_ssize_t index, bint for_spans) except -1 nogil:
        cdef const uint8_t* at = self.memory
        cdef uint32_t rows = get_u32(at)
        cdef int flags = at[4], suffix_width = at[5], value_width = at[6], reserved = at[7]
        cdef uint32_t prefix_size = get_u32(at + 8)
        cdef uint32_t suffix_length = get_u32(at + 12), value_length = get_u32(at + 16)
        cdef uint32_t suffixes_size = get_u32(at + 20), values_size = get_u32(at + 24)
        cdef uint64_t epochs_size = 8 * (<uint64_t>rows if not flags & ONE_EPOCH else 1)
        cdef uint64_t bitmap_size = (<uint64_t>rows + 7) >> 3 if flags & HAS_TOMBSTONES else 0
        cdef uint64_t total, offsets_at = (<uint64_t>raw_size + PADDING + 7) & ~<uint64_t>7
        cdef bint is_indexed
        cdef uint32_t* offsets
        cdef uint32_t longest_value = 0
        cdef Py_ssize_t row
        # each row differs from the previous one in suffix or epoch, so there are no more rows than bytes
        if rows == 0 or rows > raw_size or flags & ~KNOWN_FLAGS or reserved or get_u32(at + 28) != 0:
            self.corrupt(index, "header", 0, rows)
        if suffix_width not in (0, 1, 2, 4) or value_width not in (0, 1, 2, 4):
            self.corrupt(index, "widths", suffix_width, value_width)
        total = (HEADER_BYTES + epochs_size + bitmap_size + <uint64_t>rows * (suffix_width + value_width)
                 + prefix_size + suffixes_size + values_size)
        if total != <uint64_t>raw_size:
            self.corrupt(index, "sections", raw_size, total)

        self.is_fixed_width = (suffix_width == 0 < suffix_length and value_width == 0 < value_length
                               and flags & ONE_EPOCH and bitmap_size == 0 and prefix_size <= NEAR_BYTES)
        is_indexed = self.is_for_cache and not self.is_fixed_width and rows <= MAX_INDEXED_ROWS and (
            suffixes_size < MAX_INDEXED_SUFFIXES and values_size < MAX_INDEXED_VALUES)
        self.make_room(room_of(raw_size, rows) + (index_room(rows) if is_indexed else 0), raw_size)
        at = self.memory + HEADER_BYTES
        self.epochs = <const uint64_t*>at
        at += epochs_size
        self.tombstones = at if bitmap_size else NULL
        at += bitmap_size
        offsets = <uint32_t*>(self.memory + offsets_at)
        self.longest_suffix = suffix_length
        if (for_spans or not are_equal(suffix_width, rows, suffix_length, suffixes_size)) and not expand_lengths(
                at, suffix_width, rows, suffix_length, suffixes_size, offsets, &self.longest_suffix):
            self.corrupt(index, "suffix lengths", suffixes_size, offsets[rows])
        self.suffix_offsets = offsets
        at += <Py_ssize_t>rows * suffix_width
        offsets += rows + 1
        if (for_spans or bitmap_size > 0 or not are_equal(value_width, rows, value_length, values_size)) and (
                not expand_lengths(at, value_width, rows, value_length, values_size, offsets, &longest_value)):
            self.corrupt(index, "value lengths", values_size, offsets[rows])
        self.value_offsets = offsets
        self.heads_room = <uint64_t*>(offsets + rows + 1)
        at += <Py_ssize_t>rows * value_width
        self.prefix.data, self.prefix.size = at, prefix_size
        if prefix_size <= NEAR_BYTES:
            memcpy(self.near_prefix, at, prefix_size)
            self.prefix.data = self.near_prefix
        self.suffixes = at + prefix_size
        self.values = self.suffixes + suffixes_size
        self.one_epoch = (flags & ONE_EPOCH) != 0
        self.unique_keys = (flags & UNIQUE_KEYS) != 0
        self.rows = rows
        self.each_suffix = suffix_length if suffix_width == 0 else 0
        self.each_value = value_length if value_width == 0 else 0
        self.suffix_bytes, self.value_bytes = <float>suffixes_size / rows, <float>values_size / rows
        self.check_tombstones(index)
        self.max_epoch = self.min_epoch = self.epochs[0]
        for row in range(1, 1 if self.one_epoch else self.rows):
            self.max_epoch = self.epochs[row] if self.epochs[row] > self.max_epoch else self.max_epoch
            self.min_epoch = self.epochs[row] if self.epochs[row] < self.min_epoch else self.min_epoch
        self.size_bytes = sizeof(Block) + slab_share(self.memory_bytes)
        if is_indexed:
            self.index_rows()
        return 0

    cdef int check_tombstones(self, Py_ssize_t index) except -1 nogil:
        cdef Py_ssize_t row, rows = self.rows
        if self.tombstones == NULL:
            return 0
        for row in range(rows):
            if (self.tombstones[row >> 3] >> (row & 7)) & 1 and (
                    self.value_offsets[row + 1] != self.value_offsets[row]):
                self.rows = 0
                self.corrupt(index, "the value of a tombstone", 0, row)
        if rows & 7 and self.tombstones[rows >> 3] >> (rows & 7):
            self.rows = 0
            self.corrupt(index, "the end of the tombstones", 0, self.tombstones[rows >> 3])
        return 0

    cdef void index_rows(self) noexcept nogil:
        cdef uint8_t key[MAX_INDEXED_KEY]
        cdef Py_ssize_t row, prefix = self.prefix.size
        cdef Slice suffix, before
        if prefix + <Py_ssize_t>self.longest_suffix > MAX_INDEXED_KEY:
            return
        self.bucket_count = buckets_for(self.rows)
        self.buckets = <uint64_t*>(
            (<uintptr_t>(self.heads_room + self.rows) + BUCKET_BYTES - 1) & ~<uintptr_t>(BUCKET_BYTES - 1))
        memset(self.buckets, 0, <size_t>(self.bucket_count * BUCKET_BYTES))
        memcpy(key, self.prefix.data, <size_t>prefix)
        before.data, before.size = NULL, -1
        for row in range(self.rows):
            suffix = self.suffix_at(row)
            if self.unique_keys or suffix.size != before.size or not same_bytes(
                    suffix.data, before.data, suffix.size):
                copy_bytes(key + prefix, suffix.data, suffix.size)
                put_entry(self.buckets, self.bucket_count, hash64(key, prefix + suffix.size), row,
                          self.suffix_offsets[row], self.value_offsets[row])
            before = suffix

    cdef void show_in(self, CacheSlot* slot) noexcept nogil:
        memset(slot, 0, sizeof(CacheSlot))
        slot.value_bytes = self.value_bytes
        slot.is_hashed = self.buckets != NULL
        if slot.is_hashed:
            slot.heads, slot.rows = self.buckets, <uint32_t>self.bucket_count
            return
        slot.heads, slot.rows = self.ready_heads(), <uint32_t>self.rows
        slot.values_before = <uint32_t>(<const uint8_t*>self.heads_room - self.values)
        slot.each_suffix, slot.each_value, slot.epoch = self.each_suffix, self.each_value, self.max_epoch
        slot.is_fixed_width = self.is_fixed_width
        if slot.is_fixed_width:
            slot.prefix_size = <uint8_t>self.prefix.size
            memcpy(slot.prefix, self.near_prefix, NEAR_BYTES)

    cdef bint span_from(self, Py_ssize_t row, Span* out, bint as_rows) noexcept nogil:
        if as_rows and (not self.unique_keys or self.tombstones != NULL):
            return False
        out.prefix, out.longest_key = self.prefix, self.prefix.size + <Py_ssize_t>self.longest_suffix
        out.key_offsets, out.key_data = self.suffix_offsets, self.suffixes
        out.value_offsets, out.value_data = self.value_offsets, self.values
        out.epochs, out.one_epoch = self.epochs, self.one_epoch
        out.max_epoch, out.min_epoch = self.max_epoch, self.min_epoch
        out.marks, out.marks_at, out.marks_puts = self.tombstones, 0, False
        out.row, out.end = row, self.rows
        return True

    cdef const uint64_t* ready_heads(self) noexcept nogil:
        cdef uint64_t* heads = __atomic_load_n(&self.heads, __ATOMIC_ACQUIRE)
        cdef Slice suffix
        cdef Py_ssize_t row
        if heads != NULL:
            return heads
        for row in range(self.rows):            # concurrent threads write the same values
            suffix = self.suffix_at(row)
            self.heads_room[row] = head_of(suffix.data, suffix.size)
        __atomic_store_n(&self.heads, self.heads_room, __ATOMIC_RELEASE)
        return self.heads_room

    cdef void prefetch_row(self, Py_ssize_t row) noexcept nogil:
        cdef uint64_t* heads = __atomic_load_n(&self.heads, __ATOMIC_ACQUIRE)
        cdef const uint8_t* value
        cdef PrefetchList lines
        lines.count = 0
        row = row if row < self.rows else self.rows - 1
        value = self.values + (row * self.each_value if self.each_value else <Py_ssize_t>(self.value_bytes * row))
        enqueue(&lines, heads + row)            # `heads` may be NULL: a prefetch never faults
        enqueue_value(&lines, value, self.value_bytes)
        if self.each_value == 0:
            enqueue(&lines, self.value_offsets + row)
        if self.each_suffix == 0:
            enqueue(&lines, self.suffix_offsets + row)
        if self.longest_suffix > 8:
            enqueue(&lines, self.suffixes + <Py_ssize_t>(self.suffix_bytes * row))
        if self.prefix.size > NEAR_BYTES:
            enqueue(&lines, self.prefix.data)
        if not self.one_epoch:
            enqueue(&lines, self.epochs + row)
        if self.tombstones != NULL:
            enqueue(&lines, self.tombstones + (row >> 3))
        issue(&lines)

    cdef bint is_version_of(self, Py_ssize_t row, Slice user_key, uint64_t epoch, Py_ssize_t known) noexcept nogil:
        cdef Slice suffix = self.suffix_at(row)
        if suffix.size != user_key.size - self.prefix.size or self.epoch_at(row) > epoch:
            return False
        return suffix.size <= known or memcmp(
            suffix.data + known, user_key.data + self.prefix.size + known, <size_t>(suffix.size - known)) == 0

    cdef Py_ssize_t lower_bound(self, Slice user_key, uint64_t epoch) noexcept nogil:
        cdef Py_ssize_t shared = self.prefix.size if self.prefix.size < user_key.size else user_key.size
        cdef int order = memcmp(user_key.data, self.prefix.data, <size_t>shared) if shared > 0 else 0
        cdef const uint64_t* heads
        cdef const uint64_t* base
        cdef Slice suffix
        cdef uint64_t head
        cdef Py_ssize_t count = self.rows, half
        if count == 0 or order < 0 or (order == 0 and user_key.size < self.prefix.size):
            return 0
        if order > 0:
            return count
        suffix.data, suffix.size = user_key.data + shared, user_key.size - shared
        heads = self.ready_heads()
        head = head_of(suffix.data, suffix.size)
        base = heads
        while count > 1:
            half = count >> 1
            base += half if base[half - 1] < head else 0
            count -= half
        return self.search_equal_heads(suffix, head, epoch, (base - heads) + (base[0] < head))

    cdef Py_ssize_t search_equal_heads(
        self, Slice suffix, uint64_t head, uint64_t epoch, Py_ssize_t low
    ) noexcept nogil:
        cdef Py_ssize_t high = low
        while high < self.rows and self.heads_room[high] == head:
            high += 1
            if high - low == 16:
                high = self.rows
                break
        return self.search_rows(suffix, epoch, low, high)

    cdef Py_ssize_t search_rows(
        self, Slice suffix, uint64_t epoch, Py_ssize_t low, Py_ssize_t high
    ) noexcept nogil:
        """The first row of [low, high) at or after the target; `high` if all are before it."""
        cdef Py_ssize_t middle
        cdef int order
        while low < high:
            middle = (low + high) >> 1
            order = compare_bytes(self.suffix_at(middle), suffix)
            if order < 0 or (order == 0 and self.epoch_at(middle) > epoch):
                low = middle + 1
            else:
                high = middle
        return low

    cdef int corrupt(
        self, Py_ssize_t index, const char* where, Py_ssize_t expected, Py_ssize_t got
    ) except -1 with gil:
        raise Corruption(self.object_name, f"block {index}, {where.decode()}", expected, got)

    def find(self, bytes user_key, uint64_t epoch) -> int:
        """The row of the first entry at or after (user_key, epoch); `rows` if there is none."""
        cdef Slice target
        target = slice_of(user_key)
        return self.lower_bound(target, epoch)

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, Py_ssize_t row) -> tuple:
        """(user key, epoch, value or None) of a row."""
        cdef Slice suffix, value
        if row < 0 or row >= self.rows:
            raise IndexError(f"row {row} of a block of {self.rows} rows")
        suffix, value = self.suffix_at(row), self.value_at(row)
        key = (<const char*>self.prefix.data)[:self.prefix.size] + (<const char*>suffix.data)[:suffix.size]
        return key, self.epoch_at(row), None if value.data == NULL else (<const char*>value.data)[:value.size]


cdef Py_ssize_t room_of(Py_ssize_t raw_size, Py_ssize_t rows) noexcept nogil:
    return ((raw_size + PADDING + 7) & ~<Py_ssize_t>7) + 16 * rows + 8


cdef int raise_no_memory(Py_ssize_t wanted) except -1 with gil:
    raise MemoryError(f"no memory for {wanted} bytes of a block")


cdef uint64_t block_hash(Block block, Py_ssize_t first, Py_ssize_t end, uint8_t* key) noexcept nogil:
    cdef Py_ssize_t row, prefix = block.prefix.size
    cdef Slice suffix, value
    cdef uint64_t total = 0
    for row in range(first, end):
        suffix, value = block.suffix_at(row), block.value_at(row)
        memcpy(key + prefix, suffix.data, <size_t>suffix.size)
        total += row_hash(key, prefix + suffix.size, value.data, value.size, block.epoch_at(row))
    return total


def content_hash_of(Block block not None) -> int:
    """The content hash of all rows of a block."""
    cdef ByteBuffer key = ByteBuffer(block.prefix.size + <Py_ssize_t>block.longest_suffix)
    key.append(block.prefix.data, block.prefix.size)
    return block_hash(block, 0, block.rows, key.data)
