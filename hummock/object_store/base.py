"""An object store keeps whole immutable objects by path, and promises that an object is absent or complete.

Every object name of a Hummock store is formed here. Stores are thread safe. A method raises the errors of
`ObjectStoreError`'s branch and no others; only `InstrumentedObjectStore` tries anything again.
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

Buffer: TypeAlias = "bytes | bytearray | memoryview"    # and whatever else memoryview() takes
RandomBytes = Callable[[int], bytes]

SSTABLE_PREFIX = "sst/"
PROBE_PREFIX = "spark/probe-"       # what a check of executors puts there for a moment
DATA_SUFFIX = ".data"
META_SUFFIX = ".meta"
NAME_DIGITS = 32
NAME_PREFIX_DIGITS = 16     # of a name; what its process registered before it wrote the file
PATH_BYTES_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """What a listing knows of an object; `modified_ms` is since 1970, by the store's own clock."""

    path: str
    size_bytes: int
    modified_ms: int


class ObjectWriter(ABC):
    """One object in the making: nothing of it is seen before `close`, all of it is afterwards.

    Used by one thread at a time. A call that raises what may pass took nothing, so it may be made again with the
    same bytes; after `UploadLost` only `abort` makes sense. As a context it closes, or aborts where its body or
    its closing raised.
    """

    seconds: float | None = None        # how long the next call may last, where the store can tell
    file: FileWriter | None = None      # where the object is a file here: compiled rooms append to it between calls

    @abstractmethod
    def write(self, data: Buffer) -> None:
        """Appends `data`, which may change as soon as this returns. Raises `StoreClosed` after the end."""

    @abstractmethod
    def close(self) -> None:
        """The object is there, durable unless it is scratch. Raises `ObjectExists` where another has taken the path.

        Called again after an error it recognises an object that an earlier call made; after success it does nothing.
        """

    @abstractmethod
    def abort(self) -> None:
        """Gives up and raises nothing: leftovers are the store's to remove. Does nothing after the end."""

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
    """Whole immutable objects by path. Writes are atomic, and durable unless of a scratch object, when `put` or a
    writer's `close` returns.
    """

    creates_exclusively = True          # of several creators of one path at most one wins

    @property
    @abstractmethod
    def url(self) -> str:
        """Where the objects are, for messages and for opening the same store again."""

    @abstractmethod
    def put(self, path: str, data: Buffer, *, if_absent: bool = False) -> None:
        """Writes the object whole. With `if_absent`, raises `ObjectExists` where the path is taken."""

    def create(self, path: str, *, if_absent: bool = True) -> ObjectWriter:
        """A writer of the object. A taken path may be found here or only at its `close`."""
        return BufferedObjectWriter(self, path, if_absent)

    def create_scratch(self, path: str) -> ObjectWriter:
        """As `create`, but a power loss may take the object back, or a part of it: for whoever can tell, and soon
        has no use for it. A store for which that is no cheaper keeps it as any other.
        """
        return self.create(path)

    @abstractmethod
    def get(self, path: str, byte_range: range | None = None) -> bytes:
        """The object, or its bytes of `byte_range` (step 1) as far as they exist. Raises `ObjectNotFound`."""

    def get_into(self, path: str, start: int, target: memoryview) -> int:
        """Fills `target` from byte `start` on, as far as the object goes; how many bytes that were.

        For callers that use their memory again. Raises `ObjectNotFound`.
        """
        data = self.get(path, range(start, start + target.nbytes))
        target[:len(data)] = data
        return len(data)

    def open_file(self, path: str) -> CachedFd | None:
        """The object as a file that compiled rooms read without the GIL; None: read it by `get`.

        For objects that are never written again. Where such a read fails or gives too little, or what is no good,
        `get` is asked for the same bytes, and tries again or says what is wrong. A store that stands before another
        one passes this on only if it has nothing to do with what is read.
        """
        return None

    @abstractmethod
    def head(self, path: str) -> ObjectMeta:
        """Size and age of an object. Raises `ObjectNotFound`."""

    @abstractmethod
    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectMeta]:
        """Objects whose path begins with `prefix` and is greater than `after`, in ascending order of path.

        What is written or deleted meanwhile may or may not appear; all else appears once.
        """

    @abstractmethod
    def delete(self, paths: Sequence[str]) -> None:
        """Removes the objects; an absent one is fine."""

    def forget(self, path: str) -> bool:
        """The object was not what it must be: whether the next read asks a source that this one did not."""
        return False

    def within(self, seconds: float) -> ObjectStore:
        """The same store, whose requests give up after `seconds` each, where it can tell."""
        return self

    def remove_leftovers(self, now_ms: int) -> int:
        """Gives up what writers that are long gone left unfinished, where such things cost space; how many."""
        return 0

    def close(self) -> None:    # noqa: B027  most stores hold nothing open
        """Gives back what the store holds open; using it afterwards is a bug."""


class BufferedObjectWriter(ObjectWriter):
    """Keeps what is written and puts it whole at the end: for stores that have nothing better."""

    def __init__(self, store: ObjectStore, path: str, if_absent: bool):
        self._store, self._path, self._if_absent = store, check_path(path), if_absent
        self._parts: list[bytes] | None = []        # None: it has ended
        self._is_unsure = False                     # an earlier put failed, and may have happened
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
    """A name of 32 hexadecimal digits, `prefix` first, that no other attempt has or will have."""
    return prefix + random_bytes((NAME_DIGITS - len(prefix)) // 2).hex()


def name_prefix(name: str) -> str:
    """The part of a name that is registered."""
    return name[:NAME_PREFIX_DIGITS]


def is_sstable_name(name: str) -> bool:
    return len(name) == NAME_DIGITS and all(digit in "0123456789abcdef" for digit in name)


def sstable_data_path(name: str) -> str:
    return f"{SSTABLE_PREFIX}{name}{DATA_SUFFIX}"


def sstable_meta_path(name: str) -> str:
    return f"{SSTABLE_PREFIX}{name}{META_SUFFIX}"


def sstable_name_of(path: str) -> str | None:
    """The sstable that an object belongs to, or None for an object that is no part of one."""
    for suffix in (DATA_SUFFIX, META_SUFFIX):
        if path.startswith(SSTABLE_PREFIX) and path.endswith(suffix):
            return path[len(SSTABLE_PREFIX):-len(suffix)]
    return None
