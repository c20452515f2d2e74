"""Added and dropped columns: a reader of any schema version sees its own columns, at any epoch, before and after
compaction.
"""

import random
from dataclasses import replace

import pytest

import hummock
from hummock.epoch import EpochPair
from hummock.options import CompactionOptions
from hummock.store.memory_store import MemoryStateStore
from relational.catalog.alter import with_column, without_column
from relational.catalog.objects import ColumnCatalog, TableCatalog, TableKind, value_columns
from relational.chunk import DataChunk, Op, StreamChunk
from relational.errors import CatalogError, ConsistencyError, Duplicate, NotFound
from relational.plan.logical import Scan
from relational.plan.serialize import plan_from_text, plan_to_text
from relational.table.state_table import StateTable
from relational.table.storage_table import StorageTable
from relational.types import DataType, Schema, SortKey
from tests.relational.random_rows import ALL, random_value
from tests.support.drivers.catalogs import table_catalog

KEEPS = CompactionOptions(history_ms=1 << 60, l0_runs=2, l0_base_bytes=1)


def first_version(rng):
    """A lossless and a lossy key column; the first is the distribution key."""
    columns = (
        ColumnCatalog("k", 0, DataType.BIGINT),
        ColumnCatalog("x", 1, DataType.DOUBLE),
        *(ColumnCatalog(f"c{number}", number, rng.choice(ALL)) for number in range(2, rng.randrange(2, 5))),
    )
    pk = (SortKey(1), SortKey(0))
    return TableCatalog(7, "t", TableKind.TABLE, columns, pk, (1, 0), (0,), value_columns(columns, pk), 8)


class History:
    """A table's rows by epoch, each as {column id: value}, and its schema versions."""

    def __init__(self, seed, open_store):
        self.rng = random.Random(seed)
        self.open_store, self.store = open_store, open_store()
        self.versions = [first_version(self.rng)]
        self.epoch = EpochPair(curr=2 << 16, prev=1 << 16)
        self.committed = {}
        self.rows = {}
        self.begin()

    @property
    def catalog(self):
        return self.versions[-1]

    def begin(self):
        self.table = StateTable(self.catalog, self.store)
        self.table.init_epoch(self.epoch)

    def shown(self, version, row):
        return tuple(row.get(column.column_id, column.default) for column in version.columns)

    def write(self):
        changes = []
        for _ in range(self.rng.randrange(1, 9)):
            key = (self.rng.randrange(12), self.rng.choice([0.5, -1.25, 3.0]))
            values = [random_value(self.rng, column.data_type) for column in self.catalog.columns[2:]]
            if key in self.rows:
                changes.append((Op.DELETE, self.shown(self.catalog, self.rows.pop(key))))
            if self.rng.random() < 0.8:
                changes.append((Op.INSERT, (*key, *values)))
                self.rows[key] = dict(zip(self.catalog.column_ids, (*key, *values), strict=True))
        self.table.write_chunk(StreamChunk.from_rows(self.catalog.schema, changes))

    def commit(self):
        ended, self.epoch = self.epoch.curr, EpochPair(curr=self.epoch.curr + (1 << 16), prev=self.epoch.curr)
        self.table.commit(self.epoch)
        self.store.seal_epoch(ended)
        if isinstance(self.store, hummock.HummockStorage):
            self.store.commit(ended)
        self.committed[ended] = dict(self.rows)

    def alter(self):
        catalog, dropped = self.catalog, [column.name for column in self.catalog.columns[2:]]
        if dropped and self.rng.random() < 0.4:
            self.versions.append(without_column(catalog, self.rng.choice(dropped)))
        else:
            data_type, name = self.rng.choice(ALL), f"c{100 + len(self.versions)}"
            default = self.rng.choice([None, random_value(self.rng, data_type)])
            self.versions.append(with_column(catalog, name, data_type, default))
        self.versions[-1] = TableCatalog.from_json(self.versions[-1].to_json())
        self.table.update_catalog(self.catalog)

    def check(self):
        """Reads every epoch in every schema version, by full scan, by scan of two columns, and by key."""
        for version in self.versions:
            table = StorageTable(version, self.store)
            last = len(version.columns) - 1
            narrow = StorageTable(version, self.store, (last, 0))
            for epoch, rows in self.committed.items():
                shown = [self.shown(version, row) for row in rows.values()]
                shown = list(DataChunk.from_rows(version.schema, shown).rows())
                found = [row for chunk in table.scan(epoch) for row in chunk.rows()]
                assert sorted(map(repr, found)) == sorted(map(repr, shown)), (epoch >> 16, version.schema_version)
                found = [row for chunk in narrow.scan(epoch) for row in chunk.rows()]
                assert sorted(map(repr, found)) == sorted(repr((row[last], row[0])) for row in shown)
                for key, row in list(zip(rows, shown, strict=True))[:3]:
                    assert repr(table.get_row(key[::-1], epoch)) == repr(row)

    def run(self, steps):
        for _ in range(steps):
            step = self.rng.choices((self.write, self.alter), (5, 2))[0]
            step()
            self.commit()
        assert len(self.versions) > 1


@pytest.mark.parametrize("seed", range(30))
def test_every_version_reads_every_epoch(seed):
    history = History(seed, MemoryStateStore)
    history.run(12)
    history.check()


