"""Both halves of an aggregation, one behind the other, under the contract of every executor; the first one alone."""

import pytest

from relational.chunk import Op, StreamChunk
from relational.expr import ErrorCounts
from relational.expr.aggregates import AggKind
from relational.types import Schema
from stream.executor import partial_agg as partial_agg_module
from stream.executor.partial_agg import PartialAggExecutor, Reduction
from stream.message import GroupStates, Watermark
from tests.stream.executor.test_hash_agg import INPUT, call, grouped, hash_agg
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.stream_driver import ScriptedExecutor, barrier
from tests.support.suites.executor_suite import ExecutorSuite

CALLS = [call(AggKind.COUNT, None), call(AggKind.COUNT, 2), call(AggKind.SUM, 2), call(AggKind.AVG, 2)]
STATE = table_catalog("groups", Schema.of(k="varchar", id="bigint"), (0,))


def partial_agg(input, group_by=(1,), cache_bytes=1 << 20, chunk_rows=4096, reduction=None, early_groups=1 << 15):
    return PartialAggExecutor(input.info, input, group_by, CALLS, STATE, ErrorCounts(), cache_bytes=cache_bytes,
                              chunk_rows=chunk_rows, reduction=reduction, early_groups=early_groups)


@pytest.fixture
def short_samples(monkeypatch):
    """Groups of few rows are abandoned, and tried again, after a few rows."""
    monkeypatch.setattr(partial_agg_module, "SAMPLE_ROWS", 4)
    monkeypatch.setattr(partial_agg_module, "FIRST_PASSED", 1)
    monkeypatch.setattr(partial_agg_module, "MOST_PASSED", 2)


class TestTwoHalves(ExecutorSuite):
    schema, stream_key = INPUT, (0,)
    keys = tuple((number,) for number in range(30))
    cache_bytes = 1 << 20

    def build(self, input, store):
        first = partial_agg(input, cache_bytes=self.cache_bytes, reduction=self.reduction())
        return hash_agg(first, store, (1,), CALLS)

    def reduction(self):
        return None

    def oracle(self, rows):
        return [row[:5] for row in grouped(rows)]

    def new_row(self, rng, key):
        return (*key, rng.choice(["a", "b", "c", None]), rng.choice([None, *range(-3, 4)]), rng.random())


class TestTwoHalvesWithoutMemory(TestTwoHalves):
    """The first half sends its states after each chunk."""

    cache_bytes = 1


@pytest.mark.usefixtures("short_samples")
class TestTwoHalvesInTurnWithRows(TestTwoHalves):
    """The first half passes on rows, and tries groups again, all the time."""

    def reduction(self):
        return Reduction()


def messages_of(executor):
    def shown(message):
        if isinstance(message, GroupStates):
            return list(map(repr, message.chunk.rows()))
        return message.to_pretty() if isinstance(message, StreamChunk) else message

    return list(map(shown, executor.execute()))


def inserts(*rows):
    return StreamChunk.from_rows(INPUT, [(Op.INSERT, row) for row in rows])


def test_watermarks_of_group_columns_follow_the_states():
    chunk = StreamChunk.from_rows(INPUT, [(Op.INSERT, (1, "a", 2, 0.5)), (Op.DELETE, (2, "a", 3, 0.5))])
    script = [barrier(1), Watermark(0, 7), chunk, Watermark(3, 0.5), Watermark(0, 8), chunk, barrier(2), barrier(3)]
    executor = partial_agg(ScriptedExecutor(INPUT, (0,), script), group_by=(1, 0))
    assert messages_of(executor) == [
        barrier(1),
        ["('a', 1, 2, 2, 2, Decimal('4'), 2, Decimal('4'), 2)",
         "('a', 2, -2, -2, -2, Decimal('-6'), -2, Decimal('-6'), -2)"],
        Watermark(0, 8),
        barrier(2),
        barrier(3),
    ]
    assert executor.rows == 4


