"""The join executor against nested loops: every kind, with and without a condition, with evictions and recoveries."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest

from hummock.store.memory_store import MemoryStateStore
from relational.chunk import Op, StreamChunk
from relational.errors import ConsistencyError
from relational.expr import ErrorCounts
from relational.expr.expression import Call, Cast, InputRef, conjunction
from relational.memory_budget import MemoryBudget
from relational.plan.logical import Join, JoinKind, Scan
from relational.plan.optimizer import VIEW_RULES, optimize
from relational.table.row_checks import LONG_KEY
from relational.table.state_table import StateTable
from relational.types import DataType, Schema
from stream.executor.base import ExecutorInfo
from stream.executor.hash_join import HashJoinExecutor
from stream.executor.project import ProjectExecutor
from stream.message import Barrier
from stream.plan.planner import plan_query
from stream.plan.stream_plan import HashJoinNode, ProjectNode, StreamScanNode
from stream.worker.actor_builder import join_sides
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.pretty import from_pretty
from tests.support.drivers.seeds import seeds
from tests.support.drivers.stream_driver import Folded, ScriptedExecutor, barrier, random_changes

LEFT = Schema.of(id="bigint", k="int", x="int")
RIGHT = Schema.of(id="bigint", k="int", y="int")
EPOCHS = 5
KINDS = list(JoinKind)
BIG = 1 << 30


def term(function, left, right):
    return Call(function, (InputRef(left, DataType.INT), InputRef(right, DataType.INT)), DataType.BOOLEAN)


EQUAL, SAFE = term("equal", 1, 4), term("is_not_distinct", 1, 4)
LESS = term("less", 2, 5)
CONDITIONS = {"equal": (EQUAL,), "null safe": (SAFE,), "equal and less": (EQUAL, LESS), "less": (LESS,)}


def join_node(kind, on, left=LEFT, right=RIGHT, *, append_only=(False, False)):
    """The planner's node over two tables."""
    tables = [table_catalog(name, schema, [0], table_id=number, is_append_only=append_only[number - 1])
              for number, (name, schema) in enumerate((("a", left), ("b", right)), 1)]
    query = optimize(Join(Scan(tables[0]), Scan(tables[1]), kind, conjunction(on)), VIEW_RULES)
    view = table_catalog("mv", query.schema, query.stream_key, table_id=9)
    ids = itertools.count(10)
    root = plan_query(view, query, lambda name: next(ids)).root
    return next(node for node in root.walk() if isinstance(node, HashJoinNode))


def executor_of(node, inputs, store, *, cache_bytes=BIG, chunk_rows=4096, errors=None):
    return HashJoinExecutor(
        ExecutorInfo(node.schema, node.stream_key, "HashJoin"),
        inputs,
        join_sides(node, lambda table: StateTable(table, store), MemoryBudget(cache_bytes)),
        node.condition,
        errors or ErrorCounts(),
        has_pairs=node.kind.has_pairs,
        chunk_rows=chunk_rows,
    )


def inputs_of(node, scripts):
    """The messages of each side, with the computed keys of the plan."""
    found = []
    for side, script in zip(node.inputs, scripts, strict=True):
        (scan,) = (each for each in side.walk() if isinstance(each, StreamScanNode))
        read = [each.project(scan.columns) if isinstance(each, StreamChunk) else each for each in script]
        executor = ScriptedExecutor(scan.schema, (0,), iter(read))
        if isinstance(side.input, ProjectNode):
            info = ExecutorInfo(side.schema, side.stream_key, "Project")
            executor = ProjectExecutor(info, executor, side.input.expressions, ErrorCounts())
        found.append(executor)
    return found


