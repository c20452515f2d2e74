"""ALTER: columns and ttl of a table, resuming a job that was set aside, parallelism."""

from __future__ import annotations

import re
from dataclasses import replace

from relational.catalog.alter import column_index, with_column, with_ttl, without_column
from relational.catalog.ddl_plan import rename_column, rename_table
from relational.catalog.objects import TableCatalog, TableKind
from relational.errors import BindError, CatalogError, ParseError
from relational.expr.bind import error_span
from relational.expr.unbound import TextSpan
from relational.sql.context import BindContext
from relational.sql.ddl.create import listed
from relational.sql.ddl.create_table import read_column
from relational.sql.ddl.options import CONNECTOR, TABLE_OPTIONS, TTL, parallelism_of, read_options, ttl_of
from relational.sql.ddl.show_create import renamed_definition
from relational.sql.lexer import Piece, TokenReader
from relational.sql.names import JOB_KINDS, read_job_kind, read_name, resolved
from relational.sql.statement import (
    AddColumn,
    DropColumn,
    Nothing,
    Rename,
    RenameColumn,
    Resume,
    SetParallelism,
    SetTtl,
)

_NUMBER = re.compile(r"0*[1-9][0-9]{0,17}")


def bind_alter(
    piece: Piece, context: BindContext
) -> AddColumn | DropColumn | Rename | RenameColumn | Resume | SetParallelism | SetTtl | Nothing:
    """ALTER TABLE [IF EXISTS] name, then ADD [COLUMN] [IF NOT EXISTS] column type [NOT NULL] [DEFAULT constant], DROP
    [COLUMN] [IF EXISTS] column [CASCADE | RESTRICT], or SET (ttl = 'interval'). ALTER TABLE, MATERIALIZED VIEW, SINK or
    INDEX name RESUME [SKIP n ROWS]. ALTER TABLE, VIEW, MATERIALIZED VIEW or INDEX name RENAME TO name; ALTER TABLE name
    RENAME [COLUMN] column TO column. ALTER MATERIALIZED VIEW, SINK or INDEX name SET PARALLELISM [=|TO] {n | DEFAULT}.
    """
    reader = TokenReader(piece)
    reader.expect("ALTER")
    kind = read_job_kind(reader)
    if kind is None and reader.accept("VIEW"):
        kind = TableKind.VIEW
    if kind is None:
        raise reader.fail(f"{listed((*JOB_KINDS, ('VIEW',)))} is expected here")
    if_exists = reader.accept("IF", "EXISTS")
    name, span = read_name(reader, kind.one)
    if if_exists and context.catalog.find(name) is None:
        return Nothing(f"there is no {kind} {name}")
    table = resolved(context.catalog, name, span)
    if reader.accept("RENAME"):
        if table.kind is not kind:
            raise _other_kind(table, span)
        return _rename(reader, table, context, span)
    if kind is TableKind.VIEW:
        raise reader.fail("RENAME is expected here")
    if reader.accept("RESUME"):
        if table.kind is not kind:
            raise _other_kind(table, span)
        return Resume(table, _skipped(reader))
    if kind is not TableKind.TABLE:
        if reader.accept("SET", "PARALLELISM"):
            if table.kind is not kind:
                raise _other_kind(table, span)
            return SetParallelism(table, parallelism_setting(reader))
        raise reader.fail("RESUME or SET PARALLELISM is expected here")
    if reader.accept("ADD"):
        return _add(reader, table)
    if reader.accept("DROP"):
        return _drop(reader, table)
    if reader.accept("SET"):
        return _set_options(reader, table, span)
    raise reader.fail("ADD, DROP, SET or RESUME is expected here")


