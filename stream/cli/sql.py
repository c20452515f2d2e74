"""The commands `hummock sql` and `hummock playground`: statements from the command line, a file or a prompt."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pyarrow as pa
from rich.console import Console
from rich.markup import escape

from hummock.errors import HummockError
from relational.errors import RelationalError
from relational.result import Result
from stream.cli.terminal import counted_rows, new_console, print_error, print_rows, split_statements
from stream.errors import StreamError
from stream.session.session import Session, connect
from stream.session.table import Table

USER_ERRORS = (HummockError, RelationalError, StreamError, OSError)
accept_rollback_option = click.option(
    "--accept-rollback", is_flag=True, help="Go on from an older copy of the store that was put back, for good."
)
allow_user_functions_option = click.option(
    "--allow-user-functions", is_flag=True, help="Run the Python functions that the store holds: only if you trust "
    "everybody who can write it."
)
EXAMPLE = (
    "CREATE TABLE t (a BIGINT, b VARCHAR);",
    "CREATE MATERIALIZED VIEW mv AS SELECT SUM(a) AS a, b FROM t GROUP BY b;",
    "INSERT INTO t VALUES (2, 'AMERICA'), (3, 'ASIA'), (4, 'AMERICA'), (5, 'ASIA');",
    "FLUSH;",
    "SELECT * FROM mv;",
)


@click.command()
@click.argument("url")
@click.option("-c", "--command", "commands", multiple=True, help="Run this and end; may be repeated.")
@click.option("-f", "--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Run a file.")
@accept_rollback_option
@allow_user_functions_option
def sql(
    url: str, commands: tuple[str, ...], file: Path | None, accept_rollback: bool, allow_user_functions: bool
) -> None:
    """Run SQL on the store at URL (file:///directory or memory://), or prompt for it."""
    console = new_console()
    with _reported(console), _session(console, url, accept_rollback, allow_user_functions) as session:
        if commands or file is not None:
            text = ";".join((*commands, *([file.read_text()] if file is not None else [])))
            statements, rest = split_statements(text)
            if not all(_run(session, console, each) for each in [*statements, rest.strip()] if each):
                raise SystemExit(1)
        else:
            _prompt(session, console)


@click.command()
@click.argument("url", default="memory://")
@accept_rollback_option
@allow_user_functions_option
def playground(url: str, accept_rollback: bool, allow_user_functions: bool) -> None:
    """All of Hummock in this process, to try it: a prompt on a store in memory, or on URL."""
    console = new_console()
    with _reported(console), _session(console, url, accept_rollback, allow_user_functions) as session:
        console.print(f"[bold]Hummock[/bold] on {url}, all roles in this process. Try:\n")
        for line in EXAMPLE:
            console.print(f"  [cyan]{line}[/cyan]", highlight=False)
        console.print()
        _prompt(session, console)


@contextlib.contextmanager
def _reported(console: Console) -> Iterator[None]:
    """Prints an error that ends the command in one line, and exits with status 1."""
    try:
        yield
    except USER_ERRORS as error:
        print_error(console, error)
        raise SystemExit(1) from None


def _session(console: Console, url: str, accept_rollback: bool, allow_user_functions: bool) -> Session:
    """A session on `url`; prints the jobs that are set aside. If the connector of a table is not installed sources are
    paused, so that existing rows can still be read."""
    session = connect(url, accept_rollback=accept_rollback, allow_user_functions=allow_user_functions)
    failed = session.failed_jobs
    if any(failure.is_retried for failure in failed):
        session.abandon()
        session = connect(url, sources_paused=True, allow_user_functions=allow_user_functions)
        console.print("[yellow]sources are paused[/yellow]", end=": ")
    for failure in failed:
        if failure.follows is None:
            console.print(f"[yellow]set aside[/yellow] {escape(failure.reason)}; SHOW JOBS tells more", soft_wrap=True)
    return session


def _prompt(session: Session, console: Console) -> None:
    """Execute statements until the end of input; an error ends a statement, not the prompt."""
    for statement in _typed(console):
        _run(session, console, statement)


def _typed(console: Console) -> Iterator[str]:
    text = ""
    first, further = ("[bold]hummock>[/bold] ", "       > ") if sys.stdin.isatty() else ("", "")
    while True:
        try:
            text += console.input(further if text.strip() else first) + "\n"
        except EOFError:
            return
        except KeyboardInterrupt:
            console.print()
            text = ""
            continue
        statements, text = split_statements(text)
        yield from statements


def _run(session: Session, console: Console, statement: str) -> bool:
    """Run one statement and print its result; whether it succeeded."""
    try:
        result = session.sql(statement)
        is_created = isinstance(result, Table) or statement.lstrip()[:6].upper() == "CREATE"
        if isinstance(result, Result) and not is_created:
            result = result.to_arrow()
    except USER_ERRORS as error:
        print_error(console, error)
        return False
    if isinstance(result, pa.Table):
        print_rows(console, result)
    elif isinstance(result, int):
        console.print(f"[dim]{counted_rows(result)}[/dim]")
    else:
        console.print("[dim]done[/dim]")
    return True
