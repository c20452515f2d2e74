"""Tables in the cell format, one entry per value: behaviour specific to the format."""

from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest

from hummock.base.key import KeyRange
from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import WriteBatch
from hummock.store.memory_store import MemoryStateStore
from relational.catalog.alter import with_column, without_column
from relational.catalog.objects import RowFormat, TableKind
from relational.chunk import DataChunk
from relational.encoding import CellEncoder, ValueEncoder
from relational.errors import CatalogError
from relational.table.cell_rows import CellRows
from relational.types import DataType, Schema
from tests.relational.table.test_state_table import ASC, Epochs, opened, table_of

MANY = {"k": "bigint", "g": "bigint"} | {f"c{i}": "varchar" for i in range(5)}


@pytest.fixture
def store():
    return MemoryStateStore()


@pytest.fixture
def epochs():
    return Epochs()


def cells_of(pk, distribution):
    return replace(table_of(MANY, pk, distribution), row_format=RowFormat.CELL, kind=TableKind.TABLE)


def entries(store, epoch):
    return len(list(store.scan(KeyRange.table(7), epoch)))


def test_an_update_writes_the_columns_that_changed(store, epochs):
    table = opened(cells_of([(0, ASC)], [0]), store, epochs)
    row = (1, 2, "a", "b", None, "d", "e")
    table.insert_row(row)
    table.commit(epochs.step())
    written = []
    ingest, store.ingest_batch = store.ingest_batch, lambda batch, *args, **options: (
        written.append(list(batch)), ingest(batch, *args, **options))
    for new in ((1, 2, "a", "b", "c", "d", "e"), (1, 2, "a", "B", None, "d", "e")):
        table.update_row(row, new)
        row = new
    table.commit(epochs.step())
    [[(key, value)]] = written
    assert key.endswith((3 + 1).to_bytes(4, "big")) and value == b"B"
    assert table.get_row((1,)) == row and entries(store, epochs.pair.prev) == 6
    table.delete_row(row)
    table.commit(epochs.step())
    assert entries(store, epochs.pair.prev) == 0


def test_a_value_that_becomes_null_and_comes_again(store, epochs):
    table = opened(cells_of([(0, ASC)], [0]), store, epochs)
    rows = [(1, 2, "a", None, "c", None, "e"), (1, 2, None, "b", None, None, "e"), (1, None, "a", None, None, "d", "")]
    table.insert_row(rows[0])
    for old, new in pairwise(rows):
        table.commit(epochs.step())
        table.update_row(old, new)
        assert table.get_row((1,)) == new
    table.commit(epochs.step())
    assert list(table.scan()) == rows[-1:]
    assert entries(store, epochs.pair.prev) == 1 + 3


def test_first_rows_are_asked_for_again_where_dropped_columns_are_in_the_way(store, epochs):
    catalog = cells_of([(1, ASC), (0, ASC)], [1])
    table = opened(catalog, store, epochs)
    for key in range(30):
        table.insert_row((key, key // 10, *"abcde"))
    table.commit(epochs.step())
    for name in ("c0", "c1", "c2", "c3"):
        catalog = without_column(catalog, name)
    table.update_catalog(with_column(catalog, "n", DataType.INT))
    prefixes = DataChunk.from_rows(Schema.of(g="bigint"), [(2,), (0,), (7,)])
    for limit in (1, 4, 10, 12):
        owners, rows = table.first_rows(prefixes, limit)
        expected = [(10 * group + i, group, "e", None) for group in (2, 0) for i in range(min(limit, 10))]
        assert list(rows.rows()) == expected
        assert owners.tolist() == [0] * min(limit, 10) + [1] * min(limit, 10)
    assert [row[0] for row in table.scan((1,), reverse=True, limit=3)] == [19, 18, 17]


def test_a_column_is_added_without_a_default_only(store):
    catalog = cells_of([(0, ASC)], [0])
    with pytest.raises(CatalogError, match="add 'n' without one"):
        with_column(catalog, "n", DataType.INT, 7)
    assert with_column(catalog, "n", DataType.INT).row_format is RowFormat.CELL


def test_a_column_with_a_default_from_the_start_may_hold_null(store, epochs):
    catalog = cells_of([(0, ASC)], [0])
    columns = (*catalog.columns[:2], *(replace(column, default="x") for column in catalog.columns[2:]))
    table = opened(replace(catalog, columns=columns), store, epochs)
    table.insert_row((1, 2, None, *"bcde"))
    table.commit(epochs.step())
    assert table.get_row((1,)) == (1, 2, None, *"bcde")


class OverflowingEncoder(CellEncoder):
    """Raises OverflowError for more than three rows, as if their entries exceeded 2 GiB."""

    def split(self, keys, values, old=None):
        if len(keys) > 3:
            raise OverflowError
        return super().split(keys, values, old)


def test_entries_beyond_two_gigabytes_are_written_in_parts(store, epochs):
    encoder = ValueEncoder([DataType.INT, DataType.INT])
    keys = BinaryColumn.from_pylist([b"%02d" % row for row in range(16)])
    old, new = (BinaryColumn.from_pylist([encoder.encode_row((row, i)) for row in range(16)]) for i in range(2))
    rows, sizes = CellRows(store, OverflowingEncoder(encoder)), []
    ingest, store.ingest_batch = store.ingest_batch, lambda batch, *args, **options: (
        sizes.append(len(batch)), ingest(batch, *args, **options))
    rows.ingest(WriteBatch(keys, old), None, epochs.pair.prev)
    rows.ingest(WriteBatch(keys, new), old, epochs.pair.curr)
    assert sizes == [2 * 3] * 8 + [2] * 8
    assert list(rows.get_many(keys, epochs.pair.curr)) == list(new)


def test_rows_are_found_for_keys_in_any_order_and_more_than_once(store, epochs):
    table = opened(cells_of([(0, ASC)], [0]), store, epochs)
    for key in range(5):
        table.insert_row((key, None, *"abcde"))
    table.commit(epochs.step())
    asked = [3, 9, 0, 3, 3, 1, 9, 4]
    rows, found = table.get_rows(DataChunk([pa.array(asked)]))
    assert found.tolist() == [key < 5 for key in asked]
    assert [row[0] for row in rows.rows()] == asked
