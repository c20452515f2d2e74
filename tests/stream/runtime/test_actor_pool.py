import random
import threading
import time

import pytest

from stream.message import WAIT, Wait
from stream.runtime import actor_pool
from stream.runtime.actor_pool import OVERDUE_SECONDS, QUANTUM_SECONDS, YIELD_SECONDS, ActorPool
from stream.runtime.thread_clock import BusyClock
from tests.support.drivers.seeds import run_seed
from tests.support.drivers.waiting import SOON_SECONDS, eventually


class Steps:
    """Runs one function of `steps` a slice; its result is the outcome, False after the last one."""

    def __init__(self, *steps, name="steps"):
        self.name = name
        self.steps = list(steps)
        self.slices = 0
        self.threads = set()

    def run(self, until):
        self.slices += 1
        self.threads.add(threading.current_thread().name)
        if not self.steps:
            return False
        return self.steps.pop(0)()


@pytest.fixture
def pool():
    pool = ActorPool(1, spare=1)
    yield pool
    pool.close()


def test_an_actor_runs_until_it_ends(pool):
    actor = Steps(lambda: True, lambda: True)
    pool.start(actor)
    assert pool.join([actor], SOON_SECONDS) == [] and actor.slices == 3


@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit(3)])
def test_an_actor_that_raises_has_ended_and_its_thread_goes_on(pool, error, caplog):
    def fail():
        raise error

    failing, other = Steps(lambda: True, fail, name="failing"), Steps(lambda: True)
    pool.start(failing)
    assert pool.join([failing], SOON_SECONDS) == []
    pool.start(other)
    assert pool.join([other], SOON_SECONDS) == [] and failing.slices == other.slices == 2
    assert "actor=failing" in caplog.text and other.threads == failing.threads


def test_a_parked_actor_runs_when_it_is_woken(pool):
    parked = threading.Event()
    actor = Steps(lambda: parked.set() or WAIT)
    pool.start(actor)
    assert parked.wait(SOON_SECONDS)
    assert pool.join([actor], 0.02) == [actor]
    pool.wake(actor)
    assert pool.join([actor], SOON_SECONDS) == []
    pool.wake(actor)  # has no effect any more


def test_a_wake_up_during_a_slice_is_not_lost(pool):
    actor = Steps(lambda: pool.wake(actor) or WAIT)
    pool.start(actor)
    assert pool.join([actor], SOON_SECONDS) == [] and actor.slices == 2


def test_a_timer_wakes_and_an_earlier_wake_up_makes_it_obsolete(pool):
    began = time.monotonic()
    timed = Steps(lambda: Wait(0.05))
    pool.start(timed)
    assert pool.join([timed], SOON_SECONDS) == [] and time.monotonic() - began >= 0.05
    parked = threading.Event()
    woken = Steps(lambda: Wait(0.1), lambda: parked.set() or WAIT)
    pool.start(woken)
    pool.wake(woken)
    assert parked.wait(SOON_SECONDS)
    assert pool.join([woken], 0.3) == [woken]  # the timer of its first slice does not wake it
    pool.wake(woken)
    assert pool.join([woken], SOON_SECONDS) == []


def test_a_parked_actor_is_woken_within_a_time_at_the_latest(pool):
    parked = threading.Event()
    actor = Steps(lambda: parked.set() or WAIT, lambda: parked.set() or WAIT)
    pool.start(actor)
    assert parked.wait(SOON_SECONDS)
    parked.clear()
    for _ in range(3):  # the first one counts
        pool.wake(actor, 0.05)
    assert parked.wait(SOON_SECONDS) and actor.slices == 2
    pool.wake(actor, SOON_SECONDS)
    pool.wake(actor)
    assert pool.join([actor], SOON_SECONDS) == [] and actor.slices == 3


def test_a_wake_up_within_a_time_is_not_lost_during_a_slice(pool):
    actor = Steps(lambda: pool.wake(actor, 0.01) or WAIT, lambda: pool.wake(actor, 0.01) or Wait(SOON_SECONDS))
    pool.start(actor)
    assert pool.join([actor], SOON_SECONDS) == [] and actor.slices == 3


