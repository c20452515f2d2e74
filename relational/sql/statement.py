"""Statements of an SQL text, bound to the catalog: all input of a session, independent of the syntax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from relational.catalog.functions import FunctionCatalog
from relational.catalog.names import DEFAULT_DATABASE, ObjectName, SchemaCatalog
from relational.catalog.objects import TableCatalog, TableKind
from relational.expr.expression import Expression
from relational.plan.logical import LogicalPlan
from relational.types.data_type import DataType
from relational.types.schema import Field, Schema


@dataclass(frozen=True, slots=True)
class CreateTable:
    """`table` is a draft of id 0; a table with a `connector` is written by it and rejects statements. `query`: its
    first rows, as Insert has them; None: none.
    """

    table: TableCatalog
    if_not_exists: bool = False
    query: LogicalPlan | None = None


@dataclass(frozen=True, slots=True)
class CreateSource:
    """`source` is a draft of id 0: rows of a connector that every job that names the source reads for itself."""

    source: TableCatalog
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateSink:
    """`sink` is a draft of id 0, `plan` its optimized query. `parallelism`: the actors of each of its fragments but the
    last; None: as the session says.
    """

    sink: TableCatalog
    plan: LogicalPlan
    if_not_exists: bool = False
    parallelism: int | None = None


class Backfill(StrEnum):
    """The view's own actor, or a Spark job."""

    STREAM = "stream"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class CreateMaterializedView:
    """`view` is a draft of id 0, `plan` its optimized query, column for column. `backfill`: the component that computes
    the initial rows. `parallelism`: the actors of each of its fragments; None: as the session says.
    """

    view: TableCatalog
    plan: LogicalPlan
    if_not_exists: bool = False
    backfill: Backfill = Backfill.STREAM
    parallelism: int | None = None


@dataclass(frozen=True, slots=True)
class CreateView:
    """`view` is a draft of id 0, which contains its bound query."""

    view: TableCatalog
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """`index` is a draft of id 0, which contains the query that its job maintains."""

    index: TableCatalog
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateFunction:
    """`function` is a draft of id 0, whose source was not run yet. `replaces`: it may be the next version of one of its
    name."""

    function: FunctionCatalog
    replaces: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateSchema:
    """An empty schema of a database."""

    name: str
    database: str = DEFAULT_DATABASE
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """A database with an empty schema `public`."""

    name: str
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column of `table`, with `default` in existing rows; the constraints are as in ColumnCatalog."""

    table: TableCatalog
    name: str
    data_type: DataType
    default: Any
    not_null: bool = False
    max_length: int | None = None


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Drops a column of `table`; with `cascade` its readers too."""

    table: TableCatalog
    name: str
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """The column `name` of `table` is called `new`."""

    table: TableCatalog
    name: str
    new: str


@dataclass(frozen=True, slots=True)
class Rename:
    """A table, view or index is called `name`, in its schema; `definition` is its text with that name."""

    table: TableCatalog
    name: str
    definition: str


@dataclass(frozen=True, slots=True)
class Resume:
    """A job that was set aside after failures resumes; its source skips `skip` rows at the offset where it failed
    (0: none).
    """

    table: TableCatalog
    skip: int = 0


@dataclass(frozen=True, slots=True)
class SetParallelism:
    """The fragments of a job get other numbers of actors; None: as the session says."""

    table: TableCatalog
    parallelism: int | None


@dataclass(frozen=True, slots=True)
class SetTtl:
    """The rows of `table` expire after `ttl_ms` from now on."""

    table: TableCatalog
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Comment:
    """The comment of an object, or of its column of this name; "": none."""

    table: TableCatalog
    column: str | None
    text: str


@dataclass(frozen=True, slots=True)
class SetOption:
    """A setting of the session for later statements, see `relational.sql.settings`; `name` None: all, `value` None:
    the default.
    """

    name: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """The value of a setting of the session; None: all settings."""

    name: str | None


@dataclass(frozen=True, slots=True)
class Nothing:
    """A no-op because of IF EXISTS or IF NOT EXISTS, for the `reason`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Returning:
    """What RETURNING gives for each row that was inserted, updated (as it is now) or deleted: expressions over all
    stored columns of the table, and the names of the columns."""

    expressions: tuple[Expression, ...]
    names: tuple[str, ...]

    @property
    def schema(self) -> Schema:
        """Of the rows."""
        return Schema(map(Field, self.names, [each.data_type for each in self.expressions]))


@dataclass(frozen=True, slots=True)
class Insert:
    """The rows of `query`: one column for each stored column of `table`, in order; a generated row id is NULL."""

    table: TableCatalog
    query: LogicalPlan
    returning: Returning | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """Column index → new value, over all stored columns of the table; `predicate` None is every row. `keys`: the
    primary keys of the rows for which a condition with subqueries is true, None: there is none."""

    table: TableCatalog
    assignments: tuple[tuple[int, Expression], ...]
    predicate: Expression | None
    keys: LogicalPlan | None = None
    returning: Returning | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """The rows for which `predicate` is true; None is every row. `keys` as in Update."""

    table: TableCatalog
    predicate: Expression | None
    keys: LogicalPlan | None = None
    returning: Returning | None = None


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Files of COPY. `options`: of the format, by name, as texts."""

    path: str
    form: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CopyFrom:
    """The rows of `file`, whose columns are `columns` of the table, in this order."""

    table: TableCatalog
    columns: tuple[int, ...]
    file: FileOptions


