"""The head of a table without a connector: barriers and statements in the order they were sent.

One channel carries both, so a statement lies in the epoch of the barrier before it, and all statements of a
session are evaluated in the order it sent them.
"""

from __future__ import annotations

from collections.abc import Iterator

from stream.exchange.channel import Channel
from stream.executor.base import Executor, ExecutorInfo
from stream.executor.receive import received
from stream.message import Message


class DmlExecutor(Executor):
    """Hands on what `control` brings, until it is closed."""

    def __init__(self, info: ExecutorInfo, control: Channel) -> None:
        self.info = info
        self._control = control

    def execute(self) -> Iterator[Message]:
        yield from received(self._control)
