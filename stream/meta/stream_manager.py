"""StreamManager: which jobs run, and as which actors.

A job is a table or a view; it runs as one actor, whose id lives as long as the process. Jobs come and go at
barriers only: what this manager prepares is the mutation that a barrier carries [C2]."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stream.control import ActorSpec, Worker
from stream.message import Add, Alter, Loading, Pause, Resume, Stop

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


class StreamManager:
    """Thread safe. What a view reads runs already when the view is prepared."""

    def __init__(self, worker: Worker, *, sources_paused: bool = False) -> None:
        self._worker = worker
        self._is_paused = sources_paused
        self._actor_ids = itertools.count(1)
        self._lock = threading.Lock()
        self._actors: dict[int, int] = {}  # job id -> actor id
        self._loading: frozenset[int] = frozenset()

    def prepare_create(self, job: Job, loaded_at: Epoch | None = None) -> Add:
        """Build the actor of a new job; it begins with the barrier that carries the result. `loaded_at`: its tables
        hold what follows from the rows of that epoch."""
        with self._lock:
            spec = self._spec(job, is_new=True, loaded_at=loaded_at)
            self._worker.build([spec])
            self._actors[job.job_id] = spec.actor_id
            return Add(frozenset({spec.actor_id}), is_paused=self._is_paused, loading=self._loading)

    def prepare_drop(self, job_ids: Iterable[int]) -> Stop:
        """The mutation with which the jobs' actors end. REQUIRES that no other job reads them."""
        with self._lock:
            return Stop(frozenset(self._actors.pop(job_id) for job_id in job_ids))

    def prepare_alter(self, table: TableCatalog, job_ids: Iterable[int]) -> Alter:
        """The mutation with which a table's rows get its next version's columns, and the jobs that read a column
        that goes end."""
        return Alter(self.prepare_drop(job_ids).actors, table)

    def rebuild(self, jobs: Iterable[Job]) -> Add:
        """Build the actors of all committed jobs anew; each job comes after those it reads."""
        with self._lock:
            self._actors = {}
            specs = []
            for job in jobs:
                spec = self._spec(job, is_new=False)
                self._actors[job.job_id] = spec.actor_id
                specs.append(spec)
            self._worker.build(specs)
            return Add(frozenset(spec.actor_id for spec in specs), is_paused=self._is_paused, loading=self._loading)

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
        return self.prepare_drop([job_id]) if job_id in self.running_jobs else None

    @property
    def is_paused(self) -> bool:
        """Whether sources are to read nothing until they are resumed."""
        return self._is_paused

    @property
    def running_jobs(self) -> tuple[int, ...]:
        """Ids of the jobs that run or are about to."""
        with self._lock:
            return tuple(self._actors)

    def _spec(self, job: Job, *, is_new: bool, loaded_at: Epoch | None = None) -> ActorSpec:
        upstreams = tuple(self._actors[scan.table.id] for scan in job.plan.scans)
        return ActorSpec(next(self._actor_ids), job.job_id, job.plan.root, upstreams, job.splits, is_new, loaded_at)
