"""Opening a store by its URL: files, truth and roles of one process put together."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from hummock.errors import InvalidOption
from hummock.meta import open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store import open_object_store
from hummock.options import StorageOptions
from hummock.storage import HummockStorage

ROLES = ("writer", "reader")


def open_storage(url: str, *, role: str | None = None, **options: Any) -> HummockStorage:
    """The store at `url`: `memory://` (a new one each time) or `file:///directory`.

    Opening is reading: as "reader", the default, nothing at the URL changes. `role="writer"` makes the store if it
    is not there and takes the writer role over from any other process, whose next commit is then refused; a store
    in memory has nobody else, so there it is the default. `options` are those of StorageOptions. Closing the store
    closes all of it. MetaStoreError if there is no store to read.
    """
    if role is None:
        role = "writer" if url == "memory://" else "reader"
    if role not in ROLES:
        raise InvalidOption("role", role, f"one of {', '.join(ROLES)}")
    storage_options = StorageOptions(**options)
    with ExitStack() as opened:
        object_store = open_object_store(url)
        opened.callback(object_store.close)
        meta_store = open_meta_store(url, create=role == "writer")
        opened.callback(meta_store.close)
        manager = HummockManager(meta_store, object_store)
        session = manager.claim_writer() if role == "writer" else None
        resources = opened.pop_all()
    return HummockStorage(manager, object_store, storage_options, session=session, on_close=resources.close)
