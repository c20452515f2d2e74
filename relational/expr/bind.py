"""Binds unbound expressions to a relation: names become columns, functions are resolved to overloads, conversions
become casts.

SQL and the fluent API share this module, so they agree on every type. A text or NULL literal adopts the type of the
operand next to it (`at > '2020-01-01'`); a cast of a constant is evaluated at once, so that an error in it points at
the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa

from relational.errors import BindError, EvaluationError, shortened
from relational.expr.aggregates import AggKind
from relational.expr.coercion import WIDE, common_type, digits
from relational.expr.eval import evaluate_array, evaluate_constant
from relational.expr.eval_context import EvalContext, python_value
from relational.expr.expression import INFIX, Call, Case, Cast, Expression, InputRef, Literal, Parameter
from relational.expr.functions import ALIASES, FUNCTIONS, SET_FUNCTIONS, VOLATILE, adapt, resolve
from relational.expr.kernels.arithmetic import OPERATIONS
from relational.expr.kernels.casting import can_cast
from relational.expr.kernels.comparison import is_listable
from relational.expr.scope import Scope, error_span, unknown
from relational.expr.signature import Overload, Signature, Types
from relational.expr.temporal_terms import NOW
from relational.expr.unbound import (
    Name,
    TextSpan,
    UnboundAggregate,
    UnboundCall,
    UnboundCase,
    UnboundCast,
    UnboundColumn,
    UnboundExpr,
    UnboundGrouping,
    UnboundLiteral,
    UnboundNow,
    UnboundParameter,
    UnboundSetCall,
    UnboundSubquery,
    UnboundWindow,
)
from relational.expr.user_call import UserCall
from relational.types.data_type import DataType, TypeKind
from relational.types.interval import Interval
from relational.types.postgres import POSTGRES_TYPES
from relational.udf.function import UserFunction

AGGREGATES = tuple(kind.value for kind in AggKind if kind not in (AggKind.USER, AggKind.USER_STATE))
AGGREGATE_ALIASES = {
    "every": "bool_and", "variance": "var_samp", "stddev": "stddev_samp", "any_value": "min", "min_by": "arg_min",
    "max_by": "arg_max", "json_agg": "jsonb_agg", "json_object_agg": "jsonb_object_agg",
}  # fmt: skip
MAX_DEPTH = 120
"""Nested operations; recursive functions traverse, write and read expressions."""
MOST_SHOWN = 4
"""Overloads of a function that a message shows."""
_OF_THE_PROGRAM = ("clock_timestamp", "gen_random_uuid", "random")
"""Functions of PostgreSQL that no statement can call."""
FEW_MEMBERS = 16
"""IN lists up to this length are compared value by value."""


class BindSubquery(Protocol):
    """How an expression binds a subquery."""

    def __call__(self, term: UnboundSubquery, operands: Sequence[Expression]) -> Expression:
        """What stands for the value of `term`, whose `operands` are bound."""
        ...


class BindWindow(Protocol):
    """How an expression binds a window function."""

    def __call__(self, term: UnboundWindow, binder: ExprBinder) -> Expression:
        """What stands for the value of `term`, whose parts are bound with `binder`."""
        ...


class BindSetCall(Protocol):
    """How an expression binds a set-returning function."""

    def __call__(self, term: UnboundSetCall, args: Sequence[Expression]) -> Expression:
        """What stands for the value of `term` in a row, whose arguments are bound."""
        ...


class ExprBinder:
    """Binds terms over one scope; subqueries with `subqueries`, window functions with `windows` and set-returning ones
    with `sets`, None: there may be none. The binding of aggregates is for a subclass."""

    def __init__(
        self,
        scope: Scope,
        subqueries: BindSubquery | None = None,
        windows: BindWindow | None = None,
        sets: BindSetCall | None = None,
    ):
        self.scope = scope
        self._subqueries, self._windows, self._sets = subqueries, windows, sets
        self._depth = 0

    def bind(self, term: UnboundExpr) -> Expression:
        """The bound expression of a term; BindError at the span of the invalid part."""
        if isinstance(term, Name):
            return self.scope.resolve(term)
        if isinstance(term, UnboundColumn):
            return InputRef(term.index, term.data_type)
        if isinstance(term, UnboundLiteral):
            return literal(term)
        if isinstance(term, UnboundNow):
            return NOW
        if isinstance(term, UnboundParameter):
            return Parameter(term.number, term.data_type)
        if self._depth == MAX_DEPTH:
            raise BindError(f"an expression is nested deeper than {MAX_DEPTH} levels", **error_span(span_of(term)))
        self._depth += 1
        try:
            return self._operation(term)
        finally:
            self._depth -= 1

    def _operation(self, term: UnboundExpr) -> Expression:
        if isinstance(term, UnboundCast):
            return _typed(convert(self.bind(term.operand), term.data_type, term.span))
        if isinstance(term, UnboundCase):
            return self._case(term)
        if isinstance(term, UnboundSubquery):
            if self._subqueries is None:
                raise BindError("a subquery is not supported here", **error_span(term.span))
            with self._without_sets():
                return self._subqueries(term, [self.bind(each) for each in term.operands])
        if isinstance(term, UnboundWindow):
            if self._windows is None:
                raise BindError(f"the window function {term.function} is not supported here", **error_span(term.span))
            with self._without_sets():
                return self._windows(term, self)
        if isinstance(term, UnboundGrouping):
            raise BindError("grouping() cannot stand here", **error_span(term.span))
        if isinstance(term, UnboundSetCall):
            if self._sets is None:
                raise BindError(_misplaced(term.function), **error_span(term.span))
            return self._sets(term, [self.bind(each) for each in term.args])
        if isinstance(term, UnboundAggregate):
            raise BindError(f"the aggregate {term.function} cannot stand here", **error_span(term.span))
        assert isinstance(term, UnboundCall), term
        if term.definition is not None:
            return user_call(term.definition, [self.bind(arg) for arg in term.args], term.span)
        return call(term.function, [self.bind(arg) for arg in term.args], term.span)

    def condition(self, term: UnboundExpr, clause: str) -> Expression:
        """Binds a term that must be BOOLEAN."""
        with self._without_sets():
            bound = self.bind(term)
        if is_unknown(bound):
            bound = convert(bound, DataType.BOOLEAN, span_of(term))
        if bound.data_type.kind is not TypeKind.BOOLEAN:
            raise BindError(f"{clause} needs a BOOLEAN, this is {bound.data_type}", **error_span(span_of(term)))
        return bound

    @contextmanager
    def _without_sets(self) -> Iterator[None]:
        """Refuses set-returning functions within a part of an expression."""
        sets, self._sets = self._sets, None
        try:
            yield
        finally:
            self._sets = sets

    def _case(self, term: UnboundCase) -> Expression:
        conditions = [self.condition(condition, "WHEN") for condition, _ in term.branches]
        results = [self.bind(result) for _, result in term.branches]
        results.append(
            Literal(None, DataType.VARCHAR) if term.otherwise is None else self.bind(term.otherwise)
        )
        results, data_type = unify(results, "the branches of CASE", term.span)
        pairs = tuple(zip(conditions, results[:-1], strict=True))
        return Case(pairs, results[-1], data_type)


def call(name: str, args: Sequence[Expression], span: TextSpan | None = None) -> Expression:
    """The bound call of a function or operator, its arguments converted."""
    name = ALIASES.get(name, name)
    if name in VOLATILE:
        where = "in SQL: a parameter or a user function gives the value" if name in _OF_THE_PROGRAM else "here"
        raise BindError(f"{name}() gives another answer each time: it is not allowed {where}", **error_span(span))
    if name in SET_FUNCTIONS:
        raise BindError(_misplaced(name), **error_span(span))
    if name in _SHORTHANDS:
        return _SHORTHANDS[name](list(args), span)
    return _call(name, args, span)


def user_call(function: UserFunction, args: Sequence[Expression], span: TextSpan | None = None) -> UserCall:
    """The call of a user function, its arguments converted to the declared types; of a table function, its rows as a
    list."""
    takes = user_arguments(function, args, span)
    return UserCall(function, takes, function.call_type)


def user_arguments(
    function: UserFunction, args: Sequence[Expression], span: TextSpan | None = None
) -> tuple[Expression, ...]:
    """The arguments of a user function, converted to the declared types. BindError."""
    signature = Signature(function.types, len(function.types), False, function.returns)
    found = signature.adapt(tuple(arg.data_type for arg in args), [is_unknown(arg) for arg in args])
    if found is None:
        given = ", ".join(str(arg.data_type) for arg in args)
        raise BindError(f"{function.name} takes {signature}, not ({given})", **error_span(span))
    return tuple(convert_all(args, found[0], span))


def set_call(
    name: str, args: Sequence[Expression], span: TextSpan | None = None, definition: UserFunction | None = None
) -> Expression:
    """The rows of a set-returning function as a list, its arguments converted. `definition`: of a user function."""
    if definition is not None:
        return user_call(definition, args, span)
    name = ALIASES.get(name, name)
    if name not in SET_FUNCTIONS:
        raise BindError(unknown("table function", name, sorted(SET_FUNCTIONS)), **error_span(span))
    return _call(name, args, span)


def _misplaced(function: str) -> str:
    return f"{function} gives rows: it stands in the SELECT list or in FROM only"


def _call(name: str, args: Sequence[Expression], span: TextSpan | None) -> Expression:
    """The call of a function of the registry."""
    if name not in FUNCTIONS:
        raise BindError(unknown("function", name, known_functions()), **error_span(span))
    if name in OPERATIONS and any(arg.data_type.kind is TypeKind.NUMERIC for arg in args):
        args = [_by_own_digits(arg) for arg in args]
    found = resolve(name, tuple(arg.data_type for arg in args))
    if found is None and any(map(is_unknown, args)):
        found, args = _with_unknown(name, args, span)
    if found is None:
        raise BindError(_misfit(name, args), **error_span(span))
    overload, takes, gives = found
    for index in overload.constants:
        if not isinstance(args[index], Literal):
            raise BindError(f"argument {index + 1} of {name} must be a constant", **error_span(span))
    converted = tuple(convert_all(args, takes, span))
    if name == "in" and len(converted) > FEW_MEMBERS:
        return _folded(_membership(converted))
    return _folded(Call(name, converted, gives))


def _with_unknown(
    name: str, args: Sequence[Expression], span: TextSpan | None
) -> tuple[tuple[Overload, Types, DataType] | None, Sequence[Expression]]:
    """The overload for arguments of which some are text or NULL literals. In an operator of two alike these adopt the
    type of the others, in any other function the type that its signature names.
    """
    if name not in OPERATIONS:
        found = adapt(name, tuple(arg.data_type for arg in args), [is_unknown(arg) for arg in args])
        if found is not None or all(overload.signature is not None for overload in FUNCTIONS[name]):
            return found, args
    args = _adapted(args, span)
    return resolve(name, tuple(arg.data_type for arg in args)), args


def _misfit(name: str, args: Sequence[Expression]) -> str:
    """The message for arguments that no overload accepts, with those that some do."""
    signatures = [overload.signature for overload in FUNCTIONS[name] if overload.signature is not None]
    is_complete = len(signatures) == len(FUNCTIONS[name])
    name = INFIX.get(name, name)
    takes = " or ".join(dict.fromkeys(map(str, signatures[:MOST_SHOWN])))
    if is_complete and not any(signature.takes_count(len(args)) for signature in signatures):
        return f"{name} takes {takes}, not {len(args)} argument{'s' * (len(args) != 1)}"
    types = ", ".join(str(arg.data_type) for arg in args)
    if name in ("in", "=") and len(args) == 2 and args[1].data_type.element is not None:
        return f"{name.upper()} is not defined for ({types}): = ANY (…) finds a value in a list"
    return f"{name} is not defined for ({types})" + (f"; it takes {takes}" if is_complete else "")


def _by_own_digits(arg: Expression) -> Expression:
    """An integer literal as the NUMERIC of its digits; any other expression unchanged."""
    if not isinstance(arg, Literal) or arg.value is None or not arg.data_type.is_integer:
        return arg
    return Literal(Decimal(arg.value), DataType.numeric(len(str(abs(arg.value)))))


def _membership(args: tuple[Expression, ...]) -> Call:
    """x IN (…) of many values: one lookup in a constant list if all are constants. A number that the type of x cannot
    represent equals none of its values and is omitted.
    """
    needle, *values = args
    data_type = needle.data_type
    if not is_listable(data_type) or not all(isinstance(value, Literal) for value in values):
        return Call("in", args, DataType.BOOLEAN)
    members = [value.value for value in values if isinstance(value, Literal)]
    if data_type.kind is TypeKind.NUMERIC:
        members = [member for member in members if member is None or _holds(data_type, Decimal(member))]
    return Call("in_list", (needle, Literal(members, DataType.list_of(data_type))), DataType.BOOLEAN)


def _holds(data_type: DataType, value: Decimal) -> bool:
    """Whether a NUMERIC type can represent this value exactly."""
    whole, scale = digits(data_type)
    return value.quantize(Decimal(1).scaleb(-scale), context=WIDE) == value and value.copy_abs() < Decimal(10) ** whole


def convert(operand: Expression, data_type: DataType, span: TextSpan | None = None) -> Expression:
    """`operand` as `data_type`: unchanged, a folded constant, or a Cast. BindError if there is no conversion."""
    if operand.data_type == data_type:
        return operand
    if isinstance(operand, Literal) and operand.value is None:
        return Literal(None, data_type)
    is_wider = operand.data_type.is_integer and data_type.is_integer and operand.data_type.kind < data_type.kind
    if is_wider and isinstance(operand, Parameter):
        return Parameter(operand.number, data_type)
    if not can_cast(operand.data_type, data_type):
        raise BindError(f"{operand.data_type} cannot be converted to {data_type}", **error_span(span))
    cast = Cast(operand, data_type)
    if not isinstance(operand, Literal) or data_type.is_nested:
        return cast
    if is_wider:
        return Literal(operand.value, data_type)
    try:
        return Literal(evaluate_constant(cast), data_type)
    except EvaluationError as error:
        raise BindError(f"{operand.describe()} is no {data_type}", **error_span(span)) from error


def convert_all(
    operands: Sequence[Expression], data_types: Sequence[DataType], span: TextSpan | None = None
) -> list[Expression]:
    """Each of `operands` cast to its own target type; many constants of one type are cast as one column."""
    found = list(operands)
    alike: dict[tuple[DataType, DataType], tuple[list[int], list[Any]]] = {}
    if len(operands) > FEW_MEMBERS:
        for at, (operand, data_type) in enumerate(zip(operands, data_types, strict=True)):
            if isinstance(operand, Literal) and operand.value is not None and operand.data_type != data_type:
                positions, values = alike.setdefault((operand.data_type, data_type), ([], []))
                positions.append(at)
                values.append(operand.value)
    for (source, target), (positions, values) in alike.items():
        if len(positions) > 1 and not target.is_nested and can_cast(source, target):
            for at, value in zip(positions, _cast_values(values, source, target) or (), strict=False):
                found[at] = Literal(value, target)
    return [convert(operand, data_type, span) for operand, data_type in zip(found, data_types, strict=True)]


def _cast_values(values: list[Any], source: DataType, target: DataType) -> list[Any] | None:
    """Constants of one type cast to another; None if a cast fails."""
    plain = [value.to_arrow() if isinstance(value, Interval) else value for value in values]
    column = pa.array(plain, source.arrow)
    try:
        cast = evaluate_array(Cast(InputRef(0, source), target), EvalContext([column], len(values), strict=True))
    except EvaluationError:
        return None
    return [python_value(value) for value in cast]


def unify(values: Sequence[Expression], what: str, span: TextSpan | None) -> tuple[list[Expression], DataType]:
    """`values` converted to their common type; if all of them adopt any type, to that of a NULL that was cast."""
    known = [value.data_type for value in values if not is_unknown(value)]
    known = known or [value.data_type for value in values if value.data_type.kind is not TypeKind.VARCHAR]
    data_type = common_type(known) if known else DataType.VARCHAR
    if data_type is None:
        types = " and ".join(dict.fromkeys(map(str, known)))
        raise BindError(f"{what} have no type in common: {types}", **error_span(span))
    return convert_all(values, [data_type] * len(values), span), data_type


def literal(term: UnboundLiteral) -> Expression:
    """The constant with the type of its Python value; a list has the type that is given with it."""
    value, span = term.value, term.span
    if term.data_type is not None:
        if isinstance(value, list):
            return Literal(value, term.data_type)
        return convert(literal(UnboundLiteral(value, None, span)), term.data_type, span)
    if isinstance(value, int) and not isinstance(value, bool):
        return _integer(value, span)
    if isinstance(value, Decimal):
        return _decimal(value, span)
    if isinstance(value, datetime):
        return Literal(value, DataType.TIMESTAMP if value.tzinfo is None else DataType.TIMESTAMPTZ)
    if isinstance(value, str):
        return text_literal(value, span)
    for kind, data_type in _LITERAL_TYPES:
        if isinstance(value, kind):
            return Literal(value, data_type)
    raise BindError(f"a {type(value).__name__} is no SQL value: {value!r}", **error_span(span))


_LITERAL_TYPES: tuple[tuple[type, DataType], ...] = (
    (type(None), DataType.VARCHAR),
    (bool, DataType.BOOLEAN),
    (float, DataType.DOUBLE),
    (bytes, DataType.BYTEA),
    (date, DataType.DATE),
    (time, DataType.TIME),
    (Interval, DataType.INTERVAL),
)


def text_literal(value: str, span: TextSpan | None = None) -> Literal:
    """A constant text. BindError for a half of a surrogate pair, which is no character."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            message = f"{shortened(repr(value), 80)} has a character that Unicode has not"
            raise BindError(message, **error_span(span)) from None
    return Literal(value, DataType.VARCHAR)


