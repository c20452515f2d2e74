"""Operations on a whole store, by URL: backup, restore and doctor.

    report = stream.backup("shop", "s3://backups/shop")         # while a session writes it
    stream.restore("s3://backups/shop", "shop-again")
    assert stream.doctor("shop-again", is_deep=True).is_healthy
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from os import PathLike
from typing import TypedDict, Unpack

from hummock.backup.copy import THREADS, Progress, unwatched
from hummock.backup.format import find_backup
from hummock.backup.restore import RestoreReport, check_objects, restore_backup
from hummock.backup.take import BackupReport, take_backup
from hummock.doctor.examine import examine
from hummock.doctor.finding import DoctorOptions, DoctorReport
from hummock.errors import StoreNotFound
from hummock.meta import open_meta_store
from hummock.meta.store.base import MetaStore
from hummock.metrics import Metrics
from hummock.object_store import open_object_store
from hummock.object_store.base import ObjectStore
from hummock.object_store.url import store_url
from relational.inbox.records import REQUESTS
from stream import store_checks

OPEN_REQUESTS = (REQUESTS,)
"""Rows that a backup leaves out: the objects that they name are in no version."""


class DoctorKeywords(TypedDict, total=False):
    """The fields of DoctorOptions as keyword arguments."""

    is_deep: bool
    threads: int
    grace_ms: int
    old_ms: int


def backup(
    url: str | PathLike[str],
    target: str | PathLike[str],
    *,
    meta: str | None = None,
    epoch: int | None = None,
    threads: int = THREADS,
    progress: Progress = unwatched,
    metrics: Metrics | None = None,
) -> BackupReport:
    """Copies the newest committed epoch of the store at `url`, whose metadata is at `meta`, to the directory or bucket
    `target`, beside what writes and reads it.

        report = stream.backup("shop", "shop-backups")      # epoch=db.flush(): with all that `db` has changed

    Later backups into the same `target` copy what is new. `epoch`: what was committed up to it has to be in the backup,
    which waits for it. `progress` is called with the bytes of each file that is there and those of all; `metrics`
    counts the requests to both stores. StoreNotFound, BackupRefused, WaitEpochTimeout; Corruption, ObjectStoreError and
    MetaStoreError name what could not be read or written: then this backup is not there, and the earlier ones are.
    """
    with opened(url, meta, metrics) as (meta_store, objects), opened_objects(target, metrics) as to:
        return take_backup(meta_store, objects, to, epoch=epoch, leave_out=OPEN_REQUESTS, threads=threads,
                           progress=progress)


def restore(
    source: str | PathLike[str],
    url: str | PathLike[str],
    *,
    meta: str | None = None,
    epoch: int | None = None,
    threads: int = THREADS,
    progress: Progress = unwatched,
    metrics: Metrics | None = None,
) -> RestoreReport:
    """Makes a store at `url`, where there is none, from the newest backup in `source`, or from that of `epoch`.

        stream.restore("shop-backups", "shop-again")
        db = stream.connect("shop-again")

    Its tables, views, sources, sinks and cursors are those of the epoch. An interrupted restore is continued by the
    same call. BackupNotFound, StoreExists, BackupRefused; Corruption, ObjectStoreError and MetaStoreError as in
    `backup`: then there is no store.
    """
    with (opened_objects(source, metrics) as found, opened_objects(url, metrics) as objects,
          ExitStack() as resources):
        kept = find_backup(found, epoch)
        try:
            meta_store = open_meta_store(store_url(url), meta, object_store=objects, create=False)
        except StoreNotFound:
            check_objects(objects, kept)
            meta_store = open_meta_store(store_url(url), meta, object_store=objects)
        resources.callback(meta_store.close)
        return restore_backup(kept, found, meta_store, objects, threads=threads, progress=progress)


def doctor(url: str | PathLike[str], *, meta: str | None = None, **options: Unpack[DoctorKeywords]) -> DoctorReport:
    """What is wrong with the store at `url`, or will be, and what helps: see `hummock.doctor`. Nothing is changed.

        for finding in stream.doctor("shop").findings:
            print(finding.severity, finding.what, finding.remedy)

    At a directory of backups it looks at those. `is_deep` verifies content, `threads` files at once. `grace_ms`:
    younger files that are in no version may be of a writer. `old_ms`: what keeps an epoch for longer is a finding.
    StoreNotFound, InvalidOption.
    """
    place = f"{url} --meta {meta}" if meta else str(url)
    with opened_objects(url) as objects:
        return examine(
            place, objects, lambda: open_meta_store(store_url(url), meta, object_store=objects, create=False),
            DoctorOptions(**options), store_checks.CHECKS)


@contextmanager
def opened(url: str | PathLike[str], meta: str | None,
           metrics: Metrics | None) -> Iterator[tuple[MetaStore, ObjectStore]]:
    """Both stores at `url`. StoreNotFound."""
    with ExitStack() as resources:
        objects = resources.enter_context(opened_objects(url, metrics))
        meta_store = open_meta_store(store_url(url), meta, object_store=objects, create=False)
        resources.callback(meta_store.close)
        yield meta_store, objects


@contextmanager
def opened_objects(url: str | PathLike[str], metrics: Metrics | None = None) -> Iterator[ObjectStore]:
    """The object store at `url`, in which nothing is made before something is written."""
    objects = open_object_store(store_url(url), metrics=metrics, create=False)
    try:
        yield objects
    finally:
        objects.close()
