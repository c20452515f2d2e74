"""The handles of stored tables and materialized views: relations over their rows that also tell of changes and, of a
session that writes, take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relational.plan.changes import writable
from relational.relation import TableRelation
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
        host, table = self.runner.host, self.table
        return ChangeFeed(host, table, since, follow=follow, cursor=cursor, retention_ms=retention_ms)


class Table(StoredRelation):
    """Named rows.

        orders.insert([(4, "ASIA", 8), (5, "AFRICA", 1)])           # 2
        orders.update({"amount": 9}, id=4)                          # 1
        orders.delete(col("amount") < 2)                            # 1
        db.flush()
        orders.get(4)                                               # {'id': 4, 'region': 'ASIA', 'amount': 9}

    Changes are readable after the session's next flush or barrier."""

    def insert(self, rows: Any) -> int:
        """Rows affected. `rows`: tuples, mappings or dataclass instances; one mapping or instance; or an object that
        can be exported to Arrow, which is converted by column."""
        table = writable(self.table)
        return self.runner.insert_rows(table, chunk_of_rows(table, rows))
