"""StateTable: one executor's own table.

Writes are buffered in a mem table and are visible at once to the reads of this table; a commit writes them to the store
as sorted batches at the epoch that ends, and so does an earlier spill, when they exceed their memory limit. Reads
overlay the mem table on the store at the previous epoch, after a spill at the epoch itself. The contents of the store
are trusted unless `OpChecks` says otherwise: an insert of a key that is only in the store is not detected,
contradictions within an epoch are. One thread at a time.

Writes that give each key once (`write_slice`, and every write to a table whose keys are generated and that is
append-only) are buffered as slices, without the mem table's index, and sorted when they leave [R33]. A read within the
epoch moves them into the mem table first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np
import pyarrow as pa

from hummock.base.key import USER_KEY_PREFIX_BYTES, KeyRange, vnode_of
from hummock.base.key_watermark import KeyWatermark
from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import KvBatch
from hummock.epoch import Epoch, EpochPair
from hummock.errors import InvalidEpoch
from hummock.state_store import StateStore
from relational.catalog.objects import TableCatalog
from relational.chunk.data_chunk import DataChunk
from relational.chunk.stream_chunk import Op, StreamChunk
from relational.chunk.vnode import first_unowned
from relational.chunk.vnode_map import vnode_ranges
from relational.errors import ConsistencyError
from relational.table.key_ranges import key_ranges, ranges_of
from relational.table.mem_table import MemTable
from relational.table.overlay import merged
from relational.table.row_cache import RowCache
from relational.table.row_layout import CachedRows
from relational.table.row_serde import Row, RowSerde, present_in
from relational.table.scan import (
    PREFIXES_AT_ONCE,
    all_under,
    between,
    concatenated,
    first_under,
    in_key_order,
    laid_over,
    within,
)
from relational.table.slice_buffer import SliceBuffer
from relational.table.store_rules import rules_of
from relational.table.write_budget import WriteBudget
from relational.types.key_set import KeySet, RowRange

Scanned = TypeVar("Scanned", bound=Iterator[Any])
SPILL_BYTES = 64 << 20
SLICE_BYTES = 1 << 20  # of keys and values of slices, which then leave: few are left to be sorted at the barrier
ROW_CACHE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class OpChecks:
    """How a table handles an insert of an existing row, and a delete or update of a missing one."""

    reads_store: bool = False  # also check against rows of earlier epochs: one more read per chunk
    raises: bool = True  # else one log line per chunk, and the operation is applied as received


class StateTable:
    """Reads its own writes; durable at the next checkpoint. REQUIRES `init_epoch` before any other call."""

    def __init__(
        self,
        catalog: TableCatalog,
        store: StateStore,
        vnodes: np.ndarray | None = None,
        *,
        checks: OpChecks = OpChecks(),
        spill_bytes: int = SPILL_BYTES,
        is_replicated: bool = False,
        is_fresh: bool = False,
        row_cache_bytes: int = ROW_CACHE_BYTES,
        budget: WriteBudget | None = None,
    ):
        """`vnodes`: uint8[vnode_count], 1 for those owned; None: all. ValueError for another length, and for a fresh
        table that checks stored rows.

        A write that leaves more than `spill_bytes` in memory, or too much for the `budget` that it shares with other
        tables, spills them to the store. A replicated table mirrors
        another one of the same id: its writes are readable here until the epoch is committed, and are never uploaded. A
        fresh table has no rows before its first commit and only receives inserts until then, each key once: anything
        else is a ConsistencyError, at the commit at the latest, and so is a read of uncommitted rows.
        `row_cache_bytes`: for rows read by key, 0: none. A replicated table has no row cache, since its rows are also
        written elsewhere, and neither has a table whose rows expire.
        """
        if is_fresh and checks.reads_store:
            raise ValueError(f"the fresh table {catalog.name!r} has nothing to look up")
        self._store = store
        is_cached = row_cache_bytes and not is_replicated and not catalog.ttl_ms
        self._cache = RowCache(row_cache_bytes) if is_cached else None
        if not is_replicated:
            store.announce_rules({catalog.id: rules_of(catalog)})
        self._lay_out(catalog)
        self._epoch: EpochPair | None = None
        self._mem = MemTable(catalog.name, self.serde.show_key, is_lenient=not checks.raises,
                             keeps_old=self._stored.keeps_old)
        self._is_fresh = is_fresh
        self._takes_new_keys = is_fresh or (catalog.inserts_new_keys and checks == OpChecks())
        self._slices = SliceBuffer(catalog.name, self.serde.show_key, self._takes_new_keys)
        self._vnodes = self._checked_bitmap(vnodes)
        self._checks, self._spill_bytes, self._is_replicated = checks, spill_bytes, is_replicated
        self._budget = WriteBudget(spill_bytes) if budget is None else budget
        self._watermark: bytes | None = None
        self._has_spilled = False
        self._scans: WeakSet[Any] = WeakSet()

    @property
    def epoch(self) -> EpochPair:
        """The epoch pair of the last barrier. InvalidEpoch before the first."""
        if self._epoch is None:
            raise InvalidEpoch(0, f"table {self.catalog.name!r} was used before its first barrier")
        return self._epoch

    @property
    def size_bytes(self) -> int:
        """Memory used by the writes of this epoch."""
        return (self._mem.size_bytes if len(self._mem) else 0) + self._slices.size_bytes

    @property
    def is_dirty(self) -> bool:
        """Whether anything was written since the last commit."""
        return len(self._mem) + len(self._slices) > 0

    def init_epoch(self, epoch: EpochPair) -> None:
        """At the first barrier: reads are at `epoch.prev`, writes belong to `epoch.curr`."""
        self._epoch, self._has_spilled = epoch, False
        if self._cache is not None:
            self._cache.clear()

    def commit(self, epoch: EpochPair) -> None:
        """Ends the epoch `epoch.prev`: its writes are in the store, and the watermark that it advanced to. InvalidEpoch
        if it is not the current one.
        """
        if epoch.prev != self.epoch.curr:
            raise InvalidEpoch(epoch.prev, f"table {self.catalog.name!r} is in epoch {self.epoch.curr}")
        self._hand_over(epoch.prev)
        self._epoch, self._has_spilled = epoch, False
        watermark, self._watermark = self._watermark, None
        if watermark is None:
            return
        if self._cache is not None:
            self._cache.pass_by(watermark, self.catalog.pk[0].order.descending)
        if not self._is_replicated:
            self._store.advance_watermark(self.catalog.id, self._key_watermark(watermark, epoch.prev))

    def update_vnodes(self, vnodes: np.ndarray | None) -> None:
        """Changes the vnodes owned by this instance. ConsistencyError for uncommitted writes: they might be of a vnode
        that another instance reads from now on.
        """
        if self.is_dirty or self._has_spilled:
            raise ConsistencyError("vnodes change right after a commit only", table=self.catalog.name)
        self._vnodes = self._checked_bitmap(vnodes)
        if self._cache is not None and self._vnodes is not None:
            self._cache.keep_vnodes(self._vnodes)

    def update_catalog(self, catalog: TableCatalog) -> None:
        """Switches to another version of the table's columns; older rows are decoded as of that version.
        ConsistencyError for uncommitted writes.
        """
        if self.is_dirty or self._has_spilled:
            raise ConsistencyError("columns change right after a commit only", table=self.catalog.name)
        if catalog.ttl_ms:
            self._cache = None
        self._lay_out(catalog)

    def forget_rows(self) -> None:
        """Clears the row cache: some rows were written to the store by other means."""
        if self._cache is not None:
            self._cache.clear()

    def update_watermark(self, value: object) -> None:
        """Rows whose first key column is less than `value` are no longer read: once a checkpoint of this epoch or a
        later one has registered that, readers of it do not find them and compaction drops them. A further earlier
        watermark is kept. ValueError if NULL would be among those rows.
        """
        order = self.catalog.pk[0].order
        if not order.nulls_are_largest:
            raise ValueError(f"NULL is below any watermark in the key of {self.catalog.name!r}")
        key = self.serde.key_encoder.encode_row((value,))
        further = min if order.descending else max
        self._watermark = key if self._watermark is None else further(key, self._watermark)

    def get_row(self, pk: Row) -> Row | None:
        """The row under `pk`, or None."""
        rows, found = self.get_rows(self.serde.pk_chunk([tuple(pk)]))
        return next(iter(rows.rows())) if found[0] else None

    def get_rows(self, pks: DataChunk) -> tuple[DataChunk, np.ndarray]:
        """(complete rows, found uint8) for each visible row of `pks`, which has the pk columns in key order.

        At most one read of the store. If nothing is found the other columns are NULL.
        """
        pks = pks.compact()
        keys, vnodes = self.serde.keys_of_pks(pks.columns, pks.capacity)
        self._check_vnodes(vnodes)
        values = self._values_of(keys)
        return self.serde.decode_found(pks.arrays, values), present_in(values)

    def scan(self, prefix: Row = (), *, reverse: bool = False, limit: int | None = None) -> Iterator[Row]:
        """The rows whose pk begins with `prefix`, in key order, in their current state."""
        ranges = self._owned_ranges(self.serde.prefix_columns(tuple(prefix)))
        mem = self._own_writes
        changed = [mem.range(part.start, part.end) for part in ranges]
        ends = [len(batch) for batch in changed]
        changes = merged(changed, [0] * len(ends), ends, USER_KEY_PREFIX_BYTES, reverse)
        enough = None if limit is None else limit + len(changes)
        stored = in_key_order(self._stored, ranges, self._read_epoch, reverse=reverse, limit=enough)
        return self._opened(self._rows(laid_over(stored, changes, USER_KEY_PREFIX_BYTES, reverse), limit))

    def scan_chunks(self, prefix: Row = ()) -> Iterator[DataChunk]:
        """The rows whose pk begins with `prefix`, in their current state, unless a commit brings a watermark before a
        vnode is scanned; in key order within each vnode.
        """
        columns, mem = self.serde.prefix_columns(tuple(prefix)), self._own_writes
        parts = [(part, mem.range(part.start, part.end)) for part in self._ranges(columns)]
        return self._opened(self._chunks(parts, self._read_epoch))

    def scan_within(self, bounds: RowRange) -> Generator[DataChunk, None, None]:
        """The rows whose first pk column is within `bounds`, in the form of `scan_chunks`."""
        mem = self._own_writes
        ranges = key_ranges(self.serde, (), bounds, self._vnodes)
        parts = [(part, mem.range(part.start, part.end)) for part in ranges]
        return self._opened(self._chunks(parts, self._read_epoch))

    def rows_of(self, keys: KeySet) -> Iterator[DataChunk]:
        """The rows of a set, in their current state. Whole keys are looked up, others read as ranges. REQUIRES that
        this instance owns all vnodes."""
        if keys.prefixes and len(keys.prefixes[0]) == len(self.serde.pk) and keys.bounds is None:
            return self._looked_up(self.serde.pk_chunk(keys.prefixes))
        ranges = ranges_of(self.serde, keys)
        mem = self._own_writes
        changed = [batch for batch in (mem.range(part.start, part.end) for part in ranges) if len(batch)]
        ends = [len(batch) for batch in changed]
        changes = merged(changed, [0] * len(ends), ends, USER_KEY_PREFIX_BYTES)
        stored = within(self._stored, ranges, self._read_epoch, ordered=len(changes) > 0)
        batches = laid_over(stored, changes, USER_KEY_PREFIX_BYTES, False) if len(changes) else stored
        return self._opened(self.serde.decode(batch.keys, batch.values) for batch in batches)

    def _looked_up(self, pks: DataChunk) -> Iterator[DataChunk]:
        """The rows under whole keys, each once."""
        keys, _ = self.serde.keys_of_pks(pks.columns, pks.capacity)
        if len(keys) > 1:
            keys = BinaryColumn.from_pylist(sorted(set(keys)))
        found, rows = self._rows_at(keys)
        return iter([rows] if len(found) else [])

    def _rows_at(self, keys: BinaryColumn) -> tuple[np.ndarray, DataChunk]:
        """(int32: those of the keys that are there, ascending; their rows)."""
        values = self._values_of(keys)
        found = np.flatnonzero(present_in(values)).astype(np.int32)
        if values.null_count:
            kept = KvBatch(keys.to_arrow().take(found), values.to_arrow().take(found))
            keys, values = kept.keys, kept.values
        return found, self.serde.decode(keys, values)

    def _rows_in_parts(self, keys: BinaryColumn) -> Iterator[tuple[np.ndarray, DataChunk]]:
        """`_rows_at`, some keys at a time: fewer where their rows exceed a column."""
        waiting = [(start, min(start + PREFIXES_AT_ONCE, len(keys)))
                   for start in reversed(range(0, len(keys), PREFIXES_AT_ONCE))]
        while waiting:
            start, end = waiting.pop()
            try:
                found, rows = self._rows_at(keys.slice(start, end - start))
            except OverflowError:
                if end - start == 1:
                    raise
                middle = (start + end) // 2
                waiting += [(middle, end), (start, middle)]
            else:
                yield found + np.int32(start), rows

    def scan_keys(self) -> Iterator[DataChunk]:
        """The keys of all rows in the form of `scan_chunks`; the columns outside the key are NULL."""
        mem = self._own_writes
        parts = [(part, mem.range(part.start, part.end)) for part in self._ranges([])]
        return self._opened(self._chunks(parts, self._read_epoch, lambda batch: self.serde.decode_keys(batch.keys)))

    def rows_under(self, prefixes: DataChunk) -> Iterator[tuple[np.ndarray, DataChunk]]:
        """All rows under each visible row of leading pk columns, in the form of `first_rows` but in key order within
        each vnode, some of the prefixes at a time: the read of a join for a chunk of keys. Writes between two parts are
        visible to the later parts. Whole keys are looked up, others read as ranges.
        """
        prefixes = prefixes.compact()
        if self.serde.covers_distribution(len(prefixes.columns)):
            keys, vnodes = self.serde.keys_of_pks(prefixes.columns, prefixes.capacity)
            self._check_vnodes(vnodes)
            share = 1
        else:
            keys, share = self._keys_of_vnodes(prefixes)
        if len(prefixes.columns) == len(self.serde.pk):
            yield from self._rows_in_parts(keys)
            return
        for owners, batch in all_under(self._stored, lambda: (self._own_writes, self._read_epoch), keys):
            yield owners // share, self.serde.decode(batch.keys, batch.values)

    def first_rows(self, prefixes: DataChunk, limit: int = 1) -> tuple[np.ndarray, DataChunk]:
        """(int32 row of `prefixes` of each result row, ascending; complete rows): the first `limit` rows in key order
        under each visible row of leading pk columns.
        """
        prefixes = prefixes.compact()
        if prefixes.capacity == 0 or limit <= 0:
            return np.empty(0, np.int32), DataChunk.from_rows(self.catalog.schema, [])
        if not self.serde.covers_distribution(len(prefixes.columns)):
            return self._first_rows_of_vnodes(prefixes, limit)
        keys, vnodes = self.serde.keys_of_pks(prefixes.columns, prefixes.capacity)
        self._check_vnodes(vnodes)
        owners, batch = first_under(self._stored, self._own_writes, self._read_epoch, keys, limit)
        return owners, self.serde.decode(batch.keys, batch.values)

    def rows_between(
        self, ranges: Sequence[KeyRange], *, reverse: bool = False, limit: int | None = None
    ) -> tuple[np.ndarray, DataChunk]:
        """(int32 position in `ranges` of the range of each row, ascending; complete rows): the first `limit` rows, in
        key order or the reverse of it, of each range of user keys of a vnode that is owned."""
        mem, epoch = self._own_writes, self._read_epoch
        owners, batches = [], []
        for number, part in enumerate(ranges):
            for batch in between(self._stored, mem, epoch, part, reverse, limit):
                owners.append(np.full(len(batch), number, np.int32))
                batches.append(batch)
        if not batches:
            return np.empty(0, np.int32), DataChunk.from_rows(self.catalog.schema, [])
        keys = pa.concat_arrays([batch.keys.to_arrow() for batch in batches])
        values = pa.concat_arrays([batch.values.to_arrow() for batch in batches])
        whole = KvBatch(keys, values)
        return np.concatenate(owners), self.serde.decode(whole.keys, whole.values)

    def insert_row(self, row: Row) -> None:
        """ConsistencyError if this epoch has the key as present."""
        self._write_rows([(Op.INSERT, row)])

    def delete_row(self, old: Row) -> None:
        """ConsistencyError if this epoch has the key as absent."""
        self._write_rows([(Op.DELETE, old)])

    def update_row(self, old: Row, new: Row) -> None:
        """A delete and an insert if the keys differ."""
        self._write_rows([(Op.UPDATE_DELETE, old), (Op.UPDATE_INSERT, new)])

    def write_chunk(self, chunk: StreamChunk) -> None:
        """Buffers the visible changes. U-/U+ of one key is an update, of two keys a delete and an insert; U+ without
        its U- upserts. ConsistencyError names table and key; the changes before the faulty one have taken effect.
        """
        self._write(chunk, as_slice=self._takes_new_keys)

    def write_slice(self, chunk: StreamChunk) -> None:
        """As `write_chunk`, for a writer that gives each key once a chunk, or both halves of its update: the changes
        are not checked against earlier ones of this epoch, over which they win. ConsistencyError for a key that the
        chunk has twice, at the commit at the latest.
        """
        self._write(chunk, as_slice=self._takes_new_keys or self._checks == OpChecks())

    def _write(self, chunk: StreamChunk, as_slice: bool) -> None:
        chunk = chunk.compact()
        if chunk.capacity == 0:
            return
        keys, vnodes = self.serde.keys_of(chunk)
        self._check_vnodes(vnodes)
        values = self.serde.values_of(chunk)
        if as_slice:
            self._slices.write(keys, values, chunk.ops)
            if len(self._mem):
                self._fold_slices()
        else:
            self._fold_slices()
            present = present_in(self._values_of(keys)) if self._checks.reads_store else None
            self._mem.write(keys, values, chunk.ops, present=present)
        if self._is_full and not any(scan.gi_frame for scan in self._scans):
            self._hand_over(self.epoch.curr)
            self._has_spilled = True

    def _fold_slices(self) -> None:
        """Moves the slices into the mem table."""
        for batch in self._slices.take():
            if self._takes_new_keys:
                self._mem.write(batch.keys, batch.values, np.zeros(len(batch), np.uint8))
            else:
                self._mem.overwrite(batch.keys, batch.values)

    @property
    def _own_writes(self) -> MemTable:
        """All writes of this epoch that were not handed over."""
        if self._is_fresh and self.is_dirty:
            raise ConsistencyError("a fresh table is read before its first commit", table=self.catalog.name)
        self._fold_slices()
        return self._mem

    @property
    def _is_full(self) -> bool:
        waiting = self._mem.waiting_bytes + self._slices.waiting_bytes
        if waiting > self._spill_bytes or (self._slices.data_bytes > SLICE_BYTES and not self._is_fresh):
            return True
        return self._budget.exceeded_by(self, waiting)

    def _lay_out(self, catalog: TableCatalog) -> None:
        self.catalog, self.serde = catalog, RowSerde(catalog)
        self._stored = self.serde.rows_in(self._store)
        if self._cache is not None:
            self._cache.clear()
            self._stored = CachedRows(self._stored, self._cache)

    @property
    def _read_epoch(self) -> Epoch:
        return self.epoch.curr if self._has_spilled else self.epoch.prev

    def _hand_over(self, epoch: Epoch) -> None:
        for batch, old in (*self._slices.drain(), *self._mem.drain()):
            self._stored.ingest(batch, old, epoch, local_only=self._is_replicated)
        self._budget.exceeded_by(self, 0)

    def _values_of(self, keys: BinaryColumn) -> BinaryColumn:
        """The current values under user keys, null if there is no row."""
        epoch = self._read_epoch
        return self._own_writes.get_many(keys, lambda unknown: self._stored.get_many(unknown, epoch))

    def _opened(self, scan: Scanned) -> Scanned:
        """A scan has one snapshot to its end, so no spill occurs while one is open; if there was a spill before, the
        snapshot ends with the epoch.
        """
        self._scans.add(scan)
        return scan

    def _rows(self, batches: Iterator[KvBatch], limit: int | None) -> Iterator[Row]:
        left = -1 if limit is None else limit
        for batch in batches:
            for row in self.serde.decode(batch.keys, batch.values).rows():
                if left == 0:
                    return
                left -= 1
                yield row

    def _write_rows(self, changes: Sequence[tuple[Op, Row]]) -> None:
        self.write_chunk(StreamChunk.from_rows(self.catalog.schema, changes))

    def _chunks(
        self,
        parts: Sequence[tuple[KeyRange, KvBatch]],
        epoch: Epoch,
        decode: Callable[[KvBatch], DataChunk] | None = None,
    ) -> Generator[DataChunk, None, None]:
        """Each range of the store at `epoch`, with this table's changes applied; `decode` None: complete rows."""
        for part, changes in parts:
            for batch in laid_over(concatenated(self._stored, [part], epoch), changes, 0, False):
                yield self.serde.decode(batch.keys, batch.values) if decode is None else decode(batch)

    def _ranges(self, columns: Sequence) -> list[KeyRange]:
        """The fewest ranges for a scan in any order."""
        if columns or self._vnodes is not None:
            return self._owned_ranges(columns)
        return [KeyRange.table(self.catalog.id)]

    def _owned_ranges(self, columns: Sequence) -> list[KeyRange]:
        """The ranges of leading key columns, one per vnode of this instance unless the columns determine the vnode."""
        ranges = self.serde.ranges(columns, self._vnodes)
        self._check_vnodes(np.array([vnode_of(part.start) for part in ranges], np.uint16))
        return ranges

    def _first_rows_of_vnodes(self, prefixes: DataChunk, limit: int) -> tuple[np.ndarray, DataChunk]:
        """`first_rows` for a prefix that does not determine the vnode: the first rows of every vnode, merged."""
        keys, share = self._keys_of_vnodes(prefixes)
        owners, batch = first_under(self._stored, self._own_writes, self._read_epoch, keys, limit)
        owners //= share
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

    def _keys_of_vnodes(self, prefixes: DataChunk) -> tuple[BinaryColumn, int]:
        """(the user key prefixes of every vnode of this instance for each row, their number per row)."""
        owned = self._owned
        repeated = prefixes.take(np.repeat(np.arange(prefixes.capacity, dtype=np.int32), len(owned)))
        vnodes = np.tile(owned.astype(np.uint16), prefixes.capacity)
        return self.serde.keys_under(repeated.columns, vnodes), max(len(owned), 1)

    @property
    def _owned(self) -> np.ndarray:
        return np.arange(self.catalog.vnode_count) if self._vnodes is None else np.flatnonzero(self._vnodes)

    def _key_watermark(self, key: bytes, epoch: Epoch) -> KeyWatermark:
        """The watermark for every vnode of this instance."""
        owned = np.ones(self.catalog.vnode_count, np.uint8) if self._vnodes is None else self._vnodes
        marks = tuple((first, last, key) for first, last in vnode_ranges(owned, 1))
        return KeyWatermark(epoch, marks, self.catalog.pk[0].order.descending)

    def _checked_bitmap(self, vnodes: np.ndarray | None) -> np.ndarray | None:
        if vnodes is None:
            return None
        bitmap = np.ascontiguousarray(vnodes).astype(np.uint8)
        if bitmap.shape != (self.catalog.vnode_count,):
            raise ValueError(f"{bitmap.shape} vnodes for a table of {self.catalog.vnode_count}")
        return bitmap

    def _check_vnodes(self, vnodes: np.ndarray) -> None:
        """ConsistencyError for a row of a vnode owned by another table instance."""
        row = -1 if self._vnodes is None else first_unowned(vnodes, self._vnodes)
        if row >= 0:
            raise ConsistencyError("a row of a vnode that is not owned", table=self.catalog.name, key=int(vnodes[row]))
