import random
from dataclasses import replace
from decimal import Decimal
from functools import partial
from itertools import count
from typing import ClassVar

import numpy as np
import pytest

import hummock
from hummock.store.memory_store import MemoryStateStore
from relational.agg import MOST_VALUES, AggGroups, AggSpec
from relational.agg import distinct as distinct_module
from relational.agg.groups import MIN_CLOSED
from relational.catalog.watermarks import WatermarkCatalog
from relational.chunk import Op, StreamChunk
from relational.expr import ErrorCounts
from relational.expr.aggregates import AggCall, AggKind, aggregate_type
from relational.expr.expression import Call, InputRef, Literal
from relational.memory_budget import MemoryBudget
from relational.plan.logical import Aggregate, Scan
from relational.table.row_checks import LONG_KEY
from relational.table.state_table import StateTable
from relational.types import DataType, Schema
from stream.executor import agg_state
from stream.executor import hash_agg as hash_agg_module
from stream.executor.base import ExecutorInfo
from stream.executor.hash_agg import HashAggExecutor
from stream.message import Barrier, Stop, Watermark
from stream.plan.planner import plan_query
from stream.plan.stream_plan import HashAggNode
from stream.worker.actor_builder import distinct_tables, extreme_tables, group_hashes, ordered_inputs
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.pretty import from_pretty
from tests.support.drivers.seeds import run_seed
from tests.support.drivers.stream_driver import Folded, ScriptedExecutor, barrier, run_epochs
from tests.support.suites.executor_suite import EPOCHS, ExecutorSuite
from tests.support.suites.interpreter_work import assert_no_work_per_row, work_of

INPUT = Schema.of(id="bigint", k="varchar", v="int", x="double")
EVERYTHING = (
    (AggKind.COUNT, None),
    (AggKind.COUNT, 2),
    (AggKind.SUM, 2),
    (AggKind.AVG, 2),
    (AggKind.MIN, 2),
    (AggKind.MAX, 2),
)


@pytest.fixture(autouse=True, params=[0, hash_agg_module.SCANNED_SHARE], ids=["by key", "all at once"])
def how_stored_groups_are_read(request, monkeypatch):
    monkeypatch.setattr(hash_agg_module, "SCANNED_SHARE", request.param)


def call(kind, argument, schema=INPUT, filter=None, distinct=False):
    data_type = aggregate_type(kind, None if argument is None else schema[argument].data_type)
    return AggCall(kind, argument, filter, distinct, data_type)


def hash_agg(
    input,
    store,
    group_by,
    calls,
    schema=INPUT,
    stream_key=(0,),
    append_only=False,
    cache_bytes=1 << 24,
    flush_groups=1 << 20,
    chunk_rows=4096,
    kind=HashAggExecutor,
    errors=None,
    **handover,
):
    """The executor of the planner's node."""
    table = table_catalog("t", schema, stream_key, is_append_only=append_only)
    query = Aggregate(Scan(table), tuple(group_by), tuple(calls), tuple(f"c{i}" for i in range(len(calls))))
    ids = iter(range(10, 100))
    view = table_catalog("mv", query.schema, range(len(group_by)), table_id=2)
    node = plan_query(view, query, lambda name: next(ids)).root.input
    node = replace(node, hash_key=node.hash_key and bytes(range(16)))  # as if the plan were stored
    return kind(
        ExecutorInfo(node.schema, node.stream_key, "HashAgg"),
        input,
        node.group_by,
        node.calls,
        StateTable(node.state_table, store),
        extreme_tables(node, lambda table: StateTable(table, store)),
        distinct_tables(node, lambda table: StateTable(table, store)),
        ordered_inputs(node, lambda table: StateTable(table, store)),
        ErrorCounts() if errors is None else errors,
        memory=MemoryBudget(cache_bytes),
        flush_groups=flush_groups,
        chunk_rows=chunk_rows,
        hashes=group_hashes(node),
        **handover,
    )


def epochs_of(build, *texts, schema=INPUT, store=None):
    """The output of each epoch as sorted lines."""
    epochs = [[from_pretty(text, schema)] if text else [] for text in texts]
    outputs = run_epochs(build, store or MemoryStateStore(), schema, (0,), epochs)
    return ["\n".join(sorted_changes(made)) for made in outputs]


