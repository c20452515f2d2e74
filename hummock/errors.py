"""Every error of the store, each with its evidence as attributes, each safe to pickle.

HummockError
├── ObjectStoreError            an object store could not do what it was asked; may be retried
│   ├── ObjectNotFound          also KeyError
│   ├── ObjectExists            a create-if-absent found something
│   ├── InvalidPath             also ValueError: a path that names nothing inside the store
│   ├── ObjectStoreRefused      the store will not do it, however often it is asked
│   ├── DiskFull                also MetaStoreError: no space is left where something was to be written
│   ├── UploadLost              what a writer was given is gone: the object must be written again from its beginning
│   └── DeadlineExceeded        also TimeoutError: retries ended without success
├── Corruption                  also ValueError: bytes are not what was written; never retried, never hidden
│   └── MetaStoreCorrupt        also MetaStoreError
│       └── MetaStoreRolledBack an older copy stands where a newer one was acknowledged
├── MetaStoreError              the meta store could not do what it was asked
│   ├── PreconditionFailed      nothing was written: a key does not hold what the transaction requires
│   ├── OutcomeUnknown          the transaction may or may not have happened: read again
│   ├── MetaStoreBusy           also TimeoutError: another process held the store too long
│   ├── MetaStoreEmptied        a store that was initialised once holds nothing now
│   │   └── MetaStoreReplaced   ... or another store by now
│   ├── MetaStoreUnfit          what lies below cannot keep the promises of a meta store
│   └── MetaStoreForked         also StoreForked
├── StoreForked                 what one process opened was used by its fork
├── FormatTooNew                a newer release made it; not damaged, and not read
├── InvalidWriteBatch           also ValueError
├── InvalidEpoch                also ValueError
├── InvalidKey                  also ValueError: parts that make no user key
├── InvalidOption               also ValueError
├── DiskCacheInUse              another process keeps its disk cache in the directory
├── SstableRefused              a commit names a file that may not enter a version
├── LoadRefused                 a bulk load that may not enter a version, whole as it is
├── InvalidTask                 also ValueError: bytes that are no compact task, spec or result
├── TaskRefused                 a report of a compact task that is not, or no longer, this one's to make
├── RowCountMismatch             what a compaction read is not what it kept and dropped
├── TaskCancelled               a compaction was told to stop
├── Fenced                      a role was claimed by another process since
├── RoleMissing                 what was asked for needs a role that the store was opened without
├── EpochTooOld                 a read below what compaction has kept
├── SnapshotExpired             a lease ran out and what it protected is gone
├── WaitEpochTimeout            also TimeoutError
├── SharedBufferFull            writes outran uploads beyond the limit
├── SparkMissing                also ImportError: Spark was asked for where pyspark or Java is not installed
├── ExecutorUnfit               an executor cannot do our tasks; says what to do about it
├── SparkJobFailed              a job on Spark ended without its answers
│   └── SparkJobCancelled       ... because it was told to
└── StoreClosed                 use after close
"""

from __future__ import annotations

from contextlib import suppress
from traceback import clear_frames
from typing import Any


class HummockError(Exception):
    """Root of the tree. `args` are the constructor's arguments, so that an error survives pickling."""


class ObjectStoreError(HummockError):
    """`path` could not be read or written; `reason` says why."""

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
    """The path is empty, absolute, or leads out of the store."""


class ObjectStoreRefused(ObjectStoreError):
    """The store understood and will not: no such bucket, no right to it, or something that it cannot do at all."""


class UploadLost(ObjectStoreError):
    """The bytes that a writer took are not safe and cannot be made so; nothing of the object is visible."""


class DeadlineExceeded(ObjectStoreError, TimeoutError):
    """Every try of one call failed until its attempts or its total time ran out; `attempts` were made."""

    def __init__(self, path: str, reason: str, attempts: int):
        super().__init__(path, reason)
        self.args, self.attempts = (path, reason, attempts), attempts

    def __str__(self) -> str:
        return f"object {self.path!r}: gave up after {self.attempts} attempts: {self.reason}"


class MetaStoreError(HummockError):
    """The meta store failed; `args[0]` says how."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else type(self).__name__


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
    """A transaction's end was not seen: it is either wholly done or not at all."""


class MetaStoreBusy(MetaStoreError, TimeoutError):
    """Another process held the store for longer than `timeout_ms`. Nothing was written."""

    def __init__(self, store: str, timeout_ms: int):
        super().__init__(store, timeout_ms)
        self.store, self.timeout_ms = store, timeout_ms

    def __str__(self) -> str:
        return f"{self.store} was held by another process for more than {self.timeout_ms} ms"


