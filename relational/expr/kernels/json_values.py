"""Functions of JSONB values, called once per distinct combination of arguments.

A value arrives as its canonical text (see chunk/json); numbers are Decimals in between, so none loses a digit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from math import inf, isfinite
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.chunk.json import canonical_json
from relational.chunk.json_members import json_members, json_strings
from relational.errors import EncodingError
from relational.expr.eval_context import EvalContext, Value, python_value
from relational.expr.kernels.per_value import NoValue, json_column
from relational.expr.signature import Kernel
from relational.types.data_type import DataType, TypeKind
from relational.types.interval import Interval

_MISSING = object()
_INFINITE = {inf: "Infinity", -inf: "-Infinity"}
_NUMBER_KINDS = (TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT, TypeKind.NUMERIC)


def parsed(text: str) -> Any:
    """The value of a text, with Decimals for numbers."""
    return json.loads(text, parse_float=Decimal, parse_int=Decimal, parse_constant=_refused)


def _refused(word: str) -> Any:
    raise NoValue("invalid text for JSONB")


def written(value: Any) -> str:
    """The text of a value."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    if isinstance(value, dict):
        members = (f"{json.dumps(key, ensure_ascii=False)}:{written(each)}" for key, each in value.items())
        return "{" + ",".join(members) + "}"
    return json.dumps(value, ensure_ascii=False)


def _canonical(value: Any) -> str:
    """The text in the form that JSONB is stored in, which `->>` shows."""
    try:
        return canonical_json(pa.array([written(value)], pa.string()))[0].as_py()
    except EncodingError:
        raise NoValue("invalid text for JSONB") from None


def _member(value: Any, key: str | int) -> Any:
    if isinstance(value, dict) and isinstance(key, str):
        return value.get(key, _MISSING)
    if isinstance(value, list) and isinstance(key, int):
        return value[key] if -len(value) <= key < len(value) else _MISSING
    return _MISSING


def _at_path(value: Any, path: Sequence[str | None]) -> Any:
    for key in path:
        if key is None:
            return _MISSING
        value = _member(value, _index(key) if isinstance(value, list) else key)
    return value


def _index(key: str) -> int | str:
    digits = key.strip().removeprefix("-")
    return int(key) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else key


def _json(value: Any) -> str | None:
    return None if value is _MISSING else written(value)


def text_of(value: Any) -> str | None:
    """A string itself, the text of any other value; NULL for JSON's null."""
    if value is _MISSING or value is None:
        return None
    return value if isinstance(value, str) else _canonical(value)


