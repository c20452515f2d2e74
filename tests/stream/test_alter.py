"""ALTER TABLE in a running session: statements, views, handles and readers of old epochs keep working."""

import random
import threading
from collections import Counter

import pytest

import hummock
import stream
from hummock.errors import Fenced
from hummock.options import CompactionOptions
from relational.errors import BindError, CatalogError, DependencyError, NotFound
from stream import functions as f
from stream.errors import InvalidStatement

NEVER_MS = 3_600_000
HISTORY_MS = 600_000      # the tests read old epochs


@pytest.fixture
def db():
    session = stream.connect("memory://", barrier_interval_ms=NEVER_MS, history_ms=HISTORY_MS)
    yield session
    session.abandon()


def rows(relation):
    return sorted((tuple(row.values()) for row in relation.to_arrow().to_pylist()), key=repr)


def test_columns_come_and_go_by_calls(db):
    db.create_table("t", {"id": "bigint", "v": "int"}, primary_key="id", defaults={"v": 7})
    view = db.create_materialized_view("sums", db.table("t").group_by("v").agg(n=f.count()))
    assert db.table("t").insert([{"id": 1}, {"id": 2, "v": 1}]) == 2
    table = db.add_column("t", "note", "varchar", default="none")
    assert table.columns == ("id", "v", "note")
    assert table.insert([(3, 1, "three"), {"id": 4}]) == 2
    db.flush()
    assert rows(table) == [(1, 7, "none"), (2, 1, "none"), (3, 1, "three"), (4, 7, "none")]
    assert rows(view) == [(1, 2), (7, 2)]
    with pytest.raises(DependencyError, match="column 'v' of table 't' is read by sums"):
        db.drop_column("t", "v")
    assert db.drop_column("t", "v", cascade=True).columns == ("id", "note")
    with pytest.raises(NotFound):
        db.table("sums")
    db.flush()
    assert rows(db.table("t")) == [(1, "none"), (2, "none"), (3, "three"), (4, "none")]


def test_a_handle_from_before_writes_and_reads_the_columns_it_has(db):
    old = db.create_table("t", {"id": "bigint", "a": "int", "b": "int"}, primary_key="id")
    new = db.add_column("t", "c", "int", default=5)
    assert old.insert([(1, 2, 3), (2, 3, 4)]) == 2
    assert old.update({"b": 9}, id=1) == 1 and old.delete(id=2) == 1
    db.flush()
    assert rows(new) == [(1, 2, 9, 5)] and rows(old) == [(1, 2, 9)]
    db.drop_column("t", "a")
    with pytest.raises(InvalidStatement, match="a column of this statement was dropped meanwhile"):
        old.insert([(3, 3, 3)])
    with pytest.raises(InvalidStatement, match="dropped meanwhile"):
        old.update({"a": 1}, id=1)
    assert new.update({"c": 6}, id=1) == 1 and old.update({"b": 10}, id=1) == 1
    db.flush()
    assert rows(db.table("t")) == [(1, 10, 6)]


def test_old_epochs_are_read_as_the_reader_asks(db):
    table = db.create_table("t", {"id": "bigint", "a": "int"}, primary_key="id")
    table.insert([(1, 10), (2, 20)])
    first = db.flush()
    db.add_column("t", "b", "int", default=-1)
    db.table("t").insert([(3, 30, 3)])
    second = db.flush()
    db.drop_column("t", "a")
    db.table("t").insert([(4, 4)])
    third = db.flush()
    for _ in range(2):
        with db.at(first) as then:
            assert rows(then.table("t")) == [(1, -1), (2, -1)]
        with db.at(second) as then:
            assert rows(then.table("t")) == [(1, -1), (2, -1), (3, 3)]
            assert then.sql("SELECT b FROM t WHERE id = 3").to_arrow().to_pylist() == [{"b": 3}]
        with db.at(third) as then:
            assert rows(then.table("t")) == [(1, -1), (2, -1), (3, 3), (4, 4)]
    assert rows(table) == [(1, 10), (2, 20), (3, 30), (4, None)], "a handle keeps its columns"


