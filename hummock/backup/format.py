"""What a backup directory holds.

    sst/<name>.data, sst/<name>.meta            files of versions, shared by all backups of the directory
    backup/<epoch>-<version>                    one finished backup: the rows that a store at that epoch needs
    unfinished/<token>                          a backup that has begun: written before its first file, and deleted
                                                after its rows

A finished backup is a record as in `hummock.meta.store.object_log_format` with the magic HMKBAK01: its serial is the
epoch, its store id the digest of the source's URL, its rows those of the meta store, and besides them `backup/info`. It
is written last, when every file that it names is there. What other files are there belongs to no finished backup.

    restoring       in a store that is being restored: written before its first file, deleted after its rows
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, Self

from hummock.base.json_fields import MALFORMED, check_format, natural, word
from hummock.epoch import Epoch
from hummock.errors import BackupNotFound, MetaStoreCorrupt, ObjectNotFound
from hummock.meta.records import CHECKPOINT, decode_value
from hummock.meta.store.object_log_format import DIGEST_BYTES, LogRecord
from hummock.object_store.base import ObjectStore
from hummock.version import HummockVersion

FORMAT = 1
MAGIC = b"HMKBAK01"
FINISHED, UNFINISHED = "backup/", "unfinished/"
RESTORING = "restoring"
INFO = "backup/info"
NOTHING = bytes(DIGEST_BYTES)


@dataclass(frozen=True, slots=True)
class BackupInfo:
    """A backup of version `version` of the store at `source`, whose committed epoch is `epoch`, begun at `taken_ms`.

    `files` of `stored_bytes` in all make up the version.
    """

    source: str
    epoch: Epoch
    version: int
    taken_ms: int
    files: int
    stored_bytes: int

    @property
    def path(self) -> str:
        return f"{FINISHED}{self.epoch:020d}-{self.version:020d}"

    def to_bytes(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, name: str, data: bytes) -> Self:
        """The record in the object or row `name`. Raises `MetaStoreCorrupt`, `FormatTooNew`."""
        try:
            record: dict[str, Any] = json.loads(data)
            check_format(name, record["format"], FORMAT)
            return cls(word(record["source"]), Epoch(natural(record["epoch"])), natural(record["version"]),
                       natural(record["taken_ms"]), natural(record["files"]), natural(record["stored_bytes"]))
        except MALFORMED as error:
            raise MetaStoreCorrupt(name, "fields", "those of a backup", str(error)) from error


@dataclass(frozen=True, slots=True)
class Backup:
    """A finished backup: its rows by key, the version included."""

    info: BackupInfo
    rows: Mapping[str, bytes]

    @property
    def version(self) -> HummockVersion:
        """Raises `MetaStoreCorrupt`, `FormatTooNew`."""
        row = self.rows.get(CHECKPOINT)
        if row is None:
            raise MetaStoreCorrupt(self.info.path, CHECKPOINT, "a version", None)
        return decode_value(HummockVersion, CHECKPOINT, row)

    def encode(self) -> bytes:
        rows = {**dict(sorted(self.rows.items())), INFO: self.info.to_bytes()}
        return LogRecord(identity_of(self.info.source), self.info.epoch, NOTHING, put=rows, magic=MAGIC).encode()

    @classmethod
    def decode(cls, path: str, data: bytes) -> Self:
        """The backup in object `path`. Raises `MetaStoreCorrupt`, `FormatTooNew`."""
        record, _ = LogRecord.decode(data, path, MAGIC)
        rows = dict(record.put)
        info = BackupInfo.from_bytes(path, rows.pop(INFO, b""))
        if info.path != path or identity_of(info.source) != record.store_id:
            raise MetaStoreCorrupt(path, "name of the backup", info.path, path)
        return cls(info, rows)


def identity_of(source: str) -> bytes:
    """The digest of the source's URL, by which backups of two stores are told apart."""
    return blake2b(source.encode(), digest_size=16).digest()


def finished_paths(target: ObjectStore) -> list[str]:
    """Of all finished backups, the oldest first."""
    return [found.path for found in target.list(FINISHED)]


def read_backup(target: ObjectStore, path: str) -> Backup:
    """Raises `ObjectNotFound`, `MetaStoreCorrupt`, `FormatTooNew`."""
    return Backup.decode(path, target.get(path))


def find_backup(target: ObjectStore, epoch: int | None = None) -> Backup:
    """The newest backup, or that of `epoch`. Raises `BackupNotFound`, which lists those that there are."""
    paths = finished_paths(target)
    epochs = [epoch_of(path) for path in paths]
    wanted = [path for path, each in zip(paths, epochs, strict=True) if epoch is None or each == epoch]
    if not wanted:
        is_begun = any(True for _ in target.list(UNFINISHED))
        raise BackupNotFound(target.url, epoch, tuple(dict.fromkeys(epochs)), is_begun)
    return read_backup(target, wanted[-1])


def unfinished(target: ObjectStore) -> Iterator[tuple[str, BackupInfo | None]]:
    """Path and beginning of each backup that is being taken or was interrupted; None: that it began is all that can be
    read."""
    for found in target.list(UNFINISHED):
        try:
            yield found.path, BackupInfo.from_bytes(found.path, target.get(found.path))
        except ObjectNotFound:
            continue
        except MetaStoreCorrupt:
            yield found.path, None


def epoch_of(path: str) -> int:
    """The epoch in the path of a finished backup. Raises `MetaStoreCorrupt`."""
    digits = path.removeprefix(FINISHED).partition("-")[0]
    if not (digits.isascii() and digits.isdigit()):
        raise MetaStoreCorrupt(path, "name of the backup", f"{FINISHED}<epoch>-<version>", path)
    return int(digits)
