import itertools
import math

import pyarrow as pa
import pytest

from hummock.store.memory_store import MemoryStateStore
from relational.chunk import Column, StreamChunk
from relational.expr import ErrorCounts
from relational.expr.expression import Literal
from relational.table.state_table import StateTable
from relational.types import DataType, Schema
from stream.connector.base import Start, StartKind
from stream.errors import MalformedRows
from stream.executor import source as source_module
from stream.executor.base import ExecutorInfo
from stream.executor.filter import FilterExecutor
from stream.executor.rate_limit import RateLimit
from stream.executor.source import DRAIN_WAIT, MOST_BOUNDED_SPLITS, SourceExecutor
from stream.message import PAUSE, Barrier, DeleteRows, Pause, Resume, Wait
from stream.plan.state_tables import offset_table
from stream.runtime.channel import Channel
from tests.support.drivers.numbered_reader import NumberedReader
from tests.support.drivers.stream_driver import barrier, unpaused

SCHEMA = Schema.of(id="bigint")


class CountingReader(NumberedReader):
    """Rows from `begin` to `end`, exclusive; the calls numbered in `gaps` return None."""

    def __init__(self, begin, end, gaps=()):
        super().__init__(begin)
        self.end, self.calls, self.gaps, self.is_closed = end, 0, set(gaps), False

    def next_chunk(self, max_rows):
        self.calls += 1
        if self.calls in self.gaps:
            return None
        rows = range(self.next, min(self.next + max_rows, self.end))
        self.next = rows.stop
        return StreamChunk.from_rows(SCHEMA, [(0, (row,)) for row in rows])

    @property
    def is_finished(self):
        return self.next >= self.end

    def close(self):
        self.is_closed = True


def source(store, control, readers, **options):
    table = StateTable(offset_table(9, "t.offsets", 1), store)
    options = {"chunk_rows": 2, **options}
    return SourceExecutor(ExecutorInfo(SCHEMA, (0,), "Source"), control, readers, table, **options)


def test_an_actor_whose_executors_keep_all_rows_gives_way_after_each_chunk():
    """Else it would run until its next barrier, which may wait for the actors that wait for its thread."""
    control = Channel(100)
    control.send(barrier(1))
    read = source(MemoryStateStore(), control, {"a": CountingReader(0, 1 << 60)})
    never = Literal(False, DataType.BOOLEAN)
    messages = FilterExecutor(read.info, read, never, ErrorCounts()).execute()
    assert [next(messages) for _ in range(4)] == [barrier(1), PAUSE, PAUSE, PAUSE]
    with_rows = source(MemoryStateStore(), control, {"a": CountingReader(0, 1 << 60)}).execute()
    control.send(barrier(1))
    assert [type(next(with_rows)) for _ in range(5)] == [Barrier, StreamChunk, Wait, StreamChunk, Wait]


def rows_of(messages):
    return [row[0] for each in messages if isinstance(each, StreamChunk) for row in each.rows()]


def take(messages, count):
    """The next messages, without Waits."""
    return list(itertools.islice((each for each in messages if not isinstance(each, Wait)), count))


class DamagedReader(CountingReader):
    """Cannot be closed."""

    def close(self):
        super().close()
        raise OSError("the connection is gone")


@pytest.mark.parametrize("messages_taken", [1, 2])
def test_all_readers_are_closed_even_if_one_of_them_cannot_be(messages_taken):
    control = Channel(100)
    control.send(barrier(1))
    readers = {"a": CountingReader(0, 100), "b": DamagedReader(0, 100), "c": CountingReader(0, 100)}
    messages = source(MemoryStateStore(), control, readers).execute()
    take(messages, messages_taken)
    with pytest.raises(OSError, match="gone"):
        messages.close()
    assert all(each.is_closed for each in readers.values())


def test_chunks_come_between_barriers_and_barriers_have_precedence():
    control = Channel(100)
    control.send(barrier(1))
    messages = unpaused(source(MemoryStateStore(), control, {"a": CountingReader(0, 100)}).execute())
    first, chunk = take(messages, 2)
    assert first == barrier(1) and rows_of([chunk]) == [0, 1]
    control.send(barrier(2))
    second, chunk = take(messages, 2)
    assert second == barrier(2) and rows_of([chunk]) == [2, 3]


def test_barriers_that_follow_each_other_closely_do_not_keep_it_from_reading():
    control = Channel(100)
    for number in range(1, 5):
        control.send(barrier(number))
    messages = unpaused(source(MemoryStateStore(), control, {"a": CountingReader(0, 100)}).execute())
    taken = take(messages, 7)
    assert [isinstance(each, Barrier) for each in taken] == [True, False] * 3 + [True]
    assert rows_of(taken) == [0, 1, 2, 3, 4, 5]


