"""Input of the shell, line by line: statements up to a semicolon, and backslash commands in psql's words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from relational.sql.lexer import Piece, complete_statements

WORDS = {
    "exit": "\\q", "quit": "\\q", "help": "\\?",
    ".exit": "\\q", ".quit": "\\q", ".help": "\\?", ".tables": "\\d", ".schema": "\\d", ".databases": "\\l",
}
"""Commands without a backslash, at the beginning of a statement; those with a dot as in the shell of SQLite."""
ENDING = re.compile(r"\\(?P<name>gx|g|watch)(?P<arguments>\s[^\\\n]*)?$")
"""A command that executes the statement before it."""
ARGUMENT = re.compile(r"'((?:[^']|'')*)'|((?:\"[^\"]*\"|[^\s\"'])+)")
DDL = ("CREATE", "ALTER", "DROP", "COMMENT")


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement without its semicolon. `line`: that of its first character, from 1. `ending`: the command that
    executes it, in place of a semicolon."""

    text: str
    line: int
    ending: Command | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """Up to two leading words, in upper case."""
        return Piece(self.text, 0, len(self.text)).words(2)

    @property
    def is_ddl(self) -> bool:
        return self.words[:1] in {(word,) for word in DDL}


@dataclass(frozen=True, slots=True)
class Command:
    """A backslash command: its name with the backslash, and its text after that."""

    name: str
    rest: str = ""

    @property
    def arguments(self) -> list[str]:
        """Words, and texts in single quotes; names in double quotes keep them."""
        found = (match[1].replace("''", "'") if match[1] is not None else match[2]
                 for match in ARGUMENT.finditer(self.rest))
        return list(found)


Item: TypeAlias = Statement | Command


def command_of(line: str) -> Command | None:
    """The command on a line, None if it has none."""
    text = line.strip()
    if text.startswith("\\"):
        match = re.match(r"\\(\?|[^\s\"']*)", text)
        assert match is not None
        return Command(match[0], text[match.end() :].strip())
    first, _, rest = text.rstrip(";").rstrip().partition(" ")
    word = WORDS.get(first.lower())
    return None if word is None or (rest and not first.startswith(".")) else Command(word, rest.strip())


class InputSplitter:
    """Takes lines, gives statements and commands, in order. What is not complete waits for more lines."""

    def __init__(self) -> None:
        self._text, self._line, self._lines = "", 1, 0

    @property
    def is_blank(self) -> bool:
        """Whether no statement has begun."""
        return Piece(self._text, 0, len(self._text)).is_empty

    def feed(self, line: str) -> Iterator[Item]:
        """What is complete with the next line."""
        self._lines += 1
        if self.is_blank and (command := command_of(line)) is not None:
            self.clear()
            yield command
            return
        if not self._text.strip():
            self.clear()
            self._line = self._lines
        self._text += line if line.endswith("\n") else line + "\n"
        if ";" in line or "\\" in line:
            yield from self._complete()

    def _complete(self) -> Iterator[Item]:
        found, rest = complete_statements(self._text)
        for piece in found:
            yield self._statement(piece)
        ending = ENDING.search(rest.source.rstrip())
        if ending is not None:
            before, open_rest = complete_statements(rest.source[: ending.start()] + ";")
            if open_rest.is_empty:
                command = Command(f"\\{ending['name']}", (ending["arguments"] or "").strip())
                inner = before[0] if before else None
                yield command if inner is None else self._statement(
                    Piece(self._text, rest.start + inner.start, rest.start + inner.end), command)
                self.clear()
                return
        self._line += self._text.count("\n", 0, rest.start)
        self._text = rest.source

    def _statement(self, piece: Piece, ending: Command | None = None) -> Statement:
        text = piece.source
        begin = piece.start + len(text) - len(text.lstrip())
        return Statement(text.strip(), self._line + self._text.count("\n", 0, begin), ending)

    def finish(self) -> Iterator[Statement]:
        """The statement that the end of the input ends."""
        if not self.is_blank:
            yield self._statement(Piece(self._text, 0, len(self._text)))
        self.clear()

    def clear(self) -> None:
        """Forgets the statement that has begun."""
        self._text, self._line = "", self._lines + 1


def is_complete(text: str) -> bool:
    """Whether this input has no statement that goes on: it is blank, a command, or its last statement is complete."""
    splitter = InputSplitter()
    for line in text.split("\n"):
        for _ in splitter.feed(line):
            pass
    return splitter.is_blank
