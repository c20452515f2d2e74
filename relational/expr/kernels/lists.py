"""Kernels of LIST and STRUCT values: subscripts, slices, ANY and ALL, fields; and functions of single lists.

Positions count from 1, and a position outside of a list is NULL. Subscripts, slices, ANY and ALL are columnar; the
functions of Python lists below are called once per row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from relational.expr.eval_context import EvalContext, Value, booleans, from_numbers, null_where, numbers, valid_rows
from relational.expr.kernels import nested
from relational.expr.kernels.per_value import NoValue, limited
from relational.expr.signature import Kernel
from relational.types.data_type import DataType


def subscript(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
    """x[i]"""
    column, at = (evaluation.column(arg) for arg in args)
    starts, values = nested.elements(column)
    position = numbers(at, "<i4").astype(np.int64)
    inside = (position >= 1) & (position <= np.diff(starts)) & valid_rows(column) & valid_rows(at)
    source = np.where(inside, starts[:-1] + position - 1, 0)
    return values.take(pa.array(source, mask=~inside))


def sliced(has_start: bool, has_end: bool) -> Kernel:
    """The kernel of x[from:to], where an end may be omitted."""

    def kernel(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
        columns = [evaluation.column(arg) for arg in args]
        valid = np.logical_and.reduce([valid_rows(column) for column in columns])
        starts, values = nested.elements(columns[0])
        sizes = np.diff(starts).astype(np.int64)
        bounds = iter(numbers(column, "<i4").astype(np.int64) for column in columns[1:])
        first = np.maximum(next(bounds), 1) if has_start else np.ones_like(sizes)
        last = np.minimum(next(bounds), sizes) if has_end else sizes
        counts = np.where(valid, np.maximum(last - first + 1, 0), 0)
        ends = np.concatenate(([0], np.cumsum(counts)))
        source = np.arange(ends[-1]) + np.repeat(starts[:-1] + first - 1 - ends[:-1], counts)
        return nested.list_of(result, ends, values.take(pa.array(source)), valid)

    return kernel


def quantified(compare: Kernel, of_all: bool) -> Kernel:
    """The kernel of x ANY (list), or ALL, for a comparison of two values: NULL where an unknown one decides."""

    def kernel(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
        needle, column = (evaluation.column(arg) for arg in args)
        valid = valid_rows(column)
        starts, values = nested.elements(column)
        owners = np.repeat(np.arange(len(column)), np.diff(starts))
        parts = nested.Parts(len(values))
        found = compare(parts, [needle.take(pa.array(owners)), values], result)
        failed = parts.fail_rows(evaluation, valid, owners)
        known = valid_rows(found)
        is_decided, is_open = np.zeros((2, len(column)), np.bool_)
        is_decided[owners[known & (booleans(found) != of_all)]] = True
        is_open[owners[~known]] = True
        return pa.array(is_decided != of_all, mask=(is_open & ~is_decided) | ~valid | failed)

    return kernel


def field(position: int) -> Kernel:
    """The kernel of the field of a row at a position from 1."""

    def kernel(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
        column = evaluation.column(args[0])
        value = column.field(position - 1)
        missing = ~valid_rows(column)
        return null_where(value, missing) if missing.any() else value

    return kernel


def cardinality(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
    """The number of elements, of the lists inside for lists of lists."""
    column = evaluation.column(args[0])
    ends, values = nested.elements(column)
    valid = valid_rows(column)
    while pa.types.is_list(values.type):
        inner, values = nested.elements(values)
        ends = inner[ends]
    return from_numbers(np.diff(ends).astype(np.int32), result.arrow, valid)


def flattened(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
    """The elements of the innermost lists, as one list."""
    column = evaluation.column(args[0])
    if column.type == result.arrow:
        return column
    ends, values = nested.elements(column)
    while pa.types.is_list(values.type):
        inner, values = nested.elements(values)
        ends = inner[ends]
    return nested.list_of(result, ends, values, valid_rows(column))


def _shape(values: list[Any]) -> list[int]:
    """The lengths of a list and of the lists in it; [] for an empty one."""
    shape: list[int] = []
    inside: Any = values
    while isinstance(inside, list) and inside:
        shape.append(len(inside))
        inside = inside[0]
    return shape


def length(values: list[Any], dimension: int) -> int | None:
    """The length of a dimension from 1; NULL for one that the list does not have."""
    shape = _shape(values)
    return shape[dimension - 1] if 1 <= dimension <= len(shape) else None


def subscripts(values: list[Any], dimension: int, is_reversed: bool = False) -> list[int]:
    """The positions of a dimension, from 1; none of one that the list does not have."""
    found = list(range(1, (length(values, dimension) or 0) + 1))
    return found[::-1] if is_reversed else found


def lower_bound(values: list[Any], dimension: int) -> int | None:
    return 1 if 1 <= dimension <= len(_shape(values)) else None


def dimensions(values: list[Any]) -> int | None:
    """How deep it is; NULL for an empty list."""
    return len(_shape(values)) or None


def dimension_text(values: list[Any]) -> str | None:
    """`[1:2][1:3]`"""
    return "".join(f"[1:{size}]" for size in _shape(values)) or None


def _same(a: Any, b: Any) -> bool:
    return a is b or a == b or (a != a and b != b)


def position(values: list[Any] | None, wanted: Any, start: int | None = 1) -> int | None:
    """The position of the first such element from `start` on; NULL without one."""
    if values is None:
        return None
    if start is None:
        raise NoValue("the first position is NULL")
    first = max(start, 1)
    return next((at for at, each in enumerate(values[first - 1 :], first) if _same(each, wanted)), None)


def positions(values: list[Any] | None, wanted: Any) -> list[int] | None:
    """The positions of all such elements."""
    return None if values is None else [at for at, each in enumerate(values, 1) if _same(each, wanted)]


def appended(values: list[Any] | None, element: Any) -> list[Any]:
    return [*(values or ()), element]


def prepended(element: Any, values: list[Any] | None) -> list[Any]:
    return [element, *(values or ())]


def joined(left: list[Any] | None, right: list[Any] | None) -> list[Any] | None:
    """One list after the other; a NULL is ignored."""
    return (left or []) + (right or []) if left is not None or right is not None else None


def removed(values: list[Any] | None, element: Any) -> list[Any] | None:
    """Without the elements that equal `element`."""
    return None if values is None else [each for each in values if not _same(each, element)]


def replaced(values: list[Any] | None, old: Any, new: Any) -> list[Any] | None:
    return None if values is None else [new if _same(each, old) else each for each in values]


def filled(element: Any, sizes: list[int] | None) -> list[Any] | None:
    """A list with so many copies of an element."""
    if sizes is None:
        return None
    if len(sizes) != 1 or sizes[0] is None or sizes[0] < 0:
        raise NoValue("a list is filled to one size, 0 at least")
    return [element] * limited(sizes[0])


def trimmed(values: list[Any], count: int) -> list[Any]:
    """Without the last `count` elements."""
    if not 0 <= count <= len(values):
        raise NoValue("the number of elements to trim is between 0 and the length")
    return values[: len(values) - count]


def contains(values: list[Any], part: list[Any]) -> bool:
    """Whether each element of `part` is in it; NULL equals none."""
    return all(wanted is not None and any(_same(each, wanted) for each in values) for wanted in part)


def is_contained(part: list[Any], values: list[Any]) -> bool:
    return contains(values, part)


def overlaps(left: list[Any], right: list[Any]) -> bool:
    """Whether they have an element in common."""
    return any(each is not None and any(_same(each, other) for other in right) for each in left)


def to_text(values: list[str | None] | None, separator: str | None, null: str | None = None) -> str | None:
    """The elements with a separator between them; NULLs as `null`, or left out."""
    if values is None or separator is None:
        return None
    texts = (null if each is None else each for each in values)
    return separator.join(text for text in texts if text is not None)


def truths_to_text(values: list[bool | None] | None, separator: str | None, null: str | None = None) -> str | None:
    """As `to_text`, with t and f."""
    texts = None if values is None else [None if each is None else "ft"[each] for each in values]
    return to_text(texts, separator, null)


def of_text(text: str | None, separator: str | None, null: str | None = None) -> list[str | None] | None:
    """The parts between separators, single characters without one; a part that is `null` is NULL."""
    if text is None:
        return None
    if not text:
        return []
    parts = list(text) if separator is None else text.split(separator) if separator else [text]
    return [None if part == null else part for part in parts]


def _rank(value: Any) -> tuple[bool, Any]:
    """The order of elements: NaN after all numbers."""
    is_nan = value != value
    return is_nan, 0 if is_nan else value


def least(values: list[Any]) -> Any:
    """NULLs are ignored; NULL without another element."""
    return min((each for each in values if each is not None), key=_rank, default=None)


def greatest(values: list[Any]) -> Any:
    """As `least`."""
    return max((each for each in values if each is not None), key=_rank, default=None)


def ascending(values: list[Any]) -> list[Any]:
    """NULLs last."""
    known = sorted((each for each in values if each is not None), key=_rank)
    return known + [None] * (len(values) - len(known))


def reversed_list(values: list[Any]) -> list[Any]:
    return values[::-1]


def distinct(values: list[Any]) -> list[Any]:
    """Each element once, where it comes first; NULL once."""
    found: list[Any] = []
    for each in values:
        if not any(_same(each, other) for other in found):
            found.append(each)
    return found


def total(values: list[Any]) -> Any:
    """NULLs are ignored; NULL without another element."""
    known = [each for each in values if each is not None]
    return sum(known[1:], known[0]) if known else None


def all_joined(values: list[list[Any] | None]) -> list[Any]:
    """The elements of the lists in a list."""
    return [each for inner in values for each in inner or ()]
