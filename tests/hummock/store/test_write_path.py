"""The write path from batch to commit: concurrent syncs, failures, recovery and waiting writers."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise

import pytest

from hummock.base.key import KeyRange
from hummock.base.table_rules import TableRules
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.errors import (
    Fenced,
    InvalidEpoch,
    ObjectStoreError,
    OutcomeUnknown,
    SharedBufferFull,
    SnapshotExpired,
    StoreClosed,
)
from hummock.meta import MemoryMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.upload_registry import read_uploads
from hummock.metrics import Metrics
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import CompactionOptions, StorageOptions
from hummock.store import sync_forecast
from hummock.store.storage import HummockStorage
from hummock.store.sync_forecast import SyncForecast
from tests.support.drivers.seeds import run_seed
from tests.support.drivers.waiting import eventually
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan, FaultyObjectStore

E1, E2, E3, E4 = (Epoch(number << 16) for number in (1, 2, 3, 4))
EVERYTHING = KeyRange(b"", None)
LONG = 30.0  # seconds; exceeded only if something hangs


class GatedObjectStore(MemoryObjectStore):
    """Puts wait until the gate is set; `arrived` counts them."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self._seen = threading.Condition()
        self.arrived = 0

    def put(self, path, data, *, if_absent=False):
        with self._seen:
            self.arrived += 1
            self._seen.notify_all()
        assert self.gate.wait(LONG)
        super().put(path, data, if_absent=if_absent)

    def wait_for(self, puts):
        with self._seen:
            assert self._seen.wait_for(lambda: self.arrived >= puts, LONG)


class Node:
    """A store with the writer role, over a gated object store and a manager of its own."""

    def __init__(self, objects=None, **options):
        self.objects = objects or GatedObjectStore()
        self.meta = MemoryMetaStore()
        self.manager = HummockManager(self.meta, self.objects)
        self.store = HummockStorage(
            self.manager, self.objects, StorageOptions(**{"inline_bytes": 0, **options}),
            session=self.manager.claim_writer()
        )
        self.threads = ThreadPoolExecutor(8)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if isinstance(self.objects, GatedObjectStore):
            self.objects.gate.set()
        self.store.close()
        self.threads.shutdown()

    def later(self, call, *arguments):
        return self.threads.submit(call, *arguments)

    def put(self, epoch, *keys, value=b"1"):
        self.store.ingest_batch(WriteBatch([(key, value) for key in keys]), epoch)

    def rows(self, epoch):
        return list(self.store.scan(EVERYTHING, epoch))


@pytest.fixture
def node():
    with Node() as node:
        yield node


def test_later_epochs_are_written_and_read_while_one_uploads(node):
    node.put(E1, b"a")
    node.store.seal_epoch(E1)
    node.objects.gate.clear()
    sync = node.later(node.store.sync, E1)
    node.objects.wait_for(1)
    node.put(E2, b"a", b"b", value=b"2")
    assert node.rows(E1) == [(b"a", b"1")]
    assert node.rows(E2) == [(b"a", b"2"), (b"b", b"2")]
    node.objects.gate.set()
    assert len(sync.result(LONG).sstables) == 1
    assert node.rows(E1) == [(b"a", b"1")]
    assert node.rows(E2) == [(b"a", b"2"), (b"b", b"2")]


def test_syncs_upload_side_by_side_but_no_more_than_allowed(node):
    node.objects.gate.clear()
    syncs = []
    for epoch, arrived in ((E1, 1), (E2, 2), (E3, 2)):
        node.put(epoch, b"a")
        node.store.seal_epoch(epoch)
        syncs.append(node.later(node.store.sync, epoch))
        node.objects.wait_for(arrived)
    assert node.store.stats().uploads_running == 2
    assert node.objects.arrived == 2
    node.objects.gate.set()
    results = [sync.result(LONG) for sync in syncs]
    assert [len(result.sstables) for result in results] == [1, 1, 1]
    assert len({info.name for result in results for info in result.sstables}) == 3


