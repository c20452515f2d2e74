"""StreamManager: the running jobs and their actors.

A job is a table or a view; it runs as one actor, whose id is unique within the process. Jobs begin and end at barriers
only: this manager prepares the mutations that barriers carry [C2]."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stream.errors import ActorFailed, JobNotRunning
from stream.message import Add, Alter, Loading, Pause, Resume, SkippedRows, Stop
from stream.protocol import ActorSpec, Worker

if TYPE_CHECKING:
    from hummock.epoch import Epoch
    from relational.catalog.objects import TableCatalog
    from stream.plan.stream_plan import StreamPlan


@dataclass(frozen=True, slots=True)
class Job:
    """The plan of a table, view or sink. `job_id` is the id of the table that it writes. `splits`: of the connector
    that it reads; None: it reads none, or cannot at present."""

    job_id: int
    plan: StreamPlan
    splits: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Beginning:
    """A job to start, and what its actor has yet to read; see ActorSpec."""

    job: Job
    is_new: bool = False
    loaded_at: Epoch | None = None
    skip: SkippedRows | None = None


class StreamManager:
    """Thread safe. REQUIRES that the upstream jobs of a view run when the view is prepared."""

    def __init__(self, worker: Worker, *, sources_paused: bool = False) -> None:
        self._worker = worker
        self._is_paused = sources_paused
        self._actor_ids = itertools.count(1)
        self._lock = threading.Lock()
        self._actors: dict[int, int] = {}  # job id -> actor id
        self._jobs: dict[int, int] = {}  # actor id -> job id, of all actors since the last recovery
        self._loading: frozenset[int] = frozenset()

    def prepare_create(self, job: Job, loaded_at: Epoch | None = None) -> Add:
        """Build the actor of a new job; it begins with the barrier that carries the result. `loaded_at`: its tables
        were computed from the rows of that epoch."""
        return self.prepare_all([Beginning(job, is_new=True, loaded_at=loaded_at)])

    def prepare_all(self, beginnings: Iterable[Beginning]) -> Add:
        """Build the actors of several jobs, each after those it reads; they begin with the barrier that carries the
        result. JobNotRunning if one reads a job that does not run; and errors of connectors."""
        with self._lock:
            before = dict(self._actors)
            try:
                specs = [self._spec(beginning) for beginning in beginnings]
                self._worker.build(specs)
            except ActorFailed as failed:
                self._actors = before
                raise failed.__cause__ or failed from None
            except BaseException:
                self._actors = before
                raise
            return self._added(specs)

    def prepare_drop(self, job_ids: Iterable[int]) -> Stop | None:
        """The mutation that ends the jobs' actors, None if none of them runs. REQUIRES that no other job reads them."""
        with self._lock:
            actors = frozenset(self._actors.pop(job_id) for job_id in job_ids if job_id in self._actors)
            return Stop(actors) if actors else None

    def prepare_alter(self, table: TableCatalog, job_ids: Iterable[int]) -> Alter:
        """The mutation that gives a table's rows the columns of its next version, and ends the jobs that read a dropped
        column."""
        stopped = self.prepare_drop(job_ids)
        return Alter(stopped.actors if stopped else frozenset(), table)

    def rebuild(self, jobs: Iterable[Job], failed: Mapping[int, Exception]) -> Add:
        """Build the actors of all committed jobs again, except those that `failed`; each job follows those it reads."""
        with self._lock:
            self._actors, self._jobs = {}, {}
            specs = [self._spec(Beginning(job)) for job in jobs]
            self._worker.build(specs)
            return replace(self._added(specs), failed=failed)

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

    @property
    def running_jobs(self) -> tuple[int, ...]:
        """Ids of the jobs that run or are prepared to."""
        with self._lock:
            return tuple(self._actors)

    def _added(self, specs: Sequence[ActorSpec]) -> Add:
        return Add(frozenset(spec.actor_id for spec in specs), is_paused=self._is_paused, loading=self._loading)

    def _spec(self, beginning: Beginning) -> ActorSpec:
        job = beginning.job
        read = [scan.table for scan in job.plan.scans]
        waiting = [table.name for table in read if table.id not in self._actors]
        if waiting:
            raise JobNotRunning(waiting[0])
        actor_id = next(self._actor_ids)
        self._actors[job.job_id] = actor_id
        self._jobs[actor_id] = job.job_id
        upstreams = tuple(self._actors[table.id] for table in read)
        return ActorSpec(
            actor_id,
            job.job_id,
            job.plan.root,
            upstreams,
            job.splits,
            beginning.is_new,
            beginning.loaded_at,
            beginning.skip,
        )
