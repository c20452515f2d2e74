"""Unbound expressions: names instead of columns, no types yet. SQL and the fluent API both build these.

`col("amount") * 2 > lit(10)` builds an unbound expression; `bind` binds it to a relation. Unbound expressions compare
by identity, since `==` between them builds another one. `span` is the position in SQL text, None when the expression
was built in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, auto
from typing import Any

from relational.errors import BindError
from relational.expr.window_functions import BoundKind, FrameUnit
from relational.types.data_type import DataType
from relational.types.interval import Interval
from relational.types.ordering import OrderType
from relational.udf.function import UserFunction

TextSpan = tuple[int, int]


@dataclass(frozen=True, eq=False, repr=False)
class UnboundExpr:
    """A node. Operators build larger expressions; `==` does too, so a node has no truth value."""

    def __repr__(self) -> str:
        """In the Python that builds it: `col("a") + 1`."""
        from relational.expr.python_text import python_text

        return python_text(self)

    def __bool__(self) -> bool:
        raise BindError("an expression has no truth value in Python: use & | ~ instead of and, or, not")

    def __add__(self, other: object) -> UnboundExpr:
        return apply("add", self, other)

    def __radd__(self, other: object) -> UnboundExpr:
        return apply("add", other, self)

    def __sub__(self, other: object) -> UnboundExpr:
        return apply("subtract", self, other)

    def __rsub__(self, other: object) -> UnboundExpr:
        return apply("subtract", other, self)

    def __mul__(self, other: object) -> UnboundExpr:
        return apply("multiply", self, other)

    def __rmul__(self, other: object) -> UnboundExpr:
        return apply("multiply", other, self)

    def __truediv__(self, other: object) -> UnboundExpr:
        return apply("divide", self, other)

    def __rtruediv__(self, other: object) -> UnboundExpr:
        return apply("divide", other, self)

    def __mod__(self, other: object) -> UnboundExpr:
        return apply("modulo", self, other)

    def __rmod__(self, other: object) -> UnboundExpr:
        return apply("modulo", other, self)

    def __neg__(self) -> UnboundExpr:
        return apply("negate", self)

    def __eq__(self, other: object) -> UnboundExpr:  # type: ignore[override]
        return apply("equal", self, other)

    def __ne__(self, other: object) -> UnboundExpr:  # type: ignore[override]
        return apply("not_equal", self, other)

    def __lt__(self, other: object) -> UnboundExpr:
        return apply("less", self, other)

    def __le__(self, other: object) -> UnboundExpr:
        return apply("less_equal", self, other)

    def __gt__(self, other: object) -> UnboundExpr:
        return apply("greater", self, other)

    def __ge__(self, other: object) -> UnboundExpr:
        return apply("greater_equal", self, other)

    def __and__(self, other: object) -> UnboundExpr:
        return _chained("and", self, other)

    def __rand__(self, other: object) -> UnboundExpr:
        return apply("and", other, self)

    def __or__(self, other: object) -> UnboundExpr:
        return _chained("or", self, other)

    def __ror__(self, other: object) -> UnboundExpr:
        return apply("or", other, self)

    def __invert__(self) -> UnboundExpr:
        return apply("not", self)

    __hash__ = object.__hash__

    def is_null(self) -> UnboundExpr:
        return apply("is_null", self)

    def is_not_null(self) -> UnboundExpr:
        return apply("is_not_null", self)

    def is_distinct_from(self, other: object) -> UnboundExpr:
        """Null-safe inequality."""
        return apply("is_distinct", self, other)

    def is_not_distinct_from(self, other: object) -> UnboundExpr:
        """Null-safe equality."""
        return apply("is_not_distinct", self, other)

    def is_in(self, values: Iterable[object]) -> UnboundExpr:
        """Membership, with SQL's NULL semantics; of no values nothing is a member. BindError for a text, which is no
        list of values."""
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise BindError(f"is_in() takes a list of values, [{values!r}], not {values!r}")
        listed = tuple(values)
        return apply("in", self, *listed) if listed else self.is_null() & False

    def between(self, low: object, high: object) -> UnboundExpr:
        """low <= self <= high."""
        return apply("between", self, low, high)

    def like(self, pattern: str) -> UnboundExpr:
        return apply("like", self, pattern)

    def ilike(self, pattern: str) -> UnboundExpr:
        return apply("ilike", self, pattern)

    def cast(self, data_type: str | DataType) -> UnboundExpr:
        """CAST(self AS data_type)."""
        return UnboundCast(self, data_type if isinstance(data_type, DataType) else DataType.parse(data_type))

    def alias(self, name: str) -> Named:
        """The term as an output column called `name`."""
        return Named(self, name)

    def asc(self, *, nulls_first: bool | None = None) -> Ordered:
        """Ascending, NULLs last by default."""
        return Ordered(self, OrderType(False, nulls_first))

    def desc(self, *, nulls_first: bool | None = None) -> Ordered:
        """Descending, NULLs first by default."""
        return Ordered(self, OrderType(True, nulls_first))

    @property
    def children(self) -> tuple[UnboundExpr, ...]:
        return ()


@dataclass(frozen=True, eq=False, repr=False)
class Name(UnboundExpr):
    """A column by name, of the relation `qualifier` if one is written: its alias, or the last parts of its name."""

    name: str
    qualifier: tuple[str, ...] = ()
    span: TextSpan | None = None


@dataclass(frozen=True, eq=False, repr=False)
class UnboundColumn(UnboundExpr):
    """A column by its position in the row of the scope, as * selects it."""

    index: int
    data_type: DataType
    name: str
    span: TextSpan | None = None


@dataclass(frozen=True, eq=False, repr=False)
class UnboundLiteral(UnboundExpr):
    """A value as written; without a type it adopts one from its context."""

    value: Any
    data_type: DataType | None = None
    span: TextSpan | None = None


@dataclass(frozen=True, eq=False, repr=False)
class UnboundNow(UnboundExpr):
    """now() of a query that is kept fresh while time passes."""

    span: TextSpan | None = None


@dataclass(frozen=True, eq=False, repr=False)
class UnboundParameter(UnboundExpr):
    """A value that is given when the statement is executed, by number."""

    number: int
    data_type: DataType
    span: TextSpan | None = None


@dataclass(frozen=True, eq=False, repr=False)
class UnboundCall(UnboundExpr):
    """A function or operator by name. `definition`: of a user function."""

    function: str
    args: tuple[UnboundExpr, ...]
    span: TextSpan | None = None
    definition: UserFunction | None = None

    @property
    def children(self) -> tuple[UnboundExpr, ...]:
        return self.args


@dataclass(frozen=True, eq=False, repr=False)
class UnboundCast(UnboundExpr):
    """CAST."""

    operand: UnboundExpr
    data_type: DataType
    span: TextSpan | None = None

    @property
    def children(self) -> tuple[UnboundExpr, ...]:
        return (self.operand,)


@dataclass(frozen=True, eq=False, repr=False)
class UnboundCase(UnboundExpr):
    """CASE WHEN … THEN … ELSE … END; without an ELSE it is NULL."""

    branches: tuple[tuple[UnboundExpr, UnboundExpr], ...]
    otherwise: UnboundExpr | None = None
    span: TextSpan | None = None

    @property
    def children(self) -> tuple[UnboundExpr, ...]:
        parts = tuple(part for branch in self.branches for part in branch)
        return parts if self.otherwise is None else (*parts, self.otherwise)

    def when(self, condition: UnboundExpr, result: object) -> UnboundCase:
        """Appends a branch."""
        return UnboundCase((*self.branches, (condition, as_unbound(result))), self.otherwise)

    def default(self, result: object) -> UnboundCase:
        """Sets the ELSE result."""
        return UnboundCase(self.branches, as_unbound(result))


@dataclass(frozen=True, eq=False, repr=False)
class UnboundAggregate(UnboundExpr):
    """An aggregate of a group; `argument` None is count(*), or a function without arguments. `more`: further arguments.
    `order`: of the rows, by ORDER BY after the arguments or, if `is_within_group`, in WITHIN GROUP. `definition`: of a
    user function."""

    function: str
    argument: UnboundExpr | None = None
    condition: UnboundExpr | None = None
    distinct: bool = False
    span: TextSpan | None = None
    more: tuple[UnboundExpr, ...] = ()
    order: tuple[Ordered, ...] = ()
    is_within_group: bool = False
    definition: UserFunction | None = None

    @property
    def children(self) -> tuple[UnboundExpr, ...]:
        keys = (key.term for key in self.order)
        return tuple(part for part in (self.argument, *self.more, self.condition, *keys) if part is not None)

    def filter(self, condition: UnboundExpr) -> UnboundAggregate:
        """Over the rows for which `condition` is true: FILTER (WHERE …)."""
        both = condition if self.condition is None else self.condition & condition
        return replace(self, condition=both, span=None)


@dataclass(frozen=True, eq=False, repr=False)
class UnboundGrouping(UnboundExpr):
    """grouping(…): for each group expression in `args` a bit, the last one the lowest, that is 1 if it is not in the
    grouping set of the row."""

    args: tuple[UnboundExpr, ...]
    span: TextSpan | None = None

    @property
    def children(self) -> tuple[UnboundExpr, ...]:
        return self.args


@dataclass(frozen=True, eq=False, repr=False)
class UnboundWindow(UnboundExpr):
    """A window function: the call of an aggregate, or of another function, over a window."""

    call: UnboundCall | UnboundAggregate
    window: UnboundWindowSpec
    span: TextSpan | None = None

    @property
    def function(self) -> str:
        return self.call.function

    @property
    def children(self) -> tuple[UnboundExpr, ...]:
        return (*self.call.children, *self.window.groups, *(key.term for key in self.window.order))


@dataclass(frozen=True, slots=True)
class UnboundFrame:
    """The frame of a window: each bound with its offset, if its kind has one."""

    unit: FrameUnit
    start: tuple[BoundKind, UnboundExpr | None]
    end: tuple[BoundKind, UnboundExpr | None]
    span: TextSpan | None = None


@dataclass(frozen=True, slots=True)
class UnboundWindowSpec:
    """The rows that are equal in `groups`, in this order. `frame` None: none is written."""

    groups: tuple[UnboundExpr, ...] = ()
    order: tuple[Ordered, ...] = ()
    frame: UnboundFrame | None = None


class UnboundSetCall(UnboundCall):
    """A set-returning function: its value in one of the rows that it gives."""


class SubqueryUse(Enum):
    """What a subquery in an expression is: its only value, the list of its values, whether it has a row, whether it has
    an equal row, or whether a comparison holds for one of its rows, or for all of them."""

    VALUE = auto()
    LIST = auto()
    EXISTS = auto()
    IN = auto()
    ANY = auto()
    ALL = auto()


@dataclass(frozen=True, eq=False, repr=False)
class UnboundSubquery(UnboundExpr):
    """A query in an expression. `query` is the syntax tree of the front end that made it. `operands`: what IN, ANY or
    ALL compare with its columns. `comparison`: the function that ANY or ALL compare with."""

    use: SubqueryUse
    query: Any
    operands: tuple[UnboundExpr, ...] = ()
    span: TextSpan | None = None
    comparison: str = "equal"

    @property
    def children(self) -> tuple[UnboundExpr, ...]:
        return self.operands


@dataclass(frozen=True, slots=True, repr=False)
class Named:
    """An output column: a term and its name."""

    term: UnboundExpr
    name: str

    def __repr__(self) -> str:
        from relational.expr.python_text import named_text

        return named_text(self)


@dataclass(frozen=True, slots=True, repr=False)
class Ordered:
    """A sort key: a term and its order."""

    term: UnboundExpr
    order: OrderType = OrderType()  # noqa: RUF009 - an immutable value

    def __repr__(self) -> str:
        from relational.expr.python_text import key_text

        return key_text(self)


def col(name: str) -> Name:
    """The column called `name`.

        orders.filter((col("region") == "ASIA") | (col("amount") > 99)).fetchone()      # (2, 'ASIA', 5)

    It is looked up in the relation that the expression is used on."""
    return Name(name)


def lit(value: object, data_type: str | DataType | None = None) -> UnboundLiteral:
    """A constant.

        orders.select(day=lit("2026-01-31", "date")).limit(1).rows()        # [{'day': datetime.date(2026, 1, 31)}]

    Its type is inferred from the Python value and the context, unless given."""
    return UnboundLiteral(value, DataType.parse(data_type) if isinstance(data_type, str) else data_type)


def as_unbound(value: object) -> UnboundExpr:
    """Returns a term as it is and a plain Python value as a constant; BindError for anything else."""
    if isinstance(value, UnboundExpr):
        return value
    if isinstance(value, timedelta):
        return UnboundLiteral(Interval(0, value.days, value.seconds * 1_000_000 + value.microseconds))
    if value is None or isinstance(
        value, bool | int | float | str | bytes | Decimal | date | datetime | time | Interval
    ):
        return UnboundLiteral(value)
    raise BindError(f"a {type(value).__name__} is no SQL value: {value!r}")


def apply(function: str, *args: object) -> UnboundCall:
    """A function call over terms and plain values."""
    return UnboundCall(function, tuple(as_unbound(arg) for arg in args))


def _chained(function: str, first: UnboundExpr, other: object) -> UnboundCall:
    """One call with any number of operands: flattens the chain of pairs that Python's operators build."""
    before = first.args if isinstance(first, UnboundCall) and first.function == function else (first,)
    return UnboundCall(function, (*before, as_unbound(other)))


