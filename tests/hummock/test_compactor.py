"""Compactor: reads stay the same, each task is reported once, and failed attempts are retried."""

import random
import threading
import time
from dataclasses import replace

import pytest

import hummock.compactor
from hummock.base.key import KeyRange, user_key
from hummock.columnar.write_batch import WriteBatch
from hummock.compaction.picker import early
from hummock.compaction.task import TaskKind
from hummock.compactor import Compactor
from hummock.errors import Corruption, ObjectStoreError
from hummock.meta.compaction.damaged_tasks import REMEMBERED_MS
from hummock.meta.store.memory import MemoryMetaStore
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import CompactionOptions, StorageOptions
from hummock.store.storage import HummockStorage
from tests.support.worlds.manager_parts import StandingClock, cancel_task, epoch_of, open_manager, task_answers

OPTIONS = CompactionOptions(l0_runs=4, l0_base_bytes=1 << 14, history_ms=0, task_lease_ms=30_000, threads=2,
                            memory_bytes=1 << 20, sstable_bytes=1 << 14,
                            range_bytes=1 << 14, block_bytes=1 << 10, task_retry_ms=1, task_tries=2)
EVERYTHING = KeyRange.table(1)


class Store:
    """A writer with its manager and a manual clock."""

    def __init__(self, object_store=None, options=OPTIONS):
        self.clock, self.objects = StandingClock(), object_store or MemoryObjectStore()
        self.manager = open_manager(MemoryMetaStore(), self.clock, object_store=self.objects, compaction=options)
        self.options = options
        self.storage = HummockStorage(self.manager, self.objects, StorageOptions(block_bytes=1 << 10, inline_bytes=0),
                                      session=self.manager.claim_writer(), node="store")
        self.rng = random.Random(7)
        self.epoch = 0

    def write(self, commits, rows=200):
        for _ in range(commits):
            self.epoch += 1
            keys = sorted({self.rng.randrange(1_000) for _ in range(rows)})
            batch = WriteBatch([(user_key(1, 0, b"%04d" % key),
                                 self.rng.randbytes(20) if self.rng.random() < .8 else None) for key in keys])
            self.storage.ingest_batch(batch, epoch_of(self.epoch))
            self.storage.commit(epoch_of(self.epoch))
        self.manager.renew_lease("store")
        return self

    def rows(self):
        return list(self.storage.scan(EVERYTHING, epoch_of(self.epoch)))

    def compactor(self, **changes):
        return Compactor(self.manager, self.objects, self.options, random_bytes=random.Random(3).randbytes, **changes)


class GatedStore(MemoryObjectStore):
    """While armed, puts wait for `gate`, or raise `error`."""

    def __init__(self):
        super().__init__()
        self.reached, self.gate, self.error = threading.Event(), threading.Event(), None
        self.is_armed = False

    def put(self, path, data, *, if_absent=False):
        if self.is_armed:
            self.reached.set()
            if self.error is not None:
                raise self.error
            assert self.gate.wait(30)
        super().put(path, data, if_absent=if_absent)


def test_reads_stay_as_they_were_and_the_debt_goes():
    store = Store().write(12)
    before = store.rows()
    assert store.manager.compaction_debt() > 0
    with store.compactor() as compactor:
        assert compactor.wait_idle(60)
        assert store.manager.compaction_debt() == 0 and compactor.error is None
    assert store.rows() == before
    assert len(store.manager.version.levels[0].runs) < OPTIONS.l0_runs
    done = task_answers(store.manager)
    assert done and {answer.outcome for answer in done} == {"done"}


def test_commits_wake_it_up():
    store = Store()
    with store.compactor() as compactor:
        for _ in range(5):
            store.write(3)
            before = store.rows()
            assert compactor.wait_idle(60)
            assert store.rows() == before


def test_a_few_equal_runs_are_merged_before_they_are_due():
    store = Store(options=replace(OPTIONS, l0_runs=8, l0_base_bytes=1 << 30)).write(4)
    before = store.rows()
    assert store.manager.get_compact_task("other") is None and store.manager.compaction_debt() == 0
    with store.compactor():
        deadline = time.monotonic() + 60
        while len(store.manager.version.levels[0].runs) > 1 and time.monotonic() < deadline:
            time.sleep(0.005)
    assert len(store.manager.version.levels[0].runs) == 1 and store.rows() == before


