"""The backfill of an actor apart from the graph: pieces, recoveries, other owners of vnodes, and the start in the
graph, against the history of the table."""

import random

import numpy as np
import pytest

from hummock.epoch import EpochPair, own_epoch
from hummock.store.memory_store import MemoryStateStore
from relational.chunk import Op, StreamChunk
from relational.table.scan_positions import ScanPositions, keys_of, stored_since
from relational.table.state_table import StateTable
from relational.table.storage_table import StorageTable
from stream.executor.backfill import BackfillExecutor
from stream.executor.backfill_pace import BackfillPace
from stream.executor.base import ExecutorInfo
from stream.executor.merge import MergeExecutor
from stream.executor.snapshot_backfill import SnapshotBackfillExecutor
from stream.message import Barrier, Wait
from stream.runtime.channel import Channel
from tests.stream.executor.test_backfill import CATALOG, COLUMNS, PROGRESS, TABLE, Upstream
from tests.support.drivers.seeds import run_seed
from tests.support.drivers.stream_driver import Folded, epoch, until_barrier

INFO = ExecutorInfo(TABLE.project(COLUMNS), (0,), "StreamScan")
EVERY = np.ones(CATALOG.vnode_count, np.uint8)


class History(Upstream):
    """A table, and its rows at each committed epoch."""

    def __init__(self):
        super().__init__()
        self.at = {}

    def end_epoch(self):
        """The epoch that is committed."""
        ended = self.barrier().epoch.prev
        self.commit()
        self.at[ended] = dict(self.rows)
        return ended

    def change_some(self, rng):
        for _ in range(rng.randrange(4)):
            key = rng.randrange(300)
            before, after = self.rows.get(key), (key, "n", rng.randrange(100))
            if before is None:
                self.change((Op.INSERT, after))
            elif rng.random() < 0.4:
                self.change((Op.DELETE, before))
            else:
                self.change((Op.UPDATE_DELETE, before), (Op.UPDATE_INSERT, after))


class Apart:
    """The actors of a scan, over one store of their own; their barriers stand for committed epochs of `history`."""

    def __init__(self, history, parts=(EVERY,), slice_rows=5):
        self.history, self.parts, self.slice_rows = history, parts, slice_rows
        self.store = MemoryStateStore()
        self.committed, self.read = {}, None
        self.begin(None)

    def begin(self, since):
        self.finished = set()
        self.folded = Folded((0,))
        self.folded.rows = dict(self.committed)
        self.channels = [Channel(1 << 30) for _ in self.parts]
        self.actors = [self.executor(number, owned).execute() for number, owned in enumerate(self.parts)]
        self.read = since

    def executor(self, number, owned):
        self.positions = ScanPositions(CATALOG, StateTable(PROGRESS, self.store), owned)
        table = StorageTable(CATALOG, self.history.store, COLUMNS)
        return SnapshotBackfillExecutor(
            INFO, MergeExecutor(INFO, [self.channels[number]], None), table, self.positions, BackfillPace(), 64,
            slice_rows=self.slice_rows, finished=lambda: self.finished.add(number))

    def barrier(self, committed):
        """Ends the piece, and begins one that reads `committed`."""
        before = self.read or committed - (1 << 16)
        passed = Barrier(EpochPair(own_epoch(committed), own_epoch(before)), checkpoint=True)
        for channel, messages in zip(self.channels, self.actors, strict=True):
            channel.send(passed)
            self.folded.apply_all(until_barrier(messages))
        if self.read is not None:
            self.store.commit(own_epoch(before))
            self.committed = dict(self.folded.rows)
            self.check(before)
        self.read = committed

    def check(self, committed):
        """The rows are those of the table at or below the positions, as of the epoch that is stored with these."""
        table = StorageTable(PROGRESS, self.store)
        assert stored_since(table, own_epoch(committed)) == committed
        positions = ScanPositions(CATALOG, StateTable(PROGRESS, self.store), EVERY)
        positions.init_epoch(EpochPair(own_epoch(committed) + (1 << 16), own_epoch(committed)))
        rows = list(self.history.at[committed].values())
        if rows:
            chunk = StreamChunk.from_rows(TABLE, [(Op.INSERT, row) for row in rows])
            passed = positions.passed(keys_of(CATALOG, chunk))
            rows = [row for row, is_passed in zip(rows, passed, strict=True) if is_passed]
        assert set(self.committed.values()) == {(row[0], row[2]) for row in rows}

    def work(self, rng):
        """Some messages of each actor; fewer than all rows."""
        for messages in self.actors:
            for _ in range(rng.randrange(6)):
                message = next(messages)
                if not isinstance(message, Wait):
                    self.folded.apply(message)

    @property
    def is_done(self):
        return len(self.finished) == len(self.parts)