def _integer(value: int, span: TextSpan | None) -> Literal:
    for data_type, bits in ((DataType.INT, 31), (DataType.BIGINT, 63)):
        if -(1 << bits) <= value < 1 << bits:
            return Literal(value, data_type)
    return _decimal(Decimal(value), span)


def _decimal(value: Decimal, span: TextSpan | None) -> Literal:
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise BindError(f"NUMERIC has no {value}", **error_span(span))
    scale = max(-exponent, 0)
    precision = max(len(value.as_tuple().digits) + max(exponent, 0), scale, 1)
    if precision > 38:
        raise BindError(f"NUMERIC holds 38 digits, this has {precision}", **error_span(span))
    scaled = value.quantize(Decimal(1).scaleb(-scale), context=WIDE)
    return Literal(scaled, DataType.numeric(precision, scale))


def is_unknown(value: Expression) -> bool:
    """Whether this is a text or NULL literal, or a parameter that is a text: its type depends on the context."""
    if isinstance(value, Parameter):
        return value.data_type.kind is TypeKind.VARCHAR
    return isinstance(value, Literal) and (value.value is None or value.data_type.kind is TypeKind.VARCHAR)


def _adapted(args: Sequence[Expression], span: TextSpan | None) -> list[Expression]:
    """`args` with text and NULL literals converted to the common type of the others."""
    known = [arg.data_type for arg in args if not is_unknown(arg)]
    target = common_type(known) if known else DataType.BOOLEAN
    if target is None:
        return list(args)
    return convert_all(args, [target if is_unknown(arg) else arg.data_type for arg in args], span)