def test_commits_go_in_the_order_of_their_epochs(node):
    committed = []
    node.manager.subscribe(lambda version: committed.append(version.max_committed_epoch))
    node.put(E1, b"a")
    node.objects.gate.clear()
    first = node.later(node.store.commit, E1)
    node.objects.wait_for(1)
    second = node.later(node.store.commit, E2)
    node.put(E3, b"a")
    third = node.later(node.store.commit, E3)
    node.objects.wait_for(2)
    assert node.store.committed_epoch == 0
    node.objects.gate.set()
    for commit in (third, second, first):
        commit.result(LONG)
    assert sorted(set(committed)) == [E1, E2, E3]
    assert committed == sorted(committed)


def test_a_commit_out_of_order_is_refused(node):
    node.store.commit(E2)
    with pytest.raises(InvalidEpoch, match="sealed already"):
        node.store.commit(E1)
    assert node.store.committed_epoch == E2


def test_what_one_commit_failed_to_upload_the_next_one_carries():
    plan = FaultPlan([Fault(FaultKind.BEFORE, operation="put")])
    with Node(FaultyObjectStore(MemoryObjectStore(), plan)) as node:
        node.put(E1, b"a")
        with pytest.raises(ObjectStoreError):
            node.store.commit(E1)
        node.put(E2, b"a", b"b", value=b"2")
        node.store.commit(E2)
        assert node.rows(E1) == [(b"a", b"1")]
        assert node.rows(E2) == [(b"a", b"2"), (b"b", b"2")]
        assert sum(info.rows for info in node.store.version.sstables) == 3


def test_clearing_ends_a_sync_and_leaves_nothing_behind(node):
    node.put(E1, b"a")
    node.store.seal_epoch(E1)
    node.objects.gate.clear()
    sync = node.later(node.store.sync, E1)
    node.objects.wait_for(1)
    assert len(read_uploads(node.meta)) == 1
    clear = node.later(node.store.clear_uncommitted)
    node.objects.gate.set()
    clear.result(LONG)
    with suppress(InvalidEpoch):    # unless it ended before the call
        sync.result(LONG)
    assert read_uploads(node.meta) == {}
    assert node.rows(E4) == []
    node.put(E1, b"b")
    node.store.commit(E1)
    assert node.rows(E1) == [(b"b", b"1")]


def test_names_are_registered_until_their_files_are_committed(node):
    node.put(E1, b"a")
    node.store.seal_epoch(E1)
    (info,) = node.store.sync(E1).sstables
    assert list(read_uploads(node.meta)) == [info.name[:16]]
    node.store.commit(E1)
    node.store.clear_uncommitted()
    assert read_uploads(node.meta) == {}


def test_a_replaced_writer_writes_no_more_and_reads_on(node):
    node.put(E1, b"a")
    node.store.commit(E1)
    node.put(E2, b"b")
    node.manager.claim_writer()
    with pytest.raises(Fenced):
        node.store.commit(E2)
    for write in (
        lambda: node.put(E3, b"c"),
        lambda: node.store.seal_epoch(E3),
        lambda: node.store.sync(E2),
        lambda: node.store.commit(E2),
        lambda: node.store.clear_uncommitted(),
    ):
        with pytest.raises(Fenced):
            write()
    assert node.rows(E1) == [(b"a", b"1")]


def test_a_commit_whose_end_was_not_seen_is_asked_for_again(node):
    commit, calls = node.manager.commit_epoch, []

    def lose_the_answer(*arguments, **named):
        version = commit(*arguments, **named)
        calls.append(version.id)
        if len(calls) < 3:
            raise OutcomeUnknown("the answer was lost")
        return version

    node.manager.commit_epoch = lose_the_answer
    node.put(E1, b"a")
    node.store.commit(E1)
    assert calls == [node.store.version.id] * 3
    assert node.rows(E1) == [(b"a", b"1")]


def test_a_store_whose_lease_ran_out_says_so_once_and_pins_the_newest_version_again():
    objects = MemoryObjectStore()
    with Node(objects) as node:
        node.put(E1, b"a")
        node.store.commit(E1)
        with HummockStorage(node.manager, objects) as other:
            pinned = other._open_view().hold.pinned
            pinned.is_lost = True
            (info,) = node.store.version.sstables
            path = f"sst/{info.name}.data"
            data = objects.get(path)
            objects.delete([path])
            with pytest.raises(SnapshotExpired):
                other.get(b"a", E1)
            objects.put(path, data)
            assert other.get(b"a", E1) == b"1"
            assert not other._open_view().hold.pinned.is_lost


