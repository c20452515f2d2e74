"""BEGIN, COMMIT, ROLLBACK, and cursors: DECLARE, FETCH, CLOSE."""

from __future__ import annotations

from relational.errors import ParseError
from relational.expr.bind import error_span
from relational.sql.context import BindContext
from relational.sql.expressions import Translator
from relational.sql.lexer import Piece, TokenReader
from relational.sql.query import QueryBinder
from relational.sql.statement import Begin, CloseCursor, DeclareCursor, End, Fetch, Select
from relational.sql.tree import parse

_ISOLATION = (("READ", "UNCOMMITTED"), ("READ", "COMMITTED"), ("REPEATABLE", "READ"), ("SERIALIZABLE",))
_MOST_DIGITS = 18


def bind_begin(piece: Piece, context: BindContext) -> Begin:
    """BEGIN [WORK | TRANSACTION] or START TRANSACTION, then [READ ONLY | READ WRITE | ISOLATION LEVEL … | [NOT]
    DEFERRABLE], …
    """
    reader = TokenReader(piece)
    if reader.accept("START"):
        reader.expect("TRANSACTION")
    else:
        reader.expect("BEGIN")
        if not reader.accept("WORK"):
            reader.accept("TRANSACTION")
    is_read_only = False
    while not reader.is_done:
        if reader.accept("READ", "ONLY"):
            is_read_only = True
        elif reader.accept("READ", "WRITE"):
            is_read_only = False
        elif reader.accept("ISOLATION", "LEVEL"):
            if not any(reader.accept(*words) for words in _ISOLATION):
                raise reader.fail("an isolation level is expected here")
        elif not (reader.accept("DEFERRABLE") or reader.accept("NOT", "DEFERRABLE")):
            raise reader.fail("READ ONLY, READ WRITE or ISOLATION LEVEL is expected here")
        reader.accept(",")
    return Begin(is_read_only)


def bind_end(piece: Piece, context: BindContext) -> End:
    """COMMIT, END, ROLLBACK or ABORT [WORK | TRANSACTION]."""
    is_rollback = piece.words(1)[0] in ("ROLLBACK", "ABORT")
    reader = TokenReader(piece.after(1))
    if not reader.accept("WORK"):
        reader.accept("TRANSACTION")
    reader.finish()
    return End(is_rollback)


def bind_declare(piece: Piece, context: BindContext) -> DeclareCursor:
    """DECLARE name [NO SCROLL] CURSOR [WITH HOLD | WITHOUT HOLD] FOR query."""
    reader = TokenReader(piece.after(1))
    name = reader.name("a cursor")
    reader.accept("NO", "SCROLL")
    reader.expect("CURSOR")
    if not reader.accept("WITH", "HOLD"):
        reader.accept("WITHOUT", "HOLD")
    reader.expect("FOR")
    tree = parse(reader.rest())
    translate = Translator(tree, context.now, functions=context.functions)
    binder = QueryBinder(context.catalog, translate, context.variables)
    return DeclareCursor(name, Select(binder.query(tree.node), binder.views))


def bind_fetch(piece: Piece, context: BindContext) -> Fetch:
    """FETCH [NEXT | FORWARD] [n | ALL] [FROM | IN] name."""
    reader = TokenReader(piece.after(1))
    if not reader.accept("NEXT"):
        reader.accept("FORWARD")
    count: int | None = 1
    span, token = reader.span, reader.peek()
    if reader.accept("ALL"):
        count = None
    elif token is not None and token.text.isdigit():
        if len(token.text) > _MOST_DIGITS:
            raise ParseError("a number of rows is expected here", **error_span(span))
        count = int(reader.next().text)
    if not reader.accept("FROM"):
        reader.accept("IN")
    name = reader.name("a cursor")
    reader.finish()
    return Fetch(name, count)


def bind_close(piece: Piece, context: BindContext) -> CloseCursor:
    """CLOSE {name | ALL}."""
    reader = TokenReader(piece.after(1))
    name = None if reader.accept("ALL") else reader.name("a cursor")
    reader.finish()
    return CloseCursor(name)
