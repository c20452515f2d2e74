"""Late rows, and the watermark of a source: of its splits, its actors, and after a recovery."""

from __future__ import annotations

import datetime as dt
import itertools

import pytest

from hummock.store.memory_store import MemoryStateStore
from relational.catalog.watermarks import WatermarkCatalog, watermark_text
from relational.chunk import Op, StreamChunk
from relational.expr import ErrorCounts
from relational.table.state_table import StateTable
from relational.types import DataType, Schema
from stream.executor.base import ExecutorInfo
from stream.executor.source import SourceExecutor
from stream.executor.source_watermark import SourceWatermark, SplitReport
from stream.executor.watermark_filter import BOUND, ENDED, WatermarkFilterExecutor, late_reason
from stream.message import Add, Barrier, Wait, Watermark
from stream.plan.state_tables import offset_table, watermark_table
from stream.runtime.channel import Channel
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.numbered_reader import NumberedReader
from tests.support.drivers.pretty import from_pretty
from tests.support.drivers.stream_driver import barrier, unpaused

SCHEMA = Schema.of(at="bigint", name="varchar")
DELAY = 10


class ListReader(NumberedReader):
    """Delivers one chunk per call from `chunks`, a list of values that the test extends; ends at None."""

    def __init__(self, *chunks, schema=SCHEMA):
        super().__init__()
        self.chunks, self.schema = list(chunks), schema

    def next_chunk(self, max_rows):
        if self.next >= len(self.chunks) or self.chunks[self.next] is None:
            return None
        chunk = self.chunks[self.next]
        self.next += 1
        if isinstance(chunk, StreamChunk):
            return chunk
        return StreamChunk.from_rows(self.schema, [(Op.INSERT, (value, "x")) for value in chunk])

    @property
    def is_finished(self):
        return self.next < len(self.chunks) and self.chunks[self.next] is None


class Job:
    """The source of one actor, between barriers that the test sends."""

    def __init__(
        self, readers, store=None, first=1, *, shared=None, number=0, idle_seconds=60.0, schema=SCHEMA, delay=DELAY
    ):
        self.store = store or MemoryStateStore()
        self.control, self.errors, self.number = Channel(100), ErrorCounts(), first
        info = ExecutorInfo(schema, None, "Source")
        offsets = StateTable(offset_table(9, "t.offsets", 1), self.store)
        source = SourceExecutor(info, self.control, readers, offsets, 100)
        self.table = watermark_table(8, "t.watermark", table_catalog("t", schema, (0,)))
        table = StateTable(self.table, self.store)
        self.messages = unpaused(WatermarkFilterExecutor(
            info, source, source, 0, delay, table, self.errors, shared or SourceWatermark(1), number,
            idle_seconds=idle_seconds
        ).execute())
        self.control.send(barrier(first))
        assert next(self.messages) == barrier(first)

    def epoch(self, *, commits=True, mutation=None):
        """(the values, the watermarks) of an epoch in which the readers deliver all that they have."""
        read = list(itertools.takewhile(lambda each: not isinstance(each, Wait), self.messages))
        self.number += 1
        self.control.send(barrier(self.number, mutation))
        rest = []
        for message in self.messages:
            rest.append(message)
            if isinstance(message, Barrier):
                break
        if commits:
            self.store.commit(message.epoch.prev)
        values = [row[0] for chunk in (*read, *rest) if isinstance(chunk, StreamChunk) for row in chunk.rows()]
        assert all(isinstance(each, (StreamChunk, Watermark, Wait, Barrier)) for each in (*read, *rest))
        assert not any(isinstance(each, Watermark) for each in read), "it moves at barriers only"
        return values, [each.value for each in rest if isinstance(each, Watermark)]


def late(job):
    return job.errors.rows.get(late_reason("at"), 0)


def stored(job):
    """The rows of the state table, as committed."""
    table = StateTable(job.table, job.store)
    table.init_epoch(barrier(job.number).epoch)
    return dict(table.scan())


def test_rows_below_the_watermark_of_the_last_barrier_are_dropped_and_counted():
    reader = ListReader([100, 5, 120])
    job = Job({"a": reader})
    assert job.epoch() == ([100, 5, 120], [110]), "nothing is late before the first watermark"
    reader.chunks.append([109, 110, 130, 3])
    assert job.epoch() == ([110, 130], [120]) and late(job) == 2
    reader.chunks.append([119, 120, 125])
    assert job.epoch() == ([120, 125], []) and late(job) == 3, "the watermark does not move without need"


def test_null_is_never_late_and_moves_nothing():
    reader = ListReader([None, None])
    job = Job({"a": reader})
    assert job.epoch() == ([None, None], [])
    reader.chunks += [[50], [None, 1]]
    assert job.epoch() == ([50, None, 1], [40])
    reader.chunks.append([None, 1])
    assert job.epoch() == ([None], []) and late(job) == 1


def test_late_deletes_are_dropped_too_and_update_pairs_are_parted():
    reader = ListReader([100])
    job = Job({"a": reader})
    job.epoch()
    reader.chunks.append(from_pretty("- 5 x\nU- 7 x\nU+ 95 x\n+ 96 x", SCHEMA))
    job.number += 1
    chunk = next(each for each in job.messages if isinstance(each, StreamChunk))
    assert chunk.compact().to_pretty() == "+ 95 x\n+ 96 x" and late(job) == 2


