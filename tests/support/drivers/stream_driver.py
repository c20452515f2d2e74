"""Drives executors in tests: scripted inputs, epochs over a store, the rows that result, and those of running jobs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from hummock.epoch import Epoch, EpochPair
from relational.chunk import Op, StreamChunk
from relational.types import Schema
from stream.executor.base import Executor, ExecutorInfo
from stream.message import PAUSE, Barrier, Message, Mutation, Wait
from stream.session.session import Session

INSERTS = (Op.INSERT, Op.UPDATE_INSERT)


def epoch(number: int) -> Epoch:
    """The pure epoch of millisecond `number`."""
    return Epoch(number << 16)


def barrier(number: int, mutation=None) -> Barrier:
    """The barrier that ends epoch `number` - 1 and opens epoch `number`."""
    return Barrier(EpochPair(epoch(number), epoch(number - 1)), checkpoint=True, mutation=mutation)


class ScriptedExecutor(Executor):
    """Yields the messages of the test."""

    def __init__(self, schema: Schema, stream_key: Sequence[int], messages: Iterable[Message]) -> None:
        self.info = ExecutorInfo(schema, tuple(stream_key), "Scripted")
        self._messages = messages

    def execute(self) -> Iterator[Message]:
        yield from self._messages


Build = Callable[[Executor], Executor]


def run_epochs(
    build: Build,
    store,
    schema: Schema,
    stream_key: Sequence[int],
    epochs: Sequence[Sequence[Message]],
    *,
    first: int = 1,
    mutation: Mutation | None = None,
) -> list[list[Message]]:
    """The output of each epoch. `store` commits an epoch when its barrier leaves the executor. The last barrier has
    the `mutation`."""
    script: list[Message] = [barrier(first)]
    for number, messages in enumerate(epochs, first + 1):
        script += [*messages, barrier(number, mutation if number == first + len(epochs) else None)]
    outputs: list[list[Message]] = []
    for message in build(ScriptedExecutor(schema, stream_key, iter(script))).execute():
        if not isinstance(message, Barrier):
            outputs[-1].append(message)
            continue
        if outputs:
            store.commit(message.epoch.prev)
        outputs.append([])
    return outputs[: len(epochs)]


class Folded:
    """The rows that result from a change stream, checked change by change.

    Per stream key, inserts and deletes alternate; a delete carries the present row; a U- directly precedes its U+, in
    the same chunk and with the same key.
    """

    def __init__(self, stream_key: Sequence[int]) -> None:
        self._stream_key = tuple(stream_key)
        self.rows: dict[tuple, tuple] = {}

    def key_of(self, row: tuple) -> tuple:
        return tuple(row[index] for index in self._stream_key)

    def apply(self, chunk: StreamChunk) -> None:
        open_update: tuple | None = None
        for op, row in chunk.changes():
            key = self.key_of(row)
            if op is Op.UPDATE_INSERT:
                assert open_update == key, f"U+ {row} does not follow its U-"
            else:
                assert open_update is None, f"U- of {open_update} is followed by {op} {row}"
            open_update = key if op is Op.UPDATE_DELETE else None
            if op in INSERTS:
                assert key not in self.rows, f"{op} {row} while {self.rows[key]} is there"
                self.rows[key] = row
            else:
                assert self.rows.get(key) == row, f"{op} {row} while {self.rows.get(key)} is there"
                del self.rows[key]
        assert open_update is None, "a chunk ends with a U-"

    def apply_all(self, messages: Iterable[Message]) -> Folded:
        for message in messages:
            if isinstance(message, StreamChunk):
                self.apply(message)
        return self

    @property
    def bag(self) -> Counter:
        """The rows as a multiset, lists as tuples."""
        return Counter(map(hashable, self.rows.values()))


def hashable(row: tuple) -> tuple:
    """The row with tuples for lists."""
    return tuple(tuple(each) if isinstance(each, list) else each for each in row)


def random_changes(
    rng: random.Random,
    schema: Schema,
    key_rows: Sequence[tuple],
    new_row: Callable[[tuple], tuple],
    chunks: int,
    rows: int,
) -> list[StreamChunk]:
    """A consistent change stream over the keys `key_rows`, with hidden rows in between."""
    alive: dict[tuple, tuple] = {}
    out = []
    for _ in range(chunks):
        changes, shown = [], []
        while len(changes) < rows:
            key = rng.choice(key_rows)
            visible = rng.random() < 0.9
            if key not in alive:
                step = [(Op.INSERT, new_row(key))]
            elif rng.random() < 0.5:
                step = [(Op.UPDATE_DELETE, alive[key]), (Op.UPDATE_INSERT, new_row(key))]
            else:
                step = [(Op.DELETE, alive[key])]
            if visible:
                if step[-1][0] is Op.DELETE:
                    del alive[key]
                else:
                    alive[key] = step[-1][1]
            changes += step
            shown += [visible] * len(step)
        chunk = StreamChunk.from_rows(schema, changes)
        out.append(chunk if all(shown) else chunk.with_visibility(np.array(shown, np.uint8)))
    return out


def unpaused(messages: Iterator[Message]) -> Iterator[Message]:
    """The messages without the pauses behind chunks."""
    return (message for message in messages if message is not PAUSE)


def until_barrier(messages: Iterator[Message]) -> list[Message]:
    """The messages up to and with the next barrier, without Waits."""
    found: list[Message] = []
    for message in messages:
        if not isinstance(message, Wait):
            found.append(message)
        if isinstance(message, Barrier):
            return found
    raise AssertionError("the stream ended")


def emitted_rows(session: Session, name: str) -> int:
    """The number of changes that the job of a table or view has emitted since it was started."""
    fragments = [each for each in session._playground.fragments() if each.job == name]
    return fragments[-1].rows  # the last fragment is that of the job's output
