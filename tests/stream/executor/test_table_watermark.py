"""The watermark of a table that takes statements: which rows are late, what moves it, and a recovery."""

import pytest

from hummock.store.memory_store import MemoryStateStore
from relational.catalog.watermarks import WatermarkCatalog
from relational.chunk import Op, StreamChunk
from relational.expr import ErrorCounts
from relational.table.state_table import StateTable
from relational.types import Schema
from stream.errors import InvalidStatement
from stream.executor.base import ExecutorInfo
from stream.executor.table_watermark import TableWatermarkExecutor
from stream.executor.watermark_filter import late_reason
from stream.message import Add, Barrier, DeleteRows, EvaluatedChanges, InsertRows, Replayed, Watermark
from stream.plan.state_tables import watermark_table
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.stream_driver import ScriptedExecutor, barrier

SCHEMA = Schema.of(id="bigint", at="bigint")
DELAY = 10
TABLE = table_catalog("t", SCHEMA, (0,), watermarks=(WatermarkCatalog(1, DELAY),), is_append_only=True)
LATE = late_reason("at")


def chunk(*values):
    return StreamChunk.from_rows(SCHEMA, [(Op.INSERT, (number, value)) for number, value in enumerate(values)])


def insert(*values):
    return InsertRows(1, chunk(*values))


class Job:
    """What the executor emits for messages, over one store; `accept(statement)` is the table behind it."""

    def __init__(self, *messages, store=None, accept=None):
        self.store, self.errors, self.output = store or MemoryStateStore(), ErrorCounts(), []
        state = StateTable(watermark_table(7, "t.watermark", TABLE), self.store)
        source = ScriptedExecutor(SCHEMA, (0,), list(messages))
        executor = TableWatermarkExecutor(
            ExecutorInfo(SCHEMA, (0,), "watermark"), source, TABLE, state, self.errors)
        for message in executor.execute():
            if isinstance(message, InsertRows) and message.result.begin():
                (accept or self._stored)(message)
            self.output.append(message)

    @staticmethod
    def _stored(statement):
        statement.result.set_result(statement.chunk.visible_rows)

    @property
    def rows(self):
        """The values of the rows that were let through, by message."""
        chunks = (each.chunk if isinstance(each, InsertRows) else each for each in self.output)
        return [[row[1] for row in each.rows()] for each in chunks if isinstance(each, StreamChunk)]

    @property
    def watermarks(self):
        return [each.value for each in self.output if isinstance(each, Watermark)]


def test_rows_below_the_watermark_of_the_last_barrier_are_left_out_and_counted():
    first = barrier(1), insert(50, 20), insert(5), barrier(2)
    job = Job(*first, insert(39, 40, 41), insert(1), chunk(30, 60), barrier(3))
    assert job.rows == [[50, 20], [5], [40, 41], [], [60]]
    assert job.watermarks == [40, 50]
    assert job.errors.rows == {LATE: 3}
    kinds = [type(each) for each in job.output]
    assert kinds.index(Watermark) + 1 == kinds.index(Barrier, 1), "the watermark comes right before its barrier"


def test_null_is_never_late_and_moves_nothing():
    job = Job(barrier(1), insert(None), barrier(2), insert(50), barrier(3), insert(None, 3), barrier(4))
    assert job.rows == [[None], [50], [None]]
    assert job.watermarks == [40]


def test_a_statement_that_failed_or_was_cancelled_moves_nothing_and_counts_nothing():
    def refuse(statement):
        statement.result.set_exception(InvalidStatement("t", "no"))

    job = Job(barrier(1), insert(50), barrier(2), insert(1), barrier(3), accept=refuse)
    assert job.watermarks == [] and not job.errors.rows
    cancelled = insert(50)
    cancelled.result.cancel()
    assert Job(barrier(1), cancelled, barrier(2)).watermarks == []


def test_a_recovery_goes_on_with_the_committed_watermark_and_emits_it_again():
    first = Job(barrier(1), insert(50), barrier(2), insert(90))
    again = Job(barrier(3), insert(45, 39), barrier(4), insert(41), barrier(5), store=first.store)
    assert again.rows == [[45], [41]]
    assert again.watermarks == [40], "what was not committed is unknown"
    assert again.errors.rows == {LATE: 1}


def test_rows_of_a_statement_that_is_evaluated_again_are_not_judged_and_move_it():
    store = Job(barrier(1), insert(50), barrier(2)).store
    evaluation = EvaluatedChanges(chunk(30, 70), 2, TABLE.column_ids)
    again = Replayed(1, evaluation, insert(1).result, lambda: None)
    job = Job(barrier(3), again, barrier(4), insert(59), barrier(5), store=store)
    assert job.rows == [[]]
    assert job.watermarks == [60]


def test_new_readers_get_the_watermark_again():
    job = Job(barrier(1), insert(50), barrier(2), barrier(3, mutation=Add(frozenset({7}))), barrier(4), barrier(5))
    assert job.watermarks == [40, 40]


@pytest.mark.parametrize("statement", [DeleteRows(1, None)])
def test_other_statements_pass(statement):
    job = Job(barrier(1), statement, barrier(2))
    assert statement in job.output
