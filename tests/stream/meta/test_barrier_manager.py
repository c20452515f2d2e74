import itertools
import threading
import time
from concurrent.futures import Future

import pytest

from hummock.epoch import EpochGenerator
from hummock.errors import Fenced
from stream.errors import ActorFailed, BarrierTimeout, RecoveryFailed, SessionClosed
from stream.message import Add, Stop
from stream.meta.barrier_manager import NOTICE_SECONDS, BarrierManager, Lifecycle
from stream.meta.barrier_schedule import Command
from stream.meta.barrier_stats import BarrierStats
from stream.meta.recovery import RecoveryPolicy
from stream.options import StreamOptions
from stream.protocol import CollectedEpoch, Step
from tests.support.drivers.waiting import eventually

SOON = 30.0
NEVER_MS = 10_000_000
STOPPING = Stop(frozenset({1}))


class FakeWorker:
    """Collects immediately, unless `holds`; then `release()` collects."""

    def __init__(self):
        self.barriers, self.held, self.resets, self.committed_epochs = [], [], [], []
        self.holds = self.holds_in_actors = False
        self.passing = []
        self.fail_initial = 0
        self.expected, self.has_much = [], False

    def inject(self, barrier, on_passed=lambda: None):
        self.barriers.append(barrier)
        if self.holds_in_actors:
            self.passing.append(on_passed)
        else:
            on_passed()
        result = Future()
        if isinstance(barrier.mutation, Add) and not barrier.checkpoint and self.fail_initial:
            self.fail_initial -= 1
            result.set_exception(ActorFailed(1, RuntimeError("still broken")))
        elif self.holds and barrier.checkpoint:
            self.held.append((barrier, result))
        else:
            files = (f"file of {barrier.epoch.prev}",)
            result.set_result(CollectedEpoch(barrier.epoch.prev, files, watermarks={3: barrier}))
        return result

    def release(self, index=0):
        barrier, result = self.held.pop(index)
        result.set_result(CollectedEpoch(barrier.epoch.prev, (f"file of {barrier.epoch.prev}",), (), {3: barrier}))

    def expect(self, seconds):
        self.expected.append(seconds)
        return self.has_much

    def missing(self, epoch):
        return (4, 2)

    def committed(self, epoch):
        self.committed_epochs.append(epoch)

    def reset(self, cause):
        self.resets.append(cause)
        self.held.clear()

    def close(self, error):
        self.closed_by = error


class FakeCommitter:
    def __init__(self, committed_epoch=0):
        self.committed_epoch = committed_epoch
        self.commits = []
        self.errors = []

    def commit(self, collected, changes):
        if self.errors:
            raise self.errors.pop(0)
        marks = {table: barrier.epoch.prev for table, barrier in collected.watermarks.items()}
        assert marks == {3: collected.epoch} and collected.epoch > self.committed_epoch
        self.commits.append((collected.epoch, collected.sstables, tuple(changes)))
        self.committed_epoch = collected.epoch


@pytest.fixture
def parts():
    made = []

    def make(**options):
        options.setdefault("barrier_interval_ms", NEVER_MS)
        worker, committer, steps = FakeWorker(), FakeCommitter(), []
        stats = BarrierStats()
        rebuilds = []

        def observe(step, epoch):
            steps.append((step, epoch))
            stats.observe(step, epoch)

        def rebuild(cause):
            rebuilds.append(committer.committed_epoch)
            return Add(frozenset({1, 2}))

        manager = BarrierManager(
            worker,
            committer,
            EpochGenerator(),
            rebuild,
            StreamOptions(**options),
            stats,
            RecoveryPolicy(StreamOptions(**options)),
            observe,
        )
        manager.steps, manager.stats, manager.rebuilds = steps, stats, rebuilds
        made.append(manager)
        return manager, worker, committer

    yield make
    for manager in made:
        manager.close(SOON)


def test_a_graph_begins_with_an_initial_barrier_from_the_committed_epoch(parts):
    manager, worker, committer = parts()
    committer.committed_epoch = 5 << 16
    manager.start()
    (initial,) = worker.barriers
    assert (initial.epoch.prev, initial.checkpoint) == (5 << 16, False)
    assert initial.mutation == Add(frozenset({1, 2}))
    assert worker.resets == []


