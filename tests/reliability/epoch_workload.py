"""The workload of drivers on Spark that are killed or replaced while their tasks fail, and what must be in its store.

The rows of `datagen` are a function of the offset, so what the views of source `g` must hold is computed from the
committed offsets alone. Table `m` is changed by numbered statements, which are a function of the seed and the number.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from hummock.errors import ObjectStoreError
from hummock.meta import open_meta_store
from hummock.object_store import open_object_store
from hummock.object_store.base import ObjectStore
from relational.chunk import DataChunk, StreamChunk
from relational.chunk.change_digest import change_digest
from stream.playground import Playground
from stream.protocol import StepObserver, unobserved
from stream.session.connect import playground_options
from stream.session.session import Session
from stream.session.snapshot import Snapshot
from stream.spark.job import SparkEpochTasks
from stream.spark.spark_worker import SparkWorker
from tests.reliability.graph_workload import check_equal, prefix
from tests.support.suites.duck import answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPLITS = 4
SOURCE = ("CREATE SOURCE g (id BIGINT, k BIGINT, v BIGINT) WITH (connector = 'datagen', "
          f"splits = {SPLITS}, fields.id.kind = 'sequence', fields.k.max = 40, fields.v.nulls = '0.1')")
TABLE = "CREATE TABLE m (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)"
SINK = "CREATE SINK counted AS SELECT id, k FROM g WITH (connector = 'digest')"
VIEWS = {
    "rows_of": "SELECT id, v FROM g",
    "groups": "SELECT k, COUNT(*) AS n, SUM(v)::BIGINT AS s, MIN(v) AS low, MAX(v) AS high FROM g GROUP BY k",
    "upon": "SELECT n % 7 AS r, COUNT(*) AS c FROM groups GROUP BY n % 7",
    "of_m": "SELECT k, COUNT(*) AS n, SUM(v)::BIGINT AS s, MAX(id) AS last FROM m GROUP BY k",
    "upon_m": "SELECT n, COUNT(*) AS c, MAX(s) AS s FROM of_m GROUP BY n",
}
CREATED = "created"
"""A view that is dropped and created again, over rows that exist already."""
CREATED_QUERY = "SELECT id % 10 AS r, COUNT(*) AS n, SUM(v)::BIGINT AS s FROM rows_of GROUP BY id % 10"
OPTIONS = {"driver_rows": 0, "task_rows": 1, "epoch_rows": 1_500, "checkpoint_rows": 1_500,
           "chunk_rows": 512, "barrier_interval_ms": 50, "sstable_bytes": 32 << 10, "block_bytes": 1 << 10,
           "recovery_attempts": 10, "inbox_poll_ms": 0}
ROWS_HERE = 200
"""Of an epoch and a source, in a session whose epochs are those of its own process."""
ROWS_OF_STATEMENT = 5
STORE_FAILURES = 12
"""Of a faulty store, at most, in a row of statements."""
STRANGE_ID = -1
"""Of a row that no store may keep."""
Rows = dict[int, tuple[int, int]]
"""Of table m: id -> (k, v)."""


def open_session(
    url: str,
    spark: SparkSession | None = None,
    observer: StepObserver = unobserved,
    *,
    around: Callable[[ObjectStore], ObjectStore] = lambda objects: objects,
    **more: object,
) -> Session:
    """A session whose sources are paused; with `spark` all its epochs run there. `around` wraps the objects of its
    process. `more`: options."""
    objects = around(open_object_store(url))
    rows = {} if spark else {"checkpoint_rows": ROWS_HERE}
    options = playground_options({**OPTIONS, **rows, **more, "sources_paused": True})
    engine = None if spark is None else partial(SparkWorker, tasks=SparkEpochTasks(spark))
    return Session(Playground(objects, open_meta_store(url, None, object_store=objects), options, observer=observer,
                              engine=engine))


def create(url: str) -> None:
    """The store of the rounds, created by an engine of one process."""
    with open_session(url) as db:
        db.sql(SOURCE)
        db.sql(TABLE)
        for name, query in VIEWS.items():
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        db.sql(SINK)


# -- statements ------------------------------------------------------------------------------------------------


def statement(seed: int, number: int) -> tuple[str, Callable[[Rows], Rows]]:
    """Statement `number` on table m, and what it makes of its rows."""
    rng = random.Random(f"{seed} {number}")
    kind, rest = rng.choice(["insert", "insert", "update", "delete"]), rng.randrange(7)
    if kind == "insert":
        ids = range(ROWS_OF_STATEMENT * number, ROWS_OF_STATEMENT * (number + 1))
        new = {key: (rng.randrange(41), rng.randrange(100)) for key in ids}
        values = ", ".join(f"({key}, {k}, {v})" for key, (k, v) in new.items())
        return f"INSERT INTO m VALUES {values}", lambda rows: rows | new
    if kind == "update":
        return f"UPDATE m SET v = v + 1 WHERE id % 7 = {rest}", lambda rows: {
            key: (k, v + (key % 7 == rest)) for key, (k, v) in rows.items()}
    return f"DELETE FROM m WHERE id % 7 = {rest} AND v % 2 = 0", lambda rows: {
        key: (k, v) for key, (k, v) in rows.items() if key % 7 != rest or v % 2}


def rows_after(seed: int, number: int) -> Rows:
    """The rows of table m after `number` statements."""
    rows: Rows = {}
    for each in range(number):
        rows = statement(seed, each)[1](rows)
    return rows


def _create_again(db: Session, tries: int) -> None:
    """Creates a view anew. What a statement itself reads is read once: an error of the store is its answer, and nothing
    has changed."""
    for left in reversed(range(tries)):
        with suppress(*((ObjectStoreError,) if left else ())):
            db.sql(f"DROP MATERIALIZED VIEW IF EXISTS {CREATED}")
            db.sql(f"CREATE MATERIALIZED VIEW {CREATED} AS {CREATED_QUERY}")
            return


def work(
    db: Session, seed: int, first: int, count: int, note: Callable[[str], None], *, can_read: bool = True
) -> None:
    """Statements from number `first` on, while sources are read. Notes what was sent, what was flushed, and, if it
    `can_read`, how many rows of the source were."""
    rng = random.Random(f"{seed} flushes {first}")
    db.resume()
    for number in range(first, first + count):
        if rng.random() < 0.3:
            _create_again(db, 1 if can_read else STORE_FAILURES)
            note(f"created {number + 1}")
        note(f"sent {number + 1}")
        db.sql(statement(seed, number)[0])
        if rng.random() < 0.5 or number == first + count - 1:
            db.flush()
            note(f"flushed {number + 1}")
            if can_read:
                note(f"read {rows_read(db)}")


# -- checks ----------------------------------------------------------------------------------------------------


def rows_read(db: Session) -> int:
    """Rows of the source that all jobs together have read; it never decreases."""
    with db.at() as snapshot:
        return sum(int(offset) for name in ("rows_of", "groups", "counted") for offset in
                   snapshot.offsets(name).values())


def check(db: Session, seed: int, least: int, most: int) -> int:
    """Every job has each row once that its source has read, and no other. The number of statements that the store has,
    which is from `least` to `most`."""
    db.wait_created()
    with db.at() as snapshot:
        found = snapshot.sql("SELECT id, k, v FROM m").to_arrow()
        rows = {row["id"]: (row["k"], row["v"]) for row in found.to_pylist()}
        number = next((each for each in range(most, least - 1, -1) if rows_after(seed, each) == rows), None)
        assert number is not None, f"m has the rows after none of {least} to {most} statements: {sorted(rows.items())}"
        views = {name: query for name, query in {**VIEWS, CREATED: CREATED_QUERY}.items() if name in db.names()}
        assert views.keys() >= VIEWS.keys()
        upstreams = {each: snapshot.sql(f"SELECT * FROM {each}").to_arrow() for each in ("groups", "of_m", "rows_of")}
        for name, query in views.items():
            tables = {"m": found, **upstreams}
            if " FROM g" in query:
                tables["g"] = prefix(db, snapshot, name, "g")
            check_equal(name, snapshot.sql(f"SELECT * FROM {name}").to_arrow(), answer(query, tables))
        _check_sink(db, snapshot)
    return number


def _check_sink(db: Session, snapshot: Snapshot) -> None:
    delivered = prefix(db, snapshot, "counted", "g").select(["id", "k"]).combine_chunks()
    _, _, digest = change_digest(StreamChunk.inserts(DataChunk.from_arrow(delivered)))
    (found,) = snapshot.sql("SELECT * FROM counted").to_arrow().to_pylist() or [{"inserted": 0}]
    if delivered.num_rows or found["inserted"]:
        assert found == {"inserted": delivered.num_rows, "deleted": 0, "digest": f"{digest:016x}"}
