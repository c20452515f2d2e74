"""Writes a change stream to a table: the result of a view, or the rows of a table.

The input of a view is a legal change stream and is written unchanged. The input of a table are statements and the
chunks of a connector; they are evaluated on the current rows of the table, and the resulting changes are sent
downstream. This executor is the only writer of its table, so the order of its input is the order of the table's
history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np

from relational.catalog.objects import ConflictBehaviour
from relational.chunk import Op, StreamChunk
from relational.errors import DamagedRow
from relational.expr.eval_context import ErrorCounts
from relational.table.row_checks import LONG_KEY, without_long_keys
from relational.table.state_table import StateTable
from stream.errors import InvalidStatement, StatementError, TableLoading
from stream.executor.base import Executor, ExecutorInfo, first_barrier, slices
from stream.executor.conflict import ConflictResolver
from stream.executor.schema_change import fitted_changes
from stream.executor.statement import StatementEvaluator, inverse
from stream.message import STATEMENTS, Barrier, Decision, EvaluatedChanges, Message, Proposed, Replayed, Statement

TRUSTED_CONNECTOR = "its rows come from a connector that promises legal changes; a statement would break that"


class MaterializeExecutor(Executor):
    """Writes `table` and emits its change stream.

    `conflict` is the rule by which chunks are fitted to the table; None: the input is trusted to be a legal change
    stream; then a table that is fed by a connector accepts no statements. Statements follow the table's own rule. Rows
    of a view or index that are dropped because their key is too long for the store are counted in `errors` [R55].
    `has_readers()`: whether other jobs read the output."""

    def __init__(
        self,
        info: ExecutorInfo,
        input: Executor,
        table: StateTable,
        conflict: ConflictBehaviour | None,
        chunk_rows: int,
        errors: ErrorCounts | None = None,
        has_readers: Callable[[], bool] = lambda: True,
    ) -> None:
        self.info = info
        self._input = input
        self._table = table
        self._chunk_rows = chunk_rows
        self._conflict = conflict
        self._is_loading = False
        self._proposed: StreamChunk | None = None  # written, and not yet passed on
        self._has_readers = has_readers
        self._errors = ErrorCounts() if errors is None else errors
        self._read_catalog()
        catalog = table.catalog
        self._refuses_statements = (
            conflict is None and catalog.connector is not None and catalog.row_id_index is None
        )

    def execute(self) -> Iterator[Message]:
        messages = self._input.execute()
        barrier = yield from first_barrier(messages, self.info.identity)
        self._table.init_epoch(barrier.epoch)
        self._follow(barrier)
        yield barrier
        for message in messages:
            if isinstance(message, Barrier):
                self._table.commit(message.epoch)
                self._follow(message)
                yield message
            elif isinstance(message, StreamChunk):
                yield from self._write(message)
            elif isinstance(message, STATEMENTS):
                yield from self._run(message)
            elif isinstance(message, Proposed):
                self._propose(message)
            elif isinstance(message, Decision):
                yield from self._decide(message)
            elif isinstance(message, Replayed):
                yield from self._run_again(message)
            else:
                yield message

    def _read_catalog(self) -> None:
        """Create everything that depends on the columns of the table."""
        self._resolver = None if self._conflict is None else ConflictResolver(self._table, self._conflict)
        self._statements = StatementEvaluator(self._table, self._has_readers)

    def _follow(self, barrier: Barrier) -> None:
        """Apply the barrier's mutation: from an Alter of this table on, rows have the columns of the next version; a
        table under bulk load accepts no statements, and reads its rows from the store again afterwards."""
        was_loading = self._is_loading
        self._is_loading = barrier.is_loading(self._table.catalog.id, was_loading)
        if was_loading and not self._is_loading:
            self._table.forget_rows()
        altered = barrier.altered(self._table.catalog.id)
        if altered is not None:
            self._table.update_catalog(altered)
            self._read_catalog()

    def _write(self, chunk: StreamChunk) -> Iterator[StreamChunk]:
        if self._resolver is None:
            catalog = self._table.catalog
            chunk, lost = without_long_keys(chunk, catalog.pk_indices, catalog)
            self._errors.add(LONG_KEY, lost)
            self._table.write_chunk(chunk)
            yield chunk
            return
        changes = self._resolver.resolve(chunk).chunk
        if changes is not None:
            self._table.write_chunk(changes)
            yield from self._changed(changes)

    def _run(self, statement: Statement) -> Iterator[StreamChunk]:
        """The statement's changes; its future is completed after they were sent downstream."""
        if not statement.result.begin():
            return
        try:
            self._check_takes_statements()
            resolved = self._statements.run(statement)
        except StatementError as error:
            statement.result.set_exception(error)
            return
        statement.result.evaluation = EvaluatedChanges(resolved.chunk, resolved.rows, self._table.catalog.column_ids)
        if resolved.chunk is not None:
            yield from self._changed(resolved.chunk)
        statement.result.set_result(resolved.rows)

    def _check_takes_statements(self) -> None:
        if self._refuses_statements:
            raise InvalidStatement(self._table.catalog.name, TRUSTED_CONNECTOR)
        if self._is_loading:
            raise TableLoading(self._table.catalog.name)

    def _propose(self, proposed: Proposed) -> None:
        """Evaluates and writes the part of a block."""
        if not proposed.ballot.begin():
            return
        try:
            self._check_takes_statements()
            resolved = self._statements.run_all(proposed.part.statements)
        except StatementError as error:
            proposed.ballot.refuse(error)
            return
        self._proposed = resolved.chunk
        changes = EvaluatedChanges(resolved.chunk, resolved.rows, self._table.catalog.column_ids)
        proposed.ballot.accept(proposed.part.table_id, changes)

    def _decide(self, decision: Decision) -> Iterator[StreamChunk]:
        changes, self._proposed = self._proposed, None
        if changes is None:
            return
        if decision.is_accepted:
            yield from self._changed(changes)
        else:
            self._table.write_chunk(inverse(changes))

    def _run_again(self, replayed: Replayed) -> Iterator[StreamChunk]:
        """The changes of a statement whose epoch a recovery discarded. They are applied after all statements that were
        evaluated before them, so the table has the rows that they delete, except those that a sink wrote in between:
        changes of these come again later, as if the sink had sent them after the statement."""
        evaluation, result = replayed.evaluation, replayed.result
        if evaluation.changes is not None:
            changes = fitted_changes(evaluation, self._table.catalog)
            if changes is None:
                replayed.refuse()
                return
            yield from self._write_again(changes)
        if not result.done():
            result.set_result(evaluation.rows)

    def _write_again(self, changes: StreamChunk) -> Iterator[StreamChunk]:
        """Writes the changes of a statement, fitted to the rows that the table has. A key that it inserted into a table
        whose rows expire was free then, although the row before it may still be there at the epoch that is read now:
        that row is replaced, and not retracted, as it would not have been."""
        catalog = self._table.catalog
        if catalog.ttl_ms and not catalog.inserts_new_keys:
            self._table.write_chunk(changes.with_ops(np.full(changes.capacity, Op.UPDATE_INSERT, np.uint8)))
            yield from self._changed(changes)
            return
        conflict = ConflictBehaviour.IGNORE if catalog.is_append_only else ConflictBehaviour.OVERWRITE
        resolved: StreamChunk | None = changes
        with suppress(DamagedRow):  # which only a deletion of its key touches
            resolved = ConflictResolver(self._table, conflict).resolve(changes).chunk
        if resolved is not None:
            self._table.write_chunk(resolved)
            yield from self._changed(resolved)

    def _changed(self, chunk: StreamChunk) -> Iterator[StreamChunk]:
        """The output for changes that were written: without unchanged updates, in slices of bounded size."""
        settled = chunk.without_unchanged_updates()
        if settled.visible_rows:
            yield from slices(settled, self._chunk_rows)
