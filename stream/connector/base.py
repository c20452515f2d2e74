"""Connectors: the interface to external streams of rows.

A connector is one external stream, configured by a table's options. It consists of splits; a split is read in order by
one SplitReader, whose offset is the position of the next chunk. The offset is state of the table [R13]: after a crash a
reader seeks to the offset of the last committed epoch and delivers the same rows again.

Chunks of a reader are untrusted: `validated` checks them once, before they enter the stream.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from relational.chunk import Column, Op, StreamChunk
from relational.chunk.arrow_import import imported
from relational.errors import InvalidValue
from relational.table.row_checks import check_rows
from stream.errors import ConnectorError, MalformedRows, UnknownConnector

if TYPE_CHECKING:
    from relational.catalog.objects import TableCatalog
    from relational.types.schema import Schema

CONNECTOR_OPTION = "connector"
"""The option of a table that names its connector; the others, except the next, are the connector's own."""
MALFORMED_OPTION = "malformed"
"""The effect of a malformed record: the job fails ("refuse"), or the record is skipped and counted ("skip")."""
REFUSE_MALFORMED, SKIP_MALFORMED = "refuse", "skip"


ROWS_AFTER_FAULT = 16
"""Rows validated at once after a malformed one, doubled with each valid part: the cost of many faults stays linear."""


class SplitReader(ABC):
    """Reads one split in order. Used by one thread; the same offset always leads to the same rows.

    `is_bounded`: the split has an end. Of the bounded splits of a job only some are read at a time: their readers
    should hold open files and the like between their first read and their end only."""

    is_bounded: bool = False

    @abstractmethod
    def next_chunk(self, max_rows: int) -> StreamChunk | None:
        """The next changes, at most `max_rows`, without splitting an update pair; None if none are available now. Does
        not block for longer than a few milliseconds. MalformedRows for a record that cannot be read as a row: then
        `offset` is after it, and everything before it was returned earlier."""

    @property
    @abstractmethod
    def offset(self) -> str:
        """The position after the last chunk that was returned."""

    @abstractmethod
    def seek(self, offset: str) -> None:
        """Continue from `offset`, an earlier value of the property. InvalidOffset if it is not understood."""

    @property
    @abstractmethod
    def is_finished(self) -> bool:
        """Whether no further chunk will ever be available."""

    def close(self) -> None:  # noqa: B027  most readers hold nothing
        """Release the resources of the reader."""


class SplitEnumerator(ABC):
    """Lists the splits of an external stream."""

    @abstractmethod
    def list_splits(self) -> Sequence[str]:
        """Names of all splits, in a stable order."""


class Connector(ABC):
    """One external stream.

    `is_append_only`: it sends inserts only. `is_consistent`: per primary key its changes alternate legally and its old
    rows are correct, so that the table need not look them up."""

    is_append_only: bool = False
    is_consistent: bool = False

    @abstractmethod
    def enumerator(self) -> SplitEnumerator: ...

    @abstractmethod
    def open_split(self, split: str, columns: Sequence[int]) -> SplitReader:
        """A reader at the beginning of the split, of these columns of the schema, in this order."""


ConnectorFactory: TypeAlias = "Callable[[Mapping[str, str], Schema], Connector]"

_FACTORIES: dict[str, ConnectorFactory] = {}
OWN_CONNECTORS = {
    "arrow": "stream.connector.arrow_files:ArrowFilesConnector",
    "parquet": "stream.connector.parquet_files:ParquetFilesConnector",
    "flights": "stream.examples.flights.connector:FlightsConnector",
}
"""Connectors of this package, name -> module:object; each is imported when an object first names it."""


def register_connector(name: str, factory: ConnectorFactory) -> None:
    """Registers `factory(options, schema)` for `WITH (connector = name, ...)`; replaces an earlier one."""
    _FACTORIES[name] = factory


