"""COPY: rows of files into a table, and rows of a query into a file.

The rows of COPY … FROM are checked as those of INSERT are, with their files and numbers in errors. If they are within
the limits of a transaction, they are one statement, which changes nothing if it fails; so they are in a transaction.
More rows are several statements, one after the other, and CopyInterrupted says how many rows were taken before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from relational.catalog.objects import TableCatalog
from relational.chunk import DataChunk
from relational.errors import InvalidValue, RelationalError
from relational.table.row_checks import check_rows
from relational.types import Schema
from stream.connector.file_rows import FileRows
from stream.errors import CopyInterrupted, InvalidStatement, StreamError
from stream.session.file_output import write_file
from stream.session.rows import chunk_of_rows

if TYPE_CHECKING:
    from relational.sql.statement import CopyFrom, CopyTo
    from stream.session.queries import SessionQueries


def copy_to(statement: CopyTo, queries: SessionQueries) -> int:
    """The number of rows in the file. ConnectorError; errors as `SessionQueries.query`."""
    plan, file = statement.plan, statement.file
    schema: Schema = plan.schema.project(plan.visible)
    with queries.batches(plan) as batches:
        return write_file(file.form, file.path, file.options, schema, batches)


def copy_from(statement: CopyFrom, queries: SessionQueries) -> int:
    """Rows affected. ConnectorError for files that cannot be read, MalformedRows for a record, InvalidStatement for a
    row that the table cannot hold; DuplicateKey. CopyInterrupted by one of these after some rows were taken."""
    table, file = statement.table, statement.file
    types = {table.columns[column].name: table.columns[column].data_type for column in statement.columns}
    rows = FileRows(file.form, file.path, file.options, types, is_whole=True)
    taken = affected = 0
    try:
        for part in _parts(table, rows, queries.part_rows, queries.part_bytes):
            affected += queries.insert_rows(table, part)
            taken += part.visible_rows
    except (StreamError, RelationalError) as error:
        if taken and not queries.transaction.is_open:
            raise CopyInterrupted(table.name, taken, file.path, error) from error
        raise
    return affected


def _parts(table: TableCatalog, source: FileRows, most_rows: int, most_bytes: int) -> Iterator[DataChunk]:
    """The rows with all stored columns of the table, each as many as one statement takes."""
    part: list[DataChunk] = []
    rows = size = 0
    for where, first, batch in source.read_with_places():
        chunk = _chunk(table, batch, where, first)
        for start in range(0, chunk.capacity, most_rows):
            piece = chunk.slice(start, min(most_rows, chunk.capacity - start))
            if part and (rows + piece.capacity > most_rows or size + piece.nbytes > most_bytes):
                yield DataChunk.concat(part)
                part, rows, size = [], 0, 0
            part.append(piece)
            rows, size = rows + piece.capacity, size + piece.nbytes
    if part:
        yield DataChunk.concat(part)


def _chunk(table: TableCatalog, batch: pa.RecordBatch, where: str, first: int) -> DataChunk:
    """`batch` begins with row `first` of the file, from 0. InvalidStatement."""
    chunk = chunk_of_rows(table, batch)
    try:
        check_rows(table, chunk)
    except InvalidValue as error:
        at = f"row {first + error.row + 1} of {where}" if error.row is not None else where
        column = "" if error.column_name is None else f", column {error.column_name!r}"
        raise InvalidStatement(table.name, f"{at}{column}: {error.reason}") from error
    return chunk