def sorted_changes(chunks):
    """The changes of an epoch as lines, sorted by group; update pairs are kept together."""
    lines = [line for chunk in chunks for line in chunk.to_pretty().split("\n")]
    pairs, index = [], 0
    while index < len(lines):
        width = 2 if lines[index].startswith("U-") else 1
        pairs.append(lines[index : index + width])
        index += width
    return [line for pair in sorted(pairs, key=lambda p: p[0].split()[1:]) for line in pair]


def quotient(total, count):
    return None if not count else (Decimal(total) / count).quantize(Decimal(1).scaleb(-10))


def expected(values):
    """COUNT(*), COUNT, SUM, AVG, MIN, MAX of a group's values in plain Python."""
    known = [value for value in values if value is not None]
    total = sum(known) if known else None
    average = quotient(total, len(known)) if known else None
    return (len(values), len(known), total, average, min(known, default=None), max(known, default=None))


def grouped(rows):
    groups = {}
    for _, key, value, _ in rows:
        groups.setdefault(key, []).append(value)
    return [(key, *expected(values)) for key, values in groups.items()]


def by_group(rows, group_by):
    """The rows of each group; without group columns there is always one."""
    groups = {} if group_by else {(): []}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in group_by), []).append(row)
    return groups.items()


class HashAggSuite(ExecutorSuite):
    schema, stream_key = INPUT, (0,)
    keys = tuple((number,) for number in range(30))
    options: ClassVar[dict] = {}

    def build(self, input, store):
        return hash_agg(input, store, (1,), [call(*each) for each in EVERYTHING], **self.options)

    def oracle(self, rows):
        return grouped(rows)

    def new_row(self, rng, key):
        return (*key, rng.choice(["a", "b", "c", None]), rng.choice([None, *range(-3, 4)]), rng.random())


class TestHashAgg(HashAggSuite):
    pass


class TestHashAggOnHummock(HashAggSuite):
    """On a Hummock store instead of the in-memory one."""

    @pytest.fixture(autouse=True)
    def _close_stores(self):
        self.stores = []
        yield
        for store in self.stores:
            store.close()

    def new_store(self):
        self.stores.append(hummock.open("memory://"))
        return self.stores[-1]


class TestHashAggThatEvictsEveryGroup(HashAggSuite):
    options: ClassVar = {"cache_bytes": 1}


class TestHashAggThatEvictsSomeGroupsInTheMiddleOfAnEpoch(HashAggSuite):
    """Those that were changed since are in memory when the others are read again."""

    options: ClassVar = {"cache_bytes": 15_000, "flush_groups": 8}

    def new_row(self, rng, key):
        return (*key, str(key[0] % 15), rng.choice([None, *range(-3, 4)]), rng.random())


class TestHashAggThatFlushesBeforeTheBarrier(HashAggSuite):
    options: ClassVar = {"flush_groups": 1}


class TestHashAggThatEvictsInTheMiddleOfAnEpoch(HashAggSuite):
    options: ClassVar = {"cache_bytes": 1, "flush_groups": 1}


class TestHashAggInSmallPieces(HashAggSuite):
    options: ClassVar = {"chunk_rows": 2}


class TestGlobalAggregation(HashAggSuite):
    def build(self, input, store):
        return hash_agg(input, store, (), [call(*each) for each in EVERYTHING])

    def oracle(self, rows):
        return [expected([row[2] for row in rows])]


class TestExtremesOfTexts(HashAggSuite):
    """Their inputs are kept."""

    def build(self, input, store):
        return hash_agg(input, store, (1,), [call(AggKind.MIN, 1), call(AggKind.COUNT, 2), call(AggKind.MAX, 1)])

    def oracle(self, rows):
        return [(key, key, known, key) for key, _, known, *_ in grouped(rows)]


class TestMoreValuesThanAStateKeeps(HashAggSuite):
    keys = tuple((number,) for number in range(200))
    rows_per_chunk: ClassVar = 100

    def new_row(self, rng, key):
        return (*key, rng.choice(["a", None]), rng.choice([None, *range(1_000)]), rng.random())


class TestMoreValuesThanAStateKeepsWithEvictions(TestMoreValuesThanAStateKeeps):
    options: ClassVar = {"cache_bytes": 1, "flush_groups": 1}


