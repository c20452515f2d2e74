"""ForegroundWork: who lets it pass waits for it before and until its end, not for long, and works as long."""

import threading
import time

from hummock.base.foreground import ForegroundWork
from tests.support.drivers.waiting import SOON_SECONDS

LONGEST = 0.19


def waited(work):
    """Seconds that `let_pass` takes."""
    began = time.monotonic()
    work.let_pass()
    return time.monotonic() - began


def test_nobody_waits_while_nothing_runs():
    work = ForegroundWork()
    assert min(waited(work) for _ in range(10)) < LONGEST
    work.begin()
    work.end()
    work.end()
    assert min(waited(work) for _ in range(10)) < LONGEST


def test_who_has_waited_until_it_ended_works_as_long():
    work, found = ForegroundWork(), []
    work.begin()
    began = time.monotonic_ns()
    thread = threading.Thread(target=lambda: found.append((work.let_pass(), time.monotonic_ns())))
    thread.start()
    time.sleep(0.05)
    assert not found
    work.end()
    thread.join(SOON_SECONDS)
    ((until, ended),) = found
    assert 0.04e9 < until - began < 2 * (ended - began)


def test_what_lasts_is_waited_for_some_tenths_of_a_second_in_all():
    work = ForegroundWork()
    work.begin()
    assert waited(work) > LONGEST
    work.begin()                    # it runs already
    assert min(waited(work) for _ in range(10)) < LONGEST
    work.end()
    work.begin()
    assert waited(work) > LONGEST


def test_what_begins_again_is_waited_for_before_and_until_its_end():
    work, found = ForegroundWork(), []
    work.end(30.0, 0.1)
    assert min(waited(work) for _ in range(10)) < LONGEST, "not yet"
    work.end(30.0, 60.0)
    thread = threading.Thread(target=lambda: found.append(waited(work)))
    thread.start()
    time.sleep(0.05)
    work.begin()
    time.sleep(0.05)
    assert not found
    work.end(30.0, 0.1)
    thread.join(SOON_SECONDS)
    assert len(found) == 1


def test_what_was_expected_and_does_not_come_is_not_waited_for_longer_than_before_its_time():
    work = ForegroundWork()
    work.end(0.0, 0.1)
    assert 0.05 < waited(work) < SOON_SECONDS
    assert min(waited(work) for _ in range(10)) < 0.1


def test_nobody_waits_long_for_work_that_follows_work():
    work, done = ForegroundWork(), threading.Event()

    def repeat():
        while not done.is_set():
            work.begin()
            time.sleep(0.01)
            work.end(0.0, 0.1)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        assert waited(work) < SOON_SECONDS
    finally:
        done.set()
        thread.join()
