"""Tables of rows as text for a terminal: names, types, the first rows, and below them how many there are.

The result is at most `width` columns wide: long values are cut with an ellipsis, numbers, dates and times are not; of
columns that do not fit beside the first ones a column `…` tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from relational.display.cells import (
    CODE_POINTS_A_COLUMN,
    ELLIPSIS,
    cut,
    has_long_values,
    is_number,
    texts,
    type_name,
    visible,
    width_of,
)

LEAST_WIDTH = 12
"""A narrower terminal is treated as one of this width."""
LEAST_COLUMN = 10
"""Columns of the terminal that a name or a long value gets at least, if it needs so many."""
LEAST_TYPE, MOST_TYPE = 7, 16
"""The same of the name of a type, and how many it gets at most where no value below it needs more."""
FRAME = 3
"""Of a column: a line and two blanks."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column as text. `least`: the width below which it is not shown; `most`: that at which nothing is cut."""

    header: tuple[str, str]
    cells: Sequence[str]
    is_number: bool
    least: int
    most: int


def render(
    table: pa.Table,
    *,
    width: int = 80,
    max_rows: int = 10,
    more_rows: bool = False,
    all_columns: int | None = None,
) -> str:
    """The table as text without a line break at its end: at most `max_rows` of its rows, in lines of at most `width`
    columns. `more_rows`: there are more rows than the table has. `all_columns`: how many columns the result has, if the
    table has only the first ones."""
    width = max(width, LEAST_WIDTH)
    of_columns = table.num_columns if all_columns is None else all_columns
    shown = table.slice(0, max_rows)
    columns = [_column(shown, at, width) for at in range(min(table.num_columns, most_columns(width)))]
    widths = _widths(columns, of_columns, width)
    hides = len(widths) < of_columns
    lines = _lines(columns[: len(widths)], widths, shown.num_rows, hides) if columns else []
    return "\n".join([*lines, footer(table.num_rows, shown.num_rows, more_rows, len(widths), of_columns)])


def most_columns(width: int) -> int:
    """How many columns could be shown at most within `width`."""
    return max(width, LEAST_WIDTH) // FRAME


def footer(rows: int, shown_rows: int, more_rows: bool, columns: int, of_columns: int) -> str:
    """How many rows there are, and how many rows and columns of them are shown."""
    first = f", first {shown_rows:,} shown" if more_rows or shown_rows < rows else ""
    some = f", {columns} of {of_columns} columns" if columns < of_columns else ""
    return counted_rows(rows, more=more_rows) + first + some


def counted_rows(count: int, *, more: bool = False) -> str:
    """`1 row`, `2,000 rows`, `2,000+ rows` if there are more."""
    return f"{count:,}{'+' if more else ''} {'row' if count == 1 and not more else 'rows'}"


def _column(table: pa.Table, at: int, width: int) -> Column:
    field = table.schema.field(at)
    kind, right = type_name(field.type), is_number(field.type)
    name = visible(field.name[: width * CODE_POINTS_A_COLUMN])
    cells = texts(table.column(at), width * CODE_POINTS_A_COLUMN)
    longest = max(map(width_of, cells), default=0)
    value, of_type = max(width_of(name), longest), width_of(kind)
    whole = 0 if has_long_values(field.type) else longest
    least = max(whole, min(value, LEAST_COLUMN), min(of_type, LEAST_TYPE))
    most = max(value, min(of_type, MOST_TYPE))
    return Column((name, kind), cells, right, least, most)


def _widths(columns: Sequence[Column], of_columns: int, width: int) -> list[int]:
    """The widths of the first columns that fit."""
    count, needed = 0, 1
    for at, column in enumerate(columns, start=1):
        needed += column.least + FRAME
        if needed + (0 if at == of_columns else len(ELLIPSIS) + FRAME) <= width:
            count = at
    if not columns:
        return []
    space = width - 1 - (0 if max(count, 1) == of_columns else len(ELLIPSIS) + FRAME)
    if not count:
        return [space - FRAME]
    fitting = columns[:count]
    widths = [column.least for column in fitting]
    left = space - sum(widths) - FRAME * count
    smallest_first = sorted(range(count), key=lambda at: fitting[at].most - fitting[at].least)
    for further, at in zip(range(count, 0, -1), smallest_first, strict=True):
        grown = min(fitting[at].most - fitting[at].least, left // further)
        widths[at] += grown
        left -= grown
    return widths


def _lines(columns: Sequence[Column], widths: Sequence[int], rows: int, hides: bool) -> list[str]:
    rules = [*("─" * (width + 2) for width in widths), *(["───"] if hides else [])]
    end = [f" {ELLIPSIS} "] if hides else []

    def line(cells: Sequence[str]) -> str:
        padded = [_padded(*each) for each in zip(cells, columns, widths, strict=True)]
        return f"│{'│'.join(padded + end)}│"

    return [
        f"┌{'┬'.join(rules)}┐",
        *(line([column.header[part] for column in columns]) for part in (0, 1)),
        f"├{'┼'.join(rules)}┤",
        *(line([column.cells[row] for column in columns]) for row in range(rows)),
        f"└{'┴'.join(rules)}┘",
    ]


def _padded(cell: str, column: Column, width: int) -> str:
    text = cut(cell, width)
    blanks = " " * (width - width_of(text))
    return f" {blanks}{text} " if column.is_number else f" {text}{blanks} "
