"""Runs a shell as the command line says: arguments, files, a pipe, or a prompt."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click

from stream.cli.shell.connection import hint_of, open_session
from stream.cli.shell.options import Access, OutputOptions
from stream.cli.shell.output import Output
from stream.cli.shell.shell import USER_ERRORS, Shell

FAILED, INTERRUPTED, PIPE_CLOSED = 1, 128 + signal.SIGINT, 128 + signal.SIGPIPE
EXAMPLE = """Try:

  CREATE TABLE t (a BIGINT, b VARCHAR);
  CREATE MATERIALIZED VIEW mv AS SELECT SUM(a) AS a, b FROM t GROUP BY b;
  INSERT INTO t VALUES (2, 'AMERICA'), (3, 'ASIA'), (4, 'AMERICA'), (5, 'ASIA');
  FLUSH;
  SELECT * FROM mv;
"""


@dataclass(frozen=True, slots=True)
class Request:
    """What is executed on which store. Without commands and files: the standard input, which is a prompt if it is a
    terminal; then `welcome` is shown first."""

    url: str
    access: Access
    commands: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    format: str | None = None
    output: Path | None = None
    goes_on: bool = False
    welcome: str = field(default="")


def run(request: Request) -> None:
    """Executes it all. SystemExit with a status other than 0 after an error, unless the request goes on."""
    is_typed = not request.commands and not request.files
    is_interactive = is_typed and sys.stdin.isatty()
    output = Output(sys.stdout, OutputOptions(request.format), is_interactive=is_interactive)
    with _reported():
        if request.output is not None:
            output.open(request.output)
        with contextlib.closing(output), open_session(request.url, request.access, _warn) as session:
            shell = Shell(session, request.url, output, goes_on=is_interactive or request.goes_on)
            if is_interactive:
                _prompt(shell, request.welcome)
            elif not _execute(shell, request, is_typed=is_typed):
                raise SystemExit(FAILED)


def _execute(shell: Shell, request: Request, *, is_typed: bool) -> bool:
    if is_typed:
        return shell.run_lines(sys.stdin, "<stdin>")
    return all(shell.run_lines(command.splitlines()) for command in request.commands) and all(
        shell.run_file(path) for path in request.files)


def _prompt(shell: Shell, welcome: str) -> None:
    from stream.cli.shell.loop import InteractiveShell

    if welcome:
        shell.output.note(welcome)
    InteractiveShell(shell).run()


@contextlib.contextmanager
def _reported() -> Iterator[None]:
    """Writes an error that ends the command in one line. SystemExit."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what Python flushes at its end
        raise SystemExit(PIPE_CLOSED) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except USER_ERRORS as error:
        click.echo(f"{click.style(type(error).__name__, fg='red', bold=True)}: {error}{hint_of(error)}", err=True)
        raise SystemExit(FAILED) from None


def _warn(text: str) -> None:
    click.echo(click.style(text, fg="yellow"), err=True)