def test_rules_and_dropped_tables_enter_with_their_epoch(node):
    rules = TableRules(ttl_ms=1_000)
    node.store.commit(E1, tables={7: rules}, dropped_tables=[3])
    assert node.store.version.tables == {7: rules}
    assert node.store.version.dropped_tables == {3}
    node.store.commit(E2, tables={7: None})
    assert node.store.version.tables == {}


def test_writers_that_wait_are_let_in_as_they_came():
    with Node(shared_buffer_bytes=1_000) as node:
        node.objects.gate.clear()
        node.put(E1, b"a", value=b"x" * 900)
        large = node.later(lambda: node.put(E1, b"b", value=b"x" * 700))
        eventually(lambda: node.store.stats().writers_waiting == 1)
        small = node.later(lambda: node.put(E1, b"c", value=b"x"))
        eventually(lambda: node.store.stats().writers_waiting == 2)
        node.objects.gate.set()
        large.result(LONG)
        small.result(LONG)
        assert [key for key, _ in node.rows(E1)] == [b"a", b"b", b"c"]


def test_an_epoch_is_uploaded_before_it_ends_and_its_rows_win_in_the_order_of_their_writes():
    with Node(flush_bytes=1_000) as node:
        node.put(E1, b"a", value=b"x" * 500)
        assert node.store.stats().staged_files == 0
        node.put(E1, b"b", value=b"x" * 600)
        eventually(lambda: node.store.stats().staged_files == 1)
        node.put(E1, b"a", value=b"later")
        assert dict(node.rows(E1)) == {b"a": b"later", b"b": b"x" * 600}
        node.store.commit(E1)
        assert node.store.version.levels[0] and node.store.stats().staged_files == 0
        assert dict(node.rows(E1)) == {b"a": b"later", b"b": b"x" * 600}