def test_old_epochs_are_the_same_after_compaction_and_restart(tmp_path):
    url, seen = f"file://{tmp_path}/store", {}
    steps = (
        "INSERT INTO t VALUES (1, 1.5), (2, -0.0)",
        "ALTER TABLE t ADD COLUMN note VARCHAR DEFAULT 'old'",
        "INSERT INTO t VALUES (3, 3, 'new')",
        "ALTER TABLE t DROP COLUMN x",
        "UPDATE t SET note = NULL WHERE id = 1",
        "ALTER TABLE t ADD COLUMN x INT[]",
    )
    with stream.connect(url, create=True, barrier_interval_ms=NEVER_MS, history_ms=HISTORY_MS) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, x DOUBLE PRECISION)")
        handles = [db.table("t")]
        for step in steps:
            db.sql(step)
            handles.append(db.table("t"))
            seen[db.flush()] = None
        for epoch in seen:
            with db.at(epoch) as then:
                seen[epoch] = [repr(then.query(handle.plan).to_pylist()) for handle in handles]
        plans = [handle.plan for handle in handles]
    with hummock.open(url) as reader:
        before = {info.name for info in reader.version.sstables}
    shape = CompactionOptions(l0_runs=2, l0_base_bytes=1, history_ms=HISTORY_MS)
    with hummock.open(url, role="writer", compaction=shape) as store:
        assert store.compact(timeout=30) and before.isdisjoint(info.name for info in store.version.sstables)
    for _ in range(2):
        with stream.connect(url, create=True, barrier_interval_ms=NEVER_MS, history_ms=HISTORY_MS) as db:
            for epoch, answers in seen.items():
                with db.at(epoch) as then:
                    assert [repr(then.query(plan).to_pylist()) for plan in plans] == answers
    assert len({answer for answers in seen.values() for answer in answers}) >= 6


def test_views_by_calls_read_one_another(db):
    db.create_schema("shop")
    db.create_table("shop.t", {"id": "bigint", "v": "int"}, primary_key="id").insert([(1, 1), (2, 2), (3, 2)])
    twice = db.create_view("shop.twice", db.table("shop.t").select("id", w=2 * stream.col("v")))
    db.create_materialized_view("n", db.relation("shop.twice").group_by("w").agg(n=f.count()))
    db.create_materialized_view("m", db.sql("SELECT w FROM shop.twice"))
    db.create_view("top", twice.order_by("id").limit(1))
    db.flush()
    assert rows(db.relation("top")) == [(1, 2)] and rows(db.table("n")) == [(2, 1), (4, 2)]
    with pytest.raises(CatalogError, match="'top' is a view, which has no rows of its own"):
        db.table("top")
    with pytest.raises(DependencyError) as caught:
        db.drop("shop.twice")
    assert caught.value.dependents == ("m", "n", "top")
    db.drop_schema("shop", cascade=True)
    assert db.names() == ()


def test_a_view_created_on_an_old_binding_reads_the_columns_it_names(db):
    table = db.create_table("t", {"id": "bigint", "a": "int", "b": "int"}, primary_key="id")
    sums, other = table.group_by("b").agg(n=f.count()), table.group_by("a").agg(n=f.count())
    db.drop_column("t", "a")
    db.add_column("t", "a", "varchar")
    db.table("t").insert([(1, 5, "x"), (2, 5, "y")])
    view = db.create_materialized_view("sums", sums)
    db.flush()
    assert rows(view) == [(5, 2)]
    with pytest.raises(CatalogError, match="a column of table 't' was dropped meanwhile"):
        db.create_materialized_view("other", other)
    assert db.names() == ("sums", "t")


def test_writers_beside_alterations_lose_nothing(db):
    """Four threads write while columns are added and dropped; the view agrees with the table."""
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT, w INT)")
    db.sql("CREATE MATERIALIZED VIEW totals AS SELECT v, COUNT(*) AS n, SUM(w) AS s FROM t GROUP BY v")
    done, refused, is_over = Counter(), [], threading.Event()

    def write(number):
        rng, next_id = random.Random(number), number
        while not is_over.is_set() or done[number] < 20:
            try:
                db.sql(f"INSERT INTO t (id, v, w) VALUES ({next_id}, {rng.randrange(3)}, 1)")
                done[number] += 1
                next_id += 4
                if rng.random() < 0.3:
                    db.sql(f"UPDATE t SET w = w + 1 WHERE id = {next_id - 4}")
            except InvalidStatement as error:
                refused.append(str(error))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for number in range(12):
        db.sql(f"ALTER TABLE t ADD COLUMN c{number} INT DEFAULT {number}")
        if number % 3 == 2:
            db.sql(f"ALTER TABLE t DROP COLUMN c{number - 1}")
    is_over.set()
    for thread in threads:
        thread.join(60)
    db.flush()
    assert all("was dropped meanwhile" in each for each in refused)
    totals = rows(db.sql("SELECT v, COUNT(*) AS n, SUM(w) AS s FROM t GROUP BY v"))
    assert rows(db.sql("SELECT * FROM totals")) == totals
    assert db.sql("SELECT COUNT(*) AS n FROM t").to_arrow()["n"][0].as_py() == sum(done.values())
    assert set(rows(db.sql("SELECT c0, c2, c11 FROM t"))) <= {(0, 2, 11)}


