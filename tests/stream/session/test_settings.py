"""SET, RESET and SHOW: the settings of a session, those that take effect and those that are kept only."""

import pytest

import stream
from relational.errors import BindError
from relational.sql.settings import SETTINGS
from stream.errors import InvalidStatement


@pytest.fixture
def db():
    with stream.connect("memory://", barrier_interval_ms=3_600_000) as session:
        yield session


def shown(db, name):
    (value,) = db.sql(f"SHOW {name}").column(0).to_pylist()
    return value


def test_changes_are_committed_when_they_return_if_the_setting_says_so(db):
    db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    db.sql("INSERT INTO t VALUES (1)")
    assert db.sql("SELECT * FROM t").to_arrow().num_rows == 0
    db.sql("SET rw_implicit_flush TO true")
    db.sql("INSERT INTO t VALUES (2), (3)")
    assert db.sql("SELECT count(*) AS n FROM t").to_arrow().to_pylist() == [{"n": 3}]
    db.sql("DELETE FROM t WHERE id = 3")
    assert db.sql("SELECT count(*) AS n FROM t").to_arrow().to_pylist() == [{"n": 2}]
    db.sql("RESET implicit_flush")
    db.sql("DELETE FROM t")
    assert db.sql("SELECT count(*) AS n FROM t").to_arrow().to_pylist() == [{"n": 2}]


def test_the_setting_is_of_all_changes_of_the_session(db):
    table = db.create_table("t", {"id": "int", "n": "int"}, primary_key="id")
    table.insert([(1, 1)])
    assert len(table) == 0
    db.sql("SET implicit_flush = true")
    assert table.insert([(2, 2)]) == 1
    assert len(table) == 2
    assert table.update({"n": 3}, id=2) == 1
    assert table.get(2) == {"id": 2, "n": 3}
    assert table.delete(id=1) == 1
    assert table.fetchall() == [(2, 3)]
    assert db.executemany("INSERT INTO t VALUES (?, ?)", [(number, 0) for number in range(10, 13)]) == 3
    assert len(table) == 4


def test_one_change_is_committed_when_it_returns_if_it_is_asked_to(db):
    table = db.create_table("t", {"id": "int", "n": "int"}, primary_key="id")
    assert table.insert([(1, 1), (2, 2)], flush=True) == 2
    assert sorted(table.fetchall()) == [(1, 1), (2, 2)]
    assert table.update({"n": 3}, id=2, flush=True) == 1
    assert table.get(2) == {"id": 2, "n": 3}
    assert table.delete(id=1, flush=True) == 1
    assert db.execute("INSERT INTO t VALUES (?, 5)", [5], flush=True) == 1
    assert sorted(table.fetchall()) == [(2, 3), (5, 5)]
    assert db.executemany("INSERT INTO t VALUES (?, 0)", [(6,), (7,)], flush=True) == 2
    assert len(table) == 4
    table.insert([(8, 8)])
    assert table.delete(id=8, flush=False) == 1
    assert len(table) == 4


def test_a_column_called_flush_is_one(db):
    table = db.create_table("t", {"id": "int", "flush": "boolean"}, primary_key="id")
    table.insert([(1, True), (2, False), (3, None)], flush=True)
    assert table.delete(flush=False) == 1
    assert table.update({"flush": None}, flush=True) == 1
    db.flush()
    assert sorted(table.fetchall()) == [(1, None), (3, None)]
    with pytest.raises(InvalidStatement, match="True or False"):
        db.create_table("u", {"id": "int"}).delete(flush=1)


def test_a_transaction_is_committed_at_its_end_only(db):
    table = db.create_table("t", {"id": "int"}, primary_key="id")
    changes = [
        lambda: table.insert([(1,)], flush=True), lambda: table.delete(id=1, flush=True),
        lambda: db.execute("DELETE FROM t", flush=True), lambda: db.executemany("DELETE FROM t", [()], flush=True),
    ]
    for change in changes:
        with db.transaction(), pytest.raises(InvalidStatement, match="committed at its end"):
            change()
    with db.transaction():
        table.insert([(1,)])
    assert table.fetchall() == [(1,)]


def test_a_setting_has_a_default_and_a_value(db):
    assert shown(db, "timezone") == shown(db, "TIME ZONE") == "UTC"
    assert shown(db, "streaming_parallelism") == "default"
    db.sql("SET streaming_parallelism = 3; SET SESSION application_name TO 'psql'; SET query_mode TO local")
    assert [shown(db, each) for each in ("parallelism", "application_name", "query_mode")] == ["3", "psql", "local"]
    db.sql("SET parallelism TO DEFAULT")
    assert shown(db, "parallelism") == "default"
    db.sql("RESET ALL")
    assert [shown(db, each) for each in SETTINGS] == [each.default for each in SETTINGS.values()]
    assert db.sql("SHOW ALL").column("name").to_pylist() == list(SETTINGS)


@pytest.mark.parametrize("text", [
    "SET DateStyle = 'ISO'", "SET extra_float_digits TO 3", "SET client_encoding = 'utf8'", "SET NAMES 'UTF8'",
    "SET TIME ZONE 'UTC'", 'SET search_path = "$user", public', "SET standard_conforming_strings = on",
    "SET statement_timeout = '0'", "SHOW TRANSACTION ISOLATION LEVEL", "SET visibility_mode TO checkpoint",
])
def test_what_clients_send(db, text):
    db.sql(text)


@pytest.mark.parametrize("text", [
    "SET bytea_output = 'escape'", "SET client_encoding = 'LATIN1'", "SET statement_timeout = 1000",
    "SET visibility_mode = 'all'", "SET rw_implicit_flush = 'maybe'", "SET parallelism = 'adaptive'",
])
def test_a_value_without_a_meaning_here_is_refused(db, text):
    with pytest.raises(BindError):
        db.sql(text)
