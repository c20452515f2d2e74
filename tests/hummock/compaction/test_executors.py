"""Executors: threads and Spark write the same files for the same ranges, and can be cancelled."""

from __future__ import annotations

import random
import threading
from dataclasses import replace

import pytest

from hummock.base.foreground import ForegroundWork
from hummock.base.json_fields import U64
from hummock.base.key import user_key
from hummock.compaction import subcompaction
from hummock.compaction.executors import ThreadRunner
from hummock.compaction.progress_log import TaskProgressLog
from hummock.compaction.spark import SparkRunner
from hummock.compaction.subcompaction_planner import Split, boundaries_of
from hummock.compaction.task import OutputOptions
from hummock.compaction.worker_task import WorkerTask, carry_out, decode_result
from hummock.errors import Corruption, HummockError, InvalidTask, TaskCancelled
from hummock.object_store import open_object_store
from hummock.object_store.base import name_prefix, sstable_data_path
from hummock.object_store.memory import MemoryObjectStore
from tests.support.drivers.compaction_files import entries_in, names, put_run, task_of

MEMORY, PREFIX = 8 << 20, "0123456789abcdef"
OUTPUT = OutputOptions(40_000, 2_000, "lz4", "blocked_bloom", 10)
SPLIT, OTHER = Split((b"k", b"m"), (5, 7, 2)), Split((b"other",), (1, 1))
KINDS = ["threads", pytest.param("spark", marks=pytest.mark.spark)]


