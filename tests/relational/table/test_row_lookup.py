"""RowLookup: rows of any types under Python values as their keys, equal to what a read of whole chunks gives."""

import datetime as dt
from decimal import Decimal

import pytest

from hummock.epoch import EpochPair
from hummock.store.memory_store import MemoryStateStore
from relational.catalog.objects import ColumnCatalog, TableCatalog, TableKind
from relational.chunk import StreamChunk
from relational.errors import DamagedRow, InvalidValue
from relational.table.row_lookup import RowLookup
from relational.table.row_serde import RowSerde
from relational.table.state_table import StateTable
from relational.table.storage_table import StorageTable
from relational.types import DESCENDING, DataType, Interval, SortKey
from relational.types.vnode_rule import VnodeRule

FIRST, SECOND = 100 << 16, 200 << 16
VALUES = [
    (DataType.SMALLINT, [-(1 << 15), 0, (1 << 15) - 1]),
    (DataType.INT, [-(1 << 31), 7, (1 << 31) - 1]),
    (DataType.BIGINT, [-(1 << 63), 1 << 40, (1 << 63) - 1]),
    (DataType.BOOLEAN, [True, False]),
    (DataType.DOUBLE, [-1.5, 0.0, float("inf")]),
    (DataType.VARCHAR, ["", "plain", "Zürich 東京 😀", "\0", "x" * 5_000]),
    (DataType.BYTEA, [b"", b"\0\xff"]),
    (DataType.DATE, [dt.date(1970, 1, 1), dt.date(2026, 2, 28)]),
    (DataType.TIMESTAMP, [dt.datetime(2026, 2, 28, 12, 30, 1, 7)]),
    (DataType.numeric(12, 3), [Decimal("-1.500"), Decimal("123456.789")]),
    (DataType.INTERVAL, [Interval(1, 2, 3)]),
    (DataType.list_of(DataType.INT), [[1, None, 3], []]),
]


def table_of(types, pk, distribution, rule=VnodeRule.HASH, stored=None):
    columns = tuple(ColumnCatalog(f"c{at}", at, data_type) for at, data_type in enumerate(types))
    rest = tuple(at for at in range(len(types)) if at not in {key.column for key in pk}) if stored is None else stored
    order = tuple(key.column for key in pk)
    return TableCatalog(9, "t", TableKind.TABLE, columns, pk, order, distribution, rest, vnode_rule=rule)


def stored_in(catalog, rows):
    store = MemoryStateStore()
    writer = StateTable(catalog, store)
    writer.init_epoch(EpochPair(curr=FIRST, prev=1 << 16))
    writer.write_chunk(StreamChunk.from_rows(catalog.schema, [(0, row) for row in rows]))
    writer.commit(EpochPair(curr=SECOND, prev=FIRST))
    return store


@pytest.mark.parametrize(("data_type", "values"), VALUES, ids=[str(data_type) for data_type, _ in VALUES])
@pytest.mark.parametrize("order", [{}, {"order": DESCENDING}], ids=["ascending", "descending"])
def test_a_row_is_found_by_a_key_of_any_type(data_type, values, order):
    catalog = table_of([data_type, DataType.BIGINT, data_type], (SortKey(0, **order), SortKey(1)), (1,))
    rows = [(value, number, values[-1]) for number, value in enumerate([*values, None])]
    table = StorageTable(catalog, stored_in(catalog, rows))
    for row in rows:
        assert table.get_row(row[:2], FIRST) == row
        assert table.get_row((row[0], 99), FIRST) is None


def test_columns_come_in_the_order_that_is_asked_for_under_the_names_of_the_schema():
    catalog = table_of([DataType.INT, DataType.VARCHAR, DataType.INT], (SortKey(1),), (1,))
    store = stored_in(catalog, [(1, "a", 10), (None, "b", None)])
    table = StorageTable(catalog, store, [2, 1])
    schema = table.schema.arrow
    assert table.get_batch(("a",), FIRST, schema).to_pydict() == {"c2": [10], "c1": ["a"]}
    assert table.get_batch(("b",), FIRST, schema).to_pydict() == {"c2": [None], "c1": ["b"]}
    assert StorageTable(catalog, store, [2, 2]).get_row(("a",), FIRST) == (10, 10)
    assert StorageTable(catalog, store, []).get_row(("a",), FIRST) == ()


def test_columns_of_the_key_alone_need_no_value():
    catalog = table_of([DataType.INT], (SortKey(0),), (), stored=())
    assert StorageTable(catalog, stored_in(catalog, [(5,)])).get_row((5,), FIRST) == (5,)


def test_the_vnode_follows_the_rule_of_the_table():
    catalog = table_of([DataType.SMALLINT, DataType.INT], (SortKey(0), SortKey(1)), (0,), VnodeRule.STORED)
    table = StorageTable(catalog, stored_in(catalog, [(3, 1), (200, 2)]))
    assert table.get_row((200, 2), FIRST) == (200, 2)
    with pytest.raises(ValueError, match="a stored vnode 300 of 256"):
        table.get_row((300, 2), FIRST)
    ids = table_of([DataType.BIGINT, DataType.INT], (SortKey(0),), (0,), VnodeRule.ROW_ID)
    numbers = [number << 12 | 5 for number in (1, 255, 7_777_777)]
    table = StorageTable(ids, stored_in(ids, [(number, 1) for number in numbers]))
    assert [table.get_row((number,), FIRST) for number in numbers] == [(number, 1) for number in numbers]


@pytest.mark.parametrize("value", [1 << 31, "7", 1.5])
def test_a_value_that_is_not_of_its_type_is_refused(value):
    catalog = table_of([DataType.INT, DataType.INT], (SortKey(0),), (0,))
    with pytest.raises(InvalidValue):
        StorageTable(catalog, stored_in(catalog, [(1, 1)])).get_row((value,), FIRST)


def test_a_text_that_is_no_unicode_and_a_key_of_another_width_are_refused():
    catalog = table_of([DataType.VARCHAR, DataType.INT], (SortKey(0),), (0,))
    table = StorageTable(catalog, stored_in(catalog, [("a", 1)]))
    with pytest.raises(InvalidValue):
        table.get_row(("\ud800",), FIRST)
    with pytest.raises(ValueError, match="2 values for a key of 1"):
        table.get_row(("a", 1), FIRST)


def test_a_damaged_value_names_the_row():
    catalog = table_of([DataType.VARCHAR, DataType.INT], (SortKey(0),), (0,))

    class Damaged:
        def get(self, key, epoch):
            return b"\xff\xff"

    with pytest.raises(DamagedRow, match=r"'t'.*'a'"):
        RowLookup(RowSerde(catalog)).get(Damaged(), ("a",), FIRST, catalog.schema.arrow)


def test_repeated_columns_are_refused():
    catalog = table_of([DataType.INT, DataType.INT], (SortKey(0),), (0,))
    with pytest.raises(ValueError, match="distinct"):
        RowLookup(RowSerde(catalog, [1, 1]))
