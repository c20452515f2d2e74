"""Shell: executes statements and commands over a session, and writes what they give."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import click
import pyarrow as pa

from hummock.errors import HummockError
from relational.display.text import counted_rows
from relational.errors import RelationalError, SourceTextError
from relational.result import Result
from stream.cli.shell.connection import hint_of
from stream.cli.shell.options import TABLE
from stream.cli.shell.output import Output
from stream.cli.shell.statements import Command, InputSplitter, Item, Statement
from stream.errors import StreamError
from stream.session.change_feed import ChangeFeed
from stream.session.reader import ReaderSession
from stream.session.table import Table

USER_ERRORS = (HummockError, RelationalError, StreamError, OSError)
TEXT_RESULTS = {("SHOW", "CREATE"): "definition", ("EXPLAIN",): "plan"}
"""Leading words of statements whose result reads as text, and the column that has it."""
MOST_NESTED_FILES = 16


class CommandError(StreamError, ValueError):
    """A backslash command that cannot be executed: unknown, or with unfit arguments."""


@dataclass(slots=True)
class ShellState:
    """`source`: the file that is executed, None for what is typed. `query`: the last statement that gave rows, for
    \\watch. `last`: the last statement, for \\e."""

    source: str | None = None
    query: Statement | None = None
    last: str = ""
    shows_time: bool = False
    is_over: bool = False
    catalog_changed: bool = True
    nested_files: int = 0


class Shell:
    """One session. `goes_on`: after an error the next statement is executed."""

    def __init__(self, session: ReaderSession, url: str, output: Output, *, goes_on: bool, errors: TextIO | None = None,
                 clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        from stream.cli.shell.commands import COMMANDS  # whose actions take a Shell

        self.session, self.url, self.output = session, url, output
        self.goes_on, self.state = goes_on, ShellState()
        self.clock, self.sleep = clock, sleep
        self._errors = errors or sys.stderr
        self._commands = COMMANDS

    # -- sources of input ------------------------------------------------------------------------------

    def run_lines(self, lines: Iterable[str], source: str | None = None) -> bool:
        """Executes all lines of a file, a pipe or an argument; whether no statement failed, or all were executed in
        spite of that."""
        splitter = InputSplitter()
        before, self.state.source = self.state.source, source
        try:
            for line in lines:
                if not self.run_items(splitter.feed(line)):
                    return False
            return self.run_items(splitter.finish())
        finally:
            self.state.source = before

    def run_file(self, path: Path) -> bool:
        """As `run_lines`. OSError; CommandError for files that execute each other without end."""
        if self.state.nested_files >= MOST_NESTED_FILES:
            raise CommandError(f"{path}: files are executed {MOST_NESTED_FILES} deep, and no deeper")
        self.state.nested_files += 1
        try:
            with path.expanduser().open(encoding="utf-8") as file:
                return self.run_lines(file, str(path))
        finally:
            self.state.nested_files -= 1

    def run_items(self, items: Iterable[Item]) -> bool:
        """Executes statements and commands in order, up to \\q, and to the first that fails unless the shell goes on.
        """
        for item in items:
            if self.state.is_over:
                break
            if not self.run(item) and not self.goes_on:
                return False
        return True

    def run(self, item: Item) -> bool:
        """Executes one statement or command and writes its result, or its error; whether it succeeded. An interruption
        ends the statement: it is an error where the shell goes on after those, else it is raised."""
        try:
            if isinstance(item, Command):
                return self._command(item)
            return self._statement(item)
        except KeyboardInterrupt:
            if not self.output.is_interactive:
                raise
            self._errors.write("\ninterrupted\n")
            return False
        except BrokenPipeError:
            raise
        except (*USER_ERRORS, click.ClickException) as error:
            self.report(error, item)
            return False
        except Exception as error:
            if not self.output.is_interactive:
                raise
            self.report(error, item)
            return False

    # -- statements ------------------------------------------------------------------------------------

    def _statement(self, statement: Statement) -> bool:
        self.state.last = statement.text
        ending = statement.ending
        if ending is not None and ending.name == "\\watch":
            self.state.query = statement
            return self._command(ending)
        with self.expanded(ending is not None and ending.name == "\\gx"):
            self.execute(statement)
        return True

    def execute(self, statement: Statement, title: str | None = None) -> None:
        """Executes a statement and writes its result."""
        begun = self.clock()
        self.state.catalog_changed |= statement.is_ddl
        result = self.session.sql(statement.text)
        if isinstance(result, Result) and not isinstance(result, Table) and statement.words[:1] != ("CREATE",):
            result = result.to_arrow()
        elapsed = self.clock() - begun
        if isinstance(result, ChangeFeed):
            with result:
                for batch in result:
                    self.output.rows(pa.Table.from_batches([batch]), title)
        elif isinstance(result, pa.Table):
            self.state.query = statement
            self._rows(statement, result, title)
        elif isinstance(result, int):
            self.output.note(counted_rows(result) if result >= 0 else "done, with COMMIT")
        else:
            self.output.note("done")
        if self.state.shows_time:
            self.output.note(f"Time: {1_000 * elapsed:,.3f} ms")

    def _rows(self, statement: Statement, rows: pa.Table, title: str | None) -> None:
        words = statement.words
        column = TEXT_RESULTS.get(words) or TEXT_RESULTS.get(words[:1])
        if column in rows.column_names and self.output.options.format in (None, TABLE):
            self.output.text("\n".join(rows[column].to_pylist()))
        else:
            self.output.rows(rows, title)

    @contextlib.contextmanager
    def expanded(self, is_expanded: bool):
        """Within the block results are shown as records, if `is_expanded`; else as they are anyway."""
        options = self.output.options
        before = options.is_expanded
        options.is_expanded = before or is_expanded
        try:
            yield
        finally:
            options.is_expanded = before

    # -- commands --------------------------------------------------------------------------------------

    def _command(self, command: Command) -> bool:
        return self._commands.run(self, command)

    # -- errors ----------------------------------------------------------------------------------------

    def report(self, error: BaseException, item: Item | None = None) -> None:
        """Writes an error: its type, its text, and the line and column of the file, if it has a position."""
        text, where = str(error), ""
        if isinstance(error, click.ClickException):
            text = error.format_message()
        if isinstance(item, Statement):
            where = f"{self.state.source}:{item.line}: " if self.state.source else ""
            if isinstance(error, SourceTextError) and error.text is not None and error.start is not None:
                text, line = _positioned(error, item.line if self.state.source else 1)
                where = f"{self.state.source}:{line}: " if self.state.source else ""
        elif item is not None and not isinstance(error, CommandError):
            where = f"{item.name}: "
        kind = "" if isinstance(error, CommandError) else f"{type(error).__name__}: "
        styled = click.style(kind, fg="red", bold=True) if kind and self._errors.isatty() else kind
        with contextlib.suppress(OSError):
            self.output.flush()
        self._errors.write(f"{where}{styled}{text}{hint_of(error)}\n")
        self._errors.flush()


def _positioned(error: SourceTextError, first_line: int) -> tuple[str, int]:
    """The error's text with the lines of the file that the statement begins at `first_line` of, and its line."""
    assert error.text is not None and error.start is not None
    above = first_line - 1
    end = None if error.end is None else error.end + above
    moved = SourceTextError(error.message, text="\n" * above + error.text, start=error.start + above, end=end)
    return str(moved), first_line + error.text.count("\n", 0, error.start)
