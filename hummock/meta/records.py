"""The manager's rows in the meta store: their keys, and their values as JSON with a format number.

    hummock/head                end of the version log; every change of the version changes it
    hummock/writer              holder of the writer role
    hummock/writer_process      the process that claimed it last, and when
    hummock/checkpoint          one complete version
    hummock/delta/<version>     the steps after the checkpoint
    hummock/commit/<epoch>      answers of the newest commits
    hummock/lease/<node>        what a process has pinned, and until when
    hummock/newest_lease        the lease that was created last; so every new lease changes it
    hummock/vacuumed/<name>     tombstones: files that vacuum removes and that may not enter a version
    hummock/tasks               the number of the next compact task; every change of a task changes it
    hummock/wanted/<id>         a key range whose compaction was requested
    hummock/task/<id>           a running compact task, its attempt and its lease
    hummock/report/<id>         answers of the newest reports of compact tasks
    hummock/upload/<prefix>     a process that is writing files with that name prefix
    hummock/load/<id>           results of the newest bulk loads
    hummock/stale/<version>     obsolete list: names of the files that this version no longer holds
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeVar

from hummock.base.json_fields import MALFORMED, NAME_RULE, check_format, is_name
from hummock.errors import FormatTooNew, MetaStoreCorrupt, MetaStoreError
from hummock.loaded_files import LoadAnswer
from hummock.meta_client import WriterSession
from hummock.object_store.base import NAME_PREFIX_DIGITS
from hummock.sstable.info import SstableInfo
from hummock.version import HummockVersion, VersionDelta

FORMAT = 1
HEAD = "hummock/head"
WRITER = "hummock/writer"
WRITER_PROCESS = "hummock/writer_process"
CHECKPOINT = "hummock/checkpoint"
DELTAS = "hummock/delta/"
COMMITS = "hummock/commit/"
LEASES = "hummock/lease/"
NEWEST_LEASE = "hummock/newest_lease"
VACUUMED = "hummock/vacuumed/"
TASKS = "hummock/tasks"
TASK = "hummock/task/"
WANTED = "hummock/wanted/"
LARGE = "hummock/large"
REPORTS = "hummock/report/"
UPLOADS = "hummock/upload/"
LOADS = "hummock/load/"
OBSOLETE = "hummock/stale/"
DONE, FAILED, CANCELLED = "done", "failed", "cancelled"


@dataclass(frozen=True, slots=True)
class Head:
    """Version `version_id` is the newest; deltas after `checkpoint_id` are kept."""

    version_id: int = 0
    committed_epoch: int = 0
    checkpoint_id: int = 0
    next_file_id: int = 1


@dataclass(frozen=True, slots=True)
class CommitAnswer:
    """`generation` committed `epoch` with files whose names have `digest`, which created `version_id`."""

    epoch: int
    generation: int
    version_id: int
    digest: str


@dataclass(frozen=True, slots=True)
class WriterProcess:
    """`node` claimed the writer role at `since_ms`; the others are those of `ProcessId`."""

    node: str
    host: str
    machine: str
    pid: int
    started: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Lease:
    """`node` reads versions from `min_version` and epochs from `min_epoch` on, until `expires_ms`.

    `holder` distinguishes two processes that use the same node name.
    """

    node: str
    holder: str
    expires_ms: int
    min_version: int
    min_epoch: int


@dataclass(frozen=True, slots=True)
class Upload:
    """`node` writes files with a name prefix, until `expires_ms` unless it renews that."""

    node: str
    holder: str
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A file name that was tombstoned while the writer role was at `generation`."""

    generation: int
    vacuumed_ms: int


@dataclass(frozen=True, slots=True)
class TaskCounter:
    """`changes` grows with every task that is created, taken over or ended, so that those changes are serialised."""

    next_id: int = 1
    changes: int = 0


@dataclass(frozen=True, slots=True)
class LargeClaim:
    """Until `expires_ms` large tasks are reserved for a compactor on Spark."""

    expires_ms: int


