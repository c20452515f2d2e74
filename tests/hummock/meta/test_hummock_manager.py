"""Commits: one transaction each, ascending, fenced, idempotent, and visible to later readers of the log."""

import os
import pickle
import socket
import threading
from dataclasses import replace

import pytest

from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import PrefixRule, TableRules
from hummock.errors import (
    Fenced,
    InvalidEpoch,
    InvalidOption,
    MetaStoreCorrupt,
    MetaStoreEmptied,
    MetaStoreError,
    OutcomeUnknown,
    PreconditionFailed,
    SstableRefused,
)
from hummock.loaded_files import LoadedFiles
from hummock.meta.records import CHECKPOINT, COMMITS, DELTAS, HEAD, WRITER_PROCESS, vacuumed_key
from hummock.meta.store.base import MetaOperations
from hummock.meta.store.memory import MemoryMetaStore
from hummock.meta.store.sqlite import SqliteMetaStore
from hummock.meta_client import WriterSession
from hummock.object_store.memory import MemoryObjectStore
from tests.support.servers.meta_store_faults import FaultyMetaStore
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan
from tests.support.worlds.manager_parts import Files, advance_safe_epoch, epoch_of, names_of, open_manager


@pytest.fixture(params=["memory", "sqlite"])
def meta_store(request, tmp_path):
    store = MemoryMetaStore() if request.param == "memory" else SqliteMetaStore(tmp_path / "meta.sqlite")
    yield store
    store.close()


@pytest.fixture
def files():
    return Files()


@pytest.fixture
def manager(meta_store):
    return open_manager(meta_store)


@pytest.fixture
def writer(manager):
    return manager.claim_writer()


