"""Local versions: pinned, monotonic, learned by notification or by reading the meta store."""

import threading
import time

import pytest

from hummock.errors import SnapshotExpired, StoreClosed, WaitEpochTimeout
from hummock.meta.leases import read_leases
from hummock.meta.store.memory import MemoryMetaStore
from hummock.store.pinned_version import LocalVersionManager
from tests.support.servers.meta_store_faults import FaultyMetaStore
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan
from tests.support.worlds.manager_parts import Files, StandingClock, advance_safe_epoch, epoch_of, open_manager

LEASE_MS = 30_000


@pytest.fixture
def clock():
    return StandingClock()


@pytest.fixture
def store():
    return MemoryMetaStore()


@pytest.fixture
def manager(store, clock):
    return open_manager(store, clock, lease_ms=LEASE_MS)


@pytest.fixture
def commit(manager):
    writer, files = manager.claim_writer(), Files()
    return lambda number: manager.commit_epoch(writer, epoch_of(number), [files.make(number)])


@pytest.fixture
def local(manager, commit):
    local = LocalVersionManager(manager, "local")
    yield local
    local.close()


@pytest.fixture
def reader(store, clock, commit):
    """Local versions of another process."""
    reader = LocalVersionManager(open_manager(store, clock, seed=1, lease_ms=LEASE_MS), "reader")
    yield reader
    reader.close()


def test_commits_of_this_process_arrive_before_they_return(local, commit):
    seen = []
    local.subscribe(lambda version: seen.append(version.id))
    for number in range(1, 6):
        assert commit(number) is local.version
    assert seen == [1, 2, 3, 4, 5]
    local.wait_epoch(epoch_of(5), 0)


def test_commits_of_another_process_arrive_by_reading(reader, commit):
    commit(1)
    assert reader.committed_epoch == 0
    assert reader.refresh().max_committed_epoch == epoch_of(1)
    commit(2)
    reader.wait_epoch(epoch_of(2), 0)
    assert reader.committed_epoch == epoch_of(2)


def test_waiting_ends_at_the_commit(local, reader, commit):
    waiters = [threading.Thread(target=one.wait_epoch, args=(epoch_of(3) | 7, 20_000))
               for one in (local, reader)]
    for waiter in waiters:
        waiter.start()
    for number in (1, 2, 3):
        commit(number)
    for waiter in waiters:
        waiter.join(10)
        assert not waiter.is_alive()


def test_waiting_is_bounded(reader, commit):
    commit(1)
    began = time.monotonic()
    with pytest.raises(WaitEpochTimeout) as caught:
        reader.wait_epoch(epoch_of(2), 60)
    assert 0.05 < time.monotonic() - began < 5
    assert (caught.value.committed_epoch, caught.value.timeout_ms) == (epoch_of(1), 60)


def test_what_a_read_holds_stays_pinned(local, commit, store, manager):
    commit(1)
    manager.renew_lease("local")
    with local.pin() as old:
        for number in (2, 3):
            commit(number)
        manager.renew_lease("local")
        assert read_leases(store)[0].min_version == old.version.id == 1
        with local.pin() as new:
            assert new.version.id == 3
    old.release()
    manager.renew_lease("local")
    assert read_leases(store)[0].min_version == 3


def test_closing_gives_everything_back(local, store, commit):
    commit(1)
    held = local.pin()
    local.close()
    local.close()
    assert read_leases(store) == []
    held.release()
    for call in (local.pin, local.refresh, lambda: local.wait_epoch(epoch_of(9), 10)):
        with pytest.raises(StoreClosed):
            call()
    commit(2)
    assert local.version.id == 1


def test_a_failing_listener_is_reported(local, reader, commit):
    def refuse(version):
        raise ValueError(f"cannot install {version.id}")

    local.subscribe(refuse)
    reader.subscribe(refuse)
    commit(1)
    for one in (local, reader):
        with pytest.raises(ValueError, match="cannot install 1"):
            one.wait_epoch(epoch_of(2), 1_000)


