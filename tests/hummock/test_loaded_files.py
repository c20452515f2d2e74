"""Bulk loads: their files enter a commit atomically and once, above all older rows, at the lowest level possible."""

from __future__ import annotations

import random
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest

from hummock.base.key import KeyRange, user_key
from hummock.base.table_rules import PrefixRule, TableRules
from hummock.columnar.write_batch import WriteBatch
from hummock.compactor import Compactor
from hummock.errors import HummockError, InvalidEpoch, LoadRefused, OutcomeUnknown, SstableRefused
from hummock.loaded_files import PLACEHOLDER, LoadedFiles
from hummock.meta import MemoryMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.records import HEAD, LOADS, TASKS, UPLOADS, vacuumed_key
from hummock.meta.store.base import MetaOperations
from hummock.meta.vacuum.vacuum import Vacuum
from hummock.object_store.base import mint_sstable_name
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import CompactionOptions, MetaOptions, StorageOptions, VacuumOptions
from hummock.shared_buffer.batch import SharedBufferBatch, SharedBufferChainIterator
from hummock.shared_buffer.ingest_writer import write_load
from hummock.store.storage import HummockStorage
from hummock.tools.verify import verify_rows
from tests.support.servers.meta_store_faults import FaultyMetaStore
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan
from tests.support.worlds.manager_parts import StandingClock, epoch_of

EVERYTHING = KeyRange(b"", None)


def key_of(number, table=1):
    return user_key(table, 0, b"%05d" % number)


class LoadEnv:
    """A store over a meta store with injected faults, a builder of loads, and a model of the rows."""

    def __init__(self, seed=0, compaction=None, **meta_options):
        self.rng = random.Random(f"loads {seed}")
        self.objects, self.meta_store = MemoryObjectStore(), MemoryMetaStore()
        self.clock, self.plan = StandingClock(4_000_000_000_000), FaultPlan()
        self.manager = HummockManager(FaultyMetaStore(self.meta_store, self.plan), self.objects, self.clock,
                                      options=MetaOptions(**meta_options), compaction=compaction)
        self.options = StorageOptions(block_bytes=500, sstable_bytes=4_000)
        self.store = HummockStorage(self.manager, self.objects, self.options, session=self.manager.claim_writer())
        self.rows: dict[int, dict[bytes, bytes | None]] = {}    # the writes of each epoch number

    def build(self, rows, load_id="load", prefix="ab" * 8, tables=None):
        pairs = sorted(rows.items())
        cut = len(pairs) // 2
        batches = [WriteBatch(part) for part in (pairs[:cut], pairs[cut:])]
        size = sum(len(key) + len(value) for key, value in pairs)
        chain = SharedBufferChainIterator(tuple(SharedBufferBatch(each, PLACEHOLDER) for each in batches if len(each)))
        infos = write_load(chain, size, self.objects, self.options,
                           lambda: mint_sstable_name(self.rng.randbytes, prefix), tables=tables or {})
        return LoadedFiles(load_id, infos)

    def write(self, number, rows):
        self.store.ingest_batch(WriteBatch(sorted(rows.items())), epoch_of(number))
        self.record(number, rows)

    def commit(self, number, *loads, **options):
        self.store.commit(epoch_of(number), loads=loads, **options)

    def record(self, number, rows):
        self.rows.setdefault(number, {}).update(rows)

    def visible_at(self, number):
        merged = {}
        for epoch in sorted(self.rows):
            if epoch <= number:
                merged.update(self.rows[epoch])
        return {key: value for key, value in sorted(merged.items()) if value is not None}

    def check(self, number):
        expected = self.visible_at(number)
        with self.store.scan(EVERYTHING, epoch_of(number)) as rows:
            assert dict(rows) == expected
        known = sorted({key for rows in self.rows.values() for key in rows})
        for key, got in zip(known, self.store.get_many(known, epoch_of(number)), strict=True):
            assert got == expected.get(key), (number, key)
        for key in self.rng.sample(known, min(len(known), 20)):
            assert self.store.get(key, epoch_of(number)) == expected.get(key)

    def levels(self):
        return {level.number: sorted(info.name for info in level.sstables)
                for level in self.manager.version.levels if level.runs}


