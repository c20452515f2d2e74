"""The top-n executor against Python's sort: kinds of numbers, offsets, evictions, recoveries, append-only inputs."""

import itertools
import random
from dataclasses import replace
from typing import ClassVar

import pytest

from hummock.store.memory_store import MemoryStateStore
from relational.chunk import Op, StreamChunk
from relational.expr import ErrorCounts
from relational.expr.window_functions import RankKind
from relational.memory_budget import MemoryBudget
from relational.plan.logical import Scan, TopN
from relational.plan.optimizer import VIEW_RULES, optimize
from relational.table.row_checks import LONG_KEY
from relational.table.state_table import StateTable
from relational.types import DESCENDING, OrderType, Schema, SortKey
from stream.executor import top_n as top_n_module
from stream.executor.base import ExecutorInfo
from stream.executor.project import ProjectExecutor
from stream.executor.top_n import TopNExecutor, Window
from stream.plan import state_tables
from stream.plan.planner import plan_query
from stream.plan.stream_plan import ProjectNode, TopNNode
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.pretty import from_pretty
from tests.support.drivers.stream_driver import ScriptedExecutor, barrier, run_epochs
from tests.support.suites.executor_suite import ExecutorSuite

INPUT = Schema.of(id="bigint", g="int", x="int", t="varchar")
BY_X = (SortKey(2),)


def node_of(groups=(1,), keys=BY_X, kind=RankKind.ROW_NUMBER, limit=2, offset=0, name=None, append_only=False):
    """The planner's node."""
    table = table_catalog("t", INPUT, (0,), is_append_only=append_only)
    query = optimize(TopN(Scan(table), groups, keys, kind, limit, offset, name), VIEW_RULES)
    ids = itertools.count(10)
    root = plan_query(table_catalog("mv", query.schema, query.stream_key, table_id=2), query, lambda _: next(ids)).root
    return next(each for each in root.walk() if isinstance(each, TopNNode))


def with_order_in_key(node):
    """As earlier releases planned a top-n of append-only input."""
    catalog = node.table
    ordered = state_tables.ordered_table(
        catalog.id, catalog.name, 1, catalog.schema, node.groups, node.keys, node.input.stream_key, catalog.vnode_count
    )
    return replace(node, table=ordered)


def top_n(input, store, *, cache_bytes=1 << 28, chunk_rows=4096, errors=None, planned=lambda node: node, **options):
    node = planned(node_of(**options))
    projects = [each for each in node.walk() if isinstance(each, ProjectNode)]
    for project in projects:
        info = ExecutorInfo(project.schema, project.stream_key, "Project")
        input = ProjectExecutor(info, input, project.expressions, ErrorCounts())
    window = Window(node.groups, node.keys, node.kind, node.offset, node.last, node.width, node.has_number)
    return TopNExecutor(
        ExecutorInfo(node.schema, node.stream_key, "TopN"),
        input,
        window,
        StateTable(node.table, store),
        errors or ErrorCounts(),
        is_append_only=node.is_append_only,
        memory=MemoryBudget(cache_bytes).share(),
        chunk_rows=chunk_rows,
    )


def place_of(value, key):
    """Where a value comes in an order."""
    is_null = value is None
    number = 0 if is_null else -value if key.order.descending else value
    return (not is_null, number) if key.order.nulls_first else (is_null, number)


def expected(rows, groups=(1,), keys=BY_X, kind=RankKind.ROW_NUMBER, limit=2, offset=0, name=None, append_only=False):
    found = []
    by_group = {}
    for row in sorted(rows, key=lambda row: (*(place_of(row[key.column], key) for key in keys), row[0])):
        by_group.setdefault(tuple(row[column] for column in groups), []).append(row)
    for members in by_group.values():
        values = [tuple(row[key.column] for key in keys) for row in members]
        for at, row in enumerate(members):
            number = at + 1
            if kind is not RankKind.ROW_NUMBER:
                before = values[: values.index(values[at])]
                number = 1 + (len(before) if kind is RankKind.RANK else len(set(before)))
            if offset < number <= offset + limit:
                found.append((*row, number) if name else row)
    return found


