"""What the store holds of a view, so that views that were created in different ways can be compared."""

from __future__ import annotations

from collections.abc import Iterator

from hummock.base.key import KeyRange
from relational.catalog.names import ObjectName
from relational.catalog.objects import TableCatalog, TableKind
from stream import Session


def tables_of(session: Session, view: str) -> tuple[TableCatalog, ...]:
    """The tables of a view but for the progress of its scans, and overflow tables: how its rows were read may differ,
    and which values of a group are in its state and which are not."""
    playground = session._playground
    found = playground.catalog.resolve(ObjectName(view))
    states = playground.catalog.internal_tables(found.id)
    return found, *(each for each in states if not each.name.endswith(".progress") and ".overflow" not in each.name)


def entries(session: Session, table: TableCatalog, epoch: int) -> Iterator[tuple[bytes, bytes]]:
    """(key without the table id, value) of a table of a view; no value of states that keep some of their values."""
    playground = session._playground
    states = playground.catalog.internal_tables(table.dependencies[0]) if table.kind is TableKind.INTERNAL else ()
    keeps_values = any(".overflow" in each.name for each in states)
    for key, value in playground.storage.scan(KeyRange.table(table.id), epoch):
        yield key[4:], b"" if keeps_values else value


def stored(session: Session, view: str) -> list[dict[bytes, bytes]]:
    """The entries of each table of a view, after a flush."""
    epoch = session.flush()
    return [dict(entries(session, table, epoch)) for table in tables_of(session, view)]
