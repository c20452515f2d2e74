"""The log of a sink: what is committed is read as batches in order, is deleted once it is delivered, and is bounded."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import pytest

from hummock.store.memory_store import MemoryStateStore
from relational.catalog.objects import TableKind
from relational.chunk import Op, StreamChunk
from relational.table.state_table import StateTable
from relational.types import Schema
from stream.connector import sink_log
from stream.connector.sink import LogLimits, SinkIdentity, check_target, open_stored_sink, register_sink
from stream.connector.sink_log import LogReader, LogWriter, SinkProgress
from stream.errors import ConnectorError, UnknownConnector
from stream.plan.state_tables import SINKS_WITHOUT_LOG, sink_log_tables
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.seeds import run_seed
from tests.support.drivers.stream_driver import barrier

SCHEMA = Schema.of(id="bigint", name="varchar")


class World:
    """A store, the log in it, and an actor that can be rebuilt."""

    def __init__(self, limits=None):
        self.store, self.limits, self.progress = MemoryStateStore(), limits or LogLimits(), SinkProgress()
        ids = iter((8, 9))
        job = table_catalog("s", SCHEMA, [0], table_id=7, kind=TableKind.SINK)
        self.tables = sink_log_tables(lambda name: next(ids), job)
        self.now = [0.0]
        self.number = 1
        self.reader = LogReader(*self.tables, self.store, self.pin)
        self.rebuild()

    @contextlib.contextmanager
    def pin(self):
        yield self.store.committed_epoch

    def rebuild(self):
        self.store.clear_uncommitted()
        log, batches = (StateTable(table, self.store) for table in self.tables)
        self.writer = LogWriter("s", SCHEMA, log, batches, self.limits, self.progress, lambda: self.now[0])
        self.number += 1
        self.writer.begin(replace(barrier(self.number).epoch, prev=self.store.committed_epoch))

    def end_epoch(self, *, is_checkpoint=True):
        self.number += 1
        epoch = barrier(self.number).epoch
        self.writer.end_epoch(epoch, is_checkpoint=is_checkpoint)
        if is_checkpoint:
            self.store.commit(epoch.prev)

    def changes(self, after=0):
        """(epoch, changes) of each batch."""
        found = []
        for batch in self.reader.closed(after):
            rows = []
            for changes in self.reader.changes(batch):
                *columns, ops = (column.to_pylist() for column in changes.columns)
                rows += zip(ops, zip(*columns, strict=True), strict=True)
            assert len(rows) == batch.rows
            found.append((batch.epoch, rows))
        return found

    def entries(self):
        """The numbers of rows of both tables."""
        found = []
        for table in self.tables:
            state = StateTable(table, self.store)
            state.init_epoch(replace(barrier(self.number + 1).epoch, prev=self.store.committed_epoch))
            found.append(sum(1 for _ in state.scan()))
        return found


def chunk(rng, rows):
    changes = []
    while len(changes) < rows:
        op = rng.choice((Op.INSERT, Op.DELETE, Op.UPDATE_DELETE))
        changes.append((op, (rng.randrange(99), rng.choice([None, "x" * rng.randrange(90)]))))
        if op == Op.UPDATE_DELETE:
            changes.append((Op.UPDATE_INSERT, (rng.randrange(99), "new")))
    made = StreamChunk.from_rows(SCHEMA, changes)
    if rng.random() < 0.3:
        made = made.filter(StreamChunk.from_rows(Schema.of(b="boolean"), [
            (0, (rng.random() < 0.7,)) for _ in changes]).columns[0])
    return made, [(int(op), tuple(row)) for op, row in made.changes()]


def test_random_changes_are_read_as_they_were_written(monkeypatch):
    rng = random.Random(run_seed())
    monkeypatch.setattr(sink_log, "CHUNK_BYTES", 1_000)
    monkeypatch.setattr(sink_log, "ENTRIES_AT_ONCE", 3)
    world, expected, open_rows = World(), [], []
    for _ in range(120):
        for _ in range(rng.randrange(4)):
            made, rows = chunk(rng, rng.randint(1, 60))
            world.writer.write(made)
            open_rows += rows
        step = rng.random()
        if step < 0.15:
            world.rebuild()                     # what was not committed is lost
            open_rows = []
        elif step < 0.3:
            world.end_epoch(is_checkpoint=False)
        else:
            world.end_epoch()
            if open_rows:
                expected.append((int(world.store.committed_epoch), open_rows))
                open_rows = []
        if rng.random() < 0.2 and expected:
            world.progress.delivered = max(world.progress.delivered, rng.choice(expected)[0])
        assert world.changes(world.progress.delivered) == [each for each in expected
                                                           if each[0] > world.progress.delivered]
    world.progress.delivered = expected[-1][0] if expected else 0
    world.rebuild()
    world.end_epoch()
    assert world.entries() == [0, 0]


def test_changes_are_collected_until_the_interval_is_over():
    world = World(LogLimits(interval_ms=1_000))
    rng, whole = random.Random(1), []
    for second in (0.0, 0.4, 0.8):
        world.now[0] = 10 + second
        made, rows = chunk(rng, 5)
        whole += rows
        world.writer.write(made)
        world.end_epoch()
        assert world.changes() == []
    world.now[0] = 11.1
    world.end_epoch()
    assert world.changes() == [(int(world.store.committed_epoch), whole)]
    world.end_epoch()
    assert len(world.changes()) == 1


def test_a_batch_that_is_open_survives_a_recovery():
    world, rng = World(LogLimits(interval_ms=10**9)), random.Random(1)
    made, rows = chunk(rng, 5)
    world.writer.write(made)
    world.end_epoch()
    world.writer.write(made)
    world.now[0] = 10.0**9
    world.rebuild()
    assert world.changes() == []
    world.end_epoch()
    assert world.changes() == [(int(world.store.committed_epoch), rows)]
    assert world.writer.state == (0, 0, None)   # of this actor: the sink's table has the sums


def test_a_log_that_is_full_fails_the_job_or_stops_the_sources():
    rng = random.Random(1)
    for waits in (False, True):
        world = World(LogLimits(log_bytes=3_000, waits=waits))
        made, _ = chunk(rng, 300)
        world.writer.write(made)
        world.end_epoch()                       # a single batch may have any size
        assert world.progress.is_full is waits
        world.writer.write(chunk(rng, 3)[0])
        world.end_epoch()
        world.writer.write(made)
        if not waits:
            with pytest.raises(ConnectorError, match=r"its log is full: 3 batches of .* are not delivered"):
                world.end_epoch()
            world.progress.delivered = int(world.store.committed_epoch)
            world.rebuild()
            world.writer.write(made)
        world.end_epoch()
        world.progress.delivered = int(world.store.committed_epoch)
        world.end_epoch()
        assert not world.progress.is_full and world.changes(world.progress.delivered) == []


def test_options_of_the_log_and_names_of_sinks():
    class Target:
        def __init__(self, options, identity):
            assert options == {"own": "1"} and identity.name == "s"

        def check_schema(self, schema):
            assert schema is SCHEMA

        def close(self):
            pass

    register_sink("test-target", Target)
    identity = SinkIdentity("s", 1)
    options = {"connector": "test-target", "own": "1"}
    assert check_target(options, identity, SCHEMA) == LogLimits()
    given = options | {"log_bytes": "5", "when_full": "wait", "interval_ms": "7"}
    assert check_target(given, identity, SCHEMA) == LogLimits(5, True, 7)
    for name, value in (("log_bytes", "0"), ("when_full", "drop"), ("interval_ms", "-1")):
        with pytest.raises(ConnectorError, match=name):
            check_target(options | {name: value}, identity, SCHEMA)
    with pytest.raises(UnknownConnector, match=r"kafka.*arrow, blackhole, digest, parquet, test-target"):
        check_target({"connector": "kafka"}, identity, SCHEMA)
    assert {type(open_stored_sink({"connector": name})).__name__ for name in SINKS_WITHOUT_LOG - {"table"}} == {
        "DigestWriter", "BlackholeWriter"}