class NearBarrier:
    """A forecast and receivers in one, as the test says."""

    work_seconds, queue_rows, sent_rows = math.inf, math.inf, 0

    def __init__(self):
        self.is_due, self.has_queue = False, False

    def is_near(self, seconds):
        return self.is_due

    def note_barrier(self, epoch):
        self.is_due = False


def test_before_a_barrier_it_reads_nothing_until_its_receivers_have_taken_what_it_sent():
    control, state = Channel(100), NearBarrier()
    control.send(barrier(1))
    read = source(MemoryStateStore(), control, {"a": CountingReader(0, 100)}, forecast=state, receivers=state)
    messages = read.execute()
    assert rows_of(take(messages, 2)) == [0, 1]
    assert next(messages) == PAUSE
    state.is_due = state.has_queue = True
    assert [next(messages), next(messages)] == [DRAIN_WAIT, DRAIN_WAIT]
    state.has_queue = False
    assert rows_of(take(messages, 1)) == [2, 3]
    assert next(messages) == PAUSE
    state.has_queue = True
    assert next(messages) == DRAIN_WAIT
    control.send(barrier(2))
    taken = take(messages, 2)
    assert taken[0] == barrier(2) and rows_of(taken) == [4, 5]


@pytest.mark.parametrize("survived", [0, 1, 2])
def test_recovery_reads_on_where_the_last_committed_epoch_ended(survived):
    store, control = MemoryStateStore(), Channel(100)
    control.send(barrier(1))
    messages = unpaused(source(store, control, {"a": CountingReader(0, 100)}).execute())
    take(messages, 1)
    kept = []
    for number in range(survived):
        kept += rows_of(take(messages, 2))
        control.send(barrier(number + 2))
        store.commit(next(messages).epoch.prev)
    take(messages, 1)  # read but not committed
    store.clear_uncommitted()
    again = Channel(100)
    again.send(barrier(survived + 2))
    recovered = unpaused(source(store, again, {"a": CountingReader(0, 100)}).execute())
    assert kept + rows_of(take(recovered, 2)) == list(range(4 * survived + 2))


def test_after_checkpoint_rows_it_asks_for_a_barrier_once_and_waits_for_it():
    asked, control = [], Channel(100)
    control.send(barrier(1))

    def answer():
        asked.append(1)
        control.send(barrier(1 + len(asked)))

    reader = CountingReader(0, 12)
    options = {"checkpoint_rows": 5, "request_barrier": answer}
    messages = unpaused(source(MemoryStateStore(), control, {"a": reader}, **options).execute())
    seen = take(messages, 9)
    sizes = ["barrier" if isinstance(each, Barrier) else each.capacity for each in seen]
    assert sizes == ["barrier", 2, 2, 1, "barrier", 2, 2, 1, "barrier"]
    assert len(asked) == 2


def test_when_it_has_read_all_it_announces_a_barrier_instead_of_asking_for_one_at_once():
    called, control = [], Channel(100)
    control.send(barrier(1))
    options = {"request_barrier": lambda: called.append("request"),
               "announce_barrier": lambda: called.append("announce")}
    reader = CountingReader(0, 5)
    messages = unpaused(source(MemoryStateStore(), control, {"a": reader}, **options).execute())
    assert rows_of(take(messages, 4)) == [0, 1, 2, 3, 4]
    assert reader.is_finished and called == ["announce"]


def test_splits_are_read_in_turn_and_each_has_its_offset():
    store, control = MemoryStateStore(), Channel(100)
    control.send(barrier(1))
    readers = {"a": CountingReader(0, 3), "b": CountingReader(100, 104)}
    messages = unpaused(source(store, control, readers).execute())
    assert rows_of(take(messages, 5)) == [0, 1, 100, 101, 2, 102, 103]
    control.send(barrier(2))
    store.commit(next(messages).epoch.prev)
    recovered_readers = {"a": CountingReader(0, 3), "b": CountingReader(100, 104)}
    again = Channel(100)
    again.send(barrier(2))
    next(source(store, again, recovered_readers).execute())
    assert [reader.offset for reader in recovered_readers.values()] == ["3", "104"]


def test_a_reader_that_has_nothing_now_is_asked_again():
    control = Channel(100)
    control.send(barrier(1))
    reader = CountingReader(0, 2, gaps=[1, 2])
    messages = unpaused(source(MemoryStateStore(), control, {"a": reader}).execute())
    assert rows_of(take(messages, 2)) == [0, 1]
    assert reader.calls == 3


