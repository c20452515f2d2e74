"""Pins: what a process reads is kept while its lease is in force, without a transaction per pin."""

import itertools
import threading
from dataclasses import replace

import pytest

from hummock.errors import EpochTooOld, InvalidEpoch, MetaStoreError, OutcomeUnknown, SnapshotExpired
from hummock.meta.leases import read_leases
from hummock.meta.records import LEASES
from hummock.meta.store.memory import MemoryMetaStore
from tests.support.servers.meta_store_faults import FaultyMetaStore
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan
from tests.support.worlds.manager_parts import StandingClock, advance_safe_epoch, epoch_of, open_manager

LEASE_MS = 30_000


@pytest.fixture
def clock():
    return StandingClock()


@pytest.fixture
def plan():
    return FaultPlan()


@pytest.fixture
def store(plan):
    return FaultyMetaStore(MemoryMetaStore(), plan)


@pytest.fixture
def manager(store, clock):
    return open_manager(store, clock, lease_ms=LEASE_MS)


@pytest.fixture
def writer(manager):
    return manager.claim_writer()


@pytest.fixture
def commit(manager, writer):
    return lambda number: manager.commit_epoch(writer, epoch_of(number), [])


def transactions(plan):
    return sum(operation == "transaction" for operation, _ in plan.calls)


def lease_of(store):
    (lease,) = read_leases(store)
    return lease


def test_the_first_pin_writes_a_row_and_later_ones_write_nothing(manager, commit, store, plan):
    commit(1)
    before = transactions(plan)
    assert manager.pin_version("n") is manager.version
    for _ in range(50):
        manager.pin_version("n")
        assert manager.pin_snapshot("n") == epoch_of(1)
        manager.unpin_snapshot("n", epoch_of(1))
    assert transactions(plan) == before + 1
    assert (lease_of(store).min_version, lease_of(store).min_epoch) == (1, epoch_of(1))


def test_a_pinned_epoch_holds_the_safe_epoch_back(manager, commit):
    for number in range(1, 4):
        commit(number)
    assert manager.pin_snapshot("n", epoch_of(2)) == epoch_of(2)
    commit(9)
    assert advance_safe_epoch(manager, epoch_of(9)) == epoch_of(2)
    assert manager.pin_snapshot("n", epoch_of(2)) == epoch_of(2)
    manager.unpin_snapshot("n", epoch_of(2))
    manager.renew_lease("n")
    assert advance_safe_epoch(manager, epoch_of(9)) == epoch_of(2), "one of the two pins is left"
    manager.unpin_snapshot("n", epoch_of(2))
    manager.renew_lease("n")
    assert advance_safe_epoch(manager, epoch_of(7)) == epoch_of(7)


@pytest.mark.parametrize("is_new", [True, False], ids=["a new node", "a node with a row"])
def test_a_pin_that_comes_while_the_safe_epoch_is_raised_is_seen(manager, commit, store, clock, monkeypatch, is_new):
    for number in range(1, 4):
        commit(number)
    reader = open_manager(store, clock, seed=1)
    if not is_new:
        reader.pin_snapshot("reader")
    real, pinned = store.list, []

    def list_then_pin(prefix):
        rows = real(prefix)
        if prefix == LEASES and not pinned:
            pinned.append(None)
            pinned[0] = reader.pin_snapshot("reader", epoch_of(1))
        return rows

    monkeypatch.setattr(store, "list", list_then_pin)
    assert advance_safe_epoch(manager, epoch_of(3)) == epoch_of(1) == pinned[0]


def test_commits_of_this_process_overtake_a_pin_once_at_most(manager, commit, monkeypatch):
    commit(1)
    real, numbers, threads = manager._pins.lease, itertools.count(2), []

    def after_a_commit(*args):
        threads.append(threading.Thread(target=commit, args=(next(numbers),)))
        threads[-1].start()
        threads[-1].join(0.05)
        return real(*args)

    monkeypatch.setattr(manager._pins, "lease", after_a_commit)
    assert manager.pin_snapshot("n", epoch_of(1)) == epoch_of(1)
    for thread in threads:
        thread.join()
    assert len(threads) == 2 and manager.committed_epoch == epoch_of(3)


def test_pins_below_the_safe_epoch_and_above_the_committed_one_are_refused(manager, commit):
    commit(3)
    assert advance_safe_epoch(manager, epoch_of(2)) == epoch_of(2)
    with pytest.raises(EpochTooOld) as caught:
        manager.pin_snapshot("n", epoch_of(1))
    assert caught.value.safe_epoch == epoch_of(2)
    with pytest.raises(InvalidEpoch):
        manager.pin_snapshot("n", epoch_of(4))
    assert manager.pin_snapshot("n", epoch_of(2)) == epoch_of(2)


