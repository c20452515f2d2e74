"""JoinIndex: the rows of one input of a join in memory.

    index = JoinIndex(types, key_columns, stream_key, null_safe=(False,), memory=MemoryBudget(1 << 30).share())
    located = index.locate(key columns, visibility)             # ids int32[rows], new_ids int32[n]
    index.load(stored rows of the keys in new_ids)              # unless nothing is stored anywhere
    index.apply(chunk, located.ids)                             # chunk: changes of this input
    for probe_rows, row_ids in JoinProbe(index, located.ids):   # bounded batches, in the order of the probe rows
        index.gather(row_ids, columns)                          # pa.Arrays
    degrees = index.change_degrees(row_ids, weights)            # outer, semi and anti joins
    index.end_epoch()                                           # or limit_memory(), within an epoch

Keys are equal as SQL's are (-0.0 is 0.0, NaN is NaN). One thread at a time.
"""

import numpy as np
import pyarrow.compute as pc

cimport cython
from libc.stdint cimport int8_t, int32_t, uint8_t
from libc.stdlib cimport free, malloc

from hummock.base.prefetch cimport prefetch, prefetch_for_write
from relational.chunk.column cimport Column, ColumnView, as_column
from relational.chunk.data_chunk cimport DataChunk, mask_pointer
from relational.chunk.stream_chunk cimport StreamChunk
from relational.hash.key_ids cimport KeyInterner
from relational.join.join_rows cimport Changes, JoinRows
from relational.join.row_lists cimport KeyEntry, has_block, is_empty

from relational.hash.evicted_keys import EvictedKeys
from relational.hash.located_keys import LocatedKeys
from relational.memory_use import MemoryUse
from relational.errors import ConsistencyError
from relational.join.stored_form import StoredForm

cdef enum:
    AHEAD = 16
    MOST_ROWS = 0x7FFFFFF0      # row ids are int32
    MIN_WASTE = 4096            # gaps, or empty keys, that make closing them worthwhile
    WASTE_BYTES = 1 << 20       # of strings, likewise
    MIN_FORGOTTEN = 4096        # keys and rows in memory below which none are forgotten

cdef double EVICTION_SHARE = 0.6    # of the capacity remains filled after an eviction, and is moved
cdef Py_ssize_t EXCESS_BYTES = 512 << 20    # beyond the capacity, or as much as it, within an epoch


