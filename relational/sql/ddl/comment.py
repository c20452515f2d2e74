"""COMMENT ON: a text about an object or one of its columns, which the catalog keeps."""

from __future__ import annotations

from sqlglot.tokens import TokenType

from relational.catalog.names import MAX_PARTS, ObjectName
from relational.catalog.objects import TableCatalog, TableKind
from relational.errors import BindError, ParseError
from relational.expr.bind import error_span
from relational.plan.changes import column_of
from relational.sql.context import BindContext
from relational.sql.ddl.create import listed
from relational.sql.lexer import Piece, TokenReader
from relational.sql.names import JOB_KINDS, read_name, resolved
from relational.sql.statement import Comment

MOST_CHARACTERS = 10_000
KINDS = {**JOB_KINDS, ("VIEW",): TableKind.VIEW, ("SOURCE",): TableKind.SOURCE}


def bind_comment(piece: Piece, context: BindContext) -> Comment:
    """COMMENT ON {TABLE | MATERIALIZED VIEW | VIEW | SOURCE | SINK | INDEX} name IS {'text' | NULL}, or COLUMN
    name.column. NULL or an empty text: none.
    """
    reader = TokenReader(piece.after(1))
    reader.expect("ON")
    if reader.accept("COLUMN"):
        table, column = _column(reader, context)
        return Comment(table, column, _text(reader))
    kind = next((kind for words, kind in KINDS.items() if reader.accept(*words)), None)
    if kind is None:
        raise reader.fail(f"{listed((*KINDS, ('COLUMN',)))} is expected here")
    name, span = read_name(reader, kind.one)
    table = resolved(context.catalog, name, span)
    if table.kind is not kind:
        wanted = next(" ".join(words) for words, each in KINDS.items() if each is table.kind)
        raise BindError(f"{table.name!r} is {table.kind.one}: use COMMENT ON {wanted}", **error_span(span))
    return Comment(table, None, _text(reader))


def _column(reader: TokenReader, context: BindContext) -> tuple[TableCatalog, str]:
    """The table and the name of `table.column`, also with the schema and the database of the table."""
    start, end = reader.span
    parts, last = [reader.name("a table")], (start, end)
    while reader.accept("."):
        last = reader.span
        parts.append(reader.name("a column"))
    if not 2 <= len(parts) <= MAX_PARTS + 1:
        raise ParseError("a column is table.column, or schema.table.column", start=start, end=last[1])
    table = resolved(context.catalog, ObjectName.of(parts[:-1]), (start, last[0] - 1))
    if table.kind in (TableKind.INDEX, TableKind.SINK):
        raise BindError(f"{table.name!r} is {table.kind.one}, whose columns have no comments", start=start, end=last[1])
    return table, table.columns[column_of(table, parts[-1], last)].name


def _text(reader: TokenReader) -> str:
    reader.expect("IS")
    span, token = reader.span, reader.peek()
    if reader.accept("NULL"):
        reader.finish()
        return ""
    if token is None or token.token_type is not TokenType.STRING:
        raise reader.fail("a text in quotes, or NULL, is expected here")
    text = reader.next().text
    reader.finish()
    if len(text) > MOST_CHARACTERS:
        raise BindError(f"a comment has at most {MOST_CHARACTERS:,} characters, this has {len(text):,}",
                        **error_span(span))
    return text
