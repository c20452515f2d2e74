"""Bulk loads of a session: all rows become visible at one epoch or none do, and no intermediate state is visible."""

from __future__ import annotations

import threading
from dataclasses import fields

import pytest

import stream
from hummock.compactor import Compactor
from hummock.errors import Fenced, InvalidOption, LoadRefused, SnapshotExpired, SparkJobCancelled, SparkJobFailed
from hummock.maintenance import Maintenance
from hummock.meta.leases import read_leases
from hummock.meta.records import lease_key, vacuumed_key
from hummock.meta.store.base import MetaOperations
from hummock.meta.vacuum.vacuum import Vacuum
from hummock.options import CompactionOptions, VacuumOptions
from hummock.store.backpressure import SLOWEST_BYTES_PER_SECOND, debt_share
from relational.errors import CatalogError, Duplicate, NotFound
from stream.errors import BulkLoadRefused, DuplicateKey, DuplicateRows, TableLoading
from stream.session.bulk_load import MODES
from tests.support.drivers.local_load import LocalFrame, install

NEVER_MS = 3_600_000
HISTORY_MS = 600_000      # the tests read old epochs
SHALLOW = CompactionOptions(l0_runs=2, l0_runs_slowdown=2, l0_runs_limit=6, l0_base_bytes=1)
TYPES = {"id": "bigint", "v": "varchar"}


def frame(ids, mark="loaded", during=lambda: None):
    ids = list(ids)
    return LocalFrame({"id": ids, "v": [f"{mark} {number}" for number in ids]}, TYPES, during)


def vars_of(options):
    """The options that differ from the defaults."""
    usual = CompactionOptions()
    return {field.name: getattr(options, field.name) for field in fields(options)
            if getattr(options, field.name) != getattr(usual, field.name)}


@pytest.fixture
def db(tmp_path, monkeypatch):
    install(monkeypatch)
    session = stream.connect(f"file://{tmp_path}", create=True, barrier_interval_ms=NEVER_MS, history_ms=HISTORY_MS)
    session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
    session.sql("CREATE TABLE other (id BIGINT PRIMARY KEY, v VARCHAR)")
    session.sql("CREATE MATERIALIZED VIEW counted AS SELECT COUNT(*) AS n FROM other")
    yield session
    session.abandon()


def rows(db, table="t"):
    found = db.sql(f"SELECT * FROM {table}").to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def expected(*marked):
    return sorted((number, f"{mark} {number}") for mark, ids in marked for number in ids)


def objects_of(db):
    return db._playground.storage._sstable_store.object_store


def orphans(db):
    """Runs vacuum and returns the number of orphans it removed."""
    playground = db._playground
    vacuum = Vacuum(playground.catalog._store, objects_of(db), options=VacuumOptions(grace_ms=0))
    report = vacuum.run()
    live = {info.name for info in playground.manager.refresh().stored_files}
    there = {found.path.rsplit("/", 1)[-1].split(".")[0] for found in objects_of(db).list("sst/")}
    assert live == there
    return report.removed.files


