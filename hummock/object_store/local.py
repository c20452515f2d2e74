"""Objects as files below one directory, durable against process death and power loss.

A put writes a temporary file, syncs it, publishes it under its name in one step and syncs the directory:
`rename` where it may replace, `link` where it must not. A process killed in between leaves only a file under
`.temporary/`, which no listing shows and a later opening removes.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from hummock.errors import InvalidPath, ObjectExists, ObjectNotFound, ObjectStoreError
from hummock.object_store.base import Buffer, ObjectMeta, ObjectStore, RandomBytes, check_path, check_range

TEMPORARY = ".temporary"
TEMPORARY_KEPT_MS = 24 * 3600 * 1000    # older leftovers belong to no living put
KNOWN_DIRECTORIES_LIMIT = 4096


class LocalObjectStore(ObjectStore):
    """Every object is a regular file inside `root`; links that lead out of it are refused."""

    def __init__(self, root: str | os.PathLike[str], random_bytes: RandomBytes = os.urandom):
        self._root = Path(root).absolute()
        self._random_bytes = random_bytes
        self._lock = threading.Lock()
        self._known: set[str] = set()       # directories inside root that exist and are synced
        with _typed(str(self._root)):
            _make_directory(self._root)
            self._real_root = self._root.resolve()
            self._temporary = self._real_root / TEMPORARY
            _make_directory(self._temporary)
            self._remove_leftovers()

    @property
    def url(self) -> str:
        return self._root.as_uri()

    def put(self, path: str, data: Buffer, *, if_absent: bool = False) -> None:
        try:
            self._put(self._locate(path, create=True), path, data, if_absent)
        except ObjectNotFound as error:         # a directory was removed under us: create it at the next try
            with self._lock:
                self._known.clear()
            raise ObjectStoreError(path, f"its directory is missing: {error.reason}") from error

    def _put(self, target: Path, path: str, data: Buffer, if_absent: bool) -> None:
        temporary = self._temporary / self._random_bytes(16).hex()
        with _typed(path):
            try:
                _write_synced(temporary, data)
                if if_absent:
                    os.link(temporary, target)
                else:
                    temporary.replace(target)
            except FileExistsError:
                raise ObjectExists(path) from None
            finally:
                with suppress(FileNotFoundError):
                    temporary.unlink()
            _sync_directory(target.parent)

    def get(self, path: str, byte_range: range | None = None) -> bytes:
        target = self._locate(path)
        if byte_range is not None:
            check_range(path, byte_range)
        with _typed(path):
            descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if byte_range is None:
                    byte_range = range(os.fstat(descriptor).st_size)
                return _read(descriptor, byte_range)
            finally:
                os.close(descriptor)

    def get_into(self, path: str, start: int, target: memoryview) -> int:
        file = self._locate(path)
        check_range(path, range(start, start + target.nbytes))
        with _typed(path):
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                done = 0
                while done < target.nbytes and (read := os.preadv(descriptor, [target[done:]], start + done)):
                    done += read
                return done
            finally:
                os.close(descriptor)

    def head(self, path: str) -> ObjectMeta:
        target = self._locate(path)
        with _typed(path):
            status = target.stat(follow_symlinks=False)
        if not _is_file(status.st_mode):
            raise ObjectNotFound(path, "is no object but a directory or a link")
        return ObjectMeta(path, status.st_size, status.st_mtime_ns // 1_000_000)

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        yield from self._walk(self._real_root, "", prefix)

    def delete(self, paths: Sequence[str]) -> None:
        targets = [(path, self._locate(path)) for path in paths]
        parents = set()
        for path, target in targets:
            with _typed(path), suppress(FileNotFoundError, NotADirectoryError):
                target.unlink()
                parents.add(target.parent)
        for parent in parents:
            with _typed(str(parent)):
                _sync_directory(parent)

    def _locate(self, path: str, *, create: bool = False) -> Path:
        """Where `path` is on disk. Raises `InvalidPath` if its directory lies outside the root."""
        directory, _, name = check_path(path).rpartition("/")
        if path.split("/", 1)[0] == TEMPORARY:
            raise InvalidPath(path, f"{TEMPORARY} is the store's own")
        parent = self._real_root / directory
        if directory in self._known:
            return parent / name
        with _typed(path):
            if not parent.resolve().is_relative_to(self._real_root):
                raise InvalidPath(path, "a link leads out of the store")
            if create:
                _make_directory(parent)
            if parent.is_dir():
                with self._lock:
                    if len(self._known) < KNOWN_DIRECTORIES_LIMIT:
                        self._known.add(directory)
        return parent / name

    def _walk(self, directory: Path, inside: str, prefix: str) -> Iterator[ObjectMeta]:
        """Files below `directory`, whose path in the store is `inside`, in ascending order of path."""
        with _typed(inside or "/"):
            try:
                entries = list(os.scandir(directory))
            except FileNotFoundError:
                return
        # A directory sorts as its name and the slash that follows: "a-b" stands before "a/b".
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
        now_ns = probe.stat().st_mtime_ns       # the file system's clock: what the others were stamped by
        probe.unlink()
        for leftover in self._temporary.iterdir():
            with suppress(FileNotFoundError):
                if now_ns - leftover.stat().st_mtime_ns > TEMPORARY_KEPT_MS * 1_000_000:
                    leftover.unlink()


@contextmanager
def _typed(path: str) -> Iterator[None]:
    """Turns what the operating system says into the store's errors."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise ObjectNotFound(path, error.strerror or "does not exist") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InvalidPath(path, "a link stands where an object should be") from error
        raise ObjectStoreError(path, f"{type(error).__name__}: {error.strerror or error}") from error


def _write_synced(path: Path, data: Buffer) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[os.write(descriptor, rest):]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(descriptor: int, byte_range: range) -> bytes:
    """The bytes of `byte_range` as far as the file goes; one read unless the kernel splits it."""
    data = os.pread(descriptor, len(byte_range), byte_range.start)
    if len(data) == len(byte_range) or not data:
        return data
    parts, position = [data], byte_range.start + len(data)
    while position < byte_range.stop:
        data = os.pread(descriptor, byte_range.stop - position, position)
        if not data:
            break
        parts.append(data)
        position += len(data)
    return b"".join(parts)


def _make_directory(path: Path) -> None:
    """Creates `path` and what is missing above it, each name synced into its parent."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    with suppress(FileExistsError):
        path.mkdir()
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_file(mode: int) -> bool:
    return (mode & 0o170000) == 0o100000