def run(node, store, epochs, *, first=1, is_lost=False, **options):
    """The output of each epoch, whose input is a list of (side, chunk). `is_lost`: the last epoch gets no barrier."""
    scripts = [[barrier(first)], [barrier(first)]]
    for number, changes in enumerate(epochs, first + 1):
        for side, chunk in changes:
            scripts[side].append(chunk)
        if not (is_lost and number == first + len(epochs)):
            for script in scripts:
                script.append(barrier(number))
    outputs = []
    inputs = inputs_of(node, scripts)
    for message in executor_of(node, inputs, store, **options).execute():
        if isinstance(message, Barrier):
            if outputs:
                store.commit(message.epoch.prev)
            outputs.append([])
        elif isinstance(message, StreamChunk):
            outputs[-1].append(message)
    return outputs[: len(epochs)]


def expected(kind, on, left, right):
    """The rows of a join by looking at all pairs."""
    def holds(one, other):
        row = (*one, *other)
        tests = {
            "equal": lambda a, b: a is not None and a == b,
            "is_not_distinct": lambda a, b: a == b,
            "less": lambda a, b: a is not None and b is not None and a < b,
        }
        return all(tests[each.function](*(row[ref.index] for ref in each.args)) for each in on)

    pairs = [(one, other) for one in left for other in right if holds(one, other)]
    matched = {one for one, _ in pairs}, {other for _, other in pairs}
    if kind is JoinKind.SEMI:
        return [one for one in left if one in matched[0]]
    if kind is JoinKind.ANTI:
        return [one for one in left if one not in matched[0]]
    rows = [one + other for one, other in pairs]
    rows += [one + (None,) * 3 for one in left if kind.keeps_left and one not in matched[0]]
    return rows + [(None,) * 3 + other for other in right if kind.keeps_right and other not in matched[1]]


def random_epochs(seed, *, keys=12, values=4, rows=14):
    """Changes of both sides in a random order; some values of the key are frequent, some NULL."""
    rng = random.Random(seed)

    def changes(schema):
        return iter(random_changes(
            rng, schema, [(number,) for number in range(keys)],
            lambda key: (*key, rng.choice([None, 1, 1, 2, 3]), rng.choice([None, *range(values)])),
            chunks=3 * EPOCHS, rows=rows))

    streams = changes(LEFT), changes(RIGHT)
    epochs = []
    for _ in range(EPOCHS):
        order = [0, 0, 0, 1, 1, 1]
        rng.shuffle(order)
        epochs.append([(side, next(streams[side])) for side in order])
    return epochs


