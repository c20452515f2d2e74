"""Vacuum removes exactly the files that nothing needs, under concurrent changes and interruptions."""

import pytest

from hummock.errors import MetaStoreCorrupt, MetaStoreEmptied, ObjectStoreRefused, SnapshotExpired, SstableRefused
from hummock.meta.records import LEASES, TASK, UPLOADS, VACUUMED, vacuumed_key
from hummock.meta.store.base import MetaOperations
from hummock.meta.store.memory import MemoryMetaStore
from hummock.meta.vacuum.obsolete_files import ObsoleteFiles, read_obsolete
from hummock.meta.vacuum.references import Need
from hummock.object_store.base import PROBE_PREFIX, sstable_data_path, sstable_meta_path
from tests.support.worlds.vacuum_world import FILE_BYTES, LEASE_MS, VacuumWorld, names

HOUR_MS = 3_600_000


@pytest.fixture
def world():
    return VacuumWorld()


def rows(world, prefix):
    return [key.removeprefix(prefix) for key, _ in world.meta_store.list(prefix)]


def found(report):
    return {need.value: footprint.files for need, footprint in report.found.items() if footprint.files}


class Renewing(MemoryMetaStore):
    """Wraps `store`; calls `renew` before the first transaction."""

    def __init__(self, store, renew):
        self.store, self.renew = store, renew
        self.get, self.list = store.get, store.list

    def transaction(self, operations):
        renew, self.renew = self.renew, lambda: None
        renew()
        self.store.transaction(operations)


# -- files that are kept -----------------------------------------------------------------------------------------


def test_a_store_without_garbage_stays_as_it_is(world):
    version = world.commit_new(3)
    report = world.vacuum().run()
    assert found(report) == {"live": 3} and report.removed.files == 0 and report.is_complete
    assert world.stored == names(version)


def test_an_upload_stays_while_its_row_is_in_force(world):
    info = world.upload()
    world.clock.advance(LEASE_MS - 1)
    assert found(world.vacuum().run()) == {"in flight": 1}
    world.manager.renew_lease("writer")
    world.clock.advance(LEASE_MS - 1)
    assert found(world.vacuum().run()) == {"in flight": 1}
    assert info.name in names(world.commit(info)) and info.name in world.stored


def test_files_of_a_compact_task_stay_while_its_row_does(world):
    world.commit_new(2)
    during = []
    assert world.replace(lambda: during.append(found(world.vacuum().run())))
    assert during == [{"live": 2, "in flight": 1}]
    assert names(world.manager.version) <= world.stored


def test_a_young_file_stays_even_without_registration(world):
    info = world.upload(name="ab" * 16)
    vacuum = world.vacuum(grace_ms=HOUR_MS)
    world.clock.advance(HOUR_MS - 1)
    assert found(vacuum.run()) == {"in flight": 1} and info.name in world.stored
    world.clock.advance(1)
    assert found(vacuum.run()) == {"orphaned": 1} and world.stored == set()


def test_what_a_check_of_executors_left_goes_when_it_is_old(world):
    """The process that wrote it died before deleting it."""
    world.objects.put(PROBE_PREFIX + "0" * 32, b"driver")
    vacuum = world.vacuum(grace_ms=HOUR_MS)
    world.clock.advance(HOUR_MS - 1)
    vacuum.run()
    assert world.paths == [PROBE_PREFIX + "0" * 32]
    world.clock.advance(1)
    vacuum.run(dry_run=True)
    assert world.paths
    vacuum.run()
    assert world.paths == []


def test_objects_that_are_no_part_of_a_file_are_left_alone(world):
    foreign = ["sst/readme.txt", "sst/" + "g" * 32 + ".data", "sst/deep/" + "0" * 32 + ".data", "other/x.data"]
    for path in foreign:
        world.objects.put(path, b"")
    report = world.vacuum().run()
    assert report.foreign_objects == 3 and world.paths == sorted(foreign)


def test_a_pinned_version_keeps_its_files_until_it_is_unpinned(world):
    old = world.commit_new(3)
    reader = world.process()
    assert names(reader.pin_version("reader")) == names(old)
    assert world.replace()
    report = world.vacuum().run()
    assert found(report) == {"live": 1, "pinned": 3} and names(old) <= world.stored
    reader.refresh()
    reader.pin_version("reader")
    reader.unpin_version_before("reader", world.manager.version.id)
    assert found(world.vacuum().run()) == {"live": 1, "pinned": 3}, "the lease is not renewed yet"
    reader.renew_lease("reader")
    assert found(world.vacuum().run()) == {"live": 1, "stale": 3}
    assert world.stored == names(world.manager.version) and read_obsolete(world.meta_store) == []


