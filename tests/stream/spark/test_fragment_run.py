"""A fragment gives the same whoever runs it: kept over all epochs, or begun anew at each one, whole or in parts."""

import random
from dataclasses import replace

import pytest

import stream
from hummock.store.memory_store import MemoryStateStore
from relational.catalog.names import ObjectName
from relational.chunk import StreamChunk
from relational.chunk.vnode_map import VnodeMap
from relational.expr import ErrorCounts
from relational.types import Schema
from stream.message import Barrier
from stream.options import StreamOptions
from stream.plan.fragments import fragments_of
from stream.plan.stream_plan import MergeNode, without_partial_agg
from stream.spark.fragment_run import run_fragment
from tests.support.drivers.seeds import run_seed
from tests.support.drivers.stream_driver import Folded, barrier, epoch, random_changes

QUERY = "SELECT k, count(*) AS n, sum(v) AS s, max(v) AS m FROM t WHERE v <> 3 GROUP BY k"
UNION = "SELECT k, count(*) AS n FROM (SELECT k FROM t UNION ALL SELECT v AS k FROM t) GROUP BY k"
EPOCHS = 6
ROWS = Schema.of(id="bigint", k="bigint", v="bigint")


def fragments(query):
    with stream.connect("memory://") as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)")
        session.sql(f"CREATE MATERIALIZED VIEW mv AS {query}")
        catalog = session._playground.catalog
        view = catalog.resolve(ObjectName("mv"))
        _, plan = session._playground.meta.planner.stored_plan(view)
        return [replace(each, root=without_partial_agg(each.root)) for each in fragments_of(plan)]


def expected(rows, query):
    """The view's rows by group, from (id, k, v)."""
    groups = {}
    for _, k, v in rows:
        if query is UNION:
            groups[k] = (*groups.get(k, ()), k)
            groups[v] = (*groups.get(v, ()), v)
        elif v != 3:
            groups[k] = (*groups.get(k, ()), v)
    if query is UNION:
        return {(k,): (k, len(each)) for k, each in groups.items()}
    return {(k,): (k, len(each), sum(each), max(each)) for k, each in groups.items()}


def sent(outputs, leaf, epochs, tasks, number):
    """What task `number` of `tasks` receives at `leaf` in each epoch."""
    if not isinstance(leaf, MergeNode):
        return epochs if number == 0 else [[] for _ in epochs]
    if tasks == 1:
        return outputs[leaf.fragment]
    vnode_map = VnodeMap.even(range(tasks), leaf.vnode_count)
    parted = [[each.split_by_vnode(leaf.key, vnode_map, leaf.rule) for each in chunks]
              for chunks in outputs[leaf.fragment]]
    return [[parts[number] for parts in chunks if number in parts] for chunks in parted]


def script(chunks_of_epochs, first=1):
    yield barrier(first)
    for number, chunks in enumerate(chunks_of_epochs, first + 1):
        yield from chunks
        yield barrier(number)


def run_kept(fragment, inputs_of):
    """One task, whose executors go on from epoch to epoch."""
    store, found = MemoryStateStore(), []
    for message in run_fragment(fragment, None, store, [script(each) for each in inputs_of(1, 0)],
                                StreamOptions(), ErrorCounts()):
        if isinstance(message, Barrier):
            if found:
                store.commit(message.epoch.prev)
            found.append([])
        else:
            found[-1].append(message)
    return found[:-1]


def run_anew(fragment, inputs_of, tasks):
    """Tasks that keep nothing from one epoch to the next but what is in the store."""
    store, found = MemoryStateStore(), []
    if not all(isinstance(leaf, MergeNode) and leaf.key for leaf in fragment.leaves):
        tasks = 1
    vnode_map = VnodeMap.even(range(tasks), fragment.vnode_count or 1)
    inputs = [inputs_of(tasks, number) for number in range(tasks)]
    for at in range(EPOCHS):
        outputs = []
        for number in range(tasks):
            messages = [script([epochs[at]], first=at + 1) for epochs in inputs[number]]
            vnodes = vnode_map.bitmap_of(number) if tasks > 1 else None
            outputs += run_fragment(fragment, vnodes, store, messages, StreamOptions(), ErrorCounts())
        store.commit(epoch(at + 1))
        found.append([each for each in outputs if isinstance(each, StreamChunk)])
    return found


@pytest.mark.parametrize("query", [QUERY, UNION], ids=["aggregation", "union"])
@pytest.mark.parametrize("tasks", [None, 1, 3], ids=["kept", "one task", "three tasks"])
def test_it_computes_the_view_at_every_epoch(query, tasks):
    rng = random.Random(run_seed())
    keys = [(number,) for number in range(60)]
    chunks = random_changes(
        rng, ROWS, keys, lambda key: (*key, rng.randrange(9), rng.randrange(9)), chunks=2 * EPOCHS, rows=40
    )
    epochs = [chunks[at : at + 2] for at in range(0, len(chunks), 2)]
    columns = [[chunk.project([1, 2]) for chunk in each] for each in epochs]
    outputs = []
    for fragment in fragments(query):

        def inputs_of(tasks, number, fragment=fragment):
            return [sent(outputs, leaf, columns, tasks, number) for leaf in fragment.leaves]

        outputs.append(run_kept(fragment, inputs_of) if tasks is None else run_anew(fragment, inputs_of, tasks))
    table, view = Folded((0,)), Folded((0,))
    for came, went in zip(epochs, outputs[-1], strict=True):
        table.apply_all(came)
        view.apply_all(went)
        assert view.rows == expected(table.rows.values(), query)


def test_each_leaf_needs_an_input():
    *_, last = fragments(UNION)
    with pytest.raises(ValueError, match="1 inputs for a fragment with 2 leaves"):
        run_fragment(last, None, MemoryStateStore(), [iter(())], StreamOptions(), ErrorCounts())
