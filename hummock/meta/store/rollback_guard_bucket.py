"""Rollback guard in an object store: what it records of its meta store, outside of that meta store.

    store/identity          the id of the store, written once
    store/witness/<serial>  transaction `serial` was acknowledged; the newest counts
    store/clock             written to get a date: the clock of the object store

These objects detect an emptied, exchanged or rolled back meta store, as `RollbackGuard` does with a file. They are
written every few transactions and at close, so the loss of only the last few transactions of a killed process is not
detected. Identity and guard record have the same format, 64 bytes:

    magic b"HMKSTO01" | store id, 16 bytes | serial, u64 LE | digest of that transaction, 16 bytes (identity: zeros) |
    blake2b-128 of all before
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b

from hummock.base.json_fields import check_magic
from hummock.epoch import monotonic_seconds
from hummock.errors import (
    MetaStoreCorrupt,
    MetaStoreEmptied,
    MetaStoreError,
    MetaStoreReplaced,
    MetaStoreUnfit,
    ObjectExists,
    ObjectNotFound,
    ObjectStoreError,
    ObjectStoreRefused,
)
from hummock.meta.store.shared_clock import Reading, SharedClock
from hummock.object_store.base import ObjectStore, RandomBytes
from hummock.object_store.conditional_put_check import require_exclusive_creation

IDENTITY = "store/identity"
GUARDS = "store/witness/"
CLOCK = "store/clock"
MAGIC = b"HMKSTO01"
TESTIMONY_BYTES = 64
NO_DIGEST = bytes(16)
READS_LIMIT = 16
GUARD_EVERY = 16              # transactions
GUARD_SECONDS = 10.0
CLOCK_KEPT_SECONDS = 600.0      # drift of a monotonic clock is small in that time


@dataclass(frozen=True, slots=True)
class GuardRecord:
    """Store `store_id` had acknowledged transaction `serial`, whose digest is `digest`."""

    store_id: bytes
    serial: int = 0
    digest: bytes = NO_DIGEST

    def encode(self) -> bytes:
        body = MAGIC + self.store_id + self.serial.to_bytes(8, "little") + self.digest
        return body + blake2b(body, digest_size=16).digest()

    @staticmethod
    def decode(data: bytes, path: str) -> GuardRecord:
        """Raises `MetaStoreCorrupt`."""
        body = data[:-16]
        if len(data) != TESTIMONY_BYTES or blake2b(body, digest_size=16).digest() != data[-16:]:
            raise MetaStoreCorrupt(path, "digest", None, data[-16:].hex())
        if not check_magic(path, body[:len(MAGIC)], MAGIC):
            raise MetaStoreCorrupt(path, "magic", MAGIC, body[:8])
        return GuardRecord(body[8:24], int.from_bytes(body[24:32], "little"), body[32:])


class BucketRollbackGuard:
    """The objects under `store/` of one object store. Its meta store's lock guards it; only `now_ms` is thread safe.

    Methods raise `MetaStoreError` or a subclass if the object store fails.
    """

    def __init__(self, objects: ObjectStore, random_bytes: RandomBytes,
                 monotonic: Callable[[], float] = monotonic_seconds):
        self._objects, self._random_bytes, self._monotonic = objects, random_bytes, monotonic
        self._written: list[str] = []               # existing guard records, oldest first
        self._last = GuardRecord(b"")                 # the newest one
        self._written_at = monotonic()
        self._clock = SharedClock(self._read_clock, CLOCK_KEPT_SECONDS, monotonic)

    def identity(self, create: bool) -> bytes | None:
        """The id of the store; None if it does not exist and `create` is false."""
        try:
            with suppress(ObjectNotFound):
                return GuardRecord.decode(self._objects.get(IDENTITY), IDENTITY).store_id
            if not create:
                return None
            with suppress(ObjectExists):
                self._objects.put(IDENTITY, GuardRecord(self._random_bytes(16)).encode(), if_absent=True)
            return GuardRecord.decode(self._objects.get(IDENTITY), IDENTITY).store_id
        except ObjectStoreError as error:
            raise MetaStoreError(str(error)) from error

    def check(self, store_id: bytes) -> None:
        """Raises `MetaStoreEmptied` if the store is gone, `MetaStoreReplaced` if it is another one."""
        found = self.identity(False)
        if found is None:
            raise MetaStoreEmptied(self._objects.url, f"this process, which opened store {store_id.hex()} there,")
        if found != store_id:
            raise MetaStoreReplaced(self._objects.url, store_id.hex(), found.hex())

    def probe(self, store_id: bytes | None) -> None:
        """Raises `MetaStoreUnfit` unless the object store's create-if-absent works, which the identity depends on."""
        try:
            if store_id is not None and self._objects.creates_exclusively:
                try:
                    self._objects.put(IDENTITY, GuardRecord(store_id).encode(), if_absent=True)
                except ObjectExists:
                    return
            require_exclusive_creation(self._objects, self._random_bytes)
        except ObjectStoreRefused as error:
            raise MetaStoreUnfit(self._objects.url, error.reason) from error
        except ObjectStoreError as error:
            raise MetaStoreError(str(error)) from error

    def newest(self) -> GuardRecord | None:
        """The newest guard record. Raises `MetaStoreCorrupt` if it is damaged."""
        for _ in range(READS_LIMIT):
            try:
                self._written = [found.path for found in self._objects.list(GUARDS)]
                if not self._written:
                    return None
                path = self._written[-1]
                recorded = GuardRecord.decode(self._objects.get(path), path)
            except ObjectNotFound:      # a newer one has just replaced it
                continue
            except ObjectStoreError as error:
                raise MetaStoreError(str(error)) from error
            if path != _path_of(recorded.serial):
                raise MetaStoreCorrupt(path, "serial", path, recorded.serial)
            self._last = recorded
            return recorded
        raise MetaStoreError(f"{self._objects.url}: {GUARDS} changed at each of {READS_LIMIT} reads")

    def note(self, recorded: GuardRecord, *, now: bool = False) -> None:
        """Writes the guard record if one is due, or `now`. A failed write is ignored: the meta store itself still
        works.
        """
        due = (self._last.serial == 0 or recorded.serial >= self._last.serial + GUARD_EVERY
               or self._monotonic() - self._written_at >= GUARD_SECONDS)
        if recorded.serial <= self._last.serial or not (due or now):
            return
        self._written_at = self._monotonic()
        with suppress(ObjectStoreError):
            path = _path_of(recorded.serial)
            with suppress(ObjectExists):
                self._objects.put(path, recorded.encode(), if_absent=True)
            self._last, older = recorded, self._written
            self._written = [path]
            self._objects.delete([name for name in older if name < path])

    def go_back(self, recorded: GuardRecord) -> None:
        """Makes the record the newest one and deletes records of later transactions."""
        try:
            later = [found.path for found in self._objects.list(GUARDS) if found.path > _path_of(recorded.serial)]
            self._objects.delete(later)
        except ObjectStoreError as error:
            raise MetaStoreError(str(error)) from error
        self._last, self._written = GuardRecord(recorded.store_id), []
        self.note(recorded, now=True)

    def now_ms(self) -> int:
        """The object store's clock, by `SharedClock`; a store whose dates are whole seconds is behind by up to one."""
        return self._clock.now_ms()

    def _read_clock(self) -> Reading:
        """The date of an object written now. Another process may write it again, but not after the answer."""
        asked = self._monotonic()
        try:
            self._objects.put(CLOCK, self._random_bytes(16))
            date_ms = self._objects.head(CLOCK).modified_ms
        except ObjectStoreError as error:
            raise MetaStoreError(str(error)) from error
        return Reading(date_ms, asked, self._monotonic())


def _path_of(serial: int) -> str:
    return f"{GUARDS}{serial:020d}"
