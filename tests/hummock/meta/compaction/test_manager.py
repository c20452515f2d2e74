"""Compaction tasks: each changes the version once, through the attempt that holds it; every row is accounted for."""

from dataclasses import replace

import pytest

from hummock.base.key import KeyRange
from hummock.base.table_rules import TableRules
from hummock.compaction.task import RangeResult, TaskKind
from hummock.errors import EpochTooOld, TaskRefused
from hummock.meta.records import OBSOLETE, REPORTS, TASK, WANTED, vacuumed_key
from hummock.meta.store.base import MetaOperations
from hummock.meta.store.memory import MemoryMetaStore
from hummock.meta.store.sqlite import SqliteMetaStore
from hummock.options import CompactionOptions
from tests.support.worlds.manager_parts import (
    Files,
    StandingClock,
    cancel_task,
    epoch_of,
    names_of,
    open_manager,
    results_of,
    task_answers,
)

OPTIONS = CompactionOptions(l0_runs=4, l0_base_bytes=4_000, history_ms=0, task_lease_ms=1_000,
                            task_stall_ms=10_000, task_retry_ms=100, task_tries=3)


@pytest.fixture(params=["memory", "sqlite"])
def meta_store(request, tmp_path):
    store = MemoryMetaStore() if request.param == "memory" else SqliteMetaStore(tmp_path / "meta.sqlite")
    yield store
    store.close()


@pytest.fixture
def clock():
    return StandingClock()


@pytest.fixture
def manager(meta_store, clock):
    return open_manager(meta_store, clock, compaction=OPTIONS)


@pytest.fixture
def files():
    return Files()


@pytest.fixture
def filled(manager, files):
    """A manager whose level 0 is due for compaction."""
    writer = manager.claim_writer()
    for number in range(1, OPTIONS.l0_runs + 1):
        manager.commit_epoch(writer, epoch_of(number), [files.make(number)])
    return manager


class TestOneTask:
    def test_an_empty_store_has_no_work(self, manager):
        assert manager.get_compact_task("c") is None and manager.compaction_debt() == 0

    def test_a_report_replaces_inputs_with_outputs(self, filled, meta_store):
        before = names_of(filled.version)
        task, token = filled.get_compact_task("c")
        assert names_of(filled.version) == before
        version = filled.report_compact_task(task.id, token, results_of(task, token, dropped=7, files=3))
        assert [level.number for level in version.levels if level.runs] == [task.target_level]
        assert sum(info.rows for info in version.sstables) == task.input_rows - 7
        assert len({info.id for info in version.sstables}) == 3
        assert all(info.id > 4 for info in version.sstables)
        assert meta_store.list(TASK) == [] and len(meta_store.list(OBSOLETE)) == 1

    def test_a_task_whose_rows_all_go_leaves_nothing(self, filled):
        task, token = filled.get_compact_task("c")
        gone = RangeResult(0, (), task.input_rows, task.input_rows, task.input_hash, task.input_hash, 9)
        version = filled.report_compact_task(task.id, token, [gone])
        assert names_of(version) == []

    def test_files_of_a_running_task_are_in_no_other(self, filled):
        task, _ = filled.get_compact_task("c")
        other = filled.get_compact_task("d")
        assert other is None
        assert [row.task.id for row in filled.running_tasks()] == [task.id]

    def test_commits_go_on_beside_a_task(self, filled, files):
        task, token = filled.get_compact_task("c")
        writer = filled.claim_writer()
        info = files.make(9)
        filled.commit_epoch(writer, epoch_of(9), [info])
        version = filled.report_compact_task(task.id, token, results_of(task, token))
        assert version.max_committed_epoch == epoch_of(9)
        assert [found.name for found in version.levels[0].sstables] == [info.name]

    def test_a_task_carries_rules_and_dropped_tables_of_its_files_only(self, manager, files):
        writer = manager.claim_writer()
        rules = {1: TableRules(ttl_ms=5), 2: TableRules(ttl_ms=6)}
        for number in range(1, 5):
            manager.commit_epoch(writer, epoch_of(number), [files.make(number, table_ids=(1, 3))], tables=rules,
                                 dropped_tables=[3, 4])
        task, _ = manager.get_compact_task("c")
        assert (task.tables, task.dropped_tables) == ({1: TableRules(ttl_ms=5)}, (3,))


