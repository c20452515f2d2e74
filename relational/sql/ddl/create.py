"""CREATE statements, by the kind of object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from sqlglot.tokens import TokenType

from relational.catalog.names import ObjectName
from relational.catalog.objects import TableCatalog, TableKind
from relational.errors import BindError
from relational.expr.bind import error_span
from relational.expr.expression import InputRef
from relational.expr.unbound import TextSpan
from relational.plan.changes import column_of, writable
from relational.plan.logical import EmitOnWindowClose, LogicalPlan, Project
from relational.plan.view import index_of, plain_view_of, sink_into, sink_of, view_of
from relational.sql import elsewhere
from relational.sql.context import BindContext
from relational.sql.ddl.create_function import bind_create_function
from relational.sql.ddl.create_table import read_table, source_of, table_as, table_of
from relational.sql.ddl.options import (
    BACKFILL,
    CONNECTOR,
    PARALLELISM,
    VIEW_OPTIONS,
    Options,
    choice_of,
    parallelism_of,
    read_options,
    take_vnode_count,
)
from relational.sql.dml import read_columns
from relational.sql.expressions import Translator
from relational.sql.lexer import Piece, TokenReader
from relational.sql.names import read_name, read_schema_name, resolved, schema_of
from relational.sql.query import QueryBinder, rows_of
from relational.sql.settings import DELTA_JOIN, agg_phases
from relational.sql.statement import (
    Backfill,
    CreateDatabase,
    CreateIndex,
    CreateMaterializedView,
    CreateSchema,
    CreateSink,
    CreateSource,
    CreateTable,
    CreateView,
    Statement,
)
from relational.sql.subscriptions import create_subscription
from relational.sql.system_catalog import SYSTEM_SCHEMAS
from relational.sql.tree import parse
from relational.types.ordering import OrderType, SortKey

Create: TypeAlias = Callable[[TokenReader, BindContext, bool, str], Statement]
"""Binds what follows IF NOT EXISTS, if it is there, of the statement with this text."""


def bind_create(piece: Piece, context: BindContext) -> Statement:
    """CREATE TABLE, SOURCE, MATERIALIZED VIEW, VIEW, SINK, INDEX, SCHEMA or DATABASE [IF NOT EXISTS] ..., and user
    functions."""
    reader = TokenReader(piece)
    reader.expect("CREATE")
    if any(reader.begins(*words) for words in _OF_FUNCTIONS):
        return bind_create_function(piece, context)
    if reader.accept("SUBSCRIPTION"):
        return create_subscription(reader, context, reader.accept("IF", "NOT", "EXISTS"))
    for words, create in _CREATABLE.items():
        if reader.accept(*words):
            if reader.accept("IF", "NOT", "EXISTS"):
                return _unless_known(create, reader, context, piece.source.strip())
            return create(reader, context, False, piece.source.strip())
    if reader.begins("OR", "REPLACE"):
        raise reader.fail(elsewhere.OR_REPLACE)
    for word, reason in elsewhere.CREATE.items():
        if reader.begins(word):
            raise reader.fail(reason)
    raise reader.fail(f"{listed((*_CREATABLE, ('SUBSCRIPTION',), ('FUNCTION',), ('AGGREGATE',)))} is expected here")


def _unless_known(create: Create, reader: TokenReader, context: BindContext, definition: str) -> Statement:
    """CREATE … IF NOT EXISTS. Where an object has the name already, what is written need not be valid."""
    rest = TokenReader(reader.rest())
    try:
        return create(reader, context, True, definition)
    except BindError:
        known = None if create in (_schema, _database) else context.catalog.find(read_name(rest, "an object")[0])
        if known is None:
            raise
        return CreateView(known, if_not_exists=True)


def listed(choices: Iterable[tuple[str, ...]]) -> str:
    """`A, B or C`."""
    *words, last = (" ".join(each) for each in choices)
    return f"{', '.join(words)} or {last}"


def _table(reader: TokenReader, context: BindContext, if_not_exists: bool, definition: str) -> CreateTable:
    name, span = read_name(reader, "the table")
    syntax = read_table(reader, name.name, has_query=True)
    if syntax.query is None:
        return CreateTable(_in_schema(table_of(syntax, definition), context, name, span), if_not_exists)
    tree = parse(syntax.query)
    translate = Translator(tree, context.now, functions=context.functions)
    query = QueryBinder(context.catalog, translate, context.variables).query(tree.node)
    table, rows = table_as(syntax, query, span)
    return CreateTable(_in_schema(table, context, name, span), if_not_exists, rows)


def _source(reader: TokenReader, context: BindContext, if_not_exists: bool, definition: str) -> CreateSource:
    name, span = read_name(reader, "the source")
    source = source_of(read_table(reader, name.name), definition, span)
    return CreateSource(_in_schema(source, context, name, span), if_not_exists)


def _sink(reader: TokenReader, context: BindContext, if_not_exists: bool, definition: str) -> CreateSink:
    """name {FROM table or view | AS query} WITH (connector = …); the options may also precede FROM or AS. Or name INTO
    table [(column, …)] {FROM table or view | AS query}.
    """
    name, span = read_name(reader, "the sink")
    if reader.accept("INTO"):
        return _sink_into(reader, context, if_not_exists, definition, name, span)
    options = read_options(reader) if reader.accept("WITH") else Options()
    query, views = _sunk(reader, context)
    if not options and reader.accept("WITH"):
        options = read_options(reader)
    if CONNECTOR not in options:
        raise BindError(f"a sink is created WITH ({CONNECTOR} = …)", **error_span(span))
    parallelism = options.take(PARALLELISM, parallelism_of, None)
    reader.finish()
    try:
        sink, plan = sink_of(name.name, query, options.take_rest(), definition, views, agg_phases(context.is_set))
    except BindError as error:
        raise BindError(error.message, **error_span(span)) from error
    return CreateSink(_in_schema(sink, context, name, span), plan, if_not_exists, parallelism)


def _sink_into(
    reader: TokenReader,
    context: BindContext,
    if_not_exists: bool,
    definition: str,
    name: ObjectName,
    span: TextSpan,
) -> CreateSink:
    """The clauses after INTO."""
    table_name, table_span = read_name(reader, "a table")
    table = writable(resolved(context.catalog, table_name, table_span), table_span)
    columns = None
    if reader.begins("("):
        columns = read_columns(reader, table)
    query, views = _sunk(reader, context)
    reader.finish()
    try:
        sink, plan = sink_into(
            name.name, query, table, columns, context.catalog.snapshot, definition, views, agg_phases(context.is_set))
    except BindError as error:
        raise BindError(error.message, **error_span(table_span)) from error
    return CreateSink(_in_schema(sink, context, name, span), plan, if_not_exists)


def _sunk(reader: TokenReader, context: BindContext) -> tuple[LogicalPlan, frozenset[int]]:
    """FROM table or view, or AS query: the query whose changes a sink delivers, and the views that it refers to."""
    if reader.accept("FROM"):
        name, span = read_name(reader, "a table or view")
        table = resolved(context.catalog, name, span)
        views = frozenset({table.id}) if table.kind is TableKind.VIEW else frozenset()
        return rows_of(table, context.catalog), views
    reader.expect("AS")
    return _fresh_query(reader, context, _OPTIONS)


_OF_FUNCTIONS = (("OR", "REPLACE", "FUNCTION"), ("OR", "REPLACE", "AGGREGATE"), ("FUNCTION",), ("AGGREGATE",))
_OPTIONS, _EMIT = ("WITH", "("), ("EMIT", "ON", "WINDOW", "CLOSE")
"""What no query contains outside of parentheses."""


def _fresh_query(
    reader: TokenReader, context: BindContext, *ends: tuple[str, ...]
) -> tuple[LogicalPlan, frozenset[int]]:
    """query [EMIT ON WINDOW CLOSE], up to one of `ends`: the plan of a query that is kept fresh, of which now() can be
    a part, and the views that it refers to."""
    tree = parse(_before(reader, _EMIT, *ends))
    translate = Translator(tree, is_kept_fresh=True, functions=context.functions)
    binder = QueryBinder(context.catalog, translate, context.variables)
    query, span = binder.query(tree.node), reader.span
    if not reader.accept(*_EMIT):
        return query, binder.views
    marked = query.watermarks & frozenset(query.visible)
    if not marked:
        reason = "a column of the result with a watermark: of a group of windows over a column with WATERMARK FOR, say"
        raise BindError(f"EMIT ON WINDOW CLOSE needs {reason}", **error_span(span))
    return EmitOnWindowClose(query, min(marked)), binder.views


def _before(reader: TokenReader, *ends: tuple[str, ...]) -> Piece:
    """The text up to one of `ends` outside of parentheses, or all of it. Reads it."""
    start = end = reader.span[0]
    depth = 0
    while (token := reader.peek()) is not None:
        if depth == 0 and any(reader.begins(*words) for words in ends):
            break
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        end = reader.span[1]
        reader.next()
    return reader.piece_between(start, end)


def _materialized_view(
    reader: TokenReader, context: BindContext, if_not_exists: bool, definition: str
) -> CreateMaterializedView:
    name, span = read_name(reader, "the view")
    columns = _column_names(reader)
    options = read_options(reader) if reader.accept("WITH") else Options()
    backfill = options.take(BACKFILL, partial(choice_of, Backfill), Backfill.STREAM)
    vnode_count = take_vnode_count(options)
    parallelism = options.take(PARALLELISM, parallelism_of, None)
    options.finish("a materialized view", VIEW_OPTIONS)
    reader.expect("AS")
    query, views = _fresh_query(reader, context)
    reader.finish()
    query = _named(query, columns)
    try:
        indexes = context.catalog.snapshot.indexes_of if context.is_set(DELTA_JOIN) else None
        view, plan = view_of(name.name, query, definition, views, vnode_count, indexes, agg_phases(context.is_set))
    except BindError as error:
        raise BindError(error.message, **error_span(span)) from error
    return CreateMaterializedView(_in_schema(view, context, name, span), plan, if_not_exists, backfill, parallelism)


def _view(reader: TokenReader, context: BindContext, if_not_exists: bool, definition: str) -> CreateView:
    name, span = read_name(reader, "the view")
    columns = _column_names(reader)
    query, views = _query(reader, context)
    query = _named(query, columns)
    try:
        view = plain_view_of(name.name, query, definition, views)
    except BindError as error:
        raise BindError(error.message, **error_span(span)) from error
    return CreateView(_in_schema(view, context, name, span), if_not_exists)


def _column_names(reader: TokenReader) -> list[tuple[str, TextSpan]]:
    """[(column, …)] with their spans."""
    names: list[tuple[str, TextSpan]] = []
    if not reader.accept("("):
        return names
    while not names or reader.accept(","):
        span = reader.span
        names.append((reader.name("a column"), span))
    reader.expect(")")
    return names


def _query(reader: TokenReader, context: BindContext) -> tuple[LogicalPlan, frozenset[int]]:
    """AS query: its plan, which outlives the statement, so now() is rejected; and the views that it refers to."""
    reader.expect("AS")
    tree = parse(reader.rest())
    binder = QueryBinder(context.catalog, Translator(tree, functions=context.functions), context.variables)
    return binder.query(tree.node), binder.views


def _named(query: LogicalPlan, columns: Sequence[tuple[str, TextSpan]]) -> LogicalPlan:
    """The query, whose first columns are called as `columns` say. BindError at one too many."""
    if not columns:
        return query
    shown = query.visible
    if isinstance(query, EmitOnWindowClose):
        return EmitOnWindowClose(_named(query.input, columns), shown.index(query.column))
    if len(columns) > len(shown):
        message = f"{len(columns)} names for the {len(shown)} columns of the query"
        raise BindError(message, **error_span(columns[len(shown)][1]))
    names = [name for name, _ in columns] + [query.schema.names[at] for at in shown[len(columns) :]]
    inputs = tuple(InputRef(at, query.schema.types[at]) for at in shown)
    return Project(query, inputs, tuple(names))


def _index(reader: TokenReader, context: BindContext, if_not_exists: bool, definition: str) -> CreateIndex:
    """name ON table (column [ASC | DESC], …) [INCLUDE (column, …)]"""
    name, span = read_name(reader, "the index")
    reader.expect("ON")
    table_name, table_span = read_name(reader, "a table")
    table = resolved(context.catalog, table_name, table_span)
    if table.kind not in (TableKind.TABLE, TableKind.MATERIALIZED_VIEW):
        raise BindError(f"{table.name!r} is {table.kind.one}: an index is of a table", **error_span(table_span))
    reader.expect("(")
    keys = [_key(reader, table)]
    while reader.accept(","):
        keys.append(_key(reader, table))
    reader.expect(")")
    include = []
    if reader.accept("INCLUDE"):
        reader.expect("(")
        include.append(_column(reader, table))
        while reader.accept(","):
            include.append(_column(reader, table))
        reader.expect(")")
    reader.finish()
    if len({key.column for key in keys}) < len(keys):
        raise BindError("a column stands twice in the index", **error_span(span))
    try:
        index, _ = index_of(name.name, table, keys, include, definition)
    except BindError as error:
        raise BindError(error.message, **error_span(table_span)) from error
    if name.schema == ObjectName("").schema and table_name.schema != name.schema:
        name = replace(table_name, name=name.name)  # an index is in the schema of its table
    return CreateIndex(_in_schema(index, context, name, span), if_not_exists)


def _key(reader: TokenReader, table: TableCatalog) -> SortKey:
    column = _column(reader, table)
    descending = reader.accept("DESC")
    if not descending:
        reader.accept("ASC")
    return SortKey(column, OrderType(descending))


def _column(reader: TokenReader, table: TableCatalog) -> int:
    span = reader.span
    name = reader.name("a column")
    if reader.begins("("):
        raise BindError(elsewhere.INDEX_OF_EXPRESSION, **error_span(span))
    return column_of(table, name, span)


def _schema(reader: TokenReader, context: BindContext, if_not_exists: bool, definition: str) -> CreateSchema:
    name, database, span = read_schema_name(reader)
    reader.finish()
    if name in SYSTEM_SCHEMAS:
        raise BindError(f"{name} is the schema of the system catalog", **error_span(span))
    return CreateSchema(name, database, if_not_exists)


def _database(reader: TokenReader, context: BindContext, if_not_exists: bool, definition: str) -> CreateDatabase:
    name = reader.name("a database")
    reader.finish()
    return CreateDatabase(name, if_not_exists)


def _in_schema(table: TableCatalog, context: BindContext, name: ObjectName, span: TextSpan) -> TableCatalog:
    """The draft with the schema of its name."""
    return replace(table, schema_id=schema_of(context.catalog, name.schema, name.database, span).id)


_CREATABLE: dict[tuple[str, ...], Create] = {
    ("TABLE",): _table,
    ("SOURCE",): _source,
    ("MATERIALIZED", "VIEW"): _materialized_view,
    ("VIEW",): _view,
    ("SINK",): _sink,
    ("INDEX",): _index,
    ("SCHEMA",): _schema,
    ("DATABASE",): _database,
}
