"""Input of the shell, line by line: statements up to a semicolon, and backslash commands in psql's words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from relational.sql.lexer import LexerState, Piece, read_line

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
    """Takes lines, gives statements and commands, in order. What is not complete waits for more lines; each line is
    read once."""

    def __init__(self) -> None:
        self._lines = 0
        self._line = 1  # that of the first of the characters in `_parts`
        self._parts: list[str] = []  # of the statement that has begun, or blanks and comments before it
        self._has_text = False  # they are not just blanks
        self._state = LexerState()

    @property
    def is_blank(self) -> bool:
        """Whether no statement has begun."""
        return self._state.is_blank

    def feed(self, line: str) -> list[Item]:
        """What is complete with the next line."""
        self._lines += 1
        if self.is_blank and (command := command_of(line)) is not None:
            self.clear()
            return [command]
        if not self._has_text:
            self.clear()
            self._line = self._lines
        return self._complete(line if line.endswith("\n") else line + "\n")

    def _complete(self, line: str) -> list[Item]:
        before = self._state
        ends, self._state = read_line(line, before)
        found: list[Item] = []
        start = 0
        for end in ends:
            self._add(line[start : end.at])
            if not end.is_blank:
                found.append(self._statement())
            self._line += sum(part.count("\n") for part in self._parts)
            self._parts, self._has_text = [], False
            start = end.at + 1
        ending = _ending_of(line[start:], LexerState() if ends else before)
        if ending is None:
            self._add(line[start:])
            return found
        self._add(line[start : start + ending.at])
        found.append(ending.command if ending.is_blank else self._statement(ending.command))
        self.clear()
        return found

    def _add(self, text: str) -> None:
        self._parts.append(text)
        self._has_text = self._has_text or bool(text.strip())

    def _statement(self, ending: Command | None = None) -> Statement:
        text = "".join(self._parts)
        begin = len(text) - len(text.lstrip())
        return Statement(text.strip(), self._line + text.count("\n", 0, begin), ending)

    def finish(self) -> Iterator[Statement]:
        """The statement that the end of the input ends."""
        if not self.is_blank:
            yield self._statement()
        self.clear()

    def clear(self) -> None:
        """Forgets the statement that has begun."""
        self._line, self._parts, self._has_text, self._state = self._lines + 1, [], False, LexerState()


class _Ending(NamedTuple):
    """A command that executes the statement before it: its offset, and whether there is none but blanks and comments.
    """

    at: int
    command: Command
    is_blank: bool


def _ending_of(text: str, state: LexerState) -> _Ending | None:
    """The command at the end of a line, whose part `text` begins in `state` and has no end of a statement."""
    match = ENDING.search(text.rstrip()) if "\\" in text else None
    if match is None:
        return None
    ends, after = read_line(text[: match.start()] + ";", state)
    is_blank = ends[0].is_blank if ends else after.is_blank
    if not ends and not is_blank:
        return None
    return _Ending(match.start(), Command(f"\\{match['name']}", (match["arguments"] or "").strip()), is_blank)


def is_complete(text: str) -> bool:
    """Whether this input has no statement that goes on: it is blank, a command, or its last statement is complete."""
    splitter = InputSplitter()
    for line in text.split("\n"):
        splitter.feed(line)
    return splitter.is_blank
