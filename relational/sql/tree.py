"""A piece of SQL text as sqlglot's tree, checked against its text.

The nesting of the tokens is bounded before sqlglot parses them, which bounds its recursion. Afterwards every node and
argument must be a supported one, and every word of the text must be accounted for by a node: anything that the parser
dropped, added or changed is rejected at its position. All passes are linear, and none of them recurses.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

from sqlglot import exp
from sqlglot.errors import ParseError as SqlglotParseError
from sqlglot.tokens import Token, TokenType

from relational.errors import ParseError, shortened
from relational.expr.unbound import TextSpan
from relational.sql.elsewhere import clause_elsewhere
from relational.sql.grammar import DIALECT, OWN
from relational.sql.lexer import Piece
from relational.sql.nodes import CHAINS, CLAUSES, KNOWN, NAMES, SILENT, SYNONYMS, UNWEIGHTED, Key

MAX_DEPTH = 100
"""Levels of parentheses, brackets, CASE, prefix operators and nested operations."""
_FRAMES_PER_LEVEL = 60
_SHALLOW = 8
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END)
_VALUES = (TokenType.NUMBER, TokenType.STRING, TokenType.IDENTIFIER, TokenType.VAR, TokenType.COMMA)
_PARTING = (TokenType.COMMA, TokenType.AND, TokenType.OR, TokenType.WHEN, TokenType.THEN, TokenType.ELSE)
_ENDING = (
    *_CLOSING,
    TokenType.COMMA,
    TokenType.FROM,
    TokenType.WHERE,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.ORDER_BY,
    TokenType.LIMIT,
    TokenType.OFFSET,
    TokenType.FETCH,
)
"""Tokens that do not follow a comma."""
_MAX_RUN = 32
"""Words and symbols between two values, as in - - - 1."""
_recursion = RLock()


class Tree:
    """`node` is the root of a checked tree; `location` maps a part of it to its span in the whole text."""

    __slots__ = ("_spans", "node", "piece")

    def __init__(self, node: exp.Expr, piece: Piece, spans: dict[int, tuple[int, int]]):
        self.node, self.piece, self._spans = node, piece, spans

    def location(self, node: exp.Expr | None) -> TextSpan | None:
        """The span of a node in the whole text: its own words, else its children together; None if unknown."""
        found = None if node is None else self._spans.get(id(node))
        return None if found is None else (found[0] + self.piece.start, found[1] + 1 + self.piece.start)

    def source(self, node: exp.Expr) -> str:
        """The text of a node."""
        start, end = self._spans[id(node)]
        return self.piece.text[self.piece.start + start : self.piece.start + end + 1]


def parse(piece: Piece) -> Tree:
    """The checked tree of a piece. ParseError, at its position, for what is not SQL or not supported."""
    tokens = piece.tokens()
    depth = _check_nesting(tokens, piece)
    try:
        with _recursion_for(depth):
            trees = DIALECT.parser().parse(tokens, piece.source)
    except SqlglotParseError as error:
        raise _located(error, piece) from None
    except RecursionError:
        raise piece.error("the statement is nested too deeply for the stack that is left") from None
    except (ValueError, TypeError, AttributeError, LookupError) as error:  # internal errors of its grammar
        raise piece.error("this statement is not understood") from error
    if len(trees) != 1 or trees[0] is None:
        raise piece.error("this statement is not understood")
    root = trees[0]
    assert isinstance(root, exp.Expr)
    nodes = _nodes(root)
    tree = Tree(root, piece, _spans(nodes))
    _check_nodes(nodes, tree)
    _check_depth(nodes, tree)
    _check_words(nodes, tokens, tree)
    return tree


def _check_nesting(tokens: list[Token], piece: Piece) -> int:
    """The deepest level of the tokens; ParseError at the token that exceeds the limit."""
    deepest = run = 0
    open_at = [0]  # of each open level: how many brackets and angle brackets follow each other
    for token, before in zip(tokens, [None, *tokens], strict=False):
        kind = token.token_type
        if kind in _OPENING:
            open_at[-1] += kind is TokenType.L_BRACKET
            open_at.append(0)
        elif kind in _CLOSING and len(open_at) > 1:
            open_at.pop()
        elif kind is TokenType.LT and before is not None and before.token_type in (TokenType.STRUCT, TokenType.ARRAY):
            open_at[-1] += 1
        elif kind in _PARTING:
            open_at[-1] = 0
        run = 0 if kind in _VALUES or kind in _OPENING or kind in _CLOSING else run + 1
        level = len(open_at) - 1 + run
        if level > MAX_DEPTH or open_at[-1] > MAX_DEPTH:
            raise _at(f"this is nested deeper than {MAX_DEPTH} levels", token, piece)
        if run > _MAX_RUN:
            raise _at(f"more than {_MAX_RUN} words and signs without a value", token, piece)
        deepest = max(deepest, level)
        is_glued = before is not None and before.token_type is TokenType.NUMBER and before.end + 1 == token.start
        if before is not None and before.token_type is TokenType.COMMA and kind in _ENDING:
            raise _at("a comma is followed by nothing", before, piece)
        if is_glued and (token.text[:1].isalpha() or token.text[:1] == "_"):
            raise _at("a number is followed by letters", token, piece)
    if tokens and tokens[-1].token_type is TokenType.COMMA:
        raise _at("a comma is followed by nothing", tokens[-1], piece)
    return deepest


@contextmanager
def _recursion_for(depth: int) -> Iterator[None]:
    """Grants the Python frames that sqlglot needs for a text of this depth: about twenty nested calls a level. One
    statement at a time has them, since the limit belongs to the interpreter.
    """
    if depth <= _SHALLOW:
        yield
        return
    with _recursion:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + depth * _FRAMES_PER_LEVEL)
        try:
            yield
        finally:
            sys.setrecursionlimit(limit)


def _nodes(root: exp.Expr) -> list[exp.Expr]:
    """All nodes, parents first; a type is a leaf."""
    found, todo = [], [root]
    while todo:
        node = todo.pop()
        found.append(node)
        if not isinstance(node, exp.DataType):
            todo.extend(_parts(node))
    return found


def _parts(node: exp.Expr) -> Iterator[exp.Expr]:
    for value in node.args.values():
        if isinstance(value, exp.Expr):
            yield value
        elif isinstance(value, list):
            yield from (part for part in value if isinstance(part, exp.Expr))


def _spans(nodes: list[exp.Expr]) -> dict[int, tuple[int, int]]:
    """First and last character of each node within the piece, by its id."""
    spans: dict[int, tuple[int, int]] = {}
    for node in reversed(nodes):
        if "start" in node.meta:
            spans[id(node)] = node.meta["start"], node.meta["end"]
            continue
        inside = () if isinstance(node, exp.DataType) else _parts(node)
        found = [spans[id(part)] for part in inside if id(part) in spans] or list(node.meta.get(OWN, ()))
        if found:
            spans[id(node)] = min(span[0] for span in found), max(span[1] for span in found)
    return spans


def _check_nodes(nodes: list[exp.Expr], tree: Tree) -> None:
    """ParseError at the first unsupported node or argument."""
    for node in nodes:
        kind = type(node)
        if kind is exp.DataType:
            continue
        known = KNOWN.get(kind)
        if known is None:
            raise unsupported(node, tree)
        for name, part in node.args.items():
            if part and name not in known.args and name not in known.settled:
                raise _unsupported_part(node, name, part, tree)


def unsupported(node: exp.Expr, tree: Tree) -> ParseError:
    """The error for an unsupported kind of node, or an unsupported position of one."""
    return _error(f"{_called(node, tree)} is not supported", tree.location(node), tree)


def _unsupported_part(node: exp.Expr, name: str, part: object, tree: Tree) -> ParseError:
    first = part[0] if isinstance(part, list) else part
    span = tree.location(first) if isinstance(first, exp.Expr) else None
    clause = CLAUSES.get(name, name.strip("_").upper())
    whole = clause if isinstance(node, exp.Select) else f"{clause} of {_called(node, tree)}"
    return _error(f"{whole} is not supported", span or tree.location(node) or tree.location(node.parent), tree)


def _called(node: exp.Expr, tree: Tree) -> str:
    """The name of a node in messages, else its text."""
    name = NAMES.get(type(node))
    if name is None:
        name = "this" if tree.location(node) is None else repr(shortened(tree.source(node), 80))
    return name


def _check_depth(nodes: list[exp.Expr], tree: Tree) -> None:
    """ParseError if operations are nested too deeply; a chain of ANDs, ORs or || is one level."""
    heights: dict[int, int] = {}
    for node in reversed(nodes):
        height = 0
        for part in () if isinstance(node, exp.DataType) else _parts(node):
            height = max(height, heights[id(part)] - _continues(node, part))
        heights[id(node)] = height + (not isinstance(node, UNWEIGHTED))
        if heights[id(node)] > MAX_DEPTH:
            raise _error(f"this is nested deeper than {MAX_DEPTH} levels", tree.location(node), tree)


def _continues(node: exp.Expr, part: exp.Expr) -> bool:
    """Whether `part` belongs to the same chain as `node`, and adds no level."""
    if not isinstance(node, CHAINS):
        return False
    while isinstance(part, exp.Paren):
        part = part.this
    return type(part) is type(node)


def _check_words(nodes: list[exp.Expr], tokens: list[Token], tree: Tree) -> None:
    """ParseError unless the nodes account for exactly the words of the text, with their multiplicity."""
    is_used, wanted = _accounts(nodes, tokens, tree)
    for token, used in zip(tokens, is_used, strict=True):
        if used:
            continue
        key = _key(token)
        for word in SYNONYMS.get(key, (key,)):
            if word in SILENT:
                continue
            if not wanted[word]:
                raise _at(f"{shortened(token.text, 80)} is not supported here", token, tree.piece)
            wanted[word] -= 1
    wanted["CAST"] = 0  # a type before a text is a cast without a word for it
    missing = next((word for word, count in wanted.items() if count), None)
    if missing is not None:
        raise tree.piece.error(f"this is not understood: {missing} is missing")


def _accounts(nodes: list[exp.Expr], tokens: list[Token], tree: Tree) -> tuple[bytearray, Counter[Key]]:
    """The tokens that belong to a node by position, and the expected count of each word among the others."""
    starts = [token.start for token in tokens]
    is_used = bytearray(len(tokens))
    wanted: Counter[Key] = Counter()
    for node in nodes:
        if "start" in node.meta:
            first, past = bisect_left(starts, node.meta["start"]), bisect_left(starts, node.meta["end"] + 1)
            is_used[first:past] = b"\1" * (past - first)
            is_leaf = isinstance(node, exp.Identifier | exp.Literal) and past - first == 1
            if is_leaf and not _is_same(node, tokens[first]):
                raise _at("this is not understood", tokens[first], tree.piece)
        for start, _ in node.meta.get(OWN, ()):
            is_used[bisect_left(starts, start)] = 1
        if not isinstance(node, exp.DataType):
            wanted.update(KNOWN[type(node)].words_of(node))
    return is_used, wanted


def _is_same(node: exp.Expr, token: Token) -> bool:
    return str(node.this).lower() == token.text.lower()


def _key(token: Token) -> Key:
    """The key by which a word or symbol is counted."""
    if token.text[:1].isalpha() and token.token_type is not TokenType.STRING:
        return " ".join(token.text.upper().split())
    return token.token_type


def _at(message: str, token: Token, piece: Piece) -> ParseError:
    return ParseError(message, start=piece.start + token.start, end=piece.start + token.end + 1)


def _error(message: str, span: TextSpan | None, tree: Tree) -> ParseError:
    if span is None:
        return tree.piece.error(message)
    return ParseError(message, start=span[0], end=span[1])


def _located(error: SqlglotParseError, piece: Piece) -> ParseError:
    """sqlglot's error at its position in the whole text, in our words."""
    start, end = piece.start + error.errors[0]["start"], piece.start + error.errors[0]["end"] + 1
    near = f"syntax error near {shortened(piece.text[start:end], 80)!r}"
    return ParseError(f"{near}{clause_elsewhere(piece.text, start)}", start=start, end=end)
