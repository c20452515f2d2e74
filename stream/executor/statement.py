"""DML statements, evaluated on the current state of their table [R14].

A statement sees the effects of all statements before it. It is evaluated completely, and its rows are checked against
the table's constraints and limits, before it writes anything, so a statement that fails has changed nothing. Its result
is a chunk of changes with the number of rows affected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from relational.catalog.objects import RowFormat
from relational.chunk import DataChunk, Op, StreamChunk
from relational.errors import DamagedRow, EncodingError, EvaluationError, InvalidValue, shortened
from relational.expr.eval import evaluate
from relational.expr.expression import input_columns
from relational.table.row_checks import RowChecks
from relational.table.state_table import StateTable
from stream.errors import AppendOnlyViolation, InvalidStatement
from stream.executor.change_plan import ChangePlan, ChangePlans
from stream.executor.conflict import ConflictResolver, Resolved
from stream.message import DeleteRows, InsertRows, Statement, UpdateRows

NOTHING = Resolved(None, 0)
PART_ROWS = 262_144
"""Rows of an INSERT whose keys are looked up at once: the memory for that is a multiple of the rows."""


class StatementEvaluator:
    """Evaluates statements against `table` and writes the changes of successful ones to its mem table. `has_readers()`:
    whether other jobs receive the changes."""

    def __init__(self, table: StateTable, has_readers: Callable[[], bool]) -> None:
        self._table = table
        self._has_readers = has_readers
        self._resolver = ConflictResolver(table, table.catalog.conflict)
        self._has_row_ids = table.catalog.row_id_index is not None
        self._name = table.catalog.name
        self._pk = table.catalog.pk_indices
        self._checks = RowChecks(table.catalog)
        self._plans = ChangePlans(table.catalog)

    def run(self, statement: Statement) -> Resolved:
        """The changes, which were written to the table. StatementError: none of them was written."""
        try:
            resolved = self._changed(statement)
            if statement.returning and resolved.chunk is not None:
                try:
                    statement.result.returned = _returned(statement, resolved.chunk)
                except Exception:
                    self._undo([resolved.chunk])
                    raise
            return resolved
        except (EncodingError, EvaluationError, OverflowError, pa.ArrowException) as error:
            raise InvalidStatement(self._name, shortened(str(error), 1_000)) from error

    def _changed(self, statement: Statement) -> Resolved:
        if isinstance(statement, InsertRows):
            return self._insert(statement.chunk)
        self._check_may_change("UPDATE" if isinstance(statement, UpdateRows) else "DELETE")
        return self._update(statement) if isinstance(statement, UpdateRows) else self._delete(statement)

    def run_all(self, statements: Iterable[Statement]) -> Resolved:
        """The changes of all statements, in order. StatementError: none of them is left in the table."""
        return self._together(map(self.run, statements))

    def _together(self, parts: Iterable[Resolved]) -> Resolved:
        """All of the changes, which are written as they are asked for; after an error none of them is left."""
        written: list[StreamChunk] = []
        rows = 0
        try:
            for resolved in parts:
                rows += resolved.rows
                if resolved.chunk is not None:
                    written.append(resolved.chunk)
        except Exception:
            self._undo(written)
            raise
        return Resolved(StreamChunk.concat(written) if written else None, rows)

    def _undo(self, written: Sequence[StreamChunk]) -> None:
        for part in reversed(written):
            self._table.write_chunk(inverse(part))

    def _insert(self, chunk: StreamChunk) -> Resolved:
        self._checks.check(chunk)
        if self._has_row_ids or chunk.capacity <= PART_ROWS:
            return self._put(chunk)
        starts = range(0, chunk.capacity, PART_ROWS)
        return self._together(
            self._put(chunk.slice(start, min(PART_ROWS, chunk.capacity - start))) for start in starts
        )

    def _put(self, chunk: StreamChunk) -> Resolved:
        is_new = self._has_row_ids  # generated keys cannot conflict
        resolved = Resolved(chunk, chunk.visible_rows) if is_new else self._resolver.resolve(chunk)
        if resolved.chunk is not None:
            self._table.write_chunk(resolved.chunk)
        return resolved

    def _delete(self, statement: DeleteRows) -> Resolved:
        try:
            old = self._matching(statement, self._plan_of(statement))
        except DamagedRow as error:
            self._check_deletes_by_key(statement, error)
            plan = ChangePlan(statement, self._table.catalog, has_rows=True)
            old = plan.matching(self._table, statement.values, self._table.scan_keys())
        if old is None:
            return NOTHING
        chunk = _changes(old, Op.DELETE)
        self._table.write_chunk(chunk)
        return Resolved(chunk, old.capacity)

    def _update(self, statement: UpdateRows) -> Resolved:
        plan = self._plan_of(statement)
        old = self._matching(statement, plan)
        if old is None:
            return NOTHING
        new = plan.changed(old, statement.values)
        self._check_changed(old, new)
        if not {index for index, _ in statement.assignments}.isdisjoint(self._pk):
            return self._move(old, new)
        chunk = StreamChunk.updates(old, new)
        self._table.write_chunk(chunk)
        return Resolved(chunk, old.capacity)

    def _move(self, old: DataChunk, new: DataChunk) -> Resolved:
        """An update of the key: all old rows are deleted, then the new ones are inserted, which may conflict with the
        remaining rows."""
        deleted = _changes(old, Op.DELETE)
        self._table.write_chunk(deleted)
        try:
            inserted = self._put(_changes(new, Op.INSERT))
        except Exception:
            self._table.write_chunk(_changes(old, Op.INSERT))
            raise
        chunks = [deleted] if inserted.chunk is None else [deleted, inserted.chunk]
        return Resolved(StreamChunk.concat(chunks), old.capacity)

    def _check_deletes_by_key(self, statement: DeleteRows, error: DamagedRow) -> None:
        """InvalidStatement unless rows with unreadable values can be deleted by a condition over their keys, because
        their values are not needed. A table with one entry per value needs the old row to find its entries."""
        read = [*statement.returning, *([] if statement.predicate is None else [statement.predicate])]
        needed = frozenset[int]().union(*map(input_columns, read))
        if statement.keys is not None or not needed <= set(self._pk):
            cure = "DELETE with a condition over the primary key alone needs no other column"
        elif self._has_readers() or self._table.catalog.row_format is not RowFormat.ROW:
            cure = "it can be deleted by its key where no view or index reads the table: drop those first"
        else:
            return
        raise InvalidStatement(self._name, f"{shortened(str(error), 1_000)}; {cure}") from error

    def _plan_of(self, statement: UpdateRows | DeleteRows) -> ChangePlan:
        if statement.keys is None:
            return self._plans.plan(statement)
        return ChangePlan(statement, self._table.catalog, has_rows=True)

    def _matching(self, statement: UpdateRows | DeleteRows, plan: ChangePlan) -> DataChunk | None:
        """The rows that a statement changes, in one chunk; None if there are none."""
        if statement.keys is None:
            return plan.matching(self._table, statement.values)
        rows, found = self._table.get_rows(statement.keys)
        return plan.matching(self._table, statement.values, [rows.with_visibility(found)])

    def _check_may_change(self, verb: str) -> None:
        if self._table.catalog.is_append_only:
            raise AppendOnlyViolation(self._name, verb)

    def _check_changed(self, old: DataChunk, new: DataChunk) -> None:
        """The checks of the rows of an UPDATE; errors identify a row by its old key."""
        try:
            self._checks.check(new)
        except InvalidValue as error:
            if error.row is None or self._has_row_ids:
                raise InvalidValue(error.reason, column_name=error.column_name) from error
            key = next(iter(old.project(self._pk).take([error.row]).rows()))
            shown = shortened(", ".join(map(repr, key)))
            reason = f"{error.reason} (in the row with the key {shown})"
            raise InvalidValue(reason, column_name=error.column_name) from error


def _changes(rows: DataChunk, op: Op) -> StreamChunk:
    return StreamChunk(rows.columns, np.full(rows.capacity, op, np.uint8))


def inverse(changes: StreamChunk) -> StreamChunk:
    """The changes that undo `changes`, the last one first."""
    order = np.arange(changes.capacity - 1, -1, -1, dtype=np.int32)
    return changes.take(order).with_ops(changes.ops[order] ^ np.uint8(Op.DELETE))


def _returned(statement: Statement, changes: StreamChunk) -> DataChunk | None:
    """The values of `returning` over the rows that were stored or, by a DELETE, deleted. EvaluationError."""
    is_deletion = (changes.ops & Op.DELETE) != 0
    wanted = np.flatnonzero(is_deletion if isinstance(statement, DeleteRows) else ~is_deletion).astype(np.int32)
    rows = DataChunk(changes.columns).take(wanted)
    values = [evaluate(expression, rows, strict=True) for expression in statement.returning]
    return DataChunk(values, capacity=rows.capacity) if rows.capacity else None
