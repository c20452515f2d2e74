"""Join: pairs of rows of two inputs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from relational.expr.expression import Expression, InputRef, conjunction, conjuncts, input_columns, remap
from relational.plan.logical.filter import where
from relational.plan.logical.node import NONE, AddKeys, LogicalPlan, Positions, Properties, Prune, Push
from relational.plan.logical.project import Project
from relational.types.schema import Schema


class JoinKind(StrEnum):
    """Which rows without a partner are kept, with NULL for the other side: none, those of one side, or all."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"

    @property
    def keeps_left(self) -> bool:
        return self in (JoinKind.LEFT, JoinKind.FULL)

    @property
    def keeps_right(self) -> bool:
        return self in (JoinKind.RIGHT, JoinKind.FULL)


@dataclass(frozen=True, slots=True)
class Join(LogicalPlan):
    """The pairs of a left and a right row for which `on`, over the columns of both, is true; None: all pairs. The
    columns of the left input come first.

    The keys of both inputs together identify a row, unless rows of both sides are kept without a partner: a row of
    either side may have NULL in all of them."""

    left: LogicalPlan
    right: LogicalPlan
    kind: JoinKind
    on: Expression | None

    def _derived(self) -> Properties:
        left, right, width = self.left.properties, self.right.properties, len(self.left.schema)
        keys, is_unique = None, self.kind is not JoinKind.FULL
        if is_unique and left.stream_key is not None and right.stream_key is not None:
            keys = (*left.stream_key, *(width + column for column in right.stream_key))
        constants = NONE if self.kind.keeps_right else left.constants
        if not self.kind.keeps_left:
            constants |= frozenset(width + column for column in right.constants)
        return Properties(
            schema=Schema((*left.schema, *right.schema)),
            hidden=left.hidden | frozenset(width + column for column in right.hidden),
            stream_key=keys,
            is_append_only=self.kind is JoinKind.INNER and left.is_append_only and right.is_append_only,
            unique_keys=tuple(
                one | frozenset(width + column for column in other)
                for one in left.unique_keys
                for other in right.unique_keys
                if is_unique
            ),
            constants=constants,
            shares=left.shares | right.shares,
        )

    @property
    def inputs(self) -> tuple[LogicalPlan, ...]:
        return self.left, self.right

    def with_inputs(self, inputs: tuple[LogicalPlan, ...]) -> Join:
        left, right = inputs
        return Join(left, right, self.kind, self.on)

    @property
    def evaluated(self) -> tuple[Expression, ...]:
        return () if self.on is None else (self.on,)

    @property
    def summary(self) -> str:
        condition = "" if self.on is None else f" on {self.on.describe(self.schema.names)}"
        return f"Join {self.kind}{condition}"

    @property
    def terms(self) -> tuple[Expression, ...]:
        """The conjuncts of `on`."""
        return () if self.on is None else conjuncts(self.on)

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        """What is wanted and what the condition needs, on each side."""
        width = len(self.left.schema)
        needed = wanted | (frozenset() if self.on is None else input_columns(self.on))
        left, left_positions = prune(self.left, frozenset(column for column in needed if column < width))
        right, right_positions = prune(self.right, frozenset(column - width for column in needed if column >= width))
        positions = dict(left_positions)
        positions |= {width + old: len(left.schema) + new for old, new in right_positions.items()}
        if left is self.left and right is self.right:
            return self, positions
        on = None if self.on is None else remap(self.on, positions)
        return Join(left, right, self.kind, on), positions

    def filtered(self, terms: tuple[Expression, ...], push: Push) -> LogicalPlan:
        """Of the condition, what concerns one side alone goes below that side, unless its rows are kept without a
        partner too. Of the terms above, what concerns one side alone goes below, unless that side may be NULL; what
        concerns both joins the condition where no row is kept without a partner."""
        width = len(self.left.schema)
        low_left: list[Expression] = []
        low_right: list[Expression] = []
        on: list[Expression] = []
        above: list[Expression] = []
        for term in self.terms:
            side = _side_of(term, width)
            if side is _Side.LEFT and not self.kind.keeps_left:
                low_left.append(term)
            elif side is _Side.RIGHT and not self.kind.keeps_right:
                low_right.append(term)
            else:
                on.append(term)
        for term in terms:
            side = _side_of(term, width)
            if side is _Side.LEFT and not self.kind.keeps_right:
                low_left.append(term)
            elif side is _Side.RIGHT and not self.kind.keeps_left:
                low_right.append(term)
            elif side is _Side.BOTH and self.kind is JoinKind.INNER:
                on.append(term)
            else:
                above.append(term)
        moved = {width + column: column for column in range(len(self.right.schema))}
        left = push(self.left, tuple(low_left))
        right = push(self.right, tuple(remap(term, moved) for term in low_right))
        if left is self.left and right is self.right and tuple(on) == self.terms:
            return where(self, tuple(above))
        return where(Join(left, right, self.kind, conjunction(tuple(on)) if on else None), tuple(above))

    def keyed(self, is_needed: bool, add: AddKeys) -> LogicalPlan:
        """The keys of both sides. What that appends to the left one comes after all columns."""
        is_wanted = is_needed and self.kind is not JoinKind.FULL
        left, right = add(self.left, is_wanted), add(self.right, is_wanted)
        width, more = len(self.left.schema), len(left.schema) - len(self.left.schema)
        if not more:
            return self.over((left, right))
        moved = {width + column: width + more + column for column in range(len(self.right.schema))}
        on = None if self.on is None else remap(self.on, dict(enumerate(range(width))) | moved)
        join = Join(left, right, self.kind, on)
        shown = [*range(width), *range(width + more, len(join.schema)), *range(width, width + more)]
        expressions = tuple(InputRef(column, join.schema[column].data_type) for column in shown)
        names = tuple(join.schema[column].name for column in shown)
        hidden = frozenset(at for at, column in enumerate(shown) if column in join.hidden)
        return Project(join, expressions, names, hidden)


class _Side(Enum):
    """The inputs whose columns a term has."""

    NEITHER = auto()
    LEFT = auto()
    RIGHT = auto()
    BOTH = auto()


def _side_of(term: Expression, width: int) -> _Side:
    columns = input_columns(term)
    if not columns:
        return _Side.NEITHER
    if max(columns) < width:
        return _Side.LEFT
    return _Side.RIGHT if min(columns) >= width else _Side.BOTH
