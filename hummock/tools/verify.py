"""Verification of a whole store at rest: reads and checks every row, and every object of the newest version.

Nothing is repaired and nothing is written. One damage does not hide the next: each is reported with its object or row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from hummock.base.json_fields import U64
from hummock.errors import Corruption, HummockError, ObjectNotFound
from hummock.loaded_files import LoadAnswer
from hummock.meta.compaction.records import RunningTask, WantedRange
from hummock.meta.records import (
    CHECKPOINT,
    COMMITS,
    DELTAS,
    HEAD,
    LARGE,
    LEASES,
    LOADS,
    NEWEST_LEASE,
    OBSOLETE,
    REPORTS,
    TASK,
    TASKS,
    UPLOADS,
    VACUUMED,
    WANTED,
    WRITER,
    WRITER_PROCESS,
    CommitAnswer,
    Head,
    LargeClaim,
    Lease,
    TaskAnswer,
    TaskCounter,
    Tombstone,
    Upload,
    WriterProcess,
    decode,
    decode_value,
)
from hummock.meta.store.base import MetaStore
from hummock.meta.vacuum.obsolete_files import ObsoleteFiles
from hummock.meta_client import WriterSession
from hummock.object_store.base import ObjectStore, sstable_data_path, sstable_meta_path
from hummock.sstable.block import Block, content_hash_of
from hummock.sstable.info import SstableInfo
from hummock.sstable.inline import with_inline
from hummock.sstable.meta import SstableMeta
from hummock.version import HummockVersion, VersionDelta

READ_BYTES = 8 << 20        # of `.data` in memory per thread, unless one block is larger
ROWS = "hummock/"
# The type of a row, by the beginning of its key.
RECORDS = {HEAD: Head, WRITER: WriterSession, WRITER_PROCESS: WriterProcess, COMMITS: CommitAnswer,
           LEASES: Lease, NEWEST_LEASE: Lease, VACUUMED: Tombstone,
           TASKS: TaskCounter, LARGE: LargeClaim, REPORTS: TaskAnswer, UPLOADS: Upload,
           LOADS: LoadAnswer}
VALUES = {CHECKPOINT: HummockVersion, DELTAS: VersionDelta}
OTHERS = {TASK: RunningTask.decode, WANTED: WantedRange.decode, OBSOLETE: ObsoleteFiles.decode}


@dataclass(frozen=True, slots=True)
class Verified:
    """One object or row that was read: `damages` describes each damage."""

    path: str
    bytes_read: int
    damages: tuple[str, ...] = ()
    is_missing: bool = False


def verify_rows(meta_store: MetaStore) -> Iterator[Verified]:
    """Decodes every row of the store in the meta store."""
    for key, row in meta_store.list(ROWS):
        try:
            decode_row(key, row)
        except HummockError as error:
            yield Verified(key, len(row), (str(error),))
        else:
            yield Verified(key, len(row))


def verify_version(version: HummockVersion, object_store: ObjectStore, *, threads: int = 1,
                   refresh: Callable[[], HummockVersion] | None = None) -> Iterator[Verified]:
    """Checks every `.meta` and `.data` of the version, in the order of its runs, `threads` files at once.

    With `refresh`, which returns the newest version, a file that left the version meanwhile may be missing.
    """
    with ThreadPoolExecutor(threads, thread_name_prefix="verify") as pool:
        under_way: deque[tuple[SstableInfo, Future[list[Verified]]]] = deque()
        files = iter(version.sstables)
        try:
            while True:
                while len(under_way) < 2 * threads and (info := next(files, None)) is not None:
                    under_way.append((info, pool.submit(verify_sstable, info, object_store)))
                if not under_way:
                    return
                info, future = under_way.popleft()
                found = future.result()
                is_missing = any(one.is_missing for one in found)
                if not (is_missing and refresh is not None and _has_left(info, refresh())):
                    yield from found
        finally:
            pool.shutdown(cancel_futures=True)


def verify_sstable(info: SstableInfo, object_store: ObjectStore) -> list[Verified]:
    """The file's `.meta` against the version's record, then each block of its `.data` against its `.meta`."""
    path, object_store = sstable_meta_path(info.name), with_inline(object_store, (info,))
    try:
        data = object_store.get(path)
        meta = SstableMeta.decode(data, info, path)
    except HummockError as error:
        is_missing = isinstance(error, ObjectNotFound)
        return [Verified(path, 0, (str(error),), is_missing),
                Verified(sstable_data_path(info.name), 0, ("cannot be checked without its .meta",), is_missing)]
    return [Verified(path, len(data)), _verify_data(info, meta, object_store)]


def decode_row(key: str, row: bytes) -> Any:
    """The decoded row. Raises `MetaStoreCorrupt`, also for a row of unknown type."""
    directory, slash, _ = key.removeprefix(ROWS).partition("/")
    kind = ROWS + directory + slash
    if kind in RECORDS:
        return decode(RECORDS[kind], key, row)      # type: ignore[type-var]
    if kind in VALUES:
        return decode_value(VALUES[kind], key, row)     # type: ignore[type-var]
    if kind in OTHERS:
        return OTHERS[kind](key, row)
    raise Corruption(key, "key", "one of a known kind")


def _has_left(info: SstableInfo, newest: HummockVersion) -> bool:
    return all(held.name != info.name for held in newest.sstables)


def _verify_data(info: SstableInfo, meta: SstableMeta, object_store: ObjectStore) -> Verified:
    path = sstable_data_path(info.name)
    damages: list[str] = []
    order = _KeyOrder(info, path)
    try:
        size = object_store.head(path).size_bytes
        if size != info.data_bytes:
            damages.append(str(Corruption(path, "length", info.data_bytes, size)))
        for first, last in spans(meta):
            start, end = meta.index[first].offset, meta.index[last].offset + meta.index[last].size
            data = object_store.get(path, range(start, end))
            damages += _verify_blocks(meta, path, range(first, last + 1), data, order)
    except HummockError as error:
        return Verified(path, 0, (*damages, str(error)), isinstance(error, ObjectNotFound))
    if not damages:
        damages += order.end()
    return Verified(path, size, tuple(damages))


def spans(meta: SstableMeta) -> Iterator[tuple[int, int]]:
    """First and last block of each read, READ_BYTES or one block at a time."""
    first, size = 0, 0
    for number in range(len(meta.index)):
        block_bytes = meta.index[number].size
        if size and size + block_bytes > READ_BYTES:
            yield first, number - 1
            first, size = number, 0
        size += block_bytes
    yield first, len(meta.index) - 1


def _verify_blocks(meta: SstableMeta, path: str, numbers: range, data: bytes, order: _KeyOrder) -> Iterator[str]:
    """Damages of each of the blocks whose stored bytes begin `data`."""
    view, start = memoryview(data), meta.index[numbers.start].offset
    for number in numbers:
        entry = meta.index[number]
        stored = view[entry.offset - start:entry.offset - start + entry.size]
        try:
            block = Block.decode(stored, entry.codec, entry.raw_size, entry.checksum, path, number)
            if len(block) != entry.rows:
                raise Corruption(path, f"block {number}", f"{entry.rows} rows", len(block))
            order.add(block, number)
        except Corruption as error:
            yield str(error)


class _KeyOrder:
    """Checks that blocks ascend by full key from the file's smallest user key to its largest, and hold exactly its
    rows.
    """

    def __init__(self, info: SstableInfo, path: str):
        self._info, self._path = info, path
        self._last: tuple[bytes, int] | None = None         # user key, complement of the epoch
        self._first_key = b""
        self._rows = self._hash = 0

    def add(self, block: Block, number: int) -> None:
        """Raises `Corruption` if the block does not follow the previous one."""
        (first_key, first_epoch, _), (last_key, last_epoch, _) = block[0], block[len(block) - 1]
        if self._last is None:
            self._first_key = first_key
        elif (first_key, -first_epoch) <= self._last:
            raise Corruption(self._path, f"block {number}", "keys after those of the block before", first_key)
        self._last = (last_key, -last_epoch)
        self._rows += len(block)
        self._hash = (self._hash + content_hash_of(block)) % U64

    def end(self) -> Iterator[str]:
        """Damages of the file as a whole."""
        last_key = b"" if self._last is None else self._last[0]
        for where, expected, got in (("smallest key", self._info.smallest, self._first_key),
                                     ("largest key", self._info.largest, last_key),
                                     ("rows", self._info.rows, self._rows),
                                     ("content hash", self._info.content_hash, self._hash)):
            if expected is not None and expected != got:
                yield str(Corruption(self._path, where, expected, got))
