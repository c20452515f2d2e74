"""StateStore: the contract of every store: MVCC bytes, and how readers receive rows.

A write on a node is visible to that node at once; elsewhere after `wait_epoch`. Keys are user keys, `table_id | vnode |
table key`; only the store adds or strips the epoch. A read at epoch `e` sees, for each key, the newest operation whose
pure epoch is at most `e`. All methods may be called from any thread: many actors ingest and read while one thread
syncs, and each read sees one consistent snapshot from its first row to its last.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from operator import index
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex

import numpy as np
import pyarrow as pa

from hummock.base.closing import ClosedAtExit
from hummock.base.key import KeyRange
from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import Tables
from hummock.columnar.arrow_export import table_of
from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import KvBatch, WriteBatch
from hummock.epoch import Epoch
from hummock.errors import InvalidOption

if TYPE_CHECKING:
    from hummock.sstable.info import SstableInfo

TABLE_BATCH_ROWS = 1 << 20  # limit of one chunk of a table, unless its bytes end it earlier


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a read uses the caches; never affects its result."""

    fill_cache: bool = True  # a scan's first block is cached; point reads always cache
    read_ahead: bool = False  # a scan reads `prefetch_bytes` at a time from its first block on


DEFAULT = ReadOptions()
EVERYTHING = KeyRange()


def check_key_range(key_range: object) -> None:
    """Raises `InvalidOption` for anything but a KeyRange of bytes."""
    if not isinstance(key_range, KeyRange) or not (
            isinstance(key_range.start, bytes) and isinstance(key_range.end, bytes | None)):
        raise InvalidOption("key_range", key_range, "a hummock.KeyRange of bytes, as KeyRange(start, end)")


