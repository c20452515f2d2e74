"""StateTable: one executor's own table.

Writes go to a mem table and are seen at once by the reads of this table; a commit hands them to the store as
sorted batches at the epoch that ends. Reads lay the mem table over the store at the epoch before. What the
store holds is trusted: an insert of a key that is only in the store is not noticed here, contradictions
within an epoch are. One thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice

import numpy as np
import pyarrow as pa

from hummock.binary_column import BinaryColumn
from hummock.epoch import Epoch, EpochPair
from hummock.errors import InvalidEpoch
from hummock.key import USER_KEY_PREFIX_BYTES, KeyRange
from hummock.state_store import StateStore
from hummock.write_batch import KvBatch
from relational.catalog.objects import TableCatalog
from relational.chunk.data_chunk import DataChunk
from relational.chunk.stream_chunk import Op, StreamChunk
from relational.errors import ConsistencyError
from relational.table.key_merge import merged, overlay
from relational.table.mem_table import MemTable
from relational.table.prefix_merge import first_rows
from relational.table.row_serde import Row, RowSerde
from relational.table.store_scan import concatenated, in_key_order

MAX_FETCHED = 1 << 20  # rows asked of the store under one prefix before `first_rows` gives up


class StateTable:
    """Reads its own writes; durable at the next checkpoint. REQUIRES `init_epoch` before anything else."""

    def __init__(self, catalog: TableCatalog, store: StateStore, vnodes: np.ndarray | None = None):
        """`vnodes`: uint8[vnode_count], 1 for those owned; None: all. ValueError for another length."""
        self.catalog = catalog
        self.serde = RowSerde(catalog)
        self._store = store
        self._epoch: EpochPair | None = None
        self._mem = MemTable(catalog.name, self.serde.show_key)
        self._vnodes = None if vnodes is None else np.ascontiguousarray(vnodes).astype(np.uint8)
        if self._vnodes is not None and self._vnodes.shape != (catalog.vnode_count,):
            raise ValueError(f"{self._vnodes.shape} vnodes for a table of {catalog.vnode_count}")

    @property
    def epoch(self) -> EpochPair:
        """The epoch pair of the last barrier. InvalidEpoch before the first."""
        if self._epoch is None:
            raise InvalidEpoch(0, f"table {self.catalog.name!r} was used before its first barrier")
        return self._epoch

    @property
    def size_bytes(self) -> int:
        """Memory taken by the writes of this epoch."""
        return self._mem.size_bytes

    @property
    def is_dirty(self) -> bool:
        """Something was written since the last commit."""
        return len(self._mem) > 0

    def init_epoch(self, epoch: EpochPair) -> None:
        """The first barrier came: reads are at `epoch.prev`, writes belong to `epoch.curr`."""
        self._epoch = epoch

    def commit(self, epoch: EpochPair) -> None:
        """Ends the epoch `epoch.prev`: its writes are in the store. InvalidEpoch if it is not the present."""
        if epoch.prev != self.epoch.curr:
            raise InvalidEpoch(epoch.prev, f"table {self.catalog.name!r} is in epoch {self.epoch.curr}")
        for batch in self._mem.drain():
            self._store.ingest_batch(batch, epoch.prev)
        self._epoch = epoch

    def get_row(self, pk: Row) -> Row | None:
        """The row under `pk`, or None."""
        rows, found = self.get_rows(self.serde.pk_chunk([tuple(pk)]))
        return next(iter(rows.rows())) if found[0] else None

    def get_rows(self, pks: DataChunk) -> tuple[DataChunk, np.ndarray]:
        """(whole rows, found uint8) for each visible row of `pks`, which has the pk columns in key order.

        One read of the store at most. Where nothing is found the row is NULL beside its key.
        """
        pks = pks.compact()
        keys, vnodes = self.serde.keys_of_pks(pks.columns, pks.capacity)
        self._check_vnodes(vnodes)
        epoch = self.epoch.prev
        values = self._mem.get_many(keys, lambda unknown: self._store.get_many(unknown, epoch))
        found = values.to_arrow().is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
        return self.serde.decode_found(pks.arrays, values), found

    def scan(self, prefix: Row = (), *, reverse: bool = False, limit: int | None = None) -> Iterator[Row]:
        """The rows whose pk begins with `prefix`, in key order, as they are now."""
        columns = self.serde.prefix_columns(tuple(prefix))
        ranges = self.serde.ranges(columns, self._vnodes)
        changed = [self._mem.range(part.start, part.end) for part in ranges]
        ends = [len(batch) for batch in changed]
        changes = merged(changed, [0] * len(ends), ends, USER_KEY_PREFIX_BYTES, reverse)
        enough = None if limit is None else limit + len(changes)
        stored = in_key_order(self._store, ranges, self.epoch.prev, reverse=reverse, limit=enough)
        batches = _laid_over(stored, changes, USER_KEY_PREFIX_BYTES, reverse)
        chunks = (self.serde.decode(batch.keys, batch.values) for batch in batches)
        return islice(chain.from_iterable(chunk.rows() for chunk in chunks), limit)

    def scan_chunks(self, prefix: Row = ()) -> Iterator[DataChunk]:
        """The rows whose pk begins with `prefix`, as they are now; in key order within each vnode."""
        columns = self.serde.prefix_columns(tuple(prefix))
        parts = [(part, self._mem.range(part.start, part.end)) for part in self._ranges(columns)]
        return self._chunks(parts, self.epoch.prev)

    def first_rows(self, prefixes: DataChunk, limit: int = 1) -> tuple[np.ndarray, DataChunk]:
        """(int32 row of `prefixes` that each result row is under, ascending; whole rows): the first `limit`
        rows in key order under each visible row of leading pk columns.
        """
        prefixes = prefixes.compact()
        if prefixes.capacity == 0 or limit <= 0:
            return np.empty(0, np.int32), DataChunk.from_rows(self.catalog.schema, [])
        if not self.serde.covers_distribution(len(prefixes.columns)):
            return self._first_rows_of_vnodes(prefixes, limit)
        keys, vnodes = self.serde.keys_of_pks(prefixes.columns, prefixes.capacity)
        self._check_vnodes(vnodes)
        owners, batch = self._first_under(keys, limit)
        return owners, self.serde.decode(batch.keys, batch.values)

    def insert_row(self, row: Row) -> None:
        """ConsistencyError if this epoch knows the key as present."""
        self._write_rows([(Op.INSERT, row)])

    def delete_row(self, old: Row) -> None:
        """ConsistencyError if this epoch knows the key as absent."""
        self._write_rows([(Op.DELETE, old)])

    def update_row(self, old: Row, new: Row) -> None:
        """A delete and an insert where the keys differ."""
        self._write_rows([(Op.UPDATE_DELETE, old), (Op.UPDATE_INSERT, new)])

    def write_chunk(self, chunk: StreamChunk) -> None:
        """Takes in the visible changes. U-/U+ of one key is an update, of two keys a delete and an insert; U+
        without its U- puts the row whether or not there was one. ConsistencyError names table and key; the
        changes before the faulty one have taken effect.
        """
        chunk = chunk.compact()
        if chunk.capacity == 0:
            return
        keys, vnodes = self.serde.keys_of(chunk)
        self._check_vnodes(vnodes)
        self._mem.write(keys, self.serde.values_of(chunk), chunk.ops)

    def _write_rows(self, changes: Sequence[tuple[Op, Row]]) -> None:
        self.write_chunk(StreamChunk.from_rows(self.catalog.schema, changes))

    def _chunks(self, parts: Sequence[tuple[KeyRange, KvBatch]], epoch: Epoch) -> Iterator[DataChunk]:
        """Each range as it is in the store at `epoch`, changed."""
        for part, changes in parts:
            for batch in _laid_over(concatenated(self._store, [part], epoch), changes, 0, False):
                yield self.serde.decode(batch.keys, batch.values)

    def _ranges(self, columns: Sequence) -> list[KeyRange]:
        """The ranges that a scan in any order reads: as few as there can be."""
        if columns or self._vnodes is not None:
            return self.serde.ranges(columns, self._vnodes)
        return [KeyRange.table(self.catalog.id)]

    def _first_under(self, keys: BinaryColumn, limit: int) -> tuple[np.ndarray, KvBatch]:
        """The first rows under each user key prefix; asks for more where this epoch has deleted some."""
        asked, fetched = np.arange(len(keys), dtype=np.int32), limit
        owners, batches = [], []
        while len(asked):
            if fetched > MAX_FETCHED:
                raise ConsistencyError(
                    f"{fetched} rows under a prefix are deleted in one epoch", table=self.catalog.name
                )
            part = BinaryColumn.from_arrow(keys.to_arrow().take(asked)) if len(asked) < len(keys) else keys
            rows, stored = self._store.scan_prefixes(part, self.epoch.prev, limit=fetched)
            found, batch, unfinished = first_rows(self._mem, part, rows, stored, limit, fetched)
            owners.append(asked[found])
            batches.append(batch)
            asked, fetched = asked[unfinished], fetched * 4
        if len(batches) == 1:
            return owners[0], batches[0]
        order = np.argsort(np.concatenate(owners), kind="stable")
        return np.concatenate(owners)[order], KvBatch(
            pa.concat_arrays([batch.keys.to_arrow() for batch in batches]).take(order),
            pa.concat_arrays([batch.values.to_arrow() for batch in batches]).take(order),
        )

    def _first_rows_of_vnodes(self, prefixes: DataChunk, limit: int) -> tuple[np.ndarray, DataChunk]:
        """`first_rows` where the prefix leaves the vnode open: the first rows of every vnode, merged."""
        owned = np.arange(self.catalog.vnode_count) if self._vnodes is None else np.flatnonzero(self._vnodes)
        repeated = prefixes.take(np.repeat(np.arange(prefixes.capacity, dtype=np.int32), len(owned)))
        vnodes = np.tile(owned.astype(np.uint16), prefixes.capacity)
        owners, batch = self._first_under(self.serde.keys_under(repeated.columns, vnodes), limit)
        owners //= max(len(owned), 1)
        counts = np.bincount(owners, minlength=prefixes.capacity)
        ends = np.cumsum(counts)
        starts = ends - counts
        in_order = [
            merged([batch], [s], [e], USER_KEY_PREFIX_BYTES) for s, e in zip(starts, ends, strict=True)
        ]
        kept = np.minimum(counts, limit)
        chunks = [
            self.serde.decode(part.keys, part.values).slice(0, int(rows))
            for part, rows in zip(in_order, kept, strict=True)
        ]
        return np.repeat(np.arange(prefixes.capacity, dtype=np.int32), kept), DataChunk.concat(chunks)

    def _check_vnodes(self, vnodes: np.ndarray) -> None:
        """ConsistencyError for a row of a vnode that belongs to another table instance."""
        if self._vnodes is not None and not self._vnodes[vnodes].all():
            wrong = int(vnodes[np.flatnonzero(self._vnodes[vnodes] == 0)[0]])
            raise ConsistencyError("a row of a vnode that is not owned", table=self.catalog.name, key=wrong)


def _laid_over(rows: Iterator[KvBatch], changes: KvBatch, skip: int, reverse: bool) -> Iterator[KvBatch]:
    """Batches in order of their keys less `skip` bytes, with changes in the same order laid over them."""
    position = 0
    for batch in rows:
        batch, position = overlay(batch, changes, position, skip, reverse)
        if len(batch):
            yield batch
    batch, _ = overlay(None, changes, position, skip, reverse)
    if len(batch):
        yield batch
