"""examine: opens what is at a URL, as far as it can be opened, and runs the checks on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack

from hummock.backup.copy import missing_files
from hummock.backup.format import FINISHED, UNFINISHED, finished_paths, read_backup, unfinished
from hummock.backup.restore import read_restoring
from hummock.doctor.checks import CHECKS
from hummock.doctor.finding import Check, DoctorOptions, DoctorReport, Examined, Finding
from hummock.epoch import to_unix_ms
from hummock.errors import (
    FormatTooNew,
    HummockError,
    MetaStoreCorrupt,
    MetaStoreEmptied,
    MetaStoreRolledBack,
    StoreNotFound,
)
from hummock.meta.store.base import MetaStore
from hummock.meta.version_log import load
from hummock.meta.writer_process import running_writer
from hummock.object_store.base import ObjectStore
from hummock.tools.verify import verify_version


def examine(place: str, objects: ObjectStore, open_meta: Callable[[], MetaStore],
            options: DoctorOptions | None = None, more: Iterable[Check] = ()) -> DoctorReport:
    """Examines the store, or the directory of backups, that is in `objects`, and changes nothing.

    `open_meta` opens the meta store, which the report closes; `place` is how commands name the store. `more`: checks of
    upper layers. Raises `StoreNotFound` where there is neither; whatever else fails is a finding.
    """
    options, report = options or DoctorOptions(), DoctorReport()
    with ExitStack() as resources:
        try:
            meta_store = open_meta()
            resources.callback(meta_store.close)
            position = load(meta_store, objects)
            if position.head_bytes is None:
                raise StoreNotFound(objects.url)
            store = Examined(place, objects, meta_store, position, meta_store.now_ms(), options)
        except HummockError as error:
            if isinstance(error, StoreNotFound) and _holds_backups(objects):
                report.findings += _examine_backups(place, objects, options, report)
            else:
                report.findings += _cannot_open(place, objects, error)
        else:
            _examine_store(store, (*CHECKS, *more), report)
    report.sort()
    return report


def _examine_store(store: Examined, checks: Iterable[Check], report: DoctorReport) -> None:
    writer = running_writer(store.meta_store)
    files = list(store.version.sstables)
    report.about = {
        "store": store.objects.url, "meta": store.meta_store.url, "version": store.version.id,
        "committed_epoch": store.committed_epoch, "committed_ms": to_unix_ms(store.committed_epoch),
        "files": len(files), "bytes": sum(info.stored_bytes for info in files),
        "writer": None if writer is None else f"process {writer.pid} of {writer.host}",
    }
    for check in checks:
        report.findings += _run(check, store)


def _run(check: Check, store: Examined) -> Iterator[Finding]:
    """The findings of one check; an error that ends it is one."""
    try:
        yield from check(store)
    except HummockError as error:
        name = check.__name__.removeprefix("check_")
        yield Finding.error(name, f"cannot be examined: {type(error).__name__}: {error}", _remedy_of(error))


def _cannot_open(place: str, objects: ObjectStore, error: HummockError) -> Iterator[Finding]:
    """Why there is no store that could be examined."""
    if isinstance(error, StoreNotFound | MetaStoreEmptied):
        begun = list(_unfinished_restore(objects))
        yield from begun
        if begun:
            return
    if isinstance(error, StoreNotFound):
        raise error
    if isinstance(error, MetaStoreCorrupt) and not isinstance(error, MetaStoreRolledBack):
        remedy = f"hummock verify {place} --repair says what a repair would lose; hummock restore BACKUP STORE"
    else:
        remedy = _remedy_of(error)
    yield Finding.error("meta", f"{type(error).__name__}: {error}", remedy)


def _unfinished_restore(objects: ObjectStore) -> Iterator[Finding]:
    remedy = "repeat hummock restore, which goes on"
    try:
        begun = read_restoring(objects)
    except HummockError as error:
        yield Finding.error("restore", f"a restore has begun and not ended: {error}", remedy)
        return
    if begun is not None:
        yield Finding.error("restore", f"the restore of epoch {begun.epoch} of {begun.source} has not ended: there is "
                            "no store yet", remedy)


def _remedy_of(error: HummockError) -> str:
    if isinstance(error, FormatTooNew):
        return "open the store with the release that wrote it"
    if isinstance(error, MetaStoreRolledBack):
        return "put the newer copy back, or open the store with --accept-rollback, which gives up what is newer"
    if isinstance(error, MetaStoreEmptied):
        return "put the metadata back where it was, or restore a backup: hummock restore BACKUP STORE"
    return "see whether the store can be reached, and try again"


# -- directories of backups --------------------------------------------------------------------------------------


def _holds_backups(objects: ObjectStore) -> bool:
    return any(True for prefix in (FINISHED, UNFINISHED) for _ in objects.list(prefix))


def _examine_backups(place: str, target: ObjectStore, options: DoctorOptions,
                     report: DoctorReport) -> Iterator[Finding]:
    """Backups that have not ended, are damaged, or lack files; with `is_deep`, files whose content is damaged."""
    paths = finished_paths(target)
    report.about = {"backups": target.url, "finished": len(paths)}
    for path, begun in unfinished(target):
        epoch = "of an unknown epoch" if begun is None else f"of epoch {begun.epoch} of {begun.source}"
        yield Finding.warning("backup", f"{path}: a backup {epoch} has begun and not ended",
                              f"wait for it, or repeat hummock backup STORE {place}: it goes on, and removes this")
    seen: set[str] = set()
    for path in reversed(paths):
        remedy = f"delete {path}, and take a new backup: hummock backup STORE {place}"
        try:
            backup = read_backup(target, path)
            version = backup.version
        except HummockError as error:
            yield Finding.error("backup", f"{type(error).__name__}: {error}", remedy)
            continue
        files = [info for info in version.stored_files if info.name not in seen]
        seen.update(info.name for info in files)
        for missing in missing_files(files, target):
            yield Finding.error("backup", f"epoch {backup.info.epoch}: {missing}", remedy)
        if options.is_deep:
            for one in verify_version(version, target, threads=options.threads):
                for damage in one.damages:
                    yield Finding.error("backup", f"epoch {backup.info.epoch}: {damage}", remedy)