def test_a_split_without_rows_holds_the_watermark_back_until_it_is_idle():
    readers = {"a": ListReader([100]), "b": ListReader()}
    job = Job(readers)
    assert job.epoch() == ([100], [])
    readers["b"].chunks.append([40])
    assert job.epoch() == ([40], [30]), "the least of the splits"
    readers["a"].chunks.append([200])
    assert job.epoch() == ([200], [])
    idle = Job({"a": ListReader([100]), "b": ListReader()}, idle_seconds=0.0)
    assert idle.epoch() == ([100], []), "all are idle: none has ended"
    waiting = Job({"a": ListReader([100], None), "b": ListReader()}, idle_seconds=0.0)
    assert waiting.epoch() == ([100], [90])


def test_splits_that_have_ended_are_left_out_and_count_when_all_have():
    readers = {"a": ListReader([500], None), "b": ListReader([40])}
    job = Job(readers)
    assert sorted(job.epoch()[0]) == [40, 500]
    readers["b"].chunks.append([60])
    assert job.epoch() == ([60], [50])
    readers["b"].chunks.append(None)
    assert job.epoch() == ([], [490]) and job.epoch() == ([], [])
    assert stored(job) == {f"{BOUND} 0": 500, f"{ENDED} 0": 500}, "ended splits have no rows of their own"


def test_the_watermark_is_never_lower_than_before():
    readers = {"a": ListReader([100])}
    job = Job(readers)
    assert job.epoch() == ([100], [90]) and stored(job) == {"a": 100, f"{BOUND} 0": 100}
    readers["a"].chunks.append([95])
    assert job.epoch() == ([95], [])


@pytest.mark.parametrize("committed", [0, 1, 2])
def test_a_recovery_goes_on_with_the_committed_watermark_and_emits_it_again(committed):
    chunks = [[100, 1], [200, 95], [300, 195, 150]]
    reader = ListReader()
    job = Job({"a": reader})
    marks = [[90], [190], [290]]
    for number, chunk in enumerate(chunks):
        reader.chunks.append(chunk)
        assert job.epoch(commits=number < committed)[1] == marks[number]
    job.store.clear_uncommitted()
    again = Job({"a": ListReader(*chunks[:committed])}, job.store, committed + 1)
    assert again.epoch() == ([], marks[committed - 1] if committed else [])
    reader = ListReader(*chunks[:committed])
    third = Job({"a": reader}, job.store, committed + 2)
    reader.chunks.append(chunks[committed])
    values, emitted = third.epoch()
    bound = marks[committed - 1][0] if committed else 0
    assert values == [value for value in chunks[committed] if value >= bound] and emitted == marks[committed]


def test_new_receivers_get_the_watermark_again():
    job = Job({"a": ListReader([100])})
    assert job.epoch(mutation=Add(frozenset({7}))) == ([100], [90])
    assert job.epoch() == ([], [90]) and job.epoch() == ([], [])


def test_actors_emit_the_least_of_all_their_splits():
    shared, store = SourceWatermark(2), MemoryStateStore()
    first = Job({"a": ListReader([100])}, store, shared=shared, number=0)
    second = Job({"b": ListReader([60])}, store, shared=shared, number=1)
    assert first.epoch(commits=False) == ([100], []), "the other actor has not reported"
    assert second.epoch() == ([60], [50])
    assert first.epoch(commits=False) == ([], [50])
    restarted = Job({"a": ListReader([100]), "b": ListReader([60])}, store, 2)
    assert restarted.epoch()[1] == [50]


def test_the_bound_follows_from_complete_epochs_only():
    shared = SourceWatermark(3)
    assert shared.report(0, 1, SplitReport(least=5)) is None
    assert shared.report(1, 1, SplitReport()) is None, "an actor without splits holds nothing back"
    assert shared.report(0, 2, SplitReport(least=9)) is None
    assert shared.report(2, 1, SplitReport(least=7, ended=100)) == 5
    assert shared.report(1, 2, SplitReport(is_held=True)) == 5
    assert shared.report(2, 2, SplitReport(least=20)) == 5, "held back"
    for number in range(3):
        found = shared.report(number, 3, SplitReport(ended=10 * number + 10))
    assert found == 30, "all have ended"
    shared.restore(25)
    for number in range(3):
        assert shared.report(number, 4, SplitReport(least=1)) == 30, "it never falls"


MOMENT = dt.datetime(2025, 1, 31, 12)


@pytest.mark.parametrize(("kind", "value", "delay", "expected", "text"), [
    ("timestamp", MOMENT, 5_000_000, MOMENT - dt.timedelta(seconds=5), "at - INTERVAL '00:00:05'"),
    ("timestamptz", MOMENT.replace(tzinfo=dt.UTC), 86_400_000_000, dt.datetime(2025, 1, 30, 12, tzinfo=dt.UTC),
     "at - INTERVAL '1 day'"),
    ("date", dt.date(2025, 3, 1), 1, dt.date(2025, 2, 28), "at - 1"),
    ("smallint", 7, 0, 7, "at"),
    ("int", 7, 9, -2, "at - 9"),
    ("smallint", -32_768, 1, None, "at - 1"),
    ("date", dt.date(1, 1, 1), 1, None, "at - 1"),
])


def test_a_watermark_has_the_type_of_its_column(kind, value, delay, expected, text):
    schema = Schema.of(at=kind, name="varchar")
    job = Job({"a": ListReader([value], schema=schema)}, schema=schema, delay=delay)
    assert job.epoch() == ([value], [] if expected is None else [expected])
    assert watermark_text("at", delay, DataType.parse(kind)) == text
    assert WatermarkCatalog.from_json(WatermarkCatalog(3, delay).to_json()) == WatermarkCatalog(3, delay)
