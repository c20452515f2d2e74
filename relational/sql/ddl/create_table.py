"""CREATE TABLE, parsed token by token: columns, their defaults, keys, and the clauses that sqlglot does not support."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot.tokens import TokenType

from relational.catalog.objects import (
    RULE_VERSION,
    SOURCE_VERSION,
    TABLE_VERSION,
    TTL_VERSION,
    WATERMARK_VERSION,
    ColumnCatalog,
    ConflictBehaviour,
    TableCatalog,
    TableKind,
    value_columns,
)
from relational.errors import BindError, ParseError
from relational.expr.bind import ExprBinder, Scope, error_span, unknown
from relational.expr.expression import InputRef
from relational.expr.unbound import TextSpan
from relational.plan.changes import default_of, stored_row
from relational.plan.logical import LogicalPlan, Project
from relational.sql import elsewhere
from relational.sql.ddl.options import (
    CONNECTOR,
    TABLE_OPTIONS,
    TTL,
    Options,
    read_options,
    take_row_format,
    take_vnode_count,
    ttl_of,
)
from relational.sql.ddl.watermark import WatermarkSyntax, watermark_of
from relational.sql.expressions import Translator
from relational.sql.lexer import Piece, TokenReader
from relational.sql.tree import parse
from relational.types.data_type import DataType
from relational.types.ordering import SortKey
from relational.types.schema import Schema
from relational.types.vnode_rule import VnodeRule

ROW_ID = "_row_id"
MAX_LENGTH = 10_485_760
_LIMITED = re.compile(
    r"char|character|(?:varchar|(?:char|character)(?:\s+varying)?)\s*\(\s*(?P<length>[0-9]{1,9})\s*\)", re.IGNORECASE
)
_BEFORE_QUERY = (("AS",), ("WITH",), ("APPEND", "ONLY"), ("ON", "CONFLICT"))
_CONSTRAINTS = (("UNIQUE", "("), ("CHECK", "("), ("FOREIGN", "KEY"), ("EXCLUDE", "USING"))
_OPENING, _CLOSING = (TokenType.L_PAREN, TokenType.LT), (TokenType.R_PAREN, TokenType.GT)


@dataclass(slots=True)
class TableSyntax:
    """The parts of CREATE TABLE, in the order of the text. `query`: the text after AS; then the columns have no types:
    `untyped` are their names with the spans that follow them.
    """

    name: str
    columns: list[tuple[str, DataType]] = field(default_factory=list)
    untyped: list[tuple[str, TextSpan]] = field(default_factory=list)
    query: Piece | None = None
    key: list[str] | None = None
    key_span: TextSpan | None = None
    is_append_only: bool = False
    conflict: ConflictBehaviour = ConflictBehaviour.ERROR
    options: Options = field(default_factory=Options)
    defaults: dict[str, Any] = field(default_factory=dict)
    not_null: set[str] = field(default_factory=set)
    max_lengths: dict[str, int] = field(default_factory=dict)
    watermark: WatermarkSyntax | None = None


def read_table(reader: TokenReader, name: str, *, has_query: bool = False) -> TableSyntax:
    """Parses CREATE TABLE after the table's name. `has_query`: it may end with AS and a query. ParseError or BindError
    at the span.
    """
    table, span = TableSyntax(name), reader.span
    if not (has_query and any(reader.begins(*words) for words in _BEFORE_QUERY)):
        reader.expect("(")
        while True:
            _read_element(reader, table)
            if not reader.accept(","):
                break
        reader.expect(")")
    while not reader.is_done:
        if has_query and reader.accept("AS"):
            table.query = reader.rest()
            break
        _read_clause(reader, table)
    if table.query is not None and table.columns:
        raise BindError("the columns of CREATE TABLE … AS have the types of the query", **error_span(span))
    if table.query is None and table.untyped:
        start, end = table.untyped[0][1]
        raise ParseError("the type of the column is expected here", start=start, end=end)
    if table.query is None and not table.columns:
        raise reader.fail("AS is expected here" if table.key is None else "a table has one column at least")
    return table


def _read_element(reader: TokenReader, table: TableSyntax) -> None:
    """Parses one column, or a PRIMARY KEY, with or without a name of its own, or WATERMARK of the table."""
    span = reader.span
    is_named = reader.accept("CONSTRAINT") and bool(reader.name("a constraint"))
    if reader.accept("PRIMARY", "KEY"):
        _set_key(table, _names(reader), span)
        return
    if is_named or any(reader.begins(*words) for words in _CONSTRAINTS):
        raise reader.fail("PRIMARY KEY is the only constraint of a table")
    if reader.begins("LIKE"):
        raise reader.fail(elsewhere.LIKE)
    if reader.accept("WATERMARK", "FOR"):
        if table.watermark is not None:
            raise BindError("a table has one WATERMARK", **error_span(span))
        table.watermark = _read_watermark(reader, span)
        return
    name = reader.name("a column")
    if any(name == other for other, _ in (*table.columns, *table.untyped)):
        raise BindError(f"column {name!r} appears twice", **error_span(span))
    if reader.begins(",") or reader.begins(")"):
        table.untyped.append((name, reader.span))
        return
    data_type, max_length = _read_column_type(reader)
    table.columns.append((name, data_type))
    if max_length is not None:
        table.max_lengths[name] = max_length
    while (token := reader.peek()) is not None and token.token_type not in (*_CLOSING, TokenType.COMMA):
        if reader.accept("CONSTRAINT"):
            reader.name("a constraint")
            token = reader.peek() or token
        span = reader.span
        if reader.accept("PRIMARY", "KEY"):
            _set_key(table, [name], span)
        elif reader.accept("DEFAULT"):
            table.defaults[name] = _read_default(reader, name, data_type, max_length)
        elif reader.accept("NOT", "NULL"):
            table.not_null.add(name)
        elif not reader.accept("NULL"):
            reason = f"{token.text} is not supported in a column: PRIMARY KEY, NOT NULL and DEFAULT are"
            raise reader.fail(elsewhere.COLUMN_CLAUSES.get(token.text.upper(), reason))


def _read_watermark(reader: TokenReader, span: TextSpan) -> WatermarkSyntax:
    """The parts after WATERMARK FOR."""
    column_span = reader.span
    column = reader.name("a column")
    reader.expect("AS")
    expression = _read_expression(reader)
    if expression.is_empty:
        raise reader.fail(f"the watermark of column {column!r} is expected here")
    return WatermarkSyntax(span, column, column_span, expression)


def read_column(reader: TokenReader) -> ColumnCatalog:
    """The name, type, default and constraints of a new column, without its id. ParseError or BindError at the span."""
    name, default, not_null = reader.name("a column"), None, False
    data_type, max_length = _read_column_type(reader)
    while (token := reader.peek()) is not None:
        if reader.accept("DEFAULT"):
            default = _read_default(reader, name, data_type, max_length)
        elif reader.accept("NOT", "NULL"):
            not_null = True
        elif not reader.accept("NULL"):
            reason = f"{token.text} is not supported in a new column: NOT NULL and DEFAULT are"
            raise reader.fail(elsewhere.COLUMN_CLAUSES.get(token.text.upper(), reason))
    return ColumnCatalog(name, 0, data_type, default=default, not_null=not_null, max_length=max_length)


def _read_default(reader: TokenReader, name: str, data_type: DataType, max_length: int | None) -> Any:
    """The constant after DEFAULT."""
    piece = _read_expression(reader)
    if piece.is_empty:
        raise reader.fail(f"the constant that column {name!r} has by DEFAULT is expected here")
    tree = parse(piece)
    value = ExprBinder(Scope(Schema())).bind(Translator(tree).term(tree.node))
    default = default_of(value, name, data_type, (piece.start, piece.end))
    if max_length is not None and default is not None and len(default) > max_length:
        message = f"column {name!r} holds {max_length} characters, its default has {len(default)}"
        raise BindError(message, start=piece.start, end=piece.end)
    return default


def _read_expression(reader: TokenReader) -> Piece:
    """The tokens before the next comma, closing parenthesis or constraint."""
    start = end = reader.span[0]
    depth = 0
    while (token := reader.peek()) is not None:
        is_over = token.token_type in (*_CLOSING, TokenType.COMMA) or (end > start and _begins_constraint(token.text))
        if depth == 0 and is_over:
            break
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        end = reader.span[1]
        reader.next()
    return reader.piece_between(start, end)


def _read_column_type(reader: TokenReader) -> tuple[DataType, int | None]:
    """The type of a column, and the maximum number of characters of a text: words, digits in parentheses, fields in
    angle brackets, square brackets. CHAR is CHAR(1); CHAR(n) is VARCHAR(n), without padding.
    """
    start = end = reader.span[0]
    depth = 0
    while (token := reader.peek()) is not None:
        if depth == 0 and (
            token.token_type in (*_CLOSING, TokenType.COMMA) or _begins_constraint(token.text)
        ):
            break
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        end = reader.span[1]
        reader.next()
    if end == start:
        raise reader.fail("the type of the column is expected here")
    text = reader.text_between(start, end)
    if text.lower() in elsewhere.TYPES:
        raise BindError(elsewhere.TYPES[text.lower()], start=start, end=end)
    limited = _LIMITED.fullmatch(text.strip())
    if limited is not None:
        length = int(limited["length"] or 1)
        if not 1 <= length <= MAX_LENGTH:
            raise BindError(f"a text has a length of 1 to {MAX_LENGTH} characters", start=start, end=end)
        return DataType.VARCHAR, length
    try:
        return DataType.parse(text), None
    except BindError as error:
        raise BindError(error.message, start=start, end=end) from error


def _begins_constraint(text: str) -> bool:
    words = text.upper().split()
    return bool(words) and words[0] in (
        "PRIMARY",
        "NOT",
        "NULL",
        "DEFAULT",
        "UNIQUE",
        "REFERENCES",
        "CHECK",
        "CONSTRAINT",
        "GENERATED",
        "AS",
    )


def _set_key(table: TableSyntax, names: list[str], span: TextSpan) -> None:
    if table.key is not None:
        raise BindError("a table has one PRIMARY KEY", **error_span(span))
    table.key, table.key_span = names, span


def _names(reader: TokenReader) -> list[str]:
    """Names in parentheses."""
    reader.expect("(")
    names = [reader.name("a column")]
    while reader.accept(","):
        names.append(reader.name("a column"))
    reader.expect(")")
    return names


def _read_clause(reader: TokenReader, table: TableSyntax) -> None:
    """The clauses after the columns, in any order."""
    if reader.accept("APPEND", "ONLY"):
        table.is_append_only = True
    elif reader.accept("ON", "CONFLICT"):
        table.conflict = _read_conflict(reader)
    elif not table.options and reader.accept("WITH"):
        table.options = read_options(reader)
    else:
        raise reader.fail("this is not a clause of CREATE TABLE")


def _read_conflict(reader: TokenReader) -> ConflictBehaviour:
    if reader.accept("DO", "NOTHING"):
        return ConflictBehaviour.IGNORE
    for behaviour in ConflictBehaviour:
        if reader.accept(behaviour.name):
            return behaviour
    raise reader.fail("ON CONFLICT is followed by OVERWRITE, IGNORE or ERROR")


def table_of(syntax: TableSyntax, definition: str) -> TableCatalog:
    """The draft (id 0) of a table; without a declared key its rows get a hidden generated id. Takes the options."""
    columns = [
        ColumnCatalog(
            name,
            position,
            each,
            default=syntax.defaults.get(name),
            not_null=name in syntax.not_null,
            max_length=syntax.max_lengths.get(name),
        )
        for position, (name, each) in enumerate(syntax.columns)
    ]
    row_id = None
    if syntax.key is None:
        row_id = len(columns)
        if any(column.name == ROW_ID for column in columns):
            raise BindError(f"the name {ROW_ID} is taken by the generated key", **error_span(syntax.key_span))
        columns.append(ColumnCatalog(ROW_ID, row_id, DataType.BIGINT, is_hidden=True))
        key = [row_id]
    else:
        key = [_position(name, syntax, syntax.key) for name in syntax.key]
    pk = tuple(map(SortKey, key))
    ttl_ms = _take_ttl(syntax)
    _check_watermark(syntax)
    watermarks = () if syntax.watermark is None else (watermark_of(syntax.watermark, columns),)
    row_format, vnode_count = take_row_format(syntax.options), take_vnode_count(syntax.options)
    if CONNECTOR not in syntax.options:
        syntax.options.finish("a table", (*TABLE_OPTIONS, CONNECTOR))
    return TableCatalog(
        id=0,
        name=syntax.name,
        kind=TableKind.TABLE,
        columns=tuple(columns),
        pk=pk,
        stream_key=tuple(key),
        distribution_key=tuple(key),
        value_indices=value_columns(columns, pk),
        vnode_count=vnode_count,
        is_append_only=syntax.is_append_only,
        row_id_index=row_id,
        conflict=syntax.conflict,
        definition=definition,
        connector=syntax.options.take_rest() or None,
        row_format=row_format,
        version=max(
            TABLE_VERSION,
            TTL_VERSION if ttl_ms else 0,
            0 if row_id is None else RULE_VERSION,
            WATERMARK_VERSION if watermarks else 0,
        ),
        ttl_ms=ttl_ms,
        watermarks=watermarks,
        vnode_rule=VnodeRule.HASH if row_id is None else VnodeRule.of_row_ids(vnode_count),
    )


def _take_ttl(syntax: TableSyntax) -> int:
    """The time to live of the rows, in milliseconds, 0 without one. BindError where they are changed otherwise [R31].
    """
    if not syntax.is_append_only:
        syntax.options.refuse(TTL, "ttl needs rows that are never updated or deleted: a table that is APPEND ONLY")
    if syntax.conflict is ConflictBehaviour.OVERWRITE:
        syntax.options.refuse(TTL, "ttl needs rows that are never changed, and ON CONFLICT OVERWRITE changes them")
    return syntax.options.take(TTL, ttl_of, 0)


def _check_watermark(syntax: TableSyntax) -> None:
    """BindError for a watermark of rows that are changed later [R29]."""
    if syntax.watermark is None:
        return
    span = error_span(syntax.watermark.span)
    if syntax.conflict is ConflictBehaviour.OVERWRITE:
        raise BindError("a watermark needs rows that are never changed, and ON CONFLICT OVERWRITE changes them", **span)
    if not syntax.is_append_only:
        raise BindError("a watermark needs rows that are never updated or deleted: a table that is APPEND ONLY", **span)


def source_of(syntax: TableSyntax, definition: str, span: TextSpan | None = None) -> TableCatalog:
    """The draft (id 0) of a source: rows that are only inserted, and are stored by nobody. Each job that reads it gives
    them an id of its own. BindError for what needs stored rows.
    """
    if CONNECTOR not in syntax.options:
        raise BindError(f"a source is created WITH ({CONNECTOR} = …)", **error_span(span))
    for name in TABLE_OPTIONS:
        syntax.options.refuse(name, f"a source stores no rows, so it has no {name}")
    if syntax.key is not None or syntax.conflict is not ConflictBehaviour.ERROR or syntax.defaults:
        stored = "a primary key" if syntax.key is not None else "DEFAULT" if syntax.defaults else "ON CONFLICT"
        raise BindError(
            f"a source stores no rows, so it has not {stored}: CREATE TABLE … WITH ({CONNECTOR} = …) does",
            **error_span(syntax.key_span or span),
        )
    syntax.is_append_only = True
    draft = table_of(syntax, definition)
    version = WATERMARK_VERSION if draft.watermarks else SOURCE_VERSION
    return replace(draft, kind=TableKind.SOURCE, vnode_rule=VnodeRule.HASH, version=version)


def _position(name: str, syntax: TableSyntax, key: list[str]) -> int:
    """The index of a key column."""
    names = [each for each, _ in syntax.columns]
    if name not in names:
        raise BindError(unknown("column", name, names), **error_span(syntax.key_span))
    if key.count(name) > 1:
        raise BindError(f"column {name!r} stands twice in the PRIMARY KEY", **error_span(syntax.key_span))
    return names.index(name)


def table_as(syntax: TableSyntax, query: LogicalPlan, span: TextSpan | None = None) -> tuple[TableCatalog, LogicalPlan]:
    """The draft (id 0) of a table with the visible columns of `query`, under the names that the statement lists, if it
    lists any; and the rows of the query as the table stores them. BindError.
    """
    shown = query.visible
    names = [name for name, _ in syntax.untyped] or [query.schema.names[position] for position in shown]
    if len(names) != len(shown):
        raise BindError(f"{len(names)} names for the {len(shown)} columns of the query", **error_span(span))
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BindError(f"column {twice!r} appears twice in the query: give it an alias", **error_span(span))
    syntax.options.refuse(CONNECTOR, "the first rows of a table with a connector are those of the connector")
    types = [query.schema.types[position] for position in shown]
    table = table_of(replace(syntax, columns=list(zip(names, types, strict=True))), "")
    values = {column: InputRef(position, query.schema.types[position]) for column, position in enumerate(shown)}
    return table, Project(query, stored_row(table, values), table.schema.names)
