"""Joins whose state watermarks clean, against nested loops over all rows that there ever were: of every kind, over rows
that change as long as they are not final, with watermarks far apart, evictions and recoveries."""

import itertools
import random
from collections import Counter
from dataclasses import replace

import pytest

from hummock.store.memory_store import MemoryStateStore
from relational.catalog.watermarks import WatermarkCatalog
from relational.chunk import Op, StreamChunk
from relational.expr import ErrorCounts
from relational.expr.expression import Call, InputRef, Literal, conjunction
from relational.memory_budget import MemoryBudget
from relational.plan.logical import Join, JoinKind, Scan
from relational.plan.optimizer import VIEW_RULES, optimize
from relational.table.state_table import StateTable
from relational.types import DataType, Schema
from stream.executor.base import ExecutorInfo
from stream.executor.hash_join import HashJoinExecutor
from stream.message import Barrier, Watermark
from stream.plan.planner import plan_query
from stream.plan.stream_plan import HashJoinNode, StreamScanNode
from stream.worker.actor_builder import join_sides, join_watermarks
from tests.stream.executor.test_hash_join import inputs_of
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.seeds import run_seed
from tests.support.drivers.stream_driver import Folded, barrier

LEFT, RIGHT = Schema.of(id="bigint", k="int", t="int"), Schema.of(id="bigint", k="int", u="int")
KINDS = list(JoinKind)
BIG = 1 << 30


def call(function, *args, data_type=DataType.BOOLEAN):
    return Call(function, args, data_type)


def column(number):
    return InputRef(number, DataType.INT)


def plus(number, distance):
    return call("add", column(number), Literal(distance, DataType.INT), data_type=DataType.INT)


SAME_K, SAME_T = call("equal", column(1), column(4)), call("equal", column(2), column(5))
K_LESS = call("less", column(1), column(4))
LEAST, MOST = call("greater_equal", column(2), plus(5, -2)), call("less_equal", column(2), plus(5, 3))
AFTER = call("greater", plus(2, 1), column(5))  # t - u is more than -1
CONDITIONS = {
    "times": ((SAME_T,), lambda a, b: a[2] == b[2]),
    "times and keys": ((SAME_K, SAME_T), lambda a, b: a[1:] == b[1:]),
    "times and less": ((SAME_T, K_LESS), lambda a, b: a[2] == b[2] and a[1] < b[1]),
    "interval": ((SAME_K, LEAST, MOST), lambda a, b: a[1] == b[1] and b[2] - 2 <= a[2] <= b[2] + 3),
    "interval and less": ((LEAST, MOST, K_LESS), lambda a, b: a[1] < b[1] and b[2] - 2 <= a[2] <= b[2] + 3),
    "least": ((SAME_K, AFTER), lambda a, b: a[1] == b[1] and a[2] + 1 > b[2]),
    "most": ((SAME_K, MOST), lambda a, b: a[1] == b[1] and a[2] <= b[2] + 3),
}


def join_node(kind, on, *, append_only=False):
    """The planner's node over two tables whose last columns have watermarks."""
    tables = [table_catalog(name, schema, [0], table_id=number, watermarks=(WatermarkCatalog(2, 0),),
                            is_append_only=append_only)
              for number, (name, schema) in enumerate((("a", LEFT), ("b", RIGHT)), 1)]
    query = optimize(Join(Scan(tables[0]), Scan(tables[1]), kind, conjunction(on)), VIEW_RULES)
    ids = itertools.count(10)
    view = table_catalog("mv", query.schema, query.stream_key, table_id=9)
    root = plan_query(view, query, lambda name: next(ids)).root
    return query, next(node for node in root.walk() if isinstance(node, HashJoinNode))


