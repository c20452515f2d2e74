"""Table catalogs for tests."""

from __future__ import annotations

from relational.catalog.objects import ColumnCatalog, TableCatalog, TableKind
from relational.types import Schema, SortKey
from stream.plan.state_catalogs import KEY_FORM_LOSES


def table_catalog(
    name: str, schema: Schema, pk, *, table_id: int = 1, kind=TableKind.TABLE, **options
) -> TableCatalog:
    """A table with the key columns `pk`, ascending, which it is distributed by."""
    return TableCatalog(
        id=table_id,
        name=name,
        kind=kind,
        columns=tuple(ColumnCatalog(f.name, number, f.data_type) for number, f in enumerate(schema)),
        pk=tuple(SortKey(index) for index in pk),
        stream_key=tuple(pk),
        distribution_key=tuple(pk),
        value_indices=tuple(
            index for index, f in enumerate(schema) if index not in pk or f.data_type.kind in KEY_FORM_LOSES
        ),
        **options,
    )
