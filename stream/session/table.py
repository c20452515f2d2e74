"""Table: the handle of a table or materialized view. It is a relation over its rows; a table also accepts changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relational.plan.changes import writable
from relational.relation import TableRelation
from stream.session.rows import chunk_of_rows

if TYPE_CHECKING:
    from stream.session.queries import SessionQueries


class Table(TableRelation):
    """Named rows. Changes are readable after the session's next flush or barrier."""

    runner: SessionQueries

    def insert(self, rows: Any) -> int:
        """Rows affected. `rows`: tuples, mappings or dataclass instances; one mapping or instance; or an object that
        can be exported to Arrow, which is converted by column."""
        table = writable(self.table)
        return self.runner.insert_rows(table, chunk_of_rows(table, rows))
