"""Leases: one row per node with an expiry time and the oldest version and epoch that it has pinned; the pins are in
memory.

A pin above the row's minima needs no transaction. The row is written at a node's first pin, when it must reach further
back, and when it is renewed, which also raises its minima. An expired row protects nothing; whatever acts on that
(compaction raising the safe epoch, vacuum) deletes the row in the same transaction. So a node whose row is gone knows
that its pins may be gone too: `SnapshotExpired`.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hummock.base.logs import Event
from hummock.epoch import Clock, Epoch
from hummock.errors import (
    EpochTooOld,
    InvalidEpoch,
    MetaStoreError,
    OutcomeUnknown,
    PreconditionFailed,
    SnapshotExpired,
)
from hummock.meta.records import LEASES, NEWEST_LEASE, Lease, decode, encode, lease_key
from hummock.meta.store.base import MetaOperations, MetaStore
from hummock.meta.version_log import LogPosition
from hummock.object_store.base import RandomBytes
from hummock.options import MetaOptions
from hummock.version import HummockVersion

HELD = "held"                       # the holder of leases that belong to no process
NO_FILES = (1 << 63) - 1            # as the oldest version that is read: all files may go
log = logging.getLogger(__name__)


@dataclass(slots=True)
class NodePins:
    """One node's pins in this process. Not thread safe: the manager's lock guards it."""

    node: str
    holder: str                         # random id of this process
    versions: set[int] = field(default_factory=set)
    epochs: Counter[int] = field(default_factory=Counter)
    lease: Lease | None = None          # last written by this process
    unseen: Lease | None = None         # a write with unknown outcome

    def covers(self, version_id: int | None, epoch: int | None, now_ms: int) -> bool:
        """Whether the row, if it is still valid, protects the version and the epoch."""
        return (self.lease is not None and now_ms < self.lease.expires_ms
                and (version_id is None or self.lease.min_version <= version_id)
                and (epoch is None or self.lease.min_epoch <= epoch))

    def renewal(self, now_ms: int, lease_ms: int, version_id: int,
                epoch: int) -> tuple[MetaOperations, Lease]:
        """The operations that write the row with the minima of all pins and of the given two."""
        lease = Lease(self.node, self.holder, now_ms + lease_ms, min((version_id, *self.versions)),
                      min((epoch, *self.epochs)))
        key = lease_key(self.node)
        if self.lease is not None:
            return MetaOperations(require={key: encode(self.lease)}, put={key: encode(lease)}), lease
        return MetaOperations(require={key: None}, put={key: encode(lease), NEWEST_LEASE: encode(lease)}), lease

    def lost(self) -> SnapshotExpired:
        """Drops all pins, whose row is gone; returns the error to raise."""
        what = f"what node {self.node} had pinned (versions {sorted(self.versions)[:8]}, " \
               f"epochs {sorted(self.epochs)[:8]})"
        log.warning(Event("lease lost", node=self.node, versions=len(self.versions), epochs=len(self.epochs)))
        self.versions.clear()
        self.epochs.clear()
        self.lease = self.unseen = None
        return SnapshotExpired(what)

    def unpin_epoch(self, epoch: int) -> None:
        """Releases one pin; an epoch that is not pinned is fine, as after an expired lease."""
        if self.epochs[epoch] > 1:
            self.epochs[epoch] -= 1
        else:
            del self.epochs[epoch]


class PinTable:
    """The pins of every node of this process, kept consistent with their rows. Thread safe.

    A node's row covers all of its pins, or the node learns that they are lost. The lock is held during the transaction
    that writes a row, so that no pin is added below minima that are being raised.
    """

    def __init__(self, meta_store: MetaStore, clock: Clock, options: MetaOptions,
                 random_bytes: RandomBytes):
        self._meta_store, self._clock, self._options = meta_store, clock, options
        self._holder = random_bytes(16).hex()
        self._lock = threading.Lock()
        self._nodes: dict[str, NodePins] = {}

    def pin_version(self, node: str, position: LogPosition) -> HummockVersion | None:
        """Pins the position's version; None if the node's row does not cover it."""
        version = position.version
        with self._lock:
            pins = self._pins_of(node)
            if not pins.covers(version.id, None, self._clock()):
                return None
            pins.versions.add(version.id)
            return version

    def pin_snapshot(self, node: str, epoch: Epoch | None, position: LogPosition) -> Epoch | None:
        """Pins the epoch (None: the committed one); None if the node's row does not cover it."""
        version = position.version
        epoch = version.max_committed_epoch if epoch is None else epoch
        if epoch > version.max_committed_epoch:
            raise InvalidEpoch(epoch, f"is above the committed epoch {version.max_committed_epoch}")
        if epoch < version.safe_epoch:
            raise EpochTooOld(epoch, version.safe_epoch)
        with self._lock:
            pins = self._pins_of(node)
            if not pins.covers(None, epoch, self._clock()):
                return None
            pins.epochs[epoch] += 1
            return epoch

    def unpin_version_before(self, node: str, version_id: int) -> None:
        with self._lock:
            pins = self._pins_of(node)
            pins.versions = {pinned for pinned in pins.versions if pinned >= version_id}

    def unpin_snapshot(self, node: str, epoch: Epoch) -> None:
        with self._lock:
            self._pins_of(node).unpin_epoch(epoch)

    def is_due(self, node: str, left_at: int) -> bool:
        """Whether the node has no row, or one of which a third is over, or one that keeps files that left a version up
        to `left_at` and that none of its pins needs.
        """
        with self._lock:
            pins = self._pins_of(node)
            lease, least = pins.lease, min((left_at, *pins.versions))
        return (lease is None or lease.min_version < least
                or lease.expires_ms - self._clock() <= self._options.lease_ms * 2 // 3)

    def lift(self, version_id: int) -> None:
        """Raises the minima of all nodes' rows to their pins and `version_id`; the expiry time is unchanged.

        A row that another process has changed is left alone: its node learns of that by its own renewal.
        """
        with self._lock:
            for pins in self._nodes.values():
                least = min((version_id, *pins.versions))
                if pins.lease is not None and pins.lease.min_version < least:
                    self._lift(pins, pins.lease, replace(pins.lease, min_version=least))

    def lift_epochs(self, epoch: Epoch) -> None:
        """As `lift`, for epochs: `epoch` and what is pinned below it stay readable."""
        with self._lock:
            for pins in self._nodes.values():
                least = min((epoch, *pins.epochs))
                if pins.lease is not None and pins.lease.min_epoch < least:
                    self._lift(pins, pins.lease, replace(pins.lease, min_epoch=least))

    def least_epochs(self, epoch: Epoch) -> dict[str, Epoch]:
        """By node that has a lease, the epoch from which on it keeps epochs once it is lifted to `epoch`."""
        with self._lock:
            return {pins.node: Epoch(min((epoch, *pins.epochs))) for pins in self._nodes.values()
                    if pins.lease is not None}

    def lease(self, node: str, position: LogPosition, epoch: Epoch | None) -> bool:
        """Writes the node's row to cover its pins, the position and `epoch`; False: try again.

        REQUIRES the position's head unchanged, so that what the row covers still existed when it was written. Raises
        `SnapshotExpired` if the row was deleted while pins relied on it.
        """
        with self._lock:
            pins = self._pins_of(node)
            version = position.version
            floor = version.max_committed_epoch if epoch is None else epoch
            operations, lease = pins.renewal(self._clock(), self._options.lease_ms, version.id, floor)
            try:
                self._meta_store.transaction(position.requirement + operations)
            except PreconditionFailed as error:
                if error.key == lease_key(node):
                    self._reconcile(pins, lease, error.got)
                return pins.lease == lease
            except OutcomeUnknown:
                pins.unseen = lease
                self._reconcile(pins, lease, self._meta_store.get(lease_key(node)))
                return pins.lease == lease
            pins.lease, pins.unseen = lease, None
            return True

    def release_all(self) -> None:
        """Releases every node."""
        for node in list(self._nodes):
            self.release(node)

    def release(self, node: str) -> None:
        """Drops the node's pins and deletes its row, unless it was deleted already."""
        with self._lock:
            pins = self._nodes.pop(node, None)
            if pins is None or pins.lease is None:
                return
            key = lease_key(node)
            try:
                self._meta_store.transaction(
                    MetaOperations(require={key: encode(pins.lease)}, delete=(key,)))
            except MetaStoreError:
                return      # it is gone, or it will expire

    def _lift(self, pins: NodePins, held: Lease, lifted: Lease) -> None:
        """Covers nothing new, so only the row itself is required. A row with a write of unknown outcome is left."""
        if pins.unseen is not None:
            return
        key = lease_key(pins.node)
        try:
            self._meta_store.transaction(MetaOperations(require={key: encode(held)}, put={key: encode(lifted)}))
        except PreconditionFailed:
            return
        except OutcomeUnknown:
            pins.unseen = lifted
            raise
        pins.lease = lifted

    def _reconcile(self, pins: NodePins, wanted: Lease, row: bytes | None) -> None:
        """Reads the outcome of a write that was refused or interrupted from the row in the store."""
        if row is None:
            relied = pins.lease is not None and (pins.versions or pins.epochs)
            if relied:
                raise pins.lost()
            pins.lease = None
            return
        found = decode(Lease, lease_key(pins.node), row)
        if found in (wanted, pins.unseen):
            pins.lease, pins.unseen = found, None
        elif found != pins.lease:
            raise MetaStoreError(f"another process uses the node name {pins.node!r}")

    def _pins_of(self, node: str) -> NodePins:
        return self._nodes.setdefault(node, NodePins(node, self._holder))


def held_epoch(position: LogPosition, node: str, row: bytes | None, epoch: Epoch, now_ms: int,
               hold_ms: int) -> MetaOperations:
    """The operations that keep `epoch` and all later ones readable for `hold_ms`, under the name of a node that no
    process has pins of; it has written `row` before (None: it has not, or lost it). No files are kept by it: who reads
    pins a version of its own. REQUIRES the position's head unchanged. Raises `EpochTooOld`.
    """
    key = lease_key(node)
    held = None if row is None else decode(Lease, key, row)
    is_kept = held is not None and now_ms < held.expires_ms and held.min_epoch <= epoch
    if not is_kept and epoch < position.version.safe_epoch:
        raise EpochTooOld(epoch, position.version.safe_epoch)
    lease = encode(Lease(node, HELD, now_ms + hold_ms, NO_FILES, epoch))
    put = {key: lease} if row is not None else {key: lease, NEWEST_LEASE: lease}
    return position.requirement + MetaOperations(require={key: row}, put=put)


def read_leases(meta_store: MetaStore) -> list[Lease]:
    """Every node's row, valid or expired."""
    return [decode(Lease, key, row) for key, row in meta_store.list(LEASES)]


def settle(leases: Iterable[Lease], now_ms: int) -> tuple[list[Lease], MetaOperations]:
    """The valid leases, and the operations that protect them.

    These require each of the rows unchanged, and delete the expired ones.
    """
    in_force, require, gone = [], {}, []
    for lease in leases:
        key = lease_key(lease.node)
        require[key] = encode(lease)
        if lease.expires_ms > now_ms:
            in_force.append(lease)
        else:
            gone.append(key)
    return in_force, MetaOperations(require=require, delete=tuple(gone))
