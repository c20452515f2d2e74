"""BEGIN … COMMIT pins an epoch for queries, and commits changes in one epoch [R58]; cursors. SQLite is the oracle."""

import random
import sqlite3
import threading
from datetime import datetime

import pytest

import stream
from relational.errors import BindError, Duplicate, EvaluationError, NotFound, ParseError
from relational.sql.binder import bind_sql
from stream.errors import (
    DuplicateKey,
    InvalidStatement,
    StatementError,
    TransactionAborted,
    TransactionTooLarge,
)
from tests.support.drivers.seeds import run_seed


@pytest.fixture
def db():
    with stream.connect("memory://", barrier_interval_ms=3_600_000) as session:
        session.sql("""SET rw_implicit_flush = true; CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR);
            CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t; INSERT INTO t VALUES (1, 'a'), (2, 'b')""")
        yield session


def insert_outside(db, *given):
    """Rows of another writer, which take no part in the transaction."""
    insert_outside.batch += 1
    db.ingest(list(given), "t", writer=f"writer-{insert_outside.batch}", batch_id=0, checkpoint="c")


insert_outside.batch = 0


def rows(db, query):
    answer = db.sql(query)
    table = answer.to_arrow() if hasattr(answer, "to_arrow") else answer
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("begin", [
    "BEGIN", "BEGIN READ ONLY", "START TRANSACTION READ ONLY, ISOLATION LEVEL REPEATABLE READ",
    "BEGIN WORK ISOLATION LEVEL SERIALIZABLE READ WRITE",
])
@pytest.mark.parametrize("end", ["COMMIT", "END", "ROLLBACK TRANSACTION", "ABORT WORK"])
def test_the_queries_of_a_transaction_read_one_epoch(db, begin, end):
    db.sql(begin)
    insert_outside(db, (3, "c"))
    both = "SELECT (SELECT n FROM m) AS n, (SELECT count(*) FROM t) AS k"
    assert rows(db, both) == [(2, 2)]
    for _ in range(3):
        db.flush()
    assert rows(db, both) == [(2, 2)]
    db.sql(end)
    assert rows(db, both) == [(3, 3)]


def test_now_is_the_time_of_the_transaction(db):
    db.sql("BEGIN")
    ((first,),) = rows(db, "SELECT now() AS n")
    ((second,),) = rows(db, "SELECT now() AS n")
    assert isinstance(first, datetime) and first == second
    db.sql("COMMIT")


def test_begin_within_and_commit_without_a_transaction_have_no_effect(db):
    db.sql("COMMIT; BEGIN")
    insert_outside(db, (3, "c"))
    db.sql("BEGIN")
    assert rows(db, "SELECT n FROM m") == [(2,)]
    db.sql("END; ROLLBACK")
    assert rows(db, "SELECT n FROM m") == [(3,)]


@pytest.mark.parametrize("text", [
    "CREATE TABLE u (x INT)", "DROP TABLE t", "ALTER TABLE t ADD COLUMN x INT", "FLUSH",
])
def test_ddl_is_refused(db, text):
    db.sql("BEGIN")
    with pytest.raises(InvalidStatement, match="a transaction takes queries, INSERT, UPDATE and DELETE"):
        db.sql(text)
    db.sql("ROLLBACK")
    assert rows(db, "SELECT n FROM m") == [(2,)]


@pytest.mark.parametrize("text", [
    "INSERT INTO t VALUES (9, 'x')", "DELETE FROM t", "UPDATE t SET v = 'x'", "TRUNCATE t", "CREATE TABLE u (x INT)",
])
def test_a_read_only_transaction_refuses_changes(db, text):
    for way in (db.sql, lambda text: db.table("t").insert([(9, "x")])):
        db.sql("BEGIN READ ONLY")
        with pytest.raises(InvalidStatement, match=r"read-only transaction|a transaction takes"):
            way(text)
        db.sql("ROLLBACK")
    assert rows(db, "SELECT n FROM m") == [(2,)]


# -- changes -------------------------------------------------------------------------------------------


