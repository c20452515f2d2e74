"""The dynamic filter against its condition, evaluated anew in each epoch: times, recoveries, NULLs, many due rows."""

import itertools
import random
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from hummock.epoch import to_unix_ms
from hummock.store.memory_store import MemoryStateStore
from relational.chunk import Op, StreamChunk
from relational.expr import ErrorCounts
from relational.expr.comparisons import Relation
from relational.expr.expression import Call, InputRef, Literal
from relational.expr.temporal_terms import NOW
from relational.plan.logical import Filter, Scan
from relational.plan.optimizer import VIEW_RULES, optimize
from relational.table.state_table import StateTable
from relational.types import DataType, Schema
from relational.types.interval import Interval
from stream.executor import waiting_rows
from stream.executor.base import ExecutorInfo
from stream.executor.dynamic_filter import DynamicFilterExecutor
from stream.message import Watermark
from stream.plan.planner import plan_query
from stream.plan.serialize import fragment_from_json, fragment_to_json
from stream.plan.stream_plan import DynamicFilterNode, StreamScanNode
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.seeds import run_seed
from tests.support.drivers.stream_driver import Folded, barrier, epoch, run_epochs

INPUT = Schema.of(id="bigint", at="timestamptz", x="int")
AT = InputRef(1, DataType.TIMESTAMPTZ)
DELAY = timedelta(milliseconds=3)
COMPARED = {
    Relation.LESS: lambda value, bound: value < bound,
    Relation.LESS_EQUAL: lambda value, bound: value <= bound,
    Relation.GREATER: lambda value, bound: value > bound,
    Relation.GREATER_EQUAL: lambda value, bound: value >= bound,
}


def time_of(number):
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=to_unix_ms(epoch(number)))


def node_of(relation):
    bound = Call("subtract", (NOW, Literal(Interval(0, 0, 3_000), DataType.INTERVAL)), DataType.TIMESTAMPTZ)
    term = Call(relation.value, (AT, bound), DataType.BOOLEAN)
    query = optimize(Filter(Scan(table_catalog("t", INPUT, (0,))), term), VIEW_RULES)
    ids = itertools.count(10)
    root = plan_query(table_catalog("mv", query.schema, query.stream_key, table_id=2), query, lambda _: next(ids)).root
    return next(each for each in root.walk() if isinstance(each, DynamicFilterNode))


def dynamic_filter(relation, input, store, *, chunk_rows=4096):
    node = node_of(relation)
    info = ExecutorInfo(node.schema, node.stream_key, "DynamicFilter")
    return DynamicFilterExecutor(info, input, node.column, node.relation, node.bound, StateTable(node.table, store),
                                 ErrorCounts(), chunk_rows=chunk_rows)


class Rows:
    """Random changes of rows whose times are around the present one."""

    def __init__(self, rng):
        self.rng, self.rows = rng, {}

    def chunk(self, number):
        changes = []
        for key in self.rng.sample(range(30), self.rng.randrange(8)):
            old = self.rows.pop(key, None)
            at = time_of(number) - DELAY + timedelta(milliseconds=self.rng.randint(-4, 6))
            new = (key, self.rng.choice([None, at, at, at, at]), self.rng.randrange(5))
            if old is None:
                changes.append((Op.INSERT, new))
            elif self.rng.random() < 0.4:
                changes.append((Op.DELETE, old))
                continue
            else:
                changes += [(Op.UPDATE_DELETE, old), (Op.UPDATE_INSERT, new)]
            self.rows[key] = new
        return StreamChunk.from_rows(INPUT, changes)

    def expected(self, relation, number):
        bound = time_of(number) - DELAY
        return {row for row in self.rows.values() if row[1] is not None and COMPARED[relation](row[1], bound)}


@pytest.mark.parametrize("relation", COMPARED)
@pytest.mark.parametrize("rows_at_once", [1 << 18, 2])
def test_rows_are_those_that_satisfy_the_condition_in_each_epoch(relation, rows_at_once, monkeypatch):
    monkeypatch.setattr(waiting_rows, "ROWS_AT_ONCE", rows_at_once)
    rng = random.Random(run_seed())
    for _ in range(3):
        store, rows, folded = MemoryStateStore(), Rows(rng), Folded((0,))
        build = partial(dynamic_filter, relation, store=store, chunk_rows=4)
        number = 1
        while number < 25:
            epochs = [[rows.chunk(at) for _ in range(rng.randrange(3))] for at in range(number, number + 3)]
            wanted = rows.expected(relation, number + 2)
            for messages in run_epochs(build, store, INPUT, (0,), epochs, first=number):
                for message in messages:
                    folded.apply(message)
            assert set(folded.rows.values()) == wanted
            number += 3  # a recovery


def test_what_is_reached_is_emitted_once_and_leaves_the_state():
    store = MemoryStateStore()
    at = time_of(3) - DELAY
    late, early = (1, at, 5), (2, at + timedelta(milliseconds=1), 5)
    epochs = [[StreamChunk.from_rows(INPUT, [(Op.INSERT, late), (Op.INSERT, early)])], [], [], [], []]
    outputs = run_epochs(
        lambda input: dynamic_filter(Relation.LESS_EQUAL, input, store), store, INPUT, (0,), epochs)
    assert [[row for message in messages for row in message.rows()] for messages in outputs] == [
        [], [], [late], [early], []]
    table = StateTable(node_of(Relation.LESS_EQUAL).table, store)
    table.init_epoch(barrier(7).epoch)
    assert list(table.scan()) == []


def test_rows_that_have_expired_when_they_arrive_take_no_state():
    store = MemoryStateStore()
    old, kept = (1, time_of(1) - 2 * DELAY, 5), (2, time_of(1), 5)
    epochs = [[StreamChunk.from_rows(INPUT, [(Op.INSERT, old), (Op.INSERT, kept)])]]
    run_epochs(lambda input: dynamic_filter(Relation.GREATER, input, store), store, INPUT, (0,), epochs)
    table = StateTable(node_of(Relation.GREATER).table, store)
    table.init_epoch(barrier(3).epoch)
    assert list(table.scan()) == [kept]


def test_watermarks_end():
    store = MemoryStateStore()
    (messages,) = run_epochs(lambda input: dynamic_filter(Relation.GREATER, input, store), store, INPUT, (0,),
                             [[Watermark(1, time_of(1))]])
    assert messages == []


def test_a_restored_plan_has_the_same_bound():
    node = node_of(Relation.GREATER)
    tables = {each.id: each for every in node.walk() for each in every.state_tables} | {
        scan.table.id: scan.table for scan in node.walk() if isinstance(scan, StreamScanNode)}
    assert fragment_from_json(fragment_to_json(node), tables.__getitem__) == node
