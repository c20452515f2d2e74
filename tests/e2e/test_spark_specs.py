"""A Spark task reads its part of a table from its read spec alone, and a pinned table stays readable."""

from __future__ import annotations

import gc
import json
import random
import zlib
from contextlib import closing
from pathlib import Path

import pytest

import hummock
from hummock.base.key import KeyRange
from hummock.epoch import EpochGenerator
from hummock.errors import EpochTooOld, InvalidEpoch, InvalidOption, InvalidTask, SnapshotExpired, StoreClosed
from hummock.meta import open_meta_store
from hummock.meta.records import LEASES
from hummock.meta.vacuum.obsolete_files import read_obsolete
from hummock.object_store import open_object_store
from hummock.object_store.base import sstable_meta_path
from hummock.options import CompactionOptions, VacuumOptions
from relational.errors import CatalogError, EvaluationError, NotFound, SourceTextError
from relational.spark.key_filters import OPERATORS, Condition, key_filter
from relational.spark.open_store import OpenStore
from relational.spark.pinned_table import PinnedTable
from relational.spark.read_spec import OPTIONS, KeptFiles, ReadSpec, read_batches, read_chunks
from relational.spark.scan import plan, specs_of
from relational.spark.selection import selection
from tests.support.worlds.shop_store import COLUMNS, Shop


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    shop = Shop.open(tmp_path_factory.mktemp("shop"))
    for _ in range(3):
        shop.change()
        shop.insert(40)
    with shop.session:
        yield shop


def rows_read(specs):
    return [tuple(row.values()) for spec in specs for batch in read_batches(ReadSpec.from_bytes(spec))
            for row in batch.to_pylist()]


def read(table, ranges=None, epoch=None, since=None, slots=4):
    parts = plan(table, ranges or [table.key_range], slots, since)
    epoch = table.epoch if epoch is None else epoch
    return rows_read(specs_of(table, table.columns_of(None), parts, epoch, since))


def test_the_parts_are_the_table_at_each_epoch(shop):
    with PinnedTable(shop.url, "items") as table:
        for epoch, rows in shop.history.items():
            assert sorted(read(table, epoch=epoch)) == sorted(rows.values())


def test_a_part_names_only_files_that_its_ranges_touch(shop, monkeypatch):
    monkeypatch.setattr("relational.spark.scan.LEAST_PART_BYTES", 5_000)
    with PinnedTable(shop.url, "items") as table:
        parts = plan(table, [table.key_range], 4)
        assert len(parts) > 3
        assert parts[0][0].start == table.key_range.start and parts[-1][-1].end == table.key_range.end
        for encoded, part in zip(specs_of(table, (0,), parts, table.epoch, None), parts, strict=True):
            spec = ReadSpec.from_bytes(encoded)
            assert spec.ranges == part
            named = {info.name for info in spec.version.sstables}
            assert named == {info.name for run in table.version.runs for each in part
                             for info in run.overlapping(each.start, each.end)}
        assert sorted(read(table)) == sorted(shop.rows.values())


def test_a_plan_reads_nothing_of_files_that_an_earlier_one_has_seen(shop, monkeypatch):
    monkeypatch.setattr("relational.spark.scan.LEAST_PART_BYTES", 5_000)
    with closing(OpenStore(shop.url)) as store:
        asked, get = [], store.objects.get
        monkeypatch.setattr(store.objects, "get", lambda path, part=None: asked.append(path) or get(path, part))
        with PinnedTable(shop.url, "items", store=store) as first:
            parts = plan(first, [first.key_range], 4)
        seen = set(asked)
        assert len(parts) > 3 and 0 < len(seen) == len(asked)
        shop.insert(5)
        with PinnedTable(shop.url, "items", store=store) as second:
            assert second.epoch > first.epoch
            plan(second, [second.key_range], 4)
        assert len(asked) == len(set(asked))
        monkeypatch.setattr("relational.spark.open_store.KEPT_SAMPLES", 1)
        with PinnedTable(shop.url, "items", store=store) as again:
            assert plan(again, [again.key_range], 4) == plan(again, [again.key_range], 4)


def test_tasks_that_follow_each_other_read_what_they_share_of_files_once(shop, monkeypatch):
    monkeypatch.setattr("relational.spark.scan.LEAST_PART_BYTES", 5_000)
    with closing(open_object_store(shop.url)) as objects, PinnedTable(shop.url, "items") as table:
        files, asked = KeptFiles(objects, OPTIONS), []
        get = objects.get
        monkeypatch.setattr(objects, "get", lambda path, part=None: asked.append(path) or get(path, part))
        parts = plan(table, [table.key_range], 4)
        for encoded in specs_of(table, (0,), parts, table.epoch, None):
            assert sum(rows.visible_rows for rows in read_chunks(ReadSpec.from_bytes(encoded), files)) > 0
            gc.collect()
        metas = [path for path in asked if path == sstable_meta_path(Path(path).stem)]
        assert len(parts) > 3 and len(metas) == len(set(metas)) > 0


