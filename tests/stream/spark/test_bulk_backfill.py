"""Views with a bulk backfill: everything but Spark; the tasks run in this process."""

import random

import pytest

import stream
from hummock.errors import Fenced, SnapshotExpired, SparkJobFailed
from hummock.meta.leases import read_leases
from hummock.meta.records import lease_key
from hummock.meta.store.base import MetaOperations
from hummock.object_store.base import sstable_data_path
from relational.catalog.names import ObjectName
from relational.errors import CatalogError, Duplicate, NotFound
from stream.errors import BackfillRefused
from stream.spark.driver import BulkBackfill
from stream.spark.job import SparkTasks
from tests.support.drivers.local_shuffle import LocalTasks
from tests.support.drivers.seeds import run_seed
from tests.support.drivers.stored_views import stored

GROUPS = "SELECT k, COUNT(*) AS c, SUM(v) AS s, MIN(v) AS lo, MAX(v) AS hi, MAX(v::text) AS text FROM t GROUP BY k"
QUERIES = {
    "groups": GROUPS,
    "a projection": "SELECT id, v * 2 AS w FROM t WHERE k > 3",
    "groups of groups": "SELECT c, COUNT(*) AS n, MAX(k) AS top, MIN(k::text) AS text "
    "FROM (SELECT k, COUNT(*) AS c FROM t GROUP BY k) AS q GROUP BY c",
    "all rows": "SELECT COUNT(*) AS c, MAX(v) AS hi FROM t",
}


@pytest.fixture
def rng():
    return random.Random(run_seed())


@pytest.fixture
def session(rng):
    with stream.connect("memory://", barrier_interval_ms=50) as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v INT, note VARCHAR)")
        session.table("t").insert([(n, rng.randrange(20), rng.randrange(-50, 50), "x") for n in range(500)])
        session.flush()
        yield session


def churn(session, rng):
    """Inserts, deletes and updates; some only of columns that no view reads, some that are reverted."""
    for _ in range(6):
        remainder = rng.randrange(9)
        session.sql(f"UPDATE t SET v = -v, k = k + 1 WHERE id % 9 = {remainder}")
        session.sql(f"UPDATE t SET note = 'y' WHERE id % 4 = {rng.randrange(4)}")
        session.sql(f"DELETE FROM t WHERE id % 31 = {rng.randrange(31)}")
        first = session.sql("SELECT MAX(id) AS top FROM t").to_arrow()["top"][0].as_py() + 1
        session.sql(f"INSERT INTO t VALUES ({first}, {rng.randrange(30)}, 999, 'new'), ({first + 1}, NULL, NULL, NULL)")
        session.flush()


def internal_tables(session, view):
    catalog = session._playground.catalog
    return catalog.internal_tables(catalog.resolve(ObjectName(view)).id)


def rows(session, query):
    return sorted(map(repr, session.sql(query).to_arrow().to_pylist()))


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_changes_that_come_meanwhile_are_in_the_view(session, rng, query):
    tasks = LocalTasks(session, rng, lambda: churn(session, rng))
    session.create_materialized_view("mv", session.sql(query), backfill=BulkBackfill(tasks))
    assert rows(session, "SELECT * FROM mv") == rows(session, query)
    session.sql(f"CREATE MATERIALIZED VIEW twin AS {query}")
    assert stored(session, "mv") == stored(session, "twin")
    churn(session, rng)
    assert rows(session, "SELECT * FROM mv") == rows(session, query)
    assert stored(session, "mv") == stored(session, "twin")


