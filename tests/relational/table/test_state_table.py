"""StateTable: the examples of the design document, then each guarantee."""

import sys
from decimal import Decimal

import numpy as np
import pytest

from hummock.epoch import EpochGenerator, EpochPair
from hummock.errors import InvalidEpoch
from hummock.store.memory_store import MemoryStateStore
from relational.catalog.objects import KEY_FORM_LOSES, ColumnCatalog, TableCatalog, TableKind
from relational.chunk import DataChunk, StreamChunk
from relational.errors import ConsistencyError
from relational.table.state_table import StateTable
from relational.types import DESCENDING, DataType, OrderType, Schema, SortKey
from tests.relational.row_formats import formatted
from tests.support.drivers.pretty import from_pretty

pytestmark = pytest.mark.usefixtures("row_format")


def table_of(columns, pk, distribution=(), table_id=7, vnode_count=256):
    """A catalog of {name: type text} with the primary key [(column, order)]."""
    types = [DataType.parse(text) for text in columns.values()]
    keys = tuple(SortKey(column, order) for column, order in pk)
    in_key = {key.column for key in keys if not any(map(types[key.column].contains, KEY_FORM_LOSES))}
    return formatted(TableCatalog(
        table_id,
        "t",
        TableKind.INTERNAL,
        tuple(
            ColumnCatalog(name, index, kind)
            for index, (name, kind) in enumerate(zip(columns, types, strict=True))
        ),
        keys,
        tuple(key.column for key in keys),
        tuple(distribution),
        tuple(index for index in range(len(types)) if index not in in_key),
        vnode_count,
    ))


class Epochs:
    """Consecutive epoch pairs, from a clock of its own."""

    def __init__(self):
        self._ms = 1_700_000_000_000
        self._next = EpochGenerator(self._tick)
        self.pair = self._first()

    def _tick(self):
        self._ms += 1
        return self._ms

    def _first(self):
        prev = self._next.next()
        return EpochPair(curr=self._next.next(), prev=prev)

    def step(self):
        self.pair = EpochPair(curr=self._next.next(), prev=self.pair.curr)
        return self.pair


THREE = {"a": "int", "b": "int", "c": "int"}
ASC = OrderType()


@pytest.fixture
def epochs():
    return Epochs()


@pytest.fixture
def store():
    return MemoryStateStore()


def opened(catalog, store, epochs, **options):
    table = StateTable(catalog, store, **options)
    table.init_epoch(epochs.pair)
    return table


def test_get_example(store, epochs):
    """Design document "Storing State Using Relational Table": the Get example."""
    table = opened(table_of(THREE, [(0, ASC)], [0]), store, epochs)
    table.insert_row((1, 11, 111))
    table.insert_row((2, 22, 222))
    table.delete_row((2, 22, 222))
    table.insert_row((3, 33, 333))
    table.commit(epochs.step())
    table.update_row((3, 33, 333), (3, 3333, 3333))
    assert table.get_row((1,)) == (1, 11, 111)
    assert table.get_row((2,)) is None
    assert table.get_row((3,)) == (3, 3333, 3333)


@pytest.mark.parametrize("distribution", [(), (0,)])
def test_scan_example(store, epochs, distribution):
    """Design document, the Scan example: memory wins over the store, the scan yields 1, 4, 5, 6."""
    table = opened(table_of({"pk": "int", "v": "varchar"}, [(0, ASC)], distribution), store, epochs)
    for pk in (1, 2, 3, 4):
        table.insert_row((pk, "store"))
    table.commit(epochs.step())
    table.delete_row((2, "store"))
    table.delete_row((3, "store"))
    table.update_row((4, "store"), (4, "memory"))
    table.insert_row((5, "memory"))
    table.insert_row((6, "memory"))
    assert [row[0] for row in table.scan()] == [1, 4, 5, 6]
    assert [row[0] for row in table.scan(reverse=True)] == [6, 5, 4, 1]
    assert list(table.scan(limit=2)) == [(1, "store"), (4, "memory")]
    assert list(table.scan(reverse=True, limit=3)) == [(6, "memory"), (5, "memory"), (4, "memory")]


def test_insert_of_a_committed_key_is_taken_on_trust(store, epochs):
    """The Get example verbatim: its last insert has a key that is only in the store."""
    table = opened(table_of(THREE, [(0, ASC)], [0]), store, epochs)
    table.insert_row((3, 33, 333))
    table.commit(epochs.step())
    table.insert_row((3, 3333, 3333))
    assert table.get_row((3,)) == (3, 3333, 3333)
    table.commit(epochs.step())
    assert list(table.scan()) == [(3, 3333, 3333)]


