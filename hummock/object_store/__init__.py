"""Object stores: whole immutable objects by path, behind one contract (`base.ObjectStore`)."""

from __future__ import annotations

import random
from urllib.parse import unquote, urlsplit

from hummock.errors import InvalidOption
from hummock.metrics import Metrics
from hummock.object_store.base import ObjectMeta, ObjectStore
from hummock.object_store.instrumented import InstrumentedObjectStore, Pacing
from hummock.object_store.local import LocalObjectStore
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import RetryOptions

__all__ = ["ObjectMeta", "ObjectStore", "directory_of", "open_object_store"]


def open_object_store(url: str, *, metrics: Metrics | None = None, retry: RetryOptions | None = None,
                      pacing: Pacing | None = None) -> ObjectStore:
    """The store at `url`, instrumented: `memory://` (a new one each time) or `file:///directory`.

    Raises `InvalidOption` for another scheme.
    """
    store: ObjectStore
    store = MemoryObjectStore() if url == "memory://" else LocalObjectStore(directory_of(url))
    return InstrumentedObjectStore(store, metrics or Metrics(), retry or RetryOptions(),
                                   pacing or Pacing(random.Random()))


def directory_of(url: str) -> str:
    """The absolute directory that a `file://` URL names. Raises `InvalidOption` for any other URL."""
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise InvalidOption("url", url, "memory:// or file:///absolute/directory")
    return unquote(parts.path)
