"""Views with window functions beside DuckDB, under inserts at the end and in the middle, updates, deletes, NULLs,
restarts and changes of parallelism; and by epochs that run as tasks."""

from __future__ import annotations

import datetime as dt
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

import stream
from tests.support.drivers.engine_store import EngineStore
from tests.support.drivers.seeds import amount, run_seed, seeds
from tests.support.suites.duck import assert_same_rows, oracle, rows_of

TABLE = "CREATE TABLE sold (id INT PRIMARY KEY, shop INT, moment TIMESTAMP, price NUMERIC(12, 2), n INT, s VARCHAR)"
BY_TIME = "PARTITION BY shop ORDER BY moment, id"
VIEWS = {
    "running": f"SELECT id, sum(price) OVER w AS a, count(n) OVER w AS b, max(s) OVER w AS c,"
               f" first_value(n) OVER w AS d FROM sold WINDOW w AS ({BY_TIME})",
    "sliding": f"SELECT id, avg(n) OVER w AS a, min(price) OVER w AS b, last_value(s) OVER w AS c FROM sold"
               f" WINDOW w AS ({BY_TIME} ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING)",
    "hours": "SELECT id, sum(n) OVER w AS a, count(*) FILTER (WHERE n > 2) OVER w AS b FROM sold WINDOW w AS"
             " (PARTITION BY shop ORDER BY moment RANGE BETWEEN INTERVAL '1 hour' PRECEDING AND CURRENT ROW)",
    "others": f"SELECT id, lag(n, 2) OVER w AS a, lead(s, 1, 'end') OVER w AS b FROM sold WINDOW w AS ({BY_TIME})",
    "numbers": "SELECT id, row_number() OVER (ORDER BY moment DESC, id) AS a,"
               " rank() OVER (PARTITION BY shop ORDER BY n) AS b,"
               " dense_rank() OVER (PARTITION BY shop ORDER BY n) AS c FROM sold",
    "shares": "SELECT id, price / sum(price) OVER (PARTITION BY shop) > 0.1 AS a,"
              " ntile(4) OVER (PARTITION BY shop ORDER BY moment, id) AS b FROM sold WHERE price > 0",
    "growth": "SELECT shop, sum(sum(n)) OVER (ORDER BY shop) AS a, lag(max(moment)) OVER (ORDER BY shop) AS b FROM sold"
              " WHERE shop IS NOT NULL GROUP BY shop",
    "sessions": "SELECT shop, window_start, window_end, count(*) AS a, max(s) AS b FROM"
                " SESSION(sold, moment, INTERVAL '15 minutes', shop) GROUP BY shop, window_start, window_end",
    "in_sessions": "SELECT id, window_start AS a, window_end AS b FROM"
                   " SESSION(sold, moment, INTERVAL '15 minutes', shop)",
    "of_numbers": "SELECT shop, max(gap) AS a FROM (SELECT shop, n - lag(n) OVER (PARTITION BY shop ORDER BY id) AS gap"
                  " FROM sold) AS x GROUP BY shop",
}  # fmt: skip
IN_SESSIONS = """(SELECT *, min(moment) OVER (PARTITION BY shop, session) AS window_start,
    max(moment) OVER (PARTITION BY shop, session) + INTERVAL '15 minutes' AS window_end FROM
    (SELECT *, count(*) FILTER (before IS NULL OR moment - before > INTERVAL '15 minutes')
        OVER (PARTITION BY shop ORDER BY moment) AS session FROM
    (SELECT *, lag(moment) OVER (PARTITION BY shop ORDER BY moment) AS before FROM sold WHERE moment IS NOT NULL)))"""
"""The sessions of the views in DuckDB's words."""
NEVER_MS = 3_600_000
SHOPS, EPOCHS = 4, amount(6, 8)


def statements(rng: random.Random, known: dict[int, int], first: int) -> list[str]:
    """Changes of an epoch; `known`: the ids that there are, with their minutes."""
    found = []
    rows = []
    for key in range(first, first + rng.randrange(1, 12)):
        minute = max(known.values(), default=0) + rng.randrange(40) if rng.random() < 0.6 else rng.randrange(600)
        known[key] = minute
        rows.append(f"({key}, {_value(rng, rng.randrange(SHOPS), 0.1)}, {_value(rng, _time(minute), 0.1)},"
                    f" {_value(rng, rng.randrange(-300, 900) / 100, 0.1)}, {_value(rng, rng.randrange(6), 0.2)},"
                    f" {_value(rng, rng.choice(('a', 'b', '')), 0.2)})")
    found.append(f"INSERT INTO sold VALUES {', '.join(rows)}")
    some = rng.sample(sorted(known), min(3, len(known)))
    at = _time(rng.randrange(600))
    change = rng.choice(("n = n + 1", f"shop = {rng.randrange(SHOPS)}", f"moment = '{at}'", "s = NULL"))
    found.append(f"UPDATE sold SET {change} WHERE id IN ({', '.join(map(str, some))})")
    if rng.random() < 0.6:
        gone = rng.sample(sorted(known), min(4, len(known)))
        found.append(f"DELETE FROM sold WHERE id IN ({', '.join(map(str, gone))})")
        for key in gone:
            del known[key]
    return found


