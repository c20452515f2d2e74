"""Verification of a whole store at rest: every object that the newest version names is read and checked.

Nothing is repaired and nothing is written. One damage does not hide the next: each is reported with the
object that it lies in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hummock.errors import Corruption, HummockError, ObjectNotFound
from hummock.object_store.base import (
    SSTABLE_PREFIX,
    ObjectStore,
    sstable_data_path,
    sstable_meta_path,
    sstable_name_of,
)
from hummock.sstable.block import Block
from hummock.sstable.info import SstableInfo
from hummock.sstable.meta import SstableMeta
from hummock.version import HummockVersion

READ_BYTES = 8 << 20        # of `.data` in memory at once, unless one block is larger


@dataclass(frozen=True, slots=True)
class Verified:
    """One object that was read: `damages` says what is wrong with it, each by its own words."""

    path: str
    bytes_read: int
    damages: tuple[str, ...] = ()


def verify_version(version: HummockVersion, object_store: ObjectStore) -> Iterator[Verified]:
    """Every `.meta` and `.data` of the version, in the order of its runs, as they are checked."""
    for info in version.sstables:
        yield from verify_sstable(info, object_store)


def verify_sstable(info: SstableInfo, object_store: ObjectStore) -> Iterator[Verified]:
    """The file's `.meta` against the version's record, then each block of its `.data` against its `.meta`."""
    path = sstable_meta_path(info.name)
    try:
        data = object_store.get(path)
        meta = SstableMeta.decode(data, info, path)
    except HummockError as error:
        yield Verified(path, 0, (str(error),))
        yield Verified(sstable_data_path(info.name), 0, ("cannot be checked without its .meta",))
        return
    yield Verified(path, len(data))
    yield _verify_data(info, meta, object_store)


def unreferenced(version: HummockVersion, object_store: ObjectStore) -> Iterator[tuple[str, int]]:
    """Path and bytes of each sstable object that the version does not name: uploads under way, or orphans."""
    named = {info.name for info in version.sstables}
    for found in object_store.list(SSTABLE_PREFIX):
        if sstable_name_of(found.path) not in named:
            yield found.path, found.size_bytes


def _verify_data(info: SstableInfo, meta: SstableMeta, object_store: ObjectStore) -> Verified:
    path = sstable_data_path(info.name)
    damages: list[str] = []
    try:
        size = object_store.head(path).size_bytes
        if size != info.data_bytes:
            damages.append(str(Corruption(path, "length", info.data_bytes, size)))
        for first, last in _spans(meta):
            start, end = meta.index[first].offset, meta.index[last].offset + meta.index[last].size
            data = object_store.get(path, range(start, end))
            damages += _verify_blocks(meta, path, range(first, last + 1), data)
    except ObjectNotFound as error:
        return Verified(path, 0, (str(error),))
    return Verified(path, size, tuple(damages))


def _spans(meta: SstableMeta) -> Iterator[tuple[int, int]]:
    """First and last block of each read, READ_BYTES or one block at a time."""
    first, size = 0, 0
    for number in range(len(meta.index)):
        block_bytes = meta.index[number].size
        if size and size + block_bytes > READ_BYTES:
            yield first, number - 1
            first, size = number, 0
        size += block_bytes
    yield first, len(meta.index) - 1


def _verify_blocks(meta: SstableMeta, path: str, numbers: range, data: bytes) -> Iterator[str]:
    """What is wrong with each of the blocks whose stored bytes begin `data`."""
    view, start = memoryview(data), meta.index[numbers.start].offset
    for number in numbers:
        entry = meta.index[number]
        stored = view[entry.offset - start:entry.offset - start + entry.size]
        try:
            block = Block.decode(stored, entry.codec, entry.raw_size, entry.checksum, path, number)
            if len(block) != entry.rows:
                raise Corruption(path, f"block {number}", f"{entry.rows} rows", len(block))
        except Corruption as error:
            yield str(error)
