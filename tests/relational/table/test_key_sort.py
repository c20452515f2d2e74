"""Rows in the order of their keys: keys with long equal prefixes, keys that end in them, equal keys as they come."""

import random

import pytest

from hummock.columnar.binary_column import BinaryColumn
from relational.table.key_sort import sorted_rows
from tests.support.drivers.seeds import run_seed

PREFIXES = [b"", b"a", b"a\0", b"a" * 16, b"a" * 16 + b"\0", b"a" * 32, b"a" * 33, b"a" * 15 + b"b" + b"a" * 400]


@pytest.mark.parametrize("rows", [0, 1, 30, 2_000])
def test_rows_are_in_the_order_of_their_keys(rows):
    rng = random.Random(f"{run_seed()} {rows}")
    for prefixes in (PREFIXES, PREFIXES[5:], PREFIXES[-1:]):
        keys = [rng.choice(prefixes) + rng.randbytes(rng.choice([0, 0, 1, 8, 20])) + bytes(rng.randrange(3))
                for _ in range(rows)]
        found = sorted_rows(BinaryColumn.from_pylist(keys))
        assert found.tolist() == sorted(range(rows), key=keys.__getitem__)
