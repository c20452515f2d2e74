"""The backfill of one actor: positions, kept changes, recoveries; with an oracle that replays the table's history."""

import functools
import itertools
import random

import numpy as np
import pytest

from hummock.store.memory_store import MemoryStateStore
from relational.chunk import Op, StreamChunk
from relational.table.row_serde import RowSerde
from relational.table.scan_positions import ScanPositions
from relational.table.state_table import StateTable
from relational.table.storage_table import StorageTable
from relational.types import Schema
from stream.errors import ChannelClosed
from stream.executor import backfill as module
from stream.executor.backfill import BackfillExecutor
from stream.executor.backfill_pace import BackfillPace
from stream.executor.base import ExecutorInfo
from stream.executor.merge import MergeExecutor
from stream.message import Barrier, Watermark
from stream.plan.state_tables import progress_table
from stream.runtime.channel import Channel
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.seeds import run_seed
from tests.support.drivers.stream_driver import Folded, barrier, epoch, until_barrier

TABLE = Schema.of(id="bigint", note="varchar", v="bigint")
CATALOG = table_catalog("t", TABLE, (0,))
COLUMNS = (0, 2)
PROGRESS = progress_table(9, "mv.scan0.progress", 2)


class Upstream:
    """The actor of table `t`: writes its changes to the store, then sends them, then the barrier."""

    def __init__(self, store=None):
        self.store = store or MemoryStateStore()
        self.table = StateTable(CATALOG, self.store)
        self.table.init_epoch(barrier(1).epoch)
        self.rows: dict[int, tuple] = {}
        self.number = 1
        self.channel = None

    def follow(self):
        self.channel = Channel(1 << 40)
        return self.channel

    def change(self, *changes):
        for op, row in changes:
            if op in (Op.INSERT, Op.UPDATE_INSERT):
                self.rows[row[0]] = row
            else:
                del self.rows[row[0]]
        chunk = StreamChunk.from_rows(TABLE, changes)
        self.table.write_chunk(chunk)
        if self.channel is not None:
            self.channel.send(chunk)

    def insert(self, *rows):
        self.change(*((Op.INSERT, row) for row in rows))

    def barrier(self):
        self.number += 1
        passed = barrier(self.number)
        self.table.commit(passed.epoch)
        if self.channel is not None:
            self.channel.send(passed)
        return passed

    def commit(self):
        """Everything up to the epoch before the last barrier is durable."""
        self.store.commit(epoch(self.number - 1))

    @property
    def expected(self):
        return {(row[0], row[2]) for row in self.rows.values()}


def backfill(upstream, *, owned=None, progress=True, slice_rows=3, chunk_rows=4096, finished=None, **options):
    channel = upstream.follow()
    info = ExecutorInfo(TABLE.project(COLUMNS), (0,), "StreamScan")
    table = StateTable(PROGRESS, upstream.store) if progress else None
    positions = ScanPositions(CATALOG, table, owned, is_loaded=options.pop("is_loaded", False))

    def open_table(catalog, columns):
        return StorageTable(catalog, upstream.store, columns)

    return BackfillExecutor(
        info, MergeExecutor(info, [channel], None), open_table, CATALOG, COLUMNS, positions,
        BackfillPace(), chunk_rows, slice_rows=slice_rows, finished=finished or (lambda: None), **options,
    ).execute()


def some(messages, count):
    """The chunks among the next `count` messages, Waits included."""
    return [each for each in itertools.islice(messages, count) if isinstance(each, StreamChunk)]


def test_existing_rows_are_read_in_slices_and_then_the_changes_pass():
    upstream, done = Upstream(), []
    upstream.insert(*((number, "n", 10 * number) for number in range(50)))
    messages = backfill(upstream, finished=lambda: done.append(True))
    upstream.barrier()
    assert [type(each) for each in until_barrier(messages)] == [Barrier]
    read = some(messages, 200)
    assert len(read) > 10 and all(each.capacity <= 3 for each in read) and not done
    folded = Folded((0,)).apply_all(read)
    upstream.barrier()
    folded.apply_all(until_barrier(messages))
    assert done and set(folded.rows.values()) == upstream.expected
    upstream.change((Op.DELETE, (1, "n", 10)), (Op.INSERT, (99, "n", 5)))
    upstream.barrier()
    assert set(folded.apply_all(until_barrier(messages)).rows.values()) == upstream.expected


