"""Large compaction tasks: division among workers, reuse of an earlier attempt's results, and cleanup."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from hummock.base.key import KeyRange
from hummock.compaction.executors import ThreadRunner
from hummock.compaction.progress_log import LOG_PREFIX, TaskProgressLog, write_result
from hummock.compaction.subcompaction_planner import Split, boundaries_of
from hummock.compactor import Compactor
from hummock.errors import TaskRefused
from hummock.meta.compaction.records import RunningTask
from hummock.meta.records import TASK
from hummock.meta.store.base import MetaOperations
from hummock.meta.store.memory import MemoryMetaStore
from hummock.meta.vacuum.vacuum import Vacuum
from hummock.object_store.base import SSTABLE_PREFIX, name_prefix, sstable_name_of
from hummock.options import VacuumOptions
from tests.hummock.test_compactor import EVERYTHING, OPTIONS, Store
from tests.support.worlds.manager_parts import Files, StandingClock, cancel_task, epoch_of, open_manager, results_of

LARGE = replace(OPTIONS, large_task_bytes=1, task_lease_ms=1_000, task_stall_ms=10_000, task_retry_ms=100, task_tries=3)


@pytest.fixture
def clock():
    return StandingClock()


@pytest.fixture
def meta_store():
    return MemoryMetaStore()


@pytest.fixture
def manager(meta_store, clock):
    """A manager whose level 0 is due for compaction; every task is large."""
    made, files = open_manager(meta_store, clock, compaction=LARGE), Files()
    writer = made.claim_writer()
    for number in range(1, 5):
        made.commit_epoch(writer, epoch_of(number), [files.make(number)])
    return made


def test_without_a_compactor_for_them_large_tasks_are_everybodys(manager):
    assert manager.get_compact_task("small") is not None


def test_while_there_is_one_large_tasks_wait_for_it(manager, clock):
    assert manager.get_compact_task("small") is not None        # no compactor for large tasks yet
    other = open_manager(manager._keeper.meta_store, clock, seed=1, compaction=LARGE)
    other.compact_range(KeyRange())
    assert other.get_compact_task("spark", does_large=True) is None
    task, token = manager.running_tasks()[0].task, manager.running_tasks()[0].token
    manager.fail_task(task.id, token, "no luck")
    clock.advance(200)
    assert manager.get_compact_task("small") is None
    got, _ = other.get_compact_task("spark", does_large=True)
    assert got == task


def test_a_large_task_that_is_due_waits_without_a_holder_and_without_a_failure(manager, clock):
    empty = open_manager(manager._keeper.meta_store, clock, seed=1, compaction=replace(LARGE, l0_runs=64,
                                                                                        l0_base_bytes=1 << 40))
    assert empty.get_compact_task("spark", does_large=True) is None     # registers a compactor for large tasks
    assert manager.get_compact_task("small") is None
    (row,) = manager.running_tasks()
    assert (row.holder, row.tries) == ("", 0)
    task, token = empty.get_compact_task("spark", does_large=True)
    (row,) = manager.running_tasks()
    assert (row.task, row.holder, row.tries, row.is_journaled) == (task, "spark", 1, True)
    empty.report_compact_task(task.id, token, results_of(task, token))
    assert manager.get_compact_task("small") is None


def test_who_did_large_tasks_and_is_silent_has_them_no_more(manager, clock):
    task, _ = manager.get_compact_task("spark", does_large=True)
    clock.advance(LARGE.task_lease_ms - 1)
    assert manager.get_compact_task("small") is None
    clock.advance(1)
    assert manager.get_compact_task("small")[0] == task


def test_a_heartbeat_at_a_large_task_says_that_its_holder_is_there(manager, clock):
    task, token = manager.get_compact_task("spark", does_large=True)
    clock.advance(900)
    manager.heartbeat_task(task.id, token, 1)
    clock.advance(900)
    assert manager.get_compact_task("small") is None


def test_small_tasks_are_everybodys(meta_store, clock):
    made, files = open_manager(meta_store, clock, compaction=replace(LARGE, large_task_bytes=1 << 40)), Files()
    writer = made.claim_writer()
    assert made.get_compact_task("spark", does_large=True) is None
    for number in range(1, 5):
        made.commit_epoch(writer, epoch_of(number), [files.make(number)])
    assert made.get_compact_task("small") is not None
    assert not made.running_tasks()[0].is_journaled


# -- reuse of an earlier attempt's results -------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["silent", "failed", "handed back"])
def test_what_an_earlier_attempt_made_may_be_reported_by_a_later_one(manager, clock, end):
    task, first = manager.get_compact_task("spark", does_large=True)
    if end == "failed":
        manager.fail_task(task.id, first, "no luck")
    elif end == "handed back":
        manager.hand_back_task(task.id, first)
    clock.advance(LARGE.task_lease_ms)
    again, second = manager.get_compact_task("spark-again", does_large=True)
    assert again == task and second != first
    results = results_of(task, first)
    with pytest.raises(TaskRefused):
        manager.report_compact_task(task.id, first, results)
    version = manager.report_compact_task(task.id, second, results)
    assert {name_prefix(info.name) for info in version.sstables} == {name_prefix(first)}


def test_of_a_small_task_nothing_of_an_earlier_attempt_counts(manager, clock):
    task, first = manager.get_compact_task("small")
    clock.advance(LARGE.task_lease_ms)
    _, second = manager.get_compact_task("small")
    with pytest.raises(TaskRefused, match="no name of this attempt"):
        manager.report_compact_task(task.id, second, results_of(task, first))


def test_a_row_of_before_is_read(manager, meta_store):
    task, _ = manager.get_compact_task("small")
    ((key, row),) = meta_store.list(TASK)
    older = row.replace(b'"earlier":[],', b"").replace(b'"is_journaled":false,', b"")
    assert len(older) < len(row)
    meta_store.transaction(MetaOperations(put={key: older}))
    assert RunningTask.decode(key, older) == RunningTask.decode(key, row) == manager.running_tasks()[0]
    assert manager.running_tasks()[0].task == task


# -- end to end ----------------------------------------------------------------------------------------------------


class Driver:
    """Runs large tasks as the Spark driver does, on threads; raises after `dies_after` subcompactions."""

    def __init__(self, objects, dies_after=None):
        self.objects, self.dies_after = objects, dies_after
        self.runs, self.forgotten = [], []
        self.reached = threading.Event()

    def run(self, task, prefix, *, progress=None, is_cancelled=None):
        progress_log = TaskProgressLog(self.objects, task)
        files = [info for part in task.inputs for info in part.sstables]
        cuts = boundaries_of(files, self.objects, max(1, task.input_bytes // 4))
        split = progress_log.split(lambda: Split(cuts, (1,) * (len(cuts) + 1)))
        specs = replace(task, cuts=split.cuts).ranges()
        done = progress_log.results(len(specs))
        left = [spec for spec in specs if spec.index not in done]
        self.runs.append((len(done), len(left)))
        runner = ThreadRunner(self.objects, threads=1, memory_bytes=1 << 20)
        for number, spec in enumerate(left):
            if number == self.dies_after:
                raise KeyError("the driver died")
            (done[spec.index],) = runner.run([spec], prefix)
            write_result(self.objects, progress_log.path(spec.index), done[spec.index])
        return [done[index] for index in range(len(specs))]

    def forget(self, task):
        self.forgotten.append(task.id)
        TaskProgressLog(self.objects, task).clear()


def vacuum(store):
    """Runs vacuum; returns the stored SSTable names and the paths of progress logs."""
    Vacuum(store.manager._keeper.meta_store, store.objects, store.clock, options=VacuumOptions(grace_ms=0)).run()
    return ({sstable_name_of(found.path) for found in store.objects.list(SSTABLE_PREFIX)},
            [found.path for found in store.objects.list(LOG_PREFIX)])


def large_store():
    """A store whose clock is ahead of the objects' timestamps, so that vacuum treats no object as young."""
    store = Store(options=replace(LARGE, l0_base_bytes=1))
    store.clock.now_ms = 4_000_000_000_000
    store.write(6)
    store.manager.compact_range(EVERYTHING)
    return store