class TestMoreValuesThanAStateKeepsInSmallPieces(TestMoreValuesThanAStateKeeps):
    @pytest.fixture(autouse=True)
    def _small_pieces(self, monkeypatch):
        monkeypatch.setattr(agg_state, "WRITTEN_VALUES", 3)
        monkeypatch.setattr(agg_state, "REFILLED_GROUPS", 1)


class TestDistinct(HashAggSuite):
    def build(self, input, store):
        return hash_agg(input, store, (1,), [])

    def oracle(self, rows):
        return [(key,) for key in {row[1] for row in rows}]


class TestFilteredCalls(HashAggSuite):
    positive = Call("greater", (InputRef(2, DataType.INT), Literal(0, DataType.INT)), DataType.BOOLEAN)

    def build(self, input, store):
        kinds = (AggKind.COUNT, None), (AggKind.SUM, 2), (AggKind.MIN, 2)
        return hash_agg(input, store, (1,), [call(*each, filter=self.positive) for each in kinds])

    def oracle(self, rows):
        out = []
        for key in {row[1] for row in rows}:
            values = [row[2] for row in rows if row[1] == key and row[2] is not None and row[2] > 0]
            out.append((key, len(values), sum(values) if values else None, min(values, default=None)))
        return out


def appended(seed, new_row):
    """Epochs of inserted rows, each with a key of its own."""
    rng, ids = random.Random(seed), count()
    return [
        [StreamChunk.from_rows(INPUT, [(Op.INSERT, new_row(rng, (next(ids),))) for _ in range(20)]) for _ in range(3)]
        for _ in range(EPOCHS)
    ]


class DistinctSuite(HashAggSuite):
    """DISTINCT calls over a number and a text, some with a FILTER, beside others."""

    keys = tuple((number,) for number in range(60))
    positive = Call("greater", (InputRef(2, DataType.INT), Literal(0, DataType.INT)), DataType.BOOLEAN)

    def build(self, input, store):
        calls = [
            call(AggKind.COUNT, None),
            call(AggKind.COUNT, 2, distinct=True),
            call(AggKind.SUM, 2, distinct=True, filter=self.positive),
            call(AggKind.AVG, 2, distinct=True),
            call(AggKind.COUNT, 1, distinct=True, filter=self.positive),
            call(AggKind.SUM, 2),
            call(AggKind.MIN, 2),
            call(AggKind.COUNT, 3, distinct=True),
        ]
        return hash_agg(input, store, self.group_by, calls, **self.options)

    group_by: ClassVar = (1,)

    def oracle(self, rows):
        return [(*key, *self.expected(own)) for key, own in by_group(rows, self.group_by)]

    def expected(self, rows):
        known = [row[2] for row in rows if row[2] is not None]
        values, positive = set(known), {value for value in known if value > 0}
        texts = {row[1] for row in rows if row[1] is not None and row[2] is not None and row[2] > 0}
        return (
            len(rows), len(values), sum(positive) if positive else None,
            quotient(sum(values), len(values)) if values else None, len(texts), sum(known) if known else None,
            min(known, default=None), len({row[3] for row in rows}),
        )

    def new_row(self, rng, key):
        return (*key, rng.choice(["a", "b", "c", None]), rng.choice([None, *range(-3, 4)]), float(rng.randrange(9)))


class TestDistinctCalls(DistinctSuite):
    pass


class TestDistinctCallsOfGroupsWithTheirColumnsInTheTable(DistinctSuite):
    """Groups of one number have keys that are shorter than a hash."""

    group_by: ClassVar = (2,)


class TestDistinctCallsThatEvictEverything(DistinctSuite):
    options: ClassVar = {"cache_bytes": 1}


class TestDistinctCallsThatEvictInTheMiddleOfAnEpoch(DistinctSuite):
    options: ClassVar = {"cache_bytes": 1, "flush_groups": 1}


class TestDistinctCallsInSmallPieces(DistinctSuite):
    options: ClassVar = {"chunk_rows": 2}

    @pytest.fixture(autouse=True)
    def _small_pieces(self, monkeypatch):
        monkeypatch.setattr(distinct_module, "FLUSHED_VALUES", 3)
        monkeypatch.setattr(distinct_module, "MIN_VANISHED", 1)


