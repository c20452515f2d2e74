"""Pieces of SQL text before sqlglot parses them: statements, leading words, tokens with their positions.

sqlglot's parser turns statements that it does not know into an opaque command. So statements are classified here, by
their first words, and only the parts that sqlglot understands are passed on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType

from relational.errors import BindError, ParseError
from relational.sql.grammar import DIALECT
from relational.types.data_type import DataType

MAX_TEXT_CHARACTERS = 16 << 20
OPENING, CLOSING = (TokenType.L_PAREN, TokenType.LT), (TokenType.R_PAREN, TokenType.GT)
"""Brackets in the text of a type."""
_BLANK = re.compile(r"(?:\s+|--[^\n]*)+")
_COMMENT_MARK = re.compile(r"/\*|\*/")
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9$]*")
_PART = re.compile(
    r"[^\w'\"$;/-]++|\d++(?:\.\d*+)?(?:[eE][+-]?\d*+)?|"
    r"[eE]'(?:[^'\\]++|\\.|'')*+'|'(?:[^']++|'')*+'|\"(?:[^\"]++|\"\")*+\"|--[^\n]*+|(?P<quote>[eE]?'|\")|"
    r"[^\W\d][\w$]*+|(?P<comment>/\*)|(?P<end>;)|(?P<tag>\$(?:[^\W\d]\w*+)?\$)|.",
    re.DOTALL,
)
"""A whole part of a text. Of a quote that is not closed, of a comment and of a text between tags only the beginning."""
_REST_OF_ESCAPED = re.compile(r"(?:[^'\\]++|\\.|'')*+'", re.DOTALL)
_REST_OF_QUOTE = {
    "'": re.compile(r"(?:[^']++|'')*+'"),
    '"': re.compile(r"(?:[^\"]++|\"\")*+\""),
    "e'": _REST_OF_ESCAPED,
    "E'": _REST_OF_ESCAPED,
}


@dataclass(frozen=True, slots=True)
class Piece:
    """Characters `start` to `end` of a whole text: one statement, or the remainder of one."""

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
        """The text after the first `count` words. REQUIRES at least `count` words."""
        at = self.start
        for _ in range(count):
            match = _WORD.match(self.text, after_blanks(self.text, at, self.end), self.end)
            assert match is not None, count
            at = match.end()
        return Piece(self.text, at, self.end)

    @property
    def is_empty(self) -> bool:
        """Whether there are only blanks and comments."""
        return after_blanks(self.text, self.start, self.end) >= self.end

    def error(self, message: str) -> ParseError:
        """A ParseError at the first word."""
        at = after_blanks(self.text, self.start, self.end)
        match = _WORD.match(self.text, at, self.end)
        return ParseError(message, start=at, end=match.end() if match else at + 1)

    def tokens(self) -> list[Token]:
        """The tokens of the piece; their offsets are relative to its start."""
        try:
            return DIALECT.tokenize(self.source)
        except TokenError:
            raise self.error("a quote or comment is not closed") from None


def after_blanks(text: str, start: int, end: int) -> int:
    """The offset of the first character that is neither blank nor part of a comment."""
    while start < end:
        match = _BLANK.match(text, start, end)
        if match is not None:
            start = match.end()
        elif text.startswith("/*", start, end):
            start = after_comment(text, start, end)
        else:
            return start
    return start


def after_comment(text: str, start: int, end: int) -> int:
    """The end of the comment that begins at `start`, nested ones included; `end` if it is not closed."""
    return _rest_of_comment(text, start, end, 0)[0]


def _rest_of_comment(text: str, start: int, end: int, depth: int) -> tuple[int, int]:
    """The end of a comment that goes on at `start`, of which `depth` are open there, one in another; and how many are
    open at that end."""
    for mark in _COMMENT_MARK.finditer(text, start, end):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end(), 0
    return end, depth


def statements(text: str) -> Iterator[Piece]:
    """The statements of a text, separated by semicolons outside quotes and comments; empty ones are skipped. The last
    one has everything after a tag that is not closed. ParseError for a text that is too long, or has characters that
    Unicode has not."""
    if len(text) > MAX_TEXT_CHARACTERS:
        raise ParseError(f"a text of {len(text)} characters, at most {MAX_TEXT_CHARACTERS} are taken", start=0, end=1)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ParseError("this is no Unicode character", start=error.start, end=error.end) from None
    start = at = 0
    last_end = text.rfind(";")
    if last_end >= 0 and text.find(";") == last_end and not text[last_end + 1 :].strip():
        text, last_end = text[:last_end], -1
    while at <= last_end:
        match = _PART.match(text, at)
        assert match is not None
        kind, at = match.lastgroup, match.end()
        if kind is None:
            continue
        if kind == "comment":
            at = after_comment(text, match.start(), len(text))
        elif kind == "quote":
            at = match.start() + 1
        elif kind == "tag":
            at = _after_quote(text, at, match[0])
            if at < 0:
                break
        elif kind == "end":
            piece = Piece(text, start, match.start())
            if not piece.is_empty:
                yield piece
            start = at
    last = Piece(text, start, len(text))
    if not last.is_empty:
        yield last


@dataclass(frozen=True, slots=True)
class LexerState:
    """Where a text that arrives in lines has got to. `quote`: the quotation mark or tag that is not closed yet, "" if
    there is none; `depth`: how many comments are open, one in another. `is_blank`: there are only blanks and comments
    since the last semicolon that ended a statement."""

    quote: str = ""
    depth: int = 0
    is_blank: bool = True


class StatementEnd(NamedTuple):
    """The offset of a semicolon that ends a statement, and whether that has only blanks and comments."""

    at: int
    is_blank: bool


def read_line(line: str, state: LexerState) -> tuple[list[StatementEnd], LexerState]:
    """The ends of statements in the next line of a text, and the state after it. REQUIRES that a further line is read
    only after one with a line feed at its end: nothing but quotes and comments goes on after that."""
    ends: list[StatementEnd] = []
    is_blank = state.is_blank
    at, depth = _rest_of_comment(line, 0, len(line), state.depth) if state.depth else (0, 0)
    if state.quote:
        at = _after_quote(line, 0, state.quote)
        if at < 0:
            return ends, state
    while at < len(line):
        match = _PART.match(line, at)
        assert match is not None
        kind, at = match.lastgroup, match.end()
        if kind == "comment":
            at, depth = _rest_of_comment(line, at, len(line), 1)
        elif kind == "end":
            ends.append(StatementEnd(match.start(), is_blank))
            is_blank = True
        elif kind is not None:
            at, is_blank = _after_quote(line, at, match[0]), False
            if at < 0:
                return ends, LexerState(match[0], is_blank=False)
        elif is_blank:
            is_blank = match[0].isspace() or match[0].startswith("--")
    return ends, LexerState(depth=depth, is_blank=is_blank)


def _after_quote(text: str, at: int, quote: str) -> int:
    """The end of a quote that begins with the mark or tag `quote` and goes on at `at`; -1 if it is not closed."""
    if quote.startswith("$"):
        closing = text.find(quote, at)
        return -1 if closing < 0 else closing + len(quote)
    match = _REST_OF_QUOTE[quote].match(text, at)
    return -1 if match is None else match.end()


class TokenReader:
    """Iterates the tokens of a piece; every error refers to its token."""

    def __init__(self, piece: Piece):
        self._piece, self._tokens, self._at = piece, piece.tokens(), 0

    @property
    def is_done(self) -> bool:
        return self._at >= len(self._tokens)

    @property
    def span(self) -> tuple[int, int]:
        """The span of the current token in the whole text; after the last token, the end of the piece."""
        if self.is_done:
            return self._piece.end, self._piece.end + 1
        token = self._tokens[self._at]
        return self._piece.start + token.start, self._piece.start + token.end + 1

    def fail(self, message: str) -> ParseError:
        start, end = self.span
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
        """Consumes the words (each is one token or a part of a token like PRIMARY KEY) if they are next."""
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

    def begins(self, *words: str) -> bool:
        """Whether the words are next."""
        at = self._at
        found = self.accept(*words)
        self._at = at
        return found

    def expect(self, *words: str) -> None:
        """Consumes the words; ParseError if they are not next."""
        if not self.accept(*words):
            raise self.fail(f"{' '.join(words)} is expected here")

    def name(self, what: str) -> str:
        """An identifier, folded to lower case unless quoted."""
        token = self.peek()
        if token is None or not (token.token_type is TokenType.IDENTIFIER or _WORD.fullmatch(token.text)):
            raise self.fail(f"the name of {what} is expected here")
        self._at += 1
        return token.text if token.token_type is TokenType.IDENTIFIER else token.text.lower()

    def data_type(self, is_end: Callable[[Token], bool]) -> DataType:
        """The tokens before the first one, outside parentheses and angle brackets, that `is_end`, as a type. BindError.
        """
        start = end = self.span[0]
        depth = 0
        while (token := self.peek()) is not None and (depth or not is_end(token)):
            depth += (token.token_type in OPENING) - (token.token_type in CLOSING)
            end = self.span[1]
            self._at += 1
        try:
            return DataType.parse(self.text_between(start, end))
        except BindError as error:
            raise BindError(error.message, start=start, end=max(end, start + 1)) from error

    def finish(self) -> None:
        """ParseError unless all tokens are consumed."""
        if not self.is_done:
            raise self.fail("nothing is expected here")

    def piece_between(self, start: int, end: int) -> Piece:
        """A part of the whole text."""
        return Piece(self._piece.text, start, end)

    def text_between(self, start: int, end: int) -> str:
        """Characters of the whole text."""
        return self._piece.text[start:end]

    def rest(self) -> Piece:
        """The unread remainder."""
        return Piece(self._piece.text, self.span[0], self._piece.end)