class TestAppend:
    def test_rows_are_there_at_one_epoch_in_files_at_the_bottom(self, db):
        before = db.committed_epoch
        report = db.bulk_load(frame(range(500)), "t")
        assert rows(db) == expected(("loaded", range(500)))
        with db.at(before) as snapshot:
            assert snapshot.sql("SELECT * FROM t").to_arrow().num_rows == 0
        with db.at(report.epoch) as snapshot:
            assert snapshot.sql("SELECT * FROM t").to_arrow().num_rows == 500
        assert (report.rows, report.level, report.debt_bytes) == (500, 6, 0)
        assert "500 rows in 3 files" in repr(report) and "level 6, nothing to compact" in repr(report)
        assert db._playground.manager.compaction_debt() == 0

    def test_statements_before_and_after_it_are_kept(self, db):
        db.sql("INSERT INTO t VALUES (1, 'old 1'), (1000, 'old 1000')")
        report = db.bulk_load(frame(range(100, 200)), "t")
        assert report.level == 0 and report.debt_bytes == report.data_bytes > 0
        db.sql("DELETE FROM t WHERE id = 150 OR id = 1")
        db.sql("UPDATE t SET v = 'new' WHERE id = 151")
        db.flush()
        left = [number for number in range(100, 200) if number not in (150, 151)]
        assert rows(db) == sorted([*expected(("loaded", left), ("old", [1000])), (151, "new")])

    def test_what_the_table_remembered_of_its_rows_is_read_anew(self, db):
        """The row cache has the key as absent."""
        db.sql("INSERT INTO t VALUES (5, 'x'), (6, 'y')")
        db.sql("DELETE FROM t WHERE id = 5")
        assert db.sql("DELETE FROM t WHERE id = 7") == 0
        db.bulk_load(frame([5, 7, 8]), "t")
        for number in (5, 7, 8):
            with pytest.raises(DuplicateKey):
                db.sql(f"INSERT INTO t VALUES ({number}, 'again')")
        assert db.table("t").get(7) == {"id": 7, "v": "loaded 7"}
        assert db.sql("UPDATE t SET v = 'changed' WHERE id = 5") == 1
        db.flush()
        assert db.table("t").get(5)["v"] == "changed"

    def test_duplicates_of_stored_rows_and_among_the_loaded(self, db):
        db.sql("INSERT INTO t VALUES (1, 'old 1'), (2, 'old 2'), (3, 'old 3')")
        db.sql("DELETE FROM t WHERE id = 3")
        for ids, count in (([2, 3, 4], 1), ([10, 11, 10], 1), ([1, 2, 20, 20], 1)):
            with pytest.raises(DuplicateRows) as caught:
                db.bulk_load(frame(ids), "t")
            assert caught.value.count >= count and set(caught.value.keys) <= {(1,), (2,), (10,), (20,)}
            assert rows(db) == expected(("old", [1, 2]))
        assert orphans(db) > 0
        assert db.bulk_load(frame([2, 3, 4]), "t", on_duplicate="first").rows_dropped == 1
        assert rows(db) == expected(("old", [1, 2]), ("loaded", [3, 4]))
        assert db.bulk_load(frame([2, 5], "newer"), "t", on_duplicate="last").rows == 2
        assert rows(db) == expected(("old", [1]), ("loaded", [3, 4]), ("newer", [2, 5]))

    def test_a_repeated_load_is_the_first_one(self, db):
        first = db.bulk_load(frame(range(9)), "t", load_id="nightly")
        again = db.bulk_load(frame(range(50, 60)), "t", load_id="nightly")
        assert again.was_repeated and (again.epoch, again.rows) == (first.epoch, 9)
        assert "before this call" in repr(again) and len(rows(db)) == 9

    def test_an_empty_frame_is_a_load_too(self, db):
        assert db.bulk_load(frame([]), "t").rows == 0
        assert rows(db) == []

    def test_columns_that_are_missing_hold_their_defaults(self, db):
        db.sql("CREATE TABLE d (id BIGINT PRIMARY KEY, v VARCHAR DEFAULT 'none', w INT)")
        db.bulk_load(LocalFrame({"id": [1]}, {"id": "bigint"}), "d")
        assert rows(db, "d") == [(1, "none", None)]


