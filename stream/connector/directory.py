"""Directories of files that connectors read: of the local file system, or of any object store by its URL.

A file is named relative to its directory; files of directories inside it are not listed. Remote files are read by
ranges, each a request. While one is read in order, the range behind is fetched ahead by another thread.
"""

from __future__ import annotations

import io
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa

from hummock.errors import HummockError
from hummock.object_store import directory_of, open_object_store
from hummock.object_store.base import ObjectStore, check_path
from stream.errors import ConnectorError

READ_ERRORS = (OSError, pa.ArrowException, HummockError)
"""What listing, opening and reading files raise, here and in pyarrow."""
READS_IN_ORDER = 2
"""After so many reads of a remote file, each from where the one before ended, the next range is fetched ahead."""
LEAST_AHEAD_BYTES, MOST_AHEAD_BYTES = 256 << 10, 4 << 20
"""Of such a range: it doubles with each one. Up to two of them are in memory for each file."""
THREADS_AHEAD = 4


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
        self._ahead = ThreadPoolExecutor(THREADS_AHEAD, thread_name_prefix="read-ahead")
        weakref.finalize(self, _close, store, self._ahead)

    def names(self) -> Sequence[str]:
        if self._only is not None:
            return [self._only]
        return [found.path for found in self._store.list() if "/" not in found.path]

    def open(self, name: str) -> pa.NativeFile:
        return pa.PythonFile(ObjectFile(self._store, check_path(name), self._ahead), mode="r")

    def modified_ms(self, name: str) -> int:
        return self._store.head(name).modified_ms

    def where(self, name: str) -> str:
        return f"{self._store.url.split('?')[0].rstrip('/')}/{name}"


def _close(store: ObjectStore, ahead: ThreadPoolExecutor) -> None:
    ahead.shutdown(wait=False, cancel_futures=True)
    store.close()


class ObjectFile(io.RawIOBase):
    """An object as a file for random access; with `ahead`, the threads that fetch ranges ahead."""

    def __init__(self, store: ObjectStore, path: str, ahead: ThreadPoolExecutor | None = None) -> None:
        self._store, self._path, self._ahead = store, path, ahead
        self._range, self._data = range(0), memoryview(b"")  # was fetched ahead
        self._next: tuple[range, Future[bytes]] | None = None  # is fetched ahead
        self._in_order = self._end = 0  # reads, and the end of the last one
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
        room, done = max(0, min(view.nbytes, self._size - self._position)), 0
        self._note_order()
        while done < room:
            read = self._read_some(view[done:room])
            if not read:
                break
            done += read
            self._position += read
        self._end = self._position
        return done

    def close(self) -> None:
        self._forget_ahead()
        super().close()

    def _read_some(self, view: memoryview) -> int:
        """Bytes from the position on: of the range that was fetched ahead, or else all that are wanted."""
        if self._next is not None and self._position in self._next[0]:
            (wanted, fetched), self._next = self._next, None
            self._data, self._range = memoryview(fetched.result()), wanted
            self._fetch_ahead(self._range.stop, 2 * len(self._range))
        if self._position in self._range:
            found = self._data[self._position - self._range.start :][: view.nbytes]
            view[: found.nbytes] = found
            return found.nbytes
        done = self._store.get_into(self._path, self._position, view)
        if self._in_order >= READS_IN_ORDER and self._next is None and done < MOST_AHEAD_BYTES:
            self._fetch_ahead(self._position + done, 2 * done)
        return done

    def _note_order(self) -> None:
        if self._position == self._end:
            self._in_order += 1
        elif self._position not in self._range:
            self._in_order = 0
            self._forget_ahead()

    def _fetch_ahead(self, begin: int, size: int) -> None:
        wanted = range(begin, min(begin + min(max(size, LEAST_AHEAD_BYTES), MOST_AHEAD_BYTES), self._size))
        if self._ahead is not None and wanted:
            with suppress(RuntimeError):  # the process is ending, and its threads begin nothing more
                self._next = wanted, self._ahead.submit(self._store.get, self._path, wanted)

    def _forget_ahead(self) -> None:
        if self._next is not None:
            self._next[1].cancel()
        self._range, self._data, self._next = range(0), memoryview(b""), None


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
