"""Rows as CSV, JSON, Markdown and records, written batch by batch: no more than a batch of them is text at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TextIO

import pyarrow as pa
import pyarrow.compute as pc

from relational.display.cells import NULL, is_number, visible, width_of
from relational.errors import BindError
from relational.expr.eval_context import EvalContext
from relational.expr.kernels.json_values import to_json
from relational.expr.kernels.text_format import to_text
from relational.types import DataType

BATCH_ROWS = 4_096
NEEDS_QUOTES = r'[",\r\n]|^$|^\s|\s$|^\\\.$'


def sql_texts(array: pa.Array) -> pa.Array:
    """The values in the form that CAST to VARCHAR gives them, NULL as NULL."""
    if pa.types.is_string(array.type):
        return array
    try:
        data_type = DataType.from_arrow(array.type)
    except BindError:
        return pa.array([None if value is None else str(value) for value in array.to_pylist()], pa.string())
    return to_text(array.cast(data_type.arrow), data_type)


def json_texts(array: pa.Array) -> pa.Array:
    """The values as JSON, as `to_jsonb` gives them; a NUMERIC with all of its digits."""
    try:
        data_type = DataType.from_arrow(array.type)
    except BindError:
        array, data_type = sql_texts(array), DataType.VARCHAR
    array = array.cast(data_type.arrow)
    if pa.types.is_decimal(array.type) or (data_type.is_float and pc.all(pc.is_finite(array), min_count=0).as_py()):
        return sql_texts(array).fill_null("null")
    whole = to_json(EvalContext((array,), len(array), strict=True), [array], DataType.JSONB)
    assert isinstance(whole, pa.ExtensionArray)
    return whole.storage.fill_null("null")


def write_csv(rows: pa.Table, out: TextIO) -> None:
    """RFC 4180 with line feeds: a header, quotes where they are needed; NULL is empty, an empty text is ""."""
    out.write(",".join(_quoted(pa.array(rows.schema.names, pa.string())).to_pylist()) + "\n")
    for batch in _batches(rows):
        _write_lines([_quoted(sql_texts(column)).fill_null("") for column in batch.columns], ",", out)


def write_json(rows: pa.Table, out: TextIO) -> None:
    """An array of one object a row."""
    between = "[\n"
    for batch in _batches(rows):
        lines = _objects(batch)
        out.write(between + ",\n".join(lines.to_pylist()))
        between = ",\n"
    out.write("[]\n" if between == "[\n" else "\n]\n")


def write_ndjson(rows: pa.Table, out: TextIO) -> None:
    """One object a line."""
    for batch in _batches(rows):
        _write_lines([_objects(batch)], "", out)


def write_markdown(rows: pa.Table, out: TextIO) -> None:
    """A table of GitHub's Markdown."""
    marks = ["---:" if is_number(field.type) else "---" for field in rows.schema]
    names = [each.as_py() for each in _marked_down(pa.array(rows.schema.names, pa.string()))]
    out.write(f"| {' | '.join(names)} |\n| {' | '.join(marks)} |\n")
    for batch in _batches(rows):
        cells = [_marked_down(sql_texts(column)).fill_null(NULL) for column in batch.columns]
        lines = pc.binary_join_element_wise(*cells, " | ")
        _write_lines([pc.binary_join_element_wise("| ", lines, " |", "")], "", out)


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


def _quoted(texts: pa.Array) -> pa.Array:
    needs = pc.match_substring_regex(texts, NEEDS_QUOTES)
    if not pc.any(needs, min_count=0).as_py():
        return texts
    doubled = pc.replace_substring(texts, '"', '""')
    return pc.if_else(needs, pc.binary_join_element_wise('"', doubled, '"', ""), texts)


def _objects(batch: pa.RecordBatch) -> pa.Array:
    parts: list[pa.Array | str] = ["{"]
    for at, (name, column) in enumerate(zip(_distinct(batch.schema.names), batch.columns, strict=True)):
        parts += [f"{', ' if at else ''}{json.dumps(name, ensure_ascii=False)}: ", json_texts(column)]
    if not batch.num_columns:
        return pa.array(["{}"] * batch.num_rows, pa.string())
    return pc.binary_join_element_wise(*parts, "}", "")


def _distinct(names: list[str]) -> list[str]:
    """The names, of which repeated ones get a number: an object has each once."""
    found: dict[str, None] = {}
    for name in names:
        unused, count = name, 0
        while unused in found:
            count += 1
            unused = f"{name}_{count}"
        found[unused] = None
    return list(found)


def _marked_down(texts: pa.Array) -> pa.Array:
    for old, new in (("\\", "\\\\"), ("|", "\\|"), ("\r", ""), ("\n", "<br>")):
        texts = pc.replace_substring(texts, old, new)
    return texts


def _write_lines(columns: list[pa.Array], separator: str, out: TextIO) -> None:
    lines = pc.binary_join_element_wise(*columns, separator) if len(columns) > 1 else columns[0]
    out.write("\n".join(lines.to_pylist()) + "\n")
