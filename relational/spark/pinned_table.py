"""PinnedTable: one table of a store at one version, pinned by a driver while Spark jobs read it.

Tasks do not access the meta store: they receive files by name. The driver keeps these files alive: it has pinned the
version under a lease, which one of its threads renews.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from contextlib import ExitStack

from hummock.base.closing import ClosedAtExit
from hummock.base.key import KeyRange
from hummock.epoch import Epoch, pure_epoch
from hummock.errors import EpochTooOld, InvalidEpoch, SnapshotExpired, StoreClosed
from hummock.options import StorageOptions
from hummock.spark.worker import shared_url
from hummock.sstable.info import SstableInfo
from hummock.sstable.meta import SplitSample
from hummock.version import HummockVersion
from relational.catalog.manager import CatalogManager
from relational.catalog.names import ObjectName
from relational.catalog.objects import TableCatalog
from relational.errors import CatalogError
from relational.spark.open_store import OpenStore


class PinnedTable(ClosedAtExit):
    """`name`, a table or materialized view of the store at `url`, at `epoch`; None: at the newest committed one.

    The table and its files at that epoch remain readable until `close`, until the end of its `with` block, or until
    this object and all frames created from it are garbage collected; frames derived from those do not reference it. If
    the process dies, the files are kept for one more lease. With `held_ms` no thread renews the lease: the files are
    kept for that long, even if this object is closed. `meta` is as in `hummock.open`. `store`: the store at `url`,
    which stays open and whose lease is used; None: one of its own. Raises NotFound, CatalogError for a view without
    rows of its own, EpochTooOld, and WaitEpochTimeout for an epoch that is not committed.
    """

    def __init__(self, url: str, name: str, *, epoch: Epoch | None = None, meta: str | None = None,
                 held_ms: int | None = None, store: OpenStore | None = None):
        self.url, self.name = shared_url(url), name
        with ExitStack() as undone:
            if store is None:
                self._store = OpenStore(url, meta=meta, held_ms=held_ms)
                undone.callback(self._store.close)
            else:
                self._store = store
                store.refresh()
            if epoch is not None:
                self._store.local.wait_epoch(epoch, StorageOptions().wait_epoch_ms)
            self._pin = self._store.local.pin()
            undone.callback(self._pin.drop)
            self.catalog = table_of(self._store.catalog, name)
            self.epoch = self.readable(self.version.max_committed_epoch if epoch is None else epoch)
            give_up = undone.pop_all()
        self._release = weakref.finalize(self, give_up.close if held_ms is None else self._store.leave)

    def samples_of(self, files: Sequence[SstableInfo]) -> list[list[SplitSample]]:
        """The split samples of each file, cached as long as the store is open."""
        return self._store.samples_of(files)

    @property
    def version(self) -> HummockVersion:
        """The pinned version; every epoch readable in it remains readable."""
        return self._pin.version

    def readable(self, epoch: Epoch) -> Epoch:
        """Returns the epoch if it is readable. Raises EpochTooOld, InvalidEpoch, and the errors of `check`."""
        self.check()
        if pure_epoch(epoch) < self.version.safe_epoch:
            raise EpochTooOld(pure_epoch(epoch), self.version.safe_epoch)
        if pure_epoch(epoch) > self.version.max_committed_epoch:
            raise InvalidEpoch(epoch, f"this snapshot was taken at {self.version.max_committed_epoch}")
        return pure_epoch(epoch)

    def check(self) -> None:
        """Raises StoreClosed after `close`, and SnapshotExpired if the lease was lost."""
        if hasattr(self, "_release") and not self._release.alive:
            raise StoreClosed(f"the snapshot of {self.name}")
        if self._pin.is_lost:
            raise SnapshotExpired(f"version {self.version.id}")

    @property
    def newest(self) -> HummockVersion:
        """The newest known version, at most a second old. Raises the errors of `check`."""
        self.check()
        return self._store.local.version

    def keep_history(self) -> None:
        """Keeps this epoch readable in later versions too, until `close`. Raises EpochTooOld."""
        self._store.manager.pin_snapshot(self._store.node, self.epoch)

    def columns_of(self, names: Iterable[str] | None) -> tuple[int, ...]:
        """The columns of these names; None: those of `SELECT *`. CatalogError naming one that does not exist."""
        if names is None:
            return self.catalog.visible_indices
        known = {column.name: index for index, column in enumerate(self.catalog.columns)}
        wanted = tuple(names)
        if missing := [name for name in wanted if name not in known]:
            raise CatalogError(f"{self.name!r} has no column {missing[0]!r}: {', '.join(known)}", name=missing[0])
        return tuple(known[name] for name in wanted)

    @property
    def key_range(self) -> KeyRange:
        return KeyRange.table(self.catalog.id)

    def close(self) -> None:
        """Releases the files. Idempotent."""
        self._release()

    def __repr__(self) -> str:
        return f"PinnedTable({self.name!r} at {self.epoch}, {self.url!r})"


def table_of(catalog: CatalogManager, name: str) -> TableCatalog:
    """The object of this name, if it has rows. NotFound, CatalogError."""
    table = catalog.resolve(ObjectName.parse(name))
    if not table.kind.has_rows:
        raise CatalogError(f"{name!r} is {table.kind.one}, which has no rows of its own", name=name)
    return table
