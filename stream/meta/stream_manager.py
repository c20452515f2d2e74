"""StreamManager: which jobs run, and as which actors.

A job is a table or a view; it runs as one actor, whose id lives as long as the process. Jobs come and go at
barriers only: what this manager prepares is the mutation that a barrier carries [C2]."""

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
    """A table or view as it is to run. `job_id` is the id of the table it writes."""

    job_id: int
    plan: StreamPlan
    splits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Beginning:
    """A job that is to run, and what its actor has yet to see; see ActorSpec."""

    job: Job
    is_new: bool = False
    loaded_at: Epoch | None = None
    skip: SkippedRows | None = None


class StreamManager:
    """Thread safe. What a view reads runs already when the view is prepared."""

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
        hold what follows from the rows of that epoch."""
        return self.prepare_all([Beginning(job, is_new=True, loaded_at=loaded_at)])

    def prepare_all(self, beginnings: Iterable[Beginning]) -> Add:
        """Build the actors of several jobs, each after those it reads; they begin with the barrier that carries the
        result. JobNotRunning where one reads a job that does not run; what its connector raises."""
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
        """The mutation with which the jobs' actors end, None where none of them runs. REQUIRES that no other job
        reads them."""
        with self._lock:
            actors = frozenset(self._actors.pop(job_id) for job_id in job_ids if job_id in self._actors)
            return Stop(actors) if actors else None

    def prepare_alter(self, table: TableCatalog, job_ids: Iterable[int]) -> Alter:
        """The mutation with which a table's rows get its next version's columns, and the jobs that read a column
        that goes end."""
        stopped = self.prepare_drop(job_ids)
        return Alter(stopped.actors if stopped else frozenset(), table)

    def rebuild(self, jobs: Iterable[Job], failed: Mapping[int, Exception]) -> Add:
        """Build the actors of all committed jobs anew, but for those that `failed`; each job comes after those it
        reads."""
        with self._lock:
            self._actors, self._jobs = {}, {}
            specs = [self._spec(Beginning(job)) for job in jobs]
            self._worker.build(specs)
            return replace(self._added(specs), failed=failed)

    def job_of(self, actor_id: int) -> int | None:
        """The job that an actor belongs or belonged to, since the last recovery."""
        with self._lock:
            return self._jobs.get(actor_id)

    def set_paused(self, is_paused: bool) -> Pause | Resume:
        """The mutation with which all sources stop reading, or read again; actors that are rebuilt do so too."""
        with self._lock:
            self._is_paused = is_paused
        return Pause() if is_paused else Resume()

    def set_loading(self, tables: frozenset[int]) -> Loading:
        """The mutation from which on these tables take no statements; actors that are rebuilt take none from now on."""
        with self._lock:
            self._loading = tables
        return Loading(tables)

    def prepare_end(self, job_id: int) -> Stop | None:
        """The mutation with which a job's actor ends; None where it runs no more."""
        return self.prepare_drop([job_id])

    @property
    def is_paused(self) -> bool:
        """Whether sources are to read nothing until they are resumed."""
        return self._is_paused

    @property
    def running_jobs(self) -> tuple[int, ...]:
        """Ids of the jobs that run or are about to."""
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
