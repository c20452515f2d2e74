"""The protocol between the managers and the workers: values, and one interface per direction.

The meta side only plans, a worker only runs. Neither imports the other: both import this module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from relational.types import VnodeRule
from stream.message import Barrier, SkippedRows
from stream.plan.stream_plan import MaterializeNode, SinkNode, StreamNode

if TYPE_CHECKING:
    import numpy as np

    from hummock.epoch import Epoch
    from relational.catalog.objects import TableCatalog
    from relational.chunk.stream_chunk import StreamChunk
    from relational.chunk.vnode_map import VnodeMap
    from stream.actor_metrics import FragmentFigures
    from stream.job_memory import OperatorMemory
    from stream.job_profile import FragmentProfile


class Step(StrEnum):
    """The steps of a checkpoint, in order, numbered as in CHECKPOINT.md."""

    INJECT = "inject"
    COLLECT = "collect"
    SYNC = "sync"
    COMMIT = "commit"
    COMMITTED = "committed"
    NOTIFY = "notify"


StepObserver: TypeAlias = Callable[[Step, int], None]
"""Called as `observer(step, epoch)` when a step begins for the barrier that ends `epoch`, by the thread that executes
the step. Used for statistics, and by the crash tests to end the process."""


def unobserved(step: Step, epoch: int) -> None:
    """The default observer: does nothing."""


@dataclass(frozen=True, slots=True)
class EdgeSpec:
    """How rows reach the actors of one input of a fragment.

    `edge_id`: job, fragment and input of the receivers, and the first of them. `vnode_map`: each row goes to the actor
    that owns the vnode of its columns `key` by `rule`; None: to the only actor that an upstream actor is an input of.
    `table`: the table whose rows these are, if they are those of another job; `key` are indices of its columns then."""

    edge_id: tuple[int, ...]
    key: tuple[int, ...] = ()
    vnode_map: VnodeMap | None = None
    rule: VnodeRule = VnodeRule.HASH
    table: TableCatalog | None = None


@dataclass(frozen=True, slots=True)
class InputSpec:
    """An input of an actor: the edge, and the actors that send on it."""

    edge: EdgeSpec
    upstreams: tuple[int, ...]


class FirstRows:
    """The rows with which a table is created. Its actor takes them out, so that they live no longer than necessary."""

    def __init__(self, chunk: StreamChunk) -> None:
        self._chunk: StreamChunk | None = chunk

    def take(self) -> StreamChunk | None:
        """The rows, at the first call."""
        chunk, self._chunk = self._chunk, None
        return chunk


@dataclass(frozen=True, slots=True)
class ActorSpec:
    """What a worker needs to build one actor.

    `root`: the last executor of its fragment, number `fragment` of the plan of job `table`. `inputs`: one for each leaf
    of the fragment that receives rows from actors, in pre-order. `vnodes`: uint8[vnode_count], 1 for those it owns;
    None: it is the only actor of the fragment. `error_table`: of the rows without a value. `splits`: the splits of its
    connector that it reads, None without one; `all_splits`: those of all actors of the fragment, of which there are
    `siblings`, and this one is number `number`. `is_new`: its job has not read all rows yet that its upstream tables
    already have; with `loaded_at` only the changes since that epoch are missing, because the job's tables were loaded
    with the rest, or hold what they held when the job failed. `skip`: rows of a split that it skips before it begins.
    `skippable`: malformed rows of each split that it may skip if it reads its source from the beginning.
    `is_resumed`: it reads its source once the statement that resumed its job is committed. `first_rows`: those that a
    new table inserts before all others. `writes`: the actor of the table that the actor of a sink writes.
    `is_detached`: it reads the tables of other jobs at committed epochs, apart from the graph. `partial_errors`: the
    input of its aggregation are states of groups, and these rows were counted for it where they were made; None: it is
    rows.
    """

    actor_id: int
    table: TableCatalog
    root: StreamNode
    fragment: int = 0
    inputs: tuple[InputSpec, ...] = ()
    vnodes: np.ndarray | None = field(default=None, compare=False)
    number: int = 0
    siblings: int = 1
    error_table: TableCatalog | None = None
    splits: tuple[str, ...] | None = None
    all_splits: tuple[str, ...] = ()
    since: Epoch | None = None
    is_loaded: bool = False
    skip: SkippedRows | None = None
    skippable: Mapping[str, int] = field(default_factory=dict)
    first_rows: FirstRows | None = field(default=None, compare=False)
    writes: int | None = None
    is_resumed: bool = False
    is_detached: bool = False
    partial_errors: Mapping[str, int] | None = None

    @property
    def job_id(self) -> int:
        return self.table.id

    @property
    def is_root(self) -> bool:
        """Whether its output is that of the job."""
        return isinstance(self.root, MaterializeNode | SinkNode)


@dataclass(frozen=True, slots=True)
class CollectedEpoch:
    """A barrier has passed every actor. `sstables`: at a checkpoint the files with everything up to `epoch` that no
    earlier checkpoint contains; otherwise empty. `backfilled`: actors that have read, by the end of this epoch, all
    rows that the tables they scan had before. `watermarks`: those of state tables, by id, that the commit of this
    checkpoint is to register."""

    epoch: int
    sstables: tuple[Any, ...] = ()
    backfilled: tuple[int, ...] = ()
    watermarks: Mapping[int, Any] = field(default_factory=dict)


class Worker(Protocol):
    """Runs actors. Thread safe."""

    def build(self, specs: Sequence[ActorSpec]) -> None:
        """Build and start actors, which wait for the barrier whose Add mutation names them."""
        ...

    def inject(self, barrier: Barrier, on_passed: Callable[[], None] = lambda: None) -> Future[CollectedEpoch]:
        """Send the barrier to every source. Completes when all actors have passed it and, at a checkpoint, everything
        up to epoch.prev is in the object store; or with ActorFailed. `on_passed` is called as soon as the next barrier
        would not only wait behind this one, at the latest before the result."""
        ...

    def expect(self, seconds: float) -> bool:
        """The next barrier is to come in about `seconds`, earlier than the interval says: what it would wait for should
        be small by then. False: it is anyway, and the barrier may come at once."""
        ...

    def missing(self, epoch: int) -> tuple[int, ...]:
        """Actors that have not passed the barrier that ends `epoch`, for error messages."""
        ...

    def committed(self, epoch: int) -> None:
        """Everything up to `epoch` is committed: whatever was kept in case of its loss can be released."""
        ...

    def reset(self, cause: BaseException) -> None:
        """End all actors and discard everything above the committed epoch. When it returns none of the old actors runs;
        RecoveryFailed if one of them does not end."""
        ...

    def close(self, error: BaseException) -> None:
        """Reset for the last time: every caller that waits for this worker gets `error`."""
        ...


class DetachedWorker(Worker, Protocol):
    """Runs the actors of one job that is being created, apart from the graph: its barriers are its own, with an
    `own_epoch` for each committed one, and the files of its checkpoints are committed as loads."""

    @property
    def committed_epoch(self) -> Epoch:
        """The newest epoch of the graph that was committed and can be read."""
        ...

    @property
    def staged_bytes(self) -> int:
        """What the job has written and not yet committed."""
        ...

    def is_committed(self, load_id: str) -> bool:
        """Whether a load was committed."""
        ...

    def settle(self, epoch: Epoch) -> None:
        """The load of everything up to `epoch`, one of its own, is committed."""
        ...

    def end(self, error: BaseException) -> None:
        """As `close`, but what its actors have left remains for those that continue the job in the graph, until
        `close`. REQUIRES that all is committed."""
        ...

    def fragments(self) -> Sequence[FragmentFigures]:
        """Figures of its fragments."""
        ...

    def memory(self) -> Sequence[OperatorMemory]:
        """What its executors keep in memory."""
        ...

    def profile(self, job_id: int, job: str, interval: Callable[[], None]) -> Sequence[FragmentProfile]:
        """Measures its fragments while `interval()` waits. JobNotRunning, ProfileInterrupted."""
        ...


OpenDetached: TypeAlias = "Callable[[Callable[[], None]], DetachedWorker]"
"""Opens the worker of a job, which calls the argument when a barrier is wanted, and when a part of it failed."""
