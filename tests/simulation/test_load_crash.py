"""The process dies at each call of a bulk load that changes something: all of its rows are there, or none of them.

Whoever comes next sees the table from before or from after, repeats the load by its id, and finds no file and no row
that belongs to nothing.
"""

import random

import pytest

from stream.errors import DuplicateKey
from tests.simulation.ddl_world import Fate, How, World, described
from tests.support.drivers.local_load import LocalFrame, install

BASE = ("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)", "CREATE TABLE u (id BIGINT PRIMARY KEY)",
        "CREATE MATERIALIZED VIEW counted AS SELECT COUNT(*) AS n FROM u",
        "INSERT INTO t VALUES (1, 'old'), (2, 'old')", "INSERT INTO u VALUES (1)", "FLUSH")
ON_ITS_WAY = "INSERT INTO u VALUES (2)"
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
    """A call on a session that loads into `world`."""
    options = dict(LOADS[name])
    first, table = options.pop("first", 100), options.pop("table")
    ids = list(range(first, first + 120))
    frame = LocalFrame({"id": ids, "v": [f"loaded {number}" for number in ids]}, {"id": "bigint", "v": "varchar"})
    return lambda session: session.bulk_load(frame, table, load_id="nightly", **options)


def seen(world):
    with world.open() as session:
        return described(session)


def done(base, name, monkeypatch):
    """(calls that a load makes, what is there without it, and with it)."""
    world, fate = base.copy(), Fate()
    install(monkeypatch, world.objects)
    assert world.live((ON_ITS_WAY, load(name, world)), fate)
    without = base.copy()
    assert without.live((ON_ITS_WAY, "FLUSH"), Fate())
    return fate.calls, (seen(base.copy()), seen(without)), seen(world)


def check_a_death(base, name, fate, before, after, monkeypatch):
    world = base.copy()
    install(monkeypatch, world.objects)
    is_told = world.live((ON_ITS_WAY, load(name, world)), fate)
    world.check_catalog_rows()
    with world.open() as session:
        found = described(session)
        assert found in (*before, after), "some rows of the load"
        assert found == after or not is_told
        report = load(name, world)(session)                 # whoever does not know repeats it
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
    """At the first and the last call, and at some of those between."""
    calls, before, after = done(base, name, monkeypatch)
    rng = random.Random(name)
    points = {(1, How.BEFORE), (calls, How.AFTER), *rng.sample(points_of(calls), 3)}
    for at, how in sorted(points):
        check_a_death(base, name, Fate(at, how), before, after, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOADS)
def test_a_death_at_any_call_does(base, name, monkeypatch):
    calls, before, after = done(base, name, monkeypatch)
    for at, how in points_of(calls):
        check_a_death(base, name, Fate(at, how), before, after, monkeypatch)