def test_distinct_values_of_hashed_groups_are_found_by_the_view_that_goes_on(session, rng):
    """Their hashes are by a key that planning draws: the files and the running job have the same one."""
    query = "SELECT note, COUNT(DISTINCT v) AS n, SUM(DISTINCT k) AS s, COUNT(*) AS c FROM t GROUP BY note"
    tasks = LocalTasks(session, rng, lambda: churn(session, rng))
    session.create_materialized_view("mv", session.sql(query), backfill=BulkBackfill(tasks))
    assert any(table.name.endswith(".distinct0") and len(table.pk) == 3 for table in internal_tables(session, "mv"))
    assert rows(session, "SELECT * FROM mv") == rows(session, query)
    for _ in range(3):
        churn(session, rng)
        assert rows(session, "SELECT * FROM mv") == rows(session, query)
    session.sql("DELETE FROM t")
    session.flush()
    assert rows(session, "SELECT * FROM mv") == []


@pytest.mark.parametrize(("of_table", "of_view"), [(7, 256), (256, 3), (1, 1_000), (32_768, 5)])
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_views_with_other_vnodes_than_their_table(rng, query, of_table, of_view):
    """Each vnode of each table of the view is written by one task."""
    with stream.connect("memory://", barrier_interval_ms=50) as session:
        session.create_table("t", {"id": "bigint", "k": "bigint", "v": "int", "note": "varchar"}, primary_key="id",
                             vnode_count=of_table)
        session.table("t").insert([(n, rng.randrange(20), rng.randrange(-50, 50), "x") for n in range(500)])
        session.flush()
        tasks = LocalTasks(session, rng, lambda: churn(session, rng))
        session.create_materialized_view("mv", session.sql(query), backfill=BulkBackfill(tasks), vnode_count=of_view)
        session.create_materialized_view("twin", session.sql(query), vnode_count=of_view)
        assert rows(session, "SELECT * FROM mv") == rows(session, query)
        assert stored(session, "mv") == stored(session, "twin")
        version = session._playground.manager.version
        found = [(dict(info.prefixes).get(table), version.tables[table].prefix)
                 for info in version.sstables for table in info.table_ids if table in version.tables]
        assert all(prefix == rule for prefix, rule in found) and bool(found) == (query != QUERIES["a projection"]
                                                                                 and "GROUP BY" in query)


@pytest.mark.parametrize("fails", [False, True])
def test_no_shuffle_file_is_left(session, rng, monkeypatch, fails):
    objects = session._playground.storage._sstable_store.object_store
    before = {found.path for found in objects.list("sst/")}
    sent = []

    def checked(reports, before):
        sent.extend(sstable_data_path(report.sent.name) for report in reports if report.sent.name)
        if before and fails:
            raise OSError("no driver today")
        return reports

    monkeypatch.setattr("stream.spark.driver.checked", checked)
    tasks = LocalTasks(session, rng)
    if fails:
        with pytest.raises(OSError, match="no driver today"):
            session.create_materialized_view("mv", session.sql(GROUPS), backfill=BulkBackfill(tasks))
    else:
        session.create_materialized_view("mv", session.sql(GROUPS), backfill=BulkBackfill(tasks))
    left = {found.path for found in objects.list("sst/")} - before
    assert sent and not left & set(sent)


def test_a_view_over_a_view_over_an_empty_table(session, rng):
    session.sql("CREATE TABLE none (k BIGINT, v BIGINT)")
    session.sql("CREATE MATERIALIZED VIEW below AS SELECT k, MAX(v) AS m FROM none GROUP BY k")
    query = "SELECT m, COUNT(*) AS n FROM below GROUP BY m"
    session.create_materialized_view("mv", session.sql(query), backfill=BulkBackfill(LocalTasks(session, rng)))
    assert rows(session, "SELECT * FROM mv") == []
    session.sql("INSERT INTO none VALUES (1, 5), (2, 5), (3, 6)")
    session.flush()
    assert rows(session, "SELECT * FROM mv") == rows(session, query) != []


