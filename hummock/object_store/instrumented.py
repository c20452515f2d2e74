"""InstrumentedObjectStore: retries, deadlines and metrics around an object store. The only module that retries.

A call is retried after any transient `ObjectStoreError` (not after "does not exist", "exists already", an invalid path
or a refusal), at most `attempts` times and until `deadline_ms`; each attempt gets the remaining time as its timeout.
Delays double with full jitter, so that many clients do not return together. Corruption is never retried. A streamed
object is retried per call of its writer, which knows what it has done already.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from hummock.base.logs import Event
from hummock.epoch import monotonic_seconds
from hummock.errors import (
    DeadlineExceeded,
    DiskFull,
    InvalidPath,
    ObjectExists,
    ObjectNotFound,
    ObjectStoreError,
    ObjectStoreRefused,
    StoreClosed,
    UploadLost,
)
from hummock.metrics import Metrics
from hummock.object_store.base import Buffer, ObjectMeta, ObjectStore, ObjectWriter
from hummock.object_store.fd_cache import CachedFd, FileReads
from hummock.options import RetryOptions

log = logging.getLogger(__name__)
Result = TypeVar("Result")
LISTED_AT_ONCE = 1_000
FULL_DISK_SECONDS = 0.4     # wait on a full disk: other processes may be about to remove replaced files
FINAL = (ObjectNotFound, ObjectExists, InvalidPath, ObjectStoreRefused, UploadLost, DeadlineExceeded)
OPERATIONS = ("put", "create", "write", "close", "get", "head", "list", "delete")


@dataclass(frozen=True, slots=True)
class Pacing:
    """Clock, sleep and randomness of retries."""

    rng: random.Random
    monotonic: Callable[[], float] = monotonic_seconds
    sleep: Callable[[float], None] = time.sleep


class InstrumentedObjectStore(ObjectStore):
    """`store` with retries and metrics. Closing it closes `store`."""

    def __init__(self, store: ObjectStore, metrics: Metrics, retry: RetryOptions, pacing: Pacing):
        self._store, self._metrics, self._retry, self._pacing = store, metrics, retry, pacing
        self._closed = False
        self._file_reads: FileReads | None = None       # of the store's open files, set with the first
        self._read = metrics.object_store_bytes.labels("read")
        self._written = metrics.object_store_bytes.labels("written")
        self._seconds = {operation: metrics.object_store_seconds.labels(operation)
                         for operation in OPERATIONS}
        self.creates_exclusively = store.creates_exclusively

    @property
    def url(self) -> str:
        return self._store.url

    def put(self, path: str, data: Buffer, *, if_absent: bool = False) -> None:
        tries = 0

        def once(seconds: float) -> None:
            nonlocal tries
            tries += 1
            store = self._store.within(seconds)
            try:
                store.put(path, data, if_absent=if_absent)
            except ObjectExists:
                # An earlier attempt may have succeeded and lost its answer: then the bytes are ours.
                if tries == 1 or store.get(path) != bytes(memoryview(data)):
                    raise

        self.call("put", path, once)
        self._written.inc(memoryview(data).nbytes)

    def create(self, path: str, *, if_absent: bool = True) -> ObjectWriter:
        writer = self.call("create", path, lambda left: self._store.within(left).create(path, if_absent=if_absent))
        return _RetriedWriter(self, path, writer)

    def create_scratch(self, path: str) -> ObjectWriter:
        writer = self.call("create", path, lambda left: self._store.within(left).create_scratch(path))
        return _RetriedWriter(self, path, writer)

    def get(self, path: str, byte_range: range | None = None) -> bytes:
        data = self.call("get", path, lambda left: self._store.within(left).get(path, byte_range))
        self._read.inc(len(data))
        return data

    def get_into(self, path: str, start: int, target: memoryview) -> int:
        done = self.call("get", path, lambda left: self._store.within(left).get_into(path, start, target))
        self._read.inc(done)
        return done

    def open_file(self, path: str) -> CachedFd | None:
        """Reads through the file are counted when metrics are collected; callers retry failed reads by `get`."""
        if self._closed:
            raise StoreClosed(f"object store {self.url}")
        file = self._store.open_file(path)
        if file is not None and self._file_reads is None:
            self._file_reads = file.reads
            self._metrics.settle_by(self._count_file_reads)
        return file

    def _count_file_reads(self) -> None:
        calls, size = self._file_reads.pop_counts()       # type: ignore[union-attr]
        self._metrics.object_store_file_reads.inc(calls)
        self._read.inc(size)

    def head(self, path: str) -> ObjectMeta:
        return self.call("head", path, lambda left: self._store.within(left).head(path))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectMeta]:
        """The store's listing; one that fails midway is resumed after the last path returned."""
        page = _Pages(self._store, prefix, after)
        while found := self.call("list", prefix, page.next):
            yield from found

    def delete(self, paths: Sequence[str]) -> None:
        self.call("delete", paths[0] if paths else "", lambda left: self._store.within(left).delete(paths))

    def remove_leftovers(self, now_ms: int) -> int:
        return self.call("delete", "", lambda left: self._store.within(left).remove_leftovers(now_ms))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._store.close()

    def call(self, operation: str, path: str, once: Callable[[float], Result]) -> Result:
        """Calls `once(seconds left)` with retries as the options allow."""
        if self._closed:
            raise StoreClosed(f"object store {self.url}")
        pacing, retry = self._pacing, self._retry
        began, spent = pacing.monotonic(), 0.0
        for attempt in range(1, retry.attempts + 1):
            try:
                result = once(retry.deadline_ms / 1000 - spent)
            except FINAL:
                raise
            except ObjectStoreError as error:
                self._metrics.object_store_failures.labels(operation, type(error).__name__).inc()
                limit_ms = min(retry.max_delay_ms, retry.first_delay_ms << min(attempt - 1, 30))
                delay = pacing.rng.random() * limit_ms / 1000
                spent = pacing.monotonic() - began + delay
                if isinstance(error, DiskFull) and (attempt == retry.attempts or spent > FULL_DISK_SECONDS):
                    raise
                if attempt == retry.attempts or spent * 1000 >= retry.deadline_ms:
                    log.warning(Event("gave up", operation=operation, path=path, attempts=attempt, error=error))
                    raise DeadlineExceeded(path, error.reason, attempt) from error
                log.info(Event("retry", operation=operation, path=path, attempt=attempt, after=delay, error=error))
                pacing.sleep(delay)
            else:
                self._seconds[operation].observe(pacing.monotonic() - began)
                return result
        raise AssertionError("a retry loop ends inside")

    def count_written(self, size: int) -> None:
        self._written.inc(size)


