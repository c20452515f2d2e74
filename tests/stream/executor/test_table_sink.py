"""Sinks into tables: the changes of an epoch that are netted, and what goes on as it comes."""

import random
from collections import Counter

import pytest

from hummock.store.memory_store import MemoryStateStore
from relational.catalog.objects import SinkOrder
from relational.chunk import Op
from relational.plan.view import SINK_STATE
from relational.table.state_table import StateTable
from relational.types import Field, Schema
from stream.executor import netting
from stream.executor.base import ExecutorInfo
from stream.executor.netting import netted
from stream.executor.table_sink import TableSinkExecutor
from stream.message import Barrier
from stream.plan.state_tables import internal_table
from tests.support.drivers.pretty import from_pretty
from tests.support.drivers.seeds import run_seed
from tests.support.drivers.stream_driver import ScriptedExecutor, barrier

SCHEMA = Schema.of(k="bigint", v="varchar")


def changes(text):
    return from_pretty(text)


def test_what_is_left_is_deleted_first():
    moved = changes("- 1 a\n+ 2 a\n- 2 b\n+ 1 b\n+ 3 c\n- 3 c\nU- 4 x\nU+ 4 y\n- 5 .\n+ 5 .")
    assert netted(moved).to_pretty() == changes("- 1 a\n- 2 b\n- 4 x\n+ 2 a\n+ 1 b\n+ 4 y").to_pretty()
    assert netted(changes("+ 1 a\n- 1 a")).capacity == 0
    assert netted(changes("+ 1 a\n+ 1 a\n- 1 a\n+ 1 a")).to_pretty() == changes("+ 1 a\n+ 1 a").to_pretty()


def test_random_changes_net_to_their_balance():
    rng = random.Random(run_seed())
    for _ in range(200):
        rows = [(rng.choice("+-"), rng.randrange(4), rng.choice("ab.")) for _ in range(rng.randrange(1, 30))]
        found = netted(changes("\n".join(f"{op} {key} {value}" for op, key, value in rows)))
        balance = Counter()
        for op, key, value in rows:
            balance[key, None if value == "." else value] += 1 if op == "+" else -1
        sent = Counter()
        for op, row in zip(found.ops, found.rows(), strict=True):
            sent[tuple(row)] += 1 if op == Op.INSERT else -1
        assert sent == Counter({row: count for row, count in balance.items() if count})
        assert list(found.ops) == sorted(found.ops, reverse=True)


@pytest.fixture
def run():
    requests = []

    def execute(order, messages):
        fields = [Field(name, data_type) for name, data_type in SINK_STATE]
        catalog = internal_table(7, "state", 7, fields, [], ())
        info = ExecutorInfo(catalog.schema, (), "Sink")
        input = ScriptedExecutor(SCHEMA, (0,), messages)
        table = StateTable(catalog, MemoryStateStore())
        made = TableSinkExecutor(info, input, table, order, 4, lambda: requests.append(1))
        return list(made.execute()), table.get_row(()), requests

    return execute


def test_changes_go_on_at_once_or_at_the_barrier(run, monkeypatch):
    first, second = changes("- 1 a\n+ 2 a"), changes("- 2 b\n+ 1 b")
    messages = [barrier(1), first, second, barrier(2), barrier(3)]
    sent, state, _ = run(SinkOrder.ARRIVAL, messages)
    assert sent == messages and tuple(state) == (2, 2, None)
    sent, state, requests = run(SinkOrder.NETTED, messages)
    kinds = [isinstance(each, Barrier) for each in sent]
    assert kinds == [True, False, True, True] and tuple(state) == (2, 2, None) and not requests
    assert sent[1].to_pretty() == changes("- 1 a\n- 2 b\n+ 2 a\n+ 1 b").to_pretty()
    monkeypatch.setattr(netting, "KEPT_ROWS", 3)
    assert run(SinkOrder.NETTED, messages)[2] == [1]
