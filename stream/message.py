"""What flows between executors: chunks of changes, barriers, watermarks, and the DML statements of a table.

A barrier ends epoch `epoch.prev` and opens `epoch.curr`. A mutation rides on a barrier and takes effect with
it, everywhere at the same point of the stream. A statement flows only from a table's DmlExecutor to its
MaterializeExecutor, which evaluates it on the table's own current state and puts the resulting changes in its
place. All of them are immutable; a statement's future is its only moving part.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from hummock.epoch import EpochPair
    from relational.chunk.stream_chunk import StreamChunk
    from relational.expr.expression import Expression


@dataclass(frozen=True, slots=True)
class Add:
    """New actors begin with this barrier, their sources without reading if `is_paused`. `outputs`: upstream
    actor id -> channels it sends to from now on, this barrier included."""

    actors: frozenset[int]
    outputs: Mapping[int, tuple[object, ...]] = field(default_factory=dict)
    is_paused: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """These actors end after they have passed this barrier, and nobody sends to them any more."""

    actors: frozenset[int]


@dataclass(frozen=True, slots=True)
class Pause:
    """Sources emit no rows after this barrier; barriers and statements go on."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Sources emit rows again after this barrier."""


Mutation: TypeAlias = Add | Stop | Pause | Resume


@dataclass(frozen=True, slots=True)
class Barrier:
    """Ends epoch `epoch.prev`, opens `epoch.curr`. At a checkpoint everything up to prev becomes durable."""

    epoch: EpochPair
    checkpoint: bool
    mutation: Mutation | None = None

    def stops(self, actor_id: int) -> bool:
        """Whether `actor_id` ends after this barrier."""
        return isinstance(self.mutation, Stop) and actor_id in self.mutation.actors


@dataclass(frozen=True, slots=True)
class Watermark:
    """No later row has a value below `value` in column `column`."""

    column: int
    value: object


@dataclass(frozen=True, slots=True)
class InsertRows:
    """Insert the visible rows of `chunk`, whose columns are the table's. `result` completes with the rows
    affected, or with the error when the statement failed and changed nothing."""

    statement_id: int
    chunk: StreamChunk
    result: Future[int] = field(default_factory=Future, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class UpdateRows:
    """Where `predicate` is true (None: everywhere), each column becomes its expression's value over the old
    row. `result` as in InsertRows."""

    statement_id: int
    predicate: Expression | None
    assignments: tuple[tuple[int, Expression], ...]
    result: Future[int] = field(default_factory=Future, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """Delete the rows for which `predicate` is true (None: all). `result` as in InsertRows."""

    statement_id: int
    predicate: Expression | None
    result: Future[int] = field(default_factory=Future, compare=False, repr=False)


Statement: TypeAlias = InsertRows | UpdateRows | DeleteRows
STATEMENTS = (InsertRows, UpdateRows, DeleteRows)

Message: TypeAlias = "StreamChunk | Barrier | Watermark | Statement"