class MetaStoreCorrupt(Corruption, MetaStoreError):
    """The meta store's own digests do not agree with its rows."""


class MetaStoreRolledBack(MetaStoreCorrupt):
    """`store` ends at transaction `found`, and `witness` says that `acknowledged` was: an older copy was put back."""

    def __init__(self, store: str, witness: str, acknowledged: int, found: int):
        super().__init__(store, "last transaction", acknowledged, found)
        self.args = self.store, self.witness, self.acknowledged, self.found = store, witness, acknowledged, found

    def __str__(self) -> str:
        return (f"{self.store} was put back to an older copy: its last transaction is {self.found}, and {self.witness} "
                f"knows of transaction {self.acknowledged}: accept_rollback=True (--accept-rollback) gives those up")


class MetaStoreEmptied(MetaStoreError):
    """`marker` says that `store` was initialised, yet it holds nothing: it was lost, not new."""

    def __init__(self, store: str, marker: str):
        super().__init__(store, marker)
        self.store, self.marker = store, marker

    def __str__(self) -> str:
        return f"{self.store} is empty, but {self.marker} says it was initialised: its data was lost"


class MetaStoreReplaced(MetaStoreEmptied):
    """`store` is where this process opened store `opened` (an id); `found` is there now. Nothing was written."""

    def __init__(self, store: str, opened: str, found: str):
        super().__init__(store, opened)
        self.args, self.opened, self.found = (store, opened, found), opened, found

    def __str__(self) -> str:
        return (f"{self.store} was emptied and holds another store now: this process opened store {self.opened}, "
                f"found is {self.found}; open it again to use that one")


class MetaStoreUnfit(MetaStoreError):
    """`store` cannot hold shared truth, because of `reason`."""

    def __init__(self, store: str, reason: str):
        super().__init__(store, reason)
        self.store, self.reason = store, reason

    def __str__(self) -> str:
        return f"{self.store} cannot keep a meta store: {self.reason}"


class StoreForked(HummockError):
    """What process `opened_by` opened was used by process `used_by`, which has none of its threads."""

    def __init__(self, store: str, opened_by: int, used_by: int):
        super().__init__(store, opened_by, used_by)
        self.store, self.opened_by, self.used_by = store, opened_by, used_by

    def __str__(self) -> str:
        return f"{self.store} is of process {self.opened_by} and not of its fork {self.used_by}: open it again there"


class MetaStoreForked(StoreForked, MetaStoreError):
    """The handle of a meta store was."""


class FormatTooNew(HummockError):
    """`what` was made by a newer release, in format `found`; this one reads them up to `newest`."""

    def __init__(self, what: str, found: int | str, newest: int):
        super().__init__(what, found, newest)
        self.what, self.found, self.newest = what, found, newest

    def __str__(self) -> str:
        reads = f"format {self.found}, this one reads up to {self.newest}"
        return f"{self.what} was made by a newer release ({reads}): upgrade hummock"


class InvalidWriteBatch(HummockError, ValueError):
    """`row` (None: the batch as a whole) breaks the order, uniqueness or presence of keys."""

    def __init__(self, reason: str, row: int | None = None):
        super().__init__(reason, row)
        self.reason, self.row = reason, row

    def __str__(self) -> str:
        return self.reason if self.row is None else f"row {self.row}: {self.reason}"


class InvalidEpoch(HummockError, ValueError):
    """`epoch` may not be used like this."""

    def __init__(self, epoch: Any, reason: str):
        super().__init__(epoch, reason)
        self.epoch, self.reason = epoch, reason

    def __str__(self) -> str:
        return f"epoch {self.epoch}: {self.reason}"


class InvalidKey(HummockError, ValueError):
    """No user key has these parts: an integer of 32 bits, one of 16, and bytes."""

    def __init__(self, table_id: Any, vnode: Any, key: Any):
        super().__init__(table_id, vnode, key)
        self.table_id, self.vnode, self.key = table_id, vnode, key

    def __str__(self) -> str:
        return (f"no user key has table id {self.table_id!r}, vnode {self.vnode!r} and {type(self.key).__name__}: "
                f"it is a u32, a u16 and bytes")


class InvalidOption(HummockError, ValueError):
    """Option `name` may not be `value`; `allowed` says what may be."""

    def __init__(self, name: str, value: Any, allowed: str):
        super().__init__(name, value, allowed)
        self.name, self.value, self.allowed = name, value, allowed

    def __str__(self) -> str:
        return f"option {self.name} is {self.value!r}: must be {self.allowed}"


