"""Bound scalar expressions: every input is a column index, every node knows its type.

An expression is an immutable tree over the columns of one input, independent of its evaluation (`evaluate`) and of its
source syntax (`unbound`, `bind`). Types are fixed when a node is constructed: an implicit conversion is a `Cast` in the
tree, so evaluation never infers types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from relational.types.data_type import DataType

_QUANTIFIED = {"like": "LIKE", "ilike": "ILIKE", "matches": "~", "imatches": "~*"}
_COMPARISONS = {
    "equal": "=",
    "not_equal": "<>",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "modulo": "%",
    **_COMPARISONS,
    "is_distinct": "IS DISTINCT FROM",
    "is_not_distinct": "IS NOT DISTINCT FROM",
    "and": "AND",
    "or": "OR",
    "like": "LIKE",
    "ilike": "ILIKE",
    "concat": "||",
    "json_get": "->",
    "json_get_text": "->>",
    "json_at": "#>",
    "json_at_text": "#>>",
    "json_delete_at": "#-",
    "json_exists": "?",
    "json_exists_any": "?|",
    "json_exists_all": "?&",
    "contains": "@>",
    "is_contained": "<@",
    "overlaps": "&&",
    "matches": "~",
    "imatches": "~*",
    "similar_to": "SIMILAR TO",
    "bit_and": "&",
    "bit_or": "|",
    "bit_xor": "#",
    "shift_left": "<<",
    "shift_right": ">>",
    **{
        f"{name}_{quantifier.lower()}": f"{sign} {quantifier}"
        for name, sign in (_COMPARISONS | _QUANTIFIED).items()
        for quantifier in ("ANY", "ALL")
    },
}
SHOWN_MEMBERS = 4
POSTFIX = {"is_null": "IS NULL", "is_not_null": "IS NOT NULL"}


@dataclass(frozen=True, slots=True)
class Expression:
    """A node of the tree. `data_type` is its result type; its children are evaluated over the same input."""

    if TYPE_CHECKING:  # every node has it as a field; a property here would count as its default

        @property
        def data_type(self) -> DataType: ...

    @property
    def children(self) -> tuple[Expression, ...]:
        return ()

    def with_children(self, children: tuple[Expression, ...]) -> Expression:
        """The same node with other children, equal in number and types."""
        assert not children
        return self

    @property
    def is_volatile(self) -> bool:
        """Whether it may have another value in each row, although all that it is computed from is the same."""
        return False

    def describe(self, names: Sequence[str] = ()) -> str:
        """SQL-like text; `names` are the names of the input columns, `$n` for a missing one."""
        raise AssertionError(f"{type(self).__name__} has no text")


@dataclass(frozen=True, slots=True)
class InputRef(Expression):
    """Input column `index`."""

    index: int
    data_type: DataType

    def describe(self, names: Sequence[str] = ()) -> str:
        return names[self.index] if self.index < len(names) else f"${self.index}"


@dataclass(frozen=True, slots=True)
class OuterRef(Expression):
    """Column `index` of the row of a query around a subquery, the one at `depth`, 0 for the outermost; none is left in
    a plan whose subqueries are joins."""

    index: int
    data_type: DataType
    depth: int

    def describe(self, names: Sequence[str] = ()) -> str:
        return f"outer ${self.index}"


@dataclass(frozen=True, slots=True)
class SubqueryValue(Expression):
    """Value `number` of the subqueries of a SELECT; a column of their join takes its place."""

    number: int
    data_type: DataType

    def describe(self, names: Sequence[str] = ()) -> str:
        return f"subquery {self.number}"


@dataclass(frozen=True, slots=True)
class WindowValue(Expression):
    """Value `number` of the window functions of a SELECT; a column takes its place."""

    number: int
    data_type: DataType

    def describe(self, names: Sequence[str] = ()) -> str:
        return f"window {self.number}"


@dataclass(frozen=True, slots=True)
class SetValue(Expression):
    """Value `number` of the set-returning functions of a SELECT list, in one of their rows; a column takes its place.
    """

    number: int
    data_type: DataType

    def describe(self, names: Sequence[str] = ()) -> str:
        return f"set {self.number}"


@dataclass(frozen=True, slots=True)
class Literal(Expression):
    """A constant of a type; `value` is the Python value of `data_type`, or None for NULL. `is_typed`: a text, or NULL,
    that a cast or a function has given, so that it is of no other type; equal constants may differ in it."""

    value: Any
    data_type: DataType
    is_typed: bool = False

    def __eq__(self, other: object) -> bool:
        """Equal types and identical values: 1 is not TRUE, 0.0 is not -0.0, and NaN equals NaN."""
        return (
            isinstance(other, Literal)
            and self.data_type == other.data_type
            and type(self.value) is type(other.value)
            and repr(self.value) == repr(other.value)
        )

    def __hash__(self) -> int:
        return hash((self.data_type, repr(self.value)))

    def describe(self, names: Sequence[str] = ()) -> str:
        if self.value is None:
            return "NULL"
        if isinstance(self.value, bool):
            return "TRUE" if self.value else "FALSE"
        if isinstance(self.value, str):
            return "'" + self.value.replace("'", "''") + "'"
        if isinstance(self.value, int | float) or self.data_type.is_numeric:
            return str(self.value)
        return f"{self.data_type} '{self.value}'"


@dataclass(frozen=True, slots=True)
class Parameter(Expression):
    """A value that is given when the statement is executed; number 0 is its time. A plan is executed with a literal in
    its place."""

    number: int
    data_type: DataType

    def describe(self, names: Sequence[str] = ()) -> str:
        return f"${self.number}" if self.number else "now()"


NO_TIME = Literal(None, DataType.TIMESTAMPTZ)
"""In place of parameter 0, of a plan that does not read the time."""


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """A named function of `functions.FUNCTIONS` over its arguments."""

    function: str
    args: tuple[Expression, ...]
    data_type: DataType

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.args

    def with_children(self, children: tuple[Expression, ...]) -> Call:
        return Call(self.function, children, self.data_type)

    def describe(self, names: Sequence[str] = ()) -> str:
        texts = [arg.describe(names) for arg in self.args]
        if self.function in INFIX and len(texts) >= 2:
            return "(" + f" {INFIX[self.function]} ".join(texts) + ")"
        if self.function in POSTFIX:
            return f"({texts[0]} {POSTFIX[self.function]})"
        if self.function == "not":
            return f"(NOT {texts[0]})"
        if self.function == "in":
            return f"({texts[0]} IN ({', '.join(texts[1:])}))"
        if self.function == "in_list" and isinstance(self.args[1], Literal):
            members, data_type = self.args[1].value, self.args[0].data_type
            shown = ", ".join(Literal(member, data_type).describe() for member in members[:SHOWN_MEMBERS])
            return f"({texts[0]} IN ({shown}, … {len(members)} values))"
        return f"{self.function}({', '.join(texts)})"


@dataclass(frozen=True, slots=True)
class Cast(Expression):
    """`operand` converted to `data_type`; a value out of range is an error of its row."""

    operand: Expression
    data_type: DataType

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.operand,)

    def with_children(self, children: tuple[Expression, ...]) -> Cast:
        return Cast(children[0], self.data_type)

    def describe(self, names: Sequence[str] = ()) -> str:
        return f"CAST({self.operand.describe(names)} AS {self.data_type})"


@dataclass(frozen=True, slots=True)
class Case(Expression):
    """The result of the first branch whose condition is true, else `otherwise`. A branch is evaluated on its rows only.
    """

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression
    data_type: DataType

    @property
    def children(self) -> tuple[Expression, ...]:
        return (*(part for branch in self.branches for part in branch), self.otherwise)

    def with_children(self, children: tuple[Expression, ...]) -> Case:
        pairs = tuple(zip(children[:-1:2], children[1:-1:2], strict=True))
        return Case(pairs, children[-1], self.data_type)

    def describe(self, names: Sequence[str] = ()) -> str:
        branches = " ".join(
            f"WHEN {condition.describe(names)} THEN {result.describe(names)}"
            for condition, result in self.branches
        )
        return f"CASE {branches} ELSE {self.otherwise.describe(names)} END"


def is_constant(expression: Expression) -> bool:
    """Whether it has one value in all rows, which is known when the statement is executed."""
    if isinstance(expression, Literal | Parameter):
        return True
    leaves = [node for node in walk(expression) if not node.children]
    if any(node.is_volatile for node in walk(expression)):
        return False
    has_parameter = any(isinstance(leaf, Parameter) for leaf in leaves)
    return has_parameter and all(isinstance(leaf, Literal | Parameter) for leaf in leaves)


def walk(expression: Expression) -> Iterator[Expression]:
    """The node and all its descendants, in pre-order."""
    todo = [expression]
    while todo:
        node = todo.pop()
        yield node
        todo += reversed(node.children)


def input_columns(expression: Expression) -> frozenset[int]:
    """The input columns that the result depends on."""
    if isinstance(expression, InputRef):
        return frozenset((expression.index,))
    return frozenset(node.index for node in walk(expression) if isinstance(node, InputRef))


def transform(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """The tree with `change` applied to every node, in post-order."""
    children = expression.children
    changed = tuple(transform(child, change) for child in children)
    return change(expression if changed == children else expression.with_children(changed))


def remap(expression: Expression, positions: Mapping[int, int]) -> Expression:
    """The same expression over an input with moved columns: old index → new index. KeyError for a removed column."""
    if isinstance(expression, InputRef):
        index = positions[expression.index]
        return expression if index == expression.index else InputRef(index, expression.data_type)
    return transform(expression, lambda node: remap(node, positions) if isinstance(node, InputRef) else node)


def substitute(expression: Expression, replacements: Sequence[Expression]) -> Expression:
    """The expression with column i replaced by `replacements[i]`: the composition of two projections."""
    return transform(
        expression, lambda node: replacements[node.index] if isinstance(node, InputRef) else node
    )


def conjuncts(predicate: Expression) -> tuple[Expression, ...]:
    """The terms of a conjunction; otherwise the predicate itself."""
    found, todo = [], [predicate]
    while todo:
        term = todo.pop()
        if isinstance(term, Call) and term.function == "and":
            todo += reversed(term.args)
        else:
            found.append(term)
    return tuple(found)


def conjunction(terms: Sequence[Expression]) -> Expression:
    """The AND of one or more boolean terms."""
    return terms[0] if len(terms) == 1 else Call("and", tuple(terms), DataType.BOOLEAN)


def is_equality(term: Expression) -> TypeGuard[Call]:
    """Whether it is a = b, or a IS NOT DISTINCT FROM b."""
    return isinstance(term, Call) and term.function in ("equal", "is_not_distinct")


def equality(left: Expression, right: Expression, *, is_null_safe: bool) -> Call:
    """Of two expressions of one type."""
    return Call("is_not_distinct" if is_null_safe else "equal", (left, right), DataType.BOOLEAN)


def input_refs(types: Sequence[DataType]) -> tuple[InputRef, ...]:
    """All columns of a row of `types`."""
    return tuple(InputRef(column, data_type) for column, data_type in enumerate(types))


def depth_of(expression: Expression) -> int:
    """The number of nodes on the longest path to a leaf."""
    deepest, todo = 0, [(expression, 1)]
    while todo:
        node, depth = todo.pop()
        deepest = max(deepest, depth)
        todo += ((child, depth + 1) for child in node.children)
    return deepest