class TestLevel0:
    @pytest.fixture
    def db(self, tmp_path, monkeypatch):
        """A session without background compaction."""
        install(monkeypatch)
        monkeypatch.setattr(Maintenance, "start", lambda maintenance: None)
        session = stream.connect(f"file://{tmp_path}", create=True, barrier_interval_ms=NEVER_MS, **vars_of(SHALLOW))
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
        yield session
        session.abandon()

    @staticmethod
    def waited(db):
        return db._playground.metrics.writer_delay_seconds.labels("level 0")._value.get()

    def test_a_load_waits_by_how_full_it_is_and_is_never_stopped(self, db):
        waits, last = [], {}
        for number in range(9):
            before = self.waited(db)
            ids = range(number, 400)
            report = db.bulk_load(frame(ids, f"load {number}"), "t", on_duplicate="last")
            assert report.level == (0 if number else 6)
            waits.append((self.waited(db) - before) / report.data_bytes)
            last |= {key: f"load {number} {key}" for key in ids}
        runs = [max(0, number - 1) for number in range(9)]      # in level 0 before each load
        shares = [debt_share(count, 0, SHALLOW) for count in runs]
        assert waits == pytest.approx([share * share / SLOWEST_BYTES_PER_SECOND for share in shares])
        assert shares[0] == 0 < shares[5] < shares[-1] == 1
        assert rows(db) == sorted(last.items())
        playground = db._playground
        compactor = Compactor(playground.manager, objects_of(db), SHALLOW)
        while compactor.run_one():
            pass
        compactor.close()
        assert rows(db) == sorted(last.items()) and not playground.manager.refresh().levels[0].runs
        before = self.waited(db)
        db.bulk_load(frame(range(5), "after"), "t", on_duplicate="last")
        assert self.waited(db) == before

    def test_a_load_that_is_cancelled_while_it_waits_leaves_nothing(self, db):
        db.sql("INSERT INTO t VALUES (1, 'old 1')")
        with pytest.raises(SparkJobCancelled):
            db.bulk_load(frame([5]), "t", is_cancelled=lambda: True)
        assert rows(db) == expected(("old", [1]))
        assert db.sql("INSERT INTO t VALUES (5, 'x')") == 1


class TestMeanwhile:
    def test_the_table_takes_no_statement_and_all_else_goes_on(self, db):
        seen = []

        def during():
            for statement in ("INSERT INTO t VALUES (1, 'x')", "DELETE FROM t WHERE id = 1", "UPDATE t SET v = 'x'"):
                with pytest.raises(TableLoading):
                    db.sql(statement)
            db.sql("INSERT INTO other VALUES (1, 'x'), (2, 'y')")
            db.flush()
            seen.append((rows(db, "counted"), rows(db)))

        db.bulk_load(frame(range(20), during=during), "t")
        assert seen == [([(2,)], [])]
        db.sql("INSERT INTO t VALUES (100, 'x')")
        db.flush()
        assert len(rows(db)) == 21

    def test_nothing_can_be_made_that_would_miss_the_rows_nor_what_they_fit_be_changed(self, db):
        def during():
            for statement in ("CREATE MATERIALIZED VIEW late AS SELECT COUNT(*) AS n FROM t", "CREATE INDEX i ON t (v)",
                              "DROP TABLE t", "ALTER TABLE t ADD COLUMN w INT", "ALTER TABLE t DROP COLUMN v"):
                with pytest.raises(TableLoading):
                    db.sql(statement)
            with pytest.raises(BulkLoadRefused, match="another bulk load"):
                db.bulk_load(frame([1]), "t")
            db.bulk_load(frame([77]), "other2")

        db.sql("CREATE TABLE other2 (id BIGINT PRIMARY KEY, v VARCHAR)")
        db.bulk_load(frame(range(20), during=during), "t")
        assert rows(db, "other2") == expected(("loaded", [77]))
        db.sql("CREATE MATERIALIZED VIEW late AS SELECT COUNT(*) AS n FROM t")
        db.sql("INSERT INTO t VALUES (100, 'x')")
        db.flush()
        assert rows(db, "late") == [(21,)]

    def test_a_recovery_opens_no_gap(self, db):
        """Actors that are rebuilt during the load refuse statements, too."""
        def during():
            meta = db._playground.meta
            figures, _ = db.figures, meta.fail(OSError("a part broke"))
            recovered = threading.Event()
            while not recovered.wait(0.01):
                try:
                    db.sql("INSERT INTO other VALUES (1, 'x')")
                    recovered.set()
                except Exception:
                    assert figures is not None
            with pytest.raises(TableLoading):
                db.sql("INSERT INTO t VALUES (1, 'x')")

        db.bulk_load(frame(range(20), during=during), "t")
        assert rows(db) == expected(("loaded", range(20)))
        assert db.sql("INSERT INTO t VALUES (100, 'x')") == 1


