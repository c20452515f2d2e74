"""The state of a disk after a power loss, rebuilt from a journal of file calls.

Synced bytes of a file survive; of later writes each sector of 512 bytes survives or not. Names of a directory survive
as of its last sync; of later changes of names either a prefix survives (JOURNALLED, as in journaling file systems) or
any subset (STRICT, as POSIX allows). A rename is atomic.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from pathlib import Path, PurePosixPath

SECTOR = 512
HEADER = struct.Struct("<6q")


class Kind(IntEnum):
    CREATE = 1
    WRITE = 2
    TRUNCATE = 3
    SYNC = 4
    RENAME = 5
    LINK = 6
    UNLINK = 7
    MKDIR = 8
    RMDIR = 9
    NOTE = 10


class Loss(Enum):
    """The fate of bytes and names that were not synced."""

    ALL = "all dropped"
    NOTHING = "all kept"
    DATA = "names kept, data dropped"
    NAMES = "data kept, names dropped"
    JOURNALLED = "a part of the data, a beginning of the names"
    STRICT = "a part of the data, a part of the names"


@dataclass(frozen=True, slots=True)
class Record:
    kind: Kind
    inode: int
    offset: int
    first: str
    second: str
    data: bytes


@dataclass(slots=True)
class File:
    """`synced` bytes and later writes: (offset, data), or (size, None) for a truncation."""

    synced: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.pending:
            _write(self.synced, *change)
        self.pending.clear()

    def left(self, rng: random.Random, loss: Loss) -> bytes:
        data = bytearray(self.synced)
        for offset, written in self.pending:
            if loss in (Loss.NOTHING, Loss.NAMES):
                _write(data, offset, written)
            elif loss in (Loss.JOURNALLED, Loss.STRICT):
                fate = rng.choice(("kept", "dropped", "torn"))
                if fate == "kept" or (fate == "torn" and written is None):
                    _write(data, offset, written)
                elif fate == "torn" and written is not None:
                    for start, part in _sectors(offset, written):
                        if rng.random() < .5:
                            _write(data, start, part)
        return bytes(data)


DIRECTORY = "directory"
Change = list[tuple[str, "File | str | None"]]      # path -> its new entry, None: removed


class Disk:
    """The durable state and the pending changes after the records so far."""

    def __init__(self, root: Path):
        """Begins with the files of `root`, all durable."""
        self.root = str(root)
        self._names: dict[str, File | str] = {self.root: DIRECTORY}     # durable
        self._now: dict[str, File | str] = {}                           # as the process sees them
        self._changes: list[Change] = []                                # from `_names` to `_now`, in order
        self._inodes: dict[int, File] = {}
        for path in sorted(root.rglob("*")):
            if path.is_dir():
                self._names[str(path)] = DIRECTORY
            else:
                file = self._inodes[path.stat().st_ino] = File(bytearray(path.read_bytes()))
                self._names[str(path)] = file
        self._now = dict(self._names)

    def apply(self, record: Record) -> None:
        kind, first, second = record.kind, record.first, record.second
        if kind is Kind.CREATE:
            file = self._inodes[record.inode] = File()
            self._rename([(first, file)])
        elif kind is Kind.WRITE:
            self._inodes[record.inode].pending.append((record.offset, record.data))
        elif kind is Kind.TRUNCATE:
            self._inodes[record.inode].pending.append((record.offset, None))
        elif kind is Kind.SYNC and self._now.get(first) is DIRECTORY:
            self._sync_directory(first)
        elif kind is Kind.SYNC:
            self._inodes[record.inode].sync()
        elif kind is Kind.RENAME:
            self._rename([(second, self._now[first]), (first, None)])
        elif kind is Kind.LINK:
            self._rename([(second, self._now[first])])
        elif kind in (Kind.UNLINK, Kind.RMDIR):
            self._rename([(first, None)])
        elif kind is Kind.MKDIR:
            self._rename([(first, DIRECTORY)])

    def left(self, rng: random.Random, loss: Loss) -> dict[str, bytes | None]:
        """Path -> bytes, None for a directory, of everything reachable after the loss."""
        names = dict(self._names)
        changes = self._changes
        if loss in (Loss.ALL, Loss.NAMES):
            changes = []
        elif loss is Loss.JOURNALLED:
            changes = changes[:rng.randint(0, len(changes))]
        elif loss is Loss.STRICT:
            changes = [change for change in changes if rng.random() < .5]
        for change in changes:
            _apply_change(names, change)
        return {path: None if isinstance(entry, str) else entry.left(rng, loss)
                for path, entry in sorted(names.items()) if _is_reachable(path, names, self.root)}

    def _rename(self, change: Change) -> None:
        _apply_change(self._now, change)
        self._changes.append(change)

    def _sync_directory(self, path: str) -> None:
        """Makes every change of a name in the directory durable."""
        kept: list[Change] = []
        for change in self._changes:
            if any(str(PurePosixPath(name).parent) == path for name, _ in change):
                _apply_change(self._names, change)
            else:
                kept.append(change)
        self._changes = kept


def read_journal(path: Path) -> Iterator[Record]:
    data, at = path.read_bytes(), 0
    while at < len(data):
        kind, inode, offset, *sizes = HEADER.unpack_from(data, at)
        at += HEADER.size
        parts = []
        for size in sizes:
            parts.append(data[at:at + size])
            at += size
        yield Record(Kind(kind), inode, offset, parts[0].decode(), parts[1].decode(), parts[2])


def materialise(left: dict[str, bytes | None], root: Path, target: Path) -> None:
    """Writes the surviving files of `root` into the empty directory `target`."""
    for path, data in left.items():
        destination = target / Path(path).relative_to(root)
        if data is None:
            destination.mkdir(exist_ok=True)
        else:
            destination.write_bytes(data)


def _apply_change(names: dict[str, File | str], change: Change) -> None:
    for path, entry in change:
        if entry is None:
            names.pop(path, None)
        else:
            names[path] = entry


def _is_reachable(path: str, names: dict[str, File | str], root: str) -> bool:
    return path == root or all(
        names.get(str(above)) is DIRECTORY for above in PurePosixPath(path).parents if str(above).startswith(root))


def _write(data: bytearray, offset: int, written: bytes | None) -> None:
    if written is None:
        data[offset:] = bytes(max(0, offset - len(data)))
        return
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset:offset + len(written)] = written


def _sectors(offset: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    at = offset
    while at < offset + len(data):
        end = min((at // SECTOR + 1) * SECTOR, offset + len(data))
        yield at, data[at - offset:end - offset]
        at = end
