"""StateTable: writes that go past the mem table, by slices and by generated keys, are its rows like any others."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from hummock.store.memory_store import MemoryStateStore
from relational.catalog.objects import RowFormat
from relational.chunk import DataChunk, RowIdGenerator, StreamChunk
from relational.errors import ConsistencyError
from relational.table import state_table
from relational.table.state_table import OpChecks, StateTable
from relational.table.storage_table import StorageTable
from relational.types import Schema, VnodeRule
from tests.relational.table.test_state_table import ASC, Epochs, opened, table_of
from tests.support.drivers.pretty import from_pretty

pytestmark = pytest.mark.usefixtures("row_format")
PAIR = {"k": "bigint", "v": "varchar"}


@pytest.fixture
def store():
    return MemoryStateStore()


@pytest.fixture
def epochs():
    return Epochs()


@pytest.fixture
def table(store, epochs):
    return opened(table_of(PAIR, [(0, ASC)], [0]), store, epochs)


def events(vnode_count=16, rule=VnodeRule.ROW_ID, **options):
    """The catalog of an append-only table with generated keys."""
    catalog = table_of({"v": "varchar", "_row_id": "bigint"}, [(1, ASC)], [1], vnode_count=vnode_count)
    return replace(catalog, is_append_only=True, row_id_index=1, vnode_rule=rule, **options)


def changes(table, text):
    return from_pretty(text, table.catalog.schema)


def rows_of(table):
    return sorted(row for chunk in table.scan_chunks() for row in chunk.rows())


def test_slices_are_read_within_their_epoch_and_the_latest_wins(table, store, epochs):
    table.write_slice(changes(table, "+ 1 a\n+ 2 b\n+ 3 c"))
    table.write_slice(changes(table, "U+ 2 bb\n- 3 c\n+ 4 d"))
    assert rows_of(table) == [(1, "a"), (2, "bb"), (4, "d")]
    table.write_slice(changes(table, "U- 4 d\nU+ 4 dd\n+ 3 again"))
    assert list(table.scan()) == [(1, "a"), (2, "bb"), (3, "again"), (4, "dd")]
    asked = DataChunk.from_rows(Schema.of(k="bigint"), [(4,), (9,), (3,)])
    rows, found = table.get_rows(asked)
    assert found.tolist() == [1, 0, 1] and next(iter(rows.rows())) == (4, "dd")
    owners, first = table.first_rows(asked)
    assert owners.tolist() == [0, 2] and list(first.rows()) == [(4, "dd"), (3, "again")]
    table.write_slice(changes(table, "- 1 a"))
    assert [row for _, part in table.rows_under(asked.slice(0, 1)) for row in part.rows()] == [(4, "dd")]
    table.commit(epochs.step())
    assert rows_of(table) == rows_of(opened(table.catalog, store, epochs)) == [(2, "bb"), (3, "again"), (4, "dd")]


def test_slices_and_other_writes_of_an_epoch_keep_their_order(table, epochs):
    table.write_slice(changes(table, "+ 1 a\n+ 2 b"))
    table.write_chunk(changes(table, "U- 1 a\nU+ 1 aa\n- 2 b"))
    table.write_slice(changes(table, "+ 2 bb\nU+ 1 aaa"))
    table.delete_row((2, "bb"))
    table.write_slice(changes(table, "+ 3 c"))
    assert rows_of(table) == [(1, "aaa"), (3, "c")]
    table.commit(epochs.step())
    assert rows_of(table) == [(1, "aaa"), (3, "c")]


def test_slices_of_one_row(table, store, epochs):
    for turn in range(3):
        for key in range(40):
            table.write_slice(changes(table, f"U+ {key * 7 % 40} {turn}"))
    assert table.is_dirty
    table.commit(epochs.step())
    assert not table.is_dirty
    assert rows_of(opened(table.catalog, store, epochs)) == [(key, "2") for key in range(40)]


def test_a_key_that_a_slice_has_twice_is_named_at_the_commit(table, epochs):
    table.write_slice(changes(table, "+ 1 a\n+ 2 b\n+ 1 c"))
    with pytest.raises(ConsistencyError, match="twice") as caught:
        table.commit(epochs.step())
    assert (caught.value.table, caught.value.key) == ("t", (1,))


def test_a_table_that_checks_writes_checks_slices_too(store, epochs):
    table = opened(table_of(PAIR, [(0, ASC)], [0]), store, epochs, checks=OpChecks(reads_store=True))
    table.write_slice(changes(table, "+ 1 a"))
    table.commit(epochs.step())
    with pytest.raises(ConsistencyError, match="present"):
        table.write_slice(changes(table, "+ 1 b"))


def test_slices_spill_from_their_limit_on_and_reads_go_on(table, store, epochs, monkeypatch):
    ingested = []
    real = store.ingest_batch
    monkeypatch.setattr(store, "ingest_batch", lambda batch, *rest, **options: ingested.append(len(batch)) or real(
        batch, *rest, **options))
    monkeypatch.setattr(state_table, "SLICE_BYTES", 1_000)
    expected = {}
    for turn in range(8):
        rows = dict.fromkeys(range(turn, 60, 3), f"{turn}{'x' * 10}")
        table.write_slice(changes(table, "\n".join(f"U+ {key} {text}" for key, text in rows.items())))
        expected |= rows
        if turn % 3 == 2:
            assert rows_of(table) == sorted(expected.items())
    assert ingested
    table.commit(epochs.step())
    assert rows_of(table) == sorted(expected.items())


def test_slices_stay_within_their_epoch_without_a_spill(table, store):
    table.write_slice(changes(table, "+ 1 a"))
    assert table.is_dirty and table.size_bytes > 0
    assert opened(table.catalog, store, Epochs()).get_row((1,)) is None


def test_rows_with_generated_keys_are_partitioned_by_their_bits(store, epochs):
    catalog = events()
    table = opened(catalog, store, epochs)
    generator = RowIdGenerator(range(16))
    ids = np.concatenate([generator.next_ids(1_000), generator.next_ids(700)])
    texts = [f"row {number}" for number in range(1_700)]
    for first in range(0, 1_700, 300):
        columns = [pa.array(texts[first : first + 300]), pa.array(ids[first : first + 300])]
        table.write_chunk(StreamChunk(columns, np.zeros(len(columns[0]), np.uint8)))
    table.commit(epochs.step())
    expected = sorted(zip(texts, ids.tolist(), strict=True))
    assert rows_of(table) == expected
    storage = StorageTable(catalog, store)
    assert storage.get_row((int(ids[5]),), epochs.pair.prev) == ("row 5", int(ids[5]))
    parts = [[row for chunk in storage.scan_partition(epochs.pair.prev, part) for row in chunk.rows()]
             for part in storage.partitions(16)]
    assert [{row[1] >> 12 & 1023 for row in part} for part in parts if part] == [
        {vnode} for vnode, part in enumerate(parts) if part]
    in_order = [row for chunk in storage.scan(epochs.pair.prev, ordered=True) for row in chunk.rows()]
    assert in_order == sorted(expected, key=lambda row: row[1])


def test_an_actor_owns_the_vnodes_of_its_generated_keys(store, epochs):
    catalog = events()
    owned = np.arange(16) < 8
    mine = RowIdGenerator(range(8)).next_ids(3_000)
    table = StateTable(catalog, store, owned)
    table.init_epoch(epochs.pair)
    table.write_chunk(StreamChunk([pa.array(["x"] * 3_000), pa.array(mine)], np.zeros(3_000, np.uint8)))
    other = RowIdGenerator(range(8, 16)).next_ids(1)
    with pytest.raises(ConsistencyError, match="not owned"):
        table.write_chunk(StreamChunk([pa.array(["x"]), pa.array(other)], np.zeros(1, np.uint8)))
    assert len(rows_of(table)) == 3_000


@pytest.mark.parametrize("text", ["- a 1", "U- a 1\nU+ b 1"])
def test_a_table_of_new_keys_takes_inserts_only(store, epochs, text):
    table = opened(events(), store, epochs)
    with pytest.raises(ConsistencyError, match="no insert"):
        table.write_chunk(changes(table, text))


@pytest.mark.parametrize("is_read", [False, True])
def test_a_generated_key_that_comes_twice_is_named(store, epochs, is_read):
    table = opened(events(), store, epochs)
    table.write_chunk(changes(table, "+ a 1\n+ b 2"))
    with pytest.raises(ConsistencyError, match="inserted before") as caught:
        if is_read:
            assert rows_of(table) == [("a", 1), ("b", 2)]
        table.write_chunk(changes(table, "+ c 2"))
        table.commit(epochs.step())
    assert caught.value.key == (2,)


def test_a_stored_vnode_is_that_of_its_row(store, epochs):
    catalog = replace(table_of({"vnode": "smallint", "k": "int", "v": "varchar"}, [(0, ASC), (1, ASC)], [0],
                               vnode_count=8), vnode_rule=VnodeRule.STORED)
    table = opened(catalog, store, epochs)
    table.write_chunk(changes(table, "+ 3 1 a\n+ 3 2 b\n+ 7 1 c"))
    assert list(table.scan((3,))) == [(3, 1, "a"), (3, 2, "b")]
    table.commit(epochs.step())
    seven = StorageTable(catalog, store).partitions(8)[7]
    rows = [row for chunk in StorageTable(catalog, store).scan_partition(epochs.pair.prev, seven)
            for row in chunk.rows()]
    assert rows == [(7, 1, "c")]
    with pytest.raises(ValueError, match="a stored vnode 8 of 8"):
        table.write_chunk(changes(table, "+ 8 1 d"))


def test_a_rule_that_does_not_fit_its_key_is_refused(store):
    for catalog in (replace(table_of(PAIR, [(0, ASC)], [0]), vnode_rule=VnodeRule.STORED),
                    replace(table_of({"k": "int", "v": "varchar"}, [(0, ASC)], [0]), vnode_rule=VnodeRule.STORED)):
        StateTable(catalog, store)
    for catalog in (replace(table_of({"k": "varchar"}, [(0, ASC)], [0]), vnode_rule=VnodeRule.STORED),
                    replace(table_of({"k": "int"}, [(0, ASC)], [0]), vnode_rule=VnodeRule.ROW_ID)):
        with pytest.raises(ValueError, match="one column of an integer type"):
            StateTable(catalog, store)


def test_cells_of_slices_are_written_whole(store, epochs):
    catalog = replace(table_of({"k": "int", "a": "int", "b": "int"}, [(0, ASC)], [0]), row_format=RowFormat.CELL)
    table = opened(catalog, store, epochs)
    table.write_slice(changes(table, "+ 1 2 3"))
    table.commit(epochs.step())
    table.write_slice(changes(table, "U- 1 2 3\nU+ 1 2 .\n+ 2 0 0"))
    table.commit(epochs.step())
    assert rows_of(table) == [(1, 2, None), (2, 0, 0)]
    table.write_slice(changes(table, "- 1 2 ."))
    table.commit(epochs.step())
    assert rows_of(table) == [(2, 0, 0)]