def test_the_oldest_pin_decides_which_steps_are_freed(world):
    readers = []
    for _ in range(4):
        world.commit_new()
        readers.append(world.process())
        readers[-1].pin_version(f"r{len(readers)}")
        world.replace()
    assert len(read_obsolete(world.meta_store)) == 4
    for left, reader in enumerate(readers):
        reader.close()
        world.vacuum().run()
        assert len(read_obsolete(world.meta_store)) == 3 - left
    assert world.stored == names(world.manager.version)


# -- files that are removed --------------------------------------------------------------------------------------


def test_an_upload_whose_row_ran_out_goes_and_its_commit_is_refused(world):
    info = world.upload()
    world.clock.advance(LEASE_MS)
    report = world.vacuum().run()
    assert found(report) == {"orphaned": 1} and report.removed.bytes == FILE_BYTES
    assert world.paths == [] and rows(world, UPLOADS) == [] and rows(world, VACUUMED) == [info.name]
    with pytest.raises(SstableRefused, match=info.name):
        world.commit(info)


def test_files_of_a_task_that_is_no_more_go(world):
    world.commit_new()
    assert not world.replace(lambda: world.meta_store.transaction(
        MetaOperations(delete=tuple(TASK + task for task in rows(world, TASK)))))
    assert found(world.vacuum().run()) == {"live": 1, "orphaned": 1}
    assert world.stored == names(world.manager.version)


@pytest.mark.parametrize("path_of", [sstable_data_path, sstable_meta_path])
def test_half_a_file_goes_too(world, path_of):
    world.objects.put(path_of("cd" * 16), b"x")
    assert found(world.vacuum().run()) == {"orphaned": 1} and world.paths == []


def test_a_lease_that_ran_out_protects_nothing_and_its_holder_gets_an_error(world):
    world.commit_new(2)
    reader = world.process()
    reader.pin_version("reader")
    world.replace()
    world.clock.advance(LEASE_MS)
    assert found(world.vacuum().run()) == {"live": 1, "stale": 2}
    assert rows(world, LEASES) == []
    with pytest.raises(SnapshotExpired):
        reader.renew_lease("reader")


def test_a_lease_that_ran_out_but_holds_nothing_back_is_left_to_its_owner(world):
    world.commit_new()
    reader = world.process()
    reader.pin_version("reader")
    world.clock.advance(LEASE_MS)
    world.vacuum().run()
    reader.renew_lease("reader")


def test_a_holder_that_renews_meanwhile_keeps_its_files(world):
    old = world.commit_new(2)
    reader = world.process()
    reader.pin_version("reader")
    world.replace()
    world.clock.advance(LEASE_MS)

    report = world.vacuum(meta_store=Renewing(world.meta_store, lambda: reader.renew_lease("reader"))).run()
    assert found(report) == {"live": 1, "pinned": 2} and names(old) <= world.stored


def test_an_uploader_that_renews_meanwhile_keeps_its_files(world):
    info = world.upload()
    world.clock.advance(LEASE_MS)
    report = world.vacuum(meta_store=Renewing(world.meta_store, world.registry.renew)).run()
    assert found(report) == {"in flight": 1} and info.name in world.stored


# -- races -------------------------------------------------------------------------------------------------------


class Interrupted(MemoryMetaStore):
    """Wraps `store`; runs `action` once, before call number `at`."""

    def __init__(self, store, at, action):
        self.store, self.at, self.action, self.calls = store, at, action, 0

    def count(self):
        self.calls += 1
        if self.calls == self.at:
            self.action()

    def get(self, key):
        self.count()
        return self.store.get(key)

    def list(self, prefix):
        self.count()
        return self.store.list(prefix)

    def transaction(self, operations):
        self.count()
        self.store.transaction(operations)


def calls_of_a_run():
    world = VacuumWorld()
    world.upload(name="ab" * 16)
    meta_store = Interrupted(world.meta_store, 0, None)
    world.vacuum(meta_store=meta_store).run()
    return meta_store.calls


