"""CommitRequest: one epoch's files, and the changes that must be committed together with them.

Its transaction requires that the writer was not replaced, that no other version was created meanwhile, and that vacuum
has tombstoned none of the files. It writes an answer by which a repeated call is recognised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import TableRules, check_table_id, check_tables, check_watermark
from hummock.epoch import Epoch, pure_epoch
from hummock.errors import InvalidEpoch, SstableRefused
from hummock.loaded_files import LoadedFiles
from hummock.meta.ingest_placement import ingest_loads, remember_loads
from hummock.meta.records import (
    COMMITS,
    WRITER,
    CommitAnswer,
    commit_key,
    decode,
    encode,
    names_digest,
    vacuumed_key,
)
from hummock.meta.store.base import NONE, MetaOperations, MetaStore
from hummock.meta.version_log import LogPosition, append
from hummock.meta_client import WriterSession
from hummock.object_store.base import is_sstable_name
from hummock.options import MetaOptions
from hummock.sstable.info import SstableInfo
from hummock.version import HummockVersion, RunAddition, VersionDelta, layers_of


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """`epoch` with its files and loads; `operations`, rules, watermarks and dropped tables take effect in the same
    transaction. `InvalidOption` for rules or watermarks that no process could read again.
    """

    session: WriterSession
    epoch: Epoch
    sstables: tuple[SstableInfo, ...]
    operations: MetaOperations = NONE
    tables: Mapping[int, TableRules | None] = field(default_factory=dict)
    dropped_tables: tuple[int, ...] = ()
    loads: tuple[LoadedFiles, ...] = ()
    watermarks: Mapping[int, KeyWatermark] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_tables(self.tables)
        for table_id, mark in self.watermarks.items():
            check_watermark(table_id, mark)
            check_tables({table_id: TableRules(watermarks=(mark,))})
        for table_id in self.dropped_tables:
            check_table_id(table_id)

    @property
    def entering(self) -> tuple[SstableInfo, ...]:
        """All files, those of the loads last."""
        return (*self.sstables, *(info for load in self.loads for info in load.sstables))

    def load_of(self, name: str) -> str | None:
        """The id of the load that contains file `name`."""
        return next((load.load_id for load in self.loads for info in load.sstables if info.name == name), None)

    def check_files(self, version: HummockVersion) -> None:
        """Raises `SstableRefused` for a file that may not enter at this epoch, or is in the store already."""
        entering = {info.name for info in self.entering}
        held = version.held_names(entering)
        for info in self.entering:
            if not is_sstable_name(info.name):
                raise SstableRefused(info.name, "its name is not 32 hexadecimal digits")
            if info.name in held:
                raise SstableRefused(info.name, "a name is used once")
            held.add(info.name)
            if info.rows <= 0 or info.data_bytes <= 0 or info.smallest > info.largest:
                raise SstableRefused(info.name, "it is empty or its smallest key is above its largest")
        for info in self.sstables:
            self._check_epochs(info, version.max_committed_epoch)

    def _check_epochs(self, info: SstableInfo, committed: Epoch) -> None:
        if info.global_epoch:
            raise SstableRefused(info.name, "a load alone has files whose epoch its commit gives")
        if info.min_epoch > info.max_epoch or pure_epoch(info.max_epoch) > self.epoch:
            raise SstableRefused(info.name, f"it holds epochs {info.min_epoch} to {info.max_epoch}, "
                                            f"which is more than epoch {self.epoch}")
        if pure_epoch(info.min_epoch) <= committed:
            raise SstableRefused(info.name, f"it writes into epoch {info.min_epoch}, which is committed: "
                                            f"the committed epoch is {committed}")

    def check_watermarks(self, version: HummockVersion) -> None:
        """Raises `InvalidEpoch` for a key watermark that would change reads of committed epochs."""
        marks = [(table_id, mark) for table_id, rules in self.tables.items() if rules for mark in rules.watermarks]
        for table_id, mark in (*marks, *self.watermarks.items()):
            known = version.tables[table_id].watermarks if table_id in version.tables else ()
            if mark not in known and not version.max_committed_epoch < mark.epoch <= self.epoch:
                raise InvalidEpoch(mark.epoch, f"is no epoch of this commit, as a watermark of table {table_id}")

    def rule_changes(self, version: HummockVersion) -> dict[int, TableRules | None]:
        """`tables` that have rules or had some, and those of tables whose watermark moves, with the new one alone."""
        changes = {table_id: rules for table_id, rules in self.tables.items()
                   if table_id in version.tables or (rules is not None and not rules.is_empty)}
        for table_id, mark in self.watermarks.items():
            known = version.tables.get(table_id, TableRules())
            newest = known.watermarks[0] if known.watermarks else None
            if newest is None or not newest.covers(mark):
                changed = changes.get(table_id)
                marks = () if changed is None else changed.watermarks
                changes[table_id] = replace(changed or known, watermarks=(mark, *marks))
        return changes

    def plan(self, position: LogPosition, meta_store: MetaStore, options: MetaOptions,
             last_level: int) -> tuple[MetaOperations, LogPosition]:
        """The transaction that commits on top of `position`, and the position after it.

        REQUIRES `epoch` above the committed one. Raises `SstableRefused`, `LoadRefused`.
        """
        self.check_files(position.version)
        self.check_watermarks(position.version)
        file_id, added = position.head.next_file_id, []
        for layer in layers_of(self.sstables):
            numbered = tuple(replace(info, id=file_id + offset) for offset, info in enumerate(layer))
            file_id += len(layer)
            # The greatest id of a run's files names the run: newer runs get greater ids, and none repeats.
            added.append(RunAddition(0, file_id - 1, numbered))
        version = position.version
        loaded, answers, unmoved = ingest_loads(self.loads, self.epoch, version, self.sstables, file_id, last_level,
                                               meta_store)
        file_id += sum(len(load.sstables) for load in self.loads)
        added += loaded
        delta = VersionDelta(version.id + 1, self.epoch, version.safe_epoch, tuple(added), (),
                             self.rule_changes(version), self.dropped_tables)
        logged, after = append(position, delta, file_id, options.checkpoint_deltas)
        # The writer is checked first: a former writer learns that it was replaced, not that a row changed.
        guard = MetaOperations(require={WRITER: encode(self.session)})
        unvacuumed = MetaOperations(require={vacuumed_key(info.name): None for info in self.entering
                                               if not info.inline_data})
        answer = CommitAnswer(self.epoch, self.session.generation, after.version.id,
                              names_digest(self.entering))
        remembered = MetaOperations(put={commit_key(self.epoch): encode(answer)})
        remembered += remember_loads(answers, meta_store, options.loads_remembered)
        if after.head.checkpoint_id == after.version.id:
            remembered += _forgotten(meta_store, options.commits_remembered)
        return guard + logged + unmoved + unvacuumed + self.operations + remembered, after

    def is_answered(self, meta_store: MetaStore) -> bool:
        """Whether exactly this commit succeeded. Raises `InvalidEpoch` if its epoch was committed with other files."""
        key = commit_key(self.epoch)
        row = meta_store.get(key)
        if row is None:
            return False
        answer = decode(CommitAnswer, key, row)
        if answer.generation != self.session.generation:
            return False
        if answer.digest != names_digest(self.entering):
            raise InvalidEpoch(self.epoch, "was committed with other files")
        return True


def _forgotten(meta_store: MetaStore, kept: int) -> MetaOperations:
    """Deletes all commit answers but the newest `kept`."""
    keys = [key for key, _ in meta_store.list(COMMITS)]
    return MetaOperations(delete=tuple(keys[:-kept]))
