import itertools

import pytest

from relational.catalog.objects import ConflictBehaviour, TableKind
from relational.expr.aggregates import AggCall, AggKind, aggregate_type
from relational.expr.expression import Call, InputRef, Literal
from relational.plan.logical import Aggregate, Filter, Limit, Project, Scan
from relational.types import DataType, Schema
from stream.errors import PlanNotSupported
from stream.plan.planner import plan_query, plan_table
from stream.plan.stream_plan import HashAggNode, MaterializeNode, RowIdGenNode, SourceNode
from tests.support.drivers.catalogs import table_catalog

ORDERS = table_catalog("orders", Schema.of(id="bigint", region="varchar", amount="int"), (0,))


def counted_ids(first=100):
    numbers, ids = itertools.count(first), {}
    return lambda name: ids.setdefault(name, next(numbers)) if name not in ids else ids[name]


def call(kind, argument, data_type=None):
    return AggCall(kind, argument, None, False, aggregate_type(kind, data_type))


def greater(column, value):
    args = (InputRef(column, DataType.INT), Literal(value, DataType.INT))
    return Call("greater", args, DataType.BOOLEAN)


def view_of(query, pk):
    return table_catalog("mv", query.schema, pk, table_id=2, kind=TableKind.MATERIALIZED_VIEW)


def by_region(*calls, source=None):
    source = source or Scan(ORDERS)
    return Aggregate(source, (1,), calls, tuple(f"c{i}" for i in range(len(calls))))


def test_a_grouped_view_explains_its_executors_and_its_tables():
    query = by_region(
        call(AggKind.SUM, 2, DataType.INT),
        call(AggKind.MAX, 2, DataType.INT),
        source=Filter(Scan(ORDERS), greater(2, 0)),
    )
    plan = plan_query(view_of(query, (0,)), query, counted_ids())
    assert plan.explain() == "\n".join(
        [
            "Materialize mv key [region] conflict trusted",
            "  HashAgg [region] sum(amount), max(amount)",
            "    Exchange hash [region]",
            "      Filter (amount > 0)",
            "        StreamScan orders (id, region, amount)",
            "table 100 mv.scan0.progress: key [vnode ASC NULLS LAST] value [position, is_done, rows]",
            "table 101 mv.agg0.groups: key [region ASC NULLS LAST] "
            "value [row_count, state_0_0, state_0_1, state_1_0, state_1_1]",
            "table 102 mv.agg0.overflow1: "
            "key [region ASC NULLS LAST, amount DESC NULLS FIRST] value [row_count]",
            "table 103 mv.errors: key [fragment ASC NULLS LAST, vnode ASC NULLS LAST, reason ASC NULLS LAST] "
            "value [rows]",
        ]
    )


def test_planning_again_with_remembered_ids_gives_the_same_plan():
    query = by_region(call(AggKind.MIN, 2, DataType.INT), call(AggKind.COUNT, None))
    ids = counted_ids()
    assert plan_query(view_of(query, (0,)), query, ids) == plan_query(view_of(query, (0,)), query, ids)


def test_extremes_of_an_append_only_input_keep_no_rows():
    events = table_catalog("events", ORDERS.schema, (0,), is_append_only=True)
    query = by_region(call(AggKind.MAX, 2, DataType.INT), source=Scan(events))
    node = plan_query(view_of(query, (0,)), query, counted_ids()).root.input
    assert isinstance(node, HashAggNode) and node.kept == ()


def test_a_kept_input_names_no_column_twice():
    orders = table_catalog("orders", Schema.of(id="varchar", region="varchar", amount="int"), (0,))
    query = Aggregate(Scan(orders), (1,), (call(AggKind.MIN, 0, DataType.VARCHAR),), ("first",))
    (kept,) = plan_query(view_of(query, (0,)), query, counted_ids()).root.input.kept
    assert kept.columns == (1, 0) and kept.argument == 1
    assert kept.table.prefix_columns == 1 and kept.table.value_indices == ()


