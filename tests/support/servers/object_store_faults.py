"""Faults on demand: an object store whose calls fail or are delayed, and whose writes are torn.

A `FaultPlan` decides about each call. `BEFORE` fails without an effect; `AFTER` fails after the effect; `DELAY` waits;
`TORN` stores a prefix of the object and fails. Deterministic: the n-th matching call is hit, from any caller.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from enum import Enum

from hummock.errors import ObjectStoreError
from hummock.object_store.base import Buffer, ObjectMeta, ObjectStore


class FaultKind(Enum):
    BEFORE = "before"
    AFTER = "after"
    DELAY = "delay"
    TORN = "torn"


@dataclass(frozen=True, slots=True)
class Fault:
    """Hits calls number `skip`, ... `skip + times - 1` among those of `operation` on paths with `prefix`."""

    kind: FaultKind
    operation: str = ""         # "": every operation
    prefix: str = ""
    skip: int = 0
    times: int = 1
    delay_ms: int = 0


class FaultPlan:
    """Counts calls and decides which faults hit them; thread safe. `hits` counts the injected faults."""

    def __init__(self, faults: Sequence[Fault] = ()):
        self._lock = threading.Lock()
        self._faults = [(fault, [0]) for fault in faults]
        self.hits = 0
        self.calls: list[tuple[str, str]] = []      # every call seen: operation, path

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append((fault, [0]))

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def faults_for(self, operation: str, path: str) -> list[Fault]:
        with self._lock:
            self.calls.append((operation, path))
            hit = []
            for fault, seen in self._faults:
                if fault.operation in ("", operation) and path.startswith(fault.prefix):
                    if fault.skip <= seen[0] < fault.skip + fault.times:
                        hit.append(fault)
                    seen[0] += 1
            self.hits += len(hit)
            return hit

    def run(self, operation: str, path: str, call: Callable[[], object], tear: Callable[[], object],
            fail: Callable[[str], Exception], sleep: Callable[[float], None]) -> object:
        """`call()` under the faults that hit it; `fail(kind)` creates the error, `tear()` has half the effect."""
        result: object = None
        hit = self.faults_for(operation, path)
        for fault in hit:
            if fault.kind is FaultKind.DELAY:
                sleep(fault.delay_ms / 1000)
            elif fault.kind is FaultKind.BEFORE:
                raise fail("before")
            elif fault.kind is FaultKind.TORN:
                tear()
                raise fail("torn")
        result = call()
        if any(fault.kind is FaultKind.AFTER for fault in hit):
            raise fail("after")
        return result


class FaultyObjectStore(ObjectStore):
    """`store` with the faults of the plan. A torn put violates the atomicity of objects, as bad stores do.

    Its writers buffer their data and put it at close, so that faults of put hit them too.
    """

    def __init__(self, store: ObjectStore, plan: FaultPlan, sleep: Callable[[float], None] = time.sleep):
        self._store, self._plan, self._sleep = store, plan, sleep
        self.creates_exclusively = store.creates_exclusively

    @property
    def url(self) -> str:
        return self._store.url

    def put(self, path: str, data: Buffer, *, if_absent: bool = False) -> None:
        half = memoryview(data).cast("B")
        self._run("put", path, lambda: self._store.put(path, data, if_absent=if_absent),
                  lambda: self._store.put(path, half[:len(half) // 2], if_absent=if_absent))

    def get(self, path: str, byte_range: range | None = None) -> bytes:
        return self._run("get", path, lambda: self._store.get(path, byte_range))    # type: ignore[return-value]

    def head(self, path: str) -> ObjectMeta:
        return self._run("head", path, lambda: self._store.head(path))      # type: ignore[return-value]

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectMeta]:
        return self._run("list", prefix,                                    # type: ignore[return-value]
                         lambda: self._store.list(prefix, after=after))

    def delete(self, paths: Sequence[str]) -> None:
        self._run("delete", paths[0] if paths else "", lambda: self._store.delete(paths),
                  lambda: self._store.delete(paths[:len(paths) // 2]))

    def within(self, seconds: float) -> ObjectStore:
        inner = self._store.within(seconds)
        if inner is self._store:
            return self
        limited = copy(self)
        limited._store = inner
        return limited

    def close(self) -> None:
        self._store.close()

    def _run(self, operation: str, path: str, call: Callable[[], object],
             tear: Callable[[], object] = lambda: None) -> object:
        return self._plan.run(operation, path, call, tear,
                              lambda kind: ObjectStoreError(path, f"injected fault: {kind} {operation}"),
                              self._sleep)
