"""SinkSuite: what every target of sinks promises.

A subclass gives `opened`, a fixture that returns a function that opens the target anew, and `received`, a function that
returns the changes that arrived so far, in order: (op, row). `repeats`: the target does not recognise a delivery that
is repeated after it succeeded.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

from relational.types import Schema
from stream.connector.sink import SinkTarget
from tests.support.drivers.seeds import run_seed

SCHEMA = Schema.of(id="bigint", name="varchar", price="numeric(10,2)", doc="jsonb", tags="varchar[]", at="timestamptz")
Change = tuple[int, tuple]


class TargetFailure(Exception):
    """The changes end in the middle of a delivery."""


def changes(rng: random.Random, rows: int, schema: Schema = SCHEMA) -> pa.Table:
    """Random changes, as a log delivers them."""
    columns = {
        "id": pa.array([rng.randrange(1 << 40) for _ in range(rows)], pa.int64()),
        "name": [rng.choice([None, "", "a", "länger"]) for _ in range(rows)],
        "price": pa.array([rng.randrange(1 << 30) for _ in range(rows)]).cast(pa.decimal128(20, 0)),
        "doc": ['{"a":1}'] * rows,
        "tags": pa.array([rng.choice([None, [], ["x", None]]) for _ in range(rows)], pa.list_(pa.string())),
        "at": pa.array([rng.randrange(1 << 50) for _ in range(rows)], pa.timestamp("us", "UTC")),
    }
    arrays = []
    for field in schema:
        array = pa.array(columns[field.name]) if isinstance(columns[field.name], list) else columns[field.name]
        if field.name == "price":
            array = pa.array([value.as_py() / 100 for value in array], field.data_type.arrow)
        elif field.name == "doc":
            array = pa.ExtensionArray.from_storage(field.data_type.arrow, array)
        arrays.append(array)
    ops = pa.array(np.array([rng.randrange(4) for _ in range(rows)], np.uint8))
    return pa.table([*arrays, ops], names=[*schema.names, "_op"])


def cut(table: pa.Table, rng: random.Random, fails_after: int | None = None) -> Iterator[pa.RecordBatch]:
    """The rows in batches of random sizes; TargetFailure after so many rows."""
    at = 0
    while at < table.num_rows:
        rows = rng.randint(1, 50)
        if fails_after is not None and at + rows > fails_after:
            raise TargetFailure
        yield from table.slice(at, rows).combine_chunks().to_batches()
        at += rows


def changes_in(table: pa.Table) -> list[Change]:
    *columns, ops = (column.to_pylist() for column in table.columns)
    return list(zip(ops, zip(*columns, strict=True), strict=True))


class SinkSuite:
    repeats = False

    @pytest.fixture
    def opened(self) -> Callable[[], SinkTarget]:
        raise NotImplementedError

    @pytest.fixture
    def received(self) -> Callable[[], list[Change]]:
        raise NotImplementedError

    def test_changes_arrive_once_and_in_order(self, opened, received):
        rng, target, expected = random.Random(run_seed()), opened(), []
        for epoch in range(1, 12):
            delivered = changes(rng, rng.choice((1, 2, 300)))
            target.deliver(epoch << 16, cut(delivered, rng))
            expected += changes_in(delivered)
            assert received() == expected
            if rng.random() < 0.3:
                target.close()
                target = opened()
        target.close()
        target.close()

    def test_a_delivery_that_fails_comes_again_whole(self, opened, received):
        rng, target, expected = random.Random(run_seed()), opened(), []
        for epoch in range(1, 8):
            delivered = changes(rng, 200)
            for _ in range(rng.randrange(3)):
                with pytest.raises(TargetFailure):
                    target.deliver(epoch << 16, cut(delivered, rng, rng.randrange(50, 200)))
                assert received() == expected
                if rng.random() < 0.5:
                    target.close()
                    target = opened()
            target.deliver(epoch << 16, cut(delivered, rng))
            expected += changes_in(delivered)
            assert received() == expected
        target.close()

    def test_a_delivery_that_is_repeated_makes_no_difference(self, opened, received):
        rng, target = random.Random(run_seed()), opened()
        first, second = changes(rng, 100), changes(rng, 100)
        for epoch, delivered in ((1, first), (2, second), (1, first), (2, second)):
            target.deliver(epoch << 16, cut(delivered, rng))
            target.close()
            target = opened()
        times = 2 if self.repeats else 1
        assert received() == times * (changes_in(first) + changes_in(second))
        target.close()