def open_connector(name: str, options: Mapping[str, str], schema: Schema) -> Connector:
    """The connector configured by a table's options. UnknownConnector lists the registered ones."""
    factory = _FACTORIES.get(name)
    if factory is None and name in OWN_CONNECTORS:
        module, attribute = OWN_CONNECTORS[name].split(":")
        factory = getattr(importlib.import_module(module), attribute)
    if factory is None:
        raise UnknownConnector(name, {*_FACTORIES, *OWN_CONNECTORS})
    return factory(options, schema)


def connector_of(table: TableCatalog) -> Connector:
    """The connector that feeds a table. UnknownConnector, ConnectorError."""
    options = dict(table.connector or {})
    name = options.pop(CONNECTOR_OPTION, "")
    malformed = options.pop(MALFORMED_OPTION, REFUSE_MALFORMED)
    if malformed not in (REFUSE_MALFORMED, SKIP_MALFORMED):
        raise ConnectorError(name, f"{MALFORMED_OPTION} is {REFUSE_MALFORMED} or {SKIP_MALFORMED}, not {malformed!r}")
    return open_connector(name, options, table.schema.project(table.delivered_columns))


def skips_malformed(table: TableCatalog) -> bool:
    """Whether malformed records are skipped and counted."""
    return (table.connector or {}).get(MALFORMED_OPTION) == SKIP_MALFORMED


def validated(
    chunk: StreamChunk, schema: Schema, split: str = "", *, connector: str = "", table: TableCatalog | None = None
) -> StreamChunk:
    """`chunk` with every value checked, JSON in canonical form, and the constraints and limits of `table` checked if it
    is given. MalformedRows names split, column and the first invalid row.
    """
    if len(chunk.columns) != len(schema) or chunk.types != schema.types:
        given = ", ".join(map(str, chunk.types))
        raise MalformedRows(connector, split, f"columns of the types {given} for the table's {schema}"[:1_000])
    if chunk.capacity and chunk.ops.max() > max(Op):
        row = int((chunk.ops > max(Op)).argmax())
        raise MalformedRows(connector, split, f"{chunk.ops[row]} is no op", row=row)
    try:
        columns = [
            Column(imported(column.array, field.data_type, field.name))
            for column, field in zip(chunk.columns, schema, strict=True)
        ]
        checked = chunk.with_columns(columns)
        if table is not None:
            check_rows(table, checked)
    except InvalidValue as error:
        raise MalformedRows(connector, split, error.reason, column=error.column_name, row=error.row) from error
    return checked


def without_malformed(
    chunk: StreamChunk, schema: Schema, split: str = "", *, connector: str = "", table: TableCatalog | None = None
) -> tuple[StreamChunk | None, list[MalformedRows]]:
    """(`chunk` validated, without its invalid rows; the error of each invalid row). An update is dropped if either half
    is invalid. None if no row is left. MalformedRows if the chunk as a whole is invalid.
    """
    parts, faults, start, rows = [], [], 0, chunk.capacity
    while start < chunk.capacity:
        end = min(start + rows, chunk.capacity)
        end += end < chunk.capacity and chunk.ops[end - 1] == Op.UPDATE_DELETE  # a pair is not split
        rest = chunk.slice(start, end - start)
        try:
            parts.append(validated(rest, schema, split, connector=connector, table=table))
            start, rows = end, 2 * rows
        except MalformedRows as fault:
            if fault.row is None:
                raise
            faults.append(MalformedRows(connector, split, fault.reason, column=fault.column, row=start + fault.row))
            first = fault.row - (fault.row > 0 and rest.ops[fault.row] == Op.UPDATE_INSERT)
            last = fault.row + (rest.ops[fault.row] == Op.UPDATE_DELETE)
            if first:
                before = rest.slice(0, first)
                parts.append(validated(before, schema, split, connector=connector, table=table))
            start, rows = start + last + 1, ROWS_AFTER_FAULT
    return (StreamChunk.concat(parts) if parts else None), faults