class TestCommit:
    def test_a_commit_makes_a_version_with_its_files_and_epoch(self, manager, writer, files):
        assert manager.version.id == 0 and manager.committed_epoch == 0
        one, two = files.make(1, b"a", b"c"), files.make(1, b"d", b"f")
        version = manager.commit_epoch(writer, epoch_of(1), [one, two])
        assert version is manager.version
        assert (version.id, version.max_committed_epoch) == (1, epoch_of(1))
        assert names_of(version) == sorted([one.name, two.name])
        assert sorted(info.id for info in version.sstables) == [1, 2]

    def test_later_commits_are_above_and_numbers_never_repeat(self, manager, writer, files):
        for number in range(1, 6):
            manager.commit_epoch(writer, epoch_of(number), [files.make(number), files.make(number)])
        runs = manager.version.levels[0].runs
        assert [info.id for run in runs for info in run.sstables] == list(range(10, 0, -1))
        assert [run.sstables[0].max_epoch for run in runs[::2]] == [epoch_of(n) for n in (5, 4, 3, 2, 1)]

    def test_an_epoch_without_files_is_committed(self, manager, writer):
        assert manager.commit_epoch(writer, epoch_of(3), []).max_committed_epoch == epoch_of(3)

    @pytest.mark.parametrize("epoch", [0, 1, epoch_of(2) | 1, -1, "1", None])
    def test_only_pure_epochs_are_committed(self, manager, writer, epoch):
        with pytest.raises(InvalidEpoch):
            manager.commit_epoch(writer, epoch, [])
        assert manager.version.id == 0

    def test_epochs_ascend_strictly(self, manager, writer, files):
        manager.commit_epoch(writer, epoch_of(5), [])
        for number in (5, 4, 1):
            with pytest.raises(InvalidEpoch):
                manager.commit_epoch(writer, epoch_of(number), [files.make(number)])
        assert manager.version.id == 1

    @pytest.mark.parametrize("fields", [
        {"name": "short"}, {"name": "G" * 32}, {"rows": 0}, {"data_bytes": 0},
        {"smallest": b"z", "largest": b"a"}, {"max_epoch": epoch_of(4)}, {"min_epoch": epoch_of(1)},
        {"min_epoch": epoch_of(3) | 5, "max_epoch": epoch_of(3) | 4}, {"global_epoch": epoch_of(3)},
    ])
    def test_a_file_that_does_not_fit_the_epoch_is_refused(self, manager, writer, files, fields):
        manager.commit_epoch(writer, epoch_of(1), [])
        with pytest.raises(SstableRefused):
            manager.commit_epoch(writer, epoch_of(3), [files.make(3, **fields)])
        assert manager.committed_epoch == epoch_of(1)

    def test_spill_offsets_and_several_epochs_fit_into_one_commit(self, manager, writer, files):
        manager.commit_epoch(writer, epoch_of(1), [])
        info = files.make(3, min_epoch=epoch_of(2), max_epoch=epoch_of(3) | 0xFFFF)
        loaded = LoadedFiles("load", (files.make(3, min_epoch=0, max_epoch=0),))
        assert len(names_of(manager.commit_epoch(writer, epoch_of(3), [info], loads=[loaded]))) == 2

    def test_a_name_enters_once(self, manager, writer, files):
        info = files.make(1)
        with pytest.raises(SstableRefused, match="once"):
            manager.commit_epoch(writer, epoch_of(1), [info, info])
        manager.commit_epoch(writer, epoch_of(1), [info])
        again = files.make(2, name=info.name)
        with pytest.raises(SstableRefused, match="once"):
            manager.commit_epoch(writer, epoch_of(2), [again])

    def test_a_file_that_vacuum_removes_is_refused(self, manager, writer, files, meta_store):
        info = files.make(1)
        meta_store.transaction(MetaOperations(put={vacuumed_key(info.name): b"{}"}))
        with pytest.raises(SstableRefused, match="vacuum") as caught:
            manager.commit_epoch(writer, epoch_of(1), [info])
        assert caught.value.name == info.name
        assert manager.refresh().id == 0

    def test_rules_and_dropped_tables_travel_with_a_commit(self, manager, writer):
        seven = TableRules(PrefixRule(9))
        manager.commit_epoch(writer, epoch_of(1), [], tables={7: seven, 8: TableRules(ttl_ms=5)})
        version = manager.commit_epoch(writer, epoch_of(2), [], tables={8: None}, dropped_tables=[8])
        assert (version.tables, version.dropped_tables) == ({7: seven}, {8})

    def test_a_key_watermark_holds_from_its_own_commit_on(self, manager, writer):
        first = KeyWatermark.of(epoch_of(2), {0: b"c", 1: b"d"})
        manager.commit_epoch(writer, epoch_of(2), [], tables={7: TableRules(ttl_ms=5, watermarks=(first,))})
        again = TableRules(ttl_ms=6, watermarks=(KeyWatermark.of(epoch_of(3), {0: b"e", 1: b"a"}), first))
        version = manager.commit_epoch(writer, epoch_of(3), [], tables={7: again})
        newest = KeyWatermark.of(epoch_of(3), {0: b"e", 1: b"d"})
        assert version.tables[7] == TableRules(ttl_ms=6, watermarks=(newest, first))
        for number in (1, 3, 5):
            with pytest.raises(InvalidEpoch, match="watermark"):
                manager.commit_epoch(writer, epoch_of(4), [], tables={
                    7: TableRules(watermarks=(KeyWatermark(epoch_of(number), ((0, 0, b"z"),)),))})
        advance_safe_epoch(manager, epoch_of(3))
        assert manager.version.tables[7].watermarks == (newest,)

    def test_a_commit_moves_watermarks_and_keeps_the_other_rules(self, manager, writer):
        rules = TableRules(PrefixRule(9), 5)
        manager.commit_epoch(writer, epoch_of(1), [], tables={7: rules})
        first = KeyWatermark(epoch_of(2), ((0, 255, b"c"),))
        version = manager.commit_epoch(writer, epoch_of(2), [], watermarks={7: first, 8: first})
        assert version.tables == {7: replace(rules, watermarks=(first,)), 8: TableRules(watermarks=(first,))}
        second = KeyWatermark(epoch_of(3), ((0, 3, b"d"),))
        moved = KeyWatermark(epoch_of(3), ((0, 3, b"d"), (4, 255, b"c")))
        again = replace(first, epoch=second.epoch)
        version = manager.commit_epoch(writer, epoch_of(3), [], watermarks={7: second, 8: again})
        assert version.tables == {7: replace(rules, watermarks=(moved, first)), 8: TableRules(watermarks=(first,))}
        both = {7: TableRules(ttl_ms=6, watermarks=(KeyWatermark(epoch_of(4), ((9, 9, b"e"),)),))}
        version = manager.commit_epoch(writer, epoch_of(4), [], tables=both,
                                       watermarks={7: KeyWatermark(epoch_of(4), ((0, 0, b"f"),))})
        assert version.tables[7].ttl_ms == 6 and version.tables[7].prefix is None
        assert [version.tables[7].watermarks[0].key_of(vnode) for vnode in (0, 1, 9, 10)] == [b"f", b"d", b"e", b"c"]
        with pytest.raises(InvalidEpoch, match="watermark of table 7"):
            manager.commit_epoch(writer, epoch_of(5), [], watermarks={7: KeyWatermark(epoch_of(4), ((0, 0, b"z"),))})
        with pytest.raises(InvalidOption, match="table id"):
            manager.commit_epoch(writer, epoch_of(5), [], watermarks={-1: KeyWatermark(epoch_of(5), ())})

    def test_rules_end_with_their_table(self, manager, writer):
        mark = KeyWatermark(epoch_of(1), ((0, 255, b"c"),))
        manager.commit_epoch(writer, epoch_of(1), [], tables={7: TableRules(ttl_ms=5), 8: TableRules(ttl_ms=6)},
                             watermarks={7: mark, 8: mark})
        version = manager.commit_epoch(writer, epoch_of(2), [], dropped_tables=[7], tables={7: TableRules(ttl_ms=9)},
                                       watermarks={7: replace(mark, epoch=epoch_of(2))})
        assert set(version.tables) == {8} and version.dropped_tables == {7}
        version = manager.commit_epoch(writer, epoch_of(3), [], watermarks={7: replace(mark, epoch=epoch_of(3))})
        assert set(version.tables) == {8}

    def test_rules_are_set_without_an_epoch(self, manager, writer, meta_store):
        mark = KeyWatermark(epoch_of(1), ((0, 255, b"c"),))
        manager.commit_epoch(writer, epoch_of(1), [], tables={7: TableRules(ttl_ms=5), 8: TableRules(PrefixRule(8))},
                             watermarks={7: mark})
        version = manager.set_rules(writer, {7: TableRules(PrefixRule(9)), 8: None, 9: TableRules()})
        assert version.tables == {7: TableRules(PrefixRule(9), watermarks=(mark,))}
        assert (version.id, version.max_committed_epoch) == (2, epoch_of(1))
        assert manager.set_rules(writer, {7: TableRules(PrefixRule(9))}).id == 2
        assert open_manager(meta_store).version.tables == version.tables
        open_manager(meta_store, seed=2).claim_writer()
        with pytest.raises(Fenced):
            manager.set_rules(writer, {7: None})
        assert open_manager(meta_store).version.tables == version.tables

    def test_the_callers_operations_share_the_transaction(self, manager, writer, meta_store):
        create = MetaOperations(require={"catalog/1": None}, put={"catalog/1": b"t"})
        manager.commit_epoch(writer, epoch_of(1), [], operations=create)
        assert meta_store.get("catalog/1") == b"t"
        with pytest.raises(PreconditionFailed, match="catalog/1"):
            manager.commit_epoch(writer, epoch_of(2), [], operations=create)
        assert manager.refresh().max_committed_epoch == epoch_of(1)
        both = MetaOperations(put={"catalog/2": b"u"})
        with pytest.raises(InvalidEpoch):
            manager.commit_epoch(writer, epoch_of(1), [Files(9).make(1)], operations=both)
        assert meta_store.get("catalog/2") is None

    def test_a_repeated_commit_gives_its_answer_and_changes_nothing(self, manager, writer, files, meta_store):
        infos = [files.make(1), files.make(1)]
        once = MetaOperations(require={"job": None}, put={"job": b"1"})
        manager.commit_epoch(writer, epoch_of(1), infos, operations=once)
        before = meta_store.list("")
        version = manager.commit_epoch(writer, epoch_of(1), infos[::-1], operations=once)
        assert version.id == 1 and meta_store.list("") == before
        other = open_manager(meta_store, seed=2)
        assert other.commit_epoch(writer, epoch_of(1), infos).id == 1

    def test_the_same_epoch_with_other_files_is_refused(self, manager, writer, files):
        manager.commit_epoch(writer, epoch_of(1), [files.make(1)])
        with pytest.raises(InvalidEpoch, match="other files"):
            manager.commit_epoch(writer, epoch_of(1), [files.make(1)])

    def test_threads_commit_one_after_the_other(self, manager, writer, files):
        infos = [files.make(number) for number in range(1, 31)]
        changed = threading.Condition()
        state = {"next": 1, "errors": []}

        def work(mine):
            for number in mine:
                with changed:
                    changed.wait_for(lambda n=number: state["next"] == n)
                try:
                    manager.commit_epoch(writer, epoch_of(number), [infos[number - 1]])
                except Exception as error:
                    state["errors"].append(error)
                with changed:
                    state["next"] += 1
                    changed.notify_all()

        threads = [threading.Thread(target=work, args=(range(start, 31, 3),)) for start in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert state["errors"] == []
        assert names_of(manager.version) == sorted(info.name for info in infos)


class TestRoles:
    def test_claiming_fences_the_former_writer_at_its_next_commit(self, meta_store, files):
        older, newer = open_manager(meta_store, seed=1), open_manager(meta_store, seed=2)
        first = older.claim_writer("one")
        older.commit_epoch(first, epoch_of(1), [files.make(1)])
        second = newer.claim_writer("two")
        assert newer.version.max_committed_epoch == epoch_of(1)
        lost = files.make(2)
        with pytest.raises(Fenced) as caught:
            older.commit_epoch(first, epoch_of(2), [lost])
        assert (caught.value.held, caught.value.current) == (1, 2)
        assert (caught.value.host, caught.value.pid) == (socket.gethostname(), os.getpid())
        assert f"claimed by 'two', process {os.getpid()} of {socket.gethostname()}, at 20" in str(caught.value)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        meta_store.transaction(MetaOperations(delete=(WRITER_PROCESS,)))        # by a release that does not write it
        with pytest.raises(Fenced, match="claimed by 'two', and one process"):
            older.check_writer(first)
        version = newer.commit_epoch(second, epoch_of(2), [files.make(2)])
        assert lost.name not in names_of(version)
        with pytest.raises(Fenced):
            older.commit_epoch(first, epoch_of(3), [lost])
        assert open_manager(meta_store).version == version

    def test_a_fenced_writer_still_learns_that_its_last_commit_succeeded(self, meta_store, files):
        older, newer = open_manager(meta_store, seed=1), open_manager(meta_store, seed=2)
        first, info = older.claim_writer(), files.make(1)
        older.commit_epoch(first, epoch_of(1), [info])
        second = newer.claim_writer()
        assert older.commit_epoch(first, epoch_of(1), [info]).max_committed_epoch == epoch_of(1)
        newer.commit_epoch(second, epoch_of(2), [])
        with pytest.raises(Fenced):
            older.commit_epoch(first, epoch_of(2), [files.make(2)])

    def test_opening_claims_nothing(self, meta_store, manager, writer, files):
        for seed in range(3):
            open_manager(meta_store, seed=seed + 5).refresh()
        manager.commit_epoch(writer, epoch_of(1), [files.make(1)])

    def test_of_many_claims_the_last_one_holds(self, meta_store):
        managers = [open_manager(meta_store, seed=seed, transaction_attempts=100) for seed in range(4)]
        sessions, lock = [], threading.Lock()

        def claim(manager):
            for _ in range(10):
                session = manager.claim_writer()
                with lock:
                    sessions.append((manager, session))

        threads = [threading.Thread(target=claim, args=(manager,)) for manager in managers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(session.generation for _, session in sessions) == list(range(1, 41))
        outcomes = []
        sessions.sort(key=lambda entry: entry[1].generation)
        for number, (manager, session) in enumerate(sessions, 1):
            try:
                manager.commit_epoch(session, epoch_of(number), [])
                outcomes.append(session.generation)
            except Fenced:
                pass
        assert outcomes == [40]

    def test_a_session_that_was_never_given_is_fenced(self, manager, writer):
        for forged in (WriterSession(1, "writer", "0" * 32), WriterSession(7, "writer", writer.token)):
            with pytest.raises(Fenced):
                manager.commit_epoch(forged, epoch_of(1), [])

    def test_a_claim_whose_answer_was_lost_is_recognised(self, files):
        for kind in (FaultKind.AFTER, FaultKind.TORN):
            store = FaultyMetaStore(MemoryMetaStore(), FaultPlan([Fault(kind, "transaction")]))
            manager = open_manager(store)
            session = manager.claim_writer()
            assert session.generation == 1
            manager.commit_epoch(session, epoch_of(1), [files.make(1)])

    @pytest.mark.parametrize("node", ["", "a b", "x/y", "é", "n" * 65])
    def test_a_node_has_a_plain_name(self, manager, node):
        with pytest.raises(MetaStoreError):
            manager.claim_writer(node)


class TestRecovery:
    def test_a_new_manager_finds_the_same_version(self, meta_store, files):
        manager = open_manager(meta_store, checkpoint_deltas=5)
        writer = manager.claim_writer()
        for number in range(1, 30):
            manager.commit_epoch(writer, epoch_of(number), [files.make(number)])
            assert open_manager(meta_store, checkpoint_deltas=5).version == manager.version
            assert len(meta_store.list(DELTAS)) <= 5

    def test_a_manager_that_fell_behind_catches_up(self, meta_store, files):
        manager = open_manager(meta_store, checkpoint_deltas=3)
        reader = open_manager(meta_store, checkpoint_deltas=3)
        writer = manager.claim_writer()
        number = 0
        for steps in (1, 2, 3, 4, 9, 1):
            for _ in range(steps):
                number += 1
                manager.commit_epoch(writer, epoch_of(number), [files.make(number)])
            assert reader.refresh() == manager.version
            assert reader.refresh() is reader.version

    def test_answers_of_old_commits_are_forgotten(self, meta_store):
        manager = open_manager(meta_store, checkpoint_deltas=4, commits_remembered=6)
        writer = manager.claim_writer()
        for number in range(1, 60):
            manager.commit_epoch(writer, epoch_of(number), [])
            assert len(meta_store.list(COMMITS)) <= 6 + 4 + 1
        assert manager.commit_epoch(writer, epoch_of(58), []).id == 59
        with pytest.raises(InvalidEpoch):
            manager.commit_epoch(writer, epoch_of(2), [])

    def test_a_lost_log_is_refused_where_objects_remain(self):
        objects = MemoryObjectStore()
        open_manager(MemoryMetaStore(), object_store=objects)
        objects.put("sst/" + "a" * 32 + ".data", b"x")
        with pytest.raises(MetaStoreEmptied, match="sst/"):
            open_manager(MemoryMetaStore(), object_store=objects)

    @pytest.mark.parametrize("damage", [
        {HEAD: b"{}"}, {HEAD: b"["}, {HEAD: b'{"format":0}'}, {CHECKPOINT: b"not json"}, {CHECKPOINT: b"{}"},
        {DELTAS + "0" * 20: b"[]"}, {HEAD: b"[" * 100_000}, {CHECKPOINT: b'{"format":1,"levels":7}'},
    ])
    def test_a_damaged_row_is_refused(self, files, damage):
        store = MemoryMetaStore()
        manager = open_manager(store, checkpoint_deltas=2)
        writer = manager.claim_writer()
        for number in range(1, 6):
            manager.commit_epoch(writer, epoch_of(number), [files.make(number)])
        store.transaction(MetaOperations(put=damage))
        with pytest.raises(MetaStoreCorrupt):
            open_manager(store)

    def test_a_missing_row_of_the_log_is_refused(self, files):
        for victim in range(3):
            store = MemoryMetaStore()
            manager = open_manager(store, checkpoint_deltas=3)
            writer = manager.claim_writer()
            for number in range(1, 8):
                manager.commit_epoch(writer, epoch_of(number), [files.make(number)])
            keys = [CHECKPOINT, *(key for key, _ in store.list(DELTAS))]
            store.transaction(MetaOperations(delete=(keys[victim],)))
            with pytest.raises(MetaStoreCorrupt):
                open_manager(store)


class TestFaults:
    """One fault at each step of a commit: it applies entirely or not at all, and the caller learns which."""

    def commits(self, plan, numbers, store=None):
        store = store or MemoryMetaStore()
        manager, files = open_manager(store, checkpoint_deltas=3), Files()
        writer = manager.claim_writer()
        faulty = FaultyMetaStore(store, plan)
        manager._meta_store = manager._keeper.meta_store = faulty
        acknowledged = []
        for number in numbers:
            info = files.make(number)
            guard = MetaOperations(require={f"job/{number}": None}, put={f"job/{number}": b""})
            for _ in range(5):
                try:
                    manager.commit_epoch(writer, epoch_of(number), [info], operations=guard)
                    acknowledged.append(info.name)
                    break
                except MetaStoreError as error:
                    assert not isinstance(error, PreconditionFailed)
        return store, acknowledged

    def test_every_single_fault_is_survived(self):
        quiet = FaultPlan()
        self.commits(quiet, range(1, 9))
        calls = len(quiet.calls)
        hits = 0
        for operation in ("get", "list", "transaction"):
            for kind in (FaultKind.BEFORE, FaultKind.AFTER, FaultKind.TORN):
                for skip in range(calls):
                    plan = FaultPlan([Fault(kind, operation, skip=skip)])
                    store, acknowledged = self.commits(plan, range(1, 9))
                    version = open_manager(store).version
                    assert names_of(version) == sorted(acknowledged)
                    assert len(acknowledged) == 8 == len(store.list("job/"))
                    hits += plan.hits
                    if not plan.hits:
                        break
        assert hits > 20

    def test_a_crash_at_any_step_loses_at_most_the_commit_under_way(self):
        """The process ends at call number `skip`; the next opener sees complete epochs only."""
        for kind in (FaultKind.BEFORE, FaultKind.AFTER):
            for skip in range(40):
                plan = FaultPlan([Fault(kind, skip=skip, times=10**9)])
                store, manager, files = MemoryMetaStore(), None, Files()
                acknowledged, started = [], []
                try:
                    manager = open_manager(FaultyMetaStore(store, plan), checkpoint_deltas=2)
                    writer = manager.claim_writer()
                    for number in range(1, 9):
                        started.append(files.make(number).name)
                        info = files.make(number, name=started[-1])
                        manager.commit_epoch(writer, epoch_of(number), [info])
                        acknowledged.append(info.name)
                except MetaStoreError:
                    pass
                survivor = open_manager(store, seed=1)
                found = names_of(survivor.version)
                assert found in (sorted(acknowledged), sorted(started)), (kind, skip)
                again = open_manager(store, seed=2)
                assert again.version == survivor.version
                writer = survivor.claim_writer()
                survivor.commit_epoch(writer, epoch_of(20), [files.make(20)])

    def test_when_reading_again_fails_too_the_outcome_stays_unknown(self, files):
        store, plan = MemoryMetaStore(), FaultPlan()
        manager = open_manager(FaultyMetaStore(store, plan))
        writer, info = manager.claim_writer(), files.make(1)
        plan.add(Fault(FaultKind.AFTER, "transaction"))
        plan.add(Fault(FaultKind.BEFORE, "get"))
        with pytest.raises(OutcomeUnknown):
            manager.commit_epoch(writer, epoch_of(1), [info])
        assert manager.commit_epoch(writer, epoch_of(1), [info]).id == 1

    def test_a_lost_answer_and_a_takeover_together(self, files):
        """The commit succeeded, its response was lost, and the role was claimed before the outcome could be read."""
        store = MemoryMetaStore()
        older, newer = open_manager(store, seed=1), open_manager(store, seed=2)
        first, info = older.claim_writer(), files.make(1)

        class Lossy(FaultyMetaStore):
            def transaction(self, operations):
                store.transaction(operations)
                self.transaction = store.transaction
                newer.claim_writer()
                raise OutcomeUnknown("connection lost")

        older._meta_store = older._keeper.meta_store = Lossy(store, FaultPlan())
        assert older.commit_epoch(first, epoch_of(1), [info]).max_committed_epoch == epoch_of(1)
        with pytest.raises(Fenced):
            older.commit_epoch(first, epoch_of(2), [])

    def test_tries_have_a_limit(self, files):
        plan = FaultPlan([Fault(FaultKind.TORN, "transaction", times=10**9, skip=1)])
        manager = open_manager(FaultyMetaStore(MemoryMetaStore(), plan), transaction_attempts=5)
        writer = manager.claim_writer()
        with pytest.raises(OutcomeUnknown):
            manager.commit_epoch(writer, epoch_of(1), [files.make(1)])
        assert plan.hits == 5
