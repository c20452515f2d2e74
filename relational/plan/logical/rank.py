"""Rank: the number of each row in the order of its group. TopN: the first rows of each group."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from relational.expr.expression import Expression, input_columns
from relational.expr.window_functions import RANK_TYPE, RankKind
from relational.plan.logical.filter import where
from relational.plan.logical.node import AddKeys, LogicalPlan, Positions, Properties, Prune, Push, UnaryPlan
from relational.plan.logical.project import only
from relational.plan.tree_text import groups_text
from relational.types.ordering import SortKey
from relational.types.schema import Field, Schema

NO_LIMIT = (1 << 62) - 1
"""A number that no row has."""


def numbers_text(kind: RankKind, offset: int, last: int) -> str:
    """The numbers above `offset` and up to `last`, as plans show them."""
    return f"{kind} from {offset + 1}" if last >= NO_LIMIT else f"{kind} {offset + 1} to {last}"


@dataclass(frozen=True, slots=True)
class OrderedGroups(UnaryPlan):
    """Rows that are equal in the columns `groups`, in the order `keys`; the columns called `numbers` come after those
    of the input."""

    groups: tuple[int, ...]
    keys: tuple[SortKey, ...]

    @property
    @abstractmethod
    def numbers(self) -> tuple[str, ...]: ...

    @property
    def evaluated(self) -> tuple[Expression, ...]:
        return ()

    def _ordered(self, stream_key: tuple[int, ...] | None, more: tuple[frozenset[int], ...] = ()) -> Properties:
        known, numbers = self.input.properties, self.numbers
        width = len(known.schema)
        return Properties(
            schema=Schema((*known.schema, *(Field(name, RANK_TYPE) for name in numbers))),
            hidden=known.hidden,
            stream_key=stream_key,
            unique_keys=(*known.unique_keys, *more),
            constants=known.constants,
            shares=known.shares,
            not_null=known.not_null | frozenset(range(width, width + len(numbers))),
        )

    def _order_text(self) -> str:
        return groups_text(self.groups, self.keys, self.input.schema.names)

    def _pruned_input(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        """The input with what decides the order, its key included, which decides among equal rows."""
        own = frozenset((*self.groups, *(key.column for key in self.keys), *(self.input.stream_key or ())))
        width = len(self.input.schema)
        return prune(self.input, own | frozenset(column for column in wanted if column < width))

    def _over(self, child: LogicalPlan, positions: Mapping[int, int]) -> Self:
        """The same over an input whose columns have moved."""
        keys = tuple(SortKey(positions[key.column], key.order) for key in self.keys)
        return replace(self, input=child, groups=tuple(positions[column] for column in self.groups), keys=keys)

    def filtered(self, terms: tuple[Expression, ...], push: Push) -> LogicalPlan:
        """Terms over columns of the groups alone go below: they keep whole groups."""
        low = [bool(input_columns(term)) and input_columns(term) <= frozenset(self.groups) for term in terms]
        below = tuple(term for term, is_low in zip(terms, low, strict=True) if is_low)
        above = tuple(term for term, is_low in zip(terms, low, strict=True) if not is_low)
        return where(self.over((push(self.input, below),)), above)

    def keyed(self, is_needed: bool, add: AddKeys) -> LogicalPlan:
        """With the key of the input, whoever needs it. What that appends comes after the numbers."""
        child = add(self.input, True)
        whole = self.over((child,))
        width, wider, count = len(self.input.schema), len(child.schema), len(self.numbers)
        return only(whole, [*range(width), *range(wider, wider + count), *range(width, wider)])


@dataclass(frozen=True, slots=True)
class Rank(OrderedGroups):
    """The input's rows with, for each of `kinds`, their number in their group, from 1, called as `numbers` say."""

    kinds: tuple[RankKind, ...]
    names: tuple[str, ...]

    def _derived(self) -> Properties:
        return self._ordered(self.input.stream_key)

    @property
    def numbers(self) -> tuple[str, ...]:
        return self.names

    @property
    def summary(self) -> str:
        kinds = ", ".join(f"{kind} AS {name}" for kind, name in zip(self.kinds, self.names, strict=True))
        return f"Rank {kinds} {self._order_text()}"

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        """All numbers are kept."""
        child, positions = self._pruned_input(wanted, prune)
        first = len(self.input.schema)
        whole = positions | {first + at: len(child.schema) + at for at in range(len(self.kinds))}
        return (self if child is self.input else self._over(child, positions)), whole


@dataclass(frozen=True, slots=True)
class TopN(OrderedGroups):
    """The rows whose number by `kind` in their group is above `offset` and at most `offset` + `limit`. `name`: of the
    number as the last column, None: without it.

    The stream key of the result has the groups, by which the rows are distributed [R8]; they alone are the key where
    each group has one row."""

    kind: RankKind
    limit: int
    offset: int = 0
    name: str | None = None

    def _derived(self) -> Properties:
        key = self.input.stream_key
        if self.kind is RankKind.ROW_NUMBER and self.limit <= 1:
            return self._ordered(self.groups, (frozenset(self.groups),))
        return self._ordered(None if key is None else tuple(dict.fromkeys((*key, *self.groups))))

    @property
    def numbers(self) -> tuple[str, ...]:
        return () if self.name is None else (self.name,)

    @property
    def summary(self) -> str:
        number = "" if self.name is None else f" AS {self.name}"
        return f"TopN {numbers_text(self.kind, self.offset, self.offset + self.limit)}{number} {self._order_text()}"

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        """The number is dropped where nothing needs it: a row then changes only if it comes or goes."""
        child, positions = self._pruned_input(wanted, prune)
        width = len(self.input.schema)
        name = self.name if width in wanted else None
        whole = positions if name is None else positions | {width: len(child.schema)}
        if child is self.input and name == self.name:
            return self, whole
        return replace(self._over(child, positions), name=name), whole
