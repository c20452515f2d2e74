"""Answers to SHOW and DESCRIBE, as tables."""

from __future__ import annotations

import pyarrow as pa

from relational.catalog.objects import TableCatalog, TableKind
from relational.sql.context import CatalogReader
from relational.sql.statement import Show, ShowKind


def show(statement: Show, catalog: CatalogReader) -> pa.Table:
    """One row per object: its name, columns and definition, by name."""
    kinds = {
        ShowKind.TABLES: TableKind.TABLE,
        ShowKind.SOURCES: TableKind.TABLE,
        ShowKind.MATERIALIZED_VIEWS: TableKind.MATERIALIZED_VIEW,
        ShowKind.INTERNAL_TABLES: TableKind.INTERNAL,
    }
    tables = catalog.list(kinds[statement.kind])
    if statement.kind is ShowKind.SOURCES:
        tables = tuple(table for table in tables if table.connector is not None)
    columns = [
        ", ".join(f"{table.columns[i].name} {table.columns[i].data_type}" for i in table.visible_indices)
        for table in tables
    ]
    return pa.table(
        {
            "name": pa.array([table.name for table in tables], pa.string()),
            "columns": pa.array(columns, pa.string()),
            "definition": pa.array([table.definition for table in tables], pa.string()),
        }
    )


def describe(table: TableCatalog) -> pa.Table:
    """One row per column, hidden ones too: name, type, its place in the primary key (from 1, else
    NULL), hidden.
    """
    key = {column: place + 1 for place, column in enumerate(table.pk_indices)}
    return pa.table(
        {
            "name": pa.array([column.name for column in table.columns], pa.string()),
            "type": pa.array([str(column.data_type) for column in table.columns], pa.string()),
            "primary_key": pa.array([key.get(place) for place in range(len(table.columns))], pa.int32()),
            "is_hidden": pa.array([column.is_hidden for column in table.columns], pa.bool_()),
        }
    )
