"""StateTable: consistency checks, spills, vnode moves, watermarks, replicated and fresh tables."""

import logging
from itertools import chain

import numpy as np
import pytest

import hummock
from hummock.store.memory_store import MemoryStateStore
from relational.chunk import DataChunk, StreamChunk, VnodeMap
from relational.errors import ConsistencyError
from relational.table import scan
from relational.table.state_table import OpChecks, StateTable
from relational.table.storage_table import StorageTable
from relational.types import DESCENDING, OrderType, Schema
from tests.relational.table.test_state_table import ASC, Epochs, opened, table_of
from tests.support.drivers.pretty import from_pretty
from tests.support.drivers.seeds import seeds

pytestmark = pytest.mark.usefixtures("row_format")
PAIR = {"k": "bigint", "v": "varchar"}
STRICT = OpChecks(reads_store=True)
LENIENT = OpChecks(reads_store=True, raises=False)


@pytest.fixture
def store():
    return MemoryStateStore()


@pytest.fixture
def epochs():
    return Epochs()


def table_with(store, epochs, rows, **options):
    """A table with `options` and the committed `rows`."""
    catalog = table_of(PAIR, [(0, ASC)], [0])
    table = opened(catalog, store, epochs, **options)
    for row in rows:
        table.insert_row(row)
    table.commit(epochs.step())
    return table


CONTRADICTIONS = {
    "insert of a row that is present": "+ 1 new",
    "delete of a row that is not there": "- 7 x",
    "update of a row that is not there": "U- 7 x\nU+ 7 y",
    "insert of a row that was inserted before": "+ 5 a\n+ 5 b",
}


@pytest.mark.parametrize("reason", CONTRADICTIONS)
def test_a_strict_table_asks_the_store(store, epochs, reason):
    table = table_with(store, epochs, [(1, "one")], checks=STRICT)
    schema = table.catalog.schema
    with pytest.raises(ConsistencyError, match=f"table 't': {reason}, key"):
        table.write_chunk(from_pretty(CONTRADICTIONS[reason], schema))
    table.write_chunk(from_pretty("U- 1 one\nU+ 1 two\n- 1 two\n+ 1 three\n+ 2 x\n- 2 x\n+ 2 y", schema))
    rest = [(5, "a")] if "before" in reason else []
    assert list(table.scan()) == [(1, "three"), (2, "y"), *rest]


@pytest.mark.parametrize("reason", CONTRADICTIONS)
def test_a_lenient_table_says_so_and_goes_on(store, epochs, reason, caplog):
    table = table_with(store, epochs, [(1, "one")], checks=LENIENT)
    changes = f"+ 3 before\n{CONTRADICTIONS[reason]}\n+ 4 after\n+ 4 again"
    with caplog.at_level(logging.WARNING):
        table.write_chunk(from_pretty(changes, table.catalog.schema))
    assert [record.getMessage() for record in caplog.records] == [
        f"table 't': {reason}, key {(int(CONTRADICTIONS[reason].split()[1]),)!r}; "
        "carried out as it came, as were 1 more of one call"]
    outcome = {"insert of a row that is present": [(1, "new")], "delete of a row that is not there": [(1, "one")],
               "update of a row that is not there": [(1, "one"), (7, "y")],
               "insert of a row that was inserted before": [(1, "one"), (5, "b")]}[reason]
    expected = sorted([*outcome, (3, "before"), (4, "again")])
    assert list(table.scan()) == expected
    table.commit(epochs.step())
    assert list(table.scan()) == expected


