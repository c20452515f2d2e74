"""Terminal output of commands."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

PIPE_COLUMNS = 240


def new_console() -> Console:
    """A console on standard output; wide if that is not a terminal, so that lines in a file are not folded."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_COLUMNS)


def print_error(console: Console, error: BaseException) -> None:
    """Prints the error's type and message in one line."""
    console.print(f"[bold red]{type(error).__name__}[/bold red] {escape(str(error))}", soft_wrap=True)