def _folded(bound: Call) -> Expression:
    """Folds a call of constants if it has a value; an error is raised only for rows that evaluate the call."""
    if bound.data_type.is_nested or not all(isinstance(arg, Literal) for arg in bound.args):
        return bound
    try:
        return Literal(evaluate_constant(bound), bound.data_type, is_typed=True)
    except EvaluationError:
        return bound


def _typed(value: Expression) -> Expression:
    return replace(value, is_typed=True) if isinstance(value, Literal) else value


def _is_open(value: Expression) -> bool:
    """Whether this is a text or NULL as written: an operator may take it for a value of any type."""
    return is_unknown(value) and not (isinstance(value, Literal) and value.is_typed)


def _between(args: list[Expression], span: TextSpan | None) -> Expression:
    value, low, high = _exactly(args, 3, "between", span)
    bounds = call("greater_equal", [value, low], span), call("less_equal", [value, high], span)
    return call("and", bounds, span)


def _nullif(args: list[Expression], span: TextSpan | None) -> Expression:
    (value, other), _ = unify(_exactly(args, 2, "nullif", span), "the arguments of nullif", span)
    return Case(
        ((call("equal", [value, other], span), Literal(None, value.data_type)),), value, value.data_type
    )


def _extract(args: list[Expression], span: TextSpan | None) -> Expression:
    field, value = _exactly(args, 2, "extract", span)
    fields = [name.removeprefix("extract_") for name in FUNCTIONS if name.startswith("extract_")]
    return call(f"extract_{_word(field, fields, 'field', span)}", [value], span)


