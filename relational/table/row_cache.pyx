"""RowCache: the newest rows of one table under a byte budget, and which keys are known to have none.

Records are kept in a ring in insertion order. The oldest is evicted first, unless it was read since its insertion: then
it is spared once and moves to the front (FIFO with a second chance). If more rows are evicted than hit, only every
second, fourth, eighth … missed key is admitted, a fixed subset, until they fit. All memory, the hash table included,
counts against the budget and is touched only as it fills. One thread at a time.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memmove, memset

import numpy as np

from hummock.base.checksum cimport hash64
from hummock.base.key cimport Slice, begins_with, compare_bytes, slice_of
from hummock.base.prefetch cimport prefetch
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.columnar.buffer_pool cimport pool_release, pool_acquire
from hummock.columnar.write_batch cimport KvBatch

cdef struct Record:         # in the ring, 8-aligned; key and value follow
    uint32_t tag            # of its key's hash
    uint32_t span           # bytes, header included
    int32_t key_size
    int32_t value_size      # -1: known to be absent
    uint8_t is_live         # a slot refers to it
    uint8_t is_asked        # read since it was inserted, or last spared

cdef struct Slot:           # of the hash table; may refer to a record
    uint32_t tag            # its home slot is tag & mask
    uint32_t at             # offset in the ring / 8 + 1; 0: no record

cdef enum:
    BLOCK = 32              # rows whose memory is prefetched together
    BYTES_PER_SLOT = 64     # of the budget
    MIN_SLOTS = 16
    SHARE = 8               # a record uses at most 1/SHARE of the ring
    WINDOW = 4096           # keys between two adjustments of the admission rate
    MAX_PASSED_OVER = 4
    SPARED = 16             # at most, per inserted record
    VNODE_END = 6           # of a user key; the table key follows


@cython.final
cdef class RowCache:
    """Invariant: every record equals the store's entry under its key; `update` reports each write to the store."""

    cdef readonly Py_ssize_t budget_bytes
    cdef readonly Py_ssize_t count      # rows held, known absences included
    cdef readonly int64_t hits
    cdef readonly int64_t misses
    cdef readonly int64_t evictions
    cdef Slot* slots                    # pooled; mask + 1 of them
    cdef uint32_t mask
    cdef int64_t max_slots
    cdef uint8_t* ring                  # owned; ring_bytes; small pages, so that only what is filled is touched
    cdef int64_t ring_bytes
    cdef int64_t head                   # offset of the next record
    cdef int64_t tail                   # the oldest record
    cdef int64_t end                    # end of the records after `tail`, while the head has wrapped
    cdef bint is_wrapped
    cdef int64_t records                # in the ring, dead ones included
    cdef int32_t passed_over            # one of 2**this missed keys is admitted
    cdef int64_t seen_hits              # the three counters at the last adjustment of `passed_over`
    cdef int64_t seen_misses
    cdef int64_t seen_evictions
    cdef bytes mark                     # of the watermark; None: no watermark
    cdef Slice passed                   # its bytes
    cdef bint is_descending

    def __init__(self, Py_ssize_t budget_bytes):
        """ValueError for a budget that is too small for a record."""
        self.max_slots = MIN_SLOTS
        while 2 * self.max_slots * BYTES_PER_SLOT <= budget_bytes and self.max_slots < 1 << 30:
            self.max_slots *= 2
        self.budget_bytes = budget_bytes
        self.ring_bytes = (budget_bytes - self.max_slots * <int64_t>sizeof(Slot)) & ~7
        if self.ring_bytes < <int64_t>(SHARE * sizeof(Record)):
            raise ValueError(f"a row cache of {budget_bytes} bytes")
        self.ring = <uint8_t*>malloc(<size_t>self.ring_bytes)
        if self.ring == NULL:
            raise MemoryError(f"no memory for a row cache of {budget_bytes} bytes")
        self.resize(MIN_SLOTS)

    def __dealloc__(self):
        pool_release(<uint8_t*>self.slots, (<Py_ssize_t>self.mask + 1) * sizeof(Slot))
        free(self.ring)

    def __len__(self):
        """Number of known keys."""
        return self.count

    @property
    def held_bytes(self):
        """The part of the budget touched so far: slots and the filled part of the ring."""
        filled = max(self.end, self.head) if self.is_wrapped else self.head
        return filled + (<Py_ssize_t>self.mask + 1) * <Py_ssize_t>sizeof(Slot)

    def get_many(self, BinaryColumn keys not None, fetch):
        """The values under `keys`, null if there is no row: from the cache, else from `fetch`, which is called at most
        once, with a BinaryColumn of the missed keys, and whose result is cached.
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
        self.adjust_admission()
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
        """Records that the rows of `batch` were written; a null value is a deleted row."""
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
        """Discards the rows of all vnodes except those marked in uint8[vnode count]."""
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
        """Sets the watermark: rows whose table key is below `mark` (above, if descending) are neither cached nor
        returned. A further watermark is kept.
        """
        further = min if is_descending else max
        self.mark, self.is_descending = mark if self.mark is None else further(mark, self.mark), is_descending
        self.passed = slice_of(self.mark)

    def clear(self):
        """Discards all rows; the watermark is kept."""
        memset(self.slots, 0, (<size_t>self.mask + 1) * sizeof(Slot))
        self.count = self.records = 0
        self.head = self.tail = self.end = 0
        self.is_wrapped = False

    cdef int find_all(self, BinaryColumn keys, int64_t* out, BinaryColumnBuilder asked) except -1 nogil:
        """out[rows]: offset of each key's record; -1 for keys without one, which are appended to `asked`."""
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
        """out[rows]: offset of each key's record, -1 if there is none."""
        cdef uint32_t tags[BLOCK]
        cdef Record* record
        cdef Py_ssize_t row
        cdef uint32_t at
        for row in range(rows):
            tags[row] = tag_of(keys.at(first + row))
            prefetch(self.slots + (tags[row] & self.mask))
        for row in range(rows):
            at = tags[row] & self.mask
            while self.slots[at].at != 0 and self.slots[at].tag != tags[row]:
                at = (at + 1) & self.mask
            if self.slots[at].at != 0:
                prefetch(self.ring + ((<int64_t>self.slots[at].at - 1) << 3))
                prefetch(self.ring + ((<int64_t>self.slots[at].at - 1) << 3) + 64)
        for row in range(rows):
            record = self.find(keys.at(first + row), tags[row])
            out[row] = -1 if record == NULL else <uint8_t*>record - self.ring
        return 0

    cdef Record* find(self, Slice key, uint32_t tag) noexcept nogil:
        cdef uint32_t at = tag & self.mask
        cdef Record* record
        while self.slots[at].at != 0:
            if self.slots[at].tag == tag:
                record = <Record*>(self.ring + ((<int64_t>self.slots[at].at - 1) << 3))
                if record.key_size == key.size and memcmp(key_of(record).data, key.data, <size_t>key.size) == 0:
                    return record
            at = (at + 1) & self.mask
        return NULL

    cdef bint is_passed(self, Slice key) noexcept nogil:
        """Whether the watermark has passed the key."""
        if self.passed.data == NULL:
            return False
        key.data += VNODE_END
        key.size -= VNODE_END
        if not self.is_descending:
            return compare_bytes(key, self.passed) < 0
        return compare_bytes(key, self.passed) > 0 and not begins_with(key, self.passed)

    cdef void adjust_admission(self) noexcept nogil:
        cdef int64_t hits = self.hits - self.seen_hits, evictions = self.evictions - self.seen_evictions
        if hits + self.misses - self.seen_misses < WINDOW:
            return
        if evictions > hits:
            self.passed_over = min(self.passed_over + 1, <int32_t>MAX_PASSED_OVER)
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
        self.make_slot()
        offset = self.room(span)
        record = <Record*>(self.ring + offset)
        record.tag, record.span, record.key_size = tag, <uint32_t>span, <int32_t>key.size
        record.is_live, record.is_asked = True, False
        memcpy(<uint8_t*>record + sizeof(Record), key.data, <size_t>key.size)
        write_value(record, value, is_absent)
        at = tag & self.mask
        while self.slots[at].at != 0:
            at = (at + 1) & self.mask
        self.slots[at].tag, self.slots[at].at = tag, <uint32_t>(offset >> 3) + 1
        self.count += 1
        return 0

    cdef int make_slot(self) except -1 nogil:
        """Grows the hash table if one more row needs it."""
        cdef int64_t turns = 0
        if 4 * (self.count + 1) > 3 * (<int64_t>self.mask + 1) and self.mask + 1 < self.max_slots:
            self.resize(2 * (<int64_t>self.mask + 1))
        while 4 * (self.count + 1) > 3 * (<int64_t>self.mask + 1):
            self.evict(turns < SPARED)
            turns += 1
        return 0

    cdef int resize(self, int64_t slots) except -1 nogil:
        cdef Slot* old = self.slots
        cdef int64_t number = <int64_t>self.mask + 1 if old != NULL else 0, i
        cdef uint32_t mask = <uint32_t>(slots - 1), at
        self.slots = <Slot*>pool_acquire(slots * sizeof(Slot))
        if self.slots == NULL:
            self.slots = old
            with gil:
                raise MemoryError(f"no memory for {slots} slots of a row cache")
        self.mask = mask
        memset(self.slots, 0, slots * sizeof(Slot))
        for i in range(number):
            if old[i].at == 0:
                continue
            at = old[i].tag & mask
            while self.slots[at].at != 0:
                at = (at + 1) & mask
            self.slots[at] = old[i]
        pool_release(<uint8_t*>old, number * sizeof(Slot))
        return 0

    cdef int64_t room(self, int64_t span) noexcept nogil:
        """The offset of `span` free bytes; evicts the records that occupy them."""
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
        """Evicts the oldest record, unless it is spared."""
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
            at = self.slot_of(record)
            memmove(self.ring + self.head, record, <size_t>span)
            self.slots[at].at = <uint32_t>(self.head >> 3) + 1
            self.head += span
            return
        if record.is_live:
            self.forget(record)
            self.evictions += 1
        self.records -= 1

    cdef uint32_t slot_of(self, const Record* record) noexcept nogil:
        """The slot that points to a live record."""
        cdef uint32_t at = record.tag & self.mask, wanted = <uint32_t>((<const uint8_t*>record - self.ring) >> 3) + 1
        while self.slots[at].at != wanted:
            at = (at + 1) & self.mask
        return at

    cdef void forget(self, Record* record) noexcept nogil:
        """Frees the record's slot; later slots of the probe sequence move up, so that no search ends early."""
        cdef uint32_t hole = self.slot_of(record), at = hole, home
        record.is_live = False
        self.count -= 1
        while True:
            at = (at + 1) & self.mask
            if self.slots[at].at == 0:
                break
            home = self.slots[at].tag & self.mask
            if ((at - home) & self.mask) >= ((at - hole) & self.mask):
                self.slots[hole] = self.slots[at]
                hole = at
        self.slots[hole].at = 0


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
