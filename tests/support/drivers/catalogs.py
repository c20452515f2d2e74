"""Table catalogs for tests."""

from __future__ import annotations

from relational.catalog.objects import ColumnCatalog, TableCatalog, TableKind, value_columns
from relational.types import Schema, SortKey


def table_catalog(
    name: str, schema: Schema, pk, *, table_id: int = 1, kind=TableKind.TABLE, **options
) -> TableCatalog:
    """A table with the key columns `pk`, ascending, and distributed by them."""
    columns = tuple(ColumnCatalog(f.name, number, f.data_type) for number, f in enumerate(schema))
    keys = tuple(SortKey(index) for index in pk)
    return TableCatalog(
        id=table_id,
        name=name,
        kind=kind,
        columns=columns,
        pk=keys,
        stream_key=tuple(pk),
        distribution_key=tuple(pk),
        value_indices=value_columns(columns, keys),
        **options,
    )