def _rename(
    reader: TokenReader, table: TableCatalog, context: BindContext, span: TextSpan
) -> Rename | RenameColumn:
    """TO name, or [COLUMN] column TO name, to the end of the statement."""
    if reader.accept("TO"):
        new_span = reader.span
        new = reader.name(table.kind.one)
        reader.finish()
        definition = renamed_definition(table, replace(context.catalog.snapshot.name_of(table), name=new))
        try:
            rename_table(context.catalog.snapshot, table, new, definition)
        except CatalogError as error:
            raise BindError(str(error), **error_span(new_span)) from error
        return Rename(table, new, definition)
    if table.kind is not TableKind.TABLE:
        raise reader.fail("TO is expected here")
    reader.accept("COLUMN")
    column_span = reader.span
    column = reader.name("a column")
    reader.expect("TO")
    new = reader.name("a column")
    reader.finish()
    try:
        rename_column(context.catalog.snapshot, table.id, column, new)
    except CatalogError as error:
        raise BindError(str(error), **error_span(column_span)) from error
    return RenameColumn(table, column, new)


def _set_options(reader: TokenReader, table: TableCatalog, span: TextSpan) -> SetTtl:
    """(ttl = 'interval') to the end of the statement."""
    options = read_options(reader)
    reader.finish()
    for name in (*TABLE_OPTIONS, CONNECTOR):
        if name != TTL:
            options.refuse(name, f"{name} of a table cannot be changed: create another table and insert the rows there")
    ttl_ms = options.take(TTL, ttl_of, 0)
    options.finish("SET of a table", (TTL,))
    try:
        with_ttl(table, ttl_ms)
    except CatalogError as error:
        raise BindError(str(error), **error_span(span)) from error
    return SetTtl(table, ttl_ms)


def _other_kind(table: TableCatalog, span: TextSpan) -> BindError:
    return BindError(f"{table.name!r} is {table.kind.one}: use ALTER {table.kind.upper()}", **error_span(span))


def parallelism_setting(reader: TokenReader) -> int | None:
    """[=|TO] {n | DEFAULT} to the end of the statement; None for DEFAULT."""
    if not reader.accept("="):
        reader.accept("TO")
    span = reader.span
    if reader.accept("DEFAULT"):
        reader.finish()
        return None
    try:
        found = parallelism_of(reader.next().text)
    except ValueError as refusal:
        raise BindError(f"parallelism is {refusal}", **error_span(span)) from refusal
    reader.finish()
    return found


def _skipped(reader: TokenReader) -> int:
    """[SKIP n ROWS] to the end of the statement; 0 without it."""
    if not reader.accept("SKIP"):
        reader.finish()
        return 0
    span, token = reader.span, reader.next()
    if not _NUMBER.fullmatch(token.text):
        raise ParseError("SKIP takes a whole number of rows, 1 at least", **error_span(span))
    reader.expect("ROWS")
    reader.finish()
    return int(token.text)


def _add(reader: TokenReader, table: TableCatalog) -> AddColumn | Nothing:
    """The clause after ADD."""
    reader.accept("COLUMN")
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    span = reader.span
    column = read_column(reader)
    reader.finish()
    if if_not_exists and column.name in _names(table):
        return Nothing(f"table {table.name} has a column {column.name}")
    try:
        with_column(
            table,
            column.name,
            column.data_type,
            column.default,
            not_null=column.not_null,
            max_length=column.max_length,
        )
    except CatalogError as error:
        raise BindError(str(error), **error_span(span)) from error
    return AddColumn(table, column.name, column.data_type, column.default, column.not_null, column.max_length)


def _drop(reader: TokenReader, table: TableCatalog) -> DropColumn | Nothing:
    """The clause after DROP."""
    reader.accept("COLUMN")
    if_exists = reader.accept("IF", "EXISTS")
    span = reader.span
    dropped = reader.name("a column")
    cascade = reader.accept("CASCADE")
    if not cascade:
        reader.accept("RESTRICT")
    reader.finish()
    if if_exists and dropped not in _names(table):
        return Nothing(f"table {table.name} has no column {dropped}")
    try:
        without_column(table, dropped)
    except CatalogError as error:
        raise BindError(str(error), **error_span(span)) from error
    return DropColumn(table, table.columns[column_index(table, dropped)].name, cascade)


def _names(table: TableCatalog) -> set[str]:
    return {table.columns[index].name for index in table.visible_indices}