def test_a_timer_that_is_earlier_than_a_wake_up_stays(pool):
    actor = Steps(lambda: pool.wake(actor, SOON_SECONDS) or Wait(0.01))
    pool.start(actor)
    assert pool.join([actor], SOON_SECONDS) == [] and actor.slices == 2


def test_a_busy_actor_is_asked_to_yield_to_the_others(pool):
    seen, ended = [], threading.Event()

    class Busy:
        name = "busy"

        def run(self, until):
            began = time.monotonic()
            while not until() and not ended.is_set():
                assert time.monotonic() - began < SOON_SECONDS
            seen.append(time.monotonic() - began)
            return not ended.is_set()

    busy, short = Busy(), Steps(lambda: ended.set() or False)
    pool.start(busy)
    pool.start(short)
    assert pool.join([busy], SOON_SECONDS) == []
    assert seen[0] >= QUANTUM_SECONDS / 2


def test_a_spare_thread_runs_an_actor_that_is_overdue(pool):
    release, ran = threading.Event(), threading.Event()
    blocked = Steps(lambda: (release.wait(SOON_SECONDS) and None) or False, name="blocked")
    other = Steps(lambda: ran.set() or False, name="other")
    pool.start(blocked)
    pool.start(other)
    began = time.monotonic()
    assert ran.wait(SOON_SECONDS) and time.monotonic() - began >= OVERDUE_SECONDS / 2
    assert other.threads == {"actors-spare-0"}
    release.set()
    assert pool.join([blocked, other], SOON_SECONDS) == []


def test_no_spare_thread_runs_while_the_regular_ones_compute(pool, monkeypatch):
    monkeypatch.setattr(BusyClock, "seconds", property(lambda clock: time.monotonic()))  # it is busy while it sleeps
    computing, other = Steps(lambda: time.sleep(4 * OVERDUE_SECONDS) or False, name="computing"), Steps(name="other")
    pool.start(computing)
    pool.start(other)
    assert pool.join([computing, other], SOON_SECONDS) == []
    assert other.threads == {"actors-0"}


@pytest.fixture
def held(pool):
    """Occupies the regular thread and the spare one, so that actors wait in the queue until it is set."""
    release = threading.Event()
    for _ in range(2):
        running = threading.Event()
        pool.start(Steps(lambda running=running: running.set() or (release.wait(SOON_SECONDS) and False)))
        assert running.wait(SOON_SECONDS)
    yield release
    release.set()


def test_an_actor_with_a_barrier_goes_first(pool, held):
    """Also if the barrier arrives while it is in the queue already, and however often it is woken."""
    order, with_barrier = [], set()

    def actor(name):
        return Steps(lambda: order.append(name) or False, name=name)

    others = [actor(name) for name in "abc"]
    for each in others:
        pool.start(each, lambda each=each: each.name in with_barrier)
    first = actor("first")
    pool.start(first, lambda: True)
    for _ in range(3):
        with_barrier.add("c")
        pool.wake(others[2])
    assert pool.ready_actors == 4
    held.set()
    assert pool.join([*others, first], SOON_SECONDS) == []
    assert sorted(order[:2]) == ["c", "first"] and sorted(order[2:]) == ["a", "b"]


def test_an_actor_without_a_barrier_yields_to_one_with(pool):
    """Before its quantum is over; one that has a barrier itself does not."""
    pool.close()
    pool, barriers, answers = ActorPool(1, spare=0, clock=lambda: 0.0), {"other"}, []

    class Running(Steps):
        def run(self, until):
            if not answers:
                answers.append(until())
                pool.start(Steps(lambda: False), lambda: "other" in barriers)
                answers.append(until())
                barriers.add("running")
                answers.append(until())
            return False

    running = Running()
    pool.start(running, lambda: "running" in barriers)
    assert pool.join([running], SOON_SECONDS) == [] and answers == [False, True, False]
    pool.close()