def test_flush_waits_for_the_commit_of_the_epoch_that_was_open(parts):
    manager, worker, committer = parts()
    manager.start()
    opened = worker.barriers[-1].epoch.curr
    assert manager.flush().result(SOON) == opened
    assert [epoch for epoch, _, _ in committer.commits] == [opened]
    assert worker.committed_epochs == [opened]
    assert [step for step, epoch in manager.steps] == [Step.INJECT, Step.COMMIT, Step.COMMITTED, Step.NOTIFY]
    assert manager.stats.figures().committed_barriers == 1


def test_epochs_are_an_unbroken_chain(parts):
    manager, worker, _ = parts(barrier_interval_ms=1)
    manager.start()
    eventually(lambda: len(worker.barriers) > 5)
    pairs = [barrier.epoch for barrier in worker.barriers[:6]]
    assert all(later.prev == earlier.curr for earlier, later in itertools.pairwise(pairs))


def test_commits_stay_in_order_and_in_flight_barriers_are_bounded(parts):
    manager, worker, committer = parts(barrier_interval_ms=1, in_flight_barriers=3)
    manager.start()
    worker.holds = True
    eventually(lambda: len(worker.held) == 3)
    threading.Event().wait(0.05)
    assert len(worker.held) == 3
    done = len(committer.commits)
    worker.release(2)
    worker.release(1)
    threading.Event().wait(0.05)
    assert len(committer.commits) == done
    worker.holds = False
    worker.release(0)
    eventually(lambda: len(committer.commits) >= done + 3)
    epochs = [epoch for epoch, _, _ in committer.commits]
    assert epochs == sorted(epochs)


def test_a_barrier_waits_until_the_one_before_has_passed_all_actors(parts):
    manager, worker, committer = parts(barrier_interval_ms=1, in_flight_barriers=3)
    manager.start()
    worker.holds = worker.holds_in_actors = True
    for number in range(1, 4):
        eventually(lambda number=number: len(worker.passing) == number)
        threading.Event().wait(0.02)
        assert len(worker.passing) == len(worker.held) == number
        worker.passing[-1]()
    worker.holds = worker.holds_in_actors = False
    done = len(committer.commits)
    for _ in range(3):
        worker.release()
    eventually(lambda: len(committer.commits) >= done + 3)


def test_a_barrier_that_failed_holds_no_other_one_back(parts):
    manager, worker, committer = parts(barrier_interval_ms=1)
    manager.start()
    worker.holds = worker.holds_in_actors = True
    eventually(lambda: worker.held)
    worker.holds = worker.holds_in_actors = False
    manager.fail(ActorFailed(1, RuntimeError("broken")))
    done = len(committer.commits)
    eventually(lambda: len(committer.commits) >= done + 3)


def test_a_request_brings_a_barrier_before_the_interval(parts):
    manager, _, committer = parts()
    manager.start()
    manager.request()
    eventually(lambda: len(committer.commits) == 1)


def test_a_barrier_that_is_announced_comes_at_once_if_little_is_to_be_done_for_it(parts):
    manager, worker, committer = parts()
    manager.start()
    manager.announce()
    eventually(lambda: len(committer.commits) == 1)
    assert worker.expected == [NOTICE_SECONDS]


def test_otherwise_it_comes_when_the_worker_had_time_for_that(parts):
    manager, worker, committer = parts()
    worker.has_much = True
    manager.start()
    began = time.monotonic()
    manager.announce()
    manager.announce()  # another source
    eventually(lambda: len(committer.commits) == 1)
    assert time.monotonic() - began > 0.9 * NOTICE_SECONDS and len(worker.barriers) == 2
    assert worker.expected == [NOTICE_SECONDS], "the second one is as early anyway"


def test_a_barrier_that_is_due_as_soon_is_announced_to_nobody(parts):
    manager, worker, committer = parts(barrier_interval_ms=int(1_000 * NOTICE_SECONDS))
    manager.start()
    manager.announce()
    eventually(lambda: len(committer.commits) >= 1)
    assert worker.expected == []


def test_only_each_nth_barrier_is_a_checkpoint_but_a_flush_is_one(parts):
    manager, worker, committer = parts(checkpoint_frequency=3)
    manager.start()
    for count in (1, 2, 3, 4):
        manager.request()
        eventually(lambda count=count: len(worker.barriers) == 1 + count)
    eventually(lambda: len(committer.commits) == 1)
    assert [barrier.checkpoint for barrier in worker.barriers[1:]] == [False, False, True, False]
    manager.flush().result(SOON)
    assert worker.barriers[-1].checkpoint


