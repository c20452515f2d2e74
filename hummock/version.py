"""A version is the complete list of files at one moment, with the epoch up to which they are complete.

Level 0 is a stack of runs, newest first; each deeper level is one run. A run is a sequence of files with disjoint user
keys in ascending order. Runs are ordered by age: where two hold the same user key, the newer run holds the newer
epochs, so a point read ends at the first run that answers. Versions and deltas are immutable values; `apply` is pure,
so any process that applies the same deltas has the same version.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hummock.base.json_fields import check_format, natural
from hummock.base.table_rules import TableRules, next_tables, tables_from_json, tables_to_json
from hummock.epoch import NEVER, Epoch
from hummock.errors import Corruption
from hummock.sstable.info import SstableInfo, record_format

if TYPE_CHECKING:
    from hummock.base.key import KeyRange

FORMAT = 3              # see `record_format`; most records are still written as of the first
LEVELS_LIMIT = 64


@dataclass(frozen=True)
class Run:
    """Files with disjoint user keys, ascending. In level 0 a greater `id` is newer; ids never repeat.

    A version shares unchanged runs, and the properties cached in them, with the version before it.
    """

    id: int
    sstables: tuple[SstableInfo, ...]

    @cached_property
    def data_bytes(self) -> int:
        return sum(info.data_bytes for info in self.sstables)

    @cached_property
    def uncompressed_bytes(self) -> int:
        return sum(info.uncompressed_bytes for info in self.sstables)

    @cached_property
    def inline_bytes(self) -> int:
        """Of inline files."""
        return sum(len(info.inline_data) for info in self.sstables)

    @cached_property
    def file_ids(self) -> frozenset[int]:
        return frozenset(info.id for info in self.sstables)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(info.name for info in self.sstables)

    @cached_property
    def key(self) -> str:
        """As `run_key`."""
        return run_key(self.sstables)

    @cached_property
    def stale_files(self) -> tuple[SstableInfo, ...]:
        """Files with stale rows or tombstones, the greatest share first."""
        stale = (info for info in self.sstables if info.stale_rows or info.tombstones)
        return tuple(sorted(stale, key=lambda info: (info.stale_rows + info.tombstones) / info.rows, reverse=True))

    @cached_property
    def table_ids(self) -> frozenset[int]:
        return frozenset(table_id for info in self.sstables for table_id in info.table_ids)

    def overlapping(self, start: bytes, end: bytes | None) -> tuple[SstableInfo, ...]:
        """The files that may hold user keys of [start, end)."""
        first = bisect_left(self.sstables, start, key=lambda info: info.largest)
        last = len(self.sstables) if end is None else bisect_left(
            self.sstables, end, key=lambda info: info.smallest)
        return self.sstables[first:last]

    def within(self, ranges: Iterable[KeyRange]) -> tuple[SstableInfo, ...]:
        """The files that may hold user keys of one of the ranges."""
        found = {info.name: info for part in ranges for info in self.overlapping(part.start, part.end)}
        return tuple(sorted(found.values(), key=lambda info: info.smallest))

    def covering(self, smallest: bytes, largest: bytes) -> tuple[SstableInfo, ...]:
        """The files that may hold user keys of [smallest, largest], both included."""
        first = bisect_left(self.sstables, smallest, key=lambda info: info.largest)
        return self.sstables[first:bisect_right(self.sstables, largest, lo=first, key=lambda info: info.smallest)]


@dataclass(frozen=True, slots=True)
class Level:
    """`runs` newest first; a level other than 0 has at most one."""

    number: int
    runs: tuple[Run, ...] = ()

    @property
    def sstables(self) -> Iterator[SstableInfo]:
        return (info for run in self.runs for info in run.sstables)

    @property
    def data_bytes(self) -> int:
        return sum(run.data_bytes for run in self.runs)


@dataclass(frozen=True, slots=True)
class RunAddition:
    """Files that are added to run `run` of level `level`, which is created if it does not exist."""

    level: int
    run: int
    sstables: tuple[SstableInfo, ...]


@dataclass(frozen=True, slots=True)
class VersionDelta:
    """The step from version `id - 1` to version `id`."""

    id: int
    max_committed_epoch: Epoch
    safe_epoch: Epoch
    added: tuple[RunAddition, ...] = ()
    removed: tuple[int, ...] = ()                       # file ids, at any level
    tables: Mapping[int, TableRules | None] = field(default_factory=dict)    # by table id; None: no rules
    dropped_tables: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        added = (info for part in self.added for info in part.sstables)
        return {
            "format": record_format(self.tables, added), "id": self.id, "max_committed_epoch": self.max_committed_epoch,
            "safe_epoch": self.safe_epoch, "removed": list(self.removed),
            "added": [{"level": part.level, "run": part.run,
                       "sstables": [info.to_json() for info in part.sstables]} for part in self.added],
            "tables": tables_to_json(self.tables), "dropped_tables": list(self.dropped_tables),
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> VersionDelta:
        """The inverse of `to_json`. KeyError, TypeError or ValueError when bad."""
        _check_format(record)
        added = tuple(RunAddition(natural(part["level"], LEVELS_LIMIT), natural(part["run"]), _infos(part["sstables"]))
                      for part in record["added"])
        return cls(natural(record["id"]), Epoch(natural(record["max_committed_epoch"])),
                   Epoch(natural(record["safe_epoch"])), added, tuple(map(natural, record["removed"])),
                   tables_from_json(record["tables"]), tuple(map(natural, record["dropped_tables"])))


@dataclass(frozen=True, slots=True)
class HummockVersion:
    """The files that make up the store, complete up to `max_committed_epoch`, readable from `safe_epoch`."""

    id: int = 0
    max_committed_epoch: Epoch = NEVER
    safe_epoch: Epoch = NEVER
    levels: tuple[Level, ...] = (Level(0),)
    tables: Mapping[int, TableRules] = field(default_factory=dict)      # by id of a table with rules; none is dropped
    dropped_tables: frozenset[int] = frozenset()        # rows of these are invisible, and dropped by compaction
    # What this process saw: the epoch of the version that it read, and those of later changes by table.
    loaded_at: Epoch = field(default=NEVER, compare=False)
    changed_at: Mapping[int, Epoch] = field(default_factory=dict, compare=False, repr=False)

    @property
    def runs(self) -> Iterator[Run]:
        """All runs of all levels, newest first."""
        return (run for level in self.levels for run in level.runs)

    @property
    def sstables(self) -> Iterator[SstableInfo]:
        """All files, newest run first."""
        return (info for run in self.runs for info in run.sstables)

    @property
    def stored_files(self) -> Iterator[SstableInfo]:
        """All files that are objects: all but the inline ones."""
        return (info for info in self.sstables if not info.inline_data)

    @property
    def files(self) -> int:
        """Number of files."""
        return sum(len(run.sstables) for run in self.runs)

    @property
    def inline_bytes(self) -> int:
        """Of inline files."""
        return sum(run.inline_bytes for run in self.runs)

    def __repr__(self) -> str:
        levels = ", ".join(f"level {level.number}: {sum(len(run.sstables) for run in level.runs)} files "
                           f"in {len(level.runs)} runs" for level in self.levels if level.runs)
        return (f"HummockVersion({self.id}, epoch {self.max_committed_epoch}, readable from {self.safe_epoch}, "
                f"{levels or 'no files'})")

    def held_names(self, names: Set[str]) -> set[str]:
        """The subset of `names` that are names of files of this version."""
        return {held for run in self.runs for held in run.names.intersection(names)}

    def overlapping(self, key_range: KeyRange) -> Iterator[tuple[SstableInfo, ...]]:
        """Per run, newest first, the files that may hold keys of the range; runs without any are omitted."""
        for run in self.runs:
            if found := run.overlapping(key_range.start, key_range.end):
                yield found

    def unchanged_since(self, table_id: int, epoch: Epoch) -> Epoch:
        """An epoch, at most `epoch`, at which the table had the rows that it has at `epoch`: the oldest one that this
        process knows if it has them still, else `epoch` itself. It may be too old to be read."""
        rules = self.tables.get(table_id)
        since = self.changed_at.get(table_id, self.loaded_at)
        expires = rules is not None and rules.ttl_ms > 0
        return since if since <= epoch <= self.max_committed_epoch and not expires else epoch

    def narrowed(self, ranges: Sequence[KeyRange]) -> HummockVersion:
        """The part of the version that reads of `ranges` need: these files, and these tables' rules."""
        levels = tuple(Level(level.number, tuple(
            Run(run.id, files) for run in level.runs if (files := run.within(ranges)))) for level in self.levels)
        table_ids = {table_id for level in levels for info in level.sstables for table_id in info.table_ids}
        return replace(self, levels=levels, dropped_tables=self.dropped_tables & table_ids,
                       tables={table_id: rules for table_id, rules in self.tables.items() if table_id in table_ids})

    def apply(self, delta: VersionDelta) -> HummockVersion:
        """The next version. Raises `Corruption` where the delta does not fit this version."""
        self._check_step(delta)
        removed = frozenset(delta.removed)
        added: dict[int, dict[int, list[SstableInfo]]] = {}
        for part in delta.added:
            added.setdefault(part.level, {}).setdefault(part.run, []).extend(part.sstables)
        depth = max((0, *added, *(level.number for level in self.levels)))
        levels = tuple(_stepped(self._level(number), removed, added.get(number, {}), delta.id)
                       for number in range(depth + 1))
        dropped = self.dropped_tables | frozenset(delta.dropped_tables)
        changes = {table_id: None if table_id in dropped else rules for table_id, rules in delta.tables.items()}
        tables = next_tables(self.tables, {**changes, **dict.fromkeys(delta.dropped_tables)}, delta.safe_epoch)
        return replace(
            self, id=delta.id, max_committed_epoch=delta.max_committed_epoch, safe_epoch=delta.safe_epoch,
            levels=levels, dropped_tables=dropped, tables=tables, changed_at=self._changed_by(delta))

    def keeps_runs(self, older: HummockVersion) -> bool:
        """Whether every run of an older version is still here unchanged, so that no file left since."""
        here = {id(run) for run in self.runs}
        return all(id(run) in here for run in older.runs)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": record_format(self.tables, self.sstables), "id": self.id,
            "max_committed_epoch": self.max_committed_epoch, "safe_epoch": self.safe_epoch,
            "tables": tables_to_json(self.tables), "dropped_tables": sorted(self.dropped_tables),
            "levels": [[{"run": run.id, "sstables": [info.to_json() for info in run.sstables]}
                        for run in level.runs] for level in self.levels],
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> HummockVersion:
        """The inverse of `to_json`. KeyError, TypeError, ValueError or Corruption when bad."""
        _check_format(record)
        levels = tuple(
            _level(number, {natural(run["run"]): list(_infos(run["sstables"])) for run in runs}, record["id"])
            for number, runs in enumerate(record["levels"]))
        return cls(natural(record["id"]), Epoch(natural(record["max_committed_epoch"])),
                   Epoch(natural(record["safe_epoch"])), levels,
                   {table_id: rules for table_id, rules in tables_from_json(record["tables"]).items() if rules},
                   frozenset(map(natural, record["dropped_tables"])),
                   Epoch(natural(record["max_committed_epoch"])))

    def _changed_by(self, delta: VersionDelta) -> Mapping[int, Epoch]:
        """`changed_at` after the delta. Rows enter and leave a table with a commit: a new epoch and files, rules or a
        drop. Files of other deltas are those of compactions, which keep the rows of every readable epoch."""
        added = delta.added if delta.max_committed_epoch > self.max_committed_epoch else ()
        changed = {*delta.tables, *delta.dropped_tables}
        changed.update(table_id for part in added for info in part.sstables for table_id in info.table_ids)
        return {**self.changed_at, **dict.fromkeys(changed, delta.max_committed_epoch)} if changed else self.changed_at

    def _check_step(self, delta: VersionDelta) -> None:
        where = f"delta {delta.id}"
        if delta.id != self.id + 1:
            raise Corruption("version", where, f"delta {self.id + 1}", f"delta {delta.id}")
        if delta.max_committed_epoch < self.max_committed_epoch:
            raise Corruption("version", where, f"an epoch from {self.max_committed_epoch} on",
                             delta.max_committed_epoch)
        if not self.safe_epoch <= delta.safe_epoch <= delta.max_committed_epoch:
            raise Corruption("version", where, f"a safe epoch from {self.safe_epoch} to the committed one",
                             delta.safe_epoch)
        removed = set(delta.removed)
        if missing := removed - self._held(removed):
            raise Corruption("version", where, "removed files that are there", sorted(missing))
        entering = [info.id for part in delta.added for info in part.sstables]
        if self._held(set(entering) - removed) or len(set(entering)) != len(entering):
            raise Corruption("version", where, "files with new ids, or ones that move", entering)

    def _held(self, file_ids: set[int]) -> set[int]:
        """The subset of the ids that are ids of files of this version."""
        return {held for run in self.runs for held in run.file_ids.intersection(file_ids)}

    def _level(self, number: int) -> Level:
        return self.levels[number] if number < len(self.levels) else Level(number)