def executor_of(node, scripts, store, cache_bytes):
    moved = []
    for side, script in zip(node.inputs, scripts, strict=True):
        (scan,) = (each for each in side.walk() if isinstance(each, StreamScanNode))
        moved.append([replace(each, column=scan.columns.index(each.column)) if isinstance(each, Watermark) else each
                      for each in script])
    return HashJoinExecutor(
        ExecutorInfo(node.schema, node.stream_key, "HashJoin"),
        inputs_of(node, moved),
        join_sides(node, lambda table: StateTable(table, store), MemoryBudget(cache_bytes)),
        node.condition,
        ErrorCounts(),
        has_pairs=node.kind.has_pairs,
        chunk_rows=4096,
        watermarks=join_watermarks(node),
    )


class Side:
    """The rows of one input. Changes are of rows at its watermark or above it; some have no time."""

    def __init__(self, rng, schema, *, append_only):
        self.rng, self.schema, self.append_only = rng, schema, append_only
        self.rows, self.mark, self.ids = {}, 0, itertools.count()

    def chunk(self):
        changes = []
        for _ in range(self.rng.randrange(6)):
            live = [row for row in self.rows.values() if row[2] is None or row[2] >= self.mark]
            if live and not self.append_only and self.rng.random() < 0.4:
                old = self.rng.choice(live)
                del self.rows[old[0]]
                if self.rng.random() < 0.5:
                    changes.append((Op.DELETE, old))
                    continue
                new = self.row(old[0])
                changes += [(Op.UPDATE_DELETE, old), (Op.UPDATE_INSERT, new)]
            else:
                new = self.row(next(self.ids))
                changes.append((Op.INSERT, new))
            self.rows[new[0]] = new
        return StreamChunk.from_rows(self.schema, changes)

    def row(self, key):
        time = None if self.rng.random() < 0.05 else self.mark + self.rng.randrange(6)
        return key, self.rng.randrange(3), time


def pairs_of(kind, holds, left, right):
    def meets(one, other):
        return None not in (one[2], other[2]) and holds(one, other)

    pairs = [(one, other) for one in left for other in right if meets(one, other)]
    matched = {one for one, _ in pairs}, {other for _, other in pairs}
    if not kind.has_pairs:
        return [one for one in left if (one in matched[0]) == (kind is JoinKind.SEMI)]
    rows = [one + other for one, other in pairs]
    rows += [one + (None,) * 3 for one in left if kind.keeps_left and one not in matched[0]]
    return rows + [(None,) * 3 + other for other in right if kind.keeps_right and other not in matched[1]]


class History:
    """What both inputs send in each of some epochs, and the rows of the result after each. `pause`: the input whose
    watermark does not move in the first half."""

    def __init__(self, rng, kind, holds, *, epochs, append_only, pause):
        self.sides = [Side(rng, schema, append_only=append_only) for schema in (LEFT, RIGHT)]
        self.sent, self.wanted = ([], []), []
        for epoch in range(epochs):
            for number, (side, sent) in enumerate(zip(self.sides, self.sent, strict=True)):
                chunks = [side.chunk() for _ in range(rng.randrange(1, 4))]
                side.mark += 0 if number == pause and epoch < epochs // 2 else rng.randrange(4)
                sent.append([*chunks, Watermark(2, side.mark), barrier(2 + epoch)])
            self.wanted.append(Counter(pairs_of(kind, holds, *(side.rows.values() for side in self.sides))))

    def script(self, number, first, last):
        """The messages of an input from a recovery on, after which sources repeat their watermarks, to a crash."""
        sent = self.sent[number]
        again = [sent[first - 1][-2]] if first else []
        lost = sent[last][:1] if last < len(sent) else []
        return [barrier(1 + first), *again, *itertools.chain.from_iterable(sent[first:last]), *lost]


