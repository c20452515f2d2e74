"""Kernels of the JSONB functions that give rows: the elements of an array, the members of an object, as a list.

A text is parsed once for each distinct value of a chunk; what is no array, or no object, has no value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from relational.expr.eval_context import EvalContext, Value, valid_rows
from relational.expr.kernels import nested
from relational.expr.kernels.json_values import parsed, text_of, written
from relational.expr.kernels.per_value import NoValue, json_column
from relational.expr.signature import Kernel
from relational.types.data_type import DataType, TypeKind

Parts = tuple[list[str | None], ...]
"""For each column of the rows its texts."""


def json_rows(parts_of: Callable[[Any], Parts]) -> Kernel:
    """The kernel of a function of a value, parsed, that gives rows of one column or more."""

    def kernel(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
        assert result.element is not None
        column = evaluation.column(args[0])
        encoded = column.storage.dictionary_encode()
        codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        valid = valid_rows(column)
        types = result.element.children if result.element.kind is TypeKind.STRUCT else (result.element,)
        texts: list[list[str | None]] = [[] for _ in types]
        sizes, faults = [0], np.zeros(max(len(encoded.dictionary), 1), np.bool_)
        for at, text in enumerate(encoded.dictionary.to_pylist()):
            try:
                for gathered, more in zip(texts, parts_of(parsed(text)), strict=True):
                    gathered += more
            except NoValue as error:
                faults[at] = True
                evaluation.fail(valid & (codes == at), str(error))
            sizes.append(len(texts[0]))
        known = [_column(*each) for each in zip(texts, types, strict=True)]
        values = known[0]
        if result.element.kind is TypeKind.STRUCT:
            values = nested.struct_of(result.element, known, np.ones(len(values), np.bool_))
        ends = np.array(sizes, np.int64) if len(sizes) > 1 else np.zeros(2, np.int64)
        lists = nested.list_of(result, ends, values, ~faults)
        return lists.take(pa.array(codes, mask=~valid))

    return kernel


def _column(texts: list[str | None], data_type: DataType) -> pa.Array:
    if data_type.kind is TypeKind.JSONB:
        return json_column(texts)[0]
    return pa.array(texts, data_type.arrow)


def elements(value: Any) -> Parts:
    """The elements of an array."""
    return (list(map(written, _array(value))),)


def element_texts(value: Any) -> Parts:
    return (list(map(text_of, _array(value))),)


def members(value: Any) -> Parts:
    """The names and the values of an object's members."""
    found = _object(value)
    return list(found), list(map(written, found.values()))


def member_texts(value: Any) -> Parts:
    found = _object(value)
    return list(found), list(map(text_of, found.values()))


def names(value: Any) -> Parts:
    return (list(_object(value)),)


def _array(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise NoValue("the value is no JSON array")
    return value


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise NoValue("the value is no JSON object")
    return value
