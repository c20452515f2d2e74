"""Bulk loads and backfills while tasks, executors and drivers die: all rows or none, and no orphaned files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.drivers.bulk_chaos import BACKFILL_STAGES, LOAD_STAGES, WORKER_FAULTS, marks_of
from tests.support.worlds.bulk_rounds import PARTS, run_rounds
from tests.support.worlds.bulk_world import BulkWorld

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[2]
SEED = 20_261


def test_a_load_outlives_every_fault_of_its_tasks(spark, tmp_path):
    """Each fault hits another task of one job, whose commit arrives twice and late."""
    world = BulkWorld(spark, tmp_path, SEED)
    faults = dict(zip((f"{stage} {index}" for stage in LOAD_STAGES for index in range(3)), WORKER_FAULTS, strict=True))
    world.load_round("commits twice and late", faults)
    assert marks_of(world.url) >= set(faults)


def test_a_backfill_outlives_every_fault_of_its_tasks(spark, tmp_path):
    world = BulkWorld(spark, tmp_path, SEED)
    names = [f"{stage} {index}" for stage in BACKFILL_STAGES for index in range(2)]
    faults = dict(zip(names, WORKER_FAULTS, strict=True))
    world.backfill_round("lives", faults)
    assert marks_of(world.url) >= set(faults)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("what", ["load", "backfill"])
def test_rounds_of_anything(spark, tmp_path, what, part):
    """Tasks die on threads of this process, drivers in separate processes; all parts together cover every end."""
    run_rounds(BulkWorld(spark, tmp_path, SEED + part), what, part)


CLUSTER = """
import sys
from pathlib import Path
from hummock.spark import spark_session
from tests.support.drivers.bulk_driver import SPARK
from tests.support.worlds.bulk_rounds import run_rounds
from tests.support.worlds.bulk_world import BulkWorld
master, what, part, seed = "local-cluster[2,1,1024]", sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
session = spark_session(master, settings=SPARK)
world = BulkWorld(session, Path(sys.argv[1]), seed, master)
run_rounds(world, what, part, with_executors=True)
print("all is well", flush=True)
session.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("what", ["load", "backfill"])
def test_executors_are_killed(tmp_path, what, part):
    done = subprocess.run([sys.executable, "-c", CLUSTER, str(tmp_path), what, str(part), str(SEED + part)],
                          capture_output=True, text=True, cwd=ROOT, timeout=1_700,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    print(done.stdout)
    assert "all is well" in done.stdout, done.stdout[-2_000:] + done.stderr[-4_000:]
