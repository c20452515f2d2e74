"""RowCache: the newest rows of one table under a byte budget, and which keys are known to have none.

Records lie in a ring in the order in which they came; the oldest goes first, unless it was asked for since: then it is
spared once and moves to the front. Where more rows go than are found again, only every second key, fourth, eighth …
is kept when it is missed, always the same ones, until they have room. All memory, the table of places included, is of
the budget, and it is touched only as it is filled. One thread at a time.
"""

cimport cython
from libc.string cimport memcmp, memcpy, memmove, memset

import numpy as np

from hummock.base.checksum cimport hash64
from hummock.base.key cimport begins_with, compare_bytes, slice_of
from hummock.columnar.binary_column cimport BinaryColumnBuilder
from hummock.columnar.buffer_pool cimport pool_give, pool_take
from hummock.columnar.write_batch cimport KvBatch

cdef extern from * nogil:
    void __builtin_prefetch(const void*, ...) noexcept

cdef enum:
    BLOCK = 32              # rows whose memory is asked for together
    BYTES_PER_PLACE = 64    # of the budget
    FEWEST_PLACES = 16
    SHARE = 8               # a record may take so much of the ring at most: an eighth
    WINDOW = 4096           # keys between two thoughts about what is kept
    MOST_PASSED_OVER = 4
    SPARED = 16             # records that are spared for one that comes
    VNODE_END = 6           # of a user key: what stands behind is the table key


