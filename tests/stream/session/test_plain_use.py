"""The first things that somebody tries who knows other databases: what an error says is what to write instead."""

import copy
import json
import os
import pickle
import subprocess
import sys

import pytest

import stream
from hummock.errors import InvalidEpoch, InvalidOption, WriterRunning
from relational.errors import BindError, ParseError
from stream import col
from stream import functions as f
from stream.errors import (
    BackfillRefused,
    BulkLoadRefused,
    DuplicateKey,
    InvalidStatement,
    ReadOnlySession,
    SessionClosed,
)


@pytest.fixture
def db():
    with stream.connect("memory://") as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, region VARCHAR, amount DOUBLE)")
        session.table("t").insert([(1, "EU", 3.5), (2, "AS", 1.0), (3, "EU", 2.0)])
        session.flush()
        yield session


@pytest.mark.parametrize("use", [
    lambda t: t.filter("amount > 1"), lambda t: t.filter(col("id") > 1, "amount > 1"), lambda t: t.filter(True),
    lambda t: t.delete("amount > 1"), lambda t: t.update({"amount": 0.0}, "id = 1")])
def test_a_text_is_no_condition(db, use):
    with pytest.raises(BindError, match="is no condition: write an expression"):
        use(db.table("t"))


def test_a_text_is_no_aggregate_and_aggregates_may_have_aliases(db):
    groups = db.table("t").group_by("region")
    for use in (lambda: groups.agg(total="sum(amount)"), lambda: groups.agg({"amount": "sum"}),
                lambda: groups.agg("amount"), lambda: db.table("t").agg(n=3)):
        with pytest.raises(BindError, match=r"is no aggregate: write name=functions\.sum"):
            use()
    with pytest.raises(BindError, match=r"\.alias\(name\) or name=expression"):
        groups.agg(f.sum("amount"))
    found = groups.agg(f.sum("amount").alias("total"), n=f.count()).order_by("region")
    assert found.rows() == [{"region": "AS", "total": 1.0, "n": 1}, {"region": "EU", "total": 5.5, "n": 2}]


def test_views_and_sinks_are_made_of_relations(db):
    for create in (db.create_materialized_view, db.create_view):
        with pytest.raises(BindError, match=r"a relation: db\.sql\('SELECT 1 AS a'\) gives one"):
            create("v", "SELECT 1 AS a")
    with pytest.raises(BindError, match="a relation: not list"):
        db.create_sink("v", [], connector={"connector": "digest"})
    assert db.create_materialized_view("v", db.sql("SELECT COUNT(*) AS n FROM t")).rows() == [{"n": 3}]


@pytest.mark.parametrize("given, meant", [
    ("str", "varchar"), ("int64", "bigint"), ("Float64", "double"), ("json", "jsonb"), ("bigintt", "bigint"),
    ("varchr", "varchar")])
def test_names_of_types_elsewhere_are_translated(db, given, meant):
    with pytest.raises(BindError, match=f"there is no type '{given}'; did you mean '{meant}'"):
        db.create_table("typed", {"a": given})


def test_a_class_is_no_type(db):
    with pytest.raises(BindError, match=r"such as 'bigint' or 'varchar', not <class 'int'>"):
        db.create_table("typed", {"a": int})


def test_a_duplicate_key_says_how_a_table_takes_it(db):
    with pytest.raises(DuplicateKey, match="ON CONFLICT OVERWRITE or IGNORE"):
        db.execute("INSERT INTO t VALUES (1, 'EU', 0)")
    assert db.table("t").get(1)["amount"] == 3.5


def test_execute_refuses_a_query_by_name(db):
    with pytest.raises(InvalidStatement, match=r"^execute\(\) runs other statements; query\(\)"):
        db.execute("SELECT 1 AS a")


@pytest.mark.parametrize("use, said", [
    (lambda db: db.query("INSERT INTO t VALUES (9, 'EU', 0)"),
     r"^query\(\) answers queries, and this is INSERT: execute\(\)"),
    (lambda db: db.query("CREATE TABLE u (a INT)"), "and this is CREATE TABLE"),
    (lambda db: db.executemany("SELECT ?", [(1,)]), r"^executemany\(\) takes .* and this is SELECT"),
    (lambda db: db.executemany("DELETE FROM t WHERE id = ? RETURNING id", [(1,)]),
     r"^executemany\(\) gives the number"),
])  # fmt: skip
def test_a_call_refuses_a_statement_of_another_kind_by_name(db, use, said):
    with pytest.raises(InvalidStatement, match=said):
        use(db)
    assert len(db.table("t")) == 3


