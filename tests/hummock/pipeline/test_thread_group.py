"""Threads of an attempt: joined when all have ended, and the system knows them by name."""

import sys
import threading
from pathlib import Path

import pytest

from hummock.pipeline.thread_group import ThreadGroup


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell names in other ways")
def test_the_system_knows_threads_by_name():
    crew, seen = ThreadGroup("compact-7"), []
    for _ in range(2):
        crew.start(lambda: seen.append(Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text()))
    crew.join()
    assert sorted(seen) == ["compact-7-1\n", "compact-7-2\n"]


def test_join_waits_for_all_that_was_started():
    crew, go, done = ThreadGroup(), threading.Event(), []
    for number in range(5):
        crew.start(lambda number=number: go.wait(60) and done.append(number))
    go.set()
    crew.join()
    assert sorted(done) == list(range(5))
    crew.start(lambda: done.append(5))
    crew.join()
    assert done[-1] == 5
