"""Compaction on Spark of whole stores: beside a writer, resumed, cancelled, and with samples read by a job."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import hummock
from hummock.base.key import user_key
from hummock.compaction import spark as on_spark
from hummock.compaction.progress_log import LOG_PREFIX, TaskProgressLog
from hummock.compaction.spark import SparkTasks
from hummock.compaction.subcompaction_planner import read_samples
from hummock.compactor import Compactor
from hummock.errors import TaskCancelled
from hummock.meta import open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store import open_object_store
from hummock.options import CompactionOptions
from tests.support.drivers.compaction_files import names, put_run
from tests.support.worlds.manager_parts import cancel_task

pytestmark = pytest.mark.spark
OPTIONS = CompactionOptions(large_task_bytes=1, l0_runs=4, sstable_bytes=1 << 14, history_ms=0, task_retry_ms=1)
MEMORY = 8 << 20


class World:
    """A store in a directory, a model of its rows, and a Spark compactor with its own manager."""

    def __init__(self, spark, directory, seed=1):
        self.url, self.rng, self.model, self.epoch = f"file://{directory}", random.Random(seed), {}, None
        self.store = hummock.open(self.url, role="writer", compaction=False, inline_bytes=0)
        self.epochs = hummock.EpochGenerator(last=self.store.committed_epoch)
        self.objects = open_object_store(self.url)
        self.meta_store = open_meta_store(self.url, None, object_store=self.objects, create=False)
        self.manager = HummockManager(self.meta_store, self.objects, compaction=OPTIONS)
        self.large = SparkTasks(spark, self.objects, memory_bytes=MEMORY)
        self.compactor = Compactor(self.manager, self.objects, OPTIONS, large=self.large)

    def write(self, commits, rows=300):
        for _ in range(commits):
            batch = {user_key(1, self.rng.randrange(4), b"%04d" % self.rng.randrange(2_000)):
                     None if self.rng.random() < 0.2 else self.rng.randbytes(30) for _ in range(rows)}
            self.epoch = self.epochs.next()
            self.store.ingest_batch(hummock.WriteBatch(sorted(batch.items())), self.epoch)
            self.store.commit(self.epoch)
            self.model.update(batch)

    def check(self):
        with hummock.open(self.url) as reader:
            rows = list(reader.scan(hummock.KeyRange.table(1), self.epoch))
        assert rows == sorted((key, value) for key, value in self.model.items() if value is not None)

    def close(self):
        self.compactor.close()
        self.store.close()
        self.manager.close()
        self.meta_store.close()
        self.objects.close()


@pytest.fixture
def world(spark, tmp_path):
    made = World(spark, tmp_path)
    yield made
    made.close()


def test_a_store_that_spark_compacts_reads_as_before(world):
    world.write(5)
    world.manager.compact_range(hummock.KeyRange())
    assert world.compactor.run_one()
    world.check()
    world.write(3)
    world.manager.compact_range(hummock.KeyRange())
    assert world.compactor.run_one()
    world.check()
    version = world.manager.refresh()
    assert [level.number for level in version.levels if level.runs] == [6]
    assert not [found.path for found in world.objects.list(LOG_PREFIX)]


def test_a_second_driver_does_only_what_is_left(world, monkeypatch):
    world.write(5)
    world.manager.compact_range(hummock.KeyRange())
    task, token = world.manager.get_compact_task("died", does_large=True)
    monkeypatch.setattr(on_spark, "range_bytes_for", lambda total, slots: total // 4)
    first = world.large.run(task, token[:16])
    lost = TaskProgressLog(world.objects, task).path(2)
    world.objects.delete([lost])
    submitted = []
    run_specs = on_spark.run_specs
    monkeypatch.setattr(on_spark, "run_specs", lambda spark, specs, *rest, **more: (
        submitted.append(len(specs)), run_specs(spark, specs, *rest, **more))[1])
    second = world.large.run(task, "b" * 16)
    assert submitted == [1] and len(second) == len(first) > 3
    assert [one == other for one, other in zip(first, second, strict=True)].count(False) == 1
    assert first[2] != second[2] and replace(second[2], sstables=(), cpu_seconds=0.0) == replace(
        first[2], sstables=(), cpu_seconds=0.0)
    world.manager.report_compact_task(task.id, token, first)
    world.check()


def test_a_cancelled_task_cancels_the_job_and_is_free_at_once(world):
    world.write(5)
    world.manager.compact_range(hummock.KeyRange())
    task, _ = world.manager.get_compact_task("spark", does_large=True)
    with pytest.raises(TaskCancelled):
        world.large.run(task, "c" * 16, is_cancelled=lambda: True)
    cancel_task(world.manager, task.id, "enough")
    world.check()


def test_samples_of_very_many_files_are_read_by_a_job(spark, tmp_path, monkeypatch):
    store = open_object_store(f"file://{tmp_path}")
    infos = put_run(store, [(b"%05d" % n, 1 << 16, b"v" * 90) for n in range(4_000)], names(), sstable_bytes=9_000,
                    codec="none")
    tasks = SparkTasks(spark, store, memory_bytes=MEMORY)
    expected = list(read_samples(store, infos))
    jobs = []
    run_specs = on_spark.run_specs
    monkeypatch.setattr(on_spark, "run_specs", lambda spark, specs, *rest, **more: (
        jobs.append(len(specs)), run_specs(spark, specs, *rest, **more))[1])
    monkeypatch.setattr(on_spark, "SAMPLED_HERE", 10)
    monkeypatch.setattr(on_spark, "SAMPLED_BY_TASK", 20)
    assert list(tasks._samples(infos)) == expected
    assert jobs == [-(-len(infos) // 20)]