@pytest.mark.parametrize(("cache_bytes", "chunks"), [(1 << 30, 1), (1, 3)])
def test_groups_beyond_the_cache_are_sent_before_the_barrier(cache_bytes, chunks):
    parts = [inserts((number, "a", number, None)) for number in range(3)]
    executor = partial_agg(ScriptedExecutor(INPUT, (0,), [barrier(1), *parts, barrier(2)]), cache_bytes=cache_bytes)
    found = messages_of(executor)
    assert found[0] == barrier(1) and found[-1] == barrier(2) and len(found) == 2 + chunks


@pytest.mark.parametrize(("groups", "rows", "chunks"), [(2, 8, 3), (2, 7, 2), (1, 20, 1)])
def test_many_groups_are_sent_before_the_barrier_once_they_have_enough_rows(groups, rows, chunks):
    """Three chunks with `rows` rows of each of the groups: of two with 7 rows after the second chunk."""
    part = inserts(*((number, "ab"[number % groups], 1, None) for number in range(groups * rows)))
    script = [barrier(1), part, part, part, barrier(2)]
    found = messages_of(partial_agg(ScriptedExecutor(INPUT, (0,), script), early_groups=2))
    assert found[0] == barrier(1) and found[-1] == barrier(2) and len(found) == 2 + chunks


def test_states_are_sent_in_chunks():
    many = inserts(*((number, str(number), 1, None) for number in range(10)))
    found = messages_of(partial_agg(ScriptedExecutor(INPUT, (0,), [barrier(1), many, barrier(2)]), chunk_rows=4))
    assert [len(each) for each in found[1:-1]] == [4, 4, 2]


@pytest.mark.usefixtures("short_samples")
def test_groups_of_few_rows_are_abandoned_and_tried_again():
    scattered = [inserts(*((at, f"{at}{number}", 1, None) for number in range(4))) for at in range(4)]
    equal = inserts(*((9, "a", 1, None) for _ in range(partial_agg_module.LEAST_REDUCTION)))
    script = [barrier(1), *scattered, equal, equal, barrier(2), scattered[0], barrier(3)]
    found = messages_of(partial_agg(ScriptedExecutor(INPUT, (0,), script), reduction=Reduction()))
    kinds = ["states" if isinstance(each, list) else "rows" if isinstance(each, str) else "barrier" for each in found]
    assert kinds == ["barrier", "states", "rows", "states", "rows", "rows", "states", "barrier", "states", "barrier"]


def test_a_reduction_by_groups_that_live_on_counts_their_states_once():
    reduction = Reduction()
    half = partial_agg_module.SAMPLE_ROWS // 2
    few = half // partial_agg_module.LEAST_REDUCTION
    for _ in range(5):
        assert not reduction.take(half, few) and not reduction.take(half, few)
    reduction.sent(few)
    assert not reduction.take(2 * half, few)
    assert reduction.take(2 * half, few + 2 * few + 1)
    assert reduction.is_poor


@pytest.mark.parametrize("reduction", [None, Reduction], ids=["all", "few"])
@pytest.mark.usefixtures("short_samples")
def test_groups_are_sent_as_rows(reduction):
    """Each group once for an epoch, or rows as they came."""
    schema = Schema.of(k="varchar", id="bigint")
    chunks = [StreamChunk.from_rows(schema, [(Op.INSERT, row) for row in rows])
              for rows in ([("a", 1), ("a", 1), ("b", None)], [("a", 1), ("c", 2), ("a", 1)], [("d", 1)])]
    table = table_catalog("values", schema, (0, 1))
    input = ScriptedExecutor(schema, (0, 1), [barrier(1), *chunks, barrier(2), chunks[0], barrier(3)])
    executor = PartialAggExecutor(
        input.info, input, (0, 1), (), table, ErrorCounts(), cache_bytes=1 << 20, chunk_rows=2,
        reduction=None if reduction is None else reduction(), sends_rows=True)
    epochs = [[]]
    for message in executor.execute():
        if isinstance(message, StreamChunk):
            assert message.types == schema.types and message.capacity <= 3
            epochs[-1] += message.rows()
        else:
            epochs.append([])
    _, first, second, _ = epochs
    assert set(first) == {("a", 1), ("b", None), ("c", 2), ("d", 1)} and set(second) == {("a", 1), ("b", None)}
    assert reduction is not None or (len(first), len(second)) == (4, 2)
