"""The meta service's part of the store: shared metadata, versions, pins, notifications."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hummock.base.extras import require
from hummock.errors import InvalidOption
from hummock.meta.store.base import MetaOperations, MetaStore
from hummock.meta.store.memory import MemoryMetaStore
from hummock.meta.store.object_log import ObjectLogMetaStore
from hummock.meta.store.sqlite import SqliteMetaStore
from hummock.object_store import ObjectStore, directory_of, open_object_store
from hummock.options import MetaOptions

__all__ = [
    "MemoryMetaStore",
    "MetaOperations",
    "MetaStore",
    "ObjectLogMetaStore",
    "SqliteMetaStore",
    "is_log",
    "open_meta_store",
]

DATABASE = "meta.sqlite"
LOG = "log"
DEFAULTS = {"memory": "memory://", "file": "sqlite:"}       # by scheme of the object store's URL; otherwise the log


def is_log(url: str, meta: str | None) -> bool:
    """Whether `open_meta_store` opens a log among the objects."""
    return (meta if meta is not None else DEFAULTS.get(urlsplit(url).scheme, LOG)) == LOG


def open_meta_store(url: str, meta: str | None = None, *, object_store: ObjectStore | None = None,
                    create: bool = True, accept_rollback: bool = False,
                    options: MetaOptions | None = None) -> MetaStore:
    """The meta store that belongs to the objects at `url`, at the location `meta`.

    `memory://` keeps it in this process, `sqlite:///file` in a local database, `postgresql://...` in a database that
    machines share, `log` among the objects themselves. Without `meta` it is in memory for `memory://`, a database in
    the directory of a `file://` URL, and the log elsewhere. `object_store` is the opened `url`; without it the meta
    store opens and closes its own, if it needs one. A meta store that was restored from an older copy raises
    `MetaStoreRolledBack`; `accept_rollback` makes that copy the newest state from here on, for every process.
    """
    options, scheme = options or MetaOptions(), urlsplit(url).scheme
    location = meta if meta is not None else DEFAULTS.get(scheme, LOG)
    if location == "memory://":
        return MemoryMetaStore()
    kind = urlsplit(location).scheme
    if kind == "sqlite":
        named = unquote(urlsplit(location).path)
        path = Path(named) if named else Path(directory_of(url)) / DATABASE
        return SqliteMetaStore(path, create=create, busy_timeout_ms=options.busy_timeout_ms,
                               accept_rollback=accept_rollback)
    if location == LOG or kind in ("postgresql", "postgres"):
        objects, on_close = object_store, None
        if objects is None:
            objects = open_object_store(url)
            on_close = objects.close
        if location == LOG:
            return ObjectLogMetaStore(objects, create=create, options=options, accept_rollback=accept_rollback,
                                      on_close=on_close)
        return _open_postgres(location, objects, create, accept_rollback, options, on_close)
    raise InvalidOption("meta", meta, "memory://, log, sqlite:///absolute/file or postgresql://host/database")


def _open_postgres(url: str, objects: ObjectStore, create: bool, accept_rollback: bool, options: MetaOptions,
                   on_close: Callable[[], None] | None) -> MetaStore:
    require("psycopg", "a postgresql:// meta store")
    from hummock.meta.store.postgres import PostgresMetaStore

    return PostgresMetaStore(url, objects, create=create, busy_timeout_ms=options.busy_timeout_ms,
                             accept_rollback=accept_rollback, on_close=on_close)
