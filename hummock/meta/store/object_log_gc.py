"""The objects of a log in a bucket: their names, reading them, and garbage collection.

    meta/<serial>               a record: created if absent, never changed
    meta/checkpoint/<serial>    all rows as of that record

A record that a checkpoint covers is deleted once the log has objects that are `grace_ms` newer than that checkpoint, by
the object store's own dates; older checkpoints are deleted first. So a free serial number was never used within the
grace: readers of the log rely on this (see `object_log`).
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from hummock.errors import MetaStoreError, ObjectExists, ObjectNotFound
from hummock.object_store.base import ObjectStore

PREFIX = "meta/"
CHECKPOINTS = "meta/checkpoint/"
SERIAL_DIGITS = 20
READ_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class LogListing:
    """The serial numbers of the listed records and checkpoints, each with its date in milliseconds."""

    records: dict[int, int]
    checkpoints: dict[int, int]

    @property
    def newest_checkpoint(self) -> int:
        return max(self.checkpoints, default=0)

    @property
    def last(self) -> int:
        return max((self.newest_checkpoint, *self.records))

    def outlived(self, grace_ms: int) -> tuple[list[int], list[int]]:
        """Checkpoints and records that no reader can need any more."""
        dates = (*self.records.values(), *self.checkpoints.values())
        proven = max((serial for serial, date in self.checkpoints.items() if date + grace_ms <= max(dates)), default=0)
        return ([serial for serial in sorted(self.checkpoints) if serial < proven],
                [serial for serial in sorted(self.records) if serial <= proven])


class LogObjects:
    """Reads and writes the objects as bytes. Methods raise subclasses of `ObjectStoreError`."""

    def __init__(self, objects: ObjectStore):
        self._objects = objects

    @property
    def url(self) -> str:
        return self._objects.url

    def append(self, serial: int, data: bytes) -> None:
        """Creates a record. Raises `ObjectExists` if the serial number is taken."""
        self._objects.put(record_path(serial), data, if_absent=True)

    def record(self, serial: int) -> bytes | None:
        """The record's bytes, None if it does not exist."""
        return self._read(record_path(serial))

    def records(self, serials: Iterable[int]) -> list[bytes | None]:
        """Several records, read in parallel."""
        wanted = list(serials)
        if len(wanted) < 4:
            return [self.record(serial) for serial in wanted]
        with ThreadPoolExecutor(min(READ_AT_ONCE, len(wanted)), "meta-log") as pool:
            return list(pool.map(self.record, wanted))

    def checkpoint(self, serial: int) -> bytes | None:
        return self._read(checkpoint_path(serial))

    def write_checkpoint(self, serial: int, data: bytes) -> None:
        """Idempotent: every writer of this checkpoint writes the same bytes."""
        with suppress(ObjectExists):
            self._objects.put(checkpoint_path(serial), data, if_absent=True)

    def listing(self) -> LogListing:
        """Lists the log. Raises `MetaStoreError` for a name that is not part of it."""
        records: dict[int, int] = {}
        checkpoints: dict[int, int] = {}
        for found in self._objects.list(PREFIX):
            kind, prefix = (checkpoints, CHECKPOINTS) if found.path.startswith(CHECKPOINTS) else (records, PREFIX)
            digits = found.path[len(prefix):]
            if len(digits) != SERIAL_DIGITS or not (digits.isascii() and digits.isdigit()):
                raise MetaStoreError(f"{self.url}: {found.path} is no part of a log")
            kind[int(digits)] = found.modified_ms
        return LogListing(records, checkpoints)

    def trim(self, listing: LogListing, grace_ms: int) -> None:
        """Deletes what `outlived` returns."""
        checkpoints, records = listing.outlived(grace_ms)
        for paths in ([checkpoint_path(serial) for serial in checkpoints], [record_path(serial) for serial in records]):
            if paths:
                self._objects.delete(paths)

    def _read(self, path: str) -> bytes | None:
        with suppress(ObjectNotFound):
            return self._objects.get(path)
        return None


def record_path(serial: int) -> str:
    return f"{PREFIX}{serial:0{SERIAL_DIGITS}d}"


def checkpoint_path(serial: int) -> str:
    return f"{CHECKPOINTS}{serial:0{SERIAL_DIGITS}d}"
