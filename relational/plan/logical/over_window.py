"""OverWindow: window functions over each row's ordered group. TopN: the first rows of each group."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from relational.expr.aggregates import AggKind
from relational.expr.expression import Expression, input_columns
from relational.expr.window_functions import (
    RANK_TYPE,
    Bound,
    Frame,
    FrameUnit,
    RankKind,
    WindowCall,
    WindowKind,
)
from relational.plan.logical.filter import where
from relational.plan.logical.node import NONE, AddKeys, LogicalPlan, Positions, Properties, Prune, Push, UnaryPlan
from relational.plan.logical.project import only
from relational.plan.tree_text import calls_text, groups_text
from relational.types.ordering import SortKey
from relational.types.schema import Field, Schema

NO_LIMIT = (1 << 62) - 1
"""A number that no row has."""


def numbers_text(kind: RankKind, offset: int, last: int) -> str:
    """The numbers above `offset` and up to `last`, as plans show them."""
    return f"{kind} from {offset + 1}" if last >= NO_LIMIT else f"{kind} {offset + 1} to {last}"


@dataclass(frozen=True, slots=True)
class OrderedGroups(UnaryPlan):
    """Rows that are equal in the columns `groups`, in the order `keys`; the columns `added` come after those of the
    input."""

    groups: tuple[int, ...]
    keys: tuple[SortKey, ...]

    @property
    @abstractmethod
    def added(self) -> tuple[Field, ...]: ...

    @property
    def evaluated(self) -> tuple[Expression, ...]:
        return ()

    def _ordered(
        self,
        stream_key: tuple[int, ...] | None,
        not_null: frozenset[int],
        more: tuple[frozenset[int], ...] = (),
        watermarks: frozenset[int] = NONE,
    ) -> Properties:
        """`not_null`: those of the added columns that are never NULL, counted from 0."""
        known = self.input.properties
        width = len(known.schema)
        return Properties(
            schema=Schema((*known.schema, *self.added)),
            hidden=known.hidden,
            stream_key=stream_key,
            unique_keys=(*known.unique_keys, *more),
            constants=known.constants,
            shares=known.shares,
            watermarks=watermarks,
            not_null=known.not_null | frozenset(width + number for number in not_null),
        )

    def _distributed_key(self) -> tuple[int, ...] | None:
        """The key of the input with the groups, by which the rows are distributed [R8]."""
        key = self.input.stream_key
        return None if key is None else tuple(dict.fromkeys((*key, *self.groups)))

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
        """With the key of the input, whoever needs it. What that appends comes after the added columns."""
        child = add(self.input, True)
        whole = self.over((child,))
        width, wider, count = len(self.input.schema), len(child.schema), len(self.added)
        return only(whole, [*range(width), *range(wider, wider + count), *range(width, wider)])


@dataclass(frozen=True, slots=True)
class OverWindow(OrderedGroups):
    """The input's rows with the value of each of `calls`, called as `names` say."""

    calls: tuple[WindowCall, ...]
    names: tuple[str, ...]

    def _derived(self) -> Properties:
        known = self.input.properties
        return self._ordered(
            self._distributed_key(),
            frozenset(number for number, call in enumerate(self.calls) if _is_never_null(call, known.not_null)),
            watermarks=known.watermarks & frozenset(self.groups),
        )

    @property
    def added(self) -> tuple[Field, ...]:
        return tuple(Field(name, call.data_type) for name, call in zip(self.names, self.calls, strict=True))

    @property
    def summary(self) -> str:
        return f"OverWindow {calls_text(self.calls, self.names, self.input.schema.names)} {self._order_text()}"

    @property
    def numbers(self) -> RankKind | None:
        """How it numbers rows, if that is its only call."""
        kinds = [kind for kind in RankKind if [each.kind for each in self.calls] == [WindowKind(kind)]]
        return kinds[0] if kinds else None

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        """Unused calls are removed, with the last one this node."""
        width = len(self.input.schema)
        kept = [number for number in range(len(self.calls)) if width + number in wanted]
        if not kept:
            return prune(self.input, wanted)
        needed = frozenset(column for number in kept for column in self.calls[number].columns)
        child, positions = self._pruned_input(wanted | needed, prune)
        whole = positions | {width + number: len(child.schema) + at for at, number in enumerate(kept)}
        if child is self.input and len(kept) == len(self.calls):
            return self, whole
        calls = tuple(moved_call(self.calls[number], positions) for number in kept)
        return replace(
            self._over(child, positions), calls=calls, names=tuple(self.names[number] for number in kept)
        ), whole


def moved_call(call: WindowCall, positions: Mapping[int, int]) -> WindowCall:
    """The same over an input whose columns have moved."""

    def at(column: int | None) -> int | None:
        return None if column is None else positions[column]

    frame = call.frame
    if frame is not None and frame.unit is FrameUnit.RANGE:
        start, end = (Bound(each.kind, at(each.offset)) for each in (frame.start, frame.end))
        frame = Frame(frame.unit, start, end, at(frame.key))
    return replace(call, argument=at(call.argument), default=at(call.default), filter=at(call.filter), frame=frame)


def _is_never_null(call: WindowCall, known: frozenset[int]) -> bool:
    """Whether no value of a call is NULL, where the columns `known` are not. A sum may not fit its type."""
    if call.kind is AggKind.COUNT or (isinstance(call.kind, WindowKind) and call.kind.is_number):
        return True
    if call.argument not in known:
        return False
    if call.kind in (WindowKind.LAG, WindowKind.LEAD):
        return call.default in known
    is_of_row = call.kind in (
        WindowKind.FIRST_VALUE, WindowKind.LAST_VALUE, AggKind.MIN, AggKind.MAX, AggKind.BOOL_AND, AggKind.BOOL_OR,
    )  # fmt: skip
    frame = call.frame
    is_with_row = frame is not None and frame.has_current_row and frame.key is None
    return is_of_row and call.filter is None and is_with_row


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
        numbers = frozenset(range(len(self.added)))
        watermarks = self.input.properties.watermarks & frozenset(self.groups)
        if self.kind is RankKind.ROW_NUMBER and self.limit <= 1:
            return self._ordered(self.groups, numbers, (frozenset(self.groups),), watermarks)
        return self._ordered(self._distributed_key(), numbers, watermarks=watermarks)

    @property
    def added(self) -> tuple[Field, ...]:
        return () if self.name is None else (Field(self.name, RANK_TYPE),)

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
