"""HummockStorage: the StateStore suite in memory and on disk, and features of its own."""

from __future__ import annotations

import pkgutil
import random
import threading
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pytest

import hummock
from hummock.base.key import user_key
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.errors import (
    Corruption,
    EpochTooOld,
    Fenced,
    InvalidOption,
    ObjectStoreError,
    RoleMissing,
    SharedBufferFull,
    StoreClosed,
    WaitEpochTimeout,
)
from hummock.meta import MemoryMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import CompactionOptions, StorageOptions
from hummock.store.memory_store import MemoryStateStore
from hummock.store.storage import HummockStorage
from tests.support.drivers.seeds import run_seed
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan, FaultyObjectStore
from tests.support.suites.interpreter_work import PER_ROW, assert_no_work_per_row, work_of
from tests.support.suites.state_store_suite import StateStoreSuite
from tests.support.worlds.manager_parts import advance_safe_epoch

PAST = CompactionOptions(history_ms=600_000)     # the suite reads epochs that nothing pins


class TestHummockStorageInMemory(StateStoreSuite):
    @pytest.fixture
    def store(self):
        with hummock.open("memory://", compaction=PAST) as store:
            yield store


class TestHummockStorageOnDisk(StateStoreSuite):
    @pytest.fixture
    def store(self, tmp_path):
        with hummock.open(f"file://{tmp_path}/store", role="writer", compaction=PAST) as store:
            yield store


class TestHummockStorageOfTinyFiles(StateStoreSuite):
    """One entry per block, a few per file, no caches: every boundary is crossed."""

    @pytest.fixture
    def store(self):
        with hummock.open(
            "memory://", block_bytes=1, sstable_bytes=64, block_cache_bytes=1, meta_cache_bytes=1,
            prefetch_bytes=1, scan_batch_rows=3, shared_buffer_bytes=64, compaction=PAST,
        ) as store:  # fmt: skip
            yield store


class TestHummockStorageWhoseWritersFlush(StateStoreSuite):
    """No flush threads: callers flush at each batch."""

    @pytest.fixture
    def store(self):
        with hummock.open("memory://", shared_buffer_bytes=1, flush_threads=0, compaction=PAST) as store:
            yield store


E1, E2, E3 = (Epoch(number << 16) for number in (1, 2, 3))
EVERYTHING = hummock.KeyRange(b"", None)


class Cluster:
    """Several stores, as nodes of one manager over one object store."""

    def __init__(self, objects=None):
        self.objects = objects or MemoryObjectStore()
        self.meta = MemoryMetaStore()
        self.manager = HummockManager(self.meta, self.objects)
        self.session = self.manager.claim_writer()

    def node(self, **options):
        options = {"inline_bytes": 0, **options}
        return HummockStorage(self.manager, self.objects, StorageOptions(**options), session=self.session)


def batch(*pairs):
    return WriteBatch(list(pairs))


def test_a_nodes_writes_are_seen_elsewhere_after_wait_epoch():
    cluster = Cluster()
    with cluster.node() as one, cluster.node() as two:
        one.ingest_batch(batch((b"a", b"1"), (b"b", b"2")), E1)
        one.ingest_batch(batch((b"a", b"3"), (b"b", b"4")), E2)
        two.ingest_batch(batch((b"c", b"5"), (b"d", b"6")), E2)
        assert [one.get(key, E2) for key in (b"a", b"b", b"c")] == [b"3", b"4", None]
        assert [one.get(key, E1) for key in (b"a", b"b")] == [b"1", b"2"]
        assert two.get(b"a", E2) is None
        with pytest.raises(WaitEpochTimeout):
            two.wait_epoch(E2, 1)
        for store in (one, two):
            store.seal_epoch(E2)
        files = one.sync(E2).sstables + two.sync(E2).sstables
        cluster.manager.commit_epoch(cluster.session, E2, files)
        expected = [(b"a", b"3"), (b"b", b"4"), (b"c", b"5"), (b"d", b"6")]
        for store in (one, two):
            store.wait_epoch(E2, 10_000)
            assert list(store.scan(EVERYTHING, E2)) == expected
            assert list(store.scan(EVERYTHING, E1)) == [(b"a", b"1"), (b"b", b"2")]


