"""WorkerTask: a range with everything that a worker in another process needs, as bytes; and the worker's side.

A worker's work is bounded in time: after `limit_ms` it begins no further file and finishes none, even if nothing waits
for it any more. So some retry deadline of the object store later, nothing more is written.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import partial

from hummock.base.json_fields import MALFORMED, check_format, natural
from hummock.compaction.progress_log import write_result
from hummock.compaction.subcompaction import run_subcompaction
from hummock.compaction.task import RangeResult, RangeSpec
from hummock.errors import InvalidTask
from hummock.object_store.base import mint_sstable_name
from hummock.spark.worker import deadline, task_memory, task_store

FORMAT = 1


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """Runs `spec` on the store at `url`, into files whose names begin with `prefix`.

    `progress_log`: the object in the store to which the result is written as well, for a later driver.
    """

    spec: RangeSpec
    url: str
    prefix: str
    memory_bytes: int
    limit_ms: int
    progress_log: str = ""

    def encode(self) -> bytes:
        return json.dumps({"format": FORMAT, "spec": self.spec.to_json(), "url": self.url, "prefix": self.prefix,
                           "memory_bytes": self.memory_bytes, "limit_ms": self.limit_ms,
                           "progress_log": self.progress_log}).encode()

    @classmethod
    def decode(cls, data: bytes) -> WorkerTask:
        """The inverse of `encode`. Raises `InvalidTask`."""
        try:
            record = json.loads(data)
            check_format("an assignment", record["format"], FORMAT)
            return cls(RangeSpec.from_json(record["spec"]), str(record["url"]), str(record["prefix"]),
                       natural(record["memory_bytes"]), natural(record["limit_ms"]), str(record["progress_log"]))
        except MALFORMED as error:
            raise InvalidTask("assignment", str(error)) from error


def carry_out(data: bytes) -> bytes:
    """Runs in a worker process: executes the task, and returns its result as bytes."""
    task = WorkerTask.decode(data)
    store, is_over = task_store(task.url), deadline(task.limit_ms)
    result = run_subcompaction(
        task.spec, store, partial(mint_sstable_name, os.urandom, task.prefix),
        memory_bytes=task_memory(task.memory_bytes), is_cancelled=is_over)
    if task.progress_log:
        write_result(store, task.progress_log, result)
    return json.dumps(result.to_json()).encode()


def decode_result(data: bytes) -> RangeResult:
    """Raises `InvalidTask`."""
    try:
        return RangeResult.from_json(json.loads(data))
    except ValueError as error:
        raise InvalidTask("result of a compact task", str(error)) from error