class TestSafeEpoch:
    def test_a_task_raises_the_safe_epoch_to_its_watermark(self, filled):
        task, _ = filled.get_compact_task("c")
        assert task.watermark == filled.version.safe_epoch == epoch_of(4)
        with pytest.raises(EpochTooOld):
            filled.pin_snapshot("reader", epoch_of(3))

    def test_a_pin_holds_the_watermark_down(self, filled):
        filled.pin_snapshot("reader", epoch_of(2))
        task, _ = filled.get_compact_task("c")
        assert task.watermark == epoch_of(2)

    def test_a_pin_whose_lease_ran_out_does_not(self, filled, clock):
        filled.pin_snapshot("reader", epoch_of(2))
        clock.advance(filled.options.lease_ms)
        task, _ = filled.get_compact_task("c")
        assert task.watermark == epoch_of(4)

    def test_history_is_kept_by_the_age_of_epochs(self, meta_store, clock, files):
        manager = open_manager(meta_store, clock, compaction=replace(OPTIONS, history_ms=2))
        writer = manager.claim_writer()
        for number in range(1, 5):
            manager.commit_epoch(writer, epoch_of(number), [files.make(number)])
        task, _ = manager.get_compact_task("c")
        assert task.watermark == epoch_of(2)


class TestReports:
    def test_a_repeated_report_is_answered_and_changes_nothing(self, filled, meta_store, clock):
        task, token = filled.get_compact_task("c")
        results = results_of(task, token)
        version = filled.report_compact_task(task.id, token, results)
        rows = meta_store.list("")
        assert filled.report_compact_task(task.id, token, results) is version
        assert open_manager(meta_store, clock, 5).report_compact_task(task.id, token, results) == version
        assert meta_store.list("") == rows

    def test_another_answer_to_the_same_task_is_refused(self, filled):
        task, token = filled.get_compact_task("c")
        version = filled.report_compact_task(task.id, token, results_of(task, token))
        for wrong in (results_of(task, token, files=2), results_of(task, "f" * 32)):
            with pytest.raises(TaskRefused, match="done"):
                filled.report_compact_task(task.id, token, wrong)
        with pytest.raises(TaskRefused):
            filled.report_compact_task(task.id, "f" * 32, results_of(task, token))
        assert filled.refresh() is version

    @pytest.mark.parametrize(("change", "reason"), [
        (lambda result: replace(result, rows_read=39, rows_dropped=-1), "rows"),
        (lambda result: replace(result, rows_read=41, rows_dropped=1), "rows were read"),
        (lambda result: replace(result, rows_dropped=1), "dropped"),
        (lambda result: replace(result, hash_dropped=result.hash_dropped ^ 1), "content hash"),
        (lambda result: replace(result, hash_read=result.hash_read ^ 1), "content hash"),
        (lambda result: replace(result, hash_read=result.hash_read ^ 1 << 63,
                                hash_dropped=result.hash_dropped ^ 1 << 63), "where the inputs hold"),
        (lambda result: replace(result, sstables=(replace(result.sstables[0], content_hash=0), result.sstables[1])),
         "content hash"),
        (lambda result: replace(result, sstables=(replace(result.sstables[0], content_hash=None), result.sstables[1])),
         "without a content hash"),
        (lambda result: replace(result, index=1), "ranges"),
        (lambda result: replace(result, sstables=result.sstables[::-1]), "ascend"),
        (lambda result: replace(result, sstables=(replace(result.sstables[0], name="0" * 32), result.sstables[1])),
         "name"),
        (lambda result: replace(result, sstables=(replace(result.sstables[0], name=result.sstables[1].name),
                                                  result.sstables[1])), "once"),
        (lambda result: replace(result, sstables=(replace(result.sstables[0], smallest=b"A"), result.sstables[1])),
         "keys"),
        (lambda result: replace(result, sstables=(replace(result.sstables[0], table_ids=(2,)), result.sstables[1])),
         "keys"),
        (lambda result: replace(result, sstables=(replace(result.sstables[0], max_epoch=epoch_of(5)),
                                                  result.sstables[1])), "epochs"),
        (lambda result: replace(result, sstables=(replace(result.sstables[0], data_bytes=0), result.sstables[1])),
         "empty"),
    ])
    def test_results_that_do_not_account_for_the_task_are_refused(self, filled, change, reason):
        task, token = filled.get_compact_task("c")
        version = filled.version
        (result,) = results_of(task, token, files=2)
        with pytest.raises(TaskRefused, match=reason):
            filled.report_compact_task(task.id, token, [change(result)])
        assert filled.refresh() is version
        filled.report_compact_task(task.id, token, [result])

    def test_outputs_that_vacuum_gave_up_are_refused(self, filled, meta_store):
        task, token = filled.get_compact_task("c")
        results = results_of(task, token)
        name = results[0].sstables[0].name
        meta_store.transaction(MetaOperations(put={vacuumed_key(name): b"{}"}))
        with pytest.raises(TaskRefused, match=name):
            filled.report_compact_task(task.id, token, results)

    def test_old_answers_are_forgotten(self, meta_store, clock, files):
        manager = open_manager(meta_store, clock, compaction=replace(OPTIONS, tasks_remembered=2))
        writer = manager.claim_writer()
        for number in range(1, 30):
            manager.commit_epoch(writer, epoch_of(number), [files.make(number)])
            while work := manager.get_compact_task("c"):
                manager.report_compact_task(work[0].id, work[1], results_of(*work))
        assert 1 < len(meta_store.list(REPORTS)) <= 3


