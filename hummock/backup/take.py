"""take_backup: a consistent copy of a store at one committed epoch, while other processes write, compact and vacuum it.

    1  pin the newest version, as a reader does              vacuum keeps its files, and those of every later one
    2  read all rows of the meta store, in one snapshot      they name the version and the epoch of the backup
    3  write `unfinished/<token>`
    4  copy the version's files that the target lacks, each block checked
    5  list the files of the target: each is there, with its size
    6  write `backup/<epoch>-<version>`                      from here on the backup is there
    7  delete `unfinished/<token>`, and those of interrupted backups before it

What the rows describe is the state that the store would be in if its writer had died at that moment, which every
opening recovers from. Rows of processes are left out: leases, uploads, compact tasks, obsolete files. The leases of
cursors, which belong to no process, are kept.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from hummock.backup.copy import THREADS, Copied, Progress, copy_files, missing_files, unwatched
from hummock.backup.format import (
    FINISHED,
    RESTORING,
    UNFINISHED,
    Backup,
    BackupInfo,
    finished_paths,
    read_backup,
    unfinished,
)
from hummock.base.logs import Event
from hummock.epoch import Epoch
from hummock.errors import BackupRefused, MetaStoreCorrupt, ObjectNotFound, ObjectStoreError, StoreNotFound
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.leases import HELD
from hummock.meta.records import (
    CHECKPOINT,
    HEAD,
    LEASES,
    LOADS,
    TASKS,
    WRITER,
    Head,
    Lease,
    decode,
    encode,
    encode_value,
)
from hummock.meta.store.base import MetaOperations, MetaStore
from hummock.meta.store.memory import MemoryMetaStore
from hummock.meta.version_log import NOWHERE, LogPosition, follow
from hummock.object_store.base import SSTABLE_PREFIX, ObjectStore, RandomBytes
from hummock.options import StorageOptions
from hummock.store.pinned_version import LocalVersionManager
from hummock.tools.verify import ROWS, decode_row
from hummock.version import HummockVersion

KEPT_ROWS = (WRITER, TASKS, LOADS)
STORE_OBJECTS = ("meta", "store/", RESTORING)
"""Beginnings of paths of a store, which a directory of backups has none of."""
MEMORY = "memory://"            # a URL that says nothing
WAIT_MS = 10_000
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The backup, and how much of it had to be copied. `damaged`: newer records of backups than the last one that can
    be read, of which `Corruption` would tell more."""

    info: BackupInfo
    copied: Copied
    damaged: tuple[str, ...] = ()


def take_backup(meta_store: MetaStore, objects: ObjectStore, target: ObjectStore, *, epoch: int | None = None,
                leave_out: Sequence[str] = (), threads: int = THREADS, progress: Progress = unwatched,
                wait_ms: int = WAIT_MS, random_bytes: RandomBytes = os.urandom) -> BackupReport:
    """Copies the newest committed epoch of a store to the directory of backups `target`.

    Only files that `target` lacks are copied, `threads` at once. `epoch`: what was committed up to it has to be in the
    backup, which waits for it, up to `wait_ms`: `WaitEpochTimeout`. `leave_out`: beginnings of rows of upper layers
    that mean nothing without the processes that run now. Raises `BackupRefused` where `target` holds something else,
    `Corruption`, `ObjectStoreError` and `MetaStoreError`, which name what could not be read or written, and
    `SnapshotExpired`. After any error the target holds the earlier backups, and this one wholly or not at all.
    """
    damaged = check_target(target, source_of(objects))
    with ExitStack() as resources:
        manager = HummockManager(meta_store, objects, random_bytes=random_bytes)
        resources.callback(manager.close)
        local = LocalVersionManager(manager, f"backup-{random_bytes(8).hex()}")
        resources.callback(local.close)
        local.start(StorageOptions().refresh_ms)
        if epoch is not None:
            local.wait_epoch(Epoch(epoch), wait_ms)
        pinned = resources.enter_context(local.pin())
        version, rows = select_rows(dict(meta_store.list("")), leave_out, meta_store.url)
        files = list(version.stored_files)
        info = BackupInfo(source_of(objects), version.max_committed_epoch, version.id, meta_store.now_ms(), len(files),
                          sum(file.stored_bytes for file in files))
        marker = f"{UNFINISHED}{random_bytes(8).hex()}"
        target.put(marker, info.to_bytes())
        try:
            copied = copy_files(files, objects, target, threads=threads, progress=progress)
        except ObjectNotFound:
            pinned.check()
            raise
        for error in missing_files(files, target):
            raise error
        target.put(info.path, Backup(info, rows).encode())
    with suppress(ObjectStoreError):        # the backup is there
        ended = [path for path, begun in unfinished(target) if begun is None or begun.taken_ms <= info.taken_ms]
        target.delete(list(dict.fromkeys([marker, *ended])))
    log.info(Event("backup done", target=target.url, epoch=info.epoch, files=info.files, copied=copied.files,
                   bytes=copied.bytes))
    return BackupReport(info, copied, tuple(path for path in damaged if path != info.path))


