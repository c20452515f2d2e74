"""Joins whose state watermarks clean, in SQL, on both engines, against DuckDB over the rows that were not late."""

import datetime as dt
import json
import random
import time
from contextlib import ExitStack

import pytest

from hummock.options import StorageOptions
from relational.errors import BindError
from relational.table.storage_table import StorageTable
from tests.stream.test_watermarks import START, rows
from tests.support.drivers.engine_store import EngineStore
from tests.support.drivers.seeds import run_seed
from tests.support.suites.duck import oracle
from tests.support.worlds.timed_session import TimedSession

WINDOWS = ("SELECT a.window_start AS w, a.k, a.v, b.v AS other FROM TUMBLE(a, ts, INTERVAL '10 seconds') AS a "
           "{} JOIN TUMBLE(b, ts, INTERVAL '10 seconds') AS b ON a.window_start = b.window_start AND a.k = b.k")
NEAR = ("SELECT a.ts, a.k, a.v, b.ts AS since, b.v AS other FROM a {} JOIN b ON a.k = b.k "
        "AND a.ts BETWEEN b.ts - INTERVAL '3 seconds' AND b.ts + INTERVAL '8 seconds'")
VALUES = ("SELECT DISTINCT a.window_start AS w, a.k, a.window_start + INTERVAL '10 seconds' AS e "
          "FROM TUMBLE({0}, ts, INTERVAL '10 seconds') AS a")
SOON_SECONDS = 60.0


class Streams:
    """Sources `a` and `b` over directories, and the rows that they have: (seconds, k, v)."""

    def __init__(self, undo, directory):
        self.store, self.directory, self.files = EngineStore(undo), directory, 0
        self.rows = {"a": [], "b": []}
        self.session = None
        for name in self.rows:
            (directory / name).mkdir()

    def open(self, **options):
        self.session = self.store.open(split_discovery_ms=1, **options)

    def create(self, what="TABLE"):
        for name in self.rows:
            self.session.sql(
                f"CREATE {what} {name} (ts TIMESTAMP, k INT, v INT, WATERMARK FOR ts AS ts - INTERVAL '5 seconds')"
                f" {'APPEND ONLY ' if what == 'TABLE' else ''}"
                f"WITH (connector = 'ndjson', path = '{self.directory / name}')")

    def add(self, name, added):
        self.rows[name] += added
        self.files += 1
        path = self.directory / name / f"{self.files:03}.part"
        records = [{"ts": str(START + dt.timedelta(seconds=at)), "k": k, "v": v} for at, k, v in added]
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        path.rename(path.with_suffix(".ndjson"))

    def settle(self):
        """Commits epochs until both tables have all rows, and all views the watermarks of these."""
        deadline = time.monotonic() + SOON_SECONDS
        for name, all_rows in self.rows.items():
            while rows(self.session, f"SELECT count(*) AS n FROM {name}") != [(len(all_rows),)]:
                assert time.monotonic() < deadline, name
                time.sleep(0.002)
                self.session.flush()
        for _ in range(3):
            self.session.flush()

    def watermark(self, name):
        """In seconds."""
        return max(at for at, _, _ in self.rows[name]) - 5

    def expected(self, query, limit=None):
        """DuckDB's rows of a query over all rows; `limit`: those whose first column is below it."""
        with oracle() as duck:
            for name, all_rows in self.rows.items():
                duck.execute(f"CREATE TABLE {name} (ts TIMESTAMP, k INT, v INT)")
                duck.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", [
                    (START + dt.timedelta(seconds=at), k, v) for at, k, v in all_rows])
            for name in self.rows:
                query = query.replace(
                    f"TUMBLE({name}, ts, INTERVAL '10 seconds')",
                    f"(SELECT time_bucket(INTERVAL '10 seconds', ts) AS window_start, * FROM {name})")
            found = duck.sql(query).fetchall()
        return sorted((row for row in found if limit is None or row[0] < START + dt.timedelta(seconds=limit)), key=repr)


VIEWS = {
    "windows": WINDOWS.format(""), "windows_left": WINDOWS.format("LEFT"), "windows_full": WINDOWS.format("FULL"),
    "near": NEAR.format(""), "near_left": NEAR.format("LEFT"),
    "alone": "SELECT ts, k, v FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND a.ts >= b.ts AND "
             "a.ts < b.ts + INTERVAL '1 minute')",
    "distinct_windows": f"SELECT a.w, a.k, a.e FROM ({VALUES.format('a')}) a JOIN ({VALUES.format('b')}) b "
              "ON a.k = b.k AND a.w = b.w AND a.e = b.e",
}
CHANGING, FINAL = ("windows", "near_left", "alone", "distinct_windows"), ("windows_left", "near", "alone")



