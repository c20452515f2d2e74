"""ThreadGroup: the threads of one attempt. `start` does not wait until the thread runs, which can take several GIL
switch intervals.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable

from hummock.base.posix import name_thread


class ThreadGroup:
    """Used by one thread, which starts and joins. The work must not raise.

    The operating system shows the threads as `name` and a number; they are unknown to `threading`.
    """

    def __init__(self, name: str = "hummock") -> None:
        self._name, self._started = name, 0
        self._lock = threading.Lock()
        self._working = 0
        self._ended = threading.Lock()      # held while any thread works

    def start(self, work: Callable[[], object]) -> None:
        """Calls `work()` on a new thread."""
        with self._lock:
            if self._working == 0:
                self._ended.acquire()
            self._working += 1
            self._started += 1
        try:
            _thread.start_new_thread(self._run, (work, f"{self._name}-{self._started}"))
        except BaseException:
            self._leave()
            raise

    def join(self) -> None:
        """Blocks until all started work has ended."""
        with self._ended:
            pass

    def _run(self, work: Callable[[], object], name: str) -> None:
        try:
            name_thread(name)
            work()
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._working -= 1
            if self._working == 0:
                self._ended.release()
