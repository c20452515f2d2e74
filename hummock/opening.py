"""Opening a store by its URL: files, truth and roles of one process put together."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from hummock.errors import InvalidOption
from hummock.meta import open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.metrics import Metrics
from hummock.object_store import open_object_store
from hummock.options import MetaOptions, StorageOptions
from hummock.storage import HummockStorage

ROLES = ("writer", "reader")


def open_storage(url: str, *, role: str | None = None, meta: str | None = None,
                 meta_options: MetaOptions | None = None, **options: Any) -> HummockStorage:
    """The store at `url`: `memory://` (a new one each time), `file:///directory`, or a remote one.

    Opening is reading: as "reader", the default, the data at the URL stays as it is. `role="writer"` makes the
    store if it is not there and takes the writer role over from any other process, whose next commit is then
    refused; a store in memory has nobody else, so there it is the default. `meta` says where the truth is, as
    `open_meta_store` does. `options` are those of StorageOptions. What other processes commit is seen within
    `refresh_ms`. Closing the store closes all of it. MetaStoreError if there is no store to read.
    """
    if role is None:
        role = "writer" if url == "memory://" else "reader"
    if role not in ROLES:
        raise InvalidOption("role", role, f"one of {', '.join(ROLES)}")
    storage_options, metrics = StorageOptions(**options), Metrics()
    with ExitStack() as opened:
        object_store = open_object_store(url, metrics=metrics)
        opened.callback(object_store.close)
        meta_store = open_meta_store(url, meta, object_store=object_store, create=role == "writer",
                                     options=meta_options)
        opened.callback(meta_store.close)
        manager = HummockManager(meta_store, object_store, options=meta_options, metrics=metrics)
        opened.callback(manager.close)
        session = manager.claim_writer() if role == "writer" else None
        resources = opened.pop_all()
    try:
        storage = HummockStorage(manager, object_store, storage_options, session=session, on_close=resources.close)
    except BaseException:
        resources.close()
        raise
    storage.follow_versions()
    return storage