def _date_part(args: list[Expression], span: TextSpan | None) -> Expression:
    return convert(_extract(args, span), DataType.DOUBLE, span)


def _date_trunc(args: list[Expression], span: TextSpan | None) -> Expression:
    if len(args) != 3:
        _exactly(args, 2, "date_trunc", span)
    unit, *values = args
    if values[0].data_type.kind is TypeKind.TIME:
        values[0] = convert(values[0], DataType.INTERVAL, span)
    if not isinstance(unit, Literal | Parameter):
        return _call("date_trunc", [unit, *values], span)
    units = [name.removeprefix("date_trunc_") for name in FUNCTIONS if name.startswith("date_trunc_")]
    return call(f"date_trunc_{_word(unit, units, 'unit', span)}", values, span)


def _date(args: list[Expression], span: TextSpan | None) -> Expression:
    """date(x): a cast, as PostgreSQL has one for each pair of types."""
    return convert(_exactly(args, 1, "date", span)[0], DataType.DATE, span)


def _of_texts(name: str) -> Callable[[list[Expression], TextSpan | None], Expression]:
    """A function of the texts of values, in which a BOOLEAN is t or f, unlike in a cast."""
    return lambda args, span: _call(name, [_shown(arg) for arg in args], span)


def _shown(arg: Expression) -> Expression:
    if arg.data_type.kind is not TypeKind.BOOLEAN:
        return arg
    texts = [Literal(text, DataType.VARCHAR) for text in "tf"]
    branches = (arg, texts[0]), (call("not", [arg]), texts[1])
    if isinstance(arg, Literal):
        return next((text for text, value in zip(texts, (True, False), strict=True) if arg.value is value),
                    Literal(None, DataType.VARCHAR))
    return Case(branches, Literal(None, DataType.VARCHAR), DataType.VARCHAR)


