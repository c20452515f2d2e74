"""Delta joins through SQL: views without rows of their own equal the ordinary join, after random changes, restarts and
backfills, on both engines."""

import random
from contextlib import ExitStack
from threading import Event, Thread

import pytest

import stream
from relational.errors import DependencyError
from relational.plan.serialize import plan_from_text, plan_to_text
from relational.table.storage_table import StorageTable
from stream.executor import backfill_pace
from stream.executor.delta_join import DeltaJoinExecutor
from tests.support.drivers.engine_store import EngineStore
from tests.support.drivers.seeds import run_seed
from tests.support.drivers.waiting import eventually
from tests.support.suites.duck import rows_of

QUERIES = {
    "by_index": "SELECT a.id, a.v, b.id AS other, b.w FROM a JOIN b ON a.k = b.k",
    "by_key": "SELECT a.id, c.k, c.x FROM a JOIN c ON a.k = c.k AND a.v < c.x",
    "filtered": "SELECT a.id, b.id AS other FROM a JOIN b ON a.k = b.k WHERE a.v > 1 AND b.w <> 2",
}


@pytest.fixture
def store():
    with ExitStack() as undo:
        yield EngineStore(undo)


def created(session):
    session.sql("CREATE TABLE a (id INT PRIMARY KEY, k INT, v INT)")
    session.sql("CREATE TABLE b (id INT PRIMARY KEY, k INT, w INT)")
    session.sql("CREATE TABLE c (k INT PRIMARY KEY, x INT)")
    session.sql("CREATE INDEX a_k ON a (k) INCLUDE (v)")
    session.sql("CREATE INDEX b_k ON b (k) INCLUDE (w)")
    return session


def rows(session, query):
    return sorted(rows_of(session.sql(query).to_arrow()), key=repr)


def change(session, rng):
    table, key, value = rng.choice("aabbc"), rng.randrange(12), rng.randrange(5)
    k = rng.choice(["NULL", *map(str, range(4))])
    kind = rng.random()
    if table == "c":
        key %= 4
        session.sql(f"DELETE FROM c WHERE k = {key}")
        if kind < 0.7:
            session.sql(f"INSERT INTO c VALUES ({key}, {value})")
        return
    if kind < 0.3:
        session.sql(f"DELETE FROM {table} WHERE id = {key}")
    elif kind < 0.6:
        session.sql(f"UPDATE {table} SET k = {k}, {'v' if table == 'a' else 'w'} = {value} WHERE id = {key}")
    else:
        session.sql(f"DELETE FROM {table} WHERE id = {key}")
        session.sql(f"INSERT INTO {table} VALUES ({key}, {k}, {value})")


def views(session, names, suffix=""):
    session.sql("SET streaming_enable_delta_join = true")
    for name in names:
        session.sql(f"CREATE MATERIALIZED VIEW {name}{suffix} AS {QUERIES[name]}")


