"""References: which files of a store are needed, and why, as of one version.

They are read version first. Every later step that ends a need of a file by handing it on (a commit, a report, a
removal) changes the head, so a transaction that requires the head unchanged proves that what was read is still valid:

    an upload       is protected by its registered prefix until it is in a version
    a compact task  by its row, whose token begins the names of the attempt's files, until its report
    a version's     by the version, and then by the obsolete list until no reader needs it

A file that was listed before the references were read, and is in none of them, will never be needed again.

The clock is read after the rows that expire by it: otherwise, if the clock was set back, a row that was renewed since
could look expired.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from hummock.base.json_fields import MALFORMED, word
from hummock.epoch import Clock
from hummock.errors import MetaStoreCorrupt
from hummock.meta.leases import read_leases
from hummock.meta.records import (
    TASK,
    VACUUMED,
    WRITER,
    Lease,
    Tombstone,
    decode,
    encode,
    generation_of,
    lease_key,
    upload_key,
)
from hummock.meta.store.base import MetaOperations, MetaStore
from hummock.meta.upload_registry import read_uploads
from hummock.meta.vacuum.obsolete_files import ObsoleteFiles, freed_for_all, read_obsolete
from hummock.meta.version_log import LogPosition, follow
from hummock.object_store.base import name_prefix


class Need(StrEnum):
    """The reason for which a file is kept or not."""

    LIVE = "live"               # the newest version holds it
    PINNED = "pinned"           # an older version does, which a reader may use
    IN_FLIGHT = "in flight"     # it is being written, or too young to decide
    STALE = "stale"             # no version in use holds it any more
    ORPHANED = "orphaned"       # it never entered a version, or was tombstoned


@dataclass(frozen=True, slots=True)
class References:
    """The references as of `position`; `lapsed`: expired upload rows, required and deleted."""

    position: LogPosition
    live: frozenset[str]
    pinned: frozenset[str]
    freed: frozenset[str]
    prefixes: frozenset[str]            # of the names of files being written
    tombstones: dict[str, Tombstone]
    generation: int                     # of the writer role
    now_ms: int                         # time of reading
    lapsed: MetaOperations

    @property
    def proof(self) -> MetaOperations:
        """Preconditions under which a file without a need will never be needed."""
        return self.position.requirement + self.lapsed

    def need_of(self, name: str, is_young: bool) -> Need:
        if name in self.live:
            return Need.LIVE
        if name in self.pinned:
            return Need.PINNED
        if name in self.freed:
            return Need.STALE
        if name in self.tombstones:
            return Need.ORPHANED
        return Need.IN_FLIGHT if is_young or name_prefix(name) in self.prefixes else Need.ORPHANED


def read_references(meta_store: MetaStore, known: LogPosition, clock: Clock) -> References:
    """The references as of the newest version; `known` is an older position. Raises `MetaStoreCorrupt`."""
    position = follow(meta_store, known)
    stale = read_obsolete(meta_store)
    leases, uploads, in_force = read_leases(meta_store), read_uploads(meta_store), set(_task_prefixes(meta_store))
    now_ms, require = clock(), {}
    floor, _ = pinned_floor(leases, stale, now_ms)
    freed = {name for row in freed_for_all(stale, floor) for name, _ in row.files}
    for prefix, upload in uploads.items():
        if upload.expires_ms > now_ms:
            in_force.add(prefix)
        else:
            require[upload_key(prefix)] = encode(upload)
    return References(
        position, frozenset(info.name for info in position.version.sstables),
        frozenset(name for row in stale for name, _ in row.files if name not in freed), frozenset(freed),
        frozenset(in_force), _tombstones(meta_store), generation_of(meta_store.get(WRITER)), now_ms,
        MetaOperations(require=require, delete=tuple(require)))


def pinned_floor(leases: Iterable[Lease], stale: list[ObsoleteFiles], now_ms: int) -> tuple[int | None, MetaOperations]:
    """The oldest version that a valid lease protects (None: there is no lease), and the operations that make acting on
    it safe: expired leases that would keep obsolete files are required unchanged and deleted.
    """
    floor, require = None, {}
    newest = max((row.version_id for row in stale), default=0)
    for lease in leases:
        if lease.expires_ms > now_ms:
            floor = lease.min_version if floor is None else min(floor, lease.min_version)
        elif lease.min_version < newest:
            require[lease_key(lease.node)] = encode(lease)
    return floor, MetaOperations(require=require, delete=tuple(require))


def _task_prefixes(meta_store: MetaStore) -> Iterable[str]:
    """The file name prefixes of each running compact task: of its attempt, and of earlier ones that may count."""
    for key, row in meta_store.list(TASK):
        try:
            record = json.loads(row)
            yield from (name_prefix(record["token"]), *map(word, record.get("earlier", ())))
        except MALFORMED as error:
            raise MetaStoreCorrupt(key, "token", "a task's token", str(error)) from error


def _tombstones(meta_store: MetaStore) -> dict[str, Tombstone]:
    return {key.removeprefix(VACUUMED): decode(Tombstone, key, row) for key, row in meta_store.list(VACUUMED)}