class TestAttempts:
    def test_a_silent_task_goes_to_whoever_asks_and_its_holder_is_refused(self, filled, clock):
        task, token = filled.get_compact_task("c")
        clock.advance(OPTIONS.task_lease_ms - 1)
        assert filled.get_compact_task("d") is None
        clock.advance(1)
        again, other = filled.get_compact_task("d")
        assert again == task and other != token
        for call in (lambda: filled.heartbeat_task(task.id, token, 5),
                     lambda: filled.report_compact_task(task.id, token, results_of(task, token))):
            with pytest.raises(TaskRefused):
                call()
        filled.report_compact_task(task.id, other, results_of(task, other))
        with pytest.raises(TaskRefused):
            filled.report_compact_task(task.id, token, results_of(task, token))

    def test_heartbeats_keep_a_task_until_it_makes_no_progress(self, filled, clock):
        task, token = filled.get_compact_task("c")
        for step in range(15):
            clock.advance(900)
            filled.heartbeat_task(task.id, token, step + 1)
            assert filled.get_compact_task("d") is None
        for _ in range(11):
            clock.advance(900)
            filled.heartbeat_task(task.id, token, 15)
        clock.advance(900)
        assert filled.get_compact_task("d")[0] == task

    def test_a_task_that_nobody_finishes_is_given_up(self, filled, clock):
        first, token = filled.get_compact_task("c")
        for _ in range(OPTIONS.task_tries - 1):
            clock.advance(OPTIONS.task_lease_ms)
            assert filled.get_compact_task("c")[0] == first
        clock.advance(OPTIONS.task_lease_ms)
        second, _ = filled.get_compact_task("c")
        assert second.id != first.id and second.inputs == first.inputs
        (answer,) = task_answers(filled)
        assert (answer.task_id, answer.outcome) == (first.id, "failed")
        with pytest.raises(TaskRefused, match="silent"):
            filled.heartbeat_task(first.id, token, 1)

    def test_a_failed_task_waits_longer_each_time_and_its_error_is_kept(self, filled, clock):
        task, token = filled.get_compact_task("c")
        for wait in (100, 200):
            filled.fail_task(task.id, token, "the disk is full")
            (row,) = filled.running_tasks()
            assert (row.holder, row.error) == ("", "the disk is full")
            clock.advance(wait - 1)
            assert filled.get_compact_task("c") is None
            clock.advance(1)
            again, token = filled.get_compact_task("c")
            assert again == task
        filled.fail_task(task.id, token, "the disk is full")
        clock.advance(400)
        assert filled.get_compact_task("c")[0].id != task.id
        assert [(answer.outcome, answer.error) for answer in task_answers(filled)] == [("failed", "the disk is full")]

    def test_a_task_that_was_handed_back_goes_to_the_next_at_once_and_costs_no_try(self, filled):
        task, token = filled.get_compact_task("c")
        for _ in range(2 * OPTIONS.task_tries):
            filled.hand_back_task(task.id, token)
            with pytest.raises(TaskRefused):
                filled.heartbeat_task(task.id, token, 1)
            again, token = filled.get_compact_task("c")
            assert again == task

    def test_a_cancelled_task_is_gone_for_its_attempt(self, filled):
        task, token = filled.get_compact_task("c")
        assert cancel_task(filled, task.id) and not cancel_task(filled, task.id)
        with pytest.raises(TaskRefused, match="cancelled"):
            filled.heartbeat_task(task.id, token, 1)
        with pytest.raises(TaskRefused, match="cancelled"):
            filled.report_compact_task(task.id, token, results_of(task, token))
        filled.fail_task(task.id, token, "too late to matter")
        assert filled.get_compact_task("c")[0].inputs == task.inputs


