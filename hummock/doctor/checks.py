"""Checks of a store's files, versions and rows. Each yields findings and changes nothing."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hummock.backup.copy import missing_files
from hummock.backup.format import RESTORING
from hummock.doctor.finding import Check, Examined, Finding
from hummock.epoch import to_unix_ms, wall_clock_ms
from hummock.errors import Corruption, FormatTooNew, HummockError, ObjectNotFound
from hummock.meta.compaction.records import read_running
from hummock.meta.leases import HELD, read_leases
from hummock.meta.store.object_log_gc import LogObjects
from hummock.meta.upload_registry import read_uploads
from hummock.meta.vacuum.obsolete_files import read_obsolete
from hummock.meta.vacuum.references import Need
from hummock.meta.version_log import deltas_kept, follow
from hummock.object_store import directory_of
from hummock.object_store.base import sstable_name_of
from hummock.object_store.local import TEMPORARY
from hummock.options import MIB, CompactionOptions, MetaOptions
from hummock.tools.repair import QUARANTINE
from hummock.tools.verify import ROWS, decode_row, verify_version

SHOWN = 3                       # of many alike, before "and n more"
SKEW_MS = 5_000
LOW_SHARE, EMPTY_SHARE = 0.1, 0.02      # of a disk's space that is free
PINNED_BYTES = 256 * MIB        # of files that only readers need
LARGE_BYTES = 1 << 30           # of temporary files
LOG_FACTOR = 8                  # records of a log in a bucket, in checkpoints' distances
SHAPE = CompactionOptions()


def check_rows(store: Examined) -> Iterator[Finding]:
    """Rows that this release cannot read."""
    for key, row in store.meta_store.list(ROWS):
        try:
            decode_row(key, row)
        except FormatTooNew as error:
            yield Finding.error("format", str(error), "open the store with the release that wrote it")
        except HummockError as error:
            yield Finding.error("meta rows", str(error), f"hummock verify {store.place}, and restore a backup")


def check_files(store: Examined) -> Iterator[Finding]:
    """Objects of the version that are absent or have another length; with `is_deep`, damaged content too."""
    if store.options.is_deep:
        found = verify_version(store.version, store.objects, threads=store.options.threads,
                               refresh=lambda: follow(store.meta_store, store.position).version)
        damages = {one.path: one.damages[0] for one in found if one.damages}
    else:
        errors = {_path_of(error): error for error in missing_files(store.version.stored_files, store.objects)}
        newest = follow(store.meta_store, store.position).version
        live = {info.name for info in newest.sstables} if errors else set()
        damages = {path: str(error) for path, error in errors.items() if sstable_name_of(path) in live}
    for what in _some(list(damages.values())):
        yield Finding.error("files", what, f"hummock verify {store.place} --repair says what would be lost; "
                            "hummock restore BACKUP makes a whole store")


def check_orphans(store: Examined) -> Iterator[Finding]:
    """Files that nothing needs, and what vacuum leaves alone."""
    orphaned, stale = store.stored.found[Need.ORPHANED], store.stored.found[Need.STALE]
    remedy = f"hummock vacuum {store.place}"
    if orphaned.files:
        yield Finding.warning("orphans", f"{orphaned}, are in no version, and nobody writes them", remedy)
    if stale.files and stale.bytes > max(store.stored.found[Need.LIVE].bytes, PINNED_BYTES):
        yield Finding.warning("orphans", f"{stale}, left the versions and were not removed: no vacuum runs", remedy)
    if store.stored.foreign_objects:
        yield Finding.note("orphans", f"{store.stored.foreign_objects:,} objects under sst/ are no files of a "
                           "store: vacuum leaves them alone")


def check_leases(store: Examined) -> Iterator[Finding]:
    """Leases of processes that died, and live ones that hold back what compaction and vacuum would remove. Those that
    belong to no process are left to the layer that writes them."""
    obsolete = read_obsolete(store.meta_store)
    for lease in read_leases(store.meta_store):
        if lease.holder == HELD:
            continue
        kept = [size for row in obsolete if row.version_id > lease.min_version for _, size in row.files]
        behind_ms = store.held_ms(lease.min_epoch)
        if lease.expires_ms <= store.now_ms:
            ended = f"the lease of {lease.node} ended {_span(store.now_ms - lease.expires_ms)} ago: its process died"
            if kept:
                kept_files = f"{len(kept):,} files of {_mib(sum(kept))} were kept for it"
                yield Finding.warning("leases", f"{ended}, and {kept_files}", f"hummock vacuum {store.place}")
            else:
                yield Finding.note("leases", f"{ended}; it keeps nothing")
            continue
        if behind_ms > store.options.old_ms:
            yield Finding.warning("old pins", f"{lease.node} keeps all that changed since epoch {lease.min_epoch}, "
                                  f"{_span(behind_ms)} back", "end that reader, or its query")
        if sum(kept) > PINNED_BYTES:
            yield Finding.warning("old pins", f"{lease.node} keeps {len(kept):,} files of {_mib(sum(kept))} that only "
                                  f"versions from {lease.min_version} on hold", "end that reader, or its query")
    dead = Counter(row.node for row in read_uploads(store.meta_store).values() if row.expires_ms <= store.now_ms)
    for node, count in dead.items():
        yield Finding.note("leases", f"{node} registered {count:,} names of files and died",
                           f"hummock vacuum {store.place}")


def check_debt(store: Examined) -> Iterator[Finding]:
    """Work that compaction is behind with."""
    runs, remedy = len(store.version.levels[0].runs), f"hummock compact {store.place}"
    if runs >= SHAPE.l0_runs_slowdown:
        yield Finding.warning("debt", f"level 0 has {runs} runs: writers are delayed from {SHAPE.l0_runs_slowdown} on, "
                              f"most from {SHAPE.l0_runs_limit} on, and reads look into each", remedy)
    rows = sum(info.rows for info in store.version.sstables)
    stale = sum(info.stale_rows + info.tombstones for info in store.version.sstables)
    if rows and stale > rows / 2 and store.stored.found[Need.LIVE].bytes > PINNED_BYTES:
        yield Finding.warning("debt", f"{stale:,} of {rows:,} rows are deletes or older versions", remedy)
    for row in read_running(store.meta_store):
        if row.error:
            yield Finding.warning("debt", f"compact task {row.task.id} failed {row.tries} times: {row.error}", remedy)
        elif row.expires_ms <= store.now_ms:
            yield Finding.note("debt", f"compact task {row.task.id} waits for a compactor: {row.holder} died", remedy)


def check_log(store: Examined) -> Iterator[Finding]:
    """Logs that grow because nobody checkpoints them."""
    options, head = MetaOptions(), store.position.head
    deltas = head.version_id - head.checkpoint_id
    if deltas > 2 * deltas_kept(store.version, options.checkpoint_deltas):
        yield Finding.warning("log", f"{deltas:,} versions since the last checkpoint", "open the store as a "
                              "writer: a commit writes the checkpoint")
    log = LogObjects(store.objects).listing()
    length = log.last - log.newest_checkpoint
    if length > options.log_checkpoint_records * LOG_FACTOR:
        yield Finding.warning("log", f"{length:,} records of the log follow its last checkpoint, and each opening "
                              "reads all of them", "open it as a writer: a transaction writes the checkpoint, unless "
                              "requests of the object store fail")


def check_clock(store: Examined) -> Iterator[Finding]:
    """Clocks that disagree."""
    skew_ms = store.now_ms - wall_clock_ms()
    if abs(skew_ms) > SKEW_MS:
        yield Finding.warning("clock", f"the clock of this machine is {_span(abs(skew_ms))} "
                              f"{'behind' if skew_ms > 0 else 'ahead of'} that of the meta store, by which leases end",
                              "set the clock: NTP")
    ahead_ms = to_unix_ms(store.committed_epoch) - store.now_ms
    if store.committed_epoch and ahead_ms > SKEW_MS:
        yield Finding.warning("clock", f"the committed epoch is {_span(ahead_ms)} ahead: a writer's clock was "
                              "fast, and times of epochs are wrong until then", "set the clocks of the writers: NTP")


def check_space(store: Examined) -> Iterator[Finding]:
    """Space on the disk of a store in a directory, and temporary files on it."""
    if not store.objects.url.startswith("file:"):
        return
    root = Path(directory_of(store.objects.url))
    usage = shutil.disk_usage(root)
    share, live = usage.free / usage.total, store.stored.found[Need.LIVE].bytes
    if share < LOW_SHARE:
        kind = Finding.error if share < EMPTY_SHARE else Finding.warning
        yield kind("disk", f"{_mib(usage.free)} of {_mib(usage.total)} are free; the store has {_mib(live)}, and "
                   "compaction needs as much again at worst", f"free space, or hummock vacuum {store.place}")
    yield from _temporary_files(root / TEMPORARY, store.now_ms - store.options.old_ms)


def _temporary_files(directory: Path, before_ms: int) -> Iterator[Finding]:
    """What interrupted writes left: an opening removes it once it is a day old."""
    old = [status.st_size for path in (directory.iterdir() if directory.is_dir() else ())
           if (status := path.stat()).st_mtime_ns // 1_000_000 < before_ms]
    if old:
        kind = Finding.warning if sum(old) > LARGE_BYTES else Finding.note
        yield kind("leftovers", f"{len(old):,} temporary files of {_mib(sum(old))} in {directory} are of writes that "
                   "ended early", "an opening of the store removes them once they are a day old")


def check_leftovers(store: Examined) -> Iterator[Finding]:
    """Objects of operations that ended early."""
    if any(True for _ in store.objects.list(RESTORING)):
        yield Finding.warning("leftovers", f"the object {RESTORING} is of a restore that ended: the store is "
                              "whole", "repeat hummock restore, which removes it, or delete it")
    apart = [found.size_bytes for found in store.objects.list(QUARANTINE)]
    if apart:
        yield Finding.note("leftovers", f"{len(apart):,} objects of {_mib(sum(apart))} under {QUARANTINE} were "
                           "set apart by repairs", "delete them once they are of no use")


CHECKS: tuple[Check, ...] = (check_rows, check_files, check_orphans, check_leases, check_debt, check_log, check_clock,
                             check_space, check_leftovers)


def _path_of(error: ObjectNotFound | Corruption) -> str:
    """The object that an error of `missing_files` is about."""
    return error.path if isinstance(error, ObjectNotFound) else error.object_name


def _some(texts: list[str]) -> list[str]:
    """The first few, and how many more there are."""
    more = len(texts) - SHOWN
    return texts if more <= 0 else [*texts[:SHOWN], f"and {more:,} more like these"]


def _span(ms: int) -> str:
    """A time in its largest unit."""
    for unit, name in ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes")):
        if ms >= 2 * unit:
            return f"{ms // unit:,} {name}"
    return f"{max(ms, 0) / 1_000:.0f} seconds"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / MIB:,.0f} MiB"