def test_changes_are_seen_by_all_at_commit_and_by_none_before(db):
    db.sql("CREATE TABLE u (x INT)")
    db.sql("BEGIN; INSERT INTO t VALUES (3, 'c'); UPDATE t SET v = v || '!' WHERE id > 1; DELETE FROM t WHERE id = 1")
    db.table("u").insert([(1,), (2,)])
    for _ in range(3):
        db.flush()
    with db.at() as now:
        assert now.sql("SELECT (SELECT n FROM m) AS n, (SELECT count(*) FROM u) AS k").rows() == [{"n": 2, "k": 0}]
    assert db.sql("COMMIT") == 1 + 2 + 1 + 2
    assert rows(db, "SELECT id, v FROM t ORDER BY id") == [(2, "b!"), (3, "c!")]
    assert rows(db, "SELECT (SELECT n FROM m) AS n, (SELECT count(*) FROM u) AS k") == [(2, 2)]


@pytest.mark.parametrize("end", ["ROLLBACK", "ABORT WORK"])
def test_rollback_forgets_the_changes(db, end):
    db.sql("BEGIN; DELETE FROM t; INSERT INTO t VALUES (7, 'g')")
    assert db.sql(end) is None
    assert db.sql("BEGIN; COMMIT") is None
    assert rows(db, "SELECT id FROM t ORDER BY id") == [(1,), (2,)]


@pytest.mark.parametrize("options", ["", " WITH (row_format = 'cell')"])
def test_a_change_that_fails_at_commit_undoes_the_others_of_all_tables(db, options):
    db.sql(f"""CREATE TABLE a (k INT PRIMARY KEY, v INT){options}; CREATE TABLE b (k INT PRIMARY KEY, v INT){options};
        CREATE TABLE c (v INT) APPEND ONLY; CREATE MATERIALIZED VIEW all_of AS SELECT 'a' AS s, k, v FROM a
        UNION ALL SELECT 'b', k, v FROM b UNION ALL SELECT 'c', v, v FROM c;
        INSERT INTO a VALUES (1, 1), (2, 2), (3, 3); INSERT INTO b VALUES (1, 10), (2, 20); INSERT INTO c VALUES (0)""")
    before = rows(db, "SELECT s, k, v FROM all_of ORDER BY s, k")
    block = ("BEGIN; UPDATE a SET v = -v WHERE k > 1; DELETE FROM a WHERE v = 1; INSERT INTO a VALUES (9, 9); "
             "INSERT INTO c VALUES (5), (6); ")
    for fault, error in [("INSERT INTO b VALUES (3, 3), (2, 2)", DuplicateKey),
                         ("UPDATE b SET v = v / (k - 2)", InvalidStatement)]:
        with pytest.raises(error):
            db.sql(f"{block}{fault}; COMMIT")
        db.flush()
        assert rows(db, "SELECT s, k, v FROM all_of ORDER BY s, k") == before
        assert rows(db, "SELECT k, v FROM a ORDER BY k") == [(1, 1), (2, 2), (3, 3)]
    assert db.sql(f"{block}INSERT INTO b VALUES (3, 30); COMMIT") == 2 + 1 + 1 + 2 + 1
    assert rows(db, "SELECT s, k, v FROM all_of ORDER BY s, k") == [
        ("a", 2, -2), ("a", 3, -3), ("a", 9, 9), ("b", 1, 10), ("b", 2, 20), ("b", 3, 30), ("c", 0, 0), ("c", 5, 5),
        ("c", 6, 6)]


def _random_change(rng):
    table, key = rng.choice("ab"), rng.randint(1, 12)
    return rng.choice([
        f"INSERT INTO {table} VALUES ({key}, {rng.randint(0, 99)}), ({key + 20}, 0)",
        f"INSERT INTO {table} VALUES ({rng.randint(40, 10_000)}, 1)",
        f"UPDATE {table} SET v = v + {rng.randint(1, 9)} WHERE k <= {key}",
        f"DELETE FROM {table} WHERE k BETWEEN {key} AND {key + 2} OR v % 7 = 3",
    ])


