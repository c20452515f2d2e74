"""The actors of jobs: cases of plans, parallelism and upstream layouts."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from relational.catalog.objects import TableKind
from relational.chunk.vnode_map import VnodeMap
from relational.expr.aggregates import AggCall, AggKind, aggregate_type
from relational.expr.expression import Call, InputRef
from relational.plan.logical import Aggregate, Join, JoinKind, Project, Scan
from relational.plan.serialize import plan_to_text
from relational.types import DataType, Schema
from stream.meta.schedule import Beginning, Job, Layout, schedule
from stream.plan.planner import plan_of_one_actor, plan_query, plan_table
from tests.support.drivers.catalogs import table_catalog

SCHEMA = Schema.of(id="bigint", region="varchar", v="bigint")
T = table_catalog("t", SCHEMA, (0,), table_id=1)
COUNT = AggCall(AggKind.COUNT, None, None, False, aggregate_type(AggKind.COUNT, None))


def counted(group_by):
    return Aggregate(Scan(T), group_by, (COUNT,), ("n",))


def plan_of(query, pk):
    ids = itertools.count(100)
    return plan_query(table_catalog("mv", query.schema, pk, table_id=2), query, lambda name: next(ids))


def graph_of(plan, upstream, parallelism, splits=()):
    numbers = itertools.count(10)
    return schedule(Beginning(Job(2, plan, {1: splits}, parallelism)), {1: upstream}, lambda: next(numbers))


def shown(graph):
    """Per actor: fragment, senders of each input, whether rows are hashed, vnodes owned."""
    found = []
    for spec in graph.specs:
        senders = [each.upstreams for each in spec.inputs]
        hashed = [each.edge.vnode_map is not None for each in spec.inputs]
        found.append((spec.fragment, senders, hashed, None if spec.vnodes is None else int(spec.vnodes.sum())))
    return found


ONE = Layout((5,))
TWO = Layout((5, 6), VnodeMap.even((5, 6)))
THREE = Layout((5, 6, 7), VnodeMap.even((5, 6, 7)))


def test_a_view_over_a_table_with_one_actor_takes_its_rows_by_vnode():
    graph = graph_of(plan_of(Scan(T), (0,)), ONE, 2)
    assert shown(graph) == [(0, [(5,)], [True], 128), (0, [(5,)], [True], 128)]
    assert graph.root.actors == (10, 11)


def test_a_view_follows_actors_with_the_same_vnodes_one_to_one():
    graph = graph_of(plan_of(Scan(T), (0,)), TWO, 2)
    assert shown(graph) == [(0, [(5,)], [False], 128), (0, [(6,)], [False], 128)]


def test_actors_with_other_vnodes_send_to_all():
    graph = graph_of(plan_of(Scan(T), (0,)), THREE, 2)
    assert shown(graph) == [(0, [(5, 6, 7)], [True], 128), (0, [(5, 6, 7)], [True], 128)]
    assert graph.specs[0].inputs[0].edge.key == (0,) and graph.specs[0].inputs[0].edge.table is T


def test_an_aggregation_has_a_fragment_of_its_own():
    scans = [(0, [(5,)], [False], 128), (0, [(6,)], [False], 128)]
    aggregations = [(1, [(10, 11)], [True], 128)] * 2
    assert shown(graph_of(plan_of(counted((1,)), (0,)), TWO, 2)) == scans + aggregations


def test_a_fragment_that_only_scans_has_the_actors_of_its_table():
    def scans(upstream):
        found = shown(graph_of(plan_of(counted((1,)), (0,)), upstream, 2))
        return [(senders, owned) for fragment, senders, _, owned in found if fragment == 0]

    assert scans(ONE) == [([(5,)], None)]
    assert scans(THREE) == [([(5,)], 86), ([(6,)], 85), ([(7,)], 85)]


def test_a_scan_that_a_join_has_its_actors_from_has_all_actors_of_the_job():
    other = table_catalog("u", Schema.of(id="bigint", t="bigint"), (0,), table_id=3)
    on = Call("equal", (InputRef(0, DataType.BIGINT), InputRef(4, DataType.BIGINT)), DataType.BOOLEAN)
    join = Join(Scan(T), Scan(other), JoinKind.INNER, on, is_keyed=True)
    numbers = itertools.count(10)
    graph = schedule(Beginning(Job(2, plan_of(join, join.stream_key), {}, 2)), {1: ONE, 3: ONE}, lambda: next(numbers))
    assert shown(graph)[:2] == [(0, [(5,)], [True], 128)] * 2
    joins = [spec for spec in graph.specs if len(spec.inputs) == 2]
    assert [spec.inputs[0].upstreams for spec in joins] == [(10,), (11,)]
    assert [int(spec.vnodes.sum()) for spec in joins] == [128, 128]


def test_an_aggregation_by_the_key_of_the_table_needs_no_exchange():
    assert {fragment for fragment, *_ in shown(graph_of(plan_of(counted((0,)), (0,)), TWO, 2))} == {0}


def test_without_groups_all_rows_go_to_one_actor():
    graph = graph_of(plan_of(counted(()), ()), TWO, 2)
    assert shown(graph) == [(0, [(5,)], [False], 128), (0, [(6,)], [False], 128), (1, [(10, 11)], [False], None)]
    assert graph.root == Layout((12,))


def test_a_view_with_another_key_is_distributed_by_it():
    query = Project(Scan(T), tuple(InputRef(at, SCHEMA.types[at]) for at in (1, 0)), ("region", "id"))
    graph = graph_of(plan_of(query, (0, 1)), TWO, 2)
    assert [fragment for fragment, *_ in shown(graph)] == [0, 0, 1, 1]


def test_all_rows_of_a_vnode_meet_in_one_actor():
    graph = graph_of(plan_of(counted((1,)), (0,)), THREE, 5)
    owned = np.sum([spec.vnodes for spec in graph.specs if spec.fragment == 1], axis=0)
    assert (owned == 1).all()


def test_a_job_of_an_older_release_has_one_actor():
    query = counted((1,))
    view = table_catalog("mv", query.schema, (0,), table_id=2, plan=plan_to_text(query))
    ids = itertools.count(100)
    graph = graph_of(plan_of_one_actor(view, {1: T}.__getitem__, lambda name: next(ids)), TWO, 8)
    assert shown(graph) == [(0, [(5, 6)], [False], None)]


@pytest.mark.parametrize(("splits", "actors"), [((), 1), (("a",), 1), (("a", "b", "c"), 2)])
def test_splits_are_divided_among_the_actors_of_a_source(splits, actors):
    source = table_catalog("s", SCHEMA, (0,), table_id=1, connector={"connector": "x"}, is_append_only=True)

    source = replace(source, kind=TableKind.SOURCE, row_id_index=0)
    query = Aggregate(Scan(source, (1, 2)), (0,), (COUNT,), ("n",))
    graph = graph_of(plan_of(query, (0,)), ONE, 2, splits)
    reading = [spec for spec in graph.specs if spec.fragment == 0]
    assert len(reading) == actors and not any(spec.inputs for spec in reading)
    assert sorted(each for spec in reading for each in spec.splits) == sorted(splits)
    assert all(spec.all_splits == splits and spec.siblings == actors for spec in reading)


def test_the_job_of_a_table_has_one_actor():
    numbers = itertools.count(10)
    graph = schedule(Beginning(Job(1, plan_table(T, lambda name: 100), {}, 8)), {}, lambda: next(numbers))
    assert shown(graph) == [(0, [], [], None)]
