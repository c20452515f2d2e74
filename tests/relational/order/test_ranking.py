import itertools
import random

import numpy as np
import pytest

from relational.chunk import DataChunk
from relational.order.late_rows import LateRows
from relational.order.rank_words import BEGINS, DIFFERS, leading_rows, rank_words
from relational.order.ranking import contenders, group_numbers, order_words, ranking
from relational.types import DESCENDING, DataType, OrderType, Schema, SortKey
from relational.types.ordering import ASCENDING
from tests.support.drivers.extremes import values_of
from tests.support.drivers.seeds import run_seed

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


WORDS = [DataType.SMALLINT, DataType.INT, DataType.BIGINT, DataType.numeric(20, 3), DataType.DATE, DataType.TIME,
         DataType.TIMESTAMP, DataType.TIMESTAMPTZ, DataType.REAL, DataType.DOUBLE]


@pytest.mark.parametrize("data_type", WORDS, ids=str)
def test_words_have_the_order_of_encoded_keys(data_type, monkeypatch):
    rng = random.Random(f"{run_seed()} {data_type}")
    values = [None, *values_of(data_type)]
    for _ in range(10):
        schema = Schema.of(a=str(data_type), b="int", c=str(data_type))
        given = [(rng.choice(values), rng.choice([None, 1, 2]), rng.choice(values)) for _ in range(rng.randrange(120))]
        rows = DataChunk.from_rows(schema, given)
        start = rng.randrange(len(given) + 1)
        rows = rows.slice(start, len(given) - start)
        groups = np.array([rng.choice([0, 1, 7, 1 << 20]) for _ in range(rows.capacity)], np.int64)
        keys = [SortKey(column, OrderType(rng.random() < 0.5, rng.random() < 0.5)) for column in (0, 1)]
        found = ranking(rows, groups, keys, (2,))
        assert all(order_words(column, ASCENDING) is not None for column in rows.columns)
        with monkeypatch.context() as patch:
            patch.setattr("relational.order.ranking.order_words", lambda *_: None)
            expected = ranking(rows, groups, keys, (2,))
        for each in ("rows", "group", "row_number", "rank", "dense_rank"):
            assert getattr(found, each).tolist() == getattr(expected, each).tolist(), each


def test_rows_of_equal_words_are_ordered_by_the_other_columns(monkeypatch):
    rng = random.Random(run_seed())
    schema = Schema.of(a="int", b="varchar", c="int", d="varchar")
    for _ in range(20):
        given = [tuple(rng.choice([None, *each]) for each in ([1, 2], ["", "x"], [5, 6], "yz")) for _ in range(150)]
        rows = DataChunk.from_rows(schema, given)
        groups = np.array([rng.randrange(3) for _ in given], np.int32)
        columns = rng.sample(range(4), 4)
        keys = [SortKey(column, OrderType(rng.random() < 0.5)) for column in columns[: rng.randrange(4)]]
        found = ranking(rows, groups, keys, columns[len(keys):])
        with monkeypatch.context() as patch:
            patch.setattr("relational.order.ranking.order_words", lambda *_: None)
            expected = ranking(rows, groups, keys, columns[len(keys):])
        for each in ("rows", "group", "row_number", "rank", "dense_rank"):
            assert getattr(found, each).tolist() == getattr(expected, each).tolist(), (keys, columns)


def test_long_groups_are_merged():
    rng = np.random.default_rng(run_seed())
    groups, words = rng.integers(0, 3, 5_000).astype(np.int32), rng.integers(0, 9, (5_000, 2)).astype(np.uint64)
    order, marks = rank_words(groups, words, 1, 3)
    assert order.tolist() == np.lexsort((words[:, 1], words[:, 0], groups)).tolist()
    keys = [(int(groups[row]), int(words[row, 0])) for row in order]
    changes = [True, *(one != other for one, other in itertools.pairwise(keys))]
    assert (marks & DIFFERS > 0).tolist() == changes
    assert np.flatnonzero(marks & BEGINS).tolist() == [0, *(np.flatnonzero(np.diff(groups[order])) + 1)]
    with pytest.raises(IndexError, match="group 3 of 3"):
        rank_words(np.array([3], np.int32), np.zeros((1, 1), np.uint64), 1, 3)


@pytest.mark.parametrize("data_type", [*WORDS, DataType.VARCHAR], ids=str)
def test_rows_that_are_no_contenders_have_greater_ranks(data_type):
    rng = random.Random(f"{run_seed()} {data_type}")
    values = values_of(data_type)
    for number in range(20):
        given = [(rng.choice([None, *values] if number % 2 else values),) for _ in range(rng.randrange(200))]
        rows = DataChunk.from_rows(Schema.of(a=str(data_type)), given)
        groups = np.array([rng.choice([0, 0, 0, 1, 5]) for _ in given], np.int32)
        key = SortKey(0, OrderType(rng.random() < 0.5, rng.random() < 0.5))
        most = rng.choice([0, 1, 2, 10, 1 << 62])
        at = contenders(LateRows.of(rows), groups, key, most)
        found = ranking(rows, groups, (key,), ())
        leading = set(found.rows[found.rank <= most].tolist())
        assert leading <= set(range(len(given)) if at is None else at.tolist())


@pytest.mark.parametrize("seed", range(20))
def test_leading_rows_are_those_up_to_the_last_wanted_word(seed):
    rng = np.random.default_rng([run_seed(), seed])
    count, most = int(rng.integers(1, 400)), int(rng.choice([1, 2, 3, 10, 60]))
    groups = rng.integers(0, rng.choice([1, 4, 200]), count).astype(np.int32)
    words = rng.integers(0, rng.choice([2, 100, 1 << 63]), count, dtype=np.uint64)
    last = {group: sorted(words[groups == group].tolist())[:most][-1] for group in groups.tolist()}
    expected = [row for row in range(count) if words[row] <= last[groups[row]]]
    found = leading_rows(groups, words, 200, most)
    assert (list(range(count)) if found is None else found.tolist()) == expected
    assert (found is None) == (len(expected) == count)


def test_leading_rows_are_of_groups_that_there_are():
    with pytest.raises(IndexError, match="group 3 of 3"):
        leading_rows(np.array([3], np.int32), np.zeros(1, np.uint64), 3, 1)
    with pytest.raises(ValueError, match="the first 0"):
        leading_rows(np.array([0], np.int32), np.zeros(1, np.uint64), 3, 0)
