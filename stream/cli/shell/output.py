"""Where results go, and in which format: the terminal, a pager, a pipe or a file."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from pathlib import Path
from typing import TextIO

import click
import pyarrow as pa

from hummock.errors import InvalidOption
from relational.display.text import counted_rows, render
from stream.cli.shell.formats import WRITERS, write_records
from stream.cli.shell.options import ARROW, TABLE, OutputOptions

TERMINAL_ROWS = 200
"""Rows of a table that are shown in a terminal, unless it is told otherwise."""
MOST_TABLE_ROWS = 100_000
"""Rows of a table as text: all of them are in memory until the widths of its columns are known."""
CLEAR_SCREEN = "\x1b[H\x1b[2J\x1b[3J"
UNBOUNDED_COLUMNS = 1 << 16
"""The width of a table that no terminal shows."""


class Output:
    """Writes results to `out`, or to the file that was chosen; notes go with tables only. `is_interactive`: somebody
    reads them as they come."""

    def __init__(self, out: TextIO, options: OutputOptions, *, is_interactive: bool) -> None:
        self.options = options
        self.is_interactive = is_interactive
        self._standard = out
        self._file: TextIO | None = None
        self._arrow_path: Path | None = None
        self._arrow: pa.ipc.RecordBatchFileWriter | None = None

    @property
    def is_terminal(self) -> bool:
        return self._file is None and self._arrow_path is None and self._standard.isatty()

    @property
    def format(self) -> str:
        """The format of the next result."""
        reads = self.is_terminal or (self.is_interactive and self._file is None)
        return self.options.format or (TABLE if reads else "csv")

    # -- destinations ----------------------------------------------------------------------------------

    def open(self, path: Path) -> None:
        """Results are written to a file from now on, which is emptied. OSError."""
        self.close()
        path = path.expanduser()
        if self.options.format == ARROW:
            path.touch()
            self._arrow_path = path
        else:
            self._file = path.open("w", encoding="utf-8")

    def close(self) -> None:
        """Completes the file, if there is one. Results go to where they went before."""
        with contextlib.ExitStack() as closing:
            for each in (self._file, self._arrow):
                if each is not None:
                    closing.callback(each.close)
            self._file = self._arrow = self._arrow_path = None

    # -- results ---------------------------------------------------------------------------------------

    def rows(self, rows: pa.Table, title: str | None = None, footer: str | None = None) -> None:
        """A result. Title and footer are those of a table; with a footer it is not shown as records. InvalidOption for
        Arrow without a file, and for a result whose columns are not those of the file."""
        if self.format == ARROW:
            self._write_arrow(rows)
            return
        writer = WRITERS.get(self.format)
        if writer is not None:
            writer(rows, self._out)
            self._out.flush()
            return
        text = io.StringIO()
        if title:
            text.write(title + "\n")
        self._write_table(rows, text, has_frame=footer is not None)
        if footer:
            text.write(footer + "\n")
        self._show(text.getvalue())

    def text(self, text: str) -> None:
        """A result that is text, such as a plan."""
        self._show(text.rstrip("\n") + "\n")

    def note(self, text: str) -> None:
        """What is no result, such as the number of rows that a statement has changed: beside tables only."""
        if self.format == TABLE and self._file is None:
            self._standard.write(text + "\n")
            self._standard.flush()

    def clear(self) -> None:
        """Empties the screen. REQUIRES a terminal."""
        self._standard.write(CLEAR_SCREEN)

    def flush(self) -> None:
        """Lets everything be seen that was written."""
        self._out.flush()

    @property
    def _out(self) -> TextIO:
        return self._standard if self._file is None else self._file

    def _write_table(self, rows: pa.Table, text: TextIO, *, has_frame: bool) -> None:
        wanted = self.options.max_rows
        if wanted is None:
            wanted = TERMINAL_ROWS if self.is_terminal or self.is_interactive else 0
        most = min(wanted or MOST_TABLE_ROWS, MOST_TABLE_ROWS)
        if self.options.is_expanded and not has_frame:
            write_records(rows.slice(0, most), text)
            cut = f", first {most:,} shown" if rows.num_rows > most else ""
            text.write(f"{counted_rows(rows.num_rows)}{cut}\n")
            return
        reads = self.is_terminal or self.is_interactive
        width = shutil.get_terminal_size().columns if reads else UNBOUNDED_COLUMNS
        text.write(render(rows, width=width, max_rows=most) + "\n")

    def _show(self, text: str) -> None:
        lines = shutil.get_terminal_size().lines
        pages = self.options.has_pager and self.is_interactive and self.is_terminal and os.environ.get("PAGER")
        if pages and text.count("\n") >= lines:
            click.echo_via_pager(text)
            return
        self._out.write(text)
        self._out.flush()

    def _write_arrow(self, rows: pa.Table) -> None:
        if self._arrow_path is None:
            raise InvalidOption("format", ARROW, "written to a file: --output FILE, or \\o FILE after \\pset")
        if self._arrow is None:
            self._arrow = pa.ipc.new_file(self._arrow_path, rows.schema)
            self._schema = rows.schema
        if rows.schema != self._schema:
            raise InvalidOption("output", str(self._arrow_path), "a file of its own for a result with other columns")
        self._arrow.write_table(rows)
