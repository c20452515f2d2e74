"""MemTable: the operations of one epoch on one table, one entry per key.

Operations on a key are folded as they arrive (insert then delete is nothing, delete then insert is an update), so a
drain writes each key once. Keys are user keys, hence memory order is storage order; entries are sorted only for a scan
or a drain, and then only those added since the last sort. A contradiction (a second insert, a delete of an absent key)
is a ConsistencyError, or a line in the log. Rows that this epoch has not touched are trusted, unless the writer passes
their state in the store, which is never read here. One writer, no locks.
"""

import logging

cimport cython
from libc.string cimport memcpy, memset

from hummock.base.key cimport TABLE_ID_BYTES, compare_bytes, slice_of
from hummock.base.prefetch cimport prefetch, prefetch_for_write
from hummock.columnar.binary_column cimport BinaryColumnBuilder
from relational.table.batch_writer cimport BatchWriter
from relational.table.key_sort cimport ITEM_BYTES, compare_items, item_of, sort_items, write_bytes

from hummock.columnar.write_batch import WriteBatch
from relational.errors import ConsistencyError

cdef enum:
    AHEAD = 16              # rows between prefetching memory and using it
    BLOCK = 64              # rows whose bytes are prefetched, and then gathered, together
    DRAIN_BYTES = 1 << 30   # keys and values of one drained batch; Arrow's offsets end at 2 GiB
    KEPT_BYTES = 64 << 20   # larger buffers are released by a drain

LOG = logging.getLogger(__name__)

# Error texts of an operation that contradicts the ones before it, by (operation, state of the key).
FAULTS = {
    (INSERT, UNTOUCHED): "insert of a row that is present",
    (DELETE, UNTOUCHED): "delete of a row that is not there",
    (UPDATE, UNTOUCHED): "update of a row that is not there",
    (INSERT, INSERTED): "insert of a row that was inserted before",
    (INSERT, UPDATED): "insert of a row that is present",
    (DELETE, DELETED): "delete of a row that was deleted before",
    (DELETE, VANISHED): "delete of a row that was deleted before",
    (UPDATE, DELETED): "update of a row that was deleted before",
    (UPDATE, VANISHED): "update of a row that was deleted before",
}

cdef Slice entry_key(void* owner, int64_t row) noexcept nogil:
    return (<BytesInterner>owner).key(row)


