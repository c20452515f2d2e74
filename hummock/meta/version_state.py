"""VersionState: the newest version that a process knows, and the only way in which the process changes it.

Changes are serialised, and each new version is delivered to the subscribers in order before the call that created it
returns. The outcome of an interrupted transaction is never assumed: what it would have written is read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hummock.errors import MetaStoreError, OutcomeUnknown, PreconditionFailed
from hummock.meta.notification import NotificationService, TopicSubscription
from hummock.meta.records import HEAD, LEASES, NEWEST_LEASE
from hummock.meta.store.base import MetaOperations, MetaStore
from hummock.meta.version_log import LogPosition, follow, load
from hummock.metrics import Metrics
from hummock.object_store.base import ObjectStore
from hummock.options import MetaOptions
from hummock.version import HummockVersion

VERSIONS_TOPIC = "versions"
Change = tuple[MetaOperations, LogPosition]


class VersionState:
    """Thread safe. The known version is never newer than the store's and never goes back.

    The constructor reads the log. Raises `MetaStoreEmptied` and `MetaStoreCorrupt`.
    """

    def __init__(self, meta_store: MetaStore, object_store: ObjectStore, options: MetaOptions, metrics: Metrics):
        self.meta_store, self.options, self.metrics = meta_store, options, metrics
        self.notifications = NotificationService(metrics, options.acknowledge_ms)
        self._change_lock = threading.Lock()        # serialises changes; acquired before the other
        self._install_lock = threading.Lock()       # guards the position and the order of notifications
        self._position = load(meta_store, object_store)
        self._posted = 0                            # serial number of the latest notification
        self.left_at = self._position.version.id    # the newest version that may lack files of the one before
        self._show(self._position.version)

    @property
    def position(self) -> LogPosition:
        return self._position

    @property
    def version(self) -> HummockVersion:
        return self._position.version

    def subscribe(self, callback: Callable[[HummockVersion], None]) -> TopicSubscription:
        """Calls `callback` with each later version, ascending; see `NotificationService`."""
        return self.notifications.subscribe(VERSIONS_TOPIC, callback)

    def refresh(self) -> HummockVersion:
        """Reads, installs and delivers the newest version in the meta store. What its receivers read at once is not
        older than it."""
        with self.meta_store.one_moment():
            self.catch_up()
            self._deliver()
        return self.version

    def catch_up(self) -> None:
        """Installs the newest version in the meta store; the next change or refresh delivers it."""
        self._install(follow(self.meta_store, self._position))

    def change(self, plan: Callable[[LogPosition], Change | None],
               refuse: Callable[[PreconditionFailed], None]) -> None:
        """Executes the change that `plan` returns for the newest position; None: it is done already.

        `refuse` raises the error that a failed precondition means, or returns if reading again may help.
        """
        with self._change_lock:
            self._try_change(plan, refuse)
        self._deliver()

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Knows the newest version, which this process does not change inside. The versions that were read are
        delivered afterwards. Not for `plan`."""
        with self._change_lock:
            self.catch_up()
            yield
        self._deliver()

    def _try_change(self, plan: Callable[[LogPosition], Change | None],
                    refuse: Callable[[PreconditionFailed], None]) -> None:
        unknown: OutcomeUnknown | None = None
        for _ in range(self.options.transaction_attempts):
            with self.meta_store.one_moment():
                planned = plan(self._position)
            if planned is None:
                return
            operations, after = planned
            try:
                self.meta_store.transaction(operations)
            except PreconditionFailed as error:
                self.metrics.transaction_retries.labels("overtaken").inc()
                refuse(error)
                self.catch_up()
            except OutcomeUnknown as error:
                self.metrics.transaction_retries.labels("unknown outcome").inc()
                unknown = error
                try:
                    self.catch_up()
                except MetaStoreError as failure:
                    raise OutcomeUnknown(f"{error}; reading again: {failure}") from failure
            else:
                self._install(after)
                return
        raise unknown or MetaStoreError(f"overtaken by other processes at each of "
                                        f"{self.options.transaction_attempts} tries")

    def _install(self, position: LogPosition) -> None:
        """Makes `position` the known one unless a newer one is known, and posts its version in order."""
        with self._install_lock:
            known = self._position
            if position.version.id > known.version.id:
                self._position = position
                if not position.version.keeps_runs(known.version):
                    self.left_at = position.version.id
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
            self.metrics.version_files.labels(str(level.number)).set(sum(len(run.sstables) for run in level.runs))


def retry_overtaken(error: PreconditionFailed) -> None:
    """Returns if another change came first: then the change is planned again; any other requirement is the caller's to
    explain.
    """
    if error.key not in (HEAD, NEWEST_LEASE) and not error.key.startswith(LEASES):
        raise error
