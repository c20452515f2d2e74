"""Table: the handle of a table or view. It is a relation over its rows, and takes changes where it is a
table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from relational.plan.changes import writable
from relational.relation import TableRelation
from stream.session.rows import chunk_of_rows

if TYPE_CHECKING:
    from stream.session.queries import SessionRunner


class Table(TableRelation):
    """Named rows. What it changes is readable after the session's next flush or barrier."""

    runner: SessionRunner

    def insert(self, rows: Iterable[Any]) -> int:
        """Rows affected. `rows`: tuples, mappings, or anything Arrow-capable, which is taken column by
        column."""
        table = writable(self.table)
        return self.runner.insert_rows(table, chunk_of_rows(table, rows))