def halves_by(modulus):
    return [(np.arange(CATALOG.vnode_count) % modulus == number).astype(np.uint8) for number in range(modulus)]


@pytest.mark.parametrize("round", range(8))
def test_each_piece_is_the_table_below_the_positions_at_its_epoch(round):
    rng = random.Random(run_seed() + round)
    history = History()
    history.insert(*((number, "n", number) for number in range(200)))
    apart = Apart(history, slice_rows=rng.choice((1, 5, 50)))
    apart.barrier(history.end_epoch())
    for _ in range(400):
        if apart.is_done and rng.random() < 0.2:
            break
        history.change_some(rng)
        if rng.random() < 0.7:
            apart.work(rng)
        if rng.random() < 0.5:
            apart.barrier(history.end_epoch())
        elif rng.random() < 0.1:
            history.end_epoch()
        elif rng.random() < 0.1 and apart.committed:
            since = stored_since(StorageTable(PROGRESS, apart.store), apart.store.committed_epoch)
            apart.store.clear_uncommitted()
            apart.parts = halves_by(rng.choice((1, 2, 3)))
            apart.begin(since)
            history.change_some(rng)
            apart.barrier(history.end_epoch())
    assert apart.is_done
    last = apart.read
    apart.barrier(history.end_epoch())
    assert set(apart.committed.values()) == {(row[0], row[2]) for row in history.at[last].values()}


@pytest.mark.parametrize("is_done", [True, False])
def test_it_goes_on_in_the_graph_from_the_changes_since(is_done):
    rng = random.Random(run_seed())
    history = History()
    history.insert(*((number, "n", number) for number in range(100)))
    apart = Apart(history)
    apart.barrier(history.end_epoch())
    while not apart.committed or (is_done and not apart.is_done):
        history.change_some(rng)
        apart.work(rng)
        apart.barrier(history.end_epoch())
    since = stored_since(StorageTable(PROGRESS, apart.store), apart.store.committed_epoch)
    for number in range(100, 110):
        history.change((Op.INSERT, (1_000 + number, "n", 1)))
        history.end_epoch()
    graph = StateTable(PROGRESS, history.store)
    graph.init_epoch(EpochPair(epoch(history.number), epoch(history.number - 1)))
    graph.write_chunk(_progress_rows(apart.store))
    history.barrier()
    graph.commit(EpochPair(epoch(history.number), epoch(history.number - 1)))
    history.commit()
    done, folded = [], Folded((0,))
    folded.rows = dict(apart.committed)
    messages = BackfillExecutor(
        INFO, MergeExecutor(INFO, [history.follow()], None),
        lambda table, columns: StorageTable(table, history.store, columns), CATALOG, COLUMNS,
        ScanPositions(CATALOG, StateTable(PROGRESS, history.store), None), BackfillPace(), 64, slice_rows=7,
        finished=lambda: done.append(True),
    ).execute()
    history.barrier()
    folded.apply_all(until_barrier(messages))
    for _ in range(60):
        history.change_some(rng)
        history.barrier()
        folded.apply_all(until_barrier(messages))
        history.commit()
        for _ in range(8):
            message = next(messages)
            if isinstance(message, StreamChunk):
                folded.apply(message)
    assert done == [True] and set(folded.rows.values()) == history.expected
    assert since is not None
    assert stored_since(StorageTable(PROGRESS, history.store), history.store.committed_epoch) is None


def _progress_rows(store):
    chunks = list(StorageTable(PROGRESS, store).scan(store.committed_epoch))
    return StreamChunk.from_rows(PROGRESS.schema, [(Op.INSERT, row) for chunk in chunks for row in chunk.rows()])
