"""Objects as files below one directory, durable against process death and power loss.

A writer fills a temporary file, syncs it, publishes it atomically and syncs the directory: `rename` if it may replace,
`link` if it must not. A process killed in between leaves only a file under `.temporary/`, which listings omit and a
later opening removes. Writes go through the page cache. A scratch object is published without a sync: if removed soon,
it never reaches the disk.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from hummock.base.file_io import read_into, sync_file
from hummock.base.forked import watch
from hummock.errors import (
    DiskFull,
    InvalidPath,
    ObjectExists,
    ObjectNotFound,
    ObjectStoreError,
    StoreClosed,
    UploadLost,
)
from hummock.object_store.base import (
    Buffer,
    ObjectMeta,
    ObjectStore,
    ObjectWriter,
    RandomBytes,
    check_path,
    check_range,
)
from hummock.object_store.fd_cache import CachedFd, FdCache
from hummock.object_store.file_writer import PUBLISH, SYNC, WRITE, FileWriter
from hummock.object_store.full_disk import describe, is_disk_full

TEMPORARY = ".temporary"
TEMPORARY_KEPT_MS = 24 * 3600 * 1000    # older leftovers belong to no live put
KNOWN_FILES_LIMIT = 8_192
KNOWN_DIRECTORIES_LIMIT = 4096


class LocalObjectStore(ObjectStore):
    """Every object is a regular file inside `root`; symbolic links out of it are rejected.

    Unless `create`, opening makes nothing: a root that is absent stays so until something is written.
    """

    def __init__(self, root: str | os.PathLike[str], random_bytes: RandomBytes = os.urandom, *, create: bool = True):
        self._root = Path(root).absolute()
        self._random_bytes = random_bytes
        self._lock = threading.Lock()
        self._files: dict[str, str] = {}    # path -> file on disk, in known directories
        self._open = FdCache()
        self._known: set[str] = set()       # directories inside root that exist and are synced
        with self.typed(str(self._root)):
            if create:
                _make_directory(self._root)
            self._real_root = self._root.resolve()
            self._temporary = self._real_root / TEMPORARY
            if self._temporary.is_dir():
                self._remove_leftovers()
        watch(self)

    def note_fork(self) -> None:
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return self._root.as_uri()

    @contextmanager
    def typed(self, path: str) -> Iterator[None]:
        """Converts the operating system's errors to the store's."""
        try:
            yield
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise ObjectNotFound(path, error.strerror or "does not exist") from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise InvalidPath(path, "a link stands where an object should be") from error
            if is_disk_full(error):
                raise DiskFull(path, str(self._root), describe(error)) from error
            raise ObjectStoreError(path, f"{type(error).__name__}: {error.strerror or error}") from error

    def put(self, path: str, data: Buffer, *, if_absent: bool = False) -> None:
        try:
            writer = self.create(path, if_absent=if_absent)
            try:
                writer.close(data)
            except BaseException:
                writer.abort()
                raise
        except UploadLost as error:             # a whole object in one call: it can be retried
            if isinstance(error.__cause__, DiskFull):
                raise error.__cause__ from None
            raise ObjectStoreError(path, error.reason) from error

    def create(self, path: str, *, if_absent: bool = True) -> _LocalWriter:
        return self._writer(path, if_absent, is_durable=True)

    def create_scratch(self, path: str) -> _LocalWriter:
        return self._writer(path, True, is_durable=False)

    def _writer(self, path: str, if_absent: bool, *, is_durable: bool) -> _LocalWriter:
        check_path(path)
        with self.typed(path):
            if TEMPORARY not in self._known:
                _make_directory(self._temporary)
                self._known.add(TEMPORARY)
            temporary = self._temporary / self._random_bytes(16).hex()
            return _LocalWriter(self, path, temporary, if_absent, is_durable)

    def get(self, path: str, byte_range: range | None = None) -> bytes:
        with self._opened(path) as descriptor:
            if byte_range is None:
                byte_range = range(os.fstat(descriptor).st_size)
            return _read(descriptor, check_range(path, byte_range))

    def get_into(self, path: str, start: int, target: memoryview) -> int:
        check_range(path, range(start, start + target.nbytes))
        with self._opened(path) as descriptor:
            done = 0
            while done < target.nbytes and (read := read_into(descriptor, target[done:], start + done)):
                done += read
            return done

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        file = self._files.get(path) or self._file(path)
        with self.typed(path):
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                yield descriptor
            finally:
                os.close(descriptor)

    def open_file(self, path: str) -> CachedFd | None:
        return self._open.get(path) or self._open.open(path, os.fsencode(self._files.get(path) or self._file(path)))

    def head(self, path: str) -> ObjectMeta:
        target = self.locate(path)
        with self.typed(path):
            status = target.stat(follow_symlinks=False)
        if not _is_file(status.st_mode):
            raise ObjectNotFound(path, "is no object but a directory or a link")
        return ObjectMeta(path, status.st_size, status.st_mtime_ns // 1_000_000)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectMeta]:
        return (found for found in self._walk(self._real_root, "", prefix) if found.path > after)

    def delete(self, paths: Sequence[str]) -> None:
        targets = [(path, self.locate(path)) for path in paths]
        parents = set()
        self._open.forget(paths)
        for path, target in targets:
            with self.typed(path), suppress(FileNotFoundError, NotADirectoryError):
                target.unlink()
                parents.add(target.parent)
        for parent in parents:
            with self.typed(str(parent)):
                _sync_directory(parent)

    def close(self) -> None:
        self._open.close()

    def _file(self, path: str) -> str:
        """Where `path` is on disk; memoized if its directory is known, since readers call it often."""
        file = str(self.locate(path))
        with self._lock:
            if path.rpartition("/")[0] in self._known:
                if len(self._files) >= KNOWN_FILES_LIMIT:
                    self._files.clear()
                self._files[path] = file
        return file

    def locate(self, path: str, *, create: bool = False) -> Path:
        """Where `path` is on disk. Raises `InvalidPath` if its directory is outside the root."""
        directory, _, name = check_path(path).rpartition("/")
        if path.split("/", 1)[0] == TEMPORARY:
            raise InvalidPath(path, f"{TEMPORARY} is the store's own")
        parent = self._real_root / directory
        if directory in self._known:
            return parent / name
        with self.typed(path):
            if not parent.resolve().is_relative_to(self._real_root):
                raise InvalidPath(path, "a link leads out of the store")
            if create:
                _make_directory(parent)
            if parent.is_dir():
                with self._lock:
                    if len(self._known) < KNOWN_DIRECTORIES_LIMIT:
                        self._known.add(directory)
        return parent / name

    def forget_directories(self) -> None:
        """Forgets which directories exist, so that they are checked and created again."""
        with self._lock:
            self._known.clear()
            self._files.clear()

    def _walk(self, directory: Path, inside: str, prefix: str) -> Iterator[ObjectMeta]:
        """Files below `directory`, whose path in the store is `inside`, in ascending order of path."""
        with self.typed(inside or "/"):
            try:
                entries = list(os.scandir(directory))
            except FileNotFoundError:
                return
        # A directory sorts with the slash that follows its name: "a-b" is before "a/b".
        named = sorted((inside + entry.name + "/" * entry.is_dir(follow_symlinks=False), entry)
                       for entry in entries if not (inside == "" and entry.name == TEMPORARY))
        for path, entry in named:
            if path.endswith("/"):
                if path.startswith(prefix) or prefix.startswith(path):
                    yield from self._walk(directory / entry.name, path, prefix)
            elif path.startswith(prefix) and entry.is_file(follow_symlinks=False):
                with suppress(ObjectNotFound):
                    yield self.head(path)

    def _remove_leftovers(self) -> None:
        probe = self._temporary / self._random_bytes(16).hex()
        probe.touch()
        now_ns = probe.stat().st_mtime_ns       # by the file system's clock, as the other files' times
        probe.unlink()
        for leftover in self._temporary.iterdir():
            with suppress(FileNotFoundError):
                if now_ns - leftover.stat().st_mtime_ns > TEMPORARY_KEPT_MS * 1_000_000:
                    leftover.unlink()


class _LocalWriter(ObjectWriter):
    """A temporary file that `close` syncs if it must be durable, publishes under its name and removes, each step once.

    A file that could not be synced is lost: a kernel may drop the pages and report a second fsync as a success.
    """

    file: FileWriter

    def __init__(self, store: LocalObjectStore, path: str, temporary: Path, if_absent: bool, is_durable: bool):
        self._store, self._path, self._temporary, self._if_absent = store, path, temporary, if_absent
        self._target = store.locate(path, create=True)
        self._has_ended = False
        self.file = FileWriter(os.fsencode(temporary), is_durable)

    def write(self, data: Buffer) -> None:
        if self._has_ended or self.file.was_synced:
            raise StoreClosed(f"the writer of {self._path}")
        if failure := self.file.write(memoryview(data).cast("B")):
            self._refuse(WRITE, failure)

    def close(self, data: Buffer = b"") -> None:
        """Appends `data` and publishes the object."""
        if self._has_ended:
            if self.file.was_published:
                return
            raise StoreClosed(f"the writer of {self._path}")
        rest = memoryview(data).cast("B")
        while failed := self.file.finish(
                os.fsencode(self._target), os.fsencode(self._target.parent), self._if_absent, rest):
            self._refuse(*failed)
        self._has_ended = True

    def abort(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self.file.discard()

    def _refuse(self, step: str, number: int) -> None:
        """Raises the error of a failed step, or returns if it took effect nevertheless."""
        try:
            with self._store.typed(self._path):
                raise OSError(number, os.strerror(number))
        except ObjectStoreError as error:
            if step == SYNC:
                self.abort()
                raise UploadLost(self._path, f"its file could not be ended: {os.strerror(number)}") from error
            if step == PUBLISH and number == errno.EEXIST:
                self._recognise(error)
                return
            if step == PUBLISH and isinstance(error, ObjectNotFound):   # its directory was removed meanwhile
                self._store.forget_directories()
                self._target = self._store.locate(self._path, create=True)      # for the next attempt
                raise ObjectStoreError(self._path, f"its directory is missing: {error.reason}") from error
            raise

    def _recognise(self, error: ObjectStoreError) -> None:
        """Recognizes a link whose answer a network file system lost: both names are then one file."""
        with self._store.typed(self._path):
            is_ours = self._temporary.samefile(self._target)
        if not is_ours:
            self.abort()
            raise ObjectExists(self._path) from error
        self.file.note_published()


def _read(descriptor: int, byte_range: range) -> bytes:
    """The bytes in `byte_range` up to the end of the file; one read unless the kernel splits it."""
    data = os.pread(descriptor, len(byte_range), byte_range.start)
    while 0 < len(data) < len(byte_range):
        more = os.pread(descriptor, len(byte_range) - len(data), byte_range.start + len(data))
        if not more:
            break
        data += more
    return data


def _make_directory(path: Path) -> None:
    """Creates `path` and its missing parents, each name synced into its parent."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    with suppress(FileExistsError):
        path.mkdir()
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def _is_file(mode: int) -> bool:
    return (mode & 0o170000) == 0o100000
