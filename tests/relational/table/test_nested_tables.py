"""Composed types in keys and values of tables, and added and dropped columns."""

import pytest

from hummock.epoch import EpochPair
from hummock.store.memory_store import MemoryStateStore
from relational.catalog.objects import ColumnCatalog, TableCatalog, TableKind, value_columns
from relational.chunk import StreamChunk
from relational.table.state_table import StateTable
from relational.table.storage_table import StorageTable
from relational.types import DataType, OrderType, SortKey
from tests.relational.random_rows import COMPOSED, ORDERS, random_rows, random_value, sort_key, sql_row
from tests.relational.row_formats import formatted

pytestmark = pytest.mark.usefixtures("row_format")
FIRST, SECOND, THIRD = (number << 16 for number in (100, 200, 300))


def catalog_of(columns, pk):
    """`columns`: (id, name, type); `pk`: (column index, order)."""
    stored = tuple(ColumnCatalog(name, id_, data_type) for id_, name, data_type in columns)
    keys = tuple(SortKey(index, order) for index, order in pk)
    indices = tuple(index for index, _ in pk)
    values = value_columns(stored, keys)
    return formatted(TableCatalog(9, "t", TableKind.TABLE, stored, keys, indices, indices[:1], values))


def write(catalog, store, rows, epoch, prev):
    table = StateTable(catalog, store)
    table.init_epoch(EpochPair(curr=epoch, prev=prev))
    table.write_chunk(StreamChunk.from_rows(catalog.schema, [(0, row) for row in rows]))
    table.commit(EpochPair(curr=epoch + (1 << 16), prev=epoch))
    return table


@pytest.mark.parametrize("data_type", COMPOSED, ids=str)
def test_composed_types_are_keys_and_values(data_type, rng):
    order = rng.choice(ORDERS)
    catalog = catalog_of(
        [(0, "k", data_type), (1, "n", DataType.INT), (2, "v", data_type)], [(0, order), (1, OrderType())]
    )
    keys = {sql_row((row[0],), [data_type]): row[0] for row in random_rows(rng, [data_type], 60)}
    rows = [(key, i, random_value(rng, data_type)) for i, key in enumerate(keys.values())]
    store = MemoryStateStore()
    write(catalog, store, rows, FIRST, 1 << 16)
    found = [row for chunk in StorageTable(catalog, store).scan(FIRST, ordered=True) for row in chunk.rows()]
    expected = sorted(rows, key=lambda row: sort_key([order], [data_type])(row[:1]))
    types = catalog.schema.types
    assert [sql_row(row, types) for row in found] == [sql_row(row, types) for row in expected]
    table = StateTable(catalog, store)
    table.init_epoch(EpochPair(curr=SECOND, prev=FIRST))
    for row in rng.sample(rows, 10):
        assert str(table.get_row(row[:2])) == str(row)


def test_columns_that_are_added_and_dropped_need_no_rewrite():
    before = catalog_of(
        [(0, "k", DataType.BIGINT), (1, "a", DataType.INT), (2, "b", DataType.VARCHAR)], [(0, OrderType())]
    )
    after = catalog_of(
        [(0, "k", DataType.BIGINT), (2, "b", DataType.VARCHAR), (3, "c", DataType.parse("int[]"))], [(0, OrderType())]
    )
    store = MemoryStateStore()
    write(before, store, [(1, 10, "x"), (2, None, None)], FIRST, 1 << 16)
    write(after, store, [(3, "y", [1, None])], SECOND, FIRST)
    reader = StorageTable(after, store)
    rows = sorted(row for chunk in reader.scan(SECOND) for row in chunk.rows())
    assert rows == [(1, "x", None), (2, None, None), (3, "y", [1, None])]
    old = StorageTable(before, store)
    assert sorted(row for chunk in old.scan(FIRST) for row in chunk.rows()) == [(1, 10, "x"), (2, None, None)]
    assert sorted(row for chunk in old.scan(SECOND) for row in chunk.rows())[2] == (3, None, "y")