class DiskCacheInUse(HummockError):
    """Two processes may not keep a disk cache in one `directory`."""

    def __init__(self, directory: str):
        super().__init__(directory)
        self.directory = directory

    def __str__(self) -> str:
        return f"the directory {self.directory!r} holds the disk cache of another process"


class SstableRefused(HummockError):
    """File `name` may not enter a version."""

    def __init__(self, name: str, reason: str):
        super().__init__(name, reason)
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        return f"sstable {self.name} is refused: {self.reason}"


class LoadRefused(HummockError):
    """Load `load_id` may not enter a version; nothing of it did."""

    def __init__(self, load_id: str, reason: str):
        super().__init__(load_id, reason)
        self.load_id, self.reason = load_id, reason

    def __str__(self) -> str:
        return f"load {self.load_id!r} is refused: {self.reason}"


class InvalidTask(HummockError, ValueError):
    """`what` could not be read from a record, because of `reason`."""

    def __init__(self, what: str, reason: str):
        super().__init__(what, reason)
        self.what, self.reason = what, reason

    def __str__(self) -> str:
        return f"this is no {self.what}: {self.reason}"


class TaskRefused(HummockError):
    """Compact task `task_id` stays as it is: `reason`. What the attempt wrote is left to vacuum."""

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
    """The work on compact task `task_id` ended before its result because it was told to."""

    def __init__(self, task_id: int, reason: str = "it was cancelled"):
        super().__init__(task_id, reason)
        self.task_id, self.reason = task_id, reason

    def __str__(self) -> str:
        return f"compact task {self.task_id}: {self.reason}"


class Fenced(HummockError):
    """The holder of generation `held` of `role` was replaced by `node`; the store is at generation `current`."""

    def __init__(self, role: str, held: int, current: int, node: str):
        super().__init__(role, held, current, node)
        self.role, self.held, self.current, self.node = role, held, current, node

    def __str__(self) -> str:
        return (f"the {self.role} role was claimed by {self.node!r}, and one process has it at a time: held generation "
                f"{self.held}, now {self.current}")


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
        return f"epoch {self.epoch} is older than {self.safe_epoch}, the oldest that can still be read"


class SnapshotExpired(HummockError):
    """`what` was protected by a lease that ran out."""

    def __init__(self, what: str, reason: str = "its lease ran out"):
        super().__init__(what, reason)
        self.what, self.reason = what, reason

    def __str__(self) -> str:
        return f"{self.what} is gone: {self.reason}"


class WaitEpochTimeout(HummockError, TimeoutError):
    """`epoch` was not committed within `timeout_ms`; the store stands at `committed_epoch`."""

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


class SparkMissing(HummockError, ImportError):
    """`what` is not installed; `remedy` says how to have it."""

    def __init__(self, what: str, remedy: str):
        super().__init__(what, remedy)
        self.what, self.remedy = what, remedy

    def __str__(self) -> str:
        return f"Spark needs {self.what}, which is not here: {self.remedy}"


class ExecutorUnfit(HummockError):
    """`host` cannot do our tasks, because of `reason`; `remedy` says what to do."""

    def __init__(self, host: str, reason: str, remedy: str):
        super().__init__(host, reason, remedy)
        self.host, self.reason, self.remedy = host, reason, remedy

    def __str__(self) -> str:
        return f"{self.host} cannot do the tasks: {self.reason}; {self.remedy}"


class SparkJobFailed(HummockError):
    """Job `name` ended without its answers, because of `reason`."""

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
    """`value` for a message: absent, whole, or its first `limit` bytes and its size."""
    if value is None:
        return "nothing"
    return repr(value) if len(value) <= limit else f"{value[:limit]!r}... ({len(value)} bytes)"


def without_frames(error: BaseException) -> BaseException:
    """The error, which names what it came through still, but holds none of it in memory.

    An error that was kept, or raised by a thread and then by who waited for it, is part of a cycle with all that its
    frames held: buffers of megabytes that count as little, so that nobody would look for them soon.
    """
    found: BaseException | None = error
    while found is not None:
        trace = found.__traceback__
        clear_frames(trace)
        # Who caught it ended too, and is held by the frames that it called.
        caller = None if trace is None else trace.tb_frame.f_back
        while caller is not None:
            with suppress(RuntimeError):        # it runs still
                caller.clear()
            caller = caller.f_back
        found = found.__cause__
    return error
