"""The meta service's half of the store: shared truth, versions, pins, notifications."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from hummock.errors import InvalidOption
from hummock.meta.memory import MemoryMetaStore
from hummock.meta.sqlite import SqliteMetaStore
from hummock.meta.store import NONE, MetaOperations, MetaStore
from hummock.object_store import ObjectStore, directory_of
from hummock.options import MetaOptions

__all__ = ["NONE", "MemoryMetaStore", "MetaOperations", "MetaStore", "SqliteMetaStore", "open_meta_store"]

DATABASE = "meta.sqlite"


def open_meta_store(url: str, meta: str | None = None, *, object_store: ObjectStore | None = None,
                    create: bool = True, options: MetaOptions | None = None) -> MetaStore:
    """The truth that belongs to the objects at `url`, kept where `meta` says.

    `memory://` keeps it in this process and `sqlite:///file` in a database. Without `meta` it is in memory for
    `memory://` and in the directory of a `file://` URL. `object_store` is what `url` was opened to, if it was.
    """
    options = options or MetaOptions()
    if meta is None and url == "memory://":
        return MemoryMetaStore()
    if meta is None:
        return _open_sqlite(Path(directory_of(url)) / DATABASE, create, options)
    scheme = urlsplit(meta).scheme
    if meta == "memory://":
        return MemoryMetaStore()
    if scheme == "sqlite":
        return _open_sqlite(Path(unquote(urlsplit(meta).path)), create, options)
    raise InvalidOption("meta", meta, "memory:// or sqlite:///absolute/file")


def _open_sqlite(path: Path, create: bool, options: MetaOptions) -> MetaStore:
    return SqliteMetaStore(path, create=create, busy_timeout_ms=options.busy_timeout_ms)
