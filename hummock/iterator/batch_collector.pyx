"""BatchCollector: copies the rows of a UserIterator once, into the columns that a scan returns.

One loop without the GIL per batch, or for several if all rows are read. Spans of the source are copied column by
column: one copy for all values, a few instructions per key. Where spans are short, because rows of several runs
alternate, rows are pulled instead: some hundreds are merged at once.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from hummock.columnar.binary_column cimport BinaryColumnBuilder
from hummock.columnar.write_batch cimport KvBatch
from hummock.iterator.base cimport Entry, Span
from hummock.iterator.user cimport UserIterator

cdef extern from * nogil:
    """
    #include <stdint.h>
    #include <string.h>
    /* Copies 0..n bytes without a call for the short ones; never reads or writes outside them. */
    static inline void hummock_copy_short(uint8_t *to, const uint8_t *from, int64_t size) {
        if (size > 32) { memcpy(to, from, (size_t)size); return; }
        if (size >= 16) {
            uint64_t a, b, c, d;
            memcpy(&a, from, 8); memcpy(&b, from + 8, 8);
            memcpy(&c, from + size - 16, 8); memcpy(&d, from + size - 8, 8);
            memcpy(to, &a, 8); memcpy(to + 8, &b, 8);
            memcpy(to + size - 16, &c, 8); memcpy(to + size - 8, &d, 8);
        } else if (size >= 8) {
            uint64_t a, b;
            memcpy(&a, from, 8); memcpy(&b, from + size - 8, 8);
            memcpy(to, &a, 8); memcpy(to + size - 8, &b, 8);
        } else if (size >= 4) {
            uint32_t a, b;
            memcpy(&a, from, 4); memcpy(&b, from + size - 4, 4);
            memcpy(to, &a, 4); memcpy(to + size - 4, &b, 4);
        } else {
            for (int64_t i = 0; i < size; i++) to[i] = from[i];
        }
    }
    """
    void copy_short "hummock_copy_short"(uint8_t* to, const uint8_t* source, Py_ssize_t size) noexcept



cdef enum:
    STRETCH_BATCHES = 8                 # filled per release of the GIL
    PULLED_ROWS = 256
    STEPS = 64                          # after so many, rows are pulled unless a step had STEP_ROWS of them on average
    STEP_ROWS = 8


cdef class BatchCollector:
    """Invariant: `keys` and `values` hold the same number of rows, in the source's order."""

    def __cinit__(self, UserIterator source not None):
        self.source = source
        self.keys = BinaryColumnBuilder()
        self.values = BinaryColumnBuilder()

    def __dealloc__(self):
        free(self.pulled)

    def next_batch(self, Py_ssize_t max_rows, Py_ssize_t max_bytes):
        """The next rows as a KvBatch, or None at the end. A row larger than `max_bytes` gets a batch of its own.

        REQUIRES both limits to be at least 1, `close` not called, and that no call has raised: what it had collected
        would be missing. Likewise for `next_batches`.
        """
        cdef BinaryColumnBuilder keys = self.keys, values = self.values
        with nogil:
            self.fill(keys, values, max_rows, max_bytes)
        return self.finish() if keys.rows > 0 else None

    def next_batches(self, Py_ssize_t max_rows, Py_ssize_t batch_rows, Py_ssize_t max_bytes) -> list:
        """The next few batches, as from `next_batch`, at most `max_rows` rows in all; [] at the end."""
        cdef Py_ssize_t at, count
        cdef void* keys[STRETCH_BATCHES]
        cdef void* values[STRETCH_BATCHES]
        cdef list columns = [(BinaryColumnBuilder(), BinaryColumnBuilder()) for _ in range(STRETCH_BATCHES)]
        for at in range(STRETCH_BATCHES):
            keys[at], values[at] = <void*>columns[at][0], <void*>columns[at][1]
        with nogil:
            count = self.fill_all(keys, values, max_rows, batch_rows, max_bytes)
        return [batch_of(columns[at][0], columns[at][1]) for at in range(count)]

    def close(self):
        """Releases the source and all it holds, and the rows of a batch that an error has ended."""
        self.source = self.keys = self.values = None

    cdef Py_ssize_t fill_all(
        self, void** keys, void** values, Py_ssize_t max_rows, Py_ssize_t batch_rows, Py_ssize_t max_bytes
    ) except -1 nogil:
        cdef Py_ssize_t count = 0, left = max_rows, rows
        while count < STRETCH_BATCHES and left > 0:
            rows = left if left < batch_rows else batch_rows
            self.fill(<BinaryColumnBuilder>keys[count], <BinaryColumnBuilder>values[count], rows, max_bytes)
            if (<BinaryColumnBuilder>keys[count]).rows == 0:
                break
            left -= (<BinaryColumnBuilder>keys[count]).rows
            count += 1
        return count

    cdef int fill(
        self, BinaryColumnBuilder keys, BinaryColumnBuilder values, Py_ssize_t max_rows, Py_ssize_t max_bytes
    ) except -1 nogil:
        cdef Py_ssize_t rows = 1
        if not self.started:
            self.begin()
        if keys.rows == 0 and self.last_rows > 0 and self.source.valid:
            keys.reserve(self.last_rows, self.last_key_bytes)
            values.reserve(self.last_rows, self.last_value_bytes)
        while self.source.valid and keys.rows < max_rows and rows > 0:
            if self.is_pulling:
                rows = self.append_pulled(keys, values, max_rows, max_bytes)
            else:
                rows = self.append_step(keys, values, max_rows, max_bytes)
                self.choose_mode(rows, max_rows - keys.rows)
        self.last_rows, self.last_key_bytes, self.last_value_bytes = keys.rows, keys.data_bytes, values.data_bytes
        return 0

    cdef int begin(self) except -1 nogil:
        self.source.rewind()
        self.started, self.is_pulling = True, False
        self.steps = self.stepped_rows = self.pulled_at = self.pulled_count = 0
        return 0

    cdef Py_ssize_t append_step(
        self, BinaryColumnBuilder keys, BinaryColumnBuilder values, Py_ssize_t max_rows, Py_ssize_t max_bytes
    ) except -1 nogil:
        cdef Span span
        cdef Py_ssize_t rows
        if self.source.span(&span, True):
            rows = rows_that_fit(&span, max_rows - keys.rows, max_bytes - keys.data_bytes - values.data_bytes)
            if rows == 0 and keys.rows > 0:
                return 0
            rows = rows if rows > 0 else 1
            append_keys(keys, &span, rows)
            append_values(values, &span, rows)
            self.source.skip(rows)
            return rows
        if keys.rows > 0 and (keys.data_bytes + values.data_bytes + self.source.user_key.size
                              + self.source.value.size > max_bytes):
            return 0
        keys.append(self.source.user_key)
        values.append(self.source.value)
        self.source.next()
        return 1

    cdef int choose_mode(self, Py_ssize_t rows, Py_ssize_t left) except -1 nogil:
        self.steps += 1
        self.stepped_rows += rows
        if self.steps < STEPS:
            return 0
        if self.source.valid and left >= PULLED_ROWS and self.stepped_rows < STEPS * STEP_ROWS:
            if self.pulled == NULL:
                self.pulled = <Entry*>malloc(PULLED_ROWS * sizeof(Entry))
            if self.pulled == NULL:
                with gil:
                    raise MemoryError
            self.is_pulling = self.source.begin_pull()
        self.steps = self.stepped_rows = 0
        return 0

    cdef Py_ssize_t append_pulled(
        self, BinaryColumnBuilder keys, BinaryColumnBuilder values, Py_ssize_t max_rows, Py_ssize_t max_bytes
    ) except -1 nogil:
        cdef Py_ssize_t rows = 0, key_bytes = 0, value_bytes = 0, room = max_bytes - keys.data_bytes - values.data_bytes
        cdef Py_ssize_t left
        cdef const Entry* entry
        if self.pulled_at == self.pulled_count:
            self.pulled_at, self.pulled_count = 0, self.source.pull(self.pulled, PULLED_ROWS)
        entry, left = self.pulled + self.pulled_at, min(self.pulled_count - self.pulled_at, max_rows - keys.rows)
        while rows < left and (key_bytes + value_bytes + entry.user_key.size + entry.value.size <= room
                               or keys.rows + rows == 0):
            key_bytes += entry.user_key.size
            value_bytes += entry.value.size
            rows += 1
            entry += 1
        append_entries(keys, values, self.pulled + self.pulled_at, rows, key_bytes, value_bytes)
        self.pulled_at += rows
        if self.pulled_at == self.pulled_count > 0 and self.source.prefers_spans():
            self.source.end_pull()
            self.is_pulling = False
        return rows

    cdef KvBatch finish(self):
        return batch_of(self.keys, self.values)


