"""COPY: rows of files into a table, and rows of a table or query into a file.

    COPY table [(column, …)] FROM 'path' [[WITH] (option [value], …)]
    COPY {table [(column, …)] | (query)} TO 'path' [[WITH] (option [value], …)]

The format of a file is the option FORMAT, or what the name of the file ends with.
"""

from __future__ import annotations

from sqlglot.tokens import TokenType

from relational.catalog.objects import TableCatalog
from relational.errors import BindError, ParseError
from relational.expr.bind import error_span
from relational.plan.changes import writable
from relational.plan.logical import LogicalPlan, only
from relational.sql.context import BindContext
from relational.sql.dml import read_columns
from relational.sql.expressions import Translator
from relational.sql.files import format_of
from relational.sql.lexer import Piece, TokenReader
from relational.sql.names import read_name, resolved
from relational.sql.query import QueryBinder, rows_of
from relational.sql.statement import CopyFrom, CopyTo, FileOptions
from relational.sql.tree import parse

FORMAT = "format"


def bind_copy(piece: Piece, context: BindContext) -> CopyFrom | CopyTo:
    """Binds COPY. ParseError, BindError."""
    reader = TokenReader(piece.after(1))
    if reader.begins("("):
        plan = _query(reader, context)
        reader.expect("TO")
        return CopyTo(plan, _file(reader))
    name, span = read_name(reader, "a table")
    table = resolved(context.catalog, name, span)
    columns = read_columns(reader, table) if reader.begins("(") else table.visible_indices
    if reader.accept("FROM"):
        return CopyFrom(writable(table, span), columns, _file(reader))
    reader.expect("TO")
    return CopyTo(_columns_of(rows_of(table, context.catalog), table, columns), _file(reader))


def _query(reader: TokenReader, context: BindContext) -> LogicalPlan:
    start = end = reader.span[0]
    depth = 0
    while depth or end == start:
        end = reader.span[1]
        token = reader.next()
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
    tree = parse(reader.piece_between(start, end))
    translate = Translator(tree, context.now, context.parameters, functions=context.functions)
    return QueryBinder(context.catalog, translate, context.variables).query(tree.node)


def _columns_of(plan: LogicalPlan, table: TableCatalog, columns: tuple[int, ...]) -> LogicalPlan:
    """Columns of a table, or of the query that a view is, by their names."""
    names = {plan.schema.names[position]: position for position in plan.visible}
    return only(plan, [names[table.columns[column].name] for column in columns])


def _file(reader: TokenReader) -> FileOptions:
    """'path' [[WITH] (option [value], …)]"""
    span, token = reader.span, reader.next()
    if token.token_type is not TokenType.STRING:
        raise ParseError("the path of a file in quotes is expected here", **error_span(span))
    path = token.text
    reader.accept("WITH")
    options = _options(reader) if not reader.is_done else {}
    reader.finish()
    form = options.pop(FORMAT, None) or format_of(path)
    if form is None:
        reason = "the name of the file does not tell its format: (FORMAT csv), parquet or json"
        raise BindError(reason, **error_span(span))
    return FileOptions(path, form.lower(), options)


def _options(reader: TokenReader) -> dict[str, str]:
    """Those without a value are true."""
    options: dict[str, str] = {}
    reader.expect("(")
    while True:
        span, name = reader.span, reader.name("an option").lower()
        if name in options:
            raise ParseError(f"option {name} appears twice", **error_span(span))
        reader.accept("=")
        options[name] = "true" if reader.begins(",") or reader.begins(")") else reader.next().text
        if not reader.accept(","):
            break
    reader.expect(")")
    return options
