"""The fluent API of relations: lazy, immutable, each method a few lines over a logical plan.

The same `Relation` is a batch query (`to_arrow`) or the definition of a view; SQL builds the same plans. Nothing is
read before `to_arrow`, `get` and the like are called, or the relation is shown.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import pyarrow as pa

from relational.batch import plan_query
from relational.catalog.objects import TableCatalog
from relational.errors import BindError, shortened
from relational.expr.bind import ExprBinder, Scope, convert, literal
from relational.expr.eval import constant_value
from relational.expr.expression import NO_TIME, Call, Expression, InputRef, Literal, Parameter
from relational.expr.fluent import count
from relational.expr.unbound import Name, Named, Ordered, UnboundExpr, UnboundLiteral, as_unbound
from relational.plan.builder import (
    MAX_SETS,
    Arrangement,
    Selection,
    Star,
    arrange,
    keep,
    ordered,
    select,
)
from relational.plan.changes import assigned, column_of, retractable, stored_row, updatable, writable
from relational.plan.descent import with_shares_from
from relational.plan.logical import JoinKind, Limit, LogicalPlan, Project, Scan, Values
from relational.plan.logical.filter import where
from relational.plan.set_operations import SetOperation, compared, union
from relational.plan.using import join_by
from relational.result import FirstRows, Result, names_of
from relational.types.data_type import DataType
from relational.types.schema import Schema

Column = str | UnboundExpr | Named
SortKey = str | UnboundExpr | Ordered


class Runner(Protocol):
    """Executes queries and changes: a session."""

    def query(self, plan: LogicalPlan, values: Sequence[Literal] = ()) -> pa.Table:
        """The visible columns of the plan's rows at one committed epoch. `values`: of its parameters by number."""

    def preview(self, plan: LogicalPlan) -> pa.Table:
        """As `query`, for a look at some rows: the plan is not kept, and an error ends no transaction."""

    def insert(self, table: TableCatalog, query: LogicalPlan) -> int:
        """Inserts the rows of `query`, one column per stored column of the table; returns their number."""

    def update(
        self,
        table: TableCatalog,
        assignments: Sequence[tuple[int, Expression]],
        predicate: Expression | None,
    ) -> int:
        """Sets columns of the rows for which `predicate` is true (None: all); returns their number."""

    def delete(self, table: TableCatalog, predicate: Expression | None) -> int:
        """Deletes the rows for which `predicate` is true (None: all); returns their number."""


