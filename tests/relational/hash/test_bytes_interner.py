"""BytesInterner against a dict that numbers keys in order of first appearance."""

import random

import numpy as np
import pytest

from hummock.columnar.binary_column import BinaryColumn
from relational.hash.bytes_interner import BytesInterner


def column(keys):
    return BinaryColumn.from_pylist(list(keys))


def random_key(rng: random.Random, spread: int) -> bytes:
    return rng.randrange(spread).to_bytes(4, "big") + b"k" * rng.randrange(12)


@pytest.mark.parametrize("seed", range(20))
def test_numbers_follow_first_appearance(seed):
    rng = random.Random(seed)
    index, numbers = BytesInterner(), {}
    for _ in range(30):
        keys = [random_key(rng, 2_000) for _ in range(rng.randrange(300))]
        visibility = np.array([rng.random() < 0.9 for _ in keys], np.uint8)
        expected = [
            numbers.setdefault(key, len(numbers)) if seen else -1
            for key, seen in zip(keys, visibility, strict=True)
        ]
        assert index.find(column(keys), visibility).tolist() == expected
    assert index.count == len(numbers)
    ids = np.array(rng.sample(range(index.count), min(50, index.count)), np.int32)
    by_number = list(numbers)
    assert list(index.keys(ids)) == [by_number[number] for number in ids]


def test_looking_without_adding():
    index = BytesInterner()
    index.find(column([b"a", b"", b"b"]))
    assert index.find(column([b"b", b"c", b"", b"a"]), is_adding=False).tolist() == [2, -1, 1, 0]
    assert index.count == 3


@pytest.mark.parametrize("sizes", [(3, 3), (3, 7)], ids=["one size", "several sizes"])
def test_some_keys_of_another_interner_get_the_next_numbers(sizes):
    source, index = BytesInterner(), BytesInterner()
    keys = [number.to_bytes(sizes[number % 2], "big") for number in range(5_000)]
    source.find(column(keys))
    index.add_from(source, np.array([4_000, 17, 900], np.int32))
    assert index.count == 3 and index.size_bytes < source.size_bytes
    assert index.find(column([keys[17], keys[4_000], keys[1], keys[900]])).tolist() == [1, 0, 3, 2]
    index.add_from(source, np.arange(1_000, 3_999, dtype=np.int32))
    assert index.find(column(keys), is_adding=False)[1_000:4_001].tolist() == [*range(4, 3_003), -1, 0]


@pytest.mark.parametrize("seed", range(10))
def test_keys_of_one_size_take_no_positions_until_another_size_comes(seed):
    rng = random.Random(f"sizes {seed}")
    index, numbers, width = BytesInterner(), {}, rng.choice([0, 1, 8, 18])
    keys = [rng.randrange(256**width).to_bytes(width, "big") for _ in range(rng.choice([1, 5_000]))]
    assert index.find(column(keys)).tolist() == [numbers.setdefault(key, len(numbers)) for key in keys]
    one_size = index.size_bytes
    if len(numbers) > 1_000:
        assert one_size - width * len(numbers) <= 13 * len(numbers), "slots are at most 5/8 used, and doubled"
    keys = [*rng.sample(list(numbers), 1), b"x" * (width + 1), *(b"y" * rng.randrange(40) for _ in range(50))]
    rng.shuffle(keys)
    assert index.find(column(keys)).tolist() == [numbers.setdefault(key, len(numbers)) for key in keys]
    assert index.size_bytes >= one_size + 8 * len(numbers)
    by_number = list(numbers)
    assert list(index.keys(np.arange(index.count, dtype=np.int32))) == by_number
    kept = np.array(rng.sample(range(index.count), index.count // 2), np.int32)
    fewer = BytesInterner()
    fewer.add_from(index, kept)
    assert list(fewer.keys(np.arange(fewer.count, dtype=np.int32))) == [by_number[number] for number in kept]
    assert fewer.find(column(by_number), is_adding=False)[kept].tolist() == list(range(len(kept)))


def test_wrong_arguments():
    index = BytesInterner()
    with pytest.raises(ValueError, match="row 1 has no key"):
        index.find(column([b"a", None]))
    with pytest.raises(ValueError, match="visibility of 2 rows"):
        index.find(column([b"a"]), np.ones(2, np.uint8))
    with pytest.raises(IndexError, match="key number 7"):
        index.keys(np.array([7], np.int32))
