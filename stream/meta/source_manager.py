"""SourceManager: the properties and splits of the connectors of tables and sources.

A split is read by exactly one actor of a job. The actors of a fragment that reads a source share its splits, see
`schedule`: the n-th of k actors reads every k-th split from the n-th on."""

from __future__ import annotations

from dataclasses import dataclass

from relational.catalog.objects import TableCatalog
from stream.connector.base import connector_of


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """The properties of a connector that the planner needs."""

    splits: tuple[str, ...]
    is_append_only: bool
    is_consistent: bool


class SourceManager:
    """Queries connectors. Stateless, since offsets are state of the tables that the connectors feed [R13]."""

    def describe(self, table: TableCatalog) -> SourceDescription | None:
        """The current properties of the connector of `table`, None for a table without one. UnknownConnector,
        ConnectorError."""
        if table.connector is None:
            return None
        connector = connector_of(table)
        return SourceDescription(
            splits=tuple(connector.enumerator().list_splits()),
            is_append_only=connector.is_append_only,
            is_consistent=connector.is_consistent,
        )
