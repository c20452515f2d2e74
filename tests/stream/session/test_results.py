"""Results of a session: what is shown, by which call, with which values of parameters, and when nothing is read."""

import re

import polars as pl
import pytest

import stream
from relational.errors import BindError
from relational.relation import Relation
from relational.result import ResultSet
from stream.errors import InvalidStatement
from stream.session.table import Table
from tests.support.worlds.timed_session import NEVER_MS

ROWS = [(1, "a"), (2, None)]


@pytest.fixture
def db(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with stream.connect("memory://", barrier_interval_ms=NEVER_MS) as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
        session.table("t").insert(ROWS)
        session.flush()
        yield session


SHOWN = """\
┌────────┬─────────┐
│     id │ v       │
│ BIGINT │ VARCHAR │
├────────┼─────────┤
│      1 │ a       │
│      2 │ NULL    │
└────────┴─────────┘
2 rows"""


@pytest.mark.parametrize("text", [
    "SELECT * FROM t ORDER BY id", "SELECT id, v FROM t WHERE id < 10 ORDER BY id",
    "SELECT id, v FROM t WHERE now() > TIMESTAMP '2000-01-01' ORDER BY id",
])  # fmt: skip
def test_queries_show_their_rows(db, text):
    assert repr(db.sql(text)) == repr(db.query(text)) == SHOWN
    assert isinstance(db.sql(text), Relation) and isinstance(db.query(text), ResultSet)
    with db.at() as then:
        if "now()" not in text:
            assert repr(then.sql(text)) == SHOWN


def test_a_table_shows_its_rows_and_a_view_its_own(db):
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t; CREATE VIEW w AS SELECT n FROM m")
    assert sorted(repr(db.table("t")).splitlines()) == sorted(SHOWN.splitlines())
    assert repr(db.relation("w")) == repr(db.table("m")) == (
        "┌────────┐\n│      n │\n│ BIGINT │\n├────────┤\n│      2 │\n└────────┘\n1 row"
    )


def test_statements_show_rows(db):
    assert repr(db.sql("SHOW TABLES")).splitlines()[4] == (
        "│ t       │ id BIGINT, v VARCHAR │ CREATE TABLE t (id BIGINT PRIMARY KEY, v V… │"
    )
    assert repr(db.sql("DESCRIBE t")).splitlines()[4] == (
        "│ id      │ BIGINT  │           1 │ false     │ NULL    │ false    │ NULL    │"
    )
    shown = repr(db.sql("SHOW JOBS")).splitlines()
    assert shown[4] == "│ t       │ table   │ RUNNING │ NULL        │   NULL │ NULL    │ NULL     │ … │"
    assert shown[-1] == "1 row, 7 of 10 columns"
    assert repr(db.jobs()) == "\n".join(shown)
    assert repr(db.sql("INSERT INTO t VALUES (3, 'c') RETURNING v AS w")) == (
        "┌─────────┐\n│ w       │\n│ VARCHAR │\n├─────────┤\n│ c       │\n└─────────┘\n1 row"
    )


def test_a_plan_and_a_definition_are_text(db):
    assert repr(db.sql("EXPLAIN SELECT v FROM t WHERE id = 1")).splitlines()[:2] == [
        "logical", "  Project v",
    ]
    assert repr(db.sql("EXPLAIN SELECT v FROM t")) == db.explain("SELECT v FROM t")
    assert repr(db.sql("SHOW CREATE TABLE t")) == "CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)"
    assert db.sql("SHOW CREATE TABLE t").rows()[0]["name"] == "t"


def test_every_result_is_a_frame(db):
    for found in (db.sql("SELECT * FROM t"), db.query("SELECT * FROM t"), db.table("t")):
        assert pl.DataFrame(found).sort("id").rows() == found.pl().sort("id").rows() == ROWS
    assert db.sql("SHOW JOBS").df()["name"].tolist() == pl.DataFrame(db.sql("SHOW JOBS"))["name"].to_list() == ["t"]


def test_a_prepared_query_is_read_by_its_own_plan_and_shown_with_its_values(db):
    found = db.sql("SELECT v FROM t WHERE id = $1", (1,))
    assert found.fetchall() == [("a",)] and len(found) == 1 and bool(found)
    assert repr(found) == "┌─────────┐\n│ v       │\n│ VARCHAR │\n├─────────┤\n│ a       │\n└─────────┘\n1 row"


def test_nothing_is_read_after_the_end(db):
    found = (db.sql("SELECT * FROM t WHERE id = ?", (1,)), db.sql("SELECT * FROM t"), db.table("t"))
    db.close()
    for each in found:
        said = r"(Relation|Table t)\(id BIGINT, v VARCHAR\)\nSessionClosed: the session is closed"
        assert re.fullmatch(said, repr(each))
        assert each._repr_html_() == f"<pre>{each!r}</pre>"


def test_a_look_does_not_end_a_transaction(db):
    with db.transaction():
        db.sql("INSERT INTO t VALUES (3, 'c')")
        assert "InvalidStatement" in repr(db.table("t"))
        assert "cannot be read before COMMIT" in repr(db.sql("SELECT * FROM t"))
    assert len(db.table("t")) == 3


# -- which call ----------------------------------------------------------------------------------------


def test_execute_gives_a_number(db):
    assert db.execute("INSERT INTO t VALUES (?, ?), (4, 'd')", (3, "c")) == 2
    assert db.execute("UPDATE t SET v = :v WHERE id > :id", {"v": "x", "id": 2}) == 2
    assert db.execute("INSERT INTO t VALUES (5, 'e') RETURNING id") == 1
    assert db.execute("CREATE TABLE u (a INT); CREATE VIEW w AS SELECT * FROM u") == 0
    assert db.execute("CREATE VIEW x AS SELECT 1 AS a") == db.execute("FLUSH") == 0
    assert db.execute("SELECT 1; DELETE FROM t WHERE id = 1") == 1
    for query in ("SELECT 1", "SELECT * FROM t WHERE id = 1", "FLUSH; SELECT now()"):
        with pytest.raises(InvalidStatement, match=r"query\(\) gives the rows"):
            db.execute(query)
    with db.transaction():
        assert db.execute("DELETE FROM t WHERE id = 2") == -1


def test_create_gives_the_table(db):
    assert isinstance(db.sql("CREATE TABLE u (a INT)"), Table)


# -- parameters ----------------------------------------------------------------------------------------

FORMS = [("?", (1,)), ("?", [1]), ("$1", (1,)), (":id", {"id": 1})]


@pytest.mark.parametrize(("mark", "given"), FORMS)
def test_each_form_in_each_call(db, mark, given):
    text = f"SELECT v FROM t WHERE id = {mark}"
    with db.at() as then:
        assert db.sql(text, given).fetchall() == db.query(text, given).fetchall() == [("a",)]
        assert then.sql(text, given).fetchall() == [("a",)]
        assert then.sql(f"SELECT * FROM ({text}) AS x", given).head(1).fetchone() == ("a",)
    assert db.execute(f"UPDATE t SET v = 'b' WHERE id = {mark}", given) == 1


@pytest.mark.parametrize(("where", "given", "message"), [
    ("id = ?", (), "no value is given for ?, 0 are given"),
    ("id = ? AND v = ?", (1,), "no value is given for ?, 1 is given"),
    ("id = $2", (1,), "no value is given for $2, 1 is given"),
    ("id = :id", {}, "no value is given for :id, 0 are given"),
    ("id = :id AND v = :v", {"id": 1}, "no value is given for :v, 1 is given"),
    ("id = :id", (1,), ":id takes its value from a mapping of names to values"),
    ("id = ?", {"id": 1}, "? takes its value from a sequence of values"),
    ("id = ?", (1, 2), "2 values are given, the statement has 1 parameter"),
    ("true", (1,), "1 value is given, the statement has 0 parameters"),
    ("id = :id", {"id": 1, "x": 2}, "the statement has no parameter :x"),
    ("id = ? AND v = :v", (1,), "a statement writes all parameters as ?, as $1 or as :name"),
    ("v = ?", "a", "the values of parameters are a list, a tuple or a dict, not one str: write [value]"),
    ("v = ? OR v = ?", "ab", "the values of parameters are a list, a tuple or a dict, not one str: write [value]"),
    ("id = ?", 1, "the values of parameters are a list, a tuple or a dict, not one int: write [value]"),
    ("id = ?", None, "the values of parameters are a list, a tuple or a dict, not one NoneType: write [value]"),
    ("id = ?", {1}, "the values of parameters are a list, a tuple or a dict, not one set: write [value]"),
])  # fmt: skip
def test_wrong_values_are_one_error_in_every_call(db, where, given, message):
    text = f"SELECT v FROM t WHERE {where}"
    with db.at() as then:
        for run in (db.sql, db.query, db.execute, then.sql):
            with pytest.raises(BindError) as caught:
                run(text, given)
            assert caught.value.message == message, run
    with pytest.raises(BindError) as caught:
        db.executemany(f"UPDATE t SET v = v WHERE {where}", [given])
    assert caught.value.message == message


def test_a_snapshot_answers_one_query(db):
    with db.at() as then:
        for text in ("DELETE FROM t", "SELECT 1; SELECT 2", "SHOW TABLES", ""):
            with pytest.raises(InvalidStatement, match="a snapshot answers one query"):
                then.sql(text)


def test_a_relation_of_a_snapshot_reads_its_epoch(db):
    with db.at() as then:
        found = then.sql("SELECT * FROM t")
        db.execute("DELETE FROM t")
        db.flush()
        assert len(found) == 2 and found.filter(stream.col("id") == 1).fetchall() == ROWS[:1]
        assert len(db.table("t")) == 0


# -- what things say of themselves ---------------------------------------------------------------------


def test_a_session_and_a_snapshot_say_what_they_are(db):
    epoch = db.committed_epoch
    assert repr(db) == f"Session('memory://', writer, epoch {epoch}, 1 table)"
    snapshot = db.at()
    assert repr(snapshot) == f"Snapshot(epoch {epoch})"
    snapshot.close()
    assert repr(snapshot) == f"Snapshot(epoch {epoch}, closed)"
    db.sql("""CREATE TABLE u (a INT); CREATE MATERIALIZED VIEW m AS SELECT * FROM u; CREATE VIEW w AS SELECT 1 AS a;
        CREATE INDEX i ON t (v); CREATE INDEX j ON t (v, id)""")
    assert repr(db) == (
        f"Session('memory://', writer, epoch {db.committed_epoch}, 2 tables, 1 materialized view, 2 indexes, 1 view)"
    )
    db.close()
    assert repr(db) == "Session('memory://', closed)"