def test_random_blocks_agree_with_sqlite():
    rng = random.Random(run_seed())
    oracle = sqlite3.connect(":memory:", isolation_level=None)
    failed = 0
    with stream.connect("memory://", barrier_interval_ms=2) as db:
        for name in "ab":
            oracle.execute(f"CREATE TABLE {name} (k INT PRIMARY KEY, v INT)")
            db.sql(f"CREATE TABLE {name} (k INT PRIMARY KEY, v INT)")
        db.sql("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n, sum(a.v + b.v) AS s FROM a JOIN b ON a.k = b.k")
        for number in range(60):
            changes = [_random_change(rng) for _ in range(rng.randint(1, 5))]
            is_kept = rng.random() < 0.9
            oracle.execute("BEGIN")
            try:
                for change in changes:
                    oracle.execute(change)
                oracle.execute("COMMIT" if is_kept else "ROLLBACK")
                is_error = False
            except sqlite3.IntegrityError:
                oracle.execute("ROLLBACK")
                is_error, failed = is_kept, failed + is_kept
            text = "; ".join(["BEGIN", *changes, "COMMIT" if is_kept else "ROLLBACK"])
            if is_error:
                with pytest.raises(StatementError):
                    db.sql(text)
            else:
                db.sql(text)
            if number % 6 == 5:
                for name in "ab":
                    query = f"SELECT k, v FROM {name} ORDER BY k"
                    assert rows(db, query) == oracle.execute(query).fetchall(), text
                query = "SELECT count(*) AS n, sum(a.v + b.v) AS s FROM a JOIN b ON a.k = b.k"
                assert [tuple(map(_whole, row)) for row in rows(db, "SELECT n, s FROM m")] == oracle.execute(
                    query).fetchall(), text
    assert failed >= 3


def _whole(value):
    return None if value is None else int(value)


def test_a_block_is_in_one_epoch_whatever_barriers_come():
    with stream.connect("memory://", barrier_interval_ms=1) as db:
        db.sql("""CREATE TABLE a (k INT PRIMARY KEY, v INT); CREATE TABLE b (k INT PRIMARY KEY, v INT);
            CREATE MATERIALIZED VIEW m AS SELECT sum(v) AS v FROM (SELECT v FROM a UNION ALL SELECT v FROM b) AS x;
            INSERT INTO a VALUES (1, 1000); INSERT INTO b VALUES (1, 1000); FLUSH""")
        sums, is_over = set(), threading.Event()

        def look():
            while not is_over.wait(0.002):
                with db.at() as now:
                    (row,) = now.sql("SELECT (SELECT v FROM a) + (SELECT v FROM b) AS s, v FROM m").rows()
                sums.add((row["s"], int(row["v"])))

        reader = threading.Thread(target=look)
        reader.start()
        for step in range(25):
            with db.transaction():
                db.table("a").update({"v": 1_000 - step}, k=1)
                db.sql(f"UPDATE b SET v = {1_000 + step} WHERE k = 1")
        is_over.set()
        reader.join()
        assert sums == {(2_000, 2_000)}
        assert rows(db, "SELECT a.v AS x, b.v AS y FROM a, b") == [(976, 1_024)]