@pytest.fixture
def env():
    return LoadEnv()


def rows_between(first, last, mark, table=1):
    return {key_of(number, table): b"%s %d %s" % (mark, number, b"x" * 40) for number in range(first, last)}


class TestIngestLevel:
    def test_a_load_that_overlaps_nothing_enters_the_last_level_in_the_epoch_of_its_commit(self, env):
        rows = rows_between(0, 300, b"loaded")
        load = env.build(rows)
        assert len(load.sstables) > 1 and load.rows == 300
        assert all(info.min_epoch == info.max_epoch == PLACEHOLDER for info in load.sstables)
        env.commit(1)
        env.commit(2, load)
        env.record(2, rows)
        assert env.levels() == {6: sorted(info.name for info in load.sstables)}
        assert env.manager.compaction_debt() == 0
        for number in (1, 2, 3):
            env.check(number)

    def test_a_load_over_older_rows_is_above_them_as_one_run(self, env):
        env.write(1, rows_between(100, 400, b"old"))
        env.commit(1)
        rows = rows_between(0, 300, b"loaded")
        load = env.build(rows)
        env.commit(2, load)
        env.record(2, rows)
        runs = env.manager.version.levels[0].runs
        assert [info.name for info in runs[0].sstables] == [info.name for info in load.sstables]
        assert len(runs) == 2 and set(env.levels()) == {0}
        for number in (1, 2):
            env.check(number)

    def test_what_was_only_buffered_or_staged_counts_as_above(self, env):
        env.write(1, rows_between(0, 9, b"old"))
        env.store.seal_epoch(epoch_of(1))
        env.store.sync(epoch_of(1))                       # staged
        env.write(2, rows_between(9, 18, b"old"))         # in the buffer until the commit
        rows = rows_between(0, 18, b"loaded")
        env.commit(2, env.build(rows))
        env.record(2, rows)
        assert set(env.levels()) == {0}
        env.check(2)

    def test_rows_of_other_tables_are_in_nobody_s_way(self, env):
        env.write(1, rows_between(0, 300, b"old", table=1) | rows_between(0, 300, b"old", table=3))
        env.commit(1)
        env.write(2, rows_between(0, 300, b"new", table=1) | rows_between(0, 300, b"new", table=3))
        rows = rows_between(0, 300, b"loaded", table=2)
        load = env.build(rows)
        env.commit(2, load)
        env.record(2, rows)
        assert env.levels()[6] == sorted(info.name for info in load.sstables)
        env.check(2)

    def test_a_task_that_began_after_the_load_chose_its_level_makes_it_choose_again(self, env, monkeypatch):
        """Outputs of a task created between the read of running tasks and the transaction could overlap the load."""
        original, attempts = env.meta_store.transaction, []

        def transaction(operations):
            if any(key.startswith(LOADS) for key in operations.put):
                attempts.append(operations)
                if len(attempts) == 1:
                    row = env.meta_store.get(TASKS)
                    env.meta_store.transaction = original
                    original(MetaOperations(require={TASKS: row}, put={TASKS: b'{"changes":1,"format":1,"next_id":1}'}))
                    env.meta_store.transaction = transaction
            original(operations)

        monkeypatch.setattr(env.meta_store, "transaction", transaction)
        env.commit(1, env.build(rows_between(0, 9, b"loaded")))
        assert len(attempts) == 2 and set(env.levels()) == {6}

    def test_two_loads_of_one_commit_choose_their_levels_independently(self, env):
        one, two = rows_between(0, 50, b"one", table=1), rows_between(0, 50, b"two", table=2)
        env.commit(1, env.build(one, "one"), env.build(two, "two"))
        env.record(1, one | two)
        assert set(env.levels()) == {6}
        wide = env.build(rows_between(0, 5, b"w", table=3) | rows_between(0, 5, b"w", table=5), "wide")
        inner = env.build(rows_between(0, 5, b"i", table=4), "inner")
        env.record(2, rows_between(0, 5, b"w", table=3) | rows_between(0, 5, b"w", table=5)
                   | rows_between(0, 5, b"i", table=4))
        env.commit(2, wide, inner)
        assert set(env.levels()) == {0, 6}
        env.check(2)

    def test_a_load_without_rows_is_remembered_too(self, env):
        env.commit(1, LoadedFiles("empty", ()))
        assert env.manager.load_answer("empty").rows == 0 and not env.levels()


