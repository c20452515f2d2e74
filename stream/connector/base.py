"""Connectors: the interface to external streams of rows.

A connector is one external stream, configured by the options of a table or source. It consists of splits; a split is
read in order by one SplitReader, whose offset is the position of the next chunk. The offset is state of the job [R13]:
after a crash a reader seeks to the offset of the last committed epoch and delivers the same rows again.

A connector is two classes, a Connector and its SplitReader, and a SplitEnumerator, most often `SplitNames`. What is
optional has a default that says so: filters, starts other than the beginning, rows that can be read only once. How to
write one is in CONTRIBUTING.md; what every connector promises is checked by tests/support/suites/connector_suite.py.

Chunks of a reader are untrusted: `validated` checks them once, before they enter the stream. The values of a reader
that takes its rows from columns checked earlier are not checked again; their constraints are.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from relational.chunk import Column, Op, StreamChunk
from relational.chunk.arrow_import import imported
from relational.errors import InvalidValue
from relational.table.row_checks import check_rows
from stream.errors import ConnectorError, MalformedRows, UnknownConnector

if TYPE_CHECKING:
    from relational.catalog.objects import TableCatalog
    from relational.expr.comparisons import Comparison
    from relational.types.schema import Field, Schema

CONNECTOR_OPTION = "connector"
"""The option of a table that names its connector; the others, except the next, are the connector's own."""
MALFORMED_OPTION = "malformed"
"""The effect of a malformed record: the job fails ("refuse"), or the record is skipped and counted ("skip")."""
REFUSE_MALFORMED, SKIP_MALFORMED = "refuse", "skip"
RATE_OPTION = "rate_limit"
"""Rows per second that each job reads at most."""
START_OPTION = "start"
"""Where a new job begins: "earliest", "latest", or a moment such as "2025-01-31 08:00:00", in UTC without an offset."""
MOST_RATE = 1 << 40
LAST_OP = max(Op)


class StartKind(StrEnum):
    """Where a new job begins to read a split that exists already."""

    EARLIEST = "earliest"
    """At its beginning."""
    LATEST = "latest"
    """At its end: only what is added later."""
    MOMENT = "timestamp"
    """At the first row of a moment or later, as far as the connector knows the times of its rows."""


class Start(NamedTuple):
    """The option `start`; `moment` has a time zone."""

    kind: StartKind = StartKind.EARLIEST
    moment: datetime | None = None


EARLIEST = Start()


class SourceSettings(NamedTuple):
    """The options of a table or source that are not its connector's own."""

    connector: str
    skips_malformed: bool = False
    rate_limit: int = 0
    """Rows per second of each job; 0: no limit."""
    start: Start = EARLIEST


ROWS_AFTER_FAULT = 16
"""Rows validated at once after a malformed one, doubled with each valid part: the cost of many faults stays linear."""


class SplitReader(ABC):
    """Reads one split in order. Used by one thread; the same offset always leads to the same rows.

    `is_bounded`: the split has an end. Of the bounded splits of a job only some are read at a time: their readers
    should hold open files and the like between their first read and their end only. `holds_rows`: it keeps what it
    delivered until `committed`, because it cannot be read again. `is_sound`: its columns are taken, by the methods of
    chunks, from columns that `relational.chunk.arrow_import.imported` made."""

    is_bounded: bool = False
    holds_rows: bool = False
    is_sound: bool = False

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

    def begin_at(self, start: Start) -> None:
        """Continue at the position of `start`, one of the connector's `starts`, instead of the beginning."""
        raise NotImplementedError(f"{type(self).__name__} begins at its beginning only")

    def committed(self, offset: str) -> None:  # noqa: B027  most readers can read again
        """Everything before `offset`, an earlier value of the property, is committed and will not be read again."""

    @property
    def needs_commit(self) -> bool:
        """Whether it delivers nothing more before what it holds is committed."""
        return False

    def close(self) -> None:  # noqa: B027  most readers hold nothing
        """Release the resources of the reader."""


