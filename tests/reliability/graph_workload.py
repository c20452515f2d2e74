"""The workload of processes that are killed while views are fed, created, rescaled and committed.

Each life opens the store, checks everything against the rows that the sources have read, and then works in one phase
until it is killed. The rows of `datagen` are a function of the offset, so what must be there is computed from the
committed offsets alone.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time

import pyarrow as pa

import stream
from relational.catalog.names import ObjectName
from relational.chunk import DataChunk, StreamChunk
from relational.chunk.change_digest import change_digest
from stream.connector.base import connector_of
from stream.session.session import Session
from stream.session.snapshot import Snapshot
from tests.reliability.fork_server import Note
from tests.support.suites.duck import answer

SPLITS, RATE = 3, 20_000
COLUMNS = "id BIGINT, k BIGINT, v BIGINT"
OPTIONS = (f"connector = 'datagen', splits = {SPLITS}, rate_limit = {RATE}, fields.id.kind = 'sequence', "
           "fields.id.end = 1000000000, fields.k.max = 40, fields.v.nulls = '0.1', fields.v.max = 1000")
FIRST_ROWS = 10_000
"""Of the table, before its first view is created."""
GROUPED = "SELECT k, COUNT(*) AS n, SUM(v)::BIGINT AS s, MIN(v) AS low, MAX(v) AS high FROM {} GROUP BY k"
VIEWS = {"rows_of": "SELECT id, v FROM g", "groups": GROUPED.format("g"), "of_table": GROUPED.format("t"),
         "upon": "SELECT n % 7 AS m, COUNT(*) AS c FROM groups GROUP BY n % 7"}
CREATED = "created"
LIFE_SECONDS, SOON_SECONDS = 20.0, 60.0


def work(directory: str, note: Note, phase: str, seed: int, delay: float = 0.0, ends: bool = False) -> None:
    """One life: it checks the store, then works in `phase`, and is killed `delay` seconds later (0: by another hand).
    `ends`: nothing but the check. It notes how many creations were under way, and how many rows are read in all."""
    rng = random.Random(seed)
    options = {"barrier_interval_ms": 2 if phase == "checkpoint" else rng.choice([2, 10]),
               "checkpoint_frequency": rng.choice([1, 3]), "chunk_rows": 512,
               "snapshot_slice_rows": 256, "parallelism": rng.choice([1, 2, 3]),
               "detached_creation_bytes": rng.choice([0, 1 << 40])}
    with stream.connect(f"file://{directory}/store", create=True, **options) as db:
        db.pause()
        note(f"interrupted {len(db._playground.catalog.snapshot.creating)}")
        prepare(db)
        check(db)
        note(f"committed {read_rows(db)}")
        if not ends:
            db.resume()
            if delay:
                threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
            PHASES[phase](db, rng, note)


def read_rows(db: Session) -> int:
    """The number of rows that the jobs have read, those together that exist for ever; it never decreases."""
    with db.at() as snapshot:
        names = ("t", "counted", *(name for name in VIEWS if name != "upon"))
        return sum(int(offset) for name in names for offset in snapshot.offsets(name).values())


def prepare(db: Session) -> None:
    """Everything is there, also after a process was killed in the middle of it; creations are completed."""
    db.sql(f"CREATE SOURCE IF NOT EXISTS g ({COLUMNS}) WITH ({OPTIONS})")
    db.sql(f"CREATE TABLE IF NOT EXISTS t ({COLUMNS}, PRIMARY KEY (id)) WITH ({OPTIONS}, seed = 5)")
    for name, query in VIEWS.items():
        db.sql(f"CREATE MATERIALIZED VIEW IF NOT EXISTS {name} AS {query}")
    db.sql("CREATE SINK IF NOT EXISTS counted AS SELECT id, k FROM g WITH (connector = 'digest')")
    db.wait_created()
    db.flush()


def check(db: Session) -> None:
    """Each job has each row once that its source has read, and no other."""
    with db.at() as snapshot:
        rows = prefix(db, snapshot, "t", "t")
        check_equal("t", snapshot.sql("SELECT id, k, v FROM t").to_arrow(), rows)
        names = {*VIEWS, CREATED} & set(db.names())
        for name in sorted(names - {"upon"}):
            reads_table = name in ("of_table", CREATED)
            tables = {"t": rows} if reads_table else {"g": prefix(db, snapshot, name, "g")}
            check_equal(name, snapshot.sql(f"SELECT * FROM {name}").to_arrow(), answer(query_of(name), tables))
        groups = snapshot.sql("SELECT * FROM groups").to_arrow()
        check_equal("upon", snapshot.sql("SELECT * FROM upon").to_arrow(), answer(VIEWS["upon"], {"groups": groups}))
        delivered = prefix(db, snapshot, "counted", "g").select(["id", "k"]).combine_chunks()
        _, _, digest = change_digest(StreamChunk.inserts(DataChunk.from_arrow(delivered)))
        (found,) = snapshot.sql("SELECT * FROM counted").to_arrow().to_pylist()
        assert found == {"inserted": delivered.num_rows, "deleted": 0, "digest": f"{digest:016x}"}


def query_of(name: str) -> str:
    return GROUPED.format("t") if name == CREATED else VIEWS[name]


def prefix(db: Session, snapshot: Snapshot, job: str, source: str) -> pa.Table:
    """The rows of a source up to the offsets that a job has committed."""
    catalog = db._playground.catalog.resolve(ObjectName.parse(source))
    connector, batches = connector_of(catalog), []
    for split, offset in snapshot.offsets(job).items():
        reader = connector.open_split(split, (0, 1, 2))
        while reader.offset != offset:
            chunk = reader.next_chunk(min(1 << 16, int(offset) - int(reader.offset)))
            assert chunk is not None
            batches.append(pa.table([column.array for column in chunk.columns], ["id", "k", "v"]))
    empty = pa.table({name: pa.array([], pa.int64()) for name in ("id", "k", "v")})
    return pa.concat_tables(batches) if batches else empty


def check_equal(name: str, found: pa.Table, expected: pa.Table) -> None:
    """Both have the same rows, each as often."""
    tables = {"found": found, "expected": expected}
    for what, first, second in (("too many", "found", "expected"), ("missing", "expected", "found")):
        rows = answer(f"SELECT * FROM {first} EXCEPT ALL SELECT * FROM {second} LIMIT 5", tables).to_pylist()
        assert not rows, f"{name}: {what}: {rows}, {found.num_rows} rows, {expected.num_rows} expected"


def ingest(db: Session, rng: random.Random, note: Note) -> None:
    """Sources are read, and flushed now and then."""
    until = time.monotonic() + LIFE_SECONDS
    while time.monotonic() < until:
        time.sleep(rng.random() * 0.05)
        db.flush()
        note(f"committed {read_rows(db)}")


def backfill(db: Session, rng: random.Random, note: Note) -> None:
    """A view of the table is created again and again, while the table grows."""
    until = time.monotonic() + LIFE_SECONDS
    while time.monotonic() < until:
        db.sql(f"DROP MATERIALIZED VIEW IF EXISTS {CREATED}")
        options = f"WITH (parallelism = {rng.randint(1, 4)})"
        db.sql(f"CREATE MATERIALIZED VIEW {CREATED} {options} AS {GROUPED.format('t')}")


def rescale(db: Session, rng: random.Random, note: Note) -> None:
    """Views get other numbers of actors while their sources are read."""
    until = time.monotonic() + LIFE_SECONDS
    while time.monotonic() < until:
        name = rng.choice(sorted(VIEWS))
        db.sql(f"ALTER MATERIALIZED VIEW {name} SET PARALLELISM = {rng.choice([1, 2, 3, 8])}")


PHASES = {"ingest": ingest, "backfill": backfill, "rescale": rescale, "checkpoint": ingest}


def first_life(directory: str, note: Note) -> None:
    """The store of the lives that follow, with rows to read for a new view."""
    with stream.connect(f"file://{directory}/store", create=True, barrier_interval_ms=10) as db:
        prepare(db)
        deadline = time.monotonic() + SOON_SECONDS
        while db.sql("SELECT COUNT(*) AS n FROM t").rows()[0]["n"] < FIRST_ROWS:
            assert time.monotonic() < deadline, db.jobs().to_pylist()
            time.sleep(0.01)