def _concat_known(args: list[Expression], span: TextSpan | None) -> Expression:
    """concat(…): the texts of the values that are not NULL."""
    shown = [_shown(arg) for arg in args]
    return _call("concat_known", convert_all(shown, [DataType.VARCHAR] * len(shown), span), span)


def _between_symmetric(args: list[Expression], span: TextSpan | None) -> Expression:
    value, low, high = _exactly(args, 3, "between", span)
    return call("or", [_between([value, low, high], span), _between([value, high, low], span)], span)


def _concat(args: list[Expression], span: TextSpan | None) -> Expression:
    """||: texts at once; lists, JSON and bytes from left to right."""
    if not any(arg.data_type.element is not None or arg.data_type.kind in _JOINED for arg in args):
        return _call("concat", args, span)
    joined, *rest = args
    for arg in rest:
        types = {each.data_type for each in (joined, arg) if not _is_open(each)}
        whole = types.pop() if len(types) == 1 else None
        if whole is not None and (whole.element is not None or whole.kind in _JOINED):
            joined, arg = convert_all([joined, arg], [whole, whole], span)
        joined = _call("concat", [joined, arg], span)
    return joined


def _negate(args: list[Expression], span: TextSpan | None) -> Expression:
    """-x, which is of no text: it could be a number or an interval."""
    (value,) = _exactly(args, 1, "negate", span)
    if not is_unknown(value):
        return _call("negate", args, span)
    if isinstance(value, Literal) and value.value is None:
        return Literal(None, DataType.DOUBLE if value.data_type.kind is TypeKind.VARCHAR else value.data_type)
    hint = ": cast it to the type that is meant" if _is_open(value) else ""
    raise BindError(f"- is not defined for {value.data_type}{hint}", **error_span(span))