def test_get_rows_is_one_read_and_says_what_is_absent(store, epochs):
    table = opened(
        table_of({"k": "varchar", "x": "double", "n": "numeric(10,2)"}, [(0, ASC)], [0]), store, epochs
    )
    table.insert_row(("a", 1.5, Decimal("2.00")))
    table.insert_row((None, None, None))
    table.commit(epochs.step())
    table.insert_row(("b", -0.0, None))
    calls = []
    for name in ("get_many", "scan_prefixes"):
        real = getattr(store, name)
        setattr(store, name, lambda *args, real=real, **options: calls.append(1) or real(*args, **options))
    pks = DataChunk.from_rows(Schema.of(k="varchar"), [("b",), ("zz",), ("a",), (None,)])
    rows, found = table.get_rows(pks)
    assert found.tolist() == [1, 0, 1, 1] and len(calls) == 1
    assert list(rows.rows()) == [
        ("b", -0.0, None),
        ("zz", None, None),
        ("a", 1.5, Decimal("2.00")),
        (None,) * 3,
    ]
    hidden, found = table.get_rows(pks.with_visibility(np.array([0, 0, 1, 0], np.uint8)))
    assert list(hidden.rows()) == [("a", 1.5, Decimal("2.00"))] and found.tolist() == [1]


def test_lossy_key_columns_come_back_as_they_were(store, epochs):
    catalog = table_of({"x": "double", "i": "interval"}, [(0, ASC), (1, DESCENDING)], [0])
    table = opened(catalog, store, epochs)
    chunk = StreamChunk.from_rows(catalog.schema, [(0, (-0.0, None))])
    table.write_chunk(chunk)
    table.commit(epochs.step())
    (row,) = table.scan()
    assert str(row[0]) == "-0.0" and table.get_row((0.0, None)) is not None


def test_scan_of_a_prefix_merges_all_vnodes(store, epochs):
    """[R5]: the prefix does not contain the distribution key, so rows of all vnodes are merged in key order."""
    table = opened(table_of(THREE, [(0, ASC), (1, DESCENDING)], [1]), store, epochs)
    for group in (1, 2):
        for number in range(0, 60, 2):
            table.insert_row((group, number, 0))
    table.commit(epochs.step())
    for number in range(1, 60, 2):
        table.insert_row((1, number, 1))
    table.delete_row((1, 30, 0))
    expected = [number for number in range(59, -1, -1) if number != 30]
    assert [row[1] for row in table.scan((1,))] == expected
    assert [row[1] for row in table.scan((1,), reverse=True)] == expected[::-1]
    assert [row[1] for row in table.scan((1,), limit=7)] == expected[:7]
    found = sorted(row for chunk in table.scan_chunks((2,)) for row in chunk.rows())
    assert found == [(2, number, 0) for number in range(0, 60, 2)]
    owners, rows = table.first_rows(DataChunk.from_rows(Schema.of(a="int"), [(2,), (9,), (1,)]), limit=2)
    assert owners.tolist() == [0, 0, 2, 2]
    assert [row[:2] for row in rows.rows()] == [(2, 58), (2, 56), (1, 59), (1, 58)]


def test_first_rows_look_behind_deleted_ones(store, epochs):
    table = opened(table_of(THREE, [(0, ASC), (1, ASC)], [0]), store, epochs)
    for group in range(5):
        for number in range(group * 20):
            table.insert_row((group, number, number))
    table.commit(epochs.step())
    for number in range(75):
        table.delete_row((4, number, number))
    table.delete_row((1, 0, 0))
    table.insert_row((0, 5, 5))
    table.insert_row((2, -1, 0))
    prefixes = DataChunk.from_rows(Schema.of(a="int"), [(group,) for group in (4, 3, 2, 1, 0, 8)])
    owners, rows = table.first_rows(prefixes, limit=3)
    assert [(int(owner), row[1]) for owner, row in zip(owners, rows.rows(), strict=True)] == [
        (0, 75),
        (0, 76),
        (0, 77),
        (1, 0),
        (1, 1),
        (1, 2),
        (2, -1),
        (2, 0),
        (2, 1),
        (3, 1),
        (3, 2),
        (3, 3),
        (4, 5),
    ]
    assert table.first_rows(prefixes, limit=0)[0].tolist() == []
    assert table.first_rows(prefixes.slice(0, 0))[1].capacity == 0


