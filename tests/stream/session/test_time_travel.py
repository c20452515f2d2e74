"""FOR SYSTEM_TIME AS OF and SET query_epoch: tables and views as they were at an epoch [R59]."""

import random
import threading
from datetime import UTC, datetime, timedelta

import pytest

import stream
from hummock.epoch import SPILL_MASK, to_unix_ms
from hummock.errors import EpochTooOld, InvalidEpoch
from relational.errors import BindError
from relational.sql.binder import bind_sql
from stream.errors import InvalidStatement
from tests.support.drivers.seeds import run_seed

NEVER_MS = 3_600_000
HISTORY_MS = 600_000


@pytest.fixture
def db():
    with stream.connect("memory://", barrier_interval_ms=NEVER_MS, history_ms=HISTORY_MS) as session:
        session.sql("""CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR); CREATE TABLE u (id INT PRIMARY KEY, n INT);
            CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n, max(v) AS v FROM t;
            CREATE VIEW w AS SELECT t.id, t.v, u.n FROM t JOIN u ON t.id = u.id""")
        yield session


def rows(found):
    table = found.to_arrow() if hasattr(found, "to_arrow") else found
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def moment(epoch):
    """A time at which an epoch was the last one that had begun, as a literal."""
    return (datetime.fromtimestamp(to_unix_ms(epoch) / 1_000, UTC)).isoformat(" ", "milliseconds")


def test_random_histories_are_read_at_each_of_their_epochs(db):
    rng = random.Random(run_seed())
    states, known = [], {}
    for _ in range(12):
        for key in rng.sample(range(8), 3):
            if key in known and rng.random() < 0.4:
                db.sql(f"DELETE FROM t WHERE id = {key}")
                del known[key]
            else:
                known[key] = f"v{rng.randint(0, 99)}"
                db.sql(f"DELETE FROM t WHERE id = {key}; INSERT INTO t VALUES ({key}, '{known[key]}')")
        states.append((db.flush(), dict(known)))
    for epoch, state in rng.sample(states, len(states)):
        at = f"FOR SYSTEM_TIME AS OF {epoch}"
        expected = sorted(state.items(), key=repr)
        assert rows(db.query(f"SELECT id, v FROM t {at}")) == expected
        assert rows(db.sql(f"SELECT id, v FROM t FOR SYSTEM_TIME AS OF '{moment(epoch)}' AS x")) == expected
        assert rows(db.query(f"SELECT n, v FROM m {at}")) == [(len(state), max(state.values(), default=None))]
        key = rng.randrange(8)
        for value in (key, key + 1):
            found = db.query(f"SELECT v FROM t {at} WHERE id = ?", (value,))
            assert rows(found) == [(word,) for word in (state.get(value),) if word is not None]
    (first, before), (last, after) = states[2], states[9]
    found = db.query(f"""SELECT a.id, a.v AS x, b.v AS y FROM t FOR SYSTEM_TIME AS OF {first} AS a
        FULL JOIN t FOR SYSTEM_TIME AS OF {last} AS b ON a.id = b.id WHERE a.v IS DISTINCT FROM b.v""")
    changed = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
    assert len(rows(found)) == len(changed)
    newest = f"SELECT count(*) AS n, (SELECT count(*) FROM t FOR SYSTEM_TIME AS OF {first}) AS k FROM t"
    assert rows(db.query(newest)) == [(len(known), len(before))]


def written(db):
    """(epoch, v of row 1) of three commits."""
    found = []
    db.sql("INSERT INTO u VALUES (1, 7)")
    for value in "abc":
        db.sql(f"DELETE FROM t; INSERT INTO t VALUES (1, '{value}')")
        found.append((db.flush(), value))
    return found


