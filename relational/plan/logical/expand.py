"""Expand: every row once for each grouping set."""

from __future__ import annotations

from dataclasses import dataclass

from relational.expr.expression import Expression, input_columns, remap
from relational.plan.logical.filter import where
from relational.plan.logical.node import AddKeys, LogicalPlan, Positions, Properties, Prune, Push, UnaryPlan
from relational.plan.logical.project import only
from relational.types.data_type import DataType
from relational.types.schema import Field, Schema

SET_NAME = "grouping_set"
SET_TYPE = DataType.INT


@dataclass(frozen=True, slots=True)
class Expand(UnaryPlan):
    """The rows of the input, each once for each of `sets`: its columns; then the columns `columns` a second time, NULL
    where they are not in the set; then the number of the set, from 1. A set has positions in `columns`."""

    columns: tuple[int, ...]
    sets: tuple[tuple[int, ...], ...]

    def _derived(self) -> Properties:
        known = self.input.properties
        fields = known.schema.fields
        number = len(fields) + len(self.columns)
        copies = {len(fields) + at: column for at, column in enumerate(self.columns) if self._is_in_all(at)}
        return Properties(
            schema=Schema((*fields, *(fields[column] for column in self.columns), Field(SET_NAME, SET_TYPE))),
            hidden=known.hidden,
            stream_key=None if known.stream_key is None else (*known.stream_key, number),
            is_append_only=known.is_append_only,
            unique_keys=tuple(key | {number} for key in known.unique_keys),
            constants=_with_copies(known.constants, copies),
            shares=known.shares,
            watermarks=_with_copies(known.watermarks, copies),
            not_null=_with_copies(known.not_null, copies) | {number},
        )

    def _is_in_all(self, at: int) -> bool:
        return all(at in each for each in self.sets)

    @property
    def evaluated(self) -> tuple[Expression, ...]:
        return ()

    @property
    def summary(self) -> str:
        return f"Expand {sets_text(self.columns, self.sets, self.input.schema.names)}"

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        """The copies and the number are kept."""
        width = len(self.input.schema)
        needed = frozenset(column for column in wanted if column < width) | frozenset(self.columns)
        child, positions = prune(self.input, needed)
        wider = len(child.schema)
        whole = positions | {width + at: wider + at for at in range(len(self.columns) + 1)}
        if child is self.input:
            return self, whole
        return Expand(child, tuple(positions[column] for column in self.columns), self.sets), whole

    def filtered(self, terms: tuple[Expression, ...], push: Push) -> LogicalPlan:
        """Terms over columns of the input, or over copies that are in all sets, go below."""
        width = len(self.input.schema)
        below = {column: column for column in range(width)}
        below |= {width + at: column for at, column in enumerate(self.columns) if self._is_in_all(at)}
        low = [bool(input_columns(term)) and input_columns(term) <= below.keys() for term in terms]
        lower = tuple(remap(term, below) for term, is_low in zip(terms, low, strict=True) if is_low)
        upper = tuple(term for term, is_low in zip(terms, low, strict=True) if not is_low)
        return where(self.over((push(self.input, lower),)), upper)

    def keyed(self, is_needed: bool, add: AddKeys) -> LogicalPlan:
        """With the key of the input. What that appends comes after the number of the set."""
        child = add(self.input, is_needed)
        whole = self.over((child,))
        width, wider, count = len(self.input.schema), len(child.schema), len(self.columns) + 1
        return only(whole, [*range(width), *range(wider, wider + count), *range(width, wider)])


def sets_text(columns: tuple[int, ...], sets: tuple[tuple[int, ...], ...], names: tuple[str, ...]) -> str:
    """The sets, by the names of the input's columns."""
    if not columns:
        return f"{len(sets)} times"
    return ", ".join(f"({', '.join(names[columns[at]] for at in each)})" for each in sets)


def _with_copies(columns: frozenset[int], copies: dict[int, int]) -> frozenset[int]:
    return columns | {copy for copy, column in copies.items() if column in columns}