@cython.final
cdef class MemTable:
    """Each key touched in this epoch has one entry; entry indices follow the order of first touch."""

    def __init__(self, name: str = "", show_key=None, *, bint is_lenient=False, bint keeps_old=False):
        """`name` and `show_key(user key) -> object` are for error messages. `is_lenient`: a contradiction is logged,
        one line for each call, and its operation is applied as received. `keeps_old`: a drain returns the old values of
        updated rows.
        """
        self.name, self.show_key, self.is_lenient, self.keeps_old = name, show_key, is_lenient, keeps_old
        self.index = BytesInterner()
        self.entries = ByteBuffer()
        self.values = ByteBuffer()
        self.olds = ByteBuffer()
        self.order = ByteBuffer()
        self.revived = ByteBuffer()

    def __len__(self):
        """Keys touched since the last drain."""
        return self.index.count

    @property
    def size_bytes(self):
        """Memory used by keys, values and their order."""
        return self.index.size_bytes + self.entries.size + self.values.size + self.olds.size + self.order.size

    @property
    def waiting_bytes(self):
        """The part of `size_bytes` that a drain releases."""
        return self.index.arena.size + self.entries.size + self.values.size + self.olds.size + self.order.size

    def write(self, BinaryColumn keys not None, BinaryColumn values not None, const uint8_t[::1] ops not None,
              const uint8_t[::1] visibility=None, const uint8_t[::1] present=None):
        """Folds in one operation per visible row. `ops`, `visibility`, `present`: uint8[rows]. `present`: whether the
        key has a row before this call, used for keys that this epoch has not touched (None: unknown).

        U- and U+ of one key, adjacent, are an update; of two keys, a delete and an insert. A U+ without its U- upserts.
        The values of retractions are not kept, except with `keeps_old` that of an update that is the first operation on
        its key. ConsistencyError names table and key; the rows before the faulty one have taken effect, no other has.
        """
        cdef Py_ssize_t rows = keys.rows, wrong = -1, faults = 0
        cdef int operation = INSERT
        if values.rows != rows or ops.shape[0] != rows or (present is not None and present.shape[0] != rows):
            raise ValueError(f"{rows} keys, {values.rows} values, {ops.shape[0]} ops")
        if rows == 0:
            return
        cdef const uint8_t* known = NULL if present is None else &present[0]
        cdef const int32_t[::1] ids = self.index.find(keys, visibility)
        self.add_entries()
        while True:
            with nogil:
                wrong = self.fold_rows(&ids[0], &ops[0], known, wrong + 1, rows, values, &operation)
            if wrong < 0:
                break
            faults += 1
            error = self.contradiction(keys, wrong, ids[wrong], operation) if faults == 1 else error
            if not self.is_lenient:
                raise error
            self.carry_out(ids[wrong], operation, values, wrong)
        if faults:
            LOG.warning("%s; carried out as it came, as were %d more of one call", error, faults - 1)
        self.operations += rows

    def overwrite(self, BinaryColumn keys not None, BinaryColumn values not None):
        """Replaces the row under each key, whatever this epoch did to it before; a null value deletes."""
        cdef Py_ssize_t row, rows = keys.rows
        cdef Entry* entry
        if values.rows != rows:
            raise ValueError(f"{rows} keys, {values.rows} values")
        if rows == 0:
            return
        cdef const int32_t[::1] ids = self.index.find(keys)
        self.add_entries()
        with nogil:
            for row in range(rows):
                entry = <Entry*>self.entries.data + ids[row]
                if entry.state == SKIPPED:
                    self.revive(ids[row])
                if values.is_null(row):
                    entry.state = DELETED
                else:
                    entry.state = UPDATED
                    self.store_value(entry, values.at(row))
        self.operations += rows

    cdef object contradiction(self, BinaryColumn keys, Py_ssize_t row, int32_t entry, int operation):
        state = (<Entry*>self.entries.data)[entry].state
        state = VANISHED if state == SKIPPED else state
        key = keys[row] if self.show_key is None else self.show_key(keys[row])
        return ConsistencyError(FAULTS[operation, state], table=self.name, key=key)

    cdef int carry_out(self, int32_t number, int operation, BinaryColumn values, Py_ssize_t row) except -1:
        """Applies an operation regardless of the state: the key has this row now, or none."""
        cdef Entry* entry = <Entry*>self.entries.data + number
        if entry.state == SKIPPED:
            self.revive(number)
        entry.state = DELETED if operation == DELETE else UPDATED
        if self.keeps_old:
            (<Old*>self.olds.data)[number].size = -1
        if operation != DELETE:
            self.store_value(entry, values.at(row))
        return 0

    def get_many(self, BinaryColumn keys not None, fetch):
        """The values under `keys`, null if there is no row: from this epoch if it touched the key, else from `fetch`,
        which is called at most once, with a BinaryColumn of the keys not touched here.
        """
        if self.index.count == 0:
            return BinaryColumn.from_arrow(fetch(keys))
        cdef const int32_t[::1] ids = self.index.find(keys, is_adding=False)
        cdef BinaryColumnBuilder asked = BinaryColumnBuilder(), out = BinaryColumnBuilder()
        cdef BinaryColumn fetched
        cdef Py_ssize_t row, next_fetched = 0
        cdef const Entry* entry
        with nogil:
            for row in range(keys.rows):
                if self.is_unknown(ids[row]):
                    asked.append(keys.at(row))
        fetched = asked.finish()
        if fetched.rows == keys.rows:
            return BinaryColumn.from_arrow(fetch(keys))
        if fetched.rows:
            row = fetched.rows
            fetched = BinaryColumn.from_arrow(fetch(fetched))
            if fetched.rows != row:
                raise ValueError(f"{fetched.rows} values for {row} keys")
        with nogil:
            for row in range(keys.rows):
                if self.is_unknown(ids[row]):
                    append_or_null(out, fetched, next_fetched)
                    next_fetched += 1
                    continue
                entry = <const Entry*>self.entries.data + ids[row]
                if entry.state == INSERTED or entry.state == UPDATED:
                    out.append(self.value(entry))
                else:
                    out.append_null()
        return out.finish()

    def range(self, bytes start not None, bytes end=None):
        """The keys in [start, end) whose rows changed, ascending, with their values: a KvBatch in which a null value
        means that the store's row under that key is deleted. A copy: later writes do not change it.
        """
        cdef BatchWriter out = BatchWriter()
        cdef Py_ssize_t position, stop
        self.sort_all()
        position = self.lower_bound(slice_of(start))
        stop = self.sorted_rows if end is None else self.lower_bound(slice_of(end))
        with nogil:
            while position < stop:
                self.copy_block(position, min(stop - position, <Py_ssize_t>BLOCK), out)
                position += BLOCK
        return out.finish()

    def drain(self):
        """Returns the changes of this epoch, as a list of (WriteBatch, old) with ascending, disjoint keys (usually one,
        none if nothing changed), and clears them. A batch ends at 1 GiB. `old`: a BinaryColumn of the old values that
        were kept, null where there was none; None unless `keeps_old`.
        """
        cdef BatchWriter out = BatchWriter()
        cdef BinaryColumnBuilder olds = BinaryColumnBuilder()
        cdef Py_ssize_t position = 0
        cdef list batches = []
        self.sort_all()
        out.keys.reserve(self.index.count, min(self.index.arena.size, <Py_ssize_t>DRAIN_BYTES))
        out.values.reserve(self.index.count, min(self.values.size, <Py_ssize_t>DRAIN_BYTES))
        while position < self.sorted_rows:
            with nogil:
                while position < self.sorted_rows and out.keys.data_bytes + out.values.data_bytes < DRAIN_BYTES:
                    self.copy_block(position, min(self.sorted_rows - position, <Py_ssize_t>BLOCK), out)
                    if self.keeps_old:
                        self.put_olds(position, min(self.sorted_rows - position, <Py_ssize_t>BLOCK), olds)
                    position += BLOCK
            if out.keys.rows:
                old = olds.finish() if self.keeps_old else None
                batches.append((WriteBatch(out.keys.finish(), out.values.finish()), old))
        self.clear()
        return batches

    def clear(self):
        """Discards all operations."""
        self.index.clear()
        if max(self.entries.size, self.values.size, self.order.size) > KEPT_BYTES:
            self.entries, self.values, self.order = ByteBuffer(), ByteBuffer(), ByteBuffer()
            self.olds = ByteBuffer()
        self.entries.size = self.values.size = self.olds.size = self.order.size = self.revived.size = 0
        self.sorted_rows = self.seen = self.operations = 0

    cdef int add_entries(self) except -1:
        """Adds UNTOUCHED entries for new keys."""
        cdef Py_ssize_t before = self.entries.size, after = self.index.count * sizeof(Entry)
        self.entries.reserve(after - before)
        memset(self.entries.data + before, 0, after - before)
        self.entries.size = after
        if self.keeps_old:
            before, after = self.olds.size, self.index.count * sizeof(Old)
            self.olds.reserve(after - before)
            memset(self.olds.data + before, 0xFF, after - before)
            self.olds.size = after
        return 0

    cdef inline bint is_unknown(self, int32_t entry) noexcept nogil:
        """Whether this epoch has no operation on the key of that entry (-1: no entry)."""
        return entry < 0 or (<const Entry*>self.entries.data)[entry].state == UNTOUCHED

    cdef Py_ssize_t fold_rows(self, const int32_t* ids, const uint8_t* ops, const uint8_t* present, Py_ssize_t row,
                              Py_ssize_t rows, BinaryColumn values, int* operation) except -2 nogil:
        cdef Entry* entries = <Entry*>self.entries.data
        cdef int state
        cdef bint is_half, is_first
        while row < rows:
            if row + AHEAD < rows and ids[row + AHEAD] >= 0:
                prefetch_for_write(entries + ids[row + AHEAD])
            if ids[row] < 0:
                row += 1
                continue
            operation[0] = ops[row]
            if ops[row] == UPDATE_DELETE:
                operation[0] = DELETE
                if row + 1 < rows and ops[row + 1] == UPDATE_INSERT and ids[row + 1] == ids[row]:
                    operation[0] = UPDATE
                    row += 1
            elif ops[row] == UPDATE_INSERT:
                is_half = row > 0 and ops[row - 1] == UPDATE_DELETE and ids[row - 1] >= 0
                operation[0] = INSERT if is_half else UPSERT
            state = entries[ids[row]].state
            is_first = state == UNTOUCHED
            if is_first and present != NULL:
                state = UPDATED if present[row] else VANISHED
            state = fold(VANISHED if state == SKIPPED else state, operation[0])
            if state < 0:
                return row
            if entries[ids[row]].state == SKIPPED:
                self.revive(ids[row])
            entries[ids[row]].state = state
            if self.keeps_old and is_first and operation[0] == UPDATE:
                self.store_old(ids[row], values.at(row - 1))
            if operation[0] != DELETE:
                self.store_value(&entries[ids[row]], values.at(row))
            row += 1
        return -1

    cdef Slice value(self, const Entry* entry) noexcept nogil:
        cdef Slice out
        out.data = self.values.data + entry.value_start
        out.size = entry.value_size
        return out

    cdef int store_value(self, Entry* entry, Slice value) except -1 nogil:
        if value.size > entry.value_size or entry.value_size == 0:
            self.values.reserve(value.size + 1)
            entry.value_start = self.values.size
            self.values.size += value.size
        entry.value_size = <int32_t>value.size
        memcpy(self.values.data + entry.value_start, value.data, <size_t>value.size)
        return 0

    cdef int store_old(self, int32_t entry, Slice value) except -1 nogil:
        cdef Old* old = <Old*>self.olds.data + entry
        self.values.reserve(value.size + 1)
        old.start, old.size = self.values.size, value.size
        memcpy(self.values.data + self.values.size, value.data, <size_t>value.size)
        self.values.size += value.size
        return 0

    cdef int put_olds(self, Py_ssize_t position, Py_ssize_t rows, BinaryColumnBuilder out) except -1 nogil:
        cdef const KeyItem* items = <const KeyItem*>self.order.data
        cdef const Old* old
        cdef Slice value
        cdef Py_ssize_t row
        cdef int32_t state
        for row in range(position, position + rows):
            state = (<const Entry*>self.entries.data + items[row].row).state
            if state == UNTOUCHED or state == VANISHED:
                continue
            old = <const Old*>self.olds.data + items[row].row
            if old.size < 0:
                out.append_null()
                continue
            value.data, value.size = self.values.data + old.start, old.size
            out.append(value)
        return 0

    cdef int revive(self, int32_t number) except -1 nogil:
        return self.revived.append(<const uint8_t*>&number, sizeof(int32_t))

    cdef int sort_all(self) except -1:
        cdef Py_ssize_t most = self.index.count - self.seen + self.revived.size // sizeof(int32_t), fresh
        cdef ByteBuffer scratch
        if most == 0:
            return 0
        self.order.reserve(most * sizeof(KeyItem))
        with nogil:
            fresh = self.add_items()
        scratch = ByteBuffer((self.sorted_rows + fresh) * sizeof(KeyItem))
        with nogil:
            sort_items(<KeyItem*>self.order.data + self.sorted_rows, <KeyItem*>scratch.data, fresh, entry_key,
                       <void*>self.index, TABLE_ID_BYTES)
            if self.sorted_rows > 0:
                self.merge_fresh(<KeyItem*>scratch.data, fresh)
        self.sorted_rows += fresh
        self.order.size = self.sorted_rows * sizeof(KeyItem)
        return 0

    cdef Py_ssize_t add_items(self) noexcept nogil:
        cdef Entry* entries = <Entry*>self.entries.data
        cdef KeyItem* items = <KeyItem*>self.order.data + self.sorted_rows
        cdef const int32_t* revived = <const int32_t*>self.revived.data
        cdef Py_ssize_t count = self.revived.size // sizeof(int32_t), fresh = 0, i, row
        for i in range(count + self.index.count - self.seen):
            row = revived[i] if i < count else self.seen + i - count
            if entries[row].state == VANISHED:
                entries[row].state = SKIPPED
            else:
                items[fresh] = item_of(self.index.key(row), TABLE_ID_BYTES, row)
                fresh += 1
        self.revived.size, self.seen = 0, self.index.count
        return fresh

    cdef void merge_fresh(self, KeyItem* scratch, Py_ssize_t fresh) noexcept nogil:
        """Merges the sorted rows and the fresh ones after them; from the back, without a second buffer."""
        cdef KeyItem* items = <KeyItem*>self.order.data
        cdef Py_ssize_t old = self.sorted_rows - 1, new = fresh - 1, position = self.sorted_rows + fresh - 1
        memcpy(scratch, items + self.sorted_rows, fresh * sizeof(KeyItem))
        while new >= 0:
            if old >= 0 and compare_items(
                    items + old, scratch + new, entry_key, <void*>self.index, TABLE_ID_BYTES) > 0:
                items[position] = items[old]
                old -= 1
            else:
                items[position] = scratch[new]
                new -= 1
            position -= 1

    cdef Slice key_at(self, Py_ssize_t position) noexcept nogil:
        return self.index.key((<const KeyItem*>self.order.data)[position].row)

    cdef const Entry* entry_at(self, Py_ssize_t position) noexcept nogil:
        return <const Entry*>self.entries.data + (<const KeyItem*>self.order.data)[position].row

    cdef int copy_block(self, Py_ssize_t position, Py_ssize_t rows, BatchWriter out) except -1 nogil:
        cdef Slice keys[BLOCK]
        cdef Slice values[BLOCK]
        cdef uint8_t room[BLOCK * (TABLE_ID_BYTES + ITEM_BYTES)]
        cdef const KeyItem* items = <const KeyItem*>self.order.data + position
        cdef const Entry* entries = <const Entry*>self.entries.data
        cdef const Entry* entry
        cdef Py_ssize_t row, count = 0
        for row in range(rows):
            prefetch(entries + items[row].row)
        for row in range(rows):
            entry = entries + items[row].row
            if entry.state == UNTOUCHED or entry.state == VANISHED:
                continue
            keys[count] = self.key_of(items + row, room + count * (TABLE_ID_BYTES + ITEM_BYTES))
            values[count] = self.value(entry)
            if entry.state != INSERTED and entry.state != UPDATED:
                values[count].data = NULL
                values[count].size = 0
            prefetch(keys[count].data)
            prefetch(values[count].data)
            prefetch(values[count].data + values[count].size)
            count += 1
        return out.put_block(keys, values, count)

    cdef Slice key_of(self, const KeyItem* item, uint8_t* room) noexcept nogil:
        cdef Slice key
        key.size = self.index.key_bytes
        if not TABLE_ID_BYTES <= key.size <= TABLE_ID_BYTES + ITEM_BYTES:
            return self.index.key(item.row)
        memcpy(room, self.index.arena.data, TABLE_ID_BYTES)
        write_bytes(item, room + TABLE_ID_BYTES)
        key.data = room
        return key

    cdef Py_ssize_t lower_bound(self, Slice key) noexcept nogil:
        cdef Py_ssize_t low = 0, high = self.sorted_rows, middle
        cdef KeyItem* items = <KeyItem*>self.order.data
        while low < high:
            middle = (low + high) >> 1
            if compare_bytes(self.index.key(items[middle].row), key) < 0:
                low = middle + 1
            else:
                high = middle
        return low


cdef int append_or_null(BinaryColumnBuilder out, BinaryColumn source, Py_ssize_t row) except -1 nogil:
    return out.append_null() if source.is_null(row) else out.append(source.at(row))
