"""Messages between executors: chunks of changes, states of groups of them, barriers, watermarks, and the DML statements
of a table.

A barrier ends epoch `epoch.prev` and opens `epoch.curr`. A mutation is carried by a barrier and takes effect with it,
everywhere at the same point of the stream. A statement is passed only from a table's DmlExecutor to its
MaterializeExecutor, which evaluates it on the current state of the table and emits the resulting changes instead; so is
the part that a block, the data changes of a transaction, has for the table. All messages are immutable, except results.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from hummock.epoch import EpochPair
    from hummock.meta.store.base import MetaOperations
    from relational.catalog.objects import TableCatalog
    from relational.chunk.data_chunk import DataChunk
    from relational.chunk.stream_chunk import StreamChunk
    from relational.chunk.vnode_map import VnodeMap
    from relational.expr.expression import Expression, Literal
    from relational.types.vnode_rule import VnodeRule


class Receiving(Protocol):
    """The receiving end of a Channel."""

    def try_recv(self) -> Message | None: ...


class JoinedSink(NamedTuple):
    """The actor of a sink into a table, the channel on which it sends, and the ids of the table's columns that its
    chunks have."""

    actor_id: int
    channel: Receiving
    column_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Add:
    """New actors begin with this barrier, their sources without reading if `is_paused`. `outputs`: upstream actor id ->
    (id, edge) of the edges that it sends on from now on, this barrier included. `loading`: as in Loading. `failed`: job
    id -> error, of the jobs that do not run because they failed. `stopped`: actors that the new ones replace, which end
    as with Stop; the new ones process nothing before these have passed this barrier. `joined`: actor of a table -> the
    sinks that write it from now on, whose first message is this barrier."""

    actors: frozenset[int]
    outputs: Mapping[int, tuple[tuple[tuple[int, ...], object], ...]] = field(default_factory=dict)
    is_paused: bool = False
    loading: frozenset[int] = frozenset()
    failed: Mapping[int, Exception] = field(default_factory=dict)
    stopped: frozenset[int] = frozenset()
    joined: Mapping[int, tuple[JoinedSink, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stop:
    """These actors end after they have passed this barrier, and nothing more is sent to them."""

    actors: frozenset[int]


@dataclass(frozen=True, slots=True)
class Alter(Stop):
    """After this barrier the rows of a table have the columns of `table`, its next version. `actors`, those that read a
    dropped column, end as with Stop."""

    table: TableCatalog


@dataclass(frozen=True, slots=True)
class Pause:
    """Sources emit no rows after this barrier; barriers and statements continue."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Sources emit rows again after this barrier."""


@dataclass(frozen=True, slots=True)
class Loading:
    """After this barrier exactly these tables accept no statements: their rows are written to the store by a bulk load.
    A table that is no longer listed reads its rows from the store again."""

    loading: frozenset[int]


Mutation: TypeAlias = Add | Stop | Alter | Pause | Resume | Loading


SKIP_ROW = "\x1fmalformed rows that RESUME allows to skip"
"""What the keys of the rows of a source's offset table begin with that hold what is left of `SkippedRows`: no name of a
split does."""


class SkippedRows(NamedTuple):
    """The next `rows` rows of a split, only malformed ones if `is_malformed`, which are left out of the table."""

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
        return actor_id in self.stopped

    @property
    def stopped(self) -> frozenset[int]:
        """The actors that end after this barrier."""
        if isinstance(self.mutation, Stop):
            return self.mutation.actors
        return self.mutation.stopped if isinstance(self.mutation, Add) else frozenset()

    def joined(self, actor_id: int) -> tuple[JoinedSink, ...]:
        """The sinks that write the table of `actor_id` from this barrier on."""
        return self.mutation.joined.get(actor_id, ()) if isinstance(self.mutation, Add) else ()

    def is_loading(self, table_id: int, was_loading: bool) -> bool:
        """Whether a table accepts no statements after this barrier."""
        if isinstance(self.mutation, (Add, Loading)) and (was_loading or table_id in self.mutation.loading):
            return table_id in self.mutation.loading
        return was_loading

    def altered(self, table_id: int) -> TableCatalog | None:
        """The version that a table has after this barrier, None if it is unchanged."""
        if isinstance(self.mutation, Alter) and self.mutation.table.id == table_id:
            return self.mutation.table
        return None


@dataclass(frozen=True, slots=True)
class Watermark:
    """No later row has a value below `value` in column `column`."""

    column: int
    value: object


