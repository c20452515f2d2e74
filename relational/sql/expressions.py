"""Expressions of a checked tree become terms; what has no meaning as an expression is refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlglot import exp

from relational.errors import BindError, ParseError, shortened
from relational.expr.bind import AGGREGATES, span
from relational.expr.unbound import (
    Apply,
    Choose,
    Constant,
    Convert,
    Name,
    Place,
    Summary,
    Term,
)
from relational.sql.grammar import Plus
from relational.sql.nodes import CHAINS
from relational.sql.tree import Tree, unsupported
from relational.types.data_type import DataType

_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "add",
    exp.Sub: "subtract",
    exp.Mul: "multiply",
    exp.Div: "divide",
    exp.Mod: "modulo",
    exp.EQ: "equal",
    exp.NEQ: "not_equal",
    exp.LT: "less",
    exp.LTE: "less_equal",
    exp.GT: "greater",
    exp.GTE: "greater_equal",
    exp.NullSafeEQ: "is_not_distinct",
    exp.NullSafeNEQ: "is_distinct",
}
_CHAINS: dict[type[exp.Expr], str] = {exp.And: "and", exp.Or: "or", exp.DPipe: "concat"}
_MOMENTS = {
    "now": None,
    "current_timestamp": None,
    "current_date": DataType.DATE,
    "current_time": DataType.TIME,
    "localtimestamp": DataType.TIMESTAMP,
}
"""What each is of the time of the statement; None: all of it."""
_VOLATILE = (*_MOMENTS, "random")
_NUMBER = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MAX_DIGITS = 1_000
_ESCAPED = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|''", re.DOTALL)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class Translator:
    """Translates the expressions of one tree. `now` is what now() means, None to refuse it."""

    def __init__(self, tree: Tree, now: datetime | None = None):
        self.tree, self._now = tree, now

    def term(self, node: exp.Expr | None) -> Term:
        """The term of an expression. ParseError or BindError at what is not supported."""
        while isinstance(node, exp.Paren):
            node = node.this
        if node is None:
            raise self.tree.piece.error("an expression is missing")
        kind = type(node)
        if kind in _BINARY:
            return self._apply(_BINARY[kind], [node.this, node.expression], node)
        if kind in _CHAINS:
            return self._apply(_CHAINS[kind], _chain(node), node)
        handler = _HANDLERS.get(kind)
        if handler is None:
            raise unsupported(node, self.tree)
        return handler(self, node)

    def place(self, node: exp.Expr | None) -> Place | None:
        """Where in the whole text a node is; None where that is not known."""
        return self.tree.location(node)

    def identifier(self, node: exp.Expr | None) -> str:
        """A name, folded to lower case unless it is quoted."""
        if not isinstance(node, exp.Identifier):
            raise ParseError("a name is expected here", **span(self.place(node)))
        return node.this if node.args.get("quoted") else node.this.lower()

    def data_type(self, node: exp.Expr, whole: Place | None) -> DataType:
        """The type that the text names; `whole` is the place of what has it."""
        if not isinstance(node, exp.DataType) or self.place(node) is None:
            raise ParseError("a type is expected here", **span(whole))
        try:
            return DataType.parse(self.tree.source(node))
        except BindError as error:
            raise BindError(error.message, **span(self.place(node))) from error

    def _apply(self, function: str, args: list[exp.Expr], node: exp.Expr) -> Term:
        return Apply(function, tuple(self.term(arg) for arg in args), self.place(node))

    def _call(self, node: exp.Anonymous) -> Term:
        """A function by its name, an aggregate, or the time."""
        name = str(node.name) if isinstance(node.this, exp.Identifier) else str(node.this).lower()
        place = self.place(node)
        if name in AGGREGATES:
            return self._summary(node, name)
        if name in _VOLATILE:
            if node.expressions:
                raise ParseError(f"{name} takes no arguments", **span(self.place(node.expressions[0]) or place))
            return self._volatile(name, place)
        if name == "concat":
            texts = tuple(Convert(self.term(arg), DataType.VARCHAR) for arg in node.expressions)
            return Apply("concat_known", texts, place)
        return Apply(name, tuple(self.term(arg) for arg in node.expressions), place)

    def _summary(self, node: exp.Anonymous, function: str) -> Summary:
        place = self.place(node)
        if len(node.expressions) != 1:
            raise ParseError(f"{function} needs one argument", **span(place))
        (argument,) = node.expressions
        if isinstance(argument, exp.Star):
            return Summary(function, None, place=place)
        if isinstance(argument, exp.Distinct):
            if len(argument.expressions) != 1:
                raise ParseError(f"{function} of several columns is not supported", **span(place))
            return Summary(function, self.term(argument.expressions[0]), distinct=True, place=place)
        return Summary(function, self.term(argument), place=place)

    def _volatile(self, function: str, place: Place | None) -> Term:
        """now() and its kin as the constant that they are for one statement; random() stays what it is."""
        if self._now is None or function == "random":
            return Apply(function, (), place)
        moment, data_type = Constant(self._now, place=place), _MOMENTS[function]
        return moment if data_type is None else Convert(moment, data_type, place)

    def _filter(self, node: exp.Filter) -> Term:
        summary = self.term(node.this)
        if not isinstance(summary, Summary):
            raise ParseError("FILTER stands after an aggregate only", **span(self.place(node)))
        condition = self.term(node.expression.this)
        return Summary(summary.function, summary.argument, condition, summary.distinct, summary.place)

    def _column(self, node: exp.Column) -> Term:
        if node.args.get("db") is not None:
            raise ParseError("a column is named by its table or alias, without the schema", **span(self.place(node)))
        if isinstance(node.this, exp.Star):
            raise ParseError("* stands in the SELECT list only", **span(self.place(node)))
        table = node.args.get("table")
        qualifier = None if table is None else self.identifier(table)
        return Name(self.identifier(node.this), qualifier, self.place(node))

    def _literal(self, node: exp.Literal) -> Constant:
        place = self.place(node)
        if node.is_string:
            source = self.tree.source(node)
            return Constant(source[1:-1].replace("''", "'") if source[:1] == "'" else node.this, place=place)
        return Constant(number(self.tree.source(node), place), place=place)

    def _escaped(self, node: exp.ByteString) -> Constant:
        """E'…', as PostgreSQL reads it."""
        place = self.place(node)
        try:
            return Constant(_ESCAPED.sub(_unescaped, self.tree.source(node)[2:-1]), place=place)
        except (ValueError, OverflowError):
            raise ParseError("an escape in this text is no character", **span(place)) from None

    def _negative(self, node: exp.Neg) -> Term:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            value = self._literal(node.this)
            return Constant(-value.value, place=self.place(node))
        return Apply("negate", (self.term(node.this),), self.place(node))

    def _is(self, node: exp.Is) -> Term:
        value, place = self.term(node.this), self.place(node)
        if isinstance(node.expression, exp.Null):
            return Apply("is_null", (value,), place)
        if isinstance(node.expression, exp.Boolean):
            return Apply("is_not_distinct", (value, Constant(node.expression.this)), place)
        raise ParseError("IS is followed by NULL, TRUE or FALSE", **span(place))

    def _like(self, node: exp.Expr) -> Term:
        function = "ilike" if isinstance(node, exp.ILike) else "like"
        matched = Apply(function, (self.term(node.this), self.term(node.expression)), self.place(node))
        return Apply("not", (matched,), self.place(node)) if node.args.get("negate") else matched

    def _cast(self, node: exp.Cast) -> Term:
        place = self.place(node)
        return Convert(self.term(node.this), self.data_type(node.args["to"], place), place)

    def _case(self, node: exp.Case) -> Term:
        subject = None if node.this is None else self.term(node.this)
        branches = []
        for branch in node.args["ifs"]:
            condition = self.term(branch.this)
            if subject is not None:
                condition = Apply("equal", (subject, condition), self.place(branch.this))
            branches.append((condition, self.term(branch.args["true"])))
        default = node.args.get("default")
        return Choose(tuple(branches), None if default is None else self.term(default), self.place(node))

    def _interval(self, node: exp.Interval) -> Term:
        text, unit = self._literal(node.this).value, node.args.get("unit")
        whole = text if unit is None else f"{text} {unit.name.lower()}"
        return Constant(whole, DataType.INTERVAL, self.place(node))


def _chain(node: exp.Expr) -> list[exp.Expr]:
    """The operands of a chain of one operator, in the order of the text, whatever parentheses part them."""
    found: list[exp.Expr] = []
    todo = [node]
    while todo:
        each = todo.pop()
        inner = each
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, CHAINS) and type(inner) is type(node):
            todo += (inner.expression, inner.this)
        else:
            found.append(each)
    return found


def _unescaped(match: re.Match[str]) -> str:
    octal, byte, short, long, letter = match.groups()
    code = octal or byte or short or long
    if code is None:
        return _ESCAPES.get(letter, letter) if letter else "'"
    value = int(code, 8 if octal else 16)
    if 0xD800 <= value < 0xE000 or (value > 0x7F and (octal or byte)):
        raise ValueError(code)
    return chr(value)


def number(text: str, place: Place | None = None) -> int | Decimal | float:
    """A number as written: whole, with a point (NUMERIC), or with an exponent (DOUBLE). ParseError at `place`."""
    if not _NUMBER.fullmatch(text):
        raise ParseError(f"{shortened(text, 80)} is no number", **span(place))
    if "e" in text.lower():
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ParseError(f"{shortened(text, 80)} is beyond the largest DOUBLE", **span(place))
        return value
    if len(text) > _MAX_DIGITS:
        raise ParseError(f"NUMERIC holds 38 digits, this has {len(text)}", **span(place))
    return Decimal(text) if "." in text else int(text)


def _several(function: str) -> Callable[[Translator, Any], Term]:
    return lambda self, node: self._apply(function, [node.this, *node.expressions], node)


def _moment(name: str) -> Callable[[Translator, Any], Term]:
    return lambda self, node: self._volatile(name, self.place(node))


_HANDLERS: dict[type[exp.Expr], Callable[[Translator, Any], Term]] = {
    exp.Column: Translator._column,
    exp.Literal: Translator._literal,
    exp.ByteString: Translator._escaped,
    exp.Null: lambda self, node: Constant(None, place=self.place(node)),
    exp.Boolean: lambda self, node: Constant(bool(node.this), place=self.place(node)),
    exp.Neg: Translator._negative,
    Plus: lambda self, node: self.term(node.this),
    exp.Not: lambda self, node: self._apply("not", [node.this], node),
    exp.Is: Translator._is,
    exp.In: _several("in"),
    exp.Between: lambda self, node: self._apply("between", [node.this, node.args["low"], node.args["high"]], node),
    exp.Like: Translator._like,
    exp.ILike: Translator._like,
    exp.Cast: Translator._cast,
    exp.Case: Translator._case,
    exp.Interval: Translator._interval,
    exp.Array: lambda self, node: self._apply("array", node.expressions, node),
    exp.Filter: Translator._filter,
    exp.Anonymous: Translator._call,
    exp.CurrentDate: _moment("current_date"),
    exp.CurrentTime: _moment("current_time"),
    exp.CurrentTimestamp: _moment("current_timestamp"),
    exp.Localtimestamp: _moment("localtimestamp"),
}
