"""Plans of queries at one epoch: a tree of nodes, each of which describes one operator of `run.py` completely."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from relational.catalog.objects import TableCatalog
from relational.expr.aggregates import AggCall
from relational.expr.comparisons import Comparison
from relational.expr.expression import Expression
from relational.expr.key_condition import KeyCondition
from relational.expr.window_functions import WindowCall
from relational.plan.logical import JoinKind
from relational.plan.logical.expand import sets_text
from relational.plan.tree_text import (
    calls_text,
    grouping_text,
    groups_text,
    join_text,
    order_text,
    select_items,
    set_text,
    tree_text,
)
from relational.types.ordering import SortKey
from relational.types.row_source import RowSource
from relational.types.schema import Schema


@dataclass(frozen=True, slots=True)
class BatchNode(ABC):
    """An operator; `schema` are its output columns."""

    schema: Schema

    @property
    def inputs(self) -> tuple[BatchNode, ...]:
        return ()

    @property
    @abstractmethod
    def details(self) -> str:
        """The properties of this node, as text."""

    @property
    def summary(self) -> str:
        """The node as one line of text."""
        return f"{type(self).__name__.removeprefix('Batch')} {self.details}".rstrip()

    @property
    def share_number(self) -> int | None:
        return None

    def explain(self) -> str:
        """The tree as indented text, the root first."""
        return tree_text(self)


class ScanOrder(StrEnum):
    """Of the rows of a scan: that of the key, or its reverse."""

    FORWARD = "key order"
    REVERSE = "reverse key order"


@dataclass(frozen=True, slots=True)
class BatchScan(BatchNode):
    """Columns of a table: of the rows whose key fulfils `keys` (None: of all), `limit` rows at most (None: all), in
    `order` (None: in any); at `epoch`, None: at that of the query. A condition on the whole key looks its rows up."""

    table: TableCatalog
    columns: tuple[int, ...]
    limit: int | None
    keys: KeyCondition | None = None
    order: ScanOrder | None = None
    epoch: int | None = None

    @property
    def is_lookup(self) -> bool:
        """Whether the condition fixes the whole key."""
        return self.keys is not None and self.keys.width == len(self.table.pk)

    @property
    def summary(self) -> str:
        return f"{'PointGet' if self.is_lookup else 'Scan'} {self.details}"

    @property
    def details(self) -> str:
        at = "" if self.epoch is None else f" at epoch {self.epoch}"
        return f"{self.table.name}{at}{self._shown_keys} ({', '.join(self.schema.names)}){self._shown_order}"

    @property
    def _shown_keys(self) -> str:
        if self.keys is None:
            return ""
        return f" [{self.keys.describe([self.table.columns[index].name for index in self.table.pk_indices])}]"

    @property
    def _shown_order(self) -> str:
        order = "" if self.order is None else f" in {self.order}"
        return order if self.limit is None else f"{order} limit {self.limit}"


@dataclass(frozen=True, slots=True)
class BatchExternalScan(BatchNode):
    """Columns of rows that are stored outside; rows that do not pass all `filters` on their columns may lack."""

    source: RowSource
    columns: tuple[int, ...]
    filters: tuple[Comparison, ...] = ()

    @property
    def details(self) -> str:
        names = self.source.schema.names
        terms = " and ".join(f"{names[each.column]} {each.relation} {each.value!r}" for each in self.filters)
        return f"{self.source.name} ({', '.join(self.schema.names)}){f' where {terms}' if terms else ''}"


@dataclass(frozen=True, slots=True)
class BatchValues(BatchNode):
    """Expressions without inputs, row by row."""

    rows: tuple[tuple[Expression, ...], ...]

    @property
    def details(self) -> str:
        return f"{len(self.rows)} rows ({', '.join(self.schema.names)})"


@dataclass(frozen=True, slots=True)
class BatchColumnValues(BatchNode):
    """Constants, one Arrow array per column."""

    columns: tuple[pa.Array, ...]

    @property
    def details(self) -> str:
        return f"{len(self.columns[0])} rows ({', '.join(self.schema.names)})"


@dataclass(frozen=True, slots=True)
class _Unary(BatchNode):
    input: BatchNode

    @property
    def inputs(self) -> tuple[BatchNode, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class BatchFilter(_Unary):
    """The rows for which `predicate` is true."""

    predicate: Expression

    @property
    def details(self) -> str:
        return self.predicate.describe(self.input.schema.names)


@dataclass(frozen=True, slots=True)
class BatchProject(_Unary):
    """One output column per expression over the input's columns."""

    expressions: tuple[Expression, ...]

    @property
    def details(self) -> str:
        return ", ".join(select_items(self.expressions, self.input.schema.names, self.schema.names))


@dataclass(frozen=True, slots=True)
class BatchExpand(_Unary):
    """As `Expand`."""

    columns: tuple[int, ...]
    sets: tuple[tuple[int, ...], ...]

    @property
    def details(self) -> str:
        return sets_text(self.columns, self.sets, self.input.schema.names)


@dataclass(frozen=True, slots=True)
class BatchProjectSet(_Unary):
    """The input's columns `passed` beside the elements of the lists `functions` and their number, as in SetRows."""

    passed: tuple[int, ...]
    functions: tuple[Expression, ...]
    is_outer: bool

    @property
    def details(self) -> str:
        names = self.schema.names[len(self.passed) : -1]
        return set_text(self.functions, self.passed, self.input.schema.names, names, self.is_outer)