@dataclass(frozen=True, slots=True)
class GroupStates:
    """States of groups in place of the rows of which they are: what an aggregation takes as if these rows came. `chunk`
    has the columns `group_by` of those rows, the number of the rows, and the states of each call, as `AggGroups` takes
    and merges them."""

    chunk: StreamChunk
    group_by: tuple[int, ...]

    @property
    def capacity(self) -> int:
        """The number of groups, with hidden ones."""
        return self.chunk.capacity

    @property
    def visible_rows(self) -> int:
        return self.chunk.visible_rows

    @property
    def nbytes(self) -> int:
        return self.chunk.nbytes

    def split_by_vnode(self, key: Sequence[int], vnode_map: VnodeMap, rule: VnodeRule) -> dict[int, GroupStates]:
        """By target, see StreamChunk; `key`: columns of the rows, which are among `group_by`."""
        columns = tuple(map(self.group_by.index, key))
        parts = self.chunk.split_by_vnode(columns, vnode_map, rule)
        return {target: GroupStates(part, self.group_by) for target, part in parts.items()}


class Wait(NamedTuple):
    """No message is available. It is passed on to the actor, which is parked until one of its channels changes or,
    where `seconds` is given, until they have passed; with 0 seconds it goes on as soon as it is its turn again."""

    seconds: float | None = None

    def sooner(self, other: Wait) -> Wait:
        """The one that ends first."""
        if self.seconds is None or other.seconds is None:
            return other if self.seconds is None else self
        return min(self, other)


WAIT = Wait()
PAUSE = Wait(0.0)
"""There is more to process: emitted between two parts of long work, for the sake of other actors. A source or merge
emits it behind each chunk, since executors above it may keep what they are given, and then no message would reach the
actor before the next barrier."""


_evaluations = itertools.count(1)


@dataclass(frozen=True, slots=True)
class EvaluatedChanges:
    """The result of evaluating a statement: the table's changes (None: none), the rows affected, and the ids of the
    changes' columns. `number` ascends in the order in which statements were evaluated."""

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
    `evaluation` is set as soon as the table has the changes, before they are sent downstream; a recovery that discards
    the table's epoch sends them again."""

    def __init__(self) -> None:
        super().__init__()
        self.returned: DataChunk | None = None
        """The values of the statement's `returning` over the rows that it stored or deleted; None: no rows. Set before
        `evaluation`."""
        self.evaluation: EvaluatedChanges | EvaluatedBlock | None = None

    def begin(self) -> bool:
        """Whether the statement should be evaluated now, that is, was not cancelled."""
        return self.running() or self.set_running_or_notify_cancel()


