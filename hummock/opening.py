"""Opening a store by its URL: files, truth and roles of one process put together."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from hummock.base.key import KeyRange
from hummock.errors import HummockError, InvalidOption
from hummock.maintenance import Maintenance
from hummock.meta import open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.vacuum.vacuum import VacuumReport
from hummock.metrics import Metrics
from hummock.object_store import open_object_store
from hummock.options import CompactionOptions, MetaOptions, RetryOptions, StorageOptions, VacuumOptions
from hummock.store.stats import COUNTED
from hummock.store.storage import HummockStorage

ROLES = ("writer", "reader")


class MaintainedStorage(HummockStorage):
    """A HummockStorage with what keeps its files in shape; None for a reader, and where that is left to others."""

    maintenance: Maintenance | None = None
    metrics: Metrics            # what is counted, of all parts of this store; hummock.metrics.serve_metrics shows it

    def compact(self, key_range: KeyRange | None = None, timeout: float | None = None) -> bool:
        """Merges the range (None: everything) down to the last level; whether it was done in `timeout` seconds.

        Only what is committed is merged. Raises HummockError in a store without maintenance.
        """
        return self._maintained().compact(key_range, timeout)

    def wait_compacted(self, timeout: float | None = None) -> bool:
        """Whether nothing was left to compact before `timeout` seconds were over."""
        return self._maintained().wait_compacted(timeout)

    def vacuum(self, *, dry_run: bool = False) -> VacuumReport:
        """Removes what nothing needs, orphans included; `dry_run` only tells.

        Without reads under way, and while nothing is written, what is left is what the newest version holds.
        """
        maintenance = self._maintained()
        self._local.settle()
        return maintenance.vacuum(dry_run=dry_run)

    def _maintained(self) -> Maintenance:
        self.check_process()
        if self.maintenance is None:
            raise HummockError('this store was opened without maintenance: open it with role="writer"')
        return self.maintenance


def open_storage(url: str, *, role: str | None = None, meta: str | None = None,
                 meta_options: MetaOptions | None = None, compaction: CompactionOptions | bool = True,
                 vacuum: VacuumOptions | None = None, retry: RetryOptions | None = None, accept_rollback: bool = False,
                 **options: Any) -> MaintainedStorage:
    """The store at `url`: `memory://` (a new one each time), `file:///directory`, or a remote one.

    Opening is reading: as "reader", the default, the data at the URL stays as it is, and only what is known to be
    committed is read. `role="writer"` makes the store if it is not there and takes the writer role over from any
    other process, whose next commit is then refused; a store in memory has nobody else, so there it is the default.
    `meta` says where the truth is, as `open_meta_store` does. A writer compacts and vacuums in the background, as
    `compaction` and `vacuum` say, unless `compaction` is False: then that is left to other processes. `retry` says
    how patient calls of the object store are. `options` are those of StorageOptions. What other processes commit is
    seen within `refresh_ms`. A store that was put back to an older copy is refused by MetaStoreRolledBack unless
    `accept_rollback` says to go on from that copy. Closing the store closes all of it, and gives up what compaction is
    at. MetaStoreError if there is no store to read.
    """
    if role is None:
        role = "writer" if url == "memory://" else "reader"
    if role not in ROLES:
        raise InvalidOption("role", role, f"one of {', '.join(ROLES)}")
    storage_options, metrics = StorageOptions(**options), Metrics()
    with ExitStack() as opened:
        object_store = open_object_store(url, metrics=metrics, retry=retry)
        opened.callback(object_store.close)
        meta_store = open_meta_store(url, meta, object_store=object_store, create=role == "writer",
                                     accept_rollback=accept_rollback, options=meta_options)
        opened.callback(meta_store.close)
        shape = compaction if isinstance(compaction, CompactionOptions) else CompactionOptions()
        manager = HummockManager(meta_store, object_store, options=meta_options, compaction=shape, metrics=metrics)
        opened.callback(manager.close)
        session = manager.claim_writer() if role == "writer" else None
        maintenance = None
        if session is not None and compaction is not False:
            maintenance = Maintenance(manager, meta_store, object_store, vacuum=vacuum)
            opened.callback(maintenance.close)
        resources = opened.pop_all()
    try:
        storage = MaintainedStorage(manager, object_store, storage_options, session=session, metrics=metrics,
                                    committed_only=session is None,
                                    compaction=None if compaction is False else shape, on_close=resources.close)
    except BaseException:
        resources.close()
        raise
    storage.metrics = metrics
    metrics.watch(storage.stats, COUNTED)
    storage.follow_versions()
    if maintenance is not None:
        storage.maintenance = maintenance.start()
    return storage