def test_write_chunk_keeps_pairs_of_one_key_and_parts_others(store, epochs):
    table = opened(table_of(THREE, [(0, ASC)], [0]), store, epochs)
    table.write_chunk(from_pretty("+ 1 1 1\n+ 2 2 2\n+ 3 3 3", table.catalog.schema))
    table.commit(epochs.step())
    table.write_chunk(
        from_pretty("U- 1 1 1\nU+ 1 5 5\nU- 2 2 2\nU+ 4 2 2\nU+ 3 7 7", table.catalog.schema)
    )
    assert list(table.scan()) == [(1, 5, 5), (3, 7, 7), (4, 2, 2)]
    table.commit(epochs.step())
    assert list(table.scan()) == [(1, 5, 5), (3, 7, 7), (4, 2, 2)]


def test_contradictions_name_table_and_key(store, epochs):
    table = opened(table_of(THREE, [(1, ASC), (0, ASC)], [0]), store, epochs)
    table.insert_row((1, 2, 3))
    with pytest.raises(ConsistencyError, match="insert of a row that was inserted before") as caught:
        table.insert_row((1, 2, 4))
    assert caught.value.table == "t" and caught.value.key == (2, 1)
    with pytest.raises(ConsistencyError, match="delete of a row that was deleted"):
        table.write_chunk(from_pretty("- 5 5 5\n- 5 5 5", table.catalog.schema))


def test_a_scan_is_a_snapshot_of_its_moment(store, epochs):
    table = opened(table_of(THREE, [(0, ASC)], [0]), store, epochs)
    table.insert_row((1, 1, 1))
    rows, chunks = table.scan(), table.scan_chunks()
    table.insert_row((2, 2, 2))
    assert list(rows) == [(1, 1, 1)]
    assert [row for chunk in chunks for row in chunk.rows()] == [(1, 1, 1)]


def test_rows_of_other_vnodes_are_refused(store, epochs):
    catalog = table_of(THREE, [(0, ASC)], [0], vnode_count=4)
    whole = opened(catalog, store, epochs)
    for key in range(40):
        whole.insert_row((key, 0, 0))
    _, vnodes = whole.serde.keys_of(DataChunk.from_rows(catalog.schema, [(key, 0, 0) for key in range(40)]))
    whole.commit(epochs.step())
    part = opened(catalog, store, epochs, vnodes=np.array([1, 0, 1, 0], np.uint8))
    owned = [key for key in range(40) if vnodes[key] in (0, 2)]
    assert [row[0] for row in part.scan()] == owned
    assert sorted(row[0] for chunk in part.scan_chunks() for row in chunk.rows()) == owned
    other = next(key for key in range(40) if key not in owned)
    for use in (lambda: part.get_row((other,)), lambda: part.insert_row((other, 1, 1))):
        with pytest.raises(ConsistencyError, match="vnode that is not owned"):
            use()
    with pytest.raises(ValueError, match="4"):
        StateTable(catalog, store, np.ones(3, np.uint8))


def test_epochs_must_follow_one_another(store, epochs):
    table = StateTable(table_of(THREE, [(0, ASC)]), store)
    with pytest.raises(InvalidEpoch, match="before its first barrier"):
        table.get_row((1,))
    table.init_epoch(epochs.pair)
    epochs.step()
    with pytest.raises(InvalidEpoch, match="is in epoch"):
        table.commit(epochs.step())


def test_nothing_is_ingested_when_nothing_changed(store, epochs):
    table = opened(table_of(THREE, [(0, ASC)]), store, epochs)
    store.ingest_batch = lambda *args, **options: pytest.fail("an empty epoch was ingested")
    table.insert_row((1, 1, 1))
    table.delete_row((1, 1, 1))
    assert table.is_dirty
    table.commit(epochs.step())
    assert not table.is_dirty


def test_keys_that_cannot_be(store):
    with pytest.raises(ValueError, match="are not in its key"):
        StateTable(table_of(THREE, [(0, ASC)], [1]), store)
    with pytest.raises(ValueError, match="prefix of 2 values"):
        table = StateTable(table_of(THREE, [(0, ASC)]), store)
        table.scan((1, 2))


def calls_of_a_write(store, epochs, rows):
    """Number of Python and C calls to write one chunk and commit it."""
    table = opened(table_of(THREE, [(0, ASC)], [0]), store, epochs)
    store.ingest_batch = lambda *args, **options: None
    chunk = StreamChunk.from_rows(table.catalog.schema, [(0, (number, 1, 2)) for number in range(rows)])
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    epoch = epochs.step()
    sys.setprofile(count)
    table.write_chunk(chunk)
    table.commit(epoch)
    sys.setprofile(None)
    return calls


def test_python_calls_do_not_grow_with_rows(store, epochs):
    assert calls_of_a_write(store, epochs, 1_024) == calls_of_a_write(store, epochs, 4_096)
