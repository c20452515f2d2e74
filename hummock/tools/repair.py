"""Repair: quarantines damaged objects and continues without them, by one more version or from an earlier record.

Planning only reads, and lists the rows that are lost. Execution first copies what it removes to `quarantine/`, byte for
byte as far as it can be read, with a record of what was known of it; nothing deletes that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hummock.errors import ObjectExists, ObjectNotFound
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store.base import ObjectStore, sstable_data_path, sstable_meta_path, sstable_name_of
from hummock.sstable.info import SstableInfo
from hummock.tools.verify import Verified
from hummock.version import HummockVersion

QUARANTINE = "quarantine/"
KEY_BYTES_SHOWN = 40


@dataclass(frozen=True, slots=True)
class FileLoss:
    """A damaged file of the version, which would be removed with all of its rows.

    `reveals`: deeper files may hold older rows of its keys, which would become visible again.
    """

    info: SstableInfo
    level: int
    damages: tuple[str, ...]
    reveals: bool

    @property
    def paths(self) -> tuple[str, str]:
        return sstable_meta_path(self.info.name), sstable_data_path(self.info.name)

    def describe(self) -> str:
        """The lost rows, in one line."""
        info = self.info
        tables = ", ".join(map(str, info.table_ids))
        older = "; older rows under these keys may show again" if self.reveals else ""
        return (f"file {info.name} of level {self.level}: {info.rows:,} rows of table {tables}, keys "
                f"{_shown(info.smallest)} to {_shown(info.largest)}, epochs {info.min_epoch} to {info.max_epoch}"
                f"{older}")


def plan_files(version: HummockVersion, found: Iterable[Verified]) -> list[FileLoss]:
    """The files of `version` that are damaged according to `found`, newest first."""
    damages: dict[str, list[str]] = {}
    for one in found:
        name = sstable_name_of(one.path)
        if name is not None and one.damages:
            damages.setdefault(name, []).extend(one.damages)
    losses: list[FileLoss] = []
    runs = [(level.number, run) for level in version.levels for run in level.runs]
    for at, (number, run) in enumerate(runs):
        for info in run.sstables:
            if info.name in damages:
                reveals = any(lower.covering(info.smallest, info.largest) for _, lower in runs[at + 1:])
                losses.append(FileLoss(info, number, tuple(damages[info.name]), reveals))
    return losses


def drop_files(losses: Sequence[FileLoss], manager: HummockManager, object_store: ObjectStore) -> str:
    """Quarantines the files and commits a version without them; the path of the record of the repair.

    Tasks that would read them are cancelled. Files that left the version meanwhile are ignored.
    """
    for loss in losses:
        for path in loss.paths:
            set_apart(object_store, path)
    version = manager.drop_files([loss.info.name for loss in losses])
    path = f"{QUARANTINE}version-{version.id:020d}.json"
    record = {"version": version.id, "files": [
        {"level": loss.level, "damages": list(loss.damages), "reveals": loss.reveals, "info": loss.info.to_json()}
        for loss in losses]}
    object_store.put(path, json.dumps(record, indent=1).encode())
    return path


def set_apart(object_store: ObjectStore, path: str) -> bool:
    """Copies the object to `quarantine/`, unless it is there already; whether the object existed."""
    try:
        data = object_store.get(path)
    except ObjectNotFound:
        return False
    try:
        object_store.put(QUARANTINE + path, data, if_absent=True)
    except ObjectExists:
        return True
    return True


def _shown(key: bytes) -> str:
    return key.hex() if len(key) <= KEY_BYTES_SHOWN else f"{key[:KEY_BYTES_SHOWN].hex()}..."
