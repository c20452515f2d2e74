"""Output of commands: tables and lines for people, or one JSON document for programs.

Data from a store is printed as text, never as markup, and cannot control the terminal.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from hummock.base.key import USER_KEY_PREFIX_BYTES, table_id_of, vnode_of
from hummock.epoch import SPILL_MASK, to_unix_ms

PIPE_COLUMNS = 240          # width of tables outside of a terminal
SHOWN_KEY_BYTES = 16
UNBROKEN = ("name", "id", "run", "newest row", "node")      # never wrapped, so that they can be copied


class Output:
    """A command's output; with `as_json` only `emit` prints, and `line` and `table` are silent."""

    def __init__(self, as_json: bool):
        self.as_json = as_json
        self._console = Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS, highlight=False)
        self._errors = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else PIPE_COLUMNS)

    def line(self, text: str, style: str = "") -> None:
        if not self.as_json:
            self._console.print(Text(printable(text), style), soft_wrap=True)

    def table(self, table: Table) -> None:
        if not self.as_json and table.row_count:
            self._console.print(table)

    def emit(self, record: dict[str, Any] | list[Any]) -> None:
        if self.as_json:
            print(json.dumps(record, indent=2))

    def error(self, error: Exception) -> None:
        """Prints the error's type and message in one line."""
        kind, words = type(error).__name__, printable(str(error))
        if self.as_json:
            self.emit({"error": kind, "message": words})
        else:
            self._errors.print(Text.assemble((kind, "red"), f": {words}"), soft_wrap=True)

    def progress(self) -> Progress:
        """Progress bars on the error stream; none with JSON or without a terminal."""
        return Progress(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
                        console=self._errors, transient=True, disable=self.as_json or not sys.stderr.isatty())


def new_table(title: str, *columns: str) -> Table:
    """A table; a column whose name begins with > is right-aligned."""
    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left",
                         overflow="fold", no_wrap=column in UNBROKEN)
    return table


def add_row(table: Table, *cells: object) -> None:
    """Adds the cells verbatim; counts get separators."""
    table.add_row(*(Text(f"{cell:,}" if isinstance(cell, int) else printable(str(cell))) for cell in cells))


def printable(text: str) -> str:
    """`text` with all non-printable characters escaped."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def shown_key(key: bytes) -> str:
    """`table/vnode/` and the rest in hex, truncated."""
    if len(key) < USER_KEY_PREFIX_BYTES:
        return key.hex()
    rest = key[USER_KEY_PREFIX_BYTES:]
    cut = "..." if len(rest) > SHOWN_KEY_BYTES else ""
    return f"{table_id_of(key)}/{vnode_of(key)}/{rest[:SHOWN_KEY_BYTES].hex()}{cut}"


def shown_epoch(epoch: int) -> str:
    """The time and number of an epoch; the spill offset after a plus sign."""
    if epoch == 0:
        return "never"
    offset = epoch & SPILL_MASK
    return f"{shown_moment(to_unix_ms(epoch))}{f'+{offset}' if offset else ''} ({epoch})"


def shown_moment(unix_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(unix_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{unix_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{unix_ms % 1000:03d}"


def shown_bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"