cdef int append_entries(
    BinaryColumnBuilder keys, BinaryColumnBuilder values, const Entry* entry, Py_ssize_t rows, Py_ssize_t key_bytes,
    Py_ssize_t value_bytes
) except -1 nogil:
    cdef Py_ssize_t row
    cdef int32_t* key_ends
    cdef int32_t* value_ends
    cdef uint8_t* key
    cdef uint8_t* value
    keys.reserve(rows, key_bytes)
    values.reserve(rows, value_bytes)
    key, value = keys.data + keys.data_bytes, values.data + values.data_bytes
    key_ends, value_ends = keys.offsets + keys.rows + 1, values.offsets + values.rows + 1
    for row in range(rows):
        copy_short(key, entry.user_key.data, entry.user_key.size)
        key += entry.user_key.size
        key_ends[row] = <int32_t>(key - keys.data)
        copy_short(value, entry.value.data, entry.value.size)
        value += entry.value.size
        value_ends[row] = <int32_t>(value - values.data)
        entry += 1
    keys.data_bytes += key_bytes
    values.data_bytes += value_bytes
    keys.rows += rows
    values.rows += rows
    return 0


cdef KvBatch batch_of(BinaryColumnBuilder keys, BinaryColumnBuilder values):
    """The collected rows; resets the builders."""
    cdef KvBatch batch = KvBatch.__new__(KvBatch)
    batch.keys, batch.values = keys.finish(), values.finish()
    return batch


