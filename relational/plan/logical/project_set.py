"""ProjectSet: the rows of set-returning functions beside each row of the input."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relational.expr.expression import Expression, InputRef, input_columns, input_refs, remap, substitute
from relational.plan.logical.filter import where
from relational.plan.logical.node import (
    AddKeys,
    LogicalPlan,
    Positions,
    Properties,
    Prune,
    Push,
    UnaryPlan,
    positions_of,
)
from relational.plan.logical.project import Project, hidden_name
from relational.plan.tree_text import set_text
from relational.types.data_type import DataType
from relational.types.schema import Field, Schema

ROW_NUMBER = "projected_row_id"


@dataclass(frozen=True, slots=True)
class ProjectSet(UnaryPlan):
    """For each row of the input as many rows as the longest list of `functions`, expressions of LIST types over it, has
    elements: the input's columns `passed`, the elements, called as `names` say, NULL where a list is shorter, and
    hidden the number of the row from 1. `is_outer`: a row without elements comes once, with NULL for them and for the
    number.

    The number is part of the stream key: the rows of one input row change with it alone."""

    passed: tuple[int, ...]
    functions: tuple[Expression, ...]
    names: tuple[str, ...]
    is_outer: bool = False

    def _derived(self) -> Properties:
        known, passed = self.input.properties, list(self.passed)
        names = [*(known.schema.names[column] for column in passed), *self.names]
        elements = [element for each in self.functions if (element := each.data_type.element) is not None]
        types = [*(known.schema.types[column] for column in passed), *elements, DataType.BIGINT]
        assert len(names) == len(types) - 1, "each function gives a list"
        number = len(names)
        names.append(hidden_name(ROW_NUMBER, names))
        key = None if known.stream_key is None else positions_of(known.stream_key, passed)
        keys = [positions_of(tuple(key - known.constants), passed) for key in known.unique_keys]
        not_null = frozenset(new for new, old in enumerate(passed) if old in known.not_null)
        return Properties(
            schema=Schema(map(Field, names, types)),
            hidden=frozenset((number, *(new for new, old in enumerate(passed) if old in known.hidden))),
            stream_key=None if key is None else (*key, number),
            is_append_only=known.is_append_only,
            unique_keys=tuple(frozenset((*key, number)) for key in keys if key is not None),
            constants=frozenset(new for new, old in enumerate(passed) if old in known.constants),
            shares=known.shares,
            watermarks=frozenset(new for new, old in enumerate(passed) if old in known.watermarks),
            not_null=not_null if self.is_outer else not_null | {number},
        )

    @property
    def evaluated(self) -> tuple[Expression, ...]:
        return self.functions

    @property
    def number(self) -> int:
        """The position of the number of a row."""
        return len(self.passed) + len(self.functions)

    @property
    def summary(self) -> str:
        text = set_text(self.functions, self.passed, self.input.schema.names, self.names, self.is_outer)
        return f"ProjectSet {text}"

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        """All functions are kept: each decides how many rows there are."""
        kept = [position for position in range(len(self.passed)) if position in wanted]
        own = frozenset().union(*map(input_columns, self.functions))
        child, positions = prune(self.input, own | {self.passed[position] for position in kept})
        added = range(len(self.passed), self.number + 1)
        outputs = {old: new for new, old in enumerate((*kept, *added))}
        if child is self.input and len(kept) == len(self.passed):
            return self, outputs
        functions = tuple(remap(each, positions) for each in self.functions)
        passed = tuple(positions[self.passed[position]] for position in kept)
        return replace(self, input=child, passed=passed, functions=functions), outputs

    def filtered(self, terms: tuple[Expression, ...], push: Push) -> LogicalPlan:
        """Terms over columns of the input go below."""
        low = [bool(input_columns(term)) and max(input_columns(term)) < len(self.passed) for term in terms]
        columns = [InputRef(column, self.input.schema.types[column]) for column in self.passed]
        below = tuple(substitute(term, columns) for term, is_low in zip(terms, low, strict=True) if is_low)
        above = tuple(term for term, is_low in zip(terms, low, strict=True) if not is_low)
        return where(self.over((push(self.input, below),)), above)

    def keyed(self, is_needed: bool, add: AddKeys) -> LogicalPlan:
        """With the key of the input, whose missing columns come last, hidden."""
        child = add(self.input, is_needed)
        missing = [column for column in child.stream_key or () if column not in self.passed]
        if not is_needed or not missing:
            return self.over((child,))
        whole = replace(self, input=child, passed=(*self.passed, *missing))
        width, more = len(self.passed), len(missing)
        order = [*range(width), *range(width + more, len(whole.schema)), *range(width, width + more)]
        columns = input_refs(whole.schema.types)
        names = [*self.schema.names]
        for column in missing:
            names.append(hidden_name(child.schema.names[column], names))
        concealed = self.hidden | frozenset(range(len(self.schema), len(names)))
        return Project(whole, tuple(columns[column] for column in order), tuple(names), concealed)
