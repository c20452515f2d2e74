"""EMIT ON WINDOW CLOSE through SQL: windows appear once, final, when the watermark has passed them."""

import datetime as dt
import json
import random
import time
from contextlib import ExitStack

import pytest

from relational.errors import BindError, ParseError
from tests.stream.test_watermarks import START, WINDOWS, disordered, feed, rows, windows_of  # noqa: F401
from tests.support.drivers.engine_store import EngineStore
from tests.support.drivers.seeds import run_seed, seeds


@pytest.mark.parametrize("what", ["SOURCE", "TABLE"])
@pytest.mark.parametrize("seed", seeds(1, 2))
def test_a_view_has_the_windows_that_the_watermark_has_passed(feed, what, seed):  # noqa: F811
    """One file an epoch: the watermark of each epoch is known. Crashes and compaction change nothing."""
    rng = random.Random(f"{run_seed()} closed {what} {seed}")
    feed = feed(parallelism=1)
    feed.create(what)
    feed.db.sql(f"CREATE MATERIALIZED VIEW w AS {WINDOWS}")
    feed.db.sql(f"CREATE MATERIALIZED VIEW final AS {WINDOWS} EMIT ON WINDOW CLOSE")
    feed.db.sql(f"CREATE SINK s AS {WINDOWS} EMIT ON WINDOW CLOSE WITH (connector = 'digest')")
    accepted, bound = [], None
    for number in range(10):
        added = disordered(rng, 60 * number, 30)
        feed.add(added)
        accepted += [row for row in added if bound is None or row[0] is None or row[0] >= bound - 10]
        feed.settle("w" if what == "SOURCE" else "e", lambda: sum(n for (n,) in rows(feed.db, "SELECT n FROM w")))
        bound = max([*([] if bound is None else [bound]), *(row[0] for row in added if row[0] is not None)])
        closed = START + dt.timedelta(minutes=(bound - 10) // 60)
        expected = [row for row in windows_of(accepted) if row[1] is not None and row[1] < closed]
        for _ in range(3):  # the jobs read the same files, each in epochs of its own
            feed.db.flush()
        assert rows(feed.db, "SELECT * FROM final") == expected, number
        assert rows(feed.db, "SELECT inserted, deleted FROM s") == [(len(expected), 0)]
        if rng.random() < 0.4:
            feed.world.restart()
        if rng.random() < 0.4:
            feed.world.compact()
    assert len(expected) > 8
    waiting = feed.visible("final.closing0")
    assert {row[1] for row in waiting} <= {row[1] for row in windows_of(accepted) if row not in expected}


def created(session, directory):
    session.sql("CREATE TABLE e (at TIMESTAMP, k INT, WATERMARK FOR at AS at - INTERVAL '5 seconds') APPEND ONLY "
                f"WITH (connector = 'ndjson', path = '{directory}')")
    return session


def test_both_engines_close_the_same_windows(tmp_path):
    rng, seen = random.Random(run_seed()), []
    with ExitStack() as undo:
        store = EngineStore(undo)
        session = created(store.open(split_discovery_ms=1), tmp_path)
        session.sql("CREATE MATERIALIZED VIEW v AS SELECT window_start, k, count(*) AS n FROM "
                    "TUMBLE(e, at, INTERVAL '10 seconds') GROUP BY window_start, k EMIT ON WINDOW CLOSE")
        session.sql("CREATE MATERIALIZED VIEW total AS SELECT sum(n) AS n FROM v")
        for step in range(9):
            times = [10 * step + rng.randrange(10) for _ in range(8)]
            seen += times
            records = [{"at": str(START + dt.timedelta(seconds=at)), "k": at % 3} for at in times]
            (tmp_path / "new").write_text("".join(json.dumps(record) + "\n" for record in records))
            (tmp_path / "new").rename(tmp_path / f"{step:03}.ndjson")
            while rows(session, "SELECT count(*) AS n FROM e") != [(len(seen),)]:
                time.sleep(0.002)
                session.flush()
            for _ in range(3):
                session.flush()
            closed = [at for at in seen if at // 10 * 10 < (max(seen) - 5) // 10 * 10]
            assert rows(session, "SELECT sum(n) AS n FROM v") == [(len(closed) or None,)], step
            assert rows(session, "SELECT n FROM total") == [(len(closed) or None,)]
            if step % 3 == 2:
                session.close()
                session = store.open(slots=2 if step == 2 else 0, split_discovery_ms=1)
        session.close()


@pytest.mark.parametrize(("query", "reason"), [
    ("SELECT k, count(*) AS n FROM e GROUP BY k EMIT ON WINDOW CLOSE", "needs a column of the result"),
    ("SELECT count(*) AS n FROM e GROUP BY at EMIT ON WINDOW CLOSE", "needs a column of the result"),
    ("SELECT at, count(*) AS n FROM e GROUP BY at EMIT ON CLOSE", "EMIT"),
    ("SELECT at, count(*) AS n FROM e GROUP BY at EMIT ON WINDOW CLOSE now", "now"),
])  # fmt: skip
def test_what_has_no_watermark_is_refused(query, reason, tmp_path):
    with ExitStack() as undo:
        session = created(EngineStore(undo).open(), tmp_path)
        with pytest.raises((BindError, ParseError), match=reason):
            session.sql(f"CREATE MATERIALIZED VIEW v AS {query}")


def test_its_rows_are_append_only(tmp_path):
    with ExitStack() as undo:
        session = created(EngineStore(undo).open(), tmp_path)
        session.sql("CREATE MATERIALIZED VIEW v AS SELECT at, count(*) AS n FROM e GROUP BY at EMIT ON WINDOW CLOSE")
        assert session.table("v").table.is_append_only


FIRST_ROWS = """SELECT window_start, k, v FROM (
    SELECT window_start, k, v, {rank}() OVER (PARTITION BY {groups} ORDER BY v DESC) AS n
    FROM TUMBLE(e, at, INTERVAL '10 seconds')) AS q WHERE n <= {most} EMIT ON WINDOW CLOSE"""


@pytest.mark.parametrize(("rank", "groups", "most"), [
    ("row_number", "window_start", 1), ("rank", "k, window_start", 2), ("dense_rank", "window_start", 2),
])  # fmt: skip
def test_the_first_rows_of_windows_come_when_these_are_closed(rank, groups, most):
    """Of a table that takes statements, on one engine after the other."""
    rng, stored, number = random.Random(f"{run_seed()} {rank}"), [], 0
    with ExitStack() as undo:
        store = EngineStore(undo)
        session = store.open(parallelism=2)
        session.sql("CREATE TABLE e (at TIMESTAMP, k INT, v INT, WATERMARK FOR at AS at - INTERVAL '5 seconds') "
                    "APPEND ONLY")
        session.sql(f"CREATE MATERIALIZED VIEW f AS {FIRST_ROWS.format(rank=rank, groups=groups, most=most)}")
        for step in range(7):
            if step in (2, 4):
                session.close()
                session = store.open(**({"slots": 2} if step == 2 else {"parallelism": 2}))
            added = []
            for _ in range(9):
                number += 1  # different values have an order without ties
                added.append((10 * step + rng.randrange(10), rng.randrange(2), rng.randrange(1000) * 100 + number))
            cells = ", ".join(f"('{START + dt.timedelta(seconds=at)}', {k}, {v})" for at, k, v in added)
            session.sql(f"INSERT INTO e VALUES {cells}")
            session.flush()
            stored += added
            end = (max(at for at, _, _ in stored) - 5) // 10 * 10
            found = {}
            for at, k, v in stored:
                if at // 10 * 10 < end:
                    found.setdefault((at // 10, k if "k" in groups else None), []).append((v, k, at // 10 * 10))
            wanted = [(START + dt.timedelta(seconds=at), k, v) for group in found.values()
                      for v, k, at in sorted(group, reverse=True)[:most]]
            assert rows(session, "SELECT * FROM f") == sorted(wanted, key=repr), step
        assert wanted and store.counts["tasks"]
