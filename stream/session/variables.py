"""Variables of the program as relations of a FROM: frames, and the results of other queries.

    trips = polars.read_parquet("trips.parquet")
    db.query("SELECT zone, count(*) AS trips FROM trips GROUP BY zone")

A name is one of the catalog, if that has it. Otherwise it is looked up, as it is written, among the `frames` that a
call is given; without these, among the variables of the function that has called the session, and those of its module,
as they are then. Nothing that outlives the statement, such as a view, can read them. In DuckDB these are replacement
scans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from types import FrameType
from typing import Any

import pyarrow as pa

from relational.chunk.arrow_import import imported
from relational.errors import BindError, InvalidValue
from relational.plan.descent import transformed
from relational.plan.logical import ExternalScan, LogicalPlan, Scan, nodes
from relational.plan.optimizer import optimize
from relational.relation import Relation
from relational.result import Result
from relational.sql.context import VariableRows
from relational.types import Schema
from stream.serving import Host
from stream.session.frames import columns_and_rows
from stream.session.queries import has_external_rows
from stream.session.rows import is_lazy, owned

Names = FrameType | Mapping[str, object] | None
"""Where names are looked up: in a function that is being executed and its module, in a mapping, or nowhere."""
BATCH_ROWS = 65_536
ABSENT = object()


class FrameRows:
    """A RowSource: the rows of a frame, which may change until they are read; of those that are given out, and of those
    that are `kept`, the frame shares no memory. BindError for columns that no type holds."""

    def __init__(self, name: str, frame: Any) -> None:
        _, rows = columns_and_rows(frame)
        if rows is None or not rows.num_columns:
            raise BindError("it has no columns")
        self.name, self._rows = f"the variable {name!r}", rows
        self.is_kept = False
        self.schema = Schema.from_arrow(rows.schema)

    def kept(self, columns: Iterable[int]) -> FrameRows:
        """The rows that the frame has now, of these columns; others are not to be read."""
        rows = self._rows
        for index in columns:
            chunks = [owned(chunk) for chunk in rows.column(index).chunks]
            rows = rows.set_column(index, rows.field(index), pa.chunked_array(chunks, rows.field(index).type))
        found = copy(self)
        found._rows, found.is_kept = rows, True
        return found

    def read(self, columns: Sequence[int], filters: Sequence[Any] = ()) -> Iterator[pa.RecordBatch]:
        """As RowSource. InvalidValue for a value that its type does not represent."""
        schema, first = self.schema.project(columns), 0
        for batch in self._rows.select(list(columns)).to_batches(max_chunksize=BATCH_ROWS):
            try:
                arrays = [imported(array, field.data_type, field.name)
                          for array, field in zip(batch.columns, schema, strict=True)]
                if not self.is_kept:
                    arrays = list(map(owned, arrays))
            except InvalidValue as error:
                row = None if error.row is None else first + error.row
                raise InvalidValue(f"{self.name}: {error.reason}", column_name=error.column_name, row=row) from error
            yield pa.RecordBatch.from_arrays(arrays, list(schema.names))
            first += batch.num_rows


def keeping_frames(query: LogicalPlan) -> LogicalPlan:
    """The query over the rows that its frames have now, whenever it is read: with a copy of the columns it needs."""
    needed: dict[FrameRows, set[int]] = {}
    if has_external_rows(query):
        for node in nodes(optimize(query)):
            if isinstance(node, ExternalScan) and isinstance(node.source, FrameRows) and not node.source.is_kept:
                needed.setdefault(node.source, set()).update(node.columns)
    if not needed:
        return query
    kept = {source: source.kept(columns) for source, columns in needed.items()}

    def over_kept(node: LogicalPlan) -> LogicalPlan:
        if isinstance(node, ExternalScan) and isinstance(node.source, FrameRows) and node.source in kept:
            return replace(node, source=kept[node.source])
        return node

    return transformed(query, over_kept)


class Variables:
    """A FindVariable for one statement of a session on `host`: each variable is read once."""

    def __init__(self, host: Host, names: Names) -> None:
        self._host, self._names = host, names
        self._found: dict[str, VariableRows | None] = {}

    @property
    def are_read(self) -> bool:
        """Whether the statement reads one."""
        return any(rows is not None for rows in self._found.values())

    def __call__(self, name: str) -> VariableRows | None:
        if name not in self._found:
            self._found[name] = self._rows_of(name, self._value(name))
        return self._found[name]

    def _value(self, name: str) -> object:
        names = self._names
        if not isinstance(names, FrameType):
            return ABSENT if names is None else names.get(name, ABSENT)
        return names.f_locals.get(name, names.f_globals.get(name, ABSENT))

    def _rows_of(self, name: str, value: object) -> VariableRows | None:
        if isinstance(value, Relation) and getattr(value.runner, "host", None) is self._host:
            known = self._host.catalog.snapshot.tables
            is_dropped = any(isinstance(node, Scan) and node.table.id not in known for node in nodes(value.plan))
            return None if is_dropped else VariableRows(value.plan, value.views)
        return VariableRows(ExternalScan(FrameRows(name, value))) if is_frame(value) else None


def is_frame(value: object) -> bool:
    """Whether it has rows of named columns that it exports to Arrow: a frame of pandas or Polars, a table of Arrow, a
    result."""
    if isinstance(value, Result):
        return True
    kind = type(value)
    has_rows = hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__arrow_c_array__") or is_lazy(value)
    return has_rows and any(hasattr(kind, each) for each in ("columns", "column_names", "schema"))
