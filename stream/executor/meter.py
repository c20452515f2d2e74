"""Meters: what each executor of an actor emits, and the CPU time that it takes, while somebody reads them.

A meter is between an executor and the one above it. While nobody reads it passes messages on, which takes as long as
one step of a generator for each message, that is, for thousands of rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from relational.chunk import StreamChunk
from stream.executor.base import Executor
from stream.message import GroupStates, InsertRows, Message


@dataclass(slots=True)
class ExecutorMeter:
    """Counts while `readers` is above 0: the visible rows emitted, and the CPU seconds of the executor and of all below
    it. Written by the thread that runs the actor, read from any thread."""

    rows: int = 0
    cpu_seconds: float = 0.0
    readers: int = 0


class MeteredExecutor(Executor):
    """The messages of `executor`, counted by `meter`."""

    def __init__(self, executor: Executor, meter: ExecutorMeter) -> None:
        self.info = executor.info
        self._executor = executor
        self._meter = meter

    def execute(self) -> Iterator[Message]:
        messages, meter = self._executor.execute(), self._meter
        while True:
            if not meter.readers:
                message = next(messages, None)
            else:
                began = time.thread_time()
                message = next(messages, None)
                meter.cpu_seconds += time.thread_time() - began
                meter.rows += _rows_of(message)
            if message is None:
                return
            yield message


def _rows_of(message: Message | None) -> int:
    """The visible rows of a chunk or an INSERT, the groups of states."""
    if isinstance(message, InsertRows):
        return message.chunk.visible_rows
    return message.visible_rows if isinstance(message, (StreamChunk, GroupStates)) else 0
