"""SHOW MEMORY: what the operators of running jobs keep in memory, and the memory of the process."""

import threading

import numpy as np
import pyarrow as pa
import pytest

import stream
from relational.errors import BindError, NotFound
from relational.table import scan
from stream.job_memory import SCHEMA

ROWS, KEYS, BUDGET = 20_000, 500, 1 << 30
TABLES = "CREATE TABLE a (k BIGINT, v VARCHAR) APPEND ONLY; CREATE TABLE d (k BIGINT PRIMARY KEY, name VARCHAR)"
JOIN = "CREATE MATERIALIZED VIEW j AS SELECT a.k, v, name FROM a JOIN d ON a.k = d.k"


@pytest.fixture
def db():
    with stream.connect("memory://", parallelism=2, state_cache_bytes=BUDGET) as session:
        session.sql(TABLES)
        yield session


def load(db):
    k = np.arange(ROWS) % KEYS
    db.table("a").insert(pa.table({"k": k, "v": [f"value {at}" for at in range(ROWS)]}))
    db.table("d").insert(pa.table({"k": np.arange(KEYS), "name": [f"name {at}" for at in range(KEYS)]}))
    db.flush()


def memory_of(db, name):
    """(The states of a job by name, the row of the process.)"""
    *states, process = db.sql(f"SHOW MEMORY FROM {name}").to_pylist()
    assert all(each["job"] == name for each in states)
    return {each["state"]: each for each in states}, process


def test_every_state_of_every_operator_is_listed_with_its_rows(db):
    db.sql(JOIN)
    db.sql("""CREATE MATERIALIZED VIEW c AS
              SELECT k, count(DISTINCT v) AS n, array_agg(v ORDER BY v) AS vs FROM a GROUP BY k""")
    db.sql("CREATE MATERIALIZED VIEW w AS SELECT k, v, lag(v) OVER (PARTITION BY k ORDER BY v) AS p FROM a")
    db.sql("""CREATE MATERIALIZED VIEW t AS SELECT k, v FROM
              (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM a) s WHERE n <= 3""")
    load(db)
    shown = db.sql("SHOW MEMORY")
    assert shown.schema == db.memory("j").schema == SCHEMA
    rows = {(each["job"], each["state"]): each["rows"] for each in shown.to_pylist()[:-1]}
    assert list(dict.fromkeys(job for job, _ in rows)) == ["c", "j", "t", "w"]
    assert rows["c", "groups"] == KEYS and rows["c", "distinct values of v"] == rows["c", "rows of array_agg"] == ROWS
    assert rows["j", "left rows"] == ROWS and rows["j", "right rows"] == KEYS
    assert rows["t", "rows of windows"] == 3 * KEYS and KEYS <= rows["w", "last rows of partitions"] <= ROWS
    for each in shown.to_pylist()[:-1]:
        assert each["fragment"] is not None and each["beside_per_row"] == pytest.approx(
            each["beside_bytes"] / each["rows"], abs=0.06)
        assert each["evicted"] == 0 and (each["budget_bytes"] is None) == each["state"].startswith("distinct")
    budgets = {each["job"]: each["budget_bytes"] for each in shown.to_pylist() if each["state"] == "rows of windows"}
    assert BUDGET // 2 < budgets["t"] < BUDGET, "an actor may use what the others leave"
    named = {each["operator"].split()[0] for each in shown.to_pylist()[:-1]}
    assert named == {"HashAgg", "HashJoin", "OverWindow", "TopN"}


def test_figures_of_a_join_agree_with_the_values_that_it_keeps(db):
    db.sql(JOIN)
    load(db)
    (states, process) = memory_of(db, "j")
    names = sum(len(f"name {at}") for at in range(KEYS))
    assert states["right rows"]["column_bytes"] == pytest.approx(KEYS * (8 + 4) + names + KEYS * 2 / 8, abs=2)
    assert states["left rows"]["beside_bytes"] > 0
    assert process["resident_bytes"] > sum(each["beside_bytes"] + each["column_bytes"] for each in states.values())
    used = sum(each["column_bytes"] + each["beside_bytes"] for each in states.values())
    assert all(BUDGET - used <= each["budget_bytes"] <= BUDGET for each in states.values())


