"""WATERMARK FOR, through SQL: late rows, views of windows across crashes, and state that goes with its windows."""

from __future__ import annotations

import datetime as dt
import json
import random
import time
from collections import Counter
from contextlib import ExitStack

import pytest

import stream
from hummock.base.key import KeyRange
from hummock.options import StorageOptions
from hummock.sstable.sstable_iterator import SstableIterator
from hummock.sstable.store import SstableStore
from relational.errors import BindError, SourceTextError
from relational.table.storage_table import StorageTable
from stream.errors import BulkLoadRefused, DuplicateKey
from stream.executor.watermark_filter import late_reason
from tests.support.drivers.engine_store import EngineStore
from tests.support.drivers.seeds import run_seed, seeds
from tests.support.drivers.stream_driver import emitted_rows
from tests.support.worlds.timed_session import TimedSession

SOON_SECONDS = 60.0
START = dt.datetime(2025, 1, 1)
MINUTE = "date_trunc('minute', ts)"
WINDOWS = f"SELECT k, {MINUTE} AS win, COUNT(*) AS n, SUM(v) AS total, MAX(v) AS most FROM e GROUP BY k, {MINUTE}"
COLUMNS = "ts TIMESTAMP, k INT, v INT, WATERMARK FOR ts AS ts - INTERVAL '10 seconds'"


class Feed:
    """A directory of NDJSON files that the sources of a session read, and what is in it."""

    def __init__(self, directory, **stream):
        self.directory = directory
        directory.mkdir()
        self.rows, self.files = [], 0
        self.world = TimedSession(storage=StorageOptions(watermark_interval_ms=0), split_discovery_ms=1, **stream)

    @property
    def db(self):
        return self.world.session

    def add(self, rows):
        """A new file; `rows` are (seconds after START or None, k, v)."""
        self.files += 1
        self.rows += rows
        records = [{"ts": None if at is None else str(START + dt.timedelta(seconds=at)), "k": k, "v": v}
                   for at, k, v in rows]
        path = self.directory / f"{self.files:05}.part"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        path.rename(path.with_suffix(".ndjson"))

    def create(self, what):
        clause = "APPEND ONLY " if what == "TABLE" else ""
        self.db.sql(f"CREATE {what} e ({COLUMNS}) {clause}WITH (connector = 'ndjson', path = '{self.directory}')")

    def late(self, name):
        return sum(row["rows"] for row in self.db.errors().to_pylist()
                   if row["job"] == name and row["reason"] == late_reason("ts"))

    def count(self, query):
        return self.db.sql(f"SELECT COUNT(*) AS n FROM {query}").rows()[0]["n"]

    def settle(self, name, seen):
        """Commits epochs until `name` has read all rows; `seen()`: those that it keeps."""
        deadline = time.monotonic() + SOON_SECONDS
        while seen() + self.late(name) < len(self.rows):
            assert time.monotonic() < deadline, (seen(), self.late(name), len(self.rows))
            time.sleep(0.002)
            self.db.flush()
        assert seen() + self.late(name) == len(self.rows)
        self.db.flush()

    def stored(self, name):
        """Entries of a table in the files, hidden ones too."""
        table, objects = self.world.table(name), self.db._playground.object_store
        store, prefix, found = SstableStore(objects, StorageOptions()), table.id.to_bytes(4, "big"), 0
        for info in self.world.version.sstables:
            if table.id in info.table_ids:
                found += sum(key.startswith(prefix) for key, _, _ in SstableIterator(store, info).entries())
        return found

    def compact(self):
        """Merges all files into the last level."""
        self.db._playground.manager.compact_range(KeyRange(b"", None))
        self.world.compact()

    def visible(self, name):
        """The rows of a state table at the committed epoch."""
        table = StorageTable(self.world.table(name), self.db._playground.storage)
        return [row for chunk in table.scan(self.db.committed_epoch) for row in chunk.rows()]

    def watermarks(self, name):
        rules = self.world.version.tables.get(self.world.table(name).id)
        return () if rules is None else rules.watermarks