def test_tables_of_a_block_that_a_sink_connects_do_not_wait_for_each_other():
    with stream.connect("memory://", barrier_interval_ms=3_600_000, channel_permits_rows=16, chunk_rows=8) as db:
        db.sql("""CREATE TABLE a (k INT PRIMARY KEY, v INT);
            CREATE TABLE b (k INT PRIMARY KEY, v INT) ON CONFLICT OVERWRITE;
            CREATE SINK s INTO b AS SELECT k + 1000 AS k, v FROM a""")
        db.sql("BEGIN; INSERT INTO b VALUES (1, 1)")
        db.table("a").insert([(k, k) for k in range(500)])
        assert db.sql("COMMIT") == 501
        db.sql("BEGIN; UPDATE a SET v = v + 1; UPDATE b SET v = -1 WHERE k = 1; COMMIT; FLUSH")
        assert rows(db, "SELECT count(*) AS n, sum(v) AS s FROM b") == [(501, 500 * 501 // 2 - 1)]


def test_a_column_that_is_dropped_or_added_before_commit(db):
    db.sql("BEGIN; INSERT INTO t VALUES (3, 'c')")
    db.add_column("t", "w", "INT", default=7)
    db.sql("COMMIT")
    assert rows(db, "SELECT id, w FROM t ORDER BY id") == [(1, 7), (2, 7), (3, 7)]
    db.sql("CREATE TABLE u (x INT, y INT); BEGIN; INSERT INTO u VALUES (1, 1); DELETE FROM t")
    db.drop_column("u", "y")
    with pytest.raises(InvalidStatement, match="a column of this statement was dropped"):
        db.sql("COMMIT")
    db.sql("BEGIN; INSERT INTO u VALUES (1); DELETE FROM t")
    db.drop("u")
    with pytest.raises(InvalidStatement, match="the table was dropped"):
        db.sql("COMMIT")
    assert rows(db, "SELECT count(*) AS n FROM t") == [(3,)]


# -- reads of what was written -------------------------------------------------------------------------


@pytest.mark.parametrize("read", [
    lambda db: db.sql("SELECT * FROM t").to_arrow(),
    lambda db: db.sql("SELECT * FROM above").to_arrow(),
    lambda db: db.query("SELECT v FROM t WHERE id = ?", (1,)),
    lambda db: db.table("t").get(1),
    lambda db: db.sql("INSERT INTO u SELECT id FROM t"),
    lambda db: db.sql("DELETE FROM u WHERE x IN (SELECT id FROM t)"),
    lambda db: db.sql("UPDATE t SET v = 'y' WHERE id IN (SELECT max(id) FROM t)"),
    lambda db: db.sql("DECLARE c CURSOR FOR SELECT id FROM t"),
])
def test_a_table_that_was_written_is_read_after_commit_only(db, read):
    db.sql("CREATE VIEW above AS SELECT id FROM t WHERE id > 0; CREATE TABLE u (x INT)")
    db.query("SELECT v FROM t WHERE id = ?", (1,))  # its plan is kept
    db.sql("BEGIN; SELECT * FROM t; DELETE FROM t WHERE id = 2")
    with pytest.raises(InvalidStatement, match=r"table 't': the transaction has written it.*before COMMIT"):
        read(db)
    db.sql("ROLLBACK")
    read(db)


def test_other_tables_are_read_at_the_epoch_of_the_transaction(db):
    db.sql("CREATE TABLE u (x INT, y VARCHAR); CREATE TABLE w (x INT); INSERT INTO w VALUES (2), (3), (4)")
    db.sql("BEGIN; INSERT INTO u VALUES (0, 'z')")
    insert_outside(db, (3, "c"))
    assert db.sql("INSERT INTO u SELECT id, v FROM t") == 2
    assert rows(db, "SELECT n FROM m") == [(2,)]
    assert db.query("SELECT v FROM t WHERE id = ?", (3,)).num_rows == 0
    assert db.sql("DELETE FROM w WHERE x IN (SELECT id + 1 FROM t)") == -1
    assert db.sql("COMMIT") == 5
    assert rows(db, "SELECT x, y FROM u ORDER BY x") == [(0, "z"), (1, "a"), (2, "b")]
    assert rows(db, "SELECT x FROM w") == [(4,)]


def test_an_index_that_is_newer_than_the_transaction_is_not_read(db):
    db.sql("BEGIN")
    (statement,) = bind_sql("CREATE INDEX i ON t (v)", db._playground.catalog)
    db._playground.meta.ddl.create_job(statement.index)
    assert rows(db, "SELECT id FROM t WHERE v = 'b'") == [(2,)]
    assert db.query("SELECT id FROM t WHERE v = ?", ("b",)).to_pylist() == [{"id": 2}]
    db.sql("COMMIT")


# -- errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "error"), [
    ("SELCT 1", ParseError), ("SELECT nothing FROM t", BindError),
    ("INSERT INTO t VALUES (NULL, 'x')", InvalidStatement),
    ("INSERT INTO t SELECT 1 / (id - id), v FROM t", Exception), ("DROP TABLE t", InvalidStatement),
    ("FETCH c", NotFound), ("EXECUTE p", NotFound),
])
@pytest.mark.parametrize("end", ["ROLLBACK", "COMMIT"])
def test_after_an_error_a_transaction_takes_nothing_but_its_end(db, fault, error, end):
    db.sql("CREATE TABLE u (x INT); BEGIN; INSERT INTO u VALUES (1)")
    with pytest.raises(error):
        db.sql(fault)
    for call in (lambda: db.sql("SELECT 1"), lambda: db.sql("INSERT INTO u VALUES (2)"), lambda: db.sql("BEGIN"),
                 lambda: db.query("SELECT id FROM t WHERE id = ?", (1,)), lambda: db.table("u").insert([(2,)]),
                 lambda: db.table("t").to_arrow(), lambda: db.sql("SHOW TABLES"),
                 lambda: db.executemany("INSERT INTO u VALUES (?)", [(3,)])):
        with pytest.raises(TransactionAborted, match="ROLLBACK ends it") as refused:
            call()
        assert isinstance(refused.value.__cause__, error)
    assert db.sql(end) is None
    assert rows(db, "SELECT (SELECT count(*) FROM u) AS n, (SELECT count(*) FROM t) AS k") == [(0, 2)]


