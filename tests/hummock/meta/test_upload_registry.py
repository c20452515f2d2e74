"""Uploads: a name is minted only after its prefix is registered, and the row is kept as long as needed."""

import random
import threading

import pytest

from hummock.base.key import KeyRange, user_key
from hummock.columnar.write_batch import WriteBatch
from hummock.errors import MetaStoreError
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.records import UPLOADS
from hummock.meta.store.base import MetaOperations
from hummock.meta.store.memory import MemoryMetaStore
from hummock.meta.upload_registry import PREFIX_SECONDS, UploadRegistry, read_uploads
from hummock.meta.vacuum.vacuum import Vacuum
from hummock.object_store.base import is_sstable_name, name_minter, name_prefix
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import StorageOptions, VacuumOptions
from hummock.store.storage import HummockStorage
from tests.support.servers.meta_store_faults import FaultyMetaStore
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan
from tests.support.worlds.manager_parts import Files, StandingClock, epoch_of, open_manager

LEASE_MS = 30_000


class Parts:
    """One process: a manager over a faulty meta store, and a registry with its own clock."""

    def __init__(self):
        self.plan, self.clock, self.seconds = FaultPlan(), StandingClock(), 0.0
        self.meta_store = MemoryMetaStore()
        self.manager = open_manager(FaultyMetaStore(self.meta_store, self.plan), self.clock, lease_ms=LEASE_MS)
        self.registry = UploadRegistry(self.manager, "node", monotonic=lambda: self.seconds)

    @property
    def rows(self):
        return read_uploads(self.meta_store)

    def writes(self):
        return sum(operation == "transaction" for operation, _ in self.plan.calls)


@pytest.fixture
def parts():
    return Parts()


def test_the_prefix_is_known_before_the_name_is_handed_out(parts):
    name = parts.registry.mint()
    assert is_sstable_name(name)
    row = parts.rows[name_prefix(name)]
    assert (row.node, row.expires_ms) == ("node", parts.clock() + LEASE_MS)


def test_names_of_one_prefix_cost_one_transaction_and_never_repeat(parts):
    names = {parts.registry.mint() for _ in range(500)}
    assert len(names) == 500 and parts.writes() == 1
    assert {name_prefix(name) for name in names} == set(parts.rows)


def test_threads_that_mint_together_share_a_prefix(parts):
    names = []
    threads = [threading.Thread(target=lambda: names.extend(parts.registry.mint() for _ in range(50)))
               for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(names)) == 400 and len(parts.rows) == 1


@pytest.mark.parametrize("kind", [FaultKind.BEFORE, FaultKind.TORN])
def test_a_name_whose_registration_fails_is_not_handed_out(parts, kind):
    parts.plan.add(Fault(kind, "transaction", UPLOADS, times=1_000))
    with pytest.raises(MetaStoreError):
        parts.registry.mint()
    parts.plan.clear()
    assert name_prefix(parts.registry.mint()) in parts.rows


@pytest.mark.parametrize("kind", [FaultKind.AFTER, FaultKind.TORN])
def test_a_registration_whose_end_was_not_seen_is_found_out(parts, kind):
    parts.plan.add(Fault(kind, "transaction", UPLOADS))
    assert name_prefix(parts.registry.mint()) in parts.rows
    assert len(parts.rows) == 1 and parts.plan.hits == 1


def test_several_prefixes_are_registered_and_released_in_one_transaction(parts):
    before = len(parts.plan.calls)
    with parts.registry.prefixes(16) as prefixes:
        assert parts.rows.keys() == {*prefixes} and len({*prefixes}) == 16
        mint = name_minter(random.Random(3).randbytes, prefixes)
        assert len({name_prefix(mint()) for _ in range(200)} & {*prefixes}) > 8
    assert parts.rows == {}
    assert [operation for operation, _ in parts.plan.calls[before:]].count("transaction") == 2


def test_a_prefix_of_another_process_is_refused(parts):
    prefix = name_prefix(parts.registry.mint())
    other = open_manager(parts.meta_store, parts.clock, seed=1)
    with pytest.raises(MetaStoreError, match="another process"):
        other.register_upload("other", prefix)


@pytest.mark.parametrize("prefix", ["", "ab", "0" * 15, "0" * 17, "A" * 16, "../../etc/passwd", "g" * 16, "\0" * 16])
def test_what_is_no_prefix_is_refused(parts, prefix):
    with pytest.raises(MetaStoreError):
        parts.manager.register_upload("node", prefix)
    assert parts.rows == {}


def test_the_leases_renewal_prolongs_the_uploads_of_its_node(parts):
    prefix = name_prefix(parts.registry.mint())
    parts.manager.register_upload("another", "0123456789abcdef")
    before = parts.rows
    parts.clock.advance(1_000)
    parts.manager.renew_lease("node")
    assert parts.rows[prefix].expires_ms == before[prefix].expires_ms + 1_000
    assert parts.rows["0123456789abcdef"] == before["0123456789abcdef"]


