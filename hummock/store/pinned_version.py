"""LocalVersionManager: the version that this process reads, pinned, and how newer ones arrive.

A version arrives by notification where the manager lives in this process. Otherwise the meta store is polled: in
`wait_epoch`, in `refresh`, and by the background refresher of design document 001, which also keeps the lease. Each
read holds a `PinnedVersion`; the oldest one held is what the node pins.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from hummock.base.forked import watch
from hummock.base.logs import Event
from hummock.epoch import Epoch, check_epoch, monotonic_seconds, pure_epoch
from hummock.errors import MetaStoreError, SnapshotExpired, StoreClosed, StoreForked, WaitEpochTimeout
from hummock.meta_client import HummockMetaClient
from hummock.version import HummockVersion

POLL_MS = 20            # polling interval of a waiting reader
LEASE_SHARE = 6         # rounds of the refresher per lease, at least

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")


class PinnedVersion:
    """A version whose files are kept until `release`, or until the lease is lost: then `is_lost` is set."""

    def __init__(self, owner: LocalVersionManager, version: HummockVersion):
        self.version = version
        self.is_lost = False        # if so, a missing object means SnapshotExpired, not damage
        self._owner = owner

    def check(self) -> None:
        """Raises `SnapshotExpired` if the lease was lost, as far as the meta store can be read, and `StoreForked` in a
        process that did not open the store: whether the version is kept is known to the other one.
        """
        self._owner.check_process()
        if not self._owner.protects(self):
            raise SnapshotExpired(f"version {self.version.id}")

    def release(self) -> None:
        """Idempotent."""
        self._owner.release(self)

    def drop(self) -> None:
        """As `release`, for a destructor, which must not lock: takes effect at the owner's next `settle`."""
        self._owner.dropped.append(self)

    def __enter__(self) -> PinnedVersion:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.release()


@dataclass(slots=True, eq=False)
class _Listener:
    """`notified_of`: the id of the newest version for which the callback returned."""

    callback: Callable[[HummockVersion], None]
    notified_of: int