@pytest.mark.parametrize("query", ["SELECT 1 / (id - id) AS q FROM t", "SELECT v, id FROM t WHERE id = 1"])
def test_a_query_of_a_kept_plan_aborts_a_transaction_as_others_do(db, query):
    for _ in range(2):
        kept = db.sql(query)
    db.sql("BEGIN; DELETE FROM t WHERE id = 2")
    with pytest.raises((EvaluationError, InvalidStatement)) as caught:
        kept.to_arrow()
    with pytest.raises(TransactionAborted) as refused:
        db.sql("SELECT 1")
    assert refused.value.__cause__ is caught.value
    db.sql("ROLLBACK")


def test_a_transaction_buffers_a_limited_number_of_bytes():
    with stream.connect("memory://", barrier_interval_ms=3_600_000, transaction_bytes=100_000) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR)")
        for text, count in (("INSERT INTO t VALUES ({}, 'v')", 90), ("DELETE FROM t WHERE id = {}", 97)):
            db.sql("BEGIN")
            for number in range(count):
                db.sql(text.format(number))
            with pytest.raises(TransactionTooLarge, match="transaction_bytes is 100,000") as error:
                for number in range(count, 200):
                    db.sql(text.format(number))
            assert error.value.size > error.value.limit
            with pytest.raises(TransactionAborted):
                db.sql("DELETE FROM t")
            db.sql("ROLLBACK")
        with pytest.raises(TransactionTooLarge), db.transaction():
            db.table("t").insert([(number, "v" * 100) for number in range(2_000)])
        db.sql("BEGIN; INSERT INTO t VALUES (1, 'v'); COMMIT")
        assert rows(db, "SELECT id FROM t") == [(1,)]


# -- the Python face -----------------------------------------------------------------------------------


def test_prepared_statements_and_executemany_take_part(db):
    db.sql("PREPARE p AS INSERT INTO t VALUES ($1, $2)")
    with db.transaction():
        db.sql("EXECUTE p (3, 'c')")
        assert db.executemany("INSERT INTO t VALUES (?, ?)", [(n, "x") for n in range(10, 3_010)]) == 3_000
        assert db.executemany("UPDATE t SET v = ? WHERE id = ?", [("y", n) for n in range(10, 20)]) == -1
        assert db.executemany("DELETE FROM t WHERE id = ?", [(n,) for n in range(20, 3_010)]) == -1
        db.flush()
        with db.at() as now:
            assert now.sql("SELECT n FROM m").rows() == [{"n": 2}]
    assert rows(db, "SELECT n FROM m") == [(13,)]
    assert rows(db, "SELECT DISTINCT v FROM t WHERE id >= 10") == [("y",)]