def test_an_overflow_table_is_in_the_order_of_the_extreme():
    calls = call(AggKind.MAX, 0, DataType.BIGINT), call(AggKind.MIN, 1, DataType.VARCHAR)
    query = Aggregate(Scan(ORDERS), (1,), calls, ("last", "first"))
    node = plan_query(view_of(query, (0,)), query, counted_ids()).root.input
    assert [each.call for each in node.kept] == [1]
    (overflow,) = node.overflows
    assert overflow.columns == (1, 0) and overflow.table.prefix_columns == 1
    assert overflow.table.schema == Schema.of(region="varchar", id="bigint", row_count="bigint")
    assert [key.order.descending for key in overflow.table.pk] == [False, True]
    assert node.state_table.schema.types[2] == DataType.BYTEA


def test_adjacent_filters_become_one():
    query = Filter(Filter(Scan(ORDERS), greater(2, 0)), greater(2, 5))
    root = plan_query(view_of(query, (0,)), query, counted_ids()).root
    assert [node.identity for node in root.walk()] == ["Materialize", "Filter", "StreamScan"]
    assert root.input.details == "((amount > 0) AND (amount > 5))"


def test_a_projection_over_a_choice_of_columns_becomes_one():
    inner = Project(Scan(ORDERS), (InputRef(2, DataType.INT), InputRef(0, DataType.BIGINT)), ("amount", "id"))
    outer = Project(inner, (InputRef(1, DataType.BIGINT), greater(0, 3)), ("id", "large"))
    root = plan_query(view_of(outer, (0,)), outer, counted_ids()).root
    assert root.input.details == "id, (amount > 3) AS large"
    assert root.input.input.identity == "StreamScan"


def test_a_projection_that_changes_nothing_vanishes():
    scan = Scan(ORDERS)
    refs = tuple(InputRef(i, t) for i, t in enumerate(scan.schema.types))
    query = Project(scan, refs, scan.schema.names)
    assert plan_query(view_of(query, (0,)), query, counted_ids()).root.input.identity == "StreamScan"


def test_what_only_a_batch_query_can_have_is_refused_by_name():
    query = Limit(Scan(ORDERS), 3)
    with pytest.raises(PlanNotSupported, match="Limit"):
        plan_query(view_of(query, (0,)), query, counted_ids())


def test_more_distinct_calls_than_a_word_has_bits():
    """Of an append-only input, each with a FILTER of its own."""
    source = Scan(table_catalog("orders", ORDERS.schema, (0,), is_append_only=True))
    calls = [AggCall(AggKind.COUNT, 2, greater(2, limit), True, DataType.BIGINT) for limit in range(65)]
    query = by_region(*calls, source=source)
    nodes = plan_query(view_of(query, (0,)), query, counted_ids()).root.walk()
    (node,) = (each for each in nodes if isinstance(each, HashAggNode))
    (distinct,) = node.distinct
    assert distinct.calls == tuple(range(65)) and not distinct.has_counts
    assert distinct.table.schema.names[3:] == ("seen_0", "seen_1")


def test_a_lost_stream_key_is_refused():
    query = Project(Scan(ORDERS), (InputRef(1, DataType.VARCHAR),), ("region",))
    with pytest.raises(PlanNotSupported, match="identify a row"):
        plan_query(view_of(query, (0,)), query, counted_ids())


def test_a_table_without_a_connector_is_fed_by_statements():
    root = plan_table(ORDERS, counted_ids()).root
    assert [node.identity for node in root.walk()] == ["Materialize", "Dml"]
    assert root.conflict is ConflictBehaviour.ERROR


def test_a_table_without_a_key_gets_row_ids_and_needs_no_rule():
    schema = Schema.of(a="int", _row_id="bigint")
    root = plan_table(table_catalog("t", schema, (1,), row_id_index=1), counted_ids()).root
    assert isinstance(root.input, RowIdGenNode) and root.input.row_id_index == 1
    assert root.conflict is None


@pytest.mark.parametrize(("is_consistent", "rule"), [(False, ConflictBehaviour.OVERWRITE), (True, None)])
def test_a_connector_that_promises_a_legal_stream_is_trusted(is_consistent, rule):
    options = {"connector": {"connector": "datagen"}, "conflict": ConflictBehaviour.OVERWRITE}
    plan = plan_table(
        table_catalog("t", ORDERS.schema, (0,), **options), counted_ids(), is_consistent=is_consistent
    )
    assert isinstance(plan.root, MaterializeNode) and plan.root.conflict is rule
    assert isinstance(plan.root.input, SourceNode)
    assert [each.name for each in plan.state_tables] == ["t.offsets", "t.errors"]
    assert plan.state_tables[0].dependencies == (1,)
