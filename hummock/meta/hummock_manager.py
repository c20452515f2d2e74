"""HummockManager: which files make up the store, up to which epoch, and which versions are still read.

A manager is a library over the meta store. Any process may open one; a change is one transaction whose preconditions
the store checks, so managers of many processes agree without communicating. Within a process it is thread safe: changes
are serialised, and each new version is delivered to the subscribers in order before the call that created it returns.
The outcome of an interrupted transaction is never assumed: what it would have written is read.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from hummock.base.key import KeyRange
from hummock.base.key_watermark import KeyWatermark
from hummock.base.logs import Event
from hummock.base.table_rules import TableRules, check_tables
from hummock.compaction.task import CompactTask, RangeResult
from hummock.epoch import Clock, Epoch, check_committable, check_epoch, monotonic_seconds, pure_epoch
from hummock.errors import (
    Corruption,
    EpochTooOld,
    Fenced,
    InvalidEpoch,
    LoadRefused,
    MetaStoreError,
    OutcomeUnknown,
    PreconditionFailed,
    SnapshotExpired,
    SstableRefused,
)
from hummock.loaded_files import LoadAnswer, LoadedFiles
from hummock.meta.commit import CommitRequest
from hummock.meta.compaction.manager import CompactionManager
from hummock.meta.compaction.records import RunningTask
from hummock.meta.ingest_placement import read_load
from hummock.meta.leases import PinTable, held_epoch
from hummock.meta.notification import TopicSubscription
from hummock.meta.records import HEAD, LOADS, TASKS, VACUUMED, WRITER, decode, encode, lease_key
from hummock.meta.store.base import NONE, MetaOperations, MetaStore
from hummock.meta.upload_registry import UploadTable
from hummock.meta.version_log import LogPosition, append, create
from hummock.meta.version_state import Change, VersionState, retry_overtaken
from hummock.meta.writer_process import claiming_process, process_row
from hummock.meta_client import NO_RULE_CHANGES, NO_WATERMARKS, WriterSession
from hummock.metrics import Metrics
from hummock.object_store.base import ObjectStore, RandomBytes
from hummock.options import CompactionOptions, MetaOptions
from hummock.sstable.info import SstableInfo
from hummock.version import HummockVersion, VersionDelta

REQUESTS_TOPIC = "compaction requests"
SLOW_SECONDS = 5.0         # of a commit that is worth a warning
log = logging.getLogger(__name__)


class HummockManager:
    """Implements `HummockMetaClient`. The version that it knows is never newer than the store's.

    Leases expire by the meta store's clock unless `clock` is given. Opening reads the log and claims nothing. Raises
    `MetaStoreEmptied` and `MetaStoreCorrupt`.
    """

    def __init__(self, meta_store: MetaStore, object_store: ObjectStore, clock: Clock | None = None, *,
                 options: MetaOptions | None = None, compaction: CompactionOptions | None = None,
                 metrics: Metrics | None = None, random_bytes: RandomBytes = os.urandom):
        self.options = options or MetaOptions()
        self.metrics = metrics or Metrics()
        self._meta_store, self._random_bytes = meta_store, random_bytes
        self._clock = clock or meta_store.now_ms
        self._keeper = VersionState(meta_store, object_store, self.options, self.metrics)
        self.notifications = self._keeper.notifications
        self._pins = PinTable(meta_store, self._clock, self.options, random_bytes)
        self._compaction = CompactionManager(self._keeper, self._clock, compaction or CompactionOptions(),
                                             random_bytes, self._pins)
        self._uploads = UploadTable(meta_store, self._clock, self.options, random_bytes)

    @property
    def version(self) -> HummockVersion:
        """The newest version that this manager knows of."""
        return self._keeper.version

    @property
    def committed_epoch(self) -> Epoch:
        return self._keeper.version.max_committed_epoch

    @property
    def left_at(self) -> int:
        """The newest known version that lacks files of the one before."""
        return self._keeper.left_at

    @property
    def lease_ms(self) -> int:
        """How long a lease lasts that is not renewed."""
        return self.options.lease_ms

    def subscribe(self, callback: Callable[[HummockVersion], None]) -> TopicSubscription:
        """Calls `callback` with each later version, ascending; see `NotificationService`."""
        return self._keeper.subscribe(callback)

    def subscribe_requests(self, callback: Callable[[int], None]) -> TopicSubscription:
        """Calls `callback` with the number of each later request of `compact_range`, when it is durable."""
        return self.notifications.subscribe(REQUESTS_TOPIC, callback)

    def refresh(self) -> HummockVersion:
        """Reads and installs the newest version in the meta store."""
        return self._keeper.refresh()

    def close(self) -> None:
        """Releases every pin and upload of this process. The stores belong to the caller and stay open. Idempotent."""
        self._uploads.release_all()
        self._pins.release_all()

    # -- roles ---------------------------------------------------------------------------------------------

    def claim_writer(self, node: str = "writer") -> WriterSession:
        """Claims the writer role. The former writer's next commit raises `Fenced`."""
        lease_key(node)
        token = self._random_bytes(16).hex()
        for _ in range(self.options.transaction_attempts):
            row = self._meta_store.get(WRITER)
            held = decode(WriterSession, WRITER, row) if row is not None else WriterSession(0, "", "")
            if held.token == token:
                self.refresh()
                return held
            session = WriterSession(held.generation + 1, node, token)
            put = {WRITER: encode(session), **process_row(node, self._clock())}
            claim = MetaOperations(require={WRITER: row}, put=put)
            if self._keeper.position.head_bytes is None:
                claim += create()[0]
            try:
                self._meta_store.transaction(claim)
            except OutcomeUnknown:
                self.metrics.transaction_retries.labels("unknown outcome").inc()
            except PreconditionFailed:
                self.metrics.transaction_retries.labels("overtaken").inc()
                self._keeper.catch_up()
            else:
                self.refresh()
                log.info(Event("writer claimed", node=node, generation=session.generation,
                               former=held.node or None, epoch=self.committed_epoch))
                return session
        raise MetaStoreError(f"the writer role was claimed by others "
                             f"{self.options.transaction_attempts} times meanwhile")

    # -- commits -------------------------------------------------------------------------------------------

    def commit_epoch(self, session: WriterSession, epoch: Epoch, sstables: Sequence[SstableInfo], *,
                     operations: MetaOperations = NONE, tables: Mapping[int, TableRules | None] = NO_RULE_CHANGES,
                     watermarks: Mapping[int, KeyWatermark] = NO_WATERMARKS, dropped_tables: Iterable[int] = (),
                     loads: Sequence[LoadedFiles] = ()) -> HummockVersion:
        """Creates a version with `epoch` committed and its files readable, durable, and known to all subscribers.

        One transaction with the caller's `operations`, the rules by table id (None removes them), the watermarks by
        table id, the tables whose rows compaction may drop from now on, and the loads, whose rows are of `epoch` and
        newer than all else in it. A call that is repeated because its answer was lost succeeds again and changes
        nothing. Raises `Fenced`, `InvalidEpoch` (not pure, or not above the committed epoch), `SstableRefused`,
        `LoadRefused`, `PreconditionFailed` (of the caller's own requirements), `OutcomeUnknown` where even reading
        again failed: then the caller repeats the call.
        """
        began = monotonic_seconds()
        request = CommitRequest(session, check_committable(epoch), tuple(sstables), operations, dict(tables),
                                tuple(dropped_tables), tuple(loads), dict(watermarks))
        self._keeper.change(lambda position: self._plan_commit(request, position),
                            lambda error: self._refuse_commit(request, error))
        seconds = monotonic_seconds() - began
        self.metrics.commit_seconds.observe(seconds)
        if seconds > SLOW_SECONDS:
            log.warning(Event("commit slow", epoch=epoch, seconds=seconds, files=len(sstables)))
        return self.version

    def _plan_commit(self, request: CommitRequest, position: LogPosition) -> Change | None:
        committed = position.version.max_committed_epoch
        if request.loads and request.epoch > committed and request.is_answered(self._meta_store):
            self._keeper.catch_up()     # an earlier call did succeed, whose outcome could not be read
            return None
        if request.epoch > committed:
            return request.plan(position, self._meta_store, self.options, self.compaction_options.last_level)
        if request.is_answered(self._meta_store):
            return None
        self.check_writer(request.session)
        raise InvalidEpoch(request.epoch, f"is not above the committed epoch {committed}")

    def _refuse_commit(self, request: CommitRequest, error: PreconditionFailed) -> None:
        if error.key == WRITER:
            # The role may have been claimed right after a try of this commit that did succeed.
            self._keeper.catch_up()
            if not request.is_answered(self._meta_store):
                self.check_writer(request.session)
        elif error.key.startswith(VACUUMED):
            name = error.key.removeprefix(VACUUMED)
            load_id = request.load_of(name)
            if load_id is not None:
                raise LoadRefused(load_id, f"vacuum removes its file {name}") from error
            raise SstableRefused(name, "vacuum removes it") from error
        elif error.key not in (HEAD, TASKS) and not error.key.startswith(LOADS):
            raise error

    def set_rules(self, session: WriterSession, tables: Mapping[int, TableRules | None]) -> HummockVersion:
        """Creates a version with these rules by table id (None removes them), at the same epoch and with the watermarks
        that there are; for tables whose rules did not enter with the commit that created them. Raises `Fenced`,
        `InvalidOption`.
        """
        check_tables(tables)
        self._keeper.change(lambda position: self._plan_rules(session, tables, position), self._refuse_rules(session))
        return self.version

    def _plan_rules(self, session: WriterSession, tables: Mapping[int, TableRules | None],
                    position: LogPosition) -> Change | None:
        version = position.version
        delta = VersionDelta(version.id + 1, version.max_committed_epoch, version.safe_epoch, tables={
            table_id: None if rules is None else replace(rules, watermarks=()) for table_id, rules in tables.items()})
        if version.apply(delta).tables is version.tables:
            return None
        logged, after = append(position, delta, position.head.next_file_id, self.options.checkpoint_deltas)
        return MetaOperations(require={WRITER: encode(session)}) + logged, after

    def _refuse_rules(self, session: WriterSession) -> Callable[[PreconditionFailed], None]:
        def refuse(error: PreconditionFailed) -> None:
            if error.key == WRITER:
                self.check_writer(session)
            retry_overtaken(error)

        return refuse

    def load_answer(self, load_id: str) -> LoadAnswer | None:
        """The result of the load; None: never committed, or forgotten after a long time."""
        return read_load(self._meta_store, load_id)

    def check_writer(self, session: WriterSession) -> None:
        """Raises `Fenced` if another process has claimed the role."""
        row = self._meta_store.get(WRITER)
        current = decode(WriterSession, WRITER, row) if row is not None else WriterSession(0, "", "")
        if current != session:
            log.warning(Event("writer taken over", node=session.node, generation=session.generation, by=current.node,
                              now=current.generation))
            by = claiming_process(self._meta_store, current.node)
            known = () if by is None else (by.host, by.pid, by.since_ms)
            raise Fenced("writer", session.generation, current.generation, current.node, *known)

    # -- pins ----------------------------------------------------------------------------------------------

    def pin_version(self, node: str) -> HummockVersion:
        """Pins the newest known version; its files are kept until it is unpinned or the node's lease ends.

        Raises `SnapshotExpired` if the lease expired and was deleted: all older pins are lost.
        """
        for _ in range(self.options.transaction_attempts):
            pinned = self._pins.pin_version(node, self._keeper.position)
            if pinned is not None:
                return pinned
            self._lease(node)
        raise SnapshotExpired(f"the newest version of node {node}", "its lease ends before it can be used")

    def unpin_version_before(self, node: str, version_id: int) -> None:
        """Releases the node's pins of versions below `version_id`; others see it at the next renewal."""
        self._pins.unpin_version_before(node, version_id)

    def pin_snapshot(self, node: str, epoch: Epoch | None = None) -> Epoch:
        """Pins `epoch`, by default the committed one: it stays readable until it is unpinned or the lease ends.

        Raises `EpochTooOld` below the safe epoch, `InvalidEpoch` above the committed one.
        """
        wanted = None if epoch is None else pure_epoch(check_epoch(epoch))
        if wanted is not None and wanted > self.committed_epoch:
            self.refresh()
        for _ in range(self.options.transaction_attempts):
            pinned = self._pins.pin_snapshot(node, wanted, self._keeper.position)
            if pinned is not None:
                return pinned
            self._lease(node, wanted)
        raise SnapshotExpired(f"an epoch of node {node}", "its lease ends before it can be used")

    def hold_epoch(self, node: str, epoch: Epoch, hold_ms: int, operations: MetaOperations = NONE) -> None:
        """Keeps `epoch` and all later ones readable for `hold_ms` from now on, whatever becomes of this process, in one
        transaction with the caller's `operations`. `node` is a name that no process pins under; a later call replaces
        the former. Raises `EpochTooOld` if it was not kept until now, `PreconditionFailed` for the caller's own
        requirements, or what the meta store raises.
        """
        if self._try_hold(node, epoch, hold_ms, operations):
            return
        for _ in range(self.options.transaction_attempts):
            with self._keeper.unchanged():
                is_done = self._try_hold(node, epoch, hold_ms, operations)
            if is_done:
                return
        raise MetaStoreError(f"the lease of {node} was overtaken at each try")

    def _try_hold(self, node: str, epoch: Epoch, hold_ms: int, operations: MetaOperations) -> bool:
        key = lease_key(node)
        row = self._meta_store.get(key)
        hold = held_epoch(self._keeper.position, node, row, epoch, self._clock(), hold_ms)
        try:
            self._meta_store.transaction(hold + operations)
        except PreconditionFailed as error:
            if error.key in operations.require:
                raise
            return False
        except OutcomeUnknown:
            return self._meta_store.get(key) == hold.put[key]
        return True

    def release_epoch(self, node: str, operations: MetaOperations = NONE) -> None:
        """Ends what `hold_epoch` keeps, with the caller's `operations`."""
        self._meta_store.transaction(MetaOperations(delete=(lease_key(node),)) + operations)

    def unpin_snapshot(self, node: str, epoch: Epoch) -> None:
        """Releases one pin of `epoch`."""
        self._pins.unpin_snapshot(node, pure_epoch(epoch))

    def renew_lease(self, node: str) -> None:
        """Renews the node's uploads and its lease, reduced to its oldest pins. Raises `SnapshotExpired`."""
        self._uploads.renew(node)
        self._lease(node)

    def keep_lease(self, node: str) -> None:
        """Calls `renew_lease` once a third of the lease is over or it keeps files that the node does not need."""
        if self._pins.is_due(node, self._keeper.left_at):
            self.renew_lease(node)

    def lift_leases(self) -> None:
        """Advances the leases of this process, so that they keep no file that none of its nodes reads any more.

        On return every subscriber has the newest version, unless one hangs.
        """
        self.refresh()
        self._pins.lift(self._keeper.left_at)

    def release_node(self, node: str) -> None:
        """Releases everything that the node has pinned and registered, and deletes its rows."""
        self._uploads.release(node)
        self._pins.release(node)

    def register_upload(self, node: str, *prefixes: str) -> None:
        """Registers prefixes of files to be written: vacuum keeps them while the rows are valid."""
        self._uploads.register(node, prefixes)

    def renew_upload(self, node: str) -> None:
        """Renews the rows of all prefixes of the node."""
        self._uploads.renew(node)

    def release_upload(self, node: str, *prefixes: str) -> None:
        """Ends the registration of `prefixes`."""
        self._uploads.release(node, prefixes)

    def _lease(self, node: str, epoch: Epoch | None = None) -> None:
        """Writes the node's row so that it covers its pins, the version known here, and `epoch`. From the second try
        on the changes of this process wait: only those of other processes can overtake it."""
        if self._try_lease(node, epoch):
            return
        for _ in range(self.options.transaction_attempts):
            with self._keeper.unchanged():
                is_done = self._try_lease(node, epoch)
            if is_done:
                return
        raise MetaStoreError(f"the lease of node {node} was overtaken at each try")

    def _try_lease(self, node: str, epoch: Epoch | None) -> bool:
        position = self._keeper.position
        if epoch is not None and epoch < position.version.safe_epoch:
            raise EpochTooOld(epoch, position.version.safe_epoch)
        return self._pins.lease(node, position, epoch)

    # -- compaction ----------------------------------------------------------------------------------------

    @property
    def compaction_options(self) -> CompactionOptions:
        """Those by which it picks tasks."""
        return self._compaction.options

    def get_compact_task(self, holder: str, *, does_large: bool = False,
                         early_bytes: int = 0) -> tuple[CompactTask, str] | None:
        """A task and the token of the attempt at it; None: nothing is due, nor worth merging early by reading at most
        `early_bytes`.

        Trivial moves, file drops and merges of inline files are done by this call. A task whose holder sent no
        heartbeat, or made no progress, for too long is reassigned: its former token is invalid from then on. While any
        compactor `does_large`, the others get no task of `large_task_bytes` or more; for such tasks the results of an
        attempt count for the next one too.
        """
        return self._compaction.get(holder, does_large, early_bytes)

    def is_compaction_due(self, version: HummockVersion, running: Sequence[CompactTask] = ()) -> bool:
        """Whether `get_compact_task` may have work because of `version`, while a compactor runs these tasks; for tasks
        of other processes it is asked now and then. Reads nothing.
        """
        return self._compaction.is_due(version, running)

    def early_bytes(self, version: HummockVersion, running: Sequence[CompactTask] = ()) -> int:
        """Bytes of what `get_compact_task` would merge early, while a compactor runs these tasks; 0: nothing."""
        return self._compaction.early_bytes(version, running)

    def heartbeat_task(self, task_id: int, token: str, progress_rows: int) -> None:
        """Renews the attempt's lease. Raises `TaskRefused` if it was lost."""
        self._compaction.heartbeat(task_id, token, progress_rows)

    def report_compact_task(self, task_id: int, token: str, results: Sequence[RangeResult]) -> HummockVersion:
        """Creates a version in which the task's outputs replace its inputs; a repeated report gets the same answer.

        Raises `TaskRefused` for a late or foreign report and for results that do not account for every row.
        """
        self._compaction.report(task_id, token, tuple(results))
        return self.version

    def fail_task(self, task_id: int, token: str, error: str, damage: Corruption | None = None) -> None:
        """Reports that the attempt ended with `error`: the task is assigned again after a while, a few times. With
        `damage` it has ended, and this process does not pick it again while its files are there, for some minutes.
        """
        self._compaction.fail(task_id, token, error, damage)

    def hand_back_task(self, task_id: int, token: str) -> None:
        """Returns the task, which did not fail: others may take it at once."""
        self._compaction.hand_back(task_id, token)

    def compact_range(self, key_range: KeyRange) -> int:
        """Requests that all files that may hold keys of the range are merged into the last level; the request's number.

        It becomes a task, ahead of all others, as soon as none of its files is part of another. Compactors of this
        process are notified at once, others see it at their next poll.
        """
        number = self._compaction.request(key_range)
        self.notifications.publish(REQUESTS_TOPIC, number)
        return number

    def damage_in(self, key_range: KeyRange) -> Corruption | None:
        """The damage of a task that this process does not pick again for now, on files that may hold keys of the range.
        """
        return self._compaction.damage_in(key_range)

    def is_compacted(self, key_range: KeyRange) -> bool:
        """Whether `compact_range` would only write again what is there."""
        return self._compaction.is_compacted(key_range)

    def drop_files(self, names: Iterable[str]) -> HummockVersion:
        """Creates a version without these files, for repair: their rows are gone, older rows below them reappear."""
        self._compaction.drop(names, "repair drops one of its files")
        return self.version

    def running_tasks(self) -> list[RunningTask]:
        """The running tasks of all processes."""
        return self._compaction.running()

    def compaction_debt(self) -> int:
        """Number of tasks that are running, requested or needed by the newest version, which every subscriber has then.

        0: nothing is left to compact, but for what `damage_in` returns.
        """
        return self._compaction.debt()