OPTIONS = {
    "in memory": {},
    "evicted": {"cache_bytes": 2},
    "small slices": {"chunk_rows": 2},
    "evicted, small slices": {"cache_bytes": 2, "chunk_rows": 3},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_join_is_what_all_pairs_say_at_every_epoch(kind, condition, options):
    on = CONDITIONS[condition]
    node = join_node(kind, on)
    for seed in seeds(1, 2):
        epochs = random_epochs(seed)
        inputs, found = (Folded((0,)), Folded((0,))), Folded(node.stream_key)
        for changes, made in zip(epochs, run(node, MemoryStateStore(), epochs, **options), strict=True):
            for side, chunk in changes:
                inputs[side].apply(chunk)
            found.apply_all(made)
            rows = expected(kind, on, *(list(each.rows.values()) for each in inputs))
            assert found.bag == Counter(rows), seed


@pytest.mark.parametrize("condition", ["equal", "equal and less"])
@pytest.mark.parametrize("kind", KINDS)
def test_recovery_at_any_barrier_continues_as_if_nothing_had_happened(kind, condition):
    node = join_node(kind, CONDITIONS[condition])
    epochs = random_epochs(7)
    whole = run(node, MemoryStateStore(), epochs)
    for survived in range(EPOCHS):
        store = MemoryStateStore()
        run(node, store, epochs[:survived])
        run(node, store, [epochs[survived]], first=1 + survived, is_lost=True)
        store.clear_uncommitted()
        rest = run(node, store, epochs[survived:], first=1 + survived)
        one, other = Folded(node.stream_key), Folded(node.stream_key)
        for made in whole[:survived]:
            one.apply_all(made)
            other.apply_all(made)
        for made, again in zip(whole[survived:], rest, strict=True):
            assert one.apply_all(made).rows == other.apply_all(again).rows


def lines(outputs):
    return [sorted(line for chunk in made for line in chunk.to_pretty().split("\n")) for made in outputs]


def changes_of(*texts):
    """Epochs from (side, text) pairs."""
    return [[(side, from_pretty(text, (LEFT, RIGHT)[side])) for side, text in epoch] for epoch in texts]


def test_an_update_is_one_change_for_each_pair_and_no_row_is_alone_in_between():
    epochs = changes_of(
        [(1, "+ 7 1 0\n+ 8 1 0"), (0, "+ 1 1 5")],
        [(0, "U- 1 1 5\nU+ 1 1 6")],
        [(1, "U- 7 1 0\nU+ 7 1 1")],
    )
    made = run(join_node(JoinKind.LEFT, CONDITIONS["equal"]), MemoryStateStore(), epochs)
    assert lines(made)[1:] == [
        ["+ 1 1 6 7 1 0", "+ 1 1 6 8 1 0", "- 1 1 5 7 1 0", "- 1 1 5 8 1 0"],
        ["+ 1 1 6 7 1 1", "- 1 1 6 7 1 0"],
    ]


@pytest.mark.parametrize("condition", ["equal", "equal and less"])
def test_the_only_partner_is_replaced_within_a_chunk(condition):
    epochs = changes_of([(0, "+ 1 1 5"), (1, "+ 7 1 9")], [(1, "- 7 1 9\n+ 8 1 8")], [(1, "- 8 1 8")])
    made = run(join_node(JoinKind.LEFT, CONDITIONS[condition]), MemoryStateStore(), epochs)
    assert lines(made)[1:] == [["+ 1 1 5 8 1 8", "- 1 1 5 7 1 9"], ["+ 1 1 5 . . .", "- 1 1 5 8 1 8"]]


def test_changes_that_undo_each_other_in_a_chunk_do_not_leave_it():
    epochs = changes_of([(0, "+ 1 1 5"), (1, "+ 7 1 9")], [(0, "+ 2 1 5\n- 2 1 5\n- 1 1 5\n+ 1 1 5\n- 1 1 5\n+ 1 1 6")])
    made = run(join_node(JoinKind.INNER, CONDITIONS["equal"]), MemoryStateStore(), epochs)
    assert lines(made)[1] == ["+ 1 1 6 7 1 9", "- 1 1 5 7 1 9"]


def test_one_change_that_joins_many_rows_leaves_in_slices():
    many = StreamChunk.from_rows(RIGHT, [(Op.INSERT, (number, 1, number)) for number in range(10_000)])
    one = from_pretty("+ 1 1 5", LEFT)
    (_, made) = run(join_node(JoinKind.INNER, CONDITIONS["equal"]), MemoryStateStore(), [[(1, many)], [(0, one)]],
                    chunk_rows=512)
    assert sum(chunk.visible_rows for chunk in made) == 10_000
    assert max(chunk.capacity for chunk in made) == 512


def test_rows_beyond_the_budget_are_evicted_also_in_the_middle_of_an_epoch():
    node = join_node(JoinKind.INNER, CONDITIONS["equal"])
    chunks = [
        (0, StreamChunk.from_rows(LEFT, [(Op.INSERT, (number, number, 0)) for number in range(first, first + 5_000)]))
        for first in range(0, 100_000, 5_000)
    ]
    scripts = [[barrier(1), *(chunk for _, chunk in chunks), barrier(2)], [barrier(1), barrier(2)]]
    budget = 1 << 20
    executor = executor_of(node, inputs_of(node, scripts), MemoryStateStore(), cache_bytes=budget)
    left = executor._sides[0]
    most = 0
    for _ in executor.execute():
        most = max(most, left.index.size_bytes)
    assert not left.is_complete and most < 3 * budget
    assert left.index.size_bytes <= budget


def test_a_key_that_is_never_looked_up_is_not_read_to_add_a_row(monkeypatch):
    node = join_node(JoinKind.INNER, CONDITIONS["equal"])
    store = MemoryStateStore()
    run(node, store, changes_of([(0, "+ 1 1 5"), (1, "+ 7 1 9")]))
    read = []
    rows_under = StateTable.rows_under

    def noted(table, prefixes):
        read.append(table.catalog.name)
        return rows_under(table, prefixes)

    monkeypatch.setattr(StateTable, "rows_under", noted)
    (made,) = run(node, store, changes_of([(0, "+ 2 1 6")]), first=2)
    assert lines([made]) == [["+ 2 1 6 7 1 9"]]
    assert read == ["mv.join0.right"]


def test_a_row_that_is_not_there_is_not_deleted():
    epochs = changes_of([(0, "- 1 1 5")])
    with pytest.raises(ConsistencyError, match="deleted that is not there"):
        run(join_node(JoinKind.INNER, CONDITIONS["equal"]), MemoryStateStore(), epochs)


def test_a_row_whose_key_is_too_long_is_dropped_and_counted():
    schema = Schema.of(id="bigint", k="varchar")
    on = Call("equal", (InputRef(1, DataType.VARCHAR), InputRef(3, DataType.VARCHAR)), DataType.BOOLEAN)
    node = join_node(JoinKind.LEFT, (on,), schema, schema)
    long = "x" * (1 << 20)
    chunks = [StreamChunk.from_rows(schema, [(op, (1, long)), (op, (2, "a"))]) for op in (Op.INSERT, Op.DELETE)]
    errors = ErrorCounts()
    scripts = [[barrier(1), chunks[0], barrier(2), chunks[1], barrier(3)], [barrier(1), barrier(2), barrier(3)]]
    counted, rows = [], []
    for message in executor_of(node, inputs_of(node, scripts), MemoryStateStore(), errors=errors).execute():
        if isinstance(message, Barrier):
            counted.append(errors.take().get(LONG_KEY, 0))
        else:
            rows += [row[0] for _, row in message.changes()]
    assert counted == [0, 1, -1]
    assert rows == [2, 2]


def test_append_only_inputs_take_no_memory_for_stream_keys():
    nodes = [join_node(JoinKind.INNER, CONDITIONS["equal"], append_only=(each, each)) for each in (False, True)]
    chunk = StreamChunk.from_rows(LEFT, [(Op.INSERT, (number, number % 7, 0)) for number in range(20_000)])
    sizes = []
    for node in nodes:
        scripts = [[barrier(1), chunk, barrier(2)], [barrier(1), barrier(2)]]
        executor = executor_of(node, inputs_of(node, scripts), MemoryStateStore())
        for _ in executor.execute():
            pass
        sizes.append(executor._sides[0].index.size_bytes)
    assert sizes[1] < sizes[0]
    assert nodes[1].append_only == (True, True)


def test_rows_of_an_input_count_once_for_each_partner_after_a_reload():
    """Degrees are not stored; they are counted again, also for rows of several keys and more pairs than a slice."""
    node = join_node(JoinKind.FULL, CONDITIONS["equal and less"])
    left = [(number, number % 3, 0) for number in range(30)]
    right = [(number, number % 3, number % 2) for number in range(30)]
    fill = [(side, StreamChunk.from_rows(schema, [(Op.INSERT, row) for row in rows]))
            for side, schema, rows in ((0, LEFT, left), (1, RIGHT, right))]
    gone = [(1, StreamChunk.from_rows(RIGHT, [(Op.DELETE, row) for row in right if row[2] and row[1] != 2]))]
    store = MemoryStateStore()
    found = Folded(node.stream_key)
    for number, epoch in enumerate((fill, gone), 1):
        found.apply_all(run(node, store, [epoch], first=number, chunk_rows=7)[0])
    kept = [row for row in right if not row[2] or row[1] == 2]
    assert found.bag == Counter(expected(JoinKind.FULL, CONDITIONS["equal and less"], left, kept))


def test_hidden_rows_do_not_join():
    chunk = from_pretty("+ 1 1 5\n+ 2 1 6", LEFT).with_visibility(np.array([1, 0], np.uint8))
    made = run(join_node(JoinKind.LEFT, CONDITIONS["equal"]), MemoryStateStore(), [[(0, chunk)]])
    assert lines(made) == [["+ 1 1 5 . . ."]]


WIDE = Cast(InputRef(4, DataType.INT), DataType.BIGINT)
BY_ID = Call("equal", (InputRef(0, DataType.BIGINT), WIDE), DataType.BOOLEAN)
"""The right rows have a left one at most."""


def passing_epochs(seed):
    """Left rows that are only inserted, some of them late, and right rows that come, change and go."""
    rng = random.Random(seed)
    changes = random_changes(rng, RIGHT, [(number,) for number in range(25)],
                             lambda key: (*key, rng.choice([None, *range(12)]), rng.choice([None, 1, 2, 3])),
                             chunks=3 * EPOCHS, rows=12)
    ids = rng.sample(range(12), 12)
    epochs = []
    for number in range(EPOCHS):
        new = [(each, 1, rng.choice([None, 1, 2])) for each in ids[2 * number : 2 * number + 2]]
        left = StreamChunk.from_rows(LEFT, [(Op.INSERT, row) for row in new])
        epoch = [(1, chunk) for chunk in changes[3 * number : 3 * number + 3]]
        epoch.insert(rng.randrange(4), (0, left))
        epochs.append(epoch)
    return epochs


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("on", [(BY_ID,), (BY_ID, LESS)], ids=["equal", "equal and less"])
def test_rows_that_wait_for_their_only_partner_are_all_that_is_kept_of_them(on, options):
    node = join_node(JoinKind.INNER, on, append_only=(True, False))
    assert node.passing == (False, True)
    for seed in range(4):
        epochs, store = passing_epochs(seed), MemoryStateStore()
        inputs, found = (Folded((0,)), Folded((0,))), Folded(node.stream_key)
        for changes, made in zip(epochs, run(node, store, epochs, **options), strict=True):
            for side, chunk in changes:
                inputs[side].apply(chunk)
            found.apply_all(made)
            left, right = (list(each.rows.values()) for each in inputs)
            expected_rows = [(*one, *other) for one in left for other in right if one[0] == other[1]
                             and (len(on) == 1 or (one[2] is not None and other[2] is not None and one[2] < other[2]))]
            assert Counter(row[:6] for row in found.bag.elements()) == Counter(expected_rows), seed
        known = {row[0] for row in left}
        stored = StateTable(node.tables[1], store)
        stored.init_epoch(barrier(2 + EPOCHS).epoch)
        waiting = sorted(row[:3] for row in stored.scan())
        assert waiting == sorted(row for row in right if row[1] is not None and row[1] not in known)


def test_only_a_unique_side_that_never_loses_a_row_lets_the_other_pass():
    flipped = Call("equal", (Cast(InputRef(1, DataType.INT), DataType.BIGINT), InputRef(3, DataType.BIGINT)),
                   DataType.BOOLEAN)
    assert join_node(JoinKind.INNER, (flipped,), append_only=(True, True)).passing == (True, False)
    assert join_node(JoinKind.INNER, (flipped,), append_only=(True, False)).passing == (False, False)
    assert join_node(JoinKind.INNER, (BY_ID,), append_only=(True, False)).passing == (False, True)
    assert join_node(JoinKind.LEFT, (BY_ID,), append_only=(True, True)).passing == (False, False)
    assert join_node(JoinKind.INNER, CONDITIONS["equal"], append_only=(True, True)).passing == (False, False)