def test_after_an_eviction_rows_are_fewer_and_the_budget_holds(tmp_path):
    budget = 400_000
    with stream.connect(f"file://{tmp_path}", create=True, parallelism=1, state_cache_bytes=budget) as db:
        db.sql(TABLES)
        db.sql(JOIN)
        load(db)
        db.sql("UPDATE d SET name = 'other' WHERE k < 10")
        db.flush()
        left = memory_of(db, "j")[0]["left rows"]
        assert left["evicted"] > 0 and left["rows"] < ROWS and budget // 2 <= left["budget_bytes"] < budget
        assert left["column_bytes"] + left["beside_bytes"] <= budget
        assert db.sql("SELECT count(*) AS n FROM j WHERE name = 'other'").rows() == [{"n": 10 * ROWS // KEYS}]


def test_a_job_without_state_has_the_row_of_the_process_alone(db):
    db.sql("CREATE MATERIALIZED VIEW f AS SELECT v FROM a WHERE k > 3")
    for name in ("f", "a"):
        states, process = memory_of(db, name)
        assert not states and process["state"] == "process" and process["resident_bytes"] > 1 << 20


def test_what_is_no_running_job_is_refused_with_a_hint(db):
    db.sql("CREATE VIEW plain AS SELECT v FROM a")
    db.sql("CREATE MATERIALIZED VIEW counted AS SELECT k, count(*) AS n FROM a GROUP BY k")
    with pytest.raises(BindError, match="did you mean 'counted'"):
        db.sql("SHOW MEMORY FROM countet")
    with pytest.raises(BindError, match="runs no job"):
        db.sql("SHOW MEMORY FROM plain")
    with pytest.raises(NotFound):
        db.memory("countet")


def test_figures_are_read_while_actors_run_and_change_their_buffers(db):
    db.sql(JOIN)
    db.sql("CREATE MATERIALIZED VIEW c AS SELECT k, count(DISTINCT v) AS n FROM a GROUP BY k")
    is_over = threading.Event()

    def insert():
        while not is_over.is_set():
            load(db)
            db.sql("DELETE FROM d")
            db.flush()

    writer = threading.Thread(target=insert)
    writer.start()
    try:
        for _ in range(300):
            for each in db.memory().to_pylist()[:-1]:
                assert each["rows"] >= 0 and each["column_bytes"] >= 0 and each["evicted"] == 0
    finally:
        is_over.set()
        writer.join()


@pytest.mark.parametrize("condition", ["", " AND a.v <> d.name"])
def test_a_key_with_more_rows_than_the_budget_is_joined_from_its_table(tmp_path, monkeypatch, condition):
    monkeypatch.setattr(scan, "ROWS_AT_ONCE", 1_000)
    budget, rows = 400_000, 30_000
    with stream.connect(f"file://{tmp_path}", create=True, parallelism=1, state_cache_bytes=budget) as db:
        db.sql(TABLES)
        db.sql(f"{JOIN}{condition}")
        values = [f"value {at}" for at in range(rows)]
        db.table("a").insert(pa.table({"k": np.where(np.arange(rows) % 100 == 0, 2, 1), "v": values}))
        db.sql("INSERT INTO d VALUES (1, 'value 7'), (2, 'few')")
        db.flush()
        for name in ("value 8", "value 9"):
            db.sql(f"UPDATE d SET name = '{name}' WHERE k = 1; INSERT INTO a VALUES (1, 'late {name}')")
            db.flush()
            assert sum(each["column_bytes"] + each["beside_bytes"] for each in memory_of(db, "j")[0].values()) <= budget
        found = db.sql("SELECT name, count(*) AS n, count(DISTINCT v) AS v FROM j GROUP BY name ORDER BY name").rows()
        of_one = rows - rows // 100 + 2 - bool(condition)
        assert found == [{"name": "few", "n": 300, "v": 300}, {"name": "value 9", "n": of_one, "v": of_one}]


def test_rows_that_move_between_keys_out_of_memory_leave_one_before_they_come_to_the_other(tmp_path):
    with stream.connect(f"file://{tmp_path}", create=True, parallelism=1, state_cache_bytes=2_000) as db:
        db.sql("CREATE TABLE f (id BIGINT PRIMARY KEY, k BIGINT); CREATE TABLE d (k BIGINT PRIMARY KEY, name VARCHAR)")
        db.sql("CREATE MATERIALIZED VIEW j AS SELECT f.id, name FROM f JOIN d ON f.k = d.k")
        ids = np.arange(2_000)
        db.table("d").insert(pa.table({"k": ids, "name": [f"name {at}" for at in ids]}))
        db.table("f").insert(pa.table({"id": ids, "k": ids}))
        db.flush()
        for moved in (1_999, 1):
            db.sql(f"UPDATE f SET k = {moved} - k")
            db.flush()
        assert db.sql("SELECT count(*) AS n FROM j").rows() == [{"n": 2}]
        db.sql("UPDATE f SET k = id % 7")
        db.flush()
        found = db.sql("SELECT name, count(*) AS n FROM j GROUP BY name").rows()
        assert {each["name"]: each["n"] for each in found} == {f"name {at}": 2_000 // 7 + (at < 5) for at in range(7)}