class _RetriedWriter(ObjectWriter):
    """Retries the calls of `writer`; each has the deadline of one call of the store."""

    def __init__(self, store: InstrumentedObjectStore, path: str, writer: ObjectWriter):
        self._store, self._path, self._writer = store, path, writer
        self.file = writer.file

    def write(self, data: Buffer) -> None:
        def once(seconds: float) -> None:
            self._writer.seconds = seconds
            self._writer.write(data)

        self._store.call("write", self._path, once)
        self._store.count_written(memoryview(data).nbytes)

    def close(self) -> None:
        def once(seconds: float) -> None:
            self._writer.seconds = seconds
            self._writer.close()

        self._store.call("close", self._path, once)
        if self.file is not None:
            self._store.count_written(self.file.pop_appended())

    def abort(self) -> None:
        self._writer.abort()


class _Pages:
    """A listing in pages; after a failure the next page begins behind the last path returned."""

    def __init__(self, store: ObjectStore, prefix: str, after: str):
        self._store, self._prefix, self._last = store, prefix, after
        self._source: Iterator[ObjectMeta] | None = None

    def next(self, seconds: float) -> list[ObjectMeta]:
        if self._source is None:
            self._source = self._store.within(seconds).list(self._prefix, after=self._last)
        try:
            page = list(islice(self._source, LISTED_AT_ONCE))
        except ObjectStoreError:
            self._source = None
            raise
        if page:
            self._last = page[-1].path
        return page