cdef Py_ssize_t rows_that_fit(const Span* span, Py_ssize_t max_rows, Py_ssize_t max_bytes) noexcept nogil:
    """How many rows of the span, from its first, fit both limits."""
    cdef Py_ssize_t low = 0, high = span.end - span.row, middle
    if high > max_rows:
        high = max_rows
    if bytes_of(span, high) <= max_bytes:
        return high
    while low < high:
        middle = (low + high + 1) >> 1
        if bytes_of(span, middle) <= max_bytes:
            low = middle
        else:
            high = middle - 1
    return low


cdef inline Py_ssize_t bytes_of(const Span* span, Py_ssize_t rows) noexcept nogil:
    return (rows * span.prefix.size
            + <Py_ssize_t>(span.key_offsets[span.row + rows] - span.key_offsets[span.row])
            + <Py_ssize_t>(span.value_offsets[span.row + rows] - span.value_offsets[span.row]))


cdef int append_keys(BinaryColumnBuilder keys, const Span* span, Py_ssize_t rows) except -1 nogil:
    cdef const uint32_t* offsets = span.key_offsets + span.row
    cdef Py_ssize_t prefix = span.prefix.size, row, size
    cdef Py_ssize_t suffix_bytes = offsets[rows] - offsets[0], added = rows * prefix + suffix_bytes
    cdef int32_t* ends
    cdef int32_t shift
    cdef const uint8_t* source = span.key_data + offsets[0]
    cdef uint8_t* target
    keys.reserve(rows, added)
    target = keys.data + keys.data_bytes
    ends = keys.offsets + keys.rows + 1
    shift = <int32_t>(keys.data_bytes - <Py_ssize_t>offsets[0])
    for row in range(rows):
        ends[row] = <int32_t>(offsets[row + 1]) + shift + <int32_t>((row + 1) * prefix)
    if prefix == 0:
        memcpy(target, source, <size_t>suffix_bytes)
    else:
        for row in range(rows):
            size = offsets[row + 1] - offsets[row]
            copy_short(target, span.prefix.data, prefix)
            copy_short(target + prefix, source, size)
            target += prefix + size
            source += size
    keys.rows += rows
    keys.data_bytes += added
    return 0


cdef int append_values(BinaryColumnBuilder values, const Span* span, Py_ssize_t rows) except -1 nogil:
    cdef const uint32_t* offsets = span.value_offsets + span.row
    cdef Py_ssize_t added = offsets[rows] - offsets[0], row
    cdef int32_t* ends
    cdef int32_t shift
    values.reserve(rows, added)
    ends = values.offsets + values.rows + 1
    shift = <int32_t>(values.data_bytes - <Py_ssize_t>offsets[0])
    for row in range(rows):
        ends[row] = <int32_t>(offsets[row + 1]) + shift
    memcpy(values.data + values.data_bytes, span.value_data + offsets[0], <size_t>added)
    if values.validity != NULL:
        for row in range(values.rows, values.rows + rows):
            values.validity[row >> 3] |= <uint8_t>(1 << (row & 7))
    values.rows += rows
    values.data_bytes += added
    return 0
