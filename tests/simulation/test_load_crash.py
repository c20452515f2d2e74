"""The process dies at each call of a bulk load that changes something: all of its rows are committed, or none.

The next process sees the table from before or from after, repeats the load by its id, and finds no orphaned file or
row.
"""

import random

import pytest

from stream.errors import DuplicateKey
from tests.simulation.ddl_world import CrashPoint, How, World, described
from tests.support.drivers.local_load import LocalFrame, install

BASE = ("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)", "CREATE TABLE u (id BIGINT PRIMARY KEY)",
        "CREATE MATERIALIZED VIEW counted AS SELECT COUNT(*) AS n FROM u",
        "INSERT INTO t VALUES (1, 'old'), (2, 'old')", "INSERT INTO u VALUES (1)", "FLUSH")
UNCOMMITTED = "INSERT INTO u VALUES (2)"
LOADS = {
    "append": {"table": "t"},
    "append over stored rows": {"table": "t", "on_duplicate": "last", "first": 2},
    "create": {"table": "made", "mode": "create", "primary_key": "id"},
    "overwrite": {"table": "t", "mode": "overwrite"},
}


@pytest.fixture(scope="module")
def base():
    return World.after(BASE)


def load(name, world):
    """A function that loads into `world` in a session."""
    options = dict(LOADS[name])
    first, table = options.pop("first", 100), options.pop("table")
    ids = list(range(first, first + 120))
    frame = LocalFrame({"id": ids, "v": [f"loaded {number}" for number in ids]}, {"id": "bigint", "v": "varchar"})
    return lambda session: session.bulk_load(frame, table, load_id="nightly", **options)


def seen(world):
    with world.open() as session:
        return described(session)


def done(base, name, monkeypatch):
    """(number of calls of a load, possible states without it, state with it)."""
    world, crash = base.copy(), CrashPoint()
    install(monkeypatch, world.objects)
    assert world.run((UNCOMMITTED, load(name, world)), crash)
    without = base.copy()
    assert without.run((UNCOMMITTED, "FLUSH"), CrashPoint())
    return crash.calls, (seen(base.copy()), seen(without)), seen(world)


def check_a_death(base, name, crash, before, after, monkeypatch):
    world = base.copy()
    install(monkeypatch, world.objects)
    is_acknowledged = world.run((UNCOMMITTED, load(name, world)), crash)
    world.check_catalog_rows()
    with world.open() as session:
        found = described(session)
        assert found in (*before, after), "some rows of the load"
        assert found == after or not is_acknowledged
        report = load(name, world)(session)                 # repeated, as after a lost answer
        assert report.was_repeated == (found == after)
        table = LOADS[name]["table"]
        loaded = session.sql(f"SELECT COUNT(*) AS n FROM {table} WHERE v LIKE 'loaded%'").to_arrow()["n"][0].as_py()
        assert loaded == 120 == report.rows
        with pytest.raises(DuplicateKey):
            session.sql(f"INSERT INTO {table} VALUES (110, 'x')")
        assert session.sql(f"INSERT INTO {table} VALUES (1000, 'x')") == 1
        assert session.sql("INSERT INTO u VALUES (3)") == 1
        session.flush()
        world.vacuum()
        world.check_files(session)


def points_of(calls):
    return [(at, how) for at in range(1, calls + 1) for how in How]


@pytest.mark.parametrize("name", LOADS)
def test_a_death_leaves_all_of_a_load_or_nothing(base, name, monkeypatch):
    """At the first and the last call, and at some in between."""
    calls, before, after = done(base, name, monkeypatch)
    rng = random.Random(name)
    points = {(1, How.BEFORE), (calls, How.AFTER), *rng.sample(points_of(calls), 3)}
    for at, how in sorted(points):
        check_a_death(base, name, CrashPoint(at, how), before, after, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOADS)
def test_a_death_at_any_call_does(base, name, monkeypatch):
    calls, before, after = done(base, name, monkeypatch)
    for at, how in points_of(calls):
        check_a_death(base, name, CrashPoint(at, how), before, after, monkeypatch)