@pytest.mark.parametrize("asked", ["get", "scan", "prefix", "commit"])
def test_rows_behind_a_refused_one_stay_as_they_were(store, epochs, asked):
    """They were looked up before the error, and must not count as changed."""
    table = table_with(store, epochs, [(1, "one"), (2, "two"), (3, "three")])
    with pytest.raises(ConsistencyError):
        changes = "- 1 one\n- 1 one\n- 2 two\nU- 3 three\nU+ 3 x"
        table.write_chunk(from_pretty(changes, table.catalog.schema))
    if asked == "get":
        assert [table.get_row((key,)) for key in (1, 2, 3)] == [None, (2, "two"), (3, "three")]
    elif asked == "prefix":
        prefixes = DataChunk.from_rows(Schema.of(k="bigint"), [(2,), (1,)])
        assert [row for _, rows in table.rows_under(prefixes) for row in rows.rows()] == [(2, "two")]
    elif asked == "commit":
        table.commit(epochs.step())
    assert list(table.scan()) == [(2, "two"), (3, "three")]


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_a_table_that_spills_reads_as_one_that_does_not(seed):
    """Spilling every write and spilling none lead to the same reads and the same committed rows."""
    rng = np.random.default_rng(seed)
    catalog = table_of(PAIR, [(0, ASC)], [0])
    tables, clock = [], Epochs()
    for spill_bytes in (0, 1 << 30):
        table = StateTable(catalog, MemoryStateStore(), spill_bytes=spill_bytes)
        table.init_epoch(clock.pair)
        tables.append(table)
    for _ in range(6):
        for _ in range(5):
            rows = [(int(key), f"v{rng.integers(9)}") for key in np.unique(rng.integers(0, 12, 6))]
            ops = "U+" if rng.random() < 0.7 else "-"
            pretty = "\n".join(f"{ops} {key} {value}" for key, value in rows)
            answers = []
            for table in tables:
                present = [key for key, _ in rows if table.get_row((key,)) is not None]
                chosen = [line for line in pretty.split("\n") if ops == "U+" or int(line.split()[1]) in present]
                if chosen:
                    table.write_chunk(from_pretty("\n".join(chosen), catalog.schema))
                answers.append([list(table.scan()), list(table.scan(reverse=True, limit=3))])
            assert answers[0] == answers[1], f"seed {seed}"
        pair = clock.step()
        for table in tables:
            table.commit(pair)
        assert list(tables[0].scan()) == list(tables[1].scan())
    assert not tables[0].is_dirty


def test_a_scan_holds_back_the_spill_until_it_ends(store, epochs):
    table = table_with(store, epochs, [(key, "old") for key in range(4)], spill_bytes=0)
    scan = table.scan()
    assert next(scan) == (0, "old")
    table.insert_row((9, "new"))
    assert table.is_dirty
    assert list(scan) == [(1, "old"), (2, "old"), (3, "old")]
    table.insert_row((10, "new"))
    assert not table.is_dirty
    assert [row[0] for row in table.scan()] == [0, 1, 2, 3, 9, 10]


def test_vnodes_move_between_commits_only(store, epochs):
    catalog = table_of(PAIR, [(0, ASC)], [0])
    two = VnodeMap.even([0, 1])
    parts = [opened(catalog, store, epochs, vnodes=two.bitmap_of(target)) for target in (0, 1)]
    rows = [(key, f"row {key}") for key in range(200)]
    chunk = StreamChunk.inserts(DataChunk.from_rows(catalog.schema, rows))
    for target, part in chunk.split_by_vnode([0], two).items():
        parts[target].write_chunk(part)
    with pytest.raises(ConsistencyError, match="right after a commit"):
        parts[0].update_vnodes(None)
    step = epochs.step()
    for table in parts:
        table.commit(step)
    three = two.rescaled([0, 1, 2])
    parts.append(opened(catalog, store, epochs, vnodes=three.bitmap_of(2)))
    for target in (0, 1):
        parts[target].update_vnodes(three.bitmap_of(target))
    found = [sorted(row for chunk in table.scan_chunks() for row in chunk.rows()) for table in parts]
    assert sorted(chain.from_iterable(found)) == rows and all(found)
    with pytest.raises(ValueError, match="vnodes for a table"):
        parts[0].update_vnodes(np.ones(3, np.uint8))


@pytest.mark.parametrize(("order", "marks", "left"), [
    (ASC, [30], [30, 40, 50, None]), (ASC, [30, 20], [30, 40, 50, None]), (DESCENDING, [30], [None, 50, 40, 30]),
])
def test_rows_below_a_watermark_are_gone_once_it_is_registered(tmp_path, order, marks, left):
    catalog, epochs = table_of(PAIR, [(0, order)], [0]), Epochs()
    with hummock.open(f"file://{tmp_path}", role="writer") as store:
        table = opened(catalog, store, epochs)
        for key in (10, 20, 30, 40, 50, None):
            table.insert_row((key, "x"))
        table.commit(epochs.step())
        store.commit(epochs.pair.prev)
        for mark in marks:
            table.update_watermark(mark)
        table.commit(epochs.step())
        store.commit(epochs.pair.prev)
        assert len(store.version.tables[catalog.id].watermarks[0].marks) == 1, "one entry for all vnodes"
        assert [row[0] for row in table.scan()] == left
        store.compact()
        assert [row[0] for row in table.scan()] == left
        version_id = store.version.id
        table.commit(epochs.step())
        store.commit(epochs.pair.prev)
        assert store.version.id > version_id and len(store.version.tables[catalog.id].watermarks) == 1


