"""ObjectStore: immutable objects by path, each either absent or complete.

Every object name of a Hummock store is formed here. Stores are thread safe. Methods raise subclasses of
`ObjectStoreError` only; only `InstrumentedObjectStore` retries.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

from hummock.errors import InvalidPath, ObjectExists, ObjectStoreError, StoreClosed

if TYPE_CHECKING:
    from hummock.object_store.fd_cache import CachedFd
    from hummock.object_store.file_writer import FileWriter

Buffer: TypeAlias = "bytes | bytearray | memoryview"    # and anything else that memoryview() accepts
RandomBytes = Callable[[int], bytes]

SSTABLE_PREFIX = "sst/"
PROBE_PREFIX = "spark/probe-"       # short-lived objects of the executor check
DATA_SUFFIX = ".data"
META_SUFFIX = ".meta"
NAME_DIGITS = 32
NAME_PREFIX_DIGITS = 16     # the upload prefix of a name, registered before the file is written
PATH_BYTES_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """An object in a listing; `modified_ms` is since 1970, by the store's own clock."""

    path: str
    size_bytes: int
    modified_ms: int


class ObjectWriter(ABC):
    """Writes one object, invisible before `close` and complete afterwards.

    Used by one thread at a time. A call that raises a retryable error wrote nothing and may be repeated with the same
    bytes; after `UploadLost` only `abort` makes sense. As a context manager it closes, or aborts if the body or `close`
    raised.
    """

    seconds: float | None = None        # timeout of the next call, if the store supports it
    file: FileWriter | None = None      # of a local file: compiled code appends to it between calls

    @abstractmethod
    def write(self, data: Buffer) -> None:
        """Appends `data`, which the caller may reuse afterwards. Raises `StoreClosed` after the end."""

    @abstractmethod
    def close(self) -> None:
        """Publishes the object, durably unless it is scratch. Raises `ObjectExists` if the path is taken by another.

        Repeated after an error, it recognises an object published by an earlier call; after success it does nothing.
        """

    @abstractmethod
    def abort(self) -> None:
        """Discards the object, never raises; the store removes leftovers later. Does nothing after the end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if kind is not None:
            self.abort()
            return
        try:
            self.close()
        except BaseException:
            self.abort()
            raise


class ObjectStore(ABC):
    """Immutable objects by path. Writes are atomic, and durable, unless of a scratch object, when `put` or a writer's
    `close` returns.
    """

    creates_exclusively = True          # of several creators of one path at most one wins

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL of the store, for messages and for opening it again."""

    @abstractmethod
    def put(self, path: str, data: Buffer, *, if_absent: bool = False) -> None:
        """Writes the whole object. With `if_absent`, raises `ObjectExists` if the path is taken."""

    def create(self, path: str, *, if_absent: bool = True) -> ObjectWriter:
        """A writer of the object. A taken path may be detected here or only at its `close`."""
        return BufferedObjectWriter(self, path, if_absent)

    def create_scratch(self, path: str) -> ObjectWriter:
        """As `create`, but a power loss may lose the object or a part of it: for short-lived objects whose readers
        detect that. Stores that gain nothing from this make it durable.
        """
        return self.create(path)

    @abstractmethod
    def get(self, path: str, byte_range: range | None = None) -> bytes:
        """The object, or its bytes in `byte_range` (step 1) as far as they exist. Raises `ObjectNotFound`."""

    def get_into(self, path: str, start: int, target: memoryview) -> int:
        """Reads from byte `start` on into `target`, up to the end of the object; returns the number of bytes.

        For callers that reuse memory. Raises `ObjectNotFound`.
        """
        data = self.get(path, range(start, start + target.nbytes))
        target[:len(data)] = data
        return len(data)

    def open_file(self, path: str) -> CachedFd | None:
        """The object as a file that compiled code reads without the GIL; None: use `get`.

        For objects that are never rewritten. If such a read fails, is short or returns corrupt bytes, the caller falls
        back to `get`, which retries and reports errors. A wrapping store passes this on only if it need not process
        the bytes read.
        """
        return None

    @abstractmethod
    def head(self, path: str) -> ObjectMeta:
        """Size and age of an object. Raises `ObjectNotFound`."""

    @abstractmethod
    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectMeta]:
        """Objects whose path begins with `prefix` and is greater than `after`, in ascending order of path.

        Objects written or deleted meanwhile may or may not appear; all others appear once.
        """

    @abstractmethod
    def delete(self, paths: Sequence[str]) -> None:
        """Removes the objects; absent ones are ignored."""

    def forget(self, path: str) -> bool:
        """Called for a corrupt object: drops cached copies; whether the next read uses another source."""
        return False

    def within(self, seconds: float) -> ObjectStore:
        """The same store, with a timeout of `seconds` per request if it supports that."""
        return self

    def remove_leftovers(self, now_ms: int) -> int:
        """Removes unfinished uploads of dead writers, if they cost space; returns how many."""
        return 0

    def close(self) -> None:    # noqa: B027  most stores hold nothing open
        """Releases the store's resources; using it afterwards is a bug."""