@dataclass(frozen=True, slots=True)
class CopyTo:
    """The visible columns of `plan` become `file`."""

    plan: LogicalPlan
    file: FileOptions


@dataclass(frozen=True, slots=True)
class Flush:
    """Waits until all earlier changes are committed."""


@dataclass(frozen=True, slots=True)
class Select:
    """A query at one epoch; `plan` is not optimized yet, `views` are the ids of the views that it refers to."""

    plan: LogicalPlan
    views: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins; one that `is_read_only` takes no changes."""

    is_read_only: bool


@dataclass(frozen=True, slots=True)
class End:
    """The transaction ends; its changes take effect, or are forgotten if `is_rollback`."""

    is_rollback: bool = False


@dataclass(frozen=True, slots=True)
class DeclareCursor:
    """A cursor over the rows of a query."""

    name: str
    query: Select


@dataclass(frozen=True, slots=True)
class Fetch:
    """The next rows of a cursor; `count` None: all."""

    name: str
    count: int | None


@dataclass(frozen=True, slots=True)
class Subscribe:
    """The changes of a table: after the epoch `since`; None: the rows that are there, then what changes."""

    table: TableCatalog
    since: int | None


@dataclass(frozen=True, slots=True)
class CreateSubscription:
    """A position in the changes of a table, kept in the store for `retention_ms` after its last use; None: a day."""

    name: str
    table: TableCatalog
    retention_ms: int | None
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropSubscription:
    """Forgets a subscription."""

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class ShowSubscriptions:
    """The subscriptions, and the cursors of change feeds."""


@dataclass(frozen=True, slots=True)
class CloseCursor:
    """`name` None: all cursors."""

    name: str | None


@dataclass(frozen=True, slots=True)
class Prepare:
    """The statement `text` under a name; `types`: those that the values of its first parameters are converted to."""

    name: str
    text: str
    types: tuple[DataType, ...]


@dataclass(frozen=True, slots=True)
class Execute:
    """A prepared statement with the values of its parameters."""

    name: str
    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Deallocate:
    """Forgets a prepared statement; `name` None: all of them."""

    name: str | None


class ShowKind(StrEnum):
    """What SHOW lists."""

    TABLES = "tables"
    MATERIALIZED_VIEWS = "materialized views"
    SOURCES = "sources"
    INTERNAL_TABLES = "internal tables"
    VIEWS = "views"
    INDEXES = "indexes"
    SINKS = "sinks"
    FUNCTIONS = "functions"
    SCHEMAS = "schemas"
    DATABASES = "databases"


@dataclass(frozen=True, slots=True)
class Show:
    """The objects of one kind, of `schema` if one was named."""

    kind: ShowKind
    schema: SchemaCatalog | None = None


@dataclass(frozen=True, slots=True)
class ShowJobs:
    """Every job, its state, and the reason if it failed."""


@dataclass(frozen=True, slots=True)
class ShowEpochs:
    """The last epochs that ran as tasks, and their stages."""


@dataclass(frozen=True, slots=True)
class ShowErrors:
    """The number of rows without a value, by job and reason."""


@dataclass(frozen=True, slots=True)
class ShowMemory:
    """What the operators of all jobs, or of that of `table`, keep in memory."""

    table: TableCatalog | None = None


@dataclass(frozen=True, slots=True)
class ShowCreate:
    """The statement that creates a table or view in its current form."""

    table: TableCatalog


@dataclass(frozen=True, slots=True)
class ShowCreateFunction:
    """The statement that creates a function in its current version."""

    function: FunctionCatalog


@dataclass(frozen=True, slots=True)
class Describe:
    """The columns and keys of a table or view."""

    table: TableCatalog


@dataclass(frozen=True, slots=True)
class Explain:
    """The execution plan of a statement."""

    statement: Statement


@dataclass(frozen=True, slots=True)
class ExplainAnalyze:
    """Measures the running job of `table` for so many seconds."""

    table: TableCatalog
    seconds: float


@dataclass(frozen=True, slots=True)
class Drop:
    """`table` None: it does not exist, with IF EXISTS."""

    kind: TableKind
    name: ObjectName
    table: TableCatalog | None
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class DropFunction:
    """Drops a function; with `cascade` what calls it too."""

    function: FunctionCatalog
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class DropSchema:
    """Drops a schema; with `cascade`, its objects and all their readers."""

    name: str
    database: str = DEFAULT_DATABASE
    cascade: bool = False
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """Drops a database whose schemas are empty."""

    name: str
    if_exists: bool = False


Statement = (
    CreateTable
    | CopyFrom
    | CopyTo
    | CreateSource
    | CreateSink
    | CreateMaterializedView
    | CreateView
    | CreateIndex
    | CreateFunction
    | CreateSchema
    | CreateDatabase
    | AddColumn
    | DropColumn
    | RenameColumn
    | Rename
    | Resume
    | SetParallelism
    | SetTtl
    | Comment
    | SetOption
    | ShowOptions
    | Nothing
    | Insert
    | Update
    | Delete
    | Flush
    | Select
    | Begin
    | End
    | DeclareCursor
    | Fetch
    | CloseCursor
    | Subscribe
    | CreateSubscription
    | DropSubscription
    | ShowSubscriptions
    | Prepare
    | Execute
    | Deallocate
    | Show
    | ShowJobs
    | ShowEpochs
    | ShowErrors
    | ShowMemory
    | ShowCreate
    | ShowCreateFunction
    | Describe
    | Explain
    | ExplainAnalyze
    | Drop
    | DropFunction
    | DropSchema
    | DropDatabase
)
