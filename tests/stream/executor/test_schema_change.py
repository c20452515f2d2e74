"""Statements that were bound before an ALTER TABLE."""

from concurrent.futures import Future

import pytest

from relational.catalog.alter import with_column, without_column
from relational.expr.expression import Call, InputRef, Literal
from relational.types import DataType, Schema
from stream.errors import InvalidStatement
from stream.executor.base import ExecutorInfo
from stream.executor.dml import DmlExecutor
from stream.executor.schema_change import fitted
from stream.message import Alter, DeleteRows, InsertRows, UpdateRows
from stream.runtime.channel import Channel
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.pretty import from_pretty
from tests.support.drivers.stream_driver import barrier

OLD = table_catalog("t", Schema.of(k="bigint", a="int", b="int"), (0,))
NEW = with_column(without_column(OLD, "a"), "c", DataType.VARCHAR, "new")
B = InputRef(2, DataType.INT)


def greater(number):
    return Call("greater", (B, Literal(number, DataType.INT)), DataType.BOOLEAN)


def test_inserted_rows_have_the_default_of_what_came_since():
    later = with_column(OLD, "c", DataType.VARCHAR, "new")
    chunk = from_pretty("+ 1 2 3\n+ 4 5 6", OLD.schema)
    statement = fitted(InsertRows(1, chunk, OLD.column_ids), later)
    assert list(statement.chunk.rows()) == [(1, 2, 3, "new"), (4, 5, 6, "new")]
    assert statement.column_ids == later.column_ids


def test_changes_follow_the_columns_they_name():
    update = fitted(UpdateRows(1, greater(3), ((2, B),), OLD.column_ids), NEW)
    moved = InputRef(1, DataType.INT)
    assert update.assignments == ((1, moved),) and update.predicate.args[0] == moved
    assert fitted(DeleteRows(1, greater(3), OLD.column_ids), NEW).predicate == update.predicate
    assert fitted(DeleteRows(1, None, OLD.column_ids), NEW).predicate is None


@pytest.mark.parametrize(
    "statement",
    [
        InsertRows(1, from_pretty("+ 1 2 3", OLD.schema), OLD.column_ids),
        UpdateRows(1, None, ((1, Literal(0, DataType.INT)),), OLD.column_ids),
        UpdateRows(1, None, ((2, InputRef(1, DataType.INT)),), OLD.column_ids),
    ],
    ids=["inserted", "set", "read"],
)
def test_what_needs_a_column_that_went_is_refused(statement):
    with pytest.raises(InvalidStatement, match="table 't': a column of this statement was dropped meanwhile"):
        fitted(statement, NEW)


def test_the_head_of_a_table_fits_what_comes_after_the_barrier():
    control = Channel(100)
    chunk = from_pretty("+ 1 2 3", OLD.schema)
    kept, refused = DeleteRows(2, greater(3), OLD.column_ids), InsertRows(3, chunk, OLD.column_ids, Future())
    for message in (barrier(1), kept, barrier(2, Alter(frozenset(), NEW)), kept, refused):
        control.send(message)
    control.close()
    out = list(DmlExecutor(ExecutorInfo(OLD.schema, (0,), "Dml"), control, OLD).execute())
    assert out[1] is kept and out[3].column_ids == NEW.column_ids and len(out) == 4
    with pytest.raises(InvalidStatement):
        refused.result.result(0)


def test_an_alter_of_another_table_changes_nothing():
    other = table_catalog("u", Schema.of(k="bigint"), (0,), table_id=9)
    assert barrier(2, Alter(frozenset(), other)).altered(OLD.id) is None
    assert barrier(2).altered(OLD.id) is None
