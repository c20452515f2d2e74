"""CREATE TABLE … AS: the table and its first rows are committed at once, or nothing of them is left."""

import gc
import weakref

import pytest

import stream
from relational.errors import Duplicate, EvaluationError
from stream.errors import DuplicateKey, InvalidStatement, JobCreating
from stream.protocol import FirstRows, Step
from tests.stream.test_sources import connected


@pytest.fixture
def db():
    with stream.connect("memory://", parallelism=2, barrier_interval_ms=20) as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, s VARCHAR)")
        session.sql("INSERT INTO t VALUES (1, 1, 'a'), (2, 1, 'b'), (3, NULL, 'c'); FLUSH")
        yield session


def rows(db, query):
    return sorted(tuple(row.values()) for row in db.sql(query).rows())


def test_types_keys_and_options_follow_from_query_and_clauses(db):
    db.sql("CREATE TABLE a AS SELECT id, s, now() AS at FROM t WHERE id < 3")
    assert rows(db, "SELECT id, s FROM a") == [(1, "a"), (2, "b")]
    shown = {row["name"]: row["type"] for row in db.sql("DESCRIBE a").to_pylist()}
    assert shown == {"id": "BIGINT", "s": "VARCHAR", "at": "TIMESTAMPTZ", "_row_id": "BIGINT"}
    db.sql(
        "CREATE TABLE b (x, n, PRIMARY KEY (x)) ON CONFLICT OVERWRITE WITH (vnode_count = 4, row_format = 'cell')"
        " AS SELECT s, COUNT(*) FROM t GROUP BY s"
    )
    table = db._playground.catalog.resolve("b")
    assert (table.pk_indices, table.vnode_count, table.conflict) == ((0,), 4, "overwrite")
    (shown,) = db.sql("SHOW CREATE TABLE b")["definition"].to_pylist()
    assert shown == (
        "CREATE TABLE b (x VARCHAR, n BIGINT, PRIMARY KEY (x)) ON CONFLICT OVERWRITE"
        " WITH (row_format = 'cell', vnode_count = '4')"
    )
    db.sql("DROP TABLE b")
    db.sql(shown)


def test_the_table_is_one_like_any_other(db):
    db.sql("CREATE TABLE c (PRIMARY KEY (id)) AS SELECT id, k FROM t")
    with pytest.raises(DuplicateKey):
        db.sql("INSERT INTO c VALUES (3, 0)")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT COUNT(*) AS n, SUM(id) AS ids FROM c")
    db.sql("UPDATE c SET k = 7 WHERE id = 3; DELETE FROM c WHERE id = 1; INSERT INTO c VALUES (9, 9); FLUSH")
    assert rows(db, "SELECT id, k FROM c") == [(2, 1), (3, 7), (9, 9)] and rows(db, "SELECT * FROM v") == [(3, 14)]
    db.sql("CREATE TABLE empty AS SELECT id FROM t WHERE id > 100")
    assert rows(db, "SELECT id FROM empty") == [] and db.sql("INSERT INTO empty VALUES (1)") == 1
    db.sql("CREATE TABLE values_of APPEND ONLY AS SELECT * FROM (VALUES (1, 'x'), (2, 'y')) AS v ORDER BY 1 LIMIT 1")
    assert rows(db, "SELECT * FROM values_of") == [(1, "x")]


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("CREATE TABLE f AS SELECT 1 / (id - 2) AS x FROM t", EvaluationError, "division by zero"),
        ("CREATE TABLE f (PRIMARY KEY (k)) AS SELECT k FROM t", InvalidStatement, "part of the primary key"),
        ("CREATE TABLE f (PRIMARY KEY (k)) AS SELECT 1 AS k FROM t", DuplicateKey, r"\(1,\)"),
        ("CREATE TABLE f AS SELECT a.id FROM huge AS a", InvalidStatement, "5 rows in one INSERT; the limit is 4"),
    ],
)
def test_a_row_that_fails_leaves_nothing(tmp_path, statement, error, message):
    with connected(tmp_path, statement_rows=4) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT)")
        db.sql("CREATE TABLE huge (id BIGINT PRIMARY KEY)")
        db.sql("INSERT INTO t VALUES (1, 1), (2, 1), (3, NULL); INSERT INTO huge VALUES (1), (2), (3); FLUSH")
        db.sql("INSERT INTO huge VALUES (4), (5); FLUSH")
        before = (db.names(), dict(db._playground.catalog.snapshot.tables))
        with pytest.raises(error, match=message):
            db.sql(statement)
        assert (db.names(), dict(db._playground.catalog.snapshot.tables)) == before
        db.sql("CREATE TABLE f AS SELECT id FROM t")
        assert rows(db, "SELECT id FROM f") == [(1,), (2,), (3,)]