class TestDistinctCallsThatKeepAShare(DistinctSuite):
    """Of values and groups, the rest is evicted and is known to be stored."""

    options: ClassVar = {"cache_bytes": 50_000, "flush_groups": 2}


class TestDistinctCallsOfAppendedRowsInSmallPieces(DistinctSuite):
    """Values are written before the barrier."""

    options: ClassVar = {"append_only": True, "chunk_rows": 2}

    @pytest.fixture(autouse=True)
    def _small_pieces(self, monkeypatch):
        monkeypatch.setattr(agg_state, "EARLY_VALUES", 3)

    def random_epochs(self, seed):
        return appended(seed, self.new_row)


class TestDistinctCallsWithoutGroups(DistinctSuite):
    group_by: ClassVar = ()


class TestDistinctCallsOfAppendedRows(DistinctSuite):
    """Bits instead of counts."""

    options: ClassVar = {"append_only": True, "cache_bytes": 50_000}

    def random_epochs(self, seed):
        return appended(seed, self.new_row)


SEED = Schema.of(quantity="bigint", company="varchar")


def test_the_view_of_the_seed_america_and_asia():
    """seeds/002: SELECT SUM(t.quantity) AS q FROM t GROUP BY t.company, over two sequences."""
    sums = [call(AggKind.SUM, 0, SEED)]
    first = "+ 2 AMERICA\n+ 3 ASIA\n+ 4 AMERICA\n+ 5 ASIA"
    second = "+ 6 EUROPE\n+ 7 EUROPE"
    folded = Folded((0,))
    chunks = [[from_pretty(text, SEED)] for text in (first, second)]
    made = run_epochs(
        lambda input: hash_agg(input, store, (1,), sums, SEED),
        store := MemoryStateStore(),
        SEED,
        (0,),
        chunks,
    )
    folded.apply_all(made[0])
    assert set(folded.rows.values()) == {("AMERICA", 6), ("ASIA", 8)}
    folded.apply_all(made[1])
    assert set(folded.rows.values()) == {("AMERICA", 6), ("ASIA", 8), ("EUROPE", 13)}


def counts(input, store=None):
    return hash_agg(
        input, store or MemoryStateStore(), (1,), [call(AggKind.COUNT, None), call(AggKind.MAX, 2)]
    )


def test_a_group_is_born_changes_and_dies_with_one_change_an_epoch():
    assert epochs_of(
        counts,
        "+ 1 a 5 0\n+ 2 a 7 0\n+ 3 b 1 0",
        "- 2 a 7 0\n+ 4 a 6 0\n+ 5 a 6 0",
        "- 3 b 1 0\n- 1 a 5 0",
    ) == ["+ a 2 7\n+ b 1 1", "U- a 2 7\nU+ a 3 6", "U- a 3 6\nU+ a 2 6\n- b 1 1"]


def test_nothing_is_emitted_when_the_outputs_are_equal_again():
    assert epochs_of(counts, "+ 1 a 5 0", "- 1 a 5 0\n+ 2 a 5 0", "") == ["+ a 1 5", "", ""]


def test_a_group_that_comes_and_goes_within_an_epoch_is_never_seen():
    assert epochs_of(counts, "+ 1 a 5 0\n- 1 a 5 0") == [""]


def test_a_global_count_begins_with_its_row():
    def count(input):
        return hash_agg(input, MemoryStateStore(), (), [call(AggKind.COUNT, None), call(AggKind.SUM, 2)])

    assert epochs_of(count, "", "+ 1 a 5 0", "- 1 a 5 0") == ["+ 0 .", "U- 0 .\nU+ 1 5", "U- 1 5\nU+ 0 ."]


def test_a_recovered_global_count_does_not_begin_again():
    store = MemoryStateStore()

    def count(input):
        return hash_agg(input, store, (), [call(AggKind.COUNT, None)])

    run_epochs(count, store, INPUT, (0,), [[], [from_pretty("+ 1 a 5 0", INPUT)]])
    assert run_epochs(count, store, INPUT, (0,), [[]], first=3) == [[]]


def test_extremes_of_an_append_only_input_are_plain_values():
    store = MemoryStateStore()

    def extremes(input):
        calls = [call(AggKind.MIN, 2), call(AggKind.MAX, 2)]
        return hash_agg(input, store, (1,), calls, append_only=True)

    texts = "+ 1 a 5 0\n+ 2 a . 0", "+ 3 a 9 0\n+ 4 a 2 0"
    assert epochs_of(extremes, *texts, store=store) == ["+ a 5 5", "U- a 5 5\nU+ a 2 9"]


