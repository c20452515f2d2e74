"""Repair of a log in a bucket: truncates it to the last record up to which everything is intact.

Planning only reads. REQUIRES, for execution, that no process has the store open.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from hummock.errors import HummockError, MetaStoreCorrupt, MetaStoreError
from hummock.meta.records import HEAD, Head, decode
from hummock.meta.store.object_log import LogState
from hummock.meta.store.object_log_format import CHECKPOINT_MAGIC, LogRecord
from hummock.meta.store.object_log_gc import LogListing, LogObjects, checkpoint_path, record_path
from hummock.meta.store.rollback_guard_bucket import BucketRollbackGuard, GuardRecord
from hummock.object_store.base import ObjectStore


@dataclass(frozen=True, slots=True)
class LogRepair:
    """The log is intact up to `serial` of `last`, where `committed_epoch` was committed.

    `damages`: descriptions by path. `paths`: all objects to quarantine, the damaged and the later ones.
    """

    store_id: bytes
    serial: int
    digest: bytes
    last: int
    committed_epoch: int
    damages: dict[str, str]
    paths: tuple[str, ...]


def plan_log_repair(objects: ObjectStore) -> LogRepair:
    """The repair that loses least. Raises `MetaStoreError` if there is no log or nothing of it is intact."""
    store_id = BucketRollbackGuard(objects, os.urandom).identity(False)
    log = LogObjects(objects)
    listing = log.listing()
    if store_id is None or not listing.last:
        raise MetaStoreError(f"{objects.url} holds no log that could be repaired")
    damages: dict[str, str] = {}
    starts = [state for serial in sorted(listing.checkpoints, reverse=True)
              if (state := _start(log, store_id, serial, damages)) is not None]
    if 1 in listing.records:
        starts.append(LogState(store_id))
    best: LogState | None = None
    for state in starts:
        _replay(log, state, listing, damages)
        if best is None or state.serial > best.serial:
            best = state
    if best is None or not best.serial:
        raise MetaStoreCorrupt(objects.url, "log", "one whole checkpoint or first record", sorted(damages))
    later = [*(checkpoint_path(serial) for serial in listing.checkpoints if serial > best.serial),
             *(record_path(serial) for serial in listing.records if serial > best.serial)]
    row = best.rows.get(HEAD)
    epoch = 0 if row is None else decode(Head, HEAD, row).committed_epoch
    there = {*map(checkpoint_path, listing.checkpoints), *map(record_path, listing.records)}
    apart = tuple(sorted({*later, *damages} & there))
    return LogRepair(store_id, best.serial, best.digest, listing.last, epoch, damages, apart)


def carry_out_log_repair(repair: LogRepair, objects: ObjectStore, set_apart: Callable[[str], object]) -> None:
    """Passes each object to `set_apart` and removes it; the rollback guard accepts the last intact record as the
    newest.
    """
    for path in repair.paths:
        set_apart(path)
    objects.delete(repair.paths)
    BucketRollbackGuard(objects, os.urandom).go_back(GuardRecord(repair.store_id, repair.serial, repair.digest))


def _start(log: LogObjects, store_id: bytes, serial: int, damages: dict[str, str]) -> LogState | None:
    """The rows of a checkpoint, None if it is damaged."""
    path = checkpoint_path(serial)
    try:
        found, _ = LogRecord.decode(log.checkpoint(serial) or b"", path, CHECKPOINT_MAGIC)
        if (found.store_id, found.serial) != (store_id, serial):
            raise MetaStoreCorrupt(path, "place in the log", (store_id, serial), (found.store_id, found.serial))
    except MetaStoreCorrupt as error:
        damages[path] = str(error)
        return None
    state = LogState(store_id)
    state.jump(found)
    return state


def _replay(log: LogObjects, state: LogState, listing: LogListing, damages: dict[str, str]) -> None:
    """Applies the following records, up to the first that is damaged or missing."""
    while state.serial < listing.last:
        path = record_path(state.serial + 1)
        data = log.record(state.serial + 1)
        if data is None:
            if state.serial + 1 > listing.newest_checkpoint:
                damages[path] = f"{path} is missing"
            return
        try:
            state.apply(*LogRecord.decode(data, path))
        except HummockError as error:
            damages[path] = str(error)
            return
