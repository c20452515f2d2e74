"""ChangePlan: what an UPDATE or DELETE is for its table, prepared for any number of executions.

A condition on the primary key reads its rows only; the rest of the condition, and the assigned values, are expressions
over a row and the values of an execution. All of that depends on the text of the statement and the columns of the
table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from relational.catalog.objects import TableCatalog
from relational.chunk import DataChunk
from relational.expr.eval import Evaluator, context_of
from relational.expr.eval_context import scalar
from relational.expr.expression import Expression, InputRef, Literal, Parameter, conjunction, conjuncts, transform
from relational.expr.key_condition import KeyCondition, key_condition, most_combinations
from relational.table.state_table import StateTable
from stream.message import DeleteRows, UpdateRows

MOST_PLANS = 64
"""Of statements with parameters, that are kept."""


class ChangePlan:
    """Of a statement that changes `table`. `has_rows`: the rows that may match are given, so none are looked for by
    their key."""

    def __init__(self, statement: UpdateRows | DeleteRows, table: TableCatalog, *, has_rows: bool = False) -> None:
        self.parts = parts_of(statement)
        predicate, assignments = self.parts
        self._columns = len(table.columns)
        self._used: set[int] = set()  # values that expressions need
        self._keys: KeyCondition | None = None
        terms = () if predicate is None else conjuncts(predicate)
        if not has_rows:
            self._keys, terms = _condition_on_key(terms, table)
        self._condition = Evaluator(self._over_values(conjunction(terms))) if terms else None
        self._assignments = [(index, Evaluator(self._over_values(value))) for index, value in assignments]

    def matching(
        self, table: StateTable, values: Sequence[Literal], rows: Iterable[DataChunk] | None = None
    ) -> DataChunk | None:
        """Those of `rows` for which the condition is true, in one chunk; None if there are none. Without `rows` those
        of the table. EvaluationError."""
        if rows is None:
            rows = table.scan_chunks() if self._keys is None else table.rows_of(self._keys.resolve(values))
        found = [chunk for chunk in self._filtered(rows, values) if chunk.capacity]
        return DataChunk.concat(found) if found else None

    def changed(self, old: DataChunk, values: Sequence[Literal]) -> DataChunk:
        """The rows after the assignments. EvaluationError."""
        context = context_of(old, strict=True, constants=self._constants(values))
        columns = list(old.columns)
        for index, value in self._assignments:
            columns[index] = value.over(old, context)
        return DataChunk(columns)

    def _filtered(self, rows: Iterable[DataChunk], values: Sequence[Literal]) -> Iterator[DataChunk]:
        constants = () if self._condition is None else self._constants(values)
        for chunk in rows:
            if self._condition is not None:
                context = context_of(chunk, strict=True, constants=constants)
                chunk = chunk.filter(self._condition.over(chunk, context))
            yield chunk.compact()

    def _constants(self, values: Sequence[Literal]) -> list[pa.Scalar | None]:
        return [
            scalar(each.value, each.data_type) if number in self._used else None for number, each in enumerate(values)
        ]

    def _over_values(self, expression: Expression) -> Expression:
        """The expression with its parameters as columns, which follow those of the table."""

        def value_of(node: Expression) -> Expression:
            if not isinstance(node, Parameter):
                return node
            self._used.add(node.number)
            return InputRef(self._columns + node.number, node.data_type)

        return transform(expression, value_of)


class ChangePlans:
    """The plans of the statements that change `table`; of those with parameters the last ones are kept."""

    def __init__(self, table: TableCatalog) -> None:
        self._table = table
        self._kept: dict[tuple[int, int], ChangePlan] = {}  # by the ids of the parts, which it keeps

    def plan(self, statement: UpdateRows | DeleteRows) -> ChangePlan:
        """The plan of a statement without `keys`."""
        if not statement.values:
            return ChangePlan(statement, self._table)
        predicate, assignments = parts_of(statement)
        key = id(predicate), id(assignments)
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) == MOST_PLANS:
                del self._kept[next(iter(self._kept))]
            found = self._kept[key] = ChangePlan(statement, self._table)
        return found


def parts_of(statement: UpdateRows | DeleteRows) -> tuple[Expression | None, tuple[tuple[int, Expression], ...]]:
    """The predicate and the assignments."""
    return statement.predicate, statement.assignments if isinstance(statement, UpdateRows) else ()


def _condition_on_key(
    terms: tuple[Expression, ...], table: TableCatalog
) -> tuple[KeyCondition | None, tuple[Expression, ...]]:
    def most(width: int) -> int:
        return most_combinations(width, table.pk_indices, table.distribution_key, table.vnode_count)

    return key_condition(terms, table.pk_indices, [table.columns[each].data_type for each in table.pk_indices], most)