def test_barriers_that_follow_each_other_closely_do_not_keep_it_from_reading():
    upstream, done = Upstream(), []
    upstream.insert(*((number, "n", 10 * number) for number in range(20)))
    messages = backfill(upstream, finished=lambda: done.append(True))
    for _ in range(300):
        upstream.barrier()
    folded, barriers = Folded((0,)), 0
    while not done:
        read = until_barrier(messages)
        folded.apply_all(read)
        assert len(read) <= 2, "one slice for each barrier"
        barriers += 1
    assert set(folded.rows.values()) == upstream.expected and barriers > 7


def test_a_watermark_is_held_until_all_rows_were_read_and_gets_the_columns_of_the_scan():
    """[R28]"""
    upstream = Upstream()
    upstream.insert(*((number, "n", 10 * number) for number in range(50)))
    messages = backfill(upstream)
    upstream.barrier()
    until_barrier(messages)
    upstream.channel.send(Watermark(2, 300))
    upstream.channel.send(Watermark(1, "m"))
    upstream.barrier()
    assert not any(isinstance(each, Watermark) for each in until_barrier(messages))
    assert len(some(messages, 200)) > 10
    upstream.channel.send(Watermark(2, 400))
    upstream.barrier()
    assert [type(each) for each in until_barrier(messages)] == [Barrier]
    upstream.barrier()
    assert until_barrier(messages)[:-1] == [Watermark(1, 400)]
    upstream.channel.send(Watermark(2, 500))
    upstream.channel.send(Watermark(1, "z"))
    upstream.barrier()
    assert until_barrier(messages)[:-1] == [Watermark(1, 500)], "the scan has no column 1"


def test_an_update_above_the_position_is_not_lost():
    """Position 10; an update of row 15 arrives; the next slice is still read at the old snapshot [R17]."""
    upstream = Upstream()
    one_vnode = np.zeros(CATALOG.vnode_count, np.uint8)
    keys = [number for number in range(5_000) if vnode_of(number) == 7][:20]
    one_vnode[7] = 1
    upstream.insert(*((key, "n", 0) for key in keys))
    messages = backfill(upstream, owned=one_vnode, slice_rows=10)
    upstream.barrier()
    until_barrier(messages)
    folded = Folded((0,)).apply_all(itertools.islice(messages, 1))
    assert len(folded.rows) == 10
    late = keys[15]
    upstream.change((Op.UPDATE_DELETE, (late, "n", 0)), (Op.UPDATE_INSERT, (late, "n", 1)))
    upstream.change((Op.DELETE, (keys[3], "n", 0)), (Op.DELETE, (keys[16], "n", 0)))
    upstream.barrier()
    folded.apply_all(until_barrier(messages))
    upstream.barrier()
    folded.apply_all(until_barrier(messages))
    assert set(folded.rows.values()) == upstream.expected


def vnode_of(number):
    return RowSerde(CATALOG).vnode_of((number,))


def test_when_too_much_is_kept_reading_stops_until_the_barrier(monkeypatch):
    monkeypatch.setattr(module, "KEPT_ROWS", 5)
    upstream = Upstream()
    upstream.insert(*((number, "n", 0) for number in range(100)))
    messages = backfill(upstream, slice_rows=1)
    upstream.barrier()
    until_barrier(messages)
    folded = Folded((0,)).apply_all(itertools.islice(messages, 1))
    for number in range(100):
        upstream.change((Op.UPDATE_DELETE, (number, "n", 0)), (Op.UPDATE_INSERT, (number, "n", 1)))
    read = some(messages, 400)
    assert len(read) < 60  # the positions do not advance any more
    folded.apply_all(read)
    for _ in range(2):
        upstream.barrier()
        folded.apply_all(until_barrier(messages))
        folded.apply_all(some(messages, 1_000))
    assert set(folded.rows.values()) == upstream.expected


def test_a_job_without_a_table_of_progress_has_read_everything():
    upstream, done = Upstream(), []
    upstream.insert((1, "a", 10))
    messages = backfill(upstream, progress=False, finished=lambda: done.append(True))
    upstream.barrier()
    upstream.change((Op.DELETE, (1, "a", 10)))
    upstream.barrier()
    assert until_barrier(messages) == [barrier(2)] and done
    chunk, _ = until_barrier(messages)
    assert chunk.to_pretty() == "- 1 10"