def test_views_equal_duckdb_and_final_rows_come_once(tmp_path):
    """One side is ahead of the other by up to a minute."""
    rng, step_of = random.Random(run_seed()), {"a": 0, "b": 0}
    with ExitStack() as undo:
        streams = Streams(undo, tmp_path)
        streams.open(state_cache_bytes=rng.choice((1, 1 << 20)))
        streams.create()
        for name in CHANGING:
            streams.session.sql(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")
        for name in FINAL:
            streams.session.sql(f"CREATE MATERIALIZED VIEW {name}_final AS {VIEWS[name]} EMIT ON WINDOW CLOSE")
        for step in range(3):
            for name in ("a", "b"):
                for _ in range(1 if step == 0 else rng.randrange(3)):
                    first = 20 * step_of[name]
                    step_of[name] += 1
                    streams.add(name, [(first + 4 + rng.randrange(20), rng.randrange(3), rng.randrange(100))
                                       for _ in range(12)] + [(first + 24, 0, 0)])
            streams.settle()
            for name in CHANGING:
                assert rows(streams.session, f"SELECT * FROM {name}") == streams.expected(VIEWS[name]), (step, name)
            left, right = map(streams.watermark, ("a", "b"))
            limits = {"windows": min(left, right) // 10 * 10, "near": min(left, right - 3), "alone": min(left, right)}
            for name in FINAL:
                found = streams.expected(VIEWS[name], limits[name.split("_")[0]])
                assert rows(streams.session, f"SELECT * FROM {name}_final") == found, (step, name)
            if step % 2:
                streams.session.close()
                streams.open(slots=2)
        streams.session.close()


def states_of(rows_of_each, query):
    """The rows in each state table of a view over two tables with a row a second, after so many rows of each."""
    world = TimedSession(storage=StorageOptions(watermark_interval_ms=0))
    try:
        for name in ("a", "b"):
            world.session.sql(
                f"CREATE TABLE {name} (ts TIMESTAMP, k INT, v INT, WATERMARK FOR ts AS ts - INTERVAL '5 seconds') "
                f"APPEND ONLY WITH (connector = 'datagen', rows = {rows_of_each}, fields.ts.kind = 'sequence', "
                "fields.ts.step = 1000000, fields.k.min = 0, fields.k.max = 2)")
        world.session.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
        for name in ("a", "b"):
            while rows(world.session, f"SELECT count(*) AS n FROM {name}") != [(rows_of_each,)]:
                world.session.flush()
        for _ in range(3):
            world.session.flush()
        store, found = world.session._playground.storage, {}
        for table in world.session._playground.catalog.snapshot.tables.values():
            assert ".agg" not in table.name
            if ".join0." in table.name:
                scanned = StorageTable(table, store).scan(world.session.committed_epoch)
                found[table.name] = sum(chunk.capacity for chunk in scanned)
        return found
    finally:
        world.close()


@pytest.mark.parametrize("name", ["windows", "windows_full", "near_left", "distinct_windows"])
def test_ten_times_the_rows_leave_no_more_state(name):
    few, many = (states_of(count, VIEWS[name]) for count in (200, 2_000))
    assert many == few and 0 < sum(many.values()) < 100


@pytest.mark.parametrize("query", [
    "SELECT a.ts, a.k FROM a JOIN b ON a.k = b.k",
    "SELECT a.ts, b.ts AS since FROM a FULL JOIN b ON a.ts = b.ts",
    "SELECT b.ts, a.k FROM a LEFT JOIN b ON a.ts = b.ts",
    "SELECT b.ts, a.k FROM a JOIN b ON a.k = b.k AND a.ts >= b.ts",
    "SELECT a.ts, a.k FROM a JOIN b ON a.k = b.k AND a.ts > b.ts - INTERVAL '1 month'",
])  # fmt: skip
def test_a_column_that_may_change_below_the_watermark_has_none(query, tmp_path):
    with ExitStack() as undo:
        streams = Streams(undo, tmp_path)
        streams.open()
        streams.create()
        with pytest.raises(BindError, match="EMIT ON WINDOW CLOSE needs a column of the result with a watermark"):
            streams.session.sql(f"CREATE MATERIALIZED VIEW v AS {query} EMIT ON WINDOW CLOSE")


def test_explain_shows_the_bounds(tmp_path):
    with ExitStack() as undo:
        streams = Streams(undo, tmp_path)
        streams.open()
        streams.create()
        lines = streams.session.sql(f"EXPLAIN CREATE MATERIALIZED VIEW v AS {VIEWS['near']}")["plan"].to_pylist()
        plan = "\n".join(lines)
        assert "IntervalJoin inner on k = k" in plan
        assert "left.ts is from right.ts - INTERVAL '00:00:03' to right.ts + INTERVAL '00:00:08'" in plan
