"""Expressions as they are written: names instead of columns, no types yet. Both faces, SQL and Python,
make these.

`col("amount") * 2 > lit(10)` builds a term; `bind` gives it a meaning over a relation. Terms compare by
identity, since `==` between terms is itself a term. `place` is where the term stands in SQL text, None
when it comes from Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from relational.errors import BindError
from relational.types.data_type import DataType
from relational.types.interval import Interval
from relational.types.ordering import OrderType

Place = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Term:
    """A node. Operators make larger terms; `==` does too, so a term has no truth value."""

    def __bool__(self) -> bool:
        raise BindError("an expression has no truth value in Python: use & | ~ instead of and, or, not")

    def __add__(self, other: object) -> Term:
        return apply("add", self, other)

    def __radd__(self, other: object) -> Term:
        return apply("add", other, self)

    def __sub__(self, other: object) -> Term:
        return apply("subtract", self, other)

    def __rsub__(self, other: object) -> Term:
        return apply("subtract", other, self)

    def __mul__(self, other: object) -> Term:
        return apply("multiply", self, other)

    def __rmul__(self, other: object) -> Term:
        return apply("multiply", other, self)

    def __truediv__(self, other: object) -> Term:
        return apply("divide", self, other)

    def __rtruediv__(self, other: object) -> Term:
        return apply("divide", other, self)

    def __mod__(self, other: object) -> Term:
        return apply("modulo", self, other)

    def __rmod__(self, other: object) -> Term:
        return apply("modulo", other, self)

    def __neg__(self) -> Term:
        return apply("negate", self)

    def __eq__(self, other: object) -> Term:  # type: ignore[override]
        return apply("equal", self, other)

    def __ne__(self, other: object) -> Term:  # type: ignore[override]
        return apply("not_equal", self, other)

    def __lt__(self, other: object) -> Term:
        return apply("less", self, other)

    def __le__(self, other: object) -> Term:
        return apply("less_equal", self, other)

    def __gt__(self, other: object) -> Term:
        return apply("greater", self, other)

    def __ge__(self, other: object) -> Term:
        return apply("greater_equal", self, other)

    def __and__(self, other: object) -> Term:
        return _chained("and", self, other)

    def __rand__(self, other: object) -> Term:
        return apply("and", other, self)

    def __or__(self, other: object) -> Term:
        return _chained("or", self, other)

    def __ror__(self, other: object) -> Term:
        return apply("or", other, self)

    def __invert__(self) -> Term:
        return apply("not", self)

    __hash__ = object.__hash__

    def is_null(self) -> Term:
        return apply("is_null", self)

    def is_not_null(self) -> Term:
        return apply("is_not_null", self)

    def is_distinct_from(self, other: object) -> Term:
        """Null-safe inequality."""
        return apply("is_distinct", self, other)

    def is_not_distinct_from(self, other: object) -> Term:
        """Null-safe equality."""
        return apply("is_not_distinct", self, other)

    def is_in(self, values: Sequence[object]) -> Term:
        """Membership, with SQL's NULL."""
        return apply("in", self, *values)

    def between(self, low: object, high: object) -> Term:
        """low <= self <= high."""
        return apply("between", self, low, high)

    def like(self, pattern: str) -> Term:
        return apply("like", self, pattern)

    def ilike(self, pattern: str) -> Term:
        return apply("ilike", self, pattern)

    def cast(self, data_type: str | DataType) -> Term:
        """CAST(self AS data_type)."""
        return Convert(self, data_type if isinstance(data_type, DataType) else DataType.parse(data_type))

    def alias(self, name: str) -> Named:
        """The term as an output column called `name`."""
        return Named(self, name)

    def asc(self, *, nulls_first: bool | None = None) -> Ordered:
        """Ascending, NULLs last unless said otherwise."""
        return Ordered(self, OrderType(False, nulls_first))

    def desc(self, *, nulls_first: bool | None = None) -> Ordered:
        """Descending, NULLs first unless said otherwise."""
        return Ordered(self, OrderType(True, nulls_first))

    @property
    def children(self) -> tuple[Term, ...]:
        return ()


@dataclass(frozen=True, eq=False)
class Name(Term):
    """A column by its name, of the relation `qualifier` where one is written."""

    name: str
    qualifier: str | None = None
    place: Place | None = None


@dataclass(frozen=True, eq=False)
class Constant(Term):
    """A value as written; without a type it takes the one that fits its surroundings."""

    value: Any
    data_type: DataType | None = None
    place: Place | None = None


