"""BytesInterner: assigns dense ids to encoded keys.

Keys are compared by their encoded bytes, hence equal iff the key encoding considers them equal: -0.0 equals 0.0, NaN
equals itself, NULL too. A lookup processes blocks of rows and touches memory in steps (hash, slot, key position, key
bytes), each step prefetching the reads of the next one; with a million keys nearly every one of those reads would miss
the cache otherwise. One writer, no locks.
"""

cimport cython
from libc.string cimport memcpy

import numpy as np

from hummock.base.checksum cimport hash64
from hummock.base.prefetch cimport prefetch, prefetch_for_write
from hummock.columnar.binary_column cimport BinaryColumnBuilder
from relational.chunk.canonical cimport same_bytes
from relational.hash.slot_table cimport (
    CURRENT, EMPTY, MOVING, OLD, READY, Room, Slots, SlotTable, Tables, first_slot, put_in, slots_of, tag_of,
)

cdef enum:
    BLOCK = 32              # rows whose memory is prefetched together
    ROOM = 4096             # rows for which slots are allocated at a time
    KEPT_BYTES = 64 << 20   # larger buffers are released by `clear`
    MOST_KEYS = 0x7FFFFFF0


cdef inline bint same_key(Slice a, Slice b) noexcept nogil:
    return a.size == b.size and same_bytes(a.data, b.data, a.size)


