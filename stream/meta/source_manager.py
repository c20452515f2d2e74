"""SourceManager: what the connectors of tables promise, and who reads which of their splits.

A split is read by exactly one actor. A table runs as one actor, so that actor reads them all."""

from __future__ import annotations

from dataclasses import dataclass

from relational.catalog.objects import TableCatalog
from stream.connector.base import connector_of


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """A connector as the planner sees it."""

    splits: tuple[str, ...]
    is_append_only: bool
    is_consistent: bool


class SourceManager:
    """Asks connectors; keeps nothing, since their offsets are state of the tables they feed [R13]."""

    def describe(self, table: TableCatalog) -> SourceDescription | None:
        """The connector of `table` as it is now, None for a table without one. UnknownConnector,
        ConnectorError."""
        if table.connector is None:
            return None
        connector = connector_of(table)
        return SourceDescription(
            splits=tuple(connector.enumerator().list_splits()),
            is_append_only=connector.is_append_only,
            is_consistent=connector.is_consistent,
        )
