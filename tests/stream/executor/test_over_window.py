"""The over-window executor against the naive interpreter: frames of all kinds, parts of partitions that are read,
recoveries, several flushes in an epoch."""

import itertools
import random
from collections import Counter
from functools import cache
from typing import ClassVar

import pyarrow as pa
import pytest

from hummock.store.memory_store import MemoryStateStore
from relational.chunk import Column, Op, StreamChunk
from relational.expr import ErrorCounts
from relational.memory_budget import MemoryBudget
from relational.plan.logical import OverWindow, Scan, nodes
from relational.plan.optimizer import VIEW_RULES, optimize
from relational.sql import bind_sql
from relational.table.row_checks import LONG_KEY
from relational.table.state_table import StateTable
from relational.types import DataType, Schema
from stream.executor import over_window as over_window_module
from stream.executor.base import ExecutorInfo
from stream.executor.over_window import OverWindowExecutor
from stream.executor.project import ProjectExecutor
from stream.message import Barrier, Watermark
from stream.plan.planner import plan_query
from stream.plan.stream_plan import OverWindowNode, ProjectNode
from stream.worker.actor_builder import windows_of
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.plan_interpreter import interpret
from tests.support.drivers.pretty import from_pretty
from tests.support.drivers.stream_driver import ScriptedExecutor, barrier, run_epochs
from tests.support.suites.executor_suite import ExecutorSuite
from tests.support.suites.sql_cases import catalog_of

STATEMENT = "CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, x INT, t VARCHAR, d DOUBLE PRECISION)"
INPUT = Schema.of(id="bigint", g="int", x="int", t="varchar", d="double precision")


@cache
def planned(items):
    """The logical node of a SELECT of these items, and the planner's node."""
    catalog = catalog_of(STATEMENT)
    (statement,) = bind_sql(f"SELECT *, {items} FROM t", catalog)
    query = optimize(statement.plan, VIEW_RULES)
    ids = itertools.count(10)
    job = table_catalog("mv", query.schema, query.stream_key, table_id=2)
    root = plan_query(job, query, lambda _: next(ids)).root
    (logical,) = [node for node in nodes(query) if isinstance(node, OverWindow)]
    return logical, next(each for each in root.walk() if isinstance(each, OverWindowNode))


def over_window(input, store, items, *, cache_bytes=1 << 28, chunk_rows=4096, errors=None):
    _, node = planned(items)
    for project in reversed([each for each in node.walk() if isinstance(each, ProjectNode)]):
        info = ExecutorInfo(project.schema, project.stream_key, "Project")
        input = ProjectExecutor(info, input, project.expressions, ErrorCounts())
    return OverWindowExecutor(
        ExecutorInfo(node.schema, node.stream_key, "OverWindow"),
        input,
        windows_of(node),
        StateTable(node.table, store),
        errors or ErrorCounts(),
        is_append_only=node.is_append_only,
        memory=MemoryBudget(cache_bytes).share(),
        chunk_rows=chunk_rows,
    )


class OverWindowSuite(ExecutorSuite):
    schema, stream_key = INPUT, (0,)
    keys = tuple((number,) for number in range(40))
    items: ClassVar[str]
    chunk_rows: ClassVar[int] = 4096
    cache_bytes: ClassVar[int] = 1 << 28

    def build(self, input, store):
        return over_window(input, store, self.items, cache_bytes=self.cache_bytes, chunk_rows=self.chunk_rows)

    def oracle(self, rows):
        logical, _ = planned(self.items)
        scan = next(node for node in nodes(logical) if isinstance(node, Scan))
        return interpret(logical, {scan.table.id: rows})

    def new_row(self, rng, key):
        return (*key, rng.choice([None, 1, 1, 2, 3]), rng.choice([None, *range(5)]), rng.choice("abc"),
                rng.choice([None, 0.5, -2.25]))


BY_X = "OVER (PARTITION BY g ORDER BY x)"
BY_ID = "OVER (PARTITION BY g ORDER BY id {})"


