"""Random programs whose compaction tasks run on Spark: the results are the same."""

from __future__ import annotations

import itertools

import pytest

from hummock.compaction.spark import SparkRunner
from tests.model.hummock_world import World
from tests.model.test_hummock_model import run_program

pytestmark = pytest.mark.spark
TASKS, OPERATIONS = 3, 16
SLOW_PROGRAMS, SLOW_OPERATIONS, SLOW_PARTS = 60, 60, 10


@pytest.fixture
def world_on_spark(spark):
    """A World class whose tasks run on Spark, and the list of tasks of all its instances."""
    tasks = []

    class WorldOnSpark(World):
        def done(self, task, token):
            tasks.append(task)
            return SparkRunner(spark, self.objects.url, memory_bytes=1 << 20).run(self.in_ranges(task), token[:16])

    return WorldOnSpark, tasks


def test_random_programs_until_spark_has_done_some_tasks(world_on_spark):
    kind, tasks = world_on_spark
    for seed in itertools.count():
        run_program(seed, OPERATIONS, kind, on_disk=True)
        if len(tasks) >= TASKS:
            return


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(SLOW_PARTS))
def test_many_random_programs(world_on_spark, part):
    kind, tasks = world_on_spark
    for seed in range(1_000 + part, 1_000 + SLOW_PROGRAMS, SLOW_PARTS):
        run_program(seed, SLOW_OPERATIONS, kind, on_disk=True)
    print(len(tasks), "tasks")
    assert tasks
