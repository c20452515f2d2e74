"""What an OR implies: the terms that all of its branches have, and what it says about some of its columns alone.

    (a = 1 AND b = 2 AND c = 3) OR (a = 1 AND b = 4 AND c = 5)
    a = 1 AND ((b = 2 AND c = 3) OR (b = 4 AND c = 5))              the same, with NULL too: `factored`
    b = 2 OR b = 4                                                  implied about b: `implied_terms`

The second is how PostgreSQL restricts the inputs of a join by an OR over several of them.
"""

from __future__ import annotations

from collections.abc import Container

from relational.expr.expression import (
    Call,
    Expression,
    conjunction,
    conjuncts,
    input_columns,
    transform,
)
from relational.expr.functions import is_total
from relational.types.data_type import DataType

MOST_BRANCHES = 16
"""Of an OR that is evaluated once more for what it implies."""


def factored(expression: Expression) -> Expression:
    """An OR with the terms that all of its branches have before it; other expressions as they are."""
    if not isinstance(expression, Call) or expression.function != "or":
        return expression
    branches = [conjuncts(arg) for arg in expression.args]
    common = [term for term in dict.fromkeys(branches[0]) if all(term in branch for branch in branches[1:])]
    if not common:
        return expression
    rests = [tuple(term for term in branch if term not in common) for branch in branches]
    if not all(rests):
        return conjunction(common)
    either = Call("or", tuple(map(conjunction, rests)), DataType.BOOLEAN)
    return conjunction([*common, either])


def implied_terms(term: Expression, columns: Container[int]) -> tuple[Expression, ...]:
    """Terms over `columns` alone that are true where an OR is, each once and `factored`. They have a value for every
    row. None for other terms, and where a branch says nothing about these columns."""
    if not isinstance(term, Call) or term.function != "or" or len(term.args) > MOST_BRANCHES:
        return ()
    branches = [tuple(each for each in conjuncts(arg) if _is_about(each, columns)) for arg in term.args]
    if not all(branches):
        return ()
    either = Call("or", tuple(map(conjunction, branches)), DataType.BOOLEAN)
    return tuple(dict.fromkeys(conjuncts(transform(either, factored))))


def _is_about(term: Expression, columns: Container[int]) -> bool:
    read = input_columns(term)
    return bool(read) and all(column in columns for column in read) and is_total(term)
