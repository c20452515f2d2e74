"""CompactionManager: the running compact tasks, their workers, and their results.

Every change of a task is one transaction that requires the task counter and the head of the version log, so changes of
all processes are serialised on the newest version. A task changes the version only when it is reported; its inputs stay
in the version until then, and no two tasks share one. A caller that requests work takes over abandoned tasks: an
attempt whose token is not in its task's row is dead, whatever it still does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from hummock.base.key import KeyRange
from hummock.compaction.inline_merge import is_inline, merge_inline
from hummock.compaction.picker import early_bytes_of, is_compacted, pick_compaction, pick_range
from hummock.compaction.picker.candidate import CompactionCandidate, VersionEdit, codec_for, files_of
from hummock.compaction.task import CompactTask, OutputOptions, RangeResult, TaskKind
from hummock.epoch import Clock, Epoch, from_unix_ms, to_unix_ms
from hummock.errors import (
    Corruption,
    InvalidEpoch,
    MetaStoreError,
    OutcomeUnknown,
    PreconditionFailed,
    RowCountMismatch,
    TaskRefused,
)
from hummock.meta.compaction.damaged_tasks import DamagedTasks
from hummock.meta.compaction.records import (
    RunningTask,
    TaskBoard,
    WantedRange,
    claim_large,
    large_until_ms,
    read_answer,
    read_board,
    read_running,
    remember,
    task_key,
    wanted_key,
)
from hummock.meta.compaction.report import check_results, delta_of
from hummock.meta.leases import PinTable, read_leases, settle
from hummock.meta.records import (
    CANCELLED,
    DONE,
    FAILED,
    HEAD,
    LEASES,
    NEWEST_LEASE,
    TASK,
    TASKS,
    VACUUMED,
    TaskAnswer,
    lease_key,
    names_digest,
    vacuumed_key,
)
from hummock.meta.store.base import NONE, MetaOperations, MetaStore
from hummock.meta.version_log import LogPosition, append
from hummock.meta.version_state import Change, VersionState
from hummock.object_store.base import RandomBytes, mint_sstable_name
from hummock.options import CompactionOptions
from hummock.version import HummockVersion, VersionDelta

TOKEN_BYTES = 16
ERROR_CHARACTERS = 500      # remembered of an attempt's error


@dataclass(slots=True)
class _Grant:
    """The state of one request for work."""

    holder: str
    token: str
    does_large: bool = False
    early_bytes: int = 0
    task: CompactTask | None = None
    is_over: bool = False       # no further step is needed


class CompactionManager:
    """Thread safe."""

    def __init__(self, keeper: VersionState, clock: Clock, options: CompactionOptions, random_bytes: RandomBytes,
                 pins: PinTable):
        """`pins`: of the nodes of this process."""
        self.options, self._pins = options, pins
        self._keeper, self._clock, self._random_bytes = keeper, clock, random_bytes
        self._damaged = DamagedTasks()

    @property
    def _meta_store(self) -> MetaStore:
        return self._keeper.meta_store

    # -- assigning tasks ------------------------------------------------------------------------------------

    def get(self, holder: str, does_large: bool = False, early_bytes: int = 0) -> tuple[CompactTask, str] | None:
        lease_key(holder)
        grant = _Grant(holder, self._random_bytes(TOKEN_BYTES).hex(), does_large, early_bytes)
        if does_large:
            self._meta_store.transaction(claim_large(self._clock() + self.options.task_lease_ms))
        while grant.task is None and not grant.is_over:
            self._keeper.change(lambda position: self._plan_get(grant, position), _overtaken)
        return None if grant.task is None else (grant.task, grant.token)

    def _plan_get(self, grant: _Grant, position: LogPosition) -> Change | None:
        """One step towards work: a task assigned or given up, or a version edit; None: a task is assigned, or none is
        due.
        """
        board, until_ms = read_board(self._meta_store), large_until_ms(self._meta_store)
        now_ms = self._clock()
        mine = next((row for row in board.running if row.token == grant.token), None)
        if mine is not None:
            grant.task = mine.task
            return None
        leaves_large = now_ms < until_ms and not grant.does_large
        for row in board.running:
            if row.is_free(now_ms, self.options.task_stall_ms) and not (leaves_large and self._is_large(row.task)):
                return self._plan_free(row, grant, board, position, now_ms)
        grant.is_over = True
        if sum(bool(row.holder) for row in board.running) >= self.options.running_tasks:
            return None
        planned = self._plan_new(grant, board, position, now_ms, leaves_large)
        grant.is_over = planned is None
        return planned

    def _is_large(self, task: CompactTask) -> bool:
        return task.input_bytes >= self.options.large_task_bytes

    def _plan_free(self, row: RunningTask, grant: _Grant, board: TaskBoard, position: LogPosition,
                   now_ms: int) -> Change:
        """Assigns the task to the caller, or gives it up after too many tries."""
        if row.tries >= self.options.task_tries:
            error = row.error or f"{row.holder} was silent or made no progress"
            return self._ended(row, FAILED, error) + board.step() + position.requirement, position
        again = row.passed_on(grant.token, holder=grant.holder, tries=row.tries + 1, progress_rows=0,
                              progressed_ms=now_ms, expires_ms=now_ms + self.options.task_lease_ms)
        if grant.does_large and self._is_large(row.task):
            again = replace(again, is_journaled=True)
        written = MetaOperations(put={task_key(row.task.id): again.encode()})
        return written + board.step() + position.requirement, position

    def _plan_new(self, grant: _Grant, board: TaskBoard, position: LogPosition, now_ms: int,
                  leaves_large: bool) -> Change | None:
        version, running = position.version, [row.task for row in board.running]
        for wanted in board.wanted:
            is_needed, pick = pick_range(version, running, self.options, wanted.key_range)
            done = MetaOperations(delete=(wanted_key(wanted.id),))
            if not is_needed:
                return done + board.step() + position.requirement, position
            if pick is not None:
                operations, after = self._plan_task(pick, grant, board, position, now_ms, leaves_large)
                return operations + done, after
        if board.wanted:
            return None         # the request waits for running tasks; new ones would delay it
        picked = pick_compaction(version, self._with_damaged(version, running), self.options,
                                 self._reachable_watermark(version), early_bytes=grant.early_bytes)
        if picked is None:
            return None
        if isinstance(picked, CompactionCandidate):
            return ((self._plan_inline(picked, board, position) if is_inline(picked) else None)
                    or self._plan_task(picked, grant, board, position, now_ms, leaves_large))
        return self._plan_edit(picked, board, position)

    def _watermark(self, version: HummockVersion) -> tuple[Epoch, MetaOperations]:
        """The watermark of a task that starts now, and the requirement that no pin reaches below it meanwhile."""
        target, settled = reachable_safe_epoch(version, self._history_floor(version), self._meta_store, self._clock)
        return max(target, version.safe_epoch), settled

    def _reachable_watermark(self, version: HummockVersion) -> Epoch:
        """The watermark of a task that starts once the leases of this process are lifted to what it has pinned: they
        must not hold back the task that lifts them.
        """
        floor = self._history_floor(version)
        target, _ = reachable_safe_epoch(version, floor, self._meta_store, self._clock, self._pins.least_epochs(floor))
        return max(target, version.safe_epoch)

    def _plan_edit(self, edit: VersionEdit, board: TaskBoard, position: LogPosition) -> Change:
        version, settled = position.version, NONE
        safe_epoch = version.safe_epoch
        if edit.forgets:
            self._pins.lift_epochs(self._history_floor(version))
            safe_epoch, settled = self._watermark(version)
        delta = VersionDelta(version.id + 1, version.max_committed_epoch, safe_epoch, edit.added, edit.removed)
        logged, after = append(position, delta, position.head.next_file_id, self._keeper.options.checkpoint_deltas)
        return logged + settled + board.step(), after

    def _plan_inline(self, pick: CompactionCandidate, board: TaskBoard, position: LogPosition) -> Change | None:
        """Merges a few inline files; None for damaged ones: a task fails by them visibly."""
        version, floor = position.version, self._history_floor(position.version)
        self._pins.lift_epochs(floor)
        safe_epoch, settled = self._watermark(version)
        task = self._task_of(pick, board.counter.next_id, replace(version, safe_epoch=safe_epoch))
        try:
            result = merge_inline(task, partial(mint_sstable_name, self._random_bytes))
        except (Corruption, RowCountMismatch):
            return None
        delta, next_file_id = delta_of(task, result.sstables, version, position.head.next_file_id)
        logged, after = append(position, replace(delta, safe_epoch=safe_epoch), next_file_id,
                               self._keeper.options.checkpoint_deltas)
        self._keeper.metrics.compact_tasks.labels(task.kind.value, "inline").inc()
        return logged + settled + board.step(), after

    def _plan_task(self, pick: CompactionCandidate, grant: _Grant, board: TaskBoard, position: LogPosition, now_ms: int,
                   leaves_large: bool) -> Change:
        """Writes the task's row, and raises the safe epoch to the task's watermark in the same transaction.

        A large task that the caller leaves to others is created without a holder.
        """
        floor = self._history_floor(position.version)
        self._pins.lift_epochs(floor)
        raised = raise_safe_epoch(position, floor, self._meta_store, self._clock,
                                  self._keeper.options.checkpoint_deltas)
        operations, after = raised or (position.requirement, position)
        task = self._task_of(pick, board.counter.next_id, after.version)
        is_large = self._is_large(task)
        row = RunningTask(task, grant.token, grant.holder, now_ms + self.options.task_lease_ms, 0, now_ms,
                          is_journaled=is_large and grant.does_large)
        if leaves_large and is_large:
            row = RunningTask(task, self._random_bytes(TOKEN_BYTES).hex(), "", now_ms, 0, now_ms, tries=0)
        return operations + MetaOperations(put={task_key(task.id): row.encode()}) + board.step(taken=1), after

    def _history_floor(self, version: HummockVersion) -> Epoch:
        """The newest epoch before which `history_ms` allows compaction to drop history."""
        try:
            return from_unix_ms(to_unix_ms(version.max_committed_epoch) - self.options.history_ms)
        except InvalidEpoch:
            return version.safe_epoch

    def _task_of(self, pick: CompactionCandidate, task_id: int, version: HummockVersion) -> CompactTask:
        options, tables = self.options, {table_id for info in files_of(pick) for table_id in info.table_ids}
        output = OutputOptions(options.sstable_bytes, options.block_bytes, codec_for(pick, options),
                               options.filter_policy, options.filter_bits_per_key)
        return CompactTask(
            task_id, pick.kind, pick.inputs, pick.target_level, pick.target_run, version.safe_epoch,
            pick.drop_tombstones, output, tuple(sorted(tables & version.dropped_tables)),
            {table_id: rules for table_id, rules in version.tables.items() if table_id in tables})

    # -- attempts ------------------------------------------------------------------------------------------

    def heartbeat(self, task_id: int, token: str, progress_rows: int) -> None:
        for _ in range(self._keeper.options.transaction_attempts):
            held = self._meta_store.get(task_key(task_id))
            row = None if held is None else RunningTask.decode(task_key(task_id), held)
            if row is None or row.token != token:
                raise self._refusal(task_id)
            now_ms = self._clock()
            moved = progress_rows > row.progress_rows
            again = replace(row, expires_ms=now_ms + self.options.task_lease_ms,
                            progress_rows=progress_rows if moved else row.progress_rows,
                            progressed_ms=now_ms if moved else row.progressed_ms)
            try:
                kept = MetaOperations(require={task_key(task_id): held}, put={task_key(task_id): again.encode()})
                claimed = claim_large(again.expires_ms) if row.is_journaled else NONE
                self._meta_store.transaction(kept + claimed)
            except (PreconditionFailed, OutcomeUnknown):
                continue
            return
        raise MetaStoreError(f"the heartbeat of compact task {task_id} was overtaken at each try")

    def report(self, task_id: int, token: str, results: tuple[RangeResult, ...]) -> None:
        outputs = tuple(info for result in results for info in result.sstables)

        def refuse(error: PreconditionFailed) -> None:
            if error.key.startswith(VACUUMED):
                raise TaskRefused(task_id, f"vacuum removes {error.key.removeprefix(VACUUMED)}") from error
            _overtaken(error)

        self._keeper.change(lambda position: self._plan_report(task_id, token, results, names_digest(outputs),
                                                               position), refuse)

    def _plan_report(self, task_id: int, token: str, results: tuple[RangeResult, ...], digest: str,
                     position: LogPosition) -> Change | None:
        board = read_board(self._meta_store)
        row = board.find(task_id)
        if row is None or row.token != token:
            answer = read_answer(self._meta_store, task_id)
            if answer is not None and (answer.token, answer.outcome, answer.digest) == (token, DONE, digest):
                return None
            raise self._refusal(task_id)
        outputs = check_results(row.task, row.name_prefixes, results)
        if repeated := position.version.held_names({info.name for info in outputs}):
            raise TaskRefused(task_id, f"{min(repeated)} is in the version already")
        delta, next_file_id = delta_of(row.task, outputs, position.version, position.head.next_file_id)
        logged, after = append(position, delta, next_file_id, self._keeper.options.checkpoint_deltas)
        ended = self._ended(row, DONE, version_id=after.version.id, digest=digest)
        unvacuumed = MetaOperations(require={vacuumed_key(info.name): None for info in outputs})
        return logged + board.step() + unvacuumed + ended, after

    def fail(self, task_id: int, token: str, error: str, damage: Corruption | None = None) -> None:
        def ended(row: RunningTask) -> MetaOperations:
            if damage is not None:
                if row.task.kind is not TaskKind.MANUAL:
                    self._damaged.add(row.task, damage, self._clock())
                return self._ended(row, FAILED, error)
            delay_ms = min(self.options.task_retry_ms << (row.tries - 1), self.options.task_stall_ms)
            return self._parked(replace(row, expires_ms=self._clock() + delay_ms, error=error[:ERROR_CHARACTERS]))

        self._let_go(task_id, token, ended)

    def hand_back(self, task_id: int, token: str) -> None:
        self._let_go(task_id, token, lambda row: self._parked(
            replace(row, expires_ms=self._clock(), tries=row.tries - 1)))

    def _let_go(self, task_id: int, token: str, ended: Callable[[RunningTask], MetaOperations]) -> None:
        """Ends the attempt by what `ended` returns; does nothing if the attempt is not valid any more."""
        def plan(position: LogPosition) -> Change | None:
            board = read_board(self._meta_store)
            row = board.find(task_id)
            if row is None or row.token != token:
                return None
            return ended(row) + board.step(), position

        self._keeper.change(plan, _overtaken)

    def _parked(self, row: RunningTask) -> MetaOperations:
        """Keeps the task, without a holder, for the next attempt."""
        free = row.passed_on(self._random_bytes(TOKEN_BYTES).hex(), holder="")
        return MetaOperations(put={task_key(row.task.id): free.encode()})

    def _with_damaged(self, version: HummockVersion, running: Sequence[CompactTask]) -> list[CompactTask]:
        """The running tasks, and those that this process does not try again for now: neither is to be picked."""
        return [*running, *self._damaged.tasks(version, self._clock())]

    def damage_in(self, key_range: KeyRange) -> Corruption | None:
        return self._damaged.error_in(key_range, self._keeper.version, self._clock())

    def _ended(self, row: RunningTask, outcome: str, error: str = "", *, version_id: int = 0,
               digest: str = "") -> MetaOperations:
        answer = TaskAnswer(row.task.id, row.token, outcome, row.task.kind.value, version_id, digest,
                            error[:ERROR_CHARACTERS])
        return remember(self._meta_store, answer, self.options.tasks_remembered)

    def _refusal(self, task_id: int) -> TaskRefused:
        answer = read_answer(self._meta_store, task_id)
        if answer is None:
            return TaskRefused(task_id, "it is another attempt's by now, or was never given out")
        return TaskRefused(task_id, f"it ended as {answer.outcome}{': ' * bool(answer.error)}{answer.error}")

    # -- inspection and requests -----------------------------------------------------------------------------

    def request(self, key_range: KeyRange) -> int:
        made = WantedRange(0, key_range)

        def plan(position: LogPosition) -> Change | None:
            nonlocal made
            board = read_board(self._meta_store)
            if made in board.wanted:        # an earlier try with unknown outcome
                return None
            made = WantedRange(board.counter.next_id, key_range)
            return MetaOperations(put={wanted_key(made.id): made.encode()}) + board.step(taken=1), position

        self._keeper.change(plan, _overtaken)
        return made.id

    def is_due(self, version: HummockVersion, running: Sequence[CompactTask]) -> bool:
        """Whether a task could be picked for `version` while only these run."""
        return pick_compaction(version, self._with_damaged(version, running), self.options,
                               version.max_committed_epoch) is not None

    def early_bytes(self, version: HummockVersion, running: Sequence[CompactTask]) -> int:
        """Bytes of what may be merged early while only these run."""
        return early_bytes_of(version, self._with_damaged(version, running), self.options)

    def is_compacted(self, key_range: KeyRange) -> bool:
        version = self._keeper.refresh()
        return is_compacted(version, self.options, key_range, self._reachable_watermark(version))

    def drop(self, names: Iterable[str], reason: str) -> None:
        """Creates a version without these files; cancels tasks that hold one. Already absent files are fine."""
        wanted = frozenset(names)

        def plan(position: LogPosition) -> Change | None:
            version, board = position.version, read_board(self._meta_store)
            ids = {info.id for info in version.sstables if info.name in wanted}
            if not ids:
                return None
            held = [row for row in board.running if any(info.id in ids for info in files_of(row.task))]
            ended = sum((self._ended(row, CANCELLED, reason) for row in held), NONE)
            delta = VersionDelta(version.id + 1, version.max_committed_epoch, version.safe_epoch,
                                 removed=tuple(sorted(ids)))
            logged, after = append(position, delta, position.head.next_file_id, self._keeper.options.checkpoint_deltas)
            return logged + board.step() + ended, after

        self._keeper.change(plan, _overtaken)

    def running(self) -> list[RunningTask]:
        return read_running(self._meta_store)

    def debt(self) -> int:
        left = 0
        for _ in range(self._keeper.options.transaction_attempts):
            board = read_board(self._meta_store)
            version = self._keeper.refresh()    # read after the board: it has the outputs of every task that had ended
            running = self._with_damaged(version, [row.task for row in board.running])
            due = pick_compaction(version, running, self.options, self._reachable_watermark(version))
            left = len(board.running) + len(board.wanted) + (due is not None)
            if self._meta_store.get(TASKS) == board.counter_bytes:
                return left
        return max(left, 1)     # tasks change faster than their rows can be read


def reachable_safe_epoch(version: HummockVersion, epoch: Epoch, meta_store: MetaStore, clock: Clock,
                         lifted: Mapping[str, Epoch] = MappingProxyType({})) -> tuple[Epoch, MetaOperations]:
    """`epoch`, lowered to valid pins and the committed epoch, and the requirements that protect the pins.

    They require that none of the leases changed, and that no other one was created since. `lifted`: by node, the epoch
    that its lease will keep when it is lifted.
    """
    newest = meta_store.get(NEWEST_LEASE)
    leases = read_leases(meta_store)
    # The clock is read last: otherwise a lease that was renewed after the clock was set back could look expired.
    in_force, settled = settle(leases, clock())
    kept = (lifted.get(lease.node, lease.min_epoch) for lease in in_force)
    target = Epoch(min([epoch, version.max_committed_epoch, *kept]))
    return target, settled + MetaOperations(require={NEWEST_LEASE: newest})


def raise_safe_epoch(position: LogPosition, epoch: Epoch, meta_store: MetaStore, clock: Clock,
                     checkpoint_deltas: int) -> Change | None:
    """Raises the safe epoch towards `epoch`; None: it cannot be raised."""
    version = position.version
    target, settled = reachable_safe_epoch(version, epoch, meta_store, clock)
    if target <= version.safe_epoch:
        return None
    delta = VersionDelta(version.id + 1, version.max_committed_epoch, target)
    logged, after = append(position, delta, position.head.next_file_id, checkpoint_deltas)
    return logged + settled, after


def _overtaken(error: PreconditionFailed) -> None:
    """Returns if another change of tasks, versions or leases came first: then the change is planned again."""
    if error.key not in (HEAD, TASKS, NEWEST_LEASE) and not error.key.startswith((LEASES, TASK)):
        raise error
