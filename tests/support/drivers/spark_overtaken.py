"""Rounds whose slow tasks Spark runs a second time, beside the first attempt.

    python -m tests.support.drivers.spark_overtaken load|backfill|compaction DIRECTORY SEED

Spark never does so on the host of the first attempt, so that `local-cluster`, which is one host, does not suffice:
these rounds run on a standalone cluster of two workers with distinct loopback addresses. The process prints "all is
well".
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hummock.compaction import spark as on_spark
from hummock.spark import spark_session
from tests.support.drivers import bulk_chaos, spark_chaos
from tests.support.drivers.bulk_driver import SPARK
from tests.support.worlds.bulk_world import BulkWorld
from tests.support.worlds.spark_world import RANGES, SparkWorld

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[3]
MASTER, HOSTS = "127.0.0.1", ("127.0.0.2", "127.0.0.3")
START_SECONDS = 120
MEMORY = "512m"


@contextmanager
def session_on_two_hosts(directory: Path) -> Iterator[SparkSession]:
    """A session with one single-core executor on each of two hosts; logs are in `directory`."""
    import pyspark

    home = Path(pyspark.__file__).parent
    with socket.socket() as free, ExitStack() as ended:
        free.bind((MASTER, 0))
        port = free.getsockname()[1]
        free.close()

        def start(kind: str, host: str, port: int, *arguments: str) -> None:
            log = ended.enter_context((directory / f"{host}.log").open("wb"))
            process = subprocess.Popen(
                [home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", "--host", host, "--port", str(port),
                 "--webui-port", "0", *arguments], stdout=log, stderr=log,
                env={**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"})
            ended.callback(process.wait)
            ended.callback(process.terminate)

        master = f"spark://{MASTER}:{port}"
        start("master.Master", MASTER, port)
        _wait_for_answers(port)
        for host in HOSTS:
            start("worker.Worker", host, 0, "--cores", "1", "--memory", MEMORY, "--work-dir", str(directory / host),
                  master)
        session = spark_session(master, settings={
            **SPARK, "spark.executor.memory": MEMORY, "spark.driver.host": MASTER, "spark.driver.bindAddress": MASTER,
            "spark.pyspark.python": sys.executable, "spark.executorEnv.PYTHONPATH": str(ROOT)})
        ended.callback(session.stop)
        yield session


def _wait_for_answers(port: int) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        with suppress(ConnectionRefusedError), socket.create_connection((MASTER, port)):
            return
        time.sleep(0.05)
    raise TimeoutError(f"no answer at port {port}")


def load(session: SparkSession, directory: Path, seed: int) -> None:
    _bulk(BulkWorld(session, directory, seed), BulkWorld.load_round, bulk_chaos.LOAD_STAGES)


def backfill(session: SparkSession, directory: Path, seed: int) -> None:
    _bulk(BulkWorld(session, directory, seed), BulkWorld.backfill_round, bulk_chaos.BACKFILL_STAGES)


def _bulk(world: BulkWorld, do_round, stages: tuple[str, ...]) -> None:
    """Each stage has a task that is slow before its work, and one that is slow after it."""
    for first in range(len(bulk_chaos.SLOW_FAULTS)):
        for number in range(2):
            slow = {f"{stage} {number}": bulk_chaos.SLOW_FAULTS[(first + index) % len(bulk_chaos.SLOW_FAULTS)]
                    for index, stage in enumerate(stages)}
            print(slow, flush=True)
            do_round(world, "lives", slow)
            check_all_were_overtaken(set(slow), bulk_chaos.marks_of(world.url))


def compaction(session: SparkSession, directory: Path, seed: int) -> None:
    """A slow range in each task, whose driver ends in several ways."""
    on_spark.WORK = spark_chaos.WORK
    on_spark.range_bytes_for = lambda total, slots: max(1, total // RANGES)
    rng, world = random.Random(seed), SparkWorld(session, directory, seed)
    for end in ("lives", "dies before its report", "reports twice", "is cancelled"):
        slow = {rng.randrange(RANGES // 2): "slow"}
        print(end, slow, flush=True)
        world.round(end, slow)
        check_all_were_overtaken(set(map(str, slow)), {mark.name for mark in spark_chaos.plan_of(world.url).iterdir()})


def check_all_were_overtaken(slow: set[str], marks: set[str]) -> None:
    """Checks that second attempts began, for which the first ones waited."""
    assert marks >= slow | {f"{task} again" for task in slow}, marks


if __name__ == "__main__":
    what, where, seed = sys.argv[1:]
    with session_on_two_hosts(Path(where)) as session:
        {"load": load, "backfill": backfill, "compaction": compaction}[what](session, Path(where), int(seed))
    print("all is well", flush=True)
