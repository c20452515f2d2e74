"""What surrounds a statement while it is bound: the catalog, and the time that now() is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from relational.catalog.objects import TableCatalog, TableKind


class CatalogReader(Protocol):
    """Names and what they stand for; `CatalogManager` is one."""

    def resolve(self, name: str) -> TableCatalog:
        """The table or view of a name; NotFound."""

    def find(self, name: str) -> TableCatalog | None:
        """The same, or None."""

    def list(self, kind: TableKind | None = None) -> tuple[TableCatalog, ...]:
        """All tables and views by name, or all objects of one kind."""

    def dependents(self, table_id: int) -> tuple[TableCatalog, ...]:
        """The views that read it directly."""


@dataclass(frozen=True, slots=True)
class BindContext:
    """`now` is the time of the statement; None where an expression outlives it, as in a view: now() is
    refused.
    """

    catalog: CatalogReader
    now: datetime | None = None
