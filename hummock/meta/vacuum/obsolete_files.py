"""The obsolete list (rows `stale/<version>`): which files left the version at which step, so that vacuum need not
search.

A row is written in the transaction that removes its files from the version, whatever its purpose, and deleted after
their objects. A file that leaves at version v is needed by versions below v only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from hummock.base.json_fields import MALFORMED, check_format
from hummock.errors import MetaStoreCorrupt
from hummock.meta.records import FORMAT, OBSOLETE, obsolete_key
from hummock.meta.store.base import NONE, MetaOperations, MetaStore
from hummock.object_store.base import is_sstable_name
from hummock.version import HummockVersion, VersionDelta


@dataclass(frozen=True, slots=True)
class ObsoleteFiles:
    """Name and stored bytes of each file that version `version_id` no longer holds and the one before held."""

    version_id: int
    files: tuple[tuple[str, int], ...]

    @property
    def key(self) -> str:
        return obsolete_key(self.version_id)

    def encode(self) -> bytes:
        return json.dumps({"format": FORMAT, "files": self.files}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, key: str, data: bytes) -> ObsoleteFiles:
        """The row under `key`. Raises `MetaStoreCorrupt`."""
        try:
            record = json.loads(data)
            check_format(key, record["format"], FORMAT)
            found = cls(int(key.removeprefix(OBSOLETE)), tuple((name, int(size)) for name, size in record["files"]))
        except MALFORMED as error:
            raise MetaStoreCorrupt(key, "fields", cls.__name__, str(error)) from error
        for name, _ in found.files:
            if not isinstance(name, str) or not is_sstable_name(name):
                raise MetaStoreCorrupt(key, "files", "names of 32 hexadecimal digits", name)
        return found


def obsolete_row(version: HummockVersion, delta: VersionDelta) -> MetaOperations:
    """The row that a transaction writes that advances `version` by `delta`, for the files that leave with it. Inline
    files have no objects to delete."""
    staying = {info.id for part in delta.added for info in part.sstables}
    leaving = set(delta.removed) - staying
    if not leaving:
        return NONE
    files = tuple((info.name, info.stored_bytes)
                  for info in version.sstables if info.id in leaving and not info.inline_data)
    if not files:
        return NONE
    row = ObsoleteFiles(delta.id, files)
    return MetaOperations(put={row.key: row.encode()})


def read_obsolete(meta_store: MetaStore) -> list[ObsoleteFiles]:
    """Every row, oldest version first."""
    return [ObsoleteFiles.decode(key, row) for key, row in meta_store.list(OBSOLETE)]


def freed_for_all(rows: Iterable[ObsoleteFiles], oldest_version: int | None) -> list[ObsoleteFiles]:
    """The rows whose files no reader needs; `oldest_version`: the oldest pinned one, None: none is pinned."""
    return [row for row in rows if oldest_version is None or row.version_id <= oldest_version]
