"""ExecutorSuite: the contract of every executor. A test class subclasses it and defines how to build the
executor and which rows it must output.

The input is random and consistent; its seed is printed when a test fails.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from typing import ClassVar

import pytest

from hummock.store.memory_store import MemoryStateStore
from relational.types import Schema
from stream.executor.base import Executor
from stream.message import Barrier, Message
from tests.support.drivers.seeds import amount, seeds
from tests.support.drivers.stream_driver import Folded, ScriptedExecutor, barrier, random_changes, run_epochs

EPOCHS = amount(4, 6)
SEEDS = seeds(2, 4)
RECOVERED = seeds(2, 4)
"""Seeds of recoveries: one of them is of the even barriers, one of the odd ones."""


class ExecutorSuite(ABC):
    """`schema` and `stream_key` describe the input, whose keys are drawn from `keys`."""

    schema: ClassVar[Schema]
    stream_key: ClassVar[tuple[int, ...]]
    keys: ClassVar[tuple[tuple, ...]]
    rows_per_chunk: ClassVar[int] = 20

    @abstractmethod
    def build(self, input: Executor, store) -> Executor:
        """The executor over `input`, with its state in `store`."""

    @abstractmethod
    def oracle(self, rows: list[tuple]) -> list[tuple]:
        """The expected output rows for these input rows, in plain Python."""

    @abstractmethod
    def new_row(self, rng: random.Random, key: tuple) -> tuple:
        """Some row of the input with this key."""

    def new_store(self):
        return MemoryStateStore()

    def random_epochs(self, seed: int) -> list[list[Message]]:
        rng = random.Random(seed)
        chunks = random_changes(
            rng, self.schema, self.keys, lambda key: self.new_row(rng, key), chunks=3 * EPOCHS, rows=self.rows_per_chunk
        )
        return [chunks[3 * number : 3 * number + 3] for number in range(EPOCHS)]

    def run(self, store, epochs, first=1):
        return run_epochs(
            lambda input: self.build(input, store), store, self.schema, self.stream_key, epochs, first=first
        )

    def output_key(self) -> tuple[int, ...]:
        source = ScriptedExecutor(self.schema, self.stream_key, ())
        return self.build(source, self.new_store()).info.stream_key

    def test_the_first_message_is_the_barrier_it_was_given(self):
        executor = self.build(ScriptedExecutor(self.schema, self.stream_key, [barrier(7)]), self.new_store())
        assert next(executor.execute()) == barrier(7)

    def test_barriers_pass_in_order_and_none_is_added(self):
        script = [barrier(1), barrier(2), barrier(3)]
        executor = self.build(ScriptedExecutor(self.schema, self.stream_key, script), self.new_store())
        assert [each for each in executor.execute() if isinstance(each, Barrier)] == script

    @pytest.mark.parametrize("seed", SEEDS)
    def test_output_alternates_legally_and_amounts_to_the_oracle(self, seed):
        print("seed", seed)
        folded_in, folded_out = Folded(self.stream_key), Folded(self.output_key())
        epochs = self.random_epochs(seed)
        for given, made in zip(epochs, self.run(self.new_store(), epochs), strict=True):
            folded_in.apply_all(given)
            folded_out.apply_all(made)
            assert folded_out.bag == Counter(self.oracle(list(folded_in.rows.values())))

    @pytest.mark.parametrize("seed", RECOVERED)
    def test_recovery_at_any_barrier_goes_on_as_if_nothing_had_happened(self, seed):
        print("seed", seed)
        epochs = self.random_epochs(seed)
        uninterrupted = self.run(self.new_store(), epochs)
        for survived in range(seed % 2, EPOCHS, 2):     # all of them by the seeds together
            store = self.new_store()
            self.run(store, epochs[:survived])
            self.lose_an_epoch(store, epochs[survived], first=1 + survived)
            store.clear_uncommitted()
            rest = self.run(store, epochs[survived:], first=1 + survived)
            self.assert_same(uninterrupted, survived, rest)

    def lose_an_epoch(self, store, messages, first) -> None:
        """Run an epoch without its final barrier."""
        script = [barrier(first), *messages]
        for _ in self.build(ScriptedExecutor(self.schema, self.stream_key, script), store).execute():
            pass

    def assert_same(self, uninterrupted, survived: int, rest) -> None:
        expected, recovered = Folded(self.output_key()), Folded(self.output_key())
        for messages in uninterrupted[:survived]:
            expected.apply_all(messages)
            recovered.apply_all(messages)
        for there, here in zip(uninterrupted[survived:], rest, strict=True):
            assert expected.apply_all(there).rows == recovered.apply_all(here).rows
