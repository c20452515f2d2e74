"""All errors of the store, each with its evidence as attributes, each safe to pickle.

HummockError
├── ObjectStoreError            an object store operation failed; may be retried
│   ├── ObjectNotFound          also KeyError
│   ├── ObjectExists            a create-if-absent found an object
│   ├── InvalidPath             also ValueError: a path that does not name an object inside the store
│   ├── ObjectStoreRefused      the store rejects the operation; retries do not help
│   ├── DiskFull                also MetaStoreError: no space left for a write
│   ├── UploadLost              accepted bytes of an upload are lost: write the object again from its beginning
│   └── DeadlineExceeded        also TimeoutError: retries ended without success
├── Corruption                  also ValueError: bytes are not what was written; never retried, never hidden
│   └── MetaStoreCorrupt        also MetaStoreError
│       └── MetaStoreRolledBack an older copy replaced a newer, acknowledged one
├── MetaStoreError              a meta store operation failed
│   ├── PreconditionFailed      nothing was written: a key does not hold what the transaction requires
│   ├── OutcomeUnknown          the transaction may or may not have happened: read again
│   ├── MetaStoreBusy           also TimeoutError: another process held the store too long
│   ├── MetaStoreEmptied        a store that was initialised once is empty now
│   │   └── MetaStoreReplaced   ... or was replaced by another store
│   ├── StoreNotFound           where a store should be there is none, and none was to be made
│   ├── MetaStoreUnfit          the underlying storage cannot provide the guarantees of a meta store
│   └── MetaStoreForked         also StoreForked
├── StoreForked                 a forked child used what its parent had opened
├── FormatTooNew                written by a newer release; not damaged, but not readable
├── InvalidWriteBatch           also ValueError
├── InvalidEpoch                also ValueError
├── InvalidKey                  also ValueError: parts that make no user key
├── InvalidOption               also ValueError
│   └── UnknownOption           also TypeError: no option has this name
├── DiskCacheInUse              another process uses the directory for its disk cache
├── SstableRefused              a commit names a file that may not enter a version
├── LoadRefused                 a bulk load that may not enter a version; all of it is refused
├── InvalidTask                 also ValueError: bytes that are no compact task, spec or result
├── TaskRefused                 a report of a compact task that does not, or no longer, belong to the caller
├── RowCountMismatch            a compaction whose input differs from its output plus dropped rows
├── TaskCancelled               a compaction was cancelled
├── Fenced                      another process has claimed the role since
├── WriterRunning               another process has the writer role, and was not to be replaced
├── BackupNotFound              a directory of backups holds no finished one, or not that of the epoch
├── BackupRefused               what a backup would be written to, or restored to, is taken by something else
│   └── StoreExists             ... by a store
├── RoleMissing                 an operation needs a role that the store was opened without
├── EpochTooOld                 a read below what compaction has kept
├── SnapshotExpired             a lease expired and what it protected is gone
├── WaitEpochTimeout            also TimeoutError
├── SharedBufferFull            writes outran uploads beyond the limit
├── ExtraMissing                also ImportError: an optional package is not installed; names what installs it
│   └── SparkMissing            ... or Java, for Spark
├── ExecutorUnfit               an executor cannot run our tasks; names the remedy
├── SparkJobFailed              a job on Spark ended without results
│   └── SparkJobCancelled       ... because it was cancelled
└── StoreClosed                 use after close
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from difflib import get_close_matches
from traceback import clear_frames
from typing import Any


class HummockError(Exception):
    """Root of the hierarchy. `args` are the constructor's arguments, so that an error survives pickling."""


class ObjectStoreError(HummockError):
    """`path` could not be read or written, because of `reason`."""

    def __init__(self, path: str, reason: str):
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"object {self.path!r}: {self.reason}"


class ObjectNotFound(ObjectStoreError, KeyError):
    def __init__(self, path: str, reason: str = "does not exist"):
        super().__init__(path, reason)


