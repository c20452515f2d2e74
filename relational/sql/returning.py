"""RETURNING of INSERT, UPDATE and DELETE: expressions over the rows that the statement has stored or deleted."""

from __future__ import annotations

import re

from sqlglot.tokens import Token, TokenType

from relational.catalog.names import ObjectName
from relational.catalog.objects import TableCatalog
from relational.errors import BindError, ParseError, SourceTextError
from relational.plan.logical import LogicalPlan, Project, Scan
from relational.sql.context import BindContext
from relational.sql.expressions import Translator
from relational.sql.lexer import Piece
from relational.sql.query import QueryBinder
from relational.sql.statement import Returning
from relational.sql.tree import parse

_WORD = re.compile(r"\bRETURNING\b", re.IGNORECASE)
_SELECT = "SELECT".ljust(len("RETURNING"))  # as long, so that all positions are those in the text
_REFUSAL = "RETURNING takes expressions over the columns of the table, without subqueries, aggregates and windows"


def parted(piece: Piece) -> tuple[Piece, Piece | None]:
    """A statement before its RETURNING, and the rest from that word on, None without one."""
    if _WORD.search(piece.text, piece.start, piece.end) is None:
        return piece, None
    depth = 0
    for token in piece.tokens():
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0 and _is_returning(token):
            at = piece.start + token.start
            return Piece(piece.text, piece.start, at), Piece(piece.text, at, piece.end)
    return piece, None


def _is_returning(token: Token) -> bool:
    is_quoted = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
    return not is_quoted and token.text.upper() == "RETURNING"


def bind_returning(
    piece: Piece | None, table: TableCatalog, name: ObjectName, alias: str | None, context: BindContext
) -> Returning | None:
    """RETURNING expression [[AS] name], …, also * and t.*; over all stored columns of the table, which the statement
    calls `name` or by its alias. None without one. ParseError, BindError."""
    if piece is None:
        return None
    if piece.after(1).is_empty:
        raise ParseError("RETURNING is followed by * or expressions", start=piece.start, end=piece.after(1).start)
    source = ".".join(map(_quoted, (name.database, name.schema, name.name)))
    called = "" if alias is None else f" AS {_quoted(alias)}"
    text = f"{piece.text[: piece.start]}{_SELECT}{piece.text[piece.after(1).start : piece.end]}\nFROM {source}{called}"
    try:
        tree = parse(Piece(text, piece.start, len(text)))
        translate = Translator(tree, context.now, context.parameters, functions=context.functions)
        plan = QueryBinder(context.catalog, translate, context.variables).query(tree.node)
    except SourceTextError as error:
        if error.start is None or error.start < piece.end:
            raise
        raise ParseError("RETURNING is the end of the statement", start=piece.start, end=piece.end) from error
    return _of_plan(plan, table, piece)


def _of_plan(plan: LogicalPlan, table: TableCatalog, piece: Piece) -> Returning:
    if not isinstance(plan, Project) or not isinstance(plan.input, Scan) or plan.input.table.id != table.id:
        raise BindError(_REFUSAL, start=piece.start, end=piece.end)
    shown = plan.visible
    return Returning(tuple(plan.expressions[at] for at in shown), tuple(plan.names[at] for at in shown))


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
