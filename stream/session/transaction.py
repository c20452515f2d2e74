"""Transactions that read one epoch, and cursors over the rows of a query."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from hummock.epoch import Epoch
from relational.errors import Duplicate, NotFound
from relational.relation import Relation
from relational.sql import statement as bound
from stream.errors import InvalidStatement
from stream.session.snapshot import Snapshot

if TYPE_CHECKING:
    from stream.playground import Playground

CURSOR_BYTES = 256 << 20
"""Of rows that the cursors of a session hold."""
READING = (
    bound.Begin, bound.End, bound.DeclareCursor, bound.Fetch, bound.CloseCursor, bound.Select, bound.Show,
    bound.ShowJobs, bound.ShowErrors, bound.ShowEpochs, bound.ShowCreate, bound.ShowCreateFunction,
    bound.ShowOptions, bound.SetOption, bound.Describe, bound.Explain, bound.Nothing, bound.Prepare, bound.Execute,
    bound.Deallocate,
)  # fmt: skip
"""Statements that change nothing, which a transaction takes."""


class Transaction:
    """The epoch that the queries of a session read, from BEGIN to COMMIT or ROLLBACK; and its cursors. Without a
    transaction each query reads the newest epoch, and cursors stay until they are closed.
    """

    def __init__(self, playground: Playground) -> None:
        self._playground = playground
        self._snapshot: Snapshot | None = None
        self._is_read_only = False
        self._cursors: dict[str, pa.Table] = {}
        self._scoped: set[str] = set()  # cursors that end with the transaction
        self.now: datetime | None = None
        """The time of the transaction; None without one."""

    def begin(self, is_read_only: bool, now: datetime) -> None:
        """Pins the newest epoch. Within a transaction it has no effect, as in PostgreSQL."""
        if self._snapshot is None:
            self._snapshot, self._is_read_only, self.now = Snapshot(self._playground), is_read_only, now

    def end(self) -> None:
        """Releases the epoch and closes the cursors of the transaction. Without one it has no effect."""
        if self._snapshot is not None:
            snapshot, self._snapshot, self.now = self._snapshot, None, None
            for name in self._scoped:
                self._cursors.pop(name, None)
            self._scoped.clear()
            snapshot.close()

    def check(self, statement: bound.Statement) -> None:
        """InvalidStatement for a change within a transaction."""
        if self._snapshot is not None and not isinstance(statement, READING):
            kind = type(statement).__name__
            if self._is_read_only:
                raise InvalidStatement(kind, "a read-only transaction changes nothing: COMMIT first")
            reason = "changes within a transaction are not supported: send them outside of BEGIN and COMMIT"
            raise InvalidStatement(kind, reason)

    @property
    def epoch(self) -> Epoch | None:
        """The epoch that is pinned; None without a transaction."""
        return None if self._snapshot is None else self._snapshot.epoch

    def relation(self, statement: bound.Select) -> Relation | None:
        """A query of the pinned epoch; None without a transaction."""
        return None if self._snapshot is None else Relation(statement.plan, self._snapshot, statement.views)

    # -- cursors ---------------------------------------------------------------------------------------

    def declare(self, name: str, query: Relation) -> None:
        """The rows of `query` as a cursor, read at once. Duplicate; InvalidStatement beyond CURSOR_BYTES."""
        if name in self._cursors:
            raise Duplicate(f"there is a cursor {name!r} already: CLOSE it first", name=name)
        rows = query.to_arrow()
        held = rows.nbytes + sum(each.nbytes for each in self._cursors.values())
        if held > CURSOR_BYTES:
            raise InvalidStatement(name, f"cursors would hold {held:,} bytes of rows; the limit is {CURSOR_BYTES:,}")
        self._cursors[name] = rows
        if self._snapshot is not None:
            self._scoped.add(name)

    def fetch(self, name: str, count: int | None) -> pa.Table:
        """The next rows of a cursor, all that are left for None. NotFound."""
        rows = self._cursor(name)
        taken = rows.num_rows if count is None else min(count, rows.num_rows)
        self._cursors[name] = rows.slice(taken)
        return rows.slice(0, taken)

    def close_cursor(self, name: str | None) -> None:
        """None: all. NotFound."""
        if name is None:
            self._cursors.clear()
        else:
            self._cursor(name)
            del self._cursors[name]
            self._scoped.discard(name)

    def _cursor(self, name: str) -> pa.Table:
        if name not in self._cursors:
            raise NotFound(f"there is no cursor {name!r}", name=name)
        return self._cursors[name]