def test_the_safe_epoch_never_passes_the_committed_one_nor_goes_back(manager, commit):
    commit(3)
    assert advance_safe_epoch(manager, epoch_of(9)) == epoch_of(3)
    assert advance_safe_epoch(manager, epoch_of(1)) == epoch_of(3)
    assert manager.version.id == 2


def test_another_process_sees_new_commits_when_it_pins_their_epoch(manager, commit, store, clock):
    reader = open_manager(store, clock, seed=1)
    commit(5)
    assert reader.pin_snapshot("r", epoch_of(5)) == epoch_of(5)


def test_pins_of_several_processes_count_together(manager, commit, store, clock):
    commit(1)
    readers = [open_manager(store, clock, seed=seed) for seed in (1, 2)]
    for number, reader in enumerate(readers):
        reader.pin_snapshot(f"reader-{number}")
    commit(2)
    assert advance_safe_epoch(manager, epoch_of(2)) == epoch_of(1)
    readers[0].release_node("reader-0")
    assert advance_safe_epoch(manager, epoch_of(2)) == epoch_of(1)
    readers[1].release_node("reader-1")
    assert read_leases(store) == []
    assert advance_safe_epoch(manager, epoch_of(2)) == epoch_of(2)


def test_closing_a_manager_releases_its_nodes(manager, commit, store):
    commit(1)
    manager.pin_version("one")
    manager.pin_snapshot("two")
    assert len(read_leases(store)) == 2
    manager.close()
    manager.close()
    assert read_leases(store) == []


def test_a_lease_that_ran_out_protects_nothing_and_its_node_gets_an_error(manager, commit, store, clock):
    commit(1)
    reader = open_manager(store, clock, seed=1, lease_ms=LEASE_MS)
    reader.pin_snapshot("r")
    clock.advance(LEASE_MS)
    commit(2)
    assert advance_safe_epoch(manager, epoch_of(2)) == epoch_of(2)
    assert read_leases(store) == []
    with pytest.raises(SnapshotExpired, match="node r"):
        reader.renew_lease("r")
    assert reader.pin_snapshot("r") == epoch_of(2)


def test_a_lease_that_ran_out_unnoticed_is_renewed_without_loss(manager, commit, store, clock):
    commit(1)
    manager.pin_snapshot("n")
    clock.advance(LEASE_MS * 3)
    commit(2)
    manager.renew_lease("n")
    assert lease_of(store).min_epoch == epoch_of(1)
    assert advance_safe_epoch(manager, epoch_of(2)) == epoch_of(1)


def test_renewal_lifts_the_row_to_the_oldest_pin(manager, commit, store, clock):
    commit(1)
    manager.pin_version("n")
    commit(2)
    manager.pin_version("n")
    clock.advance(5_000)
    manager.renew_lease("n")
    assert (lease_of(store).min_version, lease_of(store).min_epoch) == (1, epoch_of(2))
    assert lease_of(store).expires_ms == clock() + LEASE_MS
    manager.unpin_version_before("n", 2)
    manager.renew_lease("n")
    assert lease_of(store).min_version == 2


def test_a_node_name_belongs_to_one_process(manager, commit, store, clock):
    commit(1)
    manager.pin_version("n")
    with pytest.raises(MetaStoreError, match="another process"):
        open_manager(store, clock, seed=1).pin_version("n")


@pytest.mark.parametrize("kind", [FaultKind.AFTER, FaultKind.TORN])
def test_a_lease_whose_writing_was_not_seen_is_read_again(manager, commit, store, plan, clock, kind):
    commit(1)
    for advance in (0, 1_000, 1_000):
        clock.advance(advance)
        plan.add(Fault(kind, "transaction", LEASES))
        manager.renew_lease("n")
        manager.pin_snapshot("n")
        assert lease_of(store).expires_ms == clock() + LEASE_MS
    assert plan.hits == 3


def test_releasing_what_is_gone_is_fine(manager, commit, store, clock):
    commit(1)
    manager.release_node("never")
    manager.pin_version("n")
    clock.advance(LEASE_MS)
    commit(2)
    advance_safe_epoch(manager, epoch_of(2))
    manager.release_node("n")
    manager.unpin_snapshot("n", epoch_of(1))
    assert manager.pin_version("n").id == manager.version.id