def test_what_was_committed_is_there_after_opening_again(tmp_path):
    url = f"file://{tmp_path}/store"
    with hummock.open(url, role="writer") as store:
        store.ingest_batch(batch((b"a", b"1"), (b"b", b"2")), E1)
        store.commit(E1)
        store.ingest_batch(batch((b"a", b"lost")), E2)
        store.seal_epoch(E2)
        store.sync(E2)
    with hummock.open(url, role="writer") as store:
        assert store.committed_epoch == E1
        assert list(store.scan(EVERYTHING, E3)) == [(b"a", b"1"), (b"b", b"2")]
        store.ingest_batch(batch((b"c", b"3")), E2)
        store.commit(E2)
    with hummock.open(url) as store:
        assert store.get_many(pa.array([b"c", b"a"]), E2).to_arrow().to_pylist() == [b"3", b"1"]
        with pytest.raises(RoleMissing, match="writer role"):
            store.commit(E3)


def test_opening_takes_the_writer_role_over(tmp_path):
    url = f"file://{tmp_path}/store"
    with hummock.open(url, role="writer") as first, hummock.open(url, role="writer") as second:
        second.ingest_batch(batch((b"a", b"2")), E1)
        second.commit(E1)
        first.ingest_batch(batch((b"a", b"1")), E2)
        with pytest.raises(Fenced):
            first.commit(E2)


def test_an_unknown_role_or_scheme_is_refused():
    with pytest.raises(InvalidOption, match="role"):
        hummock.open("memory://", role="owner")
    with pytest.raises(InvalidOption, match="url"):
        hummock.open("ftp://somewhere")


def test_writers_beyond_the_budget_spill_and_lose_nothing():
    rng = random.Random(3)
    with Cluster().node(shared_buffer_bytes=2_000) as store:
        expected = {}
        for number in range(60):
            epoch = (E1, E2)[number % 2]
            rows = {b"%03d" % rng.randrange(100): b"%d" % number for _ in range(20)}
            store.ingest_batch(batch(*sorted(rows.items())), epoch)
            expected.update({(key, epoch): value for key, value in rows.items()})
            assert store._writes.buffer.waiting_bytes <= 2_000
        at_one = {key: value for (key, epoch), value in expected.items() if epoch == E1}
        at_two = at_one | {key: value for (key, epoch), value in expected.items() if epoch == E2}
        for settle in (lambda: None, lambda: store.commit(E2)):
            settle()
            assert dict(store.scan(EVERYTHING, E1)) == at_one
            assert dict(store.scan(EVERYTHING, E2)) == at_two
            found = store.get_many(pa.array(sorted(at_two)), E2).to_arrow().to_pylist()
            assert found == [at_two[key] for key in sorted(at_two)]


@pytest.mark.parametrize("flush_threads", [0, 1])
def test_flushes_syncs_and_failures_in_any_order_read_as_the_model_does(flush_threads):
    rng = random.Random(run_seed())
    plan = FaultPlan()
    cluster = Cluster(FaultyObjectStore(MemoryObjectStore(), plan))
    for _ in range(10):
        limit = rng.choice((1, 300, 3_000))
        options = {"flush_threads": flush_threads, "sstable_bytes": 200}
        with cluster.node(shared_buffer_bytes=limit, **options) as store:
            run_against_model(rng, store, cluster.manager, plan)
        cluster = Cluster(FaultyObjectStore(MemoryObjectStore(), plan))