class ObjectExists(ObjectStoreError):
    def __init__(self, path: str, reason: str = "exists already"):
        super().__init__(path, reason)


class InvalidPath(ObjectStoreError, ValueError):
    """The path is empty, absolute, or points outside of the store."""


class ObjectStoreRefused(ObjectStoreError):
    """The store rejects the request: no such bucket, no permission, or an unsupported operation."""


class UploadLost(ObjectStoreError):
    """Bytes that a writer accepted are lost for good; nothing of the object is visible."""


class DeadlineExceeded(ObjectStoreError, TimeoutError):
    """Every try of one call failed until its attempts or its total time were used up; `attempts` were made."""

    def __init__(self, path: str, reason: str, attempts: int):
        super().__init__(path, reason)
        self.args, self.attempts = (path, reason, attempts), attempts

    def __str__(self) -> str:
        return f"object {self.path!r}: gave up after {self.attempts} attempts: {self.reason}"


class MetaStoreError(HummockError):
    """The meta store failed; `args[0]` describes how."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else type(self).__name__


MAKES_STORES = 'hummock.open(…, role="writer") and stream.connect(…, create=True) make one'


class StoreNotFound(MetaStoreError):
    """There is no store at `location`, and opening was not to make one."""

    def __init__(self, location: str):
        super().__init__(location)
        self.location = location

    def __str__(self) -> str:
        return f"there is no store at {self.location}: check the location; {MAKES_STORES}"


class DiskFull(ObjectStoreError, MetaStoreError):
    """The disk that holds `directory` has no space or quota left for `path`. Nothing of it was acknowledged."""

    def __init__(self, path: str, directory: str, reason: str = "ENOSPC: No space left on device"):
        super().__init__(path, reason)
        self.args, self.directory = (path, directory, reason), directory

    def __str__(self) -> str:
        return f"the disk of {self.directory} is full: {self.path!r} could not be written ({self.reason})"


class Corruption(HummockError, ValueError):
    """Bytes are not what was written: `where` in `object_name`, what was `expected`, what was `got`."""

    def __init__(self, object_name: str, where: str, expected: Any = None, got: Any = None):
        super().__init__(object_name, where, expected, got)
        self.object_name, self.where, self.expected, self.got = object_name, where, expected, got

    def __str__(self) -> str:
        evidence = "" if self.expected is None and self.got is None else (
            f": expected {self.expected!r}, got {self.got!r}")
        return f"{self.object_name} is damaged at {self.where}{evidence}"


class PreconditionFailed(MetaStoreError):
    """`key` held `got` where the transaction required `expected` (None: absent). Nothing was written."""

    def __init__(self, key: str, expected: bytes | None, got: bytes | None):
        super().__init__(key, expected, got)
        self.key, self.expected, self.got = key, expected, got

    def __str__(self) -> str:
        return f"meta key {self.key!r}: required {_shortened(self.expected)}, found {_shortened(self.got)}"


class OutcomeUnknown(MetaStoreError):
    """The outcome of a transaction is unknown: it happened either completely or not at all."""


class MetaStoreBusy(MetaStoreError, TimeoutError):
    """Another process held the store for longer than `timeout_ms`. Nothing was written."""

    def __init__(self, store: str, timeout_ms: int):
        super().__init__(store, timeout_ms)
        self.store, self.timeout_ms = store, timeout_ms

    def __str__(self) -> str:
        return f"{self.store} was held by another process for more than {self.timeout_ms} ms"


class MetaStoreCorrupt(Corruption, MetaStoreError):
    """The meta store's digests do not match its rows."""