@pytest.mark.parametrize("engines", [(0, 2), (2, 0)])
def test_delta_joins_are_what_the_query_says_at_each_epoch(store, engines):
    rng = random.Random(run_seed())
    session = created(store.open(slots=engines[0], parallelism=rng.choice((1, 3))))
    for _ in range(20):
        change(session, rng)
    views(session, QUERIES)
    for step in range(8):
        for _ in range(rng.randrange(6)):
            change(session, rng)
        session.flush()
        for name, query in QUERIES.items():
            assert rows(session, f"SELECT * FROM {name}") == rows(session, query), (step, name)
        if step % 3 == 2:
            session.close()
            session = store.open(slots=engines[step // 3 % len(engines)])
    names = {table.name for table in session._playground.catalog.snapshot.tables.values()}
    assert not any(".join" in name for name in names), "they have no rows of their own"
    session.close()


def write(session, rng, is_over):
    """Changes some rows of both tables, again and again."""
    first = 1_000
    while not is_over.is_set():
        for table, column in (("a", "v"), ("b", "w")):
            some, kind, first = f"id % 13 = {rng.randrange(13)}", rng.random(), first + 10
            if kind < 0.5:
                session.sql(f"UPDATE {table} SET k = k + 1, {column} = {column} + 1 WHERE {some}")
            elif kind < 0.6:
                session.sql(f"DELETE FROM {table} WHERE {some}")
            else:
                session.sql(f"INSERT INTO {table} VALUES " + ", ".join(
                    f"({key}, {rng.randrange(40)}, {key % 5})" for key in range(first, first + 10)))
        session.flush()


@pytest.mark.parametrize("slots", [0, 2])
def test_a_view_is_created_while_both_tables_change(store, slots, monkeypatch):
    """The left table is read some rows an epoch; changes of the right one meet those that were read so far."""
    for limit in ("FIRST_ROWS", "LEAST_ROWS", "MOST_ROWS"):
        monkeypatch.setattr(backfill_pace, limit, 16)
    slices_of = StorageTable.scan_slices
    monkeypatch.setattr(StorageTable, "scan_slices", lambda table, epoch, part, _: slices_of(table, epoch, part, 8))
    seen, positions_of = [], DeltaJoinExecutor._positions

    def noted(executor, barrier):
        seen.append(positions_of(executor, barrier))
        return seen[-1]

    monkeypatch.setattr(DeltaJoinExecutor, "_positions", noted)
    rng, is_over = random.Random(run_seed()), Event()
    session = created(store.open(slots=slots, parallelism=1 if slots else 2))
    for table in ("a", "b"):
        session.sql(f"INSERT INTO {table} VALUES " + ", ".join(
            f"({key}, {rng.choice(['NULL', *range(40)])}, {key % 5})" for key in range(300)))
    session.flush()
    writer = Thread(target=write, args=(session, rng, is_over), daemon=True)
    writer.start()
    views(session, ["filtered"])
    is_over.set()
    writer.join(60)
    session.flush()
    found = rows(session, "SELECT * FROM filtered")
    assert found == rows(session, QUERIES["filtered"]) and len(found) > 40
    assert sum(each is not None for each in seen) > 2, "the right table changed while the left one was read"
    session.close()


def explained(session, query):
    return "\n".join(session.sql(f"EXPLAIN CREATE MATERIALIZED VIEW v AS {query}")["plan"].to_pylist())


def test_the_session_chooses_and_the_view_remembers(store):
    session = created(store.open())
    assert "DeltaJoin" not in explained(session, QUERIES["by_index"])
    session.sql("SET rw_streaming_enable_delta_join TO on")
    assert "DeltaJoin inner on k = k, rows of a_k and b_k" in explained(session, QUERIES["by_index"])
    views(session, ["by_index"])
    session.sql("RESET streaming_enable_delta_join")
    assert "DeltaJoin" not in explained(session, QUERIES["by_index"])
    view = session.table("by_index").table
    plan = plan_from_text(view.plan, session._playground.catalog.get)
    assert "Delta join inner" in plan.explain() and plan_to_text(plan) == view.plan
    with pytest.raises(DependencyError, match="by_index"):
        session.sql("DROP INDEX a_k")


@pytest.mark.parametrize("query", [
    "SELECT a.id, b.id AS other FROM a LEFT JOIN b ON a.k = b.k",
    "SELECT a.id, b.id AS other FROM a JOIN b ON a.v = b.k",
    "SELECT a.id, b.id AS other FROM a JOIN b ON a.k < b.k",
    "SELECT a.id, b.id AS other FROM a JOIN b ON a.k = b.k + 1",
    "SELECT a.id, b.id AS other FROM a JOIN b ON a.k IS NOT DISTINCT FROM b.k",
    "SELECT x.id, y.id AS other FROM a AS x JOIN a AS y ON x.k = y.k",
    "SELECT a.id, n FROM a JOIN (SELECT k, count(*) AS n FROM b GROUP BY k) AS b ON a.k = b.k",
])  # fmt: skip
def test_other_joins_keep_their_rows(store, query):
    session = created(store.open())
    session.sql("SET streaming_enable_delta_join = true")
    plan = explained(session, query)
    assert "HashJoin" in plan and "DeltaJoin" not in plan


def test_an_index_without_a_column_is_not_used(store):
    session = created(store.open())
    session.sql("ALTER TABLE b ADD COLUMN z INT DEFAULT 3")
    session.sql("SET streaming_enable_delta_join = true")
    assert "DeltaJoin" not in explained(session, "SELECT a.id, b.z FROM a JOIN b ON a.k = b.k")
    session.sql("CREATE INDEX b_z ON b (k) INCLUDE (z)")
    assert "rows of a_k and b_z" in explained(session, "SELECT a.id, b.z FROM a JOIN b ON a.k = b.k")


def test_a_view_that_was_set_aside_catches_up_with_the_changes_of_both_tables(tmp_path, monkeypatch):
    rng, left_of = random.Random(run_seed()), DeltaJoinExecutor._changes_of_left
    with stream.connect(f"file://{tmp_path}", create=True, barrier_interval_ms=10, recovery_backoff_ms=1) as session:
        created(session)
        for _ in range(40):
            change(session, rng)
        views(session, ["by_index"])

        def broken(executor, chunk, epoch):
            raise ZeroDivisionError("injected")

        monkeypatch.setattr(DeltaJoinExecutor, "_changes_of_left", broken)
        session.sql("INSERT INTO a VALUES (100, 1, 1)")
        eventually(lambda: {row["name"]: row["state"] for row in session.sql("SHOW JOBS").to_pylist()}["by_index"]
                   == "FAILED")
        monkeypatch.setattr(DeltaJoinExecutor, "_changes_of_left", left_of)
        for _ in range(40):
            change(session, rng)
        session.flush()
        session.sql("ALTER MATERIALIZED VIEW by_index RESUME")
        for _ in range(3):
            session.flush()
            with session.at() as snapshot:
                assert rows_of(snapshot.sql("SELECT count(*) AS n FROM by_index").to_arrow()) == rows_of(
                    snapshot.sql("SELECT count(*) AS n FROM a JOIN b ON a.k = b.k").to_arrow())
                found = sorted(rows_of(snapshot.sql("SELECT * FROM by_index").to_arrow()), key=repr)
                assert found == sorted(rows_of(snapshot.sql(QUERIES["by_index"]).to_arrow()), key=repr)
            change(session, rng)


def test_a_table_with_a_filter_does_not_come_between_two_that_meet_by_their_indexes(store):
    session = created(store.open())
    session.sql("CREATE TABLE d (v INT PRIMARY KEY, name VARCHAR)")
    query = "SELECT a.id, b.id AS other FROM a JOIN b ON a.k = b.k JOIN d ON a.v = d.v WHERE d.name = 'x'"
    plans = []
    for is_delta in ("true", "false"):
        session.sql(f"SET streaming_enable_delta_join = {is_delta}")
        plans.append(explained(session, query))
    assert "DeltaJoin inner on k = k" in plans[0]
    assert plans[1].index("Scan b") > plans[1].index("Scan d")
