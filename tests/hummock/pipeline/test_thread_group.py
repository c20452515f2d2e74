"""ThreadGroup: `join` waits for all threads, and the system shows their names."""

import sys
import threading
from pathlib import Path

import pytest

from hummock.pipeline.thread_group import ThreadGroup


@pytest.mark.skipif(sys.platform != "linux", reason="reads thread names from /proc")
def test_the_system_knows_threads_by_name():
    group, seen = ThreadGroup("compact-7"), []
    for _ in range(2):
        group.start(lambda: seen.append(Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text()))
    group.join()
    assert sorted(seen) == ["compact-7-1\n", "compact-7-2\n"]


def test_join_waits_for_all_that_was_started():
    group, go, done = ThreadGroup(), threading.Event(), []
    for number in range(5):
        group.start(lambda number=number: go.wait(60) and done.append(number))
    go.set()
    group.join()
    assert sorted(done) == list(range(5))
    group.start(lambda: done.append(5))
    group.join()
    assert done[-1] == 5