@cython.final
cdef class JoinIndex(JoinRows):
    """A row is identified by its join key and its stream key. Ids of keys and rows are valid until the next
    `end_epoch` or `limit_memory`.
    """

    def __init__(self, types, key_columns, stream_key, *, null_safe=None, memory=None, has_degrees=False):
        """Rows of `types`; `key_columns` and `stream_key` are indices into them. Without a stream key the input is
        append-only: a delete is an error, and no time or memory is spent on locating rows. `has_degrees`: each row has
        a degree.
        """
        types = self.types = tuple(types)
        self.key_columns, self.stream_key = tuple(key_columns), tuple(stream_key)
        self.null_safe = (False,) * len(self.key_columns) if null_safe is None else tuple(null_safe)
        if len(self.null_safe) != len(self.key_columns) or not self.key_columns:
            raise ValueError(f"keys {self.key_columns}, null_safe {self.null_safe}, stream key {self.stream_key}")
        self.memory_share = memory
        self.key_numbers = KeyInterner([types[column] for column in self.key_columns])
        self.form = StoredForm(types, self.stream_key)
        super().__init__(self.form.types, self.form.name, has_degrees)
        self.is_complete, self.epoch, self.forget_at = True, 1, MIN_FORGOTTEN
        self.evicted = EvictedKeys(memory)

    @property
    def rows(self):
        """The number of rows in memory."""
        return self.lists.rows

    @property
    def keys(self):
        """The number of known keys, including those without rows."""
        return self.lists.keys

    @property
    def capacity_bytes(self):
        """What it may use, as of the last barrier; None: any."""
        return None if self.memory_share is None else self.memory_share.capacity_bytes

    @property
    def size_bytes(self):
        """Memory used."""
        return self.key_numbers.size_bytes + self.records.size_bytes + self.lists.size_bytes

    def memory(self):
        """MemoryUse; from any thread."""
        rows, used = self.lists.rows, self.size_bytes + self.evicted.size_bytes
        return MemoryUse(rows, self.records.column_bytes(rows), used, self.capacity_bytes, self.evicted.count)

    def locate(self, columns, visibility=None, bint is_adding=True):
        """LocatedKeys: the key ids of rows, of either input, with these key columns. Marks the keys as touched.

        -1 also for a key with a NULL that equals nothing and, with `is_adding=False`, for an unknown one.
        """
        cdef Py_ssize_t before = self.lists.keys, row, rows
        cdef const int32_t[::1] ids
        found = self.key_numbers.find(columns, self.comparable(columns, visibility), is_adding)
        self.lists.grow(self.key_numbers.count)
        ids = found
        rows = ids.shape[0]
        for row in range(rows):
            if row + AHEAD < rows:
                prefetch_for_write(self.lists.entry(ids[row + AHEAD]))
            if ids[row] >= 0:
                self.lists.entry(ids[row]).touched = self.epoch
        return LocatedKeys(found, np.arange(before, self.lists.keys, dtype=np.int32))

    def track_evictions(self):
        """From now on keys that were never evicted are known to have no stored rows. REQUIRES that none has one now,
        and that the keys of all rows that are stored later are located as they are."""
        self.evicted.track()

    def possibly_stored(self, new_ids):
        """Those of the new keys that may have stored rows: int32[n]."""
        return self.evicted.possibly_stored(new_ids, self.keys_of)

    def keys_of(self, ids):
        """The columns of keys."""
        return DataChunk(self.key_numbers.keys(ids), capacity=len(ids))

    def load(self, DataChunk rows not None, degrees=None):
        """Loads stored rows of keys with ids from `locate`. `degrees`: int32[capacity], default 0.

        ConsistencyError for a row already present, ValueError for one whose key has no id.
        """
        ids = self.locate([rows.columns[column] for column in self.key_columns], rows.visibility, False).ids
        if int(np.count_nonzero(ids >= 0)) != rows.visible_rows:
            raise ValueError("a row is loaded whose key was never located")
        self.change(rows, None, ids, degrees)

    def apply(self, StreamChunk chunk not None, ids, degrees=None):
        """Applies the visible changes of this input. `ids` as returned by `locate` for the chunk; rows with -1 are
        skipped. `degrees`: int32[capacity], those of the inserted rows, default 0.

        ConsistencyError for an insert of a present row, or a delete of an absent one; the changes before it have taken
        effect.
        """
        self.change(chunk, chunk.ops, ids, degrees)

    def counts(self, const int32_t[::1] ids not None):
        """The number of matches of each located row: int32[rows], 0 for -1."""
        out = np.empty(ids.shape[0], np.int32)
        cdef int32_t[::1] counts = out
        cdef const KeyEntry* entry
        cdef Py_ssize_t row, rows = ids.shape[0]
        check_numbers(ids, self.lists.keys)
        for row in range(rows):
            if row + AHEAD < rows:
                prefetch(self.lists.entry(ids[row + AHEAD]))
            if row + AHEAD // 2 < rows and ids[row + AHEAD // 2] >= 0:
                entry = self.lists.entry(ids[row + AHEAD // 2])
                if has_block(entry):
                    prefetch(self.lists.head(entry))
            counts[row] = self.lists.count(self.lists.entry(ids[row])) if ids[row] >= 0 else 0
        return out

    def first_rows(self, const int32_t[::1] ids not None):
        """Of each located key without matches the first of the rows that have it: int32[n], ascending. REQUIRES that
        `ids` are of the last call of `locate`.
        """
        out = np.empty(ids.shape[0], np.int32)
        cdef int32_t[::1] found = out
        cdef KeyEntry* entry
        cdef Py_ssize_t row, rows = ids.shape[0], count = 0
        check_numbers(ids, self.lists.keys)
        for row in range(rows):
            if row + AHEAD < rows:
                prefetch_for_write(self.lists.entry(ids[row + AHEAD]))
            entry = self.lists.entry(ids[row])
            if ids[row] >= 0 and is_empty(entry) and entry.touched == self.epoch:
                entry.touched = 0       # until all rows were seen
                found[count] = row
                count += 1
        for row in range(count):
            self.lists.entry(ids[found[row]]).touched = self.epoch
        return out[:count]

    def gather(self, const int32_t[::1] row_ids not None, columns=None) -> list:
        """One pa.Array per requested column of the rows; NULL for -1. IndexError for a row id out of range."""
        check_numbers(row_ids, self.records.rows)
        wanted = tuple(range(len(self.types)) if columns is None else columns)
        if wanted and not 0 <= min(wanted) <= max(wanted) < len(self.types):
            raise IndexError(f"columns {wanted} of {len(self.types)}")
        arrays = self.records.gather(&row_ids[0] if row_ids.shape[0] else NULL, row_ids.shape[0], wanted)
        return self.form.restore(arrays, wanted)

    def change_degrees(self, const int32_t[::1] row_ids not None, const int8_t[::1] weights not None):
        """Adds weights[i] to the degree of row_ids[i], in order; returns the degree after each: int32[n].

        ConsistencyError for a degree below 0.
        """
        out = np.empty(row_ids.shape[0], np.int32)
        cdef int32_t[::1] after = out
        cdef Py_ssize_t row, rows = row_ids.shape[0]
        cdef int32_t least = 0
        if weights.shape[0] != rows:
            raise ValueError(f"{weights.shape[0]} weights for {rows} rows")
        check_numbers(row_ids, self.records.rows)
        if self.degree_at < 0 or (rows and np.min(row_ids) < 0):
            raise IndexError("row -1 has no degree" if self.degree_at >= 0 else "rows have no degrees")
        for row in range(rows):
            if row + AHEAD < rows:
                prefetch_for_write(self.degree(row_ids[row + AHEAD]))
            self.degree(row_ids[row])[0] += weights[row]
            after[row] = self.degree(row_ids[row])[0]
            least = min(least, after[row])
        if least < 0:
            row = int(out.argmin())
            arrays = self.gather(np.array([row_ids[row]], np.int32), self.stream_key or None)
            key = tuple([Column(array)[0] for array in arrays])
            raise ConsistencyError(f"a join row has degree {out[row]}", key=key)
        return out

    def degrees(self, row_ids):
        """The degree of each row: int32[n]."""
        return self.change_degrees(row_ids, np.zeros(len(row_ids), np.int8))

    def end_epoch(self) -> int:
        """At a barrier: closes gaps if there are many, and enforces the budget. Returns the number of evicted keys.
        Invalidates all key and row ids.
        """
        cdef Py_ssize_t before, capacity
        cdef double kept = EVICTION_SHARE
        if self.has_waste():
            self.repack(self.lists.worth_keeping(self.epoch))
        self.lists.pack()
        before = self.lists.keys
        if self.memory_share is not None:
            capacity = self.memory_share.report(self.size_bytes)
            while self.size_bytes > capacity and self.lists.keys:
                self.evict(<Py_ssize_t>(capacity * kept))
                kept /= 2
            self.memory_share.report(self.size_bytes)
        self.epoch += 1
        return before - self.lists.keys

    def forget_below(self, position, bound):
        """At a barrier: nothing is looked up or changed any more under the keys whose column number `position` is below
        `bound`, a Python value that is not NULL. They are forgotten with their rows, once there may be as many of them
        as others. Invalidates all key and row ids.
        """
        if self.lists.keys + self.lists.rows < self.forget_at:
            return
        column = as_column(self.key_numbers.keys(np.arange(self.lists.keys, dtype=np.int32))[position])
        below = pc.less(column.array, Column.from_pylist([bound], column.data_type).array[0]).fill_null(False)
        kept = np.flatnonzero(~below.to_numpy(zero_copy_only=False)).astype(np.int32)
        if len(kept) < self.lists.keys:
            self.repack(kept)
        self.forget_at = max(<Py_ssize_t>MIN_FORGOTTEN, 2 * (self.lists.keys + self.lists.rows))

    def forget(self, ids):
        """Forgets keys, and their rows in memory. Invalidates the ids of rows, and of keys with greater numbers."""
        self.repack(np.setdiff1d(np.arange(self.lists.keys, dtype=np.int32), ids, True))

    def limit_memory(self):
        """Within an epoch: evicts as `end_epoch`, once rows take twice the capacity, or EXCESS_BYTES more."""
        cdef Py_ssize_t capacity
        if self.memory_share is not None:
            capacity = self.memory_share.capacity_bytes
            if self.size_bytes > capacity + min(capacity, EXCESS_BYTES):
                self.end_epoch()

    def comparable(self, columns, visibility):
        """`visibility` without the rows whose key equals nothing."""
        for source, is_safe in zip(columns, self.null_safe, strict=True):
            column = as_column(source)
            if not is_safe and column.null_count:
                present = column.array.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
                visibility = present if visibility is None else visibility & present
        return visibility

    def change(self, DataChunk chunk, ops, ids, degrees):
        """Inserts and deletes the visible rows with an id of 0 or more; without ops all are inserts."""
        cdef const int32_t[::1] keys = ids, given = degrees
        cdef const uint8_t[::1] changes = ops
        cdef list columns
        cdef int count, i
        cdef Py_ssize_t wrong = -1, rows = chunk.capacity
        cdef Changes job
        if chunk.types != self.types or keys.shape[0] != rows or (given is not None and given.shape[0] != rows):
            raise ValueError(f"{keys.shape[0]} ids for {chunk!r}; rows are {self.types}")
        check_numbers(keys, self.lists.keys)
        if rows == 0:
            return
        if self.records.rows + rows > MOST_ROWS:
            raise OverflowError(f"{self.records.rows} rows and {rows} more: numbers are int32")
        columns = self.form.store(chunk.columns)
        count = len(columns)
        job.ids, job.visible = &keys[0], mask_pointer(chunk.visibility)
        job.ops = NULL if changes is None else &changes[0]
        job.degrees = NULL if given is None or self.degree_at < 0 else &given[0]
        job.views = <const ColumnView**>malloc((count + len(self.stream_key)) * sizeof(ColumnView*) + 1)
        if job.views == NULL:
            raise MemoryError("no memory for the columns of rows")
        for i in range(count):
            job.views[i] = &(<Column>columns[i]).view
        job.named = job.views + count
        for i, at in enumerate(self.stream_key):
            job.named[i] = &(<Column>chunk.columns[at]).view
        try:
            with nogil:
                wrong = self.change_rows(&job, rows)
        finally:
            free(job.views)
        if wrong >= 0:
            self.raise_contradiction(chunk, wrong, ops is not None and ops[wrong] & 1)

    def raise_contradiction(self, DataChunk chunk, row, is_delete):
        """Raises the error for a contradictory change."""
        if is_delete and not self.stream_key:
            raise ConsistencyError("a row is deleted from a join input that only appends")
        fault = "deleted that is not there" if is_delete else "inserted that is there"
        raise ConsistencyError(
            f"a join row is {fault}", key=tuple([chunk.columns[column][row] for column in self.stream_key]))

    def has_waste(self) -> bool:
        """Whether gaps, empty keys or strings of deleted rows make up about half of the memory used."""
        cdef Py_ssize_t gaps = self.records.rows - self.lists.rows
        return (gaps > max(<Py_ssize_t>MIN_WASTE, self.lists.rows)
                or self.lists.empty_keys > max(<Py_ssize_t>MIN_WASTE, self.lists.keys // 2)
                or 2 * self.records.dead_bytes > self.records.arena.size + WASTE_BYTES)

    def latest(self, wanted_bytes):
        """The last touched keys whose shares of the memory add up to `wanted_bytes`, ascending: int32[n]."""
        per_row = self.records.size_bytes / max(self.records.rows, 1)
        per_key = (self.key_numbers.size_bytes + self.lists.size_bytes) / max(self.lists.keys, 1)
        return self.lists.latest(self.epoch, per_key, per_row, wanted_bytes)

    cdef int evict(self, Py_ssize_t kept_bytes) except -1:
        kept = self.latest(kept_bytes)
        self.evicted.add(np.setdiff1d(np.arange(self.lists.keys, dtype=np.int32), kept, True), self.keys_of)
        self.is_complete = False
        return self.repack(kept)

    cdef int repack(self, const int32_t[::1] keys) except -1:
        cdef uint8_t[::1] marks = np.zeros(max(self.records.rows, 1), np.uint8)
        cdef int32_t[::1] numbers = np.empty(max(self.records.rows, 1), np.int32)
        with nogil:
            self.lists.mark(keys, &marks[0])
        self.records.keep(&marks[0], &numbers[0])
        self.lists.keep(keys, &numbers[0])
        self.key_numbers.keep(keys)
        self.free_row = -1
        self.generation += 1
        return 0


cdef int check_numbers(const int32_t[::1] ids, Py_ssize_t count) except -1:
    """IndexError unless all are below `count` and none below -1."""
    cdef Py_ssize_t row
    cdef int32_t most = -1, least = -1
    for row in range(ids.shape[0]):
        most, least = max(most, ids[row]), min(least, ids[row])
    if most >= count or least < -1:
        raise IndexError(f"numbers {least} to {most} of {count}")
    return 0
