"""ASOF joins: each row of the left side with the closest row of the right side.

    FROM trades AS t ASOF LEFT JOIN quotes AS q ON t.symbol = q.symbol AND t.at >= q.at

Of the right rows that the equalities allow it is the one with the greatest value that is not above the left one (`>=`;
below it for `>`), or with the least that is not below it (`<=`, `<`). Of several with that value it is the first one by
its stream key, where the side has one.

It is made of other operators, so that queries and views share it and no state is its own: the values of both sides are
one sequence, in which the running extreme of the right ones is what a left row finds, and a join on equality adds that
right row.

    Join on the equalities and found = value
      Project found                            NULL where the left value is NULL
        Filter not is_right
          OverWindow max(value) FILTER (WHERE is_right) of the equalities by value, is_right
            Union left rows, right rows
      TopN 1 of (equalities, value)            the right side

A change of a right row costs what it costs the window function: the rows of its group from its value on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relational.errors import BindError
from relational.expr.aggregates import AggKind, aggregate_type
from relational.expr.bind import call, convert, error_span
from relational.expr.coercion import common_type
from relational.expr.comparisons import Relation
from relational.expr.expression import (
    Call,
    Case,
    Expression,
    InputRef,
    Literal,
    conjunction,
    equality,
    input_columns,
    input_refs,
    remap,
)
from relational.expr.unbound import TextSpan
from relational.expr.window_functions import UP_TO_PEERS, RankKind, WindowCall
from relational.plan.logical import (
    Filter,
    Join,
    JoinKind,
    LogicalPlan,
    OverWindow,
    Project,
    Share,
    TopN,
    Union,
)
from relational.plan.logical.equalities import Equality
from relational.plan.unnest import with_columns
from relational.types.data_type import DataType
from relational.types.ordering import OrderType, SortKey

_ORDERED = tuple(each for each in Relation if each is not Relation.EQUAL)
_IS_RIGHT, _FOUND = "_is_right", "_found"


@dataclass(frozen=True, slots=True)
class _Closest:
    """`left` is compared with `right`, of one type, each over the columns of its side: `comparison` holds for left and
    right in this order."""

    comparison: Relation
    left: Expression
    right: Expression

    @property
    def is_after(self) -> bool:
        """Whether the right row comes after the left one."""
        return self.comparison in (Relation.LESS, Relation.LESS_EQUAL)

    @property
    def takes_equal(self) -> bool:
        return self.comparison in (Relation.LESS_EQUAL, Relation.GREATER_EQUAL)


def asof_join(join: Join, shared: Callable[[LogicalPlan], Share], span: TextSpan | None) -> LogicalPlan:
    """The left rows of `join` with the closest right row. BindError if it has not one comparison and an equality."""
    pairs, rest = join.equalities
    if join.kind not in (JoinKind.INNER, JoinKind.LEFT):
        raise BindError("an ASOF join is an ASOF JOIN or an ASOF LEFT JOIN", **error_span(span))
    closest = _closest(rest[0], len(join.left.schema)) if len(rest) == 1 else None
    if not pairs or closest is None:
        message = "an ASOF join has an equality at least, and one comparison < <= > or >= of both sides"
        raise BindError(message, **error_span(span))
    first_rows, columns = _first_rows(join.right, pairs, closest)
    right = shared(first_rows)
    found = _with_found(join.left, right, columns, pairs, closest, span)
    return _joined(join, found, right, columns, pairs)


def _closest(term: Expression, width: int) -> _Closest | None:
    """What a comparison of a left with a right value, in any order, asks for; None for another term."""
    if not isinstance(term, Call) or term.function not in _ORDERED:
        return None
    sides = [input_columns(arg) for arg in term.args]
    is_left = [bool(columns) and max(columns) < width for columns in sides]
    is_right = [bool(columns) and min(columns) >= width for columns in sides]
    data_type = common_type([arg.data_type for arg in term.args])
    if data_type is None or [*is_left, *is_right] not in ([True, False, False, True], [False, True, True, False]):
        return None
    first, second = (convert(arg, data_type) for arg in term.args)
    relation = Relation(term.function)
    left, right = (first, second) if is_left[0] else (second, first)
    own = {column: column - width for column in input_columns(right)}
    return _Closest(relation if is_left[0] else relation.turned, left, remap(right, own))


def _first_rows(
    right: LogicalPlan, pairs: tuple[Equality, ...], closest: _Closest
) -> tuple[LogicalPlan, tuple[int, ...]]:
    """The right side with one row for each value, and the columns of the equalities and of the value."""
    source, columns = with_columns(right, (*(each.right for each in pairs), closest.right), "_of_asof")
    keys = tuple(SortKey(column, OrderType()) for column in right.stream_key or () if column not in columns)
    return TopN(source, tuple(dict.fromkeys(columns)), keys, RankKind.ROW_NUMBER, 1), tuple(columns)


def _with_found(
    left: LogicalPlan,
    right: LogicalPlan,
    right_columns: tuple[int, ...],
    pairs: tuple[Equality, ...],
    closest: _Closest,
    span: TextSpan | None,
) -> LogicalPlan:
    """The left rows, their columns followed by those of the equalities and by the closest value."""
    kind, data_type = (AggKind.MIN if closest.is_after else AggKind.MAX), closest.left.data_type
    if aggregate_type(kind, data_type) != data_type:
        raise BindError(f"an ASOF join does not compare {data_type}", **error_span(span))
    width, count = len(left.schema), len(pairs) + 1
    keys = (*(each.left for each in pairs), closest.left)
    names = (*left.schema.names, *(f"_asof_{number}" for number in range(count)), _IS_RIGHT)
    columns = input_refs(left.schema.types)
    of_left = Project(left, (*columns, *keys, Literal(False, DataType.BOOLEAN)), names)
    nothing = (Literal(None, each) for each in left.schema.types)
    own = (InputRef(column, right.schema.types[column]) for column in right_columns)
    of_right = Project(right, (*nothing, *own, Literal(True, DataType.BOOLEAN)), names)
    value, is_right = width + count - 1, width + count
    order = (
        SortKey(value, OrderType(descending=closest.is_after)),
        SortKey(is_right, OrderType(descending=closest.takes_equal)),
    )
    extreme = WindowCall(kind, data_type, value, UP_TO_PEERS, filter=is_right)
    sequence = OverWindow(Union((of_left, of_right)), tuple(range(width, value)), order, (extreme,), (_FOUND,))
    types = sequence.schema.types
    rows = Filter(sequence, call("not", [InputRef(is_right, DataType.BOOLEAN)]))
    known = call("is_not_null", [InputRef(value, data_type)])
    found = Case(((known, InputRef(is_right + 1, data_type)),), Literal(None, data_type), data_type)
    return Project(rows, (*input_refs(types)[:value], found), (*names[:value], _FOUND))


def _joined(
    join: Join, found: LogicalPlan, right: LogicalPlan, right_columns: tuple[int, ...], pairs: tuple[Equality, ...]
) -> LogicalPlan:
    """The left rows with the right row that has the value found for them; the columns are those of `join`."""
    width, wider = len(join.left.schema), len(found.schema)
    null_safe = (*(each.is_null_safe for each in pairs), False)
    terms = [
        equality(InputRef(width + at, found.schema.types[width + at]),
                 InputRef(wider + column, right.schema.types[column]), is_null_safe=is_null_safe)
        for at, (column, is_null_safe) in enumerate(zip(right_columns, null_safe, strict=True))
    ]
    whole = Join(found, right, join.kind, conjunction(terms))
    chosen = [*range(width), *range(wider, wider + len(join.right.schema))]
    columns = tuple(InputRef(column, whole.schema.types[column]) for column in chosen)
    return Project(whole, columns, join.schema.names, join.hidden)
