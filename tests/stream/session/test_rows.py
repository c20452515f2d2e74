from decimal import Decimal

import pyarrow as pa
import pytest

from relational.catalog.objects import ColumnCatalog, TableCatalog, TableKind
from relational.types import DataType, SortKey
from stream.errors import InvalidStatement
from stream.session.rows import chunk_of_rows


def table(*, hidden_key=False):
    columns = [
        ColumnCatalog("id", 0, DataType.BIGINT),
        ColumnCatalog("name", 1, DataType.VARCHAR),
        ColumnCatalog("price", 2, DataType.numeric(10, 2)),
    ]
    if hidden_key:
        columns.append(ColumnCatalog("_row_id", 3, DataType.BIGINT, is_hidden=True))
    key = 3 if hidden_key else 0
    return TableCatalog(1, "t", TableKind.TABLE, tuple(columns), (SortKey(key),), (key,), (key,), (1, 2))


ROWS = [(1, "a", Decimal("1.50")), (2, None, None)]


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        iter(ROWS),
        [{"id": 1, "name": "a", "price": Decimal("1.50")}, {"id": 2}],
        pa.table({"name": ["a", None], "id": pa.array([1, 2], pa.int16()), "price": [Decimal("1.5"), None]}),
        pa.record_batch({"id": [1, 2], "name": ["a", None], "price": [1.5, None]}),
    ],
)
def test_rows_in_many_forms_give_the_same_chunk(given):
    assert list(chunk_of_rows(table(), given).rows()) == ROWS


def test_a_generated_key_is_left_out():
    assert list(chunk_of_rows(table(hidden_key=True), ROWS).rows()) == [(*row, None) for row in ROWS]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([(1, "a")], "2 values for 3 columns"),
        ([{"id": 1, "colour": "red"}], "no column 'colour'"),
        (pa.table({"colour": ["red"]}), "no column 'colour'"),
        ([("one", "a", None)], "t"),
        (pa.table({"id": ["one"]}), "one"),
    ],
)
def test_what_does_not_fit_is_named(given, reason):
    with pytest.raises(InvalidStatement, match=reason):
        chunk_of_rows(table(), given)
