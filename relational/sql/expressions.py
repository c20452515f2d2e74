"""Translates the expressions of a checked tree to unbound expressions; unsupported nodes are rejected by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

from sqlglot import exp

from relational.catalog.functions import FunctionCatalog
from relational.catalog.names import DEFAULT_SCHEMA, ObjectName
from relational.catalog.snapshot import CatalogSnapshot
from relational.errors import BindError, ParseError, shortened
from relational.expr.aggregates import AggKind
from relational.expr.bind import AGGREGATE_ALIASES, AGGREGATES, error_span, unknown
from relational.expr.functions import ALIASES, ARGUMENT_NAMES, FUNCTIONS, SET_FUNCTIONS
from relational.expr.unbound import (
    Name,
    Ordered,
    SubqueryUse,
    TextSpan,
    UnboundAggregate,
    UnboundCall,
    UnboundCase,
    UnboundCast,
    UnboundExpr,
    UnboundFrame,
    UnboundGrouping,
    UnboundLiteral,
    UnboundNow,
    UnboundSetCall,
    UnboundSubquery,
    UnboundWindow,
    UnboundWindowSpec,
)
from relational.expr.window_functions import BoundKind, FrameUnit, WindowKind
from relational.sql.descriptions import DESCRIBING, description
from relational.sql.grammar import Operation, Plus
from relational.sql.nodes import CHAINS
from relational.sql.parameters import Parameters
from relational.sql.tree import Tree, unsupported
from relational.types.data_type import DataType
from relational.types.ordering import OrderType
from relational.udf.function import FunctionKind, UserFunction

FindFunction = Callable[[ObjectName], FunctionCatalog | None]
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
_ROW_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_QUANTIFIERS = {"any": "any", "some": "any", "all": "all"}
_QUANTIFIED = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_MATCHES: dict[type[exp.Expr], str] = {exp.Like: "like", exp.ILike: "ilike", exp.SimilarTo: "similar_to"}
_CHAINS: dict[type[exp.Expr], str] = {exp.And: "and", exp.Or: "or", exp.DPipe: "concat"}
_CATALOG_TYPES = {"oid": DataType.BIGINT, "name": DataType.VARCHAR}
"""Types of columns of the system catalog, in casts."""
_COLLATIONS = ("c", "posix", "default", "ucs_basic")
_CONSTANTS = ("current_catalog", "current_role", "current_schema", "current_user", "session_user")
"""Functions that are called without parentheses."""
_MOMENTS = {
    "now": None,
    "current_timestamp": None,
    "current_date": DataType.DATE,
    "current_time": DataType.TIME,
    "localtimestamp": DataType.TIMESTAMP,
    "statement_timestamp": None,
    "transaction_timestamp": None,
}
"""Each as a function of the statement's time; None: the whole timestamp."""
VOLATILE_FUNCTIONS = (*_MOMENTS, "random")
_WINDOW_FUNCTIONS = tuple(kind.value for kind in WindowKind)
_BOUNDS = {kind.name: kind for kind in BoundKind}
_NUMBER = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MAX_DIGITS = 1_000
_ESCAPED = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|''", re.DOTALL)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class Translator:
    """Translates the expressions of one tree. `now` is the value of now(), None to reject it, unless `is_kept_fresh`:
    of a query that is maintained while time passes. `parameters`: those of the statement, None if it may have none.
    `functions` finds a user function, None: there are none.
    """

    def __init__(
        self,
        tree: Tree,
        now: datetime | None = None,
        parameters: Parameters | None = None,
        *,
        is_kept_fresh: bool = False,
        functions: FindFunction | None = None,
    ):
        self.tree, self._now, self._is_kept_fresh, self._parameters = tree, now, is_kept_fresh, parameters
        self._functions = functions
        self._named_windows: dict[str, UnboundWindowSpec] = {}
        self.known: CatalogSnapshot | None = None
        """The catalog whose comments functions read."""

    def term(self, node: exp.Expr | None) -> UnboundExpr:
        """The term of an expression. ParseError or BindError at an unsupported node."""
        while isinstance(node, exp.Paren):
            node = node.this
        if node is None:
            raise self.tree.piece.error("an expression is missing")
        kind = type(node)
        if kind in _BINARY:
            if kind in _ROW_COMPARISONS and isinstance(node.this, exp.Tuple) and isinstance(node.expression, exp.Tuple):
                return self._rows(_BINARY[kind], node.this, node.expression, node)
            return self._binary(_BINARY[kind], [node.this, node.expression], node)
        if kind in _CHAINS:
            return self._apply(_CHAINS[kind], _chain(node), node)
        handler = _HANDLERS.get(kind)
        if handler is None:
            raise unsupported(node, self.tree)
        return handler(self, node)

    @property
    def is_momentary(self) -> bool:
        """Whether the statement is executed at once, and not kept."""
        return self._now is not None

    def check_momentary(self, what: str, span: TextSpan | None) -> None:
        """BindError if the statement outlives what depends on its time."""
        if not self.is_momentary:
            raise BindError(f"{what}: it is not allowed here", **error_span(span))

    def check_whole(self, star: exp.Star) -> None:
        """ParseError for an EXCEPT after a * that is not one of the columns of relations."""
        left_out = star.args.get("except_")
        if left_out:
            message = "EXCEPT follows the * of a FROM or of a relation only"
            raise ParseError(message, **error_span(self.span(left_out[0])))

    def span(self, node: exp.Expr | None) -> TextSpan | None:
        """The span of a node in the whole text; None if unknown."""
        return self.tree.location(node)

    def identifier(self, node: exp.Expr | None) -> str:
        """A name, folded to lower case unless it is quoted."""
        if not isinstance(node, exp.Identifier):
            raise ParseError("a name is expected here", **error_span(self.span(node)))
        return node.this if node.args.get("quoted") else node.this.lower()

    def data_type(self, node: exp.Expr, whole: TextSpan | None) -> DataType:
        """The type that the text denotes; `whole` is the span of the expression that has the type."""
        if not isinstance(node, exp.DataType) or self.span(node) is None:
            raise ParseError("a type is expected here", **error_span(whole))
        source = self.tree.source(node)
        try:
            return _CATALOG_TYPES.get(source.lower()) or DataType.parse(source)
        except BindError as error:
            raise BindError(error.message, **error_span(self.span(node))) from error

    def _apply(self, function: str, args: list[exp.Expr], node: exp.Expr) -> UnboundExpr:
        return UnboundCall(function, tuple(self.term(arg) for arg in args), self.span(node))

    def _operation(self, node: Operation) -> UnboundExpr:
        inside = node.expressions[0]
        if node.this != "not" or not isinstance(inside, Operation):
            return self._binary(node.this, node.expressions, node)
        matched = self._binary(inside.this, inside.expressions, node, is_negated=True)
        return UnboundCall("not", (matched,), self.span(node))

    def _binary(
        self, function: str, args: list[exp.Expr], node: exp.Expr, *, is_negated: bool = False
    ) -> UnboundExpr:
        """An operator, or its comparison with ANY or ALL elements of a list; if it is negated afterwards, x !~ ALL is
        NOT (x ~ ANY).
        """
        right = args[-1]
        if isinstance(right, exp.Any | exp.All):
            return self._quantified(function, args[0], right, right.this, node)
        word = str(right.this).lower() if isinstance(right, exp.Anonymous) else ""
        quantifier = _QUANTIFIERS.get(word)
        if quantifier is not None and is_negated:
            quantifier = "all" if quantifier == "any" else "any"
        if quantifier is not None and len(right.expressions) == 1 and _is_query(right.expressions[0]):
            return self._quantified(function, args[0], exp.All() if quantifier == "all" else exp.Any(),
                                    right.expressions[0], node)
        if quantifier is None or f"{function}_{quantifier}" not in FUNCTIONS:
            return self._apply(function, args, node)
        return self._apply(f"{function}_{quantifier}", [*args[:-1], *right.expressions], node)

    def _quantified(
        self, function: str, left: exp.Expr, quantifier: exp.Expr, query: exp.Expr, node: exp.Expr
    ) -> UnboundExpr:
        """x op ANY (query) or x op ALL (query); = ANY is IN, and <> ALL is NOT IN."""
        span, is_all = self.span(node), isinstance(quantifier, exp.All)
        if function not in _QUANTIFIED:
            raise ParseError("ANY and ALL of a query follow = <> < <= > >=", **error_span(span))
        operands = tuple(map(self.term, left.expressions if isinstance(left, exp.Tuple) else [left]))
        if (function, is_all) in (("equal", False), ("not_equal", True)):
            found = UnboundSubquery(SubqueryUse.IN, _query(query), operands, span)
            return UnboundCall("not", (found,), span) if is_all else found
        if len(operands) != 1:
            raise ParseError("a row of values is compared by = ANY, <> ALL or IN", **error_span(self.span(left)))
        use = SubqueryUse.ALL if is_all else SubqueryUse.ANY
        return UnboundSubquery(use, _query(query), operands, span, function)

    def _rows(self, function: str, left: exp.Tuple, right: exp.Tuple, node: exp.Expr) -> UnboundExpr:
        """A comparison of rows of values: of the first pair that differs, NULL if that is unknown."""
        span, pairs = self.span(node), list(zip(left.expressions, right.expressions, strict=False))
        if not pairs or len(left.expressions) != len(right.expressions):
            counts = f"{len(left.expressions)} and {len(right.expressions)} values"
            raise BindError(f"rows of {counts} cannot be compared", **error_span(span))
        terms = [(self.term(a), self.term(b)) for a, b in pairs]
        if function in ("equal", "not_equal"):
            parts = tuple(UnboundCall(function, pair, span) for pair in terms)
            return parts[0] if len(parts) == 1 else UnboundCall("and" if function == "equal" else "or", parts, span)
        found: UnboundExpr = UnboundCall(function, terms[-1], span)
        strict = function.removesuffix("_equal")
        for pair in reversed(terms[:-1]):
            is_equal = UnboundCall("equal", pair, span)
            later = UnboundCall("and", (is_equal, found), span)
            found = UnboundCall("or", (UnboundCall(strict, pair, span), later), span)
        return found

    def _between(self, node: exp.Between) -> UnboundExpr:
        function = "between_symmetric" if node.args.get("symmetric") else "between"
        return self._apply(function, [node.this, node.args["low"], node.args["high"]], node)

    def _bracket(self, node: exp.Bracket) -> UnboundExpr:
        """x[i], or x[from:to] with an end that may be omitted."""
        if len(node.expressions) != 1:
            raise unsupported(node, self.tree)
        (inside,) = node.expressions
        if not isinstance(inside, exp.Slice):
            return self._apply("subscript", [node.this, inside], node)
        first, last = inside.args.get("this"), inside.args.get("expression")
        name = "slice" if first is not None and last is not None else "slice_from" if last is None else "slice_to"
        bounds = [each for each in (first, last) if each is not None]
        if not bounds:
            raise unsupported(inside, self.tree)
        return self._apply(name, [node.this, *bounds], node)

    def _field(self, node: exp.Dot) -> UnboundExpr:
        """(row).field, or a function of pg_catalog or of another schema"""
        if isinstance(node.expression, exp.Anonymous):
            if node.this.name.lower() == "pg_catalog":
                return self.term(node.expression)
            return self.user_call(self._function_of_schema(node), node.expression, self.span(node))
        name = UnboundLiteral(self.identifier(node.expression), span=self.span(node.expression))
        return UnboundCall("field", (self.term(node.this), name), self.span(node))

    def _escape(self, node: exp.Escape) -> UnboundExpr:
        """x LIKE pattern ESCAPE character"""
        match = node.this
        if not isinstance(match, exp.Like | exp.ILike | exp.SimilarTo):
            raise unsupported(node, self.tree)
        pattern, escape = self.term(match.expression), self.term(node.expression)
        return self._like(match, UnboundCall("like_escape", (pattern, escape), self.span(node)))

    def _call(self, node: exp.Anonymous) -> UnboundExpr:
        """A function by name, an aggregate, or a time function."""
        name = str(node.name) if isinstance(node.this, exp.Identifier) else str(node.this).lower()
        span = self.span(node)
        own = self.function(node)
        if own is not None:
            return self.user_call(own, node, span)
        if name in AGGREGATES or name in AGGREGATE_ALIASES:
            return self._aggregate(node, AGGREGATE_ALIASES.get(name, name))
        if name in _WINDOW_FUNCTIONS:
            raise ParseError(f"{name} needs OVER (…)", **error_span(span))
        if name == "grouping":
            return UnboundGrouping(tuple(map(self.term, node.expressions)), span)
        if name in VOLATILE_FUNCTIONS:
            if node.expressions:
                raise ParseError(f"{name} takes no arguments", **error_span(self.span(node.expressions[0]) or span))
            return self._volatile(name, span)
        if name == "pg_typeof" and len(node.expressions) == 1 and _is_untyped(node.expressions[0]):
            return UnboundLiteral("unknown", span=span)
        if name in DESCRIBING and self.known is not None:
            self.check_momentary(f"{name} reads the catalog of the moment", span)
            return description(name, tuple(self.term(arg) for arg in node.expressions), self.known, span)
        if name == "array":
            inside = node.expressions[0] if len(node.expressions) == 1 else None
            if inside is None or not (_is_query(inside) or isinstance(inside, exp.Values)):
                raise ParseError("ARRAY is followed by [value, …] or (query)", **error_span(span))
            return UnboundSubquery(SubqueryUse.LIST, _query(inside), (), span)
        if name == "concat":
            return UnboundCall("concat_known", tuple(self.term(arg) for arg in node.expressions), span)
        if ALIASES.get(name, name) in SET_FUNCTIONS:
            return UnboundSetCall(ALIASES.get(name, name), tuple(map(self.term, node.expressions)), span)
        if any(isinstance(arg, exp.Kwarg) for arg in node.expressions):
            return UnboundCall(name, self._by_name(name, node), span)
        return UnboundCall(name, tuple(self.term(arg) for arg in node.expressions), span)

    def function(self, node: exp.Expr | None, schema: str = DEFAULT_SCHEMA) -> UserFunction | None:
        """The user function that a node calls by a plain name, or None."""
        if self._functions is None or not isinstance(node, exp.Anonymous):
            return None
        name = str(node.name) if isinstance(node.this, exp.Identifier) else str(node.this).lower()
        found = self._functions(ObjectName(name, schema))
        return None if found is None else found.function

    def _function_of_schema(self, node: exp.Dot) -> UserFunction:
        """That of schema.name(…)."""
        called = node.this.this if isinstance(node.this, exp.Column) else node.this
        schema = self.identifier(called)
        found = self.function(node.expression, schema)
        if found is None:
            raise BindError(f"there is no function {schema}.{node.expression.name}", **error_span(self.span(node)))
        return found

    def user_call(self, function: UserFunction, node: exp.Anonymous, span: TextSpan | None) -> UnboundExpr:
        """The call of a user function, whose arguments may be given by name."""
        if function.kind is FunctionKind.AGGREGATE:
            return self._aggregate(node, function.name, function)
        names = tuple(each.name for each in function.arguments)
        is_named = any(isinstance(arg, exp.Kwarg) for arg in node.expressions)
        args = self._named_args(function.name, names, node) if is_named else tuple(map(self.term, node.expressions))
        kind = UnboundSetCall if function.kind is FunctionKind.TABLE else UnboundCall
        return kind(function.name, args, span, function)

    def _named_args(self, function: str, names: Sequence[str], node: exp.Anonymous) -> tuple[UnboundExpr, ...]:
        """All arguments of a function, some of them by name."""
        given = self._by_given_name(function, names, node)
        missing = [name for name in names if name not in given]
        if missing:
            raise ParseError(f"{function} needs its argument {missing[0]!r}", **error_span(self.span(node)))
        return tuple(given[name] for name in names)

    def _by_name(self, function: str, node: exp.Anonymous) -> tuple[UnboundExpr, ...]:
        """The arguments of a function whose arguments have names, those that are missing as 0."""
        names = ARGUMENT_NAMES.get(function, ())
        given = self._by_given_name(function, names, node)
        return tuple(given.get(name, UnboundLiteral(0)) for name in names)

    def _by_given_name(self, function: str, names: Sequence[str], node: exp.Anonymous) -> dict[str, UnboundExpr]:
        """The arguments that are given, by name or by position."""
        given: dict[str, UnboundExpr] = {}
        for at, arg in enumerate(node.expressions):
            is_named = isinstance(arg, exp.Kwarg)
            name = arg.this.name.lower() if is_named else names[at] if at < len(names) else ""
            if name not in names or name in given or (given and not is_named and at != len(given)):
                raise ParseError(
                    f"{function} has no argument {name!r} here" + (f": they are {', '.join(names)}" if names else ""),
                    **error_span(self.span(arg) or self.span(node)),
                )
            given[name] = self.term(arg.expression if is_named else arg)
        return given

    def _aggregate(
        self, node: exp.Anonymous, function: str, definition: UserFunction | None = None
    ) -> UnboundAggregate:
        """An aggregate with its arguments, DISTINCT and ORDER BY."""
        span, args = self.span(node), list(node.expressions)
        if len(args) == 1 and isinstance(args[0], exp.Star):
            self.check_whole(args[0])
            return UnboundAggregate(function, None, span=span)
        order: tuple[Ordered, ...] = ()
        if args and isinstance(args[-1], exp.Order):
            order = tuple(map(self.ordered, args[-1].expressions))
            args[-1:] = [] if args[-1].this is None else [args[-1].this]
        is_distinct = len(args) == 1 and isinstance(args[0], exp.Distinct)
        if is_distinct:
            args = args[0].expressions
        wanted = len(args) if definition is not None else AggKind(function).argument_count
        if len(args) != wanted:
            if is_distinct and wanted == 1:
                raise ParseError(f"{function} of several columns is not supported", **error_span(span))
            count = ("no arguments", "one argument", "two arguments")[wanted]
            raise ParseError(f"{function} needs {count}", **error_span(span))
        terms = [self.term(arg) for arg in args]
        return UnboundAggregate(
            function, terms[0] if terms else None, None, is_distinct, span, tuple(terms[1:]), order,
            definition=definition,
        )

    def _within_group(self, node: exp.WithinGroup) -> UnboundAggregate:
        """An aggregate whose argument is what its rows are ordered by."""
        aggregate, span = self.term(node.this), self.span(node)
        if not isinstance(aggregate, UnboundAggregate):
            raise ParseError("WITHIN GROUP stands after an aggregate only", **error_span(span))
        if aggregate.order or aggregate.distinct:
            raise ParseError("DISTINCT and ORDER BY do not go with WITHIN GROUP", **error_span(span))
        order = tuple(map(self.ordered, node.expression.expressions))
        return replace(aggregate, order=order, is_within_group=True)

    def _volatile(self, function: str, span: TextSpan | None) -> UnboundExpr:
        """now() and similar functions as a constant per statement; random() is unchanged."""
        if self._is_kept_fresh and _MOMENTS.get(function, function) is None:
            return UnboundNow(span)
        if self._now is None or function == "random":
            return UnboundCall(function, (), span)
        data_type = _MOMENTS[function]
        moment = None if self._parameters is None else self._parameters.now()
        if moment is None:
            moment = UnboundLiteral(self._now, span=span)
        return moment if data_type is None else UnboundCast(moment, data_type, span)

    def _filter(self, node: exp.Filter) -> UnboundExpr:
        aggregate = self.term(node.this)
        if not isinstance(aggregate, UnboundAggregate):
            raise ParseError("FILTER stands after an aggregate only", **error_span(self.span(node)))
        condition = self.term(node.expression.this)
        return replace(aggregate, condition=condition)

    def _window(self, node: exp.Window) -> UnboundExpr:
        inside = node.this.this if isinstance(node.this, exp.Filter) else node.this
        if not isinstance(inside, exp.Anonymous):
            raise ParseError("a function is expected before OVER", **error_span(self.span(node)))
        name = inside.name.lower()
        call: UnboundExpr
        own = self.function(inside)
        is_own_aggregate = own is not None and own.kind is FunctionKind.AGGREGATE
        if name not in _WINDOW_FUNCTIONS and (is_own_aggregate or name in AGGREGATES or name in AGGREGATE_ALIASES):
            call = self.term(node.this)
        elif inside is not node.this:
            raise ParseError("FILTER stands after an aggregate only", **error_span(self.span(node.this)))
        else:
            call = UnboundCall(name, tuple(self.term(arg) for arg in inside.expressions), self.span(inside))
        assert isinstance(call, UnboundCall | UnboundAggregate)
        return UnboundWindow(call, self._window_spec(node), self.span(node))

    def name_windows(self, definitions: Sequence[exp.Window]) -> None:
        """From now on OVER may name these windows, of the WINDOW clause of a SELECT; each may extend one before it."""
        self._named_windows = {}
        for node in definitions:
            name = self.identifier(node.this)
            if name in self._named_windows:
                raise BindError(f"WINDOW has two windows called {name!r}", **error_span(self.span(node.this)))
            self._named_windows[name] = self._window_spec(node)

    def _window_spec(self, node: exp.Window) -> UnboundWindowSpec:
        order, base, frame = node.args.get("order"), node.args.get("alias"), node.args.get("spec")
        spec = UnboundWindowSpec(
            tuple(self.term(each) for each in node.args.get("partition_by") or ()),
            () if order is None else tuple(map(self.ordered, order.expressions)),
            None if frame is None else self._frame(frame, self.span(frame) or self.span(node)),
        )
        return spec if base is None else self._extended(self.identifier(base), spec, self.span(base))

    def _extended(self, name: str, spec: UnboundWindowSpec, span: TextSpan | None) -> UnboundWindowSpec:
        """The window called `name` with the order and frame of `spec`."""
        if name not in self._named_windows:
            raise BindError(unknown("window", name, self._named_windows), **error_span(span))
        base = self._named_windows[name]
        twice = "PARTITION BY" if spec.groups else "ORDER BY" if spec.order and base.order else None
        if twice is not None:
            raise BindError(f"{twice} of window {name!r} cannot be changed", **error_span(span))
        if base.frame is not None and (spec.order or spec.frame is not None):
            raise BindError(f"window {name!r} has a frame and cannot be extended", **error_span(span))
        return UnboundWindowSpec(base.groups, spec.order or base.order, spec.frame or base.frame)

    def _frame(self, node: exp.WindowSpec, span: TextSpan | None) -> UnboundFrame:
        """ROWS start, or ROWS BETWEEN start AND end, and so with RANGE and GROUPS."""
        end = (BoundKind.CURRENT_ROW, None) if node.args.get("end") is None else self._bound(node, "end")
        return UnboundFrame(FrameUnit(node.args["kind"].upper()), self._bound(node, "start"), end, span)

    def _bound(self, node: exp.WindowSpec, which: str) -> tuple[BoundKind, UnboundExpr | None]:
        value, side = node.args[which], node.args.get(f"{which}_side")
        words = [*(value.split() if isinstance(value, str) else ()), *(() if side is None else (side,))]
        kind = _BOUNDS.get("_".join(words).upper())
        if kind is None or kind.has_offset == isinstance(value, str):
            message = "a bound of a frame is UNBOUNDED or an offset, PRECEDING or FOLLOWING, or CURRENT ROW"
            raise ParseError(message, **error_span(self.span(node) or self.span(node.parent)))
        return kind, None if isinstance(value, str) else self.term(value)

    def ordered(self, node: exp.Ordered) -> Ordered:
        """A sort key."""
        descending, nulls_first = bool(node.args.get("desc")), node.args.get("nulls_first")
        return Ordered(self.term(node.this), OrderType(descending, nulls_first))

    def qualifier(self, node: exp.Column) -> tuple[str, ...]:
        """What is written before the name of a column: the parts of a relation's name; () for nothing."""
        parts = [node.args[part] for part in ("catalog", "db", "table") if node.args.get(part) is not None]
        return tuple(map(self.identifier, parts)) if parts else ()

    def _column(self, node: exp.Column) -> UnboundExpr:
        if isinstance(node.this, exp.Star):
            raise ParseError("* stands in the SELECT list only", **error_span(self.span(node)))
        name = self.identifier(node.this)
        if name in _CONSTANTS and not node.args.get("table") and not node.this.args.get("quoted"):
            return UnboundCall(name, (), self.span(node))
        return Name(name, self.qualifier(node), self.span(node))

    def _literal(self, node: exp.Literal) -> UnboundLiteral:
        span = self.span(node)
        if node.is_string:
            source = self.tree.source(node)
            return UnboundLiteral(source[1:-1].replace("''", "'") if source[:1] == "'" else node.this, span=span)
        return UnboundLiteral(number(self.tree.source(node), span), span=span)

    def _parameter(self, node: exp.Placeholder) -> UnboundExpr:
        if self._parameters is None:
            raise unsupported(node, self.tree)
        return self._parameters.term(node, self.tree)

    def _escaped(self, node: exp.ByteString) -> UnboundLiteral:
        """E'…', with PostgreSQL's escapes."""
        span = self.span(node)
        try:
            return UnboundLiteral(_ESCAPED.sub(_unescaped, self.tree.source(node)[2:-1]), span=span)
        except (ValueError, OverflowError):
            raise ParseError("an escape in this text is no character", **error_span(span)) from None

    def _continued(self, node: exp.Concat) -> UnboundLiteral:
        """A text in pieces, each of which begins in a line of its own."""
        pieces, whole = node.expressions, self.tree.piece
        for before, after in pairwise(pieces):
            end, start = (self.span(before) or (0, 0))[1], (self.span(after) or (0, 0))[0]
            if "\n" not in whole.text[end:start]:
                raise ParseError("a text goes on in another line only", **error_span(self.span(after)))
        return UnboundLiteral("".join(self._literal(each).value for each in pieces), span=self.span(node))

    def _dollar_quoted(self, node: exp.RawString) -> UnboundLiteral:
        """$tag$…$tag$, without escapes."""
        source = self.tree.source(node)
        tag = source.index("$", 1) + 1
        return UnboundLiteral(source[tag:-tag], span=self.span(node))

    def _collated(self, node: exp.Collate) -> UnboundExpr:
        """x COLLATE name: texts are in the order of their bytes."""
        if isinstance(node.expression, exp.Literal) or node.expression.name.lower() not in _COLLATIONS:
            raise BindError(f"a collation is one of {', '.join(_COLLATIONS)}", **error_span(self.span(node.expression)))
        return self.term(node.this)

    def _negative(self, node: exp.Neg) -> UnboundExpr:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            value = self._literal(node.this)
            return UnboundLiteral(-value.value, span=self.span(node))
        return UnboundCall("negate", (self.term(node.this),), self.span(node))

    def _is(self, node: exp.Is) -> UnboundExpr:
        span = self.span(node)
        if isinstance(node.this, exp.Tuple):
            raise ParseError("IS of a row of values is not supported: test its values", **error_span(span))
        value = self.term(node.this)
        if isinstance(node.expression, exp.Null):
            return UnboundCall("is_null", (value,), span)
        if isinstance(node.expression, exp.Boolean):
            return UnboundCall("is_not_distinct", (value, UnboundLiteral(node.expression.this)), span)
        raise ParseError("IS is followed by NULL, TRUE or FALSE", **error_span(span))

    def _like(self, node: exp.Expr, pattern: UnboundExpr | None = None) -> UnboundExpr:
        function, right = _MATCHES[type(node)], node.expression
        if isinstance(right, exp.Any | exp.All) and _is_query(right.this):
            return self._quantified(function, node.this, right, right.this, node)
        if pattern is None and isinstance(right, exp.Any | exp.All) and not isinstance(node, exp.SimilarTo):
            is_any = isinstance(right, exp.Any) != bool(node.args.get("negate"))  # NOT LIKE ALL is NOT (LIKE ANY)
            function, right = f"{function}_{'any' if is_any else 'all'}", right.this
        args = self.term(node.this), self.term(right) if pattern is None else pattern
        matched = UnboundCall(function, args, self.span(node))
        return UnboundCall("not", (matched,), self.span(node)) if node.args.get("negate") else matched

    def _in(self, node: exp.In) -> UnboundExpr:
        query = node.args.get("query")
        if query is None and isinstance(node.this, exp.Tuple) and all(
            isinstance(each, exp.Tuple) for each in node.expressions
        ):
            rows = tuple(self._rows("equal", node.this, each, each) for each in node.expressions)
            return rows[0] if len(rows) == 1 else UnboundCall("or", rows, self.span(node))
        if query is None and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Values):
            (query,) = node.expressions
        if query is None:
            return self._apply("in", [node.this, *node.expressions], node)
        left = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
        return UnboundSubquery(SubqueryUse.IN, _query(query), tuple(map(self.term, left)), self.span(node))

    def _cast(self, node: exp.Cast) -> UnboundExpr:
        span, operand = self.span(node), node.this
        if isinstance(operand, exp.Array) and not operand.expressions:
            return UnboundCast(UnboundLiteral("{}", span=span), self.data_type(node.args["to"], span), span)
        return UnboundCast(self.term(operand), self.data_type(node.args["to"], span), span)

    def _case(self, node: exp.Case) -> UnboundExpr:
        subject = None if node.this is None else self.term(node.this)
        branches = []
        for branch in node.args["ifs"]:
            condition = self.term(branch.this)
            if subject is not None:
                condition = UnboundCall("equal", (subject, condition), self.span(branch.this))
            branches.append((condition, self.term(branch.args["true"])))
        default = node.args.get("default")
        return UnboundCase(tuple(branches), None if default is None else self.term(default), self.span(node))

    def _interval(self, node: exp.Interval) -> UnboundExpr:
        text, unit = self._literal(node.this).value, node.args.get("unit")
        whole = text if unit is None else f"{text} {unit.name.lower()}"
        return UnboundLiteral(whole, DataType.INTERVAL, self.span(node))