def test_a_file_that_is_asked_for_often_pushes_no_other_out(shop, monkeypatch):
    monkeypatch.setattr("relational.spark.read_spec.KEPT_READERS", 2)
    with closing(open_object_store(shop.url)) as objects, PinnedTable(shop.url, "items") as table:
        files, infos = KeptFiles(objects, OPTIONS), list(table.version.sstables)[:3]
        for asked, kept in (((0, 1, 1, 1), {0, 1}), ((0, 2), {0, 2})):
            for number in asked:
                files.reader(infos[number])
            gc.collect()
            assert {number for number, info in enumerate(infos) if files.is_read(info.name)} == kept


@pytest.mark.parametrize("part_bytes", [1 << 20, 3_000])
def test_a_snapshot_and_its_changes_are_the_later_snapshot(shop, monkeypatch, part_bytes):
    monkeypatch.setattr("relational.spark.scan.LEAST_PART_BYTES", part_bytes)
    epochs = sorted(shop.history)
    with PinnedTable(shop.url, "items") as table:
        for since, until in ((a, b) for a in (0, *epochs) for b in epochs if a <= b):
            rows, later = dict(shop.history.get(since, {})), shop.history[until]
            changes = read(table, epoch=until, since=since)
            for op, *row in changes:
                if op in ("-", "U-"):
                    assert rows.pop(tuple(row[:2])) == tuple(row)
                else:
                    assert rows.setdefault(tuple(row[:2]), tuple(row)) == tuple(row)
            assert rows == later
            assert len(changes) >= len({*later.values()} ^ {*shop.history.get(since, {}).values()})


@pytest.mark.parametrize("seed", range(6))
def test_conditions_leave_the_rows_that_meet_them(shop, seed):
    rng = random.Random(seed)
    with PinnedTable(shop.url, "items") as table:
        for _ in range(40):
            given = [Condition(*rng.choice((
                ("g", rng.choice(OPERATORS), rng.randrange(-1, 8)), ("k", rng.choice(OPERATORS), rng.randrange(700)),
                ("g", "=", rng.randrange(7)), ("name", "<", "item 4"), ("v", ">=", 60.0), ("g", "=", 1 << 40),
                ("k", "<=", 5.5)))) for _ in range(rng.randrange(1, 4))]
            found = key_filter(table.catalog, given)
            expected = [row for row in shop.rows.values() if all(meets(row, each) for each in given)]
            rows = [row for row in read(table, found.ranges) if all(meets(row, each) for each in found.rest)]
            assert sorted(rows, key=repr) == sorted(expected, key=repr), given


@pytest.mark.parametrize("seed", range(3))
def test_a_condition_in_sql_leaves_the_rows_that_meet_it_and_tasks_check_what_keys_do_not_answer(shop, seed):
    rng = random.Random(seed)
    terms = ("g = {0}", "{0} < g", "k >= {1}", "{1} > k", "k BETWEEN {0} AND {1}", "v < {0}.5", "name = 'item {0}'",
             "g IN (1, {0})", "(g = {0} OR k = {1})", "k + g > {1}", "NOT g = {0}", "k = {1}.0", "k < {1}.25",
             "g = 1099511627776", "name IS NULL", "g < NULL")
    with PinnedTable(shop.url, "items") as table:
        for _ in range(40):
            text = " AND ".join(rng.sample(terms, rng.randrange(1, 4))).format(rng.randrange(7), rng.randrange(700))
            found = selection(table.catalog, text)
            expected = shop.session.sql(f"SELECT * FROM items WHERE {text}").to_arrow()
            parts = plan(table, found.ranges, 4)
            rows = rows_read(specs_of(table, (0, 1, 2, 3), parts, table.epoch, None, found.rest))
            assert sorted(rows, key=repr) == sorted(zip(*expected.to_pydict().values(), strict=True), key=repr), text
            names = rows_read(specs_of(table, (2,), parts, table.epoch, None, found.rest))
            assert sorted(names, key=repr) == sorted(((row[2],) for row in rows), key=repr), text


@pytest.mark.parametrize(("text", "complaint"), [
    ("k >", "syntax"), ("g + k", "BOOLEAN"), ("k < 3; k > 5", "one condition"), ("", "one condition"),
    ("count(k) > 3", "aggregate"), ("now() > '2024-01-01'", "now"), ("SELECT 1", "subquery"),
    ("nothing = 1", "nothing")])
def test_what_is_no_condition_over_the_table_is_refused_at_its_position(shop, text, complaint):
    with PinnedTable(shop.url, "items") as table, pytest.raises(SourceTextError, match=complaint) as found:
        selection(table.catalog, text)
    assert found.value.text == text


@pytest.mark.parametrize("given", ["g = 1 AND k = 8", "8 = k AND g = 1.0", [("g", "=", 1), ("k", "=", 8)],
                                   "k >= 8 AND g = 1 AND k <= 8"])
def test_what_the_key_answers_is_left_to_no_task(shop, given):
    with PinnedTable(shop.url, "items") as table:
        found = selection(table.catalog, given)
        assert found.rest is None
        assert [row[:2] for row in read(table, found.ranges)] == [(1, 8)]


