"""What the simulated graphs take for late and for expired, and that they notice a product that does not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hummock.epoch import SPILL_BITS, EpochPair
from relational.chunk import Op, StreamChunk
from stream.executor.source_watermark import SourceWatermark
from stream.executor.watermark_filter import WatermarkFilterExecutor
from tests.simulation.graph_expiry import BirthLog, is_there, split_by_age
from tests.simulation.graph_late import ReadingLog
from tests.simulation.graph_rounds import Graph
from tests.simulation.graph_source import DELAY, SCHEMA, Script
from tests.simulation.graph_steps import EXPIRING, Step

JOB = 7


def script_of(*splits):
    """A timed stream whose splits have rows with these times."""
    script = Script(0, "w", is_timed=True)
    for number, times in enumerate(splits):
        split = script.splits[f"p{number}"]
        split.records = [[(Op.INSERT, (at or 0, at, None))] for at in times]
        split.available = len(times)
    return script


class Actors:
    """Actors that share a watermark, of which the first epoch is after `since`."""

    def __init__(self, log, count, since):
        self.log, self.shared, self.ended, self.idle = log, SourceWatermark(count), set(), set()
        for number in range(count):
            log.begin(self._executor(number, {}, since))

    def _executor(self, number, offsets, since=0):
        readers = {split: SimpleNamespace(offset=str(offset)) for split, offset in offsets.items()}
        source = SimpleNamespace(
            splits=readers, _readers=readers, has_ended=lambda split: split in self.ended,
            awaited_splits=lambda seconds: readers.keys() - self.ended - self.idle,
        )
        table = SimpleNamespace(catalog=SimpleNamespace(id=JOB), epoch=EpochPair(since + 1, since))
        return SimpleNamespace(_shared=self.shared, _source=source, _table=table, _number=number, _idle_seconds=1.0)

    def pass_barrier(self, number, epoch, **offsets):
        self.log.look(self._executor(number, offsets))
        self.log.report(self.shared, number, epoch)


def late(log, epoch, script, left_out=()):
    return {(split, number) for split, number in log.late(JOB, epoch, script, left_out)}


def test_a_row_is_late_below_the_watermark_of_the_barrier_before_it():
    script, log = script_of([50, 0, 50 - DELAY - 1, 50 - DELAY, None, 90, 50, 79]), ReadingLog()
    actors = Actors(log, 1, 1)
    actors.pass_barrier(0, 2, p0=2)
    assert late(log, 2, script) == set(), "there was no watermark when they were read"
    actors.pass_barrier(0, 3, p0=6)
    assert late(log, 3, script) == {("p0", 2)}
    actors.pass_barrier(0, 4, p0=8)
    assert late(log, 4, script) == {("p0", 2), ("p0", 6), ("p0", 7)}


def test_an_earlier_epoch_can_be_looked_at_again():
    script, log = script_of([50, 0, 90]), ReadingLog()
    actors = Actors(log, 1, 1)
    for epoch in (2, 3, 4):
        actors.pass_barrier(0, epoch, p0=epoch - 1)
    assert late(log, 4, script) == late(log, 3, script) == {("p0", 1)}
    assert late(log, 2, script) == set()
    assert [log.offsets(JOB, epoch) for epoch in (1, 2, 3, 4, 9)] == [{}, {"p0": 1}, {"p0": 2}, {"p0": 3}, {"p0": 3}]


def test_the_least_split_counts_and_one_without_rows_holds_the_watermark_back():
    for is_idle in (False, True):
        script, log = script_of([100, 5, 5], [30, 100, 5]), ReadingLog()
        actors = Actors(log, 1, 1)
        actors.idle = {"p1"} if is_idle else set()
        actors.pass_barrier(0, 2, p0=1, p1=0)
        actors.pass_barrier(0, 3, p0=2, p1=0)
        assert late(log, 3, script) == ({("p0", 1)} if is_idle else set())
    script, log = script_of([100, 5, 5], [30, 19, 100]), ReadingLog()
    actors = Actors(log, 1, 1)
    actors.pass_barrier(0, 2, p0=1, p1=1)
    actors.pass_barrier(0, 3, p0=2, p1=2)
    assert late(log, 3, script) == {("p0", 1), ("p1", 1)}
    actors.ended = {"p0", "p1"}
    actors.pass_barrier(0, 4, p0=2, p1=2)
    actors.ended = {"p1"}
    actors.pass_barrier(0, 5, p0=3, p1=2)
    assert ("p0", 2) in late(log, 5, script), "the greatest value of the ended splits"


def test_an_actor_applies_the_watermark_of_the_epoch_that_all_had_reported():
    script, log = script_of([50, 0, 0], [50, 0, 0]), ReadingLog()
    actors = Actors(log, 2, 1)
    actors.pass_barrier(0, 2, p0=1)
    actors.pass_barrier(0, 3, p0=2)     # has not heard of the other's epoch 2
    actors.pass_barrier(1, 2, p1=1)
    actors.pass_barrier(0, 4, p0=3)
    actors.pass_barrier(1, 3, p1=2)
    actors.pass_barrier(1, 4, p1=3)
    assert late(log, 4, script) == {("p1", 1), ("p1", 2)}


def test_what_was_not_committed_is_void_and_the_watermark_is_kept():
    script, log = script_of([50, 90, 50, 41, 30]), ReadingLog()
    old = Actors(log, 1, 1)
    old.pass_barrier(0, 2, p0=1)
    old.pass_barrier(0, 3, p0=2)
    assert late(log, 2, script) == set()
    actors = Actors(log, 1, 2)
    old.pass_barrier(0, 4, p0=3)        # of an actor that has not noticed yet
    actors.pass_barrier(0, 3, p0=1)
    actors.pass_barrier(0, 4, p0=5)
    assert late(log, 4, script, [("p0", 1, 2)]) == {("p0", 4)}, "record 1 was left out, and moves nothing"
    log.cut(JOB, 4)
    actors.pass_barrier(0, 5, p0=1)
    assert late(log, 9, script) == {("p0", 4)}


def test_a_row_is_there_up_to_its_ttl_and_its_key_is_used_again():
    log = BirthLog(["e"])
    table = SimpleNamespace(catalog=SimpleNamespace(name="e"), epoch=EpochPair(20 << SPILL_BITS, 10 << SPILL_BITS))
    log.begin(table, 10 << SPILL_BITS)
    log.write(table, StreamChunk.from_rows(SCHEMA, [(Op.INSERT, (1, 2, 3)), (Op.INSERT, (2, 2, 2))]))
    births = log.rows("e", 20 << SPILL_BITS)
    assert [is_there(births[1], moment << SPILL_BITS, 100) for moment in (20, 120, 121)] == [True, True, False]
    table.epoch = EpochPair(130 << SPILL_BITS, 125 << SPILL_BITS)
    log.write(table, StreamChunk.from_rows(SCHEMA, [(Op.INSERT, (1, 9, 9))]))
    there, expired = split_by_age(log.rows("e", 130 << SPILL_BITS), 130 << SPILL_BITS, 100)
    assert (there, expired) == ({1: (1, 9, 9)}, {(2, 20 << SPILL_BITS)})
    other = SimpleNamespace(catalog=table.catalog)
    log.begin(other, 125 << SPILL_BITS)
    log.write(table, StreamChunk.from_rows(SCHEMA, [(Op.INSERT, (7, 7, 7))]))
    assert {key: birth.row for key, birth in log.rows("e", 200 << SPILL_BITS).items()} == {1: (1, 2, 3), 2: (2, 2, 2)}


class Timed(Graph):
    """Steps that make late rows, and rows that expire, for certain."""

    def _run(self, steps):
        self._create_inputs(self.open(is_idle=True))
        split = self.scripts["w1"].splits["p0"]
        self.scripts["w1"].splits["p1"].has_ended = True
        for at in (100, 5):
            split.records.append([(Op.INSERT, (at, at, at))])
            split.available = len(split.records)
            self._read("w1")
        self.take(Step("statement", "e0", "insert", 1))
        for _ in range(2):
            self.take(Step("flush"))
            self.take(Step("pass_time", "", "", EXPIRING["e0"] + 1))
        self.take(Step("flush"))
        self.take(Step("flush"))

    def _read(self, name):
        while True:
            self.take(Step("flush"))
            with self.live.at() as snapshot:
                if self.scripts[name].is_read(self.checker.offsets(snapshot, name)[name]):
                    return


def test_late_and_expired_rows_are_seen():
    graph = Timed(1)
    graph.run(0)
    assert (graph.counts["late rows"], graph.counts["expired rows"] > 0) == (1, True)


def test_a_graph_notices_late_rows_that_are_kept(monkeypatch):
    def all_of(self, chunk, timely=WatermarkFilterExecutor._timely):
        timely(self, chunk)
        return chunk

    monkeypatch.setattr(WatermarkFilterExecutor, "_timely", all_of)
    with pytest.raises(AssertionError, match="too many"):
        Timed(1).run(0)


def test_a_graph_notices_rows_that_do_not_expire(monkeypatch):
    monkeypatch.setattr("tests.simulation.graph_expiry.is_there", lambda birth, epoch, ttl_ms: True)
    monkeypatch.setattr("tests.simulation.graph_rounds.is_there", lambda birth, epoch, ttl_ms: True)
    with pytest.raises(AssertionError, match="is not what was flushed"):
        Timed(1).run(0)
