"""Temporal filters through SQL, on both engines: rows enter and leave as the time of the epochs passes."""

import random
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

from hummock.epoch import to_unix_ms
from relational.errors import BindError, ParseError
from tests.support.drivers.engine_store import EngineStore
from tests.support.drivers.seeds import amount, run_seed

KEY_COUNT, LIFE = 12, amount(2, 4)
"""Keys, and the steps of a session."""
VIEWS = {
    "recent": "SELECT id, at FROM t WHERE at > now() - INTERVAL '1 minute'",
    "due": "SELECT id, at FROM t WHERE at <= now()",
    "window_of_time": "SELECT id FROM t WHERE at + INTERVAL '30 s' > now() AND at - INTERVAL '30 s' < now()",
    "counts": "SELECT x, count(*) AS n FROM t WHERE at > now() - INTERVAL '1 minute' GROUP BY x",
    "joined": "SELECT t.id, u.y FROM t JOIN u ON t.x = u.x WHERE t.at > now() - INTERVAL '1 minute' AND u.y > 1",
    "of_day": "SELECT id FROM t WHERE date_trunc('minute', at) = at AND at >= date_trunc('minute', now())",
    "over_view": "SELECT count(*) AS n FROM recent",
}
NAIVE = {  # of (id, at, x) and the time
    "recent": lambda rows, now, us: [(i, at) for i, at, x in rows if at > now - timedelta(minutes=1)],
    "due": lambda rows, now, us: [(i, at) for i, at, x in rows if at <= now],
    "window_of_time": lambda rows, now, us: [(i,) for i, at, x in rows if abs(at - now) < timedelta(seconds=30)],
    "counts": lambda rows, now, us: [
        (g, n) for g in (0, 1, 2) if (n := sum(x == g for _, at, x in rows if at > now - timedelta(minutes=1)))],
    "joined": lambda rows, now, us: [
        (i, y) for i, at, x in rows for ux, y in us if ux == x and y > 1 and at > now - timedelta(minutes=1)],
    "of_day": lambda rows, now, us: [
        (i,) for i, at, x in rows if at == minute(at) and at >= minute(now)],
    "over_view": lambda rows, now, us: [(sum(at > now - timedelta(minutes=1) for _, at, _ in rows),)],
}


def minute(time):
    return time.replace(second=0, microsecond=0)


@pytest.fixture
def store():
    with ExitStack() as undo:
        yield EngineStore(undo)


@pytest.fixture
def session(store):
    opened = store.open()
    opened.sql("CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMPTZ, x INT)")
    return opened


def epoch_time(session):
    """now() of the committed epoch."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=to_unix_ms(session.committed_epoch))


def check(session, rows, us):
    session.flush()
    now = epoch_time(session)
    known = [row for row in rows.values() if row[1] is not None]
    for name, naive in NAIVE.items():
        found = [tuple(row.values()) for row in session.sql(f"SELECT * FROM {name}").to_arrow().to_pylist()]
        assert sorted(found) == sorted(naive(known, now, us)), (name, now)


def change(session, rows, rng, now):
    key = rng.randrange(KEY_COUNT)
    at = None if rng.random() < 0.1 else now + timedelta(seconds=rng.randint(-90, 90))
    if rng.random() < 0.3:
        at = minute(now) + timedelta(minutes=rng.randint(-1, 2))
    row = key, at, rng.randrange(3)
    text = "NULL" if at is None else f"TIMESTAMPTZ '{at.isoformat()}'"
    if key not in rows:
        session.sql(f"INSERT INTO t VALUES ({key}, {text}, {row[2]})")
        rows[key] = row
    elif rng.random() < 0.3:
        session.sql(f"DELETE FROM t WHERE id = {key}")
        del rows[key]
    else:
        session.sql(f"UPDATE t SET at = {text}, x = {row[2]} WHERE id = {key}")
        rows[key] = row


@pytest.mark.parametrize("engines", [(0,), (2,), (0, 2)])
def test_views_hold_the_rows_of_their_time_on_both_engines_and_after_restarts(store, engines):
    rng, rows, us = random.Random(run_seed()), {}, [(0, 1), (0, 2), (1, 3), (2, 1)]
    session = store.open(slots=engines[0])
    session.sql("CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMPTZ, x INT)")
    session.sql("CREATE TABLE u (x INT, y INT)")
    session.sql("INSERT INTO u VALUES " + ", ".join(map(str, us)))
    for _ in range(4):
        change(session, rows, rng, epoch_time(session))
    for name, query in VIEWS.items():
        session.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    for step in range(LIFE * (1 + len(engines))):
        for _ in range(rng.randrange(4)):
            change(session, rows, rng, epoch_time(session))
        check(session, rows, us)
        store.now_ms += rng.choice([1_000, 10_000, 45_000])
        if step % LIFE == LIFE - 1:
            session.close()
            session = store.open(slots=engines[(step // LIFE) % len(engines)])
            check(session, rows, us)
    session.close()


def test_a_sink_without_a_key_gets_each_row_once_when_it_is_due(store):
    session = store.open()
    session.sql("CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMPTZ) APPEND ONLY")
    session.sql("CREATE SINK s AS SELECT id FROM t WHERE at <= now() WITH (connector = 'digest')")
    now = epoch_time(session)
    session.sql(f"INSERT INTO t VALUES (1, TIMESTAMPTZ '{now.isoformat()}'), "
                f"(2, TIMESTAMPTZ '{(now + timedelta(hours=1)).isoformat()}')")
    session.flush()
    assert session.sql("SELECT inserted, deleted FROM s").rows() == [{"inserted": 1, "deleted": 0}]
    store.now_ms += 3_700_000
    session.flush()
    session.flush()
    assert session.sql("SELECT inserted, deleted FROM s").rows() == [{"inserted": 2, "deleted": 0}]


@pytest.mark.parametrize("query", [
    "SELECT now() AS n FROM t",
    "SELECT id FROM t WHERE at = now()",
    "SELECT id FROM t WHERE at > now() - INTERVAL '1 month'",
    "SELECT id FROM t WHERE at > now() OR x = 1",
    "SELECT id FROM t WHERE now() - at < INTERVAL '1 hour'",
    "SELECT id FROM t WHERE now() > TIMESTAMPTZ '2020-01-01 00:00:00Z'",
    "SELECT count(*) FILTER (WHERE at > now()) AS n FROM t",
    "SELECT t.id FROM t JOIN t AS o ON t.at + (o.at - o.at) > now()",
])  # fmt: skip
def test_now_elsewhere_is_refused(session, query):
    with pytest.raises(BindError, match=r"now\(\) in a materialized view is compared, in WHERE"):
        session.sql(f"CREATE MATERIALIZED VIEW v AS {query}")


@pytest.mark.parametrize("query", [
    "CREATE MATERIALIZED VIEW v AS SELECT id FROM t WHERE at < current_date",
    "CREATE VIEW v AS SELECT id FROM t WHERE at < now()",
    "CREATE INDEX i ON t (now())",
])  # fmt: skip
def test_other_moments_and_what_is_not_kept_fresh_are_refused(session, query):
    with pytest.raises((BindError, ParseError)):
        session.sql(query)


def test_its_rows_are_not_append_only(store):
    session = store.open()
    session.sql("CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMPTZ) APPEND ONLY")
    session.sql("CREATE MATERIALIZED VIEW late AS SELECT id FROM t WHERE at <= now()")
    session.sql("CREATE MATERIALIZED VIEW recent AS SELECT id FROM t WHERE at > now()")
    late, recent = (session.table(name).table for name in ("late", "recent"))
    assert late.is_append_only and not recent.is_append_only