def test_what_a_transaction_does_not_take_is_named(db):
    with db.transaction(), pytest.raises(InvalidStatement, match=r"^a transaction is open already"), db.transaction():
        pass
    db.sql("BEGIN")
    with pytest.raises(InvalidStatement, match=r"^a transaction takes .*, and this is CREATE VIEW: COMMIT or ROLLBACK"):
        db.sql("CREATE VIEW u AS SELECT 1 AS a")
    db.sql("ROLLBACK; BEGIN READ ONLY")
    with pytest.raises(InvalidStatement, match=r"^table 't': a read-only transaction"):
        db.execute("DELETE FROM t")
    db.sql("ROLLBACK")


@pytest.mark.parametrize("epoch", [5, "yesterday", 1.5])
def test_a_number_that_no_commit_has_is_no_epoch(db, epoch):
    for use in (db.at, lambda epoch: db.changes("t", epoch)):
        with pytest.raises(InvalidEpoch, match=f"{epoch}: is none that a commit has made: take one from flush"):
            use(epoch)


@pytest.mark.parametrize("url, meant", [("memory", r"'\./memory'"), ("", r"'\.' is the working directory"),
                                        ("file", r"'\./file'")])
def test_what_is_no_store_says_what_is(url, meant):
    with pytest.raises(InvalidOption, match=f"a directory by its path, memory://, .*{meant}"):
        stream.connect(url, create=True)


def test_a_session_that_this_process_has_is_to_be_closed(tmp_path):
    said = rf"this process \(process {os.getpid()}\) has .* close\(\) the other one"
    with stream.connect(tmp_path / "shop", create=True), pytest.raises(WriterRunning, match=said):
        stream.connect(tmp_path / "shop", create=True)


@pytest.mark.parametrize("use", [
    lambda db, t: t.rows(), lambda db, t: t.get(1), lambda db, t: len(t), lambda db, t: t.filter(col("id") > 1).rows(),
    lambda db, t: t.insert([(9, "EU", 0.0)]), lambda db, t: t.update({"amount": 0.0}), lambda db, t: t.delete(id=1),
    lambda db, t: t.changes(), lambda db, t: db.query("SELECT 1"), lambda db, t: db.execute("DELETE FROM t"),
    lambda db, t: db.executemany("DELETE FROM t WHERE id = ?", [(1,)]), lambda db, t: db.table("t"),
])  # fmt: skip
@pytest.mark.parametrize("end", [stream.Session.close, stream.Session.abandon])
def test_all_calls_after_the_end_say_so(db, use, end):
    t = db.table("t")
    end(db)
    with pytest.raises(SessionClosed, match=r"^the session is closed$"):
        use(db, t)


CREATE = [lambda db, connector: db.create_source("s", {"a": "int"}, connector=connector),
          lambda db, connector: db.create_table("s", {"a": "int"}, connector=connector),
          lambda db, connector: db.create_sink("s", db.table("t"), connector=connector)]


@pytest.mark.parametrize("create", CREATE, ids=["source", "table", "sink"])
def test_a_connector_is_given_with_its_options(db, create):
    for given, shown in (("datagen", "{'connector': 'datagen', …}, not 'datagen'"), (5, "not 5")):
        with pytest.raises(BindError, match=f"connector is the mapping of its options, .*{shown}"):
            create(db, given)


def test_options_of_a_connector_may_be_numbers(db):
    db.create_source("s", {"id": "bigint"}, connector={"connector": "datagen", "rows": 10})
    assert db.names() == ("s", "t")


def test_options_have_the_words_of_sql(db):
    t = db.create_table("kept", {"a": "int", "b": "int"}, primary_key="a", on_conflict="IGNORE")
    assert t.insert([(1, 1)]) == 1 and t.insert([(1, 2)]) == 0
    with pytest.raises(BindError, match="on_conflict is error, overwrite or ignore, not 'replace'"):
        db.create_table("u", {"a": "int"}, primary_key="a", on_conflict="replace")
    for word in ("stream", "STREAM"):
        assert len(db.create_materialized_view(word, db.table("t"), backfill=word)) == 3
    with pytest.raises(BackfillRefused, match="no option spark_master"):
        db.create_materialized_view("v", db.table("t"), backfill="spark")
    with pytest.raises(InvalidOption, match=r'backfill is .*: must be a Spark session .*, "stream", "spark" or'):
        db.create_materialized_view("v", db.table("t"), backfill=[1])
    with pytest.raises(InvalidOption, match=r"engine is 'spark': must be a Spark session \(SparkSession\.builder"):
        stream.connect("memory://", engine="spark")