def test_a_with_block_commits_or_rolls_back(db):
    with db.transaction():
        db.table("t").delete(id=1)
    assert rows(db, "SELECT n FROM m") == [(1,)]
    with pytest.raises(ZeroDivisionError), db.transaction():
        db.table("t").delete()
        raise ZeroDivisionError
    with pytest.raises(InvalidStatement, match="open already"), db.transaction(), db.transaction():
        pass
    with pytest.raises(TransactionAborted), db.transaction():
        db.table("t").delete()
        with pytest.raises(BindError):
            db.sql("SELECT nothing FROM t")
    with pytest.raises(InvalidStatement, match="read-only"), db.transaction(read_only=True):
        db.table("t").delete()
    with pytest.raises(DuplicateKey), db.transaction():
        db.table("t").insert([(5, "e"), (2, "b")])
    assert rows(db, "SELECT id FROM t") == [(2,)]


def test_batches_of_writers_are_committed_beside_an_open_transaction(db):
    with db.transaction():
        db.sql("INSERT INTO t VALUES (10, 'mine')")
        insert_outside(db, (3, "c"), (4, "d"))
        with db.at() as now:
            assert now.sql("SELECT n FROM m").rows() == [{"n": 4}]
        with pytest.raises(DuplicateKey):
            insert_outside(db, (3, "c"))  # which is no error of the transaction
    assert rows(db, "SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,), (4,), (10,)]


def test_a_session_that_closes_forgets_an_open_transaction(tmp_path):
    url = f"file://{tmp_path}/store"
    with stream.connect(url, create=True) as db:
        db.sql("CREATE TABLE t (x INT); BEGIN; INSERT INTO t VALUES (1)")
    with stream.connect(url, create=True) as db:
        assert rows(db, "SELECT x FROM t") == []


def test_a_cursor_gives_the_rows_of_its_query(db):
    db.sql("BEGIN; DECLARE c CURSOR FOR SELECT id, v FROM t ORDER BY id")
    assert rows(db, "FETCH NEXT FROM c") == [(1, "a")]
    assert rows(db, "FETCH 5 IN c") == [(2, "b")]
    assert rows(db, "FETCH c") == []
    db.sql("CLOSE c; COMMIT")
    with pytest.raises(NotFound, match="no cursor 'c'"):
        db.sql("FETCH c")
    db.sql("DECLARE c CURSOR FOR SELECT 1")
    with pytest.raises(Duplicate, match="CLOSE it first"):
        db.sql("DECLARE c CURSOR FOR SELECT 1")
    db.sql("CLOSE c; BEGIN")
    db.sql("DECLARE c NO SCROLL CURSOR WITHOUT HOLD FOR SELECT id FROM t; COMMIT")
    with pytest.raises(NotFound):
        db.sql("FETCH c")
    db.sql("DECLARE c CURSOR WITH HOLD FOR VALUES (1), (2), (3)")
    assert rows(db, "FETCH FORWARD 2 FROM c") == [(1,), (2,)]
    db.sql("BEGIN; COMMIT")
    assert rows(db, "FETCH ALL FROM c") == [(3,)]
    db.sql("CLOSE ALL")
    with pytest.raises(NotFound):
        db.sql("CLOSE c")


def test_cursors_hold_a_limited_number_of_bytes(db, monkeypatch):
    monkeypatch.setattr("stream.session.transaction.CURSOR_BYTES", 10)
    with pytest.raises(InvalidStatement, match="the limit is 10"):
        db.sql("DECLARE c CURSOR FOR SELECT * FROM t")


@pytest.mark.parametrize("text", [
    "BEGIN READ", "START", "COMMIT x", "DECLARE c CURSOR", "DECLARE c SUBSCRIPTION CURSOR FOR s", "FETCH", "CLOSE",
    "FETCH PRIOR FROM c", "BEGIN ISOLATION LEVEL CHAOS", "FETCH -1 FROM c", "FETCH 99999999999999999999 FROM c",
])  # fmt: skip
def test_what_is_no_statement(db, text):
    with pytest.raises(ParseError):
        db.sql(text)


def test_a_session_that_closes_ends_its_transaction(tmp_path):
    url = f"file://{tmp_path}/store"
    with stream.connect(url, create=True) as db:
        db.sql("CREATE TABLE t (x INT); BEGIN READ ONLY")
    with stream.connect(url, create=True) as db:
        assert rows(db, "SELECT * FROM t") == []