class TestNumbers(OverWindowSuite):
    items = f"row_number() {BY_X} AS n, rank() {BY_X} AS r, dense_rank() {BY_X} AS d"


class TestARowNumberAlone(OverWindowSuite):
    items = "row_number() OVER (PARTITION BY g ORDER BY x DESC NULLS LAST, t) AS n"


class TestARowNumberWithoutAnOrder(OverWindowSuite):
    items = "row_number() OVER (PARTITION BY g) AS n, lag(x) OVER (PARTITION BY g) AS l"


class TestNumbersOfWholePartitions(OverWindowSuite):
    items = f"percent_rank() {BY_X} AS p, cume_dist() {BY_X} AS c, ntile(3) {BY_X} AS n, row_number() {BY_X} AS r"


class TestOtherRows(OverWindowSuite):
    items = (f"lag(t, 2, 'none') {BY_ID.format('')} AS a, lead(x) {BY_ID.format('')} AS b, "
             f"lag(x, -2) {BY_ID.format('')} AS c")


class TestARowBefore(OverWindowSuite):
    items = f"lag(x) {BY_ID.format('')} AS a"


class TestAggregatesUpToARow(OverWindowSuite):
    window = BY_ID.format("ROWS UNBOUNDED PRECEDING")
    items = (f"sum(x) {window} AS a, count(*) {window} AS b, avg(x) {window} AS c, min(t) {window} AS d, "
             f"max(x) FILTER (WHERE id > 5) {window} AS e, bool_and(x > 1) {window} AS h, sum(d) {window} AS i")


class TestAggregatesUpToPeers(OverWindowSuite):
    items = (f"sum(x) {BY_X} AS a, count(t) FILTER (WHERE x > 1) {BY_X} AS b, min(id) {BY_X} AS c, "
             f"first_value(x) {BY_X} AS d, rank() {BY_X} AS e")


class TestAggregatesUpToEarlierAndLaterRows(OverWindowSuite):
    before = "ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING"
    after = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING"
    items = (f"sum(x) {BY_ID.format(before)} AS a, max(x) {BY_ID.format(before)} AS b, "
             f"sum(x) {BY_ID.format(after)} AS c, nth_value(t, 3) {BY_ID.format(after)} AS d, "
             f"nth_value(t, 2) {BY_ID.format(before)} AS e, first_value(t) {BY_ID.format(before)} AS f")


class TestAggregatesOfSomeRows(OverWindowSuite):
    window = BY_ID.format("ROWS BETWEEN 2 PRECEDING AND CURRENT ROW")
    items = f"sum(x) {window} AS a, avg(d) {window} AS b, min(t) {window} AS c, last_value(t) {window} AS d"


class TestAggregatesOfSomeRowsOnBothSides(OverWindowSuite):
    window, later = "ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING", "ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING"
    items = (f"sum(x) {BY_ID.format(window)} AS a, max(t) {BY_ID.format(later)} AS b, "
             f"row_number() {BY_ID.format('')} AS n")


class TestGroupsOfPeers(OverWindowSuite):
    window = "OVER (PARTITION BY g ORDER BY x DESC GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW)"
    items = f"sum(id) {window} AS a, count(*) OVER (PARTITION BY g ORDER BY x DESC RANGE CURRENT ROW) AS b"


class TestRangesOfValues(OverWindowSuite):
    window = "OVER (PARTITION BY g ORDER BY x RANGE BETWEEN 2 PRECEDING AND CURRENT ROW)"
    items = f"sum(id) {window} AS a, count(*) {window} AS b, lag(id) {BY_X} AS c"


class TestRangesOfValuesInADescendingOrder(OverWindowSuite):
    window = "OVER (PARTITION BY g ORDER BY d DESC NULLS LAST RANGE BETWEEN {} PRECEDING AND CURRENT ROW)"
    items = f"sum(id) {window.format(1)} AS a, count(*) {window.format(3)} AS b"


class TestRangesOfValuesBehind(OverWindowSuite):
    items = "sum(id) OVER (PARTITION BY g ORDER BY x RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS a"