@dataclass(frozen=True, eq=False, repr=False)
class Relation(Result):
    """Rows described by `plan`, read through `runner`; `views` are the ids of the views inlined in it. Each call that
    needs rows runs the query: `len(relation)` counts them, and so does `list(relation)` first; `fetchall` does not.

        large = orders.filter(col("amount") > 15).select("region", doubled=col("amount") * 2)
        large.rows()                            # [{'region': 'EUROPE', 'doubled': 60}]
    """

    plan: LogicalPlan
    runner: Runner
    views: frozenset[int] = frozenset()

    @property
    def schema(self) -> Schema:
        """The visible columns."""
        return self.plan.schema.project(self.plan.visible)

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names."""
        return self.schema.names

    def over(self, plan: LogicalPlan) -> Relation:
        """A relation with another plan and the same runner."""
        return Relation(plan, self.runner, self.views)

    # ---- transformations -----------------------------------------------------------------------------------

    def filter(self, *conditions: UnboundExpr) -> Relation:
        """The rows for which all conditions are true."""
        plan = self.plan
        if conditions:
            together = _condition(conditions[0])
            for condition in conditions[1:]:
                together = together & _condition(condition)
            plan = keep(plan, together)
        return self.over(plan)

    def select(self, *columns: Column | Sequence[Column], **named: object) -> Relation:
        """Chosen columns: names, terms with `.alias`, or `name=term`. Several can be one list, here and below."""
        items = (*map(_item, _each(columns)), *_named(named))
        return self.over(select(self.plan, Selection(items)))

    def with_columns(self, **named: object) -> Relation:
        """All columns and additional ones."""
        return self.over(select(self.plan, Selection((Star(), *_named(named)))))

    def distinct(self) -> Relation:
        """Each row once."""
        return self.over(select(self.plan, Selection((Star(),), distinct=True)))

    def group_by(
        self, *columns: Column | Sequence[Column], sets: Sequence[Sequence[str]] | None = None
    ) -> GroupedRelation:
        """Groups of rows with equal values; `.agg` defines the aggregates of each. `sets`: grouping sets, each by names
        of the columns; columns that are not in the set of a row are NULL.

            orders.group_by("region").agg(n=f.count()).order_by("n").fetchall()         # [('ASIA', 1), ('EUROPE', 2)]
            orders.group_by("region", "id", sets=[("region", "id"), ("region",), ()]).agg(n=f.count())
        """
        groups = tuple(map(_item, _each(columns)))
        if sets is None:
            return GroupedRelation(self, groups)
        positions = {group.name: at for at, group in enumerate(groups)}
        for name in (name for each in sets for name in each):
            if name not in positions:
                raise BindError(f"a grouping set has {name!r}, which is none of {', '.join(positions)}")
        if not 1 <= len(sets) <= MAX_SETS:
            raise BindError(f"a GROUP BY has 1 to {MAX_SETS} grouping sets, not {len(sets)}")
        return GroupedRelation(self, groups, tuple(tuple(positions[name] for name in each) for each in sets))

    def agg(self, *summaries: Named, **named: UnboundExpr) -> Relation:
        """Aggregates of all rows: one row."""
        return self.group_by().agg(*summaries, **named)

    def order_by(self, *keys: SortKey | Sequence[SortKey]) -> Relation:
        """The rows in an order: names, terms, `.asc()`, `.desc()`."""
        return self.over(arrange(self.plan, Arrangement(tuple(map(_sort_key, _each(keys))))))

    def limit(self, count: int | None, offset: int = 0) -> Relation:
        """At most `count` rows after `offset`."""
        count, offset = None if count is None else _row_count(count), _row_count(offset)
        if (count is not None and count < 0) or offset < 0:
            raise BindError(f"limit({count}, offset={offset}): neither can be negative")
        return self.over(Limit(self.plan, count, offset))

    def join(
        self,
        other: Relation,
        on: str | Sequence[str] | Mapping[str, str] = (),
        how: str = "inner",
        *,
        suffix: str = "_right",
    ) -> Relation:
        """The rows of both relations with equal columns `on`: names that both have, or left names with right ones;
        without any all pairs. `how`: "inner"; "left", "right" or "full", with the rows of that side, or of both, that
        have no partner; "semi" or "anti", the rows of this relation that have a partner, or none. Columns with one name
        come once; other columns of `other` whose name this relation has get the `suffix`.

            orders.join(customers, on={"customer": "id"}, how="left")
        """
        kinds = [kind.value for kind in JoinKind]
        if how not in kinds:
            raise BindError(f"{how!r} is no join: {', '.join(kinds)}")
        other, pairs = _relation(other), _joined_columns(on)
        right = with_shares_from(other.plan, max((-1, *self.plan.properties.shares)) + 1)
        plan = join_by(self.plan, right, pairs, JoinKind(how), suffix)
        return Relation(plan, self.runner, self.views | other.views)

    def union_all(self, *others: Relation) -> Relation:
        """The rows of all relations, duplicates included: columns are matched by position and have the names of this
        one and their common types."""
        return self._union(others, distinct=False)

    def union(self, *others: Relation) -> Relation:
        """As `union_all`, each row once."""
        return self._union(others, distinct=True)

    def intersect(self, other: Relation, *, distinct: bool = True) -> Relation:
        """The rows that `other` has too, each once; without `distinct` as often as both have it. Columns are matched as
        by `union`."""
        return self._compared(SetOperation.INTERSECT, other, distinct)

    def difference(self, other: Relation, *, distinct: bool = True) -> Relation:
        """The rows that `other` does not have, each once; without `distinct` as often as this relation has it more:
        SQL's EXCEPT. Columns are matched as by `union`."""
        return self._compared(SetOperation.EXCEPT, other, distinct)

    def _compared(self, operation: SetOperation, other: Relation, distinct: bool) -> Relation:
        other = _relation(other)
        right = with_shares_from(other.plan, max((-1, *self.plan.properties.shares)) + 1)
        plan = compared(operation, self.plan, right, distinct=distinct)
        return Relation(plan, self.runner, self.views | other.views)

    def _union(self, others: Sequence[Relation], *, distinct: bool) -> Relation:
        plans: list[LogicalPlan] = []
        shares = 0
        others = [_relation(other) for other in others]
        for each in (self, *others):
            plans.append(with_shares_from(each.plan, shares))
            shares = max((shares - 1, *plans[-1].properties.shares)) + 1
        views = self.views.union(*(each.views for each in others))
        return Relation(union(plans, distinct=distinct), self.runner, views)

    # ---- results -------------------------------------------------------------------------------------------

    def explain(self) -> str:
        """The plan by which the rows are read, as text."""
        return plan_query(self.plan).explain()

    def to_arrow(self) -> pa.Table:
        """The rows at one committed epoch."""
        return self.runner.query(self.plan)

    def head(self, rows: int = 5) -> Relation:
        """The first rows; which ones these are depends on `order_by`."""
        return self.limit(rows)

    def first_rows(self, rows: int, columns: int) -> FirstRows:
        """At most `rows` rows and `columns` columns, at one committed epoch; leaves a transaction as it is."""
        shown = self.plan.visible
        plan: LogicalPlan = Limit(self.plan, rows + 1)
        if columns < len(shown):
            fields = [plan.schema.fields[index] for index in shown[:columns]]
            refs = tuple(InputRef(index, field.data_type) for index, field in zip(shown, fields, strict=False))
            plan = Project(plan, refs, tuple(field.name for field in fields))
        found = self.runner.preview(plan)
        return FirstRows(found.slice(0, rows), found.num_rows > rows, len(shown))

    def __getitem__(self, column: str) -> pa.ChunkedArray:
        """The values of a column at one committed epoch."""
        return self.select(column).to_arrow().column(0)

    @property
    def _title(self) -> str:
        return f"Relation{self.schema}"

    def __len__(self) -> int:
        """The number of rows at one committed epoch, which a query counts."""
        return self.agg(rows=count()).fetchall()[0][0]

    def __bool__(self) -> bool:
        """Whether there is a row, for which at most one is read."""
        return self.limit(1).to_arrow().num_rows > 0