def _json_object(args: list[Expression], span: TextSpan | None) -> Expression:
    if len(args) % 2:
        message = f"jsonb_build_object takes keys and values in turns, not {len(args)} arguments"
        raise BindError(message, **error_span(span))
    return _call("jsonb_build_object", args, span)


def _field(args: list[Expression], span: TextSpan | None) -> Expression:
    """(row).name"""
    value, name = _exactly(args, 2, "field", span)
    names = [field.name for field in value.data_type.fields]
    if not names:
        raise BindError(f"{value.data_type} has no fields", **error_span(span))
    if not isinstance(name, Literal) or name.value not in names:
        raise BindError(unknown("field", str(getattr(name, "value", "")), names), **error_span(span))
    return _call(f"field_{names.index(name.value) + 1}", [value], span)


def _round(args: list[Expression], span: TextSpan | None) -> Expression:
    if len(args) != 2:
        return _plain_round(args, span)
    value, wanted = args
    if value.data_type.is_float:
        return _call("round_to", args, span)
    if not value.data_type.is_numeric:
        raise BindError(f"round to digits is defined for numbers, not {value.data_type}", **error_span(span))
    if not isinstance(wanted, Literal) or not isinstance(wanted.value, int) or not 0 <= wanted.value <= 38:
        if wanted.data_type.kind not in (TypeKind.SMALLINT, TypeKind.INT):
            raise BindError(f"round takes an INT of digits, not {wanted.data_type}", **error_span(span))
        return _call("round_to", args, span)
    if value.data_type.is_integer:
        return value
    whole, scale = digits(value.data_type)
    scale = min(scale, wanted.value)
    rounded = DataType.numeric(min(whole + 1 + scale, 38), scale)
    return value if rounded == value.data_type else _folded(Call("round", (value,), rounded))


