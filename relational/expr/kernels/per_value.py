"""Functions of Python values as kernels: called once for each distinct combination of arguments of a chunk.

For functions without a kernel of Arrow or numpy. A NULL argument gives NULL without a call, unless the function takes
NULLs. A function raises NoValue for arguments without a value; each row with them fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from relational.chunk import DataChunk
from relational.chunk.json import canonical_json
from relational.expr.coercion import digits
from relational.expr.eval_context import EvalContext, Value, python_value
from relational.expr.signature import Kernel
from relational.types.data_type import DataType, Field, TypeKind
from relational.types.schema import Schema

MAX_CHARACTERS = 1 << 24
"""Characters of a text, or elements of a list, that a function may build."""


class NoValue(Exception):
    """These arguments have no value; the message is the reason, without a value of the row."""


def per_value(function: Callable[..., Any], *, takes_nulls: bool = False) -> Kernel:
    """The kernel of a function of Python values."""

    def kernel(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
        codes, columns = _distinct(evaluation, args)
        values: list[Any] = []
        faults: dict[str, list[int]] = {}
        for at, given in enumerate(zip(*columns, strict=True) if columns else [()]):
            value = None
            if takes_nulls or not any(each is None for each in given):
                try:
                    value = _held(function(*given), result)
                except NoValue as error:
                    faults.setdefault(str(error), []).append(at)
            values.append(value)
        if result.kind is TypeKind.JSONB:
            column, bad = json_column(values)
            faults["invalid text for JSONB"] = np.flatnonzero(bad).tolist()
        else:
            column = column_of(values, result)
        for reason, failed in faults.items():
            evaluation.fail(np.isin(codes, failed), reason)
        return column.take(pa.array(codes))

    return kernel


def _held(value: Any, data_type: DataType) -> Any:
    """The value of a function. NoValue for a NUMERIC with more digits than its type holds."""
    if isinstance(value, Decimal) and abs(value) >= Decimal(10) ** digits(data_type)[0]:
        raise NoValue(f"value out of range for {data_type}")
    return value


def column_of(values: Sequence[Any], data_type: DataType) -> pa.Array:
    """Python values of rows as a column."""
    return DataChunk.from_rows(Schema([Field("value", data_type)]), [(value,) for value in values]).columns[0].array


def json_column(texts: Sequence[str | None]) -> tuple[pa.Array, np.ndarray]:
    """JSON texts as a column, and bool[rows] of those with a character that JSON does not have."""
    bad = np.zeros(len(texts), np.uint8)
    canonical = canonical_json(pa.array(texts, pa.string()), bad)
    return pa.ExtensionArray.from_storage(DataType.JSONB.arrow, canonical), bad.view(np.bool_)


def limited(size: int) -> int:
    """The size of a result. NoValue beyond MAX_CHARACTERS."""
    if size > MAX_CHARACTERS:
        raise NoValue("the result is too long")
    return size


def _distinct(evaluation: EvalContext, args: list[Value]) -> tuple[np.ndarray, list[list[Any]]]:
    """(of each row the number of its combination, of each argument its values in the order of the combinations)."""
    coded = [_codes(arg) for arg in args]
    columns = [(arg_codes, values) for arg_codes, values in coded if arg_codes is not None]
    if len(columns) == 1:
        ((codes, several),) = columns
        return codes, [values * len(several) if arg_codes is None else values for arg_codes, values in coded]
    codes = np.zeros(evaluation.rows, np.int64)
    for arg_codes, values in coded:
        if arg_codes is not None:
            _, codes = np.unique(codes * len(values) + arg_codes, return_inverse=True)
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    return codes, [
        values * len(first) if arg_codes is None else [values[code] for code in arg_codes[first].tolist()]
        for arg_codes, values in coded
    ]


def _codes(arg: Value) -> tuple[np.ndarray | None, list[Any]]:
    """(of each row the index of its value, the values); None for a constant."""
    if isinstance(arg, pa.Scalar):
        return None, [python_value(arg)]
    plain = arg.storage if isinstance(arg, pa.ExtensionArray) else arg
    if pa.types.is_nested(plain.type) or pa.types.is_interval(plain.type) or pa.types.is_floating(plain.type):
        return np.arange(len(plain)), [python_value(value) for value in arg]
    encoded = plain.dictionary_encode()
    values = list(map(python_value, encoded.dictionary))
    if encoded.indices.null_count:
        values.append(None)
    return encoded.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False).astype(np.int64), values