def member(as_text: bool, other: Kernel) -> Kernel:
    """The kernel of -> and ->>: compiled for a constant key, else `other`."""

    def kernel(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
        column, key = args
        if isinstance(column, pa.Scalar) or not isinstance(key, pa.Scalar) or not key.is_valid:
            return other(evaluation, args, result)
        found = json_members(column.storage, [key.as_py()], not as_text)
        return _unquoted(found) if as_text else pa.ExtensionArray.from_storage(result.arrow, found)

    return kernel


def _unquoted(texts: pa.Array) -> pa.Array:
    """JSON texts with strings as they are: without quotes, and their escapes resolved once per distinct text."""
    is_string = pc.fill_null(pc.starts_with(texts, '"'), False)
    plain = pc.if_else(is_string, pc.utf8_slice_codeunits(texts, 1, -1), texts)
    is_escaped = pc.and_(is_string, pc.fill_null(pc.match_substring(texts, "\\"), False))
    if not pc.any(is_escaped).as_py():
        return plain
    encoded = texts.filter(is_escaped).dictionary_encode()
    resolved = pa.array([json.loads(text) for text in encoded.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(plain, is_escaped, resolved.take(encoded.indices))


def get(text: str, key: str | int) -> str | None:
    """The member of an object or the element of an array, from the end if it is negative."""
    return _json(_member(parsed(text), key))


def get_text(text: str, key: str | int) -> str | None:
    return text_of(_member(parsed(text), key))


def at_path(text: str, path: list[str | None]) -> str | None:
    """The value at a path of keys and positions."""
    return _json(_at_path(parsed(text), path))


def at_path_text(text: str, path: list[str | None]) -> str | None:
    return text_of(_at_path(parsed(text), path))


def extract_path(text: str, *path: str) -> str | None:
    return at_path(text, list(path))


def extract_path_text(text: str, *path: str) -> str | None:
    return at_path_text(text, list(path))


def type_of(text: str) -> str:
    """object, array, string, number, boolean or null."""
    words = {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}
    return words.get(text[0], "number")


def array_length(text: str) -> int:
    if text[0] != "[":
        raise NoValue("this JSON is no array")
    return len(parsed(text))


def exists(text: str, key: str) -> bool:
    """Whether it is an object with this key, an array with this string, or this string."""
    return _has(parsed(text), key)


def _has(value: Any, key: str) -> bool:
    return key == value if isinstance(value, str) else isinstance(value, dict | list) and key in value


def exists_any(text: str, keys: list[str | None]) -> bool:
    value = parsed(text)
    return any(_has(value, key) for key in keys if key is not None)


def exists_all(text: str, keys: list[str | None]) -> bool:
    value = parsed(text)
    return all(_has(value, key) for key in keys if key is not None)


def contains(text: str, other: str) -> bool:
    """Whether all members and elements of `other` are in it; an array contains a plain value too."""
    whole, part = parsed(text), parsed(other)
    if isinstance(whole, list) and not isinstance(part, dict | list):
        return any(_equal(each, part) for each in whole)
    return _contains(whole, part)


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(key in whole and _contains(whole[key], each) for key, each in part.items())
    if isinstance(whole, list) and isinstance(part, list):
        return all(any(_contains(each, wanted) for each in whole) for wanted in part)
    return _equal(whole, part)


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a == b


def concatenated(text: str, other: str) -> str:
    """Two objects merged, else two arrays appended, where a value that is no array is one of itself."""
    left, right = parsed(text), parsed(other)
    if isinstance(left, dict) and isinstance(right, dict):
        return written({**left, **right})
    lists = [each if isinstance(each, list) else [each] for each in (left, right)]
    return written(lists[0] + lists[1])


def without(text: str, key: str | int) -> str:
    """Without a member of an object, a string of an array, or an element at a position."""
    value = parsed(text)
    if isinstance(key, int):
        if not isinstance(value, list):
            raise NoValue("an element is deleted from an array only")
        at = key + len(value) if key < 0 else key
        return written([each for position, each in enumerate(value) if position != at])
    return without_all(text, [key])


def without_all(text: str, keys: list[str | None]) -> str:
    value = parsed(text)
    if isinstance(value, dict):
        return written({key: each for key, each in value.items() if key not in keys})
    if not isinstance(value, list):
        raise NoValue("a plain JSON value has nothing to delete")
    return written([each for each in value if not (isinstance(each, str) and each in keys)])


def without_path(text: str, path: list[str | None]) -> str:
    """Without the value at a path; unchanged if there is none."""
    return _changed(text, path, lambda holder, key: holder.pop(key))


def with_path(text: str, path: list[str | None], value: str, create: bool = True) -> str:
    """With another value at a path; a missing member or element is added if `create`."""

    def put(holder: Any, key: str | int) -> None:
        holder[key] = parsed(value)

    def add(holder: Any, key: str | int) -> None:
        if isinstance(holder, dict):
            holder[str(key)] = parsed(value)
        else:
            holder.insert(0 if int(key) < 0 else len(holder), parsed(value))

    return _changed(text, path, put, add if create else None)


def inserted(text: str, path: list[str | None], value: str, after: bool = False) -> str:
    """With a value in front of the element at a path, or after it; a member that exists is refused."""

    def put(holder: Any, key: str | int) -> None:
        if isinstance(holder, dict):
            raise NoValue("this key exists already")
        at = int(key) + len(holder) if int(key) < 0 else int(key)
        holder.insert(at + after, parsed(value))

    def add(holder: Any, key: str | int) -> None:
        if isinstance(holder, dict):
            holder[str(key)] = parsed(value)
        else:
            holder.insert(0 if int(key) < 0 else len(holder), parsed(value))

    return _changed(text, path, put, add)


def _changed(text: str, path: list[str | None], change: Any, add: Any = None) -> str:
    """`change` applied to the holder and key at a path, `add` where it has no such key."""
    if None in path:
        raise NoValue("a path has no NULL")
    value = parsed(text)
    if not isinstance(value, dict | list):
        raise NoValue("a plain JSON value has no path")
    if not path:
        return written(value)
    holder = _at_path(value, path[:-1])
    if not isinstance(holder, dict | list):
        return written(value)
    key: Any = path[-1]
    if isinstance(holder, list):
        key = _index(key)
        if isinstance(key, str):
            raise NoValue("a position of a path is no integer")
    if _member(holder, key) is not _MISSING:
        change(holder, key)
    elif add is not None:
        add(holder, key)
    return written(value)


def strip_nulls(text: str) -> str:
    """Without members that are null, at every depth."""

    def stripped(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: stripped(each) for key, each in value.items() if each is not None}
        return [stripped(each) for each in value] if isinstance(value, list) else value

    return written(stripped(parsed(text)))


def pretty(text: str) -> str:
    """In lines, indented by four spaces."""

    def lines(value: Any, indent: str) -> str:
        deeper = indent + "    "
        if isinstance(value, dict):
            members = [f"{deeper}{written(key)}: {lines(each, deeper)}" for key, each in value.items()]
            return "{\n" + ",\n".join(members) + f"\n{indent}}}"
        if isinstance(value, list):
            return "[\n" + ",\n".join(deeper + lines(each, deeper) for each in value) + f"\n{indent}]"
        return written(value)

    return lines(parsed(text), "")


def object_of_texts(keys: list[str | None], values: list[str | None] | None = None) -> str:
    """An object of strings: of keys and values in turns, or of a list each."""
    if values is None:
        if len(keys) % 2:
            raise NoValue("an object needs a value for each key")
        keys, values = keys[::2], keys[1::2]
    if len(keys) != len(values) or None in keys:
        raise NoValue("an object needs a value for each key")
    return written(dict(zip(keys, values, strict=True)))


def to_json(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
    """The JSON value of any value."""
    column = evaluation.column(args[0])
    data_type = DataType.from_arrow(column.type) if not _is_json(column.type) else DataType.JSONB
    known = _plain_json(column, data_type)
    if known is not None:
        return pa.ExtensionArray.from_storage(result.arrow, known)
    plain = [python_value(value) for value in column]
    texts = [None if value is None else written(json_value(value, data_type)) for value in plain]
    return _column(evaluation, texts)


def _plain_json(column: pa.Array, data_type: DataType) -> pa.Array | None:
    """The texts of a column of a type whose values need no look at each of them; None for other types."""
    if data_type.kind is TypeKind.VARCHAR:
        has_zeros = pc.any(pc.match_substring(column, "\0")).as_py()  # which no JSON text has
        return None if has_zeros else json_strings(column)
    if data_type.is_integer:
        return column.cast(pa.utf8())
    if data_type.kind is TypeKind.BOOLEAN:
        return pc.if_else(column, "true", "false")
    return column.storage if data_type.kind is TypeKind.JSONB else None


def build_array(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
    """An array of the arguments of each row; NULL is null."""
    rows = _rows_of_json(evaluation, args)
    return _column(evaluation, [written(list(values)) for values in rows])


def build_object(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
    """An object of keys and values in turns."""
    values = []
    failed = [False] * evaluation.rows
    for at, given in enumerate(_rows_of_json(evaluation, args)):
        keys = given[::2]
        failed[at] = any(key is None for key in keys)
        texts = [key if isinstance(key, str) else written(key) for key in keys]
        values.append(None if failed[at] else written(dict(zip(texts, given[1::2], strict=True))))
    evaluation.fail(np.array(failed), "a key of an object is NULL")
    return _column(evaluation, values)


def _column(evaluation: EvalContext, texts: list[str | None]) -> pa.Array:
    column, bad = json_column(texts)
    evaluation.fail(bad, "invalid text for JSONB")
    return column


def _rows_of_json(evaluation: EvalContext, args: list[Value]) -> list[tuple[Any, ...]]:
    columns = []
    for arg in args:
        column = evaluation.column(arg)
        data_type = DataType.JSONB if _is_json(column.type) else DataType.from_arrow(column.type)
        columns.append([json_value(python_value(value), data_type) for value in column])
    return list(zip(*columns, strict=True)) if columns else [()] * evaluation.rows


def _is_json(arrow: pa.DataType) -> bool:
    return isinstance(arrow, pa.BaseExtensionType)


def json_value(value: Any, data_type: DataType) -> Any:
    """The value as one of JSON, with Decimals for numbers; dates and times as their texts."""
    if value is None or isinstance(value, bool):
        return value
    if data_type.kind is TypeKind.JSONB:
        return parsed(value)
    if data_type.kind in _NUMBER_KINDS:
        return Decimal(value)
    if data_type.is_float:
        return Decimal(repr(value)) if isfinite(value) else _INFINITE.get(value, "NaN")
    if data_type.element is not None:
        return [json_value(each, data_type.element) for each in value]
    if data_type.fields:
        return {field.name: json_value(value[field.name], field.data_type) for field in data_type.fields}
    return _plain_text(value)


def _plain_text(value: Any) -> str:
    if isinstance(value, datetime | time) and value.microsecond:
        whole, fraction = value.isoformat(timespec="microseconds").split(".")
        return f"{whole}.{fraction[:6].rstrip('0')}{fraction[6:]}"
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, pa.MonthDayNano):
        return str(Interval.from_arrow(value))
    return str(value)