def run_against_model(rng, store, manager, plan):
    """Writes batches to two open epochs; syncs and commits the older one; some uploads fail."""
    model, sealed = MemoryStateStore(), 0
    for step in range(60):
        choice = rng.random()
        epoch = Epoch((sealed + rng.choice((1, 2))) << 16)
        if choice < 0.75:
            written = sorted({b"%02d" % rng.randrange(30): 0 for _ in range(rng.choice((1, 5)))})
            rows = [(key, rng.choice((None, b"%d" % step))) for key in written]
            for one in (store, model):
                one.ingest_batch(WriteBatch(rows), epoch)
        elif choice < 0.85:
            sealed += 1
            store.seal_epoch(Epoch(sealed << 16))
            model.seal_epoch(Epoch(sealed << 16))
            if rng.random() < 0.5:
                plan.add(Fault(FaultKind.BEFORE, operation="put", skip=rng.randrange(3)))
            with suppress(ObjectStoreError):
                store.sync(Epoch(sealed << 16))
            plan.clear()
        elif sealed:
            for one in (store, model):
                one.commit(Epoch(sealed << 16))
            sealed += 1
        for at in (epoch, Epoch(rng.randint(1, sealed + 2) << 16)):
            expected = list(model.scan(EVERYTHING, at))
            assert list(store.scan(EVERYTHING, at)) == expected
            assert list(store.scan(EVERYTHING, at, reverse=True)) == expected[::-1]
            keys = [b"%02d" % number for number in range(30)]
            assert store.get_many(pa.array(keys), at).to_arrow().to_pylist() == [model.get(key, at) for key in keys]


def test_a_writer_that_waits_too_long_for_memory_fails_and_says_why(monkeypatch):
    monkeypatch.setattr("hummock.store.write_path.ROOM_WAIT_SECONDS", 0.05)
    plan = FaultPlan([Fault(FaultKind.BEFORE, operation="put", times=1 << 30)])
    with Cluster(FaultyObjectStore(MemoryObjectStore(), plan)).node(shared_buffer_bytes=10) as store:
        store.ingest_batch(batch((b"a", b"x" * 20)), E1)
        with pytest.raises(SharedBufferFull) as refused:
            store.ingest_batch(batch((b"b", b"x" * 20)), E1)
        assert isinstance(refused.value.__cause__, ObjectStoreError)
        plan.clear()
        monkeypatch.undo()
        store.ingest_batch(batch((b"b", b"x" * 20)), E1)
        assert [key for key, _ in store.scan(EVERYTHING, E1)] == [b"a", b"b"]


def test_a_failed_sync_loses_nothing_and_may_be_tried_again():
    for skip in range(4):
        plan = FaultPlan([Fault(FaultKind.BEFORE, operation="put", skip=skip)])
        with Cluster(FaultyObjectStore(MemoryObjectStore(), plan)).node(sstable_bytes=1) as store:
            store.ingest_batch(batch((b"a", b"1"), (b"b", b"2")), E1)
            store.seal_epoch(E1)
            with pytest.raises(ObjectStoreError):
                store.sync(E1)
            assert list(store.scan(EVERYTHING, E1)) == [(b"a", b"1"), (b"b", b"2")]
            store.commit(E1)
            assert list(store.scan(EVERYTHING, E1)) == [(b"a", b"1"), (b"b", b"2")]


def test_reads_below_the_safe_epoch_are_refused():
    with Cluster().node() as store:
        store.ingest_batch(batch((b"a", b"1")), E1)
        store.commit(E2)
        version = store.version
        store.install_version(replace(version, id=version.id + 1, safe_epoch=E2))
        for read in (
            lambda: store.get(b"a", E1),
            lambda: store.get_many(pa.array([b"a"]), E1),
            lambda: store.scan(EVERYTHING, E1),
            lambda: store.scan_prefixes(pa.array([b"a"]), E1),
        ):
            with pytest.raises(EpochTooOld) as refused:
                read()
            assert (refused.value.epoch, refused.value.safe_epoch) == (E1, E2)
        assert store.get(b"a", E2) == b"1"


