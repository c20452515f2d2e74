"""BEGIN … COMMIT pins an epoch and takes queries; cursors."""

from datetime import datetime

import pytest

import stream
from relational.errors import Duplicate, NotFound, ParseError
from stream.errors import InvalidStatement


@pytest.fixture
def db():
    with stream.connect("memory://", barrier_interval_ms=3_600_000) as session:
        session.sql("""SET rw_implicit_flush = true; CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR);
            CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t; INSERT INTO t VALUES (1, 'a'), (2, 'b')""")
        yield session


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
    db.table("t").insert([(3, "c")])
    db.flush()
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
    db.table("t").insert([(3, "c")])
    db.flush()
    db.sql("BEGIN")
    assert rows(db, "SELECT n FROM m") == [(2,)]
    db.sql("END; ROLLBACK")
    assert rows(db, "SELECT n FROM m") == [(3,)]


@pytest.mark.parametrize("text", [
    "INSERT INTO t VALUES (9, 'x')", "DELETE FROM t", "UPDATE t SET v = 'x'", "CREATE TABLE u (x INT)", "DROP TABLE t",
    "ALTER TABLE t ADD COLUMN x INT", "FLUSH", "TRUNCATE t",
])
@pytest.mark.parametrize(("begin", "fault"), [("BEGIN", "not supported"), ("BEGIN READ ONLY", "read-only")])
def test_changes_are_refused(db, begin, fault, text):
    db.sql(begin)
    with pytest.raises(InvalidStatement, match=fault):
        db.sql(text)
    assert rows(db, "SELECT n FROM m") == [(2,)]
    db.sql("COMMIT")
    db.sql("INSERT INTO t VALUES (9, 'x')")
    assert rows(db, "SELECT n FROM m") == [(3,)]


def test_a_cursor_gives_the_rows_of_its_query(db):
    db.sql("BEGIN; DECLARE c CURSOR FOR SELECT id, v FROM t ORDER BY id")
    assert rows(db, "FETCH NEXT FROM c") == [(1, "a")]
    assert rows(db, "FETCH 5 IN c") == [(2, "b")]
    assert rows(db, "FETCH c") == []
    with pytest.raises(Duplicate, match="CLOSE it first"):
        db.sql("DECLARE c CURSOR FOR SELECT 1")
    db.sql("CLOSE c")
    with pytest.raises(NotFound, match="no cursor 'c'"):
        db.sql("FETCH c")
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
    with stream.connect(url) as db:
        db.sql("CREATE TABLE t (x INT); BEGIN READ ONLY")
    with stream.connect(url) as db:
        assert rows(db, "SELECT * FROM t") == []
