"""DROP statements, by the kind of object."""

from __future__ import annotations

from relational.catalog.objects import TableKind
from relational.errors import BindError
from relational.expr.bind import error_span
from relational.sql.context import BindContext
from relational.sql.ddl.create import listed
from relational.sql.ddl.create_function import read_fields
from relational.sql.lexer import Piece, TokenReader
from relational.sql.names import function_named, read_name, read_schema_name, resolved, schema_of
from relational.sql.statement import Drop, DropDatabase, DropFunction, DropSchema, DropSubscription, Nothing
from relational.sql.subscriptions import drop_subscription

_KINDS: dict[tuple[str, ...], TableKind] = {
    ("TABLE",): TableKind.TABLE,
    ("SOURCE",): TableKind.SOURCE,
    ("MATERIALIZED", "VIEW"): TableKind.MATERIALIZED_VIEW,
    ("VIEW",): TableKind.VIEW,
    ("SINK",): TableKind.SINK,
    ("INDEX",): TableKind.INDEX,
}


def bind_drop(
    piece: Piece, context: BindContext
) -> Drop | DropFunction | DropSchema | DropDatabase | DropSubscription | Nothing:
    """DROP TABLE, SOURCE, MATERIALIZED VIEW, VIEW, SINK, INDEX, FUNCTION, AGGREGATE or SCHEMA [IF EXISTS] name [CASCADE
    | RESTRICT]; DROP SUBSCRIPTION; DROP DATABASE.
    """
    reader = TokenReader(piece)
    reader.expect("DROP")
    if reader.accept("SCHEMA"):
        return _schema(reader, context)
    if reader.accept("FUNCTION") or reader.accept("AGGREGATE"):
        return _function(reader, context)
    if reader.accept("DATABASE"):
        if_exists = reader.accept("IF", "EXISTS")
        database = DropDatabase(reader.name("a database"), if_exists)
        reader.finish()
        return database
    if reader.accept("SUBSCRIPTION"):
        return drop_subscription(reader)
    for words, kind in _KINDS.items():
        if reader.accept(*words):
            return _table(reader, context, kind)
    others = (("SUBSCRIPTION",), ("FUNCTION",), ("AGGREGATE",), ("SCHEMA",), ("DATABASE",))
    raise reader.fail(f"{listed((*_KINDS, *others))} is expected here")


def _table(reader: TokenReader, context: BindContext, kind: TableKind) -> Drop:
    if_exists = reader.accept("IF", "EXISTS")
    name, span = read_name(reader, kind.one)
    cascade = _cascade(reader)
    if if_exists and context.catalog.find(name) is None:
        return Drop(kind, name, None, cascade)
    table = resolved(context.catalog, name, span)
    if table.kind is not kind:
        raise BindError(f"{name.name!r} is {table.kind.one}: use DROP {table.kind.upper()}", **error_span(span))
    return Drop(kind, name, table, cascade)


def _function(reader: TokenReader, context: BindContext) -> DropFunction | Nothing:
    """[IF EXISTS] name [(type, …)] [CASCADE | RESTRICT]: types must be those of its arguments."""
    if_exists = reader.accept("IF", "EXISTS")
    name, span = read_name(reader, "a function")
    types = [each.data_type for each in read_fields(reader, "an argument")] if reader.begins("(") else None
    cascade = _cascade(reader)
    schema = context.catalog.snapshot.find_schema(name.schema, name.database)
    if if_exists and (schema is None or context.catalog.snapshot.find_function(schema.id, name.name) is None):
        return Nothing(f"there is no function {name.name!r}")
    found = function_named(context.catalog, name, span)
    if types is not None and tuple(types) != found.function.types:
        raise BindError(f"{name.name} takes {found.function.signature}", **error_span(span))
    return DropFunction(found, cascade)


def _schema(reader: TokenReader, context: BindContext) -> DropSchema:
    if_exists = reader.accept("IF", "EXISTS")
    name, database, span = read_schema_name(reader)
    cascade = _cascade(reader)
    if not if_exists:
        schema_of(context.catalog, name, database, span)
    return DropSchema(name, database, cascade, if_exists)


def _cascade(reader: TokenReader) -> bool:
    """CASCADE or RESTRICT, the default, at the end."""
    cascade = reader.accept("CASCADE")
    if not cascade:
        reader.accept("RESTRICT")
    reader.finish()
    return cascade
