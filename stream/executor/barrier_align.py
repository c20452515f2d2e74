"""Barrier alignment: the messages of several inputs as one sequence, in which a barrier comes once.

An input that has delivered a barrier is not read until the others have delivered theirs. The others are read in turns,
one message of each [R11]. No input waits: one without a message yields a Wait [R23]. If none has a message, the Wait
that ends first is passed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stream.executor.base import Executor, aligned
from stream.message import WAIT, Barrier, Message, Wait


class FromInput(NamedTuple):
    """A message of input number `input`."""

    input: int
    message: Message


def align_barriers(inputs: Sequence[Executor], identity: str) -> Iterator[FromInput | Barrier | Wait]:
    """The messages of `inputs`, in the order of each, except that a barrier comes when all have delivered it; until one
    of them ends. InconsistentStream, for executor `identity`, if barriers differ."""
    streams = [each.execute() for each in inputs]
    barrier: Barrier | None = None
    unaligned = list(range(len(streams)))
    while True:
        is_idle, wait = True, WAIT
        for number in tuple(unaligned):
            message = next(streams[number], None)
            if message is None:
                return
            if isinstance(message, Wait):
                wait = wait.sooner(message)
                continue
            is_idle = False
            if isinstance(message, Barrier):
                barrier = aligned(barrier, message, identity)
                unaligned.remove(number)
            else:
                yield FromInput(number, message)
        if not unaligned and barrier is not None:
            yield barrier
            barrier, unaligned = None, list(range(len(streams)))
        elif is_idle:
            yield wait
