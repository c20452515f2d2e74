"""Backup and restore: between stores of any kind, under load, repeated, interrupted at each step, of damaged stores."""

import json
import threading
from contextlib import closing, suppress
from hashlib import blake2b

import pytest

from hummock.backup.format import FINISHED, INFO, RESTORING, UNFINISHED, find_backup, read_backup, unfinished
from hummock.backup.restore import read_restoring, restore_backup
from hummock.backup.take import take_backup
from hummock.epoch import Epoch
from hummock.errors import (
    BackupNotFound,
    BackupRefused,
    Corruption,
    FormatTooNew,
    HummockError,
    MetaStoreCorrupt,
    ObjectNotFound,
    StoreExists,
    WaitEpochTimeout,
)
from hummock.meta import MemoryMetaStore, ObjectLogMetaStore, SqliteMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.leases import HELD
from hummock.meta.records import HEAD, LEASES, UPLOADS, WRITER, Lease, decode, lease_key
from hummock.meta.store.base import MetaOperations
from hummock.object_store.base import SSTABLE_PREFIX, sstable_data_path, sstable_meta_path
from hummock.object_store.local import LocalObjectStore
from hummock.object_store.memory import MemoryObjectStore
from hummock.tools.verify import verify_rows, verify_version
from tests.support.drivers.seeds import run_seed
from tests.support.servers.meta_store_faults import FaultyMetaStore
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan, FaultyObjectStore
from tests.support.worlds.backup_world import BackupWorld, content_of


@pytest.fixture
def world():
    world = BackupWorld(MemoryMetaStore(), MemoryObjectStore(), seed=run_seed())
    for _ in range(6):
        world.commit()
    yield world
    world.close()


def restored(target, epoch=None):
    """A new store in memory from the backup."""
    meta_store, objects = MemoryMetaStore(), MemoryObjectStore()
    report = restore_backup(find_backup(target, epoch), target, meta_store, objects)
    return meta_store, objects, report


def open_parts(kind, directory):
    """A meta store of a kind, and the objects beside it."""
    if kind == "memory":
        return MemoryMetaStore(), MemoryObjectStore()
    objects = LocalObjectStore(directory)
    return (SqliteMetaStore(directory / "meta.sqlite") if kind == "sqlite" else ObjectLogMetaStore(objects)), objects


# -- what a restored store is ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sqlite", "log", "memory"])
@pytest.mark.parametrize("other", ["log", "sqlite"])
def test_a_store_of_any_kind_becomes_one_of_another_kind(tmp_path, kind, other):
    meta_store, objects = open_parts(kind, tmp_path / "store")
    world = BackupWorld(meta_store, objects, seed=run_seed(), inline_bytes=2_000)
    epochs = [world.commit() for _ in range(5)]
    while not world.manager.version.inline_bytes or not any(world.manager.version.stored_files):
        epochs.append(world.commit())
    target = LocalObjectStore(tmp_path / "backups")
    report = take_backup(meta_store, objects, target)
    world.close()
    assert report.info.epoch == epochs[-1] and report.copied.files == report.info.files
    meta_copy, objects_copy = open_parts(other, tmp_path / "copy")
    assert restore_backup(find_backup(target), target, meta_copy, objects_copy).info == report.info
    assert content_of(meta_copy, objects_copy) == (epochs[-1], world.content[epochs[-1]])
    again = BackupWorld(meta_copy, objects_copy, seed=1)
    again.rows = dict(world.rows)
    epoch = again.commit()
    assert epoch > epochs[-1] and content_of(meta_copy, objects_copy) == (epoch, again.content[epoch])
    again.close()
    for store in (meta_store, objects, meta_copy, objects_copy, target):
        store.close()


