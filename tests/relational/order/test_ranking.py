import random

import numpy as np

from relational.chunk import DataChunk
from relational.order.ranking import group_numbers, ranking
from relational.types import DESCENDING, OrderType, Schema, SortKey

SCHEMA = Schema.of(g="int", x="double", t="varchar")


def test_numbers_of_rows_that_are_equal_in_the_order():
    rows = DataChunk.from_rows(SCHEMA, [(1, 2.0, "b"), (1, 1.0, "a"), (2, 7.0, "a"), (1, 2.0, "a"), (1, 3.0, "a")])
    found = ranking(rows, np.array([1, 1, 2, 1, 1]), (SortKey(1),), (2,))
    assert found.rows.tolist() == [1, 3, 0, 4, 2]
    assert found.group.tolist() == [1, 1, 1, 1, 2]
    assert found.row_number.tolist() == [1, 2, 3, 4, 1]
    assert found.rank.tolist() == [1, 2, 2, 4, 1]
    assert found.dense_rank.tolist() == [1, 2, 2, 3, 1]


def test_rows_without_an_order_are_all_equal():
    rows = DataChunk.from_rows(SCHEMA, [(1, 2.0, "b"), (1, 1.0, "a")])
    found = ranking(rows, np.zeros(2, np.int32), (), (2,))
    assert (found.rows.tolist(), found.row_number.tolist()) == ([1, 0], [1, 2])
    assert (found.rank.tolist(), found.dense_rank.tolist()) == ([1, 1], [1, 1])


def test_no_rows():
    rows = DataChunk.from_rows(SCHEMA, [])
    assert len(ranking(rows, np.zeros(0, np.int32), (SortKey(1),), ()).rows) == 0


def test_null_and_nan_have_their_place():
    rows = DataChunk.from_rows(SCHEMA, [(1, value, "") for value in (None, float("nan"), 1.0, -0.0, 0.0)])
    groups = np.zeros(5, np.int32)
    assert ranking(rows, groups, (SortKey(1),), ()).rows.tolist() == [3, 4, 2, 1, 0]
    assert ranking(rows, groups, (SortKey(1),), ()).rank.tolist() == [1, 1, 3, 4, 5]
    assert ranking(rows, groups, (SortKey(1, OrderType(False, True)),), ()).rows.tolist() == [0, 3, 4, 2, 1]
    assert ranking(rows, groups, (SortKey(1, DESCENDING),), ()).rows.tolist() == [0, 1, 2, 3, 4]


def test_groups_are_equal_as_in_sql():
    rows = DataChunk.from_rows(SCHEMA, [(1, 0.0, None), (1, -0.0, None), (None, 0.0, "a"), (None, 0.0, "a")])
    assert group_numbers(rows.columns, 4).tolist() == [0, 0, 1, 1]
    assert group_numbers([], 2).tolist() == [0, 0]


def test_the_order_is_that_of_a_python_sort():
    for seed in range(10):
        rng = random.Random(seed)
        values = [(rng.randrange(3), rng.choice([0.5, 1.5, 2.5]), rng.choice("abc")) for _ in range(200)]
        rows = DataChunk.from_rows(SCHEMA, values)
        found = ranking(rows, np.array([row[0] for row in values]), (SortKey(1, DESCENDING),), (2,))
        assert [values[row] for row in found.rows] == sorted(values, key=lambda row: (row[0], -row[1], row[2]))
