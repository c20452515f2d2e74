"""Pieces of SQL text before sqlglot sees them: statements, leading words, tokens with their places.

sqlglot's tokenizer swallows what follows some leading words (EXPLAIN, SHOW) as one string, and its
parser turns what it does not know into an opaque command. So statements are told apart here, by their
first words, and only the parts that sqlglot understands are handed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError as SqlglotParseError
from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType

from relational.errors import ParseError

DIALECT = "risingwave"
MAX_TEXT_CHARACTERS = 16 << 20
_BLANK = re.compile(r"\s+|--[^\n]*|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9$]*")
_PIECE = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|;|.", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Piece:
    """Characters `start` to `end` of a whole text: one statement, or what is left of it."""

    text: str
    start: int
    end: int

    @property
    def source(self) -> str:
        return self.text[self.start : self.end]

    def words(self, count: int) -> tuple[str, ...]:
        """Up to `count` leading words, in upper case."""
        found: list[str] = []
        at = self.start
        while len(found) < count:
            match = _WORD.match(self.text, after_blanks(self.text, at, self.end), self.end)
            if match is None:
                break
            found.append(match[0].upper())
            at = match.end()
        return tuple(found)

    def after(self, count: int) -> Piece:
        """What follows the first `count` words. REQUIRES that there are so many."""
        at = self.start
        for _ in range(count):
            match = _WORD.match(self.text, after_blanks(self.text, at, self.end), self.end)
            assert match is not None, count
            at = match.end()
        return Piece(self.text, at, self.end)

    @property
    def is_empty(self) -> bool:
        """Nothing but blanks and comments."""
        return after_blanks(self.text, self.start, self.end) >= self.end

    def error(self, message: str) -> ParseError:
        """A ParseError at the first word."""
        at = after_blanks(self.text, self.start, self.end)
        match = _WORD.match(self.text, at, self.end)
        return ParseError(message, start=at, end=match.end() if match else at + 1)

    def parse(self) -> exp.Expression:
        """The tree of the piece; ParseError for what sqlglot does not understand."""
        try:
            tree = sqlglot.parse_one(self.source, read=DIALECT)
        except SqlglotParseError as error:
            raise self._located(error) from error
        except TokenError as error:
            raise self.error("a quote or comment is not closed") from error
        if isinstance(tree, exp.Command):
            raise self.error("this statement is not understood")
        assert isinstance(tree, exp.Expression)
        return tree

    def tokens(self) -> list[Token]:
        """The tokens of the piece; their places are relative to its start."""
        try:
            return sqlglot.tokenize(self.source, read=DIALECT)
        except TokenError as error:
            raise self.error("a quote or comment is not closed") from error

    def _located(self, error: SqlglotParseError) -> ParseError:
        """sqlglot's complaint at its place in the whole text."""
        first = error.errors[0]
        lines = self.source.split("\n")
        line = min(max(first["line"] or 1, 1), len(lines))
        end = sum(len(each) + 1 for each in lines[: line - 1]) + (first["col"] or 0)
        end = self.start + min(end, len(self.source))
        shown = first["highlight"] or ""
        description = re.sub(r" for <class .*|\.$", "", first["description"])
        near = f" near {shown!r}" if shown else ""
        return ParseError(
            f"syntax error{near}: {description}", start=max(end - len(shown), self.start), end=end
        )


def after_blanks(text: str, start: int, end: int) -> int:
    """Where the first character stands that is neither blank nor part of a comment."""
    while (match := _BLANK.match(text, start, end)) is not None:
        start = match.end()
    return start


def statements(text: str) -> Iterator[Piece]:
    """The statements of a text, parted by semicolons outside quotes and comments; empty ones are left out."""
    if len(text) > MAX_TEXT_CHARACTERS:
        raise ParseError(f"a text of {len(text)} characters, at most {MAX_TEXT_CHARACTERS} are taken")
    start = 0
    for match in _PIECE.finditer(text):
        if match[0] == ";":
            piece = Piece(text, start, match.start())
            if not piece.is_empty:
                yield piece
            start = match.end()
    last = Piece(text, start, len(text))
    if not last.is_empty:
        yield last


class TokenReader:
    """Walks the tokens of a piece; every complaint points at the token it is about."""

    def __init__(self, piece: Piece):
        self._piece, self._tokens, self._at = piece, piece.tokens(), 0

    @property
    def is_done(self) -> bool:
        return self._at >= len(self._tokens)

    @property
    def place(self) -> tuple[int, int]:
        """The current token's place in the whole text; the end of the piece after the last."""
        if self.is_done:
            return self._piece.end, self._piece.end + 1
        token = self._tokens[self._at]
        return self._piece.start + token.start, self._piece.start + token.end + 1

    def fail(self, message: str) -> ParseError:
        start, end = self.place
        return ParseError(message, start=start, end=end)

    def peek(self) -> Token | None:
        return None if self.is_done else self._tokens[self._at]

    def next(self) -> Token:
        token = self.peek()
        if token is None:
            raise self.fail("the statement ends too early")
        self._at += 1
        return token

    def accept(self, *words: str) -> bool:
        """Step over the words (each is one token or a part of a token like PRIMARY KEY) if they come next."""
        wanted, at = list(words), self._at
        while wanted and at < len(self._tokens):
            for part in self._tokens[at].text.upper().split() or [""]:
                if not wanted or part != wanted.pop(0):
                    return False
            if self._tokens[at].token_type in (TokenType.STRING, TokenType.IDENTIFIER):
                return False
            at += 1
        if wanted:
            return False
        self._at = at
        return True

    def expect(self, *words: str) -> None:
        """The same, ParseError if something else comes next."""
        if not self.accept(*words):
            raise self.fail(f"{' '.join(words)} is expected here")

    def name(self, what: str) -> str:
        """An identifier, folded to lower case unless quoted."""
        token = self.peek()
        if token is None or not (token.token_type is TokenType.IDENTIFIER or _WORD.fullmatch(token.text)):
            raise self.fail(f"the name of {what} is expected here")
        self._at += 1
        return token.text if token.token_type is TokenType.IDENTIFIER else token.text.lower()

    def finish(self) -> None:
        """ParseError if something follows."""
        if not self.is_done:
            raise self.fail("nothing is expected here")

    def piece_between(self, start: int, end: int) -> Piece:
        """A part of the whole text."""
        return Piece(self._piece.text, start, end)

    def text_between(self, start: int, end: int) -> str:
        """Characters of the whole text."""
        return self._piece.text[start:end]

    def rest(self) -> Piece:
        """What has not been read yet."""
        return Piece(self._piece.text, self.place[0], self._piece.end)
