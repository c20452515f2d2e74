"""KeyFilter: no key that was added is excluded, few others are not, and its memory grows with its keys."""

import random

import numpy as np
import pyarrow as pa
import pytest

from relational.chunk import Column, DataChunk
from relational.hash.key_filter import KeyFilter
from relational.types import Schema
from tests.relational.random_rows import ALL, random_rows


def chunk(*columns):
    return DataChunk([Column(pa.array(column)) for column in columns])


def test_an_empty_filter_excludes_everything():
    empty = KeyFilter()
    assert not empty.may_contain(chunk(np.arange(100))).any() and (empty.keys, empty.size_bytes) == (0, 0)
    empty.add(chunk(np.empty(0, np.int64)))
    assert empty.may_contain(chunk(np.empty(0, np.int64))).tolist() == []


@pytest.mark.parametrize("rows", [1, 1_000, 500_000])
def test_added_keys_are_found_and_few_others(rows):
    rng = np.random.default_rng(rows)
    added = np.unique(rng.integers(0, 2**62, rows))
    keys = KeyFilter()
    for part in np.array_split(added, 7):
        keys.add(chunk(part))
    assert keys.keys == len(added) and keys.may_contain(chunk(added)).all()
    others = np.setdiff1d(rng.integers(0, 2**62, 200_000), added)
    assert keys.may_contain(chunk(others)).mean() < 0.04        # of all layers together
    assert keys.size_bytes <= max(128 << 10, 6 * len(added))


@pytest.mark.parametrize("seed", range(10))
def test_keys_of_any_types_are_equal_as_values_are(seed):
    rng = random.Random(seed)
    schema = Schema.of(**{f"c{at}": str(rng.choice(ALL)) for at in range(rng.randint(1, 3))})
    rows = random_rows(rng, list(schema.types), 300)
    keys = KeyFilter()
    keys.add(DataChunk.from_rows(schema, rows))
    assert keys.may_contain(DataChunk.from_rows(schema, rng.sample(rows, len(rows)))).all()


def test_zero_and_minus_zero_are_one_key():
    keys = KeyFilter()
    keys.add(chunk([0.0]))
    assert keys.may_contain(chunk([-0.0])).all()
