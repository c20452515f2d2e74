"""RowSource: rows that are stored outside, such as in files, which a query reads when it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from relational.types.schema import Schema


class RowSource(Protocol):
    """Rows of `schema`, as they are when they are read."""

    @property
    def schema(self) -> Schema:
        """All columns."""

    @property
    def name(self) -> str:
        """What is read, for plans and messages."""

    def read(self, columns: Sequence[int], filters: Sequence[Any] = ()) -> Iterator[pa.RecordBatch]:
        """These columns of the rows, in batches with the Arrow types of the schema. `filters`: comparisons of columns
        of the schema, see `relational.expr.comparisons`; rows for which one is not true may be left out. REQUIRES a
        column."""


OpenRowSource = Callable[[str, str, Mapping[str, str]], RowSource]
"""Opens the rows in a format at a location with options, all of them as SQL has them."""
