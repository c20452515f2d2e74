"""ServingNode: catalog and storage of a process that reads a store, beside the one that writes it.

It follows the commits of the writer: on the same host as soon as they are there (`hummock.meta.commit_socket`), and in
any case every `refresh_ms`. The catalog and a version are read from the meta store one after the other, the catalog
first. So a name may be known here a moment before its rows: `settle` waits for those."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakSet

from hummock.base.closing import ClosedAtExit, close_all
from hummock.base.logs import Event
from hummock.base.process import use_system_arrow_pool
from hummock.epoch import Epoch
from hummock.errors import HummockError
from hummock.meta import open_meta_store
from hummock.meta.commit_socket import CommitListener
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.store.base import MetaStore
from hummock.metrics import Metrics, serve_metrics
from hummock.object_store import open_object_store
from hummock.object_store.base import ObjectStore
from hummock.store.stats import COUNTED
from hummock.store.storage import HummockStorage
from relational.batch.query_memory import COUNTED as QUERY_COUNTED
from relational.batch.query_memory import QueryMemory
from relational.catalog.job_failure import JobFailure
from relational.catalog.manager import CatalogManager
from relational.catalog.snapshot import CatalogSnapshot
from stream.connector.file_rows import open_file_rows
from stream.options import query_limits

if TYPE_CHECKING:
    from stream.playground import Playground, PlaygroundOptions

log = logging.getLogger(__name__)
Host: TypeAlias = "Playground | ServingNode"
"""What the reads of a session run on."""


class ServingNode:
    """Reads committed epochs from construction until close(). It owns the stores that are passed to it, in which it
    writes nothing but the lease of what it reads."""

    def __init__(
        self,
        object_store: ObjectStore,
        meta_store: MetaStore,
        options: PlaygroundOptions,
        *,
        metrics: Metrics | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.options, self.url = options, object_store.url
        self.object_store, self.meta_store = object_store, meta_store
        self.feeds: WeakSet[ClosedAtExit] = WeakSet()
        """Readers of changes, which end with it."""
        self.metrics = metrics or Metrics()
        self.query_memory = QueryMemory(*query_limits(options.stream))
        self.metrics.watch(lambda: self.query_memory.counts, QUERY_COUNTED)
        with contextlib.ExitStack() as undo:
            undo.callback(object_store.close)
            undo.callback(meta_store.close)
            self.manager = HummockManager(
                meta_store, object_store, compaction=options.compaction, metrics=self.metrics, random_bytes=random_bytes
            )
            undo.callback(self.manager.close)
            self.catalog = CatalogManager(
                meta_store, self.manager.notifications, allows_functions=options.stream.allow_user_functions,
                open_rows=open_file_rows,
            )
            undo.callback(self.catalog.follow(self.manager.subscribe).close)  # before the storage has the version
            self.storage = HummockStorage(
                self.manager,
                object_store,
                options.storage,
                node=f"serving-{random_bytes(8).hex()}",
                metrics=self.metrics,
                committed_only=True,
            )
            undo.callback(self.storage.close)
            self.metrics.watch(self.storage.stats, COUNTED)
            self.storage.follow_versions()
            undo.callback(CommitListener(meta_store.url, self._refresh).close)
            undo.callback(close_all, self.feeds)
            port = options.stream.metrics_port
            self.metrics_url = undo.enter_context(serve_metrics(self.metrics, port)) if port >= 0 else None
            self._undo = undo.pop_all()
        log.info(Event("session opened", url=self.url, role="reader", epoch=self.manager.committed_epoch,
                       version=self.manager.version.id, metrics=self.metrics_url))

    def failed_jobs(self) -> Mapping[int, JobFailure]:
        """The jobs that are set aside, by id, as the commits tell."""
        return self.catalog.snapshot.failed

    def settle(self, tables: Iterable[int], known: CatalogSnapshot) -> None:
        """Waits until the commits are readable here that created these tables, by id, or altered them: those that the
        catalog `known` knows [R59]. WaitEpochTimeout."""
        changes = known.changed
        newest = max((changes[table_id].epoch for table_id in tables if table_id in changes), default=0)
        if newest > self.storage.committed_epoch:
            self.storage.wait_epoch(Epoch(newest))

    def _refresh(self) -> None:
        """Reads what was committed. An error is that of the next look, which the storage has."""
        with contextlib.suppress(HummockError):
            self.manager.refresh()

    def close(self) -> None:
        """Releases what it reads. Idempotent."""
        self._undo.close()


def open_serving_node(
    url: str, options: PlaygroundOptions, *, meta: str | None = None, accept_rollback: bool = False
) -> ServingNode:
    """A reader of the store at `url`, whose metadata is at `meta`; nothing is created. StoreNotFound; InvalidOption;
    MetaStoreRolledBack as in `hummock.open`."""
    if options.stream.system_arrow_pool:
        use_system_arrow_pool()
    metrics = Metrics()
    object_store = open_object_store(url, metrics=metrics, create=False)
    try:
        meta_store = open_meta_store(
            url, meta, object_store=object_store, create=False, accept_rollback=accept_rollback
        )
    except BaseException:
        object_store.close()
        raise
    return ServingNode(object_store, meta_store, options, metrics=metrics)