@dataclass(frozen=True, slots=True)
class TaskAnswer:
    """Task `task_id` ended as `outcome`; `token`: of the attempt that ended it; `digest`: of its outputs."""

    task_id: int
    token: str
    outcome: str                # DONE, FAILED or CANCELLED
    kind: str
    version_id: int             # that the report created; 0 for the others
    digest: str
    error: str


Record = TypeVar("Record", Head, CommitAnswer, LoadAnswer, Lease, Upload, Tombstone, TaskCounter, LargeClaim,
                 TaskAnswer, WriterSession, WriterProcess)
Value = TypeVar("Value", HummockVersion, VersionDelta)


def encode(record: Head | CommitAnswer | LoadAnswer | Lease | Upload | Tombstone | TaskCounter | LargeClaim
           | TaskAnswer | WriterSession | WriterProcess) -> bytes:
    return _dump({"format": FORMAT, **{name: getattr(record, name) for name in record.__annotations__}})


def decode(kind: type[Record], key: str, data: bytes) -> Record:
    """The record in row `key`. Raises `MetaStoreCorrupt`."""
    record = _load(key, data)
    with suppress(KeyError, ValueError):
        check_format(key, record["format"], FORMAT)
    wanted = {"format": int, **{name: {"int": int, "str": str}[annotation]
                                for name, annotation in kind.__annotations__.items()}}
    if {name: type(value) for name, value in record.items()} != wanted or record.pop("format") != FORMAT:
        raise MetaStoreCorrupt(key, "fields", sorted(wanted), sorted(record))
    return kind(**record)


def encode_value(value: HummockVersion | VersionDelta) -> bytes:
    return _dump(value.to_json())


def decode_value(kind: type[Value], key: str, data: bytes) -> Value:
    """The version or delta in row `key`. Raises `MetaStoreCorrupt`."""
    try:
        return kind.from_json(_load(key, data))
    except FormatTooNew as error:
        raise FormatTooNew(key, error.found, error.newest) from None
    except MALFORMED as error:
        raise MetaStoreCorrupt(key, "fields", kind.__name__, str(error)) from error


def delta_key(version_id: int) -> str:
    return f"{DELTAS}{version_id:020d}"


def commit_key(epoch: int) -> str:
    return f"{COMMITS}{epoch:020d}"


def load_key(load_id: str) -> str:
    return LOADS + load_id


def lease_key(node: str) -> str:
    """The key of the node's row. Raises `MetaStoreError` for a name that violates NAME_RULE."""
    if not is_name(node):
        raise MetaStoreError(f"{node!r} is no name of a node: it is not {NAME_RULE}")
    return LEASES + node


def vacuumed_key(name: str) -> str:
    return VACUUMED + name


def upload_key(prefix: str) -> str:
    """The key of the prefix's row. Raises `MetaStoreError` for what is no prefix of a file name."""
    if len(prefix) != NAME_PREFIX_DIGITS or any(digit not in "0123456789abcdef" for digit in prefix):
        raise MetaStoreError(f"{prefix!r} is no prefix of file names")
    return UPLOADS + prefix


def obsolete_key(version_id: int) -> str:
    return f"{OBSOLETE}{version_id:020d}"


def generation_of(row: bytes | None) -> int:
    """The generation in row `row` of the writer role; 0 before the first claim."""
    return 0 if row is None else decode(WriterSession, WRITER, row).generation


def names_digest(sstables: Iterable[SstableInfo]) -> str:
    """A digest of the files' names, independent of their order."""
    names = "\n".join(sorted(info.name for info in sstables))
    return blake2b(names.encode(), digest_size=16).hexdigest()


def _dump(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":"), sort_keys=True).encode()


def _load(key: str, data: bytes) -> dict[str, Any]:
    try:
        record = json.loads(data)
    except MALFORMED as error:
        raise MetaStoreCorrupt(key, "JSON", None, str(error)) from error
    if not isinstance(record, dict):
        raise MetaStoreCorrupt(key, "JSON", "an object", type(record).__name__)
    return record