@dataclass(frozen=True, slots=True)
class InsertRows:
    """Insert the visible rows of `chunk`, whose columns are the table's. `result` completes with the rows affected, or
    with the error if the statement failed and changed nothing. `column_ids` are those of the table's columns when the
    statement was bound, None if they have not changed since. `operations`, called with the epoch that is committed, are
    part of the transaction that commits the rows. `returning`: expressions over the rows that were stored, whose values
    are `result.returned`."""

    statement_id: int
    chunk: StreamChunk
    column_ids: tuple[int, ...] | None = None
    result: StatementResult = field(default_factory=StatementResult, compare=False, repr=False)
    operations: Callable[[int], MetaOperations] | None = field(default=None, compare=False, repr=False)
    returning: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateRows:
    """Where `predicate` is true (None: everywhere), each assigned column gets its expression's value over the old row.
    `keys`: primary keys, of which the row must have one. `values`: those of the parameters of `predicate` and
    `assignments`, by number; statements of one text share these expressions. `result`, `column_ids` and `returning` as
    in InsertRows."""

    statement_id: int
    predicate: Expression | None
    assignments: tuple[tuple[int, Expression], ...]
    column_ids: tuple[int, ...] | None = None
    result: StatementResult = field(default_factory=StatementResult, compare=False, repr=False)
    keys: DataChunk | None = None
    returning: tuple[Expression, ...] = ()
    values: tuple[Literal, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """Delete the rows for which `predicate` is true (None: all), with one of the primary keys `keys`. `values` as in
    UpdateRows, `result` and `column_ids` as in InsertRows; `returning` is over the deleted rows."""

    statement_id: int
    predicate: Expression | None
    column_ids: tuple[int, ...] | None = None
    result: StatementResult = field(default_factory=StatementResult, compare=False, repr=False)
    keys: DataChunk | None = None
    returning: tuple[Expression, ...] = ()
    values: tuple[Literal, ...] = ()


@dataclass(frozen=True, slots=True)
class Replayed:
    """The changes of a statement that was evaluated in an epoch which a recovery discarded: the table applies them
    again. `refuse` is called if its columns can no longer hold them."""

    statement_id: int
    evaluation: EvaluatedChanges
    result: StatementResult = field(compare=False, repr=False)
    refuse: Callable[[], None] = field(compare=False, repr=False)


Statement: TypeAlias = InsertRows | UpdateRows | DeleteRows
STATEMENTS = (InsertRows, UpdateRows, DeleteRows)


class BlockPart(NamedTuple):
    """The statements of a block about one table, in their order."""

    table_id: int
    table: str
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class EvaluatedBlock:
    """What each table of a block has evaluated, by id. `number` as in EvaluatedChanges: every table of the block
    evaluates nothing between its own part and the last one."""

    parts: Mapping[int, EvaluatedChanges]
    number: int = field(default_factory=lambda: next(_evaluations))

    @property
    def rows(self) -> int:
        """The rows affected."""
        return sum(each.rows for each in self.parts.values())

    @property
    def nbytes(self) -> int:
        """Bytes of the changes."""
        return sum(each.nbytes for each in self.parts.values())


@dataclass(frozen=True, slots=True)
class Block:
    """The data changes of a transaction, which belong to one epoch: all of them take effect or, after an error, none.
    `result` completes with the rows affected, or with the first error. REQUIRES one part for each table."""

    statement_id: int
    parts: tuple[BlockPart, ...]
    result: StatementResult = field(default_factory=StatementResult, compare=False, repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows to insert."""
        statements = (each for part in self.parts for each in part.statements)
        return sum(each.chunk.nbytes for each in statements if isinstance(each, InsertRows))


class Ballot:
    """The coordinator of a block's two-phase commit: a table votes when it has evaluated its part. The block is
    accepted when all tables have accepted it, and refused after the first error. A table passes on nothing before the
    decision, and undoes its part after a refusal. `on_decided` is called, without a lock, by the thread that decides.
    Thread safe."""

    def __init__(self, block: Block, on_decided: Callable[[], None]) -> None:
        self._block = block
        self._on_decided = on_decided
        self._evaluated: dict[int, EvaluatedChanges] = {}
        self._is_accepted: bool | None = None
        self._lock = threading.Lock()

    @property
    def is_decided(self) -> bool:
        return self._is_accepted is not None

    @property
    def is_accepted(self) -> bool:
        """REQUIRES that it is decided."""
        assert self._is_accepted is not None
        return self._is_accepted

    def begin(self) -> bool:
        """Whether a part should be evaluated now: the block is not refused."""
        with self._lock:
            return self._is_accepted is None and self._block.result.begin()

    def accept(self, table_id: int, changes: EvaluatedChanges) -> None:
        """The vote of a table that has evaluated its part."""
        with self._lock:
            self._evaluated[table_id] = changes
            if self.is_decided or len(self._evaluated) < len(self._block.parts):
                return
            evaluation = EvaluatedBlock(self._evaluated)
            self._block.result.evaluation, self._is_accepted = evaluation, True
        self._block.result.set_result(evaluation.rows)
        self._on_decided()

    def refuse(self, error: Exception) -> None:
        """The vote of a table that cannot evaluate its part, which has changed nothing."""
        with self._lock:
            if self.is_decided:
                return
            self._is_accepted = False
        self._block.result.set_exception(error)
        self._on_decided()


@dataclass(frozen=True, slots=True)
class Proposed:
    """The part of a block that a table has to evaluate. The next message from the same sender is its Decision."""

    part: BlockPart
    ballot: Ballot


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether the part that was proposed last takes effect; otherwise it is undone."""

    is_accepted: bool


@dataclass(frozen=True, slots=True)
class ReplayedBlock:
    """The changes of a block that was accepted in an epoch which a recovery discarded, for each table that has any."""

    parts: tuple[tuple[int, str, Replayed], ...]


def addressed(
    message: Block | ReplayedBlock, on_decided: Callable[[], None]
) -> tuple[tuple[int, str, Proposed | Replayed], ...]:
    """What is sent for a block, with the id and name of the table that receives it."""
    if isinstance(message, ReplayedBlock):
        return message.parts
    ballot = Ballot(message, on_decided)
    return tuple((part.table_id, part.table, Proposed(part, ballot)) for part in message.parts)


Sent: TypeAlias = "Statement | Block | Replayed | ReplayedBlock"
"""What a session sends to tables."""
Message: TypeAlias = (
    "StreamChunk | GroupStates | Barrier | Watermark | Wait | Statement | Replayed | Proposed | Decision"
)