class TestRefusals:
    def test_what_follows_the_table_is_named_before_any_job(self, db):
        db.sql("CREATE MATERIALIZED VIEW top AS SELECT MAX(id) AS m FROM other")
        db.sql("CREATE INDEX by_v ON t (v)")
        for table, names in (("other", "counted, top"), ("t", "by_v")):
            for mode in ("append", "overwrite"):
                rows = frame([1])
                with pytest.raises(BulkLoadRefused, match=f"'{table}': {names} would not see the rows: drop"
                                                          ".*, load, and create it again.*bulk backfill") as caught:
                    db.bulk_load(rows, table, mode=mode)
                assert caught.value.table == table and not rows.specs
            assert db.sql(f"INSERT INTO {table} VALUES (1, 'x')") == 1
        db.sql("DROP MATERIALIZED VIEW top")
        db.sql("DROP MATERIALIZED VIEW counted")
        assert db.bulk_load(frame([2]), "other").rows == 1

    @pytest.mark.parametrize("mode", MODES)
    def test_a_session_whose_store_another_serves_is_refused_before_any_job(self, db, tmp_path, mode):
        """Only the process that serves the store may load, and it is not disturbed."""
        with stream.connect(f"file://{tmp_path}", create=True, take_over=True, barrier_interval_ms=NEVER_MS) as serving:
            rows = frame([1])
            with pytest.raises(Fenced, match=r"claimed by 'playground-.*one process has it at a time"):
                db.bulk_load(rows, "made" if mode == "create" else "t", mode=mode,
                             primary_key="id" if mode == "create" else None)
            assert not rows.specs
            assert serving.bulk_load(rows, "t").rows == 1

    def test_what_is_no_plain_table_with_a_key(self, db):
        db.sql("CREATE TABLE keyless (a INT)")
        db.sql("CREATE VIEW plain AS SELECT id FROM t")
        for name, match in (("counted", "only tables"), ("keyless", "primary key"), ("plain", "only tables")):
            with pytest.raises((BulkLoadRefused, CatalogError), match=match):
                db.bulk_load(frame([1]), name)
        with pytest.raises(NotFound):
            db.bulk_load(frame([1]), "nowhere")

    def test_words_that_mean_nothing(self, db):
        rows = frame([1])
        for options in ({"mode": "upsert"}, {"on_duplicate": "ignore"}, {"mode": "create"}, {"primary_key": "id"},
                        {"load_id": "a b"}):
            with pytest.raises(BulkLoadRefused, match=r"mode is|on_duplicate is|primary key|load_id 'a b' is not"):
                db.bulk_load(rows, "t", **options)
        assert not rows.specs
        assert db.sql("INSERT INTO t VALUES (1, 'x')") == 1

    def test_a_store_that_executors_do_not_reach(self, monkeypatch):
        install(monkeypatch)
        with stream.connect("memory://") as db, pytest.raises(InvalidOption, match="executors reach"):
            db.bulk_load(frame([1]), "t")

    def test_a_row_that_the_table_cannot_hold_leaves_nothing(self, db):
        with pytest.raises(BulkLoadRefused, match=r"column 'id', row \d+: .*primary key"):
            db.bulk_load(frame([1, None]), "t")
        assert db.sql("INSERT INTO t VALUES (1, 'x')") == 1

    def test_a_job_that_fails_leaves_nothing(self, db):
        def fail():
            raise SparkJobFailed("job", "no executor is left")

        with pytest.raises(SparkJobFailed):
            db.bulk_load(frame(range(300), during=fail), "t")
        assert rows(db) == [] and orphans(db) == 3
        assert db.sql("INSERT INTO t VALUES (1, 'x')") == 1

    def test_stored_rows_that_went_with_the_lease_are_an_expired_snapshot(self, db):
        def during():
            store = db._playground.catalog._store
            store.transaction(MetaOperations(delete=tuple(lease_key(lease.node) for lease in read_leases(store))))
            raise SparkJobFailed("job", "ObjectNotFound")

        db.sql("INSERT INTO t VALUES (1, 'old 1')")
        with pytest.raises(SnapshotExpired):
            db.bulk_load(frame([5], during=during), "t")
        assert db.bulk_load(frame([5]), "t").rows == 1
        assert rows(db) == expected(("old", [1]), ("loaded", [5]))

    def test_files_that_vacuum_took_are_an_answer_to_the_loader_and_nobody_else(self, db):
        """Other statements of the same checkpoint are committed."""
        def during():
            paths = [found.path for prefix in loading.specs[0].name_prefixes
                     for found in objects_of(db).list(f"sst/{prefix}")]
            store, name = db._playground.catalog._store, paths[0].removeprefix("sst/").partition(".")[0]
            store.transaction(MetaOperations(put={vacuumed_key(name): b"{}"}))
            db.sql("INSERT INTO other VALUES (1, 'x')")

        loading = frame([1], during=during)
        with pytest.raises(LoadRefused, match="vacuum removes"):
            db.bulk_load(loading, "t")
        assert rows(db, "other") == [(1, "x")] and rows(db) == []
        assert db.sql("INSERT INTO t VALUES (1, 'x')") == 1


