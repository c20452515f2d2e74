"""Unbound expressions as text, in the Python that builds them: `(col("amount") + 1) * 2`."""

from __future__ import annotations

import json

from relational.expr.unbound import (
    Name,
    Named,
    Ordered,
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
    UnboundWindow,
)

INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "modulo": "%", "equal": "==", "not_equal": "!=",
    "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "and": "&", "or": "|",
}  # fmt: skip
PREFIX = {"negate": "-", "not": "~"}
METHODS = {
    "is_null": "is_null", "is_not_null": "is_not_null", "is_distinct": "is_distinct_from",
    "is_not_distinct": "is_not_distinct_from", "between": "between", "like": "like", "ilike": "ilike",
}  # fmt: skip


def python_text(term: UnboundExpr) -> str:
    """A line of Python; what only SQL can write is named by its kind."""
    return _constant(term) if isinstance(term, UnboundLiteral) else _text(term)


def key_text(key: Ordered) -> str:
    """A sort key."""
    nulls = "" if key.order.nulls_first == key.order.descending else f"nulls_first={key.order.nulls_first}"
    return f"{_operand(key.term, is_alone=True)}.{'desc' if key.order.descending else 'asc'}({nulls})"


def named_text(column: Named) -> str:
    """An output column."""
    return f"{_operand(column.term, is_alone=True)}.alias({_quoted(column.name)})"


def _text(term: UnboundExpr) -> str:
    match term:
        case Name() | UnboundColumn():
            qualifier = term.qualifier if isinstance(term, Name) else ()
            return f"col({_quoted('.'.join((*qualifier, term.name)))})"
        case UnboundLiteral():
            return repr(term.value) if term.data_type is None else _constant(term)
        case UnboundCall():
            return _call(term)
        case UnboundCast():
            return f'{_operand(term.operand, is_alone=True)}.cast("{term.data_type}")'
        case UnboundCase():
            branches = ".".join(f"when({_text(condition)}, {_text(result)})" for condition, result in term.branches)
            return branches if term.otherwise is None else f"{branches}.default({_text(term.otherwise)})"
        case UnboundAggregate():
            return _aggregate(term)
        case UnboundGrouping():
            return f"grouping({_listed(term.args)})"
        case UnboundWindow():
            return f"{_text(term.call)} OVER (…)"
        case UnboundParameter():
            return f"${term.number}"
        case UnboundNow():
            return "now()"
    return f"<{type(term).__name__}>"


def _call(term: UnboundCall) -> str:
    args = term.args
    if term.function in INFIX and len(args) > 1:
        first, *others = args
        parts = [_operand(first, is_alone=all(isinstance(each, UnboundLiteral) for each in others))]
        return f" {INFIX[term.function]} ".join([*parts, *map(_operand, others)])
    if term.function in PREFIX and len(args) == 1:
        return PREFIX[term.function] + _operand(args[0], is_alone=True)
    if term.function == "in" and args:
        return f"{_operand(args[0], is_alone=True)}.is_in([{_listed(args[1:])}])"
    if term.function in METHODS and args:
        return f"{_operand(args[0], is_alone=True)}.{METHODS[term.function]}({_listed(args[1:])})"
    return f"{term.function}({_listed(args)})"


def _aggregate(term: UnboundAggregate) -> str:
    parts = [_text(each) for each in (term.argument, *term.more) if each is not None]
    keys = [f"order_by=[{', '.join(map(key_text, term.order))}]"] * bool(term.order)
    text = f"{term.function}({', '.join([*parts, *['distinct=True'] * term.distinct, *keys])})"
    return text if term.condition is None else f"{text}.filter({_text(term.condition)})"


def _operand(term: UnboundExpr, is_alone: bool = False) -> str:
    """An operand of an operator. `is_alone`: Python calls a method of it, or has no other one that is an expression."""
    if isinstance(term, UnboundLiteral):
        return _constant(term) if is_alone else _text(term)
    is_compound = isinstance(term, UnboundCall) and (term.function in INFIX or term.function in PREFIX)
    return f"({_text(term)})" if is_compound else _text(term)


def _constant(term: UnboundLiteral) -> str:
    return f"lit({term.value!r})" if term.data_type is None else f'lit({term.value!r}, "{term.data_type}")'


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _listed(terms: tuple[UnboundExpr, ...]) -> str:
    return ", ".join(map(_text, terms))
