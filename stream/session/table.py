"""The handles of stored tables and materialized views: relations over their rows that also tell of changes and, of a
session that writes, take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from relational.expr.unbound import UnboundExpr
from relational.plan.changes import writable
from relational.relation import TableRelation
from stream.errors import InvalidStatement
from stream.session.change_feed import ChangeFeed
from stream.session.rows import chunk_of_rows

if TYPE_CHECKING:
    from stream.session.queries import SessionQueries


class StoredRelation(TableRelation):
    """Named rows, as a reader has them."""

    runner: SessionQueries

    def changes(
        self,
        since: int | None = None,
        *,
        follow: bool = True,
        cursor: str | None = None,
        retention_ms: int | None = None,
    ) -> ChangeFeed:
        """What changes, as `ReaderSession.changes`."""
        self.runner.transaction.check_session()
        host, table = self.runner.host, self.table
        return ChangeFeed(host, table, since, follow=follow, cursor=cursor, retention_ms=retention_ms)


NOT_GIVEN = object()
"""In place of an argument that may have any value."""


class Table(StoredRelation):
    """Named rows.

        orders.insert([(4, "ASIA", 8), (5, "AFRICA", 1)])           # 2
        orders.update({"amount": 9}, id=4)                          # 1
        orders.delete(col("amount") < 2)                            # 1
        db.flush()
        orders.get(4)                                               # {'id': 4, 'region': 'ASIA', 'amount': 9}

    Changes are readable after the session's next flush or barrier; or when they return, with `flush=True` or `SET
    implicit_flush = true`."""

    def insert(self, rows: Any, *, flush: bool = False) -> int:
        """Rows affected. `rows`: tuples, by position, or by name if their values have names, as in a namedtuple and the
        rows of a query; mappings or dataclass instances; one of those with names; or an object that can be exported to
        Arrow, which is converted by column: a frame, or another relation, also of files. Who gives them may change them
        afterwards. `flush`: return when they are committed."""
        self.runner.check_may_flush(flush)
        table = writable(self.table)
        return self.runner.settled(self.runner.insert_rows(table, chunk_of_rows(table, rows)), flush)

    def update(
        self, set: Mapping[str, object], where: UnboundExpr | None = None, *, flush: object = NOT_GIVEN, **key: object
    ) -> int:
        """Sets columns of the rows selected by `where` and `column=value`; their number. `flush=True`: return when they
        are committed; of a table with a column `flush` it is a value of that."""
        flushes = self._flushes(flush, key)
        return self.runner.settled(super().update(set, where, **key), flushes)

    def delete(self, where: UnboundExpr | None = None, *, flush: object = NOT_GIVEN, **key: object) -> int:
        """Deletes the rows selected by `where` and `column=value`; their number. `flush` as in `update`."""
        flushes = self._flushes(flush, key)
        return self.runner.settled(super().delete(where, **key), flushes)

    def _flushes(self, flush: object, key: dict[str, object]) -> bool:
        """Whether to wait for the commit; a value of a column `flush` becomes part of `key`."""
        if flush is NOT_GIVEN:
            return False
        if "flush" in self.columns:
            key["flush"] = flush
            return False
        if not isinstance(flush, bool):
            raise InvalidStatement(self.name, f"flush is True or False, not {flush!r}")
        self.runner.check_may_flush(flush)
        return flush
