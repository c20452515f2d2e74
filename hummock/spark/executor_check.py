"""The check at the start of a job: executors have exactly this package, compiled, and reach the store as the driver
does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from hummock.base.process import installed_version
from hummock.errors import ExecutorUnfit, HummockError, InvalidOption
from hummock.object_store import open_object_store
from hummock.object_store.base import PROBE_PREFIX, ObjectStore
from hummock.spark.jobs import is_connect, run_job, slots
from hummock.spark.worker import NICENESS, SHIPPING, shared_url, task_niceness, task_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOT_SHARED = "give executors the store at this very URL: a directory that all machines mount, a bucket, credentials"
SETTING = f"set spark.executorEnv.{NICENESS}, or let the environment of executors name none"


def check_executors(spark: SparkSession, url: str) -> int:
    """Number of executors that reported success, of themselves and of access to the store at `url`.

    Every free slot is checked, twice on average; an executor that is added later is checked by its first task. Raises
    `ExecutorUnfit` naming the machine, the reason and the remedy.
    """
    tasks = 2 * slots(spark)
    paths = [_probe_path()]
    reachable = shared_url(url)
    store = open_object_store(url)
    try:
        _put(store, paths[0], b"driver")
        action = partial(_answers, spark, tasks, *_answering(reachable, paths[0]))
        answers = list(map(json.loads, run_job(spark, action, name="hummock: check of the executors")))
        paths += [answer["path"] for answer in answers if "path" in answer]
    finally:
        store.delete(paths)
        store.close()
    for answer in answers:
        _judge(answer)
    return len({answer["executor"] for answer in answers})


def probe(url: str, driver_path: str) -> dict[str, Any]:
    """Runs in a Spark task: what this worker has and can do."""
    import hummock.sstable.builder  # noqa: F401   a compiled module: its import is the check

    path = _probe_path()
    found = {"version": installed_version(), "setting": "", "store": "", "path": path}
    try:
        task_niceness()
    except InvalidOption as error:
        found["setting"] = str(error)
    try:
        store = task_store(url)
        _put(store, path, b"executor")
        read = store.get(path), store.get(driver_path)
        if read != (b"executor", b"driver"):
            found["store"] = f"it read {read!r}"
    except HummockError as error:
        found["store"] = f"{type(error).__name__}: {error}"
    return found


def _probe_path() -> str:
    return f"{PROBE_PREFIX}{os.urandom(16).hex()}"


def _put(store: ObjectStore, path: str, data: bytes) -> None:
    """Puts without a sync if the store can: others' puts may be waiting for theirs."""
    with store.create_scratch(path) as writer:
        writer.write(data)


def _judge(answer: dict[str, Any]) -> None:
    if answer["error"]:
        raise ExecutorUnfit(answer["host"], answer["error"], SHIPPING)
    if answer["version"] != installed_version():
        raise ExecutorUnfit(answer["host"], f"it has version {answer['version']} of this package, the driver "
                            f"{installed_version()}", SHIPPING)
    if answer["setting"]:
        raise ExecutorUnfit(answer["host"], answer["setting"], SETTING)
    if answer["store"]:
        raise ExecutorUnfit(answer["host"], answer["store"], NOT_SHARED)


def _answers(spark: SparkSession, tasks: int, answer_of: Any, batches_of: Any) -> list[str]:
    """By an RDD, which starts in seconds less than the first frame of a session; Spark Connect has frames only."""
    if is_connect(spark):
        frame = spark.range(0, tasks, 1, tasks).mapInArrow(batches_of, "answer string")
        return [row.answer for row in frame.collect()]
    return spark.sparkContext.parallelize(range(tasks), tasks).map(answer_of).collect()


def _answering(url: str, driver_path: str) -> tuple[Any, Any]:
    """A function of a row, and one of Arrow batches, that are pickled by value, so that an executor without this
    package can report that."""

    def answer_of(_: int) -> str:
        import json
        import os
        import socket

        answer = {"host": socket.gethostname(), "executor": f"{socket.gethostname()} {os.getppid()}", "error": ""}
        try:
            from hummock.spark.executor_check import probe
            answer.update(probe(url, driver_path))
        except Exception as error:
            answer["error"] = f"{type(error).__name__}: {error}"
        return json.dumps(answer)

    def batches_of(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow

        for _ in batches:
            yield pyarrow.record_batch({"answer": [answer_of(0)]})

    return answer_of, batches_of
