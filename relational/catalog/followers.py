"""Followers: who reads the changes of a table from outside of the store. Each is a row of the meta store under its
name: a subscription, or the cursor of a change feed. `stream/session/change_cursor.py` has the fields of a row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from hummock.base.json_fields import MALFORMED, natural
from hummock.errors import MetaStoreCorrupt
from hummock.meta.store.base import MetaOperations, MetaStore
from relational.catalog.objects import TableCatalog

CURSORS = "stream/cursor/"
NODE = "cursor-"
"""Before a name: under which the store keeps the epochs readable that the follower has yet to read."""
Followers: TypeAlias = Mapping[int, tuple[str, ...]]
"""By id of a table the names of its followers."""
NO_FOLLOWERS: Followers = MappingProxyType({})


def followers_of(meta_store: MetaStore) -> Followers:
    """All of the store. MetaStoreCorrupt."""
    found: dict[int, tuple[str, ...]] = {}
    for key, row in meta_store.list(CURSORS):
        try:
            table_id = natural(json.loads(row)["table"])
        except MALFORMED as error:
            raise MetaStoreCorrupt(key, "fields", "those of a cursor", str(error)) from error
        found[table_id] = (*found.get(table_id, ()), key.removeprefix(CURSORS))
    return found


def names_of(followers: Followers, tables: Iterable[TableCatalog]) -> tuple[str, ...]:
    """The followers of some tables."""
    return tuple(name for table in tables for name in followers.get(table.id, ()))


def forget_followers(names: Iterable[str]) -> MetaOperations:
    """Deletes their rows: a feed that uses one ends with CursorTaken."""
    return MetaOperations(delete=tuple(CURSORS + name for name in names))