def test_early_merges_take_a_small_share_of_the_time(monkeypatch):
    monkeypatch.setattr(hummock.compactor, "EARLY_GAP_SECONDS", 0.5)
    store, begun = Store(options=replace(OPTIONS, l0_runs=64, l0_base_bytes=1 << 30)), time.monotonic()
    seen = 0
    with store.compactor():
        while time.monotonic() < begun + 1.2:
            store.write(1, rows=20)
            time.sleep(0.06)
            seen = max(seen, len(store.manager.version.levels[0].runs))
        merges = len(task_answers(store.manager))
        assert 1 <= merges <= 1 + (time.monotonic() - begun) / 0.5
    assert seen > 1, "merged each"


def test_large_runs_are_merged_once_the_store_has_rested(monkeypatch):
    monkeypatch.setattr(hummock.compactor, "EARLY_BYTES", 100)
    monkeypatch.setattr(early, "EARLY_BYTES", 100)
    monkeypatch.setattr(hummock.compactor, "REST_BYTES_PER_SECOND", 1 << 17)
    store = Store(options=replace(OPTIONS, l0_runs=64, l0_base_bytes=1 << 30)).write(3)
    before, size = store.rows(), sum(info.data_bytes for info in store.manager.version.sstables)
    begun = time.monotonic()
    with store.compactor() as compactor:
        while store.manager.version.levels[0].runs and time.monotonic() < begun + 60:
            time.sleep(0.005)
        rested = time.monotonic() - begun
        assert compactor.error is None
    assert rested >= size / (1 << 17) * 0.99 and store.rows() == before
    assert [len(level.runs) for level in store.manager.version.levels if level.runs] == [1]


def test_writes_put_off_what_waits_for_rest(monkeypatch):
    monkeypatch.setattr(hummock.compactor, "EARLY_BYTES", 100)
    monkeypatch.setattr(early, "EARLY_BYTES", 100)
    monkeypatch.setattr(hummock.compactor, "REST_BYTES_PER_SECOND", 1 << 13)
    store = Store(options=replace(OPTIONS, l0_runs=64, l0_runs_slowdown=999, l0_runs_limit=1000,
                                    l0_base_bytes=1 << 30)).write(3)
    rest = sum(info.data_bytes for info in store.manager.version.sstables) / (1 << 13)
    with store.compactor():
        begun = time.monotonic()
        while time.monotonic() < begun + 1.5 * rest:
            store.write(1, rows=1)
            time.sleep(rest / 20)
        assert task_answers(store.manager) == []


@pytest.mark.parametrize(("gaps", "merges"), [(0, True), (100, False)])
def test_a_writer_that_pauses_is_not_at_rest(monkeypatch, gaps, merges):
    """Its pauses, of a tenth of a second, suffice for a merge that does not ask how long they are."""
    monkeypatch.setattr(hummock.compactor, "EARLY_BYTES", 100)
    monkeypatch.setattr(early, "EARLY_BYTES", 100)
    monkeypatch.setattr(hummock.compactor, "REST_GAPS", gaps)
    store = Store(options=replace(OPTIONS, l0_runs=64, l0_runs_slowdown=999, l0_runs_limit=1000,
                                  l0_base_bytes=1 << 30))
    with store.compactor():
        for _ in range(10):
            store.write(1)
            time.sleep(0.1)
        assert bool(task_answers(store.manager)) == merges


@pytest.mark.parametrize(("commits", "writes_seconds", "threads"), [(5, 60.0, 1), (9, 60.0, 2), (5, 0.0, 2)],
                         ids=["beside a writer", "behind", "after the writer"])
def test_a_task_beside_a_writer_leaves_cores_to_it_until_compaction_falls_behind(
        monkeypatch, commits, writes_seconds, threads):
    monkeypatch.setattr(hummock.compactor, "WRITES_SECONDS", writes_seconds)
    store = Store()
    compactor = store.compactor()
    store.write(commits)
    assert merged_at_once(compactor, monkeypatch) == threads


def test_versions_of_compaction_itself_are_no_writer(monkeypatch):
    monkeypatch.setattr(hummock.compactor, "WRITES_SECONDS", 60.0)
    store = Store().write(5)
    compactor = store.compactor()
    compactor._on_news(store.manager.version)
    assert merged_at_once(compactor, monkeypatch) == 2


def test_a_requested_task_has_all_threads(monkeypatch):
    monkeypatch.setattr(hummock.compactor, "WRITES_SECONDS", 60.0)
    store = Store()
    compactor = store.compactor()
    store.write(3)
    store.manager.compact_range(EVERYTHING)
    assert merged_at_once(compactor, monkeypatch) == 2