def test_creating_commits_with_the_epoch_its_barrier_opens(parts):
    manager, worker, committer = parts()
    manager.start()
    adding = Add(frozenset({9}))
    command = Command(lambda: adding, "catalog", in_new_epoch=True, is_applied=lambda: False)
    epoch = manager.schedule(command).result(SOON)
    (carrying,) = [barrier for barrier in worker.barriers if barrier.mutation is adding]
    assert epoch == carrying.epoch.curr
    assert [operations for _, _, operations in committer.commits] == [(), ("catalog",)]


def test_dropping_commits_with_the_epoch_its_barrier_ends(parts):
    manager, worker, committer = parts()
    manager.start()
    command = Command(lambda: STOPPING, "catalog", in_new_epoch=False, is_applied=lambda: False)
    epoch = manager.schedule(command).result(SOON)
    (carrying,) = [barrier for barrier in worker.barriers if barrier.mutation is STOPPING]
    assert epoch == carrying.epoch.prev
    assert committer.commits == [(epoch, (f"file of {epoch}",), ("catalog",))]


def test_a_failure_resets_the_worker_and_goes_on_from_the_committed_epoch(parts):
    manager, worker, _ = parts()
    manager.start()
    committed = manager.flush().result(SOON)
    worker.holds = True
    waiting = manager.flush()
    eventually(lambda: worker.held)
    worker.holds = False
    cause = ActorFailed(1, RuntimeError("boom"))
    manager.fail(cause)
    assert waiting.result(SOON) > committed
    assert worker.resets == [cause]
    assert manager.rebuilds == [0, committed]
    initial = [barrier for barrier in worker.barriers if not barrier.checkpoint][1]
    assert initial.epoch.prev == committed
    assert initial.epoch.curr > worker.barriers[1].epoch.curr


def test_a_ddl_of_unknown_outcome_is_looked_up_after_recovery(parts):
    manager, _, committer = parts()
    manager.start()
    committer.errors = [ConnectionError("the answer never came")]
    command = Command(lambda: STOPPING, "catalog", in_new_epoch=False, is_applied=lambda: True)
    assert manager.schedule(command).result(SOON) == committer.committed_epoch
    assert committer.commits == []


@pytest.mark.parametrize("failures", [1, 2, 100])
def test_a_recovery_that_cannot_look_a_ddl_up_goes_on_until_it_can_or_ends_the_session(parts, failures):
    manager, _, committer = parts(recovery_attempts=4, recovery_backoff_ms=1)
    manager.start()
    committer.errors = [ConnectionError("the answer never came")]
    answers = [ConnectionError("no route to the meta store")] * failures

    def is_applied():
        if answers:
            raise answers.pop()
        return True

    result = manager.schedule(Command(lambda: STOPPING, "catalog", in_new_epoch=False, is_applied=is_applied))
    if failures < 100:
        assert result.result(SOON) == committer.committed_epoch
        manager.check_alive()
    else:
        with pytest.raises(RecoveryFailed):
            result.result(SOON)
        with pytest.raises(RecoveryFailed):
            manager.check_alive()


@pytest.mark.parametrize("failures", [1, 2])
def test_a_ddl_that_a_recovery_undid_is_tried_once_more(parts, failures):
    manager, _, committer = parts()
    manager.start()
    committer.errors = [ConnectionError("lost")] * failures
    command = Command(lambda: STOPPING, "catalog", in_new_epoch=False, is_applied=lambda: False)
    result = manager.schedule(command)
    if failures == 1:
        assert result.result(SOON) == committer.committed_epoch
        assert [changes for _, _, changes in committer.commits] == [("catalog",)]
    else:
        with pytest.raises(ConnectionError):
            result.result(SOON)
    manager.check_alive()


def test_ddls_whose_actors_fail_do_not_end_the_session(parts):
    """Each is refused after its second attempt; nothing is committed meanwhile."""
    manager, worker, committer = parts(recovery_attempts=3, recovery_backoff_ms=1)
    manager.start()
    worker.holds = True
    for number in range(4):
        result = manager.schedule(Command(lambda: STOPPING, "catalog", in_new_epoch=False, is_applied=lambda: False))
        for attempt in (1, 2):
            eventually(lambda: worker.held)
            failed = ActorFailed(1, RuntimeError(f"no such file {number}"))
            manager.fail(failed)
            eventually(lambda failed=failed: failed in worker.resets)
            assert attempt == 2 or not result.done()
        with pytest.raises(ActorFailed, match=f"no such file {number}"):
            result.result(SOON)
    worker.holds = False
    assert manager.flush().result(SOON) and [changes for _, _, changes in committer.commits] == [()]