@dataclass(frozen=True, slots=True)
class BatchHashAgg(_Unary):
    """Groups by input columns, with all groups in memory; one row without groups. Rows that are equal in the order of a
    call are in that of the columns `ties`."""

    group_by: tuple[int, ...]
    calls: tuple[AggCall, ...]
    ties: tuple[int, ...] = ()

    @property
    def details(self) -> str:
        return grouping_text(self.group_by, self.calls, self.input.schema.names)


@dataclass(frozen=True, slots=True)
class BatchSort(_Unary):
    """All rows, in memory, in the order of `keys`."""

    keys: tuple[SortKey, ...]

    @property
    def details(self) -> str:
        return order_text(self.keys, self.schema.names)


@dataclass(frozen=True, slots=True)
class BatchTopN(_Unary):
    """The first `count` rows in the order of `keys` after skipping `offset`, of which as many are in memory."""

    keys: tuple[SortKey, ...]
    count: int
    offset: int

    @property
    def details(self) -> str:
        return f"{self.count} offset {self.offset} by {order_text(self.keys, self.schema.names)}"


@dataclass(frozen=True, slots=True)
class BatchIndexLookup(_Unary):
    """The rows of a table, `columns` of it, whose keys are the rows of the `input`, which reads an index; in its order.
    If these are many, `otherwise` is read, which has the same rows in any order; None: they are few."""

    table: TableCatalog
    columns: tuple[int, ...]
    otherwise: BatchNode | None

    @property
    def inputs(self) -> tuple[BatchNode, ...]:
        return (self.input,) if self.otherwise is None else (self.input, self.otherwise)

    @property
    def details(self) -> str:
        return f"{self.table.name} ({', '.join(self.schema.names)})"


@dataclass(frozen=True, slots=True)
class BatchLimit(_Unary):
    """At most `count` rows (None: all) after skipping `offset`."""

    count: int | None
    offset: int

    @property
    def details(self) -> str:
        return f"{'all' if self.count is None else self.count} offset {self.offset}"


@dataclass(frozen=True, slots=True)
class BatchUnion(BatchNode):
    """The rows of one branch after the other."""

    branches: tuple[BatchNode, ...]

    @property
    def inputs(self) -> tuple[BatchNode, ...]:
        return self.branches

    @property
    def details(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class BatchOverWindow(BatchNode):
    """The input's rows, group by group, and behind their columns the value of each of `calls`: in the order `keys` and,
    among equal rows, of the columns `ties`."""

    input: BatchNode
    groups: tuple[int, ...]
    keys: tuple[SortKey, ...]
    ties: tuple[int, ...]
    calls: tuple[WindowCall, ...]

    @property
    def inputs(self) -> tuple[BatchNode, ...]:
        return (self.input,)

    @property
    def details(self) -> str:
        inputs = self.input.schema.names
        names = self.schema.names[len(inputs) :]
        return f"{calls_text(self.calls, names, inputs)} {groups_text(self.groups, self.keys, inputs)}"


@dataclass(frozen=True, slots=True)
class BatchHashJoin(BatchNode):
    """The pairs of a left and a right row that are equal in their `keys` and for which `condition`, over the output, is
    true. `null_safe`: of each key, whether NULL equals NULL. The rows of the smaller input are kept in memory. The
    output is the first columns of each input, as many as `widths` says; the others are computed keys.

    `lookup`: the columns of the left input by which the right one, a filtered and projected scan, can be read instead,
    if there are few left rows: they are those of the key of its table, or the first of them; None: it cannot."""

    left: BatchNode
    right: BatchNode
    kind: JoinKind
    keys: tuple[tuple[int, int], ...]
    null_safe: tuple[bool, ...]
    condition: Expression | None
    widths: tuple[int, int]
    lookup: tuple[int, ...] | None = None

    @property
    def inputs(self) -> tuple[BatchNode, ...]:
        return self.left, self.right

    @property
    def details(self) -> str:
        names = self.left.schema.names, self.right.schema.names
        way = "" if self.lookup is None else ", or by key"
        return f"{self.kind} on {join_text(self.keys, self.null_safe, self.condition, names, self.widths)}{way}"


@dataclass(frozen=True, slots=True)
class BatchRecursive(BatchNode):
    """The rows of `base`, and again and again those of `step` over the last ones, which its working table `number` is.
    `is_distinct`: each row once. All rows are in memory."""

    base: BatchNode
    step: BatchNode
    number: int
    is_distinct: bool

    @property
    def inputs(self) -> tuple[BatchNode, ...]:
        return self.base, self.step

    @property
    def details(self) -> str:
        return f"{self.number} {'UNION' if self.is_distinct else 'UNION ALL'}"


@dataclass(frozen=True, slots=True)
class BatchWorkingTable(BatchNode):
    """The last rows of the recursion of this number."""

    number: int

    @property
    def details(self) -> str:
        return f"{self.number} ({', '.join(self.schema.names)})"


@dataclass(frozen=True, slots=True)
class BatchShare(_Unary):
    """The input of several readers. `is_kept`: its rows are computed once and kept until the query ends; otherwise each
    reader computes them, which holds no rows in memory."""

    number: int
    is_kept: bool

    @property
    def share_number(self) -> int:
        return self.number

    @property
    def details(self) -> str:
        return f"{self.number} {'kept' if self.is_kept else 'repeated'}"
