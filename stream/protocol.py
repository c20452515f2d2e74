"""The protocol between the managers and the workers: values, and one interface per direction.

The meta side only plans, a worker only runs. Neither imports the other: both import this module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from stream.message import Barrier, SkippedRows

if TYPE_CHECKING:
    from hummock.epoch import Epoch
    from stream.plan.stream_plan import MaterializeNode, SinkNode


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
class ActorSpec:
    """What a worker needs to build one actor.

    `root`: the last executor of its chain. `upstreams`: the actors whose changes it reads, in the order of its plan's
    scans. `splits`: the splits of its connector that it reads, None without one. `is_new`: its job is not committed
    yet, so it also reads the rows that its upstream tables already have; with `loaded_at` only the changes since that
    epoch, because the job's tables were loaded with the rest, or hold what they held when the job failed. `skip`: rows
    of a split that it skips before it begins.
    """

    actor_id: int
    job_id: int
    root: MaterializeNode | SinkNode
    upstreams: tuple[int, ...] = ()
    splits: tuple[str, ...] | None = None
    is_new: bool = False
    loaded_at: Epoch | None = None
    skip: SkippedRows | None = None


@dataclass(frozen=True, slots=True)
class CollectedEpoch:
    """A barrier has passed every actor. `sstables`: at a checkpoint the files with everything up to `epoch` that no
    earlier checkpoint contains; otherwise empty."""

    epoch: int
    sstables: tuple[Any, ...] = ()


class Worker(Protocol):
    """Runs actors. Thread safe."""

    def build(self, specs: Sequence[ActorSpec]) -> None:
        """Build and start actors, which wait for the barrier whose Add mutation names them."""
        ...

    def inject(self, barrier: Barrier) -> Future[CollectedEpoch]:
        """Send the barrier to every source. Completes when all actors have passed it and, at a checkpoint, everything
        up to epoch.prev is in the object store; or with ActorFailed."""
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
