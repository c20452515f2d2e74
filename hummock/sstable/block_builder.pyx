"""BlockBuilder: encodes entries into a payload as specified in block_format.pxd. One writer, no GIL."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove, memset

from hummock.base.coding cimport put_u32
from hummock.base.key cimport Slice, compare_bytes, copy_bytes, shared_size, slice_of
from hummock.columnar.buffer_pool cimport pool_acquire, pool_capacity, pool_grow, pool_release
from hummock.sstable.block_format cimport HAS_TOMBSTONES, HEADER_BYTES, ONE_EPOCH, UNIQUE_KEYS, width_of

cdef enum:
    ROW_BYTES = 17              # per row in a builder's arrays
    FIRST_ROWS = 1024
    FIRST_BYTES = 128 << 10


cdef class BlockBuilder:
    """Collects the entries of one block and encodes them.

    Keys, sizes and epochs grow in separate arrays; values are written behind free headroom, which receives the other
    columns at the end, so that values are copied once.
    """

    def __cinit__(self):
        self.clear()

    def __dealloc__(self):
        pool_release(self.keys, self.keys_capacity)
        pool_release(self.values, self.values_capacity)
        pool_release(<uint8_t*>self.epochs, ROW_BYTES * self.rows_capacity)

    cdef void clear(self) noexcept nogil:
        self.rows = self.keys_bytes = self.values_bytes = self.deletes = 0
        self.longest_key = self.longest_value = 0
        self.shortest_key = self.shortest_value = 0xFFFFFFFF
        self.max_epoch = 0
        self.one_epoch = self.unique_keys = True

    cdef int add(self, Slice user_key, uint64_t epoch, Slice value) except -1 nogil:
        return self.append(
            user_key, epoch, value, self.rows > 0 and compare_bytes(self.last_key(), user_key) == 0)

    cdef int append(self, Slice user_key, uint64_t epoch, Slice value, bint same_key) except -1 nogil:
        cdef Py_ssize_t row = self.rows
        cdef uint32_t key_size = <uint32_t>user_key.size, value_size = <uint32_t>value.size
        if row == self.rows_capacity:
            self.grow_rows()
        if self.keys_bytes + user_key.size > self.keys_capacity:
            self.grow_keys(self.keys_bytes + user_key.size)
        if self.headroom + self.values_bytes + value.size > self.values_capacity:
            self.grow_values(self.values_bytes + value.size, self.headroom)
        if row == 0:
            self.first_key_size = user_key.size
        else:
            self.unique_keys = self.unique_keys and not same_key
            self.one_epoch = self.one_epoch and epoch == self.last_epoch
        copy_bytes(self.keys + self.keys_bytes, user_key.data, user_key.size)
        copy_bytes(self.values + self.headroom + self.values_bytes, value.data, value.size)
        self.last_key_at, self.last_key_size, self.last_epoch = self.keys_bytes, user_key.size, epoch
        self.keys_bytes += user_key.size
        self.values_bytes += value.size
        self.key_sizes[row], self.value_sizes[row], self.epochs[row] = key_size, value_size, epoch
        self.max_epoch = epoch if epoch > self.max_epoch else self.max_epoch
        self.is_delete[row] = value.data == NULL
        self.deletes += value.data == NULL
        self.longest_key = key_size if key_size > self.longest_key else self.longest_key
        self.shortest_key = key_size if key_size < self.shortest_key else self.shortest_key
        self.longest_value = value_size if value_size > self.longest_value else self.longest_value
        self.shortest_value = value_size if value_size < self.shortest_value else self.shortest_value
        self.rows = row + 1
        return 0

    cdef int grow_rows(self) except -1 nogil:
        """Grows the pooled buffer of the four arrays: epochs, key sizes, value sizes, tombstone flags."""
        cdef Py_ssize_t rows = self.rows, wanted = self.rows_capacity * 2 if self.rows_capacity > 0 else FIRST_ROWS
        cdef uint8_t* grown = pool_acquire(ROW_BYTES * wanted)
        if grown == NULL:
            raise_no_memory(ROW_BYTES * wanted)
        if rows > 0:
            memcpy(grown, self.epochs, <size_t>(8 * rows))
            memcpy(grown + 8 * wanted, self.key_sizes, <size_t>(4 * rows))
            memcpy(grown + 12 * wanted, self.value_sizes, <size_t>(4 * rows))
            memcpy(grown + 16 * wanted, self.is_delete, <size_t>rows)
        pool_release(<uint8_t*>self.epochs, ROW_BYTES * self.rows_capacity)
        self.epochs, self.key_sizes = <uint64_t*>grown, <uint32_t*>(grown + 8 * wanted)
        self.value_sizes, self.is_delete = <uint32_t*>(grown + 12 * wanted), grown + 16 * wanted
        self.rows_capacity = wanted
        return 0

    cdef int grow_keys(self, Py_ssize_t wanted) except -1 nogil:
        cdef uint8_t* grown
        if wanted < self.keys_capacity * 2:
            wanted = self.keys_capacity * 2
        wanted = pool_capacity(wanted if wanted > FIRST_BYTES else FIRST_BYTES)
        grown = pool_grow(self.keys, self.keys_capacity, self.keys_bytes, wanted)
        if grown == NULL:
            raise_no_memory(wanted)
        self.keys, self.keys_capacity = grown, wanted
        return 0

    cdef int grow_values(self, Py_ssize_t wanted, Py_ssize_t headroom) except -1 nogil:
        """Grows to `wanted` bytes of values behind `headroom` free bytes; neither shrinks."""
        cdef Py_ssize_t capacity
        cdef uint8_t* grown
        if headroom < FIRST_BYTES >> 3:
            headroom = FIRST_BYTES >> 3
        capacity = headroom + (wanted if wanted > FIRST_BYTES else FIRST_BYTES)
        if capacity > self.values_capacity:
            capacity = pool_capacity(capacity + (wanted >> 1))
            grown = pool_grow(self.values, self.values_capacity, self.headroom + self.values_bytes, capacity)
            if grown == NULL:
                raise_no_memory(capacity)
            self.values, self.values_capacity = grown, capacity
        if headroom > self.headroom:
            memmove(self.values + headroom, self.values + self.headroom, <size_t>self.values_bytes)
            self.headroom = headroom
        return 0

    cdef Py_ssize_t shared_prefix(self) noexcept nogil:
        return shared_size(self.keys, self.keys + self.last_key_at, min(self.first_key_size, self.last_key_size))

    cdef Py_ssize_t front_bytes(self, Py_ssize_t shared) noexcept nogil:
        cdef uint32_t less = <uint32_t>shared
        cdef int widths = (width_of(self.shortest_key - less, self.longest_key - less)
                           + width_of(self.shortest_value, self.longest_value))
        return (HEADER_BYTES + (8 if self.one_epoch else 8 * self.rows)
                + ((self.rows + 7) >> 3 if self.deletes > 0 else 0)
                + self.rows * widths + shared + self.keys_bytes - shared * self.rows)

    cdef Py_ssize_t raw_bytes(self) noexcept nogil:
        return 0 if self.rows == 0 else self.front_bytes(self.shared_prefix()) + self.values_bytes

    cdef int encode(self, Slice* payload) except -1 nogil:
        cdef Py_ssize_t shared = self.shared_prefix()
        cdef Py_ssize_t front = self.front_bytes(shared)
        if front > self.headroom or self.values == NULL:
            self.grow_values(self.values_bytes, front + (front >> 2))
        self.write_front(self.values + self.headroom - front, shared)
        payload.data = self.values + self.headroom - front
        payload.size = front + self.values_bytes
        return 0

    cdef void write_front(self, uint8_t* at, Py_ssize_t shared) noexcept nogil:
        cdef Py_ssize_t row, rows = self.rows, size
        cdef uint32_t less = <uint32_t>shared
        cdef int key_width = width_of(self.shortest_key - less, self.longest_key - less)
        cdef int value_width = width_of(self.shortest_value, self.longest_value)
        cdef uint32_t suffix
        cdef const uint8_t* key = self.keys
        at = put_u32(at, <uint32_t>rows)
        at[0] = ((ONE_EPOCH if self.one_epoch else 0) | (HAS_TOMBSTONES if self.deletes > 0 else 0)
                 | (UNIQUE_KEYS if self.unique_keys else 0))
        at[1], at[2], at[3] = <uint8_t>key_width, <uint8_t>value_width, 0
        at = put_u32(at + 4, <uint32_t>shared)
        at = put_u32(at, 0 if key_width else self.longest_key - less)
        at = put_u32(at, 0 if value_width else self.longest_value)
        at = put_u32(at, <uint32_t>(self.keys_bytes - shared * rows))
        at = put_u32(at, <uint32_t>self.values_bytes)
        at = put_u32(at, 0)
        size = 8 if self.one_epoch else 8 * rows
        memcpy(at, self.epochs, <size_t>size)
        at += size
        if self.deletes > 0:
            at = put_bitmap(at, self.is_delete, rows)
        at = put_lengths(at, self.key_sizes, rows, less, key_width)
        at = put_lengths(at, self.value_sizes, rows, 0, value_width)
        memcpy(at, key, <size_t>shared)
        at += shared
        for row in range(rows):
            suffix = self.key_sizes[row] - less
            copy_bytes(at, key + shared, suffix)
            at += suffix
            key += self.key_sizes[row]

    def put(self, bytes user_key, uint64_t epoch, value) -> None:
        """Adds one entry; `value` None is a tombstone. REQUIRES a full key after all previous ones."""
        cdef Slice key, payload
        cdef bytes held = value if value is not None else b""
        key = slice_of(user_key)
        payload.data = NULL if value is None else <const uint8_t*><const char*>held
        payload.size = len(held)
        self.add(key, epoch, payload)

    def finish(self) -> bytes:
        """The uncompressed payload of the entries so far; clears the builder. ValueError if there are none."""
        cdef Slice payload
        if self.rows == 0:
            raise ValueError("a block has at least one entry")
        self.encode(&payload)
        self.clear()
        return (<const char*>payload.data)[:payload.size]


cdef uint8_t* put_bitmap(uint8_t* at, const uint8_t* marks, Py_ssize_t rows) noexcept nogil:
    cdef Py_ssize_t row
    memset(at, 0, <size_t>((rows + 7) >> 3))
    for row in range(rows):
        at[row >> 3] |= <uint8_t>(marks[row] << (row & 7))
    return at + ((rows + 7) >> 3)


cdef uint8_t* put_lengths(
    uint8_t* at, const uint32_t* sizes, Py_ssize_t rows, uint32_t less, int width
) noexcept nogil:
    """Writes `sizes` minus `less`, `width` bytes each."""
    cdef Py_ssize_t row
    cdef uint16_t length
    if width == 1:
        for row in range(rows):
            at[row] = <uint8_t>(sizes[row] - less)
    elif width == 2:
        for row in range(rows):
            length = <uint16_t>(sizes[row] - less)
            memcpy(at + 2 * row, &length, 2)
    elif width == 4:
        for row in range(rows):
            put_u32(at + 4 * row, sizes[row] - less)
    return at + width * rows


cdef int raise_no_memory(Py_ssize_t wanted) except -1 with gil:
    raise MemoryError(f"no memory for {wanted} bytes of a block")
