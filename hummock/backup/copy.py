"""Copies files between two stores, several at once, each block checked on the way.

A file whose two objects have the right sizes at the target is there: objects are immutable, and complete when visible.
Inline files have none: the record of the version has them.
Each thread holds at most READ_BYTES of a file, or one block, besides its index and what the target's writer buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from hummock.base.checksum import crc32c_of
from hummock.errors import Corruption, ObjectNotFound
from hummock.object_store.base import (
    SSTABLE_PREFIX,
    ObjectStore,
    sstable_data_path,
    sstable_meta_path,
)
from hummock.sstable.info import SstableInfo
from hummock.sstable.meta import SstableMeta
from hummock.tools.verify import spans

Progress = Callable[[int, int], object]        # bytes of a file that is at the target now, and of all files
THREADS = 4


@dataclass(slots=True)
class Copied:
    """What was copied, and what was there already."""

    files: int = 0
    bytes: int = 0
    present_files: int = 0


def unwatched(file_bytes: int, all_bytes: int) -> None:
    """The default `progress`."""


def copy_files(files: Sequence[SstableInfo], source: ObjectStore, target: ObjectStore, *, threads: int = THREADS,
               progress: Progress = unwatched) -> Copied:
    """Copies those of `files` that `target` does not have.

    The first error ends it: `ObjectStoreError` or `Corruption`, with the path of the object.
    """
    sizes = {found.path: found.size_bytes for found in target.list(SSTABLE_PREFIX)}
    copied, total = Copied(), sum(info.stored_bytes for info in files)
    with ThreadPoolExecutor(threads, thread_name_prefix="copy") as pool:
        running: dict[Future[None], int] = {}
        try:
            for info in files:
                if _is_present(info, sizes):
                    copied.present_files += 1
                    progress(info.stored_bytes, total)
                    continue
                if len(running) >= 2 * threads:
                    _collect(running, copied, lambda size: progress(size, total))
                running[pool.submit(copy_file, info, source, target)] = info.stored_bytes
            while running:
                _collect(running, copied, lambda size: progress(size, total))
        finally:
            pool.shutdown(cancel_futures=True)
    return copied


def copy_file(info: SstableInfo, source: ObjectStore, target: ObjectStore) -> None:
    """Copies both objects of a file; `.meta` last. Raises `Corruption` if one is not what the version's record says."""
    meta_path, data_path = sstable_meta_path(info.name), sstable_data_path(info.name)
    meta_bytes = source.get(meta_path)
    meta = SstableMeta.decode(meta_bytes, info, meta_path)
    size = source.head(data_path).size_bytes
    if size != info.data_bytes:
        raise Corruption(data_path, "length", info.data_bytes, size)
    with target.create(data_path, if_absent=False) as writer:
        for first, last in spans(meta):
            start, end = meta.index[first].offset, meta.index[last].offset + meta.index[last].size
            data = source.get(data_path, range(start, end))
            _check_blocks(meta, data_path, range(first, last + 1), data)
            writer.write(data)
    target.put(meta_path, meta_bytes)


def missing_files(files: Iterable[SstableInfo], objects: ObjectStore) -> list[ObjectNotFound | Corruption]:
    """An error for each object of `files` that is absent or has another size, by one listing."""
    sizes = {found.path: found.size_bytes for found in objects.list(SSTABLE_PREFIX)}
    errors: list[ObjectNotFound | Corruption] = []
    for info in files:
        for path, expected in _objects_of(info):
            found = sizes.get(path)
            if found is None:
                errors.append(ObjectNotFound(path))
            elif found != expected:
                errors.append(Corruption(path, "length", expected, found))
    return errors


def _objects_of(info: SstableInfo) -> tuple[tuple[str, int], tuple[str, int]]:
    """Path and size of both objects."""
    return ((sstable_data_path(info.name), info.data_bytes), (sstable_meta_path(info.name), info.meta_bytes))


def _is_present(info: SstableInfo, sizes: dict[str, int]) -> bool:
    return all(sizes.get(path) == size for path, size in _objects_of(info))


def _collect(running: dict[Future[None], int], copied: Copied, report: Callable[[int], object]) -> None:
    """Waits for at least one copy; raises its error."""
    done, _ = wait(running, return_when=FIRST_COMPLETED)
    for future in done:
        size = running.pop(future)
        future.result()
        copied.files += 1
        copied.bytes += size
        report(size)


def _check_blocks(meta: SstableMeta, path: str, numbers: range, data: bytes) -> None:
    """Raises `Corruption` for the first block whose stored bytes do not have its checksum."""
    view, start = memoryview(data), meta.index[numbers.start].offset
    for number in numbers:
        entry = meta.index[number]
        stored = view[entry.offset - start:entry.offset - start + entry.size]
        got = crc32c_of(stored) if len(stored) == entry.size else None
        if got != entry.checksum:
            raise Corruption(path, f"crc32c of block {number}", entry.checksum, got)
