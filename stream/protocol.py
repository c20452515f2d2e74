"""What the managers and the workers say to each other: values, and one protocol per direction.

The meta side plans and never runs; a worker runs and never plans. Neither imports the other: both import
this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from stream.message import Barrier, SkippedRows

if TYPE_CHECKING:
    from hummock.epoch import Epoch
    from stream.plan.stream_plan import MaterializeNode


class Step(StrEnum):
    """The steps of a checkpoint, in order, numbered as in CHECKPOINT.md."""

    INJECT = "inject"
    COLLECT = "collect"
    SYNC = "sync"
    COMMIT = "commit"
    COMMITTED = "committed"
    NOTIFY = "notify"


StepObserver: TypeAlias = Callable[[Step, int], None]
"""Called as `observer(step, epoch)` when a step begins for the barrier that ends `epoch`, from the thread
that does the step. Statistics listen to it; the crash tests end the process in it."""


def unobserved(step: Step, epoch: int) -> None:
    """The observer of those who do not look."""


@dataclass(frozen=True, slots=True)
class ActorSpec:
    """What a worker needs to build one actor. `root` is the last executor of its chain; `upstreams` are
    the actors whose changes it reads, in the order of its plan's scans; `splits` what it reads of its
    connector. `is_new`: its job is not committed yet, so what stands in the tables it reads has to be read as
    well; of it only what has changed since `loaded_at` where the job's tables were loaded with the rest, or hold what
    they held when the job failed. `skip`: rows of a split that it passes over before it begins."""

    actor_id: int
    job_id: int
    root: MaterializeNode
    upstreams: tuple[int, ...] = ()
    splits: tuple[str, ...] = ()
    is_new: bool = False
    loaded_at: Epoch | None = None
    skip: SkippedRows | None = None


@dataclass(frozen=True, slots=True)
class CollectedEpoch:
    """A barrier has passed every actor. `sstables`: at a checkpoint the files that hold everything up to
    `epoch` that no earlier checkpoint held; empty otherwise."""

    epoch: int
    sstables: tuple[Any, ...] = ()


class Worker(Protocol):
    """Who runs actors. Thread safe."""

    def build(self, specs: Sequence[ActorSpec]) -> None:
        """Build and start actors; they wait for the barrier whose Add mutation names them."""
        ...

    def inject(self, barrier: Barrier) -> Future[CollectedEpoch]:
        """Send the barrier into every source. The result comes when all actors have passed it and, at a
        checkpoint, everything up to epoch.prev is in the object store; or ActorFailed."""
        ...

    def missing(self, epoch: int) -> tuple[int, ...]:
        """Actors that have not passed the barrier that ends `epoch`, for an error's evidence."""
        ...

    def committed(self, epoch: int) -> None:
        """Everything up to `epoch` is committed: what was kept for the case of its loss may go."""
        ...

    def reset(self, cause: BaseException) -> None:
        """End all actors and forget everything above the committed epoch. Nothing of the old actors runs
        any more when it returns; RecoveryFailed if one of them does not end."""
        ...

    def close(self, error: BaseException) -> None:
        """Reset for good: whoever waits for this worker gets `error`."""
        ...