class MetaStoreRolledBack(MetaStoreCorrupt):
    """`store` ends at transaction `found`, but `guard` records `acknowledged`: an older copy was restored."""

    def __init__(self, store: str, guard: str, acknowledged: int, found: int):
        super().__init__(store, "last transaction", acknowledged, found)
        self.args = self.store, self.guard, self.acknowledged, self.found = store, guard, acknowledged, found

    def __str__(self) -> str:
        return (f"{self.store} was put back to an older copy: its last transaction is {self.found}, and {self.guard} "
                f"knows of transaction {self.acknowledged}: accept_rollback=True (--accept-rollback) gives those up")


class MetaStoreEmptied(MetaStoreError):
    """`marker` records that `store` was initialised, but it is empty: it was lost, not new."""

    def __init__(self, store: str, marker: str):
        super().__init__(store, marker)
        self.store, self.marker = store, marker

    def __str__(self) -> str:
        return f"{self.store} is empty, but {self.marker} says it was initialised: its data was lost"


class MetaStoreReplaced(MetaStoreEmptied):
    """This process opened store `opened` (an id) at `store`; now store `found` is there. Nothing was written."""

    def __init__(self, store: str, opened: str, found: str):
        super().__init__(store, opened)
        self.args, self.opened, self.found = (store, opened, found), opened, found

    def __str__(self) -> str:
        return (f"{self.store} was emptied and holds another store now: this process opened store {self.opened}, "
                f"found is {self.found}; open it again to use that one")


class MetaStoreUnfit(MetaStoreError):
    """`store` cannot hold shared metadata, because of `reason`."""

    def __init__(self, store: str, reason: str):
        super().__init__(store, reason)
        self.store, self.reason = store, reason

    def __str__(self) -> str:
        return f"{self.store} cannot keep a meta store: {self.reason}"


class StoreForked(HummockError):
    """An object that process `opened_by` opened was used by its fork `used_by`, which has none of its threads."""

    def __init__(self, store: str, opened_by: int, used_by: int):
        super().__init__(store, opened_by, used_by)
        self.store, self.opened_by, self.used_by = store, opened_by, used_by

    def __str__(self) -> str:
        return f"{self.store} is of process {self.opened_by} and not of its fork {self.used_by}: open it again there"


class MetaStoreForked(StoreForked, MetaStoreError):
    """As StoreForked, for the handle of a meta store."""


class FormatTooNew(HummockError):
    """`what` was written by a newer release, in format `found`; this one reads formats up to `newest`."""

    def __init__(self, what: str, found: int | str, newest: int):
        super().__init__(what, found, newest)
        self.what, self.found, self.newest = what, found, newest

    def __str__(self) -> str:
        reads = f"format {self.found}, this one reads up to {self.newest}"
        return f"{self.what} was made by a newer release ({reads}): upgrade hummock"


class InvalidWriteBatch(HummockError, ValueError):
    """`row` (None: the batch as a whole) violates the order, uniqueness or presence of keys."""

    def __init__(self, reason: str, row: int | None = None):
        super().__init__(reason, row)
        self.reason, self.row = reason, row

    def __str__(self) -> str:
        return self.reason if self.row is None else f"row {self.row}: {self.reason}"


class InvalidEpoch(HummockError, ValueError):
    """`epoch` is not valid for this operation."""

    def __init__(self, epoch: Any, reason: str):
        super().__init__(epoch, reason)
        self.epoch, self.reason = epoch, reason

    def __str__(self) -> str:
        return f"epoch {self.epoch}: {self.reason}"


class InvalidKey(HummockError, ValueError):
    """No user key has these parts: it needs a 32-bit integer, a 16-bit integer and bytes."""

    def __init__(self, table_id: Any, vnode: Any, key: Any):
        super().__init__(table_id, vnode, key)
        self.table_id, self.vnode, self.key = table_id, vnode, key

    def __str__(self) -> str:
        return (f"no user key has table id {self.table_id!r}, vnode {self.vnode!r} and {type(self.key).__name__}: "
                f"it is a u32, a u16 and bytes")