def test_a_restored_store_has_nothing_of_the_processes_that_ran(world):
    world.manager.pin_snapshot("reader")
    world.manager.register_upload("loader", "ab" * 8)
    world.manager.hold_epoch("cursor-one", world.storage.committed_epoch, 60_000)
    rows = {"catalog/version": b"7", "inbox/request/1": b"{}", "inbox/writer/1/a": b"{}"}
    world.meta_store.transaction(MetaOperations(put=rows))
    target = MemoryObjectStore()
    take_backup(world.meta_store, world.objects, target, leave_out=("inbox/request/",))
    assert len(world.meta_store.list(LEASES)) == 3, "the lease of the backup has ended, those of others have not"
    meta_store, objects, _ = restored(target)
    leases = [decode(Lease, key, row) for key, row in meta_store.list(LEASES)]
    assert [(lease.node, lease.holder) for lease in leases] == [("cursor-one", HELD)]
    assert 0 < leases[0].expires_ms - meta_store.now_ms() <= 60_000
    assert not meta_store.list(UPLOADS) and not meta_store.list("hummock/stale/")
    assert [key for key, _ in meta_store.list("inbox/")] == ["inbox/writer/1/a"]
    assert meta_store.get("catalog/version") == b"7" and meta_store.get(INFO) is None
    assert [found.path for found in objects.list() if not found.path.startswith(SSTABLE_PREFIX)] == []
    assert not [found for found in verify_rows(meta_store) if found.damages]
    old, new = (json.loads(store.get(WRITER)) for store in (world.meta_store, meta_store))
    assert new["generation"] == old["generation"] + 1 and new["token"] != old["token"]


def test_the_lease_of_a_cursor_lasts_as_long_as_it_did(world):
    world.manager.hold_epoch("cursor-old", world.storage.committed_epoch, 1)
    world.manager.hold_epoch("cursor-new", world.storage.committed_epoch, 1 << 40)
    while decode(Lease, "", world.meta_store.get(lease_key("cursor-old"))).expires_ms > world.meta_store.now_ms():
        pass
    target = MemoryObjectStore()
    take_backup(world.meta_store, world.objects, target)
    meta_store, _, _ = restored(target)
    left = [decode(Lease, key, row) for key, row in meta_store.list(LEASES)]
    assert [lease.node for lease in left] == ["cursor-new"]
    assert left[0].expires_ms > meta_store.now_ms() + (1 << 39)


def test_old_epochs_stay_readable_that_the_store_could_read(world):
    target = MemoryObjectStore()
    take_backup(world.meta_store, world.objects, target)
    meta_store, objects, _ = restored(target)
    with closing(HummockManager(meta_store, objects)) as manager:
        assert manager.version.safe_epoch == world.manager.version.safe_epoch
        assert manager.version.levels == world.manager.version.levels
        assert not [found for found in verify_version(manager.version, objects) if found.damages]


# -- repeated, and under load ------------------------------------------------------------------------------------


def test_a_repeated_backup_copies_new_files_only_and_each_can_be_restored(world):
    target = MemoryObjectStore()
    taken = [take_backup(world.meta_store, world.objects, target)]
    again = take_backup(world.meta_store, world.objects, target)
    assert (again.copied.files, again.copied.bytes, again.info.path) == (0, 0, taken[0].info.path)
    for _ in range(3):
        world.commit()
        taken.append(take_backup(world.meta_store, world.objects, target))
        assert taken[-1].copied.files == 1 and taken[-1].copied.present_files == taken[-2].info.files
    for report in taken:
        meta_store, objects, _ = restored(target, epoch=report.info.epoch)
        assert content_of(meta_store, objects) == (report.info.epoch, world.content[report.info.epoch])
    assert restored(target)[2].info == taken[-1].info
    with pytest.raises(BackupNotFound, match=str(taken[0].info.epoch)):
        restored(target, epoch=12345)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "log"])
def test_a_backup_under_load_is_the_epoch_that_it_names(tmp_path, kind):
    meta_store, objects = open_parts(kind, tmp_path / "store")
    world = BackupWorld(meta_store, objects, seed=run_seed(), maintained=True, inline_bytes=2_000)
    target, is_over = MemoryObjectStore(), threading.Event()
    failures, reports = [], []

    def write():
        try:
            while not is_over.is_set():
                world.commit()
        except BaseException as error:
            failures.append(error)

    world.commit()
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(6):
            reports.append(take_backup(meta_store, objects, target, threads=2))
    finally:
        is_over.set()
        writer.join()
    assert not failures
    assert world.manager.left_at > 1, "compaction removed files meanwhile"
    for report in reports:
        meta_copy, objects_copy, _ = restored(target, epoch=report.info.epoch)
        assert content_of(meta_copy, objects_copy) == (report.info.epoch, world.content[report.info.epoch])
    assert len({report.info.epoch for report in reports}) > 1
    world.close()
    meta_store.close()