def _plain_round(args: list[Expression], span: TextSpan | None) -> Expression:
    if len(args) == 1 and is_unknown(args[0]):
        args = [convert(args[0], DataType.DOUBLE, span)]
    found = resolve("round", tuple(arg.data_type for arg in args))
    if found is None:
        raise BindError(_misfit("round", args), **error_span(span))
    return _folded(Call("round", tuple(args), found[2]))


def _exactly(args: list[Expression], count: int, name: str, span: TextSpan | None) -> list[Expression]:
    if len(args) != count:
        raise BindError(f"{name} takes {count} arguments, not {len(args)}", **error_span(span))
    return args


def _word(value: Expression, words: Iterable[str], what: str, span: TextSpan | None) -> str:
    """A constant text that must be one of `words`."""
    words = list(words)
    if not isinstance(value, Literal) or not isinstance(value.value, str):
        raise BindError(f"the {what} must be a constant text", **error_span(span))
    word = value.value.lower()
    found = next((each for each in (word, f"{word}s", word.removesuffix("s")) if each in words), None)
    if found is None:
        raise BindError(unknown(what, value.value, words), **error_span(span))
    return found


def _pg_typeof(args: list[Expression], span: TextSpan | None) -> Expression:
    """PostgreSQL's name of a type, without the digits of a NUMERIC."""
    (value,) = _exactly(args, 1, "pg_typeof", span)
    data_type, brackets = value.data_type, ""
    while data_type.element is not None:
        data_type, brackets = data_type.element, brackets + "[]"
    return Literal(POSTGRES_TYPES[data_type.kind].name + brackets, DataType.VARCHAR)


_JOINED = (TypeKind.JSONB, TypeKind.BYTEA)
"""Types besides lists of which || makes one value."""
_SHORTHANDS = {
    "between": _between,
    "between_symmetric": _between_symmetric,
    "concat": _concat,
    "concat_known": _concat_known,
    "concat_ws": _of_texts("concat_ws"),
    "date": _date,
    "format": _of_texts("format"),
    "field": _field,
    "jsonb_build_object": _json_object,
    "negate": _negate,
    "nullif": _nullif,
    "pg_typeof": _pg_typeof,
    "extract": _extract,
    "date_part": _date_part,
    "date_trunc": _date_trunc,
    "round": _round,
}


def known_functions() -> list[str]:
    """The function names that SQL accepts, for suggestions."""
    plain = [name for name in FUNCTIONS if not name.startswith(("extract_", "date_trunc_", "field_"))]
    return [*plain, *_SHORTHANDS, *ALIASES, *AGGREGATES, *AGGREGATE_ALIASES]


def span_of(term: UnboundExpr) -> TextSpan | None:
    """The span of an unbound expression, or of its first part with a span."""
    todo = [term]
    while todo:
        each = todo.pop()
        span = getattr(each, "span", None)
        if span is not None:
            return span
        todo += reversed(each.children)
    return None