def _is_untyped(node: exp.Expr) -> bool:
    """Whether this is a text or NULL without a type of its own."""
    while isinstance(node, exp.Paren):
        node = node.this
    return isinstance(node, exp.Null | exp.ByteString) or (isinstance(node, exp.Literal) and bool(node.is_string))


def _chain(node: exp.Expr) -> list[exp.Expr]:
    """The operands of a chain of one operator, in text order, ignoring parentheses."""
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


def _query(node: exp.Expr) -> exp.Expr:
    """The query within parentheses."""
    return node.this if isinstance(node, exp.Subquery) and node.args.get("alias") is None else node


def _is_query(node: exp.Expr) -> bool:
    while isinstance(node, exp.Paren):
        node = node.this
    return isinstance(node, exp.Query)


def _unescaped(match: re.Match[str]) -> str:
    octal, byte, short, long, letter = match.groups()
    code = octal or byte or short or long
    if code is None:
        return _ESCAPES.get(letter, letter) if letter else "'"
    value = int(code, 8 if octal else 16)
    if 0xD800 <= value < 0xE000 or (value > 0x7F and (octal or byte)):
        raise ValueError(code)
    return chr(value)


def number(text: str, span: TextSpan | None = None) -> int | Decimal | float:
    """A number as written: an integer, with a point (NUMERIC), or with an exponent (DOUBLE). ParseError at `span`."""
    if not _NUMBER.fullmatch(text):
        raise ParseError(f"{shortened(text, 80)} is no number", **error_span(span))
    if "e" in text.lower():
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ParseError(f"{shortened(text, 80)} is beyond the largest DOUBLE", **error_span(span))
        return value
    if len(text) > _MAX_DIGITS:
        raise ParseError(f"NUMERIC holds 38 digits, this has {len(text)}", **error_span(span))
    return Decimal(text) if "." in text else int(text)