@dataclass(frozen=True, eq=False, repr=False)
class GroupedRelation:
    """A relation and the columns it is grouped by. `sets`: the grouping sets, as positions in `groups`."""

    relation: Relation
    groups: tuple[Named, ...]
    sets: tuple[tuple[int, ...], ...] | None = None

    def __repr__(self) -> str:
        return f"GroupedRelation(by {', '.join(group.name for group in self.groups) or 'nothing'})"

    def agg(self, *summaries: Named, **named: UnboundExpr) -> Relation:
        """One row per group: its columns, then aggregates with `.alias`, and `name=aggregate`, in order."""
        for given in (*summaries, *named.values()):
            if not isinstance(given, UnboundExpr | Named):
                raise BindError(f"{given!r} is no aggregate: write name=functions.sum(column), functions.count(), …")
        items = (*self.groups, *map(_item, summaries), *_named(named))
        selection = Selection(items, groups=tuple(group.term for group in self.groups), sets=self.sets)
        return self.relation.over(select(self.relation.plan, selection))


@dataclass(frozen=True, eq=False, repr=False)
class TableRelation(Relation):
    """A stored table or view: a relation with a key; a table also accepts changes."""

    @classmethod
    def of(cls, table: TableCatalog, runner: Runner) -> Self:
        """All rows of a table."""
        return cls(Scan(table), runner)

    @property
    def table(self) -> TableCatalog:
        """Its entry in the catalog."""
        assert isinstance(self.plan, Scan)
        return self.plan.table

    @property
    def name(self) -> str:
        """Of the table, view or index."""
        return self.table.name

    @property
    def _title(self) -> str:
        return f"{type(self).__name__} {self.name}{self.schema}"

    def get(self, /, *key: object, **named: object) -> dict[str, Any] | None:
        """The row under a primary key, or None. The key: the values of its columns in their order, or each by its name.
        BindError for a value too many or missing, and for a column that is not of the key.

            orders.get(2) == orders.get(id=2)       # True
        """
        pk = self.table.pk_indices
        given = self._key_of(named) if named and not key else key
        if len(given) != len(pk) or (named and key):
            names = ", ".join(self.table.columns[index].name for index in pk)
            raise BindError(f"{self.name!r} has the key ({names}), {len(key) + len(named)} values were given")
        values = [NO_TIME]
        for index, value in zip(pk, given, strict=True):
            data_type = self.table.columns[index].data_type
            constant = convert(literal(UnboundLiteral(value)), data_type)
            values.append(Literal(constant_value(constant), data_type))
        found = self.runner.query(self._by_key, values).to_pylist()
        return found[0] if found else None

    def _key_of(self, named: Mapping[str, object]) -> list[object]:
        """The values of the columns of the primary key, by their names. BindError."""
        names = [self.table.columns[index].name for index in self.table.pk_indices]
        wrong = next((name for name in named if name not in names), None)
        if wrong is not None:
            column_of(self.table, wrong)
            raise BindError(f"{wrong!r} is no column of the key ({', '.join(names)}) of {self.name!r}: "
                            f"filter(col({wrong!r}) == …) has the rows with a value of it")
        missing = [name for name in names if name not in named]
        if missing:
            raise BindError(f"{self.name!r} has the key ({', '.join(names)}), {missing[0]!r} is missing")
        return [named[name] for name in names]

    @cached_property
    def _by_key(self) -> LogicalPlan:
        """The row whose primary key are the parameters 1, 2, …"""
        keys = [InputRef(index, self.table.columns[index].data_type) for index in self.table.pk_indices]
        return where(self.plan, tuple(
            Call("is_not_distinct", (key, Parameter(number, key.data_type)), DataType.BOOLEAN)
            for number, key in enumerate(keys, start=1)))

    def insert(self, rows: Iterable[Sequence[object] | Mapping[str, object]] | pa.Table) -> int:
        """Inserts rows: tuples of all visible columns, dicts or tuples with names of some, or an Arrow table by column
        names; their number."""
        table = writable(self.table)
        given = rows.to_pylist() if isinstance(rows, pa.Table | pa.RecordBatch) else rows
        cells = tuple(stored_row(table, self._row(row)) for row in given)
        return self.runner.insert(table, Values(table.schema, cells)) if cells else 0

    def update(self, set: Mapping[str, object], where: UnboundExpr | None = None, **key: object) -> int:
        """Sets columns of the rows selected by `where` and `column=value`; returns their number."""
        table = retractable(self.table, "UPDATE")
        binder = self._binder()
        assignments = []
        for name, value in set.items():
            column = updatable(table, column_of(table, name))
            assignments.append((column, assigned(binder.bind(as_unbound(value)), table, column)))
        return self.runner.update(table, tuple(assignments), self._predicate(where, key))

    def delete(self, where: UnboundExpr | None = None, **key: object) -> int:
        """Deletes the rows selected by `where` and `column=value`; returns their number."""
        table = retractable(self.table, "DELETE")
        return self.runner.delete(table, self._predicate(where, key))

    def _binder(self) -> ExprBinder:
        return ExprBinder(Scope(self.plan.schema, self.plan.hidden, self.name))

    def _predicate(self, where: UnboundExpr | None, key: Mapping[str, object]) -> Expression | None:
        """`where` and equality with each of `key`; None selects every row."""
        condition = None if where is None else _condition(where)
        for name, value in key.items():
            equal = Name(name) == value
            condition = equal if condition is None else condition & equal
        return None if condition is None else self._binder().condition(condition, "WHERE")

    def _row(self, row: Sequence[object] | Mapping[str, object]) -> dict[int, Expression]:
        """The given values by column index, converted."""
        table, names = self.table, names_of(row)
        if names is not None:
            row = dict(zip(names, row, strict=True))
        if isinstance(row, Mapping):
            pairs = [(column_of(table, name), value) for name, value in row.items()]
        else:
            shown = table.visible_indices
            if len(row) != len(shown):
                raise BindError(f"{len(row)} values for the {len(shown)} columns of {table.name!r}: {row!r}")
            pairs = list(zip(shown, row, strict=True))
        binder = ExprBinder(Scope(Schema()))
        return {column: assigned(binder.bind(as_unbound(value)), table, column) for column, value in pairs}


