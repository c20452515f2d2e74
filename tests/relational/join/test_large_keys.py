"""LargeKeys: which join keys stay out of memory, and how many rows they have."""

import numpy as np

from relational.chunk import Column, Op
from relational.join.large_keys import MOST_KEYS, UNKNOWN, LargeKeys
from relational.types import DataType


def test_rows_of_large_keys_are_counted_once_and_then_follow_the_changes():
    keys = LargeKeys([DataType.INT])

    def column(*values):
        return [Column.from_pylist(list(values), DataType.INT)]

    assert keys.rows(keys.find(column(1))).tolist() == [UNKNOWN]
    keys.add(column(1, 2))
    keys.set_rows(keys.find(column(1, 3)), np.array([10, 10]))
    ops = [Op.INSERT, Op.UPDATE_INSERT, Op.INSERT, Op.INSERT, Op.DELETE]
    keys.apply(column(1, 1, 2, 3, 1), np.array(ops, np.uint8))
    assert keys.rows(keys.find(column(1, 2, 3))).tolist() == [11, UNKNOWN, UNKNOWN]
    assert not keys.is_full
    keys.add(column(*range(MOST_KEYS)))
    assert keys.is_full and keys.rows(keys.find(column(1))).tolist() == [11]
    keys.clear()
    assert len(keys) == 0