@cython.final
cdef class RowCache:
    """Every record is what the store has under its key; whoever writes there says so by `update`."""

    def __init__(self, Py_ssize_t budget_bytes):
        """ValueError for a budget that holds nothing."""
        self.most_places = FEWEST_PLACES
        while 2 * self.most_places * BYTES_PER_PLACE <= budget_bytes and self.most_places < 1 << 30:
            self.most_places *= 2
        self.budget_bytes = budget_bytes
        self.ring_bytes = (budget_bytes - self.most_places * <int64_t>sizeof(Place)) & ~7
        if self.ring_bytes < <int64_t>(SHARE * sizeof(Record)):
            raise ValueError(f"a row cache of {budget_bytes} bytes")
        self.ring = pool_take(self.ring_bytes)
        if self.ring == NULL:
            raise MemoryError(f"no memory for a row cache of {budget_bytes} bytes")
        self.resize(FEWEST_PLACES)

    def __dealloc__(self):
        pool_give(<uint8_t*>self.places, (<Py_ssize_t>self.mask + 1) * sizeof(Place))
        pool_give(self.ring, self.ring_bytes)

    def __len__(self):
        """Keys of which something is known."""
        return self.count

    @property
    def held_bytes(self):
        """Of the budget what was touched so far: places and the filled part of the ring."""
        filled = max(self.end, self.head) if self.is_wrapped else self.head
        return filled + (<Py_ssize_t>self.mask + 1) * <Py_ssize_t>sizeof(Place)

    def get_many(self, BinaryColumn keys not None, fetch):
        """The values under `keys`, null where there is no row: from here, else those of `fetch`, which is called at
        most once, with a BinaryColumn of the keys that are not known, and is kept.
        """
        cdef BinaryColumnBuilder asked = BinaryColumnBuilder(), out = BinaryColumnBuilder()
        cdef BinaryColumn wanted, fetched = None
        cdef Py_ssize_t row, rows = keys.rows, next_fetched = 0
        cdef const Record* record
        if rows == 0:
            return BinaryColumn.from_arrow(fetch(keys))
        offsets = np.empty(rows, np.int64)
        cdef int64_t[::1] found = offsets
        with nogil:
            self.find_all(keys, &found[0], asked)
        wanted = asked.finish()
        self.hits += rows - wanted.rows
        self.misses += wanted.rows
        self.think_over()
        if wanted.rows:
            fetched = BinaryColumn.from_arrow(fetch(wanted))
            if fetched.rows != wanted.rows:
                raise ValueError(f"{fetched.rows} values for {wanted.rows} keys")
            if wanted.rows == rows:
                with nogil:
                    self.put_all(wanted, fetched)
                return fetched
        with nogil:
            for row in range(rows):
                if found[row] < 0:
                    if fetched.is_null(next_fetched):
                        out.append_null()
                    else:
                        out.append(fetched.at(next_fetched))
                    next_fetched += 1
                    continue
                record = <const Record*>(self.ring + found[row])
                if record.value_size < 0:
                    out.append_null()
                else:
                    out.append(value_of(record))
            if fetched is not None:
                self.put_all(wanted, fetched)
        return out.finish()

    def update(self, KvBatch batch not None):
        """The rows of `batch` were written: what is known of their keys is this, null being no row."""
        cdef Py_ssize_t row, first = 0, rows
        cdef int64_t found[BLOCK]
        cdef uint32_t tag
        if self.count == 0:
            return
        with nogil:
            while first < batch.keys.rows:
                rows = min(batch.keys.rows - first, <Py_ssize_t>BLOCK)
                self.find_block(batch.keys, first, rows, found)
                for row in range(rows):
                    # a record found before may have been moved or evicted for one of this block
                    if found[row] >= 0:
                        tag = tag_of(batch.keys.at(first + row))
                        if self.find(batch.keys.at(first + row), tag) != NULL:
                            self.put(batch.keys.at(first + row), tag, batch.values.at(first + row),
                                     batch.values.is_null(first + row))
                first += rows

    def keep_vnodes(self, const uint8_t[::1] owned):
        """Forgets the rows of all vnodes but those marked in uint8[vnode count]."""
        cdef int64_t at = self.tail, left = self.records
        cdef Record* record
        cdef const uint8_t* key
        cdef Py_ssize_t vnode
        with nogil:
            while left > 0:
                if self.is_wrapped and at == self.end:
                    at = 0
                record = <Record*>(self.ring + at)
                if record.is_live:
                    key = key_of(record).data
                    vnode = <Py_ssize_t>key[4] << 8 | key[5]
                    if vnode >= owned.shape[0] or not owned[vnode]:
                        self.forget(record)
                at += record.span
                left -= 1

    def pass_by(self, bytes mark not None, bint is_descending):
        """A watermark passes rows whose table key is below `mark` (above): they are neither kept nor given. One that
        was further stays.
        """
        further = min if is_descending else max
        self.mark, self.is_descending = mark if self.mark is None else further(mark, self.mark), is_descending
        self.passed = slice_of(self.mark)

    def clear(self):
        """Nothing is known any more; the watermark stays."""
        memset(self.places, 0, (<size_t>self.mask + 1) * sizeof(Place))
        self.count = self.records = 0
        self.head = self.tail = self.end = 0
        self.is_wrapped = False

    cdef int find_all(self, BinaryColumn keys, int64_t* out, BinaryColumnBuilder asked) except -1 nogil:
        cdef Py_ssize_t first = 0, row, rows
        while first < keys.rows:
            rows = min(keys.rows - first, <Py_ssize_t>BLOCK)
            self.find_block(keys, first, rows, out + first)
            for row in range(first, first + rows):
                if out[row] >= 0 and self.is_passed(keys.at(row)):
                    out[row] = -1
                if out[row] < 0:
                    asked.append(keys.at(row))
                else:
                    (<Record*>(self.ring + out[row])).is_asked = True
            first += rows
        return 0

    cdef int find_block(self, BinaryColumn keys, Py_ssize_t first, Py_ssize_t rows, int64_t* out) except -1 nogil:
        cdef uint32_t tags[BLOCK]
        cdef Record* record
        cdef Py_ssize_t row
        cdef uint32_t at
        for row in range(rows):
            tags[row] = tag_of(keys.at(first + row))
            __builtin_prefetch(self.places + (tags[row] & self.mask))
        for row in range(rows):
            at = tags[row] & self.mask
            while self.places[at].at != 0 and self.places[at].tag != tags[row]:
                at = (at + 1) & self.mask
            if self.places[at].at != 0:
                __builtin_prefetch(self.ring + ((<int64_t>self.places[at].at - 1) << 3))
                __builtin_prefetch(self.ring + ((<int64_t>self.places[at].at - 1) << 3) + 64)
        for row in range(rows):
            record = self.find(keys.at(first + row), tags[row])
            out[row] = -1 if record == NULL else <uint8_t*>record - self.ring
        return 0

    cdef Record* find(self, Slice key, uint32_t tag) noexcept nogil:
        cdef uint32_t at = tag & self.mask
        cdef Record* record
        while self.places[at].at != 0:
            if self.places[at].tag == tag:
                record = <Record*>(self.ring + ((<int64_t>self.places[at].at - 1) << 3))
                if record.key_size == key.size and memcmp(key_of(record).data, key.data, <size_t>key.size) == 0:
                    return record
            at = (at + 1) & self.mask
        return NULL

    cdef bint is_passed(self, Slice key) noexcept nogil:
        if self.passed.data == NULL:
            return False
        key.data += VNODE_END
        key.size -= VNODE_END
        if not self.is_descending:
            return compare_bytes(key, self.passed) < 0
        return compare_bytes(key, self.passed) > 0 and not begins_with(key, self.passed)

    cdef void think_over(self) noexcept nogil:
        cdef int64_t hits = self.hits - self.seen_hits, evictions = self.evictions - self.seen_evictions
        if hits + self.misses - self.seen_misses < WINDOW:
            return
        if evictions > hits:
            self.passed_over = min(self.passed_over + 1, <int32_t>MOST_PASSED_OVER)
        elif evictions == 0:
            self.passed_over = max(self.passed_over - 1, <int32_t>0)
        self.seen_hits, self.seen_misses, self.seen_evictions = self.hits, self.misses, self.evictions

    cdef int put_all(self, BinaryColumn keys, BinaryColumn values) except -1 nogil:
        cdef uint32_t chosen = (<uint32_t>1 << self.passed_over) - 1, tag
        cdef Py_ssize_t row
        for row in range(keys.rows):
            tag = tag_of(keys.at(row))
            if (tag >> 27) & chosen == 0 and not self.is_passed(keys.at(row)):
                self.put(keys.at(row), tag, values.at(row), values.is_null(row))
        return 0

    cdef int put(self, Slice key, uint32_t tag, Slice value, bint is_absent) except -1 nogil:
        cdef Record* record = self.find(key, tag)
        cdef int64_t span = (<int64_t>sizeof(Record) + key.size + (0 if is_absent else value.size) + 7) & ~7, offset
        cdef uint32_t at
        if record != NULL:
            if span <= record.span:
                write_value(record, value, is_absent)
                return 0
            self.forget(record)
        if span * SHARE > self.ring_bytes:
            return 0
        self.make_place()
        offset = self.room(span)
        record = <Record*>(self.ring + offset)
        record.tag, record.span, record.key_size = tag, <uint32_t>span, <int32_t>key.size
        record.is_live, record.is_asked = True, False
        memcpy(<uint8_t*>record + sizeof(Record), key.data, <size_t>key.size)
        write_value(record, value, is_absent)
        at = tag & self.mask
        while self.places[at].at != 0:
            at = (at + 1) & self.mask
        self.places[at].tag, self.places[at].at = tag, <uint32_t>(offset >> 3) + 1
        self.count += 1
        return 0

    cdef int make_place(self) except -1 nogil:
        cdef int64_t turns = 0
        if 4 * (self.count + 1) > 3 * (<int64_t>self.mask + 1) and self.mask + 1 < self.most_places:
            self.resize(2 * (<int64_t>self.mask + 1))
        while 4 * (self.count + 1) > 3 * (<int64_t>self.mask + 1):
            self.evict(turns < SPARED)
            turns += 1
        return 0

    cdef int resize(self, int64_t places) except -1 nogil:
        cdef Place* old = self.places
        cdef int64_t number = <int64_t>self.mask + 1 if old != NULL else 0, i
        cdef uint32_t mask = <uint32_t>(places - 1), at
        self.places = <Place*>pool_take(places * sizeof(Place))
        if self.places == NULL:
            self.places = old
            with gil:
                raise MemoryError(f"no memory for {places} places of a row cache")
        self.mask = mask
        memset(self.places, 0, places * sizeof(Place))
        for i in range(number):
            if old[i].at == 0:
                continue
            at = old[i].tag & mask
            while self.places[at].at != 0:
                at = (at + 1) & mask
            self.places[at] = old[i]
        pool_give(<uint8_t*>old, number * sizeof(Place))
        return 0

    cdef int64_t room(self, int64_t span) noexcept nogil:
        cdef int64_t offset, spared = 0, moved
        while True:
            if self.records == 0:
                self.head = self.tail = 0
                self.is_wrapped = False
            if not self.is_wrapped:
                if self.ring_bytes - self.head >= span:
                    break
                self.end, self.head, self.is_wrapped = self.head, 0, True
            if self.tail == self.end:
                self.tail, self.is_wrapped = 0, False
            elif self.tail - self.head >= span:
                break
            else:
                moved = self.head
                self.evict(spared < SPARED)
                spared += self.head != moved
        offset = self.head
        self.head += span
        self.records += 1
        return offset

    cdef void evict(self, bint is_sparing) noexcept nogil:
        cdef Record* record
        cdef int64_t span
        cdef uint32_t at
        if self.is_wrapped and self.tail == self.end:
            self.tail, self.is_wrapped = 0, False
        record = <Record*>(self.ring + self.tail)
        span = record.span
        self.tail += span
        if (record.is_live and record.is_asked and is_sparing
                and (self.is_wrapped or self.ring_bytes - self.head >= span)):
            record.is_asked = False
            at = self.place_at(record)
            memmove(self.ring + self.head, record, <size_t>span)
            self.places[at].at = <uint32_t>(self.head >> 3) + 1
            self.head += span
            return
        if record.is_live:
            self.forget(record)
            self.evictions += 1
        self.records -= 1

    cdef uint32_t place_at(self, const Record* record) noexcept nogil:
        cdef uint32_t at = record.tag & self.mask, wanted = <uint32_t>((<const uint8_t*>record - self.ring) >> 3) + 1
        while self.places[at].at != wanted:
            at = (at + 1) & self.mask
        return at

    cdef void forget(self, Record* record) noexcept nogil:
        """The places behind move up, so that no search ends before what it looks for."""
        cdef uint32_t hole = self.place_at(record), at = hole, home
        record.is_live = False
        self.count -= 1
        while True:
            at = (at + 1) & self.mask
            if self.places[at].at == 0:
                break
            home = self.places[at].tag & self.mask
            if ((at - home) & self.mask) >= ((at - hole) & self.mask):
                self.places[hole] = self.places[at]
                hole = at
        self.places[hole].at = 0


cdef inline uint32_t tag_of(Slice key) noexcept nogil:
    return <uint32_t>(hash64(key.data, key.size) >> 32)


cdef inline Slice key_of(const Record* record) noexcept nogil:
    cdef Slice out
    out.data, out.size = <const uint8_t*>record + sizeof(Record), record.key_size
    return out


cdef inline Slice value_of(const Record* record) noexcept nogil:
    cdef Slice out
    out.data, out.size = <const uint8_t*>record + sizeof(Record) + record.key_size, record.value_size
    return out


cdef inline void write_value(Record* record, Slice value, bint is_absent) noexcept nogil:
    record.value_size = -1 if is_absent else <int32_t>value.size
    if not is_absent:
        memcpy(<uint8_t*>record + sizeof(Record) + record.key_size, value.data, <size_t>value.size)
