
import datetime as dt

import numpy as np
import pytest

from relational.chunk import StreamChunk
from relational.expr import ErrorCounts
from relational.expr.expression import Call, Cast, InputRef, Literal
from relational.types import DataType, Interval, Schema
from stream.executor.base import ExecutorInfo
from stream.executor.filter import FilterExecutor
from stream.executor.project import ProjectExecutor
from stream.message import Watermark
from tests.support.drivers.pretty import from_pretty
from tests.support.drivers.stream_driver import ScriptedExecutor, barrier
from tests.support.suites.executor_suite import ExecutorSuite
from tests.support.suites.interpreter_work import assert_no_work_per_row, work_of

PAIR = Schema.of(id="bigint", amount="bigint")
AMOUNT = InputRef(1, DataType.BIGINT)


def literal(value):
    return Literal(value, DataType.BIGINT)


def above(value):
    return Call("greater", (AMOUNT, literal(value)), DataType.BOOLEAN)


def half_of_amount():
    return Call("divide", (AMOUNT, literal(10)), DataType.BIGINT)


def filtered(source, predicate):
    return FilterExecutor(ExecutorInfo(PAIR, (0,), "Filter"), source, predicate, ErrorCounts())


def projected(source, *expressions):
    schema = Schema.of(**{f"c{i}": each.data_type for i, each in enumerate(expressions)})
    return ProjectExecutor(ExecutorInfo(schema, (0,), "Project"), source, expressions, ErrorCounts())


def outputs(build, *texts):
    chunks = [from_pretty(text, PAIR) for text in texts]
    source = ScriptedExecutor(PAIR, (0,), [barrier(1), *chunks])
    return [each.to_pretty() for each in list(build(source).execute())[1:]]


class TestFilter(ExecutorSuite):
    schema, stream_key = PAIR, (0,)
    keys = tuple((number,) for number in range(8))

    def build(self, input, store):
        return filtered(input, above(3))

    def oracle(self, rows):
        return [row for row in rows if row[1] is not None and row[1] > 3]

    def new_row(self, rng, key):
        return (*key, rng.choice([None, 1, 2, 3, 4, 5, 6]))


class TestProject(ExecutorSuite):
    schema, stream_key = PAIR, (0,)
    keys = tuple((number,) for number in range(8))

    def build(self, input, store):
        return projected(input, InputRef(0, DataType.BIGINT), half_of_amount())

    def oracle(self, rows):
        return [(key, None if amount is None else amount // 10) for key, amount in rows]

    def new_row(self, rng, key):
        return (*key, rng.choice([None, *range(0, 40, 3)]))


def test_an_update_that_half_survives_a_filter_is_a_plain_change():
    text = """
        U- 1 2
        U+ 1 5
        U- 2 5
        U+ 2 2
        U- 3 5
        U+ 3 6
        """
    assert outputs(lambda source: filtered(source, above(3)), text) == ["+ 1 5\n- 2 5\nU- 3 5\nU+ 3 6"]


def test_null_is_not_true():
    assert outputs(lambda source: filtered(source, above(3)), "+ 1 .\n+ 2 4") == ["+ 2 4"]


def test_a_chunk_of_which_nothing_is_left_is_not_sent():
    assert outputs(lambda source: filtered(source, above(3)), "+ 1 1", "+ 2 9") == ["+ 2 9"]


def test_hidden_rows_stay_hidden():
    assert outputs(lambda source: filtered(source, above(3)), "+ 1 9 D\n+ 2 9") == ["+ 2 9"]


def test_halves_that_are_equal_after_a_projection_vanish():
    text = "U- 1 20\nU+ 1 25\nU- 2 20\nU+ 2 30"
    refs = (InputRef(0, DataType.BIGINT), half_of_amount())
    assert outputs(lambda source: projected(source, *refs), text) == ["U- 2 2\nU+ 2 3"]


def test_a_row_whose_expression_fails_gets_null_in_a_stream():
    by_amount = Call("divide", (literal(6), AMOUNT), DataType.BIGINT)
    refs = (InputRef(0, DataType.BIGINT), by_amount)
    assert outputs(lambda source: projected(source, *refs), "+ 1 0\n+ 2 3") == ["+ 1 .\n+ 2 2"]


def work_of_a_chunk(build, rows):
    """The interpreter's work for one chunk of `rows` rows, after a warm-up chunk."""
    ids = np.arange(rows)
    chunk = StreamChunk.from_rows(PAIR, [(0, (int(key), int(key) % 7)) for key in ids])
    messages = build(ScriptedExecutor(PAIR, (0,), [barrier(1), chunk, chunk])).execute()
    next(messages), next(messages)
    return work_of(lambda: next(messages))


@pytest.mark.parametrize(
    "build",
    [
        lambda source: filtered(source, above(3)),
        lambda source: projected(source, InputRef(0, DataType.BIGINT), half_of_amount()),
    ],
    ids=["filter", "project"],
)
def test_work_of_the_interpreter_does_not_grow_with_the_rows_of_a_chunk(build):
    work_of_a_chunk(build, 10)      # warm-up
    assert_no_work_per_row(work_of_a_chunk(build, 1_024), work_of_a_chunk(build, 10_240), 9_216)


def test_watermarks_pass_through_expressions_that_never_decrease():
    day = Schema.of(id="bigint", at="timestamp")
    at = InputRef(1, DataType.TIMESTAMP)
    hour = Call("date_trunc_hour", (at,), DataType.TIMESTAMP)
    later = Call("add", (hour, Literal(Interval(0, 1, 0), DataType.INTERVAL)), DataType.TIMESTAMP)
    falling = Call("subtract", (literal(0), InputRef(0, DataType.BIGINT)), DataType.BIGINT)
    tens = Call("divide", (InputRef(0, DataType.BIGINT), literal(10)), DataType.BIGINT)
    expressions = (InputRef(0, DataType.BIGINT), at, hour, later, Cast(at, DataType.DATE), falling, tens)
    moment = dt.datetime(2025, 1, 31, 12, 30)
    source = ScriptedExecutor(day, (0,), [barrier(1), Watermark(1, moment), Watermark(0, -15), barrier(2)])
    found = [(each.column, each.value) for each in projected(source, *expressions).execute()
             if isinstance(each, Watermark)]
    assert found == [
        (1, moment), (2, dt.datetime(2025, 1, 31, 12)), (3, dt.datetime(2025, 2, 1, 12)), (4, dt.date(2025, 1, 31)),
        (0, -15), (6, -1),
    ]


def test_an_expression_without_a_value_at_the_watermark_has_none():
    source = ScriptedExecutor(PAIR, (0,), [barrier(1), Watermark(1, 1 << 62), barrier(2)])
    twice = Call("multiply", (AMOUNT, literal(4)), DataType.BIGINT)
    assert list(projected(source, InputRef(0, DataType.BIGINT), twice).execute()) == [barrier(1), barrier(2)]


def test_a_filter_passes_watermarks_on():
    messages = [barrier(1), Watermark(1, 4), barrier(2)]
    assert list(filtered(ScriptedExecutor(PAIR, (0,), messages), above(3)).execute()) == messages