@pytest.mark.parametrize("failures", [1, 2])
def test_an_alter_whose_commit_failed_is_tried_once_more(db, monkeypatch, failures):
    """The actors already use the new columns; a recovery reverts them."""
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)")
    db.sql("CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n FROM t")
    db.sql("INSERT INTO t VALUES (1, 1)")
    db.flush()
    committer = db._playground.meta._barriers._committer
    commit, errors = committer.commit, [OSError("the bucket is away")] * failures

    def failing(*arguments):
        if errors:
            raise errors.pop()
        commit(*arguments)

    monkeypatch.setattr(committer, "commit", failing)
    if failures == 1:
        db.sql("ALTER TABLE t ADD COLUMN c INT DEFAULT 3")
        assert db.table("t").columns == ("id", "v", "c")
    else:
        with pytest.raises(OSError, match="the bucket is away"):
            db.sql("ALTER TABLE t ADD COLUMN c INT DEFAULT 3")
        assert db.table("t").columns == ("id", "v")
    db.sql("INSERT INTO t (id, v) VALUES (2, 2)")
    if failures == 2:
        db.sql("ALTER TABLE t ADD COLUMN c INT DEFAULT 3")
    db.flush()
    assert rows(db.table("t")) == [(1, 1, 3), (2, 2, 3)] and rows(db.table("n")) == [(2,)]


def test_a_statement_evaluated_with_a_column_that_a_recovery_takes_back_is_not_lost(db, monkeypatch):
    """It was sent before the ALTER returned, so it does not contain the column."""
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)")
    db.flush()
    table, committer = db.table("t"), db._playground.meta._barriers._committer
    commit, errors = committer.commit, [OSError("the bucket is away")] * 2

    def failing(*arguments):
        if errors:
            if len(errors) == 2:
                table.insert([(1, 1)])
            raise errors.pop()
        commit(*arguments)

    monkeypatch.setattr(committer, "commit", failing)
    with pytest.raises(OSError, match="the bucket is away"):
        db.sql("ALTER TABLE t ADD COLUMN c INT DEFAULT 3")
    db.flush()
    assert rows(db.table("t")) == [(1, 1)]


def test_ddl_of_a_fenced_session_changes_nothing(tmp_path):
    url = f"file://{tmp_path}/store"
    former = stream.connect(url, create=True, barrier_interval_ms=NEVER_MS)
    former.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    with stream.connect(url, create=True, take_over=True, barrier_interval_ms=NEVER_MS) as latter:
        latter.sql("ALTER TABLE t ADD COLUMN v INT")
        for late in ("ALTER TABLE t ADD COLUMN w INT", "DROP TABLE t", "CREATE SCHEMA s"):
            with pytest.raises(Fenced):
                former.sql(late)
        former.abandon()
        assert latter.table("t").columns == ("id", "v")
        latter.sql("CREATE VIEW w AS SELECT v FROM t")
        assert latter.names() == ("t", "w") and latter.sql("SHOW SCHEMAS").to_pylist() == [{"name": "public"}]


def test_one_ddl_at_a_time_however_many_ask(db):
    """Ten threads create and drop the same names; each call succeeds or fails with a typed error."""
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    answers = Counter()

    def work(number):
        for each in range(4):
            name = f"v{each}"
            for statement in (f"CREATE VIEW {name} AS SELECT id FROM t", f"DROP VIEW {name}"):
                try:
                    db.sql(statement)
                    answers[statement.split()[0]] += 1
                except (CatalogError, BindError) as error:
                    answers[type(error).__name__] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers["CREATE"] - answers["DROP"] == len(db.names()) - 1
    assert set(answers) <= {"CREATE", "DROP", "Duplicate", "NotFound", "BindError"} and answers["CREATE"] >= 4

