"""Executor: one operator of a streaming plan, a generator of messages.

The contract every executor keeps, and `tests/suites/executor_suite.py` checks: the first message is a
barrier; between two barriers state changes only in memory; at a barrier the state tables are committed at
its epoch and then the barrier is passed on; per stream key the emitted changes alternate insert, delete,
insert ...; a U- stands right before its U+ and has the same stream key. An executor runs in one thread, and
blocks only in a Channel or in the state store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stream.errors import InconsistentStream
from stream.message import Barrier, Message

if TYPE_CHECKING:
    from relational.types.schema import Schema


@dataclass(frozen=True, slots=True)
class ExecutorInfo:
    """What flows out of an executor: its columns, those that identify a row (None: a bag), its name."""

    schema: Schema
    stream_key: tuple[int, ...] | None
    identity: str


class Executor(ABC):
    """One operator. `execute()` is called once; its first message is a barrier."""

    info: ExecutorInfo

    @abstractmethod
    def execute(self) -> Iterator[Message]:
        """Messages in order, until the input ends."""


def first_barrier(messages: Iterator[Message], identity: str) -> Barrier:
    """The barrier that a stream begins with; InconsistentStream if it begins with anything else."""
    message = next(messages, None)
    if not isinstance(message, Barrier):
        raise InconsistentStream(identity, f"must begin with a barrier, got {type(message).__name__}")
    return message
