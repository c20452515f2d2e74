"""Assignment: a range with all that a worker in another process needs to do it, as bytes; and the worker's side.

A worker's life is bounded: after `limit_ms` it begins no further file and ends none, whether or not anybody waits for
it, so what it leaves behind is known to be all there some patience of the object store later.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from hummock.base.json_fields import MALFORMED, check_format, natural
from hummock.compaction.progress_log import write_result
from hummock.compaction.subcompaction import execute_range
from hummock.compaction.task import RangeResult, RangeSpec
from hummock.errors import InvalidTask
from hummock.object_store.base import mint_sstable_name
from hummock.spark.worker import deadline, task_memory, task_store

FORMAT = 1


class Flag(Protocol):
    def is_set(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Assignment:
    """`spec`, over the store at `url`, into files whose names begin with `prefix`.

    `journal`: the object in the store that the result is written to as well, for a driver that comes after this one.
    """

    spec: RangeSpec
    url: str
    prefix: str
    memory_bytes: int
    limit_ms: int
    journal: str = ""

    def encode(self) -> bytes:
        return json.dumps({"format": FORMAT, "spec": self.spec.to_json(), "url": self.url, "prefix": self.prefix,
                           "memory_bytes": self.memory_bytes, "limit_ms": self.limit_ms,
                           "journal": self.journal}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Assignment:
        """The inverse of `encode`. Raises `InvalidTask`."""
        try:
            record = json.loads(data)
            check_format("an assignment", record["format"], FORMAT)
            return cls(RangeSpec.from_json(record["spec"]), str(record["url"]), str(record["prefix"]),
                       natural(record["memory_bytes"]), natural(record["limit_ms"]), str(record["journal"]))
        except MALFORMED as error:
            raise InvalidTask("assignment", str(error)) from error


def carry_out(data: bytes) -> bytes:
    """In a worker process: does an assignment, and returns its result as bytes."""
    assignment = Assignment.decode(data)
    store, is_over = task_store(assignment.url), deadline(assignment.limit_ms)
    result = execute_range(
        assignment.spec, store, partial(mint_sstable_name, os.urandom, assignment.prefix),
        memory_bytes=task_memory(assignment.memory_bytes), is_cancelled=lambda: is_over() or _is_cancelled())
    if assignment.journal:
        write_result(store, assignment.journal, result)
    return json.dumps(result.to_json()).encode()


def decode_result(data: bytes) -> RangeResult:
    """Raises `InvalidTask`."""
    try:
        return RangeResult.from_json(json.loads(data))
    except ValueError as error:
        raise InvalidTask("result of a compact task", str(error)) from error


_cancel: Flag | None = None


def remember_cancel(flag: Flag) -> None:
    """In a worker process, at its start: what it does ends when `flag` is set."""
    global _cancel
    _cancel = flag


def _is_cancelled() -> bool:
    return _cancel is not None and _cancel.is_set()
