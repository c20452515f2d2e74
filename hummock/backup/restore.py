"""restore_backup: a new store from a backup.

    1  write `restoring`, which names the backup             a later try of the same backup goes on from here
    2  copy the files that are not there, each block checked
    3  list the files: each is there, with its size
    4  create the rows, if there are none                    one transaction: from here on it is a store
    5  delete `restoring`

The writer role has a new generation, which no process holds; leases of cursors last as long as they did when the backup
was taken. There is nothing else of the processes that ran then.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import dataclass, replace

from hummock.backup.copy import THREADS, Copied, Progress, copy_files, missing_files, unwatched
from hummock.backup.format import FINISHED, RESTORING, UNFINISHED, Backup, BackupInfo
from hummock.base.logs import Event
from hummock.errors import (
    BackupRefused,
    MetaStoreCorrupt,
    ObjectNotFound,
    ObjectStoreError,
    OutcomeUnknown,
    PreconditionFailed,
    StoreExists,
)
from hummock.meta.records import HEAD, LEASES, WRITER, Lease, decode, encode, generation_of
from hummock.meta.store.base import MetaOperations, MetaStore
from hummock.meta_client import WriterSession
from hummock.object_store.base import SSTABLE_PREFIX, ObjectStore, RandomBytes

NODE = "restore"
ATTEMPTS = 16           # at a transaction of unknown outcome
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """The backup that was restored, and how much an interrupted try had left to copy."""

    info: BackupInfo
    copied: Copied


def restore_backup(backup: Backup, source: ObjectStore, meta_store: MetaStore, objects: ObjectStore, *,
                   threads: int = THREADS, progress: Progress = unwatched,
                   random_bytes: RandomBytes = os.urandom) -> RestoreReport:
    """Makes `meta_store` and `objects`, which hold nothing, the store of a backup in `source`.

    An interrupted restore of the same backup is continued. Raises `StoreExists` and `BackupRefused` where there is
    something already, `Corruption` naming the object that is not as it was stored, `ObjectStoreError`,
    `MetaStoreError`. After any error there is no store, or all of it.
    """
    version, info = backup.version, backup.info
    if _is_restored(meta_store, objects, backup):
        objects.delete([RESTORING])
        return RestoreReport(info, Copied(present_files=info.files))
    objects.put(RESTORING, info.to_bytes())
    files = list(version.stored_files)
    copied = copy_files(files, source, objects, threads=threads, progress=progress)
    for error in missing_files(files, objects):
        raise error
    _create_rows(meta_store, objects, backup, random_bytes)
    with suppress(ObjectStoreError):        # the store is there; `hummock doctor` names what is left
        objects.delete([RESTORING])
    log.info(Event("restore done", store=objects.url, epoch=info.epoch, files=info.files, copied=copied.files,
                   bytes=copied.bytes))
    return RestoreReport(info, copied)


def read_restoring(objects: ObjectStore) -> BackupInfo | None:
    """The backup that is being restored to `objects`, or whose restore was interrupted. Raises `MetaStoreCorrupt`."""
    try:
        return BackupInfo.from_bytes(RESTORING, objects.get(RESTORING))
    except ObjectNotFound:
        return None


def check_objects(objects: ObjectStore, backup: Backup) -> None:
    """Raises `BackupRefused` unless `objects` holds no files, or those of an interrupted restore of the backup."""
    begun = _begun(objects, backup)
    if begun is not None and begun != backup.info:
        raise BackupRefused(objects.url, f"another backup, of epoch {begun.epoch} of {begun.source}, was being restored"
                                         " to it: empty it first")
    for prefix in (FINISHED, UNFINISHED, *([SSTABLE_PREFIX] if begun is None else [])):
        if any(True for _ in objects.list(prefix)):
            raise BackupRefused(objects.url, f"it holds files under {prefix}")


def _begun(objects: ObjectStore, backup: Backup) -> BackupInfo | None:
    """The backup whose restore has begun; one that was interrupted while it noted that has copied nothing."""
    try:
        return read_restoring(objects)
    except MetaStoreCorrupt:
        return backup.info


def _is_restored(meta_store: MetaStore, objects: ObjectStore, backup: Backup) -> bool:
    """Whether the restore has ended but for its last step. Raises `StoreExists`, `BackupRefused`."""
    rows = dict(meta_store.list(""))
    if not rows:
        check_objects(objects, backup)
        return False
    if _begun(objects, backup) != backup.info or rows.get(HEAD) != backup.rows[HEAD]:
        raise StoreExists(meta_store.url)
    return True


def _create_rows(meta_store: MetaStore, objects: ObjectStore, backup: Backup, random_bytes: RandomBytes) -> None:
    """Raises `StoreExists` if another process made a store there meanwhile."""
    rows = _rows_from_now_on(backup, meta_store.now_ms(), random_bytes)
    operations = MetaOperations(require={HEAD: None, WRITER: None}, put=rows)
    for attempt in range(ATTEMPTS):
        try:
            meta_store.transaction(operations)
        except PreconditionFailed as error:
            if meta_store.get(WRITER) != rows[WRITER]:
                raise StoreExists(objects.url, "another process has made a store there meanwhile") from error
        except OutcomeUnknown:
            if attempt == ATTEMPTS - 1:
                raise
            continue
        return


def _rows_from_now_on(backup: Backup, now_ms: int, random_bytes: RandomBytes) -> dict[str, bytes]:
    """The rows, with a generation of the writer role that nobody holds and leases that begin now."""
    rows, taken_ms = dict(backup.rows), backup.info.taken_ms
    rows[WRITER] = encode(WriterSession(generation_of(rows.get(WRITER)) + 1, NODE, random_bytes(16).hex()))
    for key in [key for key in rows if key.startswith(LEASES)]:
        lease = decode(Lease, key, rows[key])
        left_ms = lease.expires_ms - taken_ms
        if left_ms > 0:
            rows[key] = encode(replace(lease, expires_ms=now_ms + left_ms))
        else:
            del rows[key]
    return rows
