"""ThreadGroup: threads that work for one attempt. Nothing waits for a thread to start: that can take several turns of
the GIL.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable

from hummock.base.posix import name_thread


class ThreadGroup:
    """For one thread that starts and joins. What is given to it raises nothing.

    The system knows the threads as `name` and a number; `threading` does not know them.
    """

    def __init__(self, name: str = "hummock") -> None:
        self._name, self._started = name, 0
        self._lock = threading.Lock()
        self._working = 0
        self._ended = threading.Lock()      # held while somebody works

    def start(self, work: Callable[[], object]) -> None:
        """`work()` on a thread of its own."""
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
        """All that was started has ended."""
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