@dataclass(frozen=True, eq=False)
class Apply(Term):
    """A function or operator by name."""

    function: str
    args: tuple[Term, ...]
    place: Place | None = None

    @property
    def children(self) -> tuple[Term, ...]:
        return self.args


@dataclass(frozen=True, eq=False)
class Convert(Term):
    """CAST."""

    operand: Term
    data_type: DataType
    place: Place | None = None

    @property
    def children(self) -> tuple[Term, ...]:
        return (self.operand,)


@dataclass(frozen=True, eq=False)
class Choose(Term):
    """CASE WHEN … THEN … ELSE … END; without an ELSE it is NULL."""

    branches: tuple[tuple[Term, Term], ...]
    otherwise: Term | None = None
    place: Place | None = None

    @property
    def children(self) -> tuple[Term, ...]:
        parts = tuple(part for branch in self.branches for part in branch)
        return parts if self.otherwise is None else (*parts, self.otherwise)

    def when(self, condition: Term, result: object) -> Choose:
        """With one more branch, tried after those before."""
        return Choose((*self.branches, (condition, as_term(result))), self.otherwise)

    def default(self, result: object) -> Choose:
        """With an ELSE."""
        return Choose(self.branches, as_term(result))


@dataclass(frozen=True, eq=False)
class Summary(Term):
    """An aggregate of a group; `argument` None is count(*)."""

    function: str
    argument: Term | None = None
    condition: Term | None = None
    distinct: bool = False
    place: Place | None = None

    @property
    def children(self) -> tuple[Term, ...]:
        return tuple(part for part in (self.argument, self.condition) if part is not None)

    def filter(self, condition: Term) -> Summary:
        """Over the rows for which `condition` is true: FILTER (WHERE …)."""
        both = condition if self.condition is None else self.condition & condition
        return Summary(self.function, self.argument, both, self.distinct)


@dataclass(frozen=True, slots=True)
class Named:
    """An output column: a term and its name."""

    term: Term
    name: str


@dataclass(frozen=True, slots=True)
class Ordered:
    """A sort key: a term and its order."""

    term: Term
    order: OrderType = OrderType()  # noqa: RUF009 - an immutable value


def col(name: str) -> Name:
    """The column called `name` of whatever relation the expression is used on."""
    return Name(name)


def lit(value: object, data_type: str | DataType | None = None) -> Constant:
    """A constant; its type follows from the Python value and its surroundings unless given."""
    return Constant(value, DataType.parse(data_type) if isinstance(data_type, str) else data_type)


def as_term(value: object) -> Term:
    """A term as it is, a plain Python value as a constant; BindError for anything else."""
    if isinstance(value, Term):
        return value
    if isinstance(value, timedelta):
        return Constant(Interval(0, value.days, value.seconds * 1_000_000 + value.microseconds))
    if value is None or isinstance(
        value, bool | int | float | str | Decimal | date | datetime | time | Interval
    ):
        return Constant(value)
    raise BindError(f"a {type(value).__name__} is no SQL value: {value!r}")


def apply(function: str, *args: object) -> Apply:
    """The term of a function over terms and plain values."""
    return Apply(function, tuple(as_term(arg) for arg in args))


def _chained(function: str, first: Term, other: object) -> Apply:
    """One call of any number of operands, however long the chain that Python builds pair by pair."""
    before = first.args if isinstance(first, Apply) and first.function == function else (first,)
    return Apply(function, (*before, as_term(other)))


def has_summary(term: Term) -> bool:
    """Whether an aggregate stands anywhere in the term."""
    todo = [term]
    while todo:
        each = todo.pop()
        if isinstance(each, Summary):
            return True
        todo += each.children
    return False


def renamed(term: Term, terms: Mapping[str, Term]) -> Term:
    """The term with names that are keys of `terms` replaced; inside of aggregates they are columns of the input."""
    if isinstance(term, Name):
        return terms.get(term.name, term) if term.qualifier is None else term
    if isinstance(term, Apply):
        return replace(term, args=tuple(renamed(arg, terms) for arg in term.args))
    if isinstance(term, Convert):
        return replace(term, operand=renamed(term.operand, terms))
    if isinstance(term, Choose):
        branches = tuple((renamed(condition, terms), renamed(result, terms)) for condition, result in term.branches)
        otherwise = None if term.otherwise is None else renamed(term.otherwise, terms)
        return replace(term, branches=branches, otherwise=otherwise)
    return term
