"""KeyInterner against a dict that numbers keys in order of first appearance."""

import math
import random
from datetime import date, datetime, time, timedelta

import numpy as np
import pyarrow as pa
import pytest

from relational.chunk.column import Column
from relational.hash.key_ids import KeyInterner
from relational.types import DataType

DAY = date(2013, 1, 1)
VALUES = {
    DataType.BOOLEAN: [True, False],
    DataType.SMALLINT: [0, -1, 7, 32767, -32768],
    DataType.INT: [0, -1, 7, 2**31 - 1, -(2**31)],
    DataType.BIGINT: [0, -1, 7, 2**63 - 1, -(2**63), *(n << 44 for n in range(1, 50))],
    DataType.REAL: [0.0, -0.0, 1.5, -math.inf, math.nan],
    DataType.DOUBLE: [0.0, -0.0, 0.1, math.inf, math.nan, -math.nan],
    DataType.DATE: [DAY + timedelta(days) for days in range(5)],
    DataType.TIME: [time(0), time(23, 59, 59, 999_999)],
    DataType.TIMESTAMP: [datetime(1969, 12, 31, 23, 59, 59, microsecond) for microsecond in range(4)],
    DataType.VARCHAR: ["", "a", "a longer one", "é"],
}


def normal(value):
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def same(got, want):
    return normal(got) == normal(want)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "types",
    [*((data_type,) for data_type in VALUES), (DataType.BIGINT, DataType.VARCHAR), (DataType.DOUBLE, DataType.INT)],
    ids=lambda types: "-".join(map(str, types)),
)
def test_numbers_follow_first_appearance(types, seed):
    rng = random.Random(seed)
    numbers, index = {}, KeyInterner(types)
    for _ in range(12):
        rows = [tuple(rng.choice([None, *VALUES[t]]) for t in types) for _ in range(rng.randrange(60))]
        columns = [Column.from_pylist([row[at] for row in rows], t) for at, t in enumerate(types)]
        visibility = rng.choice([None, np.array([rng.random() < 0.8 for _ in rows], np.uint8)])
        shown = [True] * len(rows) if visibility is None else visibility.tolist()
        keys = [tuple(map(normal, row)) for row in rows]
        known = [numbers.get(key, -1) if seen else -1 for key, seen in zip(keys, shown, strict=True)]
        assert index.find(columns, visibility, is_adding=False).tolist() == known
        expected = [
            numbers.setdefault(key, len(numbers)) if seen else -1
            for key, seen in zip(keys, shown, strict=True)
        ]
        assert index.find(columns, visibility).tolist() == expected
        if numbers and rng.random() < 0.3:
            kept = rng.sample(range(len(numbers)), rng.randrange(len(numbers) + 1))
            index.keep(np.array(kept, np.int32))
            by_number = list(numbers)
            numbers = {by_number[number]: position for position, number in enumerate(kept)}
        assert index.count == len(numbers)
        columns = index.keys(np.arange(index.count, dtype=np.int32))
        got = zip(*(column.to_pylist() for column in columns), strict=True)
        assert all(same(a, b) for row, key in zip(got, numbers, strict=True) for a, b in zip(row, key, strict=True))


def test_many_words_and_slices_of_columns():
    rng = np.random.default_rng(3)
    values = rng.integers(-(2**63), 2**63, 200_000)
    index, column = KeyInterner([DataType.BIGINT]), Column(pa.array(np.concatenate([values, values])))
    once = index.find([column.slice(7, 150_000)])
    again = index.find([column.slice(200_007, 150_000)])
    assert (once == again).all() and index.count == len(np.unique(values[7:150_007]))
    assert (index.keys(once)[0].array.to_numpy() == values[7:150_007]).all()
    held = index.size_bytes
    index.keep(np.arange(10, dtype=np.int32))
    assert index.size_bytes < held / 50


def test_wrong_arguments():
    index = KeyInterner([DataType.BIGINT])
    with pytest.raises(ValueError, match="keys are"):
        index.find([Column.from_pylist([1], DataType.INT)])
    with pytest.raises(ValueError, match="visibility of 2 rows"):
        index.find([Column.from_pylist([1], DataType.BIGINT)], np.ones(2, np.uint8))
    with pytest.raises(IndexError, match="key number 7"):
        index.keys(np.array([7], np.int32))


@pytest.mark.parametrize("types", [(DataType.BIGINT,), (DataType.VARCHAR,), (DataType.BIGINT, DataType.INT)],
                         ids=lambda types: "-".join(map(str, types)))
def test_hundreds_of_thousands_of_keys(types):
    rng, index = np.random.default_rng(7), KeyInterner(types)
    keys = rng.permutation(200_000) * 977
    form = {DataType.BIGINT: lambda some: pa.array(some), DataType.INT: lambda some: pa.array(some.astype(np.int32)),
            DataType.VARCHAR: lambda some: pa.array([f"{key:x}" for key in some.tolist()])}

    def find(some, is_adding=True):
        return index.find([Column(form[each](some), each) for each in types], is_adding=is_adding)

    for first in range(0, len(keys), 25_000):
        assert np.array_equal(find(keys[first:first + 25_000]), np.arange(first, first + 25_000))
    assert np.array_equal(find(keys[::-1]), np.arange(len(keys))[::-1])
    assert (find(keys + 1, is_adding=False) == -1).all()
    kept = rng.permutation(len(keys))[:60_000].astype(np.int32)
    index.keep(kept)
    assert np.array_equal(find(keys[kept]), np.arange(len(kept)))
    assert np.array_equal(np.sort(find(np.delete(keys, kept))), np.arange(len(kept), len(keys)))
