"""Types that hold the values of a text file where Arrow guesses one that loses some: whole numbers beyond those of a
DOUBLE, and times with a zone or a fraction in JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from relational.errors import BindError
from relational.types.data_type import DEFAULT_SCALE, MAX_PRECISION

MOST_EXACT = str(1 << 53)
"""Up to here a DOUBLE has every whole number."""
LONG_NUMBER = re.compile(rb"[0-9]{%d}" % len(MOST_EXACT))
WHOLE, PLAIN = r"^-?[0-9]+$", r"^-?[0-9]*\.?[0-9]*$"
MOMENTS = (pa.timestamp("us", "UTC"), pa.timestamp("us"))


def has_long_numbers(text: pa.Buffer | bytes) -> bool:
    """Whether a text may have a whole number that a DOUBLE does not hold."""
    return LONG_NUMBER.search(memoryview(text)) is not None


def number_type(texts: pa.Array | pa.ChunkedArray) -> pa.DataType:
    """The type of numbers, given as texts, that Arrow takes for doubles. Without a whole number beyond MOST_EXACT these
    are right. With one NUMERIC holds all, or if they have too many digits or exponents, only text does; but where each
    such whole number is what is shown of a double, doubles are what was written."""
    values = pc.unique(pc.ascii_trim_whitespace(texts.drop_null()))
    long = _long_whole(values)
    if not len(long):
        return pa.float64()
    if not pc.all(pc.match_substring_regex(values, PLAIN)).as_py():
        is_shown = all(Decimal(repr(float(text))) == Decimal(text) for text in long.to_pylist())
        return pa.float64() if is_shown else pa.utf8()
    before = _most_characters(values, r"^-?0*|\..*$")
    after = _most_characters(values, r"^[^.]*\.?|0+$")
    scale = max(after, min(DEFAULT_SCALE, MAX_PRECISION - before)) if after else 0
    return pa.decimal128(MAX_PRECISION, scale) if before + scale <= MAX_PRECISION else pa.utf8()


def _long_whole(values: pa.Array) -> pa.Array:
    whole = values.filter(pc.match_substring_regex(values, WHOLE))
    digits = pc.replace_substring_regex(whole, r"^-?0*", "")
    length, most = pc.utf8_length(digits), len(MOST_EXACT)
    return whole.filter(pc.or_(pc.greater(length, most),
                               pc.and_(pc.equal(length, most), pc.greater(digits, MOST_EXACT))))


def _most_characters(values: pa.Array, without: str) -> int:
    """The length of the longest value without the parts that match."""
    return int(pc.max(pc.utf8_length(pc.replace_substring_regex(values, without, ""))).as_py())


def has_doubles(arrow: pa.DataType) -> bool:
    """Whether the type is DOUBLE at any level."""
    return pa.types.is_floating(arrow) or any(has_doubles(arrow.field(at).type) for at in range(arrow.num_fields))


def json_objects(text: bytes) -> list[dict[str, Any]]:
    """The objects of a text with one a line; their numbers are the texts that they have there."""
    found = []
    for line in text.splitlines():
        with suppress(ValueError, RecursionError):  # what no reader takes for a row, and its error names
            value = json.loads(line, parse_int=str, parse_float=str)
            if isinstance(value, dict):
                found.append(value)
    return found


def with_long_numbers(arrow: pa.DataType, values: Sequence[Any]) -> pa.DataType:
    """Arrow's guess for JSON values, from `json_objects`, with the types of `number_type` at any level. BindError where
    that is text, which a number of JSON is not read as."""
    if pa.types.is_floating(arrow):
        found = number_type(pa.array([value for value in values if isinstance(value, str)], pa.utf8()))
        if pa.types.is_string(found):
            raise BindError("no type has all digits of its whole numbers and holds its other numbers")
        return found
    if pa.types.is_list(arrow):
        elements = [each for value in values if isinstance(value, list) for each in value]
        return pa.list_(with_long_numbers(arrow.value_type, elements))
    if pa.types.is_struct(arrow):
        objects = [value for value in values if isinstance(value, Mapping)]
        return pa.struct([
            field.with_type(with_long_numbers(field.type, [each.get(field.name) for each in objects]))
            for field in arrow
        ])
    return arrow


def with_moments(array: pa.Array) -> pa.DataType:
    """The type of the array, whose moments are texts, with TIMESTAMPTZ for texts that are all moments with a zone, at
    any level, and TIMESTAMP for moments without one."""
    if pa.types.is_string(array.type):
        return _moment_type(array)
    if pa.types.is_list(array.type):
        return pa.list_(with_moments(array.flatten()))
    if pa.types.is_struct(array.type):
        return pa.struct([field.with_type(with_moments(part))
                          for field, part in zip(array.type, array.flatten(), strict=True)])
    return array.type


def _moment_type(texts: pa.Array) -> pa.DataType:
    if texts.null_count == len(texts):
        return texts.type
    for wanted in MOMENTS:
        with suppress(pa.ArrowInvalid):
            texts.cast(wanted)
            return wanted
    return texts.type