@pytest.mark.parametrize("distribution", [[], [0]])
def test_a_scan_shows_rows_that_a_later_commit_hides(tmp_path, distribution):
    """The watermark is committed one checkpoint later; the scan is not read until then."""
    catalog, epochs = table_of(PAIR, [(0, ASC)], distribution), Epochs()
    with hummock.open(f"file://{tmp_path}", role="writer") as store:
        table = opened(catalog, store, epochs)
        for key in (10, 20, 30):
            table.insert_row((key, "x"))
        table.update_watermark(30)
        table.commit(epochs.step())
        scan, reverse = table.scan(), table.scan(reverse=True, limit=2)
        table.commit(epochs.step())
        store.commit(epochs.pair.prev)
        assert [row[0] for row in scan] == [10, 20, 30] and [row[0] for row in reverse] == [30, 20]
        assert [row[0] for row in table.scan()] == [30]


@pytest.mark.parametrize("order", [OrderType(False, True), OrderType(True, False)])
def test_a_watermark_that_would_take_null_is_refused(store, epochs, order):
    table = opened(table_of(PAIR, [(0, order)], [0]), store, epochs)
    with pytest.raises(ValueError, match="NULL is below any watermark"):
        table.update_watermark(1)


def test_a_replicated_table_is_read_here_and_never_uploaded(tmp_path):
    catalog, epochs = table_of(PAIR, [(0, ASC)], [0]), Epochs()
    with hummock.open(f"file://{tmp_path}", role="writer") as store:
        follower = opened(catalog, store, epochs, is_replicated=True)
        follower.insert_row((1, "followed"))
        follower.commit(epochs.step())
        assert follower.get_row((1,)) == (1, "followed")
        store.commit(epochs.pair.prev)
        assert store.version.levels == () or not any(level.runs for level in store.version.levels)
        assert follower.get_row((1,)) is None


def limited(scan_prefixes):
    def answer(prefixes, epoch, *, limit=None):
        owners, batch = scan_prefixes(prefixes, epoch, limit=limit)
        if len(batch) > 3:
            raise OverflowError("as if the rows exceeded 2 GiB")
        return owners, batch

    return answer


def changed_table(store, epochs, distribution):
    """A table with rows of this epoch, and the rows that it had before."""
    columns = {"a": "int", "b": "int", "v": "varchar"}
    table = opened(table_of(columns, [(0, ASC), (1, ASC)], distribution), store, epochs)
    rows = [(a, b, f"{a}.{b}") for a in range(5) for b in range(7)]
    for row in rows:
        table.insert_row(row)
    table.commit(epochs.step())
    table.delete_row(rows[8])
    table.insert_row((1, 99, "new"))
    return table, rows


@pytest.mark.parametrize("at_once", [2, 7, scan.ROWS_AT_ONCE])
@pytest.mark.parametrize("distribution", [[0], []])
def test_all_rows_under_many_prefixes(store, epochs, distribution, at_once, monkeypatch):
    monkeypatch.setattr(scan, "ROWS_AT_ONCE", at_once)
    table, rows = changed_table(store, epochs, distribution or [1])
    asked = DataChunk.from_rows(Schema.of(a="int"), [(1,), (9,), (4,), (1,)])
    expected = [row for row in rows if row != rows[8]] + [(1, 99, "new")]
    for _ in range(2):
        found = [(int(owner), row) for owners, part in table.rows_under(asked)
                 for owner, row in zip(owners, part.rows(), strict=True)]
        assert [owner for owner, _ in found] == sorted(owner for owner, _ in found)
        wanted = [(at, row) for at, (a,) in enumerate(asked.rows()) for row in expected if row[0] == a]
        assert sorted(found) == sorted(wanted)
        monkeypatch.setattr(store, "scan_prefixes", limited(store.scan_prefixes))


