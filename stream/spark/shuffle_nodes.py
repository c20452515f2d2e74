"""The ends of an exchange between two tasks: executors that read and write shuffle files.

Within a task rows pass between actors by channels. What arrives from tasks of an earlier stage is read by an actor of
its own, which sends it on as if the sender were in this task; what goes to tasks of a later stage is received by an
actor that writes it. So the executors of fragments do not know where the other side of an exchange is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hummock.object_store.base import ObjectStore
from relational.chunk import StreamChunk
from relational.expr import ErrorCounts
from stream.executor.base import Executor, ExecutorInfo, first_barrier, received
from stream.executor.partial_agg import PartialAggExecutor
from stream.message import Barrier, GroupStates, Message, Wait, Watermark
from stream.plan.stream_plan import PartialAggNode, StreamNode
from stream.runtime.channel import Channel
from stream.spark.shuffle_files import (
    EMPTY_PART,
    Partitioning,
    ShuffleBlock,
    ShuffleFile,
    ShufflePart,
    ShuffleWriter,
    read_blocks,
    write_parts,
)
from stream.worker.actor_builder import BuilderFunctions

PARTIAL_BYTES = 64 << 20
"""Of the groups of one partial aggregation."""


@dataclass(frozen=True, slots=True)
class ShuffleReadNode(StreamNode):
    """Emits the changes of `blocks`, in their order, and then the watermarks `marks`, by column. `group_by`: they are
    states of groups by these columns of the rows; None: they are rows."""

    blocks: tuple[ShuffleBlock, ...] = ()
    marks: Mapping[int, Any] = field(default_factory=dict)
    group_by: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ShuffleWriteNode(StreamNode):
    """Writes its input, of a partial aggregation the states, for the tasks that receive edge number `edge`. Its columns
    and those of `partitioning` are those of what is written."""

    input: StreamNode
    edge: int
    partitioning: Partitioning

    @property
    def partial(self) -> PartialAggNode | None:
        """What makes groups of the rows; None: rows are written."""
        return self.input if isinstance(self.input, PartialAggNode) else None

    @property
    def inputs(self) -> tuple[StreamNode, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class SentEdge:
    """What a task sent on an edge: changes, or states of groups, and the last watermark of each column. Of states also
    the number of changes in them, and `errors`: of them that have no value, by reason."""

    part: ShufflePart = EMPTY_PART
    marks: Mapping[int, Any] = field(default_factory=dict)
    combined_rows: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)


class ShuffleEnds:
    """The shuffle executors of one task, over one shuffle file."""

    def __init__(self, objects: ObjectStore, file: ShuffleFile) -> None:
        self._objects, self._file = objects, file
        self._writers: dict[int, _ShuffleWriteExecutor] = {}
        self._partials: dict[int, PartialAggExecutor] = {}

    @property
    def builders(self) -> BuilderFunctions:
        """How an ActorBuilder builds the nodes of this module."""
        return {ShuffleReadNode: self._reader, ShuffleWriteNode: self._writer, PartialAggNode: self._partial}

    def finish(self) -> dict[int, SentEdge]:
        """What was sent, by edge, readable. REQUIRES that all writers have passed their last barrier."""
        parts = write_parts(self._file, [each.writer for each in self._writers.values()])
        found = {}
        for part, (edge, each) in zip(parts, self._writers.items(), strict=True):
            partial = self._partials.get(edge)
            found[edge] = SentEdge(part, dict(each.marks))
            if partial is not None:
                found[edge] = replace(found[edge], combined_rows=partial.rows, errors=partial.errors.take())
        return found

    def _reader(self, chain: Any, node: ShuffleReadNode, info: ExecutorInfo) -> Executor:
        def read() -> Iterator[StreamChunk]:
            return read_blocks(node.blocks, node.schema, self._objects)

        return _ShuffleReadExecutor(info, chain.head_channel(), read, node.marks, node.group_by)

    def _writer(self, chain: Any, node: ShuffleWriteNode, info: ExecutorInfo) -> Executor:
        writer = ShuffleWriter(self._file, node.schema, node.partitioning)
        group_by = None if node.partial is None else node.partial.group_by
        executor = self._writers[node.edge] = _ShuffleWriteExecutor(info, chain.build(node.input), writer, group_by)
        return executor

    def _partial(self, chain: Any, node: PartialAggNode, info: ExecutorInfo) -> Executor:
        input = chain.build(node.input)
        executor = PartialAggExecutor(
            info, input, node.group_by, node.calls, node.state_table, ErrorCounts(), cache_bytes=PARTIAL_BYTES,
            chunk_rows=chain.options.chunk_rows, reduction=None)
        self._partials[chain.spec.root.edge] = executor
        return executor


class _ShuffleReadExecutor(Executor):
    """The barriers of `control`, after the first one what `read()` yields and `marks`; if these are of groups by
    `group_by`, as states and for the columns of the rows."""

    def __init__(
        self,
        info: ExecutorInfo,
        control: Channel,
        read: Callable[[], Iterator[StreamChunk]],
        marks: Mapping[int, Any],
        group_by: tuple[int, ...] | None,
    ) -> None:
        self.info = info
        self._control, self._read, self._marks, self._group_by = control, read, marks, group_by

    def execute(self) -> Iterator[Message]:
        messages = received(self._control)
        yield (yield from first_barrier(messages, self.info.identity))
        group_by = self._group_by
        yield from self._read() if group_by is None else (GroupStates(states, group_by) for states in self._read())
        for column, value in self._marks.items():
            yield Watermark(column if group_by is None else group_by[column], value)
        yield from messages


class _ShuffleWriteExecutor(Executor):
    """Writes the changes of `input`, or its states of groups by `group_by`; passes on its barriers."""

    def __init__(
        self, info: ExecutorInfo, input: Executor, writer: ShuffleWriter, group_by: tuple[int, ...] | None
    ) -> None:
        self.info = info
        self._input, self.writer, self._group_by = input, writer, group_by
        self.marks: dict[int, Any] = {}
        """The last watermark of each column that is written."""

    def execute(self) -> Iterator[Message]:
        for message in self._input.execute():
            if isinstance(message, StreamChunk):
                self.writer.add(message)
            elif isinstance(message, GroupStates):
                self.writer.add(message.chunk)
            elif isinstance(message, Watermark):
                column = message.column if self._group_by is None else self._group_by.index(message.column)
                self.marks[column] = message.value
            elif isinstance(message, (Barrier, Wait)):
                yield message