def merged_at_once(compactor, monkeypatch):
    """How many ranges of the next task may merge at once."""
    seen, run = [], compactor._threads_runner.run

    def noted(specs, prefix, *, at_once, **options):
        seen.append(at_once)
        return run(specs, prefix, at_once=at_once, **options)

    monkeypatch.setattr(compactor._threads_runner, "run", noted)
    assert compactor.run_one()
    (at_once,) = seen
    return at_once


def test_metrics_and_progress_report_the_work():
    progress, store = [], Store().write(8)
    with store.compactor(on_progress=lambda task, rows: progress.append((task.id, rows))) as compactor:
        assert compactor.wait_idle(60)
    metrics = {(sample.name, *sample.labels.values()): sample.value
               for family in compactor.metrics.registry.collect() for sample in family.samples}
    answers = task_answers(store.manager)
    assert sum(value for key, value in metrics.items() if key[0] == "hummock_compact_tasks_total") == len(answers)
    assert metrics["hummock_compact_rows_total", "dropped"] > 0 < metrics["hummock_compact_bytes_total", "read"]
    assert {task_id for task_id, _ in progress} == {answer.task_id for answer in answers}


def test_a_failed_attempt_is_reported_and_tried_again():
    objects = GatedStore()
    objects.error = ObjectStoreError("sst/x", "the disk is full")
    store = Store(objects).write(6)
    before, objects.is_armed = store.rows(), True
    compactor = store.compactor()
    with pytest.raises(ObjectStoreError, match="full"):
        compactor.run_one()
    (row,) = store.manager.running_tasks()
    assert row.holder == "" and "the disk is full" in row.error
    assert not compactor.run_one()
    store.clock.advance(10)
    objects.error = None
    objects.gate.set()
    assert compactor.run_one()
    assert store.rows() == before and compactor.error is None
    compactor.close()