@pytest.fixture(scope="module")
def url_and_task(tmp_path_factory):
    """(URL of a store, task in seven ranges over three of its runs)."""
    url = f"file://{tmp_path_factory.mktemp('store')}"
    store, rng, mint = open_object_store(url), random.Random(7), names()
    keys = sorted({user_key(rng.randrange(3), rng.randrange(4), rng.randbytes(6)) for _ in range(6_000)})
    runs = [put_run(store, [(key, epoch << 16, None if rng.random() < 0.1 else rng.randbytes(60)) for key in keys
                            if rng.random() < share], mint, sstable_bytes=60_000)
            for epoch, share in ((3, 0.2), (2, 0.5), (1, 1.0))]
    task = task_of(runs, watermark=9 << 16, drop_tombstones=True, output=OUTPUT)
    cuts = boundaries_of([info for run in runs for info in run], store, task.input_bytes // 7)
    assert len(cuts) == 6
    yield url, replace(task, cuts=cuts)
    store.close()


@pytest.fixture(params=KINDS)
def runner(request, url_and_task):
    if request.param == "threads":
        return ThreadRunner(open_object_store(url_and_task[0]), threads=2, memory_bytes=2 * MEMORY)
    return SparkRunner(request.getfixturevalue("spark"), url_and_task[0], memory_bytes=MEMORY)


def content(store, results):
    """Results without names and times, and the bytes of their data files."""
    return [(result.index, result.rows_read, result.rows_dropped, result.hash_read, result.hash_dropped,
             [(replace(info, name="", meta_digest="", meta_bytes=0), store.get(sstable_data_path(info.name)))
              for info in result.sstables]) for result in results]


def test_every_runner_makes_the_same_files_but_for_their_names(runner, url_and_task):
    url, task = url_and_task
    store, specs = open_object_store(url), task.ranges()
    expected = ThreadRunner(store, threads=1, memory_bytes=MEMORY).run(specs, "f" * 16)
    got = runner.run(specs, PREFIX)
    assert content(store, got) == content(store, expected)
    assert sum(result.rows_read for result in got) == task.input_rows
    assert sum(result.hash_read for result in got) % U64 == task.input_hash
    made = [info.name for result in got for info in result.sstables]
    assert len(made) > 7 and {name_prefix(name) for name in made} == {PREFIX}
    rows = [entries_in(store, info) for result in got for info in result.sstables]
    assert rows == [entries_in(store, info) for result in expected for info in result.sstables]
    assert runner.slots == 2


def test_results_come_in_the_order_of_the_specs_whatever_that_is(runner, url_and_task):
    specs = list(url_and_task[1].ranges())
    random.Random(3).shuffle(specs)
    assert [result.index for result in runner.run(specs, PREFIX)] == [spec.index for spec in specs]


def test_nothing_to_do_is_done(runner):
    assert runner.run([], PREFIX) == []


def test_a_runner_can_be_cancelled_and_works_again(runner, url_and_task):
    specs = url_and_task[1].ranges()
    with pytest.raises(TaskCancelled):
        runner.run(specs, PREFIX, is_cancelled=lambda: True)
    assert len(runner.run(specs[:2], PREFIX)) == 2


def test_a_file_that_is_gone_is_named_and_the_runner_works_again(runner, url_and_task):
    url, task = url_and_task
    store, (first, *rest) = open_object_store(url), task.inputs
    victim = first.sstables[len(first.sstables) // 2]
    missing = replace(task, inputs=(replace(first, sstables=tuple(
        replace(info, name="e" * 32) if info is victim else info for info in first.sstables)), *rest))
    with pytest.raises(HummockError, match="e" * 32):
        runner.run(missing.ranges(), PREFIX)
    assert len(runner.run(task.ranges()[:2], PREFIX)) == 2
    store.close()


def test_progress_comes_to_the_rows_that_were_read(runner, url_and_task):
    seen: list[int] = []
    specs = url_and_task[1].ranges()
    runner.run(specs, PREFIX, progress=seen.append)
    assert all(0 <= rows <= url_and_task[1].input_rows for rows in seen)
    if isinstance(runner, ThreadRunner):
        assert max(seen) == url_and_task[1].input_rows


class LateStore(MemoryObjectStore):
    """No file is closed before `may_end` is set."""

    def __init__(self):
        super().__init__()
        self.may_end = threading.Event()
        self.may_end.set()

    def create(self, path, *, if_absent=True):
        writer = super().create(path, if_absent=if_absent)
        close = writer.close

        def close_late(*data):
            assert self.may_end.wait(60), "the next range waited for the files of this one"
            close(*data)

        writer.close = close_late
        return writer


def test_a_thread_merges_one_range_while_the_files_of_another_become_durable(monkeypatch):
    store, mint, merging, concurrency, merged = LateStore(), names(), [], [], []
    original = subcompaction.run_pipeline
    entries = [(b"%05d" % n, 1 << 16, b"v" * 40) for n in range(900)]
    task = task_of([put_run(store, entries, mint)], cuts=(b"00300", b"00600"), output=OUTPUT)

    def run_pipeline(*arguments):
        merging.append(1)
        concurrency.append(len(merging))
        if len(concurrency) == 2:
            store.may_end.set()
        merged.append(original(*arguments))
        merging.pop()
        return merged[-1]

    monkeypatch.setattr(subcompaction, "run_pipeline", run_pipeline)
    store.may_end.clear()
    results = ThreadRunner(store, threads=1, memory_bytes=MEMORY).run(task.ranges(), PREFIX)
    assert [entry for result in results for info in result.sstables for entry in entries_in(store, info)] == entries
    assert concurrency == [1, 1, 1] and sorted(merged) == [300, 300, 300]


def test_merges_pause_for_work_that_somebody_waits_for():
    store, mint, foreground, done = MemoryObjectStore(), names(), ForegroundWork(), threading.Event()
    entries = [(b"%05d" % n, 1 << 16, b"v" * 40) for n in range(900)]
    task = task_of([put_run(store, entries, mint)], output=OUTPUT)
    runner = ThreadRunner(store, threads=1, memory_bytes=MEMORY, foreground=foreground)

    def run():
        results = runner.run(task.ranges(), PREFIX)
        merged.extend(entry for result in results for info in result.sstables for entry in entries_in(store, info))
        done.set()

    for ends in (True, False):          # what lasts longer than some tenths of a second is not waited for
        merged: list[object] = []
        done.clear()
        foreground.begin()
        thread = threading.Thread(target=run)
        thread.start()
        assert not done.wait(0.05) and not merged
        if ends:
            foreground.end()
        thread.join()
        assert merged == entries


# -- worker tasks ----------------------------------------------------------------------------------------------


def test_a_narrowed_range_names_what_it_touches_and_gives_the_same(url_and_task):
    url, task = url_and_task
    store, whole = open_object_store(url), task.ranges()
    runner = ThreadRunner(store, threads=1, memory_bytes=MEMORY)
    for spec in whole:
        narrow = spec.narrowed()
        files = [info for part in narrow.task.inputs for info in part.sstables]
        assert 0 < len(files) < sum(len(part.sstables) for part in task.inputs)
        assert not narrow.task.cuts
        assert content(store, runner.run([narrow], PREFIX)) == content(store, runner.run([spec], PREFIX))


def test_a_range_that_touches_nothing_gives_nothing(url_and_task):
    spec = replace(url_and_task[1].ranges()[-1], start=b"\xff" * 9, end=None).narrowed()
    assert spec.task.inputs == ()
    result = decode_result(carry_out(WorkerTask(spec, url_and_task[0], PREFIX, MEMORY, 60_000).encode()))
    assert (result.sstables, result.rows_read) == ((), 0)


def test_a_worker_task_is_read_as_it_was_written(url_and_task):
    worker_task = WorkerTask(url_and_task[1].ranges()[2].narrowed(), url_and_task[0], PREFIX, MEMORY, 60_000,
                             "compact/7/3")
    assert WorkerTask.decode(worker_task.encode()) == worker_task
    for bad in (b"", b"[]", b"{}", worker_task.encode().replace(b'"format": 1', b'"format": 0')):
        with pytest.raises(InvalidTask):
            WorkerTask.decode(bad)
    with pytest.raises(InvalidTask):
        decode_result(b"{")


def test_an_attempt_ends_no_file_after_its_time(url_and_task, monkeypatch):
    """An attempt that lost its driver stops at its deadline."""
    monkeypatch.setattr("hummock.compaction.worker_task.deadline", lambda limit_ms: lambda: limit_ms == 0)
    spec = url_and_task[1].ranges()[0].narrowed()
    with pytest.raises(TaskCancelled):
        carry_out(WorkerTask(spec, url_and_task[0], PREFIX, MEMORY, 0).encode())
    assert decode_result(carry_out(WorkerTask(spec, url_and_task[0], PREFIX, MEMORY, 1).encode())).rows_read > 0


# -- progress log ----------------------------------------------------------------------------------------------


def test_a_result_is_written_down_once_by_whoever_comes_first(url_and_task):
    url, task = url_and_task
    store = open_object_store(url)
    progress_log, spec = TaskProgressLog(store, replace(task, cuts=())), task.ranges()[3]
    assert progress_log.results(7) == {}
    one, two = (decode_result(carry_out(WorkerTask(spec.narrowed(), url, prefix * 16, MEMORY, 60_000,
                                                   progress_log.path(3)).encode())) for prefix in "ab")
    assert one != two
    assert TaskProgressLog(store, replace(task, cuts=())).results(7) == {3: one}
    assert progress_log.results(3) == {}
    progress_log.clear()
    assert progress_log.results(7) == {}


def test_the_first_driver_says_where_a_task_is_cut(url_and_task):
    url, task = url_and_task
    store = open_object_store(url)
    progress_log, planned = TaskProgressLog(store, replace(task, id=8, cuts=())), []

    def plan():
        planned.append(1)
        return SPLIT

    assert progress_log.split(plan) == progress_log.split(lambda: OTHER) == SPLIT
    assert len(planned) == 1
    assert TaskProgressLog(store, replace(task, id=9, cuts=())).split(lambda: OTHER) == OTHER
    assert TaskProgressLog(store, replace(task, id=8, cuts=(), watermark=1)).split(lambda: OTHER) == OTHER


def test_a_damaged_progress_log_is_not_used(url_and_task):
    url, task = url_and_task
    store, rng = open_object_store(url), random.Random(5)
    progress_log = TaskProgressLog(store, replace(task, id=11, cuts=()))
    carry_out(WorkerTask(task.ranges()[3].narrowed(), url, PREFIX, MEMORY, 60_000, progress_log.path(3)).encode())
    progress_log.split(lambda: SPLIT)
    for path in (progress_log.path(3), progress_log.path(3).replace("000003", "plan")):
        data = bytearray(store.get(path))
        for at in rng.sample(range(len(data)), 20):
            changed = bytearray(data)
            changed[at] ^= 1 << rng.randrange(8)
            store.put(path, bytes(changed))
            if path.endswith("plan"):
                with pytest.raises(Corruption, match="plan"):
                    progress_log.split(lambda: OTHER)
            else:
                assert progress_log.results(7) == {}
        store.put(path, bytes(data[:10]))
    assert progress_log.results(7) == {}


@pytest.mark.spark
def test_ranges_on_spark_are_written_down_as_they_end(spark, url_and_task):
    url, task = url_and_task
    store = open_object_store(url)
    progress_log = TaskProgressLog(store, replace(task, id=12, cuts=()))
    results = SparkRunner(spark, url, memory_bytes=MEMORY).run(task.ranges(), PREFIX, log=progress_log)
    assert progress_log.results(7) == dict(enumerate(results))
