"""Both halves of an aggregation, one behind the other, under the contract of every executor; the first one alone."""

import pytest

from relational.chunk import Op, StreamChunk
from relational.expr import ErrorCounts
from relational.expr.aggregates import AggKind
from relational.types import Schema
from stream.executor.partial_agg import FinalAggExecutor, PartialAggExecutor
from stream.message import Watermark
from tests.stream.executor.test_hash_agg import INPUT, call, grouped, hash_agg
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.stream_driver import ScriptedExecutor, barrier
from tests.support.suites.executor_suite import ExecutorSuite

CALLS = [call(AggKind.COUNT, None), call(AggKind.COUNT, 2), call(AggKind.SUM, 2), call(AggKind.AVG, 2)]
STATE = table_catalog("groups", Schema.of(k="varchar", id="bigint"), (0,))


def partial_agg(input, group_by=(1,), cache_bytes=1 << 20):
    errors = ErrorCounts()
    return PartialAggExecutor(input.info, input, group_by, CALLS, STATE, errors, cache_bytes=cache_bytes)


class TestTwoHalves(ExecutorSuite):
    schema, stream_key = INPUT, (0,)
    keys = tuple((number,) for number in range(30))
    cache_bytes = 1 << 20

    def build(self, input, store):
        first = partial_agg(input, cache_bytes=self.cache_bytes)
        return hash_agg(first, store, (1,), CALLS, kind=FinalAggExecutor, partial_errors={})

    def oracle(self, rows):
        return [row[:5] for row in grouped(rows)]

    def new_row(self, rng, key):
        return (*key, rng.choice(["a", "b", "c", None]), rng.choice([None, *range(-3, 4)]), rng.random())


class TestTwoHalvesWithoutMemory(TestTwoHalves):
    """The first half sends its states after each chunk."""

    cache_bytes = 1


def messages_of(executor):
    return [list(map(repr, message.rows())) if isinstance(message, StreamChunk) else message
            for message in executor.execute()]


def test_watermarks_of_group_columns_follow_the_states_with_their_positions():
    chunk = StreamChunk.from_rows(INPUT, [(Op.INSERT, (1, "a", 2, 0.5)), (Op.DELETE, (2, "a", 3, 0.5))])
    script = [barrier(1), Watermark(0, 7), chunk, Watermark(3, 0.5), Watermark(0, 8), chunk, barrier(2), barrier(3)]
    executor = partial_agg(ScriptedExecutor(INPUT, (0,), script), group_by=(1, 0))
    assert messages_of(executor) == [
        barrier(1),
        ["('a', 1, 2, 2, 2, Decimal('4'), 2, Decimal('4'), 2)",
         "('a', 2, -2, -2, -2, Decimal('-6'), -2, Decimal('-6'), -2)"],
        Watermark(1, 8),
        barrier(2),
        barrier(3),
    ]
    assert executor.rows == 4


@pytest.mark.parametrize(("cache_bytes", "chunks"), [(1 << 30, 1), (1, 3)])
def test_groups_beyond_the_cache_are_sent_before_the_barrier(cache_bytes, chunks):
    parts = [StreamChunk.from_rows(INPUT, [(Op.INSERT, (number, "a", number, None))]) for number in range(3)]
    executor = partial_agg(ScriptedExecutor(INPUT, (0,), [barrier(1), *parts, barrier(2)]), cache_bytes=cache_bytes)
    found = messages_of(executor)
    assert found[0] == barrier(1) and found[-1] == barrier(2) and len(found) == 2 + chunks
