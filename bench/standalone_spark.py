"""A standalone cluster of Spark on this machine: a master, and workers of one core each, which run an executor each."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from hummock.spark import spark_session

ROOT = Path(__file__).resolve().parents[1]
HOST = "127.0.0.1"
START_SECONDS = 90


@contextmanager
def standalone(executors: int, cpus: Sequence[int], directory: Path) -> Iterator[Any]:
    """A session with so many executors, the n-th with all that it starts on CPU `cpus[n]`, if there are any named.
    `directory` is for their logs. TimeoutError."""
    master = f"spark://{HOST}:{_free_port()}"
    with ExitStack() as undo:
        start = partial(_started, undo, directory)
        start("master.Master", ["--host", HOST, "--port", master.rpartition(":")[2]], ())
        _wait(lambda: _listens(master), "the master")
        for number in range(executors):
            options = ["--host", HOST, "--cores", "1", "--memory", "2g", "--work-dir", str(directory), master]
            start("worker.Worker", options, cpus[number : number + 1])
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.host": HOST,
            "spark.executor.cores": "1",
            "spark.default.parallelism": str(executors),
            "spark.pyspark.python": sys.executable,
            "spark.executorEnv.PYTHONPATH": str(ROOT),
        }
        spark = spark_session(master, settings=settings, carries_rows=False)
        known = spark.sparkContext._jsc.sc().getExecutorMemoryStatus
        _wait(lambda: known().size() == executors + 1, "executors")
        yield spark


def _started(undo: ExitStack, directory: Path, name: str, options: Sequence[str], cpus: Sequence[int]) -> None:
    import pyspark

    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--webui-port", "0", *options]
    log = undo.enter_context((directory / f"{name}-{len(list(directory.glob('*.log')))}.log").open("wb"))
    environment = os.environ | {"SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "512m", "SPARK_LOCAL_IP": HOST}
    pin = partial(os.sched_setaffinity, 0, cpus) if cpus else None
    process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, preexec_fn=pin)
    undo.callback(process.wait)
    undo.callback(process.terminate)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


def _listens(url: str) -> bool:
    with socket.socket() as there:
        return there.connect_ex((HOST, int(url.rpartition(":")[2]))) == 0


def _wait(is_done: Any, what: str) -> None:
    until = time.monotonic() + START_SECONDS
    while not is_done():
        if time.monotonic() > until:
            raise TimeoutError(f"after {START_SECONDS} s there is not {what}")
        time.sleep(0.1)