class TestManualRanges:
    def test_a_requested_range_becomes_a_task_before_all_others(self, filled):
        number = filled.compact_range(KeyRange(b"m", b"n"))
        assert filled.compaction_debt() > 0
        task, token = filled.get_compact_task("c")
        assert task.kind == TaskKind.MANUAL and task.target_level == OPTIONS.last_level and number < task.id
        filled.report_compact_task(task.id, token, results_of(task, token))
        assert filled.get_compact_task("c") is None

    def test_a_range_takes_files_of_every_run_also_beside_those_of_the_newest(self, manager, files):
        session = manager.claim_writer()
        for number, (first, last) in enumerate([(b"a", b"c"), (b"x", b"z"), (b"m", b"n")], 1):
            manager.commit_epoch(session, epoch_of(number), [files.make(number, first, last)])
        manager.compact_range(KeyRange(b"b", None))
        task, _ = manager.get_compact_task("c")
        assert {info.smallest for part in task.inputs for info in part.sstables} == {b"a", b"m", b"x"}

    def test_a_request_waits_for_tasks_on_its_files(self, filled):
        first, token = filled.get_compact_task("c")
        filled.compact_range(KeyRange())
        assert filled.get_compact_task("d") is None
        filled.report_compact_task(first.id, token, results_of(first, token))
        assert filled.get_compact_task("d")[0].kind == TaskKind.MANUAL

    def test_a_range_without_files_is_done_at_once(self, filled):
        filled.compact_range(KeyRange(b"zz", None))
        task, _ = filled.get_compact_task("c")
        assert task.kind != TaskKind.MANUAL and filled.compaction_debt() == 1

    def test_a_request_that_becomes_a_task_while_tasks_are_counted_is_counted(self, manager, files, meta_store,
                                                                              monkeypatch):
        manager.commit_epoch(manager.claim_writer(), epoch_of(1), [files.make(1)])
        manager.compact_range(KeyRange())
        read, taken = meta_store.list, []

        def read_and_take(prefix):
            if prefix == WANTED and not taken:
                taken.append(None)
                taken.append(manager.get_compact_task("c"))
            return read(prefix)

        monkeypatch.setattr(meta_store, "list", read_and_take)
        assert manager.compaction_debt() == 1
        assert taken[1] is not None


