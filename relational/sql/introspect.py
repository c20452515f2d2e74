"""Answers to SHOW and DESCRIBE, as tables."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from relational.catalog.functions import FunctionCatalog
from relational.catalog.names import DEFAULT_DATABASE, PUBLIC, ObjectName
from relational.catalog.objects import TableCatalog, TableKind
from relational.catalog.snapshot import CatalogSnapshot
from relational.sql.context import CatalogReader
from relational.sql.ddl.create_function import function_definition
from relational.sql.ddl.show_create import comments_of, default_text, definition_of, type_text
from relational.sql.settings import SETTINGS, Settings
from relational.sql.statement import Show, ShowKind
from relational.udf.function import LANGUAGE

_KINDS = {
    ShowKind.TABLES: TableKind.TABLE,
    ShowKind.SOURCES: TableKind.SOURCE,
    ShowKind.MATERIALIZED_VIEWS: TableKind.MATERIALIZED_VIEW,
    ShowKind.VIEWS: TableKind.VIEW,
    ShowKind.INDEXES: TableKind.INDEX,
    ShowKind.SINKS: TableKind.SINK,
    ShowKind.INTERNAL_TABLES: TableKind.INTERNAL,
}


def show(statement: Show, catalog: CatalogReader) -> pa.Table:
    """One row per object by name: its name, columns and definition; for schemas and databases the name only;
    functions as `show_functions`.

    Without a schema, those of `public`, and all state tables.
    """
    known = catalog.snapshot
    if statement.kind is ShowKind.SCHEMAS:
        pairs = [(known.databases[each.database_id].name, each.name) for each in known.schemas.values()]
        return _names(sorted(name if above == DEFAULT_DATABASE else f"{above}.{name}" for above, name in pairs))
    if statement.kind is ShowKind.DATABASES:
        return _names(sorted(each.name for each in known.databases.values()))
    if statement.kind is ShowKind.FUNCTIONS:
        return show_functions(known.functions_within((statement.schema or PUBLIC).id))
    within = None if statement.kind is ShowKind.INTERNAL_TABLES else (statement.schema or PUBLIC).id
    tables = known.list(_KINDS[statement.kind], within)
    if statement.kind is ShowKind.SOURCES:
        fed = (table for table in known.list(TableKind.TABLE, within) if table.connector is not None)
        tables = tuple(sorted((*tables, *fed), key=lambda table: table.name))
    return pa.table(
        {
            "name": pa.array([table.name for table in tables], pa.string()),
            "columns": pa.array([_columns(table) for table in tables], pa.string()),
            "definition": pa.array([definition_of(table, known.name_of(table)) for table in tables], pa.string()),
        }
    )


def show_functions(functions: Sequence[FunctionCatalog]) -> pa.Table:
    """One row per user function: name, arguments, result, kind, language, volatility and version."""
    known = [each.function for each in functions]
    columns = {
        "name": [each.name for each in known],
        "arguments": [each.signature for each in known],
        "returns": [each.result for each in known],
        "kind": [each.kind.value for each in known],
        "language": [LANGUAGE for _ in known],
        "volatility": [each.volatility.value for each in known],
        "version": [each.version for each in known],
    }
    return pa.table({
        name: pa.array(values, pa.int64() if name == "version" else pa.string()) for name, values in columns.items()
    })


def show_create_function(function: FunctionCatalog, known: CatalogSnapshot) -> pa.Table:
    """One row: the qualified name, and the statement that creates a function in its current version."""
    schema = known.schemas[function.schema_id]
    name = ObjectName(function.name, schema.name, known.databases[schema.database_id].name)
    return pa.table({"name": [str(name)], "definition": [function_definition(function.function, name)]})


def show_create(table: TableCatalog, known: CatalogSnapshot) -> pa.Table:
    """One row: the qualified name, and the statements that create it in its current form, with its comments."""
    name = known.name_of(table)
    text = ";\n".join([definition_of(table, name), *comments_of(table, name)])
    return pa.table({"name": [str(name)], "definition": [text]})


def show_settings(name: str | None, settings: Settings) -> pa.Table:
    """One row: the value of a setting; or one row per setting: its name, value and meaning."""
    if name is not None:
        return pa.table({name: [settings[name]]})
    return pa.table(
        {
            "name": list(SETTINGS),
            "setting": [settings[each] for each in SETTINGS],
            "description": [each.meaning for each in SETTINGS.values()],
        }
    )


def describe(table: TableCatalog) -> pa.Table:
    """One row per column, hidden ones too: name, type, its position in the primary key (from 1, else NULL), hidden,
    default (NULL: none), whether it is NOT NULL, comment (NULL: none).
    """
    key = {column: position + 1 for position, column in enumerate(table.pk_indices)}
    defaults = [
        None if column.default is None else default_text(column.default, column.data_type) for column in table.columns
    ]
    return pa.table(
        {
            "name": pa.array([column.name for column in table.columns], pa.string()),
            "type": pa.array([type_text(column) for column in table.columns], pa.string()),
            "primary_key": pa.array([key.get(position) for position in range(len(table.columns))], pa.int32()),
            "is_hidden": pa.array([column.is_hidden for column in table.columns], pa.bool_()),
            "default": pa.array(defaults, pa.string()),
            "not_null": pa.array([column.not_null for column in table.columns], pa.bool_()),
            "comment": pa.array([column.comment or None for column in table.columns], pa.string()),
        }
    )


def _names(names: list[str]) -> pa.Table:
    return pa.table({"name": pa.array(names, pa.string())})


def _columns(table: TableCatalog) -> str:
    return ", ".join(f"{table.columns[i].name} {type_text(table.columns[i])}" for i in table.visible_indices)
