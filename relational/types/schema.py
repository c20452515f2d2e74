"""The shape of a row: named, typed columns in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from relational.errors import BindError
from relational.types.data_type import DataType, Field


@dataclass(frozen=True)
class Schema:
    """Fields in order.

        stream.Schema.of(id="bigint", amount="numeric(10, 2)").names        # ('id', 'amount')

    Two may share a name (as in a join's output); positions distinguish them."""

    fields: tuple[Field, ...]

    def __init__(self, fields: Iterable[Field] = ()) -> None:
        object.__setattr__(self, "fields", tuple(fields))

    @classmethod
    def of(cls, **columns: str | DataType) -> Schema:
        """A schema from names and types, e.g. `Schema.of(id="bigint", amount="numeric(10, 2)")`."""
        return cls(
            Field(name, spelled if isinstance(spelled, DataType) else DataType.parse(spelled))
            for name, spelled in columns.items()
        )

    @classmethod
    def from_arrow(cls, arrow: pa.Schema) -> Schema:
        """The schema of Arrow columns; BindError where a type has no SQL counterpart."""
        return cls(Field(field.name, DataType.from_arrow(field.type)) for field in arrow)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @cached_property
    def types(self) -> tuple[DataType, ...]:
        return tuple(field.data_type for field in self.fields)

    @cached_property
    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(field.name, field.data_type.arrow) for field in self.fields])

    def index(self, name: str) -> int:
        """The position of the unique column called `name`; BindError if there is none, or more than one."""
        count = self.names.count(name)
        if count != 1:
            known = ", ".join(self.names)
            raise BindError(f"column {name!r} is ambiguous" if count else f"there is no column {name!r}, only {known}")
        return self.names.index(name)

    def project(self, indices: Iterable[int]) -> Schema:
        """The columns at `indices`, in that order."""
        return Schema(self.fields[index] for index in indices)

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __getitem__(self, index: int) -> Field:
        return self.fields[index]

    def __add__(self, other: Schema) -> Schema:
        return Schema(self.fields + other.fields)

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.fields))})"
