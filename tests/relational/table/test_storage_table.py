"""StorageTable: epochs, chosen columns, prefixes, bounds and limits."""

import pytest

from hummock.epoch import EpochPair
from hummock.store.memory_store import MemoryStateStore
from relational.catalog.objects import ColumnCatalog, TableCatalog, TableKind
from relational.chunk import DataChunk, Op, StreamChunk
from relational.table.state_table import StateTable
from relational.table.storage_table import StorageTable
from relational.types import ASCENDING, DESCENDING, DataType, Schema, SortKey
from relational.types.key_set import RowRange
from tests.relational.row_formats import formatted

pytestmark = pytest.mark.usefixtures("row_format")
FIRST, SECOND, THIRD = (number << 16 for number in (100, 200, 300))


def catalog_of(order, distribution):
    columns = tuple(ColumnCatalog(name, at, DataType.INT) for at, name in enumerate("gkv"))
    pk = (SortKey(0), SortKey(1, order))
    return formatted(TableCatalog(9, "t", TableKind.TABLE, columns, pk, (0, 1), distribution, (2,)))


@pytest.fixture
def store():
    return MemoryStateStore()


@pytest.fixture(params=[ASCENDING, DESCENDING], ids=["ascending", "descending"])
def order(request):
    return request.param


@pytest.fixture(params=[(), (0,), (1,)], ids=["one vnode", "by group", "by key"])
def table(request, order, store):
    """Groups 0, 1, NULL with keys 0..19, NULL at FIRST; at SECOND group 1 is deleted and (0, 3) updated."""
    catalog = catalog_of(order, request.param)
    writer = StateTable(catalog, store)
    writer.init_epoch(EpochPair(curr=FIRST, prev=1 << 16))
    rows = [(group, key, 7) for group in (0, 1, None) for key in (*range(20), None)]
    writer.write_chunk(StreamChunk.from_rows(catalog.schema, [(0, row) for row in rows]))
    writer.commit(EpochPair(curr=SECOND, prev=FIRST))
    deletes = [(1, (1, key, 7)) for key in (*range(20), None)]
    writer.write_chunk(StreamChunk.from_rows(catalog.schema, [*deletes, (3, (0, 3, 7)), (2, (0, 3, 8))]))
    writer.commit(EpochPair(curr=THIRD, prev=SECOND))
    return StorageTable(catalog, store)


def keys(chunks):
    return [row[1] for chunk in chunks for row in chunk.rows()]


def sorted_keys(order, *found):
    found = sorted(key for key in found if key is not None)
    return found[::-1] if order.descending else found


def test_each_epoch_keeps_its_rows(table):
    assert table.get_row((0, 3), FIRST) == (0, 3, 7) and table.get_row((0, 3), SECOND) == (0, 3, 8)
    assert table.get_row((1, 3), FIRST) == (1, 3, 7) and table.get_row((1, 3), SECOND) is None
    assert table.get_row((None, None), SECOND) == (None, None, 7)
    assert table.to_arrow(FIRST).num_rows == 63 and table.to_arrow(SECOND).num_rows == 42
    assert table.to_arrow(SECOND).schema == table.schema.arrow


def test_chosen_columns_in_chosen_order(table, store):
    chosen = StorageTable(table.catalog, store, (2, 0))
    assert chosen.get_row((0, 3), SECOND) == (8, 0)
    asked = DataChunk.from_rows(Schema.of(g="int", k="int"), [(0, 99), (0, 3)])
    rows, found = chosen.get_rows(asked, SECOND)
    assert found.tolist() == [0, 1] and list(rows.rows()) == [(None, 0), (8, 0)]
    only_key = StorageTable(table.catalog, store, (1,))
    assert only_key.get_row((0, 3), SECOND) == (3,) and only_key.to_arrow(SECOND).num_rows == 42


def test_prefix_order_and_limit(table, order):
    every = sorted_keys(order, *range(20))
    every = [None, *every] if order.descending else [*every, None]
    assert keys(table.scan(SECOND, (0,), ordered=True)) == every
    assert keys(table.scan(SECOND, (0,), ordered=True, reverse=True)) == every[::-1]
    assert keys(table.scan(SECOND, (0,), ordered=True, limit=5)) == every[:5]
    assert keys(table.scan(SECOND, (1,))) == []
    assert sorted(map(str, keys(table.scan(SECOND, (0,))))) == sorted(map(str, every))
    assert len(keys(table.scan(SECOND, limit=11))) == 11


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (RowRange(5, 8), [5, 6, 7]),
        (RowRange(5, 8, includes_lower=False, includes_upper=True), [6, 7, 8]),
        (RowRange(lower=17), [17, 18, 19]),
        (RowRange(upper=2), [0, 1]),
        (RowRange(upper=2, includes_upper=True), [0, 1, 2]),
        (RowRange(), range(20)),
        (RowRange(8, 5), []),
        (RowRange(lower=19, includes_lower=False), []),
    ],
)
def test_bounds_leave_null_out(table, order, bounds, expected):
    assert keys(table.scan(SECOND, (0,), bounds, ordered=True)) == sorted_keys(order, *expected)