class TopNSuite(ExecutorSuite):
    schema, stream_key = INPUT, (0,)
    keys = tuple((number,) for number in range(40))
    options: ClassVar[dict] = {}
    memory: ClassVar[dict] = {}

    def build(self, input, store):
        return top_n(input, store, **self.options, **self.memory)

    def oracle(self, rows):
        return expected(rows, **self.options)

    def new_row(self, rng, key):
        return (*key, rng.choice([None, 1, 1, 2, 3]), rng.choice([None, *range(5)]), rng.choice("abc"))


class TestTopN(TopNSuite):
    pass


class TestTopNThatEvictsEveryGroup(TopNSuite):
    memory: ClassVar = {"cache_bytes": 1}


class TestTopNInSmallSlices(TopNSuite):
    options: ClassVar = {"limit": 5}
    memory: ClassVar = {"chunk_rows": 2}

    @pytest.fixture(autouse=True)
    def _read_little(self, monkeypatch):
        monkeypatch.setattr(top_n_module, "MOST_READ", 1)
        monkeypatch.setattr(top_n_module, "READ_AT_ONCE", 1)
        monkeypatch.setattr(TopNExecutor, "kept_rows", 7)


class TestNumbersAreEmitted(TopNSuite):
    options: ClassVar = {"limit": 3, "name": "n"}


class TestAnOffset(TopNSuite):
    options: ClassVar = {"limit": 2, "offset": 2, "name": "n"}


class TestTheOnlyRow(TopNSuite):
    options: ClassVar = {"limit": 1, "keys": (SortKey(2, DESCENDING),)}


class TestNoRow(TopNSuite):
    options: ClassVar = {"limit": 0}


class TestSeveralKeys(TopNSuite):
    options: ClassVar = {"keys": (SortKey(2, OrderType(True, False)), SortKey(0, DESCENDING)), "limit": 3}


class TestRank(TopNSuite):
    options: ClassVar = {"kind": RankKind.RANK, "limit": 3, "name": "n"}


class TestRankThatEvictsEveryGroup(TopNSuite):
    options: ClassVar = {"kind": RankKind.RANK, "limit": 2}
    memory: ClassVar = {"cache_bytes": 1}

    @pytest.fixture(autouse=True)
    def _read_little(self, monkeypatch):
        monkeypatch.setattr(top_n_module, "MOST_READ", 1)


class TestDenseRank(TopNSuite):
    options: ClassVar = {"kind": RankKind.DENSE_RANK, "limit": 2, "name": "n"}


class TestDenseRankThatEvictsEveryGroup(TopNSuite):
    options: ClassVar = {"kind": RankKind.DENSE_RANK, "limit": 2, "offset": 1}
    memory: ClassVar = {"cache_bytes": 1}


class TestTheWholeInputIsOneGroup(TopNSuite):
    options: ClassVar = {"groups": (), "limit": 4, "offset": 1}


def inserts(rng, count, first=0):
    rows = [(first + number, rng.choice([None, 1, 2, 3]), rng.choice([None, *range(9)]), "t")
            for number in range(count)]
    return StreamChunk.from_rows(INPUT, [(Op.INSERT, row) for row in rows]), rows


@pytest.mark.parametrize("cache_bytes", [1, 1 << 28])
@pytest.mark.parametrize("planned", [lambda node: node, with_order_in_key], ids=["short keys", "order in the key"])
@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("kind", list(RankKind))
def test_of_an_append_only_input_the_table_has_the_windows_alone(kind, limit, planned, cache_bytes):
    rng, store = random.Random(7), MemoryStateStore()
    options = {"kind": kind, "limit": limit, "append_only": True}
    rows, result = [], {}
    for number in range(1, 8):
        chunk, more = inserts(rng, 50, 100 * number)
        rows += more
        made = run_epochs(lambda input: top_n(input, store, cache_bytes=cache_bytes, planned=planned, **options),
                          store, INPUT, (0,), [[chunk]], first=number)
        for op, row in (change for part in made[0] for change in part.changes()):
            assert (result.pop(row[0]) == row) if op in (Op.DELETE, Op.UPDATE_DELETE) else row[0] not in result
            if op in (Op.INSERT, Op.UPDATE_INSERT):
                result[row[0]] = row
        assert sorted(result.values()) == sorted(expected(rows, **options))
        stored = StateTable(planned(node_of(**options)).table, store)
        stored.init_epoch(barrier(number + 1).epoch)
        assert sorted(row[:4] for row in stored.scan()) == sorted(result.values())


