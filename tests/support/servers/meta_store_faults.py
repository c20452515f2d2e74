"""A meta store that fails on demand, by the same plans as a faulty object store.

A transaction with a fault before its effect raises `MetaStoreError`. One with a fault after its effect raises
`OutcomeUnknown`, and so does a torn one, which has no effect: a caller cannot distinguish the two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hummock.errors import MetaStoreError, OutcomeUnknown
from hummock.meta.store.base import MetaOperations, MetaStore
from tests.support.servers.object_store_faults import FaultPlan


class FaultyMetaStore(MetaStore):
    """`store` with the faults of the plan. Operations are `get`, `list` and `transaction`; the path of a
    transaction is the first key that it puts.
    """

    def __init__(self, store: MetaStore, plan: FaultPlan, sleep: Callable[[float], None] = time.sleep):
        self._store, self._plan, self._sleep = store, plan, sleep

    @property
    def url(self) -> str:
        return self._store.url

    def get(self, key: str) -> bytes | None:
        return self._run("get", key, lambda: self._store.get(key))          # type: ignore[return-value]

    def list(self, prefix: str) -> list[tuple[str, bytes]]:
        return self._run("list", prefix, lambda: self._store.list(prefix))  # type: ignore[return-value]

    def transaction(self, operations: MetaOperations) -> None:
        path = next(iter(operations.put), "")
        self._run("transaction", path, lambda: self._store.transaction(operations))

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        with self._store.one_moment():
            yield

    def now_ms(self) -> int:
        return self._store.now_ms()

    def close(self) -> None:
        self._store.close()

    def _run(self, operation: str, path: str, call: Callable[[], object]) -> object:
        def fail(kind: str) -> MetaStoreError:
            unknown = operation == "transaction" and kind != "before"
            return (OutcomeUnknown if unknown else MetaStoreError)(f"injected fault: {kind} {operation}")

        return self._plan.run(operation, path, call, lambda: None, fail, self._sleep)