def test_plans_and_prepared_statements_do_not_mix_epochs(db):
    found = written(db)
    db.sql("PREPARE p AS SELECT v FROM t FOR SYSTEM_TIME AS OF $1 WHERE id = $2")
    for _ in range(3):
        for epoch, value in found:
            assert rows(db.query(f"SELECT v FROM t FOR SYSTEM_TIME AS OF {epoch}")) == [(value,)]
            assert rows(db.query("SELECT v FROM t FOR SYSTEM_TIME AS OF ? WHERE id = ?", (epoch, 1))) == [(value,)]
            time = datetime.fromtimestamp(to_unix_ms(epoch) / 1_000, UTC)
            assert rows(db.query("SELECT v FROM t FOR SYSTEM_TIME AS OF :at", {"at": time})) == [(value,)]
            assert rows(db.sql(f"EXECUTE p ({epoch}, 1)")) == [(value,)]
        assert rows(db.query("SELECT v FROM t WHERE id = ?", (1,))) == [("c",)]
        assert rows(db.query("SELECT v FROM t FOR SYSTEM_TIME AS OF now()")) == [("c",)]
    recent = "SELECT v FROM t FOR SYSTEM_TIME AS OF now() - interval '0 hours' WHERE id = ?"
    assert rows(db.query(recent, (1,))) == [("c",)]
    db.sql("UPDATE t SET v = 'd'")
    db.flush()
    assert rows(db.query("SELECT v FROM t FOR SYSTEM_TIME AS OF now()")) == [("d",)]


def test_a_view_is_read_with_all_its_tables_at_one_epoch(db):
    found = written(db)
    db.sql("UPDATE u SET n = 8; FLUSH")
    for epoch, value in found:
        assert rows(db.query(f"SELECT v, n FROM w FOR SYSTEM_TIME AS OF {epoch}")) == [(value, 7)]
    mixed = f"SELECT old.v, old.n, w.v AS y, w.n AS k FROM w FOR SYSTEM_TIME AS OF {found[0][0]} AS old, w"
    assert rows(db.query(mixed)) == [("a", 7, "c", 8)]


def test_changes_may_read_the_past(db):
    (first, _), *_ = written(db)
    assert db.sql(f"INSERT INTO t SELECT 2, v FROM t FOR SYSTEM_TIME AS OF {first}") == 1
    assert db.sql(f"UPDATE t SET v = 'z' WHERE v IN (SELECT 'c' FROM t FOR SYSTEM_TIME AS OF {first})") == 1
    db.sql(f"CREATE TABLE old AS SELECT v FROM t FOR SYSTEM_TIME AS OF {first}")
    db.flush()
    assert rows(db.query("SELECT id, v FROM t")) == [(1, "z"), (2, "a")]
    assert rows(db.query("SELECT v FROM old")) == [("a",)]


def test_a_setting_of_the_session(db):
    found = written(db)
    for epoch, value in found:
        db.sql(f"SET query_epoch = {epoch}")
        assert rows(db.sql("SHOW query_epoch")) == [(str(epoch),)]
        assert rows(db.sql("SELECT v FROM t")) == rows(db.query("SELECT v FROM t WHERE id = ?", (1,))) == [(value,)]
        assert rows(db.table("t").select("v")) == [(value,)]
        assert rows(db.query(f"SELECT v FROM t FOR SYSTEM_TIME AS OF {found[1][0]}")) == [("b",)]
        db.sql("UPDATE u SET n = n + 1")
    db.sql("CREATE TABLE late (x INT)")
    with pytest.raises(BindError, match=r"'late' was created at epoch \d+.*or RESET query_epoch"):
        db.sql("SELECT * FROM late").to_arrow()
    db.sql("RESET query_epoch; FLUSH")
    assert rows(db.query("SELECT v, n FROM w")) == [("c", 10)]


def test_in_a_transaction(db):
    found = written(db)
    with db.transaction():
        db.sql("DELETE FROM t")
        assert rows(db.query(f"SELECT v FROM t FOR SYSTEM_TIME AS OF {found[0][0]}")) == [("a",)]
        assert rows(db.query("SELECT n FROM u")) == [(7,)]
    with pytest.raises(InvalidStatement), db.transaction():
        db.sql("DELETE FROM t")
        db.query(f"SELECT t.v FROM t, t FOR SYSTEM_TIME AS OF {found[0][0]} AS old")


def test_epochs_that_cannot_be_read(db):
    (first, _), *_, (last, _) = written(db)
    with pytest.raises(InvalidEpoch, match="above the committed epoch"):
        db.query(f"SELECT v FROM t FOR SYSTEM_TIME AS OF {last + (1 << 40)}")
    with pytest.raises(InvalidEpoch, match="has not come yet"):
        db.query("SELECT v FROM t FOR SYSTEM_TIME AS OF now() + interval '1 hour'")
    db.sql(f"SET query_epoch = {last + (1 << 40)}")
    with pytest.raises(InvalidEpoch, match="above the committed epoch"):
        db.query("SELECT v FROM t")
    db.sql("RESET ALL")
    assert first & SPILL_MASK == 0 and rows(db.query("SELECT v FROM t")) == [("c",)]


