"""Batch plans with parameters, executed with values in their place.

A plan that selects one row by its whole key, and only chooses among its columns, is a PointLookup: the key is encoded,
looked up and decoded for itself, without a plan that is run chunk by chunk and without pinning an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pyarrow as pa

from hummock.epoch import Epoch
from hummock.errors import EpochTooOld
from hummock.state_store import StateStore
from relational.batch.plan import BatchNode, BatchProject, BatchScan, BatchValues
from relational.batch.planner import plan_query
from relational.batch.query_memory import QueryMemory
from relational.batch.recursion import RecursionLimits
from relational.batch.run import DEFAULT_LIMITS, chunks_of, table_of
from relational.catalog.objects import TableCatalog, TableKind
from relational.chunk import Column, DataChunk
from relational.expr.eval import evaluate
from relational.expr.expression import Expression, InputRef, Literal, Parameter, transform
from relational.expr.key_condition import Comparison, KeyCondition, equal_values
from relational.expr.parameters import has_parameters, with_values
from relational.plan.cardinality import TableRows
from relational.plan.logical import LogicalPlan
from relational.table.column_cache import ColumnCache
from relational.table.storage_table import StorageTable
from relational.types.schema import Schema

Pin = Callable[[], AbstractContextManager[Epoch]]
Values = Sequence[Literal]
UNPINNED_TRIES = 3
"""Reads at the newest epoch before one is pinned: each is too late only if a commit comes in between."""


class PreparedQuery:
    """The plan of a query, of which the columns `shown` are the answer. Any thread. QueryTooLarge beyond `limits` or
    what the `memory` allows, SpillFailed."""

    def __init__(
        self,
        plan: BatchNode,
        shown: Sequence[int],
        store: StateStore,
        limits: RecursionLimits = DEFAULT_LIMITS,
        memory: QueryMemory | None = None,
    ) -> None:
        self.plan, self._shown, self._store, self._limits = plan, tuple(shown), store, limits
        self._memory = memory
        self._lookup = point_lookup(plan, self._shown, store)
        self._has_parameters = any_parameters(plan)
        self.indexes = frozenset(scan.table.id for scan in _scans(plan) if scan.table.kind is TableKind.INDEX)
        """Ids of those that the plan reads."""

    def check(self, values: Values) -> None:
        """ParameterError for a text that is not of the type in whose position it is."""
        if self._has_parameters and any(isinstance(each.value, str) for each in values):
            with_parameters(self.plan, values)

    def rows(self, values: Values, pin: Pin, cache: ColumnCache | None = None) -> pa.Table:
        """The rows at one committed epoch, which `pin` pins. `values`: of the parameters by number, that of 0 is the
        time. ParameterError, EvaluationError."""
        if self._lookup is not None:
            found = self._lookup.rows(values)
            if found is not None:
                return found
        with pin() as epoch:
            return table_of(self._plan_of(values), self._shown, self._store, epoch, cache, self._limits, self._memory)

    def rows_at(self, epoch: Epoch, values: Values = ()) -> pa.Table:
        """As `rows`, at an epoch that is pinned."""
        return table_of(self._plan_of(values), self._shown, self._store, epoch, None, self._limits, self._memory)

    def chunks(self, values: Values, epoch: Epoch) -> Iterator[DataChunk]:
        """As `rows`, all columns as chunks without hidden rows."""
        return chunks_of(self._plan_of(values), self._store, epoch, self._limits, self._memory)

    def rows_of_many(self, many: Sequence[Values]) -> DataChunk | None:
        """The rows of all values together, of a plan that is one row of expressions; None of any other plan. The values
        of a parameter have one type. EvaluationError."""
        if not isinstance(self.plan, BatchValues) or len(self.plan.rows) != 1:
            return None
        columns = _ParameterColumns(many)
        expressions = [columns.over(cell) for cell in self.plan.rows[0]]
        chunk = DataChunk(columns.columns, capacity=len(many))
        return DataChunk([evaluate(each, chunk, strict=True) for each in expressions], capacity=len(many))

    def _plan_of(self, values: Values) -> BatchNode:
        found = with_parameters(self.plan, values) if self._has_parameters else self.plan
        assert isinstance(found, BatchNode)
        return found


def run_query(
    plan: LogicalPlan,
    store: StateStore,
    epoch: Epoch,
    rows: TableRows | None = None,
    limits: RecursionLimits = DEFAULT_LIMITS,
    values: Values = (),
    memory: QueryMemory | None = None,
) -> pa.Table:
    """The visible columns of the plan's rows at `epoch`, which is pinned. `rows`: estimates of the rows of the tables.
    `values` as `PreparedQuery.rows`. QueryTooLarge beyond `limits` or what the `memory` allows, SpillFailed."""
    return PreparedQuery(plan_query(plan, rows=rows), plan.visible, store, limits, memory).rows_at(epoch, values)


class _ParameterColumns:
    """The values of parameters as columns, one row for each of `many`."""

    def __init__(self, many: Sequence[Values]) -> None:
        self._many = many
        self._positions: dict[Parameter, int] = {}
        self.columns: list[Column] = []

    def over(self, expression: Expression) -> Expression:
        """The expression over these columns."""
        return transform(expression, lambda node: self._column(node) if isinstance(node, Parameter) else node)

    def _column(self, parameter: Parameter) -> InputRef:
        if parameter not in self._positions:
            self._positions[parameter] = len(self.columns)
            values = [each[parameter.number].value for each in self._many]
            self.columns.append(Column.from_pylist(values, parameter.data_type))
        return InputRef(self._positions[parameter], parameter.data_type)


class PointLookup:
    """One row of `table` by the constants `key`, and of it the columns `columns`, as `schema` names them."""

    def __init__(
        self,
        table: TableCatalog,
        columns: Sequence[int],
        key: Sequence[Comparison],
        schema: Schema,
        store: StateStore,
    ) -> None:
        self._table, self._store, self._schema = StorageTable(table, store, columns), store, schema.arrow
        types = [table.columns[index].data_type for index in table.pk_indices]
        self._key = [_value_of(each, data_type) for each, data_type in zip(key, types, strict=True)]
        self._nothing = schema.arrow.empty_table()

    def rows(self, values: Values) -> pa.Table | None:
        """At most one row, at the newest committed epoch; None if no such epoch could be read. ParameterError."""
        key = []
        for each in self._key:
            found = each(values)
            if not found:
                return self._nothing
            key.append(found[0])
        for _ in range(UNPINNED_TRIES):
            try:
                row = self._table.get_batch(key, self._store.committed_epoch, self._schema)
            except EpochTooOld:
                continue
            return self._nothing if row is None else pa.Table.from_batches((row,))
        return None


def _value_of(comparison: Comparison, data_type: Any) -> Callable[[Values], tuple[Any, ...]]:
    """The value of a key column, () if no row can have it."""
    constant = comparison.value
    if isinstance(constant, Parameter) and constant.data_type == data_type and not data_type.is_float:
        number = constant.number
        return lambda values: (values[number].value,)
    return lambda values: equal_values(replace(comparison, value=with_values(constant, values)), data_type)


def point_lookup(plan: BatchNode, shown: Sequence[int], store: StateStore) -> PointLookup | None:
    """The lookup that a plan is; None for other plans."""
    schema = plan.schema.project(shown)
    columns = list(shown)
    while isinstance(plan, BatchProject):
        sources = [plan.expressions[column] for column in columns]
        columns = [source.index for source in sources if isinstance(source, InputRef)]
        if len(columns) < len(sources):
            return None
        plan = plan.input
    is_point = isinstance(plan, BatchScan) and plan.is_lookup and plan.limit != 0 and plan.table.kind.has_rows
    if not is_point or not columns or len(set(columns)) < len(columns):
        return None
    assert isinstance(plan, BatchScan) and plan.keys is not None
    if plan.epoch is not None:
        return None
    if any(len(alternatives) != 1 for alternatives in plan.keys.equal):
        return None
    key = [alternatives[0] for alternatives in plan.keys.equal]
    return PointLookup(plan.table, [plan.columns[column] for column in columns], key, schema, store)


def _scans(plan: BatchNode) -> Iterator[BatchScan]:
    if isinstance(plan, BatchScan):
        yield plan
    for each in plan.inputs:
        yield from _scans(each)


def any_parameters(part: Any) -> bool:
    """Whether a plan, or a part of it, has parameters."""
    if isinstance(part, Expression):
        return has_parameters(part)
    if isinstance(part, tuple):
        return any(map(any_parameters, part))
    return _has_expressions(part) and any(any_parameters(getattr(part, each.name)) for each in fields(part))


def with_parameters(part: Any, values: Values) -> Any:
    """A plan, or a part of it, with the values of its parameters; the same object if it has none. ParameterError."""
    if isinstance(part, Expression):
        return with_values(part, values)
    if isinstance(part, tuple):
        changed = tuple([with_parameters(each, values) for each in part])
        return part if all(new is old for new, old in zip(changed, part, strict=True)) else changed
    if not _has_expressions(part):
        return part
    found = {each.name: getattr(part, each.name) for each in fields(part)}
    bound = {name: with_parameters(value, values) for name, value in found.items()}
    if all(bound[name] is value for name, value in found.items()):
        return part
    return replace(part, **bound)


def _has_expressions(part: Any) -> bool:
    return isinstance(part, BatchNode | KeyCondition | Comparison) or (
        is_dataclass(part) and type(part).__name__ == "AggCall")
