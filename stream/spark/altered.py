"""Actors of a graph after an ALTER of a table's columns: planned again over the next version of the table.

Running executors follow an ALTER with the barrier that carries it. Actors that begin anew in each epoch are described
anew instead: that of the table itself by planning its job, its readers by reading their fragments over the new columns,
which they name by id.
"""

from __future__ import annotations

from dataclasses import replace

from relational.catalog.objects import TableCatalog
from stream.plan.fragments import fragments_of
from stream.plan.planner import plan_table
from stream.plan.serialize import fragment_from_json, fragment_to_json
from stream.plan.stream_plan import MaterializeNode, StreamNode, tables_of
from stream.protocol import ActorSpec, InputSpec


def with_altered(spec: ActorSpec, table: TableCatalog) -> ActorSpec:
    """The actor over `table`, the next version of a table that it may read or write."""
    if spec.job_id == table.id:
        return replace(spec, table=table, root=_planned_again(spec, table))
    known = tables_of(spec.root)
    if table.id not in known:
        return spec
    root = fragment_from_json(fragment_to_json(spec.root), {**known, table.id: table}.__getitem__)
    return replace(spec, root=root, inputs=tuple(_rerouted(each, table) for each in spec.inputs))


def _planned_again(spec: ActorSpec, table: TableCatalog) -> StreamNode:
    assert isinstance(spec.root, MaterializeNode)
    ids = {state.name: state.id for state in tables_of(spec.root).values()}
    if spec.error_table is not None:
        ids[spec.error_table.name] = spec.error_table.id
    plan = plan_table(table, ids.__getitem__, is_consistent=spec.root.conflict is None)
    return fragments_of(plan)[spec.fragment].root


def _rerouted(input: InputSpec, table: TableCatalog) -> InputSpec:
    """The edge on which rows of the table come, by its distribution key as it is now."""
    edge = input.edge
    if edge.table is None or edge.table.id != table.id:
        return input
    return replace(input, edge=replace(edge, key=table.distribution_key, table=table))
