"""PREPARE, EXECUTE and DEALLOCATE: a statement under a name, whose parameters get their values when it is executed."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from relational.errors import BindError
from relational.expr.bind import ExprBinder, Scope, error_span
from relational.expr.eval import constant_value
from relational.expr.expression import is_constant
from relational.sql.context import BindContext
from relational.sql.expressions import Translator
from relational.sql.lexer import Piece, TokenReader
from relational.sql.statement import Deallocate, Execute, Prepare
from relational.sql.tree import parse
from relational.types.data_type import DataType
from relational.types.schema import Schema

PREPARABLE = ("SELECT", "VALUES", "WITH", "INSERT", "UPDATE", "DELETE")
"""First words of the statements that take parameters."""


def bind_prepare(piece: Piece, context: BindContext) -> Prepare:
    """PREPARE name [(type, …)] AS statement. The statement itself is bound when it is executed."""
    reader = TokenReader(piece.after(1))
    name = reader.name("the statement")
    types: list[DataType] = []
    if reader.accept("("):
        types.append(reader.data_type(_ends_type))
        while reader.accept(","):
            types.append(reader.data_type(_ends_type))
        reader.expect(")")
    reader.expect("AS")
    rest = reader.rest()
    if rest.words(1) and rest.words(1)[0] not in PREPARABLE:
        raise rest.error(f"PREPARE takes {', '.join(PREPARABLE[:-1])} or {PREPARABLE[-1]}")
    if rest.is_empty:
        raise reader.fail("the statement is expected here")
    return Prepare(name, rest.source, tuple(types))


def _ends_type(token: Token) -> bool:
    return token.token_type in (TokenType.COMMA, TokenType.R_PAREN)


def bind_execute(piece: Piece, context: BindContext) -> Execute:
    """EXECUTE name [(constant, …)]"""
    reader = TokenReader(piece.after(1))
    name = reader.name("the statement")
    if reader.is_done:
        return Execute(name, ())
    if not reader.begins("("):
        raise reader.fail("the values in parentheses are expected here")
    rest = reader.rest()
    tree = parse(rest)
    node = tree.node
    parts = node.expressions if isinstance(node, exp.Tuple) else [node.this if isinstance(node, exp.Paren) else node]
    translate, binder = Translator(tree, context.now, functions=context.functions), ExprBinder(Scope(Schema()))
    values = []
    for part in parts:
        bound = binder.bind(translate.term(part))
        if not is_constant(bound):
            raise BindError("EXECUTE takes constants", **error_span(translate.span(part)))
        values.append(constant_value(bound))
    return Execute(name, tuple(values))


def bind_deallocate(piece: Piece, context: BindContext) -> Deallocate:
    """DEALLOCATE [PREPARE] name, or ALL"""
    reader = TokenReader(piece.after(1))
    reader.accept("PREPARE")
    name = None if reader.accept("ALL") else reader.name("a statement")
    reader.finish()
    return Deallocate(name)
