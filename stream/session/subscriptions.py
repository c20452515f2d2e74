"""Subscriptions of SQL: cursors of change feeds that FETCH reads, some rows at a time."""

from __future__ import annotations

import threading

import pyarrow as pa

from relational.catalog.objects import TableCatalog
from relational.errors import CatalogError, Duplicate, NotFound
from stream.errors import CursorTaken
from stream.serving import Host
from stream.session.change_cursor import CursorRow, cursors_of, drop_cursor
from stream.session.change_feed import ChangeFeed


class Subscriptions:
    """Those that one session uses. Thread safe. A subscription begins with the rows that are there; each is read by one
    session at a time, and another one that fetches from it goes on where this one had passed."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._feeds: dict[str, ChangeFeed] = {}
        self._rest: dict[str, pa.Table] = {}  # of the last batch, by name

    def create(self, name: str, table: TableCatalog, retention_ms: int | None, *, if_not_exists: bool) -> None:
        """Duplicate; InvalidOption for a name or a retention."""
        with self._lock:
            if self._row(name) is not None:
                if if_not_exists:
                    return
                raise Duplicate(f"there is a subscription {name!r} already", name=name)
            ChangeFeed(self._host, table, None, follow=True, cursor=name, retention_ms=retention_ms).close()

    def fetch(self, name: str, count: int | None) -> pa.Table:
        """The next changes that are there, at most `count`, all for None. NotFound; CursorTaken if another session has
        fetched since: then the next call takes the subscription back. CatalogError if the table has lost a column: then
        the next call goes on without it."""
        with self._lock:
            feed = self._feeds.get(name) or self._open(name)
            found = [self._rest.pop(name, feed.schema.empty_table())]
            try:
                while count is None or sum(each.num_rows for each in found) < count:
                    batch = feed.read(0)
                    if batch is None:
                        break
                    found.append(pa.Table.from_batches([batch]))
            except BaseException as error:
                self._forget(name)
                if isinstance(error, CursorTaken) and self._row(name) is None:
                    raise _unknown(name) from error
                if type(error) is CatalogError:
                    raise CatalogError(f"column {error.name!r} was dropped: the next FETCH FROM {name} goes on without "
                                       "it", name=error.name) from error
                raise
            rows = pa.concat_tables(found)
            if count is not None and rows.num_rows > count:
                self._rest[name] = rows.slice(count)
                rows = rows.slice(0, count)
            return rows

    def drop(self, name: str, *, if_exists: bool) -> None:
        """NotFound."""
        with self._lock:
            self._forget(name)
            if not if_exists or self._row(name) is not None:
                drop_cursor(self._host.manager, self._host.meta_store, name)

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            for name in list(self._feeds):
                self._forget(name)

    def _open(self, name: str) -> ChangeFeed:
        row = self._row(name)
        if row is None:
            raise _unknown(name)
        table = self._host.catalog.snapshot.tables.get(row.table)
        if table is None:
            raise NotFound(f"the table of subscription {name!r} was dropped", name=name)
        feed = self._feeds[name] = ChangeFeed(self._host, table, None, follow=False, cursor=name)
        return feed

    def _forget(self, name: str) -> None:
        self._rest.pop(name, None)
        feed = self._feeds.pop(name, None)
        if feed is not None:
            feed.close()

    def _row(self, name: str) -> CursorRow | None:
        return next((row for each, row in cursors_of(self._host.meta_store) if each == name), None)


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no cursor {name!r}, and no subscription", name=name)