def played(kind, condition, *, epochs=9, cache_bytes=BIG, append_only=False, crashes=False, pause=None, seed=0):
    """Runs a join: after each epoch the result is that of all pairs, and no change is below a watermark of before. The
    plan's node and the last executor."""
    on, holds = CONDITIONS[condition]
    rng, store = random.Random(f"{run_seed()} {kind} {condition} {seed}"), MemoryStateStore()
    query, node = join_node(kind, on, append_only=append_only)
    history = History(rng, kind, holds, epochs=epochs, append_only=append_only, pause=pause)
    found, marks, first = Folded(node.stream_key), {}, 0
    while first < epochs:
        last = rng.randrange(first + 1, epochs + 1) if crashes else epochs
        scripts = [history.script(number, first, last) for number in range(2)]
        executor, epoch = executor_of(node, scripts, store, cache_bytes), first - 1
        for message in executor.execute():
            if isinstance(message, Watermark):
                marks[message.column] = message.value
            elif isinstance(message, Barrier):
                if epoch >= first:
                    store.commit(message.epoch.prev)
                    assert found.bag == history.wanted[epoch], epoch
                epoch += 1
            elif isinstance(message, StreamChunk) and epoch < last:
                assert all(row[at] is None or row[at] >= marks[at] for _, row in message.changes() for at in marks)
                found.apply(message)
        store.clear_uncommitted()
        first = last
    assert marks.keys() == query.watermarks
    return node, executor


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_join_that_forgets_final_rows_is_what_all_pairs_say(kind, condition):
    rng = random.Random(f"{run_seed()} options {kind} {condition}")
    played(kind, condition, cache_bytes=rng.choice((2, BIG)), crashes=rng.random() < 0.5,
           append_only=rng.random() < 0.3, pause=rng.choice((None, 0, 1)))


@pytest.mark.parametrize("cache_bytes", [2, BIG])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not JoinKind.FULL])
def test_partners_of_rows_that_are_kept_are_kept(kind, cache_bytes):
    """A row of which the only partner so far is final has had one, also after it was read again."""
    for seed in range(2):
        played(kind, "interval and less", cache_bytes=cache_bytes, crashes=True, pause=seed % 2, seed=seed)


def most_kept(condition, kind, epochs):
    """Of a join of 200 rows of each side an epoch: the rows in memory at most, by side, and at the end in the tables of
    an interval join. The store of the test hides no rows below key watermarks."""
    node, store = join_node(kind, CONDITIONS[condition][0], append_only=True)[1], MemoryStateStore()
    scripts = []
    for number, schema in enumerate((LEFT, RIGHT)):
        script = [barrier(1)]
        for epoch in range(epochs):
            new = [(Op.INSERT, (200 * epoch + at, at, 9 * epoch + (at + number) % 9)) for at in range(200)]
            script += [StreamChunk.from_rows(schema, new), Watermark(2, 9 * epoch), barrier(2 + epoch)]
        scripts.append(script)
    executor, most = executor_of(node, scripts, store, BIG), [0, 0]
    for message in executor.execute():
        if isinstance(message, Barrier):
            most = [max(rows, side.index.rows) for rows, side in zip(most, executor._sides, strict=True)]
    times = [side for side in executor._sides if side._times is not None]
    return most, [sum(chunk.capacity for chunk in table.scan_chunks()) for side in times for table in side._tables]


@pytest.mark.parametrize(("condition", "kind"), [
    ("times", JoinKind.INNER), ("times and keys", JoinKind.FULL), ("times and less", JoinKind.ANTI),
    ("interval", JoinKind.LEFT), ("interval", JoinKind.RIGHT)])
def test_ten_times_the_rows_are_not_more_state(condition, kind):
    few, many = (most_kept(condition, kind, epochs) for epochs in (3, 30))
    assert max(many[0]) < 4_500 < 30 * 200, "some thousand closed rows may be in memory"
    assert many[1] == few[1] and sum(few[1]) < 2_000


@pytest.mark.parametrize(("condition", "kind", "kept"), [
    ("least", JoinKind.INNER, (False, True)), ("most", JoinKind.INNER, (True, False)),
    ("least", JoinKind.LEFT, (False, True)), ("interval", JoinKind.FULL, (True, True))])
def test_what_no_watermark_makes_final_stays(condition, kind, kept):
    most, _ = most_kept(condition, kind, 12)
    assert [rows == 12 * 200 for rows in most] == list(kept)