def test_a_pool_yields_to_other_work_for_a_while():
    now, is_busy = [0.0], [True]
    pool = ActorPool(1, spare=0, clock=lambda: now[0], yields_to=lambda: is_busy[0])
    first, second = Steps(), Steps()
    pool.start(first)
    assert pool.join([first], 0.05) == [first] and first.slices == 0
    is_busy[0] = False
    assert pool.join([first], SOON_SECONDS) == []
    is_busy[0] = True
    pool.start(second)
    assert pool.join([second], 0.05) == [second] and second.slices == 0
    now[0] += YIELD_SECONDS
    assert pool.join([second], SOON_SECONDS) == []
    pool.close()


def test_many_actors_share_the_threads():
    pool, before = ActorPool(2, spare=2), threading.active_count()
    actors = [Steps(*(lambda: True for _ in range(20))) for _ in range(200)]
    for actor in actors:
        pool.start(actor)
    assert threading.active_count() <= before + 4
    assert pool.join(actors, SOON_SECONDS) == []
    assert {each.slices for each in actors} == {21}
    pool.close()


def test_actors_that_wake_each_other_at_random_all_end():
    """A token is passed on 2,000 times: a lost wake-up would stop it."""
    rng, pool = random.Random(run_seed()), ActorPool(3, spare=1)
    lock, left, tokens = threading.Lock(), [2_000], []

    class Passing:
        def __init__(self, number):
            self.name, self.number, self.has_token = f"passing {number}", number, False

        def run(self, until):
            with lock:
                if left[0] <= 0:
                    return False
                if not self.has_token:
                    return WAIT
                self.has_token, left[0] = False, left[0] - 1
                target = rng.choice(tokens)
                target.has_token = True
                is_last = left[0] <= 0
            for each in tokens if is_last else [target]:
                pool.wake(each)
            return WAIT if not is_last else False

    tokens += [Passing(number) for number in range(8)]
    tokens[0].has_token = True
    for each in tokens:
        pool.start(each)
    assert pool.join(tokens, SOON_SECONDS) == []
    pool.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_one_thread_of_several_leaves_its_core_to_other_work(threads, monkeypatch):
    monkeypatch.setattr(actor_pool, "LEAVE_SECONDS", SOON_SECONDS)
    pool, ends = ActorPool(threads, spare=0), threading.Event()
    actors = [Busy(ends) for _ in range(6)]
    try:
        for actor in actors:
            pool.start(actor)
        eventually(lambda: len(threads_of(actors)) == threads)
        with pool.left_core():
            def found():
                for actor in actors:
                    actor.threads.clear()
                time.sleep(5 * QUANTUM_SECONDS)
                return len(threads_of(actors))

            eventually(lambda: found() == max(1, threads - 1))        # slices that had begun have ended
            assert max(found() for _ in range(5)) <= max(1, threads - 1)
        eventually(lambda: len(threads_of(actors)) == threads)
    finally:
        ends.set()
        assert pool.join(actors, SOON_SECONDS) == []
        pool.close()


def test_a_core_is_left_for_a_time_only(monkeypatch):
    monkeypatch.setattr(actor_pool, "LEAVE_SECONDS", 0.05)
    pool, ends = ActorPool(2, spare=0), threading.Event()
    actors = [Busy(ends) for _ in range(4)]
    try:
        with pool.left_core():
            for actor in actors:
                pool.start(actor)
            eventually(lambda: len(threads_of(actors)) == 2)
    finally:
        ends.set()
        assert pool.join(actors, SOON_SECONDS) == []
        pool.close()


class Busy:
    """Always has work, in slices as long as the pool allows, until `ends` is set."""

    def __init__(self, ends):
        self.ends, self.threads = ends, set()

    def run(self, until):
        self.threads.add(threading.current_thread().name)
        while not until():
            if self.ends.is_set():
                return False
            time.sleep(0.001)
        return True


def threads_of(actors):
    return set().union(*(actor.threads for actor in actors))


