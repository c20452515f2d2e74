"""StreamManager: the running jobs and their actors.

A job is a table, a view or a sink; its fragments run in one or several actors, whose ids are unique within the process.
Jobs begin and end at barriers only: this manager prepares the mutations that barriers carry [C2]."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stream.errors import ActorFailed, JobNotRunning
from stream.message import Add, Alter, Loading, Pause, Resume, Stop
from stream.meta.schedule import Beginning, Job, Layout, schedule
from stream.plan.stream_plan import StreamScanNode
from stream.protocol import ActorSpec, Worker

if TYPE_CHECKING:
    from hummock.epoch import Epoch
    from relational.catalog.objects import TableCatalog
    from relational.chunk.stream_chunk import StreamChunk


@dataclass(frozen=True, slots=True)
class _Running:
    """The actors of a job; `root` are those that emit its output."""

    actors: frozenset[int]
    root: Layout


class StreamManager:
    """Thread safe. REQUIRES that the upstream jobs of a view run when the view is prepared."""

    def __init__(self, worker: Worker, *, sources_paused: bool = False) -> None:
        self._worker = worker
        self._is_paused = sources_paused
        self._actor_ids = itertools.count(1)
        self._lock = threading.Lock()
        self._running: dict[int, _Running] = {}  # by job id
        self._jobs: dict[int, int] = {}  # actor id -> job id, of all actors since the last recovery
        self._loading: frozenset[int] = frozenset()  # tables
        self._backfilling: dict[int, set[int]] = {}  # job id -> actors that have not read all existing rows

    def prepare_create(self, job: Job, loaded_at: Epoch | None = None, rows: StreamChunk | None = None) -> Add:
        """Build the actors of a new job; they begin with the barrier that carries the result. `loaded_at`: its tables
        were computed from the rows of that epoch. `rows`: the first ones of a table."""
        return self.prepare_all([Beginning(job, since=loaded_at, is_loaded=loaded_at is not None, rows=rows)])

    def prepare_all(self, beginnings: Iterable[Beginning]) -> Add:
        """Build the actors of several jobs, each after those it reads; they begin with the barrier that carries the
        result. JobNotRunning if one reads a job that does not run; and errors of connectors."""
        with self._lock:
            before = dict(self._running)
            try:
                specs = [spec for beginning in beginnings for spec in self._specs(beginning)]
                self._worker.build(specs)
            except ActorFailed as failed:
                self._running = before
                raise failed.__cause__ or failed from None
            except BaseException:
                self._running = before
                raise
            return self._added(specs)

    def prepare_replace(self, beginnings: Sequence[Beginning]) -> Add:
        """New actors for jobs that run, each after those it reads; they replace the present ones. REQUIRES that all
        readers of each of them are among them. JobNotRunning if one does not run; and errors of connectors."""
        with self._lock:
            for job in (beginning.job for beginning in beginnings):
                if job.job_id not in self._running:
                    raise JobNotRunning(job.plan.root.table.name)
            before = dict(self._running)
            job_ids = [beginning.job.job_id for beginning in beginnings]
            stopped = frozenset().union(*(self._running.pop(job_id).actors for job_id in job_ids))
            try:
                specs = [spec for beginning in beginnings for spec in self._specs(beginning)]
                self._worker.build(specs)
            except BaseException:
                self._running = before
                raise
            return replace(self._added(specs), stopped=stopped)

    def prepare_drop(self, job_ids: Iterable[int]) -> Stop | None:
        """The mutation that ends the jobs' actors, None if none of them runs. REQUIRES that no other job reads them."""
        with self._lock:
            ended = [self._running.pop(job_id) for job_id in job_ids if job_id in self._running]
            return Stop(frozenset().union(*(each.actors for each in ended))) if ended else None

    def prepare_alter(self, table: TableCatalog, job_ids: Iterable[int]) -> Alter:
        """The mutation that gives a table's rows the columns of its next version, and ends the jobs that read a dropped
        column."""
        stopped = self.prepare_drop(job_ids)
        return Alter(stopped.actors if stopped else frozenset(), table)

    def rebuild(self, beginnings: Iterable[Beginning], failed: Mapping[int, Exception]) -> Add:
        """Build the actors of all committed jobs again, except those that `failed`; each job follows those it reads."""
        with self._lock:
            self._running, self._jobs, self._backfilling = {}, {}, {}
            specs = [spec for beginning in beginnings for spec in self._specs(beginning)]
            self._worker.build(specs)
            return replace(self._added(specs), failed=failed)

    def detached_specs(self, job: Job) -> tuple[ActorSpec, ...]:
        """The actors of a job that reads its tables apart from the graph; they are built and run by a worker of
        their own."""
        return schedule(Beginning(job, is_detached=True), {}, lambda: next(self._actor_ids)).specs

    def backfilled(self, actor_ids: Iterable[int]) -> set[int]:
        """These actors have read all existing rows; the jobs of which all actors have."""
        done: set[int] = set()
        with self._lock:
            for actor_id in actor_ids:
                job_id = self._jobs.get(actor_id)
                left = None if job_id is None else self._backfilling.get(job_id)
                if job_id is not None and left is not None:
                    left.discard(actor_id)
                    if not left:
                        done.add(job_id)
        return done

    def job_of(self, actor_id: int) -> int | None:
        """The job of an actor that was built since the last recovery."""
        with self._lock:
            return self._jobs.get(actor_id)

    def set_paused(self, is_paused: bool) -> Pause | Resume:
        """The mutation that pauses or resumes all sources; it also applies to actors that are rebuilt."""
        with self._lock:
            self._is_paused = is_paused
        return Pause() if is_paused else Resume()

    def set_loading(self, tables: frozenset[int]) -> Loading:
        """The mutation from which on these tables accept no statements; it also applies to actors that are rebuilt."""
        with self._lock:
            self._loading = tables
        return Loading(tables)

    def prepare_end(self, job_id: int) -> Stop | None:
        """The mutation that ends a job's actor; None if it does not run."""
        return self.prepare_drop([job_id])

    @property
    def is_paused(self) -> bool:
        """Whether sources are paused."""
        return self._is_paused

    def _added(self, specs: Iterable[ActorSpec]) -> Add:
        return Add(frozenset(spec.actor_id for spec in specs), is_paused=self._is_paused, loading=self._loading)

    def _specs(self, beginning: Beginning) -> tuple[ActorSpec, ...]:
        job = beginning.job
        needed = {scan.table.id: scan.table.name for scan in job.plan.scans}
        into = job.plan.root.table.sink_table
        if into is not None:
            needed[into.table_id] = into.name
        waiting = [name for table_id, name in needed.items() if table_id not in self._running]
        if waiting:
            raise JobNotRunning(waiting[0])
        upstreams = {table_id: self._running[table_id].root for table_id in needed}
        graph = schedule(beginning, upstreams, lambda: next(self._actor_ids))
        actors = frozenset(spec.actor_id for spec in graph.specs)
        self._running[job.job_id] = _Running(actors, graph.root)
        self._jobs.update(dict.fromkeys(actors, job.job_id))
        self._backfilling[job.job_id] = {
            spec.actor_id for spec in graph.specs if any(isinstance(node, StreamScanNode) for node in spec.root.walk())
        }
        return graph.specs
