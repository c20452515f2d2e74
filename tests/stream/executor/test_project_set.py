"""Set-returning functions in a stream: the contract of executors, updates, parts that are too large, errors."""

import random

import numpy as np
import pyarrow as pa
import pytest

from relational.chunk import DataChunk, StreamChunk
from relational.errors import EvaluationError
from relational.expr import ErrorCounts, set_rows
from relational.expr.expression import Call, InputRef, Literal
from relational.expr.kernels import series
from relational.expr.set_rows import SetRows
from relational.types import DataType, Schema
from stream.executor.base import ExecutorInfo
from stream.executor.project_set import ProjectSetExecutor
from stream.message import Watermark
from tests.support.drivers.pretty import from_pretty
from tests.support.drivers.stream_driver import ScriptedExecutor, barrier
from tests.support.suites.executor_suite import ExecutorSuite

PAIR = Schema.of(id="bigint", last="bigint")
LAST = InputRef(1, DataType.BIGINT)
MADE = Schema.of(id="bigint", x="bigint", y="bigint", number="bigint")


def up_to(last, first=1):
    return Call("generate_series", (Literal(first, DataType.BIGINT), last), DataType.parse("bigint[]"))


def rows_of(source, *functions, is_outer=False, chunk_rows=4, errors=None):
    rows = SetRows((0,), functions, is_outer=is_outer)
    info = ExecutorInfo(MADE, (0, len(functions) + 1), "ProjectSet")
    return ProjectSetExecutor(info, source, rows, (0,), errors or ErrorCounts(), chunk_rows=chunk_rows)


class TestProjectSet(ExecutorSuite):
    """Two series side by side, of which the first may be longer, shorter, or none."""

    schema, stream_key = PAIR, (0,)
    keys = tuple((number,) for number in range(8))
    is_outer = False

    def build(self, input, store):
        return rows_of(input, up_to(LAST), up_to(Literal(2, DataType.BIGINT), 2), is_outer=self.is_outer)

    def oracle(self, rows):
        found = []
        for key, last in rows:
            firsts, seconds = list(range(1, (last or 0) + 1)), [2]
            for at in range(max(len(firsts), 1)):
                found.append((key, *(each[at] if at < len(each) else None for each in (firsts, seconds)), at + 1))
        return found

    def new_row(self, rng, key):
        return (*key, rng.choice([None, 0, 1, 2, 3, 7]))


class TestOuter(TestProjectSet):
    is_outer = True

    def build(self, input, store):
        return rows_of(input, up_to(LAST), is_outer=True)

    def oracle(self, rows):
        return [
            (key, at, at) for key, last in rows for at in (list(range(1, (last or 0) + 1)) or [None])
        ]


def outputs(build, *texts):
    source = ScriptedExecutor(PAIR, (0,), [barrier(1), *(from_pretty(text, PAIR) for text in texts)])
    return [each.to_pretty() for each in list(build(source).execute())[1:]]


def test_halves_of_an_update_follow_each_other_for_each_number():
    text = "U- 7 2\nU+ 7 3\n- 8 1\nU- 9 2\nU+ 9 0"
    found = outputs(lambda source: rows_of(source, up_to(LAST), chunk_rows=100), text)
    assert found == ["+ 7 3 3\n- 8 1 1\n- 9 1 1\n- 9 2 2"]
    doubled = Call("generate_series", (LAST, Literal(5, DataType.BIGINT)), DataType.parse("bigint[]"))
    found = outputs(lambda source: rows_of(source, doubled, chunk_rows=100), "U- 7 3\nU+ 7 4")
    assert found == ["U- 7 3 1\nU+ 7 4 1\nU- 7 4 2\nU+ 7 5 2\n- 7 5 3"]


def test_chunks_are_small_and_no_update_is_split():
    doubled = Call("generate_series", (LAST, Literal(9, DataType.BIGINT)), DataType.parse("bigint[]"))
    found = outputs(lambda source: rows_of(source, doubled, chunk_rows=3), "U- 7 1\nU+ 7 2")
    assert all(len(text.split("\n")) <= 3 for text in found)
    assert "\n".join(found).count("U-") == "\n".join(found).count("U+") == 8
    assert all(text.split("\n")[0].startswith(("U-", "-")) for text in found)


def test_a_watermark_of_a_passed_column_goes_on():
    source = ScriptedExecutor(PAIR, (0,), [barrier(1), Watermark(0, 5), Watermark(1, 6)])
    assert list(rows_of(source, up_to(LAST)).execute())[1:] == [Watermark(0, 5)]


def test_a_row_whose_function_has_no_value_gives_none_and_is_counted_with_its_sign():
    errors = ErrorCounts()
    by_step = Call("generate_series", (Literal(1, DataType.BIGINT), Literal(2, DataType.BIGINT), LAST),
                   DataType.parse("bigint[]"))
    assert outputs(lambda source: rows_of(source, by_step, errors=errors), "+ 1 0\n+ 2 1\n+ 3 0\n- 1 0") == [
        "+ 2 1 1\n+ 2 2 2"
    ]
    assert errors.rows == {"the step of a series is 0": 1}


def test_a_series_that_is_too_long_is_an_error_of_its_row():
    chunk = DataChunk.from_rows(PAIR, [(1, 3), (2, series.MAX_ROWS + 1)])
    with pytest.raises(EvaluationError, match="more than 16777216 rows"):
        list(SetRows((0,), [up_to(LAST)])(chunk, 10, strict=True))
    errors = ErrorCounts()
    found = [row for made in SetRows((0,), [up_to(LAST)])(chunk, 10, errors=errors) for row in made.rows()]
    assert found == [(1, 1, 1), (1, 2, 2), (1, 3, 3)]
    assert sum(errors.rows.values()) == 1


@pytest.mark.parametrize("seed", range(6))
def test_rows_do_not_depend_on_how_many_are_evaluated_at_once(seed, monkeypatch):
    print("seed", seed)
    rng = random.Random(seed)
    changes = []
    for key in range(40):
        old, new = (rng.choice([0, 1, 5, 9, None]) for _ in range(2))
        changes += rng.choice(([(0, (key, old))], [(1, (key, old))], [(3, (key, old)), (2, (key, new))]))
    chunk = StreamChunk.from_rows(PAIR, changes)
    hidden = np.array([rng.random() < 0.9 for _ in changes], np.uint8)
    chunk = chunk.filter(hidden)

    def folded():
        balance = {}
        for made in SetRows((0,), [up_to(LAST)])(chunk, rng.randint(2, 9)):
            for op, row in made.changes():
                balance[row] = balance.get(row, 0) + (-1 if op & 1 else 1)
        return {row: count for row, count in balance.items() if count}

    whole = folded()
    monkeypatch.setattr(series, "MAX_ROWS", 10)
    assert folded() == whole


def test_constant_lists_are_evaluated_once(monkeypatch):
    found = []
    value = set_rows.Evaluator.value

    def noted(self, context):
        found.append(value(self, context))
        return found[-1]

    monkeypatch.setattr(set_rows.Evaluator, "value", noted)
    chunk = DataChunk.from_rows(PAIR, [(number, 0) for number in range(1_000)])
    made = list(SetRows((0,), [up_to(Literal(3, DataType.BIGINT))])(chunk, 10_000))
    assert [each.capacity for each in made] == [3_000]
    assert len(found) == 1 and isinstance(found[0], pa.Scalar)