class SplitEnumerator(ABC):
    """Lists the splits of an external stream."""

    @abstractmethod
    def list_splits(self) -> Sequence[str]:
        """Names of all splits, in a stable order."""


class SplitNames(SplitEnumerator):
    """The enumerator of an external stream whose splits are known and do not change."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)

    def list_splits(self) -> Sequence[str]:
        return self._names


class Connector(ABC):
    """One external stream.

    `is_append_only`: it sends inserts only. `is_consistent`: per primary key its changes alternate legally and its old
    rows are correct, so that the table need not look them up. `accepts_filters`: `open_split` has the argument
    `filters`. `starts`: what it supports of the option `start`. `is_remote`: another process can read
    it too, because all that it needs is in its options."""

    is_append_only: bool = False
    is_remote: bool = False
    is_consistent: bool = False
    accepts_filters: bool = False
    starts: frozenset[StartKind] = frozenset((StartKind.EARLIEST,))

    @abstractmethod
    def enumerator(self) -> SplitEnumerator:
        """What finds the stream's splits."""

    @abstractmethod
    def open_split(self, split: str, columns: Sequence[int], filters: Sequence[Comparison] = ()) -> SplitReader:
        """A reader at the beginning of the split, of these columns of the schema, in this order.

        `filters`: the job drops the rows for which one of these comparisons of columns of the schema is not true, so
        the reader may leave them out; it need not. A connector that does not accept filters need not have the argument.
        ConnectorError if there is no such split, or it cannot be read."""

    def check_table(self, table: TableCatalog) -> None:  # noqa: B027  most connectors feed any table
        """Called once, before anything else, with the table or source that is fed. ConnectorError if it cannot be."""


ConnectorFactory: TypeAlias = "Callable[[Mapping[str, str], Schema], Connector]"

_FACTORIES: dict[str, ConnectorFactory] = {}
OWN_CONNECTORS = {
    "arrow": "stream.connector.arrow_files:ArrowFilesConnector",
    "arrow_stream": "stream.connector.arrow_streams:ArrowStreamConnector",
    "csv": "stream.connector.csv_files:CsvFilesConnector",
    "datagen": "stream.connector.datagen:DatagenConnector",
    "ndjson": "stream.connector.ndjson_files:NdjsonFilesConnector",
    "nexmark": "stream.connector.nexmark:NexmarkConnector",
    "parquet": "stream.connector.parquet_files:ParquetFilesConnector",
    "flights": "stream.examples.flights.connector:FlightsConnector",
}
"""Connectors of this package, name -> module:object; each is imported when an object first names it."""


def register_connector(name: str, factory: ConnectorFactory) -> None:
    """Registers `factory(options, schema)` for `WITH (connector = name, ...)`; replaces an earlier one."""
    _FACTORIES[name] = factory


def factory_path(name: str) -> str | None:
    """"module:attribute" of a registered factory that another process can import, empty for a connector of this
    package; None if it is part of this program or of a function."""
    factory = _FACTORIES.get(name)
    if factory is None:
        return ""
    module, attribute = getattr(factory, "__module__", "__main__"), getattr(factory, "__qualname__", "")
    if module == "__main__" or not attribute.isidentifier():
        return None
    return f"{module}:{attribute}"


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
    """The connector that feeds a table or is a source. UnknownConnector; ConnectorError for an option that it does not
    have, or a table that it cannot feed."""
    settings = settings_of(table)
    general = (CONNECTOR_OPTION, MALFORMED_OPTION, RATE_OPTION, START_OPTION)
    options = {name: value for name, value in (table.connector or {}).items() if name not in general}
    connector = open_connector(settings.connector, options, table.schema.project(table.delivered_columns))
    connector.check_table(table)
    if settings.start.kind not in connector.starts:
        known = ", ".join(sorted(connector.starts))
        raise ConnectorError(settings.connector, f"{START_OPTION} is one of: {known}; not {settings.start.kind}")
    return connector