class TestReads:
    @pytest.mark.parametrize("seed", range(12))
    def test_writes_and_loads_in_any_order_read_right_at_every_epoch(self, seed):
        """Loads of whole tables and of parts, between writes, deletes, flushes, syncs and merges."""
        env = LoadEnv(seed, CompactionOptions(l0_runs=3, l0_base_bytes=3_000, base_level_bytes=8_000,
                                              sstable_bytes=4_000, l0_runs_slowdown=1_000, l0_runs_limit=2_000,
                                              history_ms=600_000))
        rng, epoch = env.rng, 0
        rules = TableRules(prefix=PrefixRule(fixed_bytes=8)) if rng.random() < 0.5 else None
        with ExitStack() as stack:
            compactor = None
            if rng.random() < 0.7:
                compactor = Compactor(env.manager, env.objects, env.manager.compaction_options)
                stack.callback(compactor.close)
            for _ in range(12):
                epoch += 1
                for _ in range(rng.randint(0, 2)):
                    table = rng.choice((1, 2, 3))
                    changes = {key_of(rng.randrange(60), table): None if rng.random() < 0.3 else rng.randbytes(30)
                               for _ in range(rng.randint(1, 30))}
                    env.write(epoch, changes)
                loads = []
                for table in rng.sample((1, 2, 3, 4), rng.randint(0, 2)):
                    first = rng.randrange(60)
                    rows = rows_between(first, first + rng.randint(1, 40), b"load %d" % epoch, table)
                    ruled = {table: rules} if rules else None
                    loads.append((env.build(rows, f"{epoch}-{table}", tables=ruled), rows))
                if loads and rng.random() < 0.5:        # in an epoch of its own, like that of a barrier
                    env.commit(epoch)
                    epoch += 1
                for _, rows in loads:
                    env.record(epoch, rows)
                env.commit(epoch, *(load for load, _ in loads))
                for number in rng.sample(range(1, epoch + 1), min(epoch, 3)):
                    env.check(number)
                if compactor is not None and rng.random() < 0.5:
                    while compactor.run_one():
                        pass
                    env.store.wait_epoch(epoch_of(epoch))
                    env.check(epoch)


class TestOnce:
    def test_a_repeated_commit_is_answered_and_its_load_is_known_by_its_id(self, env):
        rows = rows_between(0, 30, b"loaded")
        load = env.build(rows, "nightly")
        session = env.store.session
        version = env.manager.commit_epoch(session, epoch_of(1), (), loads=(load,))
        assert env.manager.commit_epoch(session, epoch_of(1), (), loads=(load,)) is version
        answer = env.manager.load_answer("nightly")
        assert (answer.epoch, answer.version_id, answer.level, answer.rows) == (epoch_of(1), 1, 6, 30)
        assert env.manager.load_answer("other") is None
        with pytest.raises(InvalidEpoch):
            env.manager.commit_epoch(session, epoch_of(1), ())

    def test_an_id_enters_once(self, env):
        env.commit(1, env.build(rows_between(0, 9, b"first"), "same"))
        with pytest.raises(LoadRefused, match="committed before"):
            env.commit(2, env.build(rows_between(20, 29, b"second"), "same"))
        assert env.manager.committed_epoch == epoch_of(1)
        env.commit(2)                                     # the epoch was not committed

    def test_as_many_as_the_option_says_are_remembered_the_newest(self):
        env = LoadEnv(loads_remembered=3)
        for number in range(1, 7):
            env.commit(number, env.build({key_of(number): b"v"}, f"load-{number}"))
        kept = sorted(key.removeprefix(LOADS) for key, _ in env.meta_store.list(LOADS))
        assert kept == ["load-4", "load-5", "load-6"]


