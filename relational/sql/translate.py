"""Expressions of sqlglot's tree become terms; what we do not understand is refused by name, never
passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlglot import exp

from relational.errors import BindError, ParseError
from relational.expr.bind import AGGREGATES, span
from relational.expr.term import (
    Apply,
    Choose,
    Constant,
    Convert,
    Name,
    Place,
    Summary,
    Term,
)
from relational.types.data_type import DataType

_BINARY: dict[type[exp.Expression], str] = {
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
    exp.And: "and",
    exp.Or: "or",
    exp.NullSafeEQ: "is_not_distinct",
    exp.NullSafeNEQ: "is_distinct",
    exp.DPipe: "concat",
    exp.Nullif: "nullif",
}
_UNARY: dict[type[exp.Expression], str] = {
    exp.Not: "not",
    exp.Abs: "abs",
    exp.Ceil: "ceil",
    exp.Floor: "floor",
    exp.Sqrt: "sqrt",
    exp.Lower: "lower",
    exp.Upper: "upper",
    exp.Length: "length",
}
_LISTS: dict[type[exp.Expression], str] = {
    exp.Array: "array",
    exp.Coalesce: "coalesce",
    exp.Greatest: "greatest",
    exp.Least: "least",
}
_AGGREGATES: dict[type[exp.Expression], str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
}
_VOLATILE: dict[type[exp.Expression], str] = {
    exp.CurrentTimestamp: "now",
    exp.CurrentDate: "current_date",
    exp.CurrentTime: "current_time",
    exp.Localtimestamp: "localtimestamp",
    exp.Rand: "random",
}
_MOMENTS = {
    "current_date": DataType.DATE,
    "current_time": DataType.TIME,
    "localtimestamp": DataType.TIMESTAMP,
}
_IGNORED = frozenset(("safe", "typed", "coalesce", "big_int", "ignore_nulls", "quoted", "is_string", "_type"))
_CLAUSES: dict[type[exp.Expression], str] = {
    exp.Window: "a window function (OVER)",
    exp.Subquery: "a subquery in an expression",
    exp.Select: "a subquery in an expression",
    exp.Exists: "EXISTS",
    exp.Any: "ANY",
    exp.All: "ALL",
    exp.Escape: "LIKE … ESCAPE",
    exp.AtTimeZone: "AT TIME ZONE",
    exp.Bracket: "an array subscript",
    exp.Parameter: "a parameter",
    exp.Placeholder: "a parameter",
}


class Translator:
    """Translates the expressions of one statement; `offset` is where its text begins in the whole text.

    `now` is what now() means, None to refuse it.
    """

    def __init__(self, offset: int, now: datetime | None = None):
        self._offset, self._now = offset, now

    def term(self, node: exp.Expression) -> Term:
        """The term of an expression. ParseError or BindError at what is not supported."""
        kind = type(node)
        place = self.place(node)
        if kind in _BINARY:
            return self._apply(_BINARY[kind], [node.this, node.expression], node, {"this", "expression"})
        if kind in _UNARY:
            return self._apply(_UNARY[kind], [node.this], node, {"this"})
        if kind in _LISTS:
            args = [*([node.this] if node.this is not None else []), *node.expressions]
            return self._apply(_LISTS[kind], args, node, {"this", "expressions"})
        if kind in _AGGREGATES:
            return self._summary(node, _AGGREGATES[kind])
        if kind in _VOLATILE:
            return self._volatile(_VOLATILE[kind], place)
        handler = _HANDLERS.get(kind)
        if handler is None:
            what = _CLAUSES.get(kind, f"{node.sql(dialect='postgres')}")
            raise ParseError(f"{what} is not supported", **span(place))
        return handler(self, node)

    def place(self, node: exp.Expression) -> Place | None:
        """Where a node stands in the whole text: its own position, else that of its parts together."""
        meta = node.meta
        if "start" in meta:
            return meta["start"] + self._offset, meta["end"] + 1 + self._offset
        spans = [part.meta for part in node.walk() if "start" in part.meta]
        if not spans:
            return None
        start, end = min(part["start"] for part in spans), max(part["end"] for part in spans)
        return start + self._offset, end + 1 + self._offset

    def identifier(self, node: exp.Expression | None) -> str:
        """A name, folded to lower case unless it is quoted."""
        if not isinstance(node, exp.Identifier):
            raise ParseError("a name is expected here", **span(None if node is None else self.place(node)))
        return node.this if node.args.get("quoted") else node.this.lower()

    def only(self, node: exp.Expression, known: set[str], what: str = "") -> None:
        """ParseError if the node has parts that we would pass over."""
        for name, part in node.args.items():
            if part and name not in known and name not in _IGNORED:
                what = what or node.sql(dialect="postgres")
                clause = name.strip("_").upper()
                raise ParseError(f"{clause} of {what} is not supported", **span(self.place(node)))

    def data_type(self, node: exp.Expression) -> DataType:
        """The type that a sqlglot type names."""
        try:
            return DataType.parse(node.sql(dialect="postgres"))
        except BindError as error:
            raise BindError(error.message, **span(self.place(node))) from error

    def _apply(
        self, function: str, args: list[exp.Expression], node: exp.Expression, known: set[str]
    ) -> Term:
        self.only(node, known)
        return Apply(function, tuple(self.term(arg) for arg in args), self.place(node))

    def _summary(self, node: exp.Expression, function: str) -> Summary:
        self.only(node, {"this"})
        argument, place = node.this, self.place(node)
        if isinstance(argument, exp.Star):
            return Summary(function, None, place=place)
        if isinstance(argument, exp.Distinct):
            if len(argument.expressions) != 1:
                raise ParseError(f"{function} of several columns is not supported", **span(place))
            return Summary(function, self.term(argument.expressions[0]), distinct=True, place=place)
        if argument is None:
            raise ParseError(f"{function} needs an argument", **span(place))
        return Summary(function, self.term(argument), place=place)

    def _volatile(self, function: str, place: Place | None) -> Term:
        """now() and its kin as the constant that they are for one statement; random() stays what it is."""
        if self._now is None or function == "random":
            return Apply(function, (), place)
        moment = Constant(self._now, place=place)
        return moment if function == "now" else Convert(moment, _MOMENTS[function], place)

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

    def _literal(self, node: exp.Literal) -> Term:
        if node.is_string:
            return Constant(node.this, place=self.place(node))
        return Constant(number(node.this), place=self.place(node))

    def _negative(self, node: exp.Neg) -> Term:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return Constant(-number(node.this.this), place=self.place(node))
        return Apply("negate", (self.term(node.this),), self.place(node))

    def _is(self, node: exp.Is) -> Term:
        value, place = self.term(node.this), self.place(node)
        if isinstance(node.expression, exp.Null):
            return Apply("is_null", (value,), place)
        if isinstance(node.expression, exp.Boolean):
            return Apply("is_not_distinct", (value, Constant(node.expression.this)), place)
        raise ParseError("IS is followed by NULL, TRUE or FALSE", **span(place))

    def _in(self, node: exp.In) -> Term:
        if node.args.get("query") is not None:
            raise ParseError("a subquery in IN is not supported", **span(self.place(node)))
        return self._apply("in", [node.this, *node.expressions], node, {"this", "expressions"})

    def _between(self, node: exp.Between) -> Term:
        return self._apply(
            "between", [node.this, node.args["low"], node.args["high"]], node, {"this", "low", "high"}
        )

    def _like(self, node: exp.Expression) -> Term:
        self.only(node, {"this", "expression", "negate"})
        function = "ilike" if isinstance(node, exp.ILike) else "like"
        matched = Apply(function, (self.term(node.this), self.term(node.expression)), self.place(node))
        return Apply("not", (matched,), self.place(node)) if node.args.get("negate") else matched

    def _cast(self, node: exp.Cast) -> Term:
        self.only(node, {"this", "to"})
        return Convert(self.term(node.this), self.data_type(node.args["to"]), self.place(node))

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
        unit = node.args.get("unit")
        if not isinstance(node.this, exp.Literal) or isinstance(unit, exp.IntervalSpan):
            raise ParseError("an interval is written INTERVAL '2 days 3 hours'", **span(self.place(node)))
        text = node.this.this if unit is None else f"{node.this.this} {unit.name.lower()}"
        return Constant(text, DataType.INTERVAL, self.place(node))

    def _extract(self, node: exp.Extract) -> Term:
        field = Constant(node.this.name.lower(), place=self.place(node))
        return Apply("extract", (field, self.term(node.expression)), self.place(node))

    def _truncate(self, node: exp.Expression) -> Term:
        self.only(node, {"this", "unit"})
        unit = Constant(node.args["unit"].name.lower(), place=self.place(node))
        return Apply("date_trunc", (unit, self.term(node.this)), self.place(node))

    def _substring(self, node: exp.Substring) -> Term:
        args = [
            node.this,
            *(node.args[name] for name in ("start", "length") if node.args.get(name) is not None),
        ]
        return self._apply("substring", args, node, {"this", "start", "length"})

    def _trim(self, node: exp.Trim) -> Term:
        function = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(node.args.get("position") or "", "trim")
        args = [node.this, *([node.expression] if node.args.get("expression") is not None else [])]
        return self._apply(function, args, node, {"this", "expression", "position"})

    def _round(self, node: exp.Round) -> Term:
        decimals = node.args.get("decimals")
        return self._apply(
            "round", [node.this, *([] if decimals is None else [decimals])], node, {"this", "decimals"}
        )

    def _replace(self, node: exp.Replace) -> Term:
        replacement = node.args.get("replacement")
        args = [node.this, node.expression, *([] if replacement is None else [replacement])]
        return self._apply("replace", args, node, {"this", "expression", "replacement"})

    def _concat(self, node: exp.Concat) -> Term:
        args = tuple(Convert(self.term(arg), DataType.VARCHAR) for arg in node.expressions)
        return Apply("concat_known", args, self.place(node))

    def _anonymous(self, node: exp.Anonymous) -> Term:
        name = str(node.this).lower()
        place = self.place(node)
        if name in AGGREGATES:
            raise ParseError(f"{name} needs one argument", **span(place))
        return Apply(name, tuple(self.term(arg) for arg in node.expressions), place)


def number(text: str) -> int | Decimal | float:
    """A number as written: whole, with a point (NUMERIC), or with an exponent (DOUBLE)."""
    if "e" in text.lower():
        return float(text)
    return Decimal(text) if "." in text else int(text)


_HANDLERS: dict[type[exp.Expression], Callable[[Translator, Any], Term]] = {
    exp.Column: Translator._column,
    exp.Literal: Translator._literal,
    exp.Null: lambda self, node: Constant(None, place=self.place(node)),
    exp.Boolean: lambda self, node: Constant(bool(node.this), place=self.place(node)),
    exp.Paren: lambda self, node: self.term(node.this),
    exp.Neg: Translator._negative,
    exp.Is: Translator._is,
    exp.In: Translator._in,
    exp.Between: Translator._between,
    exp.Like: Translator._like,
    exp.ILike: Translator._like,
    exp.Cast: Translator._cast,
    exp.Case: Translator._case,
    exp.Interval: Translator._interval,
    exp.Extract: Translator._extract,
    exp.TimestampTrunc: Translator._truncate,
    exp.DateTrunc: Translator._truncate,
    exp.Substring: Translator._substring,
    exp.Trim: Translator._trim,
    exp.Round: Translator._round,
    exp.Replace: Translator._replace,
    exp.Concat: Translator._concat,
    exp.Filter: Translator._filter,
    exp.Anonymous: Translator._anonymous,
}