def _condition(given: object) -> UnboundExpr:
    """BindError for what is no expression, such as a text of SQL."""
    if isinstance(given, UnboundExpr):
        return given
    raise BindError(f"{given!r} is no condition: write an expression, such as col('amount') > 1, or all of it in SQL")


def _each(given: Iterable[Any]) -> Iterator[Any]:
    """What is given one by one, or in lists."""
    for each in given:
        if isinstance(each, list | tuple):
            yield from each
        else:
            yield each


def _sort_key(key: SortKey) -> Ordered:
    if isinstance(key, str | UnboundExpr | Ordered):
        return ordered(key)
    raise BindError(f"{shortened(repr(key))} is no order: write a name, a term, or either with .asc() or .desc()")


def _row_count(count: int) -> int:
    try:
        return operator.index(count)
    except TypeError:
        raise BindError(f"{shortened(repr(count))} is no number of rows") from None


def _relation(other: Relation) -> Relation:
    if isinstance(other, Relation):
        return other
    raise BindError(f"{shortened(repr(other))} is no relation: db.sql(…), db.table(name) and their methods give one")


def _joined_columns(on: str | Sequence[str] | Mapping[str, str]) -> list[tuple[str, str]]:
    """Pairs of the names of a left and a right column."""
    names = (on,) if isinstance(on, str) else on
    if isinstance(names, Mapping):
        pairs = list(names.items())
    else:
        pairs = [(name, name) for name in names] if isinstance(names, Iterable) else [(names, names)]
    for name in (name for pair in pairs for name in pair):
        if not isinstance(name, str):
            raise BindError(f"{shortened(repr(name))} is no column to join by: on='id', on=['id', 'day'] or "
                            "on={'left': 'right'} names columns that are equal; SQL's JOIN … ON takes any condition")
    return pairs


def _item(column: Column) -> Named:
    """An output column: a string is a column name, an expression without an alias must be a name."""
    if isinstance(column, str):
        return Named(Name(column), column)
    if isinstance(column, Named):
        return column
    if isinstance(column, Name):
        return Named(column, column.name)
    if not isinstance(column, UnboundExpr):
        raise BindError(f"{shortened(repr(column))} is no column: write its name, or an expression with .alias(name)")
    raise BindError("an expression needs a name here: use .alias(name) or name=expression")


def _named(columns: Mapping[str, object]) -> tuple[Named, ...]:
    return tuple(Named(as_unbound(value), name) for name, value in columns.items())
