"""Objects in Google Cloud Storage, Alibaba OSS, Azure Blob Storage and HDFS, through the OpenDAL binding.

`gs://bucket/prefix`, `oss://bucket/prefix?endpoint=...`, `azblob://container/prefix?endpoint=...` and
`hdfs://host:port/prefix`. Credentials come from where each service's own tools look for them.

HDFS has no exclusive creation here: a creation only checks first whether the path is taken, which suffices for unique
names but not for a log (`creates_exclusively` is false). Its objects are written to a temporary path and renamed, since
a growing file is visible.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from hummock.base.extras import require
from hummock.epoch import Clock, wall_clock_ms
from hummock.errors import InvalidOption, ObjectExists, ObjectNotFound, ObjectStoreError, ObjectStoreRefused
from hummock.object_store.base import Buffer, ObjectMeta, ObjectStore, RandomBytes, check_path, check_range
from hummock.object_store.url import Address
from hummock.options import RetryOptions

Result = TypeVar("Result")
TEMPORARY = ".temporary"            # below the root, for services where a file is visible while it is written
# By scheme: OpenDAL's service, its option for the host, and which options it takes.
SERVICES = {
    "gs": ("gcs", "bucket", ("endpoint", "allow_anonymous", "disable_vm_metadata", "disable_config_load")),
    "oss": ("oss", "bucket", ("endpoint", "addressing_style", "allow_anonymous")),
    "azblob": ("azblob", "container", ("endpoint", "account_name", "skip_signature")),
    "hdfs": ("hdfs_native", "name_node", ()),
}
REQUIRED = {"oss": ("endpoint",)}


def open_opendal(address: Address, retry: RetryOptions) -> OpendalObjectStore:
    """The store at `address`, whose scheme is one of `SERVICES`. Raises `InvalidOption` if it cannot be opened."""
    service, host_option, known = SERVICES[address.scheme]
    address.check_options(known, REQUIRED.get(address.scheme, ()))
    settings = {**address.options, "root": "/" + address.prefix, host_option: address.host}
    if address.scheme == "hdfs":
        settings[host_option] = f"hdfs://{address.host}"
    elif address.scheme == "azblob" and "endpoint" not in settings:
        account = settings.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
        if not account:
            raise InvalidOption("azblob://...?account_name", "", "given, here or as AZURE_STORAGE_ACCOUNT_NAME")
        settings["endpoint"] = f"https://{account}.blob.core.windows.net"
    return OpendalObjectStore(address.url, service, settings, retry)


class OpendalObjectStore(ObjectStore):
    """Objects of one OpenDAL `service`. Its runtime does not survive a fork: use in a forked process raises."""

    def __init__(self, url: str, service: str, settings: dict[str, str], retry: RetryOptions, *,
                 layers: Sequence[Any] = (), random_bytes: RandomBytes = os.urandom, clock: Clock = wall_clock_ms):
        require("opendal", f"a store at {url}")
        import opendal

        self._url, self._errors, self._random_bytes = url, opendal.exceptions, random_bytes
        # They have no common root.
        self._any: tuple[type[Exception], ...] = (
            OSError, *(kind for kind in vars(opendal.exceptions).values() if isinstance(kind, type)))
        self._clock, self._pid = clock, os.getpid()
        try:
            operator = opendal.Operator(service, **settings)
        except self._any as error:
            raise InvalidOption("url", url, f"what OpenDAL can open: {_reason(error)}") from error
        patience = opendal.layers.TimeoutLayer(timeout=retry.deadline_ms / 1000, io_timeout=retry.idle_ms / 1000)
        for layer in (*layers, patience):
            operator = operator.layer(layer)
        self._operator, can = operator, operator.capability()
        self.creates_exclusively = bool(can.write_with_if_not_exists)
        self._is_flat = bool(can.list_with_recursive)               # lists keys, not directories
        self._is_staged = not self.creates_exclusively and bool(can.rename)
        self._can_type = bool(can.write_with_content_type)

    @property
    def url(self) -> str:
        return self._url

    def put(self, path: str, data: Buffer, *, if_absent: bool = False) -> None:
        body: Any = memoryview(data).cast("B")
        settings: dict[str, Any] = {"content_type": "application/octet-stream"} if self._can_type else {}
        if if_absent and self.creates_exclusively:
            settings["if_not_exists"] = True
        elif if_absent and self._exists(path):
            raise ObjectExists(path)
        if not self._is_staged:
            self._try(path, lambda: self._operator.write(self._own(path), body, **settings), is_write=True)
            return
        staged = f"{TEMPORARY}/{self._random_bytes(16).hex()}"
        try:
            self._try(path, lambda: self._operator.write(staged, body, **settings), is_write=True)
            self._try(path, lambda: self._operator.rename(staged, self._own(path)), is_write=True)
        except ObjectStoreError:
            with suppress(ObjectStoreError):
                self._try(path, lambda: self._operator.delete(staged))
            raise

    def get(self, path: str, byte_range: range | None = None) -> bytes:
        own = self._own(path)
        if byte_range is None:
            return self._read(path, lambda: self._operator.read(own))
        start, stop = check_range(path, byte_range).start, byte_range.stop
        with suppress(_OutOfRange):
            if start < stop:
                return self._read(path, lambda: self._operator.read(own, offset=start, size=stop - start))
        stop = min(stop, self.head(path).size_bytes)
        if start >= stop:
            return b""
        return self._read(path, lambda: self._operator.read(own, offset=start, size=stop - start))

    def head(self, path: str) -> ObjectMeta:
        found = self._try(path, lambda: self._operator.stat(self._own(path)))
        if found.mode.is_dir():
            raise ObjectNotFound(path, "is no object but a directory")
        return self._meta(path, found)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectMeta]:
        found = self._flat(prefix) if self._is_flat else self._walk("", prefix)
        last = ""
        for entry in found:
            path = entry.path
            if path.startswith(prefix) and path > after:
                if path <= last:
                    raise ObjectStoreRefused(prefix, f"it lists {path!r} after {last!r}: not in order")
                last = path
                if entry.metadata is None or entry.metadata.last_modified is None:
                    with suppress(ObjectNotFound):
                        yield self.head(path)
                else:
                    yield self._meta(path, entry.metadata)

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            own = self._own(path)
            with suppress(ObjectNotFound):
                self._try(path, lambda own=own: self._operator.delete(own))  # type: ignore[misc]

    def _flat(self, prefix: str) -> Iterator[Any]:
        """Entries whose key begins with `prefix`, as the service lists keys."""
        yield from self._entries(prefix, prefix.rpartition("/")[0] + "/" if "/" in prefix else "", recursive=True)

    def _walk(self, directory: str, prefix: str) -> Iterator[Any]:
        """Files below `directory`, in ascending order of path: a directory sorts with the slash that ends it."""
        entries = sorted(self._entries(prefix, directory, recursive=False), key=lambda entry: entry.path)
        for entry in entries:
            path = entry.path
            if path.endswith("/"):
                is_inside = path.startswith(prefix) or prefix.startswith(path)
                if is_inside and path not in (directory, "/", f"{TEMPORARY}/"):
                    yield from self._walk(path, prefix)
            else:
                yield entry

    def _entries(self, prefix: str, directory: str, *, recursive: bool) -> Iterator[Any]:
        listing: Iterator[Any] = iter(())
        with suppress(ObjectNotFound):
            listing = self._try(prefix, lambda: iter(self._operator.list(directory, recursive=recursive)))
        while (entry := self._try(prefix, lambda: next(listing, None))) is not None:
            if not recursive or not entry.path.endswith("/"):
                yield entry

    def _meta(self, path: str, found: Any) -> ObjectMeta:
        """An object of unknown age counts as new, so that it is never taken for garbage."""
        modified = found.last_modified
        modified_ms = self._clock() if modified is None else int(modified.timestamp() * 1000)
        return ObjectMeta(path, found.content_length, modified_ms)

    def _own(self, path: str) -> str:
        check_path(path)
        if path.split("/", 1)[0] == TEMPORARY:
            raise ObjectStoreRefused(path, f"{TEMPORARY} is the store's own")
        return path

    def _exists(self, path: str) -> bool:
        try:
            self.head(path)
        except ObjectNotFound:
            return False
        return True

    def _read(self, path: str, call: Callable[[], bytes]) -> bytes:
        try:
            return self._try(path, call)
        except (_OutOfRange, ObjectNotFound):
            raise
        except ObjectStoreError:
            if not self._is_flat:
                self.head(path)         # raises if `path` is a directory
            raise

    def _try(self, path: str, call: Callable[[], Result], *, is_write: bool = False) -> Result:
        if self._pid != os.getpid():
            raise ObjectStoreRefused(path, "the store was opened before this process was forked: open it again here")
        errors = self._errors
        try:
            return call()
        except (errors.ConditionNotMatch, errors.AlreadyExists):
            raise ObjectExists(path) from None
        except errors.RangeNotSatisfied as error:
            raise _OutOfRange(path, _reason(error)) from error
        except (errors.NotFound, errors.IsADirectory, errors.NotADirectory) as error:
            kind = ObjectStoreRefused if is_write else ObjectNotFound       # on a write the bucket is missing
            raise kind(path, _reason(error)) from error
        except (errors.PermissionDenied, errors.ConfigInvalid, errors.Unsupported) as error:
            raise ObjectStoreRefused(path, _reason(error)) from error
        except self._any as error:
            raise ObjectStoreError(path, _reason(error)) from error


class _OutOfRange(ObjectStoreError):
    """A range extends beyond the end of its object."""


def _reason(error: Exception) -> str:
    """The first line of OpenDAL's message: the others are a backtrace."""
    return str(error).split("\n", 1)[0]