def test_a_ddl_that_waits_for_its_barrier_is_not_touched_by_a_recovery(parts):
    manager, worker, committer = parts(in_flight_barriers=1)
    manager.start()
    worker.holds = True
    first = manager.schedule(Command(lambda: STOPPING, "first", in_new_epoch=False, is_applied=lambda: True))
    eventually(lambda: worker.held)
    second = manager.schedule(Command(lambda: STOPPING, "second", in_new_epoch=False, is_applied=lambda: False))
    worker.holds = False
    manager.fail(RuntimeError("unrelated failure"))
    assert first.result(SOON) is not None
    assert second.result(SOON) == committer.committed_epoch
    assert [changes for _, _, changes in committer.commits] == [("second",)]


def test_recovery_gives_up_after_its_limit(parts):
    manager, worker, _ = parts(recovery_attempts=3, recovery_backoff_ms=1)
    manager.start()
    worker.fail_initial = 100
    manager.fail(ActorFailed(1, RuntimeError("boom")))
    eventually(lambda: manager._state is Lifecycle.DEAD)
    with pytest.raises(RecoveryFailed):
        manager.flush()
    assert len(manager.rebuilds) == 1 + 3


def test_a_commit_in_between_renews_the_attempts(parts):
    manager, _, _ = parts(recovery_attempts=1, recovery_backoff_ms=1)
    manager.start()
    for round_ in (2, 3, 4):
        manager.fail(ActorFailed(1, RuntimeError("boom")))
        eventually(lambda round_=round_: len(manager.rebuilds) == round_)
        manager.flush().result(SOON)


def test_a_fenced_session_ends_with_that_error_for_everyone(parts):
    manager, worker, committer = parts()
    manager.start()
    committer.errors = [Fenced("writer", 1, 2, "node")]
    with pytest.raises(Fenced):
        manager.flush().result(SOON)
    with pytest.raises(Fenced):
        manager.flush()
    assert len(manager.rebuilds) == 1
    assert isinstance(worker.closed_by, Fenced)


def test_a_barrier_that_nobody_collects_times_out_and_names_who_is_missing(parts):
    manager, worker, _ = parts(barrier_timeout_ms=30)
    manager.start()
    worker.holds = True
    command = Command(lambda: STOPPING, "catalog", in_new_epoch=False, is_applied=lambda: False)
    result = manager.schedule(command)
    with pytest.raises(BarrierTimeout) as raised:
        result.result(SOON)
    assert raised.value.missing == (2, 4)


def test_close_answers_those_who_wait(parts):
    manager, worker, _ = parts()
    manager.start()
    worker.holds = True
    waiting = manager.flush()
    eventually(lambda: worker.held)
    manager.close(SOON)
    with pytest.raises(SessionClosed):
        waiting.result(SOON)
    with pytest.raises(SessionClosed):
        manager.flush()


def test_close_answers_them_even_if_the_worker_does_not_close(parts, monkeypatch):
    manager, worker, _ = parts()
    manager.start()
    worker.holds = True
    waiting = [manager.flush(), manager.schedule(Command(lambda: STOPPING, "catalog", False, lambda: False))]
    eventually(lambda: worker.held)

    def refuse(error):
        raise OSError("the store is gone")

    with monkeypatch.context() as broken, pytest.raises(OSError, match="the store is gone"):
        broken.setattr(worker, "close", refuse)
        manager.close(SOON)
    for each in waiting:
        with pytest.raises(SessionClosed):
            each.result(SOON)


def test_the_error_that_ends_a_session_tells_that_its_worker_does_not_close(parts, monkeypatch):
    manager, worker, committer = parts()
    manager.start()

    def refuse(error):
        raise OSError("the store is gone")

    monkeypatch.setattr(worker, "close", refuse)
    committer.errors = [Fenced("writer", 1, 2, "node")]
    with pytest.raises(Fenced) as ended:
        manager.flush().result(SOON)
    assert "the store is gone" in ended.value.__notes__[0]


def test_a_command_that_refuses_disturbs_nobody(parts):
    manager, worker, _ = parts()
    manager.start()

    def refuse():
        raise ValueError("no such connector")

    with pytest.raises(ValueError, match="no such connector"):
        manager.schedule(Command(refuse, "catalog", True, lambda: False)).result(SOON)
    manager.flush().result(SOON)
    assert worker.resets == []
