import random

import numpy as np
import pytest

from relational.chunk import DataChunk
from relational.order.late_rows import LateRows
from relational.types import Schema
from tests.support.drivers.seeds import run_seed

SCHEMA = Schema.of(a="int", b="varchar", c="double")


def rows_of(rng, count):
    return [(rng.randrange(100), rng.choice(["x", None, "a long value"]), rng.random()) for _ in range(count)]


def chosen(rng, count):
    return np.array(sorted(rng.sample(range(count), rng.randint(0, count))), np.int32)


@pytest.mark.parametrize("seed", range(20))
def test_columns_are_those_of_the_rows_whenever_they_are_gathered(seed):
    rng = random.Random(f"{run_seed()} {seed}")
    parts = [rows_of(rng, rng.choice([0, 1, 30])) for _ in range(rng.randint(1, 4))]
    chunks = [DataChunk.from_rows(SCHEMA, part) for part in parts]
    split = rng.randrange(len(chunks) + 1)
    late = LateRows.together([*([LateRows.of(*chunks[:split])] if split else []), *map(LateRows.of, chunks[split:])])
    expected = [row for part in parts for row in part]
    for _ in range(6):
        columns = rng.sample(range(3), rng.randint(1, 3))
        if rng.random() < 0.3 and columns:
            assert list(late.column(columns[0])) == [row[columns[0]] for row in expected]
        at = chosen(rng, len(expected))
        assert [*late.ascending(at, columns).rows()] == [tuple(expected[row][c] for c in columns) for row in at]
        mixed = rng.sample(at.tolist(), len(at))
        found = late.take(np.array(mixed, np.int32), columns)
        assert [*found.rows()] == [tuple(expected[row][c] for c in columns) for row in mixed]
        assert late.count == len(expected)
        late, expected = late.only(at), [expected[row] for row in at]


def test_a_column_is_gathered_once_and_others_not_at_all():
    asked = []

    def gather(at, columns):
        asked.extend(columns)
        return DataChunk.from_rows(SCHEMA, [(1, "x", 0.5)] * (3 if at is None else len(at))).project(columns)

    late = LateRows(3, gather)
    late.column(0), late.column(0), late.ascending(np.array([1], np.int32), (0,))
    assert asked == [0]
    assert LateRows.together([late.only(np.array([0, 2], np.int32)), late]).take(
        np.array([4, 1], np.int32), (1,)).capacity == 2
    assert asked == [0, 1, 1]