def test_a_snapshot_of_the_newest_epoch_is_not_overtaken(monkeypatch):
    """Between reading the committed epoch and pinning it, the safe epoch is raised above it."""
    with hummock.open("memory://", compaction=False) as store:
        for number in (1, 2, 3):
            store.ingest_batch(WriteBatch([(b"k", b"%d" % number)]), Epoch(number << 16))
            store.commit(Epoch(number << 16))
        pin, overtakes = store._local.pin_snapshot, [4, 5]

        def overtaken(epoch):
            if overtakes:
                newer = Epoch(overtakes.pop(0) << 16)
                store.ingest_batch(WriteBatch([(b"k", b"new")]), newer)
                store.commit(newer)
                store.meta_client.renew_lease(store._node)
                assert advance_safe_epoch(store.meta_client, newer) == newer
            return pin(epoch)

        monkeypatch.setattr(store._local, "pin_snapshot", overtaken)
        with store.snapshot() as epoch:
            assert (epoch, store.get(b"k", epoch)) == (Epoch(5 << 16), b"new")


FAULTS = (
    "hummock.store.storage.ReadView",
    "hummock.store.storage.HummockStorage._run_of",
    "hummock.store.storage.HummockStorage._forget_runs",
    "hummock.store.storage._VersionHold",
    "hummock.store.write_path.WritePath.advance",
    "hummock.meta.leases.PinTable.pin_version",
)


@pytest.mark.parametrize("times", [1, 2, 3, 5])
@pytest.mark.parametrize("target", FAULTS)
def test_memory_that_runs_out_while_a_version_is_installed_costs_no_version(monkeypatch, target, times):
    with hummock.open("memory://", compaction=False, refresh_ms=1 << 40) as store:
        def write(number):
            store.ingest_batch(WriteBatch([(b"k%d" % number, b"v")]), Epoch(number << 16))
            store.commit(Epoch(number << 16))

        write(1)
        owner, name = target.rsplit(".", 1)
        real, left = pkgutil.resolve_name(target), [times]

        def short_of_memory(*args, **kwargs):
            if left[0]:
                left[0] -= 1
                raise MemoryError
            return real(*args, **kwargs)

        monkeypatch.setattr(pkgutil.resolve_name(owner), name, short_of_memory)
        store.ingest_batch(WriteBatch([(b"k2", b"v")]), Epoch(2 << 16))
        for _ in range(2 * times):
            with suppress(MemoryError):
                store.commit(Epoch(2 << 16))
                break
            with suppress(MemoryError):
                assert store.get(b"k1", Epoch(2 << 16)) == store.get(b"k2", Epoch(2 << 16)) == b"v"
        left[0] = 0
        write(3)
        assert store.committed_epoch == Epoch(3 << 16)
        assert [store.get(b"k%d" % number, Epoch(3 << 16)) for number in (1, 2, 3)] == [b"v"] * 3
        assert store.maintenance is None and store._local._subscription.error is None


def test_a_version_stays_pinned_while_a_scan_reads_it():
    with Cluster().node(scan_batch_rows=1) as store:
        store.ingest_batch(batch((b"a", b"1"), (b"b", b"2")), E1)
        store.commit(E1)
        pinned = store.version.id
        scan = store.scan(EVERYTHING, E1)
        assert len(scan.next_batch()) == 1
        for epoch in (E2, E3):
            store.commit(epoch)
        assert min(held.version.id for held in store._local._held) == pinned
        assert len(scan.next_batch()) == 1
        assert scan.next_batch() is None
        del scan
        store.commit(Epoch(4 << 16))
        assert min(held.version.id for held in store._local._held) > pinned


def test_a_commit_elsewhere_does_not_open_a_closed_store():
    cluster = Cluster()
    store = cluster.node()
    store.close()
    cluster.manager.commit_epoch(cluster.session, E1, [])
    with pytest.raises(StoreClosed):
        store.get(b"a", E1)


def test_closing_ends_scans_that_other_threads_are_reading():
    store = Cluster().node(scan_batch_rows=1)
    store.ingest_batch(batch(*[(b"%05d" % n, b"x") for n in range(20_000)]), E1)
    errors = []

    def read():
        with pytest.raises(StoreClosed) as closed:
            while True:
                list(store.scan(EVERYTHING, E1))
        errors.append(closed.value)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    store.close()
    for reader in readers:
        reader.join(30)
    assert len(errors) == 3