def has_aggregate(term: UnboundExpr) -> bool:
    """Whether the expression contains an aggregate, or grouping(…), which are of groups."""
    return _contains(term, UnboundAggregate, UnboundGrouping)


def is_alike(first: Any, second: Any) -> bool:
    """Whether two expressions are written alike, wherever they stand."""
    if type(first) is not type(second):
        return False
    if isinstance(first, UnboundExpr | Ordered | UnboundWindowSpec | UnboundFrame):
        names = (each.name for each in fields(first) if each.name != "span")
        return all(is_alike(getattr(first, name), getattr(second, name)) for name in names)
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(is_alike, first, second))
    return bool(first == second)


def has_name(term: UnboundExpr) -> bool:
    """Whether the expression contains a column."""
    return _contains(term, Name, UnboundColumn)


def has_joined_value(term: UnboundExpr) -> bool:
    """Whether the expression contains a subquery, a window function or a set-returning one, whose value comes from a
    plan of its own."""
    return _contains(term, UnboundSubquery, UnboundWindow, UnboundSetCall)


def has_subquery(term: UnboundExpr) -> bool:
    """Whether the expression contains a subquery."""
    return _contains(term, UnboundSubquery)


def has_only_set_values(term: UnboundExpr) -> bool:
    """Whether all that an expression contains of these are set-returning functions, at least one."""
    return _contains(term, UnboundSetCall) and not _contains(term, UnboundSubquery, UnboundWindow, UnboundAggregate)


def _contains(term: UnboundExpr, *kinds: type[UnboundExpr]) -> bool:
    todo = [term]
    while todo:
        each = todo.pop()
        if isinstance(each, kinds):
            return True
        todo += each.children
    return False


def renamed(term: UnboundExpr, terms: Mapping[str, UnboundExpr]) -> UnboundExpr:
    """The term with names that are keys of `terms` replaced; inside aggregates, names are columns of the input.
    Window functions, which no clause with such names may have, are left as they are."""
    if isinstance(term, Name):
        return term if term.qualifier else terms.get(term.name, term)
    if isinstance(term, UnboundCall):
        return replace(term, args=tuple(renamed(arg, terms) for arg in term.args))
    if isinstance(term, UnboundCast):
        return replace(term, operand=renamed(term.operand, terms))
    if isinstance(term, UnboundSubquery):
        return replace(term, operands=tuple(renamed(each, terms) for each in term.operands))
    if isinstance(term, UnboundCase):
        branches = tuple((renamed(condition, terms), renamed(result, terms)) for condition, result in term.branches)
        otherwise = None if term.otherwise is None else renamed(term.otherwise, terms)
        return replace(term, branches=branches, otherwise=otherwise)
    return term