@pytest.mark.parametrize("at", range(1, calls_of_a_run() + 3))
@pytest.mark.parametrize("kind", ["commit", "replace", "both"])
def test_what_happens_between_any_two_steps_loses_nothing(at, kind):
    world = VacuumWorld()
    world.commit_new(2)
    world.upload(name="ab" * 16)
    staged = [world.upload(b"q"), world.upload(b"r")]
    reader = world.process()
    pinned = reader.pin_version("reader")

    def happen():
        if kind != "commit":
            world.replace()
        if kind != "replace":
            world.commit(*staged)
            world.begin_prefix()

    report = world.vacuum(meta_store=Interrupted(world.meta_store, at, happen)).run()
    assert names(world.manager.version) | names(pinned) <= world.stored, report
    assert {info.name for info in staged} <= world.stored
    assert "ab" * 16 not in world.stored


@pytest.mark.parametrize("at", range(1, calls_of_a_run() + 3))
def test_a_commit_between_any_two_steps_is_kept_or_refused(at):
    """An unregistered file without a grace period is never both in a version and deleted."""
    world = VacuumWorld()
    world.commit_new()
    info = world.upload(name="ab" * 16)
    outcome = []

    def commit():
        try:
            outcome.append(info.name in names(world.commit(info)))
        except SstableRefused:
            outcome.append(False)

    world.vacuum(meta_store=Interrupted(world.meta_store, at, commit)).run()
    if not outcome:
        commit()
    assert outcome == [info.name in world.stored]
    assert names(world.process().version) <= world.stored


@pytest.mark.parametrize("at", range(1, calls_of_a_run() + 3))
def test_a_clock_that_is_set_back_between_any_two_steps_ends_no_lease(at):
    world = VacuumWorld()
    old = world.commit_new(2)
    reader = world.process()
    reader.pin_version("reader")
    world.replace()
    staged = world.upload()

    def happen():
        world.clock.advance(-HOUR_MS)
        reader.renew_lease("reader")
        world.registry.renew()

    report = world.vacuum(meta_store=Interrupted(world.meta_store, at, happen)).run()
    assert {staged.name} | names(old) <= world.stored, report
    reader.renew_lease("reader")


def test_a_page_that_commits_overtake_at_every_try_is_left_to_the_next_run(world):
    class Hot(MemoryMetaStore):
        """Wraps `store`; commits before each transaction of vacuum."""

        def __init__(self, store):
            self.get, self.list, self.store = store.get, store.list, store

        def transaction(self, operations):
            world.commit()
            self.store.transaction(operations)

    world.upload(name="ab" * 16)
    report = world.vacuum(meta_store=Hot(world.meta_store)).run()
    assert report.pages_left == 1 and not report.is_complete and report.removed.files == 0
    report = world.vacuum().run()
    assert report.is_complete and report.removed.files == 1


def test_vacuums_of_two_processes_agree(world):
    world.commit_new()
    for number in range(20):
        world.upload(name=f"{number:032x}")
    first = world.vacuum()
    second = world.vacuum(meta_store=Interrupted(world.meta_store, 6, lambda: first.run()))
    second.run()
    assert world.stored == names(world.manager.version) and len(rows(world, VACUUMED)) == 20


# -- tombstones --------------------------------------------------------------------------------------------------


def test_a_name_is_forgotten_when_nobody_can_commit_it_and_its_object_is_gone(world):
    info = world.upload(name="ab" * 16)
    vacuum = world.vacuum(tombstone_ms=1_000)
    vacuum.run()
    world.objects.put(sstable_meta_path(info.name), b"late")
    world.clock.advance(1_000)
    vacuum.run()
    assert rows(world, VACUUMED) == [info.name], "the same writer may still commit it"
    world.objects.put(sstable_meta_path(info.name), b"late again")
    world.manager.claim_writer()
    vacuum.run()
    assert rows(world, VACUUMED) == [info.name] and world.paths == [], "the object had been stored again"
    vacuum.run()
    assert rows(world, VACUUMED) == []


def test_a_name_is_remembered_for_its_time(world):
    world.upload(name="ab" * 16)
    vacuum = world.vacuum(tombstone_ms=1_000)
    vacuum.run()
    world.manager.claim_writer()
    world.clock.advance(999)
    vacuum.run()
    assert len(rows(world, VACUUMED)) == 1


def test_names_are_forgotten_in_whichever_page_they_would_be(world):
    for number in range(30):
        world.upload(name=f"{number:032x}")
    vacuum = world.vacuum(page_files=3)
    vacuum.run()
    world.manager.claim_writer()
    world.session = world.manager.claim_writer()
    world.commit(*(world.upload(b"%02d" % n, b"%02d" % n, name=f"{n:032x}".replace("0", "f")) for n in range(1, 9)))
    vacuum.run()
    assert rows(world, VACUUMED) == []


# -- bounds, dry runs, refusals ----------------------------------------------------------------------------------