@pytest.mark.parametrize(("ddl", "verb"), [
    ("ALTER TABLE t ADD COLUMN x INT", "altered"), ("ALTER TABLE t RENAME COLUMN v TO word", "altered"),
    ("ALTER TABLE t RENAME TO s; ALTER TABLE s RENAME TO t", "renamed"),
    ("DROP VIEW w; DROP MATERIALIZED VIEW m; DROP TABLE t; CREATE TABLE t (id INT, v INT)", "created"),
])
def test_ddl_after_the_epoch_is_named(db, ddl, verb, tmp_path):
    (first, _), *_ = written(db)
    if "RENAME COLUMN" in ddl:
        db.sql("DROP VIEW w")
    db.sql(ddl)
    with pytest.raises(BindError, match=f"'t' was {verb} at epoch") as error:
        db.query(f"SELECT id FROM t FOR SYSTEM_TIME AS OF {first}")
    assert str(error.value).endswith("^" * len(str(first)))
    after = int(str(error.value).split("at epoch ")[1].split(",")[0])
    assert len(rows(db.query(f"SELECT id FROM t FOR SYSTEM_TIME AS OF {after}"))) == (verb != "created")


def test_objects_are_readable_from_the_epoch_on_that_has_all_their_rows(tmp_path):
    url = f"file://{tmp_path}/store"
    with stream.connect(url, create=True, history_ms=HISTORY_MS, barrier_interval_ms=NEVER_MS) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t SELECT x FROM generate_series(1, 500) AS g(x)")
        before = db.flush()
        db.sql("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM t; CREATE VIEW w AS SELECT * FROM t")
        for name in "nw":
            with pytest.raises(BindError, match=f"'{name}' was created at epoch"):
                db.query(f"SELECT * FROM {name} FOR SYSTEM_TIME AS OF {before}")
        created = db.committed_epoch
        db.sql("DELETE FROM t WHERE id > 3; FLUSH")
        assert rows(db.query(f"SELECT n FROM n FOR SYSTEM_TIME AS OF {created}")) == [(500,)]
    with stream.connect(url, create=True, history_ms=HISTORY_MS, barrier_interval_ms=NEVER_MS) as db:
        assert rows(db.query(f"SELECT n FROM n FOR SYSTEM_TIME AS OF {created}")) == [(500,)]
        with pytest.raises(BindError, match="'n' was created at epoch"):
            db.query(f"SELECT * FROM n FOR SYSTEM_TIME AS OF {before}")


def test_without_a_history_older_epochs_are_refused_once_they_are_compacted(tmp_path):
    with stream.connect(f"file://{tmp_path}/store", create=True, barrier_interval_ms=NEVER_MS, l0_runs=2) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
        first = db.flush()
        query = f"SELECT v FROM t FOR SYSTEM_TIME AS OF {first}"
        refused = threading.Event()
        for number in range(400):
            db.sql(f"DELETE FROM t; INSERT INTO t VALUES (1, {number}); FLUSH")
            try:
                assert rows(db.query(query)) == []
            except EpochTooOld as error:
                assert error.safe_epoch > first
                refused.set()
                break
        assert refused.is_set()


def test_a_newer_index_is_not_read(db):
    found = written(db)
    db.sql("CREATE INDEX i ON t (v)")
    for epoch, value in found:
        assert rows(db.query(f"SELECT id FROM t FOR SYSTEM_TIME AS OF {epoch} WHERE v = '{value}'")) == [(1,)]
        db.sql(f"SET query_epoch = {epoch}")
        assert rows(db.query(f"SELECT id FROM t WHERE v = '{value}'")) == [(1,)]
        db.sql("RESET query_epoch")


def test_an_explained_plan_shows_the_epoch(db):
    epoch = db.flush()
    (statement,) = bind_sql(f"SELECT v FROM t FOR SYSTEM_TIME AS OF {epoch} WHERE id = 1", db._playground.catalog,
                            datetime.now(UTC) + timedelta(0))
    assert f"PointGet t at epoch {epoch} [id = 1]" in db._statements.explain(statement)
