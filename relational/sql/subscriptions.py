"""SUBSCRIBE, and subscriptions: CREATE SUBSCRIPTION, DROP SUBSCRIPTION. FETCH reads one as it reads a cursor."""

from __future__ import annotations

from relational.catalog.objects import TableCatalog
from relational.errors import BindError, ParseError
from relational.expr.bind import error_span
from relational.sql.context import BindContext
from relational.sql.ddl.options import Options, read_options, ttl_of
from relational.sql.lexer import Piece, TokenReader
from relational.sql.names import read_name, resolved
from relational.sql.statement import CreateSubscription, DropSubscription, Subscribe

RETENTION = "retention"
_MOST_DIGITS = 18


def bind_subscribe(piece: Piece, context: BindContext) -> Subscribe:
    """SUBSCRIBE [TO] table [SINCE epoch]."""
    reader = TokenReader(piece.after(1))
    reader.accept("TO")
    table = _stored_table(reader, context)
    since = None
    if reader.accept("SINCE"):
        span, token = reader.span, reader.next()
        if not token.text.isdigit() or len(token.text) > _MOST_DIGITS:
            raise ParseError("an epoch is expected here", **error_span(span))
        since = int(token.text)
    reader.finish()
    return Subscribe(table, since)


def create_subscription(reader: TokenReader, context: BindContext, if_not_exists: bool) -> CreateSubscription:
    """name FROM table [WITH (retention = '1 day')]."""
    name = reader.name("the subscription")
    reader.expect("FROM")
    table = _stored_table(reader, context)
    options = read_options(reader) if reader.accept("WITH") else Options({})
    retention_ms = options.take(RETENTION, ttl_of, None)
    options.finish("a subscription", (RETENTION,))
    reader.finish()
    return CreateSubscription(name, table, retention_ms, if_not_exists)


def drop_subscription(reader: TokenReader) -> DropSubscription:
    """[IF EXISTS] name."""
    if_exists = reader.accept("IF", "EXISTS")
    name = reader.name("a subscription")
    reader.finish()
    return DropSubscription(name, if_exists)


def _stored_table(reader: TokenReader, context: BindContext) -> TableCatalog:
    name, span = read_name(reader, "a table or materialized view")
    table = resolved(context.catalog, name, span)
    if not table.kind.has_rows:
        raise BindError(f"{name.name!r} is {table.kind.one}, which has no rows of its own", **error_span(span))
    return table
