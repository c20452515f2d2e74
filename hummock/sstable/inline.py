"""Inline files: a tiny SST whose two objects are in the version's record of it instead of the object store [R52].

A commit of a few rows is then one transaction of the meta store, with nothing to upload before it and nothing to delete
after compaction has merged the file. At most INLINE_BYTES a commit and INLINE_TOTAL_BYTES a version: what exceeds
either is stored as objects. Wherever the record goes, into a task's spec or a backup, the file goes with it.

The record's `inline_data` is `.data` followed by `.meta`, exactly the bytes that the objects would have; `data_bytes`
and `meta_bytes` divide it, and `meta_digest` and the checksums of the blocks protect it as they protect objects. In a
record of JSON it is base64, under format 3 of versions, deltas and compact tasks. Example: data b"dd" and meta b"mmm"
are "inline_data": "ZGRtbW0=" with "data_bytes": 2 and "meta_bytes": 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from hummock.object_store.base import Buffer, ObjectMeta, ObjectStore, sstable_data_path, sstable_meta_path
from hummock.object_store.fd_cache import CachedFd
from hummock.options import MIB
from hummock.sstable.info import SstableInfo

INLINE_TOTAL_BYTES = 4 * MIB        # most of a version


class InlineObjects(ObjectStore):
    """Reads the objects of inline files from their records and all others from `store`; writes go to `store`."""

    def __init__(self, store: ObjectStore, infos: Iterable[SstableInfo]):
        self._store = store
        self._inline = {path: data for info in infos for path, data in objects_of(info)}

    @property
    def url(self) -> str:
        return self._store.url

    def put(self, path: str, data: Buffer, *, if_absent: bool = False) -> None:
        self._store.put(path, data, if_absent=if_absent)

    def get(self, path: str, byte_range: range | None = None) -> bytes:
        found = self._inline.get(path)
        if found is None:
            return self._store.get(path, byte_range)
        return found if byte_range is None else found[byte_range.start:byte_range.stop]

    def get_into(self, path: str, start: int, target: memoryview) -> int:
        found = self._inline.get(path)
        if found is None:
            return self._store.get_into(path, start, target)
        part = found[start:start + target.nbytes]
        target[:len(part)] = part
        return len(part)

    def open_file(self, path: str) -> CachedFd | None:
        return None if path in self._inline else self._store.open_file(path)

    def forget(self, path: str) -> bool:
        return path not in self._inline and self._store.forget(path)

    def head(self, path: str) -> ObjectMeta:
        found = self._inline.get(path)
        return self._store.head(path) if found is None else ObjectMeta(path, len(found), 0)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectMeta]:
        """Those of the object store."""
        return self._store.list(prefix, after=after)

    def delete(self, paths: Sequence[str]) -> None:
        self._store.delete(paths)


def with_inline(store: ObjectStore, infos: Iterable[SstableInfo]) -> ObjectStore:
    """A store that has the objects of all of these files: `store` itself if none is inline."""
    inline = [info for info in infos if info.inline_data]
    return InlineObjects(store, inline) if inline else store


def inlined(info: SstableInfo, built: ObjectStore) -> SstableInfo:
    """The record of a file that `built` has, with its content."""
    data, meta = built.get(sstable_data_path(info.name)), built.get(sstable_meta_path(info.name))
    return replace(info, inline_data=data + meta)


def inlined_or_stored(infos: Sequence[SstableInfo], built: ObjectStore, store: ObjectStore,
                      most_bytes: int) -> list[SstableInfo]:
    """The records of files that `built` has: inline if they have at most `most_bytes` in all, else `store` gets their
    objects.
    """
    if sum(info.stored_bytes for info in infos) <= most_bytes:
        return [inlined(info, built) for info in infos]
    for info in infos:
        for path in (sstable_data_path(info.name), sstable_meta_path(info.name)):
            store.put(path, built.get(path), if_absent=True)
    return list(infos)


def objects_of(info: SstableInfo) -> tuple[tuple[str, bytes], ...]:
    """Path and content of both objects of an inline file; empty for any other."""
    if not info.inline_data:
        return ()
    return ((sstable_data_path(info.name), info.inline_data[:info.data_bytes]),
            (sstable_meta_path(info.name), info.inline_data[info.data_bytes:]))
