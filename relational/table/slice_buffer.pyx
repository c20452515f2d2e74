"""SliceBuffer: the writes of one epoch on one table as slices, each key once a slice.

A MemTable folds any changes by a hash index; a writer that gives each key once a slice (the flush of an aggregation,
the rows of a table whose keys are generated) needs none. Slices are kept as they came and sorted once, when they are
handed over; of several writes of a key the one of the latest slice wins [R33]. Rows of a vnode with ascending keys, as
generated keys are, form runs, as in a natural merge sort: where no runs overlap, their bytes are copied one run after
the other and no row is sorted. One writer, no locks.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from hummock.base.key cimport TABLE_ID_BYTES, Slice, compare_bytes
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.columnar.buffer_pool cimport ByteBuffer
from hummock.columnar.write_batch cimport KvBatch
from relational.chunk.stream_chunk cimport DELETE, INSERT, UPDATE_DELETE, UPDATE_INSERT
from relational.table.batch_rows cimport BatchRows, RowSource, key_in, key_source, number_of
from relational.table.batch_writer cimport BatchWriter
from relational.table.key_sort cimport KeyItem, are_heads_equal, compare_items, item_of, sort_items

from hummock.columnar.write_batch import WriteBatch
from relational.errors import ConsistencyError

cdef enum:
    RUN_ROWS = 32               # a slice of runs that are shorter on average is sorted row by row
    COPIED_ROWS = 512           # between two looks at the size of the output
    VNODE_SHIFT = 48            # of the vnode in the first 8 bytes after the table id

SORT_BYTES = 48                 # of memory per row while it is sorted
DRAIN_BYTES = 1 << 30           # Arrow's offsets end at 2 GiB

cdef struct Run:                # rows of one slice and vnode with ascending keys, as long as possible
    int64_t first               # numbers of its rows in `rows`, consecutive
    int64_t last

cdef struct RunKeys:            # the owner of `run_key`
    const Run* runs
    const RowSource* sources


cdef Slice run_key(void* owner, int64_t run) noexcept nogil:
    """The first key of a run, as a KeySource."""
    cdef const RunKeys* of = <const RunKeys*>owner
    return key_in(of.sources, of.runs[run].first)


@cython.final
cdef class SliceBuffer:
    """`name` and `show_key(user key)` are for error messages. With `is_insert_only` each key is inserted once."""

    cdef readonly object name           # of the table
    cdef object show_key
    cdef readonly bint is_insert_only
    cdef readonly Py_ssize_t held_bytes # of all slices
    cdef BatchRows rows                 # a batch for each slice; null values delete
    cdef ByteBuffer runs                # Run[]; only while `is_ordered`
    cdef bint is_ordered                # the slices consist of few runs
    cdef Py_ssize_t drain_bytes

    def __init__(self, name: str, show_key, bint is_insert_only=False, *, Py_ssize_t drain_bytes=DRAIN_BYTES):
        """A drained batch ends at about `drain_bytes` of keys and values."""
        self.name, self.show_key, self.is_insert_only = name, show_key, is_insert_only
        self.drain_bytes = drain_bytes
        self.rows, self.runs = BatchRows(), ByteBuffer()
        self.is_ordered = True

    def __len__(self) -> int:
        """Rows since the last drain."""
        return self.rows.rows

    @property
    def data_bytes(self) -> int:
        """Keys and values."""
        return self.rows.key_bytes + self.rows.value_bytes

    @property
    def size_bytes(self) -> int:
        """Memory used by keys and values, plus the memory needed to sort them."""
        return self.held_bytes + self.rows.rows * SORT_BYTES

    @property
    def waiting_bytes(self) -> int:
        """The part of `size_bytes` that a drain releases."""
        return self.size_bytes

    def write(self, BinaryColumn keys not None, BinaryColumn values not None, const uint8_t[::1] ops not None) -> None:
        """Buffers a slice with `ops`, uint8[rows]: inserts and U+ put a row, deletes remove it, and so does a U- unless
        the U+ of its key follows. A buffer for inserts takes nothing else: a ConsistencyError names the key, and the
        call has no effect.
        """
        cdef Py_ssize_t rows = keys.rows, row, other = -1
        cdef int64_t number
        cdef bint has_deletes = False
        cdef KvBatch batch
        if values.rows != rows or ops.shape[0] != rows:
            raise ValueError(f"{rows} keys, {values.rows} values, {ops.shape[0]} ops")
        if rows == 0:
            return
        with nogil:
            for row in range(rows):
                has_deletes |= ops[row] & 1
                if ops[row] != INSERT and other < 0:
                    other = row
        if self.is_insert_only and other >= 0:
            raise self.error("a change that is no insert, of a table that takes only inserts", keys[other])
        batch = self.folded(keys, values, &ops[0]) if has_deletes else KvBatch(keys, values)
        number = number_of(len(self.rows.batches), 0)
        if self.is_ordered:
            with nogil:
                self.note_runs(batch.keys, number)
        self.rows.add(batch)
        self.held_bytes += batch.keys.held_bytes + batch.values.held_bytes

    def drain(self) -> list:
        """Returns the newest write of each key, as a list of (WriteBatch, None) with ascending, disjoint keys (usually
        one, none if nothing was written), and clears the buffer. ConsistencyError names a key that a slice has twice;
        in a buffer for inserts, one that was inserted twice.
        """
        is_in_runs = self.is_ordered and self.order_runs()
        batches = self.batches_of_runs() if is_in_runs else self.sorted_batches()
        self.clear()
        return [(batch, None) for batch in batches]

    def take(self) -> list:
        """Returns the slices as KvBatches in the order in which they came, deletes as null values, and clears the
        buffer.
        """
        slices = self.rows.batches
        self.clear()
        return slices

    def clear(self) -> None:
        """Discards all rows."""
        self.rows.clear()
        self.runs.truncate(0)
        self.is_ordered, self.held_bytes = True, 0

    cdef object error(self, message, key):
        return ConsistencyError(message, table=self.name, key=self.show_key(key))

    cdef KvBatch folded(self, BinaryColumn keys, BinaryColumn values, const uint8_t* ops):
        """The rows with null values for deletes; without the U- of an update that keeps its key."""
        cdef BatchWriter out = BatchWriter()
        cdef Py_ssize_t row
        with nogil:
            for row in range(keys.rows):
                if ops[row] == UPDATE_DELETE and row + 1 < keys.rows and ops[row + 1] == UPDATE_INSERT and (
                        compare_bytes(keys.at(row), keys.at(row + 1)) == 0):
                    continue
                out.keys.append(keys.at(row))
                if ops[row] == DELETE or ops[row] == UPDATE_DELETE:
                    out.values.append_null()
                else:
                    out.values.append(values.at(row))
        return out.finish()

    cdef int note_runs(self, BinaryColumn keys, int64_t number) except -1 nogil:
        """Appends the runs of a slice whose first row has that number, unless they are too short."""
        cdef Py_ssize_t row, first = 0, most = keys.rows // RUN_ROWS + 1
        cdef KeyItem last = item_of(keys.at(0), TABLE_ID_BYTES, 0), item
        for row in range(1, keys.rows):
            item = item_of(keys.at(row), TABLE_ID_BYTES, row)
            if (item.high ^ last.high) >> VNODE_SHIFT or item.high < last.high or (
                    item.high == last.high and (item.low < last.low or (
                        item.low == last.low and compare_bytes(keys.at(row - 1), keys.at(row)) >= 0))):
                most -= 1
                if most == 0:
                    self.is_ordered = False
                    return 0
                self.note_run(number + first, number + row - 1)
                first = row
            last = item
        return self.note_run(number + first, number + keys.rows - 1)

    cdef int note_run(self, int64_t first, int64_t last) except -1 nogil:
        cdef Run run
        run.first, run.last = first, last
        return self.runs.append(<const uint8_t*>&run, sizeof(Run))

    cdef bint order_runs(self) except -1:
        """Puts the runs in the order of their keys; False if some overlap."""
        cdef Py_ssize_t count = self.runs.size // sizeof(Run), at
        cdef ByteBuffer items = ByteBuffer(count * sizeof(KeyItem)), scratch = ByteBuffer(count * sizeof(KeyItem))
        cdef ByteBuffer ordered = ByteBuffer(count * sizeof(Run))
        cdef KeyItem* item = <KeyItem*>items.data
        cdef Run* runs = <Run*>ordered.data
        cdef RunKeys of
        of.runs, of.sources = <const Run*>self.runs.data, self.rows.source()
        with nogil:
            for at in range(count):
                item[at] = item_of(run_key(&of, at), TABLE_ID_BYTES, at)
            sort_items(item, <KeyItem*>scratch.data, count, run_key, &of, TABLE_ID_BYTES)
            for at in range(count):
                runs[at] = of.runs[item[at].row]
                if at > 0 and compare_bytes(key_in(of.sources, runs[at - 1].last),
                                            key_in(of.sources, runs[at].first)) >= 0:
                    return False
        ordered.size, self.runs = count * sizeof(Run), ordered
        return True

    cdef list batches_of_runs(self):
        """The rows of ordered, disjoint runs."""
        cdef BatchWriter out = self.writer()
        cdef Py_ssize_t count = self.runs.size // sizeof(Run), at = 0, rows = self.rows_at_once()
        cdef const Run* runs = <const Run*>self.runs.data
        cdef int64_t number = runs[0].first if count else 0
        cdef list batches = []
        while at < count:
            with nogil:
                while at < count and out.keys.data_bytes + out.values.data_bytes < self.drain_bytes:
                    self.rows.copy_rows(number, min(runs[at].last - number + 1, <int64_t>rows), out)
                    number += rows
                    if number > runs[at].last:
                        at += 1
                        number = runs[at].first if at < count else 0
            batches.append(WriteBatch(out.keys.finish(), out.values.finish()))
        return batches

    cdef list sorted_batches(self):
        """The newest row of each key."""
        cdef BatchWriter out = self.writer()
        cdef Py_ssize_t count = self.rows.rows, wrong = -1, at = 0, rows = self.rows_at_once(), kept
        cdef ByteBuffer items = ByteBuffer(count * sizeof(KeyItem)), scratch = ByteBuffer(count * sizeof(KeyItem))
        cdef KeyItem* item = <KeyItem*>items.data
        cdef list batches = []
        with nogil:
            self.rows.fill(item)
            sort_items(item, <KeyItem*>scratch.data, count, key_source, <void*>self.rows.source(), TABLE_ID_BYTES)
        while at < count and wrong < 0:
            with nogil:
                while at < count and out.keys.data_bytes + out.values.data_bytes < self.drain_bytes:
                    kept = self.keep_newest(item + at, min(rows, count - at), at + rows < count, &wrong)
                    if wrong >= 0:
                        break
                    self.rows.gather_sorted(item + at, kept, out)
                    at += rows
            batches.append(WriteBatch(out.keys.finish(), out.values.finish()))
        if wrong >= 0:
            message = "insert of a row that was inserted before" if self.is_insert_only else "a key twice in a slice"
            number = item[at + wrong].row
            raise self.error(message, self.rows.batches[number >> 32].keys[number & 0xFFFFFFFF])
        return batches

    cdef Py_ssize_t rows_at_once(self):
        """Copied between two looks at the size of the output."""
        return COPIED_ROWS if self.rows.key_bytes + self.rows.value_bytes <= self.drain_bytes else 1

    cdef BatchWriter writer(self):
        """With room for all rows, or for one batch of them."""
        cdef BatchWriter out = BatchWriter()
        out.keys.reserve(self.rows.rows, min(self.rows.key_bytes, self.drain_bytes))
        out.values.reserve(self.rows.rows, min(self.rows.value_bytes, self.drain_bytes))
        return out

    cdef Py_ssize_t keep_newest(self, KeyItem* items, Py_ssize_t rows, bint has_next, Py_ssize_t* wrong) noexcept nogil:
        """Moves the last of the items with one key to the front, REQUIRES all sorted; returns their number. `has_next`:
        one more item follows, which is compared. Sets `wrong` to the first that may not have its key.
        """
        cdef Py_ssize_t at, kept = 0
        cdef void* sources = <void*>self.rows.source()
        self.rows.prefetch_keys(items, rows + has_next)
        for at in range(rows):
            if at + 1 < rows + has_next and are_heads_equal(items + at, items + at + 1) and (
                    compare_items(items + at, items + at + 1, key_source, sources, TABLE_ID_BYTES) == 0):
                if self.is_insert_only or items[at].row >> 32 == items[at + 1].row >> 32:
                    wrong[0] = at + 1
                    return kept
                continue
            items[kept] = items[at]
            kept += 1
        return kept
