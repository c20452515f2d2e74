"""DetachedWorker: the actors of one job that is being created, over a store of their own, on threads of their own.

There are half as many as cores, and they and the uploads have a lower priority where the system knows priorities of
threads: the graph goes first. While the graph has a barrier to pass or an epoch to sync they begin nothing, for a short
while. (On 2 cores a second thread made a creation 10 % faster and the 99th percentile of flushes twice as long. A much
lower priority did not help: a thread that is not run keeps the interpreter's lock.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Protocol

from hummock.epoch import Epoch
from hummock.state_store import StateStore
from relational.memory_budget import MemoryBudget
from stream.actor_metrics import FragmentFigures
from stream.job_memory import OperatorMemory
from stream.job_profile import FragmentProfile
from stream.message import Barrier
from stream.options import StreamOptions
from stream.protocol import ActorSpec, CollectedEpoch
from stream.runtime.actor_pool import ActorPool
from stream.worker.actor_builder import ActorBuilder
from stream.worker.compute_node import ComputeNode
from stream.worker.state_handover import StateHandover

NICENESS = 5
STATE_WRITE_BYTES = 64 << 20


class Staging(StateStore, Protocol):
    """A store whose epochs are committed as loads; `hummock.store.staging_store`."""

    @property
    def staged_bytes(self) -> int: ...

    def settle(self, epoch: Epoch) -> None: ...


class DetachedWorker:
    """A `stream.protocol.DetachedWorker`. `store` is written, `graph` is read. `request` is called when a barrier is
    wanted, and when a part failed: the next barrier then tells how. While `yields_to()`, its actors wait a little.
    `memory`: of the state of executors."""

    def __init__(
        self,
        store: Staging,
        graph: StateStore,
        options: StreamOptions,
        threads: int,
        request: Callable[[], None],
        is_committed: Callable[[str], bool],
        handover: StateHandover,
        yields_to: Callable[[], bool],
        memory: MemoryBudget,
    ) -> None:
        self._store, self._graph = store, graph
        self.is_committed = is_committed
        self._handover = handover
        self._job_ids: set[int] = set()
        options = replace(options, state_write_bytes=min(options.state_write_bytes, STATE_WRITE_BYTES))
        builder = ActorBuilder(store, options, request, upstream=graph, handover=handover, memory=memory)
        pool = ActorPool(threads, spare=0, niceness=NICENESS, yields_to=yields_to)
        self.node = ComputeNode(store, builder, options, pool, lambda _: request(), request_barrier=request)
        self._is_closed = False

    @property
    def committed_epoch(self) -> Epoch:
        return self._graph.committed_epoch

    @property
    def staged_bytes(self) -> int:
        return self._store.staged_bytes

    def build(self, specs: Sequence[ActorSpec]) -> None:
        self._job_ids.update(spec.job_id for spec in specs)
        self.node.build(specs)

    def inject(self, barrier: Barrier, on_passed: Callable[[], None] = lambda: None) -> Future[CollectedEpoch]:
        return self.node.inject(barrier, on_passed)

    def expect(self, seconds: float) -> bool:
        return self.node.expect(seconds)

    def missing(self, epoch: int) -> tuple[int, ...]:
        return self.node.missing(epoch)

    def committed(self, epoch: int) -> None:
        self.node.committed(epoch)

    def fragments(self) -> list[FragmentFigures]:
        return self.node.fragments()

    def memory(self) -> list[OperatorMemory]:
        return self.node.memory()

    def profile(self, job_id: int, job: str, interval: Callable[[], None]) -> list[FragmentProfile]:
        return self.node.profile(job_id, job, interval)

    def settle(self, epoch: Epoch) -> None:
        self._store.settle(epoch)

    def reset(self, cause: BaseException) -> None:
        self.node.reset(cause)
        self._forget()

    def end(self, error: BaseException) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.node.close(error)
            self._store.close()

    def close(self, error: BaseException) -> None:
        self.end(error)
        self._forget()

    def _forget(self) -> None:
        for job_id in self._job_ids:
            self._handover.forget(job_id)
