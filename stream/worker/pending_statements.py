"""PendingStatements: the DML statements that are not committed yet, so that a recovery undoes none of them [R14, R22].

A statement belongs to an epoch; until that epoch is committed a recovery discards what it wrote. Each statement is
therefore kept until then, as the changes that it was evaluated to, which share the memory of the chunk that its table
wrote. After a recovery the statements of discarded epochs are sent again to the tables' new actors, before anything
else: the evaluated ones as their changes, in the order of their evaluation, then the others, in the order in which they
were sent. So an acknowledged statement stays in effect whatever failed, and a statement that is not yet acknowledged is
only delayed.

A statement that cannot be sent again is lost: its table was set aside, or its evaluation was interrupted twice. If it
was not acknowledged its caller gets StatementsLost; if it was, the next `take_lost()` names it.

Which epochs were committed is known only after the recovery has read the meta store, because the answer to the last
commit may be missing [C11]: between `suspend` and `resume` nothing is decided, and callers that have just sent a
statement wait.

A block, the data changes of a transaction, is one statement for several tables here. It was evaluated if all of them
have evaluated it, and all of them get it again, in one epoch, or none does.

A statement may bring operations of the meta store, which are part of the commit of its epoch, whichever that is in the
end [C18].
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from hummock.errors import ObjectNotFound, ObjectStoreError, SparkJobFailed
from hummock.meta.store.base import NONE, MetaOperations
from stream.errors import InvalidStatement, JobFailed, LostStatement, StatementsLost
from stream.message import Block, EvaluatedChanges, InsertRows, Replayed, ReplayedBlock, Sent, Statement

MAX_UNCOMMITTED = 100_000
"""Maximum number of uncommitted statements; the next one waits until an epoch is committed."""
MAX_BYTES = 256 << 20
"""Maximum bytes of uncommitted changes, beyond which the next statement waits too."""
MAX_INTERRUPTIONS = 2
"""Recoveries that may interrupt one statement's evaluation before the statement is assumed to be their cause. Those
that follow from a failure of the object store, or of tasks on Spark, do not count; recoveries have a limit of their
own."""
MOST_CAUSES = 16
"""Of an error that are looked at: each the `__cause__` of the one before."""
MAX_SENDING_SECONDS = 60.0
"""How long a commit waits to learn the epoch of a statement that was evaluated and whose sender has not reported it."""
REMEMBERED_RECOVERIES = 64
"""Discarded epoch intervals kept for statements that were being sent while a recovery ran."""


@dataclass(slots=True)
class Pending:
    """A statement and its table, of a block the first one. `epoch` is None until it has been sent."""

    statement: Statement | Block
    table_id: int
    table: str
    epoch: int | None = None
    interruptions: int = 0

    @property
    def is_suspect(self) -> bool:
        """Whether it is assumed to be the cause of the recoveries that interrupted it: it is not sent again."""
        return self.interruptions >= MAX_INTERRUPTIONS and self.statement.result.evaluation is None

    @property
    def tables(self) -> tuple[int, ...]:
        """The ids of all its tables."""
        statement = self.statement
        return tuple(part.table_id for part in statement.parts) if isinstance(statement, Block) else (self.table_id,)

    @property
    def lost(self) -> list[LostStatement]:
        """A block is lost for each of its tables."""
        statement = self.statement
        names = [part.table for part in statement.parts] if isinstance(statement, Block) else [self.table]
        return [LostStatement(statement.statement_id, name) for name in names]

    @property
    def operations(self) -> Callable[[int], MetaOperations] | None:
        return self.statement.operations if isinstance(self.statement, InsertRows) else None

    @property
    def is_placed(self) -> bool:
        """Whether its epoch is known if it has one: if it was evaluated."""
        return self.epoch is not None or self.statement.result.evaluation is None

    def is_of(self, epoch: int) -> bool:
        """Whether the commit of `epoch` makes its changes durable. REQUIRES that it is placed."""
        return self.epoch is not None and self.epoch <= epoch and self.statement.result.evaluation is not None

    @property
    def waiting_bytes(self) -> int:
        """Bytes that are kept until the commit."""
        statement, evaluation = self.statement, self.statement.result.evaluation
        if evaluation is not None:
            return evaluation.nbytes
        if isinstance(statement, Block):
            return statement.nbytes
        return statement.chunk.nbytes if isinstance(statement, InsertRows) else 0


class PendingStatements:
    """Thread safe."""

    def __init__(self, max_uncommitted: int = MAX_UNCOMMITTED, max_bytes: int = MAX_BYTES) -> None:
        self._max_uncommitted = max_uncommitted
        self._max_bytes = max_bytes
        self._ids = itertools.count(1)
        self._pending: dict[int, Pending] = {}
        self._bytes = 0  # of acknowledged statements
        self._acknowledged: dict[int, int] = {}  # statement id -> bytes
        self._with_operations: dict[int, Pending] = {}  # those that bring operations of the meta store
        self._discarded: deque[tuple[int, int]] = deque(maxlen=REMEMBERED_RECOVERIES)
        self._committed_epoch = 0
        self._is_suspended = False
        self._closed_by: BaseException | None = None
        self._lost: list[LostStatement] = []
        self._changed = threading.Condition()

    def next_id(self) -> int:
        """A new statement id, unique in this session."""
        return next(self._ids)

    # -- one statement ---------------------------------------------------------------------------------

    def begin(
        self,
        statement: Statement | Block,
        table_id: int,
        table: str,
        send: Callable[[Sent], int | None],
        request_commit: Callable[[], None],
        on_sent: Callable[[], None] = lambda: None,
    ) -> Callable[[], int]:
        """Sends a statement; what is returned waits until it was evaluated, and has the rows affected. `send` returns
        the epoch in which it was sent, or None if it has to be sent again, and raises JobFailed or InvalidStatement if
        the table takes none; then for a statement that was sent before a recovery the error is StatementsLost."""
        number = statement.statement_id
        pending = self.add(statement, table_id, table, request_commit)
        message: Sent | None = statement
        was_sent = False
        try:
            while message is not None:
                try:
                    epoch = send(message)
                except (JobFailed, InvalidStatement) as refusal:
                    if was_sent:
                        raise StatementsLost(pending.lost) from refusal
                    raise
                if epoch is not None:
                    was_sent = True
                    message = self.sent(number, epoch)
            on_sent()
        except Exception:
            self.forget(number)
            raise
        return lambda: self._finish(statement)

    def _finish(self, statement: Statement | Block) -> int:
        """Rows affected by a statement that was sent."""
        try:
            rows = statement.result.result()
        except Exception:
            self.forget(statement.statement_id)
            raise
        self.acknowledged(statement.statement_id)
        return rows

    def add(
        self, statement: Statement | Block, table_id: int, table: str, request_commit: Callable[[], None]
    ) -> Pending:
        """A statement is about to be sent. If too much is uncommitted, requests a commit and waits."""
        with self._changed:
            if not self._has_room():
                request_commit()
                self._changed.wait_for(lambda: self._has_room() or self._closed_by is not None)
            pending = self._pending[statement.statement_id] = Pending(statement, table_id, table)
            if pending.operations is not None:
                self._with_operations[statement.statement_id] = pending
            return pending

    def sent(self, statement_id: int, epoch: int) -> Sent | None:
        """The statement was sent in `epoch`. None, unless a recovery has discarded that epoch meanwhile: then the
        message that has to be sent again."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_suspended or self._closed_by is not None)
            pending = self._pending.get(statement_id)
            if pending is None or self._closed_by is not None:
                return None
            result = pending.statement.result
            has_failed = result.done() and result.exception() is not None
            if self._is_discarded(epoch):
                return None if has_failed else self.again(pending)
            pending.epoch = epoch
            if pending.operations is not None:
                self._changed.notify_all()
            if epoch <= self._committed_epoch:
                self._forget(statement_id)
            return None

    def acknowledged(self, statement_id: int) -> None:
        """The statement was answered: its changes are kept until the commit."""
        with self._changed:
            pending = self._pending.get(statement_id)
            if pending is not None and statement_id not in self._acknowledged:
                self._acknowledged[statement_id] = pending.waiting_bytes
                self._bytes += pending.waiting_bytes

    def forget(self, statement_id: int) -> None:
        """The statement was refused or failed: nothing of it is kept."""
        with self._changed:
            self._forget(statement_id)

    # -- epochs ----------------------------------------------------------------------------------------

    def operations(self, epoch: int) -> MetaOperations:
        """What the commit of `epoch` does for the statements that it makes durable, the failed ones excepted. Waits for
        senders of evaluated statements to report their epoch. REQUIRES that `epoch` is collected: all of its statements
        are evaluated, or failed. TimeoutError."""
        with self._changed:
            mine = self._with_operations
            if not self._changed.wait_for(lambda: all(each.is_placed for each in mine.values()), MAX_SENDING_SECONDS):
                raise TimeoutError(f"the epoch of a statement was not reported in {MAX_SENDING_SECONDS} s")
            found = [each.operations(epoch) for each in mine.values() if each.is_of(epoch) and each.operations]
        return sum(found, NONE)

    def committed(self, epoch: int) -> None:
        """Everything up to `epoch` is durable."""
        with self._changed:
            self._commit(epoch)

    def suspend(self, cause: BaseException) -> None:
        """A recovery has begun because of `cause`; `resume` tells which epochs it discards."""
        is_suspect = not _is_of_no_statement(cause)
        with self._changed:
            self._is_suspended = True
            for pending in self._pending.values():
                result = pending.statement.result
                pending.interruptions += is_suspect and result.evaluation is None and result.running()

    def resume(self, committed: int, upto: int) -> list[Pending]:
        """Epochs in (committed, upto] will never be committed. Returns their statements, in the order in which they
        must be sent again, each followed by a call of `sent`, or lost if `is_suspect`: one after the other, so that the
        caller of an unanswered statement learns its loss after `take_lost` knows those of the acknowledged ones.
        REQUIRES that no actor of those epochs runs."""
        with self._changed:
            self._discarded.append((committed, upto))
            self._commit(committed)
            undone = [each for each in self._pending.values() if each.epoch is not None and each.epoch > committed]
            again = []
            for pending in undone:
                result = pending.statement.result
                if result.done() and result.exception() is not None:
                    self._forget(pending.statement.statement_id)
                else:
                    again.append(pending)
            self._is_suspended = False
            self._changed.notify_all()
            return sorted(again, key=_order)

    def again(self, pending: Pending) -> Sent:
        """The message for the table's next actor: the changes if the statement was evaluated, else the statement."""
        statement, result = pending.statement, pending.statement.result
        if result.evaluation is None:
            return statement

        def replayed(evaluation: EvaluatedChanges) -> Replayed:
            return Replayed(statement.statement_id, evaluation, result, lambda: self.lose(pending))

        if isinstance(result.evaluation, EvaluatedChanges):
            return replayed(result.evaluation)
        assert isinstance(statement, Block)
        parts, changes = statement.parts, result.evaluation.parts
        changed = [part for part in parts if changes[part.table_id].changes is not None]
        return ReplayedBlock(tuple((each.table_id, each.table, replayed(changes[each.table_id])) for each in changed))

    def lose(self, pending: Pending, cause: BaseException | None = None) -> None:
        """The statement cannot be sent to its table any more."""
        with self._changed:
            self._lose(pending, cause)

    def close(self, error: BaseException) -> None:
        """No further epoch will be committed: statements without an answer are lost."""
        with self._changed:
            self._closed_by = error
            self._is_suspended = False
            for pending in list(self._pending.values()):
                if not pending.statement.result.done():
                    self._lose(pending, error)
            self._changed.notify_all()

    def take_lost(self) -> tuple[LostStatement, ...]:
        """Acknowledged statements that were lost since the last call, in the order sent."""
        if not self._lost:
            return ()
        with self._changed:
            lost, self._lost = tuple(sorted(self._lost)), []
            return lost

    # -- internals -------------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        return len(self._pending) < self._max_uncommitted and self._bytes < self._max_bytes

    def _commit(self, epoch: int) -> None:
        self._committed_epoch = max(self._committed_epoch, epoch)
        durable = [
            number
            for number, each in self._pending.items()
            if each.epoch is not None and each.epoch <= self._committed_epoch
        ]
        for statement_id in durable:
            self._forget(statement_id)
        self._changed.notify_all()

    def _forget(self, statement_id: int) -> None:
        self._pending.pop(statement_id, None)
        self._bytes -= self._acknowledged.pop(statement_id, 0)
        if self._with_operations.pop(statement_id, None) is not None:
            self._changed.notify_all()

    def _lose(self, pending: Pending, cause: BaseException | None = None) -> None:
        result = pending.statement.result
        if not result.done():
            error = StatementsLost(pending.lost)
            error.__cause__ = cause
            result.set_exception(error)
        elif result.exception() is None and pending.operations is None:
            self._lost += pending.lost  # others learn from the absence of what they wanted to be committed
        self._forget(pending.statement.statement_id)

    def _is_discarded(self, epoch: int) -> bool:
        return any(after < epoch <= upto for after, upto in self._discarded)


def _is_of_no_statement(error: BaseException | None) -> bool:
    """Whether a failure comes from what all statements share, so that none that was interrupted is its cause."""
    for _ in range(MOST_CAUSES):
        if error is None or isinstance(error, (ObjectStoreError, SparkJobFailed)):
            return error is not None and not isinstance(error, ObjectNotFound)
        error = error.__cause__
    return False


def _order(pending: Pending) -> tuple[bool, int]:
    """Evaluated statements by the number of their evaluation, then the others by their id."""
    evaluation = pending.statement.result.evaluation
    if evaluation is not None:
        return False, evaluation.number
    return True, pending.statement.statement_id
