"""Rows as CSV, JSON, Markdown and records, written batch by batch: no more than a batch of them is text at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TextIO

import pyarrow as pa
import pyarrow.compute as pc

from relational.display.cells import NULL, is_number, visible, width_of
from relational.display.text_rows import csv_lines, json_objects, sql_texts

BATCH_ROWS = 4_096


def write_csv(rows: pa.Table, out: TextIO) -> None:
    """RFC 4180 with line feeds: a header, quotes where they are needed; NULL is empty, an empty text is ""."""
    _write_lines(csv_lines([pa.array([name]) for name in rows.schema.names]), out)
    for batch in _batches(rows):
        _write_lines(csv_lines(batch.columns), out)


def write_json(rows: pa.Table, out: TextIO) -> None:
    """An array of one object a row."""
    between = "[\n"
    for batch in _batches(rows):
        lines = json_objects(batch)
        out.write(between + ",\n".join(lines.to_pylist()))
        between = ",\n"
    out.write("[]\n" if between == "[\n" else "\n]\n")


def write_ndjson(rows: pa.Table, out: TextIO) -> None:
    """One object a line."""
    for batch in _batches(rows):
        _write_lines(json_objects(batch), out)


def write_markdown(rows: pa.Table, out: TextIO) -> None:
    """A table of GitHub's Markdown."""
    marks = ["---:" if is_number(field.type) else "---" for field in rows.schema]
    names = [each.as_py() for each in _marked_down(pa.array(rows.schema.names, pa.string()))]
    out.write(f"| {' | '.join(names)} |\n| {' | '.join(marks)} |\n")
    for batch in _batches(rows):
        cells = [_marked_down(sql_texts(column)).fill_null(NULL) for column in batch.columns]
        lines = pc.binary_join_element_wise(*cells, " | ")
        _write_lines(pc.binary_join_element_wise("| ", lines, " |", ""), out)


def write_records(rows: pa.Table, out: TextIO) -> None:
    """Each row as lines of a column and its value: `\\x` of psql."""
    names = [visible(name) for name in rows.schema.names]
    widest = max(map(width_of, names), default=0)
    number = 0
    for batch in _batches(rows):
        columns = [sql_texts(column).to_pylist() for column in batch.columns]
        for row in range(batch.num_rows):
            number += 1
            lines = [f"─[ {number} ]".ljust(widest + 3, "─")]
            for name, column in zip(names, columns, strict=True):
                value = column[row]
                cell = NULL if value is None else "\n".join(map(visible, value.split("\n")))
                indented = cell.replace("\n", "\n" + " " * widest + " │ ")
                lines.append(f"{name}{' ' * (widest - width_of(name))} │ {indented}".rstrip())
            out.write("\n".join(lines) + "\n")


WRITERS: Mapping[str, Callable[[pa.Table, TextIO], None]] = {
    "csv": write_csv,
    "json": write_json,
    "ndjson": write_ndjson,
    "markdown": write_markdown,
}
"""Formats that are the same wherever they are written."""


def _batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    return (batch for batch in rows.to_batches(BATCH_ROWS) if batch.num_rows)


def _marked_down(texts: pa.Array) -> pa.Array:
    for old, new in (("\\", "\\\\"), ("|", "\\|"), ("\r", ""), ("\n", "<br>")):
        texts = pc.replace_substring(texts, old, new)
    return texts


def _write_lines(lines: pa.Array, out: TextIO) -> None:
    out.write("\n".join(lines.to_pylist()) + "\n")