class InvalidOption(HummockError, ValueError):
    """Option `name` must not be `value`; `allowed` describes valid values."""

    def __init__(self, name: str, value: Any, allowed: str):
        super().__init__(name, value, allowed)
        self.name, self.value, self.allowed = name, value, allowed

    def __str__(self) -> str:
        return f"option {self.name} is {self.value!r}: must be {self.allowed}"


READS_ONLY = 'role="reader" changes no data; it only registers what it reads'
OTHER_OPTIONS = {
    "create": MAKES_STORES,
    "create_if_missing": MAKES_STORES,
    "read_only": READS_ONLY,
    "readonly": READS_ONLY,
    "mode": 'role="reader" and role="writer" say what a session may do',
}
"""What is there instead of options of other databases."""


class UnknownOption(InvalidOption, TypeError):
    """There is no option `name`, for which `value` was given; `known` are the names that there are."""

    def __init__(self, name: str, value: Any, known: tuple[str, ...]):
        super().__init__(name, value, ", ".join(known))
        self.args, self.known = (name, value, known), known

    def __str__(self) -> str:
        near = get_close_matches(self.name, self.known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {self.allowed}"
        return f"there is no option {self.name!r}; {OTHER_OPTIONS.get(self.name, hint)}"


class DiskCacheInUse(HummockError):
    """Another process uses `directory` for its disk cache."""

    def __init__(self, directory: str):
        super().__init__(directory)
        self.directory = directory

    def __str__(self) -> str:
        return f"the directory {self.directory!r} holds the disk cache of another process"


class SstableRefused(HummockError):
    """File `name` must not enter a version."""

    def __init__(self, name: str, reason: str):
        super().__init__(name, reason)
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        return f"sstable {self.name} is refused: {self.reason}"


class LoadRefused(HummockError):
    """Load `load_id` must not enter a version; none of its files did."""

    def __init__(self, load_id: str, reason: str):
        super().__init__(load_id, reason)
        self.load_id, self.reason = load_id, reason

    def __str__(self) -> str:
        return f"load {self.load_id!r} is refused: {self.reason}"


class InvalidTask(HummockError, ValueError):
    """`what` could not be decoded, because of `reason`."""

    def __init__(self, what: str, reason: str):
        super().__init__(what, reason)
        self.what, self.reason = what, reason

    def __str__(self) -> str:
        return f"this is no {self.what}: {self.reason}"


class TaskRefused(HummockError):
    """Compact task `task_id` is unchanged, because of `reason`. The attempt's files are left to vacuum."""

    def __init__(self, task_id: int, reason: str):
        super().__init__(task_id, reason)
        self.task_id, self.reason = task_id, reason

    def __str__(self) -> str:
        return f"compact task {self.task_id}: {self.reason}"


class RowCountMismatch(HummockError):
    """Range `index` of compact task `task_id` lost, doubled or changed rows: `reason`. Its files must not be used."""

    def __init__(self, task_id: int, index: int, reason: str):
        super().__init__(task_id, index, reason)
        self.task_id, self.index, self.reason = task_id, index, reason

    def __str__(self) -> str:
        return f"compact task {self.task_id}: range {self.index} {self.reason}"


class TaskCancelled(HummockError):
    """The work on compact task `task_id` was cancelled."""

    def __init__(self, task_id: int, reason: str = "it was cancelled"):
        super().__init__(task_id, reason)
        self.task_id, self.reason = task_id, reason

    def __str__(self) -> str:
        return f"compact task {self.task_id}: {self.reason}"


def _utc(unix_ms: int) -> str:
    return f"{datetime.fromtimestamp(unix_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


class Fenced(HummockError):
    """`node` replaced the holder of generation `held` of `role`; the store is at generation `current`. Process `pid` of
    `host` has done so at `since_ms`, as Unix time; `host` is None if that is not known."""

    def __init__(
        self, role: str, held: int, current: int, node: str, host: str | None = None, pid: int = 0, since_ms: int = 0
    ):
        super().__init__(role, held, current, node, host, pid, since_ms)
        self.role, self.held, self.current, self.node = role, held, current, node
        self.host, self.pid, self.since_ms = host, pid, since_ms

    def __str__(self) -> str:
        by = repr(self.node)
        if self.host is not None:
            by += f", process {self.pid} of {self.host}, at {_utc(self.since_ms)}"
        return (f"the {self.role} role was claimed by {by}, and one process has it at a time: held generation "
                f"{self.held}, now {self.current}")


class WriterRunning(HummockError):
    """Process `pid` of `host` has had the writer role of the store at `url` since `since_ms`, as Unix time."""

    def __init__(self, url: str, node: str, host: str, pid: int, since_ms: int):
        super().__init__(url, node, host, pid, since_ms)
        self.url, self.node, self.host, self.pid, self.since_ms = url, node, host, pid, since_ms

    def __str__(self) -> str:
        since = _utc(self.since_ms)
        if (self.pid, self.host) == (os.getpid(), socket.gethostname()):
            return (f"this process (process {self.pid}) has {self.url} open since {since}, and one session writes at a "
                    'time: close() the other one first, or use it; role="reader" reads beside it; take_over=True ends '
                    'it')
        return (f"process {self.pid} of {self.host} writes {self.url} since {since}, and one "
                'process does at a time: role="reader" reads beside it; take_over=True ends it')


class BackupNotFound(HummockError):
    """`target` holds no finished backup of `epoch` (None: of any), but those of `epochs`. `is_begun`: one has begun."""

    def __init__(self, target: str, epoch: int | None, epochs: tuple[int, ...] = (), is_begun: bool = False):
        super().__init__(target, epoch, epochs, is_begun)
        self.target, self.epoch, self.epochs, self.is_begun = target, epoch, epochs, is_begun

    def __str__(self) -> str:
        wanted = "" if self.epoch is None else f" of epoch {self.epoch}"
        others = f"; there are those of {', '.join(map(str, self.epochs))}" if self.epochs else ""
        begun = "; one has begun and not ended: take it again" if self.is_begun else ""
        return f"{self.target} holds no finished backup{wanted}{others}{begun}"


class BackupRefused(HummockError):
    """`target` cannot take a backup or a restored store, because of `reason`. Nothing was changed."""

    def __init__(self, target: str, reason: str):
        super().__init__(target, reason)
        self.target, self.reason = target, reason

    def __str__(self) -> str:
        return f"{self.target} is left as it is: {self.reason}"


class StoreExists(BackupRefused):
    """There is a store at `target` already."""

    def __init__(self, target: str, reason: str = "it holds a store, and a restore never overwrites one"):
        super().__init__(target, reason)


class RoleMissing(HummockError):
    """The store was opened without `role`."""

    def __init__(self, role: str = "writer"):
        super().__init__(role)
        self.role = role

    def __str__(self) -> str:
        return f'the store was opened without the {self.role} role: open it with role="{self.role}"'


class EpochTooOld(HummockError):
    """Versions of rows at `epoch` may have been compacted away: reads start at `safe_epoch`."""

    def __init__(self, epoch: int, safe_epoch: int):
        super().__init__(epoch, safe_epoch)
        self.epoch, self.safe_epoch = epoch, safe_epoch

    def __str__(self) -> str:
        return (f"epoch {self.epoch} is older than {self.safe_epoch}, the oldest that can still be read: a "
                "snapshot pins an epoch, a greater history_ms keeps all for longer")


class SnapshotExpired(HummockError):
    """`what` was protected by a lease that ran out."""

    def __init__(self, what: str, reason: str = "its lease ran out"):
        super().__init__(what, reason)
        self.what, self.reason = what, reason

    def __str__(self) -> str:
        return f"{self.what} is gone: {self.reason}"


class WaitEpochTimeout(HummockError, TimeoutError):
    """`epoch` was not committed within `timeout_ms`; the committed epoch is `committed_epoch`."""

    def __init__(self, epoch: int, committed_epoch: int, timeout_ms: int):
        super().__init__(epoch, committed_epoch, timeout_ms)
        self.epoch, self.committed_epoch, self.timeout_ms = epoch, committed_epoch, timeout_ms

    def __str__(self) -> str:
        return f"epoch {self.epoch} was not committed within {self.timeout_ms} ms; committed is {self.committed_epoch}"


class SharedBufferFull(HummockError):
    """`used_bytes` of `limit_bytes` wait for upload and nothing was freed in time."""

    def __init__(self, used_bytes: int, limit_bytes: int):
        super().__init__(used_bytes, limit_bytes)
        self.used_bytes, self.limit_bytes = used_bytes, limit_bytes

    def __str__(self) -> str:
        return f"the shared buffer holds {self.used_bytes} of {self.limit_bytes} bytes and does not drain"


class ExtraMissing(HummockError, ImportError):
    """`needed_by` needs `what`, which is not installed; `remedy` installs it, or says how."""

    def __init__(self, needed_by: str, what: str, remedy: str):
        super().__init__(needed_by, what, remedy)
        self.needed_by, self.what, self.remedy = needed_by, what, remedy

    def __str__(self) -> str:
        return f"{self.needed_by} needs {self.what}, which is not installed: {self.remedy}"


class SparkMissing(ExtraMissing):
    def __init__(self, what: str, remedy: str):
        super().__init__("Spark", what, remedy)
        self.args = what, remedy


class ExecutorUnfit(HummockError):
    """`host` cannot run our tasks, because of `reason`; `remedy` describes what to do."""

    def __init__(self, host: str, reason: str, remedy: str):
        super().__init__(host, reason, remedy)
        self.host, self.reason, self.remedy = host, reason, remedy

    def __str__(self) -> str:
        return f"{self.host} cannot do the tasks: {self.reason}; {self.remedy}"


class SparkJobFailed(HummockError):
    """Job `name` ended without results, because of `reason`."""

    def __init__(self, name: str, reason: str):
        super().__init__(name, reason)
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        return f"Spark job {self.name!r}: {self.reason}"


class SparkJobCancelled(SparkJobFailed):
    def __init__(self, name: str, reason: str = "it was cancelled"):
        super().__init__(name, reason)


class StoreClosed(HummockError):
    """`what` was used after it was closed."""

    def __init__(self, what: str = "the store"):
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} is closed"


