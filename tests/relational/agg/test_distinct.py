"""DISTINCT calls of AggGroups against sets in plain Python: many calls of one argument, evictions, contradictions."""

import random

import numpy as np
import pytest

from relational.agg import NO_CHANGE, AggGroups, AggSpec
from relational.agg.value_numbers import ValueNumbers
from relational.chunk.column import Column
from relational.chunk.data_chunk import DataChunk
from relational.chunk.stream_chunk import Op, StreamChunk
from relational.errors import ConsistencyError
from relational.memory_budget import MemoryBudget
from relational.types import DataType, Schema
from tests.support.drivers.seeds import run_seed

INPUT = Schema.of(k="varchar", v="bigint", x="double")
BIGINT = DataType.BIGINT


def counts(calls, column=1, **named):
    one = AggSpec("count", column, INPUT.types[column], BIGINT, is_distinct=True, is_filtered=True, **named)
    return [one] * calls


@pytest.mark.parametrize("is_retractable", [False, True])
@pytest.mark.parametrize("calls", [1, 3, 64, 65, 130])
def test_each_call_counts_the_values_that_pass_its_filter(calls, is_retractable):
    rng = np.random.default_rng(run_seed())
    groups, seen = AggGroups([0], [INPUT.types[0]], counts(calls, is_retractable=is_retractable)), {}
    for _ in range(4):
        rows = [("ab"[rng.integers(2)], int(rng.integers(40)) if rng.random() < 0.9 else None, 0.0) for _ in range(200)]
        masks = [(rng.random(200) < 0.1).view(np.uint8) for _ in range(calls)]
        for row, (key, value, _) in enumerate(rows):
            for call in range(calls):
                own = seen.setdefault((key, call), set())
                if value is not None and masks[call][row]:
                    own.add(value)
        chunk = StreamChunk.from_rows(INPUT, [(Op.INSERT, row) for row in rows])
        groups.apply(chunk, groups.locate(chunk).ids, masks)
        assert {key: tuple(numbers) for key, *numbers in groups.results().rows()} == {
            key: tuple(len(seen[key, call]) for call in range(calls)) for key in "ab"}


def test_values_are_equal_as_groups_are():
    rows = [("a", 1, value) for value in (0.0, -0.0, float("nan"), float("nan"), 1.5, None)]
    groups, chunk = AggGroups([], [], counts(1, 2)), DataChunk.from_rows(INPUT, rows)
    groups.apply(chunk, groups.locate(chunk).ids)
    assert list(groups.results().rows()) == [(3,)]


@pytest.mark.parametrize("data_type", [DataType.SMALLINT, DataType.INT, BIGINT])
def test_integers_are_their_own_numbers_until_one_does_not_fit(data_type):
    """Hidden rows, NULLs and rows that no call counts do not matter."""
    numbers = ValueNumbers(data_type)
    column = Column.from_pylist([7, 0, None, -5, 32_767], data_type)
    assert numbers.find(column, np.array([1, 1, 0, 0, 1], np.uint8)).tolist() == [7, 0, -1, -1, 32_767]
    found = numbers.values(np.array([7, 32_767], np.int32))
    assert found.data_type == data_type and list(found) == [7, 32_767] and numbers.size_bytes == 0
    assert numbers.find(column, np.array([1, 0, 0, 1, 0], np.uint8)) is None
    assert numbers.find(Column.from_pylist([], data_type), np.zeros(0, np.uint8)).tolist() == []
    known = ValueNumbers(data_type, has_dictionary=True)
    assert known.find(column, np.array([1, 0, 0, 1, 0], np.uint8)).tolist() == [0, -1, -1, 1, -1]
    assert list(known.values(np.array([1, 0], np.int32))) == [-5, 7] and known.size_bytes > 0


def test_rows_of_a_value_may_come_in_any_order():
    """The deletes of rows that come later: numbers are judged at the flush."""
    groups = AggGroups([0], [INPUT.types[0]], [AggSpec("count", None, None, BIGINT), *counts(1, is_retractable=True)])
    row = ("a", 7, None)
    changes = [(Op.DELETE, row), (Op.INSERT, row), (Op.INSERT, row), (Op.INSERT, ("a", 8, None))]
    chunk = StreamChunk.from_rows(INPUT, changes)
    groups.apply(chunk, groups.locate(chunk).ids)
    (values,) = groups.distinct
    assert [list(each.changes()) for each in values.flush()] == [
        [(Op.INSERT, ("a", 7, 1)), (Op.INSERT, ("a", 8, 1))]]
    (change,) = groups.flush()
    assert list(change.output.rows()) == [("a", 2, 2)]