class LocalVersionManager:
    """`version` is always pinned and never goes back. Thread safe; `close` releases the pins."""

    def __init__(self, client: HummockMetaClient, node: str):
        self._client, self._node = client, node
        self._pid, self._is_forked = os.getpid(), False
        self._condition = threading.Condition()
        self._held: set[PinnedVersion] = set()
        self.dropped: deque[PinnedVersion] = deque()
        self._listeners: list[_Listener] = []
        self._closed = threading.Event()
        self._refresher: threading.Thread | None = None
        self.error: Exception | None = None     # why the refresher's last round failed
        self._version = client.pin_version(node)
        self._subscription = client.subscribe(self._advance)
        self._advance(client.version)
        watch(self)

    def note_fork(self) -> None:
        """Marks this object as a forked child's copy."""
        self._is_forked = True

    def check_process(self) -> None:
        """Raises `StoreForked` in a process that did not open the store."""
        if self._is_forked:
            raise StoreForked(f"what node {self._node} had pinned", self._pid, os.getpid())

    @property
    def version(self) -> HummockVersion:
        return self._version

    @property
    def committed_epoch(self) -> Epoch:
        return self._version.max_committed_epoch

    def subscribe(self, listener: Callable[[HummockVersion], None]) -> None:
        """Calls `listener` with each newer version, ascending, after it is pinned."""
        with self._condition:
            self._listeners.append(_Listener(listener, self._version.id))

    def pin(self) -> PinnedVersion:
        """The newest installed version, pinned for one read. Raises `StoreClosed`."""
        with self._condition:
            self._check_open()
            pinned = PinnedVersion(self, self._version)
            self._held.add(pinned)
            return pinned

    def pin_snapshot(self, epoch: Epoch | None) -> Epoch:
        """As the client's, for this node; if the lease was lost, all older pins are marked as lost."""
        return self._leased(lambda node: self._client.pin_snapshot(node, epoch))

    def release(self, pinned: PinnedVersion) -> None:
        """Releases `pinned`. Idempotent."""
        with self._condition:
            self._held.discard(pinned)
            oldest = self._oldest()
        self._client.unpin_version_before(self._node, oldest)

    def settle(self) -> None:
        """Releases what was dropped since."""
        while self.dropped:
            self.release(self.dropped.popleft())

    def refresh(self) -> HummockVersion:
        """Reads the newest version from the meta store and installs it here. Raises `StoreClosed`, or what the meta
        store raises.

        Raises what a listener raised; the next refresh calls that listener again with this version or a newer one.
        """
        self._check_open()
        self._client.refresh()
        if self._subscription.error is not None:
            raise self._subscription.error
        return self._version

    def wait_epoch(self, epoch: Epoch, timeout_ms: int) -> None:
        """Returns once `epoch` is committed and readable here. Raises `InvalidEpoch`, `WaitEpochTimeout`, and whatever
        `refresh` raises, at once: errors of the meta store are not waited out."""
        wanted = pure_epoch(check_epoch(epoch))
        deadline = monotonic_seconds() + timeout_ms / 1000
        while self.committed_epoch < wanted:
            self.refresh()
            with self._condition:
                left = deadline - monotonic_seconds()
                if self.committed_epoch < wanted and left <= 0:
                    raise WaitEpochTimeout(epoch, self.committed_epoch, timeout_ms) from self.error
                self._condition.wait_for(lambda: self.committed_epoch >= wanted or self._closed.is_set(),
                                         min(left, POLL_MS / 1000))

    def start(self, refresh_ms: int) -> None:
        """Starts the background refresher: every `refresh_ms` it polls the meta store and renews the lease.

        The interval is at most a sixth of the lease. A failure is in `error` until a round succeeds.
        """
        self._check_open()
        seconds = min(refresh_ms, self._client.lease_ms / LEASE_SHARE) / 1000
        self._refresher = threading.Thread(target=self._run, args=(seconds,), daemon=True,
                                           name=f"local-version-{self._node}")
        self._refresher.start()

    def protects(self, pinned: PinnedVersion) -> bool:
        """Whether the files of `pinned` are still protected, as far as the meta store can be read."""
        if not pinned.is_lost and not self._closed.is_set():
            with suppress(MetaStoreError):
                self._leased(self._client.renew_lease)
        return not pinned.is_lost

    def close(self) -> None:
        """Releases all pins. Idempotent."""
        with self._condition:
            if self._closed.is_set():
                return
            self._closed.set()
            self._held.clear()
            self._condition.notify_all()
        if self._refresher is not None:
            self._refresher.join()
        self._subscription.close()
        self._client.release_node(self._node)

    def _run(self, seconds: float) -> None:
        while not self._closed.wait(seconds):
            try:
                self.refresh()
                self.settle()
                self._leased(self._client.keep_lease)
                self.error = None
            except StoreClosed:
                return
            except Exception as error:          # of a store or a listener: visible in `error`, and retried
                if self.error is None:
                    log.warning(Event("refresh failed", node=self._node, error=error))
                self.error = error

    def _leased(self, call: Callable[[str], Answer]) -> Answer:
        """Result of `call` for this node, under a new lease if the old one had expired: then everything that the old
        one protected is marked as lost.
        """
        try:
            return call(self._node)
        except SnapshotExpired:
            self._lose()
            self._client.pin_version(self._node)
            return call(self._node)

    def _advance(self, version: HummockVersion) -> None:
        """Pins and installs the newest version. The client calls it for each version, in order, and again if a listener
        raised: listeners that have the version already are not called again.
        """
        if self._closed.is_set() or version.id < self._version.id:
            return
        if version.id > self._version.id:
            self._install(self._leased(self._client.pin_version))
        with self._condition:
            newest, oldest = self._version, self._oldest()
            behind = [listener for listener in self._listeners if listener.notified_of < newest.id]
        for listener in behind:
            listener.callback(newest)
            listener.notified_of = newest.id
        self._client.unpin_version_before(self._node, oldest)

    def _install(self, pinned: HummockVersion) -> None:
        with self._condition:
            if pinned.id > self._version.id:
                self._version = pinned
                self._condition.notify_all()

    def _lose(self) -> None:
        """Marks all current pins as lost with the lease; later ones are protected again."""
        with self._condition:
            for pinned in self._held:
                pinned.is_lost = True
            self._held.clear()

    def _oldest(self) -> int:
        return min((pinned.version.id for pinned in self._held), default=self._version.id)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise StoreClosed(f"the local versions of node {self._node}")
