"""INSERT … VALUES of literals only, as columns: the bulk inserts of applications.

It returns the values that the tree of the same text would give, or nothing: then the caller builds the tree, which
handles special cases and reports errors with their span.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from relational.catalog.objects import TableCatalog
from relational.errors import BindError, EvaluationError
from relational.expr.coercion import can_assign
from relational.expr.eval import evaluate_array
from relational.expr.eval_context import EvalContext, from_numbers
from relational.expr.expression import Cast, InputRef, Literal
from relational.plan.logical import ColumnValues
from relational.sql.literals import (
    BOOLEAN_KIND,
    DECIMAL_KIND,
    DEFAULT_KIND,
    DOUBLE_KIND,
    NULL_KIND,
    TEXT_KIND,
    WHOLE_KIND,
    gather_texts,
    scan_rows,
)
from relational.types.data_type import DataType

_DIGITS = 18
_DECIMAL = np.dtype([("low", "<i8"), ("high", "<i8")])
_TYPES = {
    BOOLEAN_KIND: DataType.BOOLEAN,
    WHOLE_KIND: DataType.BIGINT,
    DOUBLE_KIND: DataType.DOUBLE,
    TEXT_KIND: DataType.VARCHAR,
}


def scanned(text: bytes) -> np.ndarray | None:
    """The cells of a list of rows of literals, CELL[rows, columns]; None for any other text."""
    return scan_rows(text)


def literal_values(
    text: bytes, cells: np.ndarray, table: TableCatalog, given: tuple[int, ...]
) -> ColumnValues | None:
    """The rows as the table stores them, where `given` are the target columns of the cells; None if a value does not
    fit its column.
    """
    cell_of = {column: at for at, column in enumerate(given)}
    columns = []
    for index, column in enumerate(table.columns):
        default = Literal(column.default, column.data_type)
        if index not in cell_of:
            columns.append(evaluate_array(default, EvalContext((), len(cells), strict=True)))
            continue
        try:
            array = _column(text, np.ascontiguousarray(cells[:, cell_of[index]]), default)
        except (BindError, EvaluationError, pa.ArrowInvalid):
            return None
        if array is None:
            return None
        columns.append(array)
    return ColumnValues(table.schema, tuple(columns))


def _column(text: bytes, cells: np.ndarray, default: Literal) -> pa.Array | None:
    """One column in the type of its default. Values of each kind, and NUMERICs of each scale, are cast together."""
    target = default.data_type
    kinds = cells["kind"]
    valid = kinds != NULL_KIND
    groups = [int(group) for group in np.unique(_group(cells)[valid])]
    if not groups:
        return evaluate_array(Literal(None, target), EvalContext((), len(cells), strict=True))
    if len(groups) == 1:
        return _cast(text, cells, groups[0], valid, default)
    if _is_special(target):
        return None
    parts, order = [], np.empty(len(cells), np.int64)
    begun = 0
    for group in groups:
        rows = np.flatnonzero(valid & (_group(cells) == group))
        part = _cast(text, cells[rows], group, np.ones(len(rows), np.bool_), default)
        if part is None:
            return None
        parts.append(part)
        order[rows] = np.arange(begun, begun + len(rows))
        begun += len(rows)
    return pa.concat_arrays(parts).take(pa.array(order, mask=~valid))


def _group(cells: np.ndarray) -> np.ndarray:
    """uint16[rows]: the kind, and the scale of a NUMERIC."""
    return cells["kind"].astype(np.uint16) << 8 | np.where(cells["kind"] == DECIMAL_KIND, cells["scale"], 0)


def _is_special(data_type: DataType) -> bool:
    """Whether arrays of the type need a dedicated construction."""
    return data_type.is_nested or isinstance(data_type.arrow, pa.BaseExtensionType)


def _cast(text: bytes, cells: np.ndarray, group: int, valid: np.ndarray, default: Literal) -> pa.Array | None:
    """Casts cells of one group to the column's type; None if values of their type cannot be assigned."""
    kind, scale = group >> 8, group & 0xFF
    target = default.data_type
    if kind == DEFAULT_KIND:
        return evaluate_array(default, EvalContext((), len(cells), strict=True)) if valid.all() else None
    source = DataType.numeric(max(_DIGITS, scale), scale) if kind == DECIMAL_KIND else _TYPES[kind]
    if kind != TEXT_KIND and not can_assign(source, target):
        return None
    values = _typed(text, cells, kind, source, valid)
    if source == target:
        return values
    return evaluate_array(Cast(InputRef(0, source), target), EvalContext([values], len(cells), strict=True))


def _typed(text: bytes, cells: np.ndarray, kind: int, source: DataType, valid: np.ndarray) -> pa.Array:
    """Cells of one kind as an array of their own type; ArrowInvalid for a DOUBLE that overflows."""
    values = cells["value"]
    if kind == BOOLEAN_KIND:
        return pa.array(values.astype(np.bool_), mask=~valid)
    if kind == WHOLE_KIND:
        return from_numbers(values, source.arrow, valid)
    if kind == DECIMAL_KIND:
        wide = np.empty(len(cells), _DECIMAL)
        wide["low"], wide["high"] = values, values >> 63
        return from_numbers(wide, source.arrow, valid)
    offsets, data = gather_texts(text, np.ascontiguousarray(cells["begin"]), np.ascontiguousarray(cells["end"]))
    validity = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    texts = pa.Array.from_buffers(pa.utf8(), len(cells), [validity, pa.py_buffer(offsets), pa.py_buffer(data)])
    if kind == TEXT_KIND:
        return texts
    numbers = texts.cast(source.arrow)
    if not np.isfinite(numbers.fill_null(0.0).to_numpy()).all():
        raise pa.ArrowInvalid("a number beyond the largest DOUBLE")
    return numbers
