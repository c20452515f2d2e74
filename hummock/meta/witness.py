"""A small file beside a database that remembers that it was initialised, and how far it had come.

An emptied or lost database looks like a new one, and a database whose log lost its end looks like an older
one: the witness tells both apart from the truth. It has two slots of 512 bytes, written in turn so that a
torn write spoils one at most; each is

    magic b"HMKWIT01" | store id, 16 bytes | serial, u64 LE | blake2b-128 of the 32 bytes before | zeros

The serial of a slot is a transaction that was acknowledged; the database may be ahead of it, never behind.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from hummock.errors import MetaStoreCorrupt

MAGIC = b"HMKWIT01"
SLOT_BYTES = 512
RECORD_BYTES = 32


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
        """What a slot says, or None where it was never written or was damaged."""
        record, digest = slot[:RECORD_BYTES], slot[RECORD_BYTES:RECORD_BYTES + 16]
        if len(record) < RECORD_BYTES or not record.startswith(MAGIC):
            return None
        if blake2b(record, digest_size=16).digest() != digest:
            return None
        return Acknowledged(record[8:24], int.from_bytes(record[24:], "little"))


class Witness:
    """The file at `path`; not thread safe by itself."""

    def __init__(self, path: Path):
        self.path = path

    def read(self) -> Acknowledged | None:
        """The newest testimony, None without a file. Raises `MetaStoreCorrupt` where no slot is whole."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        slots = [Acknowledged.decode(data[at:at + SLOT_BYTES]) for at in (0, SLOT_BYTES)]
        whole = [slot for slot in slots if slot is not None]
        if not whole:
            raise MetaStoreCorrupt(str(self.path), "both slots", MAGIC, data[:len(MAGIC)])
        return max(whole, key=lambda slot: slot.serial)

    def write(self, testimony: Acknowledged) -> None:
        """Durable on return; creates the file. OSError as the system raises it."""
        try:
            with _opened(self.path, os.O_WRONLY) as descriptor:
                os.pwrite(descriptor, testimony.encode(), SLOT_BYTES * (testimony.serial & 1))
                os.fdatasync(descriptor)
        except FileNotFoundError:
            self._create(testimony)

    def _create(self, testimony: Acknowledged) -> None:
        """Both slots at once and by rename: a crash leaves no file or a whole one."""
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.{threading.get_ident()}")
        with _opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
            os.write(descriptor, testimony.encode() * 2)
            os.fsync(descriptor)
        temporary.replace(self.path)
        with _opened(self.path.parent, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            os.fsync(descriptor)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
