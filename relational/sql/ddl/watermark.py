"""WATERMARK FOR column AS column [- constant], an element of CREATE TABLE and CREATE SOURCE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relational.catalog.objects import ColumnCatalog
from relational.catalog.watermarks import WatermarkCatalog
from relational.errors import BindError
from relational.expr.bind import ExprBinder, Scope, error_span, unknown
from relational.expr.expression import Call, Cast, Expression, InputRef, Literal
from relational.expr.monotone import INTEGERS, ORDERED
from relational.expr.unbound import TextSpan
from relational.sql.expressions import Translator
from relational.sql.lexer import Piece
from relational.sql.tree import parse
from relational.types.data_type import DataType, TypeKind
from relational.types.interval import MICROSECONDS_PER_DAY, Interval
from relational.types.schema import Field, Schema

MAX_DELAY_DAYS, MAX_DELAY_UNITS = 36_500, 1 << 62


@dataclass(frozen=True, slots=True)
class WatermarkSyntax:
    """The parts of the clause. `span` is that of its first words, `column_span` that of the column; None if it is no
    part of an SQL text."""

    span: TextSpan | None
    column: str
    column_span: TextSpan | None
    expression: Piece


def watermark_syntax(column: str, expression: str) -> WatermarkSyntax:
    """The clause with these parts, outside of an SQL text."""
    return WatermarkSyntax(None, column, None, Piece(expression, 0, len(expression)))


def watermark_of(syntax: WatermarkSyntax, columns: Sequence[ColumnCatalog]) -> WatermarkCatalog:
    """The watermark of a table with these columns. BindError at what is none: see docs/sql.md."""
    names = [column.name for column in columns if not column.is_hidden]
    if syntax.column not in names:
        raise BindError(unknown("column", syntax.column, names), **error_span(syntax.column_span))
    index = names.index(syntax.column)
    column = columns[index]
    if column.data_type.kind not in ORDERED:
        raise BindError(
            f"column {column.name!r} is {column.data_type}: a watermark is of a TIMESTAMP, a TIMESTAMPTZ, a DATE or a "
            "whole number", **error_span(syntax.column_span),
        )
    schema = Schema(tuple(Field(each.name, each.data_type) for each in columns))
    tree = parse(syntax.expression)
    bound = ExprBinder(Scope(schema)).bind(Translator(tree).term(tree.node))
    delay = _delay(bound, index, column.data_type)
    if delay is None:
        raise BindError(
            f"a watermark is its column minus a constant, such as {_example(column)}",
            start=syntax.expression.start, end=syntax.expression.end,
        )
    most, shown = _most_delay(column.data_type)
    if not 0 <= delay <= most:
        raise BindError(
            f"a watermark is 0 to {shown} behind its column",
            start=syntax.expression.start, end=syntax.expression.end,
        )
    return WatermarkCatalog(column.column_id, delay)


def _delay(bound: Expression, column: int, data_type: DataType) -> int | None:
    """The constant that is subtracted from the column, in its units; None for any other expression."""
    if isinstance(bound, InputRef) and bound.index == column:
        return 0
    if not isinstance(bound, Call) or bound.function != "subtract":
        return None
    left, right = bound.args
    if isinstance(left, Cast) and left.data_type.kind in INTEGERS:
        left = left.operand
    if not isinstance(left, InputRef) or left.index != column or not isinstance(right, Literal):
        return None
    if isinstance(right.value, Interval):
        return None if right.value.months else right.value.total_microseconds
    is_same = bound.data_type == data_type or bound.data_type.kind in INTEGERS
    return right.value if isinstance(right.value, int) and is_same else None


def _most_delay(data_type: DataType) -> tuple[int, str]:
    """The longest delay in units of the column, and as text."""
    if data_type.kind in INTEGERS:
        return MAX_DELAY_UNITS, str(MAX_DELAY_UNITS)
    days = MAX_DELAY_DAYS if data_type.kind is TypeKind.DATE else MAX_DELAY_DAYS * MICROSECONDS_PER_DAY
    return days, f"{MAX_DELAY_DAYS} days"


def _example(column: ColumnCatalog) -> str:
    is_moment = column.data_type.kind in (TypeKind.TIMESTAMP, TypeKind.TIMESTAMPTZ)
    return f"{column.name} - INTERVAL '5 seconds' (no months)" if is_moment else f"{column.name} - 5"
