"""Terminal output: tables of rows and errors."""

from __future__ import annotations

import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from relational.display.text import counted_rows

MOST_ROWS = 200
PIPE_COLUMNS = 240
NUMERIC = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


def new_console() -> Console:
    """A console on standard output; wide if that is not a terminal, so that lines in a file are not folded."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_COLUMNS)


def print_rows(console: Console, rows: pa.Table, title: str | None = None, most_rows: int = MOST_ROWS) -> None:
    """Prints a table as a grid, numbers right-aligned and NULL dimmed; of rows beyond `most_rows` only the number."""
    grid = Table(title=title, title_justify="left", header_style="bold")
    for field in rows.schema:
        is_number = any(test(field.type) for test in NUMERIC)
        grid.add_column(escape(field.name), justify="right" if is_number else "left", overflow="fold")
    shown = rows.slice(0, most_rows)
    for row in zip(*(column.to_pylist() for column in shown.columns), strict=True):
        grid.add_row(*map(_cell, row))
    console.print(grid)
    more = rows.num_rows - shown.num_rows
    console.print(f"[dim]{counted_rows(rows.num_rows)}{f', {more:,} not shown' if more else ''}[/dim]")


def print_error(console: Console, error: BaseException) -> None:
    """Prints the error's type and message in one line."""
    console.print(f"[bold red]{type(error).__name__}[/bold red] {escape(str(error))}", soft_wrap=True)


def _cell(value: object) -> str:
    return "[dim]NULL[/dim]" if value is None else escape(str(value))