class TestWholePartitions(OverWindowSuite):
    items = "sum(x) OVER (PARTITION BY g) AS a, max(d) OVER (PARTITION BY g) AS b"


class TestOnePartition(OverWindowSuite):
    items = "sum(x) OVER (ORDER BY x, id) AS a, lag(t) OVER (ORDER BY x, id) AS b"


class TestAnOrderByThePartition(OverWindowSuite):
    items = "rank() OVER (PARTITION BY g ORDER BY g) AS a, sum(x) OVER (PARTITION BY g ORDER BY g) AS b"


class TestVariances(OverWindowSuite):
    """Rounded in other ways than the interpreter's."""

    frames = "ROWS UNBOUNDED PRECEDING", "ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING"
    items = ", ".join(f"{call} {BY_ID.format(frame)} AS c{number}" for number, (call, frame) in enumerate(
        itertools.product(("stddev(x)", "var_pop(d)"), frames)))

    def run(self, store, epochs, first=1):
        return [list(map(rounded, made)) for made in super().run(store, epochs, first)]

    def oracle(self, rows):
        return [tuple(round(value, 9) if isinstance(value, float) else value for value in row)
                for row in super().oracle(rows)]


def rounded(message):
    if not isinstance(message, StreamChunk):
        return message
    columns = [column if column.data_type != DataType.DOUBLE else
               Column(pa.array([None if each is None else round(each, 9) for each in column.to_pylist()], pa.float64()))
               for column in message.columns]
    return StreamChunk(columns, message.ops, message.visibility)


class TestInSmallSlices(TestAggregatesUpToARow):
    chunk_rows = 2

    @pytest.fixture(autouse=True)
    def _read_little(self, monkeypatch):
        monkeypatch.setattr(over_window_module, "READ_AT_ONCE", 1)
        monkeypatch.setattr(over_window_module, "MOST_PARTITIONS", 2)
        monkeypatch.setattr(OverWindowExecutor, "kept_rows", 25)


class TestPartitionsThatAreEvicted(TestAggregatesUpToPeers):
    cache_bytes = 1


class TestSomeRowsOfPartitionsThatAreEvicted(TestAggregatesOfSomeRowsOnBothSides):
    cache_bytes = 1


class TestRangesInSmallSlices(TestRangesOfValues):
    chunk_rows = 2

    @pytest.fixture(autouse=True)
    def _read_little(self, monkeypatch):
        monkeypatch.setattr(over_window_module, "MOST_PARTITIONS", 1)
        monkeypatch.setattr(OverWindowExecutor, "kept_rows", 25)


def changes_of(rows, op=Op.INSERT):
    return StreamChunk.from_rows(INPUT, [(op, row) for row in rows])


def lines(made):
    return [sorted(line for chunk in part for line in chunk.to_pretty().split("\n")) for part in made]


def epochs_of(texts, items):
    epochs = [[from_pretty(text, INPUT)] if text else [] for text in texts]
    store = MemoryStateStore()
    return lines(run_epochs(lambda input: over_window(input, store, items), store, INPUT, (0,), epochs))


def test_only_rows_with_another_value_are_emitted_and_as_updates():
    first = "+ 1 1 5 a .\n+ 3 1 6 b .\n+ 5 1 7 c .\n+ 7 1 8 d ."
    churn = "- 7 1 8 d .\n+ 7 1 8 d .\n+ 4 1 1 e .\n+ 9 1 1 e .\n- 9 1 1 e ."
    found = epochs_of([first, churn, "- 1 1 5 a ."], "lag(x) OVER (PARTITION BY g ORDER BY id) AS a")
    assert found[1] == ["+ 4 1 1 e . 6", "U+ 5 1 7 c . 1", "U- 5 1 7 c . 6"]
    assert found[2] == ["- 1 1 5 a . .", "U+ 3 1 6 b . .", "U- 3 1 6 b . 5"]


