"""DROP statements, by the kind of object."""

from __future__ import annotations

from relational.catalog.objects import TableKind
from relational.errors import BindError
from relational.expr.bind import error_span
from relational.sql.context import BindContext
from relational.sql.ddl.create import listed
from relational.sql.lexer import Piece, TokenReader
from relational.sql.names import read_name, read_schema_name, resolved, schema_of
from relational.sql.statement import Drop, DropDatabase, DropSchema

_KINDS: dict[tuple[str, ...], TableKind] = {
    ("TABLE",): TableKind.TABLE,
    ("SOURCE",): TableKind.SOURCE,
    ("MATERIALIZED", "VIEW"): TableKind.MATERIALIZED_VIEW,
    ("VIEW",): TableKind.VIEW,
    ("SINK",): TableKind.SINK,
    ("INDEX",): TableKind.INDEX,
}


def bind_drop(piece: Piece, context: BindContext) -> Drop | DropSchema | DropDatabase:
    """DROP TABLE, SOURCE, MATERIALIZED VIEW, VIEW, SINK, INDEX or SCHEMA [IF EXISTS] name [CASCADE | RESTRICT]; DROP
    DATABASE.
    """
    reader = TokenReader(piece)
    reader.expect("DROP")
    if reader.accept("SCHEMA"):
        return _schema(reader, context)
    if reader.accept("DATABASE"):
        if_exists = reader.accept("IF", "EXISTS")
        database = DropDatabase(reader.name("a database"), if_exists)
        reader.finish()
        return database
    for words, kind in _KINDS.items():
        if reader.accept(*words):
            return _table(reader, context, kind)
    raise reader.fail(f"{listed((*_KINDS, ('SCHEMA',), ('DATABASE',)))} is expected here")


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
