import threading
from types import SimpleNamespace

import pytest

from hummock.epoch import EpochPair, from_unix_ms
from stream.errors import ActorFailed
from stream.message import Barrier
from stream.protocol import Step
from stream.runtime.barrier_forecast import BarrierForecast, BarrierNotice
from stream.runtime.channel import Channel
from stream.worker.local_barrier_manager import PAUSE_SECONDS, LocalBarrierManager

SOON = 30.0
NOW_MS = 1_800_000_000_000


class FakeStore:
    def __init__(self, committed_epoch=0):
        self.committed_epoch = committed_epoch
        self.calls = []
        self.gate = threading.Event()
        self.gate.set()
        self.error = None

    def seal_epoch(self, epoch):
        self.calls.append(("seal", epoch >> 16))

    def sync(self, epoch):
        assert self.gate.wait(SOON)
        if self.error is not None:
            raise self.error
        self.calls.append(("sync", epoch >> 16))
        return SimpleNamespace(epoch=epoch, sstables=(f"file {epoch >> 16}",), watermarks={7: epoch})


def barrier(curr, checkpoint=True):
    return Barrier(EpochPair(curr << 16, (curr - 1) << 16), checkpoint)


class FakeForeground:
    def __init__(self):
        self.runs, self.expected = False, None

    def begin(self):
        self.runs = True

    def end(self, next_in=0.0, ahead=0.0):
        self.runs, self.expected = False, (next_in, ahead) if ahead else None


@pytest.fixture
def clock():
    """Milliseconds since 1970, set by the test."""
    return [NOW_MS]


@pytest.fixture
def notice(clock):
    return BarrierNotice(lambda: clock[0])


@pytest.fixture
def foreground():
    return FakeForeground()


@pytest.fixture
def parts(foreground, clock, notice):
    store, failures, steps = FakeStore(), [], []
    manager = LocalBarrierManager(
        store, failures.append, lambda *step: steps.append(step), foreground=foreground,
        forecast=BarrierForecast(1_000, lambda: clock[0], notice))
    yield manager, store, failures, steps
    store.gate.set()
    manager.close()


def test_the_last_actor_starts_seal_and_sync(parts):
    manager, store, _, steps = parts
    root, first = Channel(10), barrier(2)
    result = manager.inject(first, [root], [1, 2])
    assert root.try_recv() is first
    manager.collect(1, first)
    assert manager.missing(first.epoch.prev) == (2,)
    assert not result.done()
    manager.collect(2, first)
    assert result.result(SOON).sstables == ("file 1",) and result.result().watermarks == {7: 1 << 16}
    assert store.calls == [("seal", 1), ("sync", 1)]
    assert steps == [(Step.COLLECT, 1 << 16), (Step.SYNC, 1 << 16)]


@pytest.mark.parametrize("fails", [False, True])
def test_it_is_busy_from_a_barrier_to_its_commit(parts, foreground, fails):
    manager, store, failures, _ = parts
    assert not manager.is_busy and not foreground.runs
    store.gate.clear()
    store.error = OSError("full") if fails else None
    first = barrier(2)
    result = manager.inject(first, [], [1])
    assert manager.is_busy and foreground.runs
    manager.collect(1, first)
    assert manager.is_busy and foreground.runs and manager.missing(first.epoch.prev) == ()
    store.gate.set()
    assert (result.exception(SOON) is not None) == fails
    assert manager.is_busy == foreground.runs == (not fails)
    manager.committed(first.epoch.prev)
    assert not manager.is_busy and not foreground.runs
    manager.close()
    assert len(failures) == fails


def test_it_is_busy_while_a_later_epoch_is_not_committed(parts):
    manager, _, _, _ = parts
    first, second = barrier(2), barrier(3)
    for each in (first, second):
        manager.inject(each, [], []).result(SOON)
    manager.committed(first.epoch.prev)
    assert manager.is_busy
    manager.committed(second.epoch.prev)
    assert not manager.is_busy


def test_an_epoch_without_a_checkpoint_is_not_waited_for(parts):
    manager, _, _, _ = parts
    manager.inject(barrier(2, checkpoint=False), [], []).result(SOON)
    assert not manager.is_busy


def test_a_reset_leaves_nothing_to_wait_for(parts, foreground):
    manager, _, _, _ = parts
    manager.inject(barrier(2), [], []).result(SOON)
    manager.quiesce()
    assert foreground.expected is None
    manager.reset()
    assert not manager.is_busy and not foreground.runs


def test_merges_pause_before_the_next_barrier_and_before_one_that_is_announced(parts, foreground, clock, notice):
    manager, _, _, _ = parts
    first = barrier(from_unix_ms(NOW_MS) >> 16)
    manager.inject(first, [], []).result(SOON)
    assert foreground.expected is None
    clock[0] += 100
    manager.committed(first.epoch.prev)
    assert foreground.expected == (0.9, PAUSE_SECONDS)
    notice.announce(0.25)
    manager.expect()
    assert foreground.expected == (0.25, PAUSE_SECONDS)