def test_reads_see_whole_batches_while_others_write_sync_and_commit():
    """Every batch writes one number to all keys, so any consistent snapshot holds one number."""
    keys = [b"%03d" % n for n in range(150)]
    wanted = pa.array(keys)
    done = threading.Event()
    failures = []

    def read(store, seed):
        rng = random.Random(seed)
        try:
            while not done.is_set():
                view_epoch = Epoch(rng.randint(1, 400) << 16)
                if rng.random() < 0.5:
                    rows = store.scan(EVERYTHING, view_epoch, reverse=rng.random() < 0.5)
                    seen = {value for _, value in rows}
                else:
                    seen = set(store.get_many(wanted, view_epoch).to_arrow().to_pylist())
                assert len(seen) <= 1, seen
        except BaseException as error:
            failures.append(error)

    with Cluster().node(shared_buffer_bytes=60_000, block_bytes=700, sstable_bytes=3_000,
                        block_cache_bytes=20_000, scan_batch_rows=40) as store:  # fmt: skip
        threads = [threading.Thread(target=read, args=(store, seed)) for seed in range(3)]
        for thread in threads:
            thread.start()
        committer = None
        for number in range(1, 80):
            epoch = Epoch(number << 16)
            for part in range(3):
                store.ingest_batch(batch(*[(key, b"%d/%d" % (number, part)) for key in keys]), epoch)
            if committer is not None:
                committer.join()
            committer = threading.Thread(target=store.commit, args=(epoch,))
            committer.start()
        committer.join()
        done.set()
        for thread in threads:
            thread.join(30)
        assert failures == []
        assert {value for _, value in store.scan(EVERYTHING, Epoch(100 << 16))} == {b"79/2"}


@pytest.mark.parametrize("part", [".data", ".meta"])
def test_a_flipped_bit_is_found_by_every_read_that_touches_it(part):
    rng = random.Random(11)
    cluster = Cluster()
    rows = [(user_key(1, 0, b"%05d" % n), rng.randbytes(30)) for n in range(1_000)]
    with cluster.node(block_bytes=2_000) as store:
        store.ingest_batch(batch(*rows), E1)
        store.commit(E1)
    (path,) = [found.path for found in cluster.objects.list("sst/") if found.path.endswith(part)]
    whole = cluster.objects.get(path)
    keys = pa.array([key for key, _ in rows])
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        cluster.objects.put(path, bytes(damaged))
        with cluster.node() as store:
            for read in (
                lambda store: store.scan(EVERYTHING, E1).to_arrow(),
                lambda store: list(store.scan(EVERYTHING, E1, reverse=True)),
                lambda store: store.get_many(keys, E1),
                lambda store: store.scan_prefixes(keys, E1),
                lambda store: [store.get(key, E1) for key, _ in rows],
            ):
                with pytest.raises(Corruption) as found:
                    read(store)
                assert found.value.object_name == path


def test_work_of_the_interpreter_does_not_grow_with_rows():
    with Cluster().node(scan_batch_rows=100_000) as store:
        keys = [user_key(1, 0, b"%06d" % n) for n in range(10_240)]
        counts = {}
        for number, rows in enumerate((1_024, 10_240), 1):
            epoch = Epoch(number << 16)
            columns = pa.array(keys[:rows], pa.binary()), pa.array([b"value"] * rows, pa.binary())
            store.ingest_batch(WriteBatch(*columns), epoch)
            store.commit(epoch)
            for _ in range(2):      # the second time blocks and metas are cached
                counts[rows] = [
                    work_of(lambda columns=columns: WriteBatch(*columns)),
                    work_of(lambda columns=columns, e=epoch: store.get_many(columns[0], e).to_arrow()),
                    work_of(lambda columns=columns, e=epoch: store.scan_prefixes(columns[0], e)),
                    work_of(lambda rows=rows, e=epoch: store.scan(EVERYTHING, e, limit=rows).next_batch()),
                ]
        # Ranges are read in slices of about a thousand, each with an iterator of its own over each of two runs.
        for few, many, per_row in zip(*counts.values(), (PER_ROW, PER_ROW, 0.03, PER_ROW), strict=True):
            assert_no_work_per_row(few, many, 10_240 - 1_024, per_row)
