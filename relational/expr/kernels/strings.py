"""Kernels of text: LIKE, parts, case and length. Positions count characters from 1, as in SQL."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.expr.eval_context import EvalContext, Value, valid_rows
from relational.expr.kernels.nested import elements
from relational.expr.signature import Kernel
from relational.types.data_type import DataType

NO_FIELD = "a field position is not 0"


def like(evaluation: EvalContext, args: list[Value], ignore_case: bool) -> Value:
    """Whether the text matches a constant pattern: % any run, _ one character, backslash escapes."""
    pattern = args[1].as_py()
    if pattern is None:
        return pa.nulls(evaluation.rows, pa.bool_())
    return pc.match_like(evaluation.column(args[0]), pattern, ignore_case=ignore_case)


def concat(evaluation: EvalContext, args: list[Value]) -> Value:
    """Concatenates the texts; NULL if any is."""
    return pc.binary_join_element_wise(*args, "")


def concat_known(evaluation: EvalContext, args: list[Value]) -> Value:
    """Concatenates the texts, ignoring NULLs."""
    return pc.binary_join_element_wise(*args, "", null_handling="replace", null_replacement="")


def substring(evaluation: EvalContext, args: list[Value]) -> Value:
    """The substring from a constant position, of at most a constant number of characters."""
    start = args[1].as_py()
    length = args[2].as_py() if len(args) == 3 else None
    if start is None or (len(args) == 3 and length is None):
        return pa.nulls(evaluation.rows, pa.string())
    stop = None if length is None else max(start - 1 + length, 0)
    return pc.utf8_slice_codeunits(evaluation.column(args[0]), start=max(start - 1, 0), stop=stop)


def trim(evaluation: EvalContext, args: list[Value], side: str) -> Value:
    """Strips the leading ("l"), trailing ("r") or both ("") characters of a constant set, spaces by default."""
    characters = args[1].as_py() if len(args) == 2 else " "
    if characters is None:
        return pa.nulls(evaluation.rows, pa.string())
    kernel = {"": pc.utf8_trim, "l": pc.utf8_ltrim, "r": pc.utf8_rtrim}[side]
    return kernel(evaluation.column(args[0]), characters=characters)


def replace(evaluation: EvalContext, args: list[Value]) -> Value:
    """Replaces every occurrence of a constant text by another constant."""
    pattern, replacement = (arg.as_py() for arg in args[1:])
    if pattern is None or replacement is None:
        return pa.nulls(evaluation.rows, pa.string())
    array = evaluation.column(args[0])
    return array if pattern == "" else pc.replace_substring(array, pattern=pattern, replacement=replacement)


def left(evaluation: EvalContext, args: list[Value]) -> Value:
    """The first characters, a constant number of them; without the last ones if it is negative."""
    count = args[1].as_py()
    if count is None:
        return pa.nulls(evaluation.rows, pa.string())
    return pc.utf8_slice_codeunits(evaluation.column(args[0]), start=0, stop=count)


def right(evaluation: EvalContext, args: list[Value]) -> Value:
    """The last characters, a constant number of them; without the first ones if it is negative."""
    count = args[1].as_py()
    if count is None:
        return pa.nulls(evaluation.rows, pa.string())
    if count == 0:
        return left(evaluation, args)
    return pc.utf8_slice_codeunits(evaluation.column(args[0]), start=-count)


def concat_bytes(evaluation: EvalContext, args: list[Value]) -> Value:
    """Concatenates two byte strings; NULL if either is."""
    return pc.binary_join_element_wise(*args, b"")


def by_constants(columnar: Callable[[EvalContext, list[Value]], Value], other: Kernel) -> Kernel:
    """The kernel `columnar` where all arguments but the first are constants, else `other`."""

    def kernel(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
        is_constant = all(isinstance(arg, pa.Scalar) for arg in args[1:])
        return columnar(evaluation, args) if is_constant else other(evaluation, args, result)

    return kernel


def starts_with(evaluation: EvalContext, args: list[Value]) -> Value:
    """Whether the text starts with a constant one."""
    prefix = args[1].as_py()
    if prefix is None:
        return pa.nulls(evaluation.rows, pa.bool_())
    return pc.starts_with(evaluation.column(args[0]), prefix)


def position(evaluation: EvalContext, args: list[Value]) -> Value:
    """The position of the first occurrence of a constant text, 0 without one."""
    part = args[1].as_py()
    if part is None:
        return pa.nulls(evaluation.rows, pa.int32())
    texts = evaluation.column(args[0])
    if not part:
        return pc.if_else(texts.is_valid(), pa.scalar(1, pa.int32()), pa.scalar(None, pa.int32()))
    before = pc.list_element(pc.split_pattern(texts, part, max_splits=1), 0)
    found = pc.find_substring(texts, part)
    one = pa.scalar(1, pa.int32())
    return pc.if_else(pc.less(found, 0), pa.scalar(0, pa.int32()), pc.add(pc.utf8_length(before), one))


def split_part(evaluation: EvalContext, args: list[Value]) -> Value:
    """The part at a constant position between constant separators, from the end if it is negative; else empty."""
    separator, field = (arg.as_py() for arg in args[1:])
    if separator is None or field is None:
        return pa.nulls(evaluation.rows, pa.string())
    texts = evaluation.column(args[0])
    valid = valid_rows(texts)
    if field == 0:
        evaluation.fail(valid, NO_FIELD)
        return pa.nulls(evaluation.rows, pa.string())
    if not separator:
        return texts if field in (1, -1) else pc.if_else(pa.array(valid), "", texts)
    starts, parts = elements(pc.split_pattern(texts, separator))
    at = field - 1 + starts[:-1].astype(np.int64) if field > 0 else field + starts[1:].astype(np.int64)
    inside = (at >= starts[:-1]) & (at < starts[1:]) & valid
    found = parts.take(pa.array(np.where(inside, at, 0), mask=~inside))
    return pc.if_else(pa.array(valid & ~inside), "", found)