class BufferedObjectWriter(ObjectWriter):
    """Buffers the whole object and puts it at the end: for stores without streaming."""

    def __init__(self, store: ObjectStore, path: str, if_absent: bool):
        self._store, self._path, self._if_absent = store, check_path(path), if_absent
        self._parts: list[bytes] | None = []        # None: ended
        self._is_unsure = False                     # an earlier put failed but may have succeeded at the store
        self._is_closed = False

    def write(self, data: Buffer) -> None:
        if self._parts is None:
            raise StoreClosed(f"the writer of {self._path}")
        self._parts.append(bytes(memoryview(data)))

    def close(self) -> None:
        if self._is_closed:
            return
        if self._parts is None:
            raise StoreClosed(f"the writer of {self._path}")
        self._parts = [b"".join(self._parts)]
        store = self._store if self.seconds is None else self._store.within(self.seconds)
        try:
            store.put(self._path, self._parts[0], if_absent=self._if_absent)
        except ObjectExists:
            if not self._is_unsure or store.get(self._path) != self._parts[0]:
                raise
        except ObjectStoreError:
            self._is_unsure = True
            raise
        self._parts, self._is_closed = None, True

    def abort(self) -> None:
        self._parts = None


FORBIDDEN = re.compile(r"[\x00-\x1f\\\x7f]")      # in a path


def check_path(path: str) -> str:
    """`path` itself. Raises `InvalidPath` unless it is `/`-separated names that stay inside the store."""
    if not isinstance(path, str) or not path:
        raise InvalidPath(str(path), "a path is a string of at least one name")
    if FORBIDDEN.search(path) is not None:
        raise InvalidPath(path, "a path has no control characters and no backslash")
    if any(name in ("", ".", "..") for name in path.split("/")):
        raise InvalidPath(path, "a path is relative and has no empty, '.' or '..' part")
    try:
        size = len(path.encode())
    except UnicodeEncodeError as error:
        raise InvalidPath(repr(path), "a path is valid Unicode") from error
    if size > PATH_BYTES_LIMIT:
        raise InvalidPath(path, f"a path has at most {PATH_BYTES_LIMIT} bytes")
    return path


def check_range(path: str, byte_range: range) -> range:
    """`byte_range` itself. Raises `InvalidPath` unless it counts up by one from 0 or later."""
    if byte_range.step != 1 or byte_range.start < 0:
        raise InvalidPath(path, f"{byte_range} is no range of bytes")
    return byte_range


def mint_sstable_name(random_bytes: RandomBytes, prefix: str = "") -> str:
    """A unique name of 32 hexadecimal digits that begins with `prefix`."""
    return prefix + random_bytes((NAME_DIGITS - len(prefix)) // 2).hex()


def name_minter(random_bytes: RandomBytes, prefixes: Sequence[str]) -> Callable[[], str]:
    """Returns a function that mints names, each with one of `prefixes`, at random."""
    return lambda: mint_sstable_name(random_bytes, prefixes[int.from_bytes(random_bytes(4)) % len(prefixes)])


def name_prefix(name: str) -> str:
    """The upload prefix of a name."""
    return name[:NAME_PREFIX_DIGITS]


def is_sstable_name(name: str) -> bool:
    return len(name) == NAME_DIGITS and all(digit in "0123456789abcdef" for digit in name)


def sstable_data_path(name: str) -> str:
    return f"{SSTABLE_PREFIX}{name}{DATA_SUFFIX}"


def sstable_meta_path(name: str) -> str:
    return f"{SSTABLE_PREFIX}{name}{META_SUFFIX}"


def sstable_name_of(path: str) -> str | None:
    """The sstable that an object belongs to, or None."""
    for suffix in (DATA_SUFFIX, META_SUFFIX):
        if path.startswith(SSTABLE_PREFIX) and path.endswith(suffix):
            return path[len(SSTABLE_PREFIX):-len(suffix)]
    return None