def test_conflicts_among_the_first_rows_follow_the_rule_of_the_table(db):
    for rule, kept in (("OVERWRITE", "c"), ("IGNORE", "a")):
        db.sql(f"CREATE TABLE {rule} (PRIMARY KEY (k)) ON CONFLICT {rule} AS SELECT 1 AS k, s FROM t ORDER BY s")
        assert rows(db, f"SELECT * FROM {rule}") == [(1, kept)]


def test_names_that_exist(db):
    db.sql("CREATE TABLE IF NOT EXISTS t AS SELECT 1 / 0 AS x")
    with pytest.raises(Duplicate):
        db.sql("CREATE TABLE t AS SELECT 1 / 0 AS x")
    assert len(rows(db, "SELECT * FROM t")) == 3


def test_a_view_that_is_being_created_is_refused(db):
    known = db._playground.catalog.snapshot
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT id FROM t")
    view = db._playground.catalog.resolve("v").id
    db._playground.catalog.snapshot.__dict__["creating"] = frozenset({view})
    with pytest.raises(JobCreating):
        db.sql("CREATE TABLE f AS SELECT id FROM v")
    assert known.version + 1 == db._playground.catalog.version


def test_the_fluent_face(db):
    table = db.create_table_as("z", db.sql("SELECT s, id FROM t"), primary_key="id", ttl="1 day", append_only=True)
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert db._playground.catalog.resolve("z").ttl_ms == 86_400_000
    assert "Scan t" in db.explain("CREATE TABLE q AS SELECT id FROM t")


@pytest.mark.parametrize("step", [Step.COLLECT, Step.SYNC, Step.COMMIT, Step.COMMITTED])
def test_a_recovery_in_between_repeats_it_whole(tmp_path, step):
    failures = []
    with connected(tmp_path) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1), (2); FLUSH")
        meta, build = db._playground.meta, db._playground.node.build

        def observed(at, epoch):
            if at is step and built and len(failures) < 1:
                failures.append(epoch)
                raise RuntimeError("the process fails here")

        built = []
        db._playground.node.build = lambda specs: (built.extend(specs), build(specs))[1]
        meta._observer = observed
        db.sql("CREATE TABLE a (PRIMARY KEY (id)) AS SELECT id FROM t")
        assert failures and rows(db, "SELECT id FROM a") == [(1,), (2,)]
    with connected(tmp_path) as db:
        assert rows(db, "SELECT id FROM a") == [(1,), (2,)]


def test_the_first_rows_are_not_kept(db, monkeypatch):
    taken = []
    take = FirstRows.take

    def noted(self):
        chunk = take(self)
        taken.append(weakref.ref(chunk.columns[0].array))
        return chunk

    monkeypatch.setattr(FirstRows, "take", noted)
    db.sql("CREATE TABLE a AS SELECT id FROM t")
    db.sql("INSERT INTO a VALUES (7); FLUSH")
    gc.collect()
    assert len(taken) == 1 and taken[0]() is None
