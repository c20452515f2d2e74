"""SstableStore: files by name, over an object store, with two caches in memory and optionally one on disk.

A file is two immutable objects: `.data`, written first, and `.meta`, so that an existing `.meta` implies a complete
file. A tiny one may be in its record instead, see `inline`. Thread safe.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakValueDictionary

from hummock.object_store.base import ObjectStore
from hummock.object_store.cached import DiskCachedObjectStore
from hummock.object_store.disk_cache import DiskCache
from hummock.options import StorageOptions
from hummock.sstable.block import Block
from hummock.sstable.builder import SstableOutput
from hummock.sstable.cache.admission import CacheAdmission
from hummock.sstable.cache.block_cache import BlockCache
from hummock.sstable.info import SstableInfo
from hummock.sstable.inline import with_inline
from hummock.sstable.meta import SstableMeta
from hummock.sstable.reader import SstableReader


class SstableStore:
    """Holds weak references to readers; cached blocks of a file are dropped with its reader."""

    def __init__(self, object_store: ObjectStore, options: StorageOptions):
        self.disk_cache: DiskCache | None = None
        if options.disk_cache_bytes:
            self.disk_cache = DiskCache(options.disk_cache_directory, options.disk_cache_bytes, object_store.url)
            object_store = DiskCachedObjectStore(object_store, self.disk_cache)
        self.object_store = object_store
        self.prefetch_bytes = options.prefetch_bytes
        self.block_cache = BlockCache(options.block_cache_bytes)
        self.meta_cache = BlockCache(options.meta_cache_bytes, self.block_cache)
        self.admission = CacheAdmission(self.block_cache)
        self._readers: WeakValueDictionary[str, SstableReader] = WeakValueDictionary()

    def hold(self, output: SstableOutput) -> SstableReader:
        """The reader of a file just written, with the meta of a stored one already cached."""
        reader = self.reader(output.info)
        if not output.info.inline_data:
            reader.keep_meta(bytes(output.meta))
        return reader

    def reader(self, info: SstableInfo) -> SstableReader:
        """The reader of the file; one per file while it is referenced."""
        reader = self._readers.get(info.name)
        if reader is None:
            reader = self._readers.setdefault(
                info.name,
                SstableReader(info, with_inline(self.object_store, (info,)), self.admission, self.meta_cache),
            )
        return reader

    def is_read(self, name: str) -> bool:
        """Whether the file's reader is still referenced."""
        return name in self._readers

    def meta(self, info: SstableInfo) -> SstableMeta:
        """The file's decoded meta. Raises `Corruption` naming the object if it does not match `info`."""
        return self.reader(info).meta

    def block(self, info: SstableInfo, index: int) -> Block:
        """Block `index` of the file, checked. Raises `Corruption` naming the object."""
        return self.reader(info).read_block(index)

    def retain(self, names: Iterable[str]) -> None:
        """Drops all other files from the disk cache: no new read uses them."""
        if self.disk_cache is not None:
            self.disk_cache.retain(names)

    def close(self) -> None:
        """Releases the disk cache to the next process. Idempotent; reads in progress continue without it."""
        if self.disk_cache is not None:
            self.disk_cache.close()
