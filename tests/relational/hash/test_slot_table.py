"""The hash table of interners doubles in parts: keys are found at every moment of it."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from relational.chunk.column import Column
from relational.hash.key_ids import KeyInterner
from relational.types import DataType

BEFORE, AFTER = 650_000, 800_000    # keys: a table of 2**20 slots doubles at 655,360 of them


def columns_of(words, kind):
    column = Column(pa.array(words))
    if kind == "one word":
        return [column]
    texts = pc.cast(pa.array(words & 0xFF), pa.string())
    if kind == "one size":
        texts = pc.utf8_lpad(texts, 3, "0")
    return [column, Column(texts)]


@pytest.mark.parametrize("kind", ["one word", "one size", "several sizes"])
@pytest.mark.parametrize("seed", range(4))
def test_keys_are_found_while_the_table_doubles(seed, kind):
    rng = np.random.default_rng([seed, len(kind)])
    words = np.unique(rng.integers(-(2**63), 2**63, AFTER + 5_000))
    rng.shuffle(words)
    columns = columns_of(words, kind)
    index = KeyInterner([column.data_type for column in columns])

    def find(numbers, is_adding):
        rows = numbers.astype(np.int64)
        return index.find([Column(column.array.take(pa.array(rows))) for column in columns], is_adding=is_adding)

    find(np.arange(BEFORE), True)
    sizes = [index.size_bytes]
    while index.count < AFTER:
        new = np.arange(index.count, index.count + rng.integers(0, 4_000))
        known = rng.integers(0, index.count, rng.integers(1, 4_000))
        rows = np.insert(new, rng.integers(0, len(new) + 1, len(known)), known)
        assert np.array_equal(find(rows, True), rows)
        asked = rng.integers(0, len(words), 300)
        assert np.array_equal(find(asked, False), np.where(asked < index.count, asked, -1))
        sizes.append(index.size_bytes)
    everything = np.arange(len(words))
    assert np.array_equal(find(everything, False), np.where(everything < index.count, everything, -1))
    assert any(after < before for before, after in pairwise(sizes)), "the old table was kept for a time"


def test_an_aged_table_is_replaced_at_once_where_many_keys_are_expected():
    index, words = KeyInterner([DataType.BIGINT]), np.random.default_rng(5).permutation(3_000_000)
    begun = Column(pa.array(words[:656_000]))
    index.find([begun])             # doubles, and is not done
    index.reserve(2_000_000)
    assert np.array_equal(index.find([begun], is_adding=False), np.arange(656_000))
    assert np.array_equal(index.find([Column(pa.array(words))]), np.arange(3_000_000))