def test_a_malformed_chunk_is_refused_by_split_column_and_row():
    class MalformedReader(CountingReader):
        def next_chunk(self, max_rows):
            chunk = super().next_chunk(max_rows)
            texts = pa.Array.from_buffers(pa.utf8(), 2, pa.array([b"a", b"\xff"], pa.binary()).buffers())
            return chunk.with_columns([Column(texts)])

    control, schema = Channel(100), Schema.of(name="varchar")
    control.send(barrier(1))
    table = StateTable(offset_table(9, "t.offsets", 1), MemoryStateStore())
    info = ExecutorInfo(schema, (0,), "Source")
    messages = unpaused(SourceExecutor(info, control, {"a": MalformedReader(0, 2)}, table, chunk_rows=2).execute())
    next(messages)
    with pytest.raises(MalformedRows, match=r"split 'a', column 'name', row 1: .*UTF-8"):
        next(messages)


def test_paused_it_hands_on_barriers_and_statements_but_no_rows():
    control = Channel(100)
    statement = DeleteRows(1, None)
    for message in (barrier(1, Pause()), statement, barrier(2), barrier(3, Resume())):
        control.send(message)
    messages = unpaused(source(MemoryStateStore(), control, {"a": CountingReader(0, 2)}).execute())
    *paused, chunk = take(messages, 5)
    assert paused == [barrier(1, Pause()), statement, barrier(2), barrier(3, Resume())]
    assert rows_of([chunk]) == [0, 1]


def test_it_ends_with_its_channel_and_closes_its_readers():
    control, reader = Channel(100), CountingReader(0, 2)
    control.send(barrier(1))
    messages = unpaused(source(MemoryStateStore(), control, {"a": reader}).execute())
    take(messages, 2)
    control.close()
    assert list(messages) == [] and reader.is_closed


def test_chunks_grow_while_the_actor_is_quick_and_shrink_when_it_is_slow():
    cpu_seconds, per_row = [0.0], [1e-6]
    control = Channel(100)
    control.send(barrier(1))
    messages = unpaused(source(MemoryStateStore(), control, {"a": CountingReader(0, 10**6)}, least_chunk_rows=16,
                      chunk_rows=1_000, cpu_clock=lambda: cpu_seconds[0]).execute())
    next(messages)

    def sizes(count):
        found = []
        for _ in range(count):
            found.append(next(messages).capacity)
            cpu_seconds[0] += found[-1] * per_row[0]
        return found

    assert sizes(9) == [16, 32, 64, 128, 256, 512, 1_000, 1_000, 1_000]
    per_row[0] = 1e-3
    assert sizes(8) == [1_000, 500, 250, 125, 62, 62, 62, 62]       # 62 rows take between 20 and 80 ms
    per_row[0] = 1e-2
    assert sizes(4) == [62, 31, 16, 16]


def test_of_many_splits_that_end_a_few_are_read_at_a_time_and_of_others_all():
    control = Channel(100)
    control.send(barrier(1))

    class Bounded(CountingReader):
        is_bounded = True

    readers = {f"file {at:03}": Bounded(100 * at, 100 * at + 6) for at in range(100)}
    readers |= {"endless 1": CountingReader(10**6, 10**7), "endless 2": CountingReader(10**8, 10**9)}
    messages = unpaused(source(MemoryStateStore(), control, readers).execute())
    next(messages)
    seen, most = [], 0
    while sum(reader.is_finished for reader in readers.values()) < 100:
        seen += rows_of([next(messages)])
        begun = [reader for reader in readers.values() if reader.is_bounded and reader.calls and not reader.is_finished]
        most = max(most, len(begun))
    assert most <= MOST_BOUNDED_SPLITS
    assert sorted(row for row in seen if row < 10**6) == [100 * at + row for at in range(100) for row in range(6)]
    assert any(10**6 <= row < 10**7 for row in seen) and any(row >= 10**8 for row in seen)