@pytest.mark.parametrize("append_only", [False, True])
def test_the_key_of_the_table_has_the_order_only_where_a_window_is_filled_again(append_only):
    def key(**options):
        return node_of(append_only=append_only, **options).table.pk_indices

    assert key(limit=1) == ((1,) if append_only else (1, 2, 0))
    assert key(limit=2) == key(limit=1, offset=1) == key(limit=1, kind=RankKind.RANK) == (
        (1, 0) if append_only else (1, 2, 0))


def test_a_row_takes_the_place_of_the_only_one_of_its_group():
    store = MemoryStateStore()
    epochs = [[from_pretty(text, INPUT)] for text in ("+ 1 1 5 a\n+ 2 1 6 a", "+ 3 1 4 a\n+ 4 2 1 a")]
    written = []
    ingest = store.ingest_batch

    def noted(batch, *args, **options):
        written.append(batch)
        return ingest(batch, *args, **options)

    store.ingest_batch = noted
    made = run_epochs(lambda input: top_n(input, store, limit=1, append_only=True), store, INPUT, (0,), epochs)
    assert lines(made) == [["+ 1 1 5 a"], ["+ 3 1 4 a", "+ 4 2 1 a", "- 1 1 5 a"]]
    assert [(len(batch), batch.values.null_count) for batch in written] == [(1, 0), (2, 0)]


def lines(made):
    return [sorted(line for chunk in part for line in chunk.to_pretty().split("\n")) for part in made]


def epochs_of(texts, **options):
    epochs = [[from_pretty(text, INPUT)] if text else [] for text in texts]
    store = MemoryStateStore()
    return lines(run_epochs(lambda input: top_n(input, store, **options), store, INPUT, (0,), epochs))


def test_a_group_emits_the_difference_of_an_epoch():
    first = "+ 1 1 5 a\n+ 2 1 6 a\n+ 3 1 7 a"
    churn = "- 1 1 5 a\n+ 1 1 5 a\n+ 4 1 1 a\n- 4 1 1 a\nU- 3 1 7 a\nU+ 3 1 6 b"
    assert epochs_of([first, churn, "- 1 1 5 a"]) == [["+ 1 1 5 a", "+ 2 1 6 a"], [], ["+ 3 1 6 b", "- 1 1 5 a"]]


def test_a_row_that_moves_within_the_window_changes_only_if_its_number_is_emitted():
    first, second = "+ 1 1 5 a\n+ 2 1 6 a", "U- 1 1 5 a\nU+ 1 1 9 a\n+ 3 2 1 a"
    assert epochs_of([first, second])[1] == ["+ 1 1 9 a", "+ 3 2 1 a", "- 1 1 5 a"]
    assert epochs_of([first, second], name="n")[1] == [
        "+ 1 1 9 a 2", "+ 2 1 6 a 1", "+ 3 2 1 a 1", "- 1 1 5 a 1", "- 2 1 6 a 2",
    ]  # fmt: skip


def test_a_window_is_read_again_only_if_it_was_full_and_lost_a_row(monkeypatch):
    read = []
    whole = StateTable.first_rows

    def noted(table, prefixes, limit):
        read.append(prefixes.capacity)
        return whole(table, prefixes, limit)

    monkeypatch.setattr(StateTable, "first_rows", noted)
    epochs_of(["+ 1 1 5 a\n+ 2 1 6 a\n+ 3 1 7 a\n+ 4 2 1 a", "+ 5 1 1 a\n- 4 2 1 a", "- 3 1 7 a"])
    assert read == []
    epochs_of(["+ 1 1 5 a\n+ 2 1 6 a\n+ 3 1 7 a\n+ 4 2 1 a", "- 1 1 5 a\n- 4 2 1 a"])
    assert read == [1]


def test_a_row_whose_key_is_too_long_is_dropped_and_counted():
    errors, store = ErrorCounts(), MemoryStateStore()
    rows = [(1, 1, 1, "x" * (1 << 20)), (2, 1, 2, "b")]
    chunk = StreamChunk.from_rows(INPUT, [(Op.INSERT, row) for row in rows])
    script = [barrier(1), chunk, barrier(2)]
    executor = top_n(ScriptedExecutor(INPUT, (0,), iter(script)), store, groups=(3,), errors=errors)
    found = [row for message in executor.execute() if isinstance(message, StreamChunk) for _, row in message.changes()]
    assert found == [rows[1]]
    assert errors.take()[LONG_KEY] == 1