def test_an_upstream_that_got_columns_meanwhile_is_read_as_it_is_now(session, rng):
    def during():
        session.sql("ALTER TABLE t DROP COLUMN note")
        session.sql("ALTER TABLE t ADD COLUMN more BIGINT DEFAULT 7")
        session.sql("UPDATE t SET v = 5 WHERE id < 100")

    session.create_materialized_view("mv", session.sql(GROUPS), backfill=BulkBackfill(LocalTasks(session, rng, during)))
    assert rows(session, "SELECT * FROM mv") == rows(session, GROUPS)


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("CREATE TABLE mv (x INT)", Duplicate),
        ("ALTER TABLE t DROP COLUMN v", CatalogError),
        ("DROP TABLE t", NotFound),
    ],
)
def test_what_stands_in_the_way_in_the_end_leaves_nothing(session, rng, statement, error):
    tasks = LocalTasks(session, rng, lambda: session.sql(statement))
    with pytest.raises(error):
        session.create_materialized_view("mv", session.sql(GROUPS), backfill=BulkBackfill(tasks))
    assert not session._playground.catalog.refresh().loaded
    assert session._playground.catalog.find("mv") is None or statement.startswith("CREATE")
    assert not [run for run in session._playground.storage.version.runs if run.sstables[0].global_epoch]


def test_a_session_whose_store_another_serves_is_refused_before_any_task(tmp_path, rng):
    with stream.connect(f"file://{tmp_path}", create=True) as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v INT, note VARCHAR)")
        query, asked = session.sql(GROUPS), []
        with stream.connect(f"file://{tmp_path}", create=True, take_over=True) as serving:
            tasks = LocalTasks(session, rng, lambda: asked.append(True))
            with pytest.raises(Fenced, match="playground"):
                session.create_materialized_view("mv", query, backfill=BulkBackfill(tasks))
            assert not asked and serving.names() == ("t",)
        session.abandon()


@pytest.mark.parametrize("fails", [False, True], ids=["the tasks are done", "the tasks fail"])
def test_a_lease_that_ran_out_meanwhile_leaves_nothing(session, rng, fails):
    """The tasks' snapshot and the changes since then may be vacuumed."""
    def during():
        store = session._playground.catalog._store
        store.transaction(MetaOperations(delete=tuple(lease_key(lease.node) for lease in read_leases(store))))
        if fails:
            raise SparkJobFailed("backfill", "ObjectNotFound")

    with pytest.raises(SnapshotExpired):
        session.create_materialized_view(
            "mv", session.sql(GROUPS), backfill=BulkBackfill(LocalTasks(session, rng, during))
        )
    assert session.names() == ("t",) and not session._playground.catalog.refresh().loaded
    session.create_materialized_view("mv", session.sql(GROUPS), backfill=BulkBackfill(LocalTasks(session, rng)))
    assert rows(session, "SELECT * FROM mv") == rows(session, GROUPS)


def test_a_failed_start_drops_what_was_loaded(session, rng, monkeypatch):
    streams = session._playground.meta._streams

    def failing(job, *rest):
        raise OSError("no actor today")

    with monkeypatch.context() as patch:
        patch.setattr(streams, "prepare_create", failing)
        with pytest.raises(OSError, match="no actor today"):
            session.create_materialized_view("mv", session.sql(GROUPS), backfill=BulkBackfill(LocalTasks(session, rng)))
    catalog, version = session._playground.catalog, session._playground.storage.version
    assert not catalog.refresh().loaded and catalog.find("mv") is None
    held = {table for info in version.sstables for table in info.table_ids}
    assert held - set(version.dropped_tables) == {catalog.resolve("t").id}
    session.create_materialized_view("mv", session.sql(GROUPS), backfill=BulkBackfill(LocalTasks(session, rng)))
    assert rows(session, "SELECT * FROM mv") == rows(session, GROUPS)


def test_a_store_in_memory_is_refused_by_name(session):
    with pytest.raises(BackfillRefused, match="memory://"):
        session.create_materialized_view("mv", session.sql(GROUPS), backfill=BulkBackfill(SparkTasks(None)))
    assert session.names() == ("t",)
