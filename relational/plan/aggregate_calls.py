"""Binds aggregate calls: their arguments, order and constants over the input of a GROUP BY."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relational.errors import BindError
from relational.expr.aggregates import SQUARED_PRECISION, AggCall, AggKind, aggregate_type, order_of_extreme
from relational.expr.bind import (
    AGGREGATES,
    ExprBinder,
    call,
    convert,
    error_span,
    is_unknown,
    span_of,
    unknown,
    user_arguments,
)
from relational.expr.eval import evaluate_constant
from relational.expr.expression import Expression, Literal, input_columns
from relational.expr.unbound import Ordered, TextSpan, UnboundAggregate, UnboundExpr
from relational.types.data_type import DataType
from relational.types.ordering import OrderType, SortKey
from relational.udf.function import UserFunction

MOST_FRACTIONS = 100
"""Of one call of a percentile."""
_Order = tuple[tuple[Expression, OrderType], ...]


@dataclass(frozen=True, slots=True)
class BoundCall:
    """An aggregate whose arguments, order and filter are expressions over the input; otherwise as an AggCall."""

    kind: AggKind
    arguments: tuple[Expression, ...]
    condition: Expression | None
    distinct: bool
    data_type: DataType
    order: _Order = ()
    constants: tuple[Literal, ...] = ()
    function: UserFunction | None = None

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """What must be columns of the input; some may come twice."""
        return (*self.arguments, *(key for key, _ in self.order))

    def placed(self, position: Callable[[Expression], int], condition: Expression | None) -> AggCall:
        """The call over an input whose columns have these positions."""
        columns = tuple(map(position, self.arguments))
        order = tuple(SortKey(position(key), order) for key, order in self.order)
        return AggCall(
            self.kind, columns[0] if columns else None, condition, self.distinct, self.data_type, columns[1:], order,
            self.constants, self.function,
        )


def bound_call(term: UnboundAggregate, binder: ExprBinder) -> BoundCall:
    """The call of `term` over the scope of `binder`. BindError."""
    if term.definition is not None:
        return _user_aggregate(term.definition, term, binder)
    if term.function not in AGGREGATES:
        raise BindError(unknown("aggregate", term.function, AGGREGATES), **error_span(term.span))
    kind = AggKind(term.function)
    if kind.is_ordered_set != term.is_within_group:
        needed = "needs WITHIN GROUP (ORDER BY …)" if kind.is_ordered_set else "does not go with WITHIN GROUP"
        raise BindError(f"{kind} {needed}", **error_span(term.span))
    arguments, constants = _parts(kind, term, binder)
    data_type = _type_of(kind, arguments, constants, term)
    condition, order = _condition_and_order(term, binder)
    found = BoundCall(kind, arguments, condition, term.distinct, data_type, order, constants)
    if term.distinct:
        found = _distinct(found, term)
    if kind in (AggKind.ARG_MIN, AggKind.ARG_MAX):
        found = replace(found, order=((arguments[1], order_of_extreme(kind)), *order))
    if not kind.collects:
        return replace(found, order=())
    return _with_each_key_once(found)


def _user_aggregate(function: UserFunction, term: UnboundAggregate, binder: ExprBinder) -> BoundCall:
    """The call of a user aggregate, whose rows come in the order of the call."""
    if term.is_within_group:
        raise BindError(f"{function.name} does not go with WITHIN GROUP", **error_span(term.span))
    written = term.more if term.argument is None else (term.argument, *term.more)
    arguments = user_arguments(function, [binder.bind(each) for each in written], term.span)
    condition, order = _condition_and_order(term, binder)
    found = BoundCall(
        AggKind.USER, arguments, condition, term.distinct, function.returns, order, function=function
    )
    return _with_each_key_once(_distinct(found, term) if term.distinct else found)


def _condition_and_order(term: UnboundAggregate, binder: ExprBinder) -> tuple[Expression | None, _Order]:
    condition = None if term.condition is None else binder.condition(term.condition, "FILTER")
    return condition, tuple((binder.bind(key.term), key.order) for key in term.order)


def _with_each_key_once(found: BoundCall) -> BoundCall:
    """The call without keys that decide nothing."""
    first: dict[Expression, OrderType] = {}
    for key, how in found.order:
        first.setdefault(key, how)
    return replace(found, order=tuple((key, how) for key, how in first.items() if not isinstance(key, Literal)))


def _parts(
    kind: AggKind, term: UnboundAggregate, binder: ExprBinder
) -> tuple[tuple[Expression, ...], tuple[Literal, ...]]:
    """The arguments that are values of rows, and the constants."""
    written: tuple[UnboundExpr, ...] = term.more if term.argument is None else (term.argument, *term.more)
    if kind.is_ordered_set:
        (key,) = _only_key(kind, term)
        value = binder.bind(key.term)
        if kind is AggKind.PERCENTILE_CONT and value.data_type.is_numeric:
            value = convert(value, DataType.DOUBLE, span_of(key.term))
        return (value,), tuple(_fractions(kind, written, binder))
    bound = [binder.bind(each) for each in written]
    if kind.is_of_pairs and all(each.data_type.is_numeric for each in bound):
        bound = [convert(each, DataType.DOUBLE, term.span) for each in bound]
    elif kind.is_variance and bound and (bound[0].data_type.precision or 0) > SQUARED_PRECISION:
        bound = [convert(bound[0], DataType.DOUBLE, term.span)]
    elif kind is AggKind.STRING_AGG:
        return (bound[0],), (_separator(bound[0], bound[1], span_of(written[1]) or term.span),)
    elif kind is AggKind.JSONB_AGG:
        bound = [_json(bound[0])]
    elif kind is AggKind.JSONB_OBJECT_AGG:
        bound = [convert(bound[0], DataType.VARCHAR, term.span), _json(bound[1])]
    return tuple(bound), ()


def _type_of(
    kind: AggKind, arguments: Sequence[Expression], constants: Sequence[Literal], term: UnboundAggregate
) -> DataType:
    first = arguments[0] if arguments else None
    data_type = aggregate_type(kind, None if first is None else first.data_type)
    if data_type is None or (kind.is_of_pairs and not all(each.data_type.is_numeric for each in arguments)):
        what = ", ".join(str(each.data_type) for each in arguments) or "*"
        raise BindError(f"{term.function} is not defined for ({what})", **error_span(term.span))
    is_list = bool(constants) and kind.is_ordered_set and constants[0].data_type != DataType.DOUBLE
    return DataType.list_of(data_type) if is_list else data_type


def _only_key(kind: AggKind, term: UnboundAggregate) -> tuple[Ordered]:
    if len(term.order) != 1:
        raise BindError(f"{kind} is ordered by one value, not by {len(term.order)}", **error_span(term.span))
    return (term.order[0],)


def _json(value: Expression) -> Expression:
    return value if value.data_type == DataType.JSONB else call("to_jsonb", [value])


def _separator(value: Expression, separator: Expression, span: TextSpan | None) -> Literal:
    """The text, or the bytes, between values; NULL is none."""
    if not isinstance(separator, Literal):
        raise BindError("the separator of string_agg must be a constant", **error_span(span))
    data_type = value.data_type if value.data_type == DataType.BYTEA else DataType.VARCHAR
    if not is_unknown(separator) and separator.data_type != data_type:
        types = f"{value.data_type}, {separator.data_type}"
        raise BindError(f"string_agg is not defined for ({types})", **error_span(span))
    found = convert(separator, data_type, span)
    assert isinstance(found, Literal), found
    return found


def _fractions(kind: AggKind, written: Sequence[UnboundExpr], binder: ExprBinder) -> Iterator[Literal]:
    """The argument of a percentile: one number of 0 to 1, or a list of them."""
    for term in written:
        span = span_of(term)
        bound = binder.bind(term)
        if input_columns(bound):
            raise BindError(f"the argument of {kind} must be a constant", **error_span(span))
        is_list = bound.data_type.element is not None
        wanted = DataType.list_of(DataType.DOUBLE) if is_list else DataType.DOUBLE
        value: Any = evaluate_constant(convert(bound, wanted, span))
        numbers = value if isinstance(value, list) else [value]
        if not all(each is None or 0.0 <= each <= 1.0 for each in numbers):
            raise BindError(f"{kind} takes numbers of 0 to 1", **error_span(span))
        if len(numbers) > MOST_FRACTIONS:
            raise BindError(f"{kind} takes {MOST_FRACTIONS} numbers at most", **error_span(span))
        yield Literal(value, wanted)


def _distinct(found: BoundCall, term: UnboundAggregate) -> BoundCall:
    """The call of each value once. The values that it is of decide its order."""
    if found.kind.is_of_pairs:
        raise BindError(f"DISTINCT of {found.kind} is not supported", **error_span(term.span))
    if found.kind.collects and found.kind not in (AggKind.ARG_MIN, AggKind.ARG_MAX):
        for (key, _), written in zip(found.order, term.order, strict=True):
            if key not in found.arguments:
                reason = f"ORDER BY of {found.kind} (DISTINCT …) must be of its arguments"
                raise BindError(reason, **error_span(span_of(written.term)))
        rest = tuple((each, OrderType()) for each in found.arguments)
        found = replace(found, order=(*found.order, *rest))
    return replace(found, distinct=not found.kind.ignores_duplicates)

