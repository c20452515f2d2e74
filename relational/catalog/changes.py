"""Since which epoch an object is what the catalog says: older epochs were written under another catalog [R59].

    catalog/changed/<id>      {"epoch": …, "verb": "created" | "altered" | "renamed"} of the last such DDL, as JSON

The row is part of the commit of the DDL. Objects of stores of older releases have none before their next DDL.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from hummock.base.json_fields import natural
from hummock.meta.store.base import MetaOperations
from relational.catalog.records import CHANGED_PREFIX, CREATING_PREFIX, TABLE_PREFIX, changed_key

if TYPE_CHECKING:
    from relational.catalog.snapshot import CatalogSnapshot

CREATED, ALTERED, RENAMED = "created", "altered", "renamed"
_INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """The object was `verb` by the commit of `epoch`."""

    epoch: int
    verb: str

    def to_json(self) -> dict:
        return {"epoch": self.epoch, "verb": self.verb}

    @classmethod
    def from_json(cls, record: Mapping) -> Self:
        return cls(natural(record["epoch"]), record["verb"])


def note_changes(operations: MetaOperations, epoch: int) -> MetaOperations:
    """What the commit of `epoch` records besides the `operations` of its DDL."""
    put: dict[str, bytes] = {}
    for key, row in operations.put.items():
        verb = _verb(operations.require.get(key), row) if key.startswith(TABLE_PREFIX) else None
        if verb is not None:
            put[changed_key(_id(key, TABLE_PREFIX))] = _encoded(ObjectChange(epoch, verb))
    for key in operations.delete:
        if key.startswith(CREATING_PREFIX):  # only now it has all its rows
            put[changed_key(_id(key, CREATING_PREFIX))] = _encoded(ObjectChange(epoch, CREATED))
    gone = tuple(changed_key(_id(key, TABLE_PREFIX)) for key in operations.delete if key.startswith(TABLE_PREFIX))
    return MetaOperations(put={key: row for key, row in put.items() if key not in gone}, delete=gone)


def read_changes(rows: Mapping[str, bytes]) -> dict[int, ObjectChange]:
    """The last change of each object, by id, from the rows of the catalog."""
    keys = [key for key in rows if key.startswith(CHANGED_PREFIX)]
    return {_id(key, CHANGED_PREFIX): ObjectChange.from_json(json.loads(rows[key])) for key in keys}


def changed_after(epoch: int, tables: Iterable[int], known: CatalogSnapshot) -> str | None:
    """Why objects cannot be read at an epoch with the catalog `known`: a DDL after it; None if they can."""
    for table_id in tables:
        change, table = known.changed.get(table_id), known.tables.get(table_id)
        if change is not None and table is not None and epoch < change.epoch:
            what = f"{table.name!r} was {change.verb} at epoch {change.epoch}, after {epoch}"
            return f"{what}: read it at that epoch or a later one"
    return None


def _verb(before: bytes | None, after: bytes) -> str | None:
    """What a DDL has done that the reader of an older epoch would miss; None if nothing."""
    new = json.loads(after)
    if new["kind"] == _INTERNAL:
        return None
    if before is None:
        return CREATED
    old = json.loads(before)
    if old["schema_version"] != new["schema_version"]:
        return ALTERED
    return RENAMED if old["name"] != new["name"] else None


def _id(key: str, prefix: str) -> int:
    return int(key[len(prefix) :])


def _encoded(change: ObjectChange) -> bytes:
    return json.dumps(change.to_json(), sort_keys=True).encode()