def test_a_row_that_moves_to_another_partition_goes_and_comes():
    first, second = "+ 1 1 5 a .\n+ 2 1 6 a .\n+ 3 2 7 a .", "U- 1 1 5 a .\nU+ 1 2 5 a ."
    found = epochs_of([first, second], "sum(x) OVER (PARTITION BY g ORDER BY id) AS a")
    assert found[1] == ["+ 1 2 5 a . 5", "- 1 1 5 a . 5", "U+ 2 1 6 a . 6", "U+ 3 2 7 a . 12", "U- 2 1 6 a . 11",
                        "U- 3 2 7 a . 7"]


OF_LAST_ROWS = {
    "lag(x, 3) OVER (PARTITION BY g ORDER BY id) AS a": 3,
    "sum(x) OVER (PARTITION BY g ORDER BY id) AS a, row_number() OVER (PARTITION BY g ORDER BY id) AS b": 1,
    "avg(d) OVER (PARTITION BY g ORDER BY id ROWS 4 PRECEDING) AS a": 4,
    "max(x) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS a": 3,
    "sum(x) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS a": 3,
    "rank() OVER (PARTITION BY g ORDER BY id) AS a": 1,
}
OF_LAST_VALUES = {"count(*) OVER (PARTITION BY g ORDER BY id RANGE BETWEEN 40 PRECEDING AND CURRENT ROW) AS a": 1}
ROWS = [(10 * n, n % 3, n, "t", 0.5) for n in range(300)]


@pytest.fixture
def read(monkeypatch):
    """The numbers of rows that are read from the table at a time; whole partitions are not."""
    found, whole = [], StateTable.rows_between

    def noted(table, ranges, **options):
        rows = whole(table, ranges, **options)
        found.append(len(rows[0]))
        return rows

    monkeypatch.setattr(StateTable, "rows_between", noted)
    monkeypatch.setattr(StateTable, "rows_under", None)
    return found


@pytest.mark.parametrize("items", OF_LAST_ROWS | OF_LAST_VALUES)
def test_a_row_at_the_end_reads_few_rows(items, read):
    """And one in the middle those behind it, if their values change."""
    store = MemoryStateStore()
    build = lambda input: over_window(input, store, items)  # noqa: E731
    run_epochs(build, store, INPUT, (0,), [[changes_of(ROWS)]])
    read.clear()
    run_epochs(build, store, INPUT, (0,), [[changes_of([(3010, 1, 5, "t", 1.0)])]], first=2)
    most = OF_LAST_VALUES[items] if items in OF_LAST_VALUES else OF_LAST_ROWS[items] + over_window_module.MORE_KEPT
    assert sum(read) == most
    read.clear()
    run_epochs(build, store, INPUT, (0,), [[changes_of([(1505, 1, 5, "t", 1.0)])]], first=3)
    assert sum(read) <= 51 + 2 * most


@pytest.mark.parametrize("items", OF_LAST_ROWS)
def test_rows_at_the_end_read_nothing_while_the_last_rows_are_in_memory(items, read):
    more = [changes_of([(3000 + n, 1, n, "t", 0.5), (2995 - n, 1, n, "u", 0.5)]) for n in range(5)]
    store = MemoryStateStore()
    build = lambda input: over_window(input, store, items)  # noqa: E731
    run_epochs(build, store, INPUT, (0,), [[changes_of(ROWS)], *([each] for each in more[:2])])
    assert not any(read)
    run_epochs(build, store, INPUT, (0,), [[more[2]]], first=4)
    assert any(read)
    read.clear()
    run_epochs(build, store, INPUT, (0,), [[each] for each in more[3:]], first=5)
    assert 0 < sum(map(bool, read)) <= 3  # all in the first epoch: rows before a change, around it, and behind it