def damaged(store):
    """Changes one bit of the newest file of the store, and returns its name."""
    victim = next(store.manager.version.sstables)
    path = f"sst/{victim.name}.data"
    data = bytearray(store.objects.get(path))
    data[len(data) // 2] ^= 1
    store.objects.delete([path])
    store.objects.put(path, bytes(data))
    return victim.name


def test_damage_is_named_and_the_version_stays():
    store = Store().write(6)
    name, version = damaged(store), store.manager.version
    compactor = store.compactor()
    with pytest.raises(Corruption, match=name):
        compactor.run_one()
    assert {info.name for info in store.manager.refresh().sstables} == {info.name for info in version.sstables}
    compactor.close()


def test_a_task_of_a_damaged_file_is_not_tried_again_while_the_file_is_there():
    store = Store().write(6)
    name, compactor = damaged(store), store.compactor()
    with pytest.raises(Corruption, match=name):
        compactor.run_one()
    store.clock.advance(1_000)                              # more than any wait between tries
    assert store.manager.running_tasks() == [] and not compactor.run_one()
    assert [answer.outcome for answer in task_answers(store.manager)] == ["failed"]
    assert store.manager.compaction_debt() == 0 and not store.manager.is_compaction_due(store.manager.version)
    assert name in str(store.manager.damage_in(EVERYTHING))
    assert store.manager.damage_in(KeyRange.table(2)) is None
    store.clock.advance(REMEMBERED_MS)                      # somebody may have put the file back
    with pytest.raises(Corruption, match=name):
        compactor.run_one()
    store.manager.drop_files([name])
    assert store.manager.damage_in(EVERYTHING) is None
    store.write(1)
    while compactor.run_one():
        pass
    assert len(store.manager.version.levels[0].runs) < OPTIONS.l0_runs and store.manager.compaction_debt() == 0
    compactor.close()


def test_who_waits_learns_of_damage_found_before_and_meanwhile():
    store = Store().write(6)
    name = damaged(store)
    with store.compactor() as compactor:
        for _ in range(2):
            with pytest.raises(Corruption, match=name):
                compactor.wait_idle(60)
        with compactor.watch(KeyRange.table(2)) as watch:
            assert compactor.wait_idle(60, watch) and watch.error is None


def test_closing_finishes_tasks_or_abandons_them():
    for drain in (True, False):
        objects = GatedStore()
        store = Store(objects).write(6)
        before, objects.is_armed = store.rows(), True
        compactor = store.compactor().start()
        assert objects.reached.wait(30)
        closer = threading.Thread(target=compactor.close, kwargs={"drain": drain})
        closer.start()
        while compactor._is_running():
            threading.Event().wait(.001)
        objects.gate.set()
        closer.join(60)
        assert not closer.is_alive()
        left = store.manager.running_tasks()
        assert {answer.outcome for answer in task_answers(store.manager)} == ({"done"} if drain else set())
        assert [row.holder for row in left] == ([] if drain else [""] * len(left)) and store.rows() == before
        with store.compactor() as other:
            assert other.wait_idle(60)
        assert {row.task.id for row in left} <= {answer.task_id for answer in task_answers(store.manager)}
        assert store.rows() == before


def test_an_attempt_that_lost_its_task_ends_and_does_no_harm():
    objects = GatedStore()
    store = Store(objects, replace(OPTIONS, task_lease_ms=30)).write(6)
    before, objects.is_armed = store.rows(), True
    compactor = store.compactor().start()
    assert objects.reached.wait(30)
    (row, *_) = store.manager.running_tasks()
    assert cancel_task(store.manager, row.task.id, "cancelled by a test")
    objects.gate.set()
    assert compactor.wait_idle(60)
    compactor.close()
    outcomes = {answer.task_id: answer.outcome for answer in task_answers(store.manager)}
    assert outcomes[row.task.id] == "cancelled" and len(outcomes) > 1
    assert store.rows() == before


def test_a_requested_range_is_merged_into_the_last_level():
    store = Store().write(2)
    before = store.rows()
    store.manager.compact_range(KeyRange())
    with store.compactor() as compactor:
        assert compactor.wait_idle(60)
    assert [level.number for level in store.manager.version.levels if level.runs] == [OPTIONS.last_level]
    assert [answer.kind for answer in task_answers(store.manager)] == [TaskKind.MANUAL]
    assert store.rows() == before


def test_of_idle_threads_one_looks_for_tasks_ever_less_often_until_there_are_news(monkeypatch):
    monkeypatch.setattr("hummock.compactor.POLL_SECONDS", 0.001)
    monkeypatch.setattr("hummock.compactor.IDLE_POLL_SECONDS", 0.004)
    store, threads_seen, polls, enough = Store(), set(), [], threading.Event()
    get_compact_task = store.manager.get_compact_task

    def recorded(node, **options):
        threads_seen.add(threading.current_thread().name)
        if len(threads_seen) == 2:
            polls.append((threading.current_thread().name, compactor._pause))
        if len(polls) == 12:
            enough.set()
        return get_compact_task(node, **options)

    monkeypatch.setattr(store.manager, "get_compact_task", recorded)
    compactor = store.compactor()
    with compactor:
        assert enough.wait(20)
        assert len({name for name, _ in polls[2:12]}) == 1 and polls[11][1] == 0.004
        store.write(6)
        before = store.rows()
        assert compactor.wait_idle(60) and task_answers(store.manager)
        assert store.rows() == before


def test_the_task_of_a_compactor_that_died_elsewhere_is_done_here_once_its_lease_is_over(monkeypatch):
    """Without commits and requests, idle compactors still poll, at least every IDLE_POLL_SECONDS."""
    monkeypatch.setattr("hummock.compactor.POLL_SECONDS", 0.001)
    monkeypatch.setattr("hummock.compactor.IDLE_POLL_SECONDS", 0.004)
    store = Store().write(6)
    before, polls = store.rows(), threading.Semaphore(0)
    task, token = store.manager.get_compact_task("dead")
    get_compact_task = store.manager.get_compact_task
    monkeypatch.setattr(store.manager, "get_compact_task",
                        lambda node, **options: (get_compact_task(node), polls.release())[0])
    with store.compactor() as compactor:
        for elapsed_ms in (0, OPTIONS.task_lease_ms - 1):
            store.clock.advance(elapsed_ms)
            assert all(polls.acquire(timeout=20) for _ in range(8))
            assert [row.holder for row in store.manager.running_tasks()] == ["dead"]
        store.clock.advance(1)
        assert compactor.wait_idle(60)
    (answer, *_) = task_answers(store.manager)
    assert (answer.task_id, answer.outcome) == (task.id, "done") and answer.token != token
    assert len(store.manager.version.levels[0].runs) < OPTIONS.l0_runs and store.rows() == before
