"""The one place that retries: an object store with patience, limits and figures.

A call is tried again after any `ObjectStoreError` that may pass (not after "does not exist", "exists already"
or a wrong path), at most `attempts` times and never starting a try after `deadline_ms`. Waits are a random
share of a doubling delay, so that many clients do not return together. Corruption is never tried again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from hummock.epoch import monotonic_seconds
from hummock.errors import (
    DeadlineExceeded,
    InvalidPath,
    ObjectExists,
    ObjectNotFound,
    ObjectStoreError,
    StoreClosed,
)
from hummock.metrics import Metrics
from hummock.object_store.base import Buffer, ObjectMeta, ObjectStore
from hummock.options import RetryOptions

Result = TypeVar("Result")
LISTED_AT_ONCE = 1_000
FINAL = (ObjectNotFound, ObjectExists, InvalidPath)


@dataclass(frozen=True, slots=True)
class Pacing:
    """What retries wait by: the seconds that pass, how to wait them, and chance."""

    rng: random.Random
    monotonic: Callable[[], float] = monotonic_seconds
    sleep: Callable[[float], None] = time.sleep


class InstrumentedObjectStore(ObjectStore):
    """`store`, retried and counted. Closing it closes `store`."""

    def __init__(self, store: ObjectStore, metrics: Metrics, retry: RetryOptions, pacing: Pacing):
        self._store, self._metrics, self._retry, self._pacing = store, metrics, retry, pacing
        self._closed = False
        self._read = metrics.object_store_bytes.labels("read")
        self._written = metrics.object_store_bytes.labels("written")
        self._seconds = {operation: metrics.object_store_seconds.labels(operation)
                         for operation in ("put", "get", "head", "list", "delete")}

    @property
    def url(self) -> str:
        return self._store.url

    def put(self, path: str, data: Buffer, *, if_absent: bool = False) -> None:
        tries = 0

        def once() -> None:
            nonlocal tries
            tries += 1
            try:
                self._store.put(path, data, if_absent=if_absent)
            except ObjectExists:
                # An earlier try may have succeeded and only its answer been lost: then the bytes are ours.
                if tries == 1 or self._store.get(path) != bytes(memoryview(data)):
                    raise

        self._call("put", path, once)
        self._written.inc(memoryview(data).nbytes)

    def get(self, path: str, byte_range: range | None = None) -> bytes:
        data = self._call("get", path, lambda: self._store.get(path, byte_range))
        self._read.inc(len(data))
        return data

    def get_into(self, path: str, start: int, target: memoryview) -> int:
        done = self._call("get", path, lambda: self._store.get_into(path, start, target))
        self._read.inc(done)
        return done

    def head(self, path: str) -> ObjectMeta:
        return self._call("head", path, lambda: self._store.head(path))

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        """As the store lists; a listing that fails in its middle is taken up after the last path seen."""
        page = _Pages(self._store, prefix)
        while found := self._call("list", prefix, page.next):
            yield from found

    def delete(self, paths: Sequence[str]) -> None:
        self._call("delete", paths[0] if paths else "", lambda: self._store.delete(paths))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._store.close()

    def _call(self, operation: str, path: str, once: Callable[[], Result]) -> Result:
        if self._closed:
            raise StoreClosed(f"object store {self.url}")
        pacing, retry = self._pacing, self._retry
        began = pacing.monotonic()
        for attempt in range(1, retry.attempts + 1):
            try:
                result = once()
            except FINAL:
                raise
            except ObjectStoreError as error:
                self._metrics.object_store_failures.labels(operation, type(error).__name__).inc()
                limit_ms = min(retry.max_delay_ms, retry.first_delay_ms << min(attempt - 1, 30))
                delay = pacing.rng.random() * limit_ms / 1000
                spent = pacing.monotonic() - began
                if attempt == retry.attempts or (spent + delay) * 1000 > retry.deadline_ms:
                    raise DeadlineExceeded(path, error.reason, attempt) from error
                pacing.sleep(delay)
            else:
                self._seconds[operation].observe(pacing.monotonic() - began)
                return result
        raise AssertionError("a retry loop ends inside")



class _Pages:
    """A listing in pages; after a failure the next page begins behind the last path that was handed out."""

    def __init__(self, store: ObjectStore, prefix: str):
        self._store, self._prefix = store, prefix
        self._source: Iterator[ObjectMeta] | None = None
        self._last = ""

    def next(self) -> list[ObjectMeta]:
        if self._source is None:
            self._source = (found for found in self._store.list(self._prefix) if found.path > self._last)
        try:
            page = list(islice(self._source, LISTED_AT_ONCE))
        except ObjectStoreError:
            self._source = None
            raise
        if page:
            self._last = page[-1].path
        return page
