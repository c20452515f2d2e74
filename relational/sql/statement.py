"""What a SQL text asks for, bound to the catalog: everything a session needs, nothing of the text's form."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from relational.catalog.objects import TableCatalog, TableKind
from relational.expr.expression import Expression
from relational.plan.logical import LogicalPlan


@dataclass(frozen=True, slots=True)
class CreateTable:
    """`table` is a draft of id 0; a table with a `connector` is fed by it and takes no statements."""

    table: TableCatalog
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateMaterializedView:
    """`view` is a draft of id 0, `plan` its optimized query, column for column."""

    view: TableCatalog
    plan: LogicalPlan
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class Insert:
    """The rows of `query`: one column for each stored column of `table`, in order; a generated row id
    is NULL.
    """

    table: TableCatalog
    query: LogicalPlan


@dataclass(frozen=True, slots=True)
class Update:
    """Column number → new value, over all stored columns of the table; `predicate` None is every row."""

    table: TableCatalog
    assignments: tuple[tuple[int, Expression], ...]
    predicate: Expression | None


@dataclass(frozen=True, slots=True)
class Delete:
    """The rows for which `predicate` is true; None is every row."""

    table: TableCatalog
    predicate: Expression | None


@dataclass(frozen=True, slots=True)
class Flush:
    """Wait until everything before is committed."""


@dataclass(frozen=True, slots=True)
class Select:
    """A query at one epoch; `plan` is not optimized yet."""

    plan: LogicalPlan


class ShowKind(StrEnum):
    """What SHOW lists."""

    TABLES = "tables"
    MATERIALIZED_VIEWS = "materialized views"
    SOURCES = "sources"
    INTERNAL_TABLES = "internal tables"


@dataclass(frozen=True, slots=True)
class Show:
    """The names of one kind of object."""

    kind: ShowKind


@dataclass(frozen=True, slots=True)
class Describe:
    """The columns and keys of a table or view."""

    table: TableCatalog


@dataclass(frozen=True, slots=True)
class Explain:
    """How a statement would run."""

    statement: Statement


@dataclass(frozen=True, slots=True)
class Drop:
    """`table` None: there is none of that name and IF EXISTS was said."""

    kind: TableKind
    name: str
    table: TableCatalog | None
    cascade: bool = False


Statement = (
    CreateTable
    | CreateMaterializedView
    | Insert
    | Update
    | Delete
    | Flush
    | Select
    | Show
    | Describe
    | Explain
    | Drop
)
