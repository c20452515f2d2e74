"""Rollback guard: a small file beside a database that records that it was initialised, and its last transaction.

An emptied or lost database looks like a new one, and a database whose log lost its end looks like an older one: the
guard file reveals both. It has two slots of 512 bytes, written alternately so that a torn write damages at most one;
each is

    magic b"HMKWIT01" | store id, 16 bytes | serial, u64 LE | blake2b-128 of the 32 bytes before | zeros

The serial of a slot is a transaction that was acknowledged; the database may be ahead of it, never behind.

If an older copy of the directory is restored over it, the file goes back together with the database. Such a copy does
not overwrite names that it does not contain: so a second, empty file has the number of the database's last transaction
in its name, `witness/<database>-<store id>-<serial>`, and is renamed by each transaction.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from hummock.base.file_io import sync_data, sync_file
from hummock.base.json_fields import check_magic
from hummock.errors import MetaStoreCorrupt

MAGIC = b"HMKWIT01"
SLOT_BYTES = 512
RECORD_BYTES = 32
NAME = re.compile(r"(.+)-([0-9a-f]{32})-([0-9]{20})", re.DOTALL)      # database, store id, serial


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Store `store_id` had acknowledged transaction number `serial`."""

    store_id: bytes
    serial: int

    def encode(self) -> bytes:
        record = MAGIC + self.store_id + self.serial.to_bytes(8, "little")
        return (record + blake2b(record, digest_size=16).digest()).ljust(SLOT_BYTES, b"\0")

    @staticmethod
    def decode(slot: bytes) -> Acknowledged | None:
        """The content of a slot, or None if it was never written or is damaged."""
        record, digest = slot[:RECORD_BYTES], slot[RECORD_BYTES:RECORD_BYTES + 16]
        if len(record) < RECORD_BYTES or not record.startswith(MAGIC):
            return None
        if blake2b(record, digest_size=16).digest() != digest:
            return None
        return Acknowledged(record[8:24], int.from_bytes(record[24:], "little"))


class RollbackGuard:
    """The file at `path`; not thread safe by itself."""

    def __init__(self, path: Path):
        self.path = path

    def read(self) -> Acknowledged | None:
        """The newest record, None without a file. Raises `MetaStoreCorrupt` if no slot is intact."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        slots = [Acknowledged.decode(data[at:at + SLOT_BYTES]) for at in (0, SLOT_BYTES)]
        whole = [slot for slot in slots if slot is not None]
        if not whole:
            check_magic(str(self.path), data[:len(MAGIC)], MAGIC)
            raise MetaStoreCorrupt(str(self.path), "both slots", MAGIC, data[:len(MAGIC)])
        return max(whole, key=lambda slot: slot.serial)

    def write(self, recorded: Acknowledged) -> None:
        """Durable on return; creates the file. Raises the system's OSError."""
        try:
            with _opened(self.path, os.O_WRONLY) as descriptor:
                os.pwrite(descriptor, recorded.encode(), SLOT_BYTES * (recorded.serial & 1))
                sync_data(descriptor)
        except FileNotFoundError:
            self.replace(recorded)

    def replace(self, recorded: Acknowledged) -> None:
        """Replaces both slots by renaming a new file: a crash leaves no file or a complete one."""
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.{threading.get_ident()}")
        with _opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
            os.write(descriptor, recorded.encode() * 2)
            sync_file(descriptor)
        temporary.replace(self.path)
        with _opened(self.path.parent, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            sync_file(descriptor)


class SerialNames:
    """The names under `witness/` beside the database at `path`; not thread safe by itself.

    Failed writes there do not fail the database: they only weaken the detection.
    """

    def __init__(self, path: Path):
        self._directory, self._database = path.parent / "witness", path.name
        self._last: tuple[bytes, Path] | None = None        # the file that `note` renames next

    def newest(self) -> dict[bytes, int]:
        """The greatest serial of each store that was ever at `path`."""
        found: dict[bytes, int] = {}
        for store_id, serial, _ in self._names():
            found[store_id] = max(serial, found.get(store_id, 0))
        return found

    def note(self, store_id: bytes, serial: int) -> None:
        """Records that transaction `serial` of the store was acknowledged."""
        wanted = self.name_of(store_id, serial)
        with suppress(OSError):
            if self._last is not None and self._last[0] == store_id:
                with suppress(FileNotFoundError):           # another process has renamed it
                    self._last[1].rename(wanted)
                    self._last = store_id, wanted
                    return
            self._directory.mkdir(exist_ok=True)
            older = [(found, name) for owner, found, name in self._names() if owner == store_id]
            if all(found < serial for found, _ in older):
                wanted.touch()
                for _, name in older:
                    name.unlink(missing_ok=True)
            self._last = store_id, wanted if not older else max((serial, wanted), *older)[1]

    def go_back(self, store_id: bytes, serial: int) -> None:
        """Deletes records of later transactions."""
        for owner, found, name in self._names():
            if owner == store_id and found > serial:
                name.unlink(missing_ok=True)
        self._last = None
        self.note(store_id, serial)

    def name_of(self, store_id: bytes, serial: int) -> Path:
        return self._directory / f"{self._database}-{store_id.hex()}-{serial:020d}"

    def _names(self) -> Iterator[tuple[bytes, int, Path]]:
        try:
            names = list(self._directory.iterdir())
        except OSError:
            return
        for name in names:
            matched = NAME.fullmatch(name.name)
            if matched is not None and matched[1] == self._database:
                yield bytes.fromhex(matched[2]), int(matched[3]), name


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