def test_a_taken_extreme_is_found_again_among_rows_of_earlier_epochs():
    assert epochs_of(
        counts, "+ 1 a 1 0\n+ 2 a 3 0", "+ 3 a 9 0", "- 3 a 9 0", "- 2 a 3 0\n+ 4 a 2 0", "- 4 a 2 0"
    ) == ["+ a 2 3", "U- a 2 3\nU+ a 3 9", "U- a 3 9\nU+ a 2 3", "U- a 2 3\nU+ a 2 2", "U- a 2 2\nU+ a 1 1"]


def test_negative_zero_and_zero_are_one_group():
    schema = Schema.of(id="bigint", g="double")
    rows = [(0, (1, 0.0)), (0, (2, -0.0)), (0, (3, float("nan"))), (0, (4, float("nan")))]
    chunk = StreamChunk.from_rows(schema, rows)
    calls = [call(AggKind.COUNT, None, schema)]
    store = MemoryStateStore()
    (made,) = run_epochs(
        lambda input: hash_agg(input, store, (1,), calls, schema), store, schema, (0,), [[chunk]]
    )
    assert sorted(row[1] for each in made for row in each.rows()) == [2, 2]


def test_floating_sums_stay_within_the_bound_under_retraction():
    rng = random.Random(11)
    values = [rng.uniform(-1e9, 1e9) for _ in range(400)]
    changes = [(0, (i, "a", None, x)) for i, x in enumerate(values)]
    changes += [(1, row) for _, row in changes[:390]]
    store = MemoryStateStore()
    (made,) = run_epochs(
        lambda input: hash_agg(input, store, (1,), [call(AggKind.SUM, 3)]),
        store,
        INPUT,
        (0,),
        [[StreamChunk.from_rows(INPUT, changes)]],
    )
    ((_, total),) = made[-1].rows()
    assert total == pytest.approx(sum(values[390:]), abs=1e-9 * sum(map(abs, values)))


def work_of_a_chunk(rows):
    """The interpreter's work for one chunk of `rows` changes over 50 cached groups."""
    keys = [(0, (int(i), f"k{i % 50}", int(i) % 7, 0.0)) for i in np.arange(rows)]
    chunk = StreamChunk.from_rows(INPUT, keys)
    again = StreamChunk.from_rows(INPUT, [(0, (row[0] + rows, *row[1:])) for _, row in keys])
    calls = [call(AggKind.COUNT, None), call(AggKind.SUM, 2), call(AggKind.MIN, 2)]
    script = [barrier(1), chunk, barrier(2), again, barrier(3)]
    store = MemoryStateStore()
    source = ScriptedExecutor(INPUT, (0,), iter(script))
    messages = hash_agg(source, store, (1,), calls, flush_groups=1).execute()
    while not (isinstance(message := next(messages), Barrier) and message == barrier(2)):
        pass
    return work_of(lambda: next(messages))


def test_work_of_the_interpreter_does_not_grow_with_the_rows_of_a_chunk():
    work_of_a_chunk(10)     # warm-up
    assert_no_work_per_row(work_of_a_chunk(1_024), work_of_a_chunk(10_240), 9_216)


@pytest.mark.parametrize("group_by", [(1,), ()])
def test_an_executor_continues_with_the_groups_that_another_has_left(monkeypatch, group_by):
    """It reads none of them, and both together emit what one of them would."""
    rng = random.Random(run_seed())
    calls = [call(kind, argument) for kind, argument in EVERYTHING]
    present, epochs = {}, []
    for _ in range(8):
        changes = []
        for _ in range(60):
            number = rng.randrange(100)
            if number in present:
                changes.append((Op.DELETE, present.pop(number)))
            else:
                present[number] = (number, "abcdef"[rng.randrange(6)], rng.randrange(40), None)
                changes.append((Op.INSERT, present[number]))
        epochs.append([StreamChunk.from_rows(INPUT, changes)])
    at_once = run_epochs(lambda input: hash_agg(input, MemoryStateStore(), group_by, calls), MemoryStateStore(),
                         INPUT, (0,), epochs)

    store, left = MemoryStateStore(), []
    before = run_epochs(lambda input: hash_agg(input, store, group_by, calls, leave=left.append), store, INPUT, (0,),
                        epochs[:4], mutation=Stop(frozenset((1,))))
    (groups,) = left
    assert groups.dirty_groups == 0
    read = StateTable.get_rows

    def get_rows(self, pks):
        assert "overflow" in self.catalog.name, "a group is read"
        return read(self, pks)

    monkeypatch.setattr(StateTable, "get_rows", get_rows)
    after = run_epochs(lambda input: hash_agg(input, store, group_by, calls, groups=groups), store, INPUT, (0,),
                       epochs[4:], first=5)
    assert [sorted_changes(made) for made in (*before, *after)] == [sorted_changes(made) for made in at_once]


