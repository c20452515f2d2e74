"""Vacuum removes the files that nothing needs, and no other, while all other work continues.

It may run in any process, in several at once, and end at any instruction; the next run continues.

    Obsolete files  0  in a process that reads too, advance its leases to what it still reads
                    1  read the obsolete list, then the leases
                    2  delete expired leases, if they keep files                   transaction
                    3  delete the objects that no version in use holds
                    4  delete their rows of the obsolete list                      transaction
    Orphans         5  list objects, page by page
                    6  read the references (`References` explains this order)
                    7  tombstone the names without a need                          transaction: it proves that
                    8  delete their objects
                    9  delete tombstones whose object is gone and whose name       transaction
                       can no longer be committed: the writer role moved on, long ago
    Progress logs  10  list the progress logs of large compact tasks, then read the tasks
                   11  delete those whose task is not running any more
    Probes         12  list leftovers of executor checks, and delete those older than the grace

A tombstoned name never enters a version: a late commit is refused, so no data is lost silently. Removal is decided by
rows, not by age; the grace only spares files of unregistered writers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import groupby, islice
from typing import Any, TypeVar

from hummock.compaction.progress_log import LOG_PREFIX, task_id_of
from hummock.epoch import Clock, monotonic_seconds
from hummock.errors import MetaStoreCorrupt, MetaStoreError, ObjectStoreError, PreconditionFailed
from hummock.meta.compaction.records import read_running
from hummock.meta.leases import read_leases
from hummock.meta.records import Tombstone, encode, vacuumed_key
from hummock.meta.store.base import MetaOperations, MetaStore
from hummock.meta.vacuum.obsolete_files import ObsoleteFiles, freed_for_all, read_obsolete
from hummock.meta.vacuum.references import Need, References, pinned_floor, read_references
from hummock.meta.version_log import follow, load
from hummock.metrics import Metrics
from hummock.object_store.base import (
    PROBE_PREFIX,
    SSTABLE_PREFIX,
    ObjectMeta,
    ObjectStore,
    is_sstable_name,
    sstable_data_path,
    sstable_meta_path,
    sstable_name_of,
)
from hummock.options import VacuumOptions


@dataclass(slots=True)
class Footprint:
    """A number of files and their stored bytes, `.data` and `.meta` together."""

    files: int = 0
    bytes: int = 0

    def add(self, size_bytes: int) -> None:
        self.files += 1
        self.bytes += size_bytes

    def __str__(self) -> str:
        return f"{self.files:,} files, {self.bytes:,} bytes"


@dataclass(slots=True)
class VacuumReport:
    """The files that were found, by need, before any removal; obsolete ones according to the obsolete list."""

    dry_run: bool = False
    found: dict[Need, Footprint] = field(default_factory=lambda: {need: Footprint() for need in Need})
    removed: Footprint = field(default_factory=Footprint)
    objects_listed: int = 0
    foreign_objects: int = 0        # not part of any file of the store: left alone
    pages_left: int = 0             # pages that concurrent commits invalidated at every try
    is_complete: bool = False       # the whole listing was processed

    def rows(self) -> Iterator[tuple[str, int, int]]:
        """(word, files, bytes), as a table shows them."""
        for need in Need:
            yield need.value, self.found[need].files, self.found[need].bytes
        yield "would be removed" if self.dry_run else "removed", self.removed.files, self.removed.bytes

    def to_json(self) -> dict[str, Any]:
        record = asdict(self)
        record["found"] = {need.value.replace(" ", "_"): footprint for need, footprint in record["found"].items()}
        return record

    def __repr__(self) -> str:
        parts = "; ".join(f"{word}: {files:,} files, {size:,} bytes" for word, files, size in self.rows() if files)
        return f"<vacuum{'' if self.is_complete else ' (in part)'}: {parts or 'nothing stored'}>"


ATTEMPTS = 16           # tries against other processes before a page is skipped
Result = TypeVar("Result")
Watch = Callable[[VacuumReport], bool]


def unwatched(report: VacuumReport) -> bool:
    """The default `watch`: never ends a run."""
    return True


class _Overtaken(MetaStoreError):
    """Every try was invalidated by concurrent changes."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A listed file: one or both of its objects."""

    name: str
    bytes: int
    modified_ms: int


