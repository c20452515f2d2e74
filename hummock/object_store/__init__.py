"""Object stores: whole immutable objects by path, behind one contract (`base.ObjectStore`)."""

from __future__ import annotations

import random
from urllib.parse import unquote, urlsplit

from hummock.errors import InvalidOption
from hummock.metrics import Metrics
from hummock.object_store.base import ObjectStore
from hummock.object_store.instrumented import InstrumentedObjectStore, Pacing
from hummock.object_store.local import LocalObjectStore
from hummock.object_store.memory import MemoryObjectStore
from hummock.object_store.opendal import SERVICES, open_opendal
from hummock.object_store.url import parse_address
from hummock.options import RetryOptions

__all__ = ["ObjectStore", "directory_of", "open_object_store"]


def open_object_store(url: str, *, metrics: Metrics | None = None, retry: RetryOptions | None = None,
                      pacing: Pacing | None = None, create: bool = True) -> ObjectStore:
    """The store at `url`, instrumented: `memory://` (a new one each time), `file:///directory`, `s3://bucket/prefix`,
    `webhdfs://host:port/prefix`, or what `opendal` describes: `gs://`, `oss://`, `azblob://`, `hdfs://`.

    Unless `create`, a directory is not made where there is none. Raises `InvalidOption` for another scheme.
    """
    metrics, retry = metrics or Metrics(), retry or RetryOptions()
    opened, pacing = _open(url, metrics, retry, create), pacing or Pacing(random.Random())
    return InstrumentedObjectStore(opened, metrics, retry, pacing)


def _open(url: str, metrics: Metrics, retry: RetryOptions, create: bool) -> ObjectStore:
    if url == "memory://":
        return MemoryObjectStore()
    if url.startswith("file:"):
        return LocalObjectStore(directory_of(url), create=create)
    address = parse_address(url)
    if address.scheme == "s3":
        from hummock.object_store.s3 import S3ObjectStore  # imports an HTTP client: for remote stores only

        return S3ObjectStore(address, retry, metrics)
    if address.scheme == "webhdfs":
        from hummock.object_store.webhdfs import WebHdfsObjectStore

        return WebHdfsObjectStore(address, retry, metrics)
    if address.scheme in SERVICES:
        return open_opendal(address, retry)
    raise InvalidOption("url", url, f"one of memory://, file://, s3://, webhdfs://, {'://, '.join(SERVICES)}://")


def directory_of(url: str) -> str:
    """The absolute directory that a `file://` URL names. Raises `InvalidOption` for any other URL."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidOption("url", url, f"a URL: {error}") from error
    if "\0" in unquote(parts.path):
        raise InvalidOption("url", url, "without zero bytes")
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise InvalidOption("url", url, "memory:// or file:///absolute/directory")
    return unquote(parts.path)