FLOATS = (1.0, 1e16, -1e16, 1e300, -1e300, 3e-9, 0.1, float("inf"), float("-inf"), None)
SUMS = (
    "ROWS UNBOUNDED PRECEDING", "ROWS 3 PRECEDING", "ROWS BETWEEN 2 PRECEDING AND 5 FOLLOWING", "GROUPS 1 PRECEDING",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_a_sum_of_doubles_has_the_same_bits_however_the_rows_came(seed):
    rng = random.Random(seed)
    print("seed", seed)
    items = ", ".join(
        f"{call}(d) OVER (PARTITION BY g ORDER BY id {frame}) AS {call}{number}"
        for call in ("sum", "avg", "var_pop") for number, frame in enumerate(SUMS)
    )
    rows = [(n, rng.randrange(2), 0, "t", rng.choice(FLOATS if seed % 2 else FLOATS[:7])) for n in range(80)]
    shuffled = rng.sample(rows, len(rows))
    gone = [(n + 1000, *row[1:]) for n, row in enumerate(rows[:20])]
    epochs = [[changes_of([*shuffled[:30], *gone])], [changes_of(shuffled[30:50])],
              [changes_of(gone, Op.DELETE), changes_of(shuffled[50:])]]
    results = []
    for chunks in (epochs, [[changes_of(rows)]]):
        store, found = MemoryStateStore(), Counter()
        for made in run_epochs(lambda input, store=store: over_window(input, store, items), store, INPUT, (0,), chunks):
            for op, row in (change for each in made if isinstance(each, StreamChunk) for change in each.changes()):
                found[repr(row)] += -1 if op & Op.DELETE else 1
        assert set(found.values()) <= {0, 1}
        results.append(+found)
    assert results[0] == results[1]


def test_a_row_whose_key_is_too_long_is_dropped_and_counted():
    errors, store = ErrorCounts(), MemoryStateStore()
    rows = [(1, 1, 1, "x" * (1 << 20), None), (2, 1, 2, "b", None)]
    script = [barrier(1), changes_of(rows), barrier(2)]
    items = "count(*) OVER (PARTITION BY t ORDER BY x) AS n"
    executor = over_window(ScriptedExecutor(INPUT, (0,), iter(script)), store, items, errors=errors)
    made = list(executor.execute())
    assert isinstance(made[0], Barrier)
    assert [row for each in made if isinstance(each, StreamChunk) for _, row in each.changes()] == [(*rows[1], 1)]
    assert errors.take()[LONG_KEY] == 1


def test_a_sum_that_does_not_fit_is_null_and_counted_until_it_fits():
    errors, store = ErrorCounts(), MemoryStateStore()
    items = "sum(CAST(d AS NUMERIC(38, 0))) OVER (PARTITION BY g ORDER BY id) AS a"
    rows = [(number, 1, 1, "t", 4e37) for number in range(3)]
    script = [barrier(1), changes_of(rows), barrier(2)]
    made = list(over_window(ScriptedExecutor(INPUT, (0,), iter(script)), store, items, errors=errors).execute())
    values = [row[-1] for each in made if isinstance(each, StreamChunk) for _, row in each.changes()]
    assert [value is None for value in values] == [False, False, True]
    assert errors.take() == {"value out of range for SUM": 1}
    script = [barrier(2), changes_of(rows[:1], Op.DELETE), barrier(3)]
    list(over_window(ScriptedExecutor(INPUT, (0,), iter(script)), store, items, errors=errors).execute())
    assert errors.take() == {"value out of range for SUM": -1}


def test_a_watermark_of_the_partition_follows_the_changes_of_its_epoch_and_drops_state(monkeypatch):
    passed = []
    monkeypatch.setattr(StateTable, "update_watermark", lambda table, value: passed.append(value))
    store, items = MemoryStateStore(), "sum(x) OVER (PARTITION BY g ORDER BY id) AS a"
    script = [barrier(1), changes_of([(1, 1, 5, "t", None), (2, 2, 6, "t", None)]), Watermark(1, 2), Watermark(0, 9),
              barrier(2), barrier(3)]
    made = list(over_window(ScriptedExecutor(INPUT, (0,), iter(script)), store, items).execute())
    assert [type(each) for each in made] == [Barrier, StreamChunk, Watermark, Barrier, Barrier]
    assert made[2] == Watermark(1, 2)
    assert passed == [2]