def test_a_row_that_was_taken_away_is_made_again_by_its_living_owner(parts):
    parts.registry.mint()
    before = parts.rows
    parts.meta_store.transaction(MetaOperations(delete=tuple(key for key, _ in parts.meta_store.list(UPLOADS))))
    parts.clock.advance(LEASE_MS + 1)
    parts.registry.renew()
    assert set(parts.rows) == set(before)


def test_a_prefix_goes_when_it_serves_no_more_and_its_files_are_settled(parts):
    first = [parts.registry.mint() for _ in range(3)]
    parts.registry.settle(first[:2])
    assert len(parts.rows) == 1
    parts.seconds = PREFIX_SECONDS
    second = parts.registry.mint()
    assert set(parts.rows) == {name_prefix(first[0]), name_prefix(second)}
    parts.registry.settle(first)
    assert set(parts.rows) == {name_prefix(second)}
    parts.registry.settle([second])
    assert set(parts.rows) == {name_prefix(second)}, "the prefix is still in use"
    parts.seconds *= 2
    third = parts.registry.mint()
    assert set(parts.rows) == {name_prefix(third)}


def test_release_gives_everything_up_and_minting_goes_on(parts):
    first = parts.registry.mint()
    parts.registry.release()
    assert parts.rows == {}
    parts.registry.settle([first])
    assert name_prefix(parts.registry.mint()) in parts.rows
    assert name_prefix(first) not in parts.rows


def test_a_row_that_cannot_be_deleted_is_left_to_run_out(parts):
    parts.registry.mint()
    parts.plan.add(Fault(FaultKind.BEFORE, "transaction", times=1_000))
    parts.registry.release()
    assert len(parts.rows) == 1 and parts.plan.hits > 0
    parts.plan.clear()
    parts.manager.renew_lease("node")
    assert all(row.expires_ms == parts.clock() + LEASE_MS for row in parts.rows.values())
    parts.clock.advance(LEASE_MS)
    parts.manager.renew_lease("node")
    assert all(row.expires_ms == parts.clock() for row in parts.rows.values()), "it is not renewed"


@pytest.mark.parametrize("end", ["release_node", "close"])
def test_the_end_of_a_node_ends_its_uploads(parts, end):
    parts.registry.mint()
    parts.manager.release_node("node") if end == "release_node" else parts.manager.close()
    assert parts.rows == {}


def test_a_commit_is_as_before_with_registered_names(parts):
    session = parts.manager.claim_writer()
    info = Files().make(1, name=parts.registry.mint())
    version = parts.manager.commit_epoch(session, epoch_of(1), [info])
    parts.registry.settle([info.name])
    assert [found.name for found in version.sstables] == [info.name]


def test_what_is_still_read_when_it_is_given_up_keeps_its_row_until_nobody_reads_it(parts):
    read = set()
    parts.registry = UploadRegistry(parts.manager, "node", is_read=read.__contains__)
    first, second = parts.registry.mint(), parts.registry.mint()
    read.add(first)
    parts.registry.release()
    assert set(parts.rows) == {name_prefix(first)}
    third = parts.registry.mint()
    assert set(parts.rows) == {name_prefix(first), name_prefix(third)} and name_prefix(second) != name_prefix(third)
    read.clear()
    parts.registry.settle()
    assert set(parts.rows) == {name_prefix(third)}


def test_a_scan_reads_on_over_files_that_were_cleared_and_vacuum_takes_them_after_it():
    clock, meta_store = StandingClock(), MemoryMetaStore()
    objects = MemoryObjectStore(clock)
    manager = HummockManager(meta_store, objects, clock)
    vacuum = Vacuum(meta_store, objects, clock, options=VacuumOptions(grace_ms=0, tombstone_ms=0))
    rows = [(user_key(1, 0, b"%03d" % number), b"v" * 50) for number in range(100)]
    options = StorageOptions(block_bytes=200, block_cache_bytes=1)
    with HummockStorage(manager, objects, options, session=manager.claim_writer()) as store:
        store.ingest_batch(WriteBatch(rows), epoch_of(1))
        store.seal_epoch(epoch_of(1))
        store.sync(epoch_of(1))
        with store.scan(KeyRange.table(1), epoch_of(1)) as scan:
            found = list(scan.next_batch(3))
            store.clear_uncommitted()
            vacuum.run()
            while (batch := scan.next_batch(10)) is not None:
                found += batch
        assert found == rows
        del scan, batch
        store.commit(epoch_of(2))
        vacuum.run()
        assert [meta.path for meta in objects.list("sst/")] == []
