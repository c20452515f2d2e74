"""DetachedCreations: views over large tables, and joins whose rows may have many partners each, are created apart from
the graph, whose barriers do not wait for them.

The actors of such a job are run by a worker of their own. They read the tables at committed epochs, which stay pinned,
between barriers of their own; each of these ends a piece of the work, whose files are built beside the next piece and
enter as a load with the next commit. With the files comes the epoch that the job's rows are of
(`SnapshotBackfillExecutor`): a crash, a failure and another parallelism cost at most the pieces that are not committed.
When all rows were read, the changes since are read until few are left. Then the job begins in the graph, where it
catches up before it passes its second barrier [C17], and is created by that commit.

A job whose detached actors fail twice without progress begins in the graph where it is, so whatever is wrong with it
ends it as any other job. One thread drives all creations; MOST_AT_ONCE of them work at a time, the others wait.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from hummock.base.logs import Event
from hummock.epoch import NEVER, SPILL_BITS, Epoch, EpochPair, monotonic_seconds, own_epoch
from hummock.errors import EpochTooOld, HummockError
from hummock.loaded_files import LoadedFiles
from hummock.meta.records import load_key
from hummock.meta.store.base import NONE, MetaOperations
from stream.errors import SessionClosed, StreamError
from stream.message import Add, Barrier, Stop
from stream.meta.barrier_schedule import Command, JobChange
from stream.plan.stream_plan import HashJoinNode, MaterializeNode
from stream.protocol import CollectedEpoch

if TYPE_CHECKING:
    from stream.meta.barrier_manager import BarrierManager
    from stream.meta.kept_history import Pins
    from stream.meta.schedule import Job
    from stream.meta.stream_manager import StreamManager
    from stream.plan.stream_plan import StreamPlan
    from stream.protocol import DetachedWorker, OpenDetached

MOST_AT_ONCE = 2
PIECE_SECONDS, PIECE_BYTES = 1.0, 64 << 20
"""A piece ends after this time, or once its rows take that much memory, if its scans do not ask for it earlier."""
PIECES_IN_FLIGHT = 2
LAST_PIECES, LAST_SECONDS = 3, 0.1
"""Once all rows were read: so many pieces of changes at most, until one was begun less than so long ago."""
ATTEMPTS = 2
RETRY_SECONDS = 1.0
PIN_TRIES = 8
CLOSE_SECONDS = 5.0

log = logging.getLogger(__name__)


def is_detachable(plan: StreamPlan) -> bool:
    """Whether the job can be computed apart from the graph: a view or index over tables, whose own rows depend on
    nothing else, and which the store hides from no epoch."""
    scans = plan.scans
    return (
        isinstance(plan.root, MaterializeNode)
        and not plan.sources
        and bool(scans)
        and all(scan.progress is not None for scan in scans)
        and not any(table.ttl_ms for table in (plan.root.table, *plan.state_tables))
    )


def multiplies_rows(plan: StreamPlan) -> bool:
    """Whether a row may have many partners in a join: by columns that are unique in neither input."""
    return any(isinstance(node, HashJoinNode) and not _has_unique_side(node) for node in plan.root.walk())


def _has_unique_side(join: HashJoinNode) -> bool:
    sides = zip(join.inputs, zip(*join.keys, strict=True), strict=True)
    return any(side.stream_key is not None and set(side.stream_key) <= set(key) for side, key in sides)


class _Phase(Enum):
    """Of a creation; the first three are apart from the graph."""

    NEW = auto()
    """Its job is not committed yet."""
    WAITING = auto()
    """Its actors are not built: it waits for others, or begins again after a failure."""
    READING = auto()
    """Its actors run."""
    IN_GRAPH = auto()
    """Its actors were begun in the graph: it is kept for its pins, until it is created."""
    SET_ASIDE = auto()
    """It failed, or a job that it reads did: it is kept for its pins, until it is resumed or dropped."""


@dataclass(slots=True)
class _Piece:
    """The work between two barriers. `until`: the committed epoch of its rows."""

    until: Epoch
    collected: Future[CollectedEpoch]


@dataclass(slots=True)
class _Creation:
    """`since`: the epoch of the job's committed rows, an earlier one if there are none; `read`: that of the piece under
    way. Both and those between are `pins`. `scanning`: actors that have not read all existing rows."""

    job: Job
    worker: DetachedWorker = field(init=False)
    since: Epoch = NEVER
    pins: set[Epoch] = field(default_factory=set)
    phase: _Phase = _Phase.NEW
    read: Epoch = NEVER
    actors: frozenset[int] = frozenset()
    scanning: set[int] = field(default_factory=set)
    pieces: deque[_Piece] = field(default_factory=deque)
    load: tuple[_Piece, Future[int]] | None = None
    last_load: str = ""
    failure: BaseException | None = None
    failures: int = 0
    wants_barrier: bool = False
    is_stopping: bool = False
    last_pieces: int = 0
    began_at: float = 0.0
    """When the piece under way was begun, or when it may be tried again."""

    @property
    def is_detached(self) -> bool:
        return self.phase in (_Phase.NEW, _Phase.WAITING, _Phase.READING)


class DetachedCreations:
    """Thread safe. `stored_since(plan)`: see `relational.table.scan_positions.stored_since`. `plan(job_id)`: the job as
    the catalog knows it now; `creating()`: the jobs that are being created."""

    def __init__(
        self,
        streams: StreamManager,
        pins: Pins,
        open_worker: OpenDetached,
        stored_since: Callable[[StreamPlan], Epoch | None],
        plan: Callable[[int], Job],
        creating: Callable[[], Collection[int]],
        clock: Callable[[], float] = monotonic_seconds,
    ) -> None:
        self._streams = streams
        self._pins = pins
        self._open_worker = open_worker
        self._stored_since = stored_since
        self._plan = plan
        self._creating = creating
        self._clock = clock
        self._creations: dict[int, _Creation] = {}  # by job id, in the order of their creation
        self._lock = threading.RLock()
        self._woken = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def start(self, barriers: BarrierManager, one: threading.Lock) -> None:
        """Creations begin. `one`: the lock of DDL."""
        self._barriers, self._one = barriers, one
        self._thread = threading.Thread(target=self._run, name="creations", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all actors; what is not committed is dropped."""
        self._is_closed = True
        self.wake()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)  # it may wait for a barrier, which its manager then gives up
        with self._lock:
            creations, self._creations = list(self._creations.values()), {}
        for each in creations:
            self._release(each)

    def wake(self) -> None:
        """An epoch was committed, a barrier is wanted, or a part failed."""
        self._woken.set()

    # -- jobs ------------------------------------------------------------------------------------------

    def register(self, job: Job) -> bool:
        """The job is kept apart from the graph from now on, until `begin` without actors; False if it cannot be, since
        it was begun in the graph. EpochTooOld if the changes since its rows cannot be read any more."""
        since = self._stored_since(job.plan)
        if since is None:
            return False
        creation = _Creation(job)
        creation.worker = self._opened(creation)
        creation.since = since or Epoch(creation.worker.committed_epoch - (1 << SPILL_BITS))
        try:
            if since:
                self._pin(creation, since)
        except BaseException:
            self._release(creation)
            raise
        with self._lock:
            self._creations[job.job_id] = creation
        return True

    def begin(self, job_ids: Iterable[int]) -> None:
        """These jobs are committed."""
        with self._lock:
            for job_id in job_ids:
                found = self._creations.get(job_id)
                if found is not None and found.phase is _Phase.NEW:
                    found.phase = _Phase.WAITING
        self.wake()

    def _opened(self, creation: _Creation) -> DetachedWorker:
        def request() -> None:
            creation.wants_barrier = True
            self.wake()

        return self._open_worker(request)

    def is_detached(self, job_id: int) -> bool:
        """Whether the job must not run in the graph."""
        with self._lock:
            found = self._creations.get(job_id)
            return found is not None and found.is_detached

    def workers(self) -> dict[int, DetachedWorker]:
        """Those whose actors run, by job id."""
        with self._lock:
            return {job_id: each.worker for job_id, each in self._creations.items() if each.phase is _Phase.READING}

    def suspend(self, job_ids: Iterable[int]) -> None:
        """Nothing of these jobs is committed after this, until `begin`."""
        with self._lock:
            found = [self._creations[each] for each in job_ids if each in self._creations]
            found = [each for each in found if each.is_detached]
            for each in found:
                self._interrupt(each, SessionClosed("the job is being dropped"))
                each.phase = _Phase.NEW
        wait([each.load[1] for each in found if each.load is not None])

    def cancel(self, job_ids: Iterable[int]) -> None:
        """These jobs were dropped, or not created. REQUIRES that those that began are suspended."""
        with self._lock:
            for job_id in job_ids:
                if job_id in self._creations:
                    self._release(self._creations.pop(job_id))
        self.wake()

    def restart(self, job_ids: Iterable[int]) -> None:
        """The plan, the tables or the parallelism of these jobs changed: those that are apart begin again, where they
        are."""
        with self._lock:
            for job_id in job_ids:
                found = self._creations.get(job_id)
                if found is not None and found.phase in (_Phase.WAITING, _Phase.READING):
                    found.job = self._plan(job_id)
                    self._interrupt(found, SessionClosed("the job was altered"))
        self.wake()

    def set_aside(self, failed: Collection[int]) -> None:
        """During a recovery: these jobs do not run, because they or jobs that they read failed."""
        with self._lock:
            for job_id in failed:
                found = self._creations.get(job_id)
                if found is not None and found.phase is not _Phase.SET_ASIDE:
                    found.phase = _Phase.SET_ASIDE
                    found.worker.close(SessionClosed("the job was set aside"))

    def _forget_created(self) -> None:
        """Those that are no longer being created. REQUIRES the lock."""
        creating = self._creating()
        for job_id, each in list(self._creations.items()):
            if job_id not in creating and not each.is_detached:
                self._release(self._creations.pop(job_id))

    # -- the thread ------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            self._woken.wait(self._seconds_to_work())
            self._woken.clear()
            if self._is_closed:
                return
            try:
                self._barriers.check_alive()
            except Exception:
                return
            try:
                self._advance_all()
            except BaseException as error:  # nothing of one creation: a recovery tells whether the session can go on
                self._barriers.fail(error)

    def _advance_all(self) -> None:
        for job_id in list(self._creations):
            with self._lock:
                creation = self._creations.get(job_id)
                is_ready = creation is not None and self._advanced(creation)
            if is_ready:
                assert creation is not None
                self._begin_in_graph(creation)
        with self._lock:
            self._forget_created()

    def _seconds_to_work(self) -> float | None:
        with self._lock:
            found = list(self._creations.values())
        now = self._clock()
        due = [each.began_at + PIECE_SECONDS for each in found if each.phase is _Phase.READING]
        due += [each.began_at for each in found if each.phase is _Phase.WAITING and each.began_at > now]
        return max(0.01, min(due) - now) if due else None

    def _advanced(self, creation: _Creation) -> bool:
        """Takes the next steps of a creation; whether it is ready to begin in the graph. REQUIRES the lock."""
        if creation.phase not in (_Phase.WAITING, _Phase.READING):
            return False
        try:
            self._finish_load(creation)
            if creation.failure is not None:
                return self._begun_again(creation)
            while creation.load is None and creation.pieces and creation.pieces[0].collected.done():
                self._begin_load(creation, creation.pieces.popleft())
            if creation.phase is _Phase.WAITING:
                self._begin(creation)
            elif creation.is_stopping:
                return not creation.pieces and creation.load is None
            elif self._is_due(creation):
                self._inject(creation)
        except BaseException as error:
            self._interrupt(creation, error)
            self.wake()
        return False

    def _begin(self, creation: _Creation) -> None:
        """Builds the actors and injects their first barrier, if there is room and a later epoch was committed."""
        reading = sum(each.phase is _Phase.READING for each in self._creations.values())
        if reading >= MOST_AT_ONCE or self._clock() < creation.began_at:
            return
        if creation.worker.committed_epoch <= creation.since:
            self._barriers.request_checkpoint()
            return
        specs = self._streams.detached_specs(creation.job)
        creation.worker.build(specs)
        creation.actors = frozenset(spec.actor_id for spec in specs)
        creation.scanning = {spec.actor_id for spec in specs if not spec.inputs}
        creation.read, creation.phase = creation.since, _Phase.READING
        creation.is_stopping, creation.last_pieces = False, 0
        self._inject(creation, Add(creation.actors))

    def _is_due(self, creation: _Creation) -> bool:
        """Whether the piece under way ends now. It ends with a later committed epoch, for which a barrier is requested
        if it is wanted at once. One that only reads changes ends once the pieces before it are complete."""
        if len(creation.pieces) + (creation.load is not None) >= PIECES_IN_FLIGHT:
            return False
        is_wanted = creation.wants_barrier or creation.worker.staged_bytes > PIECE_BYTES
        if not creation.scanning:
            is_wanted = not creation.pieces
        if not is_wanted and self._clock() < creation.began_at + PIECE_SECONDS:
            return False
        if creation.worker.committed_epoch > creation.read:
            return True
        self._barriers.request_checkpoint()
        return False

    def _inject(self, creation: _Creation, mutation: Add | Stop | None = None) -> None:
        """Ends the piece under way and begins the next, which reads what is committed now. When all existing rows were
        read the last pieces begin, which read changes alone, and one that stops the actors ends them."""
        until, now = self._pin_newest(creation), self._clock()
        is_checkpoint = True
        if mutation is None and not creation.scanning:
            is_recent = creation.last_pieces and now - creation.began_at < LAST_SECONDS
            if is_recent or creation.last_pieces == LAST_PIECES:
                mutation, creation.is_stopping = Stop(creation.actors), True
            else:
                is_checkpoint, creation.last_pieces = False, creation.last_pieces + 1
        creation.wants_barrier = False  # before the piece begins, which may want its end at once
        pair = EpochPair(own_epoch(until), own_epoch(creation.read))
        piece = _Piece(creation.read, creation.worker.inject(Barrier(pair, is_checkpoint, mutation)))
        piece.collected.add_done_callback(lambda _: self.wake())
        creation.pieces.append(piece)
        creation.read, creation.began_at = until, now

    def _begin_load(self, creation: _Creation, piece: _Piece) -> None:
        """The files of a piece, which are built, enter with the next commit."""
        collected = piece.collected.result()
        creation.scanning.difference_update(collected.backfilled)
        if not collected.sstables:
            return
        load = LoadedFiles(f"creation-{creation.job.job_id}-{os.urandom(8).hex()}", collected.sstables)
        # The answers of a few loads are remembered: one of each creation is enough.
        answered = MetaOperations(delete=(load_key(creation.last_load),)) if creation.last_load else NONE
        change, is_committed = JobChange(answered, loads=(load,)), creation.worker.is_committed
        command = Command(lambda: None, change, False, lambda: is_committed(load.load_id))
        creation.load, creation.last_load = (piece, self._barriers.schedule(command)), load.load_id
        creation.load[1].add_done_callback(lambda _: self.wake())

    def _finish_load(self, creation: _Creation) -> None:
        if creation.load is None or not creation.load[1].done():
            return
        piece, committed = creation.load
        creation.load = None
        committed.result()
        creation.worker.settle(own_epoch(piece.until))
        creation.worker.committed(own_epoch(piece.until))
        creation.since, creation.failures = piece.until, 0
        self._unpin(creation, {each for each in creation.pins if each < piece.until})

    def _begin_in_graph(self, creation: _Creation) -> None:
        """The job begins with a barrier of the graph, as the catalog knows it at that moment."""

        def prepare() -> Add:
            add = self._streams.prepare_create(job)
            with self._lock:
                creation.phase = _Phase.IN_GRAPH
            return add

        with self._one:
            with self._lock:
                if self._creations.get(creation.job.job_id) is not creation or not creation.is_detached:
                    return
                job = creation.job = self._plan(creation.job.job_id)
                creation.worker.end(SessionClosed("the job begins in the graph"))
            try:
                self._barriers.schedule(Command(prepare, JobChange(NONE), False, lambda: True)).result()
            except (HummockError, StreamError) as error:
                log.warning(Event("creation does not begin yet", job=job.plan.root.table.name, error=error))
                self._reopen(creation)

    # -- failures --------------------------------------------------------------------------------------

    def _interrupt(self, creation: _Creation, error: BaseException) -> None:
        """What is not committed is discarded, except for a load under way, whose outcome decides. REQUIRES the lock."""
        creation.failure = error
        if not isinstance(error, SessionClosed):
            log.warning(Event("creation begins again", job=creation.job.plan.root.table.name, error=error))
            creation.began_at = self._clock() + RETRY_SECONDS * creation.failures
            creation.failures += 1
        creation.pieces.clear()
        creation.phase = _Phase.WAITING
        creation.worker.reset(error)

    def _begun_again(self, creation: _Creation) -> bool:
        """Continue from what is committed, in the graph if this has failed too often."""
        if creation.load is not None:
            return False
        if creation.failures < ATTEMPTS:
            since = self._stored_since(creation.job.plan)
            if since:
                creation.since = since
                creation.worker.settle(own_epoch(since))
        creation.failure = None
        self.wake()
        return creation.failures >= ATTEMPTS

    def _reopen(self, creation: _Creation) -> None:
        """It could not begin in the graph, because a job that it reads does not run: it is tried again later."""
        with self._lock:
            if self._creations.get(creation.job.job_id) is not creation or not creation.is_detached:
                return
            creation.worker.close(SessionClosed("the job did not begin in the graph"))
            with suppress(HummockError, StreamError):
                creation.worker = self._opened(creation)
            creation.phase, creation.began_at = _Phase.WAITING, self._clock() + RETRY_SECONDS

    # -- pins ------------------------------------------------------------------------------------------

    def _pin(self, creation: _Creation, epoch: Epoch) -> None:
        if epoch not in creation.pins:
            self._pins.pin(epoch)
            creation.pins.add(epoch)

    def _pin_newest(self, creation: _Creation) -> Epoch:
        """The newest committed epoch, pinned; it is another one if that was compacted away meanwhile."""
        for _ in range(PIN_TRIES):
            with suppress(EpochTooOld):
                epoch = creation.worker.committed_epoch
                self._pin(creation, epoch)
                return epoch
        raise EpochTooOld(epoch, creation.worker.committed_epoch)

    def _unpin(self, creation: _Creation, epochs: Collection[Epoch]) -> None:
        for epoch in epochs:
            creation.pins.discard(epoch)
            with suppress(HummockError):  # the lease ends with the process
                self._pins.unpin(epoch)

    def _release(self, creation: _Creation) -> None:
        """REQUIRES that it is no longer registered."""
        creation.worker.close(SessionClosed("the creation has ended"))
        self._unpin(creation, set(creation.pins))