def run_key(sstables: Iterable[SstableInfo]) -> str:
    """One text for the names of a run's files: equal for equal files, its hash computed once."""
    return " ".join(info.name for info in sstables)


def layers_of(sstables: Sequence[SstableInfo]) -> list[tuple[SstableInfo, ...]]:
    """The files as runs, oldest first: each file is in a newer run than every older file whose keys it overlaps.

    Age is `max_epoch`, then the given order.
    """
    layered: list[tuple[int, SstableInfo]] = []
    for info in sorted(sstables, key=lambda info: info.newest_epoch):
        beneath = [layer for layer, other in layered
                   if other.smallest <= info.largest and info.smallest <= other.largest]
        layered.append((max(beneath) + 1 if beneath else 0, info))
    depth = max((layer for layer, _ in layered), default=-1) + 1
    return [tuple(sorted((info for layer, info in layered if layer == number),
                         key=lambda info: info.smallest)) for number in range(depth)]


def _stepped(level: Level, removed: frozenset[int], added: Mapping[int, list[SstableInfo]], version_id: int) -> Level:
    """The level without the removed files and with the added ones, by run; unchanged runs are shared."""
    changed = {run.id for run in level.runs if not run.file_ids.isdisjoint(removed)} | added.keys()
    if not changed:
        return level
    runs = {run.id: [info for info in run.sstables if info.id not in removed]
            for run in level.runs if run.id in changed}
    for run_id, infos in added.items():
        runs.setdefault(run_id, []).extend(infos)
    made = _level(level.number, runs, version_id).runs
    kept = tuple(run for run in level.runs if run.id not in changed)
    if level.number > 0 and len(made) + len(kept) > 1:
        raise Corruption(f"version {version_id}", f"level {level.number}", "one run", f"{len(made) + len(kept)} runs")
    return Level(level.number, tuple(sorted((*made, *kept), key=lambda run: run.id, reverse=True)))


def _level(number: int, runs: Mapping[int, list[SstableInfo]], version_id: int) -> Level:
    """The level of all runs that have files. Raises `Corruption` where files of a run overlap."""
    made = []
    for run_id in sorted(runs, reverse=True):
        files = sorted(runs[run_id], key=lambda info: info.smallest)
        for left, right in pairwise(files):
            if left.largest >= right.smallest:
                raise Corruption(f"version {version_id}", f"level {number} run {run_id}", "disjoint files",
                                 f"{left.name} and {right.name} overlap")
        if files:
            made.append(Run(run_id, tuple(files)))
    if number > 0 and len(made) > 1:
        raise Corruption(f"version {version_id}", f"level {number}", "one run", f"{len(made)} runs")
    return Level(number, tuple(made))


def _infos(records: list[dict[str, Any]]) -> tuple[SstableInfo, ...]:
    return tuple(SstableInfo.from_json(record) for record in records)


def _check_format(record: dict[str, Any]) -> None:
    check_format(f"version {record['id']}", record["format"], FORMAT, 1)