def test_a_value_with_more_deletes_than_inserts_is_a_contradiction():
    groups = AggGroups([0], [INPUT.types[0]], counts(1, is_retractable=True))
    chunk = StreamChunk.from_rows(INPUT, [(Op.DELETE, ("a", 7, None))])
    groups.apply(chunk, groups.locate(chunk).ids)
    (values,) = groups.distinct
    with pytest.raises(ConsistencyError, match="value"):
        list(values.flush())


def test_a_distinct_call_needs_an_argument():
    with pytest.raises(ValueError, match="argument"):
        AggSpec("count", None, None, BIGINT, is_distinct=True)


@pytest.mark.parametrize("first", [0, 2**31 - 20_000, -(2**40)], ids=["own numbers", "both", "dictionary"])
def test_what_memory_has_lost_is_read_again_and_what_was_never_stored_is_not(first):
    """A budget for a share of the values: each batch asks for those that were evicted, and few others."""
    rng, budget = random.Random(run_seed()), 2 << 20
    groups = AggGroups([0], [INPUT.types[0]], counts(1, is_retractable=True), memory=MemoryBudget(budget).share())
    (values,), stored, shown, asked = groups.distinct, {}, {}, 0
    values.track_evictions()

    def read(keys):
        nonlocal asked
        asked += keys.capacity
        rows = [(*key, stored.get(key, 0)) for key in keys.rows()]
        schema = Schema.of(k="varchar", v="bigint", rows="bigint")
        return DataChunk.from_rows(schema, rows), np.array([key in stored for key in keys.rows()], np.uint8)

    live, fresh = [], first
    for _ in range(30):
        gone = [live.pop(rng.randrange(len(live))) for _ in range(min(len(live), 300))]
        new = [("ab"[rng.randrange(2)], fresh + number // 2, None) for number in range(3_000)]
        fresh, live = fresh + 1_500, live + new
        chunk = StreamChunk.from_rows(INPUT, [*((Op.DELETE, row) for row in gone), *((Op.INSERT, row) for row in new)])
        located = groups.locate(chunk)
        lost = [key for (key,) in groups.keys(located.new_ids).rows() if key in shown]
        assert not lost, "the groups are few, and used last"
        groups.apply(chunk, located.ids, None, [read])
        for changes in values.flush():
            for op, (key, value, rows) in changes.changes():
                if op == Op.DELETE:
                    del stored[key, value]
                else:
                    stored[key, value] = rows
        for output in (change.output for change in groups.flush() if change.output is not None):
            for op, (key, number) in output.changes():
                if op in (Op.INSERT, Op.UPDATE_INSERT):
                    shown[key] = number
        assert stored.keys() == {row[:2] for row in live}
        assert shown == {key: len({value for other, value, _ in live if other == key}) for key in "ab"}
    assert values.entries < len(stored)
    assert 0 < asked < 30 * 400


def test_values_of_closed_groups_leave_memory_and_are_never_asked_for():
    """Windows with a watermark: their values are not evicted, which would be noted for each of them."""
    schema = Schema.of(window="bigint", v="bigint")
    call = AggSpec("count", 1, BIGINT, BIGINT, is_distinct=True)
    groups = AggGroups([0], [BIGINT], [call], memory=MemoryBudget(2 << 20).share())
    (values,), most = groups.distinct, 0
    values.track_evictions()

    def read(keys):
        raise AssertionError(f"{keys.capacity} values are read")

    for window in range(50):
        rows = [(Op.INSERT, (window, 10_000 * window + number)) for number in range(3_000)]
        chunk = StreamChunk.from_rows(schema, rows)
        groups.apply(chunk, groups.locate(chunk).ids, None, [read])
        assert sum(changes.capacity for changes in values.flush()) == 3_000
        assert [list(change.output.rows()) for change in groups.flush()] == [[(window, 3_000)]]
        groups.forget_below(0, window)
        most = max(most, values.entries)
    assert most < 15_000


@pytest.mark.parametrize("first", [0, 2**31 - 20_000], ids=["own numbers", "both"])
def test_values_without_rows_leave_memory(first):
    """Each epoch has values of its own, and the one group stays."""
    groups = AggGroups([], [], counts(1, is_retractable=True))
    (values,), rows, before = groups.distinct, 5_000, []
    for epoch in range(12):
        fresh = [("a", first + epoch * rows + number, None) for number in range(rows)]
        changes = [*((Op.INSERT, row) for row in fresh), *((Op.DELETE, row) for row in before)]
        chunk, before = StreamChunk.from_rows(INPUT, changes), fresh
        groups.apply(chunk, groups.locate(chunk).ids)
        list(values.flush())
        (output,) = [change.output for change in groups.flush() if change is not NO_CHANGE]
        assert list(output.rows())[-1] == (rows,) if output is not None else epoch
        assert values.entries <= 4 * rows