def _moment(name: str) -> Callable[[Translator, Any], UnboundExpr]:
    return lambda self, node: self._volatile(name, self.span(node))


_HANDLERS: dict[type[exp.Expr], Callable[[Translator, Any], UnboundExpr]] = {
    exp.Column: Translator._column,
    exp.Literal: Translator._literal,
    exp.ByteString: Translator._escaped,
    exp.RawString: Translator._dollar_quoted,
    exp.Concat: Translator._continued,
    exp.Collate: Translator._collated,
    exp.Placeholder: Translator._parameter,
    exp.Null: lambda self, node: UnboundLiteral(None, span=self.span(node)),
    exp.Boolean: lambda self, node: UnboundLiteral(bool(node.this), span=self.span(node)),
    exp.Neg: Translator._negative,
    Plus: lambda self, node: self.term(node.this),
    exp.Not: lambda self, node: self._apply("not", [node.this], node),
    exp.Is: Translator._is,
    exp.In: Translator._in,
    exp.Exists: lambda self, node: UnboundSubquery(SubqueryUse.EXISTS, _query(node.this), span=self.span(node)),
    exp.Subquery: lambda self, node: UnboundSubquery(SubqueryUse.VALUE, node, span=self.span(node)),
    exp.Select: lambda self, node: UnboundSubquery(SubqueryUse.VALUE, node, span=self.span(node)),
    exp.Between: Translator._between,
    exp.Like: Translator._like,
    exp.ILike: Translator._like,
    exp.SimilarTo: Translator._like,
    exp.Escape: Translator._escape,
    Operation: Translator._operation,
    exp.AtTimeZone: lambda self, node: self._apply("timezone", [node.args["zone"], node.this], node),
    exp.Bracket: Translator._bracket,
    exp.Dot: Translator._field,
    exp.Cast: Translator._cast,
    exp.Case: Translator._case,
    exp.Interval: Translator._interval,
    exp.Array: lambda self, node: self._apply("array", node.expressions, node),
    exp.Tuple: lambda self, node: self._apply("row", node.expressions, node),
    exp.Filter: Translator._filter,
    exp.WithinGroup: Translator._within_group,
    exp.Window: Translator._window,
    exp.Anonymous: Translator._call,
    exp.CurrentDate: _moment("current_date"),
    exp.CurrentTime: _moment("current_time"),
    exp.CurrentTimestamp: _moment("current_timestamp"),
    exp.Localtimestamp: _moment("localtimestamp"),
}
