"""RunningActor: an actor of this process with its channels; and figures of those that run one fragment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import groupby
from typing import TypeAlias

from relational.memory_use import MemoryUse
from stream.executor.meter import ExecutorMeter
from stream.job_memory import OperatorMemory
from stream.job_profile import ExecutorProfile, FragmentProfile
from stream.plan.stream_plan import StreamNode
from stream.protocol import ActorSpec
from stream.runtime.actor import Actor
from stream.runtime.channel import Channel

FragmentOf: TypeAlias = tuple[int, int]
"""Job and number of a fragment."""


@dataclass(frozen=True, slots=True)
class RunningActor:
    """`inputs`: for each input of the spec one channel for each sender. `control` is the channel of barriers and
    statements of an actor without inputs, else None."""

    spec: ActorSpec
    actor: Actor
    control: Channel | None
    inputs: tuple[tuple[Channel, ...], ...]
    sinks: dict[int, Channel] = field(default_factory=dict)
    """From the sinks that write the table of this actor, by actor id."""
    written: list[Channel] = field(default_factory=list)
    """To the table that this actor of a sink writes."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        """All channels that it reads."""
        received = (channel for channels in self.inputs for channel in channels)
        return (*received, *filter(None, (self.control,)), *self.sinks.values())

    def has_barrier(self) -> bool:
        """Whether a barrier was sent to it that it has not passed: its checkpoint waits for what the actor has yet to
        process before it, and at it. Asked between any two messages, so it collects no channels."""
        passed = self.actor.passed_epoch
        if self.control is not None and self.control.last_epoch > passed:
            return True
        for channels in (*self.inputs, self.sinks.values()):
            for channel in channels:
                if channel.last_epoch > passed:
                    return True
        return False

    def close(self, cause: BaseException | None) -> None:
        """Ends the actor, also one that still waits for those that it replaces, or for room to send."""
        self.actor.may_begin = True
        for channel in (*self.channels, *self.written):
            channel.close(cause)


def by_fragment(actors: Iterable[RunningActor]) -> Iterator[tuple[FragmentOf, list[RunningActor]]]:
    """The actors of each fragment, ordered by job and number."""

    def fragment_of(each: RunningActor) -> FragmentOf:
        return each.spec.job_id, each.spec.fragment

    for key, group in groupby(sorted(actors, key=fragment_of), key=fragment_of):
        yield key, list(group)


def read_meters(actors: Iterable[RunningActor], readers: int) -> None:
    """So many readers more of the meters of these actors. REQUIRES that one thread at a time calls it."""
    for each in actors:
        for meter in each.actor.meters.values():
            meter.readers += readers


def profile_since_start(actors: Sequence[RunningActor]) -> FragmentProfile:
    """The counters of the actors of one fragment as they are now."""
    spec = actors[0].spec
    return FragmentProfile(
        spec.fragment,
        len(actors),
        tuple(executor_profiles(spec.root, [each.actor.meters for each in actors])),
        sum(each.actor.spent_cpu_seconds for each in actors),
        sum(channel.waiting_rows for each in actors for channel in each.channels),
        max((channel.fill for each in actors for channel in each.channels), default=0.0),
    )


def operator_memory(actors: Sequence[RunningActor]) -> Iterator[OperatorMemory]:
    """What the executors of one fragment keep in memory, those of all its actors together, in pre-order."""
    spec = actors[0].spec
    for position, node in enumerate(spec.root.walk()):
        executors = [each.actor.executors.get(position) for each in actors]
        operator = f"{node.identity} {node.details}".rstrip()
        for same in zip(*(each.memory() for each in executors if each is not None), strict=True):
            use = reduce(MemoryUse.__add__, (use for _, use in same))
            yield OperatorMemory(spec.job_id, spec.fragment, operator, same[0][0], use)


def profile_between(before: FragmentProfile, after: FragmentProfile) -> FragmentProfile:
    """What was counted between two profiles of the same actors, and the channels as they were at the second."""
    executors = tuple(
        replace(last, rows=last.rows - first.rows, cpu_seconds=max(0.0, last.cpu_seconds - first.cpu_seconds))
        for first, last in zip(before.executors, after.executors, strict=True)
    )
    cpu = after.cpu_seconds - before.cpu_seconds
    return replace(after, executors=executors, cpu_seconds=cpu)


def executor_profiles(
    root: StreamNode, meters: Sequence[Mapping[int, ExecutorMeter]]
) -> Iterator[ExecutorProfile]:
    """The executors of a fragment in pre-order; `meters`: of each actor, by the position of the node. A node without a
    meter is part of the executor above it."""
    nodes = list(root.walk())
    positions = {id(node): position for position, node in enumerate(nodes)}
    depths = {id(root): 0}
    for position, node in enumerate(nodes):
        depths |= {id(child): depths[id(node)] + 1 for child in node.inputs}
        own = [meter for each in meters if (meter := each.get(position)) is not None]
        below = [
            meter
            for each in meters
            for child in node.inputs
            if (meter := each.get(positions[id(child)])) is not None
        ]
        if own:
            cpu = sum(meter.cpu_seconds for meter in own) - sum(meter.cpu_seconds for meter in below)
            yield ExecutorProfile(node, depths[id(node)], sum(meter.rows for meter in own), cpu)
