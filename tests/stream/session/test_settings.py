"""SET, RESET and SHOW: the settings of a session, those that take effect and those that are kept only."""

import pytest

import stream
from relational.errors import BindError
from relational.sql.settings import SETTINGS


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