def _time(minute: int) -> str:
    return f"2024-03-{1 + minute // 1440:02} {minute // 60 % 24:02}:{minute % 60:02}:00"


def _value(rng: random.Random, value: Any, nulls: float) -> str:
    return "NULL" if rng.random() < nulls else repr(value)


def keep(seed: str, rng: random.Random, connected: Callable[[], stream.Session]) -> None:
    known, duck = dict[int, int](), oracle()
    duck.execute(TABLE)
    db = connected()
    try:
        db.sql(TABLE)
        for epoch in range(EPOCHS):
            if epoch == 1:
                for name, query in VIEWS.items():
                    db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
            if epoch in (2, 4):
                db.close()
                db = connected()
            if epoch == 3:
                for name in rng.sample(sorted(VIEWS), 4):
                    db.sql(f"ALTER MATERIALIZED VIEW {name} SET PARALLELISM = {rng.choice((1, 2, 4))}")
            for text in statements(rng, known, 100 * epoch):
                db.sql(text)
                duck.execute(text)
            db.flush()
            assert not db.failed_jobs, db.failed_jobs
            for name, query in VIEWS.items() if epoch else ():
                theirs = query.replace("SESSION(sold, moment, INTERVAL '15 minutes', shop)", IN_SESSIONS)
                expected = rows_of(duck.sql(theirs).to_arrow_table())
                for text in (f"SELECT * FROM {name}", query)[: 1 + (epoch % amount(3, 1) == amount(2, 0))]:
                    try:
                        assert_same_rows(rows_of(db.sql(text).to_arrow()), expected, ordered=False)
                    except Exception as error:
                        raise AssertionError(f"seed {seed!r}, epoch {epoch}, {name}: {text}") from error
    finally:
        db.close()


@pytest.mark.parametrize("number", seeds(1, 3))
def test_views_hold_what_duckdb_computes(tmp_path, number):
    seed = f"{run_seed()} {number}"
    rng, url = random.Random(seed), f"file://{tmp_path}/store"
    keep(seed, rng, lambda: stream.connect(url, create=True,
            barrier_interval_ms=NEVER_MS, parallelism=rng.choice((1, 3))))


def test_views_are_kept_by_epochs_that_run_as_tasks():
    """And by actors, in the sessions in between."""
    seed, slots = f"{run_seed()} tasks", iter((2, 0, 3))
    with ExitStack() as undo:
        store = EngineStore(undo)
        keep(seed, random.Random(seed), lambda: store.open(slots=next(slots)))
        assert store.counts["tasks"] > EPOCHS


RANKED = ("SELECT window_start, k, row_number() OVER (PARTITION BY window_start ORDER BY n DESC, k) AS r FROM (SELECT"
          " window_start, k, count(*) AS n FROM TUMBLE(e, at, INTERVAL '10 seconds') GROUP BY window_start, k) AS x")


def test_numbers_within_windows_of_time_are_final_when_these_close(tmp_path):
    rng, start, seen = random.Random(run_seed()), dt.datetime(2024, 1, 1), []
    db = stream.connect(f"file://{tmp_path}/store", create=True, barrier_interval_ms=NEVER_MS, split_discovery_ms=1)
    (tmp_path / "feed").mkdir()
    db.sql("CREATE TABLE e (at TIMESTAMP, k INT, WATERMARK FOR at AS at - INTERVAL '5 seconds') APPEND ONLY "
           f"WITH (connector = 'ndjson', path = '{tmp_path}/feed')")
    db.sql(f"CREATE MATERIALIZED VIEW ranked AS {RANKED}")
    db.sql(f"CREATE MATERIALIZED VIEW final AS {RANKED} EMIT ON WINDOW CLOSE")
    try:
        for step in range(6):
            fresh = [(10 * step + rng.randrange(10), rng.randrange(4)) for _ in range(12)]
            seen += fresh
            records = [{"at": str(start + dt.timedelta(seconds=at)), "k": k} for at, k in fresh]
            (tmp_path / "new").write_text("".join(json.dumps(record) + "\n" for record in records))
            (tmp_path / "new").rename(tmp_path / "feed" / f"{step}.ndjson")
            while db.sql("SELECT count(*) AS n FROM e").rows() != [{"n": len(seen)}]:
                time.sleep(0.002)
                db.flush()
            for _ in range(3):
                db.flush()
            counts = Counter((at // 10, k) for at, k in seen)
            numbered = {(window, k): sum((-other, j) <= (-n, k) for (w, j), other in counts.items() if w == window)
                        for (window, k), n in counts.items()}
            closed = {key: r for key, r in numbered.items() if key[0] < (max(at for at, _ in seen) - 5) // 10}
            for name, expected in (("ranked", numbered), ("final", closed)):
                found = {((row["window_start"] - start).seconds // 10, row["k"]): row["r"]
                         for row in db.sql(f"SELECT * FROM {name}").rows()}
                assert found == expected, (name, step)
    finally:
        db.close()