def test_a_row_for_which_a_condition_has_no_value_fails_the_task(shop):
    with PinnedTable(shop.url, "items") as table:
        found = selection(table.catalog, "10 / g > 2")
        with pytest.raises(EvaluationError, match="zero"):
            rows_read(specs_of(table, (0,), [found.ranges], table.epoch, None, found.rest))


def meets(row, condition):
    value, wanted = row[COLUMNS.index(condition.column)], condition.value
    if value is None:
        return False
    return {"=": value == wanted, "<": value < wanted, "<=": value <= wanted, ">": value > wanted,
            ">=": value >= wanted}[condition.operator]


def test_the_whole_key_leaves_one_key_and_its_distribution_one_vnode(shop):
    with PinnedTable(shop.url, "items") as table:
        whole = key_filter(table.catalog, [Condition("k", "=", 8), Condition("g", "=", 1)])
        assert len(whole.ranges) == 1 and whole.rest == ()
        assert len(read(table, whole.ranges)) == 1
        group = key_filter(table.catalog, [Condition("g", "=", 1), Condition("name", "=", "item 8")])
        assert len(group.ranges) == table.catalog.vnode_count and [each.column for each in group.rest] == ["name"]
        assert key_filter(table.catalog, []).ranges == (KeyRange.table(table.catalog.id),)


def test_what_is_no_readable_epoch_or_table_is_refused(shop):
    for name, error in (("nothing", NotFound), ("a.b.c.d", CatalogError)):
        with pytest.raises((error, ValueError)):
            PinnedTable(shop.url, name)
    with pytest.raises(InvalidOption):
        PinnedTable("memory://", "items")
    with PinnedTable(shop.url, "items", epoch=min(shop.history)) as table:
        assert table.epoch == min(shop.history)
        with pytest.raises(InvalidEpoch):
            table.readable(table.version.max_committed_epoch + (1 << 16))
        with pytest.raises(CatalogError):
            table.columns_of(["g", "nothing"])
    with pytest.raises(StoreClosed):
        table.readable(table.epoch)


def test_a_spec_of_another_format_is_refused(shop):
    with PinnedTable(shop.url, "items") as table:
        (encoded,) = specs_of(table, (0,), [(table.key_range,)], table.epoch, None)
    record = json.loads(zlib.decompress(encoded)) | {"format": 0}
    for bad in (b"", encoded[:-9], zlib.compress(b"{}"), zlib.compress(json.dumps(record).encode())):
        with pytest.raises(InvalidTask):
            ReadSpec.from_bytes(bad)


@pytest.mark.parametrize("held_ms", [None, 600_000], ids=["until it is closed", "for a time"])
def test_a_pinned_table_outlives_compaction_and_vacuum(tmp_path, held_ms):
    shop = Shop.open(tmp_path)
    with shop.session:
        old, new = shop.change(), shop.change()
    table = PinnedTable(shop.url, "items", held_ms=held_ms)
    parts = plan(table, [table.key_range], 1)
    specs = {epoch: specs_of(table, (0, 1, 2, 3), parts, epoch, None) for epoch in (old, new)}
    if held_ms is not None:
        table.close()
    names = {info.name for info in table.version.sstables}
    shape = CompactionOptions(history_ms=0, task_retry_ms=1)
    with hummock.open(shop.url, role="writer", compaction=shape, vacuum=VacuumOptions(grace_ms=0)) as store:
        store.commit(EpochGenerator(last=store.committed_epoch).next())
        assert store.compact(timeout=30)
        store.vacuum()
        assert not names & {info.name for info in store.version.sstables}
        assert store.version.safe_epoch > old
        for epoch, encoded in specs.items():
            assert sorted(rows_read(encoded)) == sorted(shop.history[epoch].values())
        table.close()
        store.vacuum()
        left = {path.stem for path in (tmp_path / "store" / "sst").rglob("*.data")}
        now = {info.name for info in store.version.sstables}
        with closing(open_meta_store(shop.url)) as meta_store:
            kept = {name for row in read_obsolete(meta_store) for name, _ in row.files}
        assert left == now | kept
        assert names <= kept if held_ms else not kept
    with pytest.raises(EpochTooOld):
        PinnedTable(shop.url, "items", epoch=old)


def test_a_table_that_is_not_there_leaves_no_lease(shop):
    def leases():
        return sum("spark-" in key for key, _ in meta_store.list(LEASES))

    meta_store = open_meta_store(shop.url)
    try:
        with PinnedTable(shop.url, "items"):
            assert leases() == 1
        with pytest.raises(NotFound):
            PinnedTable(shop.url, "nothing", held_ms=600_000)
        assert leases() == 0
    finally:
        meta_store.close()


def test_what_nobody_holds_is_given_up(shop):
    table = PinnedTable(shop.url, "items")
    release = table._release
    del table
    gc.collect()
    assert not release.alive


def test_a_lost_lease_is_reported(shop):
    with PinnedTable(shop.url, "items") as table:
        table._pin.is_lost = True
        with pytest.raises(SnapshotExpired):
            plan(table, [table.key_range], 1)