def test_it_reads_no_more_than_its_rate_and_nothing_while_it_may_not(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("stream.executor.source.RateLimit", lambda rate: RateLimit(rate, lambda: now[0]))
    monkeypatch.setattr("stream.executor.source.IDLE_SECONDS", 0.001)
    may_read, waits = [False], []
    control = Channel(100)
    control.send(barrier(1))
    messages = unpaused(source(MemoryStateStore(), control, {"a": CountingReader(0, 10_000)}, chunk_rows=50,
                               rate_limit=1_000, may_read=lambda: may_read[0]).execute())
    next(messages)
    chunks = []
    while len(chunks) < 100:
        message = next(messages)
        if isinstance(message, Wait):
            waits.append(message)
            may_read[0] = len(waits) >= 2
            now[0] += 0.001
        else:
            chunks.append(message)
    rows = rows_of(chunks)
    assert len(waits) > 2 and rows == list(range(len(rows)))
    assert 500 <= len(rows) <= 1_000 * now[0] + 500


class MovableReader(CountingReader):
    def begin_at(self, start):
        self.next = self.end if start.kind is StartKind.LATEST else 50


@pytest.mark.parametrize(
    ("kind", "first"), [(StartKind.LATEST, []), (StartKind.MOMENT, [50]), (StartKind.EARLIEST, [0])])


def test_a_new_job_begins_at_its_start_and_splits_that_come_later_at_theirs(kind, first):
    store, later = MemoryStateStore(), {}

    def opened(number, readers):
        control = Channel(100)
        control.send(barrier(number))
        options = {"start": Start(kind), "find_splits": lambda known: {name: reader for name, reader in later.items()
                                                                       if name not in known}}
        messages = unpaused(source(store, control, readers, **options).execute())
        next(messages)
        return control, messages

    control, messages = opened(1, {"a": MovableReader(0, 60)})
    if first:
        assert rows_of(take(messages, 1))[:1] == first
    control.send(barrier(2))
    store.commit(next(messages).epoch.prev)
    later["b"] = MovableReader(0, 4)
    control.send(barrier(3))
    found = []
    while later["b"].next == 0:
        found += rows_of(take(messages, 1))
    assert found[-2:] == [0, 1]
    readers = {"a": MovableReader(0, 60), "b": MovableReader(0, 4), "c": MovableReader(0, 4)}
    opened(2, readers)
    assert readers["a"].next == (60 if kind is StartKind.LATEST else 52 if kind is StartKind.MOMENT else 2)
    assert readers["b"].next == readers["c"].next == 0


def test_a_new_job_without_splits_is_not_new_later():
    store, control = MemoryStateStore(), Channel(100)
    control.send(barrier(1))
    messages = unpaused(source(store, control, {}, start=Start(StartKind.LATEST)).execute())
    next(messages)
    control.send(barrier(2))
    store.commit(next(messages).epoch.prev)
    again, reader = Channel(100), MovableReader(0, 60)
    again.send(barrier(2))
    next(source(store, again, {"a": reader}, start=Start(StartKind.LATEST)).execute())
    assert reader.next == 0


def test_readers_that_hold_rows_release_what_is_committed():
    class HoldingReader(CountingReader):
        holds_rows = True
        released = ()

        def committed(self, offset):
            self.released = (*self.released, offset)

    store, control, reader = MemoryStateStore(), Channel(100), HoldingReader(0, 100)
    control.send(barrier(1))
    options = {"committed_epoch": lambda: store.committed_epoch}
    messages = unpaused(source(store, control, {"a": reader}, **options).execute())
    take(messages, 2)
    for number in (2, 3):
        control.send(barrier(number))
        take(messages, 2)
    assert reader.released == ()
    store.commit(barrier(2).epoch.prev)
    take(messages, 1)
    assert reader.released == ("2",)
    store.commit(barrier(3).epoch.prev)
    take(messages, 1)
    assert reader.released == ("2", "4")
    again, second = Channel(100), HoldingReader(0, 100)
    again.send(barrier(3))
    next(source(store, again, {"a": second}, **options).execute())
    assert second.released == ("4",)


def test_a_split_is_awaited_until_polls_without_rows_span_the_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(source_module.time, "monotonic", lambda: now[0])
    control = Channel(100)
    control.send(barrier(1))
    readers = {"a": CountingReader(0, 10, gaps=range(2, 100)), "b": CountingReader(0, 2), "c": CountingReader(0, 0)}
    executor = source(MemoryStateStore(), control, readers)
    messages = unpaused(executor.execute())
    assert rows_of(take(messages, 3)) == [0, 1, 0, 1]
    assert executor.has_ended("b") and executor.has_ended("c") and executor.awaited_splits(5.0) == ["a"]
    for seconds, awaited in ((0.0, ["a"]), (4.0, ["a"]), (6.0, [])):
        now[0] = seconds
        assert isinstance(next(messages), Wait)
        assert executor.awaited_splits(5.0) == awaited
    now[0] = 7.0
    control.send(barrier(2, Pause()))
    take(messages, 1)
    now[0] = 100.0
    assert isinstance(next(messages), Wait)
    assert executor.awaited_splits(5.0) == ["a"], "it was not polled while the source is paused"
    readers["a"].gaps = set()
    control.send(barrier(3, Resume()))
    take(messages, 2)
    assert executor.awaited_splits(5.0) == ["a"] and executor.awaited_splits(0.0) == []


def test_nothing_is_read_before_the_job_is_committed():
    control, reader, asked = Channel(100), CountingReader(0, 4), []
    control.send(barrier(3))

    def committed_epoch():
        asked.append(reader.calls)
        return barrier(3).epoch.prev - (len(asked) <= 5)

    messages = unpaused(source(MemoryStateStore(), control, {"a": reader}, committed_epoch=committed_epoch).execute())
    first, chunk = take(messages, 2)
    assert first == barrier(3) and rows_of([chunk]) == [0, 1] and reader.calls == 1
    assert len(asked) > 5 and not any(asked)