@cython.final
cdef class BytesInterner:
    """A bijection between keys and the ids below `count`. Only `clear` changes ids."""

    def __init__(self):
        self.key_bytes = -1
        self.table, self.ends, self.arena = SlotTable(), ByteBuffer(), ByteBuffer()

    @property
    def size_bytes(self):
        """Memory used by slots, key positions and keys."""
        return self.table.size_bytes + self.ends.size + self.arena.size

    def find(self, BinaryColumn keys not None, const uint8_t[::1] visibility=None, bint is_adding=True):
        """The id of each row's key as int32[rows]; -1 for a hidden row.

        A new key gets the next id, so the new ids are `range(count before, count after)`; with `is_adding=False` it
        gets -1. `visibility` is None or uint8[rows]. ValueError for a null key.
        """
        ids = np.empty(keys.rows, np.int32)
        if keys.rows == 0:
            return ids
        cdef int32_t[::1] out = ids
        cdef const uint8_t* visible = NULL
        if visibility is not None:
            if visibility.shape[0] != keys.rows:
                raise ValueError(f"visibility of {visibility.shape[0]} rows for {keys.rows} keys")
            visible = &visibility[0]
        cdef Py_ssize_t first = 0, end, row, rows
        while first < keys.rows:
            end = min(keys.rows, first + ROOM)
            if is_adding:
                self.make_room(end - first)
            with nogil:
                row = first
                while row < end:
                    rows = min(end - row, <Py_ssize_t>BLOCK)
                    self.find_block(keys, visible, row, rows, &out[row], is_adding)
                    row += rows
            first = end
        return ids

    def keys(self, const int32_t[::1] ids not None):
        """The keys of `ids`, in that order, as a BinaryColumn. IndexError for an unassigned id."""
        cdef BinaryColumnBuilder builder = BinaryColumnBuilder()
        cdef Py_ssize_t row, rows = ids.shape[0], size = 0, wrong = -1
        with nogil:
            for row in range(rows):
                if ids[row] < 0 or ids[row] >= self.count:
                    wrong = row
                    break
                if self.key_bytes >= 0:
                    size += self.key_bytes
                    continue
                if row + 16 < rows and 0 <= ids[row + 16] < self.count:
                    prefetch(self.ends.data + 8 * <int64_t>ids[row + 16])
                size += self.key(ids[row]).size
        if wrong >= 0:
            raise IndexError(f"key number {ids[wrong]} of {self.count}")
        with nogil:
            builder.reserve(rows, size)
            for row in range(rows):
                if row + 16 < rows:
                    prefetch(self.key(ids[row + 16]).data)
                builder.append(self.key(ids[row]))
        return builder.finish()

    def add_from(self, BytesInterner source not None, const int32_t[::1] ids not None):
        """Gives the next ids to the keys of `ids` in another interner. REQUIRES that they are distinct, and not known
        here."""
        cdef uint64_t hashes[BLOCK]
        cdef Py_ssize_t first = 0, rows = ids.shape[0], block, row
        cdef Slice key
        self.make_room(rows)
        with nogil:
            while first < rows:
                block = min(rows - first, <Py_ssize_t>BLOCK)
                for row in range(first, first + block):
                    if row + BLOCK < rows:
                        source.prefetch_key(ids[row + BLOCK])
                    if source.key_bytes < 0:
                        prefetch(source.key(ids[row]).data)
                for row in range(block):
                    key = source.key(ids[first + row])
                    hashes[row] = hash64(key.data, key.size)
                    prefetch_for_write(first_slot(&self.table.tables, hashes[row]))
                for row in range(block):
                    self.table.put(hashes[row], <uint32_t>self.add_key(source.key(ids[first + row])))
                first += block

    cdef int clear(self) except -1:
        self.count = 0
        self.key_bytes = -1
        self.table.clear(KEPT_BYTES // sizeof(uint32_t))
        if self.arena.size > KEPT_BYTES:
            self.arena = ByteBuffer()
        if self.ends.size > KEPT_BYTES:
            self.ends = ByteBuffer()
        self.arena.size = 0
        self.ends.size = 0
        return 0

    cdef int make_room(self, Py_ssize_t more) except -1:
        cdef Room room
        if self.count + more > MOST_KEYS:
            raise OverflowError(f"{self.count} keys and {more} more: numbers are int32")
        room = self.table.make_room(self.count, more)
        if room == READY:
            return 0
        with nogil:
            if room == MOVING:
                self.move_keys()
            else:
                self.put_keys()
        return 0

    cdef void put_keys(self) noexcept nogil:
        """Puts all keys. REQUIRES that none of them has a slot."""
        cdef uint64_t hashes[BLOCK]
        cdef Py_ssize_t first = 0, block, row
        cdef Slice key
        while first < self.count:
            block = min(self.count - first, <Py_ssize_t>BLOCK)
            for row in range(block):
                key = self.key(first + row)
                hashes[row] = hash64(key.data, key.size)
                prefetch_for_write(first_slot(&self.table.tables, hashes[row]))
            for row in range(block):
                self.table.put(hashes[row], <uint32_t>(first + row))
            first += block

    cdef void move_keys(self) noexcept nogil:
        """Puts the keys that the table moves now."""
        cdef int32_t ids[2][BLOCK]          # the keys of one are read while those of the other are put
        cdef int i, next, now = 0, count = self.table.take(ids[0], BLOCK)
        cdef Slice key
        while count:
            next = self.table.take(ids[1 - now], BLOCK)
            for i in range(next):
                self.prefetch_key(ids[1 - now][i])
            if self.key_bytes < 0:
                for i in range(count):
                    prefetch(self.key(ids[now][i]).data)
            for i in range(count):
                key = self.key(ids[now][i])
                put_in(self.table.tables.slots[CURRENT], hash64(key.data, key.size), <uint32_t>ids[now][i])
            count, now = next, 1 - now

    cdef void prefetch_key(self, Py_ssize_t number) noexcept nogil:
        """The bytes of a key, or where they are if keys have several sizes."""
        prefetch(self.arena.data + number * self.key_bytes if self.key_bytes >= 0
                 else self.ends.data + 8 * <int64_t>number)

    cdef int find_block(self, BinaryColumn keys, const uint8_t* visible, Py_ssize_t first, Py_ssize_t rows,
                        int32_t* out, bint is_adding) except -1 nogil:
        if self.table.tables.slots[OLD].data == NULL:
            return self.find_in(keys, visible, first, rows, out, is_adding, False)
        return self.find_in(keys, visible, first, rows, out, is_adding, True)

    cdef inline int find_in(self, BinaryColumn keys, const uint8_t* visible, Py_ssize_t first, Py_ssize_t rows,
                            int32_t* out, bint is_adding, bint is_doubling) except -1 nogil:
        cdef uint64_t hashes[BLOCK]
        cdef Tables tables = self.table.tables      # a copy, which a store to a slot does not invalidate
        cdef Slots slots
        cdef uint32_t ids, tag
        cdef Slice key
        cdef Py_ssize_t row
        cdef uint64_t at
        for row in range(rows):
            key = keys.at(first + row)
            hashes[row] = hash64(key.data, key.size)
            prefetch(first_slot(&tables, hashes[row], is_doubling))
        for row in range(rows):
            slots = slots_of(&tables, hashes[row], is_doubling)
            at, tag, ids = hashes[row] >> slots.shift, tag_of(slots, hashes[row]), <uint32_t>slots.mask
            while slots.data[at] != EMPTY and (slots.data[at] & ~ids) != tag:
                at = (at + 1) & slots.mask
            out[row] = -1 if slots.data[at] == EMPTY else <int32_t>(slots.data[at] & ids)
            if out[row] >= 0:
                self.prefetch_key(out[row])
        for row in range(rows):
            if out[row] >= 0 and self.key_bytes < 0:
                prefetch(self.key(out[row]).data)
        for row in range(rows):
            if visible != NULL and not visible[first + row]:
                out[row] = -1
                continue
            if keys.is_null(first + row):
                with gil:
                    raise ValueError(f"row {first + row} has no key")
            key = keys.at(first + row)
            if out[row] < 0 or not same_key(key, self.key(out[row])):
                out[row] = self.find_one(key, hashes[row], is_adding)
        return 0

    cdef int32_t find_one(self, Slice key, uint64_t hash, bint is_adding) except -2 nogil:
        cdef Slots slots = slots_of(&self.table.tables, hash)
        cdef uint32_t ids = <uint32_t>slots.mask, tag = tag_of(slots, hash)
        cdef uint64_t at = hash >> slots.shift
        cdef int32_t found
        while slots.data[at] != EMPTY:
            if (slots.data[at] & ~ids) == tag and same_key(key, self.key(slots.data[at] & ids)):
                return <int32_t>(slots.data[at] & ids)
            at = (at + 1) & slots.mask
        if not is_adding:
            return -1
        found = self.add_key(key)
        slots.data[at] = tag | <uint32_t>found
        return found

    cdef int32_t add_key(self, Slice key) except -2 nogil:
        if self.count == 0:
            self.key_bytes = key.size
        elif self.key_bytes >= 0 and key.size != self.key_bytes:
            self.note_ends()
        if self.arena.capacity - self.arena.size < key.size:
            self.arena.reserve(key.size)
        memcpy(self.arena.data + self.arena.size, key.data, <size_t>key.size)
        if self.key_bytes < 0:
            if self.ends.capacity - self.ends.size < <Py_ssize_t>sizeof(int64_t):
                self.ends.reserve(sizeof(int64_t))
            (<int64_t*>self.ends.data)[self.count] = self.arena.size + key.size
            self.ends.size += sizeof(int64_t)
        self.arena.size += key.size                     # behind all that may fail
        self.count += 1
        return <int32_t>(self.count - 1)

    cdef int note_ends(self) except -1 nogil:
        cdef Py_ssize_t number
        self.ends.reserve(self.count * sizeof(int64_t))
        for number in range(self.count):
            (<int64_t*>self.ends.data)[number] = (number + 1) * self.key_bytes
        self.ends.size = self.count * sizeof(int64_t)
        self.key_bytes = -1
        return 0