@pytest.mark.parametrize("seed", range(3))
def test_old_epochs_are_the_same_after_schema_changes_compaction_and_restart(seed, tmp_path):
    def open_store():
        return hummock.open(f"file://{tmp_path}/store", role="writer", compaction=KEEPS)

    history = History(100 + seed, open_store)
    history.run(10)
    history.check()
    assert history.store.compact(timeout=30) and not history.store.version.levels[0].runs
    history.check()
    history.store.close()
    history.store = open_store()
    history.begin()
    history.check()
    history.run(4)
    assert history.store.compact(timeout=30)
    history.check()
    history.store.close()


def test_a_row_that_had_only_its_key_has_the_default_of_what_came_later():
    table, store = table_catalog("t", Schema.of(k="bigint"), (0,)), MemoryStateStore()
    writer = StateTable(table, store)
    writer.init_epoch(EpochPair(curr=2 << 16, prev=1 << 16))
    writer.write_chunk(StreamChunk.from_rows(table.schema, [(Op.INSERT, (1,))]))
    writer.commit(EpochPair(curr=3 << 16, prev=2 << 16))
    later = with_column(with_column(table, "name", DataType.VARCHAR, "none"), "n", DataType.INT)
    assert StorageTable(later, store).get_row((1,), 2 << 16) == (1, "none", None)
    assert StorageTable(later, store).get_row((2,), 2 << 16) is None


def test_null_that_was_written_is_no_default():
    table, store = table_catalog("t", Schema.of(k="bigint"), (0,)), MemoryStateStore()
    later = with_column(table, "n", DataType.INT, 5)
    writer = StateTable(later, store)
    writer.init_epoch(EpochPair(curr=2 << 16, prev=1 << 16))
    writer.write_chunk(StreamChunk.from_rows(later.schema, [(Op.INSERT, (1, None))]))
    writer.commit(EpochPair(curr=3 << 16, prev=2 << 16))
    assert StorageTable(later, store).get_row((1,), 2 << 16) == (1, None)


def test_ids_of_dropped_columns_never_come_back():
    table = table_catalog("t", Schema.of(k="bigint", v="int"), (0,))
    for number in range(5):
        table = without_column(table, "v")
        table = with_column(table, "v", DataType.VARCHAR)
        assert table.columns[-1].column_id == 2 + number and table.schema_version == 2 * (number + 1)


def test_a_stored_plan_names_columns_whatever_came_and_went_beside_them():
    table = table_catalog("t", Schema.of(k="bigint", a="int", b="int"), (0,))
    text = plan_to_text(Scan(table, (2, 0)))
    altered = with_column(without_column(table, "a"), "c", DataType.INT)
    assert plan_from_text(text, lambda _: altered) == Scan(altered, (1, 0))
    with pytest.raises(CatalogError, match="a column of table 't' was dropped"):
        plan_from_text(text, lambda _: without_column(altered, "b"))


def test_positions_follow_their_columns():
    table = table_catalog("t", Schema.of(a="int", b="int", k="bigint", _row_id="bigint"), (3, 2))
    columns = (*table.columns[:3], replace(table.columns[3], is_hidden=True))
    altered = without_column(replace(table, columns=columns, row_id_index=3), "a")
    assert altered.pk_indices == altered.stream_key == altered.distribution_key == (2, 1)
    assert altered.row_id_index == 2 and altered.value_indices == (0,)
    assert with_column(altered, "c", DataType.INT).visible_indices == (0, 1, 3)


def test_what_cannot_be_altered_says_what_to_do():
    table = table_catalog("t", Schema.of(k="bigint", v="int"), (0,))
    with pytest.raises(Duplicate, match="has a column 'v' already"):
        with_column(table, "v", DataType.INT)
    with pytest.raises(NotFound, match="did you mean 'v'"):
        without_column(table, "vv")
    with pytest.raises(CatalogError, match="part of the primary key of table 't': create another table"):
        without_column(table, "k")
    hidden = (replace(table.columns[0], is_hidden=True), table.columns[1])
    with pytest.raises(CatalogError, match="only column of table 't': DROP TABLE"):
        without_column(replace(table, columns=hidden), "v")
    with pytest.raises(CatalogError, match="is a materialized view: its columns are those of its query"):
        with_column(replace(table, kind=TableKind.MATERIALIZED_VIEW), "w", DataType.INT)
    with pytest.raises(CatalogError, match="come from a connector"):
        without_column(replace(table, connector={"connector": "files"}), "v")


@pytest.mark.parametrize("data_type", ALL, ids=str)
def test_a_default_of_every_type_survives_the_catalogs_json(data_type):
    rng = random.Random(str(data_type))
    for _ in range(50):
        column = ColumnCatalog("c", 3, data_type, default=random_value(rng, data_type))
        assert repr(ColumnCatalog.from_json(column.to_json())) == repr(column)


def test_columns_change_right_after_a_commit_only():
    table = table_catalog("t", Schema.of(k="bigint"), (0,))
    writer = StateTable(table, MemoryStateStore())
    writer.init_epoch(EpochPair(curr=2 << 16, prev=1 << 16))
    writer.insert_row((1,))
    with pytest.raises(ConsistencyError, match="right after a commit"):
        writer.update_catalog(with_column(table, "n", DataType.INT))
