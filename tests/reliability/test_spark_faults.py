"""Compaction on Spark while tasks, executors and drivers die: no wrong result, no live file deleted, no orphans."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from hummock.compaction import spark as on_spark
from tests.support.drivers.spark_chaos import WORK, WORKER_FAULTS, plan_of
from tests.support.worlds.spark_world import DRIVER_FAULTS, RANGES, SparkWorld

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[2]
SEED = 20_260


@pytest.fixture
def chaos(monkeypatch):
    monkeypatch.setattr(on_spark, "WORK", WORK)
    monkeypatch.setattr(on_spark, "range_bytes_for", lambda total, slots: max(1, total // RANGES))


def test_a_store_outlives_a_round_of_each_kind(spark, tmp_path, chaos):
    """Every worker fault in one round, then one round for each driver fault."""
    world = SparkWorld(spark, tmp_path, SEED)
    world.round("dies before its report", dict(enumerate(WORKER_FAULTS)))
    marks = {mark.name for mark in plan_of(world.url).iterdir()}
    assert marks >= {str(index) for index in range(len(WORKER_FAULTS))}     # all faults happened
    for fault in DRIVER_FAULTS:
        world.round(fault, {})


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_fifty_rounds_of_anything(spark, tmp_path, chaos):
    rng, world = random.Random(SEED), SparkWorld(spark, tmp_path, SEED)
    for number in range(54):
        driver = DRIVER_FAULTS[number % len(DRIVER_FAULTS)]
        faults = {index: rng.choice(WORKER_FAULTS) for index in range(RANGES) if rng.random() < 0.4}
        print(number, driver, faults)
        world.round(driver, faults)


CLUSTER = """
import random, sys
from pathlib import Path
from hummock.compaction import spark as on_spark
from hummock.spark import spark_session
from tests.support.drivers.spark_chaos import WORK, WORKER_FAULTS
from tests.support.worlds.spark_world import DRIVER_FAULTS, RANGES, SparkWorld
on_spark.WORK = WORK
on_spark.range_bytes_for = lambda total, slots: max(1, total // RANGES)
session = spark_session("local-cluster[2,1,1024]", settings={
    "spark.ui.enabled": "false", "spark.speculation.minTaskRuntime": "100ms", "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.5", "spark.speculation.multiplier": "1.1", "spark.task.maxFailures": "8",
    "spark.deploy.maxExecutorRetries": "-1"})
rng, world = random.Random(int(sys.argv[3])), SparkWorld(session, Path(sys.argv[1]), int(sys.argv[3]))
for number in range(int(sys.argv[2])):
    faults = {index: rng.choice(WORKER_FAULTS) for index in range(RANGES) if rng.random() < 0.3}
    faults[rng.randrange(RANGES)] = "executor killed"
    driver = DRIVER_FAULTS[number % len(DRIVER_FAULTS)]
    print(number, driver, faults, flush=True)
    world.round(driver, faults)
print("all is well", flush=True)
session.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_executors_are_killed(tmp_path):
    done = subprocess.run([sys.executable, "-c", CLUSTER, str(tmp_path), "18", str(SEED)], capture_output=True,
                          text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=1_500)
    assert "all is well" in done.stdout, done.stdout[-2_000:] + done.stderr[-4_000:]