def test_pinning_threads_and_a_rising_safe_epoch_never_cross(store, clock, manager, commit):
    commit(1)
    readers = [open_manager(store, clock, seed=seed, transaction_attempts=1000) for seed in range(1, 4)]
    stop, crossed = threading.Event(), []

    def read(number, reader):
        node = f"reader-{number}"
        while not stop.is_set():
            try:
                epoch = reader.pin_snapshot(node)
            except EpochTooOld:
                reader.refresh()
                continue
            for _ in range(3):
                if reader.refresh().safe_epoch > epoch:
                    crossed.append((node, epoch))
            reader.unpin_snapshot(node, epoch)
            reader.renew_lease(node)

    threads = [threading.Thread(target=read, args=entry) for entry in enumerate(readers)]
    for thread in threads:
        thread.start()
    reached = set()
    for number in range(2, 3000):
        commit(number)
        reached.add(advance_safe_epoch(manager, epoch_of(number)))
        if len(reached) > 20:
            break
    stop.set()
    for thread in threads:
        thread.join()
    assert crossed == []
    assert len(reached) > 20


def test_a_lifted_lease_holds_back_what_its_node_has_pinned_and_no_more(manager, commit, store, clock):
    """Once files have left the version, without waiting for a renewal; the rest of the row is unchanged."""
    commit(1)
    manager.pin_version("n")
    manager.pin_snapshot("n", epoch_of(1))
    row = lease_of(store)
    clock.advance(1_000)
    commit(2)
    manager.lift_leases()
    assert lease_of(store) == row, "no file has left"
    manager.pin_version("n")
    manager._keeper.left_at = 2
    manager.lift_leases()
    assert lease_of(store) == row, "the first version is pinned"
    manager.unpin_version_before("n", 2)
    manager.lift_leases()
    assert lease_of(store) == replace(row, min_version=2)
    manager.pin_version("n")


def test_a_lease_that_holds_back_files_in_vain_is_due(manager, commit, store, plan):
    commit(1)
    manager.pin_version("n")
    manager.keep_lease("n")
    before = transactions(plan)
    commit(2)
    manager.pin_version("n")
    manager.unpin_version_before("n", 2)
    manager.keep_lease("n")
    assert (lease_of(store).min_version, transactions(plan)) == (1, before + 1)
    manager._keeper.left_at = 2
    manager.keep_lease("n")
    manager.keep_lease("n")
    assert (lease_of(store).min_version, transactions(plan)) == (2, before + 2)


def test_a_lease_that_was_taken_away_is_not_lifted_and_its_node_learns_of_it(manager, commit, store, clock):
    commit(1)
    manager.pin_version("n")
    commit(2)
    manager.pin_version("n")
    manager.unpin_version_before("n", 2)
    clock.advance(LEASE_MS)
    advance_safe_epoch(open_manager(store, clock, seed=1), epoch_of(2))
    manager._keeper.left_at = 2
    manager.lift_leases()
    assert read_leases(store) == []
    with pytest.raises(SnapshotExpired):
        manager.keep_lease("n")


@pytest.mark.parametrize("kind", [FaultKind.TORN, FaultKind.AFTER])
def test_a_lift_whose_end_was_not_seen_is_found_out_by_the_renewal(manager, commit, store, plan, kind):
    commit(1)
    manager.pin_version("n")
    commit(2)
    manager.pin_version("n")
    manager.unpin_version_before("n", 2)
    manager._keeper.left_at = 2
    plan.add(Fault(kind, "transaction"))
    with pytest.raises(OutcomeUnknown):
        manager.lift_leases()
    manager.lift_leases()
    manager.renew_lease("n")
    assert lease_of(store).min_version == 2
    manager._keeper.left_at = 3
    commit(3)
    manager.pin_version("n")
    manager.unpin_version_before("n", 3)
    manager.lift_leases()
    assert lease_of(store).min_version == 3


@pytest.mark.parametrize("call", ["lift_leases", "compaction_debt"])
def test_who_judges_a_version_waits_until_its_subscribers_have_it(manager, commit, call):
    """Between the transaction and its delivery, subscribers still read the previous version."""
    commit(1)
    reached, gate, seen = threading.Event(), threading.Event(), []

    def hang(version):
        reached.set()
        assert gate.wait(20)
        seen.append(version.id)

    manager.subscribe(hang)
    deliver = manager.notifications.deliver

    def opening(serial):
        if threading.current_thread() is threading.main_thread():
            gate.set()
        return deliver(serial)

    manager.notifications.deliver = opening
    other = threading.Thread(target=commit, args=(2,))
    other.start()
    assert reached.wait(20)
    getattr(manager, call)()
    assert seen == [2]
    other.join()
