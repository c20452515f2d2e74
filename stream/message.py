"""What flows between executors: chunks of changes, barriers, watermarks, and the DML statements of a table.

A barrier ends epoch `epoch.prev` and opens `epoch.curr`. A mutation rides on a barrier and takes effect with
it, everywhere at the same point of the stream. A statement flows only from a table's DmlExecutor to its
MaterializeExecutor, which evaluates it on the table's own current state and puts the resulting changes in its
place. All of them are immutable; a statement's result is its only moving part.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from hummock.epoch import EpochPair
    from relational.catalog.objects import TableCatalog
    from relational.chunk.stream_chunk import StreamChunk
    from relational.expr.expression import Expression


@dataclass(frozen=True, slots=True)
class Add:
    """New actors begin with this barrier, their sources without reading if `is_paused`. `outputs`: upstream
    actor id -> channels it sends to from now on, this barrier included. `loading`: as in Loading. `failed`: of the
    jobs that do not run because they failed, by id, the error that says so."""

    actors: frozenset[int]
    outputs: Mapping[int, tuple[object, ...]] = field(default_factory=dict)
    is_paused: bool = False
    loading: frozenset[int] = frozenset()
    failed: Mapping[int, Exception] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stop:
    """These actors end after they have passed this barrier, and nobody sends to them any more."""

    actors: frozenset[int]


@dataclass(frozen=True, slots=True)
class Alter(Stop):
    """After this barrier the rows of a table have the columns of `table`, its next version. `actors` end as with Stop:
    those that read what goes."""

    table: TableCatalog


@dataclass(frozen=True, slots=True)
class Pause:
    """Sources emit no rows after this barrier; barriers and statements go on."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Sources emit rows again after this barrier."""


@dataclass(frozen=True, slots=True)
class Loading:
    """After this barrier these tables, and no others, take no statements: rows come into the store beside them. One
    that is named no more reads anew what it holds."""

    loading: frozenset[int]


Mutation: TypeAlias = Add | Stop | Alter | Pause | Resume | Loading


class SkippedRows(NamedTuple):
    """The next `rows` rows of a split, which the table shall not have; of malformed ones where `is_malformed`."""

    split: str
    rows: int
    is_malformed: bool = False


@dataclass(frozen=True, slots=True)
class Barrier:
    """Ends epoch `epoch.prev`, opens `epoch.curr`. At a checkpoint everything up to prev becomes durable."""

    epoch: EpochPair
    checkpoint: bool
    mutation: Mutation | None = None

    def stops(self, actor_id: int) -> bool:
        """Whether `actor_id` ends after this barrier."""
        return isinstance(self.mutation, Stop) and actor_id in self.mutation.actors

    def is_loading(self, table_id: int, was_loading: bool) -> bool:
        """Whether a table takes no statements after this barrier."""
        if isinstance(self.mutation, (Add, Loading)) and (was_loading or table_id in self.mutation.loading):
            return table_id in self.mutation.loading
        return was_loading

    def altered(self, table_id: int) -> TableCatalog | None:
        """The version that a table has after this barrier, None where it stays as it is."""
        if isinstance(self.mutation, Alter) and self.mutation.table.id == table_id:
            return self.mutation.table
        return None


@dataclass(frozen=True, slots=True)
class Watermark:
    """No later row has a value below `value` in column `column`."""

    column: int
    value: object


_evaluations = itertools.count(1)


@dataclass(frozen=True, slots=True)
class EvaluatedChanges:
    """What a statement was evaluated to: the table's changes (None: none), the rows affected, and the ids of the
    columns that the changes have. `number` ascends in the order in which statements were evaluated."""

    changes: StreamChunk | None
    rows: int
    column_ids: tuple[int, ...]
    number: int = field(default_factory=lambda: next(_evaluations))

    @property
    def nbytes(self) -> int:
        """Bytes of the changes."""
        return 0 if self.changes is None else self.changes.nbytes


class StatementResult(Future):
    """Completes with the rows affected, or with the error of a statement that failed and changed nothing.
    `evaluation` is there as soon as the table has the changes, before anybody downstream has seen them; a recovery
    that discards the table's epoch sends them again."""

    def __init__(self) -> None:
        super().__init__()
        self.evaluation: EvaluatedChanges | None = None

    def begin(self) -> bool:
        """Whether the statement is to be evaluated now: it was not cancelled."""
        return self.running() or self.set_running_or_notify_cancel()


@dataclass(frozen=True, slots=True)
class InsertRows:
    """Insert the visible rows of `chunk`, whose columns are the table's. `result` completes with the rows
    affected, or with the error when the statement failed and changed nothing. `column_ids` are those of the table's
    columns when the statement was bound, None where it has had no others."""

    statement_id: int
    chunk: StreamChunk
    column_ids: tuple[int, ...] | None = None
    result: StatementResult = field(default_factory=StatementResult, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class UpdateRows:
    """Where `predicate` is true (None: everywhere), each column becomes its expression's value over the old
    row. `result` and `column_ids` as in InsertRows."""

    statement_id: int
    predicate: Expression | None
    assignments: tuple[tuple[int, Expression], ...]
    column_ids: tuple[int, ...] | None = None
    result: StatementResult = field(default_factory=StatementResult, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """Delete the rows for which `predicate` is true (None: all). `result` and `column_ids` as in InsertRows."""

    statement_id: int
    predicate: Expression | None
    column_ids: tuple[int, ...] | None = None
    result: StatementResult = field(default_factory=StatementResult, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Replayed:
    """The changes of a statement that was evaluated in an epoch which a recovery has discarded: the table gets them
    again. `refuse` is called where its columns can no longer hold them."""

    statement_id: int
    evaluation: EvaluatedChanges
    result: StatementResult = field(compare=False, repr=False)
    refuse: Callable[[], None] = field(compare=False, repr=False)


Statement: TypeAlias = InsertRows | UpdateRows | DeleteRows
STATEMENTS = (InsertRows, UpdateRows, DeleteRows)

Message: TypeAlias = "StreamChunk | Barrier | Watermark | Statement | Replayed"
