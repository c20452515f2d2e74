"""Fits a statement that was bound to an older version of its table to the current columns.

Its meaning is kept: a column that was added since gets its default in inserted rows and is unchanged in updated ones. A
statement that needs a dropped column is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from relational.catalog.objects import TableCatalog
from relational.chunk import StreamChunk
from relational.expr.eval import evaluate
from relational.expr.expression import Literal, input_columns, remap
from stream.errors import InvalidStatement
from stream.message import DeleteRows, EvaluatedChanges, InsertRows, Statement, UpdateRows


def fitted(statement: Statement, table: TableCatalog) -> Statement:
    """The statement over the columns of `table`. InvalidStatement if it needs a dropped one.

    REQUIRES that it has `column_ids`.
    """
    ids = statement.column_ids
    assert ids is not None
    if isinstance(statement, InsertRows):
        _check_present(table, ids, range(len(ids)))
        chunk = fitted_rows(statement.chunk, ids, table)
        positions = {old: table.column_ids.index(column_id) for old, column_id in enumerate(ids)}
        returning = tuple(remap(each, positions) for each in statement.returning)
        return replace(statement, chunk=chunk, column_ids=table.column_ids, returning=returning)
    needed = set() if statement.predicate is None else set(input_columns(statement.predicate))
    needed = needed.union(*map(input_columns, statement.returning))
    if isinstance(statement, UpdateRows):
        for column, value in statement.assignments:
            needed |= {column} | input_columns(value)
    _check_present(table, ids, needed)
    positions = {old: table.column_ids.index(ids[old]) for old in needed}
    predicate = None if statement.predicate is None else remap(statement.predicate, positions)
    returning = tuple(remap(each, positions) for each in statement.returning)
    if isinstance(statement, DeleteRows):
        return replace(statement, predicate=predicate, column_ids=table.column_ids, returning=returning)
    assignments = tuple((positions[column], remap(value, positions)) for column, value in statement.assignments)
    return replace(
        statement, predicate=predicate, assignments=assignments, column_ids=table.column_ids, returning=returning
    )


def fitted_changes(evaluation: EvaluatedChanges, table: TableCatalog) -> StreamChunk | None:
    """The changes of an evaluated statement over the columns of `table`, whose latest ALTER a recovery may have undone.

    A column that this ALTER added is left out: it was never committed. None if the ALTER dropped a column, whose values
    the changes no longer have. REQUIRES that there are changes.
    """
    ids, changes = evaluation.column_ids, evaluation.changes
    assert changes is not None
    if ids == table.column_ids:
        return changes
    if not set(table.column_ids) <= set(ids):
        return None
    return changes.with_columns([changes.columns[ids.index(column_id)] for column_id in table.column_ids])


def _check_present(table: TableCatalog, ids: Sequence[int], needed: Iterable[int]) -> None:
    if not {ids[column] for column in needed} <= set(table.column_ids):
        raise InvalidStatement(table.name, "a column of this statement was dropped meanwhile: send it without it")


def fitted_rows(chunk: StreamChunk, ids: Sequence[int], table: TableCatalog) -> StreamChunk:
    """The rows, whose columns have these ids, over the columns of `table`: others have their default."""
    given = dict(zip(ids, chunk.columns, strict=True))
    for column in table.columns:
        if column.column_id not in given:
            given[column.column_id] = evaluate(Literal(column.default, column.data_type), chunk)
    return chunk.with_columns([given[column_id] for column_id in table.column_ids])