def test_a_dry_run_changes_nothing_and_says_what_would_go(world):
    world.commit_new(2)
    reader = world.process()
    reader.pin_version("reader")
    world.replace()
    world.upload(name="ab" * 16)
    world.clock.advance(LEASE_MS)
    before = world.meta_store.list(""), world.paths
    report = world.vacuum().run(dry_run=True)
    assert (world.meta_store.list(""), world.paths) == before
    assert found(report) == {"live": 1, "stale": 2, "orphaned": 1}
    assert report.removed.files == 3 and "would be removed" in repr(report)
    assert found(world.vacuum().run()) == found(report)


def test_a_run_that_was_limited_is_taken_up_by_the_next(world):
    for number in range(20):
        world.upload(name=f"{number:032x}")
    vacuum = world.vacuum(page_files=3, objects_per_run=10)
    runs = [vacuum.run() for _ in range(3)]
    assert not any(report.is_complete for report in runs)
    assert world.paths != [] and vacuum.is_under_way
    while vacuum.is_under_way:
        vacuum.run()
    assert world.paths == []
    assert vacuum.run().is_complete


def test_a_watcher_ends_a_run_after_a_page(world):
    for number in range(20):
        world.upload(name=f"{number:032x}")
    seen = []
    vacuum = world.vacuum(page_files=5)
    report = vacuum.run(watch=lambda report: seen.append(report.removed.files) or len(seen) < 2)
    assert seen == [5, 10] and report.removed.files == 10 and not report.is_complete


def test_a_lost_meta_store_is_no_reason_to_remove_everything(world):
    world.commit_new()
    with pytest.raises(MetaStoreEmptied):
        world.vacuum(meta_store=MemoryMetaStore())
    assert len(world.stored) == 1


def test_an_empty_store_is_clean():
    world = VacuumWorld()
    world.meta_store = MemoryMetaStore()
    report = world.vacuum().run()
    assert report.is_complete and found(report) == {} and "nothing stored" in repr(report)


def test_an_obsolete_list_that_names_a_live_file_is_damage(world):
    (name,) = names(world.commit_new())
    row = ObsoleteFiles(1, ((name, 1),))
    world.meta_store.transaction(MetaOperations(put={row.key: row.encode()}))
    with pytest.raises(MetaStoreCorrupt, match=name):
        world.vacuum().run()
    assert name in world.stored


@pytest.mark.parametrize("row", [b"", b"{", b"[]", b'{"token":7}', b"\xff", b"null"])
def test_a_damaged_task_row_stops_it(world, row):
    world.upload(name="ab" * 16)
    world.meta_store.transaction(MetaOperations(put={TASK + "1": row}))
    with pytest.raises(MetaStoreCorrupt, match="task"):
        world.vacuum().run()
    assert world.stored == {"ab" * 16}


@pytest.mark.parametrize("row", [b"", b"{}", b'{"format":1}', b"[1]"])
@pytest.mark.parametrize("key", [UPLOADS + "0" * 16, LEASES + "n", vacuumed_key("0" * 32)])
def test_a_damaged_row_of_any_kind_stops_it(world, key, row):
    world.upload(name="ab" * 16)
    world.meta_store.transaction(MetaOperations(put={key: row}))
    with pytest.raises(MetaStoreCorrupt):
        world.vacuum().run()
    assert world.stored == {"ab" * 16}


def test_a_report_speaks_of_bytes_by_need(world):
    world.commit_new(2)
    world.upload(name="ab" * 16)
    report = world.vacuum().run()
    assert list(report.rows())[:2] == [("live", 2, 2 * FILE_BYTES), ("pinned", 0, 0)]
    assert report.to_json()["found"]["in_flight"] == {"files": 0, "bytes": 0}
    assert "live: 2 files, 200 bytes" in repr(report) and report.found[Need.ORPHANED].bytes == FILE_BYTES


def test_a_listing_run_gives_up_what_dead_writers_left_in_the_object_store_and_a_dry_one_does_not(world, monkeypatch):
    asked = []
    monkeypatch.setattr(world.objects, "remove_leftovers", asked.append)
    world.vacuum().remove_obsolete()
    world.vacuum().run(dry_run=True)
    assert asked == []
    world.vacuum().run()
    assert asked == [world.clock()]


def test_a_listing_run_is_whole_although_the_object_store_refuses_to_show_leftovers(world, monkeypatch):
    def refuse(now_ms):
        raise ObjectStoreRefused("", "no right to list uploads")

    monkeypatch.setattr(world.objects, "remove_leftovers", refuse)
    assert world.vacuum().run().is_complete