def check_limit(limit: SupportsIndex | None) -> int | None:
    """`limit` as an int. Raises `InvalidOption` unless it is a number of rows, or None."""
    if limit is None:
        return None
    try:
        number = index(limit)
    except TypeError:
        number = -1
    if number < 0:
        raise InvalidOption("limit", limit, "a number of rows from 0 on, or None")
    return number


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What a commit of `epoch` takes: the files, all durable, with all data at or below it that was not yet passed to a
    commit, and the watermarks of tables that it is to register.
    """

    epoch: Epoch
    sstables: tuple[SstableInfo, ...]
    watermarks: Mapping[int, KeyWatermark] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """The values that readers at two epochs see under ascending keys; null: none. Both differ in every row."""

    keys: BinaryColumn
    old: BinaryColumn
    new: BinaryColumn

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
        return zip(self.keys, self.old, self.new, strict=True)


class StateStoreIterator(ClosedAtExit):
    """Rows of one scan, in its order, as columns; iterating over pairs is a convenience API.

    Holds its snapshot until it is closed or exhausted. A batch stays valid after the iterator has advanced or is
    closed. One thread at a time. After `close` every method raises `StoreClosed`, and after an error too: it names the
    error, and the rows come from a new scan.
    """

    @abstractmethod
    def next_batch(self, max_rows: int | None = None) -> KvBatch | None:
        """The next rows, 1 to `max_rows` of them (None: the store's own limits); None at the end."""

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return chain.from_iterable(iter(self.next_batch, None))

    def to_arrow(self) -> pa.Table:
        """All remaining rows as a table (key: binary, value: binary), one chunk per batch; closes."""
        batches = []
        with self:
            while (batch := self.next_batch(TABLE_BATCH_ROWS)) is not None:
                batches.append(batch)
        return table_of(batches)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """`to_arrow`, for consumers of Arrow streams: `polars.DataFrame(scan)`, `pyarrow.table(scan)`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)


class StateStoreChanges(ClosedAtExit):
    """Changes of one feed, in key order, as columns. Same ownership and life cycle as a StateStoreIterator."""

    @abstractmethod
    def next_batch(self, max_rows: int | None = None) -> ChangeBatch | None:
        """The next changes, 1 to `max_rows` of them (None: the store's own limits); None at the end."""

    def __iter__(self) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
        return chain.from_iterable(iter(self.next_batch, None))


class StateStore(Protocol):
    """Versioned bytes under user keys, written in sorted batches and read at an epoch.

    `get`, `get_many` and `scan` without an epoch are at the newest committed one that this store knows.
    """

    @property
    def committed_epoch(self) -> Epoch:
        """The newest epoch whose data survives a crash; 0 before the first."""

    def ingest_batch(self, batch: WriteBatch, epoch: Epoch, *, local_only: bool = False) -> int:
        """Returns the bytes added; the batch is readable here at once. Within an epoch a later batch wins.

        `local_only` rows are readable here until the epoch is committed, and never uploaded. REQUIRES that no key is
        written both ways within an epoch. Raises InvalidEpoch at or below the sealed epoch, SharedBufferFull if no
        space was freed in time.
        """

    def advance_watermark(self, table_id: int, watermark: KeyWatermark) -> None:
        """Keys of the table below the watermark are not read at its epoch or later. A commit of that epoch or of a
        later one registers it, from which on readers do not find them and compaction drops them; not every commit
        registers one. Never moves back. `clear_uncommitted` forgets what no commit has registered.
        """

    def announce_rules(self, tables: Tables) -> None:
        """Rules of tables that a later commit registers: files that are written here before it are built by them too.
        Affects no result of a read.
        """

    def get(self, key: bytes, epoch: Epoch | None = None, options: ReadOptions = DEFAULT) -> bytes | None:
        """The value at `epoch`, or None. EpochTooOld below the safe epoch; Corruption names the object."""

    def get_many(self, keys: Any, epoch: Epoch | None = None, options: ReadOptions = DEFAULT) -> BinaryColumn:
        """One row per key of `keys` (an Arrow binary array, any order, repeats allowed); null = absent."""

    def scan(
        self,
        key_range: KeyRange = EVERYTHING,
        epoch: Epoch | None = None,
        options: ReadOptions = DEFAULT,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> StateStoreIterator:
        """The rows of the range at `epoch`, ascending (descending with `reverse`), at most `limit`. InvalidOption for
        another range than a KeyRange, or no number of rows.
        """

    def scan_prefixes(
        self, prefixes: Any, epoch: Epoch, *, reverse: bool = False, limit: int | None = None
    ) -> tuple[np.ndarray, KvBatch]:
        """The rows under each of many byte prefixes, at most `limit` of each, in one call.

        Returns (int32[n]: the row of `prefixes` that each result row belongs to, ascending; its n rows, each prefix's
        in scan order). `prefixes` is an Arrow binary array in any order. Raises OverflowError when the answer passes 2
        GiB.
        """

    def scan_many(
        self, starts: Any, epoch: Epoch, *, ends: Any = None, limit: int | None = None
    ) -> tuple[np.ndarray, KvBatch]:
        """The first rows from each of many keys on, ascending, at most `limit` of each, in one call.

        Returns (int32[n]: the row of `starts` that each result row belongs to, ascending; its n rows). `starts` is an
        Arrow binary array in any order; ascending starts share more of the reads. `ends`, an array of as many rows,
        gives the ends of the ranges; a null, or no `ends`, means to the last key. Raises OverflowError when the answer
        passes 2 GiB.
        """

    def changes(
        self, key_range: KeyRange, since: Epoch, until: Epoch, options: ReadOptions = DEFAULT
    ) -> StateStoreChanges:
        """The keys of the range whose visible values at `since` and at `until` differ, with both values.

        So the rows at `since` with these changes are the rows at `until`. The cost depends on what was written in
        between. EpochTooOld below the safe epoch; InvalidEpoch where `until` is before `since`.
        """

    def seal_epoch(self, epoch: Epoch) -> None:
        """Ends writes at or below `epoch`. Raises InvalidEpoch below the sealed epoch."""

    def sync(self, epoch: Epoch) -> SyncResult:
        """Makes everything at or below `epoch` durable, without blocking readers and writers of later epochs.

        REQUIRES `epoch` sealed (else InvalidEpoch). An empty epoch gives no files.
        """

    def commit(self, epoch: Epoch) -> None:
        """Seal, sync and commit in one, for embedding without a barrier manager."""

    def wait_epoch(self, epoch: Epoch, timeout_ms: int | None = None) -> None:
        """Returns once reads here see everything committed up to `epoch`; else WaitEpochTimeout."""

    def clear_uncommitted(self) -> None:
        """Drops everything above the committed epoch, sealed or not: the first step of a recovery."""

    def close(self) -> None:
        """Ends all open iterators; every later call raises StoreClosed. Closing twice is fine."""