def test_an_update_of_columns_that_are_not_read_is_no_change():
    upstream = Upstream()
    upstream.insert((1, "a", 10))
    messages = backfill(upstream, progress=False)
    upstream.barrier()
    upstream.change((Op.UPDATE_DELETE, (1, "a", 10)), (Op.UPDATE_INSERT, (1, "b", 10)))
    upstream.barrier()
    assert until_barrier(messages) == [barrier(2)]
    assert until_barrier(messages) == [barrier(3)]


def test_an_error_of_the_upstream_ends_it_with_that_error():
    upstream = Upstream()
    messages = backfill(upstream)
    upstream.barrier()
    until_barrier(messages)
    upstream.channel.close(RuntimeError("the table's actor failed"))
    with pytest.raises(ChannelClosed) as caught:
        some(messages, 400)
    assert "the table's actor failed" in str(caught.value.__cause__)


@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_loaded_job_and_one_that_stopped_catch_up(is_loaded):
    upstream = Upstream()
    upstream.insert((1, "a", 10), (2, "b", 20))
    upstream.barrier()
    upstream.commit()
    since = epoch(upstream.number - 1)
    upstream.change((Op.DELETE, (1, "a", 10)), (Op.INSERT, (3, "c", 30)))
    messages = backfill(upstream, since=since, is_loaded=is_loaded, progress=is_loaded)
    upstream.barrier()
    upstream.barrier()
    until_barrier(messages)
    changes = until_barrier(messages)
    assert sorted(" ".join(each.to_pretty() for each in changes[:-1]).split()) == sorted(["-", "1", "10", "+", "3",
    "30"])


@pytest.mark.parametrize("round", range(6))
def test_random_changes_barriers_and_recoveries_give_the_rows_of_the_table(round):
    """After each barrier the emitted rows, committed ones and those since, are a prefix of the table that grows to all
    of it; a recovery continues from the committed positions with the committed rows. Two actors share the vnodes."""
    rng = random.Random(run_seed() + round)
    upstream = Upstream()
    upstream.insert(*((number, "n", rng.randrange(100)) for number in range(rng.choice([0, 1, 40, 400]))))
    halves = [np.arange(CATALOG.vnode_count) % 2 == half for half in (0, 1)]
    for owned in halves:
        committed, survivor = {}, None
        twin = Upstream()
        twin.insert(*upstream.rows.values())
        done: list[bool] = []
        finished = functools.partial(done.append, True)
        for _ in range(60):
            if survivor is None:
                messages = backfill(twin, owned=owned.astype(np.uint8), slice_rows=rng.choice([1, 7, 50]),
                                    finished=finished)
                survivor = Folded((0,))
                survivor.rows = dict(committed)
                twin.barrier()
                until_barrier(messages)
            for _ in range(rng.randrange(4)):
                survivor.apply_all(some(messages, rng.randrange(6)))
                twin.change(*random_change(rng, twin.rows, owned))
            twin.barrier()
            survivor.apply_all(until_barrier(messages))
            twin.commit()
            committed = dict(survivor.rows)
            if rng.random() < 0.15:
                survivor = None  # a crash; the table is intact
            if done and rng.random() < 0.3:
                break
        assert done
        owned_rows = {(row[0], row[2]) for row in twin.rows.values() if owned[vnode_of(row[0])]}
        assert set(committed.values()) == owned_rows


def random_change(rng, rows, owned):
    """An insert, an update or a delete of an owned row."""
    present = [key for key in rows if owned[vnode_of(key)]]
    choice = rng.random()
    if present and choice < 0.4:
        key = rng.choice(present)
        return (Op.UPDATE_DELETE, rows[key]), (Op.UPDATE_INSERT, (key, "n", rng.randrange(100)))
    if present and choice < 0.6:
        return ((Op.DELETE, rows[rng.choice(present)]),)
    absent = next(key for key in (rng.randrange(10_000) for _ in range(10_000))
                  if key not in rows and owned[vnode_of(key)])
    return ((Op.INSERT, (absent, "n", rng.randrange(100))),)
