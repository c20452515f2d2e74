"""Where a change stream becomes a table: a view's result, or a table's own rows.

A view's input is a legal change stream and is written as it comes. A table's input are statements and a
connector's chunks; those are evaluated on the rows the table has at that moment, and what they change goes
on downstream. This executor is the only writer of its table, so the order of its input is the order of the
table's history.
"""

from __future__ import annotations

from collections.abc import Iterator

from relational.catalog.objects import ConflictBehaviour
from relational.chunk import StreamChunk
from relational.expr.evaluation import ErrorCount
from relational.table.row_checks import LONG_KEY, without_long_keys
from relational.table.state_table import StateTable
from stream.errors import InvalidStatement, StatementError, TableLoading
from stream.executor.base import Executor, ExecutorInfo, first_barrier
from stream.executor.conflict import ConflictResolver
from stream.executor.slices import slices
from stream.executor.statement import StatementEvaluator
from stream.message import STATEMENTS, Barrier, Message, Statement

TRUSTED_CONNECTOR = "its rows come from a connector that promises legal changes; a statement would break that"


class MaterializeExecutor(Executor):
    """Writes `table` and hands on its change stream.

    `conflict` is the rule by which chunks are fitted to the table; None: the input is a legal change stream
    already and is trusted; then a table that is fed by a connector takes no statements. Statements follow the
    table's own rule. `errors` counts rows of a view or index that were left out because their key is too long for the
    store (ruling R55)."""

    def __init__(
        self,
        info: ExecutorInfo,
        input: Executor,
        table: StateTable,
        conflict: ConflictBehaviour | None,
        chunk_rows: int,
    ) -> None:
        self.info = info
        self._input = input
        self._table = table
        self._chunk_rows = chunk_rows
        self._conflict = conflict
        self._is_loading = False
        self.errors = ErrorCount()
        self._read_catalog()
        catalog = table.catalog
        self._refuses_statements = (
            conflict is None and catalog.connector is not None and catalog.row_id_index is None
        )

    def execute(self) -> Iterator[Message]:
        messages = self._input.execute()
        barrier = first_barrier(messages, self.info.identity)
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
            else:
                yield message

    def _read_catalog(self) -> None:
        """What knows the columns of the table."""
        self._resolver = None if self._conflict is None else ConflictResolver(self._table, self._conflict)
        self._statements = StatementEvaluator(self._table)

    def _follow(self, barrier: Barrier) -> None:
        """From an Alter of this table on its rows have the columns of the next version; while it is loaded it takes
        no statements, and reads anew afterwards."""
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
            if lost:
                self.errors.add(lost, LONG_KEY)
            self._table.write_chunk(chunk)
            yield chunk
            return
        changes = self._resolver.resolve(chunk).chunk
        if changes is not None:
            self._table.write_chunk(changes)
            yield from self._changed(changes)

    def _run(self, statement: Statement) -> Iterator[StreamChunk]:
        """The statement's changes; its future is completed after them, so whoever waits for it finds them
        sent."""
        if not statement.result.set_running_or_notify_cancel():
            return
        try:
            if self._refuses_statements:
                raise InvalidStatement(self._table.catalog.name, TRUSTED_CONNECTOR)
            if self._is_loading:
                raise TableLoading(self._table.catalog.name)
            resolved = self._statements.run(statement)
        except StatementError as error:
            statement.result.set_exception(error)
            return
        if resolved.chunk is not None:
            yield from self._changed(resolved.chunk)
        statement.result.set_result(resolved.rows)

    def _changed(self, chunk: StreamChunk) -> Iterator[StreamChunk]:
        """What goes downstream of changes that were written: no update that changes nothing, and no huge
        chunk."""
        settled = chunk.without_unchanged_updates()
        if settled.visible_rows:
            yield from slices(settled, self._chunk_rows)
