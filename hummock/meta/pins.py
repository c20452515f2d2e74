"""What processes have pinned: one leased row per node with its oldest version and epoch, the rest in memory.

A pin above the row's minima costs no transaction. The row is written when a node pins first, when it must
reach further back, and when it is renewed, which also lifts its minima. A row that ran out protects nothing
more; whoever acts on that (compaction raising the safe epoch, vacuum) deletes the row in the transaction that
does so. So a node whose row is gone knows that its pins may be gone too: `SnapshotExpired`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from hummock.errors import SnapshotExpired
from hummock.meta.records import LEASES, NEWEST_LEASE, Lease, decode, encode, lease_key
from hummock.meta.store.base import MetaOperations, MetaStore


@dataclass(slots=True)
class NodePins:
    """One node's pins in this process. Not thread safe: the manager's lock guards it."""

    node: str
    holder: str                         # drawn by this process
    versions: set[int] = field(default_factory=set)
    epochs: Counter[int] = field(default_factory=Counter)
    lease: Lease | None = None          # as this process wrote it last
    unseen: Lease | None = None         # a write of it whose end was not seen

    def covers(self, version_id: int | None, epoch: int | None, now_ms: int) -> bool:
        """Whether the leased row, still in force, protects the version and the epoch."""
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
        """Forgets all pins, whose row is gone, and says so."""
        what = f"what node {self.node} had pinned (versions {sorted(self.versions)[:8]}, " \
               f"epochs {sorted(self.epochs)[:8]})"
        self.versions.clear()
        self.epochs.clear()
        self.lease = self.unseen = None
        return SnapshotExpired(what)

    def unpin_epoch(self, epoch: int) -> None:
        """Gives back one pin; an epoch that is not pinned is fine, as after an expired lease."""
        if self.epochs[epoch] > 1:
            self.epochs[epoch] -= 1
        else:
            del self.epochs[epoch]


def read_leases(meta_store: MetaStore) -> list[Lease]:
    """Every node's row, in force or not."""
    return [decode(Lease, key, row) for key, row in meta_store.list(LEASES)]


def settle(leases: Iterable[Lease], now_ms: int) -> tuple[list[Lease], MetaOperations]:
    """The leases in force, and the operations that make sure of it.

    They require each of those rows unchanged, and delete those that ran out.
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