class TestRefusals:
    def refused(self, env, *loads, match):
        before = env.manager.version
        with pytest.raises(LoadRefused, match=match) as caught:
            env.commit(1, *loads)
        assert env.manager.version is before
        return caught.value

    def test_a_name_that_vacuum_removes(self, env):
        load = env.build(rows_between(0, 9, b"v"))
        name = load.sstables[0].name
        env.meta_store.transaction(MetaOperations(put={vacuumed_key(name): b"{}"}))
        assert self.refused(env, load, match="vacuum").load_id == "load"

    def test_a_dropped_table(self, env):
        load = env.build(rows_between(0, 9, b"v"))
        env.store.commit(epoch_of(1), dropped_tables=[1])
        with pytest.raises(LoadRefused, match="dropped"):
            env.commit(2, load)

    def test_two_loads_of_one_table_in_one_commit(self, env):
        self.refused(env, env.build(rows_between(0, 9, b"v"), "a"), env.build(rows_between(20, 29, b"v"), "b"),
                     match="same tables")

    @pytest.mark.parametrize("load_id", ["", "with space", "x" * 65, "a/b"])
    def test_a_bad_id(self, load_id):
        with pytest.raises(LoadRefused, match="id"):
            LoadedFiles(load_id, ())

    def test_files_that_are_no_run_of_their_own(self, env):
        first, second, *_ = env.build(rows_between(0, 300, b"v")).sstables
        for infos, match in (((second, first), "order"), ((first, first), "order"),
                             ((replace(first, stale_rows=1),), "several versions"),
                             ((replace(first, max_epoch=first.min_epoch + 1),), "several epochs"),
                             ((replace(first, global_epoch=epoch_of(1)),), "epoch"),
                             ((replace(first, id=7),), "number")):
            with pytest.raises(LoadRefused, match=match):
                LoadedFiles("load", infos)

    def test_a_file_that_is_no_load_s_has_epochs_of_its_own(self, env):
        info = replace(env.build(rows_between(0, 9, b"v")).sstables[0], global_epoch=epoch_of(1))
        with pytest.raises(SstableRefused, match="load"):
            env.manager.commit_epoch(env.store.session, epoch_of(1), (info,))


class TestRegistration:
    def test_vacuum_leaves_files_alone_from_before_the_first_to_the_commit(self, env):
        vacuum = Vacuum(env.meta_store, env.objects, env.clock, options=VacuumOptions(grace_ms=0))
        with env.store.upload_prefixes(1) as (prefix,):
            load = env.build(rows_between(0, 90, b"v"), prefix=prefix)
            assert vacuum.run().removed.files == 0
            for _ in range(5):                  # while the driver renews its lease
                env.clock.advance(20_000)
                env.manager.renew_lease(env.store._node)
                assert vacuum.run().removed.files == 0
            env.commit(1, load)
        assert not env.meta_store.list(UPLOADS)
        assert vacuum.run().removed.files == 0
        env.record(1, rows_between(0, 90, b"v"))
        env.check(1)

    def test_what_is_not_committed_is_nothing_afterwards(self, env):
        vacuum = Vacuum(env.meta_store, env.objects, env.clock, options=VacuumOptions(grace_ms=0))
        with pytest.raises(ZeroDivisionError), env.store.upload_prefixes(1) as (prefix,):
            load = env.build(rows_between(0, 90, b"v"), prefix=prefix)
            raise ZeroDivisionError
        assert vacuum.run().removed.files == len(load.sstables)
        assert not list(env.objects.list("sst/"))
        with pytest.raises(LoadRefused, match="vacuum"):
            env.commit(1, load)

    def test_a_driver_that_was_silent_too_long_is_refused_not_wrong(self, env):
        vacuum = Vacuum(env.meta_store, env.objects, env.clock, options=VacuumOptions(grace_ms=0))
        with env.store.upload_prefixes(1) as (prefix,):
            load = env.build(rows_between(0, 90, b"v"), prefix=prefix)
            env.clock.advance(31_000)
            assert vacuum.run().removed.files == len(load.sstables)
            with pytest.raises(LoadRefused, match="vacuum"):
                env.commit(1, load)