WINDOWS = Schema.of(id="bigint", user="varchar", window="bigint", v="int")


def windowed(input, store, *, keeps_rows=False, schema=WINDOWS):
    """Counts and maxima by user and window, which has a watermark."""
    table = replace(table_catalog("t", schema, (0,), is_append_only=not keeps_rows), watermarks=(WatermarkCatalog(2),))
    calls = (call(AggKind.COUNT, None, schema), call(AggKind.MAX, 3, schema))
    query = Aggregate(Scan(table), (1, 2), calls, ("n", "most"))
    ids = iter(range(10, 100))
    node = plan_query(table_catalog("mv", query.schema, (0, 1), table_id=2), query, lambda name: next(ids)).root.input
    assert isinstance(node, HashAggNode) and node.closing == 1 and len(node.kept) + len(node.overflows) == keeps_rows
    executor = HashAggExecutor(
        ExecutorInfo(node.schema, node.stream_key, "HashAgg"), input, node.group_by, node.calls,
        StateTable(node.state_table, store), extreme_tables(node, lambda table: StateTable(table, store)),
        (), (), ErrorCounts(), memory=MemoryBudget(1 << 24), flush_groups=1 << 20, chunk_rows=4096,
    )
    return executor, list(node.state_tables)


def test_a_group_that_used_up_its_values_is_refilled_from_its_overflow_table():
    """Also after a recovery, and from more rows of one value than one."""
    store, schema = MemoryStateStore(), Schema.of(id="bigint", k="varchar", v="int")

    def build(input):
        return hash_agg(input, store, (1,), [call(AggKind.MIN, 2, schema), call(AggKind.COUNT, None, schema)], schema)

    def rows(op, numbers):
        return [StreamChunk.from_rows(schema, [(op, (number, "a", number // 2)) for number in numbers])]

    epochs = [rows(Op.INSERT, range(200)), rows(Op.DELETE, range(70)), rows(Op.DELETE, range(70, 71)),
              rows(Op.DELETE, range(71, 198)), rows(Op.INSERT, range(70, 71))]
    made = []
    for first, epoch in enumerate(epochs, 1):
        (out,) = run_epochs(build, store, schema, (0,), [epoch], first=first)
        made.append(out[-1].to_pretty().split("\n")[-1])
    assert made == ["+ a 0 200", "U+ a 35 130", "U+ a 35 129", "U+ a 99 2", "U+ a 35 3"]


@pytest.mark.parametrize("keeps_rows", [False, True])
def test_a_watermark_closes_groups_in_all_tables_and_is_passed_on_after_their_changes(keeps_rows):
    store = hummock.open("memory://", role="writer", compaction=False, watermark_interval_ms=0)
    tables = []

    def build(input):
        executor, found = windowed(input, store, keeps_rows=keeps_rows)
        tables.extend(found)
        return executor

    def chunk(text):
        return from_pretty(text, WINDOWS)

    more = 2 * MOST_VALUES if keeps_rows else 0     # so that there are rows in the overflow table
    small = [(Op.INSERT, (1_000 * window + number, "a", window, -1 - number))
             for window in (10, 20, 30) for number in range(more)]
    epochs = [
        [StreamChunk.from_rows(WINDOWS, small)],
        [chunk("+ 1 a 10 5\n+ 2 b 10 6\n+ 3 a 20 7"), Watermark(0, 3), Watermark(2, 10)],
        [chunk("+ 4 a 10 9\n+ 5 a 30 1"), Watermark(2, 20)],
        [chunk("+ 6 a 20 8\n+ 7 b 20 1"), *([chunk("- 3 a 20 7")] if keeps_rows else [])],
        [Watermark(2, 25)],
    ]
    made = run_epochs(build, store, WINDOWS, (0,), epochs)
    assert [[each for each in out if isinstance(each, Watermark)] for out in made] == [
        [], [Watermark(1, 10)], [Watermark(1, 20)], [], [Watermark(1, 25)]]
    assert all(not isinstance(each, Watermark) for out in made for each in out[:-1]), "changes come first"
    folded = Folded((0, 1))
    for out in made:
        folded.apply_all(out)
    assert set(folded.rows.values()) == {
        ("a", 10, 2 + more, 9), ("b", 10, 1, 6), ("a", 20, 1 + more if keeps_rows else 2, 8), ("b", 20, 1, 1),
        ("a", 30, 1 + more, 1)}
    for table in tables:
        assert table.columns[table.pk_indices[0]].name == "window"
        reader = StateTable(table, store)
        reader.init_epoch(barrier(6).epoch)
        assert {row[1] for row in reader.scan()} == {30}, "what is below the watermark is not read"
        assert store.version.tables[table.id].watermarks[0].epoch == barrier(6).epoch.prev
    store.close()


def test_closed_groups_leave_memory_and_those_of_null_stay():
    groups = AggGroups([0], [DataType.BIGINT], [AggSpec("count", None, None, DataType.BIGINT)])
    schema, most = Schema.of(g="bigint"), 2 * MIN_CLOSED

    def add(values):
        chunk = StreamChunk.from_rows(schema, [(0, (value,)) for value in values])
        groups.apply(chunk, groups.locate(chunk).ids)
        return [change.output for change in groups.flush()]

    add([None, *range(100)])
    groups.forget_below(0, 90)
    assert groups.groups == 101, "few groups are not worth a look"
    for first in range(100, 40_000, 500):
        add(range(first, first + 500))
        groups.forget_below(0, first)
        assert groups.groups <= most, first
    groups.forget_below(0, 1 << 40)
    assert groups.groups <= most
    (change,) = add([None])
    assert change.to_pretty() == "U- . 1\nU+ . 2"


@pytest.mark.parametrize(("stored", "wanted", "reads"), [(400, 100, "all"), (401, 100, "by key"), (5, 5, "all")])
def test_stored_groups_are_read_at_once_if_they_are_few(stored, wanted, reads, monkeypatch):
    monkeypatch.setattr(hash_agg_module, "SCANNED_SHARE", 4)
    store, calls = MemoryStateStore(), []
    rows = "\n".join(f"+ {number} {number} 1 1.0" for number in range(stored))
    build = partial(counts, store=store)
    run_epochs(build, store, INPUT, (0,), [[from_pretty(rows, INPUT)]])
    real = StateTable.get_rows
    monkeypatch.setattr(StateTable, "get_rows", lambda self, pks: (calls.append(pks.capacity), real(self, pks))[1])
    more = "\n".join(f"+ {1000 + number} {number} 1 1.0" for number in range(wanted))
    (changes,) = run_epochs(build, store, INPUT, (0,), [[from_pretty(more, INPUT)]], first=2)
    assert calls == ([] if reads == "all" else [wanted])
    assert sum(chunk.visible_rows for chunk in changes) == 2 * wanted


@pytest.mark.parametrize("group_by", [(2,), (2, 3, 0)], ids=["columns", "hashes"])
def test_a_distinct_value_whose_key_is_too_long_is_dropped_and_counted(group_by):
    errors, store = ErrorCounts(), MemoryStateStore()
    rows = [(1, "x" * (1 << 20), 5, 1.5), (1, "b", 5, 1.5), (2, "b", 6, None)]
    chunk = StreamChunk.from_rows(INPUT, [(Op.INSERT, row) for row in rows])
    calls = [call(AggKind.COUNT, 1, distinct=True)]

    def build(input):
        return hash_agg(input, store, group_by, calls, stream_key=(0, 1), errors=errors)

    (made,) = run_epochs(build, store, INPUT, (0,), [[chunk]])
    found = sorted(row for each in made for _, row in each.changes())
    assert found == [(*(row[at] for at in group_by), 1) for row in rows[1:]]
    assert errors.take()[LONG_KEY] == 1
