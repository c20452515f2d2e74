"""SHOW CREATE: the statement for a table in its current form, even if its columns changed or no SQL text created it."""

from __future__ import annotations

import re
from typing import Any

from relational.catalog.names import ObjectName
from relational.catalog.objects import ColumnCatalog, ConflictBehaviour, RowFormat, TableCatalog, TableKind
from relational.catalog.watermarks import watermark_text
from relational.expr.expression import Literal
from relational.sql.ddl.options import ROW_FORMAT, TTL, VNODE_COUNT, ttl_text
from relational.types.data_type import DataType, TypeKind
from relational.types.vnodes import DEFAULT_VNODE_COUNT

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_NAME = r'(?:"(?:[^"]|"")*"|[\w$]+)'
_NAMED = re.compile(
    rf"(\s*CREATE\s+(?:(?:MATERIALIZED\s+)?VIEW|INDEX)\s+(?:IF\s+NOT\s+EXISTS\s+)?){_NAME}(?:\s*\.\s*{_NAME})*",
    re.IGNORECASE,
)


def comments_of(table: TableCatalog, name: ObjectName) -> list[str]:
    """The statements that give an object and its columns their comments."""
    whole, found = ".".join(map(quoted, name.parts)), []
    if table.comment:
        found.append(f"COMMENT ON {table.kind.upper()} {whole} IS {_text(table.comment)}")
    columns = [column for column in table.columns if column.comment]
    return found + [f"COMMENT ON COLUMN {whole}.{quoted(each.name)} IS {_text(each.comment)}" for each in columns]


def definition_of(table: TableCatalog, name: ObjectName) -> str:
    """The statement as originally written, or for the current form; empty for a view not created by SQL text."""
    if table.kind is not TableKind.TABLE or (table.definition and not table.schema_version):
        return table.definition
    parts = [_column(table, index) for index in table.visible_indices]
    if table.row_id_index is None:
        parts.append(f"PRIMARY KEY ({', '.join(quoted(table.columns[index].name) for index in table.pk_indices)})")
    if table.declared_watermark is not None:
        index, delay = table.declared_watermark
        column = table.columns[index]
        marked = quoted(column.name)
        parts.append(f"WATERMARK FOR {marked} AS {watermark_text(marked, delay, column.data_type)}")
    clauses = ""
    if table.is_append_only:
        clauses += " APPEND ONLY"
    if table.conflict is not ConflictBehaviour.ERROR:
        clauses += f" ON CONFLICT {table.conflict.upper()}"
    options = {**(table.connector or {}), **_table_options(table)}
    if options:
        clauses += f" WITH ({', '.join(f'{key} = {_text(value)}' for key, value in options.items())})"
    return f"CREATE TABLE {'.'.join(map(quoted, name.parts))} ({', '.join(parts)}){clauses}"


def renamed_definition(table: TableCatalog, name: ObjectName) -> str:
    """The text of a table, view or index with another `name`: that of a table is written anew where it is shown, others
    keep theirs but for the name."""
    match = None if table.kind is TableKind.TABLE else _NAMED.match(table.definition)
    if match is None:
        return ""
    return match[1] + ".".join(map(quoted, name.parts)) + table.definition[match.end() :]


def _table_options(table: TableCatalog) -> dict[str, str]:
    """Those that are not the default."""
    options = {}
    if table.ttl_ms:
        options[TTL] = ttl_text(table.ttl_ms)
    if table.row_format is not RowFormat.ROW:
        options[ROW_FORMAT] = table.row_format.value
    if table.vnode_count != DEFAULT_VNODE_COUNT:
        options[VNODE_COUNT] = str(table.vnode_count)
    return options


def _column(table: TableCatalog, index: int) -> str:
    column = table.columns[index]
    default = "" if column.default is None else f" DEFAULT {default_text(column.default, column.data_type)}"
    return f"{quoted(column.name)} {type_text(column)}{' NOT NULL' if column.not_null else ''}{default}"


def type_text(column: ColumnCatalog) -> str:
    """A column's type in SQL syntax, its length included."""
    return str(column.data_type) if column.max_length is None else f"{column.data_type}({column.max_length})"


def default_text(value: Any, data_type: DataType) -> str:
    """A constant in SQL syntax."""
    if data_type.kind is TypeKind.BYTEA:
        return f"'\\x{value.hex()}'"
    if data_type.kind in (TypeKind.REAL, TypeKind.DOUBLE, TypeKind.INTERVAL):
        return _text(str(value))
    return Literal(value, data_type).describe()


def quoted(name: str) -> str:
    """A name in SQL syntax."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
