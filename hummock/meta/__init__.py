"""The meta service's half of the store: shared truth, versions, pins, notifications."""

from __future__ import annotations

from pathlib import Path

from hummock.meta.memory import MemoryMetaStore
from hummock.meta.sqlite import SqliteMetaStore
from hummock.meta.store import NONE, MetaOperations, MetaStore
from hummock.object_store import directory_of
from hummock.options import MetaOptions

__all__ = ["NONE", "MemoryMetaStore", "MetaOperations", "MetaStore", "SqliteMetaStore", "open_meta_store"]

DATABASE = "meta.sqlite"


def open_meta_store(url: str, *, create: bool = True, options: MetaOptions | None = None) -> MetaStore:
    """The truth that belongs to the objects at `url`: in memory, or SQLite in the same directory."""
    if url == "memory://":
        return MemoryMetaStore()
    return SqliteMetaStore(Path(directory_of(url)) / DATABASE, create=create,
                           busy_timeout_ms=(options or MetaOptions()).busy_timeout_ms)
