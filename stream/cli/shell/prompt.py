"""The prompt of a terminal: with prompt_toolkit, the extra `shell`, if that is installed, else with readline."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Protocol

from hummock.base.extras import is_installed
from stream.cli.shell.completion import Candidate
from stream.cli.shell.history import HistoryFile
from stream.cli.shell.statements import is_complete

FIRST, FURTHER = "hummock> ", "       > "
Complete = Callable[[str, str], list[Candidate]]
"""The completions of the text before the cursor, with the text after it."""


class Prompt(Protocol):
    """Where somebody types."""

    def read(self) -> str:
        """Statements or a command, of one line or more. EOFError at the end; KeyboardInterrupt clears the input."""


class LinePrompt:
    """A prompt for one line after another, with what readline offers, if Python was built with it."""

    def __init__(self, complete: Complete, history: HistoryFile) -> None:
        self._history = history
        with contextlib.suppress(ImportError):
            self._set_up(complete)

    def _set_up(self, complete: Complete) -> None:
        import readline

        readline.clear_history()
        for entry in self._history.entries():
            readline.add_history(entry.replace("\n", " "))
        readline.set_auto_history(True)
        found: list[str] = []

        def complete_word(word: str, at: int) -> str | None:
            if at == 0:
                line, end = readline.get_line_buffer(), readline.get_endidx()
                before, after = line[:end], line[end:]
                begin = readline.get_begidx()
                found[:] = [before[begin : len(before) - each.length] + each.text for each in complete(before, after)]
            return found[at] if at < len(found) else None

        readline.set_completer(complete_word)
        readline.set_completer_delims(" \t\n,;()=<>+-*/")
        is_editline = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if is_editline else "tab: complete")

    def read(self) -> str:
        lines = [input(FIRST)]
        while not is_complete("\n".join(lines)):
            lines.append(input(FURTHER))
        text = "\n".join(lines)
        self._history.append(text)
        return text


def new_prompt(complete: Complete, history: HistoryFile) -> Prompt:
    """The best prompt that is installed."""
    if not is_installed("prompt_toolkit"):
        return LinePrompt(complete, history)
    from stream.cli.shell.editor import EditorPrompt

    return EditorPrompt(complete, history)