def source_of(objects: ObjectStore) -> str:
    """The URL of a store as its backups name it: without options of access and a slash at its end."""
    url = objects.url.partition("?")[0]
    return url if url.endswith("//") else url.rstrip("/")


def check_target(target: ObjectStore, source: str) -> list[str]:
    """Raises `BackupRefused` unless `target` is empty or holds backups of the store at `source`, and nothing else.

    Returns the paths of those that are damaged, as far as it had to read them.
    """
    if source_of(target) == source != MEMORY:
        raise BackupRefused(target.url, "it is the store itself")
    for prefix in STORE_OBJECTS:
        if any(True for _ in target.list(prefix)):
            raise BackupRefused(target.url, "it holds a store")
    finished, damaged = finished_paths(target), []
    begun = list(unfinished(target))
    sources = [info.source for _, info in begun if info is not None]
    for path in reversed(finished):
        try:
            sources.append(read_backup(target, path).info.source)
            break
        except MetaStoreCorrupt:
            damaged.append(path)
    for found in sources:
        if found != source:
            raise BackupRefused(target.url, f"it holds backups of another store, {found}, and not of {source}")
    if not begun and not finished and any(True for _ in target.list(SSTABLE_PREFIX)):
        raise BackupRefused(target.url, f"it holds files under {SSTABLE_PREFIX}, but no backup under {FINISHED}")
    return damaged


def select_rows(rows: Mapping[str, bytes], leave_out: Sequence[str],
                url: str) -> tuple[HummockVersion, dict[str, bytes]]:
    """The version in a snapshot of all rows, and the rows of a store that has it as its first one.

    Raises `MetaStoreCorrupt` and `FormatTooNew` for a row that cannot be read, `StoreNotFound` if there is no version.
    """
    position = _position_of(rows)
    if position.head_bytes is None:
        raise StoreNotFound(url)
    kept = {key: row for key, row in rows.items() if not key.startswith(tuple(leave_out)) and _is_kept(key, row)}
    version = position.version
    head = Head(version.id, version.max_committed_epoch, version.id, position.head.next_file_id)
    return version, {**kept, HEAD: encode(head), CHECKPOINT: encode_value(version)}


def _position_of(rows: Mapping[str, bytes]) -> LogPosition:
    snapshot = MemoryMetaStore()
    snapshot.transaction(MetaOperations(put=rows))
    return follow(snapshot, NOWHERE)


def _is_kept(key: str, row: bytes) -> bool:
    if not key.startswith(ROWS):
        return True
    decode_row(key, row)
    if key.startswith(LEASES):
        return decode(Lease, key, row).holder == HELD
    return key.startswith(KEPT_ROWS)