def test_a_backup_waits_for_the_epoch_that_has_to_be_in_it(world):
    target = MemoryObjectStore()
    with pytest.raises(WaitEpochTimeout):
        take_backup(world.meta_store, world.objects, target, epoch=world.storage.committed_epoch + (1 << 16), wait_ms=1)
    assert list(target.list()) == []
    timer = threading.Timer(0.05, world.commit)
    timer.start()
    wanted = Epoch(world.storage.committed_epoch + (1 << 16))
    report = take_backup(world.meta_store, world.objects, target, epoch=wanted)
    timer.join()
    assert report.info.epoch == world.storage.committed_epoch >= wanted


# -- interrupted at each step ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [FaultKind.BEFORE, FaultKind.AFTER, FaultKind.TORN])
def test_a_backup_that_is_interrupted_at_any_step_is_absent_unfinished_or_right(world, kind):
    epoch = world.storage.committed_epoch
    for step in range(1_000):
        plan, inner = FaultPlan([Fault(kind, skip=step)]), MemoryObjectStore()
        with suppress(HummockError):
            take_backup(world.meta_store, world.objects, FaultyObjectStore(inner, plan), threads=1)
        if not plan.hits:
            break
        finished = [found.path for found in inner.list(FINISHED)]
        files = [found.path for found in inner.list(SSTABLE_PREFIX)]
        assert finished or list(inner.list(UNFINISHED)) or not files
        try:
            meta_store, objects, _ = restored(inner)
        except (BackupNotFound, MetaStoreCorrupt) as error:
            assert isinstance(error, BackupNotFound) or error.object_name == finished[-1]
        else:
            assert content_of(meta_store, objects) == (epoch, world.content[epoch])
        take_backup(world.meta_store, world.objects, inner)
        meta_store, objects, _ = restored(inner)
        assert content_of(meta_store, objects) == (epoch, world.content[epoch])
        assert not list(inner.list(UNFINISHED))
    assert step > 10


def test_a_backup_of_a_store_that_fails_leaves_no_lease_and_no_backup(world):
    leases = [key for key, _ in world.meta_store.list(LEASES)]
    for step in range(1_000):
        plan, target = FaultPlan([Fault(FaultKind.BEFORE, skip=step)]), MemoryObjectStore()
        source = FaultyObjectStore(world.objects, plan)
        try:
            take_backup(world.meta_store, source, target, threads=1)
        except HummockError as error:
            assert "injected" in str(error) and not list(target.list(FINISHED))
        assert [key for key, _ in world.meta_store.list(LEASES)] == leases
        if not plan.hits:
            break
    assert step > 10


@pytest.mark.parametrize("kind", [FaultKind.BEFORE, FaultKind.AFTER, FaultKind.TORN])
def test_a_restore_that_is_interrupted_at_any_step_is_no_store_or_right_and_can_be_repeated(world, kind):
    target, epoch = MemoryObjectStore(), world.storage.committed_epoch
    take_backup(world.meta_store, world.objects, target)
    for step in range(1_000):
        plan = FaultPlan([Fault(kind, skip=step)])
        inner_meta, inner = MemoryMetaStore(), MemoryObjectStore()
        with suppress(HummockError):
            restore_backup(find_backup(target), target, FaultyMetaStore(inner_meta, plan),
                           FaultyObjectStore(inner, plan), threads=1)
        if not plan.hits:
            break
        if inner_meta.get(HEAD) is None:
            assert not inner_meta.list("")
            assert list(inner.list(RESTORING)) or not list(inner.list(SSTABLE_PREFIX))
        else:
            assert content_of(inner_meta, inner) == (epoch, world.content[epoch])
        with suppress(StoreExists):
            restore_backup(find_backup(target), target, inner_meta, inner)
        assert content_of(inner_meta, inner) == (epoch, world.content[epoch])
        assert read_restoring(inner) is None
    assert step > 10


# -- refusals ----------------------------------------------------------------------------------------------------