def test_parts_of_a_whole_table(table, monkeypatch):
    """Read one after the other from the second on, or by what reads several at once."""
    expected = [row for chunk in table.scan(SECOND) for row in chunk.rows()]
    read = []

    def in_order(one, parts):
        read.extend(parts)
        return map(one, parts)

    for most in (0, 1 << 20):
        monkeypatch.setattr("relational.table.storage_table.PART_ROWS", most)
        found = [row for chunk in table.scan_parts(SECOND, in_order) for row in chunk.rows()]
        assert list(map(repr, found)) == list(map(repr, expected))
        assert bool(read) == (most == 0)
        read.clear()


def test_bounds_on_the_first_column(table):
    rows = [row for chunk in table.scan(SECOND, (), RowRange(0, 1), ordered=True) for row in chunk.rows()]
    assert {row[0] for row in rows} == {0} and len(rows) == 21
    with pytest.raises(ValueError, match="bounds behind a prefix"):
        list(table.scan(SECOND, (0, 1), RowRange(1)))


@pytest.mark.parametrize(("kind", "least"), [(DataType.INT, -(2**31)), (DataType.VARCHAR, "")], ids=str)
def test_nothing_is_less_than_the_least_value(kind, least, store):
    """In descending order its key is the largest possible one."""
    columns = (ColumnCatalog("k", 0, kind),)
    catalog = formatted(TableCatalog(9, "t", TableKind.TABLE, columns, (SortKey(0, DESCENDING),), (0,), (), ()))
    writer = StateTable(catalog, store)
    writer.init_epoch(EpochPair(curr=FIRST, prev=1 << 16))
    writer.insert_row((least,))
    writer.commit(EpochPair(curr=SECOND, prev=FIRST))
    table = StorageTable(catalog, store)
    for ordered in (False, True):
        assert not list(table.scan(FIRST, bounds=RowRange(upper=least), ordered=ordered))
        found = table.scan(FIRST, bounds=RowRange(upper=least, includes_upper=True), ordered=ordered)
        assert [row for chunk in found for row in chunk.rows()] == [(least,)]


def changes_of(table, since, until, partition=None):
    return [change for chunk in table.changes(since, until, partition) for change in chunk.changes()]


def test_changes_are_deletes_inserts_and_pairs_of_updates(table):
    deletes = {(Op.DELETE, (1, key, 7)) for key in (*range(20), None)}
    pair = [(Op.UPDATE_DELETE, (0, 3, 7)), (Op.UPDATE_INSERT, (0, 3, 8))]
    found = changes_of(table, FIRST, SECOND)
    at = found.index(pair[0])
    assert found[at : at + 2] == pair
    assert {*found} == {*deletes, *pair} and len(found) == len(deletes) + 2
    assert {op for op, _ in changes_of(table, 1 << 16, FIRST)} == {Op.INSERT}
    assert changes_of(table, SECOND, THIRD) == []


def test_changes_of_chosen_columns_are_of_rows_that_differ_there(table, store):
    keys_only = StorageTable(table.catalog, store, [1, 0])
    assert {*changes_of(keys_only, FIRST, SECOND)} == {(Op.DELETE, (key, 1)) for key in (*range(20), None)}


def test_changes_of_partitions_are_those_of_the_table(table):
    parts = [changes_of(table, FIRST, SECOND, part) for part in table.partitions(7)]
    assert [change for part in parts for change in part] == changes_of(table, FIRST, SECOND)


def test_a_row_of_many_entries_is_one_change(store):
    """Regardless of the batch boundaries between its entries."""
    catalog = formatted(TableCatalog(9, "t", TableKind.TABLE, tuple(
        ColumnCatalog(f"c{at}", at, DataType.INT) for at in range(6)), (SortKey(0),), (0,), (0,), (1, 2, 3, 4, 5)))
    writer = StateTable(catalog, store)
    writer.init_epoch(EpochPair(curr=FIRST, prev=1 << 16))
    rows = [(key, 1, 2, 3, 4, 5) for key in range(5_000)]
    writer.write_chunk(StreamChunk.from_rows(catalog.schema, [(0, row) for row in rows]))
    writer.commit(EpochPair(curr=SECOND, prev=FIRST))
    found = changes_of(StorageTable(catalog, store), 1 << 16, FIRST)
    assert sorted(found) == [(Op.INSERT, row) for row in rows]