def test_a_barrier_that_is_no_checkpoint_is_sealed_but_not_synced(parts):
    manager, store, _, _ = parts
    plain = barrier(2, checkpoint=False)
    result = manager.inject(plain, [], [1])
    manager.collect(1, plain)
    assert result.result(SOON).sstables == () and result.result().watermarks == {}
    assert store.calls == [("seal", 1)]


def test_the_initial_barrier_seals_nothing_below_the_committed_epoch(parts):
    manager, store, _, _ = parts
    store.committed_epoch = 1 << 16
    manager.inject(barrier(2, checkpoint=False), [], []).result(SOON)
    assert store.calls == []


def test_later_epochs_are_collected_while_an_earlier_one_uploads(parts):
    manager, store, _, _ = parts
    store.gate.clear()
    barriers = [barrier(2), barrier(3), barrier(4)]
    results = [manager.inject(each, [], [1]) for each in barriers]
    for each in barriers:
        manager.collect(1, each)
    assert not any(result.done() for result in results)
    assert all(manager.missing(each.epoch.prev) == () for each in barriers)
    store.gate.set()
    assert [result.result(SOON).epoch >> 16 for result in results] == [1, 2, 3]
    assert [call for call in store.calls if call[0] == "sync"] == [("sync", 1), ("sync", 2), ("sync", 3)]


def test_a_barrier_has_passed_when_all_actors_have_and_those_before_it(parts):
    manager, store, _, _ = parts
    store.gate.clear()
    passed = []
    manager.inject(barrier(2), [], [1, 2], on_passed=lambda: passed.append(2))
    manager.inject(barrier(3), [], [1], on_passed=lambda: passed.append(3))
    manager.collect(1, barrier(2))
    manager.collect(1, barrier(3))
    assert passed == []
    manager.collect(2, barrier(2))
    assert passed == [2, 3]
    manager.inject(barrier(4), [], [], on_passed=lambda: passed.append(4))
    assert passed == [2, 3, 4]
    store.gate.set()


def test_a_failed_actor_fails_every_barrier_in_flight_once(parts):
    manager, _, failures, _ = parts
    results = [manager.inject(each, [], [1, 2]) for each in (barrier(2), barrier(3))]
    manager.fail(1, RuntimeError("boom"))
    manager.fail(2, RuntimeError("closed"))
    for result in results:
        with pytest.raises(ActorFailed, match="actor 1"):
            result.result(SOON)
    assert [error.actor_id for error in failures] == [1]
    with pytest.raises(ActorFailed):
        manager.inject(barrier(4), [], [1]).result(SOON)


def test_a_failed_upload_stops_those_behind_it(parts):
    manager, store, failures, _ = parts
    store.gate.clear()
    store.error = OSError("no bucket")
    results = [manager.inject(each, [], []) for each in (barrier(2), barrier(3))]
    store.gate.set()
    for result in results:
        with pytest.raises(OSError, match="no bucket"):
            result.result(SOON)
    assert failures == [store.error]
    assert ("sync", 2) not in store.calls


def test_after_a_reset_barriers_flow_again_and_old_collects_are_ignored(parts):
    manager, _, failures, _ = parts
    old = barrier(2)
    manager.inject(old, [], [1])
    manager.quiesce()
    manager.fail(1, RuntimeError("closed by the reset"))
    manager.reset()
    manager.collect(1, old)
    new = barrier(9)
    result = manager.inject(new, [], [1])
    manager.collect(1, new)
    assert result.result(SOON).epoch == new.epoch.prev
    assert failures == []


def test_an_epoch_that_is_passed_by_all_waits_for_the_epoch_before_it(parts):
    """The barrier that stops an actor waits for it, the next barrier does not."""
    manager, store, _, _ = parts
    stopping, following = barrier(2), barrier(3)
    first = manager.inject(stopping, [], [1, 2])
    second = manager.inject(following, [], [1])
    manager.collect(1, stopping)
    manager.collect(1, following)
    assert not second.done() and store.calls == []
    manager.collect(2, stopping)
    assert [result.result(SOON).epoch >> 16 for result in (first, second)] == [1, 2]
    assert store.calls == [("seal", 1), ("sync", 1), ("seal", 2), ("sync", 2)]


def test_a_barrier_that_waits_for_nobody_waits_for_the_epoch_before_it(parts):
    manager, store, _, _ = parts
    stopping = barrier(2)
    first, second = manager.inject(stopping, [], [1]), manager.inject(barrier(3), [], [])
    assert not second.done() and store.calls == []
    manager.collect(1, stopping)
    assert [result.result(SOON).epoch >> 16 for result in (first, second)] == [1, 2]
