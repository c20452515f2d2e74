"""Epochs on Spark while tasks, Python workers, executors and drivers die, run twice or are replaced: each row once in
each view, every acknowledged statement, and no file that no version needs.

    HUMMOCK_SPARK_EPOCH_ROUNDS=100 python -m pytest -m slow tests/reliability/test_spark_epoch_faults.py
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from stream.protocol import Step
from tests.reliability.epoch_workload import work
from tests.support.drivers.epoch_chaos import WORKER_FAULTS, marks_of, plan_faults
from tests.support.drivers.seeds import run_seed
from tests.support.worlds.epoch_world import (
    ABANDONED,
    LIVES,
    MOST_STEPS,
    REPLACED,
    STATEMENTS,
    EpochWorld,
    chaos,
)

MANY_ROUNDS = int(os.environ.get("HUMMOCK_SPARK_EPOCH_ROUNDS", "100"))
SHARES = {"threads": 0.7, "executors": 0.2, "hosts": 0.1}
"""Of the rounds, by where tasks run: threads of the driver, two executors that are killed, two hosts that compete."""
AT_THE_END = 1 << 20
"""A step that no task has: the fault hits it when it has done everything."""
ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600 + 120 * MANY_ROUNDS)]


def test_a_store_outlives_a_round_of_each_kind(spark, tmp_path):
    """Every fault of a task in one round; then a driver that is replaced or abandoned, and one that is killed."""
    rng = random.Random(run_seed())
    world = EpochWorld(spark, tmp_path, run_seed())
    faults = {number: (fault, rng.randint(1, MOST_STEPS)) for number, fault in enumerate(WORKER_FAULTS, 1)}
    world.round(LIVES, faults)
    assert marks_of(world.url).keys() >= {f"{number} {fault}" for number, (fault, _) in faults.items()}
    killed = str(rng.choice([Step.SYNC, Step.COMMIT, Step.COMMITTED, Step.NOTIFY]))
    for turn in (rng.choice([REPLACED, ABANDONED]), killed):
        print(turn)
        world.round(turn, {})


def test_failed_attempts_leave_nothing_behind_while_their_driver_lives(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("stream.spark.spark_worker.NAMES_SECONDS", 0.0)
    world = EpochWorld(spark, tmp_path, run_seed())
    plan_faults(world.url, dict.fromkeys(range(9, 40, 3), ("killed", AT_THE_END)))
    with chaos(), world.driver() as db:
        work(db, world.seed, 0, STATEMENTS, lambda text: None)
        db.pause()
        db.flush()
        assert "9 killed" in marks_of(world.url)
        world.vacuum(0)
        assert "shuffle file" not in world.remains()


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHARES)
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and several loopback addresses")
def test_a_store_outlives_rounds_of_anything(tmp_path, kind):
    rounds = max(1, round(MANY_ROUNDS * SHARES[kind]))
    command = [sys.executable, "-m", "tests.support.worlds.epoch_world", kind, str(tmp_path), str(run_seed()), "0",
               str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300 + 120 * rounds,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    print(done.stdout)
    assert "all is well" in done.stdout, done.stdout[-4_000:] + done.stderr[-4_000:]