def test_a_listener_that_failed_gets_the_version_again_and_the_others_do_not(local, reader, commit):
    for one in (local, reader):
        received, others, faults = [], [], [MemoryError("short")] * 3
        one.subscribe(lambda version, others=others: others.append(version.id))

        def short_of_memory(version, received=received, faults=faults):
            if faults:
                raise faults.pop()
            received.append(version.id)

        one.subscribe(short_of_memory)
        commit(1 if one is local else 2)
        if one is reader:
            with pytest.raises(MemoryError):
                one.refresh()
        assert received == []
        assert one.refresh().id == one.version.id
        assert received == others == [one.version.id]


def test_pins_lost_with_the_lease_are_marked(reader, commit, store, manager, clock):
    commit(1)
    reader.refresh()
    held = reader.pin()
    clock.advance(LEASE_MS)
    commit(2)
    advance_safe_epoch(manager, epoch_of(2))
    assert not held.is_lost
    reader.refresh()
    assert held.is_lost and reader.version.id == 3
    with reader.pin() as fresh:
        assert not fresh.is_lost


def test_an_epoch_that_is_pinned_first_finds_out_what_was_lost(reader, commit, manager, clock):
    """The new pin is valid; versions that were pinned before are marked as lost."""
    commit(1)
    reader.refresh()
    held = reader.pin()
    clock.advance(LEASE_MS)
    commit(2)
    advance_safe_epoch(manager, epoch_of(2))
    assert reader.pin_snapshot(None) == epoch_of(2)
    assert held.is_lost
    with pytest.raises(SnapshotExpired):
        held.check()
    with reader.pin() as fresh:
        fresh.check()


def test_the_refresher_follows_and_renews(store, clock, manager, commit):
    plan = FaultPlan()
    client = open_manager(FaultyMetaStore(store, plan), clock, seed=2, lease_ms=LEASE_MS)
    local = LocalVersionManager(client, "background")
    arrived = threading.Semaphore(0)
    local.subscribe(lambda version: arrived.release())
    local.start(refresh_ms=2)
    commit(1)
    assert arrived.acquire(timeout=10)
    plan.add(Fault(FaultKind.BEFORE, "get", times=3))
    commit(2)
    assert arrived.acquire(timeout=10)
    clock.advance(LEASE_MS - 1)
    deadline = time.monotonic() + 10
    while read_leases(store)[0].expires_ms < clock() + LEASE_MS and time.monotonic() < deadline:
        threading.Event().wait(0.002)
    assert read_leases(store)[0].expires_ms == clock() + LEASE_MS
    local.close()
    assert local.version.id == 2


def test_the_refresher_marks_what_it_lost(store, clock, manager, commit):
    client = open_manager(store, clock, seed=2, lease_ms=LEASE_MS)
    local = LocalVersionManager(client, "background")
    commit(1)
    held = local.pin()
    clock.advance(LEASE_MS)
    advance_safe_epoch(manager, epoch_of(1))
    assert not held.is_lost
    local.start(refresh_ms=2)
    local.wait_epoch(epoch_of(1), 10_000)
    local.close()
    assert held.is_lost and held.version.id == 0


def test_versions_never_go_back_under_many_threads(local, commit, manager):
    seen, backwards, stop = [], [], threading.Event()
    local.subscribe(lambda version: seen.append(version.id))

    def watch():
        last = 0
        while not stop.is_set():
            with local.pin() as pinned:
                if pinned.version.id < last:
                    backwards.append((last, pinned.version.id))
                last = pinned.version.id
            manager.refresh()

    threads = [threading.Thread(target=watch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(1, 100):
        commit(number)
    stop.set()
    for thread in threads:
        thread.join()
    assert backwards == [] and seen == sorted(set(seen)) and seen[-1] == 99


def test_a_dropped_pin_counts_until_the_next_settling(local, commit, store, manager):
    commit(1)
    manager.renew_lease("local")
    old = local.pin()
    commit(2)
    old.drop()
    manager.renew_lease("local")
    assert read_leases(store)[0].min_version == 1
    local.settle()
    manager.renew_lease("local")
    assert read_leases(store)[0].min_version == 2