@pytest.fixture
def feed(tmp_path):
    made = []

    def make(**stream):
        made.append(Feed(tmp_path / f"feed{len(made)}", **stream))
        return made[-1]

    yield make
    for each in made:
        each.world.close()


def rows(session, query):
    """Of a session or a snapshot."""
    found = session.sql(query)
    table = found.to_arrow()
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def windows_of(accepted):
    """The rows of WINDOWS over (seconds, k, v), in plain Python."""
    found = {}
    for at, k, v in accepted:
        win = None if at is None else START + dt.timedelta(minutes=at // 60)
        found.setdefault((k, win), []).append(v)
    return sorted(((*key, len(vs), sum(vs), max(vs)) for key, vs in found.items()), key=repr)


def disordered(rng, first, rows):
    """(seconds, k, v) from `first` on: most about in order, some late, some without a time."""
    found = []
    for number in range(rows):
        at = first + number * 60 // rows + rng.randrange(-8, 8)
        kind = rng.random()
        at = None if kind < 0.03 else max(0, at - rng.randrange(15, 200)) if kind < 0.15 else max(0, at)
        found.append((at, rng.randrange(4), rng.randrange(100)))
    return found


# -- what is late ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["SOURCE", "TABLE"])
@pytest.mark.parametrize("seed", seeds(1, 3))
def test_a_view_has_the_rows_that_were_not_below_the_watermark_of_their_epoch(feed, what, seed):
    """One file an epoch, read by one actor: the watermark of each epoch is known. Crashes change nothing."""
    rng = random.Random(f"{run_seed()} late {what} {seed}")
    feed = feed(parallelism=1)
    feed.create(what)
    feed.db.sql(f"CREATE MATERIALIZED VIEW w AS {WINDOWS}")
    job, view = ("w", "w") if what == "SOURCE" else ("e", "w")
    accepted, bound = [], None
    for number in range(14):
        added = disordered(rng, 60 * number, 30)
        feed.add(added)
        timely = [row for row in added if bound is None or row[0] is None or row[0] >= bound - 10]
        accepted += timely
        feed.settle(job, lambda: sum(n for (n,) in rows(feed.db, f"SELECT n FROM {view}")))
        bound = max([*([] if bound is None else [bound]), *(row[0] for row in added if row[0] is not None)])
        assert rows(feed.db, f"SELECT * FROM {view}") == windows_of(accepted), number
        if rng.random() < 0.4:
            feed.world.restart()
        if rng.random() < 0.4:
            feed.world.compact()
    assert 0 < feed.late(job) == len(feed.rows) - len(accepted)
    assert rows(feed.db, f"SELECT * FROM {view}") == windows_of(accepted)


def values_of(added):
    """The rows of an INSERT into a table with COLUMNS."""
    cells = (("NULL" if at is None else f"'{START + dt.timedelta(seconds=at)}'", k, v) for at, k, v in added)
    return ", ".join(f"({at}, {k}, {v})" for at, k, v in cells)


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (v)"], ids=["generated key", "declared key"])
def test_a_table_of_statements_stores_the_rows_that_were_not_late(key):
    """One engine after the other: the watermark is part of each epoch, and a view of closed windows has those below."""
    rng = random.Random(f"{run_seed()} statements {key}")
    accepted, late, bound, number = [], 0, None, 0
    closed = f"SELECT win, n FROM (SELECT {MINUTE} AS win, COUNT(*) AS n FROM e GROUP BY {MINUTE}) AS q"
    with ExitStack() as undo:
        store = EngineStore(undo)
        db = store.open(parallelism=2)
        db.sql(f"CREATE TABLE e ({COLUMNS}{key}) APPEND ONLY")
        db.sql(f"CREATE MATERIALIZED VIEW w AS {WINDOWS}")
        db.sql(f"CREATE MATERIALIZED VIEW c AS {closed} EMIT ON WINDOW CLOSE")
        for each in range(8):
            if each in (3, 5):
                db.close()
                db = store.open(**({"slots": 2} if each == 3 else {"parallelism": 2}))
            added = [(at, k, number + at_row) for at_row, (at, k, _) in enumerate(disordered(rng, 60 * each, 20))]
            number += len(added)
            timely = [row for row in added if bound is None or row[0] is None or row[0] >= bound - 10]
            assert db.sql(f"INSERT INTO e VALUES {values_of(added)}") == len(timely)
            if key:
                with pytest.raises(DuplicateKey):
                    db.sql(f"INSERT INTO e VALUES ('9999-01-01', 1, {accepted[0][2] if accepted else 0})")
            db.flush()
            accepted += timely
            late += len(added) - len(timely)
            bound = max([*([] if bound is None else [bound]), *(row[0] for row in timely if row[0] is not None)])
            assert rows(db, "SELECT * FROM w") == windows_of(accepted)
            counts = Counter(START + dt.timedelta(minutes=at // 60) for at, _, _ in accepted if at is not None)
            end = START + dt.timedelta(seconds=bound - 10)
            assert rows(db, "SELECT * FROM c") == sorted(
                ((win, n) for win, n in counts.items() if win < end.replace(second=0)), key=repr)
        errors = {(row["job"], row["reason"]): row["rows"] for row in db.errors().to_pylist()}
        assert 0 < late == errors["e", late_reason("ts")] and store.counts["tasks"]


def test_the_column_of_a_watermark_stays_and_its_table_is_not_loaded_in_bulk(tmp_path):
    db = stream.connect(f"file://{tmp_path}/store", create=True)
    db.sql(f"CREATE TABLE e (id INT PRIMARY KEY, {COLUMNS}) APPEND ONLY")
    with pytest.raises(BindError, match="column 'ts' has the watermark of table 'e'"):
        db.sql("ALTER TABLE e DROP COLUMN ts")
    with pytest.raises(BulkLoadRefused, match="it has a watermark"):
        db.bulk_load(None, "e")
    db.sql("ALTER TABLE e RENAME COLUMN ts TO at")
    db.sql("ALTER TABLE e DROP COLUMN k")
    db.sql("INSERT INTO e VALUES (1, '2025-01-01 00:01:00', 5)")
    db.flush()
    assert db.sql("INSERT INTO e VALUES (2, '2025-01-01 00:00:49', 5), (3, '2025-01-01 00:00:50', 5)") == 1
    db.close()


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("seed", seeds(1, 3))
def test_views_of_windows_equal_their_query_over_the_rows_that_were_not_late(feed, parallelism, seed):
    """Several files at once, several actors, crashes at any time, recoveries, compaction: the table `e` has what was
    not late, whatever that was."""
    rng = random.Random(f"{run_seed()} windows {parallelism} {seed}")
    feed = feed(parallelism=parallelism, snapshot_slice_rows=rng.choice((2, 65_536)))
    feed.add(disordered(rng, 0, 5))
    feed.create("TABLE")
    feed.db.sql(f"CREATE MATERIALIZED VIEW w AS {WINDOWS}")
    feed.db.sql("CREATE MATERIALIZED VIEW hours AS SELECT date_trunc('hour', win) AS h, SUM(n) AS n FROM w "
                "GROUP BY date_trunc('hour', win)")
    for number in range(25):
        for _ in range(rng.choice((0, 1, 1, 3))):
            feed.add(disordered(rng, 40 * number, rng.choice((3, 20))))
        for _ in range(rng.randrange(3)):
            time.sleep(rng.choice((0, 0.005)))
            feed.db.flush()
        step = rng.random()
        if step < 0.15:
            feed.world.restart()
        elif step < 0.3:
            feed.db._playground.meta.fail(RuntimeError("a part failed"))
        elif step < 0.4:
            feed.world.compact()
        elif step < 0.5 and parallelism > 1:
            feed.db.sql(f"ALTER MATERIALIZED VIEW w SET PARALLELISM {rng.choice((1, 2, 3))}")
        elif step < 0.6:
            feed.db.sql(f"CREATE MATERIALIZED VIEW w{number} AS {WINDOWS}")
        with feed.db.at() as snapshot:
            assert rows(snapshot, "SELECT * FROM w") == rows(snapshot, WINDOWS)
    feed.settle("e", lambda: feed.count("e"))
    feed.world.compact()
    for view in [row["name"] for row in feed.db.sql("SHOW MATERIALIZED VIEWS").to_pylist()]:
        if view != "hours":
            assert rows(feed.db, f"SELECT * FROM {view}") == rows(feed.db, WINDOWS), view
    assert rows(feed.db, "SELECT * FROM hours") == rows(
        feed.db, "SELECT date_trunc('hour', ts) AS h, COUNT(*) AS n FROM e GROUP BY date_trunc('hour', ts)")
    assert feed.late("e") > 0 and feed.watermarks("w.agg0.groups")


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_no_row_is_lost_while_the_splits_of_a_source_move_between_actors(feed, seed):
    """A row below the watermark that another actor has emitted would replace a group whose state is gone: then the
    view would have fewer rows than were read and not late."""
    rng = random.Random(f"{run_seed()} splits {seed}")
    feed = feed(parallelism=2)
    for _ in range(3):
        feed.add(disordered(rng, 0, 10))
    feed.create("SOURCE")
    feed.db.sql(f"CREATE MATERIALIZED VIEW w AS {WINDOWS}")
    for number in range(25):
        for _ in range(rng.choice((0, 1, 2, 4))):
            feed.add(disordered(rng, 30 * number, rng.choice((3, 20))))
        for _ in range(rng.randrange(4)):
            time.sleep(rng.choice((0, 0.005)))
            feed.db.flush()
        step = rng.random()
        if step < 0.15:
            feed.world.restart()
        elif step < 0.25:
            feed.db._playground.meta.fail(RuntimeError("a part failed"))
        elif step < 0.5:
            feed.db.sql(f"ALTER MATERIALIZED VIEW w SET PARALLELISM {rng.choice((1, 2, 3, 5))}")
        elif step < 0.6:
            feed.compact()
    feed.settle("w", lambda: sum(n for (n,) in rows(feed.db, "SELECT n FROM w")))
    found = {row[:2]: row[2] for row in rows(feed.db, "SELECT * FROM w")}
    whole = {row[:2]: row[2] for row in windows_of(feed.rows)}
    assert feed.late("w") > 0 and all(n <= whole[key] for key, n in found.items())
    assert feed.watermarks("w.agg0.groups")


def test_a_query_that_does_not_need_the_column_drops_the_same_rows(feed):
    feed = feed(parallelism=1)
    feed.create("SOURCE")
    feed.db.sql("CREATE MATERIALIZED VIEW few AS SELECT v FROM e WHERE k = 1")
    feed.db.sql("CREATE MATERIALIZED VIEW number AS SELECT COUNT(*) AS n FROM e")
    feed.add([(100, 0, 1), (50, 1, 2)])
    feed.settle("number", lambda: rows(feed.db, "SELECT n FROM number")[0][0])
    feed.add([(89, 1, 3), (90, 1, 4), (200, 1, 5)])
    feed.settle("number", lambda: rows(feed.db, "SELECT n FROM number")[0][0])
    deadline = time.monotonic() + SOON_SECONDS
    while feed.late("few") == 0 and time.monotonic() < deadline:
        feed.db.flush()
    assert rows(feed.db, "SELECT v FROM few") == [(2,), (4,), (5,)] and feed.late("few") == feed.late("number") == 1


def test_a_sink_gets_no_late_rows(feed):
    feed = feed(parallelism=2)
    feed.create("SOURCE")
    feed.db.sql("CREATE SINK s AS SELECT k, v FROM e WITH (connector = 'digest')")
    for at in (100, 50, 300, 290, 10):
        feed.add([(at, 1, 1)])
        feed.settle("s", lambda: feed.db.sql("SELECT inserted FROM s").rows()[0]["inserted"])
    assert feed.late("s") == 2


# -- state of closed windows -------------------------------------------------------------------------------

KEYS, EPOCHS = 20, 24


def moved(feed, name, columns=COLUMNS):
    """Entries of the groups in files after each epoch of a window that moves one minute an epoch, compacted."""
    feed.db.sql(f"CREATE SOURCE {name} ({columns}) WITH (connector = 'ndjson', path = '{feed.directory}')")
    feed.db.sql(f"CREATE MATERIALIZED VIEW v_{name} AS {WINDOWS.replace('FROM e', f'FROM {name}')}")
    stored = []
    for number in range(EPOCHS):
        feed.add([(60 * number + 2 * k, k, number) for k in range(KEYS)])
        feed.settle(f"v_{name}", lambda: sum(n for (n,) in rows(feed.db, f"SELECT n FROM v_{name}")))
        feed.compact()
        stored.append(feed.stored(f"v_{name}.agg0.groups"))
    assert rows(feed.db, f"SELECT * FROM v_{name}") == windows_of(feed.rows)
    return stored


def test_the_state_of_closed_windows_goes_and_the_view_stays(feed):
    """By counting: of 24 windows of 20 groups the state has a few at a time, without a watermark all."""
    bounded, plain = feed(parallelism=1), feed(parallelism=1)
    stored = moved(bounded, "e")
    unbounded = moved(plain, "e", "ts TIMESTAMP, k INT, v INT")
    print(f"\nentries of the state after each epoch: {stored}, without a watermark {unbounded}")
    assert unbounded[-1] >= KEYS * EPOCHS
    assert max(stored) <= 3 * KEYS, stored
    newest = START + dt.timedelta(minutes=EPOCHS - 1)
    assert {row[1] for row in bounded.visible("v_e.agg0.groups")} == {newest}
    assert bounded.count("v_e") == KEYS * EPOCHS and bounded.stored("v_e") >= KEYS * EPOCHS
    assert bounded.watermarks("v_e.agg0.groups") and not bounded.watermarks("v_e"), "only internal tables [R29]"
    assert not any(plain.watermarks(f"v_e.{each}") for each in ("agg0.groups", "offsets"))


def test_rows_that_an_aggregation_keeps_go_with_their_windows(feed):
    """The extremes of a view over a view, whose rows are retracted, are in a table of their own."""
    feed = feed(parallelism=1)
    feed.create("SOURCE")
    feed.db.sql(f"CREATE MATERIALIZED VIEW w AS {WINDOWS}")
    feed.db.sql("CREATE MATERIALIZED VIEW peaks AS SELECT win, MAX(total) AS top, MAX(total::text) AS text FROM w "
                "GROUP BY win")
    for number in range(EPOCHS):
        feed.add([(60 * number + 2 * k, k, number) for k in range(KEYS)])
        feed.settle("w", lambda: sum(n for (n,) in rows(feed.db, "SELECT n FROM w")))
        feed.compact()
    for name in ("peaks.agg0.groups", "peaks.agg0.call1", "w.agg0.groups"):
        assert feed.stored(name) <= 3 * KEYS and len(feed.visible(name)) <= KEYS, name
    assert rows(feed.db, "SELECT * FROM peaks") == rows(
        feed.db, "SELECT win, MAX(total) AS top, MAX(total::text) AS text FROM w GROUP BY win")
    assert feed.count("peaks") == EPOCHS


# -- commits -----------------------------------------------------------------------------------------------


def test_a_watermark_enters_the_version_with_the_epoch_that_carries_it(feed):
    """The barrier that a source requests at its end is no checkpoint: what it carries waits, or is lost in a crash."""
    feed = feed(parallelism=1, checkpoint_frequency=1 << 20)
    feed.create("SOURCE")
    feed.db.sql(f"CREATE MATERIALIZED VIEW w AS {WINDOWS}")
    first = [(60 * number, 1, number) for number in range(3)]
    feed.add(first)
    feed.settle("w", lambda: sum(n for (n,) in rows(feed.db, "SELECT n FROM w")))
    known, epoch = feed.watermarks("w.agg0.groups"), feed.db.committed_epoch
    assert known and known[0].epoch <= epoch
    feed.add([(60 * number, 1, number) for number in range(3, 9)])
    deadline = time.monotonic() + SOON_SECONDS
    emitted = emitted_rows(feed.db, "w")
    while emitted_rows(feed.db, "w") == emitted:
        assert time.monotonic() < deadline
        feed.db._playground.meta.request_barrier()
        time.sleep(0.005)
    for _ in range(3):
        feed.db._playground.meta.request_barrier()
        time.sleep(0.02)
    assert feed.watermarks("w.agg0.groups") == known and feed.db.committed_epoch == epoch
    assert rows(feed.db, "SELECT * FROM w") == windows_of(first)
    feed.world.restart()
    assert feed.watermarks("w.agg0.groups") == known and rows(feed.db, "SELECT * FROM w") == windows_of(first)
    feed.settle("w", lambda: sum(n for (n,) in rows(feed.db, "SELECT n FROM w")))
    assert rows(feed.db, "SELECT * FROM w") == windows_of(feed.rows) and feed.late("w") == 0
    (newest, *_) = feed.watermarks("w.agg0.groups")
    assert known[0].epoch < newest.epoch <= feed.db.committed_epoch


def test_late_rows_are_counted_once_across_a_recovery(feed):
    feed = feed(parallelism=1)
    feed.create("SOURCE")
    feed.db.sql(f"CREATE MATERIALIZED VIEW w AS {WINDOWS}")
    for at in (1_000, 5, 2_000, 6):
        feed.add([(at, 1, 1)])
        feed.settle("w", lambda: sum(n for (n,) in rows(feed.db, "SELECT n FROM w")))
        feed.world.restart()
    assert feed.late("w") == 2
    assert Counter(row["reason"] for row in feed.db.sql("SHOW ERRORS").to_pylist()) == {late_reason("ts"): 1}


def test_statements_show_the_watermark(feed):
    feed = feed(parallelism=1)
    feed.create("SOURCE")
    assert COLUMNS in feed.db.sql("SHOW CREATE SOURCE e").to_pylist()[0]["definition"]
    plan = "\n".join(feed.db.sql(f"EXPLAIN CREATE MATERIALIZED VIEW w AS {WINDOWS}").to_pydict()["plan"])
    assert "Scan e (ts, k, v) watermark [ts]" in plan
    assert "count(*), sum(v), max(v) watermark [date_trunc_minute(ts)]" in plan
    assert "WatermarkFilter ts >= watermark ts - INTERVAL '00:00:10'" in plan
    assert "until watermark [date_trunc_minute(ts)]" in plan


def test_the_calls_take_watermarks_as_sql_does(feed):
    db, columns = feed(parallelism=1).db, {"at": "timestamp", "v": "int"}
    connector = {"connector": "datagen", "rows": "10"}
    text = "at - INTERVAL '2 minutes'"
    db.create_source("called", columns, connector=connector, watermark=("at", text))
    db.create_table("kept", columns, append_only=True, connector=connector, watermark=("v", "v - 3"))
    db.sql(f"CREATE SOURCE written (at TIMESTAMP, v INT, WATERMARK FOR at AS {text}) "
           "WITH (connector = 'datagen', rows = 10)")
    tables = db._playground.catalog
    assert tables.resolve("called").watermarks == tables.resolve("written").watermarks
    assert tables.resolve("kept").declared_watermark == (1, 3)
    assert "WATERMARK FOR v AS v - 3" in db.sql("SHOW CREATE TABLE kept").to_pylist()[0]["definition"]
    for bad in (("x", "at"), ("at", "v"), ("at", "at - INTERVAL '1 month'"), ("at", ""), ("at", "at; DROP TABLE kept")):
        with pytest.raises(SourceTextError):
            db.create_source("bad", columns, connector=connector, watermark=bad)
    with pytest.raises(BindError, match="APPEND ONLY"):
        db.create_table("bad", columns, watermark=("at", "at"))
