"""MetaNode: the managers of one store, composed. What a session asks of the meta side, it asks here."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from hummock.epoch import Epoch, EpochGenerator
from hummock.meta.store import NONE
from relational.catalog.manager import CatalogManager
from stream.control import Step, StepObserver, Worker, unobserved
from stream.message import Add
from stream.meta.barrier_manager import BarrierManager, Committer
from stream.meta.barrier_schedule import JobChange
from stream.meta.barrier_stats import BarrierFigures, BarrierStats
from stream.meta.ddl import Ddl
from stream.meta.job_planner import JobPlanner
from stream.meta.stream_manager import StreamManager
from stream.options import StreamOptions

if TYPE_CHECKING:
    from hummock.meta.hummock_manager import HummockManager
    from hummock.meta_client import WriterSession


class HummockCommitter:
    """Commits through the HummockManager, as the writer that `session` says we are."""

    def __init__(self, manager: HummockManager, session: WriterSession) -> None:
        self._manager = manager
        self._session = session

    @property
    def committed_epoch(self) -> Epoch:
        return self._manager.refresh().max_committed_epoch

    def commit(self, epoch: int, sstables: Sequence[Any], changes: Sequence[JobChange]) -> None:
        self._manager.commit_epoch(
            self._session,
            Epoch(epoch),
            sstables,
            operations=sum((change.operations for change in changes), NONE),
            dropped_tables=[table for change in changes for table in change.dropped_tables],
            loads=[load for change in changes for load in change.loads],
        )


class MetaNode:
    """Thread safe. `committer` is asked by one thread at a time."""

    def __init__(
        self,
        catalog: CatalogManager,
        committer: Committer,
        worker: Worker,
        epochs: EpochGenerator,
        options: StreamOptions,
        observer: StepObserver = unobserved,
    ) -> None:
        self.catalog = catalog
        self.planner = JobPlanner(catalog)
        self._streams = StreamManager(worker, sources_paused=options.sources_paused)
        self._stats = BarrierStats()
        self._observer = observer
        self._barriers = BarrierManager(
            worker,
            _Refreshing(committer, catalog),
            epochs,
            self._rebuild,
            options,
            self._stats,
            self.observe,
        )
        self.ddl = Ddl(catalog, self.planner, self._streams, self._barriers)

    # -- life ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """All committed jobs run when this returns. Raises what recovery raises."""
        self._barriers.start()
        self.ddl.forget_loaded()

    def close(self, timeout: float) -> None:
        """End the barriers and all actors; what is not committed is dropped."""
        self._barriers.close(timeout)

    def fail(self, error: BaseException) -> None:
        """A part of the worker failed: recovery begins."""
        self._barriers.fail(error)

    def request_barrier(self) -> None:
        """A barrier soon."""
        self._barriers.request()

    def observe(self, step: Step, epoch: int) -> None:
        """A step of the checkpoint of `epoch` begins, here or in the worker."""
        self._stats.observe(step, epoch)
        self._observer(step, epoch)

    def flush(self) -> Future[int]:
        """Completes with a committed epoch that holds everything sent before this call."""
        return self._barriers.flush()

    def check_alive(self) -> None:
        """Raises what ended the session, if something did."""
        self._barriers.check_alive()

    @property
    def figures(self) -> BarrierFigures:
        """Latencies and counts of barriers."""
        return self._stats.figures()

    def _rebuild(self) -> Add:
        """All committed jobs anew [C10]."""
        self.catalog.refresh()
        return self._streams.rebuild(self.planner.known_jobs(may_lack_connectors=self._streams.is_paused))


class _Refreshing:
    """A committer after whose commit of a DDL the catalog in memory is the committed one [C8]."""

    def __init__(self, committer: Committer, catalog: CatalogManager) -> None:
        self._committer = committer
        self._catalog = catalog

    @property
    def committed_epoch(self) -> Epoch:
        return self._committer.committed_epoch

    def commit(self, epoch: int, sstables: Sequence[Any], changes: Sequence[JobChange]) -> None:
        self._committer.commit(epoch, sstables, changes)
        if changes:
            self._catalog.refresh()
