"""The prompt with prompt_toolkit: statements of several lines are edited as a whole, and coloured if pygments is there.
"""

from __future__ import annotations

from collections.abc import Iterable

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import History
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.shortcuts import CompleteStyle

from hummock.base.extras import is_installed
from stream.cli.shell.history import HistoryFile
from stream.cli.shell.prompt import FIRST, FURTHER, Complete
from stream.cli.shell.statements import is_complete


class EditorPrompt:
    """Enter ends an input whose last statement is complete, and else begins a line."""

    def __init__(self, complete: Complete, history: HistoryFile) -> None:
        self._session: PromptSession[str] = PromptSession(
            FIRST,
            multiline=Condition(self._goes_on),
            prompt_continuation=FURTHER,
            completer=_Completer(complete),
            complete_style=CompleteStyle.COLUMN,
            complete_while_typing=False,
            auto_suggest=AutoSuggestFromHistory(),
            history=_History(history),
            lexer=_highlighting(),
            enable_open_in_editor=True,
        )

    def _goes_on(self) -> bool:
        return not is_complete(self._session.default_buffer.text)

    def read(self) -> str:
        return self._session.prompt()


class _Completer(Completer):
    def __init__(self, complete: Complete) -> None:
        self._complete = complete

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        for each in self._complete(document.text_before_cursor, document.text_after_cursor):
            yield Completion(each.text, -each.length, display_meta=each.kind)


class _History(History):
    """The history file, as prompt_toolkit reads it: the newest input first."""

    def __init__(self, file: HistoryFile) -> None:
        super().__init__()
        self._file = file

    def load_history_strings(self) -> Iterable[str]:
        return reversed(self._file.entries())

    def store_string(self, string: str) -> None:
        self._file.append(string)


def _highlighting() -> Lexer | None:
    """Colours for SQL; None without pygments."""
    if not is_installed("pygments"):
        return None
    from prompt_toolkit.lexers import PygmentsLexer
    from pygments.lexers.sql import PostgresLexer

    return PygmentsLexer(PostgresLexer)