def test_what_is_no_frame_of_spark_is_not_loaded(tmp_path):
    with stream.connect(tmp_path / "store", create=True) as db:
        db.create_table("t", {"id": "int"}, primary_key="id")
        for mode, key in (("append", None), ("overwrite", None), ("create", "id")):
            with pytest.raises(BulkLoadRefused, match=r"a DataFrame of Spark, not a list: table\(name\)\.insert"):
                db.bulk_load([(9,)], "t" if key is None else "u", mode=mode, primary_key=key)


def test_a_reader_names_the_statement_that_it_refuses(tmp_path):
    with stream.connect(tmp_path / "store", create=True) as writer:
        writer.sql("CREATE TABLE t (a INT)")
        with stream.connect(tmp_path / "store", role="reader") as reader:
            for text, name in (("INSERT INTO t VALUES (1)", "INSERT"), ("CREATE TABLE u (a INT)", "CREATE TABLE")):
                with pytest.raises(ReadOnlySession, match=f"^{name}: this session reads"):
                    reader.sql(text)


def test_rows_have_the_names_of_their_columns(db):
    rows = db.sql('SELECT region, amount AS count, id AS "a b" FROM t ORDER BY id').fetchall()
    assert rows == [("EU", 3.5, 1), ("AS", 1.0, 2), ("EU", 2.0, 3)]
    assert (rows[0].region, rows[0].count, rows[0][2], repr(rows[1])) == ("EU", 3.5, 1, "('AS', 1.0, 2)")
    assert json.dumps(rows[0]) == '["EU", 3.5, 1]'
    region, _, key = rows[2]
    assert (region, key, {rows[2]: 1}[("EU", 2.0, 3)]) == ("EU", 3, 1)
    again = pickle.loads(pickle.dumps(rows[0]))
    assert (again, again.region, copy.deepcopy(again).count) == (rows[0], "EU", 3.5)
    assert [row.n for row in db.query("SELECT COUNT(*) AS n FROM t")] == [3]
    with pytest.raises(AttributeError):
        _ = rows[0].amount


def test_names_that_python_knows_and_names_that_come_twice_do_no_harm(db):
    row = db.query('SELECT 1 AS "__class__", 2 AS "_fields", 3 AS "class", 4 AS a, 5 AS a').fetchone()
    assert (tuple(row), row.a, getattr(row, "class"), type(row).__mro__[1].__name__) == ((1, 2, 3, 4, 5), 5, 3, "Row")
    assert pickle.loads(pickle.dumps(row)) == row


def test_frames_of_a_result_have_its_names(db):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    for found in (db.sql("SELECT id, region FROM t ORDER BY id"), db.query("SELECT id, region FROM t ORDER BY id")):
        assert pandas.DataFrame(found).equals(found.df())
        assert pandas.DataFrame(found.fetchall()).columns.tolist() == ["id", "region"]
        assert polars.DataFrame(found).equals(found.pl())
        assert polars.DataFrame(found.fetchall(), orient="row", schema=["id", "region"]).equals(found.pl())


def test_rows_of_a_result_are_inserted_as_they_are(db):
    db.sql("CREATE TABLE other (id BIGINT PRIMARY KEY, region VARCHAR)")
    assert db.table("other").insert(list(db.sql("SELECT id, region FROM t"))) == 3
    assert db.executemany("DELETE FROM other WHERE id = ?", db.sql("SELECT id FROM t WHERE id < 3")) == 2
    db.flush()
    assert db.table("other").fetchall() == [(3, "EU")]


@pytest.mark.parametrize("name, meant", [
    ("fetchdf", r"df\(\)"), ("to_dicts", r"rows\(\)"), ("where", "filter"), ("sort", "order_by"), ("shape", "len")])
def test_names_of_other_libraries_lead_to_those_of_a_result(db, name, meant):
    for found in (db.sql("SELECT id FROM t"), db.table("t")):
        with pytest.raises(AttributeError, match=f"{type(found).__name__}.*no attribute '{name}'; here it is {meant}"):
            getattr(found, name)


def test_a_result_set_has_what_an_arrow_table_has_and_hints_for_the_rest(db):
    found = db.query("SELECT id FROM t")
    assert (found.shape, found.to_pylist()[0].keys()) == ((3, 1), {"id"})
    with pytest.raises(AttributeError, match=r"'ResultSet' object has no attribute 'fetchdf'; here it is df\(\)"):
        _ = found.fetchdf
    assert not hasattr(found, "nothing")


