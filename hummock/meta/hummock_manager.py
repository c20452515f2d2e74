"""HummockManager: which files make up the store, up to which epoch, and who still reads which of them.

A manager is a library over the meta store. Any process may open one; a change is one transaction whose
preconditions the store checks, so managers of many processes agree without speaking to each other. Inside one
process it is thread safe: changes go one at a time, and each new version is handed to the subscribers in
order before the call that made it returns. A transaction whose end was not seen is never assumed to have
failed or succeeded: what it would have written is read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from hummock.epoch import Clock, Epoch, check_epoch, check_pure, monotonic_seconds, pure_epoch
from hummock.errors import (
    EpochTooOld,
    Fenced,
    InvalidEpoch,
    MetaStoreError,
    OutcomeUnknown,
    PreconditionFailed,
    SnapshotExpired,
    SstableRefused,
)
from hummock.meta.commit import CommitRequest
from hummock.meta.notification import NotificationService, TopicSubscription
from hummock.meta.pin_table import PinTable
from hummock.meta.pins import read_leases, settle
from hummock.meta.records import HEAD, LEASES, VACUUMED, WRITER, decode, encode, lease_key
from hummock.meta.store import NONE, MetaOperations, MetaStore
from hummock.meta.upload_table import UploadTable
from hummock.meta.version_log import LogPosition, append, create, follow, load
from hummock.meta_client import WriterSession
from hummock.metrics import Metrics
from hummock.object_store.base import ObjectStore, RandomBytes
from hummock.options import MetaOptions
from hummock.sstable.info import SstableInfo
from hummock.table_rules import TableRules
from hummock.version import HummockVersion, VersionDelta

VERSIONS_TOPIC = "versions"
NO_RULES: Mapping[int, TableRules | None] = {}
Change = tuple[MetaOperations, LogPosition]


class HummockManager:
    """Satisfies `HummockMetaClient`. The version that it knows is never newer than the store's.

    Leases run by the meta store's clock unless `clock` is given. Opening reads the log and claims nothing.
    Raises `MetaStoreEmptied` and `MetaStoreCorrupt`.
    """

    def __init__(self, meta_store: MetaStore, object_store: ObjectStore, clock: Clock | None = None, *,
                 options: MetaOptions | None = None, metrics: Metrics | None = None,
                 random_bytes: RandomBytes = os.urandom):
        self.options = options or MetaOptions()
        self.metrics = metrics or Metrics()
        self.notifications = NotificationService(self.metrics, self.options.acknowledge_ms)
        self._meta_store, self._random_bytes = meta_store, random_bytes
        self._clock = clock or meta_store.now_ms
        self._change_lock = threading.Lock()        # one change at a time; taken before the other two
        self._install_lock = threading.Lock()       # guards the position and the order of notifications
        self._position = load(meta_store, object_store)
        self._posted = 0                            # serial number of the newest notification
        self._pins = PinTable(meta_store, self._clock, self.options, random_bytes)
        self._uploads = UploadTable(meta_store, self._clock, self.options, random_bytes)
        self._show(self._position.version)

    @property
    def version(self) -> HummockVersion:
        """The newest version that this manager knows of."""
        return self._position.version

    @property
    def committed_epoch(self) -> Epoch:
        return self._position.version.max_committed_epoch

    @property
    def lease_ms(self) -> int:
        return self.options.lease_ms

    def subscribe(self, callback: Callable[[HummockVersion], None]) -> TopicSubscription:
        """Calls `callback` with each version from here on, ascending; see `NotificationService`."""
        return self.notifications.subscribe(VERSIONS_TOPIC, callback)

    def refresh(self) -> HummockVersion:
        """The newest version in the meta store, installed here."""
        self._catch_up()
        self._deliver()
        return self.version

    def close(self) -> None:
        """Gives back every pin and upload of this process. The stores are the caller's and stay open. Idempotent."""
        self._uploads.release_all()
        self._pins.release_all()

    # -- roles ---------------------------------------------------------------------------------------------

    def claim_writer(self, node: str = "writer") -> WriterSession:
        """Takes the writer role over. The former writer's next commit raises `Fenced`."""
        lease_key(node)
        token = self._random_bytes(16).hex()
        for _ in range(self.options.transaction_attempts):
            row = self._meta_store.get(WRITER)
            held = decode(WriterSession, WRITER, row) if row is not None else WriterSession(0, "", "")
            if held.token == token:
                self.refresh()
                return held
            session = WriterSession(held.generation + 1, node, token)
            claim = MetaOperations(require={WRITER: row}, put={WRITER: encode(session)})
            if self._position.head_bytes is None:
                claim += create()[0]
            try:
                self._meta_store.transaction(claim)
            except OutcomeUnknown:
                self.metrics.transaction_retries.labels("unknown outcome").inc()
            except PreconditionFailed:
                self.metrics.transaction_retries.labels("overtaken").inc()
                self._catch_up()
            else:
                self.refresh()
                return session
        raise MetaStoreError(f"the writer role was claimed by others "
                             f"{self.options.transaction_attempts} times meanwhile")

    # -- commits -------------------------------------------------------------------------------------------

    def commit_epoch(self, session: WriterSession, epoch: Epoch, sstables: Sequence[SstableInfo], *,
                     operations: MetaOperations = NONE, tables: Mapping[int, TableRules | None] = NO_RULES,
                     dropped_tables: Iterable[int] = ()) -> HummockVersion:
        """A version with `epoch` committed and its files readable, durable, and known to all subscribers.

        One transaction with the caller's `operations`, the rules by table id (None removes them) and
        the tables whose rows compaction may drop from now on. A call that is repeated because its answer was
        lost succeeds again and changes nothing. Raises `Fenced`, `InvalidEpoch` (not pure, or not above the
        committed epoch), `SstableRefused`, `PreconditionFailed` (of the caller's own requirements),
        `OutcomeUnknown` where even reading again failed: then the caller repeats the call.
        """
        began = monotonic_seconds()
        request = CommitRequest(session, check_pure(epoch), tuple(sstables), operations, dict(tables),
                                tuple(dropped_tables))
        self._change(lambda position: self._plan_commit(request, position),
                     lambda error: self._refuse_commit(request, error))
        self.metrics.commit_seconds.observe(monotonic_seconds() - began)
        return self.version

    def _plan_commit(self, request: CommitRequest, position: LogPosition) -> Change | None:
        committed = position.version.max_committed_epoch
        if request.epoch > committed:
            return request.plan(position, self._meta_store, self.options)
        if request.is_answered(self._meta_store):
            return None
        self._check_writer(request.session)
        raise InvalidEpoch(request.epoch, f"is not above the committed epoch {committed}")

    def _refuse_commit(self, request: CommitRequest, error: PreconditionFailed) -> None:
        if error.key == WRITER:
            # The role may have been taken right after a try of this commit that did succeed.
            self._catch_up()
            if not request.is_answered(self._meta_store):
                self._check_writer(request.session)
        elif error.key.startswith(VACUUMED):
            raise SstableRefused(error.key.removeprefix(VACUUMED), "vacuum removes it") from error
        elif error.key != HEAD:
            raise error

    def _check_writer(self, session: WriterSession) -> None:
        row = self._meta_store.get(WRITER)
        current = decode(WriterSession, WRITER, row) if row is not None else WriterSession(0, "", "")
        if current != session:
            raise Fenced("writer", session.generation, current.generation)

    # -- pins ----------------------------------------------------------------------------------------------

    def pin_version(self, node: str) -> HummockVersion:
        """The newest version known here; its files stay until it is unpinned or the node's lease ends.

        Raises `SnapshotExpired` where the lease had ended and was acted on: all older pins are lost.
        """
        for _ in range(self.options.transaction_attempts):
            pinned = self._pins.pin_version(node, self._position)
            if pinned is not None:
                return pinned
            self._lease(node)
        raise SnapshotExpired(f"the newest version of node {node}", "its lease ends before it can be used")

    def unpin_version_before(self, node: str, version_id: int) -> None:
        """Gives back the node's pins of versions below `version_id`; others see it at the next renewal."""
        self._pins.unpin_version_before(node, version_id)

    def pin_snapshot(self, node: str, epoch: Epoch | None = None) -> Epoch:
        """`epoch`, by default the committed one, stays readable until it is unpinned or the lease ends.

        Raises `EpochTooOld` below the safe epoch, `InvalidEpoch` above the committed one.
        """
        wanted = None if epoch is None else pure_epoch(check_epoch(epoch))
        if wanted is not None and wanted > self.committed_epoch:
            self.refresh()
        for _ in range(self.options.transaction_attempts):
            pinned = self._pins.pin_snapshot(node, wanted, self._position)
            if pinned is not None:
                return pinned
            self._lease(node, wanted)
        raise SnapshotExpired(f"an epoch of node {node}", "its lease ends before it can be used")

    def unpin_snapshot(self, node: str, epoch: Epoch) -> None:
        """Gives back one pin of `epoch`."""
        self._pins.unpin_snapshot(node, pure_epoch(epoch))

    def renew_lease(self, node: str) -> None:
        """Prolongs the node's uploads and its lease, lifted to its oldest pins. Raises `SnapshotExpired`."""
        self._uploads.renew(node)
        self._lease(node)

    def keep_lease(self, node: str) -> None:
        """`renew_lease`, once a third of the lease is over."""
        if self._pins.is_due(node):
            self.renew_lease(node)

    def release_node(self, node: str) -> None:
        """Gives back all that the node has pinned and registered, and its rows."""
        self._uploads.release(node)
        self._pins.release(node)

    def register_upload(self, node: str, prefix: str) -> None:
        """Files named by `prefix` are on their way: vacuum leaves them alone while the row is in force."""
        self._uploads.register(node, prefix)

    def renew_upload(self, node: str) -> None:
        """Prolongs the rows of all prefixes of the node."""
        self._uploads.renew(node)

    def release_upload(self, node: str, prefix: str) -> None:
        """Nothing under `prefix` is on its way any more."""
        self._uploads.release(node, prefix)

    def _lease(self, node: str, epoch: Epoch | None = None) -> None:
        """Writes the node's row so that it covers its pins, the version known here, and `epoch`."""
        for _ in range(self.options.transaction_attempts):
            position = self._position
            if epoch is not None and epoch < position.version.safe_epoch:
                raise EpochTooOld(epoch, position.version.safe_epoch)
            if self._pins.lease(node, position, epoch):
                return
            self.refresh()
        raise MetaStoreError(f"the lease of node {node} was overtaken at each try")

    def advance_safe_epoch(self, epoch: Epoch) -> Epoch:
        """The safe epoch after it was raised towards `epoch`, as far as pins and commits allow.

        What a compaction with that watermark does before it drops a row version: from here on reads below
        raise `EpochTooOld`, and leases that ran out are taken away in the same transaction.
        """
        self._change(lambda position: self._plan_safe_epoch(pure_epoch(epoch), position), _retry_overtaken)
        return self.version.safe_epoch

    def _plan_safe_epoch(self, epoch: Epoch, position: LogPosition) -> Change | None:
        version = position.version
        in_force, settled = settle(read_leases(self._meta_store), self._clock())
        target = Epoch(min([epoch, version.max_committed_epoch, *(lease.min_epoch for lease in in_force)]))
        if target <= version.safe_epoch:
            return None
        delta = VersionDelta(version.id + 1, version.max_committed_epoch, target)
        logged, after = append(position, delta, position.head.next_file_id, self.options.checkpoint_deltas)
        return logged + settled, after

    # -- one change ----------------------------------------------------------------------------------------

    def _change(self, plan: Callable[[LogPosition], Change | None],
                refuse: Callable[[PreconditionFailed], None]) -> None:
        """Carries out what `plan` makes of the newest position; None: it is done already.

        `refuse` raises the error that a failed precondition means, or returns where reading again may help.
        """
        with self._change_lock:
            self._try_change(plan, refuse)
        self._deliver()

    def _try_change(self, plan: Callable[[LogPosition], Change | None],
                    refuse: Callable[[PreconditionFailed], None]) -> None:
        unknown: OutcomeUnknown | None = None
        for _ in range(self.options.transaction_attempts):
            planned = plan(self._position)
            if planned is None:
                return
            operations, after = planned
            try:
                self._meta_store.transaction(operations)
            except PreconditionFailed as error:
                self.metrics.transaction_retries.labels("overtaken").inc()
                refuse(error)
                self._catch_up()
            except OutcomeUnknown as error:
                self.metrics.transaction_retries.labels("unknown outcome").inc()
                unknown = error
                try:
                    self._catch_up()
                except MetaStoreError as failure:
                    raise OutcomeUnknown(f"{error}; reading again: {failure}") from failure
            else:
                self._install(after)
                return
        raise unknown or MetaStoreError(f"overtaken by other processes at each of "
                                        f"{self.options.transaction_attempts} tries")

    def _catch_up(self) -> None:
        self._install(follow(self._meta_store, self._position))

    def _install(self, position: LogPosition) -> None:
        """Makes `position` the known one unless a newer is known, and posts its version in order."""
        with self._install_lock:
            known = self._position
            if position.version.id > known.version.id:
                self._position = position
                self._posted = self.notifications.post(VERSIONS_TOPIC, position.version)
                self._show(position.version)
            elif known.head_bytes is None:
                self._position = position

    def _deliver(self) -> None:
        self.notifications.deliver(self._posted)

    def _show(self, version: HummockVersion) -> None:
        self.metrics.version_id.set(version.id)
        self.metrics.committed_epoch.set(version.max_committed_epoch)
        for level in version.levels:
            self.metrics.version_files.labels(str(level.number)).set(sum(1 for _ in level.sstables))


def _retry_overtaken(error: PreconditionFailed) -> None:
    if error.key != HEAD and not error.key.startswith(LEASES):
        raise error