class TestCreate:
    def test_a_table_appears_with_its_rows(self, db):
        seen = []
        report = db.bulk_load(frame(range(90), during=lambda: seen.append(db.names())), "made", mode="create",
                              primary_key="id")
        assert seen == [("counted", "other", "t")] and report.level == 6
        assert rows(db, "made") == expected(("loaded", range(90)))
        with pytest.raises(DuplicateKey):
            db.sql("INSERT INTO made VALUES (5, 'x')")
        db.sql("CREATE MATERIALIZED VIEW of_made AS SELECT COUNT(*) AS n FROM made")
        db.sql("DELETE FROM made WHERE id < 10")
        db.flush()
        assert rows(db, "of_made") == [(80,)]

    def test_a_name_that_is_taken(self, db):
        with pytest.raises(Duplicate):
            db.bulk_load(frame([1]), "t", mode="create", primary_key="id")

        with pytest.raises(Duplicate):
            db.bulk_load(frame([1], during=lambda: db.sql("CREATE TABLE made (a INT)")), "made", mode="create",
                         primary_key="id")
        assert db.sql("INSERT INTO made VALUES (1)") == 1


class TestOverwrite:
    def test_all_rows_change_at_once(self, db):
        db.sql("INSERT INTO t VALUES (1, 'old 1'), (2, 'old 2')")
        seen = []
        report = db.bulk_load(frame(range(2, 50), during=lambda: seen.append(rows(db))), "t", mode="overwrite")
        assert seen == [expected(("old", [1, 2]))] and report.level == 6
        assert rows(db) == expected(("loaded", range(2, 50)))
        with pytest.raises(DuplicateKey):
            db.sql("INSERT INTO t VALUES (2, 'x')")
        assert db.sql("INSERT INTO t VALUES (1, 'x')") == 1
        db.flush()
        assert len(db._playground.storage.version.dropped_tables) == 1
        db.bulk_load(frame([7], "third"), "t", mode="overwrite")
        assert rows(db) == expected(("third", [7]))

    def test_an_error_leaves_the_old_rows(self, db):
        db.sql("INSERT INTO t VALUES (1, 'old 1')")
        with pytest.raises(DuplicateRows):
            db.bulk_load(frame([5, 5]), "t", mode="overwrite")
        db.sql("INSERT INTO t VALUES (2, 'old 2')")
        db.flush()
        assert rows(db) == expected(("old", [1, 2]))

    def test_views_refuse_it_too(self, db):
        with pytest.raises(BulkLoadRefused, match="counted"):
            db.bulk_load(frame([1]), "other", mode="overwrite")


def test_whoever_opens_the_store_next_finds_the_rows(db, tmp_path):
    db.bulk_load(frame(range(30)), "t")
    db.bulk_load(frame(range(40)), "made", mode="create", primary_key="id")
    db.bulk_load(frame(range(7)), "made", mode="overwrite")
    db.sql("INSERT INTO t VALUES (100, 'x')")
    db.close()
    with stream.connect(f"file://{tmp_path}", create=True, barrier_interval_ms=NEVER_MS) as again:
        assert len(rows(again)) == 31 and len(rows(again, "made")) == 7
        with pytest.raises(DuplicateKey):
            again.sql("INSERT INTO t VALUES (5, 'x')")
        with pytest.raises(DuplicateRows):
            again.bulk_load(frame([100, 101]), "t")
