"""ChangeCursor: the position of a change feed under a name, kept in the store, so that a later process goes on there.

    stream/cursor/<name>      {"epoch": 458752, "format": 1, "holder": "…", "retention_ms": 86400000, "table": 7,
                               "target": 524288}, as JSON

All changes up to `epoch` were passed; those up to `target` were given out, perhaps in part. The row is written before
the first change of a step is given, in one transaction with a lease that keeps `epoch` and all later ones readable for
`retention_ms`. So after a crash the same step comes again, with the same changes under the same `_epoch`, and a
follower that has kept part of them knows it by that number. `holder` is the feed that uses the cursor: one that another
feed has replaced ends with CursorTaken.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from hummock.base.json_fields import MALFORMED, NAME_RULE, check_format, is_name, natural, word
from hummock.epoch import NEVER, Epoch, monotonic_seconds
from hummock.errors import EpochTooOld, InvalidOption, MetaStoreCorrupt, PreconditionFailed
from hummock.meta.store.base import MetaOperations
from relational.catalog.followers import CURSORS as CURSORS
from relational.catalog.followers import NODE as NODE
from relational.errors import NotFound
from stream.errors import CursorExpired, CursorTaken

if TYPE_CHECKING:
    from hummock.meta.hummock_manager import HummockManager
    from hummock.meta.store.base import MetaStore

FORMAT = 1
RETENTION_MS = 24 * 3_600_000
LEAST_RETENTION_MS, MOST_RETENTION_MS = 1_000, 366 * 24 * 3_600_000
PASSED_SECONDS = 10.0
"""After which epochs that did not change the table are noted as passed, too."""
RENEWALS = 3
"""Of a lease within the retention."""


@dataclass(frozen=True, slots=True)
class CursorRow:
    """See the module."""

    table: int
    epoch: int
    target: int
    retention_ms: int
    holder: str

    def to_bytes(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, key: str, row: bytes) -> CursorRow:
        """MetaStoreCorrupt."""
        try:
            record = json.loads(row)
            check_format(key, record.pop("format"), FORMAT)
            holder = word(record.pop("holder"))
            return cls(holder=holder, **{name: natural(value) for name, value in record.items()})
        except MALFORMED as error:
            raise MetaStoreCorrupt(key, "fields", "those of a cursor", str(error)) from error


class ChangeCursor:
    """The cursor `name`, in use by one feed from its first `begin` on. `retention_ms`: how long its epoch stays
    readable after the last use; None: as it is, or a day. `epoch` and `target` are None for a new one, which `begin`
    creates.

    InvalidOption for a name, a retention, or the name of a cursor of another table."""

    def __init__(
        self, manager: HummockManager, meta_store: MetaStore, name: str, table_id: int, retention_ms: int | None
    ) -> None:
        if not is_name(name):
            raise InvalidOption("cursor", name, NAME_RULE)
        if retention_ms is not None and not LEAST_RETENTION_MS <= retention_ms <= MOST_RETENTION_MS:
            raise InvalidOption("retention_ms", retention_ms, f"from {LEAST_RETENTION_MS:,} to {MOST_RETENTION_MS:,}")
        self.name, self._key = name, CURSORS + name
        self._manager, self._meta_store = manager, meta_store
        self._stored = meta_store.get(self._key)
        found = None if self._stored is None else CursorRow.from_bytes(self._key, self._stored)
        if found is not None and found.table != table_id:
            raise InvalidOption("cursor", name, "one of this table: the cursor of that name follows another one")
        self.epoch = None if found is None else Epoch(found.epoch)
        self.target = None if found is None else Epoch(found.target)
        kept = RETENTION_MS if found is None else found.retention_ms
        self._row = CursorRow(table_id, NEVER, NEVER, retention_ms or kept, secrets.token_hex(8))
        self._noted_at = monotonic_seconds()

    def begin(self, epoch: Epoch, target: Epoch) -> None:
        """All up to `epoch` was passed; what follows up to `target` is given out from now on. CursorTaken;
        CursorExpired if the cursor was not used for longer than its retention."""
        row = replace(self._row, epoch=epoch, target=target)
        data = row.to_bytes()
        operations = MetaOperations(require={self._key: self._stored}, put={self._key: data})
        oldest = target if epoch == NEVER else epoch
        try:
            self._manager.hold_epoch(NODE + self.name, oldest, row.retention_ms, operations)
        except PreconditionFailed as error:
            if error.got != data:
                raise CursorTaken(self.name) from error
        except EpochTooOld as error:
            raise CursorExpired(self.name, row.retention_ms, error.safe_epoch) from error
        self._stored, self._row, self._noted_at = data, row, monotonic_seconds()
        self.epoch, self.target = epoch, target

    def note(self, epoch: Epoch) -> None:
        """All up to `epoch` was passed, and nothing is given out: writes that down once in a while."""
        since = monotonic_seconds() - self._noted_at
        is_moved = epoch > self._row.epoch and since > PASSED_SECONDS
        if is_moved or since > self._row.retention_ms / 1_000 / RENEWALS:
            self.begin(epoch, epoch)


def cursors_of(meta_store: MetaStore) -> Iterator[tuple[str, CursorRow]]:
    """All cursors, by name."""
    for key, row in meta_store.list(CURSORS):
        yield key.removeprefix(CURSORS), CursorRow.from_bytes(key, row)


def drop_cursor(manager: HummockManager, meta_store: MetaStore, name: str) -> None:
    """Forgets a cursor, with what it keeps readable. NotFound. A feed that uses it ends with CursorTaken."""
    if not is_name(name) or meta_store.get(CURSORS + name) is None:
        raise NotFound(f"there is no cursor {name!r}", name=name)
    manager.release_epoch(NODE + name, MetaOperations(delete=(CURSORS + name,)))
