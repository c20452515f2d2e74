"""LogicalPlan, the base of all nodes of a logical plan, and the properties of their rows.

A plan is immutable. Its properties follow from the node and the properties of its inputs, and are computed once, when
it is constructed. A node also owns its part of each rule that passes through whole plans: every kind of node says what
`pruned`, `filtered` and `keyed` do with it. A rule passes the continuation for the inputs; a node returns itself, the
same object, if nothing changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Self, TypeAlias

from relational.expr.expression import Expression
from relational.plan.tree_text import tree_text
from relational.types.ordering import SortKey
from relational.types.schema import Schema

NONE = frozenset[int]()
Positions: TypeAlias = dict[int, int]
"""Old column index → new one, for the remaining columns."""
Prune: TypeAlias = "Callable[[LogicalPlan, frozenset[int]], tuple[LogicalPlan, Positions]]"
"""Prunes an input to the columns that are wanted of it."""
Push: TypeAlias = "Callable[[LogicalPlan, tuple[Expression, ...]], LogicalPlan]"
"""Filters an input by all terms, each as low as possible."""
AddKeys: TypeAlias = "Callable[[LogicalPlan, bool], LogicalPlan]"
"""Adds the stream keys that are needed in an input, and its own if the flag is set."""


@dataclass(slots=True, eq=False)
class Properties:
    """What is known of the rows of a plan; never modified, so that nodes share it. Columns are positions in `schema`.

    `schema`: all output columns. `hidden`: those that exist for their key only, which `*` and results omit.
    `stream_key`: columns that identify a row among all live rows, and whose insertions and deletions alternate; () for
    a single row; None if the output lacks some of them (`add_stream_key` then adds them, hidden).
    `is_append_only`: rows are never retracted. `unique_keys`: sets of columns in which no two rows are equal, where
    NULL equals NULL. `constants`: columns with one value in all rows. `order`: the sort keys by which a batch query
    gets the rows in order. `shares`: the numbers of the Shares in the plan. `watermarks`: columns in which a stream has
    a watermark: changes have no values there below a bound that rises. `not_null`: columns that are known to have no
    NULL.
    """

    schema: Schema
    hidden: frozenset[int] = NONE
    stream_key: tuple[int, ...] | None = None
    is_append_only: bool = False
    unique_keys: tuple[frozenset[int], ...] = ()
    constants: frozenset[int] = NONE
    order: tuple[SortKey, ...] = ()
    shares: frozenset[int] = NONE
    watermarks: frozenset[int] = NONE
    not_null: frozenset[int] = NONE

    def but(
        self,
        *,
        unique_keys: tuple[frozenset[int], ...] | None = None,
        constants: frozenset[int] | None = None,
        order: tuple[SortKey, ...] | None = None,
        shares: frozenset[int] | None = None,
    ) -> Properties:
        """These properties except those that are given."""
        return Properties(
            self.schema,
            self.hidden,
            self.stream_key,
            self.is_append_only,
            self.unique_keys if unique_keys is None else unique_keys,
            self.constants if constants is None else constants,
            self.order if order is None else order,
            self.shares if shares is None else shares,
            self.watermarks,
            self.not_null,
        )

    def is_unique(self, columns: frozenset[int]) -> bool:
        """Whether no two rows are equal in `columns`."""
        known = columns | self.constants
        return any(key <= known for key in self.unique_keys)


@dataclass(frozen=True, slots=True)
class LogicalPlan(ABC):
    """A relation. `depth`: nodes on the longest path to a leaf."""

    properties: Properties = field(init=False, compare=False, repr=False)
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "properties", self._derived())
        object.__setattr__(self, "depth", 1 + max((child.depth for child in self.inputs), default=0))

    @abstractmethod
    def _derived(self) -> Properties:
        """The properties of this node's rows."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[LogicalPlan, ...]:
        """The nodes whose rows it takes."""

    @abstractmethod
    def with_inputs(self, inputs: tuple[LogicalPlan, ...]) -> LogicalPlan:
        """The same node over other inputs with the same columns at the same positions."""

    @property
    @abstractmethod
    def evaluated(self) -> tuple[Expression, ...]:
        """The scalar expressions that this node evaluates."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """This node alone as one line of text."""

    # -- rules -----------------------------------------------------------------------------------------

    @abstractmethod
    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        """The same rows with at least the columns `wanted`, and the new position of each remaining column."""

    @abstractmethod
    def filtered(self, terms: tuple[Expression, ...], push: Push) -> LogicalPlan:
        """The rows for which all `terms` are true, each term evaluated as low as possible."""

    @abstractmethod
    def keyed(self, is_needed: bool, add: AddKeys) -> LogicalPlan:
        """With a stream key if `is_needed`, and with those that state inside of the plan needs. Missing key columns are
        appended, hidden."""

    # -- shared by all ---------------------------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        return self.properties.schema

    @property
    def hidden(self) -> frozenset[int]:
        return self.properties.hidden

    @property
    def visible(self) -> tuple[int, ...]:
        """The columns that are not hidden."""
        return tuple(position for position in range(len(self.schema)) if position not in self.hidden)

    @property
    def stream_key(self) -> tuple[int, ...] | None:
        return self.properties.stream_key

    @property
    def watermarks(self) -> frozenset[int]:
        return self.properties.watermarks

    @property
    def is_append_only(self) -> bool:
        return self.properties.is_append_only

    def over(self, inputs: tuple[LogicalPlan, ...]) -> LogicalPlan:
        """The same node over other inputs; this object if they are its own."""
        if all(new is old for new, old in zip(inputs, self.inputs, strict=True)):
            return self
        return self.with_inputs(inputs)

    def explain(self) -> str:
        """The tree as indented text, the root first."""
        return tree_text(self)

    @property
    def share_number(self) -> int | None:
        """The number of a Share, None for any other node."""
        return None


@dataclass(frozen=True, slots=True)
class Leaf(LogicalPlan):
    """A node without inputs; one that evaluates nothing, unless it says so."""

    @property
    def inputs(self) -> tuple[LogicalPlan, ...]:
        return ()

    def with_inputs(self, inputs: tuple[LogicalPlan, ...]) -> LogicalPlan:
        assert not inputs
        return self

    @property
    def evaluated(self) -> tuple[Expression, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class UnaryPlan(LogicalPlan):
    """A node with one input."""

    input: LogicalPlan

    def __post_init__(self) -> None:
        object.__setattr__(self, "properties", self._derived())
        object.__setattr__(self, "depth", 1 + self.input.depth)

    @property
    def inputs(self) -> tuple[LogicalPlan, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[LogicalPlan, ...]) -> Self:
        return replace(self, input=inputs[0])

    def over(self, inputs: tuple[LogicalPlan, ...]) -> LogicalPlan:
        return self if inputs[0] is self.input else self.with_inputs(inputs)


def nodes(plan: LogicalPlan) -> Iterator[LogicalPlan]:
    """The node and all its descendants in pre-order; what is shared is visited once."""
    todo, seen = [plan], set[int]()
    while todo:
        node = todo.pop()
        if node.share_number is not None:
            if node.share_number in seen:
                continue
            seen.add(node.share_number)
        yield node
        todo += reversed(node.inputs)


def positions_of(key: tuple[int, ...], columns: tuple[int, ...] | list[int]) -> tuple[int, ...] | None:
    """The position of each column of `key` in `columns`; None if one is missing."""
    try:
        return tuple([columns.index(column) for column in key])
    except ValueError:
        return None


def unchanged(count: int) -> Positions:
    """The positions of a plan that keeps all of its `count` columns."""
    return {position: position for position in range(count)}


def renumbered(kept: list[int]) -> Positions:
    """The positions after all columns but `kept` are removed."""
    return {old: new for new, old in enumerate(kept)}
