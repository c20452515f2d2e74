"""Clocks of threads: what counts as busy."""

import hashlib
import os
import threading
import time
from pathlib import Path

import pytest

from stream.runtime import thread_clock
from stream.runtime.thread_clock import SCHEDSTAT, BusyClock

DATA = bytes(1 << 22)


def compute(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        hashlib.sha256(DATA)  # without the interpreter's lock


def test_a_thread_is_busy_while_it_computes_and_not_while_it_sleeps():
    clock = BusyClock()
    began, busy, cpu = time.monotonic(), clock.seconds, time.thread_time()
    compute(0.05)
    computed = clock.seconds - busy
    assert time.thread_time() - cpu <= computed + 0.001 and computed <= time.monotonic() - began + 0.005
    slept = clock.seconds
    time.sleep(0.05)
    assert clock.seconds - slept < 0.025
    clock.close()


@pytest.mark.skipif(not Path(SCHEDSTAT).exists(), reason="the system does not tell how long a thread waited")
def test_a_thread_is_busy_while_it_waits_for_a_core():
    core, gate, found = min(os.sched_getaffinity(0)), threading.Barrier(3), []

    def run():
        os.sched_setaffinity(0, {core})
        clock = BusyClock()
        gate.wait()
        began, busy, cpu = time.monotonic(), clock.seconds, time.thread_time()
        compute(0.2)
        found.append((time.monotonic() - began, clock.seconds - busy, time.thread_time() - cpu))
        clock.close()

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seconds, busy, cpu in found:
        assert cpu < 0.6 * seconds  # three threads, one core
        assert busy > 0.75 * seconds


def test_where_waits_are_not_told_it_is_the_cpu_clock(monkeypatch):
    monkeypatch.setattr(thread_clock, "SCHEDSTAT", "/proc/no-such-file")
    clock = BusyClock()
    compute(0.01)
    assert clock.seconds == pytest.approx(time.thread_time(), abs=0.005)
    clock.close()


def test_where_other_threads_cannot_be_asked_it_stands_still(monkeypatch):
    monkeypatch.setattr(thread_clock, "SCHEDSTAT", "/proc/no-such-file")
    monkeypatch.delattr(time, "pthread_getcpuclockid")
    clock = BusyClock()
    assert clock.seconds == 0.0
    compute(0.01)
    assert clock.seconds == 0.0
