"""Union: the rows of several inputs, duplicates included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from relational.expr.expression import Expression, InputRef, Literal
from relational.plan.logical.node import (
    AddKeys,
    LogicalPlan,
    Positions,
    Properties,
    Prune,
    Push,
    positions_of,
    renumbered,
    unchanged,
)
from relational.plan.logical.project import Project, hidden_name, only
from relational.types.data_type import DataType

BRANCH = "_branch"
BRANCH_TYPE = DataType.INT


@dataclass(frozen=True, slots=True)
class Union(LogicalPlan):
    """UNION ALL: the rows of all `branches`, which have the same types and hidden columns at the same positions; names
    are those of the first.

    `key`: columns that identify a row, None in a query and where nothing needs them. `keyed` adds them, hidden: the
    number of the branch, a constant in each, then the stream keys of the branches in one layout, in which a column is
    shared by branches with key columns of its type, and NULL in the others. Rows of different branches thus never have
    the same key [R8].
    """

    branches: tuple[LogicalPlan, ...]
    key: tuple[int, ...] | None = None

    def _derived(self) -> Properties:
        known = [branch.properties for branch in self.branches]
        first = known[0]
        assert all(each.schema.types == first.schema.types for each in known), self.branches
        assert all(each.hidden == first.hidden for each in known), self.branches
        return Properties(
            schema=first.schema,
            hidden=first.hidden,
            stream_key=self.key,
            is_append_only=all(each.is_append_only for each in known),
            unique_keys=() if self.key is None else (frozenset(self.key),),
            shares=frozenset().union(*(each.shares for each in known)),
            watermarks=first.watermarks.intersection(*(each.watermarks for each in known)),
            not_null=first.not_null.intersection(*(each.not_null for each in known)),
        )

    @property
    def inputs(self) -> tuple[LogicalPlan, ...]:
        return self.branches

    def with_inputs(self, inputs: tuple[LogicalPlan, ...]) -> Union:
        return Union(inputs, self.key)

    @property
    def evaluated(self) -> tuple[Expression, ...]:
        return ()

    @property
    def summary(self) -> str:
        names = self.schema.names
        return "Union" if self.key is None else f"Union key [{', '.join(names[column] for column in self.key)}]"

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        """The same columns in every branch. A key of which a column is not wanted is given up."""
        kept = sorted(wanted) or [0]
        pruned = [prune(branch, frozenset(kept)) for branch in self.branches]
        branches = tuple(only(plan, [positions[column] for column in kept]) for plan, positions in pruned)
        if len(kept) == len(self.schema):
            return self.over(branches), unchanged(len(kept))
        return Union(branches, None if self.key is None else positions_of(self.key, kept)), renumbered(kept)

    def filtered(self, terms: tuple[Expression, ...], push: Push) -> LogicalPlan:
        """Every branch is filtered by all terms."""
        return self.over(tuple(push(branch, terms) for branch in self.branches))

    def keyed(self, is_needed: bool, add: AddKeys) -> LogicalPlan:
        is_wanted = is_needed and self.key is None
        branches = tuple(add(branch, is_wanted) for branch in self.branches)
        columns = range(len(self.schema))
        keys = [branch.stream_key for branch in branches]
        if not is_wanted or None in keys:
            return self.over(tuple(only(branch, columns) for branch in branches))
        return _with_key(branches, [key for key in keys if key is not None], len(self.schema))


@dataclass(frozen=True, slots=True)
class _KeyColumn:
    """One column of the common key: its name and type, and by branch number the column that it is taken from."""

    name: str
    data_type: DataType
    sources: dict[int, int]


def _with_key(branches: tuple[LogicalPlan, ...], keys: Sequence[tuple[int, ...]], width: int) -> Union:
    """The union of the first `width` columns of `branches`, with a key made of their stream keys `keys`."""
    passed = [column for column in keys[0] if column < width and all(column in key for key in keys)]
    rest = [[column for column in key if column not in passed] for key in keys]
    added = _layout(branches, rest)
    names = list(branches[0].schema.names[:width])
    for name in (BRANCH, *(column.name for column in added)):
        names.append(hidden_name(name, names))
    concealed = branches[0].hidden & frozenset(range(width)) | frozenset(range(width, len(names)))
    keyed = []
    for number, branch in enumerate(branches):
        types = branch.schema.types
        expressions: list[Expression] = [InputRef(column, types[column]) for column in range(width)]
        expressions.append(Literal(number, BRANCH_TYPE))
        for column in added:
            source = column.sources.get(number)
            data_type = column.data_type
            expressions.append(Literal(None, data_type) if source is None else InputRef(source, data_type))
        keyed.append(Project(branch, tuple(expressions), tuple(names), concealed))
    return Union(tuple(keyed), (width, *passed, *range(width + 1, len(names))))


def _layout(branches: Sequence[LogicalPlan], keys: Sequence[Sequence[int]]) -> list[_KeyColumn]:
    """The fewest columns that hold the `keys` of all branches: the nth key column of a type is the nth of that type."""
    found: dict[tuple[DataType, int], _KeyColumn] = {}
    for number, (branch, key) in enumerate(zip(branches, keys, strict=True)):
        seen = Counter[DataType]()
        for column in key:
            field = branch.schema[column]
            slot = found.setdefault(
                (field.data_type, seen[field.data_type]), _KeyColumn(field.name, field.data_type, {})
            )
            slot.sources[number] = column
            seen[field.data_type] += 1
    return list(found.values())