def test_a_restore_overwrites_nothing(world):
    target = MemoryObjectStore()
    take_backup(world.meta_store, world.objects, target)
    with pytest.raises(StoreExists):
        restore_backup(find_backup(target), target, world.meta_store, world.objects)
    with pytest.raises(BackupRefused, match="holds files"):
        restore_backup(find_backup(target), target, MemoryMetaStore(), target)
    begun = MemoryObjectStore()
    other = find_backup(target).info.to_bytes().replace(b'"version": ', b'"version": 1')
    begun.put(RESTORING, other)
    with pytest.raises(BackupRefused, match="another backup"):
        restore_backup(find_backup(target), target, MemoryMetaStore(), begun)
    assert begun.get(RESTORING) == other and [found.path for found in begun.list()] == [RESTORING]


def test_a_store_that_another_process_makes_meanwhile_is_left_alone(world):
    target = MemoryObjectStore()
    take_backup(world.meta_store, world.objects, target)
    meta_store, objects = MemoryMetaStore(), MemoryObjectStore()

    def intrude(*_):
        if meta_store.get(HEAD) is None:
            HummockManager(meta_store, MemoryObjectStore()).claim_writer("intruder")

    with pytest.raises(StoreExists, match="meanwhile"):
        restore_backup(find_backup(target), target, meta_store, objects, progress=intrude)
    assert json.loads(meta_store.get(WRITER))["node"] == "intruder"


def test_a_target_that_holds_something_else_is_refused(world, tmp_path):
    store = LocalObjectStore(tmp_path / "store")
    meta_store = SqliteMetaStore(tmp_path / "store" / "meta.sqlite")
    other = BackupWorld(meta_store, store)
    other.commit()
    target = MemoryObjectStore()
    take_backup(world.meta_store, world.objects, target)
    before = {found.path for found in target.list()}
    with pytest.raises(BackupRefused, match="another store"):
        take_backup(meta_store, store, target)
    with pytest.raises(BackupRefused, match="the store itself"):
        take_backup(meta_store, store, store)
    with pytest.raises(BackupRefused, match="holds a store"):
        take_backup(world.meta_store, world.objects, store)
    strange = MemoryObjectStore()
    strange.put(sstable_data_path("ab" * 16), b"x")
    with pytest.raises(BackupRefused, match="no backup"):
        take_backup(world.meta_store, world.objects, strange)
    assert {found.path for found in target.list()} == before
    other.close()
    meta_store.close()


def test_what_is_damaged_or_missing_is_named(world):
    target = MemoryObjectStore()
    info = next(iter(world.manager.version.sstables))
    for path in (sstable_data_path(info.name), sstable_meta_path(info.name)):
        whole = world.objects.get(path)
        for damaged in (whole[:-1], whole[:20] + bytes([whole[20] ^ 1]) + whole[21:]):
            world.objects.put(path, damaged)
            with pytest.raises(Corruption) as found:
                take_backup(world.meta_store, world.objects, target)
            assert found.value.object_name == path
        world.objects.delete([path])
        with pytest.raises(ObjectNotFound) as missing:
            take_backup(world.meta_store, world.objects, target)
        assert missing.value.path == path
        world.objects.put(path, whole)
    assert not list(target.list(FINISHED)) and list(unfinished(target))
    report = take_backup(world.meta_store, world.objects, target)
    assert not list(unfinished(target))
    target.delete([sstable_data_path(info.name)])
    with pytest.raises(ObjectNotFound, match=info.name):
        restored(target)
    data = bytearray(target.get(report.info.path))
    data[len(data) // 2] ^= 1
    target.put(report.info.path, bytes(data))
    with pytest.raises(MetaStoreCorrupt, match=report.info.path):
        restored(target)


def test_rows_that_cannot_be_read_are_not_backed_up(world):
    target = MemoryObjectStore()
    for row, error in ((b"{}", MetaStoreCorrupt), (b'{"format":9}', FormatTooNew)):
        world.meta_store.transaction(MetaOperations(put={lease_key("odd"): row}))
        with pytest.raises(error, match="odd"):
            take_backup(world.meta_store, world.objects, target)
    assert list(target.list()) == []


def test_a_backup_of_a_newer_release_says_so(world):
    target = MemoryObjectStore()
    path = take_backup(world.meta_store, world.objects, target).info.path
    data = target.get(path)
    body = data[:-16].replace(b"HMKBAK01", b"HMKBAK02", 1)
    target.put(path, body + blake2b(body, digest_size=16).digest())
    with pytest.raises(FormatTooNew, match="newer release"):
        read_backup(target, path)
