"""The interactive shell: it reads what is typed and executes it, until Ctrl-D or \\q."""

from __future__ import annotations

import contextlib

from hummock.base.process import installed_version
from stream.cli.shell.completion import Candidate, CatalogNames, candidates
from stream.cli.shell.history import HistoryFile
from stream.cli.shell.prompt import Prompt, new_prompt
from stream.cli.shell.shell import USER_ERRORS, Shell
from stream.cli.shell.statements import InputSplitter

STALE_SECONDS = 30.0
"""How long names can be completed that another process has dropped."""


class InteractiveShell:
    """A shell with a prompt, whose completions follow the catalog."""

    def __init__(self, shell: Shell, history: HistoryFile | None = None) -> None:
        self._shell = shell
        self._names, self._read_at = CatalogNames(), 0.0
        self._prompt: Prompt = new_prompt(self._candidates, history or HistoryFile())

    def run(self) -> None:
        """Until the end of input or \\q. Ctrl-C ends a statement or clears the input."""
        self._shell.output.note(f"Hummock {installed_version()} on {self._shell.url}. help lists the commands; "
                                "statements end with a semicolon.")
        while not self._shell.state.is_over:
            try:
                self._refresh()
                self.execute(self._prompt.read())
            except KeyboardInterrupt:
                continue
            except EOFError:
                break

    def execute(self, text: str) -> None:
        """Executes an input, of any number of statements and commands."""
        splitter = InputSplitter()
        for line in text.split("\n"):
            self._shell.run_items(splitter.feed(line))

    def _candidates(self, before: str, after: str) -> list[Candidate]:
        return candidates(before, after, self._names)

    def _refresh(self) -> None:
        """Reads the names again after a DDL of this shell, or after some time. Those of
        before stay if that fails, as in an aborted transaction."""
        state, now = self._shell.state, self._shell.clock()
        if not state.catalog_changed and now - self._read_at < STALE_SECONDS:
            return
        state.catalog_changed, self._read_at = False, now
        with contextlib.suppress(*USER_ERRORS):
            self._names = CatalogNames.read(self._shell.session)