def test_a_column_of_a_relation(db):
    found = db.sql("SELECT id, region FROM t ORDER BY id")
    assert found["region"].to_pylist() == ["EU", "AS", "EU"]
    assert found["region"] == db.query("SELECT region FROM t ORDER BY id")["region"]
    with pytest.raises(BindError, match="did you mean 'region'"):
        _ = found["regio"]


@pytest.mark.parametrize("name, meant", [
    ("cursor", "the session itself"), ("commit", r"flush\(\)"), ("tables", r"names\(\)"), ("begin", "`with db.trans")])
def test_names_of_other_databases_lead_to_those_of_a_session(db, name, meant):
    with pytest.raises(AttributeError, match=f"'Session' object has no attribute '{name}'; here it is {meant}"):
        getattr(db, name)
    assert not hasattr(db, "nothing")


@pytest.mark.parametrize("text, said, at", [
    ("INSERT INTO t VALUES (1, 'a', 2) ON CONFLICT DO NOTHING", "CREATE TABLE … ON CONFLICT OVERWRITE", "ON"),
    ("INSERT INTO t SELECT * FROM t ON CONFLICT (id) DO UPDATE SET amount = 1", "CREATE TABLE … ON CONFLICT", "ON"),
    ("INSERT OR REPLACE INTO t VALUES (1, 'a', 2)", "CREATE TABLE … ON CONFLICT OVERWRITE", "OR"),
    ("REPLACE INTO t VALUES (1, 'a', 2)", "CREATE TABLE … ON CONFLICT OVERWRITE", "REPLACE"),
    ("CREATE OR REPLACE TABLE t (id INT)", "IF NOT EXISTS keeps what there is", "OR"),
    ("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT 1 AS a", "IF NOT EXISTS keeps what there is", "OR"),
    ("REFRESH MATERIALIZED VIEW v", "follows its tables", "REFRESH"),
    ("PRAGMA table_info('t')", "DESCRIBE shows the columns", "PRAGMA"),
    ("FROM t", r"write SELECT \* FROM", "FROM"),
    ("SELECT * FROM t WHERE id = %s", "written \\?, \\$1 or :name", "s"),
    ("SELECT 1 AS a\nSELECT 2 AS b", "is there a semicolon missing", "SELECT 2"),
])
def test_sql_of_other_databases_is_answered_with_what_there_is(db, text, said, at):
    with pytest.raises(ParseError, match=said) as raised:
        db.sql(text)
    assert raised.value.start is not None and text.startswith(at[0], raised.value.start)
    assert len(db.table("t")) == 3


def test_feeds_show_what_they_are_of_and_completion_what_is_public(db):
    feed = db.changes("t", follow=False)
    assert repr(feed).startswith("ChangeFeed('t', up to epoch ")
    feed.close()
    assert repr(feed) == "ChangeFeed('t', closed)"
    assert sorted(dir(stream)) == sorted(stream.__all__)


PROGRAM = """
import signal, sys
import stream
db = stream.connect(sys.argv[1], create=True, barrier_interval_ms=3_600_000)
db.sql("CREATE TABLE IF NOT EXISTS ends (id INT PRIMARY KEY)")
other = stream.connect("memory://")
other.sql("CREATE TABLE t (id INT)")
db.table("ends").insert([(int(sys.argv[2]),)])
"""


@pytest.mark.usefixtures("heeds_interrupts")
def test_what_a_program_has_changed_is_kept_however_it_ends(tmp_path):
    ends = ["", "sys.exit(3)", "1 / 0", "signal.raise_signal(signal.SIGINT)", "db.close()", "del db, other"]
    for number, end in enumerate(ends):
        ran = subprocess.run([sys.executable, "-c", PROGRAM + end, str(tmp_path / "store"), str(number)], timeout=60,
                             capture_output=True, text=True, check=False)
        assert ran.stderr.count("Traceback") == (number in (2, 3)), ran.stderr
    with stream.connect(tmp_path / "store") as session:
        assert session.query("SELECT id FROM ends ORDER BY id").fetchall()[:5] == [(0,), (1,), (2,), (3,), (4,)]


def test_a_with_block_that_an_error_ends_keeps_nothing_of_it_at_exit_either(tmp_path):
    end = "with db:\n    1 / 0"
    subprocess.run([sys.executable, "-c", PROGRAM + end, str(tmp_path / "store"), "1"], timeout=60, capture_output=True,
                   check=False)
    with stream.connect(tmp_path / "store") as session:
        assert session.query("SELECT id FROM ends").fetchall() == []
