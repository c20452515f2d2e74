"""StorageTable: the rows of a table at one epoch, selected columns, read only.

For batch queries, backfills and readers in other processes. It holds no state; any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hummock.base.key import USER_KEY_PREFIX_BYTES, KeyRange, user_key
from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import KvBatch
from hummock.epoch import Epoch, pure_epoch
from hummock.state_store import StateStore
from relational.catalog.objects import TableCatalog
from relational.chunk.data_chunk import DataChunk
from relational.chunk.stream_chunk import StreamChunk
from relational.chunk.vnode_map import vnode_ranges
from relational.table.column_cache import ColumnCache
from relational.table.key_ranges import ranges_of
from relational.table.overlay import rows_of_changes
from relational.table.row_layout import WholeRows
from relational.table.row_lookup import RowLookup
from relational.table.row_serde import Row, RowSerde, present_in
from relational.table.scan import concatenated, within
from relational.types import Schema
from relational.types.key_set import KeySet, RowRange

PARTS = 64
"""Of a whole table, a few of which are read at once."""
CHUNK_ROWS = 65_536
"""About how many rows a chunk has, once several batches were read."""
PART_ROWS = 8_192
"""Rows of the first part of a table from which on it is large."""
ReadInOrder = Callable[[Callable[[KeyRange], list[DataChunk]], Sequence[KeyRange]], Iterator[list[DataChunk]]]
"""Reads parts, and returns their chunks in order."""


class StorageTable:
    """`columns` are column indices of the catalog, in the order of the result; None: all of them."""

    def __init__(
        self,
        catalog: TableCatalog,
        store: StateStore,
        columns: Sequence[int] | None = None,
        *,
        cache: ColumnCache | None = None,
    ):
        """`cache`: for this store's columns; scans of all rows in any order look it up first, at committed epochs."""
        self.catalog = catalog
        self._store, self._cache = store, cache
        self.serde = RowSerde(catalog, columns)
        self.schema = Schema(tuple(catalog.schema.fields[column] for column in self.serde.columns))
        self._stored = self.serde.rows_in(store)

    def get_row(self, pk: Row, epoch: Epoch) -> Row | None:
        """The row under `pk` at `epoch`, or None."""
        found = self.get_batch(pk, epoch, self.schema.arrow)
        return None if found is None else next(iter(DataChunk(found.columns, capacity=1).rows()))

    def get_batch(self, pk: Sequence[object], epoch: Epoch, schema: pa.Schema) -> pa.RecordBatch | None:
        """The selected columns of the row under `pk`, as `schema` names them; None if there is no such row."""
        if self._lookup is not None:
            return self._lookup.get(self._store, pk, epoch, schema)
        rows, found = self.get_rows(self.serde.pk_chunk([tuple(pk)]), epoch)
        return pa.RecordBatch.from_arrays(rows.arrays, schema=schema) if found[0] else None

    @cached_property
    def _lookup(self) -> RowLookup | None:
        """None: rows are not looked up one by one."""
        columns = self.serde.columns
        is_one_by_one = isinstance(self._stored, WholeRows) and columns and len(set(columns)) == len(columns)
        return RowLookup(self.serde) if is_one_by_one else None

    def get_rows(self, pks: DataChunk, epoch: Epoch) -> tuple[DataChunk, np.ndarray]:
        """(rows, found uint8) for each visible row of `pks`, which has the pk columns in key order, in one read. If
        nothing is found the other columns are NULL.
        """
        pks = pks.compact()
        keys, _ = self.serde.keys_of_pks(pks.columns, pks.capacity)
        values = self._stored.get_many(keys, epoch)
        return self.serde.decode_found(pks.arrays, values), present_in(values)

    def scan(
        self,
        epoch: Epoch,
        prefix: Row = (),
        bounds: RowRange | None = None,
        *,
        ordered: bool = False,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[DataChunk]:
        """The rows at `epoch` whose pk begins with `prefix` and has the next pk column within `bounds`.

        `ordered`: in key order, by a merge over the vnodes if the prefix does not determine the vnode. Otherwise in key
        order within each vnode. At most `limit` rows.
        """
        is_whole = not (prefix or bounds or ordered or reverse or limit is not None)
        if prefix or bounds or ordered:
            return self.rows_of(KeySet((tuple(prefix),), bounds), epoch, ordered=ordered, reverse=reverse, limit=limit)
        batches = concatenated(self._stored, [KeyRange.table(self.catalog.id)], epoch, reverse=reverse, limit=limit)
        chunks = _gathered(self._decoded(batches), 1)
        return self._cached(epoch, chunks) if is_whole else chunks

    def scan_parts(self, epoch: Epoch, read_in_order: ReadInOrder) -> Iterator[DataChunk]:
        """All rows at `epoch`, in the order of `scan`. Parts of a large table are read by `read_in_order`, which may
        use several threads."""
        return self._cached(epoch, self._parts(epoch, read_in_order))

    def _parts(self, epoch: Epoch, read_in_order: ReadInOrder) -> Iterator[DataChunk]:
        first, *others = self.partitions(PARTS)
        rows = 0
        for chunk in self.scan_partition(epoch, first):
            rows += chunk.capacity
            yield chunk
        if others and rows < PART_ROWS:
            yield from self.scan_partition(epoch, KeyRange(others[0].start, others[-1].end))
            return
        for chunks in read_in_order(lambda part: list(self.scan_partition(epoch, part)), others):
            yield from chunks

    def _cached(self, epoch: Epoch, chunks: Iterator[DataChunk]) -> Iterator[DataChunk]:
        """All rows: from the cache if it has all columns, else `chunks`, which it keeps if it can."""
        if self._cache is None or not self.serde.columns or epoch > self._store.committed_epoch:
            return chunks
        ids, since = self.catalog.column_ids, self._cache.since(self.catalog.id, pure_epoch(epoch))
        names = [(self.catalog.id, since, ids[column]) for column in self.serde.columns]
        return self._cache.scanned(names, chunks)

    def rows_of(
        self, keys: KeySet, epoch: Epoch, *, ordered: bool = False, reverse: bool = False, limit: int | None = None
    ) -> Iterator[DataChunk]:
        """The rows of a set at `epoch`, in the order of `scan`. Whole keys are looked up, others read as ranges."""
        if keys.prefixes and len(keys.prefixes[0]) == len(self.serde.pk) and keys.bounds is None:
            return self._looked_up(keys, epoch, ordered=ordered, reverse=reverse, limit=limit)
        ranges = ranges_of(self.serde, keys)
        batches = within(self._stored, ranges, epoch, ordered=ordered, reverse=reverse, limit=limit)
        return _gathered(self._decoded(batches), 1)

    def rows_under(self, prefixes: DataChunk, epoch: Epoch) -> Iterator[DataChunk]:
        """The rows at `epoch` whose pk begins with one of the rows of `prefixes`, leading pk columns that determine the
        vnode; each once. NULL equals NULL."""
        columns = prefixes.compact().columns
        keys, _ = self.serde.keys_of_pks(columns, len(columns[0]))
        wanted = BinaryColumn.from_arrow(pc.unique(keys.to_arrow()))
        if len(columns) < len(self.serde.pk):
            _, batch = self._stored.scan_prefixes(wanted, epoch)
            return self._decoded(iter([batch] if len(batch) else []))
        values = self._stored.get_many(wanted, epoch)
        found = np.flatnonzero(present_in(values))
        batch = KvBatch(wanted.to_arrow().take(found), values.to_arrow().take(found))
        return self._decoded(iter([batch] if len(found) else []))

    def _looked_up(
        self, keys: KeySet, epoch: Epoch, *, ordered: bool, reverse: bool, limit: int | None
    ) -> Iterator[DataChunk]:
        """The rows under whole keys, in one read."""
        pks = self.serde.pk_chunk(keys.prefixes)
        wanted, _ = self.serde.keys_of_pks(pks.columns, pks.capacity)
        if len(wanted) > 1:
            skip = USER_KEY_PREFIX_BYTES if ordered else 0
            each = sorted(set(wanted), key=lambda key: key[skip:], reverse=reverse)
            wanted = BinaryColumn.from_pylist(each)
        values = self._stored.get_many(wanted, epoch)
        found = np.flatnonzero(present_in(values))[:limit]
        if len(found) == len(wanted):
            return iter([self.serde.decode(wanted, values)])
        batch = KvBatch(wanted.to_arrow().take(found), values.to_arrow().take(found))
        return self._decoded(iter([batch] if len(found) else []))

    def _decoded(self, batches: Iterator[KvBatch]) -> Iterator[DataChunk]:
        return (self.serde.decode(batch.keys, batch.values) for batch in batches)

    def changes(self, since: Epoch, until: Epoch, partition: KeyRange | None = None) -> Iterator[StreamChunk]:
        """The changes from the rows at `since` to those at `until`: inserts, deletes and updates whose halves differ in
        a selected column, each key once; of one of `partitions` (None: of the whole table), in user key order.

        EpochTooOld below the safe epoch. REQUIRES that `since` remains readable to the end: the caller holds a snapshot
        of it.
        """
        with self._stored.changes(partition or KeyRange.table(self.catalog.id), since, until) as feed:
            while (batch := feed.next_batch()) is not None:
                keys, values, ops = rows_of_changes(batch.keys, batch.old, batch.new)
                rows = self.serde.decode(keys, values)
                chunk = StreamChunk(rows.columns, ops).without_unchanged_updates().compact()
                if chunk.capacity:
                    yield chunk

    def partitions(self, groups: int) -> list[KeyRange]:
        """The table as at most `groups` ranges of adjacent vnodes, for parallel readers; ascending."""
        every = np.ones(self.catalog.vnode_count, np.uint8)
        table = KeyRange.table(self.catalog.id)
        starts = [user_key(self.catalog.id, first, b"") for first, _ in vnode_ranges(every, groups)]
        return [KeyRange(start, end) for start, end in zip(starts, [*starts[1:], table.end], strict=True)]

    def scan_partition(self, epoch: Epoch, partition: KeyRange) -> Iterator[DataChunk]:
        """The rows at `epoch` of one of `partitions`, in key order within each vnode."""
        return _gathered(self._decoded(concatenated(self._stored, [partition], epoch)), CHUNK_ROWS)

    def scan_slices(self, epoch: Epoch, key_range: KeyRange, rows: int) -> Iterator[tuple[DataChunk, bytes]]:
        """The rows at `epoch` of a range of user keys, in key order, at most `rows` at a time; each with the user key
        of its last row."""
        with self._stored.scan(key_range, epoch) as found:
            while (batch := found.next_batch(rows)) is not None:
                yield self.serde.decode(batch.keys, batch.values), batch.keys[len(batch) - 1]

    def to_arrow(self, epoch: Epoch, threads: int = 1) -> pa.Table:
        """All rows at `epoch`, unordered; each of `threads` reads a partition at a time."""
        if threads == 1:
            parts = [self._batches_of(self.scan(epoch))]
        else:
            with ThreadPoolExecutor(threads, "storage-table") as pool:
                parts = list(pool.map(lambda partition: self._batches_of(self.scan_partition(epoch, partition)),
                                      self.partitions(4 * threads)))
        return pa.Table.from_batches([batch for part in parts for batch in part], schema=self.schema.arrow)

    def _batches_of(self, chunks: Iterator[DataChunk]) -> list[pa.RecordBatch]:
        return [chunk.to_arrow(self.schema) for chunk in chunks]


def _gathered(chunks: Iterator[DataChunk], least: int) -> Iterator[DataChunk]:
    """The rows in chunks of `least` rows, which grow to CHUNK_ROWS: batches fit the caches of a CPU, and are processed
    together. `least` is 1 for readers that may have enough after the first batch."""
    waiting: list[DataChunk] = []
    rows = 0
    for chunk in chunks:
        waiting.append(chunk)
        rows += chunk.capacity
        if rows >= least:
            yield DataChunk.concat(waiting)
            waiting, least, rows = [], min(2 * max(rows, least), CHUNK_ROWS), 0
    if waiting:
        yield DataChunk.concat(waiting)
