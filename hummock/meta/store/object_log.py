"""A meta store that is a log of objects in a bucket, for several processes and no database.

Transaction n is the object `meta/<n>`, created only if absent: the process that creates it decides the n-th
transaction, and every other reads it and tries the next number. All rows are in memory; a read requests the record
after the last known one. Each record has a mark, so that a create whose answer was lost is recognised by reading it
back. Before a record is written the store's identity is checked, so that a process that outlived its store writes
nothing into the next one at the same URL.

Old records are deleted some time after a checkpoint (`object_log_gc`), so to a process that was suspended a free number
may look unused although it was used. Therefore an answer counts only within `trust` (a quarter of the grace) of the
last moment at which the known record was seen to be the newest; after that the log is listed again, and a create that
may have reused a number ends as `OutcomeUnknown`. The clock is monotonic, the grace uses the dates of the objects: a
suspension of any length is covered, a store whose dates jump by minutes is not.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from hummock.epoch import monotonic_seconds
from hummock.errors import (
    DeadlineExceeded,
    DiskFull,
    MetaStoreBusy,
    MetaStoreCorrupt,
    MetaStoreEmptied,
    MetaStoreError,
    MetaStoreForked,
    MetaStoreRolledBack,
    ObjectExists,
    ObjectStoreError,
    OutcomeUnknown,
    PreconditionFailed,
    StoreClosed,
    StoreNotFound,
)
from hummock.meta.store.base import MetaOperations, MetaStore, check_key
from hummock.meta.store.object_log_format import CHECKPOINT_MAGIC, DIGEST_BYTES, NO_MARK, LogRecord
from hummock.meta.store.object_log_gc import LogListing, LogObjects, checkpoint_path, record_path
from hummock.meta.store.rollback_guard_bucket import GUARDS, IDENTITY, NO_DIGEST, BucketRollbackGuard, GuardRecord
from hummock.object_store.base import ObjectStore, RandomBytes
from hummock.options import MetaOptions

TRUST_SHARE = 4
LISTINGS_LIMIT = 16         # tries to read a log that others change concurrently
RECORDS_REMEMBERED = 1024
MARK_BYTES = 16


@dataclass(slots=True)
class LogState:
    """All rows as of record `serial`; `newest` are mark and digest of it and of those before it, if known."""

    store_id: bytes
    serial: int = 0
    digest: bytes = NO_DIGEST
    rows: dict[str, bytes] = field(default_factory=dict)
    newest: deque[tuple[bytes, bytes]] = field(default_factory=lambda: deque(maxlen=RECORDS_REMEMBERED))

    def apply(self, record: LogRecord, digest: bytes) -> None:
        """Applies the next record. Raises `MetaStoreCorrupt` if it does not follow."""
        expected = (self.store_id, self.serial + 1, self.digest)
        found = (record.store_id, record.serial, record.previous)
        if expected != found:
            raise MetaStoreCorrupt(record_path(self.serial + 1), "place in the log", expected, found)
        for key in record.delete:
            self.rows.pop(key, None)
        self.rows.update(record.put)
        self.serial, self.digest = record.serial, digest
        self.newest.append((record.mark, digest))

    def jump(self, checkpoint: LogRecord) -> None:
        """Replaces the state by that of the checkpoint; the records in between are unknown."""
        self.serial, self.digest, self.rows = checkpoint.serial, checkpoint.previous, dict(checkpoint.put)
        self.newest.clear()
        self.newest.append((NO_MARK, self.digest))

    def mark_and_digest(self, serial: int) -> tuple[bytes, bytes] | None:
        """Mark and digest of record `serial`; None if unknown; NO_MARK if only the mark is."""
        back = self.serial - serial
        return self.newest[-1 - back] if 0 <= back < len(self.newest) else None

    def checkpoint(self) -> bytes:
        rows = dict(sorted(self.rows.items()))
        return LogRecord(self.store_id, self.serial, self.digest, put=rows, magic=CHECKPOINT_MAGIC).encode()


class _Moment(threading.local):
    """Whether this thread has polled in its `one_moment` block; None outside of one."""

    seen: bool | None = None


class ObjectLogMetaStore(MetaStore):
    """One handle, guarded by a lock; any number of processes may each open their own. `objects` belong to the caller,
    who may close them in `on_close`.

    Raises at opening `MetaStoreUnfit` where create-if-absent does not hold, `MetaStoreEmptied`, `MetaStoreCorrupt`, and
    `StoreNotFound` where there is no store and `create` is false.
    """

    def __init__(self, objects: ObjectStore, *, create: bool = True, options: MetaOptions | None = None,
                 accept_rollback: bool = False, random_bytes: RandomBytes = os.urandom,
                 monotonic: Callable[[], float] = monotonic_seconds,
                 on_close: Callable[[], None] | None = None):
        self._options = options or MetaOptions()
        self._objects, self._random_bytes, self._monotonic = LogObjects(objects), random_bytes, monotonic
        self._guard = BucketRollbackGuard(objects, random_bytes, monotonic)
        self._trust_seconds = self._options.log_grace_ms / 1000 / TRUST_SHARE
        self._lock = threading.RLock()
        self._pid, self._on_close = os.getpid(), on_close
        self._closed = False
        self._moment = _Moment()
        self._checkpoint = 0            # the newest known
        self._newest_at = monotonic()   # the next record, if there is one, was created after this moment
        self._has_written = False
        try:
            with self._typed():
                self._state = LogState(self._identify(create))
                recorded = self._guard.newest()
                self._reload()
            self._check_guard_record(recorded, accept_rollback)
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return self._objects.url

    def get(self, key: str) -> bytes | None:
        check_key(key)
        with self._session():
            self._look()
            return self._state.rows.get(key)

    def list(self, prefix: str) -> list[tuple[str, bytes]]:
        with self._session():
            self._look()
            return sorted((key, value) for key, value in self._state.rows.items() if key.startswith(prefix))

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """The first read inside polls for new records, the others see at least the same state."""
        if self._moment.seen is not None:
            yield                               # nested
            return
        self._moment.seen = False
        try:
            yield
        finally:
            self._moment.seen = None

    def transaction(self, operations: MetaOperations) -> None:
        deadline = self._monotonic() + self._options.busy_timeout_ms / 1000
        with self._session():
            writes = bool(operations.put or operations.delete)
            if not writes or self._is_stale(2):
                self._follow()
            while True:
                self._check(operations)
                if not writes or self._append(operations):
                    break
                if self._monotonic() >= deadline:
                    raise MetaStoreBusy(self.url, self._options.busy_timeout_ms)
            self._maintain()

    def verify(self) -> int:
        """Number of rows, read again from the objects. Raises `MetaStoreCorrupt`."""
        with self._session():
            again = LogState(self._state.store_id)
            missing = self._replay(again, self._objects.listing())
            if missing is not None:
                raise MetaStoreCorrupt(missing, "an object of the log", "a record", None)
            return len(again.rows)

    def now_ms(self) -> int:
        return self._guard.now_ms()

    def close(self) -> None:
        """Idempotent."""
        if self._pid != os.getpid():        # before any wait, since a parent's thread may have the lock
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._has_written:
                with suppress(MetaStoreError):              # our store may be gone
                    self._guard.check(self._state.store_id)
                    self._guard.note(self._guard_record(), now=True)
            if self._on_close is not None:
                self._on_close()

    # -- opening -------------------------------------------------------------------------------------------

    def _identify(self, create: bool) -> bytes:
        store_id = self._guard.identity(False)
        if store_id is None:
            if self._objects.listing().last:
                raise MetaStoreCorrupt(f"{self.url}/{IDENTITY}", "identity", "the id of the store", None)
            if not create:
                raise StoreNotFound(self.url)
        self._guard.probe(store_id)
        store_id = store_id or self._guard.identity(True)
        assert store_id is not None
        return store_id

    def _check_guard_record(self, recorded: GuardRecord | None, accept_rollback: bool) -> None:
        """Raises if the log is not the one in the guard's record, or ends before it, unless that is accepted."""
        state = self._state
        if recorded is None:
            return
        if recorded.store_id != state.store_id:
            raise MetaStoreCorrupt(self.url, "store id", recorded.store_id.hex(), state.store_id.hex())
        if state.serial == 0:
            raise MetaStoreEmptied(f"{self.url}/meta", f"{GUARDS}{recorded.serial}")
        if state.serial < recorded.serial:
            if not accept_rollback:
                raise MetaStoreRolledBack(self.url, f"{GUARDS}{recorded.serial}", recorded.serial, state.serial)
            self._guard.go_back(self._guard_record())
        known = state.mark_and_digest(recorded.serial)
        if known is not None and known[1] != recorded.digest:
            raise MetaStoreCorrupt(self.url, f"transaction {recorded.serial}", recorded.digest.hex(), known[1].hex())

    def _guard_record(self) -> GuardRecord:
        return GuardRecord(self._state.store_id, self._state.serial, self._state.digest)

    # -- reading -------------------------------------------------------------------------------------------

    def _is_stale(self, parts: int = 1) -> bool:
        """Whether a `parts`-th of the time has passed in which a free number is certainly unused."""
        return self._monotonic() - self._newest_at > self._trust_seconds / parts

    def _look(self) -> None:
        """Polls, once per `one_moment` block."""
        if not self._moment.seen:
            self._follow()
        if self._moment.seen is not None:
            self._moment.seen = True

    def _follow(self) -> None:
        """Applies everything appended so far."""
        while not self._is_stale():
            asked = self._monotonic()
            data = self._objects.record(self._state.serial + 1)
            if self._is_stale():
                break
            if data is None:
                self._newest_at = asked
                return
            self._state.apply(*LogRecord.decode(data, record_path(self._state.serial + 1)))
        self._reload()

    def _reload(self) -> None:
        """Applies everything in a listing, from its newest checkpoint on if that is newer."""
        for _ in range(LISTINGS_LIMIT):
            asked = self._monotonic()
            listing = self._objects.listing()
            if self._state.serial > listing.last:
                if not listing.last:
                    raise MetaStoreEmptied(f"{self.url}/meta", f"record {self._state.serial}, which was read before")
                raise MetaStoreCorrupt(self.url, "last transaction", self._state.serial, listing.last)
            missing = self._replay(self._state, listing)
            if missing is None:
                self._checkpoint, self._newest_at = listing.newest_checkpoint, asked
                return
        raise MetaStoreCorrupt(missing or self.url, "an object of the log", "a record", None)

    def _replay(self, state: LogState, listing: LogListing) -> str | None:
        """Advances `state` to the end of the listing; the path of a missing object, if any."""
        base = listing.newest_checkpoint
        if base > state.serial:
            path = checkpoint_path(base)
            data = self._objects.checkpoint(base)
            if data is None:
                return path
            found, _ = LogRecord.decode(data, path, CHECKPOINT_MAGIC)
            if (found.store_id, found.serial) != (state.store_id, base):
                raise MetaStoreCorrupt(path, "place in the log", (state.store_id, base), (found.store_id, found.serial))
            state.jump(found)
        serials = range(state.serial + 1, listing.last + 1)
        for serial, data in zip(serials, self._objects.records(serials), strict=True):
            if data is None:
                return record_path(serial)
            state.apply(*LogRecord.decode(data, record_path(serial)))
        return None

    # -- writing -------------------------------------------------------------------------------------------

    def _check(self, operations: MetaOperations) -> None:
        """Raises `PreconditionFailed`, after making sure that the newest rows are known."""
        rows = self._state.rows
        if any(rows.get(key) != expected for key, expected in operations.require.items()):
            self._follow()
            for key, expected in operations.require.items():
                if (got := self._state.rows.get(key)) != expected:
                    raise PreconditionFailed(key, expected, got)

    def _append(self, operations: MetaOperations) -> bool:
        """Whether the operations became the next record; False: another transaction did. `OutcomeUnknown`."""
        state, mark = self._state, self._random_bytes(MARK_BYTES)
        record = LogRecord(state.store_id, state.serial + 1, state.digest, mark, operations.delete, operations.put)
        self._guard.check(state.store_id)     # a free number may belong to another store by now
        data, asked = record.encode(), self._monotonic()
        self._has_written = True
        try:
            self._objects.append(record.serial, data)
        except ObjectExists:
            self._follow()
        except ObjectStoreError as error:
            self._find_out(error)
            if isinstance(error, DiskFull) and state.serial < record.serial:
                raise
        else:
            if not self._is_stale():
                state.apply(record, data[-DIGEST_BYTES:])
                self._newest_at = asked
                return True
            self._reload()      # so much time has passed that the number may have been used before
        found, _ = self._state.mark_and_digest(record.serial) or (NO_MARK, b"")
        if found == NO_MARK:
            raise OutcomeUnknown(f"{self.url}: record {record.serial} was written, its end not seen")
        return found == mark

    def _find_out(self, error: ObjectStoreError) -> None:
        """Reads the outcome of a create that failed; if the objects do not answer for long, the caller must."""
        if isinstance(error, DeadlineExceeded):
            raise OutcomeUnknown(f"{self.url}: {error}") from error
        try:
            self._follow()
        except (MetaStoreError, ObjectStoreError) as failure:
            raise OutcomeUnknown(f"{self.url}: {error}; reading again: {failure}") from error

    def _maintain(self) -> None:
        """Writes guard record and checkpoint if due; if it fails, the next transaction does it."""
        self._guard.note(self._guard_record())
        every = self._options.log_checkpoint_records
        if self._state.serial - self._checkpoint < every:
            return
        with suppress(ObjectStoreError, MetaStoreError):
            listing = self._objects.listing()
            self._checkpoint = listing.newest_checkpoint
            if self._state.serial - self._checkpoint >= every:
                self._objects.write_checkpoint(self._state.serial, self._state.checkpoint())
                self._checkpoint = self._state.serial
                self._guard.note(self._guard_record(), now=True)
            self._objects.trim(listing, self._options.log_grace_ms)

    @contextmanager
    def _session(self) -> Iterator[None]:
        if self._pid != os.getpid():
            raise MetaStoreForked(self.url, self._pid, os.getpid())
        with self._lock, self._typed():
            if self._closed:
                raise StoreClosed(f"meta store {self.url}")
            yield

    @contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except DiskFull:                    # an error of both kinds
            raise
        except ObjectStoreError as error:
            raise MetaStoreError(f"{self.url}: {error}") from error
