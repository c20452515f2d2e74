"""Rows as the text of files: values in the form of SQL or of JSON, lines of CSV, and JSON objects.

A batch becomes an Arrow array of its lines, and that bytes, without a Python object for each row."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from relational.errors import BindError
from relational.expr.eval_context import EvalContext
from relational.expr.kernels.json_values import to_json
from relational.expr.kernels.text_format import to_text
from relational.types import DataType

_PLAIN_TYPES = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_date, pa.types.is_boolean)
_OF_PLAIN = frozenset("0123456789+-.eINafilnrstuy")
"""Characters in texts of these types: digits, signs, exponents, Infinity, NaN, true and false."""


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


def csv_lines(columns: Sequence[pa.Array], delimiter: str = ",", quote: str = '"', null: str = "") -> pa.Array:
    """A line for each row, without its end: RFC 4180, with quotes where they are needed; NULL is `null`, a text that is
    written so is quoted. REQUIRES a column."""
    cells = [_cells(column, delimiter, quote, null).fill_null(null) for column in columns]
    return pc.binary_join_element_wise(*cells, delimiter) if len(cells) > 1 else cells[0]


def json_objects(batch: pa.RecordBatch) -> pa.Array:
    """A JSON object for each row."""
    parts: list[pa.Array | str] = ["{"]
    for at, (name, column) in enumerate(zip(_distinct(batch.schema.names), batch.columns, strict=True)):
        parts += [f"{', ' if at else ''}{json.dumps(name, ensure_ascii=False)}: ", json_texts(column)]
    if not batch.num_columns:
        return pa.array(["{}"] * batch.num_rows, pa.string())
    return pc.binary_join_element_wise(*parts, "}", "")


def lines_as_bytes(lines: pa.Array) -> pa.Buffer:
    """The lines, each with a line feed. REQUIRES that none is NULL."""
    ended = pc.binary_join_element_wise(lines, "", "\n")
    _, offsets, data = ended.buffers()
    if not len(ended):
        return pa.py_buffer(b"")
    ends = pa.Array.from_buffers(pa.int32(), len(ended) + 1, [None, offsets], offset=ended.offset)
    first, last = ends[0].as_py(), ends[-1].as_py()
    return data.slice(first, last - first)


def _cells(column: pa.Array, delimiter: str, quote: str, null: str) -> pa.Array:
    texts = sql_texts(column)
    is_plain = any(test(column.type) for test in _PLAIN_TYPES) and not {delimiter, quote} & _OF_PLAIN and not null
    return texts if is_plain else _quoted(texts, delimiter, quote, null)


def _quoted(texts: pa.Array, delimiter: str, quote: str, null: str) -> pa.Array:
    special = "".join(f"\\x{ord(each):02x}" for each in {delimiter, quote, "\r", "\n"})
    needs = pc.match_substring_regex(texts, rf"[{special}]|^$|^\s|\s$|^\\\.$")
    if null:
        needs = pc.or_(needs, pc.equal(texts, null))
    if not pc.any(needs, min_count=0).as_py():
        return texts
    doubled = pc.replace_substring(texts, quote, quote * 2)
    return pc.if_else(needs, pc.binary_join_element_wise(quote, doubled, quote, ""), texts)


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