class Vacuum:
    """Removes what is not needed from one store. Not thread safe by itself; any number may work at once.

    Leases expire by the meta store's clock unless `clock` is given. `lift` is called before leases are read: it
    releases what this process has pinned and does not need. Raises `MetaStoreEmptied` if objects exist that a lost meta
    store must have referenced.
    """

    def __init__(self, meta_store: MetaStore, object_store: ObjectStore, clock: Clock | None = None, *,
                 options: VacuumOptions | None = None, metrics: Metrics | None = None,
                 lift: Callable[[], None] = lambda: None):
        self.options, self.metrics = options or VacuumOptions(), metrics or Metrics()
        self._meta_store, self._object_store, self._clock = meta_store, object_store, clock or meta_store.now_ms
        self._lift = lift
        self._position = load(meta_store, object_store)
        self._behind = ""               # the last file of an unfinished listing

    def run(self, *, dry_run: bool = False, watch: Watch = unwatched) -> VacuumReport:
        """Removes obsolete files and orphans; `dry_run` only reports them.

        `watch` is called with the report after each page; if it returns False, the run ends. So does a run that has
        listed `objects_per_run`; the next continues there.
        """
        began = monotonic_seconds()
        report = VacuumReport(dry_run)
        if self._remove_obsolete(report, watch):
            self._remove_orphans(report, watch)
        if not dry_run and not self.is_under_way:
            self._remove_progress_logs()
            self._remove_probes()
            self._remove_leftovers()
        self.metrics.vacuum_seconds.observe(monotonic_seconds() - began)
        if report.is_complete:
            for need, footprint in report.found.items():
                self.metrics.vacuum_bytes.labels(need.value).set(footprint.bytes)
        return report

    @property
    def is_under_way(self) -> bool:
        """Whether the latest listing is unfinished."""
        return bool(self._behind)

    def remove_obsolete(self, *, watch: Watch = unwatched) -> VacuumReport:
        """Removes obsolete files only, which lists no object and may run often."""
        report = VacuumReport()
        self._remove_obsolete(report, watch)
        return report

    # -- obsolete files ------------------------------------------------------------------------------------

    def _remove_obsolete(self, report: VacuumReport, watch: Watch) -> bool:
        """Whether it was not ended by `watch`."""
        self._lift()
        freed = iter(self._overtaking(lambda: self._freed(report.dry_run)))
        while rows := list(islice(freed, self.options.page_files)):
            files = [file for row in rows for file in row.files]
            if not report.dry_run:
                self._delete(name for name, _ in files)
                self._meta_store.transaction(MetaOperations(delete=tuple(row.key for row in rows)))
            for _, size_bytes in files:
                report.found[Need.STALE].add(size_bytes)
                self._count_removed(report, "stale", size_bytes)
            if not watch(report):
                return False
        return True

    def _freed(self, dry_run: bool) -> list[ObsoleteFiles]:
        """The rows whose files no lease protects; expired leases are deleted before they are disregarded."""
        stale = read_obsolete(self._meta_store)
        leases = read_leases(self._meta_store)
        floor, lapsed = pinned_floor(leases, stale, self._clock())
        if lapsed and not dry_run:
            self._meta_store.transaction(lapsed)
        freed = freed_for_all(stale, floor)
        if not freed:
            return []
        self._position = follow(self._meta_store, self._position)
        live = {info.name for info in self._position.version.sstables}
        for row in freed:
            if kept := live.intersection(name for name, _ in row.files):
                raise MetaStoreCorrupt(row.key, "files", "files that left the version", sorted(kept))
        return freed

    # -- orphans -------------------------------------------------------------------------------------------

    def _remove_orphans(self, report: VacuumReport, watch: Watch) -> None:
        began = behind = "" if report.dry_run else self._behind
        files = self._listed(behind, report)
        while page := list(islice(files, self.options.page_files)):
            self._remove_from(page, behind, page[-1].name, report)
            behind = page[-1].name
            if not report.dry_run:
                self._behind = behind
            if not watch(report) or report.objects_listed >= self.options.objects_per_run:
                return
        self._remove_from([], behind, None, report)
        report.is_complete = not began and not report.pages_left
        if not report.dry_run:
            self._behind = ""

    def _remove_from(self, page: list[StoredFile], first: str, last: str | None, report: VacuumReport) -> None:
        """Classifies the page, the whole listing between two names, by need and removes its orphans.

        A page that concurrent commits invalidate at every try is left to the next run.
        """
        try:
            orphans = self._overtaking(lambda: self._tombstone(page, first, last, report))
        except _Overtaken:
            report.pages_left += 1
            return
        if not report.dry_run:
            self._delete(file.name for file in orphans)
        for file in orphans:
            self._count_removed(report, "orphaned", file.bytes)

    def _tombstone(self, page: list[StoredFile], first: str, last: str | None,
                 report: VacuumReport) -> list[StoredFile]:
        """Tombstones the page's orphans and returns them. Raises `PreconditionFailed`."""
        references = read_references(self._meta_store, self._position, self._clock)
        self._position, now_ms = references.position, references.now_ms
        needs = [(file, references.need_of(file.name, now_ms - file.modified_ms < self.options.grace_ms))
                 for file in page]
        orphans = [file for file, need in needs if need is Need.ORPHANED]
        if not report.dry_run:
            self._write_tombstones(references, orphans)
            self._forget(references, {file.name for file in page}, first, last)
        for file, need in needs:
            if need is not Need.STALE:      # those are taken from the obsolete list
                report.found[need].add(file.bytes)
        return orphans

    def _write_tombstones(self, references: References, orphans: list[StoredFile]) -> None:
        tombstone = encode(Tombstone(references.generation, references.now_ms))
        rows = {vacuumed_key(file.name): tombstone for file in orphans if file.name not in references.tombstones}
        if rows or references.lapsed:
            self._meta_store.transaction(references.proof + MetaOperations(put=rows))

    def _forget(self, references: References, names: set[str], first: str, last: str | None) -> None:
        gone = [vacuumed_key(name) for name, tombstone in references.tombstones.items()
                if first < name and (last is None or name <= last) and name not in names
                and tombstone.generation < references.generation
                and references.now_ms - tombstone.vacuumed_ms >= self.options.tombstone_ms]
        if gone:
            self._meta_store.transaction(MetaOperations(delete=tuple(gone)))

    def _listed(self, behind: str, report: VacuumReport) -> Iterator[StoredFile]:
        """The stored files whose name is above `behind`, ascending."""
        for name, group in groupby(self._objects(behind, report), key=lambda found: sstable_name_of(found.path)):
            objects = list(group)
            if name is None or not is_sstable_name(name):
                report.foreign_objects += len(objects)
                continue
            yield StoredFile(name, sum(found.size_bytes for found in objects),
                             max(found.modified_ms for found in objects))

    def _objects(self, behind: str, report: VacuumReport) -> Iterator[ObjectMeta]:
        for found in self._object_store.list(SSTABLE_PREFIX):
            if not behind or found.path > sstable_meta_path(behind):
                report.objects_listed += 1
                yield found

    def _remove_progress_logs(self) -> None:
        """Deletes progress logs of ended tasks. Task numbers are never reused."""
        logs = [(found.path, task_id_of(found.path)) for found in self._object_store.list(LOG_PREFIX)]
        running = {row.task.id for row in read_running(self._meta_store)} if logs else set()
        self._delete_objects([path for path, task_id in logs if task_id is not None and task_id not in running])

    def _remove_probes(self) -> None:
        """Deletes probes of executor checks that died before deleting them."""
        newest_ms = self._clock() - self.options.grace_ms
        self._delete_objects([found.path for found in self._object_store.list(PROBE_PREFIX)
                              if found.modified_ms <= newest_ms])

    def _remove_leftovers(self) -> None:
        """Deletes leftovers; errors of the object store are ignored, since leftovers only cost space."""
        try:
            self._object_store.remove_leftovers(self._clock())
        except ObjectStoreError as error:
            self.metrics.vacuum_failures.labels(type(error).__name__).inc()

    # -- shared --------------------------------------------------------------------------------------------

    def _delete(self, names: Iterable[str]) -> None:
        self._delete_objects([path for name in names for path in (sstable_data_path(name), sstable_meta_path(name))])

    def _delete_objects(self, paths: list[str]) -> None:
        for at in range(0, len(paths), self.options.deleted_at_once):
            self._object_store.delete(paths[at:at + self.options.deleted_at_once])

    def _count_removed(self, report: VacuumReport, stage: str, size_bytes: int) -> None:
        report.removed.add(size_bytes)
        if not report.dry_run:
            self.metrics.vacuum_files.labels(stage).inc()
            self.metrics.vacuum_removed_bytes.labels(stage).inc(size_bytes)

    def _overtaking(self, attempt: Callable[[], Result]) -> Result:
        """Result of `attempt`, which is repeated if concurrent changes invalidated its reads."""
        for _ in range(ATTEMPTS):
            try:
                return attempt()
            except PreconditionFailed:
                self.metrics.transaction_retries.labels("vacuum overtaken").inc()
        raise _Overtaken(f"vacuum was overtaken by other processes at each of {ATTEMPTS} tries")
