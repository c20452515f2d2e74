"""Kernels of LIST and STRUCT: constructed from parts, cast part by part, formatted and parsed as PostgreSQL does.

A part without a value fails the whole row. Elements of a list are one column, so a cast of lists is one cast of all
their elements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.expr.eval_context import Attempt, EvalContext, Value, bitmap, null_where, valid_rows
from relational.types.data_type import DataType, TypeKind

Cast = Callable[[EvalContext, Value, DataType, DataType], Value]
Split = Callable[[str], list[str | None] | None]

_ITEM = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|((?:[^",{}\\]|\\.)+))\s*', re.DOTALL)
_BRACES = re.compile(r'"(?:[^"\\]|\\.)*"|\\.|[{}]', re.DOTALL)
_FIELD = re.compile(r'(?:"(?:[^"\\]|\\.|"")*"|[^",()\\]|\\.)*', re.DOTALL)
_ESCAPED = re.compile(r'"((?:[^"\\]|\\.|"")*)"|\\(.)', re.DOTALL)
_QUOTED_ITEM = r'^$|^(?i:null)$|[\s{},"\\]'
_QUOTED_FIELD = r'^$|[\s(),"\\]'


class Parts(Attempt):
    """An evaluation of parts of other rows: failures of parts are recorded, and fail those rows afterwards."""

    __slots__ = ()

    def fail_rows(self, evaluation: EvalContext, counted: np.ndarray, owners: np.ndarray | None = None) -> np.ndarray:
        """bool[counted]: the rows with a failed part, each reported to `evaluation` with its first reason if it is
        `counted`. `owners`: the row of each part; None: one part per row.
        """
        failed = np.zeros(len(counted), np.bool_)
        for parts, reason in self.failures:
            rows = parts
            if owners is not None:
                rows = np.zeros(len(counted), np.bool_)
                rows[owners[parts]] = True
            evaluation.fail(rows & counted & ~failed, reason)
            failed |= rows
        return failed

    def cast(self, cast: Cast, values: pa.Array, source: DataType, target: DataType) -> pa.Array:
        """`values`, one per row, as `target`."""
        if not self.rows:
            return pa.nulls(0, target.arrow)
        return self.column(cast(self, values, source, target))


def elements(array: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """(offsets of the lists, starting with 0: int32[rows + 1]; the elements between them)."""
    offsets = array.offsets.to_numpy(zero_copy_only=False)
    return offsets - offsets[0], array.values.slice(offsets[0], offsets[-1] - offsets[0])


def cast_list(evaluation: EvalContext, array: pa.Array, source: DataType, target: DataType, cast: Cast) -> pa.Array:
    """Element by element."""
    assert source.element is not None
    ends, values = elements(array)
    return _list(evaluation, ends, values, source.element, valid_rows(array), target, cast)


def cast_struct(evaluation: EvalContext, array: pa.Array, source: DataType, target: DataType, cast: Cast) -> pa.Array:
    """Field by field, matched by position."""
    return _struct(evaluation, array.flatten(), source.children, valid_rows(array), target, cast)


def _list(
    evaluation: EvalContext,
    ends: np.ndarray,
    values: pa.Array,
    source: DataType,
    valid: np.ndarray,
    target: DataType,
    cast: Cast,
) -> pa.Array:
    assert target.element is not None
    parts = Parts(len(values))
    made = parts.cast(cast, values, source, target.element)
    failed = parts.fail_rows(evaluation, valid, np.repeat(np.arange(len(valid)), np.diff(ends)))
    return list_of(target, ends, made, valid & ~failed)


def _struct(
    evaluation: EvalContext,
    fields: Sequence[pa.Array],
    sources: Sequence[DataType],
    valid: np.ndarray,
    target: DataType,
    cast: Cast,
) -> pa.Array:
    parts = Parts(len(valid))
    made = [parts.cast(cast, *each) for each in zip(fields, sources, target.children, strict=True)]
    failed = parts.fail_rows(evaluation, valid)
    return struct_of(target, made, valid & ~failed)


def list_of(data_type: DataType, ends: np.ndarray, values: pa.Array, valid: np.ndarray) -> pa.Array:
    """The lists with the offsets `ends` (int32[rows + 1]) into `values`, NULL where not `valid` (bool[rows])."""
    buffers = [bitmap(valid), pa.py_buffer(np.ascontiguousarray(ends, np.int32))]
    return pa.Array.from_buffers(data_type.arrow, len(valid), buffers, children=[values])


def struct_of(data_type: DataType, fields: Sequence[pa.Array], valid: np.ndarray) -> pa.Array:
    return pa.Array.from_buffers(data_type.arrow, len(valid), [bitmap(valid)], children=list(fields))


def make_list(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
    """ARRAY[…]: the values of each row as a list."""
    rows, count = evaluation.rows, len(args)
    order = np.arange(rows * count).reshape(count, rows).T.ravel()
    values = pa.concat_arrays([evaluation.column(arg) for arg in args]).take(pa.array(order))
    return list_of(result, np.arange(rows + 1) * count, values, np.ones(rows, np.bool_))


def make_struct(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
    """ROW(…)."""
    fields = [evaluation.column(arg) for arg in args]
    return struct_of(result, fields, np.ones(evaluation.rows, np.bool_))


def list_text(array: pa.Array, element: DataType, to_text: Callable[[pa.Array, DataType], pa.Array]) -> pa.Array:
    """`{1,NULL,"a b",{2}}`."""
    ends, values = elements(array)
    texts = _part_text(values, element, to_text)
    if element.kind is not TypeKind.LIST:
        texts = _quoted(texts, _QUOTED_ITEM, r"\\\1")
    lists = list_of(DataType.list_of(DataType.VARCHAR), ends, pc.fill_null(texts, "NULL"), valid_rows(array))
    return pc.binary_join_element_wise("{", pc.binary_join(lists, ","), "}", "")


def struct_text(
    array: pa.Array, types: Sequence[DataType], to_text: Callable[[pa.Array, DataType], pa.Array]
) -> pa.Array:
    """`(1,,"a b")`: an empty field is NULL."""
    parts = zip(array.flatten(), types, strict=True)
    fields = [
        pc.fill_null(_quoted(_part_text(part, each, to_text), _QUOTED_FIELD, r"\1\1"), "") for part, each in parts
    ]
    text = pc.binary_join_element_wise("(", pc.binary_join_element_wise(*fields, ","), ")", "")
    return null_where(text, ~valid_rows(array)) if array.null_count else text


def _part_text(values: pa.Array, data_type: DataType, to_text: Callable[[pa.Array, DataType], pa.Array]) -> pa.Array:
    if data_type.kind is TypeKind.BOOLEAN:
        return pc.if_else(values, "t", "f")
    return values if data_type.kind is TypeKind.VARCHAR else to_text(values, data_type)


def _quoted(texts: pa.Array, pattern: str, escape: str) -> pa.Array:
    """Quoted where the pattern matches; `escape` replaces a quote or a backslash."""
    escaped = pc.replace_substring_regex(texts, r'(["\\])', escape)
    quoted = pc.binary_join_element_wise('"', escaped, '"', "")
    return pc.if_else(pc.match_substring_regex(texts, pattern), quoted, texts)


def list_of_text(evaluation: EvalContext, array: pa.Array, target: DataType, cast: Cast) -> pa.Array:
    """Parses texts as lists."""
    split, valid = _split_rows(evaluation, array, target, split_items)
    ends = np.cumsum([0, *(0 if parts is None else len(parts) for parts in split)])
    texts = pa.array([part for parts in split if parts is not None for part in parts], pa.string())
    return _list(evaluation, ends, texts, DataType.VARCHAR, valid, target, cast)


def struct_of_text(evaluation: EvalContext, array: pa.Array, target: DataType, cast: Cast) -> pa.Array:
    """Parses texts as rows."""
    count = len(target.fields)

    def split_exactly(text: str) -> list[str | None] | None:
        fields = split_fields(text)
        return fields if fields is not None and len(fields) == count else None

    split, valid = _split_rows(evaluation, array, target, split_exactly)
    columns = [pa.array([None if row is None else row[at] for row in split], pa.string()) for at in range(count)]
    return _struct(evaluation, columns, [DataType.VARCHAR] * count, valid, target, cast)


def _split_rows(
    evaluation: EvalContext, array: pa.Array, target: DataType, split: Split
) -> tuple[list[list[str | None] | None], np.ndarray]:
    """The parts of each text, None where it is NULL or malformed; and bool[rows] of the malformed ones."""
    found = [None if text is None else split(text) for text in array.to_pylist()]
    good = np.array([parts is not None for parts in found], np.bool_)
    evaluation.fail(valid_rows(array) & ~good, f"invalid text for {target}")
    return found, good


def split_items(text: str) -> list[str | None] | None:
    """The texts of a list's elements, None for NULL; None if the text is not a list. Nested lists stay one text."""
    if len(text) < 2 or text[0] != "{" or text[-1] != "}":
        return None
    at, end = 1, len(text) - 1
    found: list[str | None] = []
    if not text[at:end].strip():
        return found
    while True:
        while text[at].isspace():
            at += 1
        if text[at] == "{":
            start, at = at, _closing(text, at)
            found.append(text[start:at])
            while at < end and text[at].isspace():
                at += 1
        else:
            match = _ITEM.match(text, at, end)
            if match is None or (match[1] is None and not match[2].strip()):
                return None
            bare = (match[2] or "").strip()
            written = re.sub(r"\\(.)", r"\1", match[1] if match[1] is not None else bare, flags=re.DOTALL)
            found.append(None if match[1] is None and bare.lower() == "null" else written)
            at = match.end()
        if at >= end:
            return found if at == end else None
        if text[at] != ",":
            return None
        at += 1


def _closing(text: str, at: int) -> int:
    """One past the brace that closes the one at `at`; the end of the text if there is none."""
    depth = 0
    for match in _BRACES.finditer(text, at):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return match.end()
    return len(text)


def split_fields(text: str) -> list[str | None] | None:
    """The texts of a row's fields, None for NULL; None if the text is not a row."""
    if len(text) < 2 or text[0] != "(" or text[-1] != ")":
        return None
    at, end = 1, len(text) - 1
    found: list[str | None] = []
    while True:
        match = _FIELD.match(text, at, end)
        assert match is not None, text
        found.append(_ESCAPED.sub(_unescaped, match[0]) if match[0] else None)
        at = match.end()
        if at == end:
            return found
        if text[at] != ",":
            return None
        at += 1


def _unescaped(match: re.Match[str]) -> str:
    return match[2] if match[1] is None else re.sub(r'""|\\(.)', lambda part: part[1] or '"', match[1], flags=re.DOTALL)
