"""Faults of a simulated graph within the process: jobs whose actors fail, and backfills that are held."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stream.executor.backfill_pace import BackfillPace
from stream.message import Message
from stream.plan.stream_plan import StreamScanNode
from stream.protocol import ActorSpec
from stream.runtime.actor import Actor
from stream.spark.epoch_run import EpochRun
from stream.spark.stages import FIRST_VIRTUAL_ACTOR
from stream.worker.actor_builder import ActorBuilder

_broken: set[str] = set()
_is_held = False


class BrokenJob(Exception):
    """The injected error of an actor."""


def break_job(name: str) -> None:
    """The actors of a job fail at their next messages."""
    _broken.add(name)


def mend_job(name: str) -> None:
    _broken.discard(name)


def hold_backfills() -> None:
    """New jobs read no existing rows, until they are released."""
    global _is_held
    _is_held = True


def release_backfills() -> None:
    """REQUIRES a barrier afterwards, by which the jobs notice."""
    global _is_held
    _is_held = False


def heal() -> None:
    """There is no fault any more."""
    _broken.clear()
    release_backfills()


def _failing(messages: Iterator[Message], name: str) -> Iterator[Message]:
    for message in messages:
        if name in _broken:
            raise BrokenJob(f"an actor of {name} fails")
        yield message


@contextmanager
def installed() -> Iterator[None]:
    """The faults are possible inside."""
    build, may_read, has_work = ActorBuilder.build, BackfillPace.may_read, EpochRun._has_work

    def built(self: ActorBuilder, spec: ActorSpec, *arguments: object) -> Actor:
        actor = build(self, spec, *arguments)  # type: ignore[arg-type]
        if spec.actor_id < FIRST_VIRTUAL_ACTOR:
            actor._messages = _failing(actor._messages, spec.table.name)
        if _is_held and self.is_for_one_epoch and any(isinstance(node, StreamScanNode) for node in spec.root.walk()):
            self.on_idle(spec.actor_id, 0)  # else its task waits until the time of an epoch is over
        return actor

    ActorBuilder.build = built  # type: ignore[method-assign,assignment]
    BackfillPace.may_read = lambda self: not _is_held and may_read(self)  # type: ignore[method-assign]
    EpochRun._has_work = lambda self, graph, segment: (  # type: ignore[method-assign]
        has_work(self, graph, segment) or any(spec.table.name in _broken for spec in segment.specs))
    try:
        yield
    finally:
        ActorBuilder.build, BackfillPace.may_read = build, may_read  # type: ignore[method-assign]
        EpochRun._has_work = has_work  # type: ignore[method-assign]
