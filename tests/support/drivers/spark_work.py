"""Work functions for specs of Spark tests, which executors import like the package."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path

from hummock.errors import Corruption, ObjectNotFound, ObjectStoreError
from hummock.spark.worker import executor_name


def backwards(spec: bytes) -> bytes:
    return spec[::-1]


def partition(spec: bytes) -> bytes:
    """The number of the task's partition."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return b"%d" % context.partitionId()


def process(spec: bytes) -> bytes:
    """The id of the worker, a while later, so that others of its job need one of their own."""
    time.sleep(0.05)
    return b"%d" % os.getpid()


def executor(spec: bytes) -> bytes:
    """The name of the worker's executor."""
    return executor_name().encode()


def slow_executor(spec: bytes) -> bytes:
    """As `executor`, a while later."""
    time.sleep(0.2)
    return executor(spec)


def fail_at_first(spec: bytes) -> bytes:
    """Fails the first `fails` attempts, then returns the number of the attempt."""
    record = json.loads(spec)
    counter = Path(record["counter"])
    with counter.open("ab") as file:
        file.write(b"x")
    tries = counter.stat().st_size
    if tries > record["fails"]:
        return b"%d" % tries
    raise (Corruption if record.get("kind") == "Corruption" else ObjectStoreError)(str(counter), "injected")


def wait_for_ever(spec: bytes) -> bytes:
    """Touches the file, then runs until its process ends."""
    Path(spec.decode()).touch()
    while True:
        time.sleep(0.05)


def wait_for_go(spec: bytes) -> bytes:
    while not Path(spec.decode() + ".go").exists():
        time.sleep(0.01)
    return b"gone"


def not_found(spec: bytes) -> bytes:
    raise ObjectNotFound("sst/a.data")


def count_frozen(spec: bytes) -> bytes:
    """This worker's pid, number of imported modules, and number of objects that are frozen for the collector."""
    return json.dumps([os.getpid(), len(sys.modules), gc.get_freeze_count()]).encode()