def test_rows_under_whole_keys_are_looked_up_fewer_at_a_time_where_they_are_large(store, epochs, monkeypatch):
    table, _ = changed_table(store, epochs, [0])
    asked = DataChunk.from_rows(Schema.of(a="int", b="int"), [(3, 3), (1, 99), (1, 1), (9, 9), (0, 6), (2, 0), (4, 6)])
    get_many, sizes = table._stored.get_many, []

    def limited_get(keys, epoch):
        sizes.append(len(keys))
        if len(keys) > 3:
            raise OverflowError("as if the rows exceeded 2 GiB")
        return get_many(keys, epoch)

    monkeypatch.setattr(table._stored, "get_many", limited_get)
    found = [(int(owner), row) for owners, part in table.rows_under(asked)
             for owner, row in zip(owners, part.rows(), strict=True)]
    assert [row for _, row in found] == [(3, 3, "3.3"), (1, 99, "new"), (0, 6, "0.6"), (2, 0, "2.0"), (4, 6, "4.6")]
    assert [owner for owner, _ in found] == [0, 1, 4, 5, 6]
    assert max(sizes) > 3 >= min(sizes)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_partitions_together_hold_every_row_once(store, epochs, threads):
    catalog = table_of(PAIR, [(0, ASC)], [0], vnode_count=16)
    table = opened(catalog, store, epochs)
    rows = [(key, f"row {key}") for key in range(300)]
    table.write_chunk(StreamChunk.inserts(DataChunk.from_rows(catalog.schema, rows)))
    table.commit(epochs.step())
    storage = StorageTable(catalog, store)
    epoch = epochs.pair.prev
    found = [[row for chunk in storage.scan_partition(epoch, part) for row in chunk.rows()]
             for part in storage.partitions(threads)]
    assert len(found) == threads and all(found) and sorted(chain.from_iterable(found)) == rows
    assert sorted(zip(*storage.to_arrow(epoch, threads).to_pydict().values(), strict=True)) == rows
    assert len(storage.partitions(99)) == 16


@pytest.mark.parametrize("spill_bytes", [0, 1 << 30])
def test_a_fresh_table_has_at_its_commit_what_was_inserted(store, epochs, spill_bytes):
    catalog = table_of(PAIR, [(0, ASC)], [0])
    table = opened(catalog, store, epochs, is_fresh=True, spill_bytes=spill_bytes)
    assert list(table.scan_chunks()) == []
    rng = np.random.default_rng(11)
    keys = rng.permutation(300).tolist()
    for first in range(0, 300, 30):
        rows = "\n".join(f"+ {key} v{key}" for key in keys[first : first + 30])
        table.write_chunk(from_pretty(rows, catalog.schema))
        assert table.is_dirty == (spill_bytes > 0) and (table.size_bytes > 0) == table.is_dirty
    table.commit(epochs.step())
    assert list(table.scan()) == [(key, f"v{key}") for key in range(300)]
    assert list(opened(catalog, store, epochs).scan()) == [(key, f"v{key}") for key in range(300)]


@pytest.mark.parametrize("changes", ["- 1 a", "+ 2 b\nU- 1 a\nU+ 1 c", "U+ 1 b"])
def test_a_fresh_table_takes_inserts_only(store, epochs, changes):
    catalog = table_of(PAIR, [(0, ASC)], [0])
    table = opened(catalog, store, epochs, is_fresh=True)
    with pytest.raises(ConsistencyError, match="no insert") as caught:
        table.write_chunk(from_pretty(changes, catalog.schema))
    assert (caught.value.table, caught.value.key) == ("t", (1,))


def test_a_key_that_a_fresh_table_gets_twice_is_named_at_its_commit(store, epochs):
    table = opened(table_of(PAIR, [(0, ASC)], [0]), store, epochs, is_fresh=True)
    table.insert_row((5, "a"))
    table.insert_row((5, "b"))
    with pytest.raises(ConsistencyError, match="inserted before") as caught:
        table.commit(epochs.step())
    assert caught.value.key == (5,)


def test_a_fresh_table_is_not_read_while_rows_wait(store, epochs):
    catalog = table_of(PAIR, [(0, ASC)], [0])
    table = opened(catalog, store, epochs, is_fresh=True)
    table.insert_row((5, "a"))
    for read in (lambda: table.get_row((5,)), lambda: next(table.scan()), lambda: next(table.scan_chunks()),
                 lambda: table.first_rows(DataChunk.from_rows(Schema(catalog.schema.fields[:1]), [(5,)]))):
        with pytest.raises(ConsistencyError, match="before its first commit"):
            read()


def test_a_fresh_table_has_nothing_to_look_up(store):
    with pytest.raises(ValueError, match="nothing to look up"):
        StateTable(table_of(PAIR, [(0, ASC)], [0]), store, is_fresh=True, checks=STRICT)