def compactor(store, driver):
    return Compactor(store.manager, store.objects, store.options, large=driver)


def live(store):
    return {info.name for info in store.manager.version.sstables}


def test_a_driver_that_died_is_gone_on_from_and_nothing_is_left(monkeypatch):
    store = large_store()
    before, first, second = store.rows(), Driver(store.objects, dies_after=2), Driver(store.objects)
    with pytest.raises(KeyError, match="died"):
        compactor(store, first).run_one()
    names, progress_log = vacuum(store)
    assert len(names) > len(live(store)) and len(progress_log) == 3      # kept: the split and two results
    store.clock.advance(LARGE.task_lease_ms)
    assert compactor(store, second).run_one()
    assert first.runs[0][0] == 0 and second.runs == [(2, first.runs[0][1] - 2)]
    assert second.forgotten and store.rows() == before
    store.manager.lift_leases()
    assert vacuum(store) == (live(store), [])


def test_what_a_task_made_that_ends_otherwise_is_taken_away():
    store = large_store()
    before = store.rows()
    with pytest.raises(KeyError):
        compactor(store, Driver(store.objects, dies_after=2)).run_one()
    (row,) = store.manager.running_tasks()
    assert cancel_task(store.manager, row.task.id, "no more")
    assert vacuum(store) == (live(store), [])
    assert store.rows() == before


def test_a_progress_log_whose_driver_died_after_the_report_is_removed():
    store = large_store()
    driver = Driver(store.objects)
    driver.forget = lambda task: None
    assert compactor(store, driver).run_one()
    assert list(store.objects.list(LOG_PREFIX))
    assert vacuum(store)[1] == []


def test_small_tasks_of_a_compactor_with_spark_are_done_by_its_threads():
    store = large_store()
    store.options = replace(store.options, large_task_bytes=1 << 40)
    driver = Driver(store.objects)
    assert compactor(store, driver).run_one() and driver.runs == []