def settings_of(table: TableCatalog) -> SourceSettings:
    """The options of a table or source that every connector has. ConnectorError."""
    options = table.connector or {}
    name = options.get(CONNECTOR_OPTION, "")
    malformed = options.get(MALFORMED_OPTION, REFUSE_MALFORMED)
    if malformed not in (REFUSE_MALFORMED, SKIP_MALFORMED):
        raise ConnectorError(name, f"{MALFORMED_OPTION} is {REFUSE_MALFORMED} or {SKIP_MALFORMED}, not {malformed!r}")
    rate = options.get(RATE_OPTION, "0")
    if not (rate.isascii() and rate.isdecimal()) or int(rate) > MOST_RATE:
        raise ConnectorError(name, f"{RATE_OPTION} is a whole number of rows per second, not {rate!r}")
    return SourceSettings(name, malformed == SKIP_MALFORMED, int(rate), _start(name, options.get(START_OPTION)))


def _start(connector: str, text: str | None) -> Start:
    if text is None or text in (StartKind.EARLIEST, StartKind.LATEST):
        return Start(StartKind(text or StartKind.EARLIEST))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConnectorError(connector, f"{START_OPTION} is earliest, latest or a timestamp, not {text!r}") from None
    return Start(StartKind.MOMENT, moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))


def open_reader(
    connector: Connector, split: str, columns: Sequence[int], filters: Sequence[Comparison] = ()
) -> SplitReader:
    """A reader of a split at its beginning, which gets `filters` if the connector accepts them. ConnectorError."""
    if filters and connector.accepts_filters:
        return connector.open_split(split, columns, filters)
    return connector.open_split(split, columns)


def validated(
    chunk: StreamChunk,
    schema: Schema,
    split: str = "",
    *,
    connector: str = "",
    table: TableCatalog | None = None,
    is_sound: bool = False,
) -> StreamChunk:
    """`chunk` with every value checked unless it `is_sound`, JSON in canonical form, and the constraints and limits of
    `table` checked if it is given. MalformedRows names split, column and the first invalid row.
    """
    if len(chunk.columns) != len(schema) or chunk.types != schema.types:
        given = ", ".join(map(str, chunk.types))
        raise MalformedRows(connector, split, f"columns of the types {given} for the table's {schema}"[:1_000])
    if chunk.op_bits > LAST_OP and chunk.ops.max() > LAST_OP:
        row = int((chunk.ops > LAST_OP).argmax())
        raise MalformedRows(connector, split, f"{chunk.ops[row]} is no op", row=row)
    try:
        checked = chunk if is_sound else chunk.with_columns([
            _checked(column, field) for column, field in zip(chunk.columns, schema, strict=True)
        ])
        if table is not None:
            _check_changes(table, checked)
    except InvalidValue as error:
        raise MalformedRows(connector, split, error.reason, column=error.column_name, row=error.row) from error
    return checked


def _checked(column: Column, field: Field) -> Column:
    """InvalidValue."""
    array = imported(column.array, field.data_type, field.name)
    return column if array is column.array else Column(array)


def _check_changes(table: TableCatalog, chunk: StreamChunk) -> None:
    """As `check_rows`; of deleted rows, which a connector may know by their key alone, only what they must have. Most
    chunks hold nothing that even an inserted row may not have: those are checked at once."""
    try:
        check_rows(table, chunk, are_in_range=True)
        return
    except InvalidValue:
        deleted = (chunk.ops & Op.DELETE).astype(bool)
        if not deleted.any():
            raise
    unbound = tuple(replace(column, not_null=False, max_length=None) for column in table.columns)
    check_rows(replace(table, columns=unbound), chunk, are_in_range=True)
    check_rows(table, chunk.filter(~deleted), are_in_range=True)


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