class TestDenseTombstones:
    """A deleted range is merged at once: the leases of the process that deletes keep no epoch that it does not read."""

    def deleted(self, manager, files):
        writer = manager.claim_writer()
        manager.pin_version("writer-node")  # writes a lease that covers epochs from here on
        manager.commit_epoch(writer, epoch_of(1), [files.make(1, rows=20_000)])
        manager.commit_epoch(writer, epoch_of(2), [files.make(2, rows=20_000, tombstones=20_000)])

    def test_the_own_lease_is_lifted_for_it(self, manager, files):
        self.deleted(manager, files)
        assert manager.compaction_debt() == 1
        task, _ = manager.get_compact_task("c")
        assert task.kind is TaskKind.TOMBSTONE and task.drop_tombstones
        assert task.watermark == manager.version.safe_epoch == epoch_of(2)

    def test_a_snapshot_of_the_process_delays_it(self, manager, files):
        self.deleted(manager, files)
        manager.pin_snapshot("reader", epoch_of(1))
        assert manager.get_compact_task("c") is None and manager.compaction_debt() == 0
        manager.unpin_snapshot("reader", epoch_of(1))
        assert manager.get_compact_task("c")[0].watermark == epoch_of(2)

    def test_the_lease_of_another_process_holds_it_back_until_it_ends(self, meta_store, manager, files, clock):
        other = open_manager(meta_store, clock, seed=1, compaction=OPTIONS)
        other.pin_version("other")
        self.deleted(manager, files)
        assert manager.get_compact_task("c") is None and manager.compaction_debt() == 0
        other.release_node("other")
        task, _ = manager.get_compact_task("c")
        assert task.watermark == epoch_of(2)


class TestIsCompacted:
    EVERYTHING, LAST = KeyRange(), OPTIONS.last_level

    def compacted(self, manager, **of_output):
        """Merges everything; the outputs have these fields."""
        manager.compact_range(self.EVERYTHING)
        task, token = manager.get_compact_task("c")
        (result,) = results_of(task, token)
        outputs = tuple(replace(info, **{"codec": task.output.codec, **of_output}) for info in result.sstables)
        manager.report_compact_task(task.id, token, [replace(result, sstables=outputs)])

    def test_an_empty_store_is(self, manager):
        assert manager.is_compacted(self.EVERYTHING)

    def test_what_is_merged_is_and_what_comes_later_is_not(self, filled, files):
        assert not filled.is_compacted(self.EVERYTHING)
        self.compacted(filled)
        assert filled.is_compacted(self.EVERYTHING)
        writer = filled.claim_writer()
        filled.commit_epoch(writer, epoch_of(9), [files.make(9, b"m", b"n")])
        assert not filled.is_compacted(self.EVERYTHING) and not filled.is_compacted(KeyRange(b"m", b"n"))

    @pytest.mark.parametrize("fields", [{"tombstones": 1}, {"stale_rows": 1}, {"codec": "zstd"}])
    def test_garbage_and_another_codec_are_worth_a_rewrite(self, filled, fields):
        self.compacted(filled, **fields)
        assert not filled.is_compacted(self.EVERYTHING)

    def test_garbage_that_somebody_reads_is_not(self, filled):
        filled.pin_snapshot("reader", epoch_of(3))
        self.compacted(filled, stale_rows=1, min_epoch=epoch_of(4), max_epoch=epoch_of(4))
        assert filled.is_compacted(self.EVERYTHING)
        filled.unpin_snapshot("reader", epoch_of(3))
        assert not filled.is_compacted(self.EVERYTHING)

    def test_a_dropped_table_is_worth_a_rewrite(self, filled):
        self.compacted(filled)
        filled.commit_epoch(filled.claim_writer(), epoch_of(9), [], dropped_tables=[1])
        assert not filled.is_compacted(self.EVERYTHING)