def calls_of_a_commit():
    env = LoadEnv()
    load = env.build(rows_between(0, 90, b"v"))
    env.write(1, rows_between(0, 9, b"other", table=2))
    before = len(env.plan.calls)
    env.commit(1, load)
    return env.plan.calls[before:]


CALLS = calls_of_a_commit()


class TestCrashes:
    def test_the_commit_takes_its_steps(self):
        operations = [operation for operation, _ in CALLS]
        assert operations.count("transaction") >= 1 and operations.count("list") >= 2

    @pytest.mark.parametrize("kind", [FaultKind.BEFORE, FaultKind.TORN, FaultKind.AFTER], ids=lambda kind: kind.value)
    @pytest.mark.parametrize("at", range(len(CALLS)))
    def test_an_end_at_any_call_leaves_all_of_the_load_or_nothing(self, at, kind):
        env = LoadEnv()
        rows = rows_between(0, 90, b"v")
        with env.store.upload_prefixes(1) as (prefix,):
            load = env.build(rows, prefix=prefix)
            env.write(1, rows_between(0, 9, b"other", table=2))
            written = env.rows.pop(1)
            env.plan.add(Fault(kind, skip=at, times=40))
            with suppress(HummockError):
                env.commit(1, load)
            assert env.plan.hits > 0
            env.plan.clear()
            # A new process opens the same meta store.
            recovered = HummockManager(env.meta_store, env.objects, env.clock)
            answer, version = recovered.load_answer("load"), recovered.version
            names = {info.name for info in version.sstables}
            loaded = {info.name for info in load.sstables}
            assert (answer is not None) == (loaded <= names) == bool(loaded & names)
            assert (version.max_committed_epoch == epoch_of(1)) == (answer is not None)
            env.store.close()
            with HummockStorage(recovered, env.objects, env.options, session=recovered.claim_writer()) as store:
                if answer is None:
                    store.commit(epoch_of(1), loads=[load])
                else:
                    rows = rows | written
                with store.scan(EVERYTHING, epoch_of(1)) as found:
                    assert dict(found) == rows

    def test_a_commit_whose_answers_are_lost_enters_once(self, env):
        rows = rows_between(0, 90, b"v")
        load = env.build(rows)
        env.plan.add(Fault(FaultKind.AFTER, operation="transaction", times=1))
        env.commit(1, load)
        env.record(1, rows)
        assert env.manager.version.id == 1 and set(env.levels()) == {6}
        env.check(1)
        assert env.manager.load_answer("load") and not [row for row in verify_rows(env.meta_store) if row.damages]


def test_an_unknown_outcome_is_no_refusal(env):
    """If the outcome cannot be read back, `OutcomeUnknown` is raised, and the commit may be repeated."""
    load = env.build(rows_between(0, 9, b"v"))
    env.plan.add(Fault(FaultKind.AFTER, operation="transaction"))
    env.plan.add(Fault(FaultKind.BEFORE, operation="get", prefix=HEAD))
    session = env.store.session
    with pytest.raises(OutcomeUnknown):
        env.manager.commit_epoch(session, epoch_of(1), (), loads=(load,))
    env.plan.clear()
    env.manager.commit_epoch(session, epoch_of(1), (), loads=(load,))
    assert env.manager.load_answer("load").epoch == epoch_of(1)
