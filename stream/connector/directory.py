"""Directories of files that connectors read: of the local file system, or of any object store by its URL.

A file is named relative to its directory; files of directories inside it are not listed. Remote files are read by
ranges, each a request.
"""

from __future__ import annotations

import io
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa

from hummock.errors import HummockError
from hummock.object_store import directory_of, open_object_store
from hummock.object_store.base import ObjectStore, check_path
from stream.errors import ConnectorError

READ_ERRORS = (OSError, pa.ArrowException, HummockError)
"""What listing, opening and reading files raise, here and in pyarrow."""


class Directory(ABC):
    """The files of one place. All methods may raise READ_ERRORS."""

    is_remote = True
    is_one_file = False  # it was named by itself, whatever its suffix

    @abstractmethod
    def names(self) -> Sequence[str]:
        """The names of the files, ascending."""

    @abstractmethod
    def open(self, name: str) -> pa.NativeFile:
        """The file, for random access. FileNotFoundError or ObjectNotFound."""

    @abstractmethod
    def modified_ms(self, name: str) -> int:
        """When the file was written last, since 1970."""

    @abstractmethod
    def where(self, name: str) -> str:
        """The whole path or URL of the file, for messages."""


class LocalDirectory(Directory):
    """A directory of the file system, or the one file `only` of it. `is_mapped`: files are mapped into memory."""

    is_remote = False

    def __init__(self, path: Path, only: str | None, *, is_mapped: bool) -> None:
        self._path, self._only, self._is_mapped = path, only, is_mapped
        self.is_one_file = only is not None

    def names(self) -> Sequence[str]:
        if self._only is not None:
            return [self._only]
        with os.scandir(self._path) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())

    def open(self, name: str) -> pa.NativeFile:
        path = str(self._path / name)
        return pa.memory_map(path) if self._is_mapped else pa.OSFile(path)

    def modified_ms(self, name: str) -> int:
        return (self._path / name).stat().st_mtime_ns // 1_000_000

    def where(self, name: str) -> str:
        return str(self._path / name)


class ObjectDirectory(Directory):
    """The objects of a store whose names contain no slash, or the one object `only`. The store is closed with it."""

    def __init__(self, store: ObjectStore, only: str | None) -> None:
        self._store, self._only = store, only
        self.is_one_file = only is not None
        weakref.finalize(self, store.close)

    def names(self) -> Sequence[str]:
        if self._only is not None:
            return [self._only]
        return [found.path for found in self._store.list() if "/" not in found.path]

    def open(self, name: str) -> pa.NativeFile:
        return pa.PythonFile(ObjectFile(self._store, check_path(name)), mode="r")

    def modified_ms(self, name: str) -> int:
        return self._store.head(name).modified_ms

    def where(self, name: str) -> str:
        return f"{self._store.url.split('?')[0].rstrip('/')}/{name}"


class ObjectFile(io.RawIOBase):
    """An object as a file for random access."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store, self._path = store, path
        self._size, self._position = store.head(path).size_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def readinto(self, target: object) -> int:
        view = memoryview(target).cast("B")  # type: ignore[arg-type]
        room = max(0, min(view.nbytes, self._size - self._position))
        done = self._store.get_into(self._path, self._position, view[:room]) if room else 0
        self._position += done
        return done


def store_url(connector: str, location: str) -> str:
    """The URL of `hummock.object_store` for a directory at an absolute path or a URL. ConnectorError."""
    if "://" in location or location.startswith("file:"):
        return location
    if not Path(location).is_absolute():
        raise ConnectorError(connector, f"path {location!r} is not absolute")
    return Path(location).as_uri()


def open_directory(connector: str, location: str, suffixes: Collection[str], *, is_mapped: bool = False) -> Directory:
    """The directory at an absolute path, or at a URL of `hummock.object_store`; or one file of it, if `location` names
    a file, or ends as one of `suffixes` does. ConnectorError for an invalid location; existence is checked by use."""
    try:
        if "://" not in location or location.startswith("file:"):
            path = Path(directory_of(location) if location.startswith("file:") else location)
            if not path.is_absolute():
                raise ConnectorError(connector, f"path {location!r} is not absolute")
            only = path.name if path.is_file() else None
            return LocalDirectory(path if only is None else path.parent, only, is_mapped=is_mapped)
        parts = urlsplit(location)
        parent, _, last = parts.path.rpartition("/")
        only = last if any(last.endswith(suffix) for suffix in suffixes) else None
        url = location if only is None else urlunsplit((parts.scheme, parts.netloc, parent, parts.query, ""))
        return ObjectDirectory(open_object_store(url), only)
    except (HummockError, ValueError) as error:
        raise ConnectorError(connector, f"path {location!r}: {error}") from error