def _shortened(value: bytes | None, limit: int = 80) -> str:
    """`value` for a message: the word for absent, all of it, or its first `limit` bytes and its size."""
    if value is None:
        return "nothing"
    return repr(value) if len(value) <= limit else f"{value[:limit]!r}... ({len(value)} bytes)"


def without_frames(error: BaseException) -> BaseException:
    """The error with its traceback, but without the frames' local variables.

    An error that was stored, or raised by one thread and again by its waiter, is part of a reference cycle with all
    locals of its frames: buffers of megabytes, of which the garbage collector counts few objects, so that it would not
    run soon.
    """
    found: BaseException | None = error
    while found is not None:
        trace = found.__traceback__
        clear_frames(trace)
        # The frame that caught it has ended too, and is referenced by the frames that it called.
        caller = None if trace is None else trace.tb_frame.f_back
        while caller is not None:
            with suppress(RuntimeError):        # it is still running
                caller.clear()
            caller = caller.f_back
        found = found.__cause__
    return error


def no_attribute(owner: object, name: str, elsewhere: Mapping[str, str]) -> AttributeError:
    """The error of an attribute that `owner` has not; `elsewhere`: what it has, by the names that other libraries give
    it."""
    hint = f"; here it is {elsewhere[name]}" if name in elsewhere else ""
    return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=owner)
