"""Tables of rows as HTML for notebooks. All that comes from the rows is escaped, and shows what HTML would hide."""

from __future__ import annotations

from html import escape

import pyarrow as pa

from relational.display.cells import NULL, cut, is_number, texts, type_name, visible
from relational.display.text import footer

MOST_OF_VALUE = 200
"""Columns of a terminal that a value may take; the rest of it is an ellipsis."""
SIDE = ' style="text-align: {}; white-space: pre"'


def html_of(table: pa.Table, *, max_rows: int, more_rows: bool = False, all_columns: int | None = None) -> str:
    """A table element with at most `max_rows` rows, and how many there are; arguments as of `text.render`."""
    shown = table.slice(0, max_rows)
    sides = [SIDE.format("right" if is_number(field.type) else "left") for field in table.schema]
    headers = "".join(
        f"<th{side}>{escape(visible(field.name))}<br><small>{escape(type_name(field.type))}</small></th>"
        for field, side in zip(table.schema, sides, strict=True)
    )
    columns = [texts(column, MOST_OF_VALUE) for column in shown.columns]
    rows = "".join(
        f"<tr>{''.join(f'<td{side}>{_cell(text)}</td>' for text, side in zip(row, sides, strict=True))}</tr>\n"
        for row in zip(*columns, strict=True)
    )
    of_columns = table.num_columns if all_columns is None else all_columns
    below = footer(table.num_rows, shown.num_rows, more_rows, table.num_columns, of_columns)
    grid = f"<table>\n<thead><tr>{headers}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n" if columns else ""
    return f"<div>{grid}<small>{below}</small></div>"


def html_of_text(text: str) -> str:
    """A text of several lines."""
    return f"<pre>{escape(text)}</pre>"


def _cell(text: str) -> str:
    return f"<i>{NULL}</i>" if text == NULL else escape(cut(text, MOST_OF_VALUE))