def test_what_was_written_is_uploaded_shortly_before_the_next_sync(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(sync_forecast, "LEAST_BYTES", 1_000)
    monkeypatch.setattr(sync_forecast, "LEFT_BYTES_PER_SECOND", 10_000)
    with Node() as node:
        node.store._writes._forecast = SyncForecast(lambda: now[0])
        for epoch in (E1, E2):
            node.put(epoch, b"a")
            node.store.commit(epoch)
            now[0] += 1.0
        now[0] -= 0.3
        node.put(E3, b"a", value=b"x" * 2_000)
        assert node.store.stats().staged_files == 0
        now[0] += 0.2
        node.put(E3, b"b")
        eventually(lambda: node.store.stats().staged_files == 1)
        node.put(E3, b"c", value=b"x" * 2_000)
        node.store.commit(E3)
        assert [key for key, _ in node.rows(E3)] == [b"a", b"b", b"c"]


def test_what_was_written_is_uploaded_when_a_sync_is_announced(monkeypatch):
    monkeypatch.setattr(sync_forecast, "LEAST_BYTES", 1_000)
    monkeypatch.setattr(sync_forecast, "LEFT_BYTES_PER_SECOND", 10_000)
    with Node() as node:
        node.store._writes._forecast = SyncForecast(lambda: 100.0)
        node.put(E1, b"a", value=b"x" * 3_000)
        node.store.expect_sync(E1, 0.4)
        assert node.store.stats().staged_files == 0
        node.store.expect_sync(E1, 0.2)
        eventually(lambda: node.store.stats().staged_files == 1)
        node.store.commit(E1)
        assert [key for key, _ in node.rows(E1)] == [b"a"]
    node.store.expect_sync(E2, 0.2)  # of a closed store: no effect


def test_writers_are_slowed_down_while_level_0_is_deep():
    shape = CompactionOptions(l0_runs=2, l0_runs_slowdown=3, l0_runs_limit=5)
    metrics, manager = Metrics(), HummockManager(MemoryMetaStore(), MemoryObjectStore())
    session = manager.claim_writer()
    waits = []
    with HummockStorage(
        manager, MemoryObjectStore(), session=session, metrics=metrics, compaction=shape
    ) as store:
        for number in range(1, 8):
            epoch = Epoch(number << 16)
            store.ingest_batch(WriteBatch([(b"a", b"x" * 1_000)]), epoch)
            store.commit(epoch)
            waits.append(metrics.registry.get_sample_value(
                "hummock_writer_delay_seconds_total", {"reason": "level 0"}) or 0)  # fmt: skip
    each = [after - before for before, after in pairwise(waits)]
    assert each[:3] == [0, 0, 0]
    assert 0 < each[3] < each[4]
    assert each[4] == pytest.approx(each[5])    # at the limit the delay stays the same


def test_a_store_reports_its_epochs(node):
    node.put(E1, b"a")
    node.store.commit(E1)
    node.put(E2, b"b", value=b"12345")
    stats = node.store.stats()
    assert (stats.committed_epoch, stats.sealed_epoch, stats.version_id, stats.level_files) == (E1, E1, 1, (1,))
    assert (stats.waiting_bytes, stats.staged_files, stats.uploads_running) == (6 + 16, 0, 0)
    assert repr(node.store) == f"HummockStorage('memory://', writer, epoch {E1}, version 1)"
    node.store.close()
    assert repr(node.store) == "HummockStorage('memory://', closed)"


def test_a_writer_that_waits_fails_when_the_store_closes():
    with Node(shared_buffer_bytes=10) as node:
        node.objects.gate.clear()
        node.put(E1, b"a")
        writer = node.later(lambda: node.put(E1, b"b"))
        eventually(lambda: node.store.stats().writers_waiting == 1)
        close = node.later(node.store.close)
        with pytest.raises(StoreClosed):
            writer.result(LONG)
        node.objects.gate.set()
        close.result(LONG)


def test_local_rows_beyond_their_limit_are_refused_at_once():
    with Node(shared_buffer_bytes=10) as node:
        batch = WriteBatch([(b"a", b"x" * 20)])
        node.store.ingest_batch(batch, E1, local_only=True)
        with pytest.raises(SharedBufferFull):
            node.store.ingest_batch(batch, E1, local_only=True)


KEYS = [b"%02d" % number for number in range(20)]


def write_epochs(node, rng, prefix, barrier, epochs):
    """Writes one value to all its keys several times an epoch, and reads its own writes and earlier epochs."""
    last = {}
    for epoch in epochs:
        for part in range(rng.randint(1, 3)):
            last[epoch] = b"%d.%d" % (epoch >> 16, part)
            node.put(epoch, *[prefix + key for key in KEYS], value=last[epoch])
            for seen in {epoch, rng.choice(list(last))}:
                rows = node.store.scan(KeyRange.prefix(prefix), seen, reverse=rng.random() < 0.3)
                assert {value for _, value in rows} == {last[seen]}
                assert node.store.get(prefix + rng.choice(KEYS), seen) == last[seen]
        barrier.wait(LONG)      # all have written the epoch
        barrier.wait(LONG)      # its commit is under way
    return last


def test_many_writers_and_commits_that_overlap_or_fail_give_one_consistent_view():
    rng = random.Random(run_seed())
    plan = FaultPlan()
    epochs = [Epoch(number << 16) for number in range(1, 31)]
    barrier = threading.Barrier(4)
    with Node(FaultyObjectStore(MemoryObjectStore(), plan), shared_buffer_bytes=5_000, sstable_bytes=2_000) as node:
        writers = [
            node.later(write_epochs, node, random.Random(rng.random()), prefix, barrier, epochs)
            for prefix in (b"a", b"b", b"c")
        ]
        commits = []
        for epoch in epochs:
            barrier.wait(LONG)
            if rng.random() < 0.4:
                plan.add(Fault(FaultKind.BEFORE, operation="put", skip=rng.randrange(6)))
            commits.append(node.later(node.store.commit, epoch))
            eventually(lambda epoch=epoch: node.store.stats().sealed_epoch == epoch)
            if len(commits) > 3:
                commits.pop(0).exception(LONG)
            barrier.wait(LONG)
        for commit in commits:
            assert isinstance(commit.exception(LONG), ObjectStoreError | None)
        plan.clear()
        node.store.commit(Epoch(31 << 16))
        last = [writer.result(LONG) for writer in writers]
        with HummockStorage(node.manager, node.objects) as other:
            for epoch in epochs:
                written = zip((b"a", b"b", b"c"), last, strict=True)
                expected = [(prefix + key, values[epoch]) for prefix, values in written for key in KEYS]
                assert list(node.store.scan(EVERYTHING, epoch)) == expected
                assert list(other.scan(EVERYTHING, epoch)) == expected
